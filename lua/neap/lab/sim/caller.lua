--- A call that a service makes of another one: its breakers, its timeout, its retries.
--
--   try --> retry of the caller's own (scenario) --> policy: breaker, retry, budget --> attempt
--
-- The breakers are those of neap: guards of the policy on the simulation's clock.

local core = require "neap.core"
local guards = require "neap.guard"
local meter = require "neap.lab.sim.meter"

local caller = {}

local huge, min = math.huge, math.min

local QUIET_MS = 60000 -- after a fault: what opens by then may open because of it

---@class neap.lab.sim.Call
local Call = {}
Call.__index = Call

-- ---- Guards -----------------------------------------------------------------------------------

--- The policy with a seed of its own: every process has one, so that their jitter differs.
local function seeded(policy, seed)
  local numbers, copy = policy.rules:numbers(), {}
  numbers.seed = seed
  for key, value in pairs(policy) do copy[key] = value end
  copy.rules = assert(core.rules(numbers))
  return copy
end

local function no_log() end

local function opened(self, n, event, now_ms)
  if event.from == "closed" then self.opens = self.opens + 1 end
  if event.flapping then self.flaps = self.flaps + 1 end
  if not self.is_open[n] then
    self.is_open[n] = true
    self.open = self.open + 1
  end
  local is_quiet = self.faulty == 0
    and (not self.last_fault_ms or now_ms - self.last_fault_ms > QUIET_MS)
  if is_quiet and event.from == "closed" then self.opens_without = self.opens_without + 1 end
  local fault = self.faults[#self.faults]
  if fault and not fault.opened[n] then fault.opened[n] = now_ms - fault.from_ms end
end

local function closed(self, n, now_ms)
  if self.is_open[n] then
    self.is_open[n] = nil
    self.open = self.open - 1
  end
  local fault = self.faults[#self.faults]
  if fault and self.faulty == 0 then fault.closed[n] = now_ms - self.last_fault_ms end
end

local function moved(self, n, event)
  local now_ms = self.agenda.now
  if event.to == "open" then
    opened(self, n, event, now_ms)
  elseif event.to == "closed" then
    closed(self, n, now_ms)
  end
  self.slices:see("open", now_ms, self.open)
  self.slices:see("closed", now_ms, -self.open)
end

local function new_guard(self, n)
  self.made = self.made + 1
  local seed = self.world:seed_of(("%s %d %d"):format(self.name, n, self.made))
  local agenda = self.agenda
  return guards.new(seeded(self.policy, seed), {
    clock = function() return agenda.now + self.world.epoch_ms end, log = no_log,
    on_event = function(event) moved(self, n, event) end,
  })
end

local function guard_of(self, replica)
  if self.is_shared then
    self.shared = self.shared or new_guard(self, 1)
    return self.shared
  end
  local found = replica.guards[self.n]
  if not found then
    found = new_guard(self, replica.n)
    replica.guards[self.n] = found
    if self.is_open[replica.n] then -- of the life before
      self.is_open[replica.n] = nil
      self.open = self.open - 1
    end
  end
  return found
end

-- ---- Calls ------------------------------------------------------------------------------------

local attempt

local function over(call, ok)
  local self = call.self
  self.times:add(self.agenda.now - call.began_ms)
  return self.ended(call.request, self, ok)
end

local function try(call)
  call.attempts = 0
  return attempt(call)
end

--- A whole try has failed: the caller's own retry, if it has one.
local function failed(call)
  local self, retry = call.self, call.self.retry
  call.tries = call.tries + 1
  if not retry or call.tries >= retry.attempts or call.life ~= call.replica.life then
    return over(call, false)
  end
  self.retries = self.retries + 1
  local wait_ms = retry.wait_ms * retry.backoff ^ (call.tries - 1)
  if retry.jitter then wait_ms = wait_ms * self.uniform() end
  if wait_ms <= 0 then return try(call) end
  self.agenda:at(self.agenda.now + wait_ms, try, call)
end

local REQUEST = { method = "GET", target = "/", headers = {} }

--- What the policy is told of an attempt.
local function described(status, duration_ms)
  if status == "timeout" then
    return { ended_by = "timeout", error = "timeout", duration_ms = duration_ms,
      request = REQUEST }
  elseif status == "transport" then
    return { ended_by = "transport", phase = "connect", error = "connection refused",
      duration_ms = duration_ms, request = REQUEST }
  end
  return { status = status, ended_by = "answer", duration_ms = duration_ms, request = REQUEST }
end

local function send(made)
  local self = made.call.self
  self.sent = self.sent + 1
  self.slices:add("sent", self.agenda.now)
  return self.to:take(self.to:any(self.spread), made)
end

--- The replica's connections for this call; those who wait, from first to last.
local function pool_of(self, replica)
  local pool = replica.pools[self.n]
  if not pool then
    pool = { busy = 0, first = 1, last = 0 }
    replica.pools[self.n] = pool
  end
  return pool
end

local function send_when_free(made)
  local self = made.call.self
  if not self.connections then return send(made) end
  local pool = pool_of(self, made.call.replica)
  if pool.busy < self.connections then
    pool.busy, made.pool = pool.busy + 1, pool
    return send(made)
  end
  self.waited = self.waited + 1
  pool.last = pool.last + 1
  pool[pool.last] = made
end

--- The connection of an attempt goes to who waits and has not given up.
local function free(made)
  local pool = made.pool
  made.pool = nil
  while pool.first <= pool.last do
    local waiting = pool[pool.first]
    pool[pool.first] = nil
    pool.first = pool.first + 1
    if not waiting.is_over then
      waiting.pool = pool
      return send(waiting)
    end
  end
  pool.busy = pool.busy - 1
end

local function settled(made, status)
  local call = made.call
  local self, now_ms = call.self, call.self.agenda.now
  if made.pool then free(made) end
  local ok = status == 200
  if ok then
    self.ok = self.ok + 1
  else
    self.failed = self.failed + 1
    self.slices:add("failed", now_ms)
    if status == "timeout" then self.timeouts = self.timeouts + 1 end
  end
  local guard, report = made.guard, nil
  if guard then
    if ok and self.is_plain then
      guard:report(made.permit, "success")
    else
      report = described(status, now_ms - made.sent_ms)
      guard:report(made.permit, report)
    end
  end
  if ok then return over(call, true) end
  local wait_ms = guard and self.policy.retry and call.life == call.replica.life
    and guard:retry(report, call.attempts)
  if not wait_ms then return failed(call) end
  self.retries = self.retries + 1
  self.agenda:at(now_ms + wait_ms, attempt, call)
end

local function replied(made, status)
  if made.is_over then return end
  made.is_over = true
  return settled(made, status)
end

local function late(made)
  if made.is_over then return end
  made.is_over, made.is_gone = true, true
  return settled(made, "timeout")
end

local function refused(call, refusal)
  local self, target = call.self, call.self.to
  if refusal.kind == "bulkhead" then
    self.crowded = self.crowded + 1
    return failed(call)
  end
  self.refused = self.refused + 1
  self.slices:add("refused", self.agenda.now)
  if target:has_room(target:any(self.would)) then self.good_lost = self.good_lost + 1 end
  return failed(call)
end

function attempt(call)
  local self = call.self
  local guard, permit = self.policy and guard_of(self, call.replica), nil
  call.attempts = call.attempts + 1
  local now_ms = self.agenda.now
  if guard then
    local refusal
    permit, refusal = guard:acquire()
    if not permit then return refused(call, refusal) end
    if type(permit) == "userdata" and select(4, guard.line.native:about(permit)) == "probe" then
      self.probes = self.probes + 1
      self.slices:add("probes", now_ms)
      self.probe_peak:add(now_ms)
    end
  end
  local made = self.world:new_request()
  made.call, made.guard, made.permit, made.sent_ms = call, guard, permit, now_ms
  made.on_reply = replied
  if self.timeout_ms < huge then self.agenda:at(now_ms + self.timeout_ms, late, made) end
  return send_when_free(made)
end

--- A request of the service needs it now.
---@param request table
function Call:begin(request)
  self.calls = self.calls + 1
  self.slices:add("calls", self.agenda.now)
  return try {
    self = self, request = request, replica = request.replica, life = request.replica.life,
    began_ms = self.agenda.now, tries = 0, attempts = 0,
  }
end

--- Something goes wrong with what it calls, or with what that needs.
---@param fault table
function Call:fault_began(fault)
  self.faulty = self.faulty + 1
  if not self.policy then return end
  table.insert(self.faults, {
    kind = fault.kind, of = fault.service.name, from_ms = fault.begins_ms, to_ms = fault.ends_ms,
    opened = {}, closed = {},
  })
end

function Call:fault_ended()
  self.faulty, self.last_fault_ms = self.faulty - 1, self.agenda.now
end

---@param world table
---@param from table service
---@param spec table of the scenario
---@param to table service
---@param n integer of the service's calls
---@param ended fun(request: table, call: table, ok: boolean)
function caller.new(world, from, spec, to, n, ended)
  local name = from.name .. " -> " .. to.name
  local policy = spec.policy
  return setmetatable({
    world = world, agenda = world.agenda, from = from, to = to, n = n, name = name,
    share = spec.share, optional = spec.optional, retry = spec.retry, policy = policy,
    connections = spec.connections, waited = 0,
    is_shared = spec.breakers == "shared", is_plain = policy and not policy.has_classify,
    timeout_ms = min(spec.timeout_ms or huge, policy and policy.timeout_ms or huge),
    uniform = world:stream(name .. " chance"), spread = world:stream(name .. " spread"),
    would = world:stream(name .. " would"), ended = ended, made = 0,
    calls = 0, sent = 0, ok = 0, failed = 0, timeouts = 0, refused = 0, crowded = 0, retries = 0,
    probes = 0,
    good_lost = 0, opens = 0, opens_without = 0, flaps = 0, open = 0,
    is_open = {}, faults = {}, faulty = 0, times = meter.times(), probe_peak = meter.peak(),
    slices = meter.slices(world.slice_ms,
      { "calls", "sent", "failed", "refused", "probes", "open", "closed" }),
  }, Call)
end

return caller
