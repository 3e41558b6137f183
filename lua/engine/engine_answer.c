/* engine_answer.c: the fallback chain, and its answer as a block of C memory.
 *
 *   answer in Lua   { status = 200, headers = { name, value, name, value ... }, body = "...",
 *                     source = "last_good", age_ms = 5, retry_after_ms = nil }
 *   block in C      | neap_header ... | names, values, body, source: each with a zero after it | */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading an answer ----------------------------------------------------------------------- */

static const char *const texts[] = {"body", "source", "kind"};
enum { TEXT_BODY, TEXT_SOURCE, TEXT_KIND, TEXT_COUNT };

/* Pushes the texts of the answer table: TEXT_COUNT values, each a string or nil. */
static size_t push_texts(lua_State *L, int table) {
  size_t bytes = 0;
  for (int i = 0; i < TEXT_COUNT; i++) {
    if (lua_getfield(L, table, texts[i]) == LUA_TSTRING) {
      bytes += lua_rawlen(L, -1) + 1;
    } else {
      lua_pop(L, 1);
      lua_pushnil(L);
    }
  }
  return bytes;
}

static size_t check_headers(lua_State *L, int headers, size_t count) {
  size_t bytes = 0;
  for (size_t i = 1; i <= count; i++) {
    if (lua_rawgeti(L, headers, (lua_Integer)i) != LUA_TSTRING)
      luaL_error(L, "a header of an answer is a %s", luaL_typename(L, -1));
    bytes += lua_rawlen(L, -1) + 1;
    lua_pop(L, 1);
  }
  return bytes;
}

/* Copies the text at `index` to *to, which it advances; NULL if there is none. */
static const char *copy_text(lua_State *L, int index, char **to, size_t *length) {
  const char *text = lua_tolstring(L, index, length);
  if (!text) return NULL;
  char *copy = *to;
  memcpy(copy, text, *length + 1);
  *to += *length + 1;
  return copy;
}

static uint64_t number_field(lua_State *L, int table, const char *name) {
  lua_getfield(L, table, name);
  lua_Number n = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return n > 0 ? (uint64_t)n : 0;
}

static void copy_headers(lua_State *L, int headers, neap_header *rows, size_t count, char **to) {
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, headers, (lua_Integer)(2 * i + 1));
    rows[i].name = copy_text(L, -1, to, &rows[i].name_length);
    lua_rawgeti(L, headers, (lua_Integer)(2 * i + 2));
    rows[i].value = copy_text(L, -1, to, &rows[i].value_length);
    lua_pop(L, 2);
  }
}

/* Reads the answer table at `table`.  Nothing raises once there is a block. */
static void read_answer(lua_State *L, int table, neap_answer *answer) {
  lua_settop(L, table);
  luaL_checktype(L, table, LUA_TTABLE);
  lua_getfield(L, table, "headers");
  luaL_checktype(L, -1, LUA_TTABLE);
  int headers = lua_gettop(L);
  size_t count = lua_rawlen(L, headers) / 2;
  size_t bytes = check_headers(L, headers, 2 * count) + push_texts(L, table);
  answer->status = (int)number_field(L, table, "status");
  answer->age_ms = number_field(L, table, "age_ms");
  answer->retry_after_ms = number_field(L, table, "retry_after_ms");

  neap_header *rows = (neap_header *)malloc(count * sizeof *rows + bytes + 1);
  if (!rows) luaL_error(L, "no memory for an answer of %I bytes", (LUAI_UACINT)bytes);
  char *to = (char *)(rows + count);
  size_t length;
  answer->owner = rows;
  answer->headers = rows;
  answer->header_count = count;
  answer->body = copy_text(L, headers + 1 + TEXT_BODY, &to, &answer->body_length);
  answer->source = copy_text(L, headers + 1 + TEXT_SOURCE, &to, &length);
  answer->kind = copy_text(L, headers + 1 + TEXT_KIND, &to, &length);
  copy_headers(L, headers, rows, count, &to);
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
  if (!lua_isnil(L, -1)) read_answer(L, lua_gettop(L), a->answer);
  return 0;
}

/* engine.first_good(guard, line, id) -> answer without source and age, age_ms | nil */
static int ask_first(lua_State *L) {
  const asking *a = (const asking *)lua_touserdata(L, 1);
  engine_push_function(L, "first_good");
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->line);
  engine_push_identity(L, a->guard->engine);
  if (lua_isnil(L, -1)) return 0;
  lua_call(L, 3, 2);
  if (lua_isnil(L, -1)) return 0;
  uint64_t age_ms = (uint64_t)lua_tointeger(L, -1);
  read_answer(L, lua_gettop(L) - 1, a->answer);
  a->answer->source = "last_good";
  a->answer->age_ms = age_ms;
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
  if (g->begins_plain) engine_run(e, ask_first, &a, g->name);
  if (answer->owner == NULL) engine_run(e, ask, &a, g->name);
  engine_leave(e, outer);
  return answer->owner != NULL;
}
