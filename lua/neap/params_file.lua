--- The parameter file: what a deployment sets, apart from the policies' code.
--
--   return {
--     flag_provider = { defaults = { ["new-checkout"] = false } },
--   }

local chunk = require "neap.chunk"
local core = require "neap.core"
local lines = require "neap.lines"
local parameters = require "neap.parameters"
local problem = require "neap.problem"
local sandbox = require "neap.sandbox"
local suggest = require "neap.suggest"

local params_file = {}

--- A copy of what the file answers, which is plain data; raises what is wrong with it.
local function copy_of(value, text, path)
  if type(value) ~= "table" then
    error(("%s: returns a %s, not a table { policy name = params }"):format(path, type(value)), 0)
  end
  local by_policy = {}
  for name, of_policy in next, value do
    if type(name) ~= "string" or type(of_policy) ~= "table" then
      error(("%s: %s = %s: must be policy name = table"):format(path, tostring(name),
        problem.shown(of_policy)), 0)
    end
    local copy, fault = parameters.copy(of_policy)
    if not copy then
      local key, found, return_line = name .. fault.key:sub(#"params" + 1), lines.of(text)
      error(tostring(problem.new {
        file = path, line = lines.nearest(found, key, return_line), key = key,
        message = fault.message,
      }), 0)
    end
    by_policy[name] = copy
  end
  return by_policy
end

--- The value of a parameter file, which runs with nothing at hand, under the budget of a load, as a
--- policy: it is a table, not a program, and is read again while the program runs.
---@param text string
---@param path string as errors name it
---@return table<string, table>|nil by_policy, string|nil err
function params_file.parse(text, path)
  local made, err = chunk.compile(text, "@" .. path, {})
  if not made then return nil, err end
  local budget = sandbox.LOADING
  local ok, value, kind = core.run(core.box(budget.steps, budget.bytes, budget.ms), function()
    return copy_of(made(), text, path)
  end)
  if ok then return value end
  return nil, kind == "error" and value or ("%s: loading it %s"):format(path, value)
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
