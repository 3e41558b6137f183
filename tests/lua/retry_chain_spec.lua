--- What reaches a dead dependency behind three layers that all try three times, without neap and
--- with it.  Retries multiply: one call becomes 27.
local fixture = require "tests.lua.fixture"
local neap = require "neap"

local LAYERS, ATTEMPTS = 3, 3

--- As it is done without a budget: so many tries, whatever comes.
local function without(f)
  for _ = 1, ATTEMPTS - 1 do
    local value = f()
    if value then return value end
  end
  return f()
end

local function layer(level, lines, now)
  local policy = assert(neap.policy.parse(([[return {
    name = "layer%d", trip = { failures = 20, consecutive_failures = 20 },
    retry = { attempts = %d, on = function() return true end }, %s
  }]]):format(level, ATTEMPTS, lines), ("layer%d.lua"):format(level)))
  return neap.guard(policy, { clock = now, host = { name = "plain" }, log = function() end })
end

--- A chain of three services and what it calls in the end.  Answers: call(f), and the guards.
local function chain(lines, now)
  local call, guards = function(f) return f() end, {}
  for level = LAYERS, 1, -1 do
    local below = call
    local guard = lines and layer(level, lines, now)
    guards[level] = guard
    call = function(f)
      local function next_layer() return below(f) end
      if guard then return guard:call(next_layer) end
      return without(next_layer)
    end
  end
  return call, guards
end

--- So many calls a second for so many seconds, at a dependency that is dead.
local function outage(lines, seconds, rate)
  local now = neap.clock.manual(10000)
  local call = chain(lines, now)
  local reached = 0
  for i = 0, seconds * rate - 1 do
    now:set(10000 + math.floor(i * 1000 / rate))
    call(function()
      reached = reached + 1
      return nil, "dead"
    end)
  end
  return reached / (seconds * rate), reached
end

describe("three layers of three attempts in front of a dead dependency", function()
  local seconds, rate = fixture.rounds(6000) / 100, 100

  local figures = {}
  local function tell(what, per_call)
    figures[#figures + 1] = ("%-28s %7.3f"):format(what, per_call)
  end

  it("reach it 27 times a call without neap", function()
    local per_call = outage(nil, seconds, rate)
    tell("without neap", per_call)
    assert.equal(ATTEMPTS ^ LAYERS, per_call)
  end)

  it("reach it 1.1 ^ 3 times a call by the budget alone, and what the reserve and the floor add",
    function()
    local per_call, reached = outage("mode = 'forced_closed',", seconds, rate)
    tell("retry budget, no breaker", per_call)
    local calls, most = seconds * rate, seconds * rate
    for _ = 1, LAYERS do most = most * 1.1 + seconds + 10 end
    assert.is_true(reached <= most, reached .. " calls, over " .. most)
    assert.is_true(reached >= calls)
    if seconds >= 60 then assert.is_true(per_call < 1.4, per_call) end
  end)

  it("reach it hardly at all once their breakers are open", function()
    local per_call, reached = outage("", seconds, rate)
    tell("retry budget and breakers", per_call)
    -- the last layer's 20, its probes, one each few seconds; nothing else
    assert.is_true(reached <= 20 + seconds, reached)
    assert.is_true(per_call < 1)
  end)

  it("are asked no more often than they ask each other: no layer amplifies beyond its budget",
    function()
    local now = neap.clock.manual(10000)
    local call, guards = chain("mode = 'forced_closed',", now)
    local n = seconds * rate
    for i = 1, n do
      now:set(10000 + math.floor(i * 1000 / rate))
      call(function() return nil, "dead" end)
    end
    local asked = n
    for level = 1, LAYERS do
      local made = guards[level]:snapshot().totals.failure
      assert.is_true(made >= n and made <= asked * 1.1 + seconds + 11,
        ("layer %d: %d of %d"):format(level, made, asked))
      asked = made
    end
  end)

  it("cost nothing while all is well: one call each", function()
    local now = neap.clock.manual(10000)
    local call = chain("", now)
    local reached = 0
    for _ = 1, 100 do
      call(function()
        reached = reached + 1
        return "ok"
      end)
    end
    assert.equal(100, reached)
  end)

  teardown(function()
    print(("\ncalls that reach a dead dependency, per call at the top (%d calls, %d layers of %d "
      .. "attempts):\n  %s"):format(seconds * rate, LAYERS, ATTEMPTS,
      table.concat(figures, "\n  ")))
  end)
end)
