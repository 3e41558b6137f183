/* http_guard.h: a proxy with a guard of cardboard, which admits or refuses as it is told,
 * classifies by status alone, and writes down everything it is asked, so that a test can tell what
 * the proxy made of a call. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include "http_support.h"

struct neap_guard {
  /* told by the test */
  uint32_t timeout_ms;
  size_t wants;
  bool refuses, probes;
  uint32_t lease_ms;
  const char *source; /* of the chain's answer; NULL: it declines */
  uint32_t attempts;  /* at most; 0: no retry */
  uint64_t retry_ms;  /* the wait before another */
  uint32_t slots;     /* of a bulkhead; 0: none */
  uint32_t wait_ms;   /* for one */
  uint32_t deadline_ms;
  neap_answer answer;
  bool has_answer;  /* before anybody is asked */
  uint64_t refresh; /* ... but it is old */

  /* written down */
  void (*kept)(void *data, bool is_kept); /* who waits for the queue; NULL: nobody */
  void *kept_data;
  void *served;    /* as which this guard is asked for others' fallbacks */
  int asked_again; /* told what came of asking elsewhere */
  int gone;        /* ... that nobody waits for it */
  int refreshed, replayed, abandoned;
  neap_replay replay;
  uint64_t replay_token, replay_wait_ms;
  char replay_reason[256];
  int reported_when_asked;
  int retries;      /* asked for */
  int full;         /* refused for want of a slot */
  uint64_t left_ms; /* until the deadline, as it was told last */
  int acquired, reported, asked, answered, remembered, outstanding, freed;
  int outcomes[5]; /* by neap_outcome */
  char key[64];
  neap_result last; /* its pointers are not to be followed */
  char last_error[256];
  char last_body[70000];
  size_t last_body_length;
  neap_fallback_cause cause;
  char asked_body[70000]; /* of the request that the chain was given */
  size_t asked_body_length;
  bool asked_has_deadline;
  uint64_t asked_left_ms;
  char kept_body[70000];
  size_t kept_length;
};

static neap_guard guard;

static void guard_copy(char *to, size_t *length, const void *body, size_t n) {
  *length = body ? n : 0;
  if (body) memcpy(to, body, n);
}

neap_verdict neap_guard_acquire(neap_guard *g, const char *key, size_t n, neap_ticket *ticket,
                                neap_refusal *refusal) {
  snprintf(g->key, sizeof g->key, "%.*s", (int)n, key);
  if (g->refuses) {
    *refusal = (neap_refusal){.reason = "open", .state = "open", .retry_after_ms = 1500};
    return NEAP_REFUSE_OPEN;
  }
  if (g->slots && (uint32_t)g->outstanding >= g->slots) {
    g->full++;
    *refusal = (neap_refusal){.reason = "bulkhead", .state = "closed"};
    return NEAP_REFUSE_BULKHEAD;
  }
  g->acquired++;
  g->outstanding++;
  ticket->opaque[0] = 1;
  return g->probes ? NEAP_ALLOW_PROBE : NEAP_ALLOW;
}

static neap_outcome guard_classify(const neap_result *r) {
  switch (r->ended_by) {
    case NEAP_ENDED_CALLER: return NEAP_NEUTRAL;
    case NEAP_ENDED_TIMEOUT: return NEAP_TIMEOUT;
    case NEAP_ENDED_TRANSPORT: return NEAP_FAILURE;
    default:
      return r->status >= 500 ? NEAP_FAILURE : r->status >= 400 ? NEAP_NEUTRAL : NEAP_SUCCESS;
  }
}

neap_outcome neap_guard_report(neap_guard *g, neap_ticket *ticket, const neap_result *r,
                               neap_report *report) {
  (void)report;
  if (!ticket->opaque[0]) fail_msg("a ticket was reported twice");
  ticket->opaque[0] = 0;
  g->reported++;
  g->outstanding--;
  g->last = *r;
  snprintf(g->last_error, sizeof g->last_error, "%s", r->error ? r->error : "");
  guard_copy(g->last_body, &g->last_body_length, r->body, r->body_length);
  neap_outcome outcome = guard_classify(r);
  g->outcomes[outcome]++;
  return outcome;
}

bool neap_guard_fallback_pending(neap_guard *g, const char *key, size_t n,
                                 neap_fallback_cause cause, const neap_request *request,
                                 const neap_result *result, neap_answer *answer) {
  (void)key, (void)n;
  bool is_new = g->reported != g->reported_when_asked || g->retries; /* or kept for another try */
  if (cause != NEAP_CAUSE_REFUSED && result && !is_new) {
    fail_msg("the chain was asked before the call was reported");
  }
  g->reported_when_asked = g->reported;
  if (cause == NEAP_CAUSE_NEUTRAL || cause == NEAP_CAUSE_SUCCESS) return false;
  g->asked++;
  g->cause = cause;
  g->asked_has_deadline = request->has_deadline;
  g->asked_left_ms = request->left_ms;
  guard_copy(g->asked_body, &g->asked_body_length, request->body, request->body_length);
  if (!g->source) return false;
  *answer = g->answer;
  if (answer->elsewhere) return true;
  g->answered++;
  answer->source = g->source;
  return true;
}

void neap_guard_serve(neap_guard *g, void *whom) { g->served = whom; }

bool neap_guard_asked(neap_guard *g, uint64_t pending, const neap_answer *good,
                      neap_answer *answer) {
  static char body[1 << 20];
  assert_int_equal(pending, g->answer.pending);
  if (!answer) return g->gone++, false;
  g->asked_again++;
  if (!good) return false;
  assert_true(good->body_length <= sizeof body);
  if (good->body) memcpy(body, good->body, good->body_length);
  *answer = (neap_answer){
      .status = good->status, .body = body, .body_length = good->body_length, .source = "guard"};
  g->answered++;
  return true;
}

void neap_answer_free(neap_answer *answer) {
  if (answer->source) guard.freed++;
}

void neap_guard_when_kept(neap_guard *g, uint64_t pending, void (*kept)(void *data, bool is_kept),
                          void *data) {
  assert_int_equal(pending, g->answer.pending);
  g->kept = kept;
  g->kept_data = data;
}

bool neap_guard_at_once(neap_guard *g, const char *key, size_t n, const neap_request *request,
                        neap_answer *answer, uint64_t *refresh) {
  (void)key, (void)n, (void)request;
  *refresh = g->refresh;
  if (!g->has_answer) return false;
  g->answered++;
  *answer = g->answer;
  answer->source = "last_good";
  return true;
}

void neap_guard_refreshed(neap_guard *g, uint64_t refresh) {
  assert_int_equal(refresh, g->refresh);
  g->refreshed++;
}

void neap_engine_replayed(neap_engine *e, uint64_t token, neap_replay verdict, const char *reason,
                          uint64_t wait_ms) {
  (void)e;
  guard.replayed++;
  guard.replay_token = token;
  guard.replay = verdict;
  guard.replay_wait_ms = wait_ms;
  snprintf(guard.replay_reason, sizeof guard.replay_reason, "%s", reason ? reason : "");
}

void neap_guard_abandon(neap_guard *g, neap_ticket *ticket) {
  (void)ticket;
  g->outstanding--;
  g->reported++;
  g->abandoned++;
}

void neap_guard_remember(neap_guard *g, const char *key, size_t n, const neap_request *request,
                         const neap_answer *answer) {
  (void)key, (void)n, (void)request;
  g->remembered++;
  guard_copy(g->kept_body, &g->kept_length, answer->body, answer->body_length);
}

bool neap_guard_retry(neap_guard *g, const char *key, size_t n, uint32_t made, uint64_t left_ms,
                      const neap_result *result, uint64_t *wait_ms) {
  (void)key, (void)n;
  if (!result->request) fail_msg("nobody knows what may be tried again");
  g->retries++;
  g->left_ms = left_ms;
  *wait_ms = g->retry_ms;
  return made < g->attempts && (!left_ms || *wait_ms < left_ms);
}

size_t neap_guard_key(neap_guard *g, const neap_request *request, const char *within, char *key) {
  (void)g, (void)request, (void)within, (void)key;
  return 0;
}

bool neap_guard_has_slot(neap_guard *g, const char *key, size_t n) {
  (void)key, (void)n;
  return !g->slots || (uint32_t)g->outstanding < g->slots;
}

uint32_t neap_guard_deadline_ms(const neap_guard *g) { return g->deadline_ms; }
uint32_t neap_guard_wait_ms(const neap_guard *g) { return g->wait_ms; }

size_t neap_guard_wants_body(const neap_guard *g) { return g->wants; }
uint32_t neap_guard_timeout_ms(const neap_guard *g) { return g->timeout_ms; }
uint32_t neap_guard_lease_ms(const neap_guard *g) { return g->lease_ms; }
const char *neap_guard_name(const neap_guard *g) {
  (void)g;
  return "policy";
}

neap_fallback_cause neap_cause_of(neap_outcome outcome) {
  switch (outcome) {
    case NEAP_SUCCESS: return NEAP_CAUSE_SUCCESS;
    case NEAP_TIMEOUT: return NEAP_CAUSE_TIMEOUT;
    case NEAP_FAILURE: return NEAP_CAUSE_FAILURE;
    default: return NEAP_CAUSE_NEUTRAL;
  }
}

/* ---- The proxy in front of it ---------------------------------------------------------------- */

static http_server *server;
static proxy_route *route;
static int upstream = -1; /* listens, if the test itself plays it */
static bool all_is_closed;

static inline void on_request(void *data, http_request *request) {
  (void)data;
  proxy_begin(route, request);
}

static inline void on_route_closed(void *data) {
  (void)data;
  all_is_closed = true;
}

static inline void on_server_closed(void *data) {
  (void)data;
  proxy_close(route, on_route_closed, NULL);
}

/* Forgets all that the guard was told, and opens a route to options.upstream. */
static inline void open_to(proxy_options options, http_limits limits) {
  static const http_handler handler = {.on_request = on_request};
  char error[256] = "";
  memset(&guard, 0, sizeof guard);
  guard.timeout_ms = 5000;
  guard.wants = NEAP_BODY_MAX;
  all_is_closed = false;
  options.name = "route";
  options.guard = &guard;
  http_server_options listening = {.host = "127.0.0.1", .limits = limits, .handler = &handler};
  if (!proxy_open(&loop, &options, &route, error, sizeof error)) fail_msg("%s", error);
  if (!http_server_open(&loop, &listening, &server, error, sizeof error)) fail_msg("%s", error);
}

/* The same, to an upstream that the test plays. */
static inline void open_with(proxy_options options, http_limits limits) {
  static char url[64];
  upstream = listen_at("127.0.0.1", 0);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port_of(upstream));
  options.upstream = url;
  open_to(options, limits);
}

/* Whatever happened, every ticket has been given back, once. */
static inline void close_all(void) {
  http_server_drain(server, 0, on_server_closed, NULL);
  turn_until(all_is_closed);
  assert_int_equal(guard.outstanding, 0);
  assert_int_equal(guard.acquired, guard.reported);
  assert_int_equal(guard.freed, guard.answered);
  if (upstream >= 0) close(upstream);
  upstream = -1;
}

static inline const proxy_stats *stats(void) { return proxy_stats_of(route); }
static inline int dial_proxy(void) { return dial(http_server_port(server)); }

#endif
