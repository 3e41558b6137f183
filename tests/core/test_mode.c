/* Modes beside the state: the operator's and the rules'. */
#include "support.h"

static void forced_open_refuses_before_it_looks(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "F", "FF", "FF +1000", "FF +1000 S"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000);
    play(&f, scripts[i]);
    neap_snapshot before = snapshot(&f);
    set_mode(&f, NEAP_FORCED_OPEN, 0);
    SAME(ask(&f), NEAP_REFUSE_FORCED, scripts[i]);
    neap_snapshot after = snapshot(&f);
    SAME(after.state, before.state, "the state lives on underneath");
    SAME(after.epoch, before.epoch, "the state lives on underneath");
    SAME(after.probes_in_flight, before.probes_in_flight, "no slot is taken");
    SAME(after.mode, NEAP_FORCED_OPEN, "and the mode is told");
    HOLDS(after.mode_is_operators, "and whose it is");
    SAME(after.totals.refused_forced, 1, "counted");
  }
}

static void a_report_under_forced_open_is_a_report(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  play(&f, "<<");
  set_mode(&f, NEAP_FORCED_OPEN, 0);
  play(&f, ">F>F");
  SAME(state(&f), NEAP_OPEN, "the state lives on underneath");
  SAME(f.moved.cause, NEAP_BY_FAILURES, "the state lives on underneath");
}

static void bypass_permits_let_in_and_move_counters_only(void **unused) {
  (void)unused;
  const neap_mode modes[] = {NEAP_FORCED_CLOSED, NEAP_SHADOW};
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->mode = modes[i], r->slow_call_ms = 10);
    neap_permit permit = {0};
    SAME(acquire(&f, &permit), NEAP_ALLOW, "closed: an ordinary permit");
    SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "which counts");
    play(&f, "F");
    SAME(state(&f), NEAP_OPEN, "and opens");
    SAME(acquire(&f, &permit), NEAP_ALLOW_BYPASS, "open: let in nevertheless");
    SAME(neap_permit_refusal(&permit), NEAP_REFUSE_OPEN, "and told so");
    neap_snapshot before = snapshot(&f);
    SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "counted");
    neap_snapshot after = snapshot(&f);
    SAME(after.totals.failure, before.totals.failure + 1, "in the totals");
    SAME(after.totals.bypassed, 1, "in the totals");
    SAME(after.totals.refused_open, 0, "nobody was refused");
    SAME(after.calls, before.calls, "not in the window");
    SAME(after.consecutive_failures, before.consecutive_failures, "not in the run");
    SAME(after.epoch, before.epoch, "not in the state");
    play(&f, "+1000");
    SAME(acquire(&f, &permit), NEAP_ALLOW_PROBE, "half-open: an ordinary probe");
    neap_permit second = {0};
    SAME(acquire(&f, &second), NEAP_ALLOW_BYPASS, "and the second, which finds no slot, too");
    SAME(neap_permit_refusal(&second), NEAP_REFUSE_PROBES, "and told so");
    SAME(report(&f, &second, NEAP_SUCCESS), NEAP_COUNTED, "counted");
    SAME(snapshot(&f).probes_succeeded, 0, "but no probe");
    SAME(report(&f, &permit, NEAP_SUCCESS), NEAP_COUNTED, "counted");
    SAME(snapshot(&f).probes_succeeded, 1, "a probe");
  }
}

/* A bypass permit belongs to no epoch's window, so it can't be late for it. */
static void a_bypass_report_is_never_stale(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->mode = NEAP_SHADOW);
  neap_permit permit = {0};
  play(&f, "F");
  SAME(acquire(&f, &permit), NEAP_ALLOW_BYPASS, "open");
  play(&f, "r");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "in the totals");
  SAME(snapshot(&f).calls, 0, "and only there");
  SAME(state(&f), NEAP_CLOSED, "and only there");
}

static void a_lost_round_opens_under_shadow_too(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->lease_ms = 500, r->mode = NEAP_SHADOW);
  play(&f, "F +1000 < +500");
  SAME(ask(&f), NEAP_ALLOW_BYPASS, "the real acquire was run");
  SAME(f.moved.cause, NEAP_BY_PROBE_LOST, "with all it does");
}

static void the_operators_mode_goes_before_the_rules(void **unused) {
  (void)unused;
  const neap_mode all[] = {NEAP_AUTO, NEAP_FORCED_OPEN, NEAP_FORCED_CLOSED, NEAP_SHADOW};
  for (size_t mine = 0; mine < COUNT_OF(all); mine++)
    for (size_t theirs = 0; theirs < COUNT_OF(all); theirs++) {
      FIXTURE(f, r->failures = 1, r->mode = all[theirs]);
      SAME(snapshot(&f).mode, all[theirs], "the rules'");
      SAME(snapshot(&f).mode_is_operators, false, "the rules'");
      set_mode(&f, all[mine], 0);
      SAME(snapshot(&f).mode, all[mine], "the operator's");
      SAME(snapshot(&f).mode_is_operators, true, "the operator's");
      SAME(snapshot(&f).mode_left_ms, 0, "without an end");
      SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms), 0, "without an end");
      SAME(ask(&f), all[mine] == NEAP_FORCED_OPEN ? NEAP_REFUSE_FORCED : NEAP_ALLOW, "in force");
      f.now_ms += UINT64_C(86400000) * 10000;
      SAME(snapshot(&f).mode, all[mine], "until it is set again");
      f.now_ms = (f.now_ms | ((UINT64_C(1) << 40) - 1)) - 999; /* 1 s before 40 bits are full */
      SAME(snapshot(&f).mode_left_ms, 0, "without an end");
      SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms), 0, "without an end");
      set_mode(&f, NEAP_MODE_OF_RULES, 0);
      SAME(snapshot(&f).mode, all[theirs], "given back");
    }
}

static void an_operators_mode_may_end_by_itself(void **unused) {
  (void)unused;
  const uint64_t month_ms = UINT64_C(31) * 86400000;
  const uint64_t lengths[] = {1, 1000, month_ms};
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    FIXTURE(f, r->failures = 1);
    set_mode(&f, NEAP_FORCED_OPEN, lengths[i]);
    SAME(snapshot(&f).mode_left_ms, lengths[i], "all of it is left");
    SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms), lengths[i], "all of it is left");
    f.now_ms += lengths[i] - 1;
    SAME(ask(&f), NEAP_REFUSE_FORCED, "one millisecond before its end");
    SAME(snapshot(&f).mode_left_ms, 1, "one millisecond before its end");
    SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms), 1, "one millisecond before its end");
    f.now_ms += 1;
    SAME(snapshot(&f).mode, NEAP_AUTO, "at its end");
    SAME(snapshot(&f).mode_is_operators, false, "at its end");
    SAME(snapshot(&f).mode_left_ms, 0, "at its end");
    SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms), 0, "at its end");
    SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms + 1), 0, "after its end");
    SAME(neap_breaker_mode_left_ms(&f.breaker, f.now_ms + month_ms), 0, "long after its end");
    SAME(ask(&f), NEAP_ALLOW, "at its end");
    f.now_ms += UINT64_C(86400000) * 10000;
    SAME(ask(&f), NEAP_ALLOW, "and for good");
  }
  FIXTURE(f, r->failures = 1);
  SAME(neap_breaker_set_mode(&f.breaker, f.now_ms, NEAP_FORCED_OPEN, month_ms + 1), NEAP_ERANGE,
       "31 days at most");
  SAME(ask(&f), NEAP_ALLOW, "a function that fails changes nothing");
}

static void a_mode_survives_transitions_and_other_rules(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000);
  set_mode(&f, NEAP_SHADOW, 100000);
  play(&f, "Frt");
  f.rules.length_ms = 5000;
  prepare(&f.rules);
  neap_breaker_adopt(&f.breaker, &f.rules);
  SAME(snapshot(&f).mode, NEAP_SHADOW, "the operator's");
  SAME(ask(&f), NEAP_ALLOW_BYPASS, "the operator's");
}

static void refusals_may_go_uncounted(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->count_refusals = false, r->cooldown_ms = 1000);
  neap_breaker before, after;
  play(&f, "F");
  before = f.breaker;
  play(&f, "RRR");
  after = f.breaker;
  SAME(memcmp(&before, &after, sizeof before), 0, "a refusal stores nothing");
  play(&f, "+1000 <");
  before = f.breaker;
  play(&f, "RRR");
  after = f.breaker;
  SAME(memcmp(&before, &after, sizeof before), 0, "a refusal stores nothing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("forced_open refuses before it looks", forced_open_refuses_before_it_looks),
      IT("a report under forced_open is a report", a_report_under_forced_open_is_a_report),
      IT("bypass permits let in and move counters only",
         bypass_permits_let_in_and_move_counters_only),
      IT("a bypass report is never stale", a_bypass_report_is_never_stale),
      IT("a lost round opens under shadow too", a_lost_round_opens_under_shadow_too),
      IT("the operator's mode goes before the rules'", the_operators_mode_goes_before_the_rules),
      IT("an operator's mode may end by itself", an_operators_mode_may_end_by_itself),
      IT("a mode survives transitions and other rules",
         a_mode_survives_transitions_and_other_rules),
      IT("refusals may go uncounted", refusals_may_go_uncounted),
  };
  return cmocka_run_group_tests_name("mode", tests, NULL, NULL);
}
