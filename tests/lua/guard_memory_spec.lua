--- What a call costs in memory: nothing, while all is well.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"
local neap = require "neap"
local version = require "tests.lua.version"

local ok = fixture.ok

local last_good = { kind = "last_good", max_age_ms = 60000, max_entries = 100, max_bytes = 100000 }

describe("no memory is taken by", function()
  local g, r, b
  local cases = {
    { "a call", function() g:call(ok) end },
    { "a call with arguments", function() g:call(ok, 1, "two", nil) end },
    { "the two steps", function() g:report(g:acquire(), "success") end },
    { "a failure in two steps", function() g:report(g:acquire(), "failure") end },
    { "a line's call", function(line) line:call(ok) end, key = "eu" },
    { "a call with classify", function() g:call(ok, "key") end,
      { classify = function(call) return call.result == "ok" and "success" or "failure" end } },
    { "a call that is remembered", function() g:call(ok, "key") end, { stages = { last_good } } },
    { "a call of the shadow mode that is let in", function()
      g:call(ok) end, { numbers = { mode = "shadow" } } },
    { "a breaker's methods", function() b:report(r, 5, b:acquire(r, 5), "success", 1, 0) end },
    { "a look at the state", function() return b:state(r, 5), b:peek(r, 5), b:next_ms(r, 5),
      b:name() end },
  }
  for _, case in ipairs(cases) do
    it(case[1], function()
      local fields = case[3] or {}
      fields.numbers = fields.numbers or { consecutive_failures = 1000000 }
      g = fixture.guard(fields, { clock = "coarse" })
      r, b = g.policy.rules, core.breaker()
      local line = case.key and g:at(case.key)
      assert.equal(0, fixture.allocated(fixture.rounds(10000), function() case[2](line) end))
    end)
  end

  it("bound closures", function()
    local acquire, report = core.breaker():bind(fixture.rules())
    assert.equal(0, fixture.allocated(fixture.rounds(10000), function()
      report(acquire(), "success") end))
  end)

  it("a call of a policy file that classifies", function()
    local p = assert(neap.policy.parse([[return {
      name = "p", trip = { consecutive_failures = 5 },
      classify = function(call) return call.result == "ok" and "success" or "failure" end,
    }]], "p.lua"))
    g = neap.guard(p)
    assert.equal(0, fixture.allocated(fixture.rounds(10000), function() g:call(ok, "key") end))
    assert.equal(0, g:stats().policy_errors)
  end)
end)

describe("nothing is left behind by", function()
  local function settles(n, f)
    for _ = 1, n do f() end
    version.collect()
    local least = math.huge
    for _ = 1, 3 do -- Lua's table of strings may be doubled once; what leaks grows each time
      local before = collectgarbage("count")
      for _ = 1, 10 * n do f() end
      version.collect()
      least = math.min(least, collectgarbage("count") - before)
      if least < 16 then return end
    end
    error(("grew by %.0f kB"):format(least))
  end

  it("calls of every kind", function()
    local g, now = fixture.guard({ stages = {
      last_good, { kind = "guard", guard = "nobody" }, { kind = "fail" },
    } }, { log = function() end }) -- the fixture's own would keep every line
    local n = 0
    settles(fixture.rounds(1000), function()
      n = n + 1
      g:call(n % 3 == 0 and ok or fixture.bad, n % 200)
      pcall(g.call, g, error, {})
      coroutine.wrap(function() pcall(g.call, g, coroutine.yield) end)()
      g:at("k" .. n % 10):call(ok)
      g:acquire("k" .. n % 10)
      if n % 5 == 0 then g:reset() end
      now:advance(n % 7 * 200)
    end)
  end)

  it("guards, lines and panels", function()
    settles(fixture.rounds(200), function()
      local g = fixture.guard({}, { panel = core.panel(4), on_event = print })
      g:at("a"):call(ok)
      g:acquire("b")
    end)
  end)

  it("generations of a policy", function()
    local text = [[return {
      name = "p", trip = { consecutive_failures = 5 },
      classify = classify.errors { record = { "down" } },
      fallback = { fallback.last_good { max_age_ms = 1000 } },
    }]]
    local g = neap.guard(assert(neap.policy.parse(text, "p.lua")))
    settles(fixture.rounds(300), function() g:adopt(assert(neap.policy.parse(text, "p.lua"))) end)
  end)

  it("arguments and results that classify has seen", function()
    local g = fixture.guard { classify = function() return "success" end }
    local seen = setmetatable({}, { __mode = "k" })
    for i = 1, 5 do
      local t = { i }
      seen[t] = true
      g:call(function(...) return (select(i, ...)) end, t, t, t, t, t)
    end
    collectgarbage()
    collectgarbage()
    assert.is_nil((next(seen)))
  end)
end)
