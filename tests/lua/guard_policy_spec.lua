--- Guards on policy files: what a policy's own functions say about calls that returned something.
local clock = require "neap.clock"
local fixture = require "tests.lua.fixture"
local neap = require "neap"
local version = require "tests.lua.version"

local BUDGET = { budget = { ms = 600000 } } -- no matter how slow the machine is

local function guard_of(text)
  local lines, now = {}, clock.manual(10000)
  local p = assert(neap.policy.parse("return { name = 'p', " .. text .. " }", "p.lua", BUDGET))
  local g = neap.guard(p, { clock = now, log = function(level, line)
    lines[#lines + 1] = level .. " " .. line end })
  return g, now, lines
end

local RULES = "trip = { consecutive_failures = 100 }, "

local function totals(g) return g:snapshot().totals end

describe("a policy's classify", function()
  it("says about an answer what it says, and is asked once", function()
    local g = guard_of(RULES .. [[
      classify = function(call)
        if not call.result then return classify.default(call) end
        call.args[1].asked = call.args[1].asked + 1
        if call.result.status == 200 then return "success" end
        if call.result.status == 201 then return "success", "made" end
        if call.result.status == 404 then return "neutral", "not there" end
        if call.result.status == 429 then return "failure", "busy", 7000 end
        return "failure"
      end]])
    local seen = { asked = 0 }
    for _, status in ipairs { 200, 201, 404, 429, 500, 200 } do
      local answer = { status = status }
      assert.equal(answer, g:call(function() return answer end, seen))
    end
    local t = totals(g)
    assert.same({ 3, 1, 2 }, { t.success, t.neutral, t.failure })
    assert.same({ 6, 0 }, { seen.asked, g:stats().policy_errors })
  end)

  it("opens the breaker on answers, with the time the dependency asked for", function()
    local g = guard_of [[
      trip = { consecutive_failures = 2 },
      classify = function(call) return "failure", "busy", 7000 end,
      fallback = { function(call)
        return call.reason .. " " .. call.cause .. " " .. call.result end } ]]
    for _ = 1, 2 do assert.equal("busy failure ok", (g:call(fixture.ok))) end
    assert.equal(7000, g:snapshot().retry_after_ms)
  end)

  for _, case in ipairs {
    { "raises", "error('wrong')", "wrong" },
    { "raises a table", "error({})", "table value" },
    { "never ends", "while true do end", "steps" },
    { "fills memory", "local t = {} for i = 1, 1e9 do t[i] = {} end", "bytes" },
    { "calls itself for ever", "local function f() return 1 + f() end f()",
      version.is_jit and "stack overflow" or "memory" },
    { "says nonsense", "return 'fine'", "fine" },
    { "says nothing", "do return end", "nil" },
    { "has a number for a reason", "return 'success', 5", "reason" },
    { "writes into the call", "call.result = 'mine'", "read%-only" },
    { "writes past that", "rawset(call, 'result', 'mine')", "read%-only for rawset" },
  } do
    it(("that %s gives way to the shipped one, however the call went"):format(case[1]), function()
      local g, _, lines = guard_of(RULES .. ([[
        classify = function(call)
          if call.args and call.args[1] == "go wrong" then %s end
          return "success"
        end]]):format(case[2]))
      for _ = 1, 3 do assert.equal("ok", g:call(fixture.ok, "go wrong")) end
      assert.same({ nil, "down" }, { g:call(fixture.bad, "go wrong") })
      assert.same({ 3, 1, 4 }, { totals(g).success, totals(g).failure, g:stats().policy_errors })
      assert.equal(1, #lines)
      assert.matches(case[3], lines[1])
    end)
  end

  it("may warn: once a minute for each text, and when the call has been judged", function()
    local g, now, lines = guard_of(RULES .. [[classify = function(call)
      if call.args and call.args[1] then warn(call.args[1]) end
      return "neutral" end]])
    for _ = 1, 3 do g:call(fixture.ok, "the token has expired") end
    g:call(fixture.ok, "and something else")
    assert.same({ "warning p: the token has expired", "warning p: and something else" },
      lines)
    now:advance(60000)
    g:call(fixture.ok, "the token has expired")
    assert.equal(3, #lines)
    assert.equal(0, g:stats().policy_errors)
  end)

  it("can't fill the log or the memory with warnings", function()
    local g, _, lines = guard_of(RULES .. [[classify = function(call)
      for i = 1, 2 do warn(("x"):rep(500) .. i) end
      for i = 1, 20 do warn("number " .. call.duration_ms .. "." .. i) end
      return "neutral" end]])
    for i = 1, 10 do g:call(fixture.ok, i) end
    assert.equal(16, #lines)
    for _, text in ipairs(lines) do assert.is_true(#text <= 400 + #"warning p: ") end
    g = guard_of(RULES .. [[classify = function(call)
      if call.args and call.args[1] then warn {} end
      return "neutral" end]])
    g:call(fixture.ok, 1)
    assert.equal(1, g:stats().policy_errors)
  end)

  it("has said nothing when it was only tried at load", function()
    local g, _, lines = guard_of(RULES .. [[classify = function(call)
      if call.status == 500 then warn "tried" end
      return "neutral" end]])
    g:call(fixture.ok)
    assert.same({}, lines)
  end)

  it("is heard after plain successes, too, when the metrics are read", function()
    local g, _, lines = guard_of(RULES .. [[classify = function()
      warn "all is well"
      return "success" end]])
    g:call(fixture.ok)
    g:stats()
    assert.same({ "warning p: all is well" }, lines)
  end)

  it("sees the result of each call, whatever it tried to keep in an earlier one", function()
    local g = guard_of(RULES .. [[classify = function(call)
      if call.result == "ok" then pcall(rawset, call, "result", "kept") end
      return call.result == "kept" and "neutral" or "success" end]])
    for _ = 1, 3 do g:call(fixture.ok) end
    assert.same({ 3, 0 }, { totals(g).success, totals(g).neutral })
  end)

  it("may be one of the shipped ones", function()
    local g = guard_of(RULES .. "classify = classify.http")
    g:report(g:acquire(), { status = 404 })
    g:report(g:acquire(), { status = 503 })
    g:call(fixture.ok)
    g:call(fixture.bad)
    local t = totals(g)
    assert.same({ 1, 1, 2 }, { t.success, t.neutral, t.failure })
  end)

  it("is the new one after a reload, also when it was called and is not any more", function()
    local g = guard_of(RULES .. "classify = function() return 'neutral' end")
    g:call(fixture.ok)
    for i, text in ipairs { "", "classify = function() return 'neutral' end",
      "classify = function() return 'success' end" } do
      g:adopt(assert(neap.policy.parse("return { name = 'p', " .. RULES .. text .. " }", "p.lua")))
      g:call(fixture.ok)
      assert.equal(i, totals(g).success + totals(g).neutral - 1)
    end
    assert.same({ 2, 2 }, { totals(g).success, totals(g).neutral })
  end)

  it("can be asked about a call within a call that it is asked about", function()
    local g = guard_of(RULES .. [[
      classify = function(call)
        if not call.result then return "neutral" end
        return call.result.x and call.result.name == "outer" and "success" or "neutral"
      end]])
    local inner
    local nosy = setmetatable({}, { __index = function(_, field)
      inner = inner or g:call(function() return { x = 1 } end)
      return field == "name" and "outer" or 1
    end })
    assert.equal(nosy, g:call(function() return nosy end))
    assert.equal(1, inner.x)
    -- Its box runs already: the inner call gets the shipped verdict, the outer one its own.
    assert.same({ 2, 1 }, { totals(g).success, g:stats().policy_errors })
  end)
end)

describe("a policy file", function()
  it("is a guard's by its path", function()
    local g = neap.guard((os.getenv "NEAP_ROOT" or ".") .. "/policies/flag_provider.lua", {
      params = { defaults = { ["new-checkout"] = false } },
    })
    assert.equal("flag_provider", g.name)
    assert.equal("on", g:call(function() return "on" end, "new-checkout"))
    local value, _, info = g:call(fixture.bad, "new-checkout")
    assert.same({ "on", "last_good" }, { value, info.source })
  end)

  it("that can't be loaded raises what is wrong, and where", function()
    local fine, err = pcall(neap.guard, "/nonexistent/p.lua")
    assert.is_false(fine)
    assert.matches("/nonexistent/p.lua", tostring(err))
  end)
end)
