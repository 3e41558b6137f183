/* upstream.c: an origin's URL, and where its name leads now; see client.h.
 *
 * Names are looked up here, not by curl: an answer is believed for resolve_ms, then asked for again
 * by the next transfer, which does not wait for it.  While there is none, the last one serves on
 * for stale_ms. */
#include "client.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_MAX 1024 /* bytes of text */

/* ---- Addresses ------------------------------------------------------------------------------- */

/* "a,b" and "b,a" are the same set: round-robin answers must not make new pools. */
static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void addresses_sort(char *list) {
  char copy[ADDRESSES_MAX], *items[64], *save = NULL;
  size_t n = 0, at = 0;
  snprintf(copy, sizeof copy, "%s", list);
  for (char *p = strtok_r(copy, ",", &save); p && n < 64; p = strtok_r(NULL, ",", &save)) {
    items[n++] = p;
  }
  qsort(items, n, sizeof *items, by_text);
  *list = '\0';
  for (size_t i = 0; i < n; i++) {
    if (i && !strcmp(items[i], items[i - 1])) continue;
    at += (size_t)snprintf(list + at, ADDRESSES_MAX - at, "%s%s", at ? "," : "", items[i]);
  }
}

static void addresses_print(const struct addrinfo *info, char *list) {
  size_t at = 0;
  *list = '\0';
  for (; info; info = info->ai_next) {
    char text[64] = "";
    if (uv_ip_name(info->ai_addr, text, sizeof text) || at + sizeof text + 4 > ADDRESSES_MAX)
      continue;
    const char *form = info->ai_family == AF_INET6 ? "%s[%s]" : "%s%s";
    at += (size_t)snprintf(list + at, ADDRESSES_MAX - at, form, at ? "," : "", text);
  }
}

/* ---- Looking up ------------------------------------------------------------------------------ */

static void release(http_upstream *u);

static void waiting_go(http_upstream *u, const char *error) {
  http_transfer *t = u->waiting;
  u->waiting = NULL;
  while (t) {
    http_transfer *next = t->next;
    t->waiting = false;
    if (error) {
      http_transfer_fail(t, error);
    } else {
      http_pool_add(u->pool, t);
    }
    t = next;
  }
}

static void pool_replace(http_upstream *u, const char *addresses) {
  http_pool *old = u->pool;
  u->pool = http_pool_new(u, addresses);
  u->pool->next = u->pools;
  u->pools = u->pool;
  u->holds++;
  if (old) http_pool_retire(old);
}

static void addresses_drop(http_upstream *u) {
  free(u->addresses);
  u->addresses = NULL;
  if (u->pool) http_pool_retire(u->pool);
  u->pool = NULL;
}

static void resolved(http_upstream *u, char *list) {
  uint64_t now = uv_now(u->loop);
  u->resolving = false;
  u->resolved_at = now;
  if (u->closing) return;
  if (*list) {
    addresses_sort(list);
    u->good_at = now;
    if (!u->addresses || strcmp(u->addresses, list)) {
      free(u->addresses);
      u->addresses = strdup(list);
      pool_replace(u, list);
    }
  } else if (now - u->good_at >= u->options.stale_ms) {
    addresses_drop(u);
  }
  waiting_go(u, u->pool ? NULL : "the upstream's name cannot be resolved");
}

static void on_lookup(uv_getaddrinfo_t *lookup, int status, struct addrinfo *info) {
  http_upstream *u = lookup->data;
  char list[ADDRESSES_MAX] = "";
  if (!status) addresses_print(info, list);
  if (info) uv_freeaddrinfo(info);
  resolved(u, list);
  release(u);
}

static void on_timer(uv_timer_t *timer) {
  http_upstream *u = timer->data;
  char list[ADDRESSES_MAX] = "";
  if (!u->options.resolve ||
      !u->options.resolve(u->options.resolve_data, u->host, list, sizeof list)) {
    *list = '\0';
  }
  resolved(u, list);
}

static void resolve(http_upstream *u) {
  u->resolving = true;
  if (u->options.resolve) {
    uv_timer_start(&u->timer, on_timer, 0, 0);
    return;
  }
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
  u->holds++;
  u->lookup.data = u;
  int status = uv_getaddrinfo(u->loop, &u->lookup, on_lookup, u->host, NULL, &hints);
  if (!status) return;
  u->holds--; /* it will not call: a name that is none, or no memory */
  uv_timer_start(&u->timer, on_timer, 0, 0);
}

void http_upstream_begin(http_upstream *u, http_transfer *t) {
  uint64_t now = uv_now(u->loop);
  if (!u->literal && !u->resolving && (!u->pool || now - u->resolved_at >= u->options.resolve_ms)) {
    resolve(u);
  }
  if (u->pool) {
    http_pool_add(u->pool, t);
    return;
  }
  t->waiting = true;
  t->next = u->waiting;
  u->waiting = t;
}

void http_upstream_forget(http_upstream *u, http_transfer *t) {
  http_transfer **at = &u->waiting;
  while (*at && *at != t) at = &(*at)->next;
  if (*at) *at = t->next;
  t->waiting = false;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static bool is_literal(const char *host) {
  unsigned char any[sizeof(struct in6_addr)];
  return *host == '[' || inet_pton(AF_INET, host, any) == 1;
}

/* Takes the URL apart.  Answers what is wrong with it, or NULL. */
static const char *url_parse(http_upstream *u, const char *text) {
  static const char *const wrong = "not the URL of an origin, such as http://127.0.0.1:8016";
  const char *why = wrong;
  CURLU *url = u->url = curl_url();
  char *scheme = NULL, *host = NULL, *port = NULL, *path = NULL, *more = NULL;
  if (!url) abort();
  if (curl_url_set(url, CURLUPART_URL, text, 0) ||
      curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) ||
      curl_url_get(url, CURLUPART_HOST, &host, 0) || curl_url_get(url, CURLUPART_PATH, &path, 0) ||
      curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT)) {
    goto done;
  }
  if (strcmp(scheme, "http") && strcmp(scheme, "https")) goto done;
  if (strcmp(path, "/") || !curl_url_get(url, CURLUPART_QUERY, &more, 0) ||
      !curl_url_get(url, CURLUPART_USER, &more, 0) ||
      !curl_url_get(url, CURLUPART_FRAGMENT, &more, 0)) {
    why = "the URL of an origin ends with its port: paths are the clients'";
    goto done;
  }
  u->tls = !strcmp(scheme, "https");
  u->host = strdup(host);
  u->port = atoi(port);
  u->literal = is_literal(host);
  if (u->port) why = NULL;
done:
  curl_free(scheme), curl_free(host), curl_free(port), curl_free(path), curl_free(more);
  return why;
}

static void options_complete(proxy_options *o) {
#define DEFAULT(name, value)                                                                       \
  if (!o->name) o->name = value
  DEFAULT(connect_ms, 5000);
  DEFAULT(answer_ms, 60000);
  DEFAULT(stall_ms, 60000);
  DEFAULT(hold_ms, 20);
  DEFAULT(connections, 1024);
  DEFAULT(idle_ms, 30000);
  DEFAULT(resolve_ms, 5000);
  DEFAULT(stale_ms, 600000);
#undef DEFAULT
}

static void upstream_free(http_upstream *u) {
  while (u->free) {
    http_transfer *t = u->free;
    u->free = t->next;
    curl_easy_cleanup(t->easy);
    http_bytes_free(&t->in);
    http_bytes_free(&t->out);
    http_bytes_free(&t->listed);
    free(t->out_nodes);
    free(t->headers);
    free(t->marks);
    free(t);
  }
  curl_url_cleanup(u->url);
  free(u->host);
  free(u->ca_file);
  free(u->addresses);
  free(u);
  curl_global_cleanup();
}

static void release(http_upstream *u) {
  if (--u->holds) return;
  void (*closed)(void *) = u->closed;
  void *data = u->closed_data;
  upstream_free(u);
  if (closed) closed(data);
}

bool http_upstream_open(uv_loop_t *loop, const proxy_options *options, http_upstream **out,
                        char *error, size_t size) {
  http_upstream *u = calloc(1, sizeof *u);
  if (!u || curl_global_init(CURL_GLOBAL_DEFAULT)) abort();
  u->loop = loop;
  u->options = *options;
  options_complete(&u->options);
  const char *why = url_parse(u, options->upstream ? options->upstream : "");
  if (why) {
    snprintf(error, size, "upstream \"%s\": %s", options->upstream ? options->upstream : "", why);
    upstream_free(u);
    return false;
  }
  if (options->ca_file) u->ca_file = strdup(options->ca_file);
  u->good_at = uv_now(loop);
  u->holds = 1;
  uv_timer_init(loop, &u->timer);
  u->timer.data = u;
  if (u->literal) pool_replace(u, NULL);
  *out = u;
  return true;
}

void http_upstream_pool_gone(http_upstream *u, http_pool *pool) {
  http_pool **at = &u->pools;
  while (*at != pool) at = &(*at)->next;
  *at = pool->next;
  release(u);
}

static void on_timer_closed(uv_handle_t *handle) { release(handle->data); }

void http_upstream_close(http_upstream *u, void (*closed)(void *data), void *data) {
  u->closing = true;
  u->closed = closed;
  u->closed_data = data;
  if (u->pool) http_pool_retire(u->pool);
  u->pool = NULL;
  if (u->resolving && !uv_is_active((uv_handle_t *)&u->timer)) uv_cancel((uv_req_t *)&u->lookup);
  uv_close((uv_handle_t *)&u->timer, on_timer_closed);
}
