/* say.c: what a running neap says: every transition and reload, and, at the start, what it is about
 * to do and what looks wrong with that. */
#include "say.h"

#include <stdlib.h>
#include <string.h>

#include "reach.h"

#define REACH_MS 3000

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
  log_line(s->L, s->plan.log, m->to == NEAP_OPEN ? LOG_WARN : LOG_INFO, "transition", fields, n,
           "%s", event->text);
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
  };
  serve *s = data;
  if (event->kind == NEAP_EVENT_TRANSITION) {
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

typedef struct trial {
  serve *serve;
  const char *upstream;
} trial;

static void on_reached(void *data, const char *failure) {
  trial *t = data;
  if (failure && !t->serve->is_draining)
    serve_log(t->serve, LOG_WARN, "upstream", "%s can't be reached now: %s", t->upstream, failure);
  t->serve->trials--;
  free(t);
}

/* Does an earlier route go there, too? */
static bool is_tried(const plan *p, size_t i) {
  for (size_t j = 0; j < i; j++)
    if (strcmp(p->routes[j].upstream, p->routes[i].upstream) == 0) return true;
  return false;
}

void say_unreachable(serve *s) {
  for (size_t i = 0; i < s->plan.route_count; i++) {
    const plan_route *r = &s->plan.routes[i];
    if (is_tried(&s->plan, i)) continue;
    trial *t = malloc(sizeof *t);
    if (!t) abort();
    *t = (trial){s, r->upstream};
    s->trials++;
    reach_try(&s->loop, r->upstream_host, r->upstream_port, REACH_MS, on_reached, t);
  }
}

static void say_routes(serve *s) {
  for (size_t i = 0; i < s->plan.route_count; i++) {
    const plan_route *r = &s->plan.routes[i];
    const log_field fields[] = {{"route", r->name, 0},    {"host", r->host ? r->host : "*", 0},
                                {"prefix", r->prefix, 0}, {"upstream", r->upstream, 0},
                                {"policy", r->policy, 0}, {"key", r->key, 0}};
    log_line(s->L, s->plan.log, LOG_INFO, "route", fields, sizeof fields / sizeof *fields,
             "%s%s -> %s, guarded by %s", r->host ? r->host : "", r->prefix, r->upstream,
             r->policy);
  }
}

static bool is_routed(const plan *p, const char *policy) {
  for (size_t i = 0; i < p->route_count; i++)
    if (strcmp(p->routes[i].policy, policy) == 0) return true;
  return false;
}

static void say_unused_policies(serve *s) {
  neap_guard *guard;
  for (size_t i = 0; (guard = neap_engine_guard_at(s->engine, i)) != NULL; i++)
    if (!is_routed(&s->plan, neap_guard_name(guard)))
      serve_log(s, LOG_WARN, "policy",
                "policy %s matches no route: nothing but another policy's fallback will use it",
                neap_guard_name(guard));
}

void say_hello(serve *s) {
  say_routes(s);
  say_unused_policies(s);
  if (s->admin_server)
    serve_log(s, LOG_INFO, "start", "admin on http://%s:%d", s->plan.admin.host,
              http_server_port(s->admin_server));
  serve_log(s, LOG_INFO, "start", "neap " NEAP_VERSION " serving on http://%s:%d",
            s->plan.listen.host, http_server_port(s->server));
}
