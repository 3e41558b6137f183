--- JSON as people and programs read it: keys in order, empty lists as lists, every text valid
--- UTF-8. Reading is lua-cjson's.

local cjson = require("cjson").new()

local characters = require "neap.characters"

local json = {}

cjson.decode_invalid_numbers(false) -- NaN, Infinity and 0x10 are no JSON

local LIST = {}

--- A copy of a list that is one also when it is empty.
function json.list(t)
  local copy = {}
  for i, value in ipairs(t) do copy[i] = value end
  return setmetatable(copy, LIST)
end

json.null = cjson.null

---@param value string
---@return string
function json.text(value)
  return (cjson.encode(characters.of(value)):gsub("\\(.)", function(c)
    return c == "/" and "/" or "\\" .. c
  end))
end

local MOST_WHOLE = 2 ^ 53

--- JSON has no infinity and no NaN: null.
---@param n number
---@return string
function json.number(n)
  if n ~= n or n == math.huge or n == -math.huge then return "null" end
  local is_whole = n % 1 == 0 and n >= -MOST_WHOLE and n <= MOST_WHOLE
  return ((is_whole and "%.0f" or "%.15g"):format(n))
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function is_list(t)
  if getmetatable(t) == LIST then return true end
  local count = 0
  for _ in next, t do count = count + 1 end
  return count > 0 and count == #t
end

local write

local WIDTH = 80

--- A list without line feeds in it that fits a line is one line.
local function joined(parts, open, close, indent)
  local line = open .. table.concat(parts, ", ") .. close
  if #parts == 0 or (open == "[" and #line < WIDTH and not line:find("\n")) then return line end
  local inner = indent .. "  "
  return open .. "\n" .. inner .. table.concat(parts, ",\n" .. inner) .. "\n" .. indent .. close
end

local function write_table(t, indent)
  local parts, inner = {}, indent .. "  "
  if is_list(t) then
    for _, value in ipairs(t) do parts[#parts + 1] = write(value, inner) end
    return joined(parts, "[", "]", indent)
  end
  for _, key in ipairs(sorted_keys(t)) do
    parts[#parts + 1] = json.text(tostring(key)) .. ": " .. write(t[key], inner)
  end
  return joined(parts, "{", "}", indent)
end

function write(value, indent)
  local kind = type(value)
  if kind == "table" then return write_table(value, indent) end
  if kind == "number" then return json.number(value) end
  if kind == "boolean" then return tostring(value) end
  if value == nil or value == json.null then return "null" end
  return json.text(tostring(value))
end

--- The value as JSON, indented.
---@return string
function json.encode(value) return write(value, "") end

--- The same in one line: what texts have of line feeds is escaped.
---@return string
function json.line(value) return (json.encode(value):gsub("\n *", "")) end

--- The value of a JSON text; nil and a message if it is none.
---@return any value
---@return string? message
function json.decode(text)
  local ok, value = pcall(cjson.decode, text)
  if ok then return value end
  return nil, tostring(value)
end

return json
