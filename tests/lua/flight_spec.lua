--- Calls that hang count as slow before they end (lua/src/line.c, core/src/flight.c).
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"

local ok = fixture.ok
local SLOW_MS = 200

--- Half of at least four calls that are slow open it.
local numbers = {
  consecutive_failures = 0, slow_rate = 0.5, slow_call_ms = SLOW_MS, minimum_calls = 4,
  timeout_ms = 1000, lease_ms = 2000,
}

local function guarded(fields, changed)
  fields = fields or {}
  fields.numbers = {}
  for k, v in pairs(numbers) do fields.numbers[k] = v end
  for k, v in pairs(changed or {}) do fields.numbers[k] = v end
  return fixture.guard(fields)
end

local function state(g) return g:snapshot().state end

--- A call that hangs until its coroutine is resumed, with what it then answers.
local function hang(g)
  local thread = coroutine.create(function() return g:call(coroutine.yield) end)
  assert(coroutine.resume(thread))
  return thread
end

local it_yields = version.can_yield and it or function() end

describe("a call that hangs", function()
  it_yields("counts before it ends, and so opens the breaker before a timeout (B059)", function()
    local g, now = guarded()
    local events = {}
    g.events:on(function(e) events[#events + 1] = e end)
    local hung = {}
    for i = 1, 4 do hung[i] = hang(g) end
    now:advance(SLOW_MS)
    assert.equal("ok", g:call(ok))
    now:advance(SLOW_MS / 16)
    local value, err = g:call(ok)
    assert.same({ nil, "open" }, { value, err.kind })
    assert.same({ 1, "slow_rate", 0.8, 5 },
      { #events, events[1].cause, events[1].measured, events[1].calls })
    for i = 1, 4 do assert.is_true(coroutine.resume(hung[i], "late")) end
    local s = g:snapshot()
    assert.same({ 4, 1, 0 }, { s.totals.stale, s.totals.success, s.totals.slow_success })
  end)

  it("is seen by guard:sweep where there is no traffic", function()
    local g, now = guarded()
    assert.equal(SLOW_MS, g:sweep())
    for _ = 1, 4 do g:acquire() end
    for _ = 1, 2 do
      local wait_ms = g:sweep()
      assert.is_true(wait_ms >= 1 and wait_ms <= SLOW_MS)
      assert.equal("closed", state(g))
      now:advance(wait_ms)
    end
    g:sweep()
    assert.equal("open", state(g))
    assert.is_true(now:now() <= 10000 + SLOW_MS + SLOW_MS / 16)
  end)

  it("is seen by guard:tend, with everything else that is due", function()
    local g, now = guarded()
    for _ = 1, 4 do g:acquire() end
    assert.equal(SLOW_MS, g:tend())
    now:advance(SLOW_MS + SLOW_MS / 16)
    g:tend()
    assert.equal("open", state(g))
  end)

  for _, case in ipairs {
    -- ends as      slow_success, slow_failure
    { "success",    1,            0 },
    { "failure",    0,            1 },
    { "timeout",    0,            1 },
    { "neutral",    0,            0 },
    { "abandoned",  0,            0 },
  } do
    it("that ends as " .. case[1] .. " counts as that, once, however it was let in", function()
      for _, way in ipairs { "plain", "key" } do
        local g, now = guarded(nil, { minimum_calls = 100 })
        local key = way == "key" and "k" or nil
        local permit = g:acquire(key)
        now:advance(SLOW_MS + 20)
        g:sweep()
        local during = g:snapshot(key)
        assert.same({ 1, 1, 0 }, { during.calls, during.slow_success, during.totals.slow_success })
        now:advance(300)
        g:report(permit, case[1])
        local after = g:snapshot(key)
        assert.same({ case[2], case[3], case[2] + case[3] },
          { after.slow_success, after.slow_failure, after.calls })
        assert.same({ case[2], case[3] }, { after.totals.slow_success, after.totals.slow_failure })
      end
    end)
  end

  it_yields("is told by how it ended, also in call", function()
    local g, now = guarded(nil, { minimum_calls = 100 })
    local good, bad, raised = hang(g), hang(g), hang(g)
    now:advance(SLOW_MS + 20)
    g:call(ok)
    assert.equal(3, g:snapshot().slow_success)
    coroutine.resume(good, "fine")
    coroutine.resume(bad, nil, "down")
    now:advance(2000)
    coroutine.resume(raised, "too late")
    local s = g:snapshot()
    assert.same({ 1, 1, 2, 4 }, { s.success, s.slow_success, s.slow_failure, s.calls })
    assert.equal(1, s.totals.timeout)
  end)

  it("asks a trip function, at the next report or sweep", function()
    local asked = {}
    local function fields()
      return { trip = function(s)
        asked[#asked + 1] = s.slow_success
        return s.slow_success >= 3
      end }
    end
    local changed = { slow_rate = 0, trip_by_function = true }
    local g, now = guarded(fields(), changed)
    for _ = 1, 3 do g:acquire() end
    now:advance(SLOW_MS + 20)
    assert.equal("ok", g:call(ok))
    assert.same({ "open", 3 }, { state(g), asked[1] })
    asked = {}
    g, now = guarded(fields(), changed)
    for _ = 1, 3 do g:acquire() end
    now:advance(SLOW_MS + 20)
    g:sweep()
    assert.same({ "open", 3 }, { state(g), asked[1] })
  end)

  it("gives itself back if its permit is one that can be collected", function()
    local g, now = guarded(nil, { minimum_calls = 100 })
    local permit = g:acquire("k") -- a userdata
    assert.equal("userdata", type(permit))
    permit = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    now:advance(SLOW_MS + 20)
    g:sweep()
    local s = g:snapshot("k")
    assert.same({ 0, 1 }, { s.calls, s.totals.abandoned })
  end)

  it("is forgotten by a policy that no longer asks, and counts when it ends", function()
    local g, now = guarded(nil, { minimum_calls = 100 })
    local permit = g:acquire()
    g:adopt(fixture.policy { numbers = { consecutive_failures = 3 } })
    assert.is_nil(g:sweep())
    local all = {}
    for k, v in pairs(numbers) do all[k] = v end
    all.minimum_calls = 100
    g:adopt(fixture.policy { numbers = all })
    now:advance(2 * SLOW_MS)
    g:sweep()
    assert.equal(0, g:snapshot().calls)
    g:report(permit, "success")
    assert.equal(1, g:snapshot().slow_success)
  end)
end)

describe("a guard whose policy asks for no slow calls", function()
  it("has nothing to sweep", function()
    local g = fixture.guard()
    assert.is_nil(g:sweep())
    assert.equal(1000, g:tend())
  end)
end)
