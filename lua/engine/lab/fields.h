/* fields.h: from what a line calls its values to what they are.
 *
 *   "request_time", "latency_ms", "%D", "http.response.status_code"   names: of every format
 *   LAB_DURATION, LAB_STATUS ...                                      roles: what they stand for
 *   lab_call                                                          one call, read
 *
 * A name is found however it is written: request_time, Request-Time.  Those of a unit
 * (latency_us, took_s) need not be known with it.  What the user maps goes before. */
#ifndef NEAP_LAB_FIELDS_H
#define NEAP_LAB_FIELDS_H

#include "text.h"

/* role, its name for --map, what it is */
#define LAB_ROLES(X)                                                                               \
  X(TIME, "time", "when the line was written: as a call ends")                                     \
  X(START, "start", "when the call began; goes before time")                                       \
  X(DURATION, "duration", "how long it took")                                                      \
  X(STATUS, "status", "of HTTP")                                                                   \
  X(REQUEST, "request", "\"GET /path HTTP/1.1\"")                                                  \
  X(METHOD, "method", "")                                                                          \
  X(TARGET, "target", "the path, with its query")                                                  \
  X(HOST, "host", "")                                                                              \
  X(ERROR, "error", "why there was no answer")                                                     \
  X(CODE, "code", "of the protocol above HTTP: FLAG_NOT_FOUND")                                    \
  X(GRPC, "grpc_status", "")                                                                       \
  X(RETRY_AFTER, "retry_after", "the header, in seconds")                                          \
  X(ENDED, "ended_by", "answer, timeout, transport, caller, bulkhead")                             \
  X(FLAGS, "response_flags", "Envoy's")                                                            \
  X(UP_TIME, "upstream_response_time", "nginx's: a list, one for each upstream that was asked")    \
  X(UP_STATUS, "upstream_status", "likewise")                                                      \
  X(UP_ADDR, "upstream_addr", "likewise")                                                          \
  X(OTHER, "", "a field that --key names, and no other")

typedef enum lab_role {
#define X(role, name, what) LAB_##role,
  LAB_ROLES(X)
#undef X
      LAB_ROLE_COUNT,
  LAB_NO_ROLE = LAB_ROLE_COUNT
} lab_role;

lab_role lab_role_of(lab_text name); /* LAB_NO_ROLE: there is none */

typedef enum lab_end {
  LAB_ANSWER = 0,
  LAB_TIMEOUT,
  LAB_TRANSPORT,
  LAB_CALLER,
  LAB_BULKHEAD,
  LAB_REFUSED /* the log's own breaker let it not be made: nobody knows what it had come to */
} lab_end;

#define LAB_HEADERS 8 /* of the request, that a log may have */

/* One call.  Its texts live until the next is read. */
typedef struct lab_call {
  uint64_t begin_us, duration_us;
  uint64_t span_us;             /* until it was reported, if that is longer than it took; else 0 */
  bool has_duration, is_coarse; /* coarse: the time is to the second */
  bool is_begin;                /* begin_us is what the log says, not worked out from an end */
  lab_end ended_by;
  int status; /* 0: none */
  int grpc;   /* -1: none */
  int64_t retry_after_ms;
  char judged; /* as its policy has judged it, of that hash: 's' 'f' 't' 'n'; 0: not known */
  lab_text hash;
  lab_text method, target, host, error, code, policy, key, upstream;
  size_t headers;
  struct {
    lab_text name, value;
  } header[LAB_HEADERS];
  uint64_t line; /* of the log, from 1 */
  int log;       /* which, from 0 */
} lab_call;

/* ---- A line's fields ------------------------------------------------------------------------- */

#define LAB_NAMES 512 /* room for names; a power of two */

typedef struct lab_name {
  char text[48];
  uint8_t length, role, unit;
  bool is_key, is_header;
} lab_name;

/* What the names of one log mean.  All zero but for names_open() is not ready. */
typedef struct lab_names {
  lab_name name[LAB_NAMES];
  lab_role key; /* the role that --key names; LAB_NO_ROLE: it names none */
  bool has_key;
  lab_unit unit; /* of a duration whose name says none; UNIT_GUESS: by each itself */
} lab_names;

void names_open(lab_names *n);

/* From now on a field of that name has the role.  false: the name is too long, or too many. */
bool names_map(lab_names *n, lab_text name, lab_role role, lab_unit unit);

/* The key is the field of that name, or of that role. */
bool names_key(lab_names *n, lab_text name);

/* NULL: nobody knows the name. */
const lab_name *names_find(const lab_names *n, lab_text name);

typedef struct lab_fields {
  lab_text value[LAB_ROLE_COUNT];
  uint8_t unit[LAB_ROLE_COUNT];
  lab_text key;
  size_t headers;
  struct {
    lab_text name, value;
  } header[LAB_HEADERS];
} lab_fields;

/* The line has that value.  The first of several goes, but for a time that is finer. */
void fields_set(lab_fields *f, const lab_name *name, lab_text value);

/* ---- Calls ----------------------------------------------------------------------------------- */

/* What may be wrong with a line. */
#define LAB_DAMAGES(X)                                                                             \
  X(FORMAT, "not of the format")                                                                   \
  X(JSON, "not JSON")                                                                              \
  X(COLUMNS, "not as many columns as the first row")                                               \
  X(NO_TIME, "without a time")                                                                     \
  X(TIME, "a time that is none")                                                                   \
  X(STATUS, "a status that is none")                                                               \
  X(DURATION, "a duration that is none")                                                           \
  X(LONG, "longer than a line may be")                                                             \
  X(FAR, "a time far from those around it")                                                        \
  X(GZIP, "compressed data that is damaged")                                                       \
  X(CUT, "cut off: the log ends in the middle")                                                    \
  X(READ, "could not be read on")

typedef enum lab_damage {
  LAB_FINE = 0,
#define X(kind, text) LAB_BAD_##kind,
  LAB_DAMAGES(X)
#undef X
      LAB_DAMAGE_COUNT,
  LAB_ASIDE = LAB_DAMAGE_COUNT /* fine, but no call of the dependency */
} lab_damage;

#define LAB_ATTEMPTS 16 /* of one line, at most; later ones are left out */

typedef struct lab_calls {
  lab_call call[LAB_ATTEMPTS];
  size_t count;
} lab_calls;

/* What a line's fields come to: one call, or one for each upstream that was asked. */
lab_damage fields_calls(const lab_fields *f, const lab_names *n, lab_timer *timer, lab_calls *out);

#endif
