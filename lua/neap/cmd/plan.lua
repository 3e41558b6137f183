--- What `neap serve` is to do, from its options and its configuration file. All that can be wrong
--- with it is found here or by the part that it is for; nothing is opened yet.
---
---   options ---\
---               > checked -> plan: addresses, policies, routes in the order of trying
---   file -----/

local address = require "neap.cmd.address"
local config = require "neap.cmd.config"
local readers = require "neap.cmd.readers"

local plans = {}

local DEFAULT_LISTEN, DEFAULT_ADMIN = "127.0.0.1:8080", "127.0.0.1:9464"

---@class neap.cmd.plan
---@field listen { host: string, port: integer, text: string }
---@field admin { host: string, port: integer, text: string }|false
---@field token_file? string
---@field params string[]
---@field policies string[]
---@field routes neap.cmd.route[]
---@field state_dir? string
---@field webhook? { origin: string, host: string, target: string }
---@field webhook_token_file? string
---@field drain_ms integer
---@field max_breakers integer
---@field record? string a file of calls
---@field record_bytes integer
---@field record_files integer
---@field log_format "text"|"json"

---@class neap.cmd.route
---@field name string
---@field host? string
---@field prefix string|false false: no client's request is for it
---@field serves? boolean fallback.guard stages of other policies have its upstream asked
---@field upstream string
---@field upstream_host string
---@field upstream_port string
---@field policy string
---@field key string
---@field connect_ms? integer
---@field answer_ms? integer
---@field http2? boolean
---@field ca_file? string

--- For neap.cmd.options.
plans.options = {
  { name = "listen", value = "ADDRESS", example = DEFAULT_LISTEN, read = readers.listen,
    help = "where to take requests; 127.0.0.1:8080 if not given" },
  { name = "upstream", value = "URL", example = "http://127.0.0.1:8016", read = readers.upstream,
    help = "where they go" },
  { name = "policy", value = "FILE", example = "policies/flag_provider.lua", many = true,
    help = "what guards it; further ones are for its fallbacks" },
  { name = "params", value = "FILE", example = "params.lua", many = true,
    help = "a Lua file that returns { POLICY = { … } }: the policies' params;\n"
      .. "of several, the later goes before" },
  { name = "admin", value = "ADDRESS", example = DEFAULT_ADMIN, read = readers.admin,
    help = "where /metrics, /breakers and the like are;\n"
      .. "127.0.0.1:9464 if not given; off: nowhere" },
  { name = "admin-token-file", value = "FILE", example = "/run/secrets/neap",
    help = "who asks the admin pages must know what is in it;\n"
      .. "needed if they are not on a loopback address" },
  { name = "state-dir", value = "DIRECTORY", example = "/var/lib/neap",
    help = "where last good answers and queued calls are that outlive a\n"
      .. "restart; of this user, mode 0700" },
  { name = "webhook", value = "URL", example = "https://hooks.example.com/neap",
    read = readers.webhook,
    help = "where each transition is posted to, as JSON" },
  { name = "webhook-token-file", value = "FILE", example = "/run/secrets/webhook",
    help = "what is in it is sent along: Authorization: Bearer ..." },
  { name = "record", value = "FILE", example = "/var/lib/neap/calls",
    help = "where each call is recorded, for neap replay" },
  { name = "record-bytes", value = "N", example = "67108864", read = readers.file_bytes,
    help = "how large that gets before it becomes FILE.1; 64 MB if not\ngiven" },
  { name = "record-files", value = "N", example = "8", read = readers.files_kept,
    help = "how many are kept, the older ones numbered; 8 if not given" },
  { name = "log-format", value = "text|json", example = "json", read = readers.log_format,
    help = "text if not given" },
  { name = "drain-ms", value = "MS", example = "10000", read = readers.patience,
    help = "how long requests may take to end once neap is told to;\n10000 if not given" },
  { name = "max-breakers", value = "N", example = "1024", read = readers.count,
    help = "of all policies together; 1024 if not given" },
}

--- What the options alone say: one route.
local function from_options(given)
  if not given.upstream then
    return nil, "--upstream is missing, e.g. --upstream http://127.0.0.1:8016"
  elseif not given.policy then
    return nil, "--policy is missing, e.g. --policy policies/http_upstream.lua"
  end
  for _, path in ipairs(given.policy) do
    if not path:find("%.lua$") then
      return nil, ("--policy %s: must be a policy file, *.lua"):format(path)
    end
  end
  local route = config.route {
    name = "default", upstream = given.upstream, policy = given.policy[1],
  }
  return { policies = given.policy, routes = { route } }
end

--- What the file says, or else the options; or nil, the errors, and whether these are of usage.
local function from_either(given)
  if #given > 1 then
    return nil, { ("%s: there can be only one configuration file"):format(given[2]) }, true
  elseif given[1] and (given.upstream or given.policy) then
    return nil, { "give either a configuration file or --upstream and --policy" }, true
  elseif given[1] then
    return config.read(given[1])
  end
  local values, message = from_options(given)
  return values, { message }, true
end

--- The more particular route is tried first: one with a host, then the one with the longer prefix;
--- those that take no requests come last.
local function in_order(routes)
  table.sort(routes, function(a, b)
    if (a.host ~= nil) ~= (b.host ~= nil) then return a.host ~= nil end
    local length_a, length_b = #(a.prefix or ""), #(b.prefix or "")
    if length_a ~= length_b then return length_a > length_b end
    return a.name < b.name
  end)
  return routes
end

local function first(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value ~= nil then return value end
  end
end

--- What is wrong with where it listens; nil if nothing is.
local function listening_fault(plan)
  if not plan.admin then return nil end
  if address.clash(plan.admin, plan.listen) then
    return ("admin %s and listen %s are one address; give one of them another port"):format(
      plan.admin.text, plan.listen.text)
  elseif not plan.admin.loopback and not plan.token_file then
    return ("admin %s: others can reach that; give --admin-token-file FILE, or a loopback "
      .. "address such as 127.0.0.1:9464"):format(plan.admin.text)
  end
end

--- Is a request to that route's upstream one to ourselves?  Another machine may have the same port.
local function is_loop(listen, route)
  local host, port = route.upstream_host, tonumber(route.upstream_port)
  if port ~= listen.port then return false end
  if host == "localhost" then host = "127.0.0.1" end
  local is_any = listen.host == "0.0.0.0" or listen.host == "::"
  return host == listen.host or is_any and address.is_loopback(host)
end

local LOOP = "upstream %s and listen %s are one address: a request would come back for ever"

local function loop_fault(plan)
  for _, route in ipairs(plan.routes) do
    if is_loop(plan.listen, route) then return LOOP:format(route.upstream, plan.listen.text) end
  end
end

local function webhook_fault(plan)
  if not plan.webhook and plan.webhook_token_file then
    return "webhook_token_file is given, but no webhook that it would be sent to"
  end
end

--- A plan from options as neap.cmd.options read them; or nil, the errors, and whether the command
--- line itself is wrong.
---@return neap.cmd.plan? plan
---@return string[]? errors
---@return boolean? is_usage
function plans.make(given)
  local values, errors, is_usage = from_either(given)
  if not values then return nil, errors, is_usage end
  local plan = {
    listen = first(given.listen, values.listen, address.listen(DEFAULT_LISTEN)),
    admin = first(given.admin, values.admin, address.listen(DEFAULT_ADMIN)),
    token_file = first(given["admin-token-file"], values.admin_token_file),
    params = first(given.params, values.params, {}),
    policies = values.policies, routes = in_order(values.routes),
    state_dir = first(given["state-dir"], values.state_dir),
    webhook = first(given.webhook, values.webhook),
    webhook_token_file = first(given["webhook-token-file"], values.webhook_token_file),
    record = first(given.record, values.record),
    record_bytes = first(given["record-bytes"], values.record_bytes, 64 * 1024 * 1024),
    record_files = first(given["record-files"], values.record_files, 8),
    log_format = first(given["log-format"], values.log_format, "text"),
    drain_ms = first(given["drain-ms"], values.drain_ms, 10000),
    max_breakers = first(given["max-breakers"], values.max_breakers, 1024),
  }
  local fault = listening_fault(plan) or loop_fault(plan) or webhook_fault(plan)
  if fault then return nil, { fault }, false end
  return plan
end

return plans
