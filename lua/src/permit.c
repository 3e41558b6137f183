/* permit.c: the permits that hold something: probes, slots of a bulkhead.  Used once; one that nobody
 * reports says so itself. */
#include "binding.h"

/* Gives back what is held, unless that was done.  Raises nothing: it runs in finalisers. */
static void permit_abandon(box_permit *box) {
  neap__give_slot_back(box);
  if (box->permit.opaque == 0 || (box->panel && box->panel->is_gone)) return;
  uint64_t now_ms = box->clock.now_ms ? box->clock.now_ms(box->clock.context) : box->given_ms;
  neap_call call = {.outcome = NEAP_ABANDONED};
  if (box->flight)
    neap_flight_report(box->flight, box->breaker, box->rules, now_ms, box->given_ms, &box->permit,
                       &call, NULL);
  else
    neap_breaker_report(box->breaker, box->rules, now_ms, &box->permit, &call, NULL);
}

/* In the registry, made before it is needed: making a function takes memory. */
#define PERMIT_NEW "neap.permit.new"

/* () -> permit, which holds nothing yet and is without its refs */
static int permit_new(lua_State *L) {
  box_permit *box = (box_permit *)compat_new(L, sizeof *box, PERMIT_REFS);
  *box = (box_permit){.permit = {0}};
  luaL_setmetatable(L, NEAP__PERMIT);
  return 1;
}

static void permit_refer(lua_State *L, int ref, int index) {
  if (index == 0) return;
  lua_pushvalue(L, index);
  compat_setref(L, -2, ref);
}

void neap__push_permit(lua_State *L, const box_permit *given, int breaker, int rules, int frame,
                       int line) {
  lua_getfield(L, LUA_REGISTRYINDEX, PERMIT_NEW);
  if (lua_pcall(L, 0, 1, 0) != 0) {
    box_permit lost = *given;
    permit_abandon(&lost);
    lua_error(L);
  }
  *(box_permit *)lua_touserdata(L, -1) = *given;
  permit_refer(L, PERMIT_BREAKER, breaker);
  permit_refer(L, PERMIT_RULES, rules);
  permit_refer(L, PERMIT_FRAME, frame);
  permit_refer(L, PERMIT_LINE, line);
}

static int l_gc(lua_State *L) {
  permit_abandon((box_permit *)luaL_checkudata(L, 1, NEAP__PERMIT));
  return 0;
}

static int l_tostring(lua_State *L) {
  const box_permit *box = (const box_permit *)luaL_checkudata(L, 1, NEAP__PERMIT);
  lua_pushstring(L, box->permit.opaque ? "neap.permit (out)" : "neap.permit (used)");
  return 1;
}

void neap__open_permit(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"__gc", l_gc},
      {"__close", l_gc},
      {"__tostring", l_tostring},
      {NULL, NULL},
  };
  luaL_getmetatable(L, NEAP__PERMIT);
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
  lua_pushcfunction(L, permit_new);
  lua_setfield(L, LUA_REGISTRYINDEX, PERMIT_NEW);
}
