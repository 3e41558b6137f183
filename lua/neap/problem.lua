--- What is wrong with a policy file, said as a compiler would.
--
--   policies/x.lua:12: trip.failure_rate: 50 is out of range: a share over 0, up to 1, e.g. 0.5
--   file           line key               message

local problem = {}

---@class (exact) neap.Problem
---@field file string
---@field line? integer
---@field key? string the path of the key, as trip.failure_rate or fallback[1].max_age_ms
---@field value? any what stands there
---@field message string
---@field all? neap.Problem[] of an error: every problem found, itself the first

local Problem = {}

function Problem:__tostring()
  local place = self.line and ("%s:%d"):format(self.file, self.line) or self.file
  return ("%s: %s%s"):format(place, self.key and self.key .. ": " or "", self.message)
end

local All = {}

function All:__tostring()
  local lines = {}
  for i, one in ipairs(self.all) do lines[i] = tostring(one) end
  return table.concat(lines, "\n")
end

---@param fields neap.Problem
---@return neap.Problem
function problem.new(fields)
  return setmetatable(fields, Problem)
end

local function goes_before(a, b)
  local line_a, line_b = a.line or 0, b.line or 0
  if line_a ~= line_b then return line_a < line_b end
  return (a.key or "") < (b.key or "")
end

--- One error for all problems of a file: the fields of the first, by line, and the list of all.
--- As text it is a line for each.
---@param problems neap.Problem[] at least one
---@return neap.Problem
function problem.error(problems)
  table.sort(problems, goes_before)
  local first = problems[1]
  return setmetatable({
    file = first.file, line = first.line, key = first.key, value = first.value,
    message = first.message, all = problems,
  }, All)
end

local ESCAPED = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\0"] = "\\0" }

--- A value as a message shows it; a table or function by its kind: it may be the policy's own, with
--- a __tostring that does anything.
---@param value any
---@return string
function problem.shown(value)
  local kind = type(value)
  if kind == "string" then
    local text = #value > 40 and value:sub(1, 40) .. "..." or value
    return '"' .. text:gsub("[%c]", function(c) return ESCAPED[c] or "?" end) .. '"'
  elseif kind == "number" then
    if value ~= value then return "nan" end
    if value % 1 == 0 and value >= -2 ^ 53 and value <= 2 ^ 53 then return ("%d"):format(value) end
    return ("%.14g"):format(value)
  elseif kind == "boolean" or kind == "nil" then
    return tostring(value)
  end
  return "a " .. kind
end

return problem
