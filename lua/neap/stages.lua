--- The constructors of a policy's fallback stages, and what becomes of what they make.
--
-- fallback.last_good { … } and its sisters only note what they were given, and answer a token that
-- the policy puts into its list.  The list is checked when the file has run, with the rest of it,
-- so that what is wrong with a stage is reported by its place and line.

local answer = require "neap.answer"
local core = require "neap.core"
local problem = require "neap.problem"
local schema = require "neap.schema"
local suggest = require "neap.suggest"
local validate = require "neap.validate"

local stages = {}

local run = core.run
local shown = problem.shown
local DEEPEST, MOST_VALUES, MOST_BYTES = 32, 10000, 1024 * 1024 -- of an answer
local MOST_STAGES, LONGEST_KEY = 100, 1024
local TOO_LARGE = "is too large"
local NO_STAGE = "%s is no stage: write fallback.last_good { ... }, fallback.default(...), "
  .. "fallback.fail { ... }, fallback.guard(...), fallback.queue(...) or a function"
local NO_BY = "needs by = function(call) ... end: which of them is a call about?"
local NO_TABLE = "%s: with by, a table of answers by key is needed"
local NO_DEFAULT = "has no default for %s, which is one of the keys"
local NO_KEY = "has a default for %s, which is not one of the keys%s"

---@class (exact) neap.Stage
---@field kind "last_good"|"default"|"fail"|"guard"|"queue"|"function"
---@field timeout_ms? integer
---@field concurrent? integer of guard and queue
---@field max_age_ms? integer of last_good and queue, as the next two
---@field max_entries? integer
---@field max_bytes? integer
---@field max_entry_bytes? integer of last_good, as the next three
---@field revalidate_after_ms? integer
---@field persist? string
---@field key? fun(call: table): string|nil, string|nil what is asked for; or a fault
---@field queue? string of queue, as the next two: its name
---@field attempts? integer
---@field sent? boolean
---@field status? integer of fail, as the next two
---@field error_kind? string
---@field retry_after_ms? integer
---@field guard? string of guard
---@field run? fun(call: table): any, string|nil of default and function: the answer, or a fault
---@field is_constant? boolean of default: it always answers

-- ---- Constructors -----------------------------------------------------------------------------

--- The library that policies see as `fallback`; `noted` maps its tokens to what they stand for, and
--- its constructors to their names.
function stages.library()
  local noted = setmetatable({}, { __mode = "k" })
  local function note(kind, options, argument)
    local token = {}
    noted[token] = { kind = kind, options = options, argument = argument }
    return token
  end
  --- A constructor fallback.NAME(argument, options), the argument known as `key` in the schema.
  local function with_argument(kind, key)
    return function(argument, options)
      return note(kind, options == nil and {} or options, { key = key, value = argument })
    end
  end
  local library = {
    last_good = function(options) return note("last_good", options == nil and {} or options) end,
    fail = function(options) return note("fail", options == nil and {} or options) end,
    default = with_argument("default", "value"),
    guard = with_argument("guard", "name"),
    queue = with_argument("queue", "name"),
    call = with_argument("function", "run"),
  }
  for name, constructor in next, library do noted[constructor] = { constructor = name } end
  setmetatable(library, {
    __metatable = false,
    __index = function(_, name)
      local names = {}
      for known in next, library do names[#names + 1] = known end
      error(("fallback.%s is not known%s"):format(tostring(name), suggest.hint(name, names)), 2)
    end,
  })
  return library, noted
end

-- ---- Values -----------------------------------------------------------------------------------

--- Why a value cannot be an answer, or nil.  It is weighed as what it would be written out: a table
--- that is in it twice counts twice, or a few tables could stand for billions.  A metatable of the
--- policy's is a fault: what it says would run unbounded.
---@param is_own fun(value: any): boolean whether its metatable is the policy's
local function answer_fault(value, is_own, sum, depth)
  local kind = type(value)
  if kind == "string" then sum.bytes = sum.bytes + #value end
  if kind ~= "table" then return sum.bytes > MOST_BYTES and TOO_LARGE or nil end
  if is_own(value) then return "has a metatable: only data can be an answer" end
  if depth > DEEPEST then return "is nested too deeply, or contains itself" end
  for key, part in next, value do
    sum.values = sum.values + 1
    if sum.values > MOST_VALUES then return TOO_LARGE end
    local fault = answer_fault(key, is_own, sum, depth + 1)
      or answer_fault(part, is_own, sum, depth + 1)
    if fault then return fault end
  end
end

local function weighed(value, is_own)
  return answer_fault(value, is_own, { values = 0, bytes = 0 }, 1)
end

--- A copy of a value that nobody else holds: data only, weighed before.  Raises what is wrong.
local function copy_of(value)
  local kind = type(value)
  if kind == "function" or kind == "thread" or kind == "userdata" then
    error(("has a %s in it: only data can be a default"):format(kind), 0)
  end
  if kind ~= "table" then return value end
  local copy = {}
  for key, part in next, value do copy[copy_of(key)] = copy_of(part) end
  return copy
end

--- A function of the policy's as a stage runs it.
local function budgeted(box, f, is_own)
  return function(call)
    local ok, value, kind = run(box, f, call)
    if not ok then
      if kind == "condemned" then f = nil end
      return nil, value
    end
    local fault = weighed(value, is_own)
    if fault then return nil, "its answer " .. fault end
    return value
  end
end

local function budgeted_key(box, f)
  return function(call)
    local ok, value, kind = run(box, f, call)
    if not ok then
      if kind == "condemned" then f = nil end
      return nil, value
    end
    if type(value) == "string" and #value > LONGEST_KEY then
      return nil, ("answered a text of more than %d bytes"):format(LONGEST_KEY)
    end
    if value == nil or type(value) == "string" or type(value) == "number" then return value end
    return nil, ("answered %s, not a text"):format(shown(value))
  end
end

-- ---- Stages -----------------------------------------------------------------------------------

--- A copy of a default's value; or nil and why it cannot be one.
local function checked_copy(value, is_own)
  local fault = weighed(value, is_own)
  if fault then return nil, fault end
  local ok, copy = pcall(copy_of, value)
  if not ok then return nil, copy end
  return copy, type(copy) == "table" and answer.fault(copy) or nil
end

--- A constant answer, as a function that gives each caller a copy of his own; and how it is shown.
local function constant(value)
  if type(value) ~= "table" then return function() return value end end
  return function() return copy_of(value) end
end

local function new_default(path, options, sandbox, report)
  local value = options.value
  if type(value) == "function" then
    return budgeted(sandbox.box, value, sandbox.is_own_metatable), "a function"
  end
  local copy, fault = checked_copy(value, sandbox.is_own_metatable)
  if fault then report(path, value, "fallback.default: " .. fault) end
  return constant(copy), copy
end

local function report_keys(path, answers, keys, report)
  local is_key = {}
  for _, key in ipairs(keys) do
    is_key[key] = true
    if answers[key] == nil then report(path, nil, NO_DEFAULT, shown(key)) end
  end
  for key in next, answers do
    if not is_key[key] then report(path, nil, NO_KEY, shown(key), suggest.hint(key, keys)) end
  end
end

--- A table of constant answers, of which `by` chooses one.
local function new_defaults(path, options, sandbox, report)
  local answers, as_shown = {}, {}
  local given = options.value
  local whole = type(given) ~= "table" and NO_TABLE:format(shown(given))
    or weighed(given, sandbox.is_own_metatable)
  if whole then
    report(path, given, "fallback.default: " .. whole)
    return nil
  end
  for key, value in next, given do
    local copy, fault = checked_copy(value, sandbox.is_own_metatable)
    if fault then report(path, value, "fallback.default, %s: %s", shown(key), fault) end
    answers[key], as_shown[key] = constant(copy), copy
  end
  if options.keys then report_keys(path, as_shown, options.keys, report) end
  local key_of = budgeted_key(sandbox.box, options.by)
  return function(call)
    local key, fault = key_of(call)
    if fault then return nil, "by: " .. fault end
    local give = key ~= nil and answers[key]
    if give then return give() end
  end, as_shown
end

--- The stage that a token stands for, and how it is shown.
local function new_stage(noted, path, sandbox, report)
  local kind, given = noted.kind, noted.options
  if type(given) ~= "table" then
    report(path, given, "%s: a table of options is needed", shown(given))
    return nil
  end
  local merged = {}
  for key, value in next, given do merged[key] = value end
  if noted.argument then merged[noted.argument.key] = noted.argument.value end
  local options = validate.options(kind, merged, path, report)
  local stage, as_shown = { kind = kind }, { kind = kind }
  for _, spec in ipairs(schema.stages[kind]) do
    local value = options[spec.key]
    stage[spec.key] = value
    as_shown[spec.key] = type(value) == "function" and "a function" or value
  end
  if kind == "last_good" then
    stage.key = options.key and budgeted_key(sandbox.box, options.key)
  elseif kind == "default" and options.value ~= nil then
    stage.value, stage.by, stage.keys = nil, nil, nil
    if options.keys and not options.by then report(path .. ".keys", nil, NO_BY) end
    local make = options.by and new_defaults or new_default
    stage.run, as_shown.value = make(path, options, sandbox, report)
    stage.is_constant = type(options.value) ~= "function" and not options.by
  elseif kind == "fail" then
    stage.error_kind = options.kind
    stage.kind, as_shown.kind, as_shown.error_kind = kind, kind, options.kind
  elseif kind == "guard" then
    stage.guard, stage.name = options.name, nil
  elseif kind == "queue" then
    stage.queue, stage.name = options.name, nil
  elseif kind == "function" then
    stage.run = options.run and budgeted(sandbox.box, options.run, sandbox.is_own_metatable)
  end
  return stage, as_shown
end

--- The stages of a policy's `fallback` list.
---@param list table
---@param noted table<table, table> as of stages.library()
---@param sandbox neap.Sandbox
---@param report neap.report
---@return neap.Stage[] made, table[] as_shown
function stages.of(list, noted, sandbox, report)
  local made, as_shown, n = {}, {}, 0
  if noted[list] then
    report("fallback", nil, "is one stage, not a list of them: write fallback = { ... } around it")
  end
  for key in next, list do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 then
      report(("fallback[%s]"):format(shown(key)), nil, "is no place in a list of stages")
    elseif key > n then
      n = key
    end
  end
  if n > MOST_STAGES then report("fallback", nil, "has more than %d stages", MOST_STAGES) end
  for i = 1, math.min(n, MOST_STAGES) do
    local value, path = rawget(list, i), ("fallback[%d]"):format(i)
    if value == nil then
      report(path, nil, "is nil: a stage is missing; is what stands there defined?")
    elseif noted[value] and noted[value].constructor then
      report(path, nil, "is fallback.%s itself, not a stage it makes: call it",
        noted[value].constructor)
    elseif type(value) == "function" then
      value = { kind = "function", options = {}, argument = { key = "run", value = value } }
      made[#made + 1], as_shown[#as_shown + 1] = new_stage(value, path, sandbox, report)
    elseif noted[value] then
      made[#made + 1], as_shown[#as_shown + 1] = new_stage(noted[value], path, sandbox, report)
    else
      report(path, value, NO_STAGE, shown(value))
    end
  end
  return made, as_shown
end

return stages
