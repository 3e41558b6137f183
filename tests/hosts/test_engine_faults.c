/* test_engine_faults.c: what goes wrong in Lua stays in Lua. */
#include "tests/hosts/engine_support.h"

#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <sys/wait.h>

static neap_guard *guard_of(fixture *f, const char *name) {
  return neap_engine_guard(f->engine, name);
}

/* A policy whose functions do what they should not, once they serve: trials are let pass. */
static void write_faulty(fixture *f, const char *name, const char *body) {
  char rest[2048];
  snprintf(rest, sizeof rest,
           NUMBERS "classify = function(call)\n"
                   "  if call.headers['x-go'] then %s end\n"
                   "  return classify.http(call)\nend,\n"
                   "fallback = { function(call) %s end, fallback.default 'the next stage' }",
           body, body);
  write_policy(f, name, rest);
}

static const char *const faults[] = {
    "error('boom')",
    "error({})",
    "error(nil)",
    "error(setmetatable({}, { __tostring = function() error('again') end }))",
    "local t = {} while true do t[#t + 1] = ('x'):rep(1000) end",
    "local s = 'x' while true do s = s .. s end",
    "while true do end",
    "local function f() return 1 + f() end f()",
    "return 5",
    "pcall(function() while true do end end) while true do end",
    "return ('a'):rep(30):find(('a?'):rep(30) .. ('a'):rep(30))",
};
#define FAULTS (sizeof faults / sizeof *faults)

/* B193: the call gets the shipped verdict, the next stage is asked, other policies go on. */
static void a_faulty_policy_harms_nobody(void **state) {
  fixture *f = *state;
  char name[16];
  for (size_t i = 0; i < FAULTS; i++) {
    snprintf(name, sizeof name, "faulty%zu", i);
    write_faulty(f, name, faults[i]);
  }
  write_policy(f, "sound", NUMBERS);
  neap_engine_options options = {
      .clock = neap_clock_manual(&f->now_ms), .no_watch = true, .lua_memory_bytes = 16 << 20};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
  neap_header go[] = {{"X-Go", 4, "1", 1}};
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < FAULTS; i++) {
      snprintf(name, sizeof name, "faulty%zu", i);
      neap_guard *g = guard_of(f, name);
      neap_result good = {.status = 200, .headers = go, .header_count = 1};
      assert_int_equal(call_once(g, NULL, good), NEAP_SUCCESS);
      assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);
      neap_answer answer;
      if (strcmp(faults[i], "return 5") == 0) continue;
      assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_FAILURE, NULL, NULL, &answer));
      assert_string_equal(answer.body, "the next stage");
      neap_answer_free(&answer);
    }
    assert_int_equal(call_once(guard_of(f, "sound"), NULL, (neap_result){.status = 200}),
                     NEAP_SUCCESS);
  }
  assert_non_null(strstr(f->log, "error faulty0: classify: "));
  assert_int_equal(snapshot_of(guard_of(f, "sound"), NULL).totals.success, 3);
}

/* Memory runs out for all: reports are counted all the same, by what any HTTP client would say. */
static void goes_on_when_lua_has_no_memory_left(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  neap_engine_options options = {
      .clock = neap_clock_manual(&f->now_ms), .no_watch = true, .lua_memory_bytes = 4 << 20};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
  neap_guard *g = guard_of(f, "flags");
  call_once(g, NULL, (neap_result){.status = 200});
  lua_State *L = neap_engine_lua(f->engine);
  luaL_loadstring(L, "hoard, more = nil collectgarbage()"); /* no room for that later on */
  int give_back = luaL_ref(L, LUA_REGISTRYINDEX);
  luaL_loadstring(L, "hoard = {} for i = 1, 1e9 do hoard[i] = { i } end");
  assert_false(neap_engine_pcall(f->engine, 0, 0));
  assert_non_null(strstr(lua_tostring(L, -1), "not enough memory"));
  lua_pop(L, 1);
  /* What the last doubling of the table left, in small pieces. */
  luaL_loadstring(L, "local last for i = 1, 1e9 do last = { last } more = last end");
  assert_false(neap_engine_pcall(f->engine, 0, 0));
  lua_pop(L, 1);

  fail_calls(g, NULL, 3);
  neap_ticket ticket;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_REFUSE_OPEN);
  neap_answer answer;
  neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer);
  neap_answer_free(&answer);
  neap_engine_reload(f->engine, NULL);
  f->now_ms += 1000;
  assert_int_equal(neap_guard_acquire(g, "new", 3, &ticket, NULL), NEAP_ALLOW);
  neap_guard_report(g, &ticket, &(neap_result){.status = 200}, NULL);

  lua_rawgeti(L, LUA_REGISTRYINDEX, give_back);
  assert_true(neap_engine_pcall(f->engine, 0, 0));
  assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);
  assert_int_equal(lua_gettop(L), 0);
}

/* What luv's own callback would print before it ends the process. */
static void outlives_an_error_in_a_callback_of_the_loop(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  lua_State *L = neap_engine_lua(f->engine);
  luaL_loadstring(L, "local uv = require 'luv'\n"
                     "for i, value in ipairs { 'text', {}, false, 5 } do\n"
                     "  local timer = uv.new_timer()\n"
                     "  timer:start(0, 0, function() timer:close() error(value) end)\n"
                     "end\n"
                     "local timer = uv.new_timer()\n"
                     "timer:start(1, 0, function() timer:close() came = true end)");
  assert_true(neap_engine_pcall(f->engine, 0, 0));
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_non_null(strstr(f->log, "error in a callback of the loop: "));
  assert_non_null(strstr(f->log, "an error that is a table"));
  lua_getglobal(L, "came");
  assert_true(lua_toboolean(L, -1));
  lua_pop(L, 1);
  assert_int_equal(lua_gettop(L), 0);
}

static void a_handler_of_events_may_not_break_in(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  lua_State *L = neap_engine_lua(f->engine);
  luaL_loadstring(L, "require('neap.engine').guards.flags.events:on(function() error('mine') end)");
  assert_true(neap_engine_pcall(f->engine, 0, 0));
  fail_calls(guard_of(f, "flags"), NULL, 3);
  assert_int_equal(f->event_count, 1);
  assert_non_null(strstr(f->log, "mine"));
}

/* B191: nothing is left on the stack, and nothing in memory, by any number of calls. */
static void leaves_nothing_behind_after_many_calls(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "fallback = { fallback.last_good { max_age_ms = 5000 } }");
  fixture_open(f);
  neap_guard *g = guard_of(f, "flags");
  lua_State *L = neap_engine_lua(f->engine);
  neap_request request = {.target = "/a", .target_length = 2};
  neap_answer answer = {.status = 200, .body = "kept", .body_length = 4}, given;
  int before_kib = 0;
  for (int i = 0; i < 200000; i++) {
    neap_ticket ticket;
    neap_result result = {.status = i % 7 ? 200 : 500, .request = &request};
    if (neap_guard_acquire(g, i % 3 ? NULL : "k", i % 3 ? 0 : 1, &ticket, NULL) <=
        NEAP_ALLOW_BYPASS)
      neap_guard_report(g, &ticket, &result, NULL);
    neap_guard_remember(g, NULL, 0, &request, &answer);
    if (neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &given))
      neap_answer_free(&given);
    if (i % 100 == 0) f->now_ms += 1000;
    f->event_count = 0;
    f->log[0] = '\0';
    assert_int_equal(lua_gettop(L), 0);
    if (i == 1000) {
      lua_gc(L, LUA_GCCOLLECT);
      before_kib = lua_gc(L, LUA_GCCOUNT);
    }
  }
  lua_gc(L, LUA_GCCOLLECT);
  assert_in_range(lua_gc(L, LUA_GCCOUNT), 0, before_kib + 16);
}

static long bytes_in_use(lua_State *L) {
  return lua_gc(L, LUA_GCCOUNT) * 1024L + lua_gc(L, LUA_GCCOUNTB);
}

/* The healthy path of a policy without a classify of its own, refusals too. */
static void allocates_nothing_for_plain_successes_and_refusals(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = guard_of(f, "flags");
  lua_State *L = neap_engine_lua(f->engine);
  neap_ticket ticket;
  call_once(g, NULL, (neap_result){.status = 200});
  fail_calls(g, "open", 3);
  lua_gc(L, LUA_GCSTOP);
  long before = bytes_in_use(L);
  for (int i = 0; i < 1000; i++) {
    call_once(g, NULL, (neap_result){.status = 200, .duration_ms = 3});
    assert_int_equal(neap_guard_acquire(g, "open", 4, &ticket, NULL), NEAP_REFUSE_OPEN);
  }
  assert_int_equal(bytes_in_use(L), before);
}

/* ---- No memory, at each place in turn ------------------------------------------------------- */

typedef struct failing {
  lua_Alloc f;
  void *ud;
  int left; /* allocations until one fails; then they all do */
} failing;

static void *fail_alloc(void *ud, void *block, size_t old_size, size_t new_size) {
  failing *a = (failing *)ud;
  bool grows = new_size > (block ? old_size : 0);
  if (grows && a->left-- <= 0) return NULL;
  return a->f(a->ud, block, old_size, new_size);
}

/* Everything there is to do with a guard, once. */
static void do_all(fixture *f, neap_guard *g, int round) {
  neap_header headers[] = {{"Retry-After", 11, "1", 1}};
  neap_request request = {
      .target = "/a", .target_length = 2, .headers = headers, .header_count = 1};
  neap_answer good = {.status = 200, .body = "kept", .body_length = 4}, answer;
  neap_ticket ticket;
  neap_snapshot snapshot;
  char key[16];
  snprintf(key, sizeof key, "key%d", round % 10);
  for (int i = 0; i < 5; i++) {
    neap_result result = {
        .status = i ? 503 : 200, .headers = headers, .header_count = 1, .request = &request};
    if (neap_guard_acquire(g, key, strlen(key), &ticket, NULL) <= NEAP_ALLOW_BYPASS)
      neap_guard_report(g, &ticket, &result, NULL);
  }
  neap_guard_remember(g, key, strlen(key), &request, &good);
  neap_guard_fallback(g, key, strlen(key), NEAP_CAUSE_REFUSED, &request, NULL, &answer);
  neap_answer_free(&answer);
  neap_guard_set_mode(g, key, strlen(key), NEAP_SHADOW, 5, "ann", "why");
  neap_guard_reset(g, key, strlen(key), "ann");
  neap_guard_snapshot(g, key, strlen(key), &snapshot);
  neap_engine_reload(f->engine, NULL);
  f->now_ms += 2000;
  f->event_count = 0;
  f->log[0] = '\0';
}

/* B170, B193. */
static void goes_on_whichever_allocation_fails(void **state) {
  fixture *f = *state;
  const char *rest = NUMBERS "classify = function(call) return classify.http(call) end, "
                             "fallback = { fallback.last_good { max_age_ms = 5000 } }";
  write_policy(f, "flags", rest);
  fixture_open(f);
  neap_guard *g = guard_of(f, "flags");
  lua_State *L = neap_engine_lua(f->engine);
  do_all(f, g, 0);
  int round = 0, limit = 0;
  for (bool is_enough = false; !is_enough; round++) {
    failing a = {.left = limit};
    char text[1024];
    snprintf(text, sizeof text, "%s, timeout_ms = %d", rest, 1 + round % 2);
    write_policy(f, "flags", text);
    a.f = lua_getallocf(L, &a.ud);
    lua_setallocf(L, fail_alloc, &a);
    do_all(f, g, round);
    lua_setallocf(L, a.f, a.ud);
    is_enough = a.left > 0;
    limit += limit < 200 ? 1 : limit / 50;
    assert_int_equal(lua_gettop(L), 0);
  }
  assert_in_range(round, 100, 2000);
  size_t failed;
  neap_engine_reload(f->engine, &failed);
  assert_int_equal(failed, 0);
  for (int i = 0; i < 10; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%d", i);
    neap_guard_set_mode(g, key, strlen(key), NEAP_MODE_OF_RULES, 0, NULL, NULL);
    neap_guard_reset(g, key, strlen(key), NULL);
    assert_int_equal(call_once(g, key, (neap_result){.status = 200}), NEAP_SUCCESS);
    assert_int_equal(snapshot_of(g, key).probes_in_flight, 0);
  }
}

static void report_elsewhere(void *guard) {
  neap_ticket ticket;
  neap_guard_acquire((neap_guard *)guard, NULL, 0, &ticket, NULL);
}

/* B202.  Builds without assertions do not look. */
static void belongs_to_one_thread(void **state) {
#ifdef NDEBUG
  (void)state, (void)report_elsewhere;
#else
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  pid_t child = fork();
  if (child == 0) {
    uv_thread_t thread;
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    signal(SIGABRT, SIG_DFL);
    uv_thread_create(&thread, report_elsewhere, guard_of(f, "flags"));
    uv_thread_join(&thread);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
}

/* B188. */
static void takes_a_great_many_headers(void **state) {
  enum { MANY = 1000 };
  fixture *f = *state;
  write_policy(f, "flags",
               NUMBERS "classify = function(call) return 'neutral', "
                       "call.headers['h999'] end");
  fixture_open(f);
  static char names[MANY][8];
  static neap_header headers[MANY];
  for (int i = 0; i < MANY; i++) {
    int length = snprintf(names[i], sizeof names[i], "h%d", i);
    headers[i] = (neap_header){names[i], (size_t)length, names[i], (size_t)length};
  }
  neap_ticket ticket;
  neap_report report;
  neap_guard *g = guard_of(f, "flags");
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  neap_result result = {.status = 200, .headers = headers, .header_count = MANY};
  neap_guard_report(g, &ticket, &result, &report);
  assert_string_equal(report.reason ? report.reason : "", "h999");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(a_faulty_policy_harms_nobody),
      ENGINE_TEST(goes_on_when_lua_has_no_memory_left),
      ENGINE_TEST(outlives_an_error_in_a_callback_of_the_loop),
      ENGINE_TEST(a_handler_of_events_may_not_break_in),
      ENGINE_TEST(leaves_nothing_behind_after_many_calls),
      ENGINE_TEST(allocates_nothing_for_plain_successes_and_refusals),
      ENGINE_TEST(goes_on_whichever_allocation_fails),
      ENGINE_TEST(belongs_to_one_thread),
      ENGINE_TEST(takes_a_great_many_headers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
