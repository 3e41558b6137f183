/* engine_operate.c: what operators ask of a guard and do to it by hand. */
#include "engine_internal.h"

bool neap_guard_snapshot(neap_guard *g, const char *key, size_t key_length, neap_snapshot *out) {
  const engine_line *l = engine_line_of(g, key, key_length, false);
  if (!l) return false;
  neap_breaker_snapshot(l->breaker, g->rules, engine_now_ms(g->engine), out);
  return true;
}

typedef struct operating {
  const char *function;
  neap_guard *guard;
  const engine_line *line;
  neap_mode mode;
  uint64_t for_ms;
  const char *by, *reason;
  bool done;
} operating;

/* engine.operate(guard, function, key, by, reason, mode, for_ms) -> true | nil, message */
static int operate(lua_State *L) {
  operating *o = (operating *)lua_touserdata(L, 1);
  engine_push_function(L, o->function);
  lua_rawgeti(L, LUA_REGISTRYINDEX, o->guard->ref);
  lua_pushlstring(L, o->line->key, o->line->length);
  lua_pushstring(L, o->by);
  lua_pushstring(L, o->reason);
  lua_pushstring(L, o->mode == NEAP_MODE_OF_RULES ? NULL : neap_mode_name(o->mode));
  if (o->for_ms)
    lua_pushinteger(L, (lua_Integer)o->for_ms);
  else
    lua_pushnil(L);
  lua_call(L, 6, 1);
  o->done = lua_toboolean(L, -1);
  return 0;
}

bool neap_guard_set_mode(neap_guard *g, const char *key, size_t key_length, neap_mode mode,
                         uint64_t for_ms, const char *by, const char *reason) {
  operating o = {"mode", g,    engine_line_of(g, key, key_length, false), mode, for_ms, by,
                 reason, false};
  return o.line && !g->engine->is_closing && engine_run(g->engine, operate, &o, g->name) && o.done;
}

bool neap_guard_reset(neap_guard *g, const char *key, size_t key_length, const char *by) {
  operating o = {"reset", g,    engine_line_of(g, key, key_length, false), NEAP_AUTO, 0, by,
                 NULL,    false};
  return o.line && !g->engine->is_closing && engine_run(g->engine, operate, &o, g->name) && o.done;
}

typedef struct reloading {
  size_t reloaded, failed;
} reloading;

/* engine.reload() -> reloaded, failed */
static int reload(lua_State *L) {
  reloading *r = (reloading *)lua_touserdata(L, 1);
  engine_push_function(L, "reload");
  lua_call(L, 0, 2);
  r->reloaded = (size_t)lua_tointeger(L, -2);
  r->failed = (size_t)lua_tointeger(L, -1);
  return 0;
}

size_t neap_engine_reload(neap_engine *e, size_t *failed) {
  reloading r = {0, 0};
  if (!e->is_closing) engine_run(e, reload, &r, "reloading");
  if (failed) *failed = r.failed;
  return r.reloaded;
}
