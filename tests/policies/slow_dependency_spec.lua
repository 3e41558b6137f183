local t = require "neap.testing"

local PATH = "policies/slow_dependency.lua"

local function works() return "rows" end
local function fails() return nil, "no rows" end

t.describe("policies/slow_dependency.lua", function()
  local search
  t.before_each(function() search = t.policy(PATH) end)

  t.it("opens when six in ten answers took longer than 800 ms, though all were good", function()
    search:calls(4, works, { takes_ms = 800 })
    search:calls(5, works, { takes_ms = 801 }):counts_as("success"):gives "rows"
    search:is "closed"
    search:call(works, { takes_ms = 801 })
    search:is("open", "slow_rate")
  end)

  t.it("stays closed as long as five in ten are quick", function()
    for _ = 1, 20 do
      search:call(works, { takes_ms = 900 })
      search:call(works, { takes_ms = 10 })
    end
    search:is "closed"
  end)

  t.it("takes a slow probe for a failed one", function()
    search:calls(10, works, { takes_ms = 1000 })
    search:cool_down()
    search:calls(2, works, { takes_ms = 1000 }):is_a_probe()
    search:is "open":cool_down()
    search:calls(3, works, { takes_ms = 100 }):is_a_probe()
    search:is "closed"
  end)

  t.it("judges by no share of fewer than ten calls", function()
    for _ = 1, 4 do
      search:call(works)
      search:call(fails)
    end
    search:call(fails):counts_as "failure"
    search:is "closed"
    search:call(works)
    search:call(fails)
    search:is("open", "failure_rate")
  end)

  t.it("opens when half of the calls fail, too", function()
    search:calls(5, works, { takes_ms = 10 })
    search:calls(5, fails, { takes_ms = 10 }):counts_as "failure"
    search:is("open", "failure_rate")
  end)

  t.it("opens for one caller of what hangs: after six timeouts in a row", function()
    search:calls(5, works, { takes_ms = 6000, every_ms = 5010 }):counts_as "timeout"
    search:is "closed"
    search:advance(10):call(works, { takes_ms = 6000 })
    search:is("open", "consecutive_failures")
  end)

  t.it("serves an answer up to five minutes old meanwhile", function()
    search:call(works, { args = { "red shoes" } })
    search:advance(300000)
    search:call(fails, { args = { "red shoes" } })
      :is_answered_by("last_good", 300000):gives "rows"
    search:call(fails, { args = { "blue shoes" } }):is_answered_by("primary"):fails_with "no rows"
    search:advance(1)
    search:call(fails, { args = { "red shoes" } }):is_answered_by "primary"
  end)

  t.it("can be told what is slow", function()
    search = t.policy(PATH, { params = { slow_call_ms = 50 } })
    search:calls(10, works, { takes_ms = 51 })
    search:is("open", "slow_rate")
  end)

  t.it("takes what a deployment sets, within its range", function()
    search = t.policy(PATH, { params = { cooldown_ms = 1000, max_age_ms = 1000 } })
    search:call(works, { args = { "red shoes" } })
    search:advance(1001)
    search:call(fails, { args = { "red shoes" } }):is_answered_by "primary"
    search:calls_until("open", fails):stays_open_for(1000, 1300)
    local ok, err = pcall(t.policy, PATH, { params = { slow_call_ms = -1 } })
    assert(not ok and tostring(err):find("params.slow_call_ms: -1 is out of range", 1, true), err)
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 10000, 15000, 22500, 33750, 50625, 60000, 60000 } do
      search:calls_until("open", fails):stays_open_for(ms, 1.3 * ms):cool_down()
    end
    assert(search.guard.policy.config.open.jitter == 0.3)
  end)

  t.it("lets 1 through at once, and waits so long for a probe that is lost", function()
    search:calls_until("open", fails):cool_down()
    search:start():is_a_probe()
    search:call():is_refused "probes_busy"
    search:advance(10000 - 1):call():is_refused "probes_busy"
    search:advance(1):call():is_refused "open"
  end)

  t.it("gives up a call after 5000 ms", function()
    search:call(works, { takes_ms = 5001 }):counts_as("timeout"):takes(5000)
  end)

  t.it("looks half a minute back: what is older does not count", function()
    local function slow_at_once(n)
      for _ = 1, n do search:start { result = "rows", takes_ms = 801 } end
      search:advance(801)
    end
    slow_at_once(6)
    search:advance(27000):calls(4, works, { takes_ms = 10 })
    slow_at_once(1)
    search:is "open"
    search.guard:reset()
    slow_at_once(9)
    search:advance(30000):calls(5, works, { takes_ms = 10 })
    slow_at_once(5)
    search:is "closed"
  end)

  t.it("is not opened by fewer than half that fail, nor by 800 ms", function()
    for _ = 1, 50 do
      search:calls(3, works, { takes_ms = 800 })
      search:calls(2, fails, { takes_ms = 10 })
    end
    search:is "closed"
  end)
end)
