local new = require "tests.policies.bench"

describe("policies/slow_dependency.lua", function()
  local it_works
  before_each(function() it_works = new "slow_dependency" end)

  it("opens when six in ten answers took longer than 800 ms, though all were good", function()
    it_works:calls(4, { status = 200 }, 800)
    it_works:calls(5, { status = 200 }, 801)
    assert.equal("closed", it_works:state())
    it_works:call({ status = 200 }, 801)
    assert.equal("open", it_works:state())
  end)

  it("stays closed as long as five in ten are quick", function()
    for _ = 1, 20 do
      it_works:call({ status = 200 }, 900)
      it_works:call({ status = 200 }, 10)
    end
    assert.equal("closed", it_works:state())
  end)

  it("takes a slow probe for a failed one", function()
    it_works:calls(10, { status = 200 }, 1000)
    it_works:cool_down()
    it_works:calls(2, { status = 200 }, 1000)
    assert.equal("open", it_works:state())
    it_works:cool_down()
    it_works:calls(3, { status = 200 }, 100)
    assert.equal("closed", it_works:state())
  end)

  it("opens when half of the calls fail, too", function()
    it_works:calls(5, { result = "rows" }, 10)
    it_works:calls(5, { error = "no rows" }, 10)
    assert.equal("open", it_works:state())
  end)

  it("opens for one caller of what hangs: after six timeouts in a row", function()
    assert.equal("timeout", it_works:calls(5, { ended_by = "timeout" }, 5010))
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 5010)
    assert.equal("open", it_works:state())
  end)

  it("serves an answer up to five minutes old meanwhile", function()
    it_works.guard:remember({ id = "GET /" }, "yesterday's list")
    it_works.clock:advance(300000)
    assert.same({ "yesterday's list", "last_good" }, { it_works:fallback("refused") })
    it_works.clock:advance(1)
    assert.is_nil((it_works:fallback("refused")))
  end)

  it("can be told what is slow", function()
    it_works = new("slow_dependency", { slow_call_ms = 50 })
    it_works:calls(10, { status = 200 }, 51)
    assert.equal("open", it_works:state())
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits({ status = 500 },
      { 10000, 15000, 22500, 33750, 50625, 60000, 60000 }, 0.3))
  end)

  it("lets 1 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once({ status = 500 })
    assert.equal(1, n)
    it_works.clock:advance(10000 - 1)
    assert.equal("probes_busy", it_works:call({ status = 500 }))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call({ status = 500 }))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 5000 ms", function()
    assert.equal(5000, it_works.guard.policy.timeout_ms)
  end)

  it("looks half a minute back: what is older does not count", function()
    it_works:calls(6, { status = 200 }, 801)
    it_works.clock:advance(22000)
    it_works:calls(4, { status = 200 }, 10)
    it_works:call({ status = 200 }, 801)
    assert.equal("open", it_works:state())
    it_works.guard:reset()
    it_works:calls(9, { status = 200 }, 801)
    it_works.clock:advance(30000)
    it_works:calls(5, { status = 200 }, 10)
    it_works:calls(5, { status = 200 }, 801)
    assert.equal("closed", it_works:state())
  end)

  it("is not opened by fewer than half that fail, nor by 800 ms", function()
    for _ = 1, 50 do
      it_works:calls(3, { status = 200 }, 800)
      it_works:calls(2, { status = 500 }, 10)
    end
    assert.equal("closed", it_works:state())
  end)
end)
