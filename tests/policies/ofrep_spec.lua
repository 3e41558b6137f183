local t = require "neap.testing"

local PATH = "policies/ofrep.lua"
local ALL = "/ofrep/v1/evaluate/flags"
local PARAMS = {
  defaults = { ["new-checkout"] = false, ["page-size"] = 10, ["kill-payments"] = false },
  never_stale = { ["kill-payments"] = true },
}

--- The evaluation of a flag for a user, or, without one, of all flags.
local function asks(flag, user, token, path)
  return {
    request = {
      method = "POST", target = (path or "") .. (flag and ALL .. "/" .. flag or ALL),
      headers = { authorization = token },
      body = ('{"context":{"targetingKey":"%s"}}'):format(user or "ann"),
    },
  }
end

local function value(json) return { status = 200, body = ('{"value":%s}'):format(json) } end

t.describe("policies/ofrep.lua", function()
  local flags
  t.before_each(function() flags = t.policy(PATH, { params = PARAMS }) end)

  t.it("opens after five failures in two seconds, and asks again after two", function()
    flags:calls(4, 503, { every_ms = 400 })
    flags:call(value "true")
    flags:is "closed"
    flags:advance(400):call(503)
    flags:is("open", "failures"):stays_open_for(2000, 2400)
    flags:cool_down():call(503):is_a_probe()
    flags:is "half_open"
    flags:calls(2, value "true"):is_a_probe()
    flags:is "closed"
  end)

  t.it("looks two seconds back, and opens again after two bad probes of three", function()
    for _ = 1, 3 do
      flags:calls(4, 503, { every_ms = 10 })
      flags:call(value "true")
      flags:advance(2000)
    end
    flags:is "closed"
    flags:calls_until("open", 503):cool_down()
    flags:call(value "true")
    flags:calls(2, 503):is_a_probe()
    flags:is "open"
  end)

  t.it("opens for one caller who asks once a second: after five in a row", function()
    flags:calls(4, "transport", { every_ms = 1000 })
    flags:is "closed"
    flags:advance(1000):call "transport"
    flags:is("open", "consecutive_failures")
  end)

  t.it("stays open longer each time, up to half a minute", function()
    for _, ms in ipairs { 2000, 4000, 8000, 16000, 30000, 30000 } do
      flags:calls_until("open", 503):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    assert(flags.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("gives an evaluation up after 25 ms, or what a deployment says", function()
    flags:call("timeout"):counts_as("timeout"):takes(25)
    flags = t.policy(PATH, { params = { timeout_ms = 15 } })
    flags:call("timeout"):takes(15)
  end)

  -- From the first failure to the probes after it; 20 ms of the 50 are left to the application.
  for name, outage in pairs {
    ["fails"] = 503, ["fails late"] = { status = 500, takes_ms = 24 },
    ["asks for patience"] = { status = 429, headers = { ["Retry-After"] = "1" } },
    ["refuses"] = "transport",
    ["breaks off"] = { ended_by = "transport", phase = "sent", takes_ms = 24 },
    ["hangs"] = "timeout", ["is slow"] = { status = 200, body = "{}", takes_ms = 200 },
  } do
    local function all_answer(user, stage)
      local function ask(flag) return asks(flag, user) end
      for _ = 1, 2 do
        local at_once = {}
        for i = 1, 6 do at_once[i] = flags:start(outage, ask "page-size") end
        flags:advance(30)
        for i = 1, 6 do at_once[i]:takes(0, 30):is_answered_by(stage) end
        flags:calls(3, outage, ask "page-size"):takes(0, 30):is_answered_by(stage)
        flags:calls(2, outage, ask "kill-payments"):takes(0, 30):is_answered_by "default"
        flags:calls(2, outage, ask()):takes(0, 30):is_answered_by "function"
        flags:is "open":cool_down()
      end
    end

    t.it(("answers each evaluation within 30 ms when the provider %s"):format(name), function()
      flags:call(value "5", asks "page-size")
      all_answer("ann", "last_good")
      flags:restart()
      all_answer("ann", "last_good")
      all_answer("bob", "default")
    end)
  end

  for status, code in pairs {
    [404] = "FLAG_NOT_FOUND", [400] = "PARSE_ERROR", [422] = "INVALID_CONTEXT",
  } do
    t.it(("takes %s for the caller's mistake, and passes it on"):format(code), function()
      local body = ('{"errorCode":"%s"}'):format(code)
      flags:calls(50, { status = status, body = body }, asks "new-checkout")
        :counts_as("neutral", code):is_answered_by("primary"):gives { status = status, body = body }
      flags:is "closed"
    end)
  end

  t.it("says loudly that its credentials are refused, and does not take it for an outage",
    function()
    flags:calls(20, 401, asks "new-checkout"):counts_as("neutral", "credentials")
      :is_answered_by "primary"
    flags:calls(20, 403):counts_as("neutral", "credentials")
    flags:is "closed":has_logged "the provider refuses our credentials"
  end)

  t.it("leaves a provider alone that is asked too much, for as long as it says", function()
    flags:calls_until("open", { status = 429, headers = { ["Retry-After"] = "20" } })
    flags:stays_open_for(20000, 24000)
  end)

  t.it("answers with the last value for the same flag, context and credentials", function()
    flags:call(value "true", asks("new-checkout", "ann"))
    flags:call(value "false", asks("new-checkout", "bob"))
    flags:call(503, asks("new-checkout", "ann")):is_answered_by("last_good"):gives(value "true")
    flags:call(503, asks("new-checkout", "bob")):is_answered_by("last_good"):gives(value "false")
    flags:call(503, asks("new-checkout", "ann", "another")):is_answered_by "default"
    flags:advance(10 * 60 * 1000)
    flags:call(503, asks("new-checkout", "ann")):is_answered_by("last_good", 600000)
    flags:advance(1)
    flags:call(503, asks("new-checkout", "ann")):is_answered_by "default"
  end)

  t.it("has its last values still after a restart in the middle of an outage", function()
    flags:call(value "true", asks "new-checkout")
    flags:restart():call("transport", asks "new-checkout")
      :is_answered_by("last_good"):gives(value "true")
  end)

  t.it("answers with the flag's reviewed default, whose reason says so", function()
    flags:call("timeout", asks "page-size"):takes(25):is_answered_by("default"):gives {
      status = 200, headers = { ["content-type"] = "application/json" },
      body = '{"key":"page-size","reason":"DEFAULT","value":10,"variant":"neap-default"}',
    }
    flags:call(503, asks "new-checkout"):gives(function(answer)
      return answer.body:find('"value":false', 1, true)
    end)
  end)

  t.it("has no answer for a flag that nobody reviewed", function()
    flags:call(503, asks "unknown"):is_answered_by("primary"):gives { status = 503 }
    flags:calls_until("open", 503):call(nil, asks "unknown"):is_answered_by "nobody"
  end)

  t.it("answers for a kill switch with its default rather than an old value", function()
    flags:call(value "true", asks "kill-payments"):is_answered_by "primary"
    flags:call(503, asks "kill-payments"):is_answered_by("default"):gives(function(answer)
      return answer.body:find('"value":false', 1, true)
    end)
  end)

  for written, flag in pairs {
    ["team%3Apay"] = "team:pay", ["team/pay"] = "team/pay", ["caf%C3%A9%20pay"] = "caf\195\169 pay",
  } do
    t.it(("knows %q by its name, and a kill switch of that name"):format(written), function()
      for _, is_kill_switch in ipairs { true, false } do
        flags = t.policy(PATH, { params = {
          defaults = { [flag] = 1 }, never_stale = { [flag] = is_kill_switch },
        } })
        flags:call(503, asks(written)):is_answered_by "default":gives(function(answer)
          return answer.body:find('"value":1', 1, true)
        end)
        flags:call(value "2", asks(written))
        flags:call(503, asks(written)):is_answered_by(is_kill_switch and "default" or "last_good")
      end
    end)
  end

  t.it("does the same below a path", function()
    flags:call(503, asks("page-size", "ann", nil, "/eu")):is_answered_by "default"
    flags:call(503, asks(nil, "ann", nil, "/eu")):is_answered_by "function"
    flags:call(503, { request = { method = "GET", target = "/eu" } }):is_answered_by "primary"
    flags:call(value "true", asks("kill-payments", "ann", nil, "/eu"))
    flags:call(503, asks("kill-payments", "ann", nil, "/eu")):is_answered_by "default"
  end)

  t.it("keeps what 20 flags were for 500 users", function()
    assert(flags.guard.policy.stages[1].max_entries == 20 * 500)
  end)

  t.it("has no answer for all flags where none was reviewed, one where one was", function()
    flags = t.policy(PATH)
    flags:call(503, asks()):is_answered_by "primary"
    flags = t.policy(PATH, { params = { defaults = { one = 1 } } })
    flags:call(503, asks()):is_answered_by "function"
  end)

  t.it("answers for all flags at once", function()
    flags:call(503, asks()):is_answered_by("function"):gives(function(answer)
      local _, n = answer.body:gsub('"variant":"neap%-default"', "")
      return n == 3 and answer.body:find('^{"flags":%[')
    end)
  end)

  t.it("answers for all flags with their last values, if no kill switch is among them", function()
    local last = { status = 200, body = '{"flags":[]}' }
    flags:call(last, asks())
    flags:call(503, asks()):is_answered_by "function"
    flags = t.policy(PATH, { params = { defaults = PARAMS.defaults } })
    flags:call(last, asks())
    flags:call(503, asks()):is_answered_by("last_good"):gives(last)
  end)

  t.it("is not loaded without a default for each flag that there is", function()
    local params = { flags = { "a", "b" }, defaults = { a = 1 } }
    local ok, err = pcall(t.policy, PATH, { params = params })
    assert(not ok)
    assert(err:find('has no default for "b", which is one of the keys', 1, true), err)
  end)

  t.it("lets 1 through at once, and waits a second for a probe that is lost", function()
    flags:calls_until("open", 503):cool_down()
    flags:start():is_a_probe()
    flags:call():is_refused "probes_busy"
    flags:advance(1000 - 1):call():is_refused "probes_busy"
    flags:advance(1):call():is_refused "open"
  end)
end)
