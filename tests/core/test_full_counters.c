/* Counters that reach the top of their 28 bits. */
#include "support.h"

#include "window.h"

/* Sets a counter of the current slice, as if so many calls had been. */
static void preset(fixture *f, unsigned kind, uint64_t count) {
  neap__breaker *b = breaker_of(&f->breaker);
  window_place at = neap__window_place(b, &f->rules, snapshot(f).epoch, f->now_ms);
  neap__word *cell = &b->cells[at.slice % NEAP__SLICES * NEAP__KINDS + kind];
  word_store(cell, cell_base(at.tag, at.slice) | count);
}

static void a_full_counter_does_not_distort_a_rate(void **unused) {
  (void)unused;
  const unsigned kinds[] = {KIND_SUCCESS, KIND_FAILURE};
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    FIXTURE(f, r->failure_rate = 990000, r->slow_call_ms = 10);
    play(&f, "SF");
    /* one kind is about to be full, the other has a quarter of that: 20 % or 80 % */
    preset(&f, kinds[i], COUNT_TOP - 50);
    preset(&f, kinds[1 - i], (COUNT_TOP - 50) / 4);
    uint32_t before = snapshot(&f).failure_rate;
    uint64_t most = 0;
    for (int n = 0; n < 2000; n++) {
      play(&f, kinds[i] == KIND_FAILURE ? "FFFFS" : "SSSSF");
      neap_snapshot s = snapshot(&f);
      if (s.calls > most) most = s.calls;
      HOLDS(s.failure_rate + 10 > before && s.failure_rate < before + 10, "within ten millionths");
    }
    SAME(f.moves, 0, "never over the limit");
    HOLDS(most > COUNT_TOP, "it was full");
    HOLDS(snapshot(&f).calls < most / 4 * 3, "then all were halved, so that there is room again");
  }
}

static void a_full_counter_loses_no_total(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true);
  play(&f, "SF");
  preset(&f, KIND_SUCCESS, COUNT_TOP - 3);
  uint64_t before = snapshot(&f).totals.success;
  for (uint64_t n = 1; n <= 10; n++) {
    play(&f, "S");
    SAME(snapshot(&f).totals.success, before + n, "one more");
    SAME(snapshot(&f).totals.failure, 1, "as it was");
  }
}

/* 2^32 calls in a window, 16 slices nearly full: sums are 64 bits wide. */
static void sums_do_not_wrap_at_32_bits(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->length_ms = 1600);
  f.now_ms = 160000;
  for (int i = 0; i < 16; i++) {
    play(&f, "SF");
    preset(&f, KIND_SUCCESS, COUNT_TOP - 100);
    preset(&f, KIND_FAILURE, COUNT_TOP / 2);
    if (i < 15) f.now_ms += 100;
  }
  neap_snapshot s = snapshot(&f);
  SAME(s.success, 16 * (COUNT_TOP - 100), "over 2^31");
  HOLDS(s.calls > UINT64_C(6000000000), "over 2^32");
  HOLDS(s.failure_rate > 333000 && s.failure_rate < 334000, "a third");
  play(&f, "F");
  SAME(f.moves, 0, "under a half");
}

static void totals_go_past_32_bits(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->length_ms = 1600);
  for (int i = 0; i < 40; i++) {
    play(&f, "S");
    preset(&f, KIND_SUCCESS, COUNT_TOP - 100);
    f.now_ms += 100;
  }
  uint64_t before = snapshot(&f).totals.success;
  HOLDS(before > UINT64_C(10000000000), "over 2^33");
  play(&f, "S");
  SAME(snapshot(&f).totals.success, before + 1, "one more");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a full counter does not distort a rate", a_full_counter_does_not_distort_a_rate),
      IT("a full counter loses no total", a_full_counter_loses_no_total),
      IT("sums do not wrap at 32 bits", sums_do_not_wrap_at_32_bits),
      IT("totals go past 32 bits", totals_go_past_32_bits),
  };
  return cmocka_run_group_tests_name("full counters", tests, NULL, NULL);
}
