--- What a fallback stage says, as an HTTP answer.
--
--   { status = 200, headers = {…}, body = "…" }   as it is; any of the three may be left out
--   "text"                                        a body of text
--   { on = true }, 5, false                       a body of JSON

local answer = {}

local PARTS = { status = "number", headers = "table", body = "string" }
local DEEPEST = 32

-- ---- JSON -------------------------------------------------------------------------------------

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function escape(character)
  return ESCAPES[character] or ("\\u%04x"):format(character:byte())
end

local encode

local function encode_string(text)
  if utf8 and not utf8.len(text) then text = text:gsub("[\128-\255]", "\239\191\189") end
  return '"' .. text:gsub('[%c"\\\127]', escape) .. '"'
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

local function check_status(status)
  if status % 1 == 0 and status >= 200 and status <= 599 then return end
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

return answer
