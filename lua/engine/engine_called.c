#include "engine_called.h"

#include <stdio.h>

#include "engine_internal.h"

void engine_on_call(neap_engine *e, void (*on_call)(void *data, const engine_called *called),
                    void *data) {
  e->on_call = on_call;
  e->on_call_data = data;
}

uint64_t engine_clock_ms(const neap_engine *e) { return engine_now_ms(e); }

uint32_t engine_policy_number(const neap_guard *g) { return g->number; }

typedef struct hashing {
  const neap_guard *guard;
  engine_policy *policy;
} hashing;

static int read_hash(lua_State *L) {
  const hashing *h = (const hashing *)lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, h->guard->ref);
  lua_getfield(L, -1, "policy");
  lua_getfield(L, -1, "hash");
  snprintf(h->policy->hash, sizeof h->policy->hash, "%s", lua_tostring(L, -1));
  return 0;
}

engine_policy engine_policy_of(neap_guard *g) {
  engine_policy policy = {.number = g->number, .seed = g->rules->seed, .hash = "?"};
  hashing h = {g, &policy};
  engine_run(g->engine, read_hash, &h, g->name);
  return policy;
}
