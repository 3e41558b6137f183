--- The parameter file: what a deployment sets, apart from the policies' code.
--
--   return {
--     flag_provider = { defaults = { ["new-checkout"] = false } },
--   }

local core = require "neap.core"
local sandbox = require "neap.sandbox"

local params_file = {}

--- Lua 5.1 has no environment argument and would take bytecode.
local function compile(text, chunkname)
  if _VERSION ~= "Lua 5.1" then return load(text, chunkname, "t", {}) end
  if text:byte() == 27 then return nil, chunkname:sub(2) .. ": is not text" end
  local chunk, err = _G.loadstring(text, chunkname)
  if chunk then _G.setfenv(chunk, {}) end
  return chunk, err
end

--- Runs it under the budget of a load, as a policy: it is read again while the program runs.
local function run(chunk, path)
  local budget = sandbox.LOADING
  local ok, value, kind = core.run(core.box(budget.steps, budget.bytes, budget.ms), chunk)
  if ok then return true, value end
  return false, kind == "error" and value or ("%s: loading it %s"):format(path, value)
end

--- The value of a parameter file, which runs with nothing at hand: it is a table, not a program.
---@param text string
---@param path string as errors name it
---@return table<string, table>|nil by_policy, string|nil err
function params_file.parse(text, path)
  local chunk, err = compile(text, "@" .. path)
  if not chunk then return nil, err end
  local ok, value = run(chunk, path)
  if not ok then return nil, value end
  if type(value) ~= "table" then
    return nil, ("%s: returns a %s, not a table { policy name = params }"):format(path, type(value))
  end
  for name, of_policy in pairs(value) do
    if type(name) ~= "string" or type(of_policy) ~= "table" then
      return nil, ("%s: %s = %s: must be policy name = table"):format(
        path, tostring(name), tostring(of_policy))
    end
  end
  return value
end

return params_file
