/* input.h: the bytes of a log, and its lines: from a file, standard input or memory; compressed by
 * gzip or not, by what it begins with.  Memory is bounded: a line that is longer than LINE_MOST is
 * skipped. */
#ifndef NEAP_LAB_INPUT_H
#define NEAP_LAB_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_MOST ((size_t)1 << 20)

typedef struct lab_input lab_input;

typedef enum lab_got {
  GOT_LINE = 0,
  GOT_END,
  GOT_LONG, /* it was skipped */
  GOT_GZIP, /* damaged: nothing more comes */
  GOT_CUT,  /* the compressed data ends too early: nothing more comes */
  GOT_FAULT /* of the file: nothing more comes; see input_fault() */
} lab_got;

/* NULL, with one line in error[size].  "-" is standard input. */
lab_input *input_open(const char *path, char *error, size_t size);

/* Owns: the caller keeps the bytes. */
lab_input *input_memory(const void *bytes, size_t length);
void input_close(lab_input *in);

/* The next line, without its end; it is the caller's to write to, until the next call. */
lab_got input_line(lab_input *in, char **line, size_t *length);

/* What comes next, at least `wanted` bytes of it unless there is less; and takes `count` of it.  With
 * 0 wanted nothing is read: a line stays where it is. */
size_t input_peek(lab_input *in, size_t wanted, char **bytes);
void input_take(lab_input *in, size_t count);

bool input_is_gzip(const lab_input *in);
bool input_ended_in_line(const lab_input *in); /* the last line has no line feed */
uint64_t input_position(const lab_input *in);  /* bytes of the file that were read */
uint64_t input_size(const lab_input *in);      /* of the file; 0: nobody knows */
const char *input_fault(const lab_input *in);

#endif
