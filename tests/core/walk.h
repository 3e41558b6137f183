/* walk.h: a random walk over everything that can be done to a breaker, compared call by call
 * with reference.h.  The chance is a seeded generator's (test_reference.c) or a fuzzer's
 * (../fuzz/core_fuzz.c). */
#ifndef NEAP_TESTS_WALK_H
#define NEAP_TESTS_WALK_H

#include "reference.h"

#define WALK_STEPS 2000 /* at most: fewer than the 4,096 transitions that a tag tells apart */
#define PENDING    48

typedef struct walk {
  neap_breaker breaker;
  reference model;
  neap_rules rules;
  uint64_t now_ms, slice_ms, seed;
  neap_permit permits[PENDING];
  reference_permit twins[PENDING];
  unsigned pending;
  bool
      flies; /* calls go through a flight; then the clock never goes back, and no permit is copied */
  neap_flight flight;
  const uint8_t *bytes; /* where chance comes from, if not from the seed */
  size_t bytes_left;
  uint64_t verdicts[7], reported[3], moves;
} walk;

/* A number below n: of the generator, or of as many bytes as it takes; 0 when they have run out. */
static uint64_t below(walk *w, uint64_t n) {
  if (w->bytes == NULL) return random_below(&w->seed, n);
  uint64_t number = 0;
  for (uint64_t most = n - 1; most > 0 && w->bytes_left > 0; most >>= 8, w->bytes_left--)
    number = number << 8 | *w->bytes++;
  return number % n;
}
static bool chance(walk *w, unsigned percent) { return below(w, 100) < percent; }

static uint32_t pick(walk *w, const uint32_t *from, size_t n) { return from[below(w, n)]; }
#define PICK(w, ...)                                                                               \
  pick(w, (const uint32_t[]){__VA_ARGS__}, COUNT_OF(((const uint32_t[]){__VA_ARGS__})))

/* ---- Random rules ---- */

static void random_window(walk *w, neap_rules *r) {
  r->window = chance(w, 35) ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  r->length_ms = PICK(w, 100, 101, 131, 1600, 2000, 10000, 60000, 3600000);
  r->calls = PICK(w, 1, 2, 5, 16, 17, 40, 100, 1024);
  r->failures = chance(w, 40) ? 1 + (uint32_t)below(w, 12) : 0;
  r->consecutive_failures = chance(w, 30) ? 1 + (uint32_t)below(w, 8) : 0;
  r->failure_rate = chance(w, 50) ? PICK(w, 1, 200000, 333333, 500000, 750000, NEAP_ONE) : 0;
  r->slow_call_ms = chance(w, 60) ? PICK(w, 1, 20, 500) : 0;
  r->slow_rate = r->slow_call_ms && chance(w, 50) ? PICK(w, 100000, 500000, NEAP_ONE) : 0;
  r->trip_by_function =
      !(r->failures || r->consecutive_failures || r->failure_rate || r->slow_rate);
  r->minimum_calls = PICK(w, 0, 1, 3, 10, 30);
  if (r->window == NEAP_WINDOW_COUNT && r->failures > r->calls) r->failures = r->calls;
  if (r->window == NEAP_WINDOW_COUNT && r->minimum_calls > r->calls) r->minimum_calls = r->calls;
}

/* What a reload may change under a breaker without touching what its window is judged by. */
static void random_rest(walk *w, neap_rules *r) {
  r->cooldown_ms = PICK(w, 1, 50, 1000, 5000, 60000);
  r->max_cooldown_ms = r->cooldown_ms * PICK(w, 1, 3, 50, 1000);
  r->backoff = PICK(w, 1000000, 1500000, 2000000, 100000000);
  r->jitter = PICK(w, 0, 0, 200000, NEAP_ONE);
  if (r->max_cooldown_ms > 43200000) r->max_cooldown_ms = 43200000;
  r->seed = below(w, 1000);
  r->probes = 1 + (uint32_t)below(w, chance(w, 20) ? 31 : 5);
  r->successes = 1 + (uint32_t)below(w, r->probes);
  r->concurrent = 1 + (uint32_t)below(w, chance(w, 20) ? 15 : 3);
  r->timeout_ms = PICK(w, 0, 10, 1000);
  r->lease_ms = chance(w, 50) ? 0 : r->timeout_ms + 1 + (uint32_t)below(w, 30000);
  r->ramp_ms = PICK(w, 0, 0, 1, 100, 5000, 3600000);
  r->decide_by_function = chance(w, 15);
  r->mode = chance(w, 90) ? NEAP_AUTO : (neap_mode)below(w, 4);
  r->count_refusals = chance(w, 90);
}

static void walk_use(walk *w, neap_rules rules) {
  prepare(&rules);
  w->rules = rules;
}

/* ---- Random time ---- */

static uint64_t random_start(walk *w) {
  const uint64_t edges[] = {0,
                            (UINT64_C(1) << 26),
                            (UINT64_C(1) << 31),
                            (UINT64_C(1) << 32),
                            (UINT64_C(1) << 40),
                            (UINT64_C(1) << 53),
                            (UINT64_C(1) << 62)};
  if (chance(w, 30)) return (UINT64_C(1) << 41) + below(w, UINT64_C(1) << 50);
  uint64_t edge = edges[below(w, COUNT_OF(edges))];
  uint64_t before = below(w, chance(w, 50) ? 1000 : 10000000);
  return edge > before ? edge - before : before;
}

/* Any but 2^27 slices or a multiple: window.h says that those are taken for no time at all. */
static uint64_t random_gap(walk *w) {
  const uint64_t wrap = UINT64_C(1) << 27;
  uint64_t gap = below(w, UINT64_C(1) << below(w, 38)), slices = gap / w->slice_ms;
  bool is_near = slices >= wrap / 2 && (slices + 64) % wrap < 128;
  return is_near ? gap + 200 * w->slice_ms : gap;
}

static void random_advance(walk *w) {
  unsigned kind = (unsigned)below(w, 1000);
  uint64_t step = 0;
  if (kind < 500)
    step = below(w, w->slice_ms / 4 + 2);
  else if (kind < 700)
    step = below(w, w->slice_ms * 3);
  else if (kind < 750)
    step = below(w, w->slice_ms * 40);
  else if (kind < 800)
    step = below(w, w->rules.cooldown_ms + 2);
  else if (kind < 830)
    step = below(w, w->rules.lease_ms + 2);
  else if (kind < 831)
    step = below(w, w->rules.ramp_ms + 2);
  else if (kind < 833)
    step = random_gap(w);
  if (w->flies && (kind == 831 || kind == 832)) step = 0; /* nor is a call out for weeks */
  if (kind >= 990 && !w->flies &&
      w->now_ms > (UINT64_C(1) << 40)) { /* back: other threads' clocks, or a step */
    step = below(w, w->slice_ms * (kind < 996 ? 4 : kind < 999 ? 40 : 1000000));
    w->now_ms -= step;
    return;
  }
  w->now_ms += step;
}

/* ---- Comparing ---- */

static void compare_moved(walk *w, const neap_transition *moved) {
  const neap_transition *want = &w->model.moved;
  SAME(moved->cause, want->cause, "the same transition, or none");
  if (want->cause == NEAP_BY_NOTHING) return;
  w->moves++;
  SAME(moved->from, want->from, "the same transition");
  SAME(moved->to, want->to, "the same transition");
  SAME(moved->epoch, want->epoch, "the same transition");
  SAME(moved->level, want->level, "the same transition");
  SAME(moved->measured, want->measured, "the same transition");
  SAME(moved->limit, want->limit, "the same transition");
  SAME(moved->calls, want->calls, "the same transition");
  SAME(moved->flapping, want->flapping, "the same transition");
  if (want->to != NEAP_OPEN) return;
  HOLDS(moved->open_ms >= w->model.opened_for_at_least, "no shorter than the cooldown");
  HOLDS(moved->open_ms <= w->model.opened_for_at_most, "no longer than the jitter allows");
  w->model.until_ms = w->now_ms + moved->open_ms;
}

/* Also of what an acquire would change, since asking is free. */
static neap_verdict reference_peek(const reference *m, const neap_rules *r, uint64_t now_ms) {
  reference copy = *m;
  reference_permit unused;
  return reference_acquire(&copy, r, now_ms, &unused);
}

static uint64_t reference_next_ms(const reference *m, const neap_rules *r, uint64_t now_ms) {
  if (m->state == NEAP_OPEN && reference_open_left(m, r, now_ms) > 0)
    return now_ms + reference_open_left(m, r, now_ms);
  if (m->state == NEAP_HALF_OPEN && m->in_flight > 0)
    return now_ms + reference_lease_left(m, r, now_ms);
  return NEAP_NEVER;
}

/* The first power of two in which, at the share that there is then, a call is let in. */
static uint64_t reference_ramp_wait_ms(const reference *m, const neap_rules *r, uint64_t now_ms) {
  uint64_t left = reference_ramp_left(m, r, now_ms), over = r->ramp_ms - left, ms = 1;
  while (ms * (over + ms) < r->ramp_ms) ms += ms;
  return ms < left ? ms : left;
}

static uint64_t reference_retry_after_ms(const reference *m, const neap_rules *r, uint64_t now_ms) {
  reference copy = *m;
  reference_permit unused;
  copy.mode_set = true;
  copy.mode_timed = false;
  copy.mode = NEAP_AUTO;
  switch (reference_acquire(&copy, r, now_ms, &unused)) {
    case NEAP_REFUSE_OPEN: return m->state == NEAP_OPEN ? reference_open_left(m, r, now_ms) : 0;
    case NEAP_REFUSE_PROBES: return reference_lease_left(m, r, now_ms);
    case NEAP_REFUSE_RAMP: return reference_ramp_wait_ms(m, r, now_ms);
    default: return 0;
  }
}

static void compare_window(walk *w, const neap_snapshot *s) {
  uint64_t kinds[KINDS];
  reference_recount(&w->model, &w->rules, w->now_ms, kinds);
  SAME(s->success, kinds[SUCCESS], "counted again from the list");
  SAME(s->slow_success, kinds[SLOW_SUCCESS], "counted again from the list");
  SAME(s->failure, kinds[FAILURE], "counted again from the list");
  SAME(s->slow_failure, kinds[SLOW_FAILURE], "counted again from the list");
  uint64_t calls = kinds[SUCCESS] + kinds[SLOW_SUCCESS] + kinds[FAILURE] + kinds[SLOW_FAILURE];
  SAME(s->calls, calls, "their sum");
  uint64_t failed = kinds[FAILURE] + kinds[SLOW_FAILURE];
  uint64_t slow = kinds[SLOW_SUCCESS] + kinds[SLOW_FAILURE];
  SAME(s->failure_rate, calls ? failed * 1000000 / calls : 0, "millionths");
  SAME(s->slow_rate, calls ? slow * 1000000 / calls : 0, "millionths");
  SAME(s->consecutive_failures, w->model.run, "the run");
  SAME(s->window, reference_kind(&w->model, &w->rules), "the geometry");
  SAME(s->window_length, reference_length(&w->model, &w->rules), "the geometry");
}

static void compare_state(walk *w, const neap_snapshot *s) {
  const reference *m = &w->model;
  bool over = m->state == NEAP_OPEN && reference_open_left(m, &w->rules, w->now_ms) == 0;
  SAME(s->state, over ? NEAP_HALF_OPEN : m->state, "the state");
  SAME(neap_breaker_state(&w->breaker, &w->rules, w->now_ms), s->state, "the state");
  SAME(s->epoch, m->epoch, "the state");
  SAME(s->level, m->level, "the state");
  SAME(s->probes_in_flight, m->in_flight, "the round");
  SAME(s->probes_succeeded, m->succeeded, "the round");
  SAME(s->probes_failed, m->failed, "the round");
  HOLDS(s->probes_in_flight <= 15, "the round");
  bool runs = reference_mode_runs(m, w->now_ms);
  SAME(s->mode, runs ? m->mode : w->rules.mode, "the mode");
  SAME(s->mode_is_operators, runs, "the mode");
  if (m->level > 0 || m->state != NEAP_CLOSED)
    SAME(s->state_age_ms, age_ms(m->state == NEAP_CLOSED ? m->since_ms : m->opened_ms, w->now_ms),
         "the age");
  SAME(s->retry_after_ms, reference_retry_after_ms(m, &w->rules, w->now_ms), "until a call may");
  uint64_t ramp_left = reference_ramp_left(m, &w->rules, w->now_ms), ramp_ms = w->rules.ramp_ms;
  SAME(s->admitted,
       m->state != NEAP_CLOSED ? 0
       : ramp_left == 0        ? NEAP_ONE
                               : (ramp_ms - ramp_left + 1) * 1000000 / ramp_ms,
       "the share that is let in");
  SAME(neap_breaker_next_ms(&w->breaker, &w->rules, w->now_ms),
       reference_next_ms(m, &w->rules, w->now_ms), "when it moves by itself");
  SAME(neap_breaker_peek(&w->breaker, &w->rules, w->now_ms),
       reference_peek(m, &w->rules, w->now_ms), "what acquire would answer");
}

static void compare_totals(walk *w, const neap_snapshot *s) {
  const reference *m = &w->model;
  neap_totals want = m->totals;
  if (m->state != NEAP_CLOSED) want.open_ms += age_ms(m->opened_ms, w->now_ms);
  want.clock_steps = s->totals.clock_steps; /* test_window.c */
#define X(name) SAME(s->totals.name, want.name, #name);
  NEAP_TOTALS(X)
#undef X
  for (size_t i = 0; i < NEAP_TRANSITION_KINDS; i++)
    SAME(s->transitions[i], m->transitions[i], "transitions by kind");
  for (size_t i = 0; i < NEAP_DURATION_BUCKETS; i++)
    SAME(s->duration_counts[i], m->duration_counts[i], "the histogram");
  SAME(s->duration_sum_ms, m->duration_sum_ms, "the histogram");
}

static void compare(walk *w) {
  neap_snapshot s;
  neap_breaker_snapshot(&w->breaker, &w->rules, w->now_ms, &s);
  compare_state(w, &s);
  compare_window(w, &s);
  compare_totals(w, &s);
  if (w->flies)
    SAME(neap_flight_next_ms(&w->flight, &w->breaker, &w->rules, w->now_ms),
         reference_flight_next_ms(&w->model, &w->rules, w->now_ms, w->twins, w->pending),
         "when a call is overdue");
}

/* ---- Steps ---- */

static void step_acquire(walk *w) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit = {.opaque = 77};
  reference_permit twin = {0};
  if (w->flies) reference_flight_look(&w->model, &w->rules, w->now_ms, w->twins, w->pending);
  neap_verdict want = reference_acquire(&w->model, &w->rules, w->now_ms, &twin);
  neap_verdict got =
      w->flies ? neap_flight_acquire(&w->flight, &w->breaker, &w->rules, w->now_ms, &permit, &moved)
               : neap_breaker_acquire(&w->breaker, &w->rules, w->now_ms, &permit, &moved);
  SAME(got, want, "the same verdict");
  compare_moved(w, &moved);
  w->verdicts[got]++;
  if (got > NEAP_ALLOW_BYPASS) {
    SAME(permit.opaque, 77, "a refusal leaves the permit alone");
    return;
  }
  SAME(neap_permit_kind(&permit), got, "the permit knows");
  SAME(neap_permit_epoch(&permit), twin.epoch, "the permit knows");
  twin.began_ms = w->now_ms;
  twin.is_in_flight =
      w->flies && got == NEAP_ALLOW && w->model.slice_ms != 0 &&
      w->now_ms - w->model.flight_ms - 1 < INT64_MAX; /* after it; it may be before 0 */
  w->permits[w->pending] = permit;
  w->twins[w->pending++] = twin;
}

static void step_sweep(walk *w) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  reference_flight_look(&w->model, &w->rules, w->now_ms, w->twins, w->pending);
  neap_flight_sweep(&w->flight, &w->breaker, &w->rules, w->now_ms, &moved);
  compare_moved(w, &moved);
}

static neap_call random_call(walk *w) {
  neap_call call = {.outcome = NEAP_SUCCESS};
  unsigned kind = (unsigned)below(w, 100);
  call.outcome = kind < 55   ? NEAP_SUCCESS
                 : kind < 80 ? NEAP_FAILURE
                 : kind < 88 ? NEAP_TIMEOUT
                 : kind < 95 ? NEAP_NEUTRAL
                             : NEAP_ABANDONED;
  if (chance(w, 30)) call.duration_ms = w->rules.slow_call_ms + below(w, 3);
  if (chance(w, 10)) call.duration_ms = below(w, 40000);
  if (chance(w, 10)) call.retry_after_ms = (int64_t)below(w, 200000) - 1000;
  if (chance(w, 1)) call.retry_after_ms = INT64_MAX - (int64_t)below(w, 10);
  return call;
}

static void step_report(walk *w) {
  if (w->pending == 0) return;
  unsigned i = (unsigned)below(w, w->pending);
  neap_call call = random_call(w);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit = w->permits[i];
  reference_permit twin = w->twins[i];
  neap_reported want, got;
  if (w->flies) {
    want = reference_flight_report(&w->model, &w->rules, w->now_ms, &twin, &call);
    w->twins[i].is_in_flight = false;
    if (w->model.moved.cause == NEAP_BY_NOTHING)
      reference_flight_look(&w->model, &w->rules, w->now_ms, w->twins, w->pending);
    got = neap_flight_report(&w->flight, &w->breaker, &w->rules, w->now_ms, twin.began_ms, &permit,
                             &call, &moved);
  } else {
    want = reference_report(&w->model, &w->rules, w->now_ms, &twin, &call);
    got = neap_breaker_report(&w->breaker, &w->rules, w->now_ms, &permit, &call, &moved);
  }
  SAME(got, want, "the same answer");
  SAME(permit.opaque, 0, "cleared");
  compare_moved(w, &moved);
  w->reported[got]++;
  if (!w->flies && chance(w, 3)) return; /* a copy stays, to be reported again */
  w->pending--;
  w->permits[i] = w->permits[w->pending];
  w->twins[i] = w->twins[w->pending];
}

/* Reported again after it was cleared: nothing may change. */
static void step_report_used(walk *w) {
  neap_permit permit = {0};
  neap_call call = random_call(w);
  SAME(neap_breaker_report(&w->breaker, &w->rules, w->now_ms, &permit, &call, NULL), NEAP_USED, "");
}

static void step_by_hand(walk *w) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker *b = &w->breaker;
  const neap_rules *r = &w->rules;
  if (chance(w, 40)) {
    reference_reset(&w->model, r, w->now_ms);
    neap_breaker_reset(b, r, w->now_ms, &moved);
  } else {
    uint64_t open_ms = chance(w, 50) ? 0 : below(w, r->max_cooldown_ms + 10);
    bool fits = open_ms <= r->max_cooldown_ms;
    if (fits) reference_trip(&w->model, r, w->now_ms, open_ms);
    SAME(neap_breaker_trip(b, r, w->now_ms, open_ms, &moved), fits ? NEAP_OK : NEAP_ERANGE, "");
  }
  compare_moved(w, &moved);
}

static void step_decide(walk *w) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  bool current = chance(w, 80);
  neap_state to = (neap_state)below(w, 3);
  uint32_t epoch = w->model.epoch + (current ? 0 : 1);
  bool want = current && reference_decide(&w->model, &w->rules, w->now_ms, to);
  SAME(neap_breaker_decide(&w->breaker, &w->rules, w->now_ms, epoch, to, 0, &moved), want, "");
  compare_moved(w, &moved);
}

static void step_mode(walk *w) {
  reference *m = &w->model;
  neap_mode mode = (neap_mode)below(w, 4);
  uint64_t for_ms = chance(w, 30) ? 0 : below(w, 100000);
  m->mode_set = chance(w, 70);
  m->mode = mode;
  m->mode_timed = for_ms != 0;
  m->mode_until_ms = w->now_ms + for_ms;
  SAME(neap_breaker_set_mode(&w->breaker, w->now_ms, m->mode_set ? mode : NEAP_MODE_OF_RULES,
                             for_ms),
       NEAP_OK, "");
}

static void step_reload(walk *w) {
  neap_rules rules = neap_rules_default();
  if (chance(w, 50)) {
    rules = w->rules;
    random_rest(w, &rules);
    walk_use(w, rules);
    return;
  }
  /* another window, adopted: thresholds may change with it, since nothing is left to be judged */
  random_window(w, &rules);
  random_rest(w, &rules);
  walk_use(w, rules);
  bool differs = !w->model.has_window || w->model.window != rules.window ||
                 w->model.length != (rules.window ? rules.calls : rules.length_ms);
  reference_adopt(&w->model, &w->rules);
  neap_breaker_adopt(&w->breaker, &w->rules);
  if (differs) return;
  reference_reset(&w->model, &w->rules, w->now_ms);
  neap_breaker_reset(&w->breaker, &w->rules, w->now_ms, NULL);
}

/* Rules with a flight may come to one that had none: in the same millisecond, calls of before would
 * be taken for its own. */
static void step_reload_flying(walk *w) {
  w->now_ms++;
  step_reload(w);
  w->model.moved.cause = NEAP_BY_NOTHING; /* by hand, and told to nobody */
  step_sweep(w);
}

static void walk_step(walk *w) {
  unsigned kind = (unsigned)below(w, 1000);
  w->model.moved.cause = NEAP_BY_NOTHING;
  random_advance(w);
  if (w->pending == PENDING || kind < 470)
    step_report(w);
  else if (kind < 970)
    step_acquire(w);
  else if (kind < 975)
    step_report_used(w);
  else if (kind < 980)
    step_by_hand(w);
  else if (kind < 990)
    step_decide(w);
  else if (kind < 994)
    step_mode(w);
  else if (kind < 997)
    w->flies ? step_reload_flying(w) : step_reload(w);
  else if (w->flies)
    step_sweep(w);
  compare(w);
}

/* `w` is all zero but for where its chance comes from. */
static void walk_begin(walk *w) {
  neap_rules rules = neap_rules_default();
  random_window(w, &rules);
  random_rest(w, &rules);
  walk_use(w, rules);
  w->flies = chance(w, 40);
  w->slice_ms = rules.length_ms / 16;
  w->now_ms = random_start(w);
}

/* Whatever was done to it: with a healthy dependency, and left to the rules, it closes within a
 * few cooldowns. */
static void walk_recovers(walk *w) {
  neap_call success = {.outcome = NEAP_SUCCESS};
  w->rules.mode = NEAP_AUTO;
  w->rules.decide_by_function = false;
  walk_use(w, w->rules);
  neap_breaker_set_mode(&w->breaker, w->now_ms, NEAP_MODE_OF_RULES, 0);
  unsigned tries = 0;
  while (neap_breaker_state(&w->breaker, &w->rules, w->now_ms) != NEAP_CLOSED ||
         neap_breaker_peek(&w->breaker, &w->rules, w->now_ms) != NEAP_ALLOW) {
    HOLDS(++tries < 100, "not wedged");
    uint64_t next_ms = neap_breaker_next_ms(&w->breaker, &w->rules, w->now_ms);
    HOLDS(next_ms >= w->now_ms, "never in the past");
    neap_permit permit = {0};
    if (neap_breaker_acquire(&w->breaker, &w->rules, w->now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS)
      neap_breaker_report(&w->breaker, &w->rules, w->now_ms, &permit, &success, NULL);
    else if (next_ms != NEAP_NEVER)
      w->now_ms = next_ms;
    else
      w->now_ms += w->rules.ramp_ms;
  }
}

#endif
