/* The numbers: what neap_rules_prepare() accepts, derives and refuses. */
#include "support.h"

/* Rules that are right and leave every field its whole range. */
static neap_rules wide_rules(void) {
  neap_rules rules = neap_rules_default();
  rules.failures = 5;
  rules.jitter = 0;
  rules.probes = 31;
  rules.successes = 1;
  return rules;
}

static neap_rules wide_rules_slow(void) {
  neap_rules rules = wide_rules();
  rules.slow_call_ms = 100;
  return rules;
}

static neap_rules wide_rules_two(void) {
  neap_rules rules = wide_rules();
  rules.consecutive_failures = 1;
  return rules;
}

static neap_rules wide_rules_counting(void) {
  neap_rules rules = wide_rules();
  rules.window = NEAP_WINDOW_COUNT;
  rules.failures = 0;
  rules.failure_rate = 500000;
  return rules;
}

static neap_rules wide_rules_long(void) {
  neap_rules rules = wide_rules();
  rules.max_cooldown_ms = 86400000;
  return rules;
}

static neap_rules wide_rules_lease(void) {
  neap_rules rules = wide_rules();
  rules.lease_ms = 3600000;
  return rules;
}

/* One integer field of neap_rules: its range, both ends allowed. */
typedef struct range_case {
  const char *field;
  size_t offset;
  uint32_t min, max;
  neap_rules (*base)(void);
} range_case;

#define FIELD(name) #name, offsetof(neap_rules, name)

static const range_case range_cases[] = {
    {FIELD(length_ms), 100, 3600000, wide_rules},
    {FIELD(calls), 1, 1024, wide_rules_counting},
    {FIELD(failures), 0, 1000000, wide_rules_two},
    {FIELD(consecutive_failures), 0, 1000000, wide_rules},
    {FIELD(failure_rate), 0, NEAP_ONE, wide_rules},
    {FIELD(slow_rate), 0, NEAP_ONE, wide_rules_slow},
    {FIELD(slow_call_ms), 0, 3600000, wide_rules},
    {FIELD(minimum_calls), 0, 1000000, wide_rules},
    {FIELD(minimum_calls), 0, 100, wide_rules_counting},
    {FIELD(cooldown_ms), 1, 86400000, wide_rules},
    {FIELD(max_cooldown_ms), 5000, 86400000, wide_rules},
    {FIELD(backoff), NEAP_ONE, 100 * NEAP_ONE, wide_rules},
    {FIELD(jitter), 0, NEAP_ONE, wide_rules},
    {FIELD(probes), 1, 31, wide_rules},
    {FIELD(successes), 1, 31, wide_rules},
    {FIELD(concurrent), 1, 15, wide_rules},
    {FIELD(timeout_ms), 0, 3599999, wide_rules_lease},
    {FIELD(lease_ms), 1, 3600000, wide_rules},
    {FIELD(cooldown_ms), 1, 86400000, wide_rules_long},
};

static void set_field(neap_rules *rules, size_t offset, uint32_t value) {
  memcpy((char *)rules + offset, &value, sizeof value);
}

static void check_accepted(const range_case *c, uint32_t value) {
  neap_rules rules = c->base();
  neap_error error = {0};
  set_field(&rules, c->offset, value);
  if (neap_rules_prepare(&rules, &error)) return;
  fail_msg("%s = %u is refused: %s %s", c->field, value, error.field, error.expected);
}

static void check_refused(const range_case *c, uint32_t value) {
  neap_rules rules = c->base(), before;
  neap_error error = {0};
  set_field(&rules, c->offset, value);
  before = rules;
  if (neap_rules_prepare(&rules, &error)) fail_msg("%s = %u is accepted", c->field, value);
  SAME_TEXT(error.field, c->field);
  SAME(error.value, value, "the error says what the value is");
  HOLDS(error.expected && error.expected[0], "the error says what would be right");
  HOLDS(value < error.min || value > error.max, "the error's range does not hold the value");
  SAME(error.max, c->max, "the error says the range");
  SAME(memcmp(&rules, &before, sizeof rules), 0, "a failed prepare changes nothing");
}

static void every_range(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(range_cases); i++) {
    const range_case *c = &range_cases[i];
    check_accepted(c, c->min);
    check_accepted(c, c->min + 1);
    check_accepted(c, c->max - 1);
    check_accepted(c, c->max);
    check_refused(c, c->max + 1);
    check_refused(c, UINT32_MAX);
    if (c->min > 1) check_refused(c, c->min - 1);
  }
}

/* For these, 0 is not "off" or "derive it". */
static void zero_is_refused_where_it_means_nothing(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(range_cases); i++) {
    const range_case *c = &range_cases[i];
    bool derived = strcmp(c->field, "max_cooldown_ms") == 0 || strcmp(c->field, "lease_ms") == 0;
    if (c->min > 0 && !derived) check_refused(c, 0);
  }
}

static void enums_have_no_other_values(void **unused) {
  (void)unused;
  neap_error error;
  for (unsigned i = 0; i < 4; i++) {
    neap_rules rules = wide_rules();
    if (i % 2) {
      rules.window = (neap_window_kind)(i < 2 ? 2 : -1);
      assert_false(neap_rules_prepare(&rules, &error));
      SAME_TEXT(error.field, "window");
    } else {
      rules.mode = (neap_mode)(i < 2 ? 4 : -1);
      assert_false(neap_rules_prepare(&rules, &error));
      SAME_TEXT(error.field, "mode");
    }
  }
}

/* ---- Combinations ---- */

typedef struct combination {
  const char *because;
  const char *field; /* the one that the error names, or NULL: accepted */
  void (*change)(neap_rules *r);
} combination;

static void no_trip_rule(neap_rules *r) { r->failures = 0; }
static void only_consecutive(neap_rules *r) {
  r->failures = 0;
  r->consecutive_failures = 1;
}
static void only_failure_rate(neap_rules *r) {
  r->failures = 0;
  r->failure_rate = 1;
}
static void only_slow_rate(neap_rules *r) {
  r->failures = 0;
  r->slow_rate = 1;
  r->slow_call_ms = 1;
}
static void only_function(neap_rules *r) {
  r->failures = 0;
  r->trip_by_function = true;
}
static void slow_rate_without_slow_call(neap_rules *r) { r->slow_rate = 500000; }
static void slow_call_without_slow_rate(neap_rules *r) { r->slow_call_ms = 100; }
static void max_below_cooldown(neap_rules *r) {
  r->cooldown_ms = 2000;
  r->max_cooldown_ms = 1999;
}
static void max_at_cooldown(neap_rules *r) {
  r->cooldown_ms = 2000;
  r->max_cooldown_ms = 2000;
}
static void successes_above_probes(neap_rules *r) {
  r->probes = 3;
  r->successes = 4;
}
static void successes_at_probes(neap_rules *r) {
  r->probes = 3;
  r->successes = 3;
}
static void lease_at_timeout(neap_rules *r) {
  r->timeout_ms = 500;
  r->lease_ms = 500;
}
static void lease_above_timeout(neap_rules *r) {
  r->timeout_ms = 500;
  r->lease_ms = 501;
}
static void day_with_jitter(neap_rules *r) {
  r->max_cooldown_ms = 72000000;
  r->jitter = 200000;
}
static void over_a_day_with_jitter(neap_rules *r) {
  r->max_cooldown_ms = 72000001;
  r->jitter = 200000;
}
static void half_a_day_doubled(neap_rules *r) {
  r->max_cooldown_ms = 43200000;
  r->jitter = NEAP_ONE;
}
static void over_half_a_day_doubled(neap_rules *r) {
  r->max_cooldown_ms = 43200001;
  r->jitter = NEAP_ONE;
}
static void minimum_above_count(neap_rules *r) {
  r->window = NEAP_WINDOW_COUNT;
  r->calls = 20;
  r->minimum_calls = 21;
}
static void minimum_at_count(neap_rules *r) {
  r->window = NEAP_WINDOW_COUNT;
  r->calls = 20;
  r->minimum_calls = 20;
}
static void minimum_above_calls_of_time(neap_rules *r) {
  r->calls = 20;
  r->minimum_calls = 21;
}

static const combination combinations[] = {
    {"at least one trip rule is needed", "failures", no_trip_rule},
    {"consecutive_failures is a trip rule", NULL, only_consecutive},
    {"failure_rate is a trip rule", NULL, only_failure_rate},
    {"slow_rate is a trip rule", NULL, only_slow_rate},
    {"a function is a trip rule", NULL, only_function},
    {"slow_rate needs to know what is slow", "slow_call_ms", slow_rate_without_slow_call},
    {"slow calls may be counted without a rule on them", NULL, slow_call_without_slow_rate},
    {"the longest cooldown is no shorter than the first", "max_cooldown_ms", max_below_cooldown},
    {"... and may be as long", NULL, max_at_cooldown},
    {"no more successes than probes", "successes", successes_above_probes},
    {"... but as many", NULL, successes_at_probes},
    {"a probe may not be lost before it times out", "lease_ms", lease_at_timeout},
    {"... but a millisecond later", NULL, lease_above_timeout},
    {"the longest cooldown, lengthened by the jitter, is a day", NULL, day_with_jitter},
    {"... and no longer", "max_cooldown_ms", over_a_day_with_jitter},
    {"a jitter of 1 doubles it", NULL, half_a_day_doubled},
    {"... and that is a day at most", "max_cooldown_ms", over_half_a_day_doubled},
    {"a minimum that the window can't hold", "minimum_calls", minimum_above_count},
    {"... one that it just can", NULL, minimum_at_count},
    {"a time window holds any number of calls", NULL, minimum_above_calls_of_time},
};

static void impossible_combinations(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(combinations); i++) {
    const combination *c = &combinations[i];
    neap_rules rules = wide_rules(), before;
    neap_error error = {0};
    c->change(&rules);
    before = rules;
    bool accepted = neap_rules_prepare(&rules, &error);
    SAME(accepted, c->field == NULL, c->because);
    if (accepted) continue;
    SAME_TEXT(error.field, c->field);
    HOLDS(error.expected && error.expected[0], c->because);
    SAME(memcmp(&rules, &before, sizeof rules), 0, "a failed prepare changes nothing");
  }
}

static void an_error_may_be_of_no_interest(void **unused) {
  (void)unused;
  neap_rules rules = neap_rules_default();
  assert_false(neap_rules_prepare(&rules, NULL));
  rules.failures = 1;
  assert_true(neap_rules_prepare(&rules, NULL));
}

/* ---- Defaults ---- */

static void the_defaults_are_those_of_the_header(void **unused) {
  (void)unused;
  neap_rules r = neap_rules_default();
  SAME(r.window, NEAP_WINDOW_TIME, "header");
  SAME(r.length_ms, 10000, "header");
  SAME(r.calls, 100, "header");
  SAME(r.failures + r.consecutive_failures + r.failure_rate + r.slow_rate, 0, "header");
  SAME(r.slow_call_ms, 0, "header");
  SAME(r.minimum_calls, 0, "header");
  SAME(r.trip_by_function, false, "header");
  SAME(r.cooldown_ms, 5000, "header");
  SAME(r.max_cooldown_ms, 0, "header");
  SAME(r.backoff, 2 * NEAP_ONE, "header");
  SAME(r.jitter, NEAP_ONE / 5, "header");
  SAME(r.probes, 3, "header");
  SAME(r.successes, 2, "header");
  SAME(r.concurrent, 1, "header");
  SAME(r.timeout_ms, 0, "header");
  SAME(r.lease_ms, 0, "header");
  SAME(r.decide_by_function, false, "header");
  SAME(r.mode, NEAP_AUTO, "header");
  SAME(r.count_refusals, true, "header");
}

typedef struct derived_case {
  neap_window_kind window;
  uint32_t calls, cooldown_ms, timeout_ms;
  uint32_t minimum_calls, max_cooldown_ms, lease_ms; /* what comes out */
} derived_case;

static const derived_case derived_cases[] = {
    {NEAP_WINDOW_TIME, 100, 5000, 0, 10, 60000, 30000},
    {NEAP_WINDOW_TIME, 5, 5000, 0, 10, 60000, 30000}, /* calls is the count window's */
    {NEAP_WINDOW_COUNT, 9, 60000, 1, 9, 60000, 2},
    {NEAP_WINDOW_COUNT, 10, 60001, 50, 10, 60001, 100},
    {NEAP_WINDOW_COUNT, 11, 59999, 1800000, 10, 60000, 3600000},
    {NEAP_WINDOW_COUNT, 1, 1, 1800001, 1, 60000, 3600000}, /* twice would be over the range */
    {NEAP_WINDOW_COUNT, 1024, 80000000, 3599999, 10, 80000000, 3600000},
};

static void what_is_left_out_is_derived(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(derived_cases); i++) {
    const derived_case *c = &derived_cases[i];
    neap_rules r = neap_rules_default();
    r.failure_rate = 500000;
    r.jitter = 0;
    r.window = c->window;
    r.calls = c->calls;
    r.cooldown_ms = c->cooldown_ms;
    r.timeout_ms = c->timeout_ms;
    prepare(&r);
    SAME(r.minimum_calls, c->minimum_calls, "10, or the calls of the window if fewer");
    SAME(r.max_cooldown_ms, c->max_cooldown_ms, "the longer of cooldown_ms and 60,000");
    SAME(r.lease_ms, c->lease_ms, "twice timeout_ms, or 30,000");
  }
}

static void preparing_twice_is_preparing_once(void **unused) {
  (void)unused;
  neap_rules r = wide_rules_slow();
  prepare(&r);
  neap_rules once = r;
  prepare(&r);
  SAME(memcmp(&r, &once, sizeof r), 0, "the same numbers");
  r.cooldown_ms = 7000;
  prepare(&r);
  SAME(neap_rules_cooldown_ms(&r, 1), 7000, "a change counts after the next prepare");
}

/* ---- Cooldowns ---- */

typedef struct cooldown_case {
  uint32_t cooldown_ms, max_ms, backoff, level;
  uint64_t want_ms;
} cooldown_case;

static const cooldown_case cooldown_cases[] = {
    {1000, 5000, 2000000, 1, 1000},        {1000, 5000, 2000000, 2, 2000},
    {1000, 5000, 2000000, 3, 4000},        {1000, 5000, 2000000, 4, 5000},
    {1000, 5000, 2000000, 31, 5000},       {1000, 5000, 1000000, 31, 1000},
    {1000, 5000, 1500000, 3, 2250},        {1, 86400000, 100000000, 2, 100},
    {1, 86400000, 100000000, 5, 86400000}, {86400000, 86400000, 100000000, 31, 86400000},
    {1000, 1000, 2000000, 2, 1000},        {1, 86400000, 2000000, 27, 67108864},
    {1, 86400000, 2000000, 28, 86400000},
};

static void cooldowns_grow_to_their_cap(void **unused) {
  (void)unused;
  for (size_t i = 0; i < COUNT_OF(cooldown_cases); i++) {
    const cooldown_case *c = &cooldown_cases[i];
    neap_rules r = wide_rules();
    r.cooldown_ms = c->cooldown_ms;
    r.max_cooldown_ms = c->max_ms;
    r.backoff = c->backoff;
    prepare(&r);
    SAME(neap_rules_cooldown_ms(&r, c->level), c->want_ms, "cooldown * backoff^(level - 1)");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("every number is accepted at and inside its range, refused outside", every_range),
      IT("0 is refused where it does not mean off or derive",
         zero_is_refused_where_it_means_nothing),
      IT("an enum has no other values than its own", enums_have_no_other_values),
      IT("impossible combinations are refused, their neighbours accepted", impossible_combinations),
      IT("the error may be of no interest", an_error_may_be_of_no_interest),
      IT("the defaults are those that the header tells", the_defaults_are_those_of_the_header),
      IT("what is left out is derived", what_is_left_out_is_derived),
      IT("preparing twice is preparing once", preparing_twice_is_preparing_once),
      IT("cooldowns grow to their cap", cooldowns_grow_to_their_cap),
  };
  return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
