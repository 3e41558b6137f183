/* fields.c: from a line's fields to its calls. */
#include "fields.h"

void fields_set(lab_fields *f, const lab_name *name, lab_text value) {
  if (!name) return;
  if (name->is_key && !f->key.data) f->key = value;
  if (name->is_header && f->headers < LAB_HEADERS) {
    f->header[f->headers].name = (lab_text){name->text + 5, (size_t)name->length - 5};
    f->header[f->headers++].value = value;
  }
  if (name->role >= LAB_ROLE_COUNT) return;
  bool is_finer = name->role == LAB_TIME && name->unit != UNIT_GUESS; /* $msec beside $time_local */
  if (f->value[name->role].data && !is_finer) return;
  f->value[name->role] = value;
  f->unit[name->role] = name->unit;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* "GET /path HTTP/1.1"; a path may have spaces in it that should not be there. */
static void read_request(lab_text request, lab_call *c) {
  const char *space = memchr(request.data, ' ', request.length);
  if (!space) return;
  lab_text rest = {space + 1, (size_t)(request.data + request.length - space - 1)};
  for (size_t i = rest.length; i > 6; i--)
    if (memcmp(rest.data + i - 6, " HTTP/", 6) == 0) {
      rest.length = i - 6;
      break;
    }
  if (!c->method.data) c->method = (lab_text){request.data, (size_t)(space - request.data)};
  if (!c->target.data) c->target = text_trim(rest);
}

/* Of a whole URL, the host; the path stays as it is: policies take both. */
static void read_host(lab_call *c) {
  if (c->host.data || !c->target.data) return;
  for (size_t i = 0; i + 3 <= c->target.length && i < 8; i++) {
    if (memcmp(c->target.data + i, "://", 3) != 0) continue;
    const char *host = c->target.data + i + 3, *end = c->target.data + c->target.length, *at = host;
    while (at < end && *at != '/' && *at != '?' && *at != '#') at++;
    c->host = (lab_text){host, (size_t)(at - host)};
    return;
  }
}

/* Why Envoy answered itself: https://www.envoyproxy.io, %RESPONSE_FLAGS%.  Of several, the first that
 * says it all. */
static lab_damage read_flags(lab_text flags, lab_call *c) {
  static const struct {
    lab_text flag;
    int end; /* -1: nobody was asked */
  } ends[] = {
      {LAB_INIT("UT"), LAB_TIMEOUT},
      {LAB_INIT("SI"), LAB_TIMEOUT},
      {LAB_INIT("DT"), LAB_TIMEOUT},
      {LAB_INIT("UMSDR"), LAB_TIMEOUT},
      {LAB_INIT("UF"), LAB_TRANSPORT},
      {LAB_INIT("UH"), LAB_TRANSPORT},
      {LAB_INIT("UC"), LAB_TRANSPORT},
      {LAB_INIT("UR"), LAB_TRANSPORT},
      {LAB_INIT("LR"), LAB_TRANSPORT},
      {LAB_INIT("UPE"), LAB_TRANSPORT},
      {LAB_INIT("DF"), LAB_TRANSPORT},
      {LAB_INIT("DC"), LAB_CALLER},
      {LAB_INIT("DR"), LAB_CALLER},
      {LAB_INIT("UO"), LAB_BULKHEAD},
      {LAB_INIT("OM"), LAB_BULKHEAD},
      {LAB_INIT("NR"), -1},
      {LAB_INIT("NC"), -1},
      {LAB_INIT("RL"), -1},
      {LAB_INIT("UAEX"), -1},
      {LAB_INIT("FI"), -1},
      {LAB_INIT("DPE"), -1},
      {LAB_INIT("IH"), -1},
      {LAB_INIT("RFCF"), -1},
      {LAB_INIT("NFCF"), -1},
  };
  for (size_t i = 0, next; i < flags.length; i = next + 1) {
    for (next = i; next < flags.length && flags.data[next] != ',';) next++;
    lab_text flag = text_trim((lab_text){flags.data + i, next - i});
    for (size_t j = 0; j < sizeof ends / sizeof *ends; j++) {
      if (!text_is(flag, ends[j].flag)) continue;
      if (ends[j].end < 0) return LAB_ASIDE;
      c->ended_by = (lab_end)ends[j].end;
      return LAB_FINE;
    }
  }
  return LAB_FINE;
}

static bool read_end(lab_text t, lab_call *c) {
  static const lab_text ends[] = {LAB_INIT("answer"), LAB_INIT("timeout"),  LAB_INIT("transport"),
                                  LAB_INIT("caller"), LAB_INIT("bulkhead"), LAB_INIT("refused")};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (text_is(t, ends[i])) return c->ended_by = (lab_end)i, true;
  return false;
}

/* "200", "200.0"; none is no fault: then the error says what it came to. */
static bool read_status(lab_text t, int *status) {
  uint64_t n;
  double number;
  bool has_fraction;
  *status = 0;
  if (text_is_none(t)) return true;
  if (!text_whole(t, 999, &n)) {
    if (!text_number(t, &number, &has_fraction) || number < 0 || number > 999) return false;
    n = (uint64_t)number;
  }
  *status = (int)n;
  return n == 0 || n >= 100;
}

static int grpc_of(lab_text t) {
  uint64_t n;
  return text_whole(t, 16, &n) ? (int)n : -1;
}

/* Retry-After in seconds; as a date it is left out. */
static int64_t retry_of(lab_text t) {
  uint64_t s;
  return text_whole(t, 366 * 86400, &s) ? (int64_t)s * 1000 : 0;
}

static bool is_nothing(lab_text t) {
  return text_is_none(t) || text_is(t, LAB_TEXT("null")) || text_is(t, LAB_TEXT("false"));
}

/* ---- Time ------------------------------------------------------------------------------------ */

static lab_damage read_duration(const lab_fields *f, const lab_names *n, lab_call *c) {
  lab_unit unit = (lab_unit)f->unit[LAB_DURATION];
  if (unit == UNIT_GUESS) unit = n->unit;
  lab_text t = f->value[LAB_DURATION];
  if (text_is_none(t)) return LAB_FINE;
  c->has_duration = text_duration(t, unit, &c->duration_us);
  return c->has_duration ? LAB_FINE : LAB_BAD_DURATION;
}

/* A time is an end, from which the beginning follows; a start is one. */
static lab_damage read_times(const lab_fields *f, const lab_names *n, lab_timer *timer,
                             lab_call *c) {
  lab_damage damage = read_duration(f, n, c);
  if (damage) return damage;
  uint64_t at_us;
  c->is_begin = f->value[LAB_START].data != NULL;
  lab_role role = c->is_begin ? LAB_START : LAB_TIME;
  if (text_is_none(f->value[role])) return LAB_BAD_NO_TIME;
  if (!text_time(timer, f->value[role], (lab_unit)f->unit[role], &at_us, &c->is_coarse))
    return LAB_BAD_TIME;
  if (!c->is_begin) at_us = at_us > c->duration_us ? at_us - c->duration_us : 0;
  c->begin_us = at_us;
  return LAB_FINE;
}

/* ---- Upstreams ------------------------------------------------------------------------------- */

/* The next of a list as nginx writes them, "a, b : c": moves *list behind it; false: no more. */
static bool list_next(lab_text *list, lab_text *out) {
  if (!list->length) return false;
  size_t i = 0;
  while (i < list->length && list->data[i] != ',' &&
         !(list->data[i] == ':' && i > 0 && list->data[i - 1] == ' '))
    i++;
  *out = text_trim((lab_text){list->data, i});
  if (i < list->length) i++;
  *list = (lab_text){list->data + i, list->length - i};
  return true;
}

/* Each upstream that nginx asked was a call of its own, one after the other: the last of them ended when
 * the line was written, unless $request_time says when the first began. */
static lab_damage read_attempts(const lab_fields *f, const lab_call *whole, lab_calls *out) {
  lab_text statuses = f->value[LAB_UP_STATUS], times = f->value[LAB_UP_TIME];
  lab_text addresses = f->value[LAB_UP_ADDR], status, time, address;
  uint64_t begin_us = whole->begin_us;
  for (;;) {
    bool has_status = list_next(&statuses, &status), has_time = list_next(&times, &time);
    bool has_address = list_next(&addresses, &address);
    if (!has_status && !has_time && !has_address) break;
    if (out->count == LAB_ATTEMPTS) break;
    if ((!has_status || text_is_none(status)) && (!has_time || text_is_none(time))) continue;
    lab_call *c = &out->call[out->count];
    *c = *whole;
    c->begin_us = begin_us;
    if (has_address) c->upstream = address;
    bool answered = has_status && !text_is_none(status); /* else what nginx said instead */
    if (answered && !read_status(status, &c->status)) return LAB_BAD_STATUS;
    if (has_time && !text_is_none(time)) {
      c->has_duration = text_duration(time, UNIT_S, &c->duration_us);
      if (!c->has_duration) return LAB_BAD_DURATION;
      begin_us += c->duration_us;
    }
    out->count++;
  }
  uint64_t took_us = begin_us - whole->begin_us;
  for (size_t i = 0; !whole->is_begin && !whole->has_duration && i < out->count; i++)
    out->call[i].begin_us -= took_us < whole->begin_us ? took_us : whole->begin_us;
  return out->count ? LAB_FINE : LAB_ASIDE;
}

/* ---- Together -------------------------------------------------------------------------------- */

static lab_text key_of(const lab_fields *f, const lab_names *n, const lab_call *c) {
  switch (n->key) {
    case LAB_METHOD: return c->method;
    case LAB_TARGET: return c->target;
    case LAB_HOST: return c->host;
    case LAB_UP_ADDR: return c->upstream;
    case LAB_NO_ROLE: return f->key;
    default: return f->value[n->key];
  }
}

static lab_damage read_whole(const lab_fields *f, const lab_names *n, lab_timer *timer,
                             lab_call *c) {
  const lab_text *v = f->value;
  lab_damage damage = read_times(f, n, timer, c);
  if (damage) return damage;
  if (!read_status(v[LAB_STATUS], &c->status)) return LAB_BAD_STATUS;
  c->grpc = grpc_of(v[LAB_GRPC]);
  c->retry_after_ms = retry_of(v[LAB_RETRY_AFTER]);
  c->method = v[LAB_METHOD];
  c->target = v[LAB_TARGET];
  c->host = v[LAB_HOST];
  c->upstream = v[LAB_UP_ADDR];
  if (!text_is_none(v[LAB_CODE])) c->code = v[LAB_CODE];
  if (!is_nothing(v[LAB_ERROR])) c->error = v[LAB_ERROR];
  if (v[LAB_REQUEST].data) read_request(v[LAB_REQUEST], c);
  read_host(c);
  for (c->headers = 0; c->headers < f->headers; c->headers++) {
    c->header[c->headers].name = f->header[c->headers].name;
    c->header[c->headers].value = f->header[c->headers].value;
  }
  bool has_zero = c->status == 0 && !text_is_none(v[LAB_STATUS]);
  if (has_zero || (c->status == 0 && c->error.data && c->grpc < 0)) c->ended_by = LAB_TRANSPORT;
  if (v[LAB_FLAGS].data) damage = read_flags(v[LAB_FLAGS], c);
  if (v[LAB_ENDED].data && !read_end(v[LAB_ENDED], c)) return LAB_BAD_FORMAT;
  return damage;
}

lab_damage fields_calls(const lab_fields *f, const lab_names *n, lab_timer *timer, lab_calls *out) {
  lab_call whole = {.grpc = -1};
  out->count = 0;
  lab_damage damage = read_whole(f, n, timer, &whole);
  if (damage) return damage;
  if (f->value[LAB_UP_STATUS].data || f->value[LAB_UP_TIME].data) {
    damage = read_attempts(f, &whole, out);
    if (damage) return damage;
  } else {
    out->call[out->count++] = whole;
  }
  for (size_t i = 0; n->has_key && i < out->count; i++)
    out->call[i].key = key_of(f, n, &out->call[i]);
  return LAB_FINE;
}
