#include "lane_internal.h"

#include <stdlib.h>
#include <string.h>

#define RING       ((uint64_t)1 << 18) /* ms: more than twice the horizon */
#define WORDS      (RING / 64)
#define FIRST_POOL 1024
#define NONE       0 /* of a pool's rows the first is not used */

_Static_assert(RING > 2 * LANE_HORIZON_MS, "a call that ends late has its place");

/* ---- Pool ------------------------------------------------------------------------------------ */

static uint32_t pool_take(lane *l) {
  if (!l->free) {
    uint32_t room = l->room ? l->room * 2 : FIRST_POOL;
    flying *pool = realloc(l->pool, room * sizeof *pool);
    if (!pool) abort();
    l->pool = pool;
    for (uint32_t i = room; i-- > (l->room ? l->room : 1);) {
      pool[i].next = l->free;
      l->free = i;
    }
    l->room = room;
  }
  uint32_t i = l->free;
  l->free = l->pool[i].next;
  l->count++;
  return i;
}

static void pool_give(lane *l, uint32_t i) {
  l->pool[i].next = l->free;
  l->free = i;
  l->count--;
}

/* ---- Ring ------------------------------------------------------------------------------------ */

static void queue_add(lane *l, queue *q, uint32_t i) {
  l->pool[i].next = NONE;
  if (q->last)
    l->pool[q->last].next = i;
  else
    q->first = i;
  q->last = i;
}

static uint32_t queue_take(lane *l, queue *q) {
  uint32_t i = q->first;
  if (!i) return NONE;
  q->first = l->pool[i].next;
  if (!q->first) q->last = NONE;
  return i;
}

static bucket *bucket_at(lane *l, uint64_t ms) {
  uint64_t at = ms % RING;
  l->used[at / 64] |= UINT64_C(1) << at % 64;
  return &l->ring[at];
}

static unsigned lowest_bit(uint64_t word) {
#ifdef __GNUC__
  return (unsigned)__builtin_ctzll(word);
#else
  unsigned bit = 0;
  while (!(word >> bit & 1)) bit++;
  return bit;
#endif
}

/* The next millisecond after `ms`, up to `until`, that anything is in; or past `until`. */
static uint64_t next_used(const lane *l, uint64_t ms, uint64_t until) {
  for (ms++; ms <= until;) {
    uint64_t at = ms % RING, word = l->used[at / 64] >> at % 64;
    if (word) return ms + lowest_bit(word);
    ms += 64 - at % 64;
  }
  return until + 1;
}

/* ---- What a breaker does --------------------------------------------------------------------- */

static void count_moved(lane *l, lane_key *k, const neap_transition *moved) {
  bool opens = moved->from == NEAP_CLOSED, closes = moved->to == NEAP_CLOSED;
  k->counts.opened += moved->to == NEAP_OPEN;
  k->counts.closed += closes;
  l->all.opened += moved->to == NEAP_OPEN;
  l->all.closed += closes;
  if (opens) k->since_ms = l->now_ms;
  if (!closes || !k->since_ms) return;
  k->counts.open_ms += l->now_ms - k->since_ms;
  l->all.open_ms += l->now_ms - k->since_ms;
  k->since_ms = 0;
}

/* The transition that the core has told, or the policy's function made. */
static void tell(lane *l, uint32_t key, const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING) return;
  count_moved(l, &l->keys[key], moved);
  l->host.moved(l->host.data, key, l->now_ms, moved);
}

/* A look at the calls that are overdue, when the next one may be. */
static void plan_sweep(lane *l, uint32_t key) {
  lane_key *k = &l->keys[key];
  if (!k->flight) return;
  uint64_t at_ms = neap_flight_next_ms(k->flight, k->breaker, l->rules, l->now_ms);
  if (at_ms >= k->sweep_ms || at_ms == NEAP_NEVER) return;
  if (at_ms <= l->now_ms) at_ms = l->now_ms + 1;
  if (at_ms > l->now_ms + LANE_HORIZON_MS) at_ms = l->now_ms + LANE_HORIZON_MS;
  uint32_t i = pool_take(l);
  l->pool[i] = (flying){.key = key, .is_sweep = true};
  l->keys[key].sweep_ms = at_ms;
  queue_add(l, &bucket_at(l, at_ms)->ends, i);
}

/* Asks the policy's function about a breaker in that state. */
static void ask(lane *l, uint32_t key, neap_state state,
                int (*function)(void *, const neap_snapshot *), int64_t retry_ms) {
  neap_snapshot snapshot;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker *b = l->keys[key].breaker;
  if (!function) return;
  neap_breaker_snapshot(b, l->rules, l->now_ms, &snapshot);
  if (snapshot.state != state) return;
  int to = function(l->host.data, &snapshot);
  bool moves = to == NEAP_OPEN || (to == NEAP_CLOSED && state == NEAP_HALF_OPEN);
  if (moves &&
      neap_breaker_decide(b, l->rules, l->now_ms, snapshot.epoch, (neap_state)to, retry_ms, &moved))
    tell(l, key, &moved);
}

static void sweep(lane *l, uint32_t i) {
  uint32_t key = l->pool[i].key;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  pool_give(l, i);
  lane_key *k = &l->keys[key];
  k->sweep_ms = NEAP_NEVER;
  uint64_t overdue = neap_flight_sweep(k->flight, k->breaker, l->rules, l->now_ms, &moved);
  tell(l, key, &moved);
  if (overdue && moved.cause == NEAP_BY_NOTHING) ask(l, key, NEAP_CLOSED, l->host.trip, 0);
  plan_sweep(l, key);
}

/* What a call comes to that was let in. */
static void end(lane *l, uint32_t i) {
  flying f = l->pool[i];
  pool_give(l, i);
  lane_key *k = &l->keys[f.key];
  neap_call call = {(neap_outcome)f.outcome, f.took_ms, f.retry_after_ms};
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_reported reported =
      k->flight ? neap_flight_report(k->flight, k->breaker, l->rules, l->now_ms, f.begin_ms,
                                     &f.permit, &call, &moved)
                : neap_breaker_report(k->breaker, l->rules, l->now_ms, &f.permit, &call, &moved);
  k->counts.stale += reported == NEAP_STALE;
  l->all.stale += reported == NEAP_STALE;
  if (f.outcome == NEAP_SUCCESS) k->good_ms = l->now_ms;
  tell(l, f.key, &moved);
  bool has_failed = f.outcome == NEAP_FAILURE || f.outcome == NEAP_TIMEOUT;
  bool is_slow = l->rules->slow_call_ms && f.took_ms > l->rules->slow_call_ms;
  if (reported == NEAP_COUNTED && moved.cause == NEAP_BY_NOTHING) {
    if (f.is_probe)
      ask(l, f.key, NEAP_HALF_OPEN, l->host.decide, f.retry_after_ms);
    else if (has_failed || is_slow)
      ask(l, f.key, NEAP_CLOSED, l->host.trip, f.retry_after_ms);
  }
  plan_sweep(l, f.key);
}

static void count_refused(lane_counts *c, const flying *f, neap_verdict verdict) {
  c->refused++;
  c->by_open += verdict == NEAP_REFUSE_OPEN;
  c->by_probes += verdict == NEAP_REFUSE_PROBES;
  c->by_ramp += verdict == NEAP_REFUSE_RAMP;
  if (f->is_unknown) {
    c->refused_unknown++;
    return;
  }
  c->refused_ms += f->took_ms;
  if (f->outcome == NEAP_SUCCESS) {
    c->lost++;
  } else if (f->outcome == NEAP_NEUTRAL) {
    c->spared++;
  } else {
    c->saved++;
    c->saved_ms += f->took_ms;
  }
}

static void count_age(lane_counts *c, uint64_t good_ms, uint64_t now_ms) {
  if (!good_ms) {
    c->bare++;
    return;
  }
  uint64_t age_ms = now_ms - good_ms;
  if (age_ms < c->worst_age_ms) return;
  c->worst_age_ms = age_ms;
  c->worst_at_ms = now_ms;
}

static void refuse(lane *l, uint32_t i, neap_verdict verdict) {
  const flying *f = &l->pool[i];
  lane_key *k = &l->keys[f->key];
  const lane_bin one = {.refused = 1};
  count_refused(&k->counts, f, verdict);
  count_refused(&l->all, f, verdict);
  count_age(&k->counts, k->good_ms, l->now_ms);
  count_age(&l->all, k->good_ms, l->now_ms);
  series_add(&l->series, l->now_ms, &one);
  if (k->series) series_add(k->series, l->now_ms, &one);
  pool_give(l, i);
}

static void begin(lane *l, uint32_t i) {
  flying *f = &l->pool[i];
  uint32_t key = f->key;
  lane_key *k = &l->keys[key];
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit;
  if (f->is_unknown) {
    neap_verdict verdict = neap_breaker_peek(k->breaker, l->rules, l->now_ms);
    if (verdict > NEAP_ALLOW_BYPASS)
      refuse(l, i, verdict);
    else
      pool_give(l, i);
    return;
  }
  neap_verdict verdict =
      k->flight ? neap_flight_acquire(k->flight, k->breaker, l->rules, l->now_ms, &permit, &moved)
                : neap_breaker_acquire(k->breaker, l->rules, l->now_ms, &permit, &moved);
  tell(l, key, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) {
    refuse(l, i, verdict);
  } else {
    f = &l->pool[i];
    f->permit = permit;
    f->is_probe = verdict == NEAP_ALLOW_PROBE;
    l->keys[key].counts.probes += f->is_probe;
    l->all.probes += f->is_probe;
    uint64_t end_ms = f->begin_ms + f->span_ms;
    f->begin_ms = l->now_ms;
    if (end_ms <= l->now_ms)
      end(l, i);
    else
      queue_add(l, &bucket_at(l, end_ms)->ends, i);
  }
  plan_sweep(l, key);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void do_bucket(lane *l) {
  bucket *b = &l->ring[l->now_ms % RING];
  uint32_t i;
  for (;;) {
    if ((i = queue_take(l, &b->ends)) != NONE) {
      if (l->pool[i].is_sweep)
        sweep(l, i);
      else
        end(l, i);
    } else if ((i = queue_take(l, &b->begins)) != NONE) {
      begin(l, i);
    } else {
      break;
    }
  }
  uint64_t at = l->now_ms % RING;
  l->used[at / 64] &= ~(UINT64_C(1) << at % 64);
}

static void advance(lane *l, uint64_t until_ms) {
  while (l->now_ms < until_ms) {
    uint64_t at_ms = l->count ? next_used(l, l->now_ms, until_ms) : until_ms + 1;
    if (at_ms > until_ms) break;
    l->now_ms = at_ms;
    do_bucket(l);
  }
  if (l->now_ms < until_ms) l->now_ms = until_ms;
}

/* Of the earliest, one more millisecond is done. */
static void advance_crowded(lane *l) {
  l->crowded++;
  l->now_ms = next_used(l, l->now_ms, l->now_ms + RING - 1);
  do_bucket(l);
}

static void count_taken(lane_counts *c, const lane_call *call, bool is_slow) {
  c->calls++;
  if (call->is_unknown) {
    c->unknown++;
    return;
  }
  c->success += call->outcome == NEAP_SUCCESS;
  c->failure += call->outcome == NEAP_FAILURE || call->outcome == NEAP_TIMEOUT;
  c->timeout += call->outcome == NEAP_TIMEOUT;
  c->neutral += call->outcome == NEAP_NEUTRAL;
  c->slow += is_slow;
  c->cut += call->is_cut;
  c->cut_good += call->is_cut && call->was_good;
  if (call->is_cut) c->cut_ms += call->logged_ms - call->took_ms;
}

static void take_series(lane *l, lane_key *k, const lane_call *call, bool is_slow) {
  bool failed = call->outcome == NEAP_FAILURE || call->outcome == NEAP_TIMEOUT;
  lane_bin one = {.calls = 1};
  if (!call->is_unknown) one = (lane_bin){1, failed, is_slow, 0, call->took_ms};
  series_add(&l->series, call->begin_ms, &one);
  if (k->series) series_add(k->series, call->begin_ms, &one);
}

void lane_take(lane *l, uint32_t key, const lane_call *call) {
  uint64_t end_ms = call->begin_ms + call->span_ms;
  if (!l->latest_ms) l->now_ms = end_ms > LANE_HORIZON_MS ? end_ms - LANE_HORIZON_MS : 0;
  if (end_ms > l->latest_ms) l->latest_ms = end_ms;
  if (l->latest_ms > LANE_HORIZON_MS) advance(l, l->latest_ms - LANE_HORIZON_MS);
  while (l->count >= LANE_MOST) advance_crowded(l);
  lane_key *k = &l->keys[key];
  bool is_slow = l->rules->slow_call_ms && call->took_ms > l->rules->slow_call_ms;
  count_taken(&k->counts, call, is_slow);
  count_taken(&l->all, call, is_slow);
  take_series(l, k, call, is_slow);
  uint32_t i = pool_take(l);
  l->pool[i] = (flying){.begin_ms = call->begin_ms,
                        .key = key,
                        .span_ms = call->span_ms,
                        .took_ms = call->took_ms,
                        .retry_after_ms = call->retry_after_ms,
                        .outcome = (uint8_t)call->outcome,
                        .is_unknown = call->is_unknown};
  if (call->begin_ms > l->now_ms) {
    queue_add(l, &bucket_at(l, call->begin_ms)->begins, i);
  } else {
    l->late += call->begin_ms < l->now_ms;
    begin(l, i);
  }
}

void lane_finish(lane *l) {
  advance(l, l->latest_ms);
  for (uint32_t i = 0; i < l->key_count; i++) {
    lane_key *k = &l->keys[i];
    if (!k->since_ms) continue;
    k->counts.open_ms += l->now_ms - k->since_ms;
    l->all.open_ms += l->now_ms - k->since_ms;
    k->since_ms = 0;
  }
}

/* ---- Making, reading ------------------------------------------------------------------------- */

lane *lane_new(const neap_rules *rules, uint32_t max_keys, const lane_host *host) {
  lane *l = lane_allocate(1, sizeof *l);
  l->rules = rules;
  l->host = *host;
  l->max_keys = max_keys;
  l->has_flight = rules->slow_call_ms && (rules->slow_rate || rules->trip_by_function);
  l->ring = lane_allocate(RING, sizeof *l->ring);
  l->used = lane_allocate(WORDS, sizeof *l->used);
  lane_keys_open(l);
  return l;
}

void lane_free(lane *l) {
  if (!l) return;
  lane_keys_free(l);
  free(l->ring);
  free(l->used);
  free(l->pool);
  free(l);
}

const lane_counts *lane_all(const lane *l) { return &l->all; }
const lane_series *lane_series_of(const lane *l) { return &l->series; }
uint64_t lane_now_ms(const lane *l) { return l->now_ms; }
uint64_t lane_late(const lane *l) { return l->late; }
uint64_t lane_crowded(const lane *l) { return l->crowded; }
uint64_t lane_overflow(const lane *l) { return l->overflow; }
