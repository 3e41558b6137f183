/* flight.h: a fixture with a flight: calls are let in and reported through it. */
#ifndef NEAP_TESTS_FLIGHT_H
#define NEAP_TESTS_FLIGHT_H

#include "support.h"

typedef struct call_out {
  neap_permit permit;
  uint64_t began_ms;
} call_out;

static inline neap_verdict flight_try(fixture *f, neap_flight *flight, call_out *out) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  out->began_ms = f->now_ms;
  neap_verdict verdict =
      neap_flight_acquire(flight, &f->breaker, &f->rules, f->now_ms, &out->permit, &moved);
  fixture_note(f, &moved);
  return verdict;
}

/* A call that is let in. */
static inline call_out flight_begin(fixture *f, neap_flight *flight) {
  call_out out = {{0}, 0};
  SAME(flight_try(f, flight, &out) <= NEAP_ALLOW_BYPASS, true, "the call is let in");
  return out;
}

/* It ends, and took as long as it did. */
static inline neap_reported flight_end(fixture *f, neap_flight *flight, call_out *out,
                                       neap_outcome outcome) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_call call = {.outcome = outcome, .duration_ms = f->now_ms - out->began_ms};
  neap_reported reported = neap_flight_report(flight, &f->breaker, &f->rules, f->now_ms,
                                              out->began_ms, &out->permit, &call, &moved);
  fixture_note(f, &moved);
  return reported;
}

static inline uint64_t flight_sweep(fixture *f, neap_flight *flight) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t marked = neap_flight_sweep(flight, &f->breaker, &f->rules, f->now_ms, &moved);
  fixture_note(f, &moved);
  return marked;
}

static inline uint64_t flight_next(const fixture *f, const neap_flight *flight) {
  return neap_flight_next_ms(flight, &f->breaker, &f->rules, f->now_ms);
}

#endif
