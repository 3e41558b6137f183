--- neap.hosts.uv: calls that are given up at their deadline, on a luv loop.
local uv = require "luv"
local version = require "tests.lua.version"

if not version.can_yield then
  it("the uv host says that Lua 5.1 cannot wait below a protected call", function()
    local ok, err = pcall(require, "neap.hosts.uv")
    assert.is_false(ok)
    assert.matches("needs LuaJIT, or Lua 5.3 and later: Lua 5.1 cannot wait", err)
  end)
  return
end

local host = require "neap.hosts.uv"

local unpack = table.unpack or _G.unpack

local LONG_MS = 60000 -- a time that no test takes, on any machine

--- As any luv program waits; and never less than that, however long the loop has not turned.
local function wait(ms)
  local co, timer = coroutine.running(), uv.new_timer()
  uv.update_time()
  timer:start(ms, 0, function()
    timer:close()
    assert(coroutine.resume(co))
  end)
  coroutine.yield()
end

--- What f comes to, in a coroutine on the loop; then the loop is empty.
local function on_loop(f, ...)
  local results
  host.spawn(function(...)
    local function keep(...) results = { n = select("#", ...), ... } end
    keep(pcall(f, ...))
  end, ...)
  uv.run()
  local open = 0
  uv.walk(function() open = open + 1 end)
  assert.equal(0, open)
  return unpack(results, 1, results.n)
end

describe("the uv host", function()
  describe("run", function()
    it("passes arguments and two results, nils too, for a function that never waits", function()
      assert.same({ true, true, nil, 3 }, { on_loop(host.run, LONG_MS, function(...)
        assert.equal(3, select("#", ...))
        local a, b, c = ...
        return b, a + c, "dropped"
      end, 1, nil, 2) })
    end)

    it("waits for a function that waits", function()
      assert.same({ true, true, "late", "but here" }, { on_loop(host.run, LONG_MS, function(text)
        wait(5)
        wait(5)
        return text, "but here"
      end, "late") })
    end)

    it("gives it up at the deadline, and what it does later reaches nobody", function()
      local came_late, woken = false, 0
      assert.same({ true, "given up", 1 }, { on_loop(function()
        local began_ns = uv.hrtime()
        local in_time = host.run(10, function()
          wait(300)
          came_late = true
          return "too late"
        end)
        woken = woken + 1
        assert((uv.hrtime() - began_ns) / 1e6 >= 9)
        assert.is_false(came_late)
        host.sleep(400)
        assert.is_true(came_late)
        return in_time and "in time" or "given up", woken
      end) })
    end)

    it("counts from the beginning, also what the function did before it first waited", function()
      local _, in_time = on_loop(host.run, 20, function()
        uv.sleep(30)
        wait(60)
      end)
      assert.is_false(in_time)
    end)

    for _, thrown in ipairs { "text", 42, { "table" }, false } do
      it("raises what the function raised, unchanged: " .. type(thrown), function()
        local ok, err = on_loop(host.run, LONG_MS, function()
          wait(1)
          error(thrown, 0)
        end)
        assert.is_false(ok)
        assert.is_true(rawequal(thrown, err))
        ok, err = on_loop(host.run, LONG_MS, function() error(thrown, 0) end)
        assert.is_false(ok)
        assert.is_true(rawequal(thrown, err))
      end)
    end

    it("just calls outside of any coroutine, as in a callback of the loop", function()
      local results
      local timer = uv.new_timer()
      timer:start(0, 0, function()
        timer:close()
        results = { host.run(1, function() return 1, 2 end) }
      end)
      uv.run()
      assert.same({ true, 1, 2 }, results)
    end)

    it("is not confused by a resume that was not meant for it", function()
      local caller
      assert.same({ true, true, "done" }, { on_loop(function()
        caller = coroutine.running()
        local timer = uv.new_timer()
        timer:start(2, 0, function()
          timer:close()
          coroutine.resume(caller, "spurious")
        end)
        return host.run(LONG_MS, function()
          wait(10)
          return "done"
        end)
      end) })
    end)

    it("nests: the inner deadline is the inner call's", function()
      assert.same({ true, true, "inner gave up", nil }, { on_loop(host.run, LONG_MS, function()
        local in_time = host.run(5, function() wait(50) end)
        return in_time and "no" or "inner gave up"
      end) })
    end)

    it("carries a thousand calls at once, each with its own end", function()
      local ended, given_up, held = 0, 0, {}
      local function hold()
        held[#held + 1] = coroutine.running()
        coroutine.yield()
      end
      for i = 1, 1000 do
        local is_quick = i % 2 == 0
        host.spawn(function()
          if host.run(is_quick and LONG_MS or 30, is_quick and wait or hold, 1) then
            ended = ended + 1
          else
            given_up = given_up + 1
          end
        end)
      end
      uv.run()
      assert.same({ 500, 500 }, { ended, given_up })
      for _, co in ipairs(held) do assert(coroutine.resume(co)) end
      assert.same({ 500, 500 }, { ended, given_up })
    end)

    it("leaves a caller alone that was closed meanwhile", function()
      local caller = coroutine.create(function() host.run(5, wait, 20) end)
      assert(coroutine.resume(caller))
      if coroutine.close then coroutine.close(caller) end
      uv.run()
    end)
  end)

  describe("under a guard", function()
    local guard

    before_each(function()
      local policy = assert(require("neap.policy").parse([[
        return {
          name = "flags",
          trip = { failures = 2 },
          timeout_ms = 20,
          fallback = { function(call) if call.args[1] == "helped" then return "instead" end end },
        }
      ]], "flags.lua"))
      guard = require("neap").guard(policy, { host = host })
    end)

    it("gives a call up at the policy's timeout_ms, and counts it as a timeout", function()
      local ok, value, err = on_loop(guard.call, guard, wait, 300)
      assert.is_true(ok)
      assert.is_nil(value)
      assert.equal("timeout", err.kind)
      assert.equal(1, guard:snapshot().totals.timeout)
    end)

    it("answers by the fallback chain at the deadline, not after it", function()
      local has_ended = false
      local _, was_late, value, _, info = on_loop(function()
        local a, b, c = guard:call(function()
          wait(200)
          has_ended = true
        end, "helped")
        return has_ended, a, b, c
      end)
      assert.equal("instead", value)
      assert.equal("function", info.source)
      assert.same({ false, true }, { was_late, has_ended })
    end)

    it("takes a late answer for nothing: it is counted once", function()
      for _ = 1, 2 do on_loop(guard.call, guard, wait, 60) end
      local snapshot = guard:snapshot()
      assert.equal("open", snapshot.state)
      assert.equal(2, snapshot.totals.timeout)
      assert.equal(0, snapshot.totals.success)
    end)

    it("leaves calls in time as they are", function()
      local _, value, err, info = on_loop(guard.call, guard, function(...)
        wait(1)
        return ...
      end, "mine", nil)
      assert.equal("mine", value)
      assert.is_nil(err)
      assert.is_nil(info)
    end)
  end)

  describe("with more around a call", function()
    local function guard_of(lines)
      local policy = assert(require("neap.policy").parse(
        "return { name = 'more', trip = { failures = 100 }, " .. lines .. " }", "more.lua"))
      return require("neap").guard(policy, { host = host, log = function() end })
    end

    it("tries again after a wait in which the loop goes on", function()
      local guard = guard_of [[retry = { base_ms = 20, max_ms = 20, budget = 1, budget_per_s = 100,
        on = function() return true end },]]
      local ticks, tries = 0, 0
      local timer = uv.new_timer()
      timer:start(1, 1, function() ticks = ticks + 1 end)
      local _, value = on_loop(function()
        local answer
        for _ = 1, 8 do -- the waits are random: some of 8 times 2 are long enough to be seen
          tries = 0
          answer = guard:call(function()
            tries = tries + 1
            wait(1)
            if tries < 3 then return nil, "down" end
            return "up"
          end)
        end
        timer:close()
        return answer
      end)
      assert.equal("up", value)
      assert.equal(3, tries)
      assert.is_true(ticks > 16, ticks)
    end)

    it("ends at the deadline, whatever waits", function()
      local guard = guard_of [[timeout_ms = 20, deadline_ms = 50,
        retry = { attempts = 10, base_ms = 1, max_ms = 1, on = function() return true end },]]
      local ended = 0
      local _, took_ms, ended_by_then, value = on_loop(function()
        local began_ns = uv.hrtime()
        local got = guard:call(function()
          wait(300)
          ended = ended + 1
        end)
        return (uv.hrtime() - began_ns) / 1e6, ended, got
      end)
      assert.is_nil(value)
      assert.is_true(took_ms >= 40, took_ms)
      assert.equal(0, ended_by_then)
    end)

    it("waits for a slot in turn, and for so long", function()
      local guard = guard_of "bulkhead = { concurrent = 2, wait_ms = 60000 },"
      local began, most, ended = {}, 0, {}
      for i = 1, 6 do
        host.spawn(function()
          local value = guard:call(function()
            began[#began + 1] = i
            most = math.max(most, guard:snapshot().bulkhead_in_flight)
            wait(5)
            return "done"
          end)
          ended[i] = value
        end)
      end
      uv.run()
      assert.same({ 1, 2, 3, 4, 5, 6 }, began)
      assert.equal(2, most)
      assert.equal(6, #ended)
      assert.equal(0, guard:snapshot().bulkhead_in_flight)
    end)

    it("waits no longer than wait_ms, and nowhere but in a coroutine", function()
      local guard = guard_of "bulkhead = { concurrent = 1, wait_ms = 20 },"
      local permit = guard:acquire()
      local _, took_ms, kind = on_loop(function()
        local began_ns = uv.hrtime()
        local _, err = guard:call(wait, 1)
        return (uv.hrtime() - began_ns) / 1e6, err.kind
      end)
      assert.equal("bulkhead", kind)
      assert.is_true(took_ms >= 19, took_ms)
      local _, err = guard:call(wait, 1)
      assert.equal("bulkhead", err.kind)
      guard:report(permit, "success")
    end)

    it("serves a thousand that wait, one after another, on a flat stack", function()
      local guard = guard_of "bulkhead = { concurrent = 1, wait_ms = 60000 },"
      local served = 0
      for _ = 1, 1000 do
        host.spawn(function()
          guard:call(function()
            served = served + 1
            if served == 1 then wait(5) end
            return true
          end)
        end)
      end
      uv.run()
      assert.equal(1000, served)
    end)
  end)

  it("sleeps in a coroutine, and refuses to outside of any", function()
    local ok, err
    local timer = uv.new_timer()
    timer:start(0, 0, function()
      timer:close()
      ok, err = pcall(host.sleep, 1)
    end)
    uv.run()
    assert.is_false(ok)
    assert.equal("sleep must be called in a coroutine, as by neap.hosts.uv.spawn", err)
    local _, took_ms = on_loop(function()
      local began_ns = uv.hrtime()
      host.sleep(15)
      return (uv.hrtime() - began_ns) / 1e6
    end)
    assert.is_true(took_ms >= 14, took_ms)
  end)

  it("raises what a spawned function raises before it waits", function()
    local ok, err = pcall(host.spawn, function() error({ "mine" }, 0) end)
    assert.is_false(ok)
    assert.same({ "mine" }, err)
  end)
end)
