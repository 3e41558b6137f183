/* route.h: which route a request takes. */
#ifndef NEAP_CMD_ROUTE_H
#define NEAP_CMD_ROUTE_H

#include "http/http.h"
#include "plan.h"

/* The index of the first route for this host and target, or -1.  Routes stand in the order in which
 * they are to be tried: neap.cmd.plan puts the more particular first. */
int route_find(const plan *p, http_slice host, http_slice target);

#endif
