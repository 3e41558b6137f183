/* call.c: guard:call(f, ...), as far as it is plain.  For Lua 5.1 see halves.c.
 *
 *     read the clock, acquire   -- refused, or the breaker moved -->  refuse, moved (Lua)
 *     f(...), protected
 *     classify, in judge.c      -- anything but a plain success  -->  settle (Lua)
 *     report                    -- the breaker moved             -->  moved (Lua)
 *     remember                  -- the policy has a use for the answer -->  remember (Lua)
 *
 * The stack of the C function:
 *
 *     frame | [permit] | [f | arguments ...] | [in time] | result | result
 *
 * frame     the policy generation that let the call in, or a table that has it as .generation
 * permit    a userdata in a to-be-closed slot, if it holds something: however the call ends (an
 *           error in here, a coroutine closed, or collected while it sleeps), nothing stays taken.
 *           A permit that is a plain number travels in the context, past any yield
 * f, ...    only if the policy has a use for them
 * in time   only if the host runs f */
#include "line.h"

#if COMPAT_HAS_PCALLK

enum { SLOT_FRAME = 1, SLOT_F };

/*     62 .. 54    53       52 .. 0            where lua_KContext has 64 bits: a permit in it is
 *     kept        hosted   wide              never 0 in its two lowest bits
 *
 *     all above bit 2      2        1 .. 0
 *     kept                 hosted   0        where the permit has a slot of its own */
#define CONTEXT_WIDE (sizeof(lua_KContext) >= 8)
#define KEPT_MOST    511

static inline lua_KContext call_context(const line_call *c) {
  uint64_t flags = (uint64_t)c->kept * 2 + c->hosted;
  return (lua_KContext)(c->wide ? flags << PERMIT_WIDE_BITS | c->wide : flags << 2);
}

static inline line_call context_call(lua_State *L, lua_KContext context) {
  uint64_t bits = (uint64_t)context;
  bool has_wide = bits & 3;
  uint64_t flags = bits >> (has_wide ? PERMIT_WIDE_BITS : 2);
  uint64_t wide = has_wide ? bits & ((UINT64_C(1) << PERMIT_WIDE_BITS) - 1) : 0;
  const void *generation = lua_topointer(L, SLOT_FRAME);
  int f = has_wide ? SLOT_F : SLOT_F + 1;
  return (line_call){method_line(L), generation, wide, f, (int)(flags / 2), flags & 1};
}

/* ---- Handing over to Lua --------------------------------------------------------------------- */

/* All that the hook left above `below` is the answer. */
static int hook_done(lua_State *L, int status, lua_KContext below) {
  (void)status;
  return lua_gettop(L) - (int)below;
}

/* Calls a hook, which may yield, with the `args` arguments above it; its results are the answer. */
static int finish_by_hook(lua_State *L, int args) {
  int below = lua_gettop(L) - args - 1;
  lua_callk(L, args, LUA_MULTRET, below, hook_done);
  return hook_done(L, LUA_OK, below);
}

static void push_kept(lua_State *L, const line_call *c) {
  for (int i = 0; i < c->kept; i++) lua_pushvalue(L, c->f + i);
}

/* What comes after a call that is not a plain success.  Its results are at a; the policy's verdict
 * begins at `verdict`, or it is 0. */
static NEAP__SELDOM int settle(lua_State *L, const line_call *c, const char *ended, int a,
                               int verdict) {
  luaL_checkstack(L, c->kept + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_SETTLE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  if (c->wide)
    neap__push_plain(L, c->wide);
  else
    lua_pushvalue(L, SLOT_FRAME + 1);
  lua_pushstring(L, ended);
  lua_pushvalue(L, a);
  lua_pushvalue(L, a + 1);
  for (int i = 0; i < 4; i++)
    if (verdict)
      lua_pushvalue(L, verdict + i);
    else
      lua_pushnil(L);
  push_kept(L, c);
  return finish_by_hook(L, 10 + c->kept);
}

/* ---- After f --------------------------------------------------------------------------------- */

/* f has returned two values, or raised one; or the host has said whether it was in time, and what
 * it returned. */
static int ended(lua_State *L, const line_call *c, int status) {
  const char *how;
  int a = c->f + c->kept;
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_settop(L, a);
    lua_pushnil(L);
    return settle(L, c, "raised", a, 0);
  }
  if (c->hosted && !lua_toboolean(L, a++)) return settle(L, c, "abandoned", a, 0);
  int verdict = neap__succeed(L, c, a, &how);
  return verdict == NEAP__SUCCEEDED ? 2 : settle(L, c, how, a, verdict);
}

static int ended_later(lua_State *L, int status, lua_KContext context) {
  line_call c = context_call(L, context);
  return ended(L, &c, status);
}

/* ---- Before f -------------------------------------------------------------------------------- */

static NEAP__SELDOM int refuse(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                               const neap_transition *moved, int args) {
  uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
  luaL_checkstack(L, args + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_REFUSE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushstring(L, line_refusal(verdict));
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  for (int i = SLOT_FRAME; i <= SLOT_F + args; i++) lua_pushvalue(L, i);
  return finish_by_hook(L, 5 + args + 1);
}

/* f, and its arguments above it, are the top of the stack. */
static int run(lua_State *L, line_call *c, int args, uint64_t timeout_ms) {
  line *n = c->line;
  c->hosted = n->has_run && timeout_ms;
  c->kept = n->keeps || c->hosted ? args + 1 : 0;
  if (c->hosted) {
    push_ref(L, LINE_RUN);
    compat_pushwide(L, timeout_ms);
  }
  push_kept(L, c);
  int status = lua_pcallk(L, c->hosted ? args + 2 : args, c->hosted ? 3 : 2, 0, call_context(c),
                          ended_later);
  return ended(L, c, status);
}

/* The permit gets a slot of its own. */
static NEAP__SELDOM void slot_permit(lua_State *L, line_call *c, neap_permit permit,
                                     uint64_t now_ms, bool holds) {
  c->wide = 0;
  c->f++;
  if (holds)
    neap__push_held(L, c->line, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER),
                    SLOT_FRAME);
  else
    neap__push_plain(L, neap__wide(permit, now_ms, 0));
  lua_insert(L, SLOT_FRAME + 1);
  if (holds) compat_close(L, SLOT_FRAME + 1);
}

/* From where there is a frame at 1, f at 2, its arguments above. */
static int begin(lua_State *L, line *n, const void *generation, int args, uint64_t timeout_ms) {
  uint64_t now_ms = method_now(L, n);
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = line_acquire(n, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refuse(L, n, now_ms, verdict, &moved, args);
  n->deadline_ms = timeout_ms ? now_ms + timeout_ms : 0;
  line_call c = {n, generation, neap__wide(permit, now_ms, 0), SLOT_F, 0, false};
  if (line_holds(n, verdict) || !CONTEXT_WIDE || args >= KEPT_MOST)
    slot_permit(L, &c, permit, now_ms, line_holds(n, verdict));
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  return run(L, &c, args, timeout_ms);
}

static void check_f(lua_State *L, int arg) {
  if (!neap__is_callable(L, arg)) neap__argument_error(L, arg, "what to call", "a function");
}

/* Few arguments fit what every C function has. */
static inline int check_room(lua_State *L) {
  int args = lua_gettop(L) - SLOT_F;
  if (args > 3) luaL_checkstack(L, 2 * args + 20, "too many arguments");
  return args;
}

/* The hook does it all, an attempt at a time by call_in. */
static NEAP__SELDOM int layered(lua_State *L, int args) {
  luaL_checkstack(L, args + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_LAYERED));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  lua_pushnil(L);
  for (int i = SLOT_F; i <= SLOT_F + args; i++) lua_pushvalue(L, i);
  return finish_by_hook(L, 3 + args + 1);
}

/* guard:call(f, ...) -> a, b, info */
int neap__l_call(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "call");
  check_f(L, SLOT_F);
  int args = check_room(L);
  lua_copy(L, lua_upvalueindex(M_GENERATION), SLOT_FRAME);
  if (n->is_layered) return layered(L, args);
  return begin(L, n, n->generation, args, n->timeout_ms);
}

/* A frame's own, if it has one, goes before the policy's. */
static uint64_t frame_timeout(lua_State *L, const line *n) {
  uint64_t timeout_ms;
  lua_getfield(L, SLOT_FRAME, "timeout_ms");
  if (!neap__read_ms(L, -1, &timeout_ms)) timeout_ms = n->timeout_ms;
  lua_pop(L, 1);
  return timeout_ms;
}

/* call_in(frame, f, ...) -> a, b, info: as call, when it is another guard's fallback, or one of
 * several attempts: without the layers around it */
int neap__l_call_in(lua_State *L) {
  line *n = method_line(L);
  check_open(L, n);
  luaL_checktype(L, SLOT_FRAME, LUA_TTABLE);
  check_f(L, SLOT_F);
  int args = check_room(L);
  return begin(L, n, lua_topointer(L, SLOT_FRAME), args, frame_timeout(L, n));
}

#endif
