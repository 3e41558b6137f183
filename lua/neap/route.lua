--- From a path to a key: a few routes in place of a million paths.
--
--   route "/users/8812/orders?page=2"              -->  "/users/{id}/orders"
--   route("/users/anne/orders/7", {
--     "/users/{name}", "/users/{name}/orders/{id}", "/static/*",
--   })                                             -->  "/users/{name}/orders/{id}"
--
-- With templates, the first that fits, or nil: so there are as many keys as templates.  Without,
-- what looks like an id becomes {id}: how many keys there are is up to who asks, and bounded by
-- max_keys.  Either way the query goes, and what is left every log and label takes.

local route = {}

local byte, find, gmatch, match, sub = string.byte, string.find, string.gmatch, string.match,
  string.sub
local concat, rawget, type = table.concat, rawget, type

local LONGEST_TARGET = 2048 -- bytes that are looked at
local LONGEST_SEGMENT = 32
local LONGEST = 80
local MOST_SEGMENTS = 8
local MOST_TEMPLATES = 200
local MANY_DIGITS = 4

local HEX, UUID = "^%x+$", "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+$"
local PLAIN = "^[%w._~@:+,!$()-]+$"

--- What no name of a resource looks like: a number, hexadecimal digits, many digits, or much of
--- anything.
local function is_id(segment)
  if #segment > LONGEST_SEGMENT or not find(segment, PLAIN) then return true end
  if #segment >= 16 and find(segment, HEX) then return true end
  if not find(segment, "%d") then return false end
  if find(segment, "^[%d.,:_-]+$") then return true end
  if #segment >= 8 and find(segment, HEX) or find(segment, UUID) then return true end
  local digits = 0
  for _ in gmatch(segment, "%d") do digits = digits + 1 end
  return digits > MANY_DIGITS
end

--- The path of a target: without scheme and authority, query and fragment.
local function path_of(target)
  target = sub(target, 1, LONGEST_TARGET)
  target = match(target, "^%a[%w+.-]*://[^/?#]*(.*)$") or target
  target = match(target, "^[^?#]*")
  return byte(target) == 47 and target or "/" .. target
end

local function segments_of(path)
  local segments = {}
  for segment in gmatch(path, "[^/]+") do segments[#segments + 1] = segment end
  return segments
end

--- /a//b/ is /a/b.
local function automatic(segments)
  local out, length = {}, 0
  for i, segment in ipairs(segments) do
    segment = is_id(segment) and "{id}" or segment
    length = length + 1 + #segment
    if i > MOST_SEGMENTS or length > LONGEST - 2 then
      out[i] = "*"
      break
    end
    out[i] = segment
  end
  return "/" .. concat(out, "/")
end

local function fits(template, segments)
  local is_open = template[#template] == "*"
  local last = is_open and #template - 1 or #template
  if #segments < last or #segments > last and not is_open then return false end
  for i = 1, last do
    local wanted = template[i]
    if wanted ~= segments[i] and byte(wanted) ~= 123 then return false end -- {
  end
  return true
end

local WRONG = "route: a template is a path such as \"/users/{id}\", of up to " .. LONGEST
  .. " letters, got %s"

local function check_template(template)
  if type(template) == "string" and #template <= LONGEST and byte(template) == 47
    and not find(template, "[%c%s\"\\\128-\255]") then
    return template
  end
  error(WRONG:format(type(template) == "string" and ("%q"):format(sub(template, 1, 100))
    or type(template)), 4)
end

--- A function route for one policy, which remembers its templates.
---@return fun(target: string, templates?: string[]): string|nil
function route.new()
  local known, count = {}, 0

  local function template_of(text)
    local found = known[text]
    if found then return found end
    found = segments_of(check_template(text))
    if count < MOST_TEMPLATES then known[text], count = found, count + 1 end
    return found
  end

  return function(target, templates)
    if type(target) ~= "string" then
      error("route: what was asked for must be a text, got " .. type(target), 2)
    elseif templates ~= nil and type(templates) ~= "table" then
      error("route: templates are a list of texts, got " .. type(templates), 2)
    end
    local segments = segments_of(path_of(target))
    if not templates then return automatic(segments) end
    for i = 1, MOST_TEMPLATES do
      local text = rawget(templates, i)
      if text == nil then return nil end
      if fits(template_of(text), segments) then return text end
    end
    return nil
  end
end

return route
