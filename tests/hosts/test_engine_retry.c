/* Retries, bulkheads and deadlines of the engine: what a C program asks, and what Lua and C count
 * together. */
#include "tests/hosts/engine_support.h"

#include <lauxlib.h>
#include <lua.h>

static neap_request request_of(const char *method) {
  return (neap_request){.method = method, .target = "/", .target_length = 1};
}

/* One attempt that comes to that; 0: refused. */
static int attempt(neap_guard *guard, uint32_t number, neap_result result) {
  neap_ticket ticket;
  if (neap_guard_acquire(guard, NULL, 0, &ticket, NULL) > NEAP_ALLOW_BYPASS) return 0;
  result.attempt = number;
  neap_guard_report(guard, &ticket, &result, NULL);
  return 1;
}

static bool again(neap_guard *guard, uint32_t made, uint64_t left_ms, const char *method,
                  neap_result result, uint64_t *wait_ms) {
  neap_request request = request_of(method);
  result.request = &request;
  return neap_guard_retry(guard, NULL, 0, made, left_ms, &result, wait_ms);
}

/* What guard:stats().retries has, in Lua. */
static int retries_of(const fixture *f, const char *result) {
  lua_State *L = neap_engine_lua(f->engine);
  char chunk[256];
  snprintf(chunk, sizeof chunk, "local g = require('neap.engine').guards.p; return %s",
           strcmp(result, "budget left") == 0 ? "g:stats().retry_budget"
                                              : "g:stats().retries[...]");
  if (luaL_loadstring(L, chunk) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  lua_pushstring(L, result);
  if (!neap_engine_pcall(f->engine, 1, 1)) fail_msg("%s", lua_tostring(L, -1));
  int n = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n;
}

static neap_guard *guard_of(fixture *f, const char *rest) {
  write_policy(f, "p", rest);
  fixture_open(f);
  return neap_engine_guard(f->engine, "p");
}

static const neap_result bad = {.status = 503}, good = {.status = 200};

static void says_what_may_be_tried_again(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, "trip = { failures = 1000 }, retry = { base_ms = 10 }");
  uint64_t wait_ms = 99;
  assert_true(attempt(g, 1, bad));
  assert_true(again(g, 1, 0, "GET", bad, &wait_ms));
  assert_in_range(wait_ms, 0, 10);
  assert_false(again(g, 3, 0, "GET", bad, &wait_ms));
  assert_false(again(g, 1, 0, "POST", bad, &wait_ms));
  assert_false(again(g, 1, 0, "GET", good, &wait_ms));
  neap_result unsent = {.ended_by = NEAP_ENDED_TRANSPORT, .phase = NEAP_PHASE_CONNECT};
  assert_true(again(g, 1, 0, "POST", unsent, &wait_ms));
  neap_header field = {"Retry-After", 11, "1", 1};
  neap_result asked = {.status = 503, .headers = &field, .header_count = 1};
  assert_true(again(g, 1, 0, "GET", asked, &wait_ms));
  assert_int_equal(wait_ms, 1000);
  assert_false(again(g, 1, 1000, "GET", asked, &wait_ms)); /* too late */
  assert_int_equal(retries_of(f, "deadline"), 1);
  attempt(g, 2, good);
  attempt(g, 2, bad);
  assert_int_equal(retries_of(f, "success"), 1);
  assert_int_equal(retries_of(f, "failure"), 1);
}

static void asks_the_policy(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, "trip = { failures = 1000 }, retry = { on = function(call) "
                              "return call.request.target == '/' and call.status == 503 end }");
  uint64_t wait_ms;
  assert_true(again(g, 1, 0, "POST", bad, &wait_ms));
  assert_false(again(g, 1, 0, "GET", (neap_result){.status = 500}, &wait_ms));
}

/* A total outage adds at most the budget: a share of the calls, and the reserve. */
static void spends_its_budget_and_no_more(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, "trip = { failures = 1000000 }, mode = 'forced_closed', "
                              "retry = { budget = 0.1, budget_per_s = 0 }");
  int made = 0;
  uint64_t wait_ms;
  for (int call = 0; call < 1000; call++) {
    for (uint32_t number = 1;; number++) {
      assert_true(attempt(g, number, bad));
      made++;
      if (!again(g, number, 0, "GET", bad, &wait_ms)) break;
    }
    f->now_ms += 10;
  }
  assert_in_range(made, 1000 + 100, 1000 + 100 + 10);
  assert_int_equal(retries_of(f, "failure"), made - 1000);
  assert_int_equal(retries_of(f, "budget left"), 0);
}

static void never_tries_across_an_open_breaker(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, NUMBERS "retry = {}");
  uint64_t wait_ms;
  for (int i = 0; i < 3; i++) attempt(g, 1, bad);
  assert_false(again(g, 1, 0, "GET", bad, &wait_ms));
  assert_int_equal(retries_of(f, "refused"), 1);
  f->now_ms += 1000;
  neap_ticket ticket;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_ALLOW_PROBE);
  assert_false(again(g, 1, 0, "GET", bad, &wait_ms)); /* nor as another probe */
  neap_guard_report(g, &ticket, &bad, NULL);
  assert_false(again(g, 1, 0, "GET", bad, &wait_ms));
  assert_int_equal(retries_of(f, "refused"), 3);
}

static void counts_slots(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, NUMBERS "bulkhead = { concurrent = 2, wait_ms = 30 }");
  neap_ticket t[3];
  neap_refusal why = {0};
  assert_int_equal(neap_guard_wait_ms(g), 30);
  assert_true(neap_guard_has_slot(g, NULL, 0));
  for (int i = 0; i < 2; i++)
    assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[i], NULL), NEAP_ALLOW);
  assert_false(neap_guard_has_slot(g, NULL, 0));
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[2], &why), NEAP_REFUSE_BULKHEAD);
  assert_string_equal(why.reason, "bulkhead");
  assert_string_equal(why.state, "closed");
  assert_true(neap_guard_has_slot(g, "other", 5)); /* each key has its own */
  neap_guard_report(g, &t[0], &good, NULL);
  assert_true(neap_guard_has_slot(g, NULL, 0));
  neap_guard_report(g, &t[0], &good, NULL); /* a ticket that was used gives none back */
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[0], NULL), NEAP_ALLOW);
  assert_false(neap_guard_has_slot(g, NULL, 0));
  neap_guard_abandon(g, &t[0]);
  neap_guard_abandon(g, &t[1]);
  for (int i = 0; i < 3; i++) attempt(g, 1, bad); /* an open breaker takes none */
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[0], NULL), NEAP_REFUSE_OPEN);
  assert_true(neap_guard_has_slot(g, NULL, 0));
}

/* Slots are the guard's: another generation finds them taken, and they come back. */
static void keeps_slots_over_a_reload(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, NUMBERS "bulkhead = { concurrent = 3 }, deadline_ms = 500");
  neap_ticket t[3];
  assert_int_equal(neap_guard_deadline_ms(g), 500);
  for (int i = 0; i < 3; i++) neap_guard_acquire(g, NULL, 0, &t[i], NULL);
  write_policy(f, "p", NUMBERS "bulkhead = { concurrent = 1 }");
  assert_int_equal(neap_engine_reload(f->engine, NULL), 1);
  assert_int_equal(neap_guard_deadline_ms(g), 0);
  for (int i = 0; i < 2; i++) neap_guard_report(g, &t[i], &good, NULL);
  assert_false(neap_guard_has_slot(g, NULL, 0));
  neap_guard_report(g, &t[2], &good, NULL);
  assert_true(neap_guard_has_slot(g, NULL, 0));
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[0], NULL), NEAP_ALLOW);
  write_policy(f, "p", NUMBERS);
  assert_int_equal(neap_engine_reload(f->engine, NULL), 1);
  assert_true(neap_guard_has_slot(g, NULL, 0));
  neap_guard_report(g, &t[0], &good, NULL);
  write_policy(f, "p", NUMBERS "bulkhead = { concurrent = 1 }");
  assert_int_equal(neap_engine_reload(f->engine, NULL), 1);
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &t[0], NULL), NEAP_ALLOW);
  neap_guard_abandon(g, &t[0]);
}

/* Lua that runs in the engine's state has the same slots. */
static void shares_slots_with_lua(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f, NUMBERS "bulkhead = { concurrent = 1 }");
  lua_State *L = neap_engine_lua(f->engine);
  neap_ticket ticket;
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  const char *chunk = "local g = require('neap.engine').guards.p; local _, err = g:acquire() "
                      "return err.kind, g:snapshot().bulkhead_in_flight";
  assert_int_equal(luaL_loadstring(L, chunk), LUA_OK);
  assert_true(neap_engine_pcall(f->engine, 0, 2));
  assert_string_equal(lua_tostring(L, -2), "bulkhead");
  assert_int_equal(lua_tointeger(L, -1), 1);
  lua_pop(L, 2);
  neap_guard_report(g, &ticket, &good, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(says_what_may_be_tried_again),
      ENGINE_TEST(asks_the_policy),
      ENGINE_TEST(spends_its_budget_and_no_more),
      ENGINE_TEST(never_tries_across_an_open_breaker),
      ENGINE_TEST(counts_slots),
      ENGINE_TEST(keeps_slots_over_a_reload),
      ENGINE_TEST(shares_slots_with_lua),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
