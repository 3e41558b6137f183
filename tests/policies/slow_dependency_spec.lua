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
end)
