/* sandbox_arena.c: the engine's allocator: one cap for all of its Lua state, and a part of it that
 * policies cannot take.
 *
 *   0 ............................. cap - reserve ............ cap
 *     policies' decisions, all else                 all else
 *
 * When policies have filled their part, everything is collected; if it is still full, the box whose
 * decisions have taken most runs no more, so that the others do. */
#include "sandbox.h"

#include <stdlib.h>

static size_t arena_reserve(const neap__arena *arena) {
  size_t reserve = arena->reserve ? arena->reserve : arena->cap / 4;
  return reserve < arena->cap ? reserve : arena->cap;
}

void *neap__arena_alloc(void *data, void *block, size_t old_size, size_t new_size) {
  neap__arena *arena = data;
  size_t had = block ? old_size : 0;
  if (new_size == 0) {
    free(block);
    arena->used -= had;
    return NULL;
  }
  if (new_size > had) {
    bool is_policys = neap__box_is_running();
    size_t room = is_policys ? arena->cap - arena_reserve(arena) : arena->cap;
    if (new_size - had > room || arena->used > room - (new_size - had)) {
      if (is_policys) arena->crowded = true;
      return NULL;
    }
  }
  void *got = realloc(block, new_size);
  if (!got) return new_size <= had ? block : NULL; /* Lua counts on shrinking to succeed */
  arena->used += new_size - had;
  if (arena->used > arena->peak) arena->peak = arena->used;
  return got;
}

void neap__arena_make_room(neap__arena *arena, lua_State *L) {
  arena->crowded = false;
  lua_gc(L, LUA_GCCOLLECT, 0);
  if (arena->used < (arena->cap - arena_reserve(arena)) / 4 * 3) return;
  neap__box *worst = NULL;
  for (neap__box *b = arena->boxes; b; b = b->next)
    if (!b->condemned && (!worst || b->held > worst->held)) worst = b;
  if (worst) worst->condemned = true;
}

void neap__arena_join(lua_State *L, neap__box *b) {
  void *data;
  lua_Alloc alloc = lua_getallocf(L, &data);
  if (alloc != neap__arena_alloc) return;
  b->arena = data;
  b->next = b->arena->boxes;
  b->arena->boxes = b;
}

void neap__arena_leave(neap__box *b) {
  if (!b->arena) return;
  neap__box **link = &b->arena->boxes;
  while (*link && *link != b) link = &(*link)->next;
  if (*link) *link = b->next;
  b->arena = NULL;
}
