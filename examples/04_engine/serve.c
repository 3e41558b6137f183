/* The engine in a program with a libuv loop and no Lua of its own: policies from a directory decide
 * what counts as a failure and who answers instead.
 *
 *   cc serve.c $(pkg-config --cflags --libs neap-engine) */
#include <neap/engine.h>
#include <stdio.h>
#include <uv.h>

static void on_event(void *data, const neap_event *event) {
  (void)data;
  printf("event: %s\n", event->text);
}

/* What stands for a request here: the status that the upstream would answer with. */
static void request(neap_guard *guard, int status) {
  neap_ticket ticket;
  neap_refusal refusal;
  neap_fallback_cause cause = NEAP_CAUSE_REFUSED;

  if (neap_guard_acquire(guard, NULL, 0, &ticket, &refusal) <= NEAP_ALLOW_BYPASS) {
    neap_result result = {.ended_by = NEAP_ENDED_ANSWER, .status = status, .duration_ms = 12};
    neap_outcome outcome = neap_guard_report(guard, &ticket, &result, NULL);
    if (outcome == NEAP_SUCCESS) {
      printf("%d\n", status);
      return;
    }
    cause = neap_cause_of(outcome);
  }

  neap_answer answer = {0};
  if (neap_guard_fallback(guard, NULL, 0, cause, NULL, NULL, &answer)) {
    printf("%d from %s\n", answer.status, answer.source);
  } else {
    printf("nobody answers\n");
  }
  neap_answer_free(&answer);
}

int main(void) {
  uint64_t now_ms = 0;
  const char *policies[] = {"policies/http_upstream.lua"};
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

  neap_guard *guard = neap_engine_guard(engine, "http_upstream");
  request(guard, 200);
  for (int i = 0; i < 20; i++) request(guard, 500);
  now_ms += 60000;
  for (int i = 0; i < 3; i++) request(guard, 200);

  neap_engine_close(engine, NULL, NULL);
  uv_run(loop, UV_RUN_DEFAULT); /* until the engine's handles are closed */
  return uv_loop_close(loop);
}
