--- A policy's on_transition: told of each transition, after the event handlers, in order.
--
-- Where something looks after the guard beside its calls (guard.is_tended: the engine, neap.tend,
-- nginx, HAProxy) that is when it runs: no call waits for it.  Elsewhere there is no such moment;
-- it runs once the outcome that moved the breaker is recorded, within the budget of a decision.  It
-- is given a copy, and what it answers means nothing: only warn() reaches anybody.

local on_transition = {}

local MOST = 100 -- that wait: who causes more at once is told so
local AT_ONCE = 10 -- that are told before the host does something else
local LOST = "more than %d transitions at once: it was not told of all"

---@class neap.Script
---@field private guard neap.Guard
---@field private first integer
---@field private last integer
local Script = {}
Script.__index = Script

--- What of an event it is given; and `text`.
on_transition.fields = {
  "policy", "key", "from", "to", "cause", "measured", "limit", "calls", "epoch", "level", "open_ms",
  "flapping", "hash", "by", "at_ms",
}

local function copy_of(event)
  local copy = { text = tostring(event) }
  for _, field in ipairs(on_transition.fields) do copy[field] = event[field] end
  return copy
end

--- The next one; answers whether that went well.
local function tell(self)
  local event, guard = self[self.first], self.guard
  self[self.first] = nil
  self.first = self.first + 1
  local policy = guard.policy
  local fault = policy.on_transition and policy.on_transition(event)
  if fault then guard:fault("on_transition", fault) end
  if policy.warned[1] then guard:warned(policy) end
  return not fault
end

local function run(self)
  for _ = 1, AT_ONCE do
    if self.first > self.last or not tell(self) then break end
  end
  if self.first > self.last then self.first, self.last = 1, 0 end
end

--- Tells what waits, unless that is being done further up; not much at a time, and no more after
--- one that may have taken all of its time.
---@return boolean more still waits
function Script:run()
  if self.is_running or self.first > self.last then return false end
  self.is_running = true
  local ok, err = pcall(run, self)
  self.is_running = false
  if not ok then self.guard:fault("on_transition", err) end
  return self.first <= self.last
end

--- Tells all that waits.
function Script:finish()
  while self:run() do end
end

local function push(self, event)
  if self.last - self.first + 1 >= MOST then
    return self.guard:fault("on_transition", LOST:format(MOST))
  end
  self.last = self.last + 1
  self[self.last] = copy_of(event)
  if not self.guard.is_tended then return self:finish() end
  local on_due = self.guard.chain.durables.on_due
  if on_due then on_due() end
end

--- The guard has another generation, with such a function or without.
function Script:adopt()
  local events = self.guard.events
  if self.guard.policy.on_transition then events:on(self.handler) else events:off(self.handler) end
end

---@param guard neap.Guard
---@return neap.Script
function on_transition.new(guard)
  local self = setmetatable({ guard = guard, first = 1, last = 0 }, Script)
  self.handler = function(event) push(self, event) end
  return self
end

return on_transition
