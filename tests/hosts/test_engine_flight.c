/* Calls that hang, as the engine sees them: they open the breaker before they end, with or without
 * traffic. */
#include "engine_support.h"

/* Half of four calls that take over 100 ms. */
#define HANGS                                                                                      \
  "trip = { slow_rate = 0.5, slow_call_ms = 100, minimum_calls = 4 }, "                            \
  "open = { cooldown_ms = 60000, jitter = 0 }, timeout_ms = 5000, "

static void acquire_four(neap_guard *g, neap_ticket tickets[4]) {
  for (int i = 0; i < 4; i++)
    assert_int_equal(neap_guard_acquire(g, NULL, 0, &tickets[i], NULL), NEAP_ALLOW);
}

static void the_next_call_is_refused(void **state) {
  fixture *f = *state;
  neap_ticket tickets[4], next;
  neap_refusal refusal;
  write_policy(f, "hangs", HANGS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "hangs");
  acquire_four(g, tickets);
  f->now_ms += 107; /* a sixteenth, and the rest of a millisecond */
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &next, &refusal), NEAP_REFUSE_OPEN);
  assert_string_equal(refusal.reason, "open");
  assert_int_equal(f->event_count, 1);
  assert_string_equal(
      f->texts[0],
      "hangs/default: closed -> open: a slow call rate of 1 in 4 calls, limit 0.5; open "
      "for 60000 ms, level 1");
  for (int i = 0; i < 4; i++) {
    neap_report report;
    neap_guard_report(g, &tickets[i], &(neap_result){.status = 200}, &report);
    assert_int_equal(report.reported, NEAP_STALE);
  }
  assert_int_equal(snapshot_of(g, NULL).totals.slow_success, 0);
}

static void each_counts_once(void **state) {
  fixture *f = *state;
  neap_ticket tickets[4];
  write_policy(f, "hangs", "trip = { slow_rate = 1, slow_call_ms = 100, minimum_calls = 100 }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "hangs");
  acquire_four(g, tickets);
  f->now_ms += 150;
  call_once(g, NULL, (neap_result){.status = 200});
  assert_int_equal(snapshot_of(g, NULL).slow_success, 4);
  neap_guard_report(g, &tickets[0], &(neap_result){.status = 200}, NULL);
  neap_guard_report(g, &tickets[1], &(neap_result){.status = 503}, NULL);
  neap_guard_report(g, &tickets[2], &(neap_result){.status = 404}, NULL);
  neap_guard_abandon(g, &tickets[3]);
  neap_snapshot s = snapshot_of(g, NULL);
  assert_int_equal(s.calls, 3);
  assert_int_equal(s.success, 1);
  assert_int_equal(s.slow_success, 1);
  assert_int_equal(s.slow_failure, 1);
  assert_int_equal(s.totals.neutral, 1);
  assert_int_equal(s.totals.abandoned, 1);
}

static void count_turn(uv_timer_t *timer) { ++*(int *)timer->data; }

/* Nobody calls any more: the engine's own timer looks.  It does not keep the loop running. */
static void without_traffic_the_loop_sees_it(void **state) {
  fixture *f = *state;
  neap_ticket tickets[4];
  static uv_timer_t program; /* closed when the fixture is */
  int turns = 0;
  write_policy(f, "hangs", HANGS);
  if (fixture_open_with(f, (neap_engine_options){.no_watch = true}) != 0) fail_msg("%s", f->error);
  neap_guard *g = neap_engine_guard(f->engine, "hangs");
  program.data = &turns;
  assert_int_equal(uv_timer_init(&f->loop, &program), 0);
  assert_int_equal(uv_timer_start(&program, count_turn, 5, 5), 0);
  acquire_four(g, tickets);
  uint64_t began_ms = uv_hrtime() / 1000000;
  while (f->event_count == 0 && turns < 800) uv_run(&f->loop, UV_RUN_ONCE);
  uint64_t took_ms = uv_hrtime() / 1000000 - began_ms;
  uv_close((uv_handle_t *)&program, NULL);
  assert_int_equal(f->event_count, 1);
  assert_int_equal(f->events[0].moved.cause, NEAP_BY_SLOW_RATE);
  assert_true(took_ms > 100);
  assert_true(took_ms < 4000); /* of a machine that is busy; the timeout is at 5,000 */
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_OPEN);
  for (int i = 0; i < 4; i++) neap_guard_abandon(g, &tickets[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(the_next_call_is_refused),
      ENGINE_TEST(each_counts_once),
      ENGINE_TEST(without_traffic_the_loop_sees_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
