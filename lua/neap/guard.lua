--- A guard: a policy at work.
--
--   local flags = neap.guard "policies/flag_provider.lua"
--   local value, err, info = flags:call(fetch_flag, "new-checkout")
--
--   local permit, err = flags:acquire()                       -- the same in two steps
--   flags:report(permit, { status = 503, duration_ms = 12 })
--
--   guard_lines      a breaker per key
--   guard_operate    modes, reset, trip, snapshots, counts
--   guard_log        what it says, and how often
--
-- The breakers, their modes and the last good answers are the guard's.  The policy is one
-- reference, which adopt replaces: a call under way is classified by the policy that let it in.

local apart = require "neap.apart"
local bulkhead = require "neap.bulkhead"
local core = require "neap.core"
local event = require "neap.event"
local fallback = require "neap.fallback"
local guard_lines = require "neap.guard_lines"
local guard_log = require "neap.guard_log"
local guard_operate = require "neap.guard_operate"
local guard_options = require "neap.guard_options"
local line = require "neap.line"
local on_transition = require "neap.on_transition"
local plain = require "neap.hosts.plain"
local retry = require "neap.retry"
local rows = require "neap.rows"
local schema = require "neap.schema"

local guard = {}

local DEFAULT = guard_lines.DEFAULT
local MOST_KEYS = schema.by_key.max_keys.default
local TEND_MS = 1000 -- the longest time between two looks at what is due
local GENERATIONS = 256 -- numbers; as PERMIT_GENERATIONS in lua/src/binding.h
local KEPT_GENERATIONS = 8 -- older than the newest, for permits that are plain numbers

-- Guards by name, so that one can be another's fallback.
local known = setmetatable({}, { __mode = "v" })

---@class (exact) neap.GuardOptions
---@field params? table for the policy file
---@field panel? neap.core.Panel where the breakers live; without: in memory of the guard's own.
---  One that processes share goes by the system's clock
---@field max_keys? integer how many keys get a breaker of their own; without: the policy says
---@field clock? neap.Clock before the host's
---@field host? neap.Host neap.hosts.plain if not given
---@field on_event? fun(event: neap.Event)
---@field on_shadow? fun(event: neap.Event) is told what a shadow policy would have done; without:
---  the log is
---@field log? fun(level: neap.LogLevel, text: string) without: to stderr, from warnings on
---@field serve? function what this guard calls when it is another one's fallback
---@field state_dir? string a directory of this user's, 0700: for last good answers and queues that
---  outlive the process
---@field replay? fun(entry: neap.Queued): any, any makes a call again that was queued; answers as
---  what guard:call calls does
---@field guards? table<string, neap.Guard>|fun(name: string): neap.Guard|nil where fallback stages
---  find other guards; without: all there are, by name

---@alias neap.LogLevel "info"|"warning"|"error"

---@alias neap.Report fun(self, permit: neap.Permit, call: neap.Call|neap.Outcome): neap.Outcome,
---  neap.Reported, string|nil what it came to, whether that counted, the policy's reason

---@class neap.Guard
---@field name string the policy's
---@field policy neap.Policy the current generation
---@field events neap.EventQueue
---@field host neap.Host
---@field serve? function
---@field call fun(self, f: function, ...: any): any, any, neap.Info|nil
---@field call_by fun(self, by_ms: number, f: function, ...: any): any, any, neap.Info|nil as call;
---  all of it ends by that instant on the guard's clock
---@field acquire fun(self, key?: string|table): neap.Permit|nil, neap.Refusal|nil by a key; or a
---  call as far as it is known, for the policy's key function
---@field report neap.Report
---@field deadline fun(self): integer|nil by when the call that began last should have ended: to be
---  asked first thing in it
local Guard = { __name = "neap.guard" }
Guard.__index = Guard

for _, methods in ipairs { guard_log.methods, guard_lines.methods, guard_operate } do
  for name, method in next, methods do Guard[name] = method end
end

function Guard:__tostring()
  return ("neap.guard (%s, %s)"):format(self.name, self.policy.hash)
end

-- ---- Fallback ---------------------------------------------------------------------------------

--- For hosts that work in steps: asks the fallback chain, if it is for that cause.
---@param cause neap.Cause.fallback
---@param call? table as for report, and: args, the arguments of the call; or id, a text that tells
---  its answer from others'
---@return any value nil: nobody answers, unless there is an info; then err says what to answer
---@return neap.Info|nil info
---@return neap.Refusal|nil err
function Guard:fallback(cause, call)
  if not fallback.applies(self.policy, cause) then return nil end
  local given = guard_lines.copied(call or {})
  local of_key = guard_lines.of_call(self, given)
  given.cause, given.key = cause, given.key or of_key.key
  local answered, value, err, info = self.chain:run(of_key, self.policy, line.sealed(given))
  if not answered then return nil end
  info.cause, info.error = cause, given.error
  return value, info, err
end

--- For hosts that work in steps: keeps a good answer for the last_good stages, if there are any.
---@param call table as for fallback
---@param value any what to answer with; never what a fallback answered
function Guard:remember(call, value)
  self.chain:remember(guard_lines.of_call(self, call), value, nil, call)
end

-- ---- What is in files -------------------------------------------------------------------------

--- Does what is due beside calls: writes last good answers to their file, makes queued calls again,
--- and what sweep does.  To be called now and then, from any timer; with luv neap.tend does.
---@return number wait_ms when to call it again: 1000 at most
function Guard:tend()
  local wait_ms = self.chain.durables:tend(self.line.native:now()) or TEND_MS
  return math.min(TEND_MS, wait_ms, self:sweep() or TEND_MS)
end

--- Counts the calls that hang, under rules that ask for slow calls; calls that come do that, too.
--- And wakes who waits for a slot of a bulkhead that came back without a report.
---@return number|nil wait_ms when to call it again; nil: no rule asks
function Guard:sweep()
  local soonest_ms
  for _, of_key in pairs(self.lines) do
    local wait_ms = line.sweep(of_key)
    bulkhead.freed(of_key)
    if wait_ms and wait_ms < (soonest_ms or math.huge) then soonest_ms = wait_ms end
  end
  self.events:deliver()
  if self.script:run() then soonest_ms = 1 end
  return soonest_ms
end

--- Tells the policy's on_transition what waits, writes last good answers to their files, waits for
--- the disk, and lets go of all files: before the program ends.  The guard goes on without them.
function Guard:close()
  self.script:finish()
  self.chain.durables:close(self.line.native:now())
end

local VERDICTS = { success = "done", neutral = "own" }

--- Makes a queued call again, and says what it came to.
local function replay(self, f, entry, done)
  apart.spawn(self.host, function()
    local of_key = self:line_of(entry.key)
    local ok, outcome, value, reason = pcall(apart.attempt, of_key, f, { entry, n = 1 })
    local wait_ms = ok and outcome == "refused" and value.retry_after_ms or nil
    if not ok then
      self:warn("replay", "a queued call can't be made again: " .. guard_log.said(outcome))
    end
    done(ok and VERDICTS[outcome] or "later", reason, wait_ms, self.line.native:now())
  end)
end

local function replayer(self, options)
  local of_host = self.host.replay
  if of_host then return function(entry, done) of_host(self, entry, done) end end
  if not options.replay then return nil end
  return function(entry, done) replay(self, options.replay, entry, done) end
end

--- For hosts that work in steps: may a call be made again that has just been reported, and after
--- how long? If so it is taken from the budget; each further attempt has to be acquired like the
--- first.
---@param call table as for report, and: request, what was asked, with its method
---@param made integer so many attempts there were
---@param by_ms? number the call's deadline, an instant
---@return integer|nil wait_ms nil: it may not
function Guard:retry(call, made, by_ms)
  if type(call) ~= "table" then error("what the call came to must be a table, got "
    .. type(call), 2) end
  if type(made) ~= "number" then error("how many attempts were made must be a number, got "
    .. type(made), 2) end
  local of_key = guard_lines.of_call(self, call)
  return (line.retry(of_key, line.filled(of_key, call), made, by_ms))
end

-- ---- Generations ------------------------------------------------------------------------------

--- The policy that has that number, or else the newest.
function Guard:generation(number)
  local found = self.generations[number]
  return found or self.policy
end

local function check_policy(policy)
  if type(policy) == "table" and type(policy.name) == "string" and type(policy.rules) == "userdata"
    and type(policy.stages) == "table" and type(policy.fallback_on) == "table" then
    return policy
  end
  error("policy must be a file's path, or what neap.policy.load gave, got " .. type(policy), 3)
end

local function clock_now(self)
  local of_clock = self.clock
  if type(of_clock) == "function" then return of_clock() end
  return of_clock == "precise" and core.clock_precise() or core.clock_coarse()
end

--- The candidate that is to judge from then on: one that has a mistake leaves the last good one.
local function candidate_of(self, policy)
  local candidate = policy.candidate
  if candidate and not candidate.policy then candidate = self.candidate end
  if candidate and not self.shadows then
    self.shadows = event.queue(guard_log.of_handlers(self))
    self.shadows:on(self.on_shadow or function(told)
      core.protect(self.log, "info", tostring(told))
    end)
  end
  return candidate
end

--- All memory is asked for before anything changes.
local function put_to_work(self, policy)
  local number = (self.number + 1) % GENERATIONS
  local candidate = candidate_of(self, policy)
  local options = line.options(policy, self.host, candidate)
  self.chain:adopt(policy, clock_now(self))
  options.is_layered = options.is_layered or self.chain:is_at_once(policy)
  local default_options = options
  if policy.key then
    default_options = guard_lines.copied(options)
    default_options.is_layered, default_options.is_keyed = true, true
  end
  self.generations[number] = policy
  self.generations[(number - KEPT_GENERATIONS - 1) % GENERATIONS] = nil
  self.number, self.policy, self.line_options = number, policy, options
  self.default_options = default_options
  self.max_keys = self.option_max_keys or policy.max_keys or MOST_KEYS
  if self.rows then
    self.rows:adopt(policy.rules)
    local is_own = self.panel and not self.host.owns_panel
    -- The next one is larger; who is in this one stays there.
    if is_own and self.panel:capacity() <= self.max_keys then self.panel = nil end
  end
  self.candidate = candidate
  for _, of_key in pairs(self.lines) do line.adopt(of_key) end
  for _, of_key in pairs(self.lines) do bulkhead.freed(of_key) end -- there may be more slots
  for _, warning in ipairs(policy.warnings or {}) do
    core.protect(self.log, "warning", ("%s: %s"):format(self.name, guard_log.said(warning)))
  end
end

--- Replaces the policy by another generation of it.  State, probes, modes, last good answers and
--- calls under way stay.
---@param policy neap.Policy
function Guard:adopt(policy)
  check_policy(policy)
  if policy.name ~= self.name then
    local message = "policy must be another generation of %s, got %s"
    error(message:format(self.name, policy.name), 2)
  end
  put_to_work(self, policy)
  self.script:adopt()
  self.reloads, self.last_error = self.reloads + 1, nil
end

--- A new generation could not be loaded: for stats.
---@param err any
function Guard:adopt_failed(err)
  self.failed_reloads, self.last_error = self.failed_reloads + 1, guard_log.said(tostring(err))
end

-- ---- Making one -------------------------------------------------------------------------------

local function resolve_policy(given, options)
  if type(given) ~= "string" then return check_policy(given) end
  local policy, err = require("neap.policy").load(given, { params = options.params })
  if not policy then error(err, 0) end
  return policy
end

local function finder(guards)
  if type(guards) == "function" then return guards end
  guards = guards or known
  return function(name) return guards[name] end
end

local function default_breaker(self)
  if not self.panel then return core.breaker() end
  local breaker, message = self.panel:claim(self.name .. "/" .. DEFAULT)
  if breaker then return breaker end
  error(("no breaker for %s in %s: %s"):format(self.name, tostring(self.panel), message), 3)
end

--- Puts a policy to work.  Raises if it can't be loaded: its text says what is wrong, and where.
---@param policy string|neap.Policy the path of a policy file, or what neap.policy.load gave
---@param options? neap.GuardOptions
---@return neap.Guard
function guard.new(policy, options)
  options = options or {}
  guard_options.check(options)
  policy = resolve_policy(policy, options)
  local host = options.host or plain
  local self = setmetatable({
    name = policy.name, policy = policy, number = 0, generations = {}, host = host,
    clock = guard_options.clock(options, host), log = options.log or guard_log.to_stderr,
    logged = {}, panel = options.panel, option_max_keys = options.max_keys,
    lines = {}, count = 0, serve = options.serve,
    policy_errors = 0, overflow = 0, reloads = 0, failed_reloads = 0,
    on_shadow = options.on_shadow,
    is_shared = options.panel ~= nil and options.panel:path() ~= nil,
  }, Guard)
  self.events = event.queue(guard_log.of_handlers(self))
  local is_alone = not options.panel or host.owns_panel
  if is_alone and not host.keeps_lines then self.rows = rows.new(self) end
  self.retries = retry.new(policy.rules:numbers().seed)
  self.chain = fallback.chain {
    find = finder(options.guards),
    host = host,
    fault = function(where, what) self:fault(where, what) end,
    warn = function(sort, text) self:warn(sort, text) end,
    state_dir = options.state_dir,
    replay = replayer(self, options),
  }
  put_to_work(self, policy)
  self.line = line.new(self, DEFAULT, default_breaker(self), self)
  self.lines[DEFAULT] = self.line
  if options.state_dir then
    self.events:on(function(told)
      if told.to == "closed" then self.chain.durables:hurry() end
    end)
  end
  if options.on_event then self.events:on(options.on_event) end
  self.script = on_transition.new(self)
  self.script:adopt()
  known[self.name] = self
  return self
end

return guard
