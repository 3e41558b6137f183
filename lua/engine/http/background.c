/* background.c: a call that no client waits for: it refreshes a kept answer, or is one that a queue
 * has kept; and one that another route's exchange makes for a stage of its chain.  See exchange.h for
 * those that clients wait for.
 *
 *   acquire --refused--> told so
 *      |
 *   transfer -----> report -----> remember, if it is worth it -----> told what it came to
 *
 * All that the request is made of is copied: whoever asked may be gone. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MOST (1u << 20) /* bytes of a body for another route's client: it is held whole */

struct background {
  proxy_route *route;
  background *next, *before;
  uv_timer_t timer;
  http_transfer *transfer;
  neap_ticket ticket;
  http_request request; /* no client's */
  neap_header *headers;
  char *key, *body, *texts; /* texts: of the request's head */
  size_t key_length, body_length, body_read;
  http_bytes held;   /* of the answer */
  uint64_t received; /* bytes of its body */
  bool keeps;        /* all of it is held */
  uint64_t began_ns;

  uint64_t refresh;    /* for neap_guard_refreshed(); 0: none */
  uint64_t token;      /* for neap_engine_replayed(), if there is an engine */
  neap_engine *engine; /* NULL: not of a queue */
  exchange *asker;     /* for ex_asked(); NULL: none, or it has gone */
  bool is_callers;     /* its time is what the client has, and less than the policy gives */
};

/* ---- Beginning and ending -------------------------------------------------------------------- */

static char *copy(char **to, const char *text, size_t length) {
  char *at = *to;
  if (length) memcpy(at, text, length);
  at[length] = '\0';
  *to += length + 1;
  return at;
}

static void *must(void *memory) {
  if (!memory) abort();
  return memory;
}

static bool is_named(const neap_header *h, const char *const names[]) {
  for (; *names; names++)
    if (http_name_is(h->name, h->name_length, *names)) return true;
  return false;
}

/* Fields about framing are made anew, how long the client would wait is of no interest, and an
 * answer that is to be kept must be a whole one. */
static bool is_dropped(const neap_header *h, bool is_whole) {
  static const char *const never[] = {
      "content-length",   "transfer-encoding", "expect", "connection",
      "neap-deadline-ms", "grpc-timeout",      NULL};
  static const char *const conditions[] = {"if-none-match",
                                           "if-modified-since",
                                           "if-match",
                                           "if-unmodified-since",
                                           "if-range",
                                           "range",
                                           NULL};
  return is_named(h, never) || (is_whole && is_named(h, conditions));
}

static neap_header add_header(char **to, const char *name, size_t name_length, const char *value,
                              size_t value_length) {
  const char *n = copy(to, name, name_length);
  return (neap_header){n, name_length, copy(to, value, value_length), value_length};
}

static void copy_request(background *b, const neap_request *q, const char *id, bool is_whole) {
  size_t bytes = strlen(q->method) + q->target_length + 256;
  for (size_t i = 0; i < q->header_count; i++)
    bytes += q->headers[i].name_length + q->headers[i].value_length + 2;
  char *to = b->texts = must(malloc(bytes + (id ? strlen(id) : 0)));
  b->headers = must(malloc((q->header_count + 3) * sizeof *b->headers));
  b->body = must(malloc(q->body_length + 1));
  b->body_length = q->body_length;
  if (q->body_length) memcpy(b->body, q->body, q->body_length);
  b->request.method = copy(&to, q->method, strlen(q->method));
  b->request.target = (http_slice){copy(&to, q->target, q->target_length), q->target_length};
  size_t n = 0;
  for (size_t i = 0; i < q->header_count; i++) {
    const neap_header *h = &q->headers[i];
    if (is_dropped(h, is_whole)) continue;
    b->headers[n] = add_header(&to, h->name, h->name_length, h->value, h->value_length);
    if (http_name_is(h->name, h->name_length, "host"))
      b->request.host = (http_slice){b->headers[n].value, h->value_length};
    n++;
  }
  if (id && !http_field_find(b->headers, n, "idempotency-key"))
    b->headers[n++] = add_header(&to, "Idempotency-Key", 15, id, strlen(id));
  if (q->body_length || id) {
    char digits[20];
    http_slice length = http_number(digits, q->body_length);
    b->headers[n++] = add_header(&to, "Content-Length", 14, length.data, length.length);
  }
  b->request.headers = b->headers;
  b->request.header_count = n;
  b->request.content_length = (int64_t)q->body_length;
  b->request.body_complete = true;
}

static void on_timer_closed(uv_handle_t *timer) {
  background *b = timer->data;
  proxy_route *route = b->route;
  http_bytes_free(&b->held);
  free(b->key);
  free(b->texts);
  free(b->headers);
  free(b->body);
  free(b);
  proxy_release(route);
}

static void background_over(background *b) {
  *(b->before ? &b->before->next : &b->route->background) = b->next;
  if (b->next) b->next->before = b->before;
  if (b->refresh) neap_guard_refreshed(b->route->guard, b->refresh);
  uv_close((uv_handle_t *)&b->timer, on_timer_closed);
}

static background *background_new(proxy_route *route, const char *key, size_t key_length,
                                  const neap_request *question, const char *id, bool is_whole) {
  background *b = must(calloc(1, sizeof *b));
  b->route = route;
  b->next = route->background;
  if (b->next) b->next->before = b;
  route->background = b;
  route->holds++;
  uv_timer_init(route->loop, &b->timer);
  b->timer.data = b;
  b->key = must(malloc(key_length + 1));
  memcpy(b->key, key, key_length);
  b->key_length = key_length;
  b->keeps = true;
  copy_request(b, question, id, is_whole);
  return b;
}

/* ---- What it came to ------------------------------------------------------------------------- */

static neap_request question_of(const background *b) {
  const http_request *r = &b->request;
  return (neap_request){.method = r->method,
                        .target = r->target.data,
                        .target_length = r->target.length,
                        .headers = r->headers,
                        .header_count = r->header_count,
                        .body = b->body_length ? b->body : NULL,
                        .body_length = b->body_length};
}

static void tell_replayed(const background *b, neap_replay verdict, const char *reason,
                          uint64_t wait_ms) {
  if (b->engine) neap_engine_replayed(b->engine, b->token, verdict, reason, wait_ms);
}

static neap_replay verdict_of(neap_outcome outcome) {
  if (outcome == NEAP_SUCCESS) return NEAP_REPLAY_DONE;
  return outcome == NEAP_NEUTRAL ? NEAP_REPLAY_OWN : NEAP_REPLAY_LATER;
}

/* The exchange may be over when it returns. */
static void tell_asker(background *b, const neap_answer *good) {
  exchange *asker = b->asker;
  b->asker = NULL;
  if (asker) ex_asked(asker, good);
}

static void conclude(background *b, neap_ended_by ended_by) {
  const http_transfer *t = b->transfer;
  neap_request question = question_of(b);
  bool is_whole = b->keeps && ended_by == NEAP_ENDED_ANSWER;
  bool has_body = is_whole && b->held.length <= NEAP_BODY_MAX;
  neap_result result = {
      .ended_by = ended_by,
      .phase = t->phase,
      .status = ended_by == NEAP_ENDED_ANSWER ? t->status : 0,
      .headers = t->headers,
      .header_count = t->head_done ? t->header_count : 0,
      .body = has_body ? b->held.data : NULL,
      .body_length = has_body ? b->held.length : 0,
      .error = ended_by == NEAP_ENDED_TRANSPORT ? t->error : NULL,
      .duration_ms = (uv_hrtime() - b->began_ns) / 1000000,
      .request = &question,
  };
  neap_report report = {.reason = NULL};
  char reason[320];
  neap_outcome outcome = neap_guard_report(b->route->guard, &b->ticket, &result, &report);
  snprintf(reason, sizeof reason, "answered %d%s%s", result.status, report.reason ? ": " : "",
           report.reason ? report.reason : "");
  neap_answer good = {.status = t->status,
                      .headers = t->headers,
                      .header_count = t->header_count,
                      .body = b->held.length ? b->held.data : NULL,
                      .body_length = b->held.length};
  bool is_queued = !b->refresh && !b->asker;
  if (!is_queued && outcome == NEAP_SUCCESS && has_body && ex_is_worth_keeping(b->route, t))
    neap_guard_remember(b->route->guard, b->key, b->key_length, &question, &good);
  b->route->calls--;
  b->transfer = NULL;
  bool is_good = is_whole && (outcome == NEAP_SUCCESS || outcome == NEAP_NEUTRAL);
  tell_asker(b, is_good ? &good : NULL);
  tell_replayed(b, verdict_of(outcome), reason, 0);
  ex_slot_freed(b->route);
  background_over(b);
}

/* ---- The transfer ---------------------------------------------------------------------------- */

static void on_head(void *data, http_transfer *t) { (void)data, (void)t; }

static bool on_data(void *data, http_transfer *t, const char *bytes, size_t length) {
  background *b = data;
  (void)t;
  b->received += length;
  if (b->held.length + length > (b->asker ? ANSWER_MOST : NEAP_BODY_MAX)) b->keeps = false;
  if (b->keeps) http_bytes_add(&b->held, bytes, length);
  return true;
}

static size_t on_upload(void *data, http_transfer *t, char *buffer, size_t size) {
  background *b = data;
  size_t n = b->body_length - b->body_read;
  (void)t;
  if (n > size) n = size;
  memcpy(buffer, b->body + b->body_read, n);
  b->body_read += n;
  return n;
}

static bool on_resend(void *data, http_transfer *t) {
  (void)t;
  ((background *)data)->body_read = 0;
  return true;
}

static void on_done(void *data, http_transfer *t) {
  const background *b = data;
  bool has_length = t->content_length >= 0 && !t->bodiless;
  if (!t->error && has_length && b->received != (uint64_t)t->content_length)
    t->error = "the upstream's answer has another length than its Content-Length says";
  conclude(data, t->error ? NEAP_ENDED_TRANSPORT : NEAP_ENDED_ANSWER);
}

static const http_transfer_events events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_upload = on_upload,
    .on_resend = on_resend,
    .on_done = on_done,
};

static void on_late(uv_timer_t *timer) {
  background *b = timer->data;
  http_transfer *t = b->transfer;
  conclude(b, b->is_callers ? NEAP_ENDED_CALLER : NEAP_ENDED_TIMEOUT);
  http_transfer_cancel(t);
}

void background_go(background *b, uint64_t within_ms, bool is_callers) {
  proxy_route *route = b->route;
  neap_refusal refusal = {.reason = "too many calls at once"};
  neap_verdict verdict = NEAP_REFUSE_OPEN;
  if (route->calls < route->options.connections)
    verdict = neap_guard_acquire(route->guard, b->key, b->key_length, &b->ticket, &refusal);
  if (verdict > NEAP_ALLOW_BYPASS) {
    tell_replayed(b, NEAP_REPLAY_LATER, refusal.reason, refusal.retry_after_ms);
    tell_asker(b, NULL);
    background_over(b);
    return;
  }
  uint64_t timeout_ms = neap_guard_timeout_ms(route->guard);
  if (!timeout_ms) timeout_ms = route->options.answer_ms;
  b->is_callers = is_callers && within_ms < timeout_ms;
  route->calls++;
  b->began_ns = uv_hrtime();
  uv_timer_start(&b->timer, on_late, within_ms < timeout_ms ? within_ms : timeout_ms, 0);
  b->transfer = http_transfer_new(route->upstream, &b->request, &events, b);
  b->transfer->method = NULL; /* it may lie where another one lay */
  http_transfer_go(b->transfer);
}

/* ---- From outside ---------------------------------------------------------------------------- */

void background_refresh(const exchange *ex, const neap_request *question, uint64_t refresh) {
  proxy_route *route = ex->route;
  background *b = background_new(route, ex->key, ex->key_length, question, NULL, true);
  b->refresh = refresh;
  route->stats.refreshed++;
  background_go(b, UINT64_MAX, false);
}

background *background_ask(proxy_route *route, const neap_request *question, exchange *asker) {
  char key[NEAP_KEY_SIZE];
  size_t length = neap_guard_key(route->guard, question, route->within, key);
  background *b = background_new(route, length ? key : route->key,
                                 length ? length : route->key_length, question, NULL, false);
  b->asker = asker;
  route->stats.lent++;
  return b;
}

void proxy_replay(proxy_route *route, neap_engine *engine, const neap_queued *q) {
  background *b = background_new(route, q->key, q->key_length, q->request, q->id, false);
  b->engine = engine;
  b->token = q->token;
  route->stats.replayed++;
  background_go(b, UINT64_MAX, false);
}

/* In its middle. */
static void background_end(background *b) {
  http_transfer *t = b->transfer;
  b->transfer = NULL;
  b->route->calls--;
  tell_replayed(b, NEAP_REPLAY_LATER, NULL, 0);
  tell_asker(b, NULL);
  background_over(b);
  http_transfer_cancel(t);
}

/* As when a client leaves: it was no answer. */
void background_forget(background *b) {
  neap_request question = question_of(b);
  neap_result result = {
      .ended_by = NEAP_ENDED_CALLER, .phase = b->transfer->phase, .request = &question};
  b->asker = NULL;
  neap_guard_report(b->route->guard, &b->ticket, &result, NULL);
  ex_slot_freed(b->route);
  background_end(b);
}

void background_close(proxy_route *route) {
  while (route->background) {
    neap_guard_abandon(route->guard, &route->background->ticket);
    background_end(route->background);
  }
}
