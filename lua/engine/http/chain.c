/* chain.c: what is sent instead of the upstream's answer: the fallback chain's, or a problem; see
 * exchange.h.
 *
 * Whatever sends an answer comes last in its function: the exchange may be over when it returns. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Headers of our own ---------------------------------------------------------------------- */

neap_header *ex_headers_room(proxy_route *route, size_t count) {
  if (count > route->headers_capacity) {
    route->headers_capacity = count + 16;
    free(route->headers);
    route->headers = malloc(route->headers_capacity * sizeof *route->headers);
    if (!route->headers) abort();
  }
  return route->headers;
}

static bool is_ours(const neap_header *h) {
  static const char *const names[] = {"age", "cache-control", "content-length", "neap-source",
                                      "retry-after"};
  static const uint32_t lengths = 1u << 3 | 1u << 11 | 1u << 13 | 1u << 14;
  if (http_name_is_hop_by_hop(h->name, h->name_length)) return true;
  if (h->name_length > 14 || !(lengths >> h->name_length & 1)) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (http_name_is(h->name, h->name_length, names[i])) return true;
  }
  return false;
}

/* A stage can be a function that makes its fields of what the client sent. */
static bool is_sound(const neap_header *h) {
  return h->name_length && http_span_token(h->name, h->name + h->name_length) == h->name_length &&
         http_span_value(h->value, h->value + h->value_length) == h->value_length;
}

static uint64_t number(const neap_header *h) {
  uint64_t n = 0;
  if (!h || !h->value_length || h->value_length > 9) return 0;
  for (size_t i = 0; i < h->value_length; i++) {
    if (h->value[i] < '0' || h->value[i] > '9') return 0;
    n = n * 10 + (uint64_t)(h->value[i] - '0');
  }
  return n;
}

/* ---- The chain's answer ---------------------------------------------------------------------- */

static neap_header seconds(const char *name, char digits[20], uint64_t s) {
  http_slice text = http_number(digits, s);
  return (neap_header){name, strlen(name), text.data, text.length};
}

/* A typed failure has no body of its own: it gets a problem's. */
static http_bytes problem_for(const exchange *ex, const neap_answer *a, http_refused refused) {
  http_bytes body = {0};
  char detail[256];
  refused.reason = a->kind ? a->kind : "failed";
  snprintf(detail, sizeof detail, "%s/%s: %s", neap_guard_name(ex->route->guard), ex->key,
           refused.reason);
  http_problem(&body, a->status, http_status_reason(a->status), detail, &refused);
  return body;
}

static size_t chain_headers(exchange *ex, const neap_answer *a, bool problem, neap_header *to) {
  size_t n = 0;
  for (size_t i = 0; i < a->header_count; i++) {
    if (!is_ours(&a->headers[i]) && is_sound(&a->headers[i])) to[n++] = a->headers[i];
  }
  if (!http_field_find(a->headers, a->header_count, "date")) {
    to[n++] = http_field("Date", http_server_date(ex->request->server));
  }
  if (problem) to[n++] = http_field("Content-Type", "application/problem+json");
  to[n++] = http_field("Neap-Source", a->source);
  to[n++] = http_field("Cache-Control", "no-store");
  return n;
}

static void chain_answer(exchange *ex, neap_answer *a, http_refused refused) {
  char age[20], retry[20];
  if (!a->status) a->status = strcmp(a->source, "fail") ? 200 : 503;
  bool problem = !a->body && !strcmp(a->source, "fail");
  neap_header *to = ex_headers_room(ex->route, a->header_count + 6);
  size_t n = chain_headers(ex, a, problem, to);
  if (!strcmp(a->source, "last_good")) {
    uint64_t before = number(http_field_find(a->headers, a->header_count, "age"));
    to[n++] = seconds("Age", age, before + a->age_ms / 1000);
  }
  if (a->retry_after_ms) refused.retry_after_ms = a->retry_after_ms;
  if (refused.retry_after_ms && a->status >= 400) {
    to[n++] = seconds("Retry-After", retry, (refused.retry_after_ms + 999) / 1000);
  }
  http_bytes text = problem ? problem_for(ex, a, refused) : (http_bytes){0};
  const char *body = problem ? text.data : a->body ? a->body : "";
  size_t length = problem ? text.length : a->body_length;
  /* Of HEAD, nobody knows how long a body would be that is not there. */
  bool unknown = !length && !strcmp(ex->request->method, "HEAD");
  http_head head = {
      .status = a->status, .headers = to, .header_count = n, .content_length = unknown ? -2 : 0};
  ex->route->stats.fallback++;
  http_answer(ex->request, &head, unknown ? NULL : body, length);
  http_bytes_free(&text);
  neap_answer_free(a);
}

/* ---- A call that is put into a queue --------------------------------------------------------- */

static void send_problem(exchange *ex, int status, const char *detail, const http_refused *refused);

void ex_keep_none(exchange *ex) {
  if (ex->stage != EX_KEEP) return;
  neap_guard_when_kept(ex->route->guard, ex->later.pending, NULL, NULL);
  neap_answer_free(&ex->later);
}

void ex_unkept(exchange *ex) {
  ex_keep_none(ex);
  send_problem(ex, 503, "the call could not be put into its queue", NULL);
}

static void on_kept(void *data, bool is_kept) {
  exchange *ex = data;
  neap_answer answer = ex->later;
  ex->stage = EX_OVER; /* nobody is told any more */
  ex_due(ex, DUE_KEPT, UINT64_MAX);
  if (is_kept) {
    chain_answer(ex, &answer, (http_refused){0});
    return;
  }
  neap_answer_free(&answer);
  send_problem(ex, 503, "the call could not be put into its queue", NULL);
}

/* Whether a client can be told that. */
static bool is_tellable(neap_answer *answer) {
  if (answer->elsewhere || !answer->status || (answer->status >= 200 && answer->status <= 599))
    return true;
  neap_answer_free(answer);
  return false;
}

/* Nobody is told that it is queued before it is on the disk. */
static void keep(exchange *ex, const neap_answer *answer) {
  uint64_t limit_ms = answer->within_ms ? answer->within_ms : ex_deadline_ms(ex);
  uint64_t left_ms = ex_left_ms(ex);
  ex->stage = EX_KEEP;
  ex->later = *answer;
  ex_due(ex, DUE_ANSWER, UINT64_MAX);
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  ex_due(ex, DUE_KEPT, left_ms < limit_ms ? left_ms : limit_ms);
  neap_guard_when_kept(ex->route->guard, answer->pending, on_kept, ex);
}

/* ---- Another route's upstream ---------------------------------------------------------------- */

#define CLOCKS_MS 10 /* so far the loop's clock and the engine's are apart, in differences */

static void ask_elsewhere(exchange *ex, const neap_answer *answer);

void ex_ask_none(exchange *ex) {
  if (ex->stage != EX_ASK) return;
  if (ex->asking) background_forget(ex->asking);
  ex->asking = NULL;
  neap_guard_asked(ex->route->guard, ex->pending, NULL, NULL);
}

/* What came of the call is kept, for when the chain has no answer. */
static void keep_last(exchange *ex) {
  http_transfer *t = ex_take_transfer(ex);
  if (t && t->ended) {
    t->kept = true;
    ex->last = t;
    return;
  }
  if (t) http_transfer_cancel(t);
  if (ex->end.ended_by != NEAP_ENDED_ANSWER) return;
  ex->end.ended_by = NEAP_ENDED_TRANSPORT; /* too large, or before the request was sent */
  ex->end.status = 502;
}

/* The chain has no answer: as if it had never been asked. */
static void ask_in_vain(exchange *ex) {
  http_refused refused = ex->refused;
  ex->unanswered = true;
  ex->stage = EX_AWAIT;
  if (refused.reason)
    ex_refused(ex, &(neap_refusal){refused.reason, refused.state, refused.retry_after_ms});
  else if (ex->attempts)
    ex_last(ex);
  else
    ex_too_late(ex);
}

static void chain_said(exchange *ex, neap_answer *answer, http_refused refused);

void ex_asked(exchange *ex, const neap_answer *good) {
  neap_answer answer;
  bool has_answer = neap_guard_asked(ex->route->guard, ex->pending, good, &answer);
  ex->asking = NULL;
  ex->stage = EX_AWAIT; /* nobody is being asked now */
  if (!has_answer || !is_tellable(&answer))
    ask_in_vain(ex);
  else
    chain_said(ex, &answer, ex->refused);
}

/* One that has come about by the deadline of the client, which says nothing about the upstream, is
 * told from one by ours. */
static void ask_elsewhere(exchange *ex, const neap_answer *answer) {
  proxy_route *other = answer->elsewhere;
  neap_request question = ex_question(ex);
  uint64_t left_ms = ex_left_ms(ex);
  uint64_t within_ms = answer->within_ms ? answer->within_ms : UINT64_MAX;
  bool is_own = within_ms < left_ms && left_ms - within_ms > CLOCKS_MS; /* the stage's limit */
  bool is_callers = ex->by_client && !is_own;
  ex->stage = EX_ASK;
  ex->pending = answer->pending;
  ex_due(ex, DUE_ANSWER, UINT64_MAX);
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  if (!left_ms) {
    ex_asked(ex, NULL);
    return;
  }
  ex->asking = background_ask(other, &question, ex);
  background_go(ex->asking, left_ms < within_ms ? left_ms : within_ms, is_callers);
}

/* ---- Asking the chain ------------------------------------------------------------------------ */

static void chain_said(exchange *ex, neap_answer *answer, http_refused refused) {
  if (answer->elsewhere) {
    ask_elsewhere(ex, answer);
    return;
  }
  ex_drop_transfer(ex);
  if (answer->pending) {
    keep(ex, answer);
    return;
  }
  ex->stage = EX_OVER;
  chain_answer(ex, answer, refused);
}

/* Asks the chain, and if it answers drops the transfer and sends that.  A body that did not come
 * whole, or is over 64 KiB, cannot be given to it. */
static bool ask_chain(exchange *ex, neap_fallback_cause cause, const neap_result *result,
                      http_refused refused) {
  neap_request question = ex_question(ex);
  neap_answer answer = {0};
  if (!ex_body_is_whole(ex) || ex->unanswered) return false;
  if (!neap_guard_fallback_pending(ex->route->guard, ex->key, ex->key_length, cause, &question,
                                   result, &answer)) {
    return false;
  }
  if (!is_tellable(&answer)) return false;
  if (answer.elsewhere) {
    ex->refused = refused;
    keep_last(ex);
  }
  chain_said(ex, &answer, refused);
  return true;
}

/* Of a body that is not whole, nobody has an answer. */
bool ex_at_once(exchange *ex) {
  proxy_route *route = ex->route;
  neap_answer answer;
  uint64_t refresh;
  if (!ex_body_is_whole(ex)) return false;
  neap_request question = ex_question(ex);
  if (!neap_guard_at_once(route->guard, ex->key, ex->key_length, &question, &answer, &refresh)) {
    return false;
  }
  if (refresh) background_refresh(ex, &question, refresh);
  ex->stage = EX_OVER;
  chain_answer(ex, &answer, (http_refused){0});
  return true;
}

bool ex_chain(exchange *ex, neap_fallback_cause cause, const neap_result *result) {
  return ask_chain(ex, cause, result, (http_refused){0});
}

static const char *why_not_asked(const exchange *ex) {
  return ex_body_is_whole(ex) ? "" : "; no fallback was asked: the request's body was not kept";
}

/* The detail is not the transfer's. */
static void send_problem(exchange *ex, int status, const char *detail,
                         const http_refused *refused) {
  ex_drop_transfer(ex);
  ex->stage = EX_OVER;
  http_answer_problem(ex->request, status, http_status_reason(status), detail, refused);
}

void ex_problem(exchange *ex, int status, const char *detail) {
  char text[512];
  snprintf(text, sizeof text, "%s%s", detail, why_not_asked(ex));
  send_problem(ex, status, text, NULL);
}

void ex_refused(exchange *ex, const neap_refusal *refusal) {
  if (ex->attempts) {
    ex_last(ex);
    return;
  }
  char text[512];
  http_refused refused = {refusal->reason ? refusal->reason : "refused", refusal->state,
                          refusal->retry_after_ms};
  if (ask_chain(ex, NEAP_CAUSE_REFUSED, NULL, refused)) return;
  snprintf(text, sizeof text, "%s/%s: %s%s", neap_guard_name(ex->route->guard), ex->key,
           refused.reason, why_not_asked(ex));
  ex->route->stats.refused++;
  send_problem(ex, 503, text, &refused);
}
