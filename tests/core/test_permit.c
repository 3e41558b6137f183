/* Permits: used once, stale in another epoch, neutral when they say nothing. */
#include "support.h"

static void a_thousand_neutral_probes_leave_the_round_as_it_was(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  play(&f, "F +1000 N");
  play_times(&f, "NA", 500);
  neap_snapshot s = snapshot(&f);
  SAME(s.probes_in_flight + s.probes_succeeded + s.probes_failed, 0, "all gave their slot back");
  SAME(s.totals.neutral, 501, "counted apart");
  SAME(s.totals.abandoned, 500, "counted apart");
  SAME(f.moves, 2, "nothing moved");
  play(&f, "SS");
  SAME(state(&f), NEAP_CLOSED, "and the next two decide");
}

static void a_call_of_an_earlier_epoch_is_stale(void **unused) {
  (void)unused;
  const struct {
    const char *script;
    uint64_t counted; /* of the other calls */
    const char *because;
  } cases[] = {
      {"< F ~S", 1, "begun closed, ends open"},
      {"< F ~F", 1, "... failing"},
      {"< F ~N", 1, "... neutral: it holds nothing"},
      {"< F +1000 ~S", 1, "... half-open, with no probe yet"},
      {"< F +1000 N ~F", 2, "... and with one"},
      {"< F +1000 S ~F", 2, "ends in another closed epoch"},
      {"< r ~F", 0, "ends after a reset"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
    play(&f, cases[i].script);
    neap_snapshot s = snapshot(&f);
    SAME(s.totals.stale, 1, cases[i].because);
    SAME(s.calls, 0, "a stale report is in no window");
    SAME(s.totals.success + s.totals.failure + s.totals.neutral, cases[i].counted,
         "nor in any total but its own");
  }
}

static void a_permit_is_used_once(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_permit permit = {0};
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "an empty permit");
  SAME(acquire(&f, &permit), NEAP_ALLOW, "closed");
  HOLDS(permit.opaque != 0, "0 is no permit");
  HOLDS(permit.opaque < UINT64_C(1) << 53, "a plain number can carry it");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_COUNTED, "the first report");
  SAME(permit.opaque, 0, "clears it");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "the second");
  SAME(snapshot(&f).calls, 1, "changes nothing");
  SAME(snapshot(&f).totals.stale, 0, "it is not even stale");
}

static void a_stale_permit_is_cleared_too(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_permit permit = {0};
  acquire(&f, &permit);
  play(&f, "FF");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_STALE, "late");
  SAME(report(&f, &permit, NEAP_FAILURE), NEAP_USED, "cleared");
  SAME(snapshot(&f).totals.stale, 1, "once");
}

static void a_refusal_leaves_the_permit_alone(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1);
  play(&f, "F");
  neap_permit permit = {.opaque = 12345};
  SAME(acquire(&f, &permit), NEAP_REFUSE_OPEN, "open");
  SAME(permit.opaque, 12345, "as it was");
}

static void a_copied_permit_never_underflows_or_wedges(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 31, r->successes = 31,
          r->concurrent = 3);
  play(&f, "F +1000");
  neap_permit permit = {0}, copies[40];
  SAME(acquire(&f, &permit), NEAP_ALLOW_PROBE, "half-open");
  for (size_t i = 0; i < COUNT_OF(copies); i++) copies[i] = permit;
  for (size_t i = 0; i < COUNT_OF(copies); i++) report(&f, &copies[i], NEAP_NEUTRAL);
  neap_snapshot s = snapshot(&f);
  SAME(s.probes_in_flight, 0, "no underflow");
  SAME(s.state, NEAP_HALF_OPEN, "nothing decided");
  play_times(&f, "S", 31);
  SAME(state(&f), NEAP_CLOSED, "and it goes on");
}

static void a_permit_says_what_it_is(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000);
  neap_permit plain = {0}, probe = {0}, bypass = {0};
  acquire(&f, &plain);
  SAME(neap_permit_kind(&plain), NEAP_ALLOW, "closed");
  SAME(neap_permit_refusal(&plain), NEAP_ALLOW, "its kind");
  SAME(neap_permit_epoch(&plain), 0, "the first epoch");
  play(&f, "F +1000");
  acquire(&f, &probe);
  SAME(neap_permit_kind(&probe), NEAP_ALLOW_PROBE, "half-open");
  SAME(neap_permit_refusal(&probe), NEAP_ALLOW_PROBE, "its kind");
  SAME(neap_permit_epoch(&probe), 1, "half-open has the epoch of the open it follows");
  f.rules.mode = NEAP_SHADOW;
  prepare(&f.rules);
  SAME(acquire(&f, &bypass), NEAP_ALLOW_BYPASS, "shadow");
  SAME(neap_permit_kind(&bypass), NEAP_ALLOW_BYPASS, "shadow");
  SAME(neap_permit_refusal(&bypass), NEAP_REFUSE_PROBES, "would have been refused");
  SAME(neap_permit_epoch(&bypass), 1, "its epoch");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a thousand neutral probes leave the round as it was",
         a_thousand_neutral_probes_leave_the_round_as_it_was),
      IT("a call of an earlier epoch is stale", a_call_of_an_earlier_epoch_is_stale),
      IT("a permit is used once", a_permit_is_used_once),
      IT("a stale permit is cleared too", a_stale_permit_is_cleared_too),
      IT("a refusal leaves the permit alone", a_refusal_leaves_the_permit_alone),
      IT("a copied permit never underflows or wedges", a_copied_permit_never_underflows_or_wedges),
      IT("a permit says what it is", a_permit_says_what_it_is),
  };
  return cmocka_run_group_tests_name("permit", tests, NULL, NULL);
}
