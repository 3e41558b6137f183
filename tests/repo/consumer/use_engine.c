/* Opens an engine on the policies in argv[1], makes one guarded call, closes. */
#include <neap/engine.h>
#include <stdio.h>
#include <uv.h>

static void on_closed(void *data) { *(bool *)data = true; }

int main(int argc, char **argv) {
  if (neap_engine_abi() != NEAP_ABI || neap_abi() != NEAP_ABI) return 5;
  const char *policies[] = {argc > 1 ? argv[1] : "policies"};
  neap_engine_options options = {.policies = policies, .policy_count = 1};
  neap_engine *engine;
  char error[1024];
  uv_loop_t *loop = uv_default_loop();
  if (!neap_engine_open(loop, &options, &engine, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }

  neap_guard *guard = neap_engine_guard(engine, "http_upstream");
  neap_ticket ticket;
  if (!guard || neap_guard_acquire(guard, NULL, 0, &ticket, NULL) != NEAP_ALLOW) return 2;
  neap_result result = {.status = 200, .duration_ms = 3};
  if (neap_guard_report(guard, &ticket, &result, NULL) != NEAP_SUCCESS) return 3;

  bool closed = false;
  neap_engine_close(engine, on_closed, &closed);
  uv_run(loop, UV_RUN_DEFAULT);
  uv_loop_close(loop);
  puts(closed ? "ok: engine" : "the engine did not close");
  return closed ? 0 : 4;
}
