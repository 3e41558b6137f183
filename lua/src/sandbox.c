/* sandbox.c: the box: see sandbox.h.
 *
 *   run --> coroutine -- hook, allocator, charges --> result           nothing was allocated
 *                                                 \-> overrun, error   the coroutine is replaced */
#include "sandbox.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOX_TYPE "neap.box"
#define SLICE    200          /* steps between two looks of the hook */
#define STACK    32           /* slots kept free on the coroutine; every new one has so many */
#define FAULT    400          /* bytes of a fault's text */
#define C_STACK  (256 * 1024) /* bytes of it for a decision */

static _Thread_local neap__box *running; /* the box whose decision this thread runs */
static const char overrun_tag;           /* its address is raised: needs no memory */

bool neap__box_is_running(void) { return running != NULL; }

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

/* Asks for the processor's time only when the clock on the wall, which is cheap, says it may be
 * up. */
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

static void box_overrun(neap__box *b, neap__overrun why);

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
static void box_overrun(neap__box *b, neap__overrun why) {
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

/* Grows as the C stack does or shrinks so: only differences mean something. */
static inline uintptr_t c_stack_position(void) {
#ifdef __GNUC__
  return (uintptr_t)__builtin_frame_address(0);
#else
  char here;
  return (uintptr_t)&here;
#endif
}

void neap__check_depth(lua_State *L) {
  if (!running) return;
  uintptr_t here = c_stack_position(), there = running->c_stack;
  if ((here > there ? here - there : there - here) > C_STACK) luaL_error(L, "C stack overflow");
}

/* Counts everything that a decision asks for, freed again or not: a bound on its work as well.  A
 * piece within the budget is given even when the sum goes over it, and the hook does the rest: an
 * allocation that fails makes Lua collect all its garbage first. */
static void *box_alloc(void *data, void *block, size_t old_size, size_t new_size) {
  neap__box *b = data;
  size_t had = block ? old_size : 0;
  if (new_size > had) {
    size_t more = new_size - had;
    bool is_absurd = more > INT64_MAX / 2;
    b->bytes = is_absurd ? -1 : b->bytes - (int64_t)more;
    if (b->bytes < 0) box_overrun(b, OVER_BYTES);
    if (is_absurd || (int64_t)more > b->budget_bytes) return NULL;
  }
  return b->alloc(b->alloc_data, block, old_size, new_size);
}

/* ---- Coroutines ------------------------------------------------------------------------------ */

static void box_renew(lua_State *L, int index, neap__box *b) {
  b->co = NULL;
  lua_State *co = lua_newthread(L);
  lua_checkstack(co, STACK); /* takes no memory: on `co` nobody catches, and Lua 5.1 would exit */
  compat_setref(L, index, 1);
  b->co = co;
}

static int l_renew(lua_State *L) {
  box_renew(L, 1, lua_touserdata(L, 1));
  return 0;
}

/* The box at `index`, absolute or an upvalue's, gets a new coroutine if there is memory for one;
 * raises nothing. */
static bool box_replace(lua_State *L, int index, neap__box *b) {
  b->co = NULL;
  lua_pushcfunction(L, l_renew);
  lua_pushvalue(L, index);
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) lua_pop(L, 1);
  return b->co != NULL;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

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
    char text[32];
    snprintf(text, sizeof text, "%.14g", (double)lua_tonumber(co, -1));
    lua_pushstring(L, text);
  } else {
    lua_pushfstring(L, "an error object that is a %s value", lua_typename(co, type));
  }
}

static int refuse(lua_State *L, const char *message, const char *kind) {
  lua_pushboolean(L, 0);
  lua_pushstring(L, message);
  lua_pushstring(L, kind);
  return 3;
}

/* Why the call on `co` came to nothing. */
static int push_fault(lua_State *L, neap__box *b, lua_State *co, int status) {
  static const char *const spent[] = {
      [OVER_STEPS] = "steps", [OVER_BYTES] = "bytes", [OVER_TIME] = "time"};
  if (!b->over && status == LUA_YIELD)
    return refuse(L, "yielded, which a policy's function cannot", "yield");
  if (!b->over && status == LUA_ERRMEM) return refuse(L, "found no memory", "memory");
  lua_pushboolean(L, 0);
  if (b->over == OVER_STEPS)
    lua_pushfstring(L, "took more than its %d steps", (int)b->budget_steps);
  else if (b->over == OVER_BYTES)
    lua_pushfstring(L, "asked for more than its %d bytes of memory", (int)b->budget_bytes);
  else if (b->over == OVER_TIME)
    lua_pushfstring(L, "took more than its %d ms of processor time", (int)b->budget_ms);
  else
    push_said(L, co);
  lua_pushstring(L, b->over ? spent[b->over] : "error");
  return 3;
}

/* ---- Running --------------------------------------------------------------------------------- */

static inline void box_enter(lua_State *L, neap__box *b) {
  b->over = WITHIN;
  b->units = (int64_t)b->budget_steps * NEAP__UNITS_PER_STEP;
  b->bytes = b->budget_bytes;
  b->deadline_ns = 0;
  b->c_stack = c_stack_position();
  b->running = true;
  b->alloc = lua_getallocf(L, &b->alloc_data);
  lua_setallocf(L, box_alloc, b);
  lua_sethook(b->co, box_hook, LUA_MASKCOUNT, (int)b->slice);
}

/* Why the box at `index` cannot run now, as push_fault() says it; nothing if it can. */
static bool box_is_ready(lua_State *L, int index, neap__box *b) {
  if (b->condemned)
    refuse(L, "keeps too much memory: its functions run no more", "condemned");
  else if (b->running)
    refuse(L, "is running already", "busy");
  else if (!b->co && !box_replace(L, index, b))
    refuse(L, "found no memory", "memory");
  else
    return true;
  return false;
}

int neap__box_run(lua_State *L, int index, neap__box *b, int args) {
  if (!box_is_ready(L, index, b)) {
    for (int i = 0; i <= args; i++) lua_remove(L, -4);
    return -1;
  }
  if (b->arena && b->arena->crowded) neap__arena_weigh(b->arena, L, b);
  neap__box **here = &running, *outer = *here; /* found once: it is the thread's */
  lua_State *co = b->co;
  compat_hook outer_hook = compat_gethook(co);
  lua_xmove(L, co, args + 1);
  box_enter(L, b);
  *here = b;
  int results = 0;
  int status = compat_resume(co, L, args, &results);
  *here = outer;
  compat_sethook(co, outer_hook);
  lua_setallocf(L, b->alloc, b->alloc_data);
  b->running = false;
  if (b->weighed_from) neap__arena_weighed(b->arena, L, b);
  if (status == LUA_OK && !b->over) return results;
  b->co = NULL; /* of no more use: thrown away below, or before the next run */
  push_fault(L, b, co, status);
  box_replace(L, index, b);
  return -1;
}

neap__box *neap__check_box(lua_State *L, int arg) { return luaL_checkudata(L, arg, BOX_TYPE); }

/* run(box, f, ...) -> true, up to 4 results | false, message, kind
 *
 * Kinds: "steps", "bytes", "time" (overruns), "error", "yield", "memory", "condemned", "busy". */
static int l_run(lua_State *L) {
  neap__box *b = neap__check_box(L, 1);
  luaL_checkany(L, 2);
  int args = lua_gettop(L) - 2;
  luaL_argcheck(L, args <= STACK / 2, STACK / 2 + 3, "too many arguments");
  int results = neap__box_run(L, 1, b, args);
  if (results < 0) return 3;
  if (results > NEAP__RESULTS) lua_pop(b->co, results - NEAP__RESULTS);
  if (results > NEAP__RESULTS) results = NEAP__RESULTS;
  lua_pushboolean(L, 1);
  lua_xmove(b->co, L, results);
  return results + 1;
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

static uint32_t check_limit(lua_State *L, int arg, lua_Integer most) {
  lua_Integer n = luaL_checkinteger(L, arg);
  bool is_whole = lua_tonumber(L, arg) == (lua_Number)n;
  luaL_argcheck(L, is_whole && n >= 1 && n <= most, arg, "out of range");
  return (uint32_t)n;
}

static void check_budget(lua_State *L, int arg, neap__box *b) {
  uint32_t steps = check_limit(L, arg, 1000000000);
  uint32_t bytes = check_limit(L, arg + 1, 1 << 30);
  b->budget_ms = check_limit(L, arg + 2, 3600000);
  b->budget_steps = steps;
  b->budget_bytes = bytes;
  b->slice = steps < SLICE ? steps : SLICE;
}

/* budget(box, steps, bytes, ms): from the next run on */
static int l_budget(lua_State *L) {
  check_budget(L, 2, neap__check_box(L, 1));
  return 0;
}

/* box(steps, bytes, ms) -> box */
static int l_box(lua_State *L) {
  neap__box budget = {0};
  check_budget(L, 1, &budget);
  neap__box *b = compat_new(L, sizeof *b, 1);
  *b = budget;
  luaL_setmetatable(L, BOX_TYPE);
  neap__arena_join(L, b);
  box_renew(L, lua_gettop(L), b);
  return 1;
}

static int box_gc(lua_State *L) {
  neap__arena_leave(neap__check_box(L, 1));
  return 0;
}

void neap__open_box(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"box", l_box},
      {"run", l_run},
      {"budget", l_budget},
      {NULL, NULL},
  };
  if (luaL_newmetatable(L, BOX_TYPE)) {
    lua_pushcfunction(L, box_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
  luaL_setfuncs(L, functions, 0);
  neap__add_classifier(L);
}
