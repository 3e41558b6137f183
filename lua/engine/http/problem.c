/* problem.c: answers that the program gives by itself; see http.h and conn.h. */
#include "conn.h"

#include <stdio.h>
#include <string.h>

const char *http_status_reason(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

static size_t plain_length(const char *text) {
  size_t n = 0;
  while ((unsigned char)text[n] >= ' ' && text[n] != '"' && text[n] != '\\') n++;
  return n;
}

/* JSON text; nothing but what a problem's texts can hold needs escaping well. */
static void add_json(http_bytes *b, const char *text) {
  for (;;) {
    size_t n = plain_length(text);
    char escaped[8];
    http_bytes_add(b, text, n);
    text += n;
    if (!*text) return;
    snprintf(escaped, sizeof escaped, (unsigned char)*text < ' ' ? "\\u%04x" : "\\%c", *text);
    http_add_text(b, escaped);
    text++;
  }
}

static void add_refused(http_bytes *b, const http_refused *r) {
  if (r->reason) {
    http_add_text(b, ",\"reason\":\"");
    add_json(b, r->reason);
    http_add_text(b, "\"");
  }
  if (r->state) {
    http_add_text(b, ",\"state\":\"");
    http_add_text(b, r->state);
    http_add_text(b, "\"");
  }
  if (r->retry_after_ms) {
    http_add_text(b, ",\"retry_after_ms\":");
    http_add_number(b, r->retry_after_ms);
  }
}

void http_problem(http_bytes *b, int status, const char *title, const char *detail,
                  const http_refused *refused) {
  http_add_text(b, "{\"type\":\"about:blank\",\"title\":\"");
  add_json(b, title);
  http_add_text(b, "\",\"status\":");
  http_add_number(b, (uint64_t)status);
  if (detail) {
    http_add_text(b, ",\"detail\":\"");
    add_json(b, detail);
    http_add_text(b, "\"");
  }
  if (refused) add_refused(b, refused);
  http_add_text(b, "}\n");
}

void http_answer_problem(http_request *request, int status, const char *title, const char *detail,
                         const http_refused *refused) {
  http_bytes body = {0};
  char digits[20];
  uint64_t retry_after_ms = refused ? refused->retry_after_ms : 0;
  http_slice seconds = http_number(digits, (retry_after_ms + 999) / 1000);
  http_problem(&body, status, title, detail, refused);
  neap_header headers[] = {
      http_field("Date", http_server_date(request->server)),
      http_field("Content-Type", "application/problem+json"),
      http_field("Cache-Control", "no-store"),
      {"Retry-After", 11, seconds.data, seconds.length},
  };
  http_head head = {.status = status, .headers = headers, .header_count = retry_after_ms ? 4 : 3};
  http_answer(request, &head, body.data, body.length);
  http_bytes_free(&body);
}

/* A refusal before there is a request, or after it was taken from its handler. */
void http_conn_refuse(http_conn *conn, const http_fault *fault) {
  if (conn->state == CONN_CLOSING) return;
  http_server *server = conn->server;
  http_bytes body = {0};
  server->stats.refused++;
  http_problem(&body, fault->status, http_status_reason(fault->status), fault->detail, NULL);
  http_bytes *b = &server->scratch;
  b->length = 0;
  http_add_status_line(b, fault->status, (http_slice){0});
  http_add_text(b, "Date: ");
  http_add_text(b, http_server_date(server));
  http_add_text(b, "\r\nContent-Type: application/problem+json\r\nContent-Length: ");
  http_add_number(b, body.length);
  http_add_text(b, "\r\nConnection: close\r\n\r\n");
  uv_buf_t parts[2] = {uv_buf_init(b->data, (unsigned)b->length),
                       uv_buf_init(body.data, (unsigned)body.length)};
  bool sent = http_conn_send(conn, parts, 2);
  http_bytes_free(&body);
  if (sent) http_conn_linger(conn);
}
