/* breaker.h: what is inside a neap_breaker, and the bits of its words.
 *
 * The whole state is one word: every transition, and every probe taken or reported, is one
 * compare-and-swap of it.
 *
 *          63..62   61..57    56..40     39..0
 *        +--------+---------+---------+--------------------------------------------------------+
 *        | CLOSED |  level  |  epoch  | since                                                  |
 *        | OPEN   |  level  |  epoch  | until                                                  |
 *        | HALF   |  level  |  epoch  | in flight 4 | succeeded 5 | failed 5 | lease until 26  |
 *        +--------+---------+---------+--------------------------------------------------------+
 *
 * since and until are ms modulo 2^40, the lease ms modulo 2^26.  All zero: closed, level 0, epoch
 * 0.
 *
 * A permit is the upper 24 bits of the state word it was given under, without the two of the state,
 * times 4, plus its kind.  A closed breaker's are 0, so for a call that it admitted one comparison
 * tells a current report from a stale one.
 *
 *          23..19   18..2    1..0
 *        +-------+---------+------+
 *        | level |  epoch  | kind |      a bypass permit has its refusal in place of the level
 *        +-------+---------+------+
 */
#ifndef NEAP_BREAKER_H
#define NEAP_BREAKER_H

#include "neap/neap.h"
#include "word.h"

#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)

#define NEAP__SLICES     16 /* buckets of a time window */
#define NEAP__KINDS      4  /* counters in each */
#define NEAP__CELLS      (NEAP__SLICES * NEAP__KINDS)
#define NEAP__NAME_WORDS ((NEAP_NAME_MAX + 1) / 8)

/* How an outcome stands in a window; the first four of neap_totals. */
enum { KIND_SUCCESS, KIND_SLOW_SUCCESS, KIND_FAILURE, KIND_SLOW_FAILURE, KIND_NONE = 7 };

enum {
#define X(name) TOTAL_##name,
  NEAP_TOTALS(X)
#undef X
      TOTAL_COUNT
};

typedef struct neap__breaker {
  /* the line that acquire reads; written on transitions, failures and slow calls */
  neap__word state;
  neap__word mode;     /* the operator's: see mode_word() */
  neap__word geometry; /* of the window: generation 32 | kind 1 | length 31 */
  neap__word run;      /* failures in a row: epoch 17 | count 47 */
  neap__word mark;     /* what a success needs to know of the window: see window.h */
  neap__word head;     /* of the count window: see window.h */
  neap__word opened;   /* when this epoch's OPEN began: epoch 17 | ms modulo 2^40 */
  neap__word folding;  /* counts being moved from cells to totals: begun 32 | done 32 */
  /* the window, time or count: see window.h */
  neap__word cells[NEAP__CELLS];
  /* since the breaker was made; calls still in `cells` (or `head`) come on top */
  neap__word totals[TOTAL_COUNT];
  neap__word duration_sum_ms;
  neap__word durations[NEAP_DURATION_BUCKETS - 1]; /* all but the first bucket, which is the rest */
  neap__half transitions[NEAP_TRANSITION_KINDS + 1];
  /* written once, by whoever comes first; the first word last */
  neap__word name[NEAP__NAME_WORDS];
} neap__breaker;

_Static_assert(sizeof(neap__breaker) == sizeof(neap_breaker), "the opaque size is the real one");

/* The one place that knows that an opaque breaker is a neap__breaker. */
static inline neap__breaker *breaker_of(const neap_breaker *b) {
  return (neap__breaker *)(uintptr_t)b;
}

/* ---- the state word ---- */

#define EPOCH_BITS 17
#define TIME_BITS  40
#define LEASE_BITS 26
#define LEVEL_MAX  31u
#define SLACK_MS                                                                                   \
  60000u /* a deadline further off than its longest possible length plus this is past */

/* Of four kinds there are three: the fourth, which only somebody who wrote over it can have left, is
 * OPEN. */
static inline neap_state state_kind(uint64_t s) {
  return s >> 63 ? NEAP_OPEN : (neap_state)(s >> 62);
}
static inline uint32_t state_level(uint64_t s) { return (uint32_t)(s >> 57 & MASK(5)); }
static inline uint32_t state_epoch(uint64_t s) { return (uint32_t)(s >> 40 & MASK(EPOCH_BITS)); }
static inline uint64_t state_time(uint64_t s) { return s & MASK(TIME_BITS); }
static inline uint32_t half_in_flight(uint64_t s) { return (uint32_t)(s >> 36 & MASK(4)); }
static inline uint32_t half_succeeded(uint64_t s) { return (uint32_t)(s >> 31 & MASK(5)); }
static inline uint32_t half_failed(uint64_t s) { return (uint32_t)(s >> 26 & MASK(5)); }
static inline uint64_t half_lease(uint64_t s) { return s & MASK(LEASE_BITS); }

static inline uint64_t state_word(neap_state kind, uint32_t level, uint32_t epoch, uint64_t time) {
  return (uint64_t)kind << 62 | (uint64_t)level << 57 | (epoch & MASK(EPOCH_BITS)) << 40 |
         (time & MASK(TIME_BITS));
}

static inline uint64_t half_payload(uint32_t in_flight, uint32_t succeeded, uint32_t failed,
                                    uint64_t lease) {
  return (uint64_t)in_flight << 36 | (uint64_t)succeeded << 31 | (uint64_t)failed << 26 |
         (lease & MASK(LEASE_BITS));
}

/* How far a deadline kept modulo 2^bits lies ahead of now; 0 if it is past, or further off than it
 * can be. */
static inline uint64_t time_left(uint64_t deadline, uint64_t now_ms, unsigned bits,
                                 uint64_t longest) {
  uint64_t left = (deadline - now_ms) & MASK(bits);
  return left <= longest ? left : 0;
}

/* now - since, both modulo 2^40; 0 if since is ahead. */
static inline uint64_t time_since(uint64_t since, uint64_t now_ms) {
  uint64_t age = (now_ms - since) & MASK(TIME_BITS);
  return age >> (TIME_BITS - 1) ? 0 : age;
}

/* ---- the mode word: set 1 | mode 2 | timed 1 | 20 unused | until 40.  0: none set ---- */

#define MODE_LONGEST_MS (UINT64_C(31) * 86400000)

static inline neap_mode mode_kind(uint64_t m) { return (neap_mode)(m >> 61 & 3); }
static inline bool mode_is_timed(uint64_t m) { return m >> 60 & 1; }

static inline uint64_t mode_left_ms(uint64_t m, uint64_t now_ms) {
  return time_left(m & MASK(TIME_BITS), now_ms, TIME_BITS, MODE_LONGEST_MS + SLACK_MS);
}

/* ---- permits ---- */

enum { PERMIT_NONE, PERMIT_PLAIN, PERMIT_PROBE, PERMIT_BYPASS };

static inline uint64_t permit_word(uint64_t s, uint64_t kind) {
  return (s >> 40 & MASK(22)) * 4 + kind;
}
static inline uint32_t permit_epoch(uint64_t p) { return (uint32_t)(p >> 2 & MASK(EPOCH_BITS)); }

/* ---- what neap_rules_prepare() adds ---- */

enum {
  PREPARED_RECIPROCAL, /* floor((2^64 - 1) / slice_ms) */
  PREPARED_ROUNDED_UP, /* that + 1: see slice_early() */
  PREPARED_SHAPE,
  PREPARED_SHORTCUT, /* the shape of a time window; of a count window, what no geometry equals */
  PREPARED_LONGEST,  /* cooldown, with the slack */
  PREPARED_FLAGS
};
#define PREPARED_MAGIC UINT64_C(0x2e65617000000000)
#define PREPARED_MODE                                                                              \
  (UINT64_C(1) << 63) /* mode is not NEAP_AUTO; the same bit as in the mode word */
#define PREPARED_RAMP  (UINT64_C(1) << 62) /* ramp_ms is not 0 */
#define PREPARED_RATES 1u                  /* a rate rule is set, so a success can trip */
#define PREPARED_SLOWS 2u                  /* a rule asks for slow calls: see flight.c */
#define PREPARED_SHIFT 8                   /* from this bit on: log2 of a flight's slice_ms */

#define SHAPE_COUNT (UINT64_C(1) << 31)
#define CALLS_MAX   1024u
#define LENGTH_MIN  100u
#define LENGTH_MAX  3600000u

static inline uint64_t rules_shape(const neap_rules *r) { return r->prepared[PREPARED_SHAPE]; }
static inline uint64_t rules_longest_ms(const neap_rules *r) {
  return r->prepared[PREPARED_LONGEST];
}
static inline uint64_t rules_flags(const neap_rules *r) { return r->prepared[PREPARED_FLAGS]; }
static inline bool rules_are_prepared(const neap_rules *r) {
  return (rules_flags(r) & ~MASK(32) & ~(PREPARED_MODE | PREPARED_RAMP)) == PREPARED_MAGIC;
}

static inline void total_add(neap__breaker *b, unsigned total, uint64_t n) {
  word_add(&b->totals[total], n);
}

#endif
