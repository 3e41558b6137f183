--- Tuning: many versions of a policy's numbers, each tried on the same log, and which of them are
--- worth having.
--
--   vary "trip.failure_rate=0.2..0.8"   --> the values of a key
--   candidates(policy, varied)          --> every combination that a policy may be
--   judge(rows, log)                    --> the Pareto front, and one of it; or why none is named
--
--    waiting |          o---o        front: nothing else spares more and costs less
--    spared  |     (o)·  ·           knee: where more of the one begins to cost much of the other
--            |   o/   ·   ·
--            +---------------- good calls lost

local problem = require "neap.problem"
local schema = require "neap.schema"
local suggest = require "neap.suggest"
local together = require "neap.together"
local validate = require "neap.validate"
local words = require "neap.lab.words"

local tune = {}

local shown = problem.shown
local floor, max, min = math.floor, math.max, math.min

local STEPS = 7 -- of a range without a step
local MOST_VALUES, MOST_CANDIDATES = 200, 1000
local MOST_LIKE = 0.02 -- of what is to be had: so little is no reason to change anything

--- Below these nobody can tell chance from a rule.
local LEAST_CALLS, LEAST_FAILURES = 1000, 30

local OPTIONAL = "none"
local WITHOUT = {} -- a key that is left out

-- ---- What is varied ---------------------------------------------------------------------------

--- The keys whose change a replay can tell: the rules, but for what is not the breaker's own.
local function keys()
  local names = {}
  for _, spec in ipairs(schema.keys) do
    if spec.rule and spec.rule ~= "mode" then names[#names + 1] = spec.key end
  end
  return names
end

local function spec_of(key)
  local spec = schema.by_key[key]
  if spec and spec.rule and spec.rule ~= "mode" then return spec end
  if spec then
    return nil, ("a replay cannot tell what another %s would change; what can be varied: %s")
      :format(key, table.concat(keys(), ", "))
  end
  local hint = suggest.hint(key, keys())
  if hint == "" then
    local leaf = key:match("([^.]+)$")
    for _, name in ipairs(keys()) do
      if name:match("([^.]+)$") == leaf then hint = (": did you mean %s?"):format(name) end
    end
  end
  return nil, ("%s is no key of a policy%s"):format(key, hint)
end

local WHOLE = { whole = true, ms = true }

local function read_value(spec, text)
  if text == OPTIONAL then
    if spec.default == nil and not spec.required then return WITHOUT end
    return nil, "can't be left out: without it the default counts, " .. shown(spec.default)
  end
  local value = spec.choices and text or tonumber(text)
  if value == nil then
    return nil, ("%s is not a number: %s"):format(shown(text), schema.expected(spec))
  end
  local fault = validate.fault(spec, value)
  if fault then return nil, fault end
  return WHOLE[spec.kind] and floor(value) or value
end

--- To what a person would write: 0.3, not 0.30000000000000004.
local function rounded(spec, value)
  if WHOLE[spec.kind] then return floor(value + 0.5) end
  return tonumber(("%.6g"):format(value))
end

--- From LO to HI in steps; without one in some that are as large.
local function range(spec, from, to, step)
  local values, last = {}, nil
  local count = step and floor((to - from) / step + 1e-9) or STEPS - 1
  if count >= MOST_VALUES then
    return nil, ("is more than %d values: take a larger step"):format(MOST_VALUES)
  end
  for i = 0, count do
    local value = rounded(spec, step and from + i * step or from + (to - from) * i / count)
    if value ~= last then values[#values + 1] = value end
    last = value
  end
  return values
end

local function read_range(spec, from, to, step)
  if spec.choices then
    return nil, "has no range: name its values, as " .. table.concat(spec.choices, ",")
  end
  local lo, fault = read_value(spec, from)
  if lo == nil then return nil, fault end
  local hi
  hi, fault = read_value(spec, to)
  if hi == nil then return nil, fault end
  local by = step and tonumber(step)
  if lo == WITHOUT or hi == WITHOUT or lo >= hi then
    return nil, ("%s..%s: the second must be more than the first"):format(from, to)
  elseif step and (not by or by <= 0) then
    return nil, ("the step %s must be a number over 0"):format(step)
  end
  return range(spec, lo, hi, by)
end

local function read_list(spec, text)
  local values = {}
  for part in text:gmatch("[^,]+") do
    local value, fault = read_value(spec, part)
    if value == nil then return nil, fault end
    values[#values + 1] = value
  end
  if #values == 0 then return nil, "which values? E.g. 0.3,0.5 or 0.2..0.8 or 0.2..0.8:0.1" end
  return values
end

--- KEY=LO..HI, KEY=LO..HI:STEP or KEY=A,B,C; `none` is without it.
---@param text string
---@return { key: string, values: any[] }|nil
---@return string|nil message
function tune.vary(text)
  local key, values_text = text:match("^([%w_.]+)=(.*)$")
  if not key then return nil, "must be KEY=VALUES, e.g. trip.failure_rate=0.2..0.8" end
  local spec, message = spec_of(key)
  if not spec then return nil, message end
  local from, rest = values_text:match("^(.-)%.%.(.+)$")
  local values
  if from then
    local to, step = rest:match("^([^:]+):?(.*)$")
    values, message = read_range(spec, from, to, step ~= "" and step or nil)
  else
    values, message = read_list(spec, values_text)
  end
  if not values then return nil, ("%s: %s"):format(key, message) end
  return { key = key, values = values }
end

-- ---- Candidates -------------------------------------------------------------------------------

--- What stands at a key's path.
local function at(config, key)
  local section, name = key:match("^(.*)%.([^.]+)$")
  if not section then return config[key] end
  return config[section] and config[section][name]
end

--- What the file itself sets, by path, as validation has it.
local function given_values(policy)
  local values = {}
  for _, spec in ipairs(schema.keys) do
    if spec.kind ~= "table" and policy.given[spec.key] then
      values[spec.key] = at(policy.config, spec.key)
    end
  end
  values["trip.decide"] = policy.trip
  values["half_open.decide"] = policy.decide
  return values
end

local function nested(values)
  local given = {}
  for key, value in pairs(values) do
    local section, name = key:match("^(.*)%.([^.]+)$")
    if section then
      given[section] = given[section] or {}
      given[section][name] = value
    else
      given[key] = value
    end
  end
  given.trip = given.trip or {}
  return given
end

---@class (exact) neap.lab.tune.Candidate
---@field values table<string, any> of the keys that are varied; nil: without it
---@field is_now boolean|nil the policy as it is
---@field rules userdata
---@field timeout_ms integer|false

--- The rules of some values; or nil and what is wrong with them together.
local function rules_of(values)
  local fault
  local function report(key, _, message, ...)
    if select("#", ...) > 0 then message = message:format(...) end
    fault = fault or ("%s: %s"):format(key, message)
  end
  together.check(values, nested(values), report)
  local rules = not fault and together.rules(values, report) or nil
  return not fault and rules or nil, fault
end

--- Every combination of the values, each a list by the place of its key.
local function combinations(varied)
  local lists = { {} }
  for _, one in ipairs(varied) do
    local longer = {}
    for _, list in ipairs(lists) do
      for _, value in ipairs(one.values) do
        local copy = table.move(list, 1, #list, 1, {})
        copy[#copy + 1] = value
        longer[#longer + 1] = copy
      end
    end
    lists = longer
  end
  return lists
end

--- What is to be tried, the policy as it is first; those that no policy may be are left out.
---@param policy neap.Policy
---@param varied { key: string, values: any[] }[]
---@return neap.lab.tune.Candidate[]|nil
---@return { count: integer, why: string|nil }|string left_out, or what is wrong
function tune.candidates(policy, varied)
  local base, count, seen = given_values(policy), 1, {}
  for _, one in ipairs(varied) do
    if seen[one.key] then return nil, one.key .. " is varied twice" end
    seen[one.key], count = true, count * #one.values
  end
  if count > MOST_CANDIDATES then
    return nil, ("%d combinations: %d are the most; vary less, or in larger steps"):format(count,
      MOST_CANDIDATES)
  end
  local now = { values = {}, is_now = true, rules = policy.rules,
    timeout_ms = policy.timeout_ms or false }
  for _, one in ipairs(varied) do now.values[one.key] = at(policy.config, one.key) end
  local list, left_out = { now }, { count = 0 }
  for _, combination in ipairs(combinations(varied)) do
    local values, own = {}, {}
    for key, value in pairs(base) do values[key] = value end
    for i, one in ipairs(varied) do
      local value = combination[i]
      if value == WITHOUT then value = nil end
      values[one.key], own[one.key] = value, value
    end
    local rules, fault = rules_of(values)
    if rules then
      list[#list + 1] = { values = own, rules = rules, timeout_ms = values.timeout_ms or false }
    else
      left_out.count, left_out.why = left_out.count + 1, left_out.why or fault
    end
  end
  if #list == 1 then return nil, "no combination is a policy: " .. tostring(left_out.why) end
  return list, left_out
end

-- ---- Judging ----------------------------------------------------------------------------------

---@class neap.lab.tune.Row what a candidate came to
---@field values table<string, any>
---@field is_now boolean|nil
---@field opened integer
---@field lost integer good calls that were refused, or cut off by its timeout
---@field saved integer calls refused that would have failed
---@field saved_ms integer waiting for those, and for what its timeout cut off
---@field refused integer
---@field front boolean|nil set by judge: none is better in both
---@field score number|nil likewise: of what is to be had, less of what is to be lost
---@field counts table<string, integer> what it is made of

--- The row of a lane's counts.
function tune.row(candidate, counts)
  return {
    values = candidate.values, is_now = candidate.is_now, opened = counts.opened,
    lost = counts.lost + counts.cut_good, saved = counts.saved,
    saved_ms = counts.saved_ms + counts.cut_ms, refused = counts.refused,
    open_ms = counts.open_ms, unknown = counts.refused_unknown,
    calls = counts.calls, failures = counts.failure, counts = counts,
  }
end

--- What is gained: waiting; where failures take no time, failures that were spared.
local function measure(rows)
  local most = 0
  for _, row in ipairs(rows) do most = max(most, row.saved_ms) end
  for _, row in ipairs(rows) do
    row.gain = most >= 1000 and row.saved_ms or row.saved
  end
  return most >= 1000 and "saved_ms" or "saved"
end

local function mark_front(rows)
  local sorted = table.move(rows, 1, #rows, 1, {})
  table.sort(sorted, function(a, b)
    if a.lost ~= b.lost then return a.lost < b.lost end
    return a.gain > b.gain
  end)
  local best, best_lost = -1, nil
  for _, row in ipairs(sorted) do
    row.front = row.gain > best or row.gain == best and row.lost == best_lost
    if row.gain > best then best, best_lost = row.gain, row.lost end
  end
end

local function score(rows)
  local most_gain, most_lost = 0, 0
  for _, row in ipairs(rows) do
    if row.front then most_gain, most_lost = max(most_gain, row.gain), max(most_lost, row.lost) end
  end
  for _, row in ipairs(rows) do
    local gain = most_gain > 0 and row.gain / most_gain or 0
    row.score = gain - (most_lost > 0 and row.lost / most_lost or 0)
  end
end

--- Of those that come to the same, the one in the middle: its neighbours are as good.
local function middle(rows, best)
  local same = {}
  for _, row in ipairs(rows) do
    if row.front and row.lost == best.lost and row.gain == best.gain then same[#same + 1] = row end
  end
  for _, row in ipairs(same) do
    if row.is_now then return row, #same end
  end
  return same[floor((#same + 1) / 2)], #same
end

--- Why nothing can be said; nil if something can.
local function too_little(rows)
  local calls, failures, opened = rows[1].calls, 0, 0
  for _, row in ipairs(rows) do
    failures, opened = max(failures, row.failures), max(opened, row.opened)
  end
  if calls < LEAST_CALLS then
    return ("the log has %s; at least %d are needed"):format(words.counted(calls, "call"),
      LEAST_CALLS)
  elseif failures < LEAST_FAILURES then
    return ("the log has %s; at least %d are needed: take one with an outage in it")
      :format(words.counted(failures, "failure"), LEAST_FAILURES)
  elseif opened == 0 then
    return "none of them opens once in this log: there is nothing to choose by"
  end
end

local CAUTIONS = {
  one = "The breaker opened once at most: what fits one incident may fit no other. Take a longer "
    .. "log.",
  edge = "%s = %s is an end of what was tried: the best may lie beyond.",
  unknown = "%d of the calls that it refuses had been refused by the log's own breaker: what they "
    .. "would have come to nobody knows.",
}

local function cautions_of(chosen, varied)
  local list = {}
  if chosen.opened <= 1 then list[1] = CAUTIONS.one end
  for _, one in ipairs(varied) do
    local value = chosen.values[one.key]
    local low, high = one.values[1], one.values[#one.values]
    if not chosen.is_now and #one.values > 1 and type(value) == "number"
      and type(low) == "number" and type(high) == "number"
      and (value <= min(low, high) or value >= max(low, high)) then
      list[#list + 1] = CAUTIONS.edge:format(one.key, shown(value))
    end
  end
  if chosen.unknown > 0 then list[#list + 1] = CAUTIONS.unknown:format(chosen.unknown) end
  return list
end

---@class (exact) neap.lab.tune.Verdict
---@field gain "saved_ms"|"saved" what is compared with the good calls lost
---@field chosen? neap.lab.tune.Row nil: none is named
---@field why string
---@field lacks? string of a log that is too little, what it lacks
---@field same integer so many come to the same as the chosen one
---@field cautions string[]

--- Marks the front, and names one of it, if the log is enough to say so.
---@param rows neap.lab.tune.Row[] the policy as it is first
---@param varied { key: string, values: any[] }[]
---@return neap.lab.tune.Verdict
function tune.judge(rows, varied)
  local verdict = { gain = measure(rows), same = 0, cautions = {} }
  mark_front(rows)
  score(rows)
  local why = too_little(rows)
  if why then
    verdict.lacks = why
    verdict.why = "No value is recommended: " .. why .. "."
    return verdict
  end
  local now, best = rows[1], rows[1]
  for _, row in ipairs(rows) do
    if row.front and row.score > best.score + 1e-12 then best = row end
  end
  if best ~= now and best.score - now.score <= MOST_LIKE then
    best = now
    verdict.why = "As it is: nothing that was tried is better by more than a hair."
  elseif best == now then
    verdict.why = "As it is: nothing that was tried spares more for what it costs."
  elseif best.gain >= now.gain and best.lost <= now.lost then
    verdict.why = "It spares no less and costs no more than the policy as it is."
  else
    verdict.why = "Here more of the one begins to cost more of the other: the knee of the front."
  end
  verdict.chosen, verdict.same = middle(rows, best)
  if best == now then verdict.chosen = now end
  verdict.cautions = cautions_of(verdict.chosen, varied)
  return verdict
end

return tune
