/* What a board's start-up code and compiler support give a firmware, for a Linux process that has no
 * libc: an entry, the three functions that the core takes from elsewhere, and a UART. */
#include <stddef.h>

int main(void);
long write(int fd, const void *bytes, size_t size);
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
void *memchr(const void *in, int byte, size_t size);

#if defined(__x86_64__)
#define WRITE 1
#define EXIT  60
static long system_call(long number, long a, const void *b, size_t c) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start: and $-16, %rsp\n call start\n");
#else
#define WRITE 4
#define EXIT  1
static long system_call(long number, long a, const void *b, size_t c) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
  return result;
}
__asm__(".globl _start\n_start: and $-16, %esp\n call start\n");
#endif

void start(void);
void start(void) { system_call(EXIT, main(), NULL, 0); }

long write(int fd, const void *bytes, size_t size) { return system_call(WRITE, fd, bytes, size); }

void *memcpy(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int byte, size_t size) {
  for (size_t i = 0; i < size; i++) ((char *)to)[i] = (char)byte;
  return to;
}

void *memchr(const void *in, int byte, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (((const char *)in)[i] == (char)byte) return (char *)(size_t)in + i;
  return NULL;
}
