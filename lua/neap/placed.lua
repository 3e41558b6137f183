--- Problems of a file with their places: of what Lua says of it, and of what is found in it.

local lines = require "neap.lines"
local problem = require "neap.problem"

local placed = {}

--- A message without "path: " at its beginning, if that is there.
---@param message string
---@param path string
---@return string
function placed.without_path(message, path)
  local prefix = path .. ": "
  return message:sub(1, #prefix) == prefix and message:sub(#prefix + 1) or message
end

--- An error of Lua's, as a problem: its text begins with the place.
---@param path string
---@param message any
---@return neap.Problem
function placed.of_lua(path, message)
  local file, line, rest = tostring(message):match("^([^\n]-):(%d+): (.*)$")
  if not file then
    return problem.new { file = path, message = placed.without_path(tostring(message), path) }
  end
  local tail = file:match("^%.%.%.(.*)$")
  if tail and path:sub(-#tail) == tail then file = path end
  return problem.new { file = file, line = tonumber(line), message = rest }
end

--- Where problems are collected: report(key, value, format, ...), with lines from the text.
---@param path string
---@param text string
---@return neap.report report
---@return neap.Problem[] problems
---@return fun(key: string): integer|nil line_of
function placed.report(path, text)
  local problems, found, return_line = {}, nil, nil
  local function line_of(key)
    if not found then found, return_line = lines.of(text) end
    return key and lines.of_change(text, key) or lines.nearest(found, key, return_line)
  end
  local function report(key, value, message, ...)
    if select("#", ...) > 0 then message = message:format(...) end
    problems[#problems + 1] = problem.new {
      file = path, line = line_of(key), key = key, value = value, message = message,
    }
  end
  return report, problems, line_of
end

return placed
