/* numbers.h: what the program counts about itself, for the metrics page. */
#ifndef NEAP_CMD_NUMBERS_H
#define NEAP_CMD_NUMBERS_H

#include "serve.h"

/* Pushes { server = {…}, admin = {…}, routes = { { name =, … } … }, process = {…} } on L, whichever
 * Lua that is. */
void numbers_push(lua_State *L, serve *s);

#endif
