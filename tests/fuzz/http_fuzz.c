/* libFuzzer target: bytes become a head and a chunked body, as a client may send them.
 *
 *   tests/fuzz/http_fuzz.sh SECONDS      builds and runs it
 *
 * What must hold: where the head ends does not depend on how it was cut into segments; every slice
 * lies in the head; an accepted head has one framing and says nothing that it should not; a chunked
 * body means the same however it was cut up. */
#include "head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
  if (!(condition)) abort()

static const char *begin, *end;

static void require_inside(const char *p, size_t n) { REQUIRE(p >= begin && p + n <= end); }

static size_t scan(const char *bytes, size_t size, size_t step, http_fault *fault,
                   http_scan *scan_) {
  http_limits limits = http_limits_default();
  *scan_ = (http_scan){0};
  for (size_t upto = step; upto <= size; upto += step) {
    size_t length = http_head_scan(scan_, bytes, upto, &limits, fault);
    if (length || fault->status) return length;
  }
  return size % step ? http_head_scan(scan_, bytes, size, &limits, fault) : 0;
}

static void check_fields(const http_parsed *head) {
  int hosts = 0, lengths = 0, encodings = 0;
  for (size_t i = 0; i < head->header_count; i++) {
    const neap_header *h = &head->headers[i];
    require_inside(h->name, h->name_length);
    require_inside(h->value, h->value_length);
    REQUIRE(h->name_length > 0);
    REQUIRE(!memchr(h->value, '\n', h->value_length) && !memchr(h->value, '\r', h->value_length));
    REQUIRE(!memchr(h->value, '\0', h->value_length));
    hosts += http_name_is(h->name, h->name_length, "host");
    lengths += http_name_is(h->name, h->name_length, "content-length");
    encodings += http_name_is(h->name, h->name_length, "transfer-encoding");
  }
  REQUIRE(hosts <= 1 && hosts >= head->minor);
  REQUIRE(lengths + encodings <= 1);
  REQUIRE((head->content_length < 0) == (encodings == 1));
}

static void check_head(const char *bytes, size_t length, size_t lines) {
  http_fault fault = {0};
  http_parsed head = {.headers = malloc(lines * sizeof(neap_header))};
  begin = bytes;
  end = bytes + length;
  if (http_head_parse(bytes, length, &head, &fault)) {
    if (head.host.length) require_inside(head.host.data, head.host.length);
    REQUIRE(head.target.length > 0 && (*head.target.data == '/' || *head.target.data == '*'));
    check_fields(&head);
  } else {
    REQUIRE(fault.status >= 400 && fault.detail);
  }
  free(head.headers);
}

/* Decodes in steps; answers how the body ended, and what it was. */
static http_chunk_step decode(const char *bytes, size_t size, size_t step, char *out, size_t *got,
                              size_t *taken) {
  http_chunks chunks = {0};
  *got = *taken = 0;
  while (*taken < size) {
    size_t used = 0, n = size - *taken < step ? size - *taken : step;
    http_slice piece = {0};
    http_chunk_step how = http_chunks_next(&chunks, bytes + *taken, n, &used, &piece);
    if (how == HTTP_CHUNK_BAD) return how;
    REQUIRE(used <= n && used > 0);
    *taken += used;
    if (how == HTTP_CHUNK_DATA) {
      memcpy(out + *got, piece.data, piece.length);
      *got += piece.length;
    }
    if (how == HTTP_CHUNK_END) return how;
  }
  return HTTP_CHUNK_MORE;
}

static void check_chunks(const char *bytes, size_t size) {
  char *a = malloc(size + 1), *b = malloc(size + 1);
  size_t a_got, b_got, a_taken, b_taken;
  http_chunk_step one = decode(bytes, size, size, a, &a_got, &a_taken);
  http_chunk_step other = decode(bytes, size, 1, b, &b_got, &b_taken);
  REQUIRE(one == other);
  if (one != HTTP_CHUNK_BAD) REQUIRE(a_got == b_got && a_taken == b_taken && !memcmp(a, b, a_got));
  free(a);
  free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *bytes = malloc(size + 1); /* exact, so that a byte too far is seen */
  http_fault fault = {0}, other = {0};
  http_scan at_once, in_steps;
  if (!size) {
    free(bytes);
    return 0;
  }
  bytes = realloc(bytes, size);
  memcpy(bytes, data, size);
  size_t length = scan(bytes, size, size, &fault, &at_once);
  REQUIRE(scan(bytes, size, 3, &other, &in_steps) == length);
  REQUIRE(!fault.status == !other.status || size > 8192); /* a limit may be met by another name */
  if (length) {
    REQUIRE(at_once.lines == in_steps.lines);
    check_head(bytes, length, at_once.lines + 1);
  }
  check_chunks(bytes + length, size - length);
  free(bytes);
  return 0;
}
