/* A half-open round: its probes, its verdict, its lease. */
#include "support.h"

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

/* During a reload callers may have different rules; the word is judged by those of whoever
 * comes. */
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

int main(void) {
  const struct CMUnitTest tests[] = {
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
  };
  return cmocka_run_group_tests_name("round", tests, NULL, NULL);
}
