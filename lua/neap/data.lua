--- Lua values that are data, as text that any Lua version reads back: for files.
--
--   nil Z   true T   false F   integer i12;   number d0.5;   inf I   -inf J   not a number N
--   text s5:hello   userdata u5:bytes (by the caller's pack and unpack)   table { key value ... }
--
-- Functions, threads, tables with a metatable, and tables that contain themselves are no data.

local data = {}

local DEEPEST, MOST_BYTES = 32, 16 * 1024 * 1024
local huge = math.huge
local kind_of_number = math.type or function(n)
  return n % 1 == 0 and n > -2^53 and n < 2^53 and "integer" or "float"
end

local function number_text(n)
  if n ~= n then return "N" end
  if n == huge then return "I" end
  if n == -huge then return "J" end
  if kind_of_number(n) == "integer" then return ("i%d;"):format(n) end
  return ("d%.17g;"):format(n)
end

local function add(out, text)
  out.bytes = out.bytes + #text
  if out.bytes > MOST_BYTES then error("is too large", 0) end
  out[#out + 1] = text
end

local function put(out, value, depth)
  local kind = type(value)
  if kind == "string" then
    add(out, ("s%d:"):format(#value))
    add(out, value)
  elseif kind == "number" then
    add(out, number_text(value))
  elseif kind == "boolean" then
    add(out, value and "T" or "F")
  elseif kind == "nil" then
    add(out, "Z")
  elseif kind == "table" then
    if getmetatable(value) ~= nil then error("has a metatable: that is no data", 0) end
    if depth > DEEPEST then error("is nested too deeply, or contains itself", 0) end
    add(out, "{")
    for key, part in next, value do
      put(out, key, depth + 1)
      put(out, part, depth + 1)
    end
    add(out, "}")
  else
    local packed = kind == "userdata" and out.pack and out.pack(value)
    if not packed then error(("has a %s in it: that is no data"):format(kind), 0) end
    add(out, ("u%d:"):format(#packed))
    add(out, packed)
  end
end

--- A value as text; or nil and why it is no data.
---@param value any
---@param pack? fun(value: userdata): string|nil
---@return string|nil, string|nil message
function data.text(value, pack)
  local out = { bytes = 0, pack = pack }
  local ok, message = pcall(put, out, value, 1)
  if not ok then return nil, message end
  return table.concat(out)
end

local CONSTANTS = { Z = nil, T = true, F = false, I = huge, J = -huge, N = 0 / 0 }

local get

local function get_table(text, at, unpack, depth)
  if depth > DEEPEST then error("nested too deeply", 0) end
  local value = {}
  while text:sub(at, at) ~= "}" do
    local key, part
    key, at = get(text, at, unpack, depth + 1)
    part, at = get(text, at, unpack, depth + 1)
    if key == nil or key ~= key then error("a key that is none", 0) end
    value[key] = part
  end
  return value, at + 1
end

local function get_bytes(text, at)
  local from, to, length = text:find("^(%d+):", at)
  length = from and tonumber(length)
  if not length or to + length > #text then error("cut off", 0) end
  return text:sub(to + 1, to + length), to + length + 1
end

function get(text, at, unpack, depth)
  local mark = text:sub(at, at)
  if mark == "s" then return get_bytes(text, at + 1) end
  if mark == "{" then return get_table(text, at + 1, unpack, depth) end
  if mark == "i" or mark == "d" then
    local from, to, digits = text:find("^([^;]+);", at + 1)
    local n = from and tonumber(digits)
    if not n then error("a number that is none", 0) end
    return mark == "d" and n + 0.0 or n, to + 1
  end
  if mark == "u" then
    local bytes, after = get_bytes(text, at + 1)
    local value = unpack and unpack(bytes)
    if value == nil then error("bytes that nobody here reads", 0) end
    return value, after
  end
  if mark ~= "Z" and CONSTANTS[mark] == nil then error("no value", 0) end
  return CONSTANTS[mark], at + 1
end

--- The value of a text; or nil and what is wrong with it.  (A nil has no message.)
---@param text string
---@param unpack? fun(bytes: string): userdata|nil
---@return any, string|nil message
function data.value(text, unpack)
  local ok, value, after = pcall(get, text, 1, unpack, 1)
  if not ok then return nil, value end
  if after ~= #text + 1 then return nil, "more than a value" end
  return value
end

return data
