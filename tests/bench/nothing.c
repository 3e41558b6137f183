#include "paths.h"

#include <string.h>

#define EMPTY_OPERATION() __asm__ volatile("" ::: "memory")

void nothing_acquire(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  uint64_t now_ms = s->now_ms;
  neap_permit permit;
  for (size_t i = 0; i < n; i++) {
    nothing_acquired(b, &s->rules, now_ms, &permit, NULL);
    EMPTY_OPERATION();
  }
}

void nothing_pair(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  uint64_t now_ms = s->now_ms;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    nothing_acquired(b, &s->rules, now_ms, &permit, NULL);
    EMPTY_OPERATION();
    nothing_reported(b, &s->rules, now_ms, &permit, &call, NULL);
  }
}

void nothing_pair_on(bench_subject *s, size_t n) {
  neap_breaker *b = s->breaker;
  for (size_t i = 0; i < n; i++) {
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    nothing_acquired_on(b, &s->rules, &s->clock, &permit, NULL);
    EMPTY_OPERATION();
    nothing_reported_on(b, &s->rules, &s->clock, &permit, &call, NULL);
  }
}

const bench_path *path_find(const bench_path *paths, const char *name) {
  for (; paths->name != NULL; paths++)
    if (strcmp(paths->name, name) == 0) return paths;
  return NULL;
}
