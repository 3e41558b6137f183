#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define RAW_BYTES  ((size_t)128 << 10)
#define LEAST_ROOM ((size_t)256 << 10)

struct lab_input {
  int fd; /* -1: memory */
  const unsigned char *memory;
  size_t memory_left;
  bool is_gzip, in_member; /* in_member: the stream under way is not over */
  bool is_over;            /* no more bytes come */
  bool is_cut;
  lab_got fault;
  char why[128];
  uint64_t position, size;
  z_stream gzip;
  unsigned char *raw; /* compressed bytes; NULL: it is not */
  char *data;         /* what can be read: from `at` to `end` */
  size_t at, end, room;
};

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Up to `size` bytes; 0: no more. */
static size_t read_bytes(lab_input *in, void *to, size_t size) {
  ssize_t n;
  if (in->fd < 0) {
    n = (ssize_t)(in->memory_left < size ? in->memory_left : size);
    if (n) memcpy(to, in->memory, (size_t)n);
    in->memory += n;
    in->memory_left -= (size_t)n;
  } else {
    do n = read(in->fd, to, size);
    while (n < 0 && errno == EINTR);
  }
  if (n < 0) {
    in->fault = GOT_FAULT;
    snprintf(in->why, sizeof in->why, "%s", strerror(errno));
    return 0;
  }
  in->position += (uint64_t)n;
  return (size_t)n;
}

/* Of a file of several members, one after the other, all are read. */
static size_t inflate_bytes(lab_input *in, char *to, size_t size) {
  z_stream *z = &in->gzip;
  z->next_out = (Bytef *)to;
  z->avail_out = (uInt)size;
  while (z->avail_out == size && !in->fault) {
    if (z->avail_in == 0) {
      z->next_in = in->raw;
      z->avail_in = (uInt)read_bytes(in, in->raw, RAW_BYTES);
      if (z->avail_in == 0) {
        if (in->in_member && !in->fault) in->fault = GOT_CUT;
        return 0;
      }
    }
    in->in_member = true;
    int status = inflate(z, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      in->in_member = false;
      inflateReset(z);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      in->fault = GOT_GZIP;
    }
  }
  return size - z->avail_out;
}

static bool make_room(lab_input *in) {
  if (in->at > 0) {
    memmove(in->data, in->data + in->at, in->end - in->at);
    in->end -= in->at;
    in->at = 0;
  }
  if (in->room - in->end >= LEAST_ROOM) return true;
  if (in->room > LINE_MOST + LEAST_ROOM) return in->room > in->end;
  char *more = realloc(in->data, in->room * 2);
  if (!more) abort();
  in->data = more;
  in->room *= 2;
  return true;
}

/* false: there are no more. */
static bool fill(lab_input *in) {
  if (in->is_over || !make_room(in)) return false;
  char *to = in->data + in->end;
  size_t room = in->room - in->end;
  size_t n = in->is_gzip ? inflate_bytes(in, to, room) : read_bytes(in, to, room);
  in->end += n;
  in->is_over = n == 0;
  return n > 0;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Of a line that is too long, all that is left. */
static void skip_line(lab_input *in) {
  for (;;) {
    char *feed = memchr(in->data + in->at, '\n', in->end - in->at);
    in->at = feed ? (size_t)(feed + 1 - in->data) : in->end;
    if (feed || !fill(in)) return;
  }
}

lab_got input_line(lab_input *in, char **line, size_t *length) {
  size_t looked = 0;
  for (;;) {
    char *begin = in->data + in->at;
    char *feed = memchr(begin + looked, '\n', in->end - in->at - looked);
    looked = in->end - in->at;
    if (!feed && looked <= LINE_MOST && fill(in)) continue;
    size_t count = feed ? (size_t)(feed - begin) : looked;
    if (!feed && count == 0) return in->fault ? in->fault : GOT_END;
    if (count > LINE_MOST) return skip_line(in), GOT_LONG;
    begin = in->data + in->at;
    in->is_cut = !feed;
    in->at += count + (feed != NULL);
    if (count && begin[count - 1] == '\r') count--;
    *line = begin;
    *length = count;
    return GOT_LINE;
  }
}

size_t input_peek(lab_input *in, size_t wanted, char **bytes) {
  while (in->end - in->at < wanted && fill(in)) continue;
  *bytes = in->data + in->at;
  return in->end - in->at;
}

void input_take(lab_input *in, size_t count) { in->at += count; }

/* ---- Opening --------------------------------------------------------------------------------- */

static void set_up(lab_input *in) {
  static const char mark[] = "\357\273\277"; /* a byte order mark */
  char *bytes;
  in->room = LEAST_ROOM;
  in->data = malloc(in->room);
  if (!in->data) abort();
  size_t n = input_peek(in, 3, &bytes);
  in->is_gzip = n >= 3 && memcmp(bytes, "\037\213\010", 3) == 0;
  if (!in->is_gzip) {
    if (n >= 3 && memcmp(bytes, mark, 3) == 0) in->at = 3;
    return;
  }
  in->raw = malloc(in->room); /* what was read so far is put back */
  if (!in->raw || inflateInit2(&in->gzip, 15 + 16) != Z_OK) abort();
  n = in->end - in->at;
  memcpy(in->raw, bytes, n);
  in->gzip.next_in = in->raw;
  in->gzip.avail_in = (uInt)n;
  in->at = in->end = 0;
  in->is_over = false;
  n = input_peek(in, 3, &bytes);
  if (n >= 3 && memcmp(bytes, mark, 3) == 0) in->at = 3;
}

lab_input *input_open(const char *path, char *error, size_t size) {
  struct stat about;
  bool is_stdin = strcmp(path, "-") == 0;
  const char *shown = is_stdin ? "standard input" : path;
  int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &about) != 0) {
    snprintf(error, size, "%s: %s", shown, strerror(errno));
    return NULL;
  }
  if (S_ISDIR(about.st_mode)) {
    snprintf(error, size, "%s: is a directory; name the logs in it", shown);
    close(fd);
    return NULL;
  }
  lab_input *in = calloc(1, sizeof *in);
  if (!in) abort();
  in->fd = fd;
  in->size = S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
  set_up(in);
  return in;
}

lab_input *input_memory(const void *bytes, size_t length) {
  lab_input *in = calloc(1, sizeof *in);
  if (!in) abort();
  in->fd = -1;
  in->memory = bytes;
  in->memory_left = in->size = length;
  set_up(in);
  return in;
}

void input_close(lab_input *in) {
  if (!in) return;
  if (in->raw) inflateEnd(&in->gzip);
  if (in->fd > STDIN_FILENO) close(in->fd);
  free(in->raw);
  free(in->data);
  free(in);
}

bool input_is_gzip(const lab_input *in) { return in->is_gzip; }
bool input_ended_in_line(const lab_input *in) { return in->is_cut; }
uint64_t input_position(const lab_input *in) { return in->position; }
uint64_t input_size(const lab_input *in) { return in->size; }
const char *input_fault(const lab_input *in) { return in->why; }
