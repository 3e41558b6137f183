/* libFuzzer target: bytes become a walk over the core, compared call by call with the reference
 * of tests/core.
 *
 *   tests/fuzz/core_fuzz.sh SECONDS      builds and runs it
 *
 * A difference, a wedge, an assertion or a sanitizer's complaint ends the run and leaves the
 * input in a file. */
#include "../core/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static walk w;
  w = (walk){.bytes = data, .bytes_left = size};
  walk_begin(&w);
  for (unsigned steps = 0; w.bytes_left > 0 && steps < WALK_STEPS; steps++) walk_step(&w);
  walk_recovers(&w);
  return 0;
}
