/* log.c: from C values to neap.cmd.log. */
#include "log.h"

#include <lauxlib.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct line {
  int log;
  const char *level, *event, *message;
  const log_field *fields;
  size_t count;
} line;

/* log:line(level, event, message, { { name, value } ... }) */
static int l_line(lua_State *L) {
  const line *l = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, l->log);
  lua_getfield(L, -1, "line");
  lua_insert(L, -2);
  lua_pushstring(L, l->level);
  lua_pushstring(L, l->event);
  lua_pushstring(L, l->message);
  lua_createtable(L, (int)l->count, 0);
  for (size_t i = 0; i < l->count; i++) {
    lua_createtable(L, 2, 0);
    lua_pushstring(L, l->fields[i].name);
    lua_rawseti(L, -2, 1);
    if (l->fields[i].text)
      lua_pushstring(L, l->fields[i].text);
    else
      lua_pushnumber(L, l->fields[i].number);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_call(L, 5, 0);
  return 0;
}

void log_line(lua_State *L, int log, log_level level, const char *event, const log_field *fields,
              size_t count, const char *format, ...) {
  static const char *const levels[] = {"info", "warn", "error"};
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  line l = {log, levels[level], event, message, fields, count};
  lua_pushcfunction(L, l_line);
  lua_pushlightuserdata(L, &l);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return;
  fprintf(stderr, "neap: %s: %s (not logged properly: %s)\n", event, message, lua_tostring(L, -1));
  lua_pop(L, 1);
}
