--- What the hosts that are proxies have in common: how they are opened and looked after, whose
-- breakers a page shows, what becomes of a permit, and which answers need no classifier.

local core = require "neap.core"
local fallback = require "neap.fallback"
local guard = require "neap.guard"
local line = require "neap.line"
local reload = require "neap.reload"
local suggest = require "neap.suggest"

local concat, lower = table.concat, string.lower

local proxied = {}

proxied.DEFAULT = "default" -- the key of requests that have none

local PANEL_ROWS, MOST_ROWS = 1024, 4194304 -- unless said otherwise; as lua/src/panel_shared.c
local RETRY_MS = 2000 -- after something went wrong with looking at the files

-- ---- Options ----------------------------------------------------------------------------------

local OPTIONS = {
  policies = "any", panel = "string", rows = "number", params = "any", max_keys = "number",
  on_event = "function",
}

--- Why that can't say where the policies are, or nil.
local function policies_fault(given)
  local paths = type(given) == "table" and given or { given }
  if #paths == 0 then return "no policies are given: a file, a directory or a list of them" end
  for _, path in ipairs(paths) do
    if type(path) ~= "string" then
      return "option policies must be a path or a list of paths, got " .. type(path)
    end
  end
end

--- Why there can't be a panel of so many rows, or nil.
local function rows_fault(rows, panel)
  if not panel then return "option rows is of a panel: which?" end
  if rows % 1 == 0 and rows >= 1 and rows <= MOST_ROWS then return nil end
  return ("option rows must be a whole number from 1 to %d, got %.14g"):format(MOST_ROWS, rows)
end

--- Raises, at whoever called open, if an option is not among those, nor of the host's own; or of
--- another type than stands there; "any" is one.
---@param given table
---@param own? table<string, string>
function proxied.check_options(given, own)
  if type(given) ~= "table" then error("options must be a table, got " .. type(given), 4) end
  own = own or {}
  for name, value in pairs(given) do
    local expected = OPTIONS[name] or own[name]
    if not expected then
      local names = {}
      for one in pairs(OPTIONS) do names[#names + 1] = one end
      for one in pairs(own) do names[#names + 1] = one end
      error(("there is no option %s%s"):format(tostring(name), suggest.hint(name, names)), 4)
    elseif expected ~= "any" and type(value) ~= expected then
      error(("option %s must be a %s, got %s"):format(name, expected, type(value)), 4)
    end
  end
  local fault = policies_fault(given.policies)
    or given.rows and rows_fault(given.rows, given.panel) or nil
  if fault then error(fault, 4) end
end

-- ---- Guards -----------------------------------------------------------------------------------

--- "there is no policy X", and which is meant.
---@param guards table<string, neap.Guard>
function proxied.no_policy(guards, name)
  local names = {}
  for known in pairs(guards) do names[#names + 1] = known end
  return ("there is no policy %s%s"):format(tostring(name), suggest.hint(name, names))
end

--- Guards get the keys that other processes, or Lua states, have seen.
---@param guards table<string, neap.Guard>
---@param panel? neap.core.Panel
function proxied.find_keys(guards, panel)
  for _, breaker in ipairs(panel and panel:rows() or {}) do
    local name, key = (breaker:name() or ""):match("^([^/]*)/(.*)$")
    local of_guard = name and rawget(guards, name)
    if of_guard then of_guard:line_of(key) end
  end
end

--- Guards with all of their keys, by name.
---@param guards table<string, neap.Guard>
---@param panel? neap.core.Panel
---@return neap.Guard[]
function proxied.list(guards, panel)
  proxied.find_keys(guards, panel)
  local list = {}
  for _, made in pairs(guards) do list[#list + 1] = made end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- ---- Opening ----------------------------------------------------------------------------------

---@param log fun(level: string, text: string)
function proxied.open_panel(path, rows, log)
  local panel, notice = core.panel_shared(path, rows or PANEL_ROWS)
  if not panel then error(notice, 0) end
  if notice then log("warning", notice) end
  return panel
end

--- What takes a policy that was read, for the first time or again: a guard goes by it from then on.
---@param guards table<string, neap.Guard>
---@param options table as open was given them
---@param own { panel: neap.core.Panel|nil, host: neap.Host, log: function, adopted: function }
---  adopted is called with the guard, each time
---@return fun(policy: neap.Policy): true|nil, any
function proxied.adopter(guards, options, own)
  local function tell(event)
    own.log(event.to == "open" and "warning" or "info", tostring(event))
  end
  return function(policy)
    local found = rawget(guards, policy.name)
    if not found then
      local ok, made = pcall(guard.new, policy, {
        panel = own.panel, host = own.host, log = own.log, max_keys = options.max_keys,
        on_event = options.on_event or tell,
      })
      if not ok then return nil, made end
      found = made
    elseif policy.hash ~= found.policy.hash then
      found:adopt(policy)
    end
    own.adopted(found)
    guards[policy.name] = found
    return true
  end
end

local LEVELS = { reloaded = "info", back = "info", params = "info" } -- of the others: "warning"

--- Reads the policies; raises if any is wrong.
---@param options table as open was given them
---@param own { adopt: function, log: fun(level: string, text: string), files: table|nil }
---@return neap.Reloader
function proxied.open_policies(guards, options, own)
  local reloader, errors = reload.open {
    paths = type(options.policies) == "table" and options.policies or { options.policies },
    params = options.params, adopt = own.adopt, now = core.clock_precise, files = own.files,
    on_event = function(event)
      local of_guard = rawget(guards, event.policy)
      if event.kind == "reload_failed" and of_guard then of_guard:adopt_failed(event.text) end
      own.log(LEVELS[event.kind] or "warning", event.text)
    end,
  }
  if not reloader then error(table.concat(errors, "\n"), 0) end
  return reloader
end

-- ---- Looking after ----------------------------------------------------------------------------

--- What says in the log, once, that the panel is not the one at its path any more.
---@param panel neap.core.Panel
---@return fun()
function proxied.panel_watch(panel, log)
  local is_wrong = false
  return function()
    local ok, message = panel:check()
    if not ok and not is_wrong then log("error", message) end
    is_wrong = not ok
  end
end

--- Looks at the policy files, and answers when to look again.  All at once: no request is served
--- while a guard is between two policies, where the host could stop Lua at any instruction.
---@return number wait_ms
function proxied.look(reloader, log)
  local ok, wait_ms = core.protect(reloader.look, reloader)
  if ok then return wait_ms end
  log("error", "looking at the policy files: " .. tostring(wait_ms))
  return RETRY_MS
end

-- ---- Keys -------------------------------------------------------------------------------------

local in_any_case = {
  __index = function(headers, name)
    return type(name) == "string" and rawget(headers, lower(name)) or nil
  end,
}

--- Whose breaker a request's is that the configuration gives no key: the policy's key function is
--- asked, which the policy has.  All that it may look at has to be there: it runs in a coroutine of
--- the sandbox's, where the proxy does not know which request it is.
---@param of_guard neap.Guard
---@param method string
---@param target string as it was sent, with its query
---@param headers table<string, string|string[]> by name in lower case; the function's from now on
---@return string
function proxied.key(of_guard, method, target, headers)
  for name, value in next, headers do
    if type(value) == "table" then headers[name] = concat(value, ", ") end
  end
  return of_guard:key { request = {
    method = method, target = target, headers = setmetatable(headers, in_any_case),
  } }
end

-- ---- Permits: a number, or of a probe userdata --------------------------------------------------

--- What the call came to.
function proxied.report(of_line, permit, call)
  call.key = of_line.key
  if type(permit) == "number" then return (line.report(of_line, permit, call)) end
  return (of_line.guard:report(permit, call))
end

--- The request was no call ("neutral"), or nobody knows ("abandoned").
function proxied.give_back(of_line, permit, outcome)
  if type(permit) == "number" then return end
  line.enqueue(of_line, select(2, of_line.native:give(permit, outcome)))
  of_line.guard.events:deliver()
end

-- ---- Answering --------------------------------------------------------------------------------

--- Asks the policy's chain in place of the call.
---@param id string of the answer, for those that are kept
function proxied.ask_chain(of_line, cause, call, id)
  call.key, call.id = of_line.key, id
  return of_line.guard:fallback(cause, call)
end

--- What the chain has for a request that was refused: its answer and where that is from; or nil
--- and the refusal that says why there is none.
---@param err neap.Refusal
---@return any value, table|neap.Refusal
function proxied.instead(of_line, err, id)
  if not fallback.applies(of_line.guard.policy, "refused") then return nil, err end
  local value, info, stage_err = proxied.ask_chain(of_line, "refused", {
    refused = err.kind, error = err, retry_after_ms = err.retry_after_ms, ended_by = "refused",
  }, id)
  if value ~= nil then return value, info end
  return nil, stage_err or err
end

--- Milliseconds as Retry-After says them: never too early.
---@return integer
function proxied.seconds(ms) return math.max(1, math.ceil(ms / 1000)) end

-- ---- Classifiers ------------------------------------------------------------------------------

--- Shipped classifiers that may call 200 to 399 a success whatever else there is.
proxied.PLAIN = {
  ["classify.default"] = true, ["classify.http"] = true, ["classify.ofrep"] = true,
}

--- Whether a classifier takes all of 200 to 399 for successes.
function proxied.is_plain(classify)
  for status = 200, 399 do
    if classify { status = status, ended_by = "answer" } ~= "success" then return false end
  end
  return true
end

return proxied
