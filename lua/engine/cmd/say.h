/* say.h: what goes to the log of a running neap. */
#ifndef NEAP_CMD_SAY_H
#define NEAP_CMD_SAY_H

#include "serve.h"

/* Of the engine: to be its on_event and on_log; data is the serve. */
void say_event(void *data, const neap_event *event);
void say_line(void *data, neap_log_level level, const char *line);

/* Routes, policies that no route uses, addresses. */
void say_hello(serve *s);

/* A client was turned away, there being too many: once a minute. */
void say_overload(serve *s);

/* A queued call can't be made, as no route is for it: once a minute. */
void say_no_route(serve *s, const neap_queued *q);

/* Tries every upstream, warns of those that cannot be reached, when that is known, and says when
 * they can be: they are tried again until then. */
void say_unreachable(serve *s);

/* Tries none again.  One that is being tried may still be for a while; nothing is said of it. */
void say_no_more(serve *s);

#endif
