--- acquire and report: the same in two steps, for hosts that work in phases.
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"

local function totals(g, key) return g:snapshot(key).totals end

local function by_status(call)
  if call.status == 404 then return "neutral", "no such thing" end
  if call.status and call.status >= 500 then return call.ended_by == "timeout" and "timeout"
    or "failure", "server error", call.retry_after_ms end
  return "success"
end

describe("acquire", function()
  it("gives a plain number while closed: no allocation", function()
    local g = fixture.guard()
    local permit = g:acquire()
    assert.equal(version.integer, version.kind_of(permit))
    assert.is_true(permit > 0)
    assert.same({ "success", "counted" }, { g:report(permit, "success") })
  end)

  it("refuses with an error that says why, and when to ask again", function()
    local g, now = fixture.guard()
    fixture.open(g)
    now:advance(400)
    local permit, err = g:acquire()
    assert.is_nil(permit)
    assert.same({ "open", 600, "p", "default" }, { err.kind, err.retry_after_ms, err.policy,
      err.key })
    g:mode(nil, "forced_open")
    err = select(2, g:acquire())
    assert.same({ "forced_open", nil }, { err.kind, err.retry_after_ms })
    assert.equal("p/default: the breaker is held open by hand", tostring(err))
  end)

  it("gives a probe that is used once and, forgotten, gives itself back", function()
    local g, now = fixture.guard()
    fixture.open(g)
    now:advance(1000)
    local probe = g:acquire()
    assert.equal("userdata", type(probe))
    assert.equal("probes_busy", select(2, g:acquire()).kind)
    g:report(probe, "neutral")
    assert.same({ "neutral", "used" }, { g:report(probe, "success") })
    assert.same({ "neutral", "used" }, { g:report(probe, { status = 200 }) })
    local closing = version.closing(g:acquire(), function() end)
    if closing then closing() end
    collectgarbage()
    collectgarbage()
    probe = g:acquire()
    assert.is_truthy(probe)
    probe = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.equal(2, totals(g).abandoned)
    assert.equal("counted", select(2, g:report(g:acquire(), "success")))
    assert.equal("closed", g:snapshot().state)
  end)

  it("of a key gives a permit that knows its key", function()
    local g = fixture.guard()
    local eu, us = g:acquire("eu"), g:acquire("us")
    g:report(us, "failure")
    g:report(eu, { result = 1 })
    assert.same({ 1, 0, 0, 1 }, { totals(g, "eu").success, totals(g, "eu").failure,
      totals(g, "us").success, totals(g, "us").failure })
    assert.equal("used", select(2, g:report(eu, "success")))
    assert.equal(0, totals(g).success)
  end)

  it("of a line knows its key beforehand, and gives plain numbers again", function()
    local g = fixture.guard()
    local eu = g:at("eu")
    assert.equal(version.integer, version.kind_of(eu:acquire()))
    eu:report(eu:acquire(), "failure")
    assert.equal("ok", eu:call(fixture.ok))
    assert.same({ 1, 1 }, { totals(g, "eu").success, totals(g, "eu").failure })
    assert.equal(eu, g:at("eu"))
    assert.error_matches(function() eu.call(g, fixture.ok) end, "with a colon")
  end)

  it("says where report is not given a permit, or no outcome", function()
    local g = fixture.guard()
    local function place(f)
      local _, message = pcall(f)
      return message:match("guard_steps_spec%.lua:%d+: (.*)$") or "no place: " .. message
    end
    local expected = "bad argument #1 to 'report' (permit must be what acquire gave, got nil)"
    assert.equal(expected, place(function() g:report(nil, {}) return 1 end))
    assert.equal(expected, place(function() g:report(nil, "success") return 1 end))
    assert.matches("^what the call came to",
      place(function() g:report(g:acquire(), true) return 1 end))
  end)

  it("does not take a permit of another guard", function()
    local g, other = fixture.guard(), fixture.guard()
    local permit = other:acquire("k")
    assert.error_matches(function() g:report(permit, "success") end, "another guard's")
    assert.error_matches(function() g:report(permit, {}) end, "another guard's")
    assert.equal("counted", select(2, other:report(permit, "success")))
  end)
end)

describe("report", function()
  it("classifies what the call came to, and answers the outcome and the reason", function()
    local g = fixture.guard { classify = by_status }
    assert.same({ "success", "counted" }, { g:report(g:acquire(), { status = 200 }) })
    assert.same({ "neutral", "counted", "no such thing" },
      { g:report(g:acquire(), { status = 404 }) })
    assert.same({ "failure", "counted", "server error" },
      { g:report(g:acquire(), { status = 503 }) })
    assert.same({ "timeout", "counted", "server error" },
      { g:report(g:acquire(), { status = 504, ended_by = "timeout" }) })
    local t = totals(g)
    assert.same({ 1, 1, 2, 1 }, { t.success, t.neutral, t.failure, t.timeout })
  end)

  it("takes an outcome by name from a host that has its own mind", function()
    local g = fixture.guard { numbers = { consecutive_failures = 100 } }
    for _, outcome in ipairs { "success", "failure", "timeout", "neutral", "abandoned" } do
      assert.same({ outcome, "counted" }, { g:report(g:acquire(), outcome) })
    end
    local t = totals(g)
    assert.same({ 1, 2, 1, 1 }, { t.success, t.failure, t.timeout, t.abandoned })
  end)

  it("measures the time itself unless told", function()
    local g, now = fixture.guard { classify = by_status }
    local permit = g:acquire()
    now:advance(30)
    g:report(permit, { status = 200 })
    g:report(g:acquire(), { status = 200, duration_ms = 12 })
    permit = g:acquire("key")
    now:advance(5)
    g:report(permit, { status = 200 })
    assert.same({ 42, 5 }, { g:snapshot().duration_sum_ms, g:snapshot("key").duration_sum_ms })
  end)

  it("heeds the dependency's wish to be left alone", function()
    local g = fixture.guard { classify = by_status, numbers = { consecutive_failures = 1 } }
    g:report(g:acquire(), { status = 503, retry_after_ms = 9000 })
    assert.equal(9000, g:snapshot().retry_after_ms)
  end)

  it("after the state has changed is stale, and changes nothing", function()
    local g = fixture.guard()
    local late = g:acquire()
    fixture.open(g)
    assert.same({ "success", "stale" }, { g:report(late, "success") })
    assert.same({ 1, "open" }, { totals(g).stale, g:snapshot().state })
  end)

  for _, case in ipairs {
    { { stauts = 500 }, "the report's stauts is no field of a call: did you mean status?" },
    { { status = 200, durationms = 5 },
      "the report's durationms is no field of a call: did you mean duration_ms?" },
    { { status = 200, zzzzzzzz = 5 }, "the report's zzzzzzzz is no field of a call (" },
    { { 500 }, "the report's 1 is no field of a call (" },
    { {}, "the report does not say how the call went: give one of status" },
    { { key = "k", args = {} }, "the report does not say how the call went" },
    { { ended_by = "tiemout" }, 'the report\'s ended_by is "tiemout", not one of answer, bulkhead, '
      .. "caller, timeout, transport: did you mean timeout?" },
    { { status = 200, ended_by = 5 }, "the report's ended_by is 5, not one of answer" },
  } do
    it("raises and counts nothing: " .. case[2], function()
      local g = fixture.guard()
      local permit = g:acquire()
      local ok, message = pcall(function() g:report(permit, case[1]) end)
      assert.is_false(ok)
      assert.equal(case[2], message:match("guard_steps_spec%.lua:%d+: (.*)$"):sub(1, #case[2]))
      assert.equal(0, totals(g).success + totals(g).failure + totals(g).timeout)
      assert.same({ "success", "counted" }, { g:report(permit, { status = 200 }) })
    end)
  end

  it("takes each field that says how the call went, and each way to end", function()
    local g = fixture.guard { numbers = { consecutive_failures = 100 } }
    for field, value in pairs {
      status = 200, grpc_status = 0, code = "X", headers = {}, body = "", result = 1, error = "x",
      raised = true, ended_by = "answer", duration_ms = 5,
    } do
      assert.equal("counted", select(2, g:report(g:acquire(), { [field] = value })), field)
    end
    for _, ended_by in ipairs { "answer", "timeout", "transport", "caller", "bulkhead" } do
      assert.equal("counted", select(2, g:report(g:acquire(), { ended_by = ended_by })), ended_by)
    end
    assert.equal("counted", select(2, g:report(g:acquire(), { status = 200, ended_by = false })))
  end)

  it("checks its table without taking memory for it", function()
    local check = require("neap.reported").check
    local given = { status = 200, ended_by = "answer", duration_ms = 5, args = {} }
    assert.equal(0, fixture.allocated(1000, function() check(given) end))
  end)

  it("leaves the table it is given as it was, whatever kind of table that is (B172)", function()
    local function raises() error("asked") end
    local g = fixture.guard { classify = by_status }
    local given = setmetatable({ status = 200 }, { __index = raises, __newindex = raises,
      __pairs = raises })
    assert.same({ "success", "counted" }, { g:report(g:acquire(), given) })
    assert.equal("status", (next(given)))
    assert.is_nil((next(given, "status")))
  end)
end)

describe("a permit", function()
  local function generation(name)
    return fixture.policy { hash = name, classify = function(call)
      call.result[#call.result + 1] = name
      return "success"
    end }
  end

  it("is classified by the policy that gave it, a plain number or not", function()
    local g, now = fixture.guard { classify = function(call)
      call.result[#call.result + 1] = "first" return "success" end }
    local seen = {}
    local plain, held = g:acquire(), g:acquire("k")
    g:adopt(generation "second")
    local later = g:acquire()
    g:adopt(generation "third")
    now:advance(1)
    for _, permit in ipairs { plain, held, later, g:acquire() } do g:report(permit,
      { result = seen }) end
    assert.same({ "first", "first", "second", "third" }, seen)
  end)

  it("that is a plain number is classified by the newest once its own is long gone", function()
    local g = fixture.guard { classify = function() error "gone" end }
    local seen = {}
    local old = g:acquire()
    for i = 1, 20 do g:adopt(generation("g" .. i)) end
    local recent = g:acquire()
    for i = 21, 28 do g:adopt(generation("g" .. i)) end
    g:report(old, { result = seen })
    g:report(recent, { result = seen })
    assert.same({ "g28", "g20" }, seen)
  end)

  it("keeps its policy through a thousand reloads that leave nothing else behind", function()
    local g = fixture.guard()
    local old = setmetatable({}, { __mode = "k" })
    local held = g:acquire("k")
    collectgarbage()
    collectgarbage()
    local before = collectgarbage("count")
    local n = fixture.rounds(1000)
    for i = 1, n do
      local p = generation("g" .. i)
      old[p] = true
      g:adopt(p)
    end
    collectgarbage()
    collectgarbage()
    local kept = 0
    for _ in pairs(old) do kept = kept + 1 end
    assert.is_true(kept <= 10)
    old = nil -- luacheck: ignore
    collectgarbage()
    assert.is_true(collectgarbage("count") - before < 64)
    assert.equal("counted", select(2, g:report(held, { result = {} })))
    assert.equal(n, g:stats().reloads.ok)
  end)
end)
