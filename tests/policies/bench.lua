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
