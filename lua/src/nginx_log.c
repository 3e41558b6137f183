/* nginx_log.c: the slot goes --> an answer that needs no thought is counted here, all else by Lua. */
#include "nginx_gate.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

static void push_owner(lua_State *L, gate *g) {
  lua_pushlightuserdata(L, g);
  lua_rawget(L, lua_upvalueindex(LOG_OWNERS));
}

/* Lua finds out what it came to. */
static NEAP__SELDOM void settle(lua_State *L, const slot *s, void *request) {
  lua_pushvalue(L, lua_upvalueindex(LOG_SETTLE));
  push_owner(L, s->gate);
  neap__push_ending(L, s, request);
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
  const ngx_value *type = neap__request_variable(request, "upstream_http_content_type");
  return type && type->length >= sizeof grpc - 1 && !memcmp(type->bytes, grpc, sizeof grpc - 1);
}

/* Looks at an answer of a location that is not known, or not for sure: is it the upstream's, and is
 * its HTTP status all there is to it?  Where a filter gives answers another status, or a known
 * location has surprised us, all that the gate lets in is looked at by Lua from then on. */
static NEAP__SELDOM bool look(gate *g, void *request, uint64_t now_ms) {
  uintptr_t location = request_location(request), *place = known_place(g, location);
  bool is_read = ngx_http_lua_ffi_req_get_method(request) & (NGX_HTTP_GET | NGX_HTTP_HEAD);
  bool is_known = *place == location || (*place == (location | NOT_READ) && !is_read);
  if (is_known && g->turns) return true;
  if (!g->turns) /* not every so many: so may what is to be found */
    g->turns = (uint8_t)(TURNS + (now_ms * UINT32_C(2654435769) >> 16) % TURNS);
  const ngx_value *status = neap__request_variable(request, "upstream_status"); /* of each try */
  bool is_good = status && status->length >= 3 && (status->bytes[status->length - 3] & ~1) == '2';
  bool is_all = is_good && !neap__request_variable(request, "upstream_cache_status") &&
                (is_known || !is_grpc(request));
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
  uintptr_t location = request_location(request);
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
int neap__nginx_log(lua_State *L) {
  void *request = lua_getexdata(L);
  slot *s = &neap__slots.list[slot_home(request)];
  if (!s->request) return 0;
  bool is_only = s->request == request && !slot_after(s)->request;
  return is_only && log_plain(L, s, request, true) ? 0 : log_all(L, request);
}

/* take() -> owner, permit | nothing: of the request's try before this one */
int neap__nginx_take(lua_State *L) {
  void *request = lua_getexdata(L);
  for (slot *s = slot_find(request); s->request; s = slot_after(s)) {
    if (s->request != request || slot_kind(s) != KIND_TRY) continue;
    if (s->started != ngx_http_lua_ffi_req_start_time(request)) continue;
    slot taken = *s;
    slot_remove(s);
    push_owner(L, taken.gate);
    neap__push_slot(L, &taken);
    return 2;
  }
  return 0;
}

#endif
