/* What the window remembers and for how long; clocks of every kind. */
#include "support.h"

#include <stdatomic.h>

#include "window.h"

/* ---- Time window: how long ---- */

static const uint32_t lengths[] = {100,   101,   115,   160,   1000,   2000,
                                   10000, 59999, 60000, 61000, 240000, 3600000};

static uint64_t failures_seen(const fixture *f, uint64_t at_ms) {
  neap_snapshot s;
  neap_breaker_snapshot(&f->breaker, &f->rules, at_ms, &s);
  return s.failure;
}

static void a_call_counts_for_a_window_less_a_bucket_at_most(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    const uint64_t length = lengths[i], slice = length / 16;
    const uint64_t starts[] = {0, 1, slice - 1, slice, slice + 1, 12345678901, UINT64_C(1) << 60};
    for (size_t k = 0; k < COUNT_OF(starts); k++) {
      FIXTURE(f, r->failures = 2, r->length_ms = (uint32_t)length);
      f.now_ms = starts[k];
      play(&f, "F");
      SAME(failures_seen(&f, f.now_ms), 1, "at once");
      SAME(failures_seen(&f, f.now_ms + 15 * slice), 1, "15 of 16 buckets later it still counts");
      SAME(failures_seen(&f, f.now_ms + length), 0, "a whole length later it does not");
      SAME(failures_seen(&f, f.now_ms + length + 1), 0, "nor after that");
      SAME(failures_seen(&f, f.now_ms + 16 * length), 0, "nor when its bucket comes round again");
    }
  }
}

static void failures_spread_wider_than_the_window_never_open_it(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    FIXTURE(f, r->failures = 2, r->length_ms = lengths[i]);
    for (int n = 0; n < 1000; n++) {
      play(&f, "F");
      f.now_ms += lengths[i] + (uint64_t)(n % 3);
    }
    SAME(f.moves, 0, "one at a time");
    play(&f, "F");
    f.now_ms += lengths[i] / 16 * 15;
    play(&f, "F");
    SAME(f.moves, 1, "two within 15 of 16 buckets do");
  }
}

static void failures_of_one_window_open_it_wherever_it_begins(void **unused) {
  (void)unused;
  for (uint64_t start = 0; start < 1600; start += 7) {
    FIXTURE(f, r->failures = 16, r->length_ms = 1600);
    f.now_ms = start;
    for (int n = 0; n < 15; n++) play(&f, "F +100");
    SAME(f.moves, 0, "one below");
    play(&f, "F");
    SAME(f.moves, 1, "sixteen, one in each bucket");
    SAME(f.moved.measured, 16, "sixteen, one in each bucket");
  }
}

/* The same calls, counted again from a list each time. */
static void a_window_slides_bucket_by_bucket(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1000000, r->length_ms = 1600);
  uint64_t seed = random_seed(7), at[20000], n = 0;
  f.now_ms = 777;
  for (int i = 0; i < 20000; i++) {
    f.now_ms += random_below(&seed, 100) < 97 ? random_below(&seed, 40) : random_below(&seed, 4000);
    at[n++] = f.now_ms;
    play(&f, "F");
    uint64_t want = 0;
    for (uint64_t k = n; k-- > 0 && at[k] / 100 + 16 > f.now_ms / 100;) want++;
    SAME(snapshot(&f).failure, want, "those of the last 16 slices of 100 ms");
  }
}

static void an_idle_gap_of_any_length_empties_it(void **unused) {
  (void)unused;
  const uint64_t year_ms = UINT64_C(365) * 86400000;
  const uint64_t gaps[] = {10000,
                           20000,
                           86400000,
                           year_ms,
                           50 * year_ms,
                           1000 * year_ms,
                           UINT64_C(1) << 31,
                           UINT64_C(1) << 32,
                           UINT64_C(1) << 40,
                           UINT64_C(1) << 53};
  for (size_t i = 0; i < COUNT_OF(gaps); i++) {
    FIXTURE(f, r->failures = 3, r->failure_rate = 500000, r->minimum_calls = 3);
    play(&f, "FF");
    f.now_ms += gaps[i];
    SAME(snapshot(&f).calls, 0, "empty");
    play(&f, "F");
    SAME(f.moves, 0, "one of three");
    SAME(snapshot(&f).calls, 1, "itself");
    play(&f, "FF");
    SAME(f.moves, 1, "three of three");
  }
}

static void a_round_of_laps_is_not_mistaken_for_now(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->length_ms = 1600);
  f.now_ms = 160000000;
  for (unsigned bits = 4; bits < 27; bits++) {
    play(&f, "F");
    f.now_ms += (UINT64_C(1) << bits) * 100;
    SAME(snapshot(&f).calls, 0, "the same bucket, many laps later");
  }
  SAME(f.moves, 0, "one at a time");
}

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

/* A deadline that lies further ahead than any cooldown of the rules and a minute was made by a clock that has stepped back. */
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

/* Slices are counted from 0, so where the clock wraps through 0 the window may forget, once in 584 million years; it counts nothing
 * twice and nothing old, and goes on. */
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

/* The engine divides by multiplying: near every power of two and every edge of a slice it must come out as division does. */
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

/* ---- Count window ---- */

static void a_count_window_is_the_last_n_calls(void **unused) {
  (void)unused;
  const uint32_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 100, 1023, 1024};
  uint64_t seed = random_seed(11);
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    const uint32_t n = sizes[i];
    FIXTURE(f, r->window = NEAP_WINDOW_COUNT, r->calls = n, r->trip_by_function = true,
            r->slow_call_ms = 10);
    const char letters[] = "SsFfNA";
    char history[4096];
    size_t length = 0;
    while (length < sizeof history) {
      char letter[2] = {letters[random_below(&seed, 6)], 0};
      f.now_ms += random_below(&seed, 1000000);
      play(&f, letter);
      if (letter[0] == 'N' || letter[0] == 'A') continue;
      history[length++] = letter[0];
      uint64_t want[4] = {0};
      for (size_t k = length > n ? length - n : 0; k < length; k++)
        want[strchr(letters, history[k]) - letters]++;
      neap_snapshot s = snapshot(&f);
      SAME(s.success, want[0], "of the last n");
      SAME(s.slow_success, want[1], "of the last n");
      SAME(s.failure, want[2], "of the last n");
      SAME(s.slow_failure, want[3], "of the last n");
      SAME(s.calls, length > n ? n : length, "n at most");
      SAME(s.window_length, n, "n");
    }
  }
}

static void a_count_window_knows_no_time(void **unused) {
  (void)unused;
  FIXTURE(f, r->window = NEAP_WINDOW_COUNT, r->calls = 4, r->failures = 3);
  play(&f, "F");
  f.now_ms += UINT64_C(1) << 50;
  play(&f, "F");
  f.now_ms -= UINT64_C(1) << 49;
  play(&f, "F");
  SAME(f.moves, 1, "three of the last four, whenever they were");
}

static void a_count_window_is_clean_after_a_transition(void **unused) {
  (void)unused;
  FIXTURE(f, r->window = NEAP_WINDOW_COUNT, r->calls = 20, r->failures = 3, r->cooldown_ms = 1000,
          r->probes = 1, r->successes = 1);
  play(&f, "SSSSSSSSSSSSSSSSSFFF +1000 S");
  SAME(snapshot(&f).calls, 0, "clean");
  play(&f, "SFSF");
  SAME(snapshot(&f).calls, 4, "from one on");
  SAME(snapshot(&f).failure, 2, "from one on");
  play(&f, "F");
  SAME(f.moved.measured, 3, "three");
}

/* ---- A clean window after every transition ---- */

static void nothing_from_before_a_transition_is_ever_counted(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 2; kind++) {
    FIXTURE(f, r->window = kind ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME, r->failures = 3,
            r->cooldown_ms = 10, r->max_cooldown_ms = 10, r->probes = 1, r->successes = 1);
    play_times(&f, "S", 90);         /* words that nobody writes again */
    for (int i = 0; i < 5000; i++) { /* more than the 4,096 that a tag tells apart */
      play(&f, "FSF");
      SAME(snapshot(&f).calls, i == 0 ? 93 : 3, "these");
      play(&f, "F +10 S");
      SAME(state(&f), NEAP_CLOSED, "round and round");
      SAME(snapshot(&f).calls, 0, "clean");
    }
  }
}

/* Where nothing was counted for thousands of transitions the old words look newer than now: they must not hold a report. */
static void very_old_words_are_overwritten(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 2; kind++)
    for (unsigned resets = 2040; resets < 2056; resets++) {
      FIXTURE(f, r->window = kind ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME, r->failures = 3);
      play(&f, "SFsFS");
      for (unsigned i = 0; i < resets; i++) play(&f, "r");
      SAME(snapshot(&f).calls, 0, "clean");
      play(&f, "SSFF");
      SAME(snapshot(&f).calls, 4, "counted");
      play(&f, "F");
      SAME(f.moved.measured, 3, "and judged");
      SAME(snapshot(&f).totals.success, 5, "and nothing lost on the way");
      SAME(snapshot(&f).totals.failure, 5, "and nothing lost on the way");
    }
}

/* ---- Geometry ---- */

static void adopt(fixture *f, neap_window_kind kind, uint32_t length_ms, uint32_t calls) {
  f->rules.window = kind;
  f->rules.length_ms = length_ms;
  f->rules.calls = calls;
  f->rules.minimum_calls = 0; /* derived anew */
  prepare(&f->rules);
  neap_breaker_adopt(&f->breaker, &f->rules);
}

static void another_geometry_empties_the_window_and_nothing_else(void **unused) {
  (void)unused;
  const struct {
    neap_window_kind kind;
    uint32_t length_ms, calls;
  } shapes[] = {{NEAP_WINDOW_TIME, 1000, 100},   {NEAP_WINDOW_TIME, 2000, 100},
                {NEAP_WINDOW_COUNT, 2000, 100},  {NEAP_WINDOW_COUNT, 2000, 50},
                {NEAP_WINDOW_COUNT, 2000, 1024}, {NEAP_WINDOW_TIME, 3600000, 7}};
  for (size_t from = 0; from < COUNT_OF(shapes); from++)
    for (size_t to = 0; to < COUNT_OF(shapes); to++) {
      FIXTURE(f, r->failures = 6, r->window = shapes[from].kind,
              r->length_ms = shapes[from].length_ms, r->calls = shapes[from].calls);
      play(&f, "SFFNF<");
      uint32_t epoch = snapshot(&f).epoch;
      adopt(&f, shapes[to].kind, shapes[to].length_ms, shapes[to].calls);
      neap_snapshot s = snapshot(&f);
      SAME(s.calls, from == to ? 4 : 0, "empty, if it differs");
      SAME(s.window, shapes[to].kind, "the new kind");
      SAME(s.window_length,
           shapes[to].kind == NEAP_WINDOW_TIME ? shapes[to].length_ms : shapes[to].calls,
           "its length");
      SAME(s.epoch, epoch, "no transition");
      SAME(f.moves, 0, "no transition");
      SAME(s.totals.success, 1, "totals go on");
      SAME(s.totals.failure, 3, "totals go on");
      play(&f, ">F");
      SAME(snapshot(&f).failure, from == to ? 4 : 1, "a call in flight goes on");
      play_times(&f, "F", from == to ? 2 : 5);
      SAME(f.moves, 1, "six");
      SAME(snapshot(&f).totals.failure, from == to ? 6 : 9, "totals go on");
    }
}

static void adopting_the_same_changes_nothing(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 5);
  play(&f, "FF");
  neap_breaker before = f.breaker;
  f.rules.failures = 7;
  f.rules.cooldown_ms = 77;
  f.rules.calls = 77; /* not of a time window */
  prepare(&f.rules);
  neap_breaker_adopt(&f.breaker, &f.rules);
  SAME(memcmp(&before, &f.breaker, sizeof before), 0, "kind and length are as they were");
}

static void probes_go_on_through_another_geometry(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  play(&f, "F +1000 S<");
  adopt(&f, NEAP_WINDOW_COUNT, 10000, 20);
  neap_snapshot s = snapshot(&f);
  SAME(s.state, NEAP_HALF_OPEN, "the round goes on");
  SAME(s.probes_in_flight, 1, "the round goes on");
  SAME(s.probes_succeeded, 1, "the round goes on");
  play(&f, ">S");
  SAME(state(&f), NEAP_CLOSED, "and is decided");
}

/* Rules of another length than the breaker's are judged by the breaker's window, until they are adopted. */
static void the_geometry_is_the_breakers(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 3, r->length_ms = 10000);
  play(&f, "F +5000 F");
  f.rules.length_ms = 1000;
  prepare(&f.rules);
  SAME(snapshot(&f).failure, 2, "ten seconds still");
  SAME(snapshot(&f).window_length, 10000, "ten seconds still");
  play(&f, "F");
  SAME(f.moves, 1, "three in ten seconds");
}

static void totals_survive_any_change_of_geometry(void **unused) {
  (void)unused;
  uint64_t seed = random_seed(13);
  FIXTURE(f, r->trip_by_function = true, r->slow_call_ms = 10);
  uint64_t want[4] = {0};
  const char letters[] = "SsFf";
  for (int i = 0; i < 20000; i++) {
    unsigned pick = (unsigned)random_below(&seed, 4);
    char letter[2] = {letters[pick], 0};
    play(&f, letter);
    want[pick]++;
    f.now_ms += random_below(&seed, 2000);
    if (random_below(&seed, 20) == 0)
      adopt(&f, random_below(&seed, 2) ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME,
            100 + (uint32_t)random_below(&seed, 20000), 1 + (uint32_t)random_below(&seed, 1024));
    if (random_below(&seed, 50) == 0) play(&f, "r");
    neap_snapshot s = snapshot(&f);
    SAME(s.totals.success, want[0], "each only grows");
    SAME(s.totals.slow_success, want[1], "each only grows");
    SAME(s.totals.failure, want[2], "each only grows");
    SAME(s.totals.slow_failure, want[3], "each only grows");
  }
}

/* ---- Full counters ---- */

/* Sets a counter of the current slice, as if so many calls had been. */
static void preset(fixture *f, unsigned kind, uint64_t count) {
  neap__breaker *b = breaker_of(&f->breaker);
  window_place at = neap__window_place(b, &f->rules, snapshot(f).epoch, f->now_ms);
  neap__word *cell = &b->cells[at.slice % NEAP__SLICES * NEAP__KINDS + kind];
  word_store(cell, cell_base(at.tag, at.slice) | count);
}

static void a_full_counter_does_not_distort_a_rate(void **unused) {
  (void)unused;
  const unsigned kinds[] = {KIND_SUCCESS, KIND_FAILURE};
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    FIXTURE(f, r->failure_rate = 990000, r->slow_call_ms = 10);
    play(&f, "SF");
    /* one kind is about to be full, the other has a quarter of that: 20 % or 80 % */
    preset(&f, kinds[i], COUNT_TOP - 50);
    preset(&f, kinds[1 - i], (COUNT_TOP - 50) / 4);
    uint32_t before = snapshot(&f).failure_rate;
    uint64_t most = 0;
    for (int n = 0; n < 2000; n++) {
      play(&f, kinds[i] == KIND_FAILURE ? "FFFFS" : "SSSSF");
      neap_snapshot s = snapshot(&f);
      if (s.calls > most) most = s.calls;
      HOLDS(s.failure_rate + 10 > before && s.failure_rate < before + 10, "within ten millionths");
    }
    SAME(f.moves, 0, "never over the limit");
    HOLDS(most > COUNT_TOP, "it was full");
    HOLDS(snapshot(&f).calls < most / 4 * 3, "then all were halved, so that there is room again");
  }
}

static void a_full_counter_loses_no_total(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true);
  play(&f, "SF");
  preset(&f, KIND_SUCCESS, COUNT_TOP - 3);
  uint64_t before = snapshot(&f).totals.success;
  for (uint64_t n = 1; n <= 10; n++) {
    play(&f, "S");
    SAME(snapshot(&f).totals.success, before + n, "one more");
    SAME(snapshot(&f).totals.failure, 1, "as it was");
  }
}

/* 2^32 calls in a window, 16 slices nearly full: sums are 64 bits wide. */
static void sums_do_not_wrap_at_32_bits(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->length_ms = 1600);
  f.now_ms = 160000;
  for (int i = 0; i < 16; i++) {
    play(&f, "SF");
    preset(&f, KIND_SUCCESS, COUNT_TOP - 100);
    preset(&f, KIND_FAILURE, COUNT_TOP / 2);
    if (i < 15) f.now_ms += 100;
  }
  neap_snapshot s = snapshot(&f);
  SAME(s.success, 16 * (COUNT_TOP - 100), "over 2^31");
  HOLDS(s.calls > UINT64_C(6000000000), "over 2^32");
  HOLDS(s.failure_rate > 333000 && s.failure_rate < 334000, "a third");
  play(&f, "F");
  SAME(f.moves, 0, "under a half");
}

static void totals_go_past_32_bits(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->length_ms = 1600);
  for (int i = 0; i < 40; i++) {
    play(&f, "S");
    preset(&f, KIND_SUCCESS, COUNT_TOP - 100);
    f.now_ms += 100;
  }
  uint64_t before = snapshot(&f).totals.success;
  HOLDS(before > UINT64_C(10000000000), "over 2^33");
  play(&f, "S");
  SAME(snapshot(&f).totals.success, before + 1, "one more");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a call counts for a window, less a bucket at most",
         a_call_counts_for_a_window_less_a_bucket_at_most),
      IT("failures spread wider than the window never open it",
         failures_spread_wider_than_the_window_never_open_it),
      IT("failures of one window open it wherever it begins",
         failures_of_one_window_open_it_wherever_it_begins),
      IT("a window slides bucket by bucket", a_window_slides_bucket_by_bucket),
      IT("an idle gap of any length empties it", an_idle_gap_of_any_length_empties_it),
      IT("a round of laps is not mistaken for now", a_round_of_laps_is_not_mistaken_for_now),
      IT("a clock a little back counts all the same", a_clock_a_little_back_counts_all_the_same),
      IT("a report from a window ago is not lost", a_report_from_a_window_ago_is_not_lost),
      IT("a clock far back starts anew", a_clock_far_back_starts_anew),
      IT("a step back is counted", a_step_back_is_counted),
      IT("a step forward is an idle gap", a_step_forward_is_an_idle_gap),
      IT("no step back holds it open", no_step_back_holds_it_open),
      IT("no step back holds a lost probe", no_step_back_holds_a_lost_probe),
      IT("a step back just after closing is an age of zero",
         a_step_back_just_after_closing_is_an_age_of_zero),
      IT("deadlines are exact at every start", deadlines_are_exact_at_every_start),
      IT("windows are right at every start", windows_are_right_at_every_start),
      IT("through zero the window may forget, but goes on",
         through_zero_the_window_may_forget_but_goes_on),
      IT("slices are what division says", slices_are_what_division_says),
      IT("where laps wrap nothing is lost", where_laps_wrap_nothing_is_lost),
      IT("a count window is the last n calls", a_count_window_is_the_last_n_calls),
      IT("a count window knows no time", a_count_window_knows_no_time),
      IT("a count window is clean after a transition", a_count_window_is_clean_after_a_transition),
      IT("nothing from before a transition is ever counted",
         nothing_from_before_a_transition_is_ever_counted),
      IT("very old words are overwritten", very_old_words_are_overwritten),
      IT("another geometry empties the window and nothing else",
         another_geometry_empties_the_window_and_nothing_else),
      IT("adopting the same changes nothing", adopting_the_same_changes_nothing),
      IT("probes go on through another geometry", probes_go_on_through_another_geometry),
      IT("the geometry is the breaker's", the_geometry_is_the_breakers),
      IT("totals survive any change of geometry", totals_survive_any_change_of_geometry),
      IT("a full counter does not distort a rate", a_full_counter_does_not_distort_a_rate),
      IT("a full counter loses no total", a_full_counter_loses_no_total),
      IT("sums do not wrap at 32 bits", sums_do_not_wrap_at_32_bits),
      IT("totals go past 32 bits", totals_go_past_32_bits),
  };
  return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
