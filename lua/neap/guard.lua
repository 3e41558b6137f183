--- A guard: a policy at work.
--
--   local flags = neap.guard "policies/flag_provider.lua"
--   local value, err, info = flags:call(fetch_flag, "new-checkout")
--
--   local permit, err = flags:acquire()                       -- the same in two steps
--   flags:report(permit, { status = 503, duration_ms = 12 })
--
-- The breakers, their modes and the last good answers are the guard's.  The policy is one
-- reference, which adopt replaces: a call under way is classified by the policy that let it in.

local apart = require "neap.apart"
local bulkhead = require "neap.bulkhead"
local clocks = require "neap.clock"
local core = require "neap.core"
local event = require "neap.event"
local fallback = require "neap.fallback"
local line = require "neap.line"
local on_transition = require "neap.on_transition"
local plain = require "neap.hosts.plain"
local shadow = require "neap.shadow"
local retry = require "neap.retry"
local problem = require "neap.problem"
local rows = require "neap.rows"
local schema = require "neap.schema"
local suggest = require "neap.suggest"
local tally = require "neap.tally"

local guard = {}

local DEFAULT, OVERFLOW = "default", "*"
local MOST_KEYS = schema.by_key.max_keys.default
local LOG_EVERY_MS = 60000
local TEND_MS = 1000 -- the longest time between two looks at what is due
local NO_ROOM = "%s: no room for another key, among others for %q: such share the breaker * "
  .. "(max_keys = %d)"
local NO_TALLY = "%s: no row in %s for what is counted beside breakers, so each process shows its "
  .. "own: %s"
local GENERATIONS = 256 -- numbers; as PERMIT_GENERATIONS in lua/src/binding.h
local SYSTEM_CLOCKS = { [core.clock_coarse] = true, [core.clock_precise] = true }
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

function Guard:__tostring()
  return ("neap.guard (%s, %s)"):format(self.name, self.policy.hash)
end

-- ---- Log --------------------------------------------------------------------------------------

local function log_to_stderr(level, text)
  if level ~= "info" then io.stderr:write("neap: ", level, ": ", text, "\n") end
end

--- The same sort of thing is logged once a minute.
local function log_seldom(self, sort, level, text)
  local now_ms = self.line and self.line.native:now() or 0
  local last_ms = self.logged[sort]
  if last_ms and now_ms >= last_ms and now_ms - last_ms < LOG_EVERY_MS then return end
  self.logged[sort] = now_ms
  core.protect(self.log, level, text)
end

local function copied(fields)
  local copy = {}
  for field, value in next, fields do copy[field] = value end
  return copy
end

local function said(value)
  local kind = type(value)
  if kind == "string" then return #value > 400 and value:sub(1, 400) .. "…" or value end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  return "an error that is a " .. kind
end

--- A function of the policy's did what it should not; the call goes on without it.
---@param where string
---@param what any
function Guard:fault(where, what)
  self.policy_errors = self.policy_errors + 1
  log_seldom(self, where, "error", ("%s: %s: %s"):format(self.name, where, said(what)))
end

--- Something is not wrong but hardly as it was meant.
---@param sort string the same sort is logged once a minute
---@param text string
function Guard:warn(sort, text)
  log_seldom(self, sort, "warning", self.name .. ": " .. text)
end

--- The policy's functions have called warn(): their texts go to the log, now that none of them
--- runs, each once a minute.
---@param policy neap.Policy the generation
function Guard:warned(policy)
  local warned, now_ms = policy.warned, self.line.native:now()
  for i = #warned, 1, -1 do
    local text = warned[i]
    warned[i] = nil
    local last_ms = warned.at_ms[text]
    if not last_ms or now_ms < last_ms or now_ms - last_ms >= LOG_EVERY_MS then
      warned.at_ms[text] = now_ms
      core.protect(self.log, "warning", self.name .. ": " .. text)
    end
  end
end

--- A function raised that, and the caller got a fallback's answer in its place.
---@param err any
function Guard:hid(err)
  self:warn("raised", "the function raised an error, a fallback answered: " .. said(err))
end

-- ---- Lines: a breaker per key -----------------------------------------------------------------

local function claim(self, key)
  if not self.panel then self.panel = core.panel(self.max_keys + 1) end
  local breaker = self.panel:claim(self.name .. "/" .. key)
  if not breaker then return nil end
  local made = line.new(self, key, breaker)
  made.panel = self.panel
  return made
end

--- Of a shared panel: whether another process has made that key's breaker, so it costs no room.
local function has_row(self, key)
  return self.panel ~= nil and self.panel:find(self.name .. "/" .. key) ~= nil
end

local function shared_line(self)
  local shared = self.lines[OVERFLOW]
  if not shared then
    shared = claim(self, OVERFLOW) or line.new(self, OVERFLOW, core.breaker())
    self.lines[OVERFLOW] = shared
  end
  return shared
end

--- A line for a key that has none, if there is room, or some can be made.
local function new_line(self, key)
  local made = (self.count < self.max_keys or has_row(self, key)) and claim(self, key)
  if made or not self.rows or not line.is_key(self.name, key) then return made end
  return self.rows:make_room() and self.count < self.max_keys and claim(self, key)
end

--- The line of that key, made if there is room, else the one that all such keys share.
---@param key string
---@return table
function Guard:line_of(key)
  local found = self.lines[key]
  if found then return found end
  if type(key) ~= "string" then error(("key must be a string, got %s"):format(type(key)), 3) end
  local shared = shared_line(self)
  if key == OVERFLOW then return shared end
  local made = new_line(self, key)
  if made then
    self.lines[key] = made
    self.count = self.count + 1
    if self.rows then self.rows:add(made) end
    return made
  end
  self.overflow = self.overflow + 1
  log_seldom(self, "overflow", "warning", NO_ROOM:format(self.name, key:sub(1, 100), self.max_keys))
  return shared
end

--- The line of a call, by the policy's key function; without an answer the default one.
---@param policy neap.Policy the generation, which has one
---@param call table as far as it is known before it
---@return table
function Guard:line_for(policy, call)
  local key, fault = policy.key(call)
  if fault then self:fault("key", fault) end
  if policy.warned[1] then self:warned(policy) end
  return key and self:line_of(key) or self.line
end

--- Whose breaker is a call's, by the policy's key function: "default" if it has none, or has
--- nothing to say.
---@param call table what is known before it: args, request
---@return string
function Guard:key(call)
  if type(call) ~= "table" then error("what is known of the call must be a table, got "
    .. type(call), 2) end
  local policy = self.policy
  return policy.key and self:line_for(policy, line.sealed(copied(call))).key or DEFAULT
end

--- The guard's one key: an object with call, acquire, report and deadline of its own, for those who
--- know the key beforehand.  Its breaker stays.
---@param key string
---@return neap.Line
function Guard:at(key)
  local of_key = self:line_of(key)
  of_key.is_pinned = true
  of_key.native:count(false) -- it stays, whatever is under way
  return of_key
end

local function existing(self, key)
  return self.lines[key == nil and DEFAULT or key]
end

--- The line of a call in steps: by its key, or as the policy's key function has it.
local function line_of_call(self, call)
  local policy = self.policy
  if call.key == nil and policy.key then return self:line_for(policy, line.sealed(copied(call))) end
  return existing(self, call.key) or self.lines[OVERFLOW] or self.line
end

local function no_such_key(self, key)
  return nil, ("%s has no key %s yet"):format(self.name, tostring(key))
end

--- The breakers there are, those with no traffic too.
---@return { key: string, breaker: neap.core.Breaker }[]
function Guard:breakers()
  local list = {}
  for key, of_key in pairs(self.lines) do
    list[#list + 1] = { key = key, breaker = of_key.breaker }
  end
  table.sort(list, function(a, b) return a.key < b.key end)
  return list
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
  local given = copied(call or {})
  local of_key = line_of_call(self, given)
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
  self.chain:remember(line_of_call(self, call), value, nil, call)
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
  self.script:run()
  return soonest_ms
end

--- Writes last good answers to their files, waits for the disk, and lets go of all files: before
--- the program ends.  The guard goes on without them.
function Guard:close()
  self.chain.durables:close(self.line.native:now())
end

local VERDICTS = { success = "done", neutral = "own" }

--- Makes a queued call again, and says what it came to.
local function replay(self, f, entry, done)
  apart.spawn(self.host, function()
    local of_key = self:line_of(entry.key)
    local ok, outcome, value, reason = pcall(apart.attempt, of_key, f, { entry, n = 1 })
    local wait_ms = ok and outcome == "refused" and value.retry_after_ms or nil
    if not ok then self:warn("replay", "a queued call can't be made again: " .. said(outcome)) end
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
  local of_key = line_of_call(self, call)
  return (line.retry(of_key, line.filled(of_key, call), made, by_ms))
end

-- ---- Operating --------------------------------------------------------------------------------

--- Everything an operator asks about one key; changes nothing.
---@param key? string
---@return neap.Snapshot|nil, string|nil message
function Guard:snapshot(key)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local snapshot = of_key.breaker:snapshot(self.policy.rules, of_key.native:now())
  local totals = snapshot.totals
  local judged = totals.success + totals.slow_success + totals.failure + totals.slow_failure
  local ended = judged + totals.neutral
  snapshot.policy, snapshot.key, snapshot.hash = self.name, of_key.key, self.policy.hash
  snapshot.bulkhead_in_flight, snapshot.bulkhead_rejected = of_key.native:slots()
  snapshot.in_flight, snapshot.overdue = of_key.native:flight()
  snapshot.neutral_share = ended > 0 and totals.neutral / ended or 0
  snapshot.shadow = shadow.snapshot(of_key, self.candidate)
  return snapshot
end

--- Says that the time of an operator's mode is over: once.
local function mode_over(self, of_key, set)
  of_key.operator = nil
  core.protect(self.log, "warning", ("%s/%s: the time of mode %s%s is over: %s again"):format(
    self.name, of_key.key, set.mode, set.by and ", set by " .. set.by .. "," or "",
    self.policy.mode))
end

--- What is set for the key, if that is still so.
local function set_now(self, of_key)
  local set = of_key.operator
  if set and set.until_ms and of_key.native:now() >= set.until_ms then
    mode_over(self, of_key, set)
    return nil
  end
  return set
end

--- Looks when it is over, where the host can; its timers may be early, by another clock.
local function watch_mode(self, of_key, set)
  local later = self.host.later
  if not later or not set.until_ms then return end
  later(math.max(1, set.until_ms - of_key.native:now()), function()
    if of_key.operator == set and set_now(self, of_key) then watch_mode(self, of_key, set) end
  end)
end

local ACTION = { for_ms = true, by = true, reason = true }

--- A misspelt for_ms would be a mode for good.
local function check_action(action)
  if type(action) ~= "table" then error("action must be a table, got " .. type(action), 3) end
  for name in next, action do
    if not ACTION[name] then
      error(("an action has no %s%s"):format(said(name),
        suggest.hint(name, { "by", "for_ms", "reason" })), 3)
    end
  end
end

local MODES = { "auto", "forced_open", "forced_closed", "shadow" }
local WRONG_MODE = 'mode must be "' .. table.concat(MODES, '", "')
  .. '", or nil for the policy\'s, got %s%s'

local function check_mode(mode)
  if mode == nil then return end
  for _, one in ipairs(MODES) do
    if mode == one then return end
  end
  error(WRONG_MODE:format(problem.shown(mode), suggest.hint(mode, MODES)), 3)
end

local function check_ms(name, ms)
  if ms == nil or type(ms) == "number" then return end
  error(("%s must be milliseconds, got %s"):format(name, problem.shown(ms)), 3)
end

--- Sets the mode of one key, which goes before the policy's.
---@param key string|nil
---@param mode neap.Mode|nil nil: back to the policy's
---@param action? { for_ms?: number, by?: string, reason?: string } without for_ms: for good
---@return boolean|nil, string|nil message
function Guard:mode(key, mode, action)
  action = action or {}
  check_action(action)
  check_mode(mode)
  check_ms("for_ms", action.for_ms)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local now_ms = of_key.native:now()
  local ok, message = of_key.breaker:set_mode(now_ms, mode, action.for_ms)
  if not ok then return nil, message end
  of_key.operator = mode and {
    mode = mode, by = action.by, reason = action.reason, at_ms = now_ms,
    until_ms = action.for_ms and now_ms + action.for_ms or nil,
  }
  core.protect(self.log, "info", ("%s/%s: mode %s%s%s%s"):format(self.name, of_key.key,
    mode or "of the policy",
    action.for_ms and (" for %.14g ms"):format(action.for_ms) or "",
    action.by and " by " .. action.by or "", action.reason and ": " .. action.reason or ""))
  if mode then core.protect(watch_mode, self, of_key, of_key.operator) end
  return true
end

--- Who set the mode that is in force, and until when; nil if nobody did.
---@param key? string
---@return { mode: neap.Mode, by?: string, reason?: string, at_ms: integer, until_ms?: integer }|nil
function Guard:operator(key)
  local of_key = existing(self, key)
  return of_key and set_now(self, of_key)
end

--- How the breaker came to be as it is, with the rule and the numbers that made it so; nil if it
--- has not moved since this guard was made. Not to be changed: event handlers may hold it, too.
---@param key? string
---@return neap.Event|nil
function Guard:last_transition(key)
  local of_key = existing(self, key)
  return of_key and of_key.last_moved
end

--- To closed, with a clean window, from any state; a shadow policy's breaker, too.
---@param key? string
---@param by? string
---@return boolean|nil, string|nil message
function Guard:reset(key, by)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  line.enqueue(of_key, of_key.breaker:reset(self.policy.rules, of_key.native:now()), by)
  self.events:deliver()
  shadow.reset(of_key, self.candidate, by)
  return true
end

--- To open, from any state.
---@param key? string
---@param open_ms? number how long; without: the cooldown
---@param by? string
---@return boolean|nil, string|nil message
function Guard:trip(key, open_ms, by)
  check_ms("open_ms", open_ms)
  local of_key = existing(self, key)
  if not of_key then return no_such_key(self, key) end
  local moved, message = of_key.breaker:trip(self.policy.rules, of_key.native:now(), open_ms)
  if message then return nil, message end
  line.enqueue(of_key, moved, by)
  self.events:deliver()
  return true
end

--- Adds the stats of the other processes, where there are some.
local function share(self, stats)
  if not self.tally then
    local message
    self.tally, message = tally.new(self.panel, self.name)
    if not self.tally then return log_seldom(self, "tally", "warning", NO_TALLY:format(self.name,
      tostring(self.panel), message)) end
  end
  self.tally:share(stats)
  stats.is_shared = true
end

--- What it has counted; in a shared panel, what all processes have, so far as they were asked for
--- their stats since.
---@return neap.Stats
function Guard:stats()
  if self.policy.warned[1] then self:warned(self.policy) end
  local breakers = 0
  for _ in pairs(self.lines) do breakers = breakers + 1 end
  local stats = {
    fallbacks = self.chain:rows(), fallback_durations = self.chain:took(),
    retries = {}, retry_budget = self.retries:left(self.policy.retry, self.line.native:now()),
    queues = self.chain.durables:rows(), stores = self.chain:stored(),
    policy_errors = self.policy_errors, overflow = self.overflow, breakers = breakers,
    keys = self.count,
    evicted = self.rows and self.rows.evicted or 0, max_keys = self.max_keys,
    reloads = { ok = self.reloads, failed = self.failed_reloads },
    last_error = self.last_error, hash = self.policy.hash,
    shadow = self.candidate and {
      file = self.candidate.file, hash = self.candidate.hash,
      error = self.policy.candidate.error and tostring(self.policy.candidate.error),
    },
  }
  for result, count in pairs(self.retries.counts) do stats.retries[result] = count end
  if self.is_shared then share(self, stats) end
  return stats
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
    self.shadows = event.queue(function(err)
      log_seldom(self, "event", "error", self.name .. ": event handler: " .. said(err))
    end)
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
    default_options = copied(options)
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
    core.protect(self.log, "warning", ("%s: %s"):format(self.name, said(warning)))
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
  self.failed_reloads, self.last_error = self.failed_reloads + 1, said(tostring(err))
end

-- ---- Making one -------------------------------------------------------------------------------

local KNOWN_OPTIONS = {
  params = "table", panel = "userdata", max_keys = "number", clock = "any", host = "table",
  on_event = "function", log = "function", serve = "function", guards = "any",
  on_shadow = "function",
  state_dir = "string", replay = "function",
}

local function check_options(options)
  if type(options) ~= "table" then error("options must be a table, got " .. type(options), 3) end
  for name, value in next, options do
    local expected = KNOWN_OPTIONS[name]
    if not expected then
      local names = {}
      for option in next, KNOWN_OPTIONS do names[#names + 1] = option end
      error(("there is no option %s%s"):format(said(name), suggest.hint(name, names)), 3)
    end
    if expected ~= "any" and type(value) ~= expected then
      error(("option %s must be a %s, got %s"):format(name, expected, type(value)), 3)
    end
  end
  if options.panel and not tostring(options.panel):find("^neap%.panel") then
    error("option panel must be made by neap.panel or neap.panel_shared", 3)
  end
  local most = options.max_keys
  if most and (most ~= most or most < 1 or most > 1000000 or most % 1 ~= 0) then
    error("option max_keys must be a whole number from 1 to 1000000, got " .. tostring(most), 3)
  end
end

--- The clock in the form that the core takes.
local function resolve_clock(options, host)
  local given = options.clock or host.now
  local shared = options.panel and options.panel:path()
  if shared and type(given) ~= "string" and given and not SYSTEM_CLOCKS[given] then
    error(shared .. ": processes share it, so it goes by the system's clock: clock must be "
      .. "\"coarse\" or \"precise\"", 3)
  end
  return clocks.resolve(given)
end

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
  check_options(options)
  policy = resolve_policy(policy, options)
  local host = options.host or plain
  local self = setmetatable({
    name = policy.name, policy = policy, number = 0, generations = {}, host = host,
    clock = resolve_clock(options, host), log = options.log or log_to_stderr,
    logged = {}, panel = options.panel, option_max_keys = options.max_keys,
    lines = {}, count = 0, serve = options.serve,
    policy_errors = 0, overflow = 0, reloads = 0, failed_reloads = 0,
    on_shadow = options.on_shadow,
    is_shared = options.panel ~= nil and options.panel:path() ~= nil,
  }, Guard)
  self.events = event.queue(function(err)
    log_seldom(self, "event", "error", self.name .. ": event handler: " .. said(err))
  end)
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
