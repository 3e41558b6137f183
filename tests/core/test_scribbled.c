/* A breaker that somebody wrote over, as who may write a shared panel's file can: its words are
 * wrong, but every call comes back, and a reset puts it right. */
#include "support.h"

#include <unistd.h>

#include "breaker.h"

#define ROUNDS 20000

static uint64_t seed;

static neap_rules random_rules(void) {
  neap_rules r = neap_rules_default();
  r.window = random_below(&seed, 2) ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  r.length_ms = 100 + (uint32_t)random_below(&seed, 5000);
  r.calls = 1 + (uint32_t)random_below(&seed, 1024);
  r.failures = 1 + (uint32_t)random_below(&seed, r.calls);
  r.failure_rate = (uint32_t)random_below(&seed, NEAP_ONE);
  r.consecutive_failures = (uint32_t)random_below(&seed, 5);
  r.slow_call_ms = 10;
  r.minimum_calls = 1;
  prepare(&r);
  return r;
}

/* All of it, a line, or a word; with random bits, or all of them. */
static void scribble(neap_breaker *b) {
  size_t first = 0, count = 128;
  switch (random_below(&seed, 3)) {
    case 0: first = random_below(&seed, 16) * 8, count = 8; break;
    case 1: first = random_below(&seed, 128), count = 1; break;
    default: break;
  }
  bool all_ones = random_below(&seed, 4) == 0;
  for (size_t i = first; i < first + count; i++)
    b->opaque[i] = all_ones ? UINT64_MAX : random_next(&seed) ^ random_next(&seed) << 32;
}

/* In rows that follow each other, as in a panel: what is beside must not be touched. */
static neap_breaker row[3];

static void call_once(const neap_rules *rules, uint64_t now_ms) {
  neap_breaker *b = &row[1];
  neap_permit permit = {0};
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  if (neap_breaker_acquire(b, rules, now_ms, &permit, &moved) <= NEAP_ALLOW_BYPASS) {
    neap_call call = {.outcome = (neap_outcome)random_below(&seed, 5),
                      .duration_ms = random_below(&seed, 20)};
    neap_breaker_report(b, rules, now_ms, &permit, &call, &moved);
  }
}

static void look(const neap_rules *rules, uint64_t now_ms) {
  neap_breaker *b = &row[1];
  neap_snapshot s;
  neap_breaker_snapshot(b, rules, now_ms, &s);
  HOLDS(s.state <= NEAP_OPEN && s.mode <= NEAP_SHADOW, "what it says is something");
  HOLDS(neap_breaker_next_ms(b, rules, now_ms) >= now_ms, "as ever");
  HOLDS(neap_breaker_peek(b, rules, now_ms) <= NEAP_REFUSE_FORCED, "as ever");
  HOLDS(strlen(neap_breaker_name(b)) <= NEAP_NAME_MAX, "a name has an end");
}

static void every_call_comes_back(void **unused) {
  (void)unused;
  static const neap_breaker zero;
  alarm(120); /* one that does not is killed */
  for (unsigned round = 0; round < ROUNDS; round++) {
    memset(row, 0, sizeof row);
    neap_rules rules = random_rules();
    uint64_t now_ms = random_below(&seed, 3) ? START_MS : random_next(&seed);
    for (unsigned n = 0; n < 5; n++) call_once(&rules, now_ms++);
    scribble(&row[1]);
    for (unsigned n = 0; n < 20; n++) {
      call_once(&rules, now_ms += random_below(&seed, 50));
      if (n == 10) rules = random_rules();
      if (n == 15) neap_breaker_adopt(&row[1], &rules);
    }
    look(&rules, now_ms);
    neap_breaker_decide(&row[1], &rules, now_ms, (uint32_t)random_below(&seed, 1u << 17), NEAP_OPEN,
                        0, NULL);
    neap_breaker_trip(&row[1], &rules, now_ms, 0, NULL);
    neap_breaker_reset(&row[1], &rules, now_ms, NULL);
    neap_breaker_set_mode(&row[1], now_ms, NEAP_MODE_OF_RULES, 0);
    look(&rules, now_ms);
    SAME(neap_breaker_state(&row[1], &rules, now_ms), NEAP_CLOSED, "a reset puts it right");
    SAME(neap_breaker_peek(&row[1], &rules, now_ms), NEAP_ALLOW, "a reset puts it right");
    HOLDS(memcmp(&row[0], &zero, sizeof zero) == 0, "its neighbour is untouched");
    HOLDS(memcmp(&row[2], &zero, sizeof zero) == 0, "its neighbour is untouched");
  }
}

/* Nobody, and nothing that was written over it, holds one shut for longer than a cooldown or a
 * lease, and what they may be exceeded by. */
static void it_is_not_held_open(void **unused) {
  (void)unused;
  for (unsigned round = 0; round < ROUNDS; round++) {
    memset(row, 0, sizeof row);
    neap_rules rules = random_rules();
    uint64_t now_ms = START_MS;
    scribble(&row[1]);
    neap_breaker_set_mode(&row[1], now_ms, NEAP_MODE_OF_RULES, 0);
    unsigned waits = 0;
    while (neap_breaker_state(&row[1], &rules, now_ms) != NEAP_CLOSED) {
      neap_permit permit = {0};
      neap_call success = {.outcome = NEAP_SUCCESS};
      if (neap_breaker_acquire(&row[1], &rules, now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS)
        neap_breaker_report(&row[1], &rules, now_ms, &permit, &success, NULL);
      now_ms += 60000;
      HOLDS(++waits < 12, "closed after a lease, two cooldowns of a minute, and their slack");
    }
  }
}

/* Lengths that no rules can ask for: none is divided by, or counted to. */
static void a_window_of_no_possible_length_is_the_rules(void **unused) {
  (void)unused;
  const uint64_t shapes[] = {
      1, 15, 99, 3600001, 0x7fffffff, SHAPE_COUNT, SHAPE_COUNT | 1025, 0xffffffff};
  for (size_t i = 0; i < COUNT_OF(shapes); i++) {
    memset(row, 0, sizeof row);
    neap_rules rules = random_rules();
    neap__breaker *b = breaker_of(&row[1]);
    b->geometry = UINT64_C(7) << 32 | shapes[i];
    for (unsigned k = 0; k < 64; k++) b->cells[k] = UINT64_C(7) << 52 | UINT64_C(1) << 51 | 1;
    b->head = UINT64_C(7) << 52 | UINT64_C(0xfff) << 40;
    look(&rules, START_MS);
    for (unsigned n = 0; n < 3; n++) call_once(&rules, START_MS);
    SAME(b->geometry & UINT32_MAX, rules.prepared[PREPARED_SHAPE], "adopted");
    HOLDS(memcmp(&row[0], &row[2], sizeof row[0]) == 0, "its neighbours are untouched");
  }
}

/* Counts that a dead process had in its hand are lost; but not the exactness of all later sums. */
static void one_who_died_while_he_moved_counts_is_taken_as_done(void **unused) {
  (void)unused;
  memset(row, 0, sizeof row);
  neap_rules rules = random_rules();
  neap__breaker *b = breaker_of(&row[1]);
  const uint64_t left[] = {UINT64_C(3) << 32 | 2, UINT64_C(3) << 32 | 4, UINT64_MAX << 32};
  for (size_t i = 0; i < COUNT_OF(left); i++) {
    b->folding = left[i];
    neap_snapshot s;
    neap_breaker_snapshot(&row[1], &rules, START_MS, &s);
    SAME(b->folding >> 32, b->folding & UINT32_MAX, "as many were done as begun");
    SAME(b->folding >> 32, left[i] >> 32, "by those who were at it");
  }
}

int main(void) {
  seed = random_seed(11);
  const struct CMUnitTest tests[] = {
      IT("every call comes back", every_call_comes_back),
      IT("it is not held open", it_is_not_held_open),
      IT("a window of no possible length is the rules'",
         a_window_of_no_possible_length_is_the_rules),
      IT("one who died while he moved counts is taken as done",
         one_who_died_while_he_moved_counts_is_taken_as_done),
  };
  return cmocka_run_group_tests_name("scribbled", tests, NULL, NULL);
}
