--- What a spec expects and is not so: an error with the timeline up to there.

local place = require "neap.testing.place"
local timeline = require "neap.testing.timeline"

local expect = {}

---@class neap.testing.Failure
---@field message string one line: what is, and what was expected
---@field file string|nil where it was expected
---@field line integer|nil
---@field rows neap.testing.Row[] what had happened
---@field at_ms number
local Failure = { __name = "neap.testing.Failure" }
Failure.__index = Failure

--- The table of what had happened.
---@param colours? boolean
---@return string
function Failure:timeline(colours)
  local where = self.file and (" at %s:%d"):format(self.file, self.line) or ""
  return timeline.text(self.rows, {
    at_ms = self.at_ms, text = ("expected%s: %s"):format(where, self.expected),
  }, colours)
end

function Failure:__tostring()
  local where = self.file and ("%s:%d: "):format(self.file, self.line) or ""
  return ("%s%s\n\n%s\n"):format(where, self.message, self:timeline())
end

--- Is it one?
---@param value any
---@return boolean
function expect.is_failure(value) return getmetatable(value) == Failure end

--- Raises a failure; as busted's own where busted runs.
---@param bench neap.testing.Bench
---@param expected string what should be: "the breaker is open"
---@param is string what is instead: "the breaker is closed"
function expect.fail(bench, expected, is)
  bench:settle()
  local file, line = place.here()
  local rows = {}
  for i, row in ipairs(bench.rows) do rows[i] = row end
  local failure = setmetatable({
    message = ("%s; expected: %s"):format(is, expected), expected = expected,
    file = file, line = line, rows = rows, at_ms = bench.world:elapsed(),
  }, Failure)
  local busted = package.loaded.busted
  local err = failure
  if busted and busted.fail then err = select(2, pcall(busted.fail, tostring(failure), 0)) end
  bench.world:stop(err)
end

--- "1 call", "2 calls".
---@param n integer
---@param noun string
---@return string
function expect.counted(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

-- ---- Values -----------------------------------------------------------------------------------

--- Whether a value is what was expected; of a table, whether it has all that the expected one has.
---@param expected any a function: is asked
---@param is any
---@return boolean
function expect.matches(expected, is)
  if type(expected) == "function" then return not not expected(is) end
  if type(expected) ~= "table" or type(is) ~= "table" then return expected == is end
  for key, value in pairs(expected) do
    if not expect.matches(value, is[key]) then return false end
  end
  return true
end

local MOST_SHOWN = 200

local function written(value, depth)
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) ~= "table" or depth > 3 then return tostring(value) end
  local parts = {}
  for key, part in pairs(value) do
    parts[#parts + 1] = ("%s = %s"):format(tostring(key), written(part, depth + 1))
  end
  table.sort(parts)
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- A value for people, in one line.
---@param value any
---@return string
function expect.shown(value)
  if type(value) == "function" then return "what a function of the spec says" end
  local text = written(value, 1):gsub("%c", " ")
  return #text > MOST_SHOWN and text:sub(1, MOST_SHOWN) .. "..." or text
end

return expect
