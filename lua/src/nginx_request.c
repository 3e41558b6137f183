/* nginx_request.c: see nginx_request.h. */
#include "nginx_request.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

bool neap__is_in_nginx(void) {
  return lua_getexdata && ngx_http_lua_ffi_exit && ngx_http_lua_ffi_get_resp_status &&
         ngx_http_lua_ffi_req_is_internal && ngx_http_lua_ffi_req_start_time &&
         ngx_http_lua_ffi_req_get_method && ngx_http_lua_ffi_balancer_get_last_failure &&
         ngx_http_get_variable;
}

static uintptr_t text_hash(const ngx_text *text) {
  uintptr_t hash = 0;
  for (size_t i = 0; i < text->length; i++) hash = hash * 31 + text->bytes[i];
  return hash;
}

const ngx_value *neap__request_variable(void *request, const char *name) {
  ngx_text text = {strlen(name), (const unsigned char *)name};
  const ngx_value *value = ngx_http_get_variable(request, &text, text_hash(&text));
  return value && !value->not_found ? value : NULL;
}

bool neap__request_has_upstream(void *request) {
  int status;
  char *message = NULL;
  ngx_http_lua_ffi_balancer_get_last_failure(request, &status, &message);
  return !message || strcmp(message, "no upstream found") != 0;
}

#endif
