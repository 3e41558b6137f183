local core = require "neap.core"
local fixture = require "tests.lua.policy_fixture"
local lines = require "neap.lines"
local policy = require "neap.policy"
local schema = require "neap.schema"
local suggest = require "neap.suggest"

local parse = fixture.parse

-- ---- One key ----------------------------------------------------------------------------------

--- The smallest policy that is good with `key = value`, as text; the value is Lua source.
local function with(key, value)
  local section, name = key:match("^(.*)%.([^.]+)$")
  local parts = { name = '"x"', trip = {}, window = {}, open = {}, half_open = {} }
  if key == "trip.slow_rate" then parts.trip.slow_call_ms = "1000" end
  if key == "window.calls" then
    parts.window.kind, parts.trip.consecutive_failures = '"count"', "5"
  end
  if key == "open.cooldown_ms" or key == "open.max_cooldown_ms" then
    parts.open = { cooldown_ms = "1", max_cooldown_ms = "86400000", jitter = "0" }
  elseif key == "half_open.successes" then
    parts.half_open.probes = "31"
  elseif key == "timeout_ms" then
    parts.half_open.lease_ms = "3600000"
  elseif key == "retry.base_ms" or key == "retry.max_ms" then
    parts.retry = { base_ms = "1", max_ms = "3600000" }
  elseif key == "bulkhead.wait_ms" then
    parts.bulkhead = { concurrent = "1" }
  end
  if section then parts[section] = parts[section] or {} end
  if not section then parts[key] = value else parts[section][name] = value end
  if not parts.trip.failures and not parts.trip.consecutive_failures then
    parts.trip.failures = "5"
  end
  local text = { "return {" }
  for part, fields in pairs(parts) do
    if type(fields) == "string" then
      text[#text + 1] = ("  %s = %s,"):format(part, fields)
    else
      text[#text + 1] = ("  %s = {"):format(part)
      for field, source in pairs(fields) do text[#text + 1] = ("    %s = %s,"):format(field,
        source) end
      text[#text + 1] = "  },"
    end
  end
  text[#text + 1] = "}"
  return table.concat(text, "\n")
end

local function line_of(text, name)
  local n = 0
  for line in (text .. "\n"):gmatch("(.-)\n") do
    n = n + 1
    if line:find("^%s*" .. name .. " = ") then return n end
  end
end

local function refused(key, value)
  local text = with(key, value)
  local p, err = policy.parse(text, "x.lua")
  assert.is_nil(p, ("%s = %s was taken"):format(key, value))
  assert.equal(key, err.key)
  assert.equal(line_of(text, key:match("[^.]*$")), err.line)
  return err
end

local WHOLE = { whole = true, ms = true }
local NUMBER = { whole = true, ms = true, share = true, factor = true, ["positive share"] = true }

-- As Lua source: what it is, as a message shows it.
local NEVER = {
  { "-1", "-1" }, { '"5"', '"5"' }, { '"5s"', '"5s"' }, { "true", "true" }, { "{}", "a table" },
  { "0/0", "nan" }, { "1/0", "inf" }, { "-1/0", "-inf" }, { "2^53 + 1", "9007199254740992" },
  { "type", "a function" },
}

for _, spec in ipairs(schema.keys) do
  if NUMBER[spec.kind] then
    describe(spec.key, function()
      local min, max = spec.min or 0, spec.max or 1
      for _, bad in ipairs(NEVER) do
        it(("refuses %s and says what would be right (B142, B145)"):format(bad[1]), function()
          local err = refused(spec.key, bad[1])
          assert.equal(1, err.message:find(bad[2], 1, true), err.message)
          assert.truthy(err.message:find(schema.expected(spec), 1, true), err.message)
        end)
      end

      it("takes both ends of its range, and nothing beyond (B142, B145, B146)", function()
        local least = spec.kind == "positive share" and "0.000001" or tostring(min)
        assert(policy.parse(with(spec.key, least), "x.lua"))
        assert(policy.parse(with(spec.key, tostring(max)), "x.lua"))
        refused(spec.key, tostring(max + 1))
        refused(spec.key, spec.kind == "positive share" and "0" or tostring(min - 1))
      end)

      if WHOLE[spec.kind] then
        it("is whole (B142)", function()
          assert.matches("^1.5 is ", refused(spec.key, "1.5").message)
        end)
      end

      if spec.rule then it("has the range that the core has (B143)", function()
        local function take(value)
          local given = {
            consecutive_failures = 5, slow_call_ms = 1, cooldown_ms = 1, jitter = 0, probes = 31,
            successes = 1, max_cooldown_ms = 86400000, lease_ms = 3600000,
          }
          given[spec.rule] = value
          if spec.rule == "calls" then given.window = "count" end
          if spec.rule == "jitter" then given.max_cooldown_ms = 43200000 end
          return core.rules(given)
        end
        assert.is_truthy(take(spec.kind == "positive share" and 0.000001 or min))
        assert.is_truthy(take(max))
        for _, bad in ipairs { max + 1, -1, 0 / 0, 1 / 0, -1 / 0, 2 ^ 53 + 1, "5s", {} } do
          local rules, fault = take(bad)
          assert.is_nil(rules)
          assert.equal(spec.rule, fault.field)
        end
      end) end
    end)
  end
end

describe("zero", function()
  it("is not off: what is off is left out (B142, B146)", function()
    for _, key in ipairs { "trip.failures", "trip.failure_rate", "trip.slow_rate" } do
      assert.matches("^0 is out of range: .*; to do without, leave it out$",
        refused(key, "0").message)
    end
  end)

  it("is no cooldown (B145)", function()
    assert.matches("^0 is out of range: ", refused("open.cooldown_ms", "0").message)
  end)

  it("is a jitter", function()
    assert.equal(0, fixture.load("open = { jitter = 0 },").rules:numbers().jitter)
  end)
end)

describe("a percentage", function()
  it("is not a share: the error says what share it is (B146)", function()
    assert.equal("50 is out of range: a share over 0, up to 1, e.g. 0.5 for 50 %",
      refused("trip.failure_rate", "50").message)
    assert.equal("12.5 is out of range: a share from 0 to 1, e.g. 0.125 for 12.5 %",
      refused("open.jitter", "12.5").message)
  end)
end)

-- ---- Names ------------------------------------------------------------------------------------

describe("keys that do not go together", function()
  for _, case in ipairs {
    { "retry = { base_ms = 2000 },", "retry.base_ms",
      "base_ms = 2000 is more than max_ms, which is 1000" },
    { "retry = { max_ms = 10 },", "retry.max_ms", "base_ms = 50 is more than max_ms, which is 10" },
    { "bulkhead = {},", "bulkhead",
      "has no concurrent: how many calls at once? e.g. bulkhead = { concurrent = 50 }" },
    { "deadline_ms = 50, timeout_ms = 100,", "deadline_ms",
      "50 is less than timeout_ms, which is 100: one attempt may take that long" },
  } do
    it("are refused: " .. case[1], function()
      local p, err = parse(case[1])
      assert.is_nil(p)
      assert.same({ case[2], case[3] }, { err.key, err.message })
    end)
  end

  it("are warned of where they have no effect: a budget of nothing", function()
    local p = fixture.load "retry = { budget = 0, budget_per_s = 0 },"
    assert.matches("retry.budget: no call is tried again", p.warnings[1])
  end)
end)

describe("a key that is not known", function()
  for _, case in ipairs {
    -- line                                key                   message
    { "fallbak = {},",                     "fallbak",
      "is not a key: did you mean fallback?" },
    { "half_opne = {},",                   "half_opne",
      "is not a key: did you mean half_open?" },
    { "Classify = type,",                  "Classify",
      "is not a key: did you mean classify?" },
    { "zzzzzz = 1,",                       "zzzzzz",             "is not a key" },
    { "trip = { failuers = 5 },",          "trip.failuers",
      "is not a key: did you mean failures?" },
    { "trip = { failures = 5, probes = 3 },", "trip.probes",
      "is not a key: probes belongs in half_open = { ... }" },
    { "trip = { failures = 5, mode = 3 },", "trip.mode",
      "is not a key: mode belongs to the policy itself" },
    { "failures = 5,",                     "failures",
      "is not a key: failures belongs in trip = { ... }" },
    { "trip = { failures = 5, cooldown = 5 },", "trip.cooldown",
      "is not a key: cooldown_ms belongs in open = { ... }" },
    { "[5] = 1,",                          "[5]",                "5 is no name of a key" },
    { "[true] = 1,",                       "true",               "true is no name of a key" },
    { "enabled = false,",                  "enabled",
      'is not a key; to switch the breaker off write mode = "forced_closed"' },
    { 'timeout = "30s",',                  "timeout",
      "is not a key: did you mean timeout_ms, in milliseconds?" },
    { "timeout_s = 30,",                   "timeout_s",
      "is not a key: durations are in milliseconds: write timeout_ms = 30000" },
    { "timeout_seconds = 0.5,",            "timeout_seconds",
      "is not a key: durations are in milliseconds: write timeout_ms = 500" },
    { "open = { cooldown_min = 2 },",      "open.cooldown_min",
      "is not a key: durations are in milliseconds: write cooldown_ms = 120000" },
    { ("%s = 1,"):format(("x"):rep(200)),  ("x"):rep(200),       "is not a key" },
  } do
    it(("is refused: %s (B082)"):format(case[1]:sub(1, 50)), function()
      local p, err = parse(case[1])
      assert.is_nil(p)
      assert.equal(case[2], err.key)
      assert.equal(case[3], err.message)
    end)
  end

  it("without a unit has two readings, and the error says both (B148)", function()
    local p, err = parse "timeout = 30,"
    assert.is_nil(p)
    assert.equal("policies/x.lua:4: timeout: is not a key: it has no unit: write timeout_ms = 30 "
      .. "for 30 milliseconds, or timeout_ms = 30000 for 30 seconds", tostring(err))
  end)
end)

describe("a value in a message", function()
  it("is cut short, and is one line", function()
    local _, err = parse(("mode = %q,"):format(("x\n"):rep(1000)))
    local expected = '"' .. ("x\\n"):rep(20) .. '..." is not one of '
    assert.equal(expected, err.message:sub(1, #expected))
  end)
end)

describe("off", function()
  it("is a mode: everything passes, metrics go on (B146)", function()
    local p = fixture.load 'mode = "forced_closed",'
    assert.equal("forced_closed", p.mode)
    assert.equal("forced_closed", p.rules:numbers().mode)
  end)
end)

-- ---- Values of other kinds --------------------------------------------------------------------

describe("a value of the wrong kind", function()
  for _, case in ipairs {
    { "window = 5,",                    "window",       "5: a table is needed" },
    { "trip = true,",                   "trip",         "true: a table is needed" },
    { 'window = { kind = "tme" },',     "window.kind",
      '"tme" is not one of "time", "count": did you mean time?' },
    { "window = { kind = 1 },",         "window.kind",  '1 is not one of "time", "count"' },
    { 'mode = "off",',                  "mode",
      '"off" is not one of "auto", "forced_open", "forced_closed", "shadow"' },
    { 'mode = "forced_opne",',          "mode",         '"forced_opne" is not one of "auto", '
      .. '"forced_open", "forced_closed", "shadow": did you mean forced_open?' },
    { 'classify = "http",',             "classify",
      '"http": a function, or one of classify.* is needed' },
    { "classify = classify,",           "classify",
      "a table: a function, or one of classify.* is needed" },
    { "fallback = 5,",                  "fallback",     "5: a list of fallback stages is needed" },
    { "fallback_on = { 'failures' },",    "fallback_on[1]", '"failures" is not one of "refused", '
      .. '"timeout", "failure", "neutral", "success": did you mean failure?' },
    { "fallback_on = { 'refused', nil, 'timeout' },", "fallback_on[2]",
      'nil is not one of "refused", "timeout", "failure", "neutral", "success"' },
    { "fallback_on = { refused = true },", "fallback_on.refused",
      'is no place in a list of "refused", "timeout", "failure", "neutral", "success"' },
    { "trip = { decide = 5 },",         "trip.decide",  "5: a function is needed" },
    { "half_open = { decide = {} },",   "half_open.decide", "a table: a function is needed" },
  } do
    it("is refused: " .. case[1], function()
      local p, err = parse(case[1])
      assert.is_nil(p)
      assert.equal(case[2], err.key)
      assert.equal(case[3], err.message)
    end)
  end

  it("is refused for the name too", function()
    local _, err = policy.parse("return { name = 5, trip = { failures = 5 } }", "x.lua")
    assert.equal("x.lua:1: name: 5: a text that is not empty is needed", tostring(err))
    _, err = policy.parse("return { trip = { failures = 5 } }", "x.lua")
    assert.equal("x.lua:1: name: is missing: The policy's identity: the file's name without .lua.",
      tostring(err))
  end)
end)

-- ---- Combinations -----------------------------------------------------------------------------

describe("a combination that cannot be", function()
  local no_rule = "has no rule: give failures, consecutive_failures, failure_rate, slow_rate or "
    .. "decide, e.g. trip = { failures = 5 }"
  for _, case in ipairs {
    -- lines                                             key                 message
    { "trip = {},",                                      "trip",             no_rule },
    { "trip = { minimum_calls = 5, slow_call_ms = 5 },", "trip",             no_rule },
    { "trip = { slow_rate = 0.5 },",                     "trip.slow_rate",
      "needs trip.slow_call_ms: which calls are slow?" },
    { 'window = { kind = "count", length_ms = 500 },',   "window.length_ms",
      'belongs to a window of kind = "time"; this one has kind = "count"' },
    { "window = { calls = 5 },",                         "window.calls",
      'belongs to a window of kind = "count"; this one has kind = "time"' },
    { 'window = { kind = "count", calls = 9 }, trip = { failures = 10 },', "trip.failures",
      "10 is more than the window holds: at most window.calls, which is 9" },
    { 'window = { kind = "count", calls = 9 }, trip = { failure_rate = 0.5, minimum_calls = 10 },',
      "trip.minimum_calls",
      "10 is more than the window holds: at most window.calls, which is 9" },
    { 'window = { kind = "count" }, trip = { failure_rate = 0.5, minimum_calls = 101 },',
      "trip.minimum_calls",
      "101 is more than the window holds: at most window.calls, which is 100" },
    { "open = { cooldown_ms = 10, max_cooldown_ms = 9 },", "open.max_cooldown_ms",
      "9 is less than open.cooldown_ms, which is 10" },
    { "open = { max_cooldown_ms = 4999 },",              "open.max_cooldown_ms",
      "4999 is less than open.cooldown_ms, which is 5000" },
    { "open = { cooldown_ms = 80000000, jitter = 0.1 },", "open.cooldown_ms",
      "80000000, lengthened by a jitter of 0.1, is more than a day, which is 86400000" },
    { "open = { max_cooldown_ms = 72000001 },",          "open.max_cooldown_ms",
      "72000001, lengthened by a jitter of 0.2, is more than a day, which is 86400000" },
    { "half_open = { probes = 3, successes = 4 },",      "half_open.successes",
      "4 is more than there are probes: at most half_open.probes, which is 3" },
    { "half_open = { successes = 4 },",                  "half_open.successes",
      "4 is more than there are probes: at most half_open.probes, which is 3" },
    { "timeout_ms = 100, half_open = { lease_ms = 100 },", "half_open.lease_ms",
      "100 must be more than timeout_ms, which is 100: a probe may take that long" },
  } do
    it("is refused: " .. case[1], function()
      local p, err = parse(case[1])
      assert.is_nil(p)
      assert.equal(case[2], err.key)
      assert.equal(case[3], err.message)
    end)
  end

  for _, lines_of_policy in ipairs {
    'window = { kind = "count", calls = 10 }, trip = { failures = 10 },',
    'window = { kind = "count", calls = 10 }, trip = { failure_rate = 0.5, minimum_calls = 10 },',
    "open = { cooldown_ms = 10, max_cooldown_ms = 10 },",
    "open = { max_cooldown_ms = 72000000 },",
    "half_open = { probes = 4, successes = 4 },",
    "timeout_ms = 100, half_open = { lease_ms = 101 },",
    "trip = { slow_rate = 0.5, slow_call_ms = 5 },",
    "trip = { decide = function() end },",
  } do
    it("is not this one, right at the edge: " .. lines_of_policy, function()
      assert.is_table(fixture.load(lines_of_policy))
    end)
  end

  it("that only the core sees is reported by the policy's key", function()
    -- Two hours for a probe are within each range, but a lease that is twice the timeout is not.
    local p, err = parse "timeout_ms = 3599999,"
    if p then
      assert.is_true(p.rules:numbers().lease_ms > 3599999)
    else
      assert.truthy(schema.by_key[err.key], err.key)
    end
  end)
end)

-- ---- All at once ------------------------------------------------------------------------------

describe("several problems", function()
  local p, err = policy.parse([[
return {
  name = "x",
  window = { length_ms = 5 },
  trip = {
    failures = "five",
    failure_rate = 50,
  },
  timeout = 30,
  fallback = {
    fallback.last_good { max_age = 1 },
    fallback.fail {
      status = 200 },
  },
  classify = function(call) return call.status.no end,
}
]], "policies/x.lua")

  it("are all reported, each with its line, in the order of the file (B121)", function()
    assert.is_nil(p)
    local found = {}
    for i, one in ipairs(err.all) do found[i] = ("%d %s"):format(one.line, one.key) end
    assert.same({
      "3 window.length_ms", "5 trip.failures", "6 trip.failure_rate", "8 timeout",
      "10 fallback[1].max_age", "12 fallback[2].status", "14 classify",
    }, found)
  end)

  it("are one line each as text; the error has the fields of the first", function()
    local n = select(2, tostring(err):gsub("[^\n]+", ""))
    assert.equal(7, n)
    assert.equal("policies/x.lua:3: window.length_ms: 5 is out of range: a whole number of "
      .. "milliseconds from 100 to 3600000", tostring(err.all[1]))
    assert.equal("window.length_ms", err.key)
    assert.equal(5, err.value)
    assert.equal(3, err.line)
    assert.equal("policies/x.lua", err.file)
  end)
end)

-- ---- The schema itself ------------------------------------------------------------------------

describe("the schema", function()
  it("says of every key what it is", function()
    for _, spec in ipairs(schema.keys) do
      assert.matches("%.$", spec.doc)
      assert.is_string(schema.expected(spec))
    end
    for _, options in pairs(schema.stages) do
      for _, spec in ipairs(options) do assert.matches("%.$", spec.doc) end
    end
  end)

  it("has the defaults that the core has", function()
    local numbers = core.rules({ consecutive_failures = 1 }):numbers()
    for _, spec in ipairs(schema.keys) do
      if spec.rule and spec.default ~= nil then
        assert.equal(spec.default, numbers[spec.rule], spec.key)
      end
    end
  end)
end)

-- ---- Lines ------------------------------------------------------------------------------------

describe("the lines of a file", function()
  local function of(text) return (lines.of(text)) end

  it("are those of the keys in the table that is returned", function()
    assert.same({ a = 2, b = 3, ["b.c"] = 4, ["b[1]"] = 5, ["b[2]"] = 6, ["b[2].x"] = 6 }, of [[
return {
  a = 1,
  b = {
    c = 2,
    3,
    f { x = 1 },
  },
}]])
  end)

  it("are found behind comments, strings and code with braces and returns in them", function()
    assert.same({ a = 10, ["b"] = 11 }, of [==[
-- return { a = 1 }
--[[ return {
a = 1 } ]]
local s, t = "return { a = 1 }", 'it\'s \\'
local u = [=[
return { a = ]] }]=]
local function f() if s then return { a = 1 } end repeat local x until true return { a = 2 } end
for i = 1, 2 do while false do end end
return {
  a = function(x) for i = 1, 2 do return { y = 1 } end end,
  ["b"] = f() and (s or t) or u,
}]==])
  end)

  it("are those of a call's argument, not of a function's body", function()
    assert.same({ a = 1, b = 2, ["c[1]"] = 3, c = 3, ["c[1].x"] = 4, ["c[2]"] = 5 }, of [[
return { a = function() return { y = 1 } end,
b = function() local t = { y = 1 } return t end,
c = { f({
x = 1 }),
function() return { z = 1 } end } }]])
  end)

  it("are found for a table that is returned by name", function()
    assert.same({ a = 2 }, of "local it = {\n a = 1 }\nlocal other = { a = 3 }\nreturn it")
  end)

  it("fall back to the nearest key above, and to the return", function()
    local found, at = lines.of "local a = 1\nreturn {\n open = b,\n fallback = {\n x } }"
    assert.equal(2, at)
    assert.equal(3, lines.nearest(found, "open.cooldown_ms", at))
    assert.equal(5, lines.nearest(found, "fallback[1].max_age_ms", at))
    assert.equal(2, lines.nearest(found, "mode", at))
    local empty, none = lines.of "x = 1"
    assert.same({}, empty)
    assert.is_nil(none)
  end)

  it("are found for numbers, operators and strings of every kind", function()
    assert.same({ a = 1, b = 2, c = 3, d = 4, e = 5, f = 7, g = 8, h = 8 }, of [==[
return { a = 0x1p-3 .. "}",
b = 1e-5 + .5,
c = 3 ..4 == 5 and ... or {},
d = "\"}",
e = [[
}]],
f = ~1 ~= 2,
g = 2; h = 1 }]==])
  end)

  it("never run away, whatever the text", function()
    local pieces = { "return", "{", "}", "(", ")", "[", "]", "[[", "]]", "--", "--[[", "\n", '"',
      "'", "\\",
      "a", "=", ",", ";", "function", "end", "if", "1", "0x", ".", "..", "::", "~" }
    local seed = 12345
    for _ = 1, 2000 do
      local text = {}
      for i = 1, 12 do
        seed = (seed * 1103515245 + 12345) % 2147483648
        text[i] = pieces[math.floor(seed / 65536) % #pieces + 1]
      end
      assert.is_table((lines.of(table.concat(text, " "))))
    end
  end)
end)

describe("a suggestion", function()
  for _, case in ipairs {
    { "failuers", "failures" }, { "FAILURES", "failures" }, { "failure", "failures" },
    { "fial", nil }, { "slow_rat", "slow_rate" }, { "x", nil }, { "", nil }, { 5, nil },
  } do
    it(("for %s is %s"):format(tostring(case[1]), tostring(case[2])), function()
      assert.equal(case[2], suggest.nearest(case[1], { "failures", "slow_rate", "slow_call_ms" }))
    end)
  end

  it("is the first by name of two that are as near", function()
    assert.equal("aa", suggest.nearest("ab", { "ac", "aa" }))
  end)

  it("counts letters that are added, dropped, changed and swapped", function()
    for _, case in ipairs { { "abc", "abc", 0 }, { "abc", "ab", 1 }, { "abc", "xabc", 1 },
      { "abc", "abd", 1 }, { "abc", "acb", 1 }, { "", "abc", 3 }, { "abcd", "badc", 2 } } do
      assert.equal(case[3], suggest.distance(case[1], case[2]))
      assert.equal(case[3], suggest.distance(case[2], case[1]))
    end
  end)
end)
