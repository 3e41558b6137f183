/* sandbox_strings.c: the string library that policies get: what all Lua versions have, less dump.
 *
 * As in the manual, but each function charges for the bytes it reads and writes. */
#include "sandbox.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A position as the manual counts it, from 1, or from the end if negative: as one from 0. */
static size_t from_position(lua_Integer i, size_t length) {
  if (i > 0) return (size_t)i - 1 < length ? (size_t)i - 1 : length;
  if (i == 0 || i < -(lua_Integer)length) return 0;
  return length - (size_t)-i;
}

/* Where the character after position i is: likewise. */
static size_t behind_position(lua_Integer i, size_t length) {
  if (i >= 0) return (size_t)i < length ? (size_t)i : length;
  return i < -(lua_Integer)length ? 0 : length - (size_t)-i + 1;
}

static const char *check_text(lua_State *L, int arg, size_t *length) {
  const char *s = luaL_checklstring(L, arg, length);
  neap__charge(L, NEAP__UNITS_OF(*length));
  return s;
}

static int l_len(lua_State *L) {
  size_t length;
  luaL_checklstring(L, 1, &length);
  lua_pushinteger(L, (lua_Integer)length);
  return 1;
}

static int l_sub(lua_State *L) {
  size_t length;
  const char *s = luaL_checklstring(L, 1, &length);
  size_t from = from_position(luaL_checkinteger(L, 2), length);
  size_t to = behind_position(luaL_optinteger(L, 3, -1), length);
  neap__charge(L, from < to ? NEAP__UNITS_OF(to - from) : 1);
  lua_pushlstring(L, s + from, from < to ? to - from : 0);
  return 1;
}

static int mapped(lua_State *L, int (*map)(int)) {
  size_t length;
  const char *s = check_text(L, 1, &length);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (size_t i = 0; i < length; i++) luaL_addchar(&b, (char)map((unsigned char)s[i]));
  luaL_pushresult(&b);
  return 1;
}

static int l_lower(lua_State *L) { return mapped(L, tolower); }
static int l_upper(lua_State *L) { return mapped(L, toupper); }

static int l_reverse(lua_State *L) {
  size_t length;
  const char *s = check_text(L, 1, &length);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  while (length > 0) luaL_addchar(&b, s[--length]);
  luaL_pushresult(&b);
  return 1;
}

static int l_rep(lua_State *L) {
  size_t length, gap;
  const char *s = luaL_checklstring(L, 1, &length);
  lua_Integer n = luaL_checkinteger(L, 2);
  const char *separator = luaL_optlstring(L, 3, "", &gap);
  if (n <= 0) return lua_pushliteral(L, ""), 1;
  if (length + gap < length || (length + gap > 0 && (size_t)n > (size_t)1 << 31) ||
      (size_t)n * (length + gap) > (size_t)1 << 31)
    return luaL_error(L, "resulting string too large");
  neap__charge(L, NEAP__UNITS_OF((size_t)n * (length + gap)));
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  if (length + gap == 0) n = 0;
  for (; n > 0; n--) {
    luaL_addlstring(&b, s, length);
    if (n > 1) luaL_addlstring(&b, separator, gap);
  }
  luaL_pushresult(&b);
  return 1;
}

static int l_byte(lua_State *L) {
  size_t length;
  const char *s = luaL_checklstring(L, 1, &length);
  lua_Integer i = luaL_optinteger(L, 2, 1);
  size_t from = from_position(i, length), to = behind_position(luaL_optinteger(L, 3, i), length);
  if (from >= to) return 0;
  neap__charge(L, to - from);
  luaL_checkstack(L, (int)(to - from < 1000000 ? to - from : 1000000), "string slice too long");
  for (size_t k = from; k < to; k++) lua_pushinteger(L, (unsigned char)s[k]);
  return (int)(to - from);
}

static int l_char(lua_State *L) {
  int n = lua_gettop(L);
  luaL_Buffer b;
  neap__charge(L, (size_t)n + 1);
  luaL_buffinit(L, &b);
  for (int i = 1; i <= n; i++) {
    lua_Integer c = luaL_checkinteger(L, i);
    luaL_argcheck(L, c >= 0 && c <= 255, i, "value out of range");
    luaL_addchar(&b, (char)c);
  }
  luaL_pushresult(&b);
  return 1;
}

/* Upvalue: the host's own string.format, which reads its arguments once. */
static int l_format(lua_State *L) {
  int n = lua_gettop(L);
  size_t length, read = 0;
  luaL_checkstring(L, 1);
  for (int i = 1; i <= n; i++)
    if (lua_type(L, i) == LUA_TSTRING) lua_tolstring(L, i, &length), read += length;
  neap__charge(L, NEAP__UNITS_OF(read) + (size_t)n * NEAP__UNITS_PER_STEP);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, n, 1);
  return 1;
}

/* ---- Patterns -------------------------------------------------------------------------------- */

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
  const char *from = s + from_position(init, length);
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
      luaL_tolstring(m->L, -1, &length);
      lua_remove(m->L, -2);
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

void neap__push_string_library(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"byte", l_byte}, {"char", l_char},       {"find", l_find},   {"gmatch", l_gmatch},
      {"gsub", l_gsub}, {"len", l_len},         {"lower", l_lower}, {"match", l_match},
      {"rep", l_rep},   {"reverse", l_reverse}, {"sub", l_sub},     {"upper", l_upper},
      {NULL, NULL},
  };
  lua_createtable(L, 0, 13);
  luaL_setfuncs(L, functions, 0);
  lua_getglobal(L, "string");
  lua_getfield(L, -1, "format");
  lua_remove(L, -2);
  luaL_checktype(L, -1, LUA_TFUNCTION);
  lua_pushcclosure(L, l_format, 1);
  lua_setfield(L, -2, "format");
}
