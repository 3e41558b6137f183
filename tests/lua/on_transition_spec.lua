--- A policy's on_transition: what it is given is what docs/policies.md says, in order, after the
--- call; what it does wrong is counted and changes nothing.

local clocks = require "neap.clock"
local guard = require "neap.guard"
local policy = require "neap.policy"

local function document()
  local file = assert(io.open((os.getenv "NEAP_ROOT" or ".") .. "/docs/policies.md"))
  local text = file:read "*a"
  file:close()
  return text:match "\n## on_transition:.-\n## "
end

--- The fields that the document names.
local function described()
  local rows = document():match "<!%-%- given: on_transition %-%->\n(.-)<!%-%- end"
  local fields = {}
  for row in rows:gmatch("\n(|[^\n]+)") do
    local names = row:match "^| (.-) |" or ""
    for field in names:gmatch "`([%w_]+)`" do fields[#fields + 1] = field end
  end
  table.sort(fields)
  return table.concat(fields, ",")
end

local clock, logged, told

local function parse(body, budget)
  local text = ([[
    local n = 0
    return {
      name = "x", trip = { failures = 2 }, open = { cooldown_ms = 1000, jitter = 0 },
      half_open = { probes = 1, successes = 1 }, on_transition = %s,
    }]]):format(body)
  return assert(policy.parse(text, "x.lua", { budget = budget }))
end

local function new(body, budget)
  clock, logged, told = clocks.manual(100000), {}, {}
  return guard.new(parse(body, budget), {
    clock = clock, log = function(level, said) logged[#logged + 1] = level .. " " .. said end,
    on_event = function(event) told[#told + 1] = tostring(event) end,
  })
end

local function bad() return nil, "down" end
local function good() return "up" end

local function opened(g)
  for _ = 1, 2 do g:call(bad) end
  return g
end

local SAY = "function(event) warn(event.text) end"

describe("on_transition", function()
  it("is given what the document says, and no more", function()
    opened(new [[function(event)
      local names = {}
      for name in next, event do names[#names + 1] = name end
      table.sort(names)
      warn(table.concat(names, ","))
    end]])
    -- by: only of what was done by hand
    assert.equal("warning x: " .. described():gsub("by,", "", 1), logged[1])
  end)

  it("is told of each transition with rule, numbers and limit, in order, as the handlers are",
    function()
    local g = opened(new [[function(event)
      n = n + 1
      warn(("%d %s %s %g/%g %s"):format(n, event.to, event.cause, event.measured, event.limit,
        event.hash))
    end]])
    clock:advance(1000)
    g:call(good)
    g:trip(nil, 500, "ann")
    local hash = g.policy.hash
    assert.same({
      "warning x: 1 open failures 2/2 " .. hash, "warning x: 2 half_open cooldown 0/0 " .. hash,
      "warning x: 3 closed probes 1/1 " .. hash, "warning x: 4 open trip 0/0 " .. hash,
    }, logged)
    assert.equal(4, #told)
  end)

  it("is told when the outcome is recorded: the breaker has moved, the caller has his own",
    function()
    local g = new(SAY)
    g:call(bad)
    local value, err = g:call(bad)
    assert.same({ nil, "down", "open" }, { value, err, g:snapshot().state })
    assert.same({ "warning " .. told[1]:gsub("^x/", "x: x/") }, logged)
  end)

  for _, case in ipairs {
    { "function() error 'no' end",            "on_transition: x.lua:4: no" },
    { "function() while true do end end",     "on_transition: took more than its 5000 steps" },
    { "function(event) event.nothing.x() end", "on_transition: x.lua:4: attempt to index" },
  } do
    it("that goes wrong is counted and logged, and all goes on: " .. case[1], function()
      local g = opened(new(case[1], { steps = 5000, bytes = 65536, ms = 1000 }))
      assert.same({ "open", 1, 1 }, { g:snapshot().state, g:stats().policy_errors, #told })
      assert.is_truthy(logged[1]:find(case[2], 1, true), logged[1])
    end)
  end

  it("changes nothing by what it does to what it is given, or answers", function()
    local g = opened(new [[function(event)
      event.to, event.key, event.policy = "closed", "else", "other"
      return "closed"
    end]])
    assert.same({ "open", 0, {} }, { g:snapshot().state, g:stats().policy_errors, logged })
    assert.same({ "open", "default", "x" },
      { g:last_transition().to, g:last_transition().key, g:last_transition().policy })
  end)

  it("is the newest generation's, and may come and go", function()
    local g = new "nil"
    opened(g)
    assert.same({}, logged)
    g:adopt(parse "function(event) warn('new ' .. event.to) end")
    g:reset()
    g:adopt(parse "function(event) warn('newer ' .. event.to) end")
    g:trip() -- once, however often it was adopted (B161)
    g:adopt(parse "nil")
    g:reset()
    assert.same({ "warning x: new closed", "warning x: newer open" }, logged)
  end)

  it("does in the document's example what that says", function()
    clock, logged = clocks.manual(100000), {}
    local text = document():match "```lua policy\n(.-)\n```"
    local g = guard.new(assert(policy.parse(text, "tickets.lua")), {
      clock = clock, log = function(_, said) logged[#logged + 1] = said end,
    })
    g:trip(nil, 1000)
    clock:advance(2 * 60 * 60 * 1000)
    g:trip(nil, 1000)
    assert.same({}, logged)
    clock:advance(59 * 60 * 1000)
    g:trip(nil, 1000)
    assert.same({ "tickets: default has opened again within the hour: ask the ticket team" },
      logged)
  end)

  describe("of a guard that is tended", function()
    it("waits until that is done: no call waits for it", function()
      local g = new(SAY)
      g.is_tended = true
      opened(g)
      assert.same({ 1, 0 }, { #told, #logged })
      g:tend()
      assert.equal("warning x: " .. told[1], logged[1])
      g:tend()
      assert.equal(1, #logged)
    end)

    it("is told ten at a time, and no more after one that goes wrong", function()
      local g = new "function(event) n = n + 1; warn('n ' .. n); if n == 12 then error 'no' end end"
      g.is_tended = true
      for _ = 1, 8 do g:reset() g:trip() end
      local seen = {}
      repeat
        local wait_ms = g:tend()
        seen[#seen + 1] = #logged
      until wait_ms > 1
      assert.same({ 10, 13, 17 }, seen) -- the error is a line, too
      assert.equal(1, g:stats().policy_errors)
    end)

    it("is told what waits when the guard is closed", function()
      local g = new(SAY)
      g.is_tended = true
      opened(g)
      g:close()
      assert.equal("warning x: " .. told[1], logged[1])
    end)

    it("is told of a hundred that wait; that there were more is counted", function()
      local g = new "function(event) n = n + 1; if n == 100 then warn('hundred') end end"
      g.is_tended = true
      for _ = 1, 100 do g:reset() g:trip() end
      while g:tend() <= 1 do end
      assert.equal(100, g:stats().policy_errors)
      assert.is_truthy(logged[1]:find("more than 100 transitions at once", 1, true), logged[1])
      assert.equal("warning x: hundred", logged[2])
      g:reset()
      g:tend()
      assert.equal(100, g:stats().policy_errors)
    end)

    it("does so on the loop's next turn", function()
      local has_luv, uv = pcall(require, "luv")
      if not has_luv then return assert.is_not_equal("Lua 5.4", _VERSION) end
      local g = new(SAY)
      local tending = require("neap.tend").start({ g })
      uv.run "nowait"
      opened(g)
      assert.same({}, logged)
      local waits = uv.new_timer()
      waits:start(500, 0, function() waits:close() end)
      while #logged == 0 and waits:is_active() do uv.run "once" end
      if not waits:is_closing() then waits:close() end
      tending:close()
      uv.run()
      assert.equal("warning x: " .. told[1], logged[1])
      g:reset() -- nobody tends it any more
      assert.equal(2, #logged)
    end)
  end)
end)
