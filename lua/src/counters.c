/* counters.c: rows of numbers in a panel. */
#include "panel.h"

typedef struct box_counters {
  neap_counters *counters;
  const box_panel *panel;
} box_counters;
enum { COUNTERS_PANEL = 1, COUNTERS_REFS = 1 };

void neap__push_counters(lua_State *L, int panel_index, neap_counters *counters) {
  box_counters *box = (box_counters *)compat_new(L, sizeof *box, COUNTERS_REFS);
  box->counters = counters;
  box->panel = (const box_panel *)lua_touserdata(L, panel_index);
  lua_pushvalue(L, panel_index);
  compat_setref(L, -2, COUNTERS_PANEL);
  luaL_setmetatable(L, NEAP__COUNTERS);
}

static neap_counters *check_counters(lua_State *L, int arg) {
  const box_counters *box = (const box_counters *)luaL_checkudata(L, arg, NEAP__COUNTERS);
  luaL_argcheck(L, box->panel->panel, arg, "their panel is closed");
  return box->counters;
}

static uint32_t check_index(lua_State *L, int arg) {
  return (uint32_t)neap__check_count(L, arg, "index", 1, NEAP_COUNTERS) - 1;
}

/* counters:add(index [, n]) */
static int l_add(lua_State *L) {
  neap_counters *counters = check_counters(L, 1);
  uint32_t i = check_index(L, 2);
  uint64_t n = 1;
  if (!lua_isnoneornil(L, 3)) n = neap__check_count(L, 3, "n", 0, UINT64_C(1) << 53);
  neap_counters_add(counters, i, n);
  return 0;
}

/* counters:get(index) -> n */
static int l_get(lua_State *L) {
  neap_counters *counters = check_counters(L, 1);
  compat_pushwide(L, neap_counters_read(counters, check_index(L, 2)));
  return 1;
}

/* counters:name() -> name */
static int l_name(lua_State *L) {
  lua_pushstring(L, neap_counters_name(check_counters(L, 1)));
  return 1;
}

void neap__open_counters(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"add", l_add}, {"get", l_get}, {"name", l_name}, {NULL, NULL}};
  luaL_newmetatable(L, NEAP__COUNTERS);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
}
