--- Recording: what a call came to by the policy, and what follows: counts, transitions, events, the
--- policy's own trip and half-open rules, a candidate.  Of one line (neap.line).

local core = require "neap.core"
local event = require "neap.event"
local bulkhead = require "neap.bulkhead"
local round_of = require "neap.round"
local shadow = require "neap.shadow"

local recording = {}

--- What classify may answer.
local OUTCOMES = { success = true, failure = true, timeout = true, neutral = true }
recording.OUTCOMES = OUTCOMES

local FAILED = { failure = true, timeout = true }

-- ---- Telling ----------------------------------------------------------------------------------

--- Puts a transition into the guard's queue, and keeps it for whoever asks how it came to this.
---@param self table line
---@param moved table|nil
---@param by? string
local function enqueue(self, moved, by)
  if not moved then return end
  local guard = self.guard
  moved.policy, moved.key, moved.hash, moved.by = guard.name, self.key, guard.policy.hash, by
  moved.at_ms = self.native:now()
  event.new(moved)
  self.last_moved = moved
  -- What the probes came to since then does not say it.
  if moved.from == "closed" then self.left_closed = moved end
  guard.events:push(moved)
end
recording.enqueue = enqueue

-- ---- The policy's functions -------------------------------------------------------------------

--- What a call came to by itself, for the case that nobody better can be asked.
local function plain_verdict(call)
  if call.ended_by == "timeout" then return "timeout" end
  if call.ended_by == "caller" then return "neutral" end
  if call.raised or not call.result and call.error ~= nil then return "failure" end
  return "success"
end

local function classify(guard, generation, call)
  if not generation.classify then return plain_verdict(call) end
  local ok, outcome, reason, retry_after_ms, fault = core.protect(generation.classify, call)
  if ok and OUTCOMES[outcome] then
    if fault then guard:fault("classify", fault) end
    if generation.warned[1] then guard:warned(generation) end
    return outcome, reason, retry_after_ms
  end
  guard:fault("classify", ok and "answered no outcome" or outcome)
  return plain_verdict(call)
end
recording.classify = classify

--- The policy's trip function, after a failure or a slow call of a closed breaker.
local function ask_trip(self, policy, retry_after_ms)
  local now_ms = self.native:now()
  local snapshot = self.breaker:snapshot(policy.rules, now_ms)
  if snapshot.state ~= "closed" then return end
  local ok, trips, fault = core.protect(policy.trip, snapshot)
  if not ok then trips, fault = false, trips end
  if fault then self.guard:fault("trip", fault) end
  if trips ~= true or fault then return end
  enqueue(self, self.breaker:decide(policy.rules, now_ms, snapshot.epoch, "open", retry_after_ms))
end
recording.ask_trip = ask_trip

--- The policy's decide function, after a probe's report; if it can't say, the round has failed.
local function ask_decide(self, policy, retry_after_ms)
  local now_ms = self.native:now()
  local snapshot = self.breaker:snapshot(policy.rules, now_ms)
  if snapshot.state ~= "half_open" then return end
  local ok, to, fault = core.protect(policy.decide, round_of(snapshot))
  if not ok then to, fault = "open", to end
  if fault then
    self.guard:fault("half_open.decide", fault)
    to = "open"
  end
  if to == "close" then to = "closed" end
  if to ~= "closed" and to ~= "open" then return end
  enqueue(self, self.breaker:decide(policy.rules, now_ms, snapshot.epoch, to, retry_after_ms))
end

-- ---- Calls that say nothing -------------------------------------------------------------------

--- Warns, as their number doubles, when most calls are neutral: then the breaker sees little.
local function watch_neutral(self)
  self.neutrals = self.neutrals + 1
  if self.neutrals < self.look_at then return end
  self.look_at = 2 * self.look_at
  local share = self.guard:snapshot(self.key).neutral_share
  if share > 0.5 then
    self.guard:warn("neutral", ("%s: %.0f %% of the calls are neutral: the breaker sees little")
      :format(self.key, share * 100))
  end
end
recording.watch_neutral = watch_neutral

-- ---- Recording --------------------------------------------------------------------------------

--- Records an outcome, and lets the policy's rules see it; then a candidate, if there is one.
---@param call table|nil as classify sees it, if anybody has described it
---@return "counted"|"stale"|"used"
local function record(self, permit, kind, outcome, duration_ms, retry_after_ms, call)
  local candidate = self.guard.candidate
  local age_ms = candidate and self.native:about(permit)
  local reported, moved, is_slow = self.native:give(permit, outcome, duration_ms, retry_after_ms)
  enqueue(self, moved)
  if self.queue then bulkhead.freed(self) end
  if reported == "counted" and not moved then
    local policy = self.guard.policy
    if kind == "probe" then
      if policy.decide then ask_decide(self, policy, retry_after_ms) end
    elseif policy.trip and kind == "allow" and (is_slow or FAILED[outcome]) then
      ask_trip(self, policy, retry_after_ms)
    end
  end
  if outcome == "neutral" then watch_neutral(self) end
  if candidate and reported ~= "used" then
    shadow.saw(self, candidate, call, outcome, age_ms, duration_ms, retry_after_ms)
  end
  self.guard.events:deliver()
  if candidate then self.guard.shadows:deliver() end
  return reported
end
recording.record = record

return recording
