--- A shadow policy: what it sees, what it counts, and that the live one is as without it.

local clocks = require "neap.clock"
local neap_guard = require "neap.guard"
local policy = require "neap.policy"

local clock, files, events, shadows, logged

local LIVE = [[
return { name = "flags", shadow = "next.lua", window = { length_ms = 10000 },
  trip = { failures = 5 }, open = { cooldown_ms = 1000, jitter = 0 },
  half_open = { probes = 1, successes = 1 } }]]

local function candidate(rest)
  return ('return { name = "next", window = { length_ms = 10000 }, %s }'):format(rest)
end

local NEXT = candidate "trip = { failures = 2 }, open = { cooldown_ms = 500, jitter = 0 }"

local function load(params)
  return assert(policy.load("p/flags.lua", {
    params = params,
    read = function(path)
      if files[path] then return files[path] end
      return nil, path .. ": No such file or directory"
    end,
  }))
end

local function new(next, live)
  files = { ["p/flags.lua"] = live or LIVE, ["p/next.lua"] = next or NEXT }
  clock, events, shadows, logged = clocks.manual(1000000), {}, {}, {}
  return neap_guard.new(load(), {
    clock = clock,
    on_event = function(event) events[#events + 1] = event end,
    on_shadow = function(event) shadows[#shadows + 1] = event end,
    log = function(level, text) logged[#logged + 1] = level .. ": " .. text end,
  })
end

--- So many calls that end at once.
local function calls(guard, status, count)
  for _ = 1, count or 1 do
    local permit = guard:acquire()
    if permit then guard:report(permit, { status = status, duration_ms = 1 }) end
  end
end

local function counts(guard)
  local s = guard:snapshot().shadow
  return { s.state, s.same, s.saved, s.lost, s.neutral, s.let_through }
end

describe("a shadow policy", function()
  it("sees each outcome, and would have opened before the live one", function()
    local guard = new()
    calls(guard, 200, 3)
    assert.same({ "closed", 3, 0, 0, 0, 0 }, counts(guard))
    calls(guard, 500, 2)
    assert.same({ "open", 5, 0, 0, 0, 0 }, counts(guard))
    assert.same({ "closed", 0 }, { guard:snapshot().state, #events })
    calls(guard, 500, 2) -- it would have refused these, which failed
    calls(guard, 200, 1) -- and this, which was good
    calls(guard, 404, 1)
    assert.same({ "open", 5, 2, 1, 1, 0 }, counts(guard))
    assert.equal(9, guard:snapshot().shadow.calls)
  end)

  it("is closed with the live one by an operator's reset, with a clean window", function()
    local guard = new()
    calls(guard, 500, 2)
    assert.equal("open", guard:snapshot().shadow.state)
    guard:reset(nil, "alice")
    local s = guard:snapshot().shadow
    assert.same({ "closed", 2, "alice" }, { s.state, s.same, s.last.by })
    assert.equal("flags/default: shadow next.lua would move: open -> closed: reset by hand, by "
      .. "alice", tostring(shadows[2]))
    calls(guard, 500, 1) -- the two before are forgotten
    assert.equal("closed", guard:snapshot().shadow.state)
    calls(guard, 500, 1)
    assert.equal("open", guard:snapshot().shadow.state)
  end)

  it("tells what it would have done, when and why, to whoever asked for that", function()
    local guard = new()
    calls(guard, 500, 2)
    local told = shadows[1]
    assert.same({ 1, "flags", "default", "closed", "open", "failures", 2, 1000000, "next.lua" },
      { #shadows, told.policy, told.key, told.from, told.to, told.cause, told.limit, told.at_ms,
        told.shadow })
    assert.equal("flags/default: shadow next.lua would move: closed -> open: 2 failures in 2 "
      .. "calls, limit 2; open for 500 ms, level 1", tostring(told))
    clock:advance(500)
    calls(guard, 200, 2)
    assert.same({ "open", "half_open", "closed" },
      { shadows[1].to, shadows[2].to, shadows[3].to })
    local snapshot = guard:snapshot().shadow
    assert.same({ 1, 1, "closed" }, { snapshot.opened, snapshot.closed, snapshot.last.to })
    assert.equal("shadow next.lua: closed; of 4 calls it would have refused 0 (saved 0 that "
      .. "failed, lost 0 that were good), let 0 through that were refused, opened 1 time",
      snapshot.text)
    assert.equal(0, #events)
  end)

  it("has what it would do in the log if nobody asked for it", function()
    local guard = new()
    guard = neap_guard.new(guard.policy, { clock = clock, log = function(level, text)
      logged[#logged + 1] = level .. ": " .. text
    end })
    calls(guard, 500, 2)
    assert.is_truthy(logged[#logged]:find("^info: flags/default: shadow next.lua would "))
  end)

  it("counts what the live one refused and it would have let through, and sees none of that",
    function()
      local guard = new(candidate "trip = { failures = 50 }")
      calls(guard, 500, 5)
      assert.equal("open", guard:snapshot().state)
      calls(guard, 500, 4)
      assert.same({ "closed", 5, 0, 0, 0, 4 }, counts(guard))
      guard:mode(nil, "forced_open", { by = "ann" })
      calls(guard, 200, 3) -- an operator has refused these
      assert.same({ "closed", 5, 0, 0, 0, 4 }, counts(guard))
    end)

  it("judges by its own classify, slow calls, functions and timeout", function()
    local guard = new(candidate [[
      trip = { failures = 100, slow_call_ms = 20, decide = function(s)
        return s.failure + s.slow_success >= 2
      end },
      timeout_ms = 50,
      classify = function(call)
        if call.status == 404 then return "failure" end
        return "success"
      end]])
    local permit = guard:acquire()
    guard:report(permit, { status = 404, duration_ms = 1 })
    assert.equal("closed", guard:snapshot().shadow.state)
    permit = guard:acquire()
    guard:report(permit, { status = 200, duration_ms = 30 })
    assert.equal("open", guard:snapshot().shadow.state)
    assert.equal("function", shadows[1].cause)
    guard = new(candidate "trip = { failures = 1 }, timeout_ms = 50")
    permit = guard:acquire()
    guard:report(permit, { status = 200, duration_ms = 51 })
    assert.equal("open", guard:snapshot().shadow.state)
  end)

  it("decides its half-open rounds by its own function", function()
    local guard = new(candidate [[
      trip = { failures = 1 }, open = { cooldown_ms = 500, jitter = 0 },
      half_open = { probes = 5, successes = 5, decide = function(round)
        if round.succeeded == 2 then return "close" end
      end }]])
    calls(guard, 500, 1)
    clock:advance(500)
    calls(guard, 200, 1)
    assert.equal("half_open", guard:snapshot().shadow.state)
    calls(guard, 200, 1)
    assert.equal("closed", guard:snapshot().shadow.state)
  end)

  it("would have let a call through that began before it would have opened", function()
    local guard = new()
    local early = { guard:acquire(), guard:acquire(), guard:acquire() }
    clock:advance(100)
    calls(guard, 500, 2)
    assert.equal("open", guard:snapshot().shadow.state)
    clock:advance(100)
    local late = guard:acquire()
    guard:report(early[1], { status = 500 })
    guard:report(early[2], { status = 200 })
    assert.same({ "open", 4, 0, 0, 0, 0 }, counts(guard))
    guard:report(late, { status = 500 })
    assert.same({ "open", 4, 1, 0, 0, 0 }, counts(guard))
    clock:advance(400) -- half-open now
    calls(guard, 200, 2)
    guard:report(early[3], { status = 500 }) -- of a life before: changes nothing
    assert.same({ "closed", 7, 1, 0, 0, 0 }, counts(guard))
  end)

  it("would have refused a call that began while it would have been open, whenever that ended",
    function()
      local guard = new()
      calls(guard, 500, 2)
      clock:advance(400) -- open for 100 ms more
      local first, second = guard:acquire(), guard:acquire()
      clock:advance(200)
      guard:report(first, { status = 500 }) -- not as a probe, though it may have some by now
      assert.same({ "half_open", 2, 1, 0, 0, 0 }, counts(guard))
      calls(guard, 200, 2)
      assert.same({ "closed", 4, 1, 0, 0, 0 }, counts(guard))
      guard:report(second, { status = 200 })
      assert.same({ "closed", 4, 1, 1, 0, 0 }, counts(guard))
    end)

  it("is on trial whatever its mode says", function()
    for _, mode in ipairs { "forced_open", "forced_closed", "shadow" } do
      local guard = new(candidate(("trip = { failures = 2 }, mode = %q"):format(mode)))
      calls(guard, 200, 2)
      assert.same({ "closed", 2, 0, 0, 0, 0 }, counts(guard))
      calls(guard, 500, 3)
      assert.same({ "open", 4, 1, 0, 0, 0 }, counts(guard))
    end
  end)

  it("sees what guard:call and its lines do, however the call ends", function()
    for _, live in ipairs { LIVE, (LIVE:gsub("trip = {", "retry = { attempts = 1 }, trip = {")) } do
      local guard = new(candidate "trip = { failures = 3 }", live)
      assert.same({ 7, 8 }, { guard:call(function(...) return ... end, 7, 8) })
      assert.is_nil((guard:call(function() return nil, "broken" end)))
      assert.is_false(pcall(guard.call, guard, function() error "raised" end))
      guard:at("eu"):call(function() return 1 end)
      assert.same({ "closed", 3, 0, 0, 0, 0 }, counts(guard))
      guard:call(function() return nil, "broken" end)
      assert.same({ "open", 4, 0, 0, 0, 0 }, counts(guard))
      guard:call(function() return 1 end)
      guard:report(guard:acquire(), "success")
      guard:report(guard:acquire(), "failure")
      assert.same({ "open", 4, 1, 2, 0, 0 }, counts(guard))
      assert.equal("closed", guard:snapshot("eu").shadow.state)
      assert.equal(1, guard:snapshot("eu").shadow.calls)
    end
  end)

  it("has the args and the result that the live one's classify is given", function()
    local guard = new(candidate [[trip = { failures = 1 }, classify = function(call)
      if call.args and call.args[1] == "x" and call.result == "y" then return "failure" end
      return "success"
    end]])
    guard:call(function() return "z" end, "x")
    assert.equal("closed", guard:snapshot().shadow.state)
    assert.equal("y", (guard:call(function() return "y" end, "x")))
    assert.equal("open", guard:snapshot().shadow.state)
    assert.equal("closed", guard:snapshot().state)
  end)
end)

describe("the live policy", function()
  --- All that can be seen of a guard that was taken through the same calls.
  local function seen(guard)
    local list = {}
    for i, status in ipairs { 200, 500, 404, 500, 500, 500, 500, 200, 200, 500, 200 } do
      local permit, err = guard:acquire()
      list[#list + 1] = permit and (guard:report(permit, { status = status, duration_ms = i }))
        or err.kind
      list[#list + 1] = tostring((guard:call(function()
        if status == 500 then return nil, "500" end
        return status
      end)))
      clock:advance(300)
      local s = guard:snapshot()
      s.shadow, s.hash = nil, nil
      list[#list + 1] = s
    end
    for _, event in ipairs(events) do list[#list + 1] = { event.from, event.to, event.cause } end
    return list
  end

  for _, next in ipairs {
    NEXT,
    candidate "trip = { failures = 1 }, classify = function(call) error 'no' end, mode = 'shadow'",
    candidate "trip = { failures = 1, decide = function() while true do end end }",
    candidate "trip = { failures = 1 }, classify = function(call) call.status = 500 return 5 end",
    "oops",
  } do
    it("is as without a shadow, whatever that does: " .. next:sub(1, 90), function()
      local alone = seen(new(NEXT, (LIVE:gsub('shadow = "next.lua",', ""))))
      local with = seen(new(next))
      assert.same(alone, with)
    end)
  end

  it("counts the faults of its shadow apart", function()
    local guard = new((candidate [[trip = { failures = 1 },
      classify = function(call) if call.status == 500 then error "no" end return "success" end]]))
    calls(guard, 500, 3)
    local snapshot = guard:snapshot().shadow
    assert.same({ 3, 0 }, { snapshot.errors, guard:stats().policy_errors })
    assert.is_truthy(snapshot.text:find(", 3 errors$"))
    assert.same({ "open", 1, 2, 0, 0, 0 }, counts(guard)) -- by the live one's verdict
  end)

  it("does not hear its shadow's warn, which the live one may say, too", function()
    local says = 'trip = { failures = 9 }, classify = function() warn "oh" return "success" end'
    local guard = new(candidate(says))
    calls(guard, 500, 2)
    guard:stats()
    assert.same({ {}, 2 }, { logged, guard:snapshot().shadow.calls })
    guard = new(NEXT, (LIVE:gsub("trip = { failures = 5 }", (says:gsub("9", "5")))))
    calls(guard, 500, 2)
    guard:stats()
    assert.same({ "warning: flags: oh" }, logged)
  end)

  it("needs no shadow, and then has none", function()
    local guard = new(NEXT, (LIVE:gsub('shadow = "next.lua",', "")))
    calls(guard, 500, 3)
    assert.is_nil(guard:snapshot().shadow)
    assert.is_nil(guard.line_options.classify)
  end)
end)

describe("a candidate's file", function()
  it("that is changed is judged anew, from nothing; the live breaker goes on", function()
    local guard = new()
    calls(guard, 500, 4)
    assert.same({ "open", 2, 2, 0, 0, 0 }, counts(guard))
    local before, hash = guard:snapshot(), guard.policy.hash
    files["p/next.lua"] = candidate "trip = { failures = 3 }"
    local again = load()
    assert.are_not.equal(hash, again.hash) -- so that a reloader takes it
    guard:adopt(again)
    assert.same({ "closed", 0, 0, 0, 0, 0 }, counts(guard))
    assert.equal(before.failure, guard:snapshot().failure)
    calls(guard, 500, 1)
    assert.same({ "closed", 1, 0, 0, 0, 0 }, counts(guard))
    guard:adopt(load()) -- the same again: its numbers stay
    assert.same({ "closed", 1, 0, 0, 0, 0 }, counts(guard))
    assert.equal("open", guard:snapshot().state)
  end)

  it("that is named again begins anew: it has not seen what was meanwhile", function()
    local guard = new()
    calls(guard, 500, 2)
    assert.equal("open", guard:snapshot().shadow.state)
    local with = files["p/flags.lua"]
    files["p/flags.lua"] = with:gsub('shadow = "next.lua",', "")
    guard:adopt(load())
    assert.is_nil(guard:snapshot().shadow)
    clock:advance(1000)
    files["p/flags.lua"] = with
    guard:adopt(load())
    local shadow = guard:snapshot().shadow
    assert.same({ "closed", 0, 0, 1001000 },
      { shadow.state, shadow.calls, shadow.opened, shadow.since_ms })
  end)

  it("that has a mistake leaves the last good one judging, and says so", function()
    local guard = new()
    calls(guard, 500, 1)
    files["p/next.lua"] = candidate "trip = { failurs = 3 }"
    guard:adopt(load())
    assert.same({ "closed", 1, 0, 0, 0, 0 }, counts(guard))
    calls(guard, 500, 1)
    assert.equal("open", guard:snapshot().shadow.state)
    assert.is_truthy(table.concat(logged, "\n"):find(
      "warning: flags: shadow: p/next.lua:1: trip.failurs: is not a key: did you mean failures?", 1,
      true))
    assert.is_truthy(guard:stats().shadow.error:find("p/next.lua:1", 1, true))
    files["p/next.lua"] = nil
    guard:adopt(load())
    assert.equal("p/next.lua: No such file or directory", guard:stats().shadow.error)
    files["p/next.lua"] = NEXT
    guard:adopt(load())
    assert.is_nil(guard:stats().shadow.error)
    assert.same({ "open", 2, 0, 0, 0, 0 }, counts(guard))
  end)

  it("that has several mistakes has a warning for each", function()
    local guard = new()
    files["p/next.lua"] = candidate "trip = { failurs = 3 },\n timeout_ms = -1"
    guard:adopt(load())
    assert.same({
      "warning: flags: shadow: p/next.lua:1: trip.failurs: is not a key: did you mean failures?",
      "warning: flags: shadow: p/next.lua:2: timeout_ms: -1 is out of range: a whole number of "
        .. "milliseconds from 1 to 3599999",
    }, logged)
  end)

  it("that was never right is no shadow at all", function()
    local guard = new("oops")
    calls(guard, 500, 3)
    assert.is_nil(guard:snapshot().shadow)
    assert.is_nil(guard.candidate)
  end)

  it("has the live policy's params, as far as it declares them, and its modules", function()
    files = {
      ["p/flags.lua"] = [[
        params.declare { failures = { type = "whole", default = 5 }, old = { type = "text" } }
        return { name = "flags", shadow = "next/flags.lua",
          trip = { failures = params.failures } }]],
      ["p/next/flags.lua"] = [[
        params.declare { failures = { type = "whole", default = 3 }, more = { type = "ms",
          default = 7 } }
        return { name = "flags", trip = { failures = params.failures },
          open = { cooldown_ms = require "numbers" + params.more } }]],
      ["p/numbers.lua"] = "return 1000",
    }
    local made = load { failures = 4, old = "x" }
    assert.equal(4, made.candidate.policy.config.trip.failures)
    assert.equal(1007, made.candidate.policy.config.open.cooldown_ms)
    assert.same({ "p/flags.lua", "p/next/flags.lua" }, made.sources)
    assert.equal(3, load({}).candidate.policy.config.trip.failures)
  end)

  it("judges if it declares nothing of what the environment or an operator has set", function()
    files = {
      ["p/flags.lua"] = [[
        params.declare { failures = { type = "whole", default = 5 } }
        return { name = "flags", shadow = "next.lua", trip = { failures = params.failures } }]],
      ["p/next.lua"] = NEXT,
    }
    local made = assert(policy.load("p/flags.lua", {
      settings = { { env = "FAILURES", text = "4", from = "NEAP_PARAM_FLAGS__FAILURES" } },
      read = function(path) return files[path] end,
    }))
    assert.equal(4, made.config.trip.failures)
    assert.equal(2, made.candidate.policy.config.trip.failures)
  end)

  for _, path in ipairs { "/etc/next.lua", "../next.lua", "a/../../b.lua", "next", "",
    "a b.lua" } do
    it("is one below the live one's directory, not " .. path, function()
      files = { ["p/flags.lua"] = LIVE:gsub("next.lua", path) }
      local made, err = policy.load("p/flags.lua", { read = function(of) return files[of] end })
      assert.is_nil(made)
      assert.equal("shadow", err.key)
    end)
  end

  it("may name a shadow itself, which is not looked at", function()
    local guard = new(candidate 'trip = { failures = 2 }, shadow = "none.lua"')
    assert.is_nil(guard:stats().shadow.error)
  end)
end)
