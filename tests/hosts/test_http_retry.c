/* The proxy's attempts, deadlines and queues, between a scripted client and a scripted upstream. */
#include "http_guard.h"

#include "http/exchange.h"

static void open_all(void) { open_with((proxy_options){0}, (http_limits){0}); }

#define GET                   "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK(body_length, body) "HTTP/1.1 200 OK\r\nContent-Length: " #body_length "\r\n\r\n" body
#define BAD                   "HTTP/1.1 503 Oh\r\nX: y\r\nContent-Length: 3\r\n\r\nbad"

/* Hears the head that arrives at the upstream on a new connection. */
static int next_attempt(void) {
  int u = answer_call(upstream);
  hear(u, "\r\n\r\n");
  return u;
}

static int ask_upstream(int client, const char *request) {
  say(client, request);
  return next_attempt();
}

static void fill(char *to, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = (char)('a' + i % 26);
}

static void assert_body(const char *body, size_t n) {
  static char expected[70000];
  fill(expected, n);
  assert_memory_equal(body, expected, n);
}

enum { ENDLESS = 6 * WAIT_MS }; /* longer than any test waits */

/* ---- Attempts -------------------------------------------------------------------------------- */

static void test_tries_again(void **state) {
  (void)state;
  open_all();
  guard.attempts = 3;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, BAD);
  hear(u, "\r\n\r\n"); /* on the same connection */
  assert_string_equal(heard, GET);
  say(u, "HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n");
  hear(u, "\r\n\r\n");
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  assert_lacks(heard, "X: y");
  assert_int_equal(guard.acquired, 3); /* each attempt asks the breaker, and is one outcome */
  assert_int_equal(guard.outcomes[NEAP_FAILURE], 2);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  assert_int_equal(guard.last.attempt, 3);
  assert_int_equal(guard.asked, 0);
  assert_int_equal(guard.remembered, 1);
  assert_string_equal(guard.kept_body, "hi");
  assert_int_equal(stats()->retried, 2);
  assert_int_equal(stats()->primary, 1);
  say(c, GET); /* and the next request begins anew */
  hear(u, "\r\n\r\n");
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  assert_int_equal(guard.last.attempt, 1);
  close(c), close(u);
  close_all();
}

/* The last one's answer, as it came; the chain is asked once. */
static void test_all_fail(void **state) {
  (void)state;
  open_all();
  guard.attempts = 2;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 500 First\r\nContent-Length: 0\r\n\r\n");
  hear(u, "\r\n\r\n");
  say(u, BAD);
  hear(c, "\r\n\r\nbad");
  assert_begins(heard, "HTTP/1.1 503 Oh\r\nX: y\r\n");
  assert_int_equal(guard.acquired, 2);
  assert_int_equal(guard.asked, 1);
  close(u);
  u = ask_upstream(c, GET); /* no answer at all */
  close(u);
  u = next_attempt();
  close(u);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_int_equal(guard.acquired, 4);
  guard.timeout_ms = 40; /* or none in time */
  u = ask_upstream(c, GET);
  int v = next_attempt();
  hear_all(u);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_holds(heard, "policy/route: no answer from the upstream within 40 ms");
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 2);
  close(u), close(v), close(upstream);
  upstream = -1;
  guard.timeout_ms = 5000;
  say(c, GET); /* nor a connection */
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  assert_int_equal(guard.acquired, 8);
  assert_int_equal(stats()->retried, 4);
  close(c);
  close_all();
}

/* An attempt that the breaker or the bulkhead refuses ends the retrying: what is answered is what
 * the last one came to, whole. */
static void test_refused_later(void **state) {
  (void)state;
  open_all();
  guard.attempts = 3;
  guard.retry_ms = 100;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, BAD);
  turn_until(guard.reported == 1);
  int d = dial_proxy(); /* what is kept, nobody else gets meanwhile */
  say(d, GET);
  hear(u, "\r\n\r\n");
  say(u, "HTTP/1.1 404 Else\r\nContent-Length: 4\r\n\r\nelse");
  hear(d, "else");
  close(d);
  guard.refuses = true;
  hear(c, "\r\n\r\nbad");
  assert_string_equal(
      heard, "HTTP/1.1 503 Oh\r\nX: y\r\nContent-Length: 3\r\nNeap-Source: primary\r\n\r\nbad");
  assert_int_equal(guard.cause, NEAP_CAUSE_FAILURE);
  assert_int_equal(stats()->refused, 0);
  guard.refuses = false;
  close(u);
  u = ask_upstream(c, GET);
  close(u);
  turn_until(guard.reported == 3);
  guard.refuses = true;
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 ");
  guard.refuses = false;
  guard.timeout_ms = 30;
  u = ask_upstream(c, GET);
  turn_until(guard.reported == 4);
  guard.refuses = true;
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  guard.source = "default";
  guard.answer = (neap_answer){.status = 200, .body = "standby", .body_length = 7};
  guard.refuses = false;
  close(u);
  u = ask_upstream(c, GET);
  turn_until(guard.reported == 5);
  guard.refuses = true;
  hear(c, "standby");
  assert_int_equal(guard.cause, NEAP_CAUSE_TIMEOUT);
  close(c), close(u);
  close_all();
}

/* B233: a body is sent again whole, and only if it was kept whole. */
static void test_bodies(void **state) {
  static char body[70000], head[128];
  (void)state;
  open_all();
  guard.attempts = 2;
  fill(body, sizeof body);
  for (int chunked = 0; chunked < 2; chunked++) {
    int c = dial_proxy();
    snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n",
             chunked ? "Transfer-Encoding: chunked" : "Content-Length: 65536");
    say(c, head);
    if (chunked) say(c, "10000\r\n");
    say_bytes(c, body, 65536);
    if (chunked) say(c, "\r\n0\r\n\r\n");
    int u = answer_call(upstream);
    for (int attempt = 0; attempt < 2; attempt++) {
      const char *got = hear_message(u, chunked ? 65536 + 7 + 7 : 65536);
      if (!chunked) assert_body(got, 65536);
      if (chunked) assert_string_equal(heard + heard_length - 5, "0\r\n\r\n");
      say(u, attempt ? OK(2, "hi") : BAD);
    }
    hear(c, "\r\n\r\nhi");
    close(c), close(u);
  }
  assert_int_equal(stats()->retried, 2);
  guard.retries = 0;
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
  say_bytes(c, body, 70000);
  int u = answer_call(upstream);
  hear_message(u, 70000);
  say(u, BAD);
  hear(c, "\r\n\r\nbad");
  assert_int_equal(guard.retries, 0);
  close(c), close(u);
  close_all();
}

/* Once the client has seen a byte there is nothing to try again. */
static void test_streams(void **state) {
  (void)state;
  open_with((proxy_options){.stall_ms = 50}, (http_limits){0});
  guard.attempts = 3;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx");
  hear(c, "x");
  close(u);
  hear_all(c);
  close(c);
  c = dial_proxy();
  u = ask_upstream(c, GET);
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\nx"); /* too large to be held */
  hear(c, "x");
  hear_all(c);
  assert_int_equal(guard.retries, 0);
  assert_int_equal(guard.reported, 2);
  close(c), close(u);
  close_all();
}

static void test_client_leaves(void **state) {
  (void)state;
  open_all();
  guard.attempts = 3;
  guard.retry_ms = 50;
  for (int how = 0; how < 3; how++) {
    guard.timeout_ms = how == 2 ? 20 : 5000;
    int reported = guard.reported;
    int c = dial_proxy();
    int u = ask_upstream(c, GET);
    if (how == 0) say(u, BAD);
    if (how == 1) close(u), u = -1;
    turn_until(guard.reported == reported + 1);
    close(c); /* in the wait */
    turn_for(80);
    assert_false(is_calling(upstream));
    assert_int_equal(guard.acquired, reported + 1);
    if (u >= 0) close(u);
  }
  assert_int_equal(stats()->aborted, 3);
  assert_int_equal(stats()->active, 0);
  close_all();
}

static void test_waits(void **state) {
  (void)state;
  open_all();
  guard.attempts = 2;
  guard.retry_ms = 80;
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, BAD);
  uint64_t begin = now_ms();
  hear(u, "\r\n\r\n");
  assert_in_range(now_ms() - begin, 75, 2000);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  close(c), close(u);
  close_all();
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static void deadline_of(const char *fields, uint64_t ms) {
  char request[256], expected[64];
  snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
  snprintf(expected, sizeof expected, "policy/route: no answer by the call's deadline of %d ms",
           (int)ms);
  int c = dial_proxy();
  uint64_t begin = now_ms();
  int u = ask_upstream(c, request);
  hear(c, "}\n");
  assert_in_range(now_ms() - begin, ms - 5, ms + 2000);
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_holds(heard, expected);
  close(c), close(u);
}

/* The client's own deadline says nothing about the upstream; the policy's does. */
static void test_deadline(void **state) {
  (void)state;
  open_all();
  deadline_of("Neap-Deadline-Ms: 60\r\n", 60);
  deadline_of("grpc-timeout: 70m\r\n", 70);
  deadline_of("Grpc-Timeout: 50000u\r\n", 50);
  deadline_of("grpc-timeout: 1S\r\nneap-deadline-ms: 40\r\n", 40);
  deadline_of("grpc-timeout: 39999999n\r\n", 40);                     /* never less than it says */
  deadline_of("grpc-timeout: 40m\r\nNeap-Deadline-Ms: 5000\r\n", 40); /* the earliest */
  deadline_of("Neap-Deadline-Ms: 5000\r\nNeap-Deadline-Ms: 40\r\n", 40);
  deadline_of("Neap-Deadline-Ms: soon\r\ngrpc-timeout: 40m\r\n", 40);
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 8);
  assert_int_equal(guard.last.ended_by, NEAP_ENDED_CALLER);
  assert_int_equal(guard.cause, NEAP_CAUSE_TIMEOUT);
  guard.deadline_ms = 60;
  deadline_of("", 60);
  deadline_of("Neap-Deadline-Ms: 1000\r\n", 60);
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 2);
  guard.deadline_ms = 0;
  guard.timeout_ms = 40;
  static const char *const nonsense[] = {
      "Neap-Deadline-Ms: soon",        "Neap-Deadline-Ms: -5", "Neap-Deadline-Ms: ",
      "Neap-Deadline-Ms: 1 000",       "Neap-Deadline-Ms: +5", "Neap-Deadline-Ms: 5, 5",
      "Neap-Deadline-Ms: 99999999999", "grpc-timeout: 5",      "grpc-timeout: m",
      "grpc-timeout: 123456789m",      "grpc-timeout: 5x",     "grpc-timeout: 99999999H"};
  for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
    char request[256];
    snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", nonsense[i]);
    int c = dial_proxy();
    int u = ask_upstream(c, request);
    hear(c, "}\n");
    assert_holds(heard, "no answer from the upstream within 40 ms");
    close(c), close(u);
  }
  close_all();
}

/* Of a client that has no time left, nobody is asked. */
static void test_deadline_is_over(void **state) {
  (void)state;
  open_all();
  static const char *const over[] = {"Neap-Deadline-Ms: 0", "grpc-timeout: 0m",
                                     "grpc-timeout: 1H\r\nNeap-Deadline-Ms: 000",
                                     "Neap-Deadline-Ms: 0\r\nContent-Length: 5"};
  for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
    char request[256];
    snprintf(request, sizeof request, "PUT / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\nhello", over[i]);
    int c = dial_proxy();
    say(c, request);
    hear(c, "}\n");
    assert_begins(heard, "HTTP/1.1 504 ");
    assert_holds(heard, "policy/route: no answer by the call's deadline of 0 ms");
    close(c);
  }
  assert_int_equal(guard.acquired, 0);
  close_all();
}

/* The number that the upstream is told by a field. */
static uint64_t told(const char *field, const char *unit) {
  char *end;
  const char *at = strstr(heard, field);
  if (!at) fail_msg("no %s in %s", field, heard);
  uint64_t n = strtoull(at + strlen(field), &end, 10);
  assert_begins(end, unit);
  return n;
}

/* What is left goes on to the upstream, in each attempt less. */
static void test_deadline_goes_on(void **state) {
  (void)state;
  open_all();
  guard.attempts = 2;
  guard.retry_ms = 100;
  int c = dial_proxy();
  int u = ask_upstream(c, "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nNeap-Deadline-Ms: 900\r\n"
                          "Grpc-Timeout: 1H\r\nC: d\r\n\r\n");
  assert_in_range(told("A: b\r\nNeap-Deadline-Ms: ", "\r\n"), 850, 900);
  assert_in_range(told("Grpc-Timeout: ", "m\r\nC: d\r\n"), 850, 900);
  say(u, BAD);
  hear(u, "\r\n\r\n");
  assert_in_range(told("Neap-Deadline-Ms: ", "\r\n"), 500, 801);
  assert_in_range(told("Grpc-Timeout: ", "m\r\n"), 500, 801);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  guard.deadline_ms = 500; /* the policy's, if that is earlier */
  say(c, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 900\r\n\r\n");
  hear(u, "\r\n\r\n");
  assert_in_range(told("Neap-Deadline-Ms: ", "\r\n"), 400, 500);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  guard.deadline_ms = 0;
  say(c, "GET / HTTP/1.1\r\nHost: a\r\ngrpc-timeout: 90000S\r\n\r\n"); /* 8 digits at most */
  hear(u, "\r\n\r\n");
  assert_in_range(told("grpc-timeout: ", "m\r\n"), 89999000, 90000000);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  say(c, "GET / HTTP/1.1\r\nHost: a\r\ngrpc-timeout: 90000000S\r\n\r\n");
  hear(u, "\r\n\r\n");
  assert_in_range(told("grpc-timeout: ", "S\r\n"), 89999998, 90000000);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  say(c, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: soon\r\n\r\n"); /* none */
  hear(u, "\r\n\r\n");
  assert_holds(heard, "Neap-Deadline-Ms: soon\r\n");
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  close(c), close(u);
  close_all();
}

/* As many fields as there may be, each longer than it was. */
static void test_deadline_many_times(void **state) {
  (void)state;
  static char request[4096];
  open_all();
  size_t n = (size_t)sprintf(request, "GET / HTTP/1.1\r\nHost: a\r\n");
  for (int i = 0; i < 60; i++) n += (size_t)sprintf(request + n, "grpc-timeout: 9H\r\n");
  sprintf(request + n, "\r\n");
  int c = dial_proxy();
  int u = ask_upstream(c, request);
  assert_in_range(told("grpc-timeout: ", "m\r\n"), 32399000, 32400000);
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  close(c), close(u);
  close_all();
}

/* Where the upstream's turn comes before the body is there: for a connection, it has that time. */
static void test_deadline_and_body(void **state) {
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  int c = dial_proxy(), d = dial_proxy();
  int u = ask_upstream(c, GET); /* has the slot */
  say(d, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"
         "Neap-Deadline-Ms: 60\r\n\r\n");
  uint64_t begin = now_ms();
  hear(d, "}\n");
  assert_in_range(now_ms() - begin, 50, 2000);
  assert_begins(heard, "HTTP/1.1 50"); /* refused, or too late */
  say(u, OK(2, "hi"));
  hear(c, "\r\n\r\nhi");
  close(c), close(d), close(u);
  close_all();
}

/* The chain is told what is left, so that it does not take more. */
static void test_deadline_and_chain(void **state) {
  (void)state;
  open_all();
  int c = dial_proxy();
  int u = ask_upstream(c, GET);
  say(u, BAD);
  hear(c, "\r\n\r\nbad");
  assert_int_equal(guard.asked, 1);
  assert_false(guard.asked_has_deadline);
  say(c, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 900\r\n\r\n");
  hear(u, "\r\n\r\n");
  say(u, BAD);
  hear(c, "\r\n\r\nbad");
  assert_true(guard.asked_has_deadline);
  assert_in_range(guard.asked_left_ms, 500, 900);
  say(c, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 30\r\n\r\n");
  hear(c, "}\n");
  assert_int_equal(guard.asked, 3);
  assert_true(guard.asked_has_deadline);
  assert_int_equal(guard.asked_left_ms, 0);
  guard.refuses = true;
  say(c, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 900\r\n\r\n");
  hear(c, "}\n");
  assert_int_equal(guard.cause, NEAP_CAUSE_REFUSED);
  assert_in_range(guard.asked_left_ms, 500, 900);
  close(c), close(u);
  close_all();
}

/* Attempts, waits and all. */
static void test_deadline_of_attempts(void **state) {
  (void)state;
  open_all();
  guard.attempts = 10;
  guard.retry_ms = 20;
  guard.timeout_ms = 50;
  guard.deadline_ms = 160;
  int c = dial_proxy(), u[10], n = 0;
  uint64_t begin = now_ms();
  say(c, GET);
  hear_nothing_yet();
  while (hear_some(c) <= 0) {
    int fd = accept4(upstream, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) u[n++] = fd;
    turn();
    if (now_ms() - begin > WAIT_MS) fail_msg("no answer");
  }
  assert_in_range(now_ms() - begin, 155, 400);
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_in_range(n, 2, 3); /* 50 20 50 20 20 */
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], n);
  assert_in_range(guard.left_ms, 1, 160);
  while (n) close(u[--n]);
  close(c);
  close_all();
}

/* ---- The bulkhead ---------------------------------------------------------------------------- */

static void test_full(void **state) {
  (void)state;
  open_all();
  guard.slots = 1;
  int c = dial_proxy(), d = dial_proxy();
  int u = ask_upstream(c, GET);
  say(d, GET);
  hear(d, "}\n");
  assert_begins(heard, "HTTP/1.1 503 ");
  assert_holds(heard, "\"detail\":\"policy/route: bulkhead\",\"reason\":\"bulkhead\"");
  assert_int_equal(guard.full, 1);
  assert_int_equal(guard.cause, NEAP_CAUSE_REFUSED);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  close(c), close(d), close(u);
  close_all();
}

/* First come, first served; who leaves is passed over; nobody waits longer than that. */
static void test_queue(void **state) {
  int c[6];
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  for (int i = 0; i < 6; i++) {
    char request[64];
    c[i] = dial_proxy();
    snprintf(request, sizeof request, "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    say(c[i], request);
    turn_for(5);
  }
  int u = next_attempt();
  close(c[2]), close(c[5]);
  turn_for(20);
  for (int i = 0; i < 5; i++) {
    char begins[64];
    if (i == 2) continue;
    snprintf(begins, sizeof begins, "GET /%d ", i);
    assert_begins(heard, begins);
    assert_int_equal(guard.outstanding, 1);
    say(u, OK(2, "hi"));
    hear(c[i], "hi");
    close(c[i]);
    if (i < 4) hear(u, "\r\n\r\n");
  }
  assert_int_equal(guard.full, 0);
  guard.wait_ms = 50;
  int d = dial_proxy(), e = dial_proxy();
  say(d, GET);
  hear(u, "\r\n\r\n");
  uint64_t begin = now_ms();
  say(e, GET);
  hear(e, "}\n");
  assert_in_range(now_ms() - begin, 45, 2000);
  assert_holds(heard, "\"reason\":\"bulkhead\"");
  assert_int_equal(guard.full, 1);
  guard.wait_ms = ENDLESS;
  say(e, "GET / HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 50\r\n\r\n");
  hear(e, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  assert_holds(heard, "policy/route: no answer by the call's deadline of 50 ms");
  assert_int_equal(guard.full, 1);
  say(u, OK(2, "hi"));
  hear(d, "hi");
  close(d), close(e), close(u);
  close_all();
}

/* Who leaves just as it is his turn does not keep it. */
static void test_leaves_in_turn(void **state) {
  static const char answer[] = OK(2, "hi");
  int c[3];
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  for (int i = 0; i < 3; i++) {
    say(c[i] = dial_proxy(), GET);
    turn_for(5);
  }
  int u = next_attempt();
  assert_true(send(u, answer, sizeof answer - 1, MSG_NOSIGNAL) > 0);
  close(c[1]); /* in the same turn of the loop */
  hear(c[0], "hi");
  hear(u, "\r\n\r\n");
  say(u, answer);
  hear(c[2], "hi");
  assert_int_equal(guard.acquired, 2);
  close(c[0]), close(c[2]), close(u);
  close_all();
}

/* More slots than before, or none any more: they are found. */
static void test_queue_and_other_slots(void **state) {
  int c[4], u[4];
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  for (int i = 0; i < 3; i++) say(c[i] = dial_proxy(), GET);
  u[0] = next_attempt();
  turn_for(20);
  guard.slots = 4;
  say(c[3] = dial_proxy(), GET);
  for (int i = 1; i < 4; i++) u[i] = next_attempt();
  assert_int_equal(guard.outstanding, 4);
  for (int i = 0; i < 4; i++) say(u[i], OK(2, "hi"));
  for (int i = 0; i < 4; i++) hear(c[i], "hi");
  for (int i = 0; i < 4; i++) close(c[i]), close(u[i]);
  close_all();
}

/* A large body waits with its request: the client is held back, nothing is lost. */
static void test_queue_and_body(void **state) {
  static char body[65536];
  enum { ALL = 16 << 20 };
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  int c = dial_proxy(), d = dial_proxy();
  int u = ask_upstream(c, GET);
  say(d, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n");
  size_t taken = push_until_stuck(d, ALL), got = 0;
  assert_in_range(taken, 1, ALL - 1);
  say(u, OK(2, "hi"));
  hear(c, "hi");
  const char *first = hear_message(u, 0);
  assert_begins(heard, "PUT / ");
  got = heard_length - (size_t)(first - heard);
  for (uint64_t end = now_ms() + WAIT_MS; got < ALL && now_ms() < end; turn()) {
    size_t left = ALL - taken < sizeof body ? ALL - taken : sizeof body;
    ssize_t n = left ? send(d, body, left, MSG_NOSIGNAL) : 0;
    if (n > 0) taken += (size_t)n;
    hear_nothing_yet();
    int heard_now = hear_some(u);
    if (heard_now > 0) got += (size_t)heard_now;
  }
  assert_int_equal(got, ALL);
  say(u, OK(2, "hi"));
  hear(d, "hi");
  close(c), close(d), close(u);
  close_all();
}

/* Its slot is free while it waits to be tried again. */
static void test_retry_and_slots(void **state) {
  (void)state;
  open_all();
  guard.slots = 1;
  guard.wait_ms = ENDLESS;
  guard.attempts = 2;
  guard.retry_ms = 60;
  int c = dial_proxy(), d = dial_proxy();
  int u = ask_upstream(c, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
  say(u, BAD);
  turn_until(guard.reported == 1);
  say(d, GET);
  hear(u, "\r\n\r\n");
  assert_begins(heard, "GET / ");
  turn_for(80); /* it is time, but another one's turn */
  say(u, OK(2, "hi"));
  hear(d, "hi");
  hear(u, "\r\n\r\n");
  assert_begins(heard, "GET /first ");
  say(u, OK(2, "hi"));
  hear(c, "hi");
  assert_int_equal(guard.acquired, 3);
  close(c), close(d), close(u);
  close_all();
}

#define IT(title, function)                                                                        \
  { title, function, loop_open, loop_close, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("tries again what failed, an outcome each", test_tries_again),
      IT("answers what the last attempt came to", test_all_fail),
      IT("answers it, too, if the next one is refused (B103)", test_refused_later),
      IT("sends a body again whole, or not (B233)", test_bodies),
      IT("tries nothing again of which the client has seen a byte", test_streams),
      IT("drops an attempt that is to come when its client leaves", test_client_leaves),
      IT("waits as long as the guard says", test_waits),
      IT("keeps the client's deadline, and the policy's", test_deadline),
      IT("asks nobody for a client that has no time left", test_deadline_is_over),
      IT("tells the upstream what is left of it", test_deadline_goes_on),
      IT("tells it however often the client said it", test_deadline_many_times),
      IT("keeps it while the body is still to come", test_deadline_and_body),
      IT("tells the chain what is left of it", test_deadline_and_chain),
      IT("keeps it over all attempts and waits", test_deadline_of_attempts),
      IT("refuses what a bulkhead has no slot for", test_full),
      IT("serves those who wait for a slot in turn", test_queue),
      IT("passes over who leaves in his turn", test_leaves_in_turn),
      IT("finds the slots that a policy has more", test_queue_and_other_slots),
      IT("holds back the body of a request that waits", test_queue_and_body),
      IT("has no slot while it waits to try again", test_retry_and_slots),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
