/* fetch.c: nothing of Lua's is called while curl is: it may raise. */
#include "fetch.h"

#include <curl/curl.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 3000L
#define ALL_MS     15000L
#define MOST       ((size_t)64 << 20)

typedef struct answer {
  char *text;
  size_t length;
} answer;

static size_t on_bytes(char *bytes, size_t one, size_t count, void *data) {
  answer *a = data;
  size_t more = one * count;
  if (more > MOST - a->length) return 0;
  char *text = realloc(a->text, a->length + more + 1);
  if (!text) return 0;
  memcpy(text + a->length, bytes, more);
  a->text = text;
  a->length += more;
  return more;
}

/* NULL: no memory. */
static struct curl_slist *headers_of(const char *token) {
  char line[600];
  struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
  if (!list || !token) return list;
  snprintf(line, sizeof line, "Authorization: Bearer %s", token);
  struct curl_slist *both = curl_slist_append(list, line);
  if (!both) curl_slist_free_all(list);
  return both;
}

/* The address is what was asked for: no proxy of the environment is in between. */
static CURLcode request(CURL *curl, const char *method, const char *url, struct curl_slist *headers,
                        const char *body, answer *a) {
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  if (body) curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* a key may be ".." */
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ALL_MS);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
  return curl_easy_perform(curl);
}

static int push_answer(lua_State *L, CURLcode code, long status, answer *a, const char *why) {
  if (code == CURLE_OK) {
    lua_pushinteger(L, (lua_Integer)status);
    lua_pushlstring(L, a->text ? a->text : "", a->length);
  } else {
    lua_pushnil(L);
    lua_pushstring(L, why[0] ? why : curl_easy_strerror(code));
  }
  free(a->text);
  return 2;
}

int fetch_l_fetch(lua_State *L) {
  const char *method = luaL_checkstring(L, 1), *url = luaL_checkstring(L, 2);
  const char *token = luaL_optstring(L, 3, NULL), *body = luaL_optstring(L, 4, NULL);
  CURL *curl = curl_easy_init();
  struct curl_slist *headers = headers_of(token);
  char why[CURL_ERROR_SIZE] = "";
  answer a = {0};
  CURLcode code = CURLE_OUT_OF_MEMORY;
  long status = 0;
  if (curl && headers) {
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    code = request(curl, method, url, headers, body, &a);
  }
  if (code == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  if (curl) curl_easy_cleanup(curl);
  return push_answer(L, code, status, &a, why);
}
