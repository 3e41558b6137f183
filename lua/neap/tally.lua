--- What guards of one policy have counted beside their breakers, in all processes that share a
--- panel: a row of its counters, so that one scrape shows all of them.
--
-- A process adds what it has counted since it did so last; what one that dies has not added is
-- lost.

local core = require "neap.core"
local retry = require "neap.retry"

local tally = {}

-- A counter's number is part of the panel's layout: others go to the end.
local SOURCES = { "last_good", "default", "function", "guard", "fail" }
local RESULTS = { "answered", "declined", "failed", "timeout" }
local ERRORS, OVERFLOW, RELOADS, FAILED_RELOADS, SUM_MS = 1, 2, 3, 4, 5
local DURATIONS = #core.duration_bounds_ms + 1
local FALLBACKS = {} -- source -> result -> number
local function assign(source, result, n)
  FALLBACKS[source] = FALLBACKS[source] or {}
  FALLBACKS[source][result] = n
end
for i, source in ipairs(SOURCES) do
  for k, result in ipairs(RESULTS) do
    assign(source, result, SUM_MS + DURATIONS + (i - 1) * #RESULTS + k)
  end
end
local LATER = SUM_MS + DURATIONS + #SOURCES * #RESULTS
for i, source in ipairs(SOURCES) do assign(source, "full", LATER + i) end
for k, result in ipairs { "answered", "declined", "failed", "timeout", "full" } do
  assign("queue", result, LATER + #SOURCES + k)
end

local RETRIES = 58 -- their results are the row's last numbers

--- Visits each number of a guard's stats: its counter, and where it is.
local function each(stats, visit)
  visit(ERRORS, stats, "policy_errors")
  visit(OVERFLOW, stats, "overflow")
  for i, result in ipairs(retry.results) do visit(RETRIES + i, stats.retries, result) end
  visit(RELOADS, stats.reloads, "ok")
  visit(FAILED_RELOADS, stats.reloads, "failed")
  visit(SUM_MS, stats.fallback_durations, "sum_ms")
  for i = 1, DURATIONS do visit(SUM_MS + i, stats.fallback_durations.counts, i) end
  for _, row in ipairs(stats.fallbacks) do
    visit(FALLBACKS[row.source][row.result], row, "count")
  end
end

---@class neap.Tally
local Tally = {}
Tally.__index = Tally

--- Adds what this process has counted, and puts what all have in its place.
---@param stats neap.Stats
function Tally:share(stats)
  each(stats, function(number, of, key)
    local more = math.floor(of[key]) - (self.told[number] or 0)
    if more > 0 then
      self.counters:add(number, more)
      self.told[number] = (self.told[number] or 0) + more
    end
    of[key] = self.counters:get(number)
  end)
end

---@param panel neap.core.Panel
---@param name string the policy's
---@return neap.Tally|nil, string|nil message
function tally.new(panel, name)
  local counters, message = panel:counters(name)
  if not counters then return nil, message end
  return setmetatable({ counters = counters, told = {} }, Tally)
end

return tally
