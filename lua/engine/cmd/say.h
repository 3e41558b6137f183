/* say.h: what goes to the log of a running neap. */
#ifndef NEAP_CMD_SAY_H
#define NEAP_CMD_SAY_H

#include "serve.h"

/* Of the engine: to be its on_event and on_log; data is the serve. */
void say_event(void *data, const neap_event *event);
void say_line(void *data, neap_log_level level, const char *line);

/* Routes, policies that no route uses, addresses. */
void say_hello(serve *s);

/* Tries every upstream, and warns of those that cannot be reached, when that is known. */
void say_unreachable(serve *s);

#endif
