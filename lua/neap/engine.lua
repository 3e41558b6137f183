--- The Lua half of the engine (lua/engine): policies, guards and hot reload, in one state on one
-- loop.
-- C enters by the functions of this module, each in one protected call.

local core = require "neap.core"

local answers = require "neap.answer"
local classify = require "neap.classify"
local fallback = require "neap.fallback"
local guard = require "neap.guard"
local kept_key = require "neap.kept_key"
local line = require "neap.line"
local policy_files = require "neap.policy_files"
local reload = require "neap.reload"
local tend = require "neap.tend"
local watch = require "neap.watch"

local engine = {
  guards = {}, ---@type table<string, table> by name
  started_ms = 0, -- on the engine's clock
}

local CAUSES = { "refused", "timeout", "failure", "neutral", "success" } -- as neap_fallback_cause
local SAME_MS = 250 -- an answer is not remembered again for so long, or a tenth of its life
local REFUSALS = {
  open = "open", probes_busy = "probes_busy", forced_open = "forced_open", ramp = "ramp",
}

local native -- what C gave: attach, renew, forget, notify, log, now
local handles = {} -- of guards, for C
local paths = {} -- of guards' files, by name
local pending, refreshing, replaying = {}, {}, {} -- what C is to say more about, by number
local asking = {} -- chains that wait for another guard's dependency, by number
local current -- the chain that runs now, if it may wait
local served = {} -- whom the program asks for a guard: what neap_guard_serve() was given
local last_number = 0

local function next_number()
  last_number = last_number + 1
  return last_number
end

-- ---- Events -----------------------------------------------------------------------------------

local listeners = {}

--- Has f told of every event, after the program was; it must not raise.
---@param f fun(event: table) kind, policy, text, hash; of "transition" and "shadow" neap.Event's
function engine.listen(f) listeners[#listeners + 1] = f end

local function notify(event)
  native.notify(event)
  for _, f in ipairs(listeners) do f(event) end
end

local function on_transition(event)
  event.kind, event.text = "transition", tostring(event)
  notify(event)
end

local function on_shadow(event)
  event.kind, event.text = "shadow", tostring(event)
  notify(event)
end

local function on_reload(event)
  local of_policy = engine.guards[event.policy]
  if event.kind == "reload_failed" and of_policy then of_policy:adopt_failed(event.text) end
  event.at_ms = native.now()
  notify(event)
end

-- ---- The engine as a host ---------------------------------------------------------------------

local NOTHING_TO_DO = { GET = true, HEAD = true, OPTIONS = true, TRACE = true }

local host = { name = "engine", outlives = true, waits_later = false, owns_panel = true }

function host.spawn(f, ...)
  coroutine.wrap(f)(...)
end

function host.later(ms, f)
  local timer = assert(require "luv".new_timer())
  timer:unref()
  timer:start(math.ceil(ms), 0, function()
    timer:close()
    f()
  end)
end

function host.sync(descriptor, done)
  local uv = require "luv"
  local request, message = uv.fs_fdatasync(descriptor, function(err)
    if err then done(nil, err) else done(true) end
  end)
  if not request then done(nil, message) end
end

local FIELDS = { "headers", "body", "request", "args", "raw", "id" } -- as of engine_call.c

--- Has the program ask another guard's dependency: the answer, or nil, and "gone" if nobody waits
--- for it any more.  Meanwhile the chain stands still, and what C knows of the call is forgotten.
function host.elsewhere(other, call, by_ms)
  local whom = served[other]
  if not current or not whom then return nil end
  for _, field in ipairs(FIELDS) do
    local _ = call[field] -- made when it is looked at
  end
  return coroutine.yield(whom, by_ms)
end

local function has_body(headers)
  for i = 1, #headers, 2 do
    local name = headers[i]:lower()
    if name == "transfer-encoding" then return true end
    if name == "content-length" and tonumber(headers[i + 1]) ~= 0 then return true end
  end
  return false
end

--- A request as it is put into a queue: one that asks for something to be done.
function host.question(call)
  local request = call.raw
  if not request or NOTHING_TO_DO[request.method] then return nil end
  if not request.body and has_body(request.headers) then
    return nil, "the request's body was not kept whole"
  end
  return { request = request }
end

-- ---- Guards -----------------------------------------------------------------------------------

local function renew(name)
  local of_guard = engine.guards[name]
  local of_policy = of_guard.policy
  local flags = {
    classifies = of_policy.has_classify,
    asks = of_policy.trip ~= nil or of_policy.decide ~= nil or of_guard.candidate ~= nil,
    shadows = of_guard.candidate ~= nil, maps = of_policy.key ~= nil,
    same_ms = SAME_MS,
    deadline_ms = of_policy.deadline_ms, retries = of_policy.retry ~= nil,
    wait_ms = of_policy.bulkhead and of_policy.bulkhead.wait_ms,
    first_good = of_guard.chain:first_good(of_policy),
    revalidates = of_guard.chain:is_at_once(of_policy),
  }
  for _, stage in ipairs(of_policy.stages) do
    if stage.kind == "last_good" then
      flags.remembers = true
      flags.has_keys = flags.has_keys or stage.key ~= nil
      local life_ms = stage.revalidate_after_ms or stage.max_age_ms or math.huge
      local tenth_ms = life_ms / 10
      if tenth_ms < flags.same_ms then flags.same_ms = math.floor(tenth_ms) end
    end
  end
  local causes = 0
  for i, cause in ipairs(CAUSES) do
    if fallback.applies(of_policy, cause) then causes = causes + 2 ^ (i - 1) end
  end
  native.renew(handles[name], of_policy.rules, of_guard.number, of_policy.timeout_ms or 0, flags,
    math.floor(causes))
end

--- What the shipped classifier takes for a success, whatever else is in the call: such reports need
--- no Lua.
local function plain_successes()
  local list = {}
  for status = 200, 399 do
    local outcome = classify.default { status = status, ended_by = "answer" }
    if outcome == "success" then list[#list + 1] = status end
  end
  return list
end

local function make(of_policy)
  local ok, made = pcall(guard.new, of_policy, {
    panel = engine.panel,
    clock = native.clock,
    guards = engine.guards,
    on_event = on_transition,
    on_shadow = on_shadow,
    log = native.log,
    host = host,
    state_dir = native.state_dir,
  })
  if not ok then return nil, tostring(made) end
  if engine.tending then engine.tending:add(made) end
  return made
end

--- Puts a generation to work: the first makes the guard, the others replace its policy.
local function adopt(of_policy, path)
  local name = of_policy.name
  if paths[name] and paths[name] ~= path then
    return nil, path .. ": " .. policy_files.taken(name, paths[name])
  end
  if engine.guards[name] then
    engine.guards[name]:adopt(of_policy)
  else
    local made, err = make(of_policy)
    if not made then return nil, err end
    engine.guards[name], paths[name] = made, path
    handles[name] = native.attach(name, made)
    made.rows.is_still, made.rows.forget = true, function(key) native.forget(handles[name], key) end
  end
  renew(name)
  return true
end

--- The line of a key, and what its identities begin with; without may_make nil if there is none
--- yet.
function engine.line(of_guard, key, may_make, is_nested)
  if not may_make and not of_guard.lines[key] then return nil end
  of_guard.rows.is_still = is_nested
  local of_line = of_guard:line_of(key)
  of_guard.rows.is_still = true
  return of_line, kept_key.id_prefix(of_line)
end

--- Whose breaker a call is, if the policy says so.
function engine.key(of_guard, call, within)
  local of_policy = of_guard.policy
  if not of_policy.key then return nil end
  local key, fault = of_policy.key(call, within)
  if fault then of_guard:fault("key", fault) end
  if of_policy.warned[1] then of_guard:warned(of_policy) end
  return key
end

--- Tells what acquire in C has moved.
function engine.moved(of_line, moved)
  line.enqueue(of_line, moved)
  of_line.guard.events:deliver()
end

--- A call was refused in C, and the policy has a shadow.
function engine.refused(of_line, reason)
  line.refused(of_line, reason)
end

--- What the policy generation of that number says of a call, for C to record.
function engine.classify(of_line, generation, call)
  call.key = of_line.key
  return line.classify(of_line, generation, call)
end

--- As guard:report; `call` makes some of its fields only when asked.
function engine.report(of_line, permit, call)
  call.key = of_line.key
  return line.report(of_line, permit, call)
end

--- Whether a call may be made again that failed as it was reported; `call` as for report.
---@return integer|nil wait_ms
function engine.retry(of_line, call, made, left_ms)
  call.key = of_line.key
  return line.retry(of_line, call, made, left_ms and of_line.native:now() + left_ms)
end

--- What a retry came to.
function engine.retried(of_guard, outcome)
  of_guard.retries:ended(outcome)
end

-- ---- Fallback ---------------------------------------------------------------------------------

--- Adds what the breaker knows: why it refused, and when to ask again.  If it would not, the
--- program did, by its own limits.
local function consult(of_line, call)
  local rules, now_ms = of_line.guard.policy.rules, of_line.native:now()
  local next_ms = of_line.breaker:next_ms(rules, now_ms)
  if next_ms then call.retry_after_ms = next_ms - now_ms end
  if call.cause ~= "refused" then return end
  call.ended_by = "refused"
  local snapshot = of_line.breaker:snapshot(rules, now_ms)
  local otherwise = snapshot.state ~= "closed" and "open" or snapshot.admitted < 1 and "ramp"
  call.refused = REFUSALS[of_line.breaker:peek(rules, now_ms)] or otherwise or "bulkhead"
  if call.refused == "forced_open" then -- a cooldown has no say in that
    call.retry_after_ms = snapshot.mode_left_ms > 0 and snapshot.mode_left_ms or nil
  end
end

--- 202: it will be done.
local function queued(info)
  local number
  if info.durable then
    number = next_number()
    pending[number] = info
  end
  return {
    status = 202, headers = { "Content-Type", "application/json" },
    body = ('{"id":"%s"}'):format(info.id), source = "queue", pending = number,
    within_ms = info.within_ms,
  }
end

--- Tells C when the queued call of that number is on the disk.
function engine.when_kept(number)
  local one = pending[number]
  if not one then return native.kept(number, false) end
  one.durable(function(ok)
    pending[number] = nil
    native.kept(number, ok == true)
  end)
end

--- Nobody waits for that any more: the call is taken back.
function engine.unkept(number)
  local one = pending[number]
  pending[number] = nil
  if one then one.cancel() end
end

--- What a chain has said, for C.
local function answer_of(of_guard, answered, value, err, info)
  if not answered then return nil end
  if info.id then return queued(info) end
  if value == nil then
    return {
      status = err.status or 503, headers = {}, source = info.source, kind = err.kind,
      retry_after_ms = err.retry_after_ms,
    }
  end
  if type(value) == "userdata" then return value, info.source, info.age_ms end
  local ok, answer = pcall(answers.of, value)
  if not ok then
    of_guard:fault("fallback." .. info.source, "its answer " .. tostring(answer))
    return nil
  end
  answer.source, answer.age_ms = info.source, info.age_ms
  return answer
end

--- Runs a chain until it ends, or has to wait for another guard's dependency.
local function go_on(one, ...)
  current, host.waits_later = one, true
  local results = table.pack(coroutine.resume(one.thread, ...))
  current = nil
  if coroutine.status(one.thread) == "dead" then
    if not results[1] then error(results[2], 0) end
    return answer_of(one.guard, table.unpack(results, 2, 5))
  end
  local number, whom, by_ms = next_number(), results[2], results[3]
  asking[number] = one
  return {
    elsewhere = whom, pending = number,
    within_ms = by_ms and math.max(1, math.ceil(by_ms - native.now())),
  }
end

local function has_guard(stages)
  for _, stage in ipairs(stages) do
    if stage.kind == "guard" then return true end
  end
  return false
end

--- Asks the chain, from that stage on: an answer as engine_answer.c reads it | one that it keeps,
--- its source and age | nil.
function engine.fallback(of_guard, of_line, cause, call, from, can_wait, left_ms)
  call.cause, call.key = cause, of_line.key
  local of_policy = of_guard.policy
  local by_ms = left_ms and of_line.native:now() + left_ms
  if can_wait and next(served) and has_guard(of_policy.stages) then
    local chain = of_guard.chain
    return go_on({ guard = of_guard, thread = coroutine.create(chain.run) }, chain, of_line,
      of_policy, call, nil, consult, from, by_ms)
  end
  host.waits_later = can_wait
  return answer_of(of_guard,
    of_guard.chain:run(of_line, of_policy, call, nil, consult, from, by_ms))
end

--- From now on the program asks that guard's dependency for others: as C calls it; nil: no more.
function engine.serve(of_guard, whom)
  served[of_guard] = whom
end

--- What came of asking it, for the chain of that number: as engine.fallback.
---@param answer userdata|nil
---@param message "gone"|nil
function engine.asked(number, answer, message)
  local one = asking[number]
  asking[number] = nil
  if one then return go_on(one, answer, message) end
end

--- A last good answer before anybody is asked: it, its age, and the number of a refresh that is due
--- or 0 | nil.
function engine.at_once(of_guard, of_line, call)
  call.key = of_line.key
  local value, age_ms, due = of_guard.chain:kept_now(of_line, of_guard.policy, call)
  if type(value) ~= "userdata" then return nil end
  if due == nil then return value, age_ms, 0 end
  local number = next_number()
  refreshing[number] = { chain = of_guard.chain, due = due }
  return value, age_ms, number
end

--- That refresh has ended.
function engine.refreshed(number)
  local one = refreshing[number]
  refreshing[number] = nil
  if one then one.chain:refreshed(one.due) end
end

-- ---- Queued calls -----------------------------------------------------------------------------

local function replay(of_guard, entry, done)
  local number = next_number()
  replaying[number] = done
  native.replay(handles[of_guard.name], entry.key, entry.id, entry.request, number)
end

--- What a queued call came to.
function engine.replayed(number, verdict, reason, wait_ms)
  local done = replaying[number]
  replaying[number] = nil
  if done then done(verdict, reason, wait_ms > 0 and wait_ms or nil, native.now()) end
end

--- Writes what is to be written, before the engine is closed.
function engine.close()
  if engine.tending then engine.tending:close() end
  for _, of_guard in pairs(engine.guards) do of_guard:close() end
end

-- ---- Good answers -----------------------------------------------------------------------------

--- Keeps a good answer for the last_good stages.
---@param answer userdata as only engine_answer.c reads it
---@param bytes integer that it takes
function engine.remember(of_guard, of_line, call, answer, bytes)
  call.key = of_line.key
  of_guard.chain:remember(of_line, answer, bytes, call)
end

--- The dependency has answered 304: a kept answer with that ETag is as good as new.
function engine.renew(of_guard, of_line, call, etag)
  call.key = of_line.key
  of_guard.chain:renew(of_line, call, function(value) return native.has_etag(value, etag) end)
end

-- ---- Operating --------------------------------------------------------------------------------

function engine.mode(of_guard, key, by, reason, mode, for_ms)
  return of_guard:mode(key, mode, { for_ms = for_ms, by = by, reason = reason })
end

function engine.reset(of_guard, key, by)
  return of_guard:reset(key, by)
end

function engine.reload()
  return engine.reloader:force()
end

-- ---- Opening ----------------------------------------------------------------------------------

--- True | nil, all that is wrong, one line each.
function engine.open(options)
  native = options
  host.pack, host.unpack = native.pack, native.unpack
  host.replay = native.replay and replay
  engine.tending = tend.start {}
  engine.panel = core.panel(options.max_breakers)
  engine.started_ms = options.now()
  native.successes(plain_successes())
  local reloader, errors = reload.open {
    paths = options.paths,
    params = options.params,
    adopt = adopt,
    now = core.clock_precise,
    on_event = on_reload,
  }
  if not reloader then return nil, table.concat(errors, "\n") end
  engine.reloader = reloader
  if options.is_watching then engine.watch = watch.start(reloader, { log = options.log }) end
  return true
end

return engine
