local t = require "neap.testing"

local HOUR_MS = 3600000

local function works() return "done" end
local function fails() return nil, "no answer" end

t.describe("policies/low_traffic.lua", function()
  local export
  t.before_each(function() export = t.policy "policies/low_traffic.lua" end)

  t.it("opens after three failures in a row, however far apart", function()
    for _, f in ipairs { works, works, fails, works, fails, fails } do
      export:call(f)
      export:advance(9 * HOUR_MS)
    end
    export:is "closed"
    export:call(fails)
    export:is("open", "consecutive_failures")
  end)

  t.it("does not take a caller who left for a success", function()
    export:calls(2, 503)
    export:call("caller"):counts_as "neutral"
    export:call(503)
    export:is "open"
  end)

  t.it("closes after one good probe, and opens again after a bad one", function()
    export:calls(3, fails)
    export:advance(HOUR_MS):call(fails):is_a_probe()
    export:is "open"
    export:advance(HOUR_MS):call(works):is_a_probe()
    export:is "closed"
  end)

  t.it("never waits for more than a quarter of an hour, and a tenth of that", function()
    for _ = 1, 10 do export:calls_until("open", fails):cool_down() end
    export:calls_until("open", fails):stays_open_for(15 * 60000, 16.5 * 60000)
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 60000, 120000, 240000, 480000, 900000, 900000 } do
      export:calls_until("open", fails):stays_open_for(ms, 1.1 * ms):cool_down()
    end
    assert(export.guard.policy.config.open.jitter == 0.1)
  end)

  t.it("lets 1 through at once, and waits so long for a probe that is lost", function()
    export:calls_until("open", fails):cool_down()
    export:start():is_a_probe()
    export:call():is_refused "probes_busy"
    export:advance(20000 - 1):call():is_refused "probes_busy"
    export:advance(1):call():is_refused "open"
  end)

  t.it("gives up a call after 10000 ms", function()
    export:call(works, { takes_ms = 10000 }):counts_as("success"):gives "done"
    export:call(works, { takes_ms = 10001 }):counts_as("timeout"):takes(10000)
      :fails_with "timeout"
  end)
end)
