/* Around the state machine: closed, open, half-open and back, by every transition there is. */
#include "support.h"

/* ---- The whole way round ---- */

static void closed_open_half_open_closed(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  play(&f, "SFS");
  SAME(state(&f), NEAP_CLOSED, "one failure of two");
  play(&f, "F");
  SAME(state(&f), NEAP_OPEN, "two");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "open");
  play(&f, "+999 R");
  SAME(state(&f), NEAP_OPEN, "one millisecond before the end of the cooldown");
  play(&f, "+1");
  SAME(state(&f), NEAP_HALF_OPEN, "at its end, with nobody calling");
  SAME(f.moves, 1, "which is no transition yet");
  play(&f, "<");
  SAME(f.moved.to, NEAP_HALF_OPEN, "the first probe makes it one");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "one at a time");
  play(&f, ">S");
  SAME(state(&f), NEAP_HALF_OPEN, "one success of two");
  play(&f, "S");
  SAME(state(&f), NEAP_CLOSED, "two: closed");
  SAME(f.moves, 3, "three transitions");
  play(&f, "F");
  SAME(state(&f), NEAP_CLOSED, "with a clean window");
}

static void closed_open_half_open_open(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  play(&f, "F +1000 F");
  SAME(state(&f), NEAP_OPEN, "a failed round opens again");
  SAME(f.moved.level, 2, "a level higher");
  SAME(f.moved.open_ms, 2000, "for twice as long");
  play(&f, "+1999 R +1 F +3999 R +1 S");
  SAME(state(&f), NEAP_CLOSED, "until the dependency is well");
  SAME(f.moves, 7, "open, half, open, half, open, half, closed");
}

/* ---- Every transition there is ---- */

typedef struct transition_case {
  const char *script;
  neap_state from, to;
  neap_cause cause;
  uint32_t epoch, level;
  uint64_t measured, limit, calls, open_ms;
  bool flapping;
} transition_case;

/* In the order of NEAP_TRANSITIONS.  The rules: 5 failures, 4 in a row, half of 8 failed, half
 * of 6 slow (minimum 6); cooldown 1,000; 3 probes, 2 successes, 2 at once; lease 500. */
/* clang-format off */
#define CL NEAP_CLOSED
#define HO NEAP_HALF_OPEN
#define OP NEAP_OPEN
static const transition_case transition_cases[] = {
    {"FFSSSSSFFSSSSF",    CL, OP, NEAP_BY_FAILURES,     1, 1, 5, 5, 14, 1000, false},
    {"FSSSFF",            CL, OP, NEAP_BY_FAILURE_RATE, 1, 1, 3, 500000, 6, 1000, false},
    {"sSSSss",            CL, OP, NEAP_BY_SLOW_RATE,    1, 1, 3, 500000, 6, 1000, false},
    {"FFFF",              CL, OP, NEAP_BY_CONSECUTIVE,  1, 1, 4, 4, 4, 1000, false},
    {"SFo",               CL, OP, NEAP_BY_FUNCTION,     1, 1, 0, 0, 2, 1000, false},
    {"SFt",               CL, OP, NEAP_BY_TRIP,         1, 1, 0, 0, 2, 1000, false},
    {"SFr",               CL, CL, NEAP_BY_RESET,        1, 0, 0, 0, 2, 0, false},
    {"FFFF+1000<",        OP, HO, NEAP_BY_COOLDOWN,     1, 1, 0, 0, 0, 0, false},
    {"FFFF+10t",          OP, OP, NEAP_BY_TRIP,         2, 1, 0, 0, 0, 1000, false},
    {"FFFFr",             OP, CL, NEAP_BY_RESET,        2, 0, 0, 0, 0, 0, false},
    {"FFFF+1000FSS",      HO, CL, NEAP_BY_PROBES,       2, 1, 2, 2, 3, 0, false},
    {"FFFF+1000Sc",       HO, CL, NEAP_BY_FUNCTION,     2, 1, 0, 0, 1, 0, false},
    {"FFFF+1000SFr",      HO, CL, NEAP_BY_RESET,        2, 0, 0, 0, 2, 0, false},
    {"FFFF+1000SFF",      HO, OP, NEAP_BY_PROBES,       2, 2, 2, 2, 3, 2000, false},
    {"FFFF+1000S<<+500R", HO, OP, NEAP_BY_PROBE_LOST,   2, 2, 2, 0, 1, 2000, false},
    {"FFFF+1000So",       HO, OP, NEAP_BY_FUNCTION,     2, 2, 0, 0, 1, 2000, false},
    {"FFFF+1000St",       HO, OP, NEAP_BY_TRIP,         2, 1, 0, 0, 1, 1000, false},
};
#undef CL
#undef HO
#undef OP
/* clang-format on */

static void every_transition_says_what_happened(void **unused) {
  (void)unused;
  SAME(COUNT_OF(transition_cases), NEAP_TRANSITION_KINDS, "a case for each");
  for (size_t i = 0; i < COUNT_OF(transition_cases); i++) {
    const transition_case *c = &transition_cases[i];
    FIXTURE(f, r->failures = 5, r->consecutive_failures = 4, r->failure_rate = 500000,
            r->slow_rate = 500000, r->slow_call_ms = 100, r->minimum_calls = 6,
            r->cooldown_ms = 1000, r->probes = 3, r->successes = 2, r->concurrent = 2,
            r->lease_ms = 500);
    play(&f, c->script);
    SAME(f.moved.from, c->from, c->script);
    SAME(f.moved.to, c->to, c->script);
    SAME(f.moved.cause, c->cause, c->script);
    SAME(f.moved.epoch, c->epoch, c->script);
    SAME(f.moved.level, c->level, c->script);
    SAME(f.moved.measured, c->measured, c->script);
    SAME(f.moved.limit, c->limit, c->script);
    SAME(f.moved.calls, c->calls, c->script);
    SAME(f.moved.open_ms, c->open_ms, c->script);
    SAME(f.moved.flapping, c->flapping, c->script);
    neap_snapshot s = snapshot(&f);
    SAME(s.transitions[i], 1, "counted under its own kind");
    uint64_t all = 0;
    for (size_t k = 0; k < NEAP_TRANSITION_KINDS; k++) all += s.transitions[k];
    SAME(all, f.moves, "and no other");
    SAME(s.epoch, c->epoch, "the snapshot agrees");
    SAME(s.level, c->level, "the snapshot agrees");
  }
}

static void what_did_not_move_leaves_moved_alone(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2);
  neap_transition moved, before;
  neap_permit permit = {0};
  neap_call call = {.outcome = NEAP_FAILURE};
  memset(&moved, 0x5a, sizeof moved);
  before = moved;
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, &moved);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, &moved);
  SAME(memcmp(&moved, &before, sizeof moved), 0, "no transition, nothing written");
}

static void nobody_need_care_what_moved(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 1, r->cooldown_ms = 1000, r->probes = 1, r->successes = 1);
  neap_permit permit = {0};
  neap_call call = {.outcome = NEAP_FAILURE};
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, NULL);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, NULL);
  f.now_ms += 1000;
  neap_breaker_acquire(&f.breaker, &f.rules, f.now_ms, &permit, NULL);
  neap_breaker_report(&f.breaker, &f.rules, f.now_ms, &permit, &call, NULL);
  neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 0, NULL);
  neap_breaker_reset(&f.breaker, &f.rules, f.now_ms, NULL);
  neap_breaker_decide(&f.breaker, &f.rules, f.now_ms, snapshot(&f).epoch, NEAP_OPEN, 0, NULL);
  SAME(snapshot(&f).epoch, 5, "opened, opened again, tripped, reset, decided");
}

static void the_epoch_wraps_and_nothing_else_does(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 3, r->cooldown_ms = 1000);
  for (uint32_t i = 0; i < (1u << 17) - 1; i++)
    neap_breaker_reset(&f.breaker, &f.rules, f.now_ms, NULL);
  SAME(snapshot(&f).epoch, (1u << 17) - 1, "17 bits");
  play(&f, "FF<F");
  SAME(f.moved.epoch, 0, "wraps");
  SAME(snapshot(&f).epoch, 0, "wraps");
  play(&f, "~F +1000 SS");
  SAME(state(&f), NEAP_CLOSED, "and all goes on");
  SAME(snapshot(&f).calls, 0, "with nothing of 131,072 transitions ago");
  SAME(snapshot(&f).transitions[6], (1u << 17) - 1, "resets counted");
}

/* ---- By hand and by a function ---- */

static void a_reset_closes_from_any_state(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "F", "FF", "FF +1000", "FF +1000 <", "FF +1000 S", "FF +1000 FF"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000);
    play(&f, scripts[i]);
    uint32_t epoch = snapshot(&f).epoch;
    play(&f, "r");
    neap_snapshot s = snapshot(&f);
    SAME(s.state, NEAP_CLOSED, scripts[i]);
    SAME(s.level, 0, "level 0");
    SAME(s.calls, 0, "a clean window");
    SAME(s.consecutive_failures, 0, "a clean run");
    SAME(s.epoch, epoch + 1, "a transition like any other");
    SAME(f.moved.cause, NEAP_BY_RESET, scripts[i]);
    play(&f, "F");
    SAME(state(&f), NEAP_CLOSED, "one failure of two");
  }
}

static void a_trip_opens_from_any_state(void **unused) {
  (void)unused;
  const char *scripts[] = {"", "F", "FF", "FF +500", "FF +1000 <", "FF +1000 S"};
  for (size_t i = 0; i < COUNT_OF(scripts); i++) {
    FIXTURE(f, r->failures = 2, r->cooldown_ms = 1000, r->max_cooldown_ms = 30000);
    play(&f, scripts[i]);
    neap_transition moved = {.cause = NEAP_BY_NOTHING};
    SAME(neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 30001, &moved), NEAP_ERANGE, "too long");
    SAME(moved.cause, NEAP_BY_NOTHING, "a function that fails changes nothing");
    SAME(neap_breaker_trip(&f.breaker, &f.rules, f.now_ms, 30000, &moved), NEAP_OK, "the longest");
    SAME(moved.cause, NEAP_BY_TRIP, scripts[i]);
    SAME(moved.to, NEAP_OPEN, scripts[i]);
    SAME(moved.open_ms, 30000, "as long as asked");
    SAME(snapshot(&f).retry_after_ms, 30000, "as long as asked");
    play(&f, "+29999 R +1 <");
    SAME(state(&f), NEAP_HALF_OPEN, "and then half-open as ever");
  }
}

static void a_trip_of_no_length_takes_the_cooldown(void **unused) {
  (void)unused;
  FIXTURE(f, r->failures = 2, r->cooldown_ms = 1234);
  play(&f, "t");
  SAME(f.moved.open_ms, 1234, "the cooldown of level 1");
  SAME(f.moved.level, 1, "the cooldown of level 1");
}

static void a_function_moves_only_the_epoch_it_has_seen(void **unused) {
  (void)unused;
  FIXTURE(f, r->trip_by_function = true, r->cooldown_ms = 1000, r->probes = 3, r->successes = 2);
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  const neap_rules *rules = &f.rules;
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_OPEN, 0, &moved), "other epoch");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_CLOSED, 0, &moved), "is closed");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_HALF_OPEN, 0, &moved), "never");
  SAME(moved.cause, NEAP_BY_NOTHING, "nothing changed");
  HOLDS(neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_OPEN, 9000, &moved), "to open");
  SAME(moved.cause, NEAP_BY_FUNCTION, "by a function");
  SAME(moved.open_ms, 9000, "retry_after_ms as in a call");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 0, NEAP_OPEN, 0, &moved), "epoch passed");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_OPEN, 0, &moved), "is open");
  HOLDS(!neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_CLOSED, 0, &moved), "is open");
  f.now_ms += 9000;
  play(&f, "<");
  HOLDS(neap_breaker_decide(&f.breaker, rules, f.now_ms, 1, NEAP_CLOSED, 0, &moved), "half-open");
  SAME(moved.from, NEAP_HALF_OPEN, "from half-open");
  SAME(moved.to, NEAP_CLOSED, "earlier than the numbers");
  play(&f, "~S");
}

static fixture decided_by_function(uint32_t probes, uint32_t successes) {
  FIXTURE(f, r->failures = 1, r->decide_by_function = true, r->cooldown_ms = 1000,
          r->probes = probes, r->successes = successes, r->lease_ms = 500);
  play(&f, "F +1000");
  return f;
}

static void a_function_may_decide_otherwise_than_the_numbers(void **unused) {
  (void)unused;
  fixture f = decided_by_function(3, 2);
  play(&f, "SS");
  SAME(state(&f), NEAP_HALF_OPEN, "two of three, but it is the function's to say");
  play(&f, "o");
  SAME(state(&f), NEAP_OPEN, "it says no");
  f = decided_by_function(3, 3);
  play(&f, "FF");
  SAME(state(&f), NEAP_HALF_OPEN, "it is the function's to say");
  play(&f, "c");
  SAME(state(&f), NEAP_CLOSED, "it says yes");
}

static void the_numbers_still_bound_a_function(void **unused) {
  (void)unused;
  fixture f = decided_by_function(3, 2);
  play(&f, "SSS");
  SAME(state(&f), NEAP_HALF_OPEN, "no slot left, nothing in flight, nothing said");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "then it opens at the next acquire");
  SAME(f.moved.from, NEAP_HALF_OPEN, "from half-open");
  SAME(f.moved.to, NEAP_OPEN, "to open");
  SAME(f.moved.level, 2, "a failed round");
  f = decided_by_function(3, 2);
  play(&f, "SS< R");
  SAME(ask(&f), NEAP_REFUSE_PROBES, "the last one is in flight");
  play(&f, "+500");
  SAME(ask(&f), NEAP_REFUSE_OPEN, "and lost");
  SAME(f.moved.cause, NEAP_BY_PROBE_LOST, "and lost");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("closed, open, half-open, closed", closed_open_half_open_closed),
      IT("closed, open, half-open, open", closed_open_half_open_open),
      IT("a reset closes from any state", a_reset_closes_from_any_state),
      IT("a trip opens from any state", a_trip_opens_from_any_state),
      IT("a trip of no length takes the cooldown", a_trip_of_no_length_takes_the_cooldown),
      IT("a function moves only the epoch it has seen",
         a_function_moves_only_the_epoch_it_has_seen),
      IT("a function may decide otherwise than the numbers",
         a_function_may_decide_otherwise_than_the_numbers),
      IT("the numbers still bound a function", the_numbers_still_bound_a_function),
      IT("every transition says what happened", every_transition_says_what_happened),
      IT("what did not move leaves *moved alone", what_did_not_move_leaves_moved_alone),
      IT("nobody need care what moved", nobody_need_care_what_moved),
      IT("the epoch wraps and nothing else does", the_epoch_wraps_and_nothing_else_does),
  };
  return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
