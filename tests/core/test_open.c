/* How long a breaker stays open: cooldown, backoff, cap, jitter, flapping, Retry-After. */
#include "support.h"

/* ---- How long it stays open ---- */

static void cooldowns_back_off_up_to_the_cap(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 100, r->max_cooldown_ms = 1000, r->backoff = 3000000,
          r->probes = 1, r->successes = 1);
  const uint64_t want[] = {100, 300, 900, 1000, 1000};
  play(&f, "F");
  for (size_t i = 0; i < COUNT_OF(want); i++) {
    SAME(f.moved.open_ms, want[i], "100 * 3^n, 1,000 at most");
    SAME(f.moved.level, i + 1, "each failed round is a level");
    f.now_ms += want[i] - 1;
    SAME(ask(&f), NEAP_REFUSE_OPEN, "not before");
    play(&f, "+1 F");
  }
}

static void the_level_stops_at_31(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 10, r->max_cooldown_ms = 1000, r->probes = 1,
          r->successes = 1);
  play(&f, "F");
  play_times(&f, "+1000 F", 40);
  SAME(f.moved.level, 31, "31 at most");
  SAME(snapshot(&f).level, 31, "31 at most");
}

static void jitter_only_lengthens_and_is_bounded(void **unused) {
  (void)unused;
  uint64_t least = UINT64_MAX, most = 0;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 10000, r->jitter = 250000, r->seed = seed);
    play(&f, "F");
    HOLDS(f.moved.open_ms >= 10000 && f.moved.open_ms <= 12500, "1 to 1.25 times 10,000");
    if (f.moved.open_ms < least) least = f.moved.open_ms;
    if (f.moved.open_ms > most) most = f.moved.open_ms;
    f.now_ms += f.moved.open_ms - 1;
    SAME(ask(&f), NEAP_REFUSE_OPEN, "the transition said how long");
    f.now_ms += 1;
    SAME(ask(&f), NEAP_ALLOW_PROBE, "the transition said how long");
  }
  HOLDS(least < 10050 && most > 12450, "all of the range is used");
}

static void jitter_comes_on_top_of_the_cap(void **unused) {
  (void)unused;
  uint64_t most = 0;
  for (uint64_t seed = 0; seed < 200; seed++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 1000,
            r->jitter = NEAP_ONE, r->seed = seed);
    play(&f, "F");
    if (f.moved.open_ms > most) most = f.moved.open_ms;
  }
  HOLDS(most > 1900 && most <= 2000, "up to twice the cap");
}

static void the_same_seed_gives_the_same_cooldowns(void **unused) {
  (void)unused;
  uint64_t first[10];
  bool differs = false;
  for (int run = 0; run < 3; run++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 10000, r->jitter = 500000, r->probes = 1,
            r->successes = 1, r->seed = run < 2 ? 7 : 8, r->backoff = NEAP_ONE);
    f.now_ms += (uint64_t)run * 12345;
    play(&f, "F");
    for (size_t i = 0; i < COUNT_OF(first); i++, play(&f, "+20000 F")) {
      if (run == 0) first[i] = f.moved.open_ms;
      if (run == 1) SAME(f.moved.open_ms, first[i], "a function of seed and epoch");
      if (run == 2 && f.moved.open_ms != first[i]) differs = true;
      if (run == 0 && i > 0) differs = differs || first[i] != first[0];
    }
    if (run != 1) HOLDS(differs, "epochs differ; seeds differ");
    differs = false;
  }
}

/* ---- Flapping ---- */

static fixture closed_at_level(unsigned level) {
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 60000, r->probes = 1,
          r->successes = 1);
  play(&f, "F");
  for (unsigned i = 1; i < level; i++) play(&f, "+60000 F");
  play(&f, "+60000 S");
  return f;
}

static void a_trip_soon_after_closing_goes_on_with_the_backoff(void **unused) {
  (void)unused;
  const struct {
    unsigned level;
    uint64_t after_ms;
    bool flapping;
  } cases[] = {{1, 0, true},     {1, 999, true},   {1, 1000, false}, {1, 1001, false},
               {2, 1999, true},  {2, 2000, false}, {3, 3999, true},  {3, 4000, false},
               {9, 59999, true}, {9, 60000, false}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    fixture f = closed_at_level(cases[i].level);
    SAME(snapshot(&f).level, cases[i].level, "closing keeps the level");
    f.now_ms += cases[i].after_ms;
    play(&f, "F");
    SAME(f.moved.flapping, cases[i].flapping, "within cooldown(level) of closing");
    SAME(f.moved.level, cases[i].flapping ? cases[i].level + 1 : 1, "the backoff goes on, or anew");
    SAME(snapshot(&f).totals.flaps, cases[i].flapping, "counted");
  }
}

static void the_first_trip_of_all_is_no_flapping(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1);
  f.now_ms = 0;
  play(&f, "F");
  SAME(f.moved.flapping, false, "level 0 remembers nothing");
  SAME(f.moved.level, 1, "level 0 remembers nothing");
}

static void nor_is_one_after_a_reset(void **unused) {
  (void)unused;
  fixture f = closed_at_level(3);
  play(&f, "rF");
  SAME(f.moved.flapping, false, "a reset forgets the level");
  SAME(f.moved.level, 1, "a reset forgets the level");
}

/* ---- Open time from the answer ---- */

static void retry_after_lengthens_what_this_report_opens(void **unused) {
  (void)unused;
  const int64_t year_ms = INT64_C(365) * 86400000;
  const struct {
    int64_t retry_after_ms;
    uint64_t open_ms, ignored;
    const char *because;
  } cases[] = {
      {0, 1000, 0, "did not ask"},
      {1, 1000, 0, "shorter than the cooldown"},
      {1000, 1000, 0, "as long"},
      {1001, 1001, 0, "longer"},
      {30000, 30000, 0, "up to the cap"},
      {30001, 30000, 0, "no longer than the cap"},
      {86400000, 30000, 0, "no longer than the cap"},
      {-1, 1000, 1, "negative"},
      {INT64_MIN, 1000, 1, "negative"},
      {year_ms, 30000, 0, "no longer than the cap"},
      {2 * year_ms, 1000, 1, "absurd"},
      {INT64_MAX, 1000, 1, "absurd"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
    call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = cases[i].retry_after_ms});
    SAME(f.moved.open_ms, cases[i].open_ms, cases[i].because);
    SAME(snapshot(&f).retry_after_ms, cases[i].open_ms, cases[i].because);
    SAME(snapshot(&f).totals.retry_ignored, cases[i].ignored, cases[i].because);
  }
}

static void retry_after_of_a_probe_counts_too(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000, r->probes = 1,
          r->successes = 1);
  play(&f, "F +1000");
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 7000});
  SAME(f.moved.open_ms, 7000, "longer than the cooldown of level 2");
  f.now_ms += 7000;
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 3999});
  SAME(f.moved.open_ms, 4000, "shorter than that of level 3");
}

static void retry_after_of_a_report_that_opens_nothing_is_nothing(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
  call_with(&f, (neap_call){.outcome = NEAP_FAILURE, .retry_after_ms = 7000});
  play(&f, "F");
  SAME(f.moved.open_ms, 1000, "only of the report that opens");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("cooldowns back off up to the cap", cooldowns_back_off_up_to_the_cap),
      IT("the level stops at 31", the_level_stops_at_31),
      IT("jitter only lengthens, and is bounded", jitter_only_lengthens_and_is_bounded),
      IT("jitter comes on top of the cap", jitter_comes_on_top_of_the_cap),
      IT("the same seed gives the same cooldowns", the_same_seed_gives_the_same_cooldowns),
      IT("a trip soon after closing goes on with the backoff",
         a_trip_soon_after_closing_goes_on_with_the_backoff),
      IT("the first trip of all is no flapping", the_first_trip_of_all_is_no_flapping),
      IT("nor is one after a reset", nor_is_one_after_a_reset),
      IT("Retry-After lengthens what this report opens",
         retry_after_lengthens_what_this_report_opens),
      IT("Retry-After of a probe counts too", retry_after_of_a_probe_counts_too),
      IT("Retry-After of a report that opens nothing is nothing",
         retry_after_of_a_report_that_opens_nothing_is_nothing),
  };
  return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
