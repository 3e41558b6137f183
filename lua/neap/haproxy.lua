--- neap in HAProxy, by its Lua 5.3.
--
--   global
--     lua-load-per-thread /etc/haproxy/neap.lua     which says: require("neap.haproxy").open {
--                                                     panel = "/dev/shm/neap",
--   backend payments                                  policies = "/etc/haproxy/policies" }
--     http-request        lua.neap_acquire payments
--     http-request        use-service lua.neap_fallback if { var(txn.neap_refused) -m found }
--     http-response       lua.neap_report
--     http-after-response set-var(txn.neap) lua.neap_end if { status 502:504 }
--
-- neap_acquire lets a request go on, or says that it is refused; neap_fallback answers it then: by
-- the policy's fallback chain, or 503 with Retry-After.  neap_report is told by the server's answer
-- what the call came to.  Where no answer came HAProxy makes one, which no http-response rule sees:
-- that is for neap_end.
--
-- No action answers a request itself, by txn:done(): that runs the http-after-response rules inside
-- of the action, where a fetch in Lua enters the coroutine again, and HAProxy 2.6 crashes.
--
-- In between the permit waits under the coroutine that HAProxy runs the request's Lua in, which
-- ends with the request.  So one that nobody reported (a client that left) is garbage with it, and
-- a probe among those gives its slot back when it is collected; tick sees to it that that is soon.
--
-- Each thread has a Lua state of its own, all of them judge by the breakers of one panel.  It is
-- opened while HAProxy starts, before it drops its privileges or changes its root.

local host = require "neap.hosts.haproxy"
local native = require "neap.core"
local proxied = require "neap.proxied"
local services = require "neap.haproxy_services"
local upstream = require "neap.haproxy_upstream"
local watched = require "neap.watched"

local act, core = act, core -- HAProxy's
local running = coroutine.running

local haproxy = {}

local COLLECT_MS = 1000 -- a probe that has taken this long may be nobody's any more
local DEFAULT = proxied.DEFAULT

---@class (exact) neap.haproxy.options
---@field policies string|string[] policy files, and directories of them
---@field panel? string the shared panel's path, on tmpfs such as /dev/shm; needed by
---  lua-load-per-thread
---@field rows? integer of the panel, if it has to be made: 1024 if not given
---@field params? string|string[] Lua files that return { policy name = params }
---@field max_keys? integer as of neap.guard
---@field on_event? fun(event: neap.Event) without: transitions go to HAProxy's log

local guards, reloader, panel

-- By what neap_acquire calls them: gates; and { guard, variable } where each request has a key of
-- its own: it is in a variable, or the policy says which.
local gates, deciders = {}, {}

-- By POLICY/KEY, as breakers are called: { guard, line, public, acquire, key, report, is_plain,
-- may_be_grpc }; the key is what acquire has to be given, not to ask the policy for it.  A key may
-- be of a client's making, and read like what stands in the configuration: so not in gates.
local gates_of_keys = {}

-- Of the requests under way, by the coroutine that their Lua runs in: a permit and its gate; or of
-- one that was refused no permit, and { gate, backend } where that was.
local permits = setmetatable({}, { __mode = "k" })
local owners = setmetatable({}, { __mode = "k" })

-- ---- Log --------------------------------------------------------------------------------------

local LEVELS = { info = core.info, warning = core.warning, error = core.err }

local function log(level, text)
  core.log(LEVELS[level] or core.err, "neap: " .. text)
end

--- What all threads find out alike is said by the first.
local function log_once(level, text)
  if core.thread <= 1 then log(level, text) end
end

-- ---- What became of a request -----------------------------------------------------------------

--- The permit that the request was let in with, once.
local function take(stream)
  local permit, gate = permits[stream], owners[stream]
  permits[stream], owners[stream] = nil, nil
  return permit, gate
end

--- A request that was refused in this backend must not have come to its server.
local function check_refused(txn, refused)
  if refused.backend ~= txn.f:be_name() or not txn.f:srv_name() then return end
  refused.gate.guard:warn("refused", ("backend %s: requests that neap_acquire has refused go to "
    .. "the server; what is missing after it: http-request use-service lua.neap_fallback if "
    .. "{ var(txn.neap_refused) -m found }"):format(refused.backend))
end

--- http-response lua.neap_report: the server has answered, or a service or the cache of HAProxy's.
local function report_answer(txn)
  local permit, gate = take(running())
  if permit == nil then return gate and check_refused(txn, gate) end
  if not txn.f:srv_name() then return proxied.give_back(gate.line, permit, "neutral") end
  local status = txn.f:status()
  local took_ms = gate.line.native:about(permit)
  local timeout_ms = gate.guard.policy.timeout_ms
  local is_late = timeout_ms and took_ms > timeout_ms
  if gate.is_plain and status >= 200 and status < 400 and not is_late
    and type(permit) == "number" and not (gate.may_be_grpc and upstream.grpc_status(txn)) then
    gate.report(gate.public, permit, "success")
    return
  end
  local call = upstream.answer(txn, gate.guard.policy, status)
  call.duration_ms, call.ended_by = took_ms, is_late and "timeout" or "answer"
  proxied.report(gate.line, permit, call)
end

--- The fetch lua.neap_end, in http-after-response: HAProxy has answered itself.
local function report_end(txn)
  local permit, gate = take(running())
  if permit == nil then return "" end
  local call = upstream.none(txn)
  if not call then
    proxied.give_back(gate.line, permit, "neutral")
    return "neutral"
  end
  return proxied.report(gate.line, permit, call)
end

-- ---- Guards -----------------------------------------------------------------------------------

--- How the policy's generation judges.
local function equip(gate)
  local policy = gate.guard.policy
  gate.key = policy.key and gate.line.is_default and DEFAULT or nil
  gate.is_plain, gate.may_be_grpc = upstream.is_plain(policy), upstream.may_be_grpc(policy)
end

local function new_gate(of_guard, of_line)
  local public = of_line.is_default and of_guard or of_line
  local made = {
    guard = of_guard, line = of_line, public = public, acquire = public.acquire,
    report = public.report,
  }
  equip(made)
  return made
end

local function gate_of(of_guard, key)
  local name = of_guard.name .. "/" .. key
  local found = gates_of_keys[name]
  if found then return found end
  local of_line = of_guard:line_of(key)
  name = of_guard.name .. "/" .. of_line.key -- keys there is no room for share one
  found = gates_of_keys[name] or new_gate(of_guard, of_line)
  gates_of_keys[name] = found
  return found
end

local is_told = {} -- names that there is no policy of

local function misnamed(name)
  if is_told[name] then return end
  is_told[name] = true
  log("error", proxied.no_policy(guards, name) .. ": requests for it are answered with 500")
end

--- The key of a request that is given none.
local function own_key(txn, of_guard)
  if not of_guard.policy.key then return DEFAULT end
  return proxied.key(of_guard, txn.sf:method(), txn.sf:pathq(),
    upstream.headers(txn.http:req_get_headers()))
end

--- The gate of POLICY, POLICY/KEY or POLICY/var(NAME) when it is not among gates; nil: none.
local function find_gate(txn, name)
  local found = deciders[name]
  if not found then
    local policy, key = name:match("^([^/]+)/(.+)$")
    local of_guard = guards[policy or name]
    if not of_guard then return misnamed(name) end
    local variable = key and key:match("^var%((.+)%)$")
    if not variable and (key or not of_guard.policy.key) then
      gates[name] = gate_of(of_guard, key or DEFAULT)
      return gates[name]
    end
    found = { guard = of_guard, variable = variable }
    deciders[name] = found
  end
  local key
  if found.variable then key = txn:get_var(found.variable) end
  local is_given = key ~= nil and key ~= ""
  return gate_of(found.guard, is_given and tostring(key) or own_key(txn, found.guard))
end

--- The request has asked a policy before.  Let in: only the last can be told what became of it.
--- Refused: it is, if that was in this backend; if it was sent to another, that one is asked anew.
---@return boolean whether it stays refused
local function asks_again(txn, stream)
  local permit, owner = take(stream)
  if permit ~= nil then
    proxied.give_back(owner.line, permit, "neutral")
    owner.guard:warn("two", "the request had asked another policy after this one: a request can be "
      .. "one call; this one was told nothing")
    return false
  end
  if owner.backend == txn.f:be_name() then
    owners[stream] = owner
    return true
  end
  txn:unset_var("txn.neap_refused")
  txn:unset_var("txn.neap_retry_after")
  return false
end

local function refuse(txn, stream, gate, err)
  owners[stream] = { gate = gate, backend = txn.f:be_name() }
  txn:set_var("txn.neap_refused", err.kind)
  txn:set_var("txn.neap_gate", gate.guard.name .. "/" .. gate.line.key)
  if err.retry_after_ms then
    txn:set_var("txn.neap_retry_after", proxied.seconds(err.retry_after_ms))
  end
end

--- http-request lua.neap_acquire POLICY: lets the request go on; or tells why not in
--- txn.neap_refused, and in txn.neap_retry_after the seconds, if they are known.
local function acquire(txn, name)
  local gate = gates[name] or find_gate(txn, name)
  if not gate then return act.ERROR end
  local stream = running()
  if owners[stream] and asks_again(txn, stream) then return end
  local permit, err = gate.acquire(gate.public, gate.key)
  if permit == nil then return refuse(txn, stream, gate, err) end
  permits[stream], owners[stream] = permit, gate
end

-- ---- Files ------------------------------------------------------------------------------------

-- HAProxy changes its root when it has started, so a file has another name then.
local root = ""

local function visible(path)
  return path:sub(1, #root) == root and path:sub(#root + 1) or path
end

local files = {
  read = function(path, most) return native.read(visible(path), most) end,
  list = function(path) return native.list(visible(path)) end,
}

--- Finds out what HAProxy's root is, by the files that were read before it was changed.  Answers
--- whether any can be read now.
local function find_root()
  local _, known = reloader:watched()
  local path = known[1]
  repeat
    local at = path:find("/", #root + 2, true)
    if native.read(visible(path), watched.MAX_BYTES) then return true end
    root = at and path:sub(1, at - 1) or ""
  until root == ""
  return false
end

-- ---- Opening ----------------------------------------------------------------------------------

local function adopted(made)
  made.is_tended = true
  for _, gate in pairs(gates_of_keys) do
    if gate.guard == made then equip(gate) end
  end
  gates[made.name], deciders[made.name] = nil, nil -- it may have got a key function, or lost it
end

local function check(given)
  proxied.check_options(given)
  if not given.panel and core.thread > 0 then
    error("with lua-load-per-thread each thread would judge by itself: say panel = "
      .. "\"/dev/shm/neap\", or use lua-load", 3)
  end
end

local waiting = setmetatable({}, { __mode = "k" }) -- probes of the last collect

--- A probe that is still there after a second may be one whose request is not.
local function collect()
  local is_due = false
  for _, permit in next, permits do
    if type(permit) == "userdata" then
      is_due = is_due or waiting[permit]
      waiting[permit] = true
    end
  end
  if is_due then collectgarbage() end
end

--- What guards count beside their breakers, for the pages that other threads answer with.
local function share()
  for _, made in pairs(guards) do made:stats() end
end

--- The task that each Lua state has: it looks after the files, the panel and lost probes.
local function look_after()
  local has_files = find_root()
  if not has_files then
    log_once("warning", reloader:rows()[1].path .. ": can't be read any more, now that HAProxy has "
      .. "changed its user and root: policies are read again only when HAProxy is reloaded")
  end
  local check_panel = panel and panel:check() and proxied.panel_watch(panel, log_once)
  local next_ms = 0
  while true do
    local now_ms = native.clock_precise()
    if now_ms >= next_ms then
      if check_panel then check_panel() end
      next_ms = has_files and now_ms + proxied.look(reloader, log) or now_ms + COLLECT_MS
    end
    collect()
    for _, made in pairs(guards) do made:sweep() end
    if panel then share() end
    core.msleep(math.max(1, math.min(next_ms - now_ms, COLLECT_MS)))
  end
end

local function register()
  core.register_action("neap_acquire", { "http-req" }, acquire, 1)
  core.register_action("neap_report", { "http-res" }, report_answer, 0)
  core.register_fetches("neap_end", report_end)
  core.register_task(look_after)
end

--- Opens the panel, loads the policies, makes a guard of each, and the actions and services that
--- haproxy.cfg names.  For the file of lua-load-per-thread or lua-load; raises if anything is
--- wrong, so HAProxy does not start, or goes on as it was.
---@param given neap.haproxy.options
---@return table<string, neap.Guard> by the policies' names
function haproxy.open(given)
  check(given)
  if guards then error("open was called before in this Lua state", 2) end
  guards = {}
  panel = given.panel and proxied.open_panel(given.panel, given.rows, log_once)
  local adopt = proxied.adopter(guards, given, {
    panel = panel, host = host, log = log, adopted = adopted,
  })
  reloader = proxied.open_policies(guards, given, { adopt = adopt, log = log_once, files = files })
  services.register {
    guards = guards, gates = gates_of_keys, reloader = reloader, panel = panel, log = log,
  }
  register()
  return guards
end

return haproxy
