/* record.h: `neap serve --record`: a line for each call, for neap replay; the format is that of
 * lab/recording.h.
 *
 *   a call ends  -->  buffer  -- every 500 ms, or when it is full -->  a thread writes  -->  FILE
 *                                                                         FILE is full: FILE.1 ...
 *
 * Nothing waits for the disk: while it does not keep up calls are left out, and the recording says how
 * many.  A disk that is full is told once, and when it is over. */
#ifndef NEAP_CMD_RECORD_H
#define NEAP_CMD_RECORD_H

#include "serve.h"

/* From then on all calls of the engine are recorded.
 *
 * Errors: false, with one line in error[size]: the file can't be made, or is no recording. */
bool record_open(serve *s, recorder **out, char *error, size_t size);

/* Writes what is left, on to `closed`; the loop has to run until then. */
void record_close(recorder *r, void (*closed)(void *data), void *data);

#endif
