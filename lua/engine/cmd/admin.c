/* admin.c: what the admin pages may ask of the program, and their opening and closing. */
#include "admin.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>

#include "numbers.h"

/* ---- What the pages may call ----------------------------------------------------------------- */

static serve *serve_up(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

/* token() -> what clients must know, or nil */
static int l_token(lua_State *L) {
  const admin *a = serve_up(L)->admin;
  if (!a || !a->has_token) return 0;
  lua_pushstring(L, a->token);
  return 1;
}

/* health() -> "ok" | "draining" */
static int l_health(lua_State *L) {
  lua_pushstring(L, serve_up(L)->is_draining ? "draining" : "ok");
  return 1;
}

/* reload() -> reloaded, failed, why the token file was refused or nil */
static int l_reload(lua_State *L) {
  char error[1024];
  size_t failed = 0;
  size_t reloaded = serve_reload(serve_up(L), &failed, error, sizeof error);
  lua_pushinteger(L, (lua_Integer)reloaded);
  lua_pushinteger(L, (lua_Integer)failed);
  if (!error[0]) return 2;
  lua_pushstring(L, error);
  return 3;
}

#define FIELDS_MAX 12

/* log(level, event, message, { { name, value } ... }): the command's Lua is another one, so fields
 * go over one by one. */
static int l_log(lua_State *L) {
  serve *s = serve_up(L);
  static const char *const levels[] = {"info", "warn", "error", NULL};
  int level = luaL_checkoption(L, 1, NULL, levels);
  const char *event = luaL_checkstring(L, 2), *message = luaL_checkstring(L, 3);
  luaL_checktype(L, 4, LUA_TTABLE);
  lua_Integer given = (lua_Integer)lua_rawlen(L, 4), most = given < FIELDS_MAX ? given : FIELDS_MAX;
  luaL_checkstack(L, 4 * FIELDS_MAX + 4, NULL);
  log_field fields[FIELDS_MAX];
  size_t count = 0;
  for (lua_Integer i = 1; i <= most; i++) {
    lua_rawgeti(L, 4, i); /* stays on the stack, and so do its texts */
    lua_rawgeti(L, -1, 1);
    const char *name = lua_tostring(L, -1);
    lua_rawgeti(L, -2, 2);
    if (!name || lua_isnil(L, -1)) continue;
    bool is_number = lua_type(L, -1) == LUA_TNUMBER;
    fields[count++] =
        (log_field){name, is_number ? NULL : luaL_tolstring(L, -1, NULL), lua_tonumber(L, -1)};
  }
  log_line(s->L, s->plan.log, (log_level)level, event, fields, count, "%s", message);
  return 0;
}

/* numbers() -> { server =, admin =, routes =, process = } */
static int l_numbers(lua_State *L) {
  numbers_push(L, serve_up(L));
  return 1;
}

/* { { policy =, key = } ... } */
static void push_routes(lua_State *L, const plan *p) {
  lua_newtable(L);
  for (size_t i = 0; i < p->route_count; i++) {
    lua_newtable(L);
    lua_pushstring(L, p->routes[i].policy);
    lua_setfield(L, -2, "policy");
    lua_pushstring(L, p->routes[i].key);
    lua_setfield(L, -2, "key");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static int l_open(lua_State *L) {
  admin *a = lua_touserdata(L, 1);
  static const luaL_Reg host[] = {{"token", l_token}, {"health", l_health},   {"reload", l_reload},
                                  {"log", l_log},     {"numbers", l_numbers}, {NULL, NULL}};
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cmd.pages");
  lua_call(L, 1, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, a->serve);
  luaL_setfuncs(L, host, 1);
  push_routes(L, &a->serve->plan);
  lua_setfield(L, -2, "routes");
  lua_call(L, 1, 1);
  a->handle = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

bool admin_reload(admin *a, char *error, size_t size) {
  if (!a->serve->plan.token_file) return true;
  if (!token_read(a->serve->plan.token_file, a->token, error, size)) return false;
  a->has_token = true;
  return true;
}

bool admin_open(serve *s, admin **out, char *error, size_t size) {
  admin *a = calloc(1, sizeof *a);
  if (!a) abort();
  a->serve = s;
  a->handle = LUA_NOREF;
  if (!admin_reload(a, error, size)) return free(a), false;
  lua_State *L = admin_lua(a);
  lua_pushcfunction(L, l_open);
  lua_pushlightuserdata(L, a);
  if (!neap_engine_pcall(s->engine, 1, 0)) {
    snprintf(error, size, "the admin pages: %s", lua_tostring(L, -1));
    lua_pop(L, 1);
    return free(a), false;
  }
  uv_idle_init(&s->loop, &a->wake);
  a->wake.data = a;
  *out = a;
  return true;
}

static void on_closed(uv_handle_t *wake) { free(wake->data); }

void admin_close(admin *a) {
  if (!a) return;
  luaL_unref(admin_lua(a), LUA_REGISTRYINDEX, a->handle);
  uv_close((uv_handle_t *)&a->wake, on_closed);
}
