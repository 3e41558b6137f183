/* support.h: what every test of the core needs: a breaker with prepared rules and a clock that
 * the test moves, and a little language for what happens to it:
 *
 *   S F T N A   a call that is let in and ends as a success, failure, timeout, neutral or abandoned
 *   s f         a slow success, a slow failure
 *   R           a call that is refused
 *   <           a call that is let in and stays pending
 *   >S  }S      the oldest, the newest pending call ends as S (or any of the above), and is counted
 *   ~S          the oldest pending call ends as S; its report is stale
 *   +100 -5     the clock goes on, or back, so many ms
 *   r t o c     by hand: reset, trip; by a function: to open, to closed */
#ifndef NEAP_TESTS_SUPPORT_H
#define NEAP_TESTS_SUPPORT_H

#include <neap/neap.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Loops of many threads are so much shorter under ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define SCALE 10
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SCALE 10
#endif
#endif
#ifndef SCALE
#define SCALE 1
#endif

/* A test and its title, which is a sentence. */
#define IT(title, function)                                                                        \
  { title, function, NULL, NULL, NULL }

#define MAX_PENDING 128

typedef struct fixture {
  neap_breaker breaker;
  neap_rules rules;
  uint64_t now_ms;
  neap_transition moved; /* the last transition */
  uint64_t moves;        /* how many there were */
  neap_permit pending[MAX_PENDING];
  unsigned oldest, newest;
} fixture;

/* FIXTURE(f, r->failures = 3, r->cooldown_ms = 100): default rules without jitter, changed so;
 * the clock at START_MS. */
#define START_MS 1000000u
#define FIXTURE(f, ...)                                                                            \
  fixture f = fixture_new();                                                                       \
  do {                                                                                             \
    neap_rules *r = &f.rules;                                                                      \
    __VA_ARGS__;                                                                                   \
    prepare(r);                                                                                    \
  } while (0)

/* Is `got` what it should be?  If not: where, what, and the sentence that says why it should. */
#define SAME(got, want, because)                                                                   \
  check_same((uint64_t)(got), (uint64_t)(want), #got, because, __FILE__, __LINE__)
#define SAME_TEXT(got, want)      check_same_text(got, want, #got, __FILE__, __LINE__)
#define HOLDS(condition, because) check_holds(condition, #condition, because, __FILE__, __LINE__)

static inline void check_same(uint64_t got, uint64_t want, const char *what, const char *because,
                              const char *file, int line) {
  if (got == want) return;
  print_error("%s:%d: %s is %" PRIu64 ", not %" PRIu64 ": %s\n", file, line, what, got, want,
              because);
  _fail(file, line);
}

static inline void check_same_text(const char *got, const char *want, const char *what,
                                   const char *file, int line) {
  if (got && strcmp(got, want) == 0) return;
  print_error("%s:%d: %s is \"%s\", not \"%s\"\n", file, line, what, got ? got : "(null)", want);
  _fail(file, line);
}

static inline void check_holds(bool condition, const char *what, const char *because,
                               const char *file, int line) {
  if (condition) return;
  print_error("%s:%d: %s does not hold: %s\n", file, line, what, because);
  _fail(file, line);
}

static inline void prepare(neap_rules *rules) {
  neap_error error = {0};
  if (neap_rules_prepare(rules, &error)) return;
  print_error("%s %s, not %" PRIu64 "\n", error.field, error.expected, error.value);
  fail();
}

static inline fixture fixture_new(void) {
  fixture f = {.rules = neap_rules_default(), .now_ms = START_MS};
  f.rules.jitter = 0;
  return f;
}

static inline void fixture_note(fixture *f, const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING) return;
  f->moved = *moved;
  f->moves++;
}

static inline neap_verdict acquire(fixture *f, neap_permit *permit) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_verdict verdict = neap_breaker_acquire(&f->breaker, &f->rules, f->now_ms, permit, &moved);
  fixture_note(f, &moved);
  return verdict;
}

/* An acquire whose permit, if any, is forgotten: only for verdicts that hold nothing. */
static inline neap_verdict ask(fixture *f) {
  neap_permit permit = {0};
  return acquire(f, &permit);
}

static inline neap_reported report_call(fixture *f, neap_permit *permit, neap_call call) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_reported reported =
      neap_breaker_report(&f->breaker, &f->rules, f->now_ms, permit, &call, &moved);
  fixture_note(f, &moved);
  return reported;
}

static inline neap_reported report(fixture *f, neap_permit *permit, neap_outcome outcome) {
  return report_call(f, permit, (neap_call){.outcome = outcome});
}

/* A whole call that must be let in. */
static inline void call_with(fixture *f, neap_call call) {
  neap_permit permit = {0};
  SAME(acquire(f, &permit) <= NEAP_ALLOW_BYPASS, true, "the call is let in");
  SAME(report_call(f, &permit, call), NEAP_COUNTED, "the call is counted");
}

static inline neap_state state(const fixture *f) {
  return neap_breaker_state(&f->breaker, &f->rules, f->now_ms);
}

static inline neap_snapshot snapshot(const fixture *f) {
  neap_snapshot s;
  memset(&s, 0xa5, sizeof s); /* every field must be written */
  neap_breaker_snapshot(&f->breaker, &f->rules, f->now_ms, &s);
  return s;
}

static inline void set_mode(fixture *f, neap_mode mode, uint64_t for_ms) {
  SAME(neap_breaker_set_mode(&f->breaker, f->now_ms, mode, for_ms), NEAP_OK, "a good mode");
}

static inline bool letter_is_call(char letter) { return letter && strchr("SFTNAsf", letter); }

static inline neap_call call_of_letter(const fixture *f, char letter) {
  neap_call call = {.outcome = NEAP_SUCCESS};
  switch (letter) {
    case 'F':
    case 'f': call.outcome = NEAP_FAILURE; break;
    case 'T': call.outcome = NEAP_TIMEOUT; break;
    case 'N': call.outcome = NEAP_NEUTRAL; break;
    case 'A': call.outcome = NEAP_ABANDONED; break;
    default: break;
  }
  if (letter == 's' || letter == 'f') call.duration_ms = f->rules.slow_call_ms + UINT64_C(1);
  return call;
}

static inline void play_by_hand(fixture *f, char letter) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  uint32_t epoch = snapshot(f).epoch;
  switch (letter) {
    case 'r': neap_breaker_reset(&f->breaker, &f->rules, f->now_ms, &moved); break;
    case 't':
      SAME(neap_breaker_trip(&f->breaker, &f->rules, f->now_ms, 0, &moved), NEAP_OK, "trip");
      break;
    case 'o':
    case 'c':
      HOLDS(neap_breaker_decide(&f->breaker, &f->rules, f->now_ms, epoch,
                                letter == 'o' ? NEAP_OPEN : NEAP_CLOSED, 0, &moved),
            "the function decides");
      break;
    default: fail_msg("no such letter: %c", letter);
  }
  fixture_note(f, &moved);
}

/* Plays a script of the language above. */
static inline void play(fixture *f, const char *script) {
  for (const char *p = script; *p; p++) {
    char *end = NULL;
    switch (*p) {
      case ' ': break;
      case '+':
        f->now_ms += strtoull(p + 1, &end, 10);
        p = end - 1;
        break;
      case '-':
        f->now_ms -= strtoull(p + 1, &end, 10);
        p = end - 1;
        break;
      case '<':
        SAME(acquire(f, &f->pending[f->newest++ % MAX_PENDING]) <= NEAP_ALLOW_PROBE, true, script);
        break;
      case '>':
        SAME(report_call(f, &f->pending[f->oldest++ % MAX_PENDING], call_of_letter(f, p[1])),
             NEAP_COUNTED, script);
        p++;
        break;
      case '~':
        SAME(report_call(f, &f->pending[f->oldest++ % MAX_PENDING], call_of_letter(f, p[1])),
             NEAP_STALE, script);
        p++;
        break;
      case '}':
        SAME(report_call(f, &f->pending[--f->newest % MAX_PENDING], call_of_letter(f, p[1])),
             NEAP_COUNTED, script);
        p++;
        break;
      case 'R': SAME(ask(f) >= NEAP_REFUSE_OPEN, true, script); break;
      default:
        if (letter_is_call(*p))
          call_with(f, call_of_letter(f, *p));
        else
          play_by_hand(f, *p);
    }
  }
}

static inline void play_times(fixture *f, const char *script, unsigned times) {
  while (times-- > 0) play(f, script);
}

/* A small generator for random tests (xorshift64*): one seed, one run. */
static inline uint64_t random_next(uint64_t *seed) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * UINT64_C(2685821657736338717);
}

static inline uint64_t random_below(uint64_t *seed, uint64_t n) {
  return (random_next(seed) >> 11) % n;
}

/* NEAP_SEED of the environment, or the default; printed, so that a failure can be run again. */
static inline uint64_t random_seed(uint64_t otherwise) {
  const char *text = getenv("NEAP_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : otherwise;
  print_message("NEAP_SEED=%" PRIu64 "\n", seed);
  return seed ? seed : 1;
}

#endif
