#include "series.h"

#include <string.h>

static void bin_add(lane_bin *to, const lane_bin *from) {
  to->calls += from->calls;
  to->failed += from->failed;
  to->slow += from->slow;
  to->refused += from->refused;
  to->took_ms += from->took_ms;
}

/* Every two of its bins become one. */
static void series_widen(lane_series *s) {
  for (size_t i = 0; i < LANE_BINS / 2; i++) {
    lane_bin both = s->bin[2 * i];
    bin_add(&both, &s->bin[2 * i + 1]);
    s->bin[i] = both;
  }
  memset(s->bin + LANE_BINS / 2, 0, sizeof s->bin / 2);
  s->width_ms *= 2;
  s->count = (s->count + 1) / 2;
}

void series_add(lane_series *s, uint64_t at_ms, const lane_bin *one) {
  if (!s->width_ms) {
    s->width_ms = 1000;
    s->from_ms = at_ms - at_ms % 1000;
  }
  uint64_t since = at_ms > s->from_ms ? at_ms - s->from_ms : 0;
  while (since / s->width_ms >= LANE_BINS) series_widen(s);
  size_t i = (size_t)(since / s->width_ms);
  if (i >= s->count) s->count = i + 1;
  bin_add(&s->bin[i], one);
}
