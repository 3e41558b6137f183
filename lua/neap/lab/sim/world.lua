--- A simulation at work: the clock, chance, the services, and what the requests from outside come
--- to.

local agenda = require "neap.lab.sim.agenda"
local meter = require "neap.lab.sim.meter"
local random = require "neap.lab.sim.random"
local service = require "neap.lab.sim.service"

local world = {}

local STEPS = 200
local PHASES = { "before", "during", "after" }

---@class neap.lab.sim.World
---@field agenda neap.lab.sim.Agenda
---@field epoch_ms integer what the breakers' clock shows at the beginning
---@field slice_ms number
---@field services table[]
local World = {}
World.__index = World

---@param name string
---@return fun(): number
function World:stream(name) return random.stream(self.seed, name) end

--- A seed for something by name.
---@param name string
---@return integer
function World:seed_of(name) return math.floor(random.stream(self.seed, name)() * 2 ^ 52) end

--- A request, which knows when it came; by number, so that all orders are the same each time.
function World:new_request()
  self.requests = self.requests + 1
  return { number = self.requests, came_ms = self.agenda.now, phase = self.phase }
end

function World:fault_began()
  self.faulty, self.phase = self.faulty + 1, "during"
end

function World:fault_ended()
  self.faulty = self.faulty - 1
  if self.faulty == 0 then self.phase = "after" end
end

--- A request from outside has its answer.
function World:answered(request, ok)
  local now_ms = self.agenda.now
  local took_ms, phase = now_ms - request.came_ms, self.phases[request.phase]
  phase.count, phase.ok = phase.count + 1, phase.ok + (ok and 1 or 0)
  phase.times:add(took_ms)
  self.times:add(took_ms)
  local slices = self.slices
  slices:add(ok and "ok" or "failed", now_ms)
  local i = math.floor(now_ms / slices.ms) + 1
  local of_slice = self.slice_times[i]
  if not of_slice then
    of_slice = meter.times()
    self.slice_times[i] = of_slice
  end
  of_slice:add(took_ms)
end

--- Lets the whole time go by.
---@param progress? fun(share: number, events: integer)
function World:run(progress)
  for i = 1, STEPS do
    self.agenda:run(self.duration_ms * i / STEPS)
    if progress then progress(i / STEPS, self.agenda.done) end
  end
end

---@param scenario neap.lab.sim.Scenario
---@param seed integer
---@return neap.lab.sim.World
function world.new(scenario, seed)
  local self = setmetatable({
    agenda = agenda.new(), seed = seed, epoch_ms = 1000000, duration_ms = scenario.duration_ms,
    slice_ms = meter.slice_ms(scenario.duration_ms), services = {}, requests = 0,
    phase = "before", faulty = 0, phases = {}, times = meter.times(), slice_times = {},
  }, World)
  self.slices = meter.slices(self.slice_ms, { "ok", "failed" })
  for _, name in ipairs(PHASES) do
    self.phases[name] = { name = name, count = 0, ok = 0, times = meter.times() }
  end
  local by_name = {}
  for i, spec in ipairs(scenario.services) do
    self.services[i] = service.new(self, spec)
    by_name[spec.name] = self.services[i]
  end
  for _, one in ipairs(self.services) do one:connect(by_name) end
  for _, one in ipairs(self.services) do
    for _, call in ipairs(one.calls) do call.to:watch(call) end
  end
  for _, one in ipairs(self.services) do one:begin(scenario.duration_ms) end
  return self
end

return world
