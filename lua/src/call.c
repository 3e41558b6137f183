/* call.c: guard:call(f, ...), as far as it is plain.
 *
 *     read the clock, acquire   -- refused, or the breaker moved -->  refuse, moved (Lua)
 *     f(...), protected
 *     classify                  -- anything but a plain success  -->  settle (Lua)
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

#include "sandbox.h"

#include <string.h>

#if COMPAT_HAS_PCALLK

enum { SLOT_FRAME = 1, SLOT_F };

/* A call under way. */
typedef struct call {
  line *line;
  const void *generation; /* identity of the frame */
  uint64_t wide;          /* the permit; 0: it is in the slot after the frame */
  int kept;               /* f and its arguments */
  bool hosted;
} call;

/*     62 .. 54    53       52 .. 0            where lua_KContext has 64 bits: a permit in it is
 *     kept        hosted   wide              never 0 in its two lowest bits
 *
 *     all above bit 2      2        1 .. 0
 *     kept                 hosted   0        where the permit has a slot of its own */
#define CONTEXT_WIDE (sizeof(lua_KContext) >= 8)
#define KEPT_MOST    511

static inline lua_KContext call_context(const call *c) {
  uint64_t flags = (uint64_t)c->kept * 2 + c->hosted;
  return (lua_KContext)(c->wide ? flags << PERMIT_WIDE_BITS | c->wide : flags << 2);
}

static inline call context_call(lua_State *L, lua_KContext context) {
  uint64_t bits = (uint64_t)context;
  bool has_wide = bits & 3;
  uint64_t flags = bits >> (has_wide ? PERMIT_WIDE_BITS : 2);
  uint64_t wide = has_wide ? bits & ((UINT64_C(1) << PERMIT_WIDE_BITS) - 1) : 0;
  const void *generation = lua_topointer(L, SLOT_FRAME);
  return (call){method_line(L), generation, wide, (int)(flags / 2), flags & 1};
}

static inline int slot_kept(const call *c) { return c->wide ? SLOT_F : SLOT_F + 1; }

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

static void push_kept(lua_State *L, const call *c) {
  int slot = slot_kept(c);
  for (int i = 0; i < c->kept; i++) lua_pushvalue(L, slot + i);
}

/* What comes after a call that is not a plain success.  Its results are at a; the policy's verdict
 * begins at `verdict`, or it is 0. */
static NEAP__SELDOM int settle(lua_State *L, const call *c, const char *ended, int a, int verdict) {
  luaL_checkstack(L, c->kept + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_SETTLE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  if (c->wide)
    compat_pushwide(L, c->wide);
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

static void remember(lua_State *L, const call *c, int a) {
  luaL_checkstack(L, c->kept + 8, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_REMEMBER));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  lua_pushvalue(L, a);
  push_kept(L, c);
  lua_call(L, 3 + c->kept, 0);
}

/* ---- Classifying a success ------------------------------------------------------------------- */

static void lend_result(lua_State *L, int index) {
  lua_pushvalue(L, lua_upvalueindex(M_RESULT));
  lua_pushvalue(L, index);
  lua_rawset(L, lua_upvalueindex(M_FIELDS));
}

/* Of what the collector or the memory would feel, nothing is held longer than the call takes. */
static bool is_heavy(lua_State *L, int index) {
  int type = lua_type(L, index);
  return type > LUA_TSTRING || (type == LUA_TSTRING && lua_rawlen(L, index) > 64);
}

static void take_result_back(lua_State *L, int index) {
  if (!is_heavy(L, index)) return;
  lua_pushvalue(L, lua_upvalueindex(M_RESULT));
  lua_pushnil(L);
  lua_rawset(L, lua_upvalueindex(M_FIELDS));
}

static void lend_arguments(lua_State *L, const call *c) {
  int args = c->kept - 1;
  for (int i = 1; i <= args || i <= c->line->lent_args; i++) {
    if (i <= args)
      lua_pushvalue(L, slot_kept(c) + i);
    else
      lua_pushnil(L);
    lua_rawseti(L, lua_upvalueindex(M_ARGS), i);
  }
  if (args == c->line->lent_args) return;
  lua_pushvalue(L, lua_upvalueindex(M_N));
  lua_pushinteger(L, args);
  lua_rawset(L, lua_upvalueindex(M_ARGS));
  c->line->lent_args = args;
}

static void take_arguments_back(lua_State *L, const call *c) {
  for (int i = 1; i < c->kept; i++) {
    if (!is_heavy(L, slot_kept(c) + i)) continue;
    lua_pushnil(L);
    lua_rawseti(L, lua_upvalueindex(M_ARGS), i);
  }
}

static void lend_duration(lua_State *L, line *n, uint64_t duration_ms) {
  if (duration_ms == n->lent_ms) return;
  lua_pushvalue(L, lua_upvalueindex(M_DURATION));
  compat_pushwide(L, duration_ms);
  lua_rawset(L, lua_upvalueindex(M_FIELDS));
  n->lent_ms = duration_ms;
}

/* What the policy's function in its box came to, if that was more than "success": its classifier
 * goes on from there. */
static int classify_otherwise(lua_State *L, line *n, int verdict) {
  if (n->box->condemned) { /* what it keeps may go */
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(M_FUNCTION));
    n->box = NULL;
  }
  neap__push_otherwise(L, lua_upvalueindex(M_CLASSIFY));
  lua_insert(L, verdict);
  lua_pushvalue(L, lua_upvalueindex(M_CALL));
  lua_insert(L, verdict + 1);
  return lua_pcall(L, lua_gettop(L) - verdict, LUA_MULTRET, 0) == LUA_OK ? verdict : 0;
}

static int classify_outside(lua_State *L, line *n, int verdict) {
  lua_pushvalue(L, lua_upvalueindex(M_CLASSIFY));
  lua_pushvalue(L, lua_upvalueindex(M_CALL));
  n->is_lent = true;
  bool answered = lua_pcall(L, 1, LUA_MULTRET, 0) == LUA_OK;
  n->is_lent = false;
  return answered ? verdict : 0;
}

/* Asks the policy about the success whose results are at a.  Answers PLAIN, or where its answer
 * begins, which is the top of the stack; 0: it has to be asked another way. */
enum { PLAIN = -1 };
static int classify_success(lua_State *L, const call *c, int a, uint64_t duration_ms) {
  line *n = c->line;
  int verdict = a + 2;
  if (n->box ? n->box->running : n->is_lent) return 0;
  lend_arguments(L, c);
  lend_result(L, a);
  lend_duration(L, n, duration_ms);
  if (!n->box)
    verdict = classify_outside(L, n, verdict);
  else if (neap__says_success(L, lua_upvalueindex(M_BOX), lua_upvalueindex(M_FUNCTION),
                              lua_upvalueindex(M_CALL)))
    verdict = PLAIN;
  else
    verdict = classify_otherwise(L, n, verdict);
  take_result_back(L, a);
  take_arguments_back(L, c);
  return verdict;
}

/* Outcome, reason, retry_after_ms, fault: the first says "success", and the last is not there. */
static bool is_plain_success(lua_State *L, int verdict) {
  int answers = lua_gettop(L) - verdict + 1;
  if (answers < 1 || (answers > 3 && !lua_isnil(L, verdict + 3))) return false;
  size_t length = 0;
  const char *outcome =
      lua_type(L, verdict) == LUA_TSTRING ? lua_tolstring(L, verdict, &length) : NULL;
  return neap__is_success(outcome, length);
}

/* ---- After f --------------------------------------------------------------------------------- */

/* A success by the newest policy, with a permit that holds nothing: counted here. */
static int succeed(lua_State *L, const call *c, int a) {
  const line *n = c->line;
  uint64_t now_ms = method_now(L, n);
  neap_call counted = {.outcome = NEAP_SUCCESS, .duration_ms = neap__wide_age_ms(c->wide, now_ms)};
  uint64_t slow_ms = n->has_trip && n->rules->slow_call_ms ? n->rules->slow_call_ms : NEAP_NEVER;
  if (n->timeout_ms && counted.duration_ms > n->timeout_ms) return settle(L, c, "timeout", a, 0);
  if (counted.duration_ms > slow_ms) return settle(L, c, "answer", a, 0);
  int verdict = PLAIN;
  if (n->has_classify) {
    verdict = classify_success(L, c, a, counted.duration_ms);
    if (verdict != PLAIN && (!verdict || !is_plain_success(L, verdict))) {
      lua_settop(L, a + 5);
      return settle(L, c, "answer", a, verdict);
    }
  }
  neap_permit permit = neap__narrow(c->wide);
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_breaker_report(n->breaker, n->rules, now_ms, &permit, &counted, &moved);
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  if (n->remembers) remember(L, c, a);
  if (verdict != PLAIN) lua_settop(L, a + 1);
  return 2;
}

/* f has returned two values, or raised one; or the host has said whether it was in time, and what
 * it returned. */
static int ended(lua_State *L, const call *c, int status) {
  const line *n = c->line;
  int a = slot_kept(c) + c->kept;
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_settop(L, a);
    lua_pushnil(L);
    return settle(L, c, "raised", a, 0);
  }
  if (c->hosted && !lua_toboolean(L, a++)) return settle(L, c, "abandoned", a, 0);
  bool is_good = lua_toboolean(L, a) || lua_isnil(L, a + 1);
  if (is_good && c->wide && c->generation == n->generation && (!n->panel || n->panel->panel))
    return succeed(L, c, a);
  return settle(L, c, "answer", a, 0);
}

static int ended_later(lua_State *L, int status, lua_KContext context) {
  call c = context_call(L, context);
  return ended(L, &c, status);
}

/* ---- Before f -------------------------------------------------------------------------------- */

static NEAP__SELDOM int refuse(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                               const neap_transition *moved, int args) {
  uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
  luaL_checkstack(L, args + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_REFUSE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushstring(L, neap_verdict_name(verdict));
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  for (int i = SLOT_FRAME; i <= SLOT_F + args; i++) lua_pushvalue(L, i);
  return finish_by_hook(L, 5 + args + 1);
}

/* f, and its arguments above it, are the top of the stack. */
static int run(lua_State *L, call *c, int args) {
  line *n = c->line;
  c->hosted = n->has_run && n->timeout_ms;
  c->kept = n->keeps || c->hosted ? args + 1 : 0;
  if (c->hosted) {
    push_ref(L, LINE_RUN);
    compat_pushwide(L, n->timeout_ms);
  }
  push_kept(L, c);
  int status = lua_pcallk(L, c->hosted ? args + 2 : args, c->hosted ? 3 : 2, 0, call_context(c),
                          ended_later);
  return ended(L, c, status);
}

/* The permit gets a slot of its own. */
static NEAP__SELDOM void slot_permit(lua_State *L, call *c, neap_permit permit, uint64_t now_ms,
                                     bool holds) {
  c->wide = 0;
  if (holds)
    neap__push_held(L, c->line, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER),
                    SLOT_FRAME);
  else
    compat_pushwide(L, neap__wide(permit, now_ms, 0));
  lua_insert(L, SLOT_FRAME + 1);
  if (holds) compat_close(L, SLOT_FRAME + 1);
}

/* From where there is a frame at 1, f at 2, its arguments above. */
static int begin(lua_State *L, line *n, const void *generation, int args) {
  uint64_t now_ms = method_now(L, n);
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = neap_breaker_acquire(n->breaker, n->rules, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refuse(L, n, now_ms, verdict, &moved, args);
  n->deadline_ms = n->timeout_ms ? now_ms + n->timeout_ms : 0;
  call c = {.line = n, .generation = generation, .wide = neap__wide(permit, now_ms, 0)};
  if (verdict == NEAP_ALLOW_PROBE || !CONTEXT_WIDE || args >= KEPT_MOST)
    slot_permit(L, &c, permit, now_ms, verdict == NEAP_ALLOW_PROBE);
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  return run(L, &c, args);
}

static void check_f(lua_State *L, int arg) {
  if (lua_type(L, arg) == LUA_TFUNCTION) return;
  if (luaL_getmetafield(L, arg, "__call"))
    lua_pop(L, 1);
  else
    neap__argument_error(L, arg, "what to call", "a function");
}

/* Few arguments fit what every C function has. */
static inline int check_room(lua_State *L) {
  int args = lua_gettop(L) - SLOT_F;
  if (args > 3) luaL_checkstack(L, 2 * args + 20, "too many arguments");
  return args;
}

/* guard:call(f, ...) -> a, b, info */
int neap__l_call(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "call");
  check_f(L, SLOT_F);
  int args = check_room(L);
  lua_copy(L, lua_upvalueindex(M_GENERATION), SLOT_FRAME);
  return begin(L, n, n->generation, args);
}

/* call_in(frame, f, ...) -> a, b, info: as call, when it is another guard's fallback */
int neap__l_call_in(lua_State *L) {
  line *n = method_line(L);
  check_open(L, n);
  luaL_checktype(L, SLOT_FRAME, LUA_TTABLE);
  check_f(L, SLOT_F);
  return begin(L, n, lua_topointer(L, SLOT_FRAME), check_room(L));
}

#endif
