/* A count window: the last N calls. */
#include "support.h"

#include "window.h"

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

/* The first sixteen places are written in every epoch; the others only in one that lives long
 * enough, and by then their words may be so old that they look new. */
static void words_not_written_for_thousands_of_transitions_count_again(void **unused) {
  (void)unused;
  const unsigned resets[] = {1, 2047, 2048, 2049, 3000, 4094, 4095, 4096, 4097, 6200};
  for (size_t i = 0; i < COUNT_OF(resets); i++) {
    FIXTURE(f, r->window = NEAP_WINDOW_COUNT, r->calls = 100, r->failures = 40);
    play_times(&f, "S", 60);
    play_times(&f, "rS", resets[i]);
    play_times(&f, "F", 39);
    SAME(snapshot(&f).failure, 39, "each in its place");
    SAME(snapshot(&f).calls, 40, "and the success before them");
    play(&f, "F");
    SAME(f.moved.cause, NEAP_BY_FAILURES, "so it trips");
  }
}

/* They are counted in one word with the position, and moved to the totals in time. */
static void a_million_successes_are_counted(void **unused) {
  (void)unused;
  FIXTURE(f, r->window = NEAP_WINDOW_COUNT, r->calls = 10, r->failures = 5);
  for (unsigned n = 1; n <= 1000000; n++) {
    play(&f, "S");
    uint64_t unmoved = breaker_of(&f.breaker)->head & HEAD_SUCCESS_TOP;
    HOLDS(unmoved <= 65535, "no more is lost with whoever dies");
    if (n % 65535 < 2) SAME(snapshot(&f).totals.success, n, "each once");
  }
  SAME(snapshot(&f).totals.success, 1000000, "each once");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a count window is the last n calls", a_count_window_is_the_last_n_calls),
      IT("a count window knows no time", a_count_window_knows_no_time),
      IT("a count window is clean after a transition", a_count_window_is_clean_after_a_transition),
      IT("words not written for thousands of transitions count again",
         words_not_written_for_thousands_of_transitions_count_again),
      IT("a million successes are counted", a_million_successes_are_counted),
  };
  return cmocka_run_group_tests_name("count window", tests, NULL, NULL);
}
