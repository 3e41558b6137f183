local t = require "neap.testing"

local function grpc(code) return { status = 200, grpc_status = code } end
local OK, CANCELLED, INVALID_ARGUMENT, NOT_FOUND, UNAVAILABLE = 0, 1, 3, 5, 14

t.describe("policies/grpc_service.lua", function()
  local service
  t.before_each(function() service = t.policy "policies/grpc_service.lua" end)

  t.it("opens when four in ten calls were UNAVAILABLE", function()
    service:calls(6, grpc(OK))
    service:calls(3, grpc(UNAVAILABLE))
    service:is "closed"
    service:call(grpc(UNAVAILABLE))
    service:is("open", "failure_rate")
  end)

  t.it("stays closed however often callers ask for what is not there (B089)", function()
    service:calls(50, grpc(NOT_FOUND)):counts_as "neutral"
    service:calls(50, grpc(INVALID_ARGUMENT)):counts_as "neutral"
    service:calls(50, grpc(CANCELLED)):counts_as "neutral"
    service:is "closed":has_logged "the calls are neutral"
    assert(service.guard:snapshot().neutral_share == 1)
  end)

  t.it("counts an exhausted resource, a deadline and a code that nobody knows (B089, B091)",
    function()
    service:calls(6, grpc(OK))
    for _, code in ipairs { 8, 4, 99, "DATA_LOSS" } do
      service:call(grpc(code)):counts_as "failure"
    end
    service:is "open"
  end)

  t.it("closes after four good probes of five, two at a time", function()
    service:calls_until("open", grpc(UNAVAILABLE)):cool_down()
    local first, second = service:start():is_a_probe(), service:start():is_a_probe()
    service:call():is_refused "probes_busy"
    first:ends_with(grpc(OK)):counts_as "success"
    second:ends_with(grpc(UNAVAILABLE)):counts_as "failure"
    service:calls(3, grpc(OK))
    service:is "closed"
  end)

  t.it("refuses with the error that gRPC callers know, and hides no other", function()
    service:call(grpc(UNAVAILABLE)):is_answered_by "primary"
    service:calls_until("open", grpc(UNAVAILABLE))
    service:call():is_answered_by("fail"):fails_with("UNAVAILABLE"):gives { status = 503 }
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 3000, 6000, 12000, 24000, 30000, 30000 } do
      service:calls_until("open", grpc(UNAVAILABLE)):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    assert(service.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("lets 2 through at once, and waits so long for a probe that is lost", function()
    service:calls_until("open", grpc(UNAVAILABLE)):cool_down()
    service:start():is_a_probe()
    service:start():is_a_probe()
    service:call():is_refused "probes_busy"
    service:advance(2000 - 1):call():is_refused "probes_busy"
    service:advance(1):call():is_refused "open"
  end)

  t.it("gives up a call after 1000 ms", function()
    service:call("timeout"):counts_as("timeout"):takes(1000)
  end)

  t.it("looks ten seconds back: what is older does not count", function()
    service:calls(3, grpc(UNAVAILABLE))
    service:advance(9000)
    service:calls(6, grpc(OK))
    service:call(grpc(UNAVAILABLE))
    service:is "open"
    service.guard:reset()
    service:calls(9, grpc(UNAVAILABLE))
    service:advance(10000)
    service:calls(7, grpc(OK))
    service:calls(3, grpc(UNAVAILABLE))
    service:is "closed"
  end)

  t.it("is not opened by nine failures out of nine, nor by three in ten of many", function()
    service:calls(9, grpc(UNAVAILABLE))
    service:is "closed"
    service.guard:reset()
    for _ = 1, 50 do
      service:calls(7, grpc(OK))
      service:calls(3, grpc(UNAVAILABLE))
    end
    service:is "closed"
  end)

  t.it("lets five probes decide: two bad ones are too many, three good ones too few", function()
    service:calls_until("open", grpc(UNAVAILABLE)):cool_down()
    service:calls(3, grpc(OK))
    service:is "half_open"
    service:calls(2, grpc(UNAVAILABLE)):is_a_probe()
    service:is "open"
  end)
end)
