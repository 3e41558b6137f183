--- Loaded by HAProxy for haproxy.sh: an action that counts the instructions of neap_acquire, and of
--- an action that does nothing.  Each call is in a coroutine of its own, as a request's are; that
--- coroutine, and HAProxy's way into Lua, cost both the same.
local panel, policies, calls = ...
local floor = require "bench_floor"

local register_action = core.register_action
local actions = { empty = function() end }
function core.register_action(name, where, f, args)
  actions[name] = f
  return register_action(name, where, f, args)
end
function core.register_task() end -- nothing beside what is counted
require("neap.haproxy").open { panel = panel, policies = policies }

--- What neap_acquire keeps of a request until it is reported, by the names it has there.
local kept = {}
for i = 1, math.huge do
  local name, value = debug.getupvalue(actions.neap_acquire, i)
  if not name then break end
  if name == "permits" or name == "owners" then kept[#kept + 1] = value end
end
assert(#kept == 2)
local permits, owners = kept[1], kept[2]

local function loop_of(action, txn)
  local function one()
    action(txn, "api")
    local request = coroutine.running()
    permits[request], owners[request] = nil, nil
  end
  return function(n)
    for _ = 1, n do coroutine.wrap(one)() end
  end
end

register_action("count", { "http-req" }, function(txn)
  for _, name in ipairs { "empty", "neap_acquire" } do
    local loop = loop_of(actions[name], txn)
    loop(100)
    collectgarbage()
    floor.count(name, loop, calls)
  end
end, 0)
