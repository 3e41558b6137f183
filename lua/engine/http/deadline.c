/* deadline.c: how long an attempt may take, and how long all of a call; see exchange.h. */
#include "exchange.h"

uint64_t ex_deadline_ms(const exchange *ex) {
  uint32_t timeout_ms = neap_guard_timeout_ms(ex->route->guard);
  return timeout_ms ? timeout_ms : ex->route->options.answer_ms;
}

/* A whole number that the field's value begins with, and how many digits it has; 0: none. */
static size_t digits_of(const neap_header *h, size_t most, uint64_t *out) {
  size_t n = 0;
  for (*out = 0; n < h->value_length && n < most; n++) {
    char c = h->value[n];
    if (c < '0' || c > '9') break;
    *out = *out * 10 + (uint64_t)(c - '0');
  }
  return n;
}

/* gRPC's: up to 8 digits and a unit.  0: there is none. */
static uint64_t grpc_timeout_ms(const neap_header *h) {
  static const struct {
    char unit;
    uint64_t ms, parts; /* so many ms each; or so many to one */
  } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
               {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};
  uint64_t n;
  size_t digits = digits_of(h, 8, &n);
  if (!digits || h->value_length != digits + 1) return 0;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (units[i].unit == h->value[digits])
      return (n * units[i].ms + units[i].parts - 1) / units[i].parts;
  }
  return 0;
}

/* How long the client says that it waits; 0: it does not. */
static uint64_t client_allows_ms(const http_request *r) {
  uint64_t ms;
  const neap_header *h = http_request_header(r, "neap-deadline-ms");
  if (h) return digits_of(h, 10, &ms) == h->value_length ? ms : 0;
  h = http_request_header(r, "grpc-timeout");
  return h ? grpc_timeout_ms(h) : 0;
}

/* The request is whole: from now on the call's deadline runs. */
void ex_deadline_begin(exchange *ex) {
  uint64_t policy_ms = neap_guard_deadline_ms(ex->route->guard);
  uint64_t client_ms = client_allows_ms(ex->request);
  ex->body_done = true;
  ex->by_client = client_ms && (!policy_ms || client_ms < policy_ms);
  ex->allowed_ms = ex->by_client ? client_ms : policy_ms;
  ex->by = ex->allowed_ms ? uv_now(ex->route->loop) + ex->allowed_ms : 0;
}

uint64_t ex_left_ms(const exchange *ex) {
  uint64_t now = uv_now(ex->route->loop);
  if (!ex->by) return UINT64_MAX;
  return ex->by > now ? ex->by - now : 0;
}

void ex_await(exchange *ex) {
  uint64_t limit_ms = ex_deadline_ms(ex), left_ms = ex_left_ms(ex);
  ex->cut = left_ms < limit_ms;
  ex_due(ex, DUE_ANSWER, ex->cut ? left_ms : limit_ms);
}
