--- Runs the measuring programs and reads what they print: NAME, tab, numbers.
local run = {}

local build = arg and arg[1] or "build/release"

local function quoted(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

local function command_of(words)
  local parts = {}
  for i, word in ipairs(words) do parts[i] = quoted(word) end
  return table.concat(parts, " ")
end

--- Output of a command.  Raises if it fails.
function run.output(words)
  local command = command_of(words)
  local pipe = assert(io.popen(command))
  local text = pipe:read("a")
  local ok, how, code = pipe:close()
  if not ok then error(("%s: %s %s"):format(command, how, code), 0) end
  return text
end

--- A program of the build.
function run.program(name) return build .. "/bench/" .. name end

function run.build() return build end

--- A Lua script of this directory, run by that interpreter, with the build's modules to be found.
---@param lua "lua5.4"|"luajit"|"luajit -joff"
function run.script(lua, name, ...)
  local here = arg[0]:match("^(.*)/[^/]*$") or "."
  local folder = lua == "lua5.4" and "lua" or "lua5.1"
  local words = {
    "env", ("LUA_PATH=%s/../../lua/?.lua;%s/../../lua/?/init.lua;;"):format(here, here),
    ("LUA_CPATH=%s/%s/?.so;%s/bench/%s/?.so;;"):format(build, folder, build, folder),
  }
  for word in lua:gmatch("%S+") do words[#words + 1] = word end
  for _, word in ipairs { here .. "/" .. name, ... } do words[#words + 1] = word end
  return words
end

--- { median, min, max, values } of some numbers.
function run.summary(values)
  local sorted = table.move(values, 1, #values, 1, {})
  table.sort(sorted)
  local middle = (#sorted + 1) // 2
  local median = #sorted % 2 == 1 and sorted[middle] or (sorted[middle] + sorted[middle + 1]) / 2
  return { median = median, min = sorted[1], max = sorted[#sorted], values = values }
end

--- NAME -> summary, and the names in order.
function run.measurements(words)
  local found, names = {}, {}
  for name, numbers in run.output(words):gmatch("([^\t\n]+)\t([^\n]*)") do
    local values = {}
    for number in numbers:gmatch("%S+") do values[#values + 1] = assert(tonumber(number)) end
    found[name] = run.summary(values)
    names[#names + 1] = name
  end
  return found, names
end

--- Per-name instruction counts of a program that asks callgrind for a dump at each name.
function run.callgrind(words)
  local dir = run.output { "mktemp", "-d" }:gsub("\n", "")
  local command = { "valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
    "--trace-children=yes", "--callgrind-out-file=" .. dir .. "/count.%p" }
  table.move(words, 1, #words, #command + 1, command)
  run.output(command)
  local counts = {}
  local pattern = "^(desc: Trigger: Client Request|totals): "
  local list = io.popen(("grep -shE %s %s/count.*"):format(quoted(pattern), quoted(dir)))
  local name
  for line in list:lines() do
    name = line:match("Client Request: (.*)") or name
    local total = line:match("totals: (%d+)")
    if total and name then counts[name], name = tonumber(total), nil end
  end
  list:close()
  run.output { "rm", "-rf", dir }
  return counts
end

return run
