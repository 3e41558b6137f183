--- A shadow policy: a candidate that is told what the calls of the live one came to, judges them by
-- its own classify and rules, with breakers of its own, and decides nothing.
--
--   live breaker            candidate's breaker     the call counts as
--   let the call through    would have, too         same
--                           would have refused it   saved (it failed), lost (it was good), neutral
--   refused it              would have, too         same
--                           would have let it in    let_through: nobody knows what it had come to
--
-- It is asked when a call ends, as of when the call began: then its breaker is in the state that it
-- would have been in, as all that ended before is known.  What it can't know:
--
--   what the live one refused     its breaker sees nothing meanwhile, so it stays as it is
--   what it would have refused    is not told to its breaker, though the outcome is known
--   timeouts                      a call that the live timeout ended is one; a longer one of the
--                                 candidate's cannot be tried
--   which calls would be probes   those that end first; half_open.concurrent has no effect.  A call
--                                 that began half-open and ended after the round is not counted
--   calls that hang               they count when they end
--   retry, bulkhead, deadline_ms, key, fallback, mode: have no effect
--
-- Whatever a candidate does or has wrong, the live policy goes on as without it.

local core = require "neap.core"
local event = require "neap.event"
local round_of = require "neap.round"

local shadow = {}

local KEPT_MOVES = 8 -- calls that began before the last so many are not counted
local FAILED = { failure = true, timeout = true }
local OUTCOMES = { success = true, failure = true, timeout = true, neutral = true }
local ADMITS = { allow = true, probe = true, bypass = true }
-- What the live breaker says, and not an operator or another layer.
local OF_STATE = { open = true, probes_busy = true, ramp = true }

---@class (exact) neap.Candidate
---@field file string as the policy names it
---@field path string
---@field policy? neap.Policy nil: it does not load
---@field error? any why not
---@field hash string of it, or of the error

---@class (exact) neap.Shadow what a candidate has come to, for one key
---@field file string which candidate
---@field hash string
---@field state neap.State
---@field since_ms integer when it began to look, on the guard's clock
---@field calls integer that it has judged: those the live one let through, and those it refused
---@field same integer of these
---@field saved integer
---@field lost integer
---@field neutral integer
---@field let_through integer
---@field opened integer how often it would have opened
---@field closed integer how often it would have closed again
---@field errors integer faults of its functions
---@field last? neap.Event the last transition that it would have made
---@field text string all that in a line

-- ---- One key ----------------------------------------------------------------------------------

local function new(line, candidate)
  local now_ms = line.native:now()
  local breaker = core.breaker()
  breaker:adopt(candidate.policy.rules)
  breaker:set_mode(now_ms, "auto") -- what a candidate's mode says is not its business
  return {
    line = line, candidate = candidate, policy = candidate.policy, rules = candidate.policy.rules,
    breaker = breaker, since_ms = now_ms, moves = {}, first_move = 1, last_move = 0,
    calls = 0, same = 0, saved = 0, lost = 0, neutral = 0, let_through = 0,
    opened = 0, closed = 0, errors = 0,
  }
end

--- The shadow of a line, made anew for each version of the candidate: its numbers are of that one.
local function of(line, candidate)
  local self = line.shadow
  if not self or self.candidate.hash ~= candidate.hash then
    self = new(line, candidate)
    line.shadow = self
  end
  return self
end

local function fault(self, where, what)
  self.errors = self.errors + 1
  self.line.guard:warn("shadow " .. where, ("%s, %s: %s"):format(self.candidate.file, where,
    tostring(what)))
end

--- Remembers a transition and tells it: as the policy's, but by the shadow.
local function note(self, moved, at_ms)
  if not moved then return end
  self.last_move = self.last_move + 1
  self.moves[self.last_move] = { at_ms = at_ms, from = moved.from }
  if self.last_move - self.first_move >= KEPT_MOVES then
    self.moves[self.first_move] = nil
    self.first_move = self.first_move + 1
  end
  if moved.to == "open" then self.opened = self.opened + 1 end
  if moved.to == "closed" then self.closed = self.closed + 1 end
  local line = self.line
  moved.policy, moved.key, moved.hash = line.guard.name, line.key, self.candidate.hash
  moved.at_ms, moved.shadow = at_ms, self.candidate.file
  self.last_moved = event.new(moved)
  line.guard.shadows:push(moved)
end

--- The state that its breaker was in at that time, if it has moved since; "?": nobody knows now.
local function state_then(self, at_ms)
  local last = self.moves[self.last_move]
  if not last or at_ms >= last.at_ms then return nil end
  for i = self.first_move, self.last_move do
    if self.moves[i].at_ms > at_ms then
      local is_cut = i == self.first_move and self.first_move > 1
      return is_cut and "?" or self.moves[i].from
    end
  end
end

-- ---- The candidate's functions ----------------------------------------------------------------

--- What the call came to, by the candidate; if it can't say, as the live one has it.
local function judge(self, call, outcome, duration_ms, retry_after_ms)
  local timeout_ms = self.policy.timeout_ms
  if timeout_ms and duration_ms > timeout_ms then return "timeout" end
  if not call then return outcome, retry_after_ms end
  local ok, verdict, _, retry_ms, wrong = core.protect(self.policy.classify, call)
  if not ok or not OUTCOMES[verdict] then
    fault(self, "classify", ok and "answered no outcome" or verdict)
    return outcome, retry_after_ms
  end
  if wrong then fault(self, "classify", wrong) end
  return verdict, retry_ms
end

local function decide(self, now_ms, to, snapshot, retry_after_ms)
  note(self, self.breaker:decide(self.rules, now_ms, snapshot.epoch, to, retry_after_ms), now_ms)
end

local function ask_trip(self, now_ms, retry_after_ms)
  local snapshot = self.breaker:snapshot(self.rules, now_ms)
  if snapshot.state ~= "closed" then return end
  local ok, trips, wrong = core.protect(self.policy.trip, snapshot)
  if not ok or wrong then return fault(self, "trip", wrong or trips) end
  if trips then decide(self, now_ms, "open", snapshot, retry_after_ms) end
end

local function ask_decide(self, now_ms, retry_after_ms)
  local snapshot = self.breaker:snapshot(self.rules, now_ms)
  if snapshot.state ~= "half_open" then return end
  local ok, to, wrong = core.protect(self.policy.decide, round_of(snapshot))
  if not ok or wrong then
    fault(self, "half_open.decide", wrong or to)
    to = "open"
  end
  if to == "close" then to = "closed" end
  if to == "closed" or to == "open" then decide(self, now_ms, to, snapshot, retry_after_ms) end
end

-- ---- Calls ------------------------------------------------------------------------------------

local function count(self, kind)
  self.calls, self[kind] = self.calls + 1, self[kind] + 1
end

--- A call that it would have refused, and whose outcome is known.
local function would_refuse(self, outcome)
  count(self, FAILED[outcome] and "saved" or outcome == "success" and "lost" or "neutral")
end

--- A call that it would have let through: its breaker is told of it, as the live one was.
local function report(self, permit, now_ms, outcome, duration_ms, retry_after_ms)
  local is_probe = type(permit) == "userdata"
  local reported, moved =
    self.breaker:report(self.rules, now_ms, permit, outcome, duration_ms, retry_after_ms)
  count(self, "same")
  note(self, moved, now_ms)
  if moved or reported ~= "counted" then return end
  if is_probe then
    if self.policy.decide then ask_decide(self, now_ms, retry_after_ms) end
  elseif self.policy.trip then
    local slow_ms = self.slow_ms
    if FAILED[outcome] or slow_ms > 0 and duration_ms > slow_ms then
      ask_trip(self, now_ms, retry_after_ms)
    end
  end
end

local function saw(line, candidate, call, outcome, age_ms, duration_ms, retry_after_ms)
  local self = of(line, candidate)
  self.slow_ms = self.slow_ms or self.rules:numbers().slow_call_ms or 0
  local now_ms = line.native:now()
  local began_ms = math.max(0, now_ms - age_ms)
  outcome, retry_after_ms = judge(self, call, outcome, duration_ms, retry_after_ms)
  local was = state_then(self, began_ms)
  if was == "closed" then return count(self, "same") end -- its report would have been stale
  if was == "open" then return would_refuse(self, outcome) end
  if was then return end
  local permit, _, _, moved = self.breaker:acquire(self.rules, began_ms)
  note(self, moved, began_ms)
  if not permit then return would_refuse(self, outcome) end
  report(self, permit, now_ms, outcome, duration_ms, retry_after_ms)
end

local function refused(line, candidate)
  local self = of(line, candidate)
  count(self, ADMITS[self.breaker:peek(self.rules, line.native:now())] and "let_through" or "same")
end

--- Whatever goes wrong in here is no business of the live policy's.
local function guarded(f, line, candidate, ...)
  local ok, err = core.protect(f, line, candidate, ...)
  if not ok then line.guard:warn("shadow", candidate.file .. ": " .. tostring(err)) end
end

--- Tells the candidate what a call came to that the live policy has let through.
---@param line table
---@param candidate neap.Candidate that has loaded
---@param call table|nil as the live policy's classify sees it; nil: only the outcome is known
---@param outcome neap.Outcome the live policy's
---@param age_ms number since it began
---@param duration_ms number
---@param retry_after_ms number|nil
function shadow.saw(line, candidate, call, outcome, age_ms, duration_ms, retry_after_ms)
  guarded(saw, line, candidate, call, outcome, age_ms, duration_ms or age_ms, retry_after_ms)
end

--- Tells the candidate that the live policy has refused a call.
---@param line table
---@param candidate neap.Candidate
---@param reason string
function shadow.refused(line, candidate, reason)
  if OF_STATE[reason] then guarded(refused, line, candidate) end
end

--- An operator has reset the live breaker: begins anew with it, from closed and a clean window.
---@param line table
---@param candidate neap.Candidate|nil
---@param by? string
function shadow.reset(line, candidate, by)
  if not candidate then return end
  local self, now_ms = of(line, candidate), line.native:now()
  local moved = self.breaker:reset(self.rules, now_ms)
  if moved then moved.by = by end
  note(self, moved, now_ms)
  line.guard.shadows:deliver()
end

-- ---- For people -------------------------------------------------------------------------------

local function said(n, one, many)
  return ("%d %s"):format(n, n == 1 and one or many)
end

--- "shadow candidates/flags.lua: open; …"
local function text_of(self, state)
  local parts = {
    ("shadow %s: %s; of %s it would have refused %d (saved %d that failed, lost %d that were good)")
      :format(self.candidate.file, state, said(self.calls, "call", "calls"),
        self.saved + self.lost + self.neutral, self.saved, self.lost),
    ("let %d through that were refused"):format(self.let_through),
    "opened " .. said(self.opened, "time", "times"),
  }
  if self.errors > 0 then parts[#parts + 1] = said(self.errors, "error", "errors") end
  return table.concat(parts, ", ")
end

--- What the candidate has come to, for one key.
---@param line table
---@param candidate neap.Candidate|nil
---@return neap.Shadow|nil
function shadow.snapshot(line, candidate)
  if not candidate then return nil end
  local self = of(line, candidate)
  local state = self.breaker:state(self.rules, line.native:now())
  return {
    file = candidate.file, hash = candidate.hash, state = state, since_ms = self.since_ms,
    calls = self.calls, same = self.same, saved = self.saved, lost = self.lost,
    neutral = self.neutral, let_through = self.let_through, opened = self.opened,
    closed = self.closed, errors = self.errors, last = self.last_moved,
    text = text_of(self, state),
  }
end

return shadow
