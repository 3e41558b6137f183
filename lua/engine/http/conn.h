/* conn.h: one client's connection, shared by conn.c (coming and going), intake.c
 * (reading), answer.c and problem.c (writing), server.c.
 *
 *                 first byte            head complete            answered, keep-alive
 *        +-- IDLE ----------> HEAD -------------------> BUSY ------------------------+
 *        |     ^                | malformed, late         | answered, close          |
 *        |     |                v                         v                          |
 *        |     |              LINGER (answer sent, input thrown away) --> CLOSING    |
 *        |     +---------------------------------------------------------------------+
 *        +-- idle_ms over --> CLOSING
 *
 *   in     [ head of the request under way | what came after it ]
 *          0                               head                end         capacity
 *          Body bytes are handed on and their place used again; a pipelined head waits there.
 *
 *   out    bytes the kernel has not taken: `flight` is being written, `queue` comes after it
 */
#ifndef NEAP_HTTP_CONN_H
#define NEAP_HTTP_CONN_H

#include <string.h>

#include "head.h"

typedef struct http_conn http_conn;

typedef struct http_bytes {
  char *data;
  size_t length, capacity;
} http_bytes;

/* Grows to hold `more` further bytes.  Memory that runs out ends the program: there is no
 * way on. */
void http_bytes_reserve(http_bytes *b, size_t more);
void http_bytes_free(http_bytes *b);

/* Here, as each head is put together of some thirty small pieces. */
static inline void http_bytes_add(http_bytes *b, const void *data, size_t length) {
  if (!length) return;
  if (b->capacity - b->length < length) http_bytes_reserve(b, length);
  memcpy(b->data + b->length, data, length);
  b->length += length;
}

static inline void http_add_text(http_bytes *b, const char *text) {
  http_bytes_add(b, text, strlen(text));
}

#define HTTP_IN_FIRST 4096u  /* bytes to begin with: most heads fit */
#define HTTP_IN_BODY  65536u /* bytes beside the head while a large body is read */
#define HTTP_IN_SPARE 512u   /* bytes beside the head otherwise */

typedef enum conn_state { CONN_IDLE, CONN_HEAD, CONN_BUSY, CONN_LINGER, CONN_CLOSING } conn_state;

/* How an answer says where it ends. */
typedef enum answer_framing {
  ANSWER_BODILESS,
  ANSWER_LENGTH,
  ANSWER_CHUNKED,
  ANSWER_TO_CLOSE
} answer_framing;

struct http_conn {
  http_request request; /* first: a request is its connection */
  const http_handler *handler;
  void *data;
  http_server *server;
  http_conn *previous, *next; /* of all the server's */
  conn_state state;

  uv_tcp_t tcp;
  uv_timer_t timer;                       /* runs at the earlier of the two, or before it */
  uint64_t timer_due, read_due, send_due; /* 0: none */
  unsigned handles;                       /* not yet closed */

  /* reading */
  http_bytes in;
  size_t head;    /* of the request under way */
  size_t body_at; /* where unread bytes begin */
  http_scan scan;
  neap_header *headers;
  size_t headers_capacity;
  http_chunks chunks;
  uint64_t body_left;     /* of a Content-Length */
  uint64_t body_received; /* of this body, framing apart */
  uint64_t body_since, body_spent_ms;
  uint64_t body_heard; /* when its last bytes came, or reading began again */
  bool reading, paused, keep_alive, blank_skipped, eof, advancing;

  /* writing */
  http_bytes queue, flight;
  uv_write_t write;
  uv_shutdown_t shutdown;
  answer_framing framing;
  uint64_t answer_left;
  bool writing, begun, ended, close_after, continued, over_high;
};

struct http_server {
  uv_loop_t *loop;
  uv_tcp_t tcp;
  uv_timer_t drain;
  http_limits limits;
  const http_handler *handler;
  void *data;
  http_conn *conns;
  http_server_stats stats;
  http_bytes scratch; /* for heads */
  char date[32];      /* of `date_at` */
  uint64_t date_at;
  bool draining;
  unsigned handles; /* not yet closed: two, and one for each connection */
  void (*closed)(void *data);
  void *closed_data;
  int port;
};

/* conn.c */
void http_conn_open(http_server *server);
void http_conn_close(http_conn *conn);    /* at once; aborts its request */
void http_conn_reset(http_conn *conn);    /* the same, seen as an error by the client */
void http_conn_linger(http_conn *conn);   /* shuts down, then closes */
void http_conn_advance(http_conn *conn);  /* reads on, as far as the bytes go */
void http_conn_answered(http_conn *conn); /* an answer has been handed to the kernel */
void http_conn_timer(http_conn *conn);    /* read_due or send_due was set */
void http_conn_read_within(http_conn *conn, uint64_t ms);
void http_body_clock_start(http_conn *conn); /* it is the client's turn */
void http_body_clock_stop(http_conn *conn);
void http_request_abort(http_conn *conn, http_abort_reason reason);

/* intake.c: each answers whether it got anywhere */
bool http_head_read(http_conn *conn);
bool http_body_read(http_conn *conn);
void http_body_fail(http_conn *conn, int status, const char *detail);

/* answer.c */
bool http_conn_send(http_conn *conn, uv_buf_t *parts,
                    unsigned count);                 /* false: the client is gone */
http_slice http_number(char digits[20], uint64_t n); /* as text, somewhere in `digits` */
void http_add_number(http_bytes *b, uint64_t n);
void http_add_status_line(http_bytes *b, int status, http_slice reason);

/* problem.c */
void http_conn_refuse(http_conn *conn, const http_fault *fault);
void http_problem(http_bytes *b, int status, const char *title, const char *detail,
                  const http_refused *refused); /* its JSON */
const char *http_status_reason(int status);

/* server.c */
void http_server_handle_closed(http_server *server);
void http_server_conn_gone(http_server *server); /* one was taken out of `conns` */
const char *http_server_date(http_server *server);

#endif
