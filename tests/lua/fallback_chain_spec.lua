--- What a fallback chain has beside its stages' answers: caps, defaults by key, queues, answers at
--- once.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"
local policy = require "neap.policy"
local policy_fixture = require "tests.lua.policy_fixture"
local version = require "tests.lua.version"

local ok, bad = fixture.ok, fixture.bad
local it_waits = version.can_yield and it or function(title, f)
  it(title .. ": not on Lua 5.1", function() assert.is_false((pcall(f))) end)
end

local function count(g, source, result)
  for _, row in ipairs(g:stats().fallbacks) do
    if row.source == source and row.result == result then return row.count end
  end
end

local function default(value) return { kind = "default", run = function() return value end } end

local function last_good(fields)
  local made = { kind = "last_good", max_age_ms = 60000, max_entries = 100, max_bytes = 100000 }
  for k, v in pairs(fields or {}) do made[k] = v end
  return made
end

local function queue_stage(fields)
  local made = { kind = "queue", queue = "q", max_entries = 100, max_bytes = 100000,
    max_age_ms = 60000, attempts = 2, sent = false }
  for k, v in pairs(fields or {}) do made[k] = v end
  return made
end

-- ---- Caps -------------------------------------------------------------------------------------

describe("a stage's cap", function()
  local function pair(stage, b_options)
    local guards = {}
    stage.kind, stage.guard = "guard", "b"
    b_options.guards = guards
    local a, now = fixture.guard({ name = "a", stages = { stage, default "last" } },
      { guards = guards })
    b_options.clock = now
    guards.b = fixture.guard({ name = "b" }, b_options)
    return a, now
  end

  it_waits("lets so many calls wait for it, and declines the others (B101)", function()
    local waiting = {}
    local a = pair({ concurrent = 2 }, { serve = function()
      waiting[#waiting + 1] = coroutine.running()
      return coroutine.yield()
    end })
    local answers = {}
    for i = 1, 5 do
      coroutine.wrap(function() answers[i] = a:call(bad, i) end)()
    end
    assert.same({ nil, nil, "last", "last", "last" }, answers)
    assert.equal(2, #waiting)
    for _, co in ipairs(waiting) do assert(coroutine.resume(co, "replica")) end
    assert.same({ "replica", "replica", "last", "last", "last" }, answers)
    assert.same({ 2, 3, 3 },
      { count(a, "guard", "answered"), count(a, "guard", "full"), count(a, "default", "answered") })
    coroutine.wrap(function() answers[6] = a:call(bad, 6) end)()
    assert(coroutine.resume(waiting[3], "again"))
    assert.equal("again", answers[6])
  end)

  it("is given back when the stage raises", function()
    local a = pair({ concurrent = 1 }, { serve = function() error "no" end })
    for _ = 1, 3 do assert.equal("last", (a:call(bad))) end
    assert.equal(0, count(a, "guard", "full"))
  end)

  it_waits("does not count for ever who never came back", function()
    local a, now = pair({ concurrent = 1, timeout_ms = 100 }, { serve = coroutine.yield })
    coroutine.wrap(function() a:call(bad) end)() -- nobody holds it any more
    assert.equal("last", (a:call(bad)))
    assert.equal(1, count(a, "guard", "full"))
    now:advance(201)
    coroutine.wrap(function() a:call(bad) end)()
    assert.equal(1, count(a, "guard", "full"))
  end)

  it("belongs to the guard: a reload does not forget who waits", function()
    local a = pair({ concurrent = 1 }, { serve = coroutine.yield })
    coroutine.wrap(function() a:call(bad) end)()
    a:adopt(fixture.policy { name = "a", stages = {
      { kind = "guard", guard = "b", concurrent = 1 }, default "new" } })
    assert.equal("new", (a:call(bad)))
  end)
end)

-- ---- Defaults ---------------------------------------------------------------------------------

describe("defaults by key", function()
  local function parse(stage)
    return policy.parse(([[
return {
  name = "x", trip = { consecutive_failures = 3 },
  fallback = { %s },
}]]):format(stage), "x.lua")
  end

  it("answer what is reviewed for the key of the call, and decline for others", function()
    local g = fixture.guard { stages = assert(parse [[
      fallback.default({ a = "A", b = { status = 200, body = "B" }, c = false },
        { by = function(call) return call.args[1] end })]]).stages }
    assert.equal("A", (g:call(bad, "a")))
    assert.same({ status = 200, body = "B" }, (g:call(bad, "b")))
    g:reset()
    assert.same({ nil, "down" }, { g:call(bad, "d") })
    assert.is_false((g:call(bad, "c")))
    assert.equal(1, count(g, "default", "declined"))
  end)

  it("give each caller a copy of his own", function()
    local g = fixture.guard { stages = assert(parse [[
      fallback.default({ a = { n = 1 } }, { by = function() return "a" end })]]).stages }
    g:call(bad).n = 2
    assert.same({ n = 1 }, (g:call(bad)))
  end)

  it("are complete when the policy lists its keys", function()
    assert(parse [[fallback.default({ a = 1, b = 2 },
      { keys = { "a", "b" }, by = function() end })]])
  end)

  for stage, message in pairs {
    ['fallback.default({ a = 1 }, { keys = { "a", "b" }, by = function() end })']
      = 'fallback[1]: has no default for "b", which is one of the keys',
    ['fallback.default({ alpa = 1, b = 2 }, { keys = { "alpha", "b" }, by = function() end })']
      = 'has a default for "alpa", which is not one of the keys: did you mean alpha?',
    ['fallback.default({ a = 1 }, { keys = { "a" } })']
      = 'fallback[1].keys: needs by = function(call) ... end',
    ['fallback.default("text", { by = function() end })']
      = 'fallback.default: "text": with by, a table of answers by key is needed',
    ['fallback.default({ a = { status = 99 } }, { by = function() end })']
      = 'fallback.default, "a": status 99',
    ['fallback.default({ a = 1 }, { keys = { "a", 2 }, by = function() end })']
      = 'a list of texts that are not empty is needed',
    ['fallback.default({ a = tostring }, { by = function() end })']
      = 'has a function in it',
    ['fallback.queue "../q"'] = "a file's name: letters, digits, _ - .",
    ['fallback.queue("q", { sent = 1 })'] = "true or false is needed",
    ['fallback.queue { }'] = "a file's name",
    ['fallback.last_good { persist = "a/b" }'] = "a file's name",
    ['fallback.last_good { concurrent = 1 }'] = "is not a key",
    ['fallback.last_good { maxAge = 1 }'] = "is not a key: did you mean max_age_ms?",
  } do
    it("that are wrong are found at load: " .. stage, function()
      local p, err = parse(stage)
      assert.is_nil(p)
      assert.truthy(tostring(err):find(message, 1, true), tostring(err))
    end)
  end

  it("that choose badly are a fault, and decline", function()
    local g, _, lines = fixture.guard { stages = assert(parse [[
      fallback.default({ a = 1 }, { by = function() error "no" end })]]).stages }
    assert.same({ nil, "down" }, { g:call(bad) })
    assert.matches("fallback.default: by: ", lines[1])
  end)

  it("is shown with its key function and keys", function()
    local p = policy_fixture.parse and parse [[fallback.default({ a = 1 },
      { keys = { "a" }, by = function() end })]]
    assert.same({ kind = "default", value = { a = 1 }, by = "a function", keys = { "a" } },
      p.config.fallback[1])
  end)
end)

-- ---- Bounds of one answer ---------------------------------------------------------------------

it("last_good keeps no answer that takes more than max_entry_bytes: the older ones stay", function()
  local g = fixture.guard { stages = { last_good { max_entry_bytes = 1000 } } }
  g:call(ok, "a")
  g:call(function() return ("x"):rep(2000) end, "b")
  assert.equal("ok", (g:call(bad, "a")))
  assert.same({ nil, "down" }, { g:call(bad, "b") })
end)

-- ---- In files ---------------------------------------------------------------------------------

describe("with a state_dir", function()
  local directory, guards

  before_each(function()
    directory, guards = os.tmpname(), {}
    os.remove(directory)
    assert(os.execute("mkdir -m 700 " .. directory))
  end)
  after_each(function()
    for _, g in ipairs(guards) do g:close() end
    os.execute("rm -rf " .. directory)
  end)

  local function guard(stages, options)
    local all = { state_dir = directory }
    for k, v in pairs(options or {}) do all[k] = v end
    local g, now, lines = fixture.guard({ stages = stages }, all)
    guards[#guards + 1] = g
    return g, now, lines
  end

  it("last good answers are there after a restart in an outage", function()
    local g = guard { last_good { persist = "flags" } }
    g:call(function() return { on = true } end, "new-checkout")
    g:close()
    g = guard { last_good { persist = "flags" } }
    local value, _, info = g:call(bad, "new-checkout")
    assert.same({ { on = true }, "last_good" }, { value, info.source })
    assert.is_true(info.age_ms < 60000)
  end)

  it("nothing that a fallback answered, that failed, or that is nothing, is kept (B098)", function()
    local g = guard { last_good { persist = "flags" }, default "degraded" }
    g:call(bad, "a")
    g:call(function() return nil end, "b")
    g:call(function() return "late" end, "c")
    g:close()
    g = guard { last_good { persist = "flags" } }
    assert.equal(1, g.chain.kept[1].count)
    assert.equal("late", (g:call(bad, "c")))
  end)

  it("queued calls are answered with an id, and made again when the breaker lets them", function()
    local again = {}
    local g, now = guard({ queue_stage() }, { replay = function(entry)
      again[#again + 1] = { entry.args[1], entry.id }
      return "done"
    end })
    fixture.open(g)
    local id, err, info = g:call(ok, "pay 7")
    assert.is_string(id)
    assert.same({ "queue", id, "refused" }, { info.source, info.id, info.cause })
    assert.is_nil(err)
    local second = g:call(ok, "pay 8")
    g:tend()
    assert.same({}, again)
    now:advance(1000)
    g:tend()
    g:tend()
    assert.same({ { "pay 7", id }, { "pay 8", second } }, again)
    assert.equal("closed", g:snapshot().state)
    assert.same({ 2, 2 }, { g:snapshot().totals.success, count(g, "queue", "answered") })
  end)

  it("calls made again count, as probes too: a dependency still down opens it anew", function()
    local made = 0
    local g, now = guard({ queue_stage() }, { replay = function()
      made = made + 1
      return nil, "still down"
    end })
    fixture.open(g)
    g:call(ok, 1)
    for _ = 1, 100 do
      now:advance(100)
      g:tend()
    end
    assert.equal("open", g:snapshot().state)
    assert.is_true(made >= 2 and made <= 10, made)
    assert.equal(1, g.chain.durables.queues.q.count)
  end)

  it("a call whose own fault it is goes to the dead letters, one that raises does not", function()
    local g, now, lines = fixture.guard({
      classify = function(call)
        return call.error == "bad request" and "neutral" or call.result and "success" or "failure"
      end,
      stages = { queue_stage() },
    }, { state_dir = directory, replay = function(entry)
      if entry.args[1] == "poison" then return nil, "bad request" end
      return true
    end })
    guards[1] = g
    g:trip(nil, 1000)
    g:call(ok, "poison")
    g:call(ok, "good")
    now:advance(1000)
    for _ = 1, 20 do
      g:tend()
      now:advance(1000)
    end
    local q = g.chain.durables.queues.q
    assert.same({ 0, 1, 1 }, { q.count, q.counts.dead, q.counts.done })
    assert.matches("dead letters, .*bad request", table.concat(lines, "\n"))
  end)

  it("a call that was sent and failed is not queued, unless the policy says so", function()
    local g = guard({ queue_stage() }, { replay = ok })
    assert.same({ nil, "down" }, { g:call(bad, 1) })
    assert.equal(1, count(g, "queue", "declined"))
    g:adopt(fixture.policy { stages = { queue_stage { sent = true } } })
    assert.is_string((g:call(bad, 1)))
  end)

  it("a full queue declines, and says so in the counts", function()
    local g = guard({ queue_stage { max_entries = 1 }, default "no" }, { replay = ok })
    g:trip()
    assert.is_string((g:call(ok, 1)))
    assert.equal("no", (g:call(ok, 2)))
    assert.same({ 1, 1 }, { count(g, "queue", "answered"), count(g, "queue", "full") })
  end)

  it("what is no data is not queued", function()
    local g, _, lines = guard({ queue_stage(), default "no" }, { replay = ok })
    g:trip()
    assert.equal("no", (g:call(ok, print)))
    assert.equal(1, count(g, "queue", "failed"))
    assert.matches("that is no data", lines[1])
  end)

  it("queued calls go through the breaker of their key", function()
    local keys = {}
    local g, now = guard({ queue_stage() }, { replay = function(entry)
      keys[#keys + 1] = entry.key
      return true
    end })
    g:at("eu")
    g:trip("eu", 1000)
    assert.is_string((g:at("eu"):call(ok, 1)))
    g:tend()
    assert.same({}, keys)
    now:advance(1000)
    g:tend()
    assert.same({ "eu" }, keys)
    assert.equal(1, g:snapshot("eu").totals.success)
  end)

  it("a queue outlives the stage that filled it", function()
    local made = 0
    local g, now = guard({ queue_stage() }, { replay = function() made = made + 1 return 1 end })
    g:trip(nil, 1000)
    g:call(ok, 1)
    g:adopt(fixture.policy { stages = {} })
    now:advance(1000)
    g:tend()
    assert.equal(1, made)
  end)

  it("a directory that others can write to is refused", function()
    assert.has_error(function() fixture.guard({}, { state_dir = "/nowhere/at/all" }) end,
      "state_dir /nowhere/at/all: No such file or directory")
    os.execute("chmod 777 " .. directory)
    local _, err = pcall(guard, {})
    assert.matches("others can write to it: it must have mode 0700 or 0755", err)
  end)
end)

it("without a state_dir, or without replay, a policy that needs it is told so, and goes on",
  function()
  local g, _, lines = fixture.guard { stages = {
    queue_stage(), last_good { persist = "flags" }, default "no" } }
  g:trip()
  assert.equal("no", (g:call(ok, 1)))
  assert.matches("fallback.queue q: no file is kept, as there is no state_dir: the stage declines",
    lines[1])
  assert.matches("persist = flags: no file is kept", lines[2])
  local directory = os.tmpname()
  os.remove(directory)
  os.execute("mkdir -m 700 " .. directory)
  g, _, lines = fixture.guard({ stages = { queue_stage(), default "no" } },
    { state_dir = directory })
  g:trip()
  assert.equal("no", (g:call(ok, 1)))
  assert.matches("nobody here makes calls again", lines[1])
  os.execute("rm -rf " .. directory)
  assert.is_true(core.wall_ms() > 1e12)
end)

-- ---- At once ----------------------------------------------------------------------------------

describe("revalidate_after_ms", function()
  --- A host whose background is a list that the test works off.
  local function host()
    local later = {}
    return { name = "test", outlives = true, spawn = function(f) later[#later + 1] = f end }, later
  end

  local function guard(fields, policy_fields)
    local of_host, later = host()
    local made = { stages = { last_good(fields) } }
    for k, v in pairs(policy_fields or {}) do made[k] = v end
    local g, now = fixture.guard(made, { host = of_host })
    return g, now, later
  end

  it("answers at once what is there, and asks again in the background when that is old", function()
    local g, now, later = guard { revalidate_after_ms = 1000 }
    local n = 0
    local function f() n = n + 1 return "v" .. n end
    assert.same({ "v1" }, { g:call(f, "a") })
    now:advance(1000)
    local value, err, info = g:call(f, "a")
    assert.same({ "v1", nil, { source = "last_good", age_ms = 1000, cause = "revalidate" } },
      { value, err, info })
    assert.same({ 1, 0 }, { n, #later })
    now:advance(1)
    assert.equal("v1", (g:call(f, "a")))
    assert.equal(1, #later)
    later[1]()
    assert.equal(2, n)
    value, err, info = g:call(f, "a")
    assert.same({ "v2", nil, 0 }, { value, err, info.age_ms })
    assert.equal(2, g:snapshot().totals.success)
  end)

  it("asks once, however many callers find the answer old", function()
    local g, now, later = guard { revalidate_after_ms = 10 }
    g:call(ok, "a")
    g:call(ok, "b")
    now:advance(11)
    for _ = 1, 100 do g:call(ok, "a") end
    g:call(ok, "b")
    assert.equal(2, #later)
    for _, f in ipairs(later) do f() end
    now:advance(11)
    g:call(ok, "a")
    assert.equal(3, #later)
  end)

  it("lets callers wait for what is older than max_age_ms, and for what is not there", function()
    local g, now, later = guard { revalidate_after_ms = 10, max_age_ms = 100 }
    g:call(ok, "a")
    now:advance(101)
    assert.same({ "ok" }, { g:call(ok, "a") })
    assert.same({ "ok" }, { g:call(ok, "c") })
    assert.equal(0, #later)
  end)

  it("keeps what is there when asking again fails, and the breaker counts that", function()
    local g, now, later = guard { revalidate_after_ms = 10 }
    g:call(ok, "a")
    for i = 1, 5 do
      now:advance(11)
      assert.equal("ok", (g:call(bad, "a")))
      if later[i] then later[i]() end
    end
    assert.equal("open", g:snapshot().state)
    assert.equal(3, g:snapshot().totals.failure)
  end)

  it("has the probe of a half-open breaker made behind its callers' backs", function()
    local g, now, later = guard { revalidate_after_ms = 10 }
    g:call(ok, "a")
    g:trip(nil, 1000)
    now:advance(1000)
    assert.equal("ok", (g:call(ok, "a")))
    later[1]()
    assert.equal("closed", g:snapshot().state)
  end)

  it("asks anew if a refresh never came back", function()
    local g, now, later = guard({ revalidate_after_ms = 10 },
      { numbers = { timeout_ms = 50, lease_ms = 500 } })
    g:call(ok, "a")
    now:advance(11)
    g:call(ok, "a")
    now:advance(101)
    g:call(ok, "a")
    assert.equal(2, #later)
  end)

  it("asks once while a later refresh is under way, though one that was given up ends", function()
    local g, now, later = guard({ revalidate_after_ms = 10 },
      { numbers = { timeout_ms = 50, lease_ms = 500 } })
    g:call(ok, "a")
    now:advance(11)
    g:call(ok, "a")
    now:advance(101)
    g:call(bad, "a")
    assert.equal(2, #later)
    g:call(bad, "a")
    later[1]()
    now:advance(11)
    g:call(ok, "a")
    g:call(ok, "a")
    assert.equal(2, #later)
  end)

  it("asks once when a thousand find the answer old, over reloads, and when that raises", function()
    local fields = { revalidate_after_ms = 10 }
    local g, now, later = guard(fields)
    g:call(ok, "a")
    local function stampede()
      now:advance(11)
      for i = 1, 1000 do
        if i % 250 == 0 then
          g:adopt(fixture.policy { stages = { last_good(fields) }, numbers = { failures = i } })
        end
        assert.equal("ok", (g:call(function() error "down" end, "a")))
      end
    end
    stampede()
    assert.equal(1, #later)
    stampede() -- it hangs
    assert.equal(1, #later)
    later[1]()
    stampede()
    assert.equal(2, #later)
    assert.equal(1, g:snapshot().totals.failure)
  end)

  it("is off in a policy without it, and in a newer generation", function()
    local g, _, later = guard { revalidate_after_ms = 0 }
    g:call(ok, "a")
    assert.equal("last_good", select(3, g:call(ok, "a")).source)
    g:adopt(fixture.policy { stages = { last_good() } })
    assert.is_nil((select(3, g:call(ok, "a"))))
    assert.equal(0, #later)
  end)

  it("is told to have no effect on a host that can't spawn", function()
    local g, _, lines = fixture.guard { stages = { last_good { revalidate_after_ms = 0 } } }
    assert.matches("revalidate_after_ms has no effect: this host can't", lines[1])
    g:call(ok, "a")
    assert.is_nil((select(3, g:call(ok, "a"))))
  end)
end)
