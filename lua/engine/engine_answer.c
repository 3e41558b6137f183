/* engine_answer.c: the fallback chain, and its answer as a block of C memory.
 *
 *   answer in Lua   { status = 200, headers = { name, value, name, value ... }, body = "...",
 *                     source = "default", age_ms = nil, retry_after_ms = nil }
 *   block in C      | neap_header ... | names, values, body, source: each with a zero after it |
 *   kept answer     | neap_answer | such a block |   a userdata: Lua keeps it, only C looks into it
 *
 * A chain that begins with a last_good stage without a key function is asked the short way: one
 * function for that stage, no call table.  What it declines the rest of the chain is asked for. */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_META "neap.engine.kept" /* in the registry */

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
  answer->pending = number_field(L, table, "pending");
  answer->within_ms = number_field(L, table, "within_ms");

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

/* ---- A kept answer --------------------------------------------------------------------------- */

typedef struct kept_answer {
  neap_answer answer; /* points into its own block: Lua moves no userdata */
  size_t bytes;       /* of the block */
  neap_header rows[];
} kept_answer;

static const char *add_text(char **to, const void *text, size_t length) {
  char *copy = *to;
  if (length) memcpy(copy, text, length);
  copy[length] = '\0';
  *to += length + 1;
  return copy;
}

size_t engine_push_kept(lua_State *L, const neap_answer *answer) {
  size_t count = answer->header_count, body_length = answer->body ? answer->body_length : 0;
  size_t bytes = count * sizeof(neap_header) + body_length + 1;
  for (size_t i = 0; i < count; i++)
    bytes += answer->headers[i].name_length + answer->headers[i].value_length + 2;
  kept_answer *kept = (kept_answer *)lua_newuserdatauv(L, sizeof *kept + bytes, 0);
  char *to = (char *)(kept->rows + count);
  for (size_t i = 0; i < count; i++) {
    const neap_header *h = &answer->headers[i];
    kept->rows[i] = (neap_header){add_text(&to, h->name, h->name_length), h->name_length,
                                  add_text(&to, h->value, h->value_length), h->value_length};
  }
  kept->bytes = bytes;
  kept->answer = (neap_answer){.status = answer->status,
                               .headers = kept->rows,
                               .header_count = count,
                               .body = add_text(&to, answer->body, body_length),
                               .body_length = body_length};
  luaL_setmetatable(L, KEPT_META);
  return sizeof *kept + bytes;
}

static const kept_answer *to_kept(lua_State *L, int index) {
  if (!lua_isuserdata(L, index) || !lua_getmetatable(L, index)) return NULL;
  bool is_kept = lua_topointer(L, -1) == engine_of(L)->kept_meta;
  lua_pop(L, 1);
  return is_kept ? (const kept_answer *)lua_touserdata(L, index) : NULL;
}

const neap_answer *engine_kept_answer(lua_State *L, int index) {
  const kept_answer *kept = to_kept(L, index);
  return kept ? &kept->answer : NULL;
}

/* Copies the kept answer at `index`, in one piece.  Nothing raises once there is a block. */
void engine_read_kept(lua_State *L, int index, neap_answer *answer) {
  const kept_answer *kept = to_kept(L, index);
  if (!kept) luaL_error(L, "a last good answer is a %s", luaL_typename(L, index));
  neap_header *rows = (neap_header *)malloc(kept->bytes);
  if (!rows) luaL_error(L, "no memory for an answer of %I bytes", (LUAI_UACINT)kept->bytes);
  const char *from = (const char *)kept->rows;
  char *to = (char *)rows;
  memcpy(to, from, kept->bytes);
  *answer = kept->answer;
  answer->owner = rows;
  answer->headers = rows;
  answer->body = to + ((const char *)kept->answer.body - from);
  for (size_t i = 0; i < answer->header_count; i++) {
    rows[i].name = to + (rows[i].name - from);
    rows[i].value = to + (rows[i].value - from);
  }
}

void engine_open_answer(lua_State *L) {
  luaL_newmetatable(L, KEPT_META);
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  engine_of(L)->kept_meta = lua_topointer(L, -1);
  lua_pop(L, 1);
}

/* ---- Asking the chain ------------------------------------------------------------------------ */

typedef struct asking {
  neap_guard *guard;
  const engine_line *line;
  neap_fallback_cause cause;
  neap_answer *answer;
  int from; /* the first stage that is to be asked */
  bool can_wait;
  const neap_request *request; /* or NULL */
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

/* Takes what the three values on top say: an answer, or a kept answer, its source and age, or
 * { elsewhere, pending, within_ms }, or nil. */
static void take_answer(lua_State *L, neap_answer *out) {
  int answer = lua_gettop(L) - 2;
  if (lua_isuserdata(L, answer)) {
    bool is_own = strcmp(luaL_checkstring(L, answer + 1), "last_good") == 0;
    uint64_t age_ms = (uint64_t)lua_tointeger(L, answer + 2);
    engine_read_kept(L, answer, out);
    out->source = is_own ? "last_good" : "guard";
    out->age_ms = age_ms;
  } else if (!lua_isnil(L, answer)) {
    lua_getfield(L, answer, "elsewhere");
    out->elsewhere = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!out->elsewhere) {
      read_answer(L, answer, out);
      return;
    }
    out->pending = number_field(L, answer, "pending");
    out->within_ms = number_field(L, answer, "within_ms");
  }
}

/* Pushes how long the call has left; nil: there is no deadline. */
static void push_left(lua_State *L, const neap_request *request) {
  if (request && request->has_deadline)
    lua_pushnumber(L, (lua_Number)request->left_ms);
  else
    lua_pushnil(L);
}

/* engine.fallback(guard, line, cause, call, from, can_wait, left_ms) -> as take_answer() */
static int ask(lua_State *L) {
  const asking *a = (const asking *)lua_touserdata(L, 1);
  engine_push_function(L, "fallback");
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->line->ref);
  lua_pushstring(L, causes[a->cause]);
  engine_push_call(L);
  lua_pushinteger(L, a->from);
  lua_pushboolean(L, a->can_wait);
  push_left(L, a->request);
  lua_call(L, 7, 3);
  take_answer(L, a->answer);
  return 0;
}

/* first_good(id, now_ms) -> kept answer, age_ms | nil */
static int ask_first(lua_State *L) {
  asking *a = (asking *)lua_touserdata(L, 1);
  const neap_engine *e = a->guard->engine;
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->guard->first_good);
  engine_push_identity(L, e, a->line->prefix, a->line->prefix_length);
  if (lua_isnil(L, -1)) return 0;
  lua_pushinteger(L, (lua_Integer)engine_now_ms(e));
  lua_call(L, 2, 2);
  a->from = 2;
  if (lua_isnil(L, -1)) return 0;
  uint64_t age_ms = (uint64_t)lua_tointeger(L, -1);
  engine_read_kept(L, -2, a->answer);
  a->answer->source = "last_good";
  a->answer->age_ms = age_ms;
  return 0;
}

static bool ask_chain(neap_guard *g, const char *key, size_t key_length, neap_fallback_cause cause,
                      const neap_request *request, const neap_result *result, neap_answer *answer,
                      bool can_wait) {
  neap_engine *e = g->engine;
  *answer = (neap_answer){.owner = NULL};
  if (e->is_closing || !(g->causes & 1u << cause)) return false;
  asking a = {g, engine_line_of(g, key, key_length, true), cause, answer, 1, can_wait, request};
  if (!a.line) return false;
  engine_scope outer = engine_enter(e, request, result, false);
  if (g->first_good != LUA_NOREF) engine_run(e, ask_first, &a, g->name);
  if (answer->owner == NULL) engine_run(e, ask, &a, g->name);
  engine_leave(e, outer);
  engine_record_answer(g, a.line, answer);
  return answer->owner || answer->elsewhere;
}

bool neap_guard_fallback(neap_guard *g, const char *key, size_t key_length,
                         neap_fallback_cause cause, const neap_request *request,
                         const neap_result *result, neap_answer *answer) {
  return ask_chain(g, key, key_length, cause, request, result, answer, false);
}

bool neap_guard_fallback_pending(neap_guard *g, const char *key, size_t key_length,
                                 neap_fallback_cause cause, const neap_request *request,
                                 const neap_result *result, neap_answer *answer) {
  return ask_chain(g, key, key_length, cause, request, result, answer, true);
}

/* ---- Asking elsewhere ------------------------------------------------------------------------ */

typedef struct serving {
  const neap_guard *guard;
  void *whom;
} serving;

/* engine.serve(guard, whom) */
static int serve(lua_State *L) {
  const serving *s = (const serving *)lua_touserdata(L, 1);
  engine_push_function(L, "serve");
  lua_rawgeti(L, LUA_REGISTRYINDEX, s->guard->ref);
  if (s->whom)
    lua_pushlightuserdata(L, s->whom);
  else
    lua_pushnil(L);
  lua_call(L, 2, 0);
  return 0;
}

void neap_guard_serve(neap_guard *g, void *whom) {
  serving s = {g, whom};
  if (!g->engine->is_closing) engine_run(g->engine, serve, &s, g->name);
}

typedef struct asked {
  uint64_t pending;
  const neap_answer *good; /* NULL: none */
  neap_answer *answer;     /* NULL: nobody waits for it */
} asked;

/* engine.asked(pending, kept answer | nil, "gone" | nil) -> as take_answer() */
static int go_on(lua_State *L) {
  const asked *a = (const asked *)lua_touserdata(L, 1);
  engine_push_function(L, "asked");
  lua_pushinteger(L, (lua_Integer)a->pending);
  if (a->good)
    engine_push_kept(L, a->good);
  else
    lua_pushnil(L);
  lua_pushstring(L, a->answer ? NULL : "gone");
  lua_call(L, 3, 3);
  if (a->answer) take_answer(L, a->answer);
  return 0;
}

bool neap_guard_asked(neap_guard *g, uint64_t pending, const neap_answer *good,
                      neap_answer *answer) {
  neap_engine *e = g->engine;
  if (answer) *answer = (neap_answer){.owner = NULL};
  if (e->is_closing) return false;
  asked a = {pending, good, answer};
  engine_scope outer = engine_enter(e, NULL, NULL, false);
  if (!engine_run(e, go_on, &a, g->name)) { /* no memory for it, perhaps: its place is given back */
    a = (asked){pending, NULL, NULL};
    engine_run(e, go_on, &a, g->name);
    if (answer) neap_answer_free(answer);
  }
  engine_leave(e, outer);
  return answer && (answer->owner || answer->elsewhere);
}
