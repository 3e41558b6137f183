/* proxy.c: routes, and the request's way to the upstream; see exchange.h. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOAD_HIGH (2 * NEAP_BODY_MAX) /* bytes of a streamed body on their way */

/* ---- Deadlines ------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void timer_update(exchange *ex) {
  uint64_t due = 0, now = uv_now(ex->route->loop);
  for (int i = 0; i < DUE_COUNT; i++) {
    if (ex->due[i] && (!due || ex->due[i] < due)) due = ex->due[i];
  }
  if (!due || (ex->timer_due && ex->timer_due <= due)) return; /* it runs, and will see */
  ex->timer_due = due;
  uv_timer_start(&ex->timer, on_timer, due > now ? due - now : 0, 0);
}

void ex_due(exchange *ex, exchange_due which, uint64_t in_ms) {
  ex->due[which] = in_ms == UINT64_MAX ? 0 : uv_now(ex->route->loop) + in_ms;
  timer_update(ex);
}

static void on_timer(uv_timer_t *timer) {
  exchange *ex = timer->data;
  uint64_t now = uv_now(ex->route->loop);
  ex->timer_due = 0;
  for (int i = 0; i < DUE_COUNT && ex->request; i++) {
    if (!ex->due[i] || ex->due[i] > now) continue;
    ex->due[i] = 0;
    switch ((exchange_due)i) {
      case DUE_ANSWER: ex_late(ex); break;
      case DUE_HOLD: ex->stage == EX_COLLECT ? ex_start(ex) : ex_stream(ex); break;
      case DUE_TURN: ex_turn(ex); break;
      case DUE_START: ex_waited(ex); break;
      case DUE_KEPT: ex_unkept(ex); break;
      case DUE_JUDGE: ex_judge(ex); break;
      case DUE_PROBE:
        if (ex->upload_waits) ex_give_back(ex); /* else ex_upload() will */
        break;
      default: ex_stalled(ex); break;
    }
  }
  timer_update(ex);
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

static exchange *ex_take(proxy_route *route) {
  exchange *ex = route->free;
  if (ex) {
    route->free = ex->next;
  } else {
    ex = calloc(1, sizeof *ex);
    if (!ex) abort();
    ex->route = route;
    uv_timer_init(route->loop, &ex->timer);
    ex->timer.data = ex;
    route->holds++;
  }
  ex->stage = EX_COLLECT;
  ex->body.length = ex->body_read = ex->held.length = 0;
  ex->body_total = ex->received = ex->probe_due = ex->by = ex->allowed_ms = 0;
  ex->attempts = 0;
  ex->end = (exchange_end){.phase = NEAP_PHASE_CONNECT};
  ex->queued = ex->waited = ex->by_client = ex->cut = ex->unanswered = false;
  ex->body_done = ex->upload_waits = ex->keeps = ex->blocked = ex->admitted = false;
  return ex;
}

static void ex_trim(http_bytes *b) {
  if (b->capacity > NEAP_BODY_MAX) http_bytes_free(b);
}

http_transfer *ex_take_transfer(exchange *ex) {
  http_transfer *t = ex->transfer;
  if (t) ex->route->calls--;
  ex->transfer = NULL;
  return t;
}

void ex_drop_transfer(exchange *ex) {
  http_transfer *t = ex_take_transfer(ex);
  if (t) http_transfer_cancel(t); /* nothing, if it has ended */
}

static void drop_last(exchange *ex) {
  http_transfer *t = ex->last;
  ex->last = NULL;
  if (t) http_transfer_cancel(t);
}

void ex_over(exchange *ex) {
  if (ex_queue_leave(ex)) ex_slot_freed(ex->route);
  ex_drop_transfer(ex);
  drop_last(ex);
  ex_keep_none(ex);
  ex_ask_none(ex);
  ex->stage = EX_OVER;
  ex->request = NULL;
  for (int i = 0; i < DUE_COUNT; i++) ex->due[i] = 0;
  ex_trim(&ex->body);
  ex_trim(&ex->held);
  ex->route->stats.active--;
  ex->next = ex->route->free;
  ex->route->free = ex;
}

bool ex_body_is_whole(const exchange *ex) {
  return ex->body_done && ex->body_total <= NEAP_BODY_MAX;
}

neap_request ex_question(const exchange *ex) {
  const http_request *r = ex->request;
  bool body = r->content_length && ex_body_is_whole(ex);
  return (neap_request){
      .method = r->method,
      .target = r->target.data,
      .target_length = r->target.length,
      .headers = r->headers,
      .header_count = r->header_count,
      .body = body ? ex->body.data : NULL,
      .body_length = body ? ex->body.length : 0,
      .has_deadline = ex->by != 0,
      .left_ms = ex_left_ms(ex),
  };
}

/* ---- Admission ------------------------------------------------------------------------------- */

void ex_start(exchange *ex) {
  proxy_route *route = ex->route;
  neap_refusal refusal = {0};
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  ex_due(ex, DUE_START, UINT64_MAX);
  if (!ex->attempts && !ex->waited && ex_at_once(ex)) return;
  if (!ex_left_ms(ex)) {
    ex_too_late(ex);
    return;
  }
  if (ex_queue_enter(ex)) return;
  if (route->calls >= route->options.connections) {
    ex_refused(ex, &(neap_refusal){.reason = "too many calls at once"});
    return;
  }
  neap_verdict verdict =
      neap_guard_acquire(route->guard, ex->key, ex->key_length, &ex->ticket, &refusal);
  if (verdict > NEAP_ALLOW_BYPASS) {
    ex_refused(ex, &refusal);
    return;
  }
  drop_last(ex);
  ex->admitted = true;
  ex->stage = EX_AWAIT;
  ex->body_read = ex->held.length = 0;
  ex->received = 0;
  if (ex->attempts++) route->stats.retried++;
  route->calls++;
  ex->sent_ns = ex->head_ns = uv_hrtime();
  ex_await(ex);
  if (verdict == NEAP_ALLOW_PROBE && !ex->body_done) {
    ex_due(ex, DUE_PROBE, neap_guard_lease_ms(route->guard) / 2);
    ex->probe_due = ex->due[DUE_PROBE];
  }
  ex->transfer = http_transfer_new(route->upstream, ex->request, &ex_transfer_events, ex);
  ex->transfer->left_ms = ex_left_ms(ex);
  http_transfer_go(ex->transfer);
}

/* ---- The request's body ---------------------------------------------------------------------- */

/* Bytes already sent are dropped once the body is too large to be sent again. */
static void body_compact(exchange *ex) {
  if (ex->body_total <= NEAP_BODY_MAX || !ex->body_read) return;
  ex->body.length -= ex->body_read;
  memmove(ex->body.data, ex->body.data + ex->body_read, ex->body.length);
  ex->body_read = 0;
}

static void on_body(void *data, http_request *request, const char *bytes, size_t length) {
  exchange *ex = data;
  bool waits = ex->stage == EX_COLLECT || ex->stage == EX_WAIT;
  if (!waits && !ex->transfer) return; /* nobody wants it any more */
  ex->body_total += length;
  body_compact(ex);
  http_bytes_add(&ex->body, bytes, length);
  if (ex->stage == EX_COLLECT) {
    if (ex->body_total > NEAP_BODY_MAX) ex_start(ex);
    return;
  }
  if (ex->body.length - ex->body_read >= UPLOAD_HIGH) http_request_pause(request);
  if (!ex->upload_waits) return;
  ex->upload_waits = false;
  ex_await(ex);
  http_transfer_resume(ex->transfer);
}

static void on_body_end(void *data, http_request *request) {
  exchange *ex = data;
  (void)request;
  ex_deadline_begin(ex);
  if (ex->stage == EX_COLLECT) {
    ex_start(ex);
  } else if (ex->transfer && ex->upload_waits) {
    ex->upload_waits = false;
    ex_await(ex);
    http_transfer_resume(ex->transfer);
  }
}

/* curl wants more to send: the connection is there, so this is when the client is told to go on. */
size_t ex_upload(exchange *ex, char *buffer, size_t size) {
  http_request_continue(ex->request);
  if (!ex->request) return 0; /* it left just now */
  bool is_late = ex->probe_due && uv_now(ex->route->loop) >= ex->probe_due;
  if (is_late && !ex->body_done) ex_give_back(ex); /* all there: it is the upstream that is late */
  size_t n = ex->body.length - ex->body_read;
  if (n > size) n = size;
  if (!n && !ex->body_done) {
    ex->upload_waits = true;
    if (ex->stage == EX_AWAIT) ex_due(ex, DUE_ANSWER, UINT64_MAX); /* it is the client's turn */
    return HTTP_UPLOAD_WAIT;
  }
  if (n) memcpy(buffer, ex->body.data + ex->body_read, n);
  ex->body_read += n;
  /* A body that keeps coming keeps the upstream's time from running; one that was all there, not. */
  if (ex->stage == EX_AWAIT && !ex_body_is_whole(ex)) ex_await(ex);
  if (ex->body.length - ex->body_read < UPLOAD_HIGH / 2) http_request_resume(ex->request);
  return n;
}

bool ex_rewind(exchange *ex) {
  if (ex->request->content_length && ex->body_total > NEAP_BODY_MAX) return false;
  ex->body_read = 0;
  return true;
}

/* ---- The client ------------------------------------------------------------------------------ */

static void on_drain(void *data, http_request *request) {
  exchange *ex = data;
  (void)request;
  if (!ex->blocked) return;
  ex->blocked = false;
  ex_due(ex, DUE_STALL, ex->route->options.stall_ms);
  if (ex->transfer) http_transfer_resume(ex->transfer);
}

static void on_done(void *data, http_request *request) {
  (void)request;
  ex_over(data);
}

static void on_abort(void *data, http_request *request, http_abort_reason reason) {
  exchange *ex = data;
  (void)request, (void)reason;
  ex->route->stats.aborted++;
  ex_left(ex);
}

static const http_handler handler = {
    .on_body = on_body,
    .on_end = on_body_end,
    .on_drain = on_drain,
    .on_done = on_done,
    .on_abort = on_abort,
};

/* ---- Whose breaker ------------------------------------------------------------------------- */

static void ex_find_key(exchange *ex) {
  proxy_route *route = ex->route;
  neap_request question = ex_question(ex);
  ex->key_length = neap_guard_key(route->guard, &question, route->within, ex->by_policy);
  ex->key = ex->by_policy;
  if (ex->key_length) {
    route->is_mapped = true;
    return;
  }
  ex->key = route->key;
  ex->key_length = route->key_length;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

void proxy_begin(proxy_route *route, http_request *request) {
  exchange *ex = ex_take(route);
  int64_t length = request->content_length;
  route->stats.requests++;
  route->stats.active++;
  ex->request = request;
  ex_find_key(ex);
  http_request_handle(request, &handler, ex);
  ex_deadline_set(ex);
  if (length && (!strcmp(request->method, "HEAD") || !strcmp(request->method, "TRACE"))) {
    http_answer_problem(request, 400, "Bad Request", "HEAD and TRACE have no body", NULL);
  } else if (!length) {
    ex_deadline_begin(ex);
    ex_start(ex);
  } else if (request->expects_continue || length > (int64_t)NEAP_BODY_MAX) {
    ex_start(ex);
  } else if (length < 0) {
    ex_due(ex, DUE_HOLD, route->options.hold_ms); /* and on_body_end, if that comes first */
  }
}

const proxy_stats *proxy_stats_of(const proxy_route *route) { return &route->stats; }

static void route_free(proxy_route *route) {
  free(route->name);
  free(route->key);
  free(route->headers);
  free(route);
}

bool proxy_open(uv_loop_t *loop, const proxy_options *options, proxy_route **out, char *error,
                size_t size) {
  proxy_route *route = calloc(1, sizeof *route);
  if (!route) abort();
  if (!http_upstream_open(loop, options, &route->upstream, error, size)) {
    route_free(route);
    return false;
  }
  route->loop = loop;
  route->guard = options->guard;
  route->options = route->upstream->options; /* completed */
  route->name = strdup(options->name ? options->name : "");
  route->key = strdup(options->key ? options->key : route->name);
  route->key_length = strlen(route->key);
  if (options->shares_guard) route->within = route->key;
  route->holds = 1;
  *out = route;
  return true;
}

void proxy_serve(proxy_route *route) {
  route->serves = true;
  neap_guard_serve(route->guard, route);
}

void proxy_release(proxy_route *route) {
  if (--route->holds) return;
  void (*closed)(void *) = route->closed;
  void *data = route->closed_data;
  route_free(route);
  if (closed) closed(data);
}

static void on_exchange_closed(uv_handle_t *timer) {
  exchange *ex = timer->data;
  proxy_route *route = ex->route;
  http_bytes_free(&ex->body);
  http_bytes_free(&ex->held);
  free(ex);
  proxy_release(route);
}

static void on_upstream_closed(void *data) { proxy_release(data); }

void proxy_close(proxy_route *route, void (*closed)(void *data), void *data) {
  route->closed = closed;
  route->closed_data = data;
  if (route->serves) neap_guard_serve(route->guard, NULL);
  background_close(route);
  for (exchange *ex = route->free; ex; ex = ex->next) {
    uv_close((uv_handle_t *)&ex->timer, on_exchange_closed);
  }
  http_upstream_close(route->upstream, on_upstream_closed, route);
}
