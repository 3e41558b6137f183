/* events.h: what happens, for those who follow it: GET /events.  The feed itself is neap.cmd.events, in the
 * engine's Lua. */
#ifndef NEAP_CMD_EVENTS_H
#define NEAP_CMD_EVENTS_H

#include "serve.h"

/* After the engine is open, and before anything can happen.  Errors: false, with one line in
 * error[size]: Lua that cannot. */
bool events_open(serve *s, char *error, size_t size);

#endif
