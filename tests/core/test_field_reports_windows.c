/* What has gone wrong elsewhere with windows and time: one test for each public report, with its
 * story on top. */
#include "support.h"

/* The event that rolled the bucket over was missing from the count that decided: S, S then F
 * gave 0 of 2 instead of 1 of 3. */
static void B031(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 100000, r->minimum_calls = 2, r->length_ms = 16000);
  f.now_ms = 16000999;
  play(&f, "SS +1 F");
  SAME(state(&f), NEAP_OPEN, "now, not at the next call");
  SAME(f.moved.calls, 3, "of three");
  SAME(f.moved.measured, 1, "one");
}

/* The success path skipped the rate check: F, F, S stayed closed at 67 %. */
static void B032(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 3);
  play(&f, "FFS");
  SAME(state(&f), NEAP_OPEN, "on the success that completes the minimum");
}

/* Minimum calls had no effect before the default window of 100 was full. */
static void B034(void **unused) {
  (void)unused;
  for (int unset = 0; unset < 2; unset++) {
    FIXTURE(f, r->failure_rate = 500000, r->window = NEAP_WINDOW_COUNT,
            r->calls = unset ? r->calls : 100, r->minimum_calls = 5);
    play(&f, "FFFF");
    SAME(state(&f), NEAP_CLOSED, "one below");
    play(&f, "F");
    SAME(state(&f), NEAP_OPEN, "after five");
  }
}

/* It was unclear whether S, F, F, F opens with a window of 4 and a ratio of 0.75. */
static void B035(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 750000, r->window = NEAP_WINDOW_COUNT, r->calls = 4);
  fixture g = f;
  play(&f, "SFFF");
  SAME(state(&f), NEAP_OPEN, "3 of 4 is at it");
  play(&g, "SSFF");
  SAME(state(&g), NEAP_CLOSED, "2 of 4 is not");
}

/* Counts were dropped as a block every interval: 900 failures in the 11th second read as 90 %
 * instead of 9 %. */
static void B037(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->length_ms = 10000);
  f.now_ms = 1000000;
  for (int ms = 0; ms < 11000; ms++, f.now_ms++) play(&f, ms >= 10100 ? "F" : "S");
  f.now_ms--;
  uint32_t rate = snapshot(&f).failure_rate;
  HOLDS(rate >= 90000 && rate <= 96100, "900 of the last 10,000, or of one bucket less");
}

/* One failed first call was 100 % and opened at once. */
static void B038(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 10);
  play_times(&f, "F", 9);
  SAME(state(&f), NEAP_CLOSED, "nine");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "ten");
}

/* Eight failures, two minutes idle and two more opened a breaker meant to look at 30 s. */
static void B040(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 10, r->length_ms = 30000);
  play_times(&f, "F", 8);
  play(&f, "+120000 FF");
  SAME(state(&f), NEAP_CLOSED, "two in 30 s");
  SAME(snapshot(&f).failure, 2, "two in 30 s");
}

/* Off by one: with a maximum of two failures the second caller already got the breaker's error
 * instead of its own. */
static void B041(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 3);
  for (int call = 1; call <= 3; call++) {
    neap_permit permit = {0};
    SAME(acquire(&f, &permit), NEAP_ALLOW, "the first three reach the upstream");
    SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "and get its answer");
  }
  SAME(ask(&f), NEAP_REFUSE_OPEN, "the fourth does not");
}

/* The wall clock was used for the cooldown: set far ahead and put back, it kept the breaker open
 * much too long.  The core reads no clock but the one it is given; were that one to jump, a
 * deadline further off than any cooldown is past. */
static void B043(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 30000);
  f.now_ms = UINT64_C(100) * 86400000;
  play(&f, "F +29999 R +1 <");
  SAME(state(&f), NEAP_HALF_OPEN, "30 s of the clock given");
  play(&f, "r +86400000 F -86400000");
  SAME(state(&f), NEAP_HALF_OPEN, "put back a day: not open for a day and 30 s");
}

/* A step of the clock by 5 s either way must neither empty the buckets nor let old ones live
 * longer. */
static void B044(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 100, r->length_ms = 20000);
  f.now_ms = 40000000;
  play(&f, "FF -5000 F");
  SAME(snapshot(&f).failure, 3, "5 s back: nothing is emptied");
  play(&f, "+10000 F");
  SAME(snapshot(&f).failure, 4, "5 s ahead: nor is it");
  play(&f, "+15000");
  SAME(snapshot(&f).failure, 1, "and what is older than the window is gone");
}

/* The monotonic clock went slightly backwards on some kernels; the negative span hit an
 * assertion. */
static void B046(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 4, r->cooldown_ms = 30000);
  f.now_ms = 1000;
  play(&f, "F -5 F +5 F");
  SAME(snapshot(&f).failure, 3, "no bucket is cleared");
  play(&f, "-5 F");
  SAME(state(&f), NEAP_OPEN, "four");
  play(&f, "-5");
  neap_snapshot s = snapshot(&f);
  SAME(s.state_age_ms, 0, "elapsed counts as 0, not as 2^64 - 5");
  SAME(s.totals.open_ms, 0, "elapsed counts as 0");
  SAME(s.retry_after_ms, 30005, "the deadline stays where it was");
}

/* A 32-bit tick goes negative after 24.9 days and timeouts do not expire for the next 24.9. */
static void B047(void **unused) {
  (void)unused;
  const uint64_t starts[] = {(UINT64_C(1) << 31) - 100, (UINT64_C(1) << 32) - 100,
                             (UINT64_C(1) << 53) - 100, (UINT64_C(1) << 63) - 1000000000};
  for (size_t i = 0; i < COUNT_OF(starts); i++) {
    FIXTURE(f, r->failures = 3, r->length_ms = 1600, r->cooldown_ms = 1000, r->probes = 1,
            r->successes = 1);
    f.now_ms = starts[i];
    play(&f, "F +60 F +60 F");
    SAME(f.moved.measured, 3, "the window's sum across the boundary");
    play(&f, "+999 R +1 S +10 F +2000");
    SAME(snapshot(&f).calls, 0, "and its end");
    SAME(state(&f), NEAP_CLOSED, "and the cooldown's");
  }
}

/* remaining = delay - elapsed underflowed when processing was late: a timer was set 50 days
 * ahead. */
static void B049(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 30000);
  play(&f, "F +31000");
  SAME(snapshot(&f).retry_after_ms, 0, "clamped");
  SAME(state(&f), NEAP_HALF_OPEN, "at the next turn");
  SAME(neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms), NEAP_NEVER, "no timer is needed");
  play(&f, "< +3600000");
  SAME(neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms), f.now_ms, "never in the past");
}

/* Half-open counts were carried into the closed state, so the next peak tripped too early. */
static void B050(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 100, r->consecutive_failures = 1000,
          r->length_ms = 60000, r->probes = 25, r->successes = 20, r->cooldown_ms = 1000);
  play_times(&f, "F", 100);
  play(&f, "+1000 FFFFF");
  play_times(&f, "S", 20);
  SAME(state(&f), NEAP_CLOSED, "20 of 25");
  SAME(snapshot(&f).calls, 0, "a clean window");
  play_times(&f, "F", 99);
  SAME(state(&f), NEAP_CLOSED, "99 do not open it");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "the 100th does");
}

/* Documented as "three in a row", but S, F, S, F, F tripped it. */
static void B052(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 3);
  play(&f, "SFSFF");
  SAME(state(&f), NEAP_CLOSED, "two in a row");
  play(&f, "NAN");
  SAME(snapshot(&f).consecutive_failures, 2, "neutral neither adds nor resets");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "three");
}

/* A loop's cached time stood still during 5 s of work, so elapsed read 0 and later timeouts
 * fired early.  The core reads the clock it is given at acquire and at report. */
static void B053(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 3000);
  uint64_t now_ms = 10000;
  neap_clock clock = neap_clock_manual(&now_ms);
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, NULL);
  now_ms += 5000; /* the blocking section */
  neap_breaker_report_on(&f.breaker, &f.rules, &clock, &permit, &failure, NULL);
  SAME(neap_breaker_next_ms(&f.breaker, &f.rules, now_ms), 18000, "the cooldown has its full time");
}

/* Durations measured as end - start with the end before the start made an exported sum negative. */
static void B055(void **unused) {
  (void)unused;
  for (uint32_t slow_call_ms = 0; slow_call_ms <= 10; slow_call_ms += 10) {
    FIXTURE(f, r->failure_rate = NEAP_ONE, r->slow_rate = slow_call_ms ? NEAP_ONE : 0,
            r->slow_call_ms = slow_call_ms, r->minimum_calls = 1);
    play(&f, "S");
    call_with(&f, (neap_call){.outcome = NEAP_SUCCESS, .duration_ms = (uint64_t)-40});
    neap_snapshot s = snapshot(&f);
    SAME(s.success, 2, "counted");
    SAME(s.slow_success, 0, "and never slow");
    SAME(s.duration_sum_ms, 0, "clamped to 0");
    SAME(s.duration_counts[0], 2, "clamped to 0");
    SAME(s.totals.clock_steps, 1, "and told");
    SAME(state(&f), NEAP_CLOSED, "and of no consequence");
  }
}

/* Clocks that jump when the machine resumes: all is over at once, with no burst; clocks that
 * pause: the rest of it remains. */
static void B056(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 3, r->cooldown_ms = 1800000, r->max_cooldown_ms = 1800000, r->probes = 2,
          r->successes = 2, r->concurrent = 2);
  play(&f, "FF +3600000");
  SAME(snapshot(&f).calls, 0, "jumped: the whole window has passed");
  play(&f, "FFF +600000");
  SAME(snapshot(&f).retry_after_ms, 1200000, "paused: the cooldown goes on with its rest");
  play(&f, "+3600000");
  unsigned admitted = 0;
  neap_permit permits[100] = {{0}};
  for (int i = 0; i < 100; i++) admitted += acquire(&f, &permits[i]) == NEAP_ALLOW_PROBE;
  SAME(admitted, 2, "jumped: exactly the probes");
}

/* Of a window of minutes only the last 60 s seemed to count. */
static void B058(void **unused) {
  (void)unused;
  const uint32_t lengths[] = {1000, 60000, 61000, 240000, 3600000};
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    FIXTURE(f, r->failure_rate = NEAP_ONE, r->length_ms = lengths[i]);
    f.now_ms = UINT64_C(16) * lengths[i];
    const uint32_t slice = lengths[i] / 16;
    for (uint32_t n = 0; n < 16;
         n++, f.now_ms += slice) /* equal traffic, failing in the last quarter */
      play_times(&f, n >= 12 ? "F" : "S", 10);
    f.now_ms -= slice;
    SAME(snapshot(&f).calls, 160, "no bucket is used again early");
    SAME(snapshot(&f).failure_rate, 250000, "a quarter");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("B031: the call that begins a bucket is counted in the decision on it", B031),
      IT("B032: a success may trip", B032),
      IT("B034: minimum_calls holds before the window is full", B034),
      IT("B035: a rate at its limit opens", B035),
      IT("B037: the window slides and drops nothing as a block", B037),
      IT("B038: a rate needs its minimum of calls", B038),
      IT("B040: failures older than the window do not count", B040),
      IT("B041: the Nth caller still gets its own error", B041),
      IT("B043: no wall clock decides anything", B043),
      IT("B044: a small step of the clock neither empties nor prolongs", B044),
      IT("B046: a clock that goes back a little is no event", B046),
      IT("B047: 2^31, 2^32, 2^53 and 2^63 are numbers like others", B047),
      IT("B049: what remains is never negative, and never huge", B049),
      IT("B050: a closed breaker begins with a clean window", B050),
      IT("B052: consecutive means in a row", B052),
      IT("B053: time is read for each acquire and each report", B053),
      IT("B055: an end before its start is no duration", B055),
      IT("B056: a clock may jump or pause over a suspend", B056),
      IT("B058: a long window is long", B058),
  };
  return cmocka_run_group_tests_name("field reports: windows and time", tests, NULL, NULL);
}
