#include "measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS      2.5e6
#define LOST_ALLOWED  1.04 /* wall / CPU of a slice that kept its processor */
#define APART_ALLOWED 0.05 /* between the beginnings, as a share of the slice */
#define TRIES         100

void *shared_memory(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  return p;
}

static double clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- two callers at once ---- */

typedef struct caller {
  const measurement *m;
  size_t n;
  unsigned index;
  double start_ns, wall_ns, cpu_ns;
} caller;

typedef struct meeting {
  _Atomic unsigned arrived;
  caller callers[BENCH_CALLERS];
} meeting;

static meeting *place; /* shared */

static void *caller_run(void *data) {
  caller *c = data;
  atomic_fetch_add(&place->arrived, 1);
  while (atomic_load(&place->arrived) < BENCH_CALLERS) {}
  double cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  c->start_ns = clock_ns(CLOCK_MONOTONIC);
  c->m->run(c->m->state[c->index], c->n);
  c->wall_ns = clock_ns(CLOCK_MONOTONIC) - c->start_ns;
  c->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return NULL;
}

/* The second caller beside this thread, which is the first. */
static void call_in_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, caller_run, &place->callers[1]) != 0) abort();
  caller_run(&place->callers[0]);
  pthread_join(thread, NULL);
}

static void call_in_process(void) {
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) abort();
  if (child == 0) {
    caller_run(&place->callers[1]);
    _exit(0);
  }
  caller_run(&place->callers[0]);
  waitpid(child, NULL, 0);
}

static double apart(double a, double b) { return a > b ? a - b : b - a; }

/* False: one of them lost its processor, or they ran one after the other. */
static bool slice_together(const measurement *m, size_t n, double *ns) {
  atomic_store(&place->arrived, 0);
  for (unsigned i = 0; i < BENCH_CALLERS; i++)
    place->callers[i] = (caller){.m = m, .n = n, .index = i};
  if (m->is_processes)
    call_in_process();
  else
    call_in_thread();
  double apart_ns = apart(place->callers[0].start_ns, place->callers[1].start_ns);
  bool kept = true;
  *ns = 0;
  for (unsigned i = 0; i < BENCH_CALLERS; i++) {
    const caller *c = &place->callers[i];
    kept = kept && apart_ns <= c->wall_ns * APART_ALLOWED &&
           (m->is_waiting || c->wall_ns <= c->cpu_ns * LOST_ALLOWED);
    *ns += c->wall_ns / BENCH_CALLERS;
  }
  return kept;
}

/* ---- slices and rounds ---- */

static double slice(const measurement *m, size_t n) {
  double ns = 0;
  for (unsigned i = 0; i < TRIES; i++) {
    for (unsigned c = 0; m->prepare != NULL && c < BENCH_CALLERS && m->state[c] != NULL; c++)
      m->prepare(m->state[c]);
    if (m->state[1] == NULL) {
      double start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
      m->run(m->state[0], n);
      return clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    }
    if (slice_together(m, n, &ns)) break;
    usleep(1000);
  }
  return ns;
}

static void calibrate(measurement *m) {
  m->n = 1000;
  for (double ns = slice(m, m->n); ns < SLICE_NS / 2 && m->n < 100000000; ns = slice(m, m->n))
    m->n = ns < SLICE_NS / 20 ? m->n * 10 : (size_t)((double)m->n * SLICE_NS / ns);
}

static void progress(unsigned round, unsigned rounds) {
  if (!isatty(STDERR_FILENO)) return;
  if (round < rounds)
    fprintf(stderr, "\rround %u of %u", round + 1, rounds);
  else
    fprintf(stderr, "\r%20s\r", "");
  fflush(stderr);
}

void measure_rounds(measurement *all, size_t count, unsigned rounds) {
  if (place == NULL) place = shared_memory(sizeof *place);
  for (size_t i = 0; i < count; i++) {
    if (!all[i].is_wanted) continue;
    all[i].ns = calloc(rounds, sizeof *all[i].ns);
    if (all[i].ns == NULL) abort();
    calibrate(&all[i]);
  }
  for (unsigned round = 0; round < rounds; round++) {
    progress(round, rounds);
    for (size_t i = 0; i < count; i++)
      if (all[i].is_wanted) all[i].ns[round] = slice(&all[i], all[i].n) / (double)all[i].n;
  }
  progress(rounds, rounds);
}
