/* http.h: the HTTP side of the neap program: a server, and the proxy that puts a guard before an
 * upstream.
 *
 *   client --> http_server --> on_request --> proxy_begin(route) --> upstream (client.h) --> origin
 *                   |                              |
 *                   +-- http_answer()               +-- neap_guard: acquire, report, fallback
 *
 *   server    listens; one connection carries one request at a time, pipelined ones wait their turn
 *   request   what a client asks, from its complete head to the end of the answer
 *   handler   whoever answers a request; chosen anew for each one
 *   route     one upstream behind one guard
 *
 * What goes through unchanged: the method, the raw target (an absolute URL becomes its path),
 * names, values and order of the fields, Host, the status and its reason, bodies and their codings.
 * Nothing is added to a request: no Via, no X-Forwarded-For.  An answer gets Neap-Source,
 * in place of the upstream's.
 *
 * What does not: fields about one connection and those that Connection names (never Content-Length
 * or Host), Expect, trailers, chunk extensions, interim answers (100 is said by the server, when
 * the upstream takes the body).  An answer of up to 64 KiB is sent on when it is whole, with its
 * length.
 *
 * Attempts: where the policy has retry, one that failed is made again, after a wait on the loop; but
 * only of a request whose body was kept whole, and of an answer of which the client has not seen a
 * byte.  If the breaker or the bulkhead refuses it then, the last attempt's answer is sent.  Where
 * the policy has bulkhead, a request waits for its slot, first come, first served.
 *
 * Deadlines: the policy's deadline_ms, and the client's own, in the field Neap-Deadline-Ms, or
 * grpc-timeout, bound all of that, from when the request is whole to the answer (or to the head of
 * one that is streamed).  The fields go on to the upstream as they came.
 *
 * Who is slow: the policy's timeout_ms counts while it is the upstream's turn, from the request to
 * the end of an answer that is held back, or to the head of one that is streamed.  The limits below
 * are the client's.
 *
 * Caveats. - A client that closes its side of the connection has left: the call is given up.
 *          - A request with a body that was not kept whole (over 64 KiB, or not all there yet) is
 *            never sent a second time and never shown to the fallback chain.
 *          - A probe whose client is still sending after half of its lease has nothing to say about
 *            the upstream: it is given back, as ended by the caller, and the call goes on without.
 *          - A streamed answer that outlasts timeout_ms is reported by its head; should it break
 *            off later, the client sees that, the breaker does not.
 *
 * Units.   Durations are milliseconds and end in _ms; sizes are bytes.
 * Threads. All of it belongs to the thread that runs the loop.
 * Errors.  What a client does wrong is answered here and never reaches a handler: 400 (framing,
 *          grammar), 408 (too slow), 413, 414, 431 (too large), 417 (Expect), 501 (CONNECT,
 *          Upgrade, unknown method), 505 (version); the connection then closes.
 * Owns.    A request lives until on_done or on_abort returns.  Its slices point into the
 *          connection and live as long.
 */
#ifndef NEAP_HTTP_H
#define NEAP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "neap/engine.h"

/* ---- Limits ---------------------------------------------------------------------------------- */

/* Of a client's side of a server.  All deadlines are totals: a byte now and then buys no time. */
typedef struct http_limits {
  uint32_t line_bytes;  /* request line; over: 414.                          8,192 */
  uint32_t head_bytes;  /* request line and fields; over: 431.               65,536 */
  uint32_t fields;      /* how many fields; over: 431.                       256 */
  uint64_t body_bytes;  /* over: 413.  0: any                                0 */
  uint32_t connections; /* over: 503 and close                               10,000 */
  bool makes_room;      /* over: whoever has been without a request for longest is closed instead */
  uint32_t queue_bytes; /* unsent answer over which the upstream is paused   262,144 */
  uint32_t header_ms;   /* from a head's first byte to its last; over: 408   10,000 */
  uint32_t idle_ms;     /* between requests, and before the first; close     75,000 */
  uint32_t body_ms;     /* for a body, and 1 ms more for each body_rate bytes received; and for any
                            one wait for its next byte.  Time in which the server does not read is
                            not counted.  Over: 408      30,000 */
  uint32_t body_rate;   /* bytes per ms: the slowest upload that is let go on      16 */
  uint32_t send_ms;     /* for a client to take queue_bytes; over: cut off   30,000 */
  uint32_t linger_ms;   /* after an answer that closes: for the client to read it   2,000 */
} http_limits;

http_limits http_limits_default(void);

/* With the default for every member that is 0. */
http_limits http_limits_complete(http_limits limits);

/* ---- Requests -------------------------------------------------------------------------------- */

typedef struct http_request http_request;
typedef struct http_server http_server;

typedef struct http_slice {
  const char *data;
  size_t length;
} http_slice;

/* Why a request ended before its answer did. */
typedef enum http_abort_reason {
  HTTP_ABORT_CLIENT = 0, /* the client closed or reset the connection, or did not read in time */
  HTTP_ABORT_BODY,       /* its body was malformed, too slow or too large */
  HTTP_ABORT_SERVER      /* the server is being closed */
} http_abort_reason;

/* Whoever answers a request.  Every function but on_request may be NULL. */
typedef struct http_handler {
  /* The head is complete.  Answer now or later; or pass it on with http_request_handle(). */
  void (*on_request)(void *data, http_request *request);
  /* Body bytes, valid during the call.  Not called while the request is paused. */
  void (*on_body)(void *data, http_request *request, const char *bytes, size_t length);
  /* The body is complete.  Not called for a request without one. */
  void (*on_end)(void *data, http_request *request);
  /* The unsent part of the answer has shrunk to half of queue_bytes. */
  void (*on_drain)(void *data, http_request *request);
  /* The answer is complete and handed to the kernel, or (on_abort) never will be.  Exactly one of
   * the two, last; *request is gone after it. */
  void (*on_done)(void *data, http_request *request);
  void (*on_abort)(void *data, http_request *request, http_abort_reason reason);
  /* One more connection than limits.connections was answered 503 and closed. */
  void (*on_overload)(void *data);
} http_handler;

/* The first members of a request; read only. */
struct http_request {
  const char *method; /* NUL-terminated, upper case as sent */
  http_slice target;  /* as sent; of an absolute-form target the part from its path on */
  http_slice host;    /* Host, or the authority of an absolute-form target; "" in HTTP/1.0 */
  const neap_header *headers; /* all fields, as sent and in order */
  size_t header_count;
  int64_t content_length; /* 0: no body; -1: chunked */
  int minor;              /* HTTP/1.minor: 0 or 1 */
  bool expects_continue;  /* the client may wait for http_request_continue() */
  bool body_complete;     /* all of the body has been passed to on_body */
  http_server *server;
};

/* Gives the request to another handler, which gets every later call. */
void http_request_handle(http_request *request, const http_handler *handler, void *data);

/* The client's address as text, without its port; into buffer[64]. */
const char *http_request_peer(const http_request *request, char buffer[64]);

/* Says "100 Continue", once and only if expects_continue and no answer has begun. */
void http_request_continue(http_request *request);

/* Stops and restarts on_body, and with it reading from the client. */
void http_request_pause(http_request *request);
void http_request_resume(http_request *request);

/* ---- Answers --------------------------------------------------------------------------------- */

/* An answer's head.  Framing and connection fields are the server's: do not name them here. */
typedef struct http_head {
  int status;                 /* 200 to 599 */
  http_slice reason;          /* empty: the usual one */
  http_slice lines;           /* whole "Name: value\r\n" lines, sent as they are */
  const neap_header *headers; /* sent after them */
  size_t header_count;
  int64_t content_length; /* of the body (of HEAD and 304: that it would have; -2: not said) or -1:
                             unknown, sent chunked, to HTTP/1.0 until close */
  bool length_is_said;    /* `lines` or `headers` hold Content-Length already */
  bool close;             /* close the connection afterwards */
} http_head;

/* Begins an answer.  If the request's body has not all been read, the connection closes
 * after it. */
void http_answer_begin(http_request *request, const http_head *head);

/* Adds to its body; copies what the kernel does not take at once.  Of HEAD, 204 and 304 nothing is
 * sent.  Answers false if more than queue_bytes are now unsent: hold back until on_drain. */
bool http_answer_write(http_request *request, const char *bytes, size_t length);

/* Ends it.  on_done follows, possibly from inside this call, when all is sent.  A body shorter than
 * its content_length is cut off. */
void http_answer_end(http_request *request);

/* Head, body and end in one write; content_length is set from length (give body NULL and a
 * content_length to answer HEAD and 304). */
void http_answer(http_request *request, const http_head *head, const char *body, size_t length);

/* Ends it the other way: resets the connection, so that the client sees it was cut off.  on_abort
 * is not called. */
void http_answer_cut(http_request *request);

/* What a breaker adds to a problem, as further members. */
typedef struct http_refused {
  const char *reason;      /* NULL: none */
  const char *state;       /* NULL: none */
  uint64_t retry_after_ms; /* a header, too, in whole seconds, rounded up; 0: none */
} http_refused;

/* An RFC 9457 problem: application/problem+json, Cache-Control: no-store. `detail` and `refused` may
 * be NULL. */
void http_answer_problem(http_request *request, int status, const char *title, const char *detail,
                         const http_refused *refused);

/* ---- Server ---------------------------------------------------------------------------------- */

typedef struct http_server_options {
  const char *host;   /* a literal address: "127.0.0.1", "::1", "[::1]", "fe80::1%eth0" */
  int port;           /* 0: any free one */
  int fd;             /* > 0: a listening socket to take over instead */
  http_limits limits; /* any number that is 0 (but body_bytes): its default */
  const http_handler *handler;
  void *data;
} http_server_options;

/* All count since the server was made. */
#define HTTP_SERVER_STATS(X)                                                                       \
  X(connections) /* accepted */                                                                    \
  X(open)        /* of them, open now */                                                           \
  X(requests)    /* with a head that was accepted */                                               \
  X(active)      /* of them, not yet answered */                                                   \
  X(refused)     /* heads and bodies answered with an error here */                                \
  X(late)        /* of those, for lateness; and connections closed for it without an answer */     \
  X(aborted)     /* requests whose client went away first */                                       \
  X(overload)    /* connections over limits.connections */

typedef struct http_server_stats {
#define X(name) uint64_t name;
  HTTP_SERVER_STATS(X)
#undef X
} http_server_stats;

/* Listens.  Errors: false, with one line in error[size]: an address that is none, a port in use. */
bool http_server_open(uv_loop_t *loop, const http_server_options *options, http_server **out,
                      char *error, size_t size);

int http_server_port(const http_server *server);
const http_server_stats *http_server_stats_of(const http_server *server);

/* Stops listening, closes idle connections, lets every request be answered (Connection: close) and
 * then closes; what is not done after limit_ms is cut off.  `closed` is called from the loop when
 * the server is gone.  May be called again with a shorter limit (0: at once; its
 * `closed` counts). */
void http_server_drain(http_server *server, uint64_t limit_ms, void (*closed)(void *data),
                       void *data);

/* ---- Proxy ----------------------------------------------------------------------------------- */

typedef struct proxy_route proxy_route;

/* Which requests may be sent a second time, when a kept connection turned out to be closed before
 * the first byte of an answer, or an HTTP/2 upstream said that it did not look at it.  Only with a
 * body that was kept whole, and once. */
typedef enum proxy_resend {
  PROXY_RESEND_IDEMPOTENT = 0, /* GET, HEAD, PUT, DELETE, OPTIONS, TRACE */
  PROXY_RESEND_ANY,
  PROXY_RESEND_NEVER
} proxy_resend;

/* Finds addresses for a host name: literal ones, comma-separated, IPv6 in brackets.  Answers false
 * if there are none. */
typedef bool (*proxy_resolve)(void *data, const char *host, char *addresses, size_t size);

typedef struct proxy_options {
  const char *name;     /* of the route, for messages */
  const char *upstream; /* "http://127.0.0.1:8016", "https://[::1]:8443"; no path */
  neap_guard *guard;    /* its timeout_ms bounds the wait for an answer */
  const char *key;      /* of the breaker; NULL: name */
  bool shares_guard;    /* with other routes: the policy's own keys are KEY/... */
  uint32_t connect_ms;  /* for a connection, TLS included.               0: 5,000 */
  uint32_t answer_ms;   /* for an answer, where the policy has no timeout_ms.   0: 60,000 */
  uint32_t stall_ms;    /* an answer's body that stands still this long is given up.  0: 60,000 */
  uint32_t
      hold_ms; /* how long an answer of unknown length below 500 is held back for its end, so that
                           it can be remembered and judged whole.           0: 20 */
  uint32_t
      connections;  /* calls at once; one more is refused, with no word to the breaker. 0: 1,024 */
  uint32_t idle_ms; /* a connection unused this long is not used again.   0: 30,000 */
  uint32_t resolve_ms;   /* how long an upstream's address is believed.   0: 5,000 */
  uint32_t stale_ms;     /* how much longer, while it cannot be resolved.  0: 600,000 */
  proxy_resolve resolve; /* NULL: the system's resolver, off the loop */
  void *resolve_data;
  proxy_resend resend;
  bool http2; /* speak HTTP/2 without TLS, by prior knowledge.  With TLS it is negotiated */
  const char *ca_file; /* NULL: the system's */
} proxy_options;

/* Makes a route.  Errors: false, with one line in error[size]: an upstream that is no URL of an
 * origin.  An upstream that cannot be reached is no error here. */
bool proxy_open(uv_loop_t *loop, const proxy_options *options, proxy_route **out, char *error,
                size_t size);

/* Answers the request from the route: to be called from on_request, takes the request over. */
void proxy_begin(proxy_route *route, http_request *request);

/* From now on the fallback.guard stages of other policies that name this route's have its upstream
 * asked; of several routes of a policy, by the one that was told so last. */
void proxy_serve(proxy_route *route);

/* Makes a queued call again through that route, and tells the engine what it came to. */
void proxy_replay(proxy_route *route, neap_engine *engine, const neap_queued *queued);

/* Frees the route, asynchronously.  No request of it may be under way: drain the server first. */
void proxy_close(proxy_route *route, void (*closed)(void *data), void *data);

#define PROXY_STATS(X)                                                                             \
  X(requests)       /* begun */                                                                    \
  X(active)         /* of them, not ended */                                                       \
  X(primary)        /* answered by the upstream */                                                 \
  X(fallback)       /* ... by the chain */                                                         \
  X(refused)        /* ... by 503 */                                                               \
  X(failed)         /* ... by 502 or 504 */                                                        \
  X(aborted)        /* whose client went away */                                                   \
  X(cut)            /* answers cut off in their body by the upstream */                            \
  X(resent)         /* sent a second time */                                                       \
  X(retried)        /* attempts after the first, by the policy's retry */                          \
  X(refreshed)      /* calls behind clients' backs, for answers that are old */                    \
  X(lent)           /* calls for other routes' fallbacks */                                        \
  X(replayed)       /* queued calls made again */                                                  \
  X(timeouts)       /* given up at the deadline */                                                 \
  X(errors_connect) /* no connection */                                                            \
  X(errors_sent)    /* failed before the first byte of an answer */                                \
  X(errors_answer)  /* failed in the answer */

typedef struct proxy_stats {
#define X(name) uint64_t name;
  PROXY_STATS(X)
#undef X
} proxy_stats;

const proxy_stats *proxy_stats_of(const proxy_route *route);

#endif
