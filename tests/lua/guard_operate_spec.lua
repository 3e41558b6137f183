--- What an operator does with a guard: keys, modes, reset, trip, snapshot, stats, reload.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"

local ok, bad = fixture.ok, fixture.bad

local function totals(g, key) return g:snapshot(key).totals end

describe("keys", function()
  it("have breakers of their own, made by their first call", function()
    local g = fixture.guard()
    for _ = 1, 3 do g:at("eu"):call(bad) end
    assert.same({ "open", "closed" }, { g:snapshot("eu").state, g:snapshot().state })
    assert.same({ nil, "p has no key us yet" }, { g:snapshot("us") })
    local keys = {}
    for i, row in ipairs(g:breakers()) do keys[i] = row.key end
    assert.same({ "*", "default", "eu" }, keys)
  end)

  it("beyond max_keys share one breaker, are counted, and logged once a minute (B113)", function()
    local g, _, lines = fixture.guard({}, { max_keys = 3 })
    local n = fixture.rounds(100000)
    for i = 1, n do
      local permit = g:acquire("host-" .. i)
      g:report(permit, "success")
    end
    assert.equal(5, #g:breakers())
    assert.same({ n - 3, n - 3 }, { totals(g, "*").success, g:stats().overflow })
    assert.equal(1, #lines)
    assert.matches("no room for another key", lines[1])
    assert.equal("host-2", g:at("host-2").key)
    assert.equal("*", g:at("host-4").key)
  end)

  for _, key in ipairs { ("x"):rep(5000), "a\0b", ("\255"):rep(103) } do
    it(("that can't be a name share it too: %d bytes"):format(#key), function()
      local g = fixture.guard()
      assert.equal("*", g:at(key).key)
      assert.equal(1, g:stats().overflow)
    end)
  end

  it("share it when the panel is full, and the guard goes on", function()
    local panel = core.panel(2)
    local g = fixture.guard({}, { panel = panel })
    assert.equal("*", g:at("a").key)
    assert.equal("*", g:at("b").key)
    assert.same({ 2, 2 }, { panel:count(), g:stats().overflow })
    panel = core.panel(1)
    g = fixture.guard({}, { panel = panel })
    assert.equal("ok", g:at("a"):call(ok))
    assert.equal(1, totals(g, "*").success)
  end)

  it("beyond max_keys share it though the panel has room", function()
    local g = fixture.guard({}, { panel = core.panel(10), max_keys = 2 })
    assert.same({ "a", "b", "*" }, { g:at("a").key, g:at("b").key, g:at("c").key })
  end)

  it("may be any text: empty, with slashes, named as others are", function()
    local g = fixture.guard()
    for _, key in ipairs { "", "a/b", "ü", "%s", "*", "default" } do
      assert.equal(key, g:at(key).key)
    end
    assert.equal(g.line, g:at("default"))
  end)
end)

describe("modes", function()
  it("go before the policy's, with who set them and for how long", function()
    local g, now, lines = fixture.guard { numbers = { mode = "shadow" } }
    assert.equal("shadow", g:snapshot().mode)
    assert.is_nil(g:operator())
    assert.is_true(g:mode(nil, "forced_open",
      { for_ms = 5000, by = "alice", reason = "migration" }))
    assert.same({ "forced_open", true, 5000 }, { g:snapshot().mode, g:snapshot().mode_is_operators,
      g:snapshot().mode_left_ms })
    assert.same({ mode = "forced_open", by = "alice", reason = "migration", at_ms = 10000,
      until_ms = 15000 }, g:operator())
    assert.equal("info p/default: mode forced_open for 5000 ms by alice: migration", lines[1])
    now:advance(1000)
    local refused = select(2, g:call(ok))
    assert.same({ "forced_open", 4000 }, { refused.kind, refused.retry_after_ms })
    now:advance(4000)
    assert.is_nil(g:operator())
    assert.equal("ok", g:call(ok))
    assert.is_nil(g:operator())
    assert.equal("warning p/default: the time of mode forced_open, set by alice, is over: auto "
      .. "again", lines[2])
    assert.is_nil(lines[3])
  end)

  it("that end by themselves are told then, where the host has timers, early ones too", function()
    local timers = {}
    local host = { name = "test", later = function(ms, f) timers[#timers + 1] = { ms, f } end }
    local g, now, lines = fixture.guard(nil, { host = host })
    g:mode(nil, "forced_open", { for_ms = 5000, by = "alice" })
    now:advance(4998)
    timers[1][2]()
    assert.same({ 5000, 2, 1 }, { timers[1][1], timers[2][1], #lines })
    now:advance(2)
    timers[2][2]()
    assert.equal("warning p/default: the time of mode forced_open, set by alice, is over: auto "
      .. "again", lines[2])
    g:mode(nil, "forced_open", { for_ms = 5000 }) -- replaced before its time, and then given back
    g:mode(nil, "forced_closed", { for_ms = 9000 })
    g:mode(nil, nil)
    now:advance(10000)
    for i = 3, 4 do timers[i][2]() end
    assert.same({ 4, 5 }, { #timers, #lines })
    g:mode(nil, "shadow") -- for good
    assert.equal(4, #timers)
  end)

  it("last until they are given back, through reloads", function()
    local g, now = fixture.guard()
    g:mode("default", "forced_closed", { by = "bob" })
    now:advance(1e9)
    g:adopt(fixture.policy { numbers = { mode = "forced_open" } })
    assert.same({ "forced_closed", "bob" }, { g:snapshot().mode, g:operator().by })
    assert.equal("ok", g:call(ok))
    g:mode("default", nil)
    assert.same({ "forced_open", nil }, { g:snapshot().mode, g:operator() })
  end)

  it("forced_closed and shadow let calls in that would be refused; they count, and change nothing",
    function()
    for _, mode in ipairs { "forced_closed", "shadow" } do
      local g = fixture.guard()
      fixture.open(g)
      g:mode(nil, mode)
      for _ = 1, 10 do assert.equal("ok", g:call(ok)) end
      assert.same({ nil, "down" }, { g:call(bad) })
      local t = totals(g)
      assert.same({ 11, "open" }, { t.bypassed, g:snapshot().state })
      assert.same({ "success", "counted" }, { g:report(g:acquire(), "success") })
    end
  end)

  it("that are none, or too long, or of no key are refused", function()
    local g = fixture.guard()
    local function raised(method, ...)
      return select(2, pcall(g[method], g, nil, ...)) -- its place is the caller's: none here
    end
    assert.equal('mode must be "auto", "forced_open", "forced_closed", "shadow", or nil for the '
      .. 'policy\'s, got "forced_opn": did you mean forced_open?', raised("mode", "forced_opn"))
    assert.equal('for_ms must be milliseconds, got "5s"', raised("mode", "auto", { for_ms = "5s" }))
    assert.equal('open_ms must be milliseconds, got "5s"', raised("trip", "5s"))
    assert.matches("31 days", select(2, g:mode(nil, "shadow", { for_ms = 40 * 86400000 })))
    assert.same({ nil, "p has no key x yet" }, { g:mode("x", "shadow") })
    -- for good, if nobody looked at it
    assert.error_matches(function() g:mode(nil, "forced_open", { form_ms = 1000 }) end,
      "an action has no form_ms: did you mean for_ms?")
    assert.error_matches(function() g:mode(nil, "forced_open", 1000) end,
      "action must be a table, got number")
    assert.is_nil(g:operator())
    assert.equal("auto", g:snapshot().mode)
  end)
end)

describe("by hand", function()
  it("a breaker is reset and tripped", function()
    local g = fixture.guard()
    fixture.open(g)
    assert.is_true(g:reset())
    assert.equal("ok", g:call(ok))
    assert.is_true(g:trip(nil, 300))
    assert.equal(300, select(2, g:call(ok)).retry_after_ms)
    assert.matches("at most max_cooldown_ms", select(2, g:trip(nil, 1e9)))
    g:reset()
    assert.same({ nil, "open_ms -5: must be over 0 and at most max_cooldown_ms, 60000" },
      { g:trip(nil, -5) })
    assert.matches("open_ms 0: must be over 0", select(2, g:trip(nil, 0)), nil, true)
    assert.equal("closed", g:snapshot().state)
    assert.same({ nil, "p has no key x yet" }, { g:reset("x") })
    assert.same({ nil, "p has no key x yet" }, { g:trip("x") })
  end)
end)

describe("whatever was done to a guard", function()
  it("healthy calls close it again within a cooldown and its probes (B116)", function()
    local seed = os.time()
    math.randomseed(seed)
    for round = 1, fixture.rounds(300) do
      local g, now = fixture.guard { numbers = { probes = 3, successes = 2, concurrent = 2 } }
      local permits = {}
      local acts = {
        function() g:call(ok) end,
        function() g:call(bad) end,
        function() permits[#permits + 1] = g:acquire() end,
        function() g:report(table.remove(permits) or g:acquire() or 1, "success") end,
        function() g:report(table.remove(permits, 1) or g:acquire() or 1, "failure") end,
        function() g:report(table.remove(permits) or g:acquire() or 1, "neutral") end,
        function() permits = {} collectgarbage "step" end,
        function() g:trip() end,
        function() g:reset() end,
        function() now:advance(math.random(2000)) end,
        function() g:adopt(fixture.policy { numbers = { probes = math.random(3), successes = 1 } })
          end,
      }
      for _ = 1, math.random(40) do acts[math.random(#acts)]() end
      -- Probes that are out may be lost first, with a cooldown of their own.
      for _ = 1, 4 do
        now:advance(60000)
        for _ = 1, 4 do g:call(ok) end
      end
      assert.equal("closed", g:snapshot().state, ("seed %d, round %d"):format(seed, round))
    end
  end)
end)

describe("a snapshot", function()
  it("says whose it is and what share of the calls said nothing", function()
    local g = fixture.guard { classify = function(call)
      return call.result == 1 and "neutral" or "success" end }
    for i = 1, 4 do g:call(function() return i end) end
    local s = g:snapshot()
    assert.same({ "p", "default", "h1", 0.25 }, { s.policy, s.key, s.hash, s.neutral_share })
  end)

  it("is warned of when most calls say nothing, now and then", function()
    local g, _, lines = fixture.guard { classify = function(call)
      return call.result == "ok" and "success" or "neutral"
    end }
    for _ = 1, 40 do g:call(ok) end
    for _ = 1, 39 do g:call(bad) end
    assert.same({}, lines)
    for _ = 1, 100 do g:call(bad) end
    assert.same({ "warning p: default: 62 % of the calls are neutral: the breaker sees little" },
      lines)
  end)

  it("changes nothing, however often it is taken", function()
    local g, now = fixture.guard()
    fixture.open(g)
    now:advance(1000)
    local first = g:snapshot()
    for _ = 1, 100 do assert.same(first, g:snapshot()) end
    assert.equal("half_open", first.state)
  end)
end)

describe("stats", function()
  it("count faults, reloads and breakers", function()
    local g = fixture.guard()
    g:adopt(fixture.policy { hash = "h2" })
    g:adopt_failed("p.lua:3: no")
    local s = g:stats()
    assert.same({ ok = 1, failed = 1 }, s.reloads)
    assert.same({ 0, 0, 1, "h2", "p.lua:3: no" }, { s.policy_errors, s.overflow, s.breakers, s.hash,
      s.last_error })
    g:adopt(fixture.policy())
    assert.is_nil(g:stats().last_error)
  end)

  it("count calls from the first one on (B163)", function()
    local g = fixture.guard()
    g:call(ok)
    assert.equal(1, totals(g).success)
  end)
end)

describe("adopting another generation", function()
  it("keeps state, deadline, counts, probes, keys (B112, B119)", function()
    local g, now = fixture.guard()
    for _ = 1, 2 do g:call(bad) end
    fixture.open(g:at("eu") and g)
    now:advance(400)
    local before = g:snapshot()
    g:adopt(fixture.policy { hash = "h2", numbers = { consecutive_failures = 50 } })
    local after = g:snapshot()
    assert.same({ "open", 600, 3, "h2" }, { after.state, after.retry_after_ms, after.totals.failure,
      after.hash })
    assert.equal(before.epoch, after.epoch)
    now:advance(600)
    local probe = g:acquire()
    g:adopt(fixture.policy())
    assert.equal(1, g:snapshot().probes_in_flight)
    g:report(probe, "success")
    assert.equal("closed", g:snapshot().state)
  end)

  it("puts the new thresholds in force at once, for all keys", function()
    local g = fixture.guard()
    g:at("eu"):call(bad)
    g:adopt(fixture.policy { numbers = { consecutive_failures = 2 } })
    g:at("eu"):call(bad)
    assert.equal("open", g:snapshot("eu").state)
  end)

  it("puts its functions in force, and out again", function()
    local g = fixture.guard()
    g:adopt(fixture.policy { classify = function() return "neutral" end })
    g:call(ok)
    g:adopt(fixture.policy())
    g:call(ok)
    assert.same({ 1, 1 }, { totals(g).neutral, totals(g).success })
  end)

  it("leaves nothing to it that the old one put into the calls it was shown", function()
    local seen
    local function look(call)
      seen = { call.result, call.args.n, call.args[1], call.args[2], call.args.mine }
      return "success"
    end
    local g = fixture.guard { classify = function(call)
      rawset(call, "result", "old")
      rawset(call.args, "mine", "old")
      rawset(call.args, "n", 7)
      rawset(call.args, 2, "old")
      return "success"
    end }
    g:call(ok, 1)
    g:adopt(fixture.policy { classify = look })
    g:call(ok, 1)
    assert.same({ "ok", 1, 1 }, seen)
  end)

  it("logs what it warns of", function()
    local g, _, lines = fixture.guard()
    g:adopt(fixture.policy { warnings = { "p.lua:3: probes of 31 is a lot" } })
    assert.same({ "warning p: p.lua:3: probes of 31 is a lot" }, lines)
  end)

  it("is refused for another policy, or for what is none; the old one goes on", function()
    local g = fixture.guard()
    for _, wrong in ipairs { fixture.policy { name = "q" }, {}, "p", 5,
      { name = "p", rules = {}, stages = {} } } do
      assert.is_false(pcall(g.adopt, g, wrong))
      assert.equal("h1", g.policy.hash)
      assert.equal("ok", g:call(ok))
    end
    assert.equal(0, g:stats().reloads.ok)
  end)

  it("can happen in the middle of a call, and of an event", function()
    local g
    g = fixture.guard({}, { on_event = function() g:adopt(fixture.policy { hash = "h3" }) end })
    assert.equal("ok", g:call(function()
      g:adopt(fixture.policy { hash = "h2" })
      return "ok"
    end))
    g:trip()
    assert.equal("h3", g.policy.hash)
  end)
end)
