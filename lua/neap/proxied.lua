--- What the hosts that are proxies have in common: the options of open, whose breakers a page
--- shows, and which answers need no classifier.

local suggest = require "neap.suggest"

local proxied = {}

--- Shipped classifiers that may call 200 to 399 a success whatever else there is.
proxied.PLAIN = {
  ["classify.default"] = true, ["classify.http"] = true, ["classify.ofrep"] = true,
}

--- Whether a classifier takes all of 200 to 399 for successes.
function proxied.is_plain(classify)
  for status = 200, 399 do
    if classify { status = status, ended_by = "answer" } ~= "success" then return false end
  end
  return true
end

--- Raises if an option is not among `known`, or of another type than stands there; "any" is one.
---@param given table of whoever called open
---@param known table<string, string>
function proxied.check_options(given, known)
  if type(given) ~= "table" then error("options must be a table, got " .. type(given), 4) end
  for name, value in pairs(given) do
    local expected = known[name]
    if not expected then
      local names = {}
      for one in pairs(known) do names[#names + 1] = one end
      error(("there is no option %s%s"):format(tostring(name), suggest.hint(name, names)), 4)
    elseif expected ~= "any" and type(value) ~= expected then
      error(("option %s must be a %s, got %s"):format(name, expected, type(value)), 4)
    end
  end
  if given.rows and not given.panel then error("option rows is of a panel: which?", 4) end
end

--- Guards get the keys that other processes, or Lua states, have seen; and are listed by name.
---@param guards table<string, neap.Guard>
---@param panel? neap.core.Panel
---@return neap.Guard[]
function proxied.list(guards, panel)
  for _, breaker in ipairs(panel and panel:rows() or {}) do
    local name, key = (breaker:name() or ""):match("^([^/]*)/(.*)$")
    local of_guard = name and rawget(guards, name)
    if of_guard then of_guard:line_of(key) end
  end
  local list = {}
  for _, made in pairs(guards) do list[#list + 1] = made end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return proxied
