/* engine_support.h: what the tests of the engine share: policy files in a directory of their own, a
 * loop, and what the engine said. */
#ifndef ENGINE_SUPPORT_H
#define ENGINE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "neap/engine.h"

/* Three failures in ten seconds open it for one second, without jitter; one probe closes it. */
#define NUMBERS                                                                                    \
  "window = { kind = 'time', length_ms = 10000 }, trip = { failures = 3 }, "                       \
  "open = { cooldown_ms = 1000, jitter = 0 }, half_open = { probes = 1, successes = 1 }, "

#define MOST_EVENTS 64

typedef struct fixture {
  uv_loop_t loop;
  neap_engine *engine;
  uint64_t now_ms; /* of the engine's clock */
  char root[64];
  char error[4096];
  neap_event events[MOST_EVENTS]; /* without their texts */
  char texts[MOST_EVENTS][512];
  int event_count;
  char log[4096]; /* "LEVEL line\n" ... */
  bool closed;
} fixture;

static void on_event(void *data, const neap_event *event) {
  fixture *f = (fixture *)data;
  if (f->event_count == MOST_EVENTS) return;
  f->events[f->event_count] = *event;
  snprintf(f->texts[f->event_count++], sizeof f->texts[0], "%s", event->text);
}

static void on_log(void *data, neap_log_level level, const char *line) {
  static const char *const levels[] = {"debug", "info", "warning", "error"};
  fixture *f = (fixture *)data;
  size_t used = strlen(f->log);
  snprintf(f->log + used, sizeof f->log - used, "%s %s\n", levels[level], line);
}

static void on_closed(void *data) { ((fixture *)data)->closed = true; }

/* The path of a file below the root.  Valid until the fourth call after it. */
static inline const char *path_of(const fixture *f, const char *name) {
  static char paths[4][512];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", f->root, name);
  return path;
}

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

/* NAME.lua = return { name = "NAME", REST } */
static void write_policy(const fixture *f, const char *name, const char *rest) {
  char file[128], text[4096];
  snprintf(file, sizeof file, "%s.lua", name);
  snprintf(text, sizeof text, "return { name = '%s', %s }\n", name, rest);
  write_text(path_of(f, file), text);
}

static int fixture_open_with(fixture *f, neap_engine_options options) {
  const char *const policies[] = {f->root};
  if (!options.policies) {
    options.policies = policies;
    options.policy_count = 1;
  }
  options.on_event = on_event;
  options.on_log = on_log;
  options.data = f;
  return neap_engine_open(&f->loop, &options, &f->engine, f->error, sizeof f->error) ? 0 : -1;
}

/* On the clock that the test moves, without a watch on the files. */
static inline void fixture_open(fixture *f) {
  neap_engine_options options = {.clock = neap_clock_manual(&f->now_ms), .no_watch = true};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
}

static int fixture_setup(void **state) {
  fixture *f = (fixture *)calloc(1, sizeof *f);
  f->now_ms = 5000000000;
  strcpy(f->root, "/tmp/neap-engine-XXXXXX");
  if (!mkdtemp(f->root) || uv_loop_init(&f->loop) != 0) return -1;
  *state = f;
  return 0;
}

static void fixture_close(fixture *f) {
  if (f->engine) neap_engine_close(f->engine, on_closed, f);
  uv_run(&f->loop, UV_RUN_DEFAULT);
  if (f->engine) assert_true(f->closed);
  f->engine = NULL;
  f->closed = false;
}

static int fixture_teardown(void **state) {
  fixture *f = (fixture *)*state;
  fixture_close(f);
  assert_int_equal(uv_loop_close(&f->loop), 0);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->root);
  int status = system(command);
  free(f);
  return status;
}

/* One call of the guard's breaker `key` that comes to `result`. */
static inline neap_outcome call_once(neap_guard *g, const char *key, neap_result result) {
  neap_ticket ticket;
  neap_verdict verdict = neap_guard_acquire(g, key, key ? strlen(key) : 0, &ticket, NULL);
  assert_true(verdict <= NEAP_ALLOW_BYPASS);
  return neap_guard_report(g, &ticket, &result, NULL);
}

static inline neap_snapshot snapshot_of(neap_guard *g, const char *key) {
  neap_snapshot snapshot;
  assert_true(neap_guard_snapshot(g, key, key ? strlen(key) : 0, &snapshot));
  return snapshot;
}

static inline void fail_calls(neap_guard *g, const char *key, int count) {
  for (int i = 0; i < count; i++)
    assert_int_equal(call_once(g, key, (neap_result){.status = 500}), NEAP_FAILURE);
}

#define ENGINE_TEST(function)                                                                      \
  cmocka_unit_test_setup_teardown(function, fixture_setup, fixture_teardown)

#endif
