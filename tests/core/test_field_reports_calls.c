/* What has gone wrong elsewhere with slow calls, timeouts, nesting and eviction: one test for
 * each public report that concerns the core, with its story on top.  B067, B106, B107, B115 and
 * B116 are in test_threads.c. */
#include "support.h"

/* Calls already too slow but still in flight could not open a breaker.  Here that is what a flight
 * is for (test_flight.c); without one it opens on completion, and no call is counted twice. */
static void B059(void **unused) {
  (void)unused;
  FIXTURE(f, r->slow_rate = 500000, r->slow_call_ms = 2000, r->minimum_calls = 10);
  for (int i = 0; i < 20; i++) play(&f, "<");
  play(&f, "+2001");
  SAME(state(&f), NEAP_CLOSED, "none has ended");
  for (int i = 0; i < 9; i++) play(&f, ">s");
  SAME(state(&f), NEAP_CLOSED, "nine have");
  play(&f, ">s");
  SAME(state(&f), NEAP_OPEN, "ten");
  for (int i = 0; i < 10; i++) play(&f, "~s");
  SAME(snapshot(&f).totals.slow_success, 10, "the others are stale, and counted once, as that");
  SAME(snapshot(&f).totals.stale, 10, "the others are stale, and counted once, as that");
}

/* A timeout that the host enforces by cancelling was not counted; one raised by the callee was
 * then counted twice. */
static void B061(void **unused) {
  (void)unused;
  const neap_outcome first[] = {NEAP_TIMEOUT, NEAP_FAILURE, NEAP_TIMEOUT, NEAP_FAILURE};
  const neap_outcome second[] = {NEAP_NEUTRAL, NEAP_NEUTRAL, NEAP_FAILURE, NEAP_TIMEOUT};
  for (size_t i = 0; i < COUNT_OF(first); i++) {
    FIXTURE(f, r->failures = 100);
    neap_permit permit = {0};
    acquire(&f, &permit);
    SAME(report(&f, &permit, first[i]), NEAP_COUNTED, "whoever comes first");
    SAME(report(&f, &permit, second[i]), NEAP_USED, "the other finds the permit used");
    SAME(snapshot(&f).failure, 1, "exactly one failure");
    SAME(snapshot(&f).totals.timeout, first[i] == NEAP_TIMEOUT, "a timeout, if that came first");
  }
}

/* In a chain of three the same timeouts were booked once at one node, twice at another, not at
 * all at a third. */
static void B062(void **unused) {
  (void)unused;
  fixture chain[3];
  for (int level = 0; level < 3; level++) {
    FIXTURE(f, r->trip_by_function = true);
    chain[level] = f;
  }
  for (int call = 0; call < 1000; call++) {
    for (int level = 0; level < 3; level++) play(&chain[level], "<");
    for (int level = 2; level >= 0; level--) play(&chain[level], "+1 >T");
  }
  for (int level = 0; level < 3; level++) {
    neap_totals t = snapshot(&chain[level]).totals;
    SAME(t.failure, 1000, "each level has each call, once");
    SAME(t.timeout, 1000, "each level has each call, once");
    SAME(t.success + t.slow_success + t.slow_failure + t.neutral + t.stale, 0, "and nothing else");
  }
}

/* Many calls in flight pass before a breaker opens that reacts to finished ones. */
static void B064(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 5, r->cooldown_ms = 30000);
  for (int i = 0; i < 100; i++) play(&f, "<");
  play(&f, "+10000 >F>F>F>F>F");
  SAME(state(&f), NEAP_OPEN, "the fifth opens");
  for (int i = 0; i < 95; i++) play(&f, "+10 ~F");
  SAME(f.moves, 1, "one event");
  play(&f, "+29049 R +1");
  SAME(state(&f), NEAP_HALF_OPEN, "30 s after it opened: 95 late failures prolong nothing");
}

/* A slow outage: calls failed one by one after a long timeout, each leaving the window before
 * the minimum was reached. */
static void B065(void **unused) {
  (void)unused;
  FIXTURE(f, r->failure_rate = 500000, r->minimum_calls = 5, r->length_ms = 10000,
          r->consecutive_failures = 5);
  for (int i = 0; i < 4; i++) {
    play(&f, "< +30000 >T");
    SAME(snapshot(&f).calls, 1, "the window sees one call");
  }
  SAME(state(&f), NEAP_CLOSED, "four in a row");
  play(&f, "< +30000 >T");
  SAME(state(&f), NEAP_OPEN, "the run is not tied to the window");
  SAME(f.moved.cause, NEAP_BY_CONSECUTIVE, "and says so");
}

/* Both half-open probes succeeded, and it opened again with no visible reason: one had been
 * slow. */
static void B068(void **unused) {
  (void)unused;
  for (int judged = 0; judged < 2; judged++) {
    FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->probes = 2, r->successes = 2,
            r->slow_call_ms = 100, r->slow_rate = judged ? 500000 : 0);
    play(&f, "F +1000 Ss");
    SAME(state(&f), judged ? NEAP_OPEN : NEAP_CLOSED, "slow is failed only where slow is judged");
    SAME(f.moved.cause, NEAP_BY_PROBES, "the transition carries its reason");
    SAME(f.moved.measured, judged ? 1 : 2, "and the numbers: one failed, or two succeeded");
    SAME(f.moved.limit, judged ? 1 : 2, "and what they were compared with");
    SAME(f.moved.calls, 2, "and of how many");
  }
}

/* Backends that warm up slowly need a longer cooldown than the default: it must go on growing
 * over failed probes. */
static void B070(void **unused) {
  (void)unused;
  FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 30000, r->max_cooldown_ms = 600000,
          r->timeout_ms = 10000, r->probes = 1, r->successes = 1);
  uint64_t warm_ms = f.now_ms + 90000, last = 0;
  play(&f, "F");
  for (int round = 0; round < 10 && state(&f) != NEAP_CLOSED; round++) {
    SAME(f.moved.open_ms > last, true, "longer each time");
    last = f.moved.open_ms;
    f.now_ms += f.moved.open_ms;
    play(&f, f.now_ms >= warm_ms ? "S" : "< +10000 >T");
  }
  SAME(state(&f), NEAP_CLOSED, "it recovers");
}

/* An idle sweep removed an open breaker whose samples had aged out: the next call got a fresh
 * closed one.  Here nothing is removed, and the state does not depend on what is in the window. */
static void B109(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->length_ms = 10000, r->cooldown_ms = 60000);
  play(&f, "FF +20000");
  SAME(snapshot(&f).calls, 0, "the window is empty");
  play(&f, "+1000");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "21 s: refused");
}

/* A map of breakers keyed by strings of the request grew without limit. */
static void B113(void **unused) {
  (void)unused;
  const uint32_t capacity = 16;
  size_t size = neap_panel_size(capacity);
  void *memory = aligned_alloc(64, size);
  neap_panel *panel;
  SAME(neap_panel_init(memory, size, capacity, 99, &panel), NEAP_OK, "fixed from the start");
  unsigned made = 0, full = 0;
  for (int i = 0; i < 10000; i++) {
    char name[32];
    int length = snprintf(name, sizeof name, "host-%d", i);
    neap_breaker *b;
    neap_status status = neap_panel_claim(panel, name, (size_t)length, &b);
    made += status == NEAP_OK;
    full += status == NEAP_EFULL;
  }
  SAME(made, capacity, "as many as there are rows");
  SAME(full, 10000 - capacity, "and an answer for the others");
  free(memory);
}

/* Combined limiters: when the first rejected, the last one in the list was not rolled back and
 * its count grew for ever. */
static void B118(void **unused) {
  (void)unused;
  for (int refusing = 0; refusing < 3; refusing++) {
    fixture nest[3];
    for (int level = 0; level < 3; level++) {
      FIXTURE(f, r->consecutive_failures = 1, r->cooldown_ms = 1000, r->probes = 31,
              r->successes = 31, r->concurrent = 2);
      play(&f, "F +1000"); /* half-open, so that permits hold something */
      nest[level] = f;
    }
    SAME(neap_breaker_set_mode(&nest[refusing].breaker, 0, NEAP_FORCED_OPEN, 0), NEAP_OK, "");
    for (int call = 0; call < 10000; call++) {
      neap_permit permits[3] = {{0}};
      int level = 0;
      while (level < 3 && acquire(&nest[level], &permits[level]) <= NEAP_ALLOW_BYPASS) level++;
      SAME(level, refusing, "refused there");
      while (level-- > 0) report(&nest[level], &permits[level], NEAP_NEUTRAL);
    }
    for (int level = 0; level < 3; level++)
      SAME(snapshot(&nest[level]).probes_in_flight, 0, "all that was taken was given back");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("B059: without a flight a call is counted when it ends, and once", B059),
      IT("B061: a timeout is one failure, whoever saw it", B061),
      IT("B062: nested breakers count each call once each", B062),
      IT("B064: late failures neither open again nor prolong", B064),
      IT("B065: a slow outage trips by the run of failures", B065),
      IT("B068: a slow probe that fails a round is told", B068),
      IT("B070: the cooldown goes on growing over failed probes", B070),
      IT("B109: an idle open breaker stays open", B109),
      IT("B113: a panel has its rows and no more", B113),
      IT("B118: what was taken on the way to a refusal is given back", B118),
  };
  return cmocka_run_group_tests_name("field reports: calls", tests, NULL, NULL);
}
