/* transfer.c: one request to the upstream and its answer; see client.h.
 *
 * An easy handle is set up once and then only told what differs.  outgoing.c makes the request's
 * head, incoming.c reads the answer's. */
#include "client.h"

#include <stdlib.h>
#include <string.h>

static void set_method(http_transfer *t, const http_request *r) {
  bool uploads = r->content_length != 0;
  if (t->method == r->method && t->uploads == uploads) return; /* they are static texts */
  t->method = r->method;
  t->uploads = uploads;
  curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L); /* takes UPLOAD and NOBODY back */
  if (uploads) {
    curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
  } else if (!strcmp(r->method, "HEAD")) {
    curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
  }
  bool plain = !uploads && (!strcmp(r->method, "GET") || !strcmp(r->method, "HEAD"));
  curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, plain ? NULL : r->method);
}

static void set_pool(http_transfer *t) {
  if (t->generation == t->pool->generation) return;
  t->generation = t->pool->generation;
  curl_easy_setopt(t->easy, CURLOPT_RESOLVE, t->pool->resolve);
  curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETDATA, t->pool);
}

void http_transfer_prepare(http_transfer *t) {
  const http_request *r = t->request;
  set_pool(t);
  set_method(t, r);
  http_out_reserve(t, r);
  char *target = http_out_add(t, r->target.data, r->target.length);
  curl_easy_setopt(t->easy, CURLOPT_REQUEST_TARGET, target);
  curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, http_out_fields(t, r));
  if (t->uploads) {
    curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->content_length);
  }
  http_answer_reset(t);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

static size_t on_data(char *bytes, size_t size, size_t count, void *data) {
  http_transfer *t = data;
  size_t length = size * count;
  if (t->cancelled) return 0;
  t->phase = NEAP_PHASE_BODY;
  bool taken = t->events->on_data(t->data, t, bytes, length);
  if (t->cancelled) return 0;
  t->paused = !taken;
  return taken ? length : CURL_WRITEFUNC_PAUSE;
}

static size_t on_upload(char *buffer, size_t size, size_t count, void *data) {
  http_transfer *t = data;
  if (t->cancelled) return CURL_READFUNC_ABORT;
  size_t n = t->events->on_upload(t->data, t, buffer, size * count);
  if (t->cancelled) return CURL_READFUNC_ABORT;
  return n == HTTP_UPLOAD_WAIT ? CURL_READFUNC_PAUSE : n;
}

static int on_seek(void *data, curl_off_t offset, int origin) {
  http_transfer *t = data;
  if (offset || origin != SEEK_SET || t->cancelled) return CURL_SEEKFUNC_CANTSEEK;
  return t->events->on_resend(t->data, t) ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_CANTSEEK;
}

/* ---- Sending again --------------------------------------------------------------------------- */

static bool may_resend(const http_transfer *t) {
  static const char *const idempotent[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"};
  proxy_resend rule = t->upstream->options.resend;
  if (rule != PROXY_RESEND_IDEMPOTENT) return rule == PROXY_RESEND_ANY;
  for (size_t i = 0; i < sizeof idempotent / sizeof *idempotent; i++) {
    if (!strcmp(t->request->method, idempotent[i])) return true;
  }
  return false;
}

/* A connection is there and the request will be sent on it: the second time only if curl found the
 * first one closed, or the stream refused, before any answer. */
static int on_connected(void *data, char *ip, char *local, int port, int local_port) {
  http_transfer *t = data;
  (void)ip, (void)local, (void)port;
  if (t->cancelled) return CURL_PREREQFUNC_ABORT;
  if (http_pool_is_spoiled(t->pool, local_port)) {
    t->spoiled = true; /* nothing was sent: http_transfer_ended() finds it another */
    return CURL_PREREQFUNC_ABORT;
  }
  if (t->attempts++ && (t->attempts > 2 || !may_resend(t) || !t->events->on_resend(t->data, t))) {
    t->error = "the upstream closed the connection before it answered";
    return CURL_PREREQFUNC_ABORT;
  }
  t->phase = NEAP_PHASE_SENT;
  return CURL_PREREQFUNC_OK;
}

static void send_afresh(http_transfer *t) {
  http_pool *pool = t->pool;
  http_pool_remove(pool, t);
  t->fresh = true;
  t->spoiled = false;
  curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
  http_pool_add(pool, t);
}

/* What curl sends again by itself does not include a request whose body could not be written. */
static bool resend(http_transfer *t, CURLcode code) {
  long fresh = 1;
  if (code != CURLE_SEND_ERROR && code != CURLE_RECV_ERROR) return false;
  if (t->phase != NEAP_PHASE_SENT || t->attempts != 1 || t->error) return false;
  curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &fresh);
  if (fresh || !may_resend(t) || !t->events->on_resend(t->data, t)) return false;
  send_afresh(t);
  return true;
}

/* ---- Beginning and ending -------------------------------------------------------------------- */

static void easy_set_up(http_transfer *t) {
  const http_upstream *u = t->upstream;
  CURL *e = t->easy;
  curl_easy_setopt(e, CURLOPT_PRIVATE, t);
  curl_easy_setopt(e, CURLOPT_CURLU, u->url);
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_PROXY, "");    /* not the environment's, */
  curl_easy_setopt(e, CURLOPT_NOPROXY, "*"); /* which is not even looked at */
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_HTTP_VERSION,
                   u->tls             ? CURL_HTTP_VERSION_2TLS
                   : u->options.http2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE
                                      : CURL_HTTP_VERSION_1_1);
  if (u->tls) curl_easy_setopt(e, CURLOPT_PIPEWAIT, 1L); /* one HTTP/2 connection, not many */
  if (u->ca_file) curl_easy_setopt(e, CURLOPT_CAINFO, u->ca_file);
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)u->options.connect_ms);
  curl_easy_setopt(e, CURLOPT_HAPPY_EYEBALLS_TIMEOUT_MS, 200L);
  curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, (long)((u->options.idle_ms + 999) / 1000));
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 32768L);
  curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 65536L);
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->curl_error);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, http_incoming_line);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
  curl_easy_setopt(e, CURLOPT_READFUNCTION, on_upload);
  curl_easy_setopt(e, CURLOPT_READDATA, t);
  curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
  curl_easy_setopt(e, CURLOPT_SEEKDATA, t);
  curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_connected);
  curl_easy_setopt(e, CURLOPT_PREREQDATA, t);
  curl_easy_setopt(e, CURLOPT_DEBUGFUNCTION, http_incoming_remark);
  curl_easy_setopt(e, CURLOPT_DEBUGDATA, t);
  curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, http_pool_socket_close);
}

static http_transfer *transfer_take(http_upstream *u) {
  http_transfer *t = u->free;
  if (t) {
    u->free = t->next;
    return t;
  }
  t = calloc(1, sizeof *t);
  if (!t || !(t->easy = curl_easy_init())) abort();
  t->upstream = u;
  easy_set_up(t);
  return t;
}

static void options_restore(http_transfer *t) {
  if (t->verbose) curl_easy_setopt(t->easy, CURLOPT_VERBOSE, 0L);
  if (t->fresh) curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 0L);
  t->verbose = t->fresh = false;
}

/* Back to the free ones. */
void http_transfer_free(http_transfer *t) {
  options_restore(t);
  t->next = t->upstream->free;
  t->upstream->free = t;
}

http_transfer *http_transfer_new(http_upstream *u, const http_request *request,
                                 const http_transfer_events *events, void *data) {
  http_transfer *t = transfer_take(u);
  t->events = events;
  t->data = data;
  t->request = request;
  t->phase = NEAP_PHASE_CONNECT;
  t->attempts = 0;
  t->left_ms = UINT64_MAX;
  t->error = NULL;
  t->kept = t->connect_late = t->cancelled = t->spoiled = t->ended = t->paused = t->head_done =
      t->stray = t->added = t->waiting = false;
  t->curl_error[0] = '\0';
  http_answer_reset(t);
  return t;
}

void http_transfer_go(http_transfer *t) { http_upstream_begin(t->upstream, t); }

void http_transfer_cancel(http_transfer *t) {
  if (t->ended) { /* conclude() is on the stack, unless it is kept */
    if (t->kept) http_transfer_free(t);
    return;
  }
  t->cancelled = true;
  if (t->pool) {
    http_pool_cancel(t->pool, t);
  } else {
    http_upstream_forget(t->upstream, t);
    http_transfer_free(t);
  }
}

void http_transfer_resume(http_transfer *t) {
  if (!t->added) return;
  t->paused = false;
  http_pool_unpause(t->pool, t);
}

static void conclude(http_transfer *t) {
  t->ended = true;
  t->events->on_done(t->data, t);
  if (!t->kept) http_transfer_free(t);
}

void http_transfer_fail(http_transfer *t, const char *error) {
  t->error = error;
  conclude(t);
}

void http_transfer_ended(http_transfer *t, CURLcode code) {
  if (t->stray) {
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(t->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd != CURL_SOCKET_BAD) http_pool_spoil(t->pool, fd);
  }
  if (t->spoiled) {
    send_afresh(t);
    return;
  }
  if (resend(t, code)) return;
  if (!code && !t->head_done) t->error = "the upstream's answer has no head";
  if (code && !t->error) t->error = *t->curl_error ? t->curl_error : curl_easy_strerror(code);
  t->connect_late = code == CURLE_OPERATION_TIMEDOUT && t->phase == NEAP_PHASE_CONNECT;
  http_pool_remove(t->pool, t);
  conclude(t);
}
