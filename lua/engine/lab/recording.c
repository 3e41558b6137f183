#include "recording.h"

#include <stdlib.h>

#define NUMBERS_MOST 4194304 /* of keys, and of policies: what a panel has room for */

typedef struct numbered {
  char *name; /* NULL: no line has said what it is */
  char hash[32];
  uint64_t seed;
  uint32_t policy;
  uint16_t length;
} numbered;

typedef struct numbers {
  numbered *row;
  size_t count;
} numbers;

struct recording {
  numbers policies, keys;
  uint64_t at_ms, missing;
  recording_source sources[RECORDING_SOURCES + 1];
};

recording *recording_new(void) {
  recording *r = calloc(1, sizeof *r);
  if (!r) abort();
  return r;
}

static void numbers_free(numbers *n) {
  for (size_t i = 0; i < n->count; i++) free(n->row[i].name);
  free(n->row);
}

void recording_free(recording *r) {
  if (!r) return;
  numbers_free(&r->policies);
  numbers_free(&r->keys);
  free(r);
}

const recording_source *recording_sources(const recording *r) { return r->sources; }

uint64_t recording_missing(const recording *r) { return r->missing; }

bool recording_seed(const recording *r, lab_text policy, uint64_t *seed) {
  for (size_t i = 0; i < r->policies.count; i++) {
    const numbered *p = &r->policies.row[i];
    if (!p->name || !text_is((lab_text){p->name, p->length}, policy)) continue;
    return *seed = p->seed, true;
  }
  return false;
}

/* ---- Names ----------------------------------------------------------------------------------- */

size_t recording_encode(lab_text t, char *to) {
  static const char digits[] = "0123456789ABCDEF";
  size_t length = t.length < RECORDING_NAME ? t.length : RECORDING_NAME;
  char *begin = to;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)t.data[i];
    if (c > ' ' && c != '%' && c != 127) {
      *to++ = (char)c;
      continue;
    }
    *to++ = '%';
    *to++ = digits[c >> 4];
    *to++ = digits[c & 15];
  }
  return (size_t)(to - begin);
}

static bool name_set(numbered *n, lab_text t) {
  char *name = malloc(t.length + 1);
  if (!name) abort();
  size_t length = 0;
  for (size_t i = 0; i < t.length; i++) {
    char c = t.data[i];
    if (c == '%') {
      bool has_two = t.length - i > 2;
      int high = has_two ? text_hex(t.data[i + 1]) : -1,
          low = has_two ? text_hex(t.data[i + 2]) : -1;
      if (high < 0 || low < 0) return free(name), false;
      c = (char)(high * 16 + low);
      i += 2;
    }
    name[length++] = c;
  }
  name[length] = '\0';
  free(n->name);
  n->name = name;
  n->length = (uint16_t)length;
  return length > 0;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* The next word of a line, at a space. */
static lab_text next_word(lab_text *line) {
  const char *space = line->length ? memchr(line->data, ' ', line->length) : NULL;
  size_t length = space ? (size_t)(space - line->data) : line->length;
  lab_text word = {line->data, length};
  size_t taken = space ? length + 1 : length;
  *line = (lab_text){line->data + taken, line->length - taken};
  return word;
}

static bool next_number(lab_text *line, uint64_t most, uint64_t *out) {
  return text_whole(next_word(line), most, out);
}

/* The row of that number, made if there is none; NULL: no such number can be. */
static numbered *row_of(numbers *n, uint64_t number) {
  if (number >= NUMBERS_MOST || number > n->count * 2 + 1024) return NULL;
  if (number >= n->count) {
    size_t count = number < 64 ? 64 : (size_t)number * 2;
    numbered *row = realloc(n->row, count * sizeof *row);
    if (!row) abort();
    memset(row + n->count, 0, (count - n->count) * sizeof *row);
    n->row = row;
    n->count = count;
  }
  return &n->row[number];
}

static const numbered *known(const numbers *n, uint64_t number) {
  return number < n->count && n->row[number].name ? &n->row[number] : NULL;
}

static lab_damage read_policy(recording *r, lab_text line) {
  uint64_t number;
  if (!next_number(&line, NUMBERS_MOST, &number)) return LAB_BAD_FORMAT;
  numbered *p = row_of(&r->policies, number);
  lab_text name = next_word(&line), hash = next_word(&line);
  if (!p || name.length > 3 * RECORDING_NAME || hash.length >= sizeof p->hash)
    return LAB_BAD_FORMAT;
  if (!name_set(p, name) || !next_number(&line, UINT64_MAX, &p->seed)) return LAB_BAD_FORMAT;
  memcpy(p->hash, hash.data, hash.length);
  p->hash[hash.length] = '\0';
  return LAB_ASIDE;
}

static lab_damage read_key(recording *r, lab_text line) {
  uint64_t number, policy;
  if (!next_number(&line, NUMBERS_MOST, &number)) return LAB_BAD_FORMAT;
  if (!next_number(&line, NUMBERS_MOST, &policy) || !known(&r->policies, policy))
    return LAB_BAD_FORMAT;
  numbered *k = row_of(&r->keys, number);
  if (!k || line.length > 3 * RECORDING_NAME || !name_set(k, line)) return LAB_BAD_FORMAT;
  k->policy = (uint32_t)policy;
  return LAB_ASIDE;
}

static bool read_what(lab_text what, lab_call *out) {
  static const char ends[] = "atxcbr";
  const char *end = what.length ? memchr(ends, what.data[0], sizeof ends - 1) : NULL;
  uint64_t status = 0;
  if (!end) return false;
  out->ended_by = (lab_end)(end - ends);
  lab_text rest = {what.data + 1, what.length - 1};
  if (rest.length && !text_whole(rest, 999, &status)) return false;
  out->status = (int)status;
  return true;
}

static bool read_more(lab_text word, lab_call *out) {
  lab_text value = {word.data + 2, word.length - 2};
  uint64_t n = 0;
  if (word.length < 3 || word.data[1] != '=') return true; /* of a later neap */
  switch (word.data[0]) {
    case 'j': out->judged = value.data[0]; return value.length == 1;
    case 'e': out->code = value; return true;
    case 's':
      if (!text_whole(value, UINT32_MAX, &n)) return false;
      out->span_us = n * 1000;
      return true;
    case 'r':
      if (!text_whole(value, UINT32_MAX, &n)) return false;
      out->retry_after_ms = (int64_t)n;
      return true;
    case 'g':
      if (!text_whole(value, 16, &n)) return false;
      out->grpc = (int)n;
      return true;
    default: return true;
  }
}

static lab_damage read_call(recording *r, lab_text line, lab_call *out) {
  uint64_t key, after_ms, took_ms;
  if (!next_number(&line, NUMBERS_MOST, &key)) return LAB_BAD_FORMAT;
  const numbered *k = known(&r->keys, key);
  if (!k || !next_number(&line, UINT32_MAX, &after_ms)) return LAB_BAD_FORMAT;
  if (!next_number(&line, UINT32_MAX, &took_ms)) return LAB_BAD_FORMAT;
  const numbered *p = &r->policies.row[k->policy];
  r->at_ms += after_ms;
  *out = (lab_call){.grpc = -1,
                    .has_duration = true,
                    .duration_us = took_ms * 1000,
                    .key = {k->name, k->length},
                    .policy = {p->name, p->length},
                    .hash = {p->hash, strlen(p->hash)}};
  if (!read_what(next_word(&line), out)) return LAB_BAD_FORMAT;
  while (line.length)
    if (!read_more(next_word(&line), out)) return LAB_BAD_FORMAT;
  uint64_t span_us = out->span_us ? out->span_us : out->duration_us, end_us = r->at_ms * 1000;
  if (!r->at_ms) return LAB_BAD_NO_TIME;
  out->begin_us = end_us > span_us ? end_us - span_us : 0;
  return LAB_FINE;
}

static void copy_name(char *to, size_t size, lab_text name) {
  size_t length = name.length < size ? name.length : size - 1;
  memcpy(to, name.data, length);
  to[length] = '\0';
}

static bool is_source(const recording_source *s, const recording_source *other) {
  return strcmp(s->policy, other->policy) == 0 && strcmp(s->name, other->name) == 0;
}

/* f KEY AFTER SOURCE AGE */
static lab_damage read_answer(recording *r, lab_text line) {
  uint64_t key, after_ms, age_ms;
  recording_source found;
  if (!next_number(&line, NUMBERS_MOST, &key)) return LAB_BAD_FORMAT;
  const numbered *k = known(&r->keys, key);
  if (!k || !next_number(&line, UINT32_MAX, &after_ms)) return LAB_BAD_FORMAT;
  lab_text name = next_word(&line);
  if (!name.length || !next_number(&line, UINT64_MAX, &age_ms)) return LAB_BAD_FORMAT;
  r->at_ms += after_ms;
  const numbered *p = &r->policies.row[k->policy];
  copy_name(found.policy, sizeof found.policy, (lab_text){p->name, p->length});
  copy_name(found.name, sizeof found.name, name);
  recording_source *s = r->sources;
  const recording_source *last = s + RECORDING_SOURCES - 1; /* which all others share */
  while (s < last && s->count && !is_source(s, &found)) s++;
  if (!s->count) *s = found, s->count = s->oldest_ms = 0;
  s->count++;
  if (age_ms > s->oldest_ms) s->oldest_ms = age_ms;
  return LAB_ASIDE;
}

lab_damage recording_read(recording *r, lab_text line, lab_call *out) {
  uint64_t n;
  if (line.length < 3 || line.data[1] != ' ')
    return line.length && line.data[0] != '#' ? LAB_BAD_FORMAT : LAB_ASIDE;
  lab_text rest = {line.data + 2, line.length - 2};
  switch (line.data[0]) {
    case 'c': return read_call(r, rest, out);
    case 'p': return read_policy(r, rest);
    case 'k': return read_key(r, rest);
    case 't':
      if (!next_number(&rest, UINT64_C(253402300800000), &n)) return LAB_BAD_TIME;
      r->at_ms = n;
      return LAB_ASIDE;
    case 'f': return read_answer(r, rest);
    case 'd':
      if (!next_number(&rest, UINT64_MAX, &n)) return LAB_BAD_FORMAT;
      r->missing += n;
      return LAB_ASIDE;
    default: return LAB_ASIDE;
  }
}

const char *recording_head(lab_text line) {
  const size_t length = sizeof RECORDING_MAGIC - 1;
  uint64_t version;
  lab_text rest = {line.data + length, line.length - length};
  if (!text_whole(text_trim(rest), 1000000, &version))
    return "is a recording whose first line is damaged";
  if (version < RECORDING_VERSION)
    return "is a recording of an older neap, which this one cannot read";
  if (version > RECORDING_VERSION)
    return "is a recording of a newer neap: replay it with that one, or a newer one";
  return NULL;
}
