--- Running a policy's fallback chain: who answers when the dependency can't.
--
--   refused, timeout, failure  -->  stage 1  -->  stage 2  --> ...  -->  nobody: as it was
--                                     |             |
--                                  answered      answered
--
-- The first stage that answers wins.  One that has nothing to say declines; one that raises, or
-- takes longer than its timeout_ms, is passed over like one that declined, and counted.  By then
-- the call's own outcome has been recorded: nothing here reaches the breaker, and nothing a stage
-- answers is ever kept as a good answer.
--
-- The last good answers belong to the guard and outlive its policy's generations: the first
-- last_good stage of the new one goes on with what the first of the old one had.  So do queues, and
-- the counts of who waits for a stage.

local caps = require "neap.caps"
local core = require "neap.core"
local durables = require "neap.durables"
local refusal = require "neap.refusal"
local retry = require "neap.retry"
local revalidate = require "neap.revalidate"
local store = require "neap.store"

local unpack = table.unpack or _G.unpack

local fallback = {}

---@alias neap.Cause.fallback
---| "refused" # the breaker said no
---| "timeout" # the call took too long
---| "failure" # it failed
---| "neutral" # only if the policy's fallback_on says so; so does the next
---| "success"
---| "revalidate" # nothing went wrong: the policy has revalidate_after_ms, and there was an answer

---@class (exact) neap.Info
---@field source "last_good"|"default"|"fail"|"guard"|"queue"|"function"
---@field age_ms? integer of a last good answer
---@field guard? string of an answer of another guard: its name
---@field id? string of a queued call; the value, too
---@field durable? fun(done: function) of a queued call, for a host that waits later: done(true)
---  when it is on the disk
---@field within_ms? integer ... for so long; then it takes the call back:
---@field cancel? fun()
---@field cause neap.Cause.fallback why a fallback was asked; "refused": error.kind says more
---@field error? any what the caller would have got without a fallback, unchanged: the value that
---  the function raised, or its second result; of a refusal, and of a call that was given up, a
---  neap.Refusal

local MOST_GUARDS = 4 -- in a row, each the fallback of the one before
local RESULTS = { "answered", "declined", "failed", "timeout", "full" }
local UNBOUNDED = math.huge

---@class neap.Chain
---@field private kept neap.Store[] of the newest generation's last_good stages, in order
---@field private stores table<table, neap.Store> by stage, those of older generations too
---@field private counts table<string, table<string, integer>> by source and result
---@field private sources string[]
---@field private find fun(name: string): table|nil a guard
---@field private fault fun(where: string, message: string)
---@field private host neap.Host
---@field private caps table<string, neap.Cap> by stage
---@field private refreshes neap.Refreshes
---@field private revalidates table<table, neap.Stage> by generation
---@field durables neap.Durables
local Chain = {}
Chain.__index = Chain

-- ---- Keys of good answers ---------------------------------------------------------------------

local NO_ARGUMENTS = "\0"

local FEW = 4

--- What an argument adds to a key; nil if it can't be told from others.  In brackets: a tail call
--- of a library function is another thing that LuaJIT does not compile.  Lua 5.1's format takes a
--- text to end at a zero byte.
local function part_of(value)
  local kind = type(value)
  if kind == "string" then return (("s%d:"):format(#value)) .. value end
  if kind == "number" then return (("n%.17g;"):format(value)) end
  if kind == "boolean" then return value and "botrue;" or "bofalse;" end
  return kind == "nil" and "ninil;" or nil
end

--- The parts of so many values; a loop only for many: of one that goes around once or twice LuaJIT
--- compiles nothing, nor then of what is around it.
local function parts_of(n, value, ...)
  if n == 0 then return "" end
  if n > FEW then
    local parts, values = {}, { value, ... }
    for i = 1, n do
      parts[i] = part_of(values[i])
      if not parts[i] then return nil end
    end
    return table.concat(parts)
  end
  local part = part_of(value)
  if n == 1 or not part then return part end
  local rest = parts_of(n - 1, ...)
  return rest and part .. rest
end

local function composed(key, ...)
  local parts = parts_of(select("#", ...), ...)
  return parts and NO_ARGUMENTS .. #key .. ":" .. key .. parts
end

--- One argument that is a key by itself, and can't be mistaken for a composed one.
local function is_key(value)
  local kind = type(value)
  return kind == "string" and value:byte() ~= 0 or kind == "number" and value == value
end

--- What tells one call's answer from another's: its arguments, and the breaker it went through.
--- Nil if they can't be told apart: then nothing is kept, and a stage needs a key function.
local function key_of_arguments(line, ...)
  if line.is_default then
    local n, only = select("#", ...), (...)
    if n == 0 then return NO_ARGUMENTS end
    if n == 1 and is_key(only) then return only end
  end
  return composed(line.key, ...)
end

--- What stands before a text that tells answers apart: their key, without a table.  Nothing follows
--- the text, so it needs no length.
---@param line table
---@return string
function fallback.id_prefix(line)
  local prefix = line.id_prefix
  if not prefix then
    prefix = NO_ARGUMENTS .. #line.key .. ":" .. line.key .. "i"
    line.id_prefix = prefix
  end
  return prefix
end

local function key_of_id(line, id)
  return type(id) == "string" and fallback.id_prefix(line) .. id or composed(line.key, id)
end

local function key_of(self, stage, line, call)
  if stage.key then
    local key, fault = stage.key(call)
    if fault then self.fault("fallback.last_good key", fault) end
    return key
  end
  local id = call.id
  if id ~= nil then return key_of_id(line, id) end
  local args = call.args
  if not args then return key_of_arguments(line) end
  return key_of_arguments(line, unpack(args, 1, args.n or #args))
end

-- ---- Stages -----------------------------------------------------------------------------------

--- Each answers "answered", value, info, err | "declined" | "failed", message.
local ask = {}

function ask.last_good(self, stage, line, call, _, now_ms)
  local key = key_of(self, stage, line, call)
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
ask["function"] = ask_function
ask.default = ask_function

function ask.fail(_, stage, line, call)
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
local function limit_of(stage, by_ms, now_ms)
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
function ask.guard(self, stage, line, call, trail, now_ms, by_ms)
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
      local limit_ms = limit_of(stage, by_ms, now_ms)
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
function ask.queue(self, stage, line, call, _, now_ms, _, asked)
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
    answer = { ask[stage.kind](self, stage, line, call, trail, now_ms, by_ms, asked) }
  end)
  asked.is_over = true
  if not in_time then return "timeout" end
  return answer[1], answer[2], answer[3], answer[4]
end

--- Only a guard's calls and a queue's disk are waited for, so only they are given up; all else is
--- found out to be late when it ends.
local function ask_in_time(self, stage, line, call, trail, now_ms, limit_ms, by_ms)
  if limit_ms <= 0 then return "timeout" end
  if self.host.run and limit_ms < UNBOUNDED and WAITS[stage.kind] then
    return ask_by_host(self, stage, line, call, trail, now_ms, math.ceil(limit_ms), by_ms)
  end
  return ask[stage.kind](self, stage, line, call, trail, now_ms, by_ms)
end

-- ---- The chain --------------------------------------------------------------------------------

local function measure(durations, ms)
  local bounds, i = durations.bounds_ms, 1
  while bounds[i] and ms > bounds[i] do i = i + 1 end
  durations.counts[i] = durations.counts[i] + 1
  durations.sum_ms = durations.sum_ms + ms
end

local function count(self, stage, result, took_ms)
  local counts = self.counts[stage.kind]
  counts[result] = counts[result] + 1
  if result == "answered" then measure(self.durations, took_ms) end
end

--- Runs none of the policy's functions: it can't fail, be late or look at the call.
local function is_plain(stage) return stage.kind == "last_good" and not stage.key end

local function ask_plain(self, stage, line, call)
  local result, value, info = ask.last_good(self, stage, line, call, nil, line.native:now())
  count(self, stage, result, 0)
  return result == "answered", value, nil, info
end

local function cap_of(self, stage)
  local name = stage.kind .. " " .. (stage.guard or stage.queue)
  self.caps[name] = self.caps[name] or caps.new()
  return self.caps[name]
end

--- The place at a stage is free again: now, or when a queued call is on the disk.
local function leave(cap, ticket, info)
  local durable = info and info.durable
  if not durable then return cap:leave(ticket) end
  function info.durable(done)
    durable(function(...)
      cap:leave(ticket)
      done(...)
    end)
  end
end

local function ask_stage(self, stage, line, call, trail, by_ms)
  local began_ms = line.native:now()
  local cap = stage.concurrent and cap_of(self, stage)
  local ticket = cap and cap:enter(stage.concurrent, began_ms, stage.timeout_ms)
  if cap and not ticket then
    count(self, stage, "full")
    return false
  end
  local limit_ms = limit_of(stage, by_ms, began_ms)
  local ok, result, value, info, err =
    pcall(ask_in_time, self, stage, line, call, trail, began_ms, limit_ms, by_ms)
  local took_ms = math.max(0, line.native:now() - began_ms)
  if not ok then result, value = "failed", result end
  if cap then leave(cap, ticket, ok and info) end
  if result == "gone" then return nil end
  if result == "failed" then self.fault("fallback." .. stage.kind, value) end
  if result == "answered" and took_ms > limit_ms then result = "timeout" end
  count(self, stage, result, took_ms)
  return result == "answered", value, err, info
end

--- Asks the stages.  `call` is the call as the policy's functions see it.
---@param line table of the guard: the breaker it is about
---@param policy table the generation whose stages are asked
---@param call table
---@param trail table|nil the guards that are being asked already, innermost first
---@param describe function|nil completes `call` before a stage that may look at it
---@param from integer|nil the first stage to be asked; nil: 1
---@param by_ms number|nil the call's deadline, an instant; nil: none
---@return boolean|nil answered nil: nobody waits for an answer any more
---@return any value, any err, neap.Info|nil info
function Chain:run(line, policy, call, trail, describe, from, by_ms)
  for i = from or 1, #policy.stages do
    local stage = policy.stages[i]
    local one = is_plain(stage) and ask_plain or ask_stage
    if one == ask_stage and describe then
      describe(line, call)
      describe = nil
    end
    local answered, value, err, info = one(self, stage, line, call, trail, by_ms)
    if answered then return true, value, err, info end
    if answered == nil then return nil end
  end
  return false
end

--- Asks the first stage as `run` does, with nothing made for it: a function of what `run` finds by
--- call.id, with its prefix, and of the time.  It answers the value and its age; nil, nil: there is
--- none, and `run` goes on from 2.
---@param policy table of the newest generation
---@return (fun(key: string, now_ms: integer): any, integer|nil)|nil nil: the stage needs more
function Chain:first_good(policy)
  local stage = policy.stages[1]
  if not stage or not is_plain(stage) then return nil end
  local kept, max_age_ms = self.stores[stage], stage.max_age_ms or UNBOUNDED
  local counts, durations = self.counts[stage.kind], self.durations.counts
  return function(key, now_ms)
    local value, age_ms = kept:get(key, now_ms, max_age_ms)
    if not age_ms then
      counts.declined = counts.declined + 1
      return nil, nil
    end
    counts.answered, durations[1] = counts.answered + 1, durations[1] + 1 -- it takes no time
    return value, age_ms
  end
end

local function keep(self, stage, line, value, bytes, call, ...)
  local key
  if call or stage.key then
    call = call or {
      result = value, key = line.key, ended_by = "answer", args = { n = select("#", ...), ... },
    }
    key = key_of(self, stage, line, call)
  else
    key = key_of_arguments(line, ...)
  end
  if key ~= nil then self.stores[stage]:put(key, value, line.native:now(), bytes) end
end

--- Keeps a good answer for the last_good stages; never one of the chain.
---@param bytes integer|nil that the value takes; nil: as store.size says
---@param call table|nil as the policy's functions see it; nil: made of the arguments if needed
function Chain:remember(line, value, bytes, call, ...)
  if value == nil then return end
  local stages = self.keeping
  if stages[1] then keep(self, stages[1], line, value, bytes, call, ...) end
  for i = 2, #stages do keep(self, stages[i], line, value, bytes, call, ...) end
end

--- The dependency has said that what was kept of such a call is still so.
---@param call table as the policy's functions see it
---@param fits fun(value: any): boolean whether that is the value meant
function Chain:renew(line, call, fits)
  for _, stage in ipairs(self.keeping) do
    local key = key_of(self, stage, line, call)
    if key ~= nil then self.stores[stage]:renew(key, line.native:now(), fits) end
  end
end

--- A last good answer before anybody is asked, if the policy revalidates behind its callers' backs.
---@param policy table
---@param call table as the policy's functions see it
---@return any value
---@return number|nil age_ms nil: there is none, and the dependency is to be asked
---@return neap.Refresh|nil due if it is to be refreshed: refreshed(due) when that has ended
function Chain:kept_now(line, policy, call)
  local stage = self.revalidates[policy]
  local key = stage and key_of(self, stage, line, call)
  if key == nil then return nil, nil, nil end
  local now_ms = line.native:now()
  local value, age_ms = self.stores[stage]:get(key, now_ms, stage.max_age_ms or UNBOUNDED)
  if not age_ms then return nil, nil, nil end
  count(self, stage, "answered", 0)
  local is_due = age_ms > stage.revalidate_after_ms
  return value, age_ms, is_due and self.refreshes:begin(key, now_ms, policy.timeout_ms) or nil
end

--- A refresh has ended, however that was.
---@param due neap.Refresh
function Chain:refreshed(due)
  self.refreshes:done(due)
end

--- The same for a Lua program: what kept_now has, refreshed by f(...) in the background.
---@param policy table
---@param f function that would be called, with the arguments after it
---@return any value, neap.Info|nil info nil: there is none, and f is to be called
function Chain:at_once(line, policy, f, ...)
  if not self.revalidates[policy] then return nil, nil end
  local args = { n = select("#", ...), ... }
  local value, age_ms, due = self:kept_now(line, policy, { key = line.key, args = args })
  if not age_ms then return nil, nil end
  if due ~= nil then revalidate.start(self.refreshes, line, due, f, args) end
  return value, { source = "last_good", age_ms = age_ms, cause = "revalidate" }
end

local NO_REFRESH = "fallback.last_good: revalidate_after_ms has no effect: this host can't make a "
  .. "call behind its caller's back"

local function adopt_revalidation(self, policy)
  local stage = revalidate.stage(policy)
  if not stage then return end
  if self.host.spawn and self.host.outlives then
    self.revalidates[policy] = stage
  else
    self.warn("revalidate", NO_REFRESH)
  end
end

--- Does the policy have answers before anybody is asked?
---@param policy table
---@return boolean
function Chain:is_at_once(policy)
  return self.revalidates[policy] ~= nil
end

--- Puts a generation's stages to work.
---@param policy table
---@param now_ms number
function Chain:adopt(policy, now_ms)
  local n = 0
  for _, stage in ipairs(policy.stages) do
    if not self.counts[stage.kind] then
      local counts = {}
      for _, result in ipairs(RESULTS) do counts[result] = 0 end
      self.counts[stage.kind] = counts
      self.sources[#self.sources + 1] = stage.kind
    end
    if stage.kind == "last_good" then
      n = n + 1
      local entries, bytes = stage.max_entries or UNBOUNDED, stage.max_bytes or UNBOUNDED
      local kept = self.kept[n] or store.new(entries, bytes)
      kept:limit(entries, bytes, stage.max_entry_bytes)
      self.kept[n], self.keeping[n], self.stores[stage] = kept, stage, kept
    end
  end
  for i = n + 1, #self.kept do self.kept[i], self.keeping[i] = nil, nil end
  adopt_revalidation(self, policy)
  self.durables:adopt(policy.stages, self.stores, now_ms)
end

--- Counts by source and result.
---@return { source: string, result: string, count: integer }[]
function Chain:rows()
  local rows = {}
  for _, source in ipairs(self.sources) do
    for _, result in ipairs(RESULTS) do
      rows[#rows + 1] = { source = source, result = result, count = self.counts[source][result] }
    end
  end
  return rows
end

--- What the last_good stages keep, in their order.
---@return { entries: integer, bytes: integer, max_entries?: integer, evicted: integer }[]
function Chain:stored()
  local rows = {}
  for i, kept in ipairs(self.kept) do
    rows[i] = {
      entries = kept.count, bytes = kept.bytes, evicted = kept.evicted,
      max_entries = kept.max_entries < UNBOUNDED and kept.max_entries or nil,
    }
  end
  return rows
end

--- How long stages took that answered.
---@return { counts: integer[], bounds_ms: integer[], sum_ms: number }
function Chain:took()
  local counts = {}
  for i, count_of in ipairs(self.durations.counts) do counts[i] = count_of end
  return { counts = counts, bounds_ms = self.durations.bounds_ms, sum_ms = self.durations.sum_ms }
end

--- Does the chain answer for that?
---@param policy table
---@param cause neap.Cause.fallback
---@return boolean
function fallback.applies(policy, cause)
  return policy.stages[1] ~= nil and policy.fallback_on[cause] == true
end

--- What of a call is put into a queue, where the host does not say otherwise: what its function was
--- given.
local function question_of(call)
  return { args = call.args or { n = 0 } }
end

---@param options { find: function, fault: function, warn: function, host: neap.Host,
---  state_dir: string|nil, replay: function|nil }
---@return neap.Chain
function fallback.chain(options)
  local counts, host = {}, options.host
  for i = 1, #core.duration_bounds_ms + 1 do counts[i] = 0 end
  return setmetatable({
    find = options.find, fault = options.fault, warn = options.warn, host = host,
    kept = {}, keeping = {}, stores = setmetatable({}, { __mode = "k" }), counts = {}, sources = {},
    durations = { counts = counts, bounds_ms = core.duration_bounds_ms, sum_ms = 0 },
    caps = {}, refreshes = revalidate.new(), revalidates = setmetatable({}, { __mode = "k" }),
    question = host.question or question_of,
    durables = durables.new {
      state_dir = options.state_dir, host = host, warn = options.warn, replay = options.replay,
      pack = host.pack, unpack = host.unpack,
    },
  }, Chain)
end

return fallback
