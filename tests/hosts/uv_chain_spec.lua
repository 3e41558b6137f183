--- The fallback chain on a luv loop: ten thousand calls in flight when the breaker opens, durable
--- queues that do not stop the loop, answers refreshed behind their callers' backs.
local uv = require "luv"
local version = require "tests.lua.version"

if not version.can_yield then
  it("the uv host is not there on Lua 5.1", function()
    assert.is_false((pcall(require, "neap.hosts.uv")))
  end)
  return
end

local fixture = require "tests.lua.fixture"
local host = require "neap.hosts.uv"
local tend = require "neap.tend"

local LIMIT_MS = 60000 -- on a machine that has other things to do

local function run_until(condition)
  local began_ns = uv.hrtime()
  local wake = uv.new_timer()
  wake:start(0, 1, function() end)
  while not condition() do
    uv.run("once")
    if (uv.hrtime() - began_ns) / 1e6 > LIMIT_MS then
      wake:close() -- or a loop that is run to its end never ends
      error "waited in vain"
    end
  end
  wake:close()
  uv.run("nowait")
end

local function count(g, source, result)
  for _, row in ipairs(g:stats().fallbacks) do
    if row.source == source and row.result == result then return row.count end
  end
end

local function default(value) return { kind = "default", run = function() return value end } end

describe("ten thousand calls in flight when the breaker opens", function()
  local CALLS = fixture.rounds(10000)
  local CAP = math.floor(CALLS / 100)

  it("all get an answer, and whoever answers instead never has more than its cap (B101)",
    function()
    local guards, in_flight, most, asked = {}, 0, 0, 0
    local g = fixture.guard({
      numbers = { timeout_ms = 20000, lease_ms = 30000, cooldown_ms = 60000 },
      stages = {
        { kind = "guard", guard = "replica", concurrent = CAP, timeout_ms = 20000 },
        default "degraded",
      },
    }, { clock = "precise", host = host, guards = guards })
    guards.replica = fixture.guard({ name = "replica" }, {
      clock = "precise", host = host, guards = guards,
      serve = function()
        in_flight, asked = in_flight + 1, asked + 1
        most = math.max(most, in_flight)
        host.sleep(20)
        in_flight = in_flight - 1
        return "replica"
      end,
    })
    local under_way, waiting, answers = 0, {}, { replica = 0, degraded = 0, other = 0 }
    local function dependency()
      under_way = under_way + 1
      waiting[#waiting + 1] = coroutine.running()
      return coroutine.yield()
    end
    for _ = 1, CALLS do
      host.spawn(function()
        local value = g:call(dependency)
        local which = answers[value] and value or "other"
        answers[which] = answers[which] + 1
      end)
    end
    assert.equal(CALLS, under_way)
    for _, co in ipairs(waiting) do assert(coroutine.resume(co, nil, "down")) end
    run_until(function()
      return answers.replica + answers.degraded + answers.other == CALLS
    end)
    assert.equal(0, answers.other)
    assert.is_true(most <= CAP, most)
    assert.is_true(answers.replica >= math.min(CAP, CALLS) and answers.degraded > 0)
    assert.equal("open", g:snapshot().state)
    assert.same({ 3, CALLS - 3 }, { g:snapshot().totals.failure, g:snapshot().totals.stale })
    assert.equal(count(g, "guard", "full"), count(g, "default", "answered"))
    assert.equal("closed", guards.replica:snapshot().state)
    uv.run("nowait")
  end)
end)

it("a fallback that waits for long holds nobody else up, and is given up in time (B094)", function()
  local guards, slow, others = {}, nil, 0
  local g = fixture.guard({
    numbers = { consecutive_failures = 1000 },
    stages = { { kind = "guard", guard = "slow", timeout_ms = 200 }, default "degraded" },
  }, { clock = "precise", host = host, guards = guards })
  guards.slow = fixture.guard({ name = "slow" },
    { clock = "precise", host = host, guards = guards, serve = function() host.sleep(500) end })
  host.spawn(function() slow = g:call(fixture.bad) end)
  host.spawn(function()
    while not slow do
      assert(g:call(fixture.ok) == "ok")
      others = others + 1
      host.sleep(1)
    end
  end)
  run_until(function() return slow end)
  assert.equal("degraded", slow)
  assert.equal(1, count(g, "guard", "timeout"))
  assert.is_true(others >= 3, others)
  uv.run()
end)

describe("on the loop", function()
  local directory, guards, tending

  before_each(function()
    directory, guards = os.tmpname(), {}
    os.remove(directory)
    assert(os.execute("mkdir -m 700 " .. directory))
  end)
  after_each(function()
    if tending then tending:close() end
    for _, g in ipairs(guards) do g:close() end
    uv.run("nowait")
    os.execute("rm -rf " .. directory)
  end)

  local function guard(stages, options, fields)
    local all = { state_dir = directory, clock = "precise", host = host }
    for k, v in pairs(options or {}) do all[k] = v end
    local made = { stages = stages }
    for k, v in pairs(fields or {}) do made[k] = v end
    local g = fixture.guard(made, all)
    guards[#guards + 1] = g
    tending = tend.start { g }
    return g
  end

  local function queue(fields)
    local stage = { kind = "queue", queue = "q", max_entries = 20000, max_bytes = 10000000,
      max_age_ms = 60000, attempts = 2, sent = false }
    for k, v in pairs(fields or {}) do stage[k] = v end
    return stage
  end

  it("three hundred calls are queued at once, with few syncs, and made again in order", function()
    local n, made, ids = fixture.rounds(300), {}, {}
    local g = guard({ queue(), default "no" }, { replay = function(entry)
      made[#made + 1] = entry.args[1]
      if #made % 10 == 0 then host.sleep(1) end
      return true
    end })
    local syncs, sync = 0, host.sync
    finally(function() host.sync = sync end)
    host.sync = function(...)
      syncs = syncs + 1
      return sync(...)
    end
    g:trip(nil, 60000)
    local answered = 0
    for i = 1, n do
      host.spawn(function()
        local id, _, info = g:call(fixture.ok, i)
        assert(info.source == "queue")
        ids[id] = true
        answered = answered + 1
      end)
    end
    assert.equal(0, answered) -- nobody is told before it is on the disk
    run_until(function() return answered == n end)
    assert.is_true(syncs <= 5, syncs)
    local different = 0
    for _ in pairs(ids) do different = different + 1 end
    assert.equal(n, different)
    assert.equal(0, #made)
    g:reset()
    run_until(function() return #made == n end)
    for i = 1, n do assert.equal(i, made[i]) end
  end)

  it("a call that is queued too late is taken back, and the next stage answers", function()
    local made, value, on_disk = {}, nil, nil
    local stage = queue { timeout_ms = 20 }
    local g = guard({ stage, default "no" }, { replay = function(entry)
      made[#made + 1] = entry.args[1]
      return true
    end })
    local sync = host.sync
    finally(function() host.sync = sync end)
    host.sync = function(fd, done) on_disk = function() sync(fd, done) end end
    g:trip(nil, 60000)
    host.spawn(function() value = g:call(fixture.ok, "late") end)
    run_until(function() return value end)
    assert.equal("no", value)
    assert.equal(1, count(g, "queue", "timeout"))
    host.sync, stage.timeout_ms = sync, 20000
    on_disk()
    run_until(function() return not g.chain.durables.queues.q.is_syncing end)
    value = nil
    host.spawn(function() value = g:call(fixture.ok, "good") end)
    run_until(function() return value end)
    assert.not_equal("no", value)
    g:reset()
    run_until(function() return g.chain.durables.queues.q.count == 0 end)
    assert.same({ "good" }, made)
  end)

  it("no more calls than the cap wait for the disk", function()
    local answers = {}
    local g = guard({ queue { concurrent = 2 }, default "no" }, { replay = fixture.ok })
    g:trip()
    for i = 1, 5 do host.spawn(function() answers[i] = g:call(fixture.ok, i) end) end
    run_until(function() return #answers == 5 and answers[1] and answers[2] end)
    assert.same({ "no", "no", "no" }, { answers[3], answers[4], answers[5] })
    assert.equal(3, count(g, "queue", "full"))
  end)

  it("an answer that is old is there at once, while the next is fetched", function()
    local calls = 0
    local g = guard({ { kind = "last_good", max_age_ms = 60000, max_entries = 10,
      max_bytes = 10000, revalidate_after_ms = 0 } })
    local function slow()
      calls = calls + 1
      host.sleep(100)
      return "v" .. calls
    end
    local first
    host.spawn(function() first = g:call(slow, "k") end)
    run_until(function() return first end)
    uv.sleep(2)
    uv.update_time()
    local value, info
    host.spawn(function() value, _, info = g:call(slow, "k") end) -- luacheck: ignore
    assert.same({ "v1", "revalidate" }, { value, info.cause })
    run_until(function() return g.chain.kept[1]:list()[1].value == "v2" end)
    assert.equal(2, calls)
  end)

  it("answers are written by themselves, and do not keep the loop running", function()
    local g = guard({ { kind = "last_good", max_age_ms = 60000, max_entries = 10,
      max_bytes = 10000, persist = "flags" } })
    host.spawn(function() g:call(fixture.ok, "k") end)
    g.chain.durables.files[1].next_ms = 0
    run_until(function() return io.open(directory .. "/flags.kept"):seek("end") > 20 end)
    uv.run()
  end)
end)
