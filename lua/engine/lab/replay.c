/* replay.c: neap.lab.native: logs on one side, lanes on the other; see replay.h. */
#include "replay.h"

#include <stdlib.h>

#include "binding.h"
#include "replay_internal.h"

/* ---- What lanes tell and ask ----------------------------------------------------------------- */

/* moved(key, its name, at_ms, moved) */
static void on_moved(void *data, uint32_t key, uint64_t at_ms, const neap_transition *moved) {
  const track *t = data;
  lua_State *L = t->of->L;
  if (t->moved == LUA_NOREF) return;
  lua_rawgeti(L, LUA_REGISTRYINDEX, t->moved);
  lua_pushinteger(L, (lua_Integer)key + 1);
  lua_pushstring(L, lane_key_at(t->lane, key)->name);
  lua_pushinteger(L, (lua_Integer)at_ms);
  neap__push_moved(L, moved);
  lua_call(L, 4, 0);
}

/* function(snapshot) -> "open" | "closed" | nil */
static int ask(const track *t, int function, const neap_snapshot *snapshot) {
  lua_State *L = t->of->L;
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  neap__push_snapshot(L, snapshot);
  lua_call(L, 1, 1);
  const char *to = lua_tostring(L, -1);
  int state = !to ? -1 : to[0] == 'o' ? NEAP_OPEN : NEAP_CLOSED;
  lua_pop(L, 1);
  return state;
}

static int on_trip(void *data, const neap_snapshot *snapshot) {
  const track *t = data;
  return ask(t, t->trip, snapshot);
}

static int on_decide(void *data, const neap_snapshot *snapshot) {
  const track *t = data;
  return ask(t, t->decide, snapshot);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static lab_text text_at(lua_State *L, int index, const char *field) {
  lab_text t = {NULL, 0};
  lua_getfield(L, index, field);
  if (lua_type(L, -1) == LUA_TSTRING) t.data = lua_tolstring(L, -1, &t.length);
  lua_pop(L, 1); /* the table keeps it */
  return t;
}

/* What the user says of names: { { role =, name =, unit = or nil } ... }, which was checked. */
static void read_maps(lua_State *L, lab_names *names) {
  lua_getfield(L, 1, "maps");
  lua_Integer count = lua_istable(L, -1) ? (lua_Integer)lua_rawlen(L, -1) : 0;
  for (lua_Integer i = 1; i <= count; i++) {
    lua_rawgeti(L, -1, i);
    int map = lua_gettop(L);
    lab_unit unit = UNIT_GUESS;
    lab_text of = text_at(L, map, "unit"), name = text_at(L, map, "name");
    lab_role role = lab_role_of(text_at(L, map, "role"));
    if (of.data) text_unit(of, &unit);
    if (role == LAB_NO_ROLE || !names_map(names, name, role, unit))
      luaL_error(L, "--map %s: no such role, or the name is too long", name.data);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

static int source_gc(lua_State *L) {
  source *s = check_source(L);
  for (size_t i = 0; i < s->count; i++) reader_close(s->readers[i]);
  for (size_t i = 0; i < s->track_count; i++) {
    lane_free(s->tracks[i]->lane);
    free(s->tracks[i]);
  }
  free(s->readers);
  free(s->tracks);
  *s = (source){.is_over = true};
  return 0;
}

/* open(options) -> source | nil, message */
static int l_open(lua_State *L) {
  char error[512];
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  source *s = lua_newuserdatauv(L, sizeof *s, 1);
  memset(s, 0, sizeof *s);
  luaL_setmetatable(L, SOURCE);
  lab_names *names = lua_newuserdatauv(L, sizeof *names, 0);
  names_open(names);
  read_maps(L, names);
  lab_options options = {.log_format = text_at(L, 1, "log_format"), .names = names};
  lab_text key = text_at(L, 1, "key"), format = text_at(L, 1, "format");
  if (key.data && !names_key(names, key)) luaL_error(L, "--key: the name is too long");
  if (format.data) lab_format_of(format, &options.format);
  lua_getfield(L, 1, "paths");
  size_t count = lua_rawlen(L, -1);
  s->readers = calloc(count ? count : 1, sizeof *s->readers);
  if (!s->readers) abort();
  for (; s->count < count; s->count++) {
    lua_rawgeti(L, -1, (lua_Integer)s->count + 1);
    lab_reader *r = reader_open(lua_tostring(L, -1), &options, error, sizeof error);
    lua_pop(L, 1);
    if (!r) {
      lua_pushnil(L);
      lua_pushstring(L, error);
      return 2;
    }
    reader_set_log(r, (int)s->count);
    s->readers[s->count] = r;
  }
  lua_settop(L, 2);
  return 1;
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

static int function_at(lua_State *L, const char *field) {
  lua_getfield(L, 2, field);
  if (lua_isfunction(L, -1)) return luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pop(L, 1);
  return LUA_NOREF;
}

static uint32_t number_at(lua_State *L, const char *field) {
  lua_getfield(L, 2, field);
  lua_Number n = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return n > 0 && n < UINT32_MAX ? (uint32_t)n : 0;
}

static bool switch_at(lua_State *L, const char *field) {
  lua_getfield(L, 2, field);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

static void copy_text(lua_State *L, const char *field, char *to, size_t size) {
  lab_text t = text_at(L, 2, field);
  size_t length = !t.data ? 0 : t.length < size ? t.length : size - 1;
  if (length) memcpy(to, t.data, length);
  to[length] = '\0';
}

/* source:add(lane) -> its number */
static int l_add(lua_State *L) {
  source *s = check_source(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  lua_getfield(L, 2, "rules");
  const neap_rules *rules = neap__to_rules(L, -1);
  if (!rules) return luaL_error(L, "add: a lane has rules");
  luaL_ref(L, LUA_REGISTRYINDEX); /* they stay */
  track **tracks = realloc(s->tracks, (s->track_count + 1) * sizeof *tracks);
  track *t = calloc(1, sizeof *t);
  if (!tracks || !t) abort();
  s->tracks = tracks;
  s->tracks[s->track_count++] = t;
  t->of = s;
  t->moved = function_at(L, "moved");
  t->trip = function_at(L, "trip");
  t->decide = function_at(L, "decide");
  t->judge.classify = function_at(L, "classify");
  t->judge.key = function_at(L, "key");
  t->judge.is_pure = switch_at(L, "is_pure");
  t->judge.takes_keys = switch_at(L, "takes_keys");
  t->judge.timeout_ms = number_at(L, "timeout_ms");
  copy_text(L, "of", t->judge.name, sizeof t->judge.name);
  copy_text(L, "hash", t->judge.hash, sizeof t->judge.hash);
  const lane_host host = {.data = t,
                          .moved = on_moved,
                          .trip = t->trip != LUA_NOREF ? on_trip : NULL,
                          .decide = t->decide != LUA_NOREF ? on_decide : NULL};
  t->lane = lane_new(rules, number_at(L, "max_keys"), &host);
  lua_pushinteger(L, (lua_Integer)s->track_count);
  return 1;
}

/* source:seed(policy) -> the seed's higher and lower 32 bits | nil */
static int l_seed(lua_State *L) {
  source *s = check_source(L);
  lab_text policy;
  policy.data = luaL_checklstring(L, 2, &policy.length);
  uint64_t seed;
  for (size_t i = 0; i < s->count; i++) {
    if (!reader_seed(s->readers[i], policy, &seed)) continue;
    lua_pushinteger(L, (lua_Integer)(seed >> 32));
    lua_pushinteger(L, (lua_Integer)(seed & UINT32_MAX));
    return 2;
  }
  return 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void take(source *s, const lab_call *call) {
  judge_scope *scope = &s->scope;
  judge_enter(scope, call);
  for (size_t i = 0; i < s->track_count; i++) {
    track *t = s->tracks[i];
    if (!judge_takes(&t->judge, call)) continue;
    lane_call judged = judge_call(&t->judge, scope);
    lane_take(t->lane, judge_key(&t->judge, scope, t->lane), &judged);
  }
}

/* source:begin(): then a recording's seed is known */
static int l_begin(lua_State *L) {
  source *s = check_source(L);
  for (size_t i = 0; i < s->count; i++) reader_begin(s->readers[i], &s->stats);
  return 0;
}

/* source:step(calls) -> whether there are no more */
static int l_step(lua_State *L) {
  source *s = check_source(L);
  lua_Integer left = luaL_checkinteger(L, 2);
  judge_open(&s->scope, L);
  s->L = L;
  const lab_call *call = NULL;
  while (!s->is_over && left-- > 0) {
    call = readers_next(s->readers, s->count, &s->stats);
    if (call) {
      take(s, call);
      continue;
    }
    s->is_over = true;
    for (size_t i = 0; i < s->track_count; i++) lane_finish(s->tracks[i]->lane);
  }
  judge_close(&s->scope);
  lua_pushboolean(L, s->is_over);
  return 1;
}

/* ---- The module ------------------------------------------------------------------------------ */

static void push_roles(lua_State *L) {
  static const char *const roles[][2] = {
#define X(role, name, what) {name, what},
      LAB_ROLES(X)
#undef X
  };
  lua_newtable(L);
  for (int i = 0; i < LAB_OTHER; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, roles[i][0]);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, roles[i][1]);
    lua_setfield(L, -2, "what");
    lua_rawseti(L, -2, i + 1);
  }
}

int luaopen_neap_lab_native(lua_State *L) {
  static const luaL_Reg methods[] = {{"begin", l_begin},
                                     {"add", l_add},
                                     {"seed", l_seed},
                                     {"step", l_step},
                                     {"progress", source_l_progress},
                                     {"stats", source_l_stats},
                                     {"counts", source_l_counts},
                                     {"lane", source_l_lane},
                                     {"series", source_l_series},
                                     {"close", source_gc},
                                     {"__gc", source_gc},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_open}, {NULL, NULL}};
  luaL_newmetatable(L, SOURCE);
  luaL_setfuncs(L, methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, functions);
  push_roles(L);
  lua_setfield(L, -2, "roles");
  lua_pushinteger(L, LANE_HORIZON_MS);
  lua_setfield(L, -2, "horizon_ms");
  return 1;
}
