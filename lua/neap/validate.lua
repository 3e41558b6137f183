--- Checks what a policy file returned against the schema: every problem in it, not just the first.
--
--   validate.policy(given, report) -> what is to be used, with defaults
--   report(key, value, format, ...)

local classify = require "neap.classify"
local problem = require "neap.problem"
local schema = require "neap.schema"
local suggest = require "neap.suggest"

local validate = {}

local shown = problem.shown
local MOST_UNKNOWN, MOST_CAUSES = 50, 20

---@alias neap.report fun(key: string, value: any, format: string, ...: any)

-- ---- One value --------------------------------------------------------------------------------

--- What is wrong with `value` as a number, or nil.
local function number_fault(spec, value)
  local expected = schema.expected(spec)
  if type(value) ~= "number" or value ~= value then
    return ("%s is not a number: %s"):format(shown(value), expected)
  end
  local min, max = spec.min or 0, spec.max or 1
  if value < min or value > max or spec.kind == "positive share" and value == 0 then
    if not spec.max and value > 1 and value <= 100 then
      expected = ("%s%.14g for %.14g %%"):format(expected:match("^.*e%.g%. "), value / 100, value)
    end
    local is_off = value == 0 and spec.default == nil and not spec.default_doc
    local hint = is_off and "; to do without, leave it out" or ""
    return ("%s is out of range: %s%s"):format(shown(value), expected, hint)
  end
  if (spec.kind == "whole" or spec.kind == "ms") and value % 1 ~= 0 then
    return ("%s is not whole: %s"):format(shown(value), expected)
  end
end

local function is_callable(value)
  return type(value) == "function" or classify.is_classifier(value)
end

local function choice_fault(spec, value)
  for _, choice in ipairs(spec.choices) do
    if value == choice then return nil end
  end
  local hint, choices = suggest.hint(value, spec.choices), table.concat(spec.choices, '", "')
  return ('%s is not one of "%s"%s'):format(shown(value), choices, hint)
end

--- A check of values that are right if `is_right` says so.
local function kind_fault(is_right)
  return function(spec, value)
    if is_right(value) then return nil end
    return ("%s: %s is needed"):format(shown(value), schema.expected(spec))
  end
end

--- Read raw: what a metatable of the policy's does would not be bounded here.
local function is_texts(value)
  if type(value) ~= "table" then return false end
  local count, last = 0, 0
  for key, text in next, value do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 then return false end
    if type(text) ~= "string" or text == "" then return false end
    count, last = count + 1, math.max(last, key)
  end
  return count == last
end

local function is_file(value)
  return type(value) == "string" and #value <= 64 and value:find("^[%w_-][%w_.-]*$") ~= nil
end

local table_fault = kind_fault(function(value) return type(value) == "table" end)

local FAULTS = {
  whole = number_fault, ms = number_fault, share = number_fault, factor = number_fault,
  ["positive share"] = number_fault, choice = choice_fault,
  table = table_fault, stages = table_fault, causes = table_fault,
  text = kind_fault(function(value) return type(value) == "string" and value ~= "" end),
  ["function"] = kind_fault(function(value) return type(value) == "function" end),
  classifier = kind_fault(is_callable), texts = kind_fault(is_texts), file = kind_fault(is_file),
  boolean = kind_fault(function(value) return type(value) == "boolean" end),
  any = function() end,
}

--- What is wrong with `value`, or nil.
---@param spec neap.schema.key
---@return string|nil
function validate.fault(spec, value)
  return FAULTS[spec.kind](spec, value)
end

-- ---- Names that are not known -----------------------------------------------------------------

local MS_PER = {
  s = 1000, sec = 1000, secs = 1000, second = 1000, seconds = 1000,
  m = 60000, min = 60000, minutes = 60000, h = 3600000, hours = 3600000,
}

local function is_in(list, name)
  for _, one in ipairs(list) do
    if one == name then return true end
  end
  return false
end

--- A duration without its unit, or with another: what it would be in milliseconds.
local function unit_hint(name, value, known)
  local is_number = type(value) == "number"
  if is_in(known, name .. "_ms") then
    if not is_number then return (": did you mean %s_ms, in milliseconds?"):format(name) end
    local ms, as_s = shown(value), shown(value * 1000)
    return (": it has no unit: write %s_ms = %s for %s milliseconds, or %s_ms = %s for %s seconds")
      :format(name, ms, ms, name, as_s, ms)
  end
  local stem, unit = name:match("^(.+)_(%l+)$")
  if stem and MS_PER[unit] and is_in(known, stem .. "_ms") then
    local ms = is_number and " = " .. shown(value * MS_PER[unit]) or ""
    return (": durations are in milliseconds: write %s_ms%s"):format(stem, ms)
  end
end

--- A key that exists, but in another section.
local function elsewhere_hint(section, name)
  for _, spec in ipairs(schema.keys) do
    local above, leaf = spec.key:match("^(.*)%.([^.]+)$")
    above, leaf = above or "", leaf or spec.key
    if (leaf == name or leaf == name .. "_ms") and above ~= section then
      local place = above == "" and "to the policy itself" or ("in %s = { ... }"):format(above)
      return (": %s belongs %s"):format(leaf, place)
    end
  end
end

local function unknown(section, name, value, known)
  if type(name) ~= "string" then return ("%s is no name of a key"):format(shown(name)) end
  if name == "enabled" or name == "disabled" then
    return 'is not a key; to switch the breaker off write mode = "forced_closed"'
  end
  local hint = unit_hint(name, value, known) or section and elsewhere_hint(section, name)
  return "is not a key" .. (hint or suggest.hint(name, known))
end

local function key_in(section, name)
  if type(name) == "number" then return ("%s[%s]"):format(section, shown(name)) end
  name = type(name) == "string" and name or shown(name)
  return section == "" and name or section .. "." .. name
end

--- Reports the keys of a table that are not in `known`, in a fixed order; not more than so many.
local function report_unknown(section, given, known, report, is_policy)
  local names = {}
  for name in next, given do
    if not is_in(known, name) then names[#names + 1] = name end
    if #names >= MOST_UNKNOWN then break end
  end
  table.sort(names, function(a, b) return shown(a) < shown(b) end)
  for _, name in ipairs(names) do
    local value = rawget(given, name)
    report(key_in(section, name), value, unknown(is_policy and section or nil, name, value, known))
  end
end

-- ---- The whole --------------------------------------------------------------------------------

--- What stands in a table that has those keys and no others, with their defaults; problems are
--- reported under `path`.
---@param specs neap.schema.key[]
---@param given table
---@param path string "" of a whole file
---@param report neap.report
---@param fault_of? fun(spec: neap.schema.key, value: any): string|nil in place of validate.fault
---@return table
function validate.against(specs, given, path, report, fault_of)
  local known, used = {}, {}
  for i, spec in ipairs(specs) do known[i] = spec.key end
  report_unknown(path, given, known, report)
  for _, spec in ipairs(specs) do
    local value = rawget(given, spec.key)
    if value == nil then value = spec.default end
    if value == nil and spec.required and path == "" then
      report(spec.key, nil, "is missing: " .. spec.doc)
    elseif value == nil and spec.required then
      report(path, nil, "%s is missing: %s", spec.key, spec.doc)
    elseif value ~= nil then
      local fault = (fault_of or validate.fault)(spec, value)
      if fault then report(key_in(path, spec.key), value, fault) else used[spec.key] = value end
    end
  end
  return used
end

--- The options of a fallback stage, likewise.
---@param options table as the policy gave them
---@param report neap.report
---@return table
function validate.options(kind, options, path, report)
  return validate.against(schema.stages[kind], options, path, report)
end

local function check_sections(given, report)
  report_unknown("", given, schema.names(""), report, true)
  for _, spec in ipairs(schema.keys) do
    local section = spec.kind == "table" and rawget(given, spec.key)
    if type(section) == "table" then
      report_unknown(spec.key, section, schema.names(spec.key), report, true)
    end
  end
end

--- What stands at a key's path.
local function at(given, key)
  local section, name = key:match("^(.*)%.([^.]+)$")
  if not section then return rawget(given, key) end
  section = rawget(given, section)
  if type(section) == "table" then return rawget(section, name) end
end

--- The largest place in a list; its length would be any place before a gap.
local function last_place(list)
  local last = 0
  for key in next, list do
    if type(key) == "number" and key % 1 == 0 and key > last then last = key end
  end
  return last
end

--- A list of choices, read raw: what its metatable does would not be bounded here.
local function checked_list(spec, list, report)
  local copy, n = {}, math.min(last_place(list), MOST_CAUSES)
  for i = 1, n do
    local value = rawget(list, i)
    local fault = choice_fault(spec, value)
    if fault then report(key_in(spec.key, i), value, fault) else copy[#copy + 1] = value end
  end
  for key in next, list do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > n then
      report(key_in(spec.key, key), nil, "is no place in " .. schema.expected(spec))
      break
    end
  end
  return copy
end

--- The values given, by the key's path; those that are wrong are reported and left out.
---@param given table
---@param report neap.report
---@return table<string, any>
function validate.values(given, report)
  local values = {}
  check_sections(given, report)
  for _, spec in ipairs(schema.keys) do
    local value = at(given, spec.key)
    if value == nil then
      if spec.required then report(spec.key, nil, "is missing: " .. spec.doc) end
    else
      local fault = validate.fault(spec, value)
      if not fault and spec.kind == "causes" then value = checked_list(spec, value, report) end
      if fault then report(spec.key, value, fault) else values[spec.key] = value end
    end
  end
  return values
end

return validate
