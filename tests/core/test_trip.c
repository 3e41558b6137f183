/* What opens a closed breaker, one below, at and one above each edge. */
#include "support.h"

/* The numbers that a row sets; the others are the defaults. */
typedef struct trip_rules {
  neap_window_kind window;
  uint32_t calls, failures, consecutive, failure_rate, slow_rate, slow_call_ms, minimum;
} trip_rules;

typedef struct trip_case {
  trip_rules rules;
  const char *script; /* see support.h */
  neap_cause cause;   /* NEAP_BY_NOTHING: stays closed */
  uint64_t measured, limit, calls;
  const char *because;
} trip_case;

#define COUNT(n) .window = NEAP_WINDOW_COUNT, .calls = n
#define QUIET    NEAP_BY_NOTHING, 0, 0, 0

static fixture fixture_of(const trip_rules *t) {
  FIXTURE(f, r->window = t->window, r->calls = t->calls ? t->calls : r->calls,
          r->failures = t->failures, r->consecutive_failures = t->consecutive,
          r->failure_rate = t->failure_rate, r->slow_rate = t->slow_rate,
          r->slow_call_ms = t->slow_call_ms, r->minimum_calls = t->minimum);
  return f;
}

static void run_cases(const trip_case *cases, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const trip_case *c = &cases[i];
    fixture f = fixture_of(&c->rules);
    play(&f, c->script);
    SAME(f.moves, c->cause == NEAP_BY_NOTHING ? 0 : 1, c->because);
    SAME(state(&f), c->cause == NEAP_BY_NOTHING ? NEAP_CLOSED : NEAP_OPEN, c->because);
    if (!f.moves) continue;
    SAME(f.moved.cause, c->cause, c->because);
    SAME(f.moved.measured, c->measured, c->because);
    SAME(f.moved.limit, c->limit, c->because);
    SAME(f.moved.calls, c->calls, c->because);
  }
}

/* clang-format off */
static const trip_case failures_cases[] = {
    {{.failures = 3}, "FF", QUIET, "one below"},
    {{.failures = 3}, "FFF", NEAP_BY_FAILURES, 3, 3, 3, "at it"},
    {{.failures = 3}, "FFFR", NEAP_BY_FAILURES, 3, 3, 3, "the next call is refused"},
    {{.failures = 3}, "FFSSSSSSSSSSSS", QUIET, "successes do not add up"},
    {{.failures = 3}, "FSFSSF", NEAP_BY_FAILURES, 3, 3, 6, "successes between do not matter"},
    {{.failures = 3}, "FNFNAF", NEAP_BY_FAILURES, 3, 3, 3, "neutral and abandoned calls are no calls"},
    {{.failures = 3}, "FTF", NEAP_BY_FAILURES, 3, 3, 3, "a timeout is a failure"},
    {{.failures = 3, .slow_call_ms = 100}, "FfF", NEAP_BY_FAILURES, 3, 3, 3, "a slow failure is one failure"},
    {{.failures = 3, .slow_call_ms = 100}, "FsFsss", QUIET, "a slow success is no failure"},
    {{.failures = 3, .minimum = 100}, "FFF", NEAP_BY_FAILURES, 3, 3, 3, "it ignores minimum_calls"},
    {{.failures = 1}, "F", NEAP_BY_FAILURES, 1, 1, 1, "the smallest limit"},
    {{.failures = 1}, "SSSS", QUIET, "no failure"},
    {{COUNT(4), .failures = 3}, "FFSF", NEAP_BY_FAILURES, 3, 3, 4, "three of the last four"},
    {{COUNT(4), .failures = 3}, "FFSSF", QUIET, "the first has left the window"},
    {{COUNT(4), .failures = 3}, "FFSSFF", QUIET, "... and the second"},
    {{COUNT(4), .failures = 3}, "FFSSFFF", NEAP_BY_FAILURES, 3, 3, 4, "three anew"},
    {{COUNT(1), .failures = 1}, "SF", NEAP_BY_FAILURES, 1, 1, 1, "a window of one call"},
    {{COUNT(4), .failures = 4}, "FNNNNNNFFF", NEAP_BY_FAILURES, 4, 4, 4, "neutral calls take no place"},
};

static const trip_case failure_rate_cases[] = {
    {{.failure_rate = 500000, .minimum = 4}, "FFF", QUIET, "one below the minimum"},
    {{.failure_rate = 500000, .minimum = 4}, "FFFF", NEAP_BY_FAILURE_RATE, 4, 500000, 4, "at the minimum"},
    {{.failure_rate = 500000, .minimum = 4}, "SSSF", QUIET, "1 of 4"},
    {{.failure_rate = 500000, .minimum = 4}, "SSFF", NEAP_BY_FAILURE_RATE, 2, 500000, 4, "2 of 4: at it"},
    {{.failure_rate = 500000, .minimum = 4}, "FFNNAA", QUIET, "neutral calls do not fill the minimum"},
    {{.failure_rate = 500000, .minimum = 4}, "FFSS", NEAP_BY_FAILURE_RATE, 2, 500000, 4, "a success may complete the minimum"},
    {{.failure_rate = 500000, .minimum = 4}, "SSSFFSF", QUIET, "3 of 7: below it"},
    {{.failure_rate = 500000, .minimum = 4}, "SSSFFF", NEAP_BY_FAILURE_RATE, 3, 500000, 6, "3 of 6"},
    {{.failure_rate = 333333, .minimum = 3}, "SSF", NEAP_BY_FAILURE_RATE, 1, 333333, 3, "1/3 is over 0.333333"},
    {{.failure_rate = 333334, .minimum = 3}, "SSF", QUIET, "1/3 is under 0.333334"},
    {{.failure_rate = 333334, .minimum = 3}, "SSFF", NEAP_BY_FAILURE_RATE, 2, 333334, 4, "2/4 is over it"},
    {{.failure_rate = 1, .minimum = 1}, "SSSSSSSSF", NEAP_BY_FAILURE_RATE, 1, 1, 9, "the smallest rate: any failure"},
    {{.failure_rate = 1, .minimum = 1}, "SSSSSSSSS", QUIET, "no failure is no rate"},
    {{.failure_rate = NEAP_ONE, .minimum = 4}, "FFFF", NEAP_BY_FAILURE_RATE, 4, NEAP_ONE, 4, "all of them"},
    {{.failure_rate = NEAP_ONE, .minimum = 4}, "SFFFFFFFFFFF", QUIET, "all but one"},
    {{.failure_rate = 999999, .minimum = 4}, "SFFFFFFFFFFF", QUIET, "11/12 is under 0.999999"},
    {{.failure_rate = 500000}, "FFFFFFFFF", QUIET, "the minimum is 10 if left out: one below"},
    {{.failure_rate = 500000}, "FFFFFFFFFF", NEAP_BY_FAILURE_RATE, 10, 500000, 10, "... at it"},
    {{.failure_rate = 500000, .minimum = 2, .slow_call_ms = 100}, "Sf", NEAP_BY_FAILURE_RATE, 1, 500000, 2, "a slow failure is one failure of one call"},
    {{.failure_rate = 500000, .minimum = 2, .slow_call_ms = 100}, "Ss", QUIET, "slow alone is no failure"},
    {{COUNT(4), .failure_rate = 750000, .minimum = 4}, "SSFFF", NEAP_BY_FAILURE_RATE, 3, 750000, 4, "3 of the last 4"},
    {{COUNT(4), .failure_rate = 750000, .minimum = 4}, "FSSFF", QUIET, "2 of the last 4"},
    {{COUNT(4), .failure_rate = 1000000, .minimum = 4}, "SFFFF", NEAP_BY_FAILURE_RATE, 4, NEAP_ONE, 4, "the success has left"},
    {{COUNT(4), .failure_rate = 500000, .minimum = 4}, "FFSS", NEAP_BY_FAILURE_RATE, 2, 500000, 4, "a success may complete the minimum here too"},
    {{COUNT(4), .failure_rate = 500000, .minimum = 4}, "FFS", QUIET, "one below"},
    {{COUNT(1024), .failure_rate = 500000}, "FFFFFFFFFF", NEAP_BY_FAILURE_RATE, 10, 500000, 10, "a long window need not be full"},
};

static const trip_case slow_rate_cases[] = {
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "sss", QUIET, "one below the minimum"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "ssss", NEAP_BY_SLOW_RATE, 4, 500000, 4, "at the minimum"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "SSSs", QUIET, "1 of 4"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "SSss", NEAP_BY_SLOW_RATE, 2, 500000, 4, "at it, on a success"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "ssSS", NEAP_BY_SLOW_RATE, 2, 500000, 4, "completed by a quick success"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "ssFF", NEAP_BY_SLOW_RATE, 2, 500000, 4, "... or a quick failure"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "SSff", NEAP_BY_SLOW_RATE, 2, 500000, 4, "a slow failure is slow"},
    {{.slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "SSFFFF", QUIET, "a quick failure is not"},
    {{.slow_rate = NEAP_ONE, .slow_call_ms = 100, .minimum = 2}, "fs", NEAP_BY_SLOW_RATE, 2, NEAP_ONE, 2, "both are slow, two calls in all"},
    {{COUNT(4), .slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "sSSSs", QUIET, "1 of the last 4"},
    {{COUNT(4), .slow_rate = 500000, .slow_call_ms = 100, .minimum = 4}, "sSSSsf", NEAP_BY_SLOW_RATE, 2, 500000, 4, "2 of the last 4"},
};

static const trip_case consecutive_cases[] = {
    {{.consecutive = 3}, "FF", QUIET, "one below"},
    {{.consecutive = 3}, "FFF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "at it"},
    {{.consecutive = 3}, "FFSFF", QUIET, "a success begins a new run"},
    {{.consecutive = 3}, "FFSFFF", NEAP_BY_CONSECUTIVE, 3, 3, 6, "... which counts from one"},
    {{.consecutive = 3, .slow_call_ms = 100}, "FFsFF", QUIET, "a slow success does too"},
    {{.consecutive = 3, .slow_call_ms = 100}, "FfF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "a slow failure goes on"},
    {{.consecutive = 3}, "FNFAF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "neutral calls neither add nor reset"},
    {{.consecutive = 3}, "TTT", NEAP_BY_CONSECUTIVE, 3, 3, 3, "timeouts are failures"},
    {{.consecutive = 3, .minimum = 100}, "FFF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "it ignores minimum_calls"},
    {{.consecutive = 3}, "F +3600000 F +3600000 F", NEAP_BY_CONSECUTIVE, 3, 3, 1, "the run is not tied to the window"},
    {{COUNT(2), .consecutive = 5}, "FFFF", QUIET, "... nor to a count window: one below"},
    {{COUNT(2), .consecutive = 5}, "FFFFF", NEAP_BY_CONSECUTIVE, 5, 5, 2, "... at it"},
    {{COUNT(100), .consecutive = 3}, "FFSFNF", QUIET, "a success begins a new run there too"},
    {{.consecutive = 1}, "F", NEAP_BY_CONSECUTIVE, 1, 1, 1, "the shortest run"},
};

static const trip_case several_cases[] = {
    {{.failures = 5, .consecutive = 3}, "FFF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "any of the rules will do"},
    {{.failures = 5, .consecutive = 3}, "FFSFFSF", NEAP_BY_FAILURES, 5, 5, 7, "... or the other"},
    {{.failures = 3, .consecutive = 3, .failure_rate = 500000, .minimum = 3}, "FFF", NEAP_BY_CONSECUTIVE, 3, 3, 3, "of several that hold the most telling is named: the run"},
    {{.failures = 3, .failure_rate = 500000, .minimum = 3}, "FFF", NEAP_BY_FAILURES, 3, 3, 3, "... then the number"},
    {{.failure_rate = 500000, .slow_rate = 500000, .slow_call_ms = 9, .minimum = 3}, "fff", NEAP_BY_FAILURE_RATE, 3, 500000, 3, "... then the failures' share"},
    {{.failure_rate = 600000, .slow_rate = 600000, .slow_call_ms = 9, .minimum = 5}, "FFssS", QUIET, "2 of 5 and 2 of 5 do not add up"},
    {{.failure_rate = 600000, .slow_rate = 600000, .slow_call_ms = 9, .minimum = 5}, "FFssf", NEAP_BY_FAILURE_RATE, 3, 600000, 5, "a slow failure completes both"},
};
/* clang-format on */

static void failures_in_the_window(void **unused) {
  (void)unused;
  run_cases(failures_cases, COUNT_OF(failures_cases));
}

static void the_failure_rate(void **unused) {
  (void)unused;
  run_cases(failure_rate_cases, COUNT_OF(failure_rate_cases));
}

static void the_slow_rate(void **unused) {
  (void)unused;
  run_cases(slow_rate_cases, COUNT_OF(slow_rate_cases));
}

static void consecutive_failures(void **unused) {
  (void)unused;
  run_cases(consecutive_cases, COUNT_OF(consecutive_cases));
}

static void several_rules(void **unused) {
  (void)unused;
  run_cases(several_cases, COUNT_OF(several_cases));
}

/* 1,000,000 calls: the comparison is made in 64 bits and has no rounding at either side of the
 * edge. */
static void a_rate_is_exact_to_a_millionth(void **unused) {
  (void)unused;
  for (unsigned below = 0; below < 2; below++) {
    FIXTURE(f, r->failure_rate = 4001, r->minimum_calls = 1000000);
    play_times(&f, "F", 4001 - below);
    play_times(&f, "S", 1000000 - 4001 + below - 1);
    SAME(f.moves, 0, "one call below the minimum");
    play(&f, "S");
    SAME(f.moves, 1 - below, "4001 of a million are 0.004001, 4000 are not");
  }
}

static void slow_is_longer_than_slow_call_ms(void **unused) {
  (void)unused;
  const struct {
    uint32_t slow_call_ms;
    uint64_t duration_ms;
    bool slow;
  } cases[] = {
      {100, 99, false},
      {100, 100, false},
      {100, 101, true},
      {1, 1, false},
      {1, 2, true},
      {0, 3600000, false},
      {0, 1000000000000, false},
      {3600000, 3600000, false},
      {3600000, 3600001, true},
      {100, 1000000000000, true},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (int failed = 0; failed < 2; failed++) {
      FIXTURE(f, r->failures = 100, r->slow_call_ms = cases[i].slow_call_ms);
      call_with(&f, (neap_call){.outcome = failed ? NEAP_FAILURE : NEAP_SUCCESS,
                                .duration_ms = cases[i].duration_ms});
      neap_snapshot s = snapshot(&f);
      bool slow = cases[i].slow;
      SAME(s.calls, 1, "one call");
      SAME(s.success, !failed && !slow, "duration > slow_call_ms");
      SAME(s.slow_success, !failed && slow, "duration > slow_call_ms");
      SAME(s.failure, failed && !slow, "duration > slow_call_ms");
      SAME(s.slow_failure, failed && slow, "duration > slow_call_ms");
    }
}

static void a_slow_failure_counts_in_both_rates_and_once_in_all(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 100, r->slow_call_ms = 100);
  play(&f, "fSSS");
  neap_snapshot s = snapshot(&f);
  SAME(s.calls, 4, "once in all");
  SAME(s.failure_rate, 250000, "1 of 4");
  SAME(s.slow_rate, 250000, "1 of 4");
  play(&f, "FsSS");
  s = snapshot(&f);
  SAME(s.calls, 8, "the sum of the four");
  SAME(s.success + s.slow_success + s.failure + s.slow_failure, s.calls, "the sum of the four");
  SAME(s.failure_rate, 250000, "2 of 8");
  SAME(s.slow_rate, 250000, "2 of 8");
}

static void a_success_trips_when_older_successes_have_left(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 300000, r->minimum_calls = 3, r->length_ms = 1600);
  f.now_ms = 16000;
  play(&f, "SSSS +1500 FS");
  SAME(f.moves, 0, "1 of 6");
  play(&f, "+100 S");
  SAME(f.moves, 1, "four have left: 1 of 3 is over 30 %, and a success was the first to see it");
  SAME(f.moved.cause, NEAP_BY_FAILURE_RATE, "the rate");
  SAME(f.moved.measured, 1, "1");
  SAME(f.moved.calls, 3, "of 3");
}

/* A thread that was suspended between reading its clock and reporting does not hide what others
 * have reported since. */
static void a_late_failure_hides_nothing_from_the_next_success(void **unused) {
  (void)unused;
  for (uint64_t late_ms = 0; late_ms < 10000; late_ms += 100) {
    if (late_ms > 1600 && late_ms % 1600 == 0)
      continue; /* the same bucket: there a clock stepped */
    FIXTURE(f, r->failure_rate = 200000, r->minimum_calls = 10, r->length_ms = 1600);
    play(&f, "FF");
    f.now_ms -= late_ms;
    play(&f, "F");
    f.now_ms += late_ms + 200;
    uint64_t calls = snapshot(&f).calls;
    play_times(&f, "S", 10 - (unsigned)calls - 1);
    SAME(f.moves, 0, "one call below the minimum");
    play(&f, "S");
    SAME(f.moves, 1, "two or three of ten: the success that completes the minimum sees them");
  }
}

static void with_a_function_alone_the_numbers_never_trip(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->slow_call_ms = 10);
  play_times(&f, "FfTs", 1000);
  SAME(f.moves, 0, "it is the function's to say");
  play(&f, "o");
  SAME(f.moved.cause, NEAP_BY_FUNCTION, "it says so");
}

/* Thresholds are the caller's: others than those of the last call count at once. */
static void a_new_threshold_counts_from_the_next_failure(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 10);
  play(&f, "FFFF");
  f.rules.failures = 5;
  prepare(&f.rules);
  neap_breaker_adopt(&f.breaker, &f.rules);
  SAME(snapshot(&f).calls, 4, "the same window: what was counted stays");
  play(&f, "F");
  SAME(f.moves, 1, "five");
  SAME(f.moved.measured, 5, "five");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("failures in the window", failures_in_the_window),
      IT("the failure rate", the_failure_rate),
      IT("the slow rate", the_slow_rate),
      IT("consecutive failures", consecutive_failures),
      IT("any of several rules opens, and the first is named", several_rules),
      IT("a rate is exact to a millionth", a_rate_is_exact_to_a_millionth),
      IT("slow is longer than slow_call_ms", slow_is_longer_than_slow_call_ms),
      IT("a slow failure counts in both rates and once in all",
         a_slow_failure_counts_in_both_rates_and_once_in_all),
      IT("a success trips when older successes have left",
         a_success_trips_when_older_successes_have_left),
      IT("a late failure hides nothing from the next success",
         a_late_failure_hides_nothing_from_the_next_success),
      IT("with a function alone the numbers never trip",
         with_a_function_alone_the_numbers_never_trip),
      IT("a new threshold counts from the next failure",
         a_new_threshold_counts_from_the_next_failure),
  };
  return cmocka_run_group_tests_name("trip", tests, NULL, NULL);
}
