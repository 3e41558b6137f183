/* A lane against a model too simple to be wrong: all begins and ends of all calls in one list, sorted,
 * and the core called for one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lane.h"

#define BEGIN_MS UINT64_C(1764590400000)

static uint32_t state;
static uint32_t chance(uint32_t of) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state % of;
}

typedef struct told {
  uint64_t at_ms;
  neap_transition moved;
} told;

typedef struct story {
  told *told;
  size_t count, room;
} story;

static void story_add(story *s, uint64_t at_ms, const neap_transition *moved) {
  if (s->count == s->room) {
    s->room = s->room ? s->room * 2 : 64;
    s->told = realloc(s->told, s->room * sizeof *s->told);
    assert_non_null(s->told);
  }
  s->told[s->count++] = (told){at_ms, *moved};
}

static void on_moved(void *data, uint32_t key, uint64_t at_ms, const neap_transition *moved) {
  (void)key;
  story_add(data, at_ms, moved);
}

static neap_rules rules_of(void) {
  neap_rules rules = neap_rules_default();
  rules.failures = 8;
  rules.consecutive_failures = 5;
  rules.length_ms = 2000;
  rules.cooldown_ms = 1000;
  rules.seed = 7;
  assert_true(neap_rules_prepare(&rules, NULL));
  return rules;
}

/* ---- The model ------------------------------------------------------------------------------- */

typedef struct moment {
  uint64_t at_ms;
  size_t call;
  bool is_end;
  uint32_t order; /* within the millisecond */
} moment;

/* In a millisecond calls end before others begin; one of no time ends as it begins. */
static int compare(const void *a, const void *b) {
  const moment *one = a, *other = b;
  if (one->at_ms != other->at_ms) return one->at_ms < other->at_ms ? -1 : 1;
  if (one->is_end != other->is_end) return one->is_end ? -1 : 1;
  return one->order < other->order ? -1 : one->order > other->order;
}

typedef struct counts {
  uint64_t refused, saved, lost;
} counts;

static void model_report(neap_breaker *b, const neap_rules *rules, uint64_t at_ms,
                         neap_permit *permit, const lane_call *c, story *s) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_call call = {c->outcome, c->took_ms, 0};
  neap_breaker_report(b, rules, at_ms, permit, &call, &moved);
  if (moved.cause != NEAP_BY_NOTHING) story_add(s, at_ms, &moved);
}

static counts model(const lane_call *calls, size_t count, const neap_rules *rules, story *s) {
  static neap_breaker breaker;
  memset(&breaker, 0, sizeof breaker);
  neap_breaker_adopt(&breaker, rules);
  moment *moments = calloc(2 * count, sizeof *moments);
  neap_permit *permits = calloc(count, sizeof *permits);
  uint32_t *began = calloc(count, sizeof *began), order = 0;
  counts all = {0};
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    moments[n++] = (moment){calls[i].begin_ms, i, false, (uint32_t)i};
    if (calls[i].span_ms) moments[n++] = (moment){calls[i].begin_ms + calls[i].span_ms, i, true, 0};
  }
  qsort(moments, n, sizeof *moments, compare);
  for (size_t i = 0; i < n; i++) /* ends of one time: as they began */
    if (!moments[i].is_end) began[moments[i].call] = order++;
  for (size_t i = 0; i < n; i++)
    if (moments[i].is_end) moments[i].order = began[moments[i].call];
  qsort(moments, n, sizeof *moments, compare);
  for (size_t i = 0; i < n; i++) {
    const moment *m = &moments[i];
    const lane_call *c = &calls[m->call];
    neap_permit *permit = &permits[m->call];
    if (m->is_end) {
      if (permit->opaque) model_report(&breaker, rules, m->at_ms, permit, c, s);
      continue;
    }
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    neap_verdict v = neap_breaker_acquire(&breaker, rules, m->at_ms, permit, &moved);
    if (moved.cause != NEAP_BY_NOTHING) story_add(s, m->at_ms, &moved);
    if (v > NEAP_ALLOW_BYPASS) {
      all.refused++;
      all.saved += c->outcome == NEAP_FAILURE;
      all.lost += c->outcome == NEAP_SUCCESS;
    } else if (!c->span_ms) {
      model_report(&breaker, rules, m->at_ms, permit, c, s);
    }
  }
  free(moments);
  free(permits);
  free(began);
  return all;
}

/* ---- Random traffic -------------------------------------------------------------------------- */

static int by_end(const void *a, const void *b) {
  const lane_call *one = a, *other = b;
  uint64_t end = one->begin_ms + one->span_ms, later = other->begin_ms + other->span_ms;
  return end < later ? -1 : end > later;
}

/* Calls as a log has them: by their ends, and those up to a minute out of order. */
static void make(lane_call *calls, size_t count) {
  uint64_t at_ms = BEGIN_MS;
  for (size_t i = 0; i < count; i++) {
    at_ms += chance(20) ? chance(80) : chance(5) ? 0 : chance(400000); /* a pause, now and then */
    bool is_down = at_ms / 7000 % 3 == 1;
    uint32_t took_ms = chance(6) ? chance(300) : chance(30000);
    calls[i] = (lane_call){.begin_ms = at_ms,
                           .span_ms = took_ms,
                           .took_ms = took_ms,
                           .logged_ms = took_ms,
                           .outcome = is_down && chance(10) ? NEAP_FAILURE : NEAP_SUCCESS};
  }
  qsort(calls, count, sizeof *calls, by_end);
  for (size_t i = 1; i < count; i++) {
    lane_call *one = &calls[i - 1], *other = &calls[i];
    bool is_near = other->begin_ms + other->span_ms < one->begin_ms + one->span_ms + 60000;
    if (chance(4) || !is_near) continue;
    lane_call kept = *one;
    *one = *other;
    *other = kept;
  }
}

static void assert_same(const story *real, const story *simple) {
  assert_int_equal(real->count, simple->count);
  for (size_t i = 0; i < real->count; i++) {
    const told *a = &real->told[i], *b = &simple->told[i];
    assert_int_equal(a->at_ms, b->at_ms);
    assert_int_equal(a->moved.to, b->moved.to);
    assert_int_equal(a->moved.cause, b->moved.cause);
    assert_int_equal(a->moved.epoch, b->moved.epoch);
    assert_int_equal(a->moved.open_ms, b->moved.open_ms);
    assert_int_equal(a->moved.measured, b->moved.measured);
  }
}

static void walk(size_t count) {
  neap_rules rules = rules_of();
  lane_call *calls = calloc(count, sizeof *calls);
  story real = {0}, simple = {0};
  const lane_host host = {.data = &real, .moved = on_moved};
  make(calls, count);
  lane *l = lane_new(&rules, 10, &host);
  for (size_t i = 0; i < count; i++) lane_take(l, lane_key_of(l, "k", 1), &calls[i]);
  lane_finish(l);
  assert_int_equal(lane_late(l), 0);
  counts all = model(calls, count, &rules, &simple);
  assert_same(&real, &simple);
  assert_int_equal(lane_all(l)->refused, all.refused);
  assert_int_equal(lane_all(l)->saved, all.saved);
  assert_int_equal(lane_all(l)->lost, all.lost);
  assert_int_equal(lane_key_at(l, 0)->counts.refused, all.refused);
  lane_free(l);
  free(real.told);
  free(simple.told);
  free(calls);
}

static void does_what_the_model_does(void **unused) {
  (void)unused;
  const char *given = getenv("NEAP_SEED");
  uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
  for (uint32_t i = 0; i < 20; i++) {
    state = seed * 2654435761u + i + 1;
    print_message("NEAP_SEED=%u, walk %u\n", (unsigned)seed, (unsigned)i);
    walk(50 + 200 * i);
  }
}

/* ---- What is told of it ---------------------------------------------------------------------- */

static void nothing_moved(void *data, uint32_t key, uint64_t at_ms, const neap_transition *moved) {
  (void)data, (void)key, (void)at_ms, (void)moved;
}

static lane_call call_at(uint64_t begin_ms, uint32_t took_ms) {
  return (lane_call){.begin_ms = begin_ms,
                     .span_ms = took_ms,
                     .took_ms = took_ms,
                     .logged_ms = took_ms,
                     .outcome = NEAP_SUCCESS};
}

static void a_call_that_is_late_is_counted_and_taken(void **unused) {
  (void)unused;
  neap_rules rules = rules_of();
  const lane_host host = {.moved = nothing_moved};
  lane *l = lane_new(&rules, 10, &host);
  lane_call first = call_at(BEGIN_MS, 5), later = call_at(BEGIN_MS + 500000, 5);
  lane_call late = call_at(BEGIN_MS + 100, 5);
  lane_take(l, lane_key_of(l, "k", 1), &first);
  lane_take(l, lane_key_of(l, "k", 1), &later);
  lane_take(l, lane_key_of(l, "k", 1), &late);
  lane_finish(l);
  assert_int_equal(lane_late(l), 1);
  assert_int_equal(lane_all(l)->success, 3);
  lane_free(l);
}

static void more_calls_at_once_than_there_is_room_for_run_the_clock_ahead(void **unused) {
  (void)unused;
  neap_rules rules = rules_of();
  const lane_host host = {.moved = nothing_moved};
  lane *l = lane_new(&rules, 10, &host);
  for (uint32_t i = 0; i < LANE_MOST + 1000; i++) {
    lane_call one = call_at(BEGIN_MS + i / 100, 3);
    lane_take(l, lane_key_of(l, "k", 1), &one);
  }
  lane_finish(l);
  assert_int_equal(lane_all(l)->success, LANE_MOST + 1000);
  assert_true(lane_crowded(l) >= 1 && lane_crowded(l) <= 1000);
  assert_int_equal(lane_late(l), 0);
  lane_free(l);
}

static void keys_beyond_the_most_share_one(void **unused) {
  (void)unused;
  neap_rules rules = rules_of();
  const lane_host host = {.moved = nothing_moved};
  lane *l = lane_new(&rules, 3, &host);
  assert_int_equal(lane_key_of(l, "a", 1), 0);
  assert_int_equal(lane_key_of(l, "b", 1), 1);
  assert_int_equal(lane_key_of(l, "c", 1), 2);
  assert_int_equal(lane_key_of(l, "d", 1), 3);
  assert_int_equal(lane_key_of(l, "e", 1), 3);
  assert_int_equal(lane_key_of(l, "b", 1), 1);
  assert_string_equal(lane_key_at(l, 3)->name, "*");
  assert_int_equal(lane_overflow(l), 2);
  lane_free(l);
}

static void bins_get_wider_and_lose_nothing(void **unused) {
  (void)unused;
  static lane_series s;
  const lane_bin one = {.calls = 1, .took_ms = 3};
  for (uint64_t i = 0; i < 100000; i++) series_add(&s, BEGIN_MS + i * 777, &one);
  uint64_t calls = 0, took_ms = 0;
  for (size_t i = 0; i < s.count; i++) {
    calls += s.bin[i].calls;
    took_ms += s.bin[i].took_ms;
  }
  assert_int_equal(calls, 100000);
  assert_int_equal(took_ms, 300000);
  assert_true(s.count > LANE_BINS / 2 && s.count <= LANE_BINS);
  assert_int_equal(s.from_ms, BEGIN_MS);
  assert_true(s.width_ms * s.count >= 100000 * 777);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(does_what_the_model_does),
      cmocka_unit_test(a_call_that_is_late_is_counted_and_taken),
      cmocka_unit_test(more_calls_at_once_than_there_is_room_for_run_the_clock_ahead),
      cmocka_unit_test(keys_beyond_the_most_share_one),
      cmocka_unit_test(bins_get_wider_and_lose_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
