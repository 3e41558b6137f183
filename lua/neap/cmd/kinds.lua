--- What `neap new` writes: for each kind of dependency a policy and its spec.  NAME, TIMEOUT_MS and
--- FAILURES stand for what was asked.

local kinds = {}

---@class (exact) neap.cmd.Kind
---@field name string
---@field is string what it is for
---@field timeout_ms integer
---@field failures integer
---@field policy string
---@field spec string
---@field next string what runs it

local SERVE = "neap serve --upstream http://127.0.0.1:8016 --policy PATH"

local HTTP_SPEC = [[
local t = require "neap.testing"

t.describe("NAME", function()
  local service
  t.before_each(function() service = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures in a row, and asks again after five seconds", function()
    service:calls(FAILURES - 1, 503):counts_as "failure"
    service:is "closed"
    service:call(503)
    service:is("open", "consecutive_failures"):stays_open_for(5000)
    service:call():is_refused "open"
    service:cool_down():calls(2, 200):is_a_probe()
    service:is "closed"
  end)

  t.it("opens for one caller who waits for each timeout", function()
    service:calls(FAILURES, "timeout"):counts_as("timeout"):takes(TIMEOUT_MS)
    service:is "open"
  end)

  t.it("does not count what the caller did wrong", function()
    for _, status in ipairs { 400, 401, 404, 422 } do
      service:calls(50, status):counts_as "neutral"
    end
    service:is "closed"
  end)

  t.it("serves what it had, up to a minute old; else the error stays as it is", function()
    service:call(500):is_answered_by "primary":gives { status = 500 }
    service:call { status = 200, body = "good" }
    service:advance(60000)
    service:call(500):is_answered_by("last_good", 60000):gives { body = "good" }
    service:advance(1)
    service:call(500):is_answered_by "primary"
  end)
end)
]]

local GRPC_SPEC = [[
local t = require "neap.testing"

local OK, INVALID_ARGUMENT, NOT_FOUND, UNAVAILABLE = 0, 3, 5, 14

t.describe("NAME", function()
  local service
  t.before_each(function() service = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures in a row, and asks again after three seconds", function()
    service:calls(FAILURES - 1, { grpc_status = UNAVAILABLE }):counts_as "failure"
    service:is "closed"
    service:call { grpc_status = UNAVAILABLE }
    service:is("open", "consecutive_failures"):stays_open_for(3000)
    service:cool_down():calls(2, { grpc_status = OK }):is_a_probe()
    service:is "closed"
  end)

  t.it("does not count what the caller asked for", function()
    service:calls(50, { grpc_status = NOT_FOUND }):counts_as "neutral"
    service:calls(50, { grpc_status = INVALID_ARGUMENT }):counts_as "neutral"
    service:is "closed"
  end)

  t.it("refuses with the error that callers know", function()
    service:calls(FAILURES, { grpc_status = UNAVAILABLE })
    service:call():is_refused("open"):fails_with "UNAVAILABLE"
  end)
end)
]]

local FLAGS_SPEC = [[
local t = require "neap.testing"

local FLAG = { request = { method = "POST", target = "/ofrep/v1/evaluate/flags/new-checkout" } }
local NOT_FOUND = { status = 404, body = '{"errorCode":"FLAG_NOT_FOUND"}' }

t.describe("NAME", function()
  local flags
  t.before_each(function() flags = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures within two seconds, and asks again after two", function()
    flags:calls(FAILURES, 503, { every_ms = 1800 / FAILURES })
    flags:is "open":stays_open_for(2000)
    flags:cool_down():calls(2, 200):is_a_probe()
    flags:is "closed"
  end)

  t.it("never counts FLAG_NOT_FOUND", function()
    flags:calls(50, NOT_FOUND):counts_as "neutral"
    flags:is "closed"
  end)

  t.it("answers with the last value for the same context", function()
    flags:call({ status = 200, body = '{"value":true}' }, FLAG)
    flags:call("timeout", FLAG):is_answered_by("last_good"):gives { body = '{"value":true}' }
  end)

  t.it("answers with the reviewed default for what it never saw", function()
    local off = { status = 200, body = '{"key":"new-checkout","reason":"DEFAULT","value":false}' }
    flags:call(503, FLAG):is_answered_by("default"):gives(off)
    flags:calls_until("open", 503)
    flags:call(nil, FLAG):is_refused("open"):is_answered_by("default"):gives(off)
  end)
end)
]]

local QUEUE_SPEC = [[
local t = require "neap.testing"

local ORDER = { request = { method = "POST", target = "/NAME", body = "{}" } }

t.describe("NAME", function()
  local service
  t.before_each(function() service = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures in a row", function()
    service:calls(FAILURES - 1, 503, ORDER):counts_as "failure"
    service:is "closed"
    service:call(503, ORDER)
    service:is("open", "consecutive_failures"):stays_open_for(5000)
  end)

  t.it("keeps what it refuses, and sends it when the dependency is back", function()
    service:dependency(503):calls_until("open", nil, ORDER)
    service:calls(3, nil, ORDER):is_answered_by("queue"):gives { status = 202 }
    service:has_queued(3)
    service:dependency(201):advance(10000)
    service:has_queued(0):is "closed"
    service:replays():counts_as "success"
  end)

  t.it("keeps what was never sent, and nothing else: that may have been carried out", function()
    service:call("timeout", ORDER):is_answered_by "nobody"
    service:call("transport", ORDER):is_answered_by "queue"
    service:has_queued(1)
  end)

  t.it("keeps it over a restart", function()
    service:calls_until("open", 503, ORDER)
    service:call(nil, ORDER)
    service:dependency(503):restart():has_queued(1)
    service:dependency(201):advance(10000):has_queued(0)
  end)
end)
]]

local FUNCTION_SPEC = [[
local t = require "neap.testing"

local function works() return "rows" end
local function fails() return nil, "connection reset" end
local function raises() error "a bug" end

t.describe("NAME", function()
  local service
  t.before_each(function() service = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures in a row, and asks again after five seconds", function()
    service:calls(FAILURES - 1, fails):counts_as "failure"
    service:is "closed"
    service:call(raises)
    service:is("open", "consecutive_failures"):stays_open_for(5000)
    service:cool_down():calls(2, works):is_a_probe()
    service:is "closed"
  end)

  t.it("gives a call up after TIMEOUT_MS ms", function()
    service:call(works, { takes_ms = TIMEOUT_MS }):counts_as "success"
    service:call(works, { takes_ms = TIMEOUT_MS + 1 }):counts_as("timeout"):takes(TIMEOUT_MS)
  end)

  t.it("serves what it had for the same arguments, up to a minute old", function()
    service:call(works, { args = { "a" } })
    service:call(fails, { args = { "a" } }):is_answered_by("last_good"):gives "rows"
    service:call(fails, { args = { "b" } }):is_answered_by("primary"):fails_with "connection reset"
  end)
end)
]]

local RARE_SPEC = [[
local t = require "neap.testing"

local HOUR_MS = 60 * 60 * 1000

t.describe("NAME", function()
  local service
  t.before_each(function() service = t.policy "NAME.lua" end)

  t.it("opens after FAILURES failures in a row, however far apart", function()
    service:calls(FAILURES, 503, { every_ms = 9 * HOUR_MS })
    service:is("open", "consecutive_failures"):stays_open_for(60000)
  end)

  t.it("is not opened while one in FAILURES succeeds", function()
    for _ = 1, 20 do
      service:calls(FAILURES - 1, 503)
      service:call(200)
    end
    service:is "closed"
  end)

  t.it("closes after one good probe", function()
    service:calls_until("open", 503)
    service:advance(HOUR_MS):call(200):is_a_probe()
    service:is "closed"
  end)
end)
]]

---@type neap.cmd.Kind[]
kinds.list = {
  {
    name = "http", is = "an HTTP service", timeout_ms = 3000, failures = 5, next = SERVE,
    spec = HTTP_SPEC, policy = [[
--- NAME: which service this is, and what an outage of it means.
---
---   opens after   FAILURES failures in a row, or half of at least 20 calls within 10 s
---   meanwhile     the last good answer, up to a minute old; else the error as it is
return {
  name = "NAME",

  window     = { kind = "time", length_ms = 10000 },
  trip       = { consecutive_failures = FAILURES, failure_rate = 0.5, minimum_calls = 20 },
  open       = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2 },
  timeout_ms = TIMEOUT_MS,

  -- Failures: 5xx, 429, timeouts, no connection.  Other 4xx are the caller's, and do not count.
  classify = classify.http,

  fallback = {
    fallback.last_good { max_age_ms = 60 * 1000 },
  },
}
]],
  },
  {
    name = "grpc", is = "a gRPC service", timeout_ms = 1000, failures = 5, next = SERVE,
    spec = GRPC_SPEC, policy = [[
--- NAME: which service this is, and what an outage of it means.
---
---   opens after   FAILURES failures in a row, or four in ten of at least 20 calls within 10 s
---   meanwhile     UNAVAILABLE, which callers know
return {
  name = "NAME",

  window     = { kind = "time", length_ms = 10000 },
  trip       = { consecutive_failures = FAILURES, failure_rate = 0.4, minimum_calls = 20 },
  open       = { cooldown_ms = 3000, backoff = 2, max_cooldown_ms = 30000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2 },
  timeout_ms = TIMEOUT_MS,

  -- NOT_FOUND, INVALID_ARGUMENT and the like are what the caller asked for, and do not count.
  classify = classify.grpc,

  fallback_on = { "refused" },
  fallback = {
    fallback.fail { status = 503, kind = "UNAVAILABLE" },
  },
}
]],
  },
  {
    name = "flags", is = "a feature flag provider (OFREP): fails open", timeout_ms = 50,
    failures = 5, next = SERVE, spec = FLAGS_SPEC, policy = [[
--- NAME: feature flags, by OFREP.  An outage of them is none of the application's: it fails open.
---
---   opens after   FAILURES failures within 2 s, or FAILURES in a row
---   meanwhile     the flag's last value for the same context, then its reviewed default
local defaults = { -- what each flag is when nobody knows: to be reviewed
  ["new-checkout"] = { value = false, reason = "DEFAULT", key = "new-checkout" },
}

local function flag_of(call)
  return call.request.target:match "^/ofrep/v1/evaluate/flags/([^/?]+)"
end

return {
  name = "NAME",

  window     = { kind = "time", length_ms = 2000 },
  trip       = { failures = FAILURES, consecutive_failures = FAILURES },
  open       = { cooldown_ms = 2000, backoff = 2, max_cooldown_ms = 30000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2 },
  timeout_ms = TIMEOUT_MS,

  classify = classify.ofrep, -- FLAG_NOT_FOUND and the like are the caller's, and do not count

  fallback = {
    fallback.last_good {
      max_age_ms = 10 * 60 * 1000,
      key = function(call)
        local request = call.request
        local who = request.headers.authorization or ""
        return digest(request.target .. "\n" .. who .. "\n" .. (request.body or ""))
      end,
    },
    fallback.default(defaults, { by = flag_of }),
  },
}
]],
  },
  {
    name = "queue", is = "something to be done, now or later: kept, and sent when it can be",
    timeout_ms = 3000, failures = 5,
    next = SERVE .. " --state-dir DIRECTORY", spec = QUEUE_SPEC, policy = [[
--- NAME: what must be done, but not now: orders, mails, events.
---
---   opens after   FAILURES failures in a row
---   meanwhile     202 and an id: the call is on the disk, and made when the breaker closes.  It
---                 may be made twice: its Idempotency-Key tells
return {
  name = "NAME",

  window     = { kind = "time", length_ms = 10000 },
  trip       = { consecutive_failures = FAILURES },
  open       = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2 },
  timeout_ms = TIMEOUT_MS,

  classify = classify.http,

  -- Only what was never sent: a call that failed may have been carried out.
  fallback = {
    fallback.queue("NAME", { max_entries = 10000, max_age_ms = 24 * 60 * 60 * 1000 }),
  },
}
]],
  },
  {
    name = "function", is = "a function of a Lua program, such as a query", timeout_ms = 1000,
    failures = 5, next = "lua5.4 -e 'local guard = require(\"neap\").guard \"PATH\"'",
    spec = FUNCTION_SPEC, policy = [[
--- NAME: what is called, and what an outage of it means.
---
---   opens after   FAILURES failures in a row: errors that are returned or raised, timeouts
---   meanwhile     what it had for the same arguments, up to a minute old; else the error as it is
return {
  name = "NAME",

  window     = { kind = "time", length_ms = 10000 },
  trip       = { consecutive_failures = FAILURES },
  open       = { cooldown_ms = 5000, backoff = 2, max_cooldown_ms = 60000, jitter = 0.2 },
  half_open  = { probes = 3, successes = 2 },
  timeout_ms = TIMEOUT_MS,

  fallback = {
    fallback.last_good { max_age_ms = 60 * 1000 },
  },
}
]],
  },
  {
    name = "rare", is = "something that is called a few times an hour", timeout_ms = 10000,
    failures = 3, next = SERVE, spec = RARE_SPEC, policy = [[
--- NAME: called a few times an hour.  A share of so few calls means nothing.
---
---   opens after   FAILURES failures in a row, however far apart
---   meanwhile     the error as it is
return {
  name = "NAME",

  window     = { kind = "count", calls = 20 },
  trip       = { consecutive_failures = FAILURES },
  open       = { cooldown_ms = 60000, backoff = 2, max_cooldown_ms = 15 * 60 * 1000, jitter = 0.1 },
  half_open  = { probes = 1, successes = 1 },
  timeout_ms = TIMEOUT_MS,
}
]],
  },
}

---@return string[]
function kinds.names()
  local names = {}
  for i, kind in ipairs(kinds.list) do names[i] = kind.name end
  return names
end

---@param name string
---@return neap.cmd.Kind|nil
function kinds.of(name)
  for _, kind in ipairs(kinds.list) do
    if kind.name == name then return kind end
  end
end

return kinds
