/* What has gone wrong elsewhere with half-open breakers: one test for each public report, with
 * its story on top. */
#include "support.h"

/* One probe decides; cooldown 30 s, backoff 2; the breaker has tripped and its cooldown is over. */
static fixture after_cooldown(uint32_t probes, uint32_t successes) {
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 30000, r->max_cooldown_ms = 3600000,
          r->probes = probes, r->successes = successes, r->lease_ms = 60000);
  play(&f, "F +30000");
  return f;
}

/* Never "half-open with nothing in flight and no slot free". */
static void check_not_stuck(const fixture *f) {
  neap_snapshot s = snapshot(f);
  if (s.state != NEAP_HALF_OPEN || s.probes_in_flight > 0) return;
  HOLDS(neap_breaker_peek(&f->breaker, &f->rules, f->now_ms) != NEAP_REFUSE_PROBES, "not stuck");
}

/* A second call made while the half-open probe was pending left the breaker half-open for ever. */
static void B001(void **unused) {
  (void)unused;
  const char *ends[] = {"}S", "}F"};
  for (int i = 0; i < 2; i++) {
    fixture f = after_cooldown(1, 1);
    check_not_stuck(&f);
    play(&f, "<");
    check_not_stuck(&f);
    SAME(ask(&f), NEAP_REFUSE_PROBES, "the second call is told that the probe is busy");
    play(&f, ends[i]);
    check_not_stuck(&f);
    SAME(state(&f), i == 0 ? NEAP_CLOSED : NEAP_OPEN, "the first decides");
  }
}

/* The sole probe was let in and never settled: half-open for six days, 49,607 calls refused. */
static void B002(void **unused) {
  (void)unused;
  fixture f = after_cooldown(1, 1);
  play(&f, "< +59999");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "one millisecond before the lease ends");
  play(&f, "+2");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "one after: open, with a fresh cooldown");
  SAME(snapshot(&f).totals.probes_lost, 1, "and the lost probe is counted");
  SAME(snapshot(&f).retry_after_ms, 60000, "twice as long as the first");
  play(&f, "~S");
  SAME(state(&f), NEAP_OPEN, "its late report changes nothing");
  play(&f, "+60000 S");
  SAME(state(&f), NEAP_CLOSED, "the next probe does");
}

/* Half-open was not "not closed": every waiting call went through, and a failed probe did not
 * re-open since the rate was low. */
static void B004(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 10, r->cooldown_ms = 10000,
          r->backoff = NEAP_ONE, r->probes = 3, r->successes = 3, r->concurrent = 3);
  play(&f, "FFFFFFFFFF +10000");
  unsigned reached = 0;
  neap_permit permits[50] = {{0}};
  for (int i = 0; i < 50; i++) reached += acquire(&f, &permits[i]) <= NEAP_ALLOW_BYPASS;
  SAME(reached, 3, "of 50 calls at the end of the cooldown exactly the probes go through");
  for (int cycle = 0; cycle < 5; cycle++) {
    SAME(snapshot(&f).calls, 0, "the window is empty");
    for (int i = 0; i < 50 && cycle == 0; i++)
      if (permits[i].opaque) report(&f, &permits[i], NEAP_FAILURE);
    if (cycle > 0) play(&f, "F");
    SAME(state(&f), NEAP_OPEN, "a failed probe opens, whatever the rolling rate is");
    SAME(snapshot(&f).retry_after_ms, 10000, "with a new cooldown");
    play(&f, "+10000");
    SAME(state(&f), NEAP_HALF_OPEN, "after which a probe may go again");
  }
}

/* With a minimum number of calls a failing probe returned early, for "too few calls", and the
 * breaker stayed half-open. */
static void B005(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 10, r->cooldown_ms = 30000, r->probes = 1,
          r->successes = 1);
  play(&f, "FFFFFFFFFF +30000 F");
  SAME(state(&f), NEAP_OPEN, "minimum_calls is of no concern to a round");
  play(&f, "+60000 <");
  SAME(state(&f), NEAP_HALF_OPEN, "the next cooldown lets a probe in");
}

/* The last of the permitted half-open calls ended in an ignored error: its slot was neither
 * recorded nor given back. */
static void B007(void **unused) {
  (void)unused;
  for (int neutral = 0; neutral < 5; neutral++) {
    for (int last = 0; last < 2; last++) {
      fixture f = after_cooldown(5, 4);
      for (int i = 0; i < 5; i++)
        if (state(&f) == NEAP_HALF_OPEN) play(&f, i == neutral ? "N" : i == 4 && last ? "F" : "S");
      if (state(&f) == NEAP_HALF_OPEN) {
        neap_snapshot s = snapshot(&f);
        SAME(s.probes_in_flight, 0, "nothing in flight");
        HOLDS(s.probes_succeeded + s.probes_failed < 5, "a slot is free");
        play(&f, "S");
      }
      SAME(state(&f), NEAP_CLOSED, "four successes of five, whichever was neutral");
    }
  }
}

/* In half-open every exception was a failure, although the closed state honoured the list of
 * those to skip. */
static void B008(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  play(&f, "NNN");
  SAME(state(&f), NEAP_CLOSED, "neutral when closed");
  play(&f, "F +1000 NNN");
  SAME(state(&f), NEAP_HALF_OPEN, "neutral when half-open");
  SAME(snapshot(&f).probes_failed, 0, "and never a failure");
}

/* A caller that went away during the half-open call left the circuit open for good. */
static void B010(void **unused) {
  (void)unused;
  fixture f = after_cooldown(1, 1);
  for (int i = 0; i < 1000; i++) {
    play(&f, "< R >A");
    SAME(snapshot(&f).probes_in_flight, 0, "given back, without a verdict");
  }
  play(&f, "S");
  SAME(state(&f), NEAP_CLOSED, "and the next call is a probe");
}

/* Results of slow calls begun while closed arrived when half-open, and closed or re-opened the
 * circuit. */
static void B011(void **unused) {
  (void)unused;
  const char *late[] = {"~S", "~F"};
  for (int i = 0; i < 2; i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 10000, r->probes = 1, r->successes = 1);
    play(&f, "< FF +10000");
    neap_permit probe = {0};
    SAME(acquire(&f, &probe), NEAP_ALLOW_PROBE, "the probe is in flight");
    uint64_t moves = f.moves;
    play(&f, late[i]);
    SAME(state(&f), NEAP_HALF_OPEN, "A's result is of an earlier epoch");
    SAME(f.moves, moves, "no cooldown is begun again");
    report(&f, &probe, NEAP_SUCCESS);
    SAME(state(&f), NEAP_CLOSED, "only the probe decides");
  }
}

/* Half-open let everything in until enough probes had failed; with a hanging upstream a whole
 * timeout of traffic piled up. */
static void B013(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 5000, r->probes = 3, r->successes = 2,
          r->concurrent = 3, r->timeout_ms = 30000, r->lease_ms = 31000);
  play(&f, "F +5000");
  unsigned reached = 0;
  neap_permit permits[3] = {{0}};
  for (int ms = 0; ms < 30000; ms++, f.now_ms++) { /* 1,000 calls a second, none answered */
    neap_permit permit = {0};
    if (acquire(&f, &permit) > NEAP_ALLOW_BYPASS) continue;
    if (reached < 3) permits[reached] = permit;
    reached++;
  }
  SAME(reached, 3, "the upstream sees the three probes");
  report(&f, &permits[0], NEAP_TIMEOUT);
  report(&f, &permits[1], NEAP_TIMEOUT);
  SAME(state(&f), NEAP_OPEN, "two timeouts of three");
  SAME(report(&f, &permits[2], NEAP_TIMEOUT), NEAP_STALE, "the third comes too late");
  SAME(snapshot(&f).probes_in_flight, 0, "slots are given back at a transition");
}

/* Of several probes one failed, doubling the backoff, and then a slower success closed the
 * circuit and reset it. */
static void B014(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 60000, r->max_cooldown_ms = 600000,
          r->probes = 2, r->successes = 2, r->concurrent = 2);
  play(&f, "F +60000 << >F");
  SAME(state(&f), NEAP_OPEN, "the first fails");
  SAME(snapshot(&f).retry_after_ms, 120000, "the cooldown doubles");
  play(&f, "+10 ~S");
  SAME(state(&f), NEAP_OPEN, "the second is of an earlier era");
  SAME(snapshot(&f).retry_after_ms, 119990, "the cooldown goes on");
}

/* Nine callers after the cooldown made 17 round trips instead of one. */
static void B016(void **unused) {
  (void)unused;
  fixture f = after_cooldown(1, 1);
  unsigned admitted = 0, refused = 0;
  neap_permit permits[9] = {{0}};
  for (int i = 0; i < 9; i++) {
    neap_verdict verdict = acquire(&f, &permits[i]);
    admitted += verdict == NEAP_ALLOW_PROBE;
    refused += verdict == NEAP_REFUSE_PROBES;
  }
  SAME(admitted, 1, "one goes");
  SAME(refused, 8, "eight are refused");
  report(&f, &permits[0], NEAP_FAILURE);
  SAME(ask(&f), NEAP_REFUSE_OPEN, "a failed first try opens before a second is sent");
}

/* Window 1 s, ten half-open permits: stuck half-open with eight recorded results, since results
 * aged out of the window. */
static void B017(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->length_ms = 1000, r->cooldown_ms = 1000, r->probes = 10,
          r->successes = 10);
  play(&f, "F +1000");
  for (int i = 0; i < 9; i++) play(&f, "S +2000");
  SAME(state(&f), NEAP_HALF_OPEN, "nine of ten, over 18 s");
  play(&f, "S");
  SAME(state(&f), NEAP_CLOSED, "results of a round do not age");
}

/* With a minimum of one call and four probes the decision fell after the first.  Here: N of M,
 * whatever the minimum is. */
static void B019(void **unused) {
  (void)unused;
  for (uint32_t minimum = 1; minimum <= 10; minimum++) {
    FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = minimum, r->consecutive_failures = 1,
            r->cooldown_ms = 1000, r->probes = 4, r->successes = 3);
    play(&f, "F +1000 F");
    SAME(state(&f), NEAP_HALF_OPEN, "one failure of four is forgiven");
    play(&f, "SSS");
    SAME(state(&f), NEAP_CLOSED, "by three successes");
  }
}

/* A failing probe did nothing because of a ten-sample gate; three later successes closed with
 * the failure forgotten.  A breaker that wants three successes in a row says successes = probes. */
static void B020(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->probes = 3, r->successes = 3,
          r->concurrent = 3);
  play(&f, "F +1000 <<< >F");
  SAME(state(&f), NEAP_OPEN, "open after the failure");
  play(&f, "~S ~S");
  SAME(state(&f), NEAP_OPEN, "the successes are stale");
  SAME(snapshot(&f).totals.stale, 2, "and counted so");
}

/* The open time was not stamped again after a failed probe, so the backoff was no longer
 * enforced. */
static void B022(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 60000, r->max_cooldown_ms = 60000,
          r->probes = 1, r->successes = 1);
  play(&f, "F");
  unsigned reached = 0;
  for (int second = 1; second <= 600; second++) {
    play(&f, "+1000");
    neap_permit permit = {0};
    if (acquire(&f, &permit) > NEAP_ALLOW_BYPASS) continue;
    SAME(second % 60, 0, "each 60 s after the one before");
    report(&f, &permit, NEAP_FAILURE);
    SAME(snapshot(&f).state_age_ms, 0, "opened now");
    reached++;
  }
  SAME(reached, 10, "one call in 60 s");
}

/* A user expected 20 half-open trials; the first failure re-opened.  Which of the two it is, is
 * said by `successes`. */
static void B023(void **unused) {
  (void)unused;
  fixture fast = after_cooldown(20, 20), rate = after_cooldown(20, 10);
  play(&fast, "F");
  SAME(state(&fast), NEAP_OPEN, "successes = probes: fail fast");
  SAME(ask(&fast), NEAP_REFUSE_OPEN, "the other 19 slots are gone");
  for (int i = 0; i < 10; i++) play(&rate, "F");
  SAME(state(&rate), NEAP_HALF_OPEN, "ten failures, ten can still succeed");
  for (int i = 0; i < 9; i++) play(&rate, "S");
  SAME(state(&rate), NEAP_HALF_OPEN, "19 of 20");
  play(&rate, "S");
  SAME(state(&rate), NEAP_CLOSED, "the 20th decides");
}

/* A router asked each breaker and used one; those not used kept their probe slot and were locked
 * out for good. */
static void B025(void **unused) {
  (void)unused;
  fixture upstreams[3];
  for (int i = 0; i < 3; i++) upstreams[i] = after_cooldown(1, 1);
  for (int round = 0; round < 3; round++) {
    for (int i = round; i < 3; i++)
      SAME(neap_breaker_peek(&upstreams[i].breaker, &upstreams[i].rules, upstreams[i].now_ms),
           NEAP_ALLOW_PROBE, "asked: it would be let in");
    play(&upstreams[round], "S"); /* and used */
    for (int i = round + 1; i < 3; i++)
      SAME(snapshot(&upstreams[i]).probes_in_flight, 0, "a peek reserves nothing");
  }
}

/* A hook between admission and the call raised, and the slot was lost.  The binding reports such
 * a permit abandoned. */
static void B026(void **unused) {
  (void)unused;
  fixture f = after_cooldown(1, 1);
  play(&f, "< R >A");
  SAME(snapshot(&f).totals.abandoned, 1, "counted");
  play(&f, "<");
  SAME(state(&f), NEAP_HALF_OPEN, "the next call is let in");
}

/* The open breaker's target was taken out of the balancer, so nobody ever asked it again. */
static void B028(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 5, r->cooldown_ms = 5000, r->probes = 1, r->successes = 1);
  play(&f, "FFFFF");
  uint64_t at_ms = neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms);
  SAME(at_ms, f.now_ms + 5000, "a timer can be set for it");
  f.now_ms = at_ms;
  SAME(state(&f), NEAP_HALF_OPEN, "with nobody asking it is half-open all the same");
  SAME(neap_breaker_peek(&f.breaker, &f.rules, f.now_ms), NEAP_ALLOW_PROBE, "and may be used");
  play(&f, "S");
  SAME(state(&f), NEAP_CLOSED, "back in rotation");
}

/* Failures reported while open kept moving the time of the "last failure", so the cooldown never
 * ended. */
static void B029(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 30000);
  for (int i = 0; i < 50; i++) play(&f, "<");
  play(&f, "F"); /* trips at t = 0, with 50 calls in flight */
  for (int i = 0; i < 29; i++) play(&f, "+1000 ~F");
  play(&f, "+999");
  SAME(state(&f), NEAP_OPEN, "t = 29.999 s");
  play(&f, "+1");
  SAME(state(&f), NEAP_HALF_OPEN, "t = 30 s exactly");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("B001: a second call does not disturb a pending probe", B001),
      IT("B002: a probe that never comes back is lost, and its round with it", B002),
      IT("B004: half-open lets in the probes and no more, cycle after cycle", B004),
      IT("B005: minimum_calls is of no concern to a round", B005),
      IT("B007: a neutral probe gives its slot back, whichever it is", B007),
      IT("B008: neutral means the same closed and half-open", B008),
      IT("B010: a caller that leaves gives the slot back", B010),
      IT("B011: calls begun while closed do not decide a round", B011),
      IT("B013: a hanging upstream sees three probes and no more", B013),
      IT("B014: a slower success does not undo a failed round", B014),
      IT("B016: of nine callers one goes", B016),
      IT("B017: results of a round do not age", B017),
      IT("B019: the rule of a round does not depend on minimum_calls", B019),
      IT("B020: after a failed round its successes are stale", B020),
      IT("B022: every failed probe begins a new cooldown", B022),
      IT("B023: fail fast or N of M is said by `successes`", B023),
      IT("B025: asking takes nothing", B025),
      IT("B026: an abandoned permit gives the slot back", B026),
      IT("B028: half-open comes with nobody asking", B028),
      IT("B029: late failures do not lengthen the cooldown", B029),
  };
  return cmocka_run_group_tests_name("field reports: half-open", tests, NULL, NULL);
}
