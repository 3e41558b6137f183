/* reader.h: calls out of logs of any format.
 *
 *   input -> lines -> format -> fields -> lab_call      damaged lines are counted, and left out
 *
 * Several logs are read as one, by time: rotated ones in any order, those of several servers side by
 * side. */
#ifndef NEAP_LAB_READER_H
#define NEAP_LAB_READER_H

#include "fields.h"
#include "input.h"
#include "recording.h"

typedef enum lab_format {
  FORMAT_AUTO = 0,
  FORMAT_COMBINED, /* nginx, Apache: common, combined, and with the host in front */
  FORMAT_TEMPLATE, /* by --log-format */
  FORMAT_JSON,     /* a line an object; Envoy's too */
  FORMAT_CSV,
  FORMAT_HAR,
  FORMAT_RECORDING,
  FORMAT_COUNT
} lab_format;

/* The formats' names, for people and --format; "" for others. */
const char *lab_format_name(lab_format format);
bool lab_format_of(lab_text name, lab_format *out);

typedef struct lab_damaged {
  uint64_t count, first_line;
  int first_log;
  char excerpt[64];
} lab_damaged;

typedef struct lab_stats {
  uint64_t lines, calls, aside; /* aside: not a call of the dependency */
  uint64_t missing;             /* from recordings, as they say themselves */
  uint64_t coarse;              /* calls whose time is to the second: they are spread over it */
  uint64_t without_duration;
  uint64_t refused;        /* calls that the log's own breaker refused */
  uint64_t begins;         /* calls whose beginning the log says itself */
  uint64_t keyed;          /* calls with a key */
  uint64_t from_us, to_us; /* the first that began, the last that ended; 0: there is none */
  lab_damaged damaged[LAB_DAMAGE_COUNT];
} lab_stats;

typedef struct lab_reader lab_reader;

typedef struct lab_options {
  lab_format format;
  lab_text log_format; /* .data NULL: none */
  const lab_names *names;
} lab_options;

/* NULL, with one line in error[size]. */
lab_reader *reader_open(const char *path, const lab_options *options, char *error, size_t size);
lab_reader *reader_memory(const void *bytes, size_t length, const lab_options *options, char *error,
                          size_t size);
void reader_close(lab_reader *r);
void reader_set_log(lab_reader *r, int log); /* its number, as calls tell it; 0 if not set */

lab_format reader_format(const lab_reader *r);
const char *reader_what(const lab_reader *r); /* the format, for people */
const char *
reader_guessed(const lab_reader *r); /* the unit of durations that no name tells; NULL */
const lab_input *reader_input(const lab_reader *r);
const recording *reader_recording(const lab_reader *r); /* NULL: it is none */
bool reader_seed(const lab_reader *r, lab_text policy, uint64_t *seed);

/* Reads to the first call: what a recording says of itself is known then. */
void reader_begin(lab_reader *r, lab_stats *stats);

/* The next call, by time, of all of them; NULL: there are no more.  Lives until the next. */
const lab_call *readers_next(lab_reader **readers, size_t count, lab_stats *stats);

#endif
