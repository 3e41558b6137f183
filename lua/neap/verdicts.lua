--- Checks what a policy file has put into the tables of the shipped classifiers: a key that no call
-- has, or a word that is no verdict, would change nothing, and nobody would know.
--
--   classify.http.status["404"] = "failure"       a status is a number
--   classify.grpc.code.UNAVAILBLE = "neutral"     did you mean UNAVAILABLE?
--
-- All is read raw.  A table with a metatable is the policy's own doing, and is let be.

local classify = require "neap.classify"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local verdicts = {}

local shown = problem.shown
local WORDS = { "failure", "neutral", "success" }
local MOST_PROBLEMS = 10

local function is_name(key) return type(key) == "string" and key:find("^[%a_][%w_]*$") ~= nil end

local function key_in(path, key)
  return (is_name(key) and "%s.%s" or "%s[%s]"):format(path, is_name(key) and key or shown(key))
end

local function names_of(fields)
  local names = {}
  for name in next, fields do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- ---- Keys -------------------------------------------------------------------------------------

local function number_fault(key, min, max, what)
  if type(key) == "number" and key % 1 == 0 and key >= min and key <= max then return nil end
  local number = type(key) == "string" and tonumber(key)
  local is_meant = number and number % 1 == 0 and number >= min and number <= max
  return ("is no %s: a number from %d to %d is needed%s"):format(what, min, max,
    is_meant and (": did you mean [%d]?"):format(number) or "")
end

local function status_fault(key) return number_fault(key, 100, 599, "HTTP status") end

local function class_fault(key) return number_fault(key, 1, 5, "class of HTTP statuses") end

--- The fault of a key that is none of those the table has by itself.
local function name_fault(key, known, what)
  if known[key] ~= nil then return nil end
  return ("is no %s%s"):format(what, suggest.hint(key, names_of(known)))
end

--- A code that gRPC does not know goes by its digits.
local function grpc_fault(key, known)
  if type(key) == "string" and key:find("^%d+$") then return nil end
  return name_fault(key, known, "gRPC status: they go by their names")
end

local function end_fault(key, known) return name_fault(key, known, "way for a call to end") end

--- Providers have codes of their own.
local function code_fault(key)
  return type(key) ~= "string" and "is no code: a text is needed" or nil
end

-- ---- Values -----------------------------------------------------------------------------------

--- false takes out what is there.
local function verdict_fault(value)
  for _, word in ipairs(WORDS) do
    if value == word then return nil end
  end
  if value == false then return nil end
  return ('%s is none of "success", "failure" and "neutral"%s'):format(shown(value),
    suggest.hint(value, WORDS))
end

local function flag_fault(value)
  return type(value) ~= "boolean" and ("%s is not true or false"):format(shown(value)) or nil
end

-- ---- Tables -----------------------------------------------------------------------------------

local KEY_FAULTS = {
  transport = { ended_by = end_fault },
  http = { class = class_fault, status = status_fault, retry_after = status_fault },
  grpc = { code = grpc_fault },
  ofrep = { code = code_fault },
}

local function check_table(fields, known, key_fault, path, tell)
  local value_fault = path == "classify.http.retry_after" and flag_fault or verdict_fault
  for key, value in next, fields do
    tell(key_in(path, key), value, key_fault(key, known) or value_fault(value))
  end
end

local function check_classifier(name, fields, tell)
  local known, key_faults = classify[name], KEY_FAULTS[name] or {}
  for key, value in next, fields do
    local path = key_in("classify." .. name, key)
    if known[key] == nil then
      tell(path, value, "is not known" .. suggest.hint(key, names_of(known)))
    elseif not key_faults[key] then
      tell(path, value, verdict_fault(value))
    elseif type(value) ~= "table" then
      tell(path, value, shown(value) .. ": a table is needed")
    elseif getmetatable(value) == nil then
      check_table(value, known[key], key_faults[key], path, tell)
    end
  end
end

--- Reports what is wrong in the tables of a policy's library, in the order of the keys.
---@param originals table<string, table> the classifiers that classify.new() put into it
---@param report neap.report
function verdicts.check(originals, report)
  local found = {}
  local function tell(key, value, message)
    if message then found[#found + 1] = { key = key, value = value, message = message } end
  end
  for name, fields in next, originals do
    check_classifier(name, fields, tell)
  end
  table.sort(found, function(a, b) return a.key < b.key end)
  for i = 1, math.min(#found, MOST_PROBLEMS) do
    report(found[i].key, found[i].value, "%s", found[i].message)
  end
end

return verdicts
