--- A call as a server's host makes it, in steps, each when it is due:
--
--   begin -> attempt -> acquire -> the dependency takes its time -> report -> retry? -> conclude
--              ^  |                                                            |
--              |  +-- full bulkhead: waits ------------------------------------+-- wait
--
-- What it is asked, what is kept of answers and what is queued is as in the sidecar.

local answers = require "neap.answer"
local refusal = require "neap.refusal"

local huge, min, max = math.huge, math.min, math.max
local unpack = table.unpack or _G.unpack

local exchange = {}

-- Answers to requests that differ in one of these are kept apart.
local TELLING = {
  "host", "authorization", "cookie", "x-api-key", "accept", "accept-encoding", "accept-language",
}
local WHOLE = { [200] = true, [203] = true, [204] = true, [300] = true, [301] = true, [308] = true }
local FAILED = { failure = true, timeout = true }

---@class neap.testing.Exchange
---@field bench neap.testing.Bench
---@field call neap.testing.Call
---@field script neap.testing.Script|nil nil: it ends when the spec says so
---@field request table|nil of a server
---@field args table what a Lua function is given; of a server, the request
---@field takes_ms number|nil of each attempt, unless its outcome says otherwise
---@field by_ms number the call's deadline
---@field is_callers boolean the deadline is the caller's
---@field is_apart boolean no caller waits for it: no retry, no fallback
---@field done fun(x: table)
---@field refresh fun(ended: function)|nil begins the same call behind the caller's back
---@field refusal neap.Refusal|nil
---@field given table|nil how the last attempt ended

-- ---- Answers ----------------------------------------------------------------------------------

local function words_of(value)
  local words = {}
  for word in (value or ""):gmatch("[^,;= \t]+") do words[word:lower()] = true end
  return words
end

local function is_anybodys(headers)
  headers = headers or {}
  local control = words_of(headers["cache-control"])
  if headers["set-cookie"] or control.private or control["no-store"] then return false end
  local is_telling = {}
  for _, name in ipairs(TELLING) do is_telling[name] = true end
  for word in pairs(words_of(headers.vary)) do
    if not is_telling[word] then return false end
  end
  return true
end

--- What tells this request's answer from others; nil: that is not to be said.
local function identity(request, headers)
  local is_safe = request.method == "GET" or request.method == "HEAD"
  if not is_safe or not is_anybodys(headers) then return nil end
  local parts = { request.method, request.target }
  for i, name in ipairs(TELLING) do
    parts[#parts + 1] = request.headers[name] and i - 1 .. request.headers[name]
  end
  return table.concat(parts, "\n")
end

local function answer_of(given)
  return { status = given.status or 200, headers = given.headers or {}, body = given.body or "" }
end

local function remember(x, given)
  local guard = x.bench.guard
  local call = { key = x.call.key, args = x.args, request = x.request }
  if not x.request then
    call.result = given.result
    return guard:remember(call, given.result)
  end
  if not WHOLE[given.status or 200] or x.request.headers.range then return end
  call.id = identity(x.request, given.headers)
  call.status, call.headers, call.body = given.status, given.headers, given.body
  guard:remember(call, answer_of(given))
end

--- What a stage answered, as a client of the sidecar gets it.
local function http_answer(value, info, err)
  if info.source == "queue" then
    return { status = 202, headers = {}, body = ('{"id":"%s"}'):format(value) }
  end
  if value == nil then return { status = err and err.status or 503, headers = {}, body = "" } end
  local answer, headers = answers.of(value), {}
  for i = 1, #answer.headers, 2 do headers[answer.headers[i]:lower()] = answer.headers[i + 1] end
  return { status = answer.status, headers = headers, body = answer.body }
end

-- ---- The end ----------------------------------------------------------------------------------

local function over(x)
  local call = x.call
  call.is_over, call.finish = true, nil
  call.took_ms = x.bench.world:elapsed() - call.at_ms
  x.done(x)
end

--- Nobody answers in place of the dependency.
local function as_it_is(x)
  local call, given = x.call, x.given
  if call.attempts == 0 or not given then
    call.source, call.error = "nobody", x.refusal
  elseif not x.request then
    call.source, call.value, call.error = "primary", given.result, given.error
  elseif given.ended_by and given.ended_by ~= "answer" then
    call.source, call.error = "nobody", { kind = given.ended_by }
  else
    call.source, call.value = "primary", answer_of(given)
  end
  return over(x)
end

local function ask_fallback(x, cause)
  local call, given = x.call, { key = x.call.key, args = x.args, request = x.request }
  if x.request then given.id = identity(x.request) end
  for name, value in pairs(x.given or {}) do given[name] = value end
  if call.attempts == 0 then
    given.ended_by, given.error = cause, x.refusal
    given.refused = cause == "refused" and x.refusal.kind or nil
    given.retry_after_ms = x.refusal.retry_after_ms
  end
  given.reason = call.reason
  local value, info, err = x.bench.guard:fallback(cause, given)
  if not info then return as_it_is(x) end
  call.source, call.age_ms, call.error = info.source, info.age_ms, err
  call.value = value
  if x.request then call.value = http_answer(value, info, err) end
  return over(x)
end

local function conclude(x)
  local call, given = x.call, x.given
  if call.attempts == 0 then
    call.refused = x.refusal.kind
    if x.is_apart then return as_it_is(x) end
    return ask_fallback(x, x.refusal.kind == "deadline" and "timeout" or "refused")
  end
  if call.outcome == "success" and (given.ended_by or "answer") == "answer" then
    remember(x, given)
  end
  if x.is_apart then return as_it_is(x) end
  local is_cut = x.is_cut and call.outcome == "neutral"
  return ask_fallback(x, is_cut and "timeout" or call.outcome)
end

-- ---- Attempts ---------------------------------------------------------------------------------

local attempt

--- A slot of a bulkhead is free: whose turn is it?
local function next_turn(bench)
  local waiter = table.remove(bench.waiters, 1)
  if waiter then bench.world:at(bench.clock:now(), waiter) end
end

--- Waits for a slot, if the policy says so.
local function wait_for_slot(x)
  local bench = x.bench
  local bulkhead, now_ms = bench.guard.policy.bulkhead, bench.clock:now()
  x.waits_until_ms = x.waits_until_ms or min(now_ms + bulkhead.wait_ms, x.by_ms)
  if now_ms >= x.waits_until_ms then return conclude(x) end
  local is_waiting = true
  local function turn()
    if not is_waiting then return next_turn(bench) end
    is_waiting = false
    attempt(x)
  end
  table.insert(bench.waiters, turn)
  bench.world:at(x.waits_until_ms, function()
    if not is_waiting then return end
    is_waiting = false
    conclude(x)
  end)
end

local function refused(x, err)
  x.refusal = err
  if err.kind == "bulkhead" and not x.is_apart then return wait_for_slot(x) end
  return conclude(x)
end

--- What the call came to, as guard:report takes it.
local function given_of(x, outcome, duration_ms)
  local given = { duration_ms = duration_ms, args = x.args, request = x.request }
  if outcome.f then
    local ok, a, b = x.bench.world:run(outcome.f, unpack(x.args, 1, x.args.n or #x.args))
    if not ok then
      given.raised, given.error = true, a
    else
      given.result, given.ended_by = a, "answer"
      if not a then given.error = b end
    end
    return given
  end
  for name, value in pairs(outcome.fields) do given[name] = value end
  return given
end

--- Is there to be another attempt?  After how long?
local function retry(x)
  local guard, call = x.bench.guard, x.call
  if call.attempts > 1 then guard.retries:ended(call.outcome) end
  if x.is_apart or not FAILED[call.outcome] then return nil end
  local given = { key = call.key }
  for name, value in pairs(x.given) do given[name] = value end
  return guard:retry(given, call.attempts, x.by_ms < huge and x.by_ms or nil)
end

local function ended(x, permit, outcome, began_ms)
  local bench, call = x.bench, x.call
  call.finish = nil
  x.given = given_of(x, outcome, bench.clock:now() - began_ms)
  local _
  call.outcome, _, call.reason = bench.guard:report(permit, x.given)
  table.insert(call.texts, outcome.text)
  next_turn(bench)
  local wait_ms = retry(x)
  if not wait_ms then return conclude(x) end
  table.insert(call.waits_ms, wait_ms)
  x.waits_until_ms = nil
  bench.world:at(bench.clock:now() + wait_ms, function() attempt(x) end)
end

local LATE = { fields = { ended_by = "timeout" }, text = "timeout" }
local LEFT = { fields = { ended_by = "caller" }, text = "the caller's deadline" }

--- The dependency is called; it ends when it is due.
local function call_it(x, permit, outcome, began_ms)
  local bench = x.bench
  local takes_ms = outcome.takes_ms or x.takes_ms
  if not takes_ms then takes_ms = outcome.is_endless and huge or 0 end
  local timeout_ms = bench.guard.policy.timeout_ms or 0
  local most_ms = timeout_ms > 0 and timeout_ms or huge
  x.is_cut = x.by_ms - began_ms < most_ms
  if x.is_cut then most_ms = x.by_ms - began_ms end
  if takes_ms > most_ms then
    takes_ms, outcome = most_ms, x.is_cut and x.is_callers and LEFT or LATE
  end
  if takes_ms == 0 then return ended(x, permit, outcome, began_ms) end
  if takes_ms == huge then return end
  bench.world:at(began_ms + takes_ms, function() ended(x, permit, outcome, began_ms) end)
end

function attempt(x)
  local bench, call = x.bench, x.call
  local now_ms = bench.clock:now()
  if x.by_ms - now_ms < 1 then
    if call.attempts > 0 then return conclude(x) end
    return refused(x, refusal.new { kind = "deadline", policy = bench.guard.name, key = call.key,
      timeout_ms = max(0, x.allowed_ms) })
  end
  local permit, err = bench.guard:acquire(call.key)
  if not permit then return refused(x, err) end
  call.attempts = call.attempts + 1
  if select(4, bench.guard.line.native:about(permit)) == "probe" then call.is_probe = true end
  if x.script then return call_it(x, permit, x.script.next(), now_ms) end
  call.finish = function(given)
    ended(x, permit, bench:read(given).next(), now_ms)
  end
end

-- ---- The beginning ----------------------------------------------------------------------------

--- A last good answer before anybody is asked, refreshed behind the caller's back.
local function is_answered_at_once(x)
  local guard, call = x.bench.guard, x.call
  if x.is_apart or not guard.chain:is_at_once(guard.policy) then return false end
  local line = guard:line_of(call.key)
  local id = x.request and identity(x.request) or nil
  local value, age_ms, due = guard.chain:kept_now(line, guard.policy,
    { key = call.key, id = id, args = x.args, request = x.request })
  if not age_ms then return false end
  call.value, call.age_ms, call.source = value, age_ms, "last_good"
  if due ~= nil then
    x.refresh(function() guard.chain:refreshed(due) end)
  end
  over(x)
  return true
end

--- Begins a call.
---@param x neap.testing.Exchange
function exchange.begin(x)
  local guard, call = x.bench.guard, x.call
  local now_ms, policy = x.bench.clock:now(), guard.policy
  call.key = call.key or guard:key { args = x.args, request = x.request }
  local own_ms, callers_ms = policy.deadline_ms or huge, x.deadline_ms or huge
  x.is_callers, x.allowed_ms = callers_ms < own_ms, min(own_ms, callers_ms)
  x.by_ms = now_ms + x.allowed_ms
  if not is_answered_at_once(x) then attempt(x) end
end

return exchange
