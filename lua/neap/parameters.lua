--- A policy's params: the numbers and tables that a deployment sets, apart from the policy's code.

local problem = require "neap.problem"

local parameters = {}

local DEEPEST = 16
local DATA = { number = true, string = true, boolean = true }

local function key_in(path, key)
  if type(key) == "number" then return ("%s[%s]"):format(path, problem.shown(key)) end
  return path .. "." .. key
end

local function fail(key, message, ...) error({ key = key, message = message:format(...) }, 0) end

--- Raises { key =, message = } for what is no data.
local function copy_of(value, path, depth)
  if value ~= value then fail(path, "nan is not a number") end -- and not even the same as itself
  if DATA[type(value)] then return value end
  if type(value) ~= "table" then
    fail(path, "%s: params are numbers, texts, booleans and tables", problem.shown(value))
  end
  if depth > DEEPEST then fail(path, "is nested too deeply, or contains itself") end
  local copy = {}
  for key, part in next, value do
    if type(key) ~= "string" and type(key) ~= "number" then
      fail(path, "%s as a key: only texts and numbers can be", problem.shown(key))
    end
    copy[key] = copy_of(part, key_in(path, key), depth + 1)
  end
  return copy
end

--- A copy that shares nothing with what was given.
---@param params any
---@return table|nil copy, { key: string, message: string }|nil fault
function parameters.copy(params)
  if type(params) ~= "table" then
    local message = problem.shown(params) .. ": a table is needed"
    return nil, { key = "params", message = message }
  end
  local ok, copy = pcall(copy_of, params, "params", 1)
  if ok then return copy end
  return nil, copy
end

local function goes_before(a, b)
  if type(a) ~= type(b) then return type(a) == "number" end
  return a < b
end

local function write(value, parts)
  local kind = type(value)
  if kind == "number" then
    parts[#parts + 1] = ("n%.17g;"):format(value)
  elseif kind == "string" then
    parts[#parts + 1] = ("s%d:%s"):format(#value, value)
  elseif kind == "boolean" then
    parts[#parts + 1] = value and "true;" or "false;"
  else
    local keys = {}
    for key in next, value do keys[#keys + 1] = key end
    table.sort(keys, goes_before)
    parts[#parts + 1] = "{"
    for _, key in ipairs(keys) do
      write(key, parts)
      write(value[key], parts)
    end
    parts[#parts + 1] = "}"
  end
end

--- The same text for the same params, whatever order they were set in.
---@param params table as of parameters.copy
---@return string
function parameters.text(params)
  local parts = {}
  write(params, parts)
  return table.concat(parts)
end

local LONGEST = 60

local function write_inline(value, parts, depth)
  if type(value) ~= "table" or depth > 3 then
    parts[#parts + 1] = type(value) == "table" and "{ … }" or problem.shown(value)
    return
  end
  local keys = {}
  for key in next, value do keys[#keys + 1] = key end
  if #keys == 0 then
    parts[#parts + 1] = "{}"
    return
  end
  table.sort(keys, goes_before)
  parts[#parts + 1] = "{ "
  for i, key in ipairs(keys) do
    if i > 1 then parts[#parts + 1] = ", " end
    if #keys ~= #value then parts[#parts + 1] = tostring(key) .. " = " end
    write_inline(value[key], parts, depth + 1)
  end
  parts[#parts + 1] = " }"
end

--- Data in a line, a table's too, if need be cut: { eu = 1, us = 2 }.
---@param value any plain data: nobody's metatable
---@return string
function parameters.inline(value)
  if value == nil then return "not set" end
  local parts = {}
  write_inline(value, parts, 1)
  local text = table.concat(parts)
  if type(value) ~= "table" or #text <= LONGEST then return text end
  return (text:sub(1, LONGEST):gsub("[\192-\255]?[\128-\191]*$", "")) .. "…"
end

--- Whether two values are the same data.
---@param a any
---@param b any
---@return boolean
function parameters.same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in next, a do
    if not parameters.same(value, b[key]) then return false end
  end
  for key in next, b do
    if a[key] == nil then return false end
  end
  return true
end

return parameters
