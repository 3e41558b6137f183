/* panel.c: named breakers in one block of memory: one that Lua collects when neither panel nor
 * breakers are held, or (panel_shared.c) a file. */
#include "panel.h"

#include "line.h"

/*  userdata: | box_panel | up to 63 bytes | the panel, aligned to a cache line | */
#define LINE_BYTES   64
#define CAPACITY_MAX 4194304

static void *aligned(void *p) {
  return (void *)(((uintptr_t)p + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1));
}

static bool has_metatable(lua_State *L, int index, const char *name) {
  if (!lua_getmetatable(L, index)) return false;
  luaL_getmetatable(L, name);
  bool is_same = lua_rawequal(L, -1, -2) != 0;
  lua_pop(L, 2);
  return is_same;
}

box_panel *neap__check_panel_box(lua_State *L, int arg, box_shared **shared) {
  box_shared *in_file = NULL;
  box_panel *box;
  if (lua_type(L, arg) == LUA_TUSERDATA && has_metatable(L, arg, NEAP__PANEL_SHARED)) {
    in_file = (box_shared *)lua_touserdata(L, arg);
    box = &in_file->box;
  } else {
    box = (box_panel *)luaL_checkudata(L, arg, NEAP__PANEL);
  }
  if (shared) *shared = in_file;
  return box;
}

static neap_panel *check_panel(lua_State *L, int arg) {
  const box_panel *box = neap__check_panel_box(L, arg, NULL);
  luaL_argcheck(L, box->panel, arg, "the panel is closed");
  return box->panel;
}

static int push_failure(lua_State *L, const char *message) {
  lua_pushnil(L);
  lua_pushstring(L, message);
  return 2;
}

void neap__push_breaker(lua_State *L, int panel_index, neap_breaker *breaker) {
  box_breaker *box = (box_breaker *)compat_new(L, sizeof *box, BREAKER_REFS);
  box->breaker = breaker;
  box->panel = (const box_panel *)lua_touserdata(L, panel_index);
  lua_pushvalue(L, panel_index);
  compat_setref(L, -2, BREAKER_PANEL);
  luaL_setmetatable(L, NEAP__BREAKER);
}

/* panel(capacity) -> panel */
static int l_panel(lua_State *L) {
  uint32_t capacity = (uint32_t)neap__check_count(L, 1, "capacity", 1, CAPACITY_MAX);
  size_t size = neap_panel_size(capacity);
  box_panel *box = (box_panel *)compat_new(L, sizeof *box + LINE_BYTES - 1 + size, 0);
  *box = (box_panel){.panel = NULL};
  void *memory = aligned(box + 1);
  neap_status status = neap_panel_init(memory, size, capacity, neap__entropy(), &box->panel);
  if (status != NEAP_OK) return luaL_error(L, "panel: %s", neap_status_text(status));
  luaL_setmetatable(L, NEAP__PANEL);
  return 1;
}

/* panel:claim(name) -> breaker | nil, message */
static int l_claim(lua_State *L) {
  neap_panel *panel = check_panel(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING) neap__argument_error(L, 2, "name", "a string");
  size_t length;
  const char *name = lua_tolstring(L, 2, &length);
  box_shared *in_file;
  neap__check_panel_box(L, 1, &in_file);
  neap_breaker *breaker = NULL;
  if (in_file) {
    neap_shared_problem problem;
    breaker = neap_shared_claim(&in_file->shared, name, length, &problem);
    if (!breaker) return push_failure(L, problem.text);
  } else {
    neap_status status = neap_panel_claim(panel, name, length, &breaker);
    if (status != NEAP_OK) return push_failure(L, neap_status_text(status));
  }
  neap__push_breaker(L, 1, breaker);
  return 1;
}

/* panel:counters(name) -> counters | nil, message */
static int l_counters(lua_State *L) {
  neap_panel *panel = check_panel(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING) neap__argument_error(L, 2, "name", "a string");
  size_t length;
  const char *name = lua_tolstring(L, 2, &length);
  neap_counters *counters;
  neap_status status = neap_panel_claim_counters(panel, name, length, &counters);
  if (status != NEAP_OK) return push_failure(L, neap_status_text(status));
  neap__push_counters(L, 1, counters);
  return 1;
}

/* panel:find(name) -> breaker | nil */
static int l_find(lua_State *L) {
  neap_panel *panel = check_panel(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING) neap__argument_error(L, 2, "name", "a string");
  size_t length;
  const char *name = lua_tolstring(L, 2, &length);
  neap_breaker *breaker = neap_panel_find(panel, name, length);
  if (breaker)
    neap__push_breaker(L, 1, breaker);
  else
    lua_pushnil(L);
  return 1;
}

/* Calls that have ended, refused ones and stale ones too: it grows whenever the line is of use. */
static uint64_t activity_of(const line *n, uint64_t now_ms) {
  neap_snapshot s;
  uint64_t sum = n->rejected;
  neap_breaker_snapshot(n->breaker, n->rules, now_ms, &s);
#define X(name) sum += s.totals.name;
  NEAP_TOTALS(X)
#undef X
  return sum;
}

/* Gives the row of the line at 2 back: from then on its breaker, which is pushed, is a copy that is
 * its own.  Memory is asked for before anything changes. */
static bool give_row_back(lua_State *L, neap_panel *panel, line *n, uint64_t now_ms,
                          uint64_t used_ms) {
  neap_breaker *own = neap__push_own_breaker(L);
  *own = *n->breaker;
  if (!neap_panel_release(panel, n->breaker, n->rules, now_ms, used_ms)) return false;
  n->breaker = own;
  n->panel = NULL;
  lua_pushvalue(L, -1);
  compat_setref(L, 2, LINE_BREAKER);
  return true;
}

/* panel:look(line, activity, used_ms, may_go) -> breaker | nil, activity, used_ms
 * Whether the line has been of use since its activity was that, at used_ms; if not, if it may go and
 * nothing of it matters any more, its row is given back: breaker is what it has now.  The panel is
 * nobody else's. */
static int l_look(lua_State *L) {
  neap_panel *panel = check_panel(L, 1);
  line *n = (line *)luaL_checkudata(L, 2, NEAP__LINE);
  box_shared *in_file;
  const box_panel *box = neap__check_panel_box(L, 1, &in_file);
  luaL_argcheck(L, !in_file && n->panel == box && n->rules, 2, "a line of this panel is needed");
  uint64_t seen = neap__check_count(L, 3, "activity", 0, NEAP_NEVER);
  uint64_t used_ms = neap__check_ms(L, 4, "used_ms");
  bool may_go = lua_toboolean(L, 5);
  lua_settop(L, 2);
  uint64_t now_ms = line_now(L, n, 2), activity = activity_of(n, now_ms);
  bool is_used = activity != seen || n->held || n->in_flight;
  if (is_used || !may_go || !give_row_back(L, panel, n, now_ms, used_ms)) {
    lua_settop(L, 2);
    lua_pushnil(L);
  }
  compat_pushwide(L, activity);
  compat_pushwide(L, is_used ? now_ms : used_ms);
  return 3;
}

/* panel:rows() -> list of breakers */
static int l_rows(lua_State *L) {
  neap_panel *panel = check_panel(L, 1);
  lua_createtable(L, (int)neap_panel_count(panel), 0);
  int n = 0;
  for (uint32_t i = 0; i < neap_panel_capacity(panel); i++) {
    neap_breaker *breaker = neap_panel_row(panel, i);
    if (!breaker) continue;
    neap__push_breaker(L, 1, breaker);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* panel:capacity() -> rows */
static int l_capacity(lua_State *L) {
  compat_pushwide(L, neap_panel_capacity(check_panel(L, 1)));
  return 1;
}

/* panel:count() -> rows in use */
static int l_count(lua_State *L) {
  compat_pushwide(L, neap_panel_count(check_panel(L, 1)));
  return 1;
}

/* panel:path() -> path | nil */
static int l_path(lua_State *L) {
  box_shared *in_file;
  check_panel(L, 1);
  neap__check_panel_box(L, 1, &in_file);
  if (in_file)
    lua_pushstring(L, in_file->shared.path);
  else
    lua_pushnil(L);
  return 1;
}

/* panel:check() -> true | nil, message */
static int l_check(lua_State *L) {
  box_shared *in_file;
  check_panel(L, 1);
  neap__check_panel_box(L, 1, &in_file);
  neap_shared_problem problem;
  if (in_file && !neap_shared_check(&in_file->shared, &problem))
    return push_failure(L, problem.text);
  lua_pushboolean(L, 1);
  return 1;
}

/* panel:close(): from now on every use of it or of its breakers is an error.  Again: nothing. */
static int l_close(lua_State *L) {
  neap__check_panel_box(L, 1, NULL)->panel = NULL;
  return 0;
}

static int l_tostring(lua_State *L) {
  box_shared *in_file;
  const box_panel *box = neap__check_panel_box(L, 1, &in_file);
  if (!box->panel) {
    lua_pushstring(L, "neap.panel (closed)");
  } else {
    lua_pushfstring(L, "neap.panel %s%s(%d of %d rows)", in_file ? in_file->shared.path : "",
                    in_file ? " " : "", (int)neap_panel_count(box->panel),
                    (int)neap_panel_capacity(box->panel));
  }
  return 1;
}

void neap__set_panel_methods(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"claim", l_claim},         {"find", l_find},
      {"rows", l_rows},           {"look", l_look},
      {"counters", l_counters},   {"capacity", l_capacity},
      {"count", l_count},         {"path", l_path},
      {"check", l_check},         {"close", l_close},
      {"__close", l_close},       {"__gc", l_close},
      {"__tostring", l_tostring}, {NULL, NULL},
  };
  luaL_setfuncs(L, methods, 0);
}

void neap__open_panel(lua_State *L) {
  luaL_getmetatable(L, NEAP__PANEL);
  neap__set_panel_methods(L);
  lua_pop(L, 1);
  lua_pushcfunction(L, l_panel);
  lua_setfield(L, -2, "panel");
  neap__open_panel_shared(L);
  neap__open_counters(L);
}
