/* Processes that share a breaker and are killed at any instruction: the others go on. */
#include "survive.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 40
#else
#define ROUNDS 100
#endif
#define CHILDREN 3

/* In memory that all of them share. */
typedef struct shared {
  neap_breaker breaker;
  _Atomic uint64_t now_ms;
  atomic_uint started;
} shared;

static neap_rules rules_of_the_killed(bool count_window) {
  neap_rules r = neap_rules_default();
  r.window = count_window ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  r.length_ms = 100;
  r.calls = 60;
  r.failures = 10;
  r.failure_rate = 400000;
  r.cooldown_ms = 5;
  r.max_cooldown_ms = 20;
  r.probes = 5;
  r.successes = 3;
  r.concurrent = 2;
  r.lease_ms = 30;
  prepare(&r);
  return r;
}

static void call_once(shared *s, const neap_rules *rules, uint64_t *seed) {
  neap_permit permit = {0};
  uint64_t now_ms = atomic_fetch_add(&s->now_ms, random_below(seed, 2));
  if (neap_breaker_acquire(&s->breaker, rules, now_ms, &permit, NULL) > NEAP_ALLOW_BYPASS) return;
  neap_call call = {.outcome = (neap_outcome)random_below(seed, 5),
                    .duration_ms = random_below(seed, 10)};
  neap_breaker_report(&s->breaker, rules, now_ms, &permit, &call, NULL);
}

static pid_t child_begin(shared *s, const neap_rules *rules, uint64_t seed) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  atomic_fetch_add(&s->started, 1);
  for (;;) call_once(s, rules, &seed);
}

static void kill_at_any_instruction(bool count_window) {
  shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(s != MAP_FAILED);
  neap_rules rules = rules_of_the_killed(count_window);
  uint64_t seed = random_seed(97);
  s->now_ms = START_MS;
  for (unsigned round = 0; round < ROUNDS; round++) {
    pid_t children[CHILDREN];
    s->started = 0;
    for (unsigned i = 0; i < CHILDREN; i++)
      children[i] = child_begin(s, &rules, seed + round * CHILDREN + i + 1);
    while (s->started < CHILDREN) call_once(s, &rules, &seed);
    for (uint64_t n = random_below(&seed, 3000); n > 0; n--) call_once(s, &rules, &seed);
    for (unsigned i = 0; i < CHILDREN; i++) kill(children[i], SIGKILL);
    for (unsigned i = 0; i < CHILDREN; i++) waitpid(children[i], NULL, 0);
    s->now_ms = check_recovers(&s->breaker, &rules, s->now_ms, 200);
    check_works(&s->breaker, &rules, s->now_ms);
  }
  munmap(s, sizeof *s);
}

static void with_a_time_window(void **unused) {
  (void)unused;
  kill_at_any_instruction(false);
}

static void with_a_count_window(void **unused) {
  (void)unused;
  kill_at_any_instruction(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a breaker survives the death of its callers, with a time window", with_a_time_window),
      IT("... and with a count window", with_a_count_window),
  };
  return cmocka_run_group_tests_name("killed", tests, NULL, NULL);
}
