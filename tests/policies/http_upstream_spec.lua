local new = require "tests.policies.bench"

describe("policies/http_upstream.lua", function()
  local it_works
  before_each(function() it_works = new "http_upstream" end)

  it("opens when half of at least twenty answers were failures", function()
    it_works:calls(10, { status = 200 })
    it_works:calls(9, { status = 500 })
    assert.equal("closed", it_works:state())
    it_works:call { status = 500 }
    assert.equal("open", it_works:state())
  end)

  it("is not opened by nineteen failures out of nineteen", function()
    it_works:calls(19, { status = 502 })
    assert.equal("closed", it_works:state())
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
    it_works:calls(10, { ended_by = "timeout" })
    it_works:calls(10, { ended_by = "transport" })
    assert.equal("open", it_works:state())
    assert.equal(10, it_works.guard:snapshot().totals.timeout)
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
end)
