/* plan.h: what `neap serve` was asked to do, as neap.cmd worked it out: read from its table.
 *
 * Owns: every text belongs to the table, which the command's Lua state keeps. */
#ifndef NEAP_CMD_PLAN_H
#define NEAP_CMD_PLAN_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct plan_address {
  const char *host; /* a literal address; NULL: do not listen */
  int port;
  const char *text; /* as it was written */
} plan_address;

typedef struct plan_route {
  const char *name, *key;
  const char *host;   /* in lower case; NULL: any */
  const char *prefix; /* of the path, ends at a segment's end; NULL: no client's request */
  const char *upstream, *upstream_host, *upstream_port;
  const char *policy;
  const char *ca_file;
  uint32_t connect_ms, answer_ms;
  bool http2, serves; /* serves: the fallbacks of other policies */
} plan_route;

typedef struct plan_webhook {
  const char *origin; /* NULL: none */
  const char *host;   /* with the port, as for the field Host */
  const char *target; /* path and query */
  const char *token_file;
} plan_webhook;

typedef struct plan {
  plan_address listen, admin;
  const char *token_file, *state_dir; /* NULL: none */
  plan_webhook webhook;
  const char **policies, **params; /* files */
  size_t policy_count, param_count;
  plan_route *routes; /* the one to try first, first */
  size_t route_count;
  uint64_t drain_ms;
  const char *record; /* file of calls; NULL: none */
  uint64_t record_bytes;
  uint32_t record_files;
  uint32_t max_breakers;
  int log; /* registry reference */
} plan;

/* Reads the table at `index`, which stays referenced. */
void plan_read(lua_State *L, int index, plan *out);
void plan_free(plan *p);

/* How many routes have that policy. */
size_t plan_routes_of(const plan *p, const char *policy);

#endif
