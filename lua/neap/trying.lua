--- Tries a policy's functions before it serves, for `neap check` and `neap test`: with samples that
--- know which fields there are.
--
--   call.statuss     nil for ever, which no outage can tell from a field that is not set: an error
--   key(call)        what fails on samples, or makes a key of every id: a warning
--   on_transition    is told of an opening and a closing of long ago: what fails is a warning
--
-- A program's own arguments can be anything, so nothing is said of what a function does to them.

local core = require "neap.core"
local event = require "neap.event"
local on_transition = require "neap.on_transition"
local problem = require "neap.problem"
local reported = require "neap.reported"
local round_of = require "neap.round"
local route = require "neap.route"
local suggest = require "neap.suggest"
local trials = require "neap.trials"

local trying = {}

local REQUEST = { method = true, target = true, headers = true, body = true }
local BEFORE = { args = true, request = true }

---@class (exact) neap.trying.Read of a field that there is not
---@field key string the policy's function
---@field field string
---@field message string

local function names_of(set)
  local names = {}
  for name in next, set do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Notes whoever reads a field that is not known, once each.
local function strict(fields, reads, key, path, has_no, known)
  known = known or fields
  return setmetatable(fields, { __metatable = false, __index = function(_, field)
    local is_known = rawget(known, field) ~= nil or type(field) ~= "string"
    if is_known or reads[key .. path .. field] then return nil end
    reads[key .. path .. field] = true
    reads[#reads + 1] = {
      key = key, field = field,
      message = ("%s.%s: %s no such field%s"):format(path, field, has_no,
        suggest.hint(field, names_of(known))),
    }
  end })
end

local function strict_request(request, reads, key)
  return strict(request, reads, key, "call.request", "a request has", REQUEST)
end

local function strict_call(call, reads, key)
  call.request = strict_request(call.request, reads, key)
  return strict(call, reads, key, "call", "a call has", reported.fields)
end

-- ---- key --------------------------------------------------------------------------------------

local SERVERS = {
  { "GET", "/users/8812/orders?page=2" }, { "GET", "/users/8813/orders?page=2" },
  { "POST", "/orders" }, { "GET", "/" },
}

local function request_of(sample)
  return { method = sample[1], target = sample[2], headers = { host = "shop.example" } }
end

local function key_of(made, call, reads)
  return made.key(strict(call, reads, "key", "call", "before a call there is", BEFORE))
end

--- What the function answers to a server's call: a key or nil | nil, a fault.
local function key_of_request(made, sample, reads)
  local request = strict_request(request_of(sample), reads, "key")
  return key_of(made, { args = { n = 1, request_of(sample) }, request = request }, reads)
end

local function key_of_program(made, reads)
  return key_of(made, { args = { n = 1, "users" } }, reads)
end

--- The keys of some requests, for people.
---@param made neap.Policy
---@return { request: string, key: string }[]
function trying.keys(made)
  local list = {}
  for i, sample in ipairs(made.key and SERVERS or {}) do
    local key = i ~= 2 and key_of_request(made, sample, {})
    if key then list[#list + 1] = { request = sample[1] .. " " .. sample[2], key = key } end
  end
  return list
end

local FOR_EACH = "a key for each id: %s and %s: route(call.request.target) gives %s"
local ALWAYS = "fails on every call it was tried with, as %s %s: %s"

local function try_key(made, reads, warn)
  local keys, faults, seen = {}, {}, {}
  for i, sample in ipairs(SERVERS) do
    local key, fault = key_of_request(made, sample, reads)
    keys[i], faults[#faults + 1] = key, fault
    if fault and not seen[fault] then
      seen[fault] = true
      seen[#seen + 1] = (", tried with %s %s: %s"):format(sample[1], sample[2], fault)
    end
  end
  local _, of_program = key_of_program(made, reads)
  if #faults == #SERVERS then
    if of_program then
      warn("key", ": " .. ALWAYS:format(SERVERS[1][1], SERVERS[1][2], faults[1]))
    end
    return
  end
  for _, text in ipairs(seen) do warn("key", text) end
  if keys[1] and keys[2] and keys[1] ~= keys[2] then
    warn("key", ": " .. FOR_EACH:format(problem.shown(keys[1]), problem.shown(keys[2]),
      problem.shown(route.new()(SERVERS[1][2]))))
  end
end

-- ---- All of them ------------------------------------------------------------------------------

local function try_calls(made, reads)
  for _, trial in ipairs(trials) do
    made.classify(strict_call(trials.call(trial), reads, "classify"))
    if made.retry and made.retry.on then
      made.retry.on(strict_call(trials.call(trial), reads, "retry.on"))
    end
  end
end

local function try_rules(made, reads)
  local snapshot = core.breaker():snapshot(made.rules, 0)
  local round = round_of(snapshot)
  if made.trip then
    snapshot.totals =
      strict(snapshot.totals, reads, "trip.decide", "snapshot.totals", "a snapshot has")
    made.trip(strict(snapshot, reads, "trip.decide", "snapshot", "a snapshot has"))
  end
  if made.decide then
    made.decide(strict(round, reads, "half_open.decide", "round", "a round has"))
  end
end

local TRANSITIONS = {
  { from = "closed", to = "open", cause = "failures", measured = 5, limit = 5, calls = 9, epoch = 1,
    level = 1, open_ms = 5000, flapping = false },
  { from = "half_open", to = "closed", cause = "probes", measured = 2, limit = 2, calls = 2,
    epoch = 2, level = 1, open_ms = 0, flapping = false },
}
local LONG_AGO_MS = -2 ^ 40 -- what it remembers of that is of no consequence

local TOLD = { text = true }
for _, field in ipairs(on_transition.fields) do TOLD[field] = true end

local function try_on_transition(made, reads, warn)
  for _, one in ipairs(TRANSITIONS) do
    local told = { policy = made.name, key = "default", hash = made.hash, at_ms = LONG_AGO_MS }
    for field, value in next, one do told[field] = value end
    local text = tostring(event.new(told))
    told.text = text
    local fault = made.on_transition(
      strict(told, reads, "on_transition", "event", "a transition has", TOLD))
    if fault then
      warn("on_transition", (", tried with %s -> %s: %s"):format(one.from, one.to, fault))
    end
  end
end

--- Tries what the policy has.
---@param made neap.Policy
---@param warn fun(key: string, text: string) of what may go wrong
---@return neap.trying.Read[]
function trying.policy(made, warn)
  local reads = {}
  try_calls(made, reads)
  try_rules(made, reads)
  if made.key then try_key(made, reads, warn) end
  if made.on_transition then try_on_transition(made, reads, warn) end
  return reads
end

return trying
