/* sandbox_classifier.c: a policy's classify as one C function, for nearly every call says "success"
 * and should pay for no more than that. */
#include "sandbox.h"

#define REASON 200 /* bytes; a longer one is not answered as it is */

/* The last two only keep the strings that the box points to. */
enum { C_BOX = 1, C_FUNCTION, C_OTHERWISE, C_SUCCESS, C_NEUTRAL, C_COUNT = C_NEUTRAL };

/* Whether what is on `co` says "success" or "neutral", perhaps with a short reason: short strings
 * are the same if their addresses are. */
static bool is_plain_verdict(const neap__box *b, lua_State *co, int results) {
  if (results < 1 || results > 2) return false;
  if (results == 2 && !lua_isnil(co, -1) &&
      (lua_type(co, -1) != LUA_TSTRING || lua_rawlen(co, -1) > REASON))
    return false;
  if (lua_type(co, -results) != LUA_TSTRING) return false;
  const char *outcome = lua_tostring(co, -results);
  return outcome == b->success || outcome == b->neutral;
}

static int classifier_call(lua_State *L) {
  neap__box *b = lua_touserdata(L, lua_upvalueindex(C_BOX));
  if (lua_gettop(L) != 1) lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(C_FUNCTION));
  lua_pushvalue(L, 1);
  int results = neap__box_run(L, lua_upvalueindex(C_BOX), b, 1);
  if (results >= 0 && is_plain_verdict(b, b->co, results)) {
    lua_xmove(b->co, L, results);
    return results;
  }
  if (b->condemned) { /* what it keeps may go */
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(C_FUNCTION));
  }
  lua_pushvalue(L, lua_upvalueindex(C_OTHERWISE));
  lua_insert(L, 1); /* otherwise, call, and behind it what it came to */
  if (results >= 0) {
    if (results > NEAP__RESULTS) lua_pop(b->co, results - NEAP__RESULTS);
    if (results > NEAP__RESULTS) results = NEAP__RESULTS;
    lua_pushboolean(L, 1);
    lua_xmove(b->co, L, results);
  }
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* classifier(box, f, otherwise) -> function(call)
 *
 * That function answers as f does in the box, if that is "success" or "neutral" and perhaps a
 * reason.  All else is otherwise(call, as run answers)'s to say. */
static int l_classifier(lua_State *L) {
  neap__box *b = neap__check_box(L, 1);
  luaL_checkany(L, 2);
  luaL_checktype(L, 3, LUA_TFUNCTION);
  lua_settop(L, 3);
  lua_pushliteral(L, "success");
  lua_pushliteral(L, "neutral");
  b->success = lua_tostring(L, C_SUCCESS);
  b->neutral = lua_tostring(L, C_NEUTRAL);
  lua_pushcclosure(L, classifier_call, C_COUNT);
  return 1;
}

bool neap__classifier_parts(lua_State *L, int index) {
  if (lua_tocfunction(L, index) != classifier_call) return false;
  lua_getupvalue(L, index, C_BOX);
  lua_getupvalue(L, index, C_FUNCTION);
  return true;
}

bool neap__says_success(lua_State *L, int box, int f, int call) {
  neap__box *b = lua_touserdata(L, box);
  lua_pushvalue(L, f);
  lua_pushvalue(L, call);
  int results = neap__box_run(L, box, b, 1);
  if (results < 0) return false;
  lua_State *co = b->co;
  if (results == 1 && lua_type(co, -1) == LUA_TSTRING && lua_tostring(co, -1) == b->success) {
    lua_pop(co, 1);
    return true;
  }
  if (results > NEAP__RESULTS) lua_pop(co, results - NEAP__RESULTS);
  lua_pushboolean(L, 1);
  lua_xmove(co, L, results > NEAP__RESULTS ? NEAP__RESULTS : results);
  return false;
}

void neap__push_otherwise(lua_State *L, int classifier) {
  lua_getupvalue(L, classifier, C_OTHERWISE);
}

void neap__add_classifier(lua_State *L) {
  lua_pushcfunction(L, l_classifier);
  lua_setfield(L, -2, "classifier");
}
