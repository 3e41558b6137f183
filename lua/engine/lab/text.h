/* text.h: pieces of a log as text, and the numbers and times in them.
 *
 * A text is not ended by a zero; .data NULL: there is none.  Times are microseconds since 1970 on the
 * log's own clock; nothing here raises, allocates or looks at a locale. */
#ifndef NEAP_LAB_TEXT_H
#define NEAP_LAB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct lab_text {
  const char *data;
  size_t length;
} lab_text;

#define LAB_INIT(literal)                                                                          \
  { literal, sizeof(literal) - 1 } /* of a static lab_text */
#define LAB_TEXT(literal) ((lab_text)LAB_INIT(literal))

static inline bool text_is(lab_text t, lab_text other) {
  return t.length == other.length && memcmp(t.data, other.data, t.length) == 0;
}

/* Without spaces at its ends. */
lab_text text_trim(lab_text t);

/* What logs write for nothing: "", "-". */
static inline bool text_is_none(lab_text t) {
  return !t.data || t.length == 0 || (t.length == 1 && t.data[0] == '-');
}

/* A decimal number, all of the text; *has_fraction: it has a point or an exponent. */
bool text_number(lab_text t, double *out, bool *has_fraction);

/* A whole number of digits alone, all of the text, up to `most`. */
bool text_whole(lab_text t, uint64_t most, uint64_t *out);

/* What a hexadecimal digit stands for; -1: it is none. */
static inline int text_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* As much of it as fits, for people: what a terminal would not take is a question mark. */
void text_excerpt(lab_text t, char *to, size_t size);

typedef enum lab_unit { UNIT_GUESS = 0, UNIT_S, UNIT_MS, UNIT_US, UNIT_NS } lab_unit;

/* "s", "ms", "us", "ns" and their longer names. */
bool text_unit(lab_text t, lab_unit *out);

/* A duration in microseconds: a number in `unit`, or with a unit of its own behind it ("12ms",
 * "1.5 s").  UNIT_GUESS: with a fraction it is seconds, else milliseconds. */
bool text_duration(lab_text t, lab_unit unit, uint64_t *out_us);

/* A time as logs write it:
 *
 *   10/Oct/2000:13:55:36 -0700             nginx, Apache; with or without brackets, .123 behind it
 *   2000-10-10T13:55:36.123456Z            RFC 3339, also with a space for the T, and no zone: UTC
 *   971211336, 971211336.123               since 1970, in s, ms, us or ns: by how large it is, or by
 *                                          `unit`
 *
 * The last second is remembered, as it mostly is the next one's, too.  *is_coarse: to the second. */
typedef struct lab_timer {
  char text[32];
  size_t length;
  uint64_t second_us;
} lab_timer;
bool text_time(lab_timer *timer, lab_text t, lab_unit unit, uint64_t *out_us, bool *is_coarse);

#endif
