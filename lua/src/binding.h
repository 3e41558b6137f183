/* binding.h: what the files of the binding share.
 *
 * Every function that Lua calls has three beats: check the arguments, call the core, convert the
 * answer.  An argument error is raised in the first, before anything is taken; what is taken in the
 * second is on the Lua stack, or given back, before the third can fail for want of memory.
 *
 *   panel    block of breakers; closed by hand, or when nobody holds it
 *   breaker  a pointer into a panel, which it keeps alive; or one of its own
 *   rules    prepared rules; never change
 *   permit   a probe, or a bulkhead's slot: used once; unreported, it reports itself abandoned
 *   line     one key of a guard at work: breaker, newest rules and policy, clock
 */
#ifndef NEAP_BINDING_H
#define NEAP_BINDING_H

#include <string.h>

#include "compat.h"
#include "neap/neap.h"

#define NEAP__PANEL   "neap.panel"
#define NEAP__BREAKER "neap.breaker"
#define NEAP__RULES   "neap.rules"
#define NEAP__PERMIT  "neap.permit"
#define NEAP__LINE    "neap.line"

/* For what happens seldom: the usual way need not make room for it. */
#ifdef __GNUC__
#define NEAP__SELDOM __attribute__((noinline, cold))
#else
#define NEAP__SELDOM
#endif

/* ---- Userdata -------------------------------------------------------------------------------- */

typedef struct box_panel {
  neap_panel *panel; /* NULL once closed */
  bool is_gone;      /* and its memory is, too: until then what is held can be given back */
} box_panel;

typedef struct box_breaker {
  neap_breaker *breaker;
  const box_panel *panel; /* NULL: a breaker of its own, behind this box */
} box_breaker;
enum { BREAKER_PANEL = 1, BREAKER_REFS = 1 };

typedef struct box_permit {
  neap_permit permit; /* 0 once reported */
  neap_breaker *breaker;
  const box_panel *panel;
  const neap_rules *rules;
  neap_clock clock; /* .now_ms NULL: one that only Lua can read; then given_ms is the time */
  uint64_t given_ms;
  uint32_t *slot;      /* of a bulkhead, counted there and to be given back; NULL: none */
  uint32_t *held;      /* such permits of the line that are out, likewise */
  neap_flight *flight; /* its line's; NULL: it has no line */
} box_permit;
enum { PERMIT_BREAKER = 1, PERMIT_RULES, PERMIT_FRAME, PERMIT_LINE, PERMIT_REFS = PERMIT_LINE };

static inline void neap__give_slot_back(box_permit *box) {
  if (box->slot) --*box->slot;
  if (box->held) --*box->held;
  box->slot = box->held = NULL;
}

/* A permit that holds nothing, as 61 bits:
 *
 *     60 .. 53     | 52 .. 24          | 23 .. 0
 *     generation   | given at, ms      | the core's permit, never 0 in its two lowest bits
 *
 * The generation is a policy's, by its number.  For Lua see neap__push_plain(). */
#define PERMIT_TIME_BITS   29
#define PERMIT_WIDE_BITS   (NEAP_PERMIT_BITS + PERMIT_TIME_BITS)
#define PERMIT_GENERATIONS 256

static inline uint64_t neap__wide(neap_permit permit, uint64_t given_ms, uint32_t number) {
  uint64_t time = given_ms & ((UINT64_C(1) << PERMIT_TIME_BITS) - 1);
  uint64_t generation = number & (PERMIT_GENERATIONS - 1);
  return permit.opaque | time << NEAP_PERMIT_BITS | generation << PERMIT_WIDE_BITS;
}

static inline neap_permit neap__narrow(uint64_t wide) {
  return (neap_permit){wide & ((UINT64_C(1) << NEAP_PERMIT_BITS) - 1)};
}

/* Three days at most; 0 if the clock went back. */
static inline uint64_t neap__wide_age_ms(uint64_t wide, uint64_t now_ms) {
  uint64_t age = (now_ms - (wide >> NEAP_PERMIT_BITS)) & ((UINT64_C(1) << PERMIT_TIME_BITS) - 1);
  return age >> (PERMIT_TIME_BITS - 1) ? 0 : age;
}

/* When it was given: exactly, for half of that time. */
static inline uint64_t neap__wide_began_ms(uint64_t wide, uint64_t now_ms) {
  const uint64_t most = (UINT64_C(1) << PERMIT_TIME_BITS) - 1;
  uint64_t age = (now_ms - (wide >> NEAP_PERMIT_BITS)) & most;
  return age > most / 2 ? now_ms + (most + 1 - age)
                        : now_ms - age; /* the clock may have gone back */
}

static inline uint32_t neap__wide_number(uint64_t wide) {
  return (uint32_t)(wide >> PERMIT_WIDE_BITS);
}

static inline uint64_t neap__since_ms(uint64_t then_ms, uint64_t now_ms) {
  return now_ms > then_ms ? now_ms - then_ms : 0;
}

/* The userdata at `index` if its metatable is the running function's upvalue, else NULL. */
void *neap__test(lua_State *L, int index, int upvalue);

/* Functions with these metatables as their first upvalues may use the checks below. */
enum { UP_BREAKER = 1, UP_RULES, UP_PERMIT, UP_COUNT = UP_PERMIT };
void neap__push_metatables(lua_State *L);

/* Bits that nobody can guess: from the system, or else hard to guess. */
uint64_t neap__entropy(void);

neap_breaker *neap__check_breaker(lua_State *L, int arg);
const neap_rules *neap__check_rules(lua_State *L, int arg);

/* Pushes a breaker of its own, outside any panel. */
neap_breaker *neap__push_own_breaker(lua_State *L);

/* For C code outside the binding: the object at `index`, or NULL.  Valid as long as the userdata
 * is. */
neap_breaker *neap__to_breaker(lua_State *L, int index);
const neap_rules *neap__to_rules(lua_State *L, int index);

/* Pushes a breaker of the panel at `panel_index`, an absolute index. */
void neap__push_breaker(lua_State *L, int panel_index, neap_breaker *breaker);

/* Pushes a permit of `given`, with refs from the stack (absolute indices; 0: none).  If there is no
 * memory for it, what was given is given back and the error raised. */
void neap__push_permit(lua_State *L, const box_permit *given, int breaker, int rules, int frame,
                       int line);

/* ---- Reading arguments ----------------------------------------------------------------------- */

/* Numbers are Lua numbers, never text that looks like one; not a number and infinity are refused.
 * A count must be whole (4.0 is); an instant or a duration drops its fraction. */
bool neap__read_number(lua_State *L, int index, uint64_t *out);

static inline bool neap__read_ms(lua_State *L, int index, uint64_t *out) {
  if (!compat_isinteger(L, index)) return neap__read_number(L, index, out);
  *out = (uint64_t)lua_tointeger(L, index);
  return *out >> 63 == 0;
}

/* A permit that holds nothing is a plain number to Lua: an integer.  Where there are only doubles
 * it is the 53 bits below the generation, times 4 ^ generation: the two lowest bits, of which one
 * is set, tell them apart.
 *
 * push_first and read_first are for those of generation 0, in fewer instructions.  What read_first
 * refuses may still be a permit. */
static inline void neap__push_first(lua_State *L, uint64_t wide) {
  if (sizeof(lua_Integer) >= sizeof wide)
    lua_pushinteger(L, (lua_Integer)wide);
  else
    lua_pushnumber(L, (lua_Number)(int64_t)wide);
}

#if LUA_VERSION_NUM >= 503
static inline bool neap__read_first(lua_State *L, int index, uint64_t *wide) {
  if (!lua_isinteger(L, index)) return false;
  *wide = (uint64_t)lua_tointeger(L, index);
  return *wide >> 63 == 0;
}

static inline void neap__push_plain(lua_State *L, uint64_t wide) {
  lua_pushinteger(L, (lua_Integer)wide);
}

static inline bool neap__read_plain(lua_State *L, int index, uint64_t *wide) {
  if (neap__read_first(L, index, wide)) return true;
  return neap__read_number(L, index, wide) && lua_tonumber(L, index) == (lua_Number)*wide;
}
#else
static inline bool neap__is_first(lua_Number n, uint64_t *wide) {
  uint64_t bits;
  memcpy(&bits, &n, sizeof bits);
  if (bits >= UINT64_C(1076) << 52) return false; /* 2 ^ 53 or more, negative, not a number */
  *wide = (uint64_t)(int64_t)n;
  return (*wide & 3) && (lua_Number)(int64_t)*wide == n;
}

static inline bool neap__read_first(lua_State *L, int index, uint64_t *wide) {
  return lua_type(L, index) == LUA_TNUMBER && neap__is_first(lua_tonumber(L, index), wide);
}

static inline void neap__push_plain(lua_State *L, uint64_t wide) {
  uint64_t generation = wide >> PERMIT_WIDE_BITS, bits;
  lua_Number n = (lua_Number)(int64_t)(wide & ((UINT64_C(1) << PERMIT_WIDE_BITS) - 1));
  memcpy(&bits, &n, sizeof bits);
  bits += generation << 53; /* twice that, to the exponent */
  memcpy(&n, &bits, sizeof n);
  lua_pushnumber(L, n);
}

static inline bool neap__read_plain(lua_State *L, int index, uint64_t *wide) {
  *wide = 0;
  if (lua_type(L, index) != LUA_TNUMBER) return false;
  lua_Number n = lua_tonumber(L, index);
  if (neap__is_first(n, wide)) return true;
  if (n == 0) return *wide = 0, true; /* one that was used */
  uint64_t bits;
  memcpy(&bits, &n, sizeof bits);
  uint64_t whole = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  int zeros = compat_zeros(whole), lowest = (int)(bits >> 52) - 1075 + zeros;
  if (!(n >= 1) || lowest < 0 || lowest >= 2 * PERMIT_GENERATIONS) return false;
  *wide = whole >> zeros << (lowest & 1) | (uint64_t)(lowest >> 1) << PERMIT_WIDE_BITS;
  return true;
}
#endif

uint64_t neap__check_ms(lua_State *L, int arg, const char *what);
uint64_t neap__opt_duration(lua_State *L, int arg, uint64_t otherwise);
uint64_t neap__check_count(lua_State *L, int arg, const char *what, uint64_t min, uint64_t max);
int64_t neap__opt_retry_after(lua_State *L, int arg);
uint32_t neap__check_epoch(lua_State *L, int arg);
neap_outcome neap__check_other_outcome(lua_State *L, int arg);

static inline bool neap__is_success(const char *name, size_t length) {
  return length == 7 && memcmp(name, "success", 7) == 0;
}

/* The outcome named at `arg`. */
static inline neap_outcome neap__check_outcome(lua_State *L, int arg) {
  if (lua_type(L, arg) == LUA_TSTRING) {
    size_t length;
    const char *name = lua_tolstring(L, arg, &length);
    if (neap__is_success(name, length)) return NEAP_SUCCESS;
  }
  return neap__check_other_outcome(L, arg);
}

neap_mode neap__check_mode(lua_State *L, int arg);
bool neap__read_mode(const char *name, neap_mode *out);

/* Raises "bad argument #arg to 'f' (what expected, got a string)". */
int neap__argument_error(lua_State *L, int arg, const char *what, const char *expected);

/* Pushes what is in the brackets. */
const char *neap__push_expected(lua_State *L, int index, const char *what, const char *expected);

/* ---- Converting answers ---------------------------------------------------------------------- */

/* A table; or nil if cause is NEAP_BY_NOTHING. */
void neap__push_moved(lua_State *L, const neap_transition *moved);
void neap__push_snapshot(lua_State *L, const neap_snapshot *snapshot);
const char *neap__reported_name(neap_reported reported);
/* How long until asking again may help: the cooldown's rest, or that of the operator's mode; 0:
 * unknown. */
uint64_t neap__retry_after(const neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                           neap_verdict verdict);

/* ---- Parts of the module: each adds its functions to the table on top of the stack ----------- */

void neap__open_panel(lua_State *L);
void neap__open_breaker(lua_State *L);
void neap__open_rules(lua_State *L);
void neap__open_permit(lua_State *L);
void neap__open_clock(lua_State *L);
void neap__open_line(lua_State *L);

#endif
