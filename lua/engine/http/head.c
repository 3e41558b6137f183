/* head.c: see head.h. */
#include "head.h"

#include <string.h>

/* ---- Characters ------------------------------------------------------------------------------ */

enum { TOKEN = 1, VALUE = 2, TARGET = 4, HOST = 8 };

/* One row of flags per byte, made once: a table in the source would hide the rule. */
static unsigned char kinds[256];

__attribute__((constructor)) static void kinds_make(void) {
  for (int c = 0; c < 256; c++) {
    bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    unsigned char kind = 0;
    if (alnum || (c && strchr("!#$%&'*+-.^_`|~", c))) kind |= TOKEN;
    if (c == '\t' || (c >= ' ' && c != 0x7f)) kind |= VALUE;
    if (c > ' ' && c < 0x7f && c != '#') kind |= TARGET;
    if (alnum || (c && strchr("-._~%!$&'()*+,;=:[]", c))) kind |= HOST;
    kinds[c] = kind;
  }
}

static size_t span(const char *p, const char *end, unsigned char kind) {
  const char *q = p;
  while (q < end && (kinds[(unsigned char)*q] & kind)) q++;
  return (size_t)(q - p);
}

size_t http_span_token(const char *p, const char *end) { return span(p, end, TOKEN); }
size_t http_span_value(const char *p, const char *end) { return span(p, end, VALUE); }

static unsigned char lower(char c) {
  return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool http_name_is(const char *name, size_t length, const char *expected) {
  size_t i = 0;
  for (; i < length; i++) {
    if (lower(name[i]) != (unsigned char)expected[i]) return false; /* its NUL differs, too */
  }
  return expected[i] == '\0';
}

bool http_value_has(const char *value, size_t length, const char *token) {
  const char *p = value, *end = value + length;
  while (p < end) {
    const char *comma = memchr(p, ',', (size_t)(end - p));
    const char *stop = comma ? comma : end;
    while (p < stop && (*p == ' ' || *p == '\t')) p++;
    const char *last = stop;
    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) last--;
    if (http_name_is(p, (size_t)(last - p), token)) return true;
    p = stop + 1;
  }
  return false;
}

bool http_name_is_hop_by_hop(const char *name, size_t length) {
  static const char *const names[] = {
      "te",
      "trailer",
      "upgrade",
      "connection",
      "keep-alive",
      "http2-settings",
      "proxy-connection",
      "transfer-encoding",
      "proxy-authenticate",
      "proxy-authorization",
      "proxy-authentication-info",
  };
  static const uint32_t lengths = 1u << 2 | 1u << 7 | 1u << 10 | 1u << 14 | 1u << 16 | 1u << 17 |
                                  1u << 18 | 1u << 19 | 1u << 25;
  if (length > 25 || !(lengths >> length & 1)) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (http_name_is(name, length, names[i])) return true;
  }
  return false;
}

const neap_header *http_field_find(const neap_header *headers, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++) {
    if (http_name_is(headers[i].name, headers[i].name_length, name)) return &headers[i];
  }
  return NULL;
}

neap_header http_field(const char *name, const char *value) {
  return (neap_header){name, strlen(name), value, strlen(value)};
}

/* ---- Finding the end ------------------------------------------------------------------------- */

static bool refuse(http_fault *fault, int status, const char *detail) {
  fault->status = status;
  fault->detail = detail;
  return false;
}

static bool scan_sizes(const http_scan *scan, size_t upto, const http_limits *limits,
                       http_fault *fault) {
  if (!scan->lines && upto > limits->line_bytes) {
    return refuse(fault, 414, "the request line is too long");
  }
  if (upto > limits->head_bytes) return refuse(fault, 431, "the head is too long");
  if (scan->lines > (size_t)limits->fields + 1) return refuse(fault, 431, "too many fields");
  return true;
}

size_t http_head_scan(http_scan *scan, const char *bytes, size_t length, const http_limits *limits,
                      http_fault *fault) {
  const char *newline;
  if (length && !scan->next && *bytes != '\r' && !(kinds[(unsigned char)*bytes] & TOKEN)) {
    refuse(fault, 400, "this is no HTTP request"); /* TLS, mostly, which would wait for an answer */
    return 0;
  }
  while ((newline = memchr(bytes + scan->next, '\n', length - scan->next))) {
    size_t at = (size_t)(newline - bytes);
    if (at == scan->line || bytes[at - 1] != '\r') {
      refuse(fault, 400, "a line ends with a bare line feed");
      return 0;
    }
    bool empty = at == scan->line + 1;
    scan->next = scan->line = at + 1;
    if (empty) {
      /* a request line that is empty is refused by http_head_parse() */
      return scan_sizes(scan, at + 1, limits, fault) ? at + 1 : 0;
    }
    if (!scan_sizes(scan, at + 1, limits, fault)) return 0;
    scan->lines++;
  }
  scan->next = length;
  scan_sizes(scan, length, limits, fault);
  return 0;
}

/* ---- The request line ------------------------------------------------------------------------ */

static bool parse_version(const char *p, size_t length, http_parsed *out, http_fault *fault) {
  if (length != 8 || memcmp(p, "HTTP/", 5) || p[5] < '0' || p[5] > '9' || p[6] != '.' ||
      p[7] < '0' || p[7] > '9') {
    return refuse(fault, 400, "the request line has no proper HTTP version");
  }
  if (p[5] != '1' || p[7] > '1') return refuse(fault, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
  out->minor = p[7] - '0';
  return true;
}

/* "http://host/path" -> host, "/path"; an empty path becomes "/". */
static bool parse_absolute(http_parsed *out, http_fault *fault) {
  const char *p = out->target.data, *end = p + out->target.length;
  size_t scheme = http_name_is(p, out->target.length < 7 ? 0 : 7, "http://")    ? 7
                  : http_name_is(p, out->target.length < 8 ? 0 : 8, "https://") ? 8
                                                                                : 0;
  if (!scheme) return refuse(fault, 400, "the target is neither a path nor an http URL");
  p += scheme;
  size_t authority = span(p, end, HOST);
  if (!authority || memchr(p, '@', authority)) return refuse(fault, 400, "the target has no host");
  out->host = (http_slice){p, authority};
  p += authority;
  if (p == end) {
    out->target = (http_slice){"/", 1};
  } else if (*p == '/') {
    out->target = (http_slice){p, (size_t)(end - p)};
  } else {
    return refuse(fault, 400, "the target's host is malformed");
  }
  return true;
}

static bool parse_target(http_parsed *out, bool options, http_fault *fault) {
  if (*out->target.data == '/') return true;
  if (out->target.length == 1 && *out->target.data == '*') {
    return options || refuse(fault, 400, "the target * is for OPTIONS only");
  }
  return parse_absolute(out, fault);
}

/* Answers the offset of the next line; 0 if it is refused. */
static size_t parse_request_line(const char *bytes, size_t length, http_parsed *out,
                                 http_fault *fault) {
  const char *p = bytes, *end = memchr(bytes, '\r', length);
  if (!end || end[1] != '\n') {
    refuse(fault, 400, "a line holds a bare carriage return");
    return 0;
  }
  size_t method = span(p, end, TOKEN);
  if (!method || method > 32 || p + method == end || p[method] != ' ') {
    refuse(fault, 400, "the request line has no proper method");
    return 0;
  }
  bool connect = method == 7 && !memcmp(p, "CONNECT", 7);
  bool options = method == 7 && !memcmp(p, "OPTIONS", 7);
  p += method + 1;
  size_t target = span(p, end, TARGET);
  if (!target || p + target == end || p[target] != ' ') {
    refuse(fault, 400, "the request line has no proper target");
    return 0;
  }
  out->target = (http_slice){p, target};
  p += target + 1;
  if (!parse_version(p, (size_t)(end - p), out, fault)) return 0;
  if (connect) {
    refuse(fault, 501, "CONNECT is not offered");
    return 0;
  }
  if (!parse_target(out, options, fault)) return 0;
  return (size_t)(end + 2 - bytes);
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Answers the offset after the line; 0 if it is refused. */
static size_t parse_field(const char *bytes, size_t at, size_t length, neap_header *out,
                          http_fault *fault) {
  const char *p = bytes + at, *end = bytes + length;
  size_t name = span(p, end, TOKEN);
  if (!name || p[name] != ':') {
    refuse(fault, 400,
           *p == ' ' || *p == '\t' ? "a field is folded over several lines"
           : p[name] == ' '        ? "there is space before a field's colon"
                                   : "a field's name is malformed");
    return 0;
  }
  const char *value = p + name + 1;
  const char *stop = value + span(value, end, VALUE);
  if (*stop != '\r' || stop[1] != '\n') { /* the head ends with CR LF, so both can be read */
    refuse(fault, 400, "a field's value holds a control character");
    return 0;
  }
  size_t next = (size_t)(stop + 2 - bytes);
  while (value < stop && (*value == ' ' || *value == '\t')) value++;
  while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
  *out = (neap_header){p, name, value, (size_t)(stop - value)};
  return next;
}

/* Framing fields have to be plain: at most one space after the colon, nothing after the value. */
static bool is_plain(const neap_header *h) {
  ptrdiff_t gap = h->value - (h->name + h->name_length + 1);
  bool led = gap == 0 || (gap == 1 && h->value[-1] == ' ');
  return led && h->value[h->value_length] == '\r';
}

static bool take_length(const neap_header *h, int64_t *out, http_fault *fault) {
  int64_t n = 0;
  if (*out >= 0) return refuse(fault, 400, "Content-Length is there twice");
  if (!h->value_length || h->value_length > 18 || !is_plain(h)) {
    return refuse(fault, 400, "Content-Length is no plain number");
  }
  for (size_t i = 0; i < h->value_length; i++) {
    if (h->value[i] < '0' || h->value[i] > '9') {
      return refuse(fault, 400, "Content-Length is no plain number");
    }
    n = n * 10 + (h->value[i] - '0');
  }
  *out = n;
  return true;
}

/* What the fields add up to, before it is put together. */
typedef struct gathered {
  int64_t length; /* -1: not said */
  int hosts;
  bool chunked, close, keep_alive, upgrade_listed, upgrade;
} gathered;

static bool take_host(const neap_header *h, http_parsed *out, gathered *g, http_fault *fault) {
  if (g->hosts++) return refuse(fault, 400, "Host is there twice");
  if (span(h->value, h->value + h->value_length, HOST) != h->value_length ||
      (!h->value_length && out->minor)) {
    return refuse(fault, 400, "Host is malformed");
  }
  if (!out->host.data) {
    out->host = (http_slice){h->value, h->value_length};
  } else if (out->host.length != h->value_length ||
             memcmp(out->host.data, h->value, h->value_length)) {
    return refuse(fault, 400, "Host and the target name different hosts");
  }
  return true;
}

static bool take_field(const neap_header *h, http_parsed *out, gathered *g, http_fault *fault) {
  const char *name = h->name;
  size_t n = h->name_length;
  switch (lower(*name)) {
    case 'c':
      if (http_name_is(name, n, "content-length")) return take_length(h, &g->length, fault);
      if (http_name_is(name, n, "connection")) {
        g->close |= http_value_has(h->value, h->value_length, "close");
        g->keep_alive |= http_value_has(h->value, h->value_length, "keep-alive");
        g->upgrade_listed |= http_value_has(h->value, h->value_length, "upgrade");
      }
      return true;
    case 't':
      if (!http_name_is(name, n, "transfer-encoding")) return true;
      if (g->chunked || !is_plain(h) || !http_name_is(h->value, h->value_length, "chunked")) {
        return refuse(fault, 400, "Transfer-Encoding is not exactly \"chunked\"");
      }
      g->chunked = true;
      return true;
    case 'h': return http_name_is(name, n, "host") ? take_host(h, out, g, fault) : true;
    case 'u':
      /* h2c is what clients try that would be as glad of HTTP/1.1: not taken up, as RFC 9110
       * allows. */
      if (http_name_is(name, n, "upgrade") && !http_name_is(h->value, h->value_length, "h2c")) {
        g->upgrade = true;
      }
      return true;
    case 'e':
      if (!http_name_is(name, n, "expect") || !out->minor) return true;
      if (!http_name_is(h->value, h->value_length, "100-continue")) {
        return refuse(fault, 417, "only 100-continue may be expected");
      }
      out->expects_continue = true;
      return true;
    default: return true;
  }
}

static bool conclude(const gathered *g, http_parsed *out, http_fault *fault) {
  if (!g->hosts && out->minor) return refuse(fault, 400, "Host is missing");
  if (g->chunked && g->length >= 0) {
    return refuse(fault, 400, "Content-Length and Transfer-Encoding are both there");
  }
  if (g->chunked && !out->minor) {
    return refuse(fault, 400, "HTTP/1.0 knows no Transfer-Encoding");
  }
  if (g->upgrade && g->upgrade_listed) return refuse(fault, 501, "no upgrade is offered");
  out->content_length = g->chunked ? -1 : g->length > 0 ? g->length : 0;
  out->keep_alive = !g->close && (out->minor || g->keep_alive);
  out->expects_continue &= out->content_length != 0;
  return true;
}

/* ---- The second opinion ---------------------------------------------------------------------- */

static bool agree(const char *bytes, size_t length, const gathered *g, http_parsed *out,
                  http_fault *fault) {
  http_opinion o = http_second_opinion(bytes, length);
  if (o.method_is_unknown) return refuse(fault, 501, "the method is not known");
  if (!o.complete) return refuse(fault, 400, "the head is malformed");
  if (o.chunked != g->chunked || o.length != g->length || o.minor != out->minor) {
    return refuse(fault, 400, "the body's length can be read in two ways");
  }
  out->method = o.method;
  size_t n = strlen(out->method);
  return (n < length && !memcmp(bytes, out->method, n) && bytes[n] == ' ') ||
         refuse(fault, 501, "the method is not known");
}

bool http_head_parse(const char *bytes, size_t length, http_parsed *out, http_fault *fault) {
  gathered g = {.length = -1};
  out->host = (http_slice){0};
  out->header_count = 0;
  out->expects_continue = false;
  size_t at = parse_request_line(bytes, length, out, fault);
  if (!at) return false;
  while (at < length - 2) {
    neap_header *h = &out->headers[out->header_count];
    at = parse_field(bytes, at, length, h, fault);
    if (!at || !take_field(h, out, &g, fault)) return false;
    out->header_count++;
  }
  if (!conclude(&g, out, fault) || !agree(bytes, length, &g, out, fault)) return false;
  if (!out->host.data) out->host = (http_slice){"", 0};
  return true;
}
