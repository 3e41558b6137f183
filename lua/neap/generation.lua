--- One generation of a policy: its functions wrapped to run in the sandbox, its numbers to be
--- printed.
--
-- A function of the policy's that raises, takes too long, yields or answers something else is a
-- fault: its answer for this call is the shipped one, and the fault's text goes to the caller, who
-- counts and logs it.

local classify = require "neap.classify"
local core = require "neap.core"
local library = require "neap.library"
local problem = require "neap.problem"
local sandbox = require "neap.sandbox"
local schema = require "neap.schema"
local together = require "neap.together"
local trials = require "neap.trials"

local generation = {}

local run, shown = core.run, problem.shown
local OUTCOMES = { success = true, failure = true, neutral = true }
local ENDS_IN = { close = true, open = true }
local LONGEST_REASON = 200
local YEAR_MS = 365 * 24 * 60 * 60 * 1000

-- ---- Functions --------------------------------------------------------------------------------

local function outcome_of(outcome, call)
  if outcome == "failure" and call.ended_by == "timeout" then return "timeout" end
  return outcome
end

--- What the shipped classifier says; it never raises, whatever is in the call.
local function shipped(call, fault)
  local ok, outcome, reason, retry_ms = pcall(classify.default, call)
  if not ok then outcome, reason, retry_ms = "failure", "not to be classified", nil end
  return outcome_of(outcome, call), reason, retry_ms, fault
end

local function classify_fault(outcome, reason, retry_ms)
  if not OUTCOMES[outcome] then
    return ('answered %s, not "success", "failure" or "neutral"'):format(shown(outcome))
  elseif reason ~= nil and type(reason) ~= "string" then
    return ("answered %s for a reason, not a text"):format(shown(reason))
  end
  return ("answered %s for retry_after_ms, not a number"):format(shown(retry_ms))
end

--- Whole milliseconds, for the core to judge: -1 is what it counts as senseless.
local function whole_ms(ms)
  if ms ~= ms or ms < 0 or ms > YEAR_MS then return -1 end
  return (math.floor(ms))
end

--- What classify answered, as a verdict; ok is false if it did not, and outcome says why.
local function judged(call, ok, outcome, reason, retry_ms)
  if ok and OUTCOMES[outcome] and (reason == nil or type(reason) == "string") then
    outcome = outcome_of(outcome, call)
    if reason then reason = reason:sub(1, LONGEST_REASON) end
    if retry_ms == nil then return outcome, reason end
    if type(retry_ms) == "number" then return outcome, reason, whole_ms(retry_ms) end
  end
  return shipped(call, ok and classify_fault(outcome, reason, retry_ms) or outcome)
end

--- A classify of the policy's own runs in the box.  One of the shipped ones is code of ours, and so
--- are its tables once they are copied: it needs no box.
local function new_classify(box, f, of_policy)
  local ours = library.sealed(of_policy, f)
  if not ours then return core.classifier(box, f, judged) end
  return function(call)
    local ok, outcome, reason, retry_ms = pcall(ours, call)
    if ok and reason == nil and outcome == "success" then return outcome end
    return judged(call, ok, outcome, reason, retry_ms)
  end
end

local function new_trip(box, f)
  return function(snapshot)
    local ok, value, kind = run(box, f, snapshot)
    if ok and (value == nil or type(value) == "boolean") then return value == true end
    if kind == "condemned" then f = nil end
    return false, ok and ("answered %s, not true or false"):format(shown(value)) or value
  end
end

local function new_decide(box, f)
  return function(round)
    local ok, value, kind = run(box, f, round)
    if ok and (value == nil or ENDS_IN[value]) then return value end
    if kind == "condemned" then f = nil end
    return nil, ok and ('answered %s, not "close", "open" or nil'):format(shown(value)) or value
  end
end

--- Whether a failed call may be made again, as the policy sees it: true or false | nil, a fault.
local function new_retry_on(box, f)
  return function(call)
    local ok, value, kind = run(box, f, call)
    if ok and (value == nil or type(value) == "boolean") then return value == true end
    if kind == "condemned" then f = nil end
    return nil, ok and ("answered %s, not true or false"):format(shown(value)) or value
  end
end

--- Told of a transition: a fault, or nothing.
local function new_on_transition(box, f)
  return function(event)
    local ok, fault, kind = run(box, f, event)
    if ok then return nil end
    if kind == "condemned" then f = nil end
    return fault
  end
end

local NAME_MOST = 103 -- bytes, with the policy's name and a slash: NEAP_NAME_MAX

--- A key as a text, WITHIN/KEY if it is one of several upstreams'; nil and what is wrong with it.
local function key_text(value, most, within)
  if type(value) == "number" and value == value and value - value == 0 then
    value = (value % 1 == 0 and "%.0f" or "%.14g"):format(value)
  end
  if type(value) ~= "string" then
    return nil, ("answered %s, not a text, a number or nil"):format(shown(value))
  elseif value == "" or #value > most or value == "*" or value:find("%c") then
    return nil, ("answered %s, not a key: 1 to %d letters, without control characters, and not *")
      :format(shown(value), most)
  end
  local whole = within and within .. "/" .. value or value
  if #whole > most then
    return nil, ("answered %s: %s has more than %d letters")
      :format(shown(value), shown(whole), most)
  end
  return whole
end

--- Whose breaker is a call's, within an upstream if so many share the policy: nil is the default
--- one's | nil, a fault.
local function new_key(box, f, name)
  local most = NAME_MOST - #name - 1
  return function(call, within)
    local ok, value, kind = run(box, f, call)
    if ok and value == nil then return nil end
    if ok then return key_text(value, most, within) end
    if kind == "condemned" then f = nil end
    return nil, value
  end
end

--- The values of a section without a rule in the core, by name, or nil if it is not there.
local function section_of(values, name)
  if values[name] == nil then return nil end
  local section = {}
  for _, key in ipairs(schema.names(name)) do
    local value = values[name .. "." .. key]
    if value == nil then value = schema.by_key[name .. "." .. key].default end
    section[key] = value
  end
  return section
end

-- ---- The effective configuration --------------------------------------------------------------

--- How a classifier is shown: by its name in the library, by its lists, or as a function.
local function shown_classifier(value, of_policy)
  if value == nil then return "classify.default" end
  local name = library.name_of(of_policy, value)
  if name then return "classify." .. name end
  return type(value) == "table" and library.data_of(value) or "a function"
end

local function put(config, key, value)
  local section, name = key:match("^(.*)%.([^.]+)$")
  if not section then
    config[key] = value
    return
  end
  config[section] = config[section] or {}
  config[section][name] = value
end

--- Every key that has an effect, with the value in force.
local function config_of(parts)
  local config, numbers = {}, parts.rules:numbers()
  for _, spec in ipairs(schema.keys) do
    local value = parts.values[spec.key]
    local section = spec.key:match("^(.*)%.")
    if spec.rule then
      value = numbers[spec.rule]
    elseif value == nil and section and parts.values[section] ~= nil then
      value = spec.default
    end
    if spec.kind == "function" and value ~= nil then value = "a function" end
    local is_off = spec.rule and value == 0 and parts.values[spec.key] == nil
    if spec.kind ~= "table" and value ~= nil and not is_off then put(config, spec.key, value) end
  end
  config.window[config.window.kind == "time" and "calls" or "length_ms"] = nil
  if not together.has_rate(parts.values) then config.trip.minimum_calls = nil end
  config.classify = shown_classifier(parts.values.classify, parts.library)
  config.fallback = parts.shown
  config.fallback_on = parts.values.fallback_on or schema.by_key.fallback_on.default
  config.params = parts.params
  return config
end

-- ---- Trials -----------------------------------------------------------------------------------

--- Tries a classify on calls of every kind.  Answers what went wrong, and whether nothing did well.
local function try(verdict_of)
  local faults, seen, count = {}, {}, 0
  for _, trial in ipairs(trials) do
    local _, _, _, fault = verdict_of(trials.call(trial))
    if fault then
      count = count + 1
      if not seen[fault] then
        seen[fault] = true
        faults[#faults + 1] = ("classify, tried with %s: %s"):format(trial.title, fault)
      end
    end
  end
  return faults, count == #trials
end

--- Adds to the parts how the policy classifies; one that fails on every call is reported.
---@param report neap.report
function generation.judge(parts, report)
  local verdict = parts.values.classify
  if verdict == nil and library.is_changed(parts.library) then
    verdict = parts.classifiers.default
  end
  parts.classify, parts.faults, parts.has_classify = shipped, {}, verdict ~= nil
  if not verdict then return end
  parts.classify = new_classify(parts.sandbox.box, verdict, parts.library)
  local is_useless
  parts.faults, is_useless = try(parts.classify)
  if is_useless then report("classify", verdict, "fails on every call: %s", parts.faults[1]) end
end

-- ---- Putting it together ----------------------------------------------------------------------

--- The keys that the file sets itself; all others have their defaults.
local function given_in(values)
  local given = {}
  for key in pairs(values) do given[key] = true end
  return given
end

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

local function warnings_of(parts)
  local warnings = {}
  for i, one in ipairs(together.warnings(parts.values, parts.stages)) do
    warnings[i] = tostring(problem.new {
      file = parts.path, line = parts.line_of(one.key), key = one.key, message = one.message,
    })
  end
  for _, fault in ipairs(parts.faults) do warnings[#warnings + 1] = parts.path .. ": " .. fault end
  return warnings
end

--- The other guards that its stages ask.
local function guards_of(parts)
  local named = {}
  for i, stage in ipairs(parts.stages) do
    if stage.kind == "guard" then
      local key = ("fallback[%d]"):format(i)
      named[#named + 1] = { name = stage.guard, key = key, line = parts.line_of(key) }
    end
  end
  return named
end

local function sources_of(parts)
  local sources = { parts.path }
  for _, source in ipairs(parts.sandbox.sources) do sources[#sources + 1] = source.path end
  return sources
end

--- A generation, of its checked parts.
---@return neap.Policy
function generation.new(parts)
  local values, box, warned = parts.values, parts.sandbox.box, parts.sandbox.warned
  sandbox.unwarn(warned) -- what it said of the calls it was tried with
  local retry = section_of(values, "retry")
  if retry then retry.on = retry.on and new_retry_on(box, retry.on) end
  return {
    name = values.name, path = parts.path, hash = parts.hash, sources = sources_of(parts),
    rules = parts.rules, config = config_of(parts), given = given_in(values),
    timeout_ms = values.timeout_ms, mode = values.mode or "auto", params = parts.params,
    params_hash = core.fingerprint(parts.params_text), declares = parts.declared.specs ~= nil,
    parameters = parts.declared:rows(), settings = parts.settings,
    warnings = warnings_of(parts), stages = parts.stages, guards = guards_of(parts),
    fallback_on = set_of(values.fallback_on or schema.by_key.fallback_on.default),
    classify = parts.classify, has_classify = parts.has_classify,
    trip = values["trip.decide"] and new_trip(box, values["trip.decide"]),
    decide = values["half_open.decide"] and new_decide(box, values["half_open.decide"]),
    key = values.key and new_key(box, values.key, values.name), max_keys = values.max_keys,
    on_transition = values.on_transition and new_on_transition(box, values.on_transition),
    warned = warned,
    retry = retry, bulkhead = section_of(values, "bulkhead"), deadline_ms = values.deadline_ms,
  }
end

return generation
