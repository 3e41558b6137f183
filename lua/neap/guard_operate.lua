--- What an operator asks a guard, and does with it: snapshots, modes, reset, trip, counts.

local core = require "neap.core"
local guard_lines = require "neap.guard_lines"
local guard_log = require "neap.guard_log"
local line = require "neap.line"
local problem = require "neap.problem"
local shadow = require "neap.shadow"
local suggest = require "neap.suggest"
local tally = require "neap.tally"

local existing, no_such_key = guard_lines.existing, guard_lines.none

local NO_TALLY = "%s: no row in %s for what is counted beside breakers, so each process shows its "
  .. "own: %s"

---@class neap.Guard
local Guard = {}

--- Everything an operator asks about one key; changes nothing.
---@param key? string
---@return neap.Snapshot|nil, string|nil message
function Guard:snapshot(key)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local snapshot = of_key.breaker:snapshot(self.policy.rules, of_key.native:now())
  local totals = snapshot.totals
  local judged = totals.success + totals.slow_success + totals.failure + totals.slow_failure
  local ended = judged + totals.neutral
  snapshot.policy, snapshot.key, snapshot.hash = self.name, of_key.key, self.policy.hash
  snapshot.bulkhead_in_flight, snapshot.bulkhead_rejected = of_key.native:slots()
  snapshot.in_flight, snapshot.overdue = of_key.native:flight()
  snapshot.neutral_share = ended > 0 and totals.neutral / ended or 0
  snapshot.shadow = shadow.snapshot(of_key, self.candidate)
  return snapshot
end

--- Says that the time of an operator's mode is over: once.
local function mode_over(self, of_key, set)
  of_key.operator = nil
  core.protect(self.log, "warning", ("%s/%s: the time of mode %s%s is over: %s again"):format(
    self.name, of_key.key, set.mode, set.by and ", set by " .. set.by .. "," or "",
    self.policy.mode))
end

--- What is set for the key, if that is still so.
local function set_now(self, of_key)
  local set = of_key.operator
  if set and set.until_ms and of_key.native:now() >= set.until_ms then
    mode_over(self, of_key, set)
    return nil
  end
  return set
end

--- Looks when it is over, where the host can; its timers may be early, by another clock.
local function watch_mode(self, of_key, set)
  local later = self.host.later
  if not later or not set.until_ms then return end
  later(math.max(1, set.until_ms - of_key.native:now()), function()
    if of_key.operator == set and set_now(self, of_key) then watch_mode(self, of_key, set) end
  end)
end

local ACTION = { for_ms = true, by = true, reason = true }

--- A misspelt for_ms would be a mode for good.
local function check_action(action)
  if type(action) ~= "table" then error("action must be a table, got " .. type(action), 3) end
  for name in next, action do
    if not ACTION[name] then
      error(("an action has no %s%s"):format(guard_log.said(name),
        suggest.hint(name, { "by", "for_ms", "reason" })), 3)
    end
  end
end

local MODES = { "auto", "forced_open", "forced_closed", "shadow" }
local WRONG_MODE = 'mode must be "' .. table.concat(MODES, '", "')
  .. '", or nil for the policy\'s, got %s%s'

local function check_mode(mode)
  if mode == nil then return end
  for _, one in ipairs(MODES) do
    if mode == one then return end
  end
  error(WRONG_MODE:format(problem.shown(mode), suggest.hint(mode, MODES)), 3)
end

local function check_ms(name, ms)
  if ms == nil or type(ms) == "number" then return end
  error(("%s must be milliseconds, got %s"):format(name, problem.shown(ms)), 3)
end

--- Sets the mode of one key, which goes before the policy's.
---@param key string|nil
---@param mode neap.Mode|nil nil: back to the policy's
---@param action? { for_ms?: number, by?: string, reason?: string } without for_ms: for good
---@return boolean|nil, string|nil message
function Guard:mode(key, mode, action)
  action = action or {}
  check_action(action)
  check_mode(mode)
  check_ms("for_ms", action.for_ms)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local now_ms = of_key.native:now()
  local ok, message = of_key.breaker:set_mode(now_ms, mode, action.for_ms)
  if not ok then return nil, message end
  of_key.operator = mode and {
    mode = mode, by = action.by, reason = action.reason, at_ms = now_ms,
    until_ms = action.for_ms and now_ms + action.for_ms or nil,
  }
  core.protect(self.log, "info", ("%s/%s: mode %s%s%s%s"):format(self.name, of_key.key,
    mode or "of the policy",
    action.for_ms and (" for %.14g ms"):format(action.for_ms) or "",
    action.by and " by " .. action.by or "", action.reason and ": " .. action.reason or ""))
  if mode then core.protect(watch_mode, self, of_key, of_key.operator) end
  return true
end

--- Who set the mode that is in force, and until when; nil if nobody did.
---@param key? string
---@return { mode: neap.Mode, by?: string, reason?: string, at_ms: integer, until_ms?: integer }|nil
function Guard:operator(key)
  local of_key = existing(self, key)
  return of_key and set_now(self, of_key)
end

--- How the breaker came to be as it is, with the rule and the numbers that made it so; nil if it
--- has not moved since this guard was made. Not to be changed: event handlers may hold it, too.
---@param key? string
---@return neap.Event|nil
function Guard:last_transition(key)
  local of_key = existing(self, key)
  return of_key and of_key.last_moved
end

--- How a breaker that is not closed left that, however often it has been asked since; nil if it is
--- closed, or if others share it, as these may have closed it meanwhile. Not to be changed either.
---@param key? string
---@return neap.Event|nil
function Guard:opening(key)
  local of_key = existing(self, key)
  if not of_key or self.is_shared then return nil end
  return of_key.last_moved and of_key.last_moved.to ~= "closed" and of_key.left_closed or nil
end

--- To closed, with a clean window, from any state; a shadow policy's breaker, too.
---@param key? string
---@param by? string
---@return boolean|nil, string|nil message
function Guard:reset(key, by)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  line.enqueue(of_key, of_key.breaker:reset(self.policy.rules, of_key.native:now()), by)
  self.events:deliver()
  shadow.reset(of_key, self.candidate, by)
  return true
end

--- To open, from any state.
---@param key? string
---@param open_ms? number how long; without: the cooldown
---@param by? string
---@return boolean|nil, string|nil message
function Guard:trip(key, open_ms, by)
  check_ms("open_ms", open_ms)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local moved, message = of_key.breaker:trip(self.policy.rules, of_key.native:now(), open_ms)
  if message then return nil, message end
  line.enqueue(of_key, moved, by)
  self.events:deliver()
  return true
end

--- Adds the stats of the other processes, where there are some.
local function share(self, stats)
  if not self.tally then
    local message
    self.tally, message = tally.new(self.panel, self.name)
    if not self.tally then
      return guard_log.seldom(self, "tally", "warning",
        NO_TALLY:format(self.name, tostring(self.panel), message))
    end
  end
  self.tally:share(stats)
  stats.is_shared = true
end

--- What it has counted; in a shared panel, what all processes have, so far as they were asked for
--- their stats since.
---@return neap.Stats
function Guard:stats()
  if self.policy.warned[1] then self:warned(self.policy) end
  local breakers = 0
  for _ in pairs(self.lines) do breakers = breakers + 1 end
  local stats = {
    fallbacks = self.chain:rows(), fallback_durations = self.chain:took(),
    retries = {}, retry_budget = self.retries:left(self.policy.retry, self.line.native:now()),
    queues = self.chain.durables:rows(), stores = self.chain:stored(),
    policy_errors = self.policy_errors, overflow = self.overflow, breakers = breakers,
    keys = self.count,
    evicted = self.rows and self.rows.evicted or 0, max_keys = self.max_keys,
    reloads = { ok = self.reloads, failed = self.failed_reloads },
    last_error = self.last_error, hash = self.policy.hash,
    shadow = self.candidate and {
      file = self.candidate.file, hash = self.candidate.hash,
      error = self.policy.candidate.error and tostring(self.policy.candidate.error),
    },
  }
  for result, count in pairs(self.retries.counts) do stats.retries[result] = count end
  if self.is_shared then share(self, stats) end
  return stats
end

return Guard
