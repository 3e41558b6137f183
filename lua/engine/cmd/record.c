#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine_called.h"
#include "recording.h"

#define FLUSH_MS 500
#define ROOM     ((size_t)256 << 10) /* of a buffer; there are two */
/* No call takes more: three names, of the policy, the key and the code, each letter of them encoded. */
#define LINE_ROOM  ((size_t)(3 * 3 * RECORDING_NAME + 512))
#define STEP_MS    1000          /* the wall's clock has been set */
#define FIRST_KEYS ((size_t)256) /* buckets */

typedef struct seen_policy {
  neap_guard *guard;
  uint32_t number; /* of the version that was said */
} seen_policy;

typedef struct seen_key seen_key;
struct seen_key {
  seen_key *next;
  uint32_t number, policy, hash;
  size_t length;
  char key[];
};

typedef struct chunk {
  char *data;
  size_t used;
  bool rotates; /* it is the first of a new file */
} chunk;

struct recorder {
  serve *serve;
  uv_timer_t timer;
  uv_work_t work;
  chunk filling, writing;
  bool is_busy, is_closing;
  void (*closed)(void *data);
  void *closed_data;

  /* What the file under way has said so far. */
  seen_policy *policies;
  uint32_t policy_count, key_count;
  seen_key **keys; /* buckets, as many as keys at least */
  size_t key_size;
  uint64_t bytes, last_ms; /* of the file; the engine's clock at the last line */
  int64_t wall_offset_ms;
  uint64_t missing; /* calls that had no room, since that was said */

  /* The thread's, while it works. */
  int fd;
  bool is_torn; /* the last line is not whole */
  int failure;  /* errno; 0: none */
  bool has_failed;
};

/* ---- Clocks ---------------------------------------------------------------------------------- */

static uint64_t wall_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void put(recorder *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(recorder *r, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(r->filling.data + r->filling.used, ROOM - r->filling.used, format, arguments);
  va_end(arguments);
  if (n > 0 && (size_t)n < ROOM - r->filling.used) r->filling.used += (size_t)n;
}

static void put_name(recorder *r, const char *name, size_t length) {
  r->filling.used += recording_encode((lab_text){name, length}, r->filling.data + r->filling.used);
}

static void put_time(recorder *r, uint64_t now_ms) {
  uint64_t wall = wall_ms();
  r->wall_offset_ms = (int64_t)(wall - now_ms);
  r->last_ms = now_ms;
  put(r, "t %" PRIu64 "\n", wall);
}

static void forget_said(recorder *r) {
  for (size_t i = 0; i < r->key_size; i++)
    for (seen_key *k = r->keys[i], *next; k; k = next) {
      next = k->next;
      free(k);
    }
  free(r->keys);
  r->keys = NULL;
  r->key_size = 0;
  r->policy_count = r->key_count = 0;
}

/* For one more key. */
static void keys_grow(recorder *r) {
  if (r->key_count < r->key_size) return;
  size_t size = r->key_size ? r->key_size * 2 : FIRST_KEYS;
  seen_key **keys = calloc(size, sizeof *keys);
  if (!keys) abort();
  for (size_t i = 0; i < r->key_size; i++)
    for (seen_key *k = r->keys[i], *next; k; k = next) {
      next = k->next;
      k->next = keys[k->hash % size];
      keys[k->hash % size] = k;
    }
  free(r->keys);
  r->keys = keys;
  r->key_size = size;
}

/* The first lines of a file. */
static void put_head(recorder *r, uint64_t now_ms) {
  forget_said(r);
  put(r, RECORDING_MAGIC "%d\n", RECORDING_VERSION);
  put_time(r, now_ms);
}

static void put_policy(recorder *r, uint32_t i) {
  seen_policy *p = &r->policies[i];
  engine_policy policy = engine_policy_of(p->guard);
  p->number = policy.number;
  put(r, "p %u ", i);
  put_name(r, neap_guard_name(p->guard), strlen(neap_guard_name(p->guard)));
  put(r, " %s %" PRIu64 "\n", policy.hash, policy.seed);
}

static uint32_t policy_of(recorder *r, neap_guard *guard) {
  uint32_t i = 0;
  while (i < r->policy_count && r->policies[i].guard != guard) i++;
  if (i == r->policy_count) {
    seen_policy *more = realloc(r->policies, (i + 1) * sizeof *more);
    if (!more) abort();
    r->policies = more;
    r->policies[i] = (seen_policy){guard, 0};
    r->policy_count++;
    put_policy(r, i);
  } else if (r->policies[i].number != engine_policy_number(guard)) {
    put_policy(r, i);
  }
  return i;
}

static uint32_t key_of(recorder *r, const engine_called *c) {
  uint32_t policy = policy_of(r, c->guard), h = policy;
  for (size_t i = 0; i < c->key_length; i++) h = h * 31 + (unsigned char)c->key[i];
  keys_grow(r);
  seen_key **bucket = &r->keys[h % r->key_size];
  for (seen_key *k = *bucket; k; k = k->next)
    if (k->policy == policy && k->length == c->key_length && !memcmp(k->key, c->key, k->length))
      return k->number;
  seen_key *k = malloc(sizeof *k + c->key_length + 1);
  if (!k) abort();
  k->next = *bucket;
  k->number = r->key_count++;
  k->policy = policy;
  k->hash = h;
  k->length = c->key_length;
  memcpy(k->key, c->key, c->key_length);
  *bucket = k;
  put(r, "k %u %u ", k->number, policy);
  put_name(r, c->key, c->key_length);
  put(r, "\n");
  return k->number;
}

/* ---- A call ---------------------------------------------------------------------------------- */

static char ending_of(const engine_called *c) {
  static const char endings[] = "atxcb";
  if (c->refused != NEAP_ALLOW) return c->refused == NEAP_REFUSE_BULKHEAD ? 'b' : 'r';
  return c->result ? endings[c->result->ended_by] : 'c';
}

static char verdict_of(neap_outcome outcome) {
  return outcome == NEAP_SUCCESS   ? 's'
         : outcome == NEAP_FAILURE ? 'f'
         : outcome == NEAP_TIMEOUT ? 't'
                                   : 'n';
}

static void put_answer(recorder *r, const engine_called *c, uint32_t key, uint64_t after_ms) {
  const char *source = c->answer->source ? c->answer->source : "?";
  put(r, "f %u %" PRIu64 " ", key, after_ms);
  put_name(r, source, strlen(source));
  put(r, " %" PRIu64 "\n", c->answer->age_ms);
}

static void put_more(recorder *r, const engine_called *c) {
  uint64_t span_ms = c->now_ms > c->began_ms ? c->now_ms - c->began_ms : 0;
  const neap_result *result = c->result;
  if (c->refused == NEAP_ALLOW) put(r, " j=%c", verdict_of(c->outcome));
  if (c->refused == NEAP_ALLOW && span_ms != c->duration_ms) put(r, " s=%" PRIu64, span_ms);
  if (c->retry_after_ms > 0) put(r, " r=%" PRId64, c->retry_after_ms);
  if (!result) return;
  if (result->is_grpc) put(r, " g=%d", result->grpc_status);
  if (result->code) {
    put(r, " e=");
    put_name(r, result->code, strlen(result->code));
  }
}

static void put_missing(recorder *r) {
  if (!r->missing) return;
  put(r, "d %" PRIu64 "\n", r->missing);
  r->missing = 0;
}

static void flush(recorder *r);

static void on_call(void *data, const engine_called *c) {
  recorder *r = data;
  if (r->is_closing) return;
  if (ROOM - r->filling.used < LINE_ROOM) flush(r);
  if (ROOM - r->filling.used < LINE_ROOM) {
    r->missing += c->answer == NULL;
    return;
  }
  put_missing(r);
  int64_t offset_ms = (int64_t)(wall_ms() - c->now_ms) - r->wall_offset_ms;
  if (offset_ms > STEP_MS || offset_ms < -STEP_MS) put_time(r, c->now_ms);
  uint32_t key = key_of(r, c);
  uint64_t after_ms = c->now_ms > r->last_ms ? c->now_ms - r->last_ms : 0;
  r->last_ms = c->now_ms;
  if (c->answer) {
    put_answer(r, c, key, after_ms);
    return;
  }
  put(r, "c %u %" PRIu64 " %" PRIu64 " %c", key, after_ms, c->duration_ms, ending_of(c));
  if (c->result && c->result->status) put(r, "%d", c->result->status);
  put_more(r, c);
  put(r, "\n");
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* FILE.7 goes, FILE.6 becomes FILE.7, ..., FILE becomes FILE.1. */
static void rotate(recorder *r) {
  const plan *p = &r->serve->plan;
  char from[4096], to[4096];
  bool is_there = access(p->record, F_OK) == 0; /* or the disk had no room for it the last time */
  for (uint32_t i = p->record_files - 1; i > 0 && is_there; i--) {
    if (i > 1)
      snprintf(from, sizeof from, "%s.%u", p->record, i - 1);
    else
      snprintf(from, sizeof from, "%s", p->record);
    snprintf(to, sizeof to, "%s.%u", p->record, i);
    rename(from, to); /* or there is none yet */
  }
  if (r->fd >= 0) close(r->fd);
  r->is_torn = false;
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (p->record_files == 1 ? O_TRUNC : 0);
  r->fd = open(p->record, flags, 0600);
  if (r->fd >= 0) flock(r->fd, LOCK_EX | LOCK_NB);
}

/* All of it, or nothing: what was written of it is taken back. */
static bool write_all(recorder *r, const char *data, size_t size) {
  off_t before = lseek(r->fd, 0, SEEK_END);
  while (size > 0) {
    ssize_t n = write(r->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      r->failure = n < 0 ? errno : ENOSPC;
      if (before < 0 || ftruncate(r->fd, before) != 0) r->is_torn = true;
      return false;
    }
    data += n;
    size -= (size_t)n;
  }
  r->is_torn = false;
  return true;
}

/* In a thread of its own. */
static void work(uv_work_t *request) {
  recorder *r = request->data;
  r->failure = 0;
  if (r->writing.rotates || r->fd < 0) rotate(r);
  if (r->fd < 0) {
    r->failure = errno;
    return;
  }
  if (r->is_torn && !write_all(r, "\n", 1)) return;
  write_all(r, r->writing.data, r->writing.used);
}

/* That it has, or says are missing. */
static uint64_t calls_in(const chunk *c) {
  uint64_t calls = 0;
  for (size_t i = 0; i < c->used; i++) {
    if (i > 0 && c->data[i - 1] != '\n') continue;
    if (c->data[i] == 'c') calls++;
    if (c->data[i] == 'd') calls += strtoull(c->data + i + 2, NULL, 10);
  }
  return calls;
}

/* What was said of keys is not in the file: nor may be what goes by it. */
static void begin_anew(recorder *r) {
  r->missing += calls_in(&r->writing) + calls_in(&r->filling);
  r->filling.used = 0;
  put_head(r, engine_clock_ms(r->serve->engine));
}

/* What the thread has come to. */
static void settle(recorder *r) {
  serve *s = r->serve;
  if (r->failure && !r->is_closing) begin_anew(r);
  if (r->failure && !r->has_failed)
    serve_log(s, LOG_ERROR, "record", "%s: %s; calls are not recorded until that is over",
              s->plan.record, strerror(r->failure));
  else if (!r->failure && r->has_failed)
    serve_log(s, LOG_INFO, "record", "%s: calls are recorded again", s->plan.record);
  r->has_failed = r->failure != 0;
  r->writing.used = 0;
  r->writing.rotates = false;
}

static void close_now(recorder *r);

static void on_done(uv_work_t *request, int status) {
  recorder *r = request->data;
  (void)status;
  settle(r);
  r->is_busy = false;
  if (r->is_closing) close_now(r);
}

/* Hands what there is to the thread, unless that is busy. */
static void flush(recorder *r) {
  if (r->is_busy || !r->filling.used) return;
  const plan *p = &r->serve->plan;
  chunk full = r->filling;
  r->filling = r->writing;
  r->writing = full;
  r->bytes += full.used;
  r->is_busy = true;
  r->work.data = r;
  uv_queue_work(&r->serve->loop, &r->work, work, on_done);
  if (r->bytes < p->record_bytes) return;
  r->bytes = 0;
  r->filling.rotates = true;
  put_head(r, engine_clock_ms(r->serve->engine));
}

static void on_timer(uv_timer_t *timer) { flush(timer->data); }

/* ---- Opening, closing ------------------------------------------------------------------------ */

/* What is there must be a recording that nobody else writes to; its last line may be torn. */
static bool open_file(recorder *r, char *error, size_t size) {
  const char *path = r->serve->plan.record;
  const size_t magic = sizeof RECORDING_MAGIC - 1;
  char head[sizeof RECORDING_MAGIC] = "", last = '\n';
  struct stat about;
  r->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (r->fd < 0 || fstat(r->fd, &about) != 0) {
    snprintf(error, size, "record %s: %s", path, strerror(errno));
    return false;
  }
  if (!S_ISREG(about.st_mode)) {
    snprintf(error, size, "record %s: is no file", path);
    return false;
  }
  if (flock(r->fd, LOCK_EX | LOCK_NB) != 0) {
    snprintf(error, size, "record %s: another neap records in it", path);
    return false;
  }
  if (about.st_size == 0) return true;
  ssize_t n = pread(r->fd, head, magic, 0);
  if (n != (ssize_t)magic || memcmp(head, RECORDING_MAGIC, magic) != 0) {
    snprintf(error, size, "record %s: is there, and is no recording; name another file", path);
    return false;
  }
  if (pread(r->fd, &last, 1, about.st_size - 1) == 1) r->is_torn = last != '\n';
  r->bytes = (uint64_t)about.st_size;
  return true;
}

static void recorder_free(uv_handle_t *timer) {
  recorder *r = timer->data;
  forget_said(r);
  free(r->policies);
  free(r->filling.data);
  free(r->writing.data);
  if (r->fd >= 0) close(r->fd);
  void (*closed)(void *data) = r->closed;
  void *closed_data = r->closed_data;
  free(r);
  closed(closed_data);
}

bool record_open(serve *s, recorder **out, char *error, size_t size) {
  recorder *r = calloc(1, sizeof *r);
  if (!r) abort();
  r->serve = s;
  if (!open_file(r, error, size)) {
    if (r->fd >= 0) close(r->fd);
    free(r);
    return false;
  }
  r->filling.data = malloc(ROOM);
  r->writing.data = malloc(ROOM);
  if (!r->filling.data || !r->writing.data) abort();
  put_head(r, engine_clock_ms(s->engine));
  uv_timer_init(&s->loop, &r->timer);
  r->timer.data = r;
  uv_timer_start(&r->timer, on_timer, FLUSH_MS, FLUSH_MS);
  engine_on_call(s->engine, on_call, r);
  *out = r;
  return true;
}

/* Nobody else writes. */
static void close_now(recorder *r) {
  if (ROOM - r->filling.used >= LINE_ROOM) put_missing(r);
  if (r->filling.used) {
    chunk rest = r->filling;
    r->filling = r->writing;
    r->writing = rest;
    work(&r->work);
    settle(r);
  }
  uv_close((uv_handle_t *)&r->timer, recorder_free);
}

void record_close(recorder *r, void (*closed)(void *data), void *data) {
  engine_on_call(r->serve->engine, NULL, NULL);
  r->is_closing = true;
  r->closed = closed;
  r->closed_data = data;
  r->work.data = r;
  if (!r->is_busy) close_now(r); /* else on_done() does */
}
