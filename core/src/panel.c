/* panel.c: named breakers and counters in one block.
 *
 *   +--------+----------------------------+---------------------------------------+
 *   | header | hashes: 8 bytes a row      | rows: 1,024 bytes each                |
 *   +--------+----------------------------+---------------------------------------+
 *
 * A row is claimed by one swap of its hash, 0 being free; the lowest bit of the hash says whether
 * it is a breaker's or counters'.  Its name is written afterwards, by whoever comes first: a
 * creator that died leaves a row that works.  A row found is a row for good, unless its owner gives
 * it back: then its hash is FREED, beyond which the search for a name goes on. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "machine.h"
#include "panel.h"

struct neap_panel {
  NEAP__ALIGNED(64) uint64_t key;
  uint32_t capacity;
};

#define LINE         64
#define CAPACITY_MAX 4194304u
#define HEADER_SIZE  NEAP__PANEL_HEADER
_Static_assert(sizeof(neap_panel) == HEADER_SIZE, "the hashes begin on a line of their own");

/* A row of counters stands in the place of a breaker, which has the name. */
struct neap_counters {
  neap__word counts[NEAP_COUNTERS];
};
_Static_assert(sizeof(neap_counters) <= offsetof(neap__breaker, name), "the name is behind them");

static size_t hashes_size(uint32_t capacity) {
  return ((size_t)capacity * sizeof(neap__word) + LINE - 1) / LINE * LINE;
}

static neap__word *panel_hashes(const neap_panel *p) {
  return (neap__word *)((uintptr_t)p + HEADER_SIZE);
}

static neap__breaker *panel_rows(const neap_panel *p) {
  return (neap__breaker *)((uintptr_t)p + HEADER_SIZE + hashes_size(p->capacity));
}

size_t neap_panel_size(uint32_t capacity) {
  if (capacity == 0 || capacity > CAPACITY_MAX) return 0;
  uint64_t size = HEADER_SIZE + hashes_size(capacity) + (uint64_t)capacity * sizeof(neap_breaker);
  return size <= SIZE_MAX / 2 ? (size_t)size : 0;
}

neap_status neap_panel_init(void *memory, size_t size, uint32_t capacity, uint64_t key,
                            neap_panel **out) {
  size_t needed = neap_panel_size(capacity);
  if (needed == 0) return NEAP_ERANGE;
  if (size < needed || (uintptr_t)memory % LINE != 0) return NEAP_EMEMORY;
  memset(memory, 0, needed);
  neap_panel *p = memory;
  p->key = key;
  p->capacity = capacity;
  *out = p;
  return NEAP_OK;
}

/* SipHash-1-3 (Aumasson, Bernstein 2012) with the key twice, but for how the length goes in. */
typedef struct sip {
  uint64_t a, b, c, d;
} sip;

static uint64_t rotate(uint64_t x, unsigned n) { return x << n | x >> (64 - n); }

static void sip_round(sip *v) {
  v->a += v->b;
  v->c += v->d;
  v->b = rotate(v->b, 13) ^ v->a;
  v->d = rotate(v->d, 16) ^ v->c;
  v->a = rotate(v->a, 32);
  v->c += v->b;
  v->a += v->d;
  v->b = rotate(v->b, 17) ^ v->c;
  v->d = rotate(v->d, 21) ^ v->a;
  v->c = rotate(v->c, 32);
}

static void sip_take(sip *v, uint64_t word) {
  v->d ^= word;
  sip_round(v);
  v->a ^= word;
}

/* As the machine has it: a panel stays on one. */
static uint64_t eight_bytes(const char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

static uint64_t few_bytes(const char *bytes, size_t n) {
  uint64_t word = 0;
  for (size_t i = 0; i < n; i++) word = word << 8 | (unsigned char)bytes[i];
  return word;
}

typedef enum row_kind { ROW_BREAKER = 0, ROW_COUNTERS = 1 } row_kind;

#define FREED UINT64_C(1) /* no name's hash: see below */

/* The length goes in first, so the last word may overlap the one before it.  0 means free, so it
 * becomes 2. */
static uint64_t name_hash(uint64_t key, row_kind kind, const char *name, size_t length) {
  sip v = {key ^ UINT64_C(0x736f6d6570736575), key ^ UINT64_C(0x646f72616e646f6d),
           key ^ UINT64_C(0x6c7967656e657261), key ^ UINT64_C(0x7465646279746573) ^ length};
  for (size_t i = 8; i < length; i += 8) sip_take(&v, eight_bytes(name + i - 8));
  sip_take(&v, length < 8 ? few_bytes(name, length) : eight_bytes(name + length - 8));
  v.c ^= 0xff;
  for (int i = 0; i < 3; i++) sip_round(&v);
  uint64_t hash = (v.a ^ v.b ^ v.c ^ v.d) & ~UINT64_C(1);
  return (hash == 0 ? 2 : hash) | (uint64_t)kind;
}

static bool length_is_valid(size_t length) { return length > 0 && length <= NEAP_NAME_MAX; }

static bool name_is_valid(const char *name, size_t length) {
  return length_is_valid(length) && memchr(name, 0, length) == NULL;
}

/* Each word is written by one swap from 0, so readers never see it change; the first one last, so
 * that where it is there all are. */
static void name_write(neap__breaker *b, const char *name, size_t length) {
  for (size_t i = (length - 1) / 8 + 1; i-- > 0;) {
    char word[8] = {0};
    size_t left = length - 8 * i;
    uint64_t text;
    memcpy(word, name + 8 * i, left < 8 ? left : 8);
    memcpy(&text, word, 8);
    if (word_load(&b->name[i]) == 0) word_swap(&b->name[i], 0, text);
  }
}

/* The row of a hash, claimed if `claim` and there was none; -1 if there is none, or no room.  Whoever
 * claims a name looks at the same rows in the same order, so all come to the same one. */
static int64_t row_find(const neap_panel *p, uint64_t hash, bool claim) {
  neap__word *hashes = panel_hashes(p);
  uint32_t start = (uint32_t)((hash >> 32) * p->capacity >> 32);
  int64_t freed = -1;
  for (uint32_t i = 0; i < p->capacity;) {
    uint32_t row = start + i < p->capacity ? start + i : start + i - p->capacity;
    uint64_t h = word_load(&hashes[row]);
    if (h == hash) return row;
    if (h == 0 && (!claim || freed >= 0)) break;
    if (h == 0 && word_swap(&hashes[row], 0, hash)) return row;
    if (h == FREED && freed < 0) freed = row;
    if (h != 0) i++; /* a swap that failed: look at the same row again */
  }
  if (!claim || freed < 0) return -1;
  return word_swap(&hashes[freed], FREED, hash) ? freed : row_find(p, hash, claim);
}

static neap_status row_claim(neap_panel *p, row_kind kind, const char *name, size_t length,
                             neap__breaker **out) {
  if (!name_is_valid(name, length)) return NEAP_ENAME;
  int64_t row = row_find(p, name_hash(p->key, kind, name, length), true);
  if (row < 0) return NEAP_EFULL;
  neap__breaker *b = &panel_rows(p)[row];
  if (word_load(&b->name[0]) == 0) name_write(b, name, length);
  *out = b;
  return NEAP_OK;
}

/* Row i if it is of that kind, or NULL. */
static neap__breaker *row_of(const neap_panel *p, row_kind kind, uint32_t i) {
  if (i >= p->capacity) return NULL;
  uint64_t hash = word_load(&panel_hashes(p)[i]);
  return hash > FREED && (hash & 1) == (uint64_t)kind ? &panel_rows(p)[i] : NULL;
}

neap_status neap_panel_claim(neap_panel *p, const char *name, size_t length, neap_breaker **out) {
  neap__breaker *b;
  neap_status status = row_claim(p, ROW_BREAKER, name, length, &b);
  if (status == NEAP_OK) *out = (neap_breaker *)b;
  return status;
}

neap_breaker *neap_panel_find(const neap_panel *p, const char *name, size_t length) {
  if (!length_is_valid(length)) return NULL;
  int64_t row = row_find(p, name_hash(p->key, ROW_BREAKER, name, length), false);
  return row < 0 ? NULL : (neap_breaker *)&panel_rows(p)[row];
}

neap_breaker *neap_panel_row(const neap_panel *p, uint32_t i) {
  return (neap_breaker *)row_of(p, ROW_BREAKER, i);
}

/* What was freed before a row that is free is never passed by a search: it is free as well. */
static void rows_tidy(neap_panel *p, uint32_t row) {
  neap__word *hashes = panel_hashes(p);
  uint32_t after = row + 1 < p->capacity ? row + 1 : 0;
  if (word_load(&hashes[after]) != 0) return;
  for (; word_load(&hashes[row]) == FREED; row = row > 0 ? row - 1 : p->capacity - 1)
    word_store(&hashes[row], 0);
}

bool neap_panel_release(neap_panel *p, neap_breaker *breaker, const neap_rules *r, uint64_t now_ms,
                        uint64_t used_ms) {
  neap__breaker *b = breaker_of(breaker);
  uint32_t row = (uint32_t)(b - panel_rows(p));
  assert(row_of(p, ROW_BREAKER, row) == b);
  if (!neap__is_forgotten(b, r, now_ms, used_ms)) return false;
  neap__renew(b);
  word_store(&panel_hashes(p)[row], FREED);
  rows_tidy(p, row);
  return true;
}

uint32_t neap_panel_capacity(const neap_panel *p) { return p->capacity; }

uint32_t neap_panel_count(const neap_panel *p) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->capacity; i++) count += word_load(&panel_hashes(p)[i]) > FREED;
  return count;
}

/* ---- counters ---- */

neap_status neap_panel_claim_counters(neap_panel *p, const char *name, size_t length,
                                      neap_counters **out) {
  neap__breaker *b;
  neap_status status = row_claim(p, ROW_COUNTERS, name, length, &b);
  if (status == NEAP_OK) *out = (neap_counters *)b;
  return status;
}

neap_counters *neap_panel_counters(const neap_panel *p, uint32_t i) {
  return (neap_counters *)row_of(p, ROW_COUNTERS, i);
}

void neap_counters_add(neap_counters *c, uint32_t i, uint64_t n) {
  assert(i < NEAP_COUNTERS);
  word_add(&c->counts[i], n);
}

uint64_t neap_counters_read(const neap_counters *c, uint32_t i) {
  assert(i < NEAP_COUNTERS);
  return word_load(&c->counts[i]);
}

const char *neap_counters_name(const neap_counters *c) {
  return neap_breaker_name((const neap_breaker *)c);
}
