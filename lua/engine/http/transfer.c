/* transfer.c: one request to the upstream and its answer; see client.h.
 *
 * An easy handle is set up once and then only told what differs.  The field lines lie in one buffer
 * and the curl_slist over them in one array, both used again. */
#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_HEAD_MAX 262144u /* bytes in an answer's head */

/* ---- Names in Connection --------------------------------------------------------------------- */

static bool lists(http_slice list, const char *name, size_t length) {
  const char *p = list.data, *end = p + list.length;
  while (p < end) {
    const char *comma = memchr(p, ',', (size_t)(end - p));
    const char *stop = comma ? comma : end;
    while (p < stop && (*p == ' ' || *p == '\t')) p++;
    size_t n = (size_t)(stop - p);
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    if (n == length && !strncasecmp(p, name, n)) return true;
    p = stop + 1;
  }
  return false;
}

/* Connection can take away any field but those that say where a message ends and whom it is for. */
static bool is_essential(const char *name, size_t length) {
  return http_name_is(name, length, "content-length") || http_name_is(name, length, "host");
}

static bool is_kept(http_slice listed, const char *name, size_t length) {
  if (http_name_is_hop_by_hop(name, length)) return false;
  return !listed.length || is_essential(name, length) || !lists(listed, name, length);
}

/* ---- The request ----------------------------------------------------------------------------- */

static void out_reserve(http_transfer *t, const http_request *r) {
  size_t bytes = r->target.length + 128;
  for (size_t i = 0; i < r->header_count; i++) {
    bytes += r->headers[i].name_length + r->headers[i].value_length + 4;
  }
  t->out.length = t->listed.length = 0;
  http_bytes_reserve(&t->out, bytes); /* nothing moves from here on */
  if (r->header_count + 4 > t->out_capacity) {
    t->out_capacity = r->header_count + 16;
    free(t->out_nodes);
    t->out_nodes = malloc(t->out_capacity * sizeof *t->out_nodes);
    if (!t->out_nodes) abort();
  }
}

static char *out_add(http_transfer *t, const char *text, size_t length) {
  char *at = t->out.data + t->out.length;
  memcpy(at, text, length);
  at[length] = '\0';
  t->out.length += length + 1;
  return at;
}

/* curl takes "Name:" for "do not send Name" and "Name;" for "Name:". */
static char *out_field(http_transfer *t, const neap_header *h) {
  char *at = t->out.data + t->out.length, *p = at;
  memcpy(p, h->name, h->name_length);
  p += h->name_length;
  if (h->value_length) {
    *p++ = ':';
    *p++ = ' ';
    memcpy(p, h->value, h->value_length);
    p += h->value_length;
  } else {
    *p++ = ';';
  }
  *p++ = '\0';
  t->out.length += (size_t)(p - at);
  return at;
}

/* All that Connection fields name, in t->listed; most name nothing but close and keep-alive. */
static void listed_add(http_transfer *t, const neap_header *h) {
  if (http_name_is(h->value, h->value_length, "keep-alive") ||
      http_name_is(h->value, h->value_length, "close")) {
    return;
  }
  if (t->listed.length) http_bytes_add(&t->listed, ",", 1);
  http_bytes_add(&t->listed, h->value, h->value_length);
}

static struct curl_slist *out_fields(http_transfer *t, const http_request *r) {
  size_t n = 0;
  bool accept = false;
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    if (http_name_is(h->name, h->name_length, "connection")) listed_add(t, h);
  }
  http_slice listed = {t->listed.data, t->listed.length};
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    char *line;
    if (http_name_is(h->name, h->name_length, "transfer-encoding")) {
      line = out_add(t, "Transfer-Encoding: chunked", 26);
    } else if (!is_kept(listed, h->name, h->name_length) ||
               http_name_is(h->name, h->name_length, "expect") ||
               http_name_is(h->name, h->name_length, "host")) {
      continue;
    } else {
      accept |= http_name_is(h->name, h->name_length, "accept");
      line = out_field(t, h);
    }
    t->out_nodes[n++].data = line;
  }
  if (r->host.length) {
    t->out_nodes[n++].data = out_field(t, &(neap_header){"Host", 4, r->host.data, r->host.length});
  }
  if (!accept) t->out_nodes[n++].data = out_add(t, "Accept:", 7); /* none of curl's own */
  if (t->uploads) t->out_nodes[n++].data = out_add(t, "Expect:", 7);
  for (size_t i = 0; i < n; i++) t->out_nodes[i].next = i + 1 < n ? &t->out_nodes[i + 1] : NULL;
  return n ? t->out_nodes : NULL;
}

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

static void answer_reset(http_transfer *t) {
  t->status = 0;
  t->header_count = 0;
  t->in.length = t->listed.length = t->reason_length = 0;
  t->content_length = -1;
  t->chunked = t->bodiless = false;
}

void http_transfer_prepare(http_transfer *t) {
  const http_request *r = t->request;
  set_pool(t);
  set_method(t, r);
  out_reserve(t, r);
  char *target = out_add(t, r->target.data, r->target.length);
  curl_easy_setopt(t->easy, CURLOPT_REQUEST_TARGET, target);
  curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, out_fields(t, r));
  if (t->uploads) {
    curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->content_length);
  }
  answer_reset(t);
}

/* ---- The answer's head ----------------------------------------------------------------------- */

static size_t refuse(http_transfer *t, const char *why) {
  t->error = why;
  return 0; /* curl takes that for a failed write and closes the connection */
}

static bool status_line(http_transfer *t, const char *line, const char *end) {
  answer_reset(t);
  if (t->phase < NEAP_PHASE_HEADERS) t->phase = NEAP_PHASE_HEADERS;
  const char *p = memchr(line, ' ', (size_t)(end - line));
  if (!p || end - p < 4) return false;
  for (int i = 1; i <= 3; i++) {
    if (p[i] < '0' || p[i] > '9') return false;
    t->status = t->status * 10 + (p[i] - '0');
  }
  p += 4;
  if (p < end && *p++ != ' ') return false;
  for (const char *c = p; c < end; c++) {
    if ((unsigned char)*c < ' ' && *c != '\t') return false;
  }
  http_bytes_add(&t->in, p, (size_t)(end - p));
  t->reason_length = t->in.length;
  t->bodiless = !strcmp(t->request->method, "HEAD") || t->status == 204 || t->status == 304;
  return t->status >= 100 && t->status <= 599;
}

static bool take_length(http_transfer *t, const neap_header *h) {
  int64_t n = 0;
  if (!h->value_length || h->value_length > 18) return false;
  for (size_t i = 0; i < h->value_length; i++) {
    if (h->value[i] < '0' || h->value[i] > '9') return false;
    n = n * 10 + (h->value[i] - '0');
  }
  if (t->content_length >= 0) return false;
  t->content_length = n;
  return true;
}

static bool take_framing(http_transfer *t, const neap_header *h) {
  if (http_name_is(h->name, h->name_length, "content-length")) return take_length(t, h);
  if (http_name_is(h->name, h->name_length, "transfer-encoding")) {
    bool twice = t->chunked;
    t->chunked = true;
    return !twice && http_name_is(h->value, h->value_length, "chunked");
  }
  if (http_name_is(h->name, h->name_length, "connection")) listed_add(t, h);
  return true;
}

/* "Name: value" up to `end` -> *h; false if it is none. */
static bool split(const char *line, const char *end, neap_header *h) {
  const char *colon = memchr(line, ':', (size_t)(end - line));
  if (!colon || colon == line) return false;
  for (const char *p = line; p < colon; p++) {
    if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f) return false;
  }
  const char *value = colon + 1;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
  for (const char *p = value; p < end; p++) {
    if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f) return false;
  }
  *h = (neap_header){line, (size_t)(colon - line), value, (size_t)(end - value)};
  return true;
}

static bool field_line(http_transfer *t, const char *line, const char *end) {
  neap_header h;
  if (!split(line, end, &h) || !take_framing(t, &h)) return false;
  if (t->in.length + (size_t)(end - line) > ANSWER_HEAD_MAX) return false;
  if (http_name_is_hop_by_hop(h.name, h.name_length)) return true;
  http_bytes_add(&t->in, line, (size_t)(end - line));
  http_bytes_add(&t->in, "\r\n", 2);
  t->header_count++;
  return true;
}

/* Takes out what Connection names, and cuts the rest up into t->headers. */
static void head_conclude(http_transfer *t) {
  http_slice listed = {t->listed.data, t->listed.length};
  char *p = t->in.data + t->reason_length, *to = p, *end = t->in.data + t->in.length;
  if (t->header_count > t->in_capacity) {
    t->in_capacity = t->header_count + 16;
    free(t->headers);
    t->headers = malloc(t->in_capacity * sizeof *t->headers);
    if (!t->headers) abort();
  }
  t->header_count = 0;
  while (p < end) {
    char *stop = memchr(p, '\r', (size_t)(end - p));
    size_t length = (size_t)(stop + 2 - p);
    neap_header h;
    if (split(p, stop, &h) && is_kept(listed, h.name, h.name_length) &&
        (t->status != 204 || !http_name_is(h.name, h.name_length, "content-length"))) {
      if (to != p) memmove(to, p, length);
      h.value = to + (h.value - p);
      h.name = to;
      t->headers[t->header_count++] = h;
      to += length;
    }
    p += length;
  }
  t->in.length = (size_t)(to - t->in.data);
  t->reason = (http_slice){t->in.data, t->reason_length};
  t->lines = (http_slice){t->in.data + t->reason_length, t->in.length - t->reason_length};
}

/* Of bytes after the end of an answer without a body, or of a chunked one, curl only says so, in
 * passing; it would use the connection again and read what follows as the next answer. */
static void listen_for_stray(http_transfer *t) {
  if (!t->bodiless && !t->chunked && t->content_length != 0) return;
  t->verbose = true;
  curl_easy_setopt(t->easy, CURLOPT_VERBOSE, 1L);
}

static int on_debug(CURL *easy, curl_infotype type, char *text, size_t length, void *data) {
  static const char excess[] = "Excess found", leftovers[] = "Leftovers after chunking";
  http_transfer *t = data;
  (void)easy;
  if (type != CURLINFO_TEXT) return 0;
  t->stray |= length >= sizeof excess && !memcmp(text, excess, sizeof excess - 1);
  t->stray |= length >= sizeof leftovers && !memcmp(text, leftovers, sizeof leftovers - 1);
  return 0;
}

static size_t head_end(http_transfer *t, size_t length) {
  if (t->status == 101) return refuse(t, "the upstream switches protocols unasked");
  if (t->status < 200) return length; /* interim: for this connection only */
  if (t->chunked && t->content_length >= 0) {
    return refuse(t, "the upstream's answer has both Content-Length and Transfer-Encoding");
  }
  head_conclude(t);
  listen_for_stray(t);
  t->head_done = true;
  t->events->on_head(t->data, t);
  return t->cancelled ? 0 : length;
}

static size_t on_header(char *line, size_t size, size_t count, void *data) {
  http_transfer *t = data;
  size_t length = size * count;
  const char *end = line + length;
  if (t->cancelled) return 0;
  if (t->head_done) return length; /* trailers: dropped */
  if (end > line && end[-1] == '\n') end--;
  if (end > line && end[-1] == '\r') end--;
  if (end == line) return head_end(t, length);
  bool good = length > 5 && !memcmp(line, "HTTP/", 5) ? status_line(t, line, end)
                                                      : field_line(t, line, end);
  return good ? length : refuse(t, "the head of the upstream's answer is malformed");
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
  (void)ip, (void)local, (void)port, (void)local_port;
  if (t->cancelled) return CURL_PREREQFUNC_ABORT;
  if (t->attempts++ && (t->attempts > 2 || !may_resend(t) || !t->events->on_resend(t->data, t))) {
    t->error = "the upstream closed the connection before it answered";
    return CURL_PREREQFUNC_ABORT;
  }
  t->phase = NEAP_PHASE_SENT;
  return CURL_PREREQFUNC_OK;
}

/* What curl sends again by itself does not include a request whose body could not be written. */
static bool resend(http_transfer *t, CURLcode code) {
  long fresh = 1;
  if (code != CURLE_SEND_ERROR && code != CURLE_RECV_ERROR) return false;
  if (t->phase != NEAP_PHASE_SENT || t->attempts != 1 || t->error) return false;
  curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &fresh);
  if (fresh || !may_resend(t) || !t->events->on_resend(t->data, t)) return false;
  http_pool *pool = t->pool;
  http_pool_remove(pool, t);
  t->fresh = true;
  curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
  http_pool_add(pool, t);
  return true;
}

/* ---- Beginning and ending -------------------------------------------------------------------- */

static void easy_set_up(http_transfer *t) {
  const http_upstream *u = t->upstream;
  CURL *e = t->easy;
  curl_easy_setopt(e, CURLOPT_PRIVATE, t);
  curl_easy_setopt(e, CURLOPT_URL, u->url);
  curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_PROXY, ""); /* not the environment's */
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
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 65536L);
  curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 65536L);
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->curl_error);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
  curl_easy_setopt(e, CURLOPT_READFUNCTION, on_upload);
  curl_easy_setopt(e, CURLOPT_READDATA, t);
  curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
  curl_easy_setopt(e, CURLOPT_SEEKDATA, t);
  curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, on_connected);
  curl_easy_setopt(e, CURLOPT_PREREQDATA, t);
  curl_easy_setopt(e, CURLOPT_DEBUGFUNCTION, on_debug);
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
  t->error = NULL;
  t->connect_late = t->cancelled = t->ended = t->paused = t->head_done = t->stray = t->added =
      t->waiting = false;
  t->curl_error[0] = '\0';
  answer_reset(t);
  return t;
}

void http_transfer_go(http_transfer *t) { http_upstream_begin(t->upstream, t); }

void http_transfer_cancel(http_transfer *t) {
  if (t->ended) return; /* conclude() is on the stack */
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
  curl_easy_pause(t->easy, CURLPAUSE_CONT);
  if (t->pool) http_pool_kick(t->pool);
}

static void conclude(http_transfer *t) {
  t->ended = true;
  t->events->on_done(t->data, t);
  http_transfer_free(t);
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
  if (resend(t, code)) return;
  if (!code && !t->head_done) t->error = "the upstream's answer has no head";
  if (code && !t->error) t->error = *t->curl_error ? t->curl_error : curl_easy_strerror(code);
  t->connect_late = code == CURLE_OPERATION_TIMEDOUT && t->phase == NEAP_PHASE_CONNECT;
  http_pool_remove(t->pool, t);
  conclude(t);
}
