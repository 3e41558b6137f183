/* halves.c: guard:call(f, ...) for Lua 5.1 and LuaJIT, where C cannot be yielded across: what
 * call.c does before f and after it.  Between the two, lua/neap/call.lua calls f. */
#include "line.h"

#if !COMPAT_HAS_PCALLK

static int misused(lua_State *L, const char *message) {
  lua_pushboolean(L, 0);
  lua_pushstring(L, message);
  return 2;
}

static NEAP__SELDOM int refused(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                                const neap_transition *moved) {
  lua_pushnil(L);
  lua_pushstring(L, line_refusal(verdict));
  compat_pushwide(L, neap__retry_after(n->breaker, n->rules, now_ms, verdict));
  neap__push_moved(L, moved);
  return 4;
}

/* begin(guard, f, timeout_ms) -> permit, timeout_ms if the host is to run f
 *   | nil, reason, retry_after_ms, moved | false, what is wrong about the call | true: it is layered.
 * Of another guard's fallback, and of one of several attempts, the guard is the line's owner, and
 * there is a timeout_ms: false for the policy's. */
int neap__l_begin(lua_State *L) {
  line *n = method_line(L);
  if (lua_topointer(L, 1) != n->self && !lua_rawequal(L, 1, lua_upvalueindex(M_OWNER)))
    return misused(L, lua_pushfstring(L, LINE_NO_METHOD, "call", "call"));
  if (n->panel && !n->panel->panel) return misused(L, LINE_CLOSED);
  lua_settop(L, 3);
  if (!neap__is_callable(L, 2)) {
    const char *expected = neap__push_expected(L, 2, "what to call", "a function");
    return misused(L, lua_pushfstring(L, "bad argument #1 to 'call' (%s)", expected));
  }
  if (n->is_layered && lua_isnil(L, 3)) {
    lua_pushboolean(L, 1);
    return 1;
  }
  uint64_t now_ms = method_now(L, n), timeout_ms;
  if (!neap__read_ms(L, 3, &timeout_ms)) timeout_ms = n->timeout_ms;
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = line_acquire(n, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refused(L, n, now_ms, verdict, &moved);
  n->deadline_ms = timeout_ms ? now_ms + timeout_ms : 0;
  if (line_holds(n, verdict))
    neap__push_held(L, n, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER), 0);
  else
    neap__push_plain(L, neap__wide(permit, now_ms, n->number));
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  if (!n->has_run || !timeout_ms) return 1;
  compat_pushwide(L, timeout_ms);
  return 2;
}

/* finish(frame, permit, a, b, f, ...) -> true: f's results are the answer
 *   | false, how the call ended, and the policy's verdict if it was asked: settle's arguments */
int neap__l_finish(lua_State *L) {
  enum { FRAME = 1, PERMIT, A, B, F };
  line *n = method_line(L);
  line_call c = {n, lua_topointer(L, FRAME), 0, F, lua_gettop(L) - B, false};
  if (lua_type(L, PERMIT) == LUA_TNUMBER) (void)neap__read_plain(L, PERMIT, &c.wide);
  luaL_checkstack(L, 20, "too many arguments");
  const char *ended;
  int verdict = neap__succeed(L, &c, A, &ended);
  if (verdict == NEAP__SUCCEEDED) {
    lua_pushboolean(L, 1);
    return 1;
  }
  int top = lua_gettop(L);
  lua_pushboolean(L, 0);
  lua_pushstring(L, ended);
  for (int i = 0; verdict && i < 4; i++) lua_pushvalue(L, verdict + i);
  return lua_gettop(L) - top;
}

#endif
