/* Clocks that step, and clocks that start anywhere. */
#include "support.h"

#include "window.h"

/* ---- Clocks that step ---- */

static void a_clock_a_little_back_counts_all_the_same(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 4, r->length_ms = 1600);
  f.now_ms = 100000;
  play(&f, "F -5 F");
  SAME(snapshot(&f).failure, 2, "nothing is cleared");
  play(&f, "-1000 F");
  SAME(snapshot(&f).failure, 3, "slices ahead of the clock, less than a window, count");
  play(&f, "+1005 F");
  SAME(f.moves, 1, "four");
}

static void a_report_from_a_window_ago_is_not_lost(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 3, r->length_ms = 1600);
  f.now_ms = 100000;
  play(&f, "F -1600 F");
  SAME(snapshot(&f).failure, 2, "it counts into the counter that its bucket has now");
  play(&f, "+1600");
  SAME(snapshot(&f).failure, 2, "for everybody");
}

static void a_clock_far_back_starts_anew(void **unused) {
  (void)unused;
  const uint64_t back_ms[] = {3200, 5000, 1000000, 99999999};
  for (size_t i = 0; i < COUNT_OF(back_ms); i++) {
    FIXTURE(f, r->failures = 3, r->length_ms = 1600);
    f.now_ms = 100000000;
    play(&f, "FF");
    f.now_ms -= back_ms[i];
    SAME(snapshot(&f).failure, 0, "what is two windows ahead was before the step");
    play(&f, "FF");
    SAME(f.moves, 0, "two of three");
    play(&f, "F");
    SAME(f.moves, 1, "three");
  }
}

/* Two windows back, and there is a failure from a window ago.  What was before the step is no more
 * to the one who counts there than to others. */
static void a_failure_that_counts_a_window_ahead_is_judged_by_its_own_clock(void **unused) {
  (void)unused;
  const char *scripts[] = {"F +2400 S -4000 F", "f +2400 S -4000 f"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->length_ms = 1600, r->slow_call_ms = 10);
    f.now_ms = 101600;
    play(&f, scripts[i]);
    SAME(f.moves, 1, scripts[i]);
    SAME(f.moved.measured, 2, "of before the step only what is a window ahead");
  }
}

static void a_step_back_is_counted(void **unused) {
  (void)unused;
  const struct {
    uint64_t back_ms, steps;
    const char *because;
  } cases[] = {{0, 0, "none"},
               {100, 0, "one slice: clocks of two threads differ by that"},
               {200, 0, "two"},
               {300, 1, "three"},
               {1500, 1, "nearly a window"},
               {3100, 1, "nearly two"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 30, r->length_ms = 1600);
    f.now_ms = 160000000;
    play(&f, "F");
    f.now_ms -= cases[i].back_ms;
    play(&f, "F");
    SAME(snapshot(&f).totals.clock_steps, cases[i].steps, cases[i].because);
  }
}

static void a_step_forward_is_an_idle_gap(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000);
  play(&f, "F +86400000 F");
  SAME(f.moves, 0, "the first has left");
  play(&f, "F +86400000");
  SAME(state(&f), NEAP_HALF_OPEN, "and a cooldown is over");
}

/* A deadline that lies further ahead than any cooldown of the rules and a minute was made by a
 * clock that has stepped back. */
static void no_step_back_holds_it_open(void **unused) {
  (void)unused;
  const struct {
    uint64_t back_ms;
    neap_verdict want;
    const char *because;
  } cases[] = {
      {0, NEAP_REFUSE_OPEN, "open"},
      {1, NEAP_REFUSE_OPEN, "a millisecond longer"},
      {60000 + 9000, NEAP_REFUSE_OPEN, "ten seconds, and a minute"},
      {60001 + 9000, NEAP_ALLOW_PROBE, "no cooldown is that long: past"},
      {86400000, NEAP_ALLOW_PROBE, "a day"},
      {UINT64_C(1) << 39, NEAP_ALLOW_PROBE, "17 years"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 10000);
    f.now_ms = UINT64_C(1) << 45;
    play(&f, "F");
    f.now_ms -= cases[i].back_ms;
    SAME(ask(&f), cases[i].want, cases[i].because);
  }
}

static void no_step_back_holds_a_lost_probe(void **unused) {
  (void)unused;
  const struct {
    uint64_t back_ms;
    neap_verdict want;
  } cases[] = {{0, NEAP_REFUSE_PROBES},
               {60000, NEAP_REFUSE_PROBES},
               {60001, NEAP_REFUSE_OPEN},
               {3600000, NEAP_REFUSE_OPEN},
               {60000000, NEAP_REFUSE_OPEN}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->lease_ms = 500);
    f.now_ms = UINT64_C(1) << 45;
    play(&f, "F +1000 <");
    f.now_ms -= cases[i].back_ms;
    SAME(ask(&f), cases[i].want, "further off than the lease and a minute is past");
  }
}

static void a_step_back_just_after_closing_is_an_age_of_zero(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  play(&f, "F +1000 S -500");
  SAME(snapshot(&f).state_age_ms, 0, "differences clamp at 0");
  play(&f, "F");
  SAME(f.moved.flapping, true, "closed no time ago");
}

/* ---- Clocks that start anywhere ---- */

static const uint64_t clock_starts[] = {
    0,
    1,
    (UINT64_C(1) << 31) - 100,
    (UINT64_C(1) << 32) - 100,
    (UINT64_C(1) << 40) - 100,
    (UINT64_C(1) << 26) - 100,
    (UINT64_C(1) << 53) - 100,
    (UINT64_C(1) << 63) - 100,
    UINT64_C(1) << 63,
    UINT64_MAX - 99,
    UINT64_MAX - 5000000,
};

/* Every deadline there is, one millisecond before and at it, from any start. */
static void deadlines_are_exact_at_every_start(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(clock_starts); i++)
    for (uint64_t later = 0; later < 3000; later += 37) {
      FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->lease_ms = 500,
              r->probes = 2, r->successes = 2);
      f.now_ms = clock_starts[i] + later;
      play(&f, "F +999 R +1 < +499");
      SAME(ask(&f), NEAP_REFUSE_PROBES, "the lease");
      play(&f, "+1");
      SAME(ask(&f), NEAP_REFUSE_OPEN, "its end");
      SAME(snapshot(&f).retry_after_ms, 2000, "the next cooldown");
      SAME(neap_breaker_next_ms(&f.breaker, &f.rules, f.now_ms) - f.now_ms <= 2000 ||
               f.now_ms > UINT64_MAX - 2000,
           true, "never less than now");
      play(&f, "+1999 R +1 SS +5");
      SAME(snapshot(&f).state_age_ms, 5, "closed since");
      SAME(snapshot(&f).totals.open_ms, 3500, "from the first failure on");
      play(&f, "+3994 F");
      SAME(f.moved.flapping, false || snapshot(&f).level == 3, "within cooldown(2) = 2,000: no");
    }
}

static void windows_are_right_at_every_start(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(clock_starts); i++)
    for (uint64_t later = 0; later < 200; later += 13) {
      uint64_t start = clock_starts[i] + later;
      if (start < 3000 || start > UINT64_MAX - 20000) start -= 30000; /* 0 itself: below */
      FIXTURE(f, r->failures = 3, r->length_ms = 1600);
      f.now_ms = start;
      play(&f, "F +700 F");
      SAME(snapshot(&f).failure, 2, "both");
      play(&f, "+900");
      SAME(snapshot(&f).failure, 1, "the first has left");
      play(&f, "FF");
      SAME(f.moves, 1, "three in one window");
    }
}

/* Slices are counted from 0, so where the clock wraps through 0 the window may forget, once in
 * 584 million years; it counts nothing twice and nothing old, and goes on. */
/* There, once in 4,096 epochs, the mark of a failure that was evaluated is all zero, as if there had
 * been none. */
static void a_success_ends_a_run_in_the_first_slice_of_all(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 2, r->minimum_calls = 1);
  f.now_ms = 0;
  neap_breaker_adopt(&f.breaker, &f.rules);
  while (window_tag(snapshot(&f).epoch, breaker_of(&f.breaker)->geometry) != 0) play(&f, "r");
  play(&f, "F");
  SAME(breaker_of(&f.breaker)->mark, 0, "tag 0, slice 0, calls enough");
  play(&f, "SF");
  SAME(state(&f), NEAP_CLOSED, "one in a row");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "two");
}

static void through_zero_the_window_may_forget_but_goes_on(void **unused) {
  (void)unused;
  for (uint64_t before = 1; before < 4000; before += 97) {
    FIXTURE(f, r->failures = 3, r->length_ms = 1600);
    f.now_ms = UINT64_MAX - before;
    play(&f, "FF");
    f.now_ms += before + 1;
    SAME(f.now_ms, 0, "wrapped");
    HOLDS(snapshot(&f).failure <= 2, "nothing twice");
    f.now_ms += 3200;
    SAME(snapshot(&f).failure, 0, "nothing old");
    play(&f, "FF");
    SAME(f.moves, 0, "two of three");
    play(&f, "F");
    SAME(f.moves, 1, "three");
  }
}

/* The engine divides by multiplying: near every power of two and every edge of a slice it must
 * come out as division does. */
static void slices_are_what_division_says(void **unused) {
  (void)unused;
  uint64_t seed = random_seed(17);
  for (int i = 0; i < 50000; i++) {
    const uint32_t length =
        i < 20000 ? 100 + (uint32_t)i : 100 + (uint32_t)random_below(&seed, 3599901);
    const uint64_t slice = length / 16;
    FIXTURE(f, r->failures = 3, r->length_ms = length);
    uint64_t near = (UINT64_C(1) << random_below(&seed, 63)) + random_below(&seed, 5 * slice);
    uint64_t start = near / slice * slice; /* of a slice */
    neap_breaker_adopt(&f.breaker, &f.rules);
    f.now_ms = start + (random_below(&seed, 2) ? slice - 1 : random_below(&seed, slice));
    play(&f, "S"); /* the first in its counter */
    play(&f, "S"); /* one more */
    f.now_ms = start + 16 * slice - 1;
    SAME(snapshot(&f).success, 2, "the last millisecond of the window");
    f.now_ms++;
    SAME(snapshot(&f).success, 0, "the first after it");
  }
}

/* A counter keeps its lap modulo 2^23, so every 2^27 slices laps begin again from 0. */
static void where_laps_wrap_nothing_is_lost(void **unused) {
  (void)unused;
  for (int64_t first = -50; first < 50; first++)
    for (int64_t second = first - 31; second < first + 31; second++) {
      FIXTURE(f, r->failures = 3, r->length_ms = 1600);
      const uint64_t wrap_ms = (UINT64_C(1) << SLICE_BITS) * 100;
      f.now_ms = wrap_ms + (uint64_t)(first * 100);
      play(&f, "F");
      f.now_ms = wrap_ms + (uint64_t)(second * 100);
      SAME(snapshot(&f).failure, second - first < 16, "ahead counts, and older up to a window");
      play(&f, "F");
      bool both = second - first < 16 && first - second < 16;
      bool in_place = first - second == 16;
      SAME(snapshot(&f).failure, 1 + (both || in_place), "so does one more");
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a clock a little back counts all the same", a_clock_a_little_back_counts_all_the_same),
      IT("a report from a window ago is not lost", a_report_from_a_window_ago_is_not_lost),
      IT("a clock far back starts anew", a_clock_far_back_starts_anew),
      IT("a failure that counts a window ahead is judged by its own clock",
         a_failure_that_counts_a_window_ahead_is_judged_by_its_own_clock),
      IT("a step back is counted", a_step_back_is_counted),
      IT("a step forward is an idle gap", a_step_forward_is_an_idle_gap),
      IT("no step back holds it open", no_step_back_holds_it_open),
      IT("no step back holds a lost probe", no_step_back_holds_a_lost_probe),
      IT("a step back just after closing is an age of zero",
         a_step_back_just_after_closing_is_an_age_of_zero),
      IT("deadlines are exact at every start", deadlines_are_exact_at_every_start),
      IT("windows are right at every start", windows_are_right_at_every_start),
      IT("a success ends a run in the first slice of all",
         a_success_ends_a_run_in_the_first_slice_of_all),
      IT("through zero the window may forget, but goes on",
         through_zero_the_window_may_forget_but_goes_on),
      IT("slices are what division says", slices_are_what_division_says),
      IT("where laps wrap nothing is lost", where_laps_wrap_nothing_is_lost),
  };
  return cmocka_run_group_tests_name("time", tests, NULL, NULL);
}
