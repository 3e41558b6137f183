/* events.c: between neap.cmd.events and the loop: wakes followers, posts to the webhook. */
#include "events.h"

#include <lauxlib.h>
#include <stdio.h>

#include "admin.h"
#include "webhook.h"

static serve *serve_up(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

/* wake(): followers have something more to be sent */
static int l_wake(lua_State *L) {
  serve *s = serve_up(L);
  if (s->admin) admin_wake(s->admin);
  return 0;
}

/* post(id, body): to the webhook */
static int l_post(lua_State *L) {
  serve *s = serve_up(L);
  size_t length;
  const char *id = luaL_checkstring(L, 1), *body = luaL_checklstring(L, 2, &length);
  if (s->webhook) webhook_post(s->webhook, id, body, length);
  return 0;
}

/* log("info" | "warn", text) */
static int l_log(lua_State *L) {
  static const char *const levels[] = {"info", "warn", "error", NULL};
  int level = luaL_checkoption(L, 1, NULL, levels);
  serve_log(serve_up(L), (log_level)level, "webhook", "%s", luaL_checkstring(L, 2));
  return 0;
}

static void call(serve *s, const char *name, int arguments) {
  lua_State *L = neap_engine_lua(s->engine);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cmd.events");
  bool ok = neap_engine_pcall(s->engine, 1, 1);
  if (ok) {
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    lua_insert(L, -1 - arguments);
    ok = neap_engine_pcall(s->engine, arguments, 0);
  }
  if (ok) return;
  serve_log(s, LOG_ERROR, "webhook", "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
}

static void on_told(void *data, int status, const char *error) {
  serve *s = data;
  lua_State *L = neap_engine_lua(s->engine);
  if (status)
    lua_pushinteger(L, status);
  else
    lua_pushnil(L);
  lua_pushstring(L, error);
  call(s, "posted", 2);
}

/* require("neap.cmd.events").open { wake =, kept =, post =, log =, webhook = host or nil } */
static int l_open(lua_State *L) {
  static const luaL_Reg host[] = {{"wake", l_wake}, {"post", l_post}, {"log", l_log}, {NULL, NULL}};
  const serve *s = lua_touserdata(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cmd.events");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "open");
  lua_newtable(L);
  lua_pushvalue(L, 1);
  luaL_setfuncs(L, host, 1);
  lua_pushinteger(L, EVENTS_KEPT);
  lua_setfield(L, -2, "kept");
  lua_pushstring(L, s->plan.webhook.host);
  lua_setfield(L, -2, "webhook");
  lua_call(L, 1, 0);
  return 0;
}

bool events_open(serve *s, char *error, size_t size) {
  if (s->plan.webhook.origin && !webhook_open(s, on_told, &s->webhook, error, size)) return false;
  lua_State *L = neap_engine_lua(s->engine);
  lua_pushcfunction(L, l_open);
  lua_pushlightuserdata(L, s);
  if (neap_engine_pcall(s->engine, 1, 0)) return true;
  snprintf(error, size, "events: %s", lua_tostring(L, -1));
  lua_pop(L, 1);
  return false;
}

bool events_reload(serve *s, char *error, size_t size) {
  return !s->webhook || webhook_reload(s->webhook, error, size);
}

void events_close(serve *s) {
  if (!s->webhook) return;
  call(s, "close", 0);
  webhook_close(s->webhook);
  s->webhook = NULL;
}
