--- A breaker per key: the policy's key function, routes, and idle keys that make room for new ones.
local clock = require "neap.clock"
local core = require "neap.core"
local guard = require "neap.guard"
local policy = require "neap.policy"
local route = require "neap.route"

local fixture = require "tests.lua.fixture"
local version = require "tests.lua.version"

local LENGTH_MS, COOLDOWN_MS = 1000, 4000
local IDLE_MS = LENGTH_MS + COOLDOWN_MS

local function ok() return "ok" end
local function bad() return nil, "down" end

--- A guard of a policy file's text, with these fields, on a manual clock.
local function new(fields, options)
  local text = ([[return {
    name = "p", trip = { consecutive_failures = 2 }, window = { length_ms = 1000 },
    open = { cooldown_ms = 1000, max_cooldown_ms = 4000, jitter = 0 },
    %s }]]):format(fields)
  local now, lines = clock.manual(10000), {}
  local all = { clock = now, log = function(_, line) lines[#lines + 1] = line end }
  for k, v in pairs(options or {}) do all[k] = v end
  return guard.new(assert(policy.parse(text, "p.lua")), all), now, lines
end

local BY_FIRST = "key = function(call) return call.args[1] end"

local function keys(g)
  local list = {}
  for i, row in ipairs(g:breakers()) do list[i] = row.key end
  return table.concat(list, " ")
end

local function calls(g, key) return g:snapshot(key).totals.success end

describe("a policy's key", function()
  it("gives each endpoint a breaker of its own: one that is down stops no other", function()
    local g = new(BY_FIRST)
    for _ = 1, 2 do g:call(bad, "/reports") end
    local value, err = g:call(ok, "/reports")
    assert.same({ nil, "open", "/reports" }, { value, err.kind, err.key })
    assert.same({ "ok", "ok" }, { g:call(ok, "/users"), (g:call(ok)) })
    assert.same({ "open", "closed", "closed" },
      { g:snapshot("/reports").state, g:snapshot("/users").state, g:snapshot().state })
  end)

  it("is a text, a number or nil, which is the default breaker", function()
    local g = new(BY_FIRST)
    for _, key in ipairs { "a", 7, 7.0, 0.5, "default" } do g:call(ok, key) end
    g:call(ok, nil)
    assert.equal("* 0.5 7 a default", keys(g))
    assert.same({ 1, 2, 1, 2 }, { calls(g, "0.5"), calls(g, "7"), calls(g, "a"), calls(g) })
  end)

  it("that raises, overruns or makes no sense is the default one's, counted and said once a minute",
    function()
      local g, now, lines = new [[key = function(call)
        local given = call.args[1]
        if given == "raise" then error("no such tenant") end
        if given == "loop" then while true do end end
        if given == "big" then return ("x"):rep(102) end
        if given == "table" then return {} end
        if given == "nan" then return 0 / 0 end
        return given
      end]]
      local odd = { "raise", "loop", "big", "table", "nan", "", "*", "a\nb", "a\0b" }
      for _, given in ipairs(odd) do assert.equal("ok", (g:call(ok, given))) end
      assert.same({ #odd, #odd, "default" }, { calls(g), g:stats().policy_errors, keys(g) })
      assert.equal(1, #lines)
      assert.matches("p: key: p.lua:%d+: no such tenant", lines[1])
      now:advance(60000)
      g:call(ok, "")
      assert.matches('p: key: answered "", not a key: 1 to 101 letters', lines[2])
    end)

  it("sees the arguments, and can't change the call", function()
    local g = new [[key = function(call)
      call.args[1].tenant = call.args[1].tenant
      local done = pcall(function() call.key = "x" end)
      return call.args.n .. call.args[1].tenant .. tostring(done)
    end]]
    g:call(ok, { tenant = "acme" }, nil, nil)
    assert.equal("* 3acmefalse default", keys(g))
  end)

  it("goes for both steps: acquire is given the call, or a key, or neither", function()
    local g = new [[key = function(call)
      return call.request and route(call.request.target) or call.args and call.args[1]
    end]]
    local permit = g:acquire { request = { method = "GET", target = "/users/8812?x" } }
    assert.same({ "success", "counted" }, { g:report(permit, "success") })
    permit = g:acquire { args = { "b" } }
    assert.equal("success", (g:report(permit, { result = 1 })))
    g:report(g:acquire "b", "success")
    g:report(g:acquire(), "success")
    assert.same({ 1, 2, 1 }, { calls(g, "/users/{id}"), calls(g, "b"), calls(g) })
    assert.equal("/users/{id}", g:key { request = { target = "/users/5" } })
    assert.has_error(function() g:key "x" end,
      "what is known of the call must be a table, got string")
  end)

  it("is nothing to a policy without one: a call in its place is the default breaker's", function()
    local g = new ""
    g:report(g:acquire { args = { "b" } }, "success")
    g:call(ok, "b")
    assert.same({ "default", 2, "default" }, { keys(g), calls(g), g:key {} })
  end)

  it("goes with retries, a bulkhead, deadlines, last good answers and fallback.guard", function()
    local g = new([[timeout_ms = 50, bulkhead = { concurrent = 1 },
      retry = { attempts = 2, budget = 1 }, fallback = { fallback.last_good {} }, ]] .. BY_FIRST)
    local seen
    assert.equal("a's", (g:call(function() seen = g:deadline() return "a's" end, "a")))
    assert.equal(10050, seen)
    local value, _, info = g:call(bad, "a")
    assert.same({ "a's", "last_good" }, { value, info.source })
    assert.same({ nil, "down" }, { g:call(bad, "b") })
    g:call(function()
      local _, err = g:call(ok, "c")
      assert.equal("bulkhead", err.kind)
      assert.equal("ok", (g:call(ok, "d")))
    end, "c")
    assert.equal(1, g:snapshot("c").bulkhead_rejected)
    local other = new([[fallback = { fallback.guard "p" }]], {
      guards = { p = new(BY_FIRST, { serve = ok }) } })
    assert.equal("ok", (other:call(bad, "x")))
  end)

  it("comes and goes with the policy's generations; breakers stay", function()
    local g = new(BY_FIRST)
    g:call(ok, "a")
    local plain = new ""
    g:adopt(plain.policy)
    g:call(ok, "a")
    g:adopt(new(BY_FIRST .. ", max_keys = 2").policy)
    for _, key in ipairs { "a", "b", "c" } do g:call(ok, key) end
    assert.same({ 2, 1, 1, 1, 2 },
      { calls(g, "a"), calls(g, "b"), calls(g, "*"), calls(g), g:stats().max_keys })
    g:adopt(new(BY_FIRST .. ", max_keys = 1000").policy)
    for i = 1, 999 do g:call(ok, "k" .. i) end
    assert.same({ 2, 1, 1002 }, { g:stats().overflow, calls(g, "k998"), g:stats().breakers })
  end)

  it("* is the one that is shared, and no key of its own", function()
    local g = new "max_keys = 1"
    g:report(g:acquire "*", "success")
    g:call(ok)
    g:report(g:acquire "a", "success")
    assert.same({ "* a default", 1, 0 }, { keys(g), calls(g, "*"), g:stats().overflow })
  end)

  it("is bounded by max_keys of the policy, unless the host has its own", function()
    local function bound(fields, options) return new(fields, options):stats().max_keys end
    assert.same({ 256, 5, 7 },
      { bound "", bound "max_keys = 5", bound("max_keys = 5", { max_keys = 7 }) })
    local _, err =
      policy.parse('return { name = "p", trip = { failures = 1 }, max_keys = 0 }', "p.lua")
    assert.matches("max_keys: 0 is out of range: a whole number from 1 to 1000000", tostring(err))
  end)
end)

describe("keys that are not used any more", function()
  it("make room for new ones, once idle for longer than window and cooldown (B113)", function()
    local g, now = new(BY_FIRST .. ", max_keys = 3")
    for _, key in ipairs { "a", "b", "c", "d" } do g:call(ok, key) end
    assert.same({ "* a b c default", 1 }, { keys(g), g:stats().overflow })
    now:advance(IDLE_MS)
    g:call(ok, "d")
    assert.equal("* a b c default", keys(g))
    now:advance(IDLE_MS + 1)
    g:call(ok, "d")
    assert.matches(" d ", keys(g))
    assert.same({ 3, 1 }, { #g:breakers() - 2, g:stats().evicted })
  end)

  it("stay while they are open or half-open, however long", function()
    local g, now = new(BY_FIRST .. ", max_keys = 2")
    for _ = 1, 2 do g:call(bad, "down") end
    g:call(ok, "up")
    for i = 1, 20 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "new" .. i)
    end
    assert.matches(" down ", keys(g))
    assert.equal("half_open", g:snapshot("down").state)
    assert.is_true(g:stats().evicted > 5)
  end)

  it("stay while a permit, a slot or a mode is held, or somebody has the line", function()
    local g, now = new(BY_FIRST .. ", max_keys = 4, bulkhead = { concurrent = 2 }")
    local permit = g:acquire "permit"
    local line = g:at "line"
    g:call(ok, "mode")
    g:mode("mode", "auto")
    local sleeper = coroutine.wrap(function() return g:call(coroutine.yield, "asleep") end)
    if version.can_yield then sleeper() else g:at "asleep" end
    for i = 1, 20 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "new" .. i)
    end
    assert.same({ "* asleep default line mode permit", 0 }, { keys(g), g:stats().evicted })
    assert.equal("ok", line:call(ok))
    assert.same({ "success", "counted" }, { g:report(permit, "success") })
    for i = 1, 20 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "more" .. i)
    end
    assert.is_nil(g:snapshot "permit")
  end)

  it("stay while a call of theirs is under way, however long it hangs", function()
    local g, now = new(BY_FIRST .. ", max_keys = 1")
    assert.same({ nil, "down" }, { g:call(function()
      for i = 1, 5 do
        now:advance(10 * IDLE_MS)
        g:call(ok, "new" .. i)
      end
      return nil, "down"
    end, "old") })
    local s = g:snapshot "old"
    assert.same({ 1, "* default old", 0 }, { s.totals.failure, keys(g), g:stats().evicted })
    for _ = 1, 2 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "new")
    end
    assert.is_nil(g:snapshot "old")
  end)

  it("begin anew when they come back: their totals have gone with them", function()
    local g, now = new(BY_FIRST .. ", max_keys = 1")
    for _ = 1, 5 do g:call(ok, "a") end
    local page = require("neap.metrics").text { g }
    assert.matches('neap_calls_total{policy="p",key="a",outcome="success"} 5', page, 1, true)
    for i = 1, 4 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "b" .. i)
    end
    page = require("neap.metrics").text { g }
    assert.is_nil(page:find('key="a"', 1, true))
    assert.matches('neap_key_evictions_total{policy="p"} ' .. g:stats().evicted, page, 1, true)
    assert.matches('neap_max_keys{policy="p"} 1', page, 1, true)
    for _ = 1, 4 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "a")
    end
    assert.is_true(calls(g, "a") < 5)
  end)

  it("of a panel that the host gave keep their rows: it may have other users", function()
    local panel = core.panel(10)
    local g, now = new(BY_FIRST .. ", max_keys = 2", { panel = panel })
    for i = 1, 5 do
      now:advance(10 * IDLE_MS)
      g:call(ok, "k" .. i)
    end
    assert.same({ "* default k1 k2", 0, 3 }, { keys(g), g:stats().evicted, g:stats().overflow })
  end)

  it("forget a count window, too, and neutral calls are use", function()
    local g, now = new("key = function(call) return call.args[1] end, max_keys = 2,"
      .. 'classify = function(call) return call.result == "ok" and "success" or "neutral" end')
    g:call(ok, "good")
    for _ = 1, 10 do
      now:advance(COOLDOWN_MS)
      g:call(fixture.bad, "neutral")
      g:call(ok, "new")
    end
    assert.is_truthy(g:snapshot "neutral")
  end)
end)

describe("a million keys", function()
  it("take no more memory than max_keys, and little time each (B113, B209, B110)", function()
    local g, now = new(BY_FIRST .. ", max_keys = 64")
    local n = fixture.rounds(_VERSION == "Lua 5.4" and 1000000 or 200000)
    local function some(from, to)
      for i = from, to do
        if i % 100 == 0 then now:advance(20 * 1000000 / n) end
        g:call(ok, "key-" .. i)
      end
      collectgarbage()
      collectgarbage()
      return collectgarbage "count"
    end
    local began, half = os.clock(), math.floor(n / 2)
    local first_kb = some(1, half)
    local last_kb = some(half + 1, n)
    local us = (os.clock() - began) / n * 1e6
    print(("\n%d keys: %.1f us a call, %.0f KB, then %.0f KB; %d had a breaker of their own before")
      :format(n, us, first_kb, last_kb, g:stats().evicted))
    assert.is_true(last_kb < first_kb + 200)
    assert.equal(66, #g:breakers())
    assert.is_true(g:stats().evicted > 500)
    assert.equal(n, g:stats().overflow + g:stats().evicted + 64)
    assert.is_true(us < 1000)
  end)
end)

describe("route", function()
  local of = route.new()

  for target, key in pairs {
    ["/users/8812/orders?page=2"] = "/users/{id}/orders",
    ["/v1/items/550e8400-e29b-41d4-a716-446655440000"] = "/v1/items/{id}",
    ["/blobs/9f86d081884c7d65/raw"] = "/blobs/{id}/raw",
    ["/blobs/deadbeefdeadbeef"] = "/blobs/{id}",
    ["http://shop.example:8080/cart?x#y"] = "/cart",
    ["/a//b/"] = "/a/b", ["/"] = "/", [""] = "/", ["/v2/users"] = "/v2/users",
    ["/caf%C3%A9"] = "/{id}", ["/x\"y\n/z"] = "/{id}/z", ["/2024-11-30/report"] = "/{id}/report",
    ["/a/b/c/d/e/f/g/h/i/j"] = "/a/b/c/d/e/f/g/h/*",
  } do
    it(("of %q is %s"):format(target, key), function() assert.equal(key, of(target)) end)
  end

  it("is short and of safe letters, whatever is asked for", function()
    local rounds = fixture.rounds(3000)
    for i = 1, rounds do
      local bytes = {}
      for n = 1, i % 300 do bytes[n] = string.char((i * 7919 + n * n * 104729) % 256) end
      local key = of(table.concat(bytes))
      assert.is_true(#key <= 80 and not key:find "[%c%s\"\\?#\128-\255]", key)
    end
  end)

  it("with templates is the first that fits, or nil: as many keys as templates (B113)", function()
    local list = { "/users/me", "/users/{name}", "/users/{name}/orders/{id}", "/static/*" }
    for target, key in pairs {
      ["/users/me"] = "/users/me", ["/users/anne?x"] = "/users/{name}",
      ["/users/anne/orders/7"] = "/users/{name}/orders/{id}", ["/static"] = "/static/*",
      ["/static/a/b/c.png"] = "/static/*",
    } do
      assert.equal(key, of(target, list))
    end
    for _, target in ipairs { "/", "/users", "/users/a/orders", "/wp-admin/x.php" } do
      assert.is_nil(of(target, list))
    end
  end)

  it("says what is wrong with its arguments, and where", function()
    local long = "/" .. ("x"):rep(80)
    for _, case in ipairs {
      { 5, nil, "route: what was asked for must be a text, got number" },
      { "/x", "/x", "route: templates are a list of texts, got string" },
      { "/x", { "x" }, 'a template is a path such as "/users/{id}", of up to 80 letters, got "x"' },
      { "/x", { 7 }, "got number" }, { "/x", { long }, "letters, got" },
      { "/x", { "/a b" }, 'got "/a b"' },
    } do
      local done, err = pcall(of, case[1], case[2])
      assert.is_false(done)
      assert.matches(case[3], err, 1, true)
    end
  end)
end)
