/* server.c: listening, limits, draining; see http.h. */
#include "conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BACKLOG 1024

const char *http_server_date(http_server *server) {
  time_t now = time(NULL);
  if (server->date_at != (uint64_t)now) {
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    server->date_at = (uint64_t)now;
  }
  return server->date;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static bool fail(char *error, size_t size, const char *host, int port, const char *what) {
  snprintf(error, size, strchr(host, ':') ? "[%s]:%d: %s" : "%s:%d: %s", host, port, what);
  return false;
}

/* "[::1]" is "::1"; a name is no address: which of its addresses was meant, nobody could tell. */
static bool address_parse(const char *host, int port, struct sockaddr_storage *out) {
  char bare[128];
  size_t n = strlen(host);
  if (n >= sizeof bare) return false;
  memcpy(bare, host, n + 1);
  if (n > 2 && bare[0] == '[' && bare[n - 1] == ']') {
    bare[n - 1] = '\0';
    memmove(bare, bare + 1, n - 1);
    return !uv_ip6_addr(bare, port, (struct sockaddr_in6 *)out);
  }
  return !uv_ip4_addr(bare, port, (struct sockaddr_in *)out) ||
         !uv_ip6_addr(bare, port, (struct sockaddr_in6 *)out);
}

static void on_connection(uv_stream_t *stream, int status) {
  if (!status) http_conn_open(stream->data);
}

static int port_of(const uv_tcp_t *tcp) {
  struct sockaddr_storage address;
  int length = sizeof address;
  if (uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &length)) return 0;
  return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                             : ((struct sockaddr_in *)&address)->sin_port);
}

static int server_bind(http_server *server, const http_server_options *o,
                       const struct sockaddr_storage *address) {
  if (o->fd > 0) return uv_tcp_open(&server->tcp, o->fd);
  return uv_tcp_bind(&server->tcp, (const struct sockaddr *)address, 0);
}

static void on_closed(uv_handle_t *handle) { http_server_handle_closed(handle->data); }

void http_server_handle_closed(http_server *server) {
  if (--server->handles) return;
  void (*closed)(void *) = server->closed;
  void *data = server->closed_data;
  http_bytes_free(&server->scratch);
  free(server);
  if (closed) closed(data);
}

bool http_server_open(uv_loop_t *loop, const http_server_options *o, http_server **out, char *error,
                      size_t size) {
  struct sockaddr_storage address;
  const char *host = o->host ? o->host : "";
  if (o->fd <= 0 && !address_parse(host, o->port, &address)) {
    return fail(error, size, host, o->port,
                "not an address to listen on, such as 127.0.0.1 or [::1]");
  }
  http_server *server = calloc(1, sizeof *server);
  if (!server) abort();
  server->loop = loop;
  server->limits = http_limits_complete(o->limits);
  server->handler = o->handler;
  server->data = o->data;
  server->handles = 2;
  uv_tcp_init(loop, &server->tcp);
  uv_timer_init(loop, &server->drain);
  server->tcp.data = server->drain.data = server;
  int status = server_bind(server, o, &address);
  if (!status) status = uv_listen((uv_stream_t *)&server->tcp, BACKLOG, on_connection);
  if (status) {
    uv_close((uv_handle_t *)&server->tcp, on_closed);
    uv_close((uv_handle_t *)&server->drain, on_closed);
    return fail(error, size, host, o->port, uv_strerror(status));
  }
  server->port = port_of(&server->tcp);
  *out = server;
  return true;
}

int http_server_port(const http_server *server) { return server->port; }

const http_server_stats *http_server_stats_of(const http_server *server) { return &server->stats; }

/* ---- Draining -------------------------------------------------------------------------------- */

static void conns_close(http_server *server, bool all) {
  http_conn *next;
  for (http_conn *conn = server->conns; conn; conn = next) {
    next = conn->next;
    if (all || conn->state == CONN_IDLE) http_conn_close(conn);
  }
}

static void drain_settle(http_server *server) {
  if (server->conns || uv_is_closing((uv_handle_t *)&server->drain)) return;
  uv_close((uv_handle_t *)&server->drain, on_closed);
}

void http_server_conn_gone(http_server *server) {
  if (server->draining) drain_settle(server);
}

static void on_drain_over(uv_timer_t *timer) { conns_close(timer->data, true); }

void http_server_drain(http_server *server, uint64_t limit_ms, void (*closed)(void *data),
                       void *data) {
  server->closed = closed;
  server->closed_data = data;
  if (!server->draining) {
    server->draining = true;
    uv_close((uv_handle_t *)&server->tcp, on_closed);
    conns_close(server, false);
  }
  drain_settle(server);
  if (server->conns) uv_timer_start(&server->drain, on_drain_over, limit_ms, 0);
}
