/* step.h: runs a function one instruction at a time and counts. */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct step_counts {
  uint64_t instructions;
  uint64_t locked; /* lock prefix, or an exchange with memory, which needs none */
} step_counts;

/* Runs f(data) in a child.  Errors: false with errno, where a process may not be traced; ENOTSUP off x86-64 Linux. */
bool step_count(void (*f)(void *), void *data, step_counts *out);

#endif
