--- The simulator's parts against what is known of them: distributions, queues, faults, retries.

local agenda = require "neap.lab.sim.agenda"
local meter = require "neap.lab.sim.meter"
local random = require "neap.lab.sim.random"
local report = require "neap.lab.sim.report"
local run = require "neap.lab.sim.run"
local scenario = require "neap.lab.sim.scenario"

--- Simulates the services of a scenario's text; answers its one run.
local function simulate(duration_ms, services, seed)
  local text = ("return { name = 's', duration_ms = %d, services = { %s } }"):format(duration_ms,
    services)
  local loaded = assert(scenario.parse(text, "s.lua"))
  return run.all(loaded, { seed = seed or 1 }).runs[1]
end

local function near(expected, value, share)
  local is_near = math.abs(value - expected) <= share * expected
  assert.is_true(is_near, ("%s is not near %s"):format(value, expected))
end

describe("chance", function()
  for _, case in ipairs {
    { { kind = "constant", ms = 7 }, 7, 7 },
    { { kind = "exponential", mean_ms = 20 }, 13.86, 92.1 },
    { { kind = "lognormal", median_ms = 20, p99_ms = 200 }, 20, 200 },
    { { kind = "percentiles", p0_ms = 0, p50_ms = 10, p75_ms = 20, p100_ms = 110 }, 10, 106.4 },
    { { kind = "percentiles", p10_ms = 5, p90_ms = 9 }, 7, 9 },
  } do
    local spec, median, p99 = table.unpack(case)
    it(("of kind %s has the median and the p99 that it should"):format(spec.kind), function()
      local sample, list = random.sampler(spec, random.stream(42, "test")), {}
      for i = 1, 20000 do list[i] = sample() end
      near(median, meter.quantile(list, 0.5), 0.05)
      near(p99, meter.quantile(list, 0.99), 0.1)
    end)
  end

  it("is the same for the same seed and name, and another for others", function()
    local function first(seed, name) return random.stream(seed, name)() end
    assert.equal(first(1, "a"), first(1, "a"))
    assert.is_true(first(1, "a") ~= first(2, "a") and first(1, "a") ~= first(1, "b"))
    assert.is_true(first(0, "") >= 0 and first(0, "") < 1)
  end)
end)

describe("the agenda", function()
  it("does what is due in the order of the time, also what is added meanwhile", function()
    local due, uniform, order = agenda.new(), random.stream(7, "agenda"), {}
    local function note(ms)
      assert.equal(ms, due.now)
      order[#order + 1] = ms
      if #order < 2000 then
        local at = ms + uniform() * 100
        due:at(at, note, at)
      end
    end
    for _ = 1, 500 do
      local at = uniform() * 1000
      due:at(at, note, at)
    end
    due:run(1e9)
    assert.equal(2499, #order)
    assert.equal(2499, due.done)
    for i = 2, #order do assert.is_true(order[i] >= order[i - 1]) end
  end)

  it("leaves what is due later", function()
    local due, done = agenda.new(), 0
    due:at(11, function() done = done + 1 end)
    due:run(10)
    assert.same({ 0, 10 }, { done, due.now })
    due:run(11)
    assert.equal(1, done)
  end)
end)

describe("a meter", function()
  it("knows shares of times within some percent", function()
    local times = meter.times()
    assert.is_nil(times:at(0.5))
    for i = 1, 1000 do times:add(i) end
    near(500, times:at(0.5), 0.045)
    near(990, times:at(0.99), 0.045)
    times = meter.times()
    times:add(0)
    assert.equal(0, times:at(0.99))
  end)

  it("knows the most in any second, and in any tenth of one", function()
    local peak = meter.peak()
    for i = 0, 9 do peak:add(5950 + i * 100) end
    peak:add(5951)
    peak:add(20000)
    assert.same({ 11, 2 }, { peak:most() })
  end)
end)

describe("a service", function()
  it("with one worker is the queue of the books: M/M/1", function()
    -- 80 a second at 10 ms: the time in it is exponential, mean 1 / (100 - 80) s
    local r = simulate(400000, [[
      q = { workers = 1, queue = 100000, latency = { kind = "exponential", mean_ms = 10 },
        arrivals = { { kind = "poisson", per_s = 80 } } }]])
    near(50 * math.log(2), r.requests.p50_ms, 0.12)
    near(50 * math.log(100), r.requests.p99_ms, 0.2)
    assert.equal(0, r.services[1].turned_away)
  end)

  it("with no queue loses what Erlang's formula says", function()
    -- 10 workers, 8 busy on average: B = 12.2 %
    local r = simulate(200000, [[
      q = { workers = 10, latency = { kind = "lognormal", median_ms = 60, p99_ms = 300 },
        arrivals = { { kind = "poisson", per_s = 105.57 } } }]])
    near(0.122, r.services[1].turned_away / r.services[1].received, 0.12)
    assert.equal(1, r.services[1].most_busy_share)
  end)

  it("holds a worker as long as it waits for another service", function()
    local r = simulate(20000, [[
      a = { workers = 5, arrivals = { { kind = "even", per_s = 20 } }, calls = { { to = "b" } } },
      b = { latency = 500 }]])
    -- 10 would be busy at once: half of the requests are turned away, and told so at once
    near(0.5, r.services[1].turned_away / r.services[1].received, 0.1)
    near(0.5, r.requests.ok_share, 0.1)
    assert.equal(5, r.services[1].most_busy)
  end)

  it("works on for those who have given up", function()
    local r = simulate(10000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } },
        calls = { { to = "b", timeout_ms = 50 } } },
      b = { latency = 200 }]])
    assert.equal(0, r.requests.ok)
    assert.equal(r.calls[1].timeouts, r.calls[1].failed)
    assert.is_true(r.services[2].ok > 95)
    assert.equal(r.services[2].ok, r.services[2].for_nobody)
  end)

  it("makes its calls one after another, a share of them by chance", function()
    local r = simulate(50000, [[
      a = { arrivals = { { kind = "even", per_s = 100 } }, calls = {
        { to = "b" }, { to = "c", share = 0.3 }, { to = "d", optional = true } } },
      b = { latency = 10 }, c = { latency = 100 },
      d = { faults = { { kind = "outage", from_ms = 0, for_ms = 50000 } } }]])
    assert.equal(1, r.requests.ok_share)
    near(0.3 * r.calls[1].sent, r.calls[2].sent, 0.06)
    assert.is_true(r.calls[3].sent - r.calls[3].failed <= 1) -- the last
    near(11, r.requests.p50_ms, 0.05) -- and a refused connection takes 1 ms
    near(111, r.requests.p99_ms, 0.05)
  end)

  it("has users who wait for their answers", function()
    local r = simulate(100000, [[
      a = { arrivals = { { kind = "users", count = 10, think_ms = 900 } }, latency = 100 }]])
    near(1000, r.requests.count, 0.07) -- each once a second
  end)

  it("gets bursts all at once", function()
    local r = simulate(10000, [[
      a = { arrivals = { { kind = "bursts", size = 30, every_ms = 2000 } }, latency = 50 }]])
    assert.equal(30, r.services[1].most_busy)
    assert.equal(150, r.requests.count)
  end)
end)

describe("a fault", function()
  local function with(fault, more)
    return simulate(30000, ([[
      a = { arrivals = { { kind = "even", per_s = 100 } },
        calls = { { to = "b", timeout_ms = 1000 } } },
      b = { latency = 10, replicas = 4, %s faults = { { from_ms = 10000, for_ms = 10000, %s } } }]])
      :format(more or "", fault))
  end

  it("that refuses takes a millisecond, one that hangs the timeout", function()
    local refused, hung = with 'kind = "outage"', with 'kind = "outage", how = "hang"'
    assert.equal(0, refused.requests.during.ok_share)
    near(1, refused.requests.during.p99_ms, 0.05)
    near(1000, hung.requests.during.p50_ms, 0.05)
    assert.equal(hung.calls[1].failed, hung.calls[1].timeouts)
    assert.equal(1, refused.requests.before.ok_share)
    assert.equal(1, refused.requests.after.ok_share)
  end)

  it("of some replicas is none of the others'", function()
    near(0.75, with('kind = "outage", share = 0.25').requests.during.ok_share, 0.05)
  end)

  it("makes it slower, worse, or narrower", function()
    near(50, with('kind = "brownout", slower = 5').requests.during.p50_ms, 0.05)
    near(0.6, with('kind = "brownout", error_rate = 0.4').requests.during.ok_share, 0.1)
    local narrow = with('kind = "brownout", slower = 20, workers = 1', "workers = 100,")
    near(0.2, narrow.requests.during.ok_share, 0.15) -- 4 workers at 200 ms: 20 a second of 100
  end)

  it("that is a restart loses what was under way, and leaves it cold", function()
    local r = simulate(40000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } }, calls = { { to = "b" } } },
      b = { latency = 1000, faults = {
        { kind = "restart", from_ms = 10050, for_ms = 5000, cold_ms = 10000,
          cold_slower = 3 } } }]])
    -- 10 under way, and 50 that came while it was gone
    assert.equal(60, r.calls[1].failed)
    assert.is_true(r.requests.after.p99_ms > 2500 and r.requests.after.p99_ms < 3100)
  end)

  it("comes back", function()
    local r = simulate(30000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } },
        calls = { { to = "b", policy = { trip = { consecutive_failures = 3 } } } } },
      b = { faults = { { kind = "outage", from_ms = 5000, for_ms = 1000, every_ms = 10000 } } }]])
    local faults = r.calls[1].faults
    assert.equal(3, #faults)
    assert.same({ 15000, 16000, 1 }, { faults[2].from_ms, faults[2].to_ms, faults[2].opened })
    near(201, faults[2].open_p50_ms, 0.02) -- the third of those at 5.0, 5.1 and 5.2 s
  end)
end)

describe("a call", function()
  it("is tried again by its caller, each time later", function()
    local r = simulate(100000, [[
      a = { arrivals = { { kind = "even", per_s = 1 } }, calls = { { to = "b",
        retry = { attempts = 4, wait_ms = 100, backoff = 2 } } } },
      b = { error_rate = 0.999999 }]])
    assert.equal(400, r.calls[1].sent)
    assert.equal(300, r.calls[1].retries)
    near(700, r.requests.p50_ms, 0.05)
  end)

  it("is tried again by its policy, on a budget", function()
    local r = simulate(100000, [[
      a = { arrivals = { { kind = "even", per_s = 100 } }, calls = { { to = "b", policy = {
        trip = { failure_rate = 0.9 }, retry = { attempts = 3, budget = 0.05,
          budget_per_s = 0, base_ms = 10 } } } } },
      b = { error_rate = 0.3 }]])
    near(500, r.calls[1].retries, 0.05) -- 5 % of 10,000; some 3,900 would be wished for
  end)

  it("has a breaker for each replica, or one for all", function()
    local function breakers(which)
      return simulate(60000, ([[
        a = { replicas = 20, arrivals = { { kind = "poisson", per_s = 40 } }, calls = { { to = "b",
          breakers = "%s", policy = { trip = { consecutive_failures = 3 } } } } },
        b = { faults = { { kind = "outage", from_ms = 10000, for_ms = 20000 } } }]]):format(which))
        .calls[1]
    end
    local each, shared = breakers "each", breakers "shared"
    assert.same({ 20, 20, 1, 1 }, { each.breakers, each.faults[1].opened, shared.breakers,
      shared.faults[1].opened })
    assert.is_true(shared.faults[1].open_p50_ms < 300 and each.faults[1].open_p50_ms > 800)
    assert.is_true(shared.failed < each.failed / 4)
  end)

  it("waits for a connection, within its timeout", function()
    local function with(connections, timeout_ms, per_s)
      local r = simulate(20000, ([[
        a = { arrivals = { { kind = "even", per_s = %g } }, calls = { { to = "b",
          connections = %d, timeout_ms = %d } } },
        b = { latency = 475 }]]):format(per_s, connections, timeout_ms))
      return r.calls[1], r
    end
    -- five serve 10.5 a second, of 20: the others wait, ever longer
    local patient, r = with(5, 60000, 20)
    assert.equal(5, r.services[2].most_busy)
    near(210, patient.ok, 0.03)
    assert.equal(patient.ok, r.services[2].ok)
    assert.is_true(r.requests.p99_ms > 8000)
    -- who gives up while he waits takes none: of ten at once one is served, one is under way
    local hasty = simulate(20000, [[
      a = { arrivals = { { kind = "bursts", size = 10, every_ms = 1000 } }, calls = { { to = "b",
        connections = 1, timeout_ms = 600 } } },
      b = { latency = 475 }]]).calls[1]
    assert.same({ 20, 180 }, { hasty.ok, hasty.timeouts })
    assert.is_true(hasty.sent >= 40 and hasty.sent <= 60)
    -- and what is given back is free
    assert.equal(0, with(5, 600, 8).waited_for_connection)
  end)

  it("finds no slot of the bulkhead", function()
    local call = simulate(20000, [[
      a = { arrivals = { { kind = "even", per_s = 20 } }, calls = { { to = "b", policy = {
        trip = { failures = 3 }, bulkhead = { concurrent = 5 } } } } },
      b = { latency = 475 }]]).calls[1]
    -- ten would be under way at once
    assert.is_true(call.refused_by_bulkhead > 180 and call.refused_by_bulkhead < 210)
    assert.same({ 0, 0, 0 }, { call.refused, call.good_lost, call.probes })
  end)

  it("that a breaker refuses is lost for nothing where it would have been served", function()
    local r = simulate(40000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } }, calls = { { to = "b", policy = {
        trip = { consecutive_failures = 3 }, open = { cooldown_ms = 20000, jitter = 0 } } } } },
      b = { calls = { { to = "c" } } },
      c = { faults = { { kind = "outage", from_ms = 10000, for_ms = 10000 } } }]])
    -- open from 10.2 to 30.2 s; what b needs is well again from 20 s on
    local call = r.calls[1]
    assert.equal("c", call.faults[1].of)
    near(102, call.good_lost, 0.03)
    near(200, call.refused, 0.03)
    assert.equal(0, call.opens_without_fault)
  end)

  it("ends with the replica that made it, and is answered once", function()
    local r = simulate(20000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } }, calls = { { to = "b",
          retry = { attempts = 3 } } },
        faults = { { kind = "restart", from_ms = 10050, for_ms = 100 } } },
      b = { latency = 1000 }]])
    -- ten were under way, all of them lost; the one that came while it was gone, too
    assert.equal(11, r.requests.failed)
    assert.is_true(r.requests.count <= r.services[1].received)
  end)

  it("restarts with the breakers of its replica", function()
    local r = simulate(20000, [[
      a = { arrivals = { { kind = "even", per_s = 10 } }, calls = { { to = "b", policy = {
          trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000 } } } },
        faults = { { kind = "restart", from_ms = 10050, for_ms = 1000 } } },
      b = { faults = { { kind = "outage", from_ms = 5000, for_ms = 3000 } } }]])
    assert.equal(1, r.calls[1].opens)
    assert.is_true(r.requests.ok > 130) -- 5 s before and 9 s after, not 5 s
  end)
end)

describe("a simulation", function()
  local SERVICES = [[
    a = { replicas = 10, workers = 5, queue = 5, arrivals = { { kind = "poisson", per_s = 100 } },
      calls = { { to = "b", timeout_ms = 100, policy = { trip = { failure_rate = 0.5 },
        retry = { attempts = 2 } } } } },
    b = { replicas = 3, workers = 4, queue = 3, error_rate = 0.05,
      latency = { kind = "exponential", mean_ms = 30 },
      faults = { { kind = "restart", from_ms = 3000, for_ms = 2000, cold_ms = 2000,
        cold_slower = 3 } } }]]

  it("of the same seed is the same, to the last digit", function()
    local first, again = simulate(10000, SERVICES, 7), simulate(10000, SERVICES, 7)
    assert.same(first, again)
    assert.is_true(simulate(10000, SERVICES, 8).events ~= first.events)
  end)

  it("has every request answered once", function()
    local r = simulate(10000, SERVICES .. ", z = {}", 3)
    assert.is_true(r.requests.count <= r.services[1].received)
    assert.is_true(r.requests.count > r.services[1].received - 50) -- under way at the end
    assert.equal(r.requests.count, r.requests.ok + r.requests.failed)
    local call = r.calls[1]
    assert.is_true(call.sent >= call.ok + call.failed and call.sent < call.ok + call.failed + 50)
  end)

  for share, said in pairs { [1] = " 1 time\n", [0] = " 0 times\n" } do
    it(("says that a service was asked%s"):format(said:sub(1, -2)), function()
      local text = ([[return { name = "s", duration_ms = 5000, services = {
        a = { arrivals = { { kind = "poisson", per_s = 20 } },
          calls = { { to = "b", share = %d } } }, b = {} } }]]):format(share)
      local told = report.text(run.all(assert(scenario.parse(text, "s.lua")), { seed = 1 }))
      assert.is_not_nil(told:match("\nb\n(.*)"):find(said, 1, true), told)
    end)
  end
end)
