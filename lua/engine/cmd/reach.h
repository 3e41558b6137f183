/* reach.h: is there anybody at the upstream's address?  Asked at the start, to say so while somebody
 * is watching, and again until there is. */
#ifndef NEAP_CMD_REACH_H
#define NEAP_CMD_REACH_H

#include <uv.h>

/* Looks the host up and connects.  `done` is called from the loop, with NULL or why it did not
 * work; keeps the loop running until then, at most limit_ms. */
void reach_try(uv_loop_t *loop, const char *host, const char *port, uint64_t limit_ms,
               void (*done)(void *data, const char *failure), void *data);

#endif
