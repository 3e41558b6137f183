/* Asking without changing anything: peek, next_ms, snapshot. */
#include "support.h"

static void peek_answers_what_acquire_would_and_takes_nothing(void **unused) {
  (void)unused;
  const char *scripts[] = {"",           "FF",         "FF +999",         "FF +1000",
                           "FF +1000 <", "FF +1000 S", "FF +1000 < +500", "FF +1000 N",
                           "FF +1000 SS"};
  const neap_mode modes[] = {NEAP_AUTO, NEAP_FORCED_OPEN, NEAP_FORCED_CLOSED, NEAP_SHADOW};
  for (size_t i = 0; i < COUNT_OF(scripts); i++)
    for (size_t m = 0; m < COUNT_OF(modes); m++) {
      FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->lease_ms = 500);
      play(&f, scripts[i]);
      set_mode(&f, modes[m], 0);
      neap_breaker before = f.breaker;
      neap_verdict peeked = neap_breaker_peek(&f.breaker, &f.rules, f.now_ms);
      SAME(memcmp(&before, &f.breaker, sizeof before), 0, "nothing is written");
      SAME(ask(&f), peeked, scripts[i]);
    }
}

static void reading_changes_nothing(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "FF", "FF +1000", "FF +1000 <", "FF +1000 < +500", "FF +1000 SS"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->lease_ms = 500);
    play(&f, scripts[i]);
    neap_breaker before = f.breaker;
    snapshot(&f);
    state(&f);
    neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms);
    SAME(memcmp(&before, &f.breaker, sizeof before), 0, scripts[i]);
  }
}

static void next_ms_tells_when_it_moves_by_itself(void **unused) {
  (void)unused;
  const struct {
    const char *script;
    uint64_t next_ms; /* after the script's end; NEAP_NEVER */
    const char *because;
  } cases[] = {
      {"S", NEAP_NEVER, "closed"},
      {"FF", 1000, "open: the cooldown"},
      {"FF +400", 600, "what is left of it"},
      {"FF +999", 1, "what is left of it"},
      {"FF +1000", NEAP_NEVER, "half-open, and nothing is in flight"},
      {"FF +1000 <", 500, "half-open: the lease"},
      {"FF +1000 < +499", 1, "what is left of it"},
      {"FF +1000 < +500", 0, "over: whoever comes moves it"},
      {"FF +1000 < +9999", 0, "never in the past"},
      {"FF +1000 S", NEAP_NEVER, "half-open, and nothing is in flight"},
      {"FF +1000 SS", NEAP_NEVER, "closed"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->lease_ms = 500);
    play(&f, cases[i].script);
    uint64_t want = cases[i].next_ms == NEAP_NEVER ? NEAP_NEVER : f.now_ms + cases[i].next_ms;
    SAME(neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms), want, cases[i].because);
  }
}

static void a_snapshot_tells_all(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 10, r->consecutive_failures = 3, r->slow_call_ms = 100,
          r->cooldown_ms = 1000, r->lease_ms = 500);
  play(&f, "NASSSsFfT");
  neap_snapshot s = snapshot(&f);
  SAME(s.state, NEAP_OPEN, "F, f, T in a row");
  SAME(s.level, 1, "the first trip");
  SAME(s.epoch, 1, "the first transition");
  SAME(s.retry_after_ms, 1000, "the cooldown");
  SAME(s.window, NEAP_WINDOW_TIME, "the default");
  SAME(s.window_length, 10000, "the default");
  SAME(s.calls, 0, "a new epoch");
  SAME(s.totals.success, 3, "S");
  SAME(s.totals.slow_success, 1, "s");
  SAME(s.totals.failure, 2, "F and T");
  SAME(s.totals.slow_failure, 1, "f");
  SAME(s.totals.timeout, 1, "T");
}

static void a_snapshot_of_a_closed_breaker(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 10, r->slow_call_ms = 100);
  play(&f, "SSSsFfTNA");
  neap_snapshot s = snapshot(&f);
  SAME(s.state, NEAP_CLOSED, "3 of 10");
  SAME(s.mode, NEAP_AUTO, "the default");
  SAME(s.calls, 7, "N and A are no calls");
  SAME(s.success, 3, "S");
  SAME(s.slow_success, 1, "s");
  SAME(s.failure, 2, "F and T");
  SAME(s.slow_failure, 1, "f");
  SAME(s.failure_rate, 3 * 1000000 / 7, "3 of 7");
  SAME(s.slow_rate, 2 * 1000000 / 7, "2 of 7");
  SAME(s.consecutive_failures, 3, "F, f, T");
  SAME(s.totals.neutral, 1, "N");
  SAME(s.totals.abandoned, 1, "A");
  SAME(s.retry_after_ms, 0, "closed");
  SAME(s.state_age_ms, 0, "never closed: unknown");
}

static void a_snapshot_of_a_new_breaker_is_all_zero(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 10);
  neap_snapshot s = snapshot(&f), zero;
  memset(&zero, 0, sizeof zero);
  SAME(memcmp(&s.totals, &zero.totals, sizeof s.totals), 0, "nothing has happened");
  SAME(memcmp(s.transitions, zero.transitions, sizeof s.transitions), 0, "nothing has happened");
  SAME(memcmp(s.duration_counts, zero.duration_counts, sizeof s.duration_counts), 0, "nothing");
  SAME(s.calls + s.failure_rate + s.slow_rate + s.consecutive_failures + s.epoch + s.level, 0, "");
  SAME(s.window_length, 10000, "it will adopt the rules it meets");
  SAME_TEXT(neap_breaker_name(&f.breaker), "");
}

static void a_snapshot_of_a_round(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->lease_ms = 500, r->probes = 9,
          r->successes = 5, r->concurrent = 2);
  play(&f, "F +1000 SFS<");
  neap_snapshot s = snapshot(&f);
  SAME(s.state, NEAP_HALF_OPEN, "in a round");
  SAME(s.probes_in_flight, 1, "one");
  SAME(s.probes_succeeded, 2, "two");
  SAME(s.probes_failed, 1, "one");
  SAME(s.retry_after_ms, 0, "a slot is free");
  SAME(s.totals.probes, 4, "all of them");
  play(&f, "+100 <");
  SAME(snapshot(&f).retry_after_ms, 500, "no slot is free: until the lease ends");
  play(&f, "+300");
  SAME(snapshot(&f).retry_after_ms, 200, "what is left of it");
  SAME(snapshot(&f).state_age_ms, 1400, "since it opened");
}

static void a_state_has_an_age(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 2, r->successes = 2);
  play(&f, "F +700");
  SAME(snapshot(&f).state_age_ms, 700, "open since");
  play(&f, "+700");
  SAME(snapshot(&f).state_age_ms, 1400, "half-open: since it opened");
  play(&f, "S +100");
  SAME(snapshot(&f).state_age_ms, 1500, "half-open: since it opened");
  play(&f, "F +50");
  SAME(snapshot(&f).state_age_ms, 50, "opened again");
  play(&f, "+5000 SS +30");
  SAME(snapshot(&f).state_age_ms, 30, "closed since");
}

static void time_not_closed_adds_up(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  SAME(snapshot(&f).totals.open_ms, 0, "never opened");
  play(&f, "+500 F +400");
  SAME(snapshot(&f).totals.open_ms, 400, "still open");
  play(&f, "+800 < +100");
  SAME(snapshot(&f).totals.open_ms, 1300, "half-open is not closed");
  play(&f, ">F +2000");
  SAME(snapshot(&f).totals.open_ms, 3300, "opened again");
  play(&f, "S +7000");
  SAME(snapshot(&f).totals.open_ms, 3300, "closed");
  play(&f, "F +10");
  SAME(snapshot(&f).totals.open_ms, 3310, "and so on");
  play(&f, "r +10 t +5");
  SAME(snapshot(&f).totals.open_ms, 3315, "by hand too");
  play(&f, "t +5");
  SAME(snapshot(&f).totals.open_ms, 3320, "from open to open");
}

static void durations_have_a_histogram(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1000000);
  uint64_t sum = 0, counts[NEAP_DURATION_BUCKETS] = {0};
  for (size_t i = 0; i < NEAP_DURATION_BUCKETS - 1; i++)
    for (uint64_t d = 0; d < 3; d++) {
      uint64_t duration = neap_duration_bounds_ms[i] + d - 1;
      call_with(&f, (neap_call){.outcome = d == 1 ? NEAP_TIMEOUT : NEAP_SUCCESS,
                                .duration_ms = duration});
      size_t bucket = 0;
      while (bucket < NEAP_DURATION_BUCKETS - 1 && duration > neap_duration_bounds_ms[bucket])
        bucket++;
      counts[bucket]++;
      sum += duration;
    }
  call_with(&f, (neap_call){.outcome = NEAP_NEUTRAL, .duration_ms = 77});
  call_with(&f, (neap_call){.outcome = NEAP_ABANDONED, .duration_ms = 77});
  neap_snapshot s = snapshot(&f);
  for (size_t i = 0; i < NEAP_DURATION_BUCKETS; i++)
    SAME(s.duration_counts[i], counts[i], "those <= the bound and more than the one before");
  SAME(s.duration_sum_ms, sum, "neutral calls have no duration");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("peek answers what acquire would, and takes nothing",
         peek_answers_what_acquire_would_and_takes_nothing),
      IT("reading changes nothing", reading_changes_nothing),
      IT("next_ms tells when it moves by itself", next_ms_tells_when_it_moves_by_itself),
      IT("a snapshot tells all", a_snapshot_tells_all),
      IT("a snapshot of a closed breaker", a_snapshot_of_a_closed_breaker),
      IT("a snapshot of a new breaker is all zero", a_snapshot_of_a_new_breaker_is_all_zero),
      IT("a snapshot of a round", a_snapshot_of_a_round),
      IT("a state has an age", a_state_has_an_age),
      IT("time not closed adds up", time_not_closed_adds_up),
      IT("durations have a histogram", durations_have_a_histogram),
  };
  return cmocka_run_group_tests_name("snapshot", tests, NULL, NULL);
}
