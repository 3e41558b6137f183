/* Keys of the engine: the policy says whose breaker a call is, and idle ones make room. */
#include "tests/hosts/engine_support.h"

#include <lauxlib.h>
#include <lua.h>

#define POLICY                                                                                     \
  "trip = { failures = 3 }, window = { length_ms = 1000 },"                                        \
  "open = { cooldown_ms = 1000, max_cooldown_ms = 4000, jitter = 0 }, max_keys = 16,"              \
  "key = function(call)"                                                                           \
  "  local request = call.request"                                                                 \
  "  if request.headers['X-Raise'] then error('no such tenant') end"                               \
  "  return request.headers['x-tenant'] or request.method == 'GET' and route(request.target) "     \
  "end"
#define IDLE_MS 5001

static neap_guard *guard_of(fixture *f) {
  write_policy(f, "p", POLICY);
  fixture_open(f);
  return neap_engine_guard(f->engine, "p");
}

static neap_request request_of(const char *target) {
  return (neap_request){.target = target, .target_length = strlen(target)};
}

static const char *key_within(neap_guard *g, const char *within, neap_request request) {
  static char key[NEAP_KEY_SIZE];
  size_t length = neap_guard_key(g, &request, within, key);
  if (length == 0) return "";
  assert_int_equal(strlen(key), length);
  return key;
}

static const char *key_of(neap_guard *g, neap_request request) {
  return key_within(g, NULL, request);
}

static void asks_the_policy_whose_breaker_a_call_is(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f);
  neap_header tenant = {"X-Tenant", 8, "acme", 4}, raise = {"x-raise", 7, "1", 1};
  assert_string_equal(key_of(g, request_of("/users/77?page=2")), "/users/{id}");
  neap_request request = request_of("/users/77");
  request.headers = &tenant, request.header_count = 1;
  assert_string_equal(key_of(g, request), "acme");
  request.headers = &raise;
  assert_string_equal(key_of(g, request), "");
  assert_non_null(strstr(f->log, "p: key: "));
  assert_non_null(strstr(f->log, "no such tenant"));
  f->now_ms += 60000;
  request = request_of("/");
  request.method = "POST";
  assert_string_equal(key_of(g, request), "");
  assert_non_null(strstr(f->log, "answered false, not a text, a number or nil"));
}

static void a_key_is_one_of_several_dependencies(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f);
  char within[NEAP_KEY_SIZE] = "";
  assert_string_equal(key_within(g, "eu", request_of("/users/77")), "eu//users/{id}");
  memset(within, 'e', 89); /* p/, 89 + / + 11: 103 */
  assert_int_equal(strlen(key_within(g, within, request_of("/users/77"))), 101);
  assert_null(strstr(f->log, "letters"));
  within[89] = 'e';
  assert_string_equal(key_within(g, within, request_of("/users/77")), "");
  assert_non_null(strstr(f->log, "p: key: answered \"/users/{id}\": "));
  assert_non_null(strstr(f->log, " has more than 101 letters"));
}

static void has_no_key_of_a_policy_without_one(void **state) {
  fixture *f = (fixture *)*state;
  write_policy(f, "p", "trip = { failures = 3 }");
  fixture_open(f);
  assert_string_equal(key_of(neap_engine_guard(f->engine, "p"), request_of("/x")), "");
}

static bool is_there(neap_guard *g, const char *key) {
  neap_snapshot s;
  return neap_guard_snapshot(g, key, strlen(key), &s);
}

static void call_each(fixture *f, neap_guard *g, unsigned from, unsigned n, unsigned step_ms) {
  char key[16];
  for (unsigned i = from; i < from + n; i++) {
    snprintf(key, sizeof key, "k%u", i);
    call_once(g, key, (neap_result){.status = 200});
    f->now_ms += step_ms;
  }
}

/* B113, B209 */
static void idle_keys_make_room_for_new_ones(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f);
  neap_ticket ticket;
  fail_calls(g, "down", 3);
  neap_guard_acquire(g, "out", 3, &ticket, NULL);
  call_each(f, g, 0, 14, 1);
  call_each(f, g, 100, 1, 1);
  assert_false(is_there(g, "k100"));
  call_each(f, g, 200, 60, IDLE_MS);
  assert_true(is_there(g, "k259"));
  assert_false(is_there(g, "k0"));
  assert_true(is_there(g, "down")); /* half-open */
  assert_true(is_there(g, "out"));  /* a call is under way */
  neap_report report;
  neap_guard_report(g, &ticket, &(neap_result){.status = 200}, &report);
  assert_int_equal(report.reported, NEAP_COUNTED);
  call_each(f, g, 300, 60, IDLE_MS);
  assert_false(is_there(g, "out"));
  call_once(g, "out", (neap_result){.status = 200});
  assert_true(is_there(g, "out"));
  assert_int_equal(snapshot_of(g, "out").totals.success, 1);
}

static size_t lua_bytes(fixture *f) {
  lua_State *L = neap_engine_lua(f->engine);
  lua_gc(L, LUA_GCCOLLECT, 0);
  lua_gc(L, LUA_GCCOLLECT, 0);
  return (size_t)lua_gc(L, LUA_GCCOUNT, 0) * 1024;
}

/* B113, B209 */
static void a_million_keys_take_no_more_memory_than_a_few(void **state) {
  fixture *f = (fixture *)*state;
  neap_guard *g = guard_of(f);
  const unsigned half = 500000;
  uint64_t began = uv_hrtime();
  for (unsigned i = 0; i < half; i += 100, f->now_ms += 20) call_each(f, g, i, 100, 0);
  size_t first = lua_bytes(f);
  for (unsigned i = half; i < 2 * half; i += 100, f->now_ms += 20) call_each(f, g, i, 100, 0);
  size_t last = lua_bytes(f);
  double us = (double)(uv_hrtime() - began) / 1e3 / (2.0 * half);
  print_message("%.2f us a call; Lua has %zu KB, then %zu KB\n", us, first / 1024, last / 1024);
  assert_in_range(last, 0, first + 65536);
  assert_true(us < 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(asks_the_policy_whose_breaker_a_call_is),
      ENGINE_TEST(a_key_is_one_of_several_dependencies),
      ENGINE_TEST(has_no_key_of_a_policy_without_one),
      ENGINE_TEST(idle_keys_make_room_for_new_ones),
      ENGINE_TEST(a_million_keys_take_no_more_memory_than_a_few),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
