/* floors.h: what the machine itself takes.  Every path is judged by one of these, measured in the same run. */
#ifndef BENCH_FLOORS_H
#define BENCH_FLOORS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "paths.h"

#define FLOOR_WORDS 16

/* In shared memory; each part on lines of its own. */
typedef struct floor_state {
  _Alignas(128) _Atomic uint64_t word;
  _Alignas(128) _Atomic uint64_t words[FLOOR_WORDS];
  _Alignas(128) pthread_mutex_t mutex; /* robust, process-shared */
  _Alignas(128) uint64_t guarded;
  bench_subject *subject; /* of the single-threaded engine, under the mutex */
} floor_state;

void floor_init(floor_state *f);

void floor_call(void *state, size_t n);      /* an empty function; of a bench_subject */
void floor_add(void *state, size_t n);       /* fetch_add, relaxed */
void floor_swap(void *state, size_t n);      /* compare-and-swap that adds 1 */
void floor_coarse(void *state, size_t n);    /* CLOCK_MONOTONIC_COARSE */
void floor_monotonic(void *state, size_t n); /* CLOCK_MONOTONIC */
void floor_monotonic_swap(void *state,
                          size_t n);     /* the same, and a swap of the word that it picks */
void floor_mutex(void *state, size_t n); /* lock and unlock */
void floor_engine(void *state,
                  size_t n); /* a pair of the single-threaded engine, its report under the mutex */

#endif
