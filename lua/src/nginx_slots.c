/* nginx_slots.c: the table of nginx's requests grows, and closes its gaps. */
#include "nginx_slots.h"

#include <stdlib.h>

#if LUA_VERSION_NUM == 501 && defined(__linux__)

#define FIRST_SLOTS 1024

slots neap__slots;

bool neap__slots_grow(void) {
  slots *all = &neap__slots;
  size_t old_size = all->list ? all->mask + 1 : 0, size = old_size ? 2 * old_size : FIRST_SLOTS;
  slot *old = all->list, *list = (slot *)calloc(size, sizeof *list);
  if (!list) return false;
  all->list = list;
  all->mask = size - 1;
  for (size_t i = 0; i < old_size; i++) {
    if (!old[i].request) continue;
    slot *s = &list[slot_home(old[i].request)];
    while (s->request) s = slot_after(s);
    *s = old[i];
  }
  free(old);
  return true;
}

/* Several have the same home, or a neighbour's: those behind it move up. */
void neap__slot_close(slot *s) {
  slots *all = &neap__slots;
  size_t hole = (size_t)(s - all->list), i = hole;
  for (;;) {
    i = (i + 1) & all->mask;
    const slot *next = &all->list[i];
    if (!next->request) break;
    if (((i - slot_home(next->request)) & all->mask) < ((i - hole) & all->mask)) continue;
    all->list[hole] = *next;
    hole = i;
  }
  all->list[hole].request = NULL;
}

void neap__slots_forget(const struct gate *gate) {
  slots *all = &neap__slots;
  for (size_t i = 0; i <= all->mask; i++)
    while (all->list[i].request && all->list[i].gate == gate) slot_remove(&all->list[i]);
}

#else

typedef int neap__no_slots; /* a translation unit has something in it */

#endif
