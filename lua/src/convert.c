/* convert.c: answers of the core as Lua tables.  Enumerations are their names, shares plain
 * numbers. */
#include "binding.h"

static void set_text(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

static void set_number(lua_State *L, const char *key, uint64_t value) {
  compat_pushwide(L, value);
  lua_setfield(L, -2, key);
}

static void set_share(lua_State *L, const char *key, lua_Number value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, key);
}

static void set_switch(lua_State *L, const char *key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

/* Of a rate, measured and limit are shares of `calls`. */
void neap__push_moved(lua_State *L, const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING) {
    lua_pushnil(L);
    return;
  }
  lua_createtable(L, 0, 10);
  set_text(L, "from", neap_state_name(moved->from));
  set_text(L, "to", neap_state_name(moved->to));
  set_text(L, "cause", neap_cause_name(moved->cause));
  set_number(L, "epoch", moved->epoch);
  set_number(L, "level", moved->level);
  set_number(L, "calls", moved->calls);
  set_number(L, "open_ms", moved->open_ms);
  set_switch(L, "flapping", moved->flapping);
  if (moved->cause == NEAP_BY_FAILURE_RATE || moved->cause == NEAP_BY_SLOW_RATE) {
    lua_Number calls = moved->calls ? (lua_Number)moved->calls : 1;
    set_share(L, "measured", (lua_Number)moved->measured / calls);
    set_share(L, "limit", (lua_Number)moved->limit / NEAP_ONE);
  } else {
    set_number(L, "measured", moved->measured);
    set_number(L, "limit", moved->limit);
  }
}

static void set_totals(lua_State *L, const neap_totals *totals) {
  lua_createtable(L, 0, 18);
#define X(name) set_number(L, #name, totals->name);
  NEAP_TOTALS(X)
#undef X
  lua_setfield(L, -2, "totals");
}

/* Every transition there is: { { from =, to =, cause =, count = }, ... } */
static void set_transitions(lua_State *L, const uint64_t *counts) {
  static const struct {
    neap_state from, to;
    neap_cause cause;
  } kinds[] = {
#define X(f, t, c) {NEAP_##f, NEAP_##t, NEAP_BY_##c},
      NEAP_TRANSITIONS(X)
#undef X
  };
  lua_createtable(L, NEAP_TRANSITION_KINDS, 0);
  for (int i = 0; i < NEAP_TRANSITION_KINDS; i++) {
    lua_createtable(L, 0, 4);
    set_text(L, "from", neap_state_name(kinds[i].from));
    set_text(L, "to", neap_state_name(kinds[i].to));
    set_text(L, "cause", neap_cause_name(kinds[i].cause));
    set_number(L, "count", counts[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "transitions");
}

static void set_durations(lua_State *L, const neap_snapshot *s) {
  lua_createtable(L, NEAP_DURATION_BUCKETS, 0);
  for (int i = 0; i < NEAP_DURATION_BUCKETS; i++) {
    compat_pushwide(L, s->duration_counts[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "duration_counts");
  lua_createtable(L, NEAP_DURATION_BUCKETS - 1, 0);
  for (int i = 0; i < NEAP_DURATION_BUCKETS - 1; i++) {
    compat_pushwide(L, neap_duration_bounds_ms[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "duration_bounds_ms");
  set_number(L, "duration_sum_ms", s->duration_sum_ms);
}

void neap__push_snapshot(lua_State *L, const neap_snapshot *s) {
  lua_createtable(L, 0, 30);
  set_text(L, "state", neap_state_name(s->state));
  set_text(L, "mode", neap_mode_name(s->mode));
  set_switch(L, "mode_is_operators", s->mode_is_operators);
  set_number(L, "mode_left_ms", s->mode_left_ms);
  set_number(L, "level", s->level);
  set_number(L, "epoch", s->epoch);
  set_number(L, "state_age_ms", s->state_age_ms);
  set_number(L, "retry_after_ms", s->retry_after_ms);
  set_share(L, "admitted", (lua_Number)s->admitted / NEAP_ONE);
  set_text(L, "window", s->window == NEAP_WINDOW_COUNT ? "count" : "time");
  set_number(L, "window_length", s->window_length);
  set_number(L, "calls", s->calls);
  set_number(L, "success", s->success);
  set_number(L, "slow_success", s->slow_success);
  set_number(L, "failure", s->failure);
  set_number(L, "slow_failure", s->slow_failure);
  set_share(L, "failure_rate", (lua_Number)s->failure_rate / NEAP_ONE);
  set_share(L, "slow_rate", (lua_Number)s->slow_rate / NEAP_ONE);
  set_number(L, "consecutive_failures", s->consecutive_failures);
  set_number(L, "probes_in_flight", s->probes_in_flight);
  set_number(L, "probes_succeeded", s->probes_succeeded);
  set_number(L, "probes_failed", s->probes_failed);
  set_totals(L, &s->totals);
  set_transitions(L, s->transitions);
  set_durations(L, s);
}

const char *neap__reported_name(neap_reported reported) {
  static const char *const names[] = {"counted", "stale", "used"};
  return names[reported];
}

uint64_t neap__retry_after(const neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                           neap_verdict verdict) {
  return neap_breaker_retry_after_ms(b, rules, now_ms, verdict);
}
