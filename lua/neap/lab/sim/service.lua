--- A service: replicas that take requests, work on them, call others, and have faults.
--
--   request --> a worker, or the queue, or 503 --> its own work --> calls, one by one --> answer
--                     held all the time until the answer
--
-- A request is a table whose on_reply(request, status) is called once: 200, a 5xx, or "transport".
-- Whoever waits for it may leave: then is_gone is set, and the work goes on for nobody.

local caller = require "neap.lab.sim.caller"
local meter = require "neap.lab.sim.meter"
local random = require "neap.lab.sim.random"

local service = {}

local floor, max, min = math.floor, math.max, math.min

local TRIP_MS = 1 -- a refusal takes as long as it takes to be told

---@class neap.lab.sim.Service
local Service = {}
Service.__index = Service

---@class neap.lab.sim.Replica
---@field n integer
---@field busy integer workers
---@field life integer counts restarts
---@field fault table|nil that is now
---@field inside table<table, true> requests that it has
---@field guards table<integer, neap.Guard> by call
---@field pools table<integer, table> of connections, by call
---@field waiting table[] requests, from first to last
---@field first integer
---@field last integer

-- ---- Requests ---------------------------------------------------------------------------------

local function reply(request)
  request.on_reply(request, request.status)
end

local function answer_at_once(self, request, status)
  request.status = status
  self.agenda:at(self.agenda.now + TRIP_MS, reply, request)
end

local function slowness(replica, now_ms)
  local fault, factor = replica.fault, 1
  if fault and fault.slower then factor = fault.slower end
  if replica.cold_until and now_ms < replica.cold_until then
    local left = (replica.cold_until - now_ms) / replica.cold_ms
    factor = factor * (1 + (replica.cold_slower - 1) * left)
  end
  return factor
end

local start

local function set_busy(self, replica, by)
  replica.busy = replica.busy + by
  self.busy = self.busy + by
  if by > 0 then self.slices:see("busy", self.agenda.now, self.busy) end
end

local function workers_of(self, replica)
  local fault = replica.fault
  return fault and fault.workers or self.spec.workers
end

--- Whoever waits takes the workers that are free.
local function next_waiting(self, replica)
  local workers = workers_of(self, replica)
  while replica.first <= replica.last and replica.busy < workers do
    local request = replica.waiting[replica.first]
    replica.waiting[replica.first] = nil
    replica.first = replica.first + 1
    start(request)
  end
end

local function finish(request, status)
  local self, replica = request.service, request.replica
  local now_ms = self.agenda.now
  replica.inside[request] = nil
  set_busy(self, replica, -1)
  if status == 200 then
    self.ok = self.ok + 1
    self.slices:add("ok", now_ms)
  else
    self.failed = self.failed + 1
    self.slices:add("failed", now_ms)
  end
  if request.is_gone then self.for_nobody = self.for_nobody + 1 end
  request.on_reply(request, status)
  if replica.first <= replica.last then next_waiting(self, replica) end
end

--- Makes the calls that are left, then answers.
local function go_on(request)
  local self = request.service
  local calls = self.calls
  local i = request.call_n + 1
  while calls[i] and calls[i].share < 1 and calls[i].uniform() >= calls[i].share do i = i + 1 end
  request.call_n = i
  if calls[i] then return calls[i]:begin(request) end
  return finish(request, 200)
end

--- A call of the request has ended.
local function call_ended(request, call, ok)
  if request.life ~= request.replica.life then return end
  if ok or call.optional then return go_on(request) end
  return finish(request, 502)
end

local function worked(request)
  local self, replica = request.service, request.replica
  if request.life ~= replica.life then return end
  local fault = replica.fault
  local error_rate = fault and fault.error_rate or self.spec.error_rate
  if error_rate > 0 and self.uniform() < error_rate then return finish(request, 500) end
  return go_on(request)
end

function start(request)
  local self, replica = request.service, request.replica
  local now_ms = self.agenda.now
  set_busy(self, replica, 1)
  local fault, ms = replica.fault, self.latency and self.latency() or 0
  ms = ms * slowness(replica, now_ms)
  if fault and fault.how == "hang" then ms = ms + fault.ends_ms - now_ms end
  if ms <= 0 then return worked(request) end
  self.agenda:at(now_ms + ms, worked, request)
end

local function turn_away(self, request)
  self.turned_away = self.turned_away + 1
  self.slices:add("turned_away", self.agenda.now)
  answer_at_once(self, request, 503)
end

--- Takes a request.
---@param replica neap.lab.sim.Replica
---@param request table
function Service:take(replica, request)
  local now_ms = self.agenda.now
  self.received = self.received + 1
  if self.world.faulty > 0 then self.received_during = self.received_during + 1 end
  self.slices:add("received", now_ms)
  self.peak:add(now_ms)
  local fault = replica.fault
  if fault and (fault.kind == "restart" or fault.how == "refuse") then
    return answer_at_once(self, request, "transport")
  elseif fault and fault.how == "error" then
    return answer_at_once(self, request, 503)
  end
  request.service, request.replica, request.life = self, replica, replica.life
  request.call_n = 0
  local workers = workers_of(self, replica)
  if workers and replica.busy >= workers then
    if replica.last - replica.first + 1 >= self.spec.queue then return turn_away(self, request) end
    replica.last = replica.last + 1
    replica.waiting[replica.last] = request
    replica.inside[request] = true
    return
  end
  replica.inside[request] = true
  start(request)
end

--- Any of the replicas.
---@param uniform fun(): number
---@return neap.lab.sim.Replica
function Service:any(uniform)
  local replicas = self.replicas
  return #replicas == 1 and replicas[1] or replicas[floor(uniform() * #replicas) + 1]
end

--- Would a request have been served by that replica, as far as can be told?
---@param replica neap.lab.sim.Replica
---@return boolean
function Service:has_room(replica)
  if replica.fault then return false end
  for _, call in ipairs(self.calls) do
    if call.faulty > 0 and not call.optional then return false end
  end
  local workers = self.spec.workers
  return not workers or replica.busy < workers
    or replica.last - replica.first + 1 < self.spec.queue
end

-- ---- Faults -----------------------------------------------------------------------------------

--- What a replica was serving is lost, and its breakers with it.
local function restart(self, replica)
  local lost = replica.inside
  set_busy(self, replica, -replica.busy)
  replica.inside, replica.waiting, replica.first, replica.last = {}, {}, 1, 0
  replica.life, replica.guards, replica.pools = replica.life + 1, {}, {}
  local order = {}
  for request in pairs(lost) do order[#order + 1] = request end
  table.sort(order, function(a, b) return a.number < b.number end)
  for _, request in ipairs(order) do answer_at_once(self, request, "transport") end
end

local function affected(self, fault)
  return min(#self.replicas, math.ceil(fault.share * #self.replicas))
end

local function fault_ends(fault)
  local self = fault.service
  for _, call in ipairs(self.watchers) do call:fault_ended() end
  self.world:fault_ended()
  for i = 1, affected(self, fault) do
    local replica = self.replicas[i]
    if replica.fault == fault then
      replica.fault = nil
      if fault.kind == "restart" and fault.cold_ms > 0 then
        replica.cold_ms, replica.cold_until = fault.cold_ms, self.agenda.now + fault.cold_ms
        replica.cold_slower = fault.cold_slower
      end
      if replica.first <= replica.last then next_waiting(self, replica) end
    end
  end
end

local function fault_begins(fault)
  local self = fault.service
  for _, call in ipairs(self.watchers) do call:fault_began(fault) end
  self.world:fault_began()
  self.agenda:at(fault.ends_ms, fault_ends, fault)
  for i = 1, affected(self, fault) do
    local replica = self.replicas[i]
    replica.fault = fault
    if fault.kind == "restart" then restart(self, replica) end
  end
end

--- All faults, each time that they come, soonest first.
local function faults_of(self, duration_ms)
  local list = {}
  for _, spec in ipairs(self.spec.faults) do
    local from_ms = spec.from_ms
    repeat
      local fault = { service = self, begins_ms = from_ms, ends_ms = from_ms + spec.for_ms }
      for key, value in pairs(spec) do fault[key] = value end
      list[#list + 1] = fault
      from_ms = from_ms + (spec.every_ms or duration_ms)
    until from_ms >= duration_ms
  end
  table.sort(list, function(a, b) return a.begins_ms < b.begins_ms end)
  return list
end

-- ---- Arrivals ---------------------------------------------------------------------------------

local function answered(request, status)
  request.source.world:answered(request, status == 200)
  if request.again then request.again() end
end

--- A request from outside.
local function arrive(self, again)
  local request = self.world:new_request()
  request.source, request.on_reply, request.again = self, answered, again
  self:take(self:any(self.spread), request)
end

local kinds = {}

function kinds.poisson(self, spec, uniform)
  local mean_ms = 1000 / spec.per_s
  local function next_one()
    arrive(self)
    local at = self.agenda.now - mean_ms * math.log(1 - uniform())
    if at < spec.to_ms then self.agenda:at(at, next_one) end
  end
  self.agenda:at(spec.from_ms - mean_ms * math.log(1 - uniform()), next_one)
end

function kinds.even(self, spec)
  local every_ms, n = 1000 / spec.per_s, 0
  local function next_one()
    arrive(self)
    n = n + 1
    local at = spec.from_ms + n * every_ms
    if at < spec.to_ms then self.agenda:at(at, next_one) end
  end
  self.agenda:at(spec.from_ms, next_one)
end

function kinds.bursts(self, spec)
  local function burst()
    for _ = 1, spec.size do arrive(self) end
    local at = self.agenda.now + spec.every_ms
    if at < spec.to_ms then self.agenda:at(at, burst) end
  end
  self.agenda:at(spec.from_ms, burst)
end

function kinds.users(self, spec, uniform)
  for _ = 1, spec.count do
    local ask
    local function think()
      local at = self.agenda.now - spec.think_ms * math.log(1 - uniform())
      if at < spec.to_ms then self.agenda:at(at, ask) end
    end
    function ask() arrive(self, think) end
    self.agenda:at(max(0, spec.from_ms - spec.think_ms * math.log(uniform() + 1e-12)), ask)
  end
end

-- ---- Making one -------------------------------------------------------------------------------

--- Begins its arrivals and plans its faults: once all services are there.
function Service:begin(duration_ms)
  self.faults = faults_of(self, duration_ms)
  for _, fault in ipairs(self.faults) do self.agenda:at(fault.begins_ms, fault_begins, fault) end
  for i, spec in ipairs(self.spec.arrivals) do
    local copy = { to_ms = duration_ms }
    for key, value in pairs(spec) do copy[key] = value end
    kinds[spec.kind](self, copy, self.world:stream(("%s arrivals %d"):format(self.name, i)))
  end
end

---@param world table
---@param spec table of the scenario
function service.new(world, spec)
  local self = setmetatable({
    world = world, agenda = world.agenda, name = spec.name, spec = spec, replicas = {},
    uniform = world:stream(spec.name .. " errors"), spread = world:stream(spec.name .. " spread"),
    received = 0, ok = 0, failed = 0, turned_away = 0, for_nobody = 0, busy = 0,
    received_during = 0, peak = meter.peak(), calls = {}, watchers = {},
    slices = meter.slices(world.slice_ms, { "received", "ok", "failed", "turned_away", "busy" }),
  }, Service)
  if spec.latency then
    self.latency = random.sampler(spec.latency, world:stream(spec.name .. " latency"))
  end
  for n = 1, spec.replicas do
    self.replicas[n] = {
      n = n, busy = 0, life = 0, inside = {}, guards = {}, pools = {}, waiting = {}, first = 1,
      last = 0,
    }
  end
  return self
end

--- Its calls: once all services are there.
function Service:connect(services)
  for i, spec in ipairs(self.spec.calls) do
    self.calls[i] = caller.new(self.world, self, spec, services[spec.to], i, call_ended)
  end
end

--- A call is told of the faults of this service, and of all that this one can't do without.
function Service:watch(call)
  table.insert(self.watchers, call)
  for _, own in ipairs(self.calls) do
    if not own.optional then own.to:watch(call) end
  end
end

return service
