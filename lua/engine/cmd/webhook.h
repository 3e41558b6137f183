/* webhook.h: posts one event at a time to the plan's webhook.  Which, and when again, is
 * neap.cmd.webhook's business.
 *
 *   webhook_post --> transfer --> told, on a turn of the loop of its own: a status, or why there is none */
#ifndef NEAP_CMD_WEBHOOK_H
#define NEAP_CMD_WEBHOOK_H

#include "serve.h"

typedef struct webhook webhook;

/* status 0: no answer, and error says why.  error is valid during the call. */
typedef void (*webhook_told)(void *data, int status, const char *error);

/* Errors: false, with one line in error[size]: a URL or a token file that will not do. */
bool webhook_open(serve *s, webhook_told told, webhook **out, char *error, size_t size);

/* Sends that body; nothing else is under way.  Both texts are copied. */
void webhook_post(webhook *w, const char *id, const char *body, size_t length);

/* Reads the token file again.  Errors: false, with one line in error[size]; the old token stays. */
bool webhook_reload(webhook *w, char *error, size_t size);

/* Gives up what is under way, and told is not called any more.  NULL: nothing. */
void webhook_close(webhook *w);

#endif
