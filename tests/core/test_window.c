/* A time window: what it remembers and for how long. */
#include "support.h"

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

/* Where nothing was counted for thousands of transitions the old words look newer than now: they
 * must not hold a report. */
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

/* So is what tells successes that they have to look. */
static void a_very_old_mark_is_overwritten(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 2; kind++)
    for (unsigned resets = 2040; resets < 2056; resets++) {
      FIXTURE(f, r->window = kind ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME, r->failure_rate = 250000,
              r->minimum_calls = 4);
      play(&f, "F");
      for (unsigned i = 0; i < resets; i++) play(&f, "r");
      uint64_t resets_moved = f.moves;
      play(&f, "FSS");
      SAME(f.moves, resets_moved, "three are too few");
      play(&f, "S");
      SAME(f.moves, resets_moved + 1, "the success that makes it four, one of them failed");
    }
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
      IT("nothing from before a transition is ever counted",
         nothing_from_before_a_transition_is_ever_counted),
      IT("very old words are overwritten", very_old_words_are_overwritten),
      IT("a very old mark is overwritten", a_very_old_mark_is_overwritten),
  };
  return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
