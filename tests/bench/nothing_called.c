/* In a file of their own, so that the calls stay calls. */
#include "paths.h"

neap_verdict nothing_acquired(neap_breaker *b, const neap_rules *r, uint64_t now_ms, neap_permit *p,
                              neap_transition *moved) {
  (void)b, (void)r, (void)now_ms, (void)p, (void)moved;
  return NEAP_ALLOW;
}

neap_verdict nothing_acquired_on(neap_breaker *b, const neap_rules *r, const neap_clock *c,
                                 neap_permit *p, neap_transition *moved) {
  (void)b, (void)r, (void)c, (void)p, (void)moved;
  return NEAP_ALLOW;
}

neap_reported nothing_reported(neap_breaker *b, const neap_rules *r, uint64_t now_ms,
                               neap_permit *p, const neap_call *call, neap_transition *moved) {
  (void)b, (void)r, (void)now_ms, (void)p, (void)call, (void)moved;
  return NEAP_COUNTED;
}

neap_reported nothing_reported_on(neap_breaker *b, const neap_rules *r, const neap_clock *c,
                                  neap_permit *p, const neap_call *call, neap_transition *moved) {
  (void)b, (void)r, (void)c, (void)p, (void)call, (void)moved;
  return NEAP_COUNTED;
}
