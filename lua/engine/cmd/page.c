/* page.c: one request of the admin pages.
 *
 *   head -> body (kept whole, up to ADMIN_BODY_MAX) -> Lua -> answer
 *                                                       \-> parts, one per turn of the loop
 *
 * Parts are for what may be long: a scrape of a thousand breakers must not make a request wait.  They
 * may be without end: a part that is false means that there is none for now, and admin_wake() has
 * Lua asked again. */
#include "admin.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "http/head.h"

/* One request under way. */
struct page {
  admin *admin;
  http_request *request;
  uv_idle_t turn; /* active while parts are handed out */
  int parts;      /* registry reference of the function that makes them; LUA_NOREF: none */
  int over;       /* ... of what is called when the parts are not asked for any more */
  bool is_answering, is_too_large;
  bool is_full; /* the client has yet to take what was sent; parts wait for that */
  uint64_t full_at;
  page *next, **at; /* of the admin's followers, if it is one */
  size_t length;
  char body[ADMIN_BODY_MAX];
};

static void page_closed(uv_handle_t *turn) { free(turn->data); }

static void follower_begin(page *p) {
  p->next = p->admin->followers;
  p->at = &p->admin->followers;
  if (p->next) p->next->at = &p->next;
  *p->at = p;
}

static void follower_end(page *p) {
  lua_State *L = admin_lua(p->admin);
  *p->at = p->next;
  if (p->next) p->next->at = p->at;
  lua_rawgeti(L, LUA_REGISTRYINDEX, p->over);
  if (!neap_engine_pcall(p->admin->serve->engine, 0, 0)) lua_pop(L, 1);
  luaL_unref(L, LUA_REGISTRYINDEX, p->over);
}

static void page_end(page *p) {
  if (p->at) follower_end(p);
  luaL_unref(admin_lua(p->admin), LUA_REGISTRYINDEX, p->parts);
  uv_close((uv_handle_t *)&p->turn, page_closed);
}

/* ---- Answers --------------------------------------------------------------------------------- */

typedef struct exchange {
  page *page;
  const char *text; /* on the Lua stack */
  size_t length;
} exchange;

/* Sets the header in the table at the top.  Lines of one name are joined, so that two are neither. */
static void set_header(lua_State *L, const http_request *request, const char *name) {
  const neap_header *at = request->headers, *end = at + request->header_count;
  luaL_Buffer value;
  if (!http_field_find(at, (size_t)(end - at), name)) return;
  luaL_buffinit(L, &value);
  for (int lines = 0; (at = http_field_find(at, (size_t)(end - at), name)); at++) {
    if (lines++) luaL_addstring(&value, ", ");
    luaL_addlstring(&value, at->value, at->value_length);
  }
  luaL_pushresult(&value);
  lua_setfield(L, -2, name);
}

/* Pushes { method, target, headers, body, peer }. */
static void push_request(lua_State *L, page *p) {
  http_request *request = p->request;
  char peer[64];
  lua_createtable(L, 0, 5);
  lua_pushstring(L, request->method);
  lua_setfield(L, -2, "method");
  lua_pushlstring(L, request->target.data, request->target.length);
  lua_setfield(L, -2, "target");
  lua_pushlstring(L, p->body, p->length);
  lua_setfield(L, -2, "body");
  lua_pushstring(L, http_request_peer(request, peer));
  lua_setfield(L, -2, "peer");
  static const char *const wanted[] = {"accept", "authorization", "last-event-id", "origin",
                                       "sec-fetch-site"};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) set_header(L, request, wanted[i]);
  if (request->host.length > 0) {
    lua_pushlstring(L, request->host.data, request->host.length);
    lua_setfield(L, -2, "host");
  }
  lua_setfield(L, -2, "headers");
}

/* Pushes the answer's header lines, of the answer at the top. */
static void push_lines(lua_State *L) {
  luaL_Buffer lines;
  int answer = lua_gettop(L);
  lua_getfield(L, answer, "headers");
  lua_getfield(L, answer, "type");
  luaL_buffinit(L, &lines);
  luaL_addstring(&lines, "Content-Type: ");
  luaL_addstring(&lines, lua_tostring(L, answer + 2));
  luaL_addstring(&lines, "\r\n");
  luaL_pushresult(&lines);
  for (lua_pushnil(L); lua_next(L, answer + 1); lua_pop(L, 1)) {
    lua_pushvalue(L, answer + 3);
    lua_pushfstring(L, "%s: %s\r\n", lua_tostring(L, -3), lua_tostring(L, -2));
    lua_concat(L, 2);
    lua_replace(L, answer + 3);
  }
  lua_replace(L, answer + 1);
  lua_settop(L, answer + 1);
}

static int l_answer(lua_State *L) {
  exchange *e = lua_touserdata(L, 1);
  page *p = e->page;
  lua_rawgeti(L, LUA_REGISTRYINDEX, p->admin->handle);
  push_request(L, p);
  lua_call(L, 1, 1);
  push_lines(L);
  lua_getfield(L, -2, "status");
  lua_getfield(L, -3, "body");
  size_t lines_length, length = 0;
  const char *lines = lua_tolstring(L, -3, &lines_length);
  http_head head = {
      .status = (int)lua_tointeger(L, -2), .lines = {lines, lines_length}, .content_length = -1};
  p->is_answering = true;
  if (lua_isfunction(L, -1)) {
    p->parts = luaL_ref(L, LUA_REGISTRYINDEX);
    if (lua_getfield(L, 2, "over") == LUA_TFUNCTION) {
      p->over = luaL_ref(L, LUA_REGISTRYINDEX);
      follower_begin(p);
    }
    http_answer_begin(p->request, &head);
    return 0;
  }
  const char *body = lua_tolstring(L, -1, &length);
  head.content_length = (int64_t)length;
  http_answer(p->request, &head, body, length);
  return 0;
}

static int l_part(lua_State *L) {
  exchange *e = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, e->page->parts);
  lua_call(L, 0, 1);
  return 1;
}

/* Lua that fails here is our own fault: say so in the log and cut the answer, which cannot be
 * completed.  After a cut nobody asks for the page any more. */
static void page_failed(page *p) {
  serve *s = p->admin->serve;
  lua_State *L = admin_lua(p->admin);
  serve_log(s, LOG_ERROR, "admin", "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
  if (!p->is_answering) {
    http_answer_problem(p->request, 500, "A fault in neap", "the log says more", NULL);
    return;
  }
  http_answer_cut(p->request);
  page_end(p);
}

static void on_turn(uv_idle_t *turn) {
  page *p = turn->data;
  lua_State *L = admin_lua(p->admin);
  exchange e = {.page = p};
  lua_pushcfunction(L, l_part);
  lua_pushlightuserdata(L, &e);
  if (!neap_engine_pcall(p->admin->serve->engine, 1, 1)) {
    uv_idle_stop(turn);
    page_failed(p);
    return;
  }
  size_t length;
  bool is_for_now = lua_isboolean(L, -1) && !p->admin->is_ending;
  const char *text = lua_tolstring(L, -1, &length);
  http_request *request = p->request;
  if (!text) {
    uv_idle_stop(turn);
    lua_pop(L, 1);
    if (!is_for_now) http_answer_end(request);
    return;
  }
  if (length > 0 && !http_answer_write(request, text, length)) {
    uv_idle_stop(turn);
    p->is_full = true;
    p->full_at = p->admin->wakes;
  }
  lua_pop(L, 1);
}

/* Whoever has not taken, since he was full, more than is kept for him would miss something from now
 * on: he is better off coming back. */
static void follower_wake(page *p) {
  admin *a = p->admin;
  if (!p->is_full) {
    uv_idle_start(&p->turn, on_turn);
  } else if (a->wakes - p->full_at > EVENTS_KEPT) {
    a->cut++;
    http_answer_cut(p->request);
    page_end(p);
  }
}

static void on_wake(uv_idle_t *wake) {
  admin *a = wake->data;
  uv_idle_stop(wake);
  for (page *p = a->followers, *next; p; p = next) {
    next = p->next;
    follower_wake(p);
  }
}

void admin_wake(admin *a) {
  a->wakes++;
  if (a->followers) uv_idle_start(&a->wake, on_wake);
}

void admin_end(admin *a) {
  a->is_ending = true;
  admin_wake(a);
}

static void page_answer(page *p) {
  admin *a = p->admin;
  if (p->is_too_large) {
    http_answer_problem(p->request, 413, "Too much was said", "at most 16,384 bytes", NULL);
    return;
  }
  exchange e = {.page = p};
  lua_State *L = admin_lua(a);
  uv_idle_t *turn = &p->turn;
  p->is_answering = false;
  lua_pushcfunction(L, l_answer);
  lua_pushlightuserdata(L, &e);
  if (!neap_engine_pcall(a->serve->engine, 1, 0))
    page_failed(p);
  else if (p->parts != LUA_NOREF && !uv_is_closing((uv_handle_t *)turn))
    uv_idle_start(turn, on_turn);
}

/* ---- The handler ----------------------------------------------------------------------------- */

static void on_body(void *data, http_request *request, const char *bytes, size_t length) {
  page *p = data;
  (void)request;
  if (length > sizeof p->body - p->length) {
    p->is_too_large = true;
    return;
  }
  memcpy(p->body + p->length, bytes, length);
  p->length += length;
}

static void on_end(void *data, http_request *request) {
  (void)request;
  page_answer(data);
}

static void on_drain(void *data, http_request *request) {
  page *p = data;
  (void)request;
  p->is_full = false;
  if (p->parts != LUA_NOREF) uv_idle_start(&p->turn, on_turn);
}

static void on_done(void *data, http_request *request) {
  (void)request;
  page_end(data);
}

static void on_abort(void *data, http_request *request, http_abort_reason reason) {
  (void)request;
  (void)reason;
  page_end(data);
}

static const http_handler page_handler = {
    .on_body = on_body,
    .on_end = on_end,
    .on_drain = on_drain,
    .on_done = on_done,
    .on_abort = on_abort,
};

static void on_request(void *data, http_request *request) {
  admin *a = data;
  page *p = calloc(1, sizeof *p);
  if (!p) abort();
  p->admin = a;
  p->request = request;
  p->parts = p->over = LUA_NOREF;
  uv_idle_init(&a->serve->loop, &p->turn);
  p->turn.data = p;
  http_request_handle(request, &page_handler, p);
  http_request_continue(request);
  if (request->content_length == 0) page_answer(p);
}

const http_handler admin_handler = {.on_request = on_request};
