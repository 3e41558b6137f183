local t = require "neap.testing"

local PATH = "policies/webhooks.lua"

local function event(body)
  return { request = { method = "POST", target = "/events", body = body } }
end

t.describe("policies/webhooks.lua", function()
  local receiver
  t.before_each(function() receiver = t.policy(PATH, { params = { max_entries = 2 } }) end)

  t.it("opens after five failures in a row, or half of the last twenty", function()
    receiver:calls(4, 503)
    receiver:is "closed"
    receiver:call(202)
    receiver:calls(4, "timeout")
    receiver:is "closed"
    receiver:call(202)
    receiver:is("open", "failure_rate")
    receiver.guard:reset()
    receiver:calls(5, 500)
    receiver:is("open", "consecutive_failures")
  end)

  t.it("looks twenty calls back, and lets fewer than half of them fail", function()
    receiver:calls(11, 202)
    for _ = 1, 3 do
      receiver:calls(2, 503)
      receiver:call(202)
    end
    receiver:is "closed"
    receiver:calls(3, 503)
    receiver:is "closed" -- nine of the last twenty
    receiver:call(503)
    receiver:is("open", "failure_rate")
  end)

  t.it("stays open longer each time, up to five minutes, and closes after three good probes",
    function()
    for _, ms in ipairs { 5000, 10000, 20000, 40000, 80000, 160000, 300000, 300000 } do
      receiver:calls_until("open", 503):stays_open_for(ms, 1.2 * ms):cool_down()
    end
    receiver:call(202):is_a_probe()
    receiver:call(503):is_a_probe()
    receiver:is "open":cool_down()
    receiver:start():is_a_probe()
    receiver:call():is_refused "probes_busy"
    receiver:advance(10000):call():is_refused "open"
    receiver:cool_down():calls(2, 202):is_a_probe()
    receiver:is "half_open"
    receiver:call(202):is_a_probe()
    receiver:is "closed"
    assert(receiver.guard.policy.config.open.jitter == 0.2)
  end)

  t.it("gives up a delivery after five seconds", function()
    receiver:call("timeout"):takes(5000)
  end)

  t.it("keeps ten thousand events, and each for a day, unless a deployment says otherwise",
    function()
    local queue = t.policy(PATH).guard.policy.stages[1]
    assert(queue.max_entries == 10000 and queue.max_age_ms == 86400000)
    assert(queue.concurrent == 500 and queue.timeout_ms == 2000)
  end)

  t.it("takes an event that was delivered before for a success, wrong credentials for an outage",
    function()
    receiver:call(409):counts_as("success", "delivered before")
    receiver:call(422):counts_as "neutral"
    receiver:call(401):counts_as("failure", "our credentials")
    receiver:call(403):counts_as("failure", "our credentials")
  end)

  t.it("keeps events while the receiver is down, delivers them in order, and no more than fit",
    function()
    receiver:calls(5, 503, event "0"):is_answered_by "primary"
    receiver:call(nil, event "a"):is_answered_by("queue"):gives { status = 202 }
    receiver:call(nil, event "b"):is_answered_by "queue"
    receiver:call(nil, event "c"):is_answered_by("nobody"):fails_with "open"
    receiver:has_queued(2)
    receiver:dependency(202):advance(10000):has_queued(0)
    local delivered = receiver:replays():counts_as "success"
    assert(#delivered == 2)
    assert(delivered[1].request.body == "a" and delivered[2].request.body == "b")
  end)

  t.it("keeps an event for which there was no connection, not one that may have arrived", function()
    receiver:dependency(503)
    receiver:call("transport", event "a"):is_answered_by "queue"
    receiver:call({ ended_by = "transport", phase = "sent" }, event "b"):is_answered_by "nobody"
    receiver:call("timeout", event "c"):is_answered_by "nobody"
    receiver:has_queued(1)
  end)

  t.it("opens again if the receiver is not back, and loses nothing", function()
    receiver:dependency(503):calls_until("open", nil, event "0")
    receiver:call(nil, event "a"):is_answered_by "queue"
    receiver:advance(100000):is "open":has_queued(1)
    receiver:dependency(202):advance(400000):has_queued(0):is "half_open"
  end)

  t.it("has its events still after a restart", function()
    receiver:dependency(503):calls_until("open", nil, event "0")
    receiver:call(nil, event "a"):is_answered_by "queue"
    receiver:restart():has_queued(1)
    receiver:dependency(202):advance(10000):has_queued(0)
  end)

  t.it("without a directory says no rather than lose an event", function()
    receiver = t.policy(PATH, { state_dir = false })
    receiver:calls_until("open", 503, event "0")
    receiver:call(nil, event "a"):is_answered_by("nobody"):fails_with "open"
    receiver:has_logged "there is no state_dir"
  end)
end)
