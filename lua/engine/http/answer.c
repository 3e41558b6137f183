/* answer.c: the writing side of a connection; see conn.h.
 *
 * What the kernel takes at once is written from where it lies.  The rest is copied to `queue`; one
 * write is under way at a time, of `flight`, and when it is done the two change places. */
#include "conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES 65536u /* of a queue's memory that is kept for the next answer */

const char *http_status_reason(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

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

static void add_text(http_bytes *b, const char *text) { http_bytes_add(b, text, strlen(text)); }

static void add_number(http_bytes *b, uint64_t n) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + n % 10);
    n /= 10;
  } while (n);
  http_bytes_add(b, digits + at, sizeof digits - at);
}

static void add_status_line(http_bytes *b, int status, http_slice reason) {
  add_text(b, "HTTP/1.1 ");
  add_number(b, (uint64_t)status);
  add_text(b, " ");
  if (reason.length) {
    http_bytes_add(b, reason.data, reason.length);
  } else {
    add_text(b, http_status_reason(status));
  }
  add_text(b, "\r\n");
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
  bool said = head->content_length >= 0 && head->status != 204 && !head->length_in_lines;
  conn->answer_left = 0;
  if (is_bodiless(conn, head->status)) {
    conn->framing = ANSWER_BODILESS;
  } else if (head->content_length >= 0) {
    conn->framing = ANSWER_LENGTH;
    conn->answer_left = (uint64_t)head->content_length;
  } else if (conn->request.minor) {
    conn->framing = ANSWER_CHUNKED;
    add_text(b, "Transfer-Encoding: chunked\r\n");
  } else {
    conn->framing = ANSWER_TO_CLOSE;
    conn->close_after = true;
  }
  if (said) {
    add_text(b, "Content-Length: ");
    add_number(b, (uint64_t)head->content_length);
    add_text(b, "\r\n");
  }
}

static http_bytes *answer_head(http_conn *conn, const http_head *head) {
  http_bytes *b = &conn->server->scratch;
  b->length = 0;
  conn->begun = true;
  conn->close_after =
      head->close || !conn->request.body_complete || !conn->keep_alive || conn->server->draining;
  add_status_line(b, head->status, head->reason);
  add_fields(b, head);
  add_framing(conn, b, head);
  if (conn->close_after) {
    add_text(b, "Connection: close\r\n");
  } else if (!conn->request.minor) {
    add_text(b, "Connection: keep-alive\r\n");
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

/* ---- Answers of our own ---------------------------------------------------------------------- */

static neap_header field(const char *name, const char *value) {
  return (neap_header){name, strlen(name), value, strlen(value)};
}

void http_answer_text(http_request *request, int status, const char *type, const char *body,
                      size_t length) {
  neap_header headers[] = {
      field("Date", http_server_date(request->server)),
      field("Content-Type", type),
  };
  http_answer(request, &(http_head){.status = status, .headers = headers, .header_count = 2}, body,
              length);
}

/* JSON text; nothing but what a problem's texts can hold needs escaping well. */
static void add_json(http_bytes *b, const char *text) {
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    char escaped[8];
    if (c == '"' || c == '\\') http_bytes_add(b, "\\", 1);
    if (c >= ' ') {
      http_bytes_add(b, text, 1);
    } else {
      snprintf(escaped, sizeof escaped, "\\u%04x", c);
      add_text(b, escaped);
    }
  }
}

static void problem_body(http_bytes *b, int status, const char *title, const char *detail) {
  add_text(b, "{\"type\":\"about:blank\",\"title\":\"");
  add_json(b, title);
  add_text(b, "\",\"status\":");
  add_number(b, (uint64_t)status);
  if (detail) {
    add_text(b, ",\"detail\":\"");
    add_json(b, detail);
    add_text(b, "\"");
  }
  add_text(b, "}\n");
}

void http_answer_problem(http_request *request, int status, const char *title, const char *detail,
                         uint64_t retry_after_ms) {
  http_bytes body = {0};
  char seconds[24];
  problem_body(&body, status, title, detail);
  neap_header headers[] = {
      field("Date", http_server_date(request->server)),
      field("Content-Type", "application/problem+json"),
      field("Cache-Control", "no-store"),
      field("Retry-After", seconds),
  };
  snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)((retry_after_ms + 999) / 1000));
  headers[3].value_length = strlen(seconds);
  http_head head = {.status = status, .headers = headers, .header_count = retry_after_ms ? 4 : 3};
  http_answer(request, &head, body.data, body.length);
  http_bytes_free(&body);
}

/* A refusal before there is a request, or after it was taken from its handler. */
void http_conn_refuse(http_conn *conn, const http_fault *fault) {
  if (conn->state == CONN_CLOSING) return;
  http_server *server = conn->server;
  http_bytes body = {0};
  server->stats.refused++;
  problem_body(&body, fault->status, http_status_reason(fault->status), fault->detail);
  http_bytes *b = &server->scratch;
  b->length = 0;
  add_status_line(b, fault->status, (http_slice){0});
  add_text(b, "Date: ");
  add_text(b, http_server_date(server));
  add_text(b, "\r\nContent-Type: application/problem+json\r\nContent-Length: ");
  add_number(b, body.length);
  add_text(b, "\r\nConnection: close\r\n\r\n");
  uv_buf_t parts[2] = {uv_buf_init(b->data, (unsigned)b->length),
                       uv_buf_init(body.data, (unsigned)body.length)};
  bool sent = http_conn_send(conn, parts, 2);
  http_bytes_free(&body);
  if (sent) http_conn_linger(conn);
}
