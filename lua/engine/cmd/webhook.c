/* webhook.c: by the same client as calls to upstreams, with a request of its own making. */
#include "webhook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/client.h"
#include "token.h"

#define CONNECT_MS 3000
#define ANSWER_MS  10000 /* all of it */

struct webhook {
  serve *serve;
  webhook_told told;
  http_upstream *upstream;
  http_transfer *transfer; /* NULL: none under way */
  uv_timer_t timer;        /* of the answer's time, then of telling */
  int status;
  char error[CURL_ERROR_SIZE];

  http_request request;
  neap_header headers[6];
  char id[64], length_text[24], bearer[TOKEN_MAX + 16];
  char token[TOKEN_MAX + 1]; /* "": none */
  char *body;
  size_t length, sent;

  unsigned holds; /* the upstream, the timer */
};

/* ---- The request ----------------------------------------------------------------------------- */

static void add(webhook *w, const char *name, const char *value) {
  w->headers[w->request.header_count++] = (neap_header){name, strlen(name), value, strlen(value)};
}

static void request_make(webhook *w) {
  const plan_webhook *to = &w->serve->plan.webhook;
  snprintf(w->length_text, sizeof w->length_text, "%zu", w->length);
  w->request = (http_request){
      .method = "POST",
      .target = {to->target, strlen(to->target)},
      .host = {to->host, strlen(to->host)},
      .headers = w->headers,
      .content_length = (int64_t)w->length,
      .minor = 1,
      .body_complete = true,
  };
  add(w, "Content-Type", "application/json");
  add(w, "Content-Length", w->length_text);
  add(w, "User-Agent", "neap/" NEAP_VERSION);
  add(w, "Neap-Event-Id", w->id);
  snprintf(w->bearer, sizeof w->bearer, "Bearer %s", w->token);
  if (w->token[0]) add(w, "Authorization", w->bearer);
}

/* ---- The answer ------------------------------------------------------------------------------ */

static void on_tell(uv_timer_t *timer) {
  webhook *w = timer->data;
  w->told(w->serve, w->status, w->error);
}

/* Curl is further up the stack, or whoever posts. */
static void tell_soon(webhook *w, int status, const char *error) {
  w->transfer = NULL;
  w->status = status;
  snprintf(w->error, sizeof w->error, "%s", error ? error : "");
  uv_timer_start(&w->timer, on_tell, 0, 0);
}

static void on_late(uv_timer_t *timer) {
  webhook *w = timer->data;
  http_transfer_cancel(w->transfer);
  tell_soon(w, 0, "no answer within 10 s");
}

static void on_head(void *data, http_transfer *t) { (void)data, (void)t; }

static bool on_data(void *data, http_transfer *t, const char *bytes, size_t length) {
  (void)data, (void)t, (void)bytes, (void)length;
  return true;
}

static size_t on_upload(void *data, http_transfer *t, char *buffer, size_t size) {
  webhook *w = data;
  (void)t;
  size_t n = w->length - w->sent < size ? w->length - w->sent : size;
  memcpy(buffer, w->body + w->sent, n);
  w->sent += n;
  return n;
}

static bool on_resend(void *data, http_transfer *t) {
  webhook *w = data;
  (void)t;
  w->sent = 0;
  return true;
}

static void on_done(void *data, http_transfer *t) {
  tell_soon(data, t->error ? 0 : t->status, t->error);
}

static const http_transfer_events events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_upload = on_upload,
    .on_resend = on_resend,
    .on_done = on_done,
};

void webhook_post(webhook *w, const char *id, const char *body, size_t length) {
  snprintf(w->id, sizeof w->id, "%s", id);
  free(w->body);
  w->body = malloc(length + 1);
  if (!w->body) abort();
  memcpy(w->body, body, length);
  w->length = length;
  w->sent = 0;
  request_make(w);
  w->transfer = http_transfer_new(w->upstream, &w->request, &events, w);
  uv_timer_start(&w->timer, on_late, ANSWER_MS, 0);
  http_transfer_go(w->transfer);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

bool webhook_reload(webhook *w, char *error, size_t size) {
  const char *file = w->serve->plan.webhook.token_file;
  return !file || token_read(file, w->token, error, size);
}

static void release(void *data) {
  webhook *w = data;
  if (--w->holds) return;
  free(w->body);
  free(w);
}

static void on_timer_closed(uv_handle_t *timer) { release(timer->data); }

void webhook_close(webhook *w) {
  if (!w) return;
  if (w->transfer) http_transfer_cancel(w->transfer);
  http_upstream_close(w->upstream, release, w);
  uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

bool webhook_open(serve *s, webhook_told told, webhook **out, char *error, size_t size) {
  const proxy_options options = {.name = "webhook",
                                 .upstream = s->plan.webhook.origin,
                                 .connect_ms = CONNECT_MS,
                                 .resend = PROXY_RESEND_ANY};
  webhook *w = calloc(1, sizeof *w);
  if (!w) abort();
  w->serve = s;
  w->told = told;
  if (!webhook_reload(w, error, size) ||
      !http_upstream_open(&s->loop, &options, &w->upstream, error, size))
    return free(w), false;
  w->holds = 2;
  uv_timer_init(&s->loop, &w->timer);
  w->timer.data = w;
  *out = w;
  return true;
}
