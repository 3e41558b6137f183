--- The scenarios that come with neap: classic failures, each without its remedy and with it.

local shipped = {}

--- By name, in the order in which they are best read.
shipped.names = {
  "retry_amplification", "probe_storm", "slow_dependency", "flapping", "low_traffic",
}

local MODULE = "neap.lab.scenarios."

--- The text of one: inside the program, or beside this module; nil if there is none.
---@param name string
---@return string|nil
function shipped.text(name)
  local embedded = package.preload[MODULE .. name]
  if embedded then return embedded() end
  local path = package.searchpath(MODULE .. name, package.path)
  local file = path and io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

--- How such a scenario is called in messages.
function shipped.path(name) return name .. ".lua" end

return shipped
