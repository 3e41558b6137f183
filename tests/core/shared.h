/* shared.h: what tests of shared panels need: a directory of their own on tmpfs. */
#ifndef NEAP_TESTS_SHARED_H
#define NEAP_TESTS_SHARED_H

#include "support.h"

#include <neap/panel_shared.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "panel_shared.h"

static char shared_dir[64];
static char shared_path[80]; /* as it is asked for */
static char shared_file[96]; /* as it is */

static inline int shared_remove_one(const char *path, const struct stat *st, int kind,
                                    struct FTW *ftw) {
  (void)st, (void)kind, (void)ftw;
  return remove(path);
}

static inline int shared_clean(void **unused) {
  (void)unused;
  nftw(shared_dir, shared_remove_one, 8, FTW_DEPTH | FTW_PHYS);
  return 0;
}

/* An empty directory for each test. */
static inline int shared_begin(void **unused) {
  (void)unused;
  snprintf(shared_dir, sizeof shared_dir, "/dev/shm/neap-test-%ld", (long)getpid());
  snprintf(shared_path, sizeof shared_path, "%s/panel", shared_dir);
  snprintf(shared_file, sizeof shared_file, "%s.v" SHARED_LAYOUT_TEXT, shared_path);
  shared_clean(NULL);
  return mkdir(shared_dir, 0700);
}

/* In a child a check that fails ends it, where cmocka would go on with the next test; and none
 * outlives the program, whatever it was about. */
static inline pid_t fork_child(void) {
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  return pid;
}

#define IT_SHARED(title, function)                                                                 \
  { title, function, shared_begin, shared_clean, NULL }

static inline neap_shared open_shared(uint32_t capacity) {
  neap_shared s;
  neap_shared_problem problem = {.text = ""};
  bool done = neap_shared_open(&s, shared_path, capacity, &problem);
  SAME_TEXT(problem.text, "");
  HOLDS(done, "it opens");
  return s;
}

static inline neap_breaker *claim_shared(const neap_shared *s, const char *name) {
  neap_shared_problem problem = {.text = ""};
  neap_breaker *b = neap_shared_claim(s, name, strlen(name), &problem);
  SAME_TEXT(problem.text, "");
  return b;
}

/* It can't be opened: that status, and a line that begins with `where` and has `what` in it. */
static inline void check_refused(const char *path, uint32_t capacity, neap_shared_status status,
                                 const char *where, const char *what) {
  neap_shared s = {.how = (neap_shared_how)77};
  neap_shared_problem problem = {.text = ""};
  bool done = neap_shared_open(&s, path, capacity, &problem);
  if (done || problem.status != status || strncmp(problem.text, where, strlen(where)) != 0 ||
      strstr(problem.text, what) == NULL)
    fail_msg("opened %d, status %d, not %d; said \"%s\", not \"%s ... %s\"", done,
             (int)problem.status, (int)status, problem.text, where, what);
  HOLDS((int)s.how == 77 && s.panel == NULL, "a function that fails changes nothing");
}

#endif
