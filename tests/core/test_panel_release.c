/* Rows that are given back: what may, what a row keeps from its last owner, and that names are found
 * whatever was given back meanwhile. */
#include "support.h"

#include "breaker.h"

#define LENGTH_MS   1000u
#define COOLDOWN_MS 4000u
#define IDLE_MS     (LENGTH_MS + COOLDOWN_MS)

typedef struct block {
  void *memory;
  neap_panel *panel;
  neap_rules rules;
} block;

static block block_new(uint32_t capacity) {
  block k = {.rules = neap_rules_default()};
  size_t size = neap_panel_size(capacity);
  k.memory = aligned_alloc(64, size);
  assert_non_null(k.memory);
  SAME(neap_panel_init(k.memory, size, capacity, 42, &k.panel), NEAP_OK, "good memory");
  k.rules.failures = 2;
  k.rules.length_ms = LENGTH_MS;
  k.rules.cooldown_ms = k.rules.max_cooldown_ms = COOLDOWN_MS;
  k.rules.jitter = 0;
  prepare(&k.rules);
  return k;
}

static neap_breaker *claim(block *k, const char *name) {
  neap_breaker *b = NULL;
  SAME(neap_panel_claim(k->panel, name, strlen(name), &b), NEAP_OK, name);
  neap_breaker_adopt(b, &k->rules);
  return b;
}

static neap_breaker *find(const block *k, const char *name) {
  return neap_panel_find(k->panel, name, strlen(name));
}

static neap_permit admit(block *k, neap_breaker *b, uint64_t now_ms) {
  neap_permit permit = {0};
  HOLDS(neap_breaker_acquire(b, &k->rules, now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS, "let in");
  return permit;
}

static neap_reported row_report(block *k, neap_breaker *b, uint64_t now_ms, neap_permit *permit,
                                neap_outcome outcome) {
  neap_call call = {.outcome = outcome};
  return neap_breaker_report(b, &k->rules, now_ms, permit, &call, NULL);
}

static void use(block *k, neap_breaker *b, uint64_t now_ms, neap_outcome outcome) {
  neap_permit permit = admit(k, b, now_ms);
  SAME(row_report(k, b, now_ms, &permit, outcome), NEAP_COUNTED, "a call");
}

static neap_snapshot row_snapshot(block *k, neap_breaker *b, uint64_t now_ms) {
  neap_snapshot s;
  neap_breaker_snapshot(b, &k->rules, now_ms, &s);
  return s;
}

/* ---- What may be given back ---- */

static void a_row_is_given_back_once_nothing_of_it_matters(void **unused) {
  (void)unused;
  static const uint64_t now_ms = 1000000;
  static const struct {
    const char *what;
    neap_outcome outcome;
    uint64_t idle_ms;
    bool may;
  } cases[] = {
      {"a good call", NEAP_SUCCESS, IDLE_MS + 1, true},
      {"a good call, not long enough ago", NEAP_SUCCESS, IDLE_MS, false},
      {"a failure: the run of them is over, too", NEAP_FAILURE, IDLE_MS + 1, true},
      {"nothing was ever called", NEAP_NEUTRAL, IDLE_MS + 1, true},
      {"just used", NEAP_SUCCESS, 0, false},
      {"used later than now: a clock went back", NEAP_SUCCESS, (uint64_t)-5, false},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    block k = block_new(2);
    neap_breaker *b = claim(&k, "x");
    uint64_t used_ms = now_ms - cases[i].idle_ms;
    use(&k, b, used_ms, cases[i].outcome);
    SAME(neap_panel_release(k.panel, b, &k.rules, now_ms, used_ms), cases[i].may, cases[i].what);
    SAME(find(&k, "x") == NULL, cases[i].may, cases[i].what);
    SAME(neap_panel_count(k.panel), cases[i].may ? 0 : 1, cases[i].what);
    free(k.memory);
  }
}

static void what_is_not_closed_stays_however_long_it_was_idle(void **unused) {
  (void)unused;
  block k = block_new(1);
  neap_breaker *b = claim(&k, "x");
  uint64_t later_ms = 1000 + 10 * IDLE_MS;
  use(&k, b, 1000, NEAP_FAILURE);
  use(&k, b, 1000, NEAP_FAILURE);
  SAME(neap_breaker_state(b, &k.rules, 1000), NEAP_OPEN, "two failures");
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, 1000 + COOLDOWN_MS - 1, 0), "open");
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, later_ms, 1000), "half-open, nobody has asked");
  neap_permit probe = admit(&k, b, later_ms);
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, 3 * later_ms, later_ms), "a probe is out");
  row_report(&k, b, later_ms, &probe, NEAP_SUCCESS);
  use(&k, b, later_ms, NEAP_SUCCESS);
  SAME(neap_breaker_state(b, &k.rules, later_ms), NEAP_CLOSED, "two probes");
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, later_ms + IDLE_MS, later_ms), "just closed");
  HOLDS(neap_panel_release(k.panel, b, &k.rules, later_ms + IDLE_MS + 1, later_ms),
        "its level is that of a cooldown that has long been over");
  free(k.memory);
}

static void an_operators_mode_and_a_ramp_and_a_window_are_kept(void **unused) {
  (void)unused;
  block k = block_new(3);
  neap_breaker *b = claim(&k, "mode");
  neap_breaker_set_mode(b, 1000, NEAP_AUTO, 100000);
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, 100999, 1000), "an operator's mode");
  HOLDS(neap_panel_release(k.panel, b, &k.rules, 101000, 1000), "whose time is over");

  b = claim(&k, "ramp");
  k.rules.ramp_ms = 3 * COOLDOWN_MS;
  prepare(&k.rules);
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, LENGTH_MS + 3 * COOLDOWN_MS, 0), "in the ramp");
  HOLDS(neap_panel_release(k.panel, b, &k.rules, LENGTH_MS + 3 * COOLDOWN_MS + 1, 0), "after it");

  b = claim(&k, "window");
  use(&k, b, 500000, NEAP_SUCCESS);
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, 500100, 0), "who says so did not see this call");
  free(k.memory);
}

static void a_count_window_is_as_old_as_its_owner_says(void **unused) {
  (void)unused;
  block k = block_new(1);
  k.rules.window = NEAP_WINDOW_COUNT;
  k.rules.calls = 10;
  prepare(&k.rules);
  neap_breaker *b = claim(&k, "x");
  use(&k, b, 1000, NEAP_FAILURE);
  HOLDS(!neap_panel_release(k.panel, b, &k.rules, 1000 + COOLDOWN_MS, 1000), "a cooldown");
  HOLDS(neap_panel_release(k.panel, b, &k.rules, 1000 + COOLDOWN_MS + 1, 1000), "and no more");
  free(k.memory);
}

/* ---- What the next owner gets ---- */

static void the_next_owner_gets_a_new_breaker(void **unused) {
  (void)unused;
  block k = block_new(1);
  neap_breaker *b = claim(&k, "a name that is longer than the other one");
  for (int i = 0; i < 3; i++) use(&k, b, 1000, NEAP_SUCCESS);
  use(&k, b, 1000, NEAP_FAILURE);
  uint64_t now_ms = 1000 + IDLE_MS + 1;
  HOLDS(neap_panel_release(k.panel, b, &k.rules, now_ms, 1000), "idle");
  HOLDS(claim(&k, "b") == b, "there is but one row");
  SAME_TEXT(neap_breaker_name(b), "b");
  neap_snapshot s = row_snapshot(&k, b, now_ms);
  SAME(s.calls + s.consecutive_failures + s.level + s.totals.success + s.totals.failure +
           s.duration_sum_ms,
       0, "nothing of the one before");
  assert_null(find(&k, "a name that is longer than the other one"));
  use(&k, b, now_ms, NEAP_FAILURE);
  SAME(neap_breaker_state(b, &k.rules, now_ms), NEAP_CLOSED, "its first failure of two");
  free(k.memory);
}

static void permits_of_earlier_owners_are_stale_to_all_later_ones(void **unused) {
  (void)unused;
  enum { OWNERS = 50 };
  block k = block_new(1);
  neap_permit out[OWNERS];
  uint64_t now_ms = 1000;
  for (unsigned n = 0; n < OWNERS; n++) {
    char name[8];
    snprintf(name, sizeof name, "%u", n);
    neap_breaker *b = claim(&k, name);
    for (unsigned i = 0; i < n; i++) {
      neap_permit late = out[i];
      SAME(row_report(&k, b, now_ms, &late, NEAP_FAILURE), NEAP_STALE, "an earlier owner's");
    }
    neap_snapshot s = row_snapshot(&k, b, now_ms);
    SAME(s.calls + s.totals.failure + s.totals.timeout, 0, "and counts for nobody");
    SAME(s.totals.stale, n, "but as that");
    SAME(neap_breaker_state(b, &k.rules, now_ms), NEAP_CLOSED, "nor opens it");
    neap_permit own = admit(&k, b, now_ms);
    out[n] = own;
    SAME(row_report(&k, b, now_ms, &own, NEAP_SUCCESS), NEAP_COUNTED, "its own");
    uint64_t used_ms = now_ms;
    now_ms += IDLE_MS + 1;
    HOLDS(neap_panel_release(k.panel, b, &k.rules, now_ms, used_ms), "idle");
  }
  free(k.memory);
}

/* ---- A walk ---- */

#define NAMES    40
#define CAPACITY 16
#define STEPS    200000

/* One name, as a model too simple to be wrong has it. */
typedef struct owner {
  neap_breaker *row; /* NULL: it has none */
  uint64_t used_ms, calls;
  neap_permit out; /* of a call that has not ended, or 0 */
} owner;

typedef struct walk {
  block k;
  owner all[NAMES];
  neap_permit late[CAPACITY]; /* of earlier owners' calls, by row */
  uint64_t seed, now_ms, claimed, released, full, stale;
} walk;

static uint64_t below(walk *w, uint64_t n) {
  w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (w->seed >> 33) % n;
}

static unsigned rows_of(const walk *w) {
  unsigned rows = 0;
  for (unsigned i = 0; i < NAMES; i++) rows += w->all[i].row != NULL;
  return rows;
}

static neap_permit *late_of(walk *w, const neap_breaker *row) {
  for (uint32_t i = 0; i < CAPACITY; i++)
    if (neap_panel_row(w->k.panel, i) == row) return &w->late[i];
  return NULL;
}

static void walk_claim(walk *w, owner *o, const char *name) {
  neap_breaker *b = NULL;
  neap_status status = neap_panel_claim(w->k.panel, name, strlen(name), &b);
  if (o->row == NULL && rows_of(w) == CAPACITY) {
    SAME(status, NEAP_EFULL, "no row is free");
    w->full++;
    return;
  }
  SAME(status, NEAP_OK, "a row is free, or its own");
  if (o->row == NULL) {
    for (unsigned n = 0; n < NAMES; n++) HOLDS(w->all[n].row != b, "nobody else's row");
    neap_breaker_adopt(b, &w->k.rules);
    *o = (owner){.row = b, .used_ms = w->now_ms};
    w->claimed++;
  }
  HOLDS(b == o->row, "the same name, the same row");
  SAME(row_snapshot(&w->k, b, w->now_ms).totals.success, o->calls, "its own calls");
}

/* Begins a call or ends it; before that, one of an earlier owner of the row may end. */
static void walk_call(walk *w, owner *o) {
  if (o->row == NULL) return;
  neap_permit *late = late_of(w, o->row);
  if (late->opaque != 0 && below(w, 2)) {
    SAME(row_report(&w->k, o->row, w->now_ms, late, NEAP_FAILURE), NEAP_STALE,
         "an earlier owner's");
    w->stale++;
  }
  if (o->out.opaque == 0) {
    o->out = admit(&w->k, o->row, w->now_ms);
    return;
  }
  SAME(row_report(&w->k, o->row, w->now_ms, &o->out, NEAP_SUCCESS), NEAP_COUNTED, "its own");
  o->calls++;
  o->used_ms = w->now_ms;
}

static void walk_release(walk *w, owner *o) {
  if (o->row == NULL) return;
  neap_permit *late = late_of(w, o->row);
  bool may = w->now_ms - o->used_ms > IDLE_MS;
  SAME(neap_panel_release(w->k.panel, o->row, &w->k.rules, w->now_ms, o->used_ms), may,
       "idle for so long");
  if (!may) return;
  if (o->out.opaque != 0) *late = o->out;
  *o = (owner){0};
  w->released++;
}

static void names_are_found_whatever_was_given_back(void **unused) {
  (void)unused;
  static walk w;
  w = (walk){.k = block_new(CAPACITY), .seed = random_seed(20261130), .now_ms = 1000};
  for (unsigned step = 0; step < STEPS; step++) {
    unsigned i = (unsigned)below(&w, NAMES);
    char name[16];
    snprintf(name, sizeof name, "name/%u", i);
    HOLDS(find(&w.k, name) == w.all[i].row, "where it was, or nowhere");
    switch (below(&w, 4)) {
      case 0: walk_claim(&w, &w.all[i], name); break;
      case 1: walk_call(&w, &w.all[i]); break;
      case 2: walk_release(&w, &w.all[i]); break;
      default: w.now_ms += below(&w, 400);
    }
    SAME(neap_panel_count(w.k.panel), rows_of(&w), "rows in use");
  }
  HOLDS(w.claimed > 1000 && w.released > 1000 && w.full > 500 && w.stale > 200,
        "it went everywhere");
  print_message("%u steps, %" PRIu64 " rows given back\n", STEPS, w.released);
  free(w.k.memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("a row is given back once nothing of it matters",
         a_row_is_given_back_once_nothing_of_it_matters),
      IT("what is not closed stays, however long it was idle",
         what_is_not_closed_stays_however_long_it_was_idle),
      IT("an operator's mode, a ramp and a window are kept",
         an_operators_mode_and_a_ramp_and_a_window_are_kept),
      IT("a count window is as old as its owner says", a_count_window_is_as_old_as_its_owner_says),
      IT("the next owner gets a new breaker", the_next_owner_gets_a_new_breaker),
      IT("permits of earlier owners are stale to all later ones",
         permits_of_earlier_owners_are_stale_to_all_later_ones),
      IT("names are found whatever was given back", names_are_found_whatever_was_given_back),
  };
  return cmocka_run_group_tests_name("panel release", tests, NULL, NULL);
}
