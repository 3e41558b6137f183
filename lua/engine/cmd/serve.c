/* serve.c: start, signals, drain.
 *
 *   start:  engine -> routes -> recorder -> admin -> server
 *           anything wrong: a line about it, everything down again, exit 1
 *   stop:   server drained -> routes -> admin -> recorder -> engine -> loop ends
 */
#include "serve.h"

#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "admin.h"
#include "events.h"
#include "record.h"
#include "room.h"
#include "route.h"
#include "say.h"

/* A scrape holds what it says of every breaker, and the page its last minutes. */
#define LUA_BYTES             ((size_t)64 << 20)
#define LUA_BYTES_PER_BREAKER ((size_t)24 << 10)
#define ADMIN_DRAIN_MS        500

/* ---- Requests -------------------------------------------------------------------------------- */

static void on_request(void *data, http_request *request) {
  serve *s = data;
  int i = route_find(&s->plan, request->host, request->target);
  if (i < 0)
    http_answer_problem(request, 404, "No route", "no route of this neap is for this host and path",
                        NULL);
  else
    proxy_begin(s->routes[i], request);
}

/* A queued call goes where a client's would go that sent it now; one that would go nowhere waits: its
 * route may be back after the next start. */
static void on_replay(void *data, const neap_queued *q) {
  serve *s = data;
  const neap_request *r = q->request;
  http_slice host = {"", 0}, target = {r->target, r->target_length};
  for (size_t i = 0; i < r->header_count; i++)
    if (strcasecmp(r->headers[i].name, "host") == 0)
      host = (http_slice){r->headers[i].value, r->headers[i].value_length};
  int i = route_find(&s->plan, host, target);
  if (i < 0) say_no_route(s, q);
  if (i < 0 || s->is_draining || !s->routes[i])
    neap_engine_replayed(s->engine, q->token, NEAP_REPLAY_LATER, NULL, 0);
  else
    proxy_replay(s->routes[i], s->engine, q);
}

static void on_overload(void *data) { say_overload(data); }

static const http_handler handler = {.on_request = on_request, .on_overload = on_overload};

/* ---- Stop ------------------------------------------------------------------------------------ */

static void on_engine_closed(void *data) {
  serve *s = data;
  s->engine = NULL;
  s->is_stopped = true;
  uv_stop(&s->loop);
}

static void on_recorder_closed(void *data) {
  serve *s = data;
  s->recorder = NULL;
  if (s->engine)
    neap_engine_close(s->engine, on_engine_closed, s);
  else
    on_engine_closed(s);
}

static void stop_engine(serve *s) {
  admin_close(s->admin);
  s->admin = NULL;
  if (s->engine) events_close(s);
  if (s->recorder)
    record_close(s->recorder, on_recorder_closed, s);
  else
    on_recorder_closed(s);
}

static void on_admin_closed(void *data) {
  serve *s = data;
  s->admin_server = NULL;
  stop_engine(s);
}

static void on_route_closed(void *data) {
  serve *s = data;
  if (--s->routes_open > 0) return;
  if (s->admin) admin_end(s->admin);
  if (s->admin_server)
    http_server_drain(s->admin_server, ADMIN_DRAIN_MS, on_admin_closed, s);
  else
    stop_engine(s);
}

static void stop_routes(serve *s) {
  size_t count = s->routes_open;
  if (count == 0) {
    s->routes_open = 1;
    on_route_closed(s);
  }
  for (size_t i = 0; i < count; i++) {
    proxy_route *route = s->routes[i];
    s->routes[i] = NULL;
    proxy_close(route, on_route_closed, s);
  }
}

static void on_server_closed(void *data) {
  serve *s = data;
  s->server = NULL;
  stop_routes(s);
}

static void serve_stop(serve *s, uint64_t limit_ms) {
  bool is_first = !s->is_draining;
  s->is_draining = true;
  say_no_more(s);
  if (s->server)
    http_server_drain(s->server, limit_ms, on_server_closed, s);
  else if (is_first)
    stop_routes(s);
}

/* ---- Signals --------------------------------------------------------------------------------- */

size_t serve_reload(serve *s, size_t *failed, char *error, size_t size) {
  size_t reloaded = neap_engine_reload(s->engine, failed);
  error[0] = '\0';
  if ((s->admin && !admin_reload(s->admin, error, size)) || !events_reload(s, error, size)) {
    serve_log(s, LOG_ERROR, "reload_failed", "%s; the old token stays", error);
    (*failed)++;
  }
  return reloaded;
}

static void on_hangup(serve *s) {
  char error[1024];
  size_t failed = 0, reloaded = serve_reload(s, &failed, error, sizeof error);
  serve_log(s, failed ? LOG_WARN : LOG_INFO, "signal", "SIGHUP: %zu reloaded, %zu refused",
            reloaded, failed);
}

static void on_signal(uv_signal_t *handle, int number) {
  serve *s = handle->data;
  const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
  if (number == SIGHUP) {
    if (!s->is_draining) on_hangup(s);
  } else if (s->is_draining) {
    serve_log(s, LOG_WARN, "signal", "%s again: not waiting any longer", name);
    serve_stop(s, 0);
  } else {
    serve_log(s, LOG_INFO, "signal", "%s: draining, for at most %llu ms", name,
              (unsigned long long)s->plan.drain_ms);
    serve_stop(s, s->plan.drain_ms);
  }
}

/* As a job that a script put into the background: Ctrl-C is for whoever is in front. */
static bool is_ignored(int number) {
  struct sigaction inherited;
  return sigaction(number, NULL, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
}

static void watch_signals(serve *s) {
  static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uv_signal_init(&s->loop, &s->signals[i]);
    s->signals[i].data = s;
    if (numbers[i] == SIGINT && is_ignored(SIGINT)) continue;
    uv_signal_start(&s->signals[i], on_signal, numbers[i]);
  }
}

/* ---- Start ----------------------------------------------------------------------------------- */

static bool open_engine(serve *s, char *error, size_t size) {
  const neap_engine_options options = {
      .policies = s->plan.policies,
      .policy_count = s->plan.policy_count,
      .params = s->plan.params,
      .param_count = s->plan.param_count,
      .max_breakers = s->plan.max_breakers,
      .lua_memory_bytes = LUA_BYTES + s->plan.max_breakers * LUA_BYTES_PER_BREAKER,
      .on_event = say_event,
      .on_log = say_line,
      .state_dir = s->plan.state_dir,
      .on_replay = on_replay,
      .data = s,
  };
  return neap_engine_open(&s->loop, &options, &s->engine, error, size);
}

static bool open_route(serve *s, const plan_route *r, char *error, size_t size) {
  char why[512];
  neap_guard *guard = neap_engine_guard(s->engine, r->policy);
  if (!guard) {
    snprintf(error, size, "route %s: there is no policy \"%s\"", r->name, r->policy);
    return false;
  }
  const proxy_options options = {
      .name = r->name,
      .upstream = r->upstream,
      .guard = guard,
      .key = r->key,
      .shares_guard = plan_routes_of(&s->plan, r->policy) > 1,
      .connect_ms = r->connect_ms,
      .answer_ms = r->answer_ms,
      .http2 = r->http2,
      .ca_file = r->ca_file,
  };
  proxy_route **route = &s->routes[s->routes_open];
  if (!proxy_open(&s->loop, &options, route, why, sizeof why)) {
    snprintf(error, size, "route %s: %s", r->name, why);
    return false;
  }
  if (r->serves) proxy_serve(*route);
  s->routes_open++;
  return true;
}

static bool open_routes(serve *s, char *error, size_t size) {
  s->routes = calloc(s->plan.route_count, sizeof *s->routes);
  if (!s->routes) abort();
  for (size_t i = 0; i < s->plan.route_count; i++)
    if (!open_route(s, &s->plan.routes[i], error, size)) return false;
  return true;
}

static bool listen_on(serve *s, const plan_address *address, http_limits limits,
                      const http_handler *h, void *data, http_server **out, char *error,
                      size_t size) {
  const http_server_options options = {
      .host = address->host, .port = address->port, .limits = limits, .handler = h, .data = data};
  return http_server_open(&s->loop, &options, out, error, size);
}

static bool open_admin(serve *s, char *error, size_t size) {
  /* Pages that are left open, or worse, do not keep anybody from /healthz. */
  const http_limits limits = {.connections = ROOM_ADMIN, .makes_room = true};
  if (!s->plan.admin.host) return true;
  return admin_open(s, &s->admin, error, size) &&
         listen_on(s, &s->plan.admin, limits, &admin_handler, s->admin, &s->admin_server, error,
                   size);
}

static bool open_record(serve *s, char *error, size_t size) {
  return !s->plan.record || record_open(s, &s->recorder, error, size);
}

static bool serve_start(serve *s, char *error, size_t size) {
  return open_engine(s, error, size) && events_open(s, error, size) &&
         open_routes(s, error, size) && open_record(s, error, size) && open_admin(s, error, size) &&
         listen_on(s, &s->plan.listen, (http_limits){.connections = s->clients}, &handler, s,
                   &s->server, error, size);
}

/* Several faults are several lines. */
static void say_error(char *error) {
  for (char *line = strtok(error, "\n"); line; line = strtok(NULL, "\n"))
    fprintf(stderr, "neap serve: %s\n", line);
}

/* A name that is being looked up cannot be called off, and is not waited for. */
static void serve_free(serve *s) {
  for (size_t i = 0; i < sizeof s->signals / sizeof *s->signals; i++)
    uv_close((uv_handle_t *)&s->signals[i], NULL);
  uv_run(&s->loop, UV_RUN_NOWAIT); /* does nothing, perhaps, but forget that it was stopped */
  uv_run(&s->loop, s->trials ? UV_RUN_NOWAIT : UV_RUN_DEFAULT);
  uv_loop_close(&s->loop);
  plan_free(&s->plan);
  free(s->routes);
  free(s);
}

int serve_run(lua_State *L, int index) {
  serve *s = calloc(1, sizeof *s);
  if (!s) abort();
  char error[8192];
  s->L = L;
  plan_read(L, index, &s->plan);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* a file over the limit (ulimit -f) is a full disk, not the end */
  uv_loop_init(&s->loop);
  watch_signals(s);
  s->clients = room_for_clients(s->plan.route_count, &s->files);
  bool ok = serve_start(s, error, sizeof error);
  if (ok) {
    say_hello(s);
    say_unreachable(s);
  } else {
    say_error(error);
    serve_stop(s, 0);
  }
  while (!s->is_stopped) uv_run(&s->loop, UV_RUN_DEFAULT);
  if (ok) serve_log(s, LOG_INFO, "stop", "stopped");
  serve_free(s);
  return ok ? 0 : 1;
}
