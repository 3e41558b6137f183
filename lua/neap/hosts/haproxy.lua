--- The HAProxy host, for Lua that runs in HAProxy and calls something itself: core.tcp,
-- core.httpclient.
--
-- HAProxy runs each action, service and task in a coroutine that can wait and that nobody else may
-- resume or end.  So nothing is given up here: a call that took too long is found out when it ends,
-- and counts as a timeout.  It can ask guard:deadline() first thing, and set its socket's timeout.

local core = core -- HAProxy's, not neap.core
local unpack = table.unpack

---@type neap.Host
local host = { name = "haproxy", keeps_lines = true }

--- Waits.  In an action, a service or a task.
---@param ms number
function host.sleep(ms)
  core.msleep(math.max(1, math.ceil(ms)))
end

--- Runs f(...) beside the caller, in a task.
---@param f function
function host.spawn(f, ...)
  local given = { n = select("#", ...), ... }
  core.register_task(function() f(unpack(given, 1, given.n)) end)
end

return host
