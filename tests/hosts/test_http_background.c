/* The proxy's calls that no client waits for (refreshes, queued calls made again), and clients that
 * wait for a queue, between a scripted client and a scripted upstream. */
#include "http_guard.h"

#define GET                   "GET /a HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"1\"\r\nX-Y: z\r\n\r\n"
#define POST                  "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\npie"
#define OK(body_length, body) "HTTP/1.1 200 OK\r\nContent-Length: " #body_length "\r\n\r\n" body
#define HEADER(name, value)                                                                        \
  { (name), sizeof(name) - 1, (value), sizeof(value) - 1 }

static void open_all(void) { open_with((proxy_options){0}, (http_limits){0}); }

static void has_answer(uint64_t refresh) {
  guard.has_answer = true;
  guard.refresh = refresh;
  guard.answer = (neap_answer){.status = 200, .body = "old", .body_length = 3, .age_ms = 4000};
}

/* ---- An answer before anybody is asked ------------------------------------------------------- */

static void test_at_once(void **state) {
  (void)state;
  open_all();
  has_answer(0);
  int c = dial_proxy();
  say(c, GET);
  hear(c, "\r\n\r\nold");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  assert_holds(heard, "\r\nNeap-Source: last_good\r\n");
  assert_holds(heard, "\r\nAge: 4\r\n");
  assert_false(is_calling(upstream));
  assert_int_equal(guard.acquired, 0);
  assert_int_equal(stats()->fallback, 1);
  close(c);
  close_all();
}

static void test_refresh(void **state) {
  (void)state;
  open_all();
  has_answer(7);
  int c = dial_proxy();
  say(c, GET);
  hear(c, "\r\n\r\nold");
  int u = answer_call(upstream);
  hear(u, "\r\n\r\n");
  assert_begins(heard, "GET /a HTTP/1.1\r\n");
  assert_holds(heard, "\r\nX-Y: z\r\n");
  assert_holds(heard, "\r\nHost: a\r\n");
  assert_lacks(heard, "If-None-Match"); /* 304 would be no answer for others */
  close(c);                             /* whoever asked is gone */
  turn_for(5);
  assert_int_equal(guard.refreshed, 0);
  say(u, OK(3, "new"));
  turn_until(guard.refreshed == 1);
  assert_int_equal(guard.remembered, 1);
  assert_memory_equal(guard.kept_body, "new", 3);
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  assert_int_equal(stats()->refreshed, 1);
  close(u);
  close_all();
}

static void test_refresh_fails(void **state) {
  (void)state;
  static const char *const answers[] = {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
                                        "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
                                        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
                                        "no HTTP at all\r\n\r\n"};
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    open_all();
    has_answer(7);
    int c = dial_proxy();
    say(c, GET);
    hear(c, "\r\n\r\nold");
    int u = answer_call(upstream);
    hear(u, "\r\n\r\n");
    say(u, answers[i]);
    close(u);
    turn_until(guard.refreshed == 1);
    assert_int_equal(guard.remembered, 0);
    assert_int_equal(guard.reported, 1);
    close(c);
    close_all();
  }
}

static void test_refresh_refused(void **state) {
  (void)state;
  open_all();
  has_answer(7);
  guard.refuses = true;
  int c = dial_proxy();
  say(c, GET);
  hear(c, "\r\n\r\nold");
  assert_int_equal(guard.refreshed, 1);
  assert_false(is_calling(upstream));
  close(c);
  close_all();
}

static void test_refresh_too_late(void **state) {
  (void)state;
  open_all();
  has_answer(7);
  guard.timeout_ms = 30;
  int c = dial_proxy();
  say(c, GET);
  hear(c, "\r\n\r\nold");
  int u = answer_call(upstream);
  turn_until(guard.refreshed == 1);
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  close(c), close(u);
  close_all();
}

/* ---- Queued calls made again ----------------------------------------------------------------- */

static void replay(const char *method, const char *body, const neap_header *headers, size_t count) {
  const neap_request request = {.method = method,
                                .target = "/orders?x",
                                .target_length = 9,
                                .headers = headers,
                                .header_count = count,
                                .body = body,
                                .body_length = body ? strlen(body) : 0};
  const neap_queued queued = {
      .guard = &guard, .key = "k", .key_length = 1, .id = "id7", .request = &request, .token = 42};
  proxy_replay(route, NULL, &queued);
}

static void test_replay(void **state) {
  (void)state;
  static const neap_header headers[] = {HEADER("Host", "shop"),
                                        HEADER("Transfer-Encoding", "chunked"),
                                        HEADER("Neap-Deadline-Ms", "50"), HEADER("X-Y", "z")};
  open_all();
  replay("POST", "pie", headers, 4);
  int u = answer_call(upstream);
  hear(u, "\r\n\r\npie");
  assert_begins(heard, "POST /orders?x HTTP/1.1\r\n");
  assert_holds(heard, "\r\nHost: shop\r\n");
  assert_holds(heard, "\r\nX-Y: z\r\n");
  assert_holds(heard, "\r\nIdempotency-Key: id7\r\n");
  assert_holds(heard, "\r\nContent-Length: 3\r\n");
  assert_lacks(heard, "chunked");
  assert_lacks(heard, "Deadline");
  assert_int_equal(guard.replayed, 0);
  say(u, OK(2, "hi"));
  turn_until(guard.outcomes[NEAP_SUCCESS] == 1);
  assert_string_equal(guard.key, "k");
  assert_int_equal(guard.remembered, 0);
  assert_int_equal(stats()->replayed, 1);
  close(u);
  close_all();
}

static neap_engine *const an_engine = (neap_engine *)&guard; /* never looked into */

static void replay_told(const char *method, const char *body) {
  static const neap_header headers[] = {HEADER("Host", "shop"), HEADER("idempotency-key", "mine")};
  const neap_request request = {.method = method,
                                .target = "/",
                                .target_length = 1,
                                .headers = headers,
                                .header_count = 2,
                                .body = body,
                                .body_length = body ? strlen(body) : 0};
  const neap_queued queued = {
      .guard = &guard, .key = "k", .key_length = 1, .id = "id7", .request = &request, .token = 42};
  proxy_replay(route, an_engine, &queued);
}

static void test_replay_verdicts(void **state) {
  (void)state;
  static const struct {
    const char *answer;
    neap_replay verdict;
    const char *reason;
  } cases[] = {
      {OK(0, ""), NEAP_REPLAY_DONE, "answered 200"},
      {"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n", NEAP_REPLAY_OWN, "answered 422"},
      {"HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n", NEAP_REPLAY_LATER, "answered 503"},
      {"", NEAP_REPLAY_LATER, "answered 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    open_all();
    replay_told("DELETE", NULL);
    int u = answer_call(upstream);
    hear(u, "\r\n\r\n");
    assert_begins(heard, "DELETE / HTTP/1.1\r\n");
    assert_holds(heard, "\r\nidempotency-key: mine\r\n"); /* the client's own */
    assert_lacks(heard, "id7");
    say(u, cases[i].answer);
    close(u);
    turn_until(guard.replayed == 1);
    assert_int_equal(guard.replay, cases[i].verdict);
    assert_int_equal(guard.replay_token, 42);
    assert_string_equal(guard.replay_reason, cases[i].reason);
    close_all();
  }
}

static void test_replay_refused(void **state) {
  (void)state;
  open_all();
  guard.refuses = true;
  replay_told("POST", "pie");
  assert_int_equal(guard.replayed, 1);
  assert_int_equal(guard.replay, NEAP_REPLAY_LATER);
  assert_int_equal(guard.replay_wait_ms, 1500);
  close_all();
}

static void test_close_under_way(void **state) {
  (void)state;
  open_all();
  replay_told("POST", "pie");
  int u = answer_call(upstream);
  close_all();
  assert_int_equal(guard.abandoned, 1);
  assert_int_equal(guard.replay, NEAP_REPLAY_LATER);
  close(u);
}

/* ---- Waiting for a queue --------------------------------------------------------------------- */

static int ask_queued(void) {
  open_all();
  guard.refuses = true;
  guard.source = "queue";
  guard.answer = (neap_answer){.status = 202, .body = "{\"id\":1}", .body_length = 8, .pending = 9};
  int c = dial_proxy();
  say(c, POST);
  turn_until(guard.kept);
  hear_silence(c, 20); /* nobody is told before it is so */
  assert_memory_equal(guard.asked_body, "pie", 3);
  return c;
}

static void test_kept(void **state) {
  (void)state;
  int c = ask_queued();
  guard.kept(guard.kept_data, true);
  hear(c, "{\"id\":1}");
  assert_begins(heard, "HTTP/1.1 202 Accepted\r\n");
  assert_holds(heard, "\r\nNeap-Source: queue\r\n");
  close(c);
  close_all();
}

static void test_not_kept(void **state) {
  (void)state;
  int c = ask_queued();
  guard.kept(guard.kept_data, false);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_holds(heard, "could not be put into its queue");
  close(c);
  close_all();
}

static void test_kept_too_late(void **state) {
  (void)state;
  open_all();
  guard.refuses = true;
  guard.source = "queue";
  guard.timeout_ms = 30;
  guard.answer = (neap_answer){.status = 202, .pending = 9};
  int c = dial_proxy();
  say(c, POST);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_null(guard.kept); /* taken back */
  close(c);
  close_all();
}

static void test_client_leaves(void **state) {
  (void)state;
  int c = ask_queued();
  close(c);
  turn_until(!guard.kept);
  assert_int_equal(stats()->aborted, 1);
  close_all();
}

/* ---- Another route's upstream ---------------------------------------------------------------- */

/* The chain has a stage that asks this very route, which nothing forbids; the first call fails. */
static int ask_elsewhere(const char *request, uint64_t within_ms) {
  open_all();
  proxy_serve(route);
  guard.source = "guard";
  guard.answer = (neap_answer){.elsewhere = guard.served, .pending = 9, .within_ms = within_ms};
  int c = dial_proxy();
  say(c, request);
  int up = answer_call(upstream);
  hear(up, "\r\n\r\n");
  say(up, "HTTP/1.1 500 No\r\nContent-Length: 3\r\nX-By: first\r\n\r\nbad");
  hear(up, "\r\n\r\n");
  guard.source = NULL;
  return c + up * 1000;
}

#define CLIENT(both)   ((both) % 1000)
#define UPSTREAM(both) ((both) / 1000)

static void close_both(int both) {
  close(CLIENT(both));
  close(UPSTREAM(both));
  close_all();
}

static void test_elsewhere(void **state) {
  (void)state;
  int both = ask_elsewhere(GET, 0);
  assert_holds(heard, "GET /a HTTP/1.1\r\n");
  assert_holds(heard, "If-None-Match: \"1\"\r\n"); /* it is the client's request, all of it */
  say(UPSTREAM(both), OK(5, "other"));
  hear(CLIENT(both), "other");
  assert_begins(heard, "HTTP/1.1 200 OK\r\n");
  assert_holds(heard, "\r\nNeap-Source: guard\r\n");
  assert_holds(heard, "\r\nCache-Control: no-store\r\n");
  assert_int_equal(stats()->lent, 1);
  assert_int_equal(guard.acquired, 2);
  close_both(both);
}

/* It answers with this head and a MiB. */
static int ask_elsewhere_large(const char *head) {
  int both = ask_elsewhere(GET, 0);
  char block[4096];
  memset(block, 'x', sizeof block);
  say(UPSTREAM(both), head);
  for (int left = 1 << 20; left; left -= (int)sizeof block)
    say_bytes(UPSTREAM(both), block, sizeof block);
  return both;
}

static void test_elsewhere_large(void **state) {
  (void)state;
  int both = ask_elsewhere_large("HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n");
  char block[4096];
  for (int left = 1 << 20; left > 0;) { /* and a head */
    ssize_t n = recv(CLIENT(both), block, sizeof block, 0);
    if (n > 0) left -= (int)n;
    turn();
  }
  close_both(both);
}

static void test_elsewhere_too_large(void **state) {
  (void)state;
  int both = ask_elsewhere_large("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\ny");
  hear(CLIENT(both), "bad"); /* as the first one had it */
  close_both(both);
}

/* With no answer there either the client gets the first one's, as it was. */
static void test_elsewhere_fails(void **state) {
  (void)state;
  int both = ask_elsewhere(GET, 0);
  say(UPSTREAM(both), "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno");
  hear(CLIENT(both), "bad");
  assert_begins(heard, "HTTP/1.1 500 No\r\n");
  assert_holds(heard, "\r\nX-By: first\r\n");
  assert_holds(heard, "\r\nNeap-Source: primary\r\n");
  assert_int_equal(guard.asked_again, 1);
  close_both(both);
}

static void test_elsewhere_late(void **state) {
  (void)state;
  int both = ask_elsewhere(GET, 30);
  hear(CLIENT(both), "bad");
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  close_both(both);
}

/* What the client's own deadline cuts off says nothing about the other upstream. */
static void test_elsewhere_too_late_for_the_client(void **state) {
  (void)state;
  int both = ask_elsewhere("GET /a HTTP/1.1\r\nHost: a\r\nNeap-Deadline-Ms: 60\r\n\r\n", 0);
  hear(CLIENT(both), "bad");
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  close_both(both);
}

static void test_elsewhere_refused(void **state) {
  (void)state;
  open_all();
  proxy_serve(route);
  guard.source = "guard";
  guard.refuses = true;
  guard.answer = (neap_answer){.elsewhere = guard.served, .pending = 9};
  int c = dial_proxy();
  say(c, GET);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 503 Service Unavailable\r\n");
  assert_holds(heard, "\"reason\":\"open\"");
  assert_holds(heard, "\r\nRetry-After: 2\r\n"); /* of the first one's breaker */
  close(c);
  close_all();
}

static void test_elsewhere_client_leaves(void **state) {
  (void)state;
  int both = ask_elsewhere(GET, 0);
  close(CLIENT(both));
  turn_until(guard.gone);
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  assert_int_equal(guard.asked_again, 0);
  close(UPSTREAM(both));
  close_all();
}

/* A call that was given up leaves nothing behind but what it was: late. */
static void test_elsewhere_after_timeout(void **state) {
  (void)state;
  open_all();
  proxy_serve(route);
  guard.source = "guard";
  guard.timeout_ms = 40;
  guard.answer = (neap_answer){.elsewhere = guard.served, .pending = 9};
  int c = dial_proxy();
  say(c, GET);
  int up = answer_call(upstream);
  turn_until(guard.acquired == 2);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 Gateway Timeout\r\n");
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 2);
  close(up);
  close(c);
  close_all();
}

/* The first answer is too large to be kept until it is known whether the chain has one. */
static void test_elsewhere_after_large(void **state) {
  (void)state;
  open_all();
  proxy_serve(route);
  guard.source = "guard";
  guard.answer = (neap_answer){.elsewhere = guard.served, .pending = 9};
  int c = dial_proxy();
  say(c, GET);
  int up = answer_call(upstream);
  say(up, "HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\nbad");
  int other = answer_call(upstream);
  hear(other, "\r\n\r\n");
  say(other, "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno");
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 502 Bad Gateway\r\n");
  assert_holds(heard, "could not be kept");
  close(up);
  close(other);
  close(c);
  close_all();
}

#define IT(title, test)                                                                            \
  { title, test, loop_open, loop_close, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("answers at once what the guard has, and asks nobody", test_at_once),
      IT("refreshes it behind the client's back", test_refresh),
      IT("keeps nothing of a refresh that fails", test_refresh_fails),
      IT("refreshes nothing that the breaker refuses", test_refresh_refused),
      IT("gives a refresh up at its deadline", test_refresh_too_late),
      IT("asks another route's upstream for a stage of the chain", test_elsewhere),
      IT("has a mebibyte from there", test_elsewhere_large),
      IT("has no more than that from there", test_elsewhere_too_large),
      IT("gives the first answer if there is none there", test_elsewhere_fails),
      IT("waits there no longer than the stage may take", test_elsewhere_late),
      IT("waits there no longer than the client", test_elsewhere_too_late_for_the_client),
      IT("says why it was refused if it is refused there, too", test_elsewhere_refused),
      IT("ends what it asks there when the client leaves", test_elsewhere_client_leaves),
      IT("says that it was late if it is late there, too", test_elsewhere_after_timeout),
      IT("has a problem for an error that was too large", test_elsewhere_after_large),
      IT("makes a queued call again as it was, with its id", test_replay),
      IT("tells what it came to, and leaves the client's own key", test_replay_verdicts),
      IT("tells when to try again, if the breaker refuses", test_replay_refused),
      IT("abandons it when the route is closed", test_close_under_way),
      IT("tells a client that its call is queued when that is so", test_kept),
      IT("answers 503 when it is not", test_not_kept),
      IT("answers 503 when that takes too long", test_kept_too_late),
      IT("forgets a client that leaves meanwhile", test_client_leaves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
