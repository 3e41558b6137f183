--- Loading a scenario: text -> sandbox -> checks -> what is to be simulated, once for each of its
--- runs.
--
--   local loaded, err = scenario.load("storm.lua", { settings = { … }, policy = "mine.lua" })
--
-- A scenario is a table, as a policy is, and mistakes in it are told as a policy's are.

local core = require "neap.core"
local declared = require "neap.declared"
local graph = require "neap.lab.sim.graph"
local parameters = require "neap.parameters"
local placed = require "neap.placed"
local policies = require "neap.policy"
local problem = require "neap.problem"
local sandbox = require "neap.sandbox"
local schema = require "neap.lab.sim.schema"
local suggest = require "neap.suggest"
local validate = require "neap.validate"

local scenario = {}

local shown = problem.shown
local MOST_BYTES = 256 * 1024
local MOST_RUNS, MOST_SERVICES, MOST_PARTS = 8, 100, 50

---@class neap.lab.sim.Scenario of one run
---@field name string
---@field title string
---@field lesson? string
---@field duration_ms integer
---@field services table[] those that are asked from outside first, then whom they call
---@field run string|nil its name, where there are several
---@field params neap.declared.row[]

---@class (exact) neap.lab.sim.LoadOptions
---@field settings? neap.Setting[] of params, before those of the runs
---@field policy? string a file, in place of every policy of the scenario
---@field read? fun(path: string): string|nil, string|nil

-- ---- One value --------------------------------------------------------------------------------

local FAULTS = {}

function FAULTS.positive(spec, value)
  local most = spec.max or 1e12
  if type(value) ~= "number" or value ~= value then
    return ("%s is not a number: a number over 0 is needed"):format(shown(value))
  end
  if value <= 0 or value > most then
    return ("%s is out of range: a number over 0, up to %.14g"):format(shown(value), most)
  end
end

function FAULTS.list(_, value)
  if type(value) ~= "table" or rawget(value, 1) == nil and next(value) ~= nil then
    return ("%s: a list is needed, { { … }, … }"):format(shown(value))
  end
end

function FAULTS.distribution(_, value)
  if type(value) == "number" and value >= 0 and value < 1e12 or type(value) == "table" then
    return nil
  end
  return ('%s: milliseconds, or a table such as { kind = "exponential", mean_ms = 20 }')
    :format(shown(value))
end

function FAULTS.policy(_, value)
  if type(value) == "table" or type(value) == "string" and value ~= "" then return nil end
  return ("%s: a policy's file, or a table of its keys"):format(shown(value))
end

local function fault_of(spec, value)
  return (FAULTS[spec.kind] or validate.fault)(spec, value)
end

local function against(self, specs, given, path)
  return validate.against(specs, given, path, self.report, fault_of)
end

--- Each entry of a list that is a table, with its path.
local function entries(self, list, path, read)
  local out = {}
  for i = 1, #(list or {}) do
    local of = ("%s[%d]"):format(path, i)
    local one = rawget(list, i)
    if i > MOST_PARTS then
      self.report(path, nil, "has more than %d entries", MOST_PARTS)
      break
    elseif type(one) ~= "table" then
      self.report(of, one, "%s: a table is needed", shown(one))
    else
      out[#out + 1] = read(one, of)
    end
  end
  return out
end

--- A table whose kind says what else is in it.
local function of_kind(self, what, given, path)
  local kinds, names = schema.kinds[what], {}
  for name in pairs(kinds) do names[#names + 1] = name end
  table.sort(names)
  local kind = rawget(given, "kind")
  if not kinds[kind] then
    local choices = '"' .. table.concat(names, '", "') .. '"'
    local message = kind == nil and "is missing: one of " .. choices
      or ("%s is not one of %s%s"):format(shown(kind), choices, suggest.hint(kind, names))
    self.report(path .. ".kind", kind, "%s", message)
    return nil
  end
  local specs = { { key = "kind", kind = "choice", choices = names } }
  for _, spec in ipairs(kinds[kind]) do specs[#specs + 1] = spec end
  return against(self, specs, given, path)
end

-- ---- Parts ------------------------------------------------------------------------------------

local function read_latency(self, given, path)
  if type(given) == "number" then return { kind = "constant", ms = given } end
  local spec = of_kind(self, "latency", given, path)
  if not spec then return nil end
  if spec.kind == "lognormal" and spec.median_ms and spec.p99_ms
    and spec.p99_ms < spec.median_ms then
    self.report(path .. ".p99_ms", spec.p99_ms, "%s is less than median_ms = %s",
      shown(spec.p99_ms), shown(spec.median_ms))
  elseif spec.kind == "percentiles" then
    local last, count = nil, 0
    for _, one in ipairs(schema.kinds.latency.percentiles) do
      local value = spec[one.key]
      if value and last and value < spec[last] then
        self.report(path .. "." .. one.key, value, "%s is less than %s = %s", shown(value), last,
          shown(spec[last]))
      end
      if value then last, count = one.key, count + 1 end
    end
    if count < 2 then self.report(path, nil, "two percentiles at least are needed") end
  end
  return spec
end

local function read_fault(self, given, path)
  local fault = of_kind(self, "faults", given, path)
  if not fault or not fault.from_ms or not fault.for_ms then return fault end
  if self.duration_ms and fault.from_ms >= self.duration_ms then
    self.report(path .. ".from_ms", fault.from_ms, "%s is never: duration_ms is %s",
      shown(fault.from_ms), shown(self.duration_ms))
  elseif fault.every_ms and fault.every_ms <= fault.for_ms then
    self.report(path .. ".every_ms", fault.every_ms, "%s: it would come back before it is over: "
      .. "more than for_ms = %s is needed", shown(fault.every_ms), shown(fault.for_ms))
  end
  return fault
end

local function read_arrivals(self, given, path)
  local arrivals = of_kind(self, "arrivals", given, path)
  if arrivals and arrivals.from_ms and arrivals.to_ms and arrivals.to_ms <= arrivals.from_ms then
    self.report(path .. ".to_ms", arrivals.to_ms, "%s: more than from_ms = %s is needed",
      shown(arrivals.to_ms), shown(arrivals.from_ms))
  end
  return arrivals
end

-- ---- Policies ---------------------------------------------------------------------------------

--- Plain data as Lua reads it.
local function source(value)
  if type(value) ~= "table" then
    return type(value) == "number" and ("%.17g"):format(value) or ("%q"):format(value)
  end
  local keys, parts = {}, {}
  for key in next, value do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do parts[i] = ("[%s]=%s"):format(source(key), source(value[key])) end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- The policy of a table of keys: its mistakes are said where they stand in the scenario.
local function inline_policy(self, given, path, name)
  local copy, fault = parameters.copy(given)
  if not copy then
    return self.report(path .. fault.key:sub(#"params" + 1), nil, "here a policy has numbers, "
      .. "texts and tables of them; one with more in it is a file")
  end
  copy.name = copy.name or name
  local made, err = policies.parse("return " .. source(copy), path)
  if made then return made end
  for _, one in ipairs(err.all or { err }) do
    self.report(one.key and path .. "." .. one.key or path, one.value, "%s", one.message)
  end
end

local function policy_file(self, file, path)
  local made, err = policies.load(file, { read = self.options.read })
  if made then return made end
  self.report(path, file, "%s", tostring(err))
end

local function read_policy(self, given, path, to)
  local other = self.options.policy
  if other then return policy_file(self, other, path) end
  if type(given) == "table" then return inline_policy(self, given, path, to) end
  local file = given:sub(1, 1) == "/" and given or self.directory .. given
  return policy_file(self, file, path)
end

local function read_call(self, given, path)
  local call = against(self, schema.tables.call, given, path)
  call.path = path
  if call.retry then
    call.retry = against(self, schema.tables.retry, call.retry, path .. ".retry")
  end
  if call.policy then
    call.policy = read_policy(self, call.policy, path .. ".policy", call.to or "policy")
  elseif rawget(given, "breakers") ~= nil then
    self.report(path .. ".breakers", given.breakers, "there are none: a policy is needed")
  end
  return call
end

local function read_service(self, name, given, path)
  local service = against(self, schema.tables.service, given, path)
  service.name, service.path = name, path
  service.is_asked = rawget(given, "arrivals") ~= nil
  if service.latency then
    service.latency = read_latency(self, service.latency, path .. ".latency")
  end
  for key, read in pairs { arrivals = read_arrivals, calls = read_call, faults = read_fault } do
    service[key] = entries(self, service[key], path .. "." .. key, function(one, of)
      return read(self, one, of)
    end)
  end
  if not service.workers and rawget(given, "queue") ~= nil then
    self.report(path .. ".queue", given.queue, "nobody waits in it: workers is needed")
  end
  return service
end

local function read_services(self, given)
  local names, services = {}, {}
  for name in next, given do
    if type(name) ~= "string" or not name:find("^[%w_.-]+$") or #name > 40 then
      self.report("services", nil, "%s is no name of a service: letters, digits, _ . -",
        shown(name))
    else
      names[#names + 1] = name
    end
  end
  table.sort(names)
  if #names > MOST_SERVICES then
    self.report("services", nil, "are more than %d", MOST_SERVICES)
    return {}
  end
  for _, name in ipairs(names) do
    local path, one = "services." .. name, rawget(given, name)
    if type(one) ~= "table" then
      self.report(path, one, "%s: a table is needed", shown(one))
    else
      services[#services + 1] = read_service(self, name, one, path)
    end
  end
  if next(given) ~= nil and not services[1] then return {} end -- said above
  return graph.order(services, self.report, self.duration_ms)
end

--- The runs, with the settings of each.
local function read_runs(self, given)
  if given and #given > MOST_RUNS then self.report("runs", nil, "are more than %d", MOST_RUNS) end
  return entries(self, given, "runs", function(one, path)
    local run = against(self, schema.tables.run, one, path)
    local copy, fault = parameters.copy(run.params or {})
    if not copy then self.report(path .. "." .. fault.key, nil, fault.message) end
    run.params, run.path = copy or {}, path
    return run
  end)
end

-- ---- The whole --------------------------------------------------------------------------------

local function read_file(path) return core.read(path, MOST_BYTES) end

local function base_name(path) return (path:match("([^/]*)$"):gsub("%.lua$", "")) end

--- Runs the text with those settings: what it returns, and its params; or nil and an error.
local function evaluate(text, path, options, given)
  local params, fault = declared.new(given, {
    path = path, policy = base_name(path), what = "scenario",
  })
  if not params then
    return nil, problem.error { problem.new { file = path, key = fault.key,
      message = fault.message } }
  end
  local box = sandbox.new {
    root = path:match("^(.*)/[^/]*$") or ".", read = options.read or read_file,
    globals = { params = params.params },
  }
  local ok, value = sandbox.load(box, text, path)
  params:close(ok)
  if params.problems[1] then return nil, problem.error(params.problems) end
  if not ok then return nil, problem.error { placed.of_lua(path, value) } end
  if type(value) ~= "table" then
    return nil, problem.error { problem.new { file = path, message = ("returns %s: a scenario is "
      .. "a table, return { name = %s, … }"):format(shown(value), shown(base_name(path))) } }
  end
  return value, params
end

--- One run: nil and what is wrong.
local function read(text, path, options, given)
  local value, params = evaluate(text, path, options, given)
  if not value then return nil, params end
  local report, problems = placed.report(path, text)
  local self = { report = report, options = options, directory = path:match("^(.*/)") or "" }
  local top = against(self, schema.tables.scenario, value, "")
  if top.name and path:find("%.lua$") and top.name ~= base_name(path) then
    report("name", top.name, "%s is not the file's name: %s is needed", shown(top.name),
      shown(base_name(path)))
  end
  self.duration_ms = top.duration_ms
  local made = {
    name = top.name, title = top.title or top.name, lesson = top.lesson, path = path,
    duration_ms = top.duration_ms, params = params:rows(),
    services = top.services and read_services(self, top.services) or {},
    runs = read_runs(self, top.runs),
  }
  if problems[1] then return nil, problem.error(problems) end
  return made
end

--- The settings of a run: its own, then those of the command line.
local function settings_of(run, given)
  local list, names = {}, {}
  for name in pairs(run.params) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    list[i] = { name = name, value = run.params[name], from = run.path }
  end
  for _, one in ipairs(given) do list[#list + 1] = one end
  return list
end

--- A scenario from a text, once for each of its runs.
---@param text string
---@param path string the file's name in errors
---@param options? neap.lab.sim.LoadOptions
---@return neap.lab.sim.Scenario[]|nil, neap.Problem|nil err
function scenario.parse(text, path, options)
  options = options or {}
  local given = options.settings or {}
  local first, err = read(text, path, options, given)
  if not first then return nil, err end
  if not first.runs[1] then return { first } end
  local loaded = {}
  for i, run in ipairs(first.runs) do
    local one
    one, err = read(text, path, options, settings_of(run, given))
    if not one then return nil, err end
    one.run, loaded[i] = run.name, one
  end
  return loaded
end

--- A scenario from a file.
---@param path string
---@param options? neap.lab.sim.LoadOptions
---@return neap.lab.sim.Scenario[]|nil, neap.Problem|nil err
function scenario.load(path, options)
  local text, message = (options and options.read or read_file)(path)
  if text then return scenario.parse(text, path, options) end
  return nil, problem.error { problem.new { file = path,
    message = placed.without_path(tostring(message), path) } }
end

return scenario
