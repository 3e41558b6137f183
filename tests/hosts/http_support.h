/* http_support.h: one loop, one thread, raw sockets on both sides.
 *
 * A test is a script: dial, say, hear.  Whoever has to wait for the program turns the loop
 * meanwhile, so nothing sleeps, and what comes next is decided by the test alone. */
#ifndef HTTP_SUPPORT_H
#define HTTP_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"

#define HEAR_MAX (256 * 1024)
#define WAIT_MS  10000 /* longer than any test should have to wait: then it has failed */

static uv_loop_t loop;
static char heard[HEAR_MAX + 1]; /* what hear() got last */
static size_t heard_length;

/* ---- Time ------------------------------------------------------------------------------------ */

static uv_timer_t tick;

static inline void on_tick(uv_timer_t *timer) { (void)timer; }

/* One turn of the loop, at most about a millisecond long. */
static inline void turn(void) {
  uv_timer_start(&tick, on_tick, 1, 1); /* repeats: it may run before the loop waits */
  uv_run(&loop, UV_RUN_ONCE);
  uv_timer_stop(&tick);
}

static inline uint64_t now_ms(void) { return uv_hrtime() / 1000000; }

static inline void turn_for(uint64_t ms) {
  for (uint64_t end = now_ms() + ms; now_ms() < end;) turn();
}

#define turn_until(condition)                                                                      \
  do {                                                                                             \
    uint64_t turn_end = now_ms() + WAIT_MS;                                                        \
    while (!(condition)) {                                                                         \
      turn();                                                                                      \
      if (now_ms() > turn_end) fail_msg("waited in vain for %s", #condition);                      \
    }                                                                                              \
  } while (0)

/* ---- Sockets --------------------------------------------------------------------------------- */

static inline int socket_of(int family) {
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  return fd;
}

static inline struct sockaddr_in loopback(const char *host, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  assert_int_equal(inet_pton(AF_INET, host, &a.sin_addr), 1);
  return a;
}

static inline int listen_at(const char *host, int port) {
  struct sockaddr_in a = loopback(host, port);
  int fd = socket_of(AF_INET), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(listen(fd, 4096), 0);
  return fd;
}

static inline int port_of(int fd) {
  struct sockaddr_in a;
  socklen_t n = sizeof a;
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
  return ntohs(a.sin_port);
}

static inline int dial(int port) {
  struct sockaddr_in a = loopback("127.0.0.1", port);
  int fd = socket_of(AF_INET), on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* what is said is heard now */
  if (connect(fd, (struct sockaddr *)&a, sizeof a)) assert_int_equal(errno, EINPROGRESS);
  return fd;
}

/* Accepts the connection that is coming. */
static inline int answer_call(int listener) {
  int fd = -1;
  turn_until((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
  return fd;
}

static inline bool is_calling(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static inline void say_bytes(int fd, const char *bytes, size_t length) {
  uint64_t end = now_ms() + WAIT_MS;
  while (length) {
    ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
    if (n > 0) {
      bytes += n;
      length -= (size_t)n;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return; /* nobody listens any more */
    }
    turn();
    if (now_ms() > end) fail_msg("nobody took what was said");
  }
}

static inline void say(int fd, const char *text) { say_bytes(fd, text, strlen(text)); }

/* How much somebody takes off our hands while nobody at the other end takes it off theirs. */
static inline size_t push_until_stuck(int fd, size_t at_most) {
  static char block[65536];
  size_t total = 0;
  for (uint64_t last = now_ms(); now_ms() - last < 150 && total < at_most;) {
    size_t n = at_most - total < sizeof block ? at_most - total : sizeof block;
    ssize_t sent = send(fd, block, n, MSG_NOSIGNAL);
    if (sent > 0) {
      total += (size_t)sent;
      last = now_ms();
    } else {
      turn();
    }
  }
  return total;
}

/* Reads what is there: > 0 bytes, 0 nothing yet, -1 the other side has closed. */
static inline int hear_some(int fd) {
  ssize_t n = recv(fd, heard + heard_length, HEAR_MAX - heard_length, 0);
  if (n > 0) {
    heard_length += (size_t)n;
    heard[heard_length] = '\0';
    return (int)n;
  }
  return n < 0 && (errno == EAGAIN || errno == EINPROGRESS || errno == ENOTCONN) ? 0 : -1;
}

static inline void hear_nothing_yet(void) { heard[heard_length = 0] = '\0'; }

/* Hears until what was heard ends with the text. */
static inline const char *hear(int fd, const char *ending) {
  size_t n = strlen(ending);
  uint64_t end = now_ms() + WAIT_MS;
  hear_nothing_yet();
  while (heard_length < n || memcmp(heard + heard_length - n, ending, n)) {
    int got = hear_some(fd);
    if (got < 0) fail_msg("closed before \"%s\", after: %s", ending, heard);
    if (!got) turn();
    if (now_ms() > end) fail_msg("waited in vain for \"%s\", heard: %s", ending, heard);
  }
  return heard;
}

/* Hears a head and `length` bytes after it.  Answers these. */
static inline const char *hear_message(int fd, size_t length) {
  uint64_t end = now_ms() + WAIT_MS;
  hear_nothing_yet();
  for (;;) {
    const char *body = strstr(heard, "\r\n\r\n");
    if (body && heard_length >= (size_t)(body + 4 - heard) + length) return body + 4;
    int got = hear_some(fd);
    if (got < 0) fail_msg("closed after %zu bytes: %s", heard_length, heard);
    if (!got) turn();
    if (now_ms() > end) fail_msg("waited in vain for %zu bytes after: %s", length, heard);
  }
}

/* Hears until the other side closes. */
static inline const char *hear_all(int fd) {
  uint64_t end = now_ms() + WAIT_MS;
  hear_nothing_yet();
  for (int got; (got = hear_some(fd)) >= 0;) {
    if (!got) turn();
    if (now_ms() > end) fail_msg("was not closed, heard: %s", heard);
  }
  return heard;
}

/* Hears nothing, for that long. */
static inline void hear_silence(int fd, uint64_t ms) {
  hear_nothing_yet();
  for (uint64_t end = now_ms() + ms; now_ms() < end;) {
    turn();
    if (hear_some(fd)) fail_msg("heard: %s", heard);
  }
}

static inline void assert_begins(const char *text, const char *beginning) {
  if (strncmp(text, beginning, strlen(beginning))) {
    fail_msg("expected \"%s\", got: %s", beginning, text);
  }
}

static inline void assert_holds(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("expected \"%s\" in: %s", part, text);
}

static inline void assert_lacks(const char *text, const char *part) {
  if (strcasestr(text, part)) fail_msg("did not expect \"%s\" in: %s", part, text);
}

static inline int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
  return n;
}

/* ---- Setting up ------------------------------------------------------------------------------ */

static inline int loop_open(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_IGN);
  return uv_loop_init(&loop) || uv_timer_init(&loop, &tick);
}

/* Whatever a test opened has to be closed: no handle may be left. */
static inline void on_walk(uv_handle_t *handle, void *data) {
  if (uv_is_closing(handle)) return;
  (*(int *)data)++;
  uv_close(handle, NULL);
}

static inline int loop_close(void **state) {
  int left = 0;
  (void)state;
  uv_close((uv_handle_t *)&tick, NULL);
  uv_walk(&loop, on_walk, &left);
  uv_run(&loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&loop), 0);
  return left;
}

#endif
