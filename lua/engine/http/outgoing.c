/* outgoing.c: the head of a request, as curl takes it; see client.h.
 *
 * The field lines lie one after the other in one buffer, the curl_slist over them in one array;
 * both are used again. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Names in Connection --------------------------------------------------------------------- */

static bool lists(http_slice list, const char *name, size_t length) {
  const char *p = list.data, *end = p + list.length;
  while (p < end) {
    const char *comma = memchr(p, ',', (size_t)(end - p));
    const char *stop = comma ? comma : end;
    while (p < stop && (*p == ' ' || *p == '\t')) p++;
    size_t n = (size_t)(stop - p);
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    if (n == length && !strncasecmp(p, name, n)) return true;
    p = stop + 1;
  }
  return false;
}

/* Connection can take away any field but those that say where a message ends and whom it is for. */
static bool is_essential(const char *name, size_t length) {
  return http_name_is(name, length, "content-length") || http_name_is(name, length, "host");
}

bool http_field_is_kept(http_slice listed, const char *name, size_t length) {
  if (http_name_is_hop_by_hop(name, length)) return false;
  return !listed.length || is_essential(name, length) || !lists(listed, name, length);
}

/* All that Connection fields name, in one list; most name nothing but close and keep-alive. */
void http_listed_add(http_bytes *listed, const neap_header *h) {
  if (http_name_is(h->value, h->value_length, "keep-alive") ||
      http_name_is(h->value, h->value_length, "close")) {
    return;
  }
  if (listed->length) http_bytes_add(listed, ",", 1);
  http_bytes_add(listed, h->value, h->value_length);
}

/* ---- The client's deadline ------------------------------------------------------------------- */

#define LEFT_TEXT 24 /* bytes of a number and a unit */

/* gRPC has no number of more than 8 digits. */
static size_t grpc_left(char text[LEFT_TEXT], uint64_t ms) {
  static const struct {
    char unit;
    uint64_t ms;
  } units[] = {{'m', 1}, {'S', 1000}, {'M', 60000}, {'H', 3600000}};
  size_t i = 0;
  while (i < 3 && ms / units[i].ms > 99999999) i++;
  int n =
      snprintf(text, LEFT_TEXT, "%llu%c", (unsigned long long)(ms / units[i].ms), units[i].unit);
  return (size_t)n;
}

/* The field as it goes on: if it says how long the client waits, with what is left of that. */
static neap_header left_of(const http_transfer *t, const neap_header *h, char text[LEFT_TEXT]) {
  neap_header on = *h;
  if (h->name_length == 16 && http_name_is(h->name, 16, "neap-deadline-ms")) {
    on.value_length = (size_t)snprintf(text, LEFT_TEXT, "%llu", (unsigned long long)t->left_ms);
    on.value = text;
  } else if (h->name_length == 12 && http_name_is(h->name, 12, "grpc-timeout")) {
    on.value_length = grpc_left(text, t->left_ms);
    on.value = text;
  }
  return on;
}

/* ---- The request ----------------------------------------------------------------------------- */

void http_out_reserve(http_transfer *t, const http_request *r) {
  size_t bytes = r->target.length + r->host.length + 128;
  for (size_t i = 0; i < r->header_count; i++) {
    bytes += r->headers[i].name_length + r->headers[i].value_length + 4;
  }
  if (t->left_ms != UINT64_MAX) bytes += r->header_count * LEFT_TEXT;
  t->out.length = t->listed.length = 0;
  http_bytes_reserve(&t->out, bytes); /* nothing moves from here on */
  if (r->header_count + 4 > t->out_capacity) {
    t->out_capacity = r->header_count + 16;
    free(t->out_nodes);
    t->out_nodes = malloc(t->out_capacity * sizeof *t->out_nodes);
    if (!t->out_nodes) abort();
  }
}

char *http_out_add(http_transfer *t, const char *text, size_t length) {
  char *at = t->out.data + t->out.length;
  memcpy(at, text, length);
  at[length] = '\0';
  t->out.length += length + 1;
  return at;
}

/* curl takes "Name:" for "do not send Name" and "Name;" for "Name:". */
static char *out_field(http_transfer *t, const neap_header *h) {
  char *at = t->out.data + t->out.length, *p = at;
  memcpy(p, h->name, h->name_length);
  p += h->name_length;
  if (h->value_length) {
    *p++ = ':';
    *p++ = ' ';
    memcpy(p, h->value, h->value_length);
    p += h->value_length;
  } else {
    *p++ = ';';
  }
  *p++ = '\0';
  t->out.length += (size_t)(p - at);
  return at;
}

struct curl_slist *http_out_fields(http_transfer *t, const http_request *r) {
  size_t n = 0;
  bool accept = false;
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    if (http_name_is(h->name, h->name_length, "connection")) http_listed_add(&t->listed, h);
  }
  http_slice listed = {t->listed.data, t->listed.length};
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    char *line;
    if (http_name_is(h->name, h->name_length, "transfer-encoding")) {
      line = http_out_add(t, "Transfer-Encoding: chunked", 26);
    } else if (!http_field_is_kept(listed, h->name, h->name_length) ||
               http_name_is(h->name, h->name_length, "expect") ||
               http_name_is(h->name, h->name_length, "host")) {
      continue;
    } else {
      char text[LEFT_TEXT];
      accept |= http_name_is(h->name, h->name_length, "accept");
      neap_header on = t->left_ms == UINT64_MAX ? *h : left_of(t, h, text);
      line = out_field(t, &on);
    }
    t->out_nodes[n++].data = line;
  }
  if (r->host.length) {
    t->out_nodes[n++].data = out_field(t, &(neap_header){"Host", 4, r->host.data, r->host.length});
  }
  if (!accept) t->out_nodes[n++].data = http_out_add(t, "Accept:", 7); /* none of curl's own */
  if (t->uploads) t->out_nodes[n++].data = http_out_add(t, "Expect:", 7);
  for (size_t i = 0; i < n; i++) t->out_nodes[i].next = i + 1 < n ? &t->out_nodes[i + 1] : NULL;
  return n ? t->out_nodes : NULL;
}
