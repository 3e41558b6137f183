/* reference.h: a breaker too simple to be wrong, to compare the real one with.
 *
 * It has no words, no bits, no atomics and no shortcuts.  Every call that was counted is in a
 * list, which is counted again from its beginning whenever somebody asks.  What the design says
 * about time is said here once more, in plain numbers:
 *
 *   - a time window is the last 16 slices of floor(length / 16) ms, a count window the last N
 *     calls;
 *   - the window ends at the newest slice in it, be that ahead of the caller's clock, but two
 *     windows ahead is no more "ahead": a clock has stepped back;
 *   - each of the 16 places has one counter per kind; a call that finds it one lap ahead counts
 *     there, one that finds anything else of another lap begins it anew;
 *   - deadlines are kept modulo 2^40 (the lease: 2^26) and one further off than it can be is
 *     past. */
#ifndef NEAP_TESTS_REFERENCE_H
#define NEAP_TESTS_REFERENCE_H

#include "support.h"

enum { SUCCESS, SLOW_SUCCESS, FAILURE, SLOW_FAILURE, KINDS, FORGOTTEN };

#define REFERENCE_CALLS 8192

typedef struct past_call {
  int64_t slice;
  int kind;
  bool is_mark; /* it has not ended */
} past_call;

/* What the reference gives for a permit. */
typedef struct reference_permit {
  neap_verdict verdict;
  uint32_t epoch;
  bool is_in_flight, is_marked; /* known to the flight, and counted as slow */
  uint64_t began_ms;
} reference_permit;

typedef struct reference {
  neap_state state; /* NEAP_OPEN until somebody acts on its end */
  uint32_t epoch, level;
  uint64_t since_ms, until_ms, opened_ms, lease_ms;
  uint32_t in_flight, succeeded, failed;
  bool has_window;
  neap_window_kind window;
  uint32_t length;
  size_t count;
  uint64_t run;
  bool mode_set, mode_timed;
  neap_mode mode;
  uint64_t mode_until_ms;
  neap_totals totals;
  uint64_t transitions[NEAP_TRANSITION_KINDS];
  uint64_t duration_counts[NEAP_DURATION_BUCKETS], duration_sum_ms;
  bool has_flight;       /* it had slices */
  uint64_t slice_ms;     /* of the flight; 0: no rule asks for slow calls */
  uint64_t flight_ms;    /* since when it is so */
  bool is_settled;       /* what is reported has its place in the window already */
  neap_transition moved; /* by the last operation; cause NEAP_BY_NOTHING: none */
  uint64_t opened_for_at_least, opened_for_at_most; /* of moved.open_ms: the jitter is the core's */
} reference;

/* The list is not copied with the rest: a copy that asks and takes nothing needs none of its
 * own. */
static past_call reference_calls[REFERENCE_CALLS];

/* ---- Time ---- */

static inline uint64_t left_ms(uint64_t deadline, uint64_t now, unsigned bits, uint64_t longest) {
  uint64_t left = (deadline - now) % (UINT64_C(1) << bits);
  return left <= longest ? left : 0;
}

static inline uint64_t age_ms(uint64_t since, uint64_t now) {
  uint64_t age = (now - since) % (UINT64_C(1) << 40);
  return age < UINT64_C(1) << 39 ? age : 0;
}

static inline uint64_t reference_open_left(const reference *m, const neap_rules *r, uint64_t now) {
  uint64_t jitter = (uint64_t)r->max_cooldown_ms * r->jitter / NEAP_ONE;
  return left_ms(m->until_ms, now, 40, r->max_cooldown_ms + jitter + 60000);
}

static inline uint64_t reference_lease_left(const reference *m, const neap_rules *r, uint64_t now) {
  return left_ms(m->lease_ms, now, 26, (uint64_t)r->lease_ms + 60000);
}

/* ---- The ramp ---- */

/* splitmix64's finaliser, of a seed and a number. */
static inline uint64_t reference_mix(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* Of 0..ramp_ms, what is left of it.  A breaker that closed at a level has been half-open. */
static inline uint64_t reference_ramp_left(const reference *m, const neap_rules *r, uint64_t now) {
  if (r->ramp_ms == 0 || m->state != NEAP_CLOSED || m->level == 0) return 0;
  uint64_t left = left_ms(m->since_ms + r->ramp_ms, now, 40, 2 * (uint64_t)r->ramp_ms);
  return left > r->ramp_ms ? r->ramp_ms : left;
}

/* A number below ramp_ms, by the upper 32 bits of the hash and then the lower ones: without a wider
 * multiplication.  It is let in if the number is one of those that the time has reached. */
static inline bool reference_ramp_refuses(const reference *m, const neap_rules *r, uint64_t now) {
  uint64_t left = reference_ramp_left(m, r, now);
  uint64_t drawn = reference_mix(reference_mix(r->seed, m->epoch % (UINT64_C(1) << 17)), now);
  uint64_t lower = (drawn & UINT32_MAX) * r->ramp_ms, upper = (drawn >> 32) * r->ramp_ms;
  uint64_t number = (upper + (lower >> 32)) >> 32;
  return left > 0 && number > r->ramp_ms - left;
}

/* ---- Transitions ---- */

static inline void reference_count_transition(reference *m, const neap_transition *t) {
  static const int kinds[][3] = {
#define ROW(from, to, cause) {NEAP_##from, NEAP_##to, NEAP_BY_##cause},
      NEAP_TRANSITIONS(ROW)
#undef ROW
  };
  for (size_t i = 0; i < COUNT_OF(kinds); i++)
    if (kinds[i][0] == (int)t->from && kinds[i][1] == (int)t->to && kinds[i][2] == (int)t->cause)
      m->transitions[i]++;
}

static inline void reference_move(reference *m, neap_transition t, uint64_t now) {
  if (m->state != NEAP_CLOSED) m->totals.open_ms += age_ms(m->opened_ms, now);
  t.from = m->state;
  t.epoch = ++m->epoch;
  m->state = t.to;
  m->level = t.level;
  m->since_ms = m->opened_ms = now;
  m->in_flight = m->succeeded = m->failed = 0;
  m->count = 0;
  m->run = 0;
  m->totals.flaps += t.flapping;
  m->moved = t;
  reference_count_transition(m, &t);
}

static inline void reference_open(reference *m, const neap_rules *r, neap_transition t,
                                  uint64_t now, uint64_t asked_ms) {
  uint64_t cooldown = neap_rules_cooldown_ms(r, t.level);
  uint64_t longest = cooldown + cooldown * r->jitter / NEAP_ONE;
  t.to = NEAP_OPEN;
  reference_move(m, t, now);
  m->opened_for_at_least = asked_ms > cooldown ? asked_ms : cooldown;
  m->opened_for_at_most = asked_ms > longest ? asked_ms : longest;
  m->until_ms = now + m->opened_for_at_least; /* until the core says how long it is */
}

static inline neap_transition reference_flap(const reference *m, const neap_rules *r,
                                             uint64_t now) {
  uint64_t cooldown = neap_rules_cooldown_ms(r, m->level);
  bool soon =
      m->level > 0 && age_ms(m->since_ms, now) < (cooldown > r->ramp_ms ? cooldown : r->ramp_ms);
  uint32_t next = m->level < 31 ? m->level + 1 : 31;
  return (neap_transition){.level = soon ? next : 1, .flapping = soon};
}

static inline void reference_end_round(reference *m, const neap_rules *r, neap_cause cause,
                                       bool close, uint64_t now, uint64_t asked_ms) {
  neap_transition t = {.cause = cause, .calls = m->succeeded + m->failed};
  if (cause == NEAP_BY_PROBES) t.measured = close ? m->succeeded : m->failed;
  if (cause == NEAP_BY_PROBES) t.limit = close ? r->successes : r->probes - r->successes + 1;
  if (cause == NEAP_BY_PROBE_LOST) t.measured = m->in_flight;
  t.level = close || m->level == 31 ? m->level : m->level + 1;
  if (!close) reference_open(m, r, t, now, asked_ms);
  if (close) reference_move(m, t, now);
}

/* ---- The window ---- */

static inline neap_window_kind reference_kind(const reference *m, const neap_rules *r) {
  return m->has_window ? m->window : r->window;
}

static inline uint32_t reference_length(const reference *m, const neap_rules *r) {
  if (m->has_window) return m->length;
  return r->window == NEAP_WINDOW_COUNT ? r->calls : r->length_ms;
}

static inline int64_t reference_slice(const reference *m, const neap_rules *r, uint64_t now) {
  return (int64_t)(now / (reference_length(m, r) / 16));
}

static inline void reference_adopt(reference *m, const neap_rules *r) {
  uint32_t length = r->window == NEAP_WINDOW_COUNT ? r->calls : r->length_ms;
  if (m->has_window && m->window == r->window && m->length == length) return;
  m->has_window = true;
  m->window = r->window;
  m->length = length;
  m->count = 0;
}

static inline void reference_record(reference *m, const neap_rules *r, int kind, uint64_t now) {
  past_call *mine = &reference_calls[m->count];
  *mine = (past_call){.kind = kind};
  if (m->window == NEAP_WINDOW_TIME) {
    mine->slice = reference_slice(m, r, now);
    for (size_t i = 0; i < m->count; i++) /* one lap ahead: counted there */
      if (reference_calls[i].kind == kind && reference_calls[i].slice == mine->slice + 16) {
        mine->slice += 16;
        break;
      }
    for (size_t i = 0; i < m->count; i++) /* of any other lap: the counter begins anew */
      if (reference_calls[i].kind == kind && (reference_calls[i].slice - mine->slice) % 16 == 0 &&
          reference_calls[i].slice != mine->slice)
        reference_calls[i].kind = FORGOTTEN;
  }
  m->count++;
  if (m->count == REFERENCE_CALLS) fail_msg("a walk is too long for %d calls", REFERENCE_CALLS);
}

static inline void reference_recount(const reference *m, const neap_rules *r, uint64_t now,
                                     uint64_t kinds[KINDS]) {
  memset(kinds, 0, KINDS * sizeof *kinds);
  if (reference_kind(m, r) == NEAP_WINDOW_COUNT) {
    size_t n = reference_length(m, r);
    for (size_t i = m->count > n ? m->count - n : 0; i < m->count; i++)
      if (reference_calls[i].kind != FORGOTTEN) kinds[reference_calls[i].kind]++;
    return;
  }
  int64_t mine = reference_slice(m, r, now), newest = mine;
  for (size_t i = 0; i < m->count; i++) {
    const past_call *c = &reference_calls[i];
    if (c->kind != FORGOTTEN && c->slice > newest && c->slice < mine + 32) newest = c->slice;
  }
  for (size_t i = 0; i < m->count; i++) {
    const past_call *c = &reference_calls[i];
    if (c->kind != FORGOTTEN && c->slice <= newest && c->slice > newest - 16) kinds[c->kind]++;
  }
}

/* The first trip rule that holds for what is in the window now. */
static inline void reference_judge(reference *m, const neap_rules *r, uint64_t run, uint64_t now,
                                   uint64_t asked_ms) {
  uint64_t kinds[KINDS];
  reference_recount(m, r, now, kinds);
  uint64_t failed = kinds[FAILURE] + kinds[SLOW_FAILURE];
  uint64_t slow = kinds[SLOW_SUCCESS] + kinds[SLOW_FAILURE];
  uint64_t calls = kinds[SUCCESS] + kinds[SLOW_SUCCESS] + failed;
  bool enough = calls >= r->minimum_calls;
  neap_transition t = reference_flap(m, r, now);
  t.calls = calls;
  if (r->consecutive_failures && run >= r->consecutive_failures)
    t.cause = NEAP_BY_CONSECUTIVE, t.measured = run, t.limit = r->consecutive_failures;
  else if (r->failures && failed >= r->failures)
    t.cause = NEAP_BY_FAILURES, t.measured = failed, t.limit = r->failures;
  else if (r->failure_rate && enough && failed * 1000000 >= calls * r->failure_rate)
    t.cause = NEAP_BY_FAILURE_RATE, t.measured = failed, t.limit = r->failure_rate;
  else if (r->slow_rate && enough && slow * 1000000 >= calls * r->slow_rate)
    t.cause = NEAP_BY_SLOW_RATE, t.measured = slow, t.limit = r->slow_rate;
  else
    return;
  reference_open(m, r, t, now, asked_ms);
}

/* ---- Acquire ---- */

static inline bool reference_mode_runs(const reference *m, uint64_t now) {
  const uint64_t longest = UINT64_C(31) * 86400000 + 60000;
  return m->mode_set && (!m->mode_timed || left_ms(m->mode_until_ms, now, 40, longest) > 0);
}

static inline neap_verdict reference_acquire_round(reference *m, const neap_rules *r,
                                                   uint64_t now) {
  bool spent = m->in_flight == 0 && m->succeeded + m->failed >= r->probes;
  bool closes = !r->decide_by_function && m->succeeded >= r->successes;
  bool opens = r->decide_by_function ? spent : m->failed > r->probes - r->successes;
  if (closes) {
    reference_end_round(m, r, NEAP_BY_PROBES, true, now, 0);
    return NEAP_ALLOW;
  }
  bool lost = m->in_flight > 0 && reference_lease_left(m, r, now) == 0;
  if (opens || lost) {
    if (!opens) m->totals.probes_lost += m->in_flight;
    reference_end_round(m, r, opens ? NEAP_BY_PROBES : NEAP_BY_PROBE_LOST, false, now, 0);
    return NEAP_REFUSE_OPEN;
  }
  if (m->in_flight >= r->concurrent) return NEAP_REFUSE_PROBES;
  if (m->in_flight + m->succeeded + m->failed >= r->probes) return NEAP_REFUSE_PROBES;
  m->in_flight++;
  m->lease_ms = now + r->lease_ms;
  return NEAP_ALLOW_PROBE;
}

static inline neap_verdict reference_acquire_state(reference *m, const neap_rules *r,
                                                   uint64_t now) {
  if (m->state == NEAP_CLOSED)
    return reference_ramp_refuses(m, r, now) ? NEAP_REFUSE_RAMP : NEAP_ALLOW;
  if (m->state == NEAP_OPEN) {
    if (reference_open_left(m, r, now) > 0) return NEAP_REFUSE_OPEN;
    m->state = NEAP_HALF_OPEN;
    m->moved = (neap_transition){.from = NEAP_OPEN,
                                 .to = NEAP_HALF_OPEN,
                                 .cause = NEAP_BY_COOLDOWN,
                                 .epoch = m->epoch,
                                 .level = m->level};
    reference_count_transition(m, &m->moved);
    m->in_flight = 1;
    m->lease_ms = now + r->lease_ms;
    return NEAP_ALLOW_PROBE;
  }
  return reference_acquire_round(m, r, now);
}

static inline neap_verdict reference_acquire(reference *m, const neap_rules *r, uint64_t now,
                                             reference_permit *permit) {
  if (m->mode_set && !reference_mode_runs(m, now)) m->mode_set = false;
  neap_mode mode = m->mode_set ? m->mode : r->mode;
  neap_verdict verdict = NEAP_REFUSE_FORCED;
  if (mode != NEAP_FORCED_OPEN) verdict = reference_acquire_state(m, r, now);
  if (verdict > NEAP_ALLOW_BYPASS && (mode == NEAP_FORCED_CLOSED || mode == NEAP_SHADOW)) {
    verdict = NEAP_ALLOW_BYPASS;
    m->totals.bypassed++;
  }
  if (verdict == NEAP_ALLOW_PROBE) m->totals.probes++;
  if (r->count_refusals) {
    m->totals.refused_open += verdict == NEAP_REFUSE_OPEN;
    m->totals.refused_probes += verdict == NEAP_REFUSE_PROBES;
    m->totals.refused_forced += verdict == NEAP_REFUSE_FORCED;
    m->totals.refused_ramp += verdict == NEAP_REFUSE_RAMP;
  }
  if (verdict <= NEAP_ALLOW_BYPASS)
    *permit = (reference_permit){.verdict = verdict, .epoch = m->epoch};
  return verdict;
}

/* ---- Report ---- */

static inline int reference_call_kind(const neap_rules *r, const neap_call *call) {
  bool slow = r->slow_call_ms && call->duration_ms > r->slow_call_ms;
  return call->outcome == NEAP_SUCCESS ? (slow ? SLOW_SUCCESS : SUCCESS)
                                       : (slow ? SLOW_FAILURE : FAILURE);
}

/* In all totals that there are for it. */
static inline void reference_tell(reference *m, int kind, const neap_call *call) {
  if (call->outcome == NEAP_ABANDONED)
    m->totals.abandoned++;
  else if (call->outcome == NEAP_NEUTRAL)
    m->totals.neutral++;
  if (call->outcome >= NEAP_NEUTRAL) return;
  uint64_t *totals[KINDS] = {&m->totals.success, &m->totals.slow_success, &m->totals.failure,
                             &m->totals.slow_failure};
  (*totals[kind])++;
  m->totals.timeout += call->outcome == NEAP_TIMEOUT;
  m->duration_sum_ms += call->duration_ms;
  size_t bucket = 0;
  while (bucket < NEAP_DURATION_BUCKETS - 1 && call->duration_ms > neap_duration_bounds_ms[bucket])
    bucket++;
  m->duration_counts[bucket]++;
}

static inline neap_reported reference_report_probe(reference *m, const neap_rules *r, uint64_t now,
                                                   const neap_call *call, int kind,
                                                   uint64_t asked_ms) {
  if (m->in_flight == 0) return NEAP_USED;
  bool good = kind == SUCCESS || (kind == SLOW_SUCCESS && r->slow_rate == 0);
  m->in_flight--;
  if (call->outcome < NEAP_NEUTRAL && good && m->succeeded < 31) m->succeeded++;
  if (call->outcome < NEAP_NEUTRAL && !good && m->failed < 31) m->failed++;
  if (r->decide_by_function) return NEAP_COUNTED;
  if (m->succeeded >= r->successes)
    reference_end_round(m, r, NEAP_BY_PROBES, true, now, 0);
  else if (m->failed > r->probes - r->successes)
    reference_end_round(m, r, NEAP_BY_PROBES, false, now, asked_ms);
  return NEAP_COUNTED;
}

static inline void reference_report_closed(reference *m, const neap_rules *r, uint64_t now,
                                           int kind, uint64_t asked_ms) {
  uint64_t kinds[KINDS];
  if (!m->is_settled) reference_record(m, r, kind, now);
  m->run = kind >= FAILURE ? m->run + 1 : 0;
  if (kind != SUCCESS) {
    reference_judge(m, r, kind >= FAILURE ? m->run : 0, now, asked_ms);
    return;
  }
  reference_recount(m, r, now, kinds);
  bool bad = kinds[SLOW_SUCCESS] + kinds[FAILURE] + kinds[SLOW_FAILURE] > 0;
  if (bad && (r->failure_rate || r->slow_rate)) reference_judge(m, r, 0, now, 0);
}

static inline neap_reported reference_report(reference *m, const neap_rules *r, uint64_t now,
                                             const reference_permit *permit,
                                             const neap_call *call) {
  if (!m->has_window) reference_adopt(m, r);
  int kind = reference_call_kind(r, call);
  uint64_t asked_ms = 0;
  if (call->outcome < NEAP_NEUTRAL && kind != SUCCESS) { /* failed or slow */
    bool nonsense = call->retry_after_ms < 0 || call->retry_after_ms > INT64_C(366) * 86400000;
    m->totals.retry_ignored += nonsense;
    if (!nonsense) asked_ms = (uint64_t)call->retry_after_ms;
    if (asked_ms > r->max_cooldown_ms) asked_ms = r->max_cooldown_ms;
  }
  neap_reported reported = NEAP_COUNTED;
  bool current = permit->epoch == m->epoch;
  if (permit->verdict == NEAP_ALLOW_PROBE)
    reported = current && m->state == NEAP_HALF_OPEN
                   ? reference_report_probe(m, r, now, call, kind, asked_ms)
                   : NEAP_STALE;
  else if (permit->verdict == NEAP_ALLOW && !(current && m->state == NEAP_CLOSED))
    reported = NEAP_STALE;
  else if (permit->verdict == NEAP_ALLOW && call->outcome < NEAP_NEUTRAL)
    reference_report_closed(m, r, now, kind, asked_ms);
  if (reported == NEAP_COUNTED) reference_tell(m, kind, call);
  m->totals.stale += reported == NEAP_STALE;
  return reported;
}

/* ---- Calls in flight: every one is in the walk's list of permits ----
 *
 *   - one is overdue when all that began within its slice, a sixteenth of slow_call_ms or less, are
 *     past slow_call_ms: then it is a slow success of the window that has not ended;
 *   - when it ends, a time window forgets the first of those from when it was due on; in a count
 *     window what it came to takes the place of the newest slow success. */

/* The largest power of two in a sixteenth of slow_call_ms. */
static inline uint64_t reference_slice_ms(const neap_rules *r) {
  uint64_t ms = 1;
  if (r->slow_call_ms == 0 || !(r->slow_rate || r->trip_by_function)) return 0;
  while (ms * 2 <= r->slow_call_ms / 16) ms *= 2;
  return ms;
}

static inline void reference_flight_adopt(reference *m, const neap_rules *r, uint64_t now,
                                          reference_permit *out, unsigned n) {
  if (m->slice_ms == reference_slice_ms(r)) return;
  m->flight_ms = m->has_flight ? now : now - 1;
  m->has_flight = true;
  m->slice_ms = reference_slice_ms(r);
  for (unsigned i = 0; i < n; i++) out[i].is_in_flight = false;
}

static inline uint64_t reference_due_ms(const reference *m, const neap_rules *r,
                                        const reference_permit *p) {
  return (p->began_ms / m->slice_ms + 1) * m->slice_ms + r->slow_call_ms;
}

static inline bool reference_is_overdue(const reference *m, const neap_rules *r,
                                        const reference_permit *p, uint64_t now) {
  return p->is_in_flight && !p->is_marked && p->epoch == m->epoch && m->state == NEAP_CLOSED &&
         now >= reference_due_ms(m, r, p);
}

/* Slot by slot of the ring: each may trip it. */
static inline void reference_flight_look(reference *m, const neap_rules *r, uint64_t now,
                                         reference_permit *out, unsigned n) {
  reference_flight_adopt(m, r, now, out, n);
  for (uint64_t slot = 0; slot < 64 && m->slice_ms != 0; slot++) {
    bool found = false;
    for (unsigned i = 0; i < n; i++) {
      if (!reference_is_overdue(m, r, &out[i], now)) continue;
      if (out[i].began_ms / m->slice_ms % 64 != slot) continue;
      if (!m->has_window) reference_adopt(m, r);
      reference_record(m, r, SLOW_SUCCESS, now);
      reference_calls[m->count - 1].is_mark = true;
      out[i].is_marked = found = true;
    }
    if (found) reference_judge(m, r, 0, now, 0);
  }
}

static inline uint64_t reference_flight_next_ms(const reference *m, const neap_rules *r,
                                                uint64_t now, const reference_permit *out,
                                                unsigned n) {
  uint64_t soonest = NEAP_NEVER;
  for (unsigned i = 0; i < n && m->slice_ms != 0; i++) {
    const reference_permit *p = &out[i];
    if (!p->is_in_flight || p->is_marked || p->epoch != m->epoch || m->state != NEAP_CLOSED)
      continue;
    uint64_t due = reference_due_ms(m, r, p);
    if (due < soonest) soonest = due;
  }
  return soonest < now ? now : soonest;
}

static inline void reference_unmark(reference *m, const neap_rules *r, uint64_t now, uint64_t due) {
  int64_t mine = reference_slice(m, r, now), from = reference_slice(m, r, due < now ? due : now);
  if (from < mine - 15) from = mine - 15;
  for (int64_t i = 0; i < 16; i++) {
    int64_t slice = from + i <= mine ? from + i : from + i - 16;
    for (size_t k = 0; k < m->count; k++) {
      past_call *c = &reference_calls[k];
      if (c->kind != SLOW_SUCCESS || !c->is_mark || c->slice != slice) continue;
      c->kind = FORGOTTEN;
      return;
    }
  }
}

static inline bool reference_settle(const reference *m, const neap_rules *r, int kind) {
  size_t n = reference_length(m, r);
  for (size_t i = m->count; i > 0 && i + n > m->count; i--) {
    if (reference_calls[i - 1].kind != SLOW_SUCCESS) continue;
    reference_calls[i - 1].kind = kind;
    return true;
  }
  return false;
}

static inline neap_reported reference_flight_report(reference *m, const neap_rules *r, uint64_t now,
                                                    const reference_permit *p,
                                                    const neap_call *call) {
  bool is_current = p->verdict == NEAP_ALLOW && p->epoch == m->epoch && m->state == NEAP_CLOSED;
  if (!is_current || !p->is_in_flight || !p->is_marked) return reference_report(m, r, now, p, call);
  bool is_count = m->window == NEAP_WINDOW_COUNT, is_neutral = call->outcome >= NEAP_NEUTRAL;
  if (!is_count) reference_unmark(m, r, now, reference_due_ms(m, r, p));
  m->is_settled = is_count && !is_neutral && reference_settle(m, r, reference_call_kind(r, call));
  neap_reported reported = reference_report(m, r, now, p, call);
  m->is_settled = false;
  if (is_count && is_neutral) reference_settle(m, r, FORGOTTEN);
  if (is_neutral) reference_judge(m, r, 0, now, 0);
  return reported;
}

/* ---- By hand and by function ---- */

static inline uint64_t reference_calls_known(const reference *m, const neap_rules *r,
                                             uint64_t now) {
  uint64_t kinds[KINDS];
  if (m->state == NEAP_OPEN) return 0;
  if (m->state == NEAP_HALF_OPEN) return m->succeeded + m->failed;
  reference_recount(m, r, now, kinds);
  return kinds[SUCCESS] + kinds[SLOW_SUCCESS] + kinds[FAILURE] + kinds[SLOW_FAILURE];
}

static inline void reference_reset(reference *m, const neap_rules *r, uint64_t now) {
  uint64_t calls = reference_calls_known(m, r, now);
  reference_move(m, (neap_transition){.to = NEAP_CLOSED, .cause = NEAP_BY_RESET, .calls = calls},
                 now);
}

static inline void reference_trip(reference *m, const neap_rules *r, uint64_t now,
                                  uint64_t open_ms) {
  neap_transition t = reference_flap(m, r, now);
  if (m->state != NEAP_CLOSED) t = (neap_transition){.level = m->level ? m->level : 1};
  t.cause = NEAP_BY_TRIP;
  t.calls = reference_calls_known(m, r, now);
  reference_open(m, r, t, now, 0);
  if (open_ms) m->opened_for_at_least = m->opened_for_at_most = open_ms;
}

static inline bool reference_decide(reference *m, const neap_rules *r, uint64_t now,
                                    neap_state to) {
  if (m->state == NEAP_HALF_OPEN && to != NEAP_HALF_OPEN) {
    reference_end_round(m, r, NEAP_BY_FUNCTION, to == NEAP_CLOSED, now, 0);
    return true;
  }
  if (m->state != NEAP_CLOSED || to != NEAP_OPEN) return false;
  neap_transition t = reference_flap(m, r, now);
  t.cause = NEAP_BY_FUNCTION;
  t.calls = reference_calls_known(m, r, now);
  reference_open(m, r, t, now, 0);
  return true;
}

#endif
