#include "numbers.h"

#include <sys/resource.h>

#include "admin.h"

static void set_number(lua_State *L, const char *name, double number) {
  lua_pushnumber(L, number);
  lua_setfield(L, -2, name);
}

static void set_server(lua_State *L, const char *name, const http_server *server) {
  if (!server) return;
  const http_server_stats *stats = http_server_stats_of(server);
  lua_newtable(L);
#define X(field) set_number(L, #field, (double)stats->field);
  HTTP_SERVER_STATS(X)
#undef X
  lua_setfield(L, -2, name);
}

static void push_route(lua_State *L, const char *name, const proxy_route *route) {
  const proxy_stats *stats = proxy_stats_of(route);
  lua_newtable(L);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "name");
#define X(field) set_number(L, #field, (double)stats->field);
  PROXY_STATS(X)
#undef X
}

static void set_process(lua_State *L) {
  struct rusage usage;
  size_t rss = 0;
  uv_resident_set_memory(&rss);
  getrusage(RUSAGE_SELF, &usage);
  lua_newtable(L);
  set_number(L, "resident_bytes", (double)rss);
  set_number(L, "cpu_seconds",
             (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
  lua_setfield(L, -2, "process");
}

void numbers_push(lua_State *L, serve *s) {
  lua_newtable(L);
  set_server(L, "server", s->server);
  set_server(L, "admin", s->admin_server);
  lua_newtable(L);
  for (size_t i = 0; i < s->routes_open; i++) {
    push_route(L, s->plan.routes[i].name, s->routes[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "routes");
  set_process(L);
  set_number(L, "followers_cut", s->admin ? (double)s->admin->cut : 0);
}
