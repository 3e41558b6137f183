--- The options of a guard, checked: a slip of the pen is an error where it is made.

local core = require "neap.core"
local clocks = require "neap.clock"
local guard_log = require "neap.guard_log"
local suggest = require "neap.suggest"

local guard_options = {}

local SYSTEM_CLOCKS = { [core.clock_coarse] = true, [core.clock_precise] = true }

local KNOWN_OPTIONS = {
  params = "table", panel = "userdata", max_keys = "number", clock = "any", host = "table",
  on_event = "function", log = "function", serve = "function", guards = "any",
  on_shadow = "function",
  state_dir = "string", replay = "function",
}

--- Raises for what is none.
---@param options neap.GuardOptions
function guard_options.check(options)
  if type(options) ~= "table" then error("options must be a table, got " .. type(options), 3) end
  for name, value in next, options do
    local expected = KNOWN_OPTIONS[name]
    if not expected then
      local names = {}
      for option in next, KNOWN_OPTIONS do names[#names + 1] = option end
      error(("there is no option %s%s"):format(guard_log.said(name), suggest.hint(name, names)), 3)
    end
    if expected ~= "any" and type(value) ~= expected then
      error(("option %s must be a %s, got %s"):format(name, expected, type(value)), 3)
    end
  end
  if options.panel and not tostring(options.panel):find("^neap%.panel") then
    error("option panel must be made by neap.panel or neap.panel_shared", 3)
  end
  local most = options.max_keys
  if most and (most ~= most or most < 1 or most > 1000000 or most % 1 ~= 0) then
    error("option max_keys must be a whole number from 1 to 1000000, got " .. tostring(most), 3)
  end
end

--- The clock in the form that the core takes.
function guard_options.clock(options, host)
  local given = options.clock or host.now
  local shared = options.panel and options.panel:path()
  if shared and type(given) ~= "string" and given and not SYSTEM_CLOCKS[given] then
    error(shared .. ": processes share it, so it goes by the system's clock: clock must be "
      .. "\"coarse\" or \"precise\"", 3)
  end
  return clocks.resolve(given)
end

return guard_options
