/* events.c: from neap.cmd.events to the followers of the admin pages. */
#include "events.h"

#include <lauxlib.h>
#include <stdio.h>

#include "admin.h"

static serve *serve_up(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

/* wake(): followers have something more to be sent */
static int l_wake(lua_State *L) {
  serve *s = serve_up(L);
  if (s->admin) admin_wake(s->admin);
  return 0;
}

/* require("neap.cmd.events").open { wake =, kept = } */
static int l_open(lua_State *L) {
  static const luaL_Reg host[] = {{"wake", l_wake}, {NULL, NULL}};
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cmd.events");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "open");
  lua_newtable(L);
  lua_pushvalue(L, 1);
  luaL_setfuncs(L, host, 1);
  lua_pushinteger(L, EVENTS_KEPT);
  lua_setfield(L, -2, "kept");
  lua_call(L, 1, 0);
  return 0;
}

bool events_open(serve *s, char *error, size_t size) {
  lua_State *L = neap_engine_lua(s->engine);
  lua_pushcfunction(L, l_open);
  lua_pushlightuserdata(L, s);
  if (neap_engine_pcall(s->engine, 1, 0)) return true;
  snprintf(error, size, "events: %s", lua_tostring(L, -1));
  lua_pop(L, 1);
  return false;
}
