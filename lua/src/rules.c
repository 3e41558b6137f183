/* rules.c: a table of numbers made into prepared rules, and back. */
#include "binding.h"

#include <math.h>
#include <string.h>

typedef enum field_kind { COUNT, SHARE, SWITCH, SEED, WINDOW, MODE } field_kind;

typedef struct field {
  const char *name;
  size_t offset;
  field_kind kind;
} field;

#define FIELD(kind, name)                                                                          \
  { #name, offsetof(neap_rules, name), kind }

static const field fields[] = {
    FIELD(WINDOW, window),
    FIELD(COUNT, length_ms),
    FIELD(COUNT, calls),
    FIELD(COUNT, failures),
    FIELD(COUNT, consecutive_failures),
    FIELD(SHARE, failure_rate),
    FIELD(SHARE, slow_rate),
    FIELD(COUNT, slow_call_ms),
    FIELD(COUNT, minimum_calls),
    FIELD(SWITCH, trip_by_function),
    FIELD(COUNT, cooldown_ms),
    FIELD(COUNT, max_cooldown_ms),
    FIELD(SHARE, backoff),
    FIELD(SHARE, jitter),
    FIELD(SEED, seed),
    FIELD(COUNT, probes),
    FIELD(COUNT, successes),
    FIELD(COUNT, concurrent),
    FIELD(COUNT, timeout_ms),
    FIELD(COUNT, lease_ms),
    FIELD(COUNT, ramp_ms),
    FIELD(SWITCH, decide_by_function),
    FIELD(MODE, mode),
    FIELD(SWITCH, count_refusals),
};
#define FIELDS (sizeof fields / sizeof fields[0])

static const field *field_find(const char *name) {
  for (size_t i = 0; i < FIELDS; i++)
    if (strcmp(fields[i].name, name) == 0) return &fields[i];
  return NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* What does not fit a member is set to its largest value: preparing the rules then tells the range,
 * if it has one. */
static const char *read_count(lua_State *L, int index, void *member) {
  lua_Number n = lua_tonumber(L, index);
  if (lua_type(L, index) != LUA_TNUMBER || !isfinite(n) || n != floor(n))
    return "must be a whole number";
  *(uint32_t *)member = n >= 0 && n < 4294967295.0 ? (uint32_t)n : UINT32_MAX;
  return NULL;
}

static const char *read_share(lua_State *L, int index, void *member) {
  lua_Number n = lua_tonumber(L, index);
  if (lua_type(L, index) != LUA_TNUMBER || !isfinite(n)) return "must be a number";
  lua_Number millionths = floor(n * NEAP_ONE + 0.5);
  if (n > 0 && millionths == 0) return "must be 0 or at least 0.000001";
  *(uint32_t *)member = n >= 0 && millionths < 4294967295.0 ? (uint32_t)millionths : UINT32_MAX;
  return NULL;
}

static const char *read_seed(lua_State *L, int index, void *member) {
  return neap__read_ms(L, index, (uint64_t *)member) &&
                 lua_tonumber(L, index) == floor(lua_tonumber(L, index))
             ? NULL
             : "must be a whole number, 0 or more";
}

static const char *read_switch(lua_State *L, int index, void *member) {
  if (!lua_isboolean(L, index)) return "must be true or false";
  *(bool *)member = lua_toboolean(L, index) != 0;
  return NULL;
}

static const char *read_window(lua_State *L, int index, void *member) {
  const char *name = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
  bool is_count = strcmp(name, "count") == 0;
  if (!is_count && strcmp(name, "time") != 0) return "must be \"time\" or \"count\"";
  *(neap_window_kind *)member = is_count ? NEAP_WINDOW_COUNT : NEAP_WINDOW_TIME;
  return NULL;
}

static const char *read_mode(lua_State *L, int index, void *member) {
  const char *name = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
  if (!neap__read_mode(name, (neap_mode *)member))
    return "must be \"auto\", \"forced_open\", \"forced_closed\" or \"shadow\"";
  return NULL;
}

static const char *field_read(lua_State *L, int index, const field *f, neap_rules *rules) {
  static const char *(*const readers[])(lua_State *, int, void *) = {
      [COUNT] = read_count, [SHARE] = read_share,   [SWITCH] = read_switch,
      [SEED] = read_seed,   [WINDOW] = read_window, [MODE] = read_mode,
  };
  return readers[f->kind](L, index, (char *)rules + f->offset);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void push_scaled(lua_State *L, field_kind kind, uint64_t value) {
  if (kind == SHARE)
    lua_pushnumber(L, (lua_Number)value / NEAP_ONE);
  else
    compat_pushwide(L, value);
}

static void field_push(lua_State *L, const field *f, const neap_rules *rules) {
  const void *member = (const char *)rules + f->offset;
  switch (f->kind) {
    case COUNT:
    case SHARE: push_scaled(L, f->kind, *(const uint32_t *)member); break;
    case SEED: push_scaled(L, f->kind, *(const uint64_t *)member); break;
    case SWITCH: lua_pushboolean(L, *(const bool *)member); break;
    case WINDOW: lua_pushstring(L, rules->window == NEAP_WINDOW_COUNT ? "count" : "time"); break;
    case MODE: lua_pushstring(L, neap_mode_name(rules->mode)); break;
  }
}

/* nil, { field =, expected =, value = }; the value is in `given`, the table of the rules, or else
 * the default. */
static int push_fault(lua_State *L, const char *name, const char *expected, int given) {
  lua_pushnil(L);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "field");
  lua_pushstring(L, expected);
  lua_setfield(L, -2, "expected");
  lua_pushstring(L, name);
  lua_rawget(L, given);
  lua_setfield(L, -2, "value");
  return 2;
}

static int push_error(lua_State *L, const neap_error *error, int given) {
  const field *f = field_find(error->field);
  field_kind kind = f ? f->kind : COUNT;
  push_fault(L, error->field, error->expected, given);
  lua_getfield(L, -1, "value");
  if (lua_isnil(L, -1)) {
    push_scaled(L, kind, error->value);
    lua_setfield(L, -3, "value");
  }
  lua_pop(L, 1);
  push_scaled(L, kind, error->min);
  lua_setfield(L, -2, "min");
  push_scaled(L, kind, error->max);
  lua_setfield(L, -2, "max");
  return 2;
}

/* ---- Functions ------------------------------------------------------------------------------- */

static void check_keys(lua_State *L, int given) {
  lua_pushnil(L);
  while (lua_next(L, given)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      luaL_argerror(L, given, lua_pushfstring(L, "no rule is named by %s", luaL_typename(L, -1)));
    if (!field_find(lua_tostring(L, -1)))
      luaL_argerror(L, given, lua_pushfstring(L, "there is no rule \"%s\"", lua_tostring(L, -1)));
  }
}

/* rules(numbers) -> rules | nil, { field =, expected =, value =, min =, max = } */
static int l_rules(lua_State *L) {
  if (!lua_istable(L, 1)) neap__argument_error(L, 1, "rules", "a table");
  lua_settop(L, 1);
  check_keys(L, 1);
  neap_rules rules = neap_rules_default();
  for (size_t i = 0; i < FIELDS; i++) {
    lua_pushstring(L, fields[i].name);
    lua_rawget(L, 1);
    const char *expected = lua_isnil(L, -1) ? NULL : field_read(L, -1, &fields[i], &rules);
    if (expected) return push_fault(L, fields[i].name, expected, 1);
    lua_pop(L, 1);
  }
  neap_error error;
  if (!neap_rules_prepare(&rules, &error)) return push_error(L, &error, 1);
  neap_rules *box = (neap_rules *)compat_new(L, sizeof *box, 0);
  *box = rules;
  luaL_setmetatable(L, NEAP__RULES);
  return 1;
}

/* rules:numbers() -> table: all of them, derived ones included */
static int l_numbers(lua_State *L) {
  const neap_rules *rules = neap__check_rules(L, 1);
  lua_createtable(L, 0, (int)FIELDS);
  for (size_t i = 0; i < FIELDS; i++) {
    field_push(L, &fields[i], rules);
    lua_setfield(L, -2, fields[i].name);
  }
  return 1;
}

/* rules:cooldown_ms(level) -> ms, without jitter */
static int l_cooldown_ms(lua_State *L) {
  const neap_rules *rules = neap__check_rules(L, 1);
  compat_pushwide(L,
                  neap_rules_cooldown_ms(rules, (uint32_t)neap__check_count(L, 2, "level", 1, 31)));
  return 1;
}

static int l_tostring(lua_State *L) {
  const neap_rules *rules = neap__check_rules(L, 1);
  lua_pushfstring(L, "neap.rules (%s window)",
                  rules->window == NEAP_WINDOW_COUNT ? "count" : "time");
  return 1;
}

void neap__open_rules(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"numbers", l_numbers},
      {"cooldown_ms", l_cooldown_ms},
      {"__tostring", l_tostring},
      {NULL, NULL},
  };
  luaL_getmetatable(L, NEAP__RULES);
  neap__push_metatables(L);
  luaL_setfuncs(L, methods, UP_COUNT);
  lua_pop(L, 1);
  lua_pushcfunction(L, l_rules);
  lua_setfield(L, -2, "rules");
}
