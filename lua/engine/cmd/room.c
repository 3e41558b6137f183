/* room.c: files = SPARE + a client each + an upstream call for each client, at most CALLS a route. */
#include "room.h"

#include <sys/resource.h>

#include "http/http.h"

#define SPARE (48 + ROOM_ADMIN) /* listeners, the loop's own, policies being read, lookups */
#define CALLS 1024              /* as proxy_options.connections */
#define LEAST 16 /* clients; with fewer files than that takes, nothing works anyway */

static uint64_t raise_files(uint64_t wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return wanted;
  if (limit.rlim_cur < wanted) {
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : (rlim_t)wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit)) limit.rlim_cur = before;
  }
  return limit.rlim_cur;
}

uint32_t room_for_clients(size_t routes, uint64_t *files) {
  const uint32_t most = http_limits_default().connections;
  const uint64_t calls = routes * CALLS < most ? routes * CALLS : most;
  *files = raise_files(SPARE + most + calls);
  uint64_t room = *files > SPARE ? *files - SPARE : 0;
  uint64_t clients = room / 2 < calls ? room / 2 : room - calls;
  if (clients < LEAST) clients = LEAST;
  return clients < most ? (uint32_t)clients : most;
}
