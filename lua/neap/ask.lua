--- How each kind of stage of a fallback chain is asked; neap/fallback.lua asks one after the other.
--
--   "answered", value, info, err
--   "declined", "full"
--   "failed", message
--   "gone"                        nobody waits for an answer any more

local kept_key = require "neap.kept_key"
local refusal = require "neap.refusal"
local retry = require "neap.retry"

local unpack = table.unpack or _G.unpack

local MOST_GUARDS = 4 -- in a row, each the fallback of the one before
local UNBOUNDED = math.huge

local ask = {}

local kinds = {}

function kinds.last_good(self, stage, line, call, _, now_ms)
  local key = kept_key.of(stage, line, call, self.fault)
  if key == nil then return "declined" end
  local value, age_ms = self.stores[stage]:get(key, now_ms, stage.max_age_ms or UNBOUNDED)
  if age_ms == nil then return "declined" end
  return "answered", value, { source = "last_good", age_ms = age_ms }
end

local function ask_function(_, stage, _, call)
  local value, fault = stage.run(call)
  if fault then return "failed", fault end
  if value == nil then return "declined" end
  return "answered", value, { source = stage.kind }
end
kinds["function"] = ask_function
kinds.default = ask_function

function kinds.fail(_, stage, line, call)
  return "answered", nil, { source = "fail" }, refusal.new {
    kind = stage.error_kind or call.refused or call.cause,
    policy = line.guard.name,
    key = line.key,
    status = stage.status,
    retry_after_ms = stage.retry_after_ms or call.retry_after_ms,
    cause = call.error,
  }
end

local function is_in(trail, guard)
  while trail do
    if trail.guard == guard then return true end
    trail = trail.parent
  end
  return false
end

--- A call that was never sent can't have been carried out.
local function was_sent(call)
  return call.cause ~= "refused" and call.phase ~= "connect"
end

local WAITS = { guard = true, queue = true }

--- How long a stage may take: its own timeout, and where it waits for something, what is left of
--- the call's deadline.  What takes no time answers after that, too.
function ask.limit_of(stage, by_ms, now_ms)
  local limit_ms = stage.timeout_ms or UNBOUNDED
  if not by_ms or not WAITS[stage.kind] then return limit_ms end
  return math.min(limit_ms, by_ms - now_ms)
end

--- Has the other guard's dependency asked where it is the program that makes the calls, behind that
--- guard's breaker.  Nil: nobody was asked, or nothing came of it.  "gone": nobody waits any more.
local function ask_elsewhere(self, stage, line, other, call, by_ms)
  local may_be_sent = stage.sent or not was_sent(call) or retry.is_idempotent(call.request)
  if not may_be_sent then return nil end
  local answer, message = self.host.elsewhere(other, call, by_ms)
  if message == "gone" then return "gone" end
  if answer ~= nil then return "answered", answer, { source = "guard", guard = stage.guard } end
  return by_ms and line.native:now() >= by_ms and "timeout" or nil
end

--- The other guard calls what it was given to serve with, behind its own breaker; or, if it has
--- nothing of the kind, or nothing came of it elsewhere, asks its own chain.
function kinds.guard(self, stage, line, call, trail, now_ms, by_ms)
  local other = self.find(stage.guard)
  if not other then return "failed", ("there is no guard %s"):format(tostring(stage.guard)) end
  local depth = trail and trail.depth or 0
  if other == line.guard or is_in(trail, other) or depth >= MOST_GUARDS then return "declined" end
  local here = { guard = line.guard, parent = trail, depth = depth + 1 }
  local value, err, info
  if other.serve then
    local args = call.args or { n = 0 }
    local frame = { generation = other.policy, trail = here, by_ms = by_ms }
    value, err, info = other.line.call_in(frame, other.serve,
      unpack(args, 1, args.n or #args))
    if not value and err ~= nil then return "declined" end
  else
    if self.host.elsewhere then
      local limit_ms = ask.limit_of(stage, by_ms, now_ms)
      by_ms = limit_ms < UNBOUNDED and now_ms + limit_ms or nil
      local result, answer, of_guard = ask_elsewhere(self, stage, line, other, call, by_ms)
      if result then return result, answer, of_guard end
    end
    local answered
    answered, value, err, info =
      other.chain:run(other.line, other.policy, call, here, nil, nil, by_ms)
    if answered == nil then return "gone" end
    if not answered or err ~= nil then return "declined" end
  end
  info = info or {}
  return "answered", value, {
    source = "guard", guard = stage.guard, age_ms = info.age_ms, id = info.id,
    durable = info.durable, within_ms = info.within_ms, cancel = info.cancel,
  }
end

--- What is on the disk when its caller is told so: now, after a wait, or (info.durable) when the
--- host likes to know.
local function make_durable(self, queue, entry, now_ms, info, timeout_ms)
  local function durable(done) queue:durable(entry, now_ms, done) end
  if self.host.waits_later then
    info.durable, info.within_ms = durable, timeout_ms
    function info.cancel() queue:cancel(entry) end
    return true
  end
  local ok, message = false, nil
  if self.host.wait then ok, message = self.host.wait(durable) end
  if ok == false then return queue:commit(entry, now_ms) end
  return ok, message
end

--- The call is kept, to be made when the dependency is back.
function kinds.queue(self, stage, line, call, _, now_ms, _, asked)
  local queue = self.durables.queues[stage.queue]
  if not queue or was_sent(call) and not stage.sent then return "declined" end
  local question, fault = self.question(call)
  if not question then return fault and "failed" or "declined", fault end
  question.key = line.key
  local entry, message = queue:push(question, now_ms)
  if not entry then return message == "full" and "full" or "failed", message end
  local info = { source = "queue", id = entry.id }
  local ok
  ok, message = make_durable(self, queue, entry, now_ms, info, stage.timeout_ms)
  if not ok then return "failed", message end
  if asked and asked.is_over then queue:cancel(entry) end
  return "answered", entry.id, info
end

--- A function of its own: LuaJIT compiles none in which another is made.
local function ask_by_host(self, stage, line, call, trail, now_ms, limit_ms, by_ms)
  local answer
  local asked = { is_over = false }
  local in_time = self.host.run(limit_ms, function()
    answer = { kinds[stage.kind](self, stage, line, call, trail, now_ms, by_ms, asked) }
  end)
  asked.is_over = true
  if not in_time then return "timeout" end
  return answer[1], answer[2], answer[3], answer[4]
end

--- Asks a stage, for so long.
-- Only a guard's calls and a queue's disk are waited for, so only they are given up; all else is
--- found out to be late when it ends.
function ask.in_time(self, stage, line, call, trail, now_ms, limit_ms, by_ms)
  if limit_ms <= 0 then return "timeout" end
  if self.host.run and limit_ms < UNBOUNDED and WAITS[stage.kind] then
    return ask_by_host(self, stage, line, call, trail, now_ms, math.ceil(limit_ms), by_ms)
  end
  return kinds[stage.kind](self, stage, line, call, trail, now_ms, by_ms)
end

ask.last_good = kinds.last_good

return ask
