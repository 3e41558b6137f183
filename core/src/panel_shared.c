/* A panel in a file: see neap/panel_shared.h, and panel_shared.h for what is in the file.
 *
 *   neap_shared_open()   looks at the file, and if there is none of use makes one
 *   file_look()          never trusts: every field is checked before a byte of it is mapped
 *   file_make()          builds it aside and renames it, under the only lock there is
 *
 * After that nothing here has a say: the rest is panel.c and breaker.c on the mapped memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#include "neap/panel_shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "panel.h"
#include "panel_shared.h"
#include "word.h"

/* Fills *problem; false, for the caller to return. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static bool
fails(neap_shared_problem *problem, neap_shared_status status, const char *format, ...) {
  if (problem == NULL) return false;
  problem->status = status;
  va_list values;
  va_start(values, format);
  vsnprintf(problem->text, sizeof problem->text, format, values);
  va_end(values);
  return false;
}

#if !defined(__linux__) || !NEAP__CHOICE(NEAP_ATOMICS)

bool neap_shared_open(neap_shared *out, const char *path, uint32_t capacity,
                      neap_shared_problem *problem) {
  (void)out, (void)capacity;
  return fails(problem, NEAP_SHARED_ESYSTEM,
               "%s: shared panels need Linux, and a neap that was built with NEAP_ATOMICS=ON",
               path);
}

bool neap_shared_check(const neap_shared *s, neap_shared_problem *problem) {
  return fails(problem, NEAP_SHARED_EGONE, "%s: is not open", s->path);
}

neap_breaker *neap_shared_claim(const neap_shared *s, const char *name, size_t length,
                                neap_shared_problem *problem) {
  (void)name, (void)length;
  fails(problem, NEAP_SHARED_EGONE, "%s: is not open", s->path);
  return NULL;
}

void neap_shared_close(neap_shared *s) { s->panel = NULL; }

#else

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && sizeof(long long) == sizeof(neap__word),
               "a word that processes share must not hide a lock of one of them");

#define LOCK_WAIT_MS  5000
#define LOCK_RETRY_MS 5

/* What came of looking at a file. */
typedef enum look {
  LOOK_GOOD,
  LOOK_NONE,
  LOOK_USELESS, /* ours, but of no use to anybody: may be replaced.  The problem says why */
  LOOK_REFUSED  /* not ours to judge, or the system failed: hands off.  The problem says why */
} look;

typedef struct opening {
  char path[sizeof((neap_shared *)NULL)->path];
  char beside[sizeof((neap_shared *)NULL)->path + 8]; /* its .lock or .new */
  uint32_t asked;
  size_t page;
  shared__header here; /* what the header must say of this machine */
  neap_shared_problem problem;
} opening;

static bool system_fails(opening *o, const char *path, const char *doing) {
  return fails(&o->problem, NEAP_SHARED_ESYSTEM, "%s: can't %s: %s", path, doing, strerror(errno));
}

static const char *path_beside(opening *o, const char *suffix) {
  snprintf(o->beside, sizeof o->beside, "%s%s", o->path, suffix);
  return o->beside;
}

/* ---- this machine ---- */

static bool text_read(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, size - 1);
  close(fd);
  if (n <= 0) return false;
  out[n] = 0;
  out[strcspn(out, "\n")] = 0;
  return true;
}

static bool machine_read(opening *o) {
  static const char boot_path[] = "/proc/sys/kernel/random/boot_id";
  shared__header *h = &o->here;
  memcpy(h->magic, SHARED_MAGIC, sizeof h->magic);
  h->layout = SHARED_LAYOUT;
  h->clock = SHARED_CLOCK_MONOTONIC;
  o->page = (size_t)sysconf(_SC_PAGESIZE);
  h->page = o->page;
  if (!text_read(boot_path, h->boot, sizeof h->boot))
    return system_fails(o, boot_path, "tell which boot of the machine this is");
  char text[128];
  long long s = 0, ns = 0; /* no such file, no such namespaces */
  if (text_read("/proc/self/timens_offsets", text, sizeof text))
    sscanf(text, "monotonic %lld %lld", &s, &ns);
  h->clock_offset_s = s;
  h->clock_offset_ns = ns;
  return true;
}

static uint64_t file_size(const opening *o, uint32_t capacity) {
  uint64_t shared = neap_panel_size(capacity) - NEAP__PANEL_HEADER;
  return o->page + (shared + o->page - 1) / o->page * o->page;
}

/* ---- looking at a file ---- */

static bool is_tmpfs(int fd) {
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0) return false;
  return (uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC;
}

/* Whose it is, and where.  `path` for the text. */
static bool file_is_ours(opening *o, const char *path, int fd, struct stat *st) {
  if (fstat(fd, st) != 0) return system_fails(o, path, "look at it");
  neap_shared_status refused = NEAP_SHARED_EREFUSED;
  if (!S_ISREG(st->st_mode)) return fails(&o->problem, refused, "%s: is no regular file", path);
  if (st->st_nlink > 1)
    return fails(&o->problem, refused, "%s: has another name, too (a hard link)", path);
  if (st->st_uid != geteuid())
    return fails(&o->problem, refused, "%s: belongs to user %ld, and must belong to user %ld", path,
                 (long)st->st_uid, (long)geteuid());
  if (!is_tmpfs(fd))
    return fails(&o->problem, refused, "%s: is not on tmpfs, such as /dev/shm or /run are", path);
  return true;
}

/* The panel begins where the page that the header is in ends. */
static neap_panel *panel_of(const void *page, size_t size) {
  return (neap_panel *)((uintptr_t)page + size - NEAP__PANEL_HEADER);
}

static bool mode_is_ours(const char *path, const struct stat *st, neap_shared_problem *problem) {
  unsigned mode = st->st_mode & 07777u;
  if (mode == 0600) return true;
  return fails(problem, NEAP_SHARED_EREFUSED, "%s: has mode %04o, and must have 0600", path, mode);
}

#define USELESS(o, ...) (fails(&(o)->problem, NEAP_SHARED_EDAMAGED, __VA_ARGS__), LOOK_USELESS)

/* Page 0 of the file, whole, against what it must say. */
static look header_judge(opening *o, const void *page, uint64_t size) {
  const shared__header *h = page, *here = &o->here;
  const uint32_t capacity = neap_panel_capacity(panel_of(page, o->page));
  if (memcmp(h->magic, here->magic, sizeof h->magic) != 0)
    return USELESS(o, "%s: is no panel", o->path);
  if (shared__sum(page, o->page) != h->sum) return USELESS(o, "%s: its header is damaged", o->path);
  if (h->layout != here->layout || h->page != here->page || h->clock != here->clock)
    return USELESS(o, "%s: is of another kind than its name says", o->path);
  if (neap_panel_size(capacity) == 0 || h->size != file_size(o, capacity) || h->size != size)
    return USELESS(o, "%s: has %llu bytes, not the %llu of its %lu rows", o->path,
                   (unsigned long long)size, (unsigned long long)h->size, (unsigned long)capacity);
  if (memcmp(h->boot, here->boot, sizeof h->boot) != 0)
    return USELESS(o, "%s: is of another boot of the machine", o->path);
  if (h->clock_offset_s != here->clock_offset_s || h->clock_offset_ns != here->clock_offset_ns) {
    fails(&o->problem, NEAP_SHARED_EREFUSED,
          "%s: belongs to processes whose monotonic clock is another (time namespace)", o->path);
    return LOOK_REFUSED;
  }
  return LOOK_GOOD;
}

static bool header_read(int fd, void *page, size_t size) {
  ssize_t n;
  do {
    n = pread(fd, page, size, 0);
  } while (n < 0 && errno == EINTR);
  return n == (ssize_t)size;
}

/* ---- mapping ---- */

static void *mapping_copy(const neap_shared *s, size_t page) { return (char *)s->memory + page; }

/* Reserves the room, and puts the three parts there; page 1 and on if `fd` is not -1. */
static bool mapping_make(opening *o, neap_shared *s, int fd, uint64_t size) {
  const size_t page = o->page;
  if (size > SIZE_MAX / 2) {
    errno = ENOMEM;
    return system_fails(o, o->path, "map it");
  }
  s->size = (size_t)size + page;
  char *at = mmap(NULL, s->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return system_fails(o, o->path, "map it");
  s->memory = at;
  const int copy = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, shared = MAP_SHARED | MAP_FIXED;
  const int rw = PROT_READ | PROT_WRITE;
  if (mmap(at, page, PROT_READ, shared, fd, 0) == MAP_FAILED ||
      mmap(at + page, page, rw, copy, -1, 0) == MAP_FAILED ||
      mmap(at + 2 * page, (size_t)size - page, rw, shared, fd, (off_t)page) == MAP_FAILED) {
    system_fails(o, o->path, "map it");
    munmap(at, s->size);
    return false;
  }
  s->panel = panel_of(at + page, page);
  return true;
}

/* The copy of page 0 is complete: nobody writes it any more. */
static bool mapping_done(opening *o, neap_shared *s, const struct stat *st, neap_shared_how how) {
  mprotect(mapping_copy(s, o->page), o->page, PROT_READ);
  s->capacity = neap_panel_capacity(s->panel);
  s->how = how;
  s->device = (uint64_t)st->st_dev;
  s->inode = (uint64_t)st->st_ino;
  memcpy(s->path, o->path, sizeof s->path);
  return true;
}

static look file_map(opening *o, int fd, neap_shared *s) {
  struct stat st;
  if (!file_is_ours(o, o->path, fd, &st)) return LOOK_REFUSED;
  if (st.st_nlink == 0) return LOOK_NONE;
  if (!mode_is_ours(o->path, &st, &o->problem)) return LOOK_REFUSED;
  if (st.st_size < (off_t)(2 * o->page))
    return USELESS(o, "%s: has %llu bytes, too few for a panel", o->path,
                   (unsigned long long)st.st_size);
  if (!mapping_make(o, s, fd, (uint64_t)st.st_size)) return LOOK_REFUSED;
  void *copy = mapping_copy(s, o->page);
  look found = LOOK_REFUSED;
  if (!header_read(fd, copy, o->page))
    system_fails(o, o->path, "read it");
  else
    found = header_judge(o, copy, (uint64_t)st.st_size);
  if (found == LOOK_GOOD)
    mapping_done(o, s, &st, NEAP_SHARED_ATTACHED);
  else
    munmap(s->memory, s->size);
  return found;
}

/* O_NONBLOCK: a FIFO of that name must not hold us. */
#define OPEN_FLAGS      (O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

static look open_failed(opening *o, const char *path) {
  if (errno == ELOOP)
    fails(&o->problem, NEAP_SHARED_EREFUSED, "%s: is a symbolic link, or behind too many", path);
  else if (errno == EISDIR)
    fails(&o->problem, NEAP_SHARED_EREFUSED, "%s: is a directory", path);
  else
    system_fails(o, path, "open it");
  return LOOK_REFUSED;
}

static look file_look(opening *o, neap_shared *s) {
  int fd = open(o->path, OPEN_FLAGS);
  if (fd < 0) return errno == ENOENT ? LOOK_NONE : open_failed(o, o->path);
  look found = file_map(o, fd, s);
  close(fd);
  return found;
}

/* ---- making a file ---- */

static void sleep_ms(long ms) {
  struct timespec t = {.tv_nsec = ms * 1000000};
  nanosleep(&t, NULL);
}

/* One who was stopped while he held it must not hold the others for ever. */
static bool lock_wait(opening *o, const char *path, int fd) {
  for (int waited_ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms += LOCK_RETRY_MS) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_fails(o, path, "lock it");
    if (waited_ms >= LOCK_WAIT_MS)
      return fails(&o->problem, NEAP_SHARED_EBUSY,
                   "%s: somebody has been making the panel for %d s: is it stopped?", path,
                   LOCK_WAIT_MS / 1000);
    sleep_ms(LOCK_RETRY_MS);
  }
  return true;
}

static int lock_open(opening *o, const char *path) {
  int fd = open(path, OPEN_FLAGS | O_CREAT, 0600);
  if (fd < 0) {
    open_failed(o, path);
    return -1;
  }
  struct stat st;
  if (file_is_ours(o, path, fd, &st) && fchmod(fd, 0600) == 0 && lock_wait(o, path, fd)) return fd;
  close(fd);
  return -1;
}

/* -1 if it can't be had.  lock_give() gives it back, and so does dying; the file stays, since whoever
 * removed it could remove that of another.  Of a file that somebody did remove the lock is worth
 * nothing: the next one locks another. */
static int lock_take(opening *o) {
  const char *path = path_beside(o, ".lock");
  for (;;) {
    struct stat st;
    int fd = lock_open(o, path);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_nlink != 0) return fd;
    close(fd);
  }
}

/* Closing alone would leave it to a child that was forked meanwhile. */
static void lock_give(int lock) {
  flock(lock, LOCK_UN);
  close(lock);
}

/* All of its memory is there before anybody maps it: without that, a tmpfs that is full ends
 * whoever touches a new page. */
static bool file_allocate(opening *o, const char *path, int fd, uint64_t size) {
  struct rlimit limit;
  int error = EFBIG; /* which the system would answer with a signal */
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      size <= (uint64_t)limit.rlim_cur) {
    do {
      error = posix_fallocate(fd, 0, (off_t)size);
    } while (error == EINTR);
  }
  if (error == 0) return true;
  return fails(&o->problem, NEAP_SHARED_ESYSTEM, "%s: can't have the %llu bytes of %lu rows: %s",
               path, (unsigned long long)size, (unsigned long)o->asked, strerror(error));
}

static bool file_write_header(opening *o, neap_shared *s, const char *path, int fd) {
  shared__header *h = mapping_copy(s, o->page);
  uint64_t key;
  if (getentropy(&key, sizeof key) != 0) return system_fails(o, path, "choose its key");
  neap_panel *panel;
  neap_status made = neap_panel_init(s->panel, neap_panel_size(o->asked), o->asked, key, &panel);
  if (made != NEAP_OK)
    return fails(&o->problem, NEAP_SHARED_EARGUMENT, "%s: %s", path, neap_status_text(made));
  *h = o->here;
  h->size = file_size(o, o->asked);
  h->sum = shared__sum(h, o->page);
  if (pwrite(fd, h, o->page, 0) == (ssize_t)o->page) return true;
  return system_fails(o, path, "write it");
}

static bool file_fill(opening *o, neap_shared *s, const char *path, int fd, neap_shared_how how) {
  struct stat st;
  const uint64_t size = file_size(o, o->asked);
  if (fchmod(fd, 0600) != 0) return system_fails(o, path, "make it 0600"); /* the umask's part */
  if (!file_is_ours(o, path, fd, &st) || !file_allocate(o, path, fd, size)) return false;
  if (!mapping_make(o, s, fd, size)) return false;
  bool done = file_write_header(o, s, path, fd);
  if (done && rename(path, o->path) != 0) done = system_fails(o, path, "give it its name");
  if (done) return mapping_done(o, s, &st, how);
  munmap(s->memory, s->size);
  return false;
}

/* With the lock held, so a .new that is there was left by somebody who died. */
static bool file_make(opening *o, neap_shared *s, neap_shared_how how) {
  const char *path = path_beside(o, ".new");
  if (unlink(path) != 0 && errno != ENOENT) return system_fails(o, path, "remove it");
  int fd = open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
  if (fd < 0) return system_fails(o, path, "make it");
  bool done = file_fill(o, s, path, fd, how);
  if (!done) unlink(path);
  close(fd);
  return done;
}

/* ---- opening ---- */

static void notice_replaced(opening *o, neap_shared *s) {
  snprintf(s->notice, sizeof s->notice, "%.480s; made anew", o->problem.text);
}

static void notice_capacity(opening *o, neap_shared *s) {
  if (s->how == NEAP_SHARED_ATTACHED && o->asked != 0 && s->capacity != o->asked)
    snprintf(s->notice, sizeof s->notice,
             "%s: keeps the %lu rows that it was made with, not %lu; for others stop all who use "
             "it and remove it",
             o->path, (unsigned long)s->capacity, (unsigned long)o->asked);
}

static bool open_or_make(opening *o, neap_shared *s) {
  look found = file_look(o, s);
  if (found == LOOK_GOOD || found == LOOK_REFUSED) return found == LOOK_GOOD;
  if (o->asked == 0) {
    if (found == LOOK_NONE) fails(&o->problem, NEAP_SHARED_ENONE, "%s: is not there", o->path);
    return false;
  }
  int lock = lock_take(o);
  if (lock < 0) return false;
  found = file_look(o, s); /* somebody may have made it meanwhile */
  bool done = found == LOOK_GOOD;
  if (found == LOOK_USELESS) {
    notice_replaced(o, s);
    done = file_make(o, s, NEAP_SHARED_REPLACED);
  } else if (found == LOOK_NONE) {
    done = file_make(o, s, NEAP_SHARED_CREATED);
  }
  lock_give(lock);
  return done;
}

static bool asked_well(opening *o, const char *path) {
  size_t length = strlen(path);
  neap_shared_status status = NEAP_SHARED_EARGUMENT;
  if (path[0] != '/')
    return fails(&o->problem, status, "%s: the path of a panel must begin with /", path);
  if (length > NEAP_SHARED_PATH_MAX)
    return fails(&o->problem, status, "%.40s...: the path of a panel has at most %d bytes, not %lu",
                 path, NEAP_SHARED_PATH_MAX, (unsigned long)length);
  snprintf(o->path, sizeof o->path, "%s.v" SHARED_LAYOUT_TEXT, path);
  if (o->asked == 0 || neap_panel_size(o->asked) != 0) return true;
  return fails(&o->problem, status, "%s: a panel has 1 to 4194304 rows, not %lu", o->path,
               (unsigned long)o->asked);
}

bool neap_shared_open(neap_shared *out, const char *path, uint32_t capacity,
                      neap_shared_problem *problem) {
  opening o = {.asked = capacity};
  neap_shared s = {0};
  if (asked_well(&o, path) && machine_read(&o) && open_or_make(&o, &s)) {
    notice_capacity(&o, &s);
    *out = s;
    return true;
  }
  if (problem != NULL) *problem = o.problem;
  return false;
}

/* ---- an open panel ---- */

/* What the copy of page 0 says once the file has been cut and its memory is this process's own. */
#define LAYOUT_ALONE    0

static bool is_alone(const neap_shared *s, size_t page) {
  return ((const shared__header *)mapping_copy(s, page))->layout == LAYOUT_ALONE;
}

/* Threads may do so at once: each puts whole pages in the place of others, the mark last. */
static void go_alone(const neap_shared *s, size_t page) {
  const int own = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
  char *at = s->memory, *copy = mapping_copy(s, page);
  char *mark = mmap(NULL, page, rw, own, -1, 0);
  if (mark == MAP_FAILED) return; /* no memory: again at the next check */
  memcpy(mark, copy, page);
  ((shared__header *)mark)->layout = LAYOUT_ALONE;
  if (mprotect(mark, page, PROT_READ) != 0 ||
      mmap(at, page, PROT_READ, own | MAP_FIXED, -1, 0) == MAP_FAILED ||
      mmap(at + 2 * page, s->size - 2 * page, rw, own | MAP_FIXED, -1, 0) == MAP_FAILED ||
      mremap(mark, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, copy) == MAP_FAILED)
    munmap(mark, page);
}

bool neap_shared_check(const neap_shared *s, neap_shared_problem *problem) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = s->size - page;
  if (is_alone(s, page))
    return fails(problem, NEAP_SHARED_EDAMAGED, "%s: was cut; this process goes on alone", s->path);
  struct stat st;
  if (lstat(s->path, &st) != 0)
    return fails(problem, NEAP_SHARED_EGONE, "%s: can't be found any more: %s", s->path,
                 strerror(errno));
  if ((uint64_t)st.st_dev != s->device || (uint64_t)st.st_ino != s->inode)
    return fails(problem, NEAP_SHARED_EGONE, "%s: is another file now; open it again", s->path);
  if ((uint64_t)st.st_size < size) {
    go_alone(s, page);
    return fails(problem, NEAP_SHARED_EDAMAGED,
                 "%s: was cut to %llu of its %llu bytes; this process goes on alone", s->path,
                 (unsigned long long)st.st_size, (unsigned long long)size);
  }
  if (!mode_is_ours(s->path, &st, problem)) return false;
  if (memcmp(s->memory, mapping_copy(s, page), page) != 0)
    return fails(problem, NEAP_SHARED_EDAMAGED, "%s: its header was overwritten", s->path);
  return true;
}

neap_breaker *neap_shared_claim(const neap_shared *s, const char *name, size_t length,
                                neap_shared_problem *problem) {
  neap_shared_problem found = {.status = NEAP_SHARED_OK};
  if (!neap_shared_check(s, &found) && found.status != NEAP_SHARED_EGONE) {
    if (problem != NULL) *problem = found;
    return NULL;
  }
  neap_breaker *b = NULL;
  neap_status status = neap_panel_claim(s->panel, name, length, &b);
  if (status == NEAP_EFULL)
    fails(problem, NEAP_SHARED_EFULL, "%s: all of its %lu rows are in use", s->path,
          (unsigned long)s->capacity);
  else if (status != NEAP_OK)
    fails(problem, NEAP_SHARED_ENAME, "%s: %s", s->path, neap_status_text(status));
  return b;
}

void neap_shared_close(neap_shared *s) {
  if (s->panel != NULL) munmap(s->memory, s->size);
  s->panel = NULL;
  s->memory = NULL;
}

#endif
