/* test_engine_storm.c: ten thousand calls at once when the breaker opens, each of them answered; and
 * a thousand reloads while there are queued calls and kept answers. */
#include "tests/hosts/engine_replay.h"

#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>

enum { CALLS = 10000, GUARDS = 100, QUEUED = 3000, MADE = 500 };

static neap_ticket tickets[CALLS];
static neap_answer answers[CALLS];

static int kept_count;

static void on_kept(void *data, bool is_kept) {
  (void)data;
  assert_true(is_kept);
  kept_count++;
}

/* All are let through; then the dependency is gone. */
static neap_guard *open_storm(fixture *f, const char *fallback) {
  write_policy(f, "replica", NUMBERS);
  neap_guard *g = open_guard(f, fallback);
  for (size_t i = 0; i < CALLS; i++)
    assert_true(neap_guard_acquire(g, NULL, 0, &tickets[i], NULL) <= NEAP_ALLOW_BYPASS);
  return g;
}

static void fail_call(neap_guard *g, size_t i, const neap_request *request) {
  neap_result result = {.ended_by = NEAP_ENDED_TRANSPORT,
                        .phase = NEAP_PHASE_CONNECT,
                        .error = "refused",
                        .request = request};
  neap_outcome outcome = neap_guard_report(g, &tickets[i], &result, NULL);
  assert_int_equal(outcome, NEAP_FAILURE);
  assert_true(neap_guard_fallback_pending(g, NULL, 0, neap_cause_of(outcome), request, &result,
                                          &answers[i]));
}

static void all_get_an_answer(void **state) {
  fixture *f = *state;
  neap_guard *g = open_storm(f, "fallback.last_good {}, fallback.default 'degraded'");
  neap_request known = request_of("GET", "/known", NULL), unknown = request_of("GET", "/x", NULL);
  neap_answer good = {.status = 200, .body = "kept", .body_length = 4};
  neap_guard_remember(g, NULL, 0, &known, &good);
  for (size_t i = 0; i < CALLS; i++) {
    fail_call(g, i, i % 2 ? &known : &unknown);
    assert_string_equal(answers[i].source, i % 2 ? "last_good" : "default");
    neap_answer_free(&answers[i]);
  }
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_OPEN);
}

/* B101: so many go to the other guard, so many are queued, the rest has the default. */
static void fills_each_stage_to_its_cap(void **state) {
  fixture *f = *state;
  int whom;
  char body[16];
  neap_guard *g = open_storm(f, "fallback.guard('replica', { concurrent = 100 }), "
                                "fallback.queue('orders', { max_entries = 3000 }), "
                                "fallback.default 'degraded'");
  neap_guard_serve(neap_engine_guard(f->engine, "replica"), &whom);
  kept_count = 0;
  for (size_t i = 0; i < CALLS; i++) {
    snprintf(body, sizeof body, "%zu", i);
    neap_request request = request_of("POST", "/orders", body);
    fail_call(g, i, &request);
    assert_true((answers[i].elsewhere != NULL) == (i < GUARDS));
    if (i < GUARDS) {
      assert_ptr_equal(answers[i].elsewhere, &whom);
    } else if (i < GUARDS + QUEUED) {
      assert_string_equal(answers[i].source, "queue");
      neap_guard_when_kept(g, answers[i].pending, on_kept, NULL);
    } else {
      assert_string_equal(answers[i].source, "default");
    }
  }
  neap_answer there = {.status = 200, .body = "there", .body_length = 5};
  for (size_t i = 0; i < GUARDS; i++) {
    assert_true(neap_guard_asked(g, answers[i].pending, &there, &answers[i]));
    assert_string_equal(answers[i].source, "guard");
  }
  turn_until(f, kept_count == QUEUED);
  for (size_t i = 0; i < CALLS; i++) neap_answer_free(&answers[i]);
  neap_snapshot s = snapshot_of(g, NULL);
  assert_int_equal(s.state, NEAP_OPEN);
  assert_int_equal(s.totals.failure + s.totals.stale, CALLS);

  neap_guard_reset(g, NULL, 0, NULL);
  for (int i = 0; i < MADE; i++) { /* in their order */
    turn_until(f, again.count == i + 1);
    snprintf(body, sizeof body, "%d", GUARDS + i);
    assert_string_equal(again.text + strlen("POST /orders "), body);
    neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_DONE, NULL, 0);
  }
}

/* ---- Reloads --------------------------------------------------------------------------------- */

typedef struct footprint {
  int files, handles;
  size_t refs, lua_kib;
} footprint;

static void count_handle(uv_handle_t *handle, void *count) {
  (void)handle;
  ++*(int *)count;
}

/* Of the registry's references those that hold something: a free one holds the number of the next.
 * How many there have been at once depends on how busy the machine is. */
static size_t count_refs(lua_State *L) {
  size_t count = 0;
  for (size_t i = lua_rawlen(L, LUA_REGISTRYINDEX); i > 0; i--) {
    if (lua_rawgeti(L, LUA_REGISTRYINDEX, (lua_Integer)i) != LUA_TNUMBER) count++;
    lua_pop(L, 1);
  }
  return count;
}

static footprint measure(fixture *f) {
  lua_State *L = neap_engine_lua(f->engine);
  footprint p = {.files = 0};
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) p.files++;
  closedir(directory);
  uv_walk(&f->loop, count_handle, &p.handles);
  lua_gc(L, LUA_GCCOLLECT);
  lua_gc(L, LUA_GCCOLLECT);
  p.refs = count_refs(L);
  p.lua_kib = (size_t)lua_gc(L, LUA_GCCOUNT);
  return p;
}

/* One more order, and one answer that is kept and asked for, between any two reloads. */
static void reload_under_traffic(fixture *f, int from, int count) {
  for (int i = from; i < from + count; i++) {
    char rest[1024], body[16], target[16];
    snprintf(rest, sizeof rest,
             NUMBERS "timeout_ms = %d, fallback = { "
                     "fallback.last_good { persist = 'flags', max_entries = %d }, "
                     "fallback.queue('orders', { max_entries = %d }) }",
             1 + i, 50 + i % 2, 5000 + i);
    write_policy(f, "flags", rest);
    assert_int_equal(neap_engine_reload(f->engine, NULL), 1);
    neap_guard *g = neap_engine_guard(f->engine, "flags");
    snprintf(body, sizeof body, "%d", i);
    snprintf(target, sizeof target, "/%d", i % 60);
    neap_request order = request_of("POST", "/orders", body);
    neap_request get = request_of("GET", target, NULL);
    neap_answer answer, good = {.status = 200, .body = body, .body_length = strlen(body)};
    neap_guard_remember(g, NULL, 0, &get, &good);
    assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &get, NULL, &answer));
    assert_string_equal(answer.body, body);
    neap_answer_free(&answer);
    bool is_asked =
        neap_guard_fallback_pending(g, NULL, 0, NEAP_CAUSE_REFUSED, &order, NULL, &answer);
    assert_true(is_asked);
    neap_guard_when_kept(g, answer.pending, on_kept, NULL);
    neap_answer_free(&answer);
    f->now_ms += 100; /* so answers are written every now and then */
    uv_run(&f->loop, UV_RUN_NOWAIT);
    f->log[0] = '\0';
    f->event_count = 0;
  }
}

static void make_again(fixture *f, int count) {
  for (int i = 0; i < count; i++) {
    char text[64];
    turn_until(f, again.count == i + 1);
    snprintf(text, sizeof text, "POST /orders %d", i);
    assert_string_equal(again.text, text);
    neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_DONE, NULL, 0);
  }
}

/* B112, B214: queues and kept answers are the guard's, not a generation's. */
static void loses_and_leaves_nothing_over_a_thousand_reloads(void **state) {
  enum { WARM = 200, RELOADS = 1000 };
  fixture *f = *state;
  open_guard(f, "fallback.last_good { persist = 'flags' }, "
                "fallback.queue('orders', { max_entries = 5000 })");
  kept_count = 0;
  reload_under_traffic(f, 0, WARM);
  turn_until(f, kept_count == WARM);
  footprint before = measure(f);
  reload_under_traffic(f, WARM, RELOADS);
  turn_until(f, kept_count == WARM + RELOADS);
  footprint after = measure(f);
  assert_in_range(after.files, before.files - 1, before.files + 1); /* the one that is written */
  assert_int_equal(after.handles, before.handles);
  assert_int_equal(after.refs, before.refs);
  assert_true(after.lua_kib <=
              before.lua_kib + 16 + RELOADS / 4); /* what waits is known by place */
  make_again(f, WARM + RELOADS);

  fixture_close(f);
  neap_guard *g = open_again(f);
  neap_request get = request_of("GET", "/59", NULL);
  neap_answer answer;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &get, NULL, &answer));
  assert_string_equal(answer.body, "1199");
  neap_answer_free(&answer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(all_get_an_answer),
      ENGINE_TEST(fills_each_stage_to_its_cap),
      ENGINE_TEST(loses_and_leaves_nothing_over_a_thousand_reloads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
