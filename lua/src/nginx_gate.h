/* nginx_gate.h: what requests go through, and what its functions have in common.
 *
 *   nginx_access.c   in        nginx_log.c   out        nginx.c   makes them */
#ifndef NEAP_NGX_GATE_H
#define NEAP_NGX_GATE_H

#include "line.h"
#include "nginx_request.h"
#include "nginx_slots.h"

#if LUA_VERSION_NUM == 501 && defined(__linux__)

#define AT_ONCE __attribute__((always_inline)) /* a call is a tenth of what it does */

/* One key's way in.  Many requests may go through a gate, but from few locations.  When the first of
 * a location has been answered, it is looked at closely: might others be answered by a cache or
 * another handler, in the upstream's place? */
#define LOCATIONS 8
typedef struct gate {
  line *line;
  uint32_t plain_ms; /* an answer of 200 to 399 that took less is a success, whatever else is to be
                        said about it: SOON_MS, or the policy's slow_call_ms; 0: none is */
  uint8_t turns;     /* until a known location is looked at again */
  uintptr_t known[LOCATIONS]; /* whose answers are the upstream's, by address; or NOT_READ, too */
} gate;
enum { GATE_LINE = 1, GATE_REFS = GATE_LINE };

#define SOON_MS  20
#define TURNS    64 /* to 127 */
#define NOT_READ 1  /* other requests than GET and HEAD: those pass by a cache that there may be */

static inline uintptr_t *known_place(gate *g, uintptr_t location) {
  return &g->known[location / 16 % LOCATIONS];
}

/* Whether nginx's own time may be taken.  Said to be in here: so it is read straight. */
extern __attribute__((visibility("hidden"))) bool neap__has_nginx_clock;

static inline uint64_t nginx_now(const line *n) {
  return neap__has_nginx_clock ? ngx_current_msec : n->clock.now_ms(n->clock.context);
}

/* Pushes the permit of a slot that is no more. */
void neap__push_slot(lua_State *L, const slot *s);

/* Pushes what the hook settle is told of a slot that is no more, after its owner: was it this
 * request's, or one's whose end nobody has seen? */
void neap__push_ending(lua_State *L, const slot *s, void *request);

/* The upvalues of access, ask and ask_try. */
enum {
  UP_GATE = 1,
  UP_LINE,
  UP_OWNER,
  UP_SETTLE,
  UP_MOVED,
  UP_REFUSE,
  UP_KEYED,
  UP_LAST = UP_KEYED
};

int neap__nginx_access(lua_State *L);
int neap__nginx_ask(lua_State *L);
int neap__nginx_ask_try(lua_State *L);

/* The upvalues of log and take. */
enum { LOG_SETTLE = 1, LOG_MOVED, LOG_OWNERS, LOG_LAST = LOG_OWNERS };

int neap__nginx_log(lua_State *L);
int neap__nginx_take(lua_State *L);

#endif
#endif
