/* recording.h: what `neap serve --record` writes, a line for each call; `neap replay` reads it.
 *
 *   #neap-recording 1                  its first line; 1 is the version of what follows
 *   t WALL                             milliseconds since 1970, from which the next line counts
 *   p POLICY NAME HASH SEED            a policy, by its number; again when it was reloaded
 *   k KEY POLICY NAME                  a breaker, by its number
 *   c KEY AFTER TOOK WHAT [MORE...]    a call that has ended, AFTER ms after the line before it
 *   f KEY AFTER SOURCE AGE             a stage of the policy's fallback answered instead: last_good, of
 *                                      that age in ms, default ...
 *   d COUNT                            so many calls are missing here: the disk did not keep up
 *
 *   WHAT   how it ended and the status: a200 answer, t timeout, x transport, c caller,
 *          b bulkhead, r refused by the breaker
 *   MORE   j=s|f|t|n  the policy's verdict           s=MS  it was reported so long after it began
 *          r=MS       Retry-After                    g=N   gRPC status
 *          e=CODE     of the protocol above HTTP
 *
 * Names are percent-encoded: no spaces, no control characters, no %.  Lines of other letters are left
 * out by a reader, so that what is added later needs no other version. */
#ifndef NEAP_LAB_RECORDING_H
#define NEAP_LAB_RECORDING_H

#include "fields.h"
#include "neap/neap.h"

#define RECORDING_MAGIC   "#neap-recording "
#define RECORDING_VERSION 1

#define RECORDING_NAME 128 /* bytes of a name */

/* Text as a name; answers how long it is, at most 3 * RECORDING_NAME. */
size_t recording_encode(lab_text t, char *to);

typedef struct recording recording; /* as it is read */

recording *recording_new(void);
void recording_free(recording *r);

/* Of the first line: what is wrong with it, or NULL. */
const char *recording_head(lab_text line);

/* LAB_ASIDE: a line that is no call.  The call's texts live as long as `r` and `line`. */
lab_damage recording_read(recording *r, lab_text line, lab_call *out);

/* Who answered instead of a policy's dependency: .count 0 ends the list. */
#define RECORDING_SOURCES 32
typedef struct recording_source {
  char policy[NEAP_NAME_MAX + 1], name[20];
  uint64_t count, oldest_ms;
} recording_source;
const recording_source *recording_sources(const recording *r);

/* Calls that are missing, as the recording says itself. */
uint64_t recording_missing(const recording *r);

/* The seed of the first policy of that name; false: there is none. */
bool recording_seed(const recording *r, lab_text policy, uint64_t *seed);

#endif
