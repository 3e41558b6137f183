/* engine.c: opening and closing an engine, and its guards by name. */
#include "engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#define BREAKERS     1024u
#define MEMORY_BYTES ((size_t)64 << 20)

/* ---- Opening --------------------------------------------------------------------------------- */

typedef struct opening {
  neap_engine *engine;
  const neap_engine_options *options;
  char *error;
  size_t size;
  bool done;
} opening;

static int l_now(lua_State *L) {
  const neap_engine *e = engine_of(L);
  lua_pushinteger(L, (lua_Integer)e->clock.now_ms(e->clock.context));
  return 1;
}

/* attach(name, guard): a guard for C to find; answers its handle. */
static int l_attach(lua_State *L) {
  neap_engine *e = engine_of(L);
  size_t length;
  const char *name = luaL_checklstring(L, 1, &length);
  luaL_checkany(L, 2);
  lua_settop(L, 2);
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  neap_guard *g = (neap_guard *)calloc(1, sizeof *g + length + 1);
  if (!g) return luaL_error(L, "no memory for guard %s", name);
  g->engine = e;
  g->ref = ref;
  g->first_good = LUA_NOREF;
  memcpy(g->name, name, length + 1);
  *e->guards_end = g;
  e->guards_end = &g->next;
  lua_pushlightuserdata(L, g);
  return 1;
}

static bool flag(lua_State *L, const char *name) {
  lua_getfield(L, 5, name);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

/* renew(handle, rules, number, timeout_ms, flags, causes): a new generation serves. */
static int l_renew(lua_State *L) {
  neap_guard *g = (neap_guard *)lua_touserdata(L, 1);
  const neap_rules *rules = neap__to_rules(L, 2);
  luaL_argcheck(L, rules, 2, "rules expected");
  g->rules = rules;
  g->number = (uint32_t)lua_tointeger(L, 3);
  g->timeout_ms = (uint32_t)lua_tointeger(L, 4);
  g->causes = (uint32_t)lua_tointeger(L, 6);
  g->classifies = flag(L, "classifies");
  g->maps = flag(L, "maps");
  g->asks = flag(L, "asks");
  g->shadows = flag(L, "shadows");
  g->wants_body = g->classifies || flag(L, "remembers");
  g->remembers = flag(L, "remembers");
  g->has_keys = flag(L, "has_keys");
  g->revalidates = flag(L, "revalidates");
  lua_getfield(L, 5, "same_ms");
  g->same_ms = (uint32_t)lua_tointeger(L, -1);
  lua_getfield(L, 5, "deadline_ms");
  g->deadline_ms = (uint32_t)lua_tointeger(L, -1);
  lua_getfield(L, 5, "wait_ms");
  g->wait_ms = (uint32_t)lua_tointeger(L, -1);
  g->retries = flag(L, "retries");
  memset(g->kept, 0, sizeof g->kept);
  luaL_unref(L, LUA_REGISTRYINDEX, g->first_good);
  g->first_good = LUA_NOREF;
  if (lua_getfield(L, 5, "first_good") != LUA_TNIL) g->first_good = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

/* successes(list): the statuses that are successes to the shipped classifier. */
static int l_successes(lua_State *L) {
  neap_engine *e = engine_of(L);
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    lua_Integer i = lua_tointeger(L, -1) - 200;
    if (i >= 0 && i < (lua_Integer)(sizeof e->is_success / sizeof *e->is_success))
      e->is_success[i] = true;
  }
  return 0;
}

static void push_paths(lua_State *L, const char *const *paths, size_t count) {
  lua_createtable(L, (int)count, 0);
  for (size_t i = 0; i < count; i++) {
    lua_pushstring(L, paths[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_options(lua_State *L, const neap_engine_options *o) {
  static const luaL_Reg functions[] = {
      {"now", l_now},
      {"attach", l_attach},
      {"renew", l_renew},
      {"successes", l_successes},
      {"forget", engine_l_forget},
      {"notify", engine_l_notify},
      {"log", engine_l_log},
      {"kept", engine_l_kept},
      {"pack", engine_l_pack},
      {"unpack", engine_l_unpack},
      {"has_etag", engine_l_has_etag},
      {NULL, NULL},
  };
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  push_paths(L, o->policies, o->policy_count);
  lua_setfield(L, -2, "paths");
  push_paths(L, o->params, o->param_count);
  lua_setfield(L, -2, "params");
  lua_pushinteger(L, o->max_breakers ? o->max_breakers : BREAKERS);
  lua_setfield(L, -2, "max_breakers");
  if (o->clock.now_ms)
    lua_pushcfunction(L, l_now);
  else
    lua_pushliteral(L, "precise");
  lua_setfield(L, -2, "clock");
  lua_pushboolean(L, !o->no_watch);
  lua_setfield(L, -2, "is_watching");
  lua_pushstring(L, o->state_dir); /* NULL: nil */
  lua_setfield(L, -2, "state_dir");
  if (o->on_replay) {
    lua_pushcfunction(L, engine_l_replay);
    lua_setfield(L, -2, "replay");
  }
}

/* require "neap.engine".open(options) -> true | nil, errors as one text */
static int start(lua_State *L) {
  opening *o = (opening *)lua_touserdata(L, 1);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.engine");
  lua_call(L, 1, 1);
  lua_pushvalue(L, -1);
  o->engine->module = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_getfield(L, -1, "open");
  push_options(L, o->options);
  lua_call(L, 1, 2);
  o->done = lua_toboolean(L, -2);
  if (!o->done) snprintf(o->error, o->size, "%s", luaL_tolstring(L, -1, NULL));
  return 0;
}

static void engine_free(neap_engine *e) {
  if (e->L) lua_close(e->L);
  for (neap_guard *g = e->guards, *next; g; g = next) {
    next = g->next;
    engine_guard_free(g);
  }
  free(e);
}

/* Errors while opening are the caller's to read; the rest goes where it always will. */
static void sort_line(void *data, neap_log_level level, const char *line) {
  opening *o = (opening *)data;
  if (level >= NEAP_LOG_ERROR && o->error[0] == '\0')
    snprintf(o->error, o->size, "%s", line);
  else if (o->options->on_log)
    o->options->on_log(o->options->data, level, line);
}

static bool open_lua(opening *o) {
  size_t bytes = o->options->lua_memory_bytes;
  return engine_lua_open(o->engine, bytes ? bytes : MEMORY_BYTES) &&
         engine_run(o->engine, start, o, "opening the engine") && o->done;
}

uint32_t neap_engine_abi(void) { return NEAP_ABI; }

bool neap_engine_open(uv_loop_t *loop, const neap_engine_options *options, neap_engine **out,
                      char *error, size_t size) {
  char unwanted[1];
  opening o = {.options = options, .error = size ? error : unwanted, .size = size ? size : 1};
  o.error[0] = '\0';
  neap_engine *e = o.engine = (neap_engine *)calloc(1, sizeof *e);
  if (!e) {
    snprintf(o.error, o.size, "no memory for an engine");
    return false;
  }
  e->loop = loop;
  e->owner = uv_thread_self();
  e->guards_end = &e->guards;
  e->clock = options->clock.now_ms ? options->clock : neap_clock_precise();
  e->on_log = sort_line;
  e->data = &o;
  bool done = open_lua(&o);
  e->on_log = options->on_log;
  e->on_event = options->on_event;
  e->on_replay = options->on_replay;
  e->data = options->data;
  if (done)
    *out = e;
  else if (e->L && engine_lua_held(e) > 0)
    neap_engine_close(e, NULL, NULL);
  else
    engine_free(e);
  return done;
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void on_closer_closed(uv_handle_t *closer) {
  neap_engine *e = (neap_engine *)closer->data;
  void (*closed)(void *data) = e->closed;
  void *data = e->closed_data;
  engine_free(e);
  if (closed) closed(data);
}

/* lua_close() must find no handle of Lua's on the loop: their last callbacks come a turn later. */
static void on_closer(uv_timer_t *closer) {
  neap_engine *e = (neap_engine *)closer->data;
  if (engine_lua_held(e) > 0) return;
  uv_close((uv_handle_t *)closer, on_closer_closed);
}

/* engine.close() */
static int flush(lua_State *L) {
  engine_push_function(L, "close");
  lua_call(L, 0, 0);
  return 0;
}

void neap_engine_close(neap_engine *e, void (*closed)(void *data), void *data) {
  assert(!e->is_closing);
  engine_close_durable(e);
  if (e->module) engine_run(e, flush, NULL, "closing files");
  engine_lua_release(e);
  e->is_closing = true;
  e->closed = closed;
  e->closed_data = data;
  e->closer.data = e;
  uv_timer_init(e->loop, &e->closer);
  uv_timer_start(&e->closer, on_closer, 0, 1);
}

/* ---- Guards by name -------------------------------------------------------------------------- */

neap_guard *neap_engine_guard(neap_engine *e, const char *name) {
  for (neap_guard *g = e->guards; g; g = g->next)
    if (strcmp(g->name, name) == 0) return g;
  return NULL;
}

neap_guard *neap_engine_guard_at(neap_engine *e, size_t i) {
  neap_guard *g = e->guards;
  while (g && i-- > 0) g = g->next;
  return g;
}

const char *neap_guard_name(const neap_guard *g) { return g->name; }

uint32_t neap_guard_timeout_ms(const neap_guard *g) { return g->timeout_ms; }

uint32_t neap_guard_deadline_ms(const neap_guard *g) { return g->deadline_ms; }

uint32_t neap_guard_wait_ms(const neap_guard *g) { return g->wait_ms; }
uint32_t neap_guard_lease_ms(const neap_guard *g) { return g->rules->lease_ms; }

size_t neap_guard_wants_body(const neap_guard *g) { return g->wants_body ? NEAP_BODY_MAX : 0; }

struct lua_State *neap_engine_lua(neap_engine *e) {
  return e->L;
}
