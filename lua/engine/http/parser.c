/* parser.c: the second opinion on a head, llhttp's or http-parser's; see head.h.
 *
 * All that differs between the two is here.  Both know the methods and read a head in their own
 * way; neither is given anything but a head, so that what they think of bodies does not matter. */
#include "head.h"

#if NEAP_LLHTTP
#include <llhttp.h>
#else
#include <http_parser.h>
#endif

/* Framing, as it is when the head is over: whatever comes after that may change it. */
#define FRAMING_OF(p, says_length)                                                                 \
  (http_opinion) {                                                                                 \
    .complete = true, .chunked = ((p)->flags & F_CHUNKED) != 0,                                    \
    .length = (says_length) ? (int64_t)(p)->content_length : -1, .minor = (p)->http_minor          \
  }

#if NEAP_LLHTTP

static int on_headers_complete(llhttp_t *p) {
  *(http_opinion *)p->data = FRAMING_OF(p, p->flags & F_CONTENT_LENGTH);
  return HPE_PAUSED; /* so that it can be asked where it is */
}

/* The head was read before, so it can't be the version that is wrong, but a method that is known
 * and belongs to RTSP or HTTP/2. */
static bool is_about_method(llhttp_errno_t e) {
  return e == HPE_INVALID_METHOD || e == HPE_INVALID_CONSTANT || e == HPE_INVALID_VERSION;
}

http_opinion http_second_opinion(const char *bytes, size_t length) {
  http_opinion o = {0};
  llhttp_settings_t settings;
  llhttp_t parser;
  llhttp_settings_init(&settings);
  settings.on_headers_complete = on_headers_complete;
  llhttp_init(&parser, HTTP_REQUEST, &settings);
  parser.data = &o;
  llhttp_errno_t e = llhttp_execute(&parser, bytes, length);
  o.method_is_unknown = is_about_method(e);
  o.complete &= e == HPE_PAUSED && llhttp_get_error_pos(&parser) == bytes + length;
  if (o.complete) o.method = llhttp_method_name((llhttp_method_t)parser.method);
  return o;
}

#else

/* Its own limit, one for the whole process, must not be the narrower one. */
__attribute__((constructor)) static void parser_widen(void) {
  http_parser_set_max_header_size(UINT32_MAX);
}

static int on_headers_complete(http_parser *p) {
  *(http_opinion *)p->data = FRAMING_OF(p, p->content_length != UINT64_MAX);
  return 1; /* the body is not for it */
}

http_opinion http_second_opinion(const char *bytes, size_t length) {
  static const http_parser_settings settings = {.on_headers_complete = on_headers_complete};
  http_opinion o = {0};
  http_parser parser;
  http_parser_init(&parser, HTTP_REQUEST);
  parser.data = &o;
  size_t used = http_parser_execute(&parser, &settings, bytes, length);
  o.method_is_unknown = HTTP_PARSER_ERRNO(&parser) == HPE_INVALID_METHOD;
  o.complete &= used == length;
  if (o.complete) o.method = http_method_str((enum http_method)parser.method);
  return o;
}

#endif
