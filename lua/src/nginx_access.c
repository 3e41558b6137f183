/* nginx_access.c: acquire --> a slot under the request; refused: Lua prepares what is answered. */
#include "nginx_gate.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

/* What a cache had, so that no server was asked: HIT, STALE, UPDATING. */
static bool is_of_cache(void *request) {
  const ngx_value *value = neap__request_variable(request, "upstream_cache_status");
  return value && value->length && strchr("HSU", value->bytes[0]);
}

/* No server was asked for those: those that are from now on were not theirs. */
static void leave_none(void *request) {
  for (slot *s = slot_find(request); s->request; s = slot_after(s))
    if (s->request == request && slot_kind(s) == 0) s->permit |= (uint64_t)KIND_LAST << KIND_SHIFT;
}

/* How many upstreams were asked before: one more after each internal redirect to one.  One of which
 * no server was asked (its name was not found) has no status; or "-, " if there was another. */
static NEAP__SELDOM unsigned earlier_upstreams(void *request) {
  const ngx_value *value = neap__request_variable(request, "upstream_status");
  if (!value && is_of_cache(request)) return leave_none(request), 0;
  if (!value) return neap__request_has_upstream(request);
  unsigned n = value->length > 1 && value->bytes[0] == '-' && value->bytes[1] == ',' ? 2 : 1;
  for (unsigned i = 0; i < value->length; i++) n += value->bytes[i] == ':';
  return n;
}

static void push_hook(lua_State *L, int hook) {
  lua_pushvalue(L, lua_upvalueindex(hook));
  lua_pushvalue(L, lua_upvalueindex(UP_OWNER));
}

/* The request has been here before: it was redirected to a location with the same guard.  Or it is
 * another one's slot. */
static NEAP__SELDOM void settle_earlier(lua_State *L, slot *s, void *request) {
  slot earlier = *s;
  slot_remove(s);
  push_hook(L, UP_SETTLE);
  neap__push_ending(L, &earlier, request);
  lua_call(L, 3, 0);
}

/* Ends the request's access phase with that status, as ngx.exit does. */
static int leave(lua_State *L, void *request, int status) {
  unsigned char message[128];
  size_t length = sizeof message;
  int result = ngx_http_lua_ffi_exit(request, status, message, &length);
  if (result == 0) return lua_yield(L, 0);
  if (result == NGX_DONE) return 0;
  lua_pushlstring(L, (const char *)message, length);
  return lua_error(L);
}

static NEAP__SELDOM int refused(lua_State *L, void *request, const line *n, uint64_t now_ms,
                                neap_verdict verdict, const neap_transition *moved, bool is_asked) {
  uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
  if (!is_asked) push_hook(L, UP_REFUSE);
  lua_pushstring(L, line_refusal(verdict));
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  if (is_asked) return 3;
  lua_call(L, 4, 1);
  return leave(L, request, (int)lua_tointeger(L, -1));
}

/* The slot is there, for a permit that holds nothing: give it the one that does. */
static void slot_hold(lua_State *L, slot *s, neap_permit permit, uint64_t now_ms) {
  slot held = *s;
  slot_remove(s); /* what follows may raise */
  neap__push_held(L, held.gate->line, permit, now_ms, lua_upvalueindex(UP_LINE),
                  lua_upvalueindex(UP_OWNER), 0);
  held.permit = HELD | (held.permit & ~PERMIT) | (uint64_t)luaL_ref(L, LUA_REGISTRYINDEX);
  s = slot_find(held.request);
  while (s->request) s = slot_after(s);
  *s = held;
  neap__slots.count++;
}

/* A probe, a slot of the bulkhead, or something moved. */
static NEAP__SELDOM int admitted(lua_State *L, slot *s, neap_permit permit, uint64_t now_ms,
                                 neap_verdict verdict, const neap_transition *moved) {
  if (line_holds(s->gate->line, verdict)) slot_hold(L, s, permit, now_ms);
  if (moved->cause == NEAP_BY_NOTHING) return 0;
  push_hook(L, UP_MOVED);
  neap__push_moved(L, moved);
  lua_call(L, 2, 0);
  return 0;
}

/* An empty slot for that request, which has none of that gate any more. */
static NEAP__SELDOM slot *slot_for(lua_State *L, void *request, const gate *g) {
  slot *s = slot_find(request);
  for (; s->request; s = slot_after(s)) {
    if (s->request != request || s->gate != g) continue;
    settle_earlier(L, s, request);
    s = slot_find(request);
    if (!s->request) break;
  }
  return s;
}

static inline AT_ONCE int admit(lua_State *L, bool is_asked, unsigned kind) {
  gate *g = (gate *)lua_touserdata(L, lua_upvalueindex(UP_GATE));
  line *n = g->line;
  void *request = lua_getexdata(L);
  if (!request)
    return luaL_error(L, "there is no request here: not in init_by_lua, nor in a timer");
  if (!slots_have_room()) return luaL_error(L, "not enough memory");
  slot *s = &neap__slots.list[slot_home(request)];
  if (s->request) s = slot_for(L, request, g);
  uint64_t now_ms = nginx_now(n);
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = line_acquire(n, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refused(L, request, n, now_ms, verdict, &moved, is_asked);
  if (kind != KIND_TRY && ngx_http_lua_ffi_req_is_internal(request)) {
    kind = earlier_upstreams(request);
    if (kind > KIND_LAST) kind = KIND_LAST;
  }
  s->request = request;
  s->started = ngx_http_lua_ffi_req_start_time(request);
  s->permit = neap__wide(permit, now_ms, n->number) | (uint64_t)kind << KIND_SHIFT;
  s->gate = g;
  neap__slots.count++;
  if (line_holds(n, verdict) || moved.cause != NEAP_BY_NOTHING)
    return admitted(L, s, permit, now_ms, verdict, &moved);
  return 0;
}

/* With a key, which has a gate of its own: keyed(owner, key) -> nothing, or the status. */
static NEAP__SELDOM int access_keyed(lua_State *L) {
  if (!lua_istable(L, 1))
    return luaL_error(L, "access is its guard's method: write guard:access(...), with a colon");
  lua_settop(L, 2);
  if (lua_isnil(L, 2)) return admit(L, false, 0);
  if (lua_type(L, 2) != LUA_TSTRING) return neap__argument_error(L, 2, "key", "a string");
  push_hook(L, UP_KEYED);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
  return lua_isnil(L, -1) ? 0 : leave(L, lua_getexdata(L), (int)lua_tointeger(L, -1));
}

/* guard:access(key): returns if the request may go on, else ends its access phase */
int neap__nginx_access(lua_State *L) {
  return lua_gettop(L) == 1 ? admit(L, false, 0) : access_keyed(L);
}

/* ask() -> nothing: it may go on | reason, retry_after_ms, moved */
int neap__nginx_ask(lua_State *L) { return admit(L, true, 0); }

/* The same of one try, in the balancer phase. */
int neap__nginx_ask_try(lua_State *L) { return admit(L, true, KIND_TRY); }

#endif
