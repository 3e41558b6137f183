/* line.h: one key of a guard at work; what its fast paths in C share.
 *
 * The closed and healthy case of a call stays in C and allocates nothing.  Everything else is Lua's
 * (neap/line.lua): the methods call its hooks, and hand them what is on the stack. */
#ifndef NEAP_LINE_H
#define NEAP_LINE_H

#include "binding.h"

typedef struct line {
  neap_breaker *breaker;
  const box_panel *panel;
  const neap_rules *rules; /* the newest; NULL before the first adopt */
  neap_clock clock;        /* .now_ms NULL: LINE_CLOCK, a Lua function */
  const void *generation;  /* identity of the newest policy */
  const void *self;        /* identity of the table that has the methods */
  uint64_t deadline_ms;    /* of the call that began last; 0: none */
  uint32_t timeout_ms;     /* 0: none */
  uint32_t number;         /* of the generation, its low bits */
  uint32_t concurrent;     /* so many calls at once; 0: any number */
  uint32_t in_flight;      /* with a slot, which their permits give back */
  uint64_t rejected;       /* for want of one */
  uint64_t begun;          /* acquired by themselves: calls of a guard that retries */
  uint32_t held;           /* permits that are out, of those that hold something */
  bool is_counted;         /* all do: the line may make room for another when none is out */
  bool is_keyed;           /* the policy says whose breaker a call's is: acquire asks it */
  bool is_layered;         /* there is more around a call than its breaker and its timeout */
  bool has_classify;       /* M_CLASSIFY judges every call */
  bool has_trip;           /* a Lua rule wants to see what is slow */
  bool has_run;            /* LINE_RUN enforces the timeout */
  bool keeps;              /* f and its arguments, for classify or the fallback chain */
  bool remembers;          /* good answers are stored */
  struct neap__box *box;   /* M_BOX */
  bool is_lent;            /* M_CALL is in use, outside of a box */
  int lent_args;           /* .n of M_ARGS */
  uint64_t lent_ms;        /* .duration_ms of M_FIELDS */
  neap_flight *flight;     /* `own`, if the rules ask for slow calls; else NULL */
  uint64_t overdue;        /* calls that it has counted since a Lua rule looked */
  neap_flight own;
} line;

/* Refs of the line. */
enum {
  LINE_BREAKER = 1,
  LINE_GENERATION,
  LINE_RULES,
  LINE_CLOCK,
  LINE_RUN,
  LINE_METHOD, /* the method that classifies: its M_GENERATION to M_FUNCTION are the newest */
  LINE_REFS = LINE_METHOD
};

/* Upvalues of the methods.  What a policy's classify sees of a plain success is M_CALL, empty and
 * read-only, through which M_FIELDS is seen: the same tables for every call, so that nothing is
 * allocated. */
enum {
  M_LINE = 1,
  M_OWNER,    /* the table that Lua keeps for the line: the first argument of every hook */
  M_REFUSE,   /* (owner, reason, retry_after_ms, moved, frame, f, ...) -> what call answers */
  M_REFUSED,  /* (owner, reason, retry_after_ms, moved) -> what acquire answers */
  M_MOVED,    /* (owner, moved) */
  M_SETTLE,   /* (owner, frame, permit, ended, a, b, outcome, reason, retry_after_ms, fault, f, ...)
                 -> what call answers */
  M_REMEMBER, /* (owner, a, f, ...) */
  M_ACQUIRE,  /* (owner, key) -> what acquire answers */
  M_REPORT,   /* (owner, permit, call) -> what report answers */
  M_LAYERED,  /* (owner, frame, nil, f, ...) -> what call answers, if the line is layered */
  M_GENERATION,
  M_CLASSIFY,
  M_BOX, /* of M_CLASSIFY, if it is a sandbox's, as the next; else nil */
  M_FUNCTION,
  M_CALL,
  M_FIELDS,
  M_ARGS,   /* M_FIELDS.args */
  M_RESULT, /* names of fields */
  M_DURATION,
  M_COUNTED, /* "counted" */
  M_COUNT = M_COUNTED
};

static inline line *method_line(lua_State *L) {
  return (line *)lua_touserdata(L, lua_upvalueindex(M_LINE));
}

static inline void push_ref(lua_State *L, int ref) {
  compat_getref(L, lua_upvalueindex(M_LINE), ref);
}

/* Makes .n of M_ARGS, which is at `args`. */
void neap__set_lent_count(lua_State *L, int args, int count);

/* Asks LINE_CLOCK of the line at `index`. */
uint64_t neap__line_ask(lua_State *L, int index);

static inline uint64_t line_now(lua_State *L, const line *n, int index) {
  return n->clock.now_ms ? n->clock.now_ms(n->clock.context) : neap__line_ask(L, index);
}

static inline uint64_t method_now(lua_State *L, const line *n) {
  return line_now(L, n, lua_upvalueindex(M_LINE));
}

#define LINE_CLOSED    "the guard's panel is closed"
#define LINE_NO_METHOD "%s is its guard's method: write guard:%s(...), with a colon"

static inline void check_open(lua_State *L, const line *n) {
  if (n->panel && !n->panel->panel) luaL_error(L, LINE_CLOSED);
}

static inline void check_self(lua_State *L, const line *n, const char *method) {
  if (lua_topointer(L, 1) != n->self) luaL_error(L, LINE_NO_METHOD, method, method);
  check_open(L, n);
}

/* What acquire answers when every slot is taken: beside those of neap_verdict. */
#define LINE_FULL ((neap_verdict)100)

neap_verdict neap__acquire_counted(line *n, uint64_t now_ms, neap_permit *permit,
                                   neap_transition *moved);

/* As neap_breaker_acquire(), behind the bulkhead and through the flight if there are any. */
static inline neap_verdict line_acquire(line *n, uint64_t now_ms, neap_permit *permit,
                                        neap_transition *moved) {
  if (n->concurrent || n->flight) return neap__acquire_counted(n, now_ms, permit, moved);
  return neap_breaker_acquire(n->breaker, n->rules, now_ms, permit, moved);
}

/* As neap_breaker_report(), through the flight if there is one. */
static inline neap_reported line_report(const line *n, uint64_t now_ms, uint64_t began_ms,
                                        neap_permit *permit, const neap_call *call,
                                        neap_transition *moved) {
  if (n->flight)
    return neap_flight_report(n->flight, n->breaker, n->rules, now_ms, began_ms, permit, call,
                              moved);
  return neap_breaker_report(n->breaker, n->rules, now_ms, permit, call, moved);
}

static inline const char *line_refusal(neap_verdict verdict) {
  return verdict == LINE_FULL ? "bulkhead" : neap_verdict_name(verdict);
}

/* Whether what line_acquire() gave holds something. */
static inline bool line_holds(const line *n, neap_verdict verdict) {
  return verdict == NEAP_ALLOW_PROBE || n->concurrent || n->is_counted;
}

/* Pushes a userdata that holds the permit and, unreported, gives it back, with its slot.  The line
 * is at `index`, its owner at `owner`; `frame` 0: the newest generation.  Indices are absolute. */
void neap__push_held(lua_State *L, line *n, neap_permit permit, uint64_t now_ms, int index,
                     int owner, int frame);

/* Calls a method's hook moved. */
void neap__tell_moved(lua_State *L, const neap_transition *moved);

/* A call under way, with a permit that holds nothing if `wide` is not 0. */
typedef struct line_call {
  line *line;
  const void *generation; /* identity of the frame: lua/src/call.c */
  uint64_t wide;
  int f, kept; /* f and its arguments: so many, from there on */
  bool hosted;
} line_call;

static inline bool neap__is_callable(lua_State *L, int index) {
  if (lua_type(L, index) == LUA_TFUNCTION) return true;
  if (!luaL_getmetafield(L, index, "__call")) return false;
  lua_pop(L, 1);
  return true;
}

/* What a call comes to whose two results are at a.  NEAP__SUCCEEDED: it is counted, and the stack is
 * as before.  Otherwise it is settle's: *ended is how the call ended, and the answer where the
 * policy's verdict is, the top of the stack; or 0. */
#define NEAP__SUCCEEDED (-1)
int neap__succeed(lua_State *L, const line_call *c, int a, const char **ended);

/* The methods. */
#if COMPAT_HAS_PCALLK
int neap__l_call(lua_State *L);
int neap__l_call_in(lua_State *L);
#else
int neap__l_begin(lua_State *L);
int neap__l_finish(lua_State *L);
#endif
int neap__l_acquire(lua_State *L);
int neap__l_report(lua_State *L);
int neap__l_deadline(lua_State *L);

#endif
