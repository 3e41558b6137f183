--- What `neap serve` is to do, from its options and its configuration file. All that can be wrong
--- with it is found here or by the part that it is for; nothing is opened yet.
---
---   options ---\
---               > checked -> plan: addresses, policies, routes in the order of trying
---   file -----/

local address = require "neap.cmd.address"
local core = require "neap.core"
local lines = require "neap.lines"
local problem = require "neap.problem"
local suggest = require "neap.suggest"

local plans = {}

local MAX_FILE = 1024 * 1024

---@class neap.cmd.plan
---@field listen { host: string, port: integer, text: string }
---@field admin { host: string, port: integer, text: string }|false
---@field token_file? string
---@field params? string
---@field policies string[]
---@field routes neap.cmd.route[]
---@field drain_ms integer
---@field max_breakers integer
---@field log_format "text"|"json"

---@class neap.cmd.route
---@field name string
---@field host? string
---@field prefix string
---@field upstream string
---@field upstream_host string
---@field upstream_port string
---@field policy string
---@field key string
---@field connect_ms? integer
---@field answer_ms? integer
---@field http2? boolean
---@field ca_file? string

-- Readers: a value, or nil and what would be right ------------------------------------------------

local function text(value)
  if type(value) == "string" and value:find("%S") then return value end
  return nil, "must be a text"
end

local function one_of(...)
  local names = { ... }
  return function(value)
    for _, name in ipairs(names) do
      if name == value then return value end
    end
    return nil, "must be " .. table.concat(names, " or ") .. suggest.hint(value, names)
  end
end

--- A whole number, given as one or as text.
local function whole(min, max, unit)
  return function(value)
    local number = tonumber(value)
    if number and number % 1 == 0 and number >= min and number <= max then return number end
    return nil, ("must be a whole number%s, %d to %d"):format(unit, min, max)
  end
end

local function switch(value)
  if type(value) == "boolean" then return value end
  return nil, "must be true or false"
end

local function listen(value)
  if type(value) ~= "string" then return nil, "must be a text such as \"127.0.0.1:8080\"" end
  return address.listen(value)
end

local function admin(value)
  if value == "off" or value == false then return false end
  local read, expected = listen(value)
  return read, expected and expected .. "; or off"
end

local function upstream(value)
  if type(value) ~= "string" then return nil, "must be a text such as \"http://127.0.0.1:8016\"" end
  return address.upstream(value)
end

local function host(value)
  if type(value) == "string" and value:match("^[%w.:%[%]_-]+$")
    and not value:match("%]?:%d+$") then return value:lower() end
  return nil, "must be a host name without a port, e.g. api.example.com"
end

local function prefix(value)
  if type(value) == "string" and value:match("^/[^%s?#]*$") then return value end
  return nil, "must be a path that begins with /, without ? and #"
end

local function name(value)
  if type(value) == "string" and value:match("^[%w_.:@/-]+$") and #value <= 60 then return value end
  return nil, "must be 1 to 60 letters, digits or any of _ . : @ / -"
end

local function texts(value)
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" or #value == 0 then return nil,
    "must be a list of policy files and directories" end
  for _, one in ipairs(value) do
    if not text(one) then return nil, "must be a list of policy files and directories" end
  end
  return value
end

local milliseconds = whole(1, 3600000, " of ms")

-- What there is -----------------------------------------------------------------------------------

--- For neap.cmd.options; the last column is the key in a configuration file, if there is one.
plans.options = {
  { name = "listen", value = "ADDRESS", example = "127.0.0.1:8080", read = listen,
    help = "where to take requests; 127.0.0.1:8080 if not given" },
  { name = "upstream", value = "URL", example = "http://127.0.0.1:8016", read = upstream,
    help = "where they go" },
  { name = "policy", value = "FILE", example = "policies/flag_provider.lua", many = true,
    help = "what guards it; further ones are for its fallbacks" },
  { name = "params", value = "FILE", example = "params.lua",
    help = "a Lua file that returns { POLICY = { … } }: the policies' params" },
  { name = "admin", value = "ADDRESS", example = "127.0.0.1:9464", read = admin,
    help = "where /metrics, /breakers and the like are;\n127.0.0.1:9464 if not given; off: nowhere",
  },
  { name = "admin-token-file", value = "FILE", example = "/run/secrets/neap",
    help = "who asks the admin pages must know what is in it;\n"
      .. "needed if they are not on a loopback address" },
  { name = "log-format", value = "text|json", example = "json", read = one_of("text", "json"),
    help = "text if not given" },
  { name = "drain-ms", value = "MS", example = "10000", read = whole(0, 3600000, " of ms"),
    help = "how long requests may take to end once neap is told to;\n10000 if not given" },
  { name = "max-breakers", value = "N", example = "1024", read = whole(1, 4194304, ""),
    help = "of all policies together; 1024 if not given" },
}

local FILE_KEYS = {
  listen = listen, admin = admin, admin_token_file = text, params = text, policies = texts,
    log_format = one_of("text", "json"),
  drain_ms = whole(0, 3600000, " of ms"), max_breakers = whole(1, 4194304, ""),
  routes = function(value)
    if type(value) == "table" and #value > 0 then return value end
    return nil, "must be a list of routes: { { name = …, upstream = …, policy = … }, … }"
  end,
}

local ROUTE_KEYS = {
  name = name, host = host, prefix = prefix, upstream = upstream, policy = text, key = name,
    connect_ms = milliseconds,
  answer_ms = milliseconds, http2 = switch, ca_file = text,
}

-- The configuration file --------------------------------------------------------------------------

local function keys_of(known)
  local keys = {}
  for key in pairs(known) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

--- Reads each field of `given` by the reader of its name; complains about the others.
local function read_fields(given, known, path, complain)
  local values = {}
  for key, value in pairs(given) do
    local where = path .. tostring(key)
    if not known[key] then
      local hint = suggest.hint(key, keys_of(known))
      if hint == "" then hint = "; there are " .. table.concat(keys_of(known), ", ") end
      complain(where, "is not a key" .. hint)
    else
      local read, expected = known[key](value)
      if read == nil then complain(where, ("%s: %s"):format(problem.shown(value), expected)) end
      values[key] = read
    end
  end
  return values
end

local function need(given, keys, path, complain)
  for _, key in ipairs(keys) do
    if given[key] == nil then complain(path .. key, "is missing") end
  end
end

local function policy_name(path) return (path:match("([^/]*)$"):gsub("%.lua$", "")) end

local function make_route(values)
  local to = values.upstream or {}
  return {
    name = values.name, key = values.key or values.name, host = values.host, prefix = values.prefix
      or "/",
    upstream = to.text, upstream_host = to.host, upstream_port = to.port and tostring(to.port),
    policy = values.policy and policy_name(values.policy), connect_ms = values.connect_ms,
      answer_ms = values.answer_ms,
    http2 = values.http2, ca_file = values.ca_file,
  }
end

--- The more particular route is tried first: one with a host, then the one with the longer prefix.
local function in_order(routes)
  table.sort(routes, function(a, b)
    if (a.host ~= nil) ~= (b.host ~= nil) then return a.host ~= nil end
    if #a.prefix ~= #b.prefix then return #a.prefix > #b.prefix end
    return a.name < b.name
  end)
  return routes
end

--- One route from what the file says; complains about what is wrong with it.  Second: whether it
--- is known which requests are its.
local function read_route(given, path, complain)
  if type(given) ~= "table" then
    return complain(path, problem.shown(given) .. ": must be a table")
  end
  need(given, { "name", "upstream", "policy" }, path .. ".", complain)
  local values = read_fields(given, ROUTE_KEYS, path .. ".", complain)
  local is_clear = (given.host == nil or values.host) and (given.prefix == nil or values.prefix)
  return make_route(values), is_clear
end

local function read_routes(given, complain)
  local routes, names, matches = {}, {}, {}
  for i, one in ipairs(given) do
    local path = ("routes[%d]"):format(i)
    local route, is_clear = read_route(one, path, complain)
    local name_of = route and route.name
    local match = is_clear and (route.host or "*") .. route.prefix
    if name_of and names[name_of] then
      complain(path .. ".name", ("%q is the name of another route, too"):format(name_of))
    elseif match and matches[match] then
      complain(path, ("route %s is for the same host and prefix"):format(matches[match]))
    end
    if name_of then names[name_of] = true end
    if match then matches[match] = name_of or "?" end
    routes[i] = route
  end
  return routes
end

local function load_table(path, content)
  local chunk, message
  if _VERSION == "Lua 5.1" then
    chunk, message = _G.loadstring(content, "@" .. path)
    if chunk then _G.setfenv(chunk, {}) end
  else
    chunk, message = load(content, "@" .. path, "t", {})
  end
  if not chunk then return nil, message end
  local ok, value = pcall(chunk)
  if not ok then return nil, tostring(value) end
  if type(value) ~= "table" then return nil,
    ("%s: returns a %s, not a table { routes = … }"):format(path, type(value)) end
  return value
end

--- Where a policy file that a route names is to be found, if it says a file.
local function add_policy_files(values, given_routes)
  local policies, seen = values.policies or {}, {}
  for _, path in ipairs(policies) do seen[path] = true end
  for _, route in ipairs(given_routes) do
    local policy = type(route) == "table" and route.policy
    if type(policy) == "string" and policy:find("[/.]") and not seen[policy] then
      policies[#policies + 1], seen[policy] = policy, true
    end
  end
  return policies
end

--- A list of errors, and the function that adds to it what is wrong with the field at a path.
local function complaints(path, content)
  local found, return_line = lines.of(content)
  local errors = {}
  return errors, function(key, what)
    local line = lines.nearest(found, key, return_line) or 1
    errors[#errors + 1] = { line = line, text = ("%s:%d: %s: %s"):format(path, line, key, what) }
  end
end

local function in_line_order(errors)
  table.sort(errors, function(a, b)
    if a.line ~= b.line then return a.line < b.line end
    return a.text < b.text
  end)
  local texts_of = {}
  for i, one in ipairs(errors) do texts_of[i] = one.text end
  return texts_of
end

--- The file's values; or nil and a list of errors.
local function read_file(path)
  local content, message = core.read(path, MAX_FILE)
  if not content then return nil, { message } end
  local given, fault = load_table(path, content)
  if not given then return nil, { fault } end
  local errors, complain = complaints(path, content)
  local values = read_fields(given, FILE_KEYS, "", complain)
  need(given, { "routes" }, "", complain)
  local given_routes = values.routes or {}
  values.routes = read_routes(given_routes, complain)
  values.policies = add_policy_files(values, given_routes)
  if #errors == 0 and #values.policies == 0 then
    complain("policies", "is missing, and no route's policy is a file")
  end
  if #errors > 0 then return nil, in_line_order(errors) end
  return values
end

-- The plan ----------------------------------------------------------------------------------------

local DEFAULT_LISTEN, DEFAULT_ADMIN = "127.0.0.1:8080", "127.0.0.1:9464"

--- What the options alone say: one route.
local function from_options(given)
  if not given.upstream then return nil,
    "--upstream is missing, e.g. --upstream http://127.0.0.1:8016" end
  if not given.policy then return nil,
    "--policy is missing, e.g. --policy policies/http_upstream.lua" end
  for _, path in ipairs(given.policy) do
    if not path:find("%.lua$") then return nil,
      ("--policy %s: must be a policy file, *.lua"):format(path) end
  end
  local route = make_route { name = "default", upstream = given.upstream, policy = given.policy[1] }
  return { policies = given.policy, routes = { route } }
end

local function first(...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value ~= nil then return value end
  end
end

--- A plan from options as neap.cmd.options read them; or nil, the errors, and whether the command
--- line itself is wrong.
---@return neap.cmd.plan? plan
---@return string[]? errors
---@return boolean? is_usage
function plans.make(given)
  local values, errors
  if #given > 1 then return nil,
    { ("%s: there can be only one configuration file"):format(given[2]) }, true end
  if given[1] and (given.upstream or given.policy) then
    return nil, { "give either a configuration file or --upstream and --policy" }, true
  elseif given[1] then
    values, errors = read_file(given[1])
    if not values then return nil, errors, false end
  else
    local message
    values, message = from_options(given)
    if not values then return nil, { message }, true end
  end
  local plan = {
    listen = first(given.listen, values.listen, address.listen(DEFAULT_LISTEN)),
    admin = first(given.admin, values.admin, address.listen(DEFAULT_ADMIN)),
    token_file = first(given["admin-token-file"], values.admin_token_file),
    params = first(given.params, values.params),
    policies = values.policies, routes = in_order(values.routes),
    log_format = first(given["log-format"], values.log_format, "text"),
    drain_ms = first(given["drain-ms"], values.drain_ms, 10000),
    max_breakers = first(given["max-breakers"], values.max_breakers, 1024),
  }
  if plan.admin and not plan.admin.loopback and not plan.token_file then
    return nil, { ("admin %s: others can reach that; give --admin-token-file FILE, or a loopback "
      .. "address such as 127.0.0.1:9464")
      :format(plan.admin.text) }, false
  end
  return plan
end

return plans
