--- One key of a guard at work: everything about a call but the plain success, which C keeps to
-- itself (lua/src/call.c).
--
--   refuse    the breaker said no           -->  the fallback chain, or nil and the refusal
--   settle    the call has ended            -->  classify, report, tell; then chain, or results
--   report    the same in two steps
--   moved     the breaker changed state     -->  events
--
-- Of a policy that has more layers around a call (lua/neap/layers.lua), refuse and settle end one
-- attempt; the rest of them, turned_away and conclude, comes when there is no other.
--
-- The order is always: the outcome is recorded, then the policy's own trip and half-open rules are
-- asked, then events are told, then fallbacks run.  No code of anybody's runs in between.

local core = require "neap.core"
local fallback = require "neap.fallback"
local layers = require "neap.layers"
local recording = require "neap.recording"
local refusal = require "neap.refusal"
local retry = require "neap.retry"
local shadow = require "neap.shadow"
local check_fields = require("neap.reported").check

local NAME_MOST = 103 -- NEAP_NAME_MAX
local FEW = 16 -- neutral calls, before their share is looked at

local OUTCOMES = recording.OUTCOMES
local classify, record = recording.classify, recording.record
local enqueue, watch_neutral = recording.enqueue, recording.watch_neutral

local line = { enqueue = enqueue }

local hooks = {}

function hooks.moved(self, moved)
  enqueue(self, moved)
  self.guard.events:deliver()
end

--- A host has told the caller of a refusal itself: for the candidate, if there is one.
---@param self table line
---@param reason string
function line.refused(self, reason)
  local candidate = self.guard.candidate
  if candidate then shadow.refused(self, candidate, reason) end
end

local function refused(self, reason, retry_after_ms)
  line.refused(self, reason)
  return refusal.new {
    kind = reason, policy = self.guard.name, key = self.key,
    retry_after_ms = retry_after_ms > 0 and retry_after_ms or nil,
  }
end

-- ---- Hooks of call ----------------------------------------------------------------------------

local function is_read_only() error("call is read-only", 2) end

local ARGS = {} -- names the arguments among a call's fields, where the policy can't reach them

local function copied(args)
  local copy = { n = args.n or #args }
  for i = 1, copy.n do copy[i] = args[i] end
  return copy
end

--- Of the arguments, whoever asks gets a copy of his own: what one function of the policy's does to
--- it the next does not see, nor the function of a guard that is a fallback.
local lends_args = {
  __index = function(fields, name)
    if name == "args" and fields[ARGS] then return copied(fields[ARGS]) end
  end,
}

--- A call as the policy's functions see it: like the one that plain successes are classified in,
--- they can't change it.
local function sealed(fields)
  local call = {}
  setmetatable(fields, lends_args)
  setmetatable(call, { __index = fields, __newindex = is_read_only, __metatable = false })
  return call
end

--- The same for a call as a program describes it; its table is not used again.
---@param call table
---@return table
function line.sealed(call)
  if type(call.args) == "table" then call[ARGS], call.args = call.args, nil end
  return sealed(call)
end

local function describe(self, ended, a, b, duration_ms, _, ...)
  local fields = {
    key = self.key, duration_ms = duration_ms, ended_by = "answer",
    [ARGS] = { n = select("#", ...), ... },
  }
  if ended == "raised" then
    fields.raised, fields.error = true, a
  else
    fields.result = a
    if not a then fields.error = b end
    if ended ~= "answer" then fields.ended_by = "timeout" end
  end
  return sealed(fields), fields
end

--- Nobody else tells the caller what it was that a fallback stands for.
local function told_why(info, cause, err)
  info.cause, info.error = cause, err
  return info
end

--- Nothing was tried: the breaker or the bulkhead said no, or the deadline had come before.
function hooks.turned_away(self, frame, err, _, ...)
  local guard = self.guard
  local cause = err.kind == "deadline" and "timeout" or "refused"
  if fallback.applies(guard.policy, cause) then
    local call = sealed {
      key = self.key, cause = cause, refused = cause == "refused" and err.kind or nil, error = err,
      ended_by = cause, retry_after_ms = err.retry_after_ms, [ARGS] = { n = select("#", ...), ... },
    }
    local answered, value, stage_err, info =
      guard.chain:run(self, guard.policy, call, frame.trail, nil, nil, frame.by_ms)
    if answered then return value, stage_err, told_why(info, cause, err) end
  end
  return nil, err
end

function hooks.refuse(self, reason, retry_after_ms, moved, frame, ...)
  enqueue(self, moved)
  self.guard.events:deliver()
  local err = refused(self, reason, retry_after_ms)
  if frame.is_attempt then
    frame.refused = err
    return
  end
  return hooks.turned_away(self, frame, err, ...)
end

function hooks.refused(self, reason, retry_after_ms, moved)
  enqueue(self, moved)
  self.guard.events:deliver()
  return nil, refused(self, reason, retry_after_ms)
end

local function given_up(self, frame)
  return refusal.new {
    kind = frame.is_cut and "deadline" or "timeout", policy = self.guard.name, key = self.key,
    timeout_ms = frame.is_cut and frame.allowed_ms or self.guard.policy.timeout_ms,
  }
end

--- What the caller gets when no stage answers: what the function gave.
local function originals(self, frame, ended, a, b)
  if ended == "raised" then error(a, 0) end
  if ended == "abandoned" then return nil, given_up(self, frame) end
  return a, b
end

--- Info of an answer that a stage gave in place of the function's.  What it raised may be a mistake
--- in the program, which looks like an outage then: it goes to the log, too.
local function stood_in(self, frame, info, cause, ended, err)
  if ended == "raised" then self.guard:hid(err) end
  return told_why(info, cause, ended == "abandoned" and given_up(self, frame) or err)
end

local LATE = { timeout = true, abandoned = true }

--- A call that the caller's own deadline has ended says nothing about the dependency by its
--- outcome, but the caller needs an answer as after any timeout.
local function cause_of(frame, ended, outcome)
  if frame.is_cut and LATE[ended] and outcome == "neutral" then return "timeout" end
  return outcome
end

--- The outcome is recorded, and there is no other attempt: a fallback's answer, or the function's.
---@param last table how it ended: ended, a, b, outcome, reason, retry_after_ms, call, fields
function hooks.conclude(self, frame, last, ...)
  local guard, ended, call, fields = self.guard, last.ended, last.call, last.fields
  if last.outcome == "success" and ended == "answer" then hooks.remember(self, last.a, ...) end
  local cause = cause_of(frame, ended, last.outcome)
  if fallback.applies(guard.policy, cause) then
    if not call then call, fields = describe(self, ended, last.a, last.b, last.duration_ms, ...) end
    fields.cause, fields.reason, fields.retry_after_ms = cause, last.reason, last.retry_after_ms
    local answered, value, err, info =
      guard.chain:run(self, guard.policy, call, frame.trail, nil, nil, frame.by_ms)
    if answered then return value, err, stood_in(self, frame, info, cause, ended, fields.error) end
  end
  return originals(self, frame, ended, last.a, last.b)
end

--- How it ended, if that was seen only now: nobody could give it up.
local function ended_late(frame, ended, duration_ms)
  local timeout_ms = frame.timeout_ms or frame.generation and frame.generation.timeout_ms or 0
  return ended == "answer" and timeout_ms > 0 and duration_ms > timeout_ms and "timeout" or ended
end

function hooks.settle(self, frame, permit, ended, a, b, outcome, reason, retry_after_ms, fault, ...)
  local guard = self.guard
  local generation = frame.generation or frame
  local duration_ms, _, _, kind = self.native:about(permit)
  local call, fields
  if not OUTCOMES[outcome] then
    ended = ended_late(frame, ended, duration_ms)
    call, fields = describe(self, ended, a, b, duration_ms, ...)
    if frame.is_callers and frame.is_cut and LATE[ended] then fields.ended_by = "caller" end
    outcome, reason, retry_after_ms = classify(guard, generation, call)
  else
    if fault then guard:fault("classify", fault) end
    if generation.warned[1] then guard:warned(generation) end
  end
  record(self, permit, kind, outcome, duration_ms, retry_after_ms, call)
  local last = frame.is_attempt and frame or {}
  last.ended, last.a, last.b, last.call, last.fields = ended, a, b, call, fields
  last.outcome, last.reason, last.retry_after_ms = outcome, reason, retry_after_ms
  last.duration_ms = duration_ms
  if not frame.is_attempt then return hooks.conclude(self, frame, last, ...) end
  frame.made = frame.made + 1
end

local around = layers.of(hooks)

--- What is around a call, after the policy has said whose it is.
function hooks.layered(self, frame, by_ms, f, ...)
  local guard, policy = self.guard, frame.generation or frame
  if not self.is_default or not policy.key then return around(self, frame, by_ms, f, ...) end
  self = guard:line_for(policy, sealed { [ARGS] = { n = select("#", ...), ... } })
  guard.last_line = self
  if by_ms or guard.line_options.is_layered then return around(self, frame, by_ms, f, ...) end
  if frame ~= policy then return self.attempt(frame, f, ...) end
  if self.is_default then return self.attempt({ generation = policy }, f, ...) end
  return self:call(f, ...)
end

function hooks.remember(self, value, _, ...)
  self.guard.chain:remember(self, value, nil, nil, ...)
end

-- ---- Hooks of the two-step form ---------------------------------------------------------------

--- By a key; or by a call, as far as it is known: then the policy says whose it is, if it does.
local function line_asked(self, key)
  local guard = self.guard
  if key ~= nil and type(key) ~= "table" then return guard:line_of(key) end
  if not self.is_default or not guard.policy.key then return self end
  local call = {}
  for field, value in next, key or call do call[field] = value end
  return guard:line_for(guard.policy, line.sealed(call))
end

function hooks.acquire(self, key)
  local of_key = line_asked(self, key)
  local permit, reason, retry_after_ms, moved = of_key.native:take(of_key)
  if not permit then return hooks.refused(of_key, reason, retry_after_ms, moved) end
  if moved then hooks.moved(of_key, moved) end
  return permit
end

--- A copy, so that what was left out can be added, whatever the given table does when changed.
local function filled(self, given, duration_ms)
  local call = {}
  for field, value in next, given do call[field] = value end
  if call.duration_ms == nil then call.duration_ms = duration_ms end
  call.ended_by = call.ended_by or "answer"
  call.key = call.key or self.key
  return call.args and line.sealed(call) or call
end

local function check_call(given)
  if type(given) == "table" or OUTCOMES[given] or given == "abandoned" then return end
  local shown = type(given) == "string" and ("%q"):format(given) or type(given)
  error("what the call came to must be a table, or \"success\", \"failure\", \"timeout\", "
    .. "\"neutral\" or \"abandoned\", got " .. shown, 4)
end

local IS_PERMIT = { number = true, userdata = true }
local NO_PERMIT = "bad argument #1 to 'report' (permit must be what acquire gave, got %s)"

function hooks.report(self, permit, given)
  check_call(given)
  if not IS_PERMIT[type(permit)] then error(NO_PERMIT:format(type(permit)), 3) end
  local duration_ms, generation, owner, kind = self.native:about(permit)
  if owner and owner.guard ~= self.guard then error("the permit is another guard's", 3) end
  if type(given) == "table" then check_fields(given) end
  local of_permit = owner or self
  if kind == "used" then return "neutral", "used" end
  if type(given) == "string" then
    return given, record(of_permit, permit, kind, given, duration_ms)
  end
  local guard = self.guard
  if not owner then generation = guard:generation(generation) end
  local call = filled(of_permit, given, duration_ms)
  local outcome, reason, retry_after_ms = classify(guard, generation, call)
  return outcome,
    record(of_permit, permit, kind, outcome, call.duration_ms, retry_after_ms, call), reason
end

--- As guard:report, for a host's own call table and a permit that is a plain number: the table is
--- not copied, so it may make some of its fields only when they are asked for.
---@param self table line
---@param permit integer
---@param call table complete, but for duration_ms
---@return neap.Outcome, neap.Reported, string|nil reason
function line.report(self, permit, call)
  local guard = self.guard
  local duration_ms, number, _, kind = self.native:about(permit)
  if kind == "used" then return "neutral", "used" end
  if call.duration_ms == nil then call.duration_ms = duration_ms end
  local outcome, reason, retry_after_ms = classify(guard, guard:generation(number), call)
  return outcome,
    record(self, permit, kind, outcome, call.duration_ms, retry_after_ms, call), reason
end

--- The first half of it, for a host that records the outcome itself: what the policy generation of
--- that number says of a call.
---@param self table line
---@param number integer
---@param call table complete
---@return neap.Outcome, string|nil reason, integer|nil retry_after_ms
function line.classify(self, number, call)
  local guard = self.guard
  local outcome, reason, retry_after_ms = classify(guard, guard:generation(number), call)
  if outcome == "neutral" then watch_neutral(self) end
  return outcome, reason, retry_after_ms
end

--- A call as a program describes it, with what it left out.
function line.filled(self, given) return filled(self, given, 0) end

--- Of a call in steps: is there to be another attempt, and after how long?  One that is granted
--- will be acquired, too, and is no call more.
---@param self table line
---@param call table what the last attempt came to, complete
---@param made integer
---@param by_ms number|nil
---@return integer|nil wait_ms
function line.retry(self, call, made, by_ms)
  local policy = self.guard.policy
  if not policy.retry then return nil end
  local begun, granted = self.native:begun(), self.granted or 0
  self.guard.retries:called(policy.retry, math.max(0, begun - granted))
  self.granted = math.max(0, granted - begun)
  local outcome, _, retry_after_ms = classify(self.guard, policy, call)
  local left_ms = by_ms and by_ms - self.native:now() or math.huge
  local wait_ms = retry.next(self, policy, call, outcome, retry_after_ms, made, left_ms)
  if wait_ms then self.granted = self.granted + 1 end
  return wait_ms
end

--- Counts calls that hang: they are slow before they end.  The events are the caller's to deliver.
---@param self table line
---@return integer|nil wait_ms when to look again; nil: no rule asks for slow calls
function line.sweep(self)
  local overdue, moved, wait_ms = self.native:sweep()
  if not overdue then return nil end
  enqueue(self, moved)
  local policy = self.guard.policy
  if overdue > 0 and not moved and policy.trip then recording.ask_trip(self, policy) end
  return wait_ms
end

--- Whether a text may be a key: a breaker's name has room for it.
---@param name string the policy's
---@param key string
function line.is_key(name, key)
  return #name + 1 + #key <= NAME_MOST and not key:find("%z")
end

-- ---- Making one -------------------------------------------------------------------------------

--- In place of a policy's classify: has each call described and settled, for a candidate to see.
local function says_nothing() end

--- What a policy's calls need of the C core: see lua/src/line.c.
---@param policy table
---@param host neap.Host
---@param candidate neap.Candidate|nil
---@return table
function line.options(policy, host, candidate)
  local remembers = false
  for _, stage in ipairs(policy.stages) do remembers = remembers or stage.kind == "last_good" end
  return {
    classify = candidate and says_nothing or policy.has_classify and policy.classify or nil,
    run = host.run,
    is_layered = (policy.retry or policy.bulkhead or policy.deadline_ms) ~= nil,
    concurrent = policy.bulkhead and policy.bulkhead.concurrent or nil,
    has_trip = policy.trip ~= nil or candidate ~= nil,
    keeps = policy.stages[1] ~= nil or policy.retry ~= nil,
    remembers = remembers,
  }
end

--- guard:deadline(), of a policy with keys: of the line that the last call went to.
local function keyed_deadline(of)
  local last = of.last_line or of.line
  return last.deadline(last.public)
end

--- Gives the line the guard's newest policy.  Takes no memory.
---@param self table line
function line.adopt(self)
  local guard = self.guard
  local options = self.is_default and guard.default_options or guard.line_options
  self.native:adopt(guard.policy, guard.policy.rules, guard.number, options)
  if not guard.candidate then self.shadow = nil end
  if not self.is_default then return end
  self.public.deadline = guard.policy.key and keyed_deadline or self.deadline
end

--- As call, when it is another guard's fallback.
local function new_call_in(self, attempt)
  return function(frame, f, ...)
    local guard = self.guard
    local options = self.is_default and guard.default_options or guard.line_options
    if frame.by_ms or options.is_layered then
      return hooks.layered(self, frame, frame.by_ms, f, ...)
    end
    return attempt(frame, f, ...)
  end
end

local function is_callable(f)
  if type(f) == "function" then return true end
  local meta = getmetatable(f)
  return type(meta) == "table" and meta.__call ~= nil
end

--- As call, for a caller who has a deadline.
local function new_call_by(self, public)
  return function(of, by_ms, f, ...)
    if of ~= public then
      error("call_by is its guard's method: write guard:call_by(...), with a colon", 2)
    elseif type(by_ms) ~= "number" or by_ms ~= by_ms then
      error("bad argument #1 to 'call_by' (the deadline must be an instant on the guard's clock, "
        .. "got " .. (type(by_ms) == "number" and "nan" or type(by_ms)) .. ")", 2)
    elseif not is_callable(f) then
      error("bad argument #2 to 'call_by' (what to call must be a function, got " .. type(f) .. ")",
        2)
    end
    return hooks.layered(self, self.guard.policy, by_ms, f, ...)
  end
end

--- A line of a guard.  Its methods are called on `public`: the guard itself, or the line.
---@param guard table
---@param key string
---@param breaker userdata
---@param public table|nil
---@return table
function line.new(guard, key, breaker, public)
  local self = {
    guard = guard, key = key, breaker = breaker, is_default = public ~= nil,
    neutrals = 0, look_at = FEW,
  }
  self.native = core.line(breaker, guard.clock)
  public = public or self
  local call, call_in
  public.acquire, public.report, public.deadline, call, call_in =
    self.native:methods(public, self, hooks)
  if _VERSION == "Lua 5.1" then
    call, call_in = require("neap.call").new(self, call, call_in, hooks)
  end
  public.call, public.call_by = call, new_call_by(self, public)
  self.public, self.deadline = public, public.deadline
  self.attempt, self.call_in = call_in, new_call_in(self, call_in)
  line.adopt(self)
  return self
end

return line
