/* replay_internal.h: what replay.c and results.c share. */
#ifndef NEAP_LAB_REPLAY_INTERNAL_H
#define NEAP_LAB_REPLAY_INTERNAL_H

#include <lauxlib.h>

#include "judge.h"
#include "reader.h"

#define SOURCE "neap.lab.source"

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

static inline source *check_source(lua_State *L) { return luaL_checkudata(L, 1, SOURCE); }

/* results.c: methods of a source. */
int source_l_progress(lua_State *L);
int source_l_stats(lua_State *L);
int source_l_counts(lua_State *L);
int source_l_lane(lua_State *L);
int source_l_series(lua_State *L);

#endif
