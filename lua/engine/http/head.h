/* head.h: the head of a request, read strictly.
 *
 *   method SP target SP HTTP/1.x CRLF   http_head_scan()   finds the end, as bytes come
 *   name ":" OWS value OWS CRLF         http_head_parse()  checks and cuts it up
 *   CRLF
 *
 * Everything two HTTP programs could read in two ways is refused: bare LF and CR, NUL, folded
 * lines, space before a colon, and any Content-Length or Transfer-Encoding that is not plain.  The
 * head is then read a second time by llhttp or http-parser; should the two disagree about where the
 * body begins or ends, it is refused as well.
 */
#ifndef NEAP_HTTP_HEAD_H
#define NEAP_HTTP_HEAD_H

#include "http.h"

/* How far http_head_scan() has come.  All zero to begin. */
typedef struct http_scan {
  size_t line;  /* where the line under way begins */
  size_t next;  /* bytes looked at */
  size_t lines; /* complete ones, the request line first */
} http_scan;

/* What a head says. */
typedef struct http_parsed {
  const char *method; /* static */
  http_slice target, host;
  neap_header *headers; /* the caller's, room for scan.lines - 1 */
  size_t header_count;
  int64_t content_length; /* 0: no body; -1: chunked */
  int minor;
  bool keep_alive;       /* the client wants to go on using the connection */
  bool expects_continue; /* Expect: 100-continue */
} http_parsed;

/* A refusal: the status to answer with (0: none) and one sentence for the problem's detail. */
typedef struct http_fault {
  int status;
  const char *detail; /* static */
} http_fault;

/* Looks at bytes[length], which begins at the request line.
 *
 * Answers the head's length; 0: it is not complete, or *fault says what is wrong with it. */
size_t http_head_scan(http_scan *scan, const char *bytes, size_t length, const http_limits *limits,
                      http_fault *fault);

/* Checks and cuts up a complete head of which http_head_scan() found the end.
 *
 * Answers false with *fault if it is refused. */
bool http_head_parse(const char *bytes, size_t length, http_parsed *out, http_fault *fault);

/* What another parser makes of a head. */
typedef struct http_opinion {
  bool complete;          /* it is one, to its last byte and no further; else nothing below holds */
  bool method_is_unknown; /* and that is why it isn't */
  bool chunked;
  int64_t length;     /* Content-Length; -1: not said */
  int minor;          /* HTTP/1.minor */
  const char *method; /* static */
} http_opinion;

http_opinion http_second_opinion(const char *bytes, size_t length);

/* Is `token` (lower case) one of the comma-separated words of the value?  No regard to case. */
bool http_value_has(const char *value, size_t length, const char *token);

/* Is the name this one (lower case)?  No regard to case. */
bool http_name_is(const char *name, size_t length, const char *expected);

/* The first field of that name (lower case), or NULL; and one made of two texts. */
const neap_header *http_field_find(const neap_header *headers, size_t count, const char *name);
neap_header http_field(const char *name, const char *value);

/* How many of the bytes up to `end` can be in a name; in a value. */
size_t http_span_token(const char *p, const char *end);
size_t http_span_value(const char *p, const char *end);

/* Fields that concern one connection only: Connection, Keep-Alive, Proxy-Connection, Proxy-*
 * credentials, TE, Trailer, Transfer-Encoding, Upgrade, HTTP2-Settings. */
bool http_name_is_hop_by_hop(const char *name, size_t length);

/* ---- Chunked bodies -------------------------------------------------------------------------- */

/* A decoder.  All zero to begin. */
typedef struct http_chunks {
  int state;
  int digits;    /* of the chunk's size, so far */
  size_t extra;  /* bytes of extensions and trailers, so far */
  uint64_t left; /* of the chunk under way */
} http_chunks;

typedef enum http_chunk_step {
  HTTP_CHUNK_MORE = 0, /* all bytes taken, more are needed */
  HTTP_CHUNK_DATA,     /* *data is a piece of the body; call again */
  HTTP_CHUNK_END,      /* the body is complete; what was not taken is no part of it */
  HTTP_CHUNK_BAD       /* malformed */
} http_chunk_step;

/* Takes *used of bytes[length].  Extensions and trailers are checked and dropped. */
http_chunk_step http_chunks_next(http_chunks *chunks, const char *bytes, size_t length,
                                 size_t *used, http_slice *data);

#endif
