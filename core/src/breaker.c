/* The state machine: the only place that writes the state word.
 *
 *   acquire   closed, and refused because open, is answered at once; the rest by acquire_state()
 *   move()    the one compare-and-swap that is a transition, with its bookkeeping
 *   report    is in report.c; here is what it does to the state: neap__trip(), neap__probe_report()
 *
 * Bookkeeping (totals, the instant it opened, the transition's record) follows the swap: a process
 * that dies in between loses that, never the transition. */
#include <assert.h>
#include <string.h>

#include "machine.h"
#include "window.h"

/* ---- transitions ---- */

static const struct {
  uint8_t from, to, cause;
} transition_kinds[NEAP_TRANSITION_KINDS] = {
#define X(from, to, cause) {NEAP_##from, NEAP_##to, NEAP_BY_##cause},
    NEAP_TRANSITIONS(X)
#undef X
};

static void transition_count(neap__breaker *b, const neap_transition *t) {
  for (unsigned i = 0; i < NEAP_TRANSITION_KINDS; i++)
    if (transition_kinds[i].from == (uint8_t)t->from && transition_kinds[i].to == (uint8_t)t->to &&
        transition_kinds[i].cause == (uint8_t)t->cause) {
      half_add(&b->transitions[i], 1);
      return;
    }
  assert(false); /* every transition is in NEAP_TRANSITIONS */
}

/* A well-mixed number of two: the finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static NEAP__NOINLINE uint64_t hash(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t cooldown_with_jitter(const neap_rules *r, uint32_t level, uint32_t epoch) {
  uint64_t ms = neap_rules_cooldown_ms(r, level);
  uint64_t most = ms * r->jitter / NEAP_ONE;
  return ms + high_product(hash(r->seed, epoch), most + 1);
}

#define RETRY_AFTER_LONGEST_MS (INT64_C(366) * 86400000)

uint64_t neap__retry_after_heeded(neap__breaker *b, const neap_rules *r, int64_t retry_after_ms) {
  if (retry_after_ms < 0 || retry_after_ms > RETRY_AFTER_LONGEST_MS) {
    total_add(b, TOTAL_retry_ignored, 1);
    return 0;
  }
  uint64_t ms = (uint64_t)retry_after_ms;
  return ms < r->max_cooldown_ms ? ms : r->max_cooldown_ms;
}

static uint64_t opened_word(uint32_t epoch, uint64_t now_ms) {
  return (uint64_t)epoch << TIME_BITS | (now_ms & MASK(TIME_BITS));
}

/* When an epoch's OPEN began.  One that slept since its swap leaves a later epoch's alone. */
static void opened_note(neap__breaker *b, uint32_t epoch, uint64_t now_ms) {
  uint64_t old;
  do {
    old = word_load(&b->opened);
    uint64_t ahead = ((old >> TIME_BITS) - epoch) & MASK(EPOCH_BITS);
    if (ahead != 0 && ahead < MASK(EPOCH_BITS) / 2 && state_epoch(word_load(&b->state)) != epoch)
      return;
  } while (!word_swap(&b->opened, old, opened_word(epoch, now_ms)));
}

uint64_t neap__open_age_ms(const neap__breaker *b, uint64_t s, uint64_t now_ms) {
  uint64_t opened = word_load(&b->opened);
  bool is_known = state_kind(s) != NEAP_CLOSED && opened >> TIME_BITS == state_epoch(s);
  return is_known ? time_since(opened & MASK(TIME_BITS), now_ms) : 0;
}

/* t->open_ms is by hand exactly that; otherwise what a Retry-After asked, and the least; 0 says
 * nothing. */
static uint64_t open_for_ms(const neap_rules *r, const neap_transition *t) {
  if (t->cause == NEAP_BY_TRIP && t->open_ms != 0) return t->open_ms;
  uint64_t cooldown = cooldown_with_jitter(r, t->level, t->epoch);
  return cooldown > t->open_ms ? cooldown : t->open_ms;
}

/* What every transition shares.  `t` has to, cause, level and the numbers; the rest comes from `s`.
 * False: `s` is not the state any more. */
static bool move(neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms,
                 neap_transition *t, neap_transition *moved) {
  t->from = state_kind(s);
  t->epoch = (state_epoch(s) + 1) & (uint32_t)MASK(EPOCH_BITS);
  uint64_t open_age = neap__open_age_ms(b, s, now_ms);
  if (t->to == NEAP_OPEN) t->open_ms = open_for_ms(r, t);
  uint64_t time = now_ms + t->open_ms; /* until, or since */
  if (!word_swap(&b->state, s, state_word(t->to, t->level, t->epoch, time))) return false;
  if (open_age != 0) total_add(b, TOTAL_open_ms, open_age);
  if (t->to == NEAP_OPEN) opened_note(b, t->epoch, now_ms);
  if (t->flapping) total_add(b, TOTAL_flaps, 1);
  transition_count(b, t);
  if (moved != NULL) *moved = *t;
  return true;
}

/* The level that a trip from CLOSED leads to: the backoff goes on if it closed less than a cooldown
 * ago, or its ramp is not over. */
static void level_of_trip(const neap_rules *r, uint64_t s, uint64_t now_ms, neap_transition *t) {
  uint32_t level = state_level(s);
  uint64_t cooldown_ms = neap_rules_cooldown_ms(r, level);
  uint64_t soon_ms = cooldown_ms > r->ramp_ms ? cooldown_ms : r->ramp_ms;
  t->flapping = level > 0 && time_since(state_time(s), now_ms) < soon_ms;
  t->level = !t->flapping ? 1 : level < LEVEL_MAX ? level + 1 : LEVEL_MAX;
}

void neap__trip(neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms,
                neap_transition *t, neap_transition *moved) {
  level_of_trip(r, s, now_ms, t);
  move(b, r, s, now_ms, t, moved); /* if it fails, somebody else has moved it */
}

static uint32_t level_after_round(uint64_t s) {
  return state_level(s) < LEVEL_MAX ? state_level(s) + 1 : LEVEL_MAX;
}

/* ---- the verdict on a round: a pure function of the word and the caller's rules ---- */

typedef enum round_verdict { ROUND_GOES_ON, ROUND_CLOSES, ROUND_REOPENS } round_verdict;

static round_verdict round_judge(uint64_t s, const neap_rules *r) {
  uint32_t succeeded = half_succeeded(s), failed = half_failed(s);
  if (r->decide_by_function) {
    bool is_spent = half_in_flight(s) == 0 && succeeded + failed >= r->probes;
    return is_spent ? ROUND_REOPENS : ROUND_GOES_ON;
  }
  if (succeeded >= r->successes) return ROUND_CLOSES;
  return failed > r->probes - r->successes ? ROUND_REOPENS : ROUND_GOES_ON;
}

static uint64_t round_lease_left(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  return time_left(half_lease(s), now_ms, LEASE_BITS, (uint64_t)r->lease_ms + SLACK_MS);
}

static bool round_is_lost(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  return half_in_flight(s) > 0 && round_lease_left(s, r, now_ms) == 0;
}

static neap_transition round_close(uint64_t s, const neap_rules *r) {
  return (neap_transition){
      .to = NEAP_CLOSED,
      .cause = NEAP_BY_PROBES,
      .level = state_level(s),
      .measured = half_succeeded(s),
      .limit = r->successes,
      .calls = half_succeeded(s) + half_failed(s),
  };
}

static neap_transition round_reopen(uint64_t s, const neap_rules *r) {
  return (neap_transition){
      .to = NEAP_OPEN,
      .cause = NEAP_BY_PROBES,
      .level = level_after_round(s),
      .measured = half_failed(s),
      .limit = r->probes - r->successes + 1,
      .calls = half_succeeded(s) + half_failed(s),
  };
}

static neap_transition round_lose(uint64_t s, const neap_rules *r) {
  neap_transition t = round_reopen(s, r);
  t.cause = NEAP_BY_PROBE_LOST;
  t.measured = half_in_flight(s);
  t.limit = 0;
  return t;
}

/* ---- the ramp: a pure function of the word, the rules and the time ---- */

/* What is left of it; only probes leave a closed breaker at a level.  Where the clock went back, it
 * may begin once more, but not lie further ahead than that. */
static uint64_t ramp_left(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  if (r->ramp_ms == 0 || state_level(s) == 0 || state_kind(s) != NEAP_CLOSED) return 0;
  uint64_t longest = 2 * (uint64_t)r->ramp_ms;
  uint64_t left = time_left(state_time(s) + r->ramp_ms, now_ms, TIME_BITS, longest);
  return left < r->ramp_ms ? left : r->ramp_ms;
}

/* Of each millisecond a number below ramp_ms is drawn, and its calls are let in if so much of the
 * ramp is over: a share of (over + 1) / ramp_ms. */
static bool ramp_refuses(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  uint64_t left = ramp_left(s, r, now_ms);
  if (left == 0) return false;
  return high_product(hash(hash(r->seed, state_epoch(s)), now_ms), r->ramp_ms) > r->ramp_ms - left;
}

uint32_t neap__admitted(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  if (state_kind(s) != NEAP_CLOSED) return 0;
  uint64_t left = ramp_left(s, r, now_ms);
  return left == 0 ? NEAP_ONE : (uint32_t)((r->ramp_ms - left + 1) * NEAP_ONE / r->ramp_ms);
}

/* By when about one call will have been let in: a power of two, as the share is only a chance. */
static NEAP__NOINLINE uint64_t ramp_wait_ms(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  uint64_t left = ramp_left(s, r, now_ms), over = r->ramp_ms - left, ms = 1;
  while (ms * (over + ms) < r->ramp_ms) ms *= 2;
  return ms < left ? ms : left;
}

/* ---- acquire ---- */

static neap_verdict probe_admit(neap__breaker *b, uint64_t s, neap_permit *permit) {
  total_add(b, TOTAL_probes, 1);
  permit->opaque = permit_word(s, PERMIT_PROBE);
  return NEAP_ALLOW_PROBE;
}

/* The first probe of a round: the one acquire that moves OPEN to HALF_OPEN.  The epoch stays. */
static bool round_begin(neap__breaker *b, const neap_rules *r, uint64_t s, uint64_t now_ms,
                        neap_transition *moved) {
  uint64_t half = state_word(NEAP_HALF_OPEN, state_level(s), state_epoch(s),
                             half_payload(1, 0, 0, now_ms + r->lease_ms));
  if (!word_swap(&b->state, s, half)) return false;
  neap_transition t = {
      .from = NEAP_OPEN,
      .to = NEAP_HALF_OPEN,
      .cause = NEAP_BY_COOLDOWN,
      .epoch = state_epoch(s),
      .level = state_level(s),
  };
  transition_count(b, &t);
  if (moved != NULL) *moved = t;
  return true;
}

/* A slot of a round that goes on, or 0 if none is free. */
static uint64_t round_with_one_more(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  uint32_t in_flight = half_in_flight(s), succeeded = half_succeeded(s), failed = half_failed(s);
  if (in_flight >= r->concurrent || in_flight + succeeded + failed >= r->probes) return 0;
  return state_word(NEAP_HALF_OPEN, state_level(s), state_epoch(s),
                    half_payload(in_flight + 1, succeeded, failed, now_ms + r->lease_ms));
}

/* Whether a round is decided or lost, and how it ends then. */
static bool round_is_over(uint64_t s, const neap_rules *r, uint64_t now_ms, neap_transition *t) {
  round_verdict verdict = round_judge(s, r);
  if (verdict == ROUND_CLOSES)
    *t = round_close(s, r);
  else if (verdict == ROUND_REOPENS)
    *t = round_reopen(s, r);
  else if (round_is_lost(s, r, now_ms))
    *t = round_lose(s, r);
  else
    return false;
  return true;
}

/* What the acquire that ended a round answers.  It does not look again: a call makes at most one
 * transition, or it could not tell them all. */
static neap_verdict round_ended(neap__breaker *b, const neap_transition *t, neap_permit *permit) {
  if (t->cause == NEAP_BY_PROBE_LOST) total_add(b, TOTAL_probes_lost, t->measured);
  if (t->to == NEAP_OPEN) return NEAP_REFUSE_OPEN;
  permit->opaque = permit_word(state_word(t->to, t->level, t->epoch, 0), PERMIT_PLAIN);
  return NEAP_ALLOW;
}

static uint64_t open_left(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  return time_left(state_time(s), now_ms, TIME_BITS, rules_longest_ms(r));
}

/* What the state alone answers, whatever the mode. */
static neap_verdict acquire_state(neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                                  neap_permit *permit, neap_transition *moved) {
  for (;;) {
    uint64_t s = word_load(&b->state);
    switch (state_kind(s)) {
      case NEAP_CLOSED:
        if (ramp_refuses(s, r, now_ms)) return NEAP_REFUSE_RAMP;
        permit->opaque = permit_word(s, PERMIT_PLAIN);
        return NEAP_ALLOW;
      case NEAP_OPEN:
        if (open_left(s, r, now_ms) > 0) return NEAP_REFUSE_OPEN;
        if (round_begin(b, r, s, now_ms, moved)) return probe_admit(b, s, permit);
        break;
      case NEAP_HALF_OPEN: {
        neap_transition t;
        if (round_is_over(s, r, now_ms, &t)) {
          if (move(b, r, s, now_ms, &t, moved)) return round_ended(b, &t, permit);
          break;
        }
        uint64_t more = round_with_one_more(s, r, now_ms);
        if (more == 0) return NEAP_REFUSE_PROBES;
        if (word_swap(&b->state, s, more)) return probe_admit(b, s, permit);
        break;
      }
    }
  }
}

neap_mode neap__mode_in_force(const neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                              bool *is_operators) {
  uint64_t m = word_load(&b->mode);
  *is_operators = m != 0 && (!mode_is_timed(m) || mode_left_ms(m, now_ms) > 0);
  return *is_operators ? mode_kind(m) : r->mode;
}

/* One that has run out is cleared on the way, so that acquire has its short way back. */
static void mode_expire(neap__breaker *b, uint64_t now_ms) {
  uint64_t m = word_load(&b->mode);
  if (m != 0 && mode_is_timed(m) && mode_left_ms(m, now_ms) == 0) word_swap(&b->mode, m, 0);
}

static void refusal_count(neap__breaker *b, const neap_rules *r, neap_verdict verdict) {
  if (r->count_refusals)
    total_add(b, TOTAL_refused_open + (unsigned)(verdict - NEAP_REFUSE_OPEN), 1);
}

static NEAP__NOINLINE neap_verdict acquire_slow(neap__breaker *b, const neap_rules *r,
                                                uint64_t now_ms, neap_permit *permit,
                                                neap_transition *moved) {
  assert(rules_are_prepared(r));
  mode_expire(b, now_ms);
  bool is_operators;
  neap_mode mode = neap__mode_in_force(b, r, now_ms, &is_operators);
  neap_verdict verdict = NEAP_REFUSE_FORCED;
  if (mode != NEAP_FORCED_OPEN) verdict = acquire_state(b, r, now_ms, permit, moved);
  if (verdict <= NEAP_ALLOW_BYPASS) return verdict;
  if (mode == NEAP_FORCED_CLOSED || mode == NEAP_SHADOW) {
    uint64_t refusal = (uint64_t)verdict << 57; /* in place of the level */
    permit->opaque =
        permit_word((word_load(&b->state) & ~(MASK(5) << 57)) | refusal, PERMIT_BYPASS);
    total_add(b, TOTAL_bypassed, 1);
    return NEAP_ALLOW_BYPASS;
  }
  refusal_count(b, r, verdict);
  return verdict;
}

/* Open with nothing else to think of is the other thing a breaker says often.  Of the states only
 * OPEN has the top bit. */
static inline bool is_plainly_open(const neap__breaker *b, const neap_rules *r, uint64_t now_ms) {
  uint64_t s = word_load(&b->state);
  return s >> 63 && open_left(s, r, now_ms) > 0 &&
         (word_load(&b->mode) | rules_flags(r)) >> 63 == 0;
}

static inline neap_verdict refuse_open(neap__breaker *b, const neap_rules *r) {
  if (r->count_refusals) total_add(b, TOTAL_refused_open, 1);
  return NEAP_REFUSE_OPEN;
}

/* Under rules with a ramp, most of the time there is none. */
static inline bool is_past_ramp(const neap__breaker *b, const neap_rules *r, uint64_t s,
                                uint64_t now_ms) {
  bool is_plain = (word_load(&b->mode) | s | (rules_flags(r) & ~PREPARED_RAMP)) >> 62 == 0;
  return is_plain && (state_level(s) == 0 || ramp_left(s, r, now_ms) == 0);
}

/* Neither plainly open nor plainly closed. */
static NEAP__NOINLINE neap_verdict acquire_rest(neap__breaker *b, const neap_rules *r,
                                                uint64_t now_ms, neap_permit *permit,
                                                neap_transition *moved) {
  uint64_t s = word_load(&b->state);
  if (!is_past_ramp(b, r, s, now_ms)) return acquire_slow(b, r, now_ms, permit, moved);
  permit->opaque = permit_word(s, PERMIT_PLAIN);
  return NEAP_ALLOW;
}

static NEAP__NOINLINE neap_verdict acquire_open(neap__breaker *b, const neap_rules *r,
                                                uint64_t now_ms, neap_permit *permit,
                                                neap_transition *moved) {
  if (NEAP__LIKELY(is_plainly_open(b, r, now_ms))) return refuse_open(b, r);
  return acquire_rest(b, r, now_ms, permit, moved);
}

/* What may be needed after the clock waits in memory: a register for it would have to be saved. */
static NEAP__NOINLINE NEAP__AS_WRITTEN neap_verdict acquire_open_on(neap__breaker *b,
                                                                    const neap_rules *r,
                                                                    const neap_clock *clock,
                                                                    neap_permit *permit,
                                                                    neap_transition *moved) {
  neap_permit *volatile kept_permit = permit;
  neap_transition *volatile kept_moved = moved;
  uint64_t now_ms = clock->now_ms(clock->context);
  if (NEAP__LIKELY(is_plainly_open(b, r, now_ms))) return refuse_open(b, r);
  return acquire_rest(b, r, now_ms, kept_permit, kept_moved);
}

/* CLOSED is 0 in the two bits where the mode word and the flags say that there is a mode, and the
 * flags that there may be a ramp. */
static inline bool is_plainly_closed(const neap__breaker *b, const neap_rules *r, uint64_t s) {
  return (word_load(&b->mode) | s | rules_flags(r)) >> 62 == 0;
}

neap_verdict neap_breaker_acquire(neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                                  neap_permit *permit, neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  uint64_t s = word_load(&b->state);
  if (NEAP__UNLIKELY(!is_plainly_closed(b, r, s))) return acquire_open(b, r, now_ms, permit, moved);
  permit->opaque = (s >> 40) * 4 + PERMIT_PLAIN;
  return NEAP_ALLOW;
}

neap_verdict neap_breaker_acquire_on(neap_breaker *breaker, const neap_rules *r,
                                     const neap_clock *clock, neap_permit *permit,
                                     neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  uint64_t s = word_load(&b->state);
  if (NEAP__UNLIKELY(!is_plainly_closed(b, r, s)))
    return acquire_open_on(b, r, clock, permit, moved);
  permit->opaque = (s >> 40) * 4 + PERMIT_PLAIN;
  return NEAP_ALLOW;
}

/* ---- a probe's report ---- */

neap_reported neap__probe_report(neap__breaker *b, const neap_rules *r, uint64_t p, uint64_t now_ms,
                                 bool is_neutral, bool is_success, uint64_t retry_after_ms,
                                 neap_transition *moved) {
  for (;;) {
    uint64_t s = word_load(&b->state);
    if (state_kind(s) != NEAP_HALF_OPEN || state_epoch(s) != permit_epoch(p)) return NEAP_STALE;
    uint32_t in_flight = half_in_flight(s), succeeded = half_succeeded(s), failed = half_failed(s);
    if (in_flight == 0) return NEAP_USED;
    if (!is_neutral && is_success && succeeded < 31) succeeded++;
    if (!is_neutral && !is_success && failed < 31) failed++;
    uint64_t after = state_word(NEAP_HALF_OPEN, state_level(s), state_epoch(s),
                                half_payload(in_flight - 1, succeeded, failed, half_lease(s)));
    round_verdict verdict = round_judge(after, r);
    if (verdict == ROUND_GOES_ON || r->decide_by_function) {
      if (word_swap(&b->state, s, after)) return NEAP_COUNTED;
      continue;
    }
    neap_transition t = verdict == ROUND_CLOSES ? round_close(after, r) : round_reopen(after, r);
    if (verdict == ROUND_REOPENS) t.open_ms = retry_after_ms;
    if (move(b, r, s, now_ms, &t, moved)) return NEAP_COUNTED;
  }
}

/* ---- by hand and by function ---- */

/* What a transition that no rule of the core caused reports as its `calls`. */
static uint64_t calls_known(const neap__breaker *b, const neap_rules *r, uint64_t s,
                            uint64_t now_ms) {
  if (state_kind(s) == NEAP_HALF_OPEN) return half_succeeded(s) + half_failed(s);
  if (state_kind(s) == NEAP_OPEN) return 0;
  window_place at = neap__window_place(b, r, state_epoch(s), now_ms);
  window_sums sums;
  neap__window_sum(b, &at, &sums);
  return sums.calls;
}

bool neap_breaker_decide(neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                         uint32_t epoch, neap_state to, int64_t retry_after_ms,
                         neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  uint64_t least_ms = to == NEAP_OPEN ? neap__retry_after_heeded(b, r, retry_after_ms) : 0;
  for (;;) {
    uint64_t s = word_load(&b->state);
    if (state_epoch(s) != (epoch & MASK(EPOCH_BITS))) return false;
    neap_transition t;
    if (state_kind(s) == NEAP_CLOSED && to == NEAP_OPEN) {
      t = (neap_transition){.to = NEAP_OPEN, .calls = calls_known(b, r, s, now_ms)};
      level_of_trip(r, s, now_ms, &t);
    } else if (state_kind(s) == NEAP_HALF_OPEN && to != NEAP_HALF_OPEN) {
      t = to == NEAP_OPEN ? round_reopen(s, r) : round_close(s, r);
      t.measured = t.limit = 0;
    } else {
      return false;
    }
    t.cause = NEAP_BY_FUNCTION;
    t.open_ms = least_ms;
    if (move(b, r, s, now_ms, &t, moved)) return true;
  }
}

void neap_breaker_reset(neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                        neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  neap_transition t;
  uint64_t s;
  do {
    s = word_load(&b->state);
    t = (neap_transition){
        .to = NEAP_CLOSED, .cause = NEAP_BY_RESET, .calls = calls_known(b, r, s, now_ms)};
  } while (!move(b, r, s, now_ms, &t, moved));
}

neap_status neap_breaker_trip(neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                              uint64_t open_ms, neap_transition *moved) {
  neap__breaker *b = breaker_of(breaker);
  if (open_ms > r->max_cooldown_ms) return NEAP_ERANGE;
  neap_transition t;
  uint64_t s;
  do {
    s = word_load(&b->state);
    t = (neap_transition){.to = NEAP_OPEN, .cause = NEAP_BY_TRIP, .open_ms = open_ms};
    t.calls = calls_known(b, r, s, now_ms);
    if (state_kind(s) == NEAP_CLOSED)
      level_of_trip(r, s, now_ms, &t);
    else
      t.level = state_level(s) > 0 ? state_level(s) : 1;
  } while (!move(b, r, s, now_ms, &t, moved));
  return NEAP_OK;
}

neap_status neap_breaker_set_mode(neap_breaker *breaker, uint64_t now_ms, neap_mode mode,
                                  uint64_t for_ms) {
  if (for_ms > MODE_LONGEST_MS) return NEAP_ERANGE;
  uint64_t m = 0;
  if (mode != NEAP_MODE_OF_RULES) {
    m = UINT64_C(1) << 63 | ((uint64_t)mode & 3) << 61;
    if (for_ms != 0) m |= UINT64_C(1) << 60 | ((now_ms + for_ms) & MASK(TIME_BITS));
  }
  word_store(&breaker_of(breaker)->mode, m);
  return NEAP_OK;
}

void neap_breaker_adopt(neap_breaker *breaker, const neap_rules *r) {
  neap__breaker *b = breaker_of(breaker);
  assert(rules_are_prepared(r));
  for (;;) {
    uint64_t g = word_load(&b->geometry);
    if (geometry_shape(g) == rules_shape(r)) return;
    if (word_swap(&b->geometry, g, ((g >> 32) + 1) << 32 | rules_shape(r))) return;
  }
}

/* ---- asking without taking ---- */

static neap_verdict peek_state(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  if (state_kind(s) == NEAP_CLOSED)
    return ramp_refuses(s, r, now_ms) ? NEAP_REFUSE_RAMP : NEAP_ALLOW;
  if (state_kind(s) == NEAP_OPEN)
    return open_left(s, r, now_ms) > 0 ? NEAP_REFUSE_OPEN : NEAP_ALLOW_PROBE;
  round_verdict verdict = round_judge(s, r);
  if (verdict == ROUND_CLOSES) return NEAP_ALLOW;
  if (verdict == ROUND_REOPENS || round_is_lost(s, r, now_ms)) return NEAP_REFUSE_OPEN;
  return round_with_one_more(s, r, now_ms) != 0 ? NEAP_ALLOW_PROBE : NEAP_REFUSE_PROBES;
}

neap_verdict neap_breaker_peek(const neap_breaker *breaker, const neap_rules *r, uint64_t now_ms) {
  const neap__breaker *b = breaker_of(breaker);
  bool is_operators;
  neap_mode mode = neap__mode_in_force(b, r, now_ms, &is_operators);
  if (mode == NEAP_FORCED_OPEN) return NEAP_REFUSE_FORCED;
  neap_verdict verdict = peek_state(word_load(&b->state), r, now_ms);
  return verdict > NEAP_ALLOW_BYPASS && mode != NEAP_AUTO ? NEAP_ALLOW_BYPASS : verdict;
}

neap_state neap__state_at(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  neap_state state = state_kind(s);
  return state == NEAP_OPEN && open_left(s, r, now_ms) == 0 ? NEAP_HALF_OPEN : state;
}

neap_state neap_breaker_state(const neap_breaker *breaker, const neap_rules *r, uint64_t now_ms) {
  return neap__state_at(word_load(&breaker_of(breaker)->state), r, now_ms);
}

uint64_t neap__retry_after_ms(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  neap_verdict verdict = peek_state(s, r, now_ms);
  if (verdict == NEAP_REFUSE_PROBES) return round_lease_left(s, r, now_ms);
  if (verdict == NEAP_REFUSE_RAMP) return ramp_wait_ms(s, r, now_ms);
  return verdict == NEAP_REFUSE_OPEN && state_kind(s) == NEAP_OPEN ? open_left(s, r, now_ms) : 0;
}

static uint64_t next_in_ms(uint64_t s, const neap_rules *r, uint64_t now_ms) {
  if (state_kind(s) == NEAP_OPEN) {
    uint64_t left = open_left(s, r, now_ms);
    return left > 0 ? left : NEAP_NEVER;
  }
  if (state_kind(s) == NEAP_HALF_OPEN && half_in_flight(s) > 0)
    return round_lease_left(s, r, now_ms);
  return NEAP_NEVER;
}

uint64_t neap_breaker_next_ms(const neap_breaker *breaker, const neap_rules *r, uint64_t now_ms) {
  uint64_t in = next_in_ms(word_load(&breaker_of(breaker)->state), r, now_ms);
  return in > NEAP_NEVER - now_ms ? NEAP_NEVER : now_ms + in;
}

uint64_t neap_breaker_retry_after_ms(const neap_breaker *breaker, const neap_rules *r,
                                     uint64_t now_ms, neap_verdict refused) {
  uint64_t s = word_load(&breaker_of(breaker)->state);
  if (refused == NEAP_REFUSE_FORCED) return neap_breaker_mode_left_ms(breaker, now_ms);
  if (refused == NEAP_REFUSE_RAMP) return ramp_wait_ms(s, r, now_ms);
  uint64_t in = next_in_ms(s, r, now_ms);
  return in == NEAP_NEVER ? 0 : in;
}

/* ---- as new ---- */

/* By then a level, a ramp and the run have had their time, too. */
bool neap__is_forgotten(const neap__breaker *b, const neap_rules *r, uint64_t now_ms,
                        uint64_t used_ms) {
  uint64_t s = word_load(&b->state), idle_ms = now_ms > used_ms ? now_ms - used_ms : 0;
  uint64_t longest_ms = r->max_cooldown_ms > r->ramp_ms ? r->max_cooldown_ms : r->ramp_ms;
  bool is_operators;
  neap__mode_in_force(b, r, now_ms, &is_operators);
  if (state_kind(s) != NEAP_CLOSED || is_operators || idle_ms <= longest_ms) return false;
  window_place at = neap__window_place(b, r, state_epoch(s), now_ms);
  if (shape_is_count(at.shape)) return true;
  window_sums sums;
  neap__window_sum(b, &at, &sums);
  return sums.calls == 0 && idle_ms - longest_ms > shape_length(at.shape);
}

void neap__renew(neap__breaker *b) {
  uint32_t epoch = state_epoch(word_load(&b->state)) + 1;
  memset(b, 0, sizeof *b);
  word_store(&b->state, state_word(NEAP_CLOSED, 0, epoch, 0));
}

/* ---- permits ---- */

neap_verdict neap_permit_kind(const neap_permit *permit) {
  return (permit->opaque & 3) == PERMIT_PROBE    ? NEAP_ALLOW_PROBE
         : (permit->opaque & 3) == PERMIT_BYPASS ? NEAP_ALLOW_BYPASS
                                                 : NEAP_ALLOW;
}

uint32_t neap_permit_epoch(const neap_permit *permit) { return permit_epoch(permit->opaque); }

neap_verdict neap_permit_refusal(const neap_permit *permit) {
  if ((permit->opaque & 3) != PERMIT_BYPASS) return neap_permit_kind(permit);
  return (neap_verdict)(permit->opaque >> 19 & MASK(5));
}
