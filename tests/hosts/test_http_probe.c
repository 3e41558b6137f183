/* A probe whose client is slow to send its body: neither its slot nor its verdict is the client's to
 * keep. */
#include "http_guard.h"

/* Half-open, with that lease; a client may stand still for body_ms. */
static void open_probing(uint32_t lease_ms, uint32_t body_ms) {
  open_with((proxy_options){0}, (http_limits){.body_ms = body_ms});
  guard.probes = true;
  guard.lease_ms = lease_ms;
}

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
      IT("counts an upstream that is slow to answer a probe with a body", test_slow_upstream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
