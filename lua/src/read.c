/* read.c: arguments.  One reader for numbers, so that every Lua version refuses and accepts the
 * same ones. */
#include "binding.h"

#include <math.h>
#include <string.h>

const char *neap__push_expected(lua_State *L, int index, const char *what, const char *expected) {
  if (lua_type(L, index) == LUA_TNUMBER) {
    lua_pushvalue(L, index);
    return lua_pushfstring(L, "%s must be %s, got %s", what, expected, lua_tostring(L, -1));
  }
  if (lua_type(L, index) == LUA_TSTRING)
    return lua_pushfstring(L, "%s must be %s, got the string \"%s\"", what, expected,
                           lua_tostring(L, index));
  return lua_pushfstring(L, "%s must be %s, got %s", what, expected, luaL_typename(L, index));
}

int neap__argument_error(lua_State *L, int arg, const char *what, const char *expected) {
  return luaL_argerror(L, arg, neap__push_expected(L, arg, what, expected));
}

bool neap__read_number(lua_State *L, int index, uint64_t *out) {
  if (lua_type(L, index) != LUA_TNUMBER) return false;
  lua_Number n = lua_tonumber(L, index);
  if (!(n >= 0 && n < 18446744073709551616.0)) return false;
  *out = (uint64_t)n;
  return true;
}

uint64_t neap__check_ms(lua_State *L, int arg, const char *what) {
  uint64_t ms = 0;
  if (!neap__read_ms(L, arg, &ms)) neap__argument_error(L, arg, what, "milliseconds, 0 or more");
  return ms;
}

/* Clocks differ and step: a negative duration is 0. */
uint64_t neap__opt_duration(lua_State *L, int arg, uint64_t otherwise) {
  if (lua_isnoneornil(L, arg)) return otherwise;
  uint64_t ms;
  if (neap__read_ms(L, arg, &ms)) return ms;
  if (lua_type(L, arg) == LUA_TNUMBER && lua_tonumber(L, arg) < 0 && isfinite(lua_tonumber(L, arg)))
    return 0;
  neap__argument_error(L, arg, "duration_ms", "milliseconds");
  return 0;
}

uint64_t neap__check_count(lua_State *L, int arg, const char *what, uint64_t min, uint64_t max) {
  uint64_t n;
  if (neap__read_ms(L, arg, &n) && lua_tonumber(L, arg) == (lua_Number)n && n >= min && n <= max)
    return n;
  compat_pushwide(L, min);
  compat_pushwide(L, max);
  neap__argument_error(
      L, arg, what,
      lua_pushfstring(L, "a whole number from %s to %s", lua_tostring(L, -2), lua_tostring(L, -1)));
  return 0;
}

/* What the dependency asked for may be nonsense: the core ignores and counts it, as a negative. */
int64_t neap__opt_retry_after(lua_State *L, int arg) {
  if (lua_isnoneornil(L, arg)) return 0;
  if (lua_type(L, arg) != LUA_TNUMBER)
    neap__argument_error(L, arg, "retry_after_ms", "milliseconds");
  lua_Number n = ceil(lua_tonumber(L, arg));
  return n >= 0 && n < 9e15 ? (int64_t)n : -1;
}

uint32_t neap__check_epoch(lua_State *L, int arg) {
  return (uint32_t)neap__check_count(L, arg, "epoch", 0, UINT32_MAX);
}

neap_outcome neap__check_other_outcome(lua_State *L, int arg) {
  static const struct {
    const char *name;
    size_t length;
  } outcomes[] = {{"success", 7}, {"failure", 7}, {"timeout", 7}, {"neutral", 7}, {"abandoned", 9}};
  if (lua_type(L, arg) == LUA_TSTRING) {
    size_t length;
    const char *name = lua_tolstring(L, arg, &length);
    for (int i = 0; i <= NEAP_ABANDONED; i++)
      if (length == outcomes[i].length && memcmp(name, outcomes[i].name, length) == 0)
        return (neap_outcome)i;
  }
  neap__argument_error(L, arg, "outcome",
                       "\"success\", \"failure\", \"timeout\", \"neutral\" or \"abandoned\"");
  return NEAP_ABANDONED;
}

bool neap__read_mode(const char *name, neap_mode *out) {
  for (int i = NEAP_AUTO; i <= NEAP_SHADOW; i++)
    if (strcmp(name, neap_mode_name((neap_mode)i)) == 0) return *out = (neap_mode)i, true;
  return false;
}

neap_mode neap__check_mode(lua_State *L, int arg) {
  neap_mode mode = NEAP_AUTO;
  if (lua_isnoneornil(L, arg)) return NEAP_MODE_OF_RULES;
  if (lua_type(L, arg) != LUA_TSTRING || !neap__read_mode(lua_tostring(L, arg), &mode))
    neap__argument_error(
        L, arg, "mode",
        "\"auto\", \"forced_open\", \"forced_closed\", \"shadow\", or nil for the rules'");
  return mode;
}
