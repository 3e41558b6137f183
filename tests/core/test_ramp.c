/* The ramp: once the probes have closed it, the share of calls that are let in grows to all. */
#include "support.h"

#define RAMP_MS 10000u

/* Tripped by one failure and closed by one probe, at START_MS + 1000: level 1. */
static fixture closed_again(uint64_t seed) {
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1,
          r->ramp_ms = RAMP_MS, r->seed = seed);
  play(&f, "F +1000 S");
  SAME(state(&f), NEAP_CLOSED, "one probe closes it");
  SAME(snapshot(&f).level, 1, "and the level stays");
  return f;
}

/* How many milliseconds of from_ms to to_ms of the ramp let their calls in. */
static unsigned let_in(fixture *f, uint64_t from_ms, uint64_t to_ms) {
  uint64_t closed_ms = f->now_ms;
  unsigned count = 0;
  for (f->now_ms = closed_ms + from_ms; f->now_ms < closed_ms + to_ms; f->now_ms++)
    count += ask(f) == NEAP_ALLOW;
  f->now_ms = closed_ms;
  return count;
}

static void the_share_grows_evenly_to_all(void **unused) {
  (void)unused;
  unsigned tenths[10] = {0};
  for (uint64_t seed = 0; seed < 20; seed++) {
    fixture f = closed_again(seed);
    for (unsigned i = 0; i < 10; i++) tenths[i] += let_in(&f, i * 1000, (i + 1) * 1000);
    SAME(let_in(&f, RAMP_MS, RAMP_MS + 2000), 2000, "and then all of them");
  }
  for (unsigned i = 0; i < 10; i++) { /* of 20,000, in the middle of the tenth; 4 sigma are 283 */
    unsigned want = 1000 + 2000 * i;
    HOLDS(tenths[i] + 300 > want && tenths[i] < want + 300, "the share that the time says");
  }
}

static void at_six_tenths_of_the_ramp_six_tenths_are_let_in(void **unused) {
  (void)unused;
  unsigned count = 0;
  for (uint64_t seed = 0; seed < 20000; seed++) {
    fixture f = closed_again(seed);
    f.now_ms += 6000;
    count += ask(&f) == NEAP_ALLOW;
  }
  HOLDS(count > 12000 - 277 && count < 12000 + 277, "6,001 of 10,000, within 4 sigma");
}

static void it_begins_with_next_to_none(void **unused) {
  (void)unused;
  unsigned count = 0;
  for (uint64_t seed = 0; seed < 1000; seed++) {
    fixture f = closed_again(seed);
    count += let_in(&f, 0, 20);
  }
  HOLDS(count > 0 && count < 60, "21 of 20,000, about");
}

static void a_seed_repeats_itself_and_two_differ(void **unused) {
  (void)unused;
  unsigned same = 0;
  fixture a = closed_again(1), again = closed_again(1), b = closed_again(2);
  for (unsigned i = 0; i < RAMP_MS; i++, a.now_ms++, again.now_ms++, b.now_ms++) {
    neap_verdict verdict = ask(&a);
    SAME(ask(&again), verdict, "by the clock alone");
    same += ask(&b) == verdict;
  }
  HOLDS(same > 6000 && same < 7400,
        "two processes agree as often as chance does: two times of three");
}

/* Each refusal is told so, and counted; peek and the snapshot say the same at each instant. */
static void it_says_what_it_does(void **unused) {
  (void)unused;
  fixture f = closed_again(7);
  uint64_t refused = 0;
  for (unsigned i = 0; i < RAMP_MS; i++, f.now_ms++) {
    neap_snapshot s = snapshot(&f);
    SAME(s.state, NEAP_CLOSED, "it is closed");
    SAME(s.admitted, (i + 1) * (NEAP_ONE / RAMP_MS), "the share that is let in");
    neap_verdict verdict = neap_breaker_peek(&f.breaker, &f.rules, f.now_ms);
    neap_permit permit = {.opaque = 77};
    SAME(acquire(&f, &permit), verdict, "as peek said");
    if (verdict == NEAP_ALLOW) continue;
    refused++;
    SAME(verdict, NEAP_REFUSE_RAMP, "with a reason of its own");
    SAME(permit.opaque, 77, "a refusal leaves the permit alone");
    uint64_t wait_ms = neap_breaker_retry_after_ms(&f.breaker, &f.rules, f.now_ms, verdict);
    SAME(s.retry_after_ms, wait_ms, "the same in the snapshot");
    HOLDS(wait_ms >= 1 && wait_ms <= RAMP_MS - i, "at most until all are let in");
    HOLDS(wait_ms * (i + wait_ms) >= RAMP_MS || wait_ms == RAMP_MS - i, "enough for one");
    HOLDS(wait_ms <= 128 && (i < 1000 || wait_ms <= 16), "but not much more");
  }
  SAME(snapshot(&f).totals.refused_ramp, refused, "counted");
  SAME(snapshot(&f).admitted, NEAP_ONE, "all of them");
  SAME(neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms), NEAP_NEVER, "the state stays");
}

static void by_the_clock_it_is_the_same(void **unused) {
  (void)unused;
  fixture f = closed_again(7);
  neap_clock clock = neap_clock_manual(&f.now_ms);
  for (unsigned i = 0; i < RAMP_MS + 10; i++, f.now_ms++) {
    neap_permit permit = {0};
    neap_verdict verdict = neap_breaker_peek(&f.breaker, &f.rules, f.now_ms);
    SAME(neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, NULL), verdict, "");
  }
}

static void only_probes_lead_to_a_ramp(void **unused) {
  (void)unused;
  FIXTURE(fresh, r->failures = 1, r->ramp_ms = RAMP_MS);
  SAME(let_in(&fresh, 0, RAMP_MS), RAMP_MS, "a new breaker has none");
  fixture f = closed_again(1);
  play(&f, "r");
  SAME(let_in(&f, 0, RAMP_MS), RAMP_MS, "nor one that was reset");
  f = closed_again(1);
  f.rules.ramp_ms = 0;
  prepare(&f.rules);
  SAME(let_in(&f, 0, RAMP_MS), RAMP_MS, "nor one whose rules have lost it meanwhile");
  SAME(snapshot(&f).admitted, NEAP_ONE, "nor one whose rules have lost it meanwhile");
}

static void others_with_other_rules_go_by_theirs(void **unused) {
  (void)unused;
  fixture f = closed_again(1);
  neap_rules longer = f.rules;
  longer.ramp_ms = 10 * RAMP_MS;
  prepare(&longer);
  f.now_ms += RAMP_MS;
  neap_snapshot s;
  neap_breaker_snapshot(&f.breaker, &longer, f.now_ms, &s);
  SAME(s.admitted, 100010, "a tenth of theirs is over");
  SAME(snapshot(&f).admitted, NEAP_ONE, "all of ours");
}

/* A trip during the ramp is flapping, be the cooldown long over; after both it is a new one. */
static void a_trip_during_the_ramp_goes_on_with_the_backoff(void **unused) {
  (void)unused;
  const struct {
    uint32_t cooldown_ms, ramp_ms;
    uint64_t after_ms;
    uint32_t level;
  } cases[] = {
      {100, 1000, 999, 2},  {100, 1000, 1000, 1}, {1000, 100, 999, 2},
      {1000, 100, 1000, 1}, {100, 0, 99, 2},      {100, 0, 100, 1},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = cases[i].cooldown_ms, r->probes = 1,
            r->successes = 1, r->ramp_ms = cases[i].ramp_ms);
    play(&f, "F");
    f.now_ms += cases[i].cooldown_ms;
    play(&f, "S");
    uint64_t closed_ms = f.now_ms;
    neap_permit permit = {0};
    while (acquire(&f, &permit) != NEAP_ALLOW) f.now_ms++;
    HOLDS(f.now_ms < closed_ms + cases[i].after_ms, "one is let in");
    f.now_ms = closed_ms + cases[i].after_ms;
    SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "and fails");
    SAME(f.moved.to, NEAP_OPEN, "the ordinary rule opens it");
    SAME(f.moved.cause, NEAP_BY_FAILURES, "the ordinary rule opens it");
    SAME(f.moved.level, cases[i].level, "within the longer of both the backoff goes on");
    SAME(f.moved.flapping, cases[i].level == 2, "and that is flapping");
    SAME(snapshot(&f).totals.flaps, cases[i].level == 2, "counted");
    SAME(snapshot(&f).admitted, 0, "open");
  }
}

static void each_closing_has_a_ramp(void **unused) {
  (void)unused;
  fixture f = closed_again(3);
  neap_permit permit = {0};
  while (acquire(&f, &permit) != NEAP_ALLOW) f.now_ms++;
  report(&f, &permit, NEAP_FAILURE);
  play(&f, "+2000 S");
  SAME(state(&f), NEAP_CLOSED, "level 2");
  SAME(snapshot(&f).admitted, NEAP_ONE / RAMP_MS, "from its beginning");
}

/* What the modes let in nevertheless is told from what the ramp let in. */
static void modes_let_in_past_it(void **unused) {
  (void)unused;
  const neap_mode modes[] = {NEAP_FORCED_CLOSED, NEAP_SHADOW};
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    fixture f = closed_again(5);
    while (neap_breaker_peek(&f.breaker, &f.rules, f.now_ms) == NEAP_ALLOW) f.now_ms++;
    set_mode(&f, modes[i], 0);
    neap_permit permit = {0};
    SAME(neap_breaker_peek(&f.breaker, &f.rules, f.now_ms), NEAP_ALLOW_BYPASS, "");
    SAME(acquire(&f, &permit), NEAP_ALLOW_BYPASS, "let in");
    SAME(neap_permit_refusal(&permit), NEAP_REFUSE_RAMP, "and told why not");
    SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "in the totals only");
    SAME(state(&f), NEAP_CLOSED, "in the totals only");
    SAME(snapshot(&f).totals.refused_ramp, 0, "nobody was refused");
    set_mode(&f, NEAP_FORCED_OPEN, 0);
    SAME(ask(&f), NEAP_REFUSE_FORCED, "forced open goes before");
    set_mode(&f, NEAP_MODE_OF_RULES, 0);
    SAME(ask(&f), NEAP_REFUSE_RAMP, "it goes on underneath");
  }
}

/* Threads' clocks differ a little: then it is at its beginning.  A clock that has stepped back must
 * not keep it there. */
static void a_clock_step_doubles_it_at_most(void **unused) {
  (void)unused;
  fixture f = closed_again(1);
  uint64_t closed_ms = f.now_ms;
  f.now_ms = closed_ms - RAMP_MS;
  SAME(snapshot(&f).admitted, NEAP_ONE / RAMP_MS, "as far back as it is long: at the beginning");
  f.now_ms = closed_ms - RAMP_MS - 1;
  SAME(snapshot(&f).admitted, NEAP_ONE, "more: over");
  SAME(ask(&f), NEAP_ALLOW, "more: over");
}

/* At and over the edges of what a clock can say. */
static void it_is_exact_at_every_start(void **unused) {
  (void)unused;
  const uint64_t edges[] = {UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_C(1) << 53,
                            UINT64_C(1) << 63, 0 /* over 2^64 */};
  for (size_t i = 0; i < COUNT_OF(edges); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1,
            r->ramp_ms = RAMP_MS);
    f.now_ms = edges[i] - 1000 - RAMP_MS / 2;
    play(&f, "F +1000 S");
    SAME(snapshot(&f).admitted, NEAP_ONE / RAMP_MS, "the beginning");
    f.now_ms += RAMP_MS - 1;
    SAME(snapshot(&f).admitted, NEAP_ONE, "the last millisecond");
    SAME(ask(&f), NEAP_ALLOW, "lets all in");
    f.now_ms += 1;
    SAME(ask(&f), NEAP_ALLOW, "as what follows");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("the share grows evenly to all", the_share_grows_evenly_to_all),
      IT("at six tenths of the ramp six tenths are let in",
         at_six_tenths_of_the_ramp_six_tenths_are_let_in),
      IT("it begins with next to none", it_begins_with_next_to_none),
      IT("a seed repeats itself, and two differ", a_seed_repeats_itself_and_two_differ),
      IT("it says what it does", it_says_what_it_does),
      IT("by the clock it is the same", by_the_clock_it_is_the_same),
      IT("only probes lead to a ramp", only_probes_lead_to_a_ramp),
      IT("others with other rules go by theirs", others_with_other_rules_go_by_theirs),
      IT("a trip during the ramp goes on with the backoff",
         a_trip_during_the_ramp_goes_on_with_the_backoff),
      IT("each closing has a ramp", each_closing_has_a_ramp),
      IT("modes let in past it", modes_let_in_past_it),
      IT("a clock step doubles it at most", a_clock_step_doubles_it_at_most),
      IT("it is exact at every start", it_is_exact_at_every_start),
  };
  return cmocka_run_group_tests_name("ramp", tests, NULL, NULL);
}
