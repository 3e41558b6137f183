/* sandbox_tables.c: the table library that policies get.
 *
 * Elements are read and written raw and the length is the raw one: a metamethod could make any of
 * these loops endless.  Each charges for the elements it touches before it does. */
#include "sandbox.h"

#include <stdint.h>

#define UNPACK_MOST 1000

static lua_Integer check_list(lua_State *L, int arg) {
  luaL_checktype(L, arg, LUA_TTABLE);
  return (lua_Integer)lua_rawlen(L, arg);
}

/* As check_list, for what changes it: what the host made read-only stays so, as the call that is
 * lent. */
static lua_Integer check_own_list(lua_State *L) {
  lua_Integer n = check_list(L, 1);
  if (luaL_getmetafield(L, 1, "__metatable")) {
    if (!lua_toboolean(L, -1)) luaL_error(L, "this table is read-only");
    lua_pop(L, 1);
  }
  return n;
}

/* i..j as a count, for which the decision pays; 0 if there is none, SIZE_MAX if it is that long. */
static size_t charge_range(lua_State *L, lua_Integer i, lua_Integer j) {
  if (i > j) return 0;
  size_t n = (size_t)j - (size_t)i;
  neap__charge(L, n < SIZE_MAX / 8 ? 2 * n + 2 : SIZE_MAX / 4);
  return n < SIZE_MAX ? n + 1 : n;
}

/* insert(t, [at,] value) */
static int l_insert(lua_State *L) {
  lua_Integer n = check_own_list(L), at = n + 1;
  if (lua_gettop(L) != 2 && lua_gettop(L) != 3)
    return luaL_error(L, "wrong number of arguments to 'insert'");
  if (lua_gettop(L) == 3) {
    at = luaL_checkinteger(L, 2);
    luaL_argcheck(L, at >= 1 && at <= n + 1, 2, "position out of bounds");
  }
  charge_range(L, at, n);
  for (lua_Integer i = n; i >= at; i--) {
    lua_rawgeti(L, 1, i);
    lua_rawseti(L, 1, i + 1);
  }
  lua_rawseti(L, 1, at);
  return 0;
}

/* remove(t [, at]) -> what was there */
static int l_remove(lua_State *L) {
  lua_Integer n = check_own_list(L), at = luaL_optinteger(L, 2, n);
  if (!lua_isnoneornil(L, 2))
    luaL_argcheck(L, at == n || (at >= 1 && at <= n + 1), 2, "position out of bounds");
  charge_range(L, at, n);
  lua_rawgeti(L, 1, at);
  for (; at < n; at++) {
    lua_rawgeti(L, 1, at + 1);
    lua_rawseti(L, 1, at);
  }
  lua_pushnil(L);
  lua_rawseti(L, 1, at);
  return 1;
}

/* concat(t [, separator [, i [, j]]]) */
static int l_concat(lua_State *L) {
  size_t gap, length;
  lua_Integer n = check_list(L, 1);
  const char *separator = luaL_optlstring(L, 2, "", &gap);
  lua_Integer i = luaL_optinteger(L, 3, 1), j = luaL_optinteger(L, 4, n);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  if (i <= j)
    for (;; i++) {
      lua_rawgeti(L, 1, i);
      if (!lua_isstring(L, -1))
        return luaL_error(L, "invalid value (a %s) at index %d in table for 'concat'",
                          luaL_typename(L, -1), (int)i);
      lua_tolstring(L, -1, &length);
      neap__charge(L, NEAP__UNITS_OF(length + gap) + 1);
      luaL_addvalue(&b);
      if (i == j) break;
      luaL_addlstring(&b, separator, gap);
    }
  luaL_pushresult(&b);
  return 1;
}

/* pack(...) -> list with n */
static int l_pack(lua_State *L) {
  int n = lua_gettop(L);
  neap__charge(L, 2 * (size_t)n + 1);
  lua_createtable(L, n, 1);
  lua_insert(L, 1);
  for (int i = n; i >= 1; i--) lua_rawseti(L, 1, i);
  lua_pushinteger(L, n);
  lua_setfield(L, 1, "n");
  return 1;
}

/* unpack(t [, i [, j]]) -> t[i], ..., t[j] */
static int l_unpack(lua_State *L) {
  lua_Integer n = check_list(L, 1), i = luaL_optinteger(L, 2, 1), j = luaL_optinteger(L, 3, n);
  size_t count = charge_range(L, i, j);
  if (count > UNPACK_MOST) return luaL_error(L, "too many results to unpack");
  luaL_checkstack(L, (int)count, NULL);
  for (size_t k = 0; k < count; k++) lua_rawgeti(L, 1, i + (lua_Integer)k);
  return (int)count;
}

/* ---- Sorting --------------------------------------------------------------------------------- */

/* Whether value a on the stack goes before value b: by the function at 2, or by <. */
static bool goes_before(lua_State *L, int a, int b) {
  neap__charge(L, NEAP__UNITS_PER_STEP);
  neap__check_depth(L);
  if (lua_isnil(L, 2)) return lua_compare(L, a, b, LUA_OPLT);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, a);
  lua_pushvalue(L, b);
  lua_call(L, 2, 1);
  bool before = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return before;
}

/* Lets the value on top sink from place `hole` of a heap of n, over what goes after it; pops it. */
static void heap_sink(lua_State *L, lua_Integer hole, lua_Integer n) {
  int value = lua_gettop(L);
  for (lua_Integer child; (child = 2 * hole) <= n; hole = child) {
    lua_rawgeti(L, 1, child);
    if (child < n) {
      lua_rawgeti(L, 1, child + 1);
      if (goes_before(L, value + 1, value + 2)) {
        lua_replace(L, value + 1);
        child++;
      } else {
        lua_pop(L, 1);
      }
    }
    if (!goes_before(L, value, value + 1)) {
      lua_pop(L, 1);
      break;
    }
    lua_rawseti(L, 1, hole);
  }
  lua_rawseti(L, 1, hole);
}

/* sort(t [, before]): a heap, so that n * log n comparisons are the most there are, and a `before`
 * that contradicts itself gives some order and no more. */
static int l_sort(lua_State *L) {
  lua_Integer n = check_own_list(L);
  if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  for (lua_Integer i = n / 2; i >= 1; i--) {
    lua_rawgeti(L, 1, i);
    heap_sink(L, i, n);
  }
  for (lua_Integer last = n; last > 1; last--) {
    lua_rawgeti(L, 1, last);
    lua_rawgeti(L, 1, 1);
    lua_rawseti(L, 1, last);
    heap_sink(L, 1, last - 1);
  }
  return 0;
}

void neap__push_table_library(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"concat", l_concat}, {"insert", l_insert}, {"pack", l_pack}, {"remove", l_remove},
      {"sort", l_sort},     {"unpack", l_unpack}, {NULL, NULL},
  };
  lua_createtable(L, 0, 6);
  luaL_setfuncs(L, functions, 0);
}
