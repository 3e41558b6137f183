/* line.c: the fast path of a guard's calls, for one key.
 *
 *   guard:call(f, ...)                      stack of the C function, from the bottom
 *
 *     read the clock, acquire   -- refused, or the breaker moved -->  refuse, moved (Lua)
 *     f(...), protected         |  frame | permit | f, arguments ... |  result, result
 *     classify                  -- anything but a plain success  -->  settle (Lua)
 *     report                    -- the breaker moved             -->  moved (Lua)
 *     remember                  -- the policy has a use for the answer -->  remember (Lua)
 *
 * The closed and healthy case stays here and allocates nothing; everything else is Lua's (neap.line), which is handed what is on
 * the stack.  `frame` is the policy generation that admitted the call, or a table that has it as .generation.  f and its arguments
 * are kept below the call only if the policy has a use for them.
 *
 * Between acquire and report a permit is either a plain number that holds nothing, or a userdata in a to-be-closed slot: however
 * the call ends (an error in here, a coroutine closed, or collected while it sleeps), nothing stays taken. */
#include "binding.h"

#include <string.h>

typedef struct line {
  neap_breaker *breaker;
  const box_panel *panel;
  const neap_rules *rules; /* the newest; NULL before the first adopt */
  neap_clock clock;        /* .now_ms NULL: LINE_CLOCK, a Lua function */
  const void *generation;  /* identity of the newest policy */
  const void *self;        /* identity of the table that has the methods */
  uint64_t deadline_ms;    /* of the call that began last; 0: none */
  uint32_t timeout_ms;     /* 0: none */
  uint32_t number;         /* of the generation, its low bits */
  bool has_classify;       /* LINE_CLASSIFY judges every call */
  bool has_trip;           /* a Lua rule wants to see what is slow */
  bool has_run;            /* LINE_RUN enforces the timeout */
  bool keeps;              /* f and its arguments, for classify or the fallback chain */
  bool remembers;          /* good answers are stored */
  bool lent;               /* the call table is in use */
} line;

enum {
  LINE_BREAKER = 1,
  LINE_GENERATION,
  LINE_RULES,
  LINE_CLOCK,
  LINE_CLASSIFY,
  LINE_CALL, /* the one table that successes are classified in, and its .args */
  LINE_ARGS,
  LINE_RUN,
  LINE_REFS = LINE_RUN
};

/* Upvalues of the methods: the line; the table that Lua keeps for it, which is the first argument of every hook; the hooks; names
 * of the fields of a call. */
enum {
  M_LINE = 1,
  M_OWNER,
  M_REFUSE,  /* (owner, reason, retry_after_ms, moved, frame, f, ...) -> what call answers */
  M_REFUSED, /* (owner, reason, retry_after_ms, moved) -> what acquire answers */
  M_MOVED,   /* (owner, moved) */
  M_SETTLE, /* (owner, frame, permit, ended, a, b, outcome, reason, retry_after_ms, fault, f, ...) -> what call answers */
  M_REMEMBER, /* (owner, frame, a, f, ...) */
  M_ACQUIRE,  /* (owner, key) -> what acquire answers */
  M_REPORT,   /* (owner, permit, call) -> what report answers */
  M_FIRST_NAME,
  M_RESULT = M_FIRST_NAME,
  M_ERROR,
  M_DURATION,
  M_ENDED,
  M_ANSWER,
  M_COUNT = M_ANSWER
};
static const char *const hook_names[] = {
    "refuse", "refused", "moved", "settle", "remember", "acquire", "report",
};
static const char *const field_names[] = {"result", "error", "duration_ms", "ended_by", "answer"};

static inline line *method_line(lua_State *L) {
  return (line *)lua_touserdata(L, lua_upvalueindex(M_LINE));
}

static inline void push_ref(lua_State *L, int ref) {
  compat_getref(L, lua_upvalueindex(M_LINE), ref);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* The line is at `index`. */
static uint64_t line_ask(lua_State *L, int index) {
  uint64_t now_ms;
  compat_getref(L, index, LINE_CLOCK);
  lua_call(L, 0, 1);
  if (!neap__read_ms(L, -1, &now_ms))
    luaL_error(L, "the guard's clock must answer milliseconds, 0 or more");
  lua_pop(L, 1);
  return now_ms;
}

static inline uint64_t line_now(lua_State *L, const line *n, int index) {
  return n->clock.now_ms ? n->clock.now_ms(n->clock.context) : line_ask(L, index);
}

static inline uint64_t method_now(lua_State *L, const line *n) {
  return line_now(L, n, lua_upvalueindex(M_LINE));
}

/* ---- Checking -------------------------------------------------------------------------------- */

static void check_open(lua_State *L, const line *n) {
  if (n->panel && !n->panel->panel) luaL_error(L, "the guard's panel is closed");
}

static void check_self(lua_State *L, const line *n, const char *method) {
  if (lua_topointer(L, 1) != n->self)
    luaL_error(L, "%s is its guard's method: write guard:%s(...), with a colon", method, method);
  check_open(L, n);
}

static void check_callable(lua_State *L, int arg) {
  if (lua_type(L, arg) == LUA_TFUNCTION) return;
  if (luaL_getmetafield(L, arg, "__call"))
    lua_pop(L, 1);
  else
    neap__argument_error(L, arg, "what to call", "a function");
}

/* ---- Permits --------------------------------------------------------------------------------- */

/* Pushes a userdata that holds the permit and, unreported, gives it back.  The line is at `index`, its owner at `owner`; `frame`
 * 0: the newest generation.  Indices are absolute. */
static void push_held(lua_State *L, const line *n, neap_permit permit, uint64_t now_ms, int index,
                      int owner, int frame) {
  box_permit given = {.permit = permit,
                      .breaker = n->breaker,
                      .panel = n->panel,
                      .rules = n->rules,
                      .clock = n->clock,
                      .given_ms = now_ms};
  int top = lua_gettop(L);
  compat_getref(L, index, LINE_BREAKER);
  compat_getref(L, index, LINE_RULES);
  compat_getref(L, index, LINE_GENERATION);
  neap__push_permit(L, &given, top + 1, top + 2, frame ? frame : top + 3, owner);
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
}

/* ---- call ------------------------------------------------------------------------------------ */

#if COMPAT_HAS_PCALLK

/* Slots of a call in progress; from SLOT_KEPT on, f and its arguments, if they are kept. */
enum { SLOT_FRAME = 1, SLOT_PERMIT, SLOT_KEPT };

/* How many are kept, and whether the host runs f, in what goes through a yield. */
#define CONTEXT(kept, hosted)   ((lua_KContext)(kept)*2 + (hosted))
#define CONTEXT_KEPT(context)   ((int)((context) / 2))
#define CONTEXT_HOSTED(context) ((context) % 2 != 0)

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

/* What comes after a call that is not a plain success.  Its results are at a; the policy's verdict at `verdict`, or it is 0. */
static int settle(lua_State *L, int kept, const char *ended, int a, int verdict) {
  luaL_checkstack(L, kept + 20, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_SETTLE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  lua_pushvalue(L, SLOT_PERMIT);
  lua_pushstring(L, ended);
  lua_pushvalue(L, a);
  lua_pushvalue(L, a + 1);
  for (int i = 0; i < 4; i++)
    if (verdict)
      lua_pushvalue(L, verdict + i);
    else
      lua_pushnil(L);
  for (int i = 0; i < kept; i++) lua_pushvalue(L, SLOT_KEPT + i);
  return finish_by_hook(L, 10 + kept);
}

/* Sets a field of the call table on top to the value at `index`. */
static inline void lend(lua_State *L, int name, int index) {
  lua_pushvalue(L, lua_upvalueindex(name));
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
}

static void lend_arguments(lua_State *L, int kept) {
  push_ref(L, LINE_ARGS);
  for (int i = 1; i < kept; i++) {
    lua_pushvalue(L, SLOT_KEPT + i);
    lua_rawseti(L, -2, i);
  }
  lua_pushliteral(L, "n");
  lua_pushinteger(L, kept - 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* Nothing of the call is held longer than it takes. */
static void take_back(lua_State *L, int kept) {
  push_ref(L, LINE_CALL);
  lua_pushnil(L);
  int none = lua_gettop(L);
  lua_pushvalue(L, -2);
  lend(L, M_RESULT, none);
  lend(L, M_ERROR, none);
  push_ref(L, LINE_ARGS);
  for (int i = 1; i < kept; i++) {
    lua_pushnil(L);
    lua_rawseti(L, -2, i);
  }
  lua_settop(L, none - 2);
}

/* Asks the policy about the success whose results are at a, in a table that is used again for the next one.  Answers the index of
 * outcome, reason, retry_after_ms and fault, on top of the stack; 0: this has to be done another way. */
static int classify_success(lua_State *L, line *n, int kept, int a, uint64_t duration_ms) {
  if (n->lent) return 0;
  push_ref(L, LINE_CLASSIFY);
  int verdict = lua_gettop(L);
  lend_arguments(L, kept);
  compat_pushwide(L, duration_ms);
  push_ref(L, LINE_CALL);
  lend(L, M_DURATION, verdict + 1);
  lua_remove(L, verdict + 1);
  lend(L, M_RESULT, a);
  lend(L, M_ERROR, a + 1);
  lua_pushvalue(L, lua_upvalueindex(M_ENDED));
  lua_pushvalue(L, lua_upvalueindex(M_ANSWER));
  lua_rawset(L, -3);
  n->lent = true;
  bool answered = lua_pcall(L, 1, 4, 0) == LUA_OK;
  n->lent = false;
  take_back(L, kept);
  return answered ? verdict : 0;
}

static bool is_plain_success(lua_State *L, int verdict) {
  return lua_isnil(L, verdict + 3) && lua_type(L, verdict) == LUA_TSTRING &&
         strcmp(lua_tostring(L, verdict), "success") == 0;
}

static void tell_moved(lua_State *L, const neap_transition *moved) {
  lua_pushvalue(L, lua_upvalueindex(M_MOVED));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  neap__push_moved(L, moved);
  lua_call(L, 2, 0);
}

static void remember(lua_State *L, int kept, int a) {
  luaL_checkstack(L, kept + 8, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_REMEMBER));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, SLOT_FRAME);
  lua_pushvalue(L, a);
  for (int i = 0; i < kept; i++) lua_pushvalue(L, SLOT_KEPT + i);
  lua_call(L, 3 + kept, 0);
}

/* A success by a policy that is still the newest, with a permit that holds nothing: counted here. */
static int succeed(lua_State *L, line *n, int kept, int a) {
  uint64_t wide = compat_towide(L, SLOT_PERMIT);
  neap_permit permit = neap__narrow(wide);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t now_ms = method_now(L, n);
  uint64_t duration_ms = neap__wide_age_ms(wide, now_ms);
  if (n->timeout_ms && duration_ms > n->timeout_ms) return settle(L, kept, "timeout", a, 0);
  if (n->has_trip && n->rules->slow_call_ms && duration_ms > n->rules->slow_call_ms)
    return settle(L, kept, "answer", a, 0);
  if (n->has_classify) {
    int verdict = classify_success(L, n, kept, a, duration_ms);
    if (!verdict || !is_plain_success(L, verdict)) return settle(L, kept, "answer", a, verdict);
  }
  neap_call call = {.outcome = NEAP_SUCCESS, .duration_ms = duration_ms};
  neap_breaker_report(n->breaker, n->rules, now_ms, &permit, &call, &moved);
  if (moved.cause != NEAP_BY_NOTHING) tell_moved(L, &moved);
  if (n->remembers) remember(L, kept, a);
  lua_settop(L, a + 1);
  return 2;
}

/* f has ended: returned two values, raised one; or the host says whether it was in time, and what it returned. */
static int call_done(lua_State *L, int status, lua_KContext context) {
  line *n = method_line(L);
  int kept = CONTEXT_KEPT(context);
  int a = SLOT_KEPT + kept;
  bool in_time = true;
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_settop(L, a);
    lua_pushnil(L);
    return settle(L, kept, "raised", a, 0);
  }
  if (CONTEXT_HOSTED(context)) in_time = lua_toboolean(L, a++);
  if (!in_time) return settle(L, kept, "abandoned", a, 0);
  bool good = lua_toboolean(L, a) || lua_isnil(L, a + 1);
  if (good && lua_topointer(L, SLOT_FRAME) == n->generation &&
      lua_type(L, SLOT_PERMIT) == LUA_TNUMBER && (!n->panel || n->panel->panel))
    return succeed(L, n, kept, a);
  return settle(L, kept, "answer", a, 0);
}

static int refuse(lua_State *L, const line *n, uint64_t now_ms, neap_verdict verdict,
                  const neap_transition *moved, int args) {
  uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
  lua_pushvalue(L, lua_upvalueindex(M_REFUSE));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushstring(L, neap_verdict_name(verdict));
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  for (int i = 1; i <= args + 2; i++) lua_pushvalue(L, i);
  return finish_by_hook(L, 4 + args + 2);
}

/* Runs f, which is at index 2 with its arguments above; index 1 is the frame. */
static int run(lua_State *L, line *n, int args) {
  bool hosted = n->has_run && n->timeout_ms;
  int kept = n->keeps || hosted ? args + 1 : 0;
  for (int i = 0; i < kept && !hosted; i++) lua_pushvalue(L, SLOT_KEPT + i);
  if (hosted) {
    push_ref(L, LINE_RUN);
    compat_pushwide(L, n->timeout_ms);
    for (int i = 0; i < kept; i++) lua_pushvalue(L, SLOT_KEPT + i);
  }
  lua_KContext context = CONTEXT(kept, hosted);
  int status = lua_pcallk(L, hosted ? args + 2 : args, hosted ? 3 : 2, 0, context, call_done);
  return call_done(L, status, context);
}

/* As l_call, from where it has a frame at 1, f at 2, and above it its arguments. */
static int admit(lua_State *L, line *n, int args) {
  uint64_t now_ms = method_now(L, n);
  neap_permit permit;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = neap_breaker_acquire(n->breaker, n->rules, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) return refuse(L, n, now_ms, verdict, &moved, args);
  n->deadline_ms = n->timeout_ms ? now_ms + n->timeout_ms : 0;
  if (verdict == NEAP_ALLOW_PROBE)
    push_held(L, n, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER),
              SLOT_FRAME);
  else
    compat_pushwide(L, neap__wide(permit, now_ms, 0));
  lua_insert(L, SLOT_PERMIT);
  if (verdict == NEAP_ALLOW_PROBE) compat_close(L, SLOT_PERMIT);
  if (moved.cause != NEAP_BY_NOTHING) tell_moved(L, &moved);
  return run(L, n, args);
}

/* guard:call(f, ...) -> a, b, info */
static int l_call(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "call");
  check_callable(L, 2);
  int args = lua_gettop(L) - 2;
  luaL_checkstack(L, 2 * args + 24, "too many arguments");
  push_ref(L, LINE_GENERATION);
  lua_replace(L, SLOT_FRAME);
  return admit(L, n, args);
}

/* call_in(frame, f, ...) -> a, b, info: as call, for a call that another guard's fallback chain makes */
static int l_call_in(lua_State *L) {
  line *n = method_line(L);
  check_open(L, n);
  luaL_checktype(L, 1, LUA_TTABLE);
  check_callable(L, 2);
  int args = lua_gettop(L) - 2;
  luaL_checkstack(L, 2 * args + 24, "too many arguments");
  return admit(L, n, args);
}

#endif

/* ---- acquire, report ------------------------------------------------------------------------- */

/* guard:acquire(key) -> permit | nil, err */
static int l_acquire(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "acquire");
  if (!lua_isnoneornil(L, 2)) {
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(M_ACQUIRE));
    lua_pushvalue(L, lua_upvalueindex(M_OWNER));
    lua_pushvalue(L, 2);
    lua_call(L, 2, 2);
    return 2;
  }
  uint64_t now_ms = method_now(L, n);
  neap_permit permit;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = neap_breaker_acquire(n->breaker, n->rules, now_ms, &permit, &moved);
  if (verdict > NEAP_ALLOW_BYPASS) {
    uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
    lua_pushvalue(L, lua_upvalueindex(M_REFUSED));
    lua_pushvalue(L, lua_upvalueindex(M_OWNER));
    lua_pushstring(L, neap_verdict_name(verdict));
    compat_pushwide(L, retry_after_ms);
    neap__push_moved(L, &moved);
    lua_call(L, 4, 2);
    return 2;
  }
  if (verdict == NEAP_ALLOW_PROBE)
    push_held(L, n, permit, now_ms, lua_upvalueindex(M_LINE), lua_upvalueindex(M_OWNER), 0);
  else
    compat_pushwide(L, neap__wide(permit, now_ms, n->number));
  if (moved.cause == NEAP_BY_NOTHING) return 1;
  lua_pushvalue(L, lua_upvalueindex(M_MOVED));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  neap__push_moved(L, &moved);
  lua_call(L, 2, 0);
  return 1;
}

/* guard:report(permit, call) -> outcome, "counted" | "stale" | "used", reason */
static int l_report(lua_State *L) {
  line *n = method_line(L);
  check_self(L, n, "report");
  lua_settop(L, 3);
  uint64_t wide;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  if (lua_type(L, 3) == LUA_TSTRING && !n->has_trip && neap__read_ms(L, 2, &wide)) {
    neap_outcome outcome = neap__check_outcome(L, 3);
    uint64_t now_ms = method_now(L, n);
    neap_permit permit = neap__narrow(wide);
    neap_call call = {.outcome = outcome, .duration_ms = neap__wide_age_ms(wide, now_ms)};
    neap_reported reported =
        neap_breaker_report(n->breaker, n->rules, now_ms, &permit, &call, &moved);
    lua_pushstring(L, neap__reported_name(reported));
    if (moved.cause == NEAP_BY_NOTHING) return 2;
    lua_pushvalue(L, lua_upvalueindex(M_MOVED));
    lua_pushvalue(L, lua_upvalueindex(M_OWNER));
    neap__push_moved(L, &moved);
    lua_call(L, 2, 0);
    return 2;
  }
  lua_pushvalue(L, lua_upvalueindex(M_REPORT));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_call(L, 3, 3);
  return 3;
}

/* guard:deadline() -> now_ms by which the call that began last should end | nil.  To be read first thing in f. */
static int l_deadline(lua_State *L) {
  const line *n = method_line(L);
  check_self(L, n, "deadline");
  if (n->deadline_ms)
    compat_pushwide(L, n->deadline_ms);
  else
    lua_pushnil(L);
  return 1;
}

/* ---- The line itself ------------------------------------------------------------------------- */

static line *check_line(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  luaL_argcheck(L, n->rules, 1, "the line has no rules yet: adopt comes first");
  check_open(L, n);
  return n;
}

/* What a policy's classify is lent can be read, not added to: the next call gets the same table. */
static int lent_newindex(lua_State *L) { return luaL_error(L, "call is read-only"); }

static void new_lent_table(lua_State *L) {
  lua_createtable(L, 0, 8);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, lent_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

/* line(breaker, key, clock) -> line;  clock: nil (the coarse one), "precise", or a function that answers now_ms */
static int l_line(lua_State *L) {
  neap__check_breaker(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING) neap__argument_error(L, 2, "key", "a string");
  bool is_lua = lua_isfunction(L, 3);
  bool is_precise = !is_lua && !lua_isnoneornil(L, 3);
  if (is_precise && (lua_type(L, 3) != LUA_TSTRING || strcmp(lua_tostring(L, 3), "precise") != 0))
    neap__argument_error(L, 3, "clock", "a function, \"precise\", or nil");
  lua_settop(L, 3);
  const box_breaker *box = (const box_breaker *)lua_touserdata(L, 1);
  line *n = (line *)compat_new(L, sizeof *n, LINE_REFS);
  *n = (line){.breaker = box->breaker, .panel = box->panel};
  if (!is_lua) n->clock = is_precise ? neap_clock_precise() : neap_clock_coarse();
  luaL_setmetatable(L, NEAP__LINE);
  lua_pushvalue(L, 1);
  compat_setref(L, 4, LINE_BREAKER);
  lua_pushvalue(L, 3);
  compat_setref(L, 4, LINE_CLOCK);
  lua_createtable(L, 4, 1);
  lua_pushvalue(L, -1);
  compat_setref(L, 4, LINE_ARGS);
  new_lent_table(L);
  lua_insert(L, -2);
  lua_pushliteral(L, "args");
  lua_insert(L, -2);
  lua_rawset(L, -3);
  lua_pushliteral(L, "key");
  lua_pushvalue(L, 2);
  lua_rawset(L, -3);
  compat_setref(L, 4, LINE_CALL);
  return 1;
}

static bool option(lua_State *L, const char *name) {
  lua_getfield(L, 5, name);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

/* line:adopt(generation, rules, number, options): all at once.
 *   options: classify, run (functions or nil), timeout_ms, has_trip, keeps, remembers */
static int l_adopt(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  check_open(L, n);
  luaL_checktype(L, 2, LUA_TTABLE);
  const neap_rules *rules = neap__to_rules(L, 3);
  if (!rules) neap__argument_error(L, 3, "rules", "made by neap.core.rules()");
  uint32_t number = (uint32_t)neap__check_count(L, 4, "number", 0, UINT32_MAX);
  luaL_checktype(L, 5, LUA_TTABLE);
  bool has_trip = option(L, "has_trip"), keeps = option(L, "keeps"),
       remembers = option(L, "remembers");
  lua_getfield(L, 5, "classify");
  lua_getfield(L, 5, "run");
  bool has_classify = lua_toboolean(L, 6), has_run = lua_toboolean(L, 7);
  neap_breaker_adopt(n->breaker, rules);
  n->rules = rules;
  n->generation = lua_topointer(L, 2);
  n->number = number & 1023;
  n->timeout_ms = rules->timeout_ms;
  n->has_trip = has_trip;
  n->has_classify = has_classify;
  n->has_run = has_run;
  n->keeps = keeps || has_classify;
  n->remembers = remembers;
  compat_setref(L, 1, LINE_RUN);
  compat_setref(L, 1, LINE_CLASSIFY);
  lua_pushvalue(L, 3);
  compat_setref(L, 1, LINE_RULES);
  lua_pushvalue(L, 2);
  compat_setref(L, 1, LINE_GENERATION);
  return 0;
}

static void push_method(lua_State *L, lua_CFunction function) {
  for (int i = 1; i < M_FIRST_NAME; i++) lua_pushvalue(L, i);
  for (int i = M_FIRST_NAME; i <= M_COUNT; i++) lua_pushstring(L, field_names[i - M_FIRST_NAME]);
  lua_pushcclosure(L, function, M_COUNT);
}

/* line:methods(self, owner, hooks) -> call, acquire, report, deadline, call_in; to be called on self */
static int l_methods(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checktype(L, 3, LUA_TTABLE);
  luaL_checktype(L, 4, LUA_TTABLE);
  luaL_argcheck(L, n->rules, 1, "the line has no rules yet: adopt comes first");
  lua_settop(L, 4);
  const void *self = lua_topointer(L, 2);
  lua_pushvalue(L, 4);
  lua_remove(L, 2); /* line | owner | hooks | hooks */
  lua_remove(L, 3); /* line | owner | hooks */
  for (int i = 0; i < M_FIRST_NAME - M_REFUSE; i++) {
    lua_getfield(L, 3 + i, hook_names[i]);
    luaL_argcheck(L, lua_isfunction(L, -1), 4, hook_names[i]);
    lua_insert(L, 3 + i);
  }
  lua_settop(L, M_FIRST_NAME - 1);
#if COMPAT_HAS_PCALLK
  push_method(L, l_call);
#else
  lua_pushnil(L);
#endif
  push_method(L, l_acquire);
  push_method(L, l_report);
  push_method(L, l_deadline);
#if COMPAT_HAS_PCALLK
  push_method(L, l_call_in);
#else
  lua_pushnil(L);
#endif
  n->self = self;
  return 5;
}

/* line:now() -> ms */
static int l_now(lua_State *L) {
  compat_pushwide(L, line_now(L, check_line(L), 1));
  return 1;
}

/* line:take(owner) -> permit | nil, reason, retry_after_ms, moved;  permit, nil, nil, moved.  The permit is held: a userdata. */
static int l_take(lua_State *L) {
  const line *n = check_line(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  uint64_t now_ms = line_now(L, n, 1);
  neap_permit permit;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = neap_breaker_acquire(n->breaker, n->rules, now_ms, &permit, &moved);
  if (verdict <= NEAP_ALLOW_BYPASS) {
    push_held(L, n, permit, now_ms, 1, 2, 0);
    lua_pushnil(L);
    lua_pushnil(L);
  } else {
    uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
    lua_pushnil(L);
    lua_pushstring(L, neap_verdict_name(verdict));
    compat_pushwide(L, retry_after_ms);
  }
  neap__push_moved(L, &moved);
  return 4;
}

static box_permit *to_held(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA) return NULL;
  return (box_permit *)luaL_checkudata(L, index, NEAP__PERMIT);
}

static uint64_t check_wide(lua_State *L, int arg) {
  uint64_t wide;
  if (!neap__read_ms(L, arg, &wide)) neap__argument_error(L, arg, "permit", "what acquire gave");
  return wide;
}

/* line:about(permit) -> age_ms, frame | number of the generation, owner | nil, kind */
static int l_about(lua_State *L) {
  const line *n = check_line(L);
  const box_permit *box = to_held(L, 2);
  uint64_t wide = box ? 0 : check_wide(L, 2);
  neap_permit permit = box ? box->permit : neap__narrow(wide);
  uint64_t now_ms = line_now(L, n, 1);
  compat_pushwide(L, box ? neap__since_ms(box->given_ms, now_ms) : neap__wide_age_ms(wide, now_ms));
  if (box) {
    compat_getref(L, 2, PERMIT_FRAME);
    compat_getref(L, 2, PERMIT_LINE);
  } else {
    compat_pushwide(L, neap__wide_number(wide));
    lua_pushnil(L);
  }
  lua_pushstring(L, permit.opaque ? neap_verdict_name(neap_permit_kind(&permit)) : "used");
  return 4;
}

/* line:give(permit, outcome, duration_ms, retry_after_ms) -> "counted" | "stale" | "used", moved, is_slow */
static int l_give(lua_State *L) {
  const line *n = check_line(L);
  box_permit *box = to_held(L, 2);
  if (box)
    luaL_argcheck(L, box->breaker == n->breaker, 2,
                  "the permit is another guard's, or another key's");
  neap_permit plain = box ? box->permit : neap__narrow(check_wide(L, 2));
  neap_call call = {.outcome = neap__check_outcome(L, 3)};
  call.duration_ms = neap__opt_duration(L, 4, 0);
  call.retry_after_ms = neap__opt_retry_after(L, 5);
  uint64_t now_ms = line_now(L, n, 1);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit *permit = box ? &box->permit : &plain;
  neap_reported reported = neap_breaker_report(n->breaker, n->rules, now_ms, permit, &call, &moved);
  lua_pushstring(L, neap__reported_name(reported));
  neap__push_moved(L, &moved);
  lua_pushboolean(L, n->rules->slow_call_ms && call.duration_ms > n->rules->slow_call_ms);
  return 3;
}

void neap__open_line(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"adopt", l_adopt}, {"methods", l_methods}, {"now", l_now}, {"take", l_take},
      {"about", l_about}, {"give", l_give},       {NULL, NULL},
  };
  luaL_getmetatable(L, NEAP__LINE);
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
  neap__push_metatables(L);
  lua_pushcclosure(L, l_line, UP_COUNT);
  lua_setfield(L, -2, "line");
}
