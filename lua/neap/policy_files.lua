--- Which files are policies, and what their policies are called.

local core = require "neap.core"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local policy_files = {}

--- A policy is named as its file is.
---@param path string
---@return string
function policy_files.name_of(path) return (path:match("([^/]*)$"):gsub("%.lua$", "")) end

---@param paths string[]
---@return string[]
function policy_files.names_of(paths)
  local names = {}
  for i, path in ipairs(paths) do names[i] = policy_files.name_of(path) end
  return names
end

--- What is wrong with two files of one name.
---@param name string
---@param other string the path of the first
---@return string
function policy_files.taken(name, other)
  return ("there is a policy %s already, in %s"):format(name, other)
end

--- The first fallback.guard of a policy that names none of these; nil if all do.
---@param policy neap.Policy
---@param names string[]
---@return neap.Problem|nil fault
---@return string|nil name that is not there
function policy_files.missing_guard(policy, names)
  local is_there = {}
  for _, name in ipairs(names) do is_there[name] = true end
  for _, named in ipairs(policy.guards or {}) do
    if not is_there[named.name] then
      local message = ("fallback.guard: there is no policy %s%s"):format(
        problem.shown(named.name), suggest.hint(named.name, names))
      return problem.new {
        file = policy.path, line = named.line, key = named.key, message = message,
      }, named.name
    end
  end
end

--- What the names of files with tests of policies end with.
policy_files.SPECS = { "_spec.lua", "_test.lua" }

--- Are there tests of policies in a file of this name?
---@param name string
---@return boolean
function policy_files.is_spec(name)
  for _, ending in ipairs(policy_files.SPECS) do
    if name:sub(-#ending) == ending then return true end
  end
  return false
end

--- Is a directory's file of this name a policy, and not its tests or something that an editor left
--- there?
---@param name string
---@return boolean
function policy_files.is_one(name)
  return name:find("^[^.#].*%.lua$") ~= nil and not policy_files.is_spec(name)
end

---@param directory string
---@param name string
---@return string
function policy_files.join(directory, name) return (directory:gsub("/+$", "")) .. "/" .. name end

--- What a path stands for: itself, or the policy files in the directory (not below), by name.
---@param path string
---@return string[] files
---@return boolean is_directory
function policy_files.at(path)
  local names = core.list(path)
  if not names then return { path }, false end
  local files = {}
  for _, name in ipairs(names) do
    if policy_files.is_one(name) then files[#files + 1] = policy_files.join(path, name) end
  end
  table.sort(files)
  return files, true
end

return policy_files
