--- A guard's function waits as the program's scheduler has it; the guard knows none of them.
local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"

-- Written for every Lua, but packaged for some.
package.path = package.path .. ";/usr/share/lua/5.3/?.lua;/usr/share/lua/5.1/?.lua"

local copas = require "copas"
local cqueues = require "cqueues"
local http_client = require "http.request"
local http_headers = require "http.headers"
local http_server = require "http.server"
local socket = require "socket"
local uv = require "luv"

local function totals(g) return g:snapshot().totals end

-- Each has: run(functions), all side by side, until the last has ended, raising what they raise;
-- and sleep(ms), for one of them.
local schedulers = {}

schedulers.coroutines = {
  sleep = function(ms)
    for _ = 1, ms do coroutine.yield() end
  end,
  run = function(functions)
    local waiting = {}
    for i, f in ipairs(functions) do waiting[i] = coroutine.create(f) end
    while waiting[1] do
      local still = {}
      for _, co in ipairs(waiting) do
        assert(coroutine.resume(co))
        if coroutine.status(co) ~= "dead" then still[#still + 1] = co end
      end
      waiting = still
    end
  end,
}

-- This version of copas waits for sockets and nothing else: as long as so many lines take to
-- somebody who sends them back.
local echo = assert(socket.bind("127.0.0.1", 0))
copas.addserver(echo, function(client)
  while true do
    local line = copas.receive(client)
    if not line then return end
    copas.send(client, line .. "\n")
  end
end)

schedulers.copas = {
  sleep = function(ms)
    local client = socket.tcp()
    assert(copas.connect(client, "127.0.0.1", (select(2, echo:getsockname()))))
    for _ = 1, ms do
      copas.send(client, "still there?\n")
      assert(copas.receive(client))
    end
    client:close()
  end,
  run = function(functions)
    local failed, left = nil, #functions
    for _, f in ipairs(functions) do
      copas.addthread(function()
        copas.setErrorHandler(function(err) failed, left = err, 0 end)
        f()
        left = left - 1
      end)
    end
    while left > 0 do copas.step(1) end
    if failed then error(failed, 0) end
  end,
}

schedulers.cqueues = {
  sleep = function(ms) cqueues.sleep(ms / 1000) end,
  run = function(functions)
    local queue = cqueues.new()
    for _, f in ipairs(functions) do queue:wrap(f) end
    assert(queue:loop(10))
  end,
}

schedulers.luv = {
  sleep = function(ms)
    local co = coroutine.running()
    local timer = uv.new_timer()
    timer:start(ms, 0, function()
      timer:close()
      assert(coroutine.resume(co))
    end)
    coroutine.yield()
  end,
  run = function(functions)
    for _, f in ipairs(functions) do assert(coroutine.resume(coroutine.create(f))) end
    uv.run()
  end,
}

--- As guard:call; in two steps where a function can't yield below it.
local function call(g, f, ...)
  if version.can_yield then return g:call(f, ...) end
  local permit, err = g:acquire()
  if not permit then return nil, err end
  local value
  value, err = f(...)
  g:report(permit, { result = value, error = err })
  return value, err
end

for name, scheduler in pairs(schedulers) do
  describe("under " .. name, function()
    it("calls wait side by side", function()
      local g, results, functions, at_once, most = fixture.guard(), {}, {}, 0, 0
      for i = 1, 20 do
        functions[i] = function()
          results[i] = call(g, function(n)
            at_once = at_once + 1
            most = math.max(most, at_once)
            scheduler.sleep(1 + n % 3)
            at_once = at_once - 1
            return n * 2
          end, i)
        end
      end
      scheduler.run(functions)
      for i = 1, 20 do assert.equal(i * 2, results[i]) end
      assert.equal(20, totals(g).success)
      assert.is_true(most > 1, "one after the other")
    end)

    it("a probe that waits holds its slot as long", function()
      local g, now = fixture.guard()
      fixture.open(g)
      now:advance(1000)
      local kind, first
      scheduler.run {
        function()
          first = call(g, function()
            scheduler.sleep(30)
            return "ok"
          end)
        end,
        function()
          scheduler.sleep(10)
          kind = select(2, call(g, fixture.ok)).kind
        end,
      }
      assert.same({ "ok", "probes_busy", "closed" }, { first, kind, g:snapshot().state })
    end)

    it("failures open it, and the last good answer comes meanwhile", function()
      local g = fixture.guard { stages = { { kind = "last_good", max_age_ms = 60000 } } }
      local function down()
        scheduler.sleep(1)
        return nil, "down"
      end
      local answers = {}
      scheduler.run { function()
        answers[1] = g:call(fixture.ok)
        for _ = 1, 3 do call(g, down) end
        answers[2] = g:call(down)
      end }
      assert.same({ "ok", "ok", "open" }, { answers[1], answers[2], g:snapshot().state })
    end)

    if version.can_yield then
      it("what it raises after it has waited comes to the caller", function()
        local g, err, got = fixture.guard(), {}, nil
        scheduler.run { function()
          got = select(2, pcall(g.call, g, function()
            scheduler.sleep(1)
            error(err)
          end))
        end }
        assert.is_true(rawequal(err, got))
        assert.equal(1, totals(g).failure)
      end)
    end
  end)
end

describe("lua-http", function()
  local function serve(queue, answer)
    local server = assert(http_server.listen {
      host = "127.0.0.1", port = 0, cq = queue,
      onstream = function(_, stream)
        assert(stream:get_headers())
        local status, text = answer()
        local headers = http_headers.new()
        headers:append(":status", tostring(status))
        assert(stream:write_headers(headers, false))
        assert(stream:write_chunk(text, true))
      end,
    })
    assert(server:listen())
    return server, ("http://127.0.0.1:%d/"):format((select(3, server:localname())))
  end

  local function fetch(url)
    local headers, stream = http_client.new_from_uri(url):go(5)
    if not headers then return nil, stream end
    local status = tonumber(headers:get ":status")
    local body = stream:get_body_as_string(5)
    stream:shutdown()
    return { status = status, body = body }
  end

  it("requests of a program are guarded, each in its own coroutine", function()
    local g = fixture.guard {
      classify = function(answer)
        return answer.result and answer.result.status < 500 and "success" or "failure"
      end,
    }
    local queue, status, bodies, refused = cqueues.new(), 200, {}, nil
    local server, url = serve(queue, function()
      cqueues.sleep(0.001)
      return status, "status " .. status
    end)
    queue:wrap(function()
      local clients = cqueues.new()
      for i = 1, 5 do
        clients:wrap(function() bodies[i] = call(g, fetch, url).body end)
      end
      assert(clients:loop(10))
      status = 503
      for _ = 1, 3 do
        call(g, fetch, url)
      end
      refused = select(2, g:call(fetch, url))
      server:close()
    end)
    assert(queue:loop(20))
    assert.same({ "status 200", "status 200", "status 200", "status 200", "status 200" }, bodies)
    assert.same({ "open", "open" }, { g:snapshot().state, refused.kind })
    assert.equal(5, totals(g).success)
  end)
end)
