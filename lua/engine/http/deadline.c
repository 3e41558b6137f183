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

/* gRPC's: up to 8 digits and a unit.  UINT64_MAX: that is none. */
static uint64_t grpc_timeout_ms(const neap_header *h) {
  static const struct {
    char unit;
    uint64_t ms, parts; /* so many ms each; or so many to one */
  } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
               {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};
  uint64_t n;
  size_t digits = digits_of(h, 8, &n);
  if (!digits || h->value_length != digits + 1) return UINT64_MAX;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (units[i].unit == h->value[digits])
      return (n * units[i].ms + units[i].parts - 1) / units[i].parts;
  }
  return UINT64_MAX;
}

static uint64_t neap_deadline_ms(const neap_header *h) {
  uint64_t ms;
  size_t digits = digits_of(h, 10, &ms);
  return digits && digits == h->value_length ? ms : UINT64_MAX;
}

/* How long the client says that it waits, the least if it says so more than once; UINT64_MAX: it
 * does not. */
static uint64_t client_allows_ms(const http_request *r) {
  uint64_t least_ms = UINT64_MAX, ms;
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    if (h->name_length == 16 && http_name_is(h->name, 16, "neap-deadline-ms"))
      ms = neap_deadline_ms(h);
    else if (h->name_length == 12 && http_name_is(h->name, 12, "grpc-timeout"))
      ms = grpc_timeout_ms(h);
    else
      continue;
    if (ms < least_ms) least_ms = ms;
  }
  return least_ms;
}

void ex_deadline_set(exchange *ex) {
  uint64_t client_ms = client_allows_ms(ex->request);
  uint64_t policy_ms = neap_guard_deadline_ms(ex->route->guard);
  if (!policy_ms) policy_ms = UINT64_MAX;
  ex->by_client = client_ms < policy_ms;
  ex->allowed_ms = ex->by_client ? client_ms : policy_ms;
}

/* The request is whole: from now on the call's deadline runs. */
void ex_deadline_begin(exchange *ex) {
  ex->body_done = true;
  if (ex->allowed_ms != UINT64_MAX) ex->by = uv_now(ex->route->loop) + ex->allowed_ms;
}

uint64_t ex_left_ms(const exchange *ex) {
  uint64_t now = uv_now(ex->route->loop);
  if (!ex->by) return ex->allowed_ms; /* it does not run yet */
  return ex->by > now ? ex->by - now : 0;
}

void ex_await(exchange *ex) {
  uint64_t limit_ms = ex_deadline_ms(ex), left_ms = ex_left_ms(ex);
  ex->cut = left_ms < limit_ms;
  ex_due(ex, DUE_ANSWER, ex->cut ? left_ms : limit_ms);
}
