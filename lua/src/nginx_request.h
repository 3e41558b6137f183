/* nginx_request.h: what nginx knows of a request.
 *
 * Of nginx only what its modules and resty.core use is used, too; their headers are not needed.
 * Where that is missing (no nginx, another LuaJIT) there are no requests. */
#ifndef NEAP_NGX_REQUEST_H
#define NEAP_NGX_REQUEST_H

#include "binding.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

typedef struct ngx_text {
  size_t length;
  const unsigned char *bytes;
} ngx_text;

typedef struct ngx_value {
  unsigned length : 28, valid : 1, no_cacheable : 1, not_found : 1, escape : 1;
  const unsigned char *bytes;
} ngx_value;

#define NGX_DONE           (-4)
#define NGX_HTTP_GET       2
#define NGX_HTTP_HEAD      4
#define NGX_PROCESS_WORKER 3

#define WEAK __attribute__((weak))
WEAK void *lua_getexdata(lua_State *L);
WEAK int ngx_http_lua_ffi_exit(void *r, int status, unsigned char *message, size_t *length);
WEAK int ngx_http_lua_ffi_get_resp_status(void *r);
WEAK int ngx_http_lua_ffi_req_is_internal(void *r);
WEAK int ngx_http_lua_ffi_req_get_method(void *r);
WEAK double ngx_http_lua_ffi_req_start_time(void *r);
WEAK int ngx_http_lua_ffi_balancer_get_last_failure(void *r, int *status, char **message);
WEAK ngx_value *ngx_http_get_variable(void *r, const ngx_text *name, uintptr_t hash);
WEAK extern volatile uintptr_t ngx_current_msec;
WEAK extern uintptr_t ngx_process;

/* The location's configuration is the sixth word of a request, in every nginx.  If it ever were
 * something else: what changes makes each request looked at, what doesn't makes one of TURNS. */
static inline uintptr_t request_location(const void *request) {
  return ((const uintptr_t *)request)[5];
}

bool neap__is_in_nginx(void);

/* NULL if it has none. */
const ngx_value *neap__request_variable(void *request, const char *name);

/* Whether the request was meant for an upstream: then one is found, and only the phase is wrong. */
NEAP__SELDOM bool neap__request_has_upstream(void *request);

#endif
#endif
