--- What a POST to the admin pages says: in its query, in a form or in a JSON object.

local json = require "neap.cmd.json"
local suggest = require "neap.suggest"

local arguments = {}

local TWICE = "%s: is given twice"
local MODES = { "auto", "forced_open", "forced_closed", "shadow", "policy" }

--- Percent-encoded text as it was meant.
function arguments.decode(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

--- Two of one name would leave everybody guessing which counts: nil and that name.
local function read_form(text, into)
  for pair in text:gmatch("[^&]+") do
    local name, value = pair:match("^([^=]*)=?(.*)$")
    name = arguments.decode((name:gsub("%+", " ")))
    if into[name] ~= nil then return nil, name end
    into[name] = arguments.decode((value:gsub("%+", " ")))
  end
  return true
end

--- The body's fields into what the query has given, and their names into from_json; nil and what is
--- wrong.
local function read_json(text, given, from_json, takes_any)
  local value, message = json.decode(text)
  if type(value) ~= "table" then return nil, "the body is no JSON: " .. message end
  for name, field in pairs(value) do
    local is_plain = type(field) == "string" or type(field) == "number"
    if type(name) ~= "string" or not (is_plain or takes_any) then
      return nil, ("%s must be a text or a number"):format(tostring(name))
    end
    if given[name] ~= nil then return nil, TWICE:format(name) end
    given[name], from_json[name] = field, true
  end
  return true
end

--- What a POST says: { name = text or number }, or with takes_any any value that JSON has, and
--- which of them are JSON's; or nil and what is wrong.
---@return table<string, any>|nil given
---@return table<string, true>|string from_json
function arguments.read(request, query, takes_any)
  local given, body, from_json = {}, request.body or "", {}
  local ok, twice = read_form(query, given)
  if ok and body:find("^%s*{") then
    local is_read, message = read_json(body, given, from_json, takes_any)
    if not is_read then return nil, message end
  elseif ok then
    ok, twice = read_form((body:gsub("%s+$", "")), given)
  end
  if not ok then return nil, TWICE:format(twice) end
  return given, from_json
end

--- An argument that is a text, or a number that stands for one; nil if it is neither.
local function text_of(value)
  if type(value) == "string" or type(value) == "number" then return tostring(value) end
end

--- Who does it; nil and what is wrong.
local function author(given)
  local by = text_of(given.by)
  if by and by:find("%S") then return by end
  return nil, "by: say who does this, e.g. by=alice"
end

local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }

--- "90s", "10m", "2h" -> milliseconds.  No unit goes without saying: 10 is minutes to one, ms to
--- another.
local function read_duration(value, max_ms)
  local number, unit = tostring(value):match("^(%d+%.?%d*)(%a*)$")
  if unit == "" then return nil, ("for: %s has no unit; e.g. 90s, 10m, 2h"):format(value) end
  local ms = UNITS[unit] and tonumber(number) * UNITS[unit]
  if ms and ms >= 1 and ms <= max_ms then return math.floor(ms) end
  return nil, ("for = %q: must be a time such as 90s, 10m or 2h, up to %.14g ms")
    :format(tostring(value), max_ms)
end

local function check_names(given, known)
  for name in pairs(given) do
    local is_known = false
    for _, right in ipairs(known) do is_known = is_known or right == name end
    if not is_known then
      local near = suggest.nearest(name, known)
      return nil, ("%s: there is no such argument; %s"):format(name, near
        and ("did you mean %s?"):format(near)
        or "there are " .. table.concat(known, ", "))
    end
  end
  return true
end

--- Checks what an action was told: { by, reason, for_ms }.
function arguments.action(given, known, max_ms)
  local ok, message = check_names(given, known)
  if not ok then return nil, message end
  local by
  by, message = author(given)
  if not by then return nil, message end
  local action = { by = by, reason = given.reason and tostring(given.reason) }
  if given["for"] then
    action.for_ms, message = read_duration(given["for"], max_ms)
    if not action.for_ms then return nil, message end
  end
  return action
end

--- "a, b", or in JSON a list.
local function names_in(value)
  local names = {}
  for _, part in ipairs(type(value) == "table" and value or { value }) do
    for name in (text_of(part) or ""):gmatch("[^,%s]+") do names[#names + 1] = name end
  end
  return names
end

local NO_PARAM = { by = true, reason = true, unset = true }

--- A change of params: all arguments but by, reason and unset are names of params.  A text in a
--- form stands for what the param's type says; in JSON a value is what it is, and null unsets.
---@param given table<string, any>
---@param from_json table<string, true>
---@return neap.settings.change|nil
---@return string|nil message
function arguments.change(given, from_json)
  local by, message = author(given)
  if not by then return nil, message end
  local change = {
    set = {}, unset = names_in(given.unset), by = by, reason = text_of(given.reason),
  }
  for name, value in pairs(given) do
    if value == json.null and not NO_PARAM[name] then
      change.unset[#change.unset + 1] = name
    elseif not NO_PARAM[name] then
      change.set[name] = from_json[name] and { value = value } or { text = value }
    end
  end
  for _, name in ipairs(change.unset) do
    if change.set[name] then return nil, ("%s: is set and unset at once"):format(name) end
  end
  table.sort(change.unset)
  if change.unset[1] or next(change.set) then return change end
  return nil, "say which params, e.g. timeout_ms=500"
end

--- The mode that an action is to set.
function arguments.mode(given)
  local mode = given.mode and tostring(given.mode)
  if not mode then return nil, "mode: say which, one of " .. table.concat(MODES, ", ") end
  for _, known in ipairs(MODES) do
    if known == mode then return mode end
  end
  local near = suggest.nearest(mode, MODES)
  return nil, ("mode = %q: must be one of %s%s"):format(mode, table.concat(MODES, ", "),
    near and ("; did you mean %s?"):format(near) or "")
end

return arguments
