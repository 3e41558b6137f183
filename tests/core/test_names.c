/* The texts of the enums, and the lists that the header spells as X-macros. */
#include "support.h"

typedef struct text_case {
  const char *got, *want;
} text_case;

static void names_are_those_of_the_header(void **unused) {
  (void)unused;
  const text_case cases[] = {
      {neap_state_name(NEAP_CLOSED), "closed"},
      {neap_state_name(NEAP_HALF_OPEN), "half_open"},
      {neap_state_name(NEAP_OPEN), "open"},
      {neap_mode_name(NEAP_AUTO), "auto"},
      {neap_mode_name(NEAP_FORCED_OPEN), "forced_open"},
      {neap_mode_name(NEAP_FORCED_CLOSED), "forced_closed"},
      {neap_mode_name(NEAP_SHADOW), "shadow"},
      {neap_verdict_name(NEAP_ALLOW), "allow"},
      {neap_verdict_name(NEAP_REFUSE_OPEN), "open"},
      {neap_verdict_name(NEAP_REFUSE_PROBES), "probes_busy"},
      {neap_verdict_name(NEAP_REFUSE_FORCED), "forced_open"},
      {neap_verdict_name(NEAP_REFUSE_RAMP), "ramp"},
      {neap_cause_name(NEAP_BY_FAILURES), "failures"},
      {neap_cause_name(NEAP_BY_FAILURE_RATE), "failure_rate"},
      {neap_cause_name(NEAP_BY_SLOW_RATE), "slow_rate"},
      {neap_cause_name(NEAP_BY_CONSECUTIVE), "consecutive_failures"},
      {neap_cause_name(NEAP_BY_FUNCTION), "function"},
      {neap_cause_name(NEAP_BY_COOLDOWN), "cooldown"},
      {neap_cause_name(NEAP_BY_PROBES), "probes"},
      {neap_cause_name(NEAP_BY_PROBE_LOST), "probe_lost"},
      {neap_cause_name(NEAP_BY_RESET), "reset"},
      {neap_cause_name(NEAP_BY_TRIP), "trip"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) SAME_TEXT(cases[i].got, cases[i].want);
}

static void the_three_ways_in_have_three_names(void **unused) {
  (void)unused;
  const char *allow = neap_verdict_name(NEAP_ALLOW);
  const char *probe = neap_verdict_name(NEAP_ALLOW_PROBE);
  const char *bypass = neap_verdict_name(NEAP_ALLOW_BYPASS);
  assert_non_null(probe);
  assert_non_null(bypass);
  assert_string_not_equal(allow, probe);
  assert_string_not_equal(allow, bypass);
  assert_string_not_equal(probe, bypass);
}

static void every_status_is_a_sentence_of_its_own(void **unused) {
  (void)unused;
  const neap_status all[] = {NEAP_OK, NEAP_EFULL, NEAP_ENAME, NEAP_ERANGE, NEAP_EMEMORY};
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    const char *text = neap_status_text(all[i]);
    HOLDS(text && text[0], "a text");
    for (size_t k = 0; k < i; k++) assert_string_not_equal(text, neap_status_text(all[k]));
  }
}

static void a_value_from_elsewhere_has_a_text_too(void **unused) {
  (void)unused;
  HOLDS(neap_state_name((neap_state)99), "not NULL");
  HOLDS(neap_mode_name((neap_mode)99), "not NULL");
  HOLDS(neap_verdict_name((neap_verdict)99), "not NULL");
  HOLDS(neap_cause_name((neap_cause)99), "not NULL");
  HOLDS(neap_status_text((neap_status)99), "not NULL");
  HOLDS(neap_cause_name(NEAP_BY_NOTHING), "not NULL");
}

static void the_transitions_are_as_many_as_said(void **unused) {
  (void)unused;
#define ONE(from, to, cause) +1
  SAME(0 NEAP_TRANSITIONS(ONE), NEAP_TRANSITION_KINDS, "the list and its length agree");
#undef ONE
}

static void no_transition_is_listed_twice(void **unused) {
  (void)unused;
#define ROW(from, to, cause) {NEAP_##from, NEAP_##to, NEAP_BY_##cause},
  const unsigned rows[][3] = {NEAP_TRANSITIONS(ROW)};
#undef ROW
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    for (size_t k = 0; k < i; k++)
      HOLDS(memcmp(rows[i], rows[k], sizeof rows[i]) != 0, "each once");
}

static void the_duration_bounds_ascend(void **unused) {
  (void)unused;
  for (size_t i = 1; i < NEAP_DURATION_BUCKETS - 1; i++)
    HOLDS(neap_duration_bounds_ms[i - 1] < neap_duration_bounds_ms[i], "each bound is higher");
}

static void the_version_is_written_once(void **unused) {
  (void)unused;
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", NEAP_VERSION_MAJOR, NEAP_VERSION_MINOR,
           NEAP_VERSION_PATCH);
  SAME_TEXT(NEAP_VERSION, text);
  SAME_TEXT(neap_version(), text);
}

static void a_breaker_is_a_kilobyte_on_its_own_lines(void **unused) {
  (void)unused;
  SAME(sizeof(neap_breaker), 1024, "design §4");
  SAME(_Alignof(neap_breaker), 64, "design §4");
  SAME(sizeof(neap_permit), 8, "a permit is one word");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT("names are those of the header", names_are_those_of_the_header),
      IT("the three ways to be let in have three names", the_three_ways_in_have_three_names),
      IT("every status is a sentence of its own", every_status_is_a_sentence_of_its_own),
      IT("a value from elsewhere has a text too", a_value_from_elsewhere_has_a_text_too),
      IT("there are as many transitions as said", the_transitions_are_as_many_as_said),
      IT("no transition is listed twice", no_transition_is_listed_twice),
      IT("the duration bounds ascend", the_duration_bounds_ascend),
      IT("the version is written once", the_version_is_written_once),
      IT("a breaker is a kilobyte on cache lines of its own",
         a_breaker_is_a_kilobyte_on_its_own_lines),
  };
  return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
