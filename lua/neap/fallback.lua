--- Running a policy's fallback chain: who answers when the dependency can't.
--
--   refused, timeout, failure  -->  stage 1  -->  stage 2  --> ...  -->  nobody: as it was
--                                     |             |
--                                  answered      answered
--
-- The first stage that answers wins.  One that has nothing to say declines; one that raises, or
-- takes longer than its timeout_ms, is passed over like one that declined, and counted.  By then
-- the call's own outcome has been recorded: nothing here reaches the breaker, and nothing a stage
-- answers is ever kept as a good answer.  How each is asked: neap/ask.lua.
--
-- The last good answers belong to the guard and outlive its policy's generations: the first
-- last_good stage of the new one goes on with what the first of the old one had.  So do queues, and
-- the counts of who waits for a stage.

local ask = require "neap.ask"
local caps = require "neap.caps"
local core = require "neap.core"
local durables = require "neap.durables"
local kept_key = require "neap.kept_key"
local revalidate = require "neap.revalidate"
local store = require "neap.store"

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

local RESULTS = { "answered", "declined", "failed", "timeout", "full" }
local UNBOUNDED = math.huge

local ask_in_time, limit_of = ask.in_time, ask.limit_of
local key_of, key_of_arguments = kept_key.of, kept_key.of_arguments

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
    key = key_of(stage, line, call, self.fault)
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
    local key = key_of(stage, line, call, self.fault)
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
  local key = stage and key_of(stage, line, call, self.fault)
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
