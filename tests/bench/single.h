/* single.h: what floors.c needs of the single-threaded engine under its other name. */
#ifndef BENCH_SINGLE_H
#define BENCH_SINGLE_H

#include "neap/neap.h"

neap_verdict single_neap_breaker_acquire(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                         neap_permit *permit, neap_transition *moved);
neap_reported single_neap_breaker_report(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                         neap_permit *permit, const neap_call *call,
                                         neap_transition *moved);

#endif
