/* engine_answer.c: the fallback chain, and its answer as a block of C memory.
 *
 *   answer in Lua   { status = 200, headers = { name, value, name, value ... }, body = "...",
 *                     source = "last_good", age_ms = 5, retry_after_ms = nil }
 *   block in C      | neap_header ... | names, values, body, source: each with a zero after it | */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE_MAX 32

/* ---- Reading an answer ----------------------------------------------------------------------- */

/* All texts of the answer table at `table`, whose headers are at `headers`, take so many bytes. */
static size_t bytes_of(lua_State *L, int table, int headers) {
  size_t bytes = SOURCE_MAX;
  size_t count = lua_rawlen(L, headers);
  for (size_t i = 1; i <= count; i++) {
    if (lua_rawgeti(L, headers, (lua_Integer)i) != LUA_TSTRING)
      luaL_error(L, "a header of an answer is a %s", luaL_typename(L, -1));
    bytes += lua_rawlen(L, -1) + 1;
    lua_pop(L, 1);
  }
  if (lua_getfield(L, table, "body") == LUA_TSTRING) bytes += lua_rawlen(L, -1) + 1;
  lua_pop(L, 1);
  return bytes;
}

/* Moves the text on top of the stack to *to, which it advances. */
static const char *take_text(lua_State *L, char **to, size_t *length) {
  const char *text = lua_tolstring(L, -1, length);
  char *copy = *to;
  memcpy(copy, text, *length + 1);
  *to += *length + 1;
  lua_pop(L, 1);
  return copy;
}

static uint64_t duration_field(lua_State *L, int table, const char *name) {
  lua_getfield(L, table, name);
  lua_Number n = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return n > 0 ? (uint64_t)n : 0;
}

/* Reads the answer table on top of the stack.  Nothing raises once there is a block. */
static void read_answer(lua_State *L, neap_answer *answer) {
  int table = lua_gettop(L);
  luaL_checktype(L, table, LUA_TTABLE);
  lua_getfield(L, table, "source");
  const char *source = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  lua_getfield(L, table, "headers");
  luaL_checktype(L, -1, LUA_TTABLE);
  int headers = lua_gettop(L);
  size_t count = lua_rawlen(L, headers) / 2;
  size_t bytes = bytes_of(L, table, headers);
  answer->age_ms = duration_field(L, table, "age_ms");
  answer->retry_after_ms = duration_field(L, table, "retry_after_ms");
  lua_getfield(L, table, "status");
  answer->status = (int)lua_tointeger(L, -1);
  bool has_body = lua_getfield(L, table, "body") == LUA_TSTRING;

  neap_header *rows = (neap_header *)malloc(count * sizeof *rows + bytes);
  if (!rows) luaL_error(L, "no memory for an answer of %I bytes", (LUAI_UACINT)bytes);
  char *to = (char *)(rows + count);
  answer->owner = rows;
  answer->headers = rows;
  answer->header_count = count;
  if (has_body) answer->body = take_text(L, &to, &answer->body_length);
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, headers, (lua_Integer)(2 * i + 1));
    rows[i].name = take_text(L, &to, &rows[i].name_length);
    lua_rawgeti(L, headers, (lua_Integer)(2 * i + 2));
    rows[i].value = take_text(L, &to, &rows[i].value_length);
  }
  strncat(strcpy(to, ""), source, SOURCE_MAX - 1);
  answer->source = to;
}

void neap_answer_free(neap_answer *answer) {
  free(answer->owner);
  *answer = (neap_answer){.owner = NULL};
}

/* ---- Asking the chain ------------------------------------------------------------------------ */

typedef struct asking {
  neap_guard *guard;
  int line; /* ref */
  neap_fallback_cause cause;
  neap_answer *answer;
} asking;

/* As neap_fallback_cause. */
static const char *const causes[] = {"refused", "timeout", "failure", "neutral", "success"};

neap_fallback_cause neap_cause_of(neap_outcome outcome) {
  switch (outcome) {
    case NEAP_SUCCESS: return NEAP_CAUSE_SUCCESS;
    case NEAP_FAILURE: return NEAP_CAUSE_FAILURE;
    case NEAP_TIMEOUT: return NEAP_CAUSE_TIMEOUT;
    default: return NEAP_CAUSE_NEUTRAL;
  }
}

/* engine.fallback(guard, line, cause, call) -> answer | nil */
static int ask(lua_State *L) {
  const asking *a = (const asking *)lua_touserdata(L, 1);
  engine_push_function(L, "fallback");
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->line);
  lua_pushstring(L, causes[a->cause]);
  engine_push_call(L);
  lua_call(L, 4, 1);
  if (!lua_isnil(L, -1)) read_answer(L, a->answer);
  return 0;
}

bool neap_guard_fallback(neap_guard *g, const char *key, size_t key_length,
                         neap_fallback_cause cause, const neap_request *request,
                         const neap_result *result, neap_answer *answer) {
  neap_engine *e = g->engine;
  *answer = (neap_answer){.owner = NULL};
  if (e->is_closing || !(g->causes & 1u << cause)) return false;
  asking a = {g, engine_line_ref(g, key, key_length), cause, answer};
  if (a.line == LUA_NOREF) return false;
  engine_scope outer = engine_enter(e, request, result, false);
  engine_run(e, ask, &a, g->name);
  engine_leave(e, outer);
  return answer->owner != NULL;
}
