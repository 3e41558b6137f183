/* lane.h: one policy's breakers on a virtual clock, and what they would have done.
 *
 * A log is written as calls end, and nearly in order; a breaker wants to see each begin and end, in
 * order.  So the clock runs LANE_HORIZON_MS behind what was read, and calls wait in a ring until it
 * is their turn:
 *
 *        now                                                         latest end
 *         |<--------------------- LANE_HORIZON_MS ----------------------->|
 *   ------+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+--------
 *     done    |   a millisecond each: calls that end in it, then calls that begin
 *
 * A call that began before that is late: taken as beginning now, and counted.  So memory is bounded
 * by how many calls there are in the horizon, and by LANE_MOST of them: then the clock runs closer
 * behind.
 *
 * A call that the breaker refuses is not reported to it; one that the log's own breaker refused takes
 * no probe, as nobody knows what it had come to. */
#ifndef NEAP_LAB_LANE_H
#define NEAP_LAB_LANE_H

#include "neap/neap.h"
#include "series.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_HORIZON_MS 120000
#define LANE_MOST       ((uint32_t)1 << 20)

/* Of one key, or of all together.  The first five are what the log says of every call but those that
 * its own breaker refused, as the policy judges them; timeouts are failures, too. */
#define LANE_COUNTS(X)                                                                             \
  X(calls)                                                                                         \
  X(success)                                                                                       \
  X(failure)                                                                                       \
  X(timeout)                                                                                       \
  X(neutral)                                                                                       \
  X(slow)                                                                                          \
  X(cut)      /* of the timeouts: the log has them longer than the policy's timeout */             \
  X(cut_good) /* ... and good in the end */                                                        \
  X(cut_ms)   /* waiting that the timeout had ended */                                             \
  X(unknown)  /* refused by the log's own breaker: in calls, in none of the above */               \
  X(refused)                                                                                       \
  X(by_open)         /* of the refused: the breaker was open */                                    \
  X(by_probes)       /* ... half-open, its probes taken */                                         \
  X(by_ramp)         /* ... closed a short while ago */                                            \
  X(saved)           /* ... would have failed anyway */                                            \
  X(lost)            /* ... were good */                                                           \
  X(spared)          /* ... were neutral */                                                        \
  X(refused_unknown) /* ... nobody knows */                                                        \
  X(saved_ms)        /* waiting for those that would have failed */                                \
  X(refused_ms)      /* waiting for all that were refused */                                       \
  X(probes)                                                                                        \
  X(stale)        /* reported after the breaker had moved */                                       \
  X(bare)         /* refused before the key had a good answer */                                   \
  X(worst_age_ms) /* of the last good answer, when one was refused: the most */                    \
  X(worst_at_ms)                                                                                   \
  X(opened)                                                                                        \
  X(closed)                                                                                        \
  X(open_ms) /* not closed, altogether */

typedef struct lane_counts {
#define X(name) uint64_t name;
  LANE_COUNTS(X)
#undef X
} lane_counts;

typedef struct lane_key {
  char *name;
  neap_breaker *breaker;
  neap_flight *flight; /* NULL: the rules have no use for it */
  uint64_t sweep_ms;   /* when a call may be overdue; NEAP_NEVER: none */
  uint64_t good_ms;    /* when the last good call ended; 0: there was none */
  uint64_t since_ms;   /* not closed since; 0: it is closed */
  lane_counts counts;
  lane_series *series; /* NULL: of a key beyond LANE_SERIES */
} lane_key;
#define LANE_SERIES 4096

typedef struct lane lane;

/* A call, judged.  Times in ms since 1970. */
typedef struct lane_call {
  uint64_t begin_ms;
  uint32_t span_ms;   /* from its beginning to its report */
  uint32_t took_ms;   /* as it is reported */
  uint32_t logged_ms; /* as the log has it */
  uint32_t retry_after_ms;
  neap_outcome outcome;
  bool is_unknown; /* refused by the log's own breaker */
  bool is_cut;     /* the policy's timeout ended it, not the log's */
  bool was_good;   /* ... and it had come to something */
} lane_call;

/* What a lane's host is told and asked.  None of it takes calls. */
typedef struct lane_host {
  void *data;
  void (*moved)(void *data, uint32_t key, uint64_t at_ms, const neap_transition *moved);
  /* The policy's own trip and decide functions, after a report; NULL: it has none.  Where to move the
   * breaker to; any other answer: nowhere. */
  int (*trip)(void *data, const neap_snapshot *snapshot);
  int (*decide)(void *data, const neap_snapshot *snapshot);
} lane_host;

/* Owns: the rules stay the caller's. */
lane *lane_new(const neap_rules *rules, uint32_t max_keys, const lane_host *host);
void lane_free(lane *l);

/* The number of a key, made if there is none; beyond max_keys that of "*". */
uint32_t lane_key_of(lane *l, const char *name, size_t length);

void lane_take(lane *l, uint32_t key, const lane_call *call);

/* All that was taken is done. */
void lane_finish(lane *l);

uint32_t lane_keys(const lane *l);
const lane_key *lane_key_at(const lane *l, uint32_t i);
const lane_counts *lane_all(const lane *l);
const lane_series *lane_series_of(const lane *l);
uint64_t lane_now_ms(const lane *l);
uint64_t lane_late(const lane *l);     /* calls */
uint64_t lane_crowded(const lane *l);  /* calls for which the clock had to run ahead */
uint64_t lane_overflow(const lane *l); /* calls of keys beyond max_keys */

#endif
