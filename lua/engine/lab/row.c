/* row.c: one row of CSV: RFC 4180. */
#include "format.h"

/* The next field at *at, unquoted in its place; false: a quote is not closed, or something follows
 * it.  *at is then behind the separator, or NULL after the last one. */
static bool next_field(char separator, char **at, const char *end, lab_text *out) {
  char *c = *at, *begin = c;
  if (c == end || *c != '"') {
    while (c < end && *c != separator) c++;
    *out = (lab_text){begin, (size_t)(c - begin)};
    *at = c < end ? c + 1 : NULL;
    return true;
  }
  char *to = ++c;
  for (begin = to; c < end; c++) {
    if (*c == '"' && (c + 1 == end || c[1] != '"')) break;
    if (*c == '"') c++;
    *to++ = *c;
  }
  if (c == end) return false;
  *out = (lab_text){begin, (size_t)(to - begin)};
  c++;
  if (c < end && *c != separator) return false;
  *at = c < end ? c + 1 : NULL;
  return true;
}

static char separator_of(const char *line, size_t length) {
  static const char separators[] = {',', ';', '\t'};
  char best = ',';
  size_t most = 0;
  for (size_t i = 0; i < sizeof separators; i++) {
    size_t count = 0;
    for (size_t j = 0; j < length; j++) count += line[j] == separators[i];
    if (count > most) most = count, best = separators[i];
  }
  return best;
}

size_t row_head(lab_row *r, const lab_names *names, char *line, size_t length) {
  char *at = line;
  size_t known = 0;
  lab_text name;
  r->separator = separator_of(line, length);
  r->count = 0;
  while (at && r->count < ROW_COLUMNS && next_field(r->separator, &at, line + length, &name)) {
    const lab_name *found = names_find(names, text_trim(name));
    known += found != NULL;
    r->column[r->count++] = found;
  }
  return known;
}

static lab_row_place row_letter(lab_row_place place, char separator, char c) {
  switch (place) {
    case ROW_BROKEN: return ROW_BROKEN;
    case ROW_QUOTED: return c == '"' ? ROW_QUOTE : ROW_QUOTED;
    case ROW_QUOTE:
      if (c == '"') return ROW_QUOTED;
      return c == separator ? ROW_FIELD : ROW_BROKEN;
    case ROW_FIELD:
      if (c == '"') return ROW_QUOTED;
      break;
    default: break;
  }
  return c == separator ? ROW_FIELD : ROW_PLAIN;
}

bool row_goes_on(char separator, const char *line, size_t length, lab_row_place *place) {
  bool has_quote = length && memchr(line, '"', length);
  if (!has_quote) return *place == ROW_QUOTED;
  for (size_t i = 0; i < length; i++) *place = row_letter(*place, separator, line[i]);
  return *place == ROW_QUOTED;
}

lab_damage row_read(const lab_row *r, char *line, size_t length, lab_fields *out) {
  char *at = line;
  size_t count = 0;
  lab_text value;
  for (; at; count++) {
    if (!next_field(r->separator, &at, line + length, &value)) return LAB_BAD_FORMAT;
    if (count < r->count && r->column[count]) fields_set(out, r->column[count], value);
  }
  return count == r->count ? LAB_FINE : LAB_BAD_COLUMNS;
}
