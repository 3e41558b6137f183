/* survive.h: what must hold of a breaker whose users died at any instruction. */
#ifndef NEAP_TESTS_SURVIVE_H
#define NEAP_TESTS_SURVIVE_H

#include "support.h"

/* A healthy dependency and traffic close it within lease, cooldown and a few calls: less than
 * longest_ms.  Gives the instant. */
static inline uint64_t check_recovers(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                      uint64_t longest_ms) {
  uint64_t deadline = now_ms + longest_ms;
  neap_call success = {.outcome = NEAP_SUCCESS};
  while (neap_breaker_state(b, rules, now_ms) != NEAP_CLOSED) {
    neap_permit permit = {0};
    if (neap_breaker_acquire(b, rules, now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS)
      neap_breaker_report(b, rules, now_ms, &permit, &success, NULL);
    HOLDS(++now_ms < deadline, "closed soon, whatever the dead held");
  }
  return now_ms;
}

/* The window works as ever: it counts, and it trips at rules->failures. */
static inline void check_works(neap_breaker *b, const neap_rules *rules, uint64_t now_ms) {
  neap_breaker_reset(b, rules, now_ms, NULL);
  neap_call failure = {.outcome = NEAP_FAILURE};
  neap_snapshot snap;
  for (unsigned n = 0; n < rules->failures; n++) {
    neap_breaker_snapshot(b, rules, now_ms, &snap);
    SAME(snap.failure, n, "a clean window, and each failure in it");
    neap_permit permit = {0};
    SAME(neap_breaker_acquire(b, rules, now_ms, &permit, NULL), NEAP_ALLOW, "closed");
    neap_breaker_report(b, rules, now_ms, &permit, &failure, NULL);
  }
  SAME(neap_breaker_state(b, rules, now_ms), NEAP_OPEN, "and it trips");
}

#endif
