/* answer.c: the writing side of a connection; see conn.h.
 *
 * What the kernel takes at once is written from where it lies.  The rest is copied to `queue`; one
 * write is under way at a time, of `flight`, and when it is done the two change places. */
#include "conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES 65536u /* of a queue's memory that is kept for the next answer */

/* ---- Bytes out ------------------------------------------------------------------------------- */

static size_t unsent(const http_conn *conn) {
  return conn->queue.length + (conn->writing ? conn->flight.length : 0);
}

static void flight_begin(http_conn *conn);

/* The answer is complete and nothing is unsent: on to the next request. */
static void answer_settle(http_conn *conn) {
  if (!conn->ended || conn->state != CONN_BUSY || unsent(conn)) return;
  http_conn_answered(conn);
}

static void on_written(uv_write_t *write, int status) {
  http_conn *conn = write->data;
  conn->writing = false;
  conn->send_due = 0;
  if (conn->state == CONN_CLOSING) return;
  if (status) {
    http_conn_close(conn);
    return;
  }
  conn->flight.length = 0;
  if (conn->flight.capacity > KEEP_BYTES) http_bytes_free(&conn->flight);
  if (conn->queue.length) flight_begin(conn);
  if (conn->over_high && unsent(conn) <= conn->server->limits.queue_bytes / 2) {
    conn->over_high = false;
    if (conn->state == CONN_BUSY && !conn->ended && conn->handler->on_drain) {
      conn->handler->on_drain(conn->data, &conn->request);
    }
  }
  answer_settle(conn);
}

static void flight_begin(http_conn *conn) {
  http_bytes other = conn->flight;
  conn->flight = conn->queue;
  conn->queue = other;
  conn->queue.length = 0;
  conn->writing = true;
  conn->write.data = conn;
  conn->send_due = uv_now(conn->server->loop) + conn->server->limits.send_ms;
  http_conn_timer(conn);
  uv_buf_t buf = uv_buf_init(conn->flight.data, (unsigned)conn->flight.length);
  if (uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &buf, 1, on_written)) {
    conn->writing = false;
    http_conn_close(conn);
  }
}

bool http_conn_send(http_conn *conn, uv_buf_t *parts, unsigned count) {
  size_t taken = 0;
  if (conn->state == CONN_CLOSING) return false;
  if (!conn->writing) {
    int n = uv_try_write((uv_stream_t *)&conn->tcp, parts, count);
    if (n < 0 && n != UV_EAGAIN) {
      http_conn_close(conn);
      return false;
    }
    taken = n > 0 ? (size_t)n : 0;
  }
  for (unsigned i = 0; i < count; i++) {
    size_t skip = taken < parts[i].len ? taken : parts[i].len;
    taken -= skip;
    http_bytes_add(&conn->queue, parts[i].base + skip, parts[i].len - skip);
  }
  if (conn->queue.length && !conn->writing) flight_begin(conn);
  return conn->state != CONN_CLOSING;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

http_slice http_number(char digits[20], uint64_t n) {
  size_t at = 20;
  do {
    digits[--at] = (char)('0' + n % 10);
    n /= 10;
  } while (n);
  return (http_slice){digits + at, 20 - at};
}

void http_add_number(http_bytes *b, uint64_t n) {
  char digits[20];
  http_slice text = http_number(digits, n);
  http_bytes_add(b, text.data, text.length);
}

void http_add_status_line(http_bytes *b, int status, http_slice reason) {
  http_add_text(b, "HTTP/1.1 ");
  http_add_number(b, (uint64_t)status);
  http_add_text(b, " ");
  if (reason.length) {
    http_bytes_add(b, reason.data, reason.length);
  } else {
    http_add_text(b, http_status_reason(status));
  }
  http_add_text(b, "\r\n");
}

static void add_fields(http_bytes *b, const http_head *head) {
  http_bytes_add(b, head->lines.data, head->lines.length);
  for (size_t i = 0; i < head->header_count; i++) {
    const neap_header *h = &head->headers[i];
    http_bytes_add(b, h->name, h->name_length);
    http_bytes_add(b, ": ", 2);
    http_bytes_add(b, h->value, h->value_length);
    http_bytes_add(b, "\r\n", 2);
  }
}

static bool is_bodiless(const http_conn *conn, int status) {
  return status == 204 || status == 304 || !strcmp(conn->request.method, "HEAD");
}

/* Decides how the answer will end, and says so. */
static void add_framing(http_conn *conn, http_bytes *b, const http_head *head) {
  bool said = head->content_length >= 0 && head->status != 204 && !head->length_is_said;
  conn->answer_left = 0;
  if (is_bodiless(conn, head->status)) {
    conn->framing = ANSWER_BODILESS;
  } else if (head->content_length >= 0) {
    conn->framing = ANSWER_LENGTH;
    conn->answer_left = (uint64_t)head->content_length;
  } else if (conn->request.minor) {
    conn->framing = ANSWER_CHUNKED;
    http_add_text(b, "Transfer-Encoding: chunked\r\n");
  } else {
    conn->framing = ANSWER_TO_CLOSE;
    conn->close_after = true;
  }
  if (said) {
    http_add_text(b, "Content-Length: ");
    http_add_number(b, (uint64_t)head->content_length);
    http_add_text(b, "\r\n");
  }
}

static http_bytes *answer_head(http_conn *conn, const http_head *head) {
  http_bytes *b = &conn->server->scratch;
  b->length = 0;
  conn->begun = true;
  conn->close_after =
      head->close || !conn->request.body_complete || !conn->keep_alive || conn->server->draining;
  http_add_status_line(b, head->status, head->reason);
  add_fields(b, head);
  add_framing(conn, b, head);
  if (conn->close_after) {
    http_add_text(b, "Connection: close\r\n");
  } else if (!conn->request.minor) {
    http_add_text(b, "Connection: keep-alive\r\n");
  }
  http_bytes_add(b, "\r\n", 2);
  return b;
}

/* ---- Answers --------------------------------------------------------------------------------- */

void http_answer_begin(http_request *request, const http_head *head) {
  http_conn *conn = (http_conn *)request;
  if (conn->state != CONN_BUSY) return;
  http_bytes *b = answer_head(conn, head);
  uv_buf_t part = uv_buf_init(b->data, (unsigned)b->length);
  http_conn_send(conn, &part, 1);
}

bool http_answer_write(http_request *request, const char *bytes, size_t length) {
  http_conn *conn = (http_conn *)request;
  if (conn->state != CONN_BUSY || !length || conn->framing == ANSWER_BODILESS) return true;
  char size[24];
  uv_buf_t parts[3];
  unsigned count = 0;
  if (conn->framing == ANSWER_LENGTH && length > conn->answer_left) length = conn->answer_left;
  if (conn->framing == ANSWER_CHUNKED) {
    int n = snprintf(size, sizeof size, "%zx\r\n", length);
    parts[count++] = uv_buf_init(size, (unsigned)n);
  }
  parts[count++] = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)length);
  if (conn->framing == ANSWER_CHUNKED) {
    static char end[] = "\r\n";
    parts[count++] = uv_buf_init(end, 2);
  }
  if (conn->framing == ANSWER_LENGTH) conn->answer_left -= length;
  if (!http_conn_send(conn, parts, count)) return true;
  if (unsent(conn) > conn->server->limits.queue_bytes) conn->over_high = true;
  return !conn->over_high;
}

void http_answer_end(http_request *request) {
  http_conn *conn = (http_conn *)request;
  if (conn->state != CONN_BUSY || conn->ended) return;
  if (conn->answer_left) {
    http_answer_cut(request);
    return;
  }
  if (conn->framing == ANSWER_CHUNKED) {
    static char end[] = "0\r\n\r\n";
    uv_buf_t part = uv_buf_init(end, 5);
    if (!http_conn_send(conn, &part, 1)) return;
  }
  conn->ended = true;
  answer_settle(conn);
}

void http_answer(http_request *request, const http_head *head, const char *body, size_t length) {
  http_conn *conn = (http_conn *)request;
  if (conn->state != CONN_BUSY) return;
  http_head whole = *head;
  if (body || !is_bodiless(conn, head->status)) whole.content_length = (int64_t)length;
  http_bytes *b = answer_head(conn, &whole);
  uv_buf_t parts[2] = {uv_buf_init(b->data, (unsigned)b->length),
                       uv_buf_init((char *)(uintptr_t)body, (unsigned)length)};
  bool sends = length && conn->framing == ANSWER_LENGTH;
  if (!http_conn_send(conn, parts, sends ? 2 : 1)) return;
  conn->answer_left = 0;
  conn->ended = true;
  answer_settle(conn);
}

void http_answer_cut(http_request *request) {
  http_conn *conn = (http_conn *)request;
  if (conn->state != CONN_BUSY) return;
  conn->server->stats.active--;
  conn->state = CONN_LINGER; /* the handler knows: no on_abort */
  http_conn_reset(conn);
}

void http_request_continue(http_request *request) {
  static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
  http_conn *conn = (http_conn *)request;
  if (!request->expects_continue || conn->continued || conn->begun) return;
  conn->continued = true;
  uv_buf_t part = uv_buf_init(text, sizeof text - 1);
  http_conn_send(conn, &part, 1);
}
