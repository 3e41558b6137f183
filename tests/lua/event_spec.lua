local event = require "neap.event"
local fixture = require "tests.lua.fixture"

describe("events", function()
  it("say what happened with the numbers that made it so", function()
    local seen = {}
    local g, now = fixture.guard({}, { on_event = function(e) seen[#seen + 1] = e end })
    fixture.open(g)
    assert.same({
      policy = "p", key = "default", hash = "h1", from = "closed", to = "open",
        cause = "consecutive_failures", measured = 3,
      limit = 3, calls = 3, epoch = 1, level = 1, open_ms = 1000, flapping = false, at_ms = 10000,
    }, seen[1])
    assert.equal("p/default: closed -> open: 3 failures in a row, limit 3; open for 1000 ms, "
      .. "level 1", tostring(seen[1]))
    assert.equal("neap.guard (p, h1)", tostring(g))
    now:advance(1000)
    g:call(fixture.bad)
    assert.same({ "half_open", "cooldown", 11000 }, { seen[2].to, seen[2].cause, seen[2].at_ms })
    assert.same({ "open", "probes", 2, 2000 }, { seen[3].to, seen[3].cause, seen[3].level,
      seen[3].open_ms })
    g:reset(nil, "alice")
    assert.same({ "closed", "reset", "alice" }, { seen[4].to, seen[4].cause, seen[4].by })
    g:trip(nil, 700, "bob")
    assert.same({ "open", "trip", "bob", 700 }, { seen[5].to, seen[5].cause, seen[5].by,
      seen[5].open_ms })
  end)

  it("count one in the singular", function()
    local seen
    local g = fixture.guard({ numbers = { consecutive_failures = 1 } },
      { on_event = function(e) seen = e end })
    g:call(fixture.bad)
    assert.matches("1 failure in a row, limit 1;", tostring(seen), 1, true)
    local one = event.new { policy = "p", key = "k", from = "closed", to = "half_open",
      cause = "failures", measured = 1, limit = 1, calls = 1 }
    assert.equal("p/k: closed -> half_open: 1 failure in 1 call, limit 1", tostring(one))
    local none = event.new { policy = "p", key = "k", from = "closed", to = "half_open",
      cause = "failures", measured = 0, limit = 1, calls = 0 }
    assert.equal("p/k: closed -> half_open: 0 failures in 0 calls, limit 1", tostring(none))
  end)

  it("come from every way a breaker can move", function()
    local causes = {}
    local g, now = fixture.guard({ numbers = { lease_ms = 100 } }, { on_event = function(e)
      causes[#causes + 1] = e.cause end })
    local permits = { g:acquire(), g:acquire(), g:acquire() }
    for _, permit in ipairs(permits) do g:report(permit, "failure") end
    now:advance(1000)
    local lost = assert(g:acquire())
    now:advance(101)
    assert.is_nil((g:acquire()))
    assert.equal("stale", select(2, g:report(lost, "success")))
    now:advance(2000)
    g:report(g:acquire(), { result = 1 })
    assert.same({ "consecutive_failures", "cooldown", "probe_lost", "cooldown", "probes" }, causes)
  end)

  it("are told after the fact: the guard a handler sees has moved, and can be used (B107)",
    function()
    local g, states = nil, {}
    g = fixture.guard({}, { on_event = function(e)
      states[#states + 1] = e.to .. "=" .. g:snapshot().state
      if e.cause == "consecutive_failures" then
        g:reset()
        g:trip()
        states[#states + 1] = "handled"
      end
    end })
    fixture.open(g)
    assert.same({ "open=open", "handled", "closed=open", "open=open" }, states)
  end)

  it("form a chain for each handler, whatever handlers do meanwhile (B106, B107)", function()
    local g, busy, chains = nil, false, { {}, {} }
    local function handler(chain, acts)
      return function(e)
        assert(not busy, "two at once")
        busy = true
        chain[#chain + 1] = e
        if acts and #chain % 3 == 0 and #chain < 60 then
          g:reset()
          g:trip()
        end
        busy = false
      end
    end
    g = fixture.guard()
    g.events:on(handler(chains[1], true))
    g.events:on(function() error "always" end)
    g.events:on(handler(chains[2], false))
    local rounds = fixture.rounds(100)
    for i = 1, rounds do
      if i % 2 == 0 then g:trip() else g:reset() end
    end
    assert.is_true(#chains[1] > rounds)
    for _, chain in ipairs(chains) do
      assert.equal(#chains[1], #chain)
      for i = 2, #chain do
        assert.equal(chain[i - 1].to, chain[i].from)
        assert.equal((chain[i - 1].epoch + 1) % 131072, chain[i].epoch)
      end
    end
  end)

  it("that a handler causes without end do not keep the caller for ever", function()
    local g
    local told = 0
    g = fixture.guard({}, { on_event = function() told = told + 1 g:reset() end })
    g:trip()
    assert.is_true(told >= 50 and told <= 200)
    local before = told
    g:reset()
    assert.is_true(told > before)
  end)

  it("reach the others when one handler raises, yields or is slow of mind, and that is logged",
    function()
    local g, _, lines = fixture.guard()
    local told = {}
    for i, wrong in ipairs {
      function() error("wrong") end, coroutine.yield, function() error() end, function()
        error(setmetatable({}, { __tostring = error })) end,
    } do
      g.events:on(wrong)
      g.events:on(function() told[i] = true end)
    end
    coroutine.wrap(function() g:trip() end)()
    assert.same({ true, true, true, true }, told)
    assert.same({ 1, true }, { #lines, lines[1]:find("error p: event handler: .*wrong") ~= nil })
  end)

  it("reach a handler once, however often it is registered (B161)", function()
    local g, told = fixture.guard(), 0
    local function handler() told = told + 1 end
    for _ = 1, 1000 do assert.equal(handler, g.events:on(handler)) end
    g:trip()
    assert.equal(1, told)
    g:adopt(fixture.policy())
    g:reset()
    assert.equal(2, told)
  end)

  it("do not reach a handler that was taken off, not even those that wait (B106)", function()
    local g, told = fixture.guard(), {}
    local function second(e) told[#told + 1] = e.cause end
    g.events:on(function(e)
      if e.cause == "trip" then
        g:reset()
        assert.is_true(g.events:off(second))
      end
    end)
    g.events:on(second)
    g:trip()
    g:reset()
    assert.same({}, told)
    assert.is_false(g.events:off(second))
  end)

  it("reach one that was added by another from the next on", function()
    local g, told = fixture.guard(), {}
    g.events:on(function() g.events:on(function(e) told[#told + 1] = e.cause end) end)
    g:trip()
    g:reset()
    assert.equal("reset", told[1])
  end)

  it("need a function to be told to", function()
    assert.error_matches(function() event.queue(print):on(5) end,
      "handler must be a function, got number")
  end)

  it("of guards that are gone are told to nobody, and nothing is kept of them (B110)", function()
    local told = 0
    local function make()
      local g = fixture.guard({}, { on_event = function() told = told + 1 end })
      g:trip()
    end
    local some = fixture.rounds(100)
    for _ = 1, some do make() end
    collectgarbage()
    collectgarbage()
    local before = collectgarbage("count")
    local more = fixture.rounds(2000)
    for _ = 1, more do make() end
    collectgarbage()
    collectgarbage()
    assert.is_true(collectgarbage("count") - before < 32)
    assert.equal(some + more, told)
  end)

  it("of one breaker come in order, one at a time, through twenty thousand rounds (B106)",
    function()
    local last, g, now
    g, now = fixture.guard({}, { on_event = function(e)
      assert(not last or last.to == e.from)
      last = e
    end })
    local rounds = fixture.rounds(20000)
    for i = 1, rounds do
      g:call(i % 3 == 0 and fixture.ok or fixture.bad)
      if i % 7 == 0 then g:reset() end
      if i % 11 == 0 then g:trip() end
      now:advance(i % 5 * 300)
    end
    assert.is_truthy(last)
  end)
end)
