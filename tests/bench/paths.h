/* paths.h: the ways through the engine that are measured, each as a loop of n operations on one subject.
 *
 * paths.c is compiled twice: against the shared engine (atomics) and against the single-threaded one, whose symbols the build
 * renames with single_ in front, so that both stand beside the floors in one process. */
#ifndef BENCH_PATHS_H
#define BENCH_PATHS_H

#include <stddef.h>

#ifdef BENCH_SINGLE
#define neap_rules_default      single_neap_rules_default
#define neap_rules_prepare      single_neap_rules_prepare
#define neap_breaker_adopt      single_neap_breaker_adopt
#define neap_breaker_acquire    single_neap_breaker_acquire
#define neap_breaker_acquire_on single_neap_breaker_acquire_on
#define neap_breaker_report     single_neap_breaker_report
#define neap_breaker_report_on  single_neap_breaker_report_on
#define neap_breaker_trip       single_neap_breaker_trip
#define neap_breaker_state      single_neap_breaker_state
#define neap_flight_acquire     single_neap_flight_acquire
#define neap_flight_report      single_neap_flight_report
#define neap_clock_coarse       single_neap_clock_coarse
#define neap_clock_precise      single_neap_clock_precise
#define PATHS(name)             single_##name
#else
#define PATHS(name) shared_##name
#endif

#include "neap/neap.h"

/* What a loop works on.  Threads have one each, with the same or with their own breaker. */
typedef struct bench_subject {
  neap_breaker *breaker;
  neap_rules rules;
  neap_clock clock;
  uint64_t now_ms;
  neap_flight flight;
} bench_subject;

typedef struct bench_path {
  const char *name; /* of the measurement; the engine's name goes before it */
  void (*prepare)(bench_subject *s);
  void (*run)(bench_subject *s, size_t n);
} bench_path;

/* Ended by a NULL name. */
extern const bench_path shared_paths[], single_paths[];

const bench_path *path_find(const bench_path *paths, const char *name);

/* The same calls, to functions that do nothing: what to subtract from a count of instructions. */
void nothing_acquire(bench_subject *s, size_t n);
void nothing_pair(bench_subject *s, size_t n);
void nothing_pair_on(bench_subject *s, size_t n);
neap_verdict nothing_acquired(neap_breaker *b, const neap_rules *r, uint64_t now_ms, neap_permit *p,
                              neap_transition *moved);
neap_verdict nothing_acquired_on(neap_breaker *b, const neap_rules *r, const neap_clock *c,
                                 neap_permit *p, neap_transition *moved);
neap_reported nothing_reported(neap_breaker *b, const neap_rules *r, uint64_t now_ms,
                               neap_permit *p, const neap_call *call, neap_transition *moved);
neap_reported nothing_reported_on(neap_breaker *b, const neap_rules *r, const neap_clock *c,
                                  neap_permit *p, const neap_call *call, neap_transition *moved);

#endif
