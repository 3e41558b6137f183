/* test_engine_close.c: an engine ends while everything is under way. */
#include "tests/hosts/engine_support.h"

#include <lauxlib.h>
#include <lua.h>

/* Runs Lua of the program's own in the engine's state. */
static void run_lua(fixture *f, const char *text) {
  lua_State *L = neap_engine_lua(f->engine);
  int top = lua_gettop(L);
  assert_int_equal(luaL_loadstring(L, text), LUA_OK);
  if (!neap_engine_pcall(f->engine, 0, 0)) fail_msg("%s", lua_tostring(L, -1));
  assert_int_equal(lua_gettop(L), top);
}

static void open_watching(fixture *f) {
  write_policy(f, "flags", NUMBERS "fallback = { fallback.last_good { max_age_ms = 5000 } }");
  neap_engine_options options = {.clock = neap_clock_manual(&f->now_ms)};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
}

/* A timer that is due, one that is not, sockets, requests to the thread pool, a half-open probe. */
static void begin_everything(fixture *f, neap_ticket *probe) {
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  fail_calls(g, NULL, 3);
  f->now_ms += 1000;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, probe, NULL), NEAP_ALLOW_PROBE);
  run_lua(f, "local uv = require 'luv'\n"
             "local function call() error('a callback came') end\n"
             "uv.new_timer():start(0, 1, call)\n"
             "uv.new_timer():start(3600000, 0, call)\n"
             "local server = uv.new_tcp()\n"
             "server:bind('127.0.0.1', 0)\n"
             "server:listen(8, call)\n"
             "uv.new_tcp():connect('127.0.0.1', server:getsockname().port, call)\n"
             "uv.new_fs_poll():start('/tmp', 1, call)\n"
             "uv.new_async(call):send()\n"
             "uv.new_signal():start('sigusr1', call)\n"
             "uv.fs_stat('/tmp', call)\n"
             "uv.getaddrinfo('localhost', nil, nil, call)\n"
             "uv.new_timer():close(call)\n");
}

static void ends_with_everything_under_way(void **state) {
  fixture *f = *state;
  open_watching(f);
  neap_ticket probe;
  begin_everything(f, &probe);
  write_policy(f, "flags", NUMBERS);
  f->event_count = 0;
  f->log[0] = '\0';
  neap_engine_close(f->engine, on_closed, f);
  assert_false(f->closed);
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_true(f->closed);
  assert_false(uv_loop_alive(&f->loop));
  f->engine = NULL;
  assert_int_equal(f->event_count, 0);
  assert_string_equal(f->log, "");
}

/* B187: between the beginning of the end and its end. */
static void refuses_while_it_ends(void **state) {
  fixture *f = *state;
  open_watching(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_ticket ticket, second;
  neap_refusal refusal;
  neap_report report;
  neap_answer answer;
  neap_snapshot snapshot;
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  neap_guard_acquire(g, NULL, 0, &second, NULL);
  neap_engine_close(f->engine, on_closed, f);
  assert_int_equal(neap_guard_report(g, &ticket, &(neap_result){.status = 500}, &report),
                   NEAP_NEUTRAL);
  assert_int_equal(report.reported, NEAP_USED);
  neap_guard_abandon(g, &second);
  assert_int_equal(neap_guard_acquire(g, "new", 3, &ticket, &refusal), NEAP_REFUSE_CLOSED);
  assert_string_equal(refusal.reason, "closed");
  assert_false(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer));
  neap_answer_free(&answer);
  neap_guard_remember(g, NULL, 0, NULL, &answer);
  assert_false(neap_guard_snapshot(g, "new", 3, &snapshot));
  assert_false(neap_guard_set_mode(g, NULL, 0, NEAP_SHADOW, 0, NULL, NULL));
  assert_false(neap_guard_reset(g, NULL, 0, NULL));
  size_t failed = 7;
  assert_int_equal(neap_engine_reload(f->engine, &failed), 0);
  assert_int_equal(failed, 0);
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_true(f->closed);
  f->engine = NULL;
}

static int count_files(void) {
  int count = 0;
  for (int fd = 0; fd < 256; fd++) {
    struct stat status;
    count += fstat(fd, &status) == 0;
  }
  return count;
}

/* B185. */
static void begins_and_ends_a_thousand_times(void **state) {
  fixture *f = *state;
  int files = 0;
  for (int i = 0; i < 1000; i++) {
    open_watching(f);
    neap_guard *g = neap_engine_guard(f->engine, "flags");
    call_once(g, NULL, (neap_result){.status = 200});
    if (i % 3 == 0) uv_run(&f->loop, UV_RUN_NOWAIT);
    if (i % 25 == 0) {
      neap_ticket probe;
      begin_everything(f, &probe);
    }
    fixture_close(f);
    f->log[0] = '\0';
    f->event_count = 0;
    if (i == 20) files = count_files();
  }
  assert_int_equal(count_files(), files);
}

typedef struct ending {
  fixture *fixture;
  int told;
} ending;

static void close_at_once(void *data, const neap_event *event) {
  ending *e = (ending *)data;
  (void)event;
  e->told++;
  neap_engine_close(e->fixture->engine, on_closed, e->fixture);
}

/* From inside an event, with the guard's Lua still on the stack. */
static void may_be_closed_from_an_event(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  ending e = {f, 0};
  const char *const policies[] = {f->root};
  neap_engine_options options = {
      .policies = policies, .policy_count = 1, .on_event = close_at_once, .data = &e};
  assert_true(neap_engine_open(&f->loop, &options, &f->engine, f->error, sizeof f->error));
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  fail_calls(g, NULL, 3);
  assert_int_equal(e.told, 1);
  neap_ticket ticket;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_REFUSE_CLOSED);
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_true(f->closed);
  f->engine = NULL;
}

static void lives_beside_another_on_the_same_loop(void **state) {
  fixture *f = *state;
  open_watching(f);
  neap_engine *first = f->engine;
  open_watching(f);
  neap_engine *second = f->engine;
  fail_calls(neap_engine_guard(first, "flags"), NULL, 3);
  assert_int_equal(snapshot_of(neap_engine_guard(second, "flags"), NULL).state, NEAP_CLOSED);
  neap_engine_close(first, on_closed, f);
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_true(f->closed);
  f->closed = false;
  call_once(neap_engine_guard(second, "flags"), NULL, (neap_result){.status = 200});
}

static void leaves_nothing_after_failing_to_open(void **state) {
  fixture *f = *state;
  write_text(path_of(f, "flags.lua"), "return 5");
  for (int i = 0; i < 100; i++) {
    assert_int_equal(fixture_open_with(f, (neap_engine_options){.max_breakers = 8}), -1);
    assert_non_null(strstr(f->error, "flags.lua:1:"));
  }
  uv_run(&f->loop, UV_RUN_DEFAULT);
  assert_false(uv_loop_alive(&f->loop));
}

/* B194: many policies share one state; too many fail cleanly. */
static void holds_many_policies_or_says_that_it_cannot(void **state) {
  fixture *f = *state;
  char name[24];
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "policy%d", i);
    write_policy(f, name, NUMBERS "classify = function(call) return classify.http(call) end");
  }
  neap_engine_options options = {.clock = neap_clock_manual(&f->now_ms), .max_breakers = 300};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
  call_once(neap_engine_guard(f->engine, "policy299"), NULL, (neap_result){.status = 200});
  fixture_close(f);
  options.lua_memory_bytes = 4 << 20;
  assert_int_equal(fixture_open_with(f, options), -1);
  assert_non_null(strstr(f->error, "memory"));
}

/* However little memory Lua may have. */
static void opens_or_says_why_not(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  bool has_opened = false;
  for (size_t kib = 1; !has_opened; kib += kib < 64 ? 1 : 25) {
    neap_engine_options options = {.lua_memory_bytes = kib << 10};
    has_opened = fixture_open_with(f, options) == 0;
    if (!has_opened) assert_true(strlen(f->error) > 0);
    assert_true(kib < 8192);
  }
  uv_run(&f->loop, UV_RUN_NOWAIT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(ends_with_everything_under_way),
      ENGINE_TEST(refuses_while_it_ends),
      ENGINE_TEST(begins_and_ends_a_thousand_times),
      ENGINE_TEST(may_be_closed_from_an_event),
      ENGINE_TEST(lives_beside_another_on_the_same_loop),
      ENGINE_TEST(holds_many_policies_or_says_that_it_cannot),
      ENGINE_TEST(opens_or_says_why_not),
      ENGINE_TEST(leaves_nothing_after_failing_to_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
