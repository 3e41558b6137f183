/* The webhook's limit on an answer: ten seconds for all of it, which nobody here waits for.  The
 * timer says when it is due; uv_timer_again() has it run at once. */
#include "lua/engine/cmd/token.c"
#include "lua/engine/cmd/webhook.c"

#include "http_support.h" /* its fail() is cmocka's */

static serve s;
static uv_prepare_t turns; /* the serve's loop with ours */
static webhook *w;
static int listener, tolds, told_status;
static char told_error[CURL_ERROR_SIZE];

static void on_turn(uv_prepare_t *handle) {
  (void)handle;
  uv_run(&s.loop, UV_RUN_NOWAIT);
}

static void on_told(void *data, int status, const char *error) {
  assert_ptr_equal(data, &s);
  tolds++;
  told_status = status;
  snprintf(told_error, sizeof told_error, "%s", error);
}

static int open_all(void **state) {
  static char origin[64];
  char error[256];
  if (loop_open(state) || uv_loop_init(&s.loop) || uv_prepare_init(&loop, &turns)) return 1;
  uv_prepare_start(&turns, on_turn);
  listener = listen_at("127.0.0.1", 0);
  snprintf(origin, sizeof origin, "http://127.0.0.1:%d", port_of(listener));
  s.plan.webhook = (plan_webhook){.origin = origin, .host = origin + 7, .target = "/neap"};
  tolds = 0;
  return !webhook_open(&s, on_told, &w, error, sizeof error);
}

static int close_all(void **state) {
  webhook_close(w);
  turn_until(!uv_loop_alive(&s.loop));
  assert_int_equal(uv_loop_close(&s.loop), 0);
  close(listener);
  uv_close((uv_handle_t *)&turns, NULL);
  return loop_close(state);
}

/* Posts an event.  Answers the receiver's end of the connection, where all of it was heard, and when
 * it was posted. */
static int post(const char *id, uint64_t *at_ms) {
  *at_ms = uv_now(&s.loop);
  webhook_post(w, id, "{}", 2);
  int fd = answer_call(listener);
  assert_string_equal(hear_message(fd, 2), "{}");
  return fd;
}

static uint64_t due_ms(void) {
  assert_true(uv_is_active((uv_handle_t *)&w->timer));
  return uv_now(&s.loop) + uv_timer_get_due_in(&w->timer);
}

static void pass_the_time(void) {
  uv_timer_set_repeat(&w->timer, 1);
  uv_timer_again(&w->timer);
  turn_until(tolds);
}

static void assert_late(int fd) {
  turn_for(5);
  assert_int_equal(tolds, 1);
  assert_int_equal(told_status, 0);
  assert_string_equal(told_error, "no answer within 10 s");
  hear_all(fd); /* it was hung up on */
  close(fd);
}

static void test_silent(void **state) {
  uint64_t at_ms;
  (void)state;
  int fd = post("a-1", &at_ms);
  assert_int_equal(due_ms(), at_ms + 10000);
  pass_the_time();
  assert_late(fd);

  /* The same again, by a connection that is new; what is late is not told. */
  tolds = 0;
  fd = post("a-1", &at_ms);
  assert_holds(heard, "\r\nNeap-Event-Id: a-1\r\n");
  assert_int_equal(due_ms(), at_ms + 10000);
  say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  turn_until(tolds);
  assert_int_equal(told_status, 200);
  turn_for(5);
  assert_int_equal(tolds, 1);
  assert_false(uv_is_active((uv_handle_t *)&w->timer));
  close(fd);
}

/* Whoever says a little from time to time has no more time for it. */
static void test_slow(void **state) {
  static const char *const pieces[] = {"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n",
                                       "Content-Length: 5\r\n\r\n", "than"};
  uint64_t at_ms;
  (void)state;
  int fd = post("a-1", &at_ms);
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    say(fd, pieces[i]);
    turn_for(5);
    assert_int_equal(due_ms(), at_ms + 10000);
  }
  assert_int_equal(tolds, 0);
  pass_the_time();
  assert_late(fd);
}

static void test_closed_meanwhile(void **state) {
  uint64_t at_ms;
  (void)state;
  int fd = post("a-1", &at_ms);
  webhook_close(w);
  hear_all(fd);
  turn_until(!uv_loop_alive(&s.loop));
  assert_int_equal(tolds, 0);
  close(fd);
  w = NULL;
}

#define IT(title, test)                                                                            \
  { title, test, open_all, close_all, NULL }

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("has no answer after ten seconds, hangs up, and takes the next", test_silent),
      IT("waits no longer for an answer that comes in pieces", test_slow),
      IT("waits for none when it is closed", test_closed_meanwhile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
