--- Panels in a file: what Lua sees of them, and guards of several processes in one.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"
local guard = require "neap.guard"
local metrics = require "neap.metrics"
local neap = require "neap"

local is_linux = io.open "/proc/self/stat" ~= nil

-- In a directory of each test's own.
local dir, path

local function sh(...)
  local pipe = assert(io.popen("exec 2>&1; " .. table.concat({ ... }, " ")))
  local said = pipe:read "*a"
  pipe:close()
  return said
end

local function open(capacity, at)
  local panel, message = core.panel_shared(at or path, capacity)
  return assert(panel, message), message
end

--- A guard of real time whose breaker opens at the first failure, for 100 ms.
local function of_panel(panel, options)
  local numbers = {
    consecutive_failures = 1, cooldown_ms = 100, jitter = 0, probes = 1, successes = 1,
    lease_ms = 1000,
  }
  local all = { panel = panel, log = function() end, clock = "precise" }
  for k, v in pairs(options or {}) do all[k] = v end
  return guard.new(fixture.policy { numbers = numbers }, all)
end

--- Runs Lua text in another process; `panel`, `g` and `fixture` are there.  Gives what it prints.
local function elsewhere(text)
  local file = os.tmpname()
  local script = assert(io.open(file, "w"))
  script:write([[
    local core = require "neap.core"
    local fixture = require "tests.lua.fixture"
    local guard = require "neap.guard"
    local panel = assert(core.panel_shared(]], ("%q"):format(path), [[))
    local g = guard.new(fixture.policy { numbers = { consecutive_failures = 1, cooldown_ms = 100,
      jitter = 0, probes = 1, successes = 1, lease_ms = 1000 } },
      { panel = panel, log = function() end, clock = "precise" })
  ]], text)
  script:close()
  local said = sh(os.getenv "LUA" or "lua5.4", file)
  os.remove(file)
  return (said:gsub("\n$", ""))
end

local function wait_ms(ms)
  local till = core.clock_precise() + ms
  while core.clock_precise() < till do end
end

describe("a shared panel", function()
  if not is_linux then return pending "needs Linux" end

  before_each(function()
    dir = sh("mktemp -d /dev/shm/neap-spec-XXXXXX"):match "%S+"
    path = dir .. "/panel"
  end)
  after_each(function()
    collectgarbage()
    assert(dir:find "^/dev/shm/neap%-spec%-%w+$")
    sh("rm -r", dir)
  end)

  it("is made by the first and found by the next", function()
    local a, notice = open(4)
    assert.is_nil(notice)
    local b = open()
    assert.equal(path .. ".v2", a:path())
    assert.equal("neap.panel " .. path .. ".v2 (0 of 4 rows)", tostring(a))
    local r = fixture.rules { consecutive_failures = 1 }
    a:claim("x"):trip(r, 0)
    assert.equal("open", b:find("x"):state(r, 0))
    assert.same({ 1, 4, "x" }, { b:count(), b:capacity(), b:rows()[1]:name() })
    assert.is_true(a:check())
  end)

  it("keeps the capacity it was made with, and says so (B211)", function()
    open(4)
    local panel, notice = open(5)
    assert.equal(4, panel:capacity())
    assert.matches("keeps the 4 rows", notice)
  end)

  it("is replaced when it is of no use, and says so", function()
    open(4):claim "x"
    sh("truncate -s 5000", path .. ".v2")
    local panel, notice = open(4)
    assert.equal(0, panel:count())
    assert.matches("too few for a panel; made anew", notice)
  end)

  for _, case in ipairs {
    -- what was done                        what is said
    { "chmod 644 %s.v2",                    "has mode 0644, and must have 0600" },
    { "mv %s.v2 %s.w; ln -s %s.w %s.v2",    "symbolic link" },
    { "rm %s.v2; mkdir %s.v2",              "is a directory" },
    { "rm %s.v2; mkfifo %s.v2",             "is no regular file" },
  } do
    it("is refused after " .. case[1], function()
      open(4)
      sh((case[1]:gsub("%%s", path)))
      local panel, message = core.panel_shared(path, 4)
      assert.is_nil(panel)
      assert.matches(case[2], message, 1, true)
      assert.matches(path, message, 1, true)
    end)
  end

  it("that can't be had is one line, not a crash", function()
    for _, at in ipairs { dir .. "/none/panel", "panel", "", path .. ("x"):rep(300) } do
      local panel, message = core.panel_shared(at, 4)
      assert.is_nil(panel)
      assert.is_nil(message:find "\n")
    end
    assert.is_nil((core.panel_shared(path)))
    for _, arguments in ipairs { { nil, 4 }, { 7, 4 }, { path, 0 }, { path, 1.5 }, { path, "4" },
      { path .. "\0x", 4 }, { path, 4194305 } } do
      assert.is_false((pcall(core.panel_shared, arguments[1], arguments[2])))
    end
  end)

  it("that is full is an error that names it (B223)", function()
    local panel = open(1)
    of_panel(panel)
    local none, message = panel:claim "more"
    assert.is_nil(none)
    assert.equal(path .. ".v2: all of its 1 rows are in use", message)
    assert.error_matches(function() guard.new(fixture.policy { name = "q" }, { panel = panel }) end,
      "no breaker for q in neap.panel " .. path:gsub("%-", "%%-")
        .. ".v2 %(1 of 1 rows%): .*all of its 1 rows are in use")
  end)

  it("cut under a guard is noticed, and the guard goes on alone", function()
    local panel = open(4)
    local g = of_panel(panel)
    g:call(fixture.bad)
    sh("truncate -s 0", path .. ".v2")
    local good, message = panel:check()
    assert.is_nil(good)
    assert.matches("was cut to 0 of its", message)
    assert.equal("ok", (g:call(fixture.ok)))
    g:call(fixture.bad)
    assert.equal("open", g:snapshot().state)
  end)

  it("may be closed, and a guard in it then answers with an error (B184, B187)", function()
    local panel = open(4)
    local g = of_panel(panel)
    panel:close()
    panel:close()
    assert.error_matches(function() g:call(fixture.ok) end, "closed")
    for _, method in ipairs { "claim", "find", "rows", "count", "capacity", "path", "check",
      "counters" } do
      assert.error_matches(function() panel[method](panel, "a") end, "the panel is closed")
    end
    local inside = open()
    g = of_panel(inside)
    assert.error_matches(function()
      g:call(function()
        inside:close()
        inside = nil
        collectgarbage()
      end)
    end, "closed")
  end)

  it("stays as long as a breaker of it is held", function()
    local breaker, r = open(4):claim "x", fixture.rules()
    for _ = 1, 3 do collectgarbage() end
    assert.equal("closed", breaker:state(r, 0))
  end)

  it("goes by the system's clock, and a guard with another is an error", function()
    local panel = open(4)
    for _, wrong in ipairs { neap.clock.manual(0), function() return 0 end, os.clock } do
      assert.error_matches(function() of_panel(panel, { clock = wrong }) end,
        "goes by the system's clock")
    end
    for _, right in ipairs { "coarse", "precise", neap.clock.coarse, neap.clock.precise } do
      of_panel(panel, { clock = right })
    end
  end)

  it("has one state for guards in two processes", function()
    local g = of_panel(open(4))
    assert.equal("open", elsewhere "g:call(fixture.bad) print(g:snapshot().state)")
    assert.equal("open", g:snapshot().state)
    local value, err = g:call(fixture.ok)
    assert.same({ nil, "open" }, { value, err.kind })
    wait_ms(110)
    assert.equal("half_open", g:snapshot().state)
    assert.equal("ok closed", elsewhere "print(g:call(fixture.ok), g:snapshot().state)"
      :gsub("%s+", " "))
    assert.equal("ok", (g:call(fixture.ok)))
    assert.same({ 1, 2, 1 }, { g:snapshot().totals.failure, g:snapshot().totals.success,
      g:snapshot().totals.refused_open })
  end)

  it("admits as many probes as one process would (B215)", function()
    local g = of_panel(open(4))
    g:call(fixture.bad)
    wait_ms(110)
    local permit = assert(g:acquire())
    assert.equal("probes_busy", elsewhere "print(select(2, g:call(fixture.ok)).kind)")
    g:report(permit, "success")
    assert.equal("closed", elsewhere "print(g:snapshot().state)")
  end)

  it("has the keys of all processes", function()
    local g = of_panel(open(8))
    elsewhere [[ local permit = g:acquire "eu" g:report(permit, "failure") ]]
    assert.is_nil((g:acquire "eu"))
    assert.is_truthy(g:acquire "us")
  end)

  it("has what all processes count beside breakers: one scrape shows all", function()
    local stage = [[ { stages = { fixture.stage(function() return "spare" end) },
      numbers = { consecutive_failures = 1 } } ]]
    local two = ([[
      local q = guard.new(fixture.policy(%s), { panel = panel, log = function() end })
      q:call(fixture.bad) q:call(fixture.ok) q:fault("here", "x") q:adopt(fixture.policy(%s))
      q:stats() q:stats()
    ]]):format(stage, stage)
    local g = guard.new(fixture.policy {
      stages = { fixture.stage(function() return "spare" end) },
    }, { panel = open(8), log = function() end })
    elsewhere(two)
    g:call(fixture.bad)
    elsewhere(two)
    for _ = 1, 2 do
      local stats = g:stats()
      assert.equal(5, stats.fallbacks[1].count)
      assert.equal(5, stats.fallback_durations.counts[1])
      assert.same({ 2, { ok = 2, failed = 0 }, true },
        { stats.policy_errors, stats.reloads, stats.is_shared })
    end
    local page = metrics.text({ g }, { policies = { { name = "p", reloads = 77, failures = 77 } } })
    for _, line in ipairs {
      'neap_fallback_total{policy="p",source="function",result="answered"} 5',
      'neap_fallback_duration_seconds_count{policy="p"} 5',
      'neap_policy_reloads_total{policy="p",result="ok"} 2',
      'neap_policy_errors_total{policy="p"} 2',
      'neap_calls_total{policy="p",key="default",outcome="failure"} 1',
      'neap_calls_total{policy="p",key="default",outcome="rejected"} 4',
    } do
      assert.is_truthy(page:find("\n" .. line .. "\n", 1, true), line .. " is not in\n" .. page)
    end
  end)

  it("too full for that, it says so once, and each process shows its own", function()
    local lines = {}
    local g = of_panel(open(1), { log = function(_, text) lines[#lines + 1] = text end })
    g:call(fixture.bad)
    assert.is_nil(g:stats().is_shared)
    g:stats()
    assert.equal(1, #lines)
    assert.matches("^p: no row in neap.panel .*the panel is full", lines[1])
  end)

  it("has a probe given back to the others when the panel of who had it was closed", function()
    local g, panel = of_panel(open(4)), open()
    local closing = of_panel(panel)
    g:call(fixture.bad)
    wait_ms(110)
    local held = { assert(closing:acquire()) }
    assert.equal(1, g:snapshot().probes_in_flight)
    panel:close()
    table.remove(held)
    for _ = 1, 2 do collectgarbage() end
    assert.equal(0, g:snapshot().probes_in_flight)
    assert.equal("ok", (g:call(fixture.ok)))
  end)

  it("closes when the process that had the only probe is gone (B205)", function()
    local g = of_panel(open(4))
    g:call(fixture.bad)
    wait_ms(110)
    -- 137: killed in the middle of its probe
    assert.matches("137", sh((os.getenv "LUA" or "lua5.4"), "-e", [['
      local core, guard = require "neap.core", require "neap.guard"
      local fixture = require "tests.lua.fixture"
      local policy = fixture.policy { numbers = { consecutive_failures = 1, lease_ms = 1000 } }
      local panel = core.panel_shared "]] .. path .. [["
      local g = guard.new(policy, { panel = panel, clock = "precise" })
      permit = assert(g:acquire())
      local pid = io.open("/proc/self/stat"):read("*n")
      os.execute("kill -9 " .. pid)']], "; echo $?"))
    assert.equal("probes_busy", select(2, g:call(fixture.ok)).kind)
    wait_ms(1010)
    assert.equal("open", select(2, g:call(fixture.ok)).kind) -- the round is lost
    wait_ms(210)
    assert.equal("ok", (g:call(fixture.ok)))
    assert.same({ "closed", 1 }, { g:snapshot().state, g:snapshot().totals.probes_lost })
  end)
end)

describe("counters", function()
  it("count, by name and number", function()
    for _, panel in ipairs { core.panel(2) } do
      local c = panel:counters "fallbacks"
      c:add(1)
      c:add(1, 4)
      c:add(64, 2 ^ 40)
      c:add(2, 0)
      assert.same({ 5, 0, 2 ^ 40 }, { c:get(1), c:get(2), c:get(64) })
      assert.equal("fallbacks", c:name())
      assert.equal(5, panel:counters("fallbacks"):get(1))
      assert.is_nil(panel:find "fallbacks")
      assert.same({}, panel:rows())
    end
  end)

  it("are a row of their panel, and end with it", function()
    local panel = core.panel(1)
    local c = panel:counters "a"
    assert.equal(1, panel:count())
    assert.same({ nil, "the panel is full" }, { panel:counters "b" })
    for _, wrong in ipairs { 0, 65, 1.5, "1" } do
      assert.is_false((pcall(c.add, c, wrong)))
      assert.is_false((pcall(c.get, c, wrong)))
    end
    assert.is_false((pcall(c.add, c, 1, -1)))
    assert.is_false((pcall(panel.counters, panel, 7)))
    panel:close()
    assert.error_matches(function() c:get(1) end, "panel is closed")
  end)
end)
