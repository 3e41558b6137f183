--- What a policy's functions are tried with before it serves: `neap check`, `neap test`.
local fixture = require "tests.lua.policy_fixture"

local STRICT = { strict = true }

--- The messages of a policy that does not load, a line each.
local function refused(lines)
  local p, err = fixture.parse(lines, STRICT)
  assert.is_nil(p)
  return tostring(err)
end

local function warnings(lines) return fixture.load(lines, STRICT).warnings end

describe("a field that no call has", function()
  it("is told where it is read, with the one that was meant", function()
    assert.equal("policies/x.lua:6: classify: call.statuss: a call has no such field: did you mean "
      .. "status?", refused [[
      classify = function(call)
        local is_down =
          call.statuss == 503
        return is_down and "failure" or "success"
      end,]])
  end)

  for _, case in ipairs {
    -- in                                                               is told as
    { "classify = function(c) return c.error_code and 'failure' or 'success' end",
      "classify: call.error_code: a call has no such field" },
    { "key = function(call) return call.reqest and 'a' end",
      "key: call.reqest: before a call there is no such field: did you mean request?" },
    { "key = function(call) return call.status and 'a' end",
      "key: call.status: before a call there is no such field" },
    { "key = function(call) return call.request and call.request.path end",
      "key: call.request.path: a request has no such field" },
    { "key = function(call) return call.request and call.request.heders and 'a' end",
      "key: call.request.heders: a request has no such field: did you mean headers?" },
    { "retry = { on = function(call) return call.ended == 'transport' end }",
      "retry.on: call.ended: a call has no such field" },
    { "trip = { decide = function(s) return s.failures == 5 end }",
      "trip.decide: snapshot.failures: a snapshot has no such field: did you mean failure?" },
    { "trip = { decide = function(s) return s.totals.failuer == 5 end }",
      "trip.decide: snapshot.totals.failuer: a snapshot has no such field: did you mean failure?" },
    { "half_open = { decide = function(r) return r.suceeded and 'close' end }",
      "half_open.decide: round.suceeded: a round has no such field: did you mean succeeded?" },
    { "on_transition = function(event) if event.reason == 'trip' then warn 'x' end end",
      "on_transition: event.reason: a transition has no such field" },
    { "on_transition = function(event) if event.form == 'open' then warn 'x' end end",
      "on_transition: event.form: a transition has no such field: did you mean from?" },
  } do
    it("is told of " .. case[1], function()
      local line = case[1]:find "^trip" and 3 or 4
      assert.equal(("policies/x.lua:%d: %s"):format(line, case[2]), refused(case[1] .. ","))
    end)
  end

  it("is what it was when the policy serves: nil", function()
    assert.equal("success", fixture.load(
      "classify = function(c) return c.nothing and 'failure' or 'success' end").classify {})
  end)

  it("is none that there is only now and then", function()
    assert.same({}, warnings [[ classify = function(call)
      for _, field in ipairs { "status", "grpc_status", "code", "headers", "body", "result",
        "error", "raised", "duration_ms", "ended_by", "phase", "key", "args", "request" } do
        if call[field] == "x" then return "failure" end
      end
      return "success"
    end, ]])
  end)
end)

describe("a key function", function()
  it("that fails is told of, with what it was tried with", function()
    assert.same({ 'policies/x.lua:4: key, tried with POST /orders: policies/x.lua:5: boom' },
      warnings [[ key = function(call) if call.request and call.request.method == "POST" then
        error "boom" end end, ]])
  end)

  for _, case in ipairs {
    { "return {}", "answered a table, not a text, a number or nil" },
    { "return '*'", 'answered "*", not a key: 1 to 101 letters, without control characters, and '
      .. "not *" },
    { "return route(5)", "route: what was asked for must be a text, got number" },
    { "return route(call.request.target, { 'users' })",
      'route: a template is a path such as "/users/{id}", of up to 80 letters, '
        .. 'got "users"' },
    { "while true do end", "took more than its 100000 steps" },
  } do
    it("that fails on every call is told of once: " .. case[1], function()
      assert.same({ "policies/x.lua:4: key: fails on every call it was tried with, as GET "
        .. "/users/8812/orders?page=2: " .. case[2] },
        warnings(("key = function(call) %s end,"):format(case[1])))
    end)
  end

  for _, body in ipairs {
    "return call.request and route(call.request.target)", "return route(call.request.target)",
    "return call.args[1]:lower()", "return call.args[1].target and 'a' or nil", "return nil",
    "return call.request.headers['x-tenant']", "return call.request.headers.host",
  } do
    it("is right if it does for servers, or for programs: " .. body, function()
      assert.same({}, warnings(("key = function(call) %s end,"):format(body)))
    end)
  end

  it("that makes a key of each id is told of", function()
    assert.same({ 'policies/x.lua:4: key: a key for each id: "/users/8812/orders?page=2" and '
      .. '"/users/8813/orders?page=2": route(call.request.target) gives "/users/{id}/orders"' },
      warnings "key = function(call) return call.request and call.request.target end,")
  end)
end)

describe("an on_transition", function()
  it("that fails is told of, with what it was tried with", function()
    assert.same({ "policies/x.lua:4: on_transition, tried with half_open -> closed: "
      .. "policies/x.lua:5: the name wran is not known: did you mean warn?" },
      warnings [[ on_transition = function(event)
        if event.to == "closed" then wran "back" end end, ]])
  end)

  it("may look at all that there is, and what it says is not heard", function()
    local p = fixture.load([[ on_transition = function(event)
      for _, field in ipairs { "policy", "key", "from", "to", "cause", "measured", "limit", "calls",
        "epoch", "level", "open_ms", "flapping", "hash", "by", "at_ms", "text" } do
        if event[field] == nil and field ~= "by" then error(field) end
      end
      warn(event.text)
    end, ]], STRICT)
    assert.same({ {}, 0 }, { p.warnings, #p.warned })
  end)
end)
