local new = require "tests.policies.bench"

local HOUR_MS = 3600000

describe("policies/low_traffic.lua", function()
  local it_works
  before_each(function() it_works = new "low_traffic" end)

  it("opens after three failures in a row, however far apart", function()
    for _, result in ipairs { "success", "success", "failure", "success", "failure", "failure" } do
      it_works:call(result)
      it_works.clock:advance(9 * HOUR_MS)
    end
    assert.equal("closed", it_works:state())
    it_works:call("failure")
    assert.equal("open", it_works:state())
  end)

  it("does not take a caller who left for a success", function()
    it_works:calls(2, "failure")
    it_works:call("neutral")
    it_works:call("failure")
    assert.equal("open", it_works:state())
  end)

  it("closes after one good probe, and opens again after a bad one", function()
    it_works:calls(3, "failure")
    it_works.clock:advance(HOUR_MS)
    it_works:call("failure")
    assert.equal("open", it_works:state())
    it_works.clock:advance(HOUR_MS)
    it_works:call("success")
    assert.equal("closed", it_works:state())
  end)

  it("never waits for more than a quarter of an hour, and a tenth of that", function()
    it_works:calls(3, "failure")
    for _ = 1, 10 do
      it_works:cool_down()
      it_works:call("failure")
    end
    local wait_ms = it_works.guard:snapshot().retry_after_ms
    assert.is_true(wait_ms >= 15 * 60000 and wait_ms <= 16.5 * 60000, tostring(wait_ms))
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits("failure", { 60000, 120000, 240000, 480000, 900000, 900000 },
      0.1))
  end)

  it("lets 1 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once("failure")
    assert.equal(1, n)
    it_works.clock:advance(20000 - 1)
    assert.equal("probes_busy", it_works:call("failure"))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call("failure"))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 10000 ms", function()
    assert.equal(10000, it_works.guard.policy.timeout_ms)
  end)
end)
