--- What a spec expects of the policy on its bench: methods of it, which answer it.

local calls = require "neap.testing.calls"
local expect = require "neap.testing.expect"
local place = require "neap.testing.place"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local DEFAULT = "default" -- the key of a policy without keys

---@class neap.testing.Bench
local Bench = {}

local STATES = { "closed", "open", "half_open" }

local function check_state(state)
  for _, one in ipairs(STATES) do
    if one == state then return end
  end
  place.error("%s is no state: closed, open, half_open%s", problem.shown(state),
    suggest.hint(state, STATES))
end

--- The breaker is in that state.
---@param state neap.State
---@param cause? neap.Cause what led to it: "failures", "failure_rate", "consecutive_failures", …
---@return neap.testing.Bench
function Bench:is(state, cause)
  check_state(state)
  self.world:advance(0)
  local is, name = self:seen().state, self:breaker_name()
  local moved = self.guard:last_transition(self.key)
  local why = moved and moved.to == is and cause and ", by " .. moved.cause or ""
  if is ~= state or cause and not (moved and moved.to == is and moved.cause == cause) then
    expect.fail(self, ("%s is %s%s"):format(name, state, cause and ", by " .. cause or ""),
      ("%s is %s%s"):format(name, is, why))
  end
  return self
end

--- It lets no call through for so long from now.
---@param least_ms number
---@param most_ms? number as much as the policy's jitter can add, if not given
---@return neap.testing.Bench
function Bench:stays_open_for(least_ms, most_ms)
  self:is "open"
  local jitter = self.guard.policy.rules:numbers().jitter
  most_ms = most_ms or math.ceil(least_ms * (1 + jitter))
  local left_ms = self:seen().retry_after_ms
  if left_ms < least_ms or left_ms > most_ms then
    expect.fail(self, ("it stays open for %.14g to %.14g ms"):format(least_ms, most_ms),
      ("it stays open for %.14g ms"):format(left_ms))
  end
  return self
end

--- The states that it has gone to, in order, since the test began.
---@param ... neap.State
---@return neap.testing.Bench
function Bench:has_gone_to(...)
  local gone, key = {}, self.key or DEFAULT
  for _, told in ipairs(self.events) do
    if told.key == key then gone[#gone + 1] = told.to end
  end
  local expected = { ... }
  for _, state in ipairs(expected) do check_state(state) end
  local is, wanted = table.concat(gone, ", "), table.concat(expected, ", ")
  if is ~= wanted then
    expect.fail(self, ("it has gone to: %s"):format(wanted),
      is == "" and "it has not moved" or "it has gone to: " .. is)
  end
  return self
end

--- A line of its log has that text in it.
---@param text string
---@return neap.testing.Bench
function Bench:has_logged(text)
  self.guard:stats() -- which passes on what the policy's functions have warned of
  for _, line in ipairs(self.log) do
    if line:find(text, 1, true) then return self end
  end
  expect.fail(self, ("it has logged: %s"):format(text),
    self.log[1] and "its log is: " .. table.concat(self.log, " | ") or "it has logged nothing")
end

--- What its shadow policy would have done: has all of that.
---@param fields table as of guard:snapshot().shadow: { state = "open", saved = 3, lost = 0 }
---@return neap.testing.Bench
function Bench:has_shadow(fields)
  local is = self:seen().shadow
  if not is or not expect.matches(fields, is) then
    local shown = {}
    for name in pairs(fields) do shown[name] = is and is[name] end
    expect.fail(self, "its shadow has " .. expect.shown(fields),
      is and "its shadow has " .. expect.shown(shown) or "it has no shadow")
  end
  return self
end

--- So many calls wait in its queues.
---@param n integer
---@return neap.testing.Bench
function Bench:has_queued(n)
  local count = 0
  for _, queue in pairs(self.guard.chain.durables.queues) do count = count + queue.count end
  if count ~= n then
    expect.fail(self, "in its queues: " .. expect.counted(n, "call"),
      "in its queues: " .. expect.counted(count, "call"))
  end
  return self
end

--- The calls of its queues that were made again so far.
---@return neap.testing.Calls
function Bench:replays()
  if not self.made_again[1] then
    expect.fail(self, "queued calls were made again", "no queued call was made again")
  end
  return calls.new(self, self.made_again)
end

return Bench
