/* nginx.h: the requests of neap.nginx. */
#ifndef NEAP_NGINX_H
#define NEAP_NGINX_H

#include "lua.h"

/* Adds requests to the table on top of the stack, where there can be any. */
void neap__open_nginx(lua_State *L);

#endif
