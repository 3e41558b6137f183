/* sandbox_strings.c: the string library that policies get: what all Lua versions have, less dump.
 * sandbox_patterns.c has the rest of it.
 *
 * As in the manual, but each function charges for the bytes it reads and writes. */
#include "sandbox.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A position as the manual counts it, from 1, or from the end if negative: as one from 0. */
size_t neap__from_position(lua_Integer i, size_t length) {
  if (i > 0) return (size_t)i - 1 < length ? (size_t)i - 1 : length;
  if (i == 0 || i < -(lua_Integer)length) return 0;
  return length - (size_t)-i;
}

/* Where the character after position i is: likewise. */
static size_t behind_position(lua_Integer i, size_t length) {
  if (i >= 0) return (size_t)i < length ? (size_t)i : length;
  return i < -(lua_Integer)length ? 0 : length - (size_t)-i + 1;
}

static const char *check_text(lua_State *L, int arg, size_t *length) {
  const char *s = luaL_checklstring(L, arg, length);
  neap__charge(L, NEAP__UNITS_OF(*length));
  return s;
}

static int l_len(lua_State *L) {
  size_t length;
  luaL_checklstring(L, 1, &length);
  lua_pushinteger(L, (lua_Integer)length);
  return 1;
}

static int l_sub(lua_State *L) {
  size_t length;
  const char *s = luaL_checklstring(L, 1, &length);
  size_t from = neap__from_position(luaL_checkinteger(L, 2), length);
  size_t to = behind_position(luaL_optinteger(L, 3, -1), length);
  neap__charge(L, from < to ? NEAP__UNITS_OF(to - from) : 1);
  lua_pushlstring(L, s + from, from < to ? to - from : 0);
  return 1;
}

static int mapped(lua_State *L, int (*map)(int)) {
  size_t length;
  const char *s = check_text(L, 1, &length);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (size_t i = 0; i < length; i++) luaL_addchar(&b, (char)map((unsigned char)s[i]));
  luaL_pushresult(&b);
  return 1;
}

static int l_lower(lua_State *L) { return mapped(L, tolower); }
static int l_upper(lua_State *L) { return mapped(L, toupper); }

static int l_reverse(lua_State *L) {
  size_t length;
  const char *s = check_text(L, 1, &length);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  while (length > 0) luaL_addchar(&b, s[--length]);
  luaL_pushresult(&b);
  return 1;
}

static int l_rep(lua_State *L) {
  size_t length, gap;
  const char *s = luaL_checklstring(L, 1, &length);
  lua_Integer n = luaL_checkinteger(L, 2);
  const char *separator = luaL_optlstring(L, 3, "", &gap);
  if (n <= 0) return lua_pushliteral(L, ""), 1;
  if (length + gap == 0) n = 0;
  if (length + gap < length || (n > 0 && n > (lua_Integer)(INT32_MAX / (length + gap))))
    return luaL_error(L, "resulting string too large");
  neap__charge(L, NEAP__UNITS_OF((size_t)n * (length + gap)));
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (; n > 0; n--) {
    luaL_addlstring(&b, s, length);
    if (n > 1) luaL_addlstring(&b, separator, gap);
  }
  luaL_pushresult(&b);
  return 1;
}

static int l_byte(lua_State *L) {
  size_t length;
  const char *s = luaL_checklstring(L, 1, &length);
  lua_Integer i = luaL_optinteger(L, 2, 1);
  size_t from = neap__from_position(i, length),
         to = behind_position(luaL_optinteger(L, 3, i), length);
  if (from >= to) return 0;
  neap__charge(L, to - from);
  luaL_checkstack(L, (int)(to - from < 1000000 ? to - from : 1000000), "string slice too long");
  for (size_t k = from; k < to; k++) lua_pushinteger(L, (unsigned char)s[k]);
  return (int)(to - from);
}

static int l_char(lua_State *L) {
  int n = lua_gettop(L);
  luaL_Buffer b;
  neap__charge(L, (size_t)n + 1);
  luaL_buffinit(L, &b);
  for (int i = 1; i <= n; i++) {
    lua_Integer c = luaL_checkinteger(L, i);
    luaL_argcheck(L, c >= 0 && c <= 255, i, "value out of range");
    luaL_addchar(&b, (char)c);
  }
  luaL_pushresult(&b);
  return 1;
}

/* Upvalue: the host's own string.format, which reads its arguments once. */
static int l_format(lua_State *L) {
  int n = lua_gettop(L);
  size_t length, read = 0;
  luaL_checkstring(L, 1);
  for (int i = 1; i <= n; i++)
    if (lua_type(L, i) == LUA_TSTRING) lua_tolstring(L, i, &length), read += length;
  neap__charge(L, NEAP__UNITS_OF(read) + (size_t)n * NEAP__UNITS_PER_STEP);
  neap__check_depth(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, n, 1);
  return 1;
}

void neap__push_string_library(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"byte", l_byte},   {"char", l_char},   {"len", l_len},
      {"lower", l_lower}, {"rep", l_rep},     {"reverse", l_reverse},
      {"sub", l_sub},     {"upper", l_upper}, {NULL, NULL},
  };
  lua_createtable(L, 0, 13);
  luaL_setfuncs(L, functions, 0);
  neap__add_pattern_functions(L);
  lua_getglobal(L, "string");
  lua_getfield(L, -1, "format");
  lua_remove(L, -2);
  luaL_checktype(L, -1, LUA_TFUNCTION);
  lua_pushcclosure(L, l_format, 1);
  lua_setfield(L, -2, "format");
}
