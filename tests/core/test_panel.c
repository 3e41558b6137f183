/* Named breakers in one block of memory. */
#include "support.h"

#include "breaker.h"

typedef struct block {
  void *memory;
  size_t size;
  neap_panel *panel;
} block;

static block block_new(uint32_t capacity) {
  block k = {.size = neap_panel_size(capacity)};
  k.memory = aligned_alloc(64, k.size);
  assert_non_null(k.memory);
  memset(k.memory, 0x5a, k.size); /* whatever was there before */
  SAME(neap_panel_init(k.memory, k.size, capacity, 42, &k.panel), NEAP_OK, "good memory");
  return k;
}

static neap_breaker *claim(block *k, const char *name) {
  neap_breaker *b = NULL;
  SAME(neap_panel_claim(k->panel, name, strlen(name), &b), NEAP_OK, name);
  assert_non_null(b);
  return b;
}

static neap_breaker *find(const block *k, const char *name) {
  return neap_panel_find(k->panel, name, strlen(name));
}

/* ---- Making one ---- */

static void the_size_grows_by_a_breaker_and_its_hash(void **unused) {
  (void)unused;
  SAME(neap_panel_size(0), 0, "out of range");
  SAME(neap_panel_size(4194305), 0, "out of range");
  if (SIZE_MAX > UINT32_MAX)
    HOLDS(neap_panel_size(4194304) > UINT64_C(4194304) * 1024, "the largest");
  HOLDS(neap_panel_size(1) >= 1024, "the smallest");
  for (uint32_t n = 1; n < 1000; n++) {
    size_t more = neap_panel_size(n + 1) - neap_panel_size(n);
    HOLDS(more >= 1024 && more <= 1024 + 64, "a row and its hash, rounded to a line");
  }
}

static void memory_that_will_not_do_is_refused(void **unused) {
  (void)unused;
  size_t size = neap_panel_size(4);
  char *memory = aligned_alloc(64, size + 64);
  neap_panel *none = (neap_panel *)&size, *out = none;
  memset(memory, 0x5a, size + 64);
  SAME(neap_panel_init(memory, size, 0, 1, &out), NEAP_ERANGE, "no capacity");
  SAME(neap_panel_init(memory, size, 4194305, 1, &out), NEAP_ERANGE, "too much of it");
  SAME(neap_panel_init(memory, size - 1, 4, 1, &out), NEAP_EMEMORY, "a byte too small");
  for (size_t off = 1; off < 64; off *= 2)
    SAME(neap_panel_init(memory + off, size, 4, 1, &out), NEAP_EMEMORY, "not aligned");
  HOLDS(out == none, "a function that fails changes nothing");
  for (size_t i = 0; i < size + 64; i++) SAME(memory[i], 0x5a, "changes nothing");
  SAME(neap_panel_init(memory, size, 4, 1, &out), NEAP_OK, "just enough");
  free(memory);
}

static void a_new_panel_is_empty(void **unused) {
  (void)unused;
  block k = block_new(7);
  SAME(neap_panel_capacity(k.panel), 7, "as asked");
  SAME(neap_panel_count(k.panel), 0, "empty");
  for (uint32_t i = 0; i < 9; i++) assert_null(neap_panel_row(k.panel, i));
  assert_null(find(&k, "nobody"));
  free(k.memory);
}

/* ---- Names ---- */

static void a_name_is_one_breaker_for_good(void **unused) {
  (void)unused;
  block k = block_new(10);
  neap_breaker *a = claim(&k, "policy/a"), *b = claim(&k, "policy/b");
  HOLDS(a != b, "two names, two breakers");
  HOLDS(claim(&k, "policy/a") == a, "the same name, the same breaker");
  HOLDS(find(&k, "policy/b") == b, "found");
  assert_null(find(&k, "policy/c"));
  assert_null(find(&k, "policy/"));
  assert_null(find(&k, "policy/aa"));
  SAME_TEXT(neap_breaker_name(a), "policy/a");
  SAME_TEXT(neap_breaker_name(b), "policy/b");
  SAME(neap_panel_count(k.panel), 2, "two");
  SAME((uintptr_t)a % 64, 0, "on cache lines of its own");
  free(k.memory);
}

static void a_new_breaker_is_all_zero(void **unused) {
  (void)unused;
  block k = block_new(1);
  neap_rules rules = neap_rules_default();
  rules.failures = 1;
  prepare(&rules);
  neap_snapshot s;
  neap_breaker_snapshot(claim(&k, "x"), &rules, 5000, &s);
  SAME(s.state, NEAP_CLOSED, "all zero is a valid closed one");
  SAME(s.epoch + s.calls + s.totals.success + s.totals.failure, 0, "whatever was there before");
  free(k.memory);
}

static void names_have_1_to_103_bytes_and_no_zero(void **unused) {
  (void)unused;
  block k = block_new(400);
  neap_breaker *none = (neap_breaker *)&k, *b = none;
  char name[NEAP_NAME_MAX + 2];
  memset(name, 'n', sizeof name);
  SAME(neap_panel_claim(k.panel, name, 0, &b), NEAP_ENAME, "empty");
  SAME(neap_panel_claim(k.panel, name, NEAP_NAME_MAX + 1, &b), NEAP_ENAME, "too long");
  SAME(neap_panel_claim(k.panel, "a\0b", 3, &b), NEAP_ENAME, "a zero byte");
  SAME(neap_panel_claim(k.panel, "a", 2, &b), NEAP_ENAME, "a zero byte at the end");
  HOLDS(b == none, "a function that fails changes nothing");
  SAME(neap_panel_count(k.panel), 0, "nothing");
  assert_null(neap_panel_find(k.panel, name, 0));
  assert_null(neap_panel_find(k.panel, name, NEAP_NAME_MAX + 1));
  for (size_t length = 1; length <= NEAP_NAME_MAX; length++) {
    SAME(neap_panel_claim(k.panel, name, length, &b), NEAP_OK, "any length between");
    SAME(strlen(neap_breaker_name(b)), length, "kept whole");
    SAME(memcmp(neap_breaker_name(b), name, length), 0, "kept whole");
    HOLDS(neap_panel_find(k.panel, name, length) == b, "and found");
  }
  for (int byte = 1; byte < 256; byte++) {
    char odd[2] = {(char)byte, 0};
    SAME_TEXT(neap_breaker_name(claim(&k, odd)), odd);
  }
  free(k.memory);
}

static void a_full_panel_says_so(void **unused) {
  (void)unused;
  const uint32_t sizes[] = {1, 2, 3, 8, 100, 1000};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    block k = block_new(sizes[i]);
    char name[32];
    neap_breaker *none = (neap_breaker *)&k, *b = none;
    for (uint32_t n = 0; n < sizes[i]; n++) {
      snprintf(name, sizeof name, "breaker %u", n);
      claim(&k, name);
      SAME(neap_panel_count(k.panel), n + 1, "one more");
    }
    SAME(neap_panel_claim(k.panel, "one more", 8, &b), NEAP_EFULL, "all rows are used");
    HOLDS(b == none, "a function that fails changes nothing");
    assert_null(find(&k, "one more"));
    for (uint32_t n = 0; n < sizes[i]; n++) {
      snprintf(name, sizeof name, "breaker %u", n);
      HOLDS(find(&k, name) != NULL && claim(&k, name) == find(&k, name), "still there");
      SAME_TEXT(neap_breaker_name(find(&k, name)), name);
    }
    free(k.memory);
  }
}

static void rows_list_every_breaker_once(void **unused) {
  (void)unused;
  block k = block_new(50);
  char name[32];
  for (int n = 0; n < 20; n++) {
    snprintf(name, sizeof name, "%d", n);
    claim(&k, name);
  }
  unsigned seen[20] = {0}, rows = 0;
  for (uint32_t i = 0; i < neap_panel_capacity(k.panel); i++) {
    neap_breaker *b = neap_panel_row(k.panel, i);
    if (b == NULL) continue;
    rows++;
    seen[atoi(neap_breaker_name(b))]++;
  }
  SAME(rows, 20, "as many as were claimed");
  for (int n = 0; n < 20; n++) SAME(seen[n], 1, "each once");
  assert_null(neap_panel_row(k.panel, 50));
  assert_null(neap_panel_row(k.panel, UINT32_MAX));
  free(k.memory);
}

static void breakers_do_not_touch_each_other(void **unused) {
  (void)unused;
  block k = block_new(3);
  neap_rules rules = neap_rules_default();
  rules.failures = 1;
  prepare(&rules);
  neap_breaker *all[3] = {claim(&k, "a"), claim(&k, "b"), claim(&k, "c")};
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  neap_breaker_acquire(all[1], &rules, 1000, &permit, NULL);
  neap_breaker_report(all[1], &rules, 1000, &permit, &failure, NULL);
  SAME(neap_breaker_state(all[0], &rules, 1000), NEAP_CLOSED, "its neighbour");
  SAME(neap_breaker_state(all[1], &rules, 1000), NEAP_OPEN, "itself");
  SAME(neap_breaker_state(all[2], &rules, 1000), NEAP_CLOSED, "its neighbour");
  free(k.memory);
}

/* ---- Counters ---- */

static neap_counters *claim_counters(block *k, const char *name) {
  neap_counters *c = NULL;
  SAME(neap_panel_claim_counters(k->panel, name, strlen(name), &c), NEAP_OK, name);
  return c;
}

static void counters_count(void **unused) {
  (void)unused;
  block k = block_new(4);
  neap_counters *c = claim_counters(&k, "fallbacks"), *other = claim_counters(&k, "reloads");
  for (uint32_t i = 0; i < NEAP_COUNTERS; i++) {
    SAME(neap_counters_read(c, i), 0, "whatever was there before");
    neap_counters_add(c, i, i);
    neap_counters_add(c, i, UINT64_C(1) << 40);
  }
  for (uint32_t i = 0; i < NEAP_COUNTERS; i++) {
    SAME(neap_counters_read(c, i), (UINT64_C(1) << 40) + i, "its own number");
    SAME(neap_counters_read(other, i), 0, "and no other's");
  }
  SAME_TEXT(neap_counters_name(c), "fallbacks");
  HOLDS(claim_counters(&k, "fallbacks") == c, "the same name, the same counters");
  free(k.memory);
}

static void counters_and_breakers_are_told_apart(void **unused) {
  (void)unused;
  block k = block_new(20);
  unsigned breakers = 0, counters = 0;
  for (char name[2] = "a"; name[0] < 'a' + 10; name[0]++) {
    neap_breaker *b = claim(&k, name);
    HOLDS((void *)claim_counters(&k, name) != (void *)b, "one name, two rows");
    HOLDS(find(&k, name) == b, "and only the breaker is found");
  }
  for (uint32_t i = 0; i < 25; i++) {
    neap_breaker *b = neap_panel_row(k.panel, i);
    neap_counters *c = neap_panel_counters(k.panel, i);
    HOLDS(b == NULL || c == NULL, "never both");
    breakers += b != NULL;
    counters += c != NULL;
  }
  SAME(breakers, 10, "each once");
  SAME(counters, 10, "each once");
  SAME(neap_panel_count(k.panel), 20, "rows in use");
  neap_counters *none = (neap_counters *)&k, *c = none;
  SAME(neap_panel_claim_counters(k.panel, "z", 1, &c), NEAP_EFULL, "they share the rows");
  SAME(neap_panel_claim_counters(k.panel, "", 0, &c), NEAP_ENAME, "and the rules for names");
  HOLDS(c == none, "a function that fails changes nothing");
  free(k.memory);
}

/* ---- Makers that died ---- */

/* A row whose hash was swapped in and whose name was written, from its end, up to so many words. */
static void a_row_is_of_use_wherever_its_maker_died(void **unused) {
  (void)unused;
  static const char name[] = "a name that takes a few words of eight bytes";
  const size_t words = (sizeof name - 1 + 7) / 8;
  for (size_t written = 0; written < words; written++) {
    block k = block_new(4);
    neap__breaker *row = breaker_of(claim(&k, name));
    for (size_t i = 0; i < words - written; i++) row->name[i] = 0;
    SAME_TEXT(neap_breaker_name((neap_breaker *)row), "");
    HOLDS(find(&k, name) == (neap_breaker *)row, "it is found by its hash");
    HOLDS(claim(&k, name) == (neap_breaker *)row, "and claimed");
    SAME_TEXT(neap_breaker_name((neap_breaker *)row), name);
    SAME(neap_panel_count(k.panel), 1, "one row");
    free(k.memory);
  }
}

/* ---- Memory ---- */

static void a_copy_of_the_block_works_elsewhere(void **unused) {
  (void)unused;
  block k = block_new(20);
  neap_rules rules = neap_rules_default();
  rules.failures = 1;
  prepare(&rules);
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  for (int n = 0; n < 10; n++) {
    char name[2] = {(char)('a' + n), 0};
    neap_breaker *b = claim(&k, name);
    neap_breaker_acquire(b, &rules, 1000, &permit, NULL);
    if (n % 2) neap_breaker_report(b, &rules, 1000, &permit, &failure, NULL);
  }
  block copy = {.memory = aligned_alloc(64, k.size), .size = k.size};
  memcpy(copy.memory, k.memory, k.size);
  memset(k.memory, 0xee, k.size); /* whoever followed a pointer would notice */
  free(k.memory);
  copy.panel = (neap_panel *)copy.memory; /* a panel begins where its memory does */
  SAME(neap_panel_count(copy.panel), 10, "all rows");
  for (int n = 0; n < 10; n++) {
    char name[2] = {(char)('a' + n), 0};
    neap_breaker *b = find(&copy, name);
    assert_non_null(b);
    SAME_TEXT(neap_breaker_name(b), name);
    SAME(neap_breaker_state(b, &rules, 1000), n % 2 ? NEAP_OPEN : NEAP_CLOSED, "its state");
  }
  claim(&copy, "new");
  SAME(neap_panel_count(copy.panel), 11, "and it takes more");
  free(copy.memory);
}

static void another_key_is_another_order(void **unused) {
  (void)unused;
  block k = block_new(64);
  neap_panel *again;
  uintptr_t first = 0;
  unsigned moved = 0;
  for (uint64_t key = 0; key < 16; key++) {
    SAME(neap_panel_init(k.memory, k.size, 64, key, &again), NEAP_OK, "any key");
    k.panel = again;
    uintptr_t place = (uintptr_t)claim(&k, "the same name");
    if (key > 0 && place != first) moved++;
    first = place;
  }
  HOLDS(moved > 10, "where a name goes depends on the key");
  free(k.memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("the size grows by a breaker and its hash", the_size_grows_by_a_breaker_and_its_hash),
      IT("memory that will not do is refused", memory_that_will_not_do_is_refused),
      IT("a new panel is empty", a_new_panel_is_empty),
      IT("a name is one breaker for good", a_name_is_one_breaker_for_good),
      IT("a new breaker is all zero", a_new_breaker_is_all_zero),
      IT("names have 1 to 103 bytes and no zero", names_have_1_to_103_bytes_and_no_zero),
      IT("a full panel says so", a_full_panel_says_so),
      IT("rows list every breaker once", rows_list_every_breaker_once),
      IT("breakers do not touch each other", breakers_do_not_touch_each_other),
      IT("counters count", counters_count),
      IT("counters and breakers are told apart", counters_and_breakers_are_told_apart),
      IT("a row is of use wherever its maker died", a_row_is_of_use_wherever_its_maker_died),
      IT("a copy of the block works elsewhere", a_copy_of_the_block_works_elsewhere),
      IT("another key is another order", another_key_is_another_order),
  };
  return cmocka_run_group_tests_name("panel", tests, NULL, NULL);
}
