--- Which files are policies, and what their policies are called.

local core = require "neap.core"

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

--- Is a directory's file of this name a policy, or something that an editor left there?
---@param name string
---@return boolean
function policy_files.is_one(name) return name:find("^[^.#].*%.lua$") ~= nil end

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
