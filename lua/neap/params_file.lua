--- The parameter file: what a deployment sets, apart from the policies' code.
--
--   return {
--     flag_provider = { defaults = { ["new-checkout"] = false } },
--   }

local chunk = require "neap.chunk"
local core = require "neap.core"
local lines = require "neap.lines"
local problem = require "neap.problem"
local sandbox = require "neap.sandbox"
local suggest = require "neap.suggest"

local params_file = {}

--- Runs it under the budget of a load, as a policy: it is read again while the program runs.
local function run(made, path)
  local budget = sandbox.LOADING
  local ok, value, kind = core.run(core.box(budget.steps, budget.bytes, budget.ms), made)
  if ok then return true, value end
  return false, kind == "error" and value or ("%s: loading it %s"):format(path, value)
end

--- The value of a parameter file, which runs with nothing at hand: it is a table, not a program.
---@param text string
---@param path string as errors name it
---@return table<string, table>|nil by_policy, string|nil err
function params_file.parse(text, path)
  local made, err = chunk.compile(text, "@" .. path, {})
  if not made then return nil, err end
  local ok, value = run(made, path)
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

--- What is wrong with parameters for a policy that there is not: a slip of the pen would leave the
--- policy that was meant without its own.
---@param value table<string, table> as of parse
---@param names string[] of the policies that there are
---@param text string what was parsed
---@param path string
---@return neap.Problem|nil of the first by name
function params_file.stranger(value, names, text, path)
  local known, strangers = {}, {}
  for _, name in ipairs(names) do known[name] = true end
  for name in pairs(value) do
    if not known[name] then strangers[#strangers + 1] = name end
  end
  if #strangers == 0 then return nil end
  table.sort(strangers)
  local name, found, return_line = strangers[1], lines.of(text)
  return problem.new {
    file = path, line = lines.nearest(found, name, return_line), key = name,
    message = "there is no such policy" .. suggest.hint(name, names),
  }
end

return params_file
