--- Trying again: what may be, when, and how much of it in all.
local fixture = require "tests.lua.fixture"
local neap = require "neap"
local retry = require "neap.retry"
local version = require "tests.lua.version"

local ANY = "function() return true end"

--- A guard of a policy with these lines, on a host whose sleep moves the clock.
local function guard_of(lines, options)
  local now, slept, log = neap.clock.manual(10000), {}, {}
  local text = ("return { name = 'x', %s %s }"):format(
    lines:find("trip", 1, true) and "" or "trip = { failures = 1000 },", lines)
  local of = { clock = now, log = function(_, said) log[#log + 1] = said end }
  of.host = { name = "moved", sleep = function(ms)
    slept[#slept + 1] = ms
    now:advance(ms)
  end }
  for k, v in pairs(options or {}) do of[k] = v end
  local made = neap.guard(assert(neap.policy.parse(text, "x.lua")), of)
  return made, now, slept, log
end

--- A dependency that fails so often, and how often it was called.
local function failing(times)
  local calls = { n = 0 }
  return function(...)
    calls.n = calls.n + 1
    if calls.n <= times then return nil, "down " .. calls.n end
    return "ok", ...
  end, calls
end

describe("a failed call", function()
  it("is made again, with its arguments, nil holes included", function()
    local g = guard_of("retry = { on = " .. ANY .. " },")
    local got
    local tries = 0
    local value = g:call(function(...)
      tries, got = tries + 1, version.pack(...)
      return tries == 3 and "ok" or nil, "down"
    end, "a", nil, "c", nil)
    assert.equal("ok", value)
    assert.same({ n = 4, "a", nil, "c", nil }, got)
    assert.equal(3, tries)
  end)

  it("is made attempts times at most, and its last error is the caller's (B103)", function()
    local g = guard_of("retry = { attempts = 4, on = " .. ANY .. " },")
    local f, calls = failing(1e9)
    assert.same({ nil, "down 4" }, { g:call(f) })
    assert.equal(4, calls.n)
  end)

  it("is one outcome for each attempt (B103)", function()
    local g = guard_of("retry = { on = " .. ANY .. " },")
    g:call((failing(2)))
    local s = g:snapshot()
    assert.same({ 2, 1 }, { s.totals.failure, s.totals.success })
  end)

  it("that raised is made again, and raises the same value when it is the last", function()
    local g = guard_of("retry = { on = function(call) return call.raised end },")
    local thrown, n = {}, 0
    local ok, err = pcall(g.call, g, function()
      n = n + 1
      error(thrown, 0)
    end)
    assert.same({ false, 3 }, { ok, n })
    assert.equal(thrown, err)
  end)

  it("that came to neutral or success is not made again", function()
    local g = guard_of("classify = function(call) return 'neutral' end, retry = { on = "
      .. ANY .. " },")
    local f, calls = failing(9)
    g:call(f)
    assert.equal(1, calls.n)
  end)

  it("asks the fallback once, after the last attempt", function()
    local g = guard_of("retry = { on = " .. ANY .. " }, fallback = { fallback.default 'else' },")
    local f, calls = failing(9)
    local value, _, info = g:call(f)
    assert.same({ "else", "failure", "down 3", 3 }, { value, info.cause, info.error, calls.n })
    assert.equal(1, g:stats().fallbacks[1].count)
  end)

  it("that succeeds at last is kept as a good answer", function()
    local g = guard_of("retry = { on = " .. ANY .. " }, fallback = { fallback.last_good() },")
    g:call((failing(1)))
    local value, _, info = g:call((failing(9)))
    assert.same({ "ok", "last_good" }, { value, info.source })
  end)
end)

describe("without retry.on", function()
  it("guard:call, which knows no method, tries nothing again, and says so once a minute", function()
    local g, _, _, log = guard_of("retry = {},")
    local f, calls = failing(9)
    g:call(f)
    g:call(f)
    assert.equal(2, calls.n)
    local _, count = table.concat(log, "\n"):gsub("nobody knows whether the calls may be made "
      .. "twice; let the policy's retry.on say so", "")
    assert.equal(1, count)
  end)

  for _, case in ipairs {
    { "GET", true }, { "HEAD", true }, { "OPTIONS", true }, { "TRACE", true }, { "PUT", true },
    { "DELETE", true }, { "POST", false }, { "PATCH", false }, { "get", false },
  } do
    it(("a %s %s"):format(case[1], case[2] and "may be sent twice" or "may not"), function()
      local g = guard_of("retry = {},")
      local wait_ms = g:retry({ status = 503, request = { method = case[1] } }, 1)
      assert.equal(case[2], wait_ms ~= nil)
    end)
  end

  it("what failed before it was sent may be sent again, whatever it is", function()
    local g = guard_of("retry = {},")
    local post = { method = "POST" }
    assert.truthy(g:retry({ ended_by = "transport", phase = "connect", request = post }, 1))
    assert.is_nil(g:retry({ ended_by = "transport", phase = "sent", request = post }, 1))
  end)
end)

describe("retry.on", function()
  it("sees the call as classify does, and decides", function()
    local g = guard_of([[retry = { on = function(call)
      return call.args[1] == 7 and call.error == "again"
    end },]])
    local n = 0
    local function f(_) n = n + 1 return nil, n == 1 and "again" or "enough" end
    assert.same({ nil, "enough" }, { g:call(f, 7) })
    assert.equal(2, n)
    g:call(f, 8)
    assert.equal(3, n)
  end)

  for _, case in ipairs {
    { "raises", "error 'no'", "no" },
    { "answers something else", "return 1", "answered 1, not true or false" },
    { "never ends", "while true do end", "step" },
  } do
    it(("that %s: the call is not made again, and that is counted and logged"):format(case[1]),
      function()
        local g, _, _, log = guard_of("retry = { on = function() " .. case[2] .. " end },")
        local f, calls = failing(9)
        assert.same({ nil, "down 1" }, { g:call(f) })
        assert.equal(1, calls.n)
        assert.equal(1, g:stats().policy_errors)
        assert.matches("retry.on: [^\n]*" .. case[3], table.concat(log, "\n"))
      end)
  end
end)

describe("the wait before an attempt", function()
  it("is random from 0 to base_ms * 2^i, at most max_ms", function()
    local rules = { base_ms = 10, max_ms = 50 }
    local retries = retry.new(1)
    for made, most in ipairs { 10, 20, 40, 50, 50 } do
      local seen, sum, n = {}, 0, 2000
      for _ = 1, n do
        local ms = retries:backoff_ms(rules, made)
        seen[ms], sum = true, sum + ms
      end
      assert.is_true(seen[0] and seen[most] and not seen[most + 1] and not seen[-1])
      assert.is_true(math.abs(sum / n - most / 2) < most / 10, "mean of " .. most)
    end
  end)

  it("is the same for the same seed, and another for another", function()
    local function waits(seed)
      local retries, list = retry.new(seed), {}
      for i = 1, 20 do list[i] = retries:backoff_ms({ base_ms = 1000, max_ms = 1000 }, 1) end
      return list
    end
    assert.same(waits(7), waits(7))
    assert.not_same(waits(7), waits(8))
    for _, seed in ipairs { 0, 1, 2147483646, 2147483647, 2 ^ 53 - 1 } do
      assert.equal("number", type(waits(seed)[20]))
    end
  end)

  it("is at least what Retry-After asks for", function()
    local g, _, slept = guard_of([[
      classify = function(call) return call.result and "success" or "failure", "r", 700 end,
      retry = { base_ms = 5, attempts = 2, on = function() return true end },]])
    g:call((failing(1)))
    assert.same({ 700 }, slept)
  end)

  for _, case in ipairs {
    { "max_ms", "retry = { max_ms = 600, on = function() return true end }," },
    { "is left of the deadline",
      "deadline_ms = 650, retry = { on = function() return true end }," },
  } do
    it(("is not waited for if that is more than %s: no retry"):format(case[1]), function()
      local g, _, slept = guard_of([[
        classify = function(call) return call.result and "success" or "failure", "r", 700 end,
        ]] .. case[2])
      local f, calls = failing(1)
      assert.same({ nil, "down 1" }, { g:call(f) })
      assert.same({ 1, 0 }, { calls.n, #slept })
      assert.equal(1, g:stats().retries.deadline)
    end)
  end

  it("is none on a host that can't wait: at once, but not where it was asked to wait", function()
    local plain = { host = { name = "plain" } }
    local g = guard_of("retry = { on = " .. ANY .. " },", plain)
    assert.equal("ok", (g:call((failing(2)))))
    g = guard_of([[
      classify = function(call) return call.result and "success" or "failure", "r", 700 end,
      retry = { on = function() return true end },]], plain)
    assert.same({ nil, "down 1" }, { g:call((failing(2))) })
  end)
end)

describe("a retry never crosses an open breaker (B016, B103)", function()
  it("the attempt that opens it is the last, and nothing is waited for", function()
    local g, _, slept = guard_of("trip = { consecutive_failures = 2 }, retry = { attempts = 8, "
      .. "on = " .. ANY .. " },")
    local f, calls = failing(1e9)
    assert.same({ nil, "down 2" }, { g:call(f) })
    assert.is_true(calls.n == 2 and #slept <= 1)
    local s = g:snapshot()
    assert.same({ "open", 2, 0 }, { s.state, s.totals.failure, s.totals.refused_open })
    assert.equal(1, g:stats().retries.refused)
  end)

  it("one that opens during the wait refuses it: the result is the last attempt's", function()
    local g
    g = guard_of([[
      classify = function(call) return call.result and "success" or "failure", "wait", 700 end,
      retry = { on = function() return true end }, fallback = { fallback.default "else" },]],
      { host = { name = "trips", sleep = function() g:trip() end } })
    local f, calls = failing(1e9)
    local value, _, info = g:call(f)
    assert.same({ "else", "failure", "down 1", 1 }, { value, info.cause, info.error, calls.n })
    assert.equal(1, g:stats().retries.refused)
  end)

  it("a refusal of the first attempt is not tried again: it is the result", function()
    local g, _, slept = guard_of("retry = { on = " .. ANY .. " },")
    g:trip()
    local _, err = g:call(fixture.ok)
    assert.same({ "open", 0 }, { err.kind, #slept })
  end)

  it("a probe that fails is not tried again as another probe (B016)", function()
    local g, now = guard_of([[trip = { consecutive_failures = 1 },
      open = { cooldown_ms = 1000, jitter = 0 }, half_open = { probes = 3, successes = 1 },
      retry = { on = function() return true end },]])
    local f, calls = failing(1e9)
    g:call(f)
    now:advance(1000)
    g:call(f)
    assert.equal(2, calls.n)
    assert.equal("half_open", g:snapshot().state)
  end)

  it("of nine callers after the cooldown one is let in, and tries once (B016)", function()
    local g, now = guard_of([[trip = { consecutive_failures = 1 },
      open = { cooldown_ms = 1000, jitter = 0 }, half_open = { probes = 1, successes = 1 },
      retry = { attempts = 3, on = function() return true end },]])
    g:trip()
    now:advance(60000)
    local reached, kinds = 0, {}
    g:call(function()
      reached = reached + 1
      for i = 1, 8 do -- while it is under way
        local _, err = g:call(function() reached = reached + 1 end)
        kinds[i] = err.kind
      end
      return nil, "down"
    end)
    assert.same({ 1, "probes_busy", "probes_busy" }, { reached, kinds[1], kinds[8] })
    assert.equal("open", g:snapshot().state)
  end)

  it("with the mode forced_closed there is no breaker to cross", function()
    local g = guard_of("trip = { consecutive_failures = 1 }, mode = 'forced_closed', "
      .. "retry = { on = " .. ANY .. " },")
    local f, calls = failing(1e9)
    g:call(f)
    assert.equal(3, calls.n)
  end)
end)

describe("the budget", function()
  --- Calls for so many seconds, all of which fail: attempts made, calls.
  local function outage(g, now, seconds, per_second, key)
    local f, calls = failing(1e9)
    local at = now:now()
    for i = 0, seconds * per_second - 1 do
      now:set(at + math.floor(i * 1000 / per_second))
      if key then g:at(key(i)):call(f) else g:call(f) end
    end
    return calls.n, seconds * per_second
  end
  local LINES = "mode = 'forced_closed', retry = { attempts = 10, base_ms = 1, max_ms = 1, "
    .. "budget = %s, budget_per_s = %d, on = function() return true end },"

  for _, case in ipairs {
    -- share  floor  rate
    { 0.1,    1,     200 },
    { 0.1,    0,     200 },
    { 0,      5,     200 },
    { 0.5,    1,     50 },
    { 0.1,    1,     1 },
    { 1,      0,     100 },
  } do
    local share, floor, rate = case[1], case[2], case[3]
    it(("of %s and %d a second is all that an outage adds to %d calls a second"):format(share,
      floor, rate), function()
      local g, now = guard_of(LINES:format(share, floor), { host = { name = "plain" } })
      local seconds = fixture.rounds(60)
      local attempts, calls = outage(g, now, seconds, rate)
      local reserve = math.max(10 * floor, share > 0 and 10 or 0)
      local most = calls * share + seconds * floor + reserve
      assert.is_true(attempts - calls <= most, attempts - calls .. " retries, over " .. most)
      local least = math.min((calls * share + seconds * floor) * 0.9, calls - 1)
      assert.is_true(attempts - calls >= least, attempts - calls .. " retries of " .. most)
      assert.is_true(g:stats().retries.budget > 0 or rate == 1 or share == 1)
    end)
  end

  it("is one for all keys of the guard", function()
    local g, now = guard_of(LINES:format(0.1, 1), { host = { name = "plain" } })
    local attempts, calls = outage(g, now, 20, 100, function(i) return "key" .. i % 20 end)
    assert.is_true(attempts - calls <= calls * 0.1 + 20 + 10)
  end)

  it("is that of the guard: a policy loaded again finds it as it was (B119)", function()
    local g, now = guard_of(LINES:format(0.1, 0), { host = { name = "plain" } })
    outage(g, now, 1, 100)
    assert.equal(0, g:stats().retry_budget)
    g:adopt(g.policy)
    assert.equal(0, g:stats().retry_budget)
    assert.is_true(g:stats().retries.failure > 0)
  end)

  it("is not saved up: a quiet day pays for no more than the reserve", function()
    local g, now = guard_of(LINES:format(0.1, 2), { host = { name = "plain" } })
    for _ = 1, 1000 do g:call(fixture.ok) end
    now:advance(24 * 3600 * 1000)
    assert.equal(20, g:stats().retry_budget)
  end)

  it("is spent by no clock step back, and made by none", function()
    local g, now = guard_of(LINES:format(0, 5), { host = { name = "plain" } })
    outage(g, now, 5, 100)
    local left = g:stats().retry_budget
    now:set(1)
    assert.equal(left, g:stats().retry_budget)
    now:set(10)
    assert.is_true(g:stats().retry_budget <= left + 1)
  end)

  it("of nothing makes no retry", function()
    local g = guard_of(LINES:format(0, 0), { host = { name = "plain" } })
    local f, calls = failing(9)
    g:call(f)
    assert.equal(1, calls.n)
  end)

  it("counts what became of each wish to try again", function()
    local g = guard_of("retry = { attempts = 2, on = " .. ANY .. " },")
    g:call((failing(1)))
    g:call((failing(2)))
    local retries = g:stats().retries
    assert.same({ 1, 1, 0, 0, 0, 0 }, { retries.success, retries.failure, retries.neutral,
      retries.budget, retries.deadline, retries.refused })
  end)
end)

describe("a host that works in steps", function()
  it("asks guard:retry after a failure: how long to wait, or nil and why not", function()
    local g, now = guard_of("retry = { attempts = 2, base_ms = 10, budget_per_s = 0 },")
    local call = { status = 503, request = { method = "GET" } }
    local wait_ms = g:retry(call, 1)
    assert.is_true(wait_ms >= 0 and wait_ms <= 10)
    assert.is_nil(g:retry(call, 2))
    assert.is_nil(g:retry({ status = 200, request = { method = "GET" } }, 1))
    assert.is_nil(g:retry({ status = 404, request = { method = "GET" } }, 1))
    local asked = {
      status = 503, request = { method = "GET" }, headers = { ["retry-after"] = "1" },
    }
    assert.equal(1000, g:retry(asked, 1))
    assert.is_nil(g:retry(asked, 1, now:now() + 999))
    for _ = 1, 20 do g:retry(call, 1) end
    assert.is_true(g:stats().retries.budget > 0)
    g:trip()
    assert.is_nil(g:retry(call, 1))
  end)

  it("adds to the budget with each acquire", function()
    local g = guard_of("retry = { budget = 0.5, budget_per_s = 0 },")
    local call = { status = 503, request = { method = "GET" } }
    local function call_it() g:report(g:acquire(), call) end
    while g:retry(call, 1) do call_it() end
    for _ = 1, 4 do call_it() end
    local retries = 0
    while g:retry(call, 1) do -- the attempts that were granted are no calls: they add nothing
      call_it()
      retries = retries + 1
    end
    assert.equal(2, retries)
  end)

  it("can say of a call that nobody described no more than that it is not to be tried", function()
    local g = guard_of("trip = { failures = 5 },")
    assert.is_nil(g:retry({ status = 503 }, 1))
    assert.has_error(function() g:retry(nil, 1) end)
    assert.has_error(function() g:retry({ status = 503 }) end)
  end)
end)
