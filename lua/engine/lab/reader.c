/* reader.c: from lines to calls; which format it is, see detect.c. */
#include "reader_internal.h"

#include <stdlib.h>

#define DAY_US    UINT64_C(86400000000)
#define SECOND_US UINT64_C(1000000)
#define PEEKED    ((size_t)8192)
#define AHEAD     ((size_t)64 << 10) /* there from a line on: the rest of its row, the line after it */

/* ---- Lines that are damaged ------------------------------------------------------------------ */

static void damaged(lab_reader *r, lab_stats *stats, lab_damage kind, lab_text line) {
  lab_damaged *d = &stats->damaged[kind];
  if (d->count++) return;
  d->first_line = r->line;
  d->first_log = r->log;
  text_excerpt(line, d->excerpt, sizeof d->excerpt);
}

/* ---- One line -------------------------------------------------------------------------------- */

/* A row of CSV goes on while a quote is open.  One that nothing closes, or that is closed in the middle
 * of a later field, is damaged, and no more than its line. */
static lab_got row_next(lab_reader *r, char **line, size_t *length) {
  lab_got got = input_line(r->in, line, length);
  lab_row_place place = ROW_FIELD;
  r->line++;
  if (got != GOT_LINE || !row_goes_on(r->row.separator, *line, *length, &place)) return got;
  char *rest, *feed;
  size_t n = input_peek(r->in, 0, &rest), lines = 0;
  for (char *at = rest, *end = rest + n; at < end; at = feed + 1) {
    feed = memchr(at, '\n', (size_t)(end - at));
    if (!feed) feed = end;
    const char *to = feed > at && feed[-1] == '\r' ? feed - 1 : feed;
    lines++;
    if (row_goes_on(r->row.separator, at, (size_t)(to - at), &place)) continue;
    if (place == ROW_BROKEN) break;
    input_take(r->in, (size_t)(feed - rest) + (feed < end));
    r->line += lines;
    *length = (size_t)(to - *line);
    break;
  }
  return got;
}

static lab_got next_line(lab_reader *r, char **line, size_t *length) {
  if (r->format == FORMAT_HAR) return har_next(r->in, &r->har, &r->line, line, length);
  if (r->format == FORMAT_CSV) return row_next(r, line, length);
  r->line++;
  return input_line(r->in, line, length);
}

static bool is_blank(const char *line, size_t length) {
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)line[i] > ' ') return false;
  return true;
}

lab_damage reader_fields(lab_reader *r, char *line, size_t length, lab_fields *out) {
  switch (r->format) {
    case FORMAT_COMBINED:
    case FORMAT_TEMPLATE: return template_read(&r->pattern, (lab_text){line, length}, out);
    case FORMAT_CSV: return row_read(&r->row, line, length, out);
    default: return object_read(&r->names, line, length, out);
  }
}

static lab_damage read_line(lab_reader *r, char *line, size_t length, lab_calls *out) {
  lab_fields f;
  out->count = 0;
  if (r->format == FORMAT_RECORDING) {
    lab_damage damage = recording_read(r->recording, (lab_text){line, length}, &out->call[0]);
    out->count = damage == LAB_FINE;
    return damage;
  }
  memset(&f, 0, sizeof f);
  lab_damage damage = reader_fields(r, line, length, &f);
  return damage ? damage : fields_calls(&f, &r->names, &r->timer, out);
}

static uint64_t end_of(const lab_call *c) {
  return c->begin_us + (c->span_us ? c->span_us : c->duration_us);
}

/* Calls of one second are spread over it, as many as there were in the one before. */
static void spread(lab_reader *r, lab_call *calls, size_t count) {
  const lab_call *last = &calls[count - 1];
  uint64_t end_us = last->is_begin ? last->begin_us : end_of(last);
  uint64_t second = end_us / SECOND_US;
  if (second != r->second) {
    r->in_last = r->in_second;
    r->in_second = 0;
    r->second = second;
  }
  uint64_t place = r->in_second++, of = r->in_last ? r->in_last : 1;
  uint64_t offset_us = place * SECOND_US / of;
  if (offset_us > SECOND_US - 1000) offset_us = r->in_last ? SECOND_US - 1000 : 0;
  for (size_t i = 0; i < count; i++) calls[i].begin_us += offset_us;
}

static lab_damage damage_of(lab_got got) {
  switch (got) {
    case GOT_LONG: return LAB_BAD_LONG;
    case GOT_GZIP: return LAB_BAD_GZIP;
    case GOT_CUT: return LAB_BAD_CUT;
    default: return LAB_BAD_READ;
  }
}

/* The calls of the next line that has any, into r->calls; false: there is none. */
static bool read_next(lab_reader *r, lab_stats *stats) {
  char *line;
  size_t length;
  while (!r->is_over) {
    char *ahead;
    input_peek(r->in, AHEAD, &ahead);
    lab_got got = next_line(r, &line, &length);
    if (got == GOT_END) break;
    if (got != GOT_LINE) {
      lab_text why = {"", 0};
      if (got == GOT_FAULT) why = (lab_text){input_fault(r->in), strlen(input_fault(r->in))};
      stats->lines += got == GOT_LONG;
      damaged(r, stats, damage_of(got), why);
      if (got != GOT_LONG) break;
      continue;
    }
    if (is_blank(line, length)) continue;
    stats->lines++;
    lab_damage damage = read_line(r, line, length, &r->calls);
    if (damage == LAB_ASIDE) {
      stats->aside += r->format != FORMAT_RECORDING;
    } else if (damage) {
      if (input_ended_in_line(r->in)) damage = LAB_BAD_CUT;
      damaged(r, stats, damage, (lab_text){line, length});
    } else {
      lab_call *calls = r->calls.call;
      if (calls[0].is_coarse) {
        spread(r, calls, r->calls.count);
        stats->coarse += r->calls.count;
      }
      for (size_t i = 0; i < r->calls.count; i++) {
        calls[i].line = r->line;
        calls[i].log = r->log;
      }
      r->next = 0;
      return true;
    }
  }
  if (r->recording && !r->is_over) stats->missing += recording_missing(r->recording);
  r->is_over = true;
  return false;
}

/* ---- In order -------------------------------------------------------------------------------- */

static bool is_far(uint64_t us, uint64_t from_us) {
  return us > from_us ? us - from_us > DAY_US : from_us - us > DAY_US;
}

/* Whether the line after this one is of that time, too, or there is none.  It stays where it is, and
 * so does this one, whose texts the calls have: nothing is read for it. */
static bool is_confirmed(lab_reader *r, uint64_t far_us) {
  char *bytes;
  size_t n = input_peek(r->in, 0, &bytes);
  char *feed = n ? memchr(bytes, '\n', n) : NULL;
  if (n == 0) return true;
  if (!r->ahead && !(r->ahead = malloc(sizeof *r->ahead + PEEKED))) abort();
  char *line = (char *)(r->ahead + 1);
  size_t length = feed ? (size_t)(feed - bytes) : n;
  if (length > PEEKED) return false;
  memcpy(line, bytes, length);
  return read_line(r, line, length, r->ahead) == LAB_FINE &&
         !is_far(end_of(&r->ahead->call[0]), far_us);
}

/* A call a day away from the ones before is believed if the next one is there, too: a log may have a
 * gap, a line may be damaged.  What counts for itself is believed. */
static bool is_believed(lab_reader *r, uint64_t end_us) {
  if (!r->last_us || !is_far(end_us, r->last_us)) return true;
  return r->format == FORMAT_RECORDING || r->format == FORMAT_HAR || is_confirmed(r, end_us);
}

/* Makes r->calls ready, if it is not; false: there are no more. */
static bool ready(lab_reader *r, lab_stats *stats) {
  if (r->next < r->calls.count) return true;
  while (read_next(r, stats)) {
    uint64_t end_us = end_of(&r->calls.call[0]);
    bool believed = is_believed(r, end_us);
    if (!believed) {
      damaged(r, stats, LAB_BAD_FAR, (lab_text){"", 0});
      continue;
    }
    r->last_us = end_us;
    return true;
  }
  r->calls.count = r->next = 0;
  return false;
}

void reader_begin(lab_reader *r, lab_stats *stats) { ready(r, stats); }

const lab_call *readers_next(lab_reader **readers, size_t count, lab_stats *stats) {
  lab_reader *first = NULL;
  uint64_t first_us = 0;
  for (size_t i = 0; i < count; i++) {
    lab_reader *r = readers[i];
    if (r->is_over && r->next >= r->calls.count) continue;
    if (!ready(r, stats)) continue;
    uint64_t end_us = end_of(&r->calls.call[r->next]);
    if (first && end_us >= first_us) continue;
    first = r;
    first_us = end_us;
  }
  if (!first) return NULL;
  const lab_call *c = &first->calls.call[first->next++];
  stats->calls++;
  stats->without_duration += !c->has_duration;
  stats->refused += c->ended_by == LAB_REFUSED;
  stats->begins += c->is_begin;
  stats->keyed += c->key.data && c->key.length;
  if (!stats->from_us || c->begin_us < stats->from_us) stats->from_us = c->begin_us;
  if (end_of(c) > stats->to_us) stats->to_us = end_of(c);
  return c;
}

/* ---- Closing --------------------------------------------------------------------------------- */

void reader_close(lab_reader *r) {
  if (!r) return;
  input_close(r->in);
  recording_free(r->recording);
  free(r->ahead);
  har_free(&r->har);
  free(r);
}

void reader_set_log(lab_reader *r, int log) { r->log = log; }
lab_format reader_format(const lab_reader *r) { return r->format; }
const char *reader_what(const lab_reader *r) { return r->what; }
const char *reader_guessed(const lab_reader *r) {
  return r->guessed == UNIT_S ? "s" : r->guessed == UNIT_MS ? "ms" : NULL;
}
const lab_input *reader_input(const lab_reader *r) { return r->in; }

const recording *reader_recording(const lab_reader *r) { return r->recording; }

bool reader_seed(const lab_reader *r, lab_text policy, uint64_t *seed) {
  return r->recording && recording_seed(r->recording, policy, seed);
}
