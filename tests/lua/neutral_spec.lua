-- What says nothing about the dependency, in the numbers and in a round of probes.

local neap = require "neap"
local fixture = require "tests.lua.fixture"

local function guard_of(rules)
  local now, lines = neap.clock.manual(1000), {}
  local policy = assert(neap.policy.parse("return { name = 'neutral', " .. rules .. " }",
    "neutral.lua"))
  local guard = neap.guard(policy, {
    clock = now, log = function(_, text) lines[#lines + 1] = text end,
  })
  return guard, now, lines
end

--- Reports so many calls of each verdict, as `order` says: s, f, n.
local VERDICTS = { s = "success", f = "failure", n = "neutral" }
local function reports(guard, order)
  for letter in order:gmatch "%a" do guard:report(assert(guard:acquire()), VERDICTS[letter]) end
end

describe("a neutral call", function()
  it("is no evidence: neither in the total nor in the failures, one way or other (B074)", function()
    local guard = guard_of "trip = { consecutive_failures = 3, failure_rate = 0.5 }"
    reports(guard, "f f n n n n")
    local seen = guard:snapshot()
    assert.same({ 2, 2, 2 }, { seen.calls, seen.failure, seen.consecutive_failures })
    assert.equal(4, seen.totals.neutral)
    reports(guard, "n f")
    assert.equal("open", guard:snapshot().state) -- the third in a row, whatever came between
  end)

  it("does not keep a breaker open that has little else: 80 of 100 are (B086)", function()
    local guard, now, lines = guard_of [[
      trip = { failure_rate = 0.5, minimum_calls = 10 },
      open = { cooldown_ms = 1000, jitter = 0 },
      half_open = { probes = 3, successes = 2 }]]
    local hundred = ("n n n n s "):rep(18) .. ("n n n n f "):rep(2)
    for _ = 1, 10 do reports(guard, hundred) end
    local seen = guard:snapshot()
    assert.equal("closed", seen.state)
    assert.near(0.8, seen.neutral_share, 0.001)
    assert.matches("neutral", lines[1])

    -- In half-open each gives its slot back at once, so the round takes no longer than its probes.
    guard:trip()
    now:advance(1000)
    reports(guard, "n n n n s n n n n")
    assert.equal("half_open", guard:snapshot().state)
    reports(guard, "s")
    assert.equal("closed", guard:snapshot().state)
  end)
end)

describe("what was before", function()
  it("is gone when it has closed: one failure less than the limit leaves it so (B226)", function()
    local guard, now = guard_of [[
      window = { length_ms = 60000 }, trip = { failures = 5 },
      open = { cooldown_ms = 1000, jitter = 0 }, half_open = { probes = 1, successes = 1 }]]
    reports(guard, "f f f f f")
    assert.equal("open", guard:snapshot().state)
    now:advance(1000)
    reports(guard, "s")
    reports(guard, "f f f f")
    assert.equal("closed", guard:snapshot().state)
    assert.equal("ok", (guard:call(fixture.ok)))
    reports(guard, "f")
    assert.equal("open", guard:snapshot().state)
  end)
end)
