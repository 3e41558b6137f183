/* replay.c: neap.lab.native: logs on one side, lanes on the other; see replay.h. */
#include "replay.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "binding.h"
#include "judge.h"
#include "reader.h"

#define SOURCE    "neap.lab.source"
#define LOGS_MOST 1024

typedef struct source source;

/* A policy at work. */
typedef struct track {
  source *of;
  lane *lane;
  judge judge;
  int moved, trip, decide; /* refs, or LUA_NOREF */
} track;

struct source {
  lab_reader **readers;
  size_t count;
  lab_stats stats;
  track **tracks;
  size_t track_count;
  lua_State *L; /* during a step */
  judge_scope scope;
  bool is_over;
};

static source *check_source(lua_State *L) { return luaL_checkudata(L, 1, SOURCE); }

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

/* source:progress() -> bytes read, bytes of all | nil, calls */
static int l_progress(lua_State *L) {
  const source *s = check_source(L);
  uint64_t position = 0, size = 0;
  bool is_known = true;
  for (size_t i = 0; i < s->count; i++) {
    const lab_input *in = reader_input(s->readers[i]);
    position += input_position(in);
    size += input_size(in);
    is_known = is_known && input_size(in);
  }
  lua_pushinteger(L, (lua_Integer)position);
  if (is_known)
    lua_pushinteger(L, (lua_Integer)size);
  else
    lua_pushnil(L);
  lua_pushinteger(L, (lua_Integer)s->stats.calls);
  return 3;
}

/* ---- Results --------------------------------------------------------------------------------- */

static void set_number(lua_State *L, const char *field, uint64_t n) {
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, field);
}

static void set_text(lua_State *L, const char *field, const char *text) {
  lua_pushstring(L, text);
  lua_setfield(L, -2, field);
}

static void push_damaged(lua_State *L, const lab_stats *stats) {
  static const char *const texts[] = {[LAB_FINE] = "",
#define X(kind, text) [LAB_BAD_##kind] = text,
                                      LAB_DAMAGES(X)
#undef X
  };
  lua_Integer n = 0;
  lua_newtable(L);
  for (int i = 1; i < LAB_DAMAGE_COUNT; i++) {
    const lab_damaged *d = &stats->damaged[i];
    if (!d->count) continue;
    lua_createtable(L, 0, 5);
    set_text(L, "kind", texts[i]);
    set_number(L, "count", d->count);
    set_number(L, "line", d->first_line);
    set_number(L, "log", (uint64_t)d->first_log + 1);
    set_text(L, "text", d->excerpt);
    lua_rawseti(L, -2, ++n);
  }
}

/* { { format =, what =, is_gzip =, lines = } ... } */
static void push_logs(lua_State *L, const source *s) {
  lua_newtable(L);
  for (size_t i = 0; i < s->count; i++) {
    const lab_reader *r = s->readers[i];
    lua_createtable(L, 0, 3);
    set_text(L, "format", lab_format_name(reader_format(r)));
    set_text(L, "what", reader_what(r));
    lua_pushboolean(L, input_is_gzip(reader_input(r)));
    lua_setfield(L, -2, "is_gzip");
    if (reader_guessed(r)) set_text(L, "guessed", reader_guessed(r));
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

/* source:stats() */
static int l_stats(lua_State *L) {
  const source *s = check_source(L);
  lua_createtable(L, 0, 12);
  set_number(L, "lines", s->stats.lines);
  set_number(L, "calls", s->stats.calls);
  set_number(L, "aside", s->stats.aside);
  set_number(L, "missing", s->stats.missing);
  set_number(L, "coarse", s->stats.coarse);
  set_number(L, "without_duration", s->stats.without_duration);
  set_number(L, "refused", s->stats.refused);
  set_number(L, "begins", s->stats.begins);
  set_number(L, "from_ms", s->stats.from_us / 1000);
  set_number(L, "to_ms", s->stats.to_us / 1000);
  push_damaged(L, &s->stats);
  lua_setfield(L, -2, "damaged");
  push_logs(L, s);
  lua_setfield(L, -2, "logs");
  return 1;
}

static void push_counts(lua_State *L, const lane_counts *c) {
  lua_createtable(L, 0, 32);
#define X(name) set_number(L, #name, c->name);
  LANE_COUNTS(X)
#undef X
}

/* { from_ms =, width_ms =, calls = { ... }, failed =, slow =, refused =, took_ms = } */
static void push_series(lua_State *L, const lane_series *s) {
  lua_createtable(L, 0, 7);
  set_number(L, "from_ms", s->from_ms);
  set_number(L, "width_ms", s->width_ms);
#define COLUMN(name)                                                                               \
  lua_createtable(L, (int)s->count, 0);                                                            \
  for (size_t i = 0; i < s->count; i++) {                                                          \
    lua_pushinteger(L, (lua_Integer)s->bin[i].name);                                               \
    lua_rawseti(L, -2, (lua_Integer)i + 1);                                                        \
  }                                                                                                \
  lua_setfield(L, -2, #name);
  COLUMN(calls)
  COLUMN(failed)
  COLUMN(slow)
  COLUMN(refused)
  COLUMN(took_ms)
#undef COLUMN
}

/* source:lane(number) -> table */
static int l_lane(lua_State *L) {
  const source *s = check_source(L);
  lua_Integer number = luaL_checkinteger(L, 2);
  luaL_argcheck(L, number >= 1 && (size_t)number <= s->track_count, 2, "no such lane");
  const track *t = s->tracks[number - 1];
  lua_createtable(L, 0, 12);
  push_counts(L, lane_all(t->lane));
  lua_setfield(L, -2, "all");
  push_series(L, lane_series_of(t->lane));
  lua_setfield(L, -2, "series");
  set_number(L, "now_ms", lane_now_ms(t->lane));
  set_number(L, "late", lane_late(t->lane));
  set_number(L, "crowded", lane_crowded(t->lane));
  set_number(L, "overflow", lane_overflow(t->lane));
  set_number(L, "others", t->judge.others);
  set_number(L, "by_record", t->judge.by_record);
  set_number(L, "faults", t->judge.faults);
  if (t->judge.faults) set_text(L, "fault", t->judge.fault);
  lua_createtable(L, (int)lane_keys(t->lane), 0);
  for (uint32_t i = 0; i < lane_keys(t->lane); i++) {
    const lane_key *k = lane_key_at(t->lane, i);
    push_counts(L, &k->counts);
    set_text(L, "key", k->name);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "keys");
  return 1;
}

/* source:series(lane, key) -> series of one key | nil */
static int l_series(lua_State *L) {
  const source *s = check_source(L);
  lua_Integer number = luaL_checkinteger(L, 2), key = luaL_checkinteger(L, 3);
  luaL_argcheck(L, number >= 1 && (size_t)number <= s->track_count, 2, "no such lane");
  const lane *l = s->tracks[number - 1]->lane;
  luaL_argcheck(L, key >= 1 && key <= lane_keys(l), 3, "no such key");
  const lane_series *series = lane_key_at(l, (uint32_t)key - 1)->series;
  if (!series) return 0;
  push_series(L, series);
  return 1;
}

static void push_roles(lua_State *L) {
  static const char *const roles[][2] = {
#define X(role, name, what) {name, what},
      LAB_ROLES(X)
#undef X
  };
  lua_newtable(L);
  for (int i = 0; i < LAB_OTHER; i++) {
    lua_createtable(L, 0, 2);
    set_text(L, "name", roles[i][0]);
    set_text(L, "what", roles[i][1]);
    lua_rawseti(L, -2, i + 1);
  }
}

int luaopen_neap_lab_native(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"begin", l_begin},       {"add", l_add},      {"seed", l_seed}, {"step", l_step},
      {"progress", l_progress}, {"stats", l_stats},  {"lane", l_lane}, {"series", l_series},
      {"close", source_gc},     {"__gc", source_gc}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_open}, {NULL, NULL}};
  luaL_newmetatable(L, SOURCE);
  luaL_setfuncs(L, methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, functions);
  push_roles(L);
  lua_setfield(L, -2, "roles");
  return 1;
}
