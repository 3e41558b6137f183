local core = require "neap.core"
local fixture = require "tests.lua.fixture"
local guard = require "neap.guard"
local version = require "tests.lua.version"
local unpack, pack = version.unpack, version.pack

local ok, bad = fixture.ok, fixture.bad

local function totals(g) return g:snapshot().totals end

describe("call", function()
  it("passes all arguments, nil holes included, and answers the first two results", function()
    local g = fixture.guard()
    local seen
    local results = pack(g:call(function(...)
      seen = pack(...)
      return 1, 2, 3
    end, nil, "b", nil, nil))
    assert.same({ n = 4, [2] = "b" }, seen)
    assert.same({ n = 2, 1, 2 }, results)
    assert.same({ n = 2 }, pack(g:call(function() end)))
    assert.same({ n = 2, "a" }, pack(g:call(function() return "a" end)))
  end)

  for _, n in ipairs { 0, 1, 3, 4, 36, 37, 510, 511, 512, 1000, version.most_arguments } do
    it(("passes %d arguments (B188)"):format(n), function()
      for _, fields in ipairs { {}, { stages = { fixture.stage(function() end) } } } do
        local g = fixture.guard(fields)
        local args = {}
        for i = 1, n do args[i] = i end
        local count, last = g:call(function(...) return select("#", ...),
          (select(n > 0 and n or 1, ...)) end,
          unpack(args, 1, n))
        assert.same({ n, n > 0 and n or nil }, { count, last })
        assert.same({ nil, "x" },
          { g:call(function() return nil, "x" end, unpack(args, 1, n)) })
        assert.error_matches(function() g:call(error, "raised", unpack(args, 2, n)) end,
          "raised")
        assert.same({ 1, 2 }, { totals(g).success, totals(g).failure })
      end
    end)
  end

  for _, case in ipairs {
    -- results                   counted    because
    { { n = 1, nil },            "success", "a lone nil is an answer" },
    { { n = 0 },                 "success", "nothing is an answer" },
    { { n = 1, false },          "success", "false alone is an answer" },
    { { n = 2, 1, "warning" },   "success", "there is a value" },
    { { n = 2, nil, "why" },     "failure", "nil and a reason is how Lua says no" },
    { { n = 2, false, "why" },   "failure", "so is false and a reason" },
    { { n = 2, nil, false },     "failure", "false is a reason" },
  } do
    it(("counts (%s, %s) as %s: %s"):format(tostring(case[1][1]), tostring(case[1][2]), case[2],
      case[3]), function()
      local g = fixture.guard()
      local got = pack(g:call(function() return unpack(case[1], 1, case[1].n) end))
      assert.same({ case[1][1], case[1][2] }, { got[1], got[2] })
      assert.equal(1, totals(g)[case[2]])
    end)
  end

  it("raises what was raised, the same object, after counting it (B199)", function()
    local thrown = {
      42, true, "text", "a\0b", ("x"):rep(1000000), {}, function() end, coroutine.create(function()
        end),
      setmetatable({}, { __tostring = function() error("bad tostring") end, __name = 42 }),
        io.stdout,
    }
    local g, _, lines = fixture.guard { classify = nil, numbers = { consecutive_failures = 100 } }
    for i, object in ipairs(thrown) do
      local fine, got = pcall(g.call, g, error, object, 0)
      assert.is_false(fine)
      assert.is_true(rawequal(object, got))
      assert.equal(i, totals(g).failure)
    end
    assert.same({ false }, { pcall(g.call, g, error) })
    assert.equal(#thrown + 1, totals(g).failure)
    assert.same({}, lines)
  end)

  it("counts an error that closing a variable raises", function()
    local g = fixture.guard()
    local closes = setmetatable({}, { __close = function() error("while closing", 0) end })
    local closing = version.closing(closes, function() return "fine" end)
    if not closing then return end
    local fine, err = pcall(g.call, g, closing)
    assert.same({ false, "while closing" }, { fine, err })
    assert.equal(1, totals(g).failure)
  end)

  it("opens, refuses without calling, probes and closes", function()
    local events = {}
    local g, now = fixture.guard({}, { on_event = function(e)
      events[#events + 1] = e.from .. ">" .. e.to end })
    for _ = 1, 3 do g:call(bad) end
    local called = false
    local value, err, info = g:call(function() called = true end)
    assert.is_false(called)
    assert.is_nil(value)
    assert.is_nil(info)
    assert.same({ "open", "p", "default", 1000 }, { err.kind, err.policy, err.key,
      err.retry_after_ms })
    assert.equal("p/default: the breaker is open; ask again in 1000 ms", tostring(err))
    now:advance(1000)
    assert.equal("half_open", g:snapshot().state)
    assert.equal("ok", g:call(ok))
    assert.same({ "closed>open", "open>half_open", "half_open>closed" }, events)
  end)

  it("refuses more than the probes there are, by another name", function()
    local g, now = fixture.guard()
    fixture.open(g)
    now:advance(1000)
    local inner
    assert.equal("ok", g:call(function()
      inner = pack(g:call(ok))
      return "ok"
    end))
    assert.same({ nil, "probes_busy", 500 }, { inner[1], inner[2].kind, inner[2].retry_after_ms })
  end)

  it("can be called within itself", function()
    local g = fixture.guard()
    local function deep(n)
      if n == 0 then return "bottom" end
      return g:call(deep, n - 1)
    end
    assert.equal("bottom", g:call(deep, 50))
    assert.equal(51, totals(g).success)
  end)

  it("survives the deepest recursion that Lua allows", function()
    local g = fixture.guard { numbers = { consecutive_failures = 1000000 } }
    local function endless() return g:call(endless) end
    local fine, err = pcall(endless)
    assert.is_false(fine)
    assert.matches("overflow", tostring(err))
    assert.equal("ok", g:call(ok))
    local t = totals(g)
    assert.equal(t.failure + t.success, t.failure + 1)
  end)

  it("takes whatever can be called", function()
    local g = fixture.guard()
    assert.equal(7, g:call(setmetatable({}, { __call = function(_, n) return n end }), 7))
  end)

  for _, case in ipairs {
    { "no function", function(g) g:call() end, "what to call must be a function" },
    { "a string for a function", function(g) g:call("f") end, "what to call must be a function" },
    { "a dot for a colon", function(g) g.call(ok) end, "with a colon" },
    { "another guard's method", function(g) g.call(fixture.guard(), ok) end, "with a colon" },
    { "a key that is a number", function(g) g:acquire(5) end, "key must be a string" },
    { "a report of nothing", function(g) g:report(g:acquire()) end,
      "what the call came to must be" },
    { "a report of a number", function(g) g:report(g:acquire(), 5) end,
      "outcome must be" },
    { "an outcome that is none", function(g) g:report(g:acquire(), "fine") end, "outcome must be" },
    { "a permit that is none", function(g) g:report("x", {}) end,
      "permit must be what acquire gave" },
    { "no permit", function(g) g:report(nil, { status = 200 }) end,
      "permit must be what acquire gave" },
    { "a file for a permit", function(g) g:report(io.stdout, { status = 200 }) end, "neap.permit" },
  } do
    it(("raises on %s, with nothing taken or counted"):format(case[1]), function()
      local g = fixture.guard()
      local before = g:snapshot()
      assert.error_matches(function() case[2](g) end, case[3], 1, true)
      assert.same(before, g:snapshot())
    end)
  end

  it("raises when the panel has been closed, also under a call (B184, B187)", function()
    local panel = core.panel(2)
    local g = fixture.guard({}, { panel = panel })
    local permit = g:acquire()
    assert.error_matches(function() g:call(function() panel:close() end) end, "closed")
    for _, use in ipairs {
      function() g:call(ok) end, function() g:acquire() end, function() g:acquire("k") end,
      function() g:report(permit, "success") end, function() g:report(permit, {}) end,
      function() g:snapshot() end, function() g:reset() end, function() g:mode(nil, "shadow") end,
    } do assert.error_matches(use, "closed") end
  end)
end)

describe("time", function()
  it("is measured, and a slow call told from a fast one", function()
    local g, now = fixture.guard { numbers = { slow_call_ms = 100, slow_rate = 1,
      minimum_calls = 100 } }
    g:call(function() now:advance(100) end)
    g:call(function() now:advance(101) end)
    g:call(function() now:advance(101) return nil, "x" end)
    local t = totals(g)
    assert.same({ 1, 1, 1 }, { t.success, t.slow_success, t.slow_failure })
  end)

  it("over the timeout is a timeout, found out when the call ends", function()
    local g, now = fixture.guard { numbers = { timeout_ms = 50, lease_ms = 500 } }
    g:call(function() now:advance(50) end)
    assert.equal(0, totals(g).timeout)
    assert.same({ "late" }, { g:call(function() now:advance(51) return "late" end) })
    assert.same({ 1, 1, 1 }, { totals(g).success, totals(g).failure, totals(g).timeout })
  end)

  it("that is left can be asked for, first thing", function()
    local g = fixture.guard { numbers = { timeout_ms = 50, lease_ms = 500 } }
    assert.equal(10050, g:call(function() return g:deadline() end))
    assert.is_nil((fixture.guard():call(function(g2) return g2:deadline() end, fixture.guard())))
  end)

  it("that goes back takes no time", function()
    local g, now = fixture.guard { numbers = { timeout_ms = 50, lease_ms = 500 } }
    assert.equal("ok", g:call(function() now:advance(-5000) return "ok" end))
    assert.same({ 1, 0 }, { totals(g).success, totals(g).timeout })
  end)

  it("comes from the system unless said otherwise", function()
    for _, clock in ipairs { "coarse", "precise" } do
      local g = guard.new(fixture.policy(), { clock = clock })
      assert.equal("ok", g:call(ok))
      assert.is_true(math.abs(core.clock_precise() - g.line.native:now()) < 1000)
    end
  end)

  it("that is none raises, before anything is taken", function()
    for _, wrong in ipairs { 0 / 0, -1, math.huge, "5", false } do
      local at = 0
      local g = guard.new(fixture.policy(), { clock = function() return at end })
      at = wrong
      assert.error_matches(function() g:call(ok) end, "clock must answer milliseconds")
      at = 0
      assert.equal(0, totals(g).success)
    end
  end)
end)

describe("a host that gives calls up", function()
  local host = { name = "test" }
  function host.run(timeout_ms, f, ...)
    if host.is_late then return false end
    assert(timeout_ms == 50)
    return true, f(...)
  end
  local function hosted(fields)
    fields = fields or {}
    fields.numbers = { timeout_ms = 50, lease_ms = 500 }
    return fixture.guard(fields, { host = host })
  end
  before_each(function() host.is_late = false end)

  it("runs what has a timeout, and only that", function()
    host.is_late = true
    assert.equal("ok", fixture.guard({}, { host = host }):call(ok))
    local g = hosted()
    local value, err = g:call(ok)
    assert.same({ nil, "timeout", 50 }, { value, err.kind, err.timeout_ms })
    assert.equal("p/default: the call took longer than allowed (50 ms)", tostring(err))
    assert.equal(1, totals(g).timeout)
  end)

  it("otherwise changes nothing", function()
    local g = hosted()
    assert.same({ 1, nil, 3 }, { (function(...) return ... end)(1, nil, 3) })
    assert.same({ 2, nil }, { g:call(function(...) return select("#", ...), (...) end, nil, nil) })
    assert.same({ nil, "down" }, { g:call(bad) })
    local err = {}
    assert.equal(err, select(2, pcall(g.call, g, error, err)))
    assert.same({ 1, 2, 0 }, { totals(g).success, totals(g).failure, totals(g).timeout })
  end)

  it("asks the chain when it gives one up", function()
    local g = hosted { stages = { fixture.stage(function(call) return call.ended_by end) } }
    host.is_late = true
    local value, err, info = g:call(ok)
    assert.same({ "timeout", nil, "function" }, { value, err, info.source })
  end)
end)

describe("classify", function()
  local seen
  local function spy(call)
    seen = {
      key = call.key, result = call.result, error = call.error, raised = call.raised,
        ended_by = call.ended_by,
      duration_ms = call.duration_ms, args = { unpack(call.args, 1, call.args.n) },
        n = call.args.n,
    }
    return call.result == "odd" and "neutral" or not call.raised and not call.error and "success"
      or "failure"
  end

  it("sees everything about a call", function()
    local g, now = fixture.guard { classify = spy }
    g:call(function() now:advance(7) return "value", "and more" end, "a", nil, 3)
    assert.same({ key = "default", result = "value", ended_by = "answer", duration_ms = 7,
      args = { "a", nil, 3 }, n = 3 }, seen)
    g:call(bad, "b")
    assert.same({ key = "default", error = "down", ended_by = "answer", duration_ms = 0,
      args = { "b" }, n = 1 }, seen)
    local err = {}
    pcall(g.call, g, error, err)
    assert.is_true(seen.raised)
    assert.equal(err, seen.error)
    g:call(ok)
    assert.same({ key = "default", result = "ok", ended_by = "answer", duration_ms = 0, args = {},
      n = 0 }, seen)
  end)

  it("sees a second result as an error only beside nil or false, also of a probe", function()
    local g, now = fixture.guard { classify = spy }
    fixture.open(g)
    now:advance(1000)
    g:call(function() return "value", "and more" end)
    assert.same({ "value", nil, "closed" }, { seen.result, seen.error, g:snapshot().state })
    g:call(function() return false, "why" end)
    assert.same({ false, "why" }, { seen.result, seen.error })
  end)

  it("sees no argument of an earlier call", function()
    local left
    local g = fixture.guard { classify = function(call)
      left = call.args[2]
      return "success"
    end }
    g:call(ok, 1, 2, 3)
    assert.equal(2, left)
    g:call(ok, 1)
    assert.is_nil(left)
  end)

  it("decides: what it calls neutral counts nowhere", function()
    local g = fixture.guard { classify = spy }
    assert.equal("odd", g:call(function() return "odd" end))
    local t = totals(g)
    assert.same({ 0, 0, 1 }, { t.success, t.failure, t.neutral })
    assert.equal(1, g:snapshot().neutral_share)
  end)

  it("can ask for time before the breaker closes again", function()
    local g = fixture.guard {
      numbers = { consecutive_failures = 1 }, classify = function() return "failure", "busy",
        7000 end,
    }
    g:call(ok)
    assert.equal(7000, g:snapshot().retry_after_ms)
  end)

  it("is lent the call: it can't keep or change it for the next", function()
    local kept
    local g, _, lines = fixture.guard { classify = function(call)
      kept = call
      if call.result == "write" then call.status = 5 end
      if call.result == "write2" then call.result = 5 end
      return "success"
    end }
    local big = { "big" }
    assert.equal(big, g:call(function() return big end))
    assert.is_nil(kept.result)
    g:call(function() return "write" end)
    g:call(function() return "write2" end)
    g:call(ok)
    assert.is_nil(kept.status)
    assert.equal(4, totals(g).success)
    assert.matches("read%-only", lines[1])
    assert.is_false(getmetatable(kept))
  end)

  it("that raises, yields or talks nonsense is replaced for this call, and logged", function()
    local does
    local g, now, lines = fixture.guard { classify = function() return does() end,
      numbers = { consecutive_failures = 100 } }
    local function faults() return g:stats().policy_errors end
    for i, wrong in ipairs {
      function() error("wrong") end, function() error() end, function() error({}) end,
      function() error(setmetatable({}, { __tostring = error })) end,
      function() return "fine" end, function() end, function() return true end, coroutine.yield,
    } do
      does = wrong
      assert.equal("ok", coroutine.wrap(function() return g:call(ok) end)())
      coroutine.wrap(function() g:call(bad) end)()
      assert.same({ i, i, 2 * i }, { totals(g).success, totals(g).failure, faults() })
    end
    assert.equal(1, #lines)
    assert.matches("^error p: classify: .*wrong", lines[1])
    now:advance(60000)
    g:call(ok)
    assert.equal(2, #lines)
  end)

  it("reports a fault itself: it is counted, its verdict stands", function()
    local g, _, lines = fixture.guard { classify = function() return "success", nil, nil,
      "took too long" end }
    assert.equal("ok", g:call(ok))
    assert.same({ nil, "down" }, { g:call(bad) })
    assert.same({ 2, 2, 1 }, { totals(g).success, g:stats().policy_errors, #lines })
  end)
end)

describe("a guard", function()
  it("is made of a policy and options that are known", function()
    for _, case in ipairs {
      { function() guard.new() end,
        "policy must be a file's path, or what neap.policy.load gave, got nil" },
      { function() guard.new({}) end, "policy must be" },
      { function() guard.new(fixture.policy(), 5) end, "options must be a table" },
      { function() guard.new(fixture.policy(), { pannel = 1 }) end,
        "there is no option pannel: did you mean panel?" },
      { function() guard.new(fixture.policy(), { max_keys = 1.5 }) end,
        "max_keys must be a whole number" },
      { function() guard.new(fixture.policy(), { max_keys = "5" }) end,
        "max_keys must be a number" },
      { function() guard.new(fixture.policy(), { on_event = 5 }) end,
        "on_event must be a function" },
      { function() guard.new(fixture.policy(), { clock = "fast" }) end, "clock must be" },
      { function() guard.new(fixture.policy(), { panel = io.stdout }) end, "panel" },
    } do assert.error_matches(case[1], case[2], 1, true) end
  end)

  it("has a breaker in the panel it is given; a full one is an error that names it", function()
    local panel = core.panel(1)
    fixture.guard({}, { panel = panel })
    assert.equal("p/default", panel:rows()[1]:name())
    assert.error_matches(function() fixture.guard({ name = "q" }, { panel = panel }) end,
      "no breaker for q in neap.panel %(1 of 1 rows%)")
  end)

  it("shares its breaker with others of that name in the panel", function()
    local panel = core.panel(2)
    local a, b = fixture.guard({}, { panel = panel }), fixture.guard({}, { panel = panel })
    fixture.open(a)
    assert.equal("open", b:snapshot().state)
  end)
end)
