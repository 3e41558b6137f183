--- What a deployment sets, apart from the policies' code: values by name, and where each is from.
--
--   parameter files, in order  -->  the environment  -->  what an operator set
--
-- A list of entries in that order; the last of a name counts.  Which of them a policy takes, and
-- what a text stands for, it declares itself: neap.declared.

local core = require "neap.core"
local lines = require "neap.lines"
local parameters = require "neap.parameters"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local settings = {}

settings.PREFIX = "NEAP_PARAM_"

---@class (exact) neap.Setting
---@field name? string|number of the parameter
---@field env? string in place of a name: as the environment spells it, e.g. TIMEOUT_MS
---@field value? any
---@field text? string in place of a value: what stands for one, by the declared type
---@field from string where it is set, for people: "production.lua:3", "admin, by alice"
---@field file? string of a file, as the next
---@field line? integer

-- ---- Values that a program gives ----------------------------------------------------------------

local function goes_before(a, b)
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

local function sorted_keys(t)
  local keys = {}
  for key in next, t do keys[#keys + 1] = key end
  table.sort(keys, goes_before)
  return keys
end

--- Of a table of values, as parameters.copy gave it.
---@param values table
---@return neap.Setting[]
function settings.of(values)
  local list = {}
  for i, name in ipairs(sorted_keys(values)) do
    list[i] = { name = name, value = values[name], from = "the program" }
  end
  return list
end

-- ---- Files ------------------------------------------------------------------------------------

--- A table with names, not a list: such are merged, name by name.
local function is_map(value)
  if type(value) ~= "table" then return false end
  for key in next, value do
    if type(key) == "number" then return false end
  end
  return next(value) ~= nil
end

--- What comes of a value and one that is laid over it.
local function merged(below, above)
  if not (is_map(below) and is_map(above)) then return above end
  local both = {}
  for key, value in next, below do both[key] = value end
  for key, value in next, above do both[key] = merged(below[key], value) end
  return both
end

--- Lays a file's values over those of the files before.
---@param list neap.Setting[] which is not changed
---@param values table of one policy
---@param file string
---@param line_of fun(name: any): integer|nil
---@return neap.Setting[]
function settings.overlaid(list, values, file, line_of)
  local out, at = {}, {}
  for i, entry in ipairs(list) do out[i], at[entry.name] = entry, i end
  for _, name in ipairs(sorted_keys(values)) do
    local i, line = at[name] or #out + 1, line_of(name)
    out[i] = {
      name = name, value = merged(out[i] and out[i].value, values[name]), file = file, line = line,
      from = line and ("%s:%d"):format(file, line) or file,
    }
  end
  return out
end

---@class (exact) neap.settings.file a parameter file that was read
---@field path string
---@field value? table<string, table> by policy; nil: it could not be read yet
---@field lines? table<string, integer> as of neap.lines

--- All that is set for a policy: by the files, in their order, then by the environment.
---@param files neap.settings.file[]
---@param environment table<string, neap.Setting[]> by policy
---@param policy string
---@return neap.Setting[]
function settings.for_policy(files, environment, policy)
  local list = {}
  for _, file in ipairs(files) do
    local values = file.value and file.value[policy]
    if values then
      list = settings.overlaid(list, values, file.path, function(name)
        return lines.nearest(file.lines, ("%s.%s"):format(policy, tostring(name)))
      end)
    end
  end
  for _, entry in ipairs(environment[policy] or {}) do list[#list + 1] = entry end
  return list
end

-- ---- The environment --------------------------------------------------------------------------

--- How the environment spells a name: TIMEOUT_MS.
---@param name string
function settings.env_name(name) return (name:upper():gsub("[^A-Z0-9]", "_")) end

--- The policy that a variable's name begins with, and the rest; nil and why there is none.
local function policy_of(rest, names)
  local found, length
  for _, name in ipairs(names) do
    local prefix = settings.env_name(name) .. "__"
    if rest:sub(1, #prefix) == prefix and #rest > #prefix and (not found or #prefix >= length) then
      if found and #prefix == length then return nil, ("is for %s and %s"):format(found, name) end
      found, length = name, #prefix
    end
  end
  if found then return found, rest:sub(length + 1) end
  local known = {}
  for i, name in ipairs(names) do known[i] = settings.env_name(name) end
  local given = rest:match("^(.-)__.")
  if not given then return nil, "must be " .. settings.PREFIX .. "POLICY__NAME" end
  return nil, "there is no such policy" .. suggest.hint(given, known)
end

--- Of the variables NEAP_PARAM_POLICY__NAME, by policy; and what is wrong with the others.
---@param variables table<string, string> as of core.environment
---@param names string[] of the policies
---@return table<string, neap.Setting[]> by_policy, neap.Problem[] problems
function settings.environment(variables, names)
  local by_policy, problems = {}, {}
  for _, variable in ipairs(sorted_keys(variables)) do
    local name, rest = policy_of(variable:sub(#settings.PREFIX + 1), names)
    if name then
      by_policy[name] = by_policy[name] or {}
      table.insert(by_policy[name],
        { env = rest, text = variables[variable], from = variable })
    else
      problems[#problems + 1] = problem.new { file = variable, message = rest }
    end
  end
  return by_policy, problems
end

--- The variables of this process, as they are now.
---@return table<string, string>
function settings.variables() return core.environment(settings.PREFIX) end

-- ---- Operators --------------------------------------------------------------------------------

---@class (exact) neap.settings.change
---@field set table<string, { value: any }|{ text: string }>
---@field unset string[]
---@field by string
---@field reason? string

--- The entries with those of a change; or nil and what is wrong: a name that is not set cannot be
--- unset.
---@param list neap.Setting[] of operators, which is not changed
---@param change neap.settings.change
---@return neap.Setting[]|nil, string|nil err
function settings.changed(list, change)
  local out, is_set = {}, {}
  for _, entry in ipairs(list) do is_set[entry.name] = true end
  local goes = {}
  for _, name in ipairs(change.unset) do
    if not is_set[name] then
      return nil, ("unset: %s is not set here, so there is nothing to unset"):format(name)
    end
    goes[name] = true
  end
  for _, entry in ipairs(list) do
    if not goes[entry.name] and not change.set[entry.name] then out[#out + 1] = entry end
  end
  for _, name in ipairs(sorted_keys(change.set)) do
    local given = change.set[name]
    out[#out + 1] = {
      name = name, value = given.value, text = given.text,
      from = ("admin, by %s%s"):format(change.by, change.reason and ": " .. change.reason or ""),
    }
  end
  return out
end

-- ---- Comparing --------------------------------------------------------------------------------

--- The same text for the same entries; places count, as they are shown.
---@param list neap.Setting[]
---@return string
function settings.text(list)
  local plain = {}
  for i, entry in ipairs(list) do
    plain[i] = {
      entry.name or entry.env, parameters.copy({ entry.value }) or 0, entry.text or false,
      entry.from,
    }
  end
  return parameters.text(plain)
end

return settings
