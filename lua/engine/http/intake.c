/* intake.c: heads and bodies, out of the bytes of a connection; see conn.h. */
#include "conn.h"

#include <stdlib.h>
#include <string.h>

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* The body cannot be read to its end.  If no answer has begun, this is the answer. */
void http_body_fail(http_conn *conn, int status, const char *detail) {
  bool begun = conn->begun;
  http_request_abort(conn, HTTP_ABORT_BODY);
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
  http_body_fail(conn, 413, "the body is too large");
  return false;
}

static void body_complete(http_conn *conn) {
  conn->request.body_complete = true;
  http_body_clock_stop(conn);
  if (conn->handler->on_end && !conn->ended) conn->handler->on_end(conn->data, &conn->request);
}

static void body_give(http_conn *conn, const char *bytes, size_t length) {
  conn->body_heard = uv_now(conn->server->loop);
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
    http_body_fail(conn, 400, "the chunked body is malformed");
  }
}

/* Hands on what is there.  Answers whether it got anywhere. */
bool http_body_read(http_conn *conn) {
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
  if (!conn->request.body_complete) http_body_clock_start(conn);
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
  if (room >= HTTP_IN_SPARE && content_length >= 0 && (uint64_t)content_length <= room)
    return false;
  http_bytes_reserve(&conn->in, content_length ? HTTP_IN_BODY : HTTP_IN_SPARE);
  return true;
}

/* Answers whether a request has begun. */
bool http_head_read(http_conn *conn) {
  http_server *server = conn->server;
  http_fault fault = {0};
  head_to_front(conn);
  if (!conn->blank_skipped && conn->in.length >= 2 && !memcmp(conn->in.data, "\r\n", 2)) {
    conn->blank_skipped = true; /* RFC 9112, 2.2: one is forgiven */
    conn->body_at = 2;
    head_to_front(conn);
    conn->scan = (http_scan){0};
  }
  if (!conn->in.length) return false;
  if (conn->state == CONN_IDLE) {
    conn->state = CONN_HEAD;
    http_conn_read_within(conn, server->limits.header_ms);
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
