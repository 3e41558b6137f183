/* compat.h: every difference between the Lua versions that the binding is built for.
 *
 *            refs of a userdata    call that can be yielded across   to-be-closed   integers
 *   5.4      user values           lua_pcallk                        yes            64 bits
 *   5.3      a table, user value   lua_pcallk                        no             64 bits
 *   5.1      a table, environment  none: Lua's own pcall (halves.c)  no             a double
 *
 * LuaJIT has the interface of 5.1 and loads the module that is built for it.  Its hooks are the
 * whole state's, not a coroutine's. */
#ifndef NEAP_COMPAT_H
#define NEAP_COMPAT_H

#include <stdint.h>

#include "lua.h"
#include "lauxlib.h"

#if LUA_VERSION_NUM >= 503
#define COMPAT_HAS_PCALLK          1
#define compat_isinteger(L, index) lua_isinteger((L), (index))
#define compat_pushwide(L, n)      lua_pushinteger((L), (lua_Integer)(n))
#else
#define COMPAT_HAS_PCALLK          0
#define compat_isinteger(L, index) 0
#define compat_pushwide(L, n)      lua_pushnumber((L), (lua_Number)(n))
#endif

#if LUA_VERSION_NUM >= 504
#define COMPAT_HAS_CLOSE           1
#define compat_new(L, size, refs)  lua_newuserdatauv((L), (size), (refs))
#define compat_getref(L, index, n) ((void)lua_getiuservalue((L), (index), (n)))
#define compat_setref(L, index, n) ((void)lua_setiuservalue((L), (index), (n)))
#define compat_close(L, index)     lua_toclose((L), (index))
#else
#define COMPAT_HAS_CLOSE       0
#define compat_close(L, index) ((void)0)

#if LUA_VERSION_NUM >= 503
#define compat_getowned(L, index) ((void)lua_getuservalue((L), (index)))
#define compat_setowned(L, index) lua_setuservalue((L), (index))
#else
#define compat_getowned(L, index) lua_getfenv((L), (index))
#define compat_setowned(L, index) ((void)lua_setfenv((L), (index)))
#endif

static inline void *compat_new(lua_State *L, size_t size, int refs) {
  void *made = lua_newuserdata(L, size);
  if (!refs) return made;
  lua_createtable(L, refs, 0);
  compat_setowned(L, -2);
  return made;
}

static inline void compat_getref(lua_State *L, int index, int n) {
  compat_getowned(L, index);
  lua_rawgeti(L, -1, n);
  lua_remove(L, -2);
}

/* Takes the value on top; `index` must not be relative to it. */
static inline void compat_setref(lua_State *L, int index, int n) {
  compat_getowned(L, index);
  lua_insert(L, -2);
  lua_rawseti(L, -2, n);
  lua_pop(L, 1);
}
#endif

#ifndef LUA_OK
#define LUA_OK 0
#endif

/* How many of the lowest bits are 0; n is not. */
static inline int compat_zeros(uint64_t n) {
#ifdef __GNUC__
  return __builtin_ctzll(n);
#else
  int zeros = 0;
  for (; !(n & 1); n >>= 1) zeros++;
  return zeros;
#endif
}

/* Resumes `co` with `args` values on its stack; *results is how many it left there. */
static inline int compat_resume(lua_State *co, lua_State *from, int args, int *results) {
#if LUA_VERSION_NUM >= 504
  return lua_resume(co, from, args, results);
#else
#if LUA_VERSION_NUM >= 502
  int status = lua_resume(co, from, args);
#else
  int status = lua_resume(co, args);
  (void)from;
#endif
  *results = lua_gettop(co);
  return status;
#endif
}

/* The hook that a coroutine's may take the place of: somebody else's, if hooks are global. */
typedef struct compat_hook {
  lua_Hook hook;
  int mask, count;
} compat_hook;

static inline compat_hook compat_gethook(lua_State *co) {
#if LUA_VERSION_NUM >= 502
  (void)co;
  return (compat_hook){NULL, 0, 0};
#else
  return (compat_hook){lua_gethook(co), lua_gethookmask(co), lua_gethookcount(co)};
#endif
}

static inline void compat_sethook(lua_State *co, compat_hook outer) {
#if LUA_VERSION_NUM >= 502
  (void)co, (void)outer;
#else
  lua_sethook(co, outer.hook, outer.mask, outer.count);
#endif
}

#if LUA_VERSION_NUM < 502
static inline void compat_setfuncs(lua_State *L, const luaL_Reg *reg, int upvalues) {
  for (; reg->name; reg++) {
    for (int i = 0; i < upvalues; i++) lua_pushvalue(L, -upvalues);
    lua_pushcclosure(L, reg->func, upvalues);
    lua_setfield(L, -(upvalues + 2), reg->name);
  }
  lua_pop(L, upvalues);
}
#define luaL_setfuncs(L, reg, upvalues) compat_setfuncs((L), (reg), (upvalues))
#define luaL_setmetatable(L, name)      (luaL_getmetatable((L), (name)), (void)lua_setmetatable((L), -2))
#define lua_rawlen(L, index)            lua_objlen((L), (index))
#define LUA_OPLT                        1
#define lua_compare(L, a, b, op)        lua_lessthan((L), (a), (b))
#define lua_rawgeti(L, index, n)        compat_rawgeti((L), (index), (n))
#define lua_rawseti(L, index, n)        (lua_rawseti)((L), (index), (int)(n))

static inline void compat_rawgeti(lua_State *L, int index, lua_Integer n) {
  if (n == (int)n) {
    (lua_rawgeti)(L, index, (int)n);
  } else { /* which no list has */
    lua_pushnumber(L, (lua_Number)n);
    lua_rawget(L, index > 0 || index <= LUA_REGISTRYINDEX ? index : index - 1);
  }
}
#endif

#endif
