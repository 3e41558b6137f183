/* template.c: access logs of nginx and Apache. */
#include "format.h"

#include <stdio.h>

/* ---- Making one ------------------------------------------------------------------------------ */

typedef struct making {
  lab_template *t;
  lab_names *names;
  size_t used, begin; /* of .text: written, and where the literal under way begins */
  char *error;
  size_t size;
} making;

static bool fail(making *m, const char *what, lab_text where) {
  int length = where.length < 60 ? (int)where.length : 60;
  snprintf(m->error, m->size, "%s: %.*s", what, length, where.data);
  return false;
}

static bool add_letter(making *m, char c) {
  if (m->used == TEMPLATE_TEXT) return fail(m, "is too long", (lab_text){m->t->text, 40});
  m->t->text[m->used++] = c;
  return true;
}

/* `name` may be NULL. */
static bool add_part(making *m, const lab_name *name, bool is_list, bool is_time, lab_text where) {
  lab_template *t = m->t;
  if (t->count == TEMPLATE_PARTS) return fail(m, "has too many variables, from here on", where);
  if (t->count && m->used == m->begin)
    return fail(m, "has two variables with nothing in between, so no line can be taken apart",
                where);
  t->part[t->count++] = (template_part){.literal = (uint16_t)m->begin,
                                        .length = (uint16_t)(m->used - m->begin),
                                        .is_list = is_list,
                                        .is_time = is_time,
                                        .name = name};
  m->begin = m->used;
  return true;
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ---- nginx: $name, ${name} ------------------------------------------------------------------- */

static bool starts_with(lab_text t, const char *prefix) {
  size_t length = strlen(prefix);
  return t.length >= length && memcmp(t.data, prefix, length) == 0;
}

static bool make_nginx(making *m, lab_text format) {
  for (size_t i = 0; i < format.length;) {
    if (format.data[i] != '$') {
      if (!add_letter(m, format.data[i++])) return false;
      continue;
    }
    size_t from = i + 1;
    bool braced = from < format.length && format.data[from] == '{';
    if (braced) from++;
    size_t to = from;
    while (to < format.length && is_word(format.data[to])) to++;
    lab_text name = {format.data + from, to - from};
    lab_text rest = {format.data + i, format.length - i};
    if (!name.length) return fail(m, "has a $ without a name", rest);
    if (braced && (to == format.length || format.data[to] != '}'))
      return fail(m, "has a ${ without a }", rest);
    bool is_list = starts_with(name, "upstream_");
    if (!add_part(m, names_find(m->names, name), is_list, false, rest)) return false;
    i = braced ? to + 1 : to;
  }
  return true;
}

/* ---- Apache: %x, %{name}x, %>s ---------------------------------------------------------------- */

typedef struct directive {
  const char *text;
  lab_role role;
  lab_unit unit;
} directive;

/* The time is that of the request's beginning, whatever was sent when. */
static const directive directives[] = {
    {"%t", LAB_START, UNIT_GUESS},
    {"%{sec}t", LAB_START, UNIT_S},
    {"%{msec}t", LAB_START, UNIT_MS},
    {"%{usec}t", LAB_START, UNIT_US},
    {"%{begin:sec}t", LAB_START, UNIT_S},
    {"%{begin:msec}t", LAB_START, UNIT_MS},
    {"%{begin:usec}t", LAB_START, UNIT_US},
    {"%{end:sec}t", LAB_TIME, UNIT_S},
    {"%{end:msec}t", LAB_TIME, UNIT_MS},
    {"%{end:usec}t", LAB_TIME, UNIT_US},
    {"%D", LAB_DURATION, UNIT_US},
    {"%T", LAB_DURATION, UNIT_S},
    {"%{s}T", LAB_DURATION, UNIT_S},
    {"%{ms}T", LAB_DURATION, UNIT_MS},
    {"%{us}T", LAB_DURATION, UNIT_US},
    {"%s", LAB_STATUS, UNIT_GUESS},
    {"%r", LAB_REQUEST, UNIT_GUESS},
    {"%m", LAB_METHOD, UNIT_GUESS},
    {"%U", LAB_TARGET, UNIT_GUESS},
    {"%v", LAB_HOST, UNIT_GUESS},
    {"%V", LAB_HOST, UNIT_GUESS},
    {"%{Host}i", LAB_HOST, UNIT_GUESS},
    {"%{Retry-After}o", LAB_RETRY_AFTER, UNIT_S},
};

/* "%>s", "%!200,304s": what is between % and the rest is no business of ours. */
static size_t skip_modifiers(lab_text f, size_t i) {
  while (i < f.length && (f.data[i] == '<' || f.data[i] == '>' || f.data[i] == '!' ||
                          f.data[i] == ',' || (f.data[i] >= '0' && f.data[i] <= '9')))
    i++;
  return i;
}

static const lab_name *find_directive(lab_names *names, lab_text written) {
  char header[48];
  for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
    const directive *d = &directives[i];
    lab_text text = {d->text, strlen(d->text)};
    if (!text_is(text, written)) continue;
    return names_map(names, text, d->role, d->unit) ? names_find(names, text) : NULL;
  }
  if (written.length < 5 || written.data[written.length - 1] != 'i') return NULL;
  int length = snprintf(header, sizeof header, "http_%.*s", (int)written.length - 4,
                        written.data + 2); /* %{X-Tenant}i */
  return names_find(names, (lab_text){header, (size_t)length});
}

static bool make_apache(making *m, lab_text f) {
  for (size_t i = 0; i < f.length;) {
    if (f.data[i] == '\\' && i + 1 < f.length)
      i++; /* \" of its configuration */
    else if (f.data[i] == '%' && i + 1 < f.length && f.data[i + 1] != '%') {
      lab_text rest = {f.data + i, f.length - i};
      char written[64] = "%";
      size_t to = skip_modifiers(f, i + 1), from = to;
      if (to < f.length && f.data[to] == '{')
        while (to < f.length && f.data[to] != '}') to++;
      if (to < f.length && f.data[to] == '}') to++;
      if (to == f.length) return fail(m, "has a % without a letter", rest);
      to += f.data[to] == '^' && to + 2 < f.length ? 3 : 1; /* %^FB */
      size_t length = to - from < sizeof written - 1 ? to - from : sizeof written - 2;
      memcpy(written + 1, f.data + from, length);
      lab_text name = {written, length + 1};
      bool is_time = f.data[to - 1] == 't' && length == 1;
      if (!add_part(m, find_directive(m->names, name), false, is_time, rest)) return false;
      i = to;
      continue;
    } else if (f.data[i] == '%') { /* %% */
      if (++i == f.length) return fail(m, "has a % without a letter", (lab_text){"%", 1});
    }
    if (!add_letter(m, f.data[i++])) return false;
  }
  return true;
}

/* ---- Either ---------------------------------------------------------------------------------- */

/* What is in quotes, one piece after the other: as configuration files have it.  Answers how much
 * there was. */
static size_t unquote(lab_text f, char quote, char *to, size_t size) {
  size_t used = 0;
  bool inside = false;
  for (size_t i = 0; i < f.length; i++) {
    bool escaped = i > 0 && f.data[i - 1] == '\\';
    if (f.data[i] == quote && !escaped)
      inside = !inside;
    else if (inside && used < size)
      to[used++] = f.data[i];
  }
  return used;
}

bool template_make(lab_template *t, lab_text format, lab_names *names, char *error, size_t size) {
  char copy[TEMPLATE_TEXT];
  making m = {.t = t, .names = names, .error = error, .size = size};
  *t = (lab_template){.count = 0};
  format = text_trim(format);
  bool is_nginx_line = starts_with(format, "log_format");
  bool is_apache_line = starts_with(format, "LogFormat");
  bool is_quoted = format.length > 1 && format.data[0] == '\'';
  if (is_nginx_line || is_apache_line || is_quoted) {
    size_t length = unquote(format, is_apache_line ? '"' : '\'', copy, sizeof copy);
    format = (lab_text){copy, length};
  }
  bool is_nginx = format.length && memchr(format.data, '$', format.length);
  if (!is_nginx && (!format.length || !memchr(format.data, '%', format.length)))
    return fail(&m, "has no variable ($status as of nginx, %s as of Apache)", format);
  if (!(is_nginx ? make_nginx : make_apache)(&m, format)) return false;
  t->tail = (uint16_t)m.begin;
  t->tail_length = (uint16_t)(m.used - m.begin);
  return true;
}

/* ---- Reading a line -------------------------------------------------------------------------- */

/* Whether the quote at `at` is part of the value: \". */
static bool is_escaped(const char *begin, const char *at) {
  const char *c = at;
  while (c > begin && c[-1] == '\\') c--;
  return (at - c) & 1;
}

/* Whether the space at `at` is one within a list: behind a comma or a colon, or before a colon. */
static bool is_in_list(const char *begin, const char *at, const char *end) {
  if (at > begin && (at[-1] == ',' || at[-1] == ':')) return true;
  return at + 2 < end && at[1] == ':' && at[2] == ' ';
}

/* Where the literal is next, from `at` on; NULL: nowhere. */
static const char *find_literal(const template_part *part, lab_text literal, const char *at,
                                const char *end) {
  const char *begin = at;
  if (!literal.length) return end;
  if (part->is_time && at < end && *at == '[') {
    at = memchr(at, ']', (size_t)(end - at));
    if (!at) return NULL;
  }
  for (; (size_t)(end - at) >= literal.length; at++) {
    at = memchr(at, literal.data[0], (size_t)(end - at) - literal.length + 1);
    if (!at) return NULL;
    if (literal.length > 1 && memcmp(at + 1, literal.data + 1, literal.length - 1) != 0) continue;
    if (*at == '"' && is_escaped(begin, at)) continue;
    if (part->is_list && *at == ' ' && is_in_list(begin, at, end)) continue;
    return at;
  }
  return NULL;
}

lab_damage template_read(const lab_template *t, lab_text line, lab_fields *out) {
  const char *at = line.data, *end = line.data + line.length;
  const template_part *part = t->part;
  if (!t->count || line.length < part->length || memcmp(at, t->text + part->literal, part->length))
    return LAB_BAD_FORMAT;
  at += part->length;
  for (size_t i = 0; i < t->count; i++, part++) {
    bool is_last = i + 1 == t->count;
    lab_text next = {t->text + (is_last ? t->tail : part[1].literal),
                     is_last ? t->tail_length : part[1].length};
    const char *to = find_literal(part, next, at, end);
    if (!to && is_last && t->is_open) to = end;
    if (!to) return LAB_BAD_FORMAT;
    if (is_last && t->is_open && !next.length) {
      to = memchr(at, ' ', (size_t)(end - at));
      if (!to) to = end;
    }
    if (part->name) fields_set(out, part->name, (lab_text){at, (size_t)(to - at)});
    at = to + next.length;
  }
  return t->is_open || at == end ? LAB_FINE : LAB_BAD_FORMAT;
}
