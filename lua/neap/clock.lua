--- Clocks: where a guard gets the time from.  An instant is a number of milliseconds that never
--- goes back; a clock is a function that answers it, or an object with a method now.

local core = require "neap.core"

local clock = {}

---@alias neap.Clock
---| "coarse"  # the system's monotonic clock in steps of up to 4 ms: a few ns to read (the default)
---| "precise" # … in steps under 1 ms: about 30 ns
---| fun(): number
---| { now: fun(self: any): number }

---@return integer now_ms
clock.coarse = core.clock_coarse

---@return integer now_ms
clock.precise = core.clock_precise

---@class neap.ManualClock
---@field private at_ms integer
local Manual = {}
Manual.__index = Manual

---@return integer now_ms
function Manual:now()
  return self.at_ms
end

--- Lets `ms` go by; a negative number is a clock that steps back.
---@param ms integer
---@return integer now_ms
function Manual:advance(ms)
  return self:set(self.at_ms + ms)
end

---@param ms integer
---@return integer now_ms
function Manual:set(ms)
  if type(ms) ~= "number" or ms ~= ms or ms < 0 or ms == math.huge then
    error(("now must be milliseconds, 0 or more, got %s"):format(tostring(ms)), 2)
  end
  self.at_ms = ms
  return ms
end

--- A clock that stands still until it is moved: whole cycles of a breaker without waiting.
---@param start_ms? integer 0 if not given
---@return neap.ManualClock
function clock.manual(start_ms)
  local self = setmetatable({ at_ms = 0 }, Manual)
  self:set(start_ms or 0)
  return self
end

--- A clock in the form that the C core takes.
---@param given neap.Clock|nil
---@return nil|"precise"|fun(): number
function clock.resolve(given)
  if given == nil or given == "coarse" then return nil end
  if given == "precise" or type(given) == "function" then return given end
  if type(given) == "table" and type(given.now) == "function" then
    return function() return given:now() end
  end
  error("clock must be \"coarse\", \"precise\", a function that answers milliseconds, or an "
    .. "object with a method now, got " .. type(given), 3)
end

return clock
