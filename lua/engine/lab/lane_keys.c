/* lane_keys.c: a lane's breakers by key. */
#include "lane_internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const char *name, size_t length) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)name[i]) * 16777619u;
  return h ^ h >> 15;
}

/* Its place, or the free one for it. */
static uint32_t *hash_place(const lane *l, const char *name, size_t length) {
  uint32_t at = hash_of(name, length);
  for (;; at++) {
    uint32_t *place = &l->hash[at & (l->hash_size - 1)];
    if (!*place) return place;
    const char *known = l->keys[*place - 1].name;
    if (strncmp(known, name, length) == 0 && !known[length]) return place;
  }
}

static void hash_grow(lane *l) {
  uint32_t size = l->hash_size ? l->hash_size * 2 : 256;
  free(l->hash);
  l->hash = lane_allocate(size, sizeof *l->hash);
  l->hash_size = size;
  for (uint32_t i = 0; i < l->key_count; i++)
    *hash_place(l, l->keys[i].name, strlen(l->keys[i].name)) = i + 1;
}

static void key_make(lane *l, const char *name, size_t length) {
  if (l->key_count == l->key_room) {
    l->key_room = l->key_room ? l->key_room * 2 : 16;
    lane_key *keys = realloc(l->keys, l->key_room * sizeof *keys);
    if (!keys) abort();
    l->keys = keys;
  }
  lane_key *k = &l->keys[l->key_count];
  *k = (lane_key){.name = lane_allocate(length + 1, 1), .sweep_ms = NEAP_NEVER};
  memcpy(k->name, name, length);
  if (l->has_flight) k->flight = lane_allocate(1, sizeof *k->flight);
  if (l->key_count < LANE_SERIES) k->series = lane_allocate(1, sizeof *k->series);
  k->breaker = aligned_alloc(64, sizeof *k->breaker);
  if (!k->breaker) abort();
  memset(k->breaker, 0, sizeof *k->breaker);
  neap_breaker_adopt(k->breaker, l->rules);
  l->key_count++;
}

static uint32_t key_find(lane *l, const char *name, size_t length) {
  if (2 * l->key_count >= l->hash_size) hash_grow(l);
  uint32_t *place = hash_place(l, name, length);
  if (!*place) {
    key_make(l, name, length);
    *place = l->key_count;
  }
  return *place - 1;
}

uint32_t lane_key_of(lane *l, const char *name, size_t length) {
  size_t zero = 0;
  while (zero < length && name[zero]) zero++;
  length = zero < NEAP_NAME_MAX ? zero : NEAP_NAME_MAX;
  if (l->key_count < l->max_keys) return key_find(l, name, length);
  uint32_t *place = hash_place(l, name, length);
  if (*place) return *place - 1;
  l->overflow++;
  return key_find(l, "*", 1);
}

void lane_keys_open(lane *l) { hash_grow(l); }

void lane_keys_free(lane *l) {
  for (uint32_t i = 0; i < l->key_count; i++) {
    free(l->keys[i].name);
    free(l->keys[i].flight);
    free(l->keys[i].breaker);
    free(l->keys[i].series);
  }
  free(l->keys);
  free(l->hash);
}

uint32_t lane_keys(const lane *l) { return l->key_count; }
const lane_key *lane_key_at(const lane *l, uint32_t i) { return &l->keys[i]; }
