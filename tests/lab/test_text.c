/* Times, durations and numbers as logs write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "text.h"

static lab_text text_of(const char *text) { return (lab_text){text, strlen(text)}; }

#define SECOND UINT64_C(1000000)

static void times_are_read_as_logs_write_them(void **unused) {
  (void)unused;
  static const struct {
    const char *text;
    lab_unit unit;
    uint64_t us;
    bool is_coarse;
  } times[] = {
      {"10/Oct/2000:13:55:36 -0700", UNIT_GUESS, 971211336 * SECOND, true},
      {"[10/Oct/2000:13:55:36 -0700]", UNIT_GUESS, 971211336 * SECOND, true},
      {"10/Oct/2000:20:55:36.250 +0000", UNIT_GUESS, 971211336 * SECOND + 250000, false},
      {"29/Feb/2024:00:00:00 +0000", UNIT_GUESS, 1709164800 * SECOND, true},
      {"01/Jan/1970:00:00:00 +0000", UNIT_GUESS, 0, true},
      {"2000-10-10T20:55:36Z", UNIT_GUESS, 971211336 * SECOND, true},
      {"2000-10-10T20:55:36", UNIT_GUESS, 971211336 * SECOND, true},
      {"2000-10-10 20:55:36,5", UNIT_GUESS, 971211336 * SECOND + 500000, false},
      {"2000-10-10T22:55:36.123456789+02:00", UNIT_GUESS, 971211336 * SECOND + 123456, false},
      {"2000-10-10T13:55:36.1-0700", UNIT_GUESS, 971211336 * SECOND + 100000, false},
      {"2000-10-11T02:25:36+05:30", UNIT_GUESS, 971211336 * SECOND, true},
      {"971211336", UNIT_GUESS, 971211336 * SECOND, true},
      {"971211336.123", UNIT_GUESS, 971211336 * SECOND + 123000, false},
      {"971211336123", UNIT_GUESS, 971211336 * SECOND + 123000, false},
      {"971211336123456", UNIT_GUESS, 971211336 * SECOND + 123456, false},
      {"971211336123456789", UNIT_GUESS, 971211336 * SECOND + 123456, false},
      {"971211336", UNIT_MS, 971211336 * UINT64_C(1000), false},
      {"971211336123.75", UNIT_MS, 971211336 * SECOND + 123750, false},
      {" 971211336 ", UNIT_GUESS, 971211336 * SECOND, true},
  };
  lab_timer timer = {.length = 0};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    for (int again = 0; again < 2; again++) { /* the second time it is remembered */
      uint64_t us = 1;
      bool is_coarse = false;
      print_message("%s\n", times[i].text);
      assert_true(text_time(&timer, text_of(times[i].text), times[i].unit, &us, &is_coarse));
      assert_int_equal(us, times[i].us);
      assert_int_equal(is_coarse, times[i].is_coarse);
    }
}

static void what_is_no_time_is_none(void **unused) {
  (void)unused;
  static const char *const texts[] = {
      "",
      "-",
      "[]",
      "yesterday",
      "10/Okt/2000:13:55:36 -0700",
      "32/Oct/2000:13:55:36 -0700",
      "10/Oct/2000:24:00:00 -0700",
      "10/Oct/2000:13:55:36 CEST",
      "10/Oct/2000:13:55",
      "2000-13-10T20:55:36Z",
      "2000-10-10T20:55Z",
      "2000-10-10T20:55:36.Zulu",
      "1969-12-31T23:59:59Z",
      "-971211336",
      "9712113361234567890123",
      "99999999999999999999",
      "971211336x",
      "0x39E2C4C8",
      "1e9",
  };
  lab_timer timer = {.length = 0};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    uint64_t us;
    bool is_coarse;
    bool is_time = text_time(&timer, text_of(texts[i]), UNIT_GUESS, &us, &is_coarse);
    if (is_time) print_error("%s is %llu\n", texts[i], (unsigned long long)us);
    assert_false(is_time);
  }
}

static void durations_have_units(void **unused) {
  (void)unused;
  static const struct {
    const char *text;
    lab_unit unit;
    uint64_t us;
  } durations[] = {
      {"12", UNIT_GUESS, 12000},
      {"0.012", UNIT_GUESS, 12000},
      {"12", UNIT_S, 12 * SECOND},
      {"0.0005", UNIT_S, 500},
      {"12", UNIT_US, 12},
      {"12499", UNIT_NS, 12},
      {"12ms", UNIT_S, 12000},
      {"1.5 s", UNIT_MS, 1500000},
      {"250us", UNIT_GUESS, 250},
      {"250\302\265s", UNIT_S, 250},
      {"3sec", UNIT_GUESS, 3 * SECOND},
      {"1e-3", UNIT_S, 1000},
      {"0", UNIT_GUESS, 0},
      {".5", UNIT_S, 500000},
      {"5.", UNIT_S, 5 * SECOND},
  };
  static const char *const none[] = {"",    "-",   "ms",    "-5",   "12 parsecs",
                                     "1,5", "nan", "1e400", "12ms!"};
  uint64_t us;
  for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
    print_message("%s\n", durations[i].text);
    assert_true(text_duration(text_of(durations[i].text), durations[i].unit, &us));
    assert_int_equal(us, durations[i].us);
  }
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    print_message("%s\n", none[i]);
    assert_false(text_duration(text_of(none[i]), UNIT_GUESS, &us));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(times_are_read_as_logs_write_them),
      cmocka_unit_test(what_is_no_time_is_none),
      cmocka_unit_test(durations_have_units),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
