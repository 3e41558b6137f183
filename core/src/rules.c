#include "breaker.h"

neap_rules neap_rules_default(void) {
  return (neap_rules){
      .window = NEAP_WINDOW_TIME,
      .length_ms = 10000,
      .calls = 100,
      .cooldown_ms = 5000,
      .backoff = 2 * NEAP_ONE,
      .jitter = NEAP_ONE / 5,
      .probes = 3,
      .successes = 2,
      .concurrent = 1,
      .count_refusals = true,
  };
}

#define DAY_MS    86400000u
#define HOUR_MS   3600000u
#define COUNT_MAX 1000000u

/* One check: the field, its value, its range, and what to say. */
typedef struct rule_range {
  const char *field;
  uint64_t value, min, max;
  const char *expected;
} rule_range;

static bool range_fails(const rule_range *c, neap_error *error) {
  if (c->value >= c->min && c->value <= c->max) return false;
  if (error != NULL) *error = (neap_error){c->field, c->expected, c->value, c->min, c->max};
  return true;
}

/* What may be left 0, from the rest. */
static void rules_derive(neap_rules *r) {
  if (r->minimum_calls == 0) {
    bool is_small = r->window == NEAP_WINDOW_COUNT && r->calls < 10;
    r->minimum_calls = is_small ? r->calls : 10;
  }
  if (r->max_cooldown_ms == 0) r->max_cooldown_ms = r->cooldown_ms > 60000 ? r->cooldown_ms : 60000;
  if (r->lease_ms == 0) {
    r->lease_ms = r->timeout_ms == 0 ? 30000 : 2 * r->timeout_ms;
    if (r->lease_ms > HOUR_MS) r->lease_ms = HOUR_MS;
  }
}

static uint64_t cooldown_with_jitter(const neap_rules *r) {
  return (uint64_t)r->max_cooldown_ms + (uint64_t)r->max_cooldown_ms * r->jitter / NEAP_ONE;
}

/* The longest cooldown that its jitter does not take over a day. */
static uint64_t jitter_leaves_ms(const neap_rules *r) {
  return (uint64_t)DAY_MS * NEAP_ONE / (NEAP_ONE + (uint64_t)r->jitter);
}

static bool rules_fail(const neap_rules *r, neap_error *error) {
  const uint64_t count_calls = r->window == NEAP_WINDOW_COUNT ? r->calls : COUNT_MAX;
  const bool has_rule = r->failures || r->consecutive_failures || r->failure_rate || r->slow_rate ||
                        r->trip_by_function;
  const rule_range checks[] = {
      {"window", (uint64_t)r->window, 0, 1, "must be NEAP_WINDOW_TIME or NEAP_WINDOW_COUNT"},
      {"length_ms", r->length_ms, LENGTH_MIN, LENGTH_MAX, "must be 100 ms to one hour"},
      {"calls", r->calls, 1, CALLS_MAX, "must be 1 to 1,024 calls"},
      {"failures", r->failures, 0, COUNT_MAX, "must be at most 1,000,000; 0 is off"},
      {"consecutive_failures", r->consecutive_failures, 0, COUNT_MAX,
       "must be at most 1,000,000; 0 is off"},
      {"failure_rate", r->failure_rate, 0, NEAP_ONE, "must be a share of at most 1.0; 0 is off"},
      {"slow_rate", r->slow_rate, 0, NEAP_ONE, "must be a share of at most 1.0; 0 is off"},
      {"failures", has_rule, 1, COUNT_MAX,
       "must be set, or consecutive_failures, failure_rate, slow_rate or trip_by_function: "
       "without a trip rule it never opens"},
      {"failures", r->window == NEAP_WINDOW_COUNT ? r->failures : 0, 0, count_calls,
       "must be at most `calls`, or it never opens"},
      {"slow_call_ms", r->slow_call_ms, r->slow_rate ? 1 : 0, HOUR_MS,
       "must be 1 ms to one hour where slow_rate is set; 0 elsewhere: no call is slow"},
      {"minimum_calls", r->minimum_calls, 1, count_calls,
       "must be 1 to 1,000,000, and at most `calls` of a count window"},
      {"cooldown_ms", r->cooldown_ms, 1, DAY_MS, "must be 1 ms to one day"},
      {"max_cooldown_ms", r->max_cooldown_ms, r->cooldown_ms, DAY_MS,
       "must be cooldown_ms to one day"},
      {"backoff", r->backoff, NEAP_ONE, 100 * NEAP_ONE, "must be a factor of 1.0 to 100.0"},
      {"jitter", r->jitter, 0, NEAP_ONE, "must be a share of at most 1.0"},
      {"max_cooldown_ms", r->max_cooldown_ms, 1, jitter_leaves_ms(r),
       "must leave max_cooldown_ms * (1 + jitter) within one day"},
      {"probes", r->probes, 1, 31, "must be 1 to 31"},
      {"successes", r->successes, 1, r->probes, "must be 1 to probes"},
      {"concurrent", r->concurrent, 1, 15, "must be 1 to 15"},
      {"timeout_ms", r->timeout_ms, 0, HOUR_MS - 1, "must be under one hour; 0 is none"},
      {"lease_ms", r->lease_ms, (uint64_t)r->timeout_ms + 1, HOUR_MS,
       "must be greater than timeout_ms, and at most one hour"},
      {"ramp_ms", r->ramp_ms, 0, HOUR_MS, "must be at most one hour; 0 is no ramp"},
      {"mode", (uint64_t)r->mode, 0, NEAP_SHADOW, "must be a neap_mode"},
  };
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    if (range_fails(&checks[i], error)) return true;
  return false;
}

/* log2 of a sixteenth of slow_call_ms, in whole milliseconds: a flight's slices. */
static uint64_t flight_shift(const neap_rules *r) {
  uint64_t shift = 0;
  while (UINT64_C(32) << shift <= r->slow_call_ms) shift++;
  return shift;
}

bool neap_rules_prepare(neap_rules *rules, neap_error *error) {
  neap_rules r = *rules;
  rules_derive(&r);
  if (rules_fail(&r, error)) return false;
  bool is_count = r.window == NEAP_WINDOW_COUNT;
  r.prepared[PREPARED_RECIPROCAL] = UINT64_MAX / (r.length_ms / 16);
  r.prepared[PREPARED_ROUNDED_UP] = r.prepared[PREPARED_RECIPROCAL] + 1;
  r.prepared[PREPARED_SHORTCUT] = is_count ? UINT64_MAX : r.length_ms;
  r.prepared[PREPARED_SHAPE] = is_count ? SHAPE_COUNT | r.calls : r.length_ms;
  r.prepared[PREPARED_LONGEST] = cooldown_with_jitter(&r) + SLACK_MS;
  r.prepared[PREPARED_FLAGS] = PREPARED_MAGIC | (r.mode == NEAP_AUTO ? 0 : PREPARED_MODE) |
                               (r.ramp_ms == 0 ? 0 : PREPARED_RAMP) |
                               (r.failure_rate || r.slow_rate ? PREPARED_RATES : 0);
  if (r.slow_call_ms != 0 && (r.slow_rate != 0 || r.trip_by_function))
    r.prepared[PREPARED_FLAGS] |= PREPARED_SLOWS | flight_shift(&r) << PREPARED_SHIFT;
  *rules = r;
  return true;
}

/* min(max_cooldown_ms, cooldown_ms * backoff^(level - 1)), without overflow: each product is under
 * 2^27 * 10^8. */
uint64_t neap_rules_cooldown_ms(const neap_rules *rules, uint32_t level) {
  uint64_t ms = rules->cooldown_ms;
  for (uint32_t i = 1; i < level && ms < rules->max_cooldown_ms; i++)
    ms = ms * rules->backoff / NEAP_ONE;
  return ms < rules->max_cooldown_ms ? ms : rules->max_cooldown_ms;
}
