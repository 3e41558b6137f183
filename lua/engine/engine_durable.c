/* engine_durable.c: what outlives the process, and what nobody waits for.
 *
 *   pending   a queued call whose caller is told when it is on the disk: neap/queue.lua says when
 *   replay    a queued call is made again: Lua says which, the program makes it
 *   at once   a last good answer before anybody is asked, and the call that refreshes it
 *   packed    a kept answer as text, for its file:  status headers body_length \n
 *             name_length value_length \n name value ... body
 */
#include "engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Answers that are not true yet ----------------------------------------------------------- */

struct engine_waiter {
  engine_waiter *next;
  uint64_t pending;
  void (*kept)(void *data, bool is_kept);
  void *data;
};

/* Takes out the waiter of that number; NULL: there is none any more. */
static engine_waiter *take_waiter(neap_engine *e, uint64_t pending) {
  for (engine_waiter **at = &e->waiters; *at; at = &(*at)->next) {
    engine_waiter *w = *at;
    if (w->pending != pending) continue;
    *at = w->next;
    return w;
  }
  return NULL;
}

static void tell_waiter(engine_waiter *w, bool is_kept) {
  if (!w) return;
  w->kept(w->data, is_kept);
  free(w);
}

/* kept(pending, is_kept) */
int engine_l_kept(lua_State *L) {
  tell_waiter(take_waiter(engine_of(L), (uint64_t)lua_tointeger(L, 1)), lua_toboolean(L, 2));
  return 0;
}

typedef struct numbered {
  uint64_t number;
} numbered;

/* engine.when_kept(pending) */
static int when_kept(lua_State *L) {
  const numbered *n = (const numbered *)lua_touserdata(L, 1);
  engine_push_function(L, "when_kept");
  lua_pushinteger(L, (lua_Integer)n->number);
  lua_call(L, 1, 0);
  return 0;
}

/* engine.unkept(pending) */
static int unkept(lua_State *L) {
  const numbered *n = (const numbered *)lua_touserdata(L, 1);
  engine_push_function(L, "unkept");
  lua_pushinteger(L, (lua_Integer)n->number);
  lua_call(L, 1, 0);
  return 0;
}

void neap_guard_when_kept(neap_guard *g, uint64_t pending, void (*kept)(void *data, bool is_kept),
                          void *data) {
  neap_engine *e = g->engine;
  numbered n = {pending};
  if (!kept) {
    free(take_waiter(e, pending));
    if (!e->is_closing) engine_run(e, unkept, &n, g->name);
    return;
  }
  engine_waiter *w = (engine_waiter *)calloc(1, sizeof *w);
  if (!w || e->is_closing) {
    free(w);
    kept(data, false);
    return;
  }
  *w = (engine_waiter){e->waiters, pending, kept, data};
  e->waiters = w;
  if (!engine_run(e, when_kept, &n, g->name)) tell_waiter(take_waiter(e, pending), false);
}

void engine_close_durable(neap_engine *e) {
  while (e->waiters) tell_waiter(take_waiter(e, e->waiters->pending), false);
}

/* ---- Queued calls ---------------------------------------------------------------------------- */

#define HEADERS_MOST 512

static const char *text_field(lua_State *L, int table, const char *name, size_t *length) {
  lua_getfield(L, table, name); /* the table holds on to it */
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, length) : NULL;
  lua_pop(L, 1);
  return text;
}

/* { name, value, name, value ... } */
static size_t read_headers(lua_State *L, int table, neap_header headers[HEADERS_MOST]) {
  size_t count = 0;
  if (lua_getfield(L, table, "headers") != LUA_TTABLE)
    luaL_error(L, "a queued call has no headers");
  int list = lua_gettop(L);
  for (lua_Integer i = 1; count < HEADERS_MOST; i += 2, count++) {
    neap_header *h = &headers[count];
    lua_rawgeti(L, list, i);
    lua_rawgeti(L, list, i + 1);
    bool is_pair = lua_type(L, -2) == LUA_TSTRING && lua_type(L, -1) == LUA_TSTRING;
    if (is_pair) {
      h->name = lua_tolstring(L, -2, &h->name_length);
      h->value = lua_tolstring(L, -1, &h->value_length);
    }
    lua_pop(L, 2);
    if (!is_pair) break;
  }
  lua_pop(L, 1);
  return count;
}

/* replay(handle, key, id, request, token): the program is to make that call. */
int engine_l_replay(lua_State *L) {
  neap_engine *e = engine_of(L);
  neap_header headers[HEADERS_MOST];
  neap_request request = {.headers = headers};
  neap_queued q = {.guard = (neap_guard *)lua_touserdata(L, 1), .request = &request};
  luaL_checktype(L, 4, LUA_TTABLE);
  q.key = luaL_checklstring(L, 2, &q.key_length);
  q.id = luaL_checkstring(L, 3);
  q.token = (uint64_t)luaL_checkinteger(L, 5);
  size_t length;
  request.method = text_field(L, 4, "method", &length);
  request.target = text_field(L, 4, "target", &request.target_length);
  request.body = text_field(L, 4, "body", &request.body_length);
  request.header_count = read_headers(L, 4, headers);
  e->on_replay(e->data, &q);
  return 0;
}

typedef struct replayed {
  uint64_t token;
  neap_replay verdict;
  const char *reason;
  uint64_t wait_ms;
} replayed;

/* engine.replayed(token, verdict, reason, wait_ms) */
static int tell_replayed(lua_State *L) {
  static const char *const verdicts[] = {"done", "own", "later"};
  const replayed *r = (const replayed *)lua_touserdata(L, 1);
  engine_push_function(L, "replayed");
  lua_pushinteger(L, (lua_Integer)r->token);
  lua_pushstring(L, verdicts[r->verdict]);
  lua_pushstring(L, r->reason);
  lua_pushinteger(L, (lua_Integer)r->wait_ms);
  lua_call(L, 4, 0);
  return 0;
}

void neap_engine_replayed(neap_engine *e, uint64_t token, neap_replay verdict, const char *reason,
                          uint64_t wait_ms) {
  engine_assert_owner(e);
  if (e->is_closing) return;
  replayed r = {token, verdict, reason, wait_ms};
  engine_run(e, tell_replayed, &r, "a queued call");
}

/* ---- At once --------------------------------------------------------------------------------- */

typedef struct looking {
  neap_guard *guard;
  const engine_line *line;
  neap_answer *answer;
  uint64_t refresh;
} looking;

/* engine.at_once(guard, line, call) -> kept answer, age_ms, refresh | nil */
static int look(lua_State *L) {
  looking *l = (looking *)lua_touserdata(L, 1);
  engine_push_function(L, "at_once");
  lua_rawgeti(L, LUA_REGISTRYINDEX, l->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, l->line->ref);
  engine_push_call(L);
  lua_call(L, 3, 3);
  if (lua_isnil(L, -3)) return 0;
  uint64_t age_ms = (uint64_t)lua_tonumber(L, -2);
  l->refresh = (uint64_t)lua_tointeger(L, -1);
  engine_read_kept(L, lua_absindex(L, -3), l->answer);
  l->answer->source = "last_good";
  l->answer->age_ms = age_ms;
  return 0;
}

bool neap_guard_at_once(neap_guard *g, const char *key, size_t key_length,
                        const neap_request *request, neap_answer *answer, uint64_t *refresh) {
  neap_engine *e = g->engine;
  *refresh = 0;
  if (!g->revalidates || e->is_closing || engine_wants_new(request)) return false;
  *answer = (neap_answer){.owner = NULL};
  looking l = {g, engine_line_of(g, key, key_length, true), answer, 0};
  if (!l.line) return false;
  engine_scope outer = engine_enter(e, request, NULL, false);
  engine_run(e, look, &l, g->name);
  engine_leave(e, outer);
  *refresh = l.refresh;
  if (!answer->owner && l.refresh) neap_guard_refreshed(g, l.refresh);
  engine_record_answer(g, l.line, answer);
  return answer->owner != NULL;
}

/* engine.refreshed(refresh) */
static int tell_refreshed(lua_State *L) {
  const numbered *n = (const numbered *)lua_touserdata(L, 1);
  engine_push_function(L, "refreshed");
  lua_pushinteger(L, (lua_Integer)n->number);
  lua_call(L, 1, 0);
  return 0;
}

void neap_guard_refreshed(neap_guard *g, uint64_t refresh) {
  numbered n = {refresh};
  if (!g->engine->is_closing) engine_run(g->engine, tell_refreshed, &n, g->name);
}

/* ---- Kept answers as text -------------------------------------------------------------------- */

static void add_number(luaL_Buffer *b, size_t n, char after) {
  char text[24];
  int length = snprintf(text, sizeof text, "%zu%c", n, after);
  luaL_addlstring(b, text, (size_t)length);
}

/* pack(kept answer) -> text | nil: none, or one that unpack would not take */
int engine_l_pack(lua_State *L) {
  const neap_answer *a = engine_kept_answer(L, 1);
  if (!a || a->header_count > HEADERS_MOST) return 0;
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  add_number(&b, (size_t)a->status, ' ');
  add_number(&b, a->header_count, ' ');
  add_number(&b, a->body_length, '\n');
  for (size_t i = 0; i < a->header_count; i++) {
    const neap_header *h = &a->headers[i];
    add_number(&b, h->name_length, ' ');
    add_number(&b, h->value_length, '\n');
    luaL_addlstring(&b, h->name, h->name_length);
    luaL_addlstring(&b, h->value, h->value_length);
  }
  luaL_addlstring(&b, (const char *)a->body, a->body_length);
  luaL_pushresult(&b);
  return 1;
}

typedef struct unpacking {
  const char *at, *end;
  bool is_bad;
} unpacking;

static size_t take_number(unpacking *u, char after) {
  size_t n = 0, digits = 0;
  for (; u->at < u->end && *u->at >= '0' && *u->at <= '9' && digits < 10; digits++)
    n = n * 10 + (size_t)(*u->at++ - '0');
  if (!digits || u->at == u->end || *u->at++ != after) u->is_bad = true;
  return u->is_bad ? 0 : n;
}

static const char *take_bytes(unpacking *u, size_t length) {
  const char *bytes = u->at;
  if (u->is_bad || length > (size_t)(u->end - u->at)) {
    u->is_bad = true;
    return NULL;
  }
  u->at += length;
  return bytes;
}

/* unpack(text) -> kept answer | nil */
int engine_l_unpack(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  neap_header headers[HEADERS_MOST];
  unpacking u = {text, text + length, false};
  neap_answer a = {.headers = headers};
  a.status = (int)take_number(&u, ' ');
  a.header_count = take_number(&u, ' ');
  a.body_length = take_number(&u, '\n');
  if (a.header_count > HEADERS_MOST) return 0;
  for (size_t i = 0; i < a.header_count && !u.is_bad; i++) {
    neap_header *h = &headers[i];
    h->name_length = take_number(&u, ' ');
    h->value_length = take_number(&u, '\n');
    h->name = take_bytes(&u, h->name_length);
    h->value = take_bytes(&u, h->value_length);
  }
  a.body = take_bytes(&u, a.body_length);
  if (u.is_bad || u.at != u.end || a.status < 100 || a.status > 599) return 0;
  engine_push_kept(L, &a);
  return 1;
}
