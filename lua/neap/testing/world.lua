--- The world of a test: a clock that stands still until something waits, and what is due meanwhile.
--
--   wait(ms)      who waits lets the time go by for all:      now --- due --- due --- now + ms
--   at(ms, f)     f is due then: a call under way ends, a refresh begins
--   host()        what guards run on: it sleeps, gives calls up and takes turns by this clock
--
-- There are no coroutines and no timers, so it is the same on every Lua.  A call that is under way
-- while another one waits is a thing that is due.

local clock = require "neap.clock"
local place = require "neap.testing.place"

local huge, min = math.huge, math.min

local world = {}

local BEGIN_MS = 1000000 -- not 0: an instant that is mistaken for a time span shows
local ENDLESS = "it would wait for ever: nothing is due, and nothing ends it (the policy has no "
  .. "timeout_ms)"

---@class neap.testing.World
---@field clock neap.ManualClock
---@field private due { at_ms: number, f: function, is_idle: boolean|nil }[] soonest first
---@field private by_ms number|nil whoever waits now is given up then
---@field private cut_ms number|nil somebody has been
---@field private running integer functions of the spec's that are called by guards now
---@field private broken any the test is over, whatever a guard has made of that error
local World = {}
World.__index = World

local LATE = setmetatable({}, { __tostring = function() return "given up at its deadline" end })

---@return number ms since the test began
function World:elapsed() return self.clock:now() - BEGIN_MS end

--- f is called at that instant, by whoever lets the time go by.
---@param at_ms number
---@param f function
---@param is_idle? boolean nobody waits for it
function World:at(at_ms, f, is_idle)
  local due, i = self.due, #self.due + 1
  while due[i - 1] and due[i - 1].at_ms > at_ms do i = i - 1 end
  table.insert(due, i, { at_ms = at_ms, f = f, is_idle = is_idle })
end

local function is_idle(self)
  for _, one in ipairs(self.due) do
    if not one.is_idle then return false end
  end
  return true
end

--- Goes on to the next thing that is due, if that is by then.
---@param most_ms number an instant
---@return boolean
function World:step(most_ms)
  local first = self.due[1]
  if not first or first.at_ms > most_ms then return false end
  table.remove(self.due, 1)
  if first.at_ms > self.clock:now() then self.clock:set(first.at_ms) end
  local by_ms = self.by_ms
  self.by_ms = nil
  first.f()
  self.by_ms = by_ms
  return true
end

---@param ms number
function World:advance(ms)
  local to_ms = self.clock:now() + ms
  while self:step(to_ms) do end -- luacheck: ignore 542
  if to_ms > self.clock:now() then self.clock:set(to_ms) end
  self:check()
end

--- Lets the time go by until is_over() answers true.
---@param is_over fun(): boolean
function World:wait_until(is_over)
  while not is_over() do
    if is_idle(self) then place.error(ENDLESS) end
    self:step(huge)
  end
end

--- Ends the test with an error, which a guard on the way does not hide.
---@param err any
function World:stop(err)
  if self.running > 0 then self.broken = err end
  error(err, 0)
end

--- Runs a function of the spec's that a guard calls; as pcall.
---@param f function
---@return boolean ok, any a, any b
function World:run(f, ...)
  self.running = self.running + 1
  local ok, a, b = pcall(f, ...)
  self.running = self.running - 1
  return ok, a, b
end

--- Raises it, if there is one.
function World:check()
  local err = self.broken
  self.broken = nil
  if err ~= nil then error(err, 0) end
end

--- What is called takes so long; raises if it is given up before.
---@param ms number huge: for ever
function World:wait(ms)
  local by_ms = self.by_ms
  if by_ms and self.clock:now() + ms > by_ms then
    self:advance(by_ms - self.clock:now())
    self.cut_ms = by_ms
    error(LATE, 0)
  end
  if ms == huge then self:stop(select(2, pcall(place.error, ENDLESS))) end
  self:advance(ms)
end

-- ---- A host -----------------------------------------------------------------------------------

--- Runs f as a host does that can give it up.
local function run(self, timeout_ms, f, ...)
  local outer_ms, by_ms = self.by_ms, self.clock:now() + timeout_ms
  self.by_ms = min(outer_ms or huge, by_ms)
  local ok, a, b = pcall(f, ...)
  self.by_ms = outer_ms
  if self.cut_ms == by_ms then
    self.cut_ms = nil
    return false
  end
  if not ok then error(a, 0) end
  return true, a, b
end

local function turn(self, ms, ready)
  local until_ms, is_woken, is_over = self.clock:now() + ms, false, false
  ready(function()
    if is_over or is_woken then return false end
    is_woken = true
    return true
  end)
  while not is_woken and self:step(until_ms) do end -- luacheck: ignore 542
  is_over = true
  if not is_woken then self:advance(until_ms - self.clock:now()) end
  return is_woken
end

--- A host by this clock.
---@return neap.Host
function World:host()
  return {
    name = "testing", outlives = true,
    now = function() return self.clock:now() end,
    run = function(timeout_ms, f, ...) return run(self, timeout_ms, f, ...) end,
    sleep = function(ms) self:wait(ms) end,
    turn = function(ms, ready) return turn(self, ms, ready) end,
    spawn = function(f) self:at(self.clock:now(), f) end,
    later = function(ms, f) self:at(self.clock:now() + ms, f, true) end,
  }
end

---@return neap.testing.World
function world.new()
  return setmetatable({ clock = clock.manual(BEGIN_MS), due = {}, running = 0 }, World)
end

return world
