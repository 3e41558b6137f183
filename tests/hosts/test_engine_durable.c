/* test_engine_durable.c: what outlives the process (last good answers, queued calls), and answers
 * that are there before anybody is asked. */
#include "tests/hosts/engine_replay.h"

#include <sys/wait.h>

#define SIZE(array) (sizeof(array) / sizeof *(array))
#define HEADER(name, value)                                                                        \
  { (name), sizeof(name) - 1, (value), sizeof(value) - 1 }
#define QUEUE "fallback.queue('orders', { max_entries = 1000, attempts = 2 })"

static bool is_kept;
static int kept_count;

static void on_kept(void *data, bool kept) {
  (void)data;
  is_kept = kept;
  kept_count++;
}

/* ---- Last good answers ----------------------------------------------------------------------- */

static void answers_after_a_restart_with_the_true_age(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { persist = 'flags', max_age_ms = 3600000 }");
  neap_header headers[] = {HEADER("Content-Type", "text/plain"), HEADER("X-Empty", "")};
  neap_answer good = {.status = 203,
                      .headers = headers,
                      .header_count = 2,
                      .body = "b\0dy",
                      .body_length = 4},
              answer;
  neap_request request = request_of("GET", "/a", NULL);
  neap_guard_remember(g, NULL, 0, &request, &good);
  f->now_ms += 5000;
  fixture_close(f);

  f->now_ms = 77; /* another process, another clock */
  g = open_again(f);
  f->now_ms += 1000;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_string_equal(answer.source, "last_good");
  assert_in_range(answer.age_ms, 6000, 60000);
  assert_int_equal(answer.status, 203);
  assert_int_equal(answer.body_length, 4);
  assert_memory_equal(answer.body, "b\0dy", 4);
  assert_int_equal(answer.header_count, 2);
  assert_string_equal(answer.headers[0].value, "text/plain");
  assert_string_equal(answer.headers[1].name, "X-Empty");
  assert_int_equal(answer.headers[1].value_length, 0);
  neap_answer_free(&answer);
}

static void a_damaged_file_is_a_warning(void **state) {
  fixture *f = *state;
  char path[600];
  neap_guard *g = open_guard(f, "fallback.last_good { persist = 'flags' }");
  fixture_close(f);
  snprintf(path, sizeof path, "%s/flags.kept", state_dir(f));
  write_text(path, "neap kept 1\nK 5 0000000000000000\nhello\n");
  g = open_again(f);
  assert_non_null(strstr(f->log, "warning flags: "));
  assert_non_null(strstr(f->log, "is damaged at byte 13: no answers from before the start"));
  neap_answer answer;
  neap_request request = request_of("GET", "/a", NULL);
  assert_false(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
}

/* One that can't be read back would cost all the others. */
static void leaves_out_of_the_file_what_it_could_not_read(void **state) {
  static neap_header many[600];
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { persist = 'flags' }");
  neap_request strange = request_of("GET", "/strange", NULL),
               request = request_of("GET", "/a", NULL);
  for (size_t i = 0; i < SIZE(many); i++) many[i] = (neap_header)HEADER("X", "y");
  neap_answer answer, good = {.status = 200, .headers = many, .header_count = SIZE(many)};
  neap_guard_remember(g, NULL, 0, &strange, &good);
  good.header_count = 1;
  neap_guard_remember(g, NULL, 0, &request, &good);
  fixture_close(f);
  g = open_again(f);
  assert_string_equal(f->log, "");
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  neap_answer_free(&answer);
  assert_false(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &strange, NULL, &answer));
}

static void keeps_nothing_that_says_there_is_nothing(void **state) {
  static const int statuses[] = {206, 304, 404, 410, 500};
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { key = function() return 'k' end }");
  neap_request request = request_of("GET", "/a", NULL);
  for (size_t i = 0; i < SIZE(statuses); i++) {
    neap_answer answer = {.status = statuses[i], .body = "x", .body_length = 1};
    neap_guard_remember(g, NULL, 0, &request, &answer);
    assert_false(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  }
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static void queues_a_request_and_has_it_made_again_when_the_breaker_lets_it(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, QUEUE);
  neap_header headers[] = {HEADER("Host", "shop"), HEADER("Content-Length", "5")};
  neap_request request = request_of("POST", "/orders?x=1", "7 pie");
  request.headers = headers;
  request.header_count = 2;
  fail_calls(g, NULL, 3);
  neap_answer answer;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_int_equal(answer.status, 202);
  assert_string_equal(answer.source, "queue");
  assert_int_equal(answer.pending, 0);
  assert_memory_equal(answer.body, "{\"id\":\"", 7);
  char id[64] = "";
  sscanf((const char *)answer.body, "{\"id\":\"%63[0-9a-f]\"}", id);
  neap_answer_free(&answer);

  turn_until(f, again.count == 1);
  assert_string_equal(again.id, id);
  assert_string_equal(again.key, "default");
  assert_string_equal(again.text, "POST /orders?x=1 7 pie Host:shop Content-Length:5");
  assert_ptr_equal(again.guard, g);
  neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_LATER, NULL, 1);
  f->now_ms += 100;
  turn_until(f, again.count == 2);
  assert_string_equal(again.id, id);
  neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_DONE, NULL, 0);
  neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_OWN, NULL, 0); /* said already */
  f->now_ms += 100000;
  fixture_close(f);
  open_again(f);
  for (int i = 0; i < 20; i++) uv_run(&f->loop, UV_RUN_NOWAIT);
  assert_int_equal(again.count, 2);
}

/* What waits has no time after the deadline; what does not wait answers. */
static void queues_nothing_whose_deadline_has_come(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, QUEUE ", fallback.default('else')");
  neap_request request = request_of("POST", "/orders", "7 pie");
  neap_answer answer;
  fail_calls(g, NULL, 3);
  request.has_deadline = true;
  assert_true(neap_guard_fallback_pending(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_string_equal(answer.source, "default");
  assert_int_equal(answer.pending, 0);
  neap_answer_free(&answer);
  request.left_ms = 500;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  assert_string_equal(answer.source, "queue");
  neap_answer_free(&answer);
  turn_until(f, again.count == 1);
  assert_string_equal(again.text, "POST /orders 7 pie");
  neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_DONE, NULL, 0);
  f->now_ms += 100000;
  for (int i = 0; i < 20; i++) uv_run(&f->loop, UV_RUN_NOWAIT);
  assert_int_equal(again.count, 1);
}

static void tells_a_program_that_goes_on_when_the_call_is_on_the_disk(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, QUEUE);
  neap_request request = request_of("POST", "/", "x");
  neap_answer answers[50];
  kept_count = 0;
  for (size_t i = 0; i < SIZE(answers); i++) {
    assert_true(
        neap_guard_fallback_pending(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answers[i]));
    assert_int_not_equal(answers[i].pending, 0);
    neap_guard_when_kept(g, answers[i].pending, on_kept, NULL);
  }
  assert_int_equal(kept_count, 0);
  neap_guard_when_kept(g, answers[0].pending, NULL, NULL); /* its client has left */
  turn_until(f, kept_count == 49);
  assert_true(is_kept);
  for (size_t i = 0; i < SIZE(answers); i++) neap_answer_free(&answers[i]);
}

/* Its client was told 503, or has left: nobody has been promised anything. */
static void does_not_make_a_call_that_was_taken_back(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.queue('orders', { timeout_ms = 70 })");
  neap_answer answers[2];
  kept_count = 0;
  for (size_t i = 0; i < SIZE(answers); i++) {
    neap_request request = request_of("POST", i ? "/second" : "/first", "x");
    assert_true(
        neap_guard_fallback_pending(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answers[i]));
    assert_int_equal(answers[i].within_ms, 70);
    neap_guard_when_kept(g, answers[i].pending, on_kept, NULL);
  }
  neap_guard_when_kept(g, answers[0].pending, NULL, NULL);
  for (size_t i = 0; i < SIZE(answers); i++) neap_answer_free(&answers[i]);
  turn_until(f, kept_count == 1);
  neap_guard_reset(g, NULL, 0, NULL);
  turn_until(f, again.count == 1);
  assert_string_equal(again.text, "POST /second x");
}

static void tells_who_waits_that_the_engine_was_closed(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, QUEUE);
  neap_request request = request_of("PUT", "/", "x");
  neap_answer answer;
  kept_count = 0;
  is_kept = true;
  assert_true(neap_guard_fallback_pending(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  neap_guard_when_kept(g, answer.pending, on_kept, NULL);
  neap_answer_free(&answer);
  fixture_close(f);
  assert_int_equal(kept_count, 1);
  assert_false(is_kept);
}

static void declines_what_is_not_to_be_done_later(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, QUEUE ", fallback.default 'no'");
  neap_header length[] = {HEADER("content-length", "70000")};
  neap_request requests[] = {request_of("GET", "/", NULL), request_of("HEAD", "/", NULL),
                             request_of("POST", "/", NULL)};
  requests[2].headers = length;
  requests[2].header_count = 1;
  for (size_t i = 0; i < SIZE(requests); i++) {
    neap_answer answer;
    assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &requests[i], NULL, &answer));
    assert_string_equal(answer.source, "default");
    neap_answer_free(&answer);
  }
  assert_non_null(strstr(f->log, "the request's body was not kept whole"));
  neap_request sent = request_of("POST", "/", "x");
  neap_result result = {.status = 503};
  neap_answer answer;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_FAILURE, &sent, &result, &answer));
  assert_string_equal(answer.source, "default");
  neap_answer_free(&answer);
}

static void puts_a_call_to_the_dead_letters_that_is_wrong(void **state) {
  fixture *f = *state;
  char path[600], text[2048] = "";
  neap_guard *g = open_guard(f, QUEUE);
  neap_request request = request_of("POST", "/poison", "x");
  neap_answer answer;
  assert_true(neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer));
  neap_answer_free(&answer);
  for (int i = 1; i <= 2; i++) {
    turn_until(f, again.count == i);
    neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_OWN, "422", 0);
    f->now_ms += 1000;
  }
  snprintf(path, sizeof path, "%s/orders.dead", state_dir(f));
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  assert_non_null(strstr(text, "/poison"));
  assert_non_null(strstr(f->log, "goes to the dead letters"));
}

/* The child is killed somewhere in its work; whatever it has told as queued is made again. */
static void loses_nothing_that_it_answered_when_it_is_killed(void **state) {
  fixture *f = *state;
  int pipes[2];
  open_guard(f, QUEUE);
  fixture_close(f);
  assert_int_equal(pipe(pipes), 0);
  pid_t child = fork();
  if (child == 0) {
    neap_guard *g = open_again(f); /* its loop is never run, so nothing is made again here */
    for (;;) {
      neap_request request = request_of("POST", "/", "x");
      neap_answer answer;
      if (!neap_guard_fallback(g, NULL, 0, NEAP_CAUSE_REFUSED, &request, NULL, &answer)) continue;
      if (write(pipes[1], (const char *)answer.body + 7, 22) != 22) _exit(1);
      neap_answer_free(&answer);
    }
  }
  close(pipes[1]);
  static char told[1000][23];
  int count = read(pipes[0], told[0], 22) == 22; /* however long that takes */
  usleep(100000);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  while (count < 1000 && read(pipes[0], told[count], 22) == 22) count++;
  close(pipes[0]);
  assert_true(count > 0);
  neap_guard *g = open_again(f);
  neap_guard_reset(g, NULL, 0, NULL);
  for (int i = 0; i < count; i++) {
    turn_until(f, again.count == i + 1);
    assert_string_equal(again.id, told[i]);
    neap_engine_replayed(f->engine, again.token, NEAP_REPLAY_DONE, NULL, 0);
  }
}

static void says_what_is_wrong_with_its_directory(void **state) {
  fixture *f = *state;
  write_policy(f, "flags", NUMBERS "fallback = { " QUEUE " }");
  neap_engine_options options = {.no_watch = true, .state_dir = "/nowhere/at/all"};
  assert_int_equal(fixture_open_with(f, options), -1);
  assert_non_null(strstr(f->error, "state_dir /nowhere/at/all: No such file or directory"));
  options.state_dir = NULL;
  assert_int_equal(fixture_open_with(f, options), 0);
  assert_non_null(strstr(f->log, "as there is no state_dir: the stage declines"));
}

/* ---- At once --------------------------------------------------------------------------------- */

static void answers_at_once_and_says_when_to_ask_again(void **state) {
  fixture *f = *state;
  neap_guard *g = open_guard(f, "fallback.last_good { revalidate_after_ms = 1000 }");
  neap_request request = request_of("GET", "/a", NULL);
  neap_answer answer, good = {.status = 200, .body = "one", .body_length = 3};
  uint64_t refresh, other;
  assert_false(neap_guard_at_once(g, NULL, 0, &request, &answer, &refresh));
  neap_guard_remember(g, NULL, 0, &request, &good);
  f->now_ms += 1000;
  assert_true(neap_guard_at_once(g, NULL, 0, &request, &answer, &refresh));
  assert_int_equal(refresh, 0);
  assert_string_equal(answer.source, "last_good");
  assert_int_equal(answer.age_ms, 1000);
  neap_answer_free(&answer);
  f->now_ms += 1;
  assert_true(neap_guard_at_once(g, NULL, 0, &request, &answer, &refresh));
  assert_int_not_equal(refresh, 0);
  neap_answer_free(&answer);
  assert_true(neap_guard_at_once(g, NULL, 0, &request, &answer, &other)); /* one asks */
  assert_int_equal(other, 0);
  neap_answer_free(&answer);
  good.body = "two";
  neap_guard_remember(g, NULL, 0, &request, &good);
  neap_guard_refreshed(g, refresh);
  assert_true(neap_guard_at_once(g, NULL, 0, &request, &answer, &refresh));
  assert_memory_equal(answer.body, "two", 3);
  assert_int_equal(answer.age_ms, 0);
  assert_int_equal(refresh, 0);
  neap_answer_free(&answer);
  neap_request post = request_of("POST", "/a", "x");
  assert_false(neap_guard_at_once(g, NULL, 0, &post, &answer, &refresh));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ENGINE_TEST(answers_after_a_restart_with_the_true_age),
      ENGINE_TEST(a_damaged_file_is_a_warning),
      ENGINE_TEST(leaves_out_of_the_file_what_it_could_not_read),
      ENGINE_TEST(keeps_nothing_that_says_there_is_nothing),
      ENGINE_TEST(queues_a_request_and_has_it_made_again_when_the_breaker_lets_it),
      ENGINE_TEST(queues_nothing_whose_deadline_has_come),
      ENGINE_TEST(tells_a_program_that_goes_on_when_the_call_is_on_the_disk),
      ENGINE_TEST(does_not_make_a_call_that_was_taken_back),
      ENGINE_TEST(tells_who_waits_that_the_engine_was_closed),
      ENGINE_TEST(declines_what_is_not_to_be_done_later),
      ENGINE_TEST(puts_a_call_to_the_dead_letters_that_is_wrong),
      ENGINE_TEST(loses_nothing_that_it_answered_when_it_is_killed),
      ENGINE_TEST(says_what_is_wrong_with_its_directory),
      ENGINE_TEST(answers_at_once_and_says_when_to_ask_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
