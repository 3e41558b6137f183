/* panel_shared.c: panels in a file that processes share.
 *
 * Closing one only says so: its memory goes when nobody holds it or a breaker of it, since one may
 * be at work just now. */
#include "panel.h"

#define CAPACITY_MAX 4194304

/* panel_shared(path [, capacity]) -> panel, notice | nil, message */
static int l_panel_shared(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) neap__argument_error(L, 1, "path", "a string");
  size_t length;
  const char *path = lua_tolstring(L, 1, &length);
  if (strlen(path) != length) neap__argument_error(L, 1, "path", "a string without zero bytes");
  uint32_t capacity = 0;
  if (!lua_isnoneornil(L, 2))
    capacity = (uint32_t)neap__check_count(L, 2, "capacity", 1, CAPACITY_MAX);
  box_shared *box = (box_shared *)compat_new(L, sizeof *box, 0);
  *box = (box_shared){.is_lent = false};
  luaL_getmetatable(L, NEAP__PANEL_SHARED);
  lua_setmetatable(L, -2);
  neap_shared_problem problem;
  if (!neap_shared_open(&box->shared, path, capacity, &problem)) {
    lua_pushnil(L);
    lua_pushstring(L, problem.text);
    return 2;
  }
  box->box.panel = box->shared.panel;
  if (box->shared.notice[0] == 0) return 1;
  lua_pushstring(L, box->shared.notice);
  return 2;
}

static int l_gc(lua_State *L) {
  box_shared *box = (box_shared *)luaL_checkudata(L, 1, NEAP__PANEL_SHARED);
  box->box = (box_panel){.panel = NULL, .is_gone = true};
  if (box->shared.panel && !box->is_lent) neap_shared_close(&box->shared);
  return 0;
}

void neap__open_panel_shared(lua_State *L) {
  luaL_newmetatable(L, NEAP__PANEL_SHARED);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  neap__set_panel_methods(L);
  lua_pushcfunction(L, l_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  lua_pushcfunction(L, l_panel_shared);
  lua_setfield(L, -2, "panel_shared");
}
