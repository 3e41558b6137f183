/* nginx.c: which request has which permit, for neap.nginx; OpenResty's LuaJIT only.
 *
 *   access    acquire --> a slot under the request; refused: Lua prepares what is answered
 *   log       the slot goes --> an answer that needs no thought is counted here, all else by Lua
 *
 * A request keeps its address over internal redirects, which empty ngx.ctx; and a slot here costs a
 * tenth of one there (nginx_slots.h).
 *
 * Of nginx only what its modules and resty.core use is used, too; their headers are not needed.
 * Where that is missing (no nginx, another LuaJIT) there are no requests. */
#include "nginx.h"

#include "line.h"
#include "nginx_slots.h"
#include "panel.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

#define GATE     "neap.gate"
#define REQUESTS "neap.requests"

/* ---- Of nginx -------------------------------------------------------------------------------- */

typedef struct ngx_text {
  size_t length;
  const unsigned char *bytes;
} ngx_text;

typedef struct ngx_value {
  unsigned length : 28, valid : 1, no_cacheable : 1, not_found : 1, escape : 1;
  const unsigned char *bytes;
} ngx_value;

#define NGX_DONE           (-4)
#define NGX_HTTP_GET       2
#define NGX_HTTP_HEAD      4
#define NGX_PROCESS_WORKER 3

#define WEAK    __attribute__((weak))
#define AT_ONCE __attribute__((always_inline)) /* a call is a tenth of what it does */
WEAK void *lua_getexdata(lua_State *L);
WEAK int ngx_http_lua_ffi_exit(void *r, int status, unsigned char *message, size_t *length);
WEAK int ngx_http_lua_ffi_get_resp_status(void *r);
WEAK int ngx_http_lua_ffi_req_is_internal(void *r);
WEAK int ngx_http_lua_ffi_req_get_method(void *r);
WEAK double ngx_http_lua_ffi_req_start_time(void *r);
WEAK int ngx_http_lua_ffi_balancer_get_last_failure(void *r, int *status, char **message);
WEAK ngx_value *ngx_http_get_variable(void *r, const ngx_text *name, uintptr_t hash);
WEAK extern volatile uintptr_t ngx_current_msec;
WEAK extern uintptr_t ngx_process;

static bool is_in_nginx(void) {
  return lua_getexdata && ngx_http_lua_ffi_exit && ngx_http_lua_ffi_get_resp_status &&
         ngx_http_lua_ffi_req_is_internal && ngx_http_lua_ffi_req_start_time &&
         ngx_http_lua_ffi_req_get_method && ngx_http_lua_ffi_balancer_get_last_failure &&
         ngx_http_get_variable;
}

static uintptr_t text_hash(const ngx_text *text) {
  uintptr_t hash = 0;
  for (size_t i = 0; i < text->length; i++) hash = hash * 31 + text->bytes[i];
  return hash;
}

/* NULL if it has none. */
static const ngx_value *variable(void *request, const char *name) {
  ngx_text text = {strlen(name), (const unsigned char *)name};
  const ngx_value *value = ngx_http_get_variable(request, &text, text_hash(&text));
  return value && !value->not_found ? value : NULL;
}

/* Whether the request was meant for an upstream: then one is found, and only the phase is wrong. */
static NEAP__SELDOM bool has_upstream(void *request) {
  int status;
  char *message = NULL;
  ngx_http_lua_ffi_balancer_get_last_failure(request, &status, &message);
  return !message || strcmp(message, "no upstream found") != 0;
}

/* What a cache had, so that no server was asked: HIT, STALE, UPDATING. */
static bool is_of_cache(void *request) {
  const ngx_value *value = variable(request, "upstream_cache_status");
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
  const ngx_value *value = variable(request, "upstream_status");
  if (!value && is_of_cache(request)) return leave_none(request), 0;
  if (!value) return has_upstream(request);
  unsigned n = value->length > 1 && value->bytes[0] == '-' && value->bytes[1] == ',' ? 2 : 1;
  for (unsigned i = 0; i < value->length; i++) n += value->bytes[i] == ':';
  return n;
}

/* One key's way in.  Many requests may go through a gate, but from few locations.  When the first of
 * a location has been answered, it is looked at closely: might others be answered by a cache or
 * another handler, in the upstream's place? */
#define LOCATIONS 8
typedef struct gate {
  line *line;
  uint32_t plain_ms; /* an answer of 200 to 399 that took less is a success, whatever else is to be
                        said about it: SOON_MS, or the policy's slow_call_ms; 0: none is */
  uint8_t turns;     /* until a known location is looked at again */
  uintptr_t known[LOCATIONS]; /* whose answers are the upstream's, by address; or NOT_READ, too */
} gate;
enum { GATE_LINE = 1, GATE_REFS = GATE_LINE };

#define SOON_MS  20
#define TURNS    64 /* to 127 */
#define NOT_READ 1  /* other requests than GET and HEAD: those pass by a cache that there may be */

/* The location's configuration is the sixth word of a request, in every nginx.  If it ever were
 * something else: what changes makes each request looked at, what doesn't makes one of TURNS. */
static inline uintptr_t location_of(const void *request) { return ((const uintptr_t *)request)[5]; }

static inline uintptr_t *known_place(gate *g, uintptr_t location) {
  return &g->known[location / 16 % LOCATIONS];
}

static uint64_t lost;        /* slots whose end nobody has seen */
static bool has_nginx_clock; /* nginx's own time may be taken */

/* Whether nginx's own time, which it reads once in a turn of its loop, is that of neap's clock. */
static bool has_clock(void) {
  uint64_t now_ms = neap_clock_coarse().now_ms(NULL);
  return &ngx_current_msec && sizeof ngx_current_msec == 8 &&
         now_ms - ngx_current_msec + 60000 < 120000;
}

static inline uint64_t nginx_now(const line *n) {
  return has_nginx_clock ? ngx_current_msec : n->clock.now_ms(n->clock.context);
}

/* Pushes the permit of a slot that is no more. */
static void push_permit(lua_State *L, const slot *s) {
  if (!(s->permit & HELD)) {
    neap__push_plain(L, s->permit & PERMIT);
    return;
  }
  int ref = (int)(s->permit & PERMIT);
  lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
  luaL_unref(L, LUA_REGISTRYINDEX, ref);
}

/* Pushes what the hook settle is told of a slot that is no more, after its owner: was it this
 * request's, or one's whose end nobody has seen? */
static void push_ending(lua_State *L, const slot *s, void *request) {
  push_permit(L, s);
  if (s->started == ngx_http_lua_ffi_req_start_time(request)) {
    lua_pushinteger(L, (lua_Integer)slot_kind(s));
    return;
  }
  lost++;
  lua_pushnil(L);
}

/* ---- Access ---------------------------------------------------------------------------------- */

enum {
  UP_GATE = 1,
  UP_LINE,
  UP_OWNER,
  UP_SETTLE,
  UP_MOVED,
  UP_REFUSE,
  UP_KEYED,
  UP_LAST = UP_KEYED
};

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
  push_ending(L, &earlier, request);
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
static int l_access(lua_State *L) {
  return lua_gettop(L) == 1 ? admit(L, false, 0) : access_keyed(L);
}

/* ask() -> nothing: it may go on | reason, retry_after_ms, moved */
static int l_ask(lua_State *L) { return admit(L, true, 0); }

/* The same of one try, in the balancer phase. */
static int l_ask_try(lua_State *L) { return admit(L, true, KIND_TRY); }

/* ---- Log ------------------------------------------------------------------------------------- */

enum { LOG_SETTLE = 1, LOG_MOVED, LOG_OWNERS, LOG_LAST = LOG_OWNERS };

static void push_owner(lua_State *L, gate *g) {
  lua_pushlightuserdata(L, g);
  lua_rawget(L, lua_upvalueindex(LOG_OWNERS));
}

/* Lua finds out what it came to. */
static NEAP__SELDOM void settle(lua_State *L, const slot *s, void *request) {
  lua_pushvalue(L, lua_upvalueindex(LOG_SETTLE));
  push_owner(L, s->gate);
  push_ending(L, s, request);
  lua_call(L, 3, 0);
}

static NEAP__SELDOM void tell_moved(lua_State *L, gate *g, const neap_transition *moved) {
  lua_pushvalue(L, lua_upvalueindex(LOG_MOVED));
  push_owner(L, g);
  neap__push_moved(L, moved);
  lua_call(L, 2, 0);
}

static bool is_grpc(void *request) {
  static const char grpc[] = "application/grpc";
  const ngx_value *type = variable(request, "upstream_http_content_type");
  return type && type->length >= sizeof grpc - 1 && !memcmp(type->bytes, grpc, sizeof grpc - 1);
}

/* Looks at an answer of a location that is not known, or not for sure: is it the upstream's, and is
 * its HTTP status all there is to it?  Where a filter gives answers another status, or a known
 * location has surprised us, all that the gate lets in is looked at by Lua from then on. */
static NEAP__SELDOM bool look(gate *g, void *request, uint64_t now_ms) {
  uintptr_t location = location_of(request), *place = known_place(g, location);
  bool is_read = ngx_http_lua_ffi_req_get_method(request) & (NGX_HTTP_GET | NGX_HTTP_HEAD);
  bool is_known = *place == location || (*place == (location | NOT_READ) && !is_read);
  if (is_known && g->turns) return true;
  if (!g->turns) /* not every so many: so may what is to be found */
    g->turns = (uint8_t)(TURNS + (now_ms * UINT32_C(2654435769) >> 16) % TURNS);
  const ngx_value *status = variable(request, "upstream_status"); /* of each try */
  bool is_good = status && status->length >= 3 && (status->bytes[status->length - 3] & ~1) == '2';
  bool is_all =
      is_good && !variable(request, "upstream_cache_status") && (is_known || !is_grpc(request));
  if (is_known ? !is_all : status && !is_good) g->plain_ms = 0;
  if (!is_known) *place = is_all ? location | (is_read ? 0 : NOT_READ) : 0;
  return is_all;
}

/* What error_page makes of a failure is a redirect: inside of nginx, or one of 301 to 308. */
static inline bool is_good(unsigned status) { return status - 200 < 100 || status == 304; }

/* What nginx knows of a plain success, in the order that is cheapest. */
static inline bool is_plain_answer(const slot *s, void *request) {
  return is_good((unsigned)ngx_http_lua_ffi_get_resp_status(request)) &&
         !ngx_http_lua_ffi_req_is_internal(request) &&
         s->started == ngx_http_lua_ffi_req_start_time(request);
}

/* A success that needs no thought: counts it and answers true.  is_only: no slot is behind it. */
static inline AT_ONCE bool log_plain(lua_State *L, slot *s, void *request, bool is_only) {
  if (!is_plain_answer(s, request)) return false;
  gate *g = s->gate;
  const line *n = g->line;
  uint64_t permit_bits = s->permit, now_ms = nginx_now(n);
  uint64_t age_ms = neap__wide_age_ms(permit_bits, now_ms);
  if (permit_bits >> KIND_SHIFT || age_ms >= g->plain_ms) return false;
  uintptr_t location = location_of(request);
  bool is_known = *known_place(g, location) == location;
  if ((--g->turns == 0 || !is_known) && !look(g, request, now_ms)) return false;
  if (is_only)
    s->request = NULL, neap__slots.count--;
  else
    slot_remove(s);
  neap_permit permit = neap__narrow(permit_bits);
  neap_call call = {.outcome = NEAP_SUCCESS, .duration_ms = age_ms};
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  uint64_t began_ms = neap__wide_began_ms(permit_bits, now_ms);
  line_report(n, now_ms, began_ms, &permit, &call, &moved);
  if (moved.cause != NEAP_BY_NOTHING) tell_moved(L, g, &moved);
  return true;
}

/* Of a request with several, or whose slot is not where it is looked for first. */
static NEAP__SELDOM int log_all(lua_State *L, void *request) {
  for (slot *s = slot_find(request); s->request; s = slot_find(request)) {
    if (log_plain(L, s, request, false)) continue;
    slot taken = *s;
    slot_remove(s);
    settle(L, &taken, request);
  }
  return 0;
}

/* log(): what became of the request's permits. */
static int l_log(lua_State *L) {
  void *request = lua_getexdata(L);
  slot *s = &neap__slots.list[slot_home(request)];
  if (!s->request) return 0;
  bool is_only = s->request == request && !slot_after(s)->request;
  return is_only && log_plain(L, s, request, true) ? 0 : log_all(L, request);
}

/* take() -> owner, permit | nothing: of the request's try before this one */
static int l_take(lua_State *L) {
  void *request = lua_getexdata(L);
  for (slot *s = slot_find(request); s->request; s = slot_after(s)) {
    if (s->request != request || slot_kind(s) != KIND_TRY) continue;
    if (s->started != ngx_http_lua_ffi_req_start_time(request)) continue;
    slot taken = *s;
    slot_remove(s);
    push_owner(L, taken.gate);
    push_permit(L, &taken);
    return 2;
  }
  return 0;
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
  if (!is_in_nginx()) return 0;
  if (!neap__slots.list && !neap__slots_grow()) return luaL_error(L, "not enough memory");
  has_nginx_clock = has_clock();
  lua_newtable(L);
  compat_new(L, 1, REQUESTS_REFS);
  luaL_getmetatable(L, REQUESTS);
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
    lua_pushcclosure(L, i == 0 ? l_log : l_take, LOG_LAST);
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
  luaL_checkudata(L, 1, REQUESTS);
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
  static const lua_CFunction functions[] = {l_access, l_ask, l_ask_try};
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

/* ---- Lending a panel ------------------------------------------------------------------------- */

/* With lua_code_cache off every request has a Lua state of its own, in a worker that may not open
 * the file any more: it borrows what the master has opened.  That is the process's from then on,
 * since the master's state may go: after a reload that fails the new one does.  One mapping for a
 * file, however often it is opened again. */
static neap_shared lent;

/* requests:lend(panel): to be called before anybody has a breaker of it */
static int l_lend(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  box_shared *box = (box_shared *)luaL_checkudata(L, 2, NEAP__PANEL_SHARED);
  if (box->is_lent) return 0;
  if (lent.panel && lent.device == box->shared.device && lent.inode == box->shared.inode) {
    neap_shared_close(&box->shared);
    box->shared = lent;
    box->box.panel = lent.panel;
  }
  box->is_lent = true;
  lent = box->shared;
  return 0;
}

/* requests:borrow(path) -> panel | nothing */
static int l_borrow(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  size_t length;
  const char *path = luaL_checklstring(L, 2, &length);
  bool is_it = lent.panel && strncmp(lent.path, path, length) == 0 && lent.path[length] == '.';
  if (!is_it || !&ngx_process || ngx_process != NGX_PROCESS_WORKER) return 0;
  box_shared *box = (box_shared *)compat_new(L, sizeof *box, 0);
  *box = (box_shared){.box = {.panel = lent.panel}, .shared = lent, .is_lent = true};
  luaL_getmetatable(L, NEAP__PANEL_SHARED);
  lua_setmetatable(L, -2);
  return 1;
}

/* ---- The parts ------------------------------------------------------------------------------- */

/* requests:count() -> open, lost: permits that are out, and those that were dropped so far */
static int l_count(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  compat_pushwide(L, neap__slots.count);
  compat_pushwide(L, lost);
  return 2;
}

/* requests:has_upstream(): whether this one was meant for an upstream, though none may be asked */
static int l_has_upstream(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  lua_pushboolean(L, has_upstream(lua_getexdata(L)));
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
      {"gate", l_gate}, {"count", l_count},   {"has_upstream", l_has_upstream},
      {"lend", l_lend}, {"borrow", l_borrow}, {NULL, NULL},
  };
  static const luaL_Reg of_gate[] = {{"judge", l_judge}, {"__gc", l_gate_gc}, {NULL, NULL}};
  new_class(L, REQUESTS, of_requests);
  new_class(L, GATE, of_gate);
  lua_pushcfunction(L, l_requests);
  lua_setfield(L, -2, "requests");
}

#else

void neap__open_nginx(lua_State *L) { (void)L; }

#endif
