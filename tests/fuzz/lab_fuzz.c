/* lab_fuzz.c: any bytes as a log, of each format and of whichever is found out, through a breaker.
 *
 * The first byte says how it is read.  Nothing may crash, hang, or read what is not there; every call
 * has texts that can be read, and a lane has done with each call it was given. */
#include <assert.h>
#include <string.h>

#include "format.h"
#include "lane.h"
#include "reader.h"

static unsigned sink;

/* Each byte is looked at, for AddressSanitizer. */
static void look(lab_text t) {
  for (size_t i = 0; i < t.length; i++) sink += (unsigned char)t.data[i];
}

static void look_at(const lab_call *c) {
  look(c->method);
  look(c->target);
  look(c->host);
  look(c->error);
  look(c->code);
  look(c->policy);
  look(c->key);
  look(c->upstream);
  assert(c->headers <= LAB_HEADERS);
  for (size_t i = 0; i < c->headers; i++) {
    look(c->header[i].name);
    look(c->header[i].value);
  }
  assert(c->status >= 0 && c->status <= 999);
}

static void on_moved(void *data, uint32_t key, uint64_t at_ms, const neap_transition *moved) {
  uint64_t *last_ms = data;
  (void)key;
  assert(at_ms >= *last_ms && moved->cause != NEAP_BY_NOTHING);
  *last_ms = at_ms;
}

static void replay(lab_reader **readers, size_t count) {
  uint64_t last_ms = 0, calls = 0;
  lab_stats stats = {0};
  neap_rules rules = neap_rules_default();
  rules.failures = 2;
  rules.slow_rate = NEAP_ONE / 2;
  rules.slow_call_ms = 100;
  rules.minimum_calls = 4;
  assert(neap_rules_prepare(&rules, NULL));
  const lane_host host = {.data = &last_ms, .moved = on_moved};
  lane *l = lane_new(&rules, 4, &host);
  const lab_call *c;
  while ((c = readers_next(readers, count, &stats)) != NULL) {
    look_at(c);
    uint64_t took_ms = c->duration_us / 1000;
    if (took_ms > UINT32_MAX) took_ms = UINT32_MAX;
    const lane_call judged = {.begin_ms = c->begin_us / 1000,
                              .span_ms = (uint32_t)took_ms,
                              .took_ms = (uint32_t)took_ms,
                              .logged_ms = (uint32_t)took_ms,
                              .outcome = c->status >= 500 ? NEAP_FAILURE : NEAP_SUCCESS,
                              .is_unknown = c->ended_by == LAB_REFUSED};
    lane_take(l, lane_key_of(l, c->key.data ? c->key.data : "", c->key.length), &judged);
    calls++;
  }
  lane_finish(l);
  const lane_counts *all = lane_all(l);
  assert(all->calls == calls && calls == stats.calls);
  assert(all->success + all->failure + all->neutral + all->unknown == calls);
  assert(all->refused == all->saved + all->lost + all->spared + all->refused_unknown);
  assert(lane_keys(l) <= 5);
  lane_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char nginx[] = "$remote_addr [$time_local] \"$request\" $status $upstream_addr "
                              "$upstream_status $upstream_response_time";
  static const char apache[] = "%h %l %u %t \"%r\" %>s %b %D %{X-Tenant}i";
  static lab_names names;
  char error[512];
  if (size < 2) return 0;
  names_open(&names);
  names_key(&names, LAB_TEXT("host"));
  lab_options options = {.names = &names};
  uint8_t how = data[0] % 10;
  if (how < FORMAT_COUNT) options.format = (lab_format)how;
  if (how == FORMAT_TEMPLATE || how == 8) options.log_format = LAB_TEXT(nginx);
  if (how == 9) options.log_format = LAB_TEXT(apache);
  size_t half = data[0] >= 128 ? size / 2 : size;
  lab_reader *readers[2];
  size_t count = 0;
  readers[0] = reader_memory(data + 1, half - 1, &options, error, sizeof error);
  count += readers[0] != NULL;
  if (half < size)
    readers[count] = reader_memory(data + half, size - half, &options, error, sizeof error);
  if (half < size && readers[count]) count++;
  replay(readers, count);
  for (size_t i = 0; i < count; i++) reader_close(readers[i]);
  /* And as a format. */
  lab_template t;
  lab_fields f;
  memset(&f, 0, sizeof f);
  if (template_make(&t, (lab_text){(const char *)data, half}, &names, error, sizeof error))
    template_read(&t, (lab_text){(const char *)data + half, size - half}, &f);
  return 0;
}
