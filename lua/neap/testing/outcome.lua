--- What a scripted dependency does with a call, in the short forms that specs use.
--
--   503                                       an HTTP answer
--   { status = 200, body = "…" }              the same, with more of it; the fields of a call
--   { grpc_status = 14 }                      a gRPC answer
--   { result = "rows" }, { error = "none" }   what a Lua function returned
--   "timeout"                                 no answer: the call is given up at timeout_ms
--   "transport"                               no connection
--   "caller"                                  who asked has left before there was an answer
--   function(...) … end                       a Lua function, called with the call's arguments
--
-- and `takes_ms` in a table: after how long it is there.  A list of them is a script: one for each
-- attempt, the last for all further ones.

local place = require "neap.testing.place"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local outcome = {}

local NAMES = { "timeout", "transport", "caller" }
local FIELDS = {
  "status", "grpc_status", "code", "headers", "body", "result", "error", "raised", "ended_by",
  "phase", "takes_ms",
}
local NO_OUTCOME = "%s is no outcome: write a status such as 503, \"timeout\", \"transport\", "
  .. "\"caller\", a table such as { status = 200, body = \"…\" }, or a function"

---@class neap.testing.Outcome
---@field fields table of the call, as guard:report takes them
---@field f function|nil in place of fields
---@field takes_ms number|nil
---@field is_endless boolean|nil without takes_ms it takes for ever
---@field text string for people

local SHORT = {
  timeout = { ended_by = "timeout" },
  transport = { ended_by = "transport", phase = "connect" },
  caller = { ended_by = "caller" },
}

local function lowered(headers)
  local copy = {}
  for name, value in pairs(headers) do copy[tostring(name):lower()] = tostring(value) end
  return copy
end

local function shortened(text)
  text = tostring(text):gsub("%c", " ")
  return #text > 40 and text:sub(1, 37) .. "..." or text
end

--- For people: 503, "no rows", gRPC 14.
local function text_of(fields)
  local parts = {}
  if fields.status and not fields.grpc_status then parts[1] = tostring(fields.status) end
  if fields.grpc_status then parts[1] = "gRPC " .. tostring(fields.grpc_status) end
  if fields.code then parts[#parts + 1] = tostring(fields.code) end
  if fields.result ~= nil then parts[#parts + 1] = shortened(problem.shown(fields.result)) end
  if fields.error ~= nil then
    parts[#parts + 1] = (fields.raised and "raises " or "error ") .. shortened(fields.error)
  end
  if fields.ended_by and fields.ended_by ~= "answer" then parts[#parts + 1] = fields.ended_by end
  return table.concat(parts, " ")
end

local function of_table(given)
  local fields, is_known = {}, {}
  for _, name in ipairs(FIELDS) do is_known[name] = true end
  for name, value in pairs(given) do
    if not is_known[name] then
      place.error("%s is no field of an outcome%s", problem.shown(name),
        suggest.hint(name, FIELDS))
    end
    fields[name] = value
  end
  local takes_ms = fields.takes_ms
  fields.takes_ms = nil
  if fields.headers then fields.headers = lowered(fields.headers) end
  return {
    fields = fields, takes_ms = takes_ms, is_endless = fields.ended_by == "timeout",
    text = text_of(fields),
  }
end

--- One of the short forms, whole.
---@param given any
---@return neap.testing.Outcome
local function read(given)
  if type(given) == "number" then return of_table { status = given } end
  if type(given) == "function" then return { f = given, text = "a function" } end
  if type(given) == "table" then return of_table(given) end
  if SHORT[given] then return of_table(SHORT[given]) end
  place.error(NO_OUTCOME .. (type(given) == "string" and suggest.hint(given, NAMES) or ""),
    problem.shown(given))
end

---@class neap.testing.Script
---@field next fun(...: any): neap.testing.Outcome for the next attempt
---@field is_lua boolean its outcomes are functions
---@field is_http boolean they are answers of a server

local function judged(list)
  local is_lua, others = false, false
  for _, one in ipairs(list) do
    if one.f then is_lua = true else others = true end
  end
  if is_lua and others then
    place.error "a script is either functions or other outcomes, not both"
  end
  local fields = list[1].fields
  local is_values = is_lua or fields.result ~= nil or fields.error ~= nil or fields.raised ~= nil
  return is_lua, not is_values
end

--- A script: one outcome, or a list of them.
---@param given any
---@return neap.testing.Script
function outcome.script(given)
  local list = {}
  if type(given) == "table" and given[1] ~= nil then
    for i, one in ipairs(given) do list[i] = read(one) end
  else
    list[1] = read(given)
  end
  local at, is_lua, is_http = 0, judged(list)
  return {
    is_lua = is_lua, is_http = is_http,
    next = function()
      at = math.min(at + 1, #list)
      return list[at]
    end,
  }
end

return outcome
