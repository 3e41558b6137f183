/* flight.c: the calls of one process that a closed breaker has let in and that have not ended, so
 * that one which is slow counts before it ends.
 *
 *   neap_flight_acquire()   look; let in; enter:  one more in the slot of now
 *   neap_flight_report()    leave:  one less in the slot of its beginning; report; look
 *   look()                  whose slot is past slow_call_ms is marked in the window, once
 *
 * A slot is what began within slice_ms of each other, a sixteenth of slow_call_ms or a little less.
 * There are 64 in a ring, and whatever is in one was past slow_call_ms before it comes round again.
 *
 *          63..47   46..22       21..20   19..0
 *        +--------+------------+--------+-------+
 *        |  tag   | slice / 64 | phase  | count |    slots[slice % 64]
 *        +--------+------------+--------+-------+
 *
 *   tag     (epoch + generation of the slices) modulo 2^17: nothing is ever cleared, a word with
 *           another tag is empty
 *   phase   NEW, MARKING, MARKED.  Who moves it from NEW marks all that are counted; whoever ends
 *           meanwhile is reported as one that was not, and its mark is taken back before MARKED
 *
 * When a call leaves, its slot tells whether the window has it.  If the slot has gone to a later
 * slice, it has.  A call that finds no room in its slot (its thread read the clock and then slept,
 * or the clock went back) is a stray: only their number is kept, and whoever is not in his slot at
 * the end is taken for one, as long as there are some.  So each call is counted once, and the
 * numbers are exact; which call is which does not matter.
 *
 * In a time window a mark is taken back as of its slice, and the call is then reported as ever.  How
 * many are where is kept for that, in words as the window has them.  In a count window a mark keeps
 * its place and becomes what its call came to. */
#include "machine.h"

#define SLOTS       64
#define TAG_BITS    17
#define SLOT_TAG    47
#define SLOT_LAP    22
#define FLIGHT_LAPS 25
#define SLOT_PHASE  20
#define SLOT_TOP    MASK(20)

enum { PHASE_NEW, PHASE_MARKING, PHASE_MARKED };

typedef struct neap__flight {
  neap__word slices;  /* generation 17 | 1 | since 40 | 1 + log2 of slice_ms 6; 0: none yet */
  neap__word soonest; /* look slow_call_ms after this */
  neap__word strays;  /* tag 17 | count 47 */
  neap__word slots[SLOTS];
  neap__word marks[NEAP__SLICES]; /* by slice of the window, as its counters */
} neap__flight;

_Static_assert(sizeof(neap__flight) == sizeof(neap_flight), "the opaque size is the real one");

static neap__flight *flight_of(const neap_flight *f) { return (neap__flight *)(uintptr_t)f; }

static uint32_t rules_shift(const neap_rules *r) {
  return (uint32_t)(rules_flags(r) >> PREPARED_SHIFT & MASK(6));
}

/* As in the lowest bits of `slices`. */
static uint64_t rules_slices(const neap_rules *r) {
  return rules_flags(r) & PREPARED_SLOWS ? rules_shift(r) + 1 : 0;
}

/* ---- the slices: what began before they were as they are now is in no slot ---- */

static uint32_t slices_generation(uint64_t w) { return (uint32_t)(w >> SLOT_TAG); }
static bool slices_are_set(uint64_t w) { return (w & MASK(6)) != 0; }
static uint32_t slices_shift(uint64_t w) { return (uint32_t)(w & MASK(6)) - 1; }

static bool slices_have(uint64_t w, uint64_t began_ms) {
  return ((began_ms - (w >> 6) - 1) & MASK(TIME_BITS)) >> (TIME_BITS - 1) == 0;
}

/* Makes them those of the rules, or none.  In the millisecond of a change nobody enters; a flight
 * that had none has nobody to be mistaken for. */
static uint64_t slices_adopt(neap__flight *f, const neap_rules *r, uint64_t now_ms) {
  for (;;) {
    uint64_t w = word_load(&f->slices);
    if ((w & MASK(6)) == rules_slices(r)) return w;
    uint64_t since = (w == 0 ? now_ms - 1 : now_ms) & MASK(TIME_BITS);
    uint64_t generation = (slices_generation(w) + UINT64_C(1)) & MASK(TAG_BITS);
    uint64_t new = generation << SLOT_TAG | since << 6 | rules_slices(r);
    if (word_swap(&f->slices, w, new)) return new;
  }
}

static uint64_t tag_of(uint64_t slices, uint32_t epoch) {
  return (epoch + slices_generation(slices)) & MASK(TAG_BITS);
}

/* ---- a slot ---- */

static uint64_t slot_base(uint64_t tag, uint64_t slice) {
  return tag << SLOT_TAG | (slice / SLOTS & MASK(FLIGHT_LAPS)) << SLOT_LAP;
}
static bool slot_is_at(uint64_t w, uint64_t base) { return (w ^ base) >> SLOT_LAP == 0; }
static uint64_t slot_tag(uint64_t w) { return w >> SLOT_TAG; }
static unsigned slot_phase(uint64_t w) { return (unsigned)(w >> SLOT_PHASE & 3); }
static uint64_t slot_count(uint64_t w) { return w & SLOT_TOP; }
static uint64_t slot_in_phase(uint64_t w, unsigned phase) {
  return (w & ~(UINT64_C(3) << SLOT_PHASE)) | (uint64_t)phase << SLOT_PHASE;
}

/* How many laps the slot is ahead of `base`: a small number, or a very large one if behind. */
static uint64_t slot_laps_ahead(uint64_t w, uint64_t base) {
  return ((w >> SLOT_LAP) - (base >> SLOT_LAP)) & MASK(FLIGHT_LAPS);
}

/* Until all calls in the slot are past slow_call_ms; 0: they are; NEAP_NEVER: it has none to mark,
 * or it is of after a clock went back. */
static uint64_t slot_left_ms(uint64_t w, unsigned index, uint64_t tag, uint64_t now_ms,
                             unsigned shift, uint64_t slow_ms) {
  if (slot_tag(w) != tag || slot_phase(w) != PHASE_NEW || slot_count(w) == 0) return NEAP_NEVER;
  uint64_t own = (w >> SLOT_LAP & MASK(FLIGHT_LAPS)) * SLOTS + index;
  uint64_t age = ((now_ms >> shift) - own) & MASK(FLIGHT_LAPS + 6); /* in slices */
  if (age >> (FLIGHT_LAPS + 5)) return NEAP_NEVER;
  uint64_t into = now_ms & MASK(shift), slice_ms = UINT64_C(1) << shift;
  if (age == 0) return slow_ms + slice_ms - into;
  uint64_t ended_ms = ((age - 1) << shift) + into; /* ago */
  return ended_ms >= slow_ms ? 0 : slow_ms - ended_ms;
}

/* ---- marks in a time window ---- */

static void marks_add(neap__flight *f, const window_place *at, uint64_t n) {
  neap__word *word = &f->marks[at->slice % NEAP__SLICES];
  const uint64_t base = cell_base(at->tag, at->slice);
  uint64_t w, count;
  do {
    w = word_load(word);
    count = w - base <= COUNT_TOP ? w - base : 0;
    if (n > COUNT_TOP - count) n = COUNT_TOP - count;
  } while (!word_swap(word, w, base | (count + n)));
}

/* One of that slice, if there is one. */
static bool marks_take(neap__flight *f, const window_place *at) {
  neap__word *word = &f->marks[at->slice % NEAP__SLICES];
  const uint64_t base = cell_base(at->tag, at->slice);
  uint64_t w;
  do {
    w = word_load(word);
    if (w - base - 1 >= COUNT_TOP) return false;
  } while (!word_swap(word, w, w - 1));
  return true;
}

/* Takes back the mark of a call that was due at due_ms: the first that was made then or later, and
 * still counts; or, if another call has taken that, the first of all. */
static void unmark(neap__flight *f, neap__breaker *b, const neap_rules *r, uint32_t epoch,
                   uint64_t now_ms, uint64_t due_ms) {
  window_place now = neap__window_place(b, r, epoch, now_ms), at = now;
  uint64_t age = now.slice - neap__window_place(b, r, epoch, due_ms).slice;
  if (age >= NEAP__SLICES) age = NEAP__SLICES - 1;
  for (unsigned i = 0; i < NEAP__SLICES; i++) {
    at.slice = now.slice - (age - i) % NEAP__SLICES;
    if (!marks_take(f, &at)) continue;
    neap__window_unmark(b, &at);
    return;
  }
}

/* ---- looking ---- */

/* Marks what is in the slot: past slow_call_ms at now_ms.  Answers how many. */
static uint64_t slot_mark(neap__flight *f, neap__breaker *b, const neap_rules *r, uint64_t s,
                          uint64_t now_ms, neap__word *slot, uint64_t w, neap_transition *moved) {
  const uint64_t n = slot_count(w);
  if (!word_swap(slot, w, slot_in_phase(w, PHASE_MARKING))) return 0;
  window_place at;
  if (!neap__mark_slow(b, r, s, now_ms, n, &at, moved)) return 0; /* of an epoch that is over */
  bool is_count = shape_is_count(at.shape);
  if (!is_count) marks_add(f, &at, n);
  uint64_t then, gone = 0;
  do {
    then = word_load(slot);
    if (!slot_is_at(then, w)) break; /* it has gone to another epoch */
    for (; gone < n - slot_count(then); gone++) {
      if (is_count)
        neap__window_settle(b, &at, KIND_NONE);
      else if (marks_take(f, &at))
        neap__window_unmark(b, &at);
    }
  } while (!word_swap(slot, then, slot_in_phase(then, PHASE_MARKED)));
  return n;
}

/* All slots; and when to look again, which is when the first of them comes due, or what may begin
 * from now on. */
static uint64_t look(neap__flight *f, neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                     neap_transition *moved) {
  uint64_t slices = slices_adopt(f, r, now_ms), slow_ms = r->slow_call_ms, marked = 0;
  if (!slices_are_set(slices)) return 0;
  unsigned shift = slices_shift(slices);
  uint64_t soonest_ms = slow_ms + (UINT64_C(1) << shift) - (now_ms & MASK(shift));
  uint64_t s = word_load(&b->state), tag = tag_of(slices, state_epoch(s));
  bool is_closed = state_kind(s) == NEAP_CLOSED;
  for (unsigned i = 0; i < SLOTS && is_closed; i++) {
    uint64_t w = word_load(&f->slots[i]);
    uint64_t left_ms = slot_left_ms(w, i, tag, now_ms, shift, slow_ms);
    if (left_ms == 0) {
      marked += slot_mark(f, b, r, s, now_ms, &f->slots[i], w, moved);
      is_closed = word_load(&b->state) == s;
    } else if (left_ms < soonest_ms) {
      soonest_ms = left_ms;
    }
  }
  word_store(&f->soonest, now_ms + soonest_ms - slow_ms);
  return marked;
}

/* As of other deadlines, one further off than it can be is past. */
static inline bool is_due(const neap__flight *f, const neap_rules *r, uint64_t now_ms) {
  uint64_t slice_ms = UINT64_C(1) << rules_shift(r), slow_ms = r->slow_call_ms;
  return word_load(&f->soonest) + slow_ms - now_ms - 1 >= slow_ms + slice_ms;
}

/* ---- entering and leaving ---- */

static void stray_add(neap__flight *f, uint64_t tag) {
  uint64_t w, count;
  do {
    w = word_load(&f->strays);
    count = w >> SLOT_TAG == tag ? w & MASK(SLOT_TAG) : 0;
  } while (!word_swap(&f->strays, w, tag << SLOT_TAG | (count + 1)));
}

static bool stray_take(neap__flight *f, uint64_t tag) {
  uint64_t w;
  do {
    w = word_load(&f->strays);
    if (w >> SLOT_TAG != tag || (w & MASK(SLOT_TAG)) == 0) return false;
  } while (!word_swap(&f->strays, w, w - 1));
  return true;
}

/* May a call whose slot begins with `base` have the word?  It is empty, or of a slice that is over
 * and marked; or its slice is so far ahead that the clock went back. */
static bool slot_is_free(uint64_t w, uint64_t base) {
  uint64_t ahead = slot_laps_ahead(w, base);
  if (slot_tag(w) != slot_tag(base)) return true;
  if (slot_phase(w) == PHASE_MARKING) return false;
  if (slot_count(w) == 0) return true;
  return ahead >> (FLIGHT_LAPS - 1) ? slot_phase(w) == PHASE_MARKED : ahead > 2;
}

static void enter(neap__flight *f, const neap__breaker *b, uint64_t slices, uint64_t now_ms,
                  uint32_t epoch) {
  uint64_t tag = tag_of(slices, epoch), slice = now_ms >> slices_shift(slices);
  uint64_t base = slot_base(tag, slice);
  neap__word *slot = &f->slots[slice % SLOTS];
  for (;;) {
    uint64_t w = word_load(slot), new = base | 1;
    if (slot_is_at(w, base) && slot_phase(w) == PHASE_NEW && slot_count(w) < SLOT_TOP) {
      new = w + 1;
    } else if (slot_is_at(w, base) || !slot_is_free(w, base)) {
      stray_add(f, tag);
      return;
    } else if (slot_tag(w) != tag && state_epoch(word_load(&b->state)) != epoch) {
      return; /* an epoch that is over: its report will be stale */
    }
    if (word_swap(slot, w, new)) return;
  }
}

/* Whether the window has the call already. */
static bool leave(neap__flight *f, uint64_t slices, uint64_t began_ms, uint32_t epoch) {
  uint64_t tag = tag_of(slices, epoch), slice = began_ms >> slices_shift(slices);
  uint64_t base = slot_base(tag, slice);
  neap__word *slot = &f->slots[slice % SLOTS];
  uint64_t w = word_load(slot);
  while (slot_is_at(w, base) && slot_count(w) > 0) {
    if (word_swap(slot, w, w - 1)) return slot_phase(w) == PHASE_MARKED;
    w = word_load(slot);
  }
  return !stray_take(f, tag);
}

/* ---- the functions ---- */

neap_verdict neap_flight_acquire(neap_flight *flight, neap_breaker *breaker, const neap_rules *r,
                                 uint64_t now_ms, neap_permit *permit, neap_transition *moved) {
  neap__flight *f = flight_of(flight);
  uint64_t slices = word_load(&f->slices);
  if (NEAP__UNLIKELY((slices & MASK(6)) != rules_slices(r))) slices = slices_adopt(f, r, now_ms);
  if (!slices_are_set(slices)) return neap_breaker_acquire(breaker, r, now_ms, permit, moved);
  if (NEAP__UNLIKELY(is_due(f, r, now_ms))) look(f, breaker_of(breaker), r, now_ms, moved);
  neap_verdict verdict = neap_breaker_acquire(breaker, r, now_ms, permit, moved);
  if (verdict == NEAP_ALLOW && slices_have(slices, now_ms))
    enter(f, breaker_of(breaker), slices, now_ms, permit_epoch(permit->opaque));
  return verdict;
}

neap_reported neap_flight_report(neap_flight *flight, neap_breaker *breaker, const neap_rules *r,
                                 uint64_t now_ms, uint64_t began_ms, neap_permit *permit,
                                 const neap_call *call, neap_transition *moved) {
  neap__flight *f = flight_of(flight);
  neap__breaker *b = breaker_of(breaker);
  uint64_t slices = word_load(&f->slices), p = permit->opaque;
  if (!slices_are_set(slices)) return neap_breaker_report(breaker, r, now_ms, permit, call, moved);
  bool is_current = (p & 3) == PERMIT_PLAIN && word_load(&b->state) >> 40 == p >> 2;
  bool is_marked =
      is_current && slices_have(slices, began_ms) && leave(f, slices, began_ms, permit_epoch(p));
  neap_transition own;
  own.cause = NEAP_BY_NOTHING; /* the rest is written with it */
  neap_reported reported;
  if (is_marked) {
    unsigned shift = slices_shift(slices);
    uint64_t due_ms = (((began_ms >> shift) + 1) << shift) + r->slow_call_ms;
    unmark(f, b, r, permit_epoch(p), now_ms, due_ms < now_ms ? due_ms : now_ms);
    permit->opaque = 0;
    reported = neap__report_marked(b, r, now_ms, p, call, &own);
  } else {
    reported = neap_breaker_report(breaker, r, now_ms, permit, call, &own);
  }
  bool is_theirs = (slices & MASK(6)) == rules_slices(r); /* a report changes no slices */
  if (is_theirs && own.cause == NEAP_BY_NOTHING && NEAP__UNLIKELY(is_due(f, r, now_ms)))
    look(f, b, r, now_ms, &own);
  if (own.cause != NEAP_BY_NOTHING && moved != NULL) *moved = own;
  return reported;
}

uint64_t neap_flight_sweep(neap_flight *flight, neap_breaker *breaker, const neap_rules *r,
                           uint64_t now_ms, neap_transition *moved) {
  return look(flight_of(flight), breaker_of(breaker), r, now_ms, moved);
}

uint64_t neap_flight_next_ms(const neap_flight *flight, const neap_breaker *breaker,
                             const neap_rules *r, uint64_t now_ms) {
  const neap__flight *f = flight_of(flight);
  uint64_t slices = word_load(&f->slices), soonest_ms = NEAP_NEVER;
  uint64_t s = word_load(&breaker_of(breaker)->state), tag = tag_of(slices, state_epoch(s));
  if (!slices_are_set(slices) || state_kind(s) != NEAP_CLOSED) return NEAP_NEVER;
  for (unsigned i = 0; i < SLOTS; i++) {
    uint64_t left_ms = slot_left_ms(word_load(&f->slots[i]), i, tag, now_ms, slices_shift(slices),
                                    r->slow_call_ms);
    if (left_ms < soonest_ms) soonest_ms = left_ms;
  }
  return soonest_ms > NEAP_NEVER - now_ms ? NEAP_NEVER : now_ms + soonest_ms;
}

uint64_t neap_flight_count(const neap_flight *flight, const neap_breaker *breaker,
                           uint64_t *overdue) {
  const neap__flight *f = flight_of(flight);
  uint64_t slices = word_load(&f->slices), strays = word_load(&f->strays);
  uint64_t tag = tag_of(slices, state_epoch(word_load(&breaker_of(breaker)->state)));
  bool is_set = slices_are_set(slices);
  uint64_t out = is_set && strays >> SLOT_TAG == tag ? strays & MASK(SLOT_TAG) : 0, late = 0;
  for (unsigned i = 0; i < SLOTS && is_set; i++) {
    uint64_t w = word_load(&f->slots[i]);
    if (slot_tag(w) != tag) continue;
    out += slot_count(w);
    if (slot_phase(w) != PHASE_NEW) late += slot_count(w);
  }
  if (overdue != NULL) *overdue = late;
  return out;
}
