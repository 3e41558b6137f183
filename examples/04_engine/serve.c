/* The engine in a program with a libuv loop and no Lua of its own: policies from a directory decide
 * what counts as a failure and who answers instead.
 *
 *   cc serve.c $(pkg-config --cflags --libs neap-engine) */
#include <neap/engine.h>
#include <stdio.h>
#include <uv.h>

static void on_event(void *data, const neap_event *event) {
  (void)data;
  if (event->kind != NEAP_EVENT_TRANSITION) return;
  printf("  %s -> %s by %s\n", neap_state_name(event->moved.from), neap_state_name(event->moved.to),
         neap_cause_name(event->moved.cause));
}

/* A request: `status` is what the upstream would answer. */
static void serve(neap_guard *guard, int status) {
  neap_request request = {.target = "/flags/dark-mode", .target_length = 16};
  neap_fallback_cause cause = NEAP_CAUSE_REFUSED;
  neap_ticket ticket;

  if (neap_guard_acquire(guard, NULL, 0, &ticket, NULL) <= NEAP_ALLOW_BYPASS) {
    neap_result result = {.status = status, .duration_ms = 12, .request = &request};
    neap_outcome outcome = neap_guard_report(guard, &ticket, &result, NULL);
    if (outcome == NEAP_SUCCESS) {
      neap_answer good = {.status = status, .body = "on", .body_length = 2};
      neap_guard_remember(guard, NULL, 0, &request, &good);
      printf("%d primary: on\n", status);
      return;
    }
    cause = neap_cause_of(outcome);
  }

  neap_answer answer = {0};
  if (neap_guard_fallback(guard, NULL, 0, cause, &request, NULL, &answer)) {
    printf("%d %s: %.*s\n", answer.status, answer.source, (int)answer.body_length,
           (const char *)answer.body);
  } else {
    puts("503: nobody answers");
  }
  neap_answer_free(&answer);
}

int main(void) {
  uint64_t now_ms = 0; /* a clock that is moved by hand: nothing here waits */
  const char *policies[] = {"policies/flag_provider.lua"};
  neap_engine_options options = {.policies = policies,
                                 .policy_count = 1,
                                 .clock = neap_clock_manual(&now_ms),
                                 .on_event = on_event};
  neap_engine *engine;
  char error[1024];
  uv_loop_t *loop = uv_default_loop();
  if (!neap_engine_open(loop, &options, &engine, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }

  neap_guard *guard = neap_engine_guard(engine, "flag_provider");
  serve(guard, 200);
  for (int i = 0; i < 6; i++) serve(guard, 500);
  now_ms += 6000; /* the cooldown is 5 s, and up to a fifth more */
  for (int i = 0; i < 2; i++) serve(guard, 200);

  neap_engine_close(engine, NULL, NULL);
  uv_run(loop, UV_RUN_DEFAULT); /* until the engine's handles are closed */
  return uv_loop_close(loop);
}

/* prints
200 primary: on
200 last_good: on
200 last_good: on
200 last_good: on
200 last_good: on
  closed -> open by failures
200 last_good: on
200 last_good: on
  open -> half_open by cooldown
200 primary: on
  half_open -> closed by probes
200 primary: on
*/
