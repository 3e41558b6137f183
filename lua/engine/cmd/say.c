/* say.c: what a running neap says: every transition and reload, and, at the start, what it is about
 * to do and what looks wrong with that. */
#include "say.h"

#include <stdlib.h>
#include <string.h>

#include "reach.h"

#define SAY_EVERY_MS 60000

#define REACH_MS  3000
#define AGAIN_MS  1000  /* after a trial that failed; then twice that, and so on, */
#define SELDOM_MS 30000 /* up to this */

/* ---- What the engine says -------------------------------------------------------------------- */

static bool is_rate(neap_cause cause) {
  return cause == NEAP_BY_FAILURE_RATE || cause == NEAP_BY_SLOW_RATE;
}

/* Only what means something: a cooldown that is over has measured nothing.  Of a rate, what was
 * measured and its limit are shares of the calls, as in the text. */
static void log_transition(serve *s, const neap_event *event) {
  const neap_transition *m = &event->moved;
  double measured_of = is_rate(m->cause) && m->calls ? (double)m->calls : 1;
  double limit_of = is_rate(m->cause) ? NEAP_ONE : 1;
  log_field fields[16] = {
      {"policy", event->policy, 0},
      {"key", event->key, 0},
      {"from", neap_state_name(m->from), 0},
      {"to", neap_state_name(m->to), 0},
      {"reason", neap_cause_name(m->cause), 0},
  };
  size_t n = 5;
  if (m->limit > 0) {
    fields[n++] = (log_field){"measured", NULL, (double)m->measured / measured_of};
    fields[n++] = (log_field){"limit", NULL, (double)m->limit / limit_of};
    fields[n++] = (log_field){"calls", NULL, (double)m->calls};
  }
  if (m->open_ms > 0) fields[n++] = (log_field){"open_ms", NULL, (double)m->open_ms};
  if (m->flapping) fields[n++] = (log_field){"flapping", "yes", 0};
  fields[n++] = (log_field){"level", NULL, m->level};
  fields[n++] = (log_field){"epoch", NULL, m->epoch};
  fields[n++] = (log_field){"policy_hash", event->hash, 0};
  bool is_shadow = event->kind == NEAP_EVENT_SHADOW;
  log_line(s->L, s->plan.log, m->to == NEAP_OPEN && !is_shadow ? LOG_WARN : LOG_INFO,
           is_shadow ? "shadow" : "transition", fields, n, "%s", event->text);
}

void say_event(void *data, const neap_event *event) {
  static const struct {
    log_level level;
    const char *name;
  } kinds[] = {
      [NEAP_EVENT_RELOADED] = {LOG_INFO, "reload"},
      [NEAP_EVENT_RELOAD_FAILED] = {LOG_ERROR, "reload_failed"},
      [NEAP_EVENT_POLICY_GONE] = {LOG_WARN, "policy_gone"},
      [NEAP_EVENT_POLICY_ORPHANED] = {LOG_WARN, "policy_orphaned"},
      [NEAP_EVENT_POLICY_BACK] = {LOG_INFO, "policy_back"},
      [NEAP_EVENT_PARAMS] = {LOG_INFO, "params"},
  };
  serve *s = data;
  if (event->kind == NEAP_EVENT_TRANSITION || event->kind == NEAP_EVENT_SHADOW) {
    log_transition(s, event);
    return;
  }
  const log_field fields[] = {{"policy", event->policy, 0}, {"policy_hash", event->hash, 0}};
  log_line(s->L, s->plan.log, kinds[event->kind].level, kinds[event->kind].name, fields, 2, "%s",
           event->text);
}

/* What is fine is said by events and by the admin pages, with more to it. */
void say_line(void *data, neap_log_level level, const char *line) {
  serve *s = data;
  if (level < NEAP_LOG_WARNING) return;
  serve_log(s, level == NEAP_LOG_ERROR ? LOG_ERROR : LOG_WARN, "engine", "%s", line);
}

/* ---- What is worth saying at the start ------------------------------------------------------- */

/*   reach_try --failed--> the first time: a line; then wait, and again
 *             --reached-> after a failure: a line; over
 */
struct trial {
  serve *serve;
  const plan_route *route; /* the first to that upstream */
  uv_timer_t timer;        /* of the wait */
  uint64_t since_ms;       /* of the first failure; 0: none yet */
  uint64_t wait_ms;
  trial *next;
};

static void on_trial_closed(uv_handle_t *timer) {
  trial *t = timer->data;
  trial **at = &t->serve->trials;
  while (*at != t) at = &(*at)->next;
  *at = t->next;
  free(t);
}

static void trial_end(trial *t) {
  uv_handle_t *timer = (uv_handle_t *)&t->timer;
  if (!uv_is_closing(timer)) uv_close(timer, on_trial_closed);
}

static void log_reached(const trial *t) {
  uint64_t ms = uv_now(&t->serve->loop) - t->since_ms;
  const log_field fields[] = {{"upstream", t->route->upstream, 0},
                              {"unreachable_ms", NULL, (double)ms}};
  log_line(t->serve->L, t->serve->plan.log, LOG_INFO, "upstream", fields, 2,
           "%s can be reached now, after %.1f s", t->route->upstream, (double)ms / 1000);
}

static void on_wait_over(uv_timer_t *timer);

static void on_reached(void *data, const char *failure) {
  trial *t = data;
  serve *s = t->serve;
  if (s->is_draining || !failure) {
    if (!s->is_draining && t->since_ms) log_reached(t);
    trial_end(t);
    return;
  }
  if (!t->since_ms) {
    t->since_ms = uv_now(&s->loop);
    serve_log(s, LOG_WARN, "upstream", "%s can't be reached now: %s", t->route->upstream, failure);
  }
  uv_timer_start(&t->timer, on_wait_over, t->wait_ms, 0);
  t->wait_ms = t->wait_ms < SELDOM_MS / 2 ? 2 * t->wait_ms : SELDOM_MS;
}

static void trial_begin(trial *t) {
  reach_try(&t->serve->loop, t->route->upstream_host, t->route->upstream_port, REACH_MS, on_reached,
            t);
}

static void on_wait_over(uv_timer_t *timer) { trial_begin(timer->data); }

/* Does an earlier route go there, too? */
static bool is_tried(const plan *p, size_t i) {
  for (size_t j = 0; j < i; j++)
    if (strcmp(p->routes[j].upstream, p->routes[i].upstream) == 0) return true;
  return false;
}

void say_unreachable(serve *s) {
  for (size_t i = 0; i < s->plan.route_count; i++) {
    if (is_tried(&s->plan, i)) continue;
    trial *t = malloc(sizeof *t);
    if (!t) abort();
    *t = (trial){.serve = s, .route = &s->plan.routes[i], .wait_ms = AGAIN_MS, .next = s->trials};
    s->trials = t;
    uv_timer_init(&s->loop, &t->timer);
    t->timer.data = t;
    trial_begin(t);
  }
}

void say_no_more(serve *s) {
  for (trial *t = s->trials; t; t = t->next)
    if (uv_is_active((uv_handle_t *)&t->timer)) trial_end(t);
}

static void say_routes(serve *s) {
  for (size_t i = 0; i < s->plan.route_count; i++) {
    const plan_route *r = &s->plan.routes[i];
    const char *host = r->host ? r->host : r->prefix ? "*" : "-";
    const char *prefix = r->prefix ? r->prefix : "-";
    const log_field fields[] = {{"route", r->name, 0},    {"host", host, 0},
                                {"prefix", prefix, 0},    {"upstream", r->upstream, 0},
                                {"policy", r->policy, 0}, {"key", r->key, 0}};
    log_line(s->L, s->plan.log, LOG_INFO, "route", fields, sizeof fields / sizeof *fields,
             "%s%s -> %s, guarded by %s", r->host ? r->host : "",
             r->prefix ? r->prefix : "fallbacks", r->upstream, r->policy);
  }
}

static void say_unused_policies(serve *s) {
  neap_guard *guard;
  for (size_t i = 0; (guard = neap_engine_guard_at(s->engine, i)) != NULL; i++)
    if (!plan_routes_of(&s->plan, neap_guard_name(guard)))
      serve_log(
          s, LOG_WARN, "policy",
          "policy %s matches no route: a fallback.guard of another one has its fallback chain, "
          "but nobody is asked; that takes a route of its own, with prefix = false",
          neap_guard_name(guard));
}

static void say_few_clients(serve *s) {
  if (s->clients == http_limits_default().connections) return;
  serve_log(s, LOG_WARN, "clients",
            "at most %u clients at once: only %llu files may be open (ulimit -n)",
            (unsigned)s->clients, (unsigned long long)s->files);
}

/* Whether it is time to say it, or say it again. */
static bool is_due(const serve *s, uint64_t *said_ms) {
  uint64_t now_ms = uv_now(&s->loop);
  if (*said_ms && now_ms - *said_ms < SAY_EVERY_MS) return false;
  *said_ms = now_ms;
  return true;
}

void say_overload(serve *s) {
  if (!is_due(s, &s->overload_ms)) return;
  serve_log(s, LOG_WARN, "clients",
            "%u clients are connected, no more may be: further ones get a 503",
            (unsigned)s->clients);
}

void say_no_route(serve *s, const neap_queued *q) {
  const neap_request *r = q->request;
  if (!is_due(s, &s->no_route_ms)) return;
  const char *query = memchr(r->target, '?', r->target_length); /* may be nobody else's business */
  size_t length = query ? (size_t)(query - r->target) : r->target_length;
  serve_log(s, LOG_WARN, "queue", "a queued call waits: no route is for %s %.*s (id %s)", r->method,
            (int)length, r->target, q->id);
}

void say_hello(serve *s) {
  say_routes(s);
  say_unused_policies(s);
  say_few_clients(s);
  if (s->recorder) serve_log(s, LOG_INFO, "record", "recording each call in %s", s->plan.record);
  if (s->admin_server)
    serve_log(s, LOG_INFO, "start", "admin on http://%s:%d", s->plan.admin.host,
              http_server_port(s->admin_server));
  serve_log(s, LOG_INFO, "start", "neap " NEAP_VERSION " serving on http://%s:%d",
            s->plan.listen.host, http_server_port(s->server));
}
