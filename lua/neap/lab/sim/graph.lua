--- Who calls whom: in an order in which it reads, and without circles.

local problem = require "neap.problem"
local suggest = require "neap.suggest"

local graph = {}

local MOST_REQUESTS = 50e6

local function by_name(services)
  local found, names = {}, {}
  for i, service in ipairs(services) do found[service.name], names[i] = service, service.name end
  return found, names
end

local function check_targets(services, found, names, report)
  for _, service in ipairs(services) do
    for _, call in ipairs(service.calls) do
      if call.to and not found[call.to] then
        report(call.path .. ".to", call.to, "there is no service %s%s", problem.shown(call.to),
          suggest.hint(call.to, names))
      end
    end
  end
end

--- Visits a service and all whom it calls; answers the names of a circle, if there is one.
local function visit(service, found, seen, order)
  if seen[service] == "done" then return nil end
  if seen[service] then return service.name end
  seen[service] = "open"
  for _, call in ipairs(service.calls) do
    local circle = found[call.to] and visit(found[call.to], found, seen, order)
    if circle then return service.name .. " -> " .. circle end
  end
  seen[service] = "done"
  table.insert(order, 1, service)
end

local function requests_of(arrivals, duration_ms)
  local ms = math.max(0, math.min(arrivals.to_ms or duration_ms, duration_ms)
    - (arrivals.from_ms or 0))
  if arrivals.per_s then return arrivals.per_s * ms / 1000 end
  if arrivals.size and arrivals.every_ms then return arrivals.size * ms / arrivals.every_ms end
  if arrivals.count and arrivals.think_ms then return arrivals.count * ms / arrivals.think_ms end
  return 0
end

--- The services, callers before those they call; problems are reported.
---@param services table[]
---@param report neap.report
---@param duration_ms integer|nil
---@return table[]
function graph.order(services, report, duration_ms)
  local found, names = by_name(services)
  check_targets(services, found, names, report)
  local seen, order, requests, is_asked = {}, {}, 0, false
  for i = #services, 1, -1 do
    local service = services[i]
    local circle = visit(service, found, seen, order)
    if circle then
      report(service.path .. ".calls", nil, "go in a circle: %s", circle)
      return {}
    end
    is_asked = is_asked or service.is_asked
    for _, arrivals in ipairs(service.arrivals) do
      requests = requests + requests_of(arrivals, duration_ms or 0)
    end
  end
  if not is_asked then
    report("services", nil, 'nobody asks for anything: one of them needs arrivals, e.g. { { kind '
      .. '= "poisson", per_s = 100 } }')
  elseif requests > MOST_REQUESTS then
    report("services", nil, "it would be %.0f million requests: %.0f million are the most",
      requests / 1e6, MOST_REQUESTS / 1e6)
  end
  return order
end

return graph
