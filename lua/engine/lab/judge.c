#include "judge.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdio.h>

#define SCOPE_KEY "neap.lab.scope" /* in the registry: the scope, as light userdata */

/* From base on. */
enum { SLOT_ASKED, SLOT_ASKED_FIELDS, SLOT_CALL, SLOT_FIELDS };

static const char *const endings[] = {"answer", "timeout",  "transport",
                                      "caller", "bulkhead", "refused"};

static void set_text(lua_State *L, int table, const char *field, lab_text t) {
  if (!t.data) return;
  lua_pushlstring(L, t.data, t.length);
  lua_setfield(L, table, field);
}

/* ---- What was asked -------------------------------------------------------------------------- */

/* headers.__index: names are found however they are written. */
static int l_header(lua_State *L) {
  size_t length;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &length) : NULL;
  if (!name) return 0;
  luaL_Buffer b;
  char *to = luaL_buffinitsize(L, &b, length);
  for (size_t i = 0; i < length; i++) to[i] = (char)tolower((unsigned char)name[i]);
  luaL_pushresultsize(&b, length);
  lua_rawget(L, 1);
  return 1;
}

static void push_headers(lua_State *L, const lab_call *c) {
  lua_createtable(L, 0, (int)c->headers + 1);
  int table = lua_gettop(L);
  set_text(L, table, "host", c->host);
  for (size_t i = 0; i < c->headers; i++) {
    char name[48];
    size_t length = c->header[i].name.length;
    if (length >= sizeof name) continue;
    for (size_t j = 0; j < length; j++)
      name[j] = c->header[i].name.data[j] == '_' ? '-' : c->header[i].name.data[j];
    name[length] = '\0';
    set_text(L, table, name, c->header[i].value);
  }
  luaL_getmetatable(L, "neap.lab.headers");
  lua_setmetatable(L, table);
}

/* { method, target, headers } */
static void push_request(lua_State *L, const lab_call *c) {
  lua_createtable(L, 0, 3);
  int table = lua_gettop(L);
  lua_pushliteral(L, "GET");
  lua_setfield(L, table, "method");
  lua_pushliteral(L, "/");
  lua_setfield(L, table, "target");
  set_text(L, table, "method", c->method);
  set_text(L, table, "target", c->target);
  push_headers(L, c);
  lua_setfield(L, table, "headers");
}

/* fields.__index(fields, name): made when somebody asks for them, as in the engine. */
static int l_lazy(lua_State *L) {
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  bool is_request = strcmp(name, "request") == 0, is_args = strcmp(name, "args") == 0;
  if (!is_request && !is_args) return 0;
  lua_getfield(L, LUA_REGISTRYINDEX, SCOPE_KEY);
  judge_scope *s = lua_touserdata(L, -1);
  if (!s || !s->call) return 0;
  if (is_request) {
    push_request(L, s->call);
  } else {
    lua_createtable(L, 1, 1);
    lua_getfield(L, 1, "request");
    lua_rawseti(L, -2, 1);
    lua_pushinteger(L, 1);
    lua_setfield(L, -2, "n");
  }
  s->has_request = true;
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

static int l_read_only(lua_State *L) { return luaL_error(L, "call is read-only"); }

/* Pushes a call and its fields: the policy gets the first, through which it sees the second. */
static void push_call(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 3);
  lua_createtable(L, 0, 12);
  luaL_getmetatable(L, "neap.lab.fields");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__index");
  lua_pushcfunction(L, l_read_only);
  lua_setfield(L, -3, "__newindex");
  lua_pushboolean(L, 0);
  lua_setfield(L, -3, "__metatable");
  lua_insert(L, -2);
  lua_setmetatable(L, -3);
}

static void new_metatable(lua_State *L, const char *name, lua_CFunction index) {
  luaL_newmetatable(L, name);
  lua_pushcfunction(L, index);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

void judge_open(judge_scope *s, lua_State *L) {
  new_metatable(L, "neap.lab.headers", l_header);
  new_metatable(L, "neap.lab.fields", l_lazy);
  *s = (judge_scope){.L = L, .base = lua_gettop(L) + 1};
  lua_pushlightuserdata(L, s);
  lua_setfield(L, LUA_REGISTRYINDEX, SCOPE_KEY);
  luaL_checkstack(L, JUDGE_SLOTS + 20, NULL);
  push_call(L);
  push_call(L);
}

void judge_close(judge_scope *s) {
  lua_pushnil(s->L);
  lua_setfield(s->L, LUA_REGISTRYINDEX, SCOPE_KEY);
}

static void forget_request(judge_scope *s) {
  static const char *const names[] = {"request", "args"};
  for (int i = 0; i < 2; i++)
    for (int slot = SLOT_ASKED_FIELDS; slot <= SLOT_FIELDS; slot += 2) {
      lua_pushstring(s->L, names[i]);
      lua_pushnil(s->L);
      lua_rawset(s->L, s->base + slot);
    }
  s->has_request = false;
}

void judge_enter(judge_scope *s, const lab_call *call) {
  if (s->has_request) forget_request(s);
  s->call = call;
}

/* ---- Whose breaker --------------------------------------------------------------------------- */

bool judge_takes(judge *j, const lab_call *call) {
  if (!call->policy.data || text_is(call->policy, (lab_text){j->name, strlen(j->name)}))
    return true;
  j->others++;
  return false;
}

static void note_fault(judge *j, const char *where, const char *fault) {
  if (!j->faults++) snprintf(j->fault, sizeof j->fault, "%s: %s", where, fault ? fault : "?");
}

/* key(call) -> key | nil, fault */
static uint32_t key_by_policy(judge *j, judge_scope *s, lane *l) {
  lua_State *L = s->L;
  int top = lua_gettop(L);
  size_t length = 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->key);
  lua_pushvalue(L, s->base + SLOT_ASKED);
  lua_call(L, 1, 2);
  const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &length) : NULL;
  if (!lua_isnil(L, -1)) note_fault(j, "key", lua_tostring(L, -1));
  uint32_t number = key ? lane_key_of(l, key, length) : lane_key_of(l, "default", 7);
  lua_settop(L, top);
  return number;
}

uint32_t judge_key(judge *j, judge_scope *s, lane *l) {
  lab_text key = s->call->key;
  bool has_key = key.data && key.length && !(key.length == 1 && key.data[0] == '-');
  if (has_key) return lane_key_of(l, key.data, key.length);
  if (j->key != LUA_NOREF && !j->takes_keys) return key_by_policy(j, s, l);
  return lane_key_of(l, "default", 7);
}

/* ---- What it came to ------------------------------------------------------------------------- */

static void set_number(lua_State *L, int table, const char *field, lua_Integer n) {
  lua_pushinteger(L, n);
  lua_setfield(L, table, field);
}

static void set_or_clear(lua_State *L, int table, const char *field, lab_text t) {
  if (t.data)
    lua_pushlstring(L, t.data, t.length);
  else
    lua_pushnil(L);
  lua_setfield(L, table, field);
}

/* { ["retry-after"] = "30" }, in seconds */
static void set_headers(lua_State *L, int table, const lab_call *c) {
  lua_createtable(L, 0, 1);
  if (c->retry_after_ms) {
    lua_pushfstring(L, "%d", (int)((c->retry_after_ms + 999) / 1000));
    lua_setfield(L, -2, "retry-after");
  }
  luaL_getmetatable(L, "neap.lab.headers");
  lua_setmetatable(L, -2);
  lua_setfield(L, table, "headers");
}

static void set_fields(judge_scope *s, lab_end ended_by, uint32_t took_ms) {
  lua_State *L = s->L;
  const lab_call *c = s->call;
  int table = s->base + SLOT_FIELDS;
  bool is_answer = ended_by == LAB_ANSWER;
  lua_pushstring(L, endings[ended_by]);
  lua_setfield(L, table, "ended_by");
  if (is_answer && c->status)
    lua_pushinteger(L, c->status);
  else
    lua_pushnil(L);
  lua_setfield(L, table, "status");
  set_number(L, table, "duration_ms", took_ms);
  if (is_answer && c->grpc >= 0)
    lua_pushinteger(L, c->grpc);
  else
    lua_pushnil(L);
  lua_setfield(L, table, "grpc_status");
  set_or_clear(L, table, "code", c->code);
  set_or_clear(L, table, "error",
               ended_by == LAB_TRANSPORT && !c->error.data ? LAB_TEXT("transport") : c->error);
  set_headers(L, table, c);
}

static neap_outcome outcome_of(const char *name) {
  switch (name ? name[0] : 0) {
    case 's': return NEAP_SUCCESS;
    case 'f': return NEAP_FAILURE;
    case 't': return NEAP_TIMEOUT;
    default: return NEAP_NEUTRAL;
  }
}

/* classify(call) -> outcome, reason, retry_after_ms, fault */
static neap_outcome classify(judge *j, judge_scope *s, lab_end ended_by, uint32_t took_ms,
                             uint32_t *retry_ms) {
  lua_State *L = s->L;
  int top = lua_gettop(L);
  set_fields(s, ended_by, took_ms);
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->classify);
  lua_pushvalue(L, s->base + SLOT_CALL);
  lua_call(L, 1, 4);
  neap_outcome outcome = outcome_of(lua_tostring(L, -4));
  lua_Number retry = lua_tonumber(L, -2);
  if (retry > 0 && retry < UINT32_MAX) *retry_ms = (uint32_t)retry;
  if (!lua_isnil(L, -1)) note_fault(j, "classify", lua_tostring(L, -1));
  lua_settop(L, top);
  return outcome;
}

static neap_outcome outcome(judge *j, judge_scope *s, lab_end ended_by, uint32_t took_ms,
                            uint32_t *retry_ms) {
  const lab_call *c = s->call;
  bool is_plain =
      j->is_pure && c->grpc < 0 && !c->code.data && !c->error.data && !c->retry_after_ms;
  if (!is_plain) return classify(j, s, ended_by, took_ms, retry_ms);
  uint8_t *known = &j->known[ended_by][ended_by == LAB_ANSWER ? c->status : 0];
  if (!*known) *known = (uint8_t)(classify(j, s, ended_by, took_ms, retry_ms) + 1);
  return (neap_outcome)(*known - 1);
}

static uint32_t ms_of(uint64_t us) {
  uint64_t ms = (us + 500) / 1000;
  return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* A timer is a little late: a timeout of the log's that is the policy's. */
static bool is_own_timeout(const judge *j, const lab_call *c, uint32_t took_ms) {
  return c->ended_by == LAB_TIMEOUT && took_ms <= j->timeout_ms + j->timeout_ms / 10 + 20;
}

lane_call judge_call(judge *j, judge_scope *s) {
  const lab_call *c = s->call;
  uint32_t took_ms = ms_of(c->duration_us);
  lane_call out = {.begin_ms = c->begin_us / 1000,
                   .took_ms = took_ms,
                   .logged_ms = took_ms,
                   .span_ms = c->span_us ? ms_of(c->span_us) : took_ms};
  if (c->ended_by == LAB_REFUSED) {
    out.is_unknown = true;
    out.outcome = NEAP_NEUTRAL;
    return out;
  }
  bool is_over = j->timeout_ms && took_ms > j->timeout_ms && c->ended_by != LAB_BULKHEAD;
  if (is_over && !is_own_timeout(j, c, took_ms)) {
    uint32_t none;
    out.is_cut = true;
    out.took_ms = out.span_ms = j->timeout_ms;
    out.was_good = outcome(j, s, c->ended_by, took_ms, &none) == NEAP_SUCCESS;
    out.outcome = outcome(j, s, LAB_TIMEOUT, j->timeout_ms, &out.retry_after_ms);
    return out;
  }
  bool is_judged = c->judged && text_is(c->hash, (lab_text){j->hash, strlen(j->hash)});
  if (is_judged) {
    const char letter[] = {c->judged, '\0'};
    j->by_record++;
    out.outcome = outcome_of(letter);
    out.retry_after_ms = c->retry_after_ms < UINT32_MAX ? (uint32_t)c->retry_after_ms : 0;
  } else {
    out.outcome = outcome(j, s, c->ended_by, took_ms, &out.retry_after_ms);
  }
  return out;
}
