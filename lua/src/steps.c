/* steps.c: guard:acquire() and guard:report(), as far as they are plain: a breaker that stays where
 * it is, a call whose outcome is given by name. */
#include "line.h"

static NEAP__SELDOM int refused(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                                const neap_transition *moved) {
  uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
  lua_pushvalue(L, lua_upvalueindex(M_REFUSED));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushstring(L, line_refusal(verdict));
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  lua_call(L, 4, 2);
  return 2;
}

static NEAP__SELDOM int acquire_key(lua_State *L) {
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(M_ACQUIRE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, 2);
  lua_call(L, 2, 2);
  return 2;
}

/* guard:acquire(key, or a call) -> permit | nil, err */
int neap__l_acquire(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "acquire");
  if ((lua_gettop(L) > 1 && !lua_isnil(L, 2)) || n->is_keyed) return acquire_key(L);
  uint64_t now_ms = method_now(L, n);
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = line_acquire(n, now_ms, &permit, &moved);
  if (n->is_layered) n->begun++;
  if (verdict > NEAP_ALLOW_BYPASS) return refused(L, n, now_ms, verdict, &moved);
  if (line_holds(n, verdict))
    neap__push_held(L, n, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER), 0);
  else
    neap__push_plain(L, neap__wide(permit, now_ms, n->number));
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  return 1;
}

static NEAP__SELDOM int report_by_hook(lua_State *L) {
  lua_settop(L, 3);
  lua_pushvalue(L, lua_upvalueindex(M_REPORT));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_call(L, 3, 3);
  return 3;
}

/* guard:report(permit, call) -> outcome, "counted" | "stale" | "used", reason */
int neap__l_report(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "report");
  uint64_t wide;
  size_t length;
  const char *name = lua_gettop(L) == 3 ? lua_tolstring(L, 3, &length) : NULL;
  if (!name || n->has_trip || !neap__read_plain(L, 2, &wide)) return report_by_hook(L);
  neap_outcome outcome = NEAP_SUCCESS;
  if (!neap__is_success(name, length)) {
    outcome = neap__check_other_outcome(L, 3);
    if (outcome == NEAP_NEUTRAL) return report_by_hook(L); /* whose share is watched there */
  }
  uint64_t now_ms = method_now(L, n);
  neap_permit permit = neap__narrow(wide);
  neap_call call = {.outcome = outcome, .duration_ms = neap__wide_age_ms(wide, now_ms)};
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  uint64_t began_ms = neap__wide_began_ms(wide, now_ms);
  neap_reported reported = line_report(n, now_ms, began_ms, &permit, &call, &moved);
  if (reported == NEAP_COUNTED)
    lua_pushvalue(L, lua_upvalueindex(M_COUNTED));
  else
    lua_pushstring(L, neap__reported_name(reported));
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  return 2;
}

/* guard:deadline() -> by when the call that began last should end | nil.  To be asked first thing
 * in f. */
int neap__l_deadline(lua_State *L) {
  const line *n = method_line(L);
  check_self(L, n, "deadline");
  if (n->deadline_ms)
    compat_pushwide(L, n->deadline_ms);
  else
    lua_pushnil(L);
  return 1;
}
