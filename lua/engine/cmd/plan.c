/* plan.c: from the table neap.cmd made to a struct.  The table is right: it was checked where it
 * was made. */
#include "plan.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(lua_State *L, const char *key) {
  lua_getfield(L, -1, key);
  const char *text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

static lua_Number number_of(lua_State *L, const char *key) {
  lua_getfield(L, -1, key);
  lua_Number number = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return number;
}

static bool switch_of(lua_State *L, const char *key) {
  lua_getfield(L, -1, key);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

static plan_address address_of(lua_State *L, const char *key) {
  plan_address address = {0};
  lua_getfield(L, -1, key);
  if (lua_istable(L, -1))
    address = (plan_address){text_of(L, "host"), (int)number_of(L, "port"), text_of(L, "text")};
  lua_pop(L, 1);
  return address;
}

static void *allocate(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size);
  if (!memory) abort();
  return memory;
}

static const char **texts_of(lua_State *L, const char *key, size_t *count) {
  lua_getfield(L, -1, key);
  *count = lua_rawlen(L, -1);
  const char **texts = allocate(*count, sizeof *texts);
  for (size_t i = 0; i < *count; i++) {
    lua_rawgeti(L, -1, (lua_Integer)i + 1);
    texts[i] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return texts;
}

static plan_route route_of(lua_State *L) {
  return (plan_route){
      .name = text_of(L, "name"),
      .key = text_of(L, "key"),
      .host = text_of(L, "host"),
      .prefix = text_of(L, "prefix"),
      .upstream = text_of(L, "upstream"),
      .upstream_host = text_of(L, "upstream_host"),
      .upstream_port = text_of(L, "upstream_port"),
      .policy = text_of(L, "policy"),
      .ca_file = text_of(L, "ca_file"),
      .connect_ms = (uint32_t)number_of(L, "connect_ms"),
      .answer_ms = (uint32_t)number_of(L, "answer_ms"),
      .http2 = switch_of(L, "http2"),
      .serves = switch_of(L, "serves"),
  };
}

static plan_webhook webhook_of(lua_State *L) {
  plan_webhook webhook = {.token_file = text_of(L, "webhook_token_file")};
  lua_getfield(L, -1, "webhook");
  if (lua_istable(L, -1)) {
    webhook.origin = text_of(L, "origin");
    webhook.host = text_of(L, "host");
    webhook.target = text_of(L, "target");
  }
  lua_pop(L, 1);
  return webhook;
}

void plan_read(lua_State *L, int index, plan *out) {
  lua_pushvalue(L, index);
  out->listen = address_of(L, "listen");
  out->admin = address_of(L, "admin");
  out->token_file = text_of(L, "token_file");
  out->state_dir = text_of(L, "state_dir");
  out->webhook = webhook_of(L);
  out->drain_ms = (uint64_t)number_of(L, "drain_ms");
  out->record = text_of(L, "record");
  out->record_bytes = (uint64_t)number_of(L, "record_bytes");
  out->record_files = (uint32_t)number_of(L, "record_files");
  out->max_breakers = (uint32_t)number_of(L, "max_breakers");

  out->policies = texts_of(L, "policies", &out->policy_count);
  out->params = texts_of(L, "params", &out->param_count);

  lua_getfield(L, -1, "routes");
  out->route_count = lua_rawlen(L, -1);
  out->routes = allocate(out->route_count, sizeof *out->routes);
  for (size_t i = 0; i < out->route_count; i++) {
    lua_rawgeti(L, -1, (lua_Integer)i + 1);
    out->routes[i] = route_of(L);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);

  lua_getfield(L, -1, "log");
  out->log = luaL_ref(L, LUA_REGISTRYINDEX);
  luaL_ref(L,
           LUA_REGISTRYINDEX); /* the plan itself: its texts are used as long as the program runs */
}

void plan_free(plan *p) {
  free(p->policies);
  free(p->params);
  free(p->routes);
}

size_t plan_routes_of(const plan *p, const char *policy) {
  size_t count = 0;
  for (size_t i = 0; i < p->route_count; i++) count += strcmp(p->routes[i].policy, policy) == 0;
  return count;
}
