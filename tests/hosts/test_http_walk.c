/* A random walk through the proxy: clients that ask, dawdle, pipeline nothing but leave at any
 * time, and an upstream that answers, dawdles, truncates, strays and hangs up.  Whatever happens:
 *
 *   - an answer is that of the request it is given for, whole, or it is seen to be cut off
 *   - every admitted call is reported exactly once
 *   - nothing is left over
 *
 * The seed is printed; NEAP_SEED=n does the same walk again. */
#include "http_guard.h"

#include <time.h>

#include "head.h"

enum { CLIENTS = 8, UPSTREAMS = 64, BODY_MAX = 70000, BUFFER = 2 * BODY_MAX, STEPS = 120000 };

typedef struct peer {
  int fd; /* -1: none */
  char in[BUFFER + 1], out[BUFFER];
  size_t in_length, out_length, out_at;
  size_t answer_end; /* upstream: bytes after it are stray; 0: there are none */
  bool asked;        /* client: waits for an answer */
  bool is_head;
  unsigned id;
  bool hangs_up, silent; /* upstream: after what it has to say; instead of it */
} peer;

static peer clients[CLIENTS], upstreams[UPSTREAMS];
static unsigned next_id;
static uint64_t random_state;
static struct { unsigned whole, replaced, errors, cut, left; } counts;

static unsigned below(unsigned n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(random_state >> 33) % n;
}

static bool one_in(unsigned n) { return below(n) == 0; }

/* ---- Both sides ------------------------------------------------------------------------------ */

static void peer_close(peer *p) {
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  p->in_length = p->out_length = p->out_at = 0;
  p->answer_end = 0;
  p->asked = p->hangs_up = p->silent = false;
}

static void add(peer *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  p->out_length += (size_t)vsnprintf(p->out + p->out_length, BUFFER - p->out_length, format, args);
  va_end(args);
}

/* A body: "ID:" and letters, up to n bytes; as it is, or in chunks of any size. */
static void add_body(peer *p, unsigned id, size_t n, bool chunked) {
  static char body[BODY_MAX];
  size_t head = (size_t)snprintf(body, sizeof body, "%u:", id);
  for (size_t i = head; i < n; i++) body[i] = (char)('a' + (i + id) % 26);
  for (size_t at = 0, part; at < n; at += part) {
    part = chunked ? 1 + below(one_in(3) ? 100 : BODY_MAX) : n;
    if (part > n - at) part = n - at;
    if (chunked) add(p, "%zx\r\n", part);
    memcpy(p->out + p->out_length, body + at, part);
    p->out_length += part;
    if (chunked) add(p, "\r\n");
    if (p->out_length > BUFFER - BODY_MAX / 8 && chunked) fail_msg("too many chunks");
  }
  if (chunked) add(p, "0\r\n\r\n");
}

static void require_body(const char *body, size_t n, unsigned id) {
  char head[16];
  size_t h = (size_t)snprintf(head, sizeof head, "%u:", id);
  if (n < h || memcmp(body, head, h)) fail_msg("%u got the answer of %.12s", id, body);
  for (size_t i = h; i < n; i++) {
    if (body[i] != (char)('a' + (i + id) % 26)) fail_msg("byte %zu of %u is wrong", i, id);
  }
}

static void peer_send(peer *p) {
  size_t n = p->out_length - p->out_at;
  if (!n) return;
  if (one_in(3)) n = 1 + below((unsigned)n);
  /* Stray bytes come with the end of the answer.  Later, with the next request on its way, they
   * would look like its answer to anybody. */
  if (p->answer_end && p->out_at + n >= p->answer_end) n = p->out_length - p->out_at;
  ssize_t sent = send(p->fd, p->out + p->out_at, n, MSG_NOSIGNAL);
  if (sent > 0) p->out_at += (size_t)sent;
}

/* Answers false if the other side has closed. */
static bool peer_hear(peer *p) {
  ssize_t n = recv(p->fd, p->in + p->in_length, BUFFER - p->in_length, 0);
  if (n > 0) p->in_length += (size_t)n;
  p->in[p->in_length] = '\0';
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS));
}

/* The message at the front of `in`: its body, decoded, into body[*length].  Answers how many bytes
 * it takes; 0: it is not complete. */
static size_t message(const peer *p, bool bodiless, char *body, size_t *length) {
  const char *end = strstr(p->in, "\r\n\r\n");
  *length = 0;
  if (!end) return 0;
  size_t head = (size_t)(end + 4 - p->in), at = head;
  const char *field = strcasestr(p->in, "\r\nContent-Length: ");
  if (bodiless) return head;
  if (field && field < end) {
    *length = strtoul(field + 18, NULL, 10);
    if (p->in_length < head + *length) return 0;
    memcpy(body, p->in + head, *length);
    return head + *length;
  }
  field = strcasestr(p->in, "\r\nTransfer-Encoding: chunked");
  if (!field || field > end) return head;
  http_chunks chunks = {0};
  for (;;) {
    size_t used = 0;
    http_slice piece;
    http_chunk_step step = http_chunks_next(&chunks, p->in + at, p->in_length - at, &used, &piece);
    at += used;
    if (step == HTTP_CHUNK_BAD) fail_msg("malformed chunks");
    if (step == HTTP_CHUNK_MORE) return 0;
    if (step == HTTP_CHUNK_END) return at;
    memcpy(body + *length, piece.data, piece.length);
    *length += piece.length;
  }
}

static void peer_take(peer *p, size_t n) {
  p->in_length -= n;
  memmove(p->in, p->in + n, p->in_length + 1);
}

/* ---- Clients --------------------------------------------------------------------------------- */

static void client_ask(peer *p) {
  static const char *const methods[] = {"GET", "GET", "HEAD", "DELETE", "PUT", "POST"};
  const char *method = methods[below(6)];
  bool body = *method == 'P', chunked = body && one_in(2);
  size_t n = body ? 12 + below(one_in(4) ? BODY_MAX - 12 : 500) : 0;
  p->id = ++next_id;
  p->asked = true;
  p->is_head = *method == 'H';
  p->out_length = p->out_at = 0;
  add(p, "%s /%u HTTP/1.1\r\nHost: a\r\n", method, p->id);
  if (body && one_in(5)) add(p, "Expect: 100-continue\r\n");
  if (chunked) add(p, "Transfer-Encoding: chunked\r\n");
  if (body && !chunked) add(p, "Content-Length: %zu\r\n", n);
  add(p, "\r\n");
  if (body) add_body(p, p->id, n, chunked);
}

static void client_check(peer *p, int status, const char *body, size_t n) {
  if (strstr(p->in, "\r\nNeap-Source: default")) {
    if (!p->is_head) assert_memory_equal(body, "standby", 7);
    counts.replaced++;
  } else if (strstr(p->in, "\r\nNeap-Source: primary")) {
    if (!p->is_head && status != 204 && status != 304) require_body(body, n, p->id);
    counts.whole++;
  } else {
    assert_true(status == 502 || status == 503 || status == 504);
    counts.errors++;
  }
}

static void client_hear(peer *p) {
  static char body[BUFFER];
  size_t n;
  bool open = peer_hear(p);
  for (size_t taken; p->asked && p->in_length > 12;) {
    int status = atoi(p->in + 9);
    bool bodiless = p->is_head || status < 200 || status == 204 || status == 304;
    if (!(taken = message(p, bodiless, body, &n))) break;
    if (status >= 200) {
      char *end = strstr(p->in, "\r\n\r\n");
      *end = '\0', end[1] = '\0';
      client_check(p, status, body, n);
      p->asked = false;
    }
    peer_take(p, taken);
  }
  if (open) return;
  counts.cut += p->asked;
  peer_close(p);
}

static void client_step(peer *p) {
  if (p->fd < 0) {
    p->fd = dial(http_server_port(server));
  } else if (one_in(500)) {
    counts.left += p->asked;
    peer_close(p);
  } else {
    if (!p->asked && p->out_at == p->out_length) client_ask(p);
    peer_send(p);
    client_hear(p);
  }
}

/* ---- Upstream -------------------------------------------------------------------------------- */

static void upstream_answer(peer *p, unsigned id, bool is_head) {
  static const int statuses[] = {200, 200, 200, 200, 204, 304, 404, 500, 503};
  int status = statuses[below(9)];
  size_t n = 12 + below(one_in(4) ? BODY_MAX - 12 : 300);
  bool chunked = one_in(2), bodiless = status == 204 || status == 304;
  p->out_length = p->out_at = p->answer_end = 0;
  p->silent = one_in(60);
  p->hangs_up = one_in(25);
  if (p->silent || (p->hangs_up && one_in(2))) return;
  add(p, "HTTP/1.1 %d Word\r\n", status);
  if (!bodiless && chunked) add(p, "Transfer-Encoding: chunked\r\n");
  if (!bodiless && !chunked) add(p, "Content-Length: %zu\r\n", n);
  add(p, "\r\n");
  if (!bodiless && !is_head) add_body(p, id, n, chunked);
  if (p->hangs_up) {
    p->out_length = 1 + below((unsigned)p->out_length);
  } else if (p->out_length < 1000 && one_in(15)) { /* in one segment */
    p->answer_end = p->out_length;
    add(p, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen");
  }
}

static void upstream_hear(peer *p) {
  static char body[BUFFER];
  size_t n, taken;
  bool open = peer_hear(p);
  const char *slash = strchr(p->in, '/');
  unsigned id = slash ? (unsigned)strtoul(slash + 1, NULL, 10) : 0;
  bool is_head = !strncmp(p->in, "HEAD", 4);
  if (p->out_at == p->out_length && !p->silent && (taken = message(p, false, body, &n))) {
    if (n) require_body(body, n, id); /* what arrives is what was sent, too */
    upstream_answer(p, id, is_head);
    peer_take(p, taken);
  }
  if (!open) peer_close(p);
}

static void upstream_step(peer *p) {
  if (p->fd < 0) {
    p->fd = accept4(upstream, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return;
  }
  peer_send(p);
  if (p->hangs_up && p->out_at == p->out_length) {
    peer_close(p);
  } else {
    upstream_hear(p);
  }
}

/* ---- The walk -------------------------------------------------------------------------------- */

static void walk_begin(void) {
  const char *seed = getenv("NEAP_SEED");
  random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
  print_message("NEAP_SEED=%llu\n", (unsigned long long)random_state);
  for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
  for (int i = 0; i < UPSTREAMS; i++) upstreams[i].fd = -1;
  open_with((proxy_options){.hold_ms = 5}, (http_limits){.queue_bytes = 20000, .linger_ms = 50});
  guard.timeout_ms = 60;
  guard.answer = (neap_answer){.status = 200, .body = "standby", .body_length = 7};
}

/* A policy with everything around a call, and another one every now and then. */
static void change_policy(void) {
  guard.attempts = below(4);
  guard.retry_ms = below(6);
  guard.slots = below(6);
  guard.wait_ms = one_in(3) ? 0 : below(30);
  guard.deadline_ms = one_in(2) ? 0 : 1 + below(100);
}

static void walk(bool has_layers) {
  walk_begin();
  for (int step = 0; step < STEPS; step++) {
    guard.source = one_in(3) ? "default" : NULL;
    if (has_layers && one_in(300)) change_policy();
    guard.refuses = has_layers && one_in(20);
    client_step(&clients[below(CLIENTS)]);
    for (int i = 0; i < 4; i++) upstream_step(&upstreams[below(UPSTREAMS)]);
    uv_run(&loop, UV_RUN_NOWAIT);
  }
  for (int i = 0; i < CLIENTS; i++) peer_close(&clients[i]);
  turn_until(stats()->active == 0);
  for (int i = 0; i < UPSTREAMS; i++) peer_close(&upstreams[i]);
  close_all();
  print_message("%u whole, %u replaced, %u errors, %u cut off, %u left\n", counts.whole,
                counts.replaced, counts.errors, counts.cut, counts.left);
  assert_true(counts.whole > 100 && counts.replaced && counts.errors && counts.left);
}

static void test_walk(void **state) {
  (void)state;
  walk(false);
}

static void test_layers(void **state) {
  (void)state;
  walk(true);
  assert_true(guard.full && guard.retries);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      {"gives everybody their own answer, whole or seen to be cut off", test_walk, loop_open,
       loop_close, NULL},
      {"does so with attempts, queues and deadlines, under policies that change", test_layers,
       loop_open, loop_close, NULL},
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
