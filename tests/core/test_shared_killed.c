/* Processes that share a panel in a file, each with its own mapping of it, are killed and stopped at
 * random instants, and others take their place.
 *
 * Each worker keeps a diary in memory that outlives it.  A diary may be short of the last call of
 * each death; it never has what did not happen.  So no check here can fail by the fault of a death
 * alone, unless it says by how much.
 *
 * NEAP_KILLS says how many are killed in each test. */
#include "shared.h"
#include "survive.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "breaker.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KILLS 50
#else
#define KILLS 200
#endif
#define WORKERS 8
#define EPOCHS  (1u << EPOCH_BITS)
#define NAMES   40
#define HELD    4

typedef struct diary {
  _Alignas(64) _Atomic uint64_t acquires; /* begun */
  atomic_uint probe;                      /* the one in its hands: epoch + 1; 0: none */
  uint64_t outcomes[5], stale, refused, probes;
} diary;

/* In memory that all of them share, outside of the panel. */
typedef struct ledger {
  _Atomic uint64_t now_ms;
  atomic_bool is_over;
  atomic_uint too_many_at_once, too_many_in_a_round, misnamed;
  diary diaries[WORKERS];
  atomic_int taken[EPOCHS]; /* probes of the epoch let in, less those about to be neutral */
} ledger;

typedef struct plan {
  unsigned workers;
  bool count_window;
  bool reload; /* every other worker has other rules, of another window, and adopts them */
  bool flies;  /* calls go through a flight, and some are slow: those count before they end */
} plan;

typedef struct arena {
  plan plan;
  ledger *ledger;
  neap_shared shared; /* the parent's */
  neap_breaker *breaker;
  neap_rules rules[2];
  pid_t pids[WORKERS];
  uint64_t seed;
  unsigned kills;
} arena;

/* ---- Rules ---- */

static neap_rules rules_of(bool count_window, uint32_t probes, uint32_t successes,
                           uint32_t concurrent) {
  neap_rules r = neap_rules_default();
  r.window = count_window ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  r.length_ms = 100;
  r.calls = 60;
  r.failures = 10;
  r.failure_rate = 500000;
  r.cooldown_ms = 5;
  r.max_cooldown_ms = 20;
  r.probes = probes;
  r.successes = successes;
  r.concurrent = concurrent;
  r.lease_ms = 30;
  prepare(&r);
  return r;
}

/* What two rules allow together. */
static uint32_t looser(const arena *a, size_t field) {
  uint32_t most = 0;
  for (int i = 0; i <= a->plan.reload; i++) {
    uint32_t value;
    memcpy(&value, (const char *)&a->rules[i] + field, sizeof value);
    if (value > most) most = value;
  }
  return most;
}

/* ---- A worker ---- */

typedef struct worker {
  arena *arena;
  neap_shared shared;
  neap_breaker *breaker;
  diary *diary;
  const neap_rules *rules;
  uint64_t seed;
  uint32_t most_at_once, most_in_a_round;
  neap_flight flight;
  neap_permit held[HELD]; /* of calls that it has under way; it dies with them */
  uint64_t began_ms[HELD];
} worker;

/* It is in the diary from a moment after it was let in to a moment before it is reported, so what
 * is counted here is never more than what is true. */
static void probe_let_in(worker *w, uint32_t epoch) {
  ledger *l = w->arena->ledger;
  unsigned at_once = 0;
  w->diary->probe = epoch + 1;
  for (unsigned i = 0; i < WORKERS; i++) at_once += l->diaries[i].probe == epoch + 1;
  if (at_once > w->most_at_once) l->too_many_at_once++;
  for (uint32_t ahead = 0; ahead < 64; ahead++) /* epochs wrap around, now and then */
    l->taken[(epoch + EPOCHS / 2 + ahead) % EPOCHS] = 0;
  int taken = ++l->taken[epoch];
  if (taken > (int)w->most_in_a_round) l->too_many_in_a_round++;
}

static void report_to(worker *w, uint64_t now_ms, uint64_t began_ms, neap_permit *permit,
                      neap_call call) {
  neap_reported reported =
      w->arena->plan.flies ? neap_flight_report(&w->flight, w->breaker, w->rules, now_ms, began_ms,
                                                permit, &call, NULL)
                           : neap_breaker_report(w->breaker, w->rules, now_ms, permit, &call, NULL);
  if (reported == NEAP_COUNTED) w->diary->outcomes[call.outcome]++;
  if (reported == NEAP_STALE) w->diary->stale++;
}

static void end_held(worker *w, uint64_t now_ms, unsigned i) {
  if (w->held[i].opaque == 0) return;
  neap_call call = {.outcome = (neap_outcome)random_below(&w->seed, 5)};
  call.duration_ms = now_ms > w->began_ms[i] ? now_ms - w->began_ms[i] : 0;
  if (random_below(&w->seed, 3) == 0) call.outcome = NEAP_SUCCESS;
  report_to(w, now_ms, w->began_ms[i], &w->held[i], call);
}

static neap_verdict acquire_from(worker *w, uint64_t now_ms, neap_permit *permit) {
  if (!w->arena->plan.flies)
    return neap_breaker_acquire(w->breaker, w->rules, now_ms, permit, NULL);
  return neap_flight_acquire(&w->flight, w->breaker, w->rules, now_ms, permit, NULL);
}

static void call_once(worker *w) {
  ledger *l = w->arena->ledger;
  neap_permit permit = {0};
  uint64_t now_ms = atomic_fetch_add(&l->now_ms, random_below(&w->seed, 2));
  unsigned i = (unsigned)random_below(&w->seed, HELD);
  w->diary->acquires++;
  end_held(w, now_ms, i);
  if (acquire_from(w, now_ms, &permit) > NEAP_ALLOW_BYPASS) {
    w->diary->refused++;
    return;
  }
  if (w->arena->plan.flies && neap_permit_kind(&permit) == NEAP_ALLOW) {
    w->held[i] = permit;
    w->began_ms[i] = now_ms;
    return;
  }
  bool is_probe = neap_permit_kind(&permit) == NEAP_ALLOW_PROBE;
  uint32_t epoch = neap_permit_epoch(&permit);
  if (is_probe) probe_let_in(w, epoch);
  w->diary->probes += is_probe;
  neap_call call = {.outcome = (neap_outcome)random_below(&w->seed, 5),
                    .duration_ms = random_below(&w->seed, 10)};
  if (random_below(&w->seed, 3) == 0) call.outcome = NEAP_SUCCESS;
  if (is_probe) {
    w->diary->probe = 0;
    if (call.outcome >= NEAP_NEUTRAL) l->taken[epoch]--;
  }
  report_to(w, now_ms, now_ms, &permit, call);
}

static void name_of(unsigned n, char *name) { sprintf(name, "some breaker, number %u", n); }

/* Rows are claimed, by whoever comes, all the time. */
static void claim_some(worker *w) {
  char name[40];
  unsigned n = (unsigned)random_below(&w->seed, NAMES);
  name_of(n, name);
  neap_breaker *b = neap_shared_claim(&w->shared, name, strlen(name), NULL);
  if (b == NULL || strcmp(neap_breaker_name(b), name) != 0) w->arena->ledger->misnamed++;
}

static void worker_run(arena *a, unsigned number, uint64_t seed) {
  worker w = {.arena = a, .diary = &a->ledger->diaries[number], .seed = seed};
  w.shared = open_shared(0);
  w.breaker = claim_shared(&w.shared, "the breaker");
  w.rules = &a->rules[a->plan.reload && number % 2];
  w.most_at_once = looser(a, offsetof(neap_rules, concurrent));
  w.most_in_a_round = looser(a, offsetof(neap_rules, probes));
  for (uint64_t n = 1; !a->ledger->is_over; n++) {
    call_once(&w);
    if (n % 64 == 0) claim_some(&w);
    if (a->plan.reload && n % 256 == 0) neap_breaker_adopt(w.breaker, w.rules);
  }
  for (unsigned i = 0; i < HELD; i++) end_held(&w, a->ledger->now_ms, i);
  _exit(0);
}

static void worker_begin(arena *a, unsigned number) {
  uint64_t seed = random_next(&a->seed) | 1;
  a->ledger->diaries[number].probe = 0;
  a->pids[number] = fork_child();
  if (a->pids[number] == 0) worker_run(a, number, seed);
}

static void worker_kill(arena *a, unsigned number) {
  kill(a->pids[number], SIGKILL);
  int status;
  SAME(waitpid(a->pids[number], &status, 0), a->pids[number], "it is gone");
  HOLDS(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "killed, and did not end by itself");
  a->kills++;
}

/* ---- What all of them did ---- */

static uint64_t acquires_of(const arena *a, unsigned first, unsigned count) {
  uint64_t sum = 0;
  for (unsigned i = first; i < first + count; i++) sum += a->ledger->diaries[i].acquires;
  return sum;
}

static void pause_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

/* Until these workers have begun so many more calls; at most ten seconds. */
static void wait_for_calls(const arena *a, unsigned first, unsigned count, uint64_t more) {
  uint64_t before = acquires_of(a, first, count);
  for (int i = 0; acquires_of(a, first, count) - before < more; i++) {
    HOLDS(i < 100000, "the others go on");
    pause_us(100);
  }
}

static void check_nothing_was_over(const arena *a) {
  SAME(a->ledger->too_many_at_once, 0, "at most `concurrent` probes at once");
  SAME(a->ledger->too_many_in_a_round, 0, "at most `probes` in a round");
  SAME(a->ledger->misnamed, 0, "each name has its row");
}

/* A half-open period has an end: each of its probes may lengthen the lease once. */
typedef struct watch {
  uint32_t epoch;
  uint64_t since_ms;
} watch;

static void watch_for_wedges(const arena *a, watch *w) {
  neap_snapshot s;
  uint64_t now_ms = a->ledger->now_ms;
  neap_breaker_snapshot(a->breaker, &a->rules[0], now_ms, &s);
  if (s.state == NEAP_CLOSED || s.epoch != w->epoch) *w = (watch){s.epoch, now_ms};
  uint64_t longest = a->rules[0].max_cooldown_ms * 2 +
                     (looser(a, offsetof(neap_rules, probes)) + 2) * a->rules[0].lease_ms;
  HOLDS(now_ms - w->since_ms < longest, "no round outlasts its leases");
}

static void check_total(const char *what, uint64_t total, uint64_t noted, uint64_t lost,
                        uint64_t kills) {
  if (total + lost < noted || total > noted + kills)
    fail_msg("%s: %" PRIu64 " in all, %" PRIu64 " noted, with %" PRIu64 " killed", what, total,
             noted, kills);
}

/* A death leaves at most one call out of its diary.  One in the moment of moving counts from the
 * window to the totals loses these (of a slice: some three of each kind here), but hardly any dies in
 * just that: all together they lose less than one for each death. */
static void check_totals(const arena *a) {
  neap_snapshot s;
  neap_breaker_snapshot(a->breaker, &a->rules[0], a->ledger->now_ms, &s);
  diary sum = {0};
  for (unsigned i = 0; i < WORKERS; i++) {
    const diary *d = &a->ledger->diaries[i];
    for (unsigned k = 0; k < 5; k++) sum.outcomes[k] += d->outcomes[k];
    sum.stale += d->stale;
    sum.refused += d->refused;
    sum.probes += d->probes;
  }
  const neap_totals *t = &s.totals;
  uint64_t kills = a->kills;
  check_total("successes", t->success + t->slow_success, sum.outcomes[NEAP_SUCCESS], kills, kills);
  check_total("failures", t->failure + t->slow_failure,
              sum.outcomes[NEAP_FAILURE] + sum.outcomes[NEAP_TIMEOUT], kills, kills);
  check_total("timeouts", t->timeout, sum.outcomes[NEAP_TIMEOUT], 0, kills);
  check_total("neutral", t->neutral, sum.outcomes[NEAP_NEUTRAL], 0, kills);
  check_total("abandoned", t->abandoned, sum.outcomes[NEAP_ABANDONED], 0, kills);
  check_total("stale", t->stale, sum.stale, 0, kills);
  check_total("refused", t->refused_open + t->refused_probes, sum.refused, 0, kills);
  check_total("probes", t->probes, sum.probes, 0, kills);
  print_message("%" PRIu64 " calls, %" PRIu64 " refused, %" PRIu64 " probes, %u killed; %" PRId64
                " successes and %" PRId64 " failures lost from the totals\n",
                acquires_of(a, 0, WORKERS), sum.refused, sum.probes, a->kills,
                (int64_t)(sum.outcomes[NEAP_SUCCESS] - t->success - t->slow_success),
                (int64_t)(sum.outcomes[NEAP_FAILURE] + sum.outcomes[NEAP_TIMEOUT] - t->failure -
                          t->slow_failure));
  HOLDS(sum.probes > 100 && sum.outcomes[NEAP_SUCCESS] > 1000, "much has happened");
}

static void check_panel(const arena *a) {
  SAME(neap_panel_count(a->shared.panel), NAMES + 1, "each name once");
  for (unsigned n = 0; n < NAMES; n++) {
    char name[40];
    name_of(n, name);
    neap_breaker *b = neap_panel_find(a->shared.panel, name, strlen(name));
    HOLDS(b != NULL, "each has its row");
    HOLDS(claim_shared(&a->shared, name) == b, "and keeps it");
    SAME_TEXT(neap_breaker_name(b), name);
  }
  HOLDS(neap_shared_check(&a->shared, NULL), "the file is as it was");
}

/* ---- Beginning and end ---- */

static arena arena_begin(plan of) {
  arena a = {.plan = of, .seed = random_seed(31)};
  a.ledger =
      mmap(NULL, sizeof *a.ledger, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(a.ledger != MAP_FAILED);
  a.ledger->now_ms = START_MS;
  a.shared = open_shared(64);
  a.breaker = claim_shared(&a.shared, "the breaker");
  a.rules[0] = rules_of(of.count_window, 5, 3, 2);
  a.rules[1] = rules_of(!of.count_window, 3, 1, 1);
  for (int i = 0; i < 2 && of.flies; i++) {
    a.rules[i].slow_call_ms = 8;
    a.rules[i].slow_rate = 800000;
    prepare(&a.rules[i]);
  }
  return a;
}

static void workers_begin(arena *a) {
  for (unsigned i = 0; i < a->plan.workers; i++) worker_begin(a, i);
  wait_for_calls(a, 0, a->plan.workers, 1000);
}

static void arena_end(arena *a) {
  a->ledger->is_over = true;
  for (unsigned i = 0; i < a->plan.workers; i++) {
    int status;
    SAME(waitpid(a->pids[i], &status, 0), a->pids[i], "it ends");
    SAME(status, 0, "by itself");
  }
  check_nothing_was_over(a);
  check_totals(a);
  neap_breaker_adopt(a->breaker, &a->rules[0]);
  uint64_t now_ms = check_recovers(a->breaker, &a->rules[0], a->ledger->now_ms, 300);
  check_works(a->breaker, &a->rules[0], now_ms);
  for (unsigned n = 0; n < NAMES; n++) {
    char name[40];
    name_of(n, name);
    claim_shared(&a->shared, name);
  }
  check_panel(a);
  neap_shared_close(&a->shared);
  munmap(a->ledger, sizeof *a->ledger);
}

static unsigned kills_wanted(void) {
  const char *text = getenv("NEAP_KILLS");
  return text ? (unsigned)strtoul(text, NULL, 0) : KILLS;
}

static void kill_and_restart(plan of) {
  arena a = arena_begin(of);
  watch watched = {0};
  workers_begin(&a);
  for (unsigned n = kills_wanted(); n > 0; n--) {
    unsigned number = (unsigned)random_below(&a.seed, of.workers);
    pause_us((long)random_below(&a.seed, 2000));
    worker_kill(&a, number);
    worker_begin(&a, number);
    watch_for_wedges(&a, &watched);
    if (n % 16 == 0) wait_for_calls(&a, 0, of.workers, 100);
  }
  arena_end(&a);
}

/* ---- Killed ---- */

static void two(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 2});
}

static void four_with_a_count_window(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 4, .count_window = true});
}

static void eight(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 8});
}

static void two_generations_of_rules(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 6, .reload = true});
}

/* What they have under way goes with them; what they had marked as slow leaves the window. */
static void with_calls_in_flight(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 4, .flies = true});
}

static void with_calls_in_flight_in_a_count_window(void **unused) {
  (void)unused;
  kill_and_restart((plan){.workers = 4, .count_window = true, .flies = true});
}

/* ---- Stopped ---- */

static void worker_signal(const arena *a, unsigned number, int signal) {
  kill(a->pids[number], signal);
  if (signal != SIGSTOP) return;
  int status;
  SAME(waitpid(a->pids[number], &status, WUNTRACED), a->pids[number], "it stops");
  HOLDS(WIFSTOPPED(status), "and has not ended");
}

static uint32_t epoch_of(const arena *a) {
  neap_snapshot s;
  neap_breaker_snapshot(a->breaker, &a->rules[0], a->ledger->now_ms, &s);
  return s.epoch;
}

/* All but one are stopped, in the middle of whatever they do; that one sees the breaker through
 * whole cycles. */
static void stop_and_go_on(plan of) {
  arena a = arena_begin(of);
  watch watched = {0};
  workers_begin(&a);
  for (unsigned n = 1 + kills_wanted() / 10; n > 0; n--) {
    pause_us((long)random_below(&a.seed, 2000));
    for (unsigned i = 1; i < of.workers; i++) worker_signal(&a, i, SIGSTOP);
    uint32_t epoch = epoch_of(&a);
    for (int i = 0; ((epoch_of(&a) - epoch) & (EPOCHS - 1)) < 4; i++) {
      wait_for_calls(&a, 0, 1, 100);
      watch_for_wedges(&a, &watched);
      HOLDS(i < 1000, "the one that runs opens and closes it");
    }
    for (unsigned i = 1; i < of.workers; i++) worker_signal(&a, i, SIGCONT);
    wait_for_calls(&a, 1, of.workers - 1, 100);
  }
  arena_end(&a);
}

static void stopped_with_a_time_window(void **unused) {
  (void)unused;
  stop_and_go_on((plan){.workers = 4});
}

static void stopped_with_a_count_window(void **unused) {
  (void)unused;
  stop_and_go_on((plan){.workers = 4, .count_window = true});
}

static void stopped_during_a_reload(void **unused) {
  (void)unused;
  stop_and_go_on((plan){.workers = 4, .reload = true});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT_SHARED("two workers are killed and restarted (B205, B208)", two),
      IT_SHARED("four, with a count window", four_with_a_count_window),
      IT_SHARED("eight (B212)", eight),
      IT_SHARED("six, with two generations of rules", two_generations_of_rules),
      IT_SHARED("with calls in flight (B205)", with_calls_in_flight),
      IT_SHARED("... and a count window", with_calls_in_flight_in_a_count_window),
      IT_SHARED("stopped at any instruction, they hold nobody up (B203)",
                stopped_with_a_time_window),
      IT_SHARED("... with a count window", stopped_with_a_count_window),
      IT_SHARED("... with two generations of rules", stopped_during_a_reload),
  };
  return cmocka_run_group_tests_name("shared killed", tests, NULL, NULL);
}
