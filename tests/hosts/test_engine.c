/* test_engine.c: a program without any Lua of its own uses policies. */
#include "tests/hosts/engine_support.h"

/* ---- Opening --------------------------------------------------------------------------------- */

static void opens_what_is_in_a_directory(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "timeout_ms = 50");
  write_policy(f, "payments", NUMBERS);
  fixture_open(f);
  neap_guard *flags = neap_engine_guard(f->engine, "flags");
  assert_string_equal(neap_guard_name(flags), "flags");
  assert_int_equal(neap_guard_timeout_ms(flags), 50);
  assert_int_equal(neap_guard_lease_ms(flags), 100); /* twice that */
  assert_ptr_equal(neap_engine_guard_at(f->engine, 0), flags);
  assert_ptr_equal(neap_engine_guard_at(f->engine, 1), neap_engine_guard(f->engine, "payments"));
  assert_null(neap_engine_guard_at(f->engine, 2));
  assert_null(neap_engine_guard(f->engine, "flag"));
}

static void says_all_that_is_wrong_and_where(void **state) {
  fixture *f = *state;
  write_policy(f, "good", NUMBERS);
  write_text(path_of(f, "broken.lua"), "return {\n  name = \"broken\",\n  trip = = 3\n}\n");
  write_text(path_of(f, "empty.lua"), "");
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.no_watch = true}), -1);
  assert_non_null(strstr(f->error, "broken.lua:3:"));
  assert_non_null(strstr(f->error, "empty.lua"));
  assert_null(strstr(f->error, "good.lua"));
  assert_null(f->engine);
}

static void refuses_what_cannot_be_opened(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  const char *const nowhere[] = {"/nonexistent/policies"};
  neap_engine_options options = {.policies = nowhere, .policy_count = 1};
  assert_int_equal(fixture_open_with(f, options), -1);
  assert_non_null(strstr(f->error, "/nonexistent/policies: No such file or directory"));

  mkdir(path_of(f, "empty"), 0700);
  const char *const empty[] = {path_of(f, "empty")};
  options.policies = empty;
  assert_int_equal(fixture_open_with(f, options), -1);
  assert_non_null(strstr(f->error, "has no policy file (*.lua)"));

  assert_int_equal(
      fixture_open_with(f,
                        (neap_engine_options){.params = (const char *const[]){"/nonexistent/p.lua"},
                                              .param_count = 1}),
      -1);
  assert_non_null(strstr(f->error, "/nonexistent/p.lua: No such file or directory"));

  assert_int_equal(fixture_open_with(f, (neap_engine_options){.lua_memory_bytes = 20000}), -1);
  assert_true(strlen(f->error) > 0);
}

static void refuses_two_policies_of_one_name(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  mkdir(path_of(f, "more"), 0700);
  write_policy(f, "more/flags", NUMBERS);
  write_text(path_of(f, "more/flags.lua"), "return { name = 'flags', " NUMBERS " }");
  const char *const both[] = {f->root, path_of(f, "more")};
  neap_engine_options options = {.policies = both, .policy_count = 2, .no_watch = true};
  assert_int_equal(fixture_open_with(f, options), -1);
  assert_non_null(strstr(f->error, "more/flags.lua: there is a policy flags already"));
}

static void refuses_more_policies_than_breakers(void **state) {
  fixture *f = *state;
  write_policy(f, "a", NUMBERS);
  write_policy(f, "b", NUMBERS);
  assert_int_equal(fixture_open_with(f, (neap_engine_options){.max_breakers = 1}), -1);
  assert_non_null(strstr(f->error, "b"));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static void goes_through_a_whole_cycle(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);
  fail_calls(g, NULL, 3);

  neap_ticket ticket;
  neap_refusal refusal;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, &refusal), NEAP_REFUSE_OPEN);
  assert_string_equal(refusal.reason, "open");
  assert_string_equal(refusal.state, "open");
  assert_int_equal(refusal.retry_after_ms, 1000);

  f->now_ms += 1000;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, &refusal), NEAP_ALLOW_PROBE);
  neap_ticket second;
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &second, &refusal), NEAP_REFUSE_PROBES);
  assert_string_equal(refusal.reason, "probes_busy");
  assert_string_equal(refusal.state, "half_open");
  assert_true(refusal.retry_after_ms > 0);
  assert_int_equal(neap_guard_report(g, &ticket, &(neap_result){.status = 200}, NULL),
                   NEAP_SUCCESS);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);

  assert_int_equal(f->event_count, 3);
  const neap_transition *opened = &f->events[0].moved;
  assert_int_equal(opened->to, NEAP_OPEN);
  assert_int_equal(opened->cause, NEAP_BY_FAILURES);
  assert_int_equal(opened->measured, 3);
  assert_int_equal(opened->limit, 3);
  assert_int_equal(opened->calls, 4);
  assert_int_equal(opened->open_ms, 1000);
  assert_int_equal(f->events[0].at_ms, 5000000000);
  assert_string_equal(f->texts[0], "flags/default: closed -> open: 3 failures in 4 calls, limit 3; "
                                   "open for 1000 ms, level 1");
  assert_string_equal(f->texts[1],
                      "flags/default: open -> half_open: the cooldown is over, a probe goes");
  assert_string_equal(f->texts[2],
                      "flags/default: half_open -> closed: 1 probe succeeded, limit 1");
  assert_string_equal(f->log, "");
}

static void says_a_rate_in_millionths(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", "trip = { failure_rate = 0.5, minimum_calls = 4 }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  for (int i = 0; i < 2; i++) call_once(g, NULL, (neap_result){.status = 200});
  fail_calls(g, NULL, 2);
  assert_int_equal(f->event_count, 1);
  assert_int_equal(f->events[0].moved.cause, NEAP_BY_FAILURE_RATE);
  assert_int_equal(f->events[0].moved.limit, NEAP_ONE / 2);
  assert_int_equal(f->events[0].moved.measured, 2);
}

/* What the shipped classifier makes of what HTTP, the transport and gRPC say. */
static void classifies_what_calls_come_to(void **state) {
  static const struct {
    neap_result result;
    neap_outcome outcome;
  } cases[] = {
      {{.status = 200}, NEAP_SUCCESS},
      {{.status = 301}, NEAP_SUCCESS},
      {{.status = 404}, NEAP_NEUTRAL},
      {{.status = 429}, NEAP_FAILURE},
      {{.status = 500}, NEAP_FAILURE},
      {{.status = 503}, NEAP_FAILURE},
      {{.ended_by = NEAP_ENDED_TIMEOUT, .phase = NEAP_PHASE_SENT}, NEAP_TIMEOUT},
      {{.ended_by = NEAP_ENDED_TRANSPORT, .error = "refused"}, NEAP_FAILURE},
      {{.ended_by = NEAP_ENDED_TRANSPORT}, NEAP_FAILURE},
      {{.ended_by = NEAP_ENDED_CALLER, .phase = NEAP_PHASE_SENT}, NEAP_NEUTRAL},
      {{.ended_by = NEAP_ENDED_BULKHEAD}, NEAP_NEUTRAL},
      {{.status = 200, .is_grpc = true, .grpc_status = 0}, NEAP_SUCCESS},
      {{.status = 200, .is_grpc = true, .grpc_status = 5}, NEAP_NEUTRAL},
      {{.status = 200, .is_grpc = true, .grpc_status = 14}, NEAP_FAILURE},
  };
  fixture *f = *state;
  write_policy(f, "any", "trip = { failures = 1000 }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "any");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    neap_outcome outcome = call_once(g, NULL, cases[i].result);
    if (outcome != cases[i].outcome)
      fail_msg("case %zu: outcome %d, not %d", i, outcome, cases[i].outcome);
  }
  neap_totals totals = snapshot_of(g, NULL).totals;
  assert_int_equal(totals.success, 3);
  assert_int_equal(totals.failure, 7);
  assert_int_equal(totals.timeout, 1);
  assert_int_equal(totals.neutral, 4);
}

/* Successes that need no Lua are counted like those that do. */
static void counts_plain_successes_alike(void **state) {
  fixture *f = *state;
  write_policy(f, "plain", "trip = { failures = 3 }");
  write_policy(f, "own",
               "trip = { failures = 3 }, classify = function(c) return classify.http(c) end");
  fixture_open(f);
  neap_guard *plain = neap_engine_guard(f->engine, "plain");
  neap_guard *own = neap_engine_guard(f->engine, "own");
  for (int status = 200; status < 600; status++) {
    neap_result result = {.status = status, .duration_ms = (uint64_t)status};
    neap_guard_reset(plain, NULL, 0, NULL);
    neap_guard_reset(own, NULL, 0, NULL);
    assert_int_equal(call_once(plain, NULL, result), call_once(own, NULL, result));
  }
  neap_snapshot a = snapshot_of(plain, NULL), b = snapshot_of(own, NULL);
  assert_memory_equal(&a.totals, &b.totals, sizeof a.totals);
  assert_int_equal(a.totals.success, 200);
  assert_int_equal(a.duration_sum_ms, b.duration_sum_ms);
}

/* A trip function sees slow successes: they cannot stay in C. */
static void lets_a_trip_function_see_every_call(void **state) {
  fixture *f = *state;
  write_policy(f, "flags",
               "trip = { slow_call_ms = 10, decide = function(s) return s.slow_success >= 2 end }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  call_once(g, NULL, (neap_result){.status = 200, .duration_ms = 11});
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);
  call_once(g, NULL, (neap_result){.status = 200, .duration_ms = 11});
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_OPEN);
}

static void heeds_retry_after(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_header headers[] = {{"Retry-After", 11, "30", 2}};
  for (int i = 0; i < 3; i++)
    call_once(g, NULL, (neap_result){.status = 503, .headers = headers, .header_count = 1});
  assert_int_equal(snapshot_of(g, NULL).retry_after_ms, 30000);
}

/* A policy sees everything that was reported; headers by any spelling. */
static void shows_the_policy_all_of_a_call(void **state) {
  fixture *f = *state;
  write_policy(
      f, "seen",
      "trip = { failures = 1000 }, classify = function(call)\n"
      "  local r, h = call.request, call.headers\n"
      "  return 'neutral', ('%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s'):format(call.key,\n"
      "    call.status, call.ended_by, call.phase, call.duration_ms, h['x-many'], h['X-MANY'],\n"
      "    call.body, call.code, r.method, r.target, r.headers.accept, r.body)\n"
      "end");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "seen");
  assert_int_equal(neap_guard_wants_body(g), NEAP_BODY_MAX);
  neap_header headers[] = {{"X-Many", 6, "one", 3}, {"x-many", 6, "two", 3}};
  neap_header asked[] = {{"Accept", 6, "*/*", 3}};
  neap_request request = {.method = "PUT",
                          .target = "/a?b",
                          .target_length = 4,
                          .headers = asked,
                          .header_count = 1,
                          .body = "ask",
                          .body_length = 3};
  neap_result result = {.status = 418,
                        .phase = NEAP_PHASE_BODY,
                        .duration_ms = 12,
                        .code = "TEAPOT",
                        .headers = headers,
                        .header_count = 2,
                        .body = "no\0pe",
                        .body_length = 2,
                        .request = &request};
  neap_ticket ticket;
  neap_report report;
  neap_guard_acquire(g, "tea", 3, &ticket, NULL);
  assert_int_equal(neap_guard_report(g, &ticket, &result, &report), NEAP_NEUTRAL);
  assert_string_equal(report.reason,
                      "tea|418|answer|body|12|one, two|one, two|no|TEAPOT|PUT|/a?b|*/*|ask");
}

static void measures_what_is_not_said(void **state) {
  fixture *f = *state;
  write_policy(f, "slow", "trip = { slow_rate = 0.5, slow_call_ms = 100, minimum_calls = 1 }");
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "slow");
  neap_ticket ticket;
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  f->now_ms += 101;
  neap_guard_report(g, &ticket, &(neap_result){.status = 200}, NULL);
  assert_int_equal(f->events[0].moved.cause, NEAP_BY_SLOW_RATE);
}

static void keeps_keys_apart(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  call_once(g, "b", (neap_result){.status = 200});
  fail_calls(g, "a", 3);
  assert_int_equal(snapshot_of(g, "a").state, NEAP_OPEN);
  assert_int_equal(snapshot_of(g, "b").state, NEAP_CLOSED);
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);
  neap_snapshot unknown;
  assert_false(neap_guard_snapshot(g, "c", 1, &unknown));
  assert_string_equal(f->events[0].key == NULL ? "" : "told", "told");
}

/* B113: keys come from outside; they must not make breakers without end. */
static void shares_one_breaker_when_there_is_no_room(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  neap_engine_options options = {
      .clock = neap_clock_manual(&f->now_ms), .no_watch = true, .max_breakers = 4};
  assert_int_equal(fixture_open_with(f, options), 0);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  char key[16];
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "key%d", i);
    call_once(g, key, (neap_result){.status = 200});
  }
  assert_int_equal(snapshot_of(g, "key0").totals.success, 1);
  assert_int_equal(snapshot_of(g, "key1").totals.success, 1);
  assert_int_equal(snapshot_of(g, "*").totals.success, 998);
  neap_snapshot unknown;
  assert_false(neap_guard_snapshot(g, "key2", 4, &unknown));
  assert_non_null(strstr(f->log, "warning flags: no room for another key"));
}

static void takes_a_ticket_back_once(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_ticket ticket;
  neap_report report;
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  neap_guard_report(g, &ticket, &(neap_result){.status = 500}, &report);
  assert_int_equal(report.reported, NEAP_COUNTED);
  assert_int_equal(neap_guard_report(g, &ticket, &(neap_result){.status = 500}, &report),
                   NEAP_NEUTRAL);
  assert_int_equal(report.reported, NEAP_USED);
  neap_guard_abandon(g, &ticket);
  assert_int_equal(snapshot_of(g, NULL).calls, 1);
}

static void takes_a_late_report_as_stale(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_ticket ticket;
  neap_report report;
  neap_guard_acquire(g, NULL, 0, &ticket, NULL);
  fail_calls(g, NULL, 3);
  assert_int_equal(neap_guard_report(g, &ticket, &(neap_result){.status = 200}, &report),
                   NEAP_SUCCESS);
  assert_int_equal(report.reported, NEAP_STALE);
}

static void gives_an_abandoned_probe_back(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  fail_calls(g, NULL, 3);
  f->now_ms += 1000;
  neap_ticket ticket;
  for (int i = 0; i < 100; i++) {
    assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_ALLOW_PROBE);
    neap_guard_abandon(g, &ticket);
  }
  assert_int_equal(snapshot_of(g, NULL).probes_in_flight, 0);
  assert_int_equal(snapshot_of(g, NULL).totals.abandoned, 100);
}

/* ---- Operating ------------------------------------------------------------------------------- */

static void is_operated_by_hand(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  fixture_open(f);
  neap_guard *g = neap_engine_guard(f->engine, "flags");
  neap_ticket ticket;
  neap_refusal refusal;
  assert_true(neap_guard_set_mode(g, NULL, 0, NEAP_FORCED_OPEN, 500, "ann", "drill"));
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, &refusal), NEAP_REFUSE_FORCED);
  assert_string_equal(refusal.reason, "forced_open");
  assert_string_equal(refusal.state, "closed");  /* which lives on underneath */
  assert_int_equal(refusal.retry_after_ms, 500); /* what is left of the mode */
  assert_non_null(strstr(f->log, "flags/default: mode forced_open for 500 ms by ann: drill"));
  f->now_ms += 500;
  assert_int_equal(call_once(g, NULL, (neap_result){.status = 200}), NEAP_SUCCESS);

  assert_true(neap_guard_set_mode(g, NULL, 0, NEAP_SHADOW, 0, NULL, NULL));
  fail_calls(g, NULL, 3);
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_ALLOW_BYPASS);
  neap_guard_report(g, &ticket, &(neap_result){.status = 200}, NULL);
  assert_true(neap_guard_set_mode(g, NULL, 0, NEAP_MODE_OF_RULES, 0, NULL, NULL));
  assert_int_equal(neap_guard_acquire(g, NULL, 0, &ticket, NULL), NEAP_REFUSE_OPEN);

  assert_true(neap_guard_reset(g, NULL, 0, "ann"));
  assert_int_equal(snapshot_of(g, NULL).state, NEAP_CLOSED);
  assert_non_null(strstr(f->texts[f->event_count - 1], "open -> closed: reset by hand, by ann"));
  assert_false(neap_guard_reset(g, "nobody", 6, NULL));
  assert_false(neap_guard_set_mode(g, "nobody", 6, NEAP_SHADOW, 0, NULL, NULL));
  assert_false(neap_guard_set_mode(g, NULL, 0, NEAP_SHADOW, UINT64_C(32) * 86400000, NULL, NULL));
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

typedef struct again {
  neap_guard *guard;
  int depth, deepest, told;
} again;

/* Uses the engine from inside its own event: above what is on the Lua stack there. */
static void call_again(void *data, const neap_event *event) {
  again *a = (again *)data;
  a->told++;
  if (++a->depth > a->deepest) a->deepest = a->depth;
  if (event->moved.to == NEAP_OPEN) {
    neap_ticket ticket;
    assert_int_equal(neap_guard_acquire(a->guard, NULL, 0, &ticket, NULL), NEAP_REFUSE_OPEN);
    assert_true(neap_guard_reset(a->guard, NULL, 0, "the callback"));
    call_once(a->guard, "other", (neap_result){.status = 200});
  }
  a->depth--;
}

static void may_be_used_from_its_own_events(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS);
  again a = {NULL, 0, 0, 0};
  const char *const policies[] = {f->root};
  neap_engine_options options = {.policies = policies,
                                 .policy_count = 1,
                                 .no_watch = true,
                                 .on_event = call_again,
                                 .data = &a};
  assert_true(neap_engine_open(&f->loop, &options, &f->engine, f->error, sizeof f->error));
  a.guard = neap_engine_guard(f->engine, "flags");
  for (int i = 0; i < 50; i++) fail_calls(a.guard, NULL, 3);
  assert_int_equal(a.told, 100);
  assert_int_equal(a.deepest, 1);
  assert_int_equal(snapshot_of(a.guard, "other").totals.success, 50);
}

/* A reason that a report in an event gave was still there when the report that had caused the event
 * added its own: two of them are more than there is room for.  Or it was taken for the other's. */
static void gives_each_report_its_own_reason(void **state) {
  fixture *f = *state;
  static const char *const trips[] = {"", ", decide = function() return false end"};
  for (int i = 0; i < 2; i++) {
    char rest[512];
    snprintf(rest, sizeof rest,
             "trip = { failures = 3%s }, classify = function(call)\n"
             "  return call.status == 200 and 'success' or 'failure',\n"
             "    string.rep(tostring(call.status), 60)\n"
             "end",
             trips[i]);
    write_policy(f, "flags", rest);
    again a = {NULL, 0, 0, 0};
    const char *const policies[] = {f->root};
    neap_engine_options options = {.policies = policies,
                                   .policy_count = 1,
                                   .no_watch = true,
                                   .on_event = call_again,
                                   .data = &a};
    assert_true(neap_engine_open(&f->loop, &options, &f->engine, f->error, sizeof f->error));
    neap_guard *g = a.guard = neap_engine_guard(f->engine, "flags");
    fail_calls(g, NULL, 2);
    neap_ticket ticket;
    neap_report report;
    neap_guard_acquire(g, NULL, 0, &ticket, NULL);
    neap_guard_report(g, &ticket, &(neap_result){.status = 500}, &report);
    assert_int_equal(a.told, 2);
    assert_int_equal(strlen(report.reason), 180);
    assert_int_equal(strncmp(report.reason, "500500", 6), 0);
    assert_string_equal(neap_guard_name(g), "flags");
    fixture_close(f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(opens_what_is_in_a_directory),
      ENGINE_TEST(says_all_that_is_wrong_and_where),
      ENGINE_TEST(refuses_what_cannot_be_opened),
      ENGINE_TEST(refuses_two_policies_of_one_name),
      ENGINE_TEST(refuses_more_policies_than_breakers),
      ENGINE_TEST(goes_through_a_whole_cycle),
      ENGINE_TEST(says_a_rate_in_millionths),
      ENGINE_TEST(classifies_what_calls_come_to),
      ENGINE_TEST(counts_plain_successes_alike),
      ENGINE_TEST(lets_a_trip_function_see_every_call),
      ENGINE_TEST(heeds_retry_after),
      ENGINE_TEST(shows_the_policy_all_of_a_call),
      ENGINE_TEST(measures_what_is_not_said),
      ENGINE_TEST(keeps_keys_apart),
      ENGINE_TEST(shares_one_breaker_when_there_is_no_room),
      ENGINE_TEST(takes_a_ticket_back_once),
      ENGINE_TEST(takes_a_late_report_as_stale),
      ENGINE_TEST(gives_an_abandoned_probe_back),
      ENGINE_TEST(is_operated_by_hand),
      ENGINE_TEST(may_be_used_from_its_own_events),
      ENGINE_TEST(gives_each_report_its_own_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
