/* detect.c: which format a log has, by its first lines. */
#include "reader_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOKED ((size_t)64 << 10) /* bytes */
#define LINES  20                 /* of which one has to be of the format */

#define SAMPLED     200  /* lines, for the unit of durations */
#define SAMPLE_LINE 8192 /* longer ones are not looked at */

static const struct {
  const char *name, *what;
} formats[FORMAT_COUNT] = {
    [FORMAT_AUTO] = {"auto", ""},
    [FORMAT_COMBINED] = {"combined", "access log"},
    [FORMAT_TEMPLATE] = {"template", "by --log-format"},
    [FORMAT_JSON] = {"json", "JSON lines"},
    [FORMAT_CSV] = {"csv", "CSV"},
    [FORMAT_HAR] = {"har", "HAR"},
    [FORMAT_RECORDING] = {"recording", "neap's recording"},
};

const char *lab_format_name(lab_format format) { return formats[format].name; }

bool lab_format_of(lab_text name, lab_format *out) {
  for (int i = 0; i < FORMAT_COUNT; i++)
    if (text_is(name, (lab_text){formats[i].name, strlen(formats[i].name)}))
      return *out = (lab_format)i, true;
  return false;
}

/* The first first. */
static const struct {
  const char *what, *format;
} access_logs[] = {
    {"access log, combined with the host in front",
     "$host $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent "
     "\"$http_referer\" \"$http_user_agent\""},
    {"access log, combined",
     "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent "
     "\"$http_referer\" \"$http_user_agent\""},
    {"access log, common with the host in front",
     "$host $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent"},
    {"access log, common",
     "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent"},
};

/* ---- Looking at lines ------------------------------------------------------------------------ */

typedef struct sample {
  char *at, *end;
} sample;

/* The next line that is not blank. */
static bool sample_next(sample *s, lab_text *line) {
  while (s->at < s->end) {
    char *feed = memchr(s->at, '\n', (size_t)(s->end - s->at)), *to = feed ? feed : s->end;
    *line = text_trim((lab_text){s->at, (size_t)(to - s->at)});
    s->at = feed ? feed + 1 : s->end;
    if (line->length) return true;
  }
  return false;
}

/* Without what a template has at its end, more may follow: nginx's own log_format is often combined
 * with something behind it. */
static bool fits(lab_reader *r, sample s) {
  lab_text line;
  for (int i = 0; i < LINES && sample_next(&s, &line); i++) {
    lab_fields f;
    lab_calls calls;
    memset(&f, 0, sizeof f);
    if (template_read(&r->pattern, line, &f) == LAB_FINE &&
        fields_calls(&f, &r->names, &r->timer, &calls) == LAB_FINE)
      return true;
  }
  return false;
}

static bool detect_access_log(lab_reader *r, sample s) {
  char error[128];
  for (size_t i = 0; i < sizeof access_logs / sizeof *access_logs; i++) {
    lab_text format = {access_logs[i].format, strlen(access_logs[i].format)};
    if (!template_make(&r->pattern, format, &r->names, error, sizeof error)) continue;
    r->pattern.is_open = true;
    if (!fits(r, s)) continue;
    snprintf(r->what, sizeof r->what, "%s", access_logs[i].what);
    return true;
  }
  return false;
}

static bool has_text(lab_text line, const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i + length <= line.length; i++)
    if (memcmp(line.data + i, text, length) == 0) return true;
  return false;
}

/* {"log":{ */
static bool is_har(sample s) {
  static const char begin[] = "{\"log\":{";
  size_t i = 0;
  for (; s.at < s.end && begin[i]; s.at++) {
    if ((unsigned char)*s.at <= ' ') continue;
    if (*s.at != begin[i++]) return false;
  }
  return !begin[i];
}

/* The first lines may be cut, as of a log that was rotated in the middle of one. */
static bool detect_json(lab_reader *r, sample s) {
  lab_text line;
  for (int i = 0; i < LINES && sample_next(&s, &line); i++) {
    if (line.data[0] != '{') continue;
    if (has_text(line, "\"response_flags\"") && has_text(line, "\"response_code\"")) {
      snprintf(r->what, sizeof r->what, "JSON lines, Envoy's");
      r->names.unit = UNIT_MS;
    }
    return true;
  }
  return false;
}

static lab_format detect(lab_reader *r, sample s) {
  lab_text line;
  sample first = s;
  if (!sample_next(&first, &line)) return FORMAT_AUTO;
  if (has_text((lab_text){line.data, line.length < sizeof RECORDING_MAGIC ? line.length
                                                                          : sizeof RECORDING_MAGIC},
               RECORDING_MAGIC))
    return FORMAT_RECORDING;
  if (is_har(s)) return FORMAT_HAR;
  if (detect_json(r, s)) return FORMAT_JSON;
  if (detect_access_log(r, s)) return FORMAT_COMBINED;
  char copy[4096];
  size_t length = line.length < sizeof copy ? line.length : sizeof copy;
  memcpy(copy, line.data, length);
  return row_head(&r->row, &r->names, copy, length) >= 2 ? FORMAT_CSV : FORMAT_AUTO;
}

/* ---- Getting ready --------------------------------------------------------------------------- */

static bool fail(char *error, size_t size, const char *shown, const char *what, lab_text line) {
  char excerpt[61];
  text_excerpt(line, excerpt, sizeof excerpt);
  snprintf(error, size, line.length ? "%s: %s: %s" : "%s: %s%s", shown, what, excerpt);
  return false;
}

static bool begin_csv(lab_reader *r, const char *shown, char *error, size_t size) {
  char *line;
  size_t length;
  lab_text none = {"", 0};
  while (input_line(r->in, &line, &length) == GOT_LINE) {
    r->line++;
    if (!text_trim((lab_text){line, length}).length) continue;
    char copy[61];
    size_t kept = length < sizeof copy ? length : sizeof copy;
    memcpy(copy, line, kept);
    if (row_head(&r->row, &r->names, line, length)) return true;
    return fail(
        error, size, shown,
        "no column is known; say --map time=COLUMN and --map status=COLUMN. The first row is",
        (lab_text){copy, kept});
  }
  return fail(error, size, shown, "is empty", none);
}

static bool begin_recording(lab_reader *r, const char *shown, char *error, size_t size) {
  char *line;
  size_t length;
  const char *why = "is no recording of neap serve --record";
  bool has_line = input_line(r->in, &line, &length) == GOT_LINE;
  const size_t magic = sizeof RECORDING_MAGIC - 1;
  if (has_line && length >= magic && memcmp(line, RECORDING_MAGIC, magic) == 0)
    why = recording_head((lab_text){line, length});
  if (why) {
    snprintf(error, size, "%s: %s", shown, why);
    return false;
  }
  r->line++;
  r->recording = recording_new();
  return true;
}

/* In a HAR file time is how long it took. */
static bool begin_har(lab_reader *r) {
  return names_map(&r->names, LAB_TEXT("time"), LAB_DURATION, UNIT_MS);
}

static bool begin_template(lab_reader *r, lab_text format, char *error, size_t size) {
  char why[160];
  if (format.data && template_make(&r->pattern, format, &r->names, why, sizeof why)) return true;
  snprintf(error, size, "--log-format %s", format.data ? why : "is needed for --format template");
  return false;
}

static bool begin_format(lab_reader *r, const lab_options *options, const char *shown, char *error,
                         size_t size) {
  switch (r->format) {
    case FORMAT_TEMPLATE: return begin_template(r, options->log_format, error, size);
    case FORMAT_CSV: return begin_csv(r, shown, error, size);
    case FORMAT_RECORDING: return begin_recording(r, shown, error, size);
    case FORMAT_HAR: return begin_har(r);
    default: return true;
  }
}

bool reader_detect(lab_reader *r, const lab_options *options, const char *shown, char *error,
                   size_t size) {
  char *bytes;
  size_t n = input_peek(r->in, LOOKED, &bytes);
  sample s = {bytes, bytes + n};
  lab_text line = {"", 0};
  bool is_given = options->format != FORMAT_AUTO;
  if (!sample_next(&(sample){bytes, bytes + n}, &line))
    return fail(error, size, shown, "is empty", line);
  r->format = options->format;
  if (!is_given && options->log_format.data) r->format = FORMAT_TEMPLATE;
  if (r->format == FORMAT_AUTO) r->format = detect(r, s);
  if (r->format == FORMAT_AUTO && line.data[0] == '[')
    return fail(error, size, shown,
                "is a JSON list: an object a line is needed, as of jq -c '.[]' FILE",
                (lab_text){"", 0});
  if (r->format == FORMAT_AUTO)
    return fail(error, size, shown,
                "of no format that is known; see --format and --log-format. Line 1 is", line);
  if (r->format == FORMAT_COMBINED && is_given && !detect_access_log(r, s))
    return fail(error, size, shown, "is no access log, common or combined. Line 1 is", line);
  if (!r->what[0]) snprintf(r->what, sizeof r->what, "%s", formats[r->format].what);
  return begin_format(r, options, shown, error, size);
}

/* ---- A unit that no name tells --------------------------------------------------------------- */

/* With a point in any of them they are seconds, unless one would be more than a minute. */
static void guess_unit(lab_reader *r, sample s) {
  lab_text line;
  double most = 0;
  bool has_any = false, has_point = false;
  for (int i = 0; i < SAMPLED && sample_next(&s, &line) && line.length < SAMPLE_LINE; i++) {
    char copy[SAMPLE_LINE];
    lab_fields f;
    double value;
    bool has_fraction;
    memset(&f, 0, sizeof f);
    memcpy(copy, line.data, line.length);
    if (reader_fields(r, copy, line.length, &f) != LAB_FINE) continue;
    lab_text t = f.value[LAB_DURATION];
    if (text_is_none(t) || f.unit[LAB_DURATION] != UNIT_GUESS) continue;
    if (!text_number(t, &value, &has_fraction)) continue; /* it says its unit itself */
    has_any = true;
    has_point = has_point || has_fraction;
    if (value > most) most = value;
  }
  if (!has_any) return;
  r->guessed = has_point && most <= 60 ? UNIT_S : UNIT_MS;
  r->names.unit = r->guessed;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static lab_reader *begin(lab_input *in, const lab_options *options, const char *shown, char *error,
                         size_t size) {
  if (!in) return NULL;
  lab_reader *r = calloc(1, sizeof *r);
  if (!r) abort();
  r->in = in;
  r->names = *options->names;
  if (!reader_detect(r, options, shown, error, size)) return reader_close(r), NULL;
  char *bytes;
  size_t n = input_peek(in, LOOKED, &bytes);
  bool is_lines = r->format != FORMAT_RECORDING && r->format != FORMAT_HAR;
  if (is_lines && r->names.unit == UNIT_GUESS) guess_unit(r, (sample){bytes, bytes + n});
  return r;
}

lab_reader *reader_open(const char *path, const lab_options *options, char *error, size_t size) {
  const char *shown = strcmp(path, "-") == 0 ? "standard input" : path;
  return begin(input_open(path, error, size), options, shown, error, size);
}

lab_reader *reader_memory(const void *bytes, size_t length, const lab_options *options, char *error,
                          size_t size) {
  return begin(input_memory(bytes, length), options, "memory", error, size);
}
