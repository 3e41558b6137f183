--- A policy under test: a guard of it on a clock that the spec moves, a dependency that does what
--- the spec says, and a record of all that happened.
--
--   flags:calls(5, 503, { every_ms = 400 })        what is done
--   flags:is("open", "failures")                   what is expected then
--
-- Expectations answer the bench, so that sentences can go on.

local behind = require "neap.testing.behind"
local calls = require "neap.testing.calls"
local exchange = require "neap.testing.exchange"
local expect = require "neap.testing.expect"
local expected = require "neap.testing.expected"
local guard = require "neap.guard"
local outcomes = require "neap.testing.outcome"
local place = require "neap.testing.place"
local policies = require "neap.policy"
local problem = require "neap.problem"
local program = require "neap.testing.program"
local scratch = require "neap.testing.scratch"
local suggest = require "neap.suggest"
local timeline = require "neap.testing.timeline"
local worlds = require "neap.testing.world"

local bench = {}

local MOST_CALLS = 10000 -- until something is so
local DEFAULT = "default" -- the key of calls that have no other
local OVERFLOW = "*" -- of those whose key has no room

---@class (exact) neap.testing.Options of a policy under test
---@field params? table for the policy file
---@field max_keys? integer as of neap.guard
---@field state_dir? boolean false: there is none for its files; else a new one, if it has files

---@class (exact) neap.testing.CallOptions
---@field every_ms? number of calls: so long between the beginnings of two
---@field takes_ms? number how long the dependency takes, unless an outcome says otherwise
---@field deadline_ms? number the caller's, from the call's beginning
---@field request? table of a server: { method = "GET", target = "/", headers = {}, body = nil }
---@field args? table of a Lua function: what it is given; .n how many

---@class neap.testing.Bench a policy under test
---@field guard neap.Guard what is tested: all that the bench has no word for
---@field clock neap.ManualClock
---@field events neap.Event[] every transition so far
---@field log string[] every line of the guard's log so far
---@field world neap.testing.World
---@field rows neap.testing.Row[]
---@field waiters function[] calls that wait for a slot of a bulkhead, first come, first served
---@field private key string|nil of the calls, if it is not the policy's to say
local Bench = {}
for name, method in pairs(expected) do Bench[name] = method end
Bench.__index = Bench

-- ---- The record -------------------------------------------------------------------------------

local function note(self, row)
  row.at_ms = self.world:elapsed()
  self.rows[#self.rows + 1] = row
end

--- Tells what the breaker did meanwhile.
---@private
function Bench:settle()
  local told = self.told
  for i = 1, #told do
    note(self, { text = told[i] })
    told[i] = nil
  end
end

local function tell(self, text)
  self.told[#self.told + 1] = text
end

--- What the breaker is like now.
---@private
---@return neap.Snapshot
function Bench:seen()
  local snapshot = self.guard:snapshot(self.key)
  if not snapshot then place.error("no call was of the key %s yet", problem.shown(self.key)) end
  return snapshot
end

--- The breaker that is expected to be so; by its key where there are several.
---@private
---@return string
function Bench:breaker_name()
  if self.key then return "the breaker of the key " .. self.key end
  for _, row in ipairs(self.guard:breakers()) do
    if row.key ~= DEFAULT and row.key ~= OVERFLOW then
      return "the breaker of the key " .. DEFAULT
    end
  end
  return "the breaker"
end

local function came_to(call)
  local text = call.refused and "refused: " .. call.refused or call.outcome or "nothing"
  if call.is_probe then text = "probe: " .. text end
  if call.source ~= "primary" and call.source ~= "nobody" then
    text = ("%s, %s answers"):format(text, call.source)
  end
  return text
end

---@private
function Bench:note_call(call)
  local what = table.concat(call.texts, ", ")
  local snapshot = self.guard:snapshot(call.key) or self.guard:snapshot() -- its key may have gone
  if call.key ~= DEFAULT then call.about = ("%s of %s"):format(call.about, call.key) end
  local row = {
    what = ("%s %d%s%s"):format(call.name, call.n, call.about, what ~= "" and ": " .. what or ""),
    came_to = came_to(call), state = snapshot.state,
    window = timeline.window(snapshot),
  }
  row.alike = table.concat({ call.name, call.about, what, row.came_to, row.state }, "\n")
  note(self, row)
  self:settle()
end

-- ---- Calls ------------------------------------------------------------------------------------

local OPTIONS = { "params", "max_keys", "state_dir" }
local CALL_OPTIONS = { "every_ms", "takes_ms", "deadline_ms", "request", "args" }

local function check_options(options, known)
  if options == nil then return {} end
  if type(options) ~= "table" then
    place.error("options must be a table, got %s", problem.shown(options))
  end
  for name in pairs(options) do
    local is_known = false
    for _, one in ipairs(known) do is_known = is_known or one == name end
    if not is_known then
      place.error("there is no option %s%s", problem.shown(name), suggest.hint(name, known))
    end
  end
  return options
end

--- A call may be refused: only a dependency that is asked must have something to say.
local UNSAID = {
  is_lua = false, is_http = true,
  next = function()
    place.error "what does the dependency do? Say so, as in :call(200), or by :dependency(200)"
  end,
}

--- The script of a call, or of the dependency.
---@private
function Bench:read(given)
  if given ~= nil then return outcomes.script(given) end
  return self.counts.dependency or UNSAID
end

local function request_of(given)
  local headers = {}
  for name, value in pairs(given.headers or {}) do headers[name:lower()] = tostring(value) end
  return {
    method = given.method or "GET", target = given.target or "/", headers = headers,
    body = given.body,
  }
end

---@private
function Bench:new_call(name)
  self.counts.calls = self.counts.calls + 1
  return {
    n = self.counts.calls, name = name, about = "", key = self.key,
    at_ms = self.world:elapsed(), took_ms = 0, attempts = 0, waits_ms = {}, texts = {},
    is_probe = false, is_over = false,
  }
end

--- Begins a call in steps.
local function begin(self, script, options)
  local call = self:new_call("call")
  local x = {
    bench = self, call = call, script = script, args = options.args or { n = 0 },
    takes_ms = options.takes_ms, deadline_ms = options.deadline_ms,
    done = function() self:note_call(call) end,
  }
  x.refresh = function(ended) behind.refresh(self, x, ended) end
  if not script or script.is_http then
    x.request = request_of(options.request or {})
    x.args, call.request = { x.request, n = 1 }, x.request
    if options.request then
      call.about = (" %s %s"):format(x.request.method, x.request.target)
    end
  end
  exchange.begin(x)
  return call
end

-- ---- What a spec does -------------------------------------------------------------------------

--- Makes a call, and waits until it is over.
---@param outcome? any what the dependency does: a status, a text, a table, a function, or a list of
---  them, one for each attempt; without: as :dependency says
---@param options? neap.testing.CallOptions
---@return neap.testing.Calls
function Bench:call(outcome, options)
  return self:calls(1, outcome, options)
end

--- Makes so many calls, one after the other.
---@param n integer
---@param outcome? any
---@param options? neap.testing.CallOptions
---@return neap.testing.Calls
function Bench:calls(n, outcome, options)
  options = check_options(options, CALL_OPTIONS)
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
    place.error("how many calls? %s is no number of them", problem.shown(n))
  end
  local list = {}
  for i = 1, n do
    if i > 1 and options.every_ms then
      local next_ms = list[i - 1].at_ms + options.every_ms
      self.world:advance(math.max(0, next_ms - self.world:elapsed()))
    end
    self.world:advance(0)
    local script = self:read(outcome)
    local call
    if script.is_lua then
      call = self:new_call "call"
      program.call(self, call, script, options)
      self:note_call(call)
    else
      call = begin(self, script, options)
      self.world:wait_until(function() return call.is_over end)
    end
    self.world:advance(0)
    list[i] = call
  end
  return calls.new(self, list)
end

--- Begins a call that is under way from then on: with an outcome that takes its time it ends when
--- it is due; without one when :ends_with says so, or never.
---@param outcome? any
---@param options? neap.testing.CallOptions
---@return neap.testing.Calls
function Bench:start(outcome, options)
  options = check_options(options, CALL_OPTIONS)
  self.world:advance(0)
  local call = begin(self, outcome ~= nil and outcomes.script(outcome) or nil, options)
  if not call.is_over then
    self.started[#self.started + 1] = call -- a permit that nobody holds is given back
    note(self, { text = ("call %d%s begins"):format(call.n, call.about) })
    self:settle()
  end
  return calls.new(self, { call })
end

--- Makes calls until the breaker is in that state.
---@param state neap.State
---@param outcome? any
---@param options? neap.testing.CallOptions
---@return neap.testing.Bench
function Bench:calls_until(state, outcome, options)
  for _ = 1, MOST_CALLS do
    local snapshot = self.guard:snapshot(self.key)
    if snapshot and snapshot.state == state then return self end
    self:calls(1, outcome, options)
  end
  local name = self:breaker_name()
  expect.fail(self, ("%s is %s"):format(name, state),
    ("after %d calls %s is %s"):format(MOST_CALLS, name, self:seen().state))
end

--- Lets the time go by.
---@param ms number
---@return neap.testing.Bench
function Bench:advance(ms)
  if type(ms) ~= "number" or ms ~= ms or ms < 0 or ms == math.huge then
    place.error("how many ms? %s is none", problem.shown(ms))
  end
  self.world:advance(ms)
  note(self, { text = ("%.14g ms have gone by"):format(ms) })
  self:settle()
  return self
end

--- For functions that a call runs: they take so long.
---@param ms number
function Bench:wait(ms)
  self.world:wait(ms)
end

--- Lets the cooldown of an open breaker pass, to the millisecond.
---@return neap.testing.Bench
function Bench:cool_down()
  local snapshot = self:seen()
  if snapshot.state ~= "open" then
    local name = self:breaker_name()
    expect.fail(self, name .. " is open, to cool down", ("%s is %s"):format(name, snapshot.state))
  end
  return self:advance(snapshot.retry_after_ms)
end

--- What the dependency does from now on, where a call does not say so itself: calls of a queue,
--- refreshes, and a guard that is another one's fallback.
---@param outcome any
---@return neap.testing.Bench
function Bench:dependency(outcome)
  self.counts.dependency = outcomes.script(outcome)
  return self
end

--- The same policy by one key: what it does and expects is about that breaker.
---@param key string
---@return neap.testing.Bench
function Bench:at(key)
  return setmetatable({ key = key, root = self.root or self }, {
    __index = self.root or self,
  })
end

--- The guard ends, and begins anew with the files it had, as in a program that is started again.
---@return neap.testing.Bench
function Bench:restart()
  local root = self.root or self
  root.guard:close()
  note(self, { text = "the program is started again" })
  root:open()
  return self
end

-- ---- Making one -------------------------------------------------------------------------------

local function has_files(policy)
  for _, stage in ipairs(policy.stages) do
    if stage.persist or stage.kind == "queue" then return true end
  end
  return false
end

local function host_of(self)
  local host = self.world:host()
  host.question = behind.question
  host.replay = function(_, entry, done) behind.replay(self, entry, done) end
  return host
end

--- Policies that fallbacks name are the files of those names beside this one.
local function others_of(self)
  local directory = self.path:match("^(.*/)[^/]*$") or ""
  return function(name)
    if self.others[name] == nil then
      local path = directory .. name .. ".lua"
      local found = io.open(path)
      if found then found:close() end
      self.others[name] = found and bench.new(path, {}, self.world, self.rows) or false
    end
    return self.others[name] and self.others[name].guard or nil
  end
end

--- The guard of another policy, which this one's fallback names: its file is beside this one's.
---@param name string
---@return neap.testing.Bench
function Bench:other(name)
  if not self.find(name) then place.error("there is no policy %s beside %s", name, self.path) end
  local other = self.others[name]
  function other.guard.serve(...)
    local outcome = other:read(nil).next()
    other.world:wait(outcome.takes_ms or outcome.is_endless and math.huge or 0)
    if outcome.f then return outcome.f(...) end
    if outcome.fields.status then return outcome.fields end
    return outcome.fields.result, outcome.fields.error
  end
  return other
end

---@private
function Bench:open()
  self.guard = guard.new(self.policy, {
    max_keys = self.max_keys, host = host_of(self), clock = self.clock, guards = self.find,
    state_dir = self.state_dir,
    log = function(level, text)
      self.log[#self.log + 1] = text
      tell(self, ("%s: %s"):format(level, text))
    end,
    on_shadow = function(told)
      tell(self, (tostring(told):gsub("^[^:]*: ", "")))
    end,
    on_event = function(told)
      self.events[#self.events + 1] = told
      tell(self, (tostring(told):gsub("^[^:]*: ", "")))
    end,
  })
  if self.is_tended then behind.tend(self, self.guard) end
end

--- The file as it is found: beside the spec, else from here.
local function found(path)
  local spec = place.here()
  local directory = spec and spec:match("^(.*/)[^/]*$")
  if not directory or path:sub(1, 1) == "/" then return path end
  local file = io.open(directory .. path)
  if not file then return path end
  file:close()
  return directory .. path
end

--- Puts a policy on the bench.
---@param path string of its file
---@param options neap.testing.Options
---@param world neap.testing.World|nil of the policy that names it
---@param rows neap.testing.Row[]|nil
---@return neap.testing.Bench
function bench.new(path, options, world, rows)
  local policy, err = policies.load(path, { params = options.params, strict = true })
  if not policy then place.error("%s", tostring(err)) end
  local self = setmetatable({
    path = path, policy = policy, max_keys = options.max_keys, world = world or worlds.new(),
    rows = rows or {}, told = {}, events = {}, log = {}, counts = { calls = 0 },
    waiters = {}, made_again = {}, started = {}, others = {},
  }, Bench)
  self.clock, self.find = self.world.clock, others_of(self)
  local numbers = policy.rules:numbers()
  self.is_tended = has_files(policy) or numbers.slow_rate > 0 or numbers.slow_call_ms > 0
  if has_files(policy) and options.state_dir ~= false then self.state_dir = scratch.directory() end
  self:open()
  self:settle()
  return self
end

--- As new, for a spec.
function bench.of_spec(path, options)
  if type(path) ~= "string" then
    place.error("which policy? %s is no path of a file", problem.shown(path))
  end
  return bench.new(found(path), check_options(options, OPTIONS))
end

return bench
