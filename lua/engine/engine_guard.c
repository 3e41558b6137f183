/* engine_guard.c: calls through a guard.
 *
 *   guard -> lines by key: each a breaker of the panel, and the Lua guard's object for that key
 *
 *   acquire   the core's, on the line's breaker and the newest rules: Lua is told of transitions
 *   report    Lua's: the policy that admitted the call classifies it.  If that has nothing to say,
 *             what the shipped classifier takes for a success is known beforehand
 *   ticket    | permit, as the binding has it in a plain number | line | slot | - |
 *   retry     Lua's: neap/retry.lua has the budget, and the policy's retry.on
 *
 * Lua and C use the same breakers, the same rules, the same slots of a bulkhead and permits of the
 * same form; there is no state here.  Keys that share the guard's overflow breaker have no line of their own here, as there may
 * be any number of them. */
#include "engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "line.h"

#define DEFAULT_KEY "default"

/* ---- Lines by key ---------------------------------------------------------------------------- */

static uint32_t hash_of(const char *key, size_t length) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)key[i]) * 16777619u;
  return h;
}

static engine_line **bucket_of(neap_guard *g, const char *key, size_t length) {
  return &g->lines[hash_of(key, length) % ENGINE_BUCKETS];
}

static engine_line *known_line(neap_guard *g, const char *key, size_t length) {
  engine_line *l = *bucket_of(g, key, length);
  while (l && (l->length != length || memcmp(l->key, key, length) != 0)) l = l->next;
  return l;
}

typedef struct finding {
  neap_guard *guard;
  const char *key;
  size_t length;
  bool may_make;
  engine_line *line;
} finding;

/* Keeps the line at `at`; the prefix of its identities is behind it. */
static engine_line *keep_line(lua_State *L, neap_guard *g, int at) {
  size_t length, prefix_length;
  const char *prefix = lua_tolstring(L, at + 1, &prefix_length);
  lua_getfield(L, at, "key");
  const char *key = lua_tolstring(L, -1, &length);
  engine_line *l = known_line(g, key, length);
  if (l) return l;
  lua_getfield(L, at, "breaker");
  neap_breaker *breaker = neap__to_breaker(L, -1);
  if (!breaker) luaL_error(L, "the line of %s has no breaker", key);
  lua_getfield(L, at, "native");
  struct line *native = (struct line *)luaL_checkudata(L, -1, NEAP__LINE);
  lua_pushvalue(L, at);
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  l = (engine_line *)calloc(1, sizeof *l + length + 1 + prefix_length);
  if (!l) luaL_error(L, "no memory for key %s", key);
  l->breaker = breaker;
  l->native = native;
  l->ref = ref;
  l->length = length;
  memcpy(l->key, key, length + 1);
  l->prefix = (char *)memcpy(l->key + length + 1, prefix, prefix_length);
  l->prefix_length = prefix_length;
  engine_line **bucket = bucket_of(g, key, length);
  l->next = *bucket;
  return *bucket = l;
}

/* engine.line(guard, key, may_make, is_nested) -> line, prefix | nil.  Nested in another call into
 * Lua no line goes for a new one: somebody further down may have it. */
static int find_line(lua_State *L) {
  finding *f = (finding *)lua_touserdata(L, 1);
  engine_push_function(L, "line");
  lua_rawgeti(L, LUA_REGISTRYINDEX, f->guard->ref);
  lua_pushlstring(L, f->key, f->length);
  lua_pushboolean(L, f->may_make);
  lua_pushboolean(L, f->guard->engine->depth > 1);
  lua_call(L, 4, 2);
  if (!lua_isnil(L, -2)) f->line = keep_line(L, f->guard, lua_gettop(L) - 1);
  return 0;
}

engine_line *engine_line_of(neap_guard *g, const char *key, size_t length, bool may_make) {
  if (!key) key = DEFAULT_KEY, length = sizeof DEFAULT_KEY - 1;
  engine_line *l = known_line(g, key, length);
  if (l || g->engine->is_closing) return l;
  finding f = {.guard = g, .key = key, .length = length, .may_make = may_make};
  engine_run(g->engine, find_line, &f, g->name);
  return f.line;
}

int engine_l_forget(lua_State *L) {
  neap_guard *g = (neap_guard *)lua_touserdata(L, 1);
  size_t length;
  const char *key = luaL_checklstring(L, 2, &length);
  engine_line **at = bucket_of(g, key, length), *l = known_line(g, key, length);
  if (!l) return 0;
  while (*at != l) at = &(*at)->next;
  *at = l->next;
  luaL_unref(L, LUA_REGISTRYINDEX, l->ref);
  free(l);
  return 0;
}

void engine_guard_free(neap_guard *g) {
  for (size_t i = 0; i < ENGINE_BUCKETS; i++)
    for (engine_line *l = g->lines[i], *next; l; l = next) {
      next = l->next;
      free(l);
    }
  free(g);
}

/* ---- Whose breaker ------------------------------------------------------------------------- */

typedef struct mapping {
  neap_guard *guard;
  const char *within;
  char *key;
  size_t length;
} mapping;

/* engine.key(guard, call, within) -> key | nil */
static int map_call(lua_State *L) {
  mapping *m = (mapping *)lua_touserdata(L, 1);
  size_t length;
  engine_push_function(L, "key");
  lua_rawgeti(L, LUA_REGISTRYINDEX, m->guard->ref);
  engine_push_call(L);
  lua_pushstring(L, m->within); /* nil, if it is NULL */
  lua_call(L, 3, 1);
  const char *key = lua_tolstring(L, -1, &length);
  if (!key || length >= NEAP_KEY_SIZE) return 0;
  memcpy(m->key, key, length + 1);
  m->length = length;
  return 0;
}

size_t neap_guard_key(neap_guard *g, const neap_request *request, const char *within, char *key) {
  neap_engine *e = g->engine;
  engine_assert_owner(e);
  if (!g->maps || e->is_closing) return 0;
  mapping m = {.guard = g, .within = within, .key = key};
  engine_scope outer = engine_enter(e, request, NULL, false);
  engine_run(e, map_call, &m, g->name);
  engine_leave(e, outer);
  return m.length;
}

/* ---- Acquire --------------------------------------------------------------------------------- */

enum { TICKET_PERMIT, TICKET_LINE, TICKET_SLOT };

static engine_line *line_in(const neap_ticket *t) {
  return (engine_line *)(uintptr_t)t->opaque[TICKET_LINE];
}

typedef struct moving {
  const engine_line *line;
  const neap_transition *moved;
} moving;

/* engine.moved(line, moved) */
static int tell_moved(lua_State *L) {
  const moving *m = (const moving *)lua_touserdata(L, 1);
  engine_push_function(L, "moved");
  lua_rawgeti(L, LUA_REGISTRYINDEX, m->line->ref);
  neap__push_moved(L, m->moved);
  lua_call(L, 2, 0);
  return 0;
}

static void tell(neap_guard *g, const engine_line *l, const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING || g->engine->is_closing) return;
  moving m = {l, moved};
  engine_run(g->engine, tell_moved, &m, g->name);
}

typedef struct refusing {
  const engine_line *line;
  const char *reason;
} refusing;

/* engine.refused(line, reason) */
static int tell_refused(lua_State *L) {
  const refusing *r = (const refusing *)lua_touserdata(L, 1);
  engine_push_function(L, "refused");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->line->ref);
  lua_pushstring(L, r->reason);
  lua_call(L, 2, 0);
  return 0;
}

static void record_refused(neap_guard *g, const engine_line *l, uint64_t now_ms,
                           neap_verdict verdict) {
  const engine_called called = {.guard = g,
                                .key = l->key,
                                .key_length = l->length,
                                .now_ms = now_ms,
                                .began_ms = now_ms,
                                .refused = verdict,
                                .outcome = NEAP_NEUTRAL};
  g->engine->on_call(g->engine->on_call_data, &called);
}

/* Something is wrong with the engine itself: that must not stop the caller's calls. */
static neap_verdict let_through(neap_ticket *ticket) {
  *ticket = (neap_ticket){{0}};
  return NEAP_ALLOW;
}

static void say_why(neap_refusal *refusal, const neap_guard *g, const engine_line *l,
                    uint64_t now_ms, neap_verdict verdict) {
  *refusal = (neap_refusal){
      .reason = line_refusal(verdict),
      .state = neap_state_name(neap_breaker_state(l->breaker, g->rules, now_ms)),
      .retry_after_ms = neap__retry_after(l->breaker, g->rules, now_ms, verdict),
  };
}

neap_verdict neap_guard_acquire(neap_guard *g, const char *key, size_t key_length,
                                neap_ticket *ticket, neap_refusal *refusal) {
  neap_engine *e = g->engine;
  engine_assert_owner(e);
  if (e->is_closing) {
    if (refusal) *refusal = (neap_refusal){.reason = "closed"};
    return NEAP_REFUSE_CLOSED;
  }
  engine_line *l = engine_line_of(g, key, key_length, true);
  if (!l) return let_through(ticket);
  uint64_t now_ms = engine_now_ms(e);
  neap_permit permit;
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = line_acquire(l->native, now_ms, &permit, &moved);
  if (l->native->is_layered) l->native->begun++;
  if (verdict <= NEAP_ALLOW_BYPASS) {
    l->native->held++; /* until it is reported, the line stays */
    bool has_slot = l->native->concurrent != 0;
    *ticket = (neap_ticket){{neap__wide(permit, now_ms, g->number), (uintptr_t)l, has_slot}};
  } else if (refusal) {
    say_why(refusal, g, l, now_ms, verdict);
  }
  tell(g, l, &moved);
  if (verdict > NEAP_ALLOW_BYPASS && e->on_call) record_refused(g, l, now_ms, verdict);
  if (verdict > NEAP_ALLOW_BYPASS && g->shadows) {
    refusing r = {l, line_refusal(verdict)};
    engine_run(e, tell_refused, &r, g->name);
  }
  return verdict;
}

bool neap_guard_has_slot(neap_guard *g, const char *key, size_t key_length) {
  const engine_line *l = engine_line_of(g, key, key_length, false);
  return !l || !l->native->concurrent || l->native->in_flight < l->native->concurrent;
}

static void give_slot_back(const neap_ticket *t) {
  const engine_line *l = line_in(t);
  if (t->opaque[TICKET_SLOT] && l->native->in_flight) l->native->in_flight--;
}

/* ---- Report ---------------------------------------------------------------------------------- */

typedef struct reporting {
  neap_guard *guard;
  const engine_line *line;
  uint64_t permit;
  uint64_t duration_ms;
  int64_t retry_after_ms;
  neap_outcome outcome;
  neap_reported reported;
  uint64_t now_ms; /* when the core was told */
  char *reason;    /* as in neap_guard; a handler of an event may report, too, meanwhile */
} reporting;

static neap_outcome read_outcome(const char *name) {
  switch (name ? name[0] : 0) {
    case 's': return NEAP_SUCCESS;
    case 'f': return NEAP_FAILURE;
    case 't': return NEAP_TIMEOUT;
    default: return NEAP_NEUTRAL;
  }
}

static neap_reported read_reported(const char *name) {
  switch (name ? name[0] : 0) {
    case 'c': return NEAP_COUNTED;
    case 's': return NEAP_STALE;
    default: return NEAP_USED;
  }
}

static void keep_reason(lua_State *L, int index, reporting *r) {
  if (lua_type(L, index) == LUA_TSTRING)
    snprintf(r->reason, sizeof r->guard->reason, "%s", lua_tostring(L, index));
}

/* engine.classify(line, number, call) -> outcome, reason, retry_after_ms */
static int classify(lua_State *L) {
  reporting *r = (reporting *)lua_touserdata(L, 1);
  engine_push_function(L, "classify");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->line->ref);
  lua_pushinteger(L, (lua_Integer)neap__wide_number(r->permit));
  engine_push_call(L);
  lua_call(L, 3, 3);
  r->outcome = read_outcome(lua_tostring(L, -3));
  keep_reason(L, -2, r);
  r->retry_after_ms = (int64_t)lua_tointeger(L, -1);
  return 0;
}

/* engine.report(line, permit, call) -> outcome, reported, reason */
static int report(lua_State *L) {
  reporting *r = (reporting *)lua_touserdata(L, 1);
  engine_push_function(L, "report");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->line->ref);
  lua_pushinteger(L, (lua_Integer)r->permit);
  engine_push_call(L);
  lua_call(L, 3, 3);
  r->outcome = read_outcome(lua_tostring(L, -3));
  r->reported = read_reported(lua_tostring(L, -2));
  keep_reason(L, -1, r);
  return 0;
}

/* When Lua cannot say, for want of memory: what any HTTP client would say. */
static neap_outcome plain_outcome(const neap_result *result) {
  switch (result->ended_by) {
    case NEAP_ENDED_TIMEOUT: return NEAP_TIMEOUT;
    case NEAP_ENDED_TRANSPORT: return NEAP_FAILURE;
    case NEAP_ENDED_ANSWER:
      if (result->status >= 500) return NEAP_FAILURE;
      return result->status >= 400 ? NEAP_NEUTRAL : NEAP_SUCCESS;
    default: return NEAP_NEUTRAL;
  }
}

/* Records the outcome in the core. */
static void give(reporting *r) {
  neap_permit permit = neap__narrow(r->permit);
  neap_call call = {r->outcome, r->duration_ms, r->retry_after_ms};
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint64_t now_ms = r->now_ms = engine_now_ms(r->guard->engine);
  uint64_t began_ms = neap__wide_began_ms(r->permit, now_ms);
  r->reported = line_report(r->line->native, now_ms, began_ms, &permit, &call, &moved);
  tell(r->guard, r->line, &moved);
}

/* A success to whoever is asked: nobody needs to be. */
static bool is_plain_success(const neap_guard *g, uint64_t permit, const neap_result *r) {
  bool is_plain = !g->classifies && !g->asks && neap__wide_number(permit) == g->number &&
                  r->ended_by == NEAP_ENDED_ANSWER && !r->is_grpc && !r->code && !r->error;
  return is_plain && r->status >= 200 && r->status < 400 && g->engine->is_success[r->status - 200];
}

/* The policy's functions that look at the breaker want to be asked after a report: then all of it is
 * Lua's. */
static void report_by_lua(reporting *r, const neap_result *result) {
  neap_engine *e = r->guard->engine;
  neap_result measured = *result;
  measured.duration_ms = r->duration_ms;
  r->now_ms = engine_now_ms(e); /* Lua reads it a little later */
  engine_scope outer = engine_enter(e, result->request, &measured, false);
  bool done = engine_run(e, r->guard->asks ? report : classify, r, r->guard->name);
  engine_leave(e, outer);
  if (!done) r->outcome = plain_outcome(result);
  if (!done || !r->guard->asks) give(r);
}

/* Takes the ticket: what it holds is the report's. */
static reporting take(neap_guard *g, neap_ticket *ticket, uint64_t duration_ms) {
  reporting r = {.guard = g,
                 .line = line_in(ticket),
                 .permit = ticket->opaque[TICKET_PERMIT],
                 .duration_ms = duration_ms,
                 .outcome = NEAP_NEUTRAL,
                 .reported = NEAP_USED};
  if (g->engine->is_closing)
    r.line = NULL;
  else
    give_slot_back(ticket);
  *ticket = (neap_ticket){{0}};
  if (r.line && duration_ms == 0)
    r.duration_ms = neap__wide_age_ms(r.permit, engine_now_ms(g->engine));
  return r;
}

/* What the dependency asked for, if the policy was not asked what it makes of that. */
static int64_t asked_for(const neap_result *result) {
  for (size_t i = 0; i < result->header_count; i++) {
    const neap_header *h = &result->headers[i];
    char *end;
    if (h->name_length != 11 || strncasecmp(h->name, "retry-after", 11) != 0) continue;
    long seconds = strtol(h->value, &end, 10);
    return end > h->value && seconds > 0 && seconds < 366 * 86400 ? seconds * 1000 : 0;
  }
  return 0;
}

/* `result` is NULL if it was given back. */
static void record(const reporting *r, const neap_result *result) {
  neap_engine *e = r->guard->engine;
  if (!e->on_call || !r->line) return;
  uint64_t now_ms = r->now_ms;
  int64_t retry_ms = r->retry_after_ms;
  if (result && !retry_ms && r->outcome != NEAP_SUCCESS) retry_ms = asked_for(result);
  const engine_called called = {.guard = r->guard,
                                .key = r->line->key,
                                .key_length = r->line->length,
                                .now_ms = now_ms,
                                .began_ms = neap__wide_began_ms(r->permit, now_ms),
                                .duration_ms = r->duration_ms,
                                .result = result,
                                .outcome = r->outcome,
                                .retry_after_ms = retry_ms};
  e->on_call(e->on_call_data, &called);
}

/* After that the line may go. */
static void let_go(const reporting *r) {
  if (r->line && !r->guard->engine->is_closing) r->line->native->held--;
}

/* ---- Retry ----------------------------------------------------------------------------------- */

typedef struct retrying {
  neap_guard *guard;
  const engine_line *line;
  uint32_t made;
  uint64_t left_ms, wait_ms;
  neap_outcome outcome;
  bool may;
} retrying;

/* engine.retry(line, call, made, left_ms) -> wait_ms | nil */
static int retry(lua_State *L) {
  retrying *r = (retrying *)lua_touserdata(L, 1);
  engine_push_function(L, "retry");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->line->ref);
  engine_push_call(L);
  lua_pushinteger(L, (lua_Integer)r->made);
  if (r->left_ms)
    lua_pushinteger(L, (lua_Integer)r->left_ms);
  else
    lua_pushnil(L);
  lua_call(L, 4, 1);
  r->may = !lua_isnil(L, -1);
  if (r->may) r->wait_ms = (uint64_t)lua_tonumber(L, -1);
  return 0;
}

/* engine.retried(guard, outcome) */
static int retried(lua_State *L) {
  const retrying *r = (const retrying *)lua_touserdata(L, 1);
  engine_push_function(L, "retried");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->guard->ref);
  lua_pushstring(L, r->outcome == NEAP_SUCCESS   ? "success"
                    : r->outcome == NEAP_NEUTRAL ? "neutral"
                                                 : "failure");
  lua_call(L, 2, 0);
  return 0;
}

static void count_retry(neap_guard *g, neap_outcome outcome) {
  retrying r = {.guard = g, .outcome = outcome};
  engine_run(g->engine, retried, &r, g->name);
}

bool neap_guard_retry(neap_guard *g, const char *key, size_t key_length, uint32_t made,
                      uint64_t left_ms, const neap_result *result, uint64_t *wait_ms) {
  neap_engine *e = g->engine;
  engine_assert_owner(e);
  if (!g->retries || e->is_closing) return false;
  retrying r = {.guard = g, .made = made, .left_ms = left_ms};
  r.line = engine_line_of(g, key, key_length, true);
  if (!r.line) return false;
  engine_scope outer = engine_enter(e, result->request, result, false);
  engine_run(e, retry, &r, g->name);
  engine_leave(e, outer);
  if (r.may) *wait_ms = r.wait_ms;
  return r.may;
}

/* ---- Reporting ------------------------------------------------------------------------------- */

neap_outcome neap_guard_report(neap_guard *g, neap_ticket *ticket, const neap_result *result,
                               neap_report *out) {
  reporting r = take(g, ticket, result->duration_ms);
  char reason[sizeof g->reason];
  r.reason = reason;
  reason[0] = '\0';
  if (r.line && is_plain_success(g, r.permit, result)) {
    r.outcome = NEAP_SUCCESS;
    give(&r);
  } else if (r.line) {
    report_by_lua(&r, result);
  }
  record(&r, result);
  if (r.line && result->attempt > 1) count_retry(g, r.outcome);
  let_go(&r);
  if (!out) return r.outcome;
  if (reason[0]) memcpy(g->reason, reason, sizeof reason);
  *out = (neap_report){r.reported, reason[0] ? g->reason : NULL};
  return r.outcome;
}

void neap_guard_abandon(neap_guard *g, neap_ticket *ticket) {
  reporting r = take(g, ticket, 0);
  r.outcome = NEAP_ABANDONED;
  if (r.line) give(&r);
  record(&r, NULL);
  let_go(&r);
}
