/* bench_count: what the fast paths execute, exactly.
 *
 *   bench_count callgrind   under valgrind --tool=callgrind: one dump of counters for each path, named after it
 *   bench_count step        steps through each path of the shared engine: instructions and, of them, locked ones
 *   bench_count stores      whether the paths that must not write the breaker do
 *
 * Counts are of N operations with the loop and the passing of arguments in them: callers subtract "nothing...", which does the
 * same with functions that only return.  step and stores print NAME, tab, numbers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "measure.h"
#include "paths.h"
#include "step.h"

#define COUNTED 10000
#define STEPPED 50

typedef void loop(bench_subject *s, size_t n);

static bench_subject *subject_new(void) {
  bench_subject *s = shared_memory(sizeof *s);
  s->breaker = shared_memory(sizeof *s->breaker);
  return s;
}

/* ---- what both count ---- */

typedef void visit(const char *name, loop *run, bench_subject *s);

static void each_path(const char *engine, const bench_path *paths, visit *do_it) {
  bench_subject *s = subject_new();
  for (; paths->name != NULL; paths++) {
    char name[80];
    snprintf(name, sizeof name, "%s %s", engine, paths->name);
    paths->prepare(s);
    do_it(name, paths->run, s);
  }
}

static void each(visit *do_it) {
  bench_subject *s = subject_new();
  shared_paths[0].prepare(s);
  do_it("nothing acquire", nothing_acquire, s);
  do_it("nothing pair", nothing_pair, s);
  do_it("nothing pair on", nothing_pair_on, s);
  each_path("shared", shared_paths, do_it);
  each_path("local", single_paths, do_it);
}

static void count_by_callgrind(const char *name, loop *run, bench_subject *s) {
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
  run(s, COUNTED);
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT(name);
}

static void stepped(void *data) {
  struct {
    loop *run;
    bench_subject *s;
  } *job = data;
  job->run(job->s, STEPPED);
}

static void count_by_step(const char *name, loop *run, bench_subject *s) {
  struct {
    loop *run;
    bench_subject *s;
  } job = {run, s};
  run(s, STEPPED); /* symbols bound, pages there */
  step_counts counts;
  if (!step_count(stepped, &job, &counts)) {
    fprintf(stderr, "bench_count: stepping is not possible here: %s\n", strerror(errno));
    exit(1);
  }
  printf("%s\t%.3f %.3f\n", name, (double)counts.instructions / STEPPED,
         (double)counts.locked / STEPPED);
}

/* ---- stores ---- */

/* The path on a breaker that can't be written: a store would be the end of the process. */
static void check_stores(const char *engine, const bench_path *paths, const char *name) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  bench_subject *s = subject_new();
  s->breaker = shared_memory(page);
  const bench_path *path = path_find(paths, name);
  path->prepare(s);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (mprotect(s->breaker, page, PROT_READ) != 0) _exit(1);
    path->run(s, 1000);
    _exit(0);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) exit(1);
  printf("%s %s\t%d\n", engine, name, WIFSIGNALED(status) ? 1 : 0);
}

static uint64_t no_clock(void *context) {
  (void)context;
  abort();
}

/* A closed acquire must not ask for the time. */
static void check_clock(void) {
  bench_subject *s = subject_new();
  path_find(shared_paths, "acquire")->prepare(s);
  s->clock.now_ms = no_clock;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    neap_permit permit;
    _exit(neap_breaker_acquire_on(s->breaker, &s->rules, &s->clock, &permit, NULL) != NEAP_ALLOW);
  }
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) exit(1);
  printf("clock reads\t%d\n", WIFSIGNALED(status) ? 1 : 0);
}

int main(int argc, char **argv) {
  const char *how = argc == 2 ? argv[1] : "";
  if (strcmp(how, "callgrind") == 0) {
    each(count_by_callgrind);
  } else if (strcmp(how, "step") == 0) {
    each_path("shared", shared_paths, count_by_step);
  } else if (strcmp(how, "stores") == 0) {
    check_stores("shared", shared_paths, "acquire");
    check_stores("shared", shared_paths, "refusal");
    check_stores("shared", shared_paths, "refusal, counted"); /* does: the check can fail */
    check_clock();
  } else {
    fprintf(stderr, "usage: bench_count callgrind|step|stores\n");
    return 2;
  }
  return 0;
}
