--- Scenarios: what a mistake in one is told; what those that come with neap teach, in numbers; and
--- storms from field reports.

local json = require "neap.cmd.json"
local report = require "neap.lab.sim.report"
local run = require "neap.lab.sim.run"
local scenario = require "neap.lab.sim.scenario"
local shipped = require "neap.lab.sim.shipped"
local simulate = require "neap.cmd.simulate"

local function settings(given)
  local list = {}
  for name, value in pairs(given or {}) do
    list[#list + 1] = { name = name, value = value, from = "--set" }
  end
  return list
end

--- Simulates one that comes with neap; answers its runs.
local function shown(name, given)
  local text = assert(shipped.text(name), name)
  local loaded = assert(scenario.parse(text, shipped.path(name), { settings = settings(given) }))
  return run.all(loaded).runs
end

describe("the scenario", function()
  it("retry_amplification: three tries in three layers are 27 requests for one", function()
    local without, with = table.unpack(shown "retry_amplification")
    local before, after = without.services[4], with.services[4]
    assert.equal("database", before.name)
    assert.is_true(before.amplification_during > 24 and before.amplification_during <= 27)
    assert.is_true(after.amplification_during < 0.2)
    assert.is_true(before.peak_per_s > 1000 and after.peak_per_s < 120)
    assert.equal(0, without.calls[3].refused)
    assert.is_true(with.calls[3].retries < 0.1 * with.calls[3].calls)
    assert.is_true(with.requests.after.ok_share > 0.8)
  end)

  it("probe_storm: without jitter the whole fleet probes in the same tenth of a second", function()
    local without, with = table.unpack(shown("probe_storm", { replicas = 60 }))
    local before, after = without.calls[1], with.calls[1]
    assert.same({ 60, 60 }, { before.faults[1].opened, after.faults[1].opened })
    assert.is_true(before.probes_peak_per_tenth > 2.5 * after.probes_peak_per_tenth)
    assert.is_true(before.probes_peak_per_s > 1.7 * after.probes_peak_per_s)
    -- and what it costs
    assert.is_true(after.faults[1].close_p50_ms > before.faults[1].close_p50_ms)
  end)

  it("slow_dependency: what hangs takes all workers; a breaker and a timeout leave them", function()
    local without, with = table.unpack(shown "slow_dependency")
    assert.is_true(without.requests.during.ok_share < 0.4)
    assert.is_true(with.requests.during.ok_share > 0.999)
    assert.same({ 1, true }, { without.services[1].most_busy_share,
      with.services[1].most_busy_share < 0.6 })
    assert.is_true(without.services[1].turned_away > 3000 and with.services[1].turned_away == 0)
    assert.is_true(without.requests.during.p99_ms > 5000 and with.requests.during.p99_ms < 500)
  end)

  it("flapping: one good probe closes it forty times; backoff and more probes, once", function()
    local without, with = table.unpack(shown "flapping")
    local before, after = without.calls[1], with.calls[1]
    assert.is_true(before.opens > 150 and after.opens <= 10)
    assert.is_true(before.flaps > 150 and after.flaps < 6)
    assert.is_true(before.wasted_share > 3 * after.wasted_share)
    assert.is_true(after.faults[1].close_p50_ms > before.faults[1].close_p50_ms) -- its price
  end)

  it("low_traffic: a rate of two calls opens on nothing; five in a row hardly ever", function()
    local without, with = table.unpack(shown "low_traffic")
    local before, after = without.calls[1], with.calls[1]
    assert.is_true(before.opens_without_fault > 200 and after.opens_without_fault <= 3)
    assert.is_true(before.good_lost > 20 * after.good_lost)
    assert.same({ 20, 20 }, { before.faults[1].opened, after.faults[1].opened })
    -- which takes longer to notice that it is down
    local late_ms = after.faults[1].open_p50_ms
    assert.is_true(late_ms > before.faults[1].open_p50_ms and late_ms < 60000)
  end)

  it("files are all in the list, and have a title and a lesson", function()
    local path = assert(package.searchpath("neap.lab.scenarios.flapping", package.path))
    local pipe = assert(io.popen(("ls '%s'"):format(path:match("^(.*)/"))))
    local found, listed = {}, {}
    for name in pipe:lines() do found[#found + 1] = name:gsub("%.lua$", "") end
    pipe:close()
    for i, name in ipairs(shipped.names) do
      local loaded = assert(scenario.parse(shipped.text(name), shipped.path(name)))
      assert.is_true(#loaded[1].lesson > 200 and loaded[1].title ~= name and #loaded == 2)
      listed[i] = name
    end
    table.sort(listed)
    assert.same(listed, found)
  end)
end)

-- ---- Field reports ----------------------------------------------------------------------------

local function of_text(duration_ms, services)
  local text = ("return { name = 's', duration_ms = %d, services = { %s } }"):format(duration_ms,
    services)
  local result = run.all(assert(scenario.parse(text, "s.lua")))
  return result.runs[1].calls[1], result.runs[1]
end

local function sum(slices, from, to)
  local total = 0
  for i = from, to do total = total + (slices[i] or 0) end
  return total
end

describe("a storm from the field", function()
  it("B013: a half-open breaker in front of what hangs lets three through, not all", function()
    -- 1,000 a second, a timeout of 3 s, 3 probes at once
    local call, r = of_text(20000, [[
      a = { arrivals = { { kind = "even", per_s = 1000 } }, calls = { { to = "b",
        timeout_ms = 3000, policy = { trip = { consecutive_failures = 10 },
          half_open = { probes = 3, successes = 2, concurrent = 3, lease_ms = 5000 },
          open = { cooldown_ms = 2000, backoff = 1, jitter = 0 } } } } },
      b = { latency = 10, faults = { { kind = "outage", how = "hang", from_ms = 1000,
        for_ms = 30000 } } }]])
    local slices = r.plot.calls[1].slices
    local opened = math.ceil((1000 + call.faults[1].open_p50_ms) / r.plot.slice_ms) + 1
    local sent, probes = sum(slices.sent, opened, 1000), sum(slices.probes, opened, 1000)
    assert.equal(probes, sent)
    assert.equal(3, call.probes_peak_per_s)
    -- rounds of 2 s open and 3 s of a hanging probe from 4 s on: three begin in what is left
    assert.equal(9, probes)
    assert.is_true(call.refused > 14000)
  end)

  it("B016: nine callers after the cooldown are one probe, which is not tried again", function()
    local call, r = of_text(35000, [[
      a = { replicas = 9, arrivals = { { kind = "bursts", size = 9, every_ms = 10000,
          from_ms = 100 } },
        calls = { { to = "b", breakers = "shared", timeout_ms = 1000, policy = {
          trip = { consecutive_failures = 3 }, half_open = { probes = 1, successes = 1 },
          open = { cooldown_ms = 8000, backoff = 1, jitter = 0 },
          retry = { attempts = 3, base_ms = 1 } } } } },
      b = { faults = { { kind = "outage", how = "error", from_ms = 0, for_ms = 40000 } } }]])
    local slices = r.plot.calls[1].slices
    local per_s = 1000 / r.plot.slice_ms
    for _, at_s in ipairs { 10, 20, 30 } do
      assert.equal(1, sum(slices.sent, at_s * per_s, (at_s + 2) * per_s))
      assert.equal(8, sum(slices.refused, at_s * per_s, (at_s + 2) * per_s))
    end
    assert.equal(3, call.probes)
  end)

  it("B065: calls that hang one by one open it by their run, though the window forgets", function()
    local function opened(trip)
      return of_text(400000, ([[
        a = { arrivals = { { kind = "users", count = 1, think_ms = 1 } }, calls = { { to = "b",
          timeout_ms = 30000, policy = { window = { length_ms = 10000 }, trip = { %s } } } } },
        b = { faults = { { kind = "outage", how = "hang", from_ms = 0, for_ms = 500000 } } }]])
        :format(trip)).faults[1]
    end
    assert.equal(0, opened("failure_rate = 0.5, minimum_calls = 5").opened)
    local by_run = opened "failure_rate = 0.5, minimum_calls = 5, consecutive_failures = 5"
    assert.equal(1, by_run.opened)
    assert.is_true(by_run.open_p50_ms > 149000 and by_run.open_p50_ms < 152000)
  end)

  it("B100: a hundred turns pay the dead primary's timeout three times, not a hundred", function()
    local call, r = of_text(150000, [[
      a = { arrivals = { { kind = "users", count = 1, think_ms = 300 } }, calls = {
        { to = "primary", optional = true, timeout_ms = 30000, policy = {
          trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000, jitter = 0 } } },
        { to = "secondary", timeout_ms = 30000 } } },
      primary = { faults = { { kind = "outage", how = "hang", from_ms = 0, for_ms = 500000 } } },
      secondary = { latency = 50 }]])
    assert.is_true(r.requests.count > 100)
    assert.equal(3, call.timeouts)
    assert.equal(1, r.requests.ok_share)
  end)
end)

-- ---- Mistakes ---------------------------------------------------------------------------------

local function fault_of(text)
  local loaded, err = scenario.parse(text, "dir/x.lua")
  assert.is_nil(loaded)
  return (tostring(err):gsub("dir/x.lua", "x"))
end

--- A scenario with one service in it.
local function with(service, more)
  return ("return { name = 'x', duration_ms = 10000, services = {\n a = { %s }, %s } }"):format(
    service, more or "")
end

local ASKED = "arrivals = { { kind = 'even', per_s = 1 } }"

describe("a mistake in a scenario", function()
  for _, case in ipairs {
    { "return 7", "x: returns 7: a scenario is a table, return { name = \"x\", … }" },
    { "return {", "x:1: unexpected symbol near <eof>" },
    { "return { name = os.date() }", "x:1: os is not available to a policy" },
    { "return { name = 'y', duration_ms = 1000, services = { a = { " .. ASKED .. " } } }",
      'x:1: name: "y" is not the file\'s name: "x" is needed' },
    { "return { name = 'x', duration = 10, services = { a = { " .. ASKED .. " } } }",
      "x:1: duration: is not a key: it has no unit: write duration_ms = 10 for 10 milliseconds, "
      .. "or duration_ms = 10000 for 10 seconds\nx:1: duration_ms: is missing: How long it is "
      .. "watched." },
    { with(ASKED .. ", replica = 7"), "x:2: services.a.replica: is not a key: did you mean "
      .. "replicas?" },
    { with(ASKED .. ", replicas = 20000"), "x:2: services.a.replicas: 20000 is out of range: a "
      .. "whole number from 1 to 10000" },
    { with "latency = 5", "x:1: services: nobody asks for anything: one of them needs arrivals, "
      .. "e.g. { { kind = \"poisson\", per_s = 100 } }" },
    { with "arrivals = { { kind = 'poison', per_s = 1 } }", "x:2: services.a.arrivals[1].kind: "
      .. "\"poison\" is not one of \"bursts\", \"even\", \"poisson\", \"users\": did you mean "
      .. "poisson?" },
    { with "arrivals = { kind = 'even', per_s = 1 }", "x:2: services.a.arrivals: a table: a list "
      .. "is needed, { { … }, … }" },
    { with "arrivals = { { kind = 'even', per_s = 0 } }", "x:2: services.a.arrivals[1].per_s: 0 is "
      .. "out of range: a number over 0, up to 1000000" },
    { with "arrivals = { { kind = 'even', per_s = 1, to_ms = 5, from_ms = 5 } }",
      "x:2: services.a.arrivals[1].to_ms: 5: more than from_ms = 5 is needed" },
    { with(ASKED .. ", calls = { { to = 'bb' } }", "b = {}"),
      "x:2: services.a.calls[1].to: there is no service \"bb\": did you mean b?" },
    { with(ASKED .. ", calls = { { to = 'b' } }", "b = { calls = { { to = 'a' } } }"),
      "x:2: services.b.calls: go in a circle: b -> a -> b" },
    { with(ASKED .. ", latency = { kind = 'lognormal', median_ms = 5, p99_ms = 2 }"),
      "x:2: services.a.latency.p99_ms: 2 is less than median_ms = 5" },
    { with(ASKED .. ", latency = { kind = 'percentiles', p50_ms = 5, p90_ms = 2 }"),
      "x:2: services.a.latency.p90_ms: 2 is less than p50_ms = 5" },
    { with(ASKED .. ", latency = 'slow'"), "x:2: services.a.latency: \"slow\": milliseconds, or a "
      .. "table such as { kind = \"exponential\", mean_ms = 20 }" },
    { with(ASKED .. ", queue = 5"),
      "x:2: services.a.queue: nobody waits in it: workers is needed" },
    { with(ASKED .. ", faults = { { kind = 'outage', from_ms = 20000, for_ms = 1 } }"),
      "x:2: services.a.faults[1].from_ms: 20000 is never: duration_ms is 10000" },
    { with(ASKED .. ", faults = { { kind = 'outage', from_ms = 0, for_ms = 9, every_ms = 8 } }"),
      "x:2: services.a.faults[1].every_ms: 8: it would come back before it is over: more than "
      .. "for_ms = 9 is needed" },
    { with(ASKED .. ", calls = { { to = 'b', breakers = 'each' } }", "b = {}"),
      "x:2: services.a.calls[1].breakers: there are none: a policy is needed" },
    { with(ASKED .. ", calls = { { to = 'b', policy = { trip = { failures = 5, rate = 1 } } } }",
      "b = {}"), "x:2: services.a.calls[1].policy.trip.rate: is not a key" },
    { with(ASKED .. ", calls = { { to = 'b', policy = { trip = { decide = print } } } }", "b = {}"),
      "x:2: print is not available to a policy" },
    { with(ASKED .. ", calls = { { to = 'b', policy = { trip = { failures = 5 }, classify = "
      .. "function() end } } }", "b = {}"), "x:2: services.a.calls[1].policy.classify: here a "
      .. "policy has numbers, texts and tables of them; one with more in it is a file" },
    { "return { name = 'x', duration_ms = 1000, services = {} }", "x:1: services: nobody asks for "
      .. "anything: one of them needs arrivals, e.g. { { kind = \"poisson\", per_s = 100 } }" },
    { "return { name = 'x', duration_ms = 1000, services = { a = 7 } }",
      "x:1: services.a: 7: a table is needed" },
    { with(ASKED .. ", calls = { { to = 'b', policy = 'no/such.lua' } }", "b = {}"),
      "x:2: services.a.calls[1].policy: dir/no/such.lua: No such file or directory" },
    { with "arrivals = { { kind = 'even', per_s = 1000000 } }, replicas = 1e4", nil,
      duration = 3600000 },
  } do
    local text, expected = case[1], case[2]
    if case.duration then
      text = text:gsub("10000,", case.duration .. ",", 1)
      expected = "x:1: services: it would be 3600 million requests: 50 million are the most"
    end
    it("is told: " .. expected:gsub("\n.*", ""), function()
      assert.equal(expected, fault_of(text))
    end)
  end

  it("of a run is told with its place", function()
    assert.equal("runs[2]: params.n: -1 is out of range: a whole number, 1 or more", fault_of([[
      params.declare { n = { type = "whole", min = 1, default = 1 } }
      return { name = "x", duration_ms = 1000, services = { a = { replicas = params.n,
        arrivals = { { kind = "even", per_s = 1 } } } },
        runs = { { name = "one", params = { n = 2 } }, { name = "two", params = { n = -1 } } } }]]))
  end)
end)

-- ---- The command ------------------------------------------------------------------------------

local function command(given)
  local out, err = {}, {}
  local status = simulate.run("simulate", given, {
    out = function(text) out[#out + 1] = text end, err = function(text) err[#err + 1] = text end,
    is_terminal = function() return false end, uptime_ms = function() return 0 end,
  })
  return status, table.concat(out), table.concat(err)
end

local SMALL = [[
params.declare { n = { type = "whole", default = 2 } }
return { name = "small", title = "A <b>small</b> one", lesson = "Less & less.", duration_ms = 5000,
  services = {
    a = { replicas = params.n, arrivals = { { kind = "even", per_s = 10 } }, calls = { { to = "b",
      policy = { trip = { consecutive_failures = 3 } } } } },
    b = { faults = { { kind = "outage", from_ms = 1000, for_ms = 1000 } } } },
  runs = { { name = "<one>" }, { name = "two", params = { n = 1 } } } }]]

local function small_file()
  local directory = os.tmpname()
  os.remove(directory)
  assert(os.execute(("mkdir '%s'"):format(directory)))
  local path = directory .. "/small.lua"
  local file = assert(io.open(path, "w"))
  file:write(SMALL)
  file:close()
  return path, directory
end

describe("neap simulate", function()
  local path, directory
  setup(function() path, directory = small_file() end)
  teardown(function() os.execute(("rm -r '%s'"):format(directory)) end)

  it("prints a column for each run, and what to learn", function()
    local status, out, err = command { path }
    assert.same({ 0, "" }, { status, err })
    assert.equal("small: A <b>small</b> one (5 s, seed 1)", out:match("^[^\n]*"))
    assert.is_not_nil(out:find("\n +<one> +two\n"))
    assert.is_not_nil(out:find("\n  requests from outside +50 +50\n"))
    assert.is_not_nil(out:find("\n  breakers that opened, first fault +2 +1\n"))
    assert.is_not_nil(out:find("\nLess & less.\n", 1, true))
  end)

  it("has the same as JSON, without what only plots need", function()
    local status, out = command { path, json = true, seed = 9, set = {
      { name = "n", text = "3", from = "--set" } } }
    local result = assert(json.decode(out))
    assert.equal(0, status)
    assert.same({ 9, 2, 3, 3 }, { result.seed, #result.runs, result.runs[1].params.n,
      result.runs[2].params.n })
    assert.same({ 3, 1 }, { result.runs[1].services[1].replicas,
      #result.runs[1].calls[1].faults })
    assert.is_nil(result.runs[1].plot)
  end)

  it("writes a report with plots, whose names are nothing but names", function()
    local page = directory .. "/report.html"
    assert.equal(0, (command { path, html = page }))
    local file = assert(io.open(page))
    local text = file:read "a"
    file:close()
    assert.is_not_nil(text:find("A &lt;b&gt;small&lt;/b&gt; one", 1, true))
    assert.is_not_nil(text:find("a -&gt; b: breakers that are open", 1, true))
    assert.is_not_nil(text:find("&lt;one&gt;", 1, true))
    assert.is_nil(text:find("<one>", 1, true))
    assert.is_not_nil(text:find("Less &amp; less.", 1, true))
    assert.is_not_nil(text:find("params.declare {", 1, true)) -- the scenario itself
  end)

  it("takes another policy in place of those of the scenario", function()
    local other = directory .. "/other.lua"
    local file = assert(io.open(other, "w"))
    file:write("return { name = 'other', trip = { consecutive_failures = 100 } }")
    file:close()
    local _, out = command { path, policy = other, json = true }
    assert.equal(0, json.decode(out).runs[1].calls[1].opens)
  end)

  for _, case in ipairs {
    { {}, 2, "which scenario? Name a file, or one that neap simulate --list says; see" },
    { { "a", "b" }, 2, "one scenario at a time, not b; see" },
    { { "flaping" }, 2, "flaping: there is no such file, and no scenario of that name: did you "
      .. "mean flapping? See" },
    { { "no/such.lua" }, 2, "no/such.lua: there is no such file; see" },
    { { "slow_dependency", policy = "no.lua" }, 1, "slow_dependency.lua:39: services.shop.calls[2]"
      .. ".policy: no.lua: No such file or directory" },
  } do
    it("says what is wrong: " .. case[3], function()
      local status, out, err = command(case[1])
      assert.same({ case[2], "" }, { status, out })
      assert.equal("neap simulate: " .. case[3], err:sub(1, #case[3] + 15))
    end)
  end

  it("lists what comes with it, and shows one", function()
    local _, out = command { list = true }
    assert.equal(#shipped.names, select(2, out:gsub("\n", "")))
    assert.equal(shipped.text "flapping", select(2, command { "flapping", show = true }))
  end)
end)

it("the report of a run with nothing in it has room for nothing", function()
  local text = "return { name = 's', title = 'a\\27[2J\\255', duration_ms = 1000, services = { "
    .. "a = { arrivals = { { kind = 'even', per_s = 1, from_ms = 999 } }, latency = 10 } } }"
  local result = run.all(assert(scenario.parse(text, "s.lua")))
  assert.equal(0, result.runs[1].requests.count)
  assert.is_not_nil(report.html(result):find("requests from outside", 1, true))
  assert.is_nil(report.html(result):find "nan")
  assert.is_not_nil(report.text(result):find("requests from outside +0\n"))
  assert.is_nil(report.text(result):find "\27")
end)
