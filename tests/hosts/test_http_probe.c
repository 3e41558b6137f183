/* A probe whose client is slow to send its body: neither its slot nor its verdict is the client's to
 * keep. */
#include "http_guard.h"

/* Half-open, with that lease; a client may stand still for body_ms. */
static void open_probing(uint32_t lease_ms, uint32_t body_ms) {
  open_with((proxy_options){0}, (http_limits){.body_ms = body_ms});
  guard.probes = true;
  guard.lease_ms = lease_ms;
}

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static char half[100000];

/* Sends half of a body, and waits until the upstream has it. */
static int upload_half(int *client) {
  *client = dial_proxy();
  say(*client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
  say_bytes(*client, half, sizeof half);
  int u = answer_call(upstream);
  hear_message(u, sizeof half);
  return u;
}

static void hear_bytes(int fd, size_t left) {
  hear_nothing_yet();
  turn_until(hear_some(fd) >= 0 && heard_length >= left);
}

static void assert_given_back(void) {
  assert_int_equal(guard.outcomes[NEAP_NEUTRAL], 1);
  assert_int_equal(guard.last.ended_by, NEAP_ENDED_CALLER);
}

/* Its client sends nothing more: the slot is free long before the lease is over, and the upstream
 * is left when the client is told. */
static void test_stalled(void **state) {
  int c;
  (void)state;
  open_probing(400, 600);
  uint64_t begin = now_ms();
  int u = upload_half(&c);
  turn_until(guard.reported);
  assert_in_range(now_ms() - begin, 150, 390);
  assert_given_back();
  hear_all(c);
  assert_begins(heard, "HTTP/1.1 408 ");
  hear_all(u); /* is let go, too */
  assert_int_equal(guard.reported, 1);
  close(c), close(u);
  close_all();
}

/* One that is only slow loses the slot, not its answer; whatever that is, it does not count. */
static void test_slow(void **state) {
  int c;
  (void)state;
  open_probing(300, 5000);
  int u = upload_half(&c);
  for (int i = 0; i < 25; i++) { /* a byte now and then puts nothing off */
    say(c, "x");
    turn_for(10);
  }
  assert_int_equal(guard.reported, 1);
  assert_given_back();
  say_bytes(c, half, sizeof half - 25);
  hear_bytes(u, sizeof half);
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno");
  hear(c, "\r\n\r\nno");
  assert_begins(heard, "HTTP/1.1 500 Oh\r\n");
  assert_int_equal(guard.reported, 1);
  assert_int_equal(guard.asked, 0);
  close(c), close(u);
  close_all();
}

/* Nor does the chain answer for a call that is not the guard's any more, though the whole body is
 * there to be shown to it. */
static void test_slow_and_small(void **state) {
  (void)state;
  open_probing(100, 5000);
  guard.source = "default";
  guard.answer = (neap_answer){.status = 200, .body = "standby", .body_length = 7};
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  hear(c, "\r\n\r\n");
  turn_until(guard.reported);
  assert_given_back();
  say(c, "hello");
  int u = answer_call(upstream);
  hear(u, "hello");
  say(u, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno");
  hear(c, "\r\n\r\nno");
  assert_begins(heard, "HTTP/1.1 500 Oh\r\n");
  assert_int_equal(guard.asked, 0);
  close(c), close(u);
  close_all();
}

/* That the client has stalled may show only later: while the upstream takes no more, it is not the
 * client's turn. */
static void test_stalled_behind(void **state) {
  int small = 4096;
  (void)state;
  open_probing(200, 5000);
  setsockopt(upstream, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
  int u = answer_call(upstream);
  assert_true(push_until_stuck(c, 50000000) < 50000000); /* for longer than half of the lease */
  assert_int_equal(guard.reported, 0);
  for (uint64_t end = now_ms() + 2000; !guard.reported && now_ms() < end; turn()) {
    hear_nothing_yet();
    hear_some(u);
  }
  assert_given_back();
  close(c), close(u);
  close_all();
}

/* Who has sent all of its body at once has no such deadline, nor has who is no probe. */
static void test_not_late(void **state) {
  (void)state;
  open_probing(1, 5000);
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
  int u = answer_call(upstream);
  hear(u, "hi");
  say(u, OK);
  hear(c, "\r\n\r\nok");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  guard.probes = false;
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
  say_bytes(c, half, sizeof half);
  hear_message(u, sizeof half);
  turn_for(20);
  assert_int_equal(guard.reported, 1);
  say_bytes(c, half, sizeof half);
  hear_bytes(u, sizeof half);
  say(u, OK);
  hear(c, "\r\n\r\nok");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 2);
  close(c), close(u);
  close_all();
}

/* The upstream's own slowness stays what it is, and so does that of a body that is all there. */
static void test_slow_upstream(void **state) {
  (void)state;
  open_probing(200, 5000);
  guard.timeout_ms = 150;
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
  say_bytes(c, half, sizeof half);
  say_bytes(c, half, sizeof half);
  turn_until(guard.reported);
  assert_int_equal(guard.outcomes[NEAP_TIMEOUT], 1);
  hear(c, "}\n");
  assert_begins(heard, "HTTP/1.1 504 ");
  close(c);
  close_all();
}

int main(void) {
#define IT(text, test)                                                                             \
  { text, test, loop_open, loop_close, NULL }
  const struct CMUnitTest tests[] = {
      IT("gives the slot of a probe back whose client has stalled", test_stalled),
      IT("gives the slot of a probe back whose client is slow, and answers it", test_slow),
      IT("answers whom it gave back as the upstream did", test_slow_and_small),
      IT("sees that a client has stalled when the upstream goes on", test_stalled_behind),
      IT("waits for no body that is there, and for nobody's but a probe's", test_not_late),
      IT("counts an upstream that is slow to answer a probe with a body", test_slow_upstream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
