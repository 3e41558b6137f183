/* What becomes of an outcome: counted in the window or with its round, and what that may trip.
 *
 *   neap_breaker_report()   a healthy success, at once; report_timed() if it took a millisecond, or
 *   success_...()           step by step, where there is no quick answer, or
 *   report_failed()         a failure that was not slow, or
 *   report_slow()           everything else: neutral, probe, bypass, stale, slow
 *   neap__report_marked()   of a call that the window counts already: see flight.c
 *   evaluate()              the rules over the sums of the window
 *
 * The state word is not written here: see breaker.c. */
#include <assert.h>

#include "machine.h"
#include "window.h"

/* ---- trip rules ---- */

static bool reaches(uint64_t n, uint64_t limit) { return limit != 0 && n >= limit; }

static bool is_share(uint64_t n, uint64_t calls, uint64_t rate) {
  return rate != 0 && n * NEAP_ONE >= rate * calls;
}

/* The first trip rule that holds. */
static bool trip_rule(const neap_rules *r, const window_sums *sums, uint64_t run,
                      neap_transition *t) {
  const uint64_t failed = sums->kinds[KIND_FAILURE] + sums->kinds[KIND_SLOW_FAILURE];
  const uint64_t slow = sums->kinds[KIND_SLOW_SUCCESS] + sums->kinds[KIND_SLOW_FAILURE];
  const uint64_t calls = sums->calls;
  const bool is_enough = calls >= r->minimum_calls;
  neap_cause cause;
  uint64_t measured, limit;
  if (reaches(run, r->consecutive_failures))
    cause = NEAP_BY_CONSECUTIVE, measured = run, limit = r->consecutive_failures;
  else if (reaches(failed, r->failures))
    cause = NEAP_BY_FAILURES, measured = failed, limit = r->failures;
  else if (is_enough && is_share(failed, calls, r->failure_rate))
    cause = NEAP_BY_FAILURE_RATE, measured = failed, limit = r->failure_rate;
  else if (is_enough && is_share(slow, calls, r->slow_rate))
    cause = NEAP_BY_SLOW_RATE, measured = slow, limit = r->slow_rate;
  else
    return false;
  *t = (neap_transition){
      .to = NEAP_OPEN, .cause = cause, .measured = measured, .limit = limit, .calls = calls};
  return true;
}

/* Sums the window and trips if a rule holds; otherwise tells the next success what it may skip. */
static void evaluate(neap__breaker *b, const neap_rules *r, uint64_t now_ms, uint64_t s,
                     const window_place *at, uint64_t run, uint64_t retry_after_ms,
                     neap_transition *moved) {
  uint64_t seen = word_load(&b->mark);
  window_sums sums;
  neap__window_sum(b, at, &sums);
  neap_transition t;
  if (NEAP__UNLIKELY(trip_rule(r, &sums, run, &t))) {
    t.open_ms = retry_after_ms;
    neap__trip(b, r, s, now_ms, &t, moved);
    return;
  }
  neap__mark_evaluated(b, at, seen, sums.calls < r->minimum_calls);
}

/* ---- the run of failures ---- */

static uint64_t run_lengthen(neap__breaker *b, uint64_t s) {
  uint32_t epoch = state_epoch(s);
  for (;;) {
    uint64_t w = word_load(&b->run), count = run_count(w, epoch);
    if (w >> RUN_BITS != epoch && word_load(&b->state) != s) return 0; /* late: leave theirs */
    if (count < MASK(RUN_BITS)) count++;
    if (word_swap(&b->run, w, (uint64_t)epoch << RUN_BITS | count)) return count;
  }
}

static void run_end(neap__breaker *b, uint32_t epoch) {
  uint64_t w = word_load(&b->run);
  while (run_count(w, epoch) != 0 && !word_swap(&b->run, w, (uint64_t)epoch << RUN_BITS))
    w = word_load(&b->run);
}

/* ---- report ---- */

static bool kind_is_bad(unsigned kind) { return kind != KIND_SUCCESS; }
static bool kind_is_failure(unsigned kind) { return kind >= KIND_FAILURE; }

static unsigned call_kind(const neap_rules *r, const neap_call *call, uint64_t duration_ms) {
  bool is_slow = r->slow_call_ms != 0 && duration_ms > r->slow_call_ms;
  return (call->outcome == NEAP_SUCCESS ? KIND_SUCCESS : KIND_FAILURE) + (is_slow ? 1u : 0u);
}

static void duration_count(neap__breaker *b, uint64_t duration_ms) {
  if (duration_ms == 0) return;
  word_add(&b->duration_sum_ms, duration_ms);
  unsigned i = 0;
  while (i < NEAP_DURATION_BUCKETS - 1 && duration_ms > neap_duration_bounds_ms[i]) i++;
  if (i > 0) word_add(&b->durations[i - 1], 1);
}

/* How an outcome is counted: in a place of its own, in that of its mark, or as a mark.  A program
 * without flights has the first only: what depends on it is one function for each. */
typedef enum how_counted { AS_ONE_MORE, AS_MARKED, AS_A_MARK } how_counted;

static NEAP__AT_ONCE bool window_count(neap__breaker *b, window_place *at, unsigned kind,
                                       uint64_t n, how_counted how, bool insist) {
  if (how == AS_A_MARK) return neap__window_mark(b, at, n, insist);
  bool is_settled =
      how == AS_MARKED && shape_is_count(at->shape) && neap__window_settle(b, at, kind);
  return is_settled || neap__window_add(b, at, kind, insist);
}

/* Counts in the closed window of `s`, at *at.  False: the state has moved. */
static NEAP__AT_ONCE bool closed_count(neap__breaker *b, const neap_rules *r, uint64_t s,
                                       uint64_t now_ms, unsigned kind, uint64_t n, how_counted how,
                                       window_place *at) {
  *at = neap__window_place(b, r, state_epoch(s), now_ms);
  bool insist = false;
  while (!window_count(b, at, kind, n, how, insist)) {
    if (word_load(&b->state) != s) return false;
    window_place again = neap__window_place(b, r, state_epoch(s), now_ms);
    insist = again.tag == at->tag;
    *at = again;
  }
  return true;
}

/* The mark says so to successes, which skip what they can.  False: the window is another one. */
static bool closed_is_bad(neap__breaker *b, uint64_t s, const window_place *at) {
  if (neap__mark_bad(b, at, false)) return true;
  bool is_current =
      word_load(&b->state) == s && window_tag(state_epoch(s), word_load(&b->geometry)) == at->tag;
  return is_current && neap__mark_bad(b, at, true);
}

/* Counted.  The window may have to be evaluated. */
static NEAP__NOINLINE neap_reported success_evaluate(neap__breaker *b, const neap_rules *r,
                                                     uint64_t now_ms, uint64_t s,
                                                     neap_transition *moved) {
  if (!(rules_flags(r) & PREPARED_RATES)) return NEAP_COUNTED;
  window_place at = neap__window_place(b, r, state_epoch(s), now_ms);
  uint64_t seen;
  if (neap__mark_wants_evaluation(b, &at, &seen)) evaluate(b, r, now_ms, s, &at, 0, 0, moved);
  return NEAP_COUNTED;
}

/* Counted in that slice, and maybe the first since a failure. */
static NEAP__NOINLINE neap_reported success_end_run(neap__breaker *b, const neap_rules *r,
                                                    uint64_t now_ms, uint64_t s, uint64_t slice,
                                                    neap_transition *moved) {
  run_end(b, state_epoch(s));
  if (mark_is_evaluated(word_load(&b->mark), slice)) return NEAP_COUNTED;
  return success_evaluate(b, r, now_ms, s, moved);
}

/* What a failed or slow call, counted at *at, may trip. */
static NEAP__NOINLINE void closed_judge_bad(neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                            uint64_t s, unsigned kind, const window_place *at,
                                            uint64_t retry_after_ms, neap_transition *moved) {
  uint64_t run = 0;
  if (kind_is_failure(kind))
    run = run_lengthen(b, s);
  else
    run_end(b, state_epoch(s));
  if (closed_is_bad(b, s, at)) evaluate(b, r, now_ms, s, at, run, retry_after_ms, moved);
}

/* An outcome that the closed window counts.  The epoch of `s` is the permit's. */
static NEAP__AT_ONCE neap_reported report_closed(neap__breaker *b, const neap_rules *r, uint64_t s,
                                                 uint64_t now_ms, unsigned kind, how_counted how,
                                                 uint64_t retry_after_ms, neap_transition *moved) {
  window_place at;
  if (!closed_count(b, r, s, now_ms, kind, 1, how, &at)) return NEAP_STALE;
  if (!kind_is_bad(kind)) return success_end_run(b, r, now_ms, s, at.slice, moved);
  closed_judge_bad(b, r, now_ms, s, kind, &at, retry_after_ms, moved);
  return NEAP_COUNTED;
}

/* What is counted whatever the permit was. */
static neap_reported report_neutral(neap__breaker *b, const neap_rules *r, uint64_t p,
                                    uint64_t now_ms, const neap_call *call,
                                    neap_transition *moved) {
  neap_reported reported = NEAP_COUNTED;
  if ((p & 3) == PERMIT_PROBE)
    reported = neap__probe_report(b, r, p, now_ms, true, false, 0, moved);
  else if ((p & 3) == PERMIT_PLAIN && word_load(&b->state) >> 40 != p >> 2)
    reported = NEAP_STALE;
  if (reported != NEAP_COUNTED) return reported;
  total_add(b, call->outcome == NEAP_ABANDONED ? TOTAL_abandoned : TOTAL_neutral, 1);
  return NEAP_COUNTED;
}

static NEAP__AT_ONCE neap_reported report_outcome(neap__breaker *b, const neap_rules *r, uint64_t p,
                                                  uint64_t now_ms, const neap_call *call,
                                                  uint64_t duration_ms, how_counted how,
                                                  neap_transition *moved) {
  unsigned kind = call_kind(r, call, duration_ms);
  uint64_t retry_after_ms =
      kind_is_bad(kind) ? neap__retry_after_heeded(b, r, call->retry_after_ms) : 0;
  neap_reported reported = NEAP_COUNTED;
  if ((p & 3) == PERMIT_PROBE) {
    bool is_success = !kind_is_failure(kind) && !(kind == KIND_SLOW_SUCCESS && r->slow_rate != 0);
    reported = neap__probe_report(b, r, p, now_ms, false, is_success, retry_after_ms, moved);
    if (reported == NEAP_COUNTED) total_add(b, kind, 1);
  } else if ((p & 3) == PERMIT_BYPASS) {
    total_add(b, kind, 1);
  } else {
    uint64_t s = word_load(&b->state);
    reported = s >> 40 == p >> 2 ? report_closed(b, r, s, now_ms, kind, how, retry_after_ms, moved)
                                 : NEAP_STALE;
  }
  if (reported != NEAP_COUNTED) return reported;
  if (call->outcome == NEAP_TIMEOUT) total_add(b, TOTAL_timeout, 1);
  duration_count(b, duration_ms);
  return NEAP_COUNTED;
}

static NEAP__AT_ONCE neap_reported report_any(neap__breaker *b, const neap_rules *r,
                                              uint64_t now_ms, uint64_t p, const neap_call *call,
                                              how_counted how, neap_transition *moved) {
  assert(rules_are_prepared(r));
  if ((p & 3) == PERMIT_NONE) return NEAP_USED;
  if (NEAP__UNLIKELY(!shape_is_valid(geometry_shape(word_load(&b->geometry)))))
    neap_breaker_adopt((neap_breaker *)b, r);
  neap_reported reported;
  if (call->outcome >= NEAP_NEUTRAL) {
    reported = report_neutral(b, r, p, now_ms, call, moved);
  } else {
    bool is_absurd = call->duration_ms > MASK(TIME_BITS); /* such as an end before its start */
    if (is_absurd) total_add(b, TOTAL_clock_steps, 1);
    reported = report_outcome(b, r, p, now_ms, call, is_absurd ? 0 : call->duration_ms, how, moved);
  }
  if (reported == NEAP_STALE) total_add(b, TOTAL_stale, 1);
  return reported;
}

static NEAP__NOINLINE neap_reported report_slow(neap__breaker *b, const neap_rules *r,
                                                uint64_t now_ms, uint64_t p, const neap_call *call,
                                                neap_transition *moved) {
  return report_any(b, r, now_ms, p, call, AS_ONE_MORE, moved);
}

/* ---- calls that count as slow before they end ---- */

bool neap__mark_slow(neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms, uint64_t n,
                     window_place *at, neap_transition *moved) {
  if (NEAP__UNLIKELY(!shape_is_valid(geometry_shape(word_load(&b->geometry)))))
    neap_breaker_adopt((neap_breaker *)b, r);
  if (!closed_count(b, r, s, now_ms, KIND_SLOW_SUCCESS, n, AS_A_MARK, at)) return false;
  if (closed_is_bad(b, s, at)) evaluate(b, r, now_ms, s, at, 0, 0, moved);
  return true;
}

/* A count window keeps its place, or leaves it empty. */
neap_reported neap__report_marked(neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                  uint64_t p, const neap_call *call, neap_transition *moved) {
  uint64_t s = word_load(&b->state);
  neap_reported reported = report_any(b, r, now_ms, p, call, AS_MARKED, moved);
  if (call->outcome < NEAP_NEUTRAL || reported != NEAP_COUNTED) return reported;
  window_place at = neap__window_place(b, r, state_epoch(s), now_ms);
  if (shape_is_count(at.shape)) neap__window_settle(b, &at, KIND_NONE);
  evaluate(b, r, now_ms, s, &at, 0, 0, moved); /* there are fewer calls: a rate may hold now */
  return NEAP_COUNTED;
}

/* ---- most calls: each step takes over where the one below it has no quick answer ---- */

static inline uint64_t run_without_epoch(const neap__breaker *b) {
  return word_load(&b->run) << (64 - RUN_BITS);
}

/* Counted, but there have been failures or slow calls.  The slice is not handed on but found again:
 * so the quick way has a register less to save. */
static NEAP__NOINLINE neap_reported success_check(neap__breaker *b, const neap_rules *r,
                                                  uint64_t now_ms, uint64_t s,
                                                  neap_transition *moved) {
  uint64_t slice = slice_early(now_ms, r->prepared[PREPARED_ROUNDED_UP]);
  if (NEAP__UNLIKELY(run_without_epoch(b) != 0))
    return success_end_run(b, r, now_ms, s, slice, moved);
  if (NEAP__LIKELY(mark_is_evaluated(word_load(&b->mark), slice))) return NEAP_COUNTED;
  return success_evaluate(b, r, now_ms, s, moved);
}

static inline bool is_untroubled(const neap__breaker *b) {
  return (run_without_epoch(b) | word_load(&b->mark)) == 0;
}

/* Where what was admitted under `s` counts: at once, if the geometry still is that of the rules. */
static window_place plain_place(const neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                uint64_t s, uint64_t slice) {
  uint64_t geometry = word_load(&b->geometry);
  if (NEAP__UNLIKELY(geometry_shape(geometry) != r->prepared[PREPARED_SHORTCUT]))
    return neap__window_place(b, r, state_epoch(s), now_ms);
  return (window_place){window_tag(state_epoch(s), geometry), 0, slice, geometry_shape(geometry)};
}

/* Not counted yet: the first of its slice, or somebody else was quicker. */
static NEAP__NOINLINE neap_reported success_first(neap__breaker *b, const neap_rules *r,
                                                  uint64_t now_ms, uint64_t s,
                                                  neap_transition *moved) {
  static const neap_call success = {.outcome = NEAP_SUCCESS};
  uint64_t slice = slice_early(now_ms, r->prepared[PREPARED_ROUNDED_UP]);
  window_place counted = plain_place(b, r, now_ms, s, slice);
  if (NEAP__UNLIKELY(!neap__window_add(b, &counted, KIND_SUCCESS, false)))
    return report_slow(b, r, now_ms, permit_word(s, PERMIT_PLAIN), &success, moved);
  if (NEAP__LIKELY(is_untroubled(b))) return NEAP_COUNTED;
  return success_check(b, r, now_ms, s, moved);
}

/* Counts in the counter of that slice, if it is there already and nobody else was quicker. */
static inline bool count_here(neap__breaker *b, uint64_t s, uint64_t geometry, uint64_t slice,
                              unsigned kind) {
  neap__word *cell = &b->cells[(slice % NEAP__SLICES) * NEAP__KINDS + kind];
  uint64_t c = word_load(cell), base = cell_base(window_tag((uint32_t)(s >> 40), geometry), slice);
  if (NEAP__UNLIKELY(c - base - 1 >= COUNT_TOP - 2)) return false;
  if (NEAP__LIKELY(word_swap(cell, c, c + 1))) return true;
  word_pause();
  return false;
}

/* Its counter is there already, or the step above takes over. */
static inline neap_reported success_count(neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                          uint64_t s, uint64_t geometry, neap_transition *moved) {
  uint64_t slice = slice_early(now_ms, r->prepared[PREPARED_ROUNDED_UP]);
  if (NEAP__UNLIKELY(!count_here(b, s, geometry, slice, KIND_SUCCESS)))
    return success_first(b, r, now_ms, s, moved);
  if (NEAP__LIKELY(is_untroubled(b))) return NEAP_COUNTED;
  return success_check(b, r, now_ms, s, moved);
}

/* Admitted in this epoch by a closed breaker, whose time window is that of the rules. */
static inline bool is_plain(const neap_rules *r, uint64_t s, uint64_t geometry, uint64_t p) {
  return (s >> 40) * 4 + PERMIT_PLAIN == p &&
         (uint32_t)geometry == (uint32_t)r->prepared[PREPARED_SHORTCUT];
}

/* Of a failure that was not slow.  The window place of `s` and `geometry` is known at once. */
static NEAP__NOINLINE neap_reported report_failed(neap__breaker *b, const neap_rules *r,
                                                  uint64_t now_ms, uint64_t s, uint64_t geometry,
                                                  const neap_call *call, neap_transition *moved) {
  uint64_t slice = slice_early(now_ms, r->prepared[PREPARED_ROUNDED_UP]);
  window_place at = {window_tag(state_epoch(s), geometry), 0, slice, geometry_shape(geometry)};
  if (!count_here(b, s, geometry, slice, KIND_FAILURE) &&
      !neap__window_add(b, &at, KIND_FAILURE, false))
    return report_slow(b, r, now_ms, permit_word(s, PERMIT_PLAIN), call, moved);
  uint64_t retry_after_ms = neap__retry_after_heeded(b, r, call->retry_after_ms);
  closed_judge_bad(b, r, now_ms, s, KIND_FAILURE, &at, retry_after_ms, moved);
  if (call->outcome == NEAP_TIMEOUT) total_add(b, TOTAL_timeout, 1);
  duration_count(b, call->duration_ms);
  return NEAP_COUNTED;
}

/* Here: a success that took its time, but was not slow; of failures: report_failed().  Everything
 * else: report_slow(). */
static NEAP__NOINLINE neap_reported report_timed(neap__breaker *b, const neap_rules *r,
                                                 uint64_t now_ms, uint64_t p, const neap_call *call,
                                                 neap_transition *moved) {
  uint64_t s = word_load(&b->state), geometry = word_load(&b->geometry), ms = call->duration_ms;
  bool is_slow = r->slow_call_ms != 0 && ms > r->slow_call_ms;
  if (NEAP__UNLIKELY(!is_plain(r, s, geometry, p) || call->outcome >= NEAP_NEUTRAL || is_slow ||
                     (ms >> TIME_BITS | now_ms >> EARLY_BITS) != 0))
    return report_slow(b, r, now_ms, p, call, moved);
  if (call->outcome != NEAP_SUCCESS) return report_failed(b, r, now_ms, s, geometry, call, moved);
  neap_reported reported = success_count(b, r, now_ms, s, geometry, moved);
  if (reported == NEAP_COUNTED) duration_count(b, ms);
  return reported;
}

/* Here: a success under a millisecond.  Everything else: report_timed(). */
neap_reported neap_breaker_report(neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                                  neap_permit *permit, const neap_call *call,
                                  neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  uint64_t p = permit->opaque;
  permit->opaque = 0;
  uint64_t s = word_load(&b->state), geometry = word_load(&b->geometry);
  if (NEAP__UNLIKELY(!is_plain(r, s, geometry, p) || call->outcome != NEAP_SUCCESS ||
                     (call->duration_ms | now_ms >> EARLY_BITS) != 0))
    return report_timed(b, r, now_ms, p, call, moved);
  return success_count(b, r, now_ms, s, geometry, moved);
}

neap_reported neap_breaker_report_on(neap_breaker *b, const neap_rules *r, const neap_clock *clock,
                                     neap_permit *permit, const neap_call *call,
                                     neap_transition *moved) {
  neap_permit *volatile kept_permit = permit; /* as in acquire_open_on() */
  const neap_call *volatile kept_call = call;
  neap_transition *volatile kept_moved = moved;
  uint64_t now_ms = clock->now_ms(clock->context);
  return neap_breaker_report(b, r, now_ms, kept_permit, kept_call, kept_moved);
}
