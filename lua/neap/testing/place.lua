--- Where in a spec something is: file and line of whoever called into neap.testing.

local getinfo = debug.getinfo

local place = {}

--- Where neap's own files are: what the names of their chunks begin with.
local ROOT = getinfo(1, "S").source:match("^(.*)testing/place%.lua$")

--- Is that a file of neap's?  In the program it is neap/guard.lua, wherever that runs: a spec can
--- be in a directory of that name.
local function is_own(source)
  if source:sub(1, #ROOT) ~= ROOT then return false end
  local name = source:sub(#ROOT + 1):gsub("%.lua$", ""):gsub("/", "."):gsub("%.?init$", "")
  return package.loaded[name == "" and "neap" or "neap." .. name] ~= nil
end

--- The innermost function that is not neap's: its file, and the line that is run there;
--- nil after a tail call, which Lua forgets.
---@return string|nil file
---@return integer|nil line
function place.here()
  local level = 2
  local info = getinfo(level, "Sl")
  while info and (info.currentline < 0 or is_own(info.source)) do -- below 0: C; 5.1's tail calls
    level = level + 1
    info = getinfo(level, "Sl")
  end
  if not info then return nil end
  return (info.source:gsub("^@", "")), info.currentline
end

--- A mistake in the spec, told with its place.
---@param message string
function place.error(message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  local file, line = place.here()
  error(file and ("%s:%d: %s"):format(file, line, message) or message, 0)
end

return place
