--- What a fallback stage says, as an HTTP answer.
--
--   { status = 200, headers = {…}, body = "…" }   as it is; any of the three may be left out
--   "text"                                        a body of text
--   { on = true }, 5, false                       a body of JSON

local characters = require "neap.characters"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local answer = {}

local shown = problem.shown

local PARTS = { status = "number", headers = "table", body = "string" }
local DEEPEST = 32

-- ---- JSON -------------------------------------------------------------------------------------

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(character)
  return ESCAPES[character] or ("\\u%04x"):format(character:byte())
end

local encode

local function encode_string(text)
  return '"' .. characters.of(text):gsub('[%c"\\\127]', escape) .. '"'
end

local function encode_number(n)
  if n ~= n or n == math.huge or n == -math.huge then return "null" end
  return n % 1 == 0 and n > -1e15 and n < 1e15 and ("%d"):format(n) or ("%.17g"):format(n)
end

--- The length of a table that has only the keys 1..n; 0 if it has others, or none.
local function list_length(t)
  local n = #t
  for key in next, t do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > n then return 0 end
  end
  return n
end

local function encode_table(t, depth)
  if depth > DEEPEST then error("is nested too deeply for JSON", 0) end
  local parts, n = {}, list_length(t)
  if n > 0 then
    for i = 1, n do parts[i] = encode(t[i], depth + 1) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, value in next, t do
    if type(key) ~= "string" and type(key) ~= "number" then
      error(("has a key that is a %s: not for JSON"):format(type(key)), 0)
    end
    parts[#parts + 1] = encode_string(tostring(key)) .. ":" .. encode(value, depth + 1)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

function encode(value, depth)
  local kind = type(value)
  if kind == "string" then return encode_string(value) end
  if kind == "number" then return encode_number(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "table" then return encode_table(value, depth) end
  error(("has a %s in it: not for JSON"):format(kind), 0)
end

-- ---- Answers ----------------------------------------------------------------------------------

--- A table of nothing but an answer's parts, at least one of which says what it is.
local function is_answer(value)
  if value.status == nil and value.body == nil then return false end
  for key, part in next, value do
    if type(part) ~= PARTS[key] then return false end
  end
  return true
end

--- { name, value, name, value … } of that, or of { name = value }, in the order of the names.
local function flat(headers)
  if headers[1] ~= nil then return headers end
  local names, list = {}, {}
  for name in next, headers do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    list[#list + 1] = name
    list[#list + 1] = tostring(headers[name])
  end
  return list
end

local function is_status(value)
  return type(value) == "number" and value % 1 == 0 and value >= 200 and value <= 599
end

local function check_status(status)
  if is_status(status) then return end
  error(("has the status %s, not one of 200 to 599"):format(tostring(status)), 0)
end

--- Raises a text that says what is wrong if there is no way to say it in HTTP.
---@param value any not nil
---@return { status: integer, headers: string[], body: string }
function answer.of(value)
  if type(value) == "string" then
    return { status = 200, headers = { "Content-Type", "text/plain; charset=utf-8" }, body = value }
  end
  if type(value) == "table" and is_answer(value) then
    local status = value.status or 200
    check_status(status)
    return { status = status, headers = flat(value.headers or {}), body = value.body or "" }
  end
  return {
    status = 200,
    headers = { "Content-Type", "application/json" },
    body = encode(value, 1),
  }
end

-- ---- What is wrong with one -------------------------------------------------------------------

local PART_NAMES = { "body", "headers", "status" }
local NAME = "^[%w!#$%%&'*+.^_`|~-]+$"
local NO_PART = "%s is no part of an HTTP answer%s (other data than status, headers and body is "
  .. "not sent beside them)"

--- Why that is no header, or nil.
function answer.header_fault(name, value)
  if type(name) ~= "string" or not name:find(NAME) then
    return ("headers: %s is no name of a header"):format(shown(name))
  elseif type(value) ~= "string" and type(value) ~= "number" then
    return ("headers: %s is %s: a text is needed"):format(name, shown(value))
  elseif tostring(value):find("[%c\127]") then
    return ("headers: %s is %s, with a control character in it"):format(name, shown(value))
  end
end

local function headers_fault(headers)
  if type(headers) ~= "table" then
    return ("headers is %s: an HTTP answer has a table"):format(shown(headers))
  end
  local length = headers[1] ~= nil and #headers
  if length and length % 2 == 1 then
    return "headers: the list ends with a name, without a value"
  end
  for i = 1, length or 0, 2 do
    local fault = answer.header_fault(headers[i], headers[i + 1])
    if fault then return fault end
  end
  for name, value in next, headers do
    local is_place = length and type(name) == "number" and name % 1 == 0 and name >= 1
      and name <= length
    local fault = not is_place and answer.header_fault(name, value)
    if fault then return fault end
    if length and not is_place then return "headers: is a list, and has names besides" end
  end
end

--- A part that is none, of the keys of a table: the first by name; or nil.
local function odd_part(value)
  local odd
  for key in next, value do
    local name = type(key) == "string" and #key <= 40 and key or shown(key)
    if not PARTS[key] and (not odd or name < odd) then odd = name end
  end
  return odd
end

--- Why a table that looks like an HTTP answer could not be sent as one, or nil; also for one that
--- is other data: its status is no number, its headers no table, its body no text.
---@param value table read raw: without a metatable
---@return string|nil
function answer.fault(value)
  local status, headers, body = value.status, value.headers, value.body
  local odd = odd_part(value)
  if odd then
    local is_meant = type(status) == "number" or type(headers) == "table" or type(body) == "string"
    return is_meant and NO_PART:format(odd, suggest.hint(odd, PART_NAMES)) or nil
  elseif status ~= nil and not is_status(status) then
    return ("status %s: an HTTP answer has a whole number from 200 to 599"):format(shown(status))
  elseif body ~= nil and type(body) ~= "string" then
    return ("body is %s: an HTTP answer has a text"):format(shown(body))
  elseif headers ~= nil and status == nil and body == nil then
    return "headers alone are no HTTP answer: add a status or a body"
  end
  return headers ~= nil and headers_fault(headers) or nil
end

return answer
