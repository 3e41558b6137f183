--- What is around a call, outermost first:
--
--   fallback --> retry --> bulkhead --> | breaker --> timeout --> f |
--                                        one attempt, and one outcome: lua/src/call.c
--
-- Only calls of a policy with retry, bulkhead or deadline_ms come here, and such whose caller has a
-- deadline of his own.  The frame of their attempts (lua/src/call.c) is a table that the hooks
-- refuse and settle leave in what became of the attempt, and go no further; when there is no other,
-- it ends here, as any call's ends there.
--
-- The deadline is one instant for all of it: attempts, waits and fallbacks get what is left of it.

local bulkhead = require "neap.bulkhead"
local refusal = require "neap.refusal"
local retry = require "neap.retry"

local floor, huge, min, pcall = math.floor, math.huge, math.min, pcall

local layers = {}

---@class neap.Attempts the frame
---@field generation neap.Policy
---@field trail table|nil as in fallback.lua
---@field is_attempt true
---@field timeout_ms integer|nil of the attempt
---@field by_ms number the deadline; huge: none
---@field allowed_ms number how long it was at the beginning
---@field is_callers boolean the deadline is the caller's, not the policy's
---@field is_cut boolean the attempt has less time than timeout_ms
---@field made integer attempts that were let in
---@field refused neap.Refusal|nil why the last one was not
---@field ended string|nil how the last that was made ended, and the rest as hooks.settle has it
---@field a any
---@field b any
---@field outcome neap.Outcome
---@field reason string|nil
---@field retry_after_ms integer|nil
---@field call table as the policy saw it
---@field fields table of `call`

local function new(frame, began_ms, caller_by_ms)
  local policy = frame.generation or frame
  local by_ms, is_callers = policy.deadline_ms and began_ms + policy.deadline_ms or huge, false
  if caller_by_ms and caller_by_ms < by_ms then by_ms, is_callers = caller_by_ms, true end
  return {
    generation = policy, trail = frame.trail, is_attempt = true, made = 0,
    by_ms = by_ms, allowed_ms = by_ms - began_ms, is_callers = is_callers,
  }
end

--- The deadline has come before anything was tried.
local function too_late(line, attempts)
  return refusal.new {
    kind = "deadline", policy = line.guard.name, key = line.key,
    timeout_ms = math.max(0, attempts.allowed_ms),
  }
end

local function attempt_in(line, attempts, left_ms, f, ...)
  local timeout_ms = attempts.generation.timeout_ms or 0
  local was_cut = attempts.is_cut
  attempts.is_cut = left_ms < (timeout_ms > 0 and timeout_ms or huge)
  attempts.timeout_ms = attempts.is_cut and floor(left_ms) or timeout_ms
  line.attempt(attempts, f, ...)
  if attempts.refused then attempts.is_cut = was_cut end -- as the last that was made had it
end

--- One attempt, after its turn has come.
local function attempt(line, attempts, f, ...)
  local policy = attempts.generation
  attempts.refused = nil
  if policy.bulkhead then
    local left_ms = attempts.by_ms - line.native:now()
    bulkhead.wait(line, line.guard.host, min(policy.bulkhead.wait_ms, left_ms))
  end
  local left_ms = attempts.by_ms - line.native:now()
  if left_ms < 1 then
    attempts.refused = too_late(line, attempts)
  else
    attempt_in(line, attempts, left_ms, f, ...)
  end
  if attempts.refused then bulkhead.freed(line) end -- it has not taken what it waited for
end

--- Waits before the next attempt.  Where nothing can wait, it follows at once, unless the
--- dependency asked to be left alone.
---@return boolean go_on
local function pause(line, wait_ms, was_asked_for)
  local sleep = line.guard.host.sleep
  local has_slept = wait_ms == 0 or sleep and pcall(sleep, wait_ms)
  if has_slept or not was_asked_for then return true end
  line.guard.retries:count "deadline"
  return false
end

--- After an attempt: is there another?
local function goes_on(line, attempts)
  local retries, refused = line.guard.retries, attempts.refused
  if refused then
    if attempts.made > 0 then
      retries:count(refused.kind == "deadline" and "deadline" or "refused")
    end
    return false
  end
  if attempts.made > 1 then retries:ended(attempts.outcome) end
  local wait_ms, was_asked_for = retry.next(line, attempts.generation, attempts.call,
    attempts.outcome, attempts.retry_after_ms, attempts.made,
    attempts.by_ms - line.native:now())
  return wait_ms ~= nil and pause(line, wait_ms, was_asked_for)
end

--- The hook layered (lua/src/line.h), of hooks.turned_away and hooks.conclude.
---@param hooks table
---@return function
function layers.of(hooks)
  return function(line, frame, caller_by_ms, f, ...)
    local kept, info = line.guard.chain:at_once(line, frame.generation or frame, f, ...)
    if info then return kept, nil, info end
    local attempts = new(frame, line.native:now(), caller_by_ms)
    local rules = attempts.generation.retry
    if rules then line.guard.retries:called(rules, 1) end
    repeat attempt(line, attempts, f, ...) until not goes_on(line, attempts)
    if attempts.made == 0 then
      return hooks.turned_away(line, attempts, attempts.refused, f, ...)
    end
    return hooks.conclude(line, attempts, attempts, f, ...)
  end
end

return layers
