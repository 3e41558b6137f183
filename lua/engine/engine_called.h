/* engine_called.h: for whoever records calls, in the neap program.  No part of engine.h: what is told
 * here goes with what neap.replay has to know. */
#ifndef NEAP_ENGINE_CALLED_H
#define NEAP_ENGINE_CALLED_H

#include "neap/engine.h"

/* A call that has ended, or was refused; or an answer that a stage of the policy's gave instead. */
typedef struct engine_called {
  neap_guard *guard;
  const char *key;
  size_t key_length;
  uint64_t now_ms, began_ms; /* on the engine's clock; of a refusal they are one */
  uint64_t duration_ms;
  neap_verdict refused;      /* NEAP_ALLOW: it was made */
  const neap_result *result; /* NULL: refused, or given back without having been made */
  neap_outcome outcome;
  int64_t retry_after_ms;
  const neap_answer *answer; /* NULL: it is a call */
} engine_called;

/* Tells it of each from now on, after the report; NULL: no more. */
void engine_on_call(neap_engine *e, void (*on_call)(void *data, const engine_called *called),
                    void *data);

uint64_t engine_clock_ms(const neap_engine *e);

/* What the policy in force is known by: `number` changes with each reload. */
typedef struct engine_policy {
  uint32_t number;
  uint64_t seed;
  char hash[32];
} engine_policy;
uint32_t engine_policy_number(const neap_guard *g);
engine_policy engine_policy_of(neap_guard *g);

#endif
