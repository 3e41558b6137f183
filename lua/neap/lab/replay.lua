--- Replay: a log of calls through policies, on a virtual clock, by the same core and the same
--- functions that serve at work.
--
--   local replay = require "neap.lab.replay"
--   local source, err = replay.open { logs = { "access.log.1.gz", "access.log" } }
--   local result = replay.run(source, {
--     { policy = policy.load "policies/payments.lua" },           -- a lane each; all in one pass
--     { policy = other, rules = changed, timeout_ms = 250, label = "250 ms" },
--   })
--   result.lanes[1].all.opened, result.lanes[1].transitions[1], result.source.calls
--
-- A lane takes about 5 MB besides its breakers.  Runs in the neap program only: the reading and the
-- breakers are C (lua/engine/lab).

local core = require "neap.core"
local event = require "neap.event"
local marks = require "neap.lab.marks"
local native = require "neap.lab.native"
local round_of = require "neap.round"

local replay = {}

---@class (exact) neap.lab.replay.Source what is replayed
---@field logs string[] paths; "-": standard input.  Read as one, by time
---@field format? string "combined", "json", "csv", "har", "recording"; nil: by the first lines
---@field log_format? string nginx's log_format or Apache's LogFormat, as it is configured
---@field maps? { role: string, name: string, unit: string|nil }[] what fields are called
---@field key? string the field, or role, whose value is the breaker's key

---@class (exact) neap.lab.replay.Lane
---@field policy neap.Policy
---@field rules? userdata in place of the policy's: as of neap.core.rules
---@field timeout_ms? integer|false in place of the policy's; false: none
---@field label? string what reports call it; the policy's name if nil

---@class (exact) neap.lab.replay.Options
---@field of? string of a recording, whose calls: a policy's name; the first lane's if nil
---@field seed? integer of the jitter; a recording's own if nil, else 0
---@field transitions? integer so many of a lane are kept, the rest only counted; 10,000 if nil
---@field marks? boolean along the way is kept, too, what the lanes had come to
---@field progress? fun(read: integer, size: integer|nil, calls: integer) bytes of all logs; now
---  and then

---@class (exact) neap.lab.replay.Result
---@field source neap.lab.replay.SourceResult
---@field lanes neap.lab.replay.LaneResult[]
---@field marks? neap.lab.Mark[]
---@field behind_ms integer so far behind the reading runs the breakers' clock

---@class (exact) neap.lab.replay.SourceResult what was read
---@field logs { path: string, format: string, what: string, is_gzip: boolean,
---  guessed: string|nil }[] guessed: the unit of durations, which no name says
---@field lines integer
---@field calls integer
---@field from_ms integer since 1970: the first that began
---@field to_ms integer the last that ended
---@field aside integer lines that are fine, but no call of the dependency
---@field coarse integer calls whose time is to the second: they were spread over it
---@field without_duration integer calls
---@field refused integer calls that the log's own breaker refused
---@field begins integer calls whose beginning is in the log: all others' is worked out from the end
---@field keyed integer calls that have the field of --key, or a recording's key
---@field missing integer calls that a recording lacks, as it says itself
---@field answers { source: string, count: integer, oldest_ms: integer }[] what a recording says was
---  answered instead of the policy's dependency, by which stage
---@field damaged { kind: string, count: integer, log: string, line: integer, text: string }[]

---@class (exact) neap.lab.replay.LaneResult what a policy would have done
---@field label string
---@field policy string its name
---@field path string
---@field hash string
---@field timeout_ms? integer
---@field rules userdata
---@field seed integer
---@field all neap.lab.replay.Counts of all keys together
---@field keys neap.lab.replay.Counts[] with .key, in the order they came
---@field transitions neap.Event[] in order, each a sentence as text; .at_ms since 1970
---@field more_transitions integer that were not kept
---@field series neap.lab.replay.Series
---@field key_series fun(number: integer): neap.lab.replay.Series|nil of keys[number]
---@field late integer calls that began over two minutes before what was replayed by then
---@field crowded integer calls for which the clock had to run ahead: too many in two minutes
---@field overflow integer calls of keys beyond max_keys
---@field others integer calls of other policies, in a recording
---@field by_record integer calls judged as the recording says: the policy is the one that judged
---@field faults integer of the policy's key and classify functions
---@field fault? string the first

--- See LANE_COUNTS in lua/engine/lab/lane.h for what each is.
---@class neap.lab.replay.Counts
---@field key? string
---@field calls integer
---@field success integer
---@field failure integer timeouts included
---@field timeout integer
---@field neutral integer
---@field slow integer
---@field cut integer timeouts that are the policy's, not the log's
---@field cut_good integer of these: good in the end
---@field cut_ms integer waiting that the timeout had ended
---@field unknown integer refused in the log
---@field refused integer
---@field by_open integer
---@field by_probes integer
---@field by_ramp integer
---@field saved integer refused, would have failed
---@field lost integer refused, was good
---@field spared integer refused, was neutral
---@field refused_unknown integer
---@field saved_ms integer waiting for those that would have failed
---@field refused_ms integer waiting for all that were refused
---@field probes integer
---@field stale integer
---@field bare integer refused before there was a good answer
---@field worst_age_ms integer
---@field worst_at_ms integer
---@field opened integer
---@field closed integer
---@field open_ms integer

---@class (exact) neap.lab.replay.Series a column each, by time
---@field from_ms integer
---@field width_ms integer of one row
---@field calls integer[]
---@field failed integer[]
---@field slow integer[]
---@field refused integer[]
---@field took_ms integer[]

local STEP = 20000 -- calls between two looks at the clock

--- The roles that a field may have: { name =, what = }.
replay.roles = native.roles

--- Opens the logs; nil and one line if that can't be.
---@param source neap.lab.replay.Source
---@return table|nil
---@return string|nil err
function replay.open(source)
  local opened, err = native.open {
    paths = source.logs, format = source.format, log_format = source.log_format,
    maps = source.maps, key = source.key,
  }
  if not opened then return nil, err end
  return { native = opened, logs = source.logs, has_key = source.key ~= nil }
end

-- ---- Lanes ------------------------------------------------------------------------------------

--- The rules with that seed, and with no mode: what the breaker would do.
local function seeded(rules, seed)
  local numbers = rules:numbers()
  numbers.seed, numbers.mode = seed, "auto"
  return assert(core.rules(numbers))
end

--- The shipped classifiers go by a call's status and how it ended; a function of the policy's own
--- may go by anything.
local function is_pure(policy) return policy.config.classify ~= "a function" end

--- Where the policy's trip function sends a closed breaker; what goes wrong is its own fault.
local function trip_of(policy, fault)
  return policy.trip and function(snapshot)
    local trips, wrong = policy.trip(snapshot)
    if wrong then fault("trip", wrong) end
    return trips and not wrong and "open" or nil
  end
end

--- Where its decide function sends a half-open one: if it can't say, the round has failed.
local function decide_of(policy, fault)
  return policy.decide and function(snapshot)
    local to, wrong = policy.decide(round_of(snapshot))
    if wrong then
      fault("half_open.decide", wrong)
      to = "open"
    end
    return to == "close" and "closed" or to
  end
end

local function timeout_of(lane)
  if lane.timeout_ms ~= nil then return lane.timeout_ms or nil end
  return lane.policy.timeout_ms
end

--- Adds a lane; answers what collects what it does.
local function add(source, lane, options)
  local policy = lane.policy
  local made = {
    label = lane.label or policy.name, policy = policy.name, path = policy.path,
    hash = policy.hash, timeout_ms = timeout_of(lane), transitions = {}, more_transitions = 0,
    seed = options.seed, rules = seeded(lane.rules or policy.rules, options.seed), own_faults = 0,
  }
  local most = options.transitions or 10000
  local function moved(_, key, at_ms, told)
    if #made.transitions >= most then
      made.more_transitions = made.more_transitions + 1
      return
    end
    told.policy, told.key, told.hash, told.at_ms = made.label, key, made.hash, at_ms
    made.transitions[#made.transitions + 1] = event.new(told)
  end
  local function fault(where, what)
    made.own_faults = made.own_faults + 1
    made.own_fault = made.own_fault or ("%s: %s"):format(where, tostring(what))
  end
  made.number = source.native:add {
    rules = made.rules, timeout_ms = made.timeout_ms, of = options.of, hash = policy.hash,
    max_keys = policy.max_keys or 256, is_pure = is_pure(policy), classify = policy.classify,
    key = policy.key, takes_keys = source.has_key, moved = moved,
    trip = trip_of(policy, fault), decide = decide_of(policy, fault),
  }
  return made
end

-- ---- Results ----------------------------------------------------------------------------------

--- The policy's of several recordings, by source.
local function merged(answers, policy)
  local out, at = {}, {}
  for _, one in ipairs(answers) do
    local known = one.policy == policy and at[one.source]
    if known then
      known.count = known.count + one.count
      known.oldest_ms = math.max(known.oldest_ms, one.oldest_ms)
    elseif one.policy == policy then
      out[#out + 1], at[one.source] = one, one
      one.policy = nil
    end
  end
  table.sort(out, function(a, b) return a.source < b.source end)
  return out
end

local function source_of(source, of)
  local stats = source.native:stats()
  for i, log in ipairs(stats.logs) do log.path = source.logs[i] end
  stats.answers = merged(stats.answers, of)
  for _, damaged in ipairs(stats.damaged) do damaged.log = source.logs[damaged.log] end
  return stats
end

local function finish(source, made)
  for name, value in pairs(source.native:lane(made.number)) do made[name] = value end
  made.faults, made.fault = made.faults + made.own_faults, made.fault or made.own_fault
  local number = made.number
  made.key_series = function(key) return source.native:series(number, key) end
  made.number, made.own_faults, made.own_fault, made.now_ms = nil, nil, nil, nil
  return made
end

--- The seed that a recording has for the policy.
local function recorded_seed(source, policy)
  local high, low = source.native:seed(policy)
  return high and (high << 32 | low) & math.maxinteger or nil
end

--- Replays what was opened, once, through all lanes at once.
---@param source table as of replay.open
---@param lanes neap.lab.replay.Lane[]
---@param options? neap.lab.replay.Options
---@return neap.lab.replay.Result
function replay.run(source, lanes, options)
  local given = {}
  for name, value in pairs(options or {}) do given[name] = value end
  given.of = given.of or lanes[1].policy.name
  source.native:begin()
  given.seed = given.seed or recorded_seed(source, given.of) or 0
  local made, is_over = {}, false
  for i, lane in ipairs(lanes) do made[i] = add(source, lane, given) end
  local kept = given.marks and marks.new(source.native, #made)
  while not is_over do
    is_over = source.native:step(kept and kept.every or STEP)
    if kept and not is_over then kept:look() end
    if given.progress then given.progress(source.native:progress()) end
  end
  for i, lane in ipairs(made) do made[i] = finish(source, lane) end
  return {
    source = source_of(source, given.of), lanes = made, marks = kept and kept.list or nil,
    behind_ms = native.horizon_ms,
  }
end

return replay
