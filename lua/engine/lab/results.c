/* results.c: what a replay has come to, as tables. */
#include "replay_internal.h"

/* source:progress() -> bytes read, bytes of all | nil, calls */
int source_l_progress(lua_State *L) {
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

/* { { policy =, source =, count =, oldest_ms = } ... }, of all recordings together. */
static void push_answers(lua_State *L, const source *s) {
  lua_Integer n = 0;
  lua_newtable(L);
  for (size_t i = 0; i < s->count; i++) {
    const recording *r = reader_recording(s->readers[i]);
    for (const recording_source *one = r ? recording_sources(r) : NULL; one && one->count; one++) {
      lua_createtable(L, 0, 4);
      set_text(L, "policy", one->policy);
      set_text(L, "source", one->name);
      set_number(L, "count", one->count);
      set_number(L, "oldest_ms", one->oldest_ms);
      lua_rawseti(L, -2, ++n);
    }
  }
}

/* source:stats() */
int source_l_stats(lua_State *L) {
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
  set_number(L, "keyed", s->stats.keyed);
  set_number(L, "from_ms", s->stats.from_us / 1000);
  set_number(L, "to_ms", s->stats.to_us / 1000);
  push_damaged(L, &s->stats);
  lua_setfield(L, -2, "damaged");
  push_answers(L, s);
  lua_setfield(L, -2, "answers");
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

/* source:counts(number) -> those of all keys together, as yet */
int source_l_counts(lua_State *L) {
  const source *s = check_source(L);
  lua_Integer number = luaL_checkinteger(L, 2);
  luaL_argcheck(L, number >= 1 && (size_t)number <= s->track_count, 2, "no such lane");
  push_counts(L, lane_all(s->tracks[number - 1]->lane));
  return 1;
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
int source_l_lane(lua_State *L) {
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
int source_l_series(lua_State *L) {
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
