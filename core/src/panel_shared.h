/* panel_shared.h: the file of a shared panel.
 *
 *   page 0                               page 1 and on
 *   +----------------+---+--------------+----------------------------+---------------------------+
 *   | shared__header | 0 | panel header | hashes: 8 bytes a row      | rows: 1,024 bytes each    |
 *   +----------------+---+--------------+----------------------------+---------------------------+
 *
 * Page 0 is written before the file has its name, and never again.  A process reads it once and
 * goes by a copy of its own, so that nobody who writes over it can lead it out of its memory.
 *
 * In a process: | page 0 as it is in the file | its copy | page 1 and on | */
#ifndef NEAP_PANEL_SHARED_INSIDE_H
#define NEAP_PANEL_SHARED_INSIDE_H

#include <stddef.h>
#include <stdint.h>

/* To be raised with every change of neap__breaker, of its words' bits or of a panel. */
#define SHARED_LAYOUT      2
#define SHARED_LAYOUT_TEXT "2"

#define SHARED_MAGIC           "neap panel\n\0\0\0\0"
#define SHARED_CLOCK_MONOTONIC 1

typedef struct shared__header {
  uint64_t sum;   /* of the rest of page 0 */
  char magic[16]; /* SHARED_MAGIC */
  uint32_t layout, clock;
  uint64_t size, page;                     /* of the file, and of its page 0 */
  int64_t clock_offset_s, clock_offset_ns; /* of the time namespace */
  char boot[40];                           /* the machine's boot id */
} shared__header;

/* FNV-1a (Fowler, Noll, Vo): against accidents, not against an enemy. */
static inline uint64_t shared__sum(const void *page, size_t size) {
  const unsigned char *bytes = (const unsigned char *)page;
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  for (size_t i = sizeof sum; i < size; i++) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
  return sum;
}

#endif
