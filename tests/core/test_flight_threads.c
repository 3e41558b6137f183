/* Many threads through one flight: whoever ends while others mark, each call counts once.  Also run
 * under ThreadSanitizer. */
#include "flight.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define HELD    8

typedef struct arena {
  neap_breaker breaker;
  neap_flight flight;
  neap_rules rules;
  _Atomic uint64_t now_ms;
  unsigned calls_each;
  pthread_barrier_t barrier;
} arena;

typedef struct hammer {
  arena *arena;
  uint64_t seed;
  uint64_t outcomes[5], stale, refused, marked, moves;
} hammer;

static void hammer_moved(hammer *h, const neap_transition *moved) {
  if (moved->cause != NEAP_BY_NOTHING) h->moves++;
}

static void hammer_end(hammer *h, call_out *out) {
  arena *a = h->arena;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t now_ms = atomic_load(&a->now_ms), n = random_below(&h->seed, 100);
  neap_call call = {.duration_ms = now_ms > out->began_ms ? now_ms - out->began_ms : 0};
  call.outcome = n < 50   ? NEAP_SUCCESS
                 : n < 70 ? NEAP_FAILURE
                 : n < 80 ? NEAP_TIMEOUT
                 : n < 90 ? NEAP_NEUTRAL
                          : NEAP_ABANDONED;
  neap_reported reported = neap_flight_report(&a->flight, &a->breaker, &a->rules, now_ms,
                                              out->began_ms, &out->permit, &call, &moved);
  if (reported == NEAP_COUNTED) h->outcomes[call.outcome]++;
  h->stale += reported == NEAP_STALE;
  hammer_moved(h, &moved);
}

static void *hammer_run(void *context) {
  hammer *h = context;
  arena *a = h->arena;
  call_out held[HELD] = {{{0}, 0}};
  pthread_barrier_wait(&a->barrier);
  for (unsigned i = 0; i < a->calls_each; i++) {
    call_out *out = &held[random_below(&h->seed, HELD)];
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    if (out->permit.opaque != 0) hammer_end(h, out);
    if (random_below(&h->seed, 4) == 0) atomic_fetch_add(&a->now_ms, random_below(&h->seed, 5));
    if (random_below(&h->seed, 50) == 0)
      h->marked +=
          neap_flight_sweep(&a->flight, &a->breaker, &a->rules, atomic_load(&a->now_ms), &moved);
    hammer_moved(h, &moved);
    moved.cause = NEAP_BY_NOTHING;
    out->began_ms = atomic_load(&a->now_ms);
    if (neap_flight_acquire(&a->flight, &a->breaker, &a->rules, out->began_ms, &out->permit,
                            &moved) > NEAP_ALLOW_BYPASS)
      h->refused++;
    hammer_moved(h, &moved);
  }
  for (unsigned i = 0; i < HELD; i++)
    if (held[i].permit.opaque != 0) hammer_end(h, &held[i]);
  return NULL;
}

/* Runs it, and adds up what the threads have to tell. */
static hammer run(arena *a, neap_rules rules, unsigned calls_each) {
  static hammer hammers[THREADS];
  pthread_t threads[THREADS];
  uint64_t seed = random_seed(20261130);
  memset(a, 0, sizeof *a);
  a->rules = rules;
  prepare(&a->rules);
  a->now_ms = START_MS;
  a->calls_each = calls_each / SCALE;
  pthread_barrier_init(&a->barrier, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) {
    hammers[i] = (hammer){.arena = a, .seed = seed + i + 1};
    if (pthread_create(&threads[i], NULL, hammer_run, &hammers[i]) != 0) fail();
  }
  hammer all = {0};
  for (unsigned i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    for (unsigned k = 0; k < 5; k++) all.outcomes[k] += hammers[i].outcomes[k];
    all.stale += hammers[i].stale;
    all.refused += hammers[i].refused;
    all.marked += hammers[i].marked;
    all.moves += hammers[i].moves;
  }
  pthread_barrier_destroy(&a->barrier);
  return all;
}

static neap_snapshot snapshot_of(const arena *a) {
  neap_snapshot s;
  neap_breaker_snapshot(&a->breaker, &a->rules, a->now_ms, &s);
  return s;
}

static void check_totals(const arena *a, const hammer *all) {
  neap_snapshot s = snapshot_of(a);
  SAME(s.totals.success + s.totals.slow_success, all->outcomes[NEAP_SUCCESS], "told once");
  SAME(s.totals.failure + s.totals.slow_failure,
       all->outcomes[NEAP_FAILURE] + all->outcomes[NEAP_TIMEOUT], "told once");
  SAME(s.totals.neutral, all->outcomes[NEAP_NEUTRAL], "told once");
  SAME(s.totals.abandoned, all->outcomes[NEAP_ABANDONED], "told once");
  SAME(s.totals.stale, all->stale, "told once");
}

/* Nothing trips and nothing leaves the window: in the end it has what has ended, and no mark. */
static void each_call_counts_once(void **unused) {
  (void)unused;
  static _Alignas(64) arena a;
  neap_rules rules = neap_rules_default();
  rules.slow_rate = NEAP_ONE;
  rules.slow_call_ms = 10;
  rules.minimum_calls = 1000000;
  rules.length_ms = 3600000;
  hammer all = run(&a, rules, 100000);
  neap_snapshot s = snapshot_of(&a);
  HOLDS(all.marked > 10, "calls were marked");
  SAME(s.totals.stale + s.totals.refused_open, 0, "it stays closed");
  SAME(s.calls,
       all.outcomes[NEAP_SUCCESS] + all.outcomes[NEAP_FAILURE] + all.outcomes[NEAP_TIMEOUT],
       "each is in the window once");
  SAME(s.slow_success, s.totals.slow_success, "none is a mark any more");
  SAME(neap_flight_next_ms(&a.flight, &a.breaker, &a.rules, a.now_ms), NEAP_NEVER, "none is out");
  check_totals(&a, &all);
}

/* A call that ends while it is marked takes two places: all of them have to fit. */
static void each_call_counts_once_in_a_count_window(void **unused) {
  (void)unused;
  static _Alignas(64) arena a;
  neap_rules rules = neap_rules_default();
  rules.window = NEAP_WINDOW_COUNT;
  rules.calls = 1024;
  rules.slow_rate = NEAP_ONE;
  rules.slow_call_ms = 10;
  rules.minimum_calls = 1024;
  for (int i = 0; i < 100; i++) {
    hammer all = run(&a, rules, 100 * SCALE);
    neap_snapshot s = snapshot_of(&a);
    SAME(s.calls,
         all.outcomes[NEAP_SUCCESS] + all.outcomes[NEAP_FAILURE] + all.outcomes[NEAP_TIMEOUT],
         "each is in the window once");
    check_totals(&a, &all);
  }
}

/* It trips, recovers, and trips: marks of one epoch never count in another. */
static void epochs_come_and_go(void **unused) {
  (void)unused;
  static _Alignas(64) arena a;
  neap_rules rules = neap_rules_default();
  rules.slow_rate = 400000;
  rules.failures = 20;
  rules.slow_call_ms = 4;
  rules.length_ms = 200;
  rules.cooldown_ms = 3;
  rules.max_cooldown_ms = 10;
  rules.probes = 1;
  rules.successes = 1;
  rules.lease_ms = 20;
  hammer all = run(&a, rules, 100000);
  neap_snapshot s = snapshot_of(&a);
  uint64_t moves = 0;
  for (unsigned i = 0; i < NEAP_TRANSITION_KINDS; i++) moves += s.transitions[i];
  HOLDS(moves > 10, "it moved");
  SAME(all.moves, moves, "each transition was told to one");
  check_totals(&a, &all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("each call counts once", each_call_counts_once),
      IT("each call counts once in a count window", each_call_counts_once_in_a_count_window),
      IT("epochs come and go", epochs_come_and_go),
  };
  return cmocka_run_group_tests_name("flight threads", tests, NULL, NULL);
}
