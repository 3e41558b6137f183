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
end)
