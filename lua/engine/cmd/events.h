/* events.h: what happens, for those who follow it: GET /events, and the webhook.  What is told to
 * whom, and when again, is neap.cmd.events, in the engine's Lua. */
#ifndef NEAP_CMD_EVENTS_H
#define NEAP_CMD_EVENTS_H

#include "serve.h"

/* After the engine is open, and before anything can happen.  Errors: false, with one line in
 * error[size]: a webhook that will not do; Lua that cannot. */
bool events_open(serve *s, char *error, size_t size);

/* Reads the webhook's token file again.  Errors: false, with one line in error[size]; the old token
 * stays. */
bool events_reload(serve *s, char *error, size_t size);

/* Before the engine closes. */
void events_close(serve *s);

#endif
