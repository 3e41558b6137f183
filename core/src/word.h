/* word.h: the words that threads and processes share.  Everything that two may write at once goes
 * through here.
 *
 * Built with NEAP_ATOMICS=OFF (or 0), for one thread on targets without 64-bit atomics, a word is a
 * plain integer. */
#ifndef NEAP_WORD_H
#define NEAP_WORD_H

#include <stdbool.h>
#include <stdint.h>

#ifndef NEAP_ATOMICS
#define NEAP_ATOMICS 1
#endif
#define NEAP__ATOMICS_1     1
#define NEAP__ATOMICS_0     0
#define NEAP__ATOMICS_ON    1
#define NEAP__ATOMICS_OFF   0
#define NEAP__PASTE(a, b)   a##b
#define NEAP__CHOICE(value) NEAP__PASTE(NEAP__ATOMICS_, value)

#if NEAP__CHOICE(NEAP_ATOMICS)

#include <stdatomic.h>
typedef _Atomic uint64_t neap__word;
typedef _Atomic uint32_t neap__half;

/* What decides a transition is sequentially consistent: the protocol was checked so
 * (tests/model). */
static inline uint64_t word_load(const neap__word *w) {
  return atomic_load_explicit((neap__word *)(uintptr_t)w, memory_order_seq_cst);
}

static inline bool word_swap(neap__word *w, uint64_t old, uint64_t new) {
  return atomic_compare_exchange_strong_explicit(w, &old, new, memory_order_seq_cst,
                                                 memory_order_seq_cst);
}

static inline void word_store(neap__word *w, uint64_t value) {
  atomic_store_explicit(w, value, memory_order_seq_cst);
}

/* Counters decide nothing. */
static inline void word_add(neap__word *w, uint64_t n) {
  atomic_fetch_add_explicit(w, n, memory_order_relaxed);
}

static inline void half_add(neap__half *w, uint32_t n) {
  atomic_fetch_add_explicit(w, n, memory_order_relaxed);
}

static inline uint32_t half_load(const neap__half *w) {
  return atomic_load_explicit((neap__half *)(uintptr_t)w, memory_order_relaxed);
}

#else

typedef uint64_t neap__word;
typedef uint32_t neap__half;

static inline uint64_t word_load(const neap__word *w) { return *w; }

static inline bool word_swap(neap__word *w, uint64_t old, uint64_t new) {
  (void)old; /* nobody else writes */
  *w = new;
  return true;
}

static inline void word_store(neap__word *w, uint64_t value) { *w = value; }
static inline void word_add(neap__word *w, uint64_t n) { *w += n; }
static inline void half_add(neap__half *w, uint32_t n) { *w += n; }
static inline uint32_t half_load(const neap__half *w) { return *w; }

#endif

/* After a swap that somebody else won: leaves the line of memory to them for a fraction of a
 * microsecond, in which they count some dozens of outcomes instead of handing it to and fro. */
static inline void word_pause(void) {
  for (unsigned i = 0; i < 8; i++) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
  }
}

#if defined(__GNUC__)
#define NEAP__LIKELY(x)   __builtin_expect(!!(x), 1)
#define NEAP__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NEAP__NOINLINE    __attribute__((noinline))
#define NEAP__AT_ONCE     inline __attribute__((always_inline))
#define NEAP__HIDDEN      __attribute__((visibility("hidden")))
#define NEAP__AS_WRITTEN  __attribute__((used)) /* its arguments stay where the caller has them */
#else
#define NEAP__LIKELY(x)   (x)
#define NEAP__UNLIKELY(x) (x)
#define NEAP__NOINLINE
#define NEAP__AT_ONCE inline
#define NEAP__HIDDEN
#define NEAP__AS_WRITTEN
#endif

#endif
