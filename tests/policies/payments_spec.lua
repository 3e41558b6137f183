local new = require "tests.policies.bench"

describe("policies/payments.lua", function()
  local it_works
  before_each(function() it_works = new "payments" end)

  it("opens after three failures in a row", function()
    it_works:calls(2, { status = 500 })
    it_works:call { status = 200 }
    it_works:calls(2, { status = 500 })
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 10000)
    assert.equal("open", it_works:state())
  end)

  it("opens when one in five of the last fifty failed", function()
    for _ = 1, 3 do
      it_works:calls(4, { status = 201 })
      it_works:call { status = 502 }
    end
    assert.equal("closed", it_works:state())
    it_works:calls(4, { status = 201 })
    it_works:call { status = 502 }
    assert.equal("open", it_works:state())
  end)

  it("takes a declined card for an answer, and a payment made before", function()
    assert.equal("success", it_works:calls(50, { status = 402 }))
    assert.equal("success", it_works:calls(50, { status = 409 }))
    assert.equal("neutral", it_works:calls(50, { status = 422 }))
    assert.equal("closed", it_works:state())
  end)

  it("says the same of the same call when it is probing (B008)", function()
    it_works:calls(3, { status = 500 })
    it_works:cool_down()
    assert.equal("success", it_works:call { status = 402 })
    assert.equal("neutral", it_works:call { status = 422 })
    assert.equal("half_open", it_works:state())
  end)

  it("closes after three payments that all went through, and not with one that failed", function()
    it_works:calls(3, { status = 500 })
    it_works:cool_down()
    it_works:calls(2, { status = 201 })
    assert.equal("half_open", it_works:state())
    it_works:call { status = 500 }
    assert.equal("open", it_works:state())
    it_works:cool_down()
    it_works:calls(3, { status = 201 })
    assert.equal("closed", it_works:state())
  end)

  it("fails closed: an error that says so, and never a stored answer", function()
    it_works.guard:remember({ id = "GET /" }, "yesterday's receipt")
    local value, source, kind = it_works:fallback("refused")
    assert.is_nil(value)
    assert.equal("fail", source)
    assert.equal("payments_unavailable", kind)
    for _, cause in ipairs { "failure", "timeout", "neutral", "success" } do
      assert.same({}, { it_works:fallback(cause) })
    end
    for _, stage in ipairs(it_works.guard.policy.stages) do assert.equal("fail", stage.kind) end
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits({ status = 500 },
      { 10000, 20000, 40000, 80000, 120000, 120000 }, 0.2))
  end)

  it("lets 1 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once({ status = 500 })
    assert.equal(1, n)
    it_works.clock:advance(30000 - 1)
    assert.equal("probes_busy", it_works:call({ status = 500 }))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call({ status = 500 }))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 10000 ms", function()
    assert.equal(10000, it_works.guard.policy.timeout_ms)
  end)

  it("is not opened by fewer than one in five of many, nor by a bad start", function()
    for _ = 1, 100 do
      it_works:calls(5, { status = 201 })
      it_works:call { status = 500 }
    end
    assert.equal("closed", it_works:state())
  end)

  it("looks fifty payments back", function()
    for _ = 1, 9 do
      it_works:calls(4, { status = 201 })
      it_works:call { status = 402 }
    end
    for _ = 1, 5 do it_works:calls(1, { status = 500 }) it_works:call { status = 201 } end
    assert.equal("closed", it_works:state())
    it_works:calls(30, { status = 201 })
    for _ = 1, 5 do it_works:call { status = 500 } it_works:call { status = 201 } end
    assert.equal("open", it_works:state())
  end)
end)
