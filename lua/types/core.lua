---@meta neap.core
--- The C module: breakers, rules, panels, clocks, and what guards are made of.  For programs that
--- do without policies it is enough by itself:
---
---   local core = require "neap.core"
---   local rules = assert(core.rules { consecutive_failures = 5 })
---   local breaker = core.breaker()
---   local permit, reason, retry_after_ms = breaker:acquire(rules, now_ms)
---   if permit then breaker:report(rules, now_ms, permit, try_it() and "success" or "failure") end
---
--- Errors: wrong arguments raise, naming the argument, and change nothing.  A refusal is an answer.
--- Numbers are numbers, never texts that look like one.  A count must be whole (4.0 is); an instant
--- or a duration may have a fraction, which is dropped.

-- luacheck: ignore 21. 24.

local core = {}

---@alias neap.State
---| "closed"    # calls are let through
---| "half_open" # probes are
---| "open"      # none is

---@alias neap.Mode
---| "auto"          # the state decides
---| "forced_open"   # every call is refused
---| "forced_closed" # no call is
---| "shadow"        # no call is: these are rules on trial

---@alias neap.Outcome
---| "success"
---| "failure"
---| "timeout"   # a failure, also counted apart
---| "neutral"   # says nothing about the dependency
---| "abandoned" # neutral: nobody reported in time

---@alias neap.Reported
---| "counted"
---| "stale" # the breaker has moved since: counted as stale, nothing else
---| "used"  # reported before: nothing

---@alias neap.RefusalReason
---| "open"
---| "probes_busy" # half-open, and all probes are under way
---| "forced_open"
---| "ramp"        # closed a short while ago, and not yet for all

---@alias neap.Cause
---| "failures"
---| "failure_rate"
---| "slow_rate"
---| "consecutive_failures"
---| "function"   # the policy's
---| "cooldown"   # is over: the first probe goes
---| "probes"     # the round is decided
---| "probe_lost" # was never reported
---| "reset"      # by hand
---| "trip"       # by hand

--- The right to make one call.  A plain number where it holds nothing; a probe is a userdata that
--- is used once, can be closed (`local permit <close> = ...`), and reports itself abandoned when
--- it is closed or collected unreported.
---@alias neap.Permit number|userdata

---@class (exact) neap.core.Numbers what is not given is the default; see neap.h
---@field window? "time"|"count"
---@field length_ms? integer of a time window
---@field calls? integer of a count window
---@field failures? integer
---@field consecutive_failures? integer
---@field failure_rate? number share
---@field slow_rate? number share
---@field slow_call_ms? integer
---@field minimum_calls? integer
---@field trip_by_function? boolean
---@field cooldown_ms? integer
---@field max_cooldown_ms? integer
---@field backoff? number factor
---@field jitter? number share
---@field seed? integer
---@field probes? integer
---@field successes? integer
---@field concurrent? integer
---@field timeout_ms? integer
---@field lease_ms? integer
---@field ramp_ms? integer
---@field decide_by_function? boolean
---@field mode? neap.Mode
---@field count_refusals? boolean

---@class (exact) neap.core.RulesError
---@field field string
---@field expected string what would be right
---@field value any what it is
---@field min? number its range, both ends allowed
---@field max? number

---@class (exact) neap.core.Moved one transition, and the numbers that caused it
---@field from neap.State
---@field to neap.State
---@field cause neap.Cause
---@field measured number what the rule looked at; of a rate, a share
---@field limit number what it was compared with
---@field calls integer in the window, or probes of the round that ended
---@field epoch integer its number; half-open keeps that of the open before it
---@field level integer how many times in a row it opened
---@field open_ms integer to open: for how long
---@field flapping boolean to open: within a cooldown, or the ramp, of closing

---@class (exact) neap.core.Totals since the breaker was made
---@field success integer
---@field slow_success integer
---@field failure integer timeouts included
---@field slow_failure integer
---@field timeout integer of the failures
---@field neutral integer
---@field abandoned integer
---@field stale integer
---@field refused_open integer
---@field refused_probes integer
---@field refused_forced integer
---@field refused_ramp integer
---@field bypassed integer let in by a mode
---@field probes integer
---@field probes_lost integer
---@field flaps integer
---@field clock_steps integer
---@field retry_ignored integer
---@field open_ms integer not closed, altogether

---@class neap.Snapshot
---@field policy? string of a guard's, as the next three
---@field key? string
---@field hash? string
---@field neutral_share? number of the calls that ended: near 1 the breaker sees little
---@field shadow? neap.Shadow what a shadow policy has come to
---@field in_flight? integer calls of this process under way, as far as they are known
---@field overdue? integer of them those that count as slow before they end
---@field bulkhead_in_flight? integer calls of this process with a slot of the policy's bulkhead
---@field bulkhead_rejected? integer those that got none
---@field state neap.State
---@field mode neap.Mode in force
---@field mode_is_operators boolean
---@field mode_left_ms integer of an operator's mode; 0: no end, or none set
---@field level integer
---@field epoch integer
---@field state_age_ms integer
---@field retry_after_ms integer until a call may be let in; 0: now
---@field admitted number share of the calls that is let in: 0 if not closed, under 1 during a ramp
---@field window "time"|"count"
---@field window_length integer
---@field calls integer in the window
---@field success integer in the window, as the next three
---@field slow_success integer
---@field failure integer
---@field slow_failure integer
---@field failure_rate number share
---@field slow_rate number share
---@field consecutive_failures integer
---@field probes_in_flight integer
---@field probes_succeeded integer
---@field probes_failed integer
---@field totals neap.core.Totals
---@field transitions { from: neap.State, to: neap.State, cause: neap.Cause, count: integer }[]
---@field duration_counts integer[] by duration_bounds_ms; the last has no bound
---@field duration_bounds_ms integer[]
---@field duration_sum_ms integer

---@type string
core.version = nil

--- The variables of the process's environment whose names begin with that, as they are now.
---@param prefix string
---@return table<string, string>
function core.environment(prefix) end

--- Opens a file that outlives the program, for reading and appending; it is made if need be, 0600.
--- One that is a link, is another user's or can be read by others is refused.
---@param path string
---@param is_new? boolean without what was in it
---@return neap.core.File|nil, string|nil message
function core.open_file(path, is_new) end

--- Puts a file in the place of another: after a loss of power there is the one or the other.
---@param from string
---@param to string
---@return true|nil, string|nil message
function core.replace_file(from, to) end

--- Whether that is a directory that nobody else can put files into.
---@param path string
---@return true|nil, string|nil message
function core.check_directory(path) end

--- Milliseconds since 1970, by a clock that can be set: for what outlives a process.
---@return integer
function core.wall_ms() end

---@class neap.core.File
---@field close fun(self)
---@field append fun(self, text: string): true|nil, string|nil
---@field sync fun(self): true|nil, string|nil waits for the disk
---@field read fun(self, offset: integer, length: integer): string|nil, string|nil
---@field truncate fun(self, length: integer): true|nil, string|nil
---@field size fun(self): integer
---@field is_removed fun(self): boolean whether it has no name any more: nobody finds it
---@field lock fun(self): boolean whether nobody else has it, until the file is closed
---@field descriptor fun(self): integer for a loop that syncs it elsewhere

--- Upper bounds of duration_counts, but of the last, which has none.
---@type integer[]
core.duration_bounds_ms = nil

---@class neap.core.Rules prepared: they never change
local Rules = {}

--- Nil and what is wrong, if a number is; a name that is no rule's raises.
---@param numbers neap.core.Numbers
---@return neap.core.Rules|nil, neap.core.RulesError|nil
function core.rules(numbers) end

--- All of them, derived ones too.
---@return neap.core.Numbers
function Rules:numbers() end

--- How long it stays open the level-th time in a row, without jitter.
---@param level integer 1 to 31
---@return integer ms
function Rules:cooldown_ms(level) end

---@class neap.core.Panel named breakers, and counters, in one block of memory
local Panel = {}

---@param capacity integer 1 to 4,194,304
---@return neap.core.Panel
function core.panel(capacity) end

--- A panel in a file that processes share, made if there is none: path .. ".v2", on tmpfs, mode
--- 0600, the caller's own.  Guards in it go by the system's clock.  A file that is not to be
--- trusted is an error, one of no use is replaced: docs/operations.md.  Linux.
---@param path string absolute, such as "/dev/shm/shop"
---@param capacity? integer 1 to 4,194,304 rows, if it is made; without: only what is there
---@return neap.core.Panel|nil
---@return string|nil message what is wrong; or, with a panel, what to log: why it was replaced, or
---  that it keeps the capacity that it was made with
function core.panel_shared(path, capacity) end

--- The breaker of that name, made if there is none.  Nil if there is no room, or for a name that is
--- empty, longer than 103 bytes, or has a zero byte.
---@param name string
---@return neap.core.Breaker|nil, string|nil message
function Panel:claim(name) end

---@param name string
---@return neap.core.Breaker|nil
function Panel:find(name) end

---@return neap.core.Breaker[]
function Panel:rows() end

--- For neap.rows: whether a line, the only one of its breaker, has been of use since its activity
--- was that.  If not, and it may go and nothing of it matters any more, its row is given back, and
--- the line goes on with the breaker that this answers, a copy that is nobody else's.
---@param line userdata
---@param activity integer as this answered it last
---@param used_ms integer likewise
---@param may_go boolean
---@return neap.core.Breaker|nil, integer activity, integer used_ms
function Panel:look(line, activity, used_ms, may_go) end

--- The counters of that name, made if there are none: another row than a breaker of that name.
---@param name string
---@return neap.core.Counters|nil, string|nil message
function Panel:counters(name) end

---@return integer
function Panel:capacity() end

--- Rows in use.
---@return integer
function Panel:count() end

--- The file, if processes share it.
---@return string|nil
function Panel:path() end

--- Whether the file is as it was: there, whole, nobody else's.  For a host to ask now and then.
--- One that was cut is left: the panel is from then on this process's own, empty.
---@return true|nil, string|nil message
function Panel:check() end

--- From now on every use of it, and of its breakers, raises.  Probes that are out are still given
--- back when they are collected.
function Panel:close() end

---@class neap.core.Counters 64 numbers that only grow; in a shared panel, of all processes together
local Counters = {}

---@param index integer 1 to 64
---@param n? integer 1 if not given
function Counters:add(index, n) end

---@param index integer 1 to 64
---@return integer
function Counters:get(index) end

---@return string
function Counters:name() end

---@class neap.core.Breaker
local Breaker = {}

--- One of its own, outside any panel.
---@return neap.core.Breaker
function core.breaker() end

--- Makes it use the rules' window; if that is another, it begins empty.
---@param rules neap.core.Rules
function Breaker:adopt(rules) end

---@param rules neap.core.Rules
---@param now_ms number
---@return neap.Permit|nil permit
---@return neap.RefusalReason|nil reason
---@return integer|nil retry_after_ms 0: unknown
---@return neap.core.Moved|nil moved if this call moved the breaker
function Breaker:acquire(rules, now_ms) end

---@param rules neap.core.Rules
---@param now_ms number
---@param permit neap.Permit
---@param outcome neap.Outcome
---@param duration_ms? number without: since the permit was given
---@param retry_after_ms? number how long the dependency asked to be left alone
---@return neap.Reported, neap.core.Moved|nil moved
function Breaker:report(rules, now_ms, permit, outcome, duration_ms, retry_after_ms) end

--- Moves it for a rule outside the core, if its epoch is still that.
---@param rules neap.core.Rules
---@param now_ms number
---@param epoch integer
---@param to "open"|"closed"
---@param retry_after_ms? number
---@return neap.core.Moved|nil
function Breaker:decide(rules, now_ms, epoch, to, retry_after_ms) end

---@alias neap.core.BoundReport fun(permit: neap.Permit, outcome: neap.Outcome,
---  duration_ms?: number, retry_after_ms?: number): neap.Reported, neap.core.Moved|nil

--- Two functions for those rules, on the coarse clock: the fastest way.
---@param rules neap.core.Rules
---@return fun(): neap.Permit|nil, neap.RefusalReason|nil, integer|nil, neap.core.Moved|nil acquire
---@return neap.core.BoundReport report
function Breaker:bind(rules) end

--- By hand: to closed, with a clean window.
---@param rules neap.core.Rules
---@param now_ms number
---@return neap.core.Moved|nil
function Breaker:reset(rules, now_ms) end

--- By hand: to open.
---@param rules neap.core.Rules
---@param now_ms number
---@param open_ms? number without: the cooldown; at most max_cooldown_ms
---@return neap.core.Moved|nil, string|nil message
function Breaker:trip(rules, now_ms, open_ms) end

--- Sets the operator's mode; nil gives it back to the rules.
---@param now_ms number
---@param mode neap.Mode|nil
---@param for_ms? number without: until it is set again; over 0, at most 31 days
---@return true|nil, string|nil message
function Breaker:set_mode(now_ms, mode, for_ms) end

---@param rules neap.core.Rules
---@param now_ms number
---@return neap.State
function Breaker:state(rules, now_ms) end

--- When it will change with nobody calling; nil: it won't.
---@param rules neap.core.Rules
---@param now_ms number
---@return integer|nil
function Breaker:next_ms(rules, now_ms) end

--- What acquire would answer, without taking anything.
---@param rules neap.core.Rules
---@param now_ms number
---@return "allow"|"probe"|"bypass"|neap.RefusalReason
function Breaker:peek(rules, now_ms) end

--- Everything an operator asks.  Changes nothing.
---@param rules neap.core.Rules
---@param now_ms number
---@return neap.Snapshot
function Breaker:snapshot(rules, now_ms) end

--- Calls since it began, of the snapshot's totals: good, good but slow, failed, refused.
---@param rules neap.core.Rules
---@param now_ms number
---@return integer good, integer slow, integer failed, integer refused
function Breaker:counts(rules, now_ms) end

--- Its name in its panel; "" outside of any.
---@return string
function Breaker:name() end

--- The system's monotonic clock, cheap, in steps of up to 4 ms.
---@return integer now_ms
function core.clock_coarse() end

--- The system's monotonic clock in steps under 1 ms.
---@return integer now_ms
function core.clock_precise() end

--- As pcall, but nothing in it can yield.
---@param f function
---@param ... any
---@return boolean, any ...
function core.protect(f, ...) end

--- For the `seed` of rules: a whole number under 2^53 that no other process is likely to have.
---@return integer
function core.seed() end

---@class neap.core.Line one key of a guard at work; for neap.line
local Line = {}

---@param breaker neap.core.Breaker
---@param clock? "precise"|fun(): number
---@return neap.core.Line
function core.line(breaker, clock) end

---@class (exact) neap.core.LineOptions
---@field classify? function judges every call
---@field run? function gives calls up, as neap.Host.run
---@field has_trip boolean
---@field keeps boolean the function and its arguments, for fallbacks
---@field remembers boolean
---@field is_layered boolean there is more around a call: its hook layered does it all
---@field concurrent? integer the slots of the bulkhead

--- All at once, or, if an argument is wrong, nothing.
---@param generation table
---@param rules neap.core.Rules
---@param number integer
---@param options neap.core.LineOptions
function Line:adopt(generation, rules, number, options) end

--- The methods of `public`, on which they are to be called.
---@param public table
---@param owner table what the hooks are given first; owner.key is the key
---@param hooks table<string, function>
---@return function acquire, function report, function deadline
---@return function call, function call_in of Lua 5.1 and LuaJIT: begin, finish (neap.call)
function Line:methods(public, owner, hooks) end

---@return integer
function Line:now() end

--- As Breaker:acquire, but the permit is always a userdata.
---@param owner table
---@return neap.Permit|nil, neap.RefusalReason|nil, integer|nil, neap.core.Moved|nil
function Line:take(owner) end

---@param permit neap.Permit
---@return integer age_ms, table|integer generation, table|nil owner
---@return "allow"|"probe"|"bypass"|"used" kind
function Line:about(permit) end

---@param permit neap.Permit
---@param outcome neap.Outcome
---@param duration_ms number
---@param retry_after_ms? number
---@return neap.Reported, neap.core.Moved|nil, boolean is_slow
function Line:give(permit, outcome, duration_ms, retry_after_ms) end

--- The slots of the bulkhead.
---@return integer taken, integer refused calls that got none, boolean is_free
function Line:slots() end

--- How many calls have asked by acquire since this was asked last.
---@return integer
function Line:begun() end

--- Whether each permit is to be known as long as it is out: so panel:look tells whether any is.
---@param is_counted boolean
function Line:count(is_counted) end

--- The calls under way that are known: all of counted permits, of slots, and of rules that ask for
--- slow calls.
---@return integer out, integer overdue those that count as slow already
function Line:flight() end

--- Counts the calls that are overdue: slow before they end.  Nothing if no rule asks for slow ones.
---@return integer|nil overdue
---@return neap.core.Moved|nil moved
---@return integer|nil wait_ms when to ask again
function Line:sweep() end

return core
