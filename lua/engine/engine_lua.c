/* engine_lua.c: the engine's Lua state: memory with a cap, neap's modules from inside the library,
 * luv on the engine's loop, and protected calls. */
#include "engine_internal.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes" /* one in luv's own header */
#include <luv/luv.h>
#pragma GCC diagnostic pop

#include "lualib.h"

#include "embedded.h"

#define STACK_ROOM     32 /* for one entry from C, whoever is below it */
#define FAULT_EVERY_MS 1000

int luaopen_neap_core(lua_State *L);

/* ---- Protected calls ------------------------------------------------------------------------- */

/* The message handler.  Errors may be any value; no metamethod is asked for its text. */
static int on_error(lua_State *L) {
  const char *message = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
  if (!message) message = lua_pushfstring(L, "an error that is a %s", luaL_typename(L, 1));
  luaL_traceback(L, L, message, 1);
  return 1;
}

bool neap_engine_pcall(neap_engine *e, int arguments, int results) {
  lua_State *L = e->L;
  int function = lua_gettop(L) - arguments;
  lua_pushcfunction(L, on_error);
  lua_insert(L, function);
  int status = lua_pcall(L, arguments, results, function);
  lua_remove(L, function);
  return status == LUA_OK;
}

/* The error on top of the stack.  Memory may run out in the handler too: then it is anything. */
static const char *error_text(lua_State *L) {
  return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error without a message";
}

void engine_push_function(lua_State *L, const char *name) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, engine_of(L)->module);
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
}

/* A fault of the engine's own, or memory that has run out: maybe at each call, not in the log. */
static void log_fault(neap_engine *e, const char *what, const char *message) {
  uint64_t now_ms = uv_hrtime() / 1000000;
  e->faults++;
  if (e->fault_ms && now_ms - e->fault_ms < FAULT_EVERY_MS) return;
  engine_log(e, NEAP_LOG_ERROR, "%s: %s (fault %llu of the engine)", what, message,
             (unsigned long long)e->faults);
  e->fault_ms = now_ms;
}

bool engine_run(neap_engine *e, lua_CFunction f, void *argument, const char *what) {
  lua_State *L = e->L;
  int top = lua_gettop(L);
  engine_assert_owner(e);
  if (!lua_checkstack(L, STACK_ROOM)) {
    log_fault(e, what, "no memory for the Lua stack");
    return false;
  }
  lua_pushcfunction(L, f);
  lua_pushlightuserdata(L, argument);
  e->depth++;
  bool ok = neap_engine_pcall(e, 1, 0);
  e->depth--;
  if (!ok) {
    log_fault(e, what, error_text(L));
    lua_pop(L, 1);
  }
  assert(lua_gettop(L) == top);
  (void)top;
  return ok;
}

/* How luv calls back.  Its own way prints and ends the process on an error. */
static int on_loop(lua_State *L, int arguments, int results, int flags) {
  (void)flags;
  neap_engine *e = engine_of(L);
  int function = lua_gettop(L) - arguments;
  if (e->is_closing) {
    lua_settop(L, function - 1);
    return -LUA_ERRRUN;
  }
  lua_pushcfunction(L, on_error);
  lua_insert(L, function);
  int status = lua_pcall(L, arguments, results, function);
  lua_remove(L, function);
  if (status == LUA_OK) return results == LUA_MULTRET ? lua_gettop(L) - function + 1 : results;
  engine_log(e, NEAP_LOG_ERROR, "in a callback of the loop: %s", error_text(L));
  lua_pop(L, 1);
  return -status;
}

/* Only memory that runs out between two protected calls gets here; Lua then aborts. */
static int on_panic(lua_State *L) {
  engine_log(engine_of(L), NEAP_LOG_ERROR, "Lua cannot go on: %s", error_text(L));
  return 0;
}

/* ---- Modules --------------------------------------------------------------------------------- */

/* package.preload's entry for an embedded module. */
static int load_module(lua_State *L) {
  const neap__embedded *m = (const neap__embedded *)lua_touserdata(L, lua_upvalueindex(1));
  if (luaL_loadbufferx(L, m->text, m->length, m->chunk, "t") != LUA_OK) return lua_error(L);
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static int prepare(lua_State *L) {
  neap_engine *e = (neap_engine *)lua_touserdata(L, 1);
  luaL_openlibs(L);
  neap__sandbox_strings(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  for (const neap__embedded *m = neap__embedded_modules; m->name; m++) {
    lua_pushlightuserdata(L, (void *)m);
    lua_pushcclosure(L, load_module, 1);
    lua_setfield(L, -2, m->name);
  }
  lua_pushcfunction(L, luaopen_neap_core);
  lua_setfield(L, -2, "neap.core");
  luv_set_loop(L, e->loop);
  luv_set_callback(L, on_loop);
  lua_pushcfunction(L, luaopen_luv);
  lua_setfield(L, -2, "luv");
  engine_open_call(L);
  engine_open_answer(L);
  return 0;
}

bool engine_lua_open(neap_engine *e, size_t memory_bytes) {
  e->arena.cap = memory_bytes;
  e->L = lua_newstate(neap__arena_alloc, &e->arena);
  if (!e->L) {
    engine_log(e, NEAP_LOG_ERROR, "no memory for a Lua state");
    return false;
  }
  lua_atpanic(e->L, on_panic);
  *(neap_engine **)lua_getextraspace(e->L) = e;
  return engine_run(e, prepare, e, "opening Lua");
}

/* ---- What Lua has on the loop ---------------------------------------------------------------- */

/* The luv object at the top of the stack, by the name of its metatable; or NULL. */
static void *luv_object(lua_State *L, const char *type) {
  void *object = luaL_testudata(L, -1, type);
  return object ? *(void **)object : NULL;
}

static uv_handle_t *luv_handle(lua_State *L) {
  uv_handle_t *handle = NULL;
#define X(upper, lower)                                                                            \
  if (!handle) handle = (uv_handle_t *)luv_object(L, "uv_" #lower);
  UV_HANDLE_TYPE_MAP(X)
#undef X
  return handle;
}

/* The object on top is one that luv keeps in the registry until its last callback has come. */
static bool is_held(lua_State *L) {
  return lua_type(L, -1) == LUA_TUSERDATA && (luv_handle(L) || luv_object(L, "uv_req"));
}

static int l_held(lua_State *L) {
  int *count = (int *)lua_touserdata(L, 1);
  *count = 0;
  lua_pushnil(L);
  for (; lua_next(L, LUA_REGISTRYINDEX); lua_pop(L, 1)) *count += is_held(L);
  return 0;
}

/* Pushes a list of them: closing one may change the registry.  Answers how many. */
static int push_held(lua_State *L) {
  lua_newtable(L);
  int list = lua_gettop(L), n = 0;
  lua_pushnil(L);
  for (; lua_next(L, LUA_REGISTRYINDEX); lua_pop(L, 1)) {
    if (!is_held(L)) continue;
    lua_pushvalue(L, -1);
    lua_rawseti(L, list, ++n);
  }
  return n;
}

static int l_release(lua_State *L) {
  int n = push_held(L), list = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_getfield(L, -1, "luv") != LUA_TTABLE) return 0;
  int luv = lua_gettop(L);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, list, i);
    uv_handle_t *handle = luv_handle(L);
    if (handle && uv_is_closing(handle)) continue;
    lua_getfield(L, luv, handle ? "close" : "cancel");
    lua_insert(L, -2);
    lua_pcall(L, 1, 0, 0); /* a request that cannot be cancelled ends by itself */
    lua_settop(L, luv);
  }
  return 0;
}

void engine_lua_release(neap_engine *e) { engine_run(e, l_release, e, "closing handles"); }

int engine_lua_held(neap_engine *e) {
  int count = 1; /* if they cannot be counted, there is one */
  engine_run(e, l_held, &count, "counting handles");
  return count;
}
