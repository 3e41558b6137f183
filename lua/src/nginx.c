/* nginx.c: which request has which permit, for neap.nginx; OpenResty's LuaJIT only.
 *
 *   access    admit: acquire --> a slot under the request
 *   log       the slot goes --> an answer that needs no thought is counted here, all else by Lua
 *
 * A request keeps its address over internal redirects, which empty ngx.ctx; and a slot here costs a
 * tenth of one there.  Slots are an open table, hashed by request:
 *
 *   | request, started, permit, gate | ... |    empty: no request; deletion moves the next ones up
 *
 * A request that ends without the log phase's directive leaves its slot.  The next request at its
 * address began at another time: that tells them apart, and the slot is dropped.
 *
 * Of nginx only what its modules and resty.core use is used, too; their headers are not needed.
 * Where that is missing (no nginx, another LuaJIT) there is no table. */
#include "nginx.h"

#include <unistd.h>

#include "line.h"
#include "panel.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

#define REQUESTS "neap.requests"
#define GATE     "neap.gate"

/* ---- Of nginx -------------------------------------------------------------------------------- */

typedef struct ngx_text {
  size_t length;
  const unsigned char *bytes;
} ngx_text;

typedef struct ngx_value {
  unsigned length : 28, valid : 1, no_cacheable : 1, not_found : 1, escape : 1;
  const unsigned char *bytes;
} ngx_value;

#define WEAK __attribute__((weak))
WEAK void *lua_getexdata(lua_State *L);
WEAK int ngx_http_lua_ffi_get_resp_status(void *r);
WEAK int ngx_http_lua_ffi_req_is_internal(void *r);
WEAK double ngx_http_lua_ffi_req_start_time(void *r);
WEAK ngx_value *ngx_http_get_variable(void *r, const ngx_text *name, uintptr_t hash);
WEAK extern volatile uintptr_t ngx_current_msec;

static bool is_in_nginx(void) {
  return lua_getexdata && ngx_http_lua_ffi_get_resp_status && ngx_http_lua_ffi_req_is_internal &&
         ngx_http_lua_ffi_req_start_time && ngx_http_get_variable;
}

/* Whether nginx's own time, read once in a turn of its loop, is of the clock that breakers go by. */
static bool has_same_clock(void) {
  uint64_t now_ms = neap_clock_coarse().now_ms(NULL);
  return &ngx_current_msec && sizeof ngx_current_msec == 8 &&
         now_ms - ngx_current_msec + 60000 < 120000;
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

/* How many times an upstream was asked before: once more after each internal redirect to one. */
static unsigned earlier_upstreams(void *request) {
  const ngx_value *value = variable(request, "upstream_status");
  unsigned n = value ? 1 : 0;
  for (unsigned i = 0; value && i < value->length; i++) n += value->bytes[i] == ':';
  return n;
}

static void *request_of(lua_State *L) {
  void *r = lua_getexdata(L);
  if (!r) luaL_error(L, "there is no request here: not in init_by_lua, nor in a timer");
  return r;
}

/* ---- The table ------------------------------------------------------------------------------- */

typedef struct gate gate;

typedef struct slot {
  const void *request; /* NULL: empty */
  double started;
  uint64_t permit; /* neap__wide(), or HELD and a reference to one that holds something; and kind */
  gate *gate;
} slot;

#define HELD       (UINT64_C(1) << 63)
#define KIND_SHIFT 61 /* 0, 1, 2: of the first, second, third upstream that the request asks; */
#define KIND_TRY   3u /* or of one try, in the balancer phase */
#define PERMIT     ((UINT64_C(1) << KIND_SHIFT) - 1)

typedef struct requests {
  slot *slots;
  size_t mask, count;
  uint64_t lost; /* slots that were dropped */
  bool has_same_clock;
} requests;
enum { REQUESTS_SLOTS = 1, REQUESTS_OWNERS, REQUESTS_DROP, REQUESTS_REFS = REQUESTS_DROP };

/* One key's way in. */
struct gate {
  requests *requests;
  const line *line;
  bool is_plain; /* 200 to 399 is a success, whatever else is to be said about it */
  bool is_mixed; /* there are answers that are not the upstream's, as of a cache */
  uint8_t turn;  /* until somebody looks again whether there are */
};
enum { GATE_LINE = 1, GATE_REQUESTS, GATE_REFS = GATE_REQUESTS };

#define FIRST_SLOTS 1024
#define SOON_MS     20 /* what took longer is worth a closer look */
#define TURNS       64

static size_t slot_home(const requests *q, const void *request) {
  return (size_t)(((uintptr_t)request >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & q->mask;
}

static void slot_put(requests *q, const slot *new_one) {
  size_t i = slot_home(q, new_one->request);
  while (q->slots[i].request) i = (i + 1) & q->mask;
  q->slots[i] = *new_one;
  q->count++;
}

/* The first slot of that request, and of that gate if one is given; or NULL. */
static slot *slot_find(const requests *q, const void *request, const gate *g) {
  for (size_t i = slot_home(q, request); q->slots[i].request; i = (i + 1) & q->mask) {
    slot *s = &q->slots[i];
    if (s->request == request && (!g || s->gate == g)) return s;
  }
  return NULL;
}

/* Takes it out.  Answers whether the request may have another one. */
static bool slot_take(requests *q, slot *s, slot *out) {
  size_t hole = (size_t)(s - q->slots), i = hole;
  bool is_alone = true;
  *out = *s;
  for (;;) {
    i = (i + 1) & q->mask;
    const slot *next = &q->slots[i];
    if (!next->request) break;
    is_alone = false;
    size_t home = slot_home(q, next->request);
    if (((i - home) & q->mask) < ((i - hole) & q->mask)) continue;
    q->slots[hole] = *next;
    hole = i;
  }
  q->slots[hole].request = NULL;
  q->count--;
  return !is_alone;
}

/* Makes room; raises if there is no memory, and nothing has changed. */
static NEAP__SELDOM void requests_grow(lua_State *L, requests *q, int index) {
  size_t size = q->slots ? 2 * (q->mask + 1) : FIRST_SLOTS;
  slot *slots = (slot *)lua_newuserdata(L, size * sizeof *slots);
  memset(slots, 0, size * sizeof *slots);
  requests old = *q;
  q->slots = slots;
  q->mask = size - 1;
  q->count = 0;
  for (size_t i = 0; old.slots && i <= old.mask; i++)
    if (old.slots[i].request) slot_put(q, &old.slots[i]);
  compat_setref(L, index, REQUESTS_SLOTS);
}

static uint64_t requests_now(const requests *q, const line *n) {
  return q->has_same_clock ? ngx_current_msec : n->clock.now_ms(n->clock.context);
}

/* Pushes the permit, which is the slot's no longer. */
static void push_permit(lua_State *L, const slot *s) {
  if (!(s->permit & HELD)) {
    neap__push_plain(L, s->permit & PERMIT);
    return;
  }
  int ref = (int)(s->permit & PERMIT);
  lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
  luaL_unref(L, LUA_REGISTRYINDEX, ref);
}

/* ---- Access ---------------------------------------------------------------------------------- */

enum { UP_GATE = 1, UP_LINE, UP_OWNER, UP_REQUESTS, UP_DROP, UP_LAST = UP_DROP };

/* The request had a slot already: it came through here twice, or it is another one's. */
static NEAP__SELDOM void drop(lua_State *L, requests *q, slot *s) {
  slot dropped;
  slot_take(q, s, &dropped);
  q->lost++;
  if (!(dropped.permit & HELD)) return;
  lua_pushvalue(L, lua_upvalueindex(UP_DROP));
  lua_pushvalue(L, lua_upvalueindex(UP_OWNER));
  push_permit(L, &dropped);
  lua_call(L, 2, 0);
}

static NEAP__SELDOM int refuse(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                               const neap_transition *moved) {
  lua_pushstring(L, neap_verdict_name(verdict));
  compat_pushwide(L, neap__retry_after(n->breaker, n->rules, now_ms, verdict));
  neap__push_moved(L, moved);
  return 3;
}

/* A probe, or something moved. */
static NEAP__SELDOM int admit_probe(lua_State *L, requests *q, slot *s, neap_permit permit,
                                    uint64_t now_ms, neap_verdict verdict,
                                    const neap_transition *moved) {
  if (verdict == NEAP_ALLOW_PROBE) {
    neap__push_held(L, s->gate->line, permit, now_ms, lua_upvalueindex(UP_LINE),
                    lua_upvalueindex(UP_OWNER), 0);
    s->permit = HELD | (s->permit & ~PERMIT) | (uint64_t)luaL_ref(L, LUA_REGISTRYINDEX);
  }
  slot_put(q, s);
  lua_pushboolean(L, 0);
  lua_pushnil(L);
  neap__push_moved(L, moved);
  return 3;
}

static inline int admit(lua_State *L, unsigned kind) {
  gate *g = (gate *)lua_touserdata(L, lua_upvalueindex(UP_GATE));
  requests *q = g->requests;
  const line *n = g->line;
  check_open(L, n);
  void *request = request_of(L);
  if (2 * q->count >= q->mask) requests_grow(L, q, lua_upvalueindex(UP_REQUESTS));
  slot *before = slot_find(q, request, g);
  if (before) drop(L, q, before);
  uint64_t now_ms = requests_now(q, n);
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = neap_breaker_acquire(n->breaker, n->rules, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refuse(L, n, now_ms, verdict, &moved);
  if (ngx_http_lua_ffi_req_is_internal(request) && kind != KIND_TRY) {
    kind = earlier_upstreams(request);
    if (kind >= KIND_TRY) kind = KIND_TRY - 1;
  }
  slot s = {request, ngx_http_lua_ffi_req_start_time(request),
            neap__wide(permit, now_ms, n->number) | (uint64_t)kind << KIND_SHIFT, g};
  if (verdict == NEAP_ALLOW_PROBE || moved.cause != NEAP_BY_NOTHING)
    return admit_probe(L, q, &s, permit, now_ms, verdict, &moved);
  slot_put(q, &s);
  return 0;
}

/* admit() -> nothing: it may go on | false, nil, moved: likewise | reason, retry_after_ms, moved:
 * it is refused */
static int l_admit(lua_State *L) { return admit(L, 0); }

/* The same of one try, in the balancer phase. */
static int l_admit_try(lua_State *L) { return admit(L, KIND_TRY); }

/* ---- Log ------------------------------------------------------------------------------------- */

enum { LOG_REQUESTS = 1, LOG_SETTLE, LOG_MOVED, LOG_OWNERS, LOG_LAST = LOG_OWNERS };

static NEAP__SELDOM void look_for_others(gate *g, void *request) {
  g->turn = TURNS;
  if (variable(request, "upstream_cache_status") || !variable(request, "upstream_status"))
    g->is_mixed = true;
}

/* Is it an answer of the upstream's that needs no thought? */
static inline bool is_plain(void *request, gate *g, uint64_t age_ms) {
  int status = ngx_http_lua_ffi_get_resp_status(request);
  if (status < 200 || status > 399 || !g->is_plain || age_ms > SOON_MS) return false;
  const neap_rules *rules = g->line->rules;
  if (rules->slow_call_ms && age_ms > rules->slow_call_ms) return false;
  if (ngx_http_lua_ffi_req_is_internal(request)) return false;
  if (g->turn-- == 0) look_for_others(g, request);
  return !g->is_mixed;
}

static void push_owner(lua_State *L, gate *g) {
  lua_pushlightuserdata(L, g);
  lua_rawget(L, lua_upvalueindex(LOG_OWNERS));
}

static NEAP__SELDOM void settle(lua_State *L, requests *q, const slot *s, bool is_lost) {
  if (is_lost) q->lost++;
  lua_pushvalue(L, lua_upvalueindex(LOG_SETTLE));
  push_owner(L, s->gate);
  push_permit(L, s);
  if (is_lost)
    lua_pushnil(L);
  else
    lua_pushinteger(L, (lua_Integer)(s->permit >> KIND_SHIFT & KIND_TRY));
  lua_call(L, 3, 0);
}

static NEAP__SELDOM void tell_moved(lua_State *L, gate *g, const neap_transition *moved) {
  lua_pushvalue(L, lua_upvalueindex(LOG_MOVED));
  push_owner(L, g);
  neap__push_moved(L, moved);
  lua_call(L, 2, 0);
}

static inline void log_one(lua_State *L, requests *q, const slot *s, void *request) {
  const line *n = s->gate->line;
  if (n->panel && !n->panel->panel) return;
  if (s->started != ngx_http_lua_ffi_req_start_time(request)) {
    settle(L, q, s, true);
    return;
  }
  uint64_t now_ms = requests_now(q, n);
  uint64_t age_ms = neap__wide_age_ms(s->permit, now_ms);
  if (s->permit >> KIND_SHIFT || !is_plain(request, s->gate, age_ms)) {
    settle(L, q, s, false);
    return;
  }
  neap_permit permit = neap__narrow(s->permit);
  neap_call call = {.outcome = NEAP_SUCCESS, .duration_ms = age_ms};
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_breaker_report(n->breaker, n->rules, now_ms, &permit, &call, &moved);
  if (moved.cause != NEAP_BY_NOTHING) tell_moved(L, s->gate, &moved);
}

/* log(): what became of the request's permits. */
static int l_log(lua_State *L) {
  requests *q = (requests *)lua_touserdata(L, lua_upvalueindex(LOG_REQUESTS));
  void *request = request_of(L);
  slot *found = slot_find(q, request, NULL);
  while (found) {
    slot s;
    bool has_more = slot_take(q, found, &s);
    log_one(L, q, &s, request);
    found = has_more ? slot_find(q, request, NULL) : NULL;
  }
  return 0;
}

/* take() -> owner, permit | nothing: of the request's try before this one. */
static int l_take(lua_State *L) {
  requests *q = (requests *)lua_touserdata(L, lua_upvalueindex(LOG_REQUESTS));
  void *request = request_of(L);
  for (size_t i = slot_home(q, request); q->slots[i].request; i = (i + 1) & q->mask) {
    slot s = q->slots[i];
    if (s.request != request || (s.permit >> KIND_SHIFT & KIND_TRY) != KIND_TRY) continue;
    if (s.started != ngx_http_lua_ffi_req_start_time(request)) continue;
    slot_take(q, &q->slots[i], &s);
    push_owner(L, s.gate);
    push_permit(L, &s);
    return 2;
  }
  return 0;
}

/* ---- Making them ----------------------------------------------------------------------------- */

/* requests(settle, moved, drop) -> requests, log, take | nil: this is not nginx
 *   settle  (owner, permit, kind): what became of it is for Lua to find out; kind as in a slot, nil
 *           if nobody can
 *   moved   (owner, moved)
 *   drop    (owner, permit): one that holds something, and of which nobody will hear any more */
static int l_requests(lua_State *L) {
  for (int i = 1; i <= 3; i++) luaL_checktype(L, i, LUA_TFUNCTION);
  lua_settop(L, 3);
  if (!is_in_nginx()) return 0;
  requests *q = (requests *)compat_new(L, sizeof *q, REQUESTS_REFS);
  *q = (requests){.slots = NULL, .has_same_clock = has_same_clock()};
  luaL_getmetatable(L, REQUESTS);
  lua_setmetatable(L, 4);
  requests_grow(L, q, 4);
  lua_newtable(L);
  lua_pushvalue(L, 5);
  compat_setref(L, 4, REQUESTS_OWNERS);
  lua_pushvalue(L, 3);
  compat_setref(L, 4, REQUESTS_DROP);
  lua_pushvalue(L, 4); /* as LOG_REQUESTS ... LOG_OWNERS */
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 5);
  for (int i = 1; i <= LOG_LAST; i++) lua_pushvalue(L, -LOG_LAST);
  lua_pushcclosure(L, l_take, LOG_LAST);
  lua_insert(L, 6);
  lua_pushcclosure(L, l_log, LOG_LAST);
  lua_replace(L, 5);
  return 3;
}

/* requests:gate(line, owner) -> gate, admit, admit_try */
static int l_gate(lua_State *L) {
  requests *q = (requests *)luaL_checkudata(L, 1, REQUESTS);
  const line *n = (const line *)luaL_checkudata(L, 2, NEAP__LINE);
  luaL_checktype(L, 3, LUA_TTABLE);
  luaL_argcheck(L, n->clock.now_ms, 2, "must go by the system's clock");
  lua_settop(L, 3);
  gate *g = (gate *)compat_new(L, sizeof *g, GATE_REFS);
  *g = (gate){.requests = q, .line = n};
  luaL_getmetatable(L, GATE);
  lua_setmetatable(L, 4);
  lua_pushvalue(L, 2);
  compat_setref(L, 4, GATE_LINE);
  lua_pushvalue(L, 1);
  compat_setref(L, 4, GATE_REQUESTS);
  compat_getref(L, 1, REQUESTS_OWNERS);
  lua_pushlightuserdata(L, g);
  lua_pushvalue(L, 3);
  lua_rawset(L, 5);
  lua_settop(L, 4);
  lua_pushvalue(L, 4); /* as UP_GATE ... UP_DROP */
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 1);
  compat_getref(L, 1, REQUESTS_DROP);
  for (int i = 1; i <= UP_LAST; i++) lua_pushvalue(L, -UP_LAST);
  lua_pushcclosure(L, l_admit_try, UP_LAST);
  lua_insert(L, 5);
  lua_pushcclosure(L, l_admit, UP_LAST);
  lua_insert(L, 5);
  return 3;
}

/* gate:plain(is_plain): whether 200 to 399 is a success, whatever else is to be said about it */
static int l_plain(lua_State *L) {
  gate *g = (gate *)luaL_checkudata(L, 1, GATE);
  g->is_plain = lua_toboolean(L, 2);
  return 0;
}

/* ---- Lending a panel ------------------------------------------------------------------------- */

/* With lua_code_cache off every request has a Lua state of its own, in a worker that may not open
 * the file any more: it borrows what the master has opened, whose state lives longer. */
static neap_shared lent;
static pid_t lender;

/* requests:lend(panel) */
static int l_lend(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  box_shared *box = (box_shared *)luaL_checkudata(L, 2, NEAP__PANEL_SHARED);
  lent = box->shared;
  lender = getpid();
  return 0;
}

/* requests:borrow(path) -> panel | nil */
static int l_borrow(lua_State *L) {
  luaL_checkudata(L, 1, REQUESTS);
  size_t length;
  const char *path = luaL_checklstring(L, 2, &length);
  bool is_it = lent.panel && strncmp(lent.path, path, length) == 0 && lent.path[length] == '.';
  if (!is_it || lender == getpid()) return 0;
  box_shared *box = (box_shared *)compat_new(L, sizeof *box, 0);
  *box = (box_shared){.box = {lent.panel}, .shared = lent, .is_lent = true};
  luaL_getmetatable(L, NEAP__PANEL_SHARED);
  lua_setmetatable(L, -2);
  return 1;
}

/* ---- The parts ------------------------------------------------------------------------------- */

/* requests:count() -> open, lost: permits that are out, and those that were dropped so far */
static int l_count(lua_State *L) {
  const requests *q = (const requests *)luaL_checkudata(L, 1, REQUESTS);
  compat_pushwide(L, q->count);
  compat_pushwide(L, q->lost);
  return 2;
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
      {"gate", l_gate}, {"count", l_count}, {"lend", l_lend}, {"borrow", l_borrow}, {NULL, NULL}};
  static const luaL_Reg of_gate[] = {{"plain", l_plain}, {NULL, NULL}};
  new_class(L, REQUESTS, of_requests);
  new_class(L, GATE, of_gate);
  lua_pushcfunction(L, l_requests);
  lua_setfield(L, -2, "requests");
}

#else

void neap__open_nginx(lua_State *L) { (void)L; }

#endif
