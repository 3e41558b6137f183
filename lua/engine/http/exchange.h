/* exchange.h: one request through a route, shared by proxy.c (the question), deadline.c and turn.c
 * (how long it may take, and wait), verdict.c (the answer) and chain.c (what is sent instead).  For calls that no client waits for see background.c.
 *
 *   COLLECT --body whole, or over 64 KiB--> acquire --refused--> fallback chain, or 503
 *                                           ^ |
 *   WAIT   for a slot, or to try again -----+ v     no answer in time, or none
 *                                           AWAIT --------------------------------> report
 *                                             | head                                  |
 *                                             v     end                               v
 *                                           HOLD -----> report --success--> answer  chain, or error
 *                                             |             +--failure--> chain, or answer as it is
 *                                             | large, slow, endless
 *                                             v        end
 *                                          STREAM -----------> report
 *
 * A failure that is reported before anything was sent may be tried again, if the policy says so: then
 * it is WAIT, and acquire, once more.  What it came to is kept until the next attempt is let in: if
 * none is, that is what is answered.
 *
 * Every admitted call is reported exactly once, before anything that depends on it is sent: a held
 * answer at its end; a streamed one at its end too, or, when that takes longer than the deadline,
 * by what it has shown until then; one whose client left, as ended by the caller.
 *
 * The deadline counts time in which it is the upstream's turn.  A client that is slow to send or to
 * take is not the upstream's fault: the server has deadlines for it.  Nor may it keep a probe's slot,
 * or lose it: a probe whose body is not there by half of the lease is reported as ended by the
 * caller, and the exchange goes on unwatched.
 */
#ifndef NEAP_HTTP_EXCHANGE_H
#define NEAP_HTTP_EXCHANGE_H

#include "client.h"

typedef struct exchange exchange;
typedef struct background background;

typedef enum exchange_stage {
  EX_COLLECT,
  EX_WAIT,
  EX_AWAIT,
  EX_HOLD,
  EX_STREAM,
  EX_KEEP, /* its call is being put into a queue */
  EX_ASK,  /* another route's upstream is asked, for a stage of the chain */
  EX_OVER
} exchange_stage;

/* What there is to wait for, and until when; 0: not. */
typedef enum exchange_due {
  DUE_ANSWER, /* the answer's head, and the end of one that is held */
  DUE_HOLD,   /* holding back has to end */
  DUE_JUDGE,  /* a streamed answer has to be reported */
  DUE_STALL,  /* a streamed answer stands still */
  DUE_PROBE,  /* a probe that waits for its body is given back */
  DUE_TURN,   /* a slot may be free for who is first in the queue */
  DUE_START,  /* it has waited long enough: for a slot, or to try again */
  DUE_KEPT,   /* ... or for the disk that a queue is on */
  DUE_COUNT
} exchange_due;

/* What an attempt came to that may be tried again. */
typedef struct exchange_end {
  neap_outcome outcome;
  neap_ended_by ended_by;
  neap_phase phase;
  int status; /* to answer, if there was no answer */
} exchange_end;

struct exchange {
  proxy_route *route;
  exchange *next;          /* of the free ones */
  http_request *request;   /* NULL: over */
  http_transfer *transfer; /* NULL: none under way */
  exchange_stage stage;
  uv_timer_t timer;
  uint64_t timer_due, due[DUE_COUNT];

  neap_ticket ticket;
  bool admitted; /* the ticket is out */

  uint32_t attempts;   /* let in so far */
  http_transfer *last; /* the attempt before the next: has ended, kept for its answer; or NULL */
  exchange_end end;    /* ... and what it came to */

  bool queued, waited;       /* for a slot of the bulkhead; long enough */
  exchange *before, *behind; /* in the queue */
  uint64_t by, allowed_ms;   /* the call's deadline, on the loop's clock; 0: it does not run.  All
                                of it; UINT64_MAX: there is none */
  bool by_client, cut;       /* whose it is; this attempt has less time than the policy gives it */
  uint64_t sent_ns, head_ns;
  uint64_t probe_due; /* by then its body has to be on its way up; 0: no probe, or whole */

  const char *key; /* the route's, or by_policy */
  size_t key_length;
  char by_policy[NEAP_KEY_SIZE];

  http_bytes body; /* of the request: whole, or what is on its way */
  size_t body_read;
  uint64_t body_total;
  bool body_done, upload_waits;

  http_bytes held;   /* of the answer: held back, or a copy of what was streamed */
  uint64_t received; /* bytes of its body */
  bool keeps;        /* the copy goes on */
  neap_answer later; /* EX_KEEP: what is said when the call is on the disk */

  background *asking; /* EX_ASK: the call to the other upstream; NULL: none */
  uint64_t pending;   /* ... for the chain */
  http_refused
      refused;     /* ... what is said if the chain has no answer: that, if there is a reason */
  bool unanswered; /* the chain has none */
  bool blocked;    /* the client does not take more */
};

struct proxy_route {
  uv_loop_t *loop;
  http_upstream *upstream;
  neap_guard *guard;
  char *name, *key;
  size_t key_length;
  const char *within; /* key, where others share the guard, else NULL: as of neap_guard_key */
  proxy_options options;
  proxy_stats stats;
  exchange *free;
  background *background;  /* all there are */
  bool serves;             /* other routes' fallbacks */
  exchange *first, *final; /* of the queue for a slot */
  size_t calls;            /* to the upstream, now */
  neap_header *headers;    /* scratch */
  size_t headers_capacity;
  bool is_mapped; /* the policy has given an exchange a key of its own */
  size_t holds;   /* exchanges and the upstream */
  void (*closed)(void *data);
  void *closed_data;
};

/* proxy.c */
void ex_due(exchange *ex, exchange_due which, uint64_t in_ms); /* UINT64_MAX: not */
void ex_over(exchange *ex);                                    /* the request is gone */
http_transfer *ex_take_transfer(exchange *ex); /* it is no longer this one's, but goes on */
void ex_drop_transfer(exchange *ex);           /* it does not go on */
neap_request ex_question(const exchange *ex);
bool ex_body_is_whole(const exchange *ex); /* as is one that there is none of */
void ex_start(exchange *ex);               /* asks for an attempt */

/* deadline.c */
void ex_deadline_set(exchange *ex);          /* what the client and the policy say of it */
void ex_deadline_begin(exchange *ex);        /* the request is whole */
uint64_t ex_deadline_ms(const exchange *ex); /* of an attempt, by the policy */
uint64_t ex_left_ms(const exchange *ex);     /* of the call; UINT64_MAX: it has none */
void ex_await(exchange *ex);                 /* it is the upstream's turn */

/* turn.c */
bool ex_queue_enter(exchange *ex);      /* whether it waits: who comes later does not go first */
bool ex_queue_leave(exchange *ex);      /* whether it was in it */
void ex_slot_freed(proxy_route *route); /* perhaps: a call was reported */
void ex_turn(exchange *ex);             /* a slot may be free for it */
void ex_waited(exchange *ex);           /* long enough: for a slot, or to try again */
void proxy_release(proxy_route *route); /* one of its holds */

/* chain.c */
neap_header *ex_headers_room(proxy_route *route, size_t count); /* until the answer has begun */
bool ex_chain(exchange *ex, neap_fallback_cause cause,
              const neap_result *result); /* false: it has no answer */
void ex_refused(exchange *ex, const neap_refusal *refusal);
void ex_problem(exchange *ex, int status, const char *detail);
bool ex_at_once(exchange *ex);   /* whether it was answered before anybody was asked */
void ex_unkept(exchange *ex);    /* it has waited too long for a queue */
void ex_keep_none(exchange *ex); /* nobody waits for it any more */
void ex_ask_none(exchange *ex);
void ex_asked(exchange *ex, const neap_answer *good); /* NULL: no answer of use */

/* background.c */
void background_refresh(const exchange *ex, const neap_request *question, uint64_t refresh);
background *background_ask(proxy_route *route, const neap_request *question, exchange *asker);
void background_go(background *b, uint64_t within_ms,
                   bool is_callers);   /* ex_asked() follows, once */
void background_forget(background *b); /* ... or nothing */
void background_close(proxy_route *route);

/* verdict.c */
extern const http_transfer_events ex_transfer_events;
bool ex_is_worth_keeping(const proxy_route *route, const http_transfer *t);
void ex_late(exchange *ex);
void ex_too_late(exchange *ex);  /* the call's deadline has come before anybody was asked */
void ex_last(exchange *ex);      /* there is no other attempt: the last one's answer */
void ex_left(exchange *ex);      /* the client has gone */
void ex_give_back(exchange *ex); /* the ticket: the client is too slow for a probe */
void ex_stream(exchange *ex);
void ex_judge(exchange *ex);
void ex_stalled(exchange *ex);
size_t ex_upload(exchange *ex, char *buffer, size_t size);
bool ex_rewind(exchange *ex);

#endif
