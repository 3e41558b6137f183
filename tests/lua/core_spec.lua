local core = require "neap.core"
local version = require "tests.lua.version"

local NAN, INF = 0 / 0, math.huge

local function rules(changed)
  local numbers = { consecutive_failures = 2, cooldown_ms = 1000, jitter = 0, probes = 2,
    successes = 1 }
  for k, v in pairs(changed or {}) do numbers[k] = v end
  return assert(core.rules(numbers))
end

local function open(b, r, now_ms)
  for _ = 1, 2 do b:report(r, now_ms, assert(b:acquire(r, now_ms)), "failure", 0) end
  assert.equal("open", b:state(r, now_ms))
end

describe("rules", function()
  it("are made of numbers, shares as plain ones, and tell all of them, derived ones too", function()
    local all = rules({ failure_rate = 0.5, backoff = 2.5, window = "count",
      mode = "shadow" }):numbers()
    assert.equal(0.5, all.failure_rate)
    assert.equal(2.5, all.backoff)
    assert.equal("count", all.window)
    assert.equal("shadow", all.mode)
    assert.equal(2, all.consecutive_failures)
    assert.is_true(all.minimum_calls > 0)
    assert.is_false(all.trip_by_function)
  end)

  for _, case in ipairs {
    -- field          value     says
    { "failures",     4.5,      "must be a whole number" },
    { "failures",     "4",      "must be a whole number" },
    { "failures",     NAN,      "must be a whole number" },
    { "failures",     INF,      "must be a whole number" },
    { "failures",     true,     "must be a whole number" },
    { "failure_rate", "0.5",    "must be a number" },
    { "failure_rate", NAN,      "must be a number" },
    { "failure_rate", 1e-9,     "must be 0 or at least 0.000001" },
    { "seed",         -1,       "must be a whole number, 0 or more" },
    { "seed",         0.5,      "must be a whole number, 0 or more" },
    { "window",       "sliding", "must be \"time\" or \"count\"" },
    { "mode",         "off",
         "must be \"auto\", \"forced_open\", \"forced_closed\" or \"shadow\"" },
    { "count_refusals", 1,      "must be true or false" },
  } do
    it(("refuse %s = %s: it %s (B197)"):format(case[1], tostring(case[2]), case[3]), function()
      local made, err = core.rules { consecutive_failures = 1, [case[1]] = case[2] }
      assert.is_nil(made)
      assert.equal(case[1], err.field)
      assert.equal(case[3], err.expected)
      if case[2] == case[2] then assert.equal(case[2], err.value) end
    end)
  end

  it("take a whole number that is written as a float (B197)", function()
    assert.equal(4, rules({ failures = 4.0 }):numbers().failures)
  end)

  for _, case in ipairs {
    { "probes", 32, 1, 31 }, { "probes", 0, 1, 31 }, { "failures", -1, 0, 1000000 },
    { "failures", 1e15, 0, 1000000 }, { "failure_rate", 1.5, 0, 1 }, { "backoff", 0.5, 1, 100 },
    { "failure_rate", -0.1, 0, 1 },
  } do
    it(("name the range that %s = %s is outside of"):format(case[1], case[2]), function()
      local made, err = core.rules { consecutive_failures = 1, [case[1]] = case[2] }
      assert.is_nil(made)
      assert.same({ case[1], case[2], case[3], case[4] }, { err.field, err.value, err.min,
        err.max })
    end)
  end

  it("need at least one that opens the breaker", function()
    local made, err = core.rules {}
    assert.is_nil(made)
    assert.is_string(err.field)
    assert.is_string(err.expected)
  end)

  it("raise on a name that is none, and on what is no table", function()
    assert.error_matches(function() core.rules { failures = 1, failurs = 2 } end,
      'there is no rule "failurs"')
    assert.error_matches(function() core.rules { failures = 1, [7] = 2 } end,
      "no rule is named by number")
    assert.error_matches(function() core.rules "failures" end,
      "rules must be a table, got the string")
  end)

  it("ask no metamethod of the table they are given (B172)", function()
    local function raises() error("asked") end
    local hostile = setmetatable({ failures = 1 }, {
      __index = raises, __pairs = raises, __len = raises, __tostring = raises,
    })
    assert.is_truthy(core.rules(hostile))
  end)
end)

describe("a breaker", function()
  local b, r
  before_each(function() b, r = core.breaker(), rules() end)

  it("goes all the way round, and tells each transition to who made it", function()
    open(b, r, 100)
    local permit, reason, retry_after_ms, moved = b:acquire(r, 200)
    assert.is_nil(permit)
    assert.equal("open", reason)
    assert.equal(900, retry_after_ms)
    assert.is_nil(moved)
    local probe, none, nothing, half_open = b:acquire(r, 1100)
    assert.is_nil(none)
    assert.is_nil(nothing)
    assert.same({ "open", "half_open", "cooldown" },
      { half_open.from, half_open.to, half_open.cause })
    local reported, closed = b:report(r, 1100, probe, "success", 0)
    assert.equal("counted", reported)
    assert.same({ "half_open", "closed", "probes", 1 }, { closed.from, closed.to, closed.cause,
      closed.measured })
  end)

  it("says what a rate measured as a share, beside its limit", function()
    r = rules { consecutive_failures = 0, failure_rate = 0.5, minimum_calls = 4 }
    local moved
    for i = 1, 4 do
      local _
      _, moved = b:report(r, 0, b:acquire(r, 0), i % 2 == 0 and "failure" or "success", 0)
    end
    assert.same({ "failure_rate", 0.5, 0.5, 4 }, { moved.cause, moved.measured, moved.limit,
      moved.calls })
  end)

  it("gives plain numbers while closed, and measures how long they were out", function()
    local permit = b:acquire(r, 1000)
    assert.equal(version.integer, version.kind_of(permit))
    b:report(r, 1250, permit, "success")
    assert.equal(250, b:snapshot(r, 1250).duration_sum_ms)
  end)

  it("takes a clock that goes back for no time at all", function()
    b:report(r, 900, b:acquire(r, 1000), "success")
    assert.equal(0, b:snapshot(r, 1000).duration_sum_ms)
  end)

  it("works far past 2^32 and 2^53 ms", function()
    for _, start in ipairs { 2 ^ 32 - 1, 2 ^ 53, 2 ^ 63 - 8192 } do
      b = core.breaker()
      start = math.tointeger and math.tointeger(start) or start
      open(b, r, start)
      local probe = b:acquire(r, start + 1000)
      assert.equal("counted", b:report(r, start + 1001, probe, "success"))
      assert.equal("closed", b:state(r, start + 1001))
    end
  end)

  it("lets a probe be reported once; the second time it is used", function()
    open(b, r, 0)
    local probe = b:acquire(r, 1000)
    assert.equal("userdata", type(probe))
    assert.equal("counted", b:report(r, 1000, probe, "neutral"))
    assert.equal("used", b:report(r, 1000, probe, "neutral"))
    assert.equal("neap.permit (used)", tostring(probe))
  end)

  it("gets a probe back that nobody reports, when it is collected or goes out of scope", function()
    open(b, r, 0)
    b:acquire(r, 1000)
    collectgarbage()
    collectgarbage()
    assert.equal(0, b:snapshot(r, 1000).probes_in_flight)
    assert.equal(1, b:snapshot(r, 1000).totals.abandoned)
    local closing = version.closing(b:acquire(r, 1000), function()
      assert.equal(1, b:snapshot(r, 1000).probes_in_flight)
    end)
    if not closing then return end
    closing()
    assert.equal(0, b:snapshot(r, 1000).probes_in_flight)
    assert.equal(2, b:snapshot(r, 1000).totals.abandoned)
  end)

  it("refuses a probe of another breaker", function()
    open(b, r, 0)
    local probe = b:acquire(r, 1000)
    local other = core.breaker()
    assert.error_matches(function() other:report(r, 1000, probe, "success") end,
      "another breaker's")
    assert.equal(1, b:snapshot(r, 1000).probes_in_flight)
  end)

  it("can be decided on from outside, if its epoch is still the same", function()
    local by_function = rules { trip_by_function = true }
    local epoch = b:snapshot(by_function, 0).epoch
    local moved = b:decide(by_function, 0, epoch, "open", 3000)
    assert.same({ "open", "function", 3000 }, { moved.to, moved.cause, moved.open_ms })
    assert.is_nil(b:decide(by_function, 0, epoch, "open"))
  end)

  it("is reset and tripped by hand", function()
    assert.equal("trip", b:trip(r, 0, 500).cause)
    assert.equal(500, b:next_ms(r, 0))
    assert.equal("reset", b:reset(r, 0).cause)
    assert.is_nil(b:next_ms(r, 0))
    local moved, message = b:trip(r, 0, 1e9)
    assert.is_nil(moved)
    assert.matches("must be over 0 and at most max_cooldown_ms", message)
  end)

  it("says in four numbers what became of all calls", function()
    assert.same({ 0, 0, 0, 0 }, { b:counts(r, 0) })
    local slow = assert(core.rules { failures = 2, slow_call_ms = 10, slow_rate = 1,
      minimum_calls = 100 })
    for _, ended in ipairs { { "success", 1 }, { "success", 20 }, { "failure", 1 },
      { "failure", 20 } } do
      b:report(slow, 0, b:acquire(slow, 0), ended[1], ended[2])
    end
    for _ = 1, 5 do b:acquire(slow, 0) end
    assert.same({ 1, 1, 2, 5 }, { b:counts(slow, 0) })
  end)

  it("has modes, which go before the rules'", function()
    assert.is_true(b:set_mode(0, "forced_open", 100))
    assert.same({ nil, "forced_open", 70 }, { b:acquire(r, 30) }) -- what is left of it
    b:set_mode(0, "forced_open")
    assert.same({ nil, "forced_open", 0 }, { b:acquire(r, 30) })
    b:set_mode(0, "forced_open", 100)
    assert.equal("allow", b:peek(r, 100))
    local ok, message = b:set_mode(0, "shadow", 40 * 86400000)
    assert.is_nil(ok)
    assert.matches("at most 31 days", message)
    for _, over in ipairs { 0, -5 } do -- for no time is not for good
      ok, message = b:set_mode(0, "shadow", over)
      assert.is_nil(ok)
      assert.matches("for_ms 0: must be over 0", message)
    end
    assert.equal("allow", b:peek(r, 100))
    b:set_mode(0, "shadow")
    open(b, r, 0)
    local bypass = b:acquire(r, 0)
    assert.equal(version.integer, version.kind_of(bypass))
    assert.equal("counted", b:report(r, 0, bypass, "failure"))
    b:set_mode(0, nil)
    assert.equal("open", b:peek(r, 0))
  end)

  it("hides what retry_after_ms can't mean, and counts it", function()
    r = rules { consecutive_failures = 1 }
    for _, odd in ipairs { -1, NAN, INF, -INF, 1e300 } do
      local _, moved = b:report(r, 0, b:acquire(r, 0), "failure", 0, odd)
      assert.equal(1000, moved.open_ms)
      b:reset(r, 0)
    end
    assert.equal(5, b:snapshot(r, 0).totals.retry_ignored)
  end)

  it("shows everything at once", function()
    local s = b:snapshot(r, 0)
    for _, field in ipairs {
      "state", "mode", "mode_is_operators", "mode_left_ms", "level", "epoch", "state_age_ms",
        "retry_after_ms",
      "window", "window_length", "calls", "success", "slow_success", "failure", "slow_failure",
        "failure_rate",
      "slow_rate", "consecutive_failures", "probes_in_flight", "probes_succeeded", "probes_failed",
        "totals",
      "transitions", "duration_counts", "duration_bounds_ms", "duration_sum_ms",
    } do assert.is_not_nil(s[field], field) end
    assert.equal(#s.duration_counts, #s.duration_bounds_ms + 1)
    assert.same(s.duration_bounds_ms, core.duration_bounds_ms)
    assert.same({ from = "closed", to = "open", cause = "failures", count = 0 }, s.transitions[1])
  end)

  it("can be bound to rules: two closures on the coarse clock", function()
    local acquire, report = b:bind(r)
    assert.equal("counted", report(acquire(), "success"))
    report(acquire(), "failure")
    local reported, moved = report(acquire(), "failure")
    assert.same({ "counted", "open" }, { reported, moved.to })
    assert.same({ nil, "open" }, { (acquire()), (select(2, acquire())) })
    assert.error_matches(function() report(1, "fine") end, "outcome must be \"success\"")
  end)

  it("reports by its closures what its methods take, and refuses the same", function()
    local acquire, report = b:bind(r)
    local permit = acquire()
    for _, not_one in ipairs { tostring(permit), 1.5, -permit, NAN, INF, {}, true, print } do
      assert.error_matches(function() report(not_one, "success") end,
        "permit must be what acquire gave")
    end
    assert.error_matches(function() report(nil, "success") end, "permit must be")
    assert.error_matches(function() report() end, "permit must be")
    assert.error_matches(function() report(permit) end, "outcome must be")
    for _, outcome in ipairs { 1, {}, "Success", "success\0" } do
      assert.error_matches(function() report(permit, outcome) end, "outcome must be")
    end
    assert.error_matches(function() report(permit, "success", "5") end, "duration_ms must be")
    assert.error_matches(function() report(permit, "success", 5, "1") end, "retry_after_ms must be")
    assert.equal(0, b:snapshot(r, core.clock_coarse()).calls)

    assert.equal("counted", report(permit, table.concat { "suc", "cess" }))
    for _, outcome in ipairs { "success", "failure", "timeout", "neutral", "abandoned" } do
      b:reset(r, core.clock_coarse())
      assert.equal("counted", report(acquire(), outcome, 7))
      assert.equal("counted", report(acquire(), outcome))
      local totals = b:snapshot(r, core.clock_coarse()).totals
      assert.equal(outcome == "success" and 3 or 2, totals[outcome], outcome)
    end
    assert.same({ "used", "stale" }, { report(0, "success"), report(permit, "success") })
  end)

  it("is equal to another handle of itself only", function()
    local panel = core.panel(2)
    assert.equal(panel:claim "a", panel:claim "a")
    assert.not_equal(panel:claim "a", panel:claim "b")
  end)
end)

describe("arguments", function()
  local b, r = core.breaker(), rules()
  local function ignore() end

  for _, case in ipairs {
    { "a string for the time (B197)", function() b:acquire(r, "4") end,
      "now_ms must be milliseconds, 0 or more, got the string" },
    { "a negative time", function() b:acquire(r, -1) end, "now_ms must be" },
    { "no number for the time", function() b:acquire(r, NAN) end, "now_ms must be" },
    { "an endless time", function() b:acquire(r, INF) end, "now_ms must be" },
    { "no time", function() b:acquire(r) end, "now_ms must be" },
    { "no rules", function() b:acquire({}, 0) end, "rules must be made by neap.core.rules" },
    { "rules for a breaker", function() b.acquire(r, r, 0) end, "self must be a breaker" },
    { "a file for a breaker", function() b.acquire(io.stdout, r, 0) end, "self must be a breaker" },
    { "a panel's capacity of 4.5 (B197)", function() core.panel(4.5) end,
      "capacity must be a whole number" },
    { "a panel's capacity of \"4\" (B197)", function() core.panel "4" end,
      "capacity must be a whole number" },
    { "a panel of nothing", function() core.panel(0) end, "a whole number from 1 to" },
    { "an outcome that is none", function() b:report(r, 0, 1, "fine") end,
      "outcome must be \"success\"" },
    { "no permit", function() b:report(r, 0, nil, "success") end,
      "permit must be what acquire gave" },
    { "a permit that is a text", function() b:report(r, 0, "1", "success") end, "permit must be" },
    { "a duration that is a text", function() b:report(r, 0, 1, "success", "5") end,
      "duration_ms must be" },
    { "a mode that is none", function() b:set_mode(0, "off") end, "mode must be \"auto\"" },
    { "an epoch of 1.5", function() b:decide(r, 0, 1.5, "open") end,
      "epoch must be a whole number" },
    { "a level of 0", function() r:cooldown_ms(0) end,
      "level must be a whole number from 1 to 31" },
  } do
    it(("that are wrong raise and change nothing: %s"):format(case[1]), function()
      local before = b:snapshot(r, 0)
      assert.error_matches(case[2], case[3], 1, true)
      assert.same(before, b:snapshot(r, 0))
    end)
  end

  it("may be of any kind without harm (B172)", function()
    local function raises() error("asked") end
    local hostile = setmetatable({}, {
      __index = raises, __len = raises, __eq = raises, __lt = raises, __call = raises,
        __tostring = raises,
      __gc = ignore, __close = raises, __name = 42,
    })
    local before = b:snapshot(r, 0)
    for _, method in ipairs {
      "acquire", "report", "adopt", "decide", "reset", "trip", "set_mode", "state", "next_ms",
        "peek", "snapshot", "counts", "bind",
    } do
      assert.is_false(pcall(b[method], b, hostile, hostile, hostile, hostile))
      assert.is_false(pcall(b[method], hostile))
    end
    assert.is_false(pcall(core.panel, hostile))
    assert.is_false(pcall(core.rules, { failures = hostile, [hostile] = 1 }))
    assert.same(before, b:snapshot(r, 0))
  end)

  it("of time and duration drop a fraction (B196)", function()
    b = core.breaker()
    local permit = b:acquire(r, 1000.75)
    b:report(r, 1001.5, permit, "success", 7.9)
    assert.equal(7, b:snapshot(r, 1001.5).duration_sum_ms)
    b:report(r, 1001.5, b:acquire(r, 1001.5), "success", -3)
    assert.equal(7, b:snapshot(r, 1001.5).duration_sum_ms)
  end)
end)

describe("a panel", function()
  it("keeps named breakers, and as many as it has rows", function()
    local panel = core.panel(2)
    local a = assert(panel:claim "a")
    assert.equal("a", a:name())
    assert.equal(a, panel:find "a")
    assert.is_nil(panel:find "b")
    assert.is_truthy(panel:claim "b")
    local none, message = panel:claim "c"
    assert.is_nil(none)
    assert.is_string(message)
    assert.same({ 2, 2 }, { panel:count(), panel:capacity() })
    assert.equal("neap.panel (2 of 2 rows)", tostring(panel))
  end)

  for _, name in ipairs { "", ("x"):rep(104), "a\0b" } do
    it(("takes no name like %q"):format(name:sub(1, 5)), function()
      local none, message = core.panel(1):claim(name)
      assert.is_nil(none)
      assert.is_string(message)
    end)
  end

  for _, n in ipairs { 0, 1, 36, 37, 300 } do
    it(("lists %d rows (B188)"):format(n), function()
      local panel = core.panel(math.max(1, n))
      for i = 1, n do panel:claim("row " .. i) end
      assert.equal(n, #panel:rows())
    end)
  end

  it("lives as long as one of its breakers does", function()
    local r = rules()
    local b = core.panel(3):claim "a"
    collectgarbage()
    collectgarbage()
    assert.equal("closed", b:state(r, 0))
  end)
end)

describe("after closing", function()
  local r = rules()
  local METHODS = { "claim", "find", "rows", "capacity", "count" }

  it("a panel and its breakers answer with an error, whatever is asked (B184, B187)", function()
    local panel = core.panel(2)
    local b = panel:claim "a"
    local acquire, report = b:bind(r)
    open(b, r, 0)
    local probe = b:acquire(r, 1000)
    panel:close()
    panel:close()
    for _, method in ipairs(METHODS) do
      assert.error_matches(function() panel[method](panel, "a") end, "the panel is closed")
    end
    for _, method in ipairs { "acquire", "state", "next_ms", "peek", "snapshot", "counts",
      "adopt", "reset" } do
      assert.error_matches(function() b[method](b, r, 0) end, "panel is closed")
    end
    assert.error_matches(acquire, "panel is closed")
    assert.error_matches(function() report(1, "success") end, "panel is closed")
    assert.error_matches(function() b:report(r, 0, probe, "success") end, "panel is closed")
    assert.matches("closed", tostring(b))
    assert.matches("closed", tostring(panel))
    probe = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
  end)

  it("objects that a finaliser brings back are safe to use (B184)", function()
    local seen = {}
    do
      local panel = core.panel(1)
      local b = panel:claim "a"
      open(b, r, 0)
      local probe = b:acquire(r, 1000)
      version.finalized(function()
        seen[1] = { pcall(b.report, b, r, 1000, probe, "success") }
        seen[2] = { pcall(panel.count, panel) }
        seen[3] = probe
      end)
    end
    collectgarbage()
    collectgarbage()
    assert.equal(3, #seen)
    assert.equal("neap.permit (used)", tostring(seen[3]))
  end)

  it("finalisers can be called by hand, and by another coroutine (B184)", function()
    local b = core.breaker()
    open(b, r, 0)
    local probe = b:acquire(r, 1000)
    coroutine.wrap(function()
      for _ = 1, 3 do
        debug.getmetatable(probe).__gc(probe)
        debug.getmetatable(probe).__close(probe)
      end
    end)()
    assert.equal("used", b:report(r, 1000, probe, "success"))
    assert.equal(1, b:snapshot(r, 1000).totals.abandoned)
    assert.is_false(pcall(debug.getmetatable(probe).__gc, b))
    assert.is_false(pcall(debug.getmetatable(probe).__gc, 42))
  end)

  it("metatables can't be had without the debug library", function()
    for _, object in ipairs { core.breaker(), core.panel(1), r } do
      assert.is_false(getmetatable(object))
    end
  end)
end)

describe("protect", function()
  it("answers as pcall, and lets nothing yield", function()
    assert.same({ true, 1, nil, 3 }, { core.protect(function(...) return ... end, 1, nil, 3) })
    local err = {}
    local ok, got = core.protect(error, err)
    assert.is_false(ok)
    assert.equal(err, got)
    local co = coroutine.create(function() return core.protect(coroutine.yield) end)
    local _, in_it, message = coroutine.resume(co)
    assert.is_false(in_it)
    assert.matches("yield", message)
    assert.equal("dead", coroutine.status(co))
  end)
end)
