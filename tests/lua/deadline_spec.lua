--- Timeouts of attempts and deadlines of calls: who is told what, and that nothing lasts longer.
local fixture = require "tests.lua.fixture"
local neap = require "neap"
local refusal = require "neap.refusal"

--- A host that gives up what takes too long: functions say how long they take, by `takes`.
local function host_of(now)
  local host = { name = "gives up" }
  function host.sleep(ms) now:advance(ms) end
  function host.run(timeout_ms, f, ...)
    local by = now:now() + timeout_ms
    local a, b = f(...)
    if now:now() <= by then return true, a, b end
    now:set(by)
    return false
  end
  return host
end

local function guard_of(lines, options)
  local now = neap.clock.manual(10000)
  local of = { clock = now, host = host_of(now), log = function() end }
  for k, v in pairs(options or {}) do of[k] = v end
  local policy = assert(neap.policy.parse(([[return { name = %q, trip = { failures = 1000 },
    %s }]]):format(of.name or "d", lines), (of.name or "d") .. ".lua"))
  of.name = nil
  return neap.guard(policy, of), now
end

local RETRY = "retry = { attempts = 5, base_ms = 1, max_ms = 1, on = function() return true end },"

--- A function that takes so long, and answers or fails.
local function takes(now, ms, ...)
  local results = { n = select("#", ...), ... }
  return function()
    now:advance(ms)
    if results.n == 0 then return "ok" end
    return results[1], results[2]
  end
end

describe("an attempt that takes longer than timeout_ms", function()
  it("is labelled with what it was: kind, policy, key, timeout_ms (B061)", function()
    local g, now = guard_of "timeout_ms = 100,"
    local value, err = g:at("eu"):call(takes(now, 500))
    assert.is_nil(value)
    assert.is_true(refusal.is(err))
    assert.same({ "timeout", "d", "eu", 100 }, { err.kind, err.policy, err.key, err.timeout_ms })
    assert.equal("d/eu: the call took longer than allowed (100 ms)", tostring(err))
  end)

  it("is a timeout each time, and once (B061)", function()
    local g, now = guard_of("timeout_ms = 100, " .. RETRY)
    local _, err = g:call(takes(now, 500))
    local totals = g:snapshot().totals
    assert.same({ "timeout", 5, 5 }, { err.kind, totals.failure, totals.timeout })
  end)

  it("is found out at its end where nothing ends it, a probe too", function()
    local g, now = guard_of("timeout_ms = 100,", { host = { name = "plain" } })
    assert.equal("ok", (g:call(takes(now, 101))))
    assert.equal(1, g:snapshot().totals.timeout)
    g:trip(nil, 1000)
    now:advance(2000)
    assert.equal("ok", (g:call(takes(now, 101))))
    assert.same({ 2, 0 }, { g:snapshot().totals.timeout, g:snapshot().totals.success })
  end)
end)

describe("deadline_ms", function()
  it("is labelled with what it was", function()
    local g, now = guard_of "deadline_ms = 300,"
    local _, err = g:at("eu"):call(takes(now, 500))
    assert.same({ "deadline", "d", "eu", 300 }, { err.kind, err.policy, err.key, err.timeout_ms })
    assert.equal("d/eu: there was no answer by the call's deadline (300 ms)", tostring(err))
  end)

  it("is all of it: attempts, waits, the last attempt cut short", function()
    local g, now = guard_of("timeout_ms = 100, deadline_ms = 250, " .. RETRY)
    local began, n = now:now(), 0
    local _, err = g:call(function()
      n = n + 1
      now:advance(500)
    end)
    assert.is_true(now:now() - began <= 250)
    assert.equal(3, n)
    assert.equal("deadline", err.kind)
    assert.equal(3, g:snapshot().totals.timeout)
  end)

  it("leaves no time for a retry whose wait is longer", function()
    local g, now = guard_of([[deadline_ms = 100,
      retry = { base_ms = 1000, max_ms = 1000, on = function() return true end },]])
    local made = 0
    for _ = 1, 50 do
      local began = now:now()
      g:call(function() made = made + 1 return nil, "down" end)
      assert.is_true(now:now() - began < 100)
    end
    assert.equal(made - 50, g:stats().retries.failure)
    assert.is_true(g:stats().retries.deadline > 0)
  end)

  it("is what a function sees by guard:deadline, if that is less than timeout_ms", function()
    local g, now = guard_of("timeout_ms = 100, deadline_ms = 150, " .. RETRY)
    local left = {}
    g:call(function()
      left[#left + 1] = g:deadline() - now:now()
      now:advance(99)
      return nil, "down"
    end)
    assert.equal(100, left[1])
    assert.is_true(left[2] >= 50 and left[2] <= 51)
  end)

  it("is a timeout to the breaker, where there is no timeout_ms at all", function()
    local g, now = guard_of "deadline_ms = 300,"
    g:call(takes(now, 500))
    assert.equal(1, g:snapshot().totals.timeout)
  end)

  it("where nothing ends a call is found out at its end: no retry after it", function()
    local g, now = guard_of("deadline_ms = 100, " .. RETRY, { host = { name = "plain" } })
    local n = 0
    g:call(function()
      n = n + 1
      now:advance(150)
      return nil, "down"
    end)
    assert.equal(1, n)
    assert.equal(1, g:snapshot().totals.timeout)
  end)
end)

describe("an attempt that was given up", function()
  it("is said to be what it was, whatever kept the next one from being made", function()
    local g, now = guard_of [[timeout_ms = 100, deadline_ms = 250,
      classify = function() return "failure", "late", 5 end, -- so there is a wait each time
      retry = { attempts = 5, base_ms = 1, max_ms = 5, on = function() return true end },]]
    local host = g.host
    function host.sleep(ms) -- an operator meanwhile; the next would have been cut short
      now:advance(ms + 60)
      g:mode(nil, "forced_open")
    end
    local _, err = g:call(takes(now, 500))
    assert.same({ "timeout", 100 }, { err.kind, err.timeout_ms })
    g:mode(nil, nil)
    function host.sleep() now:advance(500) end -- late by itself
    _, err = g:call(takes(now, 500))
    assert.same({ "timeout", 100 }, { err.kind, err.timeout_ms })
  end)
end)

describe("a caller's deadline", function()
  it("ends the call, and says so", function()
    local g, now = guard_of("timeout_ms = 200, " .. RETRY)
    local began = now:now()
    local _, err = g:call_by(began + 50, takes(now, 500))
    assert.equal(began + 50, now:now())
    assert.same({ "deadline", 50 }, { err.kind, err.timeout_ms })
  end)

  it("that cut an attempt short says nothing about the dependency: neutral", function()
    local g, now = guard_of "timeout_ms = 200,"
    for _ = 1, 5 do g:call_by(now:now() + 50, takes(now, 500)) end
    local totals = g:snapshot().totals
    assert.same({ 5, 0 }, { totals.neutral, totals.failure })
  end)

  it("later than timeout_ms changes nothing: the dependency was too slow", function()
    local g, now = guard_of "timeout_ms = 200,"
    local _, err = g:call_by(now:now() + 500, takes(now, 1000))
    assert.same({ "timeout", 1 }, { err.kind, g:snapshot().totals.timeout })
  end)

  it("later than the policy's changes nothing either", function()
    local g, now = guard_of "deadline_ms = 100,"
    local began = now:now()
    local _, err = g:call_by(began + 500, takes(now, 1000))
    assert.same({ "deadline", 100, 100 }, { err.kind, err.timeout_ms, now:now() - began })
    assert.equal(1, g:snapshot().totals.timeout)
  end)

  it("has the fallback asked as after any timeout", function()
    local g, now = guard_of "timeout_ms = 200, fallback = { fallback.default 'else' },"
    local value, _, info = g:call_by(now:now() + 50, takes(now, 500))
    assert.same({ "else", "timeout", "deadline" }, { value, info.cause, info.error.kind })
  end)

  it("that has passed calls nobody, and leaves the breaker alone", function()
    local g, now = guard_of "fallback = { fallback.default 'else' },"
    local value, _, info = g:call_by(now:now(), error)
    assert.same({ "else", "timeout", "deadline" }, { value, info.cause, info.error.kind })
    assert.equal(0, g:snapshot().calls)
  end)

  it("is taken over by a call within a call, with the outer one's guard:deadline()", function()
    local outer, now = guard_of("timeout_ms = 100,")
    local inner = guard_of(RETRY, { clock = now, host = host_of(now), name = "inner" })
    local began = now:now()
    outer:call(function()
      return inner:call_by(outer:deadline(), function()
        now:advance(40)
        return nil, "down"
      end)
    end)
    assert.is_true(now:now() - began <= 100)
  end)

  it("is no text, and f must be a function", function()
    local g, now = guard_of ""
    assert.has_error(function() g:call_by("1", fixture.ok) end)
    assert.has_error(function() g:call_by(0 / 0, fixture.ok) end)
    assert.has_error(function() g:call_by(now:now() + 1, "f") end)
    assert.has_error(function() g.call_by({}, now:now() + 1, fixture.ok) end)
    assert.equal("called", (g:call_by(now:now() + 1, setmetatable({}, {
      __call = function() return "called" end }))))
  end)
end)

describe("a fallback", function()
  it("has what is left of the deadline: another guard's call is cut short by it", function()
    local found = {}
    local replica, now = guard_of("timeout_ms = 1000,", { name = "replica" })
    replica.serve = function()
      now:advance(800)
      return "from the replica"
    end
    found.replica = replica
    local g = guard_of([[timeout_ms = 200, deadline_ms = 300,
      fallback = { fallback.guard "replica", fallback.default "else" },]],
      { clock = now, host = host_of(now), guards = found })
    local began = now:now()
    local value = g:call(takes(now, 500))
    assert.same({ "else", 300 }, { value, now:now() - began })
    assert.equal(1, replica:snapshot().totals.neutral) -- the deadline was not its own
  end)

  it("that takes no time answers though the deadline has come", function()
    local g, now = guard_of([[deadline_ms = 100, fallback = { fallback.guard "nobody",
      function() return nil end, fallback.default "else" },]], { guards = {} })
    local value, _, info = g:call(takes(now, 500))
    assert.same({ "else", "deadline" }, { value, info.error.kind })
  end)
end)
