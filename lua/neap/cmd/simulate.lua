--- neap simulate: outages, fleets, retries and breakers on a virtual clock.
--
--- Exit status: 0 done; 1 the scenario or a policy has a mistake; 2 the command line is wrong.

local progress = require "neap.lab.progress"
local scenario = require "neap.lab.sim.scenario"
local shipped = require "neap.lab.sim.shipped"
local suggest = require "neap.suggest"
local write_file = require "neap.cmd.write_file"

local simulate = {}

local OK, FAILED, USAGE = 0, 1, 2

local function read_seed(text)
  local n = tonumber(text)
  if n and n >= 0 and n < 2 ^ 53 and n % 1 == 0 then return math.floor(n) end
  return nil, "must be a whole number, 0 or more, e.g. 7"
end

local function read_setting(text)
  local name, value = text:match("^([%a_][%w_]*)=(.*)$")
  if name then return { name = name, text = value, from = "--set" } end
  return nil, "must be NAME=VALUE, e.g. replicas=1000"
end

simulate.specs = {
  simulate = {
    { name = "set", value = "NAME=VALUE", example = "replicas=1000", read = read_setting,
      many = true, help = "a param that the scenario declares; goes before its runs" },
    { name = "seed", value = "N", example = "7", read = read_seed,
      help = "what chance begins with; 1 if not given" },
    { name = "policy", value = "FILE", example = "policies/payments.lua",
      help = "in place of every policy of the scenario" },
    { name = "json", help = "the numbers as JSON" },
    { name = "html", value = "FILE", example = "report.html",
      help = "writes a report with plots: one file, to be opened in a browser" },
    { name = "list", help = "the scenarios that come with neap" },
    { name = "show", help = "prints the scenario itself, to begin one's own with" },
  },
}

simulate.help = {}

simulate.help.simulate = [[
neap simulate: what an outage does to services, retries and breakers

  neap simulate SCENARIO [options]

SCENARIO is a Lua file that says which services there are, who calls whom, how often, through which
policy, and what goes wrong; or the name of one that comes with neap. An hour takes some seconds:
the clock is the simulation's. The breakers are those that serve at work, one for each replica. The
same seed gives the same numbers, to the last digit.

%s

A scenario is written in Lua, and is checked as a policy is:

  return {
    name = "checkout", duration_ms = 60000,
    services = {
      shop = { replicas = 20, workers = 50, queue = 100,
        arrivals = { { kind = "poisson", per_s = 500 } },
        calls    = { { to = "payments", timeout_ms = 800, policy = "policies/payments.lua" } } },
      payments = { replicas = 4, workers = 40,
        latency = { kind = "lognormal", median_ms = 30, p99_ms = 200 },
        faults  = { { kind = "outage", from_ms = 20000, for_ms = 15000, how = "hang" } } },
    },
  }

docs/simulate.md has all that can be said. What is measured: how requests from outside are answered,
before, during and after the faults; how many each service is asked for one from outside
(amplification); how long breakers take to open and to close, over the replicas; probes in the worst
second; calls in vain; calls refused that would have been served.

Exit status: 0 done, 1 the scenario or a policy has a mistake, 2 the command line is wrong.

Examples:

  neap simulate --list
  neap simulate retry_amplification
  neap simulate probe_storm --set replicas=5000 --html storm.html
  neap simulate checkout.lua --policy policies/next.lua --json | jq '.runs[].requests.during'
]]

local function usage(host, message)
  local see = message:find("%?$") and " See" or "; see"
  host.err(("neap simulate: %s%s neap simulate --help\n"):format(message, see))
  return USAGE
end

local function say(host, err)
  for line in tostring(err):gmatch("[^\n]+") do host.err("neap simulate: " .. line .. "\n") end
  return FAILED
end

local function list(host)
  for _, name in ipairs(shipped.names) do
    local loaded = assert(scenario.parse(shipped.text(name), shipped.path(name)))
    host.out(("%-22s %s\n"):format(name, loaded[1].title))
  end
  return OK
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

--- The text of a scenario, and its path; or nil and why there is none.
local function find(name)
  if exists(name) then
    local file = io.open(name, "rb")
    local text = file:read "a"
    file:close()
    if text then return text, name end
    return nil, name .. ": is a directory"
  end
  local text = not name:find("[/.]") and shipped.text(name)
  if text then return text, shipped.path(name) end
  return nil, ("%s: there is no such file%s%s"):format(name,
    name:find("[/.]") and "" or ", and no scenario of that name", suggest.hint(name, shipped.names))
end

local function has_policy(loaded)
  for _, run in ipairs(loaded) do
    for _, service in ipairs(run.services) do
      for _, call in ipairs(service.calls) do
        if call.policy then return true end
      end
    end
  end
end

--- Runs it.
---@param name string
---@param given table as neap.cmd.options read it
---@param host neap.cmd.host
---@return integer exit_status
function simulate.run(name, given, host)
  if given.list then return list(host) end
  if not given[1] then
    return usage(host, "which scenario? Name a file, or one that neap " .. name .. " --list says")
  elseif given[2] then
    return usage(host, "one scenario at a time, not " .. given[2])
  end
  local text, path = find(given[1])
  if not text then return usage(host, path) end
  if given.show then
    host.out(text)
    return OK
  end
  local loaded, err = scenario.parse(text, path, { settings = given.set, policy = given.policy })
  if not loaded then return say(host, err) end
  if given.policy and not has_policy(loaded) then
    return say(host, ("--policy %s: no call of the scenario has a policy that it could replace")
      :format(given.policy))
  end
  local report, run = require "neap.lab.sim.report", require "neap.lab.sim.run"
  local line = progress.new(host, "events")
  local result = run.all(loaded, { seed = given.seed, progress = line.step })
  line.stop()
  if given.html then
    local page = report.html(result, { file = path, source = text })
    local ok, message = write_file(given.html, page)
    if not ok then return say(host, message) end
  end
  host.out(given.json and report.json(result) or report.text(result))
  return OK
end

return simulate
