/* engine_internal.h: what the files of the engine share.
 *
 *   engine.c           opening, closing, guards by name
 *   engine_lua.c       the Lua state: memory, modules, luv, protected calls
 *   engine_guard.c     lines by key, acquire, report
 *   engine_call.c      a result as the policy's `call` table
 *   engine_answer.c    the fallback chain: an answer of Lua's as a block of C memory
 *   engine_remember.c  good answers: which may be kept, and for whom
 *   engine_durable.c   queued calls, answers at once, kept answers as text
 *   engine_operate.c   snapshot, mode, reset, reload
 *   engine_event.c     events and log lines
 *   engine_called.c    calls, for whoever records them
 *   neap/engine.lua    the Lua half: policies, guards, hot reload
 *
 * One lua_State, entered from one thread only.  Every entry is one protected call (engine_run) that
 * leaves the stack as it found it; what could raise happens inside of it. */
#ifndef NEAP_ENGINE_INTERNAL_H
#define NEAP_ENGINE_INTERNAL_H

#include <assert.h>
#include <uv.h>

#include "lauxlib.h"
#include "lua.h"

#include "engine_called.h"
#include "neap/engine.h"
#include "sandbox.h"

/* One key of a guard. */
typedef struct engine_line engine_line;
struct engine_line {
  engine_line *next;
  neap_breaker *breaker; /* of the panel, which the engine keeps */
  struct line *native;   /* the Lua line's: its bulkhead, and how many calls have begun */
  int ref;               /* of the line in Lua */
  const char *prefix;    /* of the identities of its last good answers; behind the key */
  size_t prefix_length;
  size_t length;
  char key[];
};
#define ENGINE_BUCKETS 64

/* An answer that has just been remembered. */
typedef struct engine_kept {
  uint64_t identity, content; /* hashes */
  uint64_t at_ms;
} engine_kept;
#define ENGINE_KEPT 256

/* Whoever waits for a queued call to be on the disk. */
typedef struct engine_waiter engine_waiter;

struct neap_guard {
  neap_engine *engine;
  neap_guard *next;        /* in the order they came */
  int ref;                 /* of the Lua guard */
  const neap_rules *rules; /* the newest */
  uint32_t number;         /* of the newest generation */
  uint32_t timeout_ms;
  uint32_t deadline_ms;
  uint32_t wait_ms; /* for a slot of the bulkhead */
  bool retries;     /* it has a retry section */
  uint32_t causes;  /* bits of neap_fallback_cause that ask the chain */
  engine_line *lines[ENGINE_BUCKETS];
  engine_kept kept[ENGINE_KEPT]; /* by hash of the identity */
  uint32_t same_ms;              /* for so long the same answer need not be remembered again */
  bool maps;                     /* it has a key function */
  bool classifies;               /* it has a classify of its own, */
  bool asks;    /* or wants to see every call: for a trip or decide function, or a shadow, */
  bool shadows; /* which wants to see refusals, too */
  bool wants_body;
  bool revalidates; /* it may have an answer before anybody is asked */
  bool remembers;   /* it has a last_good stage, */
  bool has_keys;    /* with a key function */
  int first_good;   /* ref: asks the chain's first stage, if that is one without; or LUA_NOREF */
  char reason[256]; /* of the last verdict */
  char name[];
};

typedef struct engine_scope {
  const neap_request *request;
  const neap_result *result;
  bool is_private; /* the answer has no identity that others may ask for */
} engine_scope;

struct neap_engine {
  lua_State *L;
  uv_loop_t *loop;
  uv_thread_t owner;
  neap__arena arena;
  neap_clock clock;
  neap_guard *guards, **guards_end;

  void (*on_event)(void *data, const neap_event *event);
  void (*on_log)(void *data, neap_log_level level, const char *line);
  void (*on_replay)(void *data, const neap_queued *queued);
  void *data;
  engine_waiter *waiters;
  void (*on_call)(void *data, const engine_called *called); /* NULL: nobody records them */
  void *on_call_data;

  int module;            /* ref of neap.engine */
  const void *kept_meta; /* the metatable of kept answers */
  /* What the shipped classifier says of an answer with status 200 + i and nothing else to it. */
  bool is_success[200];
  engine_scope scope; /* what the call table stands for, during a call into Lua */

  unsigned depth; /* calls into Lua under way, each within the one before */

  uint64_t faults, fault_ms; /* how many calls into Lua failed; when that was logged */

  bool is_closing;
  uv_timer_t closer; /* waits until all handles of Lua's are closed */
  void (*closed)(void *data);
  void *closed_data;
};

/* One thread, always the same. */
static inline void engine_assert_owner(const neap_engine *e) {
  uv_thread_t self = uv_thread_self();
  assert(uv_thread_equal(&e->owner, &self));
  (void)e, (void)self;
}

/* The engine that a state belongs to. */
static inline neap_engine *engine_of(lua_State *L) { return *(neap_engine **)lua_getextraspace(L); }

static inline uint64_t engine_now_ms(const neap_engine *e) {
  return e->clock.now_ms(e->clock.context);
}

/* ---- engine_lua.c ---------------------------------------------------------------------------- */

/* A state with everything in it but policies; false: see the log. */
bool engine_lua_open(neap_engine *e, size_t memory_bytes);

/* Begins to close every handle and cancels every request that Lua has on the loop. */
void engine_lua_release(neap_engine *e);

/* How many are left. */
int engine_lua_held(neap_engine *e);

/* Runs f(L) with `argument` as its light userdata, protected, nothing in and nothing out. */
bool engine_run(neap_engine *e, lua_CFunction f, void *argument, const char *what);

/* ---- engine_event.c -------------------------------------------------------------------------- */

void engine_log(neap_engine *e, neap_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Lua functions: notify(event table), log(level, line). */
int engine_l_notify(lua_State *L);
int engine_l_log(lua_State *L);

/* ---- engine_call.c --------------------------------------------------------------------------- */

/* What is said from here on is about that; answers what it was about, for engine_leave(). */
static inline engine_scope engine_enter(neap_engine *e, const neap_request *request,
                                        const neap_result *result, bool is_private) {
  engine_scope outer = e->scope;
  e->scope = (engine_scope){request, result, is_private};
  return outer;
}

static inline void engine_leave(neap_engine *e, engine_scope outer) { e->scope = outer; }

/* Pushes the call table for the scope. */
void engine_push_call(lua_State *L);

/* Adds the metatables that it needs, once. */
void engine_open_call(lua_State *L);

/* Pushes a function of neap.engine. */
void engine_push_function(lua_State *L, const char *name);

/* ---- engine_guard.c -------------------------------------------------------------------------- */

/* The line of that key (NULL: the default one), made if there is none and it may be; else NULL. */
engine_line *engine_line_of(neap_guard *g, const char *key, size_t length, bool may_make);

void engine_guard_free(neap_guard *g);

/* Lua function: forget(handle, key), of a key whose line is gone. */
int engine_l_forget(lua_State *L);

/* ---- engine_called.c ------------------------------------------------------------------------- */

/* A stage has answered: for whoever records it. */
void engine_record_answer(neap_guard *g, const engine_line *l, const neap_answer *answer);

/* ---- engine_remember.c ----------------------------------------------------------------------- */

/* Whether it asks for an answer that is made now. */
bool engine_wants_new(const neap_request *request);

/* Lua function: has_etag(kept answer, etag). */
int engine_l_has_etag(lua_State *L);

/* Pushes what tells the answer to e's request from all others, after a prefix, or nil. */
void engine_push_identity(lua_State *L, const neap_engine *e, const char *prefix, size_t length);

/* ---- engine_answer.c ------------------------------------------------------------------------- */

/* Pushes a copy of an answer, to be kept, and answers how many bytes it takes. */
size_t engine_push_kept(lua_State *L, const neap_answer *answer);

/* The kept answer at `index`, or NULL if there is none; and a copy of it in C memory, or an error. */
const neap_answer *engine_kept_answer(lua_State *L, int index);
void engine_read_kept(lua_State *L, int index, neap_answer *answer);

/* Adds the metatable that it needs, once. */
void engine_open_answer(lua_State *L);

/* ---- engine_durable.c ------------------------------------------------------------------------ */

/* Lua functions: kept(pending, is_kept), replay(handle, key, id, request, token), pack(kept answer)
 * and unpack(text). */
int engine_l_kept(lua_State *L);
int engine_l_replay(lua_State *L);
int engine_l_pack(lua_State *L);
int engine_l_unpack(lua_State *L);

/* Tells all who wait that they do so in vain. */
void engine_close_durable(neap_engine *e);

#endif
