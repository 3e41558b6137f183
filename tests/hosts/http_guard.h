/* http_guard.h: a guard of cardboard.  It admits or refuses as it is told, classifies by status
 * alone, and writes down everything it is asked, so that a test can tell what the proxy made of a
 * call. */
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
  neap_answer answer;

  /* written down */
  int reported_when_asked;
  int acquired, reported, asked, remembered, outstanding, freed;
  int outcomes[5]; /* by neap_outcome */
  char key[64];
  neap_result last; /* its pointers are not to be followed */
  char last_error[256];
  char last_body[70000];
  size_t last_body_length;
  neap_fallback_cause cause;
  char asked_body[70000]; /* of the request that the chain was given */
  size_t asked_body_length;
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

bool neap_guard_fallback(neap_guard *g, const char *key, size_t n, neap_fallback_cause cause,
                         const neap_request *request, const neap_result *result,
                         neap_answer *answer) {
  (void)key, (void)n, (void)result;
  if (cause != NEAP_CAUSE_REFUSED && g->reported == g->reported_when_asked) {
    fail_msg("the chain was asked before the call was reported");
  }
  g->reported_when_asked = g->reported;
  if (cause == NEAP_CAUSE_NEUTRAL || cause == NEAP_CAUSE_SUCCESS) return false;
  g->asked++;
  g->cause = cause;
  guard_copy(g->asked_body, &g->asked_body_length, request->body, request->body_length);
  if (!g->source) return false;
  *answer = g->answer;
  answer->source = g->source;
  return true;
}

void neap_answer_free(neap_answer *answer) {
  if (answer->source) guard.freed++;
}

void neap_guard_remember(neap_guard *g, const char *key, size_t n, const neap_request *request,
                         const neap_answer *answer) {
  (void)key, (void)n, (void)request;
  g->remembered++;
  guard_copy(g->kept_body, &g->kept_length, answer->body, answer->body_length);
}

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

#endif
