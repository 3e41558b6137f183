/* judge.c: a call that ended well, as far as that is plain: the policy says "success", or nobody
 * asks it. */
#include "line.h"

#include "sandbox.h"

/* ---- What the policy is lent ----------------------------------------------------------------- */

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

static void lend_arguments(lua_State *L, const line_call *c) {
  int args = c->kept - 1;
  for (int i = 1; i <= args || i <= c->line->lent_args; i++) {
    if (i <= args)
      lua_pushvalue(L, c->f + i);
    else
      lua_pushnil(L);
    lua_rawseti(L, lua_upvalueindex(M_ARGS), i);
  }
  if (args == c->line->lent_args) return;
  neap__set_lent_count(L, lua_upvalueindex(M_ARGS), args);
  c->line->lent_args = args;
}

static void take_arguments_back(lua_State *L, const line_call *c) {
  for (int i = 1; i < c->kept; i++) {
    if (!is_heavy(L, c->f + i)) continue;
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

/* ---- Classifying a success ------------------------------------------------------------------- */

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
static int classify_success(lua_State *L, const line_call *c, int a, uint64_t duration_ms) {
  line *n = c->line;
  int verdict = lua_gettop(L) + 1;
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

/* ---- Counting it ----------------------------------------------------------------------------- */

static void remember(lua_State *L, const line_call *c, int a) {
  luaL_checkstack(L, c->kept + 8, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(M_REMEMBER));
  lua_pushvalue(L, lua_upvalueindex(M_OWNER));
  lua_pushvalue(L, a);
  for (int i = 0; i < c->kept; i++) lua_pushvalue(L, c->f + i);
  lua_call(L, 2 + c->kept, 0);
}

/* Only what the newest policy let in, with a permit that holds nothing, is counted here. */
int neap__succeed(lua_State *L, const line_call *c, int a, const char **ended) {
  const line *n = c->line;
  *ended = "answer";
  if (!lua_toboolean(L, a) && !lua_isnil(L, a + 1)) return 0;
  if (!c->wide || c->generation != n->generation || (n->panel && !n->panel->panel)) return 0;
  uint64_t now_ms = method_now(L, n);
  neap_call counted = {.outcome = NEAP_SUCCESS, .duration_ms = neap__wide_age_ms(c->wide, now_ms)};
  uint64_t slow_ms = n->has_trip && n->rules->slow_call_ms ? n->rules->slow_call_ms : NEAP_NEVER;
  if (n->timeout_ms && counted.duration_ms > n->timeout_ms) return *ended = "timeout", 0;
  if (counted.duration_ms > slow_ms || n->overdue) return 0;
  int verdict = PLAIN;
  if (n->has_classify) {
    verdict = classify_success(L, c, a, counted.duration_ms);
    if (verdict != PLAIN && (!verdict || !is_plain_success(L, verdict))) {
      if (verdict) lua_settop(L, verdict + 3);
      return verdict;
    }
  }
  neap_permit permit = neap__narrow(c->wide);
  neap_transition moved;
  moved.cause = NEAP_BY_NOTHING;
  line_report(n, now_ms, neap__wide_began_ms(c->wide, now_ms), &permit, &counted, &moved);
  if (moved.cause != NEAP_BY_NOTHING) neap__tell_moved(L, &moved);
  if (n->remembers) remember(L, c, a);
  if (verdict != PLAIN) lua_settop(L, verdict - 1);
  return NEAP__SUCCEEDED;
}
