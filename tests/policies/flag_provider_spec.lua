local t = require "neap.testing"

local PATH = "policies/flag_provider.lua"
local ONE = { request = { target = "/flags/a" } }

t.describe("policies/flag_provider.lua", function()
  local flags
  t.before_each(function() flags = t.policy(PATH) end)

  t.it("opens after five failures in two seconds, not after four", function()
    flags:calls(4, 500, { every_ms = 10 })
    flags:is "closed"
    flags:call "timeout"
    flags:is("open", "failures")
    flags:call(200):is_refused "open"
  end)

  t.it("opens after five 503s within two seconds, and asks again after five", function()
    flags:calls(5, 503, { every_ms = 400 })
    flags:is("open", "failures"):stays_open_for(5000)
    flags:cool_down():call(200):is_a_probe():counts_as "success"
  end)

  t.it("stays closed when the five are spread wider, and no six come in a row", function()
    for _ = 1, 10 do
      flags:calls(5, 500, { every_ms = 501 })
      flags:advance(501):call(200):counts_as "success"
    end
    flags:is "closed"
  end)

  t.it("opens for one caller of a provider that hangs: after six timeouts in a row", function()
    flags:calls(5, "timeout", { every_ms = 510 }):counts_as "timeout"
    flags:is "closed"
    flags:advance(10):call "timeout"
    flags:is("open", "consecutive_failures")
  end)

  for _, code in ipairs { "FLAG_NOT_FOUND", "PARSE_ERROR", "INVALID_CONTEXT",
    "TARGETING_KEY_MISSING" } do
    t.it(("takes %s for a bug in our call"):format(code), function()
      flags:calls(50, { status = 404, code = code }):counts_as "neutral"
      flags:calls(50, { status = 400, body = ('{"errorCode":"%s"}'):format(code) })
        :counts_as "neutral"
      flags:is "closed"
    end)
  end

  t.it("answers with the last good answer of that flag, up to ten minutes old", function()
    flags:call({ status = 200, body = '{"value":true}' }, ONE):is_answered_by "primary"
    flags:call(500, ONE):is_answered_by("last_good"):gives { body = '{"value":true}' }
    flags:advance(600000)
    flags:call("transport", ONE):is_answered_by("last_good", 600000)
    flags:advance(1)
    flags:call("transport", ONE):is_answered_by "default"
  end)

  t.it("answers with the reviewed default for a flag never seen, and marks it", function()
    flags:call({ status = 200, body = '{"value":true}' }, ONE)
    flags:calls_until("open", 500)
    flags:call(nil, { request = { target = "/flags/never-seen" } })
      :is_refused("open"):is_answered_by("default"):gives {
        status = 200, headers = { ["content-type"] = "application/json" },
        body = '{"value":false,"variant":"off","reason":"DEFAULT"}',
      }
  end)

  t.it("lets a deployment set the default", function()
    flags = t.policy(PATH, { params = { default = { status = 200, body = "on" } } })
    flags:call("timeout"):is_answered_by("default"):gives { body = "on" }
  end)

  t.it("closes after two good probes, and opens again, for longer, after two bad ones", function()
    flags:calls(5, 500)
    flags:stays_open_for(5000, 6000):cool_down():is "half_open"
    flags:calls(2, 500):is_a_probe()
    flags:is("open", "probes"):stays_open_for(10000, 12000):cool_down()
    flags:calls(2, 200):is_a_probe()
    flags:is "closed":has_gone_to("open", "half_open", "open", "half_open", "closed")
  end)

  t.it("changes with its one number: two failures open it when it says so", function()
    local file = assert(io.open(PATH))
    local text, n = file:read("*a"):gsub("failures = 5", "failures = 2")
    file:close()
    assert(n == 1)
    flags.guard:adopt(assert(require("neap.policy").parse(text, "flag_provider.lua")))
    flags:call "timeout"
    flags:is "closed"
    flags:call "timeout"
    flags:is "open"
  end)

  t.it("stays open longer each time, up to a limit, and never by the clock", function()
    for _, ms in ipairs { 5000, 10000, 20000, 40000, 60000, 60000 } do
      flags:calls_until("open", 500):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    assert(flags.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("lets 1 through at once, and waits so long for a probe that is lost", function()
    flags:calls_until("open", 500):cool_down()
    flags:start():is_a_probe()
    flags:call():is_refused "probes_busy"
    flags:advance(1000 - 1):call():is_refused "probes_busy"
    flags:advance(1):call():is_refused "open"
    flags:is("open", "probe_lost")
  end)

  t.it("gives up a call after 500 ms", function()
    flags:call({ status = 200, takes_ms = 500 }):counts_as("success")
    flags:call("timeout"):counts_as("timeout"):takes(500)
  end)

  t.it("looks two seconds back", function()
    flags:calls(4, 500)
    flags:advance(1800):call(500)
    flags:is "open"
  end)
end)
