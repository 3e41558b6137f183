/* The core in a C program: one breaker, no allocation, the time passed in.
 *
 *   cc hello.c $(pkg-config --cflags --libs neap) */
#include <neap/neap.h>
#include <stdio.h>

static neap_breaker breaker; /* all zero: closed */

/* One guarded call: `succeeds` is what the dependency would do. */
static void call_at(uint64_t now_ms, const neap_rules *rules, bool succeeds) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit;
  neap_verdict verdict = neap_breaker_acquire(&breaker, rules, now_ms, &permit, &moved);
  printf("%5d ms  %s", (int)now_ms, neap_verdict_name(verdict));

  if (verdict <= NEAP_ALLOW_BYPASS) {
    neap_call call = {.outcome = succeeds ? NEAP_SUCCESS : NEAP_FAILURE, .duration_ms = 12};
    neap_breaker_report(&breaker, rules, now_ms, &permit, &call, &moved);
    printf(", %s", succeeds ? "succeeded" : "failed");
  }
  if (moved.cause) {
    printf(", %s -> %s by %s", neap_state_name(moved.from), neap_state_name(moved.to),
           neap_cause_name(moved.cause));
  }
  putchar('\n');
}

int main(void) {
  neap_rules rules = neap_rules_default();
  rules.failures = 3;
  rules.jitter = 0;
  neap_error error;
  if (!neap_rules_prepare(&rules, &error)) {
    fprintf(stderr, "%s %s\n", error.field, error.expected);
    return 1;
  }

  for (uint64_t now_ms = 0; now_ms < 5; now_ms++) call_at(now_ms, &rules, false);
  call_at(5010, &rules, true); /* 5 s later: probes */
  call_at(5020, &rules, true);
  call_at(5030, &rules, true);
  return 0;
}

/* prints
    0 ms  allow, failed
    1 ms  allow, failed
    2 ms  allow, failed, closed -> open by failures
    3 ms  open
    4 ms  open
 5010 ms  probe, succeeded, open -> half_open by cooldown
 5020 ms  probe, succeeded, half_open -> closed by probes
 5030 ms  allow, succeeded
*/
