/* nginx.c: which request has which permit, for neap.nginx; OpenResty's LuaJIT only.
 *
 *   access    acquire --> a slot under the request; refused: Lua prepares what is answered
 *   log       the slot goes --> an answer that needs no thought is counted here, all else by Lua
 *
 * A request keeps its address over internal redirects, which empty ngx.ctx; and a slot here costs a
 * tenth of one there (nginx_slots.h). */
#include "nginx.h"

#include "nginx_gate.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

#define GATE "neap.gate"

bool neap__has_nginx_clock;
static uint64_t lost; /* slots whose end nobody has seen */

/* Whether nginx's own time, which it reads once in a turn of its loop, is that of neap's clock. */
static bool has_clock(void) {
  uint64_t now_ms = neap_clock_coarse().now_ms(NULL);
  return &ngx_current_msec && sizeof ngx_current_msec == 8 &&
         now_ms - ngx_current_msec + 60000 < 120000;
}

void neap__push_slot(lua_State *L, const slot *s) {
  if (!(s->permit & HELD)) {
    neap__push_plain(L, s->permit & PERMIT);
    return;
  }
  int ref = (int)(s->permit & PERMIT);
  lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
  luaL_unref(L, LUA_REGISTRYINDEX, ref);
}

void neap__push_ending(lua_State *L, const slot *s, void *request) {
  neap__push_slot(L, s);
  if (s->started == ngx_http_lua_ffi_req_start_time(request)) {
    lua_pushinteger(L, (lua_Integer)slot_kind(s));
    return;
  }
  lost++;
  lua_pushnil(L);
}

/* ---- Making gates ---------------------------------------------------------------------------- */

/* What the functions of one Lua state have in common: refs of a userdata. */
enum {
  HOOK_SETTLE = 1, /* (owner, permit, kind): kind as in a slot; nil: nobody knows what it came to */
  HOOK_MOVED,      /* (owner, moved) */
  HOOK_REFUSE,     /* (owner, reason, retry_after_ms, moved) -> the status of what is answered */
  HOOK_KEYED,      /* (owner, key) -> nil, or that status */
  OWNERS,          /* by gate */
  REQUESTS_REFS = OWNERS
};

/* requests(settle, moved, refuse, keyed) -> requests, log, take | nothing: not nginx */
static int l_requests(lua_State *L) {
  for (int i = HOOK_SETTLE; i <= HOOK_KEYED; i++) luaL_checktype(L, i, LUA_TFUNCTION);
  lua_settop(L, HOOK_KEYED);
  if (!neap__is_in_nginx()) return 0;
  if (!neap__slots.list && !neap__slots_grow()) return luaL_error(L, "not enough memory");
  neap__has_nginx_clock = has_clock();
  lua_newtable(L);
  compat_new(L, 1, REQUESTS_REFS);
  luaL_getmetatable(L, NEAP__NGX_REQUESTS);
  lua_setmetatable(L, -2);
  int made = lua_gettop(L);
  for (int i = HOOK_SETTLE; i <= OWNERS; i++) {
    lua_pushvalue(L, i);
    compat_setref(L, made, i);
  }
  for (int i = 0; i < 2; i++) { /* as LOG_SETTLE ... LOG_OWNERS */
    lua_pushvalue(L, HOOK_SETTLE);
    lua_pushvalue(L, HOOK_MOVED);
    lua_pushvalue(L, OWNERS);
    lua_pushcclosure(L, i == 0 ? neap__nginx_log : neap__nginx_take, LOG_LAST);
  }
  return 3;
}

/* Nothing of the gate may be left when it goes: so when its Lua state goes. */
static int l_gate_gc(lua_State *L) {
  const gate *g = (const gate *)luaL_checkudata(L, 1, GATE);
  neap__slots_forget(g);
  return 0;
}

/* requests:gate(line, owner) -> gate, access, ask, ask_try */
static int l_gate(lua_State *L) {
  luaL_checkudata(L, 1, NEAP__NGX_REQUESTS);
  line *n = (line *)luaL_checkudata(L, 2, NEAP__LINE);
  luaL_checktype(L, 3, LUA_TTABLE);
  luaL_argcheck(L, n->clock.now_ms, 2, "must go by the system's clock");
  lua_settop(L, 3);
  luaL_checkstack(L, 4 + UP_LAST, "gate");
  gate *g = (gate *)compat_new(L, sizeof *g, GATE_REFS);
  *g = (gate){.line = n};
  luaL_getmetatable(L, GATE);
  lua_setmetatable(L, 4);
  lua_pushvalue(L, 2);
  compat_setref(L, 4, GATE_LINE);
  compat_getref(L, 1, OWNERS);
  lua_pushlightuserdata(L, g);
  lua_pushvalue(L, 3);
  lua_rawset(L, 5);
  lua_settop(L, 4);
  static const lua_CFunction functions[] = {neap__nginx_access, neap__nginx_ask,
                                            neap__nginx_ask_try};
  for (int i = 0; i < 3; i++) { /* as UP_GATE ... UP_KEYED */
    lua_pushvalue(L, 4);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 3);
    compat_getref(L, 1, HOOK_SETTLE);
    compat_getref(L, 1, HOOK_MOVED);
    compat_getref(L, 1, HOOK_REFUSE);
    compat_getref(L, 1, HOOK_KEYED);
    lua_pushcclosure(L, functions[i], UP_LAST);
  }
  return 4;
}

/* gate:judge(is_plain): under the line's new rules; whether 200 to 399 is a success, whatever else
 * is to be said about it */
static int l_judge(lua_State *L) {
  gate *g = (gate *)luaL_checkudata(L, 1, GATE);
  uint32_t slow_ms = g->line->rules->slow_call_ms;
  g->plain_ms = slow_ms && slow_ms < SOON_MS ? slow_ms + 1 : SOON_MS;
  if (!lua_toboolean(L, 2)) g->plain_ms = 0;
  g->turns = 1;
  memset(g->known, 0, sizeof g->known);
  return 0;
}

/* ---- The parts ------------------------------------------------------------------------------- */

/* requests:count() -> open, lost: permits that are out, and those that were dropped so far */
static int l_count(lua_State *L) {
  luaL_checkudata(L, 1, NEAP__NGX_REQUESTS);
  compat_pushwide(L, neap__slots.count);
  compat_pushwide(L, lost);
  return 2;
}

/* requests:neap__request_has_upstream(): whether this one was meant for an upstream, though none may be asked */
static int l_has_upstream(lua_State *L) {
  luaL_checkudata(L, 1, NEAP__NGX_REQUESTS);
  lua_pushboolean(L, neap__request_has_upstream(lua_getexdata(L)));
  return 1;
}

static void new_class(lua_State *L, const char *name, const luaL_Reg *methods) {
  luaL_newmetatable(L, name);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
}

void neap__open_nginx(lua_State *L) {
  static const luaL_Reg of_requests[] = {
      {"gate", l_gate},
      {"count", l_count},
      {"has_upstream", l_has_upstream},
      {"lend", neap__nginx_lend},
      {"borrow", neap__nginx_borrow},
      {NULL, NULL},
  };
  static const luaL_Reg of_gate[] = {{"judge", l_judge}, {"__gc", l_gate_gc}, {NULL, NULL}};
  new_class(L, NEAP__NGX_REQUESTS, of_requests);
  new_class(L, GATE, of_gate);
  lua_pushcfunction(L, l_requests);
  lua_setfield(L, -2, "requests");
}

#else

void neap__open_nginx(lua_State *L) { (void)L; }

#endif
