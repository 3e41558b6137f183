/* The proxy between a scripted client and a scripted upstream: what goes through, what is held
 * back, and what the guard is told.  Field reports of kind k (B229 to B251), and B071,
 * B073, B113. */
#include "http_guard.h"

#include "http/exchange.h"

static void open_all(void) { open_with((proxy_options){0}, (http_limits){0}); }

/* ---- Shorthand ------------------------------------------------------------------------------- */

#define GET                   "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK(body_length, body) "HTTP/1.1 200 OK\r\nContent-Length: " #body_length "\r\n\r\n" body

/* Says it, and hears the head that arrives at the upstream on a new connection. */
static int ask_upstream(int client, const char *request) {
  say(client, request);
  int u = answer_call(upstream);
  hear(u, "\r\n\r\n");
  return u;
}

/* A whole round: GET, the answer, and its body at the client. */
static void round_trip(int client, int u) {
  say(client, GET);
  hear(u, "\r\n\r\n");
  say(u, OK(2, "hi"));
  hear(client, "\r\n\r\nhi");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
}

/* The first round, which makes the connection that is then kept. */
static int first_round(int client) {
  int u = ask_upstream(client, GET);
  say(u, OK(2, "hi"));
  hear(client, "\r\n\r\nhi");
  return u;
}

/* Perhaps somebody calls the upstream, but nobody says anything. */
static void assert_nothing_asked(void) {
  turn_for(20);
  for (int u; (u = accept4(upstream, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0; close(u)) {
    hear_all(u);
    assert_string_equal(heard, "");
  }
}

static void reset(int fd) {
  struct linger hard = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close(fd);
}

/* ---- What goes through ----------------------------------------------------------------------- */

/* The head arrives as it was sent: raw target, spelling and order of the fields. */
static void test_head_is_kept(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(
      c, "GET /a%2fb/../c//./d?x=%20&y=;z HTTP/1.1\r\nx-First: 1\r\nHOST: example.org:81\r\n"
         "X-Empty:\r\nX-sEcond:  2 \r\nAccept: text/*\r\nCookie: a=b\r\nx-first: 3\r\n"
         "User-Agent: test\r\nAuthorization: Basic Zm9v\r\n\r\n");
  assert_string_equal(heard,
                      "GET /a%2fb/../c//./d?x=%20&y=;z HTTP/1.1\r\nHost: example.org:81\r\n"
                      "x-First: 1\r\nX-Empty:\r\nX-sEcond: 2\r\nAccept: text/*\r\nCookie: a=b\r\n"
                      "x-first: 3\r\nUser-Agent: test\r\nAuthorization: Basic Zm9v\r\n\r\n");
  say(u, "HTTP/1.1 299 Quite Well\r\nX-B: 1\r\nx-a: 2\r\nContent-Length: 2\r\nX-B: "
         "3\r\nSet-Cookie: a\r\n"
         "Set-Cookie: b\r\nX-Empty:\r\n\r\nhi");
  hear(c, "\r\n\r\nhi");
  assert_string_equal(
      heard, "HTTP/1.1 299 Quite Well\r\nX-B: 1\r\nx-a: 2\r\nContent-Length: 2\r\nX-B: 3\r\n"
             "Set-Cookie: a\r\nSet-Cookie: b\r\nX-Empty:\r\nNeap-Source: primary\r\n\r\nhi");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  assert_string_equal(guard.key, "route");
  close(c), close(u);
  close_all();
}

/* Nothing is added that the client did not say: no Accept, no User-Agent, no Accept-Encoding, no
 * Via. */
static void test_nothing_is_added(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  assert_string_equal(heard, GET);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  say(c, "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n"); /* a URL becomes a path */
  hear(u, "\r\n\r\n");
  assert_string_equal(heard, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  say(u, OK(2, "hi"));
  hear(c, "hi");
  char host[64], expected[128];
  snprintf(host, sizeof host, "127.0.0.1:%d", port_of(upstream));
  snprintf(expected, sizeof expected, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host);
  static char long_host[6000];
  memset(long_host, 'h', sizeof long_host - 1);
  say(c, "GET http://");
  say(c, long_host);
  say(c, "/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); /* Host is what the target names */
  hear(u, "\r\n\r\n");
  assert_begins(heard, "GET / HTTP/1.1\r\nHost: hhhhh");
  assert_holds(heard, long_host);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  say(c, "GET / HTTP/1.0\r\n\r\n"); /* without a Host the upstream's own is the only true one */
  hear(u, "\r\n\r\n");
  assert_string_equal(heard, expected);
  say(u, OK(2, "hi"));
  hear_all(c);
  close(c), close(u);
  close_all();
}

/* B239, towards the upstream. */
static void test_hop_by_hop_up(void **state) {
#define LISTED                                                                                     \
  "Connection: X-Secret , content-length\r\nconnection: host, transfer-encoding,X-Other\r\n"       \
  "X-Secret: 1\r\nx-other: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nTrailer: X-Sum\r\n"       \
  "Upgrade: foo/2\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic Zm9v\r\n"
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, "GET / HTTP/1.1\r\nHost: a\r\n" LISTED "X-Kept: 1\r\n\r\n");
  assert_string_equal(heard, "GET / HTTP/1.1\r\nHost: a\r\nX-Kept: 1\r\n\r\n");
  say(u, OK(2, "hi"));
  hear(c, "hi");
  say(c, "POST / HTTP/1.1\r\nHost: a\r\n" LISTED "Content-Length: 5\r\n\r\nhello");
  hear(u, "hello");
  assert_string_equal(heard, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  say(u, OK(2, "hi"));
  hear(c, "hi");
  say(c, "POST / HTTP/1.1\r\nHost: a\r\n" LISTED
         "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
  hear(u, "0\r\n\r\n");
  assert_string_equal(
      heard, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
  close(c), close(u);
  close_all();
}

/* B239, towards the client. */
static void test_hop_by_hop_down(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nX-Secret: 1\r\nConnection: X-Secret, content-length\r\nKeep-Alive: "
         "timeout=5\r\n"
         "Proxy-Authenticate: Basic\r\nTrailer: X\r\nUpgrade: h2c\r\nContent-Length: 2\r\nX-Kept: "
         "1\r\n\r\nhi");
  hear(c, "\r\n\r\nhi");
  assert_string_equal(
      heard, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Kept: 1\r\nNeap-Source: primary\r\n\r\nhi");
  close(c), close(u);
  close_all();
}

/* B236: what is taken from the client is what the upstream is sent, and the next request follows
 * exactly. */
static void test_bodies_up(void **state) {
  static const struct {
    const char *because, *request, *arrives;
  } cases[] = {
      {"a length", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
       "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"},
      {"chunks",
       "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
       "chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX: y\r\n\r\n",
       "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
      {"an empty body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"},
      {"empty and chunked",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"GET with a body", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
       "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"},
      {"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
       "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"DELETE", "DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"PROPFIND", "PROPFIND /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
       "PROPFIND /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"},
  };
  (void)state;
  open_all();
  int c = dial_proxy(), u = -1;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    say(c, cases[i].request);
    say(c, GET); /* waits behind it */
    if (u < 0) u = answer_call(upstream);
    hear(u, cases[i].arrives + strlen(cases[i].arrives) - 6);
    if (strcmp(heard, cases[i].arrives)) fail_msg("%s: %s", cases[i].because, heard);
    say(u, OK(1, "1"));
    hear(u, "\r\n\r\n");
    assert_string_equal(heard, GET);
    say(u, OK(2, "22"));
    hear(c, "\r\n\r\n22");
    assert_int_equal(count_of(heard, "HTTP/1.1 200"), 2);
  }
  say(c, "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 400 ");
  close(c), close(u);
  close_all();
}

static void test_bodies_down(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = first_round(c);
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
         "chunked\r\n\r\n2\r\nhi\r\n5;x\r\nthere\r\n0\r\nX-Sum: 1\r\n"
         "Transfer-Encoding: gzip\r\n\r\n");
  hear(c, "\r\n\r\nhithere"); /* known whole, so its length is told; trailers are dropped, and say
                                 nothing of how the body is framed */
  assert_holds(heard, "\r\nContent-Length: 7\r\n");
  assert_lacks(heard, "X-Sum");
  say(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_holds(heard, "\r\nContent-Length: 1234\r\n");
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_string_equal(heard,
                      "HTTP/1.1 304 Not Modified\r\nETag: x\r\nNeap-Source: primary\r\n\r\n");
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nto the end");
  close(u);
  hear(c, "to the end"); /* a body that ends with its connection is framed anew */
  assert_lacks(heard, "103");
  assert_holds(heard, "\r\nContent-Length: 10\r\n");
  close(c);
  close_all();
}

/* An answer that keeps coming is passed on as it comes. */
static void test_streaming_down(void **state) {
  (void)state;
  open_with((proxy_options){.hold_ms = 30}, (http_limits){0});
  guard.timeout_ms = 100000;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
         "chunked\r\n\r\n3\r\none\r\n");
  hear(c, "\r\n3\r\none\r\n");
  assert_holds(heard, "\r\nTransfer-Encoding: chunked\r\n");
  assert_int_equal(guard.reported, 0);
  say(u, "3\r\ntwo\r\n");
  hear(c, "3\r\ntwo\r\n");
  say(u, "0\r\n\r\n");
  hear(c, "0\r\n\r\n");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  assert_int_equal(guard.kept_length, 6); /* it was small: whole all the same */
  assert_memory_equal(guard.kept_body, "onetwo", 6);
  close(c);
  c = dial_proxy(); /* to HTTP/1.0 the end is the end of the connection */
  say(c, "GET / HTTP/1.0\r\nHost: a\r\n\r\n");
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
  hear(c, "one");
  say(u, "3\r\ntwo\r\n0\r\n\r\n");
  hear_all(c);
  assert_string_equal(heard, "two");
  close(c), close(u);
  close_all();
}

/* One that goes on for longer than the deadline is judged by its head then: a probe must not be
 * lost for it. */
static void test_endless_answer_is_judged(void **state) {
  (void)state;
  open_with((proxy_options){.hold_ms = 10}, (http_limits){0});
  guard.timeout_ms = 60;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
  turn_until(guard.reported == 1);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  assert_int_equal(guard.last.duration_ms < 50, true); /* until its head */
  say(u, "3\r\ntwo\r\n");
  close(u); /* in the middle: the client must see that */
  hear_all(c);
  assert_lacks(heard, "\r\n0\r\n");
  assert_int_equal(stats()->cut, 1);
  close(c);
  close_all();
}

/* A body shorter than its length is a failure, and is told from a whole one, whichever
 * was begun. */
static void test_truncated_answers(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  close(u);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 Bad Gateway\r\n"); /* held back, so nothing of it was sent */
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_BODY);
  u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf");
  hear(c, "half");
  reset(u);
  hear_all(c);
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 2);
  assert_int_equal(guard.last.ended_by, NEAP_ENDED_TRANSPORT);
  assert_int_equal(stats()->cut, 1);
  close(c);
  close_all();
}

/* Answers that could be read in two ways do not come through. */
static void test_malformed_answers(void **state) {
  static const char *const answers[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhi\r\n",
      /* a second status line: by the first there is no body, and the client, told of one, took the
       * next answer for it */
      "HTTP/1.1 204 No Content\r\nHTTP/1.1 200 O:K\r\nContent-Length: 99\r\n\r\n",
      "HTTP/1.1 304 Not Modified\r\nHTTP/1.1 200 O:K\r\nContent-Length: 99\r\n\r\n",
      "hello, this is no HTTP at all, and goes on like this for a while\r\n\r\n",
  };
  (void)state;
  open_all();
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    int c = dial_proxy();
    int u = ask_upstream(c, GET);
    say(u, answers[i]);
    shutdown(u, SHUT_WR);
    hear(c, "}\n");
    if (strncmp(heard, "HTTP/1.1 502 ", 13)) fail_msg("%s: %s", answers[i], heard);
    hear_all(u); /* and that connection is not used again */
    close(c), close(u);
  }
  assert_int_equal(guard.outcomes[NEAP_FAILURE], sizeof answers / sizeof *answers);
  close_all();
}

/* ---- Kept connections ------------------------------------------------------------------------ */

/* B229, in its three ways: the kept connection was closed while idle; it is reset when the request
 * arrives; it is closed when the request arrives. */
static void test_stale_connections(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = first_round(c);
  close(u);
  turn_for(20);
  u = ask_upstream(c, GET);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  for (int way = 0; way < 2; way++) {
    say(c, GET);
    hear(u, "\r\n\r\n");
    if (way) reset(u);
    if (!way) close(u);
    u = answer_call(upstream); /* it is sent again, once */
    hear(u, "\r\n\r\n");
    assert_string_equal(heard, GET);
    say(u, OK(2, "hi"));
    hear(c, "\r\n\r\nhi");
    assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  }
  assert_int_equal(stats()->resent, 2);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 4); /* each counted once */
  say(c, GET);
  hear(u, "\r\n\r\n");
  close(u);
  u = answer_call(upstream);
  hear(u, "\r\n\r\n");
  close(u); /* twice is a failure */
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_SENT);
  assert_nothing_asked();
  close(c);
  close_all();
}

/* A connection that was just made and closes is no stale one: nothing says that the request was not
 * looked at. */
static void test_fresh_connection_closed(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  close(u);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  turn_for(20);
  assert_false(is_calling(upstream));
  close(c);
  close_all();
}

static void fill(char *to, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = (char)('a' + i % 26);
}

/* Says a head with its length, and a body of that many bytes, beginning with "abc". */
static void say_body(int fd, const char *method, size_t n) {
  static char body[70000];
  char head[128];
  fill(body, n);
  snprintf(head, sizeof head, "%s / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", method, n);
  say(fd, head);
  say_bytes(fd, body, n);
}

static void assert_body(const char *body, size_t n) {
  static char expected[70000];
  fill(expected, n);
  assert_memory_equal(body, expected, n);
}

/* B230: a body that was kept is sent again, whole, if that is allowed for its method. */
static void test_stale_with_body(void **state) {
  static const struct {
    const char *method;
    size_t length;
    proxy_resend rule;
    bool again;
  } cases[] = {
      {"POST", 1024, PROXY_RESEND_ANY, true},
      {"POST", 1024, PROXY_RESEND_IDEMPOTENT, false},
      {"PUT", 1024, PROXY_RESEND_IDEMPOTENT, true},
      {"PUT", 1024, PROXY_RESEND_NEVER, false},
      {"PUT", 65536, PROXY_RESEND_ANY, true},
      {"PUT", 65537, PROXY_RESEND_ANY, false}, /* not kept: better none than half of it */
      {"POST", 0, PROXY_RESEND_IDEMPOTENT, false},
      {"POST", 0, PROXY_RESEND_ANY, true},
  };
  (void)state;
  for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
    const size_t n = cases[i / 2].length;
    open_with((proxy_options){.resend = cases[i / 2].rule}, (http_limits){0});
    int c = dial_proxy();
    int u = first_round(c);
    say_body(c, cases[i / 2].method, n);
    hear_message(u, n);
    if (i % 2) reset(u);
    if (!(i % 2)) close(u);
    if (cases[i / 2].again) {
      u = answer_call(upstream);
      assert_body(hear_message(u, n), n);
      say(u, OK(2, "hi"));
      hear(c, "\r\n\r\nhi");
      close(u);
    } else {
      hear(c, "}\n");
      assert_begins(heard, "HTTP/1.1 502 ");
      assert_nothing_asked();
    }
    close(c);
    close_all();
  }
}

/* B241: answers without a body end with their head. */
static void test_bodiless_answers(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = first_round(c);
  for (int i = 0; i < 1000; i++) {
    say(c, GET);
    hear(u, "\r\n\r\n");
    say(u, i % 3 == 0   ? "HTTP/1.1 204 No Content\r\n\r\n"
           : i % 3 == 1 ? "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                        : OK(0, ""));
    hear(c, "\r\n\r\n");
    assert_begins(heard, i % 3 ? "HTTP/1.1 200 " : "HTTP/1.1 204 ");
  }
  assert_false(is_calling(upstream));
  close(c), close(u);
  close_all();
}

/* B242: bytes that nobody asked for spoil the connection, with the answer or after it. */
static void test_stray_bytes(void **state) {
  static const struct {
    const char *request, *answer;
    size_t body;
  } cases[] = {
      {GET, "HTTP/1.1 204 No Content\r\n\r\n", 0},
      {GET, "HTTP/1.1 304 Not Modified\r\n\r\n", 0},
      {GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0},
      {"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0},
      {GET, OK(2, "hi"), 2},
      {GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 2},
  };
  static const char *const strays[] = {"0\r\n\r\n",
                                       "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int way = 0; way < 4; way++) {
      char together[256];
      open_all();
      int c = dial_proxy();
      int u = ask_upstream(c, cases[i].request);
      snprintf(together, sizeof together, "%s%s", cases[i].answer, way & 1 ? strays[way / 2] : "");
      say(u, together);
      hear_message(c, cases[i].body);
      if (!(way & 1)) say(u, strays[way / 2]);
      turn_for(5);
      int v = ask_upstream(c, GET); /* comes on a new connection */
      say(v, OK(4, "mine"));
      hear(c, "mine");
      hear_all(u);
      assert_string_equal(heard, "");
      close(c), close(u), close(v);
      close_all();
    }
  }
}

/* B242: ... also where the next request waits already, and takes the connection before the loop has
 * told of them.  A POST, so that nothing but a look at the connection can help. */
static void test_stray_bytes_and_haste(void **state) {
  static const char *const strays[] = {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen", ""};
  (void)state;
  for (int way = 0; way < 2; way++) {
    char rest[128];
    open_all();
    int c = dial_proxy();
    int u = ask_upstream(c, GET "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    say(u, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfir");
    turn_for(5); /* the head is read: from here curl reads to the end of the body, and no further */
    snprintf(rest, sizeof rest, "st%s", strays[way]);
    assert_int_equal(send(u, rest, strlen(rest), 0), strlen(rest));
    if (way) shutdown(u, SHUT_WR);
    int v = answer_call(upstream);
    hear(v, "\r\n\r\n");
    say(v, OK(6, "second"));
    hear(c, "second");
    assert_holds(heard, "\r\n\r\nfirst");
    close(c), close(u), close(v);
    close_all();
  }
}

#define LARGE (100u << 20)

/* Moves the rest from one end to the other.  Answers how many bytes came. */
static size_t pour(int from, int to, size_t left) {
  static char block[65536];
  size_t got = 0;
  for (uint64_t last = now_ms(); now_ms() - last < 1000;) {
    size_t n = left < sizeof block ? left : sizeof block;
    ssize_t sent = n ? send(from, block, n, MSG_NOSIGNAL) : 0;
    if (sent > 0) left -= (size_t)sent;
    hear_nothing_yet();
    int heard_now = hear_some(to);
    if (heard_now > 0) got += (size_t)heard_now;
    if (sent > 0 || heard_now > 0) last = now_ms();
    if (sent <= 0 && heard_now <= 0) turn();
    uv_run(&loop, UV_RUN_NOWAIT);
    if (!left && !heard_now && now_ms() - last > 100) break;
  }
  return got;
}

/* ---- Failures and their tags ----------------------------------------------------------------- */

/* B232: how far it had come is told to the policy. */
static void test_phases(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  close(u);
  hear(c, "}\n");
  assert_int_equal(guard.last.phase, NEAP_PHASE_SENT);
  assert_int_equal(guard.last.ended_by, NEAP_ENDED_TRANSPORT);
  assert_true(*guard.last_error);
  u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nX: y\r\n");
  close(u);
  hear(c, "}\n");
  assert_int_equal(guard.last.phase, NEAP_PHASE_HEADERS);
  assert_int_equal(guard.last.status, 0);
  u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
  close(u);
  hear(c, "}\n");
  assert_int_equal(guard.last.phase, NEAP_PHASE_BODY);
  assert_int_equal(guard.last.status, 0); /* half an answer is none */
  u = ask_upstream(c, GET);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  assert_int_equal(guard.last.ended_by, NEAP_ENDED_ANSWER);
  assert_int_equal(guard.last.status, 200);
  assert_int_equal(guard.last_body_length, 2);
  close(u);
  close(upstream);
  upstream = -1;
  turn_for(5);
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 Bad Gateway\r\n");
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT);
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 4);
  assert_int_equal(stats()->errors_connect, 1);
  assert_int_equal(stats()->errors_sent, 1);
  assert_int_equal(stats()->errors_answer, 2);
  close(c);
  close_all();
}

static void test_timeout(void **state) {
  (void)state;
  open_all();
  guard.timeout_ms = 80;
  int c = dial_proxy();
  uint64_t begin = now_ms();
  int u = ask_upstream(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 Gateway Timeout\r\n");
  assert_holds(heard, "no answer from the upstream within 80 ms");
  assert_in_range(now_ms() - begin, 75, 2000);
  hear_all(u); /* given up, and said so */
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_SENT);
  close(u);
  u = ask_upstream(c, GET); /* a total: dripping does not help */
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
  for (int i = 0; i < 40 && guard.reported < 2; i++) {
    say(u, "x");
    turn_for(5);
  }
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 2);
  assert_int_equal(guard.last.phase, NEAP_PHASE_BODY);
  assert_int_equal(stats()->timeouts, 2);
  close(c), close(u);
  close_all();
}

/* The deadline is the upstream's.  A client that takes its time to send must not make it
 * look slow. */
static void test_slow_client_is_no_timeout(void **state) {
  static char half[50000];
  (void)state;
  open_all();
  guard.timeout_ms = 80;
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf"); /* kept until whole */
  turn_for(150);
  assert_int_equal(guard.acquired, 0);
  close(c);
  c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
  say_bytes(c, half, sizeof half);
  int u = answer_call(upstream);
  hear_message(u, sizeof half);
  turn_for(200);
  assert_int_equal(guard.reported, 0);
  say_bytes(c, half, sizeof half);
  size_t left = sizeof half;
  while (left) {
    hear_nothing_yet();
    int n = hear_some(u);
    if (n > 0) left -= (size_t)n;
    turn();
  }
  say(u, OK(2, "hi"));
  hear(c, "hi");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  close(c), close(u);
  close_all();
}

/* An answer's body may take its time, but not stand still. */
static void test_stall(void **state) {
  (void)state;
  open_with((proxy_options){.stall_ms = 80}, (http_limits){0});
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx");
  for (int i = 0; i < 6; i++) {
    turn_for(30);
    say(u, "x");
  }
  assert_int_equal(stats()->cut, 0);
  hear_all(c);
  assert_int_equal(stats()->cut, 1);
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  hear_all(u);
  close(c), close(u);
  close_all();
}

/* A client that does not take the answer is not an upstream that does not give it. */
static void test_slow_reader_is_no_stall(void **state) {
  (void)state;
  open_with((proxy_options){.stall_ms = 100}, (http_limits){.queue_bytes = 65536});
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n");
  size_t stuck = push_until_stuck(u, LARGE);
  turn_for(300);
  assert_int_equal(stats()->cut, 0);
  assert_in_range(pour(u, c, LARGE - stuck), LARGE + 50, LARGE + 200);
  assert_int_equal(stats()->cut, 0);
  close(c), close(u);
  close_all();
}

/* The program's own limit is no fault of the upstream: the breaker does not hear of it. */
static void test_too_many_calls(void **state) {
  (void)state;
  open_with((proxy_options){.connections = 2}, (http_limits){0});
  int c[3], u[2];
  for (int i = 0; i < 2; i++) {
    c[i] = dial_proxy();
    u[i] = ask_upstream(c[i], GET);
  }
  c[2] = dial_proxy();
  say(c[2], GET);
  hear(c[2], "}\n");
  assert_begins(heard, "HTTP/1.1 503 ");
  assert_holds(heard, "policy/route: too many calls at once");
  assert_int_equal(guard.acquired, 2);
  say(u[0], OK(2, "hi"));
  hear(c[0], "hi");
  say(c[2], GET); /* there is room again */
  hear(u[0], "\r\n\r\n");
  close(c[1]); /* and for two, when a client has left */
  hear_all(u[1]);
  say(u[0], OK(2, "hi"));
  hear(c[2], "hi");
  round_trip(c[0], u[0]);
  for (int i = 0; i < 2; i++) close(u[i]);
  close(c[0]), close(c[2]);
  close_all();
}

/* ---- The guard's refusals and the chain ------------------------------------------------------ */

static void test_refused(void **state) {
  (void)state;
  open_all();
  guard.refuses = true;
  int c = dial_proxy();
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_holds(heard, "\r\nRetry-After: 2\r\n"); /* 1.5 s: never less than it takes */
  assert_holds(heard, "\r\nContent-Type: application/problem+json\r\n");
  assert_holds(heard, "\"status\":503,\"detail\":\"policy/route: open\","
                      "\"reason\":\"open\",\"state\":\"open\",\"retry_after_ms\":1500}");
  assert_lacks(heard, "Connection: close"); /* the connection is none the worse for it */
  say_body(c, "POST", 100);
  hear(c, "}\n");
  assert_lacks(heard, "Connection: close");
  assert_false(is_calling(upstream));
  assert_int_equal(stats()->refused, 2);
  close(c);
  close_all();
}

static const neap_header chain_headers[] = {
    {"Content-Type", 12, "text/x", 6},       {"Date", 4, "then", 4},
    {"Cache-Control", 13, "public", 6},      {"Age", 3, "30", 2},
    {"Content-Length", 14, "99", 2},         {"Neap-Source", 11, "primary", 7},
    {"Transfer-Encoding", 17, "chunked", 7}, {"X-Split", 7, "a\r\nX-Injected: b", 16},
    {"X-\r\nInjected", 12, "b", 1},
};

static void chain_says(const char *source, const char *body) {
  guard.source = source;
  guard.answer = (neap_answer){
      .status = 200,
      .headers = chain_headers,
      .header_count = sizeof chain_headers / sizeof *chain_headers,
      .body = body,
      .body_length = strlen(body),
      .age_ms = 12999,
  };
}

static void test_degraded(void **state) {
  (void)state;
  open_all();
  guard.refuses = true;
  chain_says("last_good", "old");
  int c = dial_proxy();
  say(c, GET);
  hear(c, "\r\n\r\nold");
  assert_string_equal(
      heard, "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nDate: then\r\nNeap-Source: last_good\r\n"
             "Cache-Control: no-store\r\nAge: 42\r\nContent-Length: 3\r\n\r\nold");
  assert_int_equal(guard.cause, NEAP_CAUSE_REFUSED);
  say(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_holds(heard, "\r\nContent-Length: 3\r\n");
  hear_silence(c, 10);
  chain_says("last_good", ""); /* as a HEAD was answered: how long the body was is not known */
  say(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(c, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  assert_lacks(heard, "Content-Length");
  chain_says("fail", "{}");
  guard.answer.status = 503;
  guard.answer.retry_after_ms = 7001;
  guard.answer.header_count = 1;
  say(c, GET);
  hear(c, "\r\n\r\n{}");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_holds(heard, "\r\nRetry-After: 8\r\n");
  assert_holds(heard, "\r\nNeap-Source: fail\r\n");
  assert_lacks(heard, "\r\nAge:");
  guard.answer.body = NULL; /* a typed failure: its text is made here */
  guard.answer.kind = "maintenance";
  guard.answer.retry_after_ms = 0;
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_holds(heard, "\r\nContent-Type: application/problem+json\r\n");
  assert_holds(heard, "\"detail\":\"policy/route: maintenance\",\"reason\":\"maintenance\","
                      "\"state\":\"open\",\"retry_after_ms\":1500}");
  assert_holds(heard, "\r\nRetry-After: 2\r\n"); /* the breaker's, as the stage has none */
  assert_holds(heard, "\r\nNeap-Source: fail\r\n");
  guard.answer.status = 101; /* no status of an answer: the stage has said nothing */
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_lacks(heard, "Neap-Source");
  assert_int_equal(guard.remembered, 0);
  assert_int_equal(stats()->fallback, 5);
  close(c);
  close_all();
}

/* A failed answer is held back until the chain has been asked; if that declines, it goes out as it
 * is. */
static void test_failed_answer_is_replaced(void **state) {
  static char large[10000];
  (void)state;
  open_all();
  chain_says("default", "standby");
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nbad");
  hear(c, "\r\n\r\nstandby");
  assert_holds(heard, "\r\nNeap-Source: default\r\n");
  assert_int_equal(guard.cause, NEAP_CAUSE_FAILURE);
  say(c, GET); /* of unknown length */
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n");
  turn_for(60); /* longer than an answer below 500 would be held */
  assert_int_equal(guard.reported, 1);
  say(u, "0\r\n\r\n");
  hear(c, "\r\n\r\nstandby");
  say(c, GET); /* too large to hold: judged by its head */
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\nbad");
  hear(c, "\r\n\r\nstandby");
  hear_all(u); /* the rest is not wanted */
  close(u);
  u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n13880\r\n");
  for (int i = 0; i < 8; i++) say_bytes(u, large, sizeof large); /* grows too large to hold */
  hear(c, "\r\n\r\nstandby");
  hear_all(u);
  close(u);
  guard.timeout_ms = 30;
  u = ask_upstream(c, GET);
  hear(c, "\r\n\r\nstandby");
  assert_int_equal(guard.cause, NEAP_CAUSE_TIMEOUT);
  close(c), close(u);
  close_all();
}

static void test_declined(void **state) {
  static char large[100000];
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 500 Oh\r\nX: y\r\nContent-Length: 3\r\n\r\nbad");
  hear(c, "\r\n\r\nbad");
  assert_string_equal(
      heard, "HTTP/1.1 500 Oh\r\nX: y\r\nContent-Length: 3\r\nNeap-Source: primary\r\n\r\nbad");
  assert_int_equal(guard.asked, 1);
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\n");
  say_bytes(u, large, sizeof large);
  hear_message(c, sizeof large);
  assert_begins(heard, "HTTP/1.1 500 Oh\r\n");
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 2);
  assert_int_equal(guard.remembered, 0);
  close(c), close(u);
  close_all();
}

/* Should an answer end in another place than its Content-Length says, and the client below not
 * mind, no client of ours is told that length: here the end comes before the upstream has said
 * all. */
static void test_wrong_length(void **state) {
  (void)state;
  for (int with_chain = 0; with_chain < 2; with_chain++) {
    open_all();
    if (with_chain) chain_says("default", "standby");
    int c = dial_proxy();
    int u = ask_upstream(c, GET);
    say(u, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi");
    exchange *ex = server->conns->data;
    turn_until(ex->received == 2);
    ex_transfer_events.on_done(ex, ex->transfer);
    hear(c, with_chain ? "standby" : "}\n");
    assert_begins(heard, with_chain ? "HTTP/1.1 200 OK\r\n" : "HTTP/1.1 502 Bad Gateway\r\n");
    if (!with_chain) assert_holds(heard, "another length than its Content-Length says");
    assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
    assert_int_equal(guard.last.ended_by, NEAP_ENDED_TRANSPORT);
    assert_int_equal(guard.remembered, 0);
    assert_int_equal(stats()->errors_answer, 1);
    close(c), close(u);
    close_all();
  }
}

/* An upstream that is a neap itself says who answered there; here it is the upstream. */
static void test_one_source(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nX-A: 1\r\nneap-source: last_good\r\nContent-Length: 2\r\n"
         "X-B:\r\nNeap-Source: primary\r\n\r\nhi");
  hear(c, "\r\n\r\nhi");
  assert_string_equal(heard, "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\nX-B: \r\n"
                             "Neap-Source: primary\r\n\r\nhi");
  assert_int_equal(guard.remembered, 0); /* that it was degraded there is still known */
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 200 OK\r\nNeap-Source: default\r\nContent-Length: 70000\r\n\r\n");
  hear(c, "\r\n\r\n"); /* a streamed one, too */
  assert_string_equal(heard,
                      "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\nNeap-Source: primary\r\n\r\n");
  close(c), close(u);
  close_all();
}

static void test_remembered(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = first_round(c);
  assert_int_equal(guard.remembered, 1);
  assert_memory_equal(guard.kept_body, "hi", 2);
  static const char *const answers[] = {
      "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 304 Not Modified\r\nNeap-Source: last_good\r\n\r\n",
      "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nhi",
      "HTTP/1.1 200 OK\r\nNeap-Source: last_good\r\nContent-Length: 2\r\n\r\nhi",
  };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    say(c, GET);
    hear(u, "\r\n\r\n");
    say(u, answers[i]);
    hear_message(c, i == 1 ? 0 : 2);
  }
  assert_int_equal(guard.remembered, 1);
  say(c, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 304 Not Modified\r\n\r\n"); /* what was kept is as good as new */
  hear_message(c, 0);
  assert_int_equal(guard.remembered, 2);
  guard.wants = 0; /* nobody would use it */
  round_trip(c, u);
  assert_int_equal(guard.remembered, 2);
  close(c), close(u);
  close_all();
}

/* B233: the chain gets the body that the primary was given, whole, or is not asked. */
static void test_chain_gets_the_body(void **state) {
  static char body[70000];
  (void)state;
  for (int chunked = 0; chunked < 2; chunked++) {
    for (size_t n = 65536; n <= 65537; n++) {
      char size[32];
      open_all();
      chain_says("default", "standby");
      int c = dial_proxy();
      fill(body, n);
      if (chunked) {
        say(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (size_t at = 0; at < n; at += 8192) {
          size_t part = n - at < 8192 ? n - at : 8192;
          snprintf(size, sizeof size, "%zx\r\n", part);
          say(c, size);
          say_bytes(c, body + at, part);
          say(c, "\r\n");
        }
        say(c, "0\r\n\r\n");
      } else {
        say_body(c, "POST", n);
      }
      int u = answer_call(upstream);
      chunked ? (void)hear(u, "\r\n0\r\n\r\n") : (void)hear_message(u, n);
      say(u, "HTTP/1.1 503 Oh\r\nContent-Length: 3\r\n\r\nbad");
      if (n <= 65536) {
        hear(c, "standby");
        assert_int_equal(guard.asked_body_length, n);
        assert_body(guard.asked_body, n);
      } else {
        hear(c, "\r\n\r\nbad");
        assert_int_equal(guard.asked, 0);
      }
      close(c), close(u);
      close_all();
    }
  }
  open_all();
  chain_says("default", "standby");
  guard.refuses = true;
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  hear(c, "standby"); /* an empty body is whole, too */
  say_body(c, "POST", 65537);
  hear(c, "}\n");
  assert_holds(heard, "no fallback was asked: the request's body was not kept");
  close(c);
  close_all();
}

/* ---- Expect ---------------------------------------------------------------------------------- */

#define EXPECT "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"

/* B248 */
static void test_expect(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  say(c, EXPECT);
  int u = answer_call(upstream);
  hear(c, "\r\n\r\n"); /* the upstream is there and takes a body */
  assert_string_equal(heard, "HTTP/1.1 100 Continue\r\n\r\n");
  say(c, "hello");
  hear(u, "hello");
  assert_string_equal(heard, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  say(u, "HTTP/1.1 100 Continue\r\n\r\n" OK(2, "hi")); /* unasked; it is not passed on */
  hear(c, "hi");
  assert_lacks(heard, "100 Continue");
  guard.refuses = true;
  say(c, EXPECT);
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 503 ");
  assert_holds(heard, "\r\nConnection: close\r\n"); /* the body may come or not: nobody can tell */
  close(c), close(u), close(upstream);
  upstream = -1;
  turn_for(5);
  guard.refuses = false;
  c = dial_proxy();
  say(c, EXPECT);
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 502 "); /* nobody there to take it */
  close(c);
  close_all();
}

/* ---- Clients that leave ---------------------------------------------------------------------- */

/* B071: 30 clients that give up trip nothing. */
static void test_aborts_are_neutral(void **state) {
  (void)state;
  open_all();
  for (int i = 0; i < 30; i++) {
    int c = dial_proxy();
    int u = ask_upstream(c, GET);
    close(c);
    hear_all(u); /* the upstream is told, too */
    close(u);
  }
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 30);
  assert_int_equal(guard.reported, 30);
  assert_int_equal(stats()->aborted, 30);
  close_all();
}

/* An address that swallows every SYN: a listener whose queue is full. */
static int black_hole(int family, int port, int *fillers, int n) {
  struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)port),
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  struct sockaddr_in four = loopback("127.0.0.1", port);
  struct sockaddr *a = family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
  socklen_t length = family == AF_INET6 ? sizeof six : sizeof four;
  int fd = socket_of(family), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, a, length) || listen(fd, 0)) {
    close(fd);
    return -1;
  }
  getsockname(fd, a, &length);
  for (int i = 0; i < n; i++) {
    fillers[i] = socket_of(family);
    connect(fillers[i], a, length);
  }
  turn_for(5);
  return fd;
}

/* B244: a connection has a deadline of its own. */
static void test_no_connection_in_time(void **state) {
  int fillers[4];
  char url[64];
  (void)state;
  upstream = black_hole(AF_INET, 0, fillers, 4);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port_of(upstream));
  open_to((proxy_options){.upstream = url, .connect_ms = 80}, (http_limits){0});
  int c = dial_proxy();
  uint64_t begin = now_ms();
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_in_range(now_ms() - begin, 75, 2000);
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT);
  for (int i = 0; i < 4; i++) close(fillers[i]);
  close(c);
  close_all();
}

/* B073: before connect, while connecting, before the answer, after its head, in its body. */
static void test_abort_at_every_stage(void **state) {
  int fillers[4];
  char url[64];
  (void)state;
  upstream = black_hole(AF_INET, 0, fillers, 4);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", port_of(upstream));
  open_to((proxy_options){.upstream = url}, (http_limits){0});
  int c = dial_proxy();
  say(c, GET);
  turn_until(guard.acquired == 1);
  turn_for(5);
  close(c);
  turn_until(guard.reported == 1);
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT);
  for (int i = 0; i < 4; i++) close(fillers[i]);
  close_all();
  open_with((proxy_options){.hold_ms = 1}, (http_limits){0});
  static const char *const answers[] = {"",
                                        "HTTP/1.1 200 OK\r\nX: y\r\n",
                                        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
                                        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
                                        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf",
                                        "HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nhalf"};
  static const neap_phase phases[] = {NEAP_PHASE_SENT, NEAP_PHASE_HEADERS, NEAP_PHASE_HEADERS,
                                      NEAP_PHASE_BODY, NEAP_PHASE_BODY,    NEAP_PHASE_BODY};
  for (int i = 0; i < 6; i++) {
    c = dial_proxy();
    int u = ask_upstream(c, GET);
    say(u, answers[i]);
    turn_for(5);
    close(c);
    turn_until(guard.reported == i + 1);
    assert_int_equal(guard.outcomes[NEAP_NEUTRAL], i + 1);
    assert_int_equal(guard.last.phase, phases[i]);
    assert_int_equal(guard.last.ended_by, NEAP_ENDED_CALLER);
    hear_all(u);
    close(u);
  }
  close_all();
}

/* A client whose own request is malformed in its middle is no fault of the upstream either. */
static void test_bad_body_is_neutral(void **state) {
  static char half[70000];
  (void)state;
  open_all();
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n11170\r\n");
  say_bytes(c, half, sizeof half);
  say(c, "\r\n");
  int u = answer_call(upstream);
  say(c, "nonsense\r\n");
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 400 ");
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  hear_all(u); /* cut off, not ended: it must not take it for whole */
  assert_true(heard_length < 5 || memcmp(heard + heard_length - 5, "0\r\n\r\n", 5));
  close(c), close(u);
  close_all();
}

/* B113: what a client makes up does not make breakers. */
static void test_keys(void **state) {
  (void)state;
  open_all();
  guard.refuses = true;
  int c = dial_proxy();
  for (int i = 0; i < 50; i++) {
    char request[128];
    snprintf(request, sizeof request, "GET /%d HTTP/1.1\r\nHost: h%d\r\nX-Tenant: %d\r\n\r\n", i, i,
             i);
    say(c, request);
    hear(c, "}\n");
    assert_string_equal(guard.key, "route");
  }
  close(c);
  close_all();
}

/* ---- Large bodies ---------------------------------------------------------------------------- */

#define STUCK_MAX                                                                                  \
  (40u << 20) /* of 100 MB: the kernel's buffers, four of them, and little of ours */

static void test_large_answer(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n");
  size_t stuck = push_until_stuck(u, LARGE);
  assert_in_range(stuck, 1, STUCK_MAX);
  hear_nothing_yet();
  size_t got = pour(u, c, LARGE - stuck);
  assert_in_range(got, LARGE + 50, LARGE + 200);
  assert_int_equal(guard.reported, 1);
  round_trip(c, u); /* and both connections go on */
  close(c), close(u);
  close_all();
}

static void test_large_request(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
  int u = answer_call(upstream);
  size_t stuck = push_until_stuck(c, LARGE);
  assert_in_range(stuck, 1, STUCK_MAX);
  size_t got = pour(c, u, LARGE - stuck);
  assert_in_range(got, LARGE + 50, LARGE + 200);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  round_trip(c, u);
  close(c), close(u);
  close_all();
}

/* B251: an answer in the middle of a large upload arrives at once, and stops it; whatever
 * it says. */
static void test_early_answer(void **state) {
  static const struct {
    const char *answer, *ending;
    neap_outcome outcome;
  } cases[] = {
      {"HTTP/1.1 413 Large\r\nContent-Length: 4\r\n\r\nfull", "full", NEAP_NEUTRAL},
      {"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull", "full", NEAP_FAILURE},
      {"HTTP/1.1 200 Fine\r\nContent-Length: 4\r\n\r\nfull", "full", NEAP_SUCCESS},
      {"HTTP/1.1 204 Fine\r\nX: y\r\n\r\n", "close\r\n\r\n", NEAP_SUCCESS},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    open_all();
    int c = dial_proxy();
    say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    int u = answer_call(upstream);
    size_t sent = push_until_stuck(c, 1u << 20);
    say(u, cases[i].answer);
    hear(c, cases[i].ending);
    assert_memory_equal(heard, cases[i].answer, 14);
    assert_holds(heard, "\r\nConnection: close\r\n");
    assert_true(sent <= 1u << 20);
    hear_all(u); /* not used for anything else */
    assert_int_equal(guard.outcomes[cases[i].outcome], 1);
    close(c), close(u);
    close_all();
  }
}

/* How much of a request is on its way when its answer comes. */
typedef enum sent {
  SENT_ALL,   /* though not read */
  SENT_STUCK, /* there is more than the connection takes */
  SENT_ON     /* the client sends more in the same moment */
} sent;

static int upload_some(int client, sent how) {
  static char body[60000];
  char start[16];
  say(client, how == SENT_ALL ? "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n"
                              : "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
  if (how != SENT_STUCK) say_bytes(client, body, sizeof body);
  int u = answer_call(upstream);
  turn_until(recv(u, start, sizeof start, 0) == sizeof start);
  if (how == SENT_STUCK) push_until_stuck(client, 1u << 20);
  return u;
}

/* An upstream that answers and closes with most of the request unread resets the connection by it.
 * The answer is there all the same, and is what the client gets, and the breaker. */
static void test_early_answer_and_close(void **state) {
  static const struct {
    const char *answer, *arrives, *ending;
    neap_outcome outcome;
  } cases[] = {
      {"HTTP/1.1 413 Large\r\nContent-Length: 4\r\n\r\nfull", "HTTP/1.1 413 Large\r\n",
       "\r\n\r\nfull", NEAP_NEUTRAL},
      {"HTTP/1.1 401 Who\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 401 Who\r\n",
       "\r\n\r\n", NEAP_NEUTRAL},
      {"HTTP/1.1 413 Large\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\n\r\n",
       "HTTP/1.1 413 Large\r\n", "\r\n\r\nfull", NEAP_NEUTRAL},
      {"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull", "HTTP/1.1 503 Busy\r\n",
       "\r\n\r\nfull", NEAP_FAILURE},
      {"HTTP/1.1 200 Fine\r\nContent-Length: 4\r\n\r\nfull", "HTTP/1.1 200 Fine\r\n",
       "\r\n\r\nfull", NEAP_SUCCESS},
      {"HTTP/1.1 204 Fine\r\n\r\n", "HTTP/1.1 204 Fine\r\n", "\r\n\r\n", NEAP_SUCCESS},
      /* What ends with the connection is not whole if that was cut off. */
      {"HTTP/1.1 413 Large\r\nConnection: close\r\n\r\nfull", "HTTP/1.1 502 Bad Gateway\r\n", "}\n",
       NEAP_FAILURE},
      {"HTTP/1.1 413 Large\r\nContent-Length: 5\r\n\r\nfull", "HTTP/1.1 502 Bad Gateway\r\n", "}\n",
       NEAP_FAILURE},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (sent how = SENT_ALL; how <= SENT_ON; how++) {
      open_all();
      int c = dial_proxy();
      int u = upload_some(c, how);
      send(u, cases[i].answer, strlen(cases[i].answer), MSG_NOSIGNAL);
      close(u);
      if (how == SENT_ON) send(c, cases, sizeof cases, MSG_NOSIGNAL);
      hear(c, cases[i].ending);
      assert_begins(heard, cases[i].arrives);
      if (how != SENT_ALL) {
        assert_holds(heard, "\r\nConnection: close\r\n");
        hear_all(c);
      }
      assert_int_equal(guard.outcomes[cases[i].outcome], 1);
      close(c);
      close_all();
    }
  }
}

/* It takes more than one look to read it. */
static void test_large_early_answer(void **state) {
  static char answer[60045] = "HTTP/1.1 413 Large\r\nContent-Length: 60000\r\n\r\n";
  size_t head = strlen(answer);
  (void)state;
  memset(answer + head, 'x', sizeof answer - head);
  open_all();
  int c = dial_proxy();
  int u = upload_some(c, SENT_ALL);
  assert_int_equal(head + 60000, sizeof answer);
  turn_for(20); /* nothing is left to be sent, only to be read */
  assert_int_equal(send(u, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
  close(u);
  assert_memory_equal(hear_message(c, 60000), answer + head, 60000);
  assert_begins(heard, "HTTP/1.1 413 Large\r\n");
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  close(c);
  close_all();
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const char *addresses; /* what the name leads to; NULL: nowhere */
static int lookups;

static bool look_up(void *data, const char *host, char *out, size_t size) {
  (void)data;
  assert_string_equal(host, "origin.test");
  lookups++;
  if (addresses) snprintf(out, size, "%s", addresses);
  return addresses != NULL;
}

static void open_named(int port, proxy_options options) {
  static char url[64];
  snprintf(url, sizeof url, "http://origin.test:%d", port);
  options.upstream = url;
  if (!options.resolve) options.resolve = look_up;
  lookups = 0;
  open_to(options, (http_limits){0});
}

/* B244: a dead IPv6 address costs a fraction of a second, not a minute. */
static void test_dead_ipv6(void **state) {
  int fillers[4] = {-1, -1, -1, -1};
  (void)state;
  upstream = listen_at("127.0.0.1", 0);
  int hole = black_hole(AF_INET6, port_of(upstream), fillers, 4);
  addresses = "[::1],127.0.0.1";
  open_named(port_of(upstream), (proxy_options){0});
  int c = dial_proxy();
  uint64_t begin = now_ms();
  int u = ask_upstream(c, GET);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  assert_true(now_ms() - begin < 1500);
  assert_int_equal(guard.reported, 1);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  for (int i = 0; i < 4; i++) close(fillers[i]);
  close(hole), close(c), close(u);
  close_all();
}

static uv_timer_t then;
static int reported_by_then;

static void on_then(uv_timer_t *timer) {
  reported_by_then = guard.reported;
  uv_close((uv_handle_t *)timer, NULL);
}

static bool look_up_slowly(void *data, const char *host, char *out, size_t size) {
  uv_timer_start(&then, on_then, 250, 0);
  uv_sleep(150);
  return look_up(data, host, out, size);
}

/* Its time runs from the request, also while it is being reached: a body that was all there by
 * then is no reason to begin anew when it is sent.  Both timers are the loop's, so no stall can put
 * the later one first. */
static void test_timeout_includes_connecting(void **state) {
  (void)state;
  upstream = listen_at("127.0.0.1", 0);
  addresses = "127.0.0.1";
  uv_timer_init(&loop, &then);
  open_named(port_of(upstream), (proxy_options){.resolve = look_up_slowly});
  guard.timeout_ms = 200;
  reported_by_then = -1;
  int c = dial_proxy();
  say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  turn_until(reported_by_then >= 0);
  assert_int_equal(reported_by_then, 1);
  close(c);
  close_all();
}

/* B245: the name is asked again, and where it leads now is where requests go, on
 * new connections. */
static void test_new_address(void **state) {
  (void)state;
  upstream = listen_at("127.0.0.1", 0);
  int second = listen_at("127.0.0.2", port_of(upstream));
  addresses = "127.0.0.1";
  open_named(port_of(upstream), (proxy_options){.resolve_ms = 30, .stale_ms = 200});
  int c = dial_proxy();
  int u = first_round(c);
  round_trip(c, u);
  assert_int_equal(lookups, 1); /* believed for a while */
  addresses = "127.0.0.2";
  turn_for(40);
  round_trip(c, u); /* this one asks, and does not wait for it */
  turn_until(lookups == 2);
  hear_all(u); /* the idle connection to the old address is dropped */
  say(c, GET);
  int v = answer_call(second);
  hear(v, "\r\n\r\n");
  say(v, OK(3, "two"));
  hear(c, "two");
  addresses = NULL; /* no answer: what was known serves on, for a while */
  turn_for(40);
  round_trip(c, v);
  turn_until(lookups == 3);
  round_trip(c, v);
  turn_for(240);
  say(c, GET);
  hear(v, "\r\n\r\n");
  say(v, OK(2, "hi"));
  hear(c, "hi");
  turn_for(5);
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_holds(heard, "cannot be resolved");
  assert_int_equal(guard.last.phase, NEAP_PHASE_CONNECT);
  addresses = "127.0.0.1"; /* and back */
  u = ask_upstream(c, GET);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  close(c), close(u), close(v), close(second);
  close_all();
}

/* The order in which a name server lists the same addresses is no change. */
static void test_same_addresses(void **state) {
  (void)state;
  upstream = listen_at("127.0.0.1", 0);
  addresses = "127.0.0.1,127.0.0.1";
  open_named(port_of(upstream), (proxy_options){.resolve_ms = 10});
  int c = dial_proxy();
  int u = first_round(c);
  addresses = "127.0.0.1";
  turn_for(20);
  round_trip(c, u);
  turn_until(lookups == 2);
  round_trip(c, u);
  close(c), close(u);
  close_all();
}

/* A name that is not even asked for is no reason to wait until the deadline. */
static void test_no_name_at_all(void **state) {
  (void)state;
  upstream = -1;
  for (int close_early = 0; close_early < 2; close_early++) {
    open_to((proxy_options){.upstream = "http://a\xff.example"}, (http_limits){0});
    int c = dial_proxy();
    say(c, GET);
    if (close_early) {
      turn_until(guard.acquired == 1);
    } else {
      hear(c, "}\n");
      assert_begins(heard, "HTTP/1.1 502 ");
      assert_holds(heard, "cannot be resolved");
      assert_int_equal(guard.outcomes[NEAP_FAILURE], 1);
      assert_int_equal(stats()->timeouts, 0);
    }
    close(c);
    close_all();
  }
}

static void test_bad_upstreams(void **state) {
  static const char *const bad[] = {
      "",           "127.0.0.1:80/x", "ftp://a",        "http://a/path", "http://u@a",
      "http://a?q", "http://a#f",     "http://a:99999", "http://",       NULL};
  (void)state;
  char error[256];
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    proxy_route *other;
    if (proxy_open(&loop, &(proxy_options){.upstream = bad[i], .guard = &guard}, &other, error,
                   sizeof error)) {
      fail_msg("%s is taken for an upstream", bad[i]);
    }
    assert_begins(error, "upstream \"");
  }
  /* B244 */
  static const char *const good[] = {"http://[::1]:8080", "https://[fe80::1%25lo]:8443",
                                     "http://[::ffff:127.0.0.1]", "http://127.0.0.1",
                                     "http://localhost:80/"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    if (!proxy_open(&loop, &(proxy_options){.upstream = good[i], .guard = &guard}, &route, error,
                    sizeof error)) {
      fail_msg("%s", error);
    }
    all_is_closed = false;
    proxy_close(route, on_route_closed, NULL);
    turn_until(all_is_closed);
  }
}

/* ---- HTTP/2 ---------------------------------------------------------------------------------- */

static void say_frame(int fd, int type, int flags, int stream, const char *payload, size_t n) {
  char frame[64] = {0, 0, (char)n, (char)type, (char)flags, 0, 0, 0, (char)stream};
  memcpy(frame + 9, payload, n);
  say_bytes(fd, frame, 9 + n);
}

/* Hears frames until a whole one of that type has come. */
static void hear_frame(int fd, int type, size_t *at) {
  for (;;) {
    while (*at + 9 <= heard_length) {
      const unsigned char *f = (const unsigned char *)heard + *at;
      size_t n = (size_t)f[1] << 8 | f[2];
      if (*at + 9 + n > heard_length) break;
      *at += 9 + n;
      if (f[3] == type) return;
    }
    int got = hear_some(fd);
    if (got < 0) fail_msg("closed");
    if (!got) turn();
  }
}

/* B250: a stream that is refused was not looked at; it is sent again while its body is whole, and
 * counted once. */
static void test_refused_stream(void **state) {
  enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4 };
  (void)state;
  open_with((proxy_options){.http2 = true}, (http_limits){0});
  int c = dial_proxy();
  say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  int u = answer_call(upstream);
  size_t at = 24; /* after the preface */
  hear_nothing_yet();
  say_frame(u, SETTINGS, 0, 0, "", 0);
  hear_frame(u, HEADERS, &at);
  say_frame(u, RST_STREAM, 0, 1, "\0\0\0\7", 4);
  int v = answer_call(upstream);
  at = 24;
  hear_nothing_yet();
  say_frame(v, SETTINGS, 0, 0, "", 0);
  hear_frame(v, DATA, &at);
  assert_non_null(memmem(heard, heard_length, "hello", 5));
  say_frame(v, HEADERS, 5, 1, "\x88", 1); /* :status 200, and no body */
  hear(c, "\r\n\r\n");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  assert_int_equal(stats()->resent, 1);
  assert_int_equal(guard.reported, 1);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  close(c), close(u), close(v);
  close_all();
}

#define IT(title, function)                                                                        \
  { title, function, loop_open, loop_close, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("keeps target, spelling and order of a head", test_head_is_kept),
      IT("adds nothing of its own", test_nothing_is_added),
      IT("drops what concerns one connection, upwards (B239)", test_hop_by_hop_up),
      IT("drops what concerns one connection, downwards (B239)", test_hop_by_hop_down),
      IT("sends on exactly the body it takes (B236)", test_bodies_up),
      IT("frames every answer anew where it has to", test_bodies_down),
      IT("passes on an answer that keeps coming", test_streaming_down),
      IT("judges an endless answer at the deadline", test_endless_answer_is_judged),
      IT("tells a truncated answer from a whole one", test_truncated_answers),
      IT("never tells a length that the body does not have", test_wrong_length),
      IT("lets no ambiguous answer through", test_malformed_answers),
      IT("gets over a stale connection, in each of its ways (B229)", test_stale_connections),
      IT("does not send again what a new connection swallowed", test_fresh_connection_closed),
      IT("sends a body again only whole and where it may (B230)", test_stale_with_body),
      IT("ends an answer without a body with its head (B241)", test_bodiless_answers),
      IT("never uses a connection with stray bytes again (B242)", test_stray_bytes),
      IT("looks at a connection before it uses it again, in haste too (B242)",
         test_stray_bytes_and_haste),
      IT("tags failures with how far they came (B232)", test_phases),
      IT("gives the upstream a total deadline", test_timeout),
      IT("does not take a slow client for a slow upstream", test_slow_client_is_no_timeout),
      IT("gives up an answer that stands still", test_stall),
      IT("does not take a slow reader for one", test_slow_reader_is_no_stall),
      IT("refuses calls over its own limit", test_too_many_calls),
      IT("answers a refusal with 503, why, and the time left (B164)", test_refused),
      IT("marks degraded answers", test_degraded),
      IT("replaces a failed answer", test_failed_answer_is_replaced),
      IT("passes a failed answer on when the chain declines", test_declined),
      IT("offers good answers only to be remembered", test_remembered),
      IT("says once who answered, whatever the upstream says of that", test_one_source),
      IT("gives the chain the body whole or not at all (B233)", test_chain_gets_the_body),
      IT("says 100 when the upstream takes the body (B248)", test_expect),
      IT("counts clients that leave as neutral (B071)", test_aborts_are_neutral),
      IT("gives up a connection that does not come about (B244)", test_no_connection_in_time),
      IT("counts clients that leave as neutral at every stage (B073)", test_abort_at_every_stage),
      IT("counts a malformed body as neutral", test_bad_body_is_neutral),
      IT("has one key, whatever clients make up (B113)", test_keys),
      IT("holds back an upstream whose client does not read", test_large_answer),
      IT("holds back a client whose upstream does not read", test_large_request),
      IT("stops an upload that was answered early (B251)", test_early_answer),
      IT("passes an early answer on of an upstream that then closes", test_early_answer_and_close),
      IT("passes all of it on, however large", test_large_early_answer),
      IT("does not wait for a dead IPv6 address (B244)", test_dead_ipv6),
      IT("gives an upstream no more time because it was hard to reach",
         test_timeout_includes_connecting),
      IT("follows a name to its new address (B245)", test_new_address),
      IT("keeps connections while the addresses are the same", test_same_addresses),
      IT("says at once that a name is none", test_no_name_at_all),
      IT("says what is wrong with an upstream (B244)", test_bad_upstreams),
      IT("sends a refused stream again, counted once (B250)", test_refused_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
