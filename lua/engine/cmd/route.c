/* route.c: a host matches without its port and without regard to case; a prefix matches whole path
 * segments: "/flags" is for /flags, /flags/x and /flags?x, not for /flagship. */
#include "route.h"

#include <string.h>
#include <strings.h>

static http_slice without_port(http_slice host) {
  size_t end = host.length;
  while (end > 0 && host.data[end - 1] >= '0' && host.data[end - 1] <= '9') end--;
  if (end > 0 && host.data[end - 1] == ':') host.length = end - 1;
  if (host.length > 0 && host.data[host.length - 1] == '.')
    host.length--; /* the root, written out */
  return host;
}

static bool host_matches(const char *wanted, http_slice host) {
  if (!wanted) return true;
  host = without_port(host);
  return strlen(wanted) == host.length && strncasecmp(wanted, host.data, host.length) == 0;
}

static bool prefix_matches(const char *prefix, http_slice target) {
  if (!prefix) return false;
  size_t length = strlen(prefix);
  if (length == 1) return true; /* "/": also for "*" */
  if (target.length < length || memcmp(target.data, prefix, length) != 0) return false;
  return prefix[length - 1] == '/' || target.length == length ||
         strchr("/?#", target.data[length]) != NULL;
}

int route_find(const plan *p, http_slice host, http_slice target) {
  for (size_t i = 0; i < p->route_count; i++)
    if (host_matches(p->routes[i].host, host) && prefix_matches(p->routes[i].prefix, target))
      return (int)i;
  return -1;
}
