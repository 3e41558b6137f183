/* client.h: requests to an upstream, by libcurl's multi interface on the loop.
 *
 *   upstream   one origin: its URL, its addresses, its pools of kept connections     upstream.c
 *   pool       one curl multi handle: the connections to one set of addresses         pool.c
 *   transfer   one request and its answer: a curl easy handle, used again and again   transfer.c,
 *              outgoing.c (the request's head), incoming.c (the answer's)
 *
 * When the upstream's addresses change, it gets a new pool.  The old one takes no new transfers and
 * goes when its last has ended, and with it the connections to an address that is no longer meant.
 *
 * Callbacks come from inside curl, which must not be entered again from there.  So a transfer that
 * is started waits until curl has returned, and one that is cancelled fails at its next callback.
 */
#ifndef NEAP_HTTP_CLIENT_H
#define NEAP_HTTP_CLIENT_H

#include <curl/curl.h>

#include "conn.h"

typedef struct http_upstream http_upstream;
typedef struct http_pool http_pool;
typedef struct http_transfer http_transfer;

#define HTTP_UPLOAD_WAIT ((size_t)-1)

/* Whoever started a transfer.  After on_done the transfer is gone. */
typedef struct http_transfer_events {
  /* The answer's head is there: status, headers, lines, content_length. */
  void (*on_head)(void *data, http_transfer *transfer);
  /* Body bytes.  Answers false if they were not taken: they come again after resume. */
  bool (*on_data)(void *data, http_transfer *transfer, const char *bytes, size_t length);
  /* Fills buffer[size] with body to send; answers how much, 0 at its end, or HTTP_UPLOAD_WAIT: more
   * will come, and http_transfer_resume() with it. */
  size_t (*on_upload)(void *data, http_transfer *transfer, char *buffer, size_t size);
  /* It is to be sent again.  Answers whether the body can begin anew. */
  bool (*on_resend)(void *data, http_transfer *transfer);
  /* It has ended: error is NULL if the answer is complete. */
  void (*on_done)(void *data, http_transfer *transfer);
} http_transfer_events;

struct http_transfer {
  int status; /* 0: no answer yet */
  http_slice reason;
  neap_header *headers; /* those of the answer that are not about the connection */
  size_t header_count;
  http_slice lines;       /* the same, as "Name: value\r\n" */
  int64_t content_length; /* of the answer; -1: not said */
  bool bodiless;          /* HEAD, 204, 304: no body follows */
  neap_phase phase;
  unsigned attempts;
  const char *error; /* one line; NULL: none */
  bool connect_late; /* the error is that no connection came about in time */
  uint64_t left_ms;  /* what the client's deadline becomes on its way; UINT64_MAX: it stays */

  /* private */
  const http_transfer_events *events;
  void *data;
  const http_request *request;
  http_upstream *upstream;
  http_pool *pool;
  http_transfer *next; /* of those that are free, or wait, or were cancelled */
  CURL *easy;
  http_bytes out;               /* the target and the field lines, each NUL-terminated */
  struct curl_slist *out_nodes; /* over them */
  size_t out_capacity;
  const char *method;  /* the easy handle is set up for; NULL: not yet */
  bool uploads;        /* ... with a body */
  uint64_t generation; /* ... of the pool */
  http_bytes in;       /* the reason and the field lines of the answer */
  size_t reason_length;
  http_bytes listed;       /* what its Connection field names */
  struct http_mark *marks; /* where in `in` the fields are */
  size_t in_capacity;      /* of `headers` and `marks` */
  bool waiting, added, cancelled, ended, paused, head_done, verbose, stray, chunked, fresh;
  bool spoiled; /* it was given a connection that must not be used again */
  bool kept;    /* its answer is still of use after on_done: http_transfer_cancel() lets it go */
  char curl_error[CURL_ERROR_SIZE];
};

/* ---- Upstream -------------------------------------------------------------------------------- */

bool http_upstream_open(uv_loop_t *loop, const proxy_options *options, http_upstream **out,
                        char *error, size_t size);
void http_upstream_close(http_upstream *upstream, void (*closed)(void *data), void *data);

/* Makes a transfer; http_transfer_go() sends the request on, and may call any of the events before
 * it returns.  The request's head has to stay until on_done.  After http_transfer_cancel() nothing
 * is called any more. */
http_transfer *http_transfer_new(http_upstream *upstream, const http_request *request,
                                 const http_transfer_events *events, void *data);
void http_transfer_go(http_transfer *transfer);
void http_transfer_cancel(http_transfer *transfer);

/* Goes on with what on_data did not take or on_upload did not have. */
void http_transfer_resume(http_transfer *transfer);

/* ---- Between upstream.c, pool.c and transfer.c ----------------------------------------------- */

struct http_upstream {
  uv_loop_t *loop;
  proxy_options options;
  CURLU *url; /* parsed once: curl would parse a text for each transfer */
  char *host, *ca_file;
  int port;
  bool tls, literal;

  http_pool *pool;               /* for new transfers; NULL: no address known */
  http_pool *pools;              /* all */
  http_transfer *free, *waiting; /* waiting: for an address */
  uint64_t generation;           /* of the newest pool */

  char *addresses; /* in force, sorted */
  uint64_t resolved_at, good_at;
  bool resolving, closing;
  uv_getaddrinfo_t lookup;
  uv_timer_t timer; /* for options.resolve, or a lookup that failed at once: away from who asked */
  unsigned holds;   /* pools, the timer, a lookup under way */
  void (*closed)(void *data);
  void *closed_data;
};

struct http_pool {
  http_upstream *upstream;
  http_pool *next;
  CURLM *multi;
  uv_timer_t timer;
  struct curl_slist *resolve; /* "host:port:addresses" for curl; NULL: a literal address */
  http_transfer *pending, **pending_end; /* to be added */
  http_transfer *cancelled;              /* to be taken out */
  struct pool_socket **sockets;          /* by descriptor */
  size_t socket_capacity;
  size_t spoiled;      /* sockets */
  size_t active;       /* transfers */
  size_t handles;      /* not yet closed */
  uint64_t generation; /* tells pools apart that take turns at one place in memory */
  bool running, kicked, retired;
};

http_pool *http_pool_new(http_upstream *upstream, const char *addresses);
void http_pool_retire(http_pool *pool);
void http_pool_add(http_pool *pool, http_transfer *transfer);
void http_pool_remove(http_pool *pool, http_transfer *transfer);
void http_pool_cancel(http_pool *pool, http_transfer *transfer); /* takes out and frees */
void http_pool_unpause(http_pool *pool, http_transfer *transfer);
void http_pool_spoil(http_pool *pool, curl_socket_t fd); /* never use that connection again */
bool http_pool_is_spoiled(const http_pool *pool, int local_port);
int http_pool_socket_close(void *pool, curl_socket_t fd);
void http_upstream_pool_gone(http_upstream *upstream, http_pool *pool);
void http_upstream_begin(http_upstream *upstream, http_transfer *transfer);
void http_upstream_forget(http_upstream *upstream,
                          http_transfer *transfer); /* that waits for an address */

void http_transfer_prepare(http_transfer *transfer); /* for its pool */

/* outgoing.c */
void http_out_reserve(http_transfer *transfer,
                      const http_request *request); /* first: room for all */
char *http_out_add(http_transfer *transfer, const char *text, size_t length);
struct curl_slist *http_out_fields(http_transfer *transfer, const http_request *request);
void http_listed_add(http_bytes *listed, const neap_header *connection); /* what it names */
bool http_field_is_kept(http_slice listed, const char *name, size_t length);

/* incoming.c: curl's HEADERFUNCTION and DEBUGFUNCTION */
size_t http_incoming_line(char *line, size_t size, size_t count, void *transfer);
int http_incoming_remark(CURL *easy, curl_infotype type, char *text, size_t length, void *transfer);
void http_answer_reset(http_transfer *transfer);

/* transfer.c */
void http_transfer_ended(http_transfer *transfer, CURLcode code);
void http_transfer_fail(http_transfer *transfer, const char *error);
void http_transfer_free(http_transfer *transfer);

#endif
