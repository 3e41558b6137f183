--- Which line of a policy file says what: { ["trip.failure_rate"] = 12, ["fallback[1].max_age_ms"]
--- = 20 }.
--
-- Read from the text itself, not from the values, which carry no lines.  What is read is the table
-- constructor that the file returns, at its end or by name:
--
--   return { … }          local policy = { … } … return policy
--
-- Keys that are made in another way get no line of their own; who asks falls back to the line of
-- the nearest key above, in the end that of `return`.

local lines = {}

-- ---- Tokens -----------------------------------------------------------------------------------

---@class (exact) neap.Token
---@field kind "name"|"string"|"number"|"symbol"
---@field text string a string's: what is between its quotes, escapes as written
---@field line integer

local function count_newlines(text, from, to)
  local n = 0
  local at = text:find("\n", from, true)
  while at and at <= to do
    n = n + 1
    at = text:find("\n", at + 1, true)
  end
  return n
end

--- Where the long bracket that opens at `at` ends, and its content; nil if none opens there.
local function long_bracket(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local from = at + #level + 2
  local close, ends = text:find("]" .. level .. "]", from, true)
  if not close then return #text, "" end
  return ends, text:sub(from, close - 1)
end

--- Where the short string that opens at `at` ends.
local function short_string(text, at)
  local quote = text:sub(at, at)
  local from = at + 1
  while true do
    local found = text:find("[\\" .. quote .. "]", from)
    if not found then return #text end
    if text:sub(found, found) == quote then return found end
    from = found + 2
  end
end

--- kind, text, last position of what begins at `at`; kind is nil for blanks and comments.
local function token_at(text, at)
  local first = text:sub(at, at)
  if first:find("^%s") then return nil, nil, select(2, text:find("^%s+", at)) end
  if text:find("^%-%-", at) then
    local ends = long_bracket(text, at + 2)
    return nil, nil, ends or (text:find("\n", at, true) or #text + 1) - 1
  end
  if first:find("^[%a_]") then
    local name = text:match("^[%w_]+", at)
    return "name", name, at + #name - 1
  end
  if text:find("^%.?%d", at) then
    local number = text:match("^0[xX][%x.]*[pP]?[+-]?%x*", at)
      or text:match("^[%d.]*[eE][+-]?%d+", at) or text:match("^[%d.]+", at)
    return "number", number, at + #number - 1
  end
  if first == '"' or first == "'" then
    local ends = short_string(text, at)
    return "string", text:sub(at + 1, ends - 1), ends
  end
  local ends, content = long_bracket(text, at)
  if ends then return "string", content, ends end
  local symbol = text:match("^%.%.%.?", at) or text:match("^[=~<>]=", at) or text:match("^::", at)
    or first
  return "symbol", symbol, at + #symbol - 1
end

---@param text string
---@return neap.Token[]
function lines.tokens(text)
  local tokens, at, line = {}, 1, 1
  while at <= #text do
    local kind, value, ends = token_at(text, at)
    if kind then tokens[#tokens + 1] = { kind = kind, text = value, line = line } end
    line = line + count_newlines(text, at, ends)
    at = ends + 1
  end
  return tokens
end

-- ---- The constructor --------------------------------------------------------------------------

local OPENS = {
  ["function"] = 1, ["do"] = 1, ["if"] = 1, ["repeat"] = 1, ["end"] = -1, ["until"] = -1,
}
local BRACKETS = { ["{"] = 1, ["("] = 1, ["["] = 1, ["}"] = -1, [")"] = -1, ["]"] = -1 }

local function is(token, text)
  return token ~= nil and token.text == text and token.kind ~= "string"
end

--- How much deeper in blocks and brackets the text is behind this token.
local function deeper(token)
  if token.kind == "name" then return OPENS[token.text] or 0 end
  return token.kind == "symbol" and BRACKETS[token.text] or 0
end

local read_fields

--- Reads the value that begins at token i: the first constructor in it belongs to `path`, be it the
--- value itself or the argument of a call, as in fallback.last_good { … }.  Answers where it ends.
local function read_value(tokens, i, path, found)
  local depth, is_read = 0, false
  while tokens[i] do
    local token = tokens[i]
    if depth == 0 and (is(token, ",") or is(token, ";") or is(token, "}")) then return i end
    if is(token, "{") and not is_read and depth <= 1 then
      is_read = true
      i = read_fields(tokens, i, path, found)
    else
      if is(token, "function") then is_read = true end
      depth = depth + deeper(token)
      i = i + 1
    end
  end
  return i
end

--- The name of the field that begins at token i, and where its value does; nil for one without.
local function field_name(tokens, i)
  local token = tokens[i]
  if token.kind == "name" and is(tokens[i + 1], "=") then return token.text, i + 2 end
  if is(token, "[") and tokens[i + 1] and tokens[i + 1].kind == "string" and is(tokens[i + 2], "]")
    and is(tokens[i + 3], "=") then
    return tokens[i + 1].text, i + 4
  end
end

local function joined(path, name)
  if type(name) == "number" then return ("%s[%d]"):format(path, name) end
  return path == "" and name or path .. "." .. name
end

--- Reads the constructor whose { is token i; answers where it ends, behind its }.
function read_fields(tokens, i, path, found)
  local position = 0
  i = i + 1
  while tokens[i] and not is(tokens[i], "}") do
    if is(tokens[i], ",") or is(tokens[i], ";") then
      i = i + 1
    else
      local line = tokens[i].line
      local name, value = field_name(tokens, i)
      if not name and is(tokens[i], "[") then
        i = read_value(tokens, i, "[]", {})
      else
        if not name then position = position + 1 end
        local here = joined(path, name or position)
        found[here] = line
        i = read_value(tokens, value or i, here, found)
      end
    end
  end
  return i + 1
end

--- Token indices: of the file's own `return`, and of the { of the constructor that NAME = { opens.
local function find_return(tokens)
  local depth, returns, named = 0, nil, {}
  for i, token in ipairs(tokens) do
    if depth == 0 and is(token, "return") then returns = i end
    local is_named = token.kind == "name" and is(tokens[i + 1], "=") and is(tokens[i + 2], "{")
    if depth == 0 and is_named then
      named[token.text] = i + 2
    end
    depth = depth + deeper(token)
  end
  return returns, named
end

--- The lines of all keys of the table that `text` returns.
---@param text string
---@return table<string, integer> found, integer|nil return_line
function lines.of(text)
  local tokens, found = lines.tokens(text), {}
  local returns, named = find_return(tokens)
  if not returns then return found, nil end
  local value = tokens[returns + 1]
  local opens = is(value, "{") and returns + 1
    or value and value.kind == "name" and named[value.text]
  if opens then read_fields(tokens, opens, "", found) end
  return found, tokens[returns].line
end

--- The line where a policy changes a shipped classifier: for classify.http.status["404"], the first
--- with 404 from the first status on.
---@param text string
---@param path string
---@return integer|nil
function lines.of_change(text, path)
  local above, last = path:match('^classify%..-([%w_]+)[.%["]+([%w_]+)"?%]?$')
  if not above then return nil end
  local is_below = false
  for _, token in ipairs(lines.tokens(text)) do
    if is_below and token.text == last then return token.line end
    is_below = is_below or token.text == above
  end
end

--- The line of `path`, or of the nearest key above it that has one.
---@param found table<string, integer>
---@param path string
---@param return_line integer|nil
---@return integer|nil
function lines.nearest(found, path, return_line)
  while path and path ~= "" do
    if found[path] then return found[path] end
    path = path:match("^(.*)%.[^.%[%]]*$") or path:match("^(.*)%[%d+%]$")
  end
  return return_line
end

--- The line where a field of that name is read first, from any table: x.name.
---@param text string
---@param name string
---@return integer|nil
function lines.of_field(text, name)
  local tokens = lines.tokens(text)
  for i = 2, #tokens do
    local token, before = tokens[i], tokens[i - 1]
    if token.kind == "name" and token.text == name and before.text == "." then return token.line end
  end
end

return lines
