/* engine.h: circuit breakers with Lua policies, for C programs on a libuv loop that have no Lua of
 * their own.
 *
 *   engine    one Lua state, the policies it has loaded and the watch on their files, on one loop
 *   guard     one policy at work: its breakers by key, its classification, its fallback chain
 *   ticket    the right to make one call of a guard: what acquire gives and report takes back, once
 *   request   what is asked of the dependency
 *   result    what the call came to, for the policy to classify
 *   answer    what the fallback chain says instead
 *
 *     const char *const policies[] = { "policies" };
 *     neap_engine_options options = { .policies = policies, .policy_count = 1 };
 *     neap_engine *engine;
 *     if (!neap_engine_open(loop, &options, &engine, error, sizeof error)) ...;
 *     neap_guard *flags = neap_engine_guard(engine, "flag_provider");      // once; keep it
 *
 *     neap_ticket ticket;
 *     if (neap_guard_acquire(flags, NULL, 0, &ticket, &refusal) <= NEAP_ALLOW_BYPASS) {
 *       ... the call, however long it takes ...
 *       neap_guard_report(flags, &ticket, &(neap_result){ .status = 503 }, NULL);
 *     } else if (neap_guard_fallback(flags, NULL, 0, NEAP_CAUSE_REFUSED, &asked, NULL, &answer)) {
 *       ... answer.body ...; neap_answer_free(&answer);
 *     }
 *
 *     neap_engine_close(engine, on_closed, data);    // and go on running the loop
 *
 * Units.   Instants and durations are milliseconds and end in _ms.
 * Threads. An engine and all that belongs to it are used by the thread that opened it, which runs
 *          the loop.  Debug builds assert it.
 * Errors.  A refusal is an answer.  A fault in a policy's Lua never comes out: the call gets the
 *          shipped classifier's verdict, or the stage declines, and the fault is counted and
 *          logged.  A NULL engine, guard or ticket is a bug in the caller.
 * Owns.    Texts and structs handed in are read during the call only.  Texts handed out say how
 *          long they live.
 * Caveats. - Policies are files on disk, edited while the program runs: a guard's rules may differ
 *            between any two calls.
 *          - Callbacks run inside calls into the engine (acquire, report, ...) and from the loop.
 *            They may call the engine again but not close it from on_log.
 */
#ifndef NEAP_ENGINE_H
#define NEAP_ENGINE_H

#include "neap/neap.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;
typedef struct uv_loop_s uv_loop_t; /* as in uv.h */
typedef struct neap_engine neap_engine;
typedef struct neap_guard neap_guard;
struct neap_queued;

/* The NEAP_ABI that libneap-engine was built with: see neap_abi(). */
NEAP_API uint32_t neap_engine_abi(void);

/* ---- Opening and closing --------------------------------------------------------------------- */

typedef enum neap_log_level {
  NEAP_LOG_DEBUG = 0,
  NEAP_LOG_INFO,
  NEAP_LOG_WARNING,
  NEAP_LOG_ERROR
} neap_log_level;

typedef enum neap_event_kind {
  NEAP_EVENT_TRANSITION = 0, /* a breaker moved: see moved */
  NEAP_EVENT_RELOADED,       /* a policy has a new generation: see hash */
  NEAP_EVENT_RELOAD_FAILED, /* a changed file was refused: see text.  The last good policy serves */
  NEAP_EVENT_POLICY_GONE,   /* its file is gone: the policy goes on serving */
  NEAP_EVENT_POLICY_ORPHANED, /* ... and has been for 10 s */
  NEAP_EVENT_POLICY_BACK,     /* a file is again what its policy was loaded from */
  NEAP_EVENT_PARAMS,          /* others are in force: text says which, and who set them */
  NEAP_EVENT_SHADOW           /* a shadow policy would have moved: see moved */
} neap_event_kind;

/* Owns: all texts live until the callback returns. */
typedef struct neap_event {
  neap_event_kind kind;
  const char *policy;
  const char *key;       /* of the breaker; "" for policy events */
  const char *hash;      /* of the policy generation that was in force, in hexadecimal */
  const char *text;      /* one line that says it all */
  uint64_t at_ms;        /* on the engine's clock */
  neap_transition moved; /* NEAP_EVENT_TRANSITION and NEAP_EVENT_SHADOW only */
} neap_event;

/* All zero but `policies` will do. */
typedef struct neap_engine_options {
  const char *const *policies; /* policy files, and directories of them (*.lua, not below) */
  size_t policy_count;
  const char *const *params; /* Lua files that return { name = params }, watched too: the later goes
                                before.  The environment's NEAP_PARAM_NAME__PARAM goes before all */
  size_t param_count;
  uint32_t max_breakers;   /* of all guards together; 0: 1,024 */
  size_t lua_memory_bytes; /* the most that Lua may hold; 0: 64 MiB */
  neap_clock clock;        /* .now_ms NULL: neap_clock_precise() */
  bool no_watch;           /* true: files are looked at by neap_engine_reload() only */
  /* A directory of this user's, 0700: for last good answers and queued calls that outlive the
   * process.  NULL: none do, and fallback.queue declines. */
  const char *state_dir;

  /* Transitions and reloads, one at a time, in order, after the engine's own bookkeeping.
   * NULL: none. */
  void (*on_event)(void *data, const neap_event *event);
  /* One line without its newline: policy faults and warnings; events' texts too, if there is no
   * on_event.  NULL: to stderr, from NEAP_LOG_WARNING on. */
  void (*on_log)(void *data, neap_log_level level, const char *line);
  /* A queued call is to be made again: see neap_queued.  NULL: fallback.queue declines. */
  void (*on_replay)(void *data, const struct neap_queued *queued);
  void *data;
} neap_engine_options;

/* Opens an engine on the loop: loads every policy, and (unless no_watch) watches their files from
 * then on.
 *
 * The engine's handles are unreferenced: they do not keep uv_run() going, and are not looked at by
 * a loop that has nothing else to do.
 *
 * Errors: false, with one line per fault in error[size], each saying where, what and what would be
 *         right: a policy that does not load, a file that cannot be read, two policies of one name,
 *         no policy at all, more than max_breakers, no memory.
 * Owns:   *out is the caller's, to neap_engine_close().  The loop must outlive it. */
NEAP_API bool neap_engine_open(uv_loop_t *loop, const neap_engine_options *options,
                               neap_engine **out, char *error, size_t size);

/* Closes the engine, asynchronously: its handles need some turns of the loop.  `closed` (unless
 * NULL) is called from the loop when everything is freed.
 *
 * From this call on no Lua of a policy runs, acquire refuses (NEAP_REFUSE_CLOSED), report forgets,
 * fallback declines, and events end; tickets still out may be reported until `closed`.  From
 * `closed` on every guard and ticket is gone.
 *
 * Effects: writes last good answers to their files first, and waits for the disk; keeps the loop
 *          running until it is done.
 * Errors:  none; closing twice is a bug in the caller. */
NEAP_API void neap_engine_close(neap_engine *engine, void (*closed)(void *data), void *data);

/* ---- Guards ---------------------------------------------------------------------------------- */

/* The guard of the policy of that name, or NULL.  Look it up once: it stays valid, through reloads
 * and when its file is gone, until the engine is closed. */
NEAP_API neap_guard *neap_engine_guard(neap_engine *engine, const char *name);

/* Guard i of 0.., in the order they were loaded, or NULL past the end.  Reloads may add guards,
 * never take any away. */
NEAP_API neap_guard *neap_engine_guard_at(neap_engine *engine, size_t i);

/* The policy's name.  Owns: the guard. */
NEAP_API const char *neap_guard_name(const neap_guard *guard);

/* The policy's timeout_ms now; 0: none.  The program's to enforce: report NEAP_ENDED_TIMEOUT. */
NEAP_API uint32_t neap_guard_timeout_ms(const neap_guard *guard);

/* The policy's half_open.lease_ms now: a probe (NEAP_ALLOW_PROBE) not reported by then is lost, and
 * its round failed.  Report one that its own caller holds up as NEAP_ENDED_CALLER before that. */
NEAP_API uint32_t neap_guard_lease_ms(const neap_guard *guard);

/* The policy's deadline_ms now: for the call with all its attempts; 0: none.  The program's to
 * enforce, as timeout_ms is. */
NEAP_API uint32_t neap_guard_deadline_ms(const neap_guard *guard);

/* The policy's bulkhead.wait_ms now: so long a call may wait for a slot; 0: not.  The program's to
 * do: see neap_guard_has_slot(). */
NEAP_API uint32_t neap_guard_wait_ms(const neap_guard *guard);

/* The largest body, in bytes, that the policy has a use for (to classify, to remember); 0: none, so
 * it need not be kept.  A body over that is reported as NULL. */
NEAP_API size_t neap_guard_wants_body(const neap_guard *guard);
#define NEAP_BODY_MAX 65536u

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Names are matched without regard to case. */
typedef struct neap_header {
  const char *name;
  size_t name_length;
  const char *value;
  size_t value_length;
} neap_header;

typedef struct neap_request {
  const char *method; /* NUL-terminated; NULL: "GET" */
  const char *target; /* as sent: path and query; NULL: "/" */
  size_t target_length;
  const neap_header *headers;
  size_t header_count;
  const void *body; /* NULL: none, or not kept whole */
  size_t body_length;
  bool has_deadline; /* left_ms counts: fallback stages that wait get no more */
  uint64_t left_ms;  /* until the call's deadline; 0: it has come */
} neap_request;

/* How a call ended. */
typedef enum neap_ended_by {
  NEAP_ENDED_ANSWER = 0, /* the dependency answered: see status */
  NEAP_ENDED_TIMEOUT,    /* the program gave it up at its deadline */
  NEAP_ENDED_TRANSPORT,  /* no connection, reset, a malformed answer: see error */
  NEAP_ENDED_CALLER,     /* who asked for it went away first */
  NEAP_ENDED_BULKHEAD    /* never sent: the program's own limits */
} neap_ended_by;

/* How far it had come. */
typedef enum neap_phase {
  NEAP_PHASE_UNKNOWN = 0,
  NEAP_PHASE_CONNECT,
  NEAP_PHASE_SENT,
  NEAP_PHASE_HEADERS,
  NEAP_PHASE_BODY
} neap_phase;

/* What a call came to.  The policy sees it as its `call` table. */
typedef struct neap_result {
  neap_ended_by ended_by;
  neap_phase phase;
  int status;       /* of HTTP; 0: none */
  bool is_grpc;     /* grpc_status counts */
  int grpc_status;  /* 0 OK .. 16 */
  const char *code; /* of the protocol above HTTP: "FLAG_NOT_FOUND"; NULL: none, or in the body */
  const neap_header *headers;
  size_t header_count;
  const void *body; /* NULL: none, or not kept whole; see neap_guard_wants_body() */
  size_t body_length;
  const char *error;           /* NEAP_ENDED_TRANSPORT: one line; NULL: none */
  uint64_t duration_ms;        /* 0: as the engine measures it, from acquire to report */
  const neap_request *request; /* what was asked; NULL: unknown */
  uint32_t attempt;            /* from 2 on a retry, and counted as one; 0 is 1 */
} neap_result;

/* The right to make one call.  Opaque; all zero is none.  Lives where the caller puts it; copy it
 * freely but report it once. */
typedef struct neap_ticket {
  uint64_t opaque[4];
} neap_ticket;

/* What acquire may answer beside neap_verdict. */
#define NEAP_REFUSE_CLOSED ((neap_verdict)7) /* the engine is being closed */

/* The policy's bulkhead has no slot free. */
#define NEAP_REFUSE_BULKHEAD ((neap_verdict)100)

typedef struct neap_refusal {
  const char *reason; /* "open", "probes_busy", "forced_open", "bulkhead", "closed", ...; static */
  const char *state;  /* the breaker's, as of neap_state_name(), under any mode; NULL: none */
  uint64_t retry_after_ms; /* when asking again may help; 0: unknown */
} neap_refusal;

/* Whose breaker a call is, by the policy's `key` function: writes the key, ended by a zero byte, and
 * answers its length; 0 if the policy has none or nothing to say, so it is the program's own to say.
 * `key` has room for NEAP_KEY_SIZE bytes.
 *
 * `within` names one of several dependencies that share the guard: what the function answers is then
 * the key WITHIN/ANSWER, so that none opens another's breaker.  NULL: there is one.
 *
 * Effects: runs the policy's function, if it has one. */
NEAP_API size_t neap_guard_key(neap_guard *guard, const neap_request *request, const char *within,
                               char *key);
#define NEAP_KEY_SIZE 104u

/* Asks to make one call, now.
 *
 * `key` names the breaker within the guard: an endpoint, a tenant.  NULL, 0: "default".  A key seen
 * first makes its breaker; when the guard or the engine has no room left, one that is closed and
 * long idle makes room, or else the key shares the guard's breaker "*".
 *
 * Answers NEAP_ALLOW, NEAP_ALLOW_PROBE or NEAP_ALLOW_BYPASS and fills *ticket, which goes back
 * exactly once, by neap_guard_report() or neap_guard_abandon().  Any other verdict fills *refusal
 * (unless NULL) instead.
 *
 * Effects: may deliver events.  Without a transition: one hash probe and neap_breaker_acquire(), no
 *          Lua but for a key seen first. */
NEAP_API neap_verdict neap_guard_acquire(neap_guard *guard, const char *key, size_t key_length,
                                         neap_ticket *ticket, neap_refusal *refusal);

/* Whether acquire would find a slot of the policy's bulkhead free, or there is none.  A program whose
 * calls wait for one (at most neap_guard_wait_ms()) asks whenever it has reported one; if it then
 * gives up, it acquires all the same, so that the refusal is counted. */
NEAP_API bool neap_guard_has_slot(neap_guard *guard, const char *key, size_t key_length);

typedef struct neap_report {
  neap_reported reported; /* NEAP_COUNTED, NEAP_STALE or NEAP_USED */
  const char *reason;     /* of the verdict, or NULL.  Owns: the guard, until its next report */
} neap_report;

/* Gives the ticket back with what the call came to, and clears it.  The policy that admitted the
 * call classifies it; the newest rules count it.
 *
 * Answers NEAP_SUCCESS, NEAP_FAILURE, NEAP_TIMEOUT or NEAP_NEUTRAL; NEAP_NEUTRAL for a ticket that
 * was reported before.  If the fallback chain is to be asked for that, pass neap_cause_of(outcome)
 * on to neap_guard_fallback().
 *
 * Effects: one protected call into Lua, unless the call is a plain success and the policy has no
 *          function that wants to see it; may deliver events. */
NEAP_API neap_outcome neap_guard_report(neap_guard *guard, neap_ticket *ticket,
                                        const neap_result *result, neap_report *report);

/* Gives the ticket back without a call having been made: neutral, counted as abandoned. */
NEAP_API void neap_guard_abandon(neap_guard *guard, neap_ticket *ticket);

/* May the call be made again that has just been reported so?
 *
 * `made` is how many attempts there were, left_ms the time until the call's deadline (0: none).
 * Answers true if the policy's retry section says so, the breaker lets ordinary calls in, and the
 * guard's retry budget has one left, which is taken; then the next attempt, after *wait_ms, is
 * acquired and reported like the first, with result.attempt.  A call that may have reached the
 * dependency is made again only if its method is idempotent, or retry.on says so: result->request
 * says which it is.
 *
 * Effects: one protected call into Lua, if the policy has a retry section. */
NEAP_API bool neap_guard_retry(neap_guard *guard, const char *key, size_t key_length, uint32_t made,
                               uint64_t left_ms, const neap_result *result, uint64_t *wait_ms);

/* ---- Fallback -------------------------------------------------------------------------------- */

/* Why the chain is asked. */
typedef enum neap_fallback_cause {
  NEAP_CAUSE_REFUSED = 0, /* acquire said no */
  NEAP_CAUSE_TIMEOUT,
  NEAP_CAUSE_FAILURE,
  NEAP_CAUSE_NEUTRAL, /* asks only policies whose fallback_on says so; so does the next */
  NEAP_CAUSE_SUCCESS
} neap_fallback_cause;

NEAP_API neap_fallback_cause neap_cause_of(neap_outcome outcome);

/* An answer of the chain, or one worth remembering. */
typedef struct neap_answer {
  int status;
  const neap_header *headers;
  size_t header_count;
  const void *body;
  size_t body_length;
  const char *source;      /* "last_good", "default", "fail", "guard", "queue", "function" */
  const char *kind;        /* "fail": of what, as the stage says or else as the breaker refused */
  uint64_t age_ms;         /* last_good: how old it is */
  uint64_t retry_after_ms; /* "fail": what to tell the client; 0: nothing */
  uint64_t pending;        /* of neap_guard_fallback_pending(): not true yet; 0: it is */
  void *elsewhere;         /* ... nor an answer: whoever that is has to be asked */
  uint64_t within_ms;      /* for so long `elsewhere`, or the disk, is waited for; 0: not said */
  void *owner;             /* the engine's */
} neap_answer;

/* Asks the fallback chain.  `result` is what the call came to, NULL after a refusal.
 *
 * Answers false if the policy has no stage for it or every stage declined: the program then answers
 * by itself.
 *
 * A fallback.queue stage takes the request as it is: do not pass one whose body was not kept whole.
 *
 * Effects: runs the policy's stages under their budgets.  Of a queue it waits for the disk: to go on
 *          meanwhile, see neap_guard_fallback_pending().
 * Owns:    *answer, until neap_answer_free(). */
NEAP_API bool neap_guard_fallback(neap_guard *guard, const char *key, size_t key_length,
                                  neap_fallback_cause cause, const neap_request *request,
                                  const neap_result *result, neap_answer *answer);

/* The same, without waiting: for the disk, or for a guard of neap_guard_serve().  If
 * answer->elsewhere is set, there is no answer yet: see neap_guard_asked().  Else if answer->pending
 * is not 0, neap_guard_when_kept() has to be called for it, and the answer is not to be told before
 * that says so. */
NEAP_API bool neap_guard_fallback_pending(neap_guard *guard, const char *key, size_t key_length,
                                          neap_fallback_cause cause, const neap_request *request,
                                          const neap_result *result, neap_answer *answer);

/* From now on fallback.guard stages that name this guard have its dependency asked: not by the
 * engine, but by the program, which gets `whom` (NULL: no more) as the answer's `elsewhere` from
 * neap_guard_fallback_pending().  Without, such a stage asks this guard's own chain. */
NEAP_API void neap_guard_serve(neap_guard *guard, void *whom);

/* Goes on with a chain whose answer was `elsewhere`: the program has acquired from the guard that
 * `whom` stands for, made the call and reported it.  `good` is what came of it, if that was a
 * success or neutral; NULL: nothing of use.  `guard` is the one that was asked first.
 *
 * Answers as neap_guard_fallback_pending(), which may be elsewhere once more.  With NULL for `answer`
 * the chain ends: nobody waits for it.  Each `elsewhere` is to be given back so, once. */
NEAP_API bool neap_guard_asked(neap_guard *guard, uint64_t pending, const neap_answer *good,
                               neap_answer *answer);

/* Calls `kept` once, from the loop or from inside this call: is_kept true, and the answer is true;
 * or false, and the program answers by itself.  NULL: takes that back, nobody wants to know, nor is
 * the call to be made. */
NEAP_API void neap_guard_when_kept(neap_guard *guard, uint64_t pending,
                                   void (*kept)(void *data, bool is_kept), void *data);

/* Frees what neap_guard_fallback() filled.  All zero is fine.  May be called until the engine's
 * `closed`. */
NEAP_API void neap_answer_free(neap_answer *answer);

/* Offers a good answer of the dependency (never one of the chain) to the policy's last_good stages;
 * without one does nothing.  Call it when the report said NEAP_SUCCESS and the body was kept whole.
 *
 * Kept by method, target, Host, Authorization, Cookie, X-API-Key and the Accept headers, unless the
 * stage has a key function; then by what it returns.  Without one only answers to GET and HEAD are
 * kept, and none that says Cache-Control: no-store or private, has a Set-Cookie, or a Vary on
 * anything else: what tells clients apart by another header has to say one of these.
 *
 * An answer 304 to a request with If-None-Match makes the kept answer with that ETag fresh again.
 *
 * Effects: copies the answer, within the stage's max_entries and max_bytes; if it is the same, not
 *          again within 250 ms or a tenth of max_age_ms. */
NEAP_API void neap_guard_remember(neap_guard *guard, const char *key, size_t key_length,
                                  const neap_request *request, const neap_answer *answer);

/* Before anything is asked: has the policy an answer that it wants used at once
 * (fallback.last_good's revalidate_after_ms)?
 *
 * Answers true and fills *answer, as a fallback would; never to a request with Cache-Control:
 * no-cache or no-store.  If *refresh is not 0 then, the answer is old:
 * the program is to make the call all the same, with nobody waiting for it (acquire, report,
 * remember), and to call neap_guard_refreshed() when it has ended, however that was. */
NEAP_API bool neap_guard_at_once(neap_guard *guard, const char *key, size_t key_length,
                                 const neap_request *request, neap_answer *answer,
                                 uint64_t *refresh);
NEAP_API void neap_guard_refreshed(neap_guard *guard, uint64_t refresh);

/* ---- Queued calls ---------------------------------------------------------------------------- */

/* A call that a fallback.queue stage has kept, to be made now: acquire with this guard and key, make
 * it with `id` as its idempotency key, report, and call neap_engine_replayed().  One of a queue is
 * under way at a time.  Owns: all of it lives until on_replay returns. */
typedef struct neap_queued {
  neap_guard *guard;
  const char *key;
  size_t key_length;
  const char *id;
  const neap_request *request;
  uint64_t token; /* for neap_engine_replayed() */
} neap_queued;

typedef enum neap_replay {
  NEAP_REPLAY_DONE = 0, /* it was carried out: the report said NEAP_SUCCESS */
  NEAP_REPLAY_OWN,      /* the dependency says that the call is wrong: NEAP_NEUTRAL */
  NEAP_REPLAY_LATER     /* refused, failed, too late */
} neap_replay;

/* What it came to.  `reason` may be NULL; after wait_ms (0: some time) it is made again. */
NEAP_API void neap_engine_replayed(neap_engine *engine, uint64_t token, neap_replay verdict,
                                   const char *reason, uint64_t wait_ms);

/* ---- Operating ------------------------------------------------------------------------------- */

/* Looks at every file now and reloads what has changed, as the watch would, without waiting for a
 * file to come to rest.
 *
 * Answers how many policies have a new generation.
 * Errors: those that were refused: count in *failed (unless NULL), each an event;
 *         the last good ones serve. */
NEAP_API size_t neap_engine_reload(neap_engine *engine, size_t *failed);

/* Everything an operator asks about the breaker of that key.  Changes nothing.
 *
 * Errors: false if the guard has no such key. */
NEAP_API bool neap_guard_snapshot(neap_guard *guard, const char *key, size_t key_length,
                                  neap_snapshot *out);

/* Sets the operator's mode for for_ms (0: until it is set again), or with NEAP_MODE_OF_RULES gives
 * it back.  `by` and `reason` go to the log; NULL: not said.
 *
 * Errors: false if the guard has no such key, or for_ms is over 31 days. */
NEAP_API bool neap_guard_set_mode(neap_guard *guard, const char *key, size_t key_length,
                                  neap_mode mode, uint64_t for_ms, const char *by,
                                  const char *reason);

/* By hand: to CLOSED, level 0, clean window.
 *
 * Errors: false if the guard has no such key. */
NEAP_API bool neap_guard_reset(neap_guard *guard, const char *key, size_t key_length,
                               const char *by);

/* ---- For programs that have Lua of their own to run in the engine's state -------------------- */

/* The Lua 5.4 state.  In it `require "neap.engine"` is the engine's Lua half: .guards (by name),
 * .reloader, .started_ms; and `require "luv"` is on the engine's loop.  Whoever uses it leaves the
 * stack as it was found and enters only by neap_engine_pcall(). */
NEAP_API struct lua_State *neap_engine_lua(neap_engine *engine);

/* As lua_pcall(), with a message handler that makes a text of any error and adds a traceback.
 *
 * Errors: false, with the error on the stack in place of the results: a text, unless memory ran out
 *         making it. */
NEAP_API bool neap_engine_pcall(neap_engine *engine, int arguments, int results);

#ifdef __cplusplus
}
#endif
#endif
