--- neap.testing: policies on a clock that the spec moves, with each part of a policy.
local fixture = require "tests.lua.policy_fixture"
local on = require "tests.lua.testing_fixture"
local t = require "neap.testing"
local version = require "tests.lua.version"

local has = on.has
local function bench_of(lines, options) return t.policy(on.policy(lines), options) end

--- What it is told is wrong.
local function told(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok, "nothing is wrong")
  return tostring(err)
end

setup(on.begin)
teardown(on.finish)

local ANY = "function() return true end"
local UP = { status = 200, body = "up" }

describe("time in a test", function()
  it("stands still but for what is waited for (B044, B047)", function()
    local began_s = os.time()
    local x = bench_of [[ timeout_ms = 3000, open = { cooldown_ms = 36000000 },
      trip = { consecutive_failures = 5 } ]]
    x:calls(5, "timeout"):takes(3000)
    x:is("open", "consecutive_failures"):stays_open_for(36000000):cool_down()
    x:call(200):is_a_probe()
    assert.is_true(os.time() - began_s < 5)
  end)

  it("is the same for all: what is under way ends when it is due, while another call waits",
    function()
    local x = bench_of "timeout_ms = 5000"
    local first = x:start { status = 200, takes_ms = 300 }
    local late = x:start { status = 200, takes_ms = 700 }
    x:call { status = 200, takes_ms = 500 }
    first:counts_as("success"):takes(300)
    assert.is_false(late.is_over)
    x:advance(200)
    late:takes(700)
  end)

  it("has what is due at once done in the order in which it was begun", function()
    local x, order = bench_of "", {}
    for i = 1, 3 do
      x:start(function() order[#order + 1] = i return true end, { takes_ms = 10 })
    end
    x:advance(10)
    assert.same({ 1, 2, 3 }, order)
  end)

  it("passes between the beginnings of calls", function()
    local x = bench_of ""
    local made = x:calls(3, { status = 200, takes_ms = 30 }, { every_ms = 100 })
    assert.same({ 0, 100, 200 }, { made[1].at_ms, made[2].at_ms, made[3].at_ms })
  end)

  it("does not wait for ever", function()
    has(told(function() bench_of(""):call "timeout" end), "it would wait for ever")
    local with_timer = "fallback = { fallback.queue 'q' }"
    has(told(function() bench_of(with_timer):call "timeout" end), "it would wait for ever")
    has(told(function() bench_of(""):call(function() end, { takes_ms = math.huge }) end),
      "it would wait for ever")
  end)
end)

describe("a call of a server", function()
  it("is told apart by its request, as in the sidecar", function()
    local x = bench_of "trip = { failures = 100 }, fallback = { fallback.last_good {} }"
    local function get(target, headers)
      return { request = { target = target, headers = headers } }
    end
    x:call(UP, get "/a")
    x:call({ status = 200, body = "no" }, { request = { method = "POST", target = "/b" } })
    x:call(503, get "/a"):is_answered_by("last_good", 0):gives { status = 200, body = "up" }
    x:call(503, get "/b"):is_answered_by "primary"
    x:call(503, get("/a", { Cookie = "me" })):is_answered_by "primary"
    for _, control in ipairs { "private", "max-age=5, no-store" } do
      x:call({ status = 200, headers = { ["Cache-Control"] = control } }, get "/c")
      x:call(503, get "/c"):is_answered_by "primary"
    end
    x:call({ status = 200, headers = { Vary = "Origin" } }, get "/d")
    x:call(503, get "/d"):is_answered_by "primary"
    x:call({ status = 206, body = "part" }, get "/e")
    x:call(503, get "/e"):is_answered_by "primary"
  end)

  it("is seen by the policy's functions whole", function()
    local x = bench_of [[
      classify = function(call)
        local request = call.request
        if not request then return "success" end
        return "neutral", table.concat({ request.method, request.target, request.headers.host,
          request.body, call.headers["x-odd"], call.status }, " ")
      end ]]
    x:call({ status = 207, headers = { ["X-Odd"] = "odd" } },
      { request = { method = "PUT", target = "/p", headers = { Host = "h" }, body = "b" } })
      :counts_as("neutral", "PUT /p h b odd 207")
  end)

  it("ends at timeout_ms, or when who asked has left", function()
    local x = bench_of "timeout_ms = 100"
    x:call({ status = 200, takes_ms = 101 }):counts_as("timeout"):takes(100):fails_with "timeout"
    x:call("caller"):counts_as "neutral"
    x:call("transport"):counts_as("failure"):is_answered_by("nobody"):fails_with "transport"
  end)

  it("is told to fallbacks with why it was refused, and what its caller's deadline has cut short",
    function()
    local x = bench_of [[ trip = { failures = 1 }, timeout_ms = 500,
      fallback = { fallback.call(function(call) return call.refused or call.cause end) } ]]
    x:call("timeout", { deadline_ms = 100 }):counts_as("neutral"):gives { body = "timeout" }
    x:call(503):gives { body = "failure" }
    x:call():gives { body = "open" }
  end)

  it("gets what a fallback says as an HTTP answer", function()
    local x = bench_of "fallback = { fallback.default { on = true } }"
    x:call(500):gives { status = 200, body = '{"on":true}',
      headers = { ["content-type"] = "application/json" } }
    bench_of("fallback = { fallback.default 'text' }"):call(500):gives { body = "text" }
    bench_of("fallback = { fallback.fail { status = 504, kind = 'late' } }"):call(500)
      :gives({ status = 504 }):fails_with "late"
  end)
end)

describe("a call of a Lua program", function()
  local function down(word) return nil, "down " .. word end

  it("goes by guard:call, with its arguments, and answers what that answers", function()
    local x = bench_of "timeout_ms = 50"
    local got
    x:call(function(...)
      got = version.pack(...)
      return "v"
    end, { args = { n = 3, 1, nil, 3 } }):counts_as("success"):gives "v"
    assert.same({ n = 3, 1, nil, 3 }, got)
    x:call(down, { args = { "a" } }):counts_as("failure"):fails_with("down a"):gives(nil)
    local thrown = {}
    local raised = x:call(function() error(thrown, 0) end):counts_as "failure"
    assert.equal(thrown, raised.error)
  end)

  it("is given up at timeout_ms, whether the script or the function waits", function()
    local x = bench_of "timeout_ms = 50"
    x:call(down, { takes_ms = 51 }):counts_as("timeout"):takes(50):fails_with "timeout"
    x:call(function()
      x:wait(30)
      return "v"
    end):counts_as("success"):takes(30)
    x:call(function() x:wait(60) end):counts_as("timeout"):takes(50)
  end)

  it("is refused as it is there", function()
    local x = bench_of "trip = { failures = 1 }, fallback = { fallback.last_good {} }"
    x:call(function() return "kept" end)
    x:call(down, { args = { "b" } })
    x:call(down):is_refused("open"):is_answered_by("last_good"):gives "kept"
    x:call(down, { args = { "b" } }):is_refused("open"):is_answered_by("nobody"):fails_with "open"
  end)
end)

describe("an expectation within a function that is called", function()
  it("ends the test, whatever the guard makes of it", function()
    local x = bench_of "fallback = { fallback.default 'fine' }"
    has(told(x.call, x, function() x:is "open" end), "expected: the breaker is open")
    local y = bench_of "fallback = { fallback.default 'fine' }"
    y:start(function() y:is "open" end, { takes_ms = 5 })
    has(told(y.advance, y, 10), "expected: the breaker is open")
    y:call(200):counts_as "success"
  end)
end)

describe("a retry", function()
  it("waits on the test's clock, and sees what the script says of each attempt (B103)", function()
    local x = bench_of("trip = { failures = 100 }, retry = { attempts = 4, base_ms = 1000, on = "
      .. ANY .. " }")
    local began_s = os.time()
    local call = x:call { 503, 503, 200 }:counts_as("success"):is_tried(3)
    assert.is_true(call.took_ms <= 3000 and #call.waits_ms == 2)
    assert.equal(call.took_ms, call.waits_ms[1] + call.waits_ms[2])
    x:call(503):is_tried(4):counts_as "failure"
    assert.is_true(os.time() - began_s < 3)
    assert.equal(5, x.guard:stats().retries.success + x.guard:stats().retries.failure)
  end)

  it("is made by guard:call for functions", function()
    local x = bench_of("retry = { attempts = 3, base_ms = 1000, on = " .. ANY .. " }")
    local down, up = function() return nil, "down" end, function() return "up" end
    local call = x:call { down, up }:counts_as("success"):is_tried(2):gives "up"
    assert.equal(call.took_ms, call.waits_ms[1])
    x:call(down):is_tried(3):counts_as("failure"):fails_with "down"
    x = bench_of("timeout_ms = 10, retry = { attempts = 2, on = " .. ANY .. " }")
    x:call { down, function() x:wait(11) end }:is_tried(2):counts_as "timeout"
    x:call { function() x:wait(11) end, down }:is_tried(2):counts_as "failure"
  end)

  it("heeds Retry-After, the deadline and methods", function()
    local x = bench_of [[ trip = { failures = 100 }, deadline_ms = 2500,
      retry = { max_ms = 5000, base_ms = 1 } ]]
    local busy = { status = 503, headers = { ["Retry-After"] = "2" } }
    local call = x:call { busy, 200 }:is_tried(2)
    assert.equal(2000, call.waits_ms[1])
    x:call({ busy, 200 }, { deadline_ms = 1000 }):is_tried(1):counts_as "failure"
    x:call(503, { request = { method = "POST" } }):is_tried(1)
    x:call("transport", { request = { method = "POST" } }):is_tried(3)
  end)
end)

describe("a deadline", function()
  it("ends a call, and who had it is told apart", function()
    local x = bench_of "timeout_ms = 200, deadline_ms = 200"
    x:call("timeout"):counts_as("timeout"):takes(200)
    x:call("timeout", { deadline_ms = 100 }):counts_as("neutral"):takes(100)
    x:call(function() return 1 end, { takes_ms = 300, deadline_ms = 100 })
      :counts_as("neutral"):takes(100):fails_with "deadline"
    x:call(function() return 1 end, { takes_ms = 300 }):counts_as("timeout"):takes(200)
  end)

  it("can be over before anything is tried", function()
    bench_of(""):call(200, { deadline_ms = 0 }):is_refused "deadline"
  end)
end)

describe("a bulkhead", function()
  it("refuses what is too much, and takes slots back", function()
    local x = bench_of "bulkhead = { concurrent = 2 }"
    local first = x:start()
    x:start()
    x:call(200):is_refused "bulkhead"
    first:ends_with(200):counts_as "success"
    x:call(200):counts_as "success"
  end)

  it("has calls wait for their turn, first come, first served", function()
    local x = bench_of "bulkhead = { concurrent = 1, wait_ms = 100 }"
    local holder = x:start { status = 200, takes_ms = 60 }
    local second = x:start { status = 200, takes_ms = 30 }
    local third = x:start { status = 200, takes_ms = 30 }
    local fourth = x:start { status = 200, takes_ms = 30 }
    x:advance(1000)
    holder:takes(60)
    second:takes(90)
    third:takes(120)
    fourth:is_refused("bulkhead"):takes(100)
  end)

  it("has functions wait, too", function()
    local x = bench_of "bulkhead = { concurrent = 1, wait_ms = 100 }"
    x:start { result = "rows", takes_ms = 60 }
    x:call(function() return "mine" end):takes(60):gives "mine"
    x:start { result = "rows", takes_ms = 500 }
    x:call(function() return "mine" end):is_refused("bulkhead"):takes(100)
  end)
end)

describe("half-open", function()
  it("has probes under way, lost ones, and a ramp after it (B001, B002)", function()
    local x = bench_of [[
      half_open = { probes = 2, successes = 2, lease_ms = 1000, ramp_ms = 1000 } ]]
    x:calls_until("open", 503):cool_down()
    local probe = x:start():is_a_probe()
    collectgarbage()
    x:call():is_refused "probes_busy"
    probe:ends_with(200):counts_as "success"
    x:start():is_a_probe()
    collectgarbage()
    collectgarbage()
    x:advance(999):call():is_refused "probes_busy"
    x:advance(2):call():is_refused "open"
    x:is("open", "probe_lost"):cool_down():calls(2, 200):is_a_probe()
    x:is "closed":has_gone_to("open", "half_open", "open", "half_open", "closed")
    local refused = 0
    for _, call in ipairs(x:calls(1000, 200, { every_ms = 1 })) do
      if call.refused == "ramp" then refused = refused + 1 end
    end
    assert.is_true(refused > 350 and refused < 650, refused)
    x:calls(100, 200, { every_ms = 1 }):counts_as "success"
  end)
end)

describe("a key", function()
  it("has a breaker of its own", function()
    local x = bench_of "trip = { failures = 2 }"
    x:at("a"):calls(2, 503):counts_as "failure"
    x:at("a"):is("open", "failures"):stays_open_for(5000)
    x:at("a"):call():is_refused "open"
    x:at("b"):call(200):counts_as "success"
    x:at("b"):is "closed"
    x:at("a"):call(function() return 1 end):is_refused "open"
    x:at("a"):cool_down():has_gone_to "open"
    x:at("b"):has_gone_to()
    has(told(function() x:at("c"):is "closed" end), 'no call was of the key "c" yet')
  end)

  it("is the policy's to say, of requests and of functions' arguments", function()
    local x = bench_of [[ trip = { failures = 2 }, max_keys = 2, key = function(call)
      return call.request.target and route(call.request.target) or call.args[1]
    end, fallback = { fallback.last_good {} } ]]
    local function get(target) return { request = { target = target } } end
    x:call({ status = 200, body = "one" }, get "/users/1"):is_of "/users/{id}"
    x:call(503, get "/users/1"):is_answered_by("last_good"):gives { body = "one" }
    x:call(503, get "/users/2"):is_of "/users/{id}"
    x:at("/users/{id}"):is("open", "failures")
    x:call(nil, get "/users/3"):is_refused "open"
    x:is "closed"
    x:call(200, get "/a"):is_of("/a"):counts_as "success"
    x:call(200, get "/b"):is_of "*"
    has(told(x.is, x, "open"), "call 4 GET /users/3 of /users/{id}")
    x = bench_of [[ trip = { failures = 1 }, key = function(call) return call.args[1] end ]]
    local function down() return nil, "down" end
    x:call(down, { args = { "tenant" } }):is_of("tenant"):counts_as "failure"
    x:call(down, { args = { "tenant" } }):is_refused "open"
    x:call(down, { args = { "another" } }):is_of("another"):counts_as "failure"
    x:call(down):is_of "default"
  end)
end)

describe("modes and shadows", function()
  it("are as an operator or a policy sets them", function()
    local x = bench_of "mode = 'shadow', trip = { failures = 1 }"
    x:call(503)
    x:is "open":call(200):counts_as "success"
    x.guard:mode(nil, "forced_open", { for_ms = 1000 })
    x:call():is_refused "forced_open"
    x:advance(1000):call(200):counts_as "success"
  end)

  it("of a candidate say what it would have done", function()
    fixture.write(on.directory .. "/lib/next.lua",
      "return { name = 'next', trip = { failures = 2 } }")
    local x = bench_of "shadow = 'lib/next.lua'"
    x:calls(4, 503)
    x:is "closed":has_shadow { state = "open", saved = 2, lost = 0 }
    has(told(x.has_shadow, x, { saved = 3 }),
      "its shadow has { saved = 2 }; expected: its shadow has { saved = 3 }")
    has(told(x.is, x, "open"), "shadow lib/next.lua would move: closed -> open")
  end)
end)

describe("what is behind callers' backs", function()
  it("refreshes a kept answer, once", function()
    local x = bench_of [[ fallback = { fallback.last_good { revalidate_after_ms = 100 } } ]]
    x:call(UP):is_answered_by "primary"
    x:advance(50):call():is_answered_by("last_good", 50):gives(UP)
    x:advance(100)
    x:call({ status = 200, body = "new" }):is_answered_by("last_good", 150):gives(UP)
    x:call():is_answered_by("last_good", 0):gives { body = "new" }
    local f = function() return "one" end
    x = bench_of [[ fallback = { fallback.last_good { revalidate_after_ms = 100 } } ]]
    x:call(f)
    x:advance(200):call(function() return "two" end):gives("one"):is_answered_by("last_good", 200)
    x:call(f):gives "two"
  end)

  it("makes queued calls again, in order, in a directory of the test's own", function()
    local x = bench_of [[ fallback_on = { "refused" }, fallback = { fallback.queue "q" } ]]
    local function post(body) return { request = { method = "POST", body = body } } end
    x:dependency(503):calls_until("open", nil, post "0")
    for _, body in ipairs { "a", "b" } do
      x:call(nil, post(body)):is_answered_by("queue"):gives { status = 202 }
    end
    x:call(nil):is_refused("open"):is_answered_by "nobody" -- a GET
    x:has_queued(2)
    has(told(x.replays, x), "no queued call was made again")
    x:restart():has_queued(2)
    x:dependency(201):advance(60000):has_queued(0)
    local again = x:replays() -- the first of them at once, when the dependency was still down
    assert.same({ "failure", "success", "success" },
      { again[1].outcome, again[2].outcome, again[3].outcome })
    assert.same({ "a", "a", "b" },
      { again[1].request.body, again[2].request.body, again[3].request.body })
  end)

  it("gives up a queued call that is its own fault", function()
    local x = bench_of [[ fallback_on = { "refused" }, fallback = { fallback.queue "q" } ]]
    x:calls_until("open", 503)
    x:call(nil, { request = { method = "POST" } }):is_answered_by "queue"
    x:dependency(400):advance(60000):has_queued(0):has_logged "goes to the dead letters"
    x:replays():counts_as "neutral"
  end)

  it("makes queued calls of functions again", function()
    local x = bench_of [[ trip = { failures = 1 }, fallback_on = { "refused" },
      fallback = { fallback.queue "q" } ]]
    local sent = {}
    x:call(function() return nil, "down" end)
    x:call(function() end, { args = { "a" } }):is_answered_by "queue"
    x:dependency(function(entry) sent[#sent + 1] = entry return true end)
    x:advance(10000):has_queued(0)
    assert.same({ "a" }, sent)
  end)

  it("keeps answers over a restart", function()
    local x = bench_of [[ fallback = { fallback.last_good { persist = "kept" } } ]]
    x:call(UP)
    x:restart():call(503):is_answered_by("last_good"):gives(UP)
  end)
end)

describe("another policy", function()
  it("that a fallback names is the file beside it, with a dependency of its own", function()
    fixture.write(on.directory .. "/replica.lua", [[
      return { name = "replica", trip = { failures = 2 }, timeout_ms = 500 } ]])
    local x = bench_of [[ trip = { failures = 100 },
      fallback = { fallback.guard("replica", { timeout_ms = 50 }) } ]]
    local replica = x:other "replica"
    replica:dependency { result = "from the replica" }
    x:call(function() return nil, "down" end):is_answered_by("guard"):gives "from the replica"
    replica:dependency { result = "late", takes_ms = 80 }
    x:call(function() return nil, "down" end):is_answered_by("primary"):takes(50)
    replica:dependency { error = "down, too" }
    x:call(function() return nil, "down" end):is_answered_by("primary"):fails_with "down"
    replica:is "open"
    has(told(x.other, x, "nobody"), "there is no policy nobody beside " .. on.directory .. "/x.lua")
  end)
end)
