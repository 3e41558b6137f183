--- A guard's function runs in the caller's own coroutine and may yield in any scheduler.
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"
local unpack, pack = version.unpack, version.pack

local function totals(g) return g:snapshot().totals end

--- A coroutine that waits in a call.
local function start(g)
  local co = coroutine.create(function() return g:call(coroutine.yield) end)
  assert(coroutine.resume(co))
  return co
end

--- Resumes until it ends; answers what it ended with.
local function finish(co, ...)
  local got = pack(coroutine.resume(co, ...))
  while coroutine.status(co) ~= "dead" do got = pack(coroutine.resume(co, "resumed")) end
  return unpack(got, 1, got.n)
end

if not version.can_yield then
  describe("on Lua 5.1, a function that yields", function()
    local SAYS = "guard:call: the function yielded, which Lua 5.1 cannot do below a protected "
      .. "call: put guard:acquire and guard:report around it"

    local function call_yields(g)
      return coroutine.wrap(function() return pcall(g.call, g, coroutine.yield, "from below") end)()
    end

    it("is told so, and counts as given up", function()
      local g = fixture.guard()
      local fine, err = call_yields(g)
      assert.is_false(fine)
      assert.equal(1, err:find(SAYS, 1, true), err)
      assert.same({ 0, 0, 1 }, { totals(g).success, totals(g).failure, totals(g).abandoned })
    end)

    it("as a probe gives its slot back", function()
      local g, now = fixture.guard()
      fixture.open(g)
      now:advance(1000)
      assert.is_false((call_yields(g)))
      assert.same({ "half_open", 0 }, { g:snapshot().state, g:snapshot().probes_in_flight })
      assert.equal("ok", g:call(fixture.ok))
    end)

    it("as a guard of the chain, or a stage of it, does not answer", function()
      local _, _, lines = fixture.guard { name = "second" }
      local g = fixture.guard { stages = { fixture.stage(coroutine.yield) } }
      assert.same({ nil, "down" }, { coroutine.wrap(function() return g:call(fixture.bad) end)() })
      assert.same({}, lines)
    end)

    it("is guarded in two steps", function()
      local g = fixture.guard()
      local co = coroutine.create(function()
        local permit = g:acquire()
        local answer = coroutine.yield "waits"
        g:report(permit, { result = answer })
        return answer
      end)
      assert.same({ true, "waits" }, { coroutine.resume(co) })
      assert.same({ true, "done" }, { coroutine.resume(co, "done") })
      assert.equal(1, totals(g).success)
    end)
  end)
  return
end

describe("a function that yields", function()
  local g, now
  before_each(function() g, now = fixture.guard() end)

  it("hands values to its scheduler and back, in the same coroutine (B166)", function()
    local inside
    local co = coroutine.create(function(...)
      return g:call(function(...)
        inside = coroutine.running()
        local sent = coroutine.yield(select("#", ...), ...)
        now:advance(5)
        return sent, coroutine.yield("again")
      end, ...)
    end)
    assert.same({ true, 3, 1, nil, 3 }, { coroutine.resume(co, 1, nil, 3) })
    assert.same({ true, "again" }, { coroutine.resume(co, "sent") })
    assert.same({ true, "sent", "last" }, { coroutine.resume(co, "last") })
    assert.equal(co, inside)
    assert.equal(5, g:snapshot().duration_sum_ms)
    assert.equal(1, totals(g).success)
  end)

  for _, n in ipairs { 509, 510, 511, 1022, 1023, 5000 } do
    it(("finds its results above %d arguments that the chain may want"):format(n), function()
      local seen
      g = fixture.guard { stages = { fixture.stage(function(call) seen = call.args.n end) } }
      local args = {}
      for i = 1, n do args[i] = i end
      local co = coroutine.create(function()
        return g:call(function(...)
          coroutine.yield()
          return nil, "down", ...
        end, unpack(args))
      end)
      assert.same({ true, nil, "down" }, { finish(co) })
      assert.equal(n, seen)
    end)
  end

  it("may do so under pcall and xpcall; its error is caught by the same one (B166)", function()
    for _, protect in ipairs { pcall, function(f, ...)
      return xpcall(f, function(e) return e end, ...) end } do
      local err = {}
      local co = coroutine.create(function()
        return protect(g.call, g, function()
          coroutine.yield()
          error(err)
        end)
      end)
      local resumed, fine, got = finish(co)
      assert.same({ true, false }, { resumed, fine })
      assert.equal(err, got)
    end
    assert.equal(2, totals(g).failure)
  end)

  it("may be ten coroutines deep, and the host may have replaced coroutine.* (B169)", function()
    local real = coroutine
    local function deep(n)
      if n == 0 then
        return g:call(function()
          real.yield("from below")
          return "done"
        end)
      end
      local co = real.create(deep)
      local got = pack(real.resume(co, n - 1))
      while real.status(co) ~= "dead" do got = pack(real.resume(co, real.yield(got[2]))) end
      return unpack(got, 2, got.n)
    end
    _G.coroutine = setmetatable({}, { __index = function() error("replaced by the host") end })
    local co = real.create(deep)
    local _, first = real.resume(co, 10)
    local _, last = real.resume(co)
    _G.coroutine = real
    assert.same({ "from below", "done" }, { first, last })
  end)

  it("interleaves with others of the same guard", function()
    local cos = {}
    for i = 1, 100 do
      cos[i] = coroutine.create(function()
        return g:call(function(n)
          for _ = 1, n % 7 do coroutine.yield() end
          if n % 10 == 0 then return nil, n end
          return n
        end, i)
      end)
    end
    local results, left = {}, 100
    while left > 0 do
      for i, co in ipairs(cos) do
        if coroutine.status(co) ~= "dead" then
          local _, value, err = coroutine.resume(co)
          if coroutine.status(co) == "dead" then results[i], left = value or err, left - 1 end
        end
      end
    end
    for i = 1, 100 do assert.equal(i, results[i]) end
    assert.same({ 90, 10 }, { totals(g).success, totals(g).failure })
  end)

  it("can't let more than N - 1 + C calls through to a dead dependency (B115)", function()
    for _, concurrent in ipairs { 1, 2, 10, 50 } do
      local guarded, reached = fixture.guard(), 0
      local function caller()
        while true do
          guarded:call(function()
            reached = reached + 1
            coroutine.yield()
            return fixture.bad()
          end)
          coroutine.yield()
        end
      end
      local callers = {}
      for i = 1, concurrent do callers[i] = coroutine.create(caller) end
      for _ = 1, 20 do
        for _, co in ipairs(callers) do assert(coroutine.resume(co)) end
      end
      assert.equal("open", guarded:snapshot().state)
      assert.is_true(reached <= 3 - 1 + concurrent)
    end
  end)

  it("is classified by the policy that let it in, and counted by the newest rules", function()
    local seen = {}
    local function generation(name, numbers)
      return fixture.policy {
        hash = name, numbers = numbers, classify = function()
          seen[#seen + 1] = name return "failure" end,
      }
    end
    g = fixture.guard { classify = function() seen[#seen + 1] = "first" return "failure" end }
    local co = coroutine.create(function() return g:call(coroutine.yield) end)
    coroutine.resume(co)
    g:adopt(generation("second"))
    g:adopt(generation("third", { consecutive_failures = 1 }))
    coroutine.resume(co)
    assert.same({ "first" }, seen)
    assert.equal("open", g:snapshot().state)
    g:reset()
    g:call(fixture.ok)
    assert.same({ "first", "third" }, seen)
  end)

  it("takes its own time: the state may change and its report then is stale", function()
    local co = coroutine.create(function() return g:call(coroutine.yield) end)
    coroutine.resume(co)
    g:reset()
    assert.same({ true, "late" }, { coroutine.resume(co, "late") })
    assert.same({ 1, 0 }, { totals(g).stale, totals(g).success })
  end)

  it("may be given up by whoever runs it: a plain permit holds nothing", function()
    version.give_up(start(g))
    assert.equal("ok", g:call(fixture.ok))
  end)
end)

describe("a probe", function()
  local g, now
  before_each(function()
    g, now = fixture.guard { numbers = { lease_ms = 60000 } }
    fixture.open(g)
    now:advance(1000)
  end)

  local function start_probe()
    local co = start(g)
    assert.equal(1, g:snapshot().probes_in_flight)
    return co
  end

  it("whose coroutine is closed gives its slot back", function()
    version.give_up(start_probe())
    assert.same({ 0, 1 }, { g:snapshot().probes_in_flight, totals(g).abandoned })
    assert.equal("ok", g:call(fixture.ok))
    assert.equal("closed", g:snapshot().state)
  end)

  it("whose coroutine is forgotten gives its slot back when it is collected", function()
    start_probe()
    collectgarbage()
    collectgarbage()
    assert.same({ 0, 1 }, { g:snapshot().probes_in_flight, totals(g).abandoned })
  end)

  it("may yield and closes the breaker when it comes back", function()
    local co = start_probe()
    assert.same({ true, "fine" }, { coroutine.resume(co, "fine") })
    assert.equal("closed", g:snapshot().state)
    assert.equal(0, totals(g).abandoned)
  end)

  it("that raises re-opens it", function()
    local co = coroutine.create(function()
      return g:call(function() coroutine.yield() error("no") end) end)
    coroutine.resume(co)
    assert.is_false(coroutine.resume(co))
    assert.equal("open", g:snapshot().state)
  end)

  it("gives its slot back after a thousand callers that went away (B010)", function()
    local n = coroutine.close and fixture.rounds(1000) or 20
    for _ = 1, n do version.give_up(start_probe()) end
    assert.same({ 0, n }, { g:snapshot().probes_in_flight, totals(g).abandoned })
  end)
end)
