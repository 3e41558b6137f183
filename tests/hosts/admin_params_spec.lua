--- The admin pages of params: what is declared and in force, and setting it.

local admin = require "neap.admin"
local guard = require "neap.guard"
local json = require "neap.cmd.json"
local reload = require "neap.reload"

local FLAGS = [[
params.declare {
  timeout_ms = { type = "ms", min = 50, max = 2000, default = 300, doc = "of one call" },
  on = { type = "boolean", default = true },
  most = { type = "whole", default = 1 },
  defaults = { type = "table", default = {} },
}
return { name = "flags", trip = { failures = 5 }, timeout_ms = params.timeout_ms }
]]
local PLAIN = 'return { name = "plain", trip = { failures = params.failures } }'
local FILES = {
  ["flags.lua"] = FLAGS, ["plain.lua"] = PLAIN,
}
local PARAMS = "return { flags = { timeout_ms = 400 }, plain = { failures = 7 } }"
FILES["params.lua"] = PARAMS

local pages, guards, logged, events, reloader

local function ask(method, target, body, headers)
  headers = headers or {}
  headers.host = "localhost"
  local answer = pages:handle {
    method = method, target = target, headers = headers, body = body, peer = "127.0.0.1",
  }
  return answer.status, json.decode(answer.body), answer
end

local function post(body) return ask("POST", "/policies/flags/params", body) end

before_each(function()
  guards, logged, events = {}, {}, {}
  reloader = assert(reload.open {
    paths = { "flags.lua", "plain.lua" }, params = "params.lua", environment = {},
    now = function() return 5000 end,
    files = {
      read = function(path) return FILES[path] end, list = function() return nil,
        "no directory" end,
    },
    adopt = function(policy)
      local found = guards[policy.name]
      if found then
        found:adopt(policy)
      else
        guards[policy.name] = guard.new(policy, { log = function() end })
      end
      return true
    end,
    on_event = function(event) events[#events + 1] = event end,
  })
  pages = admin.open {
    guards = function() return guards end,
    policies = function() return reloader:rows() end,
    params = function(name) return (reloader:params(name)) end,
    set_params = function(name, change) return reloader:set_params(name, change) end,
    since = function(ms) return "at " .. ms end,
    log = function(level, event, message, fields)
      local line = { level, event, message }
      for _, field in ipairs(fields) do line[field[1]] = field[2] end
      logged[#logged + 1] = line
    end,
  }
end)

local function row(value, name)
  for _, one in ipairs(value.params) do
    if one.name == name then return one end
  end
end

describe("the page of a policy's params", function()
  it("says what is declared, in force, and where it is from", function()
    local status, value = ask("GET", "/policies/flags/params")
    assert.same({ 200, "flags", true, 1, "at 5000", guards.flags.policy.params_hash },
      { status, value.policy, value.declared, value.version, value.since, value.hash })
    assert.same({ name = "timeout_ms", type = "ms", min = 50, max = 2000, default = 300,
      doc = "of one call", value = 400, from = "params.lua:1",
      takes = "a whole number of milliseconds from 50 to 2000" }, row(value, "timeout_ms"))
    assert.same({ name = "on", type = "boolean", default = true, value = true, from = "default",
      takes = "true or false" }, row(value, "on"))
  end)

  it("has no values of what is not declared: they may be for nobody's eyes", function()
    local _, value, answer = ask("GET", "/policies/plain/params")
    assert.is_false(value.declared)
    assert.same({ { name = "failures", from = "params.lua:1" } }, value.params)
    assert.is_nil(answer.body:find("7", 1, true) and answer.body:find('"value"', 1, true))
  end)

  it("is there for a host that sets none, but can't be written to", function()
    pages.params, pages.set_params, pages.policies = nil, nil, nil
    assert.equal(200, (ask("GET", "/policies/flags/params")))
    assert.equal(501, (post "timeout_ms=500&by=ann"))
  end)

  it("is one of a policy there is", function()
    assert.equal(404, (ask("GET", "/policies/flagz/params")))
    assert.equal(404, (ask("POST", "/policies/flagz/params", "a=1&by=ann")))
    assert.equal(404, (ask("GET", "/policies/flags/prams")))
    assert.equal(404, (ask("GET", "/policies/flags/params/timeout_ms")))
    local status, _, answer = ask("DELETE", "/policies/flags/params")
    assert.same({ 405, "GET, HEAD, POST" }, { status, answer.headers.Allow })
    assert.equal("flags", select(2, ask("GET", "/policies/flags")).name)
  end)
end)

describe("setting params", function()
  it("is in force at once, and says what has changed; the log has who, why and from where",
    function()
    local status, value = post "timeout_ms=500&on=false&by=ann&reason=it+is+slow"
    assert.equal(200, status)
    assert.same({
      { name = "on", old = true, new = false, from = "admin, by ann: it is slow" },
      { name = "timeout_ms", old = 400, new = 500, from = "admin, by ann: it is slow" },
    }, value.changed)
    assert.same({ 2, 500 }, { value.version, guards.flags.policy.timeout_ms })
    assert.equal(value.hash, guards.flags.policy.params_hash)
    assert.equal(guards.flags.policy.hash, guards.flags:stats().hash)
    assert.same({
      "warn", "operator", "flags: params on, timeout_ms, by ann", policy = "flags", by = "ann",
      action = "params on, timeout_ms", why = "it is slow", peer = "127.0.0.1",
    }, logged[1])
    assert.equal("flags: params 2: on true -> false, timeout_ms 400 -> 500 (admin, "
      .. "by ann: it is slow)", events[1].text)
  end)

  it("takes JSON: values are what they are, tables too, and null unsets", function()
    local status, value = post '{ "timeout_ms": 500, "defaults": { "a": [1, 2] }, "by": "ann" }'
    assert.equal(200, status)
    assert.same({ a = { 1, 2 } }, guards.flags.policy.params.defaults)
    assert.equal("admin, by ann", row(value, "defaults").from)
    status, value = post '{ "timeout_ms": null, "by": "bob" }'
    assert.same({ 200, 400, "params.lua:1" },
      { status, guards.flags.policy.timeout_ms, row(value, "timeout_ms").from })
    assert.equal(200, (post '{ "unset": ["defaults"], "by": "bob" }'))
    assert.same({}, guards.flags.policy.params.defaults)
  end)

  it("takes a whole number as one, however it is written, and shows all of its digits", function()
    assert.equal(200, (post '{ "most": 5e2, "by": "ann" }'))
    assert.equal("500", tostring(guards.flags.policy.params.most))
    assert.same({}, select(2, post "most=500&by=ann").changed)
    assert.same({}, select(2, post "most=5e2&by=ann").changed)
    assert.equal("500", tostring(guards.flags.policy.params.most))
    local _, _, answer = post '{ "most": 9007199254740991, "by": "ann" }'
    assert.is_truthy(answer.body:find('"new": 9007199254740991,', 1, true), answer.body)
    assert.equal("flags: params 3: most 500 -> 9007199254740991 (admin, by ann)", events[2].text)
  end)

  it("shows all of a table that has a list and names", function()
    post '{ "defaults": { "a": { "b": 1 } }, "by": "ann" }'
    FILES["params.lua"] = "return { flags = { defaults = { a = { 7, 8, b = 9 } } } }"
    finally(function() FILES["params.lua"] = PARAMS end)
    post "unset=defaults&by=ann"
    reloader:force()
    assert.same({ a = { ["1"] = 7, ["2"] = 8, b = 9 } },
      row(select(2, ask("GET", "/policies/flags/params")), "defaults").value)
  end)

  it("unsets what was set, in a form too", function()
    post "timeout_ms=500&on=false&by=ann"
    assert.equal(200, (post "unset=timeout_ms,on&by=ann"))
    assert.same({ 400, true }, { guards.flags.policy.timeout_ms, guards.flags.policy.params.on })
    assert.equal("flags: params timeout_ms unset, on unset, by ann",
      (logged[2][3]:gsub("params on unset, timeout_ms unset", "params timeout_ms unset, on unset")))
  end)

  it("survives a reload of the policy's file, and leaves the breaker alone (B119)", function()
    for _ = 1, 5 do guards.flags:report(guards.flags:acquire(), "failure") end
    assert.equal("open", guards.flags:snapshot().state)
    post "timeout_ms=500&by=ann"
    assert.equal("open", guards.flags:snapshot().state)
    assert.equal(1, guards.flags:snapshot().epoch)
  end)

  for _, case in ipairs {
    -- body                                              what is said
    { "timeout_ms=20&by=ann",
      "params.timeout_ms: 20 is out of range: a whole number of milliseconds from 50 to 2000" },
    { "timeout_ms=500&on=maybe&by=ann",                  'params.on: "maybe": true or false' },
    { "timout_ms=500&by=ann",                            "did you mean timeout_ms?" },
    { "timeout_ms=500",                                  "by: say who does this" },
    { "by=ann",                                          "say which params" },
    { "unset=on&by=ann",                                 "unset: on is not set here" },
    { '{ "timeout_ms": "500", "by": "ann" }',
      'params.timeout_ms: "500" is not a number' },
    { '{ "timeout_ms": [500], "by": "ann" }',
      "params.timeout_ms: a table is not a number" },
    { '{ "defaults": { "a": null }, "by": "ann" }',      "params.defaults.a: a userdata" },
    { '{ "timeout_ms": 500, "by": null }',               "by: say who does this" },
    { '{ "timeout_ms": 500, "by": {} }',                 "by: say who does this" },
    { '{ "unset": [{}], "by": "ann" }',                  "say which params" },
    { "{ 5",                                             "the body is no JSON" },
    { '{ "most": NaN, "by": "ann" }',                    "the body is no JSON" },
    { '{ "defaults": { "a": -Infinity }, "by": "ann" }', "the body is no JSON" },
    { '{ "most": 0x10, "by": "ann" }',                   "the body is no JSON" },
    { "timeout_ms=500&timeout_ms=600&by=ann",            "timeout_ms: is given twice" },
    { "unset=timeout_ms&unset=on&by=ann",                "unset: is given twice" },
    { "by=ann&timeout_ms=500&by=bob",                    "by: is given twice" },
    { "[500]",                                           "by: say who does this" },
    { "timeout_ms=500&unset=timeout_ms&by=ann",          "timeout_ms: is set and unset at once" },
    { '{ "on": null, "unset": "on,on", "by": "ann" }',   "unset: on is not set here" },
  } do
    it("refuses all of it with one line (B143): " .. case[1], function()
      local before = guards.flags.policy
      local status, value = post(case[1])
      assert.equal(400, status)
      assert.is_truthy(value.detail:find(case[2], 1, true), value.detail)
      assert.is_nil(value.detail:find("\n"))
      assert.same({ before, {}, {} }, { guards.flags.policy, logged, events })
    end)
  end

  it("has each argument once, be it in the query or in the body", function()
    local status, value = ask("POST", "/policies/flags/params?timeout_ms=500",
      '{ "timeout_ms": 600, "by": "ann" }')
    assert.same({ 400, "timeout_ms: is given twice" }, { status, value.detail })
    status, value = ask("POST", "/policies/flags/params?by=bob", "timeout_ms=500&by=ann")
    assert.same({ 400, "by: is given twice" }, { status, value.detail })
  end)

  it("needs the token, as every change does", function()
    pages.token = function() return "0123456789abcdef" end
    assert.equal(401, (post "timeout_ms=500&by=ann"))
    assert.equal(401, (ask("GET", "/policies/flags/params")))
    assert.equal(200, (ask("POST", "/policies/flags/params", "timeout_ms=500&by=ann",
      { authorization = "Bearer 0123456789abcdef" })))
  end)
end)
