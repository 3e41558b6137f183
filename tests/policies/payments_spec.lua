local t = require "neap.testing"

local PATH = "policies/payments.lua"

t.describe(PATH, function()
  local payments
  t.before_each(function() payments = t.policy(PATH) end)

  t.it("opens after three failures in a row", function()
    payments:calls(2, 500)
    payments:call(200)
    payments:calls(2, 500)
    payments:is "closed"
    payments:call "timeout"
    payments:is("open", "consecutive_failures")
  end)

  t.it("opens when one in five of the last fifty failed", function()
    for _ = 1, 3 do
      payments:calls(4, 201)
      payments:call(502)
    end
    payments:is "closed"
    payments:calls(4, 201)
    payments:call(502)
    payments:is("open", "failure_rate")
  end)

  t.it("does not judge by a share of fewer than twenty", function()
    payments:calls(14, 201)
    for _ = 1, 2 do
      payments:call(502)
      payments:call(201)
    end
    payments:call(502)
    payments:is "closed"
    payments.guard:reset()
    for _ = 1, 9 do
      payments:call(201)
      payments:call(502)
    end
    payments:call(201):is_answered_by "primary"
    payments:is "closed"
    payments:call(502)
    payments:is("open", "failure_rate")
  end)

  t.it("takes a declined card for an answer, and a payment made before", function()
    payments:calls(50, 402):counts_as("success", "declined")
    payments:calls(50, 409):counts_as("success", "made before")
    payments:calls(50, 422):counts_as "neutral"
    payments:is "closed"
  end)

  t.it("says the same of the same call when it is probing (B008)", function()
    payments:calls(3, 500)
    payments:cool_down()
    payments:call(402):is_a_probe():counts_as "success"
    payments:call(422):is_a_probe():counts_as "neutral"
    payments:is "half_open"
  end)

  t.it("closes after three payments that all went through, and not with one that failed", function()
    payments:calls(3, 500)
    payments:cool_down()
    payments:calls(2, 201)
    payments:is "half_open"
    payments:call(500)
    payments:is "open":cool_down()
    payments:calls(3, 201)
    payments:is "closed"
  end)

  t.it("fails closed: an error that says so, and never a stored answer", function()
    payments:call { status = 200, body = "yesterday's receipt" }
    payments:call(500):is_answered_by("primary"):gives { status = 500 }
    payments:call("timeout"):is_answered_by "nobody"
    payments:call(422):is_answered_by "primary"
    payments:calls_until("open", 500)
    payments:call():is_answered_by("fail"):fails_with("payments_unavailable")
      :gives { status = 503, body = "" }
    for _, stage in ipairs(payments.guard.policy.stages) do assert(stage.kind == "fail") end
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 10000, 20000, 40000, 80000, 120000, 120000 } do
      payments:calls_until("open", 500):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    assert(payments.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("lets 1 through at once, and waits so long for a probe that is lost", function()
    payments:calls_until("open", 500):cool_down()
    payments:start():is_a_probe()
    payments:call():is_refused "probes_busy"
    payments:advance(30000 - 1):call():is_refused "probes_busy"
    payments:advance(1):call():is_refused "open"
  end)

  t.it("gives up a call after 10000 ms", function()
    payments:call("timeout"):counts_as("timeout"):takes(10000)
  end)

  t.it("takes what a deployment sets, within its range", function()
    payments = t.policy(PATH, { params = { timeout_ms = 4000, cooldown_ms = 2000 } })
    payments:call("timeout"):counts_as("timeout"):takes(4000)
    payments:calls_until("open", 503):stays_open_for(2000, 2400)
    local ok, err = pcall(t.policy, PATH, { params = { timeout_ms = 60000 } })
    assert(not ok and tostring(err):find("params.timeout_ms: 60000 is out of range", 1, true), err)
  end)

  t.it("is not opened by fewer than one in five of many, nor by a bad start", function()
    for _ = 1, 100 do
      payments:calls(5, 201)
      payments:call(500)
    end
    payments:is "closed"
  end)

  t.it("looks fifty payments back", function()
    for _ = 1, 9 do
      payments:calls(4, 201)
      payments:call(402)
    end
    for _ = 1, 5 do
      payments:call(500)
      payments:call(201)
    end
    payments:is "closed"
    payments:calls(30, 201)
    for _ = 1, 5 do
      payments:call(500)
      payments:call(201)
    end
    payments:is "open"
  end)
end)
