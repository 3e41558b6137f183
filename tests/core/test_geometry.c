/* The shape of a window belongs to the breaker, and adopting other rules changes it. */
#include "support.h"

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

/* Rules of another length than the breaker's are judged by the breaker's window, until they are
 * adopted. */
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

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("another geometry empties the window and nothing else",
         another_geometry_empties_the_window_and_nothing_else),
      IT("adopting the same changes nothing", adopting_the_same_changes_nothing),
      IT("probes go on through another geometry", probes_go_on_through_another_geometry),
      IT("the geometry is the breaker's", the_geometry_is_the_breakers),
      IT("totals survive any change of geometry", totals_survive_any_change_of_geometry),
  };
  return cmocka_run_group_tests_name("geometry", tests, NULL, NULL);
}
