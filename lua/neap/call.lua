--- guard:call for Lua 5.1 and LuaJIT, where C cannot be yielded across: Lua calls the function.
-- Elsewhere all of it is C (lua/src/call.c).
--
--   begin (C) --> permit --> pcall(f, ...) --> finish (C): counted, or settle
--
-- Lua 5.1 cannot yield across its own pcall either; then the call says so.

local call = {}

local pcall, error, find, running = pcall, error, string.find, coroutine.running

--- What Lua says when a function yields below pcall; nil where it may, as on LuaJIT.
local YIELDED = select(3, coroutine.resume(coroutine.create(function()
  return pcall(coroutine.yield)
end)))

--- Whether a function may yield below guard:call.
call.can_yield = YIELDED == nil

local CANNOT = "guard:call: the function yielded, which Lua 5.1 cannot do below a protected call: "
  .. "put guard:acquire and guard:report around it, or use LuaJIT, or Lua 5.3 or later"

local function has_yielded(err)
  return YIELDED and type(err) == "string" and find(err, YIELDED, 1, true) and running() ~= nil
end

--- The methods call and call_in of a line: see line.lua.
---@param self table line
---@param begin function
---@param finish function
---@param hooks table
---@return function call
---@return function call_in
function call.new(self, begin, finish, hooks)
  local guard, refuse, settle, layered = self.guard, hooks.refuse, hooks.settle, hooks.layered

  --- The rest: f and its arguments.
  local function raised(frame, permit, err, ...)
    if has_yielded(err) then
      self.native:give(permit, "abandoned")
      error(CANNOT, 0)
    end
    return settle(self, frame, permit, "raised", err, nil, nil, nil, nil, nil, ...)
  end

  local function returned(frame, permit, a, b, ...)
    local done, ended, outcome, reason, retry_ms, fault = finish(frame, permit, a, b, ...)
    if done then return a, b end
    return settle(self, frame, permit, ended, a, b, outcome, reason, retry_ms, fault, ...)
  end

  local function run_by_host(frame, permit, timeout_ms, ...)
    local ok, in_time, a, b = pcall(guard.host.run, timeout_ms, ...)
    if not ok then return raised(frame, permit, in_time, ...) end
    if in_time then return returned(frame, permit, a, b, ...) end
    return settle(self, frame, permit, "abandoned", a, b, nil, nil, nil, nil, ...)
  end

  local function run(frame, permit, timeout_ms, ...)
    if timeout_ms then return run_by_host(frame, permit, timeout_ms, ...) end
    local ok, a, b = pcall(...)
    if ok then return returned(frame, permit, a, b, ...) end
    return raised(frame, permit, a, ...)
  end

  local function of_guard(public, f, ...)
    local permit, what, retry_after_ms, moved = begin(public, f)
    if permit == true then return layered(self, guard.policy, nil, f, ...) end
    if permit then return run(guard.policy, permit, what, f, ...) end
    if permit == false then error(what, 2) end
    return refuse(self, what, retry_after_ms, moved, guard.policy, f, ...)
  end

  local function of_chain(frame, f, ...)
    local permit, what, retry_after_ms, moved = begin(self, f, frame.timeout_ms or false)
    if permit then return run(frame, permit, what, f, ...) end
    if permit == false then error(what, 2) end
    return refuse(self, what, retry_after_ms, moved, frame, f, ...)
  end

  return of_guard, of_chain
end

return call
