/* window.h: the outcomes of the recent past, in the 64 words `cells`; as a time window or as the
 * last N calls.
 *
 * Nothing is ever cleared.  Every word carries a tag, (epoch + geometry generation) modulo 2^12,
 * and a word with another tag is empty: so a transition, or a new geometry, starts a clean window
 * without writing it.
 *
 * Time window: slice = floor(now / (length / 16)); four counters for each of the last 16 slices,
 * one line of memory for two.
 *
 *          63..52   51  50..28       27..0
 *        +--------+---+------------+---------+
 *        |  tag   | 0 | slice / 16 |  count  |    cells[slice % 16 * 4 + kind]
 *        +--------+---+------------+---------+
 *
 *   A counter of another lap is empty too.  Except: one that is one lap *ahead* belongs to
 *   reporters that were faster by a whole window, and the late one counts into it, as of its slice,
 *   so nothing is lost.  Further ahead, a clock has stepped back.  A counter that is full halves
 *   all of the window, so that no rate is distorted.  Slices are told apart modulo 2^27: an idle gap
 *   of exactly that many (9 days at length_ms 100, 97 at 1,000) is taken for no time at all.
 *
 * Count window: the ring of the last N outcomes, 16 to a word.  An outcome claims a position and
 * then writes its slot.
 *
 *          63..52   51..40        39..0                63..52   51   47..0
 *        +--------+-------------+-----------+         +--------+---+-----------------------+
 *   head |  tag   | 0 .. 2N - 1 | successes | cells[] |  tag   | 1 | 16 outcomes of 3 bits |
 *        +--------+-------------+-----------+         +--------+---+-----------------------+
 *
 *   Position p >= N is slot p - N, and says that the ring is full.  Outcomes are 1 + kind; 0 is
 *   none.  Bit 51 tells the two kinds of window apart where one takes over the words of the other.
 *
 * Mark: lets a success that can't trip anything know it at a glance.
 *
 *          63..52   51..31                        30..1                       0
 *        +--------+-----------------------------+---------------------------+----------+
 *        |  tag   | slice of the last bad call  | slice of last evaluation  | below    |
 *        +--------+-----------------------------+---------------------------+----------+
 *
 *   Bad is failed or slow.  Below: that evaluation found fewer calls than minimum_calls.  A bad
 *   outcome sets it (below included) after its count and before it sums, so whoever completes the
 *   minimum is seen by one of the two.  Only where an evaluation in its slice found calls enough it
 *   leaves below as it is: a success then completes nothing, and bad outcomes are looked at anyway.
 *   One whose process dies between the two waits there for the next bad one, or the next slice. */
#ifndef NEAP_WINDOW_H
#define NEAP_WINDOW_H

#include "breaker.h"

#define TAG_SHIFT           52
#define COUNT_BITS          28
#define COUNT_TOP           MASK(COUNT_BITS)
#define RING_FLAG           (UINT64_C(1) << 51)
#define LAP_BITS            23
#define SLICE_BITS          (LAP_BITS + 4)
#define HEAD_POSITION_SHIFT 40
#define HEAD_SUCCESS_TOP    MASK(40)
#define HEAD_FOLD           MASK(16) /* then they go to the totals: who dies on the way loses no more */
#define RING_SLOTS          16

#define MARK_BAD_BITS       21
#define MARK_EVALUATED_BITS 30
#define MARK_BELOW          1u

/* That slice has been evaluated, and there were calls enough. */
static inline bool mark_is_evaluated(uint64_t m, uint64_t slice) {
  return m << (63 - MARK_EVALUATED_BITS) == slice << (64 - MARK_EVALUATED_BITS);
}

/* Where in the window an outcome belongs. */
typedef struct window_place {
  uint32_t tag;
  uint32_t late;  /* by how many slices the caller's clock is behind: none, or a lap */
  uint64_t slice; /* 0 in a count window */
  uint64_t shape; /* of the breaker: kind and length */
} window_place;

typedef struct window_sums {
  uint64_t kinds[NEAP__KINDS];
  uint64_t calls;
} window_sums;

static inline uint64_t geometry_shape(uint64_t g) { return g & MASK(32); }
static inline uint32_t window_tag(uint32_t epoch, uint64_t geometry) {
  return (uint32_t)((epoch + (geometry >> 32)) & MASK(12));
}
static inline bool shape_is_count(uint64_t shape) { return (shape & SHAPE_COUNT) != 0; }
static inline uint32_t shape_length(uint64_t shape) { return (uint32_t)(shape & MASK(31)); }

/* 0, of a breaker that never adopted rules, is not; nor is what somebody wrote over one. */
static inline bool shape_is_valid(uint64_t shape) {
  uint32_t length = shape_length(shape);
  return shape_is_count(shape) ? length - 1 < CALLS_MAX
                               : length - LENGTH_MIN <= LENGTH_MAX - LENGTH_MIN;
}

static inline uint64_t high_product(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
  __extension__ typedef unsigned __int128 wide;
  return (uint64_t)((wide)a * b >> 64);
#else
  uint64_t al = a & MASK(32), ah = a >> 32, bl = b & MASK(32), bh = b >> 32;
  uint64_t upper = ah * bl + (al * bl >> 32);
  uint64_t lower = al * bh + (upper & MASK(32));
  return ah * bh + (upper >> 32) + (lower >> 32);
#endif
}

/* now / slice_ms without a division: with the reciprocal floor((2^64 - 1) / slice_ms) the estimate
 * is the quotient or one less. */
static inline uint64_t slice_by_reciprocal(uint64_t now_ms, uint64_t slice_ms,
                                           uint64_t reciprocal) {
  uint64_t slice = high_product(now_ms, reciprocal);
  return now_ms - slice * slice_ms >= slice_ms ? slice + 1 : slice;
}

/* The same for instants under 2^46 (2,200 years) in one multiplication: with the reciprocal rounded
 * up the quotient is exact while now * slice_ms < 2^64, and slice_ms is under 2^18. */
#define EARLY_BITS 46
static inline uint64_t slice_early(uint64_t now_ms, uint64_t rounded_up) {
  return high_product(now_ms, rounded_up);
}

static inline uint64_t cell_base(uint32_t tag, uint64_t slice) {
  return (uint64_t)tag << TAG_SHIFT | slice >> 4 << (64 - LAP_BITS) >> (64 - LAP_BITS - COUNT_BITS);
}

/* Where an outcome of this epoch at now_ms goes. */
NEAP__HIDDEN window_place neap__window_place(const neap__breaker *b, const neap_rules *rules,
                                             uint32_t epoch, uint64_t now_ms);

/* Counts an outcome; at->slice becomes the slice it was counted in.  False: a word of a newer tag
 * was met, so read the state again; `insist` says that the state was read again and is unchanged,
 * so the word is not newer but very old. */
NEAP__HIDDEN bool neap__window_add(neap__breaker *b, window_place *at, unsigned kind, bool insist);

/* Counts n calls, at least 1, as slow ones that have not ended; otherwise as neap__window_add(). */
NEAP__HIDDEN bool neap__window_mark(neap__breaker *b, window_place *at, uint64_t n, bool insist);

/* Takes one of them back that was counted at `at`, of a time window. */
NEAP__HIDDEN void neap__window_unmark(neap__breaker *b, const window_place *at);

/* What one of them came to, in a count window: it keeps its place there, or with KIND_NONE leaves it
 * empty.  Which of the slow ones it was nobody knows: the newest.  False: none is left. */
NEAP__HIDDEN bool neap__window_settle(neap__breaker *b, const window_place *at, unsigned kind);

NEAP__HIDDEN void neap__window_sum(const neap__breaker *b, const window_place *at,
                                   window_sums *out);

/* Outcomes that are still in cells or head, of whatever tag: to be added to the totals. */
NEAP__HIDDEN void neap__window_unfolded(const neap__breaker *b, uint64_t kinds[NEAP__KINDS]);

/* After a bad outcome was counted, before the sum.  False: see neap__window_add(). */
NEAP__HIDDEN bool neap__mark_bad(neap__breaker *b, const window_place *at, bool insist);

/* Whether a success counted at `at` has to be followed by an evaluation; *seen is for
 * neap__mark_evaluated(). */
NEAP__HIDDEN bool neap__mark_wants_evaluation(const neap__breaker *b, const window_place *at,
                                              uint64_t *seen);

/* After an evaluation: one attempt, since whoever wins has seen as much. */
NEAP__HIDDEN void neap__mark_evaluated(neap__breaker *b, const window_place *at, uint64_t seen,
                                       bool below);

#endif
