--- Directories that a test needs, and that are gone when it has ended.

local scratch = {}

local made = {}

local function quoted(path) return "'" .. path:gsub("'", [['\'']]) .. "'" end

local function run(command)
  local ok = os.execute(command)
  return ok == true or ok == 0
end

--- A new directory of this user's own.
---@return string
function scratch.directory()
  local path = os.tmpname()
  os.remove(path)
  if not run("mkdir -m 700 " .. quoted(path)) then error("cannot make " .. path, 0) end
  made[#made + 1] = path
  return path
end

--- Removes them.
function scratch.clear()
  for i = #made, 1, -1 do
    run("rm -rf " .. quoted(made[i]))
    made[i] = nil
  end
end

return scratch
