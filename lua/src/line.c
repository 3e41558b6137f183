/* line.c: one key of a guard at work: making it, giving it rules, and what slow paths ask of it. */
#include "line.h"

#include "sandbox.h"

#include <string.h>

/* As M_REFUSE ... M_LAYERED. */
static const char *const hook_names[] = {
    "refuse", "refused", "moved", "settle", "remember", "acquire", "report", "layered",
};

uint64_t neap__line_ask(lua_State *L, int index) {
  uint64_t now_ms;
  compat_getref(L, index, LINE_CLOCK);
  lua_call(L, 0, 1);
  if (!neap__read_ms(L, -1, &now_ms))
    luaL_error(L, "the guard's clock must answer milliseconds, 0 or more");
  lua_pop(L, 1);
  return now_ms;
}

/* A Lua rule may want to know of calls that are overdue: the next report asks it. */
static neap_verdict acquire_in_flight(line *n, uint64_t now_ms, neap_permit *permit,
                                      neap_transition *moved) {
  if (n->has_trip) n->overdue += neap_flight_sweep(n->flight, n->breaker, n->rules, now_ms, moved);
  return neap_flight_acquire(n->flight, n->breaker, n->rules, now_ms, permit, moved);
}

NEAP__SELDOM neap_verdict neap__acquire_counted(line *n, uint64_t now_ms, neap_permit *permit,
                                                neap_transition *moved) {
  if (n->concurrent && n->in_flight >= n->concurrent) {
    n->rejected++;
    return LINE_FULL;
  }
  neap_verdict verdict = n->flight
                             ? acquire_in_flight(n, now_ms, permit, moved)
                             : neap_breaker_acquire(n->breaker, n->rules, now_ms, permit, moved);
  if (n->concurrent && verdict <= NEAP_ALLOW_BYPASS) n->in_flight++;
  return verdict;
}

void neap__push_held(lua_State *L, line *n, neap_permit permit, uint64_t now_ms, int index,
                     int owner, int frame) {
  box_permit given = {.permit = permit,
                      .breaker = n->breaker,
                      .panel = n->panel,
                      .rules = n->rules,
                      .clock = n->clock,
                      .given_ms = now_ms,
                      .slot = n->concurrent ? &n->in_flight : NULL,
                      .held = &n->held,
                      .flight = &n->own};
  n->held++;
  int top = lua_gettop(L);
  compat_getref(L, index, LINE_BREAKER);
  compat_getref(L, index, LINE_RULES);
  compat_getref(L, index, LINE_GENERATION);
  neap__push_permit(L, &given, top + 1, top + 2, frame ? frame : top + 3, owner);
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
}

void neap__tell_moved(lua_State *L, const neap_transition *moved) {
  lua_pushvalue(L, lua_upvalueindex(M_MOVED));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  neap__push_moved(L, moved);
  lua_call(L, 2, 0);
}

/* ---- The line itself ------------------------------------------------------------------------- */

static line *check_line(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  luaL_argcheck(L, n->rules, 1, "the line has no rules yet: adopt comes first");
  check_open(L, n);
  return n;
}

/* line(breaker, clock) -> line;  clock: nil (the coarse one), "precise", or a function that answers
 * now_ms */
static int l_line(lua_State *L) {
  neap__check_breaker(L, 1);
  bool is_lua = lua_isfunction(L, 2);
  bool is_precise = !is_lua && !lua_isnoneornil(L, 2);
  if (is_precise && (lua_type(L, 2) != LUA_TSTRING || strcmp(lua_tostring(L, 2), "precise") != 0))
    neap__argument_error(L, 2, "clock", "a function, \"precise\", or nil");
  lua_settop(L, 2);
  const box_breaker *box = (const box_breaker *)lua_touserdata(L, 1);
  line *n = (line *)compat_new(L, sizeof *n, LINE_REFS);
  *n = (line){.breaker = box->breaker, .panel = box->panel};
  if (!is_lua) n->clock = is_precise ? neap_clock_precise() : neap_clock_coarse();
  luaL_setmetatable(L, NEAP__LINE);
  lua_pushvalue(L, 1);
  compat_setref(L, 3, LINE_BREAKER);
  lua_pushvalue(L, 2);
  compat_setref(L, 3, LINE_CLOCK);
  return 1;
}

static bool option(lua_State *L, const char *name) {
  lua_getfield(L, 5, name);
  bool is_set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is_set;
}

static void table_clear(lua_State *L, int table) {
  for (lua_pushnil(L); lua_next(L, table);) {
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, table);
  }
}

/* What M_ARGS shows as .n is not in it: there it could be overwritten. */
void neap__set_lent_count(lua_State *L, int args, int count) {
  lua_getmetatable(L, args);
  lua_getfield(L, -1, "__index");
  lua_pushinteger(L, count);
  lua_setfield(L, -2, "n");
  lua_pop(L, 2);
}

/* What one policy's functions put into the tables they are lent (with the host's own rawset) must not
 * be there for the next.  The method call is on top. */
static void lent_clear(lua_State *L, line *n) {
  int method = lua_gettop(L), call = method + 1, args = method + 2;
  lua_getupvalue(L, method, M_CALL);
  lua_getupvalue(L, method, M_ARGS);
  table_clear(L, call);
  table_clear(L, args);
  neap__set_lent_count(L, args, 0);
  n->lent_args = 0;
}

/* line:adopt(generation, rules, number, options): all at once.
 *   options: classify, run (functions or nil), has_trip, keeps, remembers, is_layered, is_keyed,
 *   concurrent */
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
  bool has_classify = option(L, "classify"), is_layered = option(L, "is_layered");
  n->is_keyed = option(L, "is_keyed");
  lua_settop(L, 5);
  lua_getfield(L, 5, "concurrent");
  uint32_t concurrent =
      lua_isnil(L, 6) ? 0 : (uint32_t)neap__check_count(L, 6, "concurrent", 0, UINT32_MAX);
  lua_settop(L, 5);
  compat_getref(L, 1, LINE_METHOD);
  if (lua_isfunction(L, -1)) lent_clear(L, n);
  lua_settop(L, 5);
  lua_getfield(L, 5, "run");
  bool has_run = lua_toboolean(L, 6);
  neap_breaker_adopt(n->breaker, rules);
  n->rules = rules;
  n->generation = lua_topointer(L, 2);
  n->number = number;
  n->timeout_ms = rules->timeout_ms;
  n->flight = rules->slow_call_ms && (rules->slow_rate || has_trip) ? &n->own : NULL;
  if (!n->flight) n->own = (neap_flight){{0}};
  n->concurrent = concurrent;
  n->is_layered = is_layered;
  n->has_trip = has_trip;
  n->has_classify = has_classify;
  n->has_run = has_run;
  n->keeps = keeps || has_classify;
  n->remembers = remembers;
  compat_setref(L, 1, LINE_RUN);
  lua_pushvalue(L, 3);
  compat_setref(L, 1, LINE_RULES);
  lua_pushvalue(L, 2);
  compat_setref(L, 1, LINE_GENERATION);
  compat_getref(L, 1, LINE_METHOD);
  if (!lua_isfunction(L, -1)) return 0;
  lua_pushvalue(L, 2);
  lua_setupvalue(L, -2, M_GENERATION);
  lua_getfield(L, 5, "classify");
  int classify = lua_gettop(L);
  if (!neap__classifier_parts(L, classify)) lua_settop(L, classify + 2);
  n->box = (neap__box *)lua_touserdata(L, classify + 1);
  lua_setupvalue(L, classify - 1, M_FUNCTION);
  lua_setupvalue(L, classify - 1, M_BOX);
  lua_setupvalue(L, classify - 1, M_CLASSIFY);
  return 0;
}

static int lent_newindex(lua_State *L) { return luaL_error(L, "call is read-only"); }

/* The table on top can't be written to but raw, and what it lacks is in the table below it, which
 * goes. */
static void seal(lua_State *L) {
  lua_insert(L, -2);
  lua_createtable(L, 0, 3);
  lua_insert(L, -2);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, lent_newindex);
  lua_setfield(L, -2, "__newindex");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

/* Pushes what a policy's classify is lent: M_CALL, M_FIELDS, M_ARGS.  The owner is at `owner`. */
static void push_lent(lua_State *L, int owner) {
  int call = lua_gettop(L) + 1, fields = call + 1, args = call + 2;
  lua_newtable(L);
  lua_createtable(L, 0, 8);
  lua_newtable(L);
  lua_createtable(L, 4, 0);
  seal(L);
  neap__set_lent_count(L, args, 0);
  lua_pushvalue(L, args);
  lua_setfield(L, fields, "args");
  lua_pushliteral(L, "answer");
  lua_setfield(L, fields, "ended_by");
  lua_pushinteger(L, 0);
  lua_setfield(L, fields, "duration_ms");
  lua_getfield(L, owner, "key");
  lua_setfield(L, fields, "key");
  lua_pushvalue(L, fields);
  lua_pushvalue(L, call);
  seal(L);
  lua_pop(L, 1);
}

/* All upvalues are at their indices. */
static void push_method(lua_State *L, lua_CFunction function) {
  for (int i = M_LINE; i <= M_COUNT; i++) lua_pushvalue(L, i);
  lua_pushcclosure(L, function, M_COUNT);
}

/* line | owner | hooks -> all upvalues of the methods, in their order. */
static void push_upvalues(lua_State *L) {
  static const char *const names[] = {"result", "duration_ms", "counted"};
  lua_insert(L, 1); /* hooks | line | owner */
  for (size_t i = 0; i < sizeof hook_names / sizeof hook_names[0]; i++) {
    lua_getfield(L, 1, hook_names[i]);
    if (!lua_isfunction(L, -1)) luaL_error(L, "there is no hook %s", hook_names[i]);
  }
  compat_getref(L, 2, LINE_GENERATION);
  for (int i = M_CLASSIFY; i <= M_FUNCTION; i++) lua_pushnil(L);
  push_lent(L, 3);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) lua_pushstring(L, names[i]);
  lua_remove(L, 1);
}

/* line:methods(self, owner, hooks) -> acquire, report, deadline, call, call_in; to be called on
 * self, once, before adopt.  For Lua 5.1: ... deadline, begin, finish (halves.c). */
static int l_methods(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  for (int i = 2; i <= 4; i++) luaL_checktype(L, i, LUA_TTABLE);
  luaL_checkstack(L, 2 * M_COUNT + 10, "methods");
  lua_settop(L, 4);
  n->self = lua_topointer(L, 2);
  lua_remove(L, 2);
  push_upvalues(L);
  push_method(L, neap__l_acquire);
  push_method(L, neap__l_report);
  push_method(L, neap__l_deadline);
#if COMPAT_HAS_PCALLK
  push_method(L, neap__l_call);
  lua_pushvalue(L, -1);
  compat_setref(L, M_LINE, LINE_METHOD);
  push_method(L, neap__l_call_in);
#else
  push_method(L, neap__l_begin);
  push_method(L, neap__l_finish);
  lua_pushvalue(L, -1);
  compat_setref(L, M_LINE, LINE_METHOD);
#endif
  return 5;
}

/* line:now() -> ms */
static int l_now(lua_State *L) {
  compat_pushwide(L, line_now(L, check_line(L), 1));
  return 1;
}

/* line:take(owner) -> permit | nil, reason, retry_after_ms, moved;  permit, nil, nil, moved.  The
 * permit is held: a userdata. */
static int l_take(lua_State *L) {
  line *n = check_line(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  uint64_t now_ms = line_now(L, n, 1);
  neap_permit permit;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = line_acquire(n, now_ms, &permit, &moved);
  n->begun++;
  if (verdict <= NEAP_ALLOW_BYPASS) {
    neap__push_held(L, n, permit, now_ms, 1, 2, 0);
    lua_pushnil(L);
    lua_pushnil(L);
  } else {
    uint64_t retry_after_ms = neap__retry_after(n->breaker, n->rules, now_ms, verdict);
    lua_pushnil(L);
    lua_pushstring(L, line_refusal(verdict));
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
  if (!neap__read_plain(L, arg, &wide)) neap__argument_error(L, arg, "permit", "what acquire gave");
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

/* line:give(permit, outcome, duration_ms, retry_after_ms) -> "counted" | "stale" | "used", moved,
 * is_slow */
static int l_give(lua_State *L) {
  line *n = check_line(L);
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
  uint64_t began_ms = box ? box->given_ms : neap__wide_began_ms(check_wide(L, 2), now_ms);
  neap_reported reported = line_report(n, now_ms, began_ms, permit, &call, &moved);
  if (box) neap__give_slot_back(box);
  lua_pushstring(L, neap__reported_name(reported));
  neap__push_moved(L, &moved);
  bool is_slow = n->rules->slow_call_ms && call.duration_ms > n->rules->slow_call_ms;
  lua_pushboolean(L, is_slow || n->overdue > 0);
  n->overdue = 0;
  return 3;
}

/* line:sweep() -> calls counted because they are overdue, moved, when to ask again: in ms | nil: no
 * rule asks for slow calls */
static int l_sweep(lua_State *L) {
  line *n = check_line(L);
  if (!n->flight) return 0;
  uint64_t now_ms = line_now(L, n, 1);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t overdue = neap_flight_sweep(n->flight, n->breaker, n->rules, now_ms, &moved);
  uint64_t next_ms = neap_flight_next_ms(n->flight, n->breaker, n->rules, now_ms);
  uint64_t wait_ms = next_ms == NEAP_NEVER ? n->rules->slow_call_ms : next_ms - now_ms;
  compat_pushwide(L, overdue + n->overdue);
  n->overdue = 0;
  neap__push_moved(L, &moved);
  compat_pushwide(L, wait_ms > n->rules->slow_call_ms ? n->rules->slow_call_ms : wait_ms);
  return 3;
}

/* line:slots() -> taken, refused for want of one, whether one is free */
static int l_slots(lua_State *L) {
  const line *n = (const line *)luaL_checkudata(L, 1, NEAP__LINE);
  compat_pushwide(L, n->in_flight);
  compat_pushwide(L, n->rejected);
  lua_pushboolean(L, !n->concurrent || n->in_flight < n->concurrent);
  return 3;
}

/* line:begun() -> how many calls have asked by acquire since this was asked last */
static int l_begun(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  compat_pushwide(L, n->begun);
  n->begun = 0;
  return 1;
}

/* line:count(is_counted): whether each permit is to be known as long as it is out. */
static int l_count(lua_State *L) {
  line *n = (line *)luaL_checkudata(L, 1, NEAP__LINE);
  n->is_counted = lua_toboolean(L, 2);
  return 0;
}

/* line:flight() -> calls under way that are known, those of them that count as slow already */
static int l_flight(lua_State *L) {
  const line *n = check_line(L);
  uint64_t overdue = 0, out = n->flight ? neap_flight_count(n->flight, n->breaker, &overdue) : 0;
  compat_pushwide(L, out > n->held ? out : n->held);
  compat_pushwide(L, overdue);
  return 2;
}

void neap__open_line(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"adopt", l_adopt}, {"methods", l_methods}, {"now", l_now},       {"take", l_take},
      {"about", l_about}, {"give", l_give},       {"slots", l_slots},   {"begun", l_begun},
      {"sweep", l_sweep}, {"count", l_count},     {"flight", l_flight}, {NULL, NULL},
  };
  luaL_getmetatable(L, NEAP__LINE);
  luaL_setfuncs(L, methods, 0);
  lua_pop(L, 1);
  neap__push_metatables(L);
  lua_pushcclosure(L, l_line, UP_COUNT);
  lua_setfield(L, -2, "line");
}
