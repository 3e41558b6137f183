#include "window.h"

static uint32_t word_tag(uint64_t w) { return (uint32_t)(w >> TAG_SHIFT); }

/* Tags only grow, modulo 2^12. */
static bool tag_is_newer(uint64_t w, uint32_t tag) {
  uint32_t ahead = (word_tag(w) - tag) & (uint32_t)MASK(12);
  return w != 0 && ahead != 0 && ahead < 2048;
}

static uint64_t place_slice(uint64_t shape, const neap_rules *rules, uint64_t now_ms) {
  if (shape_is_count(shape)) return 0;
  uint32_t slice_ms = shape_length(shape) / NEAP__SLICES;
  if (shape == rules_shape(rules))
    return slice_by_reciprocal(now_ms, slice_ms, rules->prepared[PREPARED_RECIPROCAL]);
  return now_ms / slice_ms; /* only while a reload is under way */
}

window_place neap__window_place(const neap__breaker *b, const neap_rules *rules, uint32_t epoch,
                                uint64_t now_ms) {
  uint64_t geometry = word_load(&b->geometry);
  window_place at = {.tag = window_tag(epoch, geometry), .shape = geometry_shape(geometry)};
  if (!shape_is_valid(at.shape)) at.shape = rules_shape(rules);
  at.slice = place_slice(at.shape, rules, now_ms);
  return at;
}

/* ---- counts on their way from the window to the totals ---- */

/* A reader between the two steps would miss them, so they are announced: see snapshot_totals(). */
static void fold_begin(neap__breaker *b) { word_add(&b->folding, UINT64_C(1) << 32); }

static void fold_end(neap__breaker *b, unsigned kind, uint64_t count) {
  total_add(b, kind, count);
  uint64_t w;
  do {
    w = word_load(&b->folding);
  } while (!word_swap(&b->folding, w, (w & ~MASK(32)) | ((w + 1) & MASK(32))));
}

/* Replaces a word that holds `count` outcomes which are not in the new one. */
static bool swap_and_fold(neap__breaker *b, neap__word *w, uint64_t old, uint64_t new,
                          unsigned kind, uint64_t count) {
  if (count == 0) return word_swap(w, old, new);
  fold_begin(b);
  bool swapped = word_swap(w, old, new);
  fold_end(b, kind, swapped ? count : 0);
  return swapped;
}

/* ---- time window ---- */

static void cell_halve(neap__breaker *b, neap__word *cell, uint32_t tag, unsigned kind) {
  for (;;) {
    uint64_t c = word_load(cell), half = (c & COUNT_TOP) / 2;
    if (word_tag(c) != tag || half == 0) return;
    if (swap_and_fold(b, cell, c, c - half, kind, half)) return;
  }
}

/* Every counter of the window, and all kinds alike, so that rates stay.  Bad calls first: on the
 * way a rate is too low for an instant, never too high.  Done by the one who filled a counter; if
 * it dies here the counter stays full until its slice has passed, and its further outcomes go to
 * the totals only. */
static NEAP__NOINLINE void window_halve(neap__breaker *b, uint32_t tag) {
  static const unsigned order[] = {KIND_SLOW_FAILURE, KIND_FAILURE, KIND_SLOW_SUCCESS,
                                   KIND_SUCCESS};
  for (unsigned i = 0; i < NEAP__KINDS; i++)
    for (unsigned slice = 0; slice < NEAP__SLICES; slice++)
      cell_halve(b, &b->cells[slice * NEAP__KINDS + order[i]], tag, order[i]);
}

static uint64_t lap_ahead(uint64_t c, uint64_t slice) {
  return ((c >> COUNT_BITS) - (slice >> 4)) & MASK(LAP_BITS);
}

/* How many outcomes of a time window a word holds, of whatever tag. */
static uint64_t cell_count(uint64_t c) { return c & RING_FLAG ? 0 : c & COUNT_TOP; }

static neap__word *time_cell(neap__breaker *b, uint64_t slice, unsigned kind) {
  return &b->cells[(slice % NEAP__SLICES) * NEAP__KINDS + kind];
}

/* n of them, 1 to COUNT_TOP; what a counter has no room for goes to the totals. */
static inline bool time_add(neap__breaker *b, window_place *at, unsigned kind, uint64_t n,
                            bool insist) {
  neap__word *cell = time_cell(b, at->slice, kind);
  for (;;) {
    uint64_t c = word_load(cell), count = cell_count(c);
    if (word_tag(c) == at->tag && count != 0 && lap_ahead(c, at->slice) <= 1) {
      uint64_t room = COUNT_TOP - count, fits = n < room ? n : room;
      if (fits == 0) {
        total_add(b, kind, n);
        return true;
      }
      if (!word_swap(cell, c, c + fits)) {
        word_pause();
        continue;
      }
      at->late = (uint32_t)lap_ahead(c, at->slice) * NEAP__SLICES;
      at->slice += at->late;
      if (fits < n) total_add(b, kind, n - fits);
      if (fits == room) window_halve(b, at->tag);
      return true;
    }
    if (tag_is_newer(c, at->tag) && !insist) return false;
    if (swap_and_fold(b, cell, c, cell_base(at->tag, at->slice) | n, kind, count)) return true;
  }
}

/* How far a counter's slice is ahead of the caller's clock, from -2^27 to 2^27 - 1. */
static int64_t slice_ahead(uint64_t c, unsigned index, uint64_t slice) {
  uint64_t own = (c >> COUNT_BITS & MASK(LAP_BITS)) << 4 | index;
  uint64_t ahead = (own - slice) & MASK(SLICE_BITS);
  return ahead >> (SLICE_BITS - 1) ? (int64_t)ahead - (INT64_C(1) << SLICE_BITS) : (int64_t)ahead;
}

/* Where the newest slice is ahead of the caller's clock, so that the window ends there. */
static NEAP__NOINLINE void time_sum_ahead(const neap__breaker *b, const window_place *at,
                                          window_sums *out) {
  const uint64_t now = at->slice - at->late;
  uint64_t cells[NEAP__CELLS];
  int64_t newest = 0;
  for (unsigned i = 0; i < NEAP__CELLS; i++) {
    cells[i] = word_load(&b->cells[i]);
    if (word_tag(cells[i]) != at->tag) cells[i] = 0;
    if ((cells[i] & COUNT_TOP) == 0) continue;
    int64_t ahead = slice_ahead(cells[i], i / NEAP__KINDS, now);
    if (ahead >= 2 * NEAP__SLICES)
      cells[i] = 0; /* of before the clock stepped back */
    else if (ahead > newest)
      newest = ahead;
  }
  for (unsigned i = 0; i < NEAP__CELLS; i++) {
    uint64_t count = cells[i] & COUNT_TOP;
    if (count != 0 && slice_ahead(cells[i], i / NEAP__KINDS, now) > newest - NEAP__SLICES)
      out->kinds[i % NEAP__KINDS] += count;
  }
}

/* Adds what slices of one lap hold.  Less the word that would be empty in its slice, a counter of the
 * window is its count; one that is ahead is more, but under bit 51; any other is that or more.  (Not
 * so where laps wrap around.)  False: one is ahead.
 *
 * Most slices have successes and failures, and most breakers have never seen a slow call: then its
 * counters are 0, which is empty in any slice. */
static inline bool sum_slices(const neap__word *cells, const neap__word *end, uint64_t empty,
                              uint64_t sums[NEAP__KINDS]) {
  for (; cells != end; cells += NEAP__KINDS) {
    uint64_t slow = word_load(&cells[KIND_SLOW_SUCCESS]) | word_load(&cells[KIND_SLOW_FAILURE]);
    uint64_t succeeded = word_load(&cells[KIND_SUCCESS]) - empty;
    uint64_t failed = word_load(&cells[KIND_FAILURE]) - empty;
    if (NEAP__LIKELY(slow == 0 && (succeeded | failed) <= COUNT_TOP)) {
      sums[KIND_SUCCESS] += succeeded;
      sums[KIND_FAILURE] += failed;
      continue;
    }
    for (unsigned kind = 0; kind < NEAP__KINDS; kind++) {
      uint64_t count = word_load(&cells[kind]) - empty;
      if (count <= COUNT_TOP)
        sums[kind] += count;
      else if (count < RING_FLAG)
        return false;
    }
  }
  return true;
}

/* The window ends at the newest slice in it, be that ahead of the caller's clock: usually not. */
static void time_sum(const neap__breaker *b, const window_place *at, window_sums *out) {
  const uint64_t this_lap = cell_base(at->tag, at->slice);
  const uint64_t last_lap = cell_base(at->tag, at->slice - NEAP__SLICES);
  const neap__word *turn = &b->cells[(at->slice % NEAP__SLICES + 1) * NEAP__KINDS];
  const bool is_wrapping = ((at->slice / NEAP__SLICES + 2) & MASK(LAP_BITS)) <= 2;
  uint64_t sums[NEAP__KINDS] = {0};
  if (NEAP__UNLIKELY(is_wrapping || !sum_slices(b->cells, turn, this_lap, sums) ||
                     !sum_slices(turn, b->cells + NEAP__CELLS, last_lap, sums))) {
    time_sum_ahead(b, at, out);
    return;
  }
  for (unsigned kind = 0; kind < NEAP__KINDS; kind++) out->kinds[kind] = sums[kind];
}

/* ---- count window ---- */

/* The next free slot of the ring, claimed.  False: a newer tag. */
static bool ring_claim(neap__breaker *b, const window_place *at, unsigned kind, bool insist,
                       uint32_t *slot) {
  uint32_t n = shape_length(at->shape);
  uint64_t one = kind == KIND_SUCCESS;
  for (;;) {
    uint64_t h = word_load(&b->head), successes = h & HEAD_SUCCESS_TOP;
    bool mine = word_tag(h) == at->tag;
    if (!mine && tag_is_newer(h, at->tag) && !insist) return false;
    uint32_t position = mine ? (uint32_t)(h >> HEAD_POSITION_SHIFT & MASK(12)) : 0;
    if (position >= 2 * n) position = n; /* of a longer ring, 4,096 tags ago */
    bool fold = !mine || successes >= HEAD_FOLD;
    uint32_t next = position + 1 == 2 * n ? n : position + 1;
    uint64_t new = (uint64_t)at->tag << TAG_SHIFT | (uint64_t)next << HEAD_POSITION_SHIFT |
                   ((fold ? 0 : successes) + one);
    *slot = position >= n ? position - n : position;
    if (swap_and_fold(b, &b->head, h, new, KIND_SUCCESS, fold ? successes : 0)) return true;
  }
}

/* Whether an outcome of this tag still counts. */
static bool tag_is_current(const neap__breaker *b, uint32_t tag) {
  return window_tag(state_epoch(word_load(&b->state)), word_load(&b->geometry)) == tag;
}

static bool ring_put(neap__breaker *b, const window_place *at, unsigned kind, bool insist) {
  uint32_t slot;
  if (!ring_claim(b, at, kind, insist, &slot)) return false;
  neap__word *word = &b->cells[slot / RING_SLOTS];
  unsigned shift = slot % RING_SLOTS * 3;
  for (;;) {
    uint64_t w = word_load(word), rest = (uint64_t)at->tag << TAG_SHIFT | RING_FLAG;
    if (word_tag(w) == at->tag && (w & RING_FLAG))
      rest = w & ~(UINT64_C(7) << shift);
    else if (!tag_is_current(b, at->tag))
      return true; /* overtaken: nobody misses it.  Whether the word looks newer says nothing: it may
                      be thousands of transitions old */
    unsigned old_kind = slot / RING_SLOTS % NEAP__KINDS; /* if it was a cell of a time window */
    uint64_t new = rest | (uint64_t)(kind + 1) << shift;
    if (swap_and_fold(b, word, w, new, old_kind, cell_count(w))) return true;
  }
}

static bool ring_add(neap__breaker *b, const window_place *at, unsigned kind, bool insist) {
  if (!ring_put(b, at, kind, insist)) return false;
  if (kind != KIND_SUCCESS) total_add(b, kind, 1); /* successes: in the head */
  return true;
}

static uint64_t ones(uint64_t x) {
#if defined(__GNUC__)
  return (uint64_t)__builtin_popcountll(x);
#else
  uint64_t n = 0;
  for (; x; x &= x - 1) n++;
  return n;
#endif
}

/* Only slots below the head's position: what lies above is of an epoch 4,096 transitions ago. */
static NEAP__NOINLINE void ring_sum(const neap__breaker *b, const window_place *at,
                                    window_sums *out) {
  const uint64_t lows = UINT64_C(0x249249249249); /* bit 0 of each of 16 outcomes */
  uint64_t h = word_load(&b->head);
  if (word_tag(h) != at->tag) return;
  uint32_t n = shape_length(at->shape), position = (uint32_t)(h >> HEAD_POSITION_SHIFT & MASK(12));
  for (uint32_t i = 0, left = position < n ? position : n; left > 0; i++) {
    uint32_t slots = left < RING_SLOTS ? left : RING_SLOTS;
    left -= slots;
    uint64_t w = word_load(&b->cells[i]);
    if (word_tag(w) != at->tag || !(w & RING_FLAG)) continue;
    for (unsigned kind = 0; kind < NEAP__KINDS; kind++) {
      uint64_t other = w ^ lows * (kind + 1); /* three zeros where it is this kind */
      out->kinds[kind] += ones(~(other | other >> 1 | other >> 2) & lows & MASK(3 * slots));
    }
  }
}

/* ---- both ---- */

bool neap__window_add(neap__breaker *b, window_place *at, unsigned kind, bool insist) {
  return shape_is_count(at->shape) ? ring_add(b, at, kind, insist)
                                   : time_add(b, at, kind, 1, insist);
}

/* ---- marks: calls that count as slow before they end ----
 *
 * In the window they are slow successes.  In the totals they are not yet anything, so what is in a
 * counter of theirs is taken off the total; readers are told, as of counts that are moved. */

bool neap__window_mark(neap__breaker *b, window_place *at, uint64_t n, bool insist) {
  if (shape_is_count(at->shape)) {
    uint64_t length = shape_length(at->shape);
    for (uint64_t i = 0; i < n && i < length; i++)
      if (!ring_put(b, at, KIND_SLOW_SUCCESS, insist)) return false;
    return true;
  }
  fold_begin(b);
  bool is_marked = time_add(b, at, KIND_SLOW_SUCCESS, n, insist);
  fold_end(b, KIND_SLOW_SUCCESS, is_marked ? -n : 0);
  return is_marked;
}

/* The total first: one who dies on the way leaves it too high by one, never lower than it was. */
void neap__window_unmark(neap__breaker *b, const window_place *at) {
  neap__word *cell = time_cell(b, at->slice, KIND_SLOW_SUCCESS);
  const uint64_t base = cell_base(at->tag, at->slice);
  fold_begin(b);
  total_add(b, KIND_SLOW_SUCCESS, 1);
  uint64_t c;
  do {
    c = word_load(cell);
    if (c - base - 1 >= COUNT_TOP) break; /* it is another slice's, or was halved */
  } while (!word_swap(cell, c, c - 1));
  fold_end(b, KIND_SLOW_SUCCESS, c - base - 1 >= COUNT_TOP ? UINT64_MAX : 0);
}

bool neap__window_settle(neap__breaker *b, const window_place *at, unsigned kind) {
  uint64_t h = word_load(&b->head);
  if (word_tag(h) != at->tag) return false;
  uint32_t n = shape_length(at->shape), next = (uint32_t)(h >> HEAD_POSITION_SHIFT & MASK(12));
  uint32_t length = next < n ? next : n, slot = next < n ? next : (next - n) % n;
  for (uint32_t i = 0; i < length; i++) {
    slot = (slot == 0 ? n : slot) - 1;
    neap__word *word = &b->cells[slot / RING_SLOTS];
    unsigned shift = slot % RING_SLOTS * 3;
    for (;;) {
      uint64_t w = word_load(word);
      bool is_mark =
          word_tag(w) == at->tag && (w & RING_FLAG) && (w >> shift & 7) == KIND_SLOW_SUCCESS + 1;
      if (!is_mark) break;
      uint64_t new = (w & ~(UINT64_C(7) << shift)) | (uint64_t)(kind + 1) % 8 << shift;
      if (!word_swap(word, w, new)) continue;
      if (kind != KIND_NONE) total_add(b, kind, 1);
      return true;
    }
  }
  return false;
}

void neap__window_sum(const neap__breaker *b, const window_place *at, window_sums *out) {
  *out = (window_sums){{0}, 0};
  if (shape_is_count(at->shape))
    ring_sum(b, at, out);
  else
    time_sum(b, at, out);
  out->calls = out->kinds[0] + out->kinds[1] + out->kinds[2] + out->kinds[3];
}

void neap__window_unfolded(const neap__breaker *b, uint64_t kinds[NEAP__KINDS]) {
  for (unsigned kind = 0; kind < NEAP__KINDS; kind++) kinds[kind] = 0;
  kinds[KIND_SUCCESS] = word_load(&b->head) & HEAD_SUCCESS_TOP;
  for (unsigned i = 0; i < NEAP__CELLS; i++)
    kinds[i % NEAP__KINDS] += cell_count(word_load(&b->cells[i]));
}

/* ---- mark ---- */

#define STEP_LONGEST                                                                               \
  (UINT64_C(1) << 21) /* slices; a "step" further back is an idle gap, modulo 2^30 */

static uint64_t mark_word(const window_place *at, uint64_t bad, bool below) {
  return (uint64_t)at->tag << TAG_SHIFT | (bad & MASK(MARK_BAD_BITS)) << (MARK_EVALUATED_BITS + 1) |
         (at->slice & MASK(MARK_EVALUATED_BITS)) << 1 | (below ? MARK_BELOW : 0);
}

static uint64_t mark_bad_slice(uint64_t m) {
  return m >> (MARK_EVALUATED_BITS + 1) & MASK(MARK_BAD_BITS);
}

static uint64_t mark_evaluated_slice(uint64_t m) { return m >> 1 & MASK(MARK_EVALUATED_BITS); }

/* The clock went back since the evaluation that `m` tells of; not, as far as can be told, forward
 * by years. */
static bool mark_shows_step(uint64_t m, const window_place *at) {
  uint64_t ahead = (mark_evaluated_slice(m) - at->slice) & MASK(MARK_EVALUATED_BITS);
  return m != 0 && word_tag(m) == at->tag && ahead > 2 && ahead < STEP_LONGEST;
}

static bool mark_swap(neap__breaker *b, const window_place *at, uint64_t old, uint64_t new) {
  if (!word_swap(&b->mark, old, new)) return false;
  if (NEAP__UNLIKELY(mark_shows_step(old, at))) total_add(b, TOTAL_clock_steps, 1);
  return true;
}

/* Slices that a last bad call may be ahead of a caller's clock: half of what there is.  After a clock
 * has stepped back that costs a needless sum for each slice, but a late caller can't hide a call. */
#define MARK_BAD_AHEAD (MASK(MARK_BAD_BITS) / 2)

/* The later of the mark's slice and ours: somebody with a faster clock may have been here. */
static uint64_t mark_last_bad(uint64_t m, const window_place *at) {
  uint64_t ahead = (mark_bad_slice(m) - at->slice) & MASK(MARK_BAD_BITS);
  bool is_later = m != 0 && word_tag(m) == at->tag && ahead <= MARK_BAD_AHEAD;
  return is_later ? mark_bad_slice(m) : at->slice;
}

bool neap__mark_bad(neap__breaker *b, const window_place *at, bool insist) {
  for (;;) {
    uint64_t m = word_load(&b->mark);
    if (tag_is_newer(m, at->tag) && !insist) return false;
    uint64_t new = mark_word(at, mark_last_bad(m, at), true);
    /* it says so, or that there are calls enough in this slice: then only bad ones may trip */
    if ((m | MARK_BELOW) == new || mark_swap(b, at, m, new)) return true;
  }
}

bool neap__mark_wants_evaluation(const neap__breaker *b, const window_place *at, uint64_t *seen) {
  uint64_t m = *seen = word_load(&b->mark);
  if (word_tag(m) != at->tag || m == 0) return false;
  uint64_t age = (at->slice - mark_bad_slice(m)) & MASK(MARK_BAD_BITS);
  bool is_in_window = age < NEAP__SLICES || age >= MASK(MARK_BAD_BITS) - MARK_BAD_AHEAD;
  if (!is_in_window) return false;
  return (m & MARK_BELOW) || mark_evaluated_slice(m) != (at->slice & MASK(MARK_EVALUATED_BITS));
}

void neap__mark_evaluated(neap__breaker *b, const window_place *at, uint64_t seen, bool below) {
  if (seen == 0 || word_tag(seen) != at->tag) return; /* the epoch has moved on: leave theirs */
  uint64_t new = mark_word(at, mark_bad_slice(seen), below);
  if (new != seen) mark_swap(b, at, seen, new);
}
