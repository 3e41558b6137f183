/* bench_floor: for lua.lua, what it can't do itself, and floors: an object and pairs of closures
 * that do nothing. */
#include <time.h>
#include <valgrind/callgrind.h>

#include "compat.h"

static int l_nothing(lua_State *L) {
  lua_pushinteger(L, 1);
  return 1;
}

static int l_object(lua_State *L) {
  lua_newuserdata(L, 8);
  luaL_setmetatable(L, "bench.object");
  return 1;
}

/* nothing_pair() -> acquire, report */
static int l_nothing_pair(lua_State *L) {
  lua_pushcfunction(L, l_nothing);
  lua_pushcfunction(L, l_nothing);
  return 2;
}

/* The calls into Lua that neap's bound closures can't do without, and nothing else: for their own
 * data, for a number and a string and no more as arguments, and for an answer. */
static int l_asking_acquire(lua_State *L) {
  lua_touserdata(L, lua_upvalueindex(1));
  lua_pushinteger(L, 1);
  return 1;
}

static int l_asking_report(lua_State *L) {
  lua_touserdata(L, lua_upvalueindex(1));
  lua_gettop(L);
#if LUA_VERSION_NUM >= 503
  lua_isinteger(L, 1);
  lua_tointeger(L, 1);
#else
  lua_type(L, 1);
  lua_tonumber(L, 1);
#endif
  lua_topointer(L, 2);
  lua_pushvalue(L, lua_upvalueindex(2));
  return 1;
}

/* asking_pair() -> acquire, report */
static int l_asking_pair(lua_State *L) {
  lua_settop(L, 0);
  lua_newuserdata(L, 8);
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, l_asking_acquire, 1);
  lua_pushvalue(L, 1);
  lua_pushliteral(L, "counted");
  lua_pushcclosure(L, l_asking_report, 2);
  return 2;
}

static int l_cpu_ns(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  lua_pushnumber(L, (lua_Number)t.tv_sec * 1e9 + (lua_Number)t.tv_nsec);
  return 1;
}

/* count(name, f, n): runs f(n) and has callgrind dump what it executed, under that name. */
static int l_count(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 3);
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
  lua_call(L, 1, 0);
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT(name);
  return 0;
}

int luaopen_bench_floor(lua_State *L) {
  static const luaL_Reg methods[] = {{"nothing", l_nothing}, {NULL, NULL}};
  static const luaL_Reg functions[] = {
      {"object", l_object},
      {"nothing_pair", l_nothing_pair},
      {"asking_pair", l_asking_pair},
      {"cpu_ns", l_cpu_ns},
      {"count", l_count},
      {NULL, NULL},
  };
  luaL_newmetatable(L, "bench.object");
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  return 1;
}
