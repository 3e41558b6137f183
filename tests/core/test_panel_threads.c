/* A panel whose rows are claimed by many threads at once. */
#include "support.h"

#include <pthread.h>

typedef struct block {
  void *memory;
  size_t size;
  neap_panel *panel;
} block;

static block block_new(uint32_t capacity) {
  block k = {.size = neap_panel_size(capacity)};
  k.memory = aligned_alloc(64, k.size);
  assert_non_null(k.memory);
  SAME(neap_panel_init(k.memory, k.size, capacity, 42, &k.panel), NEAP_OK, "good memory");
  return k;
}

#define THREADS 8
#define NAMES   200

typedef struct claimer {
  block *block;
  unsigned offset;
  neap_breaker *got[NAMES];
  neap_status status[NAMES];
} claimer;

static void *claim_all(void *context) {
  claimer *c = context;
  for (unsigned i = 0; i < NAMES; i++) {
    unsigned n = (i + c->offset) % NAMES;
    char name[32];
    int length = snprintf(name, sizeof name, "some long name, number %u", n);
    c->status[n] = neap_panel_claim(c->block->panel, name, (size_t)length, &c->got[n]);
  }
  return NULL;
}

static void run_claimers(claimer *claimers, block *k) {
  pthread_t threads[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    claimers[i] = (claimer){.block = k, .offset = i * NAMES / THREADS / 2};
    assert_int_equal(pthread_create(&threads[i], NULL, claim_all, &claimers[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void threads_that_claim_a_name_get_the_same_breaker(void **unused) {
  (void)unused;
  static claimer claimers[THREADS];
  for (int round = 0; round < 20; round++) {
    block k = block_new(NAMES);
    run_claimers(claimers, &k);
    SAME(neap_panel_count(k.panel), NAMES, "each name once");
    for (unsigned n = 0; n < NAMES; n++) {
      char name[32];
      snprintf(name, sizeof name, "some long name, number %u", n);
      SAME_TEXT(neap_breaker_name(claimers[0].got[n]), name);
      for (unsigned i = 0; i < THREADS; i++) {
        SAME(claimers[i].status[n], NEAP_OK, "there is room for all");
        HOLDS(claimers[i].got[n] == claimers[0].got[n], "one name, one breaker");
      }
    }
    free(k.memory);
  }
}

static void threads_fill_a_panel_to_the_last_row_and_no_further(void **unused) {
  (void)unused;
  static claimer claimers[THREADS];
  for (int round = 0; round < 20; round++) {
    block k = block_new(NAMES / 2);
    run_claimers(claimers, &k);
    SAME(neap_panel_count(k.panel), NAMES / 2, "full");
    for (unsigned n = 0; n < NAMES; n++)
      for (unsigned i = 1; i < THREADS; i++)
        if (claimers[i].status[n] == NEAP_OK && claimers[0].status[n] == NEAP_OK)
          HOLDS(claimers[i].got[n] == claimers[0].got[n], "one name, one breaker");
    free(k.memory);
  }
}

/* ---- Rows that several want at the same instant ---- */

#define ROUNDS 4000

typedef struct race {
  block block;
  pthread_barrier_t barrier;
  neap_breaker *got[THREADS];
  unsigned shared, misnamed; /* what went wrong */
} race;

typedef struct racer {
  race *race;
  unsigned number;
} racer;

static void race_name(char *name, unsigned number) {
  memcpy(name, "racer 0", 8);
  name[6] = (char)('0' + number);
}

static void race_check(race *r) {
  for (unsigned i = 0; i < THREADS; i++) {
    char name[8];
    race_name(name, i);
    r->misnamed += neap_panel_find(r->block.panel, name, 7) != r->got[i];
    for (unsigned k = 0; k < i; k++) r->shared += r->got[i] == r->got[k];
  }
}

static void *race_run(void *context) {
  racer *me = context;
  race *r = me->race;
  char name[8];
  race_name(name, me->number);
  for (unsigned round = 0; round < ROUNDS; round++) {
    if (pthread_barrier_wait(&r->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
      neap_panel_init(r->block.memory, r->block.size, THREADS, round, &r->block.panel);
    pthread_barrier_wait(&r->barrier);
    neap_panel_claim(r->block.panel, name, 7, &r->got[me->number]);
    if (pthread_barrier_wait(&r->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) race_check(r);
  }
  return NULL;
}

/* As many names as rows, all claimed at once: each finds most rows taken, or being taken. */
static void a_row_is_taken_by_one(void **unused) {
  (void)unused;
  race r = {.block = block_new(THREADS)};
  racer racers[THREADS];
  pthread_t threads[THREADS];
  pthread_barrier_init(&r.barrier, NULL, THREADS);
  for (unsigned i = 0; i < THREADS; i++) {
    racers[i] = (racer){&r, i};
    assert_int_equal(pthread_create(&threads[i], NULL, race_run, &racers[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  SAME(r.shared, 0, "two names never share a row");
  SAME(r.misnamed, 0, "and each finds its own");
  pthread_barrier_destroy(&r.barrier);
  free(r.block.memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("threads that claim a name get the same breaker",
         threads_that_claim_a_name_get_the_same_breaker),
      IT("threads fill a panel to the last row and no further",
         threads_fill_a_panel_to_the_last_row_and_no_further),
      IT("a row is taken by one", a_row_is_taken_by_one),
  };
  return cmocka_run_group_tests_name("panel threads", tests, NULL, NULL);
}
