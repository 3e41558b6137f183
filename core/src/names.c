#include "machine.h"

uint32_t neap_abi(void) { return NEAP_ABI; }
const char *neap_version(void) { return NEAP_VERSION; }

/* ARRAY[index], or "?" for what is none of ours. */
#define NAME_OF(names, index)                                                                      \
  ((size_t)(index) < sizeof(names) / sizeof *(names) ? (names)[(size_t)(index)] : "?")

const char *neap_state_name(neap_state state) {
  static const char *const names[] = {"closed", "half_open", "open"};
  return NAME_OF(names, state);
}

const char *neap_mode_name(neap_mode mode) {
  static const char *const names[] = {"auto", "forced_open", "forced_closed", "shadow"};
  return NAME_OF(names, mode);
}

const char *neap_verdict_name(neap_verdict verdict) {
  static const char *const names[] = {"allow",       "probe",       "bypass", "open",
                                      "probes_busy", "forced_open", "ramp"};
  return NAME_OF(names, verdict);
}

const char *neap_cause_name(neap_cause cause) {
  static const char *const names[] = {
      "none",     "failures", "failure_rate", "slow_rate",  "consecutive_failures",
      "function", "cooldown", "probes",       "probe_lost", "reset",
      "trip"};
  return NAME_OF(names, cause);
}

const char *neap_status_text(neap_status status) {
  static const char *const texts[] = {
      "ok",
      "the panel is full",
      "a breaker's name must have 1 to 103 bytes and no zero byte",
      "a number is outside its range",
      "the memory is too small, or not aligned to 64 bytes",
  };
  return NAME_OF(texts, status);
}

const char *neap_breaker_name(const neap_breaker *breaker) {
  const neap__breaker *b = breaker_of(breaker);
  const char *name = (const char *)(uintptr_t)b->name;
  bool has_end = name[NEAP_NAME_MAX] == 0; /* not so if a shared panel was written over */
  return word_load(&b->name[0]) && has_end ? name : "";
}
