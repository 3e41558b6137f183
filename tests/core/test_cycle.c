/* Around the state machine: closed, open, half-open and back, by every transition there is. */
#include "support.h"

/* ---- The whole way round ---- */

static void closed_open_half_open_closed(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  play(&f, "SFS");
  SAME(state(&f), NEAP_CLOSED, "one failure of two");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "two");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "open");
  play(&f, "+999 R");
  SAME(state(&f), NEAP_OPEN, "one millisecond before the end of the cooldown");
  play(&f, "+1");
  SAME(state(&f), NEAP_HALF_OPEN, "at its end, with nobody calling");
  SAME(f.moves, 1, "which is no transition yet");
  play(&f, "<");
  SAME(f.moved.to, NEAP_HALF_OPEN, "the first probe makes it one");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "one at a time");
  play(&f, ">S");
  SAME(state(&f), NEAP_HALF_OPEN, "one success of two");
  play(&f, "S");
  SAME(state(&f), NEAP_CLOSED, "two: closed");
  SAME(f.moves, 3, "three transitions");
  play(&f, "F");
  SAME(state(&f), NEAP_CLOSED, "with a clean window");
}

static void closed_open_half_open_open(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  play(&f, "F +1000 F");
  SAME(state(&f), NEAP_OPEN, "a failed round opens again");
  SAME(f.moved.level, 2, "a level higher");
  SAME(f.moved.open_ms, 2000, "for twice as long");
  play(&f, "+1999 R +1 F +3999 R +1 S");
  SAME(state(&f), NEAP_CLOSED, "until the dependency is well");
  SAME(f.moves, 7, "open, half, open, half, open, half, closed");
}

/* ---- Verdicts of a round ---- */

typedef struct round_case {
  uint32_t probes, successes, concurrent;
  const char *script; /* from half-open on */
  neap_state want;
  const char *because;
} round_case;

static const round_case round_cases[] = {
    {3, 2, 1, "", NEAP_HALF_OPEN, "nothing has happened"},
    {3, 2, 1, "S", NEAP_HALF_OPEN, "one success of two"},
    {3, 2, 1, "SS", NEAP_CLOSED, "two of three are enough, the third is not awaited"},
    {3, 2, 1, "F", NEAP_HALF_OPEN, "one failure: two can still succeed"},
    {3, 2, 1, "FF", NEAP_OPEN, "two failures: the third can't save it"},
    {3, 2, 1, "FSS", NEAP_CLOSED, "the first failure is forgiven"},
    {3, 2, 1, "SFS", NEAP_CLOSED, "... the second too"},
    {3, 2, 1, "SFF", NEAP_OPEN, "... but not two"},
    {3, 2, 1, "SFN", NEAP_HALF_OPEN, "a neutral probe gives its slot back and decides nothing"},
    {3, 2, 1, "SFNNNNNNNNNNS", NEAP_CLOSED, "... however many there are"},
    {3, 2, 1, "SAFAS", NEAP_CLOSED, "so does an abandoned one"},
    {3, 2, 1, "TT", NEAP_OPEN, "a timeout is a failure"},
    {1, 1, 1, "S", NEAP_CLOSED, "one of one"},
    {1, 1, 1, "F", NEAP_OPEN, "none of one"},
    {1, 1, 1, "N", NEAP_HALF_OPEN, "neither of one"},
    {3, 3, 1, "SSF", NEAP_OPEN, "successes = probes: any failure opens"},
    {3, 3, 1, "F", NEAP_OPEN, "... the first"},
    {3, 3, 1, "SSS", NEAP_CLOSED, "... and all must succeed"},
    {5, 1, 1, "FFFF", NEAP_HALF_OPEN, "one of five is still to come"},
    {5, 1, 1, "FFFFF", NEAP_OPEN, "none of five"},
    {5, 1, 1, "FFFFS", NEAP_CLOSED, "the last of five"},
    {31, 31, 1, "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSS", NEAP_HALF_OPEN, "30 of 31"},
    {31, 31, 1, "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS", NEAP_CLOSED, "31 of 31"},
    {31, 1, 1, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", NEAP_HALF_OPEN, "30 failures of 31"},
    {31, 1, 1, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", NEAP_OPEN, "31 failures of 31"},
    {3, 2, 2, "<<R", NEAP_HALF_OPEN, "two at once and no third"},
    {3, 2, 2, "<<>S>S", NEAP_CLOSED, "both succeed"},
    {3, 2, 2, "<<}S}S", NEAP_CLOSED, "in any order"},
    {3, 2, 2, "<<>F<R>S>S", NEAP_CLOSED, "the third takes the place of the first"},
    {3, 2, 2, "<<>F>F", NEAP_OPEN, "both fail"},
    {2, 2, 15, "<<R", NEAP_HALF_OPEN, "no more at once than probes in the round"},
    {3, 2, 3, "<<<R>N<R", NEAP_HALF_OPEN, "a neutral one makes room for another"},
    {3, 2, 3, "<<<>S>S~F", NEAP_CLOSED, "the third comes too late to matter"},
    {3, 2, 3, "<<<>F>F~S", NEAP_OPEN, "... in either case"},
    {31, 1, 15, "<<<<<<<<<<<<<<<R", NEAP_HALF_OPEN, "fifteen at once and no sixteenth"},
};

static fixture half_open(const round_case *c) {
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = c->probes,
          r->successes = c->successes, r->concurrent = c->concurrent);
  play(&f, "F +1000");
  return f;
}

static void a_round_is_decided_by_n_of_m(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(round_cases); i++) {
    const round_case *c = &round_cases[i];
    fixture f = half_open(c);
    play(&f, c->script);
    SAME(state(&f), c->want, c->because);
  }
}

static void a_slow_probe_fails_where_slow_calls_are_judged(void **unused) {
  (void)unused;
  for (int judged = 0; judged < 2; judged++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1,
            r->slow_call_ms = 100, r->slow_rate = judged ? 500000 : 0);
    play(&f, "F +1000 s");
    SAME(state(&f), judged ? NEAP_OPEN : NEAP_CLOSED, "with a slow_rate rule slow is failed");
  }
}

static void a_round_asks_neither_for_minimum_calls_nor_the_window(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = NEAP_ONE, r->minimum_calls = 1000, r->consecutive_failures = 1,
          r->cooldown_ms = 100000, r->probes = 2, r->successes = 1);
  play(&f, "F +100000 F F");
  SAME(state(&f), NEAP_OPEN, "two failed probes of two, with an empty window behind them");
}

/* During a reload callers may have different rules; the word is judged by those of whoever comes. */
static void an_acquire_gives_the_verdict_that_other_rules_left_open(void **unused) {
  (void)unused;
  for (int failed = 0; failed < 2; failed++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 5, r->successes = 3);
    play(&f, "F +1000");
    play(&f, failed ? "FF" : "SS");
    SAME(state(&f), NEAP_HALF_OPEN, "two of five decide nothing");
    f.rules.probes = 2;
    f.rules.successes = failed ? 2 : 1;
    prepare(&f.rules);
    uint64_t moves = f.moves;
    SAME(ask(&f), failed ? NEAP_REFUSE_OPEN : NEAP_ALLOW, "under the new rules they do");
    SAME(f.moves, moves + 1, "and the acquire says so");
    SAME(f.moved.cause, NEAP_BY_PROBES, "by the probes that there were");
    SAME(f.moved.measured, 2, "two");
  }
}

/* ---- Leases ---- */

static fixture with_lost_probe(uint32_t concurrent) {
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2,
          r->concurrent = concurrent, r->lease_ms = 500);
  play(&f, "F +1000 <");
  return f;
}

static void a_lost_probe_fails_its_round(void **unused) {
  (void)unused;
  fixture f = with_lost_probe(1);
  play(&f, "+499 R");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "one millisecond before the lease ends");
  SAME(f.moves, 2, "nothing moved");
  play(&f, "+1");
  SAME(state(&f), NEAP_HALF_OPEN, "nobody has come to see it");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "the lease is over: the next acquire opens");
  SAME(f.moved.from, NEAP_HALF_OPEN, "from half-open");
  SAME(f.moved.to, NEAP_OPEN, "to open");
  SAME(f.moved.cause, NEAP_BY_PROBE_LOST, "a probe was lost");
  SAME(f.moved.measured, 1, "one");
  SAME(f.moved.level, 2, "a level higher");
  SAME(snapshot(&f).totals.probes_lost, 1, "counted");
  play(&f, "~S");
  SAME(state(&f), NEAP_OPEN, "the late report changes nothing");
  play(&f, "+1999 R +1 SS");
  SAME(state(&f), NEAP_CLOSED, "and the next round is a whole one");
}

static void a_late_report_counts_if_nobody_came_before(void **unused) {
  (void)unused;
  fixture f = with_lost_probe(1);
  play(&f, "+5000 >S S");
  SAME(state(&f), NEAP_CLOSED, "it is the only evidence there is");
  SAME(snapshot(&f).totals.probes_lost, 0, "nothing was lost");
}

static void the_lease_runs_from_the_latest_admission(void **unused) {
  (void)unused;
  fixture f = with_lost_probe(2);
  play(&f, "+400 < +499");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "899 ms after the first, 499 after the second");
  play(&f, "+1");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "500 after the second");
  SAME(f.moved.measured, 2, "both are lost");
  SAME(snapshot(&f).totals.probes_lost, 2, "both are lost");
}

static void a_lease_with_nothing_in_flight_is_none(void **unused) {
  (void)unused;
  fixture f = with_lost_probe(1);
  play(&f, ">S +3600000 S");
  SAME(state(&f), NEAP_CLOSED, "a round waits for as long as it takes");
}

/* ---- Neutral, stale and used reports ---- */

static void a_thousand_neutral_probes_leave_the_round_as_it_was(void **unused) {
  (void)unused;
  fixture f = with_lost_probe(1);
  play(&f, ">N");
  play_times(&f, "NA", 500);
  neap_snapshot s = snapshot(&f);
  SAME(s.probes_in_flight + s.probes_succeeded + s.probes_failed, 0, "all gave their slot back");
  SAME(s.totals.neutral, 501, "counted apart");
  SAME(s.totals.abandoned, 500, "counted apart");
  SAME(f.moves, 2, "nothing moved");
  play(&f, "SS");
  SAME(state(&f), NEAP_CLOSED, "and the next two decide");
}

static void a_call_of_an_earlier_epoch_is_stale(void **unused) {
  (void)unused;
  const struct {
    const char *script;
    uint64_t counted; /* of the other calls */
    const char *because;
  } cases[] = {
      {"< F ~S", 1, "begun closed, ends open"},
      {"< F ~F", 1, "... failing"},
      {"< F ~N", 1, "... neutral: it holds nothing"},
      {"< F +1000 ~S", 1, "... half-open, with no probe yet"},
      {"< F +1000 N ~F", 2, "... and with one"},
      {"< F +1000 S ~F", 2, "ends in another closed epoch"},
      {"< r ~F", 0, "ends after a reset"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
    play(&f, cases[i].script);
    neap_snapshot s = snapshot(&f);
    SAME(s.totals.stale, 1, cases[i].because);
    SAME(s.calls, 0, "a stale report is in no window");
    SAME(s.totals.success + s.totals.failure + s.totals.neutral, cases[i].counted,
         "nor in any total but its own");
  }
}

static void a_permit_is_used_once(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_permit permit = {0};
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "an empty permit");
  SAME(acquire(&f, &permit), NEAP_ALLOW, "closed");
  HOLDS(permit.opaque != 0, "0 is no permit");
  HOLDS(permit.opaque < UINT64_C(1) << 53, "a plain number can carry it");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "the first report");
  SAME(permit.opaque, 0, "clears it");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "the second");
  SAME(snapshot(&f).calls, 1, "changes nothing");
  SAME(snapshot(&f).totals.stale, 0, "it is not even stale");
}

static void a_stale_permit_is_cleared_too(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_permit permit = {0};
  acquire(&f, &permit);
  play(&f, "FF");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_STALE, "late");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "cleared");
  SAME(snapshot(&f).totals.stale, 1, "once");
}

static void a_refusal_leaves_the_permit_alone(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1);
  play(&f, "F");
  neap_permit permit = {.opaque = 12345};
  SAME(acquire(&f, &permit), NEAP_REFUSE_OPEN, "open");
  SAME(permit.opaque, 12345, "as it was");
}

static void a_copied_permit_never_underflows_or_wedges(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 31, r->successes = 31,
          r->concurrent = 3);
  play(&f, "F +1000");
  neap_permit permit = {0}, copies[40];
  SAME(acquire(&f, &permit), NEAP_ALLOW_PROBE, "half-open");
  for (size_t i = 0; i < COUNT_OF(copies); i++) copies[i] = permit;
  for (size_t i = 0; i < COUNT_OF(copies); i++) report(&f, &copies[i], NEAP_NEUTRAL);
  neap_snapshot s = snapshot(&f);
  SAME(s.probes_in_flight, 0, "no underflow");
  SAME(s.state, NEAP_HALF_OPEN, "nothing decided");
  play_times(&f, "S", 31);
  SAME(state(&f), NEAP_CLOSED, "and it goes on");
}

static void a_permit_says_what_it_is(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000);
  neap_permit plain = {0}, probe = {0}, bypass = {0};
  acquire(&f, &plain);
  SAME(neap_permit_kind(&plain), NEAP_ALLOW, "closed");
  SAME(neap_permit_refusal(&plain), NEAP_ALLOW, "its kind");
  SAME(neap_permit_epoch(&plain), 0, "the first epoch");
  play(&f, "F +1000");
  acquire(&f, &probe);
  SAME(neap_permit_kind(&probe), NEAP_ALLOW_PROBE, "half-open");
  SAME(neap_permit_refusal(&probe), NEAP_ALLOW_PROBE, "its kind");
  SAME(neap_permit_epoch(&probe), 1, "half-open has the epoch of the open it follows");
  f.rules.mode = NEAP_SHADOW;
  prepare(&f.rules);
  SAME(acquire(&f, &bypass), NEAP_ALLOW_BYPASS, "shadow");
  SAME(neap_permit_kind(&bypass), NEAP_ALLOW_BYPASS, "shadow");
  SAME(neap_permit_refusal(&bypass), NEAP_REFUSE_PROBES, "would have been refused");
  SAME(neap_permit_epoch(&bypass), 1, "its epoch");
}

/* ---- How long it stays open ---- */

static void cooldowns_back_off_up_to_the_cap(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 100, r->max_cooldown_ms = 1000, r->backoff = 3000000,
          r->probes = 1, r->successes = 1);
  const uint64_t want[] = {100, 300, 900, 1000, 1000};
  play(&f, "F");
  for (size_t i = 0; i < COUNT_OF(want); i++) {
    SAME(f.moved.open_ms, want[i], "100 * 3^n, 1,000 at most");
    SAME(f.moved.level, i + 1, "each failed round is a level");
    f.now_ms += want[i] - 1;
    SAME(ask(&f), NEAP_REFUSE_OPEN, "not before");
    play(&f, "+1 F");
  }
}

static void the_level_stops_at_31(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 10, r->max_cooldown_ms = 1000, r->probes = 1,
          r->successes = 1);
  play(&f, "F");
  play_times(&f, "+1000 F", 40);
  SAME(f.moved.level, 31, "31 at most");
  SAME(snapshot(&f).level, 31, "31 at most");
}

static void jitter_only_lengthens_and_is_bounded(void **unused) {
  (void)unused;
  uint64_t least = UINT64_MAX, most = 0;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 10000, r->jitter = 250000, r->seed = seed);
    play(&f, "F");
    HOLDS(f.moved.open_ms >= 10000 && f.moved.open_ms <= 12500, "1 to 1.25 times 10,000");
    if (f.moved.open_ms < least) least = f.moved.open_ms;
    if (f.moved.open_ms > most) most = f.moved.open_ms;
    f.now_ms += f.moved.open_ms - 1;
    SAME(ask(&f), NEAP_REFUSE_OPEN, "the transition said how long");
    f.now_ms += 1;
    SAME(ask(&f), NEAP_ALLOW_PROBE, "the transition said how long");
  }
  HOLDS(least < 10050 && most > 12450, "all of the range is used");
}

static void jitter_comes_on_top_of_the_cap(void **unused) {
  (void)unused;
  uint64_t most = 0;
  for (uint64_t seed = 0; seed < 200; seed++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 1000,
            r->jitter = NEAP_ONE, r->seed = seed);
    play(&f, "F");
    if (f.moved.open_ms > most) most = f.moved.open_ms;
  }
  HOLDS(most > 1900 && most <= 2000, "up to twice the cap");
}

static void the_same_seed_gives_the_same_cooldowns(void **unused) {
  (void)unused;
  uint64_t first[10];
  bool differs = false;
  for (int run = 0; run < 3; run++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 10000, r->jitter = 500000, r->probes = 1,
            r->successes = 1, r->seed = run < 2 ? 7 : 8, r->backoff = NEAP_ONE);
    f.now_ms += (uint64_t)run * 12345;
    play(&f, "F");
    for (size_t i = 0; i < COUNT_OF(first); i++, play(&f, "+20000 F")) {
      if (run == 0) first[i] = f.moved.open_ms;
      if (run == 1) SAME(f.moved.open_ms, first[i], "a function of seed and epoch");
      if (run == 2 && f.moved.open_ms != first[i]) differs = true;
      if (run == 0 && i > 0) differs = differs || first[i] != first[0];
    }
    if (run != 1) HOLDS(differs, "epochs differ; seeds differ");
    differs = false;
  }
}

/* ---- Flapping ---- */

static fixture closed_at_level(unsigned level) {
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 60000, r->probes = 1,
          r->successes = 1);
  play(&f, "F");
  for (unsigned i = 1; i < level; i++) play(&f, "+60000 F");
  play(&f, "+60000 S");
  return f;
}

static void a_trip_soon_after_closing_goes_on_with_the_backoff(void **unused) {
  (void)unused;
  const struct {
    unsigned level;
    uint64_t after_ms;
    bool flapping;
  } cases[] = {{1, 0, true},     {1, 999, true},   {1, 1000, false}, {1, 1001, false},
               {2, 1999, true},  {2, 2000, false}, {3, 3999, true},  {3, 4000, false},
               {9, 59999, true}, {9, 60000, false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    fixture f = closed_at_level(cases[i].level);
    SAME(snapshot(&f).level, cases[i].level, "closing keeps the level");
    f.now_ms += cases[i].after_ms;
    play(&f, "F");
    SAME(f.moved.flapping, cases[i].flapping, "within cooldown(level) of closing");
    SAME(f.moved.level, cases[i].flapping ? cases[i].level + 1 : 1, "the backoff goes on, or anew");
    SAME(snapshot(&f).totals.flaps, cases[i].flapping, "counted");
  }
}

static void the_first_trip_of_all_is_no_flapping(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1);
  f.now_ms = 0;
  play(&f, "F");
  SAME(f.moved.flapping, false, "level 0 remembers nothing");
  SAME(f.moved.level, 1, "level 0 remembers nothing");
}

static void nor_is_one_after_a_reset(void **unused) {
  (void)unused;
  fixture f = closed_at_level(3);
  play(&f, "rF");
  SAME(f.moved.flapping, false, "a reset forgets the level");
  SAME(f.moved.level, 1, "a reset forgets the level");
}

/* ---- Open time from the answer ---- */

static void retry_after_lengthens_what_this_report_opens(void **unused) {
  (void)unused;
  const int64_t year_ms = INT64_C(365) * 86400000;
  const struct {
    int64_t retry_after_ms;
    uint64_t open_ms, ignored;
    const char *because;
  } cases[] = {
      {0, 1000, 0, "did not ask"},
      {1, 1000, 0, "shorter than the cooldown"},
      {1000, 1000, 0, "as long"},
      {1001, 1001, 0, "longer"},
      {30000, 30000, 0, "up to the cap"},
      {30001, 30000, 0, "no longer than the cap"},
      {86400000, 30000, 0, "no longer than the cap"},
      {-1, 1000, 1, "negative"},
      {INT64_MIN, 1000, 1, "negative"},
      {year_ms, 30000, 0, "no longer than the cap"},
      {2 * year_ms, 1000, 1, "absurd"},
      {INT64_MAX, 1000, 1, "absurd"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
    call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = cases[i].retry_after_ms});
    SAME(f.moved.open_ms, cases[i].open_ms, cases[i].because);
    SAME(snapshot(&f).retry_after_ms, cases[i].open_ms, cases[i].because);
    SAME(snapshot(&f).totals.retry_ignored, cases[i].ignored, cases[i].because);
  }
}

static void retry_after_of_a_probe_counts_too(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000, r->probes = 1,
          r->successes = 1);
  play(&f, "F +1000");
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 7000});
  SAME(f.moved.open_ms, 7000, "longer than the cooldown of level 2");
  f.now_ms += 7000;
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 3999});
  SAME(f.moved.open_ms, 4000, "shorter than that of level 3");
}

static void retry_after_of_a_report_that_opens_nothing_is_nothing(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 7000});
  play(&f, "F");
  SAME(f.moved.open_ms, 1000, "only of the report that opens");
}

/* ---- By hand and by a function ---- */

static void a_reset_closes_from_any_state(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "F", "FF", "FF +1000", "FF +1000 <", "FF +1000 S", "FF +1000 FF"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000);
    play(&f, scripts[i]);
    uint32_t epoch = snapshot(&f).epoch;
    play(&f, "r");
    neap_snapshot s = snapshot(&f);
    SAME(s.state, NEAP_CLOSED, scripts[i]);
    SAME(s.level, 0, "level 0");
    SAME(s.calls, 0, "a clean window");
    SAME(s.consecutive_failures, 0, "a clean run");
    SAME(s.epoch, epoch + 1, "a transition like any other");
    SAME(f.moved.cause, NEAP_BY_RESET, scripts[i]);
    play(&f, "F");
    SAME(state(&f), NEAP_CLOSED, "one failure of two");
  }
}

static void a_trip_opens_from_any_state(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "F", "FF", "FF +500", "FF +1000 <", "FF +1000 S"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
    play(&f, scripts[i]);
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    SAME(neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 30001, &moved), NEAP_ERANGE, "too long");
    SAME(moved.cause, NEAP_BY_NOTHING, "a function that fails changes nothing");
    SAME(neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 30000, &moved), NEAP_OK, "the longest");
    SAME(moved.cause, NEAP_BY_TRIP, scripts[i]);
    SAME(moved.to, NEAP_OPEN, scripts[i]);
    SAME(moved.open_ms, 30000, "as long as asked");
    SAME(snapshot(&f).retry_after_ms, 30000, "as long as asked");
    play(&f, "+29999 R +1 <");
    SAME(state(&f), NEAP_HALF_OPEN, "and then half-open as ever");
  }
}

static void a_trip_of_no_length_takes_the_cooldown(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1234);
  play(&f, "t");
  SAME(f.moved.open_ms, 1234, "the cooldown of level 1");
  SAME(f.moved.level, 1, "the cooldown of level 1");
}

static void a_function_moves_only_the_epoch_it_has_seen(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  const neap_rules *rules = &f.rules;
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_OPEN, 0, &moved), "other epoch");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_CLOSED, 0, &moved), "is closed");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_HALF_OPEN, 0, &moved), "never");
  SAME(moved.cause, NEAP_BY_NOTHING, "nothing changed");
  HOLDS(neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_OPEN, 9000, &moved), "to open");
  SAME(moved.cause, NEAP_BY_FUNCTION, "by a function");
  SAME(moved.open_ms, 9000, "retry_after_ms as in a call");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_OPEN, 0, &moved), "epoch passed");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_OPEN, 0, &moved), "is open");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_CLOSED, 0, &moved), "is open");
  f.now_ms += 9000;
  play(&f, "<");
  HOLDS(neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_CLOSED, 0, &moved), "half-open");
  SAME(moved.from, NEAP_HALF_OPEN, "from half-open");
  SAME(moved.to, NEAP_CLOSED, "earlier than the numbers");
  play(&f, "~S");
}

static fixture decided_by_function(uint32_t probes, uint32_t successes) {
  FIXTURE(f, r->failures = 1, r->decide_by_function = true, r->cooldown_ms = 1000,
          r->probes = probes, r->successes = successes, r->lease_ms = 500);
  play(&f, "F +1000");
  return f;
}

static void a_function_may_decide_otherwise_than_the_numbers(void **unused) {
  (void)unused;
  fixture f = decided_by_function(3, 2);
  play(&f, "SS");
  SAME(state(&f), NEAP_HALF_OPEN, "two of three, but it is the function's to say");
  play(&f, "o");
  SAME(state(&f), NEAP_OPEN, "it says no");
  f = decided_by_function(3, 3);
  play(&f, "FF");
  SAME(state(&f), NEAP_HALF_OPEN, "it is the function's to say");
  play(&f, "c");
  SAME(state(&f), NEAP_CLOSED, "it says yes");
}

static void the_numbers_still_bound_a_function(void **unused) {
  (void)unused;
  fixture f = decided_by_function(3, 2);
  play(&f, "SSS");
  SAME(state(&f), NEAP_HALF_OPEN, "no slot left, nothing in flight, nothing said");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "then it opens at the next acquire");
  SAME(f.moved.from, NEAP_HALF_OPEN, "from half-open");
  SAME(f.moved.to, NEAP_OPEN, "to open");
  SAME(f.moved.level, 2, "a failed round");
  f = decided_by_function(3, 2);
  play(&f, "SS< R");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "the last one is in flight");
  play(&f, "+500");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "and lost");
  SAME(f.moved.cause, NEAP_BY_PROBE_LOST, "and lost");
}

/* ---- Modes ---- */

static void set_mode(fixture *f, neap_mode mode, uint64_t for_ms) {
  SAME(neap_breaker_set_mode(&f->breaker, f->now_ms, mode, for_ms), NEAP_OK, "a good mode");
}

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
      SAME(ask(&f), all[mine] == NEAP_FORCED_OPEN ? NEAP_REFUSE_FORCED : NEAP_ALLOW, "in force");
      f.now_ms += UINT64_C(86400000) * 10000;
      SAME(snapshot(&f).mode, all[mine], "until it is set again");
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
    f.now_ms += lengths[i] - 1;
    SAME(ask(&f), NEAP_REFUSE_FORCED, "one millisecond before its end");
    SAME(snapshot(&f).mode_left_ms, 1, "one millisecond before its end");
    f.now_ms += 1;
    SAME(snapshot(&f).mode, NEAP_AUTO, "at its end");
    SAME(snapshot(&f).mode_is_operators, false, "at its end");
    SAME(snapshot(&f).mode_left_ms, 0, "at its end");
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

/* ---- Reading ---- */

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

/* ---- Every transition there is ---- */

typedef struct transition_case {
  const char *script;
  neap_state from, to;
  neap_cause cause;
  uint32_t epoch, level;
  uint64_t measured, limit, calls, open_ms;
  bool flapping;
} transition_case;

/* In the order of NEAP_TRANSITIONS.  The rules: 5 failures, 4 in a row, half of 8 failed, half of 6 slow (minimum 6); cooldown
 * 1,000; 3 probes, 2 successes, 2 at once; lease 500. */
/* clang-format off */
#define CL NEAP_CLOSED
#define HO NEAP_HALF_OPEN
#define OP NEAP_OPEN
static const transition_case transition_cases[] = {
    {"FFSSSSSFFSSSSF",    CL, OP, NEAP_BY_FAILURES,     1, 1, 5, 5, 14, 1000, false},
    {"FSSSFF",            CL, OP, NEAP_BY_FAILURE_RATE, 1, 1, 3, 500000, 6, 1000, false},
    {"sSSSss",            CL, OP, NEAP_BY_SLOW_RATE,    1, 1, 3, 500000, 6, 1000, false},
    {"FFFF",              CL, OP, NEAP_BY_CONSECUTIVE,  1, 1, 4, 4, 4, 1000, false},
    {"SFo",               CL, OP, NEAP_BY_FUNCTION,     1, 1, 0, 0, 2, 1000, false},
    {"SFt",               CL, OP, NEAP_BY_TRIP,         1, 1, 0, 0, 2, 1000, false},
    {"SFr",               CL, CL, NEAP_BY_RESET,        1, 0, 0, 0, 2, 0, false},
    {"FFFF+1000<",        OP, HO, NEAP_BY_COOLDOWN,     1, 1, 0, 0, 0, 0, false},
    {"FFFF+10t",          OP, OP, NEAP_BY_TRIP,         2, 1, 0, 0, 0, 1000, false},
    {"FFFFr",             OP, CL, NEAP_BY_RESET,        2, 0, 0, 0, 0, 0, false},
    {"FFFF+1000FSS",      HO, CL, NEAP_BY_PROBES,       2, 1, 2, 2, 3, 0, false},
    {"FFFF+1000Sc",       HO, CL, NEAP_BY_FUNCTION,     2, 1, 0, 0, 1, 0, false},
    {"FFFF+1000SFr",      HO, CL, NEAP_BY_RESET,        2, 0, 0, 0, 2, 0, false},
    {"FFFF+1000SFF",      HO, OP, NEAP_BY_PROBES,       2, 2, 2, 2, 3, 2000, false},
    {"FFFF+1000S<<+500R", HO, OP, NEAP_BY_PROBE_LOST,   2, 2, 2, 0, 1, 2000, false},
    {"FFFF+1000So",       HO, OP, NEAP_BY_FUNCTION,     2, 2, 0, 0, 1, 2000, false},
    {"FFFF+1000St",       HO, OP, NEAP_BY_TRIP,         2, 1, 0, 0, 1, 1000, false},
};
#undef CL
#undef HO
#undef OP
/* clang-format on */

static void every_transition_says_what_happened(void **unused) {
  (void)unused;
  SAME(COUNT_OF(transition_cases), NEAP_TRANSITION_KINDS, "a case for each");
  for (size_t i = 0; i < COUNT_OF(transition_cases); i++) {
    const transition_case *c = &transition_cases[i];
    FIXTURE(f, r->failures = 5, r->consecutive_failures = 4, r->failure_rate = 500000,
            r->slow_rate = 500000, r->slow_call_ms = 100, r->minimum_calls = 6,
            r->cooldown_ms = 1000, r->probes = 3, r->successes = 2, r->concurrent = 2,
            r->lease_ms = 500);
    play(&f, c->script);
    SAME(f.moved.from, c->from, c->script);
    SAME(f.moved.to, c->to, c->script);
    SAME(f.moved.cause, c->cause, c->script);
    SAME(f.moved.epoch, c->epoch, c->script);
    SAME(f.moved.level, c->level, c->script);
    SAME(f.moved.measured, c->measured, c->script);
    SAME(f.moved.limit, c->limit, c->script);
    SAME(f.moved.calls, c->calls, c->script);
    SAME(f.moved.open_ms, c->open_ms, c->script);
    SAME(f.moved.flapping, c->flapping, c->script);
    neap_snapshot s = snapshot(&f);
    SAME(s.transitions[i], 1, "counted under its own kind");
    uint64_t all = 0;
    for (size_t k = 0; k < NEAP_TRANSITION_KINDS; k++) all += s.transitions[k];
    SAME(all, f.moves, "and no other");
    SAME(s.epoch, c->epoch, "the snapshot agrees");
    SAME(s.level, c->level, "the snapshot agrees");
  }
}

static void what_did_not_move_leaves_moved_alone(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_transition moved, before;
  neap_permit permit = {0};
  neap_call call = {.outcome = NEAP_FAILURE};
  memset(&moved, 0x5a, sizeof moved);
  before = moved;
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, &moved);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, &moved);
  SAME(memcmp(&moved, &before, sizeof moved), 0, "no transition, nothing written");
}

static void nobody_need_care_what_moved(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  neap_permit permit = {0};
  neap_call call = {.outcome = NEAP_FAILURE};
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, NULL);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, NULL);
  f.now_ms += 1000;
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, NULL);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, NULL);
  neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 0, NULL);
  neap_breaker_reset(&f.breaker, &f.rules, f.now_ms, NULL);
  neap_breaker_decide(&f.breaker, &f.rules, f.now_ms, snapshot(&f).epoch, NEAP_OPEN, 0, NULL);
  SAME(snapshot(&f).epoch, 5, "opened, opened again, tripped, reset, decided");
}

static void the_epoch_wraps_and_nothing_else_does(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 3, r->cooldown_ms = 1000);
  for (uint32_t i = 0; i < (1u << 17) - 1; i++)
    neap_breaker_reset(&f.breaker, &f.rules, f.now_ms, NULL);
  SAME(snapshot(&f).epoch, (1u << 17) - 1, "17 bits");
  play(&f, "FF<F");
  SAME(f.moved.epoch, 0, "wraps");
  SAME(snapshot(&f).epoch, 0, "wraps");
  play(&f, "~F +1000 SS");
  SAME(state(&f), NEAP_CLOSED, "and all goes on");
  SAME(snapshot(&f).calls, 0, "with nothing of 131,072 transitions ago");
  SAME(snapshot(&f).transitions[6], (1u << 17) - 1, "resets counted");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("closed, open, half-open, closed", closed_open_half_open_closed),
      IT("closed, open, half-open, open", closed_open_half_open_open),
      IT("a round is decided by n of m", a_round_is_decided_by_n_of_m),
      IT("a slow probe fails where slow calls are judged",
         a_slow_probe_fails_where_slow_calls_are_judged),
      IT("a round asks neither for minimum_calls nor for the window",
         a_round_asks_neither_for_minimum_calls_nor_the_window),
      IT("an acquire gives the verdict that other rules left open",
         an_acquire_gives_the_verdict_that_other_rules_left_open),
      IT("a lost probe fails its round", a_lost_probe_fails_its_round),
      IT("a late report counts if nobody came before", a_late_report_counts_if_nobody_came_before),
      IT("the lease runs from the latest admission", the_lease_runs_from_the_latest_admission),
      IT("a lease with nothing in flight is none", a_lease_with_nothing_in_flight_is_none),
      IT("a thousand neutral probes leave the round as it was",
         a_thousand_neutral_probes_leave_the_round_as_it_was),
      IT("a call of an earlier epoch is stale", a_call_of_an_earlier_epoch_is_stale),
      IT("a permit is used once", a_permit_is_used_once),
      IT("a stale permit is cleared too", a_stale_permit_is_cleared_too),
      IT("a refusal leaves the permit alone", a_refusal_leaves_the_permit_alone),
      IT("a copied permit never underflows or wedges", a_copied_permit_never_underflows_or_wedges),
      IT("a permit says what it is", a_permit_says_what_it_is),
      IT("cooldowns back off up to the cap", cooldowns_back_off_up_to_the_cap),
      IT("the level stops at 31", the_level_stops_at_31),
      IT("jitter only lengthens, and is bounded", jitter_only_lengthens_and_is_bounded),
      IT("jitter comes on top of the cap", jitter_comes_on_top_of_the_cap),
      IT("the same seed gives the same cooldowns", the_same_seed_gives_the_same_cooldowns),
      IT("a trip soon after closing goes on with the backoff",
         a_trip_soon_after_closing_goes_on_with_the_backoff),
      IT("the first trip of all is no flapping", the_first_trip_of_all_is_no_flapping),
      IT("nor is one after a reset", nor_is_one_after_a_reset),
      IT("Retry-After lengthens what this report opens",
         retry_after_lengthens_what_this_report_opens),
      IT("Retry-After of a probe counts too", retry_after_of_a_probe_counts_too),
      IT("Retry-After of a report that opens nothing is nothing",
         retry_after_of_a_report_that_opens_nothing_is_nothing),
      IT("a reset closes from any state", a_reset_closes_from_any_state),
      IT("a trip opens from any state", a_trip_opens_from_any_state),
      IT("a trip of no length takes the cooldown", a_trip_of_no_length_takes_the_cooldown),
      IT("a function moves only the epoch it has seen",
         a_function_moves_only_the_epoch_it_has_seen),
      IT("a function may decide otherwise than the numbers",
         a_function_may_decide_otherwise_than_the_numbers),
      IT("the numbers still bound a function", the_numbers_still_bound_a_function),
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
      IT("every transition says what happened", every_transition_says_what_happened),
      IT("what did not move leaves *moved alone", what_did_not_move_leaves_moved_alone),
      IT("nobody need care what moved", nobody_need_care_what_moved),
      IT("the epoch wraps and nothing else does", the_epoch_wraps_and_nothing_else_does),
  };
  return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
