/* reach.c: three handles that end together.
 *
 *   lookup -> connect -> closing -> done
 *      \________\__ timer: closing with "no answer"
 */
#include "reach.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct reach {
  uv_getaddrinfo_t lookup;
  uv_tcp_t tcp;
  uv_connect_t connect;
  uv_timer_t timer;
  int open; /* handles and requests not yet ended */
  char failure[160];
  void (*done)(void *data, const char *failure);
  void *data;
} reach;

static void reach_ended(reach *r) {
  if (--r->open > 0) return;
  r->done(r->data, r->failure[0] ? r->failure : NULL);
  free(r);
}

static void on_close(uv_handle_t *handle) { reach_ended(handle->data); }

static void reach_close(reach *r, const char *failure) {
  if (uv_is_closing((uv_handle_t *)&r->timer)) return;
  if (failure) snprintf(r->failure, sizeof r->failure, "%s", failure);
  uv_cancel((uv_req_t *)&r->lookup);
  uv_close((uv_handle_t *)&r->timer, on_close);
  uv_close((uv_handle_t *)&r->tcp, on_close);
}

static void on_timer(uv_timer_t *timer) { reach_close(timer->data, "no answer"); }

static void on_connect(uv_connect_t *connect, int status) {
  reach *r = connect->data;
  reach_close(r, status < 0 ? uv_strerror(status) : NULL);
  reach_ended(r);
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found) {
  reach *r = lookup->data;
  if (!uv_is_closing((uv_handle_t *)&r->timer)) {
    int error =
        status < 0 ? status : uv_tcp_connect(&r->connect, &r->tcp, found->ai_addr, on_connect);
    if (error)
      reach_close(r, uv_strerror(error));
    else
      r->open++;
  }
  uv_freeaddrinfo(found);
  reach_ended(r);
}

void reach_try(uv_loop_t *loop, const char *host, const char *port, uint64_t limit_ms,
               void (*done)(void *data, const char *failure), void *data) {
  reach *r = calloc(1, sizeof *r);
  if (!r) abort();
  r->done = done;
  r->data = data;
  r->lookup.data = r->tcp.data = r->connect.data = r->timer.data = r;
  uv_tcp_init(loop, &r->tcp);
  uv_timer_init(loop, &r->timer);
  uv_timer_start(&r->timer, on_timer, limit_ms, 0);
  r->open = 3; /* timer, tcp, lookup */
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  int error = uv_getaddrinfo(loop, &r->lookup, on_lookup, host, port, &hints);
  if (!error) return;
  reach_close(r, uv_strerror(error));
  r->open--; /* the lookup never began */
}
