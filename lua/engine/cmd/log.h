/* log.h: log lines from C.  What a line looks like is neap.cmd.log's business. */
#ifndef NEAP_CMD_LOG_H
#define NEAP_CMD_LOG_H

#include <lua.h>
#include <stddef.h>

/* One field of a line: text, or a number if text is NULL. */
typedef struct log_field {
  const char *name;
  const char *text;
  double number;
} log_field;

typedef enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR } log_level;

/* Writes one line.  `log` is the registry reference of a neap.cmd.log object in L.  Never fails: if
 * Lua cannot, the message goes to stderr bare. */
void log_line(lua_State *L, int log, log_level level, const char *event, const log_field *fields,
              size_t count, const char *format, ...) __attribute__((format(printf, 7, 8)));

#endif
