/* sandbox_arena.c: the engine's allocator: one cap for all of its Lua state, and a part of it that
 * policies should leave alone.
 *
 *   0 ............... cap - reserve ........ cap - reserve / 2 ........ cap
 *     all              all, but who hoards     not a policy's decision
 *                      is sought
 *
 * A decision that finds the first part full still gets what it needs: others than policies may
 * have filled it.  But then garbage is collected early, for buffers do not collect any when they
 * find no memory; and if that does not help, decisions are weighed: everything is collected before
 * and after, and when each box has had its turn, the one that kept most runs no more.  A search in
 * vain is repeated when more is in use than then. */
#include "sandbox.h"

#include <stdlib.h>

#define WEIGHED_MOST 64 /* decisions, before somebody is found or the search given up */

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
    size_t more = new_size - had, reserve = neap__box_is_running() ? arena_reserve(arena) : 0;
    size_t room = arena->cap - reserve / 2;
    if (reserve && arena->used + more > arena->cap - reserve) arena->crowded = true;
    if (more > room || arena->used > room - more) return NULL;
  }
  void *got = realloc(block, new_size);
  if (!got) return new_size <= had ? block : NULL; /* Lua counts on shrinking to succeed */
  arena->used += new_size - had;
  if (arena->used > arena->peak) arena->peak = arena->used;
  return got;
}

/* Thrice, for each time Lua also halves what its stacks have to spare: what is left is in use. */
static void collect_all(lua_State *L) {
  for (int i = 0; i < 3; i++) lua_gc(L, LUA_GCCOLLECT, 0);
}

/* `grown`: by how much more must be used until there is a point in looking again. */
static void search_end(neap__arena *arena, size_t grown) {
  arena->weighed = 0;
  arena->search_from = grown ? arena->used + grown : 0;
  for (neap__box *b = arena->boxes; b; b = b->next) b->kept = 0;
}

void neap__arena_weigh(neap__arena *arena, lua_State *L, neap__box *b) {
  size_t reserve = arena_reserve(arena);
  arena->crowded = false; /* until an allocation says so again */
  if (arena->weighed == 0) {
    if (arena->used < arena->cap - reserve / 4 * 3 || arena->used < arena->collect_from) return;
    lua_gc(L, LUA_GCCOLLECT, 0);
    arena->collect_from = arena->used + reserve / 8;
    if (arena->used < arena->cap - reserve || arena->used < arena->search_from) return;
  }
  collect_all(L);
  b->weighed_from = arena->used;
}

void neap__arena_weighed(neap__arena *arena, lua_State *L, neap__box *b) {
  collect_all(L);
  if (arena->used > b->weighed_from) b->kept += arena->used - b->weighed_from;
  b->weighed_from = 0;
  arena->crowded = true; /* the search goes on with the next decision */
  size_t boxes = 0;
  neap__box *worst = NULL;
  for (neap__box *one = arena->boxes; one; one = one->next, boxes++)
    if (!one->condemned && one->kept > 0 && (!worst || one->kept > worst->kept)) worst = one;
  if (++arena->weighed < 2 * boxes && arena->weighed < WEIGHED_MOST) return;
  if (worst) worst->condemned = true;
  search_end(arena, worst ? 0 : arena_reserve(arena) / 8);
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
