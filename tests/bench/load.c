/* bench_load: HTTP requests at a fixed rate, whatever the server does.
 *
 *   bench_load HOST:PORT PATH RATE SECONDS CONNECTIONS
 *
 * Open loop: request i is due at i / RATE; its latency counts from there, also where no connection was free or this program was
 * late, so a server that stalls can't hide it.  Keep-alive, one request at a time on a connection.  The first second is not counted.
 * Prints: requests, errors (any answer but 2xx, or none), then the latency's percentiles in microseconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP_NS  1000000000
#define GRACE_NS    2000000000 /* for answers after the last request */
#define ANSWER_MOST 65536
#define EPOLL_MOST  64

typedef struct connection {
  int fd;
  bool busy;
  int64_t due_ns;
  size_t length;
  char answer[ANSWER_MOST + 1];
} connection;

static struct {
  struct sockaddr_in address;
  char request[1024];
  size_t request_length;
  int64_t start_ns, interval_ns, count;
  int64_t next, ended, errors;
  uint32_t *latency_us;
  size_t measured;
  connection *connections;
  int connection_count, epoll;
} load;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "bench_load: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* ---- connections ---- */

static void connection_open(connection *c) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&load.address, sizeof load.address) != 0)
    fail("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(load.epoll, EPOLL_CTL_ADD, c->fd, &event) != 0) fail("epoll_ctl");
  c->busy = false;
  c->length = 0;
}

static void connection_send(connection *c, int64_t due_ns) {
  c->busy = true;
  c->due_ns = due_ns;
  c->length = 0;
  if (send(c->fd, load.request, load.request_length, MSG_NOSIGNAL) != (ssize_t)load.request_length)
    fail("send");
}

static void connection_done(connection *c, bool is_good) {
  int64_t latency_ns = now_ns() - c->due_ns;
  if (!is_good) load.errors++;
  if (c->due_ns - load.start_ns >= WARM_UP_NS)
    load.latency_us[load.measured++] = (uint32_t)(latency_ns / 1000);
  load.ended++;
  c->busy = false;
}

/* ---- answers ---- */

/* The value of a header, or NULL; the answer ends in a zero byte. */
static const char *header(const char *answer, const char *end, const char *name) {
  size_t length = strlen(name);
  for (const char *line = strstr(answer, "\r\n"); line != NULL && line < end;
       line = strstr(line + 2, "\r\n"))
    if (strncasecmp(line + 2, name, length) == 0) return line + 2 + length;
  return NULL;
}

static bool answer_is_whole(const connection *c) {
  const char *head_end = strstr(c->answer, "\r\n\r\n");
  if (head_end == NULL) return false;
  const char *length = header(c->answer, head_end, "content-length:");
  size_t head = (size_t)(head_end + 4 - c->answer);
  if (length != NULL) return c->length >= head + strtoul(length, NULL, 10);
  return c->length >= 5 && memcmp(c->answer + c->length - 5, "0\r\n\r\n", 5) == 0;
}

static void connection_read(connection *c) {
  ssize_t got = recv(c->fd, c->answer + c->length, ANSWER_MOST - c->length, 0);
  if (got <= 0) { /* closed: an error if an answer was due */
    close(c->fd);
    if (c->busy) connection_done(c, false);
    connection_open(c);
    return;
  }
  c->length += (size_t)got;
  c->answer[c->length] = 0;
  if (answer_is_whole(c)) connection_done(c, c->length > 9 && c->answer[9] == '2');
}

/* ---- the run ---- */

static connection *free_connection(void) {
  for (int i = 0; i < load.connection_count; i++)
    if (!load.connections[i].busy) return &load.connections[i];
  return NULL;
}

static void send_due(void) {
  while (load.next < load.count) {
    int64_t due_ns = load.start_ns + load.next * load.interval_ns;
    if (due_ns > now_ns()) return;
    connection *c = free_connection();
    if (c == NULL) return;
    connection_send(c, due_ns);
    load.next++;
  }
}

/* Until the next request is due. */
static struct timespec wait_for(void) {
  int64_t left_ns = load.start_ns + load.next * load.interval_ns - now_ns();
  if (load.next >= load.count || free_connection() == NULL) left_ns = 10000000;
  if (left_ns < 0) left_ns = 0;
  return (struct timespec){left_ns / 1000000000, left_ns % 1000000000};
}

static void run(void) {
  load.start_ns = now_ns();
  int64_t give_up_ns = load.start_ns + load.count * load.interval_ns + GRACE_NS;
  while (load.ended < load.count && now_ns() < give_up_ns) {
    send_due();
    struct epoll_event events[EPOLL_MOST];
    struct timespec wait = wait_for();
    int n = epoll_pwait2(load.epoll, events, EPOLL_MOST, &wait, NULL);
    for (int i = 0; i < n; i++) connection_read(events[i].data.ptr);
  }
  load.errors += load.count - load.ended;
}

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void print(void) {
  static const double percentiles[] = {50, 90, 99, 99.9, 100};
  qsort(load.latency_us, load.measured, sizeof *load.latency_us, by_size);
  printf("requests\t%lld\nerrors\t%lld\n", (long long)load.count, (long long)load.errors);
  for (size_t i = 0; load.measured > 0 && i < sizeof percentiles / sizeof *percentiles; i++) {
    size_t rank = (size_t)((double)(load.measured - 1) * percentiles[i] / 100);
    printf("p%g\t%u\n", percentiles[i], load.latency_us[rank]);
  }
}

static void prepare(char **argv) {
  char host[64] = "";
  unsigned port = 0;
  if (sscanf(argv[1], "%63[^:]:%u", host, &port) != 2 ||
      inet_pton(AF_INET, host, &load.address.sin_addr) != 1) {
    fprintf(stderr, "bench_load: %s: must be an IPv4 address and a port, 127.0.0.1:8080\n",
            argv[1]);
    exit(2);
  }
  load.address.sin_family = AF_INET;
  load.address.sin_port = htons((uint16_t)port);
  load.request_length = (size_t)snprintf(load.request, sizeof load.request,
                                         "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", argv[2], argv[1]);
  double rate = atof(argv[3]), seconds = atof(argv[4]);
  load.interval_ns = (int64_t)(1e9 / rate);
  load.count = (int64_t)(rate * seconds);
  load.connection_count = atoi(argv[5]);
  load.latency_us = calloc((size_t)load.count, sizeof *load.latency_us);
  load.connections = calloc((size_t)load.connection_count, sizeof *load.connections);
  if (load.latency_us == NULL || load.connections == NULL) fail("memory");
  load.epoll = epoll_create1(0);
  for (int i = 0; i < load.connection_count; i++) connection_open(&load.connections[i]);
}

int main(int argc, char **argv) {
  prctl(PR_SET_TIMERSLACK, 1); /* wake up when asked to, not 50 us later */
  if (argc != 6) {
    fprintf(stderr, "usage: bench_load HOST:PORT PATH RATE SECONDS CONNECTIONS\n");
    return 2;
  }
  prepare(argv);
  run();
  print();
  return 0;
}
