#include "step.h"

#include <errno.h>

#if defined(__linux__) && defined(__x86_64__)

#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* The bytes at `address`: the first `size` of them that can be read. */
static bool peek(pid_t child, uint64_t address, uint8_t bytes[16]) {
  for (unsigned i = 0; i < 2; i++) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, child, (void *)(uintptr_t)(address + i * 8), NULL);
    if (errno != 0) return false;
    memcpy(bytes + i * 8, &word, 8);
  }
  return true;
}

static bool is_locked(const uint8_t *b) {
  bool lock = false;
  while (*b == 0xf0 || *b == 0x66 || *b == 0xf2 || *b == 0xf3) lock |= *b++ == 0xf0;
  if ((*b & 0xf0) == 0x40) b++; /* REX */
  bool is_exchange = *b == 0x86 || *b == 0x87;
  return lock || (is_exchange && b[1] >> 6 != 3);
}

/* The child stops itself before and after f with a breakpoint instruction. */
static bool follow(pid_t child, step_counts *out) {
  int status;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
  if (ptrace(PTRACE_CONT, child, NULL, NULL) != 0) return false;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
  for (;;) {
    struct user_regs_struct regs;
    uint8_t bytes[16];
    if (ptrace(PTRACE_GETREGS, child, NULL, &regs) != 0) return false;
    if (!peek(child, regs.rip, bytes)) return false;
    if (bytes[0] == 0xcc) return true;
    out->instructions++;
    out->locked += is_locked(bytes);
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0) return false;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return false;
  }
}

bool step_count(void (*f)(void *), void *data, step_counts *out) {
  *out = (step_counts){0, 0};
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
    raise(SIGSTOP);
    __asm__ volatile("int3");
    f(data);
    __asm__ volatile("int3");
    _exit(0);
  }
  bool done = follow(child, out);
  int error = errno;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  errno = error;
  return done;
}

#else

bool step_count(void (*f)(void *), void *data, step_counts *out) {
  (void)f, (void)data, (void)out;
  errno = ENOTSUP;
  return false;
}

#endif
