--- trip.decide and half_open.decide: what they are given is what docs/policies.md says, field by
--- field, and a function that fails does no more than the documents say.

local clocks = require "neap.clock"
local core = require "neap.core"
local guard = require "neap.guard"
local policy = require "neap.policy"

--- The fields of a table in the document.
local function described(what)
  local file = assert(io.open((os.getenv "NEAP_ROOT" or ".") .. "/docs/policies.md"))
  local text = file:read("*a")
  file:close()
  local rows = text:match("<!%-%- given: " .. what:gsub("%.", "%%.") .. " %-%->\n(.-)<!%-%- end")
  local fields = {}
  local _, below = rows:find("\n|%-[^\n]*\n")
  for row in rows:sub(below):gmatch("\n(|[^\n]+)") do
    for field in row:match("^| (.-) |"):gmatch("`([%w_]+)`") do fields[#fields + 1] = field end
  end
  table.sort(fields)
  return fields
end

local function fields_of(given)
  local fields = {}
  for field in pairs(given) do fields[#fields + 1] = field end
  table.sort(fields)
  return fields
end

local clock, logged

--- A guard whose functions are those texts.
local function new(trip, decide, budget)
  clock, logged = clocks.manual(100000), {}
  local text = ([[
    return {
      name = "x", window = { length_ms = 10000 },
      trip = { failures = 50, slow_call_ms = 100, decide = function(now) %s end },
      open = { cooldown_ms = 1000, jitter = 0 },
      half_open = { probes = 4, successes = 4, decide = function(round) %s end },
    }]]):format(trip, decide or "")
  return guard.new(assert(policy.parse(text, "x.lua", { budget = budget })), {
    clock = clock, log = function(_, said) logged[#logged + 1] = said end,
  })
end

local function calls(g, status, count, ms)
  for _ = 1, count or 1 do
    local permit = g:acquire()
    if permit then g:report(permit, { status = status, duration_ms = ms or 1 }) end
  end
end

local function state(g) return g:snapshot().state end

--- What a function was given: what it raises is seen in the log.
local function names_seen(g, where)
  for _, text in ipairs(logged) do
    local names = text:match("^x: " .. where:gsub("%.", "%%.") .. ": .-seen: (.*)$")
    if names then return names end
  end
  return "not asked: " .. state(g)
end

local SEE = [[
  local names = {}
  for name in pairs(%s) do names[#names + 1] = name end
  table.sort(names)
  error("seen: " .. table.concat(names, ","))]]

describe("trip.decide", function()
  it("is given what the document says, and no more", function()
    -- A log line is cut: all of the names are compared by their digest.
    local g = new((SEE:format("now"):gsub("table%.concat%(names, \",\"%)", "digest(%0)")))
    calls(g, 500)
    local fields = described "trip.decide"
    assert.is_true(#fields > 10)
    assert.same(fields, fields_of(g.line.breaker:snapshot(g.policy.rules, clock:now())))
    assert.equal(core.library().digest(table.concat(fields, ",")), names_seen(g, "trip"))
  end)

  it("counts the window as the document says: slow, failed, timeouts, but nothing neutral",
    function()
    local g = new [[
      local sums = { now.calls, now.success, now.slow_success, now.failure, now.slow_failure,
        now.failure_rate, now.slow_rate, now.consecutive_failures }
      error(table.concat(sums, " "))]]
    calls(g, 200, 3)
    calls(g, 404, 5)
    calls(g, 200, 1, 150)
    assert.is_truthy(logged[1]:find("4 3 1 0 0 0.?0? 0.25 0", 1), logged[1])
    g = new "return now.calls == 8 and now.failure_rate == 0.5 and now.slow_failure == 1"
    calls(g, 200, 4)
    calls(g, 500, 2)
    calls(g, 500, 1, 200)
    assert.equal("closed", state(g))
    g:report(g:acquire(), "timeout")
    assert.equal("open", state(g))
    assert.equal("function", g:last_transition().cause)
  end)

  it("forgets what has left the window", function()
    local g = new "return now.failure >= 3"
    calls(g, 500, 2)
    clock:advance(10001)
    calls(g, 500, 2)
    assert.equal("closed", state(g))
    calls(g, 500, 1)
    assert.equal("open", state(g))
  end)

  for _, case in ipairs {
    -- body                                    what the log says
    { "error 'no'",                            "trip: x.lua:3: no" },
    { "while true do end",                     "trip: took more than its 5000 steps" },
    { "return ('x'):rep(1000000)",             "trip: asked for more than its 65536 bytes" },
    { "return 1",                              "trip: answered 1, not true or false" },
    { "now.calls = nil return now.x.y",        "trip: x.lua:3:" },
  } do
    it("that goes wrong leaves it to the numbers, is counted and logged: " .. case[1], function()
      local g = new(case[1], nil, { steps = 5000, bytes = 65536, ms = 1000 })
      calls(g, 500, 49)
      assert.same({ "closed", 49 }, { state(g), g:stats().policy_errors })
      assert.is_truthy(logged[1]:find(case[2], 1, true), logged[1])
      calls(g, 500, 1)
      assert.same({ "open", "failures" }, { state(g), g:last_transition().cause })
    end)
  end
end)

describe("half_open.decide", function()
  local function half_open(decide, budget)
    local g = new("return now.failure >= 1", decide, budget)
    calls(g, 500)
    clock:advance(1000)
    return g
  end

  it("is given what the document says, and no more", function()
    local g = half_open(SEE:format "round")
    calls(g, 200)
    assert.equal(table.concat(described "half_open.decide", ","), names_seen(g, "half_open.decide"))
  end)

  it("decides in place of successes, earlier or otherwise, with the probe just now counted",
    function()
    local g = half_open "if round.succeeded == 1 and round.failed == 0 then return 'close' end"
    calls(g, 200)
    assert.equal("closed", state(g))
    g = half_open "if round.succeeded == 2 then return round.failed == 1 and 'close' or 'open' end"
    calls(g, 200)
    calls(g, 500)
    assert.equal("half_open", state(g))
    calls(g, 200)
    assert.equal("closed", state(g))
  end)

  for _, case in ipairs {
    { "error 'no'",         "half_open.decide: x.lua:5: no" },
    { "while true do end",  "half_open.decide: took more than its 5000 steps" },
    { "return true",        'half_open.decide: answered true, not "close", "open" or nil' },
  } do
    it("that goes wrong has the round fail, is counted and logged: " .. case[1], function()
      local g = half_open(case[1], { steps = 5000, bytes = 65536, ms = 1000 })
      calls(g, 200)
      assert.same({ "open", 1 }, { state(g), g:stats().policy_errors })
      assert.is_truthy(table.concat(logged, "\n"):find(case[2], 1, true), logged[1])
    end)
  end

  it("that never decides: the round is over when no slot is left", function()
    local g = half_open "return nil"
    calls(g, 200, 4)
    assert.equal("half_open", state(g))
    assert.equal("open", select(2, g:acquire()).kind)
    assert.equal("open", state(g))
  end)
end)
