/* A panel in a file: opening, what is refused, what is replaced, and what a file can do to those
 * who use it. */
#include "shared.h"

#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "breaker.h"

static neap_rules rules_that_trip_at_once(void) {
  neap_rules r = neap_rules_default();
  r.failures = 1;
  r.jitter = 0;
  prepare(&r);
  return r;
}

static void fail_once(neap_breaker *b, const neap_rules *rules, uint64_t now_ms) {
  neap_permit permit = {0};
  neap_call failure = {.outcome = NEAP_FAILURE};
  SAME(neap_breaker_acquire(b, rules, now_ms, &permit, NULL), NEAP_ALLOW, "closed");
  neap_breaker_report(b, rules, now_ms, &permit, &failure, NULL);
}

static struct stat stat_of(const char *path) {
  struct stat st;
  SAME(lstat(path, &st), 0, path);
  return st;
}

/* ---- Opening ---- */

static void the_first_makes_it_and_the_next_attach(void **unused) {
  (void)unused;
  neap_rules rules = rules_that_trip_at_once();
  neap_shared a = open_shared(10), b = open_shared(10);
  SAME(a.how, NEAP_SHARED_CREATED, "the first");
  SAME(b.how, NEAP_SHARED_ATTACHED, "the second");
  SAME_TEXT(a.path, shared_file);
  SAME_TEXT(a.notice, "");
  SAME_TEXT(b.notice, "");
  HOLDS(a.panel != b.panel, "two mappings");
  SAME(neap_panel_capacity(b.panel), 10, "as made");
  neap_breaker *of_a = claim_shared(&a, "x"), *of_b = claim_shared(&b, "x");
  fail_once(of_a, &rules, 1000);
  SAME(neap_breaker_state(of_b, &rules, 1000), NEAP_OPEN, "one breaker");
  SAME_TEXT(neap_breaker_name(neap_panel_find(b.panel, "x", 1)), "x");
  SAME(neap_panel_count(b.panel), 1, "one row");
  neap_shared_close(&a);
  neap_shared_close(&a);
  assert_null(a.panel);
  SAME(neap_breaker_state(of_b, &rules, 1000), NEAP_OPEN, "closing one's own leaves others' alone");
  neap_shared_close(&b);
  b = open_shared(10);
  SAME(neap_breaker_state(claim_shared(&b, "x"), &rules, 1000), NEAP_OPEN, "it outlives its users");
  neap_shared_close(&b);
}

static void it_is_for_its_owner_only_whatever_the_umask(void **unused) {
  (void)unused;
  const mode_t masks[] = {0, 022, 0777};
  for (size_t i = 0; i < COUNT_OF(masks); i++) {
    mode_t before = umask(masks[i]);
    neap_shared s = open_shared(3);
    umask(before);
    SAME(stat_of(shared_file).st_mode & 07777, 0600, "0600");
    SAME(s.how, NEAP_SHARED_CREATED, "made");
    neap_shared_close(&s);
    unlink(shared_file);
    char lock[120];
    snprintf(lock, sizeof lock, "%s.lock", shared_file);
    SAME(unlink(lock), 0, "and the lock");
  }
}

/* B211: the size of a zone is changed while it is in use. */
static void it_keeps_the_capacity_it_was_made_with(void **unused) {
  (void)unused;
  neap_shared a = open_shared(10);
  claim_shared(&a, "x");
  const uint32_t asked[] = {1, 9, 11, 100000};
  for (size_t i = 0; i < COUNT_OF(asked); i++) {
    neap_shared b = open_shared(asked[i]);
    SAME(b.how, NEAP_SHARED_ATTACHED, "not made anew");
    SAME(b.capacity, 10, "what it was made with");
    HOLDS(strstr(b.notice, "keeps the 10 rows") != NULL, "and it says so");
    SAME(neap_panel_count(b.panel), 1, "nothing is lost");
    neap_shared_close(&b);
  }
  neap_shared b = open_shared(0);
  SAME(b.capacity, 10, "0 asks for what is there");
  SAME_TEXT(b.notice, "");
  neap_shared_close(&b);
  neap_shared_close(&a);
}

static void zero_never_makes_one(void **unused) {
  (void)unused;
  check_refused(shared_path, 0, NEAP_SHARED_ENONE, shared_file, "is not there");
  neap_shared s = open_shared(2);
  neap_shared_close(&s);
  SAME(truncate(shared_file, 100), 0, "cut");
  check_refused(shared_path, 0, NEAP_SHARED_EDAMAGED, shared_file, "too few for a panel");
  SAME(stat_of(shared_file).st_size, 100, "left as it was");
}

static void what_is_asked_must_make_sense(void **unused) {
  (void)unused;
  char path[400];
  memset(path, 'p', sizeof path);
  memcpy(path, shared_path, strlen(shared_path));
  path[NEAP_SHARED_PATH_MAX + 1] = 0;
  check_refused(path, 1, NEAP_SHARED_EARGUMENT, shared_path, "at most 200 bytes, not 201");
  path[NEAP_SHARED_PATH_MAX] = 0;
  neap_shared s;
  HOLDS(neap_shared_open(&s, path, 1, NULL), "the longest");
  neap_shared_close(&s);
  check_refused("", 1, NEAP_SHARED_EARGUMENT, "", "must begin with /");
  check_refused("panel", 1, NEAP_SHARED_EARGUMENT, "panel", "must begin with /");
  check_refused(shared_path, 4194305, NEAP_SHARED_EARGUMENT, shared_file, "1 to 4194304 rows");
  HOLDS(!neap_shared_open(&s, "panel", 1, NULL), "no problem wanted");
}

static void the_system_may_refuse_with_one_line(void **unused) {
  (void)unused;
  char path[120];
  snprintf(path, sizeof path, "%s/none/panel", shared_dir);
  check_refused(path, 1, NEAP_SHARED_ESYSTEM, path, "No such file or directory");
  check_refused("/proc/neap", 1, NEAP_SHARED_ESYSTEM, "/proc/neap", "can't open it");
  struct rlimit before, small = {.rlim_cur = 100000};
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  check_refused(shared_path, 1000, NEAP_SHARED_ESYSTEM, shared_file, "File too large");
  setrlimit(RLIMIT_FSIZE, &before);
  snprintf(path, sizeof path, "%s.new", shared_file);
  SAME(access(path, F_OK), -1, "nothing is left behind");
  SAME(access(shared_file, F_OK), -1, "nothing is left behind");
}

/* ---- In a mount namespace of one's own: a full tmpfs, no /proc ---- */

static bool write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY);
  bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  close(fd);
  return done;
}

static bool have_own_mounts(void) {
  char map[64];
  snprintf(map, sizeof map, "0 %ld 1", (long)geteuid());
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", map))
      return false;
  }
  return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

#define CANT 77

static void in_own_mounts(void (*check)(void)) {
  pid_t child = fork_child();
  if (child == 0) {
    if (!have_own_mounts()) _exit(CANT);
    check();
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == CANT) {
    print_message("not allowed to mount here\n");
    skip();
  }
  SAME(status, 0, "checked in a process of its own");
}

static void check_full_tmpfs(void) {
  if (mount("none", shared_dir, "tmpfs", 0, "size=1m") != 0) _exit(CANT);
  check_refused(shared_path, 1100, NEAP_SHARED_ESYSTEM, shared_file, "No space left on device");
  neap_shared s = open_shared(900);
  neap_shared_problem problem;
  for (uint32_t i = 0; i < 900; i++) {
    char name[16];
    int length = snprintf(name, sizeof name, "%u", i);
    HOLDS(neap_shared_claim(&s, name, (size_t)length, &problem) != NULL, "it has all its memory");
  }
}

static void a_full_tmpfs_is_an_error_at_opening_and_never_later(void **unused) {
  (void)unused;
  in_own_mounts(check_full_tmpfs);
}

static void check_without_proc(void) {
  if (mount("none", "/proc", "tmpfs", 0, NULL) != 0) _exit(CANT);
  check_refused(shared_path, 10, NEAP_SHARED_ESYSTEM, "/proc/sys/kernel/random/boot_id",
                "can't tell which boot");
}

static void without_proc_it_says_what_it_needs(void **unused) {
  (void)unused;
  in_own_mounts(check_without_proc);
}

static void check_without_shm(void) {
  if (mount("none", "/dev", "tmpfs", 0, NULL) != 0) _exit(CANT);
  check_refused("/dev/shm/panel", 10, NEAP_SHARED_ESYSTEM, "/dev/shm/panel.v" SHARED_LAYOUT_TEXT,
                "No such file or directory");
}

static void without_dev_shm_it_says_so(void **unused) {
  (void)unused;
  in_own_mounts(check_without_shm);
}

/* ---- Files that are not ours to judge ---- */

static void refuse(const char *what) {
  struct stat before = stat_of(shared_file);
  check_refused(shared_path, 10, NEAP_SHARED_EREFUSED, shared_file, what);
  struct stat after = stat_of(shared_file);
  HOLDS(before.st_ino == after.st_ino && before.st_size == after.st_size &&
            before.st_mode == after.st_mode && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
        "it is left alone");
}

static void a_symbolic_link_is_refused(void **unused) {
  (void)unused;
  neap_shared s = open_shared(10);
  char aside[120];
  snprintf(aside, sizeof aside, "%s.aside", shared_file);
  rename(shared_file, aside);
  SAME(symlink(aside, shared_file), 0, "a link to a good panel");
  refuse("symbolic link");
  unlink(shared_file);
  SAME(symlink("nowhere", shared_file), 0, "a link to nowhere");
  refuse("symbolic link");
  neap_shared_close(&s);
}

static void what_is_no_file_is_refused(void **unused) {
  (void)unused;
  SAME(mkdir(shared_file, 0700), 0, "a directory");
  refuse("is a directory");
  rmdir(shared_file);
  SAME(mkfifo(shared_file, 0600), 0, "a FIFO, which must not hold us");
  refuse("no regular file");
}

static void a_file_that_others_may_use_is_refused(void **unused) {
  (void)unused;
  neap_shared s = open_shared(10);
  const mode_t modes[] = {0644, 0660, 0666, 0601, 0700, 04600};
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    SAME(chmod(shared_file, modes[i]), 0, "another mode");
    refuse("and must have 0600");
  }
  chmod(shared_file, 0600);
  if (geteuid() == 0) {
    SAME(chown(shared_file, 4711, 4711), 0, "somebody else's");
    refuse("belongs to user 4711, and must belong to user 0");
    chown(shared_file, 0, 0);
  }
  neap_shared again = open_shared(10);
  SAME(again.how, NEAP_SHARED_ATTACHED, "put right, it is good again");
  neap_shared_close(&again);
  neap_shared_close(&s);
}

static void a_lock_that_is_not_ours_is_refused(void **unused) {
  (void)unused;
  char lock[120];
  snprintf(lock, sizeof lock, "%s.lock", shared_file);
  SAME(symlink("elsewhere", lock), 0, "a link");
  check_refused(shared_path, 10, NEAP_SHARED_EREFUSED, lock, "symbolic link");
  SAME(access(shared_file, F_OK), -1, "nothing is made");
}

static void check_on_disk(void) {
  if (mount("none", shared_dir, "sysfs", 0, NULL) != 0) _exit(CANT);
  char path[120];
  snprintf(path, sizeof path, "%s/kernel", shared_dir);
  neap_shared_problem problem = {.text = ""};
  neap_shared s;
  HOLDS(!neap_shared_open(&s, path, 10, &problem), "not here");
}

/* Who can make names in the directory must not get the mode of another file changed. */
static void a_file_with_another_name_is_refused(void **unused) {
  (void)unused;
  char other[120], lock[120];
  snprintf(other, sizeof other, "%s/other", shared_dir);
  snprintf(lock, sizeof lock, "%s.lock", shared_file);
  close(open(other, O_CREAT | O_RDWR, 0644));
  SAME(chmod(other, 0644), 0, "for everybody");
  SAME(link(other, lock), 0, "the lock is another file");
  check_refused(shared_path, 10, NEAP_SHARED_EREFUSED, lock, "hard link");
  SAME(stat_of(other).st_mode & 07777, 0644, "as it was");
  SAME(unlink(lock), 0, "the way is free");
  neap_shared s = open_shared(10);
  neap_shared_close(&s);
  SAME(unlink(other), 0, "removed");
  SAME(link(shared_file, other), 0, "the panel has another name");
  check_refused(shared_path, 10, NEAP_SHARED_EREFUSED, shared_file, "hard link");
}

static void only_tmpfs_will_do(void **unused) {
  (void)unused;
  char path[] = "/var/tmp/neap-test-XXXXXX";
  int fd = mkstemp(path);
  if (fd < 0) skip();
  close(fd);
  char file[64], lock[72];
  snprintf(file, sizeof file, "%s.v" SHARED_LAYOUT_TEXT, path);
  snprintf(lock, sizeof lock, "%s.lock", file);
  rename(path, file);
  check_refused(path, 10, NEAP_SHARED_EREFUSED, file, "is not on tmpfs");
  unlink(file);
  check_refused(path, 10, NEAP_SHARED_EREFUSED, lock, "is not on tmpfs");
  unlink(lock);
  in_own_mounts(check_on_disk);
}

/* ---- Files that are of no use ---- */

typedef union page {
  shared__header header;
  char bytes[65536];
} page;

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static page page_read(void) {
  static page p;
  int fd = open(shared_file, O_RDONLY);
  SAME(pread(fd, p.bytes, page_size(), 0), page_size(), "page 0");
  close(fd);
  return p;
}

static void page_write(page *p, bool sum) {
  if (sum) p->header.sum = shared__sum(p, page_size());
  int fd = open(shared_file, O_WRONLY);
  SAME(pwrite(fd, p->bytes, page_size(), 0), page_size(), "page 0");
  close(fd);
}

/* A panel with a row in it, and nobody who uses it. */
static void make_used(void) {
  neap_shared s = open_shared(10);
  claim_shared(&s, "x");
  neap_shared_close(&s);
}

/* Anew, by rename: who has the old one keeps it. */
static void check_replaced(const char *why) {
  int old = open(shared_file, O_RDONLY);
  struct stat before = stat_of(shared_file), kept;
  check_refused(shared_path, 0, NEAP_SHARED_EDAMAGED, shared_file, why);
  neap_shared s = open_shared(10);
  SAME(s.how, NEAP_SHARED_REPLACED, why);
  HOLDS(strstr(s.notice, why) != NULL && strstr(s.notice, "made anew"), "it says why");
  SAME(neap_panel_count(s.panel), 0, "a new one");
  HOLDS(stat_of(shared_file).st_ino != before.st_ino, "another file");
  SAME(fstat(old, &kept), 0, "the old one");
  SAME(kept.st_size, before.st_size, "was neither cut nor rewritten");
  SAME(kept.st_mtim.tv_nsec, before.st_mtim.tv_nsec, "was neither cut nor rewritten");
  close(old);
  neap_shared_close(&s);
  neap_shared again = open_shared(10);
  SAME(again.how, NEAP_SHARED_ATTACHED, "and that is good");
  neap_shared_close(&again);
  unlink(shared_file);
}

static void a_file_of_another_size_is_replaced(void **unused) {
  (void)unused;
  const struct {
    long size;
    const char *why;
  } cases[] = {
      {0, "has 0 bytes, too few for a panel"},
      {1, "too few for a panel"},
      {4095, "too few for a panel"},
      {4096, "too few for a panel"},
      {8192, "bytes, not the"},
      {1000000, "bytes, not the"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    make_used();
    SAME(truncate(shared_file, cases[i].size), 0, "cut, or longer");
    check_replaced(cases[i].why);
  }
}

static void a_damaged_header_is_replaced(void **unused) {
  (void)unused;
  for (size_t byte = 0; byte < page_size(); byte += byte < sizeof(shared__header) + 8 ? 1 : 97) {
    make_used();
    page p = page_read();
    p.bytes[byte] ^= 0x10;
    page_write(&p, false);
    bool is_magic = byte >= offsetof(shared__header, magic) && byte < 24;
    check_replaced(is_magic ? "is no panel" : "its header is damaged");
  }
}

static void another_kind_of_panel_is_replaced(void **unused) {
  (void)unused;
  for (int i = 0; i < 6; i++) {
    make_used();
    page p = page_read();
    uint32_t *capacity = (uint32_t *)(void *)&p.bytes[page_size() - 64 + 8];
    const char *why = "is of another kind than its name says";
    switch (i) {
      case 0: p.header.layout--; break; /* older */
      case 1: p.header.layout++; break; /* newer */
      case 2: p.header.clock++; break;
      case 3: p.header.page *= 2; break;
      case 4: *capacity = 14, why = "of its 14 rows"; break;
      case 5: *capacity = 0, why = "of its 0 rows"; break;
    }
    page_write(&p, true);
    check_replaced(why);
  }
}

static void another_boot_of_the_machine_is_replaced(void **unused) {
  (void)unused;
  make_used();
  page p = page_read();
  SAME(strlen(p.header.boot), 36, "a boot id");
  p.header.boot[35] = p.header.boot[35] == 'a' ? 'b' : 'a';
  page_write(&p, true);
  check_replaced("is of another boot of the machine");
}

static void another_monotonic_clock_is_refused(void **unused) {
  (void)unused;
  make_used();
  page p = page_read();
  p.header.clock_offset_s = 86400;
  page_write(&p, true);
  refuse("monotonic clock is another");
}

static void what_a_dead_maker_left_is_cleared_away(void **unused) {
  (void)unused;
  char left[120];
  snprintf(left, sizeof left, "%s.new", shared_file);
  int fd = open(left, O_CREAT | O_WRONLY, 0644);
  SAME(write(fd, "half", 4), 4, "half of one");
  close(fd);
  neap_shared s = open_shared(10);
  SAME(s.how, NEAP_SHARED_CREATED, "made");
  SAME(access(left, F_OK), -1, "gone");
  neap_shared_close(&s);
}

/* ---- Processes ---- */

static void a_child_has_its_parents_panel(void **unused) {
  (void)unused;
  neap_rules rules = rules_that_trip_at_once();
  neap_shared s = open_shared(10);
  neap_breaker *b = claim_shared(&s, "x");
  pid_t child = fork_child();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(4711) != 0 || setuid(4711) != 0)) _exit(1); /* as a worker does */
    fail_once(b, &rules, 1000);
    if (neap_shared_claim(&s, "y", 1, NULL) == NULL) _exit(2);
    neap_shared_close(&s);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  SAME(status, 0, "whoever it runs as");
  SAME(neap_breaker_state(b, &rules, 1000), NEAP_OPEN, "its parent sees it");
  HOLDS(neap_panel_find(s.panel, "y", 1) != NULL, "its parent sees it");
  neap_shared_close(&s);
}

#define OPENERS 8
#define RACES   60

/* B224: each must get the same file, and so the same key. */
static void many_that_open_at_once_get_one_file(void **unused) {
  (void)unused;
  struct {
    int go, inode_differs, created;
    _Atomic uint64_t inode;
  } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int race = 0; race < RACES; race++) {
    if (race % 2)
      SAME(truncate(shared_file, race), 0, "half of the races have one to replace");
    else
      unlink(shared_file);
    shared->inode = 0;
    pid_t children[OPENERS];
    for (int i = 0; i < OPENERS; i++)
      if ((children[i] = fork_child()) == 0) {
        neap_shared s;
        if (!neap_shared_open(&s, shared_path, 10, NULL)) _exit(1);
        uint64_t none = 0;
        if (!__atomic_compare_exchange_n((uint64_t *)&shared->inode, &none, s.inode, false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
            none != s.inode)
          _exit(2);
        if (neap_shared_claim(&s, "x", 1, NULL) == NULL) _exit(3);
        _exit(s.how == NEAP_SHARED_ATTACHED ? 0 : 100);
      }
    int makers = 0;
    for (int i = 0; i < OPENERS; i++) {
      int status;
      waitpid(children[i], &status, 0);
      makers += WEXITSTATUS(status) == 100;
      HOLDS(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 100, "all of them open the same");
    }
    SAME(makers, 1, "one of them made it");
    neap_shared s = open_shared(0);
    SAME(neap_panel_count(s.panel), 1, "one key, one row");
    neap_shared_close(&s);
  }
  munmap(shared, 4096);
}

/* A maker that was stopped with the lock in its hand. */
static void nobody_waits_long_for_the_lock(void **unused) {
  (void)unused;
  char lock[120];
  snprintf(lock, sizeof lock, "%s.lock", shared_file);
  neap_shared s = open_shared(10);
  int fd = open(lock, O_RDWR);
  SAME(flock(fd, LOCK_EX), 0, "held");
  neap_shared attached = open_shared(10);
  SAME(attached.how, NEAP_SHARED_ATTACHED, "nobody waits who need not make one");
  neap_shared_close(&attached);
  neap_shared_close(&s);
  unlink(shared_file);
  check_refused(shared_path, 10, NEAP_SHARED_EBUSY, lock, "is it stopped?");
  close(fd);
  s = open_shared(10);
  neap_shared_close(&s);
}

static int lock_of_another(void) {
  char lock[120];
  snprintf(lock, sizeof lock, "%s.lock", shared_file);
  int fd = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  SAME(flock(fd, LOCK_EX), 0, "held");
  return fd;
}

static void *open_and_close(void *opened) {
  neap_shared s;
  *(bool *)opened = neap_shared_open(&s, shared_path, 10, NULL);
  if (*(bool *)opened) neap_shared_close(&s);
  return NULL;
}

/* It is waiting for the lock as soon as it has the file open, too. */
static pthread_t begin_to_open(bool *opened) {
  pthread_t thread;
  SAME(pthread_create(&thread, NULL, open_and_close, opened), 0, "begun");
  usleep(50000);
  SAME(access(shared_file, F_OK), -1, "it waits");
  return thread;
}

static void a_lock_that_was_removed_locks_nothing(void **unused) {
  (void)unused;
  char lock[120];
  snprintf(lock, sizeof lock, "%s.lock", shared_file);
  int removed = lock_of_another();
  bool opened;
  pthread_t thread = begin_to_open(&opened);
  SAME(unlink(lock), 0, "removed");
  int present = lock_of_another();
  close(removed);
  usleep(50000);
  SAME(access(shared_file, F_OK), -1, "it waits for the one that is there");
  close(present);
  pthread_join(thread, NULL);
  HOLDS(opened, "made");
}

static void a_child_that_was_forked_meanwhile_keeps_no_lock(void **unused) {
  (void)unused;
  int fd = lock_of_another();
  bool opened;
  pthread_t thread = begin_to_open(&opened);
  pid_t child = fork_child();
  if (child == 0) {
    close(fd);
    for (;;) pause();
  }
  close(fd);
  pthread_join(thread, NULL);
  HOLDS(opened, "made");
  SAME(unlink(shared_file), 0, "somebody has to make it again");
  neap_shared s = open_shared(10);
  SAME(s.how, NEAP_SHARED_CREATED, "nobody has the lock");
  neap_shared_close(&s);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* ---- Rows ---- */

static void a_full_panel_is_an_error_that_names_it(void **unused) {
  (void)unused;
  neap_shared s = open_shared(2);
  neap_shared_problem problem = {.status = NEAP_SHARED_OK};
  claim_shared(&s, "a");
  claim_shared(&s, "b");
  assert_null(neap_shared_claim(&s, "c", 1, &problem));
  SAME(problem.status, NEAP_SHARED_EFULL, "B223");
  char text[160];
  snprintf(text, sizeof text, "%s: all of its 2 rows are in use", shared_file);
  SAME_TEXT(problem.text, text);
  claim_shared(&s, "b");
  assert_null(neap_shared_claim(&s, "", 0, &problem));
  SAME(problem.status, NEAP_SHARED_ENAME, "as neap_panel_claim()");
  assert_null(neap_shared_claim(&s, "c", 1, NULL));
  neap_shared_close(&s);
}

/* ---- What may happen to a file in use ---- */

static void check_now(const neap_shared *s, neap_shared_status status, const char *what) {
  neap_shared_problem problem = {.text = ""};
  bool good = neap_shared_check(s, &problem);
  if (good != (status == NEAP_SHARED_OK) || problem.status != status ||
      strstr(problem.text, what) == NULL || (!good && !strstr(problem.text, shared_file)))
    fail_msg("good %d, status %d, not %d; said \"%s\"", good, (int)problem.status, (int)status,
             problem.text);
}

static void a_file_that_is_gone_or_another_is_noticed(void **unused) {
  (void)unused;
  neap_shared s = open_shared(10);
  check_now(&s, NEAP_SHARED_OK, "");
  unlink(shared_file);
  check_now(&s, NEAP_SHARED_EGONE, "can't be found any more");
  claim_shared(&s, "x");
  neap_shared other = open_shared(10);
  check_now(&s, NEAP_SHARED_EGONE, "is another file now");
  check_now(&other, NEAP_SHARED_OK, "");
  assert_null(neap_panel_find(other.panel, "x", 1));
  SAME(chmod(shared_file, 0640), 0, "others may read");
  check_now(&other, NEAP_SHARED_EREFUSED, "has mode 0640");
  neap_shared_close(&other);
  neap_shared_close(&s);
}

static void cut_under_a_running_process_it_goes_on_alone(void **unused) {
  (void)unused;
  const long sizes[] = {0, 100, 4096, 12288};
  neap_rules rules = rules_that_trip_at_once();
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    neap_shared s = open_shared(100);
    neap_breaker *b = claim_shared(&s, "x");
    fail_once(b, &rules, 1000);
    SAME(truncate(shared_file, sizes[i]), 0, "cut");
    assert_null(neap_shared_claim(&s, "y", 1, NULL));
    SAME(neap_breaker_state(b, &rules, 1000), NEAP_CLOSED, "a new one, at the old place");
    fail_once(b, &rules, 1000);
    check_now(&s, NEAP_SHARED_EDAMAGED, "goes on alone");
    SAME(neap_breaker_state(b, &rules, 1000), NEAP_OPEN, "and that it remembers");
    SAME(neap_panel_count(s.panel), 0, "nothing is known of the others");
    SAME(neap_panel_capacity(s.panel), 100, "as it was");
    neap_shared_close(&s);
    neap_shared again = open_shared(100);
    SAME(again.how, NEAP_SHARED_REPLACED, "who opens it gets a new one");
    neap_shared_close(&again);
    unlink(shared_file);
  }
}

typedef struct checkers {
  neap_shared shared;
  pthread_barrier_t barrier;
} checkers;

static void *check_once(void *data) {
  checkers *c = data;
  pthread_barrier_wait(&c->barrier);
  neap_shared_check(&c->shared, NULL);
  return NULL;
}

static void several_threads_may_find_it_cut_at_once(void **unused) {
  (void)unused;
  enum { CHECKERS = 4 };
  for (int race = 0; race < 10 * RACES; race++) {
    checkers c = {.shared = open_shared(4)};
    SAME(truncate(shared_file, 0), 0, "cut");
    pthread_barrier_init(&c.barrier, NULL, CHECKERS);
    pthread_t threads[CHECKERS];
    for (int i = 0; i < CHECKERS; i++)
      SAME(pthread_create(&threads[i], NULL, check_once, &c), 0, "a thread");
    for (int i = 0; i < CHECKERS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&c.barrier);
    check_now(&c.shared, NEAP_SHARED_EDAMAGED, "goes on alone");
    SAME(neap_panel_count(c.shared.panel), 0, "empty");
    neap_shared_close(&c.shared);
    unlink(shared_file);
  }
}

static void a_header_that_is_overwritten_leads_nobody_astray(void **unused) {
  (void)unused;
  neap_shared s = open_shared(10);
  neap_breaker *b = claim_shared(&s, "x");
  page p = page_read();
  memset(p.bytes, 0xff, page_size());
  page_write(&p, false);
  SAME(neap_panel_capacity(s.panel), 10, "its own copy");
  HOLDS(neap_panel_find(s.panel, "x", 1) == b, "the key as well");
  check_now(&s, NEAP_SHARED_EDAMAGED, "its header was overwritten");
  assert_null(neap_shared_claim(&s, "y", 1, NULL));
  neap_shared_close(&s);
}

/* Rows, names and hashes: all that is in the file but its header. */
static void rows_that_are_overwritten_are_wrong_but_no_danger(void **unused) {
  (void)unused;
  uint64_t seed = random_seed(5);
  static char bytes[1 << 16];
  neap_rules rules = rules_that_trip_at_once();
  for (unsigned round = 0; round < 200; round++) {
    neap_shared s = open_shared(30);
    for (char name[2] = "a"; name[0] < 'a' + 20; name[0]++) claim_shared(&s, name);
    size_t size = (size_t)stat_of(shared_file).st_size - page_size();
    for (size_t i = 0; i < size; i++) bytes[i] = round % 2 ? (char)random_next(&seed) : (char)0xff;
    int fd = open(shared_file, O_WRONLY);
    SAME(pwrite(fd, bytes, size, (off_t)page_size()), size, "overwritten");
    close(fd);
    check_now(&s, NEAP_SHARED_OK, "");
    neap_breaker *b = NULL;
    for (char name[2] = "a"; name[0] < 'a' + 25; name[0]++) {
      neap_panel_find(s.panel, name, 1);
      neap_panel_claim(s.panel, name, 1, &b);
    }
    for (uint32_t i = 0; i < 30; i++) {
      neap_snapshot seen;
      b = neap_panel_row(s.panel, i);
      if (b != NULL) neap_breaker_snapshot(b, &rules, 1000, &seen);
      HOLDS(b == NULL || strlen(neap_breaker_name(b)) <= NEAP_NAME_MAX, "a name has an end");
    }
    HOLDS(neap_panel_count(s.panel) <= 30, "as many rows as there are");
    neap_shared_close(&s);
    unlink(shared_file);
  }
}

/* ---- The layout ---- */

/* One who changes any of this raises SHARED_LAYOUT, and then writes the new numbers here: processes
 * of two versions must not meet in one file. */
static void the_layout_is_number_2(void **unused) {
  (void)unused;
  SAME(SHARED_LAYOUT, 2, "the number");
  SAME_TEXT(SHARED_LAYOUT_TEXT, "2");
  SAME(sizeof(shared__header), 104, "the header");
  SAME(sizeof(neap__breaker), 1024, "a row");
  SAME(offsetof(neap__breaker, mode), 8, "the words of a breaker");
  SAME(offsetof(neap__breaker, geometry), 16, "the words of a breaker");
  SAME(offsetof(neap__breaker, run), 24, "the words of a breaker");
  SAME(offsetof(neap__breaker, mark), 32, "the words of a breaker");
  SAME(offsetof(neap__breaker, head), 40, "the words of a breaker");
  SAME(offsetof(neap__breaker, opened), 48, "the words of a breaker");
  SAME(offsetof(neap__breaker, folding), 56, "the words of a breaker");
  SAME(offsetof(neap__breaker, cells), 64, "the words of a breaker");
  SAME(offsetof(neap__breaker, totals), 576, "the words of a breaker");
  SAME(offsetof(neap__breaker, duration_sum_ms), 728, "the words of a breaker");
  SAME(offsetof(neap__breaker, durations), 736, "the words of a breaker");
  SAME(offsetof(neap__breaker, transitions), 848, "the words of a breaker");
  SAME(offsetof(neap__breaker, name), 920, "the words of a breaker");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IT_SHARED("the first makes it and the next attach", the_first_makes_it_and_the_next_attach),
      IT_SHARED("it is for its owner only, whatever the umask",
                it_is_for_its_owner_only_whatever_the_umask),
      IT_SHARED("it keeps the capacity it was made with (B211)",
                it_keeps_the_capacity_it_was_made_with),
      IT_SHARED("zero never makes one", zero_never_makes_one),
      IT_SHARED("what is asked must make sense", what_is_asked_must_make_sense),
      IT_SHARED("the system may refuse, with one line", the_system_may_refuse_with_one_line),
      IT_SHARED("a full tmpfs is an error at opening and never later",
                a_full_tmpfs_is_an_error_at_opening_and_never_later),
      IT_SHARED("without /proc it says what it needs", without_proc_it_says_what_it_needs),
      IT_SHARED("without /dev/shm it says so", without_dev_shm_it_says_so),
      IT_SHARED("a symbolic link is refused", a_symbolic_link_is_refused),
      IT_SHARED("what is no file is refused", what_is_no_file_is_refused),
      IT_SHARED("a file that others may use is refused", a_file_that_others_may_use_is_refused),
      IT_SHARED("a lock that is not ours is refused", a_lock_that_is_not_ours_is_refused),
      IT_SHARED("a file with another name is refused", a_file_with_another_name_is_refused),
      IT_SHARED("only tmpfs will do", only_tmpfs_will_do),
      IT_SHARED("a file of another size is replaced (B211)", a_file_of_another_size_is_replaced),
      IT_SHARED("a damaged header is replaced (B211)", a_damaged_header_is_replaced),
      IT_SHARED("another kind of panel is replaced (B211)", another_kind_of_panel_is_replaced),
      IT_SHARED("another boot of the machine is replaced", another_boot_of_the_machine_is_replaced),
      IT_SHARED("another monotonic clock is refused", another_monotonic_clock_is_refused),
      IT_SHARED("what a dead maker left is cleared away", what_a_dead_maker_left_is_cleared_away),
      IT_SHARED("a child has its parent's panel", a_child_has_its_parents_panel),
      IT_SHARED("many that open at once get one file (B224)", many_that_open_at_once_get_one_file),
      IT_SHARED("nobody waits long for the lock", nobody_waits_long_for_the_lock),
      IT_SHARED("a lock that was removed locks nothing", a_lock_that_was_removed_locks_nothing),
      IT_SHARED("a child that was forked meanwhile keeps no lock",
                a_child_that_was_forked_meanwhile_keeps_no_lock),
      IT_SHARED("a full panel is an error that names it (B223)",
                a_full_panel_is_an_error_that_names_it),
      IT_SHARED("a file that is gone or another is noticed",
                a_file_that_is_gone_or_another_is_noticed),
      IT_SHARED("cut under a running process it goes on alone",
                cut_under_a_running_process_it_goes_on_alone),
      IT_SHARED("several threads may find it cut at once", several_threads_may_find_it_cut_at_once),
      IT_SHARED("a header that is overwritten leads nobody astray",
                a_header_that_is_overwritten_leads_nobody_astray),
      IT_SHARED("rows that are overwritten are wrong but no danger",
                rows_that_are_overwritten_are_wrong_but_no_danger),
      IT("the layout is number 2", the_layout_is_number_2),
  };
  return cmocka_run_group_tests_name("panel shared", tests, NULL, NULL);
}
