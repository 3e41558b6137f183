/* A probe whose client is slow to send its body: neither its slot nor its verdict is the client's to
 * keep. */
#include <sys/ioctl.h>

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

/* The socket of this process whose other end is `fd`. */
static int other_end(int fd) {
  struct sockaddr_in own, peer;
  socklen_t size = sizeof own;
  assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &size), 0);
  for (int i = 3; i < 1024; i++) {
    size = sizeof peer;
    if (getpeername(i, (struct sockaddr *)&peer, &size)) continue;
    if (peer.sin_family == AF_INET && peer.sin_port == own.sin_port) return i;
  }
  fail_msg("no other end");
  return -1;
}

static int unsent(int fd) {
  int n = 0;
  assert_int_equal(ioctl(fd, TIOCOUTQ, &n), 0);
  return n;
}

/* The client has sent all of it, the upstream takes no more for longer than half of the lease: the
 * rest waits here, and this is nobody's slowness but the upstream's. */
static void test_late_upstream(void **state) {
  int small = 4096;
  (void)state;
  open_probing(6000, 5000);
  uint64_t begin = now_ms();
  setsockopt(upstream, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  int c = dial_proxy();
  say(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  say(c, "186a0\r\n"), say_bytes(c, half, sizeof half), say(c, "\r\n");
  int u = answer_call(upstream), sends = other_end(u), same = 0;
  for (int before = -1; same < 3;
       before = unsent(sends)) { /* a few kB over what the kernel takes */
    say(c, "4000\r\n"), say_bytes(c, half, 0x4000), say(c, "\r\n");
    for (int i = 0; i < 3; i++) turn();
    same = unsent(sends) == before ? same + 1 : 0;
  }
  say(c, "0\r\n\r\n");
  turn_for(50);
  assert_int_equal(guard.reported, 0);
  assert_in_range(now_ms() - begin, 0, 2900); /* or this machine is too slow for this test */
  turn_for(3000);
  assert_int_equal(guard.reported, 0);
  bool is_last = false;
  for (uint64_t end = now_ms() + 5000; !is_last && now_ms() < end; turn()) {
    hear_nothing_yet();
    hear_some(u);
    is_last = heard_length >= 5 && !memcmp(heard + heard_length - 5, "0\r\n\r\n", 5);
  }
  assert_true(is_last);
  say(u, OK);
  hear(c, "\r\n\r\nok");
  assert_int_equal(guard.outcomes[NEAP_SUCCESS], 1);
  close(c), close(u);
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
      IT("counts an upstream that is slow to take a body that is all there", test_late_upstream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
