/* names.c: the names that logs have for their values. */
#include "fields.h"

typedef struct known_name {
  const char *name;
  lab_role role;
  lab_unit unit;
} known_name;

/* Of nginx, Apache, Envoy, Caddy, Traefik, HAProxy, zap, bunyan, ECS, OpenTelemetry, and of people.
 * In lower case, with _ for -. */
static const known_name known[] = {
    {"time", LAB_TIME, UNIT_GUESS},
    {"ts", LAB_TIME, UNIT_GUESS},
    {"timestamp", LAB_TIME, UNIT_GUESS},
    {"@timestamp", LAB_TIME, UNIT_GUESS},
    {"date", LAB_TIME, UNIT_GUESS},
    {"datetime", LAB_TIME, UNIT_GUESS},
    {"time_local", LAB_TIME, UNIT_GUESS},
    {"time_iso8601", LAB_TIME, UNIT_GUESS},
    {"msec", LAB_TIME, UNIT_S},
    {"start", LAB_START, UNIT_GUESS},
    {"started", LAB_START, UNIT_GUESS},
    {"started_at", LAB_START, UNIT_GUESS},
    {"start_time", LAB_START, UNIT_GUESS},
    {"starttime", LAB_START, UNIT_GUESS},
    {"startutc", LAB_START, UNIT_GUESS},
    {"starteddatetime", LAB_START, UNIT_GUESS},
    {"begin", LAB_START, UNIT_GUESS},
    {"duration", LAB_DURATION, UNIT_GUESS},
    {"latency", LAB_DURATION, UNIT_GUESS},
    {"elapsed", LAB_DURATION, UNIT_GUESS},
    {"took", LAB_DURATION, UNIT_GUESS},
    {"response_time", LAB_DURATION, UNIT_GUESS},
    {"responsetime", LAB_DURATION, UNIT_GUESS},
    {"time_taken", LAB_DURATION, UNIT_GUESS},
    {"request_time", LAB_DURATION, UNIT_S},
    {"event.duration", LAB_DURATION, UNIT_NS},
    {"status", LAB_STATUS, UNIT_GUESS},
    {"status_code", LAB_STATUS, UNIT_GUESS},
    {"statuscode", LAB_STATUS, UNIT_GUESS},
    {"http_status", LAB_STATUS, UNIT_GUESS},
    {"response_code", LAB_STATUS, UNIT_GUESS},
    {"response_status", LAB_STATUS, UNIT_GUESS},
    {"resp_status", LAB_STATUS, UNIT_GUESS},
    {"sc_status", LAB_STATUS, UNIT_GUESS},
    {"downstreamstatus", LAB_STATUS, UNIT_GUESS},
    {"response.status", LAB_STATUS, UNIT_GUESS},
    {"http.status_code", LAB_STATUS, UNIT_GUESS},
    {"http.response.status_code", LAB_STATUS, UNIT_GUESS},
    {"request", LAB_REQUEST, UNIT_GUESS},
    {"method", LAB_METHOD, UNIT_GUESS},
    {"verb", LAB_METHOD, UNIT_GUESS},
    {"request_method", LAB_METHOD, UNIT_GUESS},
    {"requestmethod", LAB_METHOD, UNIT_GUESS},
    {"http_method", LAB_METHOD, UNIT_GUESS},
    {"cs_method", LAB_METHOD, UNIT_GUESS},
    {"request.method", LAB_METHOD, UNIT_GUESS},
    {"http.method", LAB_METHOD, UNIT_GUESS},
    {"http.request.method", LAB_METHOD, UNIT_GUESS},
    {"path", LAB_TARGET, UNIT_GUESS},
    {"target", LAB_TARGET, UNIT_GUESS},
    {"uri", LAB_TARGET, UNIT_GUESS},
    {"url", LAB_TARGET, UNIT_GUESS},
    {"request_uri", LAB_TARGET, UNIT_GUESS},
    {"requestpath", LAB_TARGET, UNIT_GUESS},
    {"cs_uri_stem", LAB_TARGET, UNIT_GUESS},
    {"request.uri", LAB_TARGET, UNIT_GUESS},
    {"request.url", LAB_TARGET, UNIT_GUESS},
    {"url.path", LAB_TARGET, UNIT_GUESS},
    {"http.target", LAB_TARGET, UNIT_GUESS},
    {"host", LAB_HOST, UNIT_GUESS},
    {"http_host", LAB_HOST, UNIT_GUESS},
    {"authority", LAB_HOST, UNIT_GUESS},
    {":authority", LAB_HOST, UNIT_GUESS},
    {"server_name", LAB_HOST, UNIT_GUESS},
    {"requesthost", LAB_HOST, UNIT_GUESS},
    {"request.host", LAB_HOST, UNIT_GUESS},
    {"url.domain", LAB_HOST, UNIT_GUESS},
    {"error", LAB_ERROR, UNIT_GUESS},
    {"err", LAB_ERROR, UNIT_GUESS},
    {"error_message", LAB_ERROR, UNIT_GUESS},
    {"error.message", LAB_ERROR, UNIT_GUESS},
    {"exception", LAB_ERROR, UNIT_GUESS},
    {"_error", LAB_ERROR, UNIT_GUESS},
    {"response._error", LAB_ERROR, UNIT_GUESS},
    {"error_code", LAB_CODE, UNIT_GUESS},
    {"errorcode", LAB_CODE, UNIT_GUESS},
    {"grpc_status", LAB_GRPC, UNIT_GUESS},
    {"grpc_status_number", LAB_GRPC, UNIT_GUESS},
    {"sent_http_grpc_status", LAB_GRPC, UNIT_GUESS},
    {"upstream_trailer_grpc_status", LAB_GRPC, UNIT_GUESS},
    {"grpc.code", LAB_GRPC, UNIT_GUESS},
    {"retry_after", LAB_RETRY_AFTER, UNIT_S},
    {"upstream_http_retry_after", LAB_RETRY_AFTER, UNIT_S},
    {"sent_http_retry_after", LAB_RETRY_AFTER, UNIT_S},
    {"ended_by", LAB_ENDED, UNIT_GUESS},
    {"response_flags", LAB_FLAGS, UNIT_GUESS},
    {"upstream_response_time", LAB_UP_TIME, UNIT_S},
    {"upstream_status", LAB_UP_STATUS, UNIT_GUESS},
    {"upstream_addr", LAB_UP_ADDR, UNIT_GUESS},
    {"upstream_host", LAB_UP_ADDR, UNIT_GUESS},
};

lab_role lab_role_of(lab_text name) {
  static const char *const names[] = {
#define X(role, text, what) text,
      LAB_ROLES(X)
#undef X
  };
  for (size_t i = 0; i < LAB_OTHER; i++)
    if (text_is(name, (lab_text){names[i], strlen(names[i])})) return (lab_role)i;
  return LAB_NO_ROLE;
}

/* ---- The table ------------------------------------------------------------------------------- */

static char plain(char c) {
  if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

static uint32_t hash_of(lab_text t) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < t.length; i++) h = (h ^ (unsigned char)plain(t.data[i])) * 16777619u;
  return h ^ h >> 15;
}

static bool is_named(const lab_name *n, lab_text t) {
  if (n->length != t.length) return false;
  for (size_t i = 0; i < t.length; i++)
    if (n->text[i] != plain(t.data[i])) return false;
  return true;
}

/* Its place in the table, or the free one for it; NULL: it is full. */
static const lab_name *place_of(const lab_names *n, lab_text t) {
  uint32_t at = hash_of(t);
  for (size_t i = 0; i < LAB_NAMES; i++, at++) {
    const lab_name *name = &n->name[at % LAB_NAMES];
    if (!name->length || is_named(name, t)) return name;
  }
  return NULL;
}

static lab_name *name_add(lab_names *n, lab_text t) {
  if (!t.length || t.length >= sizeof n->name->text) return NULL;
  lab_name *name = (lab_name *)place_of(n, t);
  if (!name || name->length) return name;
  for (size_t i = 0; i < t.length; i++) name->text[i] = plain(t.data[i]);
  name->length = (uint8_t)t.length;
  name->role = LAB_NO_ROLE;
  return name;
}

void names_open(lab_names *n) {
  memset(n, 0, sizeof *n);
  n->key = LAB_NO_ROLE;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    names_map(n, (lab_text){known[i].name, strlen(known[i].name)}, known[i].role, known[i].unit);
}

bool names_map(lab_names *n, lab_text name, lab_role role, lab_unit unit) {
  lab_name *to = name_add(n, name);
  if (!to) return false;
  to->role = (uint8_t)role;
  to->unit = (uint8_t)unit;
  return true;
}

bool names_key(lab_names *n, lab_text name) {
  n->has_key = true;
  n->key = lab_role_of(name);
  if (n->key != LAB_NO_ROLE) return true;
  lab_name *to = name_add(n, name);
  if (to) to->is_key = true;
  return to != NULL;
}

/* "latency_us": latency, and its unit.  Only what takes time has one. */
static const lab_name *find_with_unit(const lab_names *n, lab_text t, lab_unit *unit) {
  size_t at = t.length;
  while (at > 0 && plain(t.data[at - 1]) != '_') at--;
  if (at < 2 || !text_unit((lab_text){t.data + at, t.length - at}, unit)) return NULL;
  const lab_name *base = place_of(n, (lab_text){t.data, at - 1});
  bool takes = base && base->length && base->role <= LAB_DURATION;
  return takes ? base : NULL;
}

/* Headers of the request as nginx names them: http_x_tenant. */
static bool is_header(lab_text t) { return t.length > 5 && memcmp(t.data, "http_", 5) == 0; }

const lab_name *names_find(const lab_names *n, lab_text t) {
  if (!t.length || t.length >= sizeof n->name->text) return NULL;
  const lab_name *name = place_of(n, t);
  if (!name) return NULL;
  if (name->length)
    return name->role == LAB_NO_ROLE && !name->is_key && !name->is_header ? NULL : name;
  lab_unit unit = UNIT_GUESS;
  const lab_name *base = find_with_unit(n, t, &unit);
  if (!base && !is_header(t)) return NULL;
  lab_name *to = name_add((lab_names *)n, t); /* remembered: the next line has it, too */
  if (base) {
    to->role = base->role;
    to->unit = (uint8_t)unit;
  } else {
    to->is_header = true;
  }
  return to;
}
