/* engine_event.c: events and log lines, from the Lua half to the program. */
#include "engine_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Log ------------------------------------------------------------------------------------- */

static void say(neap_engine *e, neap_log_level level, const char *line) {
  if (e->on_log)
    e->on_log(e->data, level, line);
  else if (level >= NEAP_LOG_WARNING)
    fprintf(stderr, "neap: %s\n", line);
}

void engine_log(neap_engine *e, neap_log_level level, const char *format, ...) {
  char line[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  /* Tracebacks have many lines; a log line is one. */
  for (char *p = line; (p = strpbrk(p, "\r\n\t")) != NULL; p++) *p = ' ';
  say(e, level, line);
}

/* log(level, line) */
int engine_l_log(lua_State *L) {
  static const char *const levels[] = {"debug", "info", "warning", "error", NULL};
  int level = luaL_checkoption(L, 1, NULL, levels);
  const char *line = luaL_checkstring(L, 2);
  engine_log(engine_of(L), (neap_log_level)level, "%s", line);
  return 0;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static const char *text_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  lua_pop(L, 1); /* the event table keeps it */
  return text;
}

static uint64_t number_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  lua_Number n = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return n > 0 ? (uint64_t)n : 0;
}

static neap_state state_field(lua_State *L, const char *name) {
  const char *text = text_field(L, name);
  for (int state = NEAP_CLOSED; state <= NEAP_OPEN; state++)
    if (strcmp(text, neap_state_name((neap_state)state)) == 0) return (neap_state)state;
  return NEAP_CLOSED;
}

static neap_cause cause_field(lua_State *L, const char *name) {
  const char *text = text_field(L, name);
  for (int cause = NEAP_BY_FAILURES; cause <= NEAP_BY_TRIP; cause++)
    if (strcmp(text, neap_cause_name((neap_cause)cause)) == 0) return (neap_cause)cause;
  return NEAP_BY_NOTHING;
}

/* Of a rate, Lua has shares where the core counts calls (measured), or has millionths (limit). */
static uint64_t share_field(lua_State *L, const char *name, uint64_t whole) {
  lua_getfield(L, 1, name);
  lua_Number n = lua_tonumber(L, -1) * (lua_Number)whole + 0.5;
  lua_pop(L, 1);
  return n > 0 ? (uint64_t)n : 0;
}

static bool flag_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  bool flag = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return flag;
}

static void read_transition(lua_State *L, neap_transition *moved) {
  moved->from = state_field(L, "from");
  moved->to = state_field(L, "to");
  moved->cause = cause_field(L, "cause");
  moved->epoch = (uint32_t)number_field(L, "epoch");
  moved->level = (uint32_t)number_field(L, "level");
  moved->calls = number_field(L, "calls");
  bool is_rate = moved->cause == NEAP_BY_FAILURE_RATE || moved->cause == NEAP_BY_SLOW_RATE;
  moved->measured = share_field(L, "measured", is_rate ? moved->calls : 1);
  moved->limit = share_field(L, "limit", is_rate ? NEAP_ONE : 1);
  moved->open_ms = number_field(L, "open_ms");
  moved->flapping = flag_field(L, "flapping");
}

static neap_event_kind kind_field(lua_State *L) {
  static const char *const kinds[] = {"transition", "reloaded", "reload_failed", "gone",
                                      "orphaned",   "back",     "params",        "shadow"};
  const char *text = text_field(L, "kind");
  for (int kind = NEAP_EVENT_TRANSITION; kind <= NEAP_EVENT_SHADOW; kind++)
    if (strcmp(text, kinds[kind]) == 0) return (neap_event_kind)kind;
  luaL_error(L, "unknown event kind %s", text);
  return NEAP_EVENT_TRANSITION;
}

static neap_log_level level_of(neap_event_kind kind) {
  if (kind == NEAP_EVENT_RELOAD_FAILED) return NEAP_LOG_ERROR;
  if (kind == NEAP_EVENT_POLICY_GONE || kind == NEAP_EVENT_POLICY_ORPHANED) return NEAP_LOG_WARNING;
  return NEAP_LOG_INFO;
}

/* notify(event): tells the program.  What it does in its callback may enter this state again, above
 * what is on the stack here. */
int engine_l_notify(lua_State *L) {
  neap_engine *e = engine_of(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  neap_event event = {
      .kind = kind_field(L),
      .policy = text_field(L, "policy"),
      .key = text_field(L, "key"),
      .hash = text_field(L, "hash"),
      .text = text_field(L, "text"),
      .at_ms = number_field(L, "at_ms"),
  };
  bool has_moved = event.kind == NEAP_EVENT_TRANSITION || event.kind == NEAP_EVENT_SHADOW;
  if (has_moved) read_transition(L, &event.moved);
  if (e->is_closing) return 0;
  lua_State *outer = e->L;
  e->L = L;
  if (e->on_event)
    e->on_event(e->data, &event);
  else
    engine_log(e, level_of(event.kind), "%s", event.text);
  e->L = outer;
  return 0;
}
