#include "paths.h"

#include <stdlib.h>
#include <string.h>

/* Keeps the compiler from knowing what memory holds; no instruction. */
#define EMPTY_OPERATION() __asm__ volatile("" ::: "memory")

#define START_MS 1000000u

/* ---- subjects ---- */

static void subject_start(bench_subject *s, neap_rules rules) {
  rules.backoff = NEAP_ONE;
  rules.jitter = 0;
  if (!neap_rules_prepare(&rules, NULL)) abort();
  s->rules = rules;
  s->now_ms = START_MS;
  s->clock = neap_clock_coarse();
  memset(s->breaker, 0, sizeof *s->breaker);
  neap_breaker_adopt(s->breaker, &s->rules);
}

/* Two rules on, as in most policies: half of the calls, or ten in a row. */
static neap_rules usual_rules(void) {
  neap_rules r = neap_rules_default();
  r.failure_rate = NEAP_ONE / 2;
  r.consecutive_failures = 10;
  return r;
}

static void pair(bench_subject *s, neap_outcome outcome, uint64_t duration_ms) {
  neap_permit permit;
  neap_call call = {.outcome = outcome, .duration_ms = duration_ms};
  if (neap_breaker_acquire(s->breaker, &s->rules, s->now_ms, &permit, NULL) > NEAP_ALLOW_BYPASS)
    abort(); /* what is measured would not be what the name says */
  EMPTY_OPERATION();
  neap_breaker_report(s->breaker, &s->rules, s->now_ms, &permit, &call, NULL);
}

static void prepare_closed(bench_subject *s) {
  subject_start(s, usual_rules());
  pair(s, NEAP_SUCCESS, 0);
}

static void prepare_flight(bench_subject *s) {
  neap_rules r = usual_rules();
  r.slow_rate = NEAP_ONE / 2;
  r.slow_call_ms = 1000;
  subject_start(s, r);
  s->flight = (neap_flight){{0}};
  pair(s, NEAP_SUCCESS, 0);
}

/* A ramp that is over: the state is closed, at a level. */
static void prepare_ramp(bench_subject *s) {
  neap_rules r = usual_rules();
  r.ramp_ms = 1000;
  r.probes = r.successes = 1;
  subject_start(s, r);
  if (neap_breaker_trip(s->breaker, &s->rules, s->now_ms, 1, NULL) != NEAP_OK) abort();
  s->now_ms += 1;
  pair(s, NEAP_SUCCESS, 0);
  s->now_ms += 1000;
  pair(s, NEAP_SUCCESS, 0);
}

/* Slices so long that the real clock will not reach the next one. */
static void prepare_coarse(bench_subject *s) {
  neap_rules r = usual_rules();
  r.length_ms = 3600000;
  subject_start(s, r);
  s->now_ms = s->clock.now_ms(s->clock.context);
  pair(s, NEAP_SUCCESS, 0);
}

static void prepare_precise(bench_subject *s) {
  prepare_coarse(s);
  s->clock = neap_clock_precise();
  s->now_ms = s->clock.now_ms(s->clock.context);
  pair(s, NEAP_SUCCESS, 0);
}

/* All 16 slices hold calls, a tenth of them failures if asked. */
static void prepare_full(bench_subject *s, neap_rules rules, bool with_failures) {
  subject_start(s, rules);
  for (unsigned i = 0; i < 16 * 100; i++) {
    s->now_ms = START_MS + i / 100 * (s->rules.length_ms / 16);
    pair(s, with_failures && i % 10 == 9 ? NEAP_FAILURE : NEAP_SUCCESS, 0);
  }
}

static void prepare_successes(bench_subject *s) { prepare_full(s, usual_rules(), false); }
static void prepare_failures(bench_subject *s) { prepare_full(s, usual_rules(), true); }

static void prepare_ring(bench_subject *s) {
  neap_rules r = usual_rules();
  r.window = NEAP_WINDOW_COUNT;
  subject_start(s, r);
  for (unsigned i = 0; i < 200; i++) pair(s, NEAP_SUCCESS, 0);
}

static void start_open(bench_subject *s, bool count_refusals) {
  neap_rules r = usual_rules();
  r.cooldown_ms = r.max_cooldown_ms = 86400000;
  r.count_refusals = count_refusals;
  subject_start(s, r);
  s->now_ms = s->clock.now_ms(s->clock.context); /* both entries may be used */
  if (neap_breaker_trip(s->breaker, &s->rules, s->now_ms, 0, NULL) != NEAP_OK) abort();
}

static void prepare_open(bench_subject *s) { start_open(s, false); }
static void prepare_open_counted(bench_subject *s) { start_open(s, true); }

static void prepare_half_open(bench_subject *s) {
  start_open(s, true);
  s->now_ms += s->rules.cooldown_ms;
}

static void prepare_cycle(bench_subject *s) {
  neap_rules r = usual_rules();
  r.probes = r.successes = 1;
  r.consecutive_failures = 1;
  subject_start(s, r);
}

/* ---- loops ---- */

static void run_acquire(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  uint64_t now_ms = s->now_ms;
  neap_permit permit;
  for (size_t i = 0; i < n; i++) {
    neap_breaker_acquire(b, &s->rules, now_ms, &permit, NULL);
    EMPTY_OPERATION();
  }
}

static void run_acquire_on(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  neap_permit permit;
  for (size_t i = 0; i < n; i++) {
    neap_breaker_acquire_on(b, &s->rules, &s->clock, &permit, NULL);
    EMPTY_OPERATION();
  }
}

static void run_pair(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  uint64_t now_ms = s->now_ms;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    neap_breaker_acquire(b, &s->rules, now_ms, &permit, NULL);
    EMPTY_OPERATION();
    neap_breaker_report(b, &s->rules, now_ms, &permit, &call, NULL);
  }
}

static void run_pair_on(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    neap_breaker_acquire_on(b, &s->rules, &s->clock, &permit, NULL);
    EMPTY_OPERATION();
    neap_breaker_report_on(b, &s->rules, &s->clock, &permit, &call, NULL);
  }
}

static void run_timed(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) pair(s, NEAP_SUCCESS, 20);
}

static void run_flight(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  uint64_t now_ms = s->now_ms;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    neap_flight_acquire(&s->flight, b, &s->rules, now_ms, &permit, NULL);
    EMPTY_OPERATION();
    neap_flight_report(&s->flight, b, &s->rules, now_ms, now_ms, &permit, &call, NULL);
  }
}

static void run_tenth_fails(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n / 10; i++) {
    run_pair(s, 9);
    pair(s, NEAP_FAILURE, 0);
  }
}

static void run_rotate(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    s->now_ms += s->rules.length_ms / 16;
    pair(s, NEAP_SUCCESS, 0);
  }
}

/* Each slice has one call, one of ten a failure: every success sums the window. */
static void run_rotate_failing(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    s->now_ms += s->rules.length_ms / 16;
    pair(s, i % 10 == 9 ? NEAP_FAILURE : NEAP_SUCCESS, 0);
  }
}

static void run_expire(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    s->now_ms += s->rules.length_ms + s->rules.length_ms / 16;
    pair(s, NEAP_SUCCESS, 0);
  }
}

/* Neutral, so that the round goes on for as long as the loop. */
static void run_probe(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) pair(s, NEAP_NEUTRAL, 0);
}

static void run_cycle(bench_subject *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    pair(s, NEAP_FAILURE, 0); /* opens */
    s->now_ms += s->rules.cooldown_ms;
    pair(s, NEAP_SUCCESS, 0); /* half-open, and closes */
    s->now_ms += s->rules.length_ms;
  }
}

const bench_path PATHS(paths)[] = {
    {"acquire", prepare_closed, run_acquire},
    {"pair", prepare_closed, run_pair},
    {"pair, coarse clock", prepare_coarse, run_pair_on},
    {"pair, precise clock", prepare_precise, run_pair_on},
    {"pair, of 20 ms", prepare_closed, run_timed},
    {"pair, 10 % fail", prepare_failures, run_tenth_fails},
    {"pair, new slice", prepare_successes, run_rotate},
    {"pair, new slice, failures in it", prepare_failures, run_rotate_failing},
    {"pair, all expired", prepare_successes, run_expire},
    {"pair, last 100 calls", prepare_ring, run_pair},
    {"pair, in flight", prepare_flight, run_flight},
    {"acquire, past a ramp", prepare_ramp, run_acquire},
    {"refusal", prepare_open, run_acquire},
    {"refusal, coarse clock", prepare_open, run_acquire_on},
    {"refusal, counted", prepare_open_counted, run_acquire},
    {"refusal, counted, coarse clock", prepare_open_counted, run_acquire_on},
    {"probe", prepare_half_open, run_probe},
    {"trip, probe and close", prepare_cycle, run_cycle},
    {NULL, NULL, NULL},
};
