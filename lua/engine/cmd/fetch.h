/* fetch.h: one HTTP request, waited for: how the command's Lua asks a neap that runs. */
#ifndef NEAP_CMD_FETCH_H
#define NEAP_CMD_FETCH_H

#include <lua.h>

/* Lua function fetch(method, url, token | nil, body | nil) -> status, body | nil, message.  The body
 * is sent as JSON; an answer is at most 64 MiB. */
int fetch_l_fetch(lua_State *L);

#endif
