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

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("threads that claim a name get the same breaker",
         threads_that_claim_a_name_get_the_same_breaker),
      IT("threads fill a panel to the last row and no further",
         threads_fill_a_panel_to_the_last_row_and_no_further),
  };
  return cmocka_run_group_tests_name("panel threads", tests, NULL, NULL);
}
