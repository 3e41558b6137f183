#include "floors.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "single.h"

void floor_init(floor_state *f) {
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  if (pthread_mutex_init(&f->mutex, &a) != 0) abort();
  pthread_mutexattr_destroy(&a);
}

void floor_call(void *state, size_t n) { nothing_acquire(state, n); }

void floor_add(void *state, size_t n) {
  floor_state *f = state;
  for (size_t i = 0; i < n; i++) atomic_fetch_add_explicit(&f->word, 1, memory_order_relaxed);
}

void floor_swap(void *state, size_t n) {
  floor_state *f = state;
  for (size_t i = 0; i < n; i++) {
    uint64_t w = atomic_load(&f->word);
    while (!atomic_compare_exchange_strong(&f->word, &w, w + 1)) {}
  }
}

static void read_clock(clockid_t id, size_t n) {
  struct timespec t;
  for (size_t i = 0; i < n; i++) clock_gettime(id, &t);
}

void floor_coarse(void *state, size_t n) {
  (void)state;
  read_clock(CLOCK_MONOTONIC_COARSE, n);
}

void floor_monotonic(void *state, size_t n) {
  (void)state;
  read_clock(CLOCK_MONOTONIC, n);
}

void floor_monotonic_swap(void *state, size_t n) {
  floor_state *f = state;
  struct timespec t;
  for (size_t i = 0; i < n; i++) {
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    _Atomic uint64_t *word = &f->words[now_ms / 65536 % FLOOR_WORDS];
    uint64_t w = atomic_load(word);
    while (!atomic_compare_exchange_strong(word, &w, w + 1)) {}
  }
}

static void lock(floor_state *f) {
  if (pthread_mutex_lock(&f->mutex) == EOWNERDEAD) pthread_mutex_consistent(&f->mutex);
}

void floor_mutex(void *state, size_t n) {
  floor_state *f = state;
  for (size_t i = 0; i < n; i++) {
    lock(f);
    f->guarded++;
    pthread_mutex_unlock(&f->mutex);
  }
}

void floor_engine(void *state, size_t n) {
  floor_state *f = state;
  bench_subject *s = f->subject;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    single_neap_breaker_acquire(s->breaker, &s->rules, s->now_ms, &permit, NULL);
    lock(f);
    single_neap_breaker_report(s->breaker, &s->rules, s->now_ms, &permit, &call, NULL);
    pthread_mutex_unlock(&f->mutex);
  }
}
