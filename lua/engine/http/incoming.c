/* incoming.c: the head of an answer, read strictly; see client.h.
 *
 * curl hands it over line by line.  What concerns this connection only is dropped; the rest is kept
 * as it came, and cut up, without being copied, into neap_headers. */
#include "client.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_HEAD_MAX 262144u /* bytes in an answer's head */

void http_answer_reset(http_transfer *t) {
  t->status = 0;
  t->header_count = 0;
  t->in.length = t->listed.length = t->reason_length = 0;
  t->content_length = -1;
  t->chunked = t->bodiless = false;
}

/* ---- The answer's head ----------------------------------------------------------------------- */

static size_t refuse(http_transfer *t, const char *why) {
  t->error = why;
  return 0; /* curl takes that for a failed write and closes the connection */
}

/* The first of a head, and no other: curl takes a later one for a field, and would go on by the
 * framing that came before it. */
static bool status_line(http_transfer *t, const char *line, const char *end) {
  if (t->phase < NEAP_PHASE_HEADERS) t->phase = NEAP_PHASE_HEADERS;
  const char *p = memchr(line, ' ', (size_t)(end - line));
  if (end - line < 5 || memcmp(line, "HTTP/", 5) || !p || end - p < 4) return false;
  for (int i = 1; i <= 3; i++) {
    if (p[i] < '0' || p[i] > '9') return false;
    t->status = t->status * 10 + (p[i] - '0');
  }
  p += 4;
  if (p < end && *p++ != ' ') return false;
  for (const char *c = p; c < end; c++) {
    if ((unsigned char)*c < ' ' && *c != '\t') return false;
  }
  http_bytes_add(&t->in, p, (size_t)(end - p));
  t->reason_length = t->in.length;
  t->bodiless = !strcmp(t->request->method, "HEAD") || t->status == 204 || t->status == 304;
  return t->status >= 100 && t->status <= 599;
}

static bool take_length(http_transfer *t, const neap_header *h) {
  int64_t n = 0;
  if (!h->value_length || h->value_length > 18) return false;
  for (size_t i = 0; i < h->value_length; i++) {
    if (h->value[i] < '0' || h->value[i] > '9') return false;
    n = n * 10 + (h->value[i] - '0');
  }
  if (t->content_length >= 0) return false;
  t->content_length = n;
  return true;
}

static bool take_framing(http_transfer *t, const neap_header *h) {
  if (http_name_is(h->name, h->name_length, "content-length")) return take_length(t, h);
  if (http_name_is(h->name, h->name_length, "transfer-encoding")) {
    bool twice = t->chunked;
    t->chunked = true;
    return !twice && http_name_is(h->value, h->value_length, "chunked");
  }
  if (http_name_is(h->name, h->name_length, "connection")) http_listed_add(&t->listed, h);
  return true;
}

/* Where a field is in `in`: offsets, for the buffer may move as it grows. */
typedef struct http_mark {
  size_t name, value;
  uint32_t name_length, value_length;
} http_mark;

static void marks_reserve(http_transfer *t) {
  if (t->header_count < t->in_capacity) return;
  t->in_capacity = t->in_capacity ? 2 * t->in_capacity : 32;
  t->marks = realloc(t->marks, t->in_capacity * sizeof *t->marks);
  t->headers = realloc(t->headers, t->in_capacity * sizeof *t->headers);
  if (!t->marks || !t->headers) abort();
}

static void keep_line(http_transfer *t, const char *line, const char *end, const neap_header *h) {
  marks_reserve(t);
  size_t at = t->in.length;
  t->marks[t->header_count++] = (http_mark){at, at + (size_t)(h->value - line),
                                            (uint32_t)h->name_length, (uint32_t)h->value_length};
  http_bytes_reserve(&t->in, (size_t)(end - line) + 2);
  memcpy(t->in.data + at, line, (size_t)(end - line));
  memcpy(t->in.data + at + (end - line), "\r\n", 2);
  t->in.length += (size_t)(end - line) + 2;
}

/* "Name: value" up to `end` -> *h; false if it is none. */
static bool split(const char *line, const char *end, neap_header *h) {
  size_t name = http_span_token(line, end);
  if (!name || line + name == end || line[name] != ':') return false;
  const char *value = line + name + 1;
  if (value + http_span_value(value, end) != end) return false;
  while (value < end && (*value == ' ' || *value == '\t')) value++;
  while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
  *h = (neap_header){line, name, value, (size_t)(end - value)};
  return true;
}

static bool field_line(http_transfer *t, const char *line, const char *end) {
  neap_header h;
  if (!split(line, end, &h) || !take_framing(t, &h)) return false;
  if (t->in.length + (size_t)(end - line) > ANSWER_HEAD_MAX) return false;
  if (!http_name_is_hop_by_hop(h.name, h.name_length)) keep_line(t, line, end, &h);
  return true;
}

static bool is_dropped(const http_transfer *t, http_slice listed, const char *name, size_t length) {
  return !http_field_is_kept(listed, name, length) ||
         (t->status == 204 && http_name_is(name, length, "content-length"));
}

/* Takes out what Connection names, which may have come after it; most name nothing. */
static void drop_listed(http_transfer *t) {
  http_slice listed = {t->listed.data, t->listed.length};
  size_t to = t->reason_length, kept = 0;
  for (size_t i = 0; i < t->header_count; i++) {
    http_mark m = t->marks[i];
    size_t end = i + 1 < t->header_count ? t->marks[i + 1].name : t->in.length;
    if (is_dropped(t, listed, t->in.data + m.name, m.name_length)) continue;
    memmove(t->in.data + to, t->in.data + m.name, end - m.name);
    t->marks[kept++] = (http_mark){to, to + (m.value - m.name), m.name_length, m.value_length};
    to += end - m.name;
  }
  t->header_count = kept;
  t->in.length = to;
}

static void head_conclude(http_transfer *t) {
  if (t->listed.length || t->status == 204) drop_listed(t);
  for (size_t i = 0; i < t->header_count; i++) {
    http_mark m = t->marks[i];
    t->headers[i] =
        (neap_header){t->in.data + m.name, m.name_length, t->in.data + m.value, m.value_length};
  }
  t->reason = (http_slice){t->in.data, t->reason_length};
  t->lines = (http_slice){t->in.data + t->reason_length, t->in.length - t->reason_length};
}

/* Of bytes after the end of an answer without a body, or of a chunked one, curl only says so, in
 * passing; it would use the connection again and read what follows as the next answer. */
static void listen_for_stray(http_transfer *t) {
  if (!t->bodiless && !t->chunked && t->content_length != 0) return;
  t->verbose = true;
  curl_easy_setopt(t->easy, CURLOPT_VERBOSE, 1L);
}

int http_incoming_remark(CURL *easy, curl_infotype type, char *text, size_t length, void *data) {
  static const char excess[] = "Excess found", leftovers[] = "Leftovers after chunking";
  http_transfer *t = data;
  (void)easy;
  if (type != CURLINFO_TEXT) return 0;
  t->stray |= length >= sizeof excess && !memcmp(text, excess, sizeof excess - 1);
  t->stray |= length >= sizeof leftovers && !memcmp(text, leftovers, sizeof leftovers - 1);
  return 0;
}

static size_t head_end(http_transfer *t, size_t length) {
  if (t->status == 101) return refuse(t, "the upstream switches protocols unasked");
  if (t->status < 200) { /* interim: for this connection only */
    http_answer_reset(t);
    return length;
  }
  if (t->chunked && t->content_length >= 0) {
    return refuse(t, "the upstream's answer has both Content-Length and Transfer-Encoding");
  }
  head_conclude(t);
  listen_for_stray(t);
  t->head_done = true;
  t->events->on_head(t->data, t);
  return t->cancelled ? 0 : length;
}

size_t http_incoming_line(char *line, size_t size, size_t count, void *data) {
  http_transfer *t = data;
  size_t length = size * count;
  const char *end = line + length;
  if (t->cancelled) return 0;
  if (t->head_done) return length; /* trailers: dropped */
  if (end > line && end[-1] == '\n') end--;
  if (end > line && end[-1] == '\r') end--;
  if (end == line) return head_end(t, length);
  bool good = t->status ? field_line(t, line, end) : status_line(t, line, end);
  return good ? length : refuse(t, "the head of the upstream's answer is malformed");
}
