/* bench_memory: what breakers take, and what many of them do to the caches.
 *
 *   bench_memory ROUNDS
 *
 * Prints NAME, tab, numbers: bytes as they are, times as rounds in nanoseconds. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "floors.h"
#include "measure.h"

#define MANY    1000000u
#define NAMED   10000u
#define VISITED (1u << 20)

static void out_of_memory(const char *what) {
  fprintf(stderr, "bench_memory: not enough memory for %s\n", what);
  exit(1);
}

static size_t resident_bytes(void) {
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == NULL || fscanf(f, "%*u %lu", &pages) != 1) pages = 0;
  if (f != NULL) fclose(f);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- one breaker, many calls ---- */

static void print_growth(void) {
  static neap_breaker breaker;
  bench_subject s = {.breaker = &breaker};
  const char *names[] = {"pair, 10 % fail", "pair, new slice", "trip, probe and close"};
  size_t before = mallinfo2().uordblks;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    const bench_path *path = path_find(shared_paths, names[i]);
    path->prepare(&s);
    path->run(&s, 1000000);
  }
  size_t grown = mallinfo2().uordblks - before; /* before stdio has its buffer */
  printf("bytes of a breaker\t%zu\n", sizeof breaker);
  printf("bytes allocated in 1e6 calls\t%zu\n", grown);
}

/* ---- many breakers ---- */

typedef struct many {
  neap_breaker **order; /* VISITED of them, at random */
  bench_subject subject;
} many;

static neap_panel *panel_new(uint32_t capacity) {
  size_t size = neap_panel_size(capacity);
  void *memory = aligned_alloc(64, size);
  neap_panel *p;
  if (memory == NULL || neap_panel_init(memory, size, capacity, 1, &p) != NEAP_OK)
    out_of_memory("a panel");
  return p;
}

static int name_of(char name[32], uint32_t i) { return snprintf(name, 32, "policy/key-%u", i); }

static void panel_fill(neap_panel *p, uint32_t count, const neap_rules *rules) {
  for (uint32_t i = 0; i < count; i++) {
    char name[32];
    int length = name_of(name, i);
    neap_breaker *b;
    if (neap_panel_claim(p, name, (size_t)length, &b) != NEAP_OK) abort();
    neap_breaker_adopt(b, rules);
  }
}

static uint32_t next_random(uint64_t *seed) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*seed >> 32);
}

static many many_new(neap_panel *p, uint32_t count, const bench_subject *s) {
  many m = {.order = malloc(VISITED * sizeof *m.order), .subject = *s};
  if (m.order == NULL) out_of_memory("the order of visits");
  uint64_t seed = 1;
  for (uint32_t i = 0; i < VISITED; i++)
    m.order[i] = neap_panel_row(p, (uint32_t)((uint64_t)next_random(&seed) * count >> 32));
  return m;
}

static void touch(void *state, size_t n) {
  many *m = state;
  for (size_t i = 0; i < n; i++) (*(volatile uint64_t *)&m->order[i % VISITED]->opaque[3])++;
}

/* Where the next one is waits for what this one holds: 0, as it has never been open. */
static void miss(void *state, size_t n) {
  many *m = state;
  for (size_t i = 0; i < n; i++) i += *(volatile uint64_t *)&m->order[i % VISITED]->opaque[6];
}

static void visit(void *state, size_t n) {
  many *m = state;
  bench_subject *s = &m->subject;
  for (size_t i = 0; i < n; i++) {
    neap_breaker *b = m->order[i % VISITED];
    neap_permit permit;
    neap_call call = {.outcome = NEAP_SUCCESS};
    neap_breaker_acquire(b, &s->rules, s->now_ms, &permit, NULL);
    neap_breaker_report(b, &s->rules, s->now_ms, &permit, &call, NULL);
  }
}

/* ---- names ---- */

typedef struct names {
  neap_panel *panel;
  char (*text)[32];
  uint8_t *length;
} names;

static void look_up(void *state, size_t n) {
  names *t = state;
  for (size_t i = 0; i < n; i++) {
    size_t k = i % NAMED;
    if (neap_panel_find(t->panel, t->text[k], t->length[k]) == NULL) abort();
  }
}

static names names_new(const neap_rules *rules) {
  names t = {panel_new(2 * NAMED), malloc(NAMED * 32), malloc(NAMED)};
  if (t.text == NULL || t.length == NULL) out_of_memory("names");
  panel_fill(t.panel, NAMED, rules);
  for (uint32_t i = 0; i < NAMED; i++)
    t.length[i] = (uint8_t)name_of(t.text[i], i * UINT32_C(7919) % NAMED);
  return t;
}

int main(int argc, char **argv) {
  unsigned rounds = argc == 2 ? (unsigned)atoi(argv[1]) : 0;
  if (rounds == 0) {
    fprintf(stderr, "usage: bench_memory ROUNDS\n");
    return 2;
  }
  print_growth();

  static neap_breaker one;
  bench_subject s = {.breaker = &one};
  path_find(shared_paths, "pair")->prepare(&s);
  printf("bytes of a panel for 1e6\t%zu\n", neap_panel_size(MANY));
  size_t before = resident_bytes();
  neap_panel *p = panel_new(MANY);
  panel_fill(p, MANY, &s.rules);
  many m = many_new(p, MANY, &s), same = many_new(p, 1, &s);
  visit(&m, VISITED);
  printf("bytes resident of 1e6\t%zu\n", resident_bytes() - before);

  names t = names_new(&s.rules);
  static floor_state floor;
  measurement all[] = {
      {.name = "floor touch, 1e6 at random", .run = touch, .state = {&m}, .is_wanted = true},
      {.name = "floor missed line, 1e6 at random", .run = miss, .state = {&m}, .is_wanted = true},
      {.name = "shared pair, 1e6 at random", .run = visit, .state = {&m}, .is_wanted = true},
      {.name = "shared pair, 1 of 1e6", .run = visit, .state = {&same}, .is_wanted = true},
      {.name = "name lookup, 10,000 names", .run = look_up, .state = {&t}, .is_wanted = true},
      {.name = "floor empty call", .run = floor_call, .state = {&s}, .is_wanted = true},
      {.name = "floor fetch_add", .run = floor_add, .state = {&floor}, .is_wanted = true},
  };
  size_t count = sizeof all / sizeof *all;
  measure_rounds(all, count, rounds);
  for (size_t i = 0; i < count; i++) {
    printf("%s\t", all[i].name);
    for (unsigned r = 0; r < rounds; r++) printf(r ? " %.3f" : "%.3f", all[i].ns[r]);
    putchar('\n');
  }
  return 0;
}
