/* sandbox.h: running a policy's functions so that they cannot take the host down.
 *
 *   box      one policy generation's right to run: a coroutine that its code never gets, and the
 *            budget of one decision in steps, bytes and processor time
 *   step     one instruction of the Lua machine, or eight units of work in a library function
 *   overrun  the budget is spent.  From then on the hook raises at every instruction, so no pcall
 *            of the policy's keeps it going, until the call is unwound
 *   arena    the engine's allocator: all of its Lua state under one cap
 *
 * What the budget bounds, and by what:
 *
 *   endless loops, recursion    the hook, every 200 steps; Lua's own limits on its stack, and one
 *                               on the C stack
 *   long work in one call       library functions charge for what they are about to do:
 *                               sandbox_strings.c, sandbox_match.c, sandbox_tables.c
 *   memory                      an allocator that stands in front of the state's own while a
 *                               decision runs: counts what is asked for, refuses one large piece
 *   slow instructions           processor time, looked at every 200 steps
 *
 * Threads. A Lua state is one thread's at a time; the box that runs is noted per thread.
 * Caveats. - Methods of strings, as in ("x"):rep(1e9), come from the state's one string metatable.
 *            Until neap__sandbox_strings() has replaced it they are the host's and charge nothing.
 *          - Values of the host that a policy is given are the host's own: what their metamethods
 *            do is charged, but not confined. */
#ifndef NEAP_SANDBOX_H
#define NEAP_SANDBOX_H

#include "compat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Adds box, run, classifier, budget, library, harden and fingerprint to the table on top of
 * the stack. */
int neap__open_sandbox(lua_State *L);

/* Gives all strings of the state the methods that charge and stay within budget, and no metatable
 * to be had.  For states that run policies and what belongs to them, nothing else. */
void neap__sandbox_strings(lua_State *L);

/* ---- Charging -------------------------------------------------------------------------------- */

#define NEAP__UNITS_PER_STEP  8
#define NEAP__UNITS_OF(bytes) ((size_t)(bytes) / 8 + 1)

/* Takes `units` of work from the decision that is running, if one is; raises if that is too much.
 * To be called before the work is done. */
void neap__charge(lua_State *L, size_t units);

/* To be called before a library function calls back: raises if the decision is too deep in C.  Lua
 * has a limit of its own there, LuaJIT has none. */
void neap__check_depth(lua_State *L);

/* ---- Classifiers, for those who ask at every call -------------------------------------------- */

/* If the function at `index` is one that core.classifier() made, pushes its box and the policy's
 * function. */
bool neap__classifier_parts(lua_State *L, int index);

/* Runs the policy's function f on a call, in its box; all are indices.  True: it says "success" and
 * no more.  Otherwise what core.run() answers is pushed, for neap__push_otherwise()'s function,
 * which is called with the call and that. */
bool neap__says_success(lua_State *L, int box, int f, int call);
void neap__push_otherwise(lua_State *L, int classifier);

/* ---- Arena ----------------------------------------------------------------------------------- */

struct neap__box;

/* All zero but `cap` will do. */
typedef struct neap__arena {
  size_t cap;     /* bytes */
  size_t reserve; /* of which policies should leave the last so many; 0: a quarter */
  size_t used, peak;
  struct neap__box *boxes; /* all in this state */
  bool crowded;            /* a decision has gone into the reserve */
  uint32_t weighed;        /* decisions, in the search for who hoards that is going on */
  size_t search_from;      /* used bytes from which on to search again */
  size_t collect_from;     /* ... to collect garbage again */
} neap__arena;

/* For lua_newstate(neap__arena_alloc, &arena).  The arena must outlive the state. */
void *neap__arena_alloc(void *arena, void *block, size_t old_size, size_t new_size);

/* ---- Between the sandbox's files ------------------------------------------------------------- */

typedef enum neap__overrun { WITHIN = 0, OVER_STEPS, OVER_BYTES, OVER_TIME } neap__overrun;

typedef struct neap__box {
  lua_State *co; /* kept by the box's first user value; NULL: to be made */
  neap__overrun over;
  bool running;         /* a decision is under way */
  bool condemned;       /* hoarded: runs no more */
  int64_t units, bytes; /* left, of the decision that runs */
  uint64_t deadline_ns; /* of processor time; 0: not known before the first slice is over */
  uintptr_t c_stack;    /* where it was when the decision began */
  uint64_t looked_ns;   /* at the monotonic clock, when the deadline was set */
  lua_Alloc alloc;      /* the state's own, while a decision runs */
  void *alloc_data;
  uint32_t slice; /* steps */
  uint32_t budget_steps, budget_ms;
  int64_t budget_bytes;
  size_t weighed_from;           /* used bytes before a decision that is weighed; 0: it is not */
  size_t kept;                   /* bytes that were not garbage after such decisions */
  const char *success, *neutral; /* the strings, kept by the box's classifier */
  neap__arena *arena;            /* NULL: the state has another allocator */
  struct neap__box *next;
} neap__box;

#define NEAP__RESULTS 4 /* the most that a decision answers */

void neap__open_box(lua_State *L);
void neap__add_classifier(lua_State *L);
neap__box *neap__check_box(lua_State *L, int arg);

/* Runs the function and its arguments on top of the stack, in the box at `index`.  Answers how many
 * results are now on the box's coroutine; or -1, and false, message, kind are in their place. */
int neap__box_run(lua_State *L, int index, neap__box *b, int args);

/* Whether this thread is in the middle of a decision. */
bool neap__box_is_running(void);

void neap__arena_join(lua_State *L, neap__box *b);
void neap__arena_leave(neap__box *b);

/* Before and after a decision of a crowded arena. */
void neap__arena_weigh(neap__arena *arena, lua_State *L, neap__box *b);
void neap__arena_weighed(neap__arena *arena, lua_State *L, neap__box *b);

/* digest(text) -> 64 hexadecimal digits, its SHA-256 */
int neap__l_digest(lua_State *L);

/* Push a table of functions, made anew at each call. */
void neap__push_string_library(lua_State *L);
void neap__push_table_library(lua_State *L);

/* Adds find, match, gmatch and gsub to the table on top of the stack. */
void neap__add_pattern_functions(lua_State *L);

/* A position in a string as Lua counts it, from 1, or from the end if negative: as one from 0, at
 * most its length. */
size_t neap__from_position(lua_Integer i, size_t length);

#define NEAP__MATCH_CAPTURES 32

/* A Lua pattern against a subject.  `subject`, `subject_end` and `pattern_end` are set once,
 * `count` and `depth` to 0 before each try. */
typedef struct neap__match {
  lua_State *L;
  const char *subject, *subject_end, *pattern_end;
  int depth; /* of recursion: grows with the pattern, not with the subject */
  int count;
  struct {
    const char *at;
    ptrdiff_t length; /* or CAPTURE_OPEN, CAPTURE_POSITION */
  } capture[NEAP__MATCH_CAPTURES];
} neap__match;
enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

/* Where the pattern from p on, tried at s, ends; NULL if it doesn't match.  Charges for each
 * character it looks at.  Raises on a pattern that is none. */
const char *neap__match_here(neap__match *m, const char *s, const char *p);

#endif
