--- What a POST to the admin pages says: in its query, in a form or in a JSON object.

local json = require "neap.cmd.json"
local suggest = require "neap.suggest"

local arguments = {}

local MODES = { "auto", "forced_open", "forced_closed", "shadow", "policy" }

--- Percent-encoded text as it was meant.
function arguments.decode(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function read_form(text, into)
  for pair in text:gmatch("[^&]+") do
    local name, value = pair:match("^([^=]*)=?(.*)$")
    into[arguments.decode((name:gsub("%+", " ")))] = arguments.decode((value:gsub("%+", " ")))
  end
end

--- What a POST says: { name = text or number }; or nil and what is wrong.
function arguments.read(request, query)
  local given, body = {}, request.body or ""
  read_form(query, given)
  if body == "" then return given end
  if not body:find("^%s*{") then
    read_form(body:gsub("%s+$", ""), given)
    return given
  end
  local value, message = json.decode(body)
  if not value then return nil, "the body is no JSON: " .. message end
  for name, field in pairs(value) do
    if type(name) ~= "string" or (type(field) ~= "string" and type(field) ~= "number") then
      return nil, ("%s must be a text or a number"):format(tostring(name))
    end
    given[name] = field
  end
  return given
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
  local by = given.by and tostring(given.by)
  if not by or not by:find("%S") then return nil, "by: say who does this, e.g. by=alice" end
  local action = { by = by, reason = given.reason and tostring(given.reason) }
  if given["for"] then
    action.for_ms, message = read_duration(given["for"], max_ms)
    if not action.for_ms then return nil, message end
  end
  return action
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
