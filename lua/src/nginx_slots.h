/* nginx_slots.h: which request of nginx has which permit.
 *
 *   | request, started, permit, gate | ... |    empty: no request; deletion moves the next ones up
 *
 * One open table for the process, hashed by the request's address; a request may have several.  It
 * is never more than half full: it doubles, and stays as large as the most requests that were let
 * in at a time have made it, at 64 to 128 bytes for each.  An address is malloc's, not the client's.
 *
 * A request that ends without neap.log() leaves its slot.  The next request at its address began at
 * another time, which tells them apart: unless both began in the same millisecond. */
#ifndef NEAP_NGINX_SLOTS_H
#define NEAP_NGINX_SLOTS_H

#include "binding.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

typedef struct slot {
  const void *request; /* NULL: empty */
  double started;
  uint64_t permit; /* neap__wide(), or HELD and a reference to one that holds something; and kind */
  struct gate *gate;
} slot;

#define HELD       (UINT64_C(1) << 63)
#define KIND_SHIFT 61 /* 0, 1, 2: of the first, second, third upstream that the request asks; */
#define KIND_LAST  2u
#define KIND_TRY   3u /* or of one try, in the balancer phase */
#define PERMIT     ((UINT64_C(1) << KIND_SHIFT) - 1)

typedef struct slots {
  slot *list; /* NULL: before the first neap__slots_grow */
  size_t mask, count;
} slots;
extern slots neap__slots;

static inline unsigned slot_kind(const slot *s) { return s->permit >> KIND_SHIFT & KIND_TRY; }

static inline size_t slot_home(const void *request) {
  return (size_t)(((uintptr_t)request >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) &
         neap__slots.mask;
}

static inline slot *slot_after(const slot *s) {
  return &neap__slots.list[((size_t)(s - neap__slots.list) + 1) & neap__slots.mask];
}

/* The first slot of that request, or the empty one after all of them. */
static inline slot *slot_find(const void *request) {
  slot *s = &neap__slots.list[slot_home(request)];
  while (s->request && s->request != request) s = slot_after(s);
  return s;
}

/* Twice as many; false if there is no memory, and nothing has changed. */
bool neap__slots_grow(void);

/* Whether there is room for one more. */
static inline bool slots_have_room(void) {
  return 2 * neap__slots.count < neap__slots.mask || neap__slots_grow();
}

/* Empties a slot that has others behind it. */
void neap__slot_close(slot *s);

/* Answers whether the request may have another one. */
static inline bool slot_remove(slot *s) {
  neap__slots.count--;
  if (!slot_after(s)->request) {
    s->request = NULL;
    return false;
  }
  neap__slot_close(s);
  return true;
}

/* Removes all of a gate. */
void neap__slots_forget(const struct gate *gate);

#endif
#endif
