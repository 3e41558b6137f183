/* Calls in flight: one that hangs counts as slow before it ends, and once. */
#include "flight.h"

#define CALLS 100

/* Nothing trips it: what is counted can be looked at. */
static fixture watched(neap_window_kind window) {
  FIXTURE(f, r->window = window, r->slow_rate = NEAP_ONE, r->slow_call_ms = 1000,
          r->minimum_calls = window == NEAP_WINDOW_COUNT ? 100 : 1000000);
  return f;
}

static const neap_window_kind windows[] = {NEAP_WINDOW_TIME, NEAP_WINDOW_COUNT};

static uint64_t all_totals(const neap_snapshot *s) {
  const neap_totals *t = &s->totals;
  return t->success + t->slow_success + t->failure + t->slow_failure + t->neutral + t->abandoned;
}

static void a_dependency_that_hangs_trips_it_before_the_first_timeout(void **unused) {
  (void)unused;
  FIXTURE(f, r->slow_rate = 500000, r->slow_call_ms = 1000, r->minimum_calls = 10,
          r->timeout_ms = 5000);
  neap_flight flight = {{0}};
  for (int i = 0; i < 20; i++) {
    flight_begin(&f, &flight);
    f.now_ms += 10;
  }
  uint64_t began_ms = f.now_ms - 200;
  while (state(&f) == NEAP_CLOSED) {
    f.now_ms = flight_next(&f, &flight);
    flight_sweep(&f, &flight);
  }
  HOLDS(f.now_ms <= began_ms + 1000 + 100 + 63, "the tenth call's time and a sixteenth");
  SAME(f.moved.cause, NEAP_BY_SLOW_RATE, "by the rule for slow calls");
  SAME(f.moved.measured, f.moved.calls, "all of them");
  HOLDS(f.moved.calls >= 10, "the minimum");
  SAME(f.moves, 1, "once");
}

/* For every length of it, and wherever in a slice the call began. */
static void never_early_and_a_sixteenth_late_at_most(void **unused) {
  (void)unused;
  const uint32_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1000, 30000, 3600000};
  for (size_t i = 0; i < COUNT_OF(lengths); i++)
    for (uint64_t begin = 0; begin < 200; begin++) {
      FIXTURE(f, r->slow_rate = NEAP_ONE, r->slow_call_ms = lengths[i], r->length_ms = 3600000);
      neap_flight flight = {{0}};
      f.now_ms += begin * begin;
      call_out call = flight_begin(&f, &flight);
      f.now_ms = call.began_ms + lengths[i];
      SAME(flight_sweep(&f, &flight), 0, "slow is what takes longer than slow_call_ms");
      uint64_t next_ms = flight_next(&f, &flight);
      HOLDS(next_ms > f.now_ms, "so it comes later");
      uint64_t late_ms = next_ms - call.began_ms - lengths[i];
      HOLDS(late_ms <= (lengths[i] < 16 ? 1 : lengths[i] / 16), "but not by more than a sixteenth");
      f.now_ms = next_ms - 1;
      SAME(flight_sweep(&f, &flight), 0, "not before it says so");
      f.now_ms++;
      SAME(flight_sweep(&f, &flight), 1, "but then");
      SAME(flight_sweep(&f, &flight), 0, "and once");
      SAME(flight_next(&f, &flight), NEAP_NEVER, "and there is no more to come");
    }
}

/* Whoever comes by sees it: to acquire, to report, to sweep. */
static void whoever_comes_counts_what_is_overdue(void **unused) {
  (void)unused;
  for (int who = 0; who < 3; who++) {
    FIXTURE(f, r->slow_rate = 500000, r->slow_call_ms = 1000, r->minimum_calls = 2);
    neap_flight flight = {{0}};
    call_out calls[2] = {flight_begin(&f, &flight), flight_begin(&f, &flight)}, quick;
    f.now_ms += 900;
    quick = flight_begin(&f, &flight);
    f.now_ms += 163;
    if (who == 0)
      SAME(flight_try(&f, &flight, &quick), NEAP_REFUSE_OPEN, "it is the first refused");
    if (who == 1) SAME(flight_end(&f, &flight, &quick, NEAP_SUCCESS), NEAP_COUNTED, "itself first");
    if (who == 2) SAME(flight_sweep(&f, &flight), 2, "told how many");
    SAME(state(&f), NEAP_OPEN, "tripped");
    SAME(f.moves, 1, "by one transition");
    SAME(f.moved.calls, who == 1 ? 3 : 2, "over what had ended and what had not");
    for (int i = 0; i < 2; i++)
      SAME(flight_end(&f, &flight, &calls[i], NEAP_SUCCESS), NEAP_STALE,
           "of an epoch that is over");
  }
}

/* While in flight a slow success; then what it came to, in its place. */
static void it_counts_once_whatever_it_comes_to(void **unused) {
  (void)unused;
  const struct {
    neap_outcome outcome;
    uint64_t slow_success, slow_failure;
  } ends[] = {{NEAP_SUCCESS, 1, 0},
              {NEAP_FAILURE, 0, 1},
              {NEAP_TIMEOUT, 0, 1},
              {NEAP_NEUTRAL, 0, 0},
              {NEAP_ABANDONED, 0, 0}};
  for (size_t i = 0; i < COUNT_OF(ends) * 2; i++) {
    fixture f = watched(windows[i % 2]);
    neap_flight flight = {{0}};
    play(&f, "SSFF");
    call_out call = flight_begin(&f, &flight);
    f.now_ms += 1100;
    SAME(flight_sweep(&f, &flight), 1, "overdue");
    neap_snapshot during = snapshot(&f);
    SAME(during.calls, 5, "counted");
    SAME(during.slow_success, 1, "as slow");
    SAME(during.consecutive_failures, 2, "it has not succeeded, so the run goes on");
    SAME(all_totals(&during), 4, "no total has it yet");
    f.now_ms += 900;
    SAME(flight_end(&f, &flight, &call, ends[i / 2].outcome), NEAP_COUNTED, "");
    neap_snapshot after = snapshot(&f);
    SAME(after.slow_success, ends[i / 2].slow_success, "what it came to");
    SAME(after.slow_failure, ends[i / 2].slow_failure, "what it came to");
    SAME(after.calls, 4 + ends[i / 2].slow_success + ends[i / 2].slow_failure, "once");
    uint64_t run = ends[i / 2].slow_success ? 0 : 2 + ends[i / 2].slow_failure;
    SAME(after.consecutive_failures, run, "the run is as if it had only ended");
    SAME(all_totals(&after), 5, "and in the totals");
    SAME(after.totals.slow_success, ends[i / 2].slow_success, "and in the totals");
    SAME(after.totals.slow_failure, ends[i / 2].slow_failure, "and in the totals");
    SAME(after.totals.timeout, ends[i / 2].outcome == NEAP_TIMEOUT, "and in the totals");
    SAME(after.totals.abandoned, ends[i / 2].outcome == NEAP_ABANDONED, "and in the totals");
  }
}

static void quick_calls_leave_no_trace(void **unused) {
  (void)unused;
  for (int i = 0; i < 2; i++) {
    fixture f = watched(windows[i]);
    neap_flight flight = {{0}};
    for (int n = 0; n < 3000; n++) {
      call_out call = flight_begin(&f, &flight);
      f.now_ms += (uint64_t)n % 40;
      flight_end(&f, &flight, &call, NEAP_SUCCESS);
    }
    SAME(snapshot(&f).slow_success, 0, "none was slow");
    SAME(snapshot(&f).totals.success, 3000, "all succeeded");
    SAME(flight_next(&f, &flight), NEAP_NEVER, "none is in flight");
  }
}

/* A neutral end takes the call out again.  Then there are fewer, and a rate may hold. */
static void a_neutral_end_may_make_a_rate_hold(void **unused) {
  (void)unused;
  for (int i = 0; i < 2; i++) {
    FIXTURE(f, r->window = windows[i], r->failure_rate = 500000, r->slow_rate = NEAP_ONE,
            r->slow_call_ms = 100, r->minimum_calls = 2);
    neap_flight flight = {{0}};
    call_out call = flight_begin(&f, &flight);
    f.now_ms += 200;
    flight_sweep(&f, &flight);
    play(&f, "SF");
    SAME(state(&f), NEAP_CLOSED, "one of three");
    flight_end(&f, &flight, &call, NEAP_NEUTRAL);
    SAME(state(&f), NEAP_OPEN, "one of two");
    SAME(f.moved.calls, 2, "one of two");
  }
}

/* Ended long after: its slot has had many others since, of which some hang as well. */
static void it_is_known_however_long_it_hangs(void **unused) {
  (void)unused;
  for (int i = 0; i < 2; i++) {
    fixture f = watched(windows[i]);
    f.rules.length_ms = 3600000;
    prepare(&f.rules);
    neap_flight flight = {{0}};
    call_out hung[20];
    unsigned marked = 0;
    for (int n = 0; n < 20; n++) {
      hung[n] = flight_begin(&f, &flight);
      f.now_ms += 5000 + (uint64_t)n; /* beyond the ring */
      marked += (unsigned)flight_sweep(&f, &flight);
    }
    SAME(marked, 20, "each is marked once");
    SAME(snapshot(&f).slow_success, 20, "each is marked once");
    for (int n = 0; n < 20; n++) {
      flight_end(&f, &flight, &hung[n], n % 2 ? NEAP_FAILURE : NEAP_SUCCESS);
      neap_snapshot s = snapshot(&f);
      SAME(s.calls, 20, "each is known");
      SAME(s.slow_failure, (n + 1) / 2, "each becomes what it came to");
    }
    SAME(snapshot(&f).totals.slow_success, 10, "and is told once");
    SAME(snapshot(&f).totals.slow_failure, 10, "and is told once");
  }
}

/* What it came to counts as of its end.  Its mark may have left the window before. */
static void a_mark_counts_for_a_window_and_so_does_the_end(void **unused) {
  (void)unused;
  fixture f = watched(NEAP_WINDOW_TIME);
  neap_flight flight = {{0}};
  call_out call = flight_begin(&f, &flight), longer = flight_begin(&f, &flight);
  f.now_ms += 1100;
  flight_sweep(&f, &flight);
  f.now_ms += 8000;
  SAME(snapshot(&f).slow_success, 2, "in the window");
  flight_end(&f, &flight, &call, NEAP_FAILURE);
  f.now_ms += 2000;
  SAME(snapshot(&f).slow_success, 0, "the mark of the other has left it");
  SAME(snapshot(&f).slow_failure, 1, "the end of the first has not");
  flight_end(&f, &flight, &longer, NEAP_FAILURE);
  SAME(snapshot(&f).slow_failure, 2, "nor that of the other");
  SAME(snapshot(&f).totals.slow_failure, 2, "and all is told once");
  SAME(snapshot(&f).totals.slow_success, 0, "and all is told once");
}

/* Whatever comes and goes in the window: a total that fell would be a restart to who reads it. */
static void the_totals_only_grow(void **unused) {
  (void)unused;
  for (int i = 0; i < 2; i++) {
    fixture f = watched(windows[i]);
    neap_flight flight = {{0}};
    call_out calls[CALLS];
    uint64_t seed = 7, last = 0, ended = 0;
    for (int n = 0; n < CALLS; n++) calls[n] = flight_begin(&f, &flight);
    for (int n = 0; n < CALLS; n++) {
      f.now_ms += random_below(&seed, 700);
      flight_sweep(&f, &flight);
      neap_snapshot s = snapshot(&f);
      HOLDS(s.totals.slow_success >= last, "no less than before");
      SAME(s.totals.slow_success + s.totals.slow_failure + s.totals.success + s.totals.failure,
           ended, "what has ended");
      last = s.totals.slow_success;
      flight_end(&f, &flight, &calls[n], n % 3 ? NEAP_SUCCESS : NEAP_FAILURE);
      ended++;
    }
  }
}

static void probes_and_bypasses_are_not_its_business(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->slow_rate = NEAP_ONE, r->slow_call_ms = 100, r->probes = 3,
          r->concurrent = 3, r->cooldown_ms = 1000, r->lease_ms = 10000);
  neap_flight flight = {{0}};
  call_out before = flight_begin(&f, &flight);
  play(&f, "F +1000");
  call_out probes[2] = {flight_begin(&f, &flight), flight_begin(&f, &flight)};
  set_mode(&f, NEAP_FORCED_CLOSED, 0);
  call_out third = flight_begin(&f, &flight), bypass = flight_begin(&f, &flight);
  SAME(neap_permit_kind(&third.permit), NEAP_ALLOW_PROBE, "");
  SAME(neap_permit_kind(&bypass.permit), NEAP_ALLOW_BYPASS, "");
  f.now_ms += 5000;
  SAME(flight_sweep(&f, &flight), 0, "the lease looks after probes");
  SAME(flight_next(&f, &flight), NEAP_NEVER, "the lease looks after probes");
  f.now_ms -= 4950;
  SAME(flight_end(&f, &flight, &bypass, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(flight_end(&f, &flight, &probes[0], NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(flight_end(&f, &flight, &probes[1], NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(state(&f), NEAP_CLOSED, "closed by its probes");
  f.now_ms += 1000;
  SAME(flight_sweep(&f, &flight), 0, "what began before that is of another epoch");
  SAME(flight_end(&f, &flight, &before, NEAP_FAILURE), NEAP_STALE, "and stale");
  SAME(snapshot(&f).calls, 0, "the window is clean");
}

static void rules_without_it_leave_it_alone(void **unused) {
  (void)unused;
  static const neap_flight nothing;
  for (int i = 0; i < 2; i++) {
    FIXTURE(f, r->failures = 3, r->slow_call_ms = i ? 100 : 0);
    neap_flight flight = {{0}};
    call_out call = flight_begin(&f, &flight);
    f.now_ms += 10000;
    SAME(flight_sweep(&f, &flight), 0, "no rule asks for slow calls");
    SAME(flight_end(&f, &flight, &call, NEAP_SUCCESS), NEAP_COUNTED, "");
    SAME(memcmp(&flight, &nothing, sizeof flight), 0, "not a bit of it is touched");
  }
}

/* A rule that is a function's is asked about slow calls, too. */
static void a_function_may_ask_for_it(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->slow_call_ms = 100);
  neap_flight flight = {{0}};
  flight_begin(&f, &flight);
  f.now_ms += 200;
  SAME(flight_sweep(&f, &flight), 1, "told, so that it can be asked");
  SAME(snapshot(&f).slow_rate, NEAP_ONE, "and sees it");
}

/* Rules come and go while calls are in flight: those of before count when they end. */
static void rules_may_change_under_it(void **unused) {
  (void)unused;
  fixture f = watched(NEAP_WINDOW_TIME);
  neap_flight flight = {{0}};
  call_out call = flight_begin(&f, &flight);
  f.rules.slow_call_ms = 100;
  prepare(&f.rules);
  f.now_ms += 50;
  call_out other = flight_begin(&f, &flight); /* in the millisecond of the change */
  f.now_ms += 1;
  call_out next = flight_begin(&f, &flight);
  f.now_ms += 2000;
  SAME(flight_sweep(&f, &flight), 1, "the one that began after it");
  SAME(flight_end(&f, &flight, &call, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(flight_end(&f, &flight, &other, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(snapshot(&f).calls, 3, "one that has not ended and two that have");
  f.rules.slow_rate = 0, f.rules.failures = 3;
  prepare(&f.rules);
  call_out without = flight_begin(&f, &flight);
  f.rules.slow_rate = NEAP_ONE, f.rules.failures = 0;
  prepare(&f.rules);
  f.now_ms += 5000;
  call_out again = flight_begin(&f, &flight);
  SAME(flight_sweep(&f, &flight), 0, "nobody is left");
  SAME(flight_end(&f, &flight, &without, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(flight_end(&f, &flight, &next, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(flight_end(&f, &flight, &again, NEAP_SUCCESS), NEAP_COUNTED, "");
  SAME(snapshot(&f).totals.slow_success, 4, "all are told");
  SAME(snapshot(&f).totals.success, 1, "all are told");
}

/* As after a rule has been taken away and come back, in another policy. */
static void a_shorter_limit_counts_at_once(void **unused) {
  (void)unused;
  fixture f = watched(NEAP_WINDOW_TIME);
  neap_flight flight = {{0}};
  flight_begin(&f, &flight);
  f.rules.slow_call_ms = 600; /* the same slices */
  prepare(&f.rules);
  f.now_ms += 700;
  call_out call = {{0}, 0};
  SAME(flight_try(&f, &flight, &call), NEAP_ALLOW, "");
  SAME(snapshot(&f).slow_success, 1, "by the newest rules");
}

/* A thread that read the clock and then slept for longer than the ring; and a clock that goes back.
 * Each call still counts once. */
static void late_threads_and_clock_steps_lose_no_call(void **unused) {
  (void)unused;
  const uint64_t back[] = {2100, 3000, 5000, 100000, 100000000};
  for (size_t i = 0; i < COUNT_OF(back); i++) {
    fixture f = watched(NEAP_WINDOW_TIME);
    f.rules.length_ms = 3600000;
    prepare(&f.rules);
    f.now_ms = UINT64_C(1) << 41;
    neap_flight flight = {{0}};
    call_out early = flight_begin(&f, &flight);
    f.now_ms += 100000;
    call_out calls[64], late[64];
    for (int n = 0; n < 64; n++) {
      calls[n] = flight_begin(&f, &flight);
      f.now_ms += 60;
    }
    f.now_ms -= back[i];
    for (int n = 0; n < 64; n++) {
      late[n] = flight_begin(&f, &flight);
      f.now_ms += 1;
    }
    f.now_ms += back[i];
    for (int n = 0; n < 64; n++) {
      f.now_ms += 40;
      flight_end(&f, &flight, &late[63 - n], n % 2 ? NEAP_FAILURE : NEAP_SUCCESS);
      flight_end(&f, &flight, &calls[n], n % 2 ? NEAP_SUCCESS : NEAP_FAILURE);
    }
    flight_end(&f, &flight, &early, NEAP_SUCCESS);
    neap_snapshot s = snapshot(&f);
    SAME(all_totals(&s), 129, "each is told once");
    SAME(s.totals.slow_success + s.totals.success, 65, "each is told once");
    f.now_ms += 10000;
    flight_sweep(&f, &flight);
    s = snapshot(&f);
    if (back[i] < 10000) SAME(s.calls, 129, "each is counted once");
    SAME(flight_next(&f, &flight), NEAP_NEVER, "none is left in flight");
  }
}

/* A quick call of a thread that was late is in no slot: it must not be taken for the one that hangs,
 * whose slot has gone on. */
static void a_stray_is_not_taken_for_a_call_that_hangs(void **unused) {
  (void)unused;
  fixture f = watched(NEAP_WINDOW_TIME);
  neap_flight flight = {{0}};
  call_out hung = flight_begin(&f, &flight);
  f.now_ms += 2048; /* once around the ring */
  flight_sweep(&f, &flight);
  call_out same_slot = flight_begin(&f, &flight);
  f.now_ms -= 2048;
  call_out late = flight_begin(&f, &flight);
  f.now_ms += 2048;
  late.began_ms = f.now_ms - 2048;
  neap_call quick = {.outcome = NEAP_SUCCESS};
  SAME(neap_flight_report(&flight, &f.breaker, &f.rules, f.now_ms, late.began_ms, &late.permit,
                          &quick, NULL),
       NEAP_COUNTED, "");
  SAME(snapshot(&f).slow_success, 1, "the one that hangs is still there");
  SAME(snapshot(&f).success, 1, "and the other one, too");
  flight_end(&f, &flight, &hung, NEAP_FAILURE);
  SAME(snapshot(&f).slow_success, 0, "");
  SAME(snapshot(&f).slow_failure, 1, "it is known");
  flight_end(&f, &flight, &same_slot, NEAP_SUCCESS);
  SAME(snapshot(&f).calls, 3, "each is counted once");
}

/* Two processes, one breaker: each knows its own calls, and the window has them all. */
static void processes_that_share_a_breaker_have_one_each(void **unused) {
  (void)unused;
  FIXTURE(f, r->slow_rate = 500000, r->slow_call_ms = 1000, r->minimum_calls = 10);
  neap_flight flights[2] = {{{0}}, {{0}}};
  for (int i = 0; i < 10; i++) flight_begin(&f, &flights[i % 2]);
  f.now_ms += 1100;
  SAME(flight_sweep(&f, &flights[0]), 5, "its own");
  SAME(state(&f), NEAP_CLOSED, "too few");
  SAME(flight_sweep(&f, &flights[1]), 5, "its own");
  SAME(state(&f), NEAP_OPEN, "together");
  SAME(f.moved.calls, 10, "together");
}

static void a_copied_permit_takes_nobody_elses_place_for_long(void **unused) {
  (void)unused;
  fixture f = watched(NEAP_WINDOW_TIME);
  neap_flight flight = {{0}};
  call_out call = flight_begin(&f, &flight), copy = call;
  flight_end(&f, &flight, &call, NEAP_SUCCESS);
  SAME(flight_end(&f, &flight, &copy, NEAP_SUCCESS), NEAP_COUNTED, "counted twice, as ever");
  call_out next = flight_begin(&f, &flight);
  SAME(flight_end(&f, &flight, &call, NEAP_SUCCESS), NEAP_USED, "it is cleared");
  f.now_ms += 1100;
  SAME(flight_sweep(&f, &flight), 1, "nothing has underflowed");
  flight_end(&f, &flight, &next, NEAP_SUCCESS);
  SAME(snapshot(&f).calls, 3, "");
}

static void it_works_at_every_start(void **unused) {
  (void)unused;
  const uint64_t edges[] = {0,
                            UINT64_C(1) << 31,
                            UINT64_C(1) << 32,
                            UINT64_C(1) << 37,
                            UINT64_C(1) << 40,
                            UINT64_C(1) << 53,
                            UINT64_C(1) << 63};
  for (size_t i = 0; i < COUNT_OF(edges); i++)
    for (uint64_t before = 0; before < 3000; before += 37) {
      fixture f = watched(NEAP_WINDOW_COUNT);
      f.now_ms = edges[i] > before ? edges[i] - before : before;
      neap_flight flight = {{0}};
      call_out calls[3];
      for (int n = 0; n < 3; n++) {
        calls[n] = flight_begin(&f, &flight);
        f.now_ms += 400;
      }
      f.now_ms += 300;
      call_out quick = flight_begin(&f, &flight);
      SAME(snapshot(&f).slow_success, 2, "by the time");
      f.now_ms += 363;
      flight_end(&f, &flight, &quick, NEAP_SUCCESS);
      SAME(snapshot(&f).slow_success, 3, "by the time");
      for (int n = 0; n < 3; n++) flight_end(&f, &flight, &calls[n], NEAP_FAILURE);
      SAME(snapshot(&f).slow_failure, 3, "by the time");
      SAME(snapshot(&f).calls, 4, "by the time");
    }
}

/* For whoever asks at three in the morning. */
static void it_tells_how_many_are_out_and_how_many_hang(void **unused) {
  (void)unused;
  for (size_t kind = 0; kind < COUNT_OF(windows); kind++) {
    fixture f = watched(windows[kind]);
    neap_flight flight = {{0}};
    uint64_t overdue = 7;
    SAME(neap_flight_count(&flight, &f.breaker, &overdue), 0, "none yet");
    SAME(overdue, 0, "none yet");
    call_out calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
      calls[i] = flight_begin(&f, &flight);
      f.now_ms += 20;
    }
    flight_sweep(&f, &flight);
    uint64_t out = neap_flight_count(&flight, &f.breaker, &overdue);
    SAME(out, CALLS, "all are out");
    HOLDS(overdue >= 45 && overdue <= 50, "those that began a second ago, less a sixteenth");
    for (int i = 0; i < CALLS; i++) {
      flight_end(&f, &flight, &calls[i], NEAP_SUCCESS);
      SAME(neap_flight_count(&flight, &f.breaker, NULL), CALLS - 1 - i, "one less each time");
    }
    neap_flight_count(&flight, &f.breaker, &overdue);
    SAME(overdue, 0, "none is left");
    calls[0] = flight_begin(&f, &flight);
    neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 0, NULL);
    SAME(neap_flight_count(&flight, &f.breaker, NULL), 0,
         "whose report will say nothing is not one");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a dependency that hangs trips it before the first timeout (B059, B064)",
         a_dependency_that_hangs_trips_it_before_the_first_timeout),
      IT("never early, and a sixteenth late at most", never_early_and_a_sixteenth_late_at_most),
      IT("whoever comes counts what is overdue", whoever_comes_counts_what_is_overdue),
      IT("it counts once, whatever it comes to (B059)", it_counts_once_whatever_it_comes_to),
      IT("quick calls leave no trace", quick_calls_leave_no_trace),
      IT("a neutral end may make a rate hold (B032)", a_neutral_end_may_make_a_rate_hold),
      IT("it is known however long it hangs", it_is_known_however_long_it_hangs),
      IT("a mark counts for a window, and so does the end",
         a_mark_counts_for_a_window_and_so_does_the_end),
      IT("the totals only grow", the_totals_only_grow),
      IT("probes and bypasses are not its business", probes_and_bypasses_are_not_its_business),
      IT("rules without it leave it alone", rules_without_it_leave_it_alone),
      IT("a function may ask for it", a_function_may_ask_for_it),
      IT("rules may change under it", rules_may_change_under_it),
      IT("a shorter limit counts at once", a_shorter_limit_counts_at_once),
      IT("late threads and clock steps lose no call", late_threads_and_clock_steps_lose_no_call),
      IT("a stray is not taken for a call that hangs", a_stray_is_not_taken_for_a_call_that_hangs),
      IT("processes that share a breaker have one each",
         processes_that_share_a_breaker_have_one_each),
      IT("a copied permit takes nobody else's place for long",
         a_copied_permit_takes_nobody_elses_place_for_long),
      IT("it works at every start", it_works_at_every_start),
      IT("it tells how many are out, and how many hang",
         it_tells_how_many_are_out_and_how_many_hang),
  };
  return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
