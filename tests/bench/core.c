/* bench_core: nanoseconds per operation of the engine's paths and of the floors they stand on.
 *
 *   bench_core ROUNDS [NAME...]      all, or the named
 *
 * Prints one line each: NAME, tab, the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "floors.h"
#include "measure.h"

#define MOST 80

static measurement all[MOST];
static size_t count;

static void add(const char *name, void (*prepare)(void *), void (*run)(void *, size_t), void *first,
                void *second, bool processes) {
  if (count == MOST) abort();
  all[count++] = (measurement){
      .name = name,
      .prepare = prepare,
      .run = run,
      .state = {first, second},
      .is_processes = processes,
      .is_waiting = strstr(name, "mutex, 2") != NULL,
  };
}

/* ---- what a path is run on ---- */

typedef struct path_state {
  const bench_path *path;
  bench_subject *subject;
} path_state;

static void path_prepare(void *state) {
  path_state *p = state;
  p->path->prepare(p->subject);
}

static void path_run(void *state, size_t n) {
  path_state *p = state;
  p->path->run(p->subject, n);
}

static void *path_state_new(const bench_path *path, neap_breaker *breaker) {
  path_state *p = shared_memory(sizeof *p);
  p->path = path;
  p->subject = shared_memory(sizeof *p->subject);
  p->subject->breaker = breaker;
  return p;
}

static const char *joined(const char *a, const char *b) {
  char *s = malloc(strlen(a) + strlen(b) + 1);
  if (s == NULL) abort();
  return strcat(strcpy(s, a), b);
}

static void add_paths(const char *engine, const bench_path *paths) {
  for (; paths->name != NULL; paths++)
    add(joined(engine, paths->name), path_prepare, path_run,
        path_state_new(paths, shared_memory(sizeof(neap_breaker))), NULL, false);
}

/* Two callers of a pair; neighbours are breakers side by side, as in a panel. */
static void add_together(void) {
  const bench_path *pair = path_find(shared_paths, "pair");
  neap_breaker *b = shared_memory(4 * sizeof *b);
  add("shared pair, 2 threads", path_prepare, path_run, path_state_new(pair, &b[0]),
      path_state_new(pair, &b[0]), false);
  add("shared pair, 2 processes", path_prepare, path_run, path_state_new(pair, &b[0]),
      path_state_new(pair, &b[0]), true);
  add("shared pair, 2 threads, own breakers", path_prepare, path_run, path_state_new(pair, &b[2]),
      path_state_new(pair, &b[3]), false);
}

/* ---- floors ---- */

static void empty_pair(void *state, size_t n) { nothing_pair(state, n); }

static void add_floors(void) {
  floor_state *f = shared_memory(sizeof *f);
  floor_init(f);
  path_state *p =
      path_state_new(path_find(single_paths, "pair"), shared_memory(sizeof(neap_breaker)));
  f->subject = p->subject;
  path_prepare(p);
  add("floor empty call", NULL, floor_call, f->subject, NULL, false);
  add("floor two empty calls", NULL, empty_pair, f->subject, NULL, false);
  add("floor fetch_add", NULL, floor_add, f, NULL, false);
  add("floor compare-and-swap", NULL, floor_swap, f, NULL, false);
  add("floor coarse clock", NULL, floor_coarse, f, NULL, false);
  add("floor precise clock", NULL, floor_monotonic, f, NULL, false);
  add("floor precise clock picks a swap", NULL, floor_monotonic_swap, f, NULL, false);
  add("floor robust mutex", NULL, floor_mutex, f, NULL, false);
  add("floor fetch_add, 2 threads", NULL, floor_add, f, f, false);
  add("floor fetch_add, 2 processes", NULL, floor_add, f, f, true);
  add("floor compare-and-swap, 2 threads", NULL, floor_swap, f, f, false);
  add("floor robust mutex, 2 threads", NULL, floor_mutex, f, f, false);
  add("floor engine under robust mutex", NULL, floor_engine, f, NULL, false);
  add("floor engine under robust mutex, 2 threads", NULL, floor_engine, f, f, false);
}

int main(int argc, char **argv) {
  unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
  if (rounds == 0) {
    fprintf(stderr, "usage: bench_core ROUNDS [NAME...]\n");
    return 2;
  }
  add_floors();
  add_paths("shared ", shared_paths);
  add_paths("local ", single_paths);
  add_together();
  for (size_t i = 0; i < count; i++) {
    all[i].is_wanted = argc == 2;
    for (int k = 2; k < argc; k++) all[i].is_wanted |= strcmp(argv[k], all[i].name) == 0;
  }
  measure_rounds(all, count, rounds);
  for (size_t i = 0; i < count; i++) {
    if (!all[i].is_wanted) continue;
    printf("%s\t", all[i].name);
    for (unsigned r = 0; r < rounds; r++) printf(r ? " %.3f" : "%.3f", all[i].ns[r]);
    putchar('\n');
  }
  return 0;
}
