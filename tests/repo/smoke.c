/* The whole cycle on the public interface alone, for builds that have no test framework: other word sizes, other
 * languages, an installed tree.  Valid C11 and C++. */
#include <neap/neap.h>
#include <stdio.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                               \
      return 1;                                                                                    \
    }                                                                                              \
  } while (0)

static neap_breaker breaker; /* all zero: closed */

static neap_verdict call_once(const neap_rules *rules, uint64_t now_ms, neap_outcome outcome,
                              neap_transition *moved) {
  neap_permit permit = {0};
  neap_verdict verdict = neap_breaker_acquire(&breaker, rules, now_ms, &permit, moved);
  if (verdict <= NEAP_ALLOW_BYPASS) {
    neap_call call = {outcome, 1, 0};
    neap_breaker_report(&breaker, rules, now_ms, &permit, &call, moved);
  }
  return verdict;
}

int main(void) {
  CHECK(neap_abi() == NEAP_ABI); /* the library is that of the header */
  neap_rules rules = neap_rules_default();
  neap_error error;
  CHECK(!neap_rules_prepare(&rules, &error)); /* no trip rule */
  rules.failures = 3;
  rules.jitter = 0;
  CHECK(neap_rules_prepare(&rules, &error));

  uint64_t now_ms = 1000;
  static neap_transition moved;
  for (int i = 0; i < 3; i++) CHECK(call_once(&rules, now_ms, NEAP_FAILURE, &moved) == NEAP_ALLOW);
  CHECK(moved.to == NEAP_OPEN && moved.cause == NEAP_BY_FAILURES && moved.open_ms == 5000);
  CHECK(call_once(&rules, now_ms + 4999, NEAP_SUCCESS, &moved) == NEAP_REFUSE_OPEN);

  now_ms += 5000;
  CHECK(neap_breaker_state(&breaker, &rules, now_ms) == NEAP_HALF_OPEN);
  CHECK(call_once(&rules, now_ms, NEAP_SUCCESS, &moved) == NEAP_ALLOW_PROBE);
  CHECK(call_once(&rules, now_ms, NEAP_SUCCESS, &moved) == NEAP_ALLOW_PROBE);
  CHECK(moved.from == NEAP_HALF_OPEN && moved.to == NEAP_CLOSED);
  CHECK(call_once(&rules, now_ms, NEAP_SUCCESS, &moved) == NEAP_ALLOW);

  neap_snapshot seen;
  neap_breaker_snapshot(&breaker, &rules, now_ms, &seen);
  CHECK(seen.state == NEAP_CLOSED && seen.totals.failure == 3 && seen.totals.success == 3);
  printf("ok: neap %s, %d-bit words\n", neap_version(), (int)(8 * sizeof(void *)));
  return 0;
}
