/* Many threads on one breaker.  Each keeps a diary; what must hold is checked in the counters as
 * they go and in the diaries afterwards.  Also run under ThreadSanitizer. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define EPOCHS  (1u << 17)
#define DIARY   65536

/* What threads tell each other, outside of the breaker. */
typedef struct epoch_count {
  atomic_int in_flight; /* probes let in less those about to be reported */
  atomic_int taken;     /* probes let in less those about to be reported neutral */
} epoch_count;

typedef struct arena {
  neap_breaker breaker;
  neap_rules rules, other; /* every second thread uses the other ones */
  _Atomic uint64_t now_ms;
  epoch_count *epochs;
  atomic_uint most_in_flight, most_taken;
  atomic_uint admitted_early; /* see the_bound_on_calls_before_it_opens() */
  pthread_barrier_t barrier;
  unsigned calls_each;
  bool by_hand, reload;
} arena;

typedef struct hammer {
  arena *arena;
  const neap_rules *rules;
  uint64_t seed;
  uint64_t verdicts[7], outcomes[5], stale, used, offered, counted_failures;
  neap_transition diary[DIARY];
  unsigned entries;
} hammer;

static hammer hammers[THREADS];

static void raise_to(atomic_uint *most, int value) {
  unsigned seen = atomic_load(most);
  while (value > (int)seen && !atomic_compare_exchange_weak(most, &seen, (unsigned)value)) continue;
}

static void hammer_note(hammer *h, const neap_transition *moved) {
  if (moved->cause != NEAP_BY_NOTHING && h->entries < DIARY) h->diary[h->entries++] = *moved;
}

static neap_outcome random_outcome(hammer *h) {
  uint64_t n = random_below(&h->seed, 100);
  return n < 60   ? NEAP_SUCCESS
         : n < 80 ? NEAP_FAILURE
         : n < 88 ? NEAP_TIMEOUT
         : n < 95 ? NEAP_NEUTRAL
                  : NEAP_ABANDONED;
}

/* A probe is in flight from a moment after it was let in to a moment before it is reported, so
 * these counts are never above the true ones. */
static void probe_let_in(arena *a, const neap_permit *permit) {
  epoch_count *e = &a->epochs[neap_permit_epoch(permit)];
  raise_to(&a->most_in_flight, atomic_fetch_add(&e->in_flight, 1) + 1);
  raise_to(&a->most_taken, atomic_fetch_add(&e->taken, 1) + 1);
}

static void probe_comes_back(arena *a, const neap_permit *permit, neap_outcome outcome) {
  epoch_count *e = &a->epochs[neap_permit_epoch(permit)];
  atomic_fetch_sub(&e->in_flight, 1);
  if (outcome >= NEAP_NEUTRAL) atomic_fetch_sub(&e->taken, 1);
}

static void hammer_report(hammer *h, neap_permit *permit) {
  arena *a = h->arena;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_call call = {.outcome = random_outcome(h), .duration_ms = random_below(&h->seed, 20)};
  if (neap_permit_kind(permit) == NEAP_ALLOW_PROBE) probe_comes_back(a, permit, call.outcome);
  switch (
      neap_breaker_report(&a->breaker, &a->rules, atomic_load(&a->now_ms), permit, &call, &moved)) {
    case NEAP_COUNTED: h->outcomes[call.outcome]++; break;
    case NEAP_STALE: h->stale++; break;
    case NEAP_USED: h->used++; break;
  }
  hammer_note(h, &moved);
}

static void hammer_by_hand(hammer *h) {
  arena *a = h->arena;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t now_ms = atomic_load(&a->now_ms);
  if (random_below(&h->seed, 2))
    neap_breaker_reset(&a->breaker, &a->rules, now_ms, &moved);
  else
    neap_breaker_trip(&a->breaker, &a->rules, now_ms, 0, &moved);
  hammer_note(h, &moved);
}

/* Calls overlap: each thread holds up to eight permits and reports them in any order; now and
 * then it never comes back. */
static void *hammer_run(void *context) {
  hammer *h = context;
  arena *a = h->arena;
  neap_permit held[8] = {{0}};
  pthread_barrier_wait(&a->barrier);
  for (unsigned i = 0; i < a->calls_each; i++) {
    neap_permit *permit = &held[random_below(&h->seed, 8)];
    if (permit->opaque != 0) hammer_report(h, permit);
    if (random_below(&h->seed, 4) == 0) atomic_fetch_add(&a->now_ms, random_below(&h->seed, 3));
    if (a->by_hand && random_below(&h->seed, 2000) == 0) hammer_by_hand(h);
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    neap_verdict verdict =
        neap_breaker_acquire(&a->breaker, h->rules, atomic_load(&a->now_ms), permit, &moved);
    h->offered++;
    h->verdicts[verdict]++;
    hammer_note(h, &moved);
    if (verdict == NEAP_ALLOW_PROBE) probe_let_in(a, permit);
  }
  for (unsigned i = 0; i < COUNT_OF(held); i++)
    if (held[i].opaque != 0) hammer_report(h, &held[i]);
  return NULL;
}

static arena *arena_new(neap_rules rules, unsigned calls_each) {
  arena *a = aligned_alloc(64, sizeof *a);
  memset(a, 0, sizeof *a);
  a->rules = rules;
  prepare(&a->rules);
  a->other = a->rules;
  a->now_ms = START_MS;
  a->epochs = calloc(EPOCHS, sizeof *a->epochs);
  a->calls_each = calls_each / SCALE;
  pthread_barrier_init(&a->barrier, NULL, THREADS);
  return a;
}

static void arena_free(arena *a) {
  pthread_barrier_destroy(&a->barrier);
  free(a->epochs);
  free(a);
}

static void arena_run(arena *a, void *(*run)(void *)) {
  pthread_t threads[THREADS];
  uint64_t seed = random_seed(41);
  for (unsigned i = 0; i < THREADS; i++) {
    memset(&hammers[i], 0, sizeof hammers[i]);
    hammers[i].arena = a;
    hammers[i].rules = i % 2 ? &a->other : &a->rules;
    hammers[i].seed = seed + i * 7919;
    assert_int_equal(pthread_create(&threads[i], NULL, run, &hammers[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static neap_rules stormy_rules(void) {
  neap_rules r = neap_rules_default();
  r.failures = 12;
  r.failure_rate = 450000;
  r.consecutive_failures = 5;
  r.slow_call_ms = 15;
  r.length_ms = 100;
  r.cooldown_ms = 5;
  r.max_cooldown_ms = 20;
  r.probes = 5;
  r.successes = 3;
  r.concurrent = 2;
  r.lease_ms = 30;
  r.ramp_ms = 3;
  return r;
}

/* ---- What must hold afterwards ---- */

static void check_admission(const arena *a) {
  HOLDS(a->most_in_flight <= a->rules.concurrent, "no more probes at once than `concurrent`");
  HOLDS(a->most_taken <= a->rules.probes, "no more in a round than `probes`, less the neutral");
  HOLDS(a->most_in_flight > 0, "there were probes");
}

/* B067: everything that was offered is somewhere, and once. */
static void check_sums(const arena *a) {
  neap_snapshot s;
  neap_breaker_snapshot(&a->breaker, &a->rules, a->now_ms, &s);
  const neap_totals *t = &s.totals;
  uint64_t verdicts[7] = {0}, outcomes[5] = {0}, stale = 0, offered = 0, used = 0;
  for (unsigned i = 0; i < THREADS; i++) {
    for (unsigned k = 0; k < 7; k++) verdicts[k] += hammers[i].verdicts[k];
    for (unsigned k = 0; k < 5; k++) outcomes[k] += hammers[i].outcomes[k];
    stale += hammers[i].stale;
    used += hammers[i].used;
    offered += hammers[i].offered;
  }
  SAME(used, 0, "each permit was reported once");
  SAME(t->success + t->slow_success, outcomes[NEAP_SUCCESS], "successes");
  SAME(t->failure + t->slow_failure, outcomes[NEAP_FAILURE] + outcomes[NEAP_TIMEOUT], "failures");
  SAME(t->timeout, outcomes[NEAP_TIMEOUT], "timeouts");
  SAME(t->neutral, outcomes[NEAP_NEUTRAL], "neutral");
  SAME(t->abandoned, outcomes[NEAP_ABANDONED], "abandoned");
  SAME(t->stale, stale, "stale");
  SAME(t->refused_open, verdicts[NEAP_REFUSE_OPEN], "refused");
  SAME(t->refused_probes, verdicts[NEAP_REFUSE_PROBES], "refused");
  SAME(t->refused_ramp, verdicts[NEAP_REFUSE_RAMP], "refused");
  SAME(t->probes, verdicts[NEAP_ALLOW_PROBE], "probes");
  SAME(t->success + t->slow_success + t->failure + t->slow_failure + t->neutral + t->abandoned +
           t->stale + t->refused_open + t->refused_probes + t->refused_ramp,
       offered, "ok + failed + timeout + neutral + late + refused = offered");
  uint64_t in_histogram = 0;
  for (unsigned i = 0; i < NEAP_DURATION_BUCKETS; i++) in_histogram += s.duration_counts[i];
  SAME(in_histogram, t->success + t->slow_success + t->failure + t->slow_failure, "durations");
}

static int diary_order(const void *left, const void *right) {
  const neap_transition *a = left, *b = right;
  uint64_t x = a->epoch * 2 + (a->to == NEAP_HALF_OPEN),
           y = b->epoch * 2 + (b->to == NEAP_HALF_OPEN);
  return x < y ? -1 : x > y;
}

/* B106, B107: put together and ordered by epoch, the diaries are one chain: each epoch is
 * entered once (so there was one closer and one opener), is half-open once at most, and begins
 * as the one before ended. */
static void check_chain(const arena *a, uint64_t (*counted)[NEAP_TRANSITION_KINDS]) {
  size_t n = 0;
  for (unsigned i = 0; i < THREADS; i++) n += hammers[i].entries;
  HOLDS(n < EPOCHS, "few enough that the epoch has not wrapped");
  neap_transition *all = calloc(n + 1, sizeof *all);
  n = 0;
  for (unsigned i = 0; i < THREADS; i++) {
    HOLDS(hammers[i].entries < DIARY, "the diary was long enough");
    /* what one thread has done, it has done in order */
    for (unsigned k = 1; k < hammers[i].entries; k++)
      HOLDS(diary_order(&hammers[i].diary[k - 1], &hammers[i].diary[k]) < 0, "in order");
    memcpy(all + n, hammers[i].diary, hammers[i].entries * sizeof *all);
    n += hammers[i].entries;
  }
  qsort(all, n, sizeof *all, diary_order);
  neap_state state = NEAP_CLOSED;
  uint32_t epoch = 0;
  for (size_t i = 0; i < n; i++) {
    SAME(all[i].from, state, "from where the one before led to");
    SAME(all[i].epoch, all[i].to == NEAP_HALF_OPEN ? epoch : epoch + 1, "none missing, none twice");
    state = all[i].to;
    epoch = all[i].epoch;
  }
  neap_snapshot s;
  neap_breaker_snapshot(&a->breaker, &a->rules, a->now_ms, &s);
  SAME(s.epoch, epoch, "up to now");
  uint64_t sum = 0;
  for (unsigned i = 0; i < NEAP_TRANSITION_KINDS; i++) sum += s.transitions[i];
  SAME(sum, n, "and counted");
  memcpy(*counted, s.transitions, sizeof *counted);
  free(all);
}

/* B116: whatever threads leave behind, a healthy dependency and traffic close it, within
 * cooldown + lease and a few calls. */
static void check_recovers(arena *a) {
  uint64_t now_ms = a->now_ms, deadline = now_ms + 200;
  neap_call success = {.outcome = NEAP_SUCCESS};
  while (neap_breaker_state(&a->breaker, &a->rules, now_ms) != NEAP_CLOSED) {
    neap_permit permit = {0};
    if (neap_breaker_acquire(&a->breaker, &a->rules, now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS)
      neap_breaker_report(&a->breaker, &a->rules, now_ms, &permit, &success, NULL);
    HOLDS(++now_ms < deadline, "closed within lease, cooldown and a few calls");
  }
  neap_snapshot s;
  neap_breaker_snapshot(&a->breaker, &a->rules, now_ms, &s);
  SAME(s.probes_in_flight, 0, "nothing in flight");
}

static void run_and_check(arena *a, uint64_t (*counted)[NEAP_TRANSITION_KINDS]) {
  arena_run(a, hammer_run);
  check_admission(a);
  check_sums(a);
  check_chain(a, counted);
  check_recovers(a);
}

static void a_million_random_calls_add_up(void **unused) {
  (void)unused;
  arena *a = arena_new(stormy_rules(), 1000000 / THREADS + 1);
  uint64_t counted[NEAP_TRANSITION_KINDS];
  run_and_check(a, &counted);
  arena_free(a);
}

static void resets_and_trips_in_between_change_none_of_that(void **unused) {
  (void)unused;
  arena *a = arena_new(stormy_rules(), 300000);
  a->by_hand = true;
  uint64_t counted[NEAP_TRANSITION_KINDS];
  run_and_check(a, &counted);
  HOLDS(counted[6] + counted[9] + counted[12] > 10, "there were resets");
  arena_free(a);
}

static void the_same_with_a_count_window(void **unused) {
  (void)unused;
  neap_rules rules = stormy_rules();
  rules.window = NEAP_WINDOW_COUNT;
  rules.calls = 50;
  rules.consecutive_failures = 0;
  arena *a = arena_new(rules, 300000);
  uint64_t counted[NEAP_TRANSITION_KINDS];
  run_and_check(a, &counted);
  arena_free(a);
}

static void one_probe_at_a_time_is_one(void **unused) {
  (void)unused;
  neap_rules rules = stormy_rules();
  rules.probes = rules.successes = rules.concurrent = 1;
  arena *a = arena_new(rules, 300000);
  uint64_t counted[NEAP_TRANSITION_KINDS];
  run_and_check(a, &counted);
  arena_free(a);
}

/* A reload is under way: some callers judge by the old rules and some by the new. */
static void callers_under_different_rules_wedge_nothing(void **unused) {
  (void)unused;
  arena *a = arena_new(stormy_rules(), 300000);
  a->other.probes = a->other.successes = a->other.concurrent = 1;
  a->other.failures = 3;
  a->other.length_ms = 160;
  a->other.lease_ms = 7;
  a->other.max_cooldown_ms = a->other.cooldown_ms = 3;
  prepare(&a->other);
  uint64_t counted[NEAP_TRANSITION_KINDS];
  run_and_check(a, &counted);
  arena_free(a);
}

/* ---- Whoever completes the threshold trips ---- */

static void *fail_once(void *context) {
  hammer *h = context;
  arena *a = h->arena;
  neap_permit permit = {0};
  neap_call call = {.outcome = h->seed ? NEAP_FAILURE : NEAP_SUCCESS};
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker_acquire(&a->breaker, &a->rules, a->now_ms, &permit, NULL);
  pthread_barrier_wait(&a->barrier);
  neap_breaker_report(&a->breaker, &a->rules, a->now_ms, &permit, &call, &moved);
  hammer_note(h, &moved);
  return NULL;
}

/* Half of the calls fail, the minimum is all of them: whoever is counted last, success or
 * failure, somebody must see it. */
static void somebody_trips_when_the_last_call_completes_the_minimum(void **unused) {
  (void)unused;
  neap_rules rules = neap_rules_default();
  rules.failure_rate = 500000;
  rules.minimum_calls = THREADS;
  for (unsigned round = 0; round < 5000 / SCALE; round++) {
    arena *a = arena_new(rules, 1);
    pthread_t threads[THREADS];
    unsigned trips = 0;
    for (unsigned i = 0; i < THREADS; i++) {
      hammers[i].arena = a;
      hammers[i].entries = 0;
      hammers[i].seed = (i + round) % 2;
      assert_int_equal(pthread_create(&threads[i], NULL, fail_once, &hammers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) trips += hammers[i].entries;
    SAME(trips, 1, "one opener");
    SAME(neap_breaker_state(&a->breaker, &a->rules, a->now_ms), NEAP_OPEN, "open");
    arena_free(a);
  }
}

/* ---- B115 ---- */

static void *call_until_refused(void *context) {
  hammer *h = context;
  arena *a = h->arena;
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  pthread_barrier_wait(&a->barrier);
  while (neap_breaker_acquire(&a->breaker, &a->rules, a->now_ms, &permit, NULL) == NEAP_ALLOW) {
    atomic_fetch_add(&a->admitted_early, 1); /* the dependency is reached */
    neap_breaker_report(&a->breaker, &a->rules, a->now_ms, &permit, &failure, NULL);
  }
  return NULL;
}

/* B115: a user expected an exact number of calls before it opens.  With a threshold of N and C
 * callers at once, at most N - 1 + C calls reach the dependency. */
static void the_bound_on_calls_before_it_opens(void **unused) {
  (void)unused;
  const unsigned n = 5;
  neap_rules rules = neap_rules_default();
  rules.failures = n;
  unsigned least = UINT32_MAX;
  for (unsigned round = 0; round < 3000 / SCALE; round++) {
    arena *a = arena_new(rules, 1);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
      hammers[i].arena = a;
      assert_int_equal(pthread_create(&threads[i], NULL, call_until_refused, &hammers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    HOLDS(a->admitted_early >= n, "no fewer than the threshold");
    HOLDS(a->admitted_early <= n - 1 + THREADS, "N - 1 + C at most");
    if (a->admitted_early < least) least = a->admitted_early;
    arena_free(a);
  }
  HOLDS(least >= n, "measured");
}

/* ---- A clock that threads read at different times ---- */

/* Threads that were suspended between reading the clock and using it: up to three windows late. */
static void *late_clock_run(void *context) {
  hammer *h = context;
  arena *a = h->arena;
  pthread_barrier_wait(&a->barrier);
  for (unsigned i = 0; i < a->calls_each; i++) {
    uint64_t now_ms = atomic_fetch_add(&a->now_ms, random_below(&h->seed, 3));
    if (random_below(&h->seed, 100) == 0) now_ms -= random_below(&h->seed, 300);
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    neap_permit permit = {0};
    neap_verdict verdict = neap_breaker_acquire(&a->breaker, &a->rules, now_ms, &permit, &moved);
    hammer_note(h, &moved);
    h->offered++;
    h->verdicts[verdict]++;
    if (verdict > NEAP_ALLOW_BYPASS) continue;
    if (verdict == NEAP_ALLOW_PROBE) probe_let_in(a, &permit);
    hammer_report(h, &permit);
  }
  return NULL;
}

static void late_readings_of_the_clock_lose_and_wedge_nothing(void **unused) {
  (void)unused;
  arena *a = arena_new(stormy_rules(), 300000);
  uint64_t counted[NEAP_TRANSITION_KINDS];
  arena_run(a, late_clock_run);
  check_admission(a);
  check_sums(a);
  check_chain(a, &counted);
  check_recovers(a);
  arena_free(a);
}

/* ---- Readers and reloads while all that goes on ---- */

typedef struct reader {
  arena *arena;
  atomic_bool stop;
  bool impossible;
  uint64_t snapshots, went_back;
} reader;

static void reader_check(reader *x, const neap_snapshot *last, const neap_snapshot *s) {
  const neap_totals *a = &last->totals, *b = &s->totals;
  bool fewer = false;
#define X(name) fewer = fewer || b->name < a->name;
  X(success)
  X(slow_success)
  X(failure)
  X(slow_failure)
  X(timeout)
  X(neutral)
  X(stale)
  X(refused_open)
  X(probes)
#undef X
  x->went_back += fewer;
  x->impossible = x->impossible || s->probes_in_flight > 15 || s->failure_rate > NEAP_ONE ||
                  s->slow_rate > NEAP_ONE || s->level > 31 || s->state > NEAP_OPEN;
}

static void *reader_run(void *context) {
  reader *x = context;
  neap_snapshot last, s;
  memset(&last, 0, sizeof last);
  while (!atomic_load(&x->stop)) {
    neap_breaker_snapshot(&x->arena->breaker, &x->arena->rules, atomic_load(&x->arena->now_ms), &s);
    reader_check(x, &last, &s);
    last = s;
    x->snapshots++;
  }
  return NULL;
}

/* Two sets of rules with different windows, adopted in turn as two workers of a reload would. */
static void *reload_run(void *context) {
  reader *x = context;
  neap_rules other = x->arena->rules;
  other.window = NEAP_WINDOW_COUNT;
  other.calls = 40;
  prepare(&other);
  for (unsigned i = 0; !atomic_load(&x->stop); i++)
    neap_breaker_adopt(&x->arena->breaker, i % 2 ? &other : &x->arena->rules);
  return NULL;
}

static void readers_see_totals_that_only_grow(void **unused) {
  (void)unused;
  neap_rules rules = stormy_rules();
  rules.length_ms = 10000; /* or a bucket would end at every second call */
  arena *a = arena_new(rules, 200000);
  reader x = {.arena = a};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, reader_run, &x), 0);
  arena_run(a, hammer_run);
  atomic_store(&x.stop, true);
  pthread_join(thread, NULL);
  HOLDS(x.snapshots > 10, "there were some");
  /* but behind a thread that is suspended while it moves a bucket's calls to the totals */
  HOLDS(x.went_back <= 3 + x.snapshots / 10000, "each total only grows");
  HOLDS(!x.impossible, "nothing impossible");
  check_sums(a);
  arena_free(a);
}

static void reloads_in_between_lose_no_outcome_and_no_transition(void **unused) {
  (void)unused;
  arena *a = arena_new(stormy_rules(), 200000);
  reader x = {.arena = a};
  pthread_t thread;
  uint64_t counted[NEAP_TRANSITION_KINDS];
  assert_int_equal(pthread_create(&thread, NULL, reload_run, &x), 0);
  arena_run(a, hammer_run);
  atomic_store(&x.stop, true);
  pthread_join(thread, NULL);
  check_admission(a);
  check_sums(a);
  check_chain(a, &counted);
  check_recovers(a);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("B067: a million random calls add up", a_million_random_calls_add_up),
      IT("B106, B107: resets and trips in between change none of that",
         resets_and_trips_in_between_change_none_of_that),
      IT("the same with a count window", the_same_with_a_count_window),
      IT("one probe at a time is one", one_probe_at_a_time_is_one),
      IT("callers under different rules wedge nothing",
         callers_under_different_rules_wedge_nothing),
      IT("somebody trips when the last call completes the minimum",
         somebody_trips_when_the_last_call_completes_the_minimum),
      IT("B115: with a threshold of N and C callers N - 1 + C calls go out at most",
         the_bound_on_calls_before_it_opens),
      IT("B116: late readings of the clock lose and wedge nothing",
         late_readings_of_the_clock_lose_and_wedge_nothing),
      IT("readers see totals that only grow", readers_see_totals_that_only_grow),
      IT("reloads in between lose no outcome and no transition",
         reloads_in_between_lose_no_outcome_and_no_transition),
  };
  return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
