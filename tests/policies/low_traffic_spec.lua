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
end)
