local admin = require "neap.admin"
local guards = require "tests.support.guards"
local json = require "neap.cmd.json"

local pages, guard, clock, logged, health, token, reloaded

local function ask(method, target, options)
  options = options or {}
  local headers = { host = "localhost:9464" }
  for name, value in pairs(options.headers or {}) do headers[name] = value end
  if options.host == false then headers.host = nil end
  local answer = pages:handle {
    method = method, target = target, headers = headers, body = options.body, peer = "127.0.0.1",
  }
  if type(answer.body) == "function" then
    local parts = {}
    for part in answer.body do parts[#parts + 1] = part end
    answer.parts, answer.body = #parts, table.concat(parts)
  end
  local is_json = answer.type:find("json", 1, true)
  return answer, is_json and assert(json.decode(answer.body)) or nil
end

local function get(target, options) return ask("GET", target, options) end
local function post(target, body, options)
  options = options or {}
  options.body = body
  return ask("POST", target, options)
end

local MODE = "/breakers/flags/default/mode"

before_each(function()
  guard, clock = guards.new("flags")
  logged, health, token, reloaded = {}, "ok", nil, { 0, 0 }
  pages = admin.open {
    guards = function() return { flags = guard } end,
    policies = function()
      return { { name = "flags", path = "p/flags.lua", hash = "0123abcd", loaded_at_ms = 1000,
        is_gone = false, is_orphaned = false, reloads = 1, failures = 2,
          error = "p/flags.lua:3: no" } }
    end,
    reload = function() return table.unpack(reloaded) end,
    token = function() return token end,
    health = function() return health end,
    since = function(ms) return ("at %d"):format(ms) end,
    log = function(level, event, message, fields)
      local line = { level = level, event = event, message = message }
      for _, field in ipairs(fields) do line[field[1]] = field[2] end
      logged[#logged + 1] = line
    end,
  }
end)

describe("the admin pages", function()
  it("say what there is", function()
    local answer = get "/"
    assert.equal(200, answer.status)
    assert.is_truthy(answer.body:find("POST /breakers/POLICY/KEY/mode", 1, true))
  end)

  it("say whether all is well", function()
    assert.same({ 200, "ok" }, { get("/healthz").status, select(2, get "/healthz").status })
    health = "draining"
    assert.same({ 503, "draining" }, { get("/healthz").status, select(2, get "/healthz").status })
  end)

  it("give the metrics as Prometheus wants them", function()
    local answer = get "/metrics"
    assert.equal("text/plain; version=0.0.4; charset=utf-8", answer.type)
    local series = 'neap_breaker_state{policy="flags",key="default"} 0'
    assert.is_truthy(answer.body:find(series, 1, true))
  end)

  it("show everything about the breakers", function()
    guards.call(guard, 500)
    local answer, value = get "/breakers"
    assert.equal(200, answer.status)
    assert.equal(1, #value.breakers)
    local row = value.breakers[1]
    assert.same({ "flags", "default", "open", "auto", 5000, 1 },
      { row.policy, row.key, row.state, row.mode, row.retry_after_ms, row.totals.failure })
  end)

  it("show each breaker's last transition: the rule, its numbers, the limit and when", function()
    local function last() return select(2, get "/breakers/flags/default").last_transition end
    guard, clock = guards.new("flags", { rules = {
      failure_rate = 0.5, minimum_calls = 3, cooldown_ms = 5000, jitter = 0,
      probes = 2, successes = 2,
    } })
    assert.equal(json.null, last())
    for _, status in ipairs { 200, 500, 500 } do guards.call(guard, status) end
    local rate = last().measured
    assert.is_true(rate > 0.6666 and rate < 0.6667, rate)
    assert.same({
      from = "closed", to = "open", reason = "failure_rate", measured = rate, limit = 0.5,
      calls = 3, open_ms = 5000, level = 1, epoch = 1, policy_hash = "0123abcd", at = "at 1000000",
      text = "flags/default: closed -> open: a failure rate of 0.667 in 3 calls, limit 0.5; open "
        .. "for 5000 ms, level 1",
    }, last())
    guards.call(guard, 200) -- refused: nothing moves
    assert.equal("failure_rate", last().reason)
    clock:advance(5000)
    guards.call(guard, 200)
    assert.same({
      from = "open", to = "half_open", reason = "cooldown", level = 1, epoch = 1,
      policy_hash = "0123abcd", at = "at 1005000",
      text = "flags/default: open -> half_open: the cooldown is over, a probe goes",
    }, last())
    guards.call(guard, 200)
    assert.same({ "closed", "probes", 2, 2 },
      { last().to, last().reason, last().measured, last().limit })
    post("/breakers/flags/default/trip", "by=ann")
    assert.same({ "open", "trip", "ann", true },
      { last().to, last().reason, last().by, last().flapping })
  end)

  it("leave out a breaker that has gone since the page began", function()
    for _, key in ipairs { "a", "b", "c" } do guards.call(guard, 200, 1, key) end
    local answer = pages:handle { method = "GET", target = "/breakers", headers = {} }
    local parts = { answer.body() }
    guard.lines.b = nil
    for part in answer.body do parts[#parts + 1] = part end
    local keys = {}
    for i, row in ipairs(assert(json.decode(table.concat(parts))).breakers) do keys[i] = row.key end
    assert.same({ "*", "a", "c", "default" }, keys)
  end)

  it("show many breakers in many parts, so that none is long in the making", function()
    for i = 1, 20 do guards.call(guard, 200, 1, "key" .. i) end
    local answer, value = get "/breakers"
    assert.equal(22, #value.breakers)
    assert.equal(23, answer.parts)
  end)

  it("show an empty list where there is nothing", function()
    pages.guards = function() return {} end
    assert.same({}, select(2, get "/breakers").breakers)
  end)

  it("show one guard's, or one breaker", function()
    guards.call(guard, 200, 1, "a/b c")
    assert.equal(3, #select(2, get "/breakers/flags").breakers) -- "*" is for keys without room
    local _, row = get "/breakers/flags/a%2Fb%20c"
    assert.same({ "a/b c", "closed" }, { row.key, row.state })
  end)

  it("show the policies, their hash, since when, and what is wrong with the file", function()
    local _, value = get "/policies"
    local row = value.policies[1]
    assert.same({ "flags", "0123abcd", "at 1000", "p/flags.lua:3: no", false },
      { row.name, row.hash, row.loaded_at, row.last_error, row.orphaned })
    assert.is_truthy(get("/policies").body:find('"warnings": []', 1, true))
  end)

  it("reload, and say what was refused", function()
    reloaded = { 2, 0 }
    local answer, value = post "/reload"
    assert.same({ 200, 2, 0 }, { answer.status, value.reloaded, value.failed })
    reloaded = { 0, 1 }
    answer, value = post "/reload"
    assert.equal(422, answer.status)
    assert.same({ "p/flags.lua:3: no" }, value.errors)
  end)

  it("are not to be kept or guessed at by anybody", function()
    for _, target in ipairs { "/breakers", "/nothing", "/healthz" } do
      local answer = get(target)
      assert.equal("no-store", answer.headers["Cache-Control"])
      assert.equal("nosniff", answer.headers["X-Content-Type-Options"])
      assert.is_nil(answer.headers["Access-Control-Allow-Origin"])
    end
  end)

  for _, case in ipairs {
    -- method  target                                  status  what is said
    { "GET",  "/breaker",                              404,    "did you mean /breakers?" },
    { "GET",  "/events",                               501,    "this host keeps no events" },
    { "GET",  "/nothing/at/all",                       404,    "there are /breakers, /events, " },
    { "GET",  "/breakers/flasg",                       404,
      "there is no policy flasg: did you mean flags?" },
    { "GET",  "/breakers/zzz",                         404,    "no policy zzz: there is flags" },
    { "GET",  "/breakers/flags/defualt",               404,
      "flags has no breaker defualt: did you mean default?" },
    { "GET",  "/breakers/flags/nobody",                404,
      "a key's breaker is made by its first call" },
    { "GET",  "/breakers/flags/default/mode",          405,    nil },
    { "POST", "/breakers",                             405,    nil },
    { "POST", "/metrics",                              405,    nil },
    { "GET",  "/reload",                               405,    nil },
    { "PUT",  "/breakers/flags/default/mode",          405,    nil },
    { "POST", "/breakers/flags/default/open?by=ann",   404,
      "a breaker takes mode, reset and trip" },
    { "POST", "/breakers/flags/nobody/reset?by=ann",   404,    "no breaker nobody" },
    { "POST", "/breakers/flags/default/mode/x?by=ann", 404,    nil },
    { "POST", MODE,                                    400,
      "by: say who does this, e.g. by=alice" },
    { "POST", MODE .. "?by=%20",                       400,    "by: say who does this" },
    { "POST", MODE .. "?by=ann",                       400,
      "mode: say which, one of auto, forced_open" },
    { "POST", MODE .. "?by=ann&mode=forced_opn",       400,    "did you mean forced_open?" },
    { "POST", MODE .. "?by=ann&mode=shadow&fro=1m",    400,
      "fro: there is no such argument; did you mean for?" },
    { "POST", MODE .. "?by=ann&mode=shadow&for=soon",  400,
      'for = "soon": must be a time such as 90s, 10m or 2h' },
    { "POST", MODE .. "?by=ann&mode=shadow&for=32d",   400,    "up to 2678400000 ms" },
    { "POST", MODE .. "?by=ann&mode=shadow&for=0s",    400,    "must be a time" },
    { "POST", MODE .. "?by=ann&mode=shadow&for=5",     400,
      "for: 5 has no unit; e.g. 90s, 10m, 2h" },
    { "POST", MODE .. "?by=ann&mode=shadow&for=-5s",   400,    "must be a time" },
    { "POST", MODE .. "?by=ann&mode=shadow&for=0.5",   400,    "for: 0.5 has no unit" },
    { "POST", "/breakers/flags/default/reset?by=ann&for=1m",  400,
      'for: there is no such argument' },
    { "POST", "/breakers/flags/default/trip?by=ann&for=2h",   400,
      "for: 2h is more than the policy's open.max_cooldown_ms, 60000; to hold it open for longer "
        .. "set mode=forced_open" },
  } do
    it(("answer %d to %s %s, with what would be right"):format(case[3], case[1], case[2]),
      function()
      local before = guard:snapshot()
      local answer, value = ask(case[1], case[2])
      assert.equal(case[3], answer.status)
      assert.equal("application/problem+json", answer.type)
      assert.equal(case[3], value.status)
      if case[4] then assert.is_truthy(value.detail:find(case[4], 1, true), value.detail) end
      if case[3] == 405 then assert.is_string(answer.headers.Allow) end
      assert.same(before, guard:snapshot())
      assert.same({}, logged)
    end)
  end

  it("answer HEAD as GET", function()
    assert.equal(200, (ask("HEAD", "/breakers")).status)
  end)
end)

describe("an operator", function()
  for how, request in pairs {
    ["in the query"] = { MODE .. "?mode=forced_open&by=ann+lee&for=10m&reason=a%20drill" },
    ["in a form"] = { MODE, "mode=forced_open&by=ann+lee&for=10m&reason=a+drill\n" },
    ["in JSON"] = { MODE, '{"mode":"forced_open","by":"ann lee","for":"10m","reason":"a drill"}' },
  } do
    it("sets a mode for a while, told " .. how, function()
      local answer, row = post(request[1], request[2])
      assert.equal(200, answer.status)
      assert.same({ "forced_open", true, 600000 },
        { row.mode, row.mode_is_operators, row.mode_left_ms })
      assert.same({ mode = "forced_open", by = "ann lee", reason = "a drill", at = "at 1000000",
        left_ms = 600000 },
        row.operator)
      assert.is_false(guards.call(guard, 200))
      assert.same({ level = "warn", event = "operator", policy = "flags", key = "default",
        action = "mode forced_open",
        by = "ann lee", for_ms = 600000, why = "a drill", peer = "127.0.0.1",
        message = "flags/default: mode forced_open for 600000 ms, by ann lee" }, logged[1])
      clock:advance(600000)
      assert.is_true(guards.call(guard, 200))
    end)
  end

  it("gives the mode back to the policy", function()
    post(MODE, "mode=forced_open&by=ann")
    local _, row = post(MODE, "mode=policy&by=ann")
    assert.same({ "auto", false }, { row.mode, row.mode_is_operators })
    assert.is_nil(row.operator)
  end)

  it("resets a breaker", function()
    guards.call(guard, 500)
    local answer, row = post("/breakers/flags/default/reset", "by=ann&reason=it+is+back")
    assert.same({ 200, "closed" }, { answer.status, row.state })
    assert.equal("flags/default: reset, by ann", logged[1].message)
  end)

  it("trips a breaker, for the cooldown or as long as is said", function()
    local _, row = post("/breakers/flags/default/trip", "by=ann")
    assert.same({ "open", 5000 }, { row.state, row.retry_after_ms })
    _, row = post("/breakers/flags/default/trip", "by=ann&for=30s")
    assert.same({ "open", 30000 }, { row.state, row.retry_after_ms })
  end)

  it("has what is no JSON, or no plain values, refused", function()
    for _, body in ipairs { "{", '{"mode":', '{"mode":["a"]}', '{"by":{}}', '{"by":true}' } do
      assert.equal(400, (post(MODE, body)).status)
    end
    assert.same({}, logged)
  end)

  it("is named as the name is, whatever is in it", function()
    local answer = post(MODE, json.encode { mode = "shadow", by = 'x"}\n\255' })
    assert.equal(200, answer.status)
    assert.is_table(json.decode(answer.body))
  end)
end)

describe("a browser on the same machine", function()
  for _, host in ipairs { "localhost", "localhost:9464", "LOCALHOST:1", "127.0.0.1:9464",
    "127.0.0.1", "[::1]:9464", "[::1]",
    "10.0.0.7:9464" } do
    it("may ask by " .. host, function()
      assert.equal(200, (get("/breakers", { headers = { host = host } })).status)
    end)
  end

  for _, host in ipairs { "evil.example", "evil.example:9464", "127.0.0.1.evil.example:9464",
    "localhost.evil.example",
    "1.2.3.4.5", "", "0x7f.1", "[::1]evil:9464", "a:b" } do
    it(("may not ask by the name %q: it may have been made to point here"):format(host), function()
      local answer, value = get("/breakers", { headers = { host = host } })
      assert.equal(403, answer.status)
      assert.is_truthy(value.detail:find("is a name", 1, true))
    end)
  end

  for origin, status in pairs {
    ["http://localhost:9464"] = 200, ["http://localhost:8080"] = 403, ["http://evil.example"] = 403,
      ["null"] = 403,
    ["https://localhost:9464"] = 200, -- another server is in between
    ["https://localhost:8080"] = 403, [""] = 403,
  } do
    it(("gets %d for changing something from the page %q"):format(status, origin), function()
      assert.equal(status, (post(MODE, "mode=shadow&by=ann",
        { headers = { origin = origin } })).status)
      assert.equal(status == 200 and "shadow" or "auto", guard:snapshot().mode)
    end)
  end

  local own, foreign = "http://localhost:9464", "http://evil.example"
  for _, case in ipairs {
    -- Sec-Fetch-Site         Origin   Host            status
    { "same-origin",          own,     nil,              200, "the page itself" },
    { "same-origin",          "https://neap.example", "127.0.0.1:9464", 200,
      "the page, behind a proxy that asks by a name of its own" },
    { "same-origin",          nil,     nil,              200, "a browser that sends no Origin" },
    { "same-origin",          foreign, "evil.example",   403, "DNS rebinding: not our name" },
    { "same-site",            own,     nil,              403, "a page of another port" },
    { "cross-site",           own,     nil,              403, "a page of another site" },
    { "cross-site",           nil,     nil,              403, "... whose Origin is not told" },
    { "none",                 nil,     nil,              200, "nobody's page" },
    { "none",                 own,     nil,              200, "the same, by its address" },
    { "none",                 foreign, nil,              403, "an extension" },
    { "same-origin, same-origin", own, nil,              403, "two lines: no browser's" },
    { "cross-site, same-origin", own,  nil,              403, "two lines that differ" },
    { "Same-Origin",          own,     nil,              403, "case: no browser's" },
    { "",                     own,     nil,              403, "empty: no browser's" },
    { "same-origin; x",       own,     nil,              403, "a word that is not known" },
    { nil,                    own .. ", " .. foreign, nil, 403, "two Origins" },
    { nil,                    "https://neap.example", "127.0.0.1:9464", 403,
      "a proxy that drops Sec-Fetch-Site, and asks by a name of its own" },
  } do
    local site, origin, host, status, who = case[1], case[2], case[3], case[4], case[5]
    it(("gets %d for a change: %s"):format(status, who), function()
      assert.equal(status, (post(MODE, "mode=shadow&by=ann",
        { headers = { ["sec-fetch-site"] = site, origin = origin, host = host } })).status)
      assert.equal(status == 200 and "shadow" or "auto", guard:snapshot().mode)
    end)
  end

  it("reads what a proxy would have to do", function()
    local _, value = post(MODE, "mode=shadow&by=ann",
      { headers = { origin = "http://neap.example", host = "127.0.0.1:9464" } })
    assert.equal("Origin: http://neap.example is not Host: 127.0.0.1:9464; "
      .. "a proxy in between must pass Host or Sec-Fetch-Site on", value.detail)
  end)
end)

describe("a host that reads files again by itself, and takes no token", function()
  before_each(function()
    pages = admin.open { guards = function() return { flags = guard } end }
  end)

  it("says so when it is asked to reload", function()
    local answer, value = post "/reload"
    assert.equal(501, answer.status)
    assert.is_truthy(value.detail:find("read again within seconds", 1, true))
  end)

  it("speaks of no option that it does not have", function()
    local _, value = get("/breakers", { headers = { host = "evil.example" } })
    assert.equal("Host: evil.example is a name; ask for localhost or an address", value.detail)
  end)
end)

describe("with a token", function()
  before_each(function() token = "0123456789abcdef" end)

  it("who has it may ask, by any name", function()
    local headers = { authorization = "Bearer 0123456789abcdef", host = "neap.example:9464" }
    assert.equal(200, (get("/breakers", { headers = headers })).status)
    assert.equal(200, (post(MODE, "mode=shadow&by=ann", { headers = headers })).status)
  end)

  for _, given in ipairs { false, "", "Bearer", "Bearer ", "Bearer 0123456789abcdeF",
    "Bearer 0123456789abcde",
    "Bearer 0123456789abcdef0", "Basic 0123456789abcdef", "0123456789abcdef",
      "Bearer 0123456789abcdef x" } do
    it(("who says %q instead may not"):format(tostring(given)), function()
      for _, target in ipairs { "/breakers", "/metrics", "/", "/nothing" } do
        local answer = get(target, { headers = { authorization = given or nil } })
        assert.equal(401, answer.status)
        assert.equal('Bearer realm="neap"', answer.headers["WWW-Authenticate"])
        assert.is_nil(answer.body:find(token, 1, true))
      end
      assert.equal(401, (post(MODE, "mode=shadow&by=ann",
        { headers = { authorization = given or nil } })).status)
    end)
  end

  it("anybody may ask for the health: probes carry no tokens", function()
    assert.equal(200, (get "/healthz").status)
    assert.equal(200, (get "/healthz?x=1").status)
    assert.equal(401, (get "/healthz/../breakers").status)
    assert.equal(401, (post "/healthz").status)
  end)
end)
