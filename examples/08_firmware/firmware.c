/* The core in a firmware: static memory, a tick counter for a clock, no atomics, and of libc only
 * memcpy and memset.  A turn of the control loop has 10 ms; a sensor that is gone holds the bus for
 * 25.  Without the breaker, 80 turns of the outage would be late.
 *
 *   cc -std=c11 -Os -ffreestanding -ffunction-sections -fdata-sections -DNDEBUG -DNEAP_ATOMICS=0 \
 *     -Icore/include -c firmware.c core/src/{breaker,names,report,rules,snapshot,window}.c
 *   cc -nostdlib -Wl,--gc-sections *.o your_start_up.o -lgcc */
#include <neap/neap.h>

/* ---- The board: what your vendor's code does ------------------------------------------------- */

static volatile uint32_t ticks; /* ms; yours: SysTick_Handler() adds one */

static void board_wait(uint32_t ms) { ticks += ms; } /* yours: sleep until the interrupt */

static bool sensor_read(int *value) {
  if (ticks >= 1000 && ticks < 3000) { /* the plug is out: the bus driver's timeout */
    board_wait(25);
    return false;
  }
  board_wait(1);
  *value = 20 + (int)(ticks / 1000);
  return true;
}

extern long write(int fd, const void *bytes, size_t size); /* yours: the UART */

static void print(const char *text) {
  size_t length = 0;
  while (text[length]) length++;
  if (write(1, text, length) < 0) return; /* nobody to tell */
}

static void print_number(uint32_t n) {
  char digits[11] = {0};
  char *at = digits + sizeof digits - 1;
  do *--at = (char)('0' + n % 10);
  while (n /= 10);
  print(at);
}

/* ---- The clock ------------------------------------------------------------------------------- */

/* 64 bits out of 32, which wrap after 49 days: called more often than that, and not from
 * interrupts.  (A 64-bit counter that an interrupt writes can't be read in one go.) */
static uint64_t now_ms(void *context) {
  static uint32_t last, wraps;
  (void)context;
  uint32_t now = ticks;
  if (now < last) wraps++;
  last = now;
  return (uint64_t)wraps << 32 | now;
}

/* ---- The sensor, guarded --------------------------------------------------------------------- */

static neap_breaker breaker; /* 1,024 bytes; all zero: closed */
static neap_rules rules;     /* one for all breakers that are judged alike */
static const neap_clock tick_clock = {now_ms, NULL};

static void print_move(const neap_transition *moved) {
  if (moved->cause == NEAP_BY_NOTHING) return;
  print_number(ticks);
  print(" ms: ");
  print(neap_state_name(moved->from));
  print(" -> ");
  print(neap_state_name(moved->to));
  print("\n");
}

/* True with a fresh value, or false at once when the sensor is known to be away. */
static bool sensor_ask(int *value) {
  neap_transition moved = {.cause = NEAP_BY_NOTHING};
  neap_permit permit;
  neap_verdict verdict = neap_breaker_acquire_on(&breaker, &rules, &tick_clock, &permit, &moved);
  print_move(&moved);
  if (verdict > NEAP_ALLOW_BYPASS) return false;

  moved.cause = NEAP_BY_NOTHING;
  bool ok = sensor_read(value);
  neap_call call = {.outcome = ok ? NEAP_SUCCESS : NEAP_TIMEOUT};
  neap_breaker_report_on(&breaker, &rules, &tick_clock, &permit, &call, &moved);
  print_move(&moved);
  return ok;
}

int main(void) {
  rules = neap_rules_default();
  rules.consecutive_failures = 3;
  rules.cooldown_ms = 400;
  rules.max_cooldown_ms = 400;
  rules.jitter = 0; /* there is but one of us */
  rules.probes = rules.successes = 1;
  neap_error error;
  if (!neap_rules_prepare(&rules, &error)) {
    print(error.field);
    print(" ");
    print(error.expected);
    return 1;
  }

  int value = 0; /* of the last good reading: what the loop steers by when there is no other */
  uint32_t late = 0, steered_blind = 0;
  while (ticks < 5000) {
    uint32_t begin = ticks;
    if (!sensor_ask(&value)) steered_blind++;
    uint32_t took = ticks - begin;
    if (took > 10)
      late++;
    else
      board_wait(10 - took);
  }
  print_number(steered_blind);
  print(" turns on an old value, but only ");
  print_number(late);
  print(" of them late\n");
  return 0;
}

/* prints
1075 ms: closed -> open
1475 ms: open -> half_open
1500 ms: half_open -> open
1900 ms: open -> half_open
1925 ms: half_open -> open
2325 ms: open -> half_open
2350 ms: half_open -> open
2750 ms: open -> half_open
2775 ms: half_open -> open
3175 ms: open -> half_open
3176 ms: half_open -> closed
207 turns on an old value, but only 7 of them late
*/
