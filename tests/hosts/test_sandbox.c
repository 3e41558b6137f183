/* test_sandbox.c: policies and memory: the arena's cap, policies that hoard, and a state in which
 * any allocation may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lua/src/sandbox.h"

#include "lualib.h"

int luaopen_neap_core(lua_State *L);

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* ---- A state --------------------------------------------------------------------------------- */

static int panics;

static int on_panic(lua_State *L) {
  (void)L;
  panics++;
  return 0; /* and then abort() */
}

static int prepare(lua_State *L) {
  luaL_openlibs(L);
  neap__sandbox_strings(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_neap_core);
  lua_setfield(L, -2, "neap.core");
  return 0;
}

static lua_State *state_new(lua_Alloc alloc, void *data) {
  lua_State *L = lua_newstate(alloc, data);
  assert_non_null(L);
  lua_atpanic(L, on_panic);
  lua_pushcfunction(L, prepare);
  assert_int_equal(lua_pcall(L, 0, 0, 0), LUA_OK);
  return L;
}

static lua_State *arena_state(neap__arena *arena, size_t cap) {
  *arena = (neap__arena){.cap = cap};
  return state_new(neap__arena_alloc, arena);
}

/* Runs a text; its string result is in `said`, or its error. */
static int run(lua_State *L, const char *text, char *said, size_t size) {
  int status = luaL_loadstring(L, text);
  if (status == LUA_OK) status = lua_pcall(L, 0, 1, 0);
  const char *result = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "no text";
  snprintf(said, size, "%s", result);
  lua_pop(L, 1);
  return status;
}

#define RUN(text)                                                                                  \
  do {                                                                                             \
    char said_[400];                                                                               \
    if (run(L, (text), said_, sizeof said_) != LUA_OK) fail_msg("%s", said_);                      \
  } while (0)

#define SAYS(text, expected)                                                                       \
  do {                                                                                             \
    char said_[400];                                                                               \
    run(L, (text), said_, sizeof said_);                                                           \
    assert_string_equal(said_, expected);                                                          \
  } while (0)

/* policy(body) -> p, its classify being a function of `call` with that body, and `kept` to keep
 * things in. */
#define POLICY                                                                                     \
  "policy = function(body)\n"                                                                      \
  "  local text = 'local kept = {}\\nreturn { name = \"x\", trip = { failures = 5 },'\n"           \
  "    .. 'classify = function(call) if not call.now then return \"success\" end ' .. body .. ' "  \
  "end }'\n"                                                                                       \
  "  return assert(require('neap.policy').parse(text, 'x.lua'))\n"                                 \
  "end\n"

/* ---- The arena ------------------------------------------------------------------------------- */

static void test_the_cap_holds_and_closing_frees_everything(void **state) {
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 4 * MIB);
  SAYS("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end", "not enough memory");
  assert_true(arena.peak <= 4 * MIB);
  assert_true(arena.peak > 3 * MIB);
  SAYS("return ('x'):rep(100 * 1024 * 1024)", "not enough memory");
  RUN("collectgarbage() for i = 1, 1000 do local t = { i } end");
  lua_close(L);
  assert_int_equal(arena.used, 0);
}

static void test_the_reserve_is_not_for_policies(void **state) {
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 16 * MIB);
  arena.reserve = 4 * MIB;
  RUN("core = require 'neap.core' box = core.box(1 << 29, 1 << 29, 100000)");
  SAYS("local ok, why, kind = core.run(box, function()\n"
       "  local t = {} for i = 1, 1e9 do t[i] = { i, i, i, i } end end) return kind",
       "memory");
  assert_true(arena.peak <= 14 * MIB + 64 * KIB); /* and what says so */
  assert_true(arena.peak > 12 * MIB);
  RUN("local t = {} for i = 1, 60000 do t[i] = { i, i, i, i } end");
  lua_close(L);
  assert_int_equal(arena.used, 0);
}

/* A policy that makes 50 KB of garbage at each call and keeps nothing. */
#define WASTEFUL                                                                                   \
  "policy('local s = (\"x\"):rep(25000) .. call.status return #s > 5 and \"success\" or "          \
  "\"failure\"')\n"

static void test_a_policy_that_hoards_is_stopped_and_the_others_go_on(void **state) { /* B193 */
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 16 * MIB);
  RUN(POLICY
      "good = " WASTEFUL
      "hoarder = policy('kept[#kept + 1] = (\"x\"):rep(100000) .. #kept return \"success\"')\n"
      "better = " WASTEFUL "call = { now = true, status = 200, ended_by = 'answer' }");
  RUN("for i = 1, 1000 do\n"
      "  local outcome, _, _, fault = hoarder.classify(call)\n"
      "  assert(outcome == 'success')\n"
      "  if fault then first, last = first or i, fault end\n"
      "  for _, p in ipairs { good, better } do\n"
      "    local good_outcome, _, _, good_fault = p.classify(call)\n"
      "    assert(good_outcome == 'success' and not good_fault, good_fault)\n"
      "  end\n"
      "end\n"
      "assert(first > 60 and first < 200, first)");
  SAYS("return last", "keeps too much memory: its functions run no more");
  RUN("collectgarbage()");
  assert_true(arena.used < 4 * MIB); /* what it kept is gone */
  RUN("hoarder = policy('return \"neutral\"') assert(hoarder.classify(call) == 'neutral')");
  lua_close(L);
  assert_int_equal(arena.used, 0);
}

static void test_of_two_that_hoard_the_worse_goes_first(void **state) {
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 16 * MIB);
  RUN(POLICY "little = policy('kept[#kept + 1] = (\"x\"):rep(1000) .. #kept return \"success\"')\n"
             "much = policy('kept[#kept + 1] = (\"x\"):rep(50000) .. #kept return \"success\"')\n"
             "less = policy('kept[#kept + 1] = (\"x\"):rep(2000) .. #kept return \"success\"')\n"
             "call = { now = true, status = 200, ended_by = 'answer' }");
  RUN("for i = 1, 400 do\n"
      "  for _, p in ipairs { little, much, less } do\n"
      "    local _, _, _, fault = p.classify(call)\n"
      "    assert(not fault or p == much, fault)\n"
      "    stopped = stopped or fault\n"
      "  end\n"
      "end\n"
      "assert(stopped)");
  lua_close(L);
  assert_int_equal(arena.used, 0);
}

static void test_a_full_arena_that_no_policy_filled_stops_none(void **state) {
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 16 * MIB);
  RUN(POLICY "good = " WASTEFUL "better = " WASTEFUL
             "call = { now = true, status = 200, ended_by = 'answer' }\n"
             "mine = {} for i = 1, 125 do mine[i] = ('x'):rep(100000) .. i end");
  RUN("collectgarbage()");
  assert_true(arena.used > 12 * MIB);
  RUN("local before = os.clock()\n"
      "for i = 1, 2000 do\n"
      "  for _, p in ipairs { good, better } do\n"
      "    local outcome, _, _, fault = p.classify(call)\n"
      "    assert(outcome == 'success' and not fault, fault)\n"
      "  end\n"
      "end\n"
      "assert(os.clock() - before < 5)"); /* not a full collection each time */
  lua_close(L);
  assert_int_equal(arena.used, 0);
}

static void test_boxes_come_and_go_in_any_order(void **state) {
  (void)state;
  neap__arena arena;
  lua_State *L = arena_state(&arena, 16 * MIB);
  RUN("core = require 'neap.core' local boxes = {}\n"
      "for i = 1, 1000 do boxes[i] = core.box(1000, 100000, 1000) end\n"
      "for i = 1, 1000, 3 do boxes[i] = nil end collectgarbage() collectgarbage()\n"
      "for i = 1, 1000, 2 do boxes[i] = nil end collectgarbage() collectgarbage()");
  lua_close(L);
  assert_int_equal(arena.used, 0);
  assert_null(arena.boxes);
}

/* ---- Failing allocations --------------------------------------------------------------------- */

typedef struct failing {
  size_t used, count, fail_from; /* from this one on, some fail; 0: none */
} failing;

/* Three in a row, so that Lua's second try, after it has collected, fails as well. */
static void *failing_alloc(void *data, void *block, size_t old_size, size_t new_size) {
  failing *f = data;
  size_t had = block ? old_size : 0;
  if (new_size == 0) {
    free(block);
    f->used -= had;
    return NULL;
  }
  if (new_size > had && f->fail_from) {
    f->count++;
    if (f->count >= f->fail_from && f->count < f->fail_from + 3) return NULL;
  }
  void *got = realloc(block, new_size);
  if (got) f->used += new_size - had;
  return got;
}

/* Every allocation of what `text` does fails once: it may raise, but not leak, nor crash, and goes
 * well the next time. */
static void fail_everywhere(const char *before, const char *text) {
  failing f = {0};
  lua_State *L = state_new(failing_alloc, &f);
  RUN(before);
  RUN(text);
  for (size_t k = 1; k < 100000; k += 1 + k / 64) {
    f.count = 0;
    f.fail_from = k;
    luaL_loadstring(L, text);
    lua_pcall(L, 0, 0, 0);
    bool is_through = f.count < k;
    f.fail_from = 0;
    lua_settop(L, 0);
    RUN(text);
    if (is_through) break;
  }
  assert_int_equal(panics, 0);
  lua_close(L);
  assert_int_equal(f.used, 0);
}

static void test_a_decision_survives_every_failing_allocation(void **state) { /* B170, B193 */
  (void)state;
  fail_everywhere(
      POLICY
      "p = policy('local t = {} for i = 1, 20 do t[i] = { tostring(i) .. call.status } end '\n"
      "  .. 'return (t[1][1]:gsub(\"%d\", \"%0%0\")) == \"11550033\" and \"neutral\" or "
      "\"failure\"')\n"
      "call = { now = true, status = 503, ended_by = 'answer', headers = {} }",
      "local outcome, _, _, fault = p.classify(call)\n"
      "assert(outcome == 'neutral' or fault and outcome == 'failure', outcome)");
}

static void test_a_fault_survives_every_failing_allocation(void **state) { /* B170, B193 */
  (void)state;
  fail_everywhere(POLICY "p = policy('error({ call.status .. \"\" })')\n"
                         "q = policy('while true do end')\n"
                         "call = { now = true, status = 503, ended_by = 'answer', headers = {} }",
                  "local outcome, _, _, fault = p.classify(call)\n"
                  "assert(outcome == 'failure' and fault)\n"
                  "outcome, _, _, fault = q.classify(call)\n"
                  "assert(outcome == 'failure' and fault)");
}

static void test_loading_survives_every_failing_allocation(void **state) { /* B170 */
  (void)state;
  fail_everywhere("policy = require 'neap.policy'",
                  "local p, err = policy.parse([[return { name = 'x', trip = { failures = 5 },\n"
                  "  classify = function(call) return classify.http(call) end,\n"
                  "  fallback = { fallback.last_good { max_age_ms = 5 }, fallback.default { on = "
                  "true } } }]],\n"
                  "  'x.lua', { params = { a = 1 } })\n"
                  "assert(p or tostring(err):find('memory'), tostring(err))");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_cap_holds_and_closing_frees_everything),
      cmocka_unit_test(test_the_reserve_is_not_for_policies),
      cmocka_unit_test(test_a_policy_that_hoards_is_stopped_and_the_others_go_on),
      cmocka_unit_test(test_of_two_that_hoard_the_worse_goes_first),
      cmocka_unit_test(test_a_full_arena_that_no_policy_filled_stops_none),
      cmocka_unit_test(test_boxes_come_and_go_in_any_order),
      cmocka_unit_test(test_a_decision_survives_every_failing_allocation),
      cmocka_unit_test(test_a_fault_survives_every_failing_allocation),
      cmocka_unit_test(test_loading_survives_every_failing_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
