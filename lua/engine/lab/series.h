/* series.h: what calls were like by time, in a bounded number of bins: as the log gets longer, they
 * get wider. */
#ifndef NEAP_LAB_SERIES_H
#define NEAP_LAB_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define LANE_BINS 512

/* So much of the time. */
typedef struct lane_bin {
  uint32_t calls, failed, slow, refused;
  uint64_t took_ms;
} lane_bin;

typedef struct lane_series {
  uint64_t from_ms, width_ms;
  size_t count; /* of bins in use */
  lane_bin bin[LANE_BINS];
} lane_series;

/* All zero is an empty one. */
void series_add(lane_series *s, uint64_t at_ms, const lane_bin *one);

#endif
