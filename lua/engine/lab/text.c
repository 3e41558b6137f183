#include "text.h"

#define SECOND_US UINT64_C(1000000)

/* 9999-12-31: what is later is no time of a log's. */
#define LAST_US (UINT64_C(253402300800) * SECOND_US)

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

lab_text text_trim(lab_text t) {
  while (t.length && (unsigned char)t.data[0] <= ' ') t.data++, t.length--;
  while (t.length && (unsigned char)t.data[t.length - 1] <= ' ') t.length--;
  return t;
}

void text_excerpt(lab_text t, char *to, size_t size) {
  size_t n = 0;
  for (; n < t.length && n + 1 < size; n++)
    to[n] = t.data[n] >= ' ' && t.data[n] < 127 ? t.data[n] : '?';
  to[n] = '\0';
}

/* ---- Numbers --------------------------------------------------------------------------------- */

bool text_whole(lab_text t, uint64_t most, uint64_t *out) {
  uint64_t value = 0;
  if (!t.length || t.length > 19) return false;
  for (size_t i = 0; i < t.length; i++) {
    if (!is_digit(t.data[i])) return false;
    value = value * 10 + (uint64_t)(t.data[i] - '0');
  }
  *out = value;
  return value <= most;
}

static double power_of_ten(int exponent) {
  double power = 1;
  for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) power *= 10;
  return exponent < 0 ? 1 / power : power;
}

static bool read_exponent(const char **at, const char *end, int *out) {
  const char *c = *at + 1;
  bool negative = c < end && *c == '-';
  if (c < end && (*c == '-' || *c == '+')) c++;
  if (c == end) return false;
  int value = 0;
  for (; c < end && is_digit(*c); c++)
    if (value < 1000) value = value * 10 + (*c - '0');
  *at = c;
  *out = negative ? -value : value;
  return value <= 300;
}

/* The number at *at, which it moves behind it. */
static bool read_number(const char **at, const char *end, double *out, bool *has_fraction) {
  const char *c = *at, *begin = c;
  double value = 0;
  int scale = 0, exponent = 0;
  for (; c < end && is_digit(*c); c++) value = value * 10 + (*c - '0');
  bool has_digits = c > begin;
  *has_fraction = c < end && *c == '.';
  if (*has_fraction)
    for (c++; c < end && is_digit(*c); c++, scale--, has_digits = true)
      if (scale > -20) value += (*c - '0') * power_of_ten(scale - 1);
  if (!has_digits) return false;
  if (c < end && (*c == 'e' || *c == 'E')) {
    if (!read_exponent(&c, end, &exponent)) return false;
    *has_fraction = true;
    value *= power_of_ten(exponent);
  }
  *at = c;
  *out = value;
  return true;
}

bool text_number(lab_text t, double *out, bool *has_fraction) {
  const char *at = t.data, *end = t.data + t.length;
  bool negative = t.length && *at == '-';
  if (negative) at++;
  if (!t.length || !read_number(&at, end, out, has_fraction) || at != end) return false;
  if (negative) *out = -*out;
  return true;
}

/* ---- Durations ------------------------------------------------------------------------------- */

bool text_unit(lab_text t, lab_unit *out) {
  static const struct {
    lab_text name;
    lab_unit unit;
  } units[] = {
      {LAB_INIT("s"), UNIT_S},
      {LAB_INIT("sec"), UNIT_S},
      {LAB_INIT("secs"), UNIT_S},
      {LAB_INIT("second"), UNIT_S},
      {LAB_INIT("seconds"), UNIT_S},
      {LAB_INIT("ms"), UNIT_MS},
      {LAB_INIT("msec"), UNIT_MS},
      {LAB_INIT("millis"), UNIT_MS},
      {LAB_INIT("us"), UNIT_US},
      {LAB_INIT("usec"), UNIT_US},
      {LAB_INIT("micros"), UNIT_US},
      {LAB_INIT("\302\265s"), UNIT_US},
      {LAB_INIT("\316\274s"), UNIT_US},
      {LAB_INIT("ns"), UNIT_NS},
      {LAB_INIT("nsec"), UNIT_NS},
      {LAB_INIT("nanos"), UNIT_NS},
      {LAB_INIT("milliseconds"), UNIT_MS},
      {LAB_INIT("microseconds"), UNIT_US},
      {LAB_INIT("nanoseconds"), UNIT_NS},
  };
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (text_is(t, units[i].name)) return *out = units[i].unit, true;
  return false;
}

static const double us_of_unit[] = {
    [UNIT_GUESS] = 1000, [UNIT_S] = 1e6, [UNIT_MS] = 1e3, [UNIT_US] = 1, [UNIT_NS] = 1e-3};

bool text_duration(lab_text t, lab_unit unit, uint64_t *out_us) {
  const char *at = t.data, *end = t.data + t.length;
  double value;
  bool has_fraction;
  if (!t.length || !read_number(&at, end, &value, &has_fraction)) return false;
  if (at != end && !text_unit(text_trim((lab_text){at, (size_t)(end - at)}), &unit)) return false;
  if (unit == UNIT_GUESS && has_fraction) unit = UNIT_S;
  double us = value * us_of_unit[unit] + 0.5;
  if (!(us < 1e15)) return false;
  *out_us = (uint64_t)us;
  return true;
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* Days since 1970 of a date of the Gregorian calendar, by 400 years of 146,097 days: March is the
 * first month, so that the odd day comes last. */
static int64_t days_of(int year, int month, int day) {
  year -= month <= 2;
  int era = year / 400, year_of_era = year - era * 400;
  int day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  int day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return (int64_t)era * 146097 + day_of_era - 719468;
}

static bool digits(const char *at, int count, int *out) {
  int value = 0;
  for (int i = 0; i < count; i++) {
    if (!is_digit(at[i])) return false;
    value = value * 10 + (at[i] - '0');
  }
  *out = value;
  return true;
}

typedef struct moment {
  int year, month, day, hour, minute, second;
} moment;

static bool moment_us(const moment *m, int zone_minutes, uint64_t *out_us) {
  bool fits = m->year >= 1970 && m->month >= 1 && m->month <= 12 && m->day >= 1 && m->day <= 31 &&
              m->hour <= 23 && m->minute <= 59 && m->second <= 60;
  if (!fits) return false;
  int64_t s = ((days_of(m->year, m->month, m->day) * 24 + m->hour) * 60 + m->minute) * 60;
  s += m->second - (int64_t)zone_minutes * 60;
  if (s < 0) return false;
  *out_us = (uint64_t)s * SECOND_US;
  return true;
}

/* "+02:00", "-0700", "Z", or nothing: all that is left. */
static bool read_zone(const char *at, const char *end, int *minutes) {
  *minutes = 0;
  if (at < end && *at == ' ') at++;
  if (at == end || (end - at == 1 && (*at == 'Z' || *at == 'z'))) return true;
  if (end - at == 3 && memcmp(at, "UTC", 3) == 0) return true;
  int sign = *at == '+' ? 1 : -1, hours, rest = 0;
  if (*at != '+' && *at != '-') return false;
  if (end - at < 3 || !digits(at + 1, 2, &hours)) return false;
  at += 3;
  if (at < end && *at == ':') at++;
  if (at < end && (end - at != 2 || !digits(at, 2, &rest))) return false;
  *minutes = sign * (hours * 60 + rest);
  return hours <= 15 && rest <= 59;
}

static int month_of(const char *name) {
  static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
  for (int i = 0; i < 12; i++)
    if (memcmp(names + (ptrdiff_t)3 * i, name, 3) == 0) return i + 1;
  return 0;
}

/* Its digits behind the point, as microseconds; moves *at behind them. */
static uint64_t read_fraction(const char **at, const char *end) {
  const char *c = *at;
  uint64_t us = 0, unit = SECOND_US / 10;
  if (c == end || (*c != '.' && *c != ',')) return 0;
  for (c++; c < end && is_digit(*c); c++, unit /= 10) us += unit * (uint64_t)(*c - '0');
  *at = c;
  return us;
}

/* "10/Oct/2000:13:55:36": 20 letters */
static bool read_clf(const char *at, moment *m) {
  m->month = month_of(at + 3);
  return at[2] == '/' && at[6] == '/' && at[11] == ':' && at[14] == ':' && at[17] == ':' &&
         m->month && digits(at, 2, &m->day) && digits(at + 7, 4, &m->year) &&
         digits(at + 12, 2, &m->hour) && digits(at + 15, 2, &m->minute) &&
         digits(at + 18, 2, &m->second);
}

/* "2000-10-10T13:55:36": 19 letters */
static bool read_rfc3339(const char *at, moment *m) {
  bool has_t = at[10] == 'T' || at[10] == 't' || at[10] == ' ';
  return at[4] == '-' && at[7] == '-' && has_t && at[13] == ':' && at[16] == ':' &&
         digits(at, 4, &m->year) && digits(at + 5, 2, &m->month) && digits(at + 8, 2, &m->day) &&
         digits(at + 11, 2, &m->hour) && digits(at + 14, 2, &m->minute) &&
         digits(at + 17, 2, &m->second);
}

static bool read_date(lab_text t, uint64_t *out_us, bool *is_coarse) {
  const char *end = t.data + t.length, *at;
  moment m;
  int zone;
  if (t.length >= 20 && read_clf(t.data, &m))
    at = t.data + 20;
  else if (t.length >= 19 && read_rfc3339(t.data, &m))
    at = t.data + 19;
  else
    return false;
  const char *fraction = at;
  uint64_t us = read_fraction(&at, end);
  *is_coarse = at == fraction;
  if (!read_zone(at, end, &zone) || !moment_us(&m, zone, out_us)) return false;
  *out_us += us;
  return true;
}

static bool read_epoch(lab_text t, lab_unit unit, uint64_t *out_us, bool *is_coarse) {
  const char *at = t.data, *end = t.data + t.length;
  double whole;
  bool has_fraction;
  uint64_t n = 0, us;
  for (; at < end && is_digit(*at); at++) {
    if (n > UINT64_MAX / 10 - 9) return false;
    n = n * 10 + (uint64_t)(*at - '0');
  }
  if (unit == UNIT_GUESS)
    unit = n < 100000000000         ? UNIT_S
           : n < 100000000000000    ? UNIT_MS
           : n < 100000000000000000 ? UNIT_US
                                    : UNIT_NS;
  if (at == t.data || (unit != UNIT_NS && n > LAST_US / (uint64_t)us_of_unit[unit])) return false;
  us = unit == UNIT_NS ? n / 1000 : n * (uint64_t)us_of_unit[unit];
  *is_coarse = unit == UNIT_S && at == end;
  if (at < end && *at == '.') {
    const char *fraction = at;
    if (!read_number(&fraction, end, &whole, &has_fraction) || fraction != end) return false;
    us += (uint64_t)(whole * us_of_unit[unit] + 0.5);
    at = end;
  }
  *out_us = us;
  return at == end;
}

/* The same second as before: only what is behind it differs. */
static bool is_known(const lab_timer *timer, lab_text t) {
  return timer->length && t.length == timer->length && memcmp(timer->text, t.data, t.length) == 0;
}

bool text_time(lab_timer *timer, lab_text t, lab_unit unit, uint64_t *out_us, bool *is_coarse) {
  if (is_known(timer, t)) {
    *out_us = timer->second_us;
    *is_coarse = true;
    return true;
  }
  t = text_trim(t);
  if (t.length && t.data[0] == '[') t.data++, t.length--;
  if (t.length && t.data[t.length - 1] == ']') t.length--;
  if (!t.length) return false;
  bool ok = read_date(t, out_us, is_coarse);
  if (!ok) return read_epoch(t, unit, out_us, is_coarse) && *out_us < LAST_US;
  if (*out_us >= LAST_US) return false;
  if (*is_coarse && t.length <= sizeof timer->text) {
    memcpy(timer->text, t.data, t.length);
    timer->length = t.length;
    timer->second_us = *out_us;
  }
  return true;
}
