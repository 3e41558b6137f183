/* machine.h: what the other files need of the state machine. */
#ifndef NEAP_MACHINE_H
#define NEAP_MACHINE_H

#include "breaker.h"
#include "window.h"

/* ---- the run of failures: epoch 17 | count 47 ---- */

#define RUN_BITS 47

static inline uint64_t run_count(uint64_t w, uint32_t epoch) {
  return w >> RUN_BITS == epoch ? w & MASK(RUN_BITS) : 0;
}

/* The operator's mode, unless there is none or it has run out; else the rules'. */
NEAP__HIDDEN neap_mode neap__mode_in_force(const neap__breaker *b, const neap_rules *r,
                                           uint64_t now_ms, bool *is_operators);

/* An open word whose cooldown is over reads as half-open. */
NEAP__HIDDEN neap_state neap__state_at(uint64_t s, const neap_rules *r, uint64_t now_ms);

/* For how long the epoch of `s` has been open or half-open; 0 if closed, or if nobody lived to
 * write when it began. */
NEAP__HIDDEN uint64_t neap__open_age_ms(const neap__breaker *b, uint64_t s, uint64_t now_ms);

/* How long the dependency asked to be left alone, as far as it is heeded: 0 if it did not, or said
 * nonsense, which is counted. */
NEAP__HIDDEN uint64_t neap__retry_after_heeded(neap__breaker *b, const neap_rules *r,
                                               int64_t retry_after_ms);

/* Opens the closed breaker of `s`, for the cause and with the numbers in *t; t->open_ms is the least
 * that it stays open. */
NEAP__HIDDEN void neap__trip(neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms,
                             neap_transition *t, neap_transition *moved);

/* A probe's slot goes back, its outcome is counted and the round judged, all in one swap. */
NEAP__HIDDEN neap_reported neap__probe_report(neap__breaker *b, const neap_rules *r, uint64_t p,
                                              uint64_t now_ms, bool is_neutral, bool is_success,
                                              uint64_t retry_after_ms, neap_transition *moved);

/* Counts n calls of the closed breaker of `s` as slow though they have not ended, at *at, and judges
 * the window.  False: the state has moved. */
NEAP__HIDDEN bool neap__mark_slow(neap__breaker *b, const neap_rules *r, uint64_t s,
                                  uint64_t now_ms, uint64_t n, window_place *at,
                                  neap_transition *moved);

/* neap_breaker_report() of a plain permit whose call was counted so and, in a time window, taken
 * back. */
NEAP__HIDDEN neap_reported neap__report_marked(neap__breaker *b, const neap_rules *r,
                                               uint64_t now_ms, uint64_t p, const neap_call *call,
                                               neap_transition *moved);

/* Whether nothing that happened until used_ms matters to what the breaker does from now_ms on. */
NEAP__HIDDEN bool neap__is_forgotten(const neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                     uint64_t used_ms);

/* Makes it as new, in a later epoch than that of any permit.  Nobody else uses it. */
NEAP__HIDDEN void neap__renew(neap__breaker *b);

/* Until a call may be let in; 0 if one may be now. */
NEAP__HIDDEN uint64_t neap__retry_after_ms(uint64_t s, const neap_rules *r, uint64_t now_ms);

/* The share of calls that are let in, in millionths. */
NEAP__HIDDEN uint32_t neap__admitted(uint64_t s, const neap_rules *r, uint64_t now_ms);

#endif
