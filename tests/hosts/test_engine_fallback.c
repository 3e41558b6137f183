/* test_engine_fallback.c: what answers when the dependency cannot; what may be kept for that. */
#include "tests/hosts/engine_support.h"

#include "lauxlib.h"

#define SIZE(array) (sizeof(array) / sizeof *(array))
#define HEADER(name, value)                                                                        \
  { (name), sizeof(name) - 1, (value), sizeof(value) - 1 }

static neap_request get(const char *target) {
  return (neap_request){.target = target, .target_length = strlen(target)};
}

static neap_answer good(const char *body) {
  return (neap_answer){.status = 200, .body = body, .body_length = strlen(body)};
}

static neap_guard *open_guard(fixture *f, const char *fallback) {
  char rest[2048];
  snprintf(rest, sizeof rest, NUMBERS "fallback = { %s }", fallback);
  write_policy(f, "flags", rest);
  fixture_open(f);
  return neap_engine_guard(f->engine, "flags");
}

/* The body of what the chain answers; NULL if it has nothing. */
static const char *ask(neap_guard *g, neap_request request) {
  static char body[256];
  neap_answer answer;
  if (!neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer)) return NULL;
  snprintf(body, sizeof body, "%s", answer.body ? (const char *)answer.body : "");
  neap_answer_free(&answer);
  return body;
}

static void assert_nothing(const char *body) {
  if (body) fail_msg("answered %s", body);
}

/* ---- The chain ------------------------------------------------------------------------------- */

static void answers_with_the_last_good_answer_and_its_age(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  assert_int_equal(neap_guard_wants_body(g), NEAP_BODY_MAX);
  neap_header headers[] = {HEADER("Content-Type", "text/plain"), HEADER("ETag", "\"1\"")};
  neap_answer kept = good("hel\0lo"), answer;
  kept.body_length = 6;
  kept.headers = headers;
  kept.header_count = 2;
  neap_request request = get("/a");
  neap_guard_remember(g, NULL, 0, &request, &kept);

  f->now_ms += 10000;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_TIMEOUT, &request, NULL, &answer));
  assert_int_equal(answer.status, 200);
  assert_string_equal(answer.source, "last_good");
  assert_int_equal(answer.age_ms, 10000);
  assert_int_equal(answer.body_length, 6);
  assert_memory_equal(answer.body, "hel\0lo", 6);
  assert_int_equal(answer.header_count, 2);
  assert_string_equal(answer.headers[1].name, "ETag");
  assert_string_equal(answer.headers[1].value, "\"1\"");
  neap_answer_free(&answer);
  neap_answer_free(&answer);

  f->now_ms += 1;
  assert_nothing(ask(g, get("/a")));
}

/* Clients that poll with an ETag are told 304, and nothing is sent that could be kept. */
static void makes_what_was_validated_fresh_again(void **state) {
  static const struct {
    const char *asked, *told, *field; /* If-None-Match, ETag, and one more field of the 304 */
    bool is_fresh;
  } cases[] = {
      {"\"1\"", "\"1\"", NULL, true},       {"\"1\"", "W/\"1\"", NULL, true},
      {"\"1\"", NULL, NULL, true},          {"\"0\", \"1\"", "\"1\"", NULL, true},
      {"\"0\", \"1\"", NULL, NULL, false}, /* which of them? */
      {"\"2\"", "\"2\"", NULL, false},     /* another one than is kept */
      {"\"1\"", "\"2\"", NULL, false},      {"*", NULL, NULL, false},
      {NULL, "\"1\"", NULL, false}, /* not what was asked */
      {"\"1\"", "\"1\"", "private", false}, {"\"1\"", "", NULL, false},
  };
  for (size_t i = 0; i < SIZE(cases); i++) {
    fixture *f = *state;
    neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
    neap_header etag = HEADER("ETag", "\"1\""), asked = HEADER("if-none-match", ""), told[2];
    neap_request request = get("/a"), poll = get("/a");
    neap_answer kept = good("1"), unchanged = {.status = 304, .headers = told}, answer;
    kept.headers = &etag;
    kept.header_count = 1;
    neap_guard_remember(g, NULL, 0, &request, &kept);
    f->now_ms += 9000;
    if (cases[i].asked) {
      asked.value = cases[i].asked;
      asked.value_length = strlen(asked.value);
      poll.headers = &asked;
      poll.header_count = 1;
    }
    if (cases[i].told)
      told[unchanged.header_count++] =
          (neap_header){"etag", 4, cases[i].told, strlen(cases[i].told)};
    if (cases[i].field)
      told[unchanged.header_count++] =
          (neap_header){"Cache-Control", 13, cases[i].field, strlen(cases[i].field)};
    neap_guard_remember(g, NULL, 0, &poll, &unchanged);
    f->now_ms += 5000;
    bool is_fresh = neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer);
    if (is_fresh != cases[i].is_fresh) fail_msg("case %zu: %d", i, is_fresh);
    if (is_fresh) {
      assert_int_equal(answer.age_ms, 5000);
      assert_string_equal(answer.body, "1"); /* not the 304 */
      assert_int_equal(answer.status, 200);
      neap_answer_free(&answer);
    }
    fixture_close(f);
  }
}

static void asks_only_for_what_the_policy_says(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.default 'here'");
  neap_answer answer;
  assert_int_equal(neap_guard_wants_body(g), 0);
  assert_false(neap_guard_fallback(g, NULL, 0, neap_cause_of(NEAP_SUCCESS), NULL, NULL, &answer));
  assert_false(neap_guard_fallback(g, NULL, 0, neap_cause_of(NEAP_NEUTRAL), NULL, NULL, &answer));
  assert_true(neap_guard_fallback(g, NULL, 0, neap_cause_of(NEAP_FAILURE), NULL, NULL, &answer));
  assert_string_equal(answer.body, "here");
  assert_string_equal(answer.headers[0].value, "text/plain; charset=utf-8");
  neap_answer_free(&answer);
}

static void says_defaults_in_http(void **state) {
  static const struct {
    const char *value, *body;
    int status;
  } cases[] = {
      {"{ on = false }", "{\"on\":false}", 200},
      {"{ 1, 2.5, 'x\\n\"' }", "[1,2.5,\"x\\n\\\"\"]", 200},
      {"{ status = 203, body = 'text' }", "text", 203},
      {"{ status = 204 }", "", 204},
      {"{ body = 'only' }", "only", 200},
      {"{ state = 'ok' }", "{\"state\":\"ok\"}", 200},
      {"function() return { status = 200, other = 1 } end", "{\"other\":1,\"status\":200}", 200},
      {"false", "false", 200},
      {"{}", "{}", 200},
      {"function(call) return call.request.target end", "/x", 200},
      {"{ status = 200, headers = { ['X-B'] = 1, ['X-A'] = 'a' }, body = 'h' }", "h", 200},
  };
  for (size_t i = 0; i < SIZE(cases); i++) {
    fixture *f = *state;
    char stage[256];
    snprintf(stage, sizeof stage, "fallback.default(%s)", cases[i].value);
    neap_guard *g = open_guard(f, stage);
    neap_request request = get("/x");
    neap_answer answer;
    assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
    assert_string_equal(answer.body, cases[i].body);
    assert_int_equal(answer.status, cases[i].status);
    if (strcmp(cases[i].body, "h") == 0) {
      assert_string_equal(answer.headers[0].name, "X-A");
      assert_string_equal(answer.headers[1].value, "1");
    }
    neap_answer_free(&answer);
    fixture_close(f);
  }
}

static void declines_what_cannot_be_said_in_http(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.default(function() return { f = tostring } end)");
  assert_nothing(ask(g, get("/")));
  assert_non_null(strstr(f->log, "not for JSON"));
}

static void fails_fast_with_what_the_breaker_knows(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.fail { status = 503 }");
  fail_calls(g, NULL, 3);
  f->now_ms += 400;
  neap_answer answer;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer));
  assert_string_equal(answer.source, "fail");
  assert_string_equal(answer.kind, "open");
  assert_int_equal(answer.status, 503);
  assert_int_equal(answer.retry_after_ms, 600);
  assert_null(answer.body);
  neap_answer_free(&answer);
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_FAILURE, NULL, NULL, &answer));
  assert_string_equal(answer.kind, "failure");
  assert_int_equal(answer.retry_after_ms, 600);
  neap_answer_free(&answer);
  neap_guard_reset(g, NULL, 0, NULL);
  neap_guard_set_mode(g, NULL, 0, NEAP_FORCED_OPEN, 0, NULL, NULL);
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer));
  assert_string_equal(answer.kind, "forced_open");
  assert_int_equal(answer.retry_after_ms, 0);
  neap_answer_free(&answer);
  neap_guard_set_mode(g, NULL, 0, NEAP_FORCED_OPEN, 700, NULL, NULL);
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer));
  assert_string_equal(answer.kind, "forced_open");
  assert_int_equal(answer.retry_after_ms, 700); /* the mode's */
  neap_answer_free(&answer);
  neap_guard_set_mode(g, NULL, 0, NEAP_MODE_OF_RULES, 0, NULL, NULL);
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, NULL, NULL, &answer));
  assert_string_equal(answer.kind, "bulkhead"); /* the breaker is closed: it was the program */
  neap_answer_free(&answer);
}

static void shows_a_stage_the_result(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(
      f, "function(call) return call.cause .. ' ' .. tostring(call.status) .. ' ' .. call.key end");
  neap_result result = {.status = 502};
  neap_answer answer;
  assert_true(neap_guard_fallback(g, "k", 1, NEAP_CAUSE_FAILURE, NULL, &result, &answer));
  assert_string_equal(answer.body, "failure 502 k");
  assert_string_equal(answer.source, "function");
  neap_answer_free(&answer);
}

/* ---- What may be kept, and for whom ---------------------------------------------------------- */

static void keeps_apart_what_a_cache_would(void **state) {
  static const char *const names[] = {"Host",   "Authorization",   "Cookie",         "X-API-Key",
                                      "Accept", "accept-encoding", "Accept-Language"};
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  for (size_t i = 0; i < SIZE(names); i++) {
    char target[16];
    snprintf(target, sizeof target, "/%zu", i);
    neap_header mine[] = {{names[i], strlen(names[i]), "mine", 4}};
    neap_header yours[] = {{names[i], strlen(names[i]), "yours", 5}};
    neap_request request = get(target);
    request.headers = mine;
    request.header_count = 1;
    neap_answer answer = good("mine");
    neap_guard_remember(g, NULL, 0, &request, &answer);
    assert_string_equal(ask(g, request), "mine");
    request.headers = yours;
    assert_nothing(ask(g, request));
    assert_nothing(ask(g, get(target)));
  }
  neap_request request = get("/0");
  neap_header other[] = {HEADER("X-Request-Id", "7"), HEADER("Host", "mine")};
  request.headers = other;
  request.header_count = 2;
  assert_string_equal(ask(g, request), "mine");
  request.method = "HEAD";
  assert_nothing(ask(g, request));
}

static void keeps_keys_apart(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  neap_request request = get("/a");
  neap_answer answer = good("of tenant 1");
  neap_guard_remember(g, "1", 1, &request, &answer);
  assert_false(neap_guard_fallback(g, "2", 1, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_true(neap_guard_fallback(g, "1", 1, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  neap_answer_free(&answer);
}

static void does_not_keep_what_is_one_clients(void **state) {
  static const struct {
    const char *why;
    const char *method;
    int status;
    neap_header header;
    bool kept;
  } cases[] = {
      {"plain", NULL, 200, HEADER("X", ""), true},
      {"no-store", NULL, 200, HEADER("Cache-Control", "max-age=5, No-Store"), false},
      {"private", NULL, 200, HEADER("cache-control", "private=\"x\""), false},
      {"private, badly said", NULL, 200, HEADER("Cache-Control", "max-age=5; private"), false},
      {"private, after nothing", NULL, 200, HEADER("Cache-Control", "=5, private"), false},
      {"no-cache", NULL, 200, HEADER("Cache-Control", "no-cache, max-age=0"), true},
      {"a cookie", NULL, 200, HEADER("Set-Cookie", "a=b"), false},
      {"vary: *", NULL, 200, HEADER("Vary", "*"), false},
      {"vary: origin", NULL, 200, HEADER("Vary", "Accept-Encoding, Origin"), false},
      {"vary: accept", NULL, 200, HEADER("Vary", "accept-encoding , ACCEPT"), true},
      {"a post", "POST", 200, HEADER("X", ""), false},
      {"a part", NULL, 206, HEADER("X", ""), false},
      {"not modified", NULL, 304, HEADER("X", ""), false},
      {"an error", NULL, 500, HEADER("X", ""), false},
  };
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  for (size_t i = 0; i < SIZE(cases); i++) {
    neap_request request = get(cases[i].why);
    neap_answer answer = good("kept");
    request.method = cases[i].method;
    answer.status = cases[i].status;
    answer.headers = &cases[i].header;
    answer.header_count = 1;
    neap_guard_remember(g, NULL, 0, &request, &answer);
    if ((ask(g, request) != NULL) != cases[i].kept) fail_msg("%s", cases[i].why);
  }
}

static void keeps_no_answer_to_a_range(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  neap_header range[] = {HEADER("Range", "bytes=0-1")};
  neap_request request = get("/a");
  request.headers = range;
  request.header_count = 1;
  neap_answer answer = good("ab");
  neap_guard_remember(g, NULL, 0, &request, &answer);
  assert_nothing(ask(g, get("/a")));
}

/* What is asked for may be in the body (a search, say), though a cache would not look there. */
static void keeps_no_answer_to_a_question_in_a_body(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  neap_header length[] = {HEADER("Content-Length", "3")},
              chunked[] = {HEADER("transfer-encoding", "chunked")};
  neap_header none[] = {HEADER("Content-Length", "0")};
  neap_request with_body = get("/search"), with_length = get("/search"),
               with_chunks = get("/search");
  neap_request empty = get("/search");
  with_body.body = "{1}";
  with_body.body_length = 3;
  with_length.headers = length;
  with_chunks.headers = chunked;
  empty.headers = none;
  with_length.header_count = with_chunks.header_count = empty.header_count = 1;
  neap_request requests[] = {with_body, with_length, with_chunks};
  neap_answer answer = good("found");
  for (size_t i = 0; i < SIZE(requests); i++) {
    neap_guard_remember(g, NULL, 0, &requests[i], &answer);
    assert_nothing(ask(g, requests[i]));
    assert_nothing(ask(g, get("/search")));
  }
  neap_guard_remember(g, NULL, 0, &empty, &answer);
  assert_string_equal(ask(g, get("/search")), "found");
  for (size_t i = 0; i < SIZE(requests); i++) assert_nothing(ask(g, requests[i]));
}

static void keeps_no_answer_that_its_client_wants_kept_nowhere(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  neap_header headers[] = {HEADER("Cache-Control", "no-cache, no-store")};
  neap_request request = get("/a");
  neap_answer answer = good("secret");
  request.headers = headers;
  request.header_count = 1;
  neap_guard_remember(g, NULL, 0, &request, &answer);
  assert_nothing(ask(g, get("/a")));
  headers[0] = (neap_header)HEADER("Cache-Control", "no-cache");
  neap_guard_remember(g, NULL, 0, &request, &answer);
  assert_string_equal(ask(g, get("/a")), "secret");
}

/* A policy with a key function knows what tells its answers apart. */
static void lets_a_policy_choose_the_key(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000, key = function(call)\n"
                                "  return call.request.method .. call.request.body end }");
  neap_header headers[] = {HEADER("Cache-Control", "private")};
  neap_request request = get("/evaluate");
  request.method = "POST";
  request.body = "{1}";
  request.body_length = 3;
  neap_answer answer = good("one");
  answer.headers = headers;
  answer.header_count = 1;
  neap_guard_remember(g, NULL, 0, &request, &answer);
  assert_string_equal(ask(g, request), "one");
  request.body = "{2}";
  assert_nothing(ask(g, request));
}

/* The same answer again is not copied again at once; another is. */
static void keeps_the_newest_answer(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 10000 }");
  neap_request request = get("/a");
  neap_answer one = good("one"), two = good("two"), answer;
  neap_guard_remember(g, NULL, 0, &request, &one);
  neap_guard_remember(g, NULL, 0, &request, &two);
  assert_string_equal(ask(g, request), "two");
  neap_guard_remember(g, NULL, 0, &request, &one);
  neap_guard_remember(g, NULL, 0, &request, &one);
  assert_string_equal(ask(g, request), "one");
  for (int i = 0; i < 100; i++) {
    f->now_ms += 100;
    neap_guard_remember(g, NULL, 0, &request, &one);
    assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
    assert_in_range(answer.age_ms, 0, 250);
    neap_answer_free(&answer);
  }
}

static void keeps_what_does_not_live_long_as_often_as_needed(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 100 }");
  neap_request request = get("/a");
  neap_answer one = good("one");
  for (int i = 0; i < 50; i++) {
    neap_guard_remember(g, NULL, 0, &request, &one);
    f->now_ms += 20;
    assert_string_equal(ask(g, request), "one");
  }
}

static void remembers_nothing_without_a_stage_for_it(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.default 'x'");
  neap_request request = get("/a");
  neap_answer answer = good("kept");
  neap_guard_remember(g, NULL, 0, &request, &answer);
  assert_string_equal(ask(g, request), "x");
}

/* ---- The short way to a last good answer ------------------------------------------------------ */

static neap_header accepts_json[] = {HEADER("Accept", "application/json")};

static neap_request request_for(const char *method, const char *target, bool has_header) {
  neap_request request = get(target);
  request.method = method;
  request.headers = accepts_json;
  request.header_count = has_header;
  return request;
}

/* Everything about an answer in one line. */
static const char *answer_of(neap_guard *g, const char *key, neap_request request) {
  static char text[2][512];
  static int next;
  char *to = text[next++ % 2];
  neap_answer a;
  if (!neap_guard_fallback(g, key, key ? strlen(key) : 0, NEAP_CAUSE_REFUSED, &request, NULL, &a))
    return "nothing";
  assert_int_equal(strlen(a.body ? a.body : ""), a.body_length);
  int n = snprintf(to, sizeof text[0], "%d %s %llu %llu '%s'", a.status, a.source,
                   (unsigned long long)a.age_ms, (unsigned long long)a.retry_after_ms,
                   a.body ? (const char *)a.body : "-");
  for (size_t i = 0; i < a.header_count; i++)
    n += snprintf(to + n, sizeof text[0] - (size_t)n, " %.*s=%.*s", (int)a.headers[i].name_length,
                  a.headers[i].name, (int)a.headers[i].value_length, a.headers[i].value);
  neap_answer_free(&a);
  return to;
}

/* The counters of the chain of a guard, and what its last_good stage holds. */
static const char *counters_of(fixture *f, const char *guard) {
  static char text[2][512];
  static int next;
  char *to = text[next++ % 2];
  lua_State *L = neap_engine_lua(f->engine);
  luaL_loadstring(L, "local chain, said = require 'neap.engine'.guards[...].chain, {}\n"
                     "for _, row in ipairs(chain:rows()) do\n"
                     "  if row.source == 'last_good' or row.source == 'default' then\n"
                     "    said[#said + 1] = row.source .. ' ' .. row.result .. ' ' .. row.count\n"
                     "  end\n"
                     "end\n"
                     "said[#said + 1] = table.concat(chain.durations.counts, ' ')\n"
                     "said[#said + 1] = chain.kept[1].count .. ' of ' .. chain.kept[1].bytes\n"
                     "return table.concat(said, ', ')");
  lua_pushstring(L, guard);
  assert_true(neap_engine_pcall(f->engine, 1, 1));
  snprintf(to, sizeof text[0], "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
  return to;
}

/* A chain that begins with a last_good stage is asked for that in another way than one where it
 * comes second: of the same answers, both say the same, and count and forget the same. */
static void the_short_way_answers_what_the_general_way_does(void **state) {
  fixture *f = *state;
  static const char *const keys[] = {NULL, "tenant"}, *const methods[] = {"GET", "HEAD", "POST"};
  static const char *const targets[] = {"/a", "/b?c=d"};
  write_policy(f, "short",
               NUMBERS "fallback = {\n"
                       "  fallback.last_good { max_age_ms = 9000, max_entries = 9 },\n"
                       "  fallback.default 'reviewed' }");
  write_policy(f, "general",
               NUMBERS "fallback = { function() end,\n"
                       "  fallback.last_good { max_age_ms = 9000, max_entries = 9 },\n"
                       "  fallback.default 'reviewed' }");
  fixture_open(f);
  neap_guard *a = neap_engine_guard(f->engine, "short");
  neap_guard *b = neap_engine_guard(f->engine, "general");
  neap_header rows[] = {HEADER("Content-Type", "text/plain"), HEADER("X-Empty", "")};
  uint32_t seed = 20260;
  int good_ones = 0;
  for (int step = 0; step < 3000; step++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t dice = seed >> 8;
    const char *key = keys[dice % 2];
    neap_request request =
        request_for(methods[dice / 2 % 7 % 3], targets[dice / 14 % 2], dice / 28 % 2);
    if (dice / 56 % 3 == 0) {
      char body[16];
      snprintf(body, sizeof body, "%d", step);
      neap_answer answer = good(body);
      answer.headers = rows;
      answer.header_count = dice / 168 % 3;
      neap_guard_remember(a, key, key ? strlen(key) : 0, &request, &answer);
      neap_guard_remember(b, key, key ? strlen(key) : 0, &request, &answer);
    } else {
      const char *of_a = answer_of(a, key, request);
      assert_string_equal(of_a, answer_of(b, key, request));
      good_ones += strstr(of_a, "last_good") != NULL;
      if (strcmp(request.method, "POST") == 0) assert_non_null(strstr(of_a, "default"));
    }
    f->now_ms += dice / 504 % 300;
    assert_string_equal(counters_of(f, "short"), counters_of(f, "general"));
  }
  assert_in_range(good_ones, 500, 1500);
}

/* The way there is made anew with each generation, and goes when the stage does. */
static void the_short_way_is_the_newest_policys(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 5000 }");
  neap_request request = get("/a");
  neap_answer kept = good("kept");
  neap_guard_remember(g, NULL, 0, &request, &kept);
  f->now_ms += 2000;
  assert_string_equal(answer_of(g, NULL, request), "200 last_good 2000 0 'kept'");
  static const struct {
    const char *fallback, *says;
  } generations[] = {
      {"fallback.default 'd', fallback.last_good { max_age_ms = 5000 }",
       "200 default 0 0 'd' Content-Type=text/plain; charset=utf-8"},
      {"fallback.last_good { max_age_ms = 5000 }", "200 last_good 2000 0 'kept'"},
      {"fallback.last_good { max_age_ms = 5000, key = function() return 'other' end }", "nothing"},
      {"fallback.last_good { max_age_ms = 1999 }, fallback.default 'd'",
       "200 default 0 0 'd' Content-Type=text/plain; charset=utf-8"},
  };
  for (size_t i = 0; i < SIZE(generations); i++) {
    char rest[512];
    snprintf(rest, sizeof rest, NUMBERS "fallback = { %s }", generations[i].fallback);
    write_policy(f, "flags", rest);
    neap_engine_reload(f->engine, NULL);
    assert_string_equal(answer_of(g, NULL, request), generations[i].says);
  }
}

/* What was asked for is the program's, whatever becomes of what is kept. */
static void an_answer_outlives_what_was_kept(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { max_age_ms = 5000, max_entries = 1 }");
  neap_header rows[] = {HEADER("ETag", "one")}, others[] = {HEADER("ETag", "two")};
  neap_request request = get("/a"), other = get("/b");
  neap_answer one = good("1st"), two = good("2nd"), answer;
  one.headers = rows;
  two.headers = others;
  one.header_count = two.header_count = 1;
  neap_guard_remember(g, NULL, 0, &request, &one);
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  neap_guard_remember(g, NULL, 0, &other, &two);
  lua_gc(neap_engine_lua(f->engine), LUA_GCCOLLECT); /* for the sanitizer to see */
  assert_string_equal(answer_of(g, NULL, other), "200 last_good 0 0 '2nd' ETag=two");
  assert_string_equal(answer.body, "1st");
  assert_string_equal(answer.headers[0].name, "ETag");
  assert_string_equal(answer.headers[0].value, "one");
  neap_answer_free(&answer);
}

/* An answer that another guard's chain has kept is another guard's. */
static void says_whose_last_good_answer_it_is(void **state) {
  fixture *f = *state;
  write_policy(f, "replica", NUMBERS "fallback = { fallback.last_good { max_age_ms = 9000 } }");
  neap_guard *g = open_guard(f, "fallback.guard 'replica'");
  neap_guard *replica = neap_engine_guard(f->engine, "replica");
  neap_request request = get("/a");
  neap_answer kept = good("of the replica");
  neap_guard_remember(replica, NULL, 0, &request, &kept);
  f->now_ms += 70;
  assert_string_equal(answer_of(g, NULL, request), "200 guard 70 0 'of the replica'");
}

static neap_answer ask_pending(neap_guard *g, neap_fallback_cause cause, const char *method) {
  neap_request request = get("/a");
  neap_result late = {.ended_by = NEAP_ENDED_TIMEOUT, .phase = NEAP_PHASE_SENT};
  neap_answer answer;
  request.method = method;
  if (!neap_guard_fallback_pending(g, NULL, 0, cause, &request,
                                   cause == NEAP_CAUSE_REFUSED ? NULL : &late, &answer))
    fail_msg("nobody answers");
  return answer;
}

/* The program makes the call that a fallback.guard stage stands for. */
static void has_the_program_ask_another_guards_dependency(void **state) {
  fixture *f = *state;
  int whom = 0;
  write_policy(f, "replica", NUMBERS);
  neap_guard *g = open_guard(f, "fallback.guard('replica', { concurrent = 1, timeout_ms = 500 }), "
                                "fallback.default(function(call) return call.request.method end)");
  neap_guard_serve(neap_engine_guard(f->engine, "replica"), &whom);
  neap_answer kept = good("there"), first = ask_pending(g, NEAP_CAUSE_REFUSED, "POST"), answer;
  assert_ptr_equal(first.elsewhere, &whom);
  assert_int_equal(first.within_ms, 500);

  answer = ask_pending(g, NEAP_CAUSE_REFUSED, "GET"); /* one at a time */
  assert_string_equal(answer.body, "GET");
  neap_answer_free(&answer);

  assert_true(neap_guard_asked(g, first.pending, &kept, &answer));
  assert_string_equal(answer.source, "guard");
  assert_string_equal(answer.body, "there");
  neap_answer_free(&answer);
  assert_false(neap_guard_asked(g, first.pending, &kept, &answer)); /* told already */

  /* No answer of use: on to the next stage, which sees the call as it was. */
  first = ask_pending(g, NEAP_CAUSE_TIMEOUT, "PUT");
  assert_ptr_equal(first.elsewhere, &whom);
  assert_true(neap_guard_asked(g, first.pending, NULL, &answer));
  assert_string_equal(answer.source, "default");
  assert_string_equal(answer.body, "PUT");
  neap_answer_free(&answer);

  /* Its client has left: the place is free. */
  first = ask_pending(g, NEAP_CAUSE_REFUSED, "GET");
  assert_false(neap_guard_asked(g, first.pending, NULL, NULL));
  first = ask_pending(g, NEAP_CAUSE_REFUSED, "GET");
  assert_ptr_equal(first.elsewhere, &whom);
  assert_false(neap_guard_asked(g, first.pending, NULL, NULL));

  /* What may have been carried out is not sent to another. */
  answer = ask_pending(g, NEAP_CAUSE_TIMEOUT, "POST");
  assert_string_equal(answer.body, "POST");
  neap_answer_free(&answer);

  /* A program that waits for nothing, and one that serves no more. */
  assert_string_equal(ask(g, get("/a")), "GET");
  neap_guard_serve(neap_engine_guard(f->engine, "replica"), NULL);
  answer = ask_pending(g, NEAP_CAUSE_REFUSED, "GET");
  assert_string_equal(answer.body, "GET");
  neap_answer_free(&answer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(answers_with_the_last_good_answer_and_its_age),
      ENGINE_TEST(makes_what_was_validated_fresh_again),
      ENGINE_TEST(asks_only_for_what_the_policy_says),
      ENGINE_TEST(says_defaults_in_http),
      ENGINE_TEST(declines_what_cannot_be_said_in_http),
      ENGINE_TEST(fails_fast_with_what_the_breaker_knows),
      ENGINE_TEST(shows_a_stage_the_result),
      ENGINE_TEST(keeps_apart_what_a_cache_would),
      ENGINE_TEST(keeps_keys_apart),
      ENGINE_TEST(does_not_keep_what_is_one_clients),
      ENGINE_TEST(keeps_no_answer_to_a_range),
      ENGINE_TEST(keeps_no_answer_to_a_question_in_a_body),
      ENGINE_TEST(keeps_no_answer_that_its_client_wants_kept_nowhere),
      ENGINE_TEST(lets_a_policy_choose_the_key),
      ENGINE_TEST(keeps_the_newest_answer),
      ENGINE_TEST(keeps_what_does_not_live_long_as_often_as_needed),
      ENGINE_TEST(remembers_nothing_without_a_stage_for_it),
      ENGINE_TEST(the_short_way_answers_what_the_general_way_does),
      ENGINE_TEST(the_short_way_is_the_newest_policys),
      ENGINE_TEST(an_answer_outlives_what_was_kept),
      ENGINE_TEST(says_whose_last_good_answer_it_is),
      ENGINE_TEST(has_the_program_ask_another_guards_dependency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
