/* turn.c: waiting for a slot of the policy's bulkhead: one queue per route, first come, first served;
 * see exchange.h. */
#include "exchange.h"

bool ex_queue_leave(exchange *ex) {
  proxy_route *route = ex->route;
  if (!ex->queued) return false;
  *(ex->before ? &ex->before->behind : &route->first) = ex->behind;
  *(ex->behind ? &ex->behind->before : &route->final) = ex->before;
  ex->queued = false;
  return true;
}

static bool has_slot(const proxy_route *route) {
  return neap_guard_has_slot(route->guard, route->key, route->key_length);
}

/* From a turn of the loop of its own: it may be far down in another exchange's. */
void ex_slot_freed(proxy_route *route) {
  if (route->first) ex_due(route->first, DUE_TURN, 0);
}

bool ex_queue_enter(exchange *ex) {
  proxy_route *route = ex->route;
  uint64_t wait_ms = neap_guard_wait_ms(route->guard), left_ms = ex_left_ms(ex);
  if (!wait_ms || ex->waited || (!route->first && has_slot(route))) return false;
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
  if (!ex->queued || !has_slot(route)) return;
  ex_queue_leave(ex);
  ex->waited = true;
  ex_start(ex);
  if (has_slot(route)) ex_slot_freed(route);
}

void ex_waited(exchange *ex) {
  if (ex_queue_leave(ex)) {
    ex->waited = true;
    ex_slot_freed(ex->route);
  }
  ex_start(ex);
}
