--- Checks the values of a policy against each other, and turns them into rules for the core.

local core = require "neap.core"
local problem = require "neap.problem"
local schema = require "neap.schema"

local together = {}

local shown = problem.shown
local DAY_MS = 24 * 60 * 60 * 1000
local WRONG_WINDOW = 'belongs to a window of kind = "%s"; this one has kind = "%s"'
local NO_RULE = "has no rule: give failures, consecutive_failures, failure_rate, slow_rate or "
  .. "decide, e.g. trip = { failures = 5 }"
local HANGS = "one caller of a dependency that hangs never opens it: %s calls of timeout_ms = %s "
  .. "take longer than window.length_ms = %s; add trip.consecutive_failures"
local MINIMUM_CALLS = 10 -- of a time window, if not given: as the core has it
local IS_RULE = {
  failures = true, consecutive_failures = true, failure_rate = true, slow_rate = true,
  decide = true,
}

-- ---- Impossible combinations ------------------------------------------------------------------

--- The value of a key, or its default.
local function in_force(values, key)
  local value = values[key]
  if value == nil then return schema.by_key[key].default end
  return value
end

--- Whether a rule is given, or may be: a key that is not known is reported as such.
local function has_rule(trip)
  local is_known = {}
  for _, name in ipairs(schema.names("trip")) do is_known[name] = true end
  for name in next, trip do
    if IS_RULE[name] or not is_known[name] then return true end
  end
  return false
end

local function check_window(v, report)
  if v["window.kind"] == "count" then
    if v["window.length_ms"] then
      report("window.length_ms", v["window.length_ms"], WRONG_WINDOW, "time", "count")
    end
  elseif v["window.calls"] then
    report("window.calls", v["window.calls"], WRONG_WINDOW, "count", "time")
  end
end

local function check_trip(v, given, report)
  local trip = rawget(given, "trip")
  if type(trip) == "table" and not has_rule(trip) then
    report("trip", nil, NO_RULE)
  end
  if v["trip.slow_rate"] and not v["trip.slow_call_ms"] then
    report("trip.slow_rate", v["trip.slow_rate"], "needs trip.slow_call_ms: which calls are slow?")
  end
  local calls = in_force(v, "window.calls")
  for _, key in ipairs { "trip.failures", "trip.minimum_calls" } do
    if v["window.kind"] == "count" and v[key] and v[key] > calls then
      report(key, v[key], "%s is more than the window holds: at most window.calls, which is %s",
        shown(v[key]), shown(calls))
    end
  end
end

local function check_open(v, report)
  local cooldown, jitter = in_force(v, "open.cooldown_ms"), in_force(v, "open.jitter")
  local most = v["open.max_cooldown_ms"]
  local longest = most or cooldown
  if most and most < cooldown then
    report("open.max_cooldown_ms", most, "%s is less than open.cooldown_ms, which is %s",
      shown(most), shown(cooldown))
  elseif longest * (1 + jitter) > DAY_MS then
    report(most and "open.max_cooldown_ms" or "open.cooldown_ms", longest,
      "%s, lengthened by a jitter of %s, is more than a day, which is %d",
      shown(longest), shown(jitter), DAY_MS)
  end
end

local function check_half_open(v, report)
  local probes, successes = in_force(v, "half_open.probes"), v["half_open.successes"]
  if successes and successes > probes then
    report("half_open.successes", successes,
      "%s is more than there are probes: at most half_open.probes, which is %s",
      shown(successes), shown(probes))
  end
  local lease, timeout = v["half_open.lease_ms"], v.timeout_ms
  if lease and timeout and lease <= timeout then
    report("half_open.lease_ms", lease,
      "%s must be more than timeout_ms, which is %s: a probe may take that long",
      shown(lease), shown(timeout))
  end
end

local function check_layers(v, report)
  local base, most = in_force(v, "retry.base_ms"), in_force(v, "retry.max_ms")
  if base > most then
    report(v["retry.base_ms"] and "retry.base_ms" or "retry.max_ms", v["retry.base_ms"] or most,
      "base_ms = %s is more than max_ms, which is %s", shown(base), shown(most))
  end
  if v.bulkhead and rawget(v.bulkhead, "concurrent") == nil then
    report("bulkhead", nil, "has no concurrent: how many calls at once? e.g. bulkhead = { "
      .. "concurrent = 50 }")
  end
  if v.deadline_ms and v.timeout_ms and v.deadline_ms < v.timeout_ms then
    report("deadline_ms", v.deadline_ms, "%s is less than timeout_ms, which is %s: one attempt may "
      .. "take that long", shown(v.deadline_ms), shown(v.timeout_ms))
  end
end

--- Reports the combinations that cannot be.
---@param values table<string, any> as of validate.values
---@param given table what the policy file returned
---@param report neap.report
function together.check(values, given, report)
  check_window(values, report)
  check_trip(values, given, report)
  check_open(values, report)
  check_half_open(values, report)
  check_layers(values, report)
end

-- ---- Rules ------------------------------------------------------------------------------------

-- Replicas of one service must not come back to a dependency in step: every process has its own.
local seed = core.seed()

--- The core's rules; what it finds wrong is reported by the policy's key.
---@param values table<string, any>
---@param report neap.report
---@return userdata|nil rules
function together.rules(values, report)
  local numbers = {
    seed = seed,
    trip_by_function = values["trip.decide"] ~= nil,
    decide_by_function = values["half_open.decide"] ~= nil,
  }
  for rule, spec in pairs(schema.by_rule) do numbers[rule] = values[spec.key] end
  local probes = numbers.probes
  if probes and not numbers.successes and probes < schema.by_key["half_open.successes"].default then
    numbers.successes = probes
  end
  local rules, fault = core.rules(numbers)
  if rules then return rules end
  local spec = schema.by_rule[fault.field]
  local key = spec and spec.key or fault.field
  report(key, fault.value, "%s %s", shown(fault.value), fault.expected)
end

-- ---- What is allowed but surprising -----------------------------------------------------------

local function is_total(stage)
  return stage.kind == "fail" or stage.kind == "default" and stage.is_constant
end

--- Whether a rule for which minimum_calls means something is there.
---@param values table<string, any>
function together.has_rate(values)
  return (values["trip.failure_rate"] or values["trip.slow_rate"] or values["trip.decide"]) ~= nil
end

--- A dependency that hangs gives one caller a failure per timeout_ms.  Warns if no rule can come to
--- hold for that, as so many have never been in the window at once.  Failures in a row, and what a
--- function makes of them, know no window.
local function warn_of_hangs(v, warn)
  if not v.timeout_ms or v["window.kind"] == "count" then return end
  if v["trip.consecutive_failures"] or v["trip.decide"] then return end
  local key = v["trip.failures"] and "trip.failures" or "trip.minimum_calls"
  local needed = v["trip.failures"] or MINIMUM_CALLS
  if v["trip.failure_rate"] or v["trip.slow_rate"] then
    local calls = v["trip.minimum_calls"] or MINIMUM_CALLS
    needed = v["trip.failures"] and math.min(needed, calls) or calls
  end
  local length_ms = in_force(v, "window.length_ms")
  if needed * v.timeout_ms <= length_ms then return end
  warn(v[key] and key or "trip", HANGS, shown(needed), shown(v.timeout_ms), shown(length_ms))
end

--- Sentences about what can be, but hardly was meant.
---@param values table<string, any>
---@param made neap.Stage[]
---@return { key: string, message: string }[]
function together.warnings(values, made)
  local found = {}
  local function warn(key, message, ...)
    found[#found + 1] = { key = key, message = message:format(...) }
  end
  if values["trip.minimum_calls"] and not together.has_rate(values) then
    warn("trip.minimum_calls", "has no effect: it is for rates, and there is no rule of that kind")
  end
  local slow, timeout = values["trip.slow_call_ms"], values.timeout_ms
  if slow and timeout and slow >= timeout then
    warn("trip.slow_call_ms", "no call is slow: at timeout_ms = %s it is given up", shown(timeout))
  end
  warn_of_hangs(values, warn)
  if values["retry.budget"] == 0 and values["retry.budget_per_s"] == 0 then
    warn("retry.budget", "no call is tried again: budget and budget_per_s are both 0")
  end
  for i = 1, #made - 1 do
    if is_total(made[i]) then
      warn(("fallback[%d]"):format(i + 1), "is never asked: fallback[%d] always answers", i)
      break
    end
  end
  if values.fallback_on and not values.fallback then
    warn("fallback_on", "has no effect: there is no fallback")
  end
  return found
end

return together
