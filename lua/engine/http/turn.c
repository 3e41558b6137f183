/* turn.c: waiting for a slot of the policy's bulkhead: one queue per route, first come, first served,
 * but for those whose key has no slot;
 * see exchange.h. */
#include "exchange.h"

#include <string.h>

bool ex_queue_leave(exchange *ex) {
  proxy_route *route = ex->route;
  if (!ex->queued) return false;
  *(ex->before ? &ex->before->behind : &route->first) = ex->behind;
  *(ex->behind ? &ex->behind->before : &route->final) = ex->before;
  ex->queued = false;
  return true;
}

static bool has_slot(const exchange *ex) {
  return neap_guard_has_slot(ex->route->guard, ex->key, ex->key_length);
}

/* Whose turn it is; NULL: nobody's.  Where all have one key, that is the first, or nobody. */
static exchange *next_in_turn(const proxy_route *route) {
  exchange *ex = route->first;
  while (ex && !has_slot(ex)) ex = route->is_mapped ? ex->behind : NULL;
  return ex;
}

/* Does anybody wait for the same slots? */
static bool is_awaited(const exchange *ex) {
  const exchange *other = ex->route->first;
  if (!ex->route->is_mapped) return other != NULL;
  while (other &&
         (other->key_length != ex->key_length || memcmp(other->key, ex->key, ex->key_length) != 0))
    other = other->behind;
  return other != NULL;
}

/* From a turn of the loop of its own: it may be far down in another exchange's. */
void ex_slot_freed(proxy_route *route) {
  if (route->first) ex_due(route->first, DUE_TURN, 0);
}

bool ex_queue_enter(exchange *ex) {
  proxy_route *route = ex->route;
  uint64_t wait_ms = neap_guard_wait_ms(route->guard), left_ms = ex_left_ms(ex);
  if (!wait_ms || ex->waited || (!is_awaited(ex) && has_slot(ex))) return false;
  ex->queued = true;
  ex->before = route->final;
  ex->behind = NULL;
  *(ex->before ? &ex->before->behind : &route->first) = ex;
  route->final = ex;
  ex->stage = EX_WAIT;
  ex_due(ex, DUE_START, wait_ms < left_ms ? wait_ms : left_ms);
  ex_slot_freed(route); /* there may be more of them than there were */
  return true;
}

void ex_turn(exchange *ex) {
  proxy_route *route = ex->route;
  exchange *next = ex->queued ? next_in_turn(route) : NULL;
  if (!next) return;
  ex_queue_leave(next);
  next->waited = true;
  ex_start(next);
  if (next_in_turn(route)) ex_slot_freed(route);
}

void ex_waited(exchange *ex) {
  if (ex_queue_leave(ex)) {
    ex->waited = true;
    ex_slot_freed(ex->route);
  }
  ex_start(ex);
}
