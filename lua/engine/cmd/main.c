/* main.c: the neap program.
 *
 *   main    a Lua state with everything of lua/neap in it; neap.cmd reads the arguments there
 *   serve   what neap.cmd hands back instead of an exit status: a plan for serve.c
 *
 * This state is the command's own.  Policies run in the engine's, which is capped and knows nothing
 * of this one; only `check` loads policies here, and ends with them. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "embedded.h"
#include "fetch.h"
#include "replay.h"
#include "serve.h"

int luaopen_neap_core(lua_State *L);
int luaopen_luv(lua_State *L);

static int l_embedded(lua_State *L) {
  const neap__embedded *module = lua_touserdata(L, lua_upvalueindex(1));
  if (luaL_loadbuffer(L, module->text, module->length, module->chunk) != LUA_OK)
    return lua_error(L);
  lua_pushstring(L, module->name);
  lua_call(L, 1, 1);
  return 1;
}

static void preload_modules(lua_State *L) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  for (const neap__embedded *module = neap__embedded_modules; module->name; module++) {
    lua_pushlightuserdata(L, (void *)module);
    lua_pushcclosure(L, l_embedded, 1);
    lua_setfield(L, -2, module->name);
  }
  lua_pushcfunction(L, luaopen_neap_core);
  lua_setfield(L, -2, "neap.core");
  lua_pushcfunction(L, luaopen_luv); /* with a loop of its own */
  lua_setfield(L, -2, "luv");
  lua_pushcfunction(L, luaopen_neap_lab_native);
  lua_setfield(L, -2, "neap.lab.native");
  lua_pop(L, 2);
}

/* ---- What neap.cmd cannot do in Lua ---------------------------------------------------------- */

static lua_Number milliseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (lua_Number)now.tv_sec * 1000 + (lua_Number)(now.tv_nsec / 1000000);
}

static lua_Number started_ms;

static int l_wall_ms(lua_State *L) {
  lua_pushnumber(L, milliseconds(CLOCK_REALTIME));
  return 1;
}

static int l_uptime_ms(lua_State *L) {
  lua_pushnumber(L, milliseconds(CLOCK_MONOTONIC) - started_ms);
  return 1;
}

/* is_terminal(1 | 2) */
static int l_is_terminal(lua_State *L) {
  lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
  return 1;
}

static void push_host(lua_State *L) {
  static const luaL_Reg functions[] = {{"wall_ms", l_wall_ms},
                                       {"uptime_ms", l_uptime_ms},
                                       {"is_terminal", l_is_terminal},
                                       {"fetch", fetch_l_fetch},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  lua_pushliteral(L, NEAP_VERSION);
  lua_setfield(L, -2, "version");
  lua_pushboolean(L, 1);
  lua_setfield(L, -2, "owns_state");
}

/* ---- Run ------------------------------------------------------------------------------------- */

typedef struct words {
  int count;
  char **text;
} words;

static int l_traceback(lua_State *L) {
  luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
  return 1;
}

/* Leaves the exit status, or the plan, on the stack. */
static int l_main(lua_State *L) {
  const words *w = lua_touserdata(L, 1);
  luaL_openlibs(L);
  preload_modules(L);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.cmd");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_newtable(L);
  for (int i = 1; i < w->count; i++) {
    lua_pushstring(L, w->text[i]);
    lua_rawseti(L, -2, i);
  }
  push_host(L);
  lua_call(L, 2, 1);
  return 1;
}

/* What was printed has to have come somewhere: a full disk is no success. */
static int printed(int status) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  perror("neap: standard output");
  return status ? status : 1;
}

int main(int argc, char **argv) {
  words w = {argc, argv};
  started_ms = milliseconds(CLOCK_MONOTONIC);
  lua_State *L = luaL_newstate();
  if (!L) return fputs("neap: no memory\n", stderr), 1;
  lua_pushcfunction(L, l_traceback);
  lua_pushcfunction(L, l_main);
  lua_pushlightuserdata(L, &w);
  int status = 1;
  if (lua_pcall(L, 1, 1, 1) != LUA_OK)
    fprintf(stderr, "neap: a fault in neap itself: %s\n", lua_tostring(L, -1));
  else if (lua_istable(L, -1))
    status = serve_run(L, lua_gettop(L));
  else
    status = printed((int)lua_tointeger(L, -1));
  lua_close(L);
  return status;
}
