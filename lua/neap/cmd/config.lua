--- The configuration file of `neap serve`: a table that says what the options say, and the routes.

local core = require "neap.core"
local lines = require "neap.lines"
local policy_files = require "neap.policy_files"
local problem = require "neap.problem"
local readers = require "neap.cmd.readers"
local suggest = require "neap.suggest"

local config = {}

local MAX_FILE = 1024 * 1024

local FILE_KEYS = {
  listen = readers.listen,
  admin = readers.admin,
  admin_token_file = readers.text,
  params = readers.files,
  policies = readers.texts,
  state_dir = readers.text,
  webhook = readers.webhook,
  webhook_token_file = readers.text,
  record = readers.text,
  record_bytes = readers.file_bytes,
  record_files = readers.files_kept,
  log_format = readers.log_format,
  drain_ms = readers.patience,
  max_breakers = readers.count,
  routes = function(value)
    if type(value) == "table" and #value > 0 then return value end
    return nil, "must be a list of routes: { { name = …, upstream = …, policy = … }, … }"
  end,
}

local ROUTE_KEYS = {
  name = readers.name,
  host = readers.host,
  prefix = function(value)
    if value == false then return false end
    return readers.prefix(value)
  end,
  upstream = readers.upstream,
  policy = readers.text,
  key = readers.name,
  connect_ms = readers.milliseconds,
  answer_ms = readers.milliseconds,
  http2 = readers.switch,
  ca_file = readers.text,
}

-- Fields ------------------------------------------------------------------------------------------

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

-- Routes ------------------------------------------------------------------------------------------

--- A route with all that follows from what was said about it.
---@return neap.cmd.route
function config.route(values)
  local to = values.upstream or {}
  return {
    name = values.name, key = values.key or values.name,
    host = values.host, prefix = values.prefix == nil and "/" or values.prefix,
    upstream = to.text, upstream_host = to.host, upstream_port = to.port and tostring(to.port),
    policy = values.policy and policy_files.name_of(values.policy),
    connect_ms = values.connect_ms, answer_ms = values.answer_ms,
    http2 = values.http2, ca_file = values.ca_file,
  }
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
  if given.host ~= nil and given.prefix == false then
    complain(path .. ".host", "prefix = false: it takes no requests, whatever their host")
  end
  return config.route(values), is_clear
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

--- Which routes the fallback.guard stages of other policies ask: of each policy the one that takes
--- no client's requests, or else its only one.
local function mark_serving(routes, complain)
  local own, any = {}, {}
  for i, route in pairs(routes) do
    local policy = route.policy
    if policy then any[policy] = any[policy] == nil and route end -- false: there are several
    if policy and route.prefix == false then
      if own[policy] then
        complain(("routes[%d].prefix"):format(i),
          ("false: route %s is for fallbacks on %s, too; there can be one"):format(
            own[policy].name or "?", policy))
      end
      own[policy] = route
    end
  end
  for policy, route in pairs(any) do
    route = own[policy] or route
    if route then route.serves = true end
  end
end

-- The file ----------------------------------------------------------------------------------------

local NO_NAMES = {
  __index = function(_, name)
    error(("%s is not known here: this file is a table { routes = … }, not a program; a policy is "
      .. "given by --policy"):format(tostring(name)), 2)
  end,
}

--- Runs it with nothing at hand: it is a table, not a program.
local function load_table(path, content)
  local chunk, message = load(content, "@" .. path, "t", setmetatable({}, NO_NAMES))
  if not chunk then return nil, message end
  local ok, value = pcall(chunk)
  if not ok then return nil, tostring(value) end
  if type(value) == "table" then return value end
  return nil, ("%s: returns a %s, not a table { routes = … }"):format(path, type(value))
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

--- The names of all policies there are; nil if a path is neither a directory nor a policy file:
--- whoever opens it says so.
local function policy_names(paths)
  local names = {}
  for _, path in ipairs(paths) do
    local files, is_directory = policy_files.at(path)
    if not is_directory and not path:find("%.lua$") then return nil end
    for _, name in ipairs(policy_files.names_of(files)) do names[#names + 1] = name end
  end
  return names
end

local function check_policies(routes, paths, complain)
  local names, known = policy_names(paths), {}
  for _, name in ipairs(names or {}) do known[name] = true end
  for i, route in pairs(names and routes or {}) do
    local name = route.policy
    if name and not known[name] then
      local hint = suggest.hint(name, names)
      if hint == "" then hint = "; there are " .. table.concat(names, ", ") end
      complain(("routes[%d].policy"):format(i),
        ("%s: there is no such policy%s"):format(problem.shown(name), hint))
    end
  end
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
---@param path string
---@return table? values
---@return string[]? errors
function config.read(path)
  local content, message = core.read(path, MAX_FILE)
  if not content then return nil, { message } end
  local given, fault = load_table(path, content)
  if not given then return nil, { fault } end
  local errors, complain = complaints(path, content)
  local values = read_fields(given, FILE_KEYS, "", complain)
  need(given, { "routes" }, "", complain)
  local given_routes = values.routes or {}
  values.routes = read_routes(given_routes, complain)
  mark_serving(values.routes, complain)
  values.policies = add_policy_files(values, given_routes)
  if #values.policies > 0 then
    check_policies(values.routes, values.policies, complain)
  elseif #errors == 0 then
    complain("policies", "is missing, and no route's policy is a file")
  end
  if #errors > 0 then return nil, in_line_order(errors) end
  return values
end

return config
