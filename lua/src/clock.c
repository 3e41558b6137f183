/* clock.c: the system's clocks as Lua functions. */
#include "binding.h"

/* clock_coarse() -> now_ms */
static int l_coarse(lua_State *L) {
  neap_clock clock = neap_clock_coarse();
  compat_pushwide(L, clock.now_ms(clock.context));
  return 1;
}

/* clock_precise() -> now_ms */
static int l_precise(lua_State *L) {
  neap_clock clock = neap_clock_precise();
  compat_pushwide(L, clock.now_ms(clock.context));
  return 1;
}

void neap__open_clock(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"clock_coarse", l_coarse},
      {"clock_precise", l_precise},
      {NULL, NULL},
  };
  luaL_setfuncs(L, functions, 0);
}
