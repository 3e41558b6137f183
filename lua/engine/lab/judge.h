/* judge.h: what a policy says of a call in a log: whose breaker it is, and what it came to.
 *
 * The same functions that serve at work are asked: the policy's key and classify, in their sandbox;
 * a shipped classifier only once for each status and ending, as it goes by nothing else there. */
#ifndef NEAP_LAB_JUDGE_H
#define NEAP_LAB_JUDGE_H

#include <lua.h>

#include "fields.h"
#include "lane.h"

#define JUDGE_ENDS     6
#define JUDGE_STATUSES 1000

/* A policy. */
typedef struct judge {
  int classify, key; /* refs; key LUA_NOREF: it has none */
  bool is_pure;      /* classify goes by status and ending alone, where a call has no more to it */
  bool takes_keys;   /* the log's key goes before the policy's function */
  uint32_t timeout_ms; /* 0: none */
  char name[104], hash[32];
  uint8_t known[JUDGE_ENDS][JUDGE_STATUSES]; /* an outcome, and 1; 0: not asked yet */
  uint64_t faults, others, by_record;
  char fault[160]; /* the first */
} judge;

/* The tables that policies see a call through, on the stack from `base` on: JUDGE_SLOTS of them. */
typedef struct judge_scope {
  lua_State *L;
  int base;
  const lab_call *call;
  bool has_request; /* it was asked for */
} judge_scope;
#define JUDGE_SLOTS 4

void judge_open(judge_scope *s, lua_State *L);
void judge_close(judge_scope *s);

/* From here on it is about that call. */
void judge_enter(judge_scope *s, const lab_call *call);

/* false: it is another policy's. */
bool judge_takes(judge *j, const lab_call *call);

uint32_t judge_key(judge *j, judge_scope *s, lane *l);
lane_call judge_call(judge *j, judge_scope *s);

#endif
