/* The HTTP server by itself: what it takes for a request, what it refuses, and when it loses
 * patience. */
#include "http_support.h"

#include <sys/resource.h>

/* ---- The handler under it -------------------------------------------------------------------- */

static struct {
  int requests, ends, dones, aborts, overloads;
  http_abort_reason reason;
  http_request *held; /* /hold leaves it unanswered */
  char body[4096];
  size_t body_length;
  uint64_t body_total;
  size_t big_left;
  int drains;
} seen;

static bool path_is(const http_request *r, const char *path) {
  return r->target.length == strlen(path) && !memcmp(r->target.data, path, r->target.length);
}

static void answer_text(http_request *r, int status, const char *body, size_t length) {
  static const neap_header type = {"Content-Type", 12, "text/plain", 10};
  http_answer(r, &(http_head){.status = status, .headers = &type, .header_count = 1}, body, length);
}

static void answer_plain(http_request *r, int status) {
  answer_text(r, status, seen.body, seen.body_length);
}

static void big_go_on(http_request *r) {
  static char block[65536];
  while (seen.big_left) {
    size_t n = seen.big_left < sizeof block ? seen.big_left : sizeof block;
    seen.big_left -= n;
    if (!http_answer_write(r, block, n)) return;
  }
  http_answer_end(r);
}

static void answer_in_parts(http_request *r) {
  http_answer_begin(r, &(http_head){.status = 200, .content_length = -1});
  http_answer_write(r, "one", 3);
  http_answer_write(r, "two", 3);
  http_answer_end(r);
}

static void on_request(void *data, http_request *r) {
  (void)data;
  seen.requests++;
  seen.body_length = 0;
  seen.body_total = 0;
  if (path_is(r, "/hold")) {
    seen.held = r;
  } else if (path_is(r, "/early")) {
    answer_text(r, 413, "early", 5);
  } else if (path_is(r, "/parts")) {
    answer_in_parts(r);
  } else if (path_is(r, "/short")) {
    http_answer_begin(r, &(http_head){.status = 200, .content_length = 10});
    http_answer_write(r, "half", 4);
    http_answer_end(r);
  } else if (path_is(r, "/204") || path_is(r, "/304")) {
    http_answer(r, &(http_head){.status = path_is(r, "/204") ? 204 : 304, .content_length = -2},
                NULL, 0);
  } else if (path_is(r, "/big")) {
    http_answer_begin(r, &(http_head){.status = 200, .content_length = (int64_t)seen.big_left});
    big_go_on(r);
  } else if (r->body_complete) {
    answer_plain(r, 200);
  } else if (path_is(r, "/continue")) {
    http_request_continue(r);
    http_request_continue(r); /* once is enough */
  }
}

static void on_body(void *data, http_request *r, const char *bytes, size_t length) {
  (void)data, (void)r;
  seen.body_total += length;
  if (seen.body_length + length > sizeof seen.body) return;
  memcpy(seen.body + seen.body_length, bytes, length);
  seen.body_length += length;
}

static void on_end(void *data, http_request *r) {
  (void)data;
  seen.ends++;
  if (!path_is(r, "/hold")) answer_plain(r, 200);
}

static void on_drain(void *data, http_request *r) {
  (void)data;
  seen.drains++;
  big_go_on(r);
}

static void on_done(void *data, http_request *r) {
  (void)data, (void)r;
  seen.dones++;
}

static void on_abort(void *data, http_request *r, http_abort_reason reason) {
  (void)data, (void)r;
  seen.aborts++;
  seen.reason = reason;
  seen.held = NULL;
}

static void on_overload(void *data) {
  (void)data;
  seen.overloads++;
}

static const http_handler handler = {on_request, on_body,  on_end,     on_drain,
                                     on_done,    on_abort, on_overload};

/* ---- Setting up ------------------------------------------------------------------------------ */

static http_server *server;
static bool server_is_closed;

static void on_closed(void *data) {
  (void)data;
  server_is_closed = true;
}

static void serve(http_limits limits) {
  char error[256] = "";
  http_server_options options = {.host = "127.0.0.1", .limits = limits, .handler = &handler};
  memset(&seen, 0, sizeof seen);
  server_is_closed = false;
  if (!http_server_open(&loop, &options, &server, error, sizeof error)) fail_msg("%s", error);
}

static void serve_no_more(void) {
  http_server_drain(server, 0, on_closed, NULL);
  turn_until(server_is_closed);
}

static const http_server_stats *stats(void) { return http_server_stats_of(server); }

static int dial_server(void) { return dial(http_server_port(server)); }

/* Says it on a connection of its own and hears all of the answer. */
static const char *ask(const char *request, size_t length) {
  int c = dial_server();
  say_bytes(c, request, length);
  hear_all(c);
  close(c);
  return heard;
}

/* ---- Grammar and framing --------------------------------------------------------------------- */

#define GET  "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define CL   "Content-Length: "
#define TE   "Transfer-Encoding: "

typedef struct refusal {
  int status;
  const char *because, *request;
  size_t length; /* 0: a text */
} refusal;

static const refusal refusals[] = {
    /* B235: two ways to read where the body ends */
    {400, "CL and TE", POST CL "5\r\n" TE "chunked\r\n\r\n0\r\n\r\n", 0},
    {400, "TE and CL", POST TE "chunked\r\n" CL "5\r\n\r\n0\r\n\r\n", 0},
    {400, "two different lengths", POST CL "5\r\n" CL "6\r\n\r\nhello", 0},
    {400, "two equal lengths", POST CL "5\r\n" CL "5\r\n\r\nhello", 0},
    {400, "a plus sign", POST CL "+5\r\n\r\nhello", 0},
    {400, "hexadecimal", POST CL "0x5\r\n\r\nhello", 0},
    {400, "a space more", POST CL " 5\r\n\r\nhello", 0},
    {400, "a tab", POST "Content-Length:\t5\r\n\r\nhello", 0},
    {400, "space after the number", POST CL "5 \r\n\r\nhello", 0},
    {400, "a list", POST CL "5,5\r\n\r\nhello", 0},
    {400, "a list with a space", POST CL "5, 5\r\n\r\nhello", 0},
    {400, "a fraction", POST CL "5.0\r\n\r\nhello", 0},
    {400, "chunked among others", POST TE "chunked, identity\r\n\r\n0\r\n\r\n", 0},
    {400, "chunked last", POST TE "gzip, chunked\r\n\r\n0\r\n\r\n", 0},
    {400, "not chunked", POST TE "xchunked\r\n\r\n0\r\n\r\n", 0},
    {400, "identity", POST TE "identity\r\n\r\n", 0},
    {400, "chunked and a tab", POST TE "chunked\t\r\n\r\n0\r\n\r\n", 0},
    {400, "a tab and chunked", POST "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", 0},
    {400, "chunked in quotes", POST TE "\"chunked\"\r\n\r\n0\r\n\r\n", 0},
    {400, "chunked twice", POST TE "chunked\r\n" TE "chunked\r\n\r\n0\r\n\r\n", 0},
    {400, "an empty TE", POST TE "\r\n\r\n0\r\n\r\n", 0},
    {400, "chunked in HTTP/1.0", "POST / HTTP/1.0\r\n" TE "chunked\r\n\r\n0\r\n\r\n", 0},
    /* B238: numbers that are none */
    {400, "an empty length", POST CL "\r\n\r\n", 0},
    {400, "a negative length", POST CL "-1\r\n\r\n", 0},
    {400, "2^63", POST CL "9223372036854775808\r\n\r\n", 0},
    {400, "2^64", POST CL "18446744073709551616\r\n\r\n", 0},
    {400, "2^64 + 5", POST CL "18446744073709551621\r\n\r\nhello", 0},
    {400, "thirty digits", POST CL "100000000000000000000000000005\r\n\r\nhello", 0},
    {400, "thirty digits, most of them 0", POST CL "000000000000000000000000000005\r\n\r\nhello",
     0},
    /* grammar */
    {400, "space before the colon", POST "Content-Length : 5\r\n\r\nhello", 0},
    {400, "space before any colon", GET "X : y\r\n\r\n", 0},
    {400, "a folded line", GET "X: y\r\n z\r\n\r\n", 0},
    {400, "a folded first line", "GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", 0},
    {400, "a line without a colon", GET "X\r\n\r\n", 0},
    {400, "a line without a name", GET ": x\r\n\r\n", 0},
    {400, "a name with a slash", GET "X/y: x\r\n\r\n", 0},
    {400, "a bare line feed after a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 0},
    {400, "a bare line feed after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 0},
    {400, "a bare line feed for the empty line", GET "\n", 0},
    {400, "a bare carriage return in a value", GET "X: y\rZ: z\r\n\r\n", 0},
    {400, "a bare carriage return in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "NUL in a value", GET "X: a\0b\r\n\r\n", sizeof GET "X: a\0b\r\n\r\n" - 1},
    {400, "NUL in a name", GET "X\0: a\r\n\r\n", sizeof GET "X\0: a\r\n\r\n" - 1},
    {400, "NUL in the target", "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
     sizeof "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n" - 1},
    {400, "a control character", GET "X: a\001b\r\n\r\n", 0},
    {400, "two empty lines first", "\r\n\r\n" GET "\r\n", 0},
    /* Host */
    {400, "no Host", "GET / HTTP/1.1\r\n\r\n", 0},
    {400, "two Hosts", GET "Host: a\r\n\r\n", 0},
    {400, "two different Hosts", GET "Host: b\r\n\r\n", 0},
    {400, "an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0},
    {400, "Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 0},
    {400, "Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 0},
    {400, "Host and target disagree", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    /* the request line */
    {400, "no target", "GET HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "no version", "GET /\r\nHost: a\r\n\r\n", 0},
    {400, "two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "two spaces later", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "space at the end", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 0},
    {400, "a relative target", "GET index.html HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a fragment", "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "bytes over 127", "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a star without OPTIONS", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a URL without a host", "GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a method with a comma", "GE,T / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a method of 40 letters", "AAAAAAAAAABBBBBBBBBBCCCCCCCCCCDDDDDDDDDD / HTTP/1.1\r\n\r\n",
     0},
    {400, "a lower-case version", "GET / http/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "a long version", "GET / HTTP/1.11\r\nHost: a\r\n\r\n", 0},
    {400, "TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11},
    {505, "HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 0},
    {505, "HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 0},
    {505, "HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
    {501, "an unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {501, "a lower-case method", "get / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {501, "a method of RTSP", "DESCRIBE / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {501, "HTTP/2's method", "PRI / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {501, "CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 0},
    {501, "a WebSocket", GET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 0},
    /* B248 */
    {417, "another expectation", POST CL "5\r\nExpect: 200-ok\r\n\r\nhello", 0},
};

static void test_refusals(void **state) {
  (void)state;
  serve((http_limits){0});
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    const refusal *r = &refusals[i];
    char line[32];
    snprintf(line, sizeof line, "HTTP/1.1 %d ", r->status);
    ask(r->request, r->length ? r->length : strlen(r->request));
    if (strncmp(heard, line, strlen(line)) || seen.requests) {
      fail_msg("%s: expected %d, got: %s", r->because, r->status, heard);
    }
    assert_holds(heard, "\r\nConnection: close\r\n");
    assert_holds(heard, "\r\nContent-Type: application/problem+json\r\n");
    if (count_of(heard, "\r\n\r\n") != 1) fail_msg("%s: answered twice: %s", r->because, heard);
  }
  assert_int_equal(stats()->refused, sizeof refusals / sizeof *refusals);
  serve_no_more();
}

static void test_accepted(void **state) {
  static const struct {
    const char *because, *request, *body;
  } cases[] = {
      {"a length", POST CL "5\r\n\r\nhello", "hello"},
      {"no space after the colon", POST "Content-Length:5\r\n\r\nhello", "hello"},
      {"zeros in front", POST CL "005\r\n\r\nhello", "hello"},
      {"chunks", POST TE "chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "hello"},
      {"chunked in capitals", POST TE "CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello"},
      {"sizes in hexadecimal", POST TE "chunked\r\n\r\n00A\r\nhellohello\r\n0000\r\n\r\n",
       "hellohello"},
      {"chunk extensions", POST TE "chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n", "hello"},
      {"trailers", POST TE "chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", "hello"},
      {"an empty chunked body", POST TE "chunked\r\n\r\n0\r\n\r\n", ""},
      {"an empty body", POST CL "0\r\n\r\n", ""},
      {"no body", POST "\r\n", ""},
      {"one empty line first", "\r\n" GET "\r\n", ""},
      {"bytes over 127 in a value", GET "X: \xc3\xa4\r\n\r\n", ""},
      {"an empty value", GET "X:\r\n\r\n", ""},
      {"tabs around a value", GET "X:\t y \t\r\n\r\n", ""},
      {"a URL for a target", "GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n", ""},
      {"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", ""},
      {"Host with a port", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", ""},
      {"Upgrade that is not in Connection", GET "Upgrade: websocket\r\n\r\n", ""},
      {"h2c, which may be ignored",
       GET "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n", ""},
  };
  (void)state;
  serve((http_limits){0});
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int c = dial_server(), before = seen.dones;
    say(c, cases[i].request);
    turn_until(seen.dones > before || stats()->refused);
    if (stats()->refused) fail_msg("%s: refused", cases[i].because);
    assert_int_equal(seen.body_length, strlen(cases[i].body));
    assert_memory_equal(seen.body, cases[i].body, seen.body_length);
    char ending[64];
    snprintf(ending, sizeof ending, "\r\n\r\n%s", cases[i].body);
    hear(c, ending);
    assert_begins(heard, "HTTP/1.1 200 OK\r\n");
    assert_lacks(heard, "Connection:");
    close(c);
  }
  serve_no_more();
}

/* Bodies that go wrong after a good head. */
static void test_bad_chunks(void **state) {
  static const char *const bodies[] = {
      "x\r\n",
      "\r\n",
      " 5\r\nhello\r\n0\r\n\r\n",
      "5 \r\nhello\r\n0\r\n\r\n",
      "0x5\r\nhello\r\n0\r\n\r\n",
      "+5\r\nhello\r\n0\r\n\r\n",
      "-5\r\nhello\r\n0\r\n\r\n",
      "5\nhello\r\n0\r\n\r\n",
      "5\r\nhello\n0\r\n\r\n",
      "5\r\nhello0\r\n\r\n",
      "5\r\nhelloX\n0\r\n\r\n",
      "5\rXhello\r\n0\r\n\r\n",
      "5;a=\001\r\nhello\r\n0\r\n\r\n",
      "5\r\nhello\r\n0\r\nno colon\r\n\r\n",
      "5\r\nhello\r\n0\r\n folded: x\r\n\r\n",
      "5\r\nhello\r\n0\r\nX: y\n\r\n",
      "10000000000000000\r\nhello", /* 2^64 */
      "8000000000000000\r\nhello",
      "00000000000000005\r\nhello\r\n0\r\n\r\n",
  };
  (void)state;
  serve((http_limits){0});
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    char request[256];
    snprintf(request, sizeof request, POST TE "chunked\r\n\r\n%s", bodies[i]);
    ask(request, strlen(request));
    if (strncmp(heard, "HTTP/1.1 400 ", 13)) fail_msg("\"%s\" got: %s", bodies[i], heard);
    assert_int_equal(count_of(heard, "HTTP/1.1"), 1);
  }
  assert_int_equal(seen.ends, 0);
  assert_int_equal(seen.aborts, sizeof bodies / sizeof *bodies);
  assert_int_equal(seen.reason, HTTP_ABORT_BODY);
  serve_no_more();
}

/* B236: the next request begins exactly after the body, whatever frames it. */
static void test_pipelining(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, POST CL "3\r\n\r\none" POST TE "chunked\r\n\r\n3\r\ntwo\r\n0\r\nX: y\r\n\r\n"
                 "GET /parts HTTP/1.1\r\nHost: a\r\n\r\n" POST CL
                 "5\r\nConnection: close\r\n\r\nthree");
  hear_all(c);
  const char *one = strstr(heard, "\r\n\r\none"), *two = strstr(heard, "\r\n\r\ntwo");
  const char *parts = strstr(heard, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
  const char *three = strstr(heard, "\r\n\r\nthree");
  assert_true(one && two && parts && three && one < two && two < parts && parts < three);
  assert_int_equal(count_of(heard, "HTTP/1.1 200"), 4);
  close(c);
  serve_no_more();
}

/* The same bytes mean the same however they are cut up. */
static void test_byte_by_byte(void **state) {
  static const char request[] = "\r\n" POST TE "chunked\r\n\r\n5;x\r\nhello\r\nb\r\n, neighbour\r\n"
                                "0\r\nX-Sum: y\r\n\r\n" GET "Connection: close\r\n\r\n";
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  for (size_t i = 0; i < sizeof request - 1; i++) {
    say_bytes(c, request + i, 1);
    turn();
  }
  hear_all(c);
  assert_int_equal(count_of(heard, "HTTP/1.1 200"), 2);
  assert_holds(heard, "hello, neighbour");
  close(c);
  serve_no_more();
}

/* One empty line before a request is forgiven, also when it comes by itself; a second one
 * is not. */
static void test_empty_lines(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "\r\n");
  turn_for(5);
  say(c, GET "\r\n");
  hear(c, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 ");
  say(c, "\r");
  turn_for(5);
  say(c, "\n");
  turn_for(5);
  say(c, "\n");
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 400 ");
  close(c);
  c = dial_server();
  say(c, "\r\n");
  turn_for(5);
  say(c, "\r\n");
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 400 ");
  close(c);
  serve_no_more();
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static size_t repeat(char *to, const char *head, char c, size_t n, const char *tail) {
  size_t at = strlen(head);
  memcpy(to, head, at);
  memset(to + at, c, n);
  memcpy(to + at + n, tail, strlen(tail) + 1);
  return at + n + strlen(tail);
}

static void expect_status(const char *request, size_t length, int status) {
  char line[32];
  snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
  assert_begins(ask(request, length), line);
}

/* One below, at and one above each limit. */
static void test_sizes(void **state) {
  static char request[65536];
  (void)state;
  serve((http_limits){.line_bytes = 1000, .head_bytes = 3000, .fields = 10, .body_bytes = 100});
  const char *close_it = " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  size_t line = 1000 - strlen("GET / HTTP/1.1\r\n");
  expect_status(request, repeat(request, "GET /", 'x', line, close_it), 200);
  expect_status(request, repeat(request, "GET /", 'x', line + 1, close_it), 414);
  expect_status(request, repeat(request, "GET /", 'x', 60000, close_it), 414);
  expect_status(request, repeat(request, "GET /", 'x', 60000, ""), 414); /* before its end */
  const char *field = GET "Connection: close\r\nX: ";
  size_t head = 3000 - strlen(field) - strlen("\r\n\r\n");
  expect_status(request, repeat(request, field, 'x', head, "\r\n\r\n"), 200);
  expect_status(request, repeat(request, field, 'x', head + 1, "\r\n\r\n"), 431);
  expect_status(request, repeat(request, field, 'x', 50000, ""), 431);
  for (int fields = 10; fields <= 11; fields++) {
    size_t at = (size_t)sprintf(request, GET "Connection: close\r\n");
    for (int i = 2; i < fields; i++) at += (size_t)sprintf(request + at, "X: y\r\n");
    at += (size_t)sprintf(request + at, "\r\n");
    expect_status(request, at, fields > 10 ? 431 : 200);
  }
  int requests = seen.requests;
  expect_status(request,
                repeat(request, POST "Connection: close\r\n" CL "100\r\n\r\n", 'x', 100, ""), 200);
  expect_status(request, repeat(request, POST CL "101\r\n\r\n", 'x', 101, ""), 413);
  assert_int_equal(seen.requests, requests + 1); /* refused by its head */
  expect_status(request,
                repeat(request, POST TE "chunked\r\n\r\n65\r\n", 'x', 101, "\r\n0\r\n\r\n"), 413);
  serve_no_more();
}

static void test_large_head(void **state) {
  static char request[65536];
  (void)state;
  serve((http_limits){0});
  const char *field = GET "Connection: close\r\nCookie: ";
  size_t fits = 65536 - strlen(field) - strlen("\r\n\r\n") - 1;
  expect_status(request, repeat(request, field, 'x', fits, "\r\n\r\n"), 200);
  serve_no_more();
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* B247: the header deadline is a total; a byte now and then does not put it off. */
static void test_slow_head(void **state) {
  (void)state;
  serve((http_limits){.header_ms = 150, .idle_ms = 10000});
  int c = dial_server();
  uint64_t begin = now_ms();
  say(c, GET);
  hear_nothing_yet();
  for (int got = 0; got >= 0; got = hear_some(c)) {
    say(c, "X: y\r\n");
    turn_for(10);
    if (now_ms() - begin > 5000) fail_msg("still open");
  }
  assert_begins(heard, "HTTP/1.1 408 ");
  assert_in_range(now_ms() - begin, 140, 2000);
  assert_int_equal(stats()->late, 1);
  close(c);
  serve_no_more();
}

/* B247: many who send next to nothing do not keep anybody from being served. */
static void test_many_slow_heads(void **state) {
  enum { MANY = 2000 };
  static int slow[MANY];
  struct rlimit files;
  (void)state;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  int many = files.rlim_cur > 2 * MANY + 100 ? MANY : (int)(files.rlim_cur / 2) - 50;
  serve((http_limits){.header_ms = 1500, .linger_ms = 50});
  for (int i = 0; i < many; i++) {
    slow[i] = dial_server();
    if (i % 50 == 0) turn();
  }
  turn_until((int)stats()->open >= many);
  for (int i = 0; i < many; i++) say(slow[i], "G");
  for (int i = 0; i < 20; i++) {
    assert_begins(ask(GET "Connection: close\r\n\r\n", strlen(GET "Connection: close\r\n\r\n")),
                  "HTTP/1.1 200 ");
    say(slow[i], "E");
  }
  turn_until((int)stats()->late == many);
  turn_until(stats()->open == 0);
  for (int i = 0; i < many; i++) close(slow[i]);
  serve_no_more();
}

static void test_idle(void **state) {
  (void)state;
  serve((http_limits){.idle_ms = 100});
  int fresh = dial_server(), kept = dial_server();
  say(kept, GET "\r\n");
  hear_all(kept);
  assert_begins(heard, "HTTP/1.1 200 ");
  assert_int_equal(count_of(heard, "HTTP/1.1"), 1); /* no 408 for one who asked nothing */
  hear_all(fresh);
  assert_string_equal(heard, "");
  close(fresh), close(kept);
  serve_no_more();
}

/* B247: a slow upload has a deadline of its own, longer the more has come. */
static void test_slow_body(void **state) {
  (void)state;
  serve((http_limits){.body_ms = 100, .body_rate = 1});
  int c = dial_server();
  uint64_t begin = now_ms();
  say(c, POST CL "100000\r\n\r\n");
  hear_nothing_yet();
  for (int got = 0; got >= 0; got = hear_some(c)) {
    say(c, "x");
    turn_for(5);
    if (now_ms() - begin > 5000) fail_msg("still open");
  }
  assert_begins(heard, "HTTP/1.1 408 ");
  assert_int_equal(seen.aborts, 1);
  assert_int_equal(seen.reason, HTTP_ABORT_BODY);
  close(c);
  /* 300 bytes at 1 byte a millisecond: 400 ms in all, of which no more than 100 at a time */
  c = dial_server();
  static char some[300];
  memset(some, 'x', sizeof some);
  say(c, POST CL "310\r\n\r\n");
  say_bytes(c, some, sizeof some);
  for (int i = 0; i < 10; i++) {
    turn_for(20);
    say(c, (char[]){(char)('0' + i), 0});
  }
  hear(c, "0123456789");
  assert_begins(heard, "HTTP/1.1 200 ");
  close(c);
  serve_no_more();
}

/* What has come already buys no time to stand still. */
static void test_stalled_body(void **state) {
  static char some[200000];
  (void)state;
  serve((http_limits){.body_ms = 100, .body_rate = 1});
  int c = dial_server();
  say(c, POST CL "1000000\r\n\r\n");
  say_bytes(c, some, sizeof some);
  uint64_t begin = now_ms();
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 408 ");
  assert_in_range(now_ms() - begin, 60, 2000);
  assert_int_equal(seen.reason, HTTP_ABORT_BODY);
  close(c);
  serve_no_more();
  assert_in_range(http_limits_default().body_rate, 8, 64); /* 64 to 512 kbit/s */
}

/* Time in which a body is not read, because whoever gets it takes no more, is not the client's. */
static void test_paused_body(void **state) {
  (void)state;
  serve((http_limits){.body_ms = 100});
  int c = dial_server();
  say(c, "POST /hold HTTP/1.1\r\nHost: a\r\n" CL "10\r\n\r\n01234");
  turn_until(seen.body_total == 5);
  http_request_pause(seen.held);
  say(c, "56789");
  turn_for(250);
  assert_int_equal(seen.aborts, 0);
  assert_int_equal(seen.body_total, 5);
  http_request_resume(seen.held);
  turn_until(seen.ends == 1);
  answer_text(seen.held, 200, seen.body, seen.body_length);
  hear(c, "0123456789");
  close(c);
  /* but being held up does not begin the time anew */
  c = dial_server();
  say(c, "POST /hold HTTP/1.1\r\nHost: a\r\n" CL "10\r\n\r\n01234");
  turn_until(seen.held && seen.body_total == 5);
  for (uint64_t end = now_ms() + 2000; seen.held; turn_for(15)) {
    http_request_pause(seen.held);
    http_request_resume(seen.held);
    if (now_ms() > end) fail_msg("waits for ever");
  }
  assert_int_equal(seen.aborts, 1);
  close(c);
  serve_no_more();
}

/* B247: a reader that does not read holds back the answer, not memory, and not for ever. */
static void test_slow_reader(void **state) {
  (void)state;
  serve((http_limits){.send_ms = 300, .queue_bytes = 100000});
  int c = dial_server(), small = 4096;
  setsockopt(c, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  seen.big_left = 64u << 20;
  say(c, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.aborts == 1);
  assert_int_equal(seen.reason, HTTP_ABORT_CLIENT);
  assert_true(seen.big_left >
              48u << 20); /* the rest was never made: kernel buffers took a few MB */
  assert_int_equal(stats()->late, 1);
  close(c);
  serve_no_more();
}

/* A reader that takes its time but reads gets everything. */
static void test_patient_reader(void **state) {
  (void)state;
  serve((http_limits){.send_ms = 2000, .queue_bytes = 100000});
  int c = dial_server();
  size_t size = seen.big_left = 32u << 20, got = 0;
  say(c, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  for (int n = 0; n >= 0;) {
    hear_nothing_yet();
    n = hear_some(c);
    if (n > 0) got += (size_t)n;
    turn();
  }
  assert_in_range(got, size + 50, size + 200);
  assert_true(seen.drains > 3);
  assert_int_equal(seen.dones, 1);
  close(c);
  serve_no_more();
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void test_framing(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_holds(heard, "\r\nContent-Length: 0\r\n");
  say(c, "GET /204 HTTP/1.1\r\nHost: a\r\n\r\nGET /304 HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n\r\n");
  if (count_of(heard, "HTTP/1.1") < 2) hear(c, "\r\n\r\n");
  assert_lacks(heard, "Content-Length");
  assert_lacks(heard, "Transfer-Encoding");
  say(c, "HEAD /parts HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n\r\n");
  hear_silence(c, 20);
  say(c, "GET /parts HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
  assert_holds(heard, "\r\nTransfer-Encoding: chunked\r\n");
  close(c);
  serve_no_more();
}

static void test_http_1_0(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "GET / HTTP/1.0\r\n\r\n");
  hear_all(c);
  assert_holds(heard, "\r\nConnection: close\r\n");
  close(c);
  c = dial_server();
  say(c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_holds(heard, "\r\nConnection: keep-alive\r\n");
  say(c, "GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  hear_all(c); /* a length not known can be told only by closing */
  assert_lacks(heard, "chunked");
  assert_holds(heard, "\r\n\r\nonetwo");
  close(c);
  c = dial_server(); /* it does not know what 100 means */
  say(c, "POST /continue HTTP/1.0\r\n" CL "5\r\nExpect: 100-continue\r\n\r\nhello");
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 200 ");
  close(c);
  serve_no_more();
}

static void test_cut_short(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
  hear_all(c);
  assert_int_equal(seen.dones, 0); /* a body shorter than was said is no answer */
  assert_lacks(heard, "HTTP/1.1 200 OK\r\nContent-Length: 4");
  assert_int_equal(stats()->active, 0);
  close(c);
  serve_no_more();
}

/* B248: exactly one 100, and only when somebody wants the body. */
static void test_expect(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "POST /continue HTTP/1.1\r\nHost: a\r\n" CL "5\r\nExpect: 100-Continue\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_string_equal(heard, "HTTP/1.1 100 Continue\r\n\r\n");
  say(c, "hello");
  hear(c, "hello");
  assert_begins(heard, "HTTP/1.1 200 ");
  assert_int_equal(count_of(heard, "HTTP/1.1"), 1);
  say(c, "POST /early HTTP/1.1\r\nHost: a\r\n" CL "5\r\nExpect: 100-continue\r\n\r\n");
  hear_all(c); /* nobody can say whether the body will come: the connection is of no more use */
  assert_begins(heard, "HTTP/1.1 413 ");
  assert_holds(heard, "\r\nConnection: close\r\n");
  close(c);
  serve_no_more();
}

/* An answer before the end of the body arrives, though the client goes on sending. */
static void test_early_answer(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  static char block[65536];
  say(c, "POST /early HTTP/1.1\r\nHost: a\r\n" CL "100000000\r\n\r\n");
  for (int i = 0; i < 40; i++) say_bytes(c, block, sizeof block);
  hear_nothing_yet();
  uint64_t end = now_ms() + WAIT_MS;
  while (!strstr(heard, "early") && now_ms() < end) {
    turn();
    hear_some(c);
  }
  assert_begins(heard, "HTTP/1.1 413 ");
  assert_int_equal(seen.body_total, 0);
  close(c);
  serve_no_more();
}

/* ---- Coming and going ------------------------------------------------------------------------ */

static void test_abort(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held);
  close(c);
  turn_until(seen.aborts == 1);
  assert_int_equal(seen.reason, HTTP_ABORT_CLIENT);
  c = dial_server(); /* a head that fills the first buffer to its last byte is no blind spot */
  char request[5000];
  const char *head = "GET /hold HTTP/1.1\r\nHost: a\r\nX: ";
  size_t n = repeat(request, head, 'x', 4096 - strlen(head) - 4, "\r\n\r\n");
  assert_int_equal(n, 4096);
  say_bytes(c, request, n);
  turn_until(seen.held);
  close(c);
  turn_until(seen.aborts == 2);
  assert_int_equal(stats()->aborted, 2);
  assert_int_equal(stats()->active, 0);
  serve_no_more();
}

static void test_overload(void **state) {
  (void)state;
  serve((http_limits){.connections = 2});
  int a = dial_server(), b = dial_server();
  turn_until(stats()->open == 2);
  int c = dial_server();
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 503 ");
  assert_int_equal(seen.overloads, 1);
  assert_int_equal(stats()->overload, 1);
  close(c);
  say(a, GET "\r\n");
  hear(a, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 ");
  close(a), close(b);
  turn_until(stats()->open == 0);
  serve_no_more();
}

static void test_room(void **state) {
  (void)state;
  serve((http_limits){.connections = 3, .makes_room = true});
  int busy = dial_server();
  say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held);
  int half = dial_server();
  say(half, "GET /");
  turn_until(stats()->open == 2);
  int idle = dial_server();
  turn_until(stats()->open == 3);
  int next = dial_server();
  hear_all(idle); /* the only one without a request */
  assert_string_equal(heard, "");
  say(next, GET "\r\n");
  hear(next, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 ");
  http_request *first = seen.held;
  say(next, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held != first);
  int third = dial_server();
  hear_all(half); /* ... and the one that does not get on with it */
  assert_string_equal(heard, "");
  http_request *second = seen.held;
  say(third, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held != second);
  int last = dial_server(); /* nobody is cut off in the midst of his answer */
  hear_all(last);
  assert_begins(heard, "HTTP/1.1 503 ");
  assert_int_equal(stats()->overload, 1);
  close(busy), close(half), close(idle), close(next), close(third), close(last);
  turn_until(stats()->open == 0);
  serve_no_more();
}

static void test_drain(void **state) {
  (void)state;
  serve((http_limits){0});
  int idle = dial_server(), busy = dial_server();
  int port = http_server_port(server);
  say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held && stats()->open == 2);
  http_server_drain(server, 5000, on_closed, NULL);
  hear_all(idle);
  assert_string_equal(heard, "");
  int late = dial(port);
  hear_all(late); /* refused: nobody listens */
  assert_false(server_is_closed);
  answer_text(seen.held, 200, "last", 4);
  hear_all(busy);
  assert_holds(heard, "\r\nConnection: close\r\n");
  assert_holds(heard, "\r\n\r\nlast");
  close(busy), close(idle), close(late);
  turn_until(server_is_closed);
}

static void test_drain_limit(void **state) {
  (void)state;
  serve((http_limits){0});
  int busy = dial_server();
  say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held);
  http_server_drain(server, 50, on_closed, NULL);
  turn_until(server_is_closed);
  assert_int_equal(seen.aborts, 1);
  assert_int_equal(seen.reason, HTTP_ABORT_SERVER);
  hear_all(busy);
  assert_string_equal(heard, "");
  close(busy);
}

static void test_bad_address(void **state) {
  char error[256];
  http_server *other;
  (void)state;
  serve((http_limits){0});
  http_server_options options = {
      .host = "127.0.0.1", .port = http_server_port(server), .handler = &handler};
  assert_false(http_server_open(&loop, &options, &other, error, sizeof error));
  assert_holds(error, "address already in use");
  assert_holds(error, "127.0.0.1:");
  options.host = "localhost";
  assert_false(http_server_open(&loop, &options, &other, error, sizeof error));
  assert_string_equal(strchr(error, ' '),
                      " not an address to listen on, such as 127.0.0.1 or [::1]");
  /* B244 */
  const char *good[] = {"::1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    http_server_options o = {.host = good[i], .handler = &handler};
    if (!http_server_open(&loop, &o, &other, error, sizeof error)) fail_msg("%s", error);
    server_is_closed = false;
    http_server_drain(other, 0, on_closed, NULL);
    turn_until(server_is_closed);
  }
  serve_no_more();
}

/* A socket that somebody else listens on, as systemd or a test hands it over. */
static void test_inherited_socket(void **state) {
  char error[256] = "";
  (void)state;
  memset(&seen, 0, sizeof seen);
  server_is_closed = false;
  int listener = listen_at("127.0.0.1", 0);
  http_server_options options = {.fd = listener, .handler = &handler};
  if (!http_server_open(&loop, &options, &server, error, sizeof error)) fail_msg("%s", error);
  assert_int_equal(http_server_port(server), port_of(listener));
  int c = dial_server();
  say(c, GET "\r\n");
  hear(c, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 ");
  close(c);
  serve_no_more();
}

static void test_what_a_handler_sees(void **state) {
  char peer[64];
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "PATCH http://a:80/hold?x HTTP/1.1\r\nHost: a:80\r\nX-Token: one\r\nx-token: two\r\n\r\n");
  turn_until(seen.requests == 1);
  close(c);
  turn_until(stats()->open == 0);
  c = dial_server();
  say(c, "PATCH /hold HTTP/1.1\r\nHost: a:80\r\nX-Token: one\r\nx-token: two\r\n\r\n");
  turn_until(seen.held);
  const http_request *r = seen.held;
  assert_string_equal(r->method, "PATCH");
  assert_int_equal(r->host.length, 4);
  assert_memory_equal(r->host.data, "a:80", 4);
  assert_int_equal(r->header_count, 3);
  assert_memory_equal(r->headers[1].value, "one", 3);
  assert_memory_equal(r->headers[2].value, "two", 3);
  assert_string_equal(http_request_peer(r, peer), "127.0.0.1");
  close(c);
  serve_no_more();
}

static void test_problem(void **state) {
  (void)state;
  serve((http_limits){0});
  int c = dial_server();
  say(c, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  turn_until(seen.held);
  const http_refused refused = {"a \"b\"", "half_open", 1001};
  http_answer_problem(seen.held, 503, "Service Unavailable", "a \"b\"\n\\", &refused);
  hear(c, "}\n");
  assert_holds(heard, "\r\nRetry-After: 2\r\n"); /* whole seconds, never less than it takes */
  assert_holds(heard, "\r\nContent-Type: application/problem+json\r\n");
  assert_holds(heard, "\r\nCache-Control: no-store\r\n");
  assert_holds(heard, "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
                      "\"detail\":\"a \\\"b\\\"\\u000a\\\\\",\"reason\":\"a \\\"b\\\"\","
                      "\"state\":\"half_open\",\"retry_after_ms\":1001}\n");
  close(c);
  serve_no_more();
}

#define IT(title, function)                                                                        \
  { title, function, loop_open, loop_close, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("refuses whatever can be read in two ways (B235, B238, B248)", test_refusals),
      IT("takes what is unusual but plain", test_accepted),
      IT("refuses malformed chunks (B235)", test_bad_chunks),
      IT("finds the next request exactly after the body (B236)", test_pipelining),
      IT("reads the same whatever the segments", test_byte_by_byte),
      IT("forgives one empty line before a request", test_empty_lines),
      IT("keeps to its size limits", test_sizes),
      IT("takes a head of 64 KiB", test_large_head),
      IT("gives a head a total deadline (B247)", test_slow_head),
      IT("serves others beside 2,000 slow clients (B247)", test_many_slow_heads),
      IT("closes idle connections without a word", test_idle),
      IT("gives a body a deadline that grows with it (B247)", test_slow_body),
      IT("waits no longer for the next byte of a body that is half there", test_stalled_body),
      IT("does not count time in which it does not read", test_paused_body),
      IT("cuts off a reader that does not read (B247)", test_slow_reader),
      IT("waits for one that reads", test_patient_reader),
      IT("frames each kind of answer", test_framing),
      IT("speaks HTTP/1.0 to those who do", test_http_1_0),
      IT("cuts off an answer that is shorter than it said", test_cut_short),
      IT("says 100 once and only if it is wanted (B248)", test_expect),
      IT("gets an early answer to a client that still sends (B251)", test_early_answer),
      IT("notices that a client has gone (B071)", test_abort),
      IT("turns away connections over its limit", test_overload),
      IT("or makes room for them by those without a request", test_room),
      IT("drains", test_drain),
      IT("drains no longer than it may", test_drain_limit),
      IT("says what is wrong with an address (B244)", test_bad_address),
      IT("takes over a socket that listens already", test_inherited_socket),
      IT("shows a handler what was asked", test_what_a_handler_sees),
      IT("writes problems as RFC 9457 has them", test_problem),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
