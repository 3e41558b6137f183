/* core.c: the module neap.core. */
#include "binding.h"

#include <time.h>
#include <unistd.h>

#include "files.h"
#include "nginx.h"
#include "sandbox.h"

/* protect(f, ...) -> true, results | false, error.  As pcall, but nothing in it can yield: for
 * handlers that run in the middle of somebody's call. */
static int l_protect(lua_State *L) {
  luaL_checkany(L, 1);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  if (lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0) == 0) return lua_gettop(L);
  lua_pushboolean(L, 0);
  lua_replace(L, 1);
  return 2;
}

uint64_t neap__entropy(void) {
  uint64_t bits;
  if (getentropy(&bits, sizeof bits) == 0) return bits;
  return (uint64_t)(uintptr_t)&bits ^ (uint64_t)time(NULL) << 32 ^ (uint64_t)getpid();
}

/* seed() -> a whole number under 2^53 that no other process is likely to have */
static int l_seed(lua_State *L) {
  compat_pushwide(L, neap__entropy() >> 11);
  return 1;
}

/* The upper bounds of the histograms of durations, but the last, which has none. */
static void push_bounds(lua_State *L) {
  lua_createtable(L, NEAP_DURATION_BUCKETS - 1, 0);
  for (int i = 0; i < NEAP_DURATION_BUCKETS - 1; i++) {
    compat_pushwide(L, neap_duration_bounds_ms[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Metatables come first: functions have them as upvalues. */
static void new_metatable(lua_State *L, const char *name) {
  luaL_newmetatable(L, name);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

NEAP_API int luaopen_neap_core(lua_State *L);

int luaopen_neap_core(lua_State *L) {
  new_metatable(L, NEAP__PANEL);
  new_metatable(L, NEAP__BREAKER);
  new_metatable(L, NEAP__RULES);
  new_metatable(L, NEAP__PERMIT);
  new_metatable(L, NEAP__LINE);
  lua_newtable(L);
  lua_pushstring(L, NEAP_VERSION);
  lua_setfield(L, -2, "version");
  lua_pushcfunction(L, l_protect);
  lua_setfield(L, -2, "protect");
  lua_pushcfunction(L, l_seed);
  lua_setfield(L, -2, "seed");
  push_bounds(L);
  lua_setfield(L, -2, "duration_bounds_ms");
  neap__open_rules(L);
  neap__open_panel(L);
  neap__open_breaker(L);
  neap__open_permit(L);
  neap__open_clock(L);
  neap__open_line(L);
  neap__open_files(L);
  neap__open_durable(L);
  neap__open_sandbox(L);
  neap__open_nginx(L);
  return 1;
}
