--- What guards call on the way, and what is called below them, that can't wait.
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"

describe("code that is called on the way and can't wait", function()
  -- What happens, and then: the permit is not lost, the guard goes on.
  local function still_works(g)
    assert.equal(0, g:snapshot().probes_in_flight)
    assert.equal("ok", g:call(fixture.ok))
  end
  local function in_coroutine(f)
    local co = coroutine.create(f)
    local got = version.pack(coroutine.resume(co))
    while coroutine.status(co) ~= "dead" do got = version.pack(coroutine.resume(co, "resumed")) end
    return version.unpack(got, 1, got.n)
  end

  it("gets an error: classify, a fallback function, an event handler (B167)", function()
    local g, _, lines = fixture.guard {
      classify = function() coroutine.yield() end, numbers = { consecutive_failures = 1 },
    }
    g.events:on(coroutine.yield)
    assert.same({ true, nil, "down" }, { in_coroutine(function() return g:call(fixture.bad) end) })
    assert.equal("open", g:snapshot().state)
    local all = table.concat(lines, "\n")
    assert.matches("classify: .*yield", all)
    assert.matches("event handler: .*yield", all)
    g:reset()
    still_works(g)
  end)

  for _, case in ipairs {
    { "an iterator", function() for _ in function()
      coroutine.yield() end do error "no" end return 1 end, true },
    { "__index", function()
      return setmetatable({}, { __index = function() return coroutine.yield() or 1 end }).x end,
        true },
    { "a comparator of sort", function() table.sort({ 3, 2, 1 }, function()
      coroutine.yield() end) end, false },
    { "a callback of gsub", function() ("abc"):gsub(".", function() coroutine.yield() end) end,
      false },
  } do
    it(("of the function's own, as %s, works as without a guard (B167)"):format(case[1]), function()
      local g, now = fixture.guard()
      fixture.open(g)
      now:advance(1000)
      local without = in_coroutine(case[2])
      assert.equal(case[3] and version.can_yield, without)
      assert.equal(without, (in_coroutine(function() return g:call(case[2]) end)))
      now:advance(5000)
      still_works(g)
    end)
  end

  it("as a finaliser that yields, harms nobody (B167)", function()
    local g = fixture.guard()
    if _G.warn then _G.warn "@off" end
    in_coroutine(function()
      return g:call(function()
        version.finalized(function() coroutine.yield() end)
        collectgarbage()
      end)
    end)
    still_works(g)
  end)
end)
