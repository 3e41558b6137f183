/* sandbox.c: the box: see sandbox.h.
 *
 *   run --> coroutine -- hook, allocator, charges --> result            good: nothing allocated
 *                                                 \-> overrun, error    the coroutine is thrown away */
#include "sandbox.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOX_TYPE "neap.box"
#define SLICE    200 /* steps between two looks of the hook */
#define RESULTS  4   /* the most that a decision answers */
#define STACK    40  /* slots kept free on the coroutine */
#define FAULT    400 /* bytes of a fault's text */

typedef enum overrun { WITHIN = 0, OVER_STEPS, OVER_BYTES, OVER_TIME } overrun;

typedef struct neap__box {
  lua_State *co; /* kept by the box's first user value; NULL: to be made */
  overrun over;
  int64_t units, bytes; /* left, of the decision that runs */
  uint64_t deadline_ns; /* of processor time; 0: not known before the first slice is over */
  uint64_t looked_ns;   /* at the monotonic clock, when the deadline was set */
  lua_Alloc alloc;      /* the state's own, while a decision runs */
  void *alloc_data;
  int64_t held;   /* bytes taken less bytes freed while it ran: what it hoards, about */
  bool running;   /* a decision is under way */
  bool condemned; /* hoarded: runs no more */
  uint32_t slice; /* steps */
  uint32_t budget_steps, budget_ms;
  int64_t budget_bytes;
  neap__arena *arena; /* NULL: the state has another allocator */
  struct neap__box *next;
} neap__box;

static _Thread_local neap__box *running; /* the box whose decision this thread runs */
static const char overrun_tag;           /* its address is raised: needs no memory */

/* ---- Overrun --------------------------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void raise_overrun(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&overrun_tag);
  lua_error(L);
  abort(); /* not reached: lua_error() has no _Noreturn */
}

/* Asks for the processor's time only when the clock on the wall, which is cheap, says it may be up. */
static bool box_is_late(neap__box *b) {
  uint64_t allowed_ns = (uint64_t)b->budget_ms * 1000000u;
  uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
  if (b->deadline_ns == 0) {
    b->looked_ns = now_ns;
    b->deadline_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + allowed_ns;
    return false;
  }
  return now_ns - b->looked_ns > allowed_ns && clock_ns(CLOCK_THREAD_CPUTIME_ID) > b->deadline_ns;
}

static void box_overrun(neap__box *b, overrun why);

static void box_hook(lua_State *L, lua_Debug *ar) {
  neap__box *b = running;
  (void)ar;
  if (!b || b->co != L) return;
  if (!b->over) {
    b->units -= (int64_t)b->slice * NEAP__UNITS_PER_STEP;
    if (b->units <= 0)
      box_overrun(b, OVER_STEPS);
    else if (box_is_late(b))
      box_overrun(b, OVER_TIME);
  }
  if (b->over) raise_overrun(L);
}

/* Callable from anywhere, the allocator too: lua_sethook() is made for signal handlers. */
static void box_overrun(neap__box *b, overrun why) {
  if (b->over) return;
  b->over = why;
  lua_sethook(b->co, box_hook, LUA_MASKCOUNT, 1);
}

void neap__charge(lua_State *L, size_t units) {
  neap__box *b = running;
  if (!b) return;
  if (units > INT64_MAX / 2) units = INT64_MAX / 2;
  b->units -= (int64_t)units;
  if (b->units <= 0) box_overrun(b, OVER_STEPS);
  if (b->over) raise_overrun(L);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Counts everything that a decision asks for, freed again or not: a bound on its work as well.  A
 * piece within the budget is given even when the sum goes over it, and the hook does the rest: an
 * allocation that fails makes Lua collect all its garbage first. */
static void *box_alloc(void *data, void *block, size_t old_size, size_t new_size) {
  neap__box *b = data;
  size_t had = block ? old_size : 0;
  if (new_size > had) {
    size_t more = new_size - had;
    b->bytes = more > INT64_MAX / 2 ? -1 : b->bytes - (int64_t)more;
    if (b->bytes < 0) box_overrun(b, OVER_BYTES);
    if (more > INT64_MAX / 2 || (int64_t)more > b->budget_bytes) return NULL;
  }
  void *got = b->alloc(b->alloc_data, block, old_size, new_size);
  if (got || new_size == 0) b->held += (int64_t)new_size - (int64_t)had;
  return got;
}

void *neap__arena_alloc(void *data, void *block, size_t old_size, size_t new_size) {
  neap__arena *arena = data;
  size_t had = block ? old_size : 0;
  if (new_size == 0) {
    free(block);
    arena->used -= had;
    return NULL;
  }
  if (new_size > had) {
    size_t reserve = !running ? 0 : arena->reserve ? arena->reserve : arena->cap / 4;
    size_t room = arena->cap > reserve ? arena->cap - reserve : 0;
    if (new_size - had > room || arena->used > room - (new_size - had)) {
      if (running) arena->crowded = true;
      return NULL;
    }
  }
  void *got = realloc(block, new_size);
  if (!got) return new_size <= had ? block : NULL; /* Lua counts on shrinking to succeed */
  arena->used += new_size - had;
  if (arena->used > arena->peak) arena->peak = arena->used;
  return got;
}

/* Policies have filled their part of the arena.  If that is not garbage, the box that took most runs
 * no more, so that the others do; what it keeps goes when its owner lets go of it. */
static void arena_make_room(lua_State *L, neap__arena *arena) {
  arena->crowded = false;
  lua_gc(L, LUA_GCCOLLECT, 0);
  size_t reserve = arena->reserve ? arena->reserve : arena->cap / 4;
  if (arena->used < (arena->cap - reserve) / 4 * 3) return;
  neap__box *worst = NULL;
  for (neap__box *b = arena->boxes; b; b = b->next)
    if (!b->condemned && (!worst || b->held > worst->held)) worst = b;
  if (worst) worst->condemned = true;
}

/* ---- Running --------------------------------------------------------------------------------- */

static neap__box *check_box(lua_State *L, int arg) { return luaL_checkudata(L, arg, BOX_TYPE); }

static void box_renew(lua_State *L, int index, neap__box *b) {
  b->co = NULL;
  lua_State *co = lua_newthread(L);
  if (!lua_checkstack(co, STACK))
    luaL_error(L, "not enough memory"); /* raised here: nobody catches on `co` */
  compat_setref(L, index, 1);
  b->co = co;
}

static int l_renew(lua_State *L) {
  box_renew(L, 1, lua_touserdata(L, 1));
  return 0;
}

/* The box at index 1 gets a new coroutine, if there is memory for one; raises nothing. */
static bool box_replace(lua_State *L, neap__box *b) {
  b->co = NULL;
  lua_pushcfunction(L, l_renew);
  lua_pushvalue(L, 1);
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) lua_pop(L, 1);
  return b->co != NULL;
}

static void box_enter(lua_State *L, neap__box *b) {
  b->over = WITHIN;
  b->units = (int64_t)b->budget_steps * NEAP__UNITS_PER_STEP;
  b->bytes = b->budget_bytes;
  b->deadline_ns = 0;
  b->running = true;
  b->alloc = lua_getallocf(L, &b->alloc_data);
  lua_setallocf(L, box_alloc, b);
  lua_sethook(b->co, box_hook, LUA_MASKCOUNT, (int)b->slice);
  running = b;
}

static void box_leave(lua_State *L, neap__box *b, neap__box *outer) {
  running = outer;
  lua_setallocf(L, b->alloc, b->alloc_data);
  b->running = false;
}

/* What an error object says, without asking it: its __tostring is the policy's.  Does nothing on
 * `co` that may fail: nobody would catch it there. */
static void push_said(lua_State *L, lua_State *co) {
  int type = lua_type(co, -1);
  if (type == LUA_TSTRING) {
    char text[FAULT];
    size_t length;
    const char *said = lua_tolstring(co, -1, &length);
    if (length > sizeof text) length = sizeof text;
    for (size_t i = 0; i < length; i++) text[i] = (unsigned char)said[i] < ' ' ? ' ' : said[i];
    lua_pushlstring(L, text, length);
  } else if (type == LUA_TNUMBER) {
    lua_pushfstring(L, "%f", lua_tonumber(co, -1));
  } else {
    lua_pushfstring(L, "an error object that is a %s value", lua_typename(co, type));
  }
}

/* false, message, kind.  Kinds: "steps" "bytes" "time" (overruns), "memory", "yield", "error". */
static int push_fault(lua_State *L, neap__box *b, lua_State *co, int status) {
  static const char *const spent[] = {
      [OVER_STEPS] = "steps", [OVER_BYTES] = "bytes", [OVER_TIME] = "time"};
  lua_settop(L, 1);
  lua_pushboolean(L, 0);
  if (b->over == OVER_STEPS)
    lua_pushfstring(L, "took more than its %d steps", (int)b->budget_steps);
  else if (b->over == OVER_BYTES)
    lua_pushfstring(L, "asked for more than its %d bytes of memory", (int)b->budget_bytes);
  else if (b->over == OVER_TIME)
    lua_pushfstring(L, "took more than its %d ms of processor time", (int)b->budget_ms);
  else if (status == LUA_YIELD)
    lua_pushliteral(L, "yielded, which a policy's function cannot");
  else if (status == LUA_ERRMEM)
    lua_pushliteral(L, "found no memory");
  else
    push_said(L, co);
  lua_pushstring(L, b->over                ? spent[b->over]
                    : status == LUA_YIELD  ? "yield"
                    : status == LUA_ERRMEM ? "memory"
                                           : "error");
  return 3;
}

static int refuse(lua_State *L, const char *message, const char *kind) {
  lua_pushboolean(L, 0);
  lua_pushstring(L, message);
  lua_pushstring(L, kind);
  return 3;
}

/* run(box, f, ...) -> true, up to 4 results | false, message, kind */
static int l_run(lua_State *L) {
  neap__box *b = check_box(L, 1);
  neap__box *outer = running;
  luaL_checkany(L, 2);
  if (b->condemned)
    return refuse(L, "keeps too much memory: its functions run no more", "condemned");
  if (b->running) return refuse(L, "is running already", "busy");
  if (!b->co && !box_replace(L, b)) return refuse(L, "found no memory", "memory");
  int args = lua_gettop(L) - 2;
  if (args > STACK / 2) return luaL_error(L, "too many arguments");
  lua_State *co = b->co;
  lua_xmove(L, co, args + 1);
  box_enter(L, b);
  int results = 0;
  int status = compat_resume(co, L, args, &results);
  box_leave(L, b, outer);
  if (status == LUA_OK && !b->over) {
    if (results > RESULTS) lua_pop(co, results - RESULTS);
    lua_pushboolean(L, 1);
    int kept = results > RESULTS ? RESULTS : results;
    lua_xmove(co, L, kept);
    return kept + 1;
  }
  b->co = NULL; /* of no more use: thrown away below, or before the next run */
  int n = push_fault(L, b, co, status);
  box_replace(L, b);
  if (b->arena && b->arena->crowded) arena_make_room(L, b->arena);
  return n;
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

static uint32_t check_limit(lua_State *L, int arg, lua_Integer most) {
  lua_Integer n = luaL_checkinteger(L, arg);
  luaL_argcheck(L, n >= 1 && n <= most, arg, "out of range");
  return (uint32_t)n;
}

static void set_budget(lua_State *L, neap__box *b, int arg) {
  uint32_t steps = check_limit(L, arg, 1000000000), bytes = check_limit(L, arg + 1, 1 << 30);
  b->budget_ms = check_limit(L, arg + 2, 3600000);
  b->budget_steps = steps;
  b->budget_bytes = bytes;
  b->slice = steps < SLICE ? steps : SLICE;
}

/* budget(box, steps, bytes, ms): from the next run on */
static int l_budget(lua_State *L) {
  set_budget(L, check_box(L, 1), 2);
  return 0;
}

/* box(steps, bytes, ms) -> box */
static int l_box(lua_State *L) {
  neap__box budget = {0};
  set_budget(L, &budget, 1);
  neap__box *b = compat_new(L, sizeof *b, 1);
  *b = budget;
  luaL_setmetatable(L, BOX_TYPE);
  void *data;
  if (lua_getallocf(L, &data) == neap__arena_alloc) {
    b->arena = data;
    b->next = b->arena->boxes;
    b->arena->boxes = b;
  }
  box_renew(L, lua_gettop(L), b);
  return 1;
}

static int box_gc(lua_State *L) {
  neap__box *b = check_box(L, 1);
  if (!b->arena) return 0;
  neap__box **link = &b->arena->boxes;
  while (*link && *link != b) link = &(*link)->next;
  if (*link) *link = b->next;
  b->arena = NULL;
  return 0;
}

/* held(box) -> bytes: about what its functions keep */
static int l_held(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_box(L, 1)->held);
  return 1;
}

/* ---- Metatables ------------------------------------------------------------------------------ */

/* setmetatable(t, mt) -> t.  Upvalue: a weak set of the metatables that were set through it. */
static int l_setmetatable(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argcheck(L, lua_istable(L, 2) || lua_isnil(L, 2), 2, "nil or table expected");
  lua_settop(L, 2);
  if (lua_getmetatable(L, 1)) {
    lua_rawget(L, lua_upvalueindex(1));
    if (!lua_toboolean(L, -1)) return luaL_error(L, "this table's metatable is not the policy's");
    lua_pop(L, 1);
  }
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    lua_rawget(L, 2);
    if (!lua_isnil(L, -1)) return luaL_error(L, "__gc is not available to a policy");
    lua_pop(L, 1);
    lua_pushvalue(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, lua_upvalueindex(1));
  }
  lua_setmetatable(L, 1);
  return 1;
}

/* getmetatable(v) -> the metatable, if the policy set it; false, if v has another; nil, if none */
static int l_getmetatable(lua_State *L) {
  luaL_checkany(L, 1);
  if (!lua_getmetatable(L, 1)) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushvalue(L, -1);
  lua_rawget(L, lua_upvalueindex(1));
  if (!lua_toboolean(L, -1))
    lua_pushboolean(L, 0);
  else
    lua_pop(L, 1);
  return 1;
}

static void push_weak_keys(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

/* library() -> { string, table, setmetatable, getmetatable }, made for one policy generation */
static int l_library(lua_State *L) {
  lua_createtable(L, 0, 4);
  neap__push_string_library(L);
  lua_setfield(L, -2, "string");
  neap__push_table_library(L);
  lua_setfield(L, -2, "table");
  push_weak_keys(L);
  lua_pushvalue(L, -1);
  lua_pushcclosure(L, l_setmetatable, 1);
  lua_setfield(L, -3, "setmetatable");
  lua_pushcclosure(L, l_getmetatable, 1);
  lua_setfield(L, -2, "getmetatable");
  return 1;
}

void neap__sandbox_strings(lua_State *L) {
  lua_pushliteral(L, "");
  lua_newtable(L);
  if (lua_getmetatable(L, -2)) { /* what makes "10" + 1 work stays */
    for (lua_pushnil(L); lua_next(L, -2);) {
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, -5);
    }
    lua_pop(L, 1);
  }
  neap__push_string_library(L);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

/* harden(): neap__sandbox_strings() for a state of one's own */
static int l_harden(lua_State *L) {
  neap__sandbox_strings(L);
  return 0;
}

/* ---- Fingerprint ----------------------------------------------------------------------------- */

/* fingerprint(text, ...) -> 16 hexadecimal digits: FNV-1a over the texts and their lengths.  Tells an
 * edit from a touch; no protection against somebody who wants two files to look the same. */
static int l_fingerprint(lua_State *L) {
  uint64_t hash = UINT64_C(14695981039346656037);
  int n = lua_gettop(L);
  for (int i = 1; i <= n; i++) {
    size_t length;
    const char *text = luaL_checklstring(L, i, &length);
    for (size_t k = 0; k < length; k++)
      hash = (hash ^ (unsigned char)text[k]) * UINT64_C(1099511628211);
    for (size_t k = 0; k < 8; k++)
      hash = (hash ^ ((uint64_t)length >> 8 * k & 0xff)) * UINT64_C(1099511628211);
  }
  char hex[17];
  for (int i = 0; i < 16; i++) hex[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  hex[16] = 0;
  lua_pushstring(L, hex);
  return 1;
}

int neap__open_sandbox(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"box", l_box},
      {"run", l_run},
      {"budget", l_budget},
      {"held", l_held},
      {"library", l_library},
      {"harden", l_harden},
      {"fingerprint", l_fingerprint},
      {NULL, NULL},
  };
  if (luaL_newmetatable(L, BOX_TYPE)) {
    lua_pushcfunction(L, box_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushliteral(L, "box");
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
  luaL_setfuncs(L, functions, 0);
  return 0;
}
