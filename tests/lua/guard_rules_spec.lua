--- Trip rules and half-open rules that are the policy's functions.
local fixture = require "tests.lua.fixture"

local ok, bad = fixture.ok, fixture.bad

describe("a trip function", function()
  local function guard(trip, numbers)
    local all = { consecutive_failures = 0, trip_by_function = true, slow_call_ms = 100 }
    for k, v in pairs(numbers or {}) do all[k] = v end
    return fixture.guard { trip = trip, numbers = all }
  end

  it("opens the breaker when it says so, over the numbers of a snapshot", function()
    local seen
    local g = guard(function(s) seen = s return s.failure >= 4 end)
    local causes = {}
    g.events:on(function(e) causes[#causes + 1] = e.cause end)
    for _ = 1, 3 do g:call(bad) end
    assert.same({ "closed", 3 }, { g:snapshot().state, seen.failure })
    g:call(bad)
    assert.same({ "open", "function" }, { g:snapshot().state, causes[1] })
  end)

  it("is asked after each failure and slow call, and at no other time", function()
    local asked = 0
    local g, now = guard(function() asked = asked + 1 return false end)
    g:call(ok)
    g:report(g:acquire(), "success")
    g:report(g:acquire(), "neutral")
    assert.equal(0, asked)
    g:call(bad)
    g:call(function() now:advance(101) return 1 end)
    g:report(g:acquire(), "failure")
    g:report(g:acquire(), "timeout")
    g:report(g:acquire("k"), { error = "x" })
    local permit = g:acquire()
    now:advance(101)
    g:report(permit, "success")
    pcall(g.call, g, error)
    assert.equal(7, asked)
  end)

  it("that is slow to trip finds the numeric rules before it", function()
    local asked = 0
    local g = guard(function() asked = asked + 1 return true end, { consecutive_failures = 1 })
    g:call(bad)
    assert.same({ "open", 0 }, { g:snapshot().state, asked })
  end)

  it("is not asked about an open or half-open breaker, nor after a late report", function()
    local asked = 0
    local g, now = guard(function() asked = asked + 1 return true end)
    local late = g:acquire()
    g:call(bad)
    assert.equal(1, asked)
    g:report(late, "failure")
    now:advance(1000)
    g:call(bad)
    assert.equal(1, asked)
  end)

  it("is not asked about a call that a mode let in, closed though it may be by then", function()
    local asked = 0
    local g = guard(function() asked = asked + 1 return true end)
    g:trip()
    g:mode(nil, "forced_closed")
    local permit = g:acquire()
    g:reset()
    g:report(permit, "failure")
    assert.same({ "closed", 0 }, { g:snapshot().state, asked })
  end)

  it("lets the dependency's wish to be left alone count", function()
    local g = fixture.guard {
      trip = function() return true end, numbers = { consecutive_failures = 0,
        trip_by_function = true },
      classify = function() return "failure", nil, 8000 end,
    }
    g:call(ok)
    assert.equal(8000, g:snapshot().retry_after_ms)
  end)

  it("that raises, yields or answers nonsense leaves it to the numbers, is counted and logged",
    function()
    for _, wrong in ipairs {
      function() error("wrong") end, function() coroutine.yield() end, function()
        return false, "took too long" end,
      function() return true, "but broke" end,
    } do
      local g, _, lines = guard(wrong, { consecutive_failures = 3 })
      for _ = 1, 2 do coroutine.wrap(function() g:call(bad) end)() end
      assert.same({ "closed", 2, 1 }, { g:snapshot().state, g:stats().policy_errors, #lines })
      assert.matches("^error p: trip: ", lines[1])
      g:call(bad)
      assert.equal("open", g:snapshot().state)
    end
    local g = guard(function() return "yes" end)
    g:call(bad)
    assert.equal("closed", g:snapshot().state)
  end)

  it("of the newest policy is asked", function()
    local g = guard(function() return false end)
    g:call(bad)
    g:adopt(fixture.policy { trip = function() return true end,
      numbers = { consecutive_failures = 0, trip_by_function = true } })
    g:call(bad)
    assert.equal("open", g:snapshot().state)
  end)
end)

describe("a half-open function", function()
  local function guard(decide)
    local g, now, lines = fixture.guard {
      decide = decide, numbers = { decide_by_function = true, probes = 3, successes = 2,
        lease_ms = 500 },
    }
    fixture.open(g)
    now:advance(1000)
    return g, now, lines
  end

  for _, case in ipairs {
    -- says          after            state        because
    { "close",     { ok },           "closed",    "earlier than the numbers would" },
    { "close",     { bad },          "closed",    "otherwise than they would" },
    { "open",      { ok },           "open",      "so too" },
    { nil,         { ok, ok },       "half_open", "it has not decided" },
  } do
    it(("that says %s after %d probes makes it %s: %s"):format(tostring(case[1]), #case[2], case[3],
      case[4]), function()
      local g = guard(function() return case[1] end)
      for _, f in ipairs(case[2]) do g:call(f) end
      assert.equal(case[3], g:snapshot().state)
    end)
  end

  it("sees the round as it stands", function()
    local rounds = {}
    local g = guard(function(round) rounds[#rounds + 1] = { round.succeeded, round.failed,
      round.in_flight } end)
    g:call(ok)
    g:call(bad)
    g:report(g:acquire(), "neutral")
    assert.same({ { 1, 0, 0 }, { 1, 1, 0 }, { 1, 1, 0 } }, rounds)
  end)

  it("that never decides leaves a round that is over to re-open", function()
    local g = guard(function() end)
    for _ = 1, 3 do assert.equal("ok", g:call(ok)) end
    assert.equal("open", select(2, g:call(ok)).kind)
    assert.equal("open", g:snapshot().state)
  end)

  it("that raises, yields or breaks makes the round fail, is counted and logged", function()
    for _, wrong in ipairs {
      function() error("wrong") end, function() coroutine.yield() end, function()
        return nil, "took too long" end,
    } do
      local g, _, lines = guard(wrong)
      coroutine.wrap(function() g:call(ok) end)()
      assert.same({ "open", 1 }, { g:snapshot().state, g:stats().policy_errors })
      assert.matches("^error p: half_open.decide: ", lines[1])
    end
  end)

  it("is told as an event", function()
    local g = guard(function() return "close" end)
    local seen
    g.events:on(function(e) seen = e end)
    g:call(ok)
    g:reset()
    assert.same({ "reset" }, { seen.cause })
    g = guard(function() return "close" end)
    local causes = {}
    g.events:on(function(e) causes[#causes + 1] = e.cause end)
    g:call(ok)
    assert.same({ "cooldown", "function" }, causes)
  end)
end)
