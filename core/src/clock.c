/* The system's clocks.  Leave this file out where there is no clock_gettime(): a host's own
 * neap_clock does. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "neap/neap.h"

static uint64_t system_now_ms(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t precise_now_ms(void *context) {
  (void)context;
  return system_now_ms(CLOCK_MONOTONIC);
}

neap_clock neap_clock_precise(void) { return (neap_clock){precise_now_ms, NULL}; }

#ifdef CLOCK_MONOTONIC_COARSE
#define COARSE_ID CLOCK_MONOTONIC_COARSE
#elif defined(__linux__)
#define COARSE_ID 6 /* Linux has it; its headers hide it without _GNU_SOURCE */
#else
#define COARSE_ID CLOCK_MONOTONIC
#endif

static uint64_t coarse_now_ms(void *context) {
  (void)context;
  return system_now_ms(COARSE_ID);
}

neap_clock neap_clock_coarse(void) { return (neap_clock){coarse_now_ms, NULL}; }

static uint64_t manual_now_ms(void *context) { return *(const uint64_t *)context; }

neap_clock neap_clock_manual(uint64_t *now_ms) { return (neap_clock){manual_now_ms, now_ms}; }
