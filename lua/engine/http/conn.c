/* conn.c: the reading side of a connection; see conn.h. */
#include "conn.h"

#include <stdlib.h>
#include <string.h>

/* ---- Bytes ----------------------------------------------------------------------------------- */

void http_bytes_reserve(http_bytes *b, size_t more) {
  if (b->capacity - b->length >= more) return;
  size_t capacity = b->capacity ? b->capacity : HTTP_IN_FIRST;
  while (capacity - b->length < more) capacity *= 2;
  char *data = realloc(b->data, capacity);
  if (!data) abort();
  b->data = data;
  b->capacity = capacity;
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

void http_conn_read_within(http_conn *conn, uint64_t ms) {
  conn->read_due = uv_now(conn->server->loop) + ms;
  http_conn_timer(conn);
}

/* Whichever comes first: all of the body's time is used up, or its next byte is overdue. */
static uint64_t body_due(const http_conn *conn) {
  const http_limits *l = &conn->server->limits;
  uint64_t allowed = l->body_ms + conn->body_received / l->body_rate;
  uint64_t left = allowed > conn->body_spent_ms ? allowed - conn->body_spent_ms : 0;
  uint64_t total = conn->body_since + left, next = conn->body_heard + l->body_ms;
  return total < next ? total : next;
}

void http_body_clock_start(http_conn *conn) {
  conn->body_since = conn->body_heard = uv_now(conn->server->loop);
  conn->read_due = body_due(conn);
  http_conn_timer(conn);
}

void http_body_clock_stop(http_conn *conn) {
  if (!conn->read_due) return;
  conn->body_spent_ms += uv_now(conn->server->loop) - conn->body_since;
  conn->read_due = 0;
}

static void on_late_read(http_conn *conn, uint64_t now) {
  static const http_fault late = {408, "the request did not come in time"};
  http_server *server = conn->server;
  switch (conn->state) {
    case CONN_HEAD:
      server->stats.late++;
      http_conn_refuse(conn, &late);
      break;
    case CONN_BUSY:
      conn->read_due = body_due(conn);
      if (conn->read_due > now) break;
      server->stats.late++;
      http_body_fail(conn, late.status, late.detail);
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

void http_request_abort(http_conn *conn, http_abort_reason reason) {
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
  http_request_abort(conn, reason);
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
  http_conn_read_within(conn, conn->server->limits.linger_ms);
  if (uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown)) http_conn_close(conn);
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
  if (conn->body_at == conn->in.length && conn->in.capacity > HTTP_IN_BODY) {
    http_bytes_free(&conn->in); /* idle connections are many: none keeps much */
    conn->body_at = 0;
  }
  conn->scan = (http_scan){0};
  conn->blank_skipped = false;
  http_conn_read_within(conn, server->limits.idle_ms);
  http_conn_advance(conn);
}

/* Handlers may answer, pause and resume from inside; the loop then goes on with what they left. */
static bool advance_once(http_conn *conn) {
  switch (conn->state) {
    case CONN_IDLE:
    case CONN_HEAD: return http_head_read(conn);
    case CONN_BUSY: return http_body_read(conn);
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
    if (!conn->in.length) http_bytes_reserve(&conn->in, HTTP_IN_FIRST);
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

/* Who has been in that state for longest. */
static http_conn *longest(http_conn *conns, conn_state state) {
  http_conn *found = NULL;
  for (http_conn *c = conns; c; c = c->next)
    if (c->state == state && (!found || c->read_due <= found->read_due)) found = c;
  return found;
}

/* For one that has just come. */
static void make_room(http_conn *conn) {
  http_conn *idle = longest(conn->next, CONN_IDLE);
  if (!idle) idle = longest(conn->next, CONN_HEAD);
  if (idle) http_conn_close(idle);
}

static bool accept_over(http_server *server, http_conn *conn) {
  static char text[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                       "Content-Length: 0\r\n\r\n";
  if (server->stats.open <= server->limits.connections) return false;
  if (server->limits.makes_room) make_room(conn);
  if (server->stats.open <= server->limits.connections) return false;
  server->stats.overload++;
  uv_buf_t buf = uv_buf_init(text, sizeof text - 1);
  uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);
  conn->state = CONN_LINGER;
  http_conn_close(conn);
  if (server->handler->on_overload) server->handler->on_overload(server->data);
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
  http_conn_read_within(conn, server->limits.idle_ms);
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
  http_body_clock_stop(conn);
}

void http_request_resume(http_request *request) {
  http_conn *conn = (http_conn *)request;
  if (!conn->paused) return;
  conn->paused = false;
  if (!request->body_complete) http_body_clock_start(conn);
  http_conn_advance(conn);
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
