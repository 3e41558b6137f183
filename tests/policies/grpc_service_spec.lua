local new = require "tests.policies.bench"

local function grpc(code) return { status = 200, grpc_status = code } end

describe("policies/grpc_service.lua", function()
  local it_works
  before_each(function() it_works = new "grpc_service" end)

  it("opens when four in ten calls were UNAVAILABLE", function()
    it_works:calls(6, grpc(0))
    it_works:calls(3, grpc(14))
    assert.equal("closed", it_works:state())
    it_works:call(grpc(14))
    assert.equal("open", it_works:state())
  end)

  it("stays closed however often callers ask for what is not there (B089)", function()
    assert.equal("neutral", it_works:calls(50, grpc(5)))
    assert.equal("neutral", it_works:calls(50, grpc(3)))
    assert.equal("neutral", it_works:calls(50, grpc(1)))
    assert.equal("closed", it_works:state())
    assert.equal(1, it_works.guard:snapshot().neutral_share)
  end)

  it("counts an exhausted resource, a deadline and a code that nobody knows (B089, B091)",
    function()
    it_works:calls(6, grpc(0))
    for _, code in ipairs { 8, 4, 99, "DATA_LOSS" } do assert.equal("failure",
      it_works:call(grpc(code))) end
    assert.equal("open", it_works:state())
  end)

  it("closes after four good probes of five, two at a time", function()
    it_works:calls(10, grpc(14))
    it_works:cool_down()
    local first, second = it_works.guard:acquire(), it_works.guard:acquire()
    assert.is_truthy(first and second)
    assert.equal("probes_busy", select(2, it_works.guard:acquire()).kind)
    it_works.guard:report(first, grpc(0))
    it_works.guard:report(second, grpc(14))
    it_works:calls(3, grpc(0))
    assert.equal("closed", it_works:state())
  end)

  it("refuses with the error that gRPC callers know", function()
    it_works:calls(10, grpc(14))
    assert.same({ nil, "fail", "UNAVAILABLE" }, { it_works:fallback("refused") })
    assert.same({}, { it_works:fallback("failure") })
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits(grpc(14), { 3000, 6000, 12000, 24000, 30000, 30000 }, 0.2))
  end)

  it("lets 2 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once(grpc(14))
    assert.equal(2, n)
    it_works.clock:advance(2000 - 1)
    assert.equal("probes_busy", it_works:call(grpc(14)))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call(grpc(14)))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 1000 ms", function()
    assert.equal(1000, it_works.guard.policy.timeout_ms)
  end)

  it("looks ten seconds back: what is older does not count", function()
    it_works:calls(3, grpc(14))
    it_works.clock:advance(9000)
    it_works:calls(6, grpc(0))
    it_works:call(grpc(14))
    assert.equal("open", it_works:state())
    it_works.guard:reset()
    it_works:calls(9, grpc(14))
    it_works.clock:advance(10000)
    it_works:calls(7, grpc(0))
    it_works:calls(3, grpc(14))
    assert.equal("closed", it_works:state())
  end)

  it("is not opened by nine failures out of nine, nor by three in ten of many", function()
    it_works:calls(9, grpc(14))
    assert.equal("closed", it_works:state())
    it_works.guard:reset()
    for _ = 1, 50 do
      it_works:calls(7, grpc(0))
      it_works:calls(3, grpc(14))
    end
    assert.equal("closed", it_works:state())
  end)

  it("lets five probes decide: two bad ones are too many, three good ones too few", function()
    it_works:calls(10, grpc(14))
    it_works:cool_down()
    it_works:calls(3, grpc(0))
    assert.equal("half_open", it_works:state())
    it_works:calls(2, grpc(14))
    assert.equal("open", it_works:state())
  end)
end)
