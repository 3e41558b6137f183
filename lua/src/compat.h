/* compat.h: every difference between the Lua versions that the binding is built for.
 *
 *            refs of a userdata        call that can be yielded across   to-be-closed   integers
 *   5.4      user values               lua_pcallk                        yes            64 bits
 *   5.3      a table, user value       lua_pcallk                        no             64 bits
 *   5.1, JIT a table, environment      none: guard:call is not offered   no             a double
 */
#ifndef NEAP_COMPAT_H
#define NEAP_COMPAT_H

#include <stdint.h>

#include "lua.h"
#include "lauxlib.h"

#if LUA_VERSION_NUM >= 503
#define COMPAT_HAS_PCALLK          1
#define compat_isinteger(L, index) lua_isinteger((L), (index))
#define compat_pushwide(L, n)      lua_pushinteger((L), (lua_Integer)(n))
#define compat_towide(L, index)    ((uint64_t)lua_tointeger((L), (index)))
#else
#define COMPAT_HAS_PCALLK          0
#define compat_isinteger(L, index) 0
#define compat_pushwide(L, n)      lua_pushnumber((L), (lua_Number)(n))
#define compat_towide(L, index)    ((uint64_t)lua_tonumber((L), (index)))
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
#endif

#endif
