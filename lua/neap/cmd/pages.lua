--- The admin pages of the running program: neap.admin, told where in the engine everything is. Runs
--- in the engine's Lua.

local admin = require "neap.admin"
local core = require "neap.core"
local engine = require "neap.engine"
local events = require "neap.cmd.events"
local live = require "neap.page.live"
local recent = require "neap.page.recent"
local uv = require "luv"

local function family(name, kind, help) return { name = name, type = kind, help = help } end

local function add(into, value, ...) into[#into + 1] = { labels = { ... }, value = value } end

local SERVERS = { server = "proxy", admin = "admin" }

local function http_families(numbers)
  local connections = family("neap_http_connections_total", "counter", "Connections accepted.")
  local open = family("neap_http_connections_open", "gauge", "Connections open now.")
  local requests = family("neap_http_requests_total", "counter",
    "Requests with a head that was accepted.")
  local refused = family("neap_http_refused_total", "counter",
    "Requests answered with an error before any route: malformed, too large, late.")
  local aborted = family("neap_http_aborted_total", "counter",
    "Requests whose client went away first.")
  local overload = family("neap_http_overload_total", "counter",
    "Connections answered 503 and closed, there being too many.")
  for key, name in pairs(SERVERS) do
    local stats = numbers[key]
    if stats then
      add(connections, stats.connections, "server", name)
      add(open, stats.open, "server", name)
      add(requests, stats.requests, "server", name)
      add(refused, stats.refused, "server", name)
      add(aborted, stats.aborted, "server", name)
      add(overload, stats.overload, "server", name)
    end
  end
  return { connections, open, requests, refused, aborted, overload }
end

local ANSWERS = { "primary", "fallback", "refused", "failed", "aborted" }
local PHASES = { connect = "errors_connect", sent = "errors_sent", answer = "errors_answer" }

local function route_families(numbers)
  local answers = family("neap_route_answers_total", "counter",
    "Requests of a route by who answered.")
  local active = family("neap_route_active", "gauge", "Requests of a route under way.")
  local failures = family("neap_upstream_errors_total", "counter",
    "Upstream calls that failed, by how far they had come.")
  local timeouts = family("neap_upstream_timeouts_total", "counter",
    "Upstream calls given up at their deadline.")
  local resent = family("neap_upstream_resent_total", "counter",
    "Upstream calls sent a second time, on a new connection.")
  local unwaited = family("neap_upstream_background_total", "counter",
    "Upstream calls that are no client's of the route: refreshes of old answers, queued calls made "
      .. "again, calls for other policies' fallbacks.")
  for _, route in ipairs(numbers.routes) do
    for _, who in ipairs(ANSWERS) do add(answers, route[who], "route", route.name, "by", who) end
    for phase, field in pairs(PHASES) do add(failures, route[field], "route", route.name, "phase",
      phase) end
    add(active, route.active, "route", route.name)
    add(timeouts, route.timeouts, "route", route.name)
    add(resent, route.resent, "route", route.name)
    add(unwaited, route.refreshed, "route", route.name, "what", "refresh")
    add(unwaited, route.replayed, "route", route.name, "what", "replay")
    add(unwaited, route.lent, "route", route.name, "what", "guard")
  end
  return { answers, active, failures, timeouts, resent, unwaited }
end

local function process_families(numbers, version)
  local info = family("neap_build_info", "gauge", "1; which neap this is.")
  local cpu = family("neap_process_cpu_seconds_total", "counter", "Processor time used.")
  local memory = family("neap_process_resident_memory_bytes", "gauge", "Memory in use.")
  local lua = family("neap_process_lua_bytes", "gauge", "Of it, what the policies' Lua holds.")
  add(info, 1, "version", version)
  add(cpu, numbers.process.cpu_seconds)
  add(memory, numbers.process.resident_bytes)
  add(lua, collectgarbage("count") * 1024)
  return { info, cpu, memory, lua }
end

local function more_metrics(host)
  local numbers, all = host.numbers(), {}
  for _, families in ipairs { http_families(numbers), route_families(numbers),
    events.metrics(numbers), process_families(numbers, core.version) } do
    for _, one in ipairs(families) do all[#all + 1] = one end
  end
  return all
end

--- An instant of the engine's clock, since 1970.
local function wall_ms(at_ms)
  local seconds, microseconds = uv.gettimeofday()
  local age_ms = math.max(0, core.clock_precise() - at_ms)
  return math.floor(seconds * 1000 + microseconds / 1000 - age_ms)
end

--- The same as people read it.
local function since(at_ms) return os.date("!%Y-%m-%dT%H:%M:%SZ", wall_ms(at_ms) // 1000) end

--- Every breaker that a route will use is there before its first request, and so are its series.
local function make_breakers(routes)
  for _, route in ipairs(routes) do engine.guards[route.policy]:at(route.key) end
end

---@param host table  token, health, reload, log, numbers: functions; routes: see admin.c
---@return fun(request: neap.admin.request): neap.admin.answer
return function(host)
  make_breakers(host.routes)
  local function guards() return engine.guards end
  local function rows() return engine.reloader:rows() end
  local shown = live.new { guards = guards, rows = rows, now_ms = core.clock_precise,
    wall_ms = wall_ms }
  recent.run(shown.recent, uv)
  local pages = admin.open {
    guards = guards, policies = rows, live = shown,
    params = function(name) return (engine.reloader:params(name)) end,
    set_params = function(name, change) return engine.reloader:set_params(name, change) end,
    follow = events.follow,
    reload = host.reload, token = host.token, health = host.health, log = host.log, since = since,
    more_metrics = function() return more_metrics(host) end,
  }
  return function(request) return pages:handle(request) end
end
