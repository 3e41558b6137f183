/* format.h: what a line is read as.
 *
 *   template   nginx's log_format, Apache's LogFormat: text with variables in it
 *   object     JSON: one flat object, or one with others in it: "request.method"
 *   row        CSV: RFC 4180, names in its first row
 *
 * All of them fill a lab_fields, whose texts are in the line: that is written to where an escape has
 * to go. */
#ifndef NEAP_LAB_FORMAT_H
#define NEAP_LAB_FORMAT_H

#include "fields.h"

/* ---- Template -------------------------------------------------------------------------------- */

#define TEMPLATE_PARTS 48
#define TEMPLATE_TEXT  2048

typedef struct template_part {
  uint16_t literal, length; /* of the text before it, in .text */
  bool is_list;             /* "a, b : c" */
  bool is_time;             /* "[10/Oct/2000:13:55:36 -0700]", with its brackets */
  const lab_name *name;     /* NULL: of no interest */
} template_part;

typedef struct lab_template {
  char text[TEMPLATE_TEXT];
  template_part part[TEMPLATE_PARTS];
  size_t count;
  uint16_t tail, tail_length; /* the text behind the last one */
  bool is_open;               /* more may follow on a line */
} lab_template;

/* Of "$remote_addr [$time_local] ..." or "%h %t ...": whichever it is.  A text copied with its quotes
 * and its log_format or LogFormat is fine.
 *
 * Errors: false, with what is wrong in error[size]. */
bool template_make(lab_template *t, lab_text format, lab_names *names, char *error, size_t size);

lab_damage template_read(const lab_template *t, lab_text line, lab_fields *out);

/* ---- Object ---------------------------------------------------------------------------------- */

lab_damage object_read(const lab_names *names, char *line, size_t length, lab_fields *out);

/* ---- Row ------------------------------------------------------------------------------------- */

#define ROW_COLUMNS 256

typedef struct lab_row {
  char separator; /* , ; or a tab */
  size_t count;
  const lab_name *column[ROW_COLUMNS];
} lab_row;

/* The first row: how many of its names are known. */
size_t row_head(lab_row *r, const lab_names *names, char *line, size_t length);

/* Where in a row a line ends.  Only a quote that begins a field opens one: 5" is five inches. */
typedef enum lab_row_place {
  ROW_FIELD = 0, /* at a field's beginning */
  ROW_PLAIN,
  ROW_QUOTED,
  ROW_QUOTE, /* in quotes, behind one: their end, or the first of two */
  ROW_BROKEN /* it was neither: what follows it is no part of this row */
} lab_row_place;

/* Whether the line feed after these is in quotes, so that the row goes on with the next line; *place
 * is ROW_FIELD before the first. */
bool row_goes_on(char separator, const char *line, size_t length, lab_row_place *place);

lab_damage row_read(const lab_row *r, char *line, size_t length, lab_fields *out);

#endif
