/* sandbox_library.c: what a policy gets in place of the host's libraries: functions of its own for
 * each generation. */
#include "sandbox.h"

#include <stdint.h>

/* ---- Metatables ------------------------------------------------------------------------------
 *
 * The upvalue of each function: a weak set of the metatables that the policy set. */

/* Whether the table at 1 has a metatable that the policy did not set. */
static bool is_foreign(lua_State *L) {
  if (!lua_getmetatable(L, 1)) return false;
  lua_rawget(L, lua_upvalueindex(1));
  bool is_own = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return !is_own;
}

/* setmetatable(t, mt) -> t */
static int l_setmetatable(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argcheck(L, lua_istable(L, 2) || lua_isnil(L, 2), 2, "nil or table expected");
  lua_settop(L, 2);
  if (is_foreign(L)) return luaL_error(L, "this table's metatable is not the policy's");
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    lua_rawget(L, 2);
    if (!lua_isnil(L, -1)) return luaL_error(L, "__gc is not available to a policy");
    lua_pop(L, 1);
    lua_pushvalue(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, lua_upvalueindex(1));
  }
  lua_setmetatable(L, 1);
  return 1;
}

/* getmetatable(v) -> the metatable, if the policy set it; false, if v has another; nil, if none */
static int l_getmetatable(lua_State *L) {
  luaL_checkany(L, 1);
  if (!lua_getmetatable(L, 1)) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushvalue(L, -1);
  lua_rawget(L, lua_upvalueindex(1));
  if (!lua_toboolean(L, -1))
    lua_pushboolean(L, 0);
  else
    lua_pop(L, 1);
  return 1;
}

/* rawset(t, key, value) -> t: what the host made read-only stays so, as the call that is lent. */
static int l_rawset(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checkany(L, 2);
  luaL_checkany(L, 3);
  lua_settop(L, 3);
  if (is_foreign(L)) return luaL_error(L, "this table is read-only for rawset");
  lua_rawset(L, 1);
  return 1;
}

#define PCALL_STEPS 4

/* pcall(f, ...): as in the manual.  It charges because an error may come from a stack that is
 * full: then LuaJIT finds no room for the hook, and a loop that catches such errors would never be
 * seen. */
static int l_pcall(lua_State *L) {
  luaL_checkany(L, 1);
  neap__charge(L, PCALL_STEPS * NEAP__UNITS_PER_STEP);
  neap__check_depth(L);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  if (lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0) == LUA_OK) return lua_gettop(L);
  lua_pushboolean(L, 0);
  lua_replace(L, 1);
  return 2;
}

static void push_weak_keys(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

/* library() -> { string, table, digest, pcall, setmetatable, getmetatable, rawset }, made for one
 * policy generation */
static int l_library(lua_State *L) {
  lua_createtable(L, 0, 7);
  neap__push_string_library(L);
  lua_setfield(L, -2, "string");
  neap__push_table_library(L);
  lua_setfield(L, -2, "table");
  lua_pushcfunction(L, neap__l_digest);
  lua_setfield(L, -2, "digest");
  lua_pushcfunction(L, l_pcall);
  lua_setfield(L, -2, "pcall");
  push_weak_keys(L);
  lua_pushvalue(L, -1);
  lua_pushcclosure(L, l_setmetatable, 1);
  lua_setfield(L, -3, "setmetatable");
  lua_pushvalue(L, -1);
  lua_pushcclosure(L, l_getmetatable, 1);
  lua_setfield(L, -3, "getmetatable");
  lua_pushcclosure(L, l_rawset, 1);
  lua_setfield(L, -2, "rawset");
  return 1;
}

void neap__sandbox_strings(lua_State *L) {
  lua_pushliteral(L, "");
  lua_newtable(L);
  if (lua_getmetatable(L, -2)) { /* what makes "10" + 1 work stays */
    for (lua_pushnil(L); lua_next(L, -2);) {
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, -5);
    }
    lua_pop(L, 1);
  }
  neap__push_string_library(L);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

/* harden(): neap__sandbox_strings() for a state of one's own */
static int l_harden(lua_State *L) {
  neap__sandbox_strings(L);
  return 0;
}

/* ---- Fingerprint ----------------------------------------------------------------------------- */

/* fingerprint(text, ...) -> 16 hexadecimal digits: FNV-1a over the texts and their lengths.  Tells
 * an edit from a touch; no protection against somebody who wants two files to look the same. */
static int l_fingerprint(lua_State *L) {
  uint64_t hash = UINT64_C(14695981039346656037);
  int n = lua_gettop(L);
  for (int i = 1; i <= n; i++) {
    size_t length;
    const char *text = luaL_checklstring(L, i, &length);
    for (size_t k = 0; k < length; k++)
      hash = (hash ^ (unsigned char)text[k]) * UINT64_C(1099511628211);
    for (size_t k = 0; k < 8; k++)
      hash = (hash ^ ((uint64_t)length >> 8 * k & 0xff)) * UINT64_C(1099511628211);
  }
  char hex[17];
  for (int i = 0; i < 16; i++) hex[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  hex[16] = 0;
  lua_pushstring(L, hex);
  return 1;
}

int neap__open_sandbox(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"library", l_library}, {"harden", l_harden}, {"fingerprint", l_fingerprint}, {NULL, NULL}};
  neap__open_box(L);
  luaL_setfuncs(L, functions, 0);
  return 0;
}
