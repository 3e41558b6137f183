/* admin.h: the admin listener: requests to neap.cmd.pages in the engine's Lua, answers back. */
#ifndef NEAP_CMD_ADMIN_H
#define NEAP_CMD_ADMIN_H

#include "serve.h"

#define ADMIN_BODY_MAX 16384

/* Makes the pages.  Errors: false, with one line in error[size]: a token file that will not do; Lua
 * that cannot. */
bool admin_open(serve *s, admin **out, char *error, size_t size);

/* To be given to the server: answers from the pages; data is the admin. */
extern const http_handler admin_handler;

/* Reads the token file again.  Errors: false, with one line in error[size]; the old token stays. */
bool admin_reload(admin *a, char *error, size_t size);

/* After the admin server is gone and before the engine closes. */
void admin_close(admin *a);

#endif
