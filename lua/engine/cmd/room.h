/* room.h: for how many clients there is room.
 *
 * Every connection is an open file, and there may be so many (ulimit -n).  Without a file left an
 * upstream can't be connected to, which its breaker would take for a failure of the upstream's, and
 * a policy can't be read again: so clients are turned away before. */
#ifndef NEAP_CMD_ROOM_H
#define NEAP_CMD_ROOM_H

#include <stddef.h>
#include <stdint.h>

#define ROOM_ADMIN 64 /* clients of the admin pages: in an outage everybody has the page open */

/* How many clients of so many routes may be connected at once: what the files are enough for, at
 * most http_limits_default().connections.  Raises the limit of files as far as that needs and the
 * system lets it; *files is what it is then. */
uint32_t room_for_clients(size_t routes, uint64_t *files);

#endif
