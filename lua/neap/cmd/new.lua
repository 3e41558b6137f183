--- `neap new`: writes a policy and its spec, from what was asked for or from a few questions.

local core = require "neap.core"
local kinds = require "neap.cmd.kinds"
local policy_files = require "neap.policy_files"
local suggest = require "neap.suggest"
local write_file = require "neap.cmd.write_file"

local new = {}

local DIRECTORY = "policies" -- if there is one
local QUESTIONS = 3 -- wrong answers to one, after which it is left at that

---@class (exact) neap.cmd.new.Wanted
---@field name string
---@field kind neap.cmd.Kind
---@field directory string
---@field timeout_ms integer
---@field failures integer

-- What may be said -------------------------------------------------------------------------------

--- A kind's name; nil and what would be right.
function new.kind(text)
  if kinds.of(text) then return text end
  local names = kinds.names()
  return nil, ("must be one of %s%s"):format(table.concat(names, ", "), suggest.hint(text, names))
end

local function whole(text, least, most, what)
  local n = text:find("^%d+$") and tonumber(text)
  if n and n >= least and n <= most then return math.floor(n) end
  return nil, ("must be %s, %d to %d"):format(what, least, most)
end

function new.timeout_ms(text) return whole(text, 1, 3599999, "a whole number of ms") end

--- Fewer than the calls that a rate needs.
function new.failures(text) return whole(text, 2, 19, "a whole number") end

--- What is wrong with a policy's name; nil: nothing.
---@param name string
---@return string|nil
function new.name_fault(name)
  if name:find("/", 1, true) then
    return ("%s: is a path: write neap new NAME --dir DIRECTORY"):format(name)
  elseif name:find("%.lua$") then
    return ("%s: a name has no .lua at its end"):format(name)
  elseif #name > 64 or not name:find("^[%w_][%w_.-]*$") then
    return ("%s: a name has letters, digits, _ - and . in it, up to 64"):format(name)
  elseif policy_files.is_spec(name .. ".lua") then
    return ("%s: names of specs end like that"):format(name)
  end
end

-- Questions --------------------------------------------------------------------------------------

--- Asks until there is an answer that will do.
local function ask(host, question, default, read)
  for _ = 1, QUESTIONS do
    host.out(("%s [%s] "):format(question, default))
    local text = host.read()
    if text == nil or text:find("^%s*$") then break end
    local value, message = read(text:match("^%s*(.-)%s*$"))
    if value ~= nil then return value end
    host.out(("  %s\n"):format(message))
  end
  return read(tostring(default))
end

local function ask_kind(host)
  local lines = {}
  for _, kind in ipairs(kinds.list) do
    lines[#lines + 1] = ("  %-9s %s\n"):format(kind.name, kind.is)
  end
  host.out("What is called?\n" .. table.concat(lines))
  return ask(host, "Kind", "http", new.kind)
end

--- What is wanted: as given; what is not given is asked for on a terminal, and else the default.
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@return neap.cmd.new.Wanted
function new.wanted(given, host)
  local asks = host.is_terminal(0) and host.is_terminal(1)
  local kind = kinds.of(given.kind or asks and ask_kind(host) or "http")
  local function number(name, question)
    if given[name] then return given[name] end
    local default = kind[name:gsub("-", "_")]
    local read = name == "failures" and new.failures or new.timeout_ms
    return asks and ask(host, question, default, read) or default
  end
  return {
    name = given[1], kind = kind,
    directory = given.dir or core.list(DIRECTORY) and DIRECTORY or ".",
    failures = number("failures", "How many failures in a row open it?"),
    timeout_ms = number("timeout-ms", "After how many ms is a call too late?"),
  }
end

-- Writing ----------------------------------------------------------------------------------------

local function filled(text, wanted)
  return (text:gsub("%f[%w_]FAILURES %- 1%f[^%w_]", tostring(wanted.failures - 1))
    :gsub("%f[%w_]TIMEOUT_MS %+ 1%f[^%w_]", tostring(wanted.timeout_ms + 1))
    :gsub("1800 / FAILURES", tostring(math.floor(1800 / wanted.failures)))
    :gsub("%f[%w_](%u[%u_]+)%f[^%w_]", {
      NAME = wanted.name, FAILURES = tostring(wanted.failures),
      TIMEOUT_MS = tostring(wanted.timeout_ms),
    }))
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

--- Writes the two files, or none.
---@param wanted neap.cmd.new.Wanted
---@return string[]|nil paths
---@return string|nil message
function new.write(wanted)
  local directory = wanted.directory
  if not core.list(directory) then
    return nil, ("%s: there is no such directory: mkdir -p %s makes it"):format(directory,
      directory)
  end
  local stem = directory == "." and wanted.name or policy_files.join(directory, wanted.name)
  local paths = { stem .. ".lua", stem .. policy_files.SPECS[1] }
  for _, path in ipairs(paths) do
    if exists(path) then return nil, path .. ": is there already, and stays as it is" end
  end
  for i, text in ipairs { wanted.kind.policy, wanted.kind.spec } do
    local ok, message = write_file(paths[i], filled(text, wanted))
    if not ok then
      for j = 1, i do os.remove(paths[j]) end
      return nil, message
    end
  end
  return paths
end

--- What to do next.
---@param wanted neap.cmd.new.Wanted
---@param paths string[]
---@return string
function new.next_steps(wanted, paths)
  local path = paths[1]
  return ([[
%s and %s are written. Next:

  neap check %s
  neap test %s
  %s
]]):format(path, paths[2], path, path, (wanted.kind.next:gsub("PATH", path)))
end

return new
