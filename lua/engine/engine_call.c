/* engine_call.c: what a call came to, as the `call` table that a policy classifies.
 *
 *   call        status code error ended_by phase duration_ms grpc_status        set for each call
 *   (missing) -> lazy()   headers body request args id   made when somebody asks for them
 */
#include "engine_internal.h"

#include <ctype.h>
#include <string.h>

/* Metatables, in the registry. */
#define CALL_META   "neap.engine.call"
#define HEADER_META "neap.engine.headers"

/* ---- Headers --------------------------------------------------------------------------------- */

/* Pushes a name in lower case. */
static void push_lower(lua_State *L, const char *name, size_t length) {
  luaL_Buffer b;
  char *to = luaL_buffinitsize(L, &b, length);
  for (size_t i = 0; i < length; i++) to[i] = (char)tolower((unsigned char)name[i]);
  luaL_pushresultsize(&b, length);
}

/* headers.__index: names are found however they are written. */
static int l_header(lua_State *L) {
  size_t length;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &length) : NULL;
  if (!name) return 0;
  push_lower(L, name, length);
  lua_rawget(L, 1);
  return 1;
}

/* Pushes { name in lower case = value }; values of one name are joined with ", ". */
static void push_headers(lua_State *L, const neap_header *headers, size_t count) {
  lua_createtable(L, 0, (int)count);
  int table = lua_gettop(L);
  for (size_t i = 0; i < count; i++) {
    push_lower(L, headers[i].name, headers[i].name_length);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, table) == LUA_TSTRING) {
      lua_pushliteral(L, ", ");
      lua_pushlstring(L, headers[i].value, headers[i].value_length);
      lua_concat(L, 3);
    } else {
      lua_pop(L, 1);
      lua_pushlstring(L, headers[i].value, headers[i].value_length);
    }
    lua_rawset(L, table);
  }
  luaL_setmetatable(L, HEADER_META);
}

/* ---- Parts made on demand -------------------------------------------------------------------- */

static void push_body(lua_State *L, const void *body, size_t length) {
  if (body)
    lua_pushlstring(L, (const char *)body, length);
  else
    lua_pushnil(L);
}

static const char *method_of(const neap_request *r) { return r->method ? r->method : "GET"; }

static void push_target(lua_State *L, const neap_request *r) {
  if (r->target)
    lua_pushlstring(L, r->target, r->target_length);
  else
    lua_pushliteral(L, "/");
}

/* { method, target, headers, body } */
static void push_request(lua_State *L, const neap_request *r) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, method_of(r));
  lua_setfield(L, -2, "method");
  push_target(L, r);
  lua_setfield(L, -2, "target");
  push_headers(L, r->headers, r->header_count);
  lua_setfield(L, -2, "headers");
  push_body(L, r->body, r->body_length);
  lua_setfield(L, -2, "body");
}

/* { request, n = 1 }: what guard:call(f, request) would have been given. */
static void push_args(lua_State *L) {
  lua_createtable(L, 1, 1);
  lua_getfield(L, 1, "request");
  lua_rawseti(L, -2, 1);
  lua_pushinteger(L, 1);
  lua_setfield(L, -2, "n");
}

/* { method, target, headers = { name, value, ... }, body }: all of it, to be sent again. */
static void push_raw(lua_State *L, const neap_request *r) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, method_of(r));
  lua_setfield(L, -2, "method");
  push_target(L, r);
  lua_setfield(L, -2, "target");
  lua_createtable(L, 2 * (int)r->header_count, 0);
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    lua_pushlstring(L, h->name, h->name_length);
    lua_rawseti(L, -2, 2 * (lua_Integer)i + 1);
    lua_pushlstring(L, h->value, h->value_length);
    lua_rawseti(L, -2, 2 * (lua_Integer)i + 2);
  }
  lua_setfield(L, -2, "headers");
  push_body(L, r->body, r->body_length);
  lua_setfield(L, -2, "body");
}

static bool push_lazy(lua_State *L, const neap_engine *e, const char *field) {
  const neap_result *result = e->scope.result;
  const neap_request *request = e->scope.request;
  if (strcmp(field, "headers") == 0)
    push_headers(L, result ? result->headers : NULL, result ? result->header_count : 0);
  else if (result && strcmp(field, "body") == 0)
    push_body(L, result->body, result->body_length);
  else if (request && strcmp(field, "request") == 0)
    push_request(L, request);
  else if (request && strcmp(field, "args") == 0)
    push_args(L);
  else if (request && strcmp(field, "raw") == 0)
    push_raw(L, request);
  else if (request && strcmp(field, "id") == 0)
    engine_push_identity(L, e, "", 0);
  else
    return false;
  return true;
}

/* call.__index(call, field) */
static int l_lazy(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  if (!push_lazy(L, engine_of(L), lua_tostring(L, 2))) return 0;
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

void engine_open_call(lua_State *L) {
  luaL_newmetatable(L, HEADER_META);
  lua_pushcfunction(L, l_header);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  luaL_newmetatable(L, CALL_META);
  lua_pushcfunction(L, l_lazy);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
}

/* ---- The table ------------------------------------------------------------------------------- */

static const char *const endings[] = {"answer", "timeout", "transport", "caller", "bulkhead"};
static const char *const phases[] = {NULL, "connect", "sent", "headers", "body"};

static void set_text(lua_State *L, const char *field, const char *text) {
  if (!text) return;
  lua_pushstring(L, field);
  lua_pushstring(L, text);
  lua_rawset(L, -3);
}

static void set_number(lua_State *L, const char *field, uint64_t number) {
  lua_pushstring(L, field);
  lua_pushinteger(L, (lua_Integer)number);
  lua_rawset(L, -3);
}

static void set_result(lua_State *L, const neap_result *r) {
  set_text(L, "ended_by", endings[r->ended_by]);
  set_text(L, "phase", phases[r->phase]);
  if (r->status > 0) set_number(L, "status", (uint64_t)r->status);
  set_number(L, "duration_ms", r->duration_ms);
  if (r->is_grpc) set_number(L, "grpc_status", (uint64_t)r->grpc_status);
  set_text(L, "code", r->code);
  bool is_mute = r->ended_by == NEAP_ENDED_TRANSPORT && !r->error;
  set_text(L, "error", is_mute ? "transport" : r->error);
}

void engine_push_call(lua_State *L) {
  const neap_result *result = engine_of(L)->scope.result;
  lua_createtable(L, 0, 8);
  luaL_setmetatable(L, CALL_META);
  if (result) set_result(L, result);
}
