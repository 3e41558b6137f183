/* breaker.c: the state of one dependency, and every question and report the core takes. */
#include "binding.h"

/* ---- Checking -------------------------------------------------------------------------------- */

void *neap__test(lua_State *L, int index, int upvalue) {
  if (!lua_getmetatable(L, index)) return NULL;
  bool same = lua_rawequal(L, -1, lua_upvalueindex(upvalue));
  lua_pop(L, 1);
  return same ? lua_touserdata(L, index) : NULL;
}

static neap_breaker *box_open(lua_State *L, const box_breaker *box, int arg) {
  luaL_argcheck(L, !box->panel || box->panel->panel, arg, "the breaker's panel is closed");
  return box->breaker;
}

neap_breaker *neap__check_breaker(lua_State *L, int arg) {
  const box_breaker *box = (const box_breaker *)neap__test(L, arg, UP_BREAKER);
  if (!box) neap__argument_error(L, arg, "self", "a breaker");
  return box_open(L, box, arg);
}

const neap_rules *neap__check_rules(lua_State *L, int arg) {
  const neap_rules *rules = (const neap_rules *)neap__test(L, arg, UP_RULES);
  if (!rules) neap__argument_error(L, arg, "rules", "made by neap.core.rules()");
  return rules;
}

static void *to_object(lua_State *L, int index, const char *name) {
  void *box = lua_touserdata(L, index);
  if (!box || !lua_getmetatable(L, index)) return NULL;
  luaL_getmetatable(L, name);
  bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? box : NULL;
}

neap_breaker *neap__to_breaker(lua_State *L, int index) {
  const box_breaker *box = (const box_breaker *)to_object(L, index, NEAP__BREAKER);
  return box && (!box->panel || box->panel->panel) ? box->breaker : NULL;
}

const neap_rules *neap__to_rules(lua_State *L, int index) {
  return (const neap_rules *)to_object(L, index, NEAP__RULES);
}

void neap__push_metatables(lua_State *L) {
  luaL_getmetatable(L, NEAP__BREAKER);
  luaL_getmetatable(L, NEAP__RULES);
  luaL_getmetatable(L, NEAP__PERMIT);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

neap_breaker *neap__push_own_breaker(lua_State *L) {
  box_breaker *box =
      (box_breaker *)compat_new(L, sizeof *box + 63 + sizeof(neap_breaker), BREAKER_REFS);
  box->breaker = (neap_breaker *)(((uintptr_t)(box + 1) + 63) & ~(uintptr_t)63);
  box->panel = NULL;
  for (size_t i = 0; i < sizeof(neap_breaker) / sizeof(uint64_t); i++) box->breaker->opaque[i] = 0;
  luaL_setmetatable(L, NEAP__BREAKER);
  return box->breaker;
}

/* breaker(): one of its own, outside any panel */
static int l_breaker(lua_State *L) {
  neap__push_own_breaker(L);
  return 1;
}

/* breaker:adopt(rules) */
static int l_adopt(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  neap_breaker_adopt(b, neap__check_rules(L, 2));
  return 0;
}

static int push_refusal(lua_State *L, const char *reason, uint64_t retry_after_ms,
                        const neap_transition *moved) {
  lua_pushnil(L);
  lua_pushstring(L, reason);
  compat_pushwide(L, retry_after_ms);
  neap__push_moved(L, moved);
  return 4;
}

/* What acquire answers if it is not just a permit. */
static NEAP__SELDOM int push_acquired(lua_State *L, int breaker, int rules_index,
                                      neap_permit permit, uint64_t now_ms, neap_verdict verdict,
                                      const neap_transition *moved) {
  const box_breaker *box = (const box_breaker *)lua_touserdata(L, breaker);
  const neap_rules *rules = (const neap_rules *)lua_touserdata(L, rules_index);
  if (verdict > NEAP_ALLOW_BYPASS) {
    uint64_t retry_after_ms = neap__retry_after(box->breaker, rules, now_ms, verdict);
    return push_refusal(L, neap_verdict_name(verdict), retry_after_ms, moved);
  }
  if (verdict == NEAP_ALLOW_PROBE) {
    box_permit given = {.permit = permit,
                        .breaker = box->breaker,
                        .panel = box->panel,
                        .rules = rules,
                        .given_ms = now_ms};
    neap__push_permit(L, &given, breaker, rules_index, 0, 0);
  } else {
    neap__push_plain(L, neap__wide(permit, now_ms, 0));
  }
  if (moved->cause == NEAP_BY_NOTHING) return 1;
  lua_pushnil(L);
  lua_pushnil(L);
  neap__push_moved(L, moved);
  return 4;
}

/* One acquire, with breaker and rules at these indices. */
static inline int acquire(lua_State *L, int breaker, int rules_index, neap_breaker *b,
                          const neap_rules *rules, uint64_t now_ms) {
  neap_permit permit;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_verdict verdict = neap_breaker_acquire(b, rules, now_ms, &permit, &moved);
  if (verdict != NEAP_ALLOW || moved.cause != NEAP_BY_NOTHING)
    return push_acquired(L, breaker, rules_index, permit, now_ms, verdict, &moved);
  neap__push_first(L, neap__wide(permit, now_ms, 0));
  return 1;
}

/* breaker:acquire(rules, now_ms) -> permit, nil, nil, moved | nil, reason, retry_after_ms, moved */
static int l_acquire(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  return acquire(L, 1, 2, b, rules, neap__check_ms(L, 3, "now_ms"));
}

/* The permit at `arg`: a number, copied to *plain, or the one in a userdata of this breaker. */
static neap_permit *check_permit(lua_State *L, int arg, const neap_breaker *b, uint64_t now_ms,
                                 neap_permit *plain, uint64_t *age_ms) {
  box_permit *box = (box_permit *)neap__test(L, arg, UP_PERMIT);
  if (box) {
    luaL_argcheck(L, box->breaker == b, arg, "the permit is another breaker's");
    *age_ms = neap__since_ms(box->given_ms, now_ms);
    return &box->permit;
  }
  uint64_t wide;
  if (!neap__read_plain(L, arg, &wide)) neap__argument_error(L, arg, "permit", "what acquire gave");
  *age_ms = neap__wide_age_ms(wide, now_ms);
  *plain = neap__narrow(wide);
  return plain;
}

static NEAP__SELDOM int push_reported(lua_State *L, neap_reported reported,
                                      const neap_transition *moved) {
  lua_pushstring(L, neap__reported_name(reported));
  if (moved->cause == NEAP_BY_NOTHING) return 1;
  neap__push_moved(L, moved);
  return 2;
}

/* The arguments from `arg` on: permit, outcome, duration_ms, retry_after_ms. */
static int report(lua_State *L, neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                  int arg) {
  neap_permit plain;
  uint64_t age_ms;
  neap_permit *permit = check_permit(L, arg, b, now_ms, &plain, &age_ms);
  neap_call call = {.outcome = neap__check_outcome(L, arg + 1)};
  call.duration_ms = neap__opt_duration(L, arg + 2, age_ms);
  call.retry_after_ms = neap__opt_retry_after(L, arg + 3);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_reported reported = neap_breaker_report(b, rules, now_ms, permit, &call, &moved);
  return push_reported(L, reported, &moved);
}

/* breaker:report(rules, now_ms, permit, outcome, duration_ms, retry_after_ms)
 *   -> "counted" | "stale" | "used", moved;  without duration_ms: since the permit was given */
static int l_report(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  return report(L, b, rules, neap__check_ms(L, 3, "now_ms"), 4);
}

/* breaker:decide(rules, now_ms, epoch, "open" | "closed", retry_after_ms) -> moved | nil */
static int l_decide(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  uint64_t now_ms = neap__check_ms(L, 3, "now_ms");
  uint32_t epoch = neap__check_epoch(L, 4);
  static const char *const names[] = {"closed", "open", NULL};
  neap_state to = luaL_checkoption(L, 5, NULL, names) ? NEAP_OPEN : NEAP_CLOSED;
  int64_t retry_after_ms = neap__opt_retry_after(L, 6);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker_decide(b, rules, now_ms, epoch, to, retry_after_ms, &moved);
  neap__push_moved(L, &moved);
  return 1;
}

/* ---- By hand --------------------------------------------------------------------------------- */

/* breaker:reset(rules, now_ms) -> moved | nil */
static int l_reset(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_breaker_reset(b, rules, neap__check_ms(L, 3, "now_ms"), &moved);
  neap__push_moved(L, &moved);
  return 1;
}

/* breaker:trip(rules, now_ms, open_ms) -> moved | nil, message;  without open_ms: the cooldown */
static int l_trip(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  uint64_t now_ms = neap__check_ms(L, 3, "now_ms");
  uint64_t open_ms = neap__opt_duration(L, 4, 0);
  bool is_over = !lua_isnoneornil(L, 4) && open_ms == 0; /* to the core 0 would be the cooldown */
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  if (!is_over && neap_breaker_trip(b, rules, now_ms, open_ms, &moved) == NEAP_OK) {
    neap__push_moved(L, &moved);
    return 1;
  }
  lua_pushnil(L);
  if (is_over)
    lua_pushvalue(L, 4);
  else
    compat_pushwide(L, open_ms);
  compat_pushwide(L, rules->max_cooldown_ms);
  lua_pushfstring(L, "open_ms %s: must be over 0 and at most max_cooldown_ms, %s",
                  lua_tostring(L, -2), lua_tostring(L, -1));
  lua_replace(L, -3);
  lua_pop(L, 1);
  return 2;
}

/* breaker:set_mode(now_ms, mode, for_ms) -> true | nil, message;  mode nil: the rules' */
static int l_set_mode(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  uint64_t now_ms = neap__check_ms(L, 2, "now_ms");
  neap_mode mode = neap__check_mode(L, 3);
  uint64_t for_ms = neap__opt_duration(L, 4, 0);
  bool is_over = !lua_isnoneornil(L, 4) && for_ms == 0; /* to the core 0 would be for good */
  if (!is_over && neap_breaker_set_mode(b, now_ms, mode, for_ms) == NEAP_OK) {
    lua_pushboolean(L, 1);
    return 1;
  }
  lua_pushnil(L);
  compat_pushwide(L, for_ms);
  lua_pushfstring(L, "for_ms %s: must be over 0 and at most 31 days", lua_tostring(L, -1));
  lua_remove(L, -2);
  return 2;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* breaker:state(rules, now_ms) -> "closed" | "half_open" | "open" */
static int l_state(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  lua_pushstring(L, neap_state_name(neap_breaker_state(b, rules, neap__check_ms(L, 3, "now_ms"))));
  return 1;
}

/* breaker:next_ms(rules, now_ms) -> now_ms of its next change with nobody calling | nil */
static int l_next_ms(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  uint64_t next_ms = neap_breaker_next_ms(b, rules, neap__check_ms(L, 3, "now_ms"));
  if (next_ms == NEAP_NEVER)
    lua_pushnil(L);
  else
    compat_pushwide(L, next_ms);
  return 1;
}

/* breaker:peek(rules, now_ms) -> what acquire would answer: "allow" ... "forced_open" */
static int l_peek(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  lua_pushstring(L, neap_verdict_name(neap_breaker_peek(b, rules, neap__check_ms(L, 3, "now_ms"))));
  return 1;
}

/* breaker:snapshot(rules, now_ms) -> table */
static int l_snapshot(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  neap_snapshot snapshot;
  neap_breaker_snapshot(b, rules, neap__check_ms(L, 3, "now_ms"), &snapshot);
  neap__push_snapshot(L, &snapshot);
  return 1;
}

/* breaker:counts(rules, now_ms) -> good, slow, failed, refused: calls since it began.
 * For who asks thousands of breakers again and again: it makes no table. */
static int l_counts(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  neap_snapshot s;
  neap_breaker_snapshot(b, rules, neap__check_ms(L, 3, "now_ms"), &s);
  const neap_totals *t = &s.totals;
  compat_pushwide(L, t->success);
  compat_pushwide(L, t->slow_success);
  compat_pushwide(L, t->failure + t->slow_failure);
  compat_pushwide(L, t->refused_open + t->refused_probes + t->refused_forced + t->refused_ramp);
  return 4;
}

/* breaker:name() -> its name in its panel, or "" */
static int l_name(lua_State *L) {
  lua_pushstring(L, neap_breaker_name(neap__check_breaker(L, 1)));
  return 1;
}

/* Two handles of one breaker are equal. */
static int l_eq(lua_State *L) {
  const box_breaker *a = (const box_breaker *)neap__test(L, 1, UP_BREAKER);
  const box_breaker *b = (const box_breaker *)neap__test(L, 2, UP_BREAKER);
  lua_pushboolean(L, a && b && a->breaker == b->breaker);
  return 1;
}

static int l_tostring(lua_State *L) {
  const box_breaker *box = (const box_breaker *)neap__test(L, 1, UP_BREAKER);
  if (!box) neap__argument_error(L, 1, "self", "a breaker");
  bool closed = box->panel && !box->panel->panel;
  lua_pushfstring(L, "neap.breaker (%s)",
                  closed ? "panel closed" : neap_breaker_name(box->breaker));
  return 1;
}

/* ---- Bound closures -------------------------------------------------------------------------- */

/* The fastest way: what it costs beyond Lua's own call is mostly calls back into Lua, and values
 * kept across those.  So the usual way is straight, with the fewest of both; tests/bench/gates.lua
 * has the count. */

/* A breaker and rules, looked up and checked once. */
typedef struct binding {
  neap_breaker *breaker;
  const box_panel *panel;
  const neap_rules *rules;
  neap_clock clock;
  const void *success; /* identity of that string, or of not_told */
} binding;

/* Lua 5.1 and 5.3 tell no string's identity. */
static const char not_told;

/* The last only keeps the string. */
enum {
  BIND_THIS = UP_COUNT + 1,
  BIND_BREAKER,
  BIND_RULES,
  BIND_COUNTED,
  BIND_SUCCESS,
  BIND_COUNT = BIND_SUCCESS
};

static inline const binding *the_binding(lua_State *L) {
  const binding *bound = (const binding *)lua_touserdata(L, lua_upvalueindex(BIND_THIS));
  if (bound->panel && !bound->panel->panel) luaL_error(L, "the breaker's panel is closed");
  return bound;
}

static inline uint64_t binding_now(const binding *bound) {
  return bound->clock.now_ms(bound->clock.context);
}

/* acquire() -> as breaker:acquire */
static int l_bound_acquire(lua_State *L) {
  const binding *bound = the_binding(L);
  return acquire(L, lua_upvalueindex(BIND_BREAKER), lua_upvalueindex(BIND_RULES), bound->breaker,
                 bound->rules, binding_now(bound));
}

/* A report of a permit that neap__read_first() took, and of an outcome, and no more. */
static inline int report_first(lua_State *L, const binding *bound, uint64_t wide,
                               neap_outcome outcome) {
  uint64_t now_ms = binding_now(bound);
  neap_permit permit = neap__narrow(wide);
  neap_call call;
  call.outcome = outcome;
  call.duration_ms = neap__wide_age_ms(wide, now_ms);
  call.retry_after_ms = 0;
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  neap_reported reported =
      neap_breaker_report(bound->breaker, bound->rules, now_ms, &permit, &call, &moved);
  if (reported != NEAP_COUNTED || moved.cause != NEAP_BY_NOTHING)
    return push_reported(L, reported, &moved);
  lua_pushvalue(L, lua_upvalueindex(BIND_COUNTED));
  return 1;
}

static NEAP__SELDOM int report_named(lua_State *L, const binding *bound, uint64_t wide) {
  return report_first(L, bound, wide, neap__check_outcome(L, 2));
}

static NEAP__SELDOM int report_other(lua_State *L, const binding *bound) {
  return report(L, bound->breaker, bound->rules, binding_now(bound), 1);
}

/* report(permit, outcome, duration_ms, retry_after_ms) -> as breaker:report */
static int l_bound_report(lua_State *L) {
  const binding *bound = the_binding(L);
  uint64_t wide;
  if (lua_gettop(L) != 2 || !neap__read_first(L, 1, &wide)) return report_other(L, bound);
  if (lua_topointer(L, 2) != bound->success) return report_named(L, bound, wide);
  return report_first(L, bound, wide, NEAP_SUCCESS);
}

/* The binding is at index 3, "success" at 4. */
static void push_bound(lua_State *L, lua_CFunction function) {
  neap__push_metatables(L);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_pushliteral(L, "counted");
  lua_pushvalue(L, 4);
  lua_pushcclosure(L, function, BIND_COUNT);
}

/* breaker:bind(rules) -> acquire, report: for those rules, on the coarse clock */
static int l_bind(lua_State *L) {
  neap_breaker *b = neap__check_breaker(L, 1);
  const neap_rules *rules = neap__check_rules(L, 2);
  lua_settop(L, 2);
  const box_breaker *box = (const box_breaker *)lua_touserdata(L, 1);
  binding *bound = (binding *)compat_new(L, sizeof *bound, 0);
  lua_pushliteral(L, "success");
  const void *success = lua_topointer(L, 4);
  *bound = (binding){b, box->panel, rules, neap_clock_coarse(), success ? success : &not_told};
  push_bound(L, l_bound_acquire);
  push_bound(L, l_bound_report);
  return 2;
}

void neap__open_breaker(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"adopt", l_adopt},   {"acquire", l_acquire},
      {"report", l_report}, {"decide", l_decide},
      {"bind", l_bind},     {"reset", l_reset},
      {"trip", l_trip},     {"set_mode", l_set_mode},
      {"state", l_state},   {"next_ms", l_next_ms},
      {"peek", l_peek},     {"snapshot", l_snapshot},
      {"counts", l_counts}, {"name", l_name},
      {"__eq", l_eq},       {"__tostring", l_tostring},
      {NULL, NULL},
  };
  luaL_getmetatable(L, NEAP__BREAKER);
  neap__push_metatables(L);
  luaL_setfuncs(L, methods, UP_COUNT);
  lua_pop(L, 1);
  lua_pushcfunction(L, l_breaker);
  lua_setfield(L, -2, "breaker");
}
