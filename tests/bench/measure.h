/* measure.h: how long n operations take, again and again, one kind after the other.
 *
 * Rounds are interleaved: each round times every measurement once, so that what disturbs the machine disturbs all of them alike.
 * One caller is timed by its CPU clock.  Two at once are timed by the wall, and a slice in which they did not run side by side
 * all the time is thrown away: nobody was contending meanwhile. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_CALLERS 2

typedef struct measurement {
  const char *name;
  void (*prepare)(void *state); /* before each slice; may be NULL */
  void (*run)(void *state, size_t n);
  void *state[BENCH_CALLERS]; /* the second: two callers at once */
  bool is_processes;          /* those two are processes; state must be shared */
  bool is_waiting; /* they put each other to sleep: time off the processor is their own */
  bool is_wanted;
  size_t n; /* operations in a slice: found out */
  double *ns;
} measurement;

/* Fills ns[0..rounds-1] of every wanted measurement: nanoseconds per operation, and caller. */
void measure_rounds(measurement *all, size_t count, unsigned rounds);

/* Zeroed memory that forked processes share; never freed. */
void *shared_memory(size_t size);

#endif
