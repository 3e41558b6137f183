/* reader_internal.h: what reader.c, detect.c and har.c share. */
#ifndef NEAP_LAB_READER_INTERNAL_H
#define NEAP_LAB_READER_INTERNAL_H

#include "format.h"
#include "reader.h"
#include "recording.h"

/* An entry of log.entries on its way through: see har.c. */
typedef struct har_scan {
  char *text; /* of the entry, without what is long in it */
  size_t used;
  uint64_t feeds;   /* lines that are over */
  unsigned depth;   /* of objects and lists */
  unsigned lists;   /* within so many of an entry: none of that is kept */
  size_t in_string; /* letters of the text under way, and 1; 0: none is */
  bool is_escaped, keeps_escape, in_entries, began, is_long, is_over;
  char word[16]; /* the last text outside of an entry */
  size_t word_length;
} har_scan;

/* The next entry, as an object's text. */
lab_got har_next(lab_input *in, har_scan *h, uint64_t *at_line, char **line, size_t *length);
void har_free(har_scan *h);

struct lab_reader {
  lab_input *in;
  lab_format format;
  char what[64];
  int log; /* its number; 0 is the first */
  lab_names names;
  lab_timer timer;
  lab_unit guessed; /* of durations, by the look of them; UNIT_GUESS: the names say it */
  lab_template pattern;
  lab_row row;
  recording *recording; /* NULL: it is none */
  har_scan har;
  lab_calls *ahead; /* what the line after this one says, and behind it that line */
  uint64_t line;
  lab_calls calls;
  size_t next; /* of them */
  bool is_over;
  uint64_t last_us;                    /* the call before */
  uint64_t second, in_second, in_last; /* calls of the second under way, and of the one before */
};

/* What a line says, but for recordings. */
lab_damage reader_fields(lab_reader *r, char *line, size_t length, lab_fields *out);

/* Finds out the format, or takes the one that was given, and gets ready for the first line with a
 * call.  false: one line in error[size]. */
bool reader_detect(lab_reader *r, const lab_options *options, const char *shown, char *error,
                   size_t size);

#endif
