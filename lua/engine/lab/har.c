/* har.c: the entries of a HAR file, one at a time, however large the file: letter by letter.
 *
 *   { "log": { "entries": [ {entry}, {entry} ] } }
 *   1        2            3 4                          depth
 *
 * Of an entry all lists are left out, and of a long text all but its beginning: what is left is an
 * object of a few hundred bytes.  HAR 1.2: http://www.softwareishard.com/blog/har-12-spec/ */
#include "reader_internal.h"

#include <stdlib.h>

#define ENTRY_MOST ((size_t)64 << 10)
#define TEXT_MOST  ((size_t)2048)
#define ENTRY      4 /* its depth */

void har_free(har_scan *h) { free(h->text); }

static void keep(har_scan *h, char c) {
  if (h->lists) return;
  if (h->used < ENTRY_MOST)
    h->text[h->used++] = c;
  else
    h->is_long = true;
}

/* A letter of a text. */
static void text_letter(har_scan *h, char c) {
  bool ends = c == '"' && !h->is_escaped;
  if (h->depth >= ENTRY) {
    bool is_begun = h->is_escaped ? h->keeps_escape : h->in_string < TEXT_MOST;
    if (ends || is_begun) keep(h, c);
    h->keeps_escape = is_begun;
  } else if (!ends && h->word_length < sizeof h->word) {
    h->word[h->word_length++] = c;
  }
  h->is_escaped = c == '\\' && !h->is_escaped;
  h->in_string = ends ? 0 : h->in_string + 1;
}

static bool is_entries(const har_scan *h) {
  return h->depth == 2 && text_is((lab_text){h->word, h->word_length}, LAB_TEXT("entries"));
}

/* true: an entry is complete. */
static bool letter(har_scan *h, char c) {
  if (h->in_string) return text_letter(h, c), false;
  if (c == '"') {
    h->in_string = 1;
    h->word_length = 0;
    if (h->depth >= ENTRY) keep(h, c);
    return false;
  }
  if (c == '{' || c == '[') {
    if (c == '[' && is_entries(h)) h->in_entries = true;
    h->depth++;
    if (h->in_entries && h->depth == ENTRY) h->used = 0, h->lists = 0, h->is_long = false;
    if (h->depth >= ENTRY) keep(h, c);
    if (h->depth > ENTRY && c == '[') h->lists++;
    return false;
  }
  if (c == '}' || c == ']') {
    if (h->lists && c == ']') h->lists--;
    if (h->depth >= ENTRY) keep(h, c);
    bool is_entry = h->in_entries && h->depth == ENTRY && c == '}';
    if (h->depth == ENTRY - 1) h->in_entries = false;
    if (h->depth > 0) h->depth--;
    h->is_over = h->depth == 0;
    return is_entry;
  }
  if (h->depth >= ENTRY) keep(h, c);
  return false;
}

lab_got har_next(lab_input *in, har_scan *h, uint64_t *at_line, char **line, size_t *length) {
  if (!h->text && !(h->text = malloc(ENTRY_MOST))) abort();
  for (;;) {
    char *bytes;
    size_t n = input_peek(in, 1, &bytes);
    if (n == 0) {
      if (h->is_over) return GOT_END;
      return h->is_over = true, GOT_CUT;
    }
    for (size_t i = 0; i < n; i++) {
      h->feeds += bytes[i] == '\n';
      if (!letter(h, bytes[i])) continue;
      input_take(in, i + 1);
      *line = h->text;
      *length = h->used;
      *at_line = h->feeds + 1;
      return h->is_long ? GOT_LONG : GOT_LINE;
    }
    input_take(in, n);
  }
}
