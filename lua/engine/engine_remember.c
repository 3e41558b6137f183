/* engine_remember.c: good answers, kept for the day the dependency has none.
 *
 * An answer that was meant for one client must not be served to another.  So what tells answers
 * apart is all that an HTTP cache would look at, and the credentials besides; an answer that says
 * it is private, or depends on something else, is not kept.  A policy whose last_good stage has a
 * key function of its own knows better, and is asked about every answer that is whole. */
#include "engine_internal.h"

#include <string.h>
#include <strings.h>

/* Requests that differ in one of these get answers of their own. */
static const char *const telling[] = {
    "host", "authorization", "cookie", "x-api-key", "accept", "accept-encoding", "accept-language",
};
#define TELLING (sizeof telling / sizeof *telling)

/* The next word of a list, whatever separates them: one who writes max-age=5; private means it. */
static bool next_word(const char **at, const char *end, const char **word, size_t *length) {
  static const char separators[] = ",;= \t";
  while (*at < end && strchr(separators, **at)) (*at)++;
  *word = *at;
  while (*at < end && !strchr(separators, **at)) (*at)++;
  *length = (size_t)(*at - *word);
  return *length > 0;
}

static bool is_word(const char *word, size_t length, const char *wanted) {
  return length == strlen(wanted) && strncasecmp(word, wanted, length) == 0;
}

static bool is_named(const neap_header *h, const char *name) {
  return is_word(h->name, h->name_length, name);
}

/* Its index, or TELLING.  Most fields do not even have the length of one of them. */
static size_t which_telling(const char *name, size_t length) {
  static const uint32_t lengths = 1u << 4 | 1u << 6 | 1u << 9 | 1u << 13 | 1u << 15;
  if (length > 15 || !(lengths >> length & 1)) return TELLING;
  size_t i = 0;
  while (i < TELLING && !is_word(name, length, telling[i])) i++;
  return i;
}

/* Cache-Control: private, no-store.  Vary: on what we do not look at. */
static bool forbids_keeping(const neap_header *h) {
  if (is_named(h, "set-cookie")) return true;
  bool is_control = is_named(h, "cache-control"), is_vary = is_named(h, "vary");
  const char *at = h->value, *word;
  size_t length;
  while ((is_control || is_vary) && next_word(&at, h->value + h->value_length, &word, &length)) {
    if (is_vary && which_telling(word, length) == TELLING) return true;
    if (is_control && (is_word(word, length, "private") || is_word(word, length, "no-store")))
      return true;
  }
  return false;
}

/* A part, or "not modified", answers nobody else's request; that there is nothing (404, 410) is not
 * what anybody is to be told for long. */
static bool is_whole(const neap_request *request, const neap_answer *answer) {
  static const int statuses[] = {200, 203, 204, 300, 301, 308};
  for (size_t i = 0; request && i < request->header_count; i++)
    if (is_named(&request->headers[i], "range")) return false;
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    if (answer->status == statuses[i]) return true;
  return false;
}

/* Whether its Cache-Control has one of two words; NULL: none. */
static bool request_says(const neap_request *request, const char *one, const char *other) {
  for (size_t i = 0; request && i < request->header_count; i++) {
    const neap_header *h = &request->headers[i];
    const char *at = h->value, *word;
    size_t length;
    if (!is_named(h, "cache-control")) continue;
    while (next_word(&at, h->value + h->value_length, &word, &length))
      if (is_word(word, length, one) || (other && is_word(word, length, other))) return true;
  }
  return false;
}

/* Who says that wants no answer of the past. */
bool engine_wants_new(const neap_request *request) {
  return request_says(request, "no-cache", "no-store");
}

/* What a GET with a body asks for is in the body, which may not be here. */
static bool has_body(const neap_request *request) {
  for (size_t i = 0; i < request->header_count; i++) {
    const neap_header *h = &request->headers[i];
    if (is_named(h, "transfer-encoding")) return true;
    if (is_named(h, "content-length") && !is_word(h->value, h->value_length, "0")) return true;
  }
  return request->body && request->body_length > 0;
}

static bool is_anybodys(const neap_answer *answer) {
  for (size_t i = 0; i < answer->header_count; i++)
    if (forbids_keeping(&answer->headers[i])) return false;
  return true;
}

static void add_line(luaL_Buffer *b, const char *text, size_t length) {
  luaL_addlstring(b, text, length);
  luaL_addchar(b, '\n');
}

/* What tells this request's answer from others, one line each; nil if that is not to be said. */
void engine_push_identity(lua_State *L, const neap_engine *e, const char *prefix, size_t length) {
  const neap_request *r = e->scope.request;
  const char *method = r && r->method ? r->method : "GET";
  bool is_safe = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
  if (!r || !is_safe || e->scope.is_private || has_body(r)) {
    lua_pushnil(L);
    return;
  }
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  luaL_addlstring(&b, prefix, length);
  add_line(&b, method, strlen(method));
  add_line(&b, r->target ? r->target : "/", r->target ? r->target_length : 1);
  for (size_t i = 0; i < r->header_count; i++) {
    const neap_header *h = &r->headers[i];
    size_t which = which_telling(h->name, h->name_length);
    if (which == TELLING) continue;
    luaL_addchar(&b, (char)('0' + which));
    add_line(&b, h->value, h->value_length);
  }
  luaL_pushresult(&b);
}

/* ---- The same again -------------------------------------------------------------------------- */

/* Eight bytes at a time.  Compared for a quarter of a second only: if two collide, an answer is
 * remembered that much later. */
static uint64_t mix(uint64_t h, const void *bytes, size_t length) {
  const unsigned char *p = (const unsigned char *)bytes;
  h ^= length;
  for (; length >= 8; p += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 29;
  }
  uint64_t rest = 0;
  if (length) memcpy(&rest, p, length);
  h = (h ^ rest) * UINT64_C(0x9E3779B97F4A7C15);
  return h ^ h >> 32;
}

static uint64_t mix_headers(uint64_t h, const neap_header *headers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    h = mix(h, headers[i].name, headers[i].name_length);
    h = mix(h, headers[i].value, headers[i].value_length);
  }
  return h;
}

/* Whether this very answer to this very request has just been remembered; if not, now it is. */
static bool is_just_kept(neap_guard *g, const char *key, size_t key_length,
                         const neap_request *request, const neap_answer *answer) {
  uint64_t identity = mix(1, key, key ? key_length : 0);
  if (request) {
    if (request->method) identity = mix(identity, request->method, strlen(request->method));
    identity = mix(identity, request->target, request->target ? request->target_length : 0);
    for (size_t i = 0; i < request->header_count; i++) {
      const neap_header *h = &request->headers[i];
      if (g->has_keys || which_telling(h->name, h->name_length) < TELLING)
        identity = mix_headers(identity, h, 1);
    }
    identity = mix(identity, request->body, request->body ? request->body_length : 0);
  }
  uint64_t content =
      mix((uint64_t)answer->status, answer->body, answer->body ? answer->body_length : 0);
  content = mix_headers(content, answer->headers, answer->header_count);
  uint64_t now_ms = engine_now_ms(g->engine);
  engine_kept *kept = &g->kept[identity % ENGINE_KEPT];
  if (kept->identity == identity && kept->content == content && now_ms - kept->at_ms < g->same_ms)
    return true;
  *kept = (engine_kept){identity, content, now_ms};
  return false;
}

/* ---- Keeping --------------------------------------------------------------------------------- */

typedef struct keeping {
  neap_guard *guard;
  const engine_line *line;
  const neap_answer *answer;
} keeping;

/* engine.remember(guard, line, call, answer, bytes) */
static int keep(lua_State *L) {
  const keeping *k = (const keeping *)lua_touserdata(L, 1);
  engine_push_function(L, "remember");
  lua_rawgeti(L, LUA_REGISTRYINDEX, k->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, k->line->ref);
  engine_push_call(L);
  lua_pushinteger(L, (lua_Integer)engine_push_kept(L, k->answer));
  lua_call(L, 5, 0);
  return 0;
}

/* ---- Still so -------------------------------------------------------------------------------- */

static const neap_header *find(const neap_header *headers, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (is_named(&headers[i], name)) return &headers[i];
  return NULL;
}

/* Without W/: a weak one says as well that nothing has changed that matters. */
static const char *opaque(const char *tag, size_t *length) {
  if (*length < 2 || tag[0] != 'W' || tag[1] != '/') return tag;
  *length -= 2;
  return tag + 2;
}

/* has_etag(kept answer, etag) -> whether it has that one */
int engine_l_has_etag(lua_State *L) {
  size_t length;
  const char *wanted = luaL_checklstring(L, 2, &length);
  const neap_answer *kept = engine_kept_answer(L, 1);
  const neap_header *h = kept ? find(kept->headers, kept->header_count, "etag") : NULL;
  bool is_same = false;
  if (h) {
    size_t own_length = h->value_length;
    const char *own = opaque(h->value, &own_length);
    wanted = opaque(wanted, &length);
    is_same = length > 0 && own_length == length && memcmp(own, wanted, length) == 0;
  }
  lua_pushboolean(L, is_same);
  return 1;
}

/* What a 304 is about: its ETag, or the only one that was asked for; NULL: nobody knows. */
static const neap_header *validated(const neap_request *request, const neap_answer *answer) {
  const neap_header *asked =
      request ? find(request->headers, request->header_count, "if-none-match") : NULL;
  const neap_header *etag = find(answer->headers, answer->header_count, "etag");
  if (answer->status != 304 || !asked) return NULL;
  if (etag) return etag;
  return memchr(asked->value, ',', asked->value_length) ? NULL : asked;
}

typedef struct renewing {
  neap_guard *guard;
  const engine_line *line;
  const neap_header *etag;
} renewing;

/* engine.renew(guard, line, call, etag) */
static int renew(lua_State *L) {
  const renewing *r = (const renewing *)lua_touserdata(L, 1);
  engine_push_function(L, "renew");
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->guard->ref);
  lua_rawgeti(L, LUA_REGISTRYINDEX, r->line->ref);
  engine_push_call(L);
  lua_pushlstring(L, r->etag->value, r->etag->value_length);
  lua_call(L, 4, 0);
  return 0;
}

void neap_guard_remember(neap_guard *g, const char *key, size_t key_length,
                         const neap_request *request, const neap_answer *answer) {
  neap_engine *e = g->engine;
  if (e->is_closing || !g->remembers) return;
  const neap_header *etag = validated(request, answer);
  if (!etag && !is_whole(request, answer)) return;
  bool is_private = !is_anybodys(answer) || request_says(request, "no-store", NULL) ||
                    (request && has_body(request));
  if (is_private && !g->has_keys) return;
  if (is_just_kept(g, key, key_length, request, answer)) return;
  neap_result result = {.status = answer->status,
                        .headers = answer->headers,
                        .header_count = answer->header_count,
                        .body = answer->body,
                        .body_length = answer->body_length};
  keeping k = {g, engine_line_of(g, key, key_length, true), answer};
  if (!k.line) return;
  renewing r = {g, k.line, etag};
  engine_scope outer = engine_enter(e, request, &result, is_private);
  if (etag)
    engine_run(e, renew, &r, g->name);
  else
    engine_run(e, keep, &k, g->name);
  engine_leave(e, outer);
}
