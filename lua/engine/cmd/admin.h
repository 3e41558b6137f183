/* admin.h: the admin listener: requests to neap.cmd.pages in the engine's Lua, answers back. */
#ifndef NEAP_CMD_ADMIN_H
#define NEAP_CMD_ADMIN_H

#include "serve.h"
#include "token.h"

#define ADMIN_BODY_MAX 16384
#define EVENTS_KEPT    500 /* so many are there for a follower who is late, or comes back */

typedef struct page page;

struct admin {
  serve *serve;
  page *followers; /* requests whose answers have no end */
  uv_idle_t wake;
  uint64_t wakes, cut; /* cut: followers that took nothing for too long */
  bool is_ending;
  int handle; /* registry reference in the engine's Lua: function(request) -> answer */
  bool has_token;
  char token[TOKEN_MAX + 1];
};

static inline lua_State *admin_lua(const admin *a) { return neap_engine_lua(a->serve->engine); }

/* Makes the pages.  Errors: false, with one line in error[size]: a token file that will not do; Lua
 * that cannot. */
bool admin_open(serve *s, admin **out, char *error, size_t size);

/* To be given to the server: answers from the pages; data is the admin. */
extern const http_handler admin_handler;

/* Followers have something more to be sent. */
void admin_wake(admin *a);

/* Followers get what there is, and that is the end of it. */
void admin_end(admin *a);

/* Reads the token file again.  Errors: false, with one line in error[size]; the old token stays. */
bool admin_reload(admin *a, char *error, size_t size);

/* After the admin server is gone and before the engine closes. */
void admin_close(admin *a);

#endif
