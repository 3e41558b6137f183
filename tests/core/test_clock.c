/* Where time comes from: system clocks, a manual one, one of the host's own. */
#define _POSIX_C_SOURCE 200809L
#include "support.h"

#include <time.h>

static uint64_t system_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void check_follows_the_system(neap_clock clock, uint64_t step_ms) {
  uint64_t last = 0;
  for (int i = 0; i < 10000; i++) {
    uint64_t before = system_now_ms();
    uint64_t now = clock.now_ms(clock.context);
    uint64_t after = system_now_ms();
    HOLDS(now + step_ms >= before, "no older than one step");
    HOLDS(now <= after, "never ahead");
    HOLDS(now >= last, "never back");
    last = now;
  }
}

static void the_precise_clock_is_the_systems(void **unused) {
  (void)unused;
  check_follows_the_system(neap_clock_precise(), 1);
}

static void the_coarse_clock_is_hardly_behind(void **unused) {
  (void)unused;
  struct timespec step;
  clock_getres(CLOCK_MONOTONIC_COARSE, &step);
  check_follows_the_system(neap_clock_coarse(),
                           (uint64_t)step.tv_nsec / 1000000 + 100); /* a late tick */
}

static void a_manual_clock_stands_still_until_it_is_moved(void **unused) {
  (void)unused;
  uint64_t now_ms = 41;
  neap_clock clock = neap_clock_manual(&now_ms);
  SAME(clock.now_ms(clock.context), 41, "the variable");
  SAME(clock.now_ms(clock.context), 41, "the same again");
  now_ms = UINT64_MAX;
  SAME(clock.now_ms(clock.context), UINT64_MAX, "any value");
}

/* A clock that counts how often it is read. */
typedef struct counting_clock {
  uint64_t now_ms;
  unsigned reads;
} counting_clock;

static uint64_t counting_clock_read(void *context) {
  counting_clock *clock = context;
  clock->reads++;
  return clock->now_ms;
}

static void a_closed_acquire_reads_no_clock(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000);
  counting_clock mine = {.now_ms = 5000};
  neap_clock clock = {counting_clock_read, &mine};
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  SAME(neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, NULL), NEAP_ALLOW, "closed");
  SAME(mine.reads, 0, "a closed acquire needs no time");
  SAME(neap_breaker_report_on(&f.breaker, &f.rules, &clock, &permit, &failure, NULL), NEAP_COUNTED,
       "counted");
  SAME(mine.reads, 1, "a report reads the clock once");
  SAME(neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, NULL), NEAP_REFUSE_OPEN,
       "open");
  SAME(mine.reads, 2, "an open acquire reads it once");
}

static void the_whole_cycle_runs_on_a_clock(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  uint64_t now_ms = 5000;
  neap_clock clock = neap_clock_manual(&now_ms);
  neap_permit permit = {0};
  neap_call call = {.outcome = NEAP_FAILURE};
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, &moved);
  neap_breaker_report_on(&f.breaker, &f.rules, &clock, &permit, &call, &moved);
  SAME(moved.to, NEAP_OPEN, "one failure opens");
  now_ms = 5999;
  SAME(neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, &moved), NEAP_REFUSE_OPEN,
       "the cooldown");
  now_ms = 6000;
  SAME(neap_breaker_acquire_on(&f.breaker, &f.rules, &clock, &permit, &moved), NEAP_ALLOW_PROBE,
       "its end");
  call.outcome = NEAP_SUCCESS;
  neap_breaker_report_on(&f.breaker, &f.rules, &clock, &permit, &call, &moved);
  SAME(moved.to, NEAP_CLOSED, "one success closes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("the precise clock is the system's monotonic one", the_precise_clock_is_the_systems),
      IT("the coarse clock is hardly behind", the_coarse_clock_is_hardly_behind),
      IT("a manual clock stands still until it is moved",
         a_manual_clock_stands_still_until_it_is_moved),
      IT("a closed acquire reads no clock, anything else reads it once",
         a_closed_acquire_reads_no_clock),
      IT("the whole cycle runs on a clock", the_whole_cycle_runs_on_a_clock),
  };
  return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
