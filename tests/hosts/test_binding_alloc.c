/* test_binding_alloc.c: the binding when memory runs out, at each place where it asks for some
 * (B170, B193).
 *
 * A scenario is run again and again, and each time one allocation more succeeds.  However it ends,
 * nothing stays taken, the guard goes on working, and closing the state gives all memory back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lauxlib.h>
#include <lualib.h>

#ifndef LUA_OK
#define LUA_OK 0
#endif
#if LUA_VERSION_NUM >= 504 /* the engine's; for others it is a module, in LUA_CPATH */
int luaopen_neap_core(lua_State *L);
#endif

/* ---- Memory that runs out -------------------------------------------------------------------- */

typedef struct supply {
  long left;  /* allocations that still succeed; negative: all */
  long fails; /* then so many don't; negative: none any more */
  size_t used;
} supply;

static void *supply_alloc(void *data, void *block, size_t old_size, size_t size) {
  supply *s = data;
  size_t had = block ? old_size : 0;
  if (size == 0) {
    free(block);
    s->used -= had;
    return NULL;
  }
  if (size > had && s->left >= 0) {
    if (s->left > 0)
      s->left--;
    else if (s->fails < 0)
      return NULL;
    else if (s->fails-- > 0)
      return NULL;
    else
      s->left = -1;
  }
  void *got = realloc(block, size);
  assert_non_null(got);
  s->used += size - had;
  return got;
}

/* ---- The scenarios --------------------------------------------------------------------------- */

/* setup(): what lives through all rounds.  Then each scenario(), and check() after it. */
static const char script[] =
    "local root = os.getenv 'NEAP_ROOT' or '.'\n"
    "package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. "
    "package.path\n"
    "local core = require 'neap.core'\n"
    "local guard = require 'neap.guard'\n"
    "local fixture = require 'tests.lua.fixture'\n"
    "local ok, bad = fixture.ok, fixture.bad\n"
    "local policy = require 'neap.policy'\n"
    "local g, now, boxed\n"
    "local trip = function(s) return s.failure > 1000 end\n"
    "local stages = {\n"
    "  { kind = 'last_good', max_age_ms = 60000, max_entries = 10, max_bytes = 100000 },\n"
    "  { kind = 'function', run = function() end },\n"
    "  { kind = 'fail', status = 503 },\n"
    "}\n"
    "local function new(options)\n"
    "  return fixture.guard({ stages = stages, trip = trip,\n"
    "    numbers = { trip_by_function = true, lease_ms = 3600000, concurrent = 3, probes = 3, "
    "successes = 3 },\n"
    "    classify = function(call) return call.error and 'failure' or 'success' end }, options)\n"
    "end\n"
    "local function half_open()\n"
    "  g:reset()\n"
    "  g:trip()\n"
    "  now:advance(100000)\n"
    "end\n"
    "local S = {}\n"
    "function S.setup()\n"
    "  g, now = new()\n"
    "  boxed = guard.new(assert(policy.parse([[return {\n"
    "    name = 'boxed', trip = { consecutive_failures = 3 },\n"
    "    classify = function(call)\n"
    "      if call.result == 'neutral' then return 'neutral', 'a' .. tostring(call.args) end\n"
    "      if call.result == 'wrong' then error('wrong') end\n"
    "      return 'success'\n"
    "    end }]], 'boxed.lua')), { log = function() end })\n"
    "  g.events:on(function(e) return e.from .. e.to .. e.epoch end)\n"
    "end\n"
    "function S.make() new { panel = core.panel(4) } end\n"
    "function S.call() g:call(ok, 'a', 'b') g:call(bad, 'a', 'b') pcall(g.call, g, error, {}) end\n"
    "function S.classified()\n"
    "  boxed:call(ok, 'x')\n"
    "  boxed:call(function() return 'neutral' end, {})\n"
    "  boxed:call(function() return 'wrong' end, {})\n"
    "end\n"
    "function S.open() for _ = 1, 3 do g:call(bad) end g:call(ok) g:reset() end\n"
    "function S.probe() half_open() g:call(ok, 'x') g:call(bad) end\n"
    "function S.probe_raises() half_open() pcall(g.call, g, error, {}) end\n"
    "function S.probe_waits()\n"
    "  half_open()\n"
    "  local co = coroutine.create(function() return g:call(coroutine.yield) end)\n"
    "  coroutine.resume(co)\n"
    "  coroutine.resume(co, 'x')\n"
    "end\n"
    "function S.steps()\n"
    "  half_open()\n"
    "  g:report(g:acquire(), { result = 1 })\n"
    "  g:report(g:acquire('default'), 'success')\n"
    "  g:acquire()\n"
    "  g:acquire()\n"
    "end\n"
    "function S.raw()\n"
    "  local b, r = g.line.breaker, g.policy.rules\n"
    "  half_open()\n"
    "  local t = now:now()\n"
    "  b:report(r, t, b:acquire(r, t), 'success')\n"
    "  b:acquire(r, t)\n"
    "  b:snapshot(r, t)\n"
    "  local acquire, report = b:bind(r)\n"
    "  local permit = acquire()\n"
    "  if permit then report(permit, 'failure') end\n"
    "end\n"
    "function S.keys() for i = 1, 5 do g:at('k' .. i):call(ok) g:acquire('k' .. i) end end\n"
    "function S.adopt() g:adopt(fixture.policy { stages = stages, numbers = { lease_ms = 3600000 } "
    "}) end\n"
    "function S.operate() g:mode(nil, 'shadow', { by = 'me' }) g:mode() g:snapshot() g:stats() "
    "g:breakers() end\n"
    "function S.rules() core.rules { failures = 1.5 } core.rules { probes = 32 } core.rules { "
    "failures = 1 }:numbers() end\n"
    "function S.check()\n"
    "  collectgarbage()\n"
    "  collectgarbage()\n"
    "  for _, row in ipairs(g:breakers()) do assert(g:snapshot(row.key).probes_in_flight == 0, 'in "
    "flight: ' .. row.key) end\n"
    "  g:mode()\n"
    "  g:reset()\n"
    "  assert(g:call(ok) == 'ok')\n"
    "  assert(g:snapshot().state == 'closed')\n"
    "  local before = boxed:snapshot().totals.success\n"
    "  assert(boxed:call(ok) == 'ok')\n"
    "  assert(boxed:snapshot().totals.success == before + 1)\n"
    "end\n"
    "return S\n";

static void run(lua_State *L, const char *what) {
  lua_getfield(L, 1, what);
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) fail_msg("%s: %s", what, lua_tostring(L, -1));
}

static lua_State *open_state(supply *s) {
  *s = (supply){.left = -1};
  lua_State *L = lua_newstate(supply_alloc, s);
  luaL_openlibs(L);
#if LUA_VERSION_NUM >= 504
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_neap_core);
  lua_setfield(L, -2, "neap.core");
#endif
  lua_settop(L, 0);
  if (luaL_loadstring(L, script) != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK)
    fail_msg("%s", lua_tostring(L, -1));
  run(L, "setup");
  return L;
}

/* True if the scenario ended well. */
static bool attempt(lua_State *L, supply *s, const char *scenario, long left, long fails) {
  lua_getfield(L, 1, scenario);
  s->left = left;
  s->fails = fails;
  int status = lua_pcall(L, 0, 0, 0);
  bool ran_out = s->left == 0 || (fails >= 0 && s->left < 0);
  s->left = -1;
  if (status != LUA_OK && !ran_out) fail_msg("%s: %s", scenario, lua_tostring(L, -1));
  lua_settop(L, 1);
  run(L, "check");
  return !ran_out;
}

/* Each place once.  `fails`: how often memory is refused there; a refusal makes Lua collect and ask
 * again, so 2 is one error, and all else goes well.  Negative: nothing is left until the scenario
 * is over. */
static void each_place(const char *scenario, long fails) {
  supply s;
  lua_State *L = open_state(&s);
  long places = 0;
  while (!attempt(L, &s, scenario, places, fails)) places++;
  assert_true(places > 0);
  lua_close(L);
  assert_int_equal(s.used, 0);
}

static const char *const scenarios[] = {
    "make",  "call", "classified", "open",  "probe",   "probe_raises", "probe_waits",
    "steps", "raw",  "keys",       "adopt", "operate", "rules",
};

static void nothing_stays_taken_when_memory_runs_out_for_good(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) each_place(scenarios[i], -1);
}

static void nothing_stays_taken_when_memory_runs_out_for_a_moment(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) each_place(scenarios[i], 2);
}

static void nothing_changes_when_a_collection_makes_room(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) each_place(scenarios[i], 1);
}

/* A state closed in the middle: finalisers run last, on what is still whole. */
static void a_state_is_closed_with_calls_under_way(void **state) {
  (void)state;
  supply s;
  lua_State *L = open_state(&s);
  static const char under_way[] = "local S = ...\n"
                                  "S.probe_waits() S.steps() S.keys()\n"
                                  "kept = { coroutine.create(S.probe) }\n"
                                  "coroutine.resume(kept[1])\n";
  assert_int_equal(luaL_loadstring(L, under_way), LUA_OK);
  lua_pushvalue(L, 1);
  assert_int_equal(lua_pcall(L, 1, 0, 0), LUA_OK);
  lua_close(L);
  assert_int_equal(s.used, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_stays_taken_when_memory_runs_out_for_good),
      cmocka_unit_test(nothing_stays_taken_when_memory_runs_out_for_a_moment),
      cmocka_unit_test(nothing_changes_when_a_collection_makes_room),
      cmocka_unit_test(a_state_is_closed_with_calls_under_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
