--- The bulkhead: so many calls at once, and no slot is ever lost.
local fixture = require "tests.lua.fixture"
local neap = require "neap"
local version = require "tests.lua.version"

--- Coroutines that wait for their turn, on a clock that a spec moves.
local function scheduler()
  local now, waiting, woken = neap.clock.manual(10000), {}, {}
  local loop = { now = now }
  local function resume(waiter)
    if coroutine.status(waiter.co) == "suspended" then assert(coroutine.resume(waiter.co)) end
  end
  function loop.spawn(f) assert(coroutine.resume(coroutine.create(f))) end
  --- Lets so much time pass, and all run that may.
  function loop.advance(ms)
    now:advance(ms)
    for i = #waiting, 1, -1 do
      if waiting[i].until_ms <= now:now() then
        local waiter = table.remove(waiting, i)
        waiter.state = waiter.state or "late"
        woken[#woken + 1] = waiter
      end
    end
    while woken[1] do resume(table.remove(woken, 1)) end
  end
  loop.host = { name = "loop" }
  function loop.host.turn(ms, ready)
    local waiter = { co = coroutine.running(), until_ms = now:now() + ms }
    waiting[#waiting + 1] = waiter
    ready(function()
      if waiter.state then return false end
      waiter.state = "woken"
      for i = #waiting, 1, -1 do
        if waiting[i] == waiter then table.remove(waiting, i) end
      end
      woken[#woken + 1] = waiter
      return true
    end)
    coroutine.yield()
    return waiter.state == "woken"
  end
  loop.host.sleep = function(ms) loop.host.turn(ms, function() end) end
  return loop
end

local function policy_of(lines)
  return assert(neap.policy.parse(([[return { name = "b", trip = { consecutive_failures = 3 },
    open = { cooldown_ms = 1000, jitter = 0 }, %s }]]):format(lines), "b.lua"))
end

local function guard_of(lines, options)
  local loop = scheduler()
  local of = { clock = loop.now, host = loop.host, log = function() end }
  for k, v in pairs(options or {}) do of[k] = v end
  return neap.guard(policy_of(lines), of), loop
end

local function in_flight(g, key) return g:snapshot(key).bulkhead_in_flight end

--- f called with so many calls under way, each in the one before.
local function beneath(g, n, f)
  if n == 0 then return f() end
  return g:call(function() return beneath(g, n - 1, f) end)
end

describe("a bulkhead", function()
  it("lets so many calls in at once, and refuses one more", function()
    local g = guard_of "bulkhead = { concurrent = 3 },"
    local function one_more()
      assert.equal(3, in_flight(g))
      local value, err, info = g:call(fixture.ok)
      return { value, err.kind, err.policy, err.key, info }
    end
    assert.same({ nil, "bulkhead", "b", "default" }, beneath(g, 3, one_more))
    assert.equal(0, in_flight(g))
    assert.equal(1, g:snapshot().bulkhead_rejected)
    assert.equal("ok", g:call(fixture.ok))
  end)

  it("says nothing to the breaker by a refusal", function()
    local g = guard_of "bulkhead = { concurrent = 1 },"
    beneath(g, 1, function() for _ = 1, 10 do g:call(fixture.bad) end return true end)
    local s = g:snapshot()
    assert.same({ "closed", 1, 0, 0 }, { s.state, s.calls, s.totals.neutral,
      s.totals.refused_open })
  end)

  it("asks the fallback as any refusal does", function()
    local g = guard_of([[bulkhead = { concurrent = 1 },
      fallback = { function(call) return call.cause .. " by " .. call.refused end },]])
    local value, info
    beneath(g, 1, function()
      local _
      value, _, info = g:call(fixture.ok)
      return true
    end)
    assert.same({ "refused by bulkhead", "refused", "bulkhead" },
      { value, info.cause, info.error.kind })
  end)

  it("counts per key", function()
    local g = guard_of "bulkhead = { concurrent = 1 },"
    local inner
    g:at("a"):call(function() inner = g:at("b"):call(fixture.ok) return true end)
    assert.equal("ok", inner)
    assert.same({ 0, 0 }, { in_flight(g, "a"), in_flight(g, "b") })
  end)

  for _, case in ipairs {
    { "returns", fixture.ok }, { "fails", fixture.bad },
    { "raises", function() error "no" end }, { "raises nil", function() error(nil) end },
  } do
    it("has its slot back when the function " .. case[1], function()
      local g = guard_of("bulkhead = { concurrent = 2 }, trip = { failures = 100 },")
      for _ = 1, 5 do pcall(g.call, g, case[2]) end
      assert.same({ 0, 0 }, { in_flight(g), g:snapshot().bulkhead_rejected })
    end)
  end

  if version.can_yield then
    it("has its slot back when the call's coroutine is dropped where it waits", function()
      local g = guard_of "bulkhead = { concurrent = 1 },"
      local function start()
        local co = coroutine.create(function() g:call(coroutine.yield) end)
        coroutine.resume(co)
        return co
      end
      local co = start()
      assert.equal(1, in_flight(g))
      version.give_up((function() local it = co co = nil return it end)())
      collectgarbage()
      collectgarbage()
      assert.equal(0, in_flight(g))
      assert.equal(1, g:snapshot().totals.abandoned)
    end)
  end

  it("has nothing taken by what another layer refused (B118)", function()
    local g, loop = guard_of [[bulkhead = { concurrent = 2 },
      retry = { attempts = 2, on = function() return true end },]]
    for i = 1, fixture.rounds(10000) do
      local how = i % 5
      if how == 0 then g:trip() elseif how == 1 then g:reset() end
      beneath(g, how, function() return g:call(i % 3 == 0 and fixture.bad or fixture.ok) end)
      loop.now:advance(i % 700)
    end
    local s = g:snapshot()
    assert.same({ 0, 0 }, { s.bulkhead_in_flight, s.probes_in_flight })
    assert.is_true(s.bulkhead_rejected > 0 and s.totals.refused_open > 0)
  end)

  it("gives its slot back between two attempts", function()
    local g, loop = guard_of [[bulkhead = { concurrent = 1 },
      retry = { on = function() return true end },]]
    local seen
    loop.host.sleep = function() seen = in_flight(g) end
    g:call(fixture.bad)
    assert.equal(0, seen)
  end)
end)

describe("a permit in two steps", function()
  it("has the slot, and gives it back once", function()
    local g = guard_of "bulkhead = { concurrent = 2 },"
    local a, b = g:acquire(), g:acquire()
    local none, err = g:acquire()
    assert.same({ "bulkhead", 2 }, { err.kind, in_flight(g) })
    assert.is_nil(none)
    assert.equal("success", (g:report(a, "success")))
    g:report(a, "success")
    assert.equal(1, in_flight(g))
    g:report(b, { status = 503 })
    assert.equal(0, in_flight(g))
  end)

  it("gives it back when it is collected, unreported", function()
    local g = guard_of "bulkhead = { concurrent = 2 },"
    g:acquire()
    g:acquire("other")
    version.collect()
    assert.same({ 0, 0 }, { in_flight(g), in_flight(g, "other") })
  end)

  if version.has_close then
    it("gives it back when it is closed", function()
      local g = guard_of "bulkhead = { concurrent = 2 },"
      version.compile("local g = ... local p <close> = g:acquire()")(g)
      assert.equal(0, in_flight(g))
    end)
  end

  it("of an open breaker takes none", function()
    local g = guard_of "bulkhead = { concurrent = 2 },"
    g:trip()
    assert.equal("open", select(2, g:acquire()).kind)
    assert.equal(0, in_flight(g))
  end)
end)

describe("another policy", function()
  local function adopt(g, lines) g:adopt(policy_of(lines)) end

  it("finds the slots as they are taken, and a smaller number lets fewer in (B119)", function()
    local g = guard_of "bulkhead = { concurrent = 4 },"
    local held = {}
    for i = 1, 4 do held[i] = g:acquire() end
    adopt(g, "bulkhead = { concurrent = 2 },")
    assert.equal(4, in_flight(g))
    for i = 1, 2 do g:report(held[i], "success") end
    assert.is_nil(g:acquire())
    g:report(held[3], "success")
    assert.truthy(g:acquire())
  end)

  it("without a bulkhead lets all in; slots that were taken come back", function()
    local g = guard_of "bulkhead = { concurrent = 1 },"
    local held = g:acquire()
    adopt(g, "")
    assert.truthy(g:acquire())
    g:report(held, "success")
    assert.equal(0, in_flight(g))
    adopt(g, "bulkhead = { concurrent = 1 },")
    held = assert(g:acquire())
    assert.equal(1, in_flight(g))
    g:report(held, "success")
  end)

  it("that comes while a call is under way: its slot comes back (B119)", function()
    local g = guard_of "bulkhead = { concurrent = 1 },"
    g:call(function() adopt(g, "bulkhead = { concurrent = 5 },") return true end)
    assert.equal(0, in_flight(g))
    g:call(function() adopt(g, "") return true end)
    assert.equal(0, in_flight(g))
  end)
end)

if not version.can_yield then return end

describe("waiting for a slot", function()
  --- Calls that go on until they are told, and in which order they began.
  local function callers(g, loop)
    local self = { began = {}, ended = {}, waits = {} }
    function self.start(name, by_ms)
      loop.spawn(function()
        local function f()
          self.began[#self.began + 1] = name
          self.waits[name] = coroutine.running()
          return coroutine.yield()
        end
        local value, err
        if by_ms then value, err = g:call_by(by_ms, f) else value, err = g:call(f) end
        self.ended[name] = value or err.kind
      end)
    end
    function self.finish(name)
      assert(coroutine.resume(self.waits[name], "done"))
      loop.advance(0)
    end
    return self
  end

  it("is first come, first served", function()
    local g, loop = guard_of "bulkhead = { concurrent = 2, wait_ms = 100 },"
    local all = callers(g, loop)
    for name = 1, 6 do all.start(name) end
    assert.same({ 1, 2 }, all.began)
    for name = 1, 6 do all.finish(name) end
    assert.same({ 1, 2, 3, 4, 5, 6 }, all.began)
    assert.same({ 0, 0 }, { in_flight(g), g:snapshot().bulkhead_rejected })
  end)

  it("ends after wait_ms, refused", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    all.start(1)
    all.start(2)
    loop.advance(99)
    assert.is_nil(all.ended[2])
    loop.advance(1)
    assert.equal("bulkhead", all.ended[2])
    all.finish(1)
    assert.same({ 0, 1 }, { in_flight(g), g:snapshot().bulkhead_rejected })
  end)

  it("ends at the call's deadline, if that is earlier", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    all.start(1)
    all.start(2, loop.now:now() + 30)
    loop.advance(30)
    assert.equal("deadline", all.ended[2])
  end)

  it("is no use to who comes later: those that wait go first", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    for name = 1, 3 do all.start(name) end
    assert(coroutine.resume(all.waits[1], "done")) -- 2 is woken, but has not run yet
    all.start(4)
    loop.advance(0)
    all.finish(2)
    all.finish(3)
    assert.same({ 1, 2, 3, 4 }, all.began)
  end)

  it("goes on in its place when somebody took the slot in two steps", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    for name = 1, 3 do all.start(name) end
    assert(coroutine.resume(all.waits[1], "done"))
    local permit = assert(g:acquire())
    loop.advance(0)
    assert.same({ 1 }, all.began)
    g:report(permit, "success")
    loop.advance(0)
    all.finish(2)
    assert.same({ 1, 2, 3 }, all.began)
  end)

  it("is not blocked by one whose coroutine was dropped", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    all.start(1)
    loop.spawn(function()
      local turn = loop.host.turn
      function loop.host.turn(_, ready) -- woken, but nobody runs it any more
        loop.host.turn = turn
        ready(function() return true end)
        coroutine.yield()
      end
      g:call(fixture.ok)
    end)
    all.start(3)
    all.finish(1)
    assert.same({ 1 }, all.began)
    all.start(4)
    loop.advance(0)
    all.finish(3)
    assert.same({ 1, 3, 4 }, all.began)
    all.finish(4)
    assert.equal(0, in_flight(g))
  end)

  it("finds what a policy with more slots has made free", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    for name = 1, 4 do all.start(name) end
    g:adopt(policy_of "bulkhead = { concurrent = 3, wait_ms = 1000 },")
    all.start(5)
    loop.advance(0)
    all.start(6)
    loop.advance(0)
    assert.same({ 1, 2, 3 }, all.began)
    for name = 1, 6 do all.finish(name) end
    assert.equal(0, in_flight(g))
  end)

  it("is a woken one's before it is anybody's who comes then: nobody starves", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 100 },"
    local all = callers(g, loop)
    all.start(1)
    all.start(2)
    for name = 1, 20 do
      assert(coroutine.resume(all.waits[name], "done")) -- wakes the next, and is back before it ran
      all.start(name + 2)
      loop.advance(0)
      assert.equal(name + 1, all.began[#all.began])
    end
    assert.equal(0, g:snapshot().bulkhead_rejected)
  end)

  it("is over for all at once when the breaker opens: who is refused passes his turn on", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    for name = 1, 5 do all.start(name) end
    g:trip()
    all.finish(1)
    assert.same({ "done", "open", "open", "open", "open" }, all.ended)
  end)

  it("that came too late for its own deadline passes its turn on", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    all.start(1)
    all.start(2, loop.now:now() + 50)
    all.start(3)
    assert(coroutine.resume(all.waits[1], "done"))
    loop.advance(60) -- 2 is woken, but runs only now
    assert.equal("deadline", all.ended[2])
    loop.advance(0)
    assert.same({ 1, 3 }, all.began)
  end)

  it("leaves nothing behind when it was in vain, however often", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 10 },"
    local all = callers(g, loop)
    local held = assert(g:acquire())
    local function in_vain(n)
      for _ = 1, n do
        loop.spawn(function() g:call(fixture.ok) end)
        loop.advance(10)
      end
      version.collect()
      return collectgarbage("count")
    end
    local before = in_vain(100)
    assert.is_true(in_vain(fixture.rounds(5000)) - before < 100)
    g:report(held, "success")
    all.start(1)
    assert.same({ 1 }, all.began)
  end)

  it("is told of the slots that another policy has made free, at once", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    for name = 1, 5 do all.start(name) end
    g:adopt(policy_of "bulkhead = { concurrent = 3, wait_ms = 1000 },")
    loop.advance(0)
    assert.same({ 1, 2, 3 }, all.began)
    g:adopt(policy_of "")
    loop.advance(0)
    assert.same({ 1, 2, 3, 4, 5 }, all.began)
  end)

  it("ends when a slot has come back without a report, at the next sweep", function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    local held = { assert(g:acquire()) }
    assert.equal(1, #held)
    all.start(1)
    held[1] = nil
    version.collect() -- the permit goes, and nobody has reported it
    assert.same({ {}, 0 }, { all.began, in_flight(g) })
    g:sweep()
    loop.advance(0)
    assert.same({ 1 }, all.began)
  end)

  it("ends soon after a slot has come back without a report, in the order in which they came",
    function()
    local g, loop = guard_of "bulkhead = { concurrent = 1, wait_ms = 1000 },"
    local all = callers(g, loop)
    local held = { assert(g:acquire()) }
    assert.equal(1, #held)
    all.start(1)
    all.start(2)
    loop.advance(200)
    assert.same({}, all.began) -- they wait still
    held[1] = nil
    version.collect()
    loop.advance(125)
    assert.same({ 1 }, all.began)
    all.finish(1)
    all.finish(2)
    assert.same({ { 1, 2 }, 0 }, { all.began, in_flight(g) })
  end)

  it("of many: never more than so many at once, and each is served or refused in time", function()
    local g, loop = guard_of "bulkhead = { concurrent = 3, wait_ms = 50 },"
    local all = callers(g, loop)
    local random, started = 12345, 0
    local function chance(n)
      random = random * 48271 % 2147483647
      return random % n + 1
    end
    for _ = 1, fixture.rounds(3000) do
      local what = chance(4)
      if what <= 2 then
        started = started + 1
        all.start(started)
      elseif what == 3 then
        loop.advance(chance(30))
      end
      local running = {}
      for _, name in ipairs(all.began) do
        if not all.ended[name] then running[#running + 1] = name end
      end
      assert.equal(#running, in_flight(g))
      assert.is_true(#running <= 3)
      if what == 4 and running[1] then all.finish(running[chance(#running)]) end
    end
    for _ = 1, 100 do
      loop.advance(50)
      for _, name in ipairs(all.began) do if not all.ended[name] then all.finish(name) end end
    end
    for name = 1, started do assert.truthy(all.ended[name]) end
    assert.equal(0, in_flight(g))
  end)
end)
