--- Events: what a breaker did, told to whoever asked, after the fact.
--
-- A transition is put into the queue where it happens, and told when the guard has done its own
-- bookkeeping: one event at a time, each to all handlers, in the order in which they happened.  A
-- handler may use the guard; what that causes is told after it has returned.  Handlers can't yield,
-- and one that raises harms nobody: the others are still told, and the error is logged.

local core = require "neap.core"

---@class (exact) neap.Event
---@field policy string
---@field key string
---@field from neap.State
---@field to neap.State
---@field cause neap.Cause
---@field measured number what the rule looked at; of a rate, a share
---@field limit number what it was compared with
---@field calls integer in the window, or probes of the round that ended
---@field epoch integer number of the transition; half-open keeps that of the open before it
---@field level integer how many times in a row it opened
---@field open_ms integer to open: for how long
---@field flapping boolean to open: within a cooldown of closing
---@field hash string of the policy in force
---@field by? string who did it by hand
---@field at_ms integer on the guard's clock
---@field shadow? string of a shadow policy, which has moved nothing: its file

local event = {}

-- A handler that answers every event by causing another must not keep the caller for ever: what is
-- left is told with the next one.
local MOST_AT_ONCE = 100

-- ---- As text ----------------------------------------------------------------------------------

local function number(n)
  return n % 1 == 0 and ("%.0f"):format(n) or ("%.3g"):format(n)
end

local function counted(n, noun)
  return ("%s %s%s"):format(number(n), noun, n == 1 and "" or "s")
end

--- What each cause measured, with every number by its name.
local CAUSES_SAID = {
  failures = "FAILURES in CALLS, limit LIMIT",
  failure_rate = "a failure rate of MEASURED in CALLS, limit LIMIT",
  slow_rate = "a slow call rate of MEASURED in CALLS, limit LIMIT",
  consecutive_failures = "FAILURES in a row, limit LIMIT",
  ["function"] = "the policy's function says so",
  cooldown = "the cooldown is over, a probe goes",
  probes = "PROBES WENT, limit LIMIT",
  probe_lost = "PROBES never reported",
  reset = "reset by hand",
  trip = "tripped by hand",
}

local Event = { __name = "neap.event" }

--- One line that says what happened, and the numbers that made it so.
function Event:__tostring()
  local names = {
    MEASURED = number(self.measured), LIMIT = number(self.limit),
    CALLS = counted(self.calls, "call"), FAILURES = counted(self.measured, "failure"),
    PROBES = counted(self.measured, "probe"),
    WENT = self.to == "open" and "failed" or "succeeded",
  }
  local why = (CAUSES_SAID[self.cause] or self.cause):gsub("%u%u+", names)
  local who = self.shadow and ("shadow %s would move: "):format(self.shadow) or ""
  local text = ("%s/%s: %s%s -> %s: %s"):format(self.policy, self.key, who, self.from, self.to, why)
  if self.by then text = text .. ", by " .. self.by end
  if self.to == "open" then
    text = ("%s; open for %s ms, level %s"):format(text, number(self.open_ms), number(self.level))
  end
  return self.flapping and text .. ", flapping" or text
end

--- A transition under the names that the log and the admin pages have.  Only what means something:
--- a cooldown that is over has measured nothing.
---@param told neap.Event
---@return table
function event.row(told)
  local has_limit = told.limit > 0 or nil
  return {
    from = told.from, to = told.to, reason = told.cause, measured = has_limit and told.measured,
    limit = has_limit and told.limit, calls = has_limit and told.calls,
    open_ms = told.open_ms > 0 and told.open_ms or nil, flapping = told.flapping or nil,
    level = told.level, epoch = told.epoch, by = told.by, policy_hash = told.hash,
    text = tostring(told),
  }
end

--- The fields of an event become one, which as text is a sentence.
---@param fields table
---@return neap.Event
function event.new(fields)
  setmetatable(fields, Event)
  return fields
end

-- ---- Telling ----------------------------------------------------------------------------------

---@class neap.EventQueue
---@field private handlers function[] replaced, not changed, so that a delivery under way is safe
---@field private is_on table<function, boolean>
---@field private fault fun(err: any)
local Queue = {}
Queue.__index = Queue

--- Tells the handler of every event from now on; a handler that is told already stays one.
---@param handler fun(event: neap.Event)
---@return fun(event: neap.Event) handler for off
function Queue:on(handler)
  if type(handler) ~= "function" then
    error(("handler must be a function, got %s"):format(type(handler)), 2)
  end
  if self.is_on[handler] then return handler end
  local handlers = {}
  for i, known in ipairs(self.handlers) do handlers[i] = known end
  handlers[#handlers + 1] = handler
  self.is_on[handler] = true
  self.handlers = handlers
  return handler
end

--- After this returns the handler is not called any more, not even for events that are waiting.
---@param handler fun(event: neap.Event)
---@return boolean was_on
function Queue:off(handler)
  if not self.is_on[handler] then return false end
  local handlers = {}
  for _, known in ipairs(self.handlers) do
    if known ~= handler then handlers[#handlers + 1] = known end
  end
  self.handlers, self.is_on[handler] = handlers, nil
  return true
end

---@param told neap.Event
function Queue:push(told)
  if #self.handlers == 0 then return end
  self[self.last + 1] = told
  self.last = self.last + 1
end

local function tell(self, told)
  for _, handler in ipairs(self.handlers) do
    if self.is_on[handler] then
      local ok, err = core.protect(handler, told)
      if not ok then self.fault(err) end
    end
  end
end

local function drain(self)
  for _ = 1, MOST_AT_ONCE do
    if self.first > self.last then
      self.first, self.last = 1, 0
      return
    end
    local told = self[self.first]
    self[self.first] = nil
    self.first = self.first + 1
    tell(self, told)
  end
end

--- Tells what is waiting, unless that is being done further up.
function Queue:deliver()
  if self.is_delivering or self.first > self.last then return end
  self.is_delivering = true
  local ok, err = core.protect(drain, self)
  self.is_delivering = false
  if not ok then self.fault(err) end
end

---@param fault fun(err: any) is told what handlers raise
---@return neap.EventQueue
function event.queue(fault)
  return setmetatable({ handlers = {}, is_on = {}, fault = fault, first = 1, last = 0 }, Queue)
end

return event
