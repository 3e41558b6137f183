/* serve.h: `neap serve`: from a plan to a running sidecar, and back to nothing.
 *
 *   start   engine, routes, listeners, admin, in this order: nothing listens before everything is
 *           ready
 *   run     requests go to the first route that matches
 *   drain   SIGTERM, SIGINT (unless inherited as ignored): stop accepting, let requests end, at
 *           most drain_ms; then take all down in reverse
 */
#ifndef NEAP_CMD_SERVE_H
#define NEAP_CMD_SERVE_H

#include "http/http.h"
#include "log.h"
#include "plan.h"

typedef struct admin admin;
typedef struct trial trial;
typedef struct recorder recorder;

typedef struct serve {
  uv_loop_t loop;
  lua_State *L; /* the command's: plan and log.  The policies' is the engine's */
  plan plan;
  neap_engine *engine;
  proxy_route **routes; /* one for each of plan.routes; NULL: not open */
  size_t routes_open;
  http_server *server, *admin_server;
  admin *admin;
  recorder *recorder;      /* NULL: calls are not recorded */
  struct webhook *webhook; /* NULL: none */
  uv_signal_t signals[3];
  trial *trials;        /* upstreams that were not reached yet */
  uint32_t clients;     /* that may be connected at once */
  uint64_t files;       /* that may be open, as far as clients goes by that */
  uint64_t overload_ms; /* when it was last said that there are too many; 0: never */
  uint64_t no_route_ms; /* likewise, that no route is for a queued call */
  bool is_draining, is_stopped;
} serve;

/* Serves until a signal ends it.  The plan's table is at `index`.  Answers the exit status. */
int serve_run(lua_State *L, int index);

/* Looks at policies, parameters and token file again, as SIGHUP does.  Answers how many policies
 * have a new generation; *failed are refused, and error[size] says what is wrong with the token
 * file, if anything. */
size_t serve_reload(serve *s, size_t *failed, char *error, size_t size);

#define serve_log(s, level, event, ...)                                                            \
  log_line((s)->L, (s)->plan.log, level, event, NULL, 0, __VA_ARGS__)

#endif
