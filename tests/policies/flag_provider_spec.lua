local new = require "tests.policies.bench"

describe("policies/flag_provider.lua", function()
  local it_works
  before_each(function() it_works = new "flag_provider" end)

  it("opens after five failures in two seconds, not after four", function()
    it_works:calls(4, { status = 500 }, 10)
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 500)
    assert.equal("open", it_works:state())
    assert.equal("open", it_works:call { status = 200 })
  end)

  it("stays closed when the five are spread wider, and no six come in a row", function()
    for _ = 1, 10 do
      for _ = 1, 5 do
        it_works:call { status = 500 }
        it_works.clock:advance(501)
      end
      assert.equal("success", it_works:call { status = 200 })
    end
    assert.equal("closed", it_works:state())
  end)

  it("opens for one caller of a provider that hangs: after six timeouts in a row", function()
    assert.equal("timeout", it_works:calls(5, { ended_by = "timeout" }, 510))
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 510)
    assert.equal("open", it_works:state())
  end)

  for _, code in ipairs { "FLAG_NOT_FOUND", "PARSE_ERROR", "INVALID_CONTEXT",
    "TARGETING_KEY_MISSING" } do
    it(("takes %s for a bug in our call"):format(code), function()
      assert.equal("neutral", it_works:calls(50, { status = 404, code = code }))
      assert.equal("neutral",
        it_works:calls(50, { status = 400, body = ('{"errorCode":"%s"}'):format(code) }))
      assert.equal("closed", it_works:state())
    end)
  end

  it("answers with the last good answer of that flag, up to ten minutes old", function()
    it_works.guard:remember({ id = "/flags/a" }, { status = 200, body = '{"value":true}' })
    local value, source = it_works:fallback("failure", { id = "/flags/a" })
    assert.equal('{"value":true}', value.body)
    assert.equal("last_good", source)
    it_works.clock:advance(600000)
    assert.equal("last_good", select(2, it_works:fallback("refused", { id = "/flags/a" })))
    it_works.clock:advance(1)
    assert.equal("default", select(2, it_works:fallback("refused", { id = "/flags/a" })))
  end)

  it("answers with the reviewed default for a flag never seen, and marks it", function()
    local value, source = it_works:fallback("refused", { id = "/flags/never-seen" })
    assert.equal("default", source)
    assert.equal(200, value.status)
    assert.equal("application/json", value.headers["Content-Type"])
    assert.matches('"reason":"DEFAULT"', value.body)
  end)

  it("lets a deployment set the default", function()
    it_works = new("flag_provider", { default = { status = 200, body = "on" } })
    assert.equal("on", it_works:fallback("timeout").body)
  end)

  it("closes after two good probes, and opens again, for longer, after two bad ones", function()
    it_works:calls(5, { status = 500 })
    local first_ms = it_works.guard:snapshot().retry_after_ms
    assert.is_true(first_ms >= 5000 and first_ms <= 6000)
    it_works:cool_down()
    assert.equal("half_open", it_works:state())
    it_works:calls(2, { status = 500 })
    assert.equal("open", it_works:state())
    local second_ms = it_works.guard:snapshot().retry_after_ms
    assert.is_true(second_ms >= 10000 and second_ms <= 12000)
    it_works:cool_down()
    it_works:calls(2, { status = 200 })
    assert.equal("closed", it_works:state())
  end)

  it("changes with its one number: two failures open it when it says so", function()
    local file = assert(io.open("policies/flag_provider.lua"))
    local text, n = file:read("*a"):gsub("failures = 5", "failures = 2")
    file:close()
    assert.equal(1, n)
    local policy = assert(require("neap.policy").parse(text, "flag_provider.lua"))
    it_works.guard:adopt(policy)
    it_works:call({ ended_by = "timeout" }, 500)
    assert.equal("closed", it_works:state())
    it_works:call({ ended_by = "timeout" }, 500)
    assert.equal("open", it_works:state())
  end)

  it("stays open longer each time, up to a limit, and never by the clock", function()
    assert.is_true(it_works:has_waits({ status = 500 },
      { 5000, 10000, 20000, 40000, 60000, 60000 }, 0.2))
  end)

  it("lets 1 through at once, and waits so long for a probe that is lost", function()
    local n, permits = it_works:probes_at_once({ status = 500 })
    assert.equal(1, n)
    it_works.clock:advance(1000 - 1)
    assert.equal("probes_busy", it_works:call({ status = 500 }))
    it_works.clock:advance(1)
    assert.equal("open", it_works:call({ status = 500 }))
    for _, permit in ipairs(permits) do it_works.guard:report(permit, "neutral") end
  end)

  it("gives up a call after 500 ms", function()
    assert.equal(500, it_works.guard.policy.timeout_ms)
  end)

  it("looks two seconds back", function()
    it_works:calls(4, { status = 500 })
    it_works.clock:advance(1800)
    it_works:call { status = 500 }
    assert.equal("open", it_works:state())
  end)
end)
