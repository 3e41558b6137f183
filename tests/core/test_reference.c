/* A million and more random operations, compared call by call with a breaker too simple to be
 * wrong: see reference.h. */
#include "walk.h"

#define WALKS 700

/* Where a walk failed: NEAP_SEED of that walk alone, and its step. */
static struct {
  uint64_t seed;
  unsigned step;
} where;

static int tell_where(void **unused) {
  (void)unused;
  if (where.step < WALK_STEPS)
    print_error("in step %u of the walk of seed %" PRIu64 "\n", where.step, where.seed);
  return 0;
}

static void random_walks_agree_with_the_reference(void **unused) {
  (void)unused;
  uint64_t seed = random_seed(20261130), verdicts[7] = {0}, reported[3] = {0}, moves = 0;
  uint64_t transitions[NEAP_TRANSITION_KINDS] = {0};
  for (unsigned i = 0; i < WALKS; i++) {
    static walk w;
    w = (walk){.seed = where.seed = seed + i};
    walk_begin(&w);
    for (where.step = 0; where.step < WALK_STEPS; where.step++) walk_step(&w);
    walk_recovers(&w);
    for (size_t k = 0; k < COUNT_OF(verdicts); k++) verdicts[k] += w.verdicts[k];
    for (size_t k = 0; k < COUNT_OF(reported); k++) reported[k] += w.reported[k];
    for (size_t k = 0; k < NEAP_TRANSITION_KINDS; k++) transitions[k] += w.model.transitions[k];
    moves += w.moves;
  }
  print_message("%u steps, %" PRIu64 " transitions\n", WALKS * WALK_STEPS, moves);
  /* A walk that never goes somewhere says nothing about it. */
  for (size_t k = 0; k < COUNT_OF(verdicts); k++) HOLDS(verdicts[k] > 100, "every verdict");
  for (size_t k = 0; k < COUNT_OF(reported); k++) HOLDS(reported[k] > 100, "every answer");
  for (size_t k = 0; k < NEAP_TRANSITION_KINDS; k++) HOLDS(transitions[k] > 20, "every transition");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      {"random walks agree with the reference", random_walks_agree_with_the_reference, NULL,
       tell_where, NULL},
  };
  return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
