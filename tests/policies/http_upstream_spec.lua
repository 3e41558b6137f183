local new = require "tests.policies.bench"

describe("policies/http_upstream.lua", function()
  local it_works
  before_each(function() it_works = new "http_upstream" end)

  it("opens when half of at least twenty answers were failures", function()
    it_works:calls(5, { status = 500 })
    it_works:calls(10, { status = 200 })
    it_works:calls(4, { status = 500 })
    assert.equal("closed", it_works:state())
    it_works:call { status = 500 }
    assert.equal("open", it_works:state())
  end)

  it("is not opened by eighteen failures out of nineteen, if no ten come in a row", function()
    it_works:calls(9, { status = 502 })
    it_works:call { status = 200 }
    it_works:calls(9, { status = 502 })
    assert.equal("closed", it_works:state())
  end)

  it("opens for one caller of a service that hangs: after ten timeouts in a row", function()
    assert.equal("timeout", it_works:calls(9, { ended_by = "timeout" }, 3010))
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 3010)
    assert.equal("open", it_works:state())
  end)

  it("is not opened by failures that are fewer than half", function()
    for _ = 1, 100 do
      it_works:call { status = 500 }
      it_works:calls(2, { status = 200 })
    end
    assert.equal("closed", it_works:state())
  end)

  it("opens when half of the answers were slow", function()
    it_works:calls(3, { status = 200 }, 10)
    it_works:calls(16, { status = 200 }, 400)
    assert.equal("closed", it_works:state())
    it_works = new("http_upstream", { slow_call_ms = 100 })
    it_works:calls(20, { status = 200 }, 101)
    assert.equal("open", it_works:state())
  end)

  it("does not count the caller's mistakes, nor callers who left", function()
    for _, status in ipairs { 400, 401, 403, 404, 409, 422, 499 } do
      assert.equal("neutral", it_works:calls(30, { status = status }))
    end
    assert.equal("neutral", it_works:calls(30, { ended_by = "caller" }))
    assert.equal("closed", it_works:state())
  end)

  it("stays open for as long as Retry-After asks", function()
    it_works:calls(20, { status = 503, headers = { ["retry-after"] = "30" } })
    local wait_ms = it_works.guard:snapshot().retry_after_ms
    assert.is_true(wait_ms >= 30000 and wait_ms <= 36000, tostring(wait_ms))
  end)

  it("counts timeouts and broken connections", function()
    it_works:calls(9, { status = 200 })
    it_works:calls(5, { ended_by = "timeout" })
    it_works:call { status = 200 }
    it_works:calls(4, { ended_by = "transport" })
    assert.equal("closed", it_works:state())
    it_works:call { ended_by = "transport" }
    assert.equal("open", it_works:state())
    assert.equal(5, it_works.guard:snapshot().totals.timeout)
  end)

  it("closes after four good probes of five", function()
    it_works:calls(20, { status = 500 })
    it_works:cool_down()
    it_works:call { status = 500 }
    it_works:calls(3, { status = 200 })
    assert.equal("half_open", it_works:state())
    it_works:call { status = 200 }
    assert.equal("closed", it_works:state())
  end)

  it("serves an answer up to a minute old, else leaves the error as it is", function()
    assert.is_nil((it_works:fallback("failure")))
    it_works.guard:remember({ id = "GET /" }, "good")
    assert.same({ "good", "last_good" }, { it_works:fallback("failure") })
    it_works.clock:advance(60001)
    assert.is_nil((it_works:fallback("failure")))
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits({ status = 500 },
      { 5000, 10000, 20000, 40000, 60000, 60000 }, 0.2))
  end)

  it("lets 2 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once({ status = 500 })
    assert.equal(2, n)
    it_works.clock:advance(6000 - 1)
    assert.equal("probes_busy", it_works:call({ status = 500 }))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call({ status = 500 }))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 3000 ms", function()
    assert.equal(3000, it_works.guard.policy.timeout_ms)
  end)

  it("looks ten seconds back: what is older does not count", function()
    it_works:calls(9, { status = 500 })
    it_works.clock:advance(9000)
    it_works:calls(10, { status = 200 })
    it_works:call { status = 500 }
    assert.equal("open", it_works:state())
    it_works.guard:reset()
    it_works:calls(9, { status = 500 })
    it_works.clock:advance(10000)
    it_works:calls(9, { status = 200 })
    it_works:calls(8, { status = 500 })
    assert.equal("closed", it_works:state())
  end)

  it("takes what lasts longer than a second for slow, and opens for half of it", function()
    it_works:calls(20, { status = 200, duration_ms = 1000 })
    assert.equal("closed", it_works:state())
    it_works.guard:reset()
    for _ = 1, 50 do
      it_works:calls(3, { status = 200 }, 10)
      it_works:calls(2, { status = 200 }, 1001)
    end
    assert.equal("closed", it_works:state())
    it_works.guard:reset()
    it_works:calls(10, { status = 200, duration_ms = 1000 })
    it_works:calls(9, { status = 200, duration_ms = 1001 })
    assert.equal("closed", it_works:state())
    it_works:call { status = 200, duration_ms = 1001 }
    assert.equal("open", it_works:state())
  end)

  it("serves an answer until it is a minute old", function()
    it_works.guard:remember({ id = "GET /" }, "good")
    it_works.clock:advance(60000)
    assert.same({ "good", "last_good" }, { it_works:fallback("failure") })
  end)

  it("lets five probes decide: two bad ones are too many", function()
    it_works:calls(20, { status = 500 })
    it_works:cool_down()
    it_works:calls(2, { status = 500 })
    assert.equal("open", it_works:state())
  end)
end)
