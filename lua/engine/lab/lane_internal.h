/* lane_internal.h: what lane.c and lane_keys.c share. */
#ifndef NEAP_LAB_LANE_INTERNAL_H
#define NEAP_LAB_LANE_INTERNAL_H

#include <stdlib.h>

#include "lane.h"

/* A call on its way through; or, with is_sweep, a look at calls that are overdue. */
typedef struct flying {
  uint64_t begin_ms;
  neap_permit permit;
  uint32_t next, key;
  uint32_t span_ms, took_ms, retry_after_ms;
  uint8_t outcome;
  bool is_unknown, is_sweep, is_probe;
} flying;

typedef struct queue {
  uint32_t first, last;
} queue;

typedef struct bucket {
  queue ends, begins;
} bucket;

struct lane {
  const neap_rules *rules;
  lane_host host;
  bool has_flight;
  uint64_t now_ms, latest_ms; /* all up to now is done; 0: nothing was taken */
  bucket *ring;
  uint64_t *used; /* bits of buckets that are not empty */
  flying *pool;
  uint32_t room, free, count;
  uint64_t late, crowded, overflow;

  lane_key *keys;
  uint32_t key_count, key_room, max_keys;
  uint32_t *hash; /* numbers of keys, and 1 */
  uint32_t hash_size;
  lane_counts all;
  lane_series series;
};

static inline void *lane_allocate(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (!memory) abort();
  return memory;
}

/* For the next key: room in the hash. */
void lane_keys_open(lane *l);
void lane_keys_free(lane *l);

#endif
