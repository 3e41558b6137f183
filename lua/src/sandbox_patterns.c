/* sandbox_patterns.c: find, match, gmatch and gsub, on the matcher of sandbox_match.c.
 *
 * As in the manual; matching charges for itself, the rest is charged for here. */
#include "sandbox.h"

#include <ctype.h>
#include <string.h>

/* Capture i; the whole match where the pattern has none. */
static void push_capture(neap__match *m, int i, const char *s, const char *end) {
  if (i >= m->count) {
    if (i > 0) luaL_error(m->L, "invalid capture index %%%d", i + 1);
    lua_pushlstring(m->L, s, (size_t)(end - s));
    return;
  }
  ptrdiff_t length = m->capture[i].length;
  if (length == CAPTURE_OPEN) luaL_error(m->L, "unfinished capture");
  if (length == CAPTURE_POSITION)
    lua_pushinteger(m->L, m->capture[i].at - m->subject + 1);
  else
    lua_pushlstring(m->L, m->capture[i].at, (size_t)length);
}

/* All captures; without any, the whole match if `whole`. */
static int push_captures(neap__match *m, const char *s, const char *end, bool whole) {
  int n = m->count == 0 && whole ? 1 : m->count;
  luaL_checkstack(m->L, n, "too many captures");
  for (int i = 0; i < n; i++) push_capture(m, i, s, end);
  return n;
}

static void match_open(neap__match *m, lua_State *L, const char *s, size_t length,
                       const char *end) {
  m->L = L;
  m->subject = s;
  m->subject_end = s + length;
  m->pattern_end = end;
}

static const char *match_at(neap__match *m, const char *s, const char *p) {
  m->count = m->depth = 0;
  return neap__match_here(m, s, p);
}

static bool is_plain(const char *p, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (p[i] && strchr("^$*+?.([%-", p[i])) return false;
  return true;
}

static const char *find_plain(lua_State *L, const char *s, size_t length, const char *what,
                              size_t n) {
  if (n == 0) return s;
  for (const char *end = s + length; (size_t)(end - s) >= n; s++) {
    const char *at = memchr(s, *what, (size_t)(end - s) - n + 1);
    neap__charge(L, NEAP__UNITS_OF((at ? at : end) - s) + (at ? NEAP__UNITS_OF(n) : 0));
    if (!at) return NULL;
    if (memcmp(at, what, n) == 0) return at;
    s = at;
  }
  return NULL;
}

static int found(lua_State *L, bool find) {
  size_t length, n;
  const char *s = luaL_checklstring(L, 1, &length), *p = luaL_checklstring(L, 2, &n);
  lua_Integer init = luaL_optinteger(L, 3, 1);
  if (init > (lua_Integer)length + 1) return lua_pushnil(L), 1;
  const char *from = s + neap__from_position(init, length);
  if (find && (lua_toboolean(L, 4) || is_plain(p, n))) {
    const char *at = find_plain(L, from, (size_t)(s + length - from), p, n);
    if (!at) return lua_pushnil(L), 1;
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)n);
    return 2;
  }
  neap__match m;
  bool anchored = n > 0 && *p == '^';
  match_open(&m, L, s, length, p + n);
  do {
    const char *end = match_at(&m, from, p + anchored);
    if (!end) continue;
    if (!find) return push_captures(&m, from, end, true);
    lua_pushinteger(L, from - s + 1);
    lua_pushinteger(L, end - s);
    return push_captures(&m, NULL, NULL, false) + 2;
  } while (from++ < m.subject_end && !anchored);
  return lua_pushnil(L), 1;
}

static int l_find(lua_State *L) { return found(L, true); }
static int l_match(lua_State *L) { return found(L, false); }

/* Upvalues: subject, pattern, where to go on, where the last match ended. */
static int gmatch_next(lua_State *L) {
  size_t length, n;
  const char *s = lua_tolstring(L, lua_upvalueindex(1), &length);
  const char *p = lua_tolstring(L, lua_upvalueindex(2), &n);
  const char *last = s + lua_tointeger(L, lua_upvalueindex(4));
  neap__match m;
  match_open(&m, L, s, length, p + n);
  for (const char *from = s + lua_tointeger(L, lua_upvalueindex(3)); from <= m.subject_end;
       from++) {
    const char *end = match_at(&m, from, p);
    if (!end || end == last) continue;
    lua_pushinteger(L, end - s);
    lua_pushvalue(L, -1);
    lua_replace(L, lua_upvalueindex(3));
    lua_replace(L, lua_upvalueindex(4));
    return push_captures(&m, from, end, true);
  }
  return 0;
}

static int l_gmatch(lua_State *L) {
  luaL_checkstring(L, 1);
  luaL_checkstring(L, 2);
  lua_settop(L, 2);
  lua_pushinteger(L, 0);
  lua_pushinteger(L, -1);
  lua_pushcclosure(L, gmatch_next, 4);
  return 1;
}

/* Adds what the replacement text says: %0..%9 are captures, %% is %. */
static void add_text(neap__match *m, luaL_Buffer *b, const char *s, const char *end) {
  size_t n;
  const char *text = lua_tolstring(m->L, 3, &n);
  neap__charge(m->L, NEAP__UNITS_OF(n));
  for (size_t i = 0; i < n; i++) {
    if (text[i] != '%') {
      luaL_addchar(b, text[i]);
    } else if (++i < n && text[i] == '%') {
      luaL_addchar(b, '%');
    } else if (i < n && text[i] == '0') {
      neap__charge(m->L, NEAP__UNITS_OF(end - s));
      luaL_addlstring(b, s, (size_t)(end - s));
    } else if (i < n && isdigit((unsigned char)text[i])) {
      size_t length;
      push_capture(m, text[i] - '1', s, end);
      lua_tolstring(m->L, -1, &length);
      neap__charge(m->L, NEAP__UNITS_OF(length));
      luaL_addvalue(b);
    } else {
      luaL_error(m->L, "invalid use of '%%' in replacement string");
    }
  }
}

/* Adds the replacement of s..end: a text, or what a table or function says of the first capture. */
static void add_replacement(neap__match *m, luaL_Buffer *b, const char *s, const char *end) {
  lua_State *L = m->L;
  int type = lua_type(L, 3);
  neap__check_depth(L);
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    lua_call(L, push_captures(m, s, end, true), 1);
  } else if (type == LUA_TTABLE) {
    push_capture(m, 0, s, end);
    lua_gettable(L, 3);
  } else {
    add_text(m, b, s, end);
    return;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(b, s, (size_t)(end - s));
  } else if (!lua_isstring(L, -1)) {
    luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  } else {
    size_t length;
    lua_tolstring(L, -1, &length);
    neap__charge(L, NEAP__UNITS_OF(length));
    luaL_addvalue(b);
  }
}

static int l_gsub(lua_State *L) {
  size_t length, n;
  const char *s = luaL_checklstring(L, 1, &length), *p = luaL_checklstring(L, 2, &n);
  int type = lua_type(L, 3);
  luaL_argcheck(
      L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE,
      3, "string/function/table expected");
  lua_Integer most = luaL_optinteger(L, 4, (lua_Integer)length + 1), made = 0;
  if (type == LUA_TNUMBER) lua_tolstring(L, 3, NULL);
  bool anchored = n > 0 && *p == '^';
  const char *last = NULL;
  neap__match m;
  luaL_Buffer b;
  match_open(&m, L, s, length, p + n);
  luaL_buffinit(L, &b);
  while (made < most) {
    const char *end = match_at(&m, s, p + anchored);
    if (end && end != last) {
      made++;
      add_replacement(&m, &b, s, end);
      s = last = end;
    } else if (s < m.subject_end) {
      luaL_addchar(&b, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  luaL_addlstring(&b, s, (size_t)(m.subject_end - s));
  luaL_pushresult(&b);
  lua_pushinteger(L, made);
  return 2;
}

void neap__add_pattern_functions(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"find", l_find}, {"gmatch", l_gmatch}, {"gsub", l_gsub}, {"match", l_match}, {NULL, NULL},
  };
  luaL_setfuncs(L, functions, 0);
}
