/* pool.c: one curl multi handle on the loop; see client.h.
 *
 * curl tells which sockets to watch (on_socket) and when to be called at the latest (on_timeout).
 * http_pool_run() is the only place that lets curl work: it adds what waits, and takes out what has
 * ended, until there is nothing more to do.
 *
 * When a transfer ends curl forgets about its socket, until the next one takes it.  The watch on a
 * plain HTTP/1.1 connection is kept all the same: it saves two system calls for each request, and
 * anything that happens on an idle connection (closed, or bytes nobody asked for) is a reason never
 * to use it again. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct pool_socket {
  uv_poll_t poll;
  http_pool *pool;
  curl_socket_t fd;
  int events;  /* watched now */
  bool idle;   /* no transfer uses it */
  int spoiled; /* its local port, if it must not be used again */
} pool_socket;

static void pool_run(http_pool *pool);

/* ---- Ending ---------------------------------------------------------------------------------- */

static void pool_handle_closed(http_pool *pool) {
  if (--pool->handles) return;
  http_upstream *upstream = pool->upstream;
  http_upstream_pool_gone(upstream, pool);
  curl_slist_free_all(pool->resolve);
  free(pool->sockets);
  free(pool);
}

static void on_timer_closed(uv_handle_t *handle) { pool_handle_closed(handle->data); }

static void pool_settle(http_pool *pool) {
  if (!pool->retired || pool->active || pool->running || !pool->multi) return;
  curl_multi_cleanup(pool->multi); /* closes its connections, by http_pool_socket_close() */
  pool->multi = NULL;
  uv_close((uv_handle_t *)&pool->timer, on_timer_closed);
}

void http_pool_retire(http_pool *pool) {
  pool->retired = true;
  pool_settle(pool);
}

/* ---- Sockets --------------------------------------------------------------------------------- */

static void on_socket_closed(uv_handle_t *handle) {
  pool_socket *s = handle->data;
  http_pool *pool = s->pool;
  free(s);
  pool_handle_closed(pool);
}

static pool_socket *socket_at(http_pool *pool, curl_socket_t fd) {
  return (size_t)fd < pool->socket_capacity ? pool->sockets[fd] : NULL;
}

static pool_socket *socket_watch(http_pool *pool, curl_socket_t fd) {
  if ((size_t)fd >= pool->socket_capacity) {
    size_t capacity = (size_t)fd + 64;
    pool_socket **grown = realloc(pool->sockets, capacity * sizeof *grown);
    if (!grown) abort();
    for (size_t i = pool->socket_capacity; i < capacity; i++) grown[i] = NULL;
    pool->sockets = grown;
    pool->socket_capacity = capacity;
  }
  pool_socket *s = calloc(1, sizeof *s);
  if (!s) abort();
  s->pool = pool;
  s->fd = fd;
  s->poll.data = s;
  if (uv_poll_init_socket(pool->upstream->loop, &s->poll, fd)) {
    free(s);
    return NULL;
  }
  pool->handles++;
  pool->sockets[fd] = s;
  return s;
}

static void socket_forget(http_pool *pool, pool_socket *s) {
  pool->sockets[s->fd] = NULL;
  if (s->spoiled) pool->spoiled--;
  uv_close((uv_handle_t *)&s->poll, on_socket_closed);
}

static void on_socket_event(uv_poll_t *poll, int status, int events) {
  pool_socket *s = poll->data;
  http_pool *pool = s->pool;
  if (s->idle) {
    http_pool_spoil(pool, s->fd);
    return;
  }
  int running, what = 0;
  if (events & UV_READABLE) what |= CURL_CSELECT_IN;
  if (events & UV_WRITABLE) what |= CURL_CSELECT_OUT;
  if (status < 0) {
    /* Reset, perhaps behind an answer that is still to be read.  Reading comes upon the error
     * itself, in the end; till then the watch, which libuv has taken away, has to go on. */
    what = CURL_CSELECT_IN;
    uv_poll_start(poll, s->events, on_socket_event);
  }
  pool->running = true;
  curl_multi_socket_action(pool->multi, s->fd, what, &running);
  pool->running = false;
  pool_run(pool);
}

static void socket_poll(pool_socket *s, int events) {
  if (s->events == events) return;
  s->events = events;
  if (events) {
    uv_poll_start(&s->poll, events, on_socket_event);
  } else {
    uv_poll_stop(&s->poll);
  }
}

static int local_port_of(curl_socket_t fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
  return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                       : ((struct sockaddr_in *)&a)->sin_port);
}

/* curl looks before it uses a connection again, but does not take every sign for one: so the port
 * is written down, by which on_connected() knows it. */
void http_pool_spoil(http_pool *pool, curl_socket_t fd) {
  pool_socket *s = socket_at(pool, fd);
  if (s && !s->spoiled) {
    socket_poll(s, 0);
    s->spoiled = local_port_of(fd);
    if (s->spoiled) pool->spoiled++;
  }
  shutdown(fd, SHUT_RDWR);
}

bool http_pool_is_spoiled(const http_pool *pool, int local_port) {
  for (size_t i = 0; pool->spoiled && i < pool->socket_capacity; i++) {
    if (pool->sockets[i] && pool->sockets[i]->spoiled == local_port) return true;
  }
  return false;
}

/* Bytes, or the end of them.  curl reads no further than an answer's end, and does not look for
 * more before it uses the connection again, which can be before the loop has told of them. */
static bool socket_has_input(curl_socket_t fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Its transfer has ended, or does not want any more for now, or it never came to be a connection;
 * the last curl may close without a word, or has done so. */
static void socket_release(http_pool *pool, pool_socket *s, CURL *easy) {
  http_transfer *t = NULL;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &t);
  if (!t || !t->head_done) {
    socket_forget(pool, s);
    return;
  }
  /* TLS and HTTP/2 have things to say between answers */
  s->idle = !t->paused && !pool->upstream->tls && !pool->upstream->options.http2;
  socket_poll(s, s->idle ? UV_READABLE : 0);
  if (s->idle && socket_has_input(s->fd)) http_pool_spoil(pool, s->fd);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *unused) {
  http_pool *pool = data;
  pool_socket *s = socket_at(pool, fd);
  (void)unused;
  if (what == CURL_POLL_REMOVE) {
    if (s) socket_release(pool, s, easy);
    return 0;
  }
  if (!s && !(s = socket_watch(pool, fd))) return -1;
  s->idle = false;
  socket_poll(s,
              (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0));
  return 0;
}

int http_pool_socket_close(void *data, curl_socket_t fd) {
  http_pool *pool = data;
  pool_socket *s = socket_at(pool, fd);
  if (s) socket_forget(pool, s);
  return close(fd);
}

/* ---- Working --------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer) {
  http_pool *pool = timer->data;
  pool->kicked = true;
  pool_run(pool);
}

static int on_timeout(CURLM *multi, long ms, void *data) {
  http_pool *pool = data;
  (void)multi;
  if (ms < 0) {
    uv_timer_stop(&pool->timer);
  } else if (ms == 0 && pool->running) {
    pool->kicked = true; /* pool_run() is further up the stack */
  } else {
    uv_timer_start(&pool->timer, on_timer, (uint64_t)ms, 0);
  }
  return 0;
}

static void pool_take_in(http_pool *pool) {
  while (pool->pending) {
    http_transfer *t = pool->pending;
    pool->pending = t->next;
    t->waiting = false;
    t->added = true;
    curl_multi_add_handle(pool->multi, t->easy);
    pool->kicked = true;
  }
  pool->pending_end = &pool->pending;
}

static void pool_bury(http_pool *pool) {
  while (pool->cancelled) {
    http_transfer *t = pool->cancelled;
    pool->cancelled = t->next;
    http_pool_remove(pool, t);
    http_transfer_free(t);
  }
}

static void pool_hand_out(http_pool *pool) {
  int left;
  CURLMsg *message;
  pool_bury(pool);
  while ((message = curl_multi_info_read(pool->multi, &left))) {
    if (message->msg != CURLMSG_DONE) continue;
    http_transfer *t;
    CURLcode code = message->data.result;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
    if (!t->cancelled) http_transfer_ended(t, code);
    pool_bury(pool);
  }
}

static void pool_run(http_pool *pool) {
  if (pool->running || !pool->multi) return;
  pool->running = true;
  /* A bound, so that one pool cannot keep the loop for itself. */
  for (int round = 0; round < 16; round++) {
    int running;
    pool_hand_out(pool);
    pool_take_in(pool);
    if (!pool->kicked) break;
    pool->kicked = false;
    curl_multi_socket_action(pool->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  pool_hand_out(pool);
  if (pool->kicked || pool->pending) uv_timer_start(&pool->timer, on_timer, 0, 0);
  pool->running = false;
  pool_settle(pool);
}

/* curl may call back from inside curl_easy_pause(), as it does at work. */
void http_pool_unpause(http_pool *pool, http_transfer *t) {
  bool running = pool->running;
  pool->running = true;
  curl_easy_pause(t->easy, CURLPAUSE_CONT);
  pool->running = running;
  pool->kicked = true;
  pool_run(pool);
}

void http_pool_add(http_pool *pool, http_transfer *t) {
  t->pool = pool;
  t->waiting = true;
  t->next = NULL;
  *pool->pending_end = t;
  pool->pending_end = &t->next;
  pool->active++;
  http_transfer_prepare(t);
  pool_run(pool);
}

void http_pool_remove(http_pool *pool, http_transfer *t) {
  if (t->waiting) {
    http_transfer **at = &pool->pending;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!*at) pool->pending_end = at;
    t->waiting = false;
  }
  if (t->added) curl_multi_remove_handle(pool->multi, t->easy);
  t->added = false;
  pool->active--;
  t->pool = NULL;
  pool_settle(pool);
}

void http_pool_cancel(http_pool *pool, http_transfer *t) {
  if (pool->running && t->added) {
    t->next = pool->cancelled;
    pool->cancelled = t;
  } else {
    http_pool_remove(pool, t);
    http_transfer_free(t);
  }
}

/* ---- Making ---------------------------------------------------------------------------------- */

http_pool *http_pool_new(http_upstream *upstream, const char *addresses) {
  http_pool *pool = calloc(1, sizeof *pool);
  if (!pool || !(pool->multi = curl_multi_init())) abort();
  pool->upstream = upstream;
  pool->generation = ++upstream->generation;
  pool->pending_end = &pool->pending;
  pool->handles = 1;
  uv_timer_init(upstream->loop, &pool->timer);
  pool->timer.data = pool;
  if (addresses) {
    http_bytes b = {0};
    char port[16];
    uv_buf_t parts[] = {
        {upstream->host, strlen(upstream->host)},
        {port, (size_t)snprintf(port, sizeof port, ":%d:", upstream->port)},
        {(char *)(uintptr_t)addresses, strlen(addresses) + 1},
    };
    for (size_t i = 0; i < 3; i++) http_bytes_add(&b, parts[i].base, parts[i].len);
    pool->resolve = curl_slist_append(NULL, b.data);
    http_bytes_free(&b);
  }
  curl_multi_setopt(pool->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(pool->multi, CURLMOPT_SOCKETDATA, pool);
  curl_multi_setopt(pool->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
  curl_multi_setopt(pool->multi, CURLMOPT_TIMERDATA, pool);
  curl_multi_setopt(pool->multi, CURLMOPT_MAXCONNECTS, (long)upstream->options.connections);
  return pool;
}
