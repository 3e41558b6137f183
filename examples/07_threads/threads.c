/* The core alone in a blocking program: eight threads, plain sockets, one breaker for all of them.
 *
 *   cc threads.c $(pkg-config --cflags --libs neap) -pthread */
#include <neap/neap.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 8, CALLS = 50, FAILURES = 5, TIMEOUT_MS = 500 };

/* ---- The client: what a program would take over ----------------------------------------------- */

typedef struct dependency {
  neap_breaker breaker; /* zero: closed.  For any number of threads, without a lock */
  neap_rules rules;     /* prepared once, then only read */
  neap_clock clock;
  struct sockaddr_in address;
} dependency;

/* One call without protection: a line of answer, or false. */
static bool call(const dependency *d, char *line, size_t size) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return false;
  /* A breaker can't end a call that hangs.  The send timeout is that of connect(), too. */
  struct timeval timeout = {.tv_usec = TIMEOUT_MS * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  ssize_t n = -1;
  if (!connect(fd, (const struct sockaddr *)&d->address, sizeof d->address))
    n = recv(fd, line, size - 1, MSG_WAITALL);
  close(fd);
  if (n <= 0) return false;
  line[n] = 0;
  return true;
}

/* Of all threads, only the one that caused a transition is told of it. */
static void tell(const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING) return;
  printf("  %s -> %s by %s\n", neap_state_name(moved->from), neap_state_name(moved->to),
         neap_cause_name(moved->cause));
}

typedef enum { ANSWERED, FAILED, REFUSED } how;

static how guarded_call(dependency *d, char *line, size_t size) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit;
  neap_verdict verdict =
      neap_breaker_acquire_on(&d->breaker, &d->rules, &d->clock, &permit, &moved);
  tell(&moved);
  if (verdict > NEAP_ALLOW_BYPASS) return REFUSED;

  uint64_t began_ms = d->clock.now_ms(d->clock.context);
  bool ok = call(d, line, size);
  uint64_t took_ms = d->clock.now_ms(d->clock.context) - began_ms;

  neap_call came_to = {.outcome = ok ? NEAP_SUCCESS : NEAP_FAILURE, .duration_ms = took_ms};
  moved.cause = NEAP_BY_NOTHING;
  neap_breaker_report_on(&d->breaker, &d->rules, &d->clock, &permit, &came_to, &moved);
  tell(&moved);
  return ok ? ANSWERED : FAILED;
}

/* ---- The rest is the play ---------------------------------------------------------------------- */

static void require(bool ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static atomic_bool is_up = true;

/* The dependency: says hello, or when it is down hangs up without a word. */
static void *serve(void *listener) {
  for (int fd; (fd = accept(*(int *)listener, NULL, NULL)) >= 0; close(fd))
    if (is_up) send(fd, "hello\n", 6, MSG_NOSIGNAL);
  return NULL;
}

static atomic_int counts[3]; /* by how */

static void *work(void *data) {
  char line[64];
  for (int i = 0; i < CALLS; i++) counts[guarded_call(data, line, sizeof line)]++;
  return NULL;
}

static void all_at_once(dependency *d) {
  pthread_t threads[THREADS];
  for (int i = 0; i < 3; i++) counts[i] = 0;
  for (int i = 0; i < THREADS; i++)
    require(!pthread_create(&threads[i], NULL, work, d), "pthread_create");
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  static uint64_t now_ms; /* moved by hand, so that nothing here waits: else neap_clock_precise() */
  static dependency d = {.address = {.sin_family = AF_INET}};
  d.clock = neap_clock_manual(&now_ms);
  d.rules = neap_rules_default();
  d.rules.consecutive_failures = FAILURES;
  d.rules.timeout_ms = TIMEOUT_MS;
  d.rules.jitter = 0;
  neap_error error;
  if (!neap_rules_prepare(&d.rules, &error)) {
    fprintf(stderr, "%s %s\n", error.field, error.expected);
    return 1;
  }

  int listener = socket(AF_INET, SOCK_STREAM, 0);
  socklen_t length = sizeof d.address;
  d.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  require(!bind(listener, (struct sockaddr *)&d.address, length), "bind");
  require(!getsockname(listener, (struct sockaddr *)&d.address, &length), "getsockname");
  require(!listen(listener, THREADS), "listen");
  pthread_t server;
  require(!pthread_create(&server, NULL, serve, &listener), "pthread_create");

  puts("up");
  all_at_once(&d);
  printf("  %d answered\n", counts[ANSWERED]);

  puts("down");
  is_up = false;
  all_at_once(&d);
  /* Calls under way when it opens still fail. */
  bool is_bounded = counts[FAILED] >= FAILURES && counts[FAILED] <= FAILURES - 1 + THREADS;
  printf("  %s of %d were made\n", is_bounded ? "5 to 12" : "too few or too many", THREADS * CALLS);

  puts("up again");
  is_up = true;
  now_ms = neap_breaker_next_ms(&d.breaker, &d.rules, now_ms);
  all_at_once(&d);

  shutdown(listener, SHUT_RDWR);
  pthread_join(server, NULL);
  close(listener);
  return 0;
}

/* prints
up
  400 answered
down
  closed -> open by consecutive_failures
  5 to 12 of 400 were made
up again
  open -> half_open by cooldown
  half_open -> closed by probes
*/
