--- Calls that were made, and what is expected of them.  Every expectation is one of each of them,
--- and answers the calls, so that sentences can go on:
---
---   flags:call(200):is_a_probe():counts_as "success"

local expect = require "neap.testing.expect"
local place = require "neap.testing.place"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local calls = {}

---@class neap.testing.Call what became of a call
---@field n integer its number in the test
---@field key string of its breaker
---@field request table|nil of a server: method, target, headers, body
---@field at_ms number since the test began
---@field took_ms number
---@field attempts integer that were let in
---@field waits_ms number[] before each further attempt
---@field outcome neap.Outcome|nil of the last attempt
---@field reason string|nil the policy's
---@field refused string|nil why it was, if nothing was tried
---@field is_probe boolean
---@field source string|nil who answered: "primary" (the dependency), "last_good", …, "nobody"
---@field age_ms number|nil of what answered
---@field value any the answer; of a server { status =, headers =, body = }
---@field error any what a Lua caller gets as the second result, or what was raised
---@field is_over boolean

---@class neap.testing.Calls
---@field private bench neap.testing.Bench
local Calls = {}
Calls.__index = Calls

local function named(self, call)
  local of_many = #self > 1 and (" (one of %d)"):format(#self) or ""
  return ("call %d%s"):format(call.n, of_many)
end

--- Fails unless is_so(call) for each, once it is over.
---@param is_early? boolean it is known before
local function each(self, expected, is_so, is, is_early)
  for _, call in ipairs(self) do
    if not call.is_over and not is_early then
      expect.fail(self.bench, expected, named(self, call) .. " is under way")
    elseif not is_so(call) then
      expect.fail(self.bench, expected, ("%s %s"):format(named(self, call), is(call)))
    end
  end
  return self
end

local function what_it_came_to(call)
  if call.refused then return "was refused: " .. call.refused end
  if not call.outcome then return "was not made" end
  return "counts as " .. call.outcome .. (call.reason and (" (%s)"):format(call.reason) or "")
end

local OUTCOMES = { "success", "failure", "timeout", "neutral" }

local function check_word(word, known, what)
  for _, one in ipairs(known) do
    if one == word then return end
  end
  place.error("%s is no %s: %s%s", problem.shown(word), what, table.concat(known, ", "),
    suggest.hint(word, known))
end

--- What the last attempt counted as.
---@param outcome neap.Outcome
---@param reason? string the policy's
---@return neap.testing.Calls
function Calls:counts_as(outcome, reason)
  check_word(outcome, OUTCOMES, "outcome")
  local expected = "it counts as " .. outcome .. (reason and (" (%s)"):format(reason) or "")
  return each(self, expected, function(call)
    return call.outcome == outcome and (reason == nil or call.reason == reason)
  end, what_it_came_to)
end

--- Nothing was tried.
---@param why? string "open", "probes_busy", "bulkhead", "ramp", "forced_open", "deadline"
---@return neap.testing.Calls
function Calls:is_refused(why)
  return each(self, "it is refused" .. (why and ": " .. why or ""), function(call)
    return call.refused ~= nil and (why == nil or call.refused == why)
  end, what_it_came_to)
end

--- It was let through as a probe of a half-open breaker.
---@return neap.testing.Calls
function Calls:is_a_probe()
  return each(self, "it is a probe", function(call) return call.is_probe end, function(call)
    return call.refused and "was refused: " .. call.refused or "was let in as any call is"
  end, true)
end

--- Its breaker is that of the key.
---@param key string
---@return neap.testing.Calls
function Calls:is_of(key)
  return each(self, "it is of the key " .. problem.shown(key), function(call)
    return call.key == key
  end, function(call) return "is of the key " .. problem.shown(call.key) end, true)
end

local function who_answered(call)
  local age = call.age_ms and (", %.14g ms old"):format(call.age_ms) or ""
  return ("was answered by %s%s"):format(call.source, age)
end

--- Who gave the answer.
---@param source string "primary" (the dependency itself), "last_good", "default", "queue", "fail",
---  "guard", "function", "nobody"
---@param age_ms? number how old it is
---@return neap.testing.Calls
function Calls:is_answered_by(source, age_ms)
  local age = age_ms and (", %.14g ms old"):format(age_ms) or ""
  return each(self, ("it is answered by %s%s"):format(source, age), function(call)
    return call.source == source and (age_ms == nil or call.age_ms == age_ms)
  end, who_answered)
end

--- The answer is that; of a table: has all of that.
---@param value any a function is asked whether it is right
---@return neap.testing.Calls
function Calls:gives(value)
  return each(self, "it gives " .. expect.shown(value), function(call)
    return expect.matches(value, call.value)
  end, function(call) return "gave " .. expect.shown(call.value) end)
end

local function kind_of(err) return type(err) == "table" and err.kind or nil end

--- Its caller gets that error.
---@param err any its kind, or the error itself
---@return neap.testing.Calls
function Calls:fails_with(err)
  return each(self, "it fails with " .. expect.shown(err), function(call)
    return call.error ~= nil and (call.error == err or kind_of(call.error) == err)
  end, function(call)
    if call.error == nil then return "has no error" end
    return "fails with " .. expect.shown(kind_of(call.error) or call.error)
  end)
end

--- It was let through so many times.
---@param n integer 1: there was no retry
---@return neap.testing.Calls
function Calls:is_tried(n)
  return each(self, "it is tried " .. expect.counted(n, "time"), function(call)
    return call.attempts == n
  end, function(call) return "was tried " .. expect.counted(call.attempts, "time") end)
end

--- It took so long, waits and all.
---@param least_ms number
---@param most_ms? number exactly least_ms if not given
---@return neap.testing.Calls
function Calls:takes(least_ms, most_ms)
  most_ms = most_ms or least_ms
  local expected = most_ms == least_ms and "it takes %.14g ms" or "it takes %.14g to %.14g ms"
  return each(self, expected:format(least_ms, most_ms), function(call)
    return call.took_ms >= least_ms and call.took_ms <= most_ms
  end, function(call) return ("took %.14g ms"):format(call.took_ms) end)
end

--- Ends calls that are under way.
---@param outcome any
---@return neap.testing.Calls
function Calls:ends_with(outcome)
  for _, call in ipairs(self) do
    if call.is_over or not call.finish then
      place.error("call %d is not under way", call.n)
    end
    call.finish(outcome)
  end
  self.bench.world:advance(0)
  return self
end

--- Calls as one object; a field of the last of them is one of it.
---@param bench neap.testing.Bench
---@param list neap.testing.Call[]
---@return neap.testing.Calls
function calls.new(bench, list)
  local self = { bench = bench }
  for i, call in ipairs(list) do self[i] = call end
  return setmetatable(self, { __index = function(_, name)
    if Calls[name] ~= nil then return Calls[name] end
    return list[#list][name]
  end })
end

return calls
