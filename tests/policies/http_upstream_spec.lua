local t = require "neap.testing"

local PATH = "policies/http_upstream.lua"

t.describe("policies/http_upstream.lua", function()
  local service
  t.before_each(function() service = t.policy(PATH) end)

  t.it("opens when half of at least twenty answers were failures", function()
    service:calls(5, 500)
    service:calls(10, 200)
    service:calls(4, 500)
    service:is "closed"
    service:call(500)
    service:is("open", "failure_rate")
  end)

  t.it("is not opened by eighteen failures out of nineteen, if no ten come in a row", function()
    service:calls(9, 502)
    service:call(200)
    service:calls(9, 502)
    service:is "closed"
  end)

  t.it("opens for one caller of a service that hangs: after ten timeouts in a row", function()
    service:calls(9, "timeout", { every_ms = 3010 }):counts_as "timeout"
    service:is "closed"
    service:advance(10):call "timeout"
    service:is("open", "consecutive_failures")
  end)

  t.it("is not opened by failures that are fewer than half", function()
    for _ = 1, 100 do
      service:call(500)
      service:calls(2, 200)
    end
    service:is "closed"
  end)

  t.it("opens when half of the answers were slow", function()
    service:calls(3, 200, { takes_ms = 10 })
    service:calls(16, 200, { takes_ms = 400 })
    service:is "closed"
    service = t.policy(PATH, { params = { slow_call_ms = 100 } })
    service:calls(20, 200, { takes_ms = 101 })
    service:is("open", "slow_rate")
  end)

  t.it("takes what a deployment sets, within its range", function()
    service = t.policy(PATH, { params = { timeout_ms = 700, cooldown_ms = 1000 } })
    service:call("timeout"):takes(700)
    service:calls_until("open", 503):stays_open_for(1000, 1200)
    local ok, err = pcall(t.policy, PATH, { params = { slow_call_ms = 0 } })
    assert(not ok and tostring(err):find("params.slow_call_ms: 0 is out of range", 1, true), err)
  end)

  t.it("does not count the caller's mistakes, nor callers who left", function()
    for _, status in ipairs { 400, 401, 403, 404, 409, 422, 499 } do
      service:calls(30, status):counts_as "neutral"
    end
    service:calls(30, "caller"):counts_as "neutral"
    service:is "closed"
  end)

  t.it("stays open for as long as Retry-After asks", function()
    service:calls_until("open", { status = 503, headers = { ["Retry-After"] = "30" } })
    service:stays_open_for(30000, 36000)
  end)

  t.it("counts timeouts and broken connections", function()
    service:calls(9, 200)
    service:calls(5, { ended_by = "timeout", takes_ms = 0 }):counts_as "timeout"
    service:call(200)
    service:calls(4, "transport"):counts_as "failure"
    service:is "closed"
    service:call "transport"
    service:is("open", "failure_rate")
    assert(service.guard:snapshot().totals.timeout == 5)
  end)

  t.it("closes after four good probes of five", function()
    service:calls_until("open", 500):cool_down()
    service:call(500)
    service:calls(3, 200)
    service:is "half_open"
    service:call(200):is_a_probe()
    service:is("closed", "probes")
  end)

  t.it("lets five probes decide: two bad ones are too many", function()
    service:calls_until("open", 500):cool_down()
    service:call(500):is_a_probe()
    service:is "half_open"
    service:call(500):is_a_probe()
    service:is "open"
  end)

  t.it("serves an answer until it is a minute old, else leaves the error as it is", function()
    service:call(500):is_answered_by("primary"):gives { status = 500 }
    service:call { status = 200, body = "good" }
    service:advance(60000)
    service:call(500):is_answered_by("last_good", 60000):gives { body = "good" }
    service:advance(1)
    service:call(500):is_answered_by "primary"
    service:calls_until("open", 500):call():is_answered_by("nobody"):fails_with "open"
  end)

  t.it("keeps answers to different requests apart, and those that are one client's not", function()
    local function of(target, headers)
      return { request = { target = target, headers = headers } }
    end
    service:call({ status = 200, body = "a" }, of "/a")
    service:call({ status = 200, body = "b" }, of("/b", { Authorization = "b" }))
    service:call({ status = 200, body = "c", headers = { ["Set-Cookie"] = "c=1" } }, of "/c")
    service:call({ status = 201, body = "d" }, of "/d")
    service:call(500, of "/a"):gives { body = "a" }
    service:call(500, of "/b"):is_answered_by "primary"
    service:call(500, of("/b", { Authorization = "b" })):gives { body = "b" }
    service:call(500, of "/c"):is_answered_by "primary"
    service:call(500, of "/d"):is_answered_by "primary"
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 5000, 10000, 20000, 40000, 60000, 60000 } do
      service:calls_until("open", 500):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    assert(service.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("lets 2 through at once, and waits so long for a probe that is lost", function()
    service:calls_until("open", 500):cool_down()
    service:start():is_a_probe()
    service:start():is_a_probe()
    service:call():is_refused "probes_busy"
    service:advance(6000 - 1):call():is_refused "probes_busy"
    service:advance(1):call():is_refused "open"
  end)

  t.it("gives up a call after 3000 ms", function()
    service:call("timeout"):counts_as("timeout"):takes(3000)
  end)

  t.it("looks ten seconds back: what is older does not count", function()
    service:calls(9, 500)
    service:advance(9000)
    service:calls(10, 200)
    service:call(500)
    service:is("open", "failure_rate")
    service.guard:reset()
    service:calls(9, 500)
    service:advance(10000)
    service:calls(9, 200)
    service:calls(8, 500)
    service:is "closed"
  end)

  t.it("takes what lasts longer than a second for slow, and opens for half of it", function()
    local function at_once(n, takes_ms)
      for _ = 1, n do service:start { status = 200, takes_ms = takes_ms } end
    end
    at_once(20, 1000)
    service:advance(1000):is "closed"
    service.guard:reset()
    for _ = 1, 10 do
      at_once(3, 10)
      at_once(2, 1001)
      service:advance(1001)
    end
    service:is "closed"
    service.guard:reset()
    at_once(10, 1000)
    at_once(9, 1001)
    service:advance(1001):is "closed"
    at_once(1, 1001)
    service:advance(1001):is("open", "slow_rate")
  end)
end)
