/* verdict.c: the answer's way back, its report to the guard, and what is sent instead; see
 * exchange.h.
 *
 * Whatever sends an answer comes last in its function: the exchange may be over when it returns. */
#include "exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reporting ------------------------------------------------------------------------------- */

static uint64_t milliseconds(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? (to_ns - from_ns) / 1000000 : 0;
}

/* How long the head took: 1 at least, as 0 would be all the time until the report, at the end of a
 * body that may go on for hours. */
static uint64_t head_ms(const exchange *ex) {
  uint64_t took_ms = milliseconds(ex->sent_ns, ex->head_ns);
  return took_ms > 0 ? took_ms : 1;
}

/* Of the answer as far as it is known; of its body only if all of it is there. */
static neap_result ex_result(const exchange *ex, neap_ended_by ended_by, bool complete) {
  const http_transfer *t = ex->transfer;
  bool body =
      complete && ex->held.length && ex->held.length <= neap_guard_wants_body(ex->route->guard);
  return (neap_result){
      .ended_by = ended_by,
      .phase = t ? t->phase : ex->end.phase,
      .status = t && t->head_done ? t->status : 0,
      .headers = t ? t->headers : NULL,
      .header_count = t && t->head_done ? t->header_count : 0,
      .body = body ? ex->held.data : NULL,
      .body_length = body ? ex->held.length : 0,
      .error = ended_by == NEAP_ENDED_TRANSPORT && t ? t->error : NULL,
  };
}

static neap_outcome ex_report(exchange *ex, neap_result *result) {
  if (!ex->admitted) return NEAP_NEUTRAL; /* given back before */
  neap_request question = ex_question(ex);
  result->request = &question;
  result->attempt = ex->attempts;
  ex->admitted = false;
  neap_outcome outcome = neap_guard_report(ex->route->guard, &ex->ticket, result, NULL);
  result->request = NULL;
  ex_slot_freed(ex->route);
  return outcome;
}

/* ---- Another attempt ------------------------------------------------------------------------- */

/* After the report: whether it is tried again.  Nothing may have been sent to the client.  What it
 * came to is kept, unless it was given up. */
static bool ex_again(exchange *ex, neap_outcome outcome, const neap_result *result, int status) {
  proxy_route *route = ex->route;
  uint64_t wait_ms, left_ms = ex_left_ms(ex);
  bool has_ended = ex->transfer && ex->transfer->ended;
  if (outcome != NEAP_FAILURE && outcome != NEAP_TIMEOUT) return false;
  if (!ex_body_is_whole(ex) || !left_ms) return false;
  if (result->ended_by == NEAP_ENDED_ANSWER && !has_ended) return false;
  neap_request question = ex_question(ex);
  neap_result asked = *result;
  asked.request = &question;
  if (!neap_guard_retry(route->guard, ex->key, ex->key_length, ex->attempts, ex->by ? left_ms : 0,
                        &asked, &wait_ms))
    return false;
  ex->end = (exchange_end){outcome, result->ended_by, result->phase, status};
  http_transfer *t = ex_take_transfer(ex);
  if (has_ended) {
    t->kept = true;
    ex->last = t;
  } else if (t) {
    http_transfer_cancel(t);
  }
  ex->stage = EX_WAIT;
  ex->waited = false;
  ex_due(ex, DUE_ANSWER, UINT64_MAX);
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  ex_due(ex, DUE_START, wait_ms);
  return true;
}

/* ---- The upstream's answer ------------------------------------------------------------------- */

/* Of two that say who answered, ours is the one that knows: the upstream's is left out. */
static void replace_source(exchange *ex, http_head *head) {
  const http_transfer *t = ex->transfer;
  neap_header *to = ex_headers_room(ex->route, t->header_count + 1);
  size_t n = 0;
  for (size_t i = 0; i < t->header_count; i++) {
    const neap_header *h = &t->headers[i];
    if (!http_name_is(h->name, h->name_length, "neap-source")) to[n++] = *h;
  }
  to[n++] = head->headers[0];
  head->lines = (http_slice){0};
  head->headers = to;
  head->header_count = n;
}

static http_head primary_head(exchange *ex) {
  static neap_header source[] = {{"Neap-Source", 11, "primary", 7}};
  const http_transfer *t = ex->transfer;
  http_head head = {
      .status = t->status,
      .reason = t->reason,
      .lines = t->lines,
      .headers = source,
      .header_count = 1,
      .content_length = t->content_length >= 0 ? t->content_length
                        : t->bodiless          ? -2
                                               : -1,
      .length_is_said = t->content_length >= 0,
  };
  if (http_field_find(t->headers, t->header_count, "neap-source")) replace_source(ex, &head);
  return head;
}

/* A whole representation, or the word that it has not changed, and the upstream's own (not one it
 * had from a chain). */
bool ex_is_worth_keeping(const proxy_route *route, const http_transfer *t) {
  bool is_whole = t->status >= 200 && t->status <= 299 && t->status != 206;
  if ((!is_whole && t->status != 304) || !neap_guard_wants_body(route->guard)) return false;
  const neap_header *source = http_field_find(t->headers, t->header_count, "neap-source");
  return !source || http_name_is(source->value, source->value_length, "primary");
}

static void ex_remember(exchange *ex) {
  const http_transfer *t = ex->transfer;
  if (!ex_is_worth_keeping(ex->route, t)) return;
  neap_request question = ex_question(ex);
  neap_answer good = {
      .status = t->status,
      .headers = t->headers,
      .header_count = t->header_count,
      .body = ex->held.data,
      .body_length = ex->held.length,
  };
  neap_guard_remember(ex->route->guard, ex->key, ex->key_length, &question, &good);
}

/* There is no other attempt, and this was its answer. */
static void held_answer(exchange *ex, neap_outcome outcome, const neap_result *result) {
  ex->end = (exchange_end){outcome, NEAP_ENDED_ANSWER, result->phase, 0};
  if (outcome != NEAP_SUCCESS && ex_chain(ex, neap_cause_of(outcome), result)) return;
  http_head head = primary_head(ex);
  http_transfer *t = ex_take_transfer(ex);
  ex->stage = EX_OVER;
  ex->route->stats.primary++;
  const char *body = ex->held.length ? ex->held.data : "";
  http_answer(ex->request, &head, t->bodiless ? NULL : body, ex->held.length);
  http_transfer_cancel(t); /* nothing, if it has ended */
}

/* The answer is complete and was held back. */
static void held_conclude(exchange *ex) {
  neap_result result = ex_result(ex, NEAP_ENDED_ANSWER, true);
  result.duration_ms = milliseconds(ex->sent_ns, uv_hrtime());
  neap_outcome outcome = ex_report(ex, &result);
  if (outcome == NEAP_SUCCESS)
    ex_remember(ex);
  else if (ex_again(ex, outcome, &result, 0))
    return;
  held_answer(ex, outcome, &result);
}

void ex_judge(exchange *ex) {
  if (!ex->admitted) return;
  neap_result result = ex_result(ex, NEAP_ENDED_ANSWER, false);
  result.duration_ms = head_ms(ex);
  ex_report(ex, &result);
}

/* From here on the answer goes through as it comes. */
void ex_stream(exchange *ex) {
  http_transfer *t = ex->transfer;
  uint64_t spent = milliseconds(ex->sent_ns, uv_hrtime()), deadline = ex_deadline_ms(ex);
  ex->stage = EX_STREAM;
  ex->keeps =
      neap_guard_wants_body(ex->route->guard) > 0 && t->content_length <= (int64_t)NEAP_BODY_MAX;
  ex_due(ex, DUE_ANSWER, UINT64_MAX);
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  if (ex->admitted) ex_due(ex, DUE_JUDGE, spent < deadline ? deadline - spent : 0);
  ex_due(ex, DUE_STALL, ex->route->options.stall_ms);
  http_head head = primary_head(ex);
  ex->route->stats.primary++;
  http_answer_begin(ex->request, &head);
  if (ex->request && ex->held.length) {
    ex->blocked = !http_answer_write(ex->request, ex->held.data, ex->held.length);
  }
}

/* A server error too large to hold is judged by its head, while it can still be replaced. */
static void large_error(exchange *ex) {
  neap_result result = ex_result(ex, NEAP_ENDED_ANSWER, false);
  result.duration_ms = head_ms(ex);
  neap_outcome outcome = ex_report(ex, &result);
  ex->end = (exchange_end){outcome, NEAP_ENDED_ANSWER, result.phase, 0};
  if (outcome != NEAP_SUCCESS && ex_chain(ex, neap_cause_of(outcome), &result)) return;
  ex_stream(ex);
}

static void ex_too_large(exchange *ex) {
  if (ex->transfer->status >= 500) {
    large_error(ex);
  } else {
    ex_stream(ex);
  }
}

/* The body has the length that the head says. */
static bool is_length_right(const exchange *ex) {
  const http_transfer *t = ex->transfer;
  return t->content_length >= 0 && ex->received == (uint64_t)t->content_length;
}

/* The answer is all there though the request is not: whatever is still to be sent, nobody waits
 * for. */
static bool is_early(const exchange *ex) {
  return (ex->transfer->bodiless || is_length_right(ex)) &&
         !(ex->body_done && ex->body_read == ex->body.length);
}

static void on_head(void *data, http_transfer *t) {
  exchange *ex = data;
  ex->stage = EX_HOLD;
  ex->head_ns = uv_hrtime();
  if (is_early(ex)) {
    held_conclude(ex);
    return;
  }
  if (t->bodiless) return;
  if (t->content_length > (int64_t)NEAP_BODY_MAX) {
    ex_too_large(ex);
  } else if (t->content_length < 0 && t->status < 500) {
    ex_due(ex, DUE_HOLD, ex->route->options.hold_ms);
  }
}

static void streamed_conclude(exchange *ex) {
  if (ex->admitted) {
    bool whole = ex->keeps;
    neap_result result = ex_result(ex, NEAP_ENDED_ANSWER, whole);
    result.duration_ms = head_ms(ex);
    if (ex_report(ex, &result) == NEAP_SUCCESS && whole) ex_remember(ex);
  }
  http_transfer *t = ex_take_transfer(ex);
  ex->stage = EX_OVER;
  ex_due(ex, DUE_STALL, UINT64_MAX);
  ex_due(ex, DUE_JUDGE, UINT64_MAX);
  http_answer_end(ex->request);
  http_transfer_cancel(t); /* nothing, if it has ended */
}

static void ex_keep(exchange *ex, const char *bytes, size_t length) {
  if (!ex->keeps) return;
  if (ex->held.length + length > NEAP_BODY_MAX) {
    ex->keeps = false;
    ex->held.length = 0;
  } else {
    http_bytes_add(&ex->held, bytes, length);
  }
}

/* Answers false if nothing was taken. */
static bool on_data(void *data, http_transfer *t, const char *bytes, size_t length) {
  exchange *ex = data;
  (void)t;
  if (ex->stage == EX_HOLD) {
    if (ex->held.length + length <= NEAP_BODY_MAX) {
      http_bytes_add(&ex->held, bytes, length);
      ex->received += length;
      if (is_early(ex)) held_conclude(ex);
      return true;
    }
    ex_too_large(ex);
    if (ex->stage != EX_STREAM || !ex->request) return true;
  }
  if (ex->blocked) {
    ex_due(ex, DUE_STALL, UINT64_MAX);
    return false;
  }
  ex_keep(ex, bytes, length);
  ex_due(ex, DUE_STALL, ex->route->options.stall_ms);
  ex->received += length;
  ex->blocked = !http_answer_write(ex->request, bytes, length);
  if (ex->request && is_early(ex)) streamed_conclude(ex);
  return true;
}

static size_t on_upload(void *data, http_transfer *t, char *buffer, size_t size) {
  (void)t;
  return ex_upload(data, buffer, size);
}

static bool on_resend(void *data, http_transfer *t) {
  (void)t;
  return ex_rewind(data);
}

/* ---- Ends that are no answer ----------------------------------------------------------------- */

static void count_error(exchange *ex) {
  proxy_stats *s = &ex->route->stats;
  neap_phase phase = ex->transfer->phase;
  if (phase == NEAP_PHASE_CONNECT) {
    s->errors_connect++;
  } else if (phase == NEAP_PHASE_SENT) {
    s->errors_sent++;
  } else {
    s->errors_answer++;
  }
}

/* Whose deadline it was, and how long. */
static const char *late_text(const exchange *ex, char *text, size_t size) {
  const proxy_route *route = ex->route;
  unsigned long long ms = ex->cut ? ex->allowed_ms : ex_deadline_ms(ex);
  snprintf(text, size, "%s/%s: no answer %s %llu ms", neap_guard_name(route->guard), ex->key,
           ex->cut ? "by the call's deadline of" : "from the upstream within", ms);
  return text;
}

/* Of a call that its own caller has ended: he needs an answer as after any timeout. */
static neap_fallback_cause cause_of(neap_ended_by ended_by, neap_outcome outcome) {
  if (ended_by == NEAP_ENDED_CALLER && outcome == NEAP_NEUTRAL) return NEAP_CAUSE_TIMEOUT;
  return outcome == NEAP_SUCCESS ? NEAP_CAUSE_FAILURE : neap_cause_of(outcome);
}

/* There is no other attempt, and this one had no answer. */
static void no_answer(exchange *ex, const exchange_end *end, const neap_result *result) {
  char text[256];
  const char *detail = late_text(ex, text, sizeof text);
  if (end->ended_by == NEAP_ENDED_TRANSPORT)
    detail = ex->transfer ? ex->transfer->error : "the upstream's answer could not be kept";
  ex->end = *end;
  if (ex_chain(ex, cause_of(end->ended_by, end->outcome), result)) return;
  ex->route->stats.failed++;
  ex_problem(ex, end->status, detail);
}

/* Nothing has been sent to the client yet. */
static void ex_failed(exchange *ex, neap_ended_by ended_by, int status) {
  neap_result result = ex_result(ex, ended_by, false);
  result.duration_ms = milliseconds(ex->sent_ns, uv_hrtime());
  result.status = 0; /* half an answer is none */
  neap_outcome outcome = ex_report(ex, &result);
  if (ex_again(ex, outcome, &result, status)) return;
  no_answer(ex, &(exchange_end){outcome, ended_by, result.phase, status}, &result);
}

void ex_late(exchange *ex) {
  ex->route->stats.timeouts++;
  ex_failed(ex, ex->cut && ex->by_client ? NEAP_ENDED_CALLER : NEAP_ENDED_TIMEOUT, 504);
}

void ex_too_late(exchange *ex) {
  char text[256];
  if (ex->attempts) {
    ex_last(ex);
    return;
  }
  ex->cut = true;
  if (ex_chain(ex, NEAP_CAUSE_TIMEOUT, NULL)) return;
  ex->route->stats.failed++;
  ex_problem(ex, 504, late_text(ex, text, sizeof text));
}

void ex_last(exchange *ex) {
  bool is_answer = ex->end.ended_by == NEAP_ENDED_ANSWER;
  ex->transfer = ex->last;
  ex->last = NULL;
  if (ex->transfer) ex->route->calls++; /* until it is taken */
  neap_result result = ex_result(ex, ex->end.ended_by, is_answer);
  if (is_answer) {
    held_answer(ex, ex->end.outcome, &result);
  } else {
    result.status = 0;
    no_answer(ex, &ex->end, &result);
  }
}

/* The answer stopped in its middle. */
static void ex_cut(exchange *ex, neap_ended_by ended_by) {
  if (ex->admitted) {
    neap_result result = ex_result(ex, ended_by, false);
    result.duration_ms = milliseconds(ex->sent_ns, uv_hrtime());
    ex_report(ex, &result);
  }
  ex->route->stats.cut++;
  http_answer_cut(ex->request);
  ex_over(ex);
}

void ex_stalled(exchange *ex) { ex_cut(ex, NEAP_ENDED_TIMEOUT); }

/* That this caller is slow says nothing about the upstream, and others wait for the slot. */
void ex_give_back(exchange *ex) {
  ex->probe_due = 0;
  ex_due(ex, DUE_PROBE, UINT64_MAX);
  if (!ex->admitted) return;
  neap_result result = ex_result(ex, NEAP_ENDED_CALLER, false);
  ex_report(ex, &result);
}

void ex_left(exchange *ex) {
  ex_give_back(ex);
  ex_over(ex);
}

static void on_done(void *data, http_transfer *t) {
  exchange *ex = data;
  ex_due(ex, DUE_ANSWER, UINT64_MAX);
  ex_due(ex, DUE_HOLD, UINT64_MAX);
  /* Its Content-Length goes on as it came, so nothing may end in another place. */
  if (!t->error && !t->bodiless && t->content_length >= 0 && !is_length_right(ex))
    t->error = "the upstream's answer has another length than its Content-Length says";
  if (t->error) count_error(ex);
  if (t->attempts > 1) ex->route->stats.resent++;
  if (ex->stage == EX_STREAM) {
    if (t->error) {
      ex->transfer->phase = NEAP_PHASE_BODY;
      ex_cut(ex, NEAP_ENDED_TRANSPORT);
    } else {
      streamed_conclude(ex);
    }
  } else if (t->error) {
    ex_failed(ex, NEAP_ENDED_TRANSPORT, t->connect_late ? 504 : 502);
  } else {
    held_conclude(ex);
  }
}

const http_transfer_events ex_transfer_events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_upload = on_upload,
    .on_resend = on_resend,
    .on_done = on_done,
};
