/* Everything that only reads. */
#include <string.h>

#include "machine.h"
#include "window.h"

const uint32_t neap_duration_bounds_ms[NEAP_DURATION_BUCKETS - 1] = {
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000};

static uint32_t share_of(uint64_t part, uint64_t total) {
  return total == 0 ? 0 : (uint32_t)(part * NEAP_ONE / total);
}

uint64_t neap_breaker_mode_left_ms(const neap_breaker *b, uint64_t now_ms) {
  uint64_t m = word_load(&breaker_of(b)->mode);
  return mode_is_timed(m) ? mode_left_ms(m, now_ms) : 0;
}

static void snapshot_mode(const neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                          neap_snapshot *out) {
  out->mode = neap__mode_in_force(b, r, now_ms, &out->mode_is_operators);
  out->mode_left_ms = neap_breaker_mode_left_ms((const neap_breaker *)b, now_ms);
}

static void snapshot_state(const neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms,
                           neap_snapshot *out) {
  out->state = neap__state_at(s, r, now_ms);
  out->level = state_level(s);
  out->epoch = state_epoch(s);
  if (state_kind(s) != NEAP_CLOSED)
    out->state_age_ms = neap__open_age_ms(b, s, now_ms);
  else if (s != 0)
    out->state_age_ms = time_since(state_time(s), now_ms);
  out->retry_after_ms = neap__retry_after_ms(s, r, now_ms);
  out->admitted = neap__admitted(s, r, now_ms);
  if (state_kind(s) != NEAP_HALF_OPEN) return;
  out->probes_in_flight = half_in_flight(s);
  out->probes_succeeded = half_succeeded(s);
  out->probes_failed = half_failed(s);
}

static void snapshot_window(const neap__breaker *b, const neap_rules *r, uint64_t s,
                            uint64_t now_ms, neap_snapshot *out) {
  window_place at = neap__window_place(b, r, state_epoch(s), now_ms);
  window_sums sums;
  neap__window_sum(b, &at, &sums);
  out->window = shape_is_count(at.shape) ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  out->window_length = shape_length(at.shape);
  out->calls = sums.calls;
  out->success = sums.kinds[KIND_SUCCESS];
  out->slow_success = sums.kinds[KIND_SLOW_SUCCESS];
  out->failure = sums.kinds[KIND_FAILURE];
  out->slow_failure = sums.kinds[KIND_SLOW_FAILURE];
  out->failure_rate = share_of(out->failure + out->slow_failure, out->calls);
  out->slow_rate = share_of(out->slow_success + out->slow_failure, out->calls);
  out->consecutive_failures = run_count(word_load(&b->run), state_epoch(s));
}

#define TOTALS_TRIES 64

/* Totals and what is still in the window, with no count between the two.
 *
 * One who died with counts in his hand has them lost; he must not keep every later reader from an
 * exact answer.  So if nothing moved while we tried, what he began is taken as done.  (One who only
 * sleeps ends it later: that shows as one done too many, and is put right the same way.) */
static void snapshot_totals(neap__breaker *b, uint64_t totals[TOTAL_COUNT]) {
  const uint64_t first = word_load(&b->folding);
  bool is_still = true;
  for (unsigned try = 0; try < TOTALS_TRIES; try++) {
    uint64_t folding = word_load(&b->folding), kinds[NEAP__KINDS];
    for (unsigned i = 0; i < TOTAL_COUNT; i++) totals[i] = word_load(&b->totals[i]);
    neap__window_unfolded(b, kinds);
    for (unsigned kind = 0; kind < NEAP__KINDS; kind++) totals[kind] += kinds[kind];
    bool is_idle = folding >> 32 == (folding & MASK(32));
    if (is_idle && word_load(&b->folding) == folding) return;
    is_still = is_still && folding == first;
  }
  if (is_still) word_swap(&b->folding, first, (first & ~MASK(32)) | first >> 32);
}

/* The first bucket is what the others leave. */
static void snapshot_durations(const neap__breaker *b, neap_snapshot *out) {
  const neap_totals *t = &out->totals;
  uint64_t rest = t->success + t->slow_success + t->failure + t->slow_failure;
  for (unsigned i = 1; i < NEAP_DURATION_BUCKETS; i++) {
    uint64_t count = word_load(&b->durations[i - 1]);
    out->duration_counts[i] = count;
    rest -= count < rest ? count : rest;
  }
  out->duration_counts[0] = rest;
  out->duration_sum_ms = word_load(&b->duration_sum_ms);
}

void neap_breaker_snapshot(const neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                           neap_snapshot *out) {
  const neap__breaker *b = breaker_of(breaker);
  uint64_t s = word_load(&b->state);
  *out = (neap_snapshot){0};
  snapshot_mode(b, r, now_ms, out);
  snapshot_state(b, r, s, now_ms, out);
  snapshot_window(b, r, s, now_ms, out);
  uint64_t totals[TOTAL_COUNT];
  snapshot_totals(breaker_of(breaker), totals);
#define X(name) out->totals.name = totals[TOTAL_##name];
  NEAP_TOTALS(X)
#undef X
  out->totals.open_ms += neap__open_age_ms(b, s, now_ms);
  snapshot_durations(b, out);
  for (unsigned i = 0; i < NEAP_TRANSITION_KINDS; i++)
    out->transitions[i] = half_load(&b->transitions[i]);
}
