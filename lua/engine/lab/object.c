/* object.c: one object of JSON, from front to back: no tree is made of it. */
#include "format.h"

#define DEPTH 32
#define PATH  128

typedef struct scan {
  char *at, *end;
  const lab_names *names;
  lab_fields *out;
  char path[PATH]; /* of names, with points between; ends with one */
  size_t path_length;
  unsigned depth;
  unsigned lists; /* within so many */
} scan;

static void skip_space(scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
    s->at++;
}

static int unit_at(const char *at, const char *end) {
  int code = 0;
  if (end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int digit = text_hex(at[i]);
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code;
}

static char *put_utf8(char *to, int code) {
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xC0 | code >> 6);
    *to++ = (char)(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    *to++ = (char)(0xE0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  } else {
    *to++ = (char)(0xF0 | code >> 18);
    *to++ = (char)(0x80 | (code >> 12 & 0x3F));
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
  }
  return to;
}

/* In its own place: no escape is shorter than what it stands for. */
static bool unescape(lab_text *t) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  char *to = (char *)t->data;
  const char *at = t->data, *end = at + t->length;
  while (at < end) {
    if (*at != '\\') {
      *to++ = *at++;
      continue;
    }
    const char *known = at + 1 < end && at[1] ? strchr(from, at[1]) : NULL;
    if (known) {
      *to++ = into[known - from];
      at += 2;
      continue;
    }
    int code = at + 1 < end && at[1] == 'u' ? unit_at(at + 2, end) : -1;
    if (code < 0) return false;
    at += 6;
    if (code >= 0xD800 && code < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
      int low = unit_at(at + 2, end);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
    }
    to = put_utf8(to, code);
  }
  t->length = (size_t)(to - t->data);
  return true;
}

/* What is between quotes, as it is written; *has_escape: not as it is meant. */
static bool read_string(scan *s, lab_text *out, bool *has_escape) {
  char *begin = ++s->at;
  *has_escape = false;
  while (s->at < s->end) {
    char *quote = memchr(s->at, '"', (size_t)(s->end - s->at));
    if (!quote) return false;
    if (!*has_escape) *has_escape = memchr(s->at, '\\', (size_t)(quote - s->at)) != NULL;
    char *c = quote;
    while (*has_escape && c > begin && c[-1] == '\\') c--;
    s->at = quote + 1;
    if ((quote - c) % 2 == 0) return *out = (lab_text){begin, (size_t)(quote - begin)}, true;
  }
  return false;
}

static bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

/* A number, true, false or null. */
static bool read_plain(scan *s, lab_text *out) {
  char *begin = s->at;
  while (s->at < s->end && is_plain(*s->at)) s->at++;
  *out = (lab_text){begin, (size_t)(s->at - begin)};
  if (!out->length) return false;
  bool is_word = (*begin >= 'a' && *begin <= 'z') || (*begin >= 'A' && *begin <= 'Z');
  return !is_word || text_is(*out, LAB_TEXT("true")) || text_is(*out, LAB_TEXT("false")) ||
         text_is(*out, LAB_TEXT("null"));
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const lab_name *find_name(scan *s, lab_text key) {
  char whole[PATH];
  if (s->lists) return NULL;
  if (!s->path_length) return names_find(s->names, key);
  if (s->path_length + key.length > sizeof whole) return NULL;
  memcpy(whole, s->path, s->path_length);
  memcpy(whole + s->path_length, key.data, key.length);
  return names_find(s->names, (lab_text){whole, s->path_length + key.length});
}

/* Answers how long the path was before; one that is too long has no names in it. */
static size_t path_enter(scan *s, lab_text key) {
  size_t before = s->path_length;
  size_t room = sizeof s->path - before;
  size_t length = key.length + 1 < room ? key.length : 0;
  if (room < 2) return before;
  memcpy(s->path + before, key.data, length);
  s->path[before + length] = '.';
  s->path_length = before + length + 1;
  return before;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool read_value(scan *s, lab_text key);

static bool read_scalar(scan *s, lab_text key) {
  lab_text value;
  bool has_escape = false, is_string = *s->at == '"';
  if (!(is_string ? read_string(s, &value, &has_escape) : read_plain(s, &value))) return false;
  const lab_name *name = find_name(s, key);
  if (!name || (!is_string && text_is(value, LAB_TEXT("null")))) return true;
  if (has_escape && !unescape(&value)) return false;
  fields_set(s->out, name, value);
  return true;
}

static bool read_list(scan *s) {
  s->at++;
  s->lists++;
  skip_space(s);
  if (s->at < s->end && *s->at == ']') return s->at++, s->lists--, true;
  for (;;) {
    if (!read_value(s, (lab_text){"", 0})) return false;
    skip_space(s);
    if (s->at == s->end) return false;
    char c = *s->at++;
    if (c == ']') return s->lists--, true;
    if (c != ',') return false;
    skip_space(s);
  }
}

static bool read_members(scan *s) {
  s->at++;
  skip_space(s);
  if (s->at < s->end && *s->at == '}') return s->at++, true;
  for (;;) {
    lab_text key;
    bool has_escape;
    if (s->at == s->end || *s->at != '"' || !read_string(s, &key, &has_escape)) return false;
    if (has_escape && !unescape(&key)) return false;
    skip_space(s);
    if (s->at == s->end || *s->at++ != ':') return false;
    if (!read_value(s, key)) return false;
    skip_space(s);
    if (s->at == s->end) return false;
    char c = *s->at++;
    if (c == '}') return true;
    if (c != ',') return false;
    skip_space(s);
  }
}

static bool read_value(scan *s, lab_text key) {
  skip_space(s);
  if (s->at == s->end) return false;
  if (*s->at != '{' && *s->at != '[') return read_scalar(s, key);
  if (++s->depth > DEPTH) return false;
  size_t before = s->path_length;
  if (*s->at == '{' && key.length && !s->lists) before = path_enter(s, key);
  bool ok = *s->at == '{' ? read_members(s) : read_list(s);
  s->path_length = before;
  s->depth--;
  return ok;
}

lab_damage object_read(const lab_names *names, char *line, size_t length, lab_fields *out) {
  scan s = {.at = line, .end = line + length, .names = names, .out = out};
  skip_space(&s);
  if (s.at == s.end || *s.at != '{' || !read_members(&s)) return LAB_BAD_JSON;
  skip_space(&s);
  return s.at == s.end ? LAB_FINE : LAB_BAD_JSON;
}
