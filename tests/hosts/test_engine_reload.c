/* test_engine_reload.c: policies are edited while the program runs. */
#include "tests/hosts/engine_support.h"

#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>

static int count_events(const fixture *f, neap_event_kind kind) {
  int count = 0;
  for (int i = 0; i < f->event_count; i++) count += f->events[i].kind == kind;
  return count;
}

/* Reloads; the test fails if that is not what comes of it. */
static void reload(fixture *f, size_t reloaded, size_t failed) {
  size_t refused;
  assert_int_equal(neap_engine_reload(f->engine, &refused), reloaded);
  assert_int_equal(refused, failed);
}

static neap_guard *open_flags(fixture *f) {
  write_policy(f, "flags", NUMBERS "timeout_ms = 50");
  fixture_open(f);
  return neap_engine_guard(f->engine, "flags");
}

/* ---- What stays ------------------------------------------------------------------------------ */

/* B119: a threshold is edited while the breaker is open. */
static void keeps_state_deadline_and_epoch(void **state) {
  fixture *f = *state;
  neap_guard *g = open_flags(f);
  fail_calls(g, NULL, 3);
  f->now_ms += 300;
  neap_snapshot before = snapshot_of(g, NULL);
  write_policy(f, "flags",
               "window = { kind = 'time', length_ms = 10000 }, trip = { failures = 2 }, "
               "open = { cooldown_ms = 1000, jitter = 0 }, "
               "half_open = { probes = 1, successes = 1 }, timeout_ms = 70");
  reload(f, 1, 0);
  neap_snapshot after = snapshot_of(g, NULL);
  assert_int_equal(after.state, NEAP_OPEN);
  assert_int_equal(after.retry_after_ms, 700);
  assert_int_equal(after.epoch, before.epoch);
  assert_int_equal(after.level, before.level);
  assert_int_equal(after.totals.failure, before.totals.failure);
  assert_int_equal(neap_guard_timeout_ms(g), 70);
  assert_int_equal(f->events[1].kind, NEAP_EVENT_RELOADED);
  assert_int_equal(f->events[1].at_ms, f->now_ms);
}

static void keeps_the_window_and_uses_the_new_threshold(void **state) {
  fixture *f = *state;
  neap_guard *g = open_flags(f);
  fail_calls(g, NULL, 1);
  write_policy(f, "flags",
               "window = { kind = 'time', length_ms = 10000 }, trip = { failures = 2 }");
  reload(f, 1, 0);
  assert_int_equal(snapshot_of(g, NULL).failure, 1);
  fail_calls(g, NULL, 1);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_OPEN);
}

static void empties_the_window_if_its_length_changes_and_keeps_the_state(void **state) {
  fixture *f = *state;
  neap_guard *g = open_flags(f);
  fail_calls(g, "open", 3);
  fail_calls(g, "closed", 2);
  write_policy(f, "flags", "window = { kind = 'count', calls = 50 }, trip = { failures = 3 }");
  reload(f, 1, 0);
  assert_int_equal(snapshot_of(g, "open").state, NEAP_OPEN);
  assert_int_equal(snapshot_of(g, "closed").state, NEAP_CLOSED);
  assert_int_equal(snapshot_of(g, "closed").window, NEAP_WINDOW_COUNT);
  assert_int_equal(snapshot_of(g, "closed").calls, 0);
}

static void keeps_probes_in_flight(void **state) {
  fixture *f = *state;
  write_policy(f, "flags",
               "trip = { failures = 1 }, open = { cooldown_ms = 1000, jitter = 0 }, "
               "half_open = { probes = 5, successes = 5, concurrent = 2 }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  fail_calls(g, NULL, 1);
  f->now_ms += 1000;
  call_once(g, NULL, (neap_result){.status = 200});
  neap_ticket probe;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &probe, NULL), NEAP_ALLOW_PROBE);
  write_policy(f, "flags",
               "trip = { failures = 9 }, open = { cooldown_ms = 1000, jitter = 0 }, "
               "half_open = { probes = 5, successes = 2, concurrent = 2 }");
  reload(f, 1, 0);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_HALF_OPEN);
  assert_int_equal(snapshot_of(g, NULL).probes_in_flight, 1);
  assert_int_equal(snapshot_of(g, NULL).probes_succeeded, 1);
  neap_report report;
  neap_guard_report(g, &probe, &(neap_result){.status = 200}, &report);
  assert_int_equal(report.reported, NEAP_COUNTED);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);
}

static void keeps_an_operators_mode(void **state) {
  fixture *f = *state;
  neap_guard *g = open_flags(f);
  assert_true(neap_guard_set_mode(g, NULL, 0, NEAP_FORCED_OPEN, 5000, "ann", NULL));
  write_policy(f, "flags", "trip = { failures = 9 }");
  reload(f, 1, 0);
  assert_int_equal(snapshot_of(g, NULL).mode, NEAP_FORCED_OPEN);
  assert_int_equal(snapshot_of(g, NULL).mode_left_ms, 5000);
}

static void keeps_last_good_answers(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "fallback = { fallback.last_good { max_age_ms = 5000 } }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_request request = {.target = "/a", .target_length = 2};
  neap_answer answer = {.status = 200, .body = "kept", .body_length = 4};
  neap_guard_remember(g, NULL, 0, &request, &answer);
  write_policy(f, "flags", NUMBERS "fallback = { fallback.last_good { max_age_ms = 6000 } }");
  reload(f, 1, 0);
  f->now_ms += 5500;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_string_equal(answer.body, "kept");
  assert_int_equal(answer.age_ms, 5500);
  neap_answer_free(&answer);
}

static void lets_the_policy_that_admitted_a_call_classify_it(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "classify = function() return 'neutral', 'old' end");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_ticket old, fresh;
  neap_report report;
  neap_guard_acquire(g, NULL, 0, &old, NULL);
  write_policy(f, "flags", NUMBERS "classify = function() return 'failure', 'new' end");
  reload(f, 1, 0);
  neap_guard_acquire(g, NULL, 0, &fresh, NULL);
  assert_int_equal(neap_guard_report(g, &old, &(neap_result){.status = 200}, &report),
                   NEAP_NEUTRAL);
  assert_string_equal(report.reason, "old");
  assert_int_equal(neap_guard_report(g, &fresh, &(neap_result){.status = 200}, &report),
                   NEAP_FAILURE);
  assert_string_equal(report.reason, "new");

  neap_guard_acquire(g, NULL, 0, &old, NULL);
  write_policy(f, "flags", NUMBERS);
  reload(f, 1, 0);
  assert_int_equal(neap_guard_report(g, &old, &(neap_result){.status = 200}, &report),
                   NEAP_FAILURE);
  assert_string_equal(report.reason, "new");
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void keeps_the_last_good_policy_and_says_where_the_error_is(void **state) {
  static const struct {
    const char *text, *said;
  } cases[] = {
      {"return {\n  name = \"flags\",\n  trip = = 1\n}", "flags.lua:3:"},
      {"", "flags.lua"},
      {"return 5", "flags.lua"},
      {"return {\n  name = \"flags\",\n  trip = { failures = -1 },\n}", "failures"},
      {"error('no')", "no"},
      {"return { name = 'flags', trip = { failures = 1 }, classify = function() error('boom') end "
       "}",
       "boom"},
  };
  fixture *f = *state;
  neap_guard *g = open_flags(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_text(path_of(f, "flags.lua"), cases[i].text);
    f->event_count = 0;
    reload(f, 0, 1);
    assert_int_equal(f->event_count, 1);
    assert_int_equal(f->events[0].kind, NEAP_EVENT_RELOAD_FAILED);
    if (!strstr(f->texts[0], cases[i].said))
      fail_msg("%s is not in: %s", cases[i].said, f->texts[0]);
    assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);
    assert_int_equal(neap_guard_timeout_ms(g), 50);
  }
  f->event_count = 0;
  write_policy(f, "flags", NUMBERS "timeout_ms = 60");
  reload(f, 1, 0);
  assert_int_equal(f->events[0].kind, NEAP_EVENT_RELOADED);
  assert_int_equal(neap_guard_timeout_ms(g), 60);
}

/* B139, B124. */
static void does_nothing_for_the_same_content(void **state) {
  fixture *f = *state;
  write_text(path_of(f, "params"), "return { flags = { limit = 3 } }");
  write_text(path_of(f, "flags.lua"),
             "return { name = 'flags', trip = { failures = params.limit } }");
  neap_engine_options options = {.clock = neap_clock_manual(&f->now_ms),
                                 .no_watch = true,
                                 .params = (const char *const[]){path_of(f, "params")},
                                 .param_count = 1};
  assert_int_equal(fixture_open_with(f, options), 0);
  for (int i = 0; i < 100; i++) {
    chmod(path_of(f, "flags.lua"), i % 2 ? 0600 : 0644);
    write_text(path_of(f, "flags.lua"),
               "return { name = 'flags', trip = { failures = params.limit } }");
    reload(f, 0, 0);
  }
  assert_int_equal(f->event_count, 0);
  write_text(path_of(f, "params"), "return { flags = { limit = 1 } }");
  reload(f, 1, 0);
  fail_calls(neap_engine_guard(f->engine, "flags"), NULL, 1);
  assert_int_equal(snapshot_of(neap_engine_guard(f->engine, "flags"), NULL).state, NEAP_OPEN);
}

/* B140. */
static void follows_the_modules_of_a_policy(void **state) {
  fixture *f = *state;
  mkdir(path_of(f, "lib"), 0700);
  write_text(path_of(f, "lib/limits.lua"), "return { failures = 3 }");
  write_text(path_of(f, "flags.lua"),
             "return { name = 'flags', trip = { failures = require('lib.limits').failures } }");
  fixture_open(f);
  write_text(path_of(f, "lib/limits.lua"), "return { failures = 1 }");
  reload(f, 1, 0);
  fail_calls(neap_engine_guard(f->engine, "flags"), NULL, 1);
  assert_int_equal(snapshot_of(neap_engine_guard(f->engine, "flags"), NULL).state, NEAP_OPEN);
  write_text(path_of(f, "lib/limits.lua"), "return { failures = = 1 }");
  reload(f, 0, 1);
  assert_non_null(strstr(f->texts[f->event_count - 1], "lib/limits.lua:1:"));
}

static void finds_policies_that_come_later(void **state) {
  fixture *f = *state;
  open_flags(f);
  write_policy(f, "later", NUMBERS);
  reload(f, 1, 0);
  assert_int_equal(
      call_once(neap_engine_guard(f->engine, "later"), NULL, (neap_result){.status = 200}),
      NEAP_SUCCESS);
}

/* ---- On the loop ----------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *timer) {
  if (timer->data) ++*(int *)timer->data;
}

/* Runs the loop until there are so many events, for 20 s of its own: however long the machine
 * stands still, the timer fires once. */
static void run_until_events(fixture *f, int count) {
  int ticks = 0;
  uv_timer_t limit = {.data = &ticks};
  uv_timer_init(&f->loop, &limit);
  uv_timer_start(&limit, on_tick, 10, 10);
  while (f->event_count < count && ticks < 2000) uv_run(&f->loop, UV_RUN_ONCE);
  uv_close((uv_handle_t *)&limit, NULL);
  uv_run(&f->loop, UV_RUN_NOWAIT);
  assert_true(f->event_count >= count);
}

static void watches_its_files(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "timeout_ms = 10");
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.lua_memory_bytes = 0}), 0);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  write_policy(f, "flags", NUMBERS "timeout_ms = 11");
  run_until_events(f, 1);
  assert_int_equal(neap_guard_timeout_ms(g), 11);

  write_policy(f, "flags.new", NUMBERS "timeout_ms = 12");
  write_text(path_of(f, "other"), "return { name = 'flags', " NUMBERS " timeout_ms = 12 }");
  assert_int_equal(rename(path_of(f, "other"), path_of(f, "flags.lua")), 0);
  unlink(path_of(f, "flags.new.lua"));
  run_until_events(f, 2);
  assert_int_equal(neap_guard_timeout_ms(g), 12);
}

/* A mounted ConfigMap, there from the start (B131): flags.lua -> ..data/flags.lua, ..data -> ..1 */
static void follows_a_mounted_directory(void **state) {
  fixture *f = *state;
  mkdir(path_of(f, "..1"), 0700);
  mkdir(path_of(f, "..2"), 0700);
  write_text(path_of(f, "..1/flags.lua"), "return { name = 'flags', " NUMBERS " timeout_ms = 1 }");
  write_text(path_of(f, "..2/flags.lua"), "return { name = 'flags', " NUMBERS " timeout_ms = 2 }");
  assert_int_equal(symlink("..1", path_of(f, "..data")), 0);
  assert_int_equal(symlink("..data/flags.lua", path_of(f, "flags.lua")), 0);
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.lua_memory_bytes = 0}), 0);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  assert_int_equal(neap_guard_timeout_ms(g), 1);
  assert_int_equal(symlink("..2", path_of(f, "..data_tmp")), 0);
  assert_int_equal(rename(path_of(f, "..data_tmp"), path_of(f, "..data")), 0);
  run_until_events(f, 1);
  assert_int_equal(neap_guard_timeout_ms(g), 2);
}

/* B122: the file is broken, mended and changed under load; every call has a policy to go by. */
static void never_leaves_a_call_without_a_policy(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "timeout_ms = 10");
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.lua_memory_bytes = 0}), 0);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  uv_timer_t alive = {.data = NULL}; /* the engine alone does not keep a loop alive */
  uv_timer_init(&f->loop, &alive);
  uv_timer_start(&alive, on_tick, 3600000, 0);
  uint64_t end_ns = uv_hrtime() + 1500000000, edit_ns = 0;
  int calls = 0, edits = 0;
  while (uv_hrtime() < end_ns) {
    if (uv_hrtime() > edit_ns) {
      char rest[1024];
      snprintf(rest, sizeof rest, NUMBERS "timeout_ms = %d %s", 10 + edits, edits % 2 ? "=" : "");
      write_policy(f, "flags", rest);
      edit_ns = uv_hrtime() + 240000000;
      edits++;
    }
    for (int i = 0; i < 10; i++, calls++)
      assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    usleep(1000);
  }
  uv_close((uv_handle_t *)&alive, NULL);
  uv_run(&f->loop, UV_RUN_NOWAIT);
  assert_true(calls > 1000);
  assert_int_equal(snapshot_of(g, NULL).totals.success, calls);
  assert_true(count_events(f, NEAP_EVENT_RELOADED) >= 2);
  assert_true(count_events(f, NEAP_EVENT_RELOAD_FAILED) >= 2);
}

/* ---- What a thousand reloads leave ----------------------------------------------------------- */

static int count_files(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

static void count_handle(uv_handle_t *handle, void *count) {
  (void)handle;
  ++*(int *)count;
}

static long resident_kib(void) {
  long size, resident;
  FILE *statm = fopen("/proc/self/statm", "r");
  assert_int_equal(fscanf(statm, "%ld %ld", &size, &resident), 2);
  fclose(statm);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

typedef struct footprint {
  int files, handles;
  size_t refs, lua_kib;
  long resident;
} footprint;

static footprint measure(fixture *f) {
  lua_State *L = neap_engine_lua(f->engine);
  footprint p = {.files = count_files()};
  uv_walk(&f->loop, count_handle, &p.handles);
  lua_gc(L, LUA_GCCOLLECT);
  lua_gc(L, LUA_GCCOLLECT);
  p.refs = lua_rawlen(L, LUA_REGISTRYINDEX);
  p.lua_kib = (size_t)lua_gc(L, LUA_GCCOUNT);
  p.resident = resident_kib();
  return p;
}

static void reload_times(fixture *f, int from, int count) {
  for (int i = from; i < from + count; i++) {
    char rest[1024];
    snprintf(rest, sizeof rest,
             NUMBERS "timeout_ms = %d, classify = function(call) return classify.http(call) end, "
                     "fallback = { fallback.last_good { max_age_ms = %d } }",
             1 + i % 2000, 1000 + i);
    write_policy(f, "flags", rest);
    reload(f, 1, 0);
    call_once(neap_engine_guard(f->engine, "flags"), NULL, (neap_result){.status = 200});
    f->log[0] = '\0';
    f->event_count = 0;
  }
}

/* B112, B214. */
static void leaves_nothing_behind_after_a_thousand_reloads(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.lua_memory_bytes = 0}), 0);
  reload_times(f, 0, 250); /* until the heap has found its size */
  footprint before = measure(f);
  reload_times(f, 250, 1000);
  footprint after = measure(f);
  assert_int_equal(after.files, before.files);
  assert_int_equal(after.handles, before.handles);
  assert_int_equal(after.refs, before.refs);
  assert_true(after.lua_kib <= before.lua_kib + 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these keep what was freed */
  assert_true(after.resident <= before.resident + 1024);
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(keeps_state_deadline_and_epoch),
      ENGINE_TEST(keeps_the_window_and_uses_the_new_threshold),
      ENGINE_TEST(empties_the_window_if_its_length_changes_and_keeps_the_state),
      ENGINE_TEST(keeps_probes_in_flight),
      ENGINE_TEST(keeps_an_operators_mode),
      ENGINE_TEST(keeps_last_good_answers),
      ENGINE_TEST(lets_the_policy_that_admitted_a_call_classify_it),
      ENGINE_TEST(keeps_the_last_good_policy_and_says_where_the_error_is),
      ENGINE_TEST(does_nothing_for_the_same_content),
      ENGINE_TEST(follows_the_modules_of_a_policy),
      ENGINE_TEST(finds_policies_that_come_later),
      ENGINE_TEST(watches_its_files),
      ENGINE_TEST(follows_a_mounted_directory),
      ENGINE_TEST(never_leaves_a_call_without_a_policy),
      ENGINE_TEST(leaves_nothing_behind_after_a_thousand_reloads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
