local clock = require "neap.clock"
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"
local unpack, pack = version.unpack, version.pack

local ok, bad, stage = fixture.ok, fixture.bad, fixture.stage

local function last_good(fields)
  local made = { kind = "last_good", max_age_ms = 60000, max_entries = 100, max_bytes = 100000 }
  for k, v in pairs(fields or {}) do made[k] = v end
  return made
end

local function default(value) return { kind = "default", run = function() return value end } end

local function totals(g) return g:snapshot().totals end

local function count(g, source, result)
  for _, row in ipairs(g:stats().fallbacks) do
    if row.source == source and row.result == result then return row.count end
  end
end

describe("the chain", function()
  it("answers a failure, a refusal and a timeout with its first stage that has something",
    function()
    local causes, told = {}, {}
    local g, now = fixture.guard {
      numbers = { timeout_ms = 50, lease_ms = 500 },
      stages = {
        stage(function(call) causes[#causes + 1] = call.cause end),
        default "reviewed",
        stage(function() error "not reached" end),
      },
    }
    local function check(...)
      local value, err, info = ...
      assert.same({ "reviewed", nil, "default" }, { value, err, info.source })
      told[#told + 1] = info.cause
    end
    check(g:call(bad))
    check(g:call(function() now:advance(51) return 1 end))
    check(g:call(bad))
    check(g:call(ok))
    assert.same({ "failure", "timeout", "failure", "refused" }, causes)
    assert.same(causes, told)
    assert.same({ 4, 4 }, { count(g, "function", "declined"), count(g, "default", "answered") })
  end)

  it("is not asked after a success, nor a neutral call", function()
    local g = fixture.guard { classify = function(call)
      return call.error and "neutral" or "success" end, stages = { default "d" } }
    assert.same({ "ok" }, { g:call(ok) })
    assert.same({ nil, "down" }, { g:call(bad) })
  end)

  for _, case in ipairs {
    -- verdict    fallback_on           answers
    { "failure", { failure = true },   true },
    { "failure", { refused = true },   false },
    { "neutral", { failure = true },   false },
    { "neutral", { neutral = true },   true },
    { "success", { success = true },   true },
    { "success", { failure = true },   false },
  } do
    it(("%s a call judged %s if fallback_on has %s, whatever the breaker counts (B104)"):format(
      case[3] and "answers" or "leaves", case[1], next(case[2])), function()
      local g = fixture.guard {
        classify = function() return case[1] end, fallback_on = case[2], stages = { default "d" },
      }
      assert.equal(case[3] and "d" or nil, (g:call(bad)))
      assert.equal(1, totals(g)[case[1]])
    end)
  end

  it("leaves what the function gave, or raised, when nobody answers", function()
    local err = {}
    local g = fixture.guard { stages = { stage(function() end), last_good() } }
    assert.same({ false, "down" }, { g:call(function() return false, "down" end) })
    local _, got = pcall(g.call, g, error, err)
    assert.equal(err, got)
    g:trip()
    local value, refusal = g:call(ok)
    assert.same({ nil, "open" }, { value, refusal.kind })
  end)

  it("answers for a function that raised", function()
    local seen
    local g = fixture.guard { stages = { stage(function(call)
      seen = call.error return "calm" end) } }
    local err = {}
    assert.equal("calm", (g:call(error, err)))
    assert.equal(err, seen)
  end)

  it("hides no error: info has what the function raised or gave, or the refusal", function()
    local g = fixture.guard { stages = { default "calm" } }
    local err = {}
    local _, _, raised = g:call(error, err)
    local _, _, given = g:call(bad)
    assert.same({ "failure", err, "failure", "down" },
      { raised.cause, raised.error, given.cause, given.error })
    assert.equal(err, raised.error)
    g:trip()
    local _, _, refused = g:call(ok)
    assert.same({ "refused", "open" }, { refused.cause, refused.error.kind })
  end)

  it("names a call that the host has given up in info as the caller would have got it", function()
    local g = fixture.guard({ numbers = { timeout_ms = 50, lease_ms = 500 },
      stages = { default "calm" } },
      { host = { name = "h", run = function() return false end } })
    local value, _, info = g:call(ok)
    assert.same({ "calm", "timeout", "timeout", 50 },
      { value, info.cause, info.error.kind, info.error.timeout_ms })
  end)

  it("logs once a minute that it stands for an error that the function raised", function()
    local g, now, log = fixture.guard { stages = { default "calm" } }
    local broken = function() return nil + 1 end
    g:call(bad)
    assert.same({}, log)
    g:call(broken)
    g:call(broken)
    now:advance(60001)
    g:reset()
    g:call(broken)
    assert.equal(2, #log)
    assert.truthy(log[1]:find("the function raised an error, a fallback answered: .*arithmetic"))
  end)

  it("tells a host that works in steps the cause, and the error it gave", function()
    local g = fixture.guard { stages = { default "calm" } }
    local _, info = g:fallback("failure", { error = "down" })
    assert.same({ source = "default", cause = "failure", error = "down" }, info)
  end)

  it("may answer false, which is an answer; nil declines", function()
    local g = fixture.guard { stages = { default(nil), default(false) } }
    local value, err, info = g:call(bad)
    assert.same({ false, nil, "default" }, { value, err, info.source })
    assert.equal(1, count(g, "default", "declined"))
  end)

  it("never touches the breaker: a fallback that always works lets it open all the same (B092)",
    function()
    local g = fixture.guard { stages = { default "fine" } }
    for _ = 1, 3 do assert.equal("fine", (g:call(bad))) end
    assert.equal("open", g:snapshot().state)
    assert.same({ 0, 3 }, { totals(g).success, totals(g).failure })
  end)

  it("finds the outcome recorded, once, and the breaker moved, when it is asked", function()
    local g, seen
    g = fixture.guard { numbers = { consecutive_failures = 1 }, stages = { stage(function()
      seen = { g:snapshot().state, totals(g).failure }
      return "x"
    end) } }
    g:call(bad)
    assert.same({ "open", 1 }, seen)
    assert.equal(1, totals(g).failure)
  end)

  it("keeps an outage visible while it works (B097)", function()
    local g, now = fixture.guard { stages = { default "fine" } }
    for _ = 1, 600 do
      local value, _, info = g:call(bad)
      assert.same({ "fine", "default" }, { value, info.source })
      now:advance(1000)
    end
    assert.not_equal("closed", g:snapshot().state)
    assert.is_true(totals(g).failure > 3)
    assert.equal(600, count(g, "default", "answered"))
  end)

  it("is asked by a caller who found the only probe taken: it needs no slot of its own (B095)",
    function()
    local g, now = fixture.guard { stages = { default "fine" } }
    fixture.open(g)
    now:advance(1000)
    local inner
    g:call(function() inner = g:call(ok) return 1 end)
    assert.equal("fine", inner)
  end)

  it("costs a dead dependency's timeout only until the breaker opens (B100)", function()
    local g, now = fixture.guard { numbers = { timeout_ms = 30000, lease_ms = 60000,
      cooldown_ms = 70000000 }, stages = { default "fine" } }
    local began = now:now()
    for _ = 1, 100 do
      assert.equal("fine", (g:call(function() now:advance(30001) return nil, "late" end)))
    end
    assert.equal(3 * 30001, now:now() - began)
  end)

  it("passes over a stage that fails, counts it, and logs it once a minute", function()
    local g, now, lines = fixture.guard { stages = {
      { kind = "function", run = function() return nil, "took too long" end },
      { kind = "function", run = function() error "raised" end },
      default "fine",
    } }
    assert.equal("fine", (g:call(bad)))
    assert.equal("fine", (g:call(bad)))
    assert.same({ 4, 2, 4 }, { count(g, "function", "failed"), count(g, "default", "answered"),
      g:stats().policy_errors })
    assert.same({ "error p: fallback.function: took too long" }, lines)
    now:advance(60000)
    g:call(bad)
    assert.equal(2, #lines)
  end)

  it("passes over a stage that took longer than its timeout_ms", function()
    local now = clock.manual(10000)
    local g = fixture.guard({ stages = {
      stage(function() now:advance(21) return "late" end, { timeout_ms = 20 }),
      stage(function() now:advance(20) return "in time" end, { timeout_ms = 20 }),
    } }, { clock = now })
    assert.equal("in time", (g:call(bad)))
    assert.same({ 1, 1 }, { count(g, "function", "timeout"), count(g, "function", "answered") })
    local took = g:stats().fallback_durations
    assert.equal(20, took.sum_ms)
    assert.equal(#took.bounds_ms + 1, #took.counts)
  end)

  it("shows every stage's counts from the start", function()
    local g = fixture.guard { stages = { last_good(), default "x" } }
    assert.equal(10, #g:stats().fallbacks)
    for _, row in ipairs(g:stats().fallbacks) do assert.equal(0, row.count) end
  end)
end)

describe("last_good", function()
  it("answers what the call with those arguments gave last, with its age", function()
    local g, now = fixture.guard { stages = { last_good() } }
    assert.equal("A", g:call(function() return "A" end, "a"))
    now:advance(100)
    assert.equal("B", g:call(function() return "B" end, "b"))
    now:advance(100)
    local value, err, info = g:call(bad, "a")
    assert.same({ "A", nil,
      { source = "last_good", age_ms = 200, cause = "failure", error = "down" } },
      { value, err, info })
    fixture.open(g)
    value, err, info = g:call(bad, "b")
    assert.same({ "B", nil, 100 }, { value, err, info.age_ms })
    assert.same({ nil, "open" }, { (g:call(bad, "c")), select(2, g:call(bad, "c")).kind })
  end)

  it("does not take one call for another", function()
    local g = fixture.guard { stages = { last_good() }, numbers = { consecutive_failures = 1000 } }
    local calls = {
      pack(), pack(nil), pack(""), pack("\0"), pack("1"),
        pack(1), pack(1, nil),
      pack("1", nil), pack(true), pack(false), pack("a", "b"),
        pack("ab"), pack("ab", ""),
      pack("a", "b", nil), pack("nil"), pack(1.5), pack("s1:a"),
      pack("x\0a", 1), pack("x\0b", 1),
    }
    for i, args in ipairs(calls) do
      g:call(function() return i end, unpack(args, 1, args.n))
    end
    for i, args in ipairs(calls) do
      assert.equal(i, (g:call(bad, unpack(args, 1, args.n))))
    end
  end)

  it("keeps nothing for arguments that it can't tell apart, unless it is told how", function()
    local g = fixture.guard { stages = { last_good() } }
    local t = {}
    g:call(ok, t)
    assert.same({ nil, "down" }, { g:call(bad, t) })
    g = fixture.guard { stages = { last_good { key = function(call) return call.args[1].id end } } }
    g:call(ok, { id = 7 })
    assert.equal("ok", (g:call(bad, { id = 7 })))
    assert.same({ nil, "down" }, { g:call(bad, { id = 8 }) })
  end)

  it("answers nothing older than max_age_ms", function()
    local g, now = fixture.guard { stages = { last_good { max_age_ms = 1000 } },
      numbers = { consecutive_failures = 100 } }
    g:call(ok)
    now:advance(1000)
    assert.equal("ok", (g:call(bad)))
    now:advance(1)
    assert.same({ nil, "down" }, { g:call(bad) })
  end)

  it("keeps good answers only: no failure, no late one, nothing of the chain's own (B098)",
    function()
    local g, now = fixture.guard {
      stages = { last_good(), default "degraded" }, numbers = { timeout_ms = 50, lease_ms = 500,
        consecutive_failures = 100 },
    }
    for _, f in ipairs { bad, function() now:advance(51) return "late" end, function()
      return false, "x" end } do
      local value, _, info = g:call(f)
      assert.same({ "degraded", "default" }, { value, info.source })
    end
    assert.equal("real", g:call(function() return "real" end))
    local value, _, info = g:call(bad)
    assert.same({ "real", "last_good" }, { value, info.source })
    now:advance(10)
    assert.equal(10, (select(3, g:call(bad))).age_ms)
    assert.same({ "new" }, { g:call(function() return "new" end) })
  end)

  it("serves while open, and the first answer after it is the real one again (B098)", function()
    local g, now = fixture.guard { stages = { last_good() } }
    g:call(ok)
    for _ = 1, 5 do assert.equal("last_good", select(3, g:call(bad)).source) end
    now:advance(1000)
    assert.same({ "fresh" }, { g:call(function() return "fresh" end) })
    assert.equal("closed", g:snapshot().state)
  end)

  it("belongs to the guard: another generation goes on with it, within its bounds", function()
    local g = fixture.guard { stages = { last_good() }, numbers = { consecutive_failures = 100 } }
    for i = 1, 10 do g:call(function() return i end, "k" .. i) end
    g:adopt(fixture.policy { stages = { default(nil), last_good { max_entries = 3 } },
      numbers = { consecutive_failures = 100 } })
    assert.equal(10, (g:call(bad, "k10")))
    assert.same({ nil, "down" }, { g:call(bad, "k7") })
    g:adopt(fixture.policy { stages = {} })
    g:adopt(fixture.policy { stages = { last_good() } })
    assert.same({ nil, "down" }, { g:call(bad, "k10") })
  end)

  it("does not mix breakers", function()
    local g = fixture.guard { stages = { last_good() } }
    g:at("eu"):call(function() return "eu" end, "x")
    g:call(function() return "default" end, "x")
    assert.equal("eu", (g:at("eu"):call(bad, "x")))
    assert.equal("default", (g:call(bad, "x")))
    assert.same({ nil, "down" }, { g:at("us"):call(bad, "x") })
  end)

  it("is used by hosts in two steps: remember and fallback", function()
    local g, now = fixture.guard { stages = { last_good() } }
    g:remember({ args = { "a" } }, "A")
    g:remember({ id = "GET /b" }, "B")
    now:advance(5)
    local value, info = g:fallback("failure", { args = { "a" } })
    assert.same({ "A", "last_good", 5 }, { value, info.source, info.age_ms })
    assert.equal("B", (g:fallback("refused", { id = "GET /b" })))
    assert.is_nil((g:fallback("failure", { id = "GET /c" })))
    assert.is_nil((g:fallback("neutral", { id = "GET /b" })))
    assert.equal("A", (g:fallback("failure", { args = { "a", n = 1 } })))
  end)
end)

describe("fail", function()
  it("answers with an error of its kind", function()
    local g = fixture.guard { stages = { { kind = "fail", status = 503,
      error_kind = "payments_down", retry_after_ms = 3000 } } }
    local value, err, info = g:call(bad)
    assert.same({ nil, "payments_down", 503, 3000, "down", "fail" },
      { value, err.kind, err.status, err.retry_after_ms, err.cause, info.source })
    assert.equal("p/default: payments_down (status 503); ask again in 3000 ms", tostring(err))
  end)

  it("says by itself what went before and how long to wait", function()
    local g = fixture.guard { stages = { { kind = "fail" } } }
    assert.equal("failure", select(2, g:call(bad)).kind)
    fixture.open(g)
    local err = select(2, g:call(ok))
    assert.same({ "open", 1000, "open" }, { err.kind, err.retry_after_ms, err.cause.kind })
    local value, info, why = g:fallback("refused")
    assert.same({ nil, "fail", "refused" }, { value, info.source, why.kind })
  end)
end)

describe("guard", function()
  local function pair(of_a, of_b, options)
    local guards = {}
    of_a.name, of_b.name = "a", "b"
    local a, now = fixture.guard(of_a, { guards = guards })
    options = options or {}
    options.guards, options.clock = guards, now
    guards.a, guards.b = a, (fixture.guard(of_b, options))
    return a, guards.b, now, guards
  end
  local to_b = { kind = "guard", guard = "b" }

  it("calls what the other serves with, with the same arguments, behind the other's breaker",
    function()
    local a, b = pair({ stages = { to_b } }, {}, { serve = function(...)
      return table.concat({ "replica", ... }, " ") end })
    local value, err, info = a:call(bad, "x", "y")
    assert.same({ "replica x y", nil,
      { source = "guard", guard = "b", cause = "failure", error = "down" } }, { value, err, info })
    assert.same({ 0, 1 }, { totals(a).success, totals(b).success })
  end)

  it("declines when that fails or is refused, and the next stage answers (B101)", function()
    local calls = 0
    local a, b = pair({ stages = { to_b, default "last" } }, {}, { serve = function()
      calls = calls + 1 return bad() end })
    for _ = 1, 10 do assert.equal("last", (a:call(bad))) end
    assert.same({ 3, "open", 10 }, { calls, b:snapshot().state, count(a, "guard", "declined") })
    assert.equal(3, totals(a).failure)
  end)

  it("asks the other's chain if it serves with nothing", function()
    local a = pair({ stages = { to_b } }, { stages = { default "b's default" } })
    assert.equal("b's default", (a:call(bad)))
  end)

  local it_waits = version.can_yield and it or function(title, f)
    it(title .. ": not on Lua 5.1", function() assert.is_false((pcall(f))) end)
  end

  it_waits("may wait in a coroutine", function()
    local a = pair({ stages = { to_b } }, {}, { serve = coroutine.yield })
    local co = coroutine.create(function() return a:call(bad, "x") end)
    assert.same({ true, "x" }, { coroutine.resume(co) })
    local _, value, _, info = coroutine.resume(co, "resumed")
    assert.same({ "resumed", "guard" }, { value, info.source })
  end)

  it_waits("goes on with its own last good answers when the policy changes meanwhile", function()
    local a = pair({ stages = { to_b, last_good() } }, {}, { serve = coroutine.yield })
    a:call(ok, "x")
    local co = coroutine.create(function() return a:call(bad, "x") end)
    coroutine.resume(co)
    a:adopt(fixture.policy { name = "a", stages = { last_good() } })
    local _, value, _, info = coroutine.resume(co, nil, "no")
    assert.same({ "ok", "last_good" }, { value, info.source })
  end)

  it("never goes in circles, nor too far: all of them down is an answer at once (B100)", function()
    local guards, asked = {}, 0
    local function serve() asked = asked + 1 return nil, "down" end
    for i = 1, 9 do
      guards["g" .. i] = fixture.guard({
        name = "g" .. i, stages = { { kind = "guard", guard = "g" .. i % 9 + 1 } },
      }, { guards = guards, serve = serve })
    end
    assert.same({ nil, "down" }, { guards.g1:call(bad) })
    assert.equal(4, asked)
    local a, b, _, two = pair({ stages = { to_b } },
      { stages = { { kind = "guard", guard = "a" } } })
    assert.same({ nil, "down" }, { a:call(bad) })
    assert.same({ 1, 1 }, { count(a, "guard", "declined"), count(b, "guard", "declined") })
    two.a:adopt(fixture.policy { name = "a", stages = { { kind = "guard", guard = "a" } } })
    assert.same({ nil, "down" }, { a:call(bad) })
  end)

  it("that there is not, is a fault", function()
    local g, _, lines = fixture.guard({ stages = { { kind = "guard", guard = "nobody" } } },
      { guards = {} })
    g:call(bad)
    assert.matches("there is no guard nobody", lines[1])
  end)

  it("is found by name among all there are, unless said otherwise", function()
    local other = fixture.guard { name = "somebody", stages = { default "found" } }
    local g = fixture.guard { stages = { { kind = "guard", guard = "somebody" } } }
    assert.equal("found", (g:call(bad)))
    assert.equal("somebody", other.name)
  end)

  it("is given up after the stage's timeout_ms where the host can", function()
    local given
    local host = { name = "test", run = function(ms) given = ms return false end }
    local guards = {}
    guards.b = fixture.guard({ name = "b" }, { serve = ok, guards = guards })
    local g = fixture.guard({ stages = { { kind = "guard", guard = "b", timeout_ms = 30 } } },
      { host = host, guards = guards })
    assert.same({ nil, "down" }, { g:call(bad) })
    assert.same({ 30, 1 }, { given, count(g, "guard", "timeout") })
  end)
end)
