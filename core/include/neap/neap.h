/* neap.h: the circuit breaker engine, all of its public interface.
 *
 * neap answers one question for a program that calls something that can fail: may I make this call?
 *
 *            a trip rule holds                    now >= until
 *   CLOSED -------------------> OPEN(until) - - - - - - - - -> HALF_OPEN
 *     ^                             ^             (derived)         |   |
 *     |                             +------ round failed -----------+   |
 *     +------------------- enough successes ----------------------------+
 *
 *   breaker   the state kept about one dependency: 1,024 bytes, no pointers; all zero is a valid
 *             closed one
 *   rules     the numbers it is judged by: thresholds, window length, cooldown; shared by many
 *             breakers, replaced at any time
 *   permit    what acquire gives and report takes back, once: the right to make one call, stamped
 *             with the breaker's epoch
 *   outcome   what a call came to
 *   round     the probes of one half-open period
 *   panel     named breakers in one block of memory
 *
 *     neap_rules rules = neap_rules_default();
 *     rules.consecutive_failures = 5;
 *     if (!neap_rules_prepare(&rules, &error)) ...;
 *     static neap_breaker breaker;                          // zero: closed
 *     neap_permit permit;
 *     if (neap_breaker_acquire(&breaker, &rules, now_ms, &permit, NULL) <= NEAP_ALLOW_BYPASS) {
 *       neap_call call = { .outcome = try_it() ? NEAP_SUCCESS : NEAP_FAILURE };
 *       neap_breaker_report(&breaker, &rules, now_ms, &permit, &call, NULL);
 *     }
 *
 * Units.   Instants and durations are milliseconds and end in _ms.  An instant is a reading of any
 *          clock that never jumps, as an unsigned 64-bit number; every value works, also at and
 *          over 2^32, 2^53 and 2^63.  Shares and factors (failure_rate, slow_rate, jitter, backoff)
 *          are in millionths: NEAP_ONE is 1.0.
 * Threads. Every function on a breaker or panel may be called by any number of threads, in any
 *          number of processes that share its memory, at any time: no locks, no waiting, no
 *          allocation, no callback.  Built with NEAP_ATOMICS=OFF: one thread.  Rules are read only
 *          once prepared; replace the pointer, not the numbers, while others may use them.
 * Errors.  A refusal is an answer (neap_verdict), a fault of the caller is an assertion, what can
 *          go wrong otherwise is a neap_status.  A function that fails changes nothing.
 * Caveats. - A copied permit, reported twice, is counted twice.  It never underflows or wedges.
 *            Keep one.
 *          - `now_ms` must be read for this call.  An event loop's cached time can be arbitrarily
 *            old: refresh it first.
 *          - The window never counts anything older than its length and may forget up to one
 *            sixteenth of it early.
 *          - A call is counted when it ends, so with C calls at once at most N - 1 + C reach a dead
 *            dependency before the Nth failure trips the breaker.  One that hangs is counted as slow
 *            before that, by a neap_flight.
 *          - A permit is mistaken for a current one only if its call outlives exactly 131,072
 *            transitions.
 */
#ifndef NEAP_H
#define NEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_VERSION_MAJOR 0
#define NEAP_VERSION_MINOR 1
#define NEAP_VERSION_PATCH 0

#define NEAP_VERSION "0.1.0"

/* Of libneap and libneap-engine, and the end of their sonames: raised whenever a program built with
 * the headers of before could go wrong. */
#define NEAP_ABI 2

#if defined(_WIN32) || !defined(__GNUC__)
#define NEAP_API
#else
#define NEAP_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define NEAP__ALIGNED(n) alignas(n)
extern "C" {
#else
#define NEAP__ALIGNED(n) _Alignas(n)
#endif

#define NEAP_ONE   1000000u /* 1.0, for shares and factors in millionths */
#define NEAP_NEVER UINT64_MAX

/* The NEAP_ABI and the NEAP_VERSION that the library was built with.  The dynamic linker keeps to
 * the first by itself; who loads or links the library in another way compares neap_abi() with
 * NEAP_ABI. */
NEAP_API uint32_t neap_abi(void);
NEAP_API const char *neap_version(void);

/* ---- Types ----------------------------------------------------------------------------------- */

/* The numbers are those of the metric neap_breaker_state. */
typedef enum neap_state { NEAP_CLOSED = 0, NEAP_HALF_OPEN = 1, NEAP_OPEN = 2 } neap_state;

/* What stands beside the state.  The state lives on underneath every mode. */
typedef enum neap_mode {
  NEAP_AUTO = 0,      /* the state decides */
  NEAP_FORCED_OPEN,   /* every call is refused */
  NEAP_FORCED_CLOSED, /* no call is refused: one that would be gets a bypass permit */
  NEAP_SHADOW         /* the same, said of rules on trial */
} neap_mode;

/* What acquire answers.  Up to NEAP_ALLOW_BYPASS the call may be made. */
typedef enum neap_verdict {
  NEAP_ALLOW = 0,
  NEAP_ALLOW_PROBE,   /* a probe of a half-open breaker: report it before the lease runs out */
  NEAP_ALLOW_BYPASS,  /* would have been refused, but for the mode; see neap_permit_refusal() */
  NEAP_REFUSE_OPEN,   /* open; see neap_breaker_next_ms() */
  NEAP_REFUSE_PROBES, /* half-open, and all probe slots are taken */
  NEAP_REFUSE_FORCED, /* the mode is NEAP_FORCED_OPEN */
  NEAP_REFUSE_RAMP    /* closed a short while ago, and not yet for all: see neap_rules.ramp_ms */
} neap_verdict;

/* What a call came to.  Slowness is not said but measured: neap_call.duration_ms against
 * neap_rules.slow_call_ms. */
typedef enum neap_outcome {
  NEAP_SUCCESS = 0,
  NEAP_FAILURE,
  NEAP_TIMEOUT,  /* a failure, also counted apart */
  NEAP_NEUTRAL,  /* says nothing about the dependency: gives the slot back, enters no window */
  NEAP_ABANDONED /* neutral, also counted apart: nobody reported in time */
} neap_outcome;

/* Why a breaker moved. */
typedef enum neap_cause {
  NEAP_BY_NOTHING = 0,
  NEAP_BY_FAILURES,     /* measured: failures in the window; limit: rules.failures */
  NEAP_BY_FAILURE_RATE, /* measured: failures; limit: rules.failure_rate, of `calls` */
  NEAP_BY_SLOW_RATE,    /* measured: slow calls; limit: rules.slow_rate, of `calls` */
  NEAP_BY_CONSECUTIVE,  /* measured: failures in a row; limit: rules.consecutive_failures */
  NEAP_BY_FUNCTION,     /* neap_breaker_decide() */
  NEAP_BY_COOLDOWN,     /* OPEN -> HALF_OPEN: the cooldown is over and the first probe goes */
  NEAP_BY_PROBES,       /* the round is decided.  measured: probes that succeeded (to CLOSED) or
                           failed (to OPEN); limit: how many it took */
  NEAP_BY_PROBE_LOST,   /* the lease ran out.  measured: probes lost */
  NEAP_BY_RESET,        /* neap_breaker_reset() */
  NEAP_BY_TRIP          /* neap_breaker_trip() */
} neap_cause;

/* One transition: what happened and the numbers that caused it.  A transition's number is its
 * epoch; HALF_OPEN keeps the epoch of the OPEN it follows, and comes after it. */
typedef struct neap_transition {
  neap_state from, to;
  neap_cause cause;
  uint32_t epoch;    /* after it; 17 bits, wraps */
  uint32_t level;    /* after it: how many times in a row it opened, 0 to 31 */
  uint64_t measured; /* see neap_cause; 0 where it names none */
  uint64_t limit;    /* see neap_cause; 0 where it names none */
  uint64_t calls;    /* calls in the window, or probes of the round that had ended */
  uint64_t open_ms;  /* to OPEN: how long */
  bool flapping;     /* to OPEN: tripped within a cooldown, or the ramp, of closing, so the backoff
                        went on */
} neap_transition;

/* The right to make one call.  Opaque; 0 is none; only the low 24 bits are used, so it can travel
 * in a plain number beside the instant it was given at. */
typedef struct neap_permit {
  uint64_t opaque;
} neap_permit;
#define NEAP_PERMIT_BITS 24

/* One finished call. */
typedef struct neap_call {
  neap_outcome outcome;
  /* How long it took; 0: under a millisecond, or not measured.  2^40 or more (such as an end before
   * its start): taken as 0, and counted as a clock step. */
  uint64_t duration_ms;
  /* Of a failed or slow call: how long the dependency asked to be left alone; 0: it did not.
   * Heeded, up to max_cooldown_ms, if this report opens the breaker.  Negative or over a year:
   * ignored and counted. */
  int64_t retry_after_ms;
} neap_call;

/* What report answers. */
typedef enum neap_reported {
  NEAP_COUNTED = 0,
  NEAP_STALE, /* the breaker has moved since the permit was given: counted as stale, no more */
  NEAP_USED   /* the permit was empty or had been reported before: nothing changed */
} neap_reported;

typedef enum neap_status {
  NEAP_OK = 0,
  NEAP_EFULL,  /* the panel has no free row */
  NEAP_ENAME,  /* a name is empty, or longer than NEAP_NAME_MAX bytes, or has a zero byte */
  NEAP_ERANGE, /* a number is outside its range */
  NEAP_EMEMORY /* the memory is too small or not aligned to 64 bytes */
} neap_status;

/* What is wrong with a set of rules. */
typedef struct neap_error {
  const char *field;    /* the member of neap_rules; static */
  const char *expected; /* what would be right, e.g. "must be greater than timeout_ms"; static */
  uint64_t value;       /* what it is */
  uint64_t min, max;    /* its range, both ends allowed */
} neap_error;

/* ---- Rules ----------------------------------------------------------------------------------- */

typedef enum neap_window_kind { NEAP_WINDOW_TIME = 0, NEAP_WINDOW_COUNT = 1 } neap_window_kind;

/* Each line: meaning; range; default.  Rates, backoff and jitter in millionths. */
/* clang-format off */
typedef struct neap_rules {
  /* What is remembered. */
  neap_window_kind window;       /* NEAP_WINDOW_TIME */
  uint32_t length_ms;            /* of a time window; 100..3,600,000; 10,000 */
  uint32_t calls;                /* of a count window; 1..1,024; 100 */

  /* When it opens: any of the first five; 0 is off; at least one is needed. */
  uint32_t failures;             /* in the window; 0..1,000,000; 0 */
  uint32_t consecutive_failures; /* in a row; 0..1,000,000; 0 */
  uint32_t failure_rate;         /* failed >= rate * calls; 0..NEAP_ONE; 0 */
  uint32_t slow_rate;            /* slow >= rate * calls; 0..NEAP_ONE; 0.  Needs slow_call_ms. */
  bool trip_by_function;         /* somebody calls neap_breaker_decide() when closed; false */
  uint32_t slow_call_ms;         /* a longer call is slow; 0..3,600,000; 0: no call is */
  uint32_t minimum_calls;        /* in the window, before a rate counts; 1..1,000,000, in a count
                                    window at most `calls`; 0: 10, or `calls` if fewer */

  /* How long it stays open: min(max_cooldown_ms, cooldown_ms * backoff^(level - 1)), lengthened by
   * up to `jitter` of that. */
  uint32_t cooldown_ms;          /* 1..86,400,000; 5,000 */
  uint32_t max_cooldown_ms;      /* cooldown_ms..86,400,000 / (1 + jitter); 0: the longer of
                                    cooldown_ms and 60,000 */
  uint32_t backoff;              /* NEAP_ONE..100 * NEAP_ONE; 2.0 */
  uint32_t jitter;               /* 0..NEAP_ONE; 0.2 */
  uint64_t seed;                 /* the jitter is a hash of (seed, epoch), the ramp of (seed, epoch,
                                    now_ms): one for each process */

  /* What it takes to close: `successes` of `probes`. */
  uint32_t probes;               /* in a round; 1..31; 3 */
  uint32_t successes;            /* close it; more failures than probes - successes re-open it;
                                    1..probes; 2 */
  uint32_t concurrent;           /* probes at once; 1..15; 1 */
  uint32_t timeout_ms;           /* of one call, for the host to enforce; 0..3,599,999; 0: none */
  uint32_t lease_ms;             /* a probe not reported by then is lost and its round failed;
                                    timeout_ms + 1..3,600,000; 0: 2 * timeout_ms, or else 30,000 */
  uint32_t ramp_ms;              /* after the probes have closed it, the share of calls that are let
                                    in grows over this time, from next to none to all; 0..3,600,000;
                                    0: all at once */
  bool decide_by_function;       /* somebody calls neap_breaker_decide() after a probe's report, and
                                    the numbers only end a round that has no slot left and nothing
                                    in flight: it re-opens; false */

  neap_mode mode;                /* unless an operator set one on the breaker; NEAP_AUTO */
  bool count_refusals;           /* false: a refusal stores nothing; true */

  uint64_t prepared[6];          /* by neap_rules_prepare() */
} neap_rules;
/* clang-format on */

/* The defaults above: valid but for the missing trip rule. */
NEAP_API neap_rules neap_rules_default(void);

/* Checks the rules, derives what is left 0 and may be, and makes them ready for use.  May be called
 * again after a change.
 *
 * Errors: false, with *error (unless NULL) naming the first bad field; *rules is then unchanged. */
NEAP_API bool neap_rules_prepare(neap_rules *rules, neap_error *error);

/* The cooldown of a level >= 1, without jitter, in ms. */
NEAP_API uint64_t neap_rules_cooldown_ms(const neap_rules *rules, uint32_t level);

/* ---- Breakers -------------------------------------------------------------------------------- */

#define NEAP_NAME_MAX 103 /* bytes in a breaker's name */

typedef struct neap_breaker {
  NEAP__ALIGNED(64) uint64_t opaque[128];
} neap_breaker;

/* Makes the breaker use the rules' window: kind and length.  If they differ from what it has, the
 * window starts empty; state, probes and calls in flight go on.  Call it when rules are put to use;
 * a breaker that never was adopts the first it meets. */
NEAP_API void neap_breaker_adopt(neap_breaker *b, const neap_rules *rules);

/* Asks to make one call at now_ms.
 *
 * Answers NEAP_ALLOW, NEAP_ALLOW_PROBE or NEAP_ALLOW_BYPASS and fills *permit, which goes back
 * exactly once, to neap_breaker_report(), which clears it.  Any other verdict leaves *permit alone
 * and says why.
 *
 * Effects: may take a probe slot; may begin a round, or end one that is decided or lost.  A
 *          transition that this call made is written to *moved (unless NULL); otherwise *moved is
 *          left alone, so set moved->cause to NEAP_BY_NOTHING before.  Closed: reads two words,
 *          writes none.  O(1), lock-free, no allocation, cannot fail. */
NEAP_API neap_verdict neap_breaker_acquire(neap_breaker *b, const neap_rules *rules,
                                           uint64_t now_ms, neap_permit *permit,
                                           neap_transition *moved);

/* What acquire would answer, without taking anything: for routers that ask many and use one. */
NEAP_API neap_verdict neap_breaker_peek(const neap_breaker *b, const neap_rules *rules,
                                        uint64_t now_ms);

/* Takes a permit back, with what the call came to, and clears it.
 *
 * Effects: counts the outcome, gives back a probe slot, may move the breaker: see
 *          neap_breaker_acquire() for *moved.  A success that finds nothing wrong in the window
 *          costs one compare-and-swap; one that took a millisecond or more, two additions for the
 *          histogram besides. */
NEAP_API neap_reported neap_breaker_report(neap_breaker *b, const neap_rules *rules,
                                           uint64_t now_ms, neap_permit *permit,
                                           const neap_call *call, neap_transition *moved);

/* Moves the breaker to `to` for a rule outside the core, if its epoch still is `epoch` (17 bits): a
 * closed one to NEAP_OPEN, a half-open one to NEAP_OPEN or NEAP_CLOSED.  retry_after_ms as in
 * neap_call.
 *
 * Errors: false if the epoch has changed or there is no such transition. */
NEAP_API bool neap_breaker_decide(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                  uint32_t epoch, neap_state to, int64_t retry_after_ms,
                                  neap_transition *moved);

/* By hand: to CLOSED, level 0, clean window, from any state.  Reports of calls under way become
 * stale. */
NEAP_API void neap_breaker_reset(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                 neap_transition *moved);

/* By hand: to OPEN for open_ms (0: the cooldown), from any state.  For longer, set
 * NEAP_FORCED_OPEN.
 *
 * Errors: NEAP_ERANGE if open_ms is over rules->max_cooldown_ms. */
NEAP_API neap_status neap_breaker_trip(neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                       uint64_t open_ms, neap_transition *moved);

#define NEAP_MODE_OF_RULES ((neap_mode)-1)

/* Sets the operator's mode, which goes before rules->mode, for for_ms (0: until it is set again; at
 * most 31 days), or with NEAP_MODE_OF_RULES gives that back.
 *
 * Errors: NEAP_ERANGE if for_ms is longer. */
NEAP_API neap_status neap_breaker_set_mode(neap_breaker *b, uint64_t now_ms, neap_mode mode,
                                           uint64_t for_ms);

/* What is left of an operator's mode that has an end; 0: it has none, or there is no such mode. */
NEAP_API uint64_t neap_breaker_mode_left_ms(const neap_breaker *b, uint64_t now_ms);

/* The state at now_ms; an open breaker whose cooldown is over is half-open. */
NEAP_API neap_state neap_breaker_state(const neap_breaker *b, const neap_rules *rules,
                                       uint64_t now_ms);

/* When the state will change with nobody calling: the end of the cooldown or, half-open, of the
 * lease; NEAP_NEVER when closed, be that with a ramp, or nothing is in flight.  Never less than
 * now_ms. */
NEAP_API uint64_t neap_breaker_next_ms(const neap_breaker *b, const neap_rules *rules,
                                       uint64_t now_ms);

/* Refused so at now_ms: how long until asking again may help.  The rest of the cooldown, the lease
 * or the operator's mode; during a ramp, by when about one call will have been let in.  0: unknown. */
NEAP_API uint64_t neap_breaker_retry_after_ms(const neap_breaker *b, const neap_rules *rules,
                                              uint64_t now_ms, neap_verdict refused);

/* The breaker's name in its panel; "" for one outside, or if whoever made it died before the name
 * was written and nobody has claimed it since.
 *
 * Owns: the breaker; valid as long as it is. */
NEAP_API const char *neap_breaker_name(const neap_breaker *b);

/* ---- Calls in flight ------------------------------------------------------------------------- */

/* The calls that one process has under way through one breaker, for rules with slow_call_ms and
 * slow_rate (or trip_by_function): one that is past slow_call_ms counts as slow before it ends,
 * once, so that a dependency which hangs trips the breaker before the first timeout.
 *
 *     static neap_flight flight;                            // zero; in no shared memory
 *     if (neap_flight_acquire(&flight, b, &rules, began_ms, &permit, &moved) <= NEAP_ALLOW_BYPASS) {
 *       ...
 *       neap_flight_report(&flight, b, &rules, now_ms, began_ms, &permit, &call, &moved);
 *     }
 *     neap_flight_sweep(&flight, b, &rules, now_ms, &moved); // from a timer: see neap_flight_next_ms()
 *
 * Until it ends, such a call is a slow success of the window, and nothing in the totals.  When it
 * ends, what it came to takes that place: as of then in a time window, in its place in a count
 * window.  So it counts once, and an end that is neutral takes it out.  The run of failures is as if
 * it had only ended.
 *
 * The count is exact: a call that takes slow_call_ms at most is never counted so, one that hangs is
 * after a sixteenth more (a millisecond, if that is longer), as soon as anybody acquires, reports or
 * sweeps.  Calls of another epoch, probes and bypasses are not: probes have their lease.
 *
 * Threads. As breakers: any number of threads.  Not for several processes: each has its own, on a
 *          breaker they may share.
 * Caveats. - A permit that is never reported is a call that hangs; one that is reported to the
 *            breaker alone is, too.
 *          - Rules with another slow_call_ms may begin anew (always, if it is twice as long): calls
 *            that began before count when they end.
 *          - In a count window, which of the slow calls it was is not known: the newest is taken. */
typedef struct neap_flight {
  uint64_t opaque[83];
} neap_flight;

/* As neap_breaker_acquire() and neap_breaker_report(); began_ms is the now_ms of the acquire.
 *
 * Effects: each call makes one transition at most, as those do: the calls that are overdue may trip
 *          the breaker that refuses then, or after the report. */
NEAP_API neap_verdict neap_flight_acquire(neap_flight *f, neap_breaker *b, const neap_rules *rules,
                                          uint64_t now_ms, neap_permit *permit,
                                          neap_transition *moved);
NEAP_API neap_reported neap_flight_report(neap_flight *f, neap_breaker *b, const neap_rules *rules,
                                          uint64_t now_ms, uint64_t began_ms, neap_permit *permit,
                                          const neap_call *call, neap_transition *moved);

/* Counts the calls that are overdue, and answers how many there were. */
NEAP_API uint64_t neap_flight_sweep(neap_flight *f, neap_breaker *b, const neap_rules *rules,
                                    uint64_t now_ms, neap_transition *moved);

/* When a call will be overdue that has not been counted, unless it ends before; NEAP_NEVER: none. */
NEAP_API uint64_t neap_flight_next_ms(const neap_flight *f, const neap_breaker *b,
                                      const neap_rules *rules, uint64_t now_ms);

/* How many calls are under way whose end the closed breaker waits for; *overdue, unless NULL: how
 * many of them count as slow already.  None of an epoch that is over, as their reports say nothing.
 * Of calls that hang for longer than 6 times slow_call_ms among others, some may be missing. */
NEAP_API uint64_t neap_flight_count(const neap_flight *f, const neap_breaker *b, uint64_t *overdue);

/* ---- Permits --------------------------------------------------------------------------------- */

/* NEAP_ALLOW, NEAP_ALLOW_PROBE or NEAP_ALLOW_BYPASS, as it was given. */
NEAP_API neap_verdict neap_permit_kind(const neap_permit *permit);

/* The epoch it was given in. */
NEAP_API uint32_t neap_permit_epoch(const neap_permit *permit);

/* Of a bypass permit: why it would have been refused (NEAP_REFUSE_...).  Of any other: its kind. */
NEAP_API neap_verdict neap_permit_refusal(const neap_permit *permit);

/* ---- Reading --------------------------------------------------------------------------------- */

/* Since the breaker was made.  Each only grows. */
#define NEAP_TOTALS(X)                                                                             \
  X(success)        /* calls that succeeded, not slowly */                                         \
  X(slow_success)   /* ... slowly */                                                               \
  X(failure)        /* calls that failed, timeouts included, not slowly */                         \
  X(slow_failure)   /* ... slowly */                                                               \
  X(timeout)        /* of the failures: NEAP_TIMEOUT */                                            \
  X(neutral)        /* NEAP_NEUTRAL */                                                             \
  X(abandoned)      /* NEAP_ABANDONED */                                                           \
  X(stale)          /* reported too late, in another epoch; counted in none of the above */        \
  X(refused_open)   /* NEAP_REFUSE_OPEN */                                                         \
  X(refused_probes) /* NEAP_REFUSE_PROBES */                                                       \
  X(refused_forced) /* NEAP_REFUSE_FORCED */                                                       \
  X(refused_ramp)   /* NEAP_REFUSE_RAMP */                                                         \
  X(bypassed)       /* NEAP_ALLOW_BYPASS */                                                        \
  X(probes)         /* NEAP_ALLOW_PROBE */                                                         \
  X(probes_lost)    /* leases that ran out, in probes */                                           \
  X(flaps)          /* trips within a cooldown, or the ramp, of closing */                         \
  X(clock_steps)    /* the window showed a slice over two ahead, or a duration was negative */     \
  X(retry_ignored)  /* retry_after_ms that made no sense */                                        \
  X(open_ms)        /* not closed, altogether, as of the snapshot */

typedef struct neap_totals {
#define X(name) uint64_t name;
  NEAP_TOTALS(X)
#undef X
} neap_totals;

/* Every transition there is: from, to, cause. */
#define NEAP_TRANSITIONS(X)                                                                        \
  X(CLOSED, OPEN, FAILURES)                                                                        \
  X(CLOSED, OPEN, FAILURE_RATE)                                                                    \
  X(CLOSED, OPEN, SLOW_RATE)                                                                       \
  X(CLOSED, OPEN, CONSECUTIVE)                                                                     \
  X(CLOSED, OPEN, FUNCTION)                                                                        \
  X(CLOSED, OPEN, TRIP)                                                                            \
  X(CLOSED, CLOSED, RESET)                                                                         \
  X(OPEN, HALF_OPEN, COOLDOWN)                                                                     \
  X(OPEN, OPEN, TRIP)                                                                              \
  X(OPEN, CLOSED, RESET)                                                                           \
  X(HALF_OPEN, CLOSED, PROBES)                                                                     \
  X(HALF_OPEN, CLOSED, FUNCTION)                                                                   \
  X(HALF_OPEN, CLOSED, RESET)                                                                      \
  X(HALF_OPEN, OPEN, PROBES)                                                                       \
  X(HALF_OPEN, OPEN, PROBE_LOST)                                                                   \
  X(HALF_OPEN, OPEN, FUNCTION)                                                                     \
  X(HALF_OPEN, OPEN, TRIP)
#define NEAP_TRANSITION_KINDS 17

/* Durations of calls that were counted as successes or failures: counts[i] are those <=
 * neap_duration_bounds_ms[i], and more than the bound before; the last has no bound. */
#define NEAP_DURATION_BUCKETS 15
NEAP_API extern const uint32_t neap_duration_bounds_ms[NEAP_DURATION_BUCKETS - 1];

typedef struct neap_snapshot {
  neap_state state;
  neap_mode mode; /* in force: the operator's, or else the rules' */
  bool mode_is_operators;
  uint64_t mode_left_ms; /* of an operator's mode; 0: no end, or none set */
  uint32_t level, epoch;
  uint64_t state_age_ms; /* since it closed (0 if it never moved) or opened */
  uint64_t
      retry_after_ms; /* what is left of the cooldown or, with all slots taken, of the lease; of
                              a call that the ramp would refuse now: neap_breaker_retry_after_ms() */
  uint32_t
      admitted; /* share of calls let in, millionths: 0 open or half-open (but for probes), else
                        NEAP_ONE, or less during a ramp */
  /* the window */
  neap_window_kind window;
  uint32_t window_length; /* ms, or calls */
  uint64_t calls;         /* = success + slow_success + failure + slow_failure */
  uint64_t success, slow_success, failure, slow_failure;
  uint32_t failure_rate, slow_rate; /* millionths, 0 without calls */
  uint64_t consecutive_failures;
  /* the round */
  uint32_t probes_in_flight, probes_succeeded, probes_failed;
  /* since the breaker was made */
  neap_totals totals;
  uint64_t transitions[NEAP_TRANSITION_KINDS]; /* in the order of NEAP_TRANSITIONS */
  uint64_t duration_counts[NEAP_DURATION_BUCKETS];
  uint64_t duration_sum_ms;
} neap_snapshot;

/* Everything an operator asks.  Changes none of it: a scrape takes no probe and fires no transition.
 * Read word by word while others write: each number was true at some instant, together they may
 * differ by the calls that ended meanwhile, and a total may be short of one bucket's calls while
 * buckets are replaced faster than it is read. */
NEAP_API void neap_breaker_snapshot(const neap_breaker *b, const neap_rules *rules, uint64_t now_ms,
                                    neap_snapshot *out);

/* Static texts: "closed" "half_open" "open"; "auto" "forced_open" "forced_closed" "shadow"; "allow"
 * ... "open" "probes_busy" "forced_open" "ramp"; "failures" "failure_rate" "slow_rate"
 * "consecutive_failures" "function" "cooldown" "probes" "probe_lost" "reset" "trip"; and of a
 * status, a sentence. */
NEAP_API const char *neap_state_name(neap_state state);
NEAP_API const char *neap_mode_name(neap_mode mode);
NEAP_API const char *neap_verdict_name(neap_verdict verdict);
NEAP_API const char *neap_cause_name(neap_cause cause);
NEAP_API const char *neap_status_text(neap_status status);

/* ---- Panels ---------------------------------------------------------------------------------- */

/* A fixed number of named breakers in one block of memory.  No pointers inside: the block may be
 * mapped anywhere. */
typedef struct neap_panel neap_panel;

/* Bytes that a panel of `capacity` breakers (1..4,194,304) takes; 0 if out of range. */
NEAP_API size_t neap_panel_size(uint32_t capacity);

/* Makes an empty panel in `memory`, which must be aligned to 64 bytes and have
 * neap_panel_size(capacity) bytes.  `key` makes the hash of the names unguessable where they come
 * from outside; any number does.
 *
 * Errors: NEAP_ERANGE (capacity), NEAP_EMEMORY.
 * Owns:   the caller keeps the memory; it is free to go when nobody uses the panel any more. */
NEAP_API neap_status neap_panel_init(void *memory, size_t size, uint32_t capacity, uint64_t key,
                                     neap_panel **out);

/* The breaker of that name, made if there is none: as if all zero.  A breaker stays where it is: look
 * it up once and keep it.
 *
 * Errors: NEAP_EFULL, NEAP_ENAME. */
NEAP_API neap_status neap_panel_claim(neap_panel *p, const char *name, size_t length,
                                      neap_breaker **out);

/* The breaker of that name, or NULL.  A full panel is searched to its end for a name that it has
 * not: leave a third of it free where names come from outside. */
NEAP_API neap_breaker *neap_panel_find(const neap_panel *p, const char *name, size_t length);

/* Gives a breaker's row back, for any name, if nothing of it matters any more: it is closed, nobody
 * has set its mode, and so much time is over since it was used last, at used_ms as far as the caller
 * knows, that its window is empty and no cooldown or ramp goes on: length_ms (of a time window) and
 * the longer of max_cooldown_ms and ramp_ms.  Answers whether it was: then its totals are gone, and
 * `b` may be another name's by the next claim.  A permit that is still out is stale there: epochs of
 * a row go on.  (One of a bypass would be counted: report those before.)
 *
 * Threads: one; meanwhile nobody uses `b`, and nobody claims or looks for a name.  Never in a panel
 *          that processes share. */
NEAP_API bool neap_panel_release(neap_panel *p, neap_breaker *b, const neap_rules *rules,
                                 uint64_t now_ms, uint64_t used_ms);

/* Row i of 0..capacity-1, or NULL if it is free or has counters. */
NEAP_API neap_breaker *neap_panel_row(const neap_panel *p, uint32_t i);

/* Rows there are. */
NEAP_API uint32_t neap_panel_capacity(const neap_panel *p);

/* Rows in use, by breakers and counters.  O(capacity). */
NEAP_API uint32_t neap_panel_count(const neap_panel *p);

/* A row of NEAP_COUNTERS numbers that begin at 0 and only grow, for what is counted beside the
 * breakers: in a panel that processes share, those of all together.  What each stands for is the
 * host's to say. */
typedef struct neap_counters neap_counters;
#define NEAP_COUNTERS 64

/* The counters of that name, made if there are none; a breaker of the same name is another row.
 *
 * Errors: NEAP_EFULL, NEAP_ENAME. */
NEAP_API neap_status neap_panel_claim_counters(neap_panel *p, const char *name, size_t length,
                                               neap_counters **out);

/* The counters in row i, or NULL if it is free or a breaker's. */
NEAP_API neap_counters *neap_panel_counters(const neap_panel *p, uint32_t i);

/* Number i of 0..NEAP_COUNTERS-1. */
NEAP_API void neap_counters_add(neap_counters *c, uint32_t i, uint64_t n);
NEAP_API uint64_t neap_counters_read(const neap_counters *c, uint32_t i);

/* Owns: the panel; "" if whoever made the row died before it had written the name. */
NEAP_API const char *neap_counters_name(const neap_counters *c);

/* ---- Clocks ---------------------------------------------------------------------------------- */

/* Where time comes from.  Hosts add their own: a function and what it needs. */
typedef struct neap_clock {
  uint64_t (*now_ms)(void *context);
  void *context;
} neap_clock;

/* The system's monotonic clock, cheap (steps of up to 4 ms, a few ns) or precise (steps under 1 ms,
 * about 30 ns).  Stops while the machine is suspended. */
NEAP_API neap_clock neap_clock_coarse(void);
NEAP_API neap_clock neap_clock_precise(void);

/* A clock that stands still until the caller changes *now_ms: for tests and replays. */
NEAP_API neap_clock neap_clock_manual(uint64_t *now_ms);

/* As neap_breaker_acquire() and neap_breaker_report(), with the time read when it is needed: a
 * closed acquire reads none, unless the rules have a ramp. */
NEAP_API neap_verdict neap_breaker_acquire_on(neap_breaker *b, const neap_rules *rules,
                                              const neap_clock *clock, neap_permit *permit,
                                              neap_transition *moved);
NEAP_API neap_reported neap_breaker_report_on(neap_breaker *b, const neap_rules *rules,
                                              const neap_clock *clock, neap_permit *permit,
                                              const neap_call *call, neap_transition *moved);

#ifdef __cplusplus
}
#endif
#endif
