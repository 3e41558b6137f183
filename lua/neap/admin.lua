--- The admin pages: what an operator may ask and do, as a function from request to answer. No
--- sockets: a host brings the requests.
---
---   GET  /healthz                            200 while serving, 503 while draining
---   GET  /metrics                            Prometheus text
---   GET  /breakers[/POLICY[/KEY]]            everything about the breakers
---   POST /breakers/POLICY/KEY/mode           mode, by; for, reason
---   POST /breakers/POLICY/KEY/reset          by; reason
---   POST /breakers/POLICY/KEY/trip           by; for, reason
---   GET  /policies[/POLICY]                  which version serves, since when, what is wrong
---   GET  /policies/POLICY/params             what is declared, in force, and where it is from
---   POST /policies/POLICY/params             NAME=VALUE …, by; unset, reason
---   POST /reload                             looks at every file now
---   GET  /events                             what happens, as it does: server-sent events
---   GET  /                                   the page, for a browser; this list for others
---   GET  /live[/POLICY/KEY]                  what it shows: see neap.page.live
---
--- What a POST says may stand in the query, in a form or in a JSON object. A key is percent-encoded
--- where it has to be.

local access = require "neap.cmd.access"
local answers = require "neap.cmd.answers"
local arguments = require "neap.cmd.arguments"
local characters = require "neap.characters"
local check = require "neap.check"
local event = require "neap.event"
local events = require "neap.cmd.follow"
local json = require "neap.cmd.json"
local metrics = require "neap.metrics"
local the_page = require "neap.page"
local suggest = require "neap.suggest"

local admin = {}

local answer_json, problem, list = answers.json, answers.problem, json.list

local MAX_FOR_MS = 31 * 24 * 3600 * 1000
local TOO_LONG = "for: %s is more than the policy's open.max_cooldown_ms, %.14g; to hold it open "
  .. "for longer set mode=forced_open"

---@class neap.admin.request
---@field method string
---@field target string                 path and query, as sent
---@field headers table<string, string> by lower-case name
---@field body? string
---@field peer? string                  the client's address

---@class neap.admin.answer
---@field status integer
---@field type string                    of the body
---@field body string|fun(): string?     or its parts, each soon made
---@field headers? table<string, string> further ones
---@field over? fun()                   with parts that have no end: nobody asks for them any more

---@class neap.admin.options
---@field guards fun(): table<string, neap.guard>  by policy name
---@field policies? fun(): neap.reload.row[]
---@field params? fun(policy: string): neap.Policy|nil   with where its params are from now
---@field set_params? fun(policy: string, change: neap.settings.change): table|nil, any
---@field reload? fun(): integer, integer, string? how many were reloaded and refused, and why
---@field token? fun(): string?                    what a client must know; nil: nothing
---@field health? fun(): string                    "ok" or why not
---@field more_metrics? fun(): table[]             as neap.metrics takes them
---@field since? fun(now_ms: integer): string      an instant of the guards' clock as people read it
---@field live? neap.page.Live                     what the page shows; nil: there is no page
---@field follow? fun(seen?: string, recent?: integer): neap.cmd.Follower|nil  nil: too many do
---@field log? fun(level: string, event: string, message: string, fields: table[])

local Admin = {}
Admin.__index = Admin

-- Breakers ---------------------------------------------------------------------------------------

local function sorted_names(guards)
  local names = {}
  for name in pairs(guards) do names[#names + 1] = name end
  table.sort(names)
  return names
end

--- Only what happened at all: the snapshot counts every transition there is.
local function that_happened(transitions)
  local happened = {}
  for _, one in ipairs(transitions) do
    if one.count > 0 then happened[#happened + 1] = one end
  end
  return list(happened)
end

local function keys_of(guard)
  local keys = {}
  for i, row in ipairs(guard:breakers()) do keys[i] = row.key end
  return keys
end

--- A transition, if there is one.
function Admin:transition(moved)
  if not moved then return json.null end
  local row = event.row(moved)
  row.at = self.since and self.since(moved.at_ms)
  return row
end

--- Everything about one breaker; who set its mode, if somebody did, how long ago and for how long.
--- Nil: it is not there any more.
function Admin:breaker_row(guard, key)
  local row, set = guard:snapshot(key), guard:operator(key)
  if not row then return nil end
  row.transitions = that_happened(row.transitions)
  row.last_transition = self:transition(guard:last_transition(key))
  row.opening = self:transition(guard:opening(key))
  row.operator = set and {
    mode = set.mode, by = set.by, reason = set.reason, left_ms = set.until_ms and row.mode_left_ms,
    at = self.since and self.since(set.at_ms),
  }
  return row
end

local TWO_SHOWN = "two breakers whose keys are no UTF-8 are shown so; say which by its own bytes, "
  .. "percent-encoded"

--- The guard and key that a path names, by its bytes or as it is shown; or nil and the answer that
--- says which there are.
function Admin:find(policy, key)
  local guards = self.guards()
  local guard = guards[policy]
  if not guard then
    local names = sorted_names(guards)
    local near = suggest.nearest(policy, names)
    return nil, problem(404, "No such policy", ("there is no policy %s: %s"):format(
      characters.of(policy), near and ("did you mean %s?"):format(near)
      or (names[2] and "there are " or "there is ") .. table.concat(names, ", ")))
  end
  if not key then return guard end
  local shown = {}
  for _, known in ipairs(keys_of(guard)) do
    if known == key then return guard, key end
    if characters.of(known) == key then shown[#shown + 1] = known end
  end
  if shown[2] then return nil, problem(409, "Two such keys", TWO_SHOWN) end
  if shown[1] then return guard, shown[1] end
  local near = suggest.nearest(key, keys_of(guard))
  return nil, problem(404, "No such key", ("%s has no breaker %s%s"):format(policy,
    characters.of(key), near and (": did you mean %s?"):format(near)
      or "; a key's breaker is made by its first call"))
end

--- { "breakers": [ … ] }, a breaker at a time: there may be thousands.
function Admin:list_parts(guards)
  return coroutine.wrap(function()
    local before = '{ "breakers": ['
    for _, name in ipairs(sorted_names(guards)) do
      for _, key in ipairs(keys_of(guards[name])) do
        local row = self:breaker_row(guards[name], key)
        if row then
          coroutine.yield(before .. "\n" .. json.encode(row))
          before = ","
        end
      end
    end
    coroutine.yield((before == "," and "" or before) .. "] }\n")
  end)
end

function Admin:get_breakers(_, policy, key)
  local guards = self.guards()
  if policy then
    local guard, found = self:find(policy, key)
    if not guard then return found end
    if key then return answer_json(200, self:breaker_row(guard, found)) end
    guards = { [policy] = guard }
  end
  return { status = 200, type = "application/json", body = self:list_parts(guards) }
end

--- Who did what, from where, for how long and why: one line of the log.
function Admin:say(request, guard, key, what, action)
  if not self.log then return end
  local lasting = action.for_ms and (" for %.14g ms"):format(action.for_ms) or ""
  local message = ("%s/%s: %s%s, by %s"):format(guard.name, key, what, lasting, action.by)
  self.log("warn", "operator", message, {
    { "policy", guard.name }, { "key", key }, { "action", what }, { "by", action.by },
    { "for_ms", action.for_ms }, { "why", action.reason }, { "peer", request.peer },
  })
end

--- Runs an action that was understood; answers with the breaker as it is now.
function Admin:act(request, guard, key, what, action, act)
  local ok, message = act()
  if not ok then return problem(400, "Not possible", tostring(message)) end
  self:say(request, guard, key, what, action)
  return answer_json(200, self:breaker_row(guard, key))
end

function Admin:post_mode(request, guard, key, given)
  local action, message = arguments.action(given, { "mode", "by", "for", "reason" }, MAX_FOR_MS)
  if not action then return problem(400, "Not understood", message) end
  local mode
  mode, message = arguments.mode(given)
  if not mode then return problem(400, "Not understood", message) end
  return self:act(request, guard, key, "mode " .. mode, action, function()
    return guard:mode(key, mode ~= "policy" and mode or nil, action)
  end)
end

function Admin:post_reset(request, guard, key, given)
  local action, message = arguments.action(given, { "by", "reason" }, 0)
  if not action then return problem(400, "Not understood", message) end
  return self:act(request, guard, key, "reset", action, function()
    return guard:reset(key, action.by)
  end)
end

function Admin:post_trip(request, guard, key, given)
  local action, message = arguments.action(given, { "by", "for", "reason" }, MAX_FOR_MS)
  if not action then return problem(400, "Not understood", message) end
  local most_ms = guard.policy.rules:numbers().max_cooldown_ms
  if action.for_ms and action.for_ms > most_ms then
    return problem(400, "Not possible", TOO_LONG:format(tostring(given["for"]), most_ms))
  end
  return self:act(request, guard, key, "trip", action, function()
    return guard:trip(key, action.for_ms, action.by)
  end)
end

local ACTIONS = { mode = Admin.post_mode, reset = Admin.post_reset, trip = Admin.post_trip }

function Admin:post_breaker(request, policy, key, verb, query)
  local act = ACTIONS[verb]
  if not act then return problem(404, "No such page", "a breaker takes mode, reset and trip") end
  local guard, found = self:find(policy, key)
  if not guard then return found end
  local given, message = arguments.read(request, query)
  if not given then return problem(400, "Not understood", message) end
  return act(self, request, guard, found, given)
end

-- Policies ---------------------------------------------------------------------------------------

--- What is in force, without the deployment's params: they may hold what is not for every eye.
local function config_of(policy)
  local config = check.config(policy)
  config.params = nil
  return config
end

function Admin:policy_row(row, guard)
  local stats = guard and guard:stats()
  return {
    name = row.name, path = row.path, hash = row.hash, last_error = row.error or json.null,
    loaded_at = row.loaded_at_ms and self.since and self.since(row.loaded_at_ms) or json.null,
    gone = row.is_gone, orphaned = row.is_orphaned,
    reloads = row.reloads, failures = row.failures,
    params_version = row.params_version,
    warnings = guard and list(guard.policy.warnings or {}),
    config = guard and config_of(guard.policy),
    queues = stats and list(stats.queues), stores = stats and list(stats.stores),
    shadow = stats and stats.shadow,
    keys = stats and {
      used = stats.keys, max = stats.max_keys, overflow = stats.overflow, evicted = stats.evicted,
    },
  }
end

function Admin:rows() return self.policies and self.policies() or {} end

function Admin:row_of(policy)
  for _, row in ipairs(self:rows()) do
    if row.name == policy then return row end
  end
  return { name = policy }
end

--- What is declared, in force and where it is from.  Of what is not declared the values may be for
--- nobody's eyes.
function Admin:params_row(guard)
  local policy = self.params and self.params(guard.name) or guard.policy
  local row = self:row_of(guard.name)
  local params = check.parameters(policy)
  for _, one in ipairs(policy.declares and {} or params) do one.value = nil end
  return {
    policy = guard.name, declared = policy.declares, params = params, hash = policy.params_hash,
    version = row.params_version,
    since = row.params_at_ms and self.since and self.since(row.params_at_ms),
  }
end

function Admin:get_policies(_, policy, what)
  local guards = self.guards()
  if policy then
    local guard, answer = self:find(policy)
    if not guard then return answer end
    if what == "params" then return answer_json(200, self:params_row(guard)) end
    if what then return problem(404, "No such page", "a policy has params") end
    return answer_json(200, self:policy_row(self:row_of(policy), guard))
  end
  local rows = {}
  for i, row in ipairs(self:rows()) do rows[i] = self:policy_row(row, guards[row.name]) end
  return answer_json(200, { policies = list(rows) })
end

--- Who set what, and from where: the reload itself tells what each param was and is.
function Admin:say_params(request, policy, change)
  if not self.log then return end
  local names = {}
  for name in pairs(change.set) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(change.unset) do names[#names + 1] = name .. " unset" end
  local what = "params " .. table.concat(names, ", ")
  self.log("warn", "operator", ("%s: %s, by %s"):format(policy, what, change.by), {
    { "policy", policy }, { "action", what }, { "by", change.by }, { "why", change.reason },
    { "peer", request.peer },
  })
end

local NOT_HERE = "this host's params are set by files and the environment"

function Admin:post_params(request, policy, query)
  if not self.set_params then return problem(501, "Not here", NOT_HERE) end
  local guard, answer = self:find(policy)
  if not guard then return answer end
  local given, from_json = arguments.read(request, query, true)
  if not given then return problem(400, "Not understood", from_json) end
  local change, message = arguments.change(given, from_json)
  if not change then return problem(400, "Not understood", message) end
  local changes, err = self.set_params(policy, change)
  if not changes then return problem(400, "Not possible", tostring(err)) end
  self:say_params(request, policy, change)
  local row = self:params_row(guard)
  row.changed = list(changes)
  return answer_json(200, row)
end

local READ_AGAIN = "nor needed: files that change are read again within seconds, in all workers "
  .. "and threads; GET /policies says what is in force"

function Admin:post_reload()
  if not self.reload then return problem(501, "Not here", READ_AGAIN) end
  local reloaded, failed, message = self.reload()
  local errors = { message }
  for _, row in ipairs(self:rows()) do errors[#errors + 1] = row.error end
  return answer_json(failed == 0 and 200 or 422,
    { reloaded = reloaded, failed = failed, errors = list(errors) })
end

-- Pages ------------------------------------------------------------------------------------------

function Admin:get_healthz()
  local health = self.health and self.health() or "ok"
  return answer_json(health == "ok" and 200 or 503, { status = health })
end

function Admin:get_metrics()
  local guards, all = self.guards(), {}
  for _, name in ipairs(sorted_names(guards)) do all[#all + 1] = guards[name] end
  return { status = 200, type = metrics.content_type, body = metrics.parts(all, {
    policies = self:rows(), more = self.more_metrics and self.more_metrics(),
  }) }
end

local NO_PAGE = "this host has no page; GET /breakers has the numbers"

function Admin:get_live(request, policy, key)
  if not self.live then return problem(501, "Not here", NO_PAGE) end
  if not policy then
    local query = request.target:match("%?(.*)$") or ""
    return { status = 200, type = "application/json", body = self.live:parts(query) }
  end
  local guard, found = self:find(policy, key or "")
  if not guard then return found end
  return answer_json(200, {
    breaker = self:breaker_row(guard, found), moves = list(self.live:moves(guard, found)),
    policy = self:policy_row(self:row_of(policy), guard), params = self:params_row(guard),
  })
end

function Admin:get_events(request) return events(request, self.follow) end

local PAGES = {
  healthz = { GET = Admin.get_healthz },
  events = { GET = Admin.get_events },
  metrics = { GET = Admin.get_metrics },
  breakers = { GET = Admin.get_breakers },
  live = { GET = Admin.get_live },
  policies = { GET = Admin.get_policies },
  reload = { POST = Admin.post_reload },
}

local DEEPEST = { breakers = 4, policies = 3, live = 3 } -- parts of a path; of the others: 1

local INDEX = [=[
neap admin: in a browser this is a page of all breakers
  GET  /healthz
  GET  /metrics
  GET  /events[?last=N]
  GET  /breakers[/POLICY[/KEY]]
  POST /breakers/POLICY/KEY/mode    mode=auto|forced_open|forced_closed|shadow|policy by=NAME
                                    [for=10m] [reason=TEXT]
  POST /breakers/POLICY/KEY/reset   by=NAME [reason=TEXT]
  POST /breakers/POLICY/KEY/trip    by=NAME [for=30s] [reason=TEXT]
  GET  /policies[/POLICY]
  GET  /policies/POLICY/params
  POST /policies/POLICY/params      NAME=VALUE ... by=NAME [unset=NAME,NAME] [reason=TEXT]
  POST /reload
  GET  /live[/POLICY/KEY]           what the page shows
]=]

local function no_page(name)
  local names = {}
  for page in pairs(PAGES) do names[#names + 1] = page end
  table.sort(names)
  local near = suggest.nearest(name or "", names)
  return problem(404, "No such page", near and ("did you mean /%s?"):format(near)
    or "there are /" .. table.concat(names, ", /"))
end

function Admin:route(request)
  local path, query = request.target:match("^([^?#]*)%??([^#]*)")
  local parts = {}
  for part in path:gmatch("/([^/]*)") do parts[#parts + 1] = arguments.decode(part) end
  if parts[#parts] == "" then parts[#parts] = nil end -- but within the path it is a key
  local method = request.method == "HEAD" and "GET" or request.method
  if #parts == 0 and self.live and the_page.is_wanted(request) then return the_page.answer() end
  if #parts == 0 and method == "GET" then return { status = 200, type = "text/plain; charset=utf-8",
    body = INDEX } end
  local page = PAGES[parts[1]]
  if not page or #parts > (DEEPEST[parts[1]] or 1) then return no_page(parts[1]) end
  if parts[1] == "policies" and parts[3] == "params" and method == "POST" then
    return self:post_params(request, parts[2], query)
  end
  if parts[1] == "breakers" and #parts == 4 then
    if method ~= "POST" then return problem(405, "Only by POST", nil, { Allow = "POST" }) end
    return self:post_breaker(request, parts[2], parts[3], parts[4], query)
  end
  local act = page[method]
  if not act then
    local allowed = page.GET and "GET, HEAD" or "POST"
    if parts[1] == "policies" and parts[3] == "params" then allowed = "GET, HEAD, POST" end
    return problem(405, "Only by " .. allowed, nil, { Allow = allowed })
  end
  return act(self, request, parts[2], parts[3])
end

--- Answers a request. Never raises for what a client sends.
---@param request neap.admin.request
---@return neap.admin.answer
function Admin:handle(request)
  local is_health = request.target:match("^/healthz%??[^/]*$")
    and (request.method == "GET" or request.method == "HEAD")
  local token = self.token and self.token()
  -- A browser sends no token for the page, which tells nothing without.
  local is_open = is_health or token and self.live and the_page.is_wanted(request)
  local refusal = not is_open and access.refusal(request, token, self.token ~= nil)
  local answer = refusal or self:route(request)
  answer.headers = answer.headers or {}
  answer.headers["Cache-Control"] = "no-store"
  answer.headers["X-Content-Type-Options"] = "nosniff"
  return answer
end

---@param options neap.admin.options
function admin.open(options)
  local self = setmetatable({}, Admin)
  for name, value in pairs(options) do self[name] = value end
  return self
end

return admin
