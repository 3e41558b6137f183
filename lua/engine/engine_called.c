#include "engine_called.h"

#include <stdio.h>

#include "engine_internal.h"

void engine_on_call(neap_engine *e, void (*on_call)(void *data, const engine_called *called),
                    void *data) {
  e->on_call = on_call;
  e->on_call_data = data;
}

void engine_record_answer(neap_guard *g, const engine_line *l, const neap_answer *answer) {
  neap_engine *e = g->engine;
  if (!e->on_call || !answer->owner) return;
  uint64_t now_ms = engine_now_ms(e);
  const engine_called called = {.guard = g,
                                .key = l->key,
                                .key_length = l->length,
                                .now_ms = now_ms,
                                .began_ms = now_ms,
                                .answer = answer};
  e->on_call(e->on_call_data, &called);
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
