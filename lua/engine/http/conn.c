/* conn.c: the reading side of a connection; see conn.h. */
#include "conn.h"

#include <stdlib.h>
#include <string.h>

#define IN_FIRST 4096u  /* bytes to begin with: most heads fit */
#define IN_BODY  65536u /* bytes beside the head while a large body is read */
#define IN_SPARE 512u   /* bytes beside the head otherwise */

/* ---- Bytes ----------------------------------------------------------------------------------- */

void http_bytes_reserve(http_bytes *b, size_t more) {
  if (b->capacity - b->length >= more) return;
  size_t capacity = b->capacity ? b->capacity : IN_FIRST;
  while (capacity - b->length < more) capacity *= 2;
  char *data = realloc(b->data, capacity);
  if (!data) abort();
  b->data = data;
  b->capacity = capacity;
}

void http_bytes_add(http_bytes *b, const void *data, size_t length) {
  if (!length) return;
  http_bytes_reserve(b, length);
  memcpy(b->data + b->length, data, length);
  b->length += length;
}

void http_bytes_free(http_bytes *b) {
  free(b->data);
  *b = (http_bytes){0};
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

/* Moving a deadline further off costs nothing: the timer finds out when it runs. */
void http_conn_timer(http_conn *conn) {
  uint64_t due = conn->read_due;
  if (conn->send_due && (!due || conn->send_due < due)) due = conn->send_due;
  if (!due || conn->state == CONN_CLOSING) return;
  if (conn->timer_due && conn->timer_due <= due) return;
  uint64_t now = uv_now(conn->server->loop);
  conn->timer_due = due;
  uv_timer_start(&conn->timer, on_timer, due > now ? due - now : 0, 0);
}

static void read_within(http_conn *conn, uint64_t ms) {
  conn->read_due = uv_now(conn->server->loop) + ms;
  http_conn_timer(conn);
}

static uint64_t body_allowance(const http_conn *conn) {
  const http_limits *l = &conn->server->limits;
  uint64_t allowed = l->body_ms + conn->body_received / l->body_rate;
  return allowed > conn->body_spent_ms ? allowed - conn->body_spent_ms : 0;
}

static void body_clock_start(http_conn *conn) {
  conn->body_since = uv_now(conn->server->loop);
  read_within(conn, body_allowance(conn));
}

static void body_clock_stop(http_conn *conn) {
  if (!conn->read_due) return;
  conn->body_spent_ms += uv_now(conn->server->loop) - conn->body_since;
  conn->read_due = 0;
}

static void body_fail(http_conn *conn, int status, const char *detail);

static void on_late_read(http_conn *conn, uint64_t now) {
  static const http_fault late = {408, "the request did not come in time"};
  http_server *server = conn->server;
  switch (conn->state) {
    case CONN_HEAD:
      server->stats.late++;
      http_conn_refuse(conn, &late);
      break;
    case CONN_BUSY:
      conn->read_due = conn->body_since + body_allowance(conn);
      if (conn->read_due > now) break;
      server->stats.late++;
      body_fail(conn, late.status, late.detail);
      break;
    default: http_conn_close(conn); break; /* idle or lingering long enough */
  }
}

static void on_timer(uv_timer_t *timer) {
  http_conn *conn = timer->data;
  uint64_t now = uv_now(conn->server->loop);
  conn->timer_due = 0;
  if (conn->send_due && conn->send_due <= now) {
    conn->server->stats.late++;
    http_conn_reset(conn);
    return;
  }
  if (conn->read_due && conn->read_due <= now) on_late_read(conn, now);
  http_conn_timer(conn);
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
  http_conn *conn = handle->data;
  if (--conn->handles) return;
  http_server *server = conn->server;
  http_bytes_free(&conn->in);
  http_bytes_free(&conn->queue);
  http_bytes_free(&conn->flight);
  free(conn->headers);
  free(conn);
  http_server_handle_closed(server);
}

static void request_abort(http_conn *conn, http_abort_reason reason) {
  if (conn->state != CONN_BUSY) return;
  http_server_stats *stats = &conn->server->stats;
  stats->active--;
  if (reason == HTTP_ABORT_CLIENT) stats->aborted++;
  conn->state = CONN_LINGER; /* from here on nobody may answer it */
  conn->read_due = 0;
  if (conn->handler->on_abort) conn->handler->on_abort(conn->data, &conn->request, reason);
}

static void close_as(http_conn *conn, http_abort_reason reason, bool reset) {
  if (conn->state == CONN_CLOSING) return;
  request_abort(conn, reason);
  conn->state = CONN_CLOSING;
  http_server *server = conn->server;
  server->stats.open--;
  if (conn->previous) conn->previous->next = conn->next;
  if (!conn->previous) server->conns = conn->next;
  if (conn->next) conn->next->previous = conn->previous;
  uv_close((uv_handle_t *)&conn->timer, on_closed);
  if (!reset || uv_tcp_close_reset(&conn->tcp, on_closed)) {
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
  }
  http_server_conn_gone(server);
}

void http_conn_close(http_conn *conn) {
  close_as(conn, conn->server->draining ? HTTP_ABORT_SERVER : HTTP_ABORT_CLIENT, false);
}

void http_conn_reset(http_conn *conn) { close_as(conn, HTTP_ABORT_CLIENT, true); }

static void on_shutdown(uv_shutdown_t *request, int status) {
  http_conn *conn = request->data;
  if (conn->state == CONN_CLOSING) return;
  if (status || conn->eof) http_conn_close(conn);
}

/* Closing with unread input would reset the connection and could take the answer with it. */
void http_conn_linger(http_conn *conn) {
  conn->state = CONN_LINGER;
  conn->body_at = conn->in.length = 0;
  conn->shutdown.data = conn;
  read_within(conn, conn->server->limits.linger_ms);
  if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown)) http_conn_close(conn);
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* The body cannot be read to its end.  If no answer has begun, this is the answer. */
static void body_fail(http_conn *conn, int status, const char *detail) {
  bool begun = conn->begun;
  request_abort(conn, HTTP_ABORT_BODY);
  if (begun) {
    http_conn_reset(conn);
  } else {
    http_conn_refuse(conn, &(http_fault){status, detail});
  }
}

static bool body_count(http_conn *conn, size_t length) {
  uint64_t limit = conn->server->limits.body_bytes;
  conn->body_received += length;
  if (!limit || conn->body_received <= limit) return true;
  body_fail(conn, 413, "the body is too large");
  return false;
}

static void body_complete(http_conn *conn) {
  conn->request.body_complete = true;
  body_clock_stop(conn);
  if (conn->handler->on_end && !conn->ended) conn->handler->on_end(conn->data, &conn->request);
}

static void body_give(http_conn *conn, const char *bytes, size_t length) {
  /* an answer that is complete needs no more of the question */
  if (conn->handler->on_body && !conn->ended) {
    conn->handler->on_body(conn->data, &conn->request, bytes, length);
  }
}

static void body_by_length(http_conn *conn) {
  size_t n = conn->in.length - conn->body_at;
  const char *bytes = conn->in.data + conn->body_at;
  if (n > conn->body_left) n = (size_t)conn->body_left;
  conn->body_at += n;
  conn->body_left -= n;
  conn->body_received += n;
  if (n) body_give(conn, bytes, n);
  if (!conn->body_left && conn->state == CONN_BUSY) body_complete(conn);
}

static void body_by_chunks(http_conn *conn) {
  size_t used = 0;
  http_slice data;
  const char *bytes = conn->in.data + conn->body_at;
  http_chunk_step step =
      http_chunks_next(&conn->chunks, bytes, conn->in.length - conn->body_at, &used, &data);
  conn->body_at += used;
  if (step == HTTP_CHUNK_DATA && body_count(conn, data.length)) {
    body_give(conn, data.data, data.length);
  } else if (step == HTTP_CHUNK_END) {
    body_complete(conn);
  } else if (step == HTTP_CHUNK_BAD) {
    body_fail(conn, 400, "the chunked body is malformed");
  }
}

/* Hands on what is there.  Answers whether it got anywhere. */
static bool body_read(http_conn *conn) {
  if (conn->request.body_complete || conn->paused || conn->body_at == conn->in.length) return false;
  if (conn->request.content_length < 0) {
    body_by_chunks(conn);
  } else {
    body_by_length(conn);
  }
  return true;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static void headers_reserve(http_conn *conn, size_t count) {
  if (count <= conn->headers_capacity) return;
  conn->headers_capacity = count < 16 ? 16 : count;
  free(conn->headers);
  conn->headers = malloc(conn->headers_capacity * sizeof *conn->headers);
  if (!conn->headers) abort();
}

/* Makes the head the first thing in `in`; its slices stay good until the request is over. */
static void head_to_front(http_conn *conn) {
  if (!conn->body_at) return;
  conn->in.length -= conn->body_at;
  memmove(conn->in.data, conn->in.data + conn->body_at, conn->in.length);
  conn->body_at = 0;
}

static void request_begin(http_conn *conn, const http_parsed *head) {
  http_server *server = conn->server;
  conn->request = (http_request){
      .method = head->method,
      .target = head->target,
      .host = head->host,
      .headers = head->headers,
      .header_count = head->header_count,
      .content_length = head->content_length,
      .minor = head->minor,
      .expects_continue = head->expects_continue,
      .body_complete = head->content_length == 0,
      .server = server,
  };
  conn->handler = server->handler;
  conn->data = server->data;
  conn->state = CONN_BUSY;
  conn->keep_alive = head->keep_alive;
  conn->body_left = head->content_length > 0 ? (uint64_t)head->content_length : 0;
  conn->body_received = conn->body_spent_ms = conn->read_due = 0;
  conn->chunks = (http_chunks){0};
  conn->paused = conn->begun = conn->ended = conn->continued = conn->over_high = false;
  server->stats.requests++;
  server->stats.active++;
  if (!conn->request.body_complete) body_clock_start(conn);
  conn->handler->on_request(conn->data, &conn->request);
}

static bool head_refuse(http_conn *conn, const http_fault *fault) {
  http_conn_refuse(conn, fault);
  return false;
}

/* Room for what comes after a head has to be made before anything points into it.  Some is needed
 * always: a connection that is not read is not seen to close.  Answers whether the head
 * has moved. */
static bool head_make_room(http_conn *conn, int64_t content_length) {
  size_t room = conn->in.capacity - conn->head;
  if (room >= IN_SPARE && content_length >= 0 && (uint64_t)content_length <= room) return false;
  http_bytes_reserve(&conn->in, content_length ? IN_BODY : IN_SPARE);
  return true;
}

/* Answers whether a request has begun. */
static bool head_read(http_conn *conn) {
  http_server *server = conn->server;
  http_fault fault = {0};
  head_to_front(conn);
  if (!conn->blank_skipped && conn->in.length >= 2 && !memcmp(conn->in.data, "\r\n", 2)) {
    conn->blank_skipped = true; /* RFC 9112, 2.2: one is forgiven */
    conn->body_at = 2;
    head_to_front(conn);
  }
  if (!conn->in.length) return false;
  if (conn->state == CONN_IDLE) {
    conn->state = CONN_HEAD;
    read_within(conn, server->limits.header_ms);
  }
  size_t length =
      http_head_scan(&conn->scan, conn->in.data, conn->in.length, &server->limits, &fault);
  if (!length) return fault.status ? head_refuse(conn, &fault) : false;

  conn->head = conn->body_at = length;
  headers_reserve(conn, conn->scan.lines);
  http_parsed head = {.headers = conn->headers};
  if (!http_head_parse(conn->in.data, length, &head, &fault)) return head_refuse(conn, &fault);
  if (head_make_room(conn, head.content_length)) {
    http_head_parse(conn->in.data, length, &head, &fault); /* the same head in another place */
  }
  uint64_t limit = server->limits.body_bytes;
  if (limit && head.content_length > 0 && (uint64_t)head.content_length > limit) {
    return head_refuse(conn, &(http_fault){413, "the body is too large"});
  }
  request_begin(conn, &head);
  return true;
}

/* ---- The connection -------------------------------------------------------------------------- */

/* The answer to the request has been handed to the kernel. */
void http_conn_answered(http_conn *conn) {
  http_server *server = conn->server;
  server->stats.active--;
  bool again = conn->keep_alive && !conn->close_after && conn->request.body_complete &&
               !server->draining && !conn->eof;
  conn->state = CONN_LINGER;
  if (conn->handler->on_done) conn->handler->on_done(conn->data, &conn->request);
  if (conn->state == CONN_CLOSING) return;
  if (!again) {
    http_conn_linger(conn);
    return;
  }
  conn->state = CONN_IDLE;
  if (conn->body_at == conn->in.length && conn->in.capacity > IN_BODY) {
    http_bytes_free(&conn->in); /* idle connections are many: none keeps much */
    conn->body_at = 0;
  }
  conn->scan = (http_scan){0};
  conn->blank_skipped = false;
  read_within(conn, server->limits.idle_ms);
  http_conn_advance(conn);
}

/* Handlers may answer, pause and resume from inside; the loop then goes on with what they left. */
static bool advance_once(http_conn *conn) {
  switch (conn->state) {
    case CONN_IDLE:
    case CONN_HEAD: return head_read(conn);
    case CONN_BUSY: return body_read(conn);
    case CONN_LINGER: conn->body_at = conn->in.length = 0; return false;
    default: return false;
  }
}

static void read_start(http_conn *conn);

void http_conn_advance(http_conn *conn) {
  if (conn->advancing) return;
  conn->advancing = true;
  while (advance_once(conn)) {}
  conn->advancing = false;
  if (conn->state == CONN_CLOSING) return;
  size_t keep = conn->state == CONN_BUSY ? conn->head : 0;
  if (conn->body_at == conn->in.length && conn->state != CONN_HEAD) {
    conn->body_at = conn->in.length = keep;
  } else if (conn->body_at > keep && conn->in.length == conn->in.capacity) {
    memmove(conn->in.data + keep, conn->in.data + conn->body_at, conn->in.length - conn->body_at);
    conn->in.length -= conn->body_at - keep;
    conn->body_at = keep;
  }
  read_start(conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
  http_conn *conn = handle->data;
  (void)suggested;
  *buf =
      uv_buf_init(conn->in.data + conn->in.length, (unsigned)(conn->in.capacity - conn->in.length));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
  http_conn *conn = stream->data;
  (void)buf;
  if (count > 0) {
    conn->in.length += (size_t)count;
    http_conn_advance(conn);
  } else if (count < 0) {
    conn->eof = true;
    /* What is owed to a client that has closed cannot be told from what is owed to one that will
     * read on: nobody is there, as other proxies see it, too. */
    http_conn_close(conn);
  }
}

/* Reads while there is room, also while a request is answered: it is how a client is seen
 * to leave. */
static void read_start(http_conn *conn) {
  if (conn->state == CONN_IDLE || conn->state == CONN_HEAD) {
    if (!conn->in.length) http_bytes_reserve(&conn->in, IN_FIRST);
    if (conn->in.length == conn->in.capacity) http_bytes_reserve(&conn->in, 1);
  }
  bool room = conn->in.length < conn->in.capacity;
  if (room == conn->reading) return;
  conn->reading = room;
  if (!room) {
    uv_read_stop((uv_stream_t *)&conn->tcp);
  } else if (uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read)) {
    http_conn_close(conn);
  }
}

static bool accept_over(http_server *server, http_conn *conn) {
  static char text[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                       "Content-Length: 0\r\n\r\n";
  if (server->stats.open <= server->limits.connections) return false;
  server->stats.overload++;
  uv_buf_t buf = uv_buf_init(text, sizeof text - 1);
  uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
  conn->state = CONN_LINGER;
  http_conn_close(conn);
  return true;
}

void http_conn_open(http_server *server) {
  http_conn *conn = calloc(1, sizeof *conn);
  if (!conn) abort();
  conn->server = server;
  conn->handles = 2;
  uv_tcp_init(server->loop, &conn->tcp);
  uv_timer_init(server->loop, &conn->timer);
  conn->tcp.data = conn->timer.data = conn;
  conn->next = server->conns;
  if (conn->next) conn->next->previous = conn;
  server->conns = conn;
  server->handles++;
  server->stats.open++;
  server->stats.connections++;
  if (uv_accept((uv_stream_t *)&server->tcp, (uv_stream_t *)&conn->tcp)) {
    http_conn_close(conn);
    return;
  }
  if (accept_over(server, conn)) return;
  uv_tcp_nodelay(&conn->tcp, 1);
  read_within(conn, server->limits.idle_ms);
  read_start(conn);
}

/* ---- What a handler may do ------------------------------------------------------------------- */

void http_request_handle(http_request *request, const http_handler *handler, void *data) {
  http_conn *conn = (http_conn *)request;
  conn->handler = handler;
  conn->data = data;
}

void http_request_pause(http_request *request) {
  http_conn *conn = (http_conn *)request;
  if (conn->paused || request->body_complete) return;
  conn->paused = true;
  body_clock_stop(conn);
}

void http_request_resume(http_request *request) {
  http_conn *conn = (http_conn *)request;
  if (!conn->paused) return;
  conn->paused = false;
  if (!request->body_complete) body_clock_start(conn);
  http_conn_advance(conn);
}

const neap_header *http_request_header(const http_request *request, const char *name) {
  for (size_t i = 0; i < request->header_count; i++) {
    const neap_header *h = &request->headers[i];
    if (http_name_is(h->name, h->name_length, name)) return h;
  }
  return NULL;
}

const char *http_request_peer(const http_request *request, char buffer[64]) {
  const http_conn *conn = (const http_conn *)request;
  struct sockaddr_storage address;
  int length = sizeof address;
  *buffer = '\0';
  if (!uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&address, &length)) {
    uv_ip_name((struct sockaddr *)&address, buffer, 64);
  }
  return buffer;
}
