--- Guards for tests of what reads them: a policy made by hand, a clock that stands still.
local core = require "neap.core"
local clock = require "neap.clock"
local neap_guard = require "neap.guard"

local guards = {}

--- How many are many: a thousand, or, with a collector in a hurry (tests/support/gc.lua), a few.
local pause = collectgarbage("setpause", 200)
collectgarbage("setpause", pause)
guards.many = pause == 0 and 30 or 1000

---@class guards.options
---@field rules? table  as core.rules takes them
---@field stages? table[]
---@field hash? string
---@field clock? neap.ManualClock

--- A policy: one failure opens it for five seconds.
function guards.policy(name, options)
  options = options or {}
  local rules = assert(core.rules(options.rules
    or { failures = 1, cooldown_ms = 5000, jitter = 0 }))
  return {
    name = name, hash = options.hash or "0123abcd", rules = rules, stages = options.stages or {},
    fallback_on = { refused = true, timeout = true, failure = true }, warnings = {}, warned = {},
    mode = "auto",
    classify = function(call) return call.status == 200 and "success" or call.status == 404
      and "neutral" or "failure" end,
  }
end

--- A guard and its clock, which begins at 1,000,000.
function guards.new(name, options)
  options = options or {}
  local now = options.clock or clock.manual(1000000)
  local guard = neap_guard.new(guards.policy(name, options),
    { clock = now, log = function() end, max_keys = guards.many })
  return guard, now
end

--- One call of a key that ends with that status after `ms`.
function guards.call(guard, status, ms, key)
  local permit = guard:acquire(key)
  if permit then guard:report(permit, { status = status, duration_ms = ms or 0 }) end
  return permit ~= nil
end

return guards
