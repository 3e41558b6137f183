/* nginx.h: the requests of neap.nginx. */
#ifndef NEAP_NGINX_H
#define NEAP_NGINX_H

#include "lua.h"

#define NEAP__NGX_REQUESTS "neap.requests"

/* Adds requests to the table on top of the stack, where there can be any. */
void neap__open_nginx(lua_State *L);

/* requests:lend(panel), requests:borrow(path) */
int neap__nginx_lend(lua_State *L);
int neap__nginx_borrow(lua_State *L);

#endif
