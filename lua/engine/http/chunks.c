/* chunks.c: a strict decoder of chunked bodies; see head.h.
 *
 *   SIZE --hex--> SIZE --";"--> EXTENSION --CR--> SIZE_LF --LF--> DATA, DATA_CR, DATA_LF --> SIZE
 *                                                     | (size 0)
 *                                                     v
 *                         TRAILER (at a line's start) --CR--> END_LF --LF--> done
 *                            |  ^
 *                            v  | LF
 *                         NAME --":"--> VALUE --CR--> VALUE_LF
 */
#include "head.h"

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, NAME, VALUE, VALUE_LF, END_LF };

#define DIGITS_MAX 15   /* below 2^60 */
#define EXTRA_MAX  8192 /* bytes of extensions and trailers in one body */

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static bool is_text(char c) { return http_span_value(&c, &c + 1) == 1; }

static bool is_token(char c) { return http_span_token(&c, &c + 1) == 1; }

static bool step_size(http_chunks *k, char c) {
  int digit = hex(c);
  if (digit >= 0) {
    k->left = k->left << 4 | (uint64_t)digit;
    return ++k->digits <= DIGITS_MAX;
  }
  k->state = c == ';' ? EXTENSION : SIZE_LF;
  return k->digits && (c == ';' || c == '\r');
}

/* One byte of anything but data.  Answers false if it does not belong there. */
static bool step(http_chunks *k, char c) {
  switch (k->state) {
    case SIZE: return step_size(k, c);
    case EXTENSION:
      if (c == '\r') k->state = SIZE_LF;
      return (c == '\r' || is_text(c)) && ++k->extra <= EXTRA_MAX;
    case SIZE_LF:
      k->state = k->left ? DATA : TRAILER;
      k->digits = 0;
      return c == '\n';
    case DATA_CR: k->state = DATA_LF; return c == '\r';
    case DATA_LF: k->state = SIZE; return c == '\n';
    case TRAILER: k->state = c == '\r' ? END_LF : NAME; return c == '\r' || is_token(c);
    case NAME:
      if (c == ':') k->state = VALUE;
      return (c == ':' || is_token(c)) && ++k->extra <= EXTRA_MAX;
    case VALUE:
      if (c == '\r') k->state = VALUE_LF;
      return (c == '\r' || is_text(c)) && ++k->extra <= EXTRA_MAX;
    case VALUE_LF: k->state = TRAILER; return c == '\n' && ++k->extra <= EXTRA_MAX;
    default: return c == '\n'; /* END_LF */
  }
}

http_chunk_step http_chunks_next(http_chunks *k, const char *bytes, size_t length, size_t *used,
                                 http_slice *data) {
  size_t i = 0;
  while (i < length && k->state != DATA) {
    bool last = k->state == END_LF;
    if (!step(k, bytes[i++])) return HTTP_CHUNK_BAD;
    if (last) {
      *used = i;
      return HTTP_CHUNK_END;
    }
  }
  size_t n = length - i;
  if (n > k->left) n = (size_t)k->left;
  *used = i + n;
  if (k->state != DATA || !n) return HTTP_CHUNK_MORE;
  *data = (http_slice){bytes + i, n};
  k->left -= n;
  if (!k->left) k->state = DATA_CR;
  return HTTP_CHUNK_DATA;
}
