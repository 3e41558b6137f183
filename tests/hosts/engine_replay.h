/* engine_replay.h: an engine with a state_dir, and what it asks the program to make again. */
#ifndef ENGINE_REPLAY_H
#define ENGINE_REPLAY_H

#include "tests/hosts/engine_support.h"

/* ---- What the program is asked to make again ------------------------------------------------- */

static struct {
  int count;
  char id[64], key[64], text[1024];
  uint64_t token;
  neap_guard *guard;
} again;

static void on_replay(void *data, const neap_queued *q) {
  const neap_request *r = q->request;
  (void)data;
  again.count++;
  again.token = q->token;
  again.guard = q->guard;
  snprintf(again.id, sizeof again.id, "%s", q->id);
  snprintf(again.key, sizeof again.key, "%.*s", (int)q->key_length, q->key);
  int n = snprintf(again.text, sizeof again.text, "%s %.*s %.*s", r->method, (int)r->target_length,
                   r->target, (int)r->body_length, (const char *)r->body);
  for (size_t i = 0; i < r->header_count; i++)
    n += snprintf(again.text + n, sizeof again.text - (size_t)n, " %s:%s", r->headers[i].name,
                  r->headers[i].value);
}

/* ---- The fixture ----------------------------------------------------------------------------- */

static inline const char *state_dir(const fixture *f) { return path_of(f, "state"); }

static neap_guard *open_again(fixture *f) {
  char directory[512];
  snprintf(directory, sizeof directory, "%s", state_dir(f));
  mkdir(directory, 0700);
  neap_engine_options options = {.clock = neap_clock_manual(&f->now_ms),
                                 .no_watch = true,
                                 .state_dir = directory,
                                 .on_replay = on_replay};
  if (fixture_open_with(f, options) != 0) fail_msg("%s", f->error);
  return neap_engine_guard(f->engine, "flags");
}

static neap_guard *open_guard(fixture *f, const char *fallback) {
  char rest[2048];
  snprintf(rest, sizeof rest, NUMBERS "fallback = { %s }", fallback);
  write_policy(f, "flags", rest);
  memset(&again, 0, sizeof again);
  return open_again(f);
}

static void on_tick(uv_timer_t *timer) { (void)timer; }

/* Turns the loop until it is so. */
#define turn_until(f, condition)                                                                   \
  do {                                                                                             \
    uv_timer_t tick;                                                                               \
    uv_timer_init(&(f)->loop, &tick);                                                              \
    uv_timer_start(&tick, on_tick, 1, 1);                                                          \
    uint64_t end = uv_hrtime() + UINT64_C(10000000000);                                            \
    while (!(condition) && uv_hrtime() < end) uv_run(&(f)->loop, UV_RUN_ONCE);                     \
    uv_close((uv_handle_t *)&tick, NULL);                                                          \
    uv_run(&(f)->loop, UV_RUN_NOWAIT);                                                             \
    if (!(condition)) fail_msg("waited in vain for %s; the log: %s", #condition, (f)->log);        \
  } while (0)

static inline neap_request request_of(const char *method, const char *target, const char *body) {
  return (neap_request){.method = method,
                        .target = target,
                        .target_length = strlen(target),
                        .body = body,
                        .body_length = body ? strlen(body) : 0};
}

#endif
