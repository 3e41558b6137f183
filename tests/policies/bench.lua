--- A policy of this directory at work on a clock that stands still until the spec moves it.

local clock = require "neap.clock"
local guard = require "neap.guard"

local Bench = {}
Bench.__index = Bench

--- One call, from permit to report: what it counted as, or why it was refused.
---@param result table|string the call, or just an outcome
---@param takes_ms? integer how long it takes
function Bench:call(result, takes_ms)
  local permit, refusal = self.guard:acquire()
  if not permit then return refusal.kind end
  self.clock:advance(takes_ms or 0)
  if type(result) == "table" then
    local given = { ended_by = "answer", headers = {}, duration_ms = takes_ms or 0 }
    for key, value in pairs(result) do given[key] = value end
    result = given
  end
  return (self.guard:report(permit, result))
end

--- That many of them; answers what the last one came to.
function Bench:calls(n, result, takes_ms)
  local last
  for _ = 1, n do last = self:call(result, takes_ms) end
  return last
end

function Bench:state() return self.guard:snapshot().state end

--- Lets the cooldown of the first opening pass, jitter and all.
function Bench:cool_down()
  self.clock:advance(self.guard:snapshot().retry_after_ms)
end

--- How long it stays open, the first n times in a row.
function Bench:waits(failure, n)
  local waits = {}
  while self:state() == "closed" do self:call(failure) end
  for i = 1, n do
    waits[i] = self.guard:snapshot().retry_after_ms
    self:cool_down()
    while self:state() == "half_open" do self:call(failure) end
  end
  return waits
end

--- Whether each wait is at least what is expected and at most `jitter` longer, and one nearly that.
function Bench:has_waits(failure, expected, jitter)
  local waits, longest = self:waits(failure, #expected), 0
  for i, wait_ms in ipairs(waits) do
    local share = wait_ms / expected[i] - 1
    if share < 0 or share > jitter then return nil, ("wait %d is %d ms"):format(i, wait_ms) end
    longest = math.max(longest, share)
  end
  for _ = 1, 40 do -- enough for one to be long
    self.guard:reset()
    longest = math.max(longest, self:waits(failure, 1)[1] / expected[1] - 1)
  end
  if longest < 0.75 * jitter then return nil, ("the longest jitter is %.3f"):format(longest) end
  return true
end

--- How many calls it lets through at once when it is half-open.
function Bench:probes_at_once(failure)
  while self:state() == "closed" do self:call(failure) end
  self:cool_down()
  local permits = {}
  while true do
    local permit = self.guard:acquire()
    if not permit then return #permits, permits end
    permits[#permits + 1] = permit
  end
end

--- What the fallback chain says: value, source, kind of error.
function Bench:fallback(cause, call)
  local value, info, err = self.guard:fallback(cause, call or { id = "GET /" })
  return value, info and info.source, err and err.kind
end

return function(name, params)
  local bench = setmetatable({ clock = clock.manual(1000000), log = {} }, Bench)
  bench.guard = guard.new(("policies/%s.lua"):format(name), {
    params = params, clock = bench.clock,
      log = function(_, text) bench.log[#bench.log + 1] = text end,
  })
  return bench
end
