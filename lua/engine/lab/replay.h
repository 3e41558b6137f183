/* replay.h: the Lua side of a replay: neap.lab.native.
 *
 *   native.open(options) -> source | nil, message
 *     options: paths; format, log_format, key or nil; maps: a list of { role =, name =, unit = }
 *   source:begin()           reads to the first call
 *   source:seed(policy)      -> the seed that a recording has for it, in two halves | nil
 *   source:add(lane)         before the first step; see neap.lab.replay for its fields
 *   source:step(calls)       -> true: there are no more; false: so many were read
 *   source:progress()        -> bytes read, bytes of all or nil, calls
 *   source:stats()           -> { calls =, lines =, ..., damaged = { ... }, logs = { ... } }
 *   source:counts(number)    -> those of all keys of a lane together, as yet
 *   source:lane(number)      -> { all =, keys = { ... }, series =, ... }
 *   source:series(lane, key) -> as that of a lane | nil
 *   source:close()
 *   native.roles             -> { { name =, what = } ... }, for people
 *   native.horizon_ms        -> so far behind the reading runs the breakers' clock */
#ifndef NEAP_LAB_REPLAY_H
#define NEAP_LAB_REPLAY_H

#include <lua.h>

int luaopen_neap_lab_native(lua_State *L);

#endif
