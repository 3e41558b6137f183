--- Simulates a scenario, each of its runs, and says what came of it: numbers by name, as --json has
--- them, and the slices that plots are made of.

local meter = require "neap.lab.sim.meter"
local world = require "neap.lab.sim.world"

local run = {}

local max = math.max

---@class (exact) neap.lab.sim.Result
---@field name string
---@field title string
---@field lesson? string
---@field seed integer
---@field duration_ms integer
---@field runs neap.lab.sim.RunResult[]

---@class neap.lab.sim.RunResult
---@field name string|nil
---@field params table<string, any>
---@field events integer
---@field requests table from outside: count, ok, failed, ok_share, p50_ms, p99_ms, and the same
---  before, during and after all faults
---@field services table[]
---@field calls table[]
---@field plot table slices; not for --json

local function share(part, whole) return whole > 0 and part / whole or nil end

--- To three digits, so that nobody takes more for real.
local function rounded(n)
  if not n or n == 0 or n ~= n or n == math.huge then return n end
  local scale = 10 ^ (2 - math.floor(math.log(math.abs(n), 10)))
  if scale <= 1 then return math.floor(n + 0.5) end
  return math.floor(n * scale + 0.5) / scale
end

local function of_phase(phase)
  return {
    count = phase.count, ok = phase.ok, failed = phase.count - phase.ok,
    ok_share = rounded(share(phase.ok, phase.count)), p50_ms = rounded(phase.times:at(0.5)),
    p99_ms = rounded(phase.times:at(0.99)),
  }
end

local function requests_of(made)
  local all = { count = 0, ok = 0, times = made.times }
  for _, phase in pairs(made.phases) do
    all.count, all.ok = all.count + phase.count, all.ok + phase.ok
  end
  local found = of_phase(all)
  for name, phase in pairs(made.phases) do found[name] = of_phase(phase) end
  return found
end

--- Amplification is how many requests a service gets for each that came from outside; at its peak,
--- how many a second for as many as come a second on average.
local function service_result(one, made, from_outside)
  local workers = one.spec.workers and one.spec.workers * #one.replicas
  local busy = 0
  for _, n in pairs(one.slices.names.busy) do busy = max(busy, n) end
  local peak_per_s = one.peak:most()
  local mean_per_s = from_outside / made.duration_ms * 1000
  return {
    name = one.name, replicas = #one.replicas, received = one.received, ok = one.ok,
    failed = one.failed, turned_away = one.turned_away, for_nobody = one.for_nobody,
    peak_per_s = peak_per_s, amplification = rounded(share(one.received, from_outside)),
    amplification_during = rounded(share(one.received_during, made.phases.during.count)),
    peak_amplification = rounded(share(peak_per_s, mean_per_s)),
    most_busy = busy, most_busy_share = workers and rounded(busy / workers) or nil,
  }
end

local function values(map)
  local list = {}
  for _, value in pairs(map) do list[#list + 1] = value end
  return list
end

--- What the breakers did in each fault of their target, and of what that needs.
local function faults_of(call)
  local list = {}
  for i, fault in ipairs(call.faults) do
    local opened, closed = values(fault.opened), values(fault.closed)
    list[i] = {
      kind = fault.kind, of = fault.of, from_ms = fault.from_ms, to_ms = fault.to_ms,
      opened = #opened, open_p50_ms = rounded(meter.quantile(opened, 0.5)),
      open_p99_ms = rounded(meter.quantile(opened, 0.99)), closed = #closed,
      close_p50_ms = rounded(meter.quantile(closed, 0.5)),
      close_p99_ms = rounded(meter.quantile(closed, 0.99)),
    }
  end
  return list
end

local function call_result(call)
  local per_s, per_tenth = call.probe_peak:most()
  local breakers = call.policy and (call.is_shared and 1 or #call.from.replicas) or 0
  return {
    from = call.from.name, to = call.to.name, breakers = breakers,
    policy = call.policy and call.policy.name or nil, calls = call.calls, sent = call.sent,
    ok = call.ok, failed = call.failed, timeouts = call.timeouts, refused = call.refused,
    refused_by_bulkhead = call.crowded, waited_for_connection = call.waited,
    retries = call.retries, p99_ms = rounded(call.times:at(0.99)),
    wasted_share = rounded(share(call.failed, call.sent)), probes = call.probes,
    probes_peak_per_s = per_s, probes_peak_per_tenth = per_tenth, good_lost = call.good_lost,
    opens = call.opens, opens_without_fault = call.opens_without, flaps = call.flaps,
    faults = call.policy and faults_of(call) or nil,
  }
end

local function p99s(made)
  local list = {}
  for i, times in pairs(made.slice_times) do list[i] = times:at(0.99) end
  return list
end

--- What plots show, by slices.
local function plot_of(made)
  local plot = {
    slice_ms = made.slice_ms, duration_ms = made.duration_ms, services = {}, calls = {},
    faults = {}, requests = made.slices.names, p99_ms = p99s(made),
  }
  for _, one in ipairs(made.services) do
    plot.services[#plot.services + 1] = { name = one.name, slices = one.slices.names,
      workers = one.spec.workers and one.spec.workers * #one.replicas }
    for _, fault in ipairs(one.faults) do
      table.insert(plot.faults, { from_ms = fault.begins_ms, kind = fault.kind, of = one.name,
        to_ms = math.min(fault.ends_ms, made.duration_ms) })
    end
    for _, call in ipairs(one.calls) do
      table.insert(plot.calls, { name = call.name, slices = call.slices.names,
        breakers = call.policy and (call.is_shared and 1 or #one.replicas) or 0 })
    end
  end
  return plot
end

local function result_of(scenario, made)
  local result = {
    name = scenario.run, params = {}, events = made.agenda.done, requests = requests_of(made),
    services = {}, calls = {}, plot = plot_of(made),
  }
  for _, row in ipairs(scenario.params) do result.params[row.name] = row.value end
  local from_outside = 0
  for _, phase in pairs(made.phases) do from_outside = from_outside + phase.count end
  for _, one in ipairs(made.services) do
    table.insert(result.services, service_result(one, made, from_outside))
    for _, call in ipairs(one.calls) do table.insert(result.calls, call_result(call)) end
  end
  return result
end

--- Simulates all runs of a scenario.
---@param loaded neap.lab.sim.Scenario[] as neap.lab.sim.scenario gave them
---@param options? { seed: integer|nil, progress: (fun(done: number, all: number,
---  events: integer))|nil } done: runs, and a share of the one that goes on
---@return neap.lab.sim.Result
function run.all(loaded, options)
  options = options or {}
  local first = loaded[1]
  local result = {
    name = first.name, title = first.title, lesson = first.lesson, seed = options.seed or 1,
    duration_ms = first.duration_ms, runs = {},
  }
  local step, events_before = options.progress, 0
  for i, one in ipairs(loaded) do
    local made = world.new(one, result.seed)
    made:run(step and function(part, events)
      step(i - 1 + part, #loaded, events_before + events)
    end)
    result.runs[i], events_before = result_of(one, made), events_before + made.agenda.done
    collectgarbage() -- thousands of breakers go with it
  end
  return result
end

return run
