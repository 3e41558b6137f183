--- neap in nginx: OpenResty, or nginx with its Lua module (LuaJIT of OpenResty).
--
--   init_by_lua_block {
--     neap = require "neap.nginx"
--     guards = neap.open { panel = "/dev/shm/neap", policies = "/etc/nginx/policies" }
--   }
--   init_worker_by_lua_block { neap.start() }
--   log_by_lua_block         { neap.log() }                      for all of http {}
--
--   location /pay/ {
--     access_by_lua_block    { guards.payments:access() }
--     proxy_pass             http://pay;                         as ever
--   }
--
-- access lets the request go on, or answers it: by the policy's fallback chain, or 503 with
-- Retry-After.  log finds out what the upstream did, whatever has been made of it for the client:
-- error_page, retries over several servers, a client that left.  In between the permit is a slot in
-- C, under the request (lua/src/nginx.c).
--
-- The panel is opened by the master, before it drops its privileges; workers inherit it, and all of
-- them judge by the same breakers.  Neither access nor log waits for anything or takes a lock.

local core = require "neap.core"

local answers = require "neap.nginx_answer"
local fallback = require "neap.fallback"
local host = require "neap.hosts.nginx"
local line = require "neap.line"
local metrics = require "neap.metrics"
local proxied = require "neap.proxied"
local refusal = require "neap.refusal"
local upstream = require "neap.nginx_upstream"

local process = require "ngx.process"
local ngx = ngx
local req = ngx.req

local nginx = {}

local DEFAULT = proxied.DEFAULT
local TRY = 3 -- as KIND_TRY in lua/src/nginx_slots.h

---@class (exact) neap.nginx.options
---@field policies string|string[] policy files, and directories of them
---@field panel? string the shared panel's path, on tmpfs such as /dev/shm; without: each worker
---  judges by itself
---@field rows? integer of the panel, if it has to be made: 1024 if not given
---@field params? string|string[] Lua files that return { policy name = params }
---@field count? "requests"|"tries" what is one outcome when nginx tries several servers: the
---  request, which ends as its last try did (the default); or each try
---@field max_keys? integer as of neap.guard
---@field on_event? fun(event: neap.Event) without: transitions go to the error log

--- A guard with what the phases of a request need.
---@class neap.nginx.Guard : neap.Guard
---@field access fun(self, key?: string) for access_by_lua: lets the request go on, or answers it;
---  without a key, here and below, the policy's key function says which
---@field ask fun(self, key?: string): boolean|nil, neap.Refusal|nil for balancer_by_lua, or where
---  somebody else answers: true, or nil and why not
---@field keep fun(self, key?: string) for body_filter_by_lua: keeps a good answer
---@field answer fun(self, key?: string) for the location that error_page names: the chain's answer

local requests, take -- of lua/src/nginx.c
local guards, reloader, options, panel
local is_unstarted -- no start in this worker, and nobody was told
local is_started

local LEVELS = { info = ngx.NOTICE, warning = ngx.WARN, error = ngx.ERR }

local function log(level, text)
  ngx.log(LEVELS[level] or ngx.ERR, "neap: ", (text:gsub("%c", " "))) -- it may be of a client
end

-- ---- Answering a request ----------------------------------------------------------------------

local function moved(of_line, transition)
  line.enqueue(of_line, transition)
  of_line.guard.events:deliver()
end

--- Answers in the access phase; what is left to do is ngx.exit.
---@return integer status
local function refuse(of_line, reason, retry_after_ms, transition)
  if transition then moved(of_line, transition) end
  local err = refusal.new {
    kind = reason, policy = of_line.guard.name, key = of_line.key,
    retry_after_ms = retry_after_ms > 0 and retry_after_ms or nil,
  }
  line.refused(of_line, reason)
  local id = fallback.applies(of_line.guard.policy, "refused") and answers.id()
  local value, info = proxied.instead(of_line, err, id)
  if value == nil then return answers.problem(info) end
  return answers.send(of_line.guard, value, info, err.retry_after_ms) or answers.problem(err)
end

-- ---- What became of a request -----------------------------------------------------------------

local report, give_back = proxied.report, proxied.give_back

--- The call that ended before any server could be asked: the upstream's name was not found.  Nil if
--- there was none.
---@param status integer
local function unreached(status)
  return requests:has_upstream() and upstream.unreached(status) or nil
end

local function settle(of_line, permit, kind)
  if not kind then return give_back(of_line, permit, "abandoned") end
  local tries = upstream.tries(kind ~= TRY and kind + 1 or nil)
  if not tries then
    local call = unreached(ngx.ctx.neap_status or ngx.status)
    if call then return report(of_line, permit, call) end
    return give_back(of_line, permit, "neutral")
  end
  local policy = of_line.guard.policy
  local last = #tries
  if kind ~= TRY and options.count ~= "tries" then
    return report(of_line, permit, upstream.call(policy, tries, 1, last))
  end
  -- All but the last have failed; a probe is one outcome, that of the last.
  for i = 1, kind ~= TRY and type(permit) == "number" and last - 1 or 0 do
    report(of_line, permit, upstream.call(policy, tries, i, i))
  end
  return report(of_line, permit, upstream.call(policy, tries, last, last))
end

-- ---- Guards -----------------------------------------------------------------------------------

local function is_plain(policy)
  local verdict = policy.config.classify
  return options.count ~= "tries" and not policy.candidate and upstream.PLAIN[verdict] ~= nil
    and upstream.is_plain(policy.classify)
end

--- The way in of a key: { gate, access, ask, ask_try, line }.
local function gate_of(of_guard, key)
  local gates = of_guard.gates
  local found = gates[key]
  if found then return found end
  local of_line = of_guard:line_of(key)
  found = gates[of_line.key]
  if not found then
    found = { line = of_line }
    found.gate, found.access, found.ask, found.ask_try = requests:gate(of_line.native, of_line)
    found.gate:judge(is_plain(of_guard.policy))
    gates[of_line.key] = found
  end
  return found
end

local function check_key(key)
  if key ~= nil and type(key) ~= "string" then
    error(("key must be a string, got %s"):format(type(key)), 3)
  end
end

--- The key of a request that is given none.
local function own_key(of_guard)
  if not of_guard.policy.key then return DEFAULT end
  return proxied.key(of_guard, req.get_method(), ngx.var.request_uri or "",
    req.get_headers(0)) -- without the 0 there are a hundred
end

--- A key's request: nil if it may go on, else the status of what is answered.
local function keyed(of_line, key)
  local gate = gate_of(of_line.guard, key)
  local reason, retry_after_ms, transition = gate.ask()
  if reason then return refuse(gate.line, reason, retry_after_ms, transition) end
end

--- The guard's method access in Lua: for a policy that says itself whose breaker a request's is,
--- or whose chain asks another guard, which may wait, as C may not.
local function access_in_lua(of_guard, key)
  check_key(key)
  local status = keyed(of_guard.line, key or own_key(of_guard))
  if status then return ngx.exit(status) end
end

--- The guard's method ask, for the balancer phase: whether this try may go to that peer.
--- True; or nil and the refusal, and nothing is answered.
local function ask(of_guard, key)
  check_key(key)
  local is_try = ngx.get_phase() == "balancer"
  if is_try then
    local of_line, permit = take()
    if of_line then
      local tries = upstream.tries()
      local last = tries and #tries
      if tries then
        report(of_line, permit, upstream.call(of_line.guard.policy, tries, last, last))
      else
        give_back(of_line, permit, "neutral")
      end
    end
  end
  local gate = gate_of(of_guard, key or own_key(of_guard))
  local reason, retry_after_ms, transition = (is_try and gate.ask_try or gate.ask)()
  if transition then moved(gate.line, transition) end
  if not reason then return true end
  line.refused(gate.line, reason)
  return nil, refusal.new {
    kind = reason, policy = of_guard.name, key = gate.line.key,
    retry_after_ms = retry_after_ms > 0 and retry_after_ms or nil,
  }
end

--- The guard's method answer, for the location that error_page names: the policy's fallback chain
--- for a call that has failed, or the status that nginx has for it.
local function answer(of_guard, key)
  check_key(key)
  local tries = upstream.tries()
  local status = ngx.status >= 400 and ngx.status or 502
  local call = tries and upstream.call(of_guard.policy, tries, 1, #tries) or unreached(status)
  if call then
    if not tries then ngx.ctx.neap_status = status end -- log has the chain's
    local cause = call.ended_by == "timeout" and "timeout" or "failure"
    local of_line = gate_of(of_guard, key or own_key(of_guard)).line
    local value, info, err = proxied.ask_chain(of_line, cause, call, answers.id())
    if value ~= nil then return ngx.exit(answers.send(of_guard, value, info) or status) end
    if err then return ngx.exit(answers.problem(err)) end
  end
  return ngx.exit(status)
end

--- The guard's method keep, for body_filter_by_lua: keeps good answers for the policy's last_good
--- stages.
local function keep(of_guard, key)
  check_key(key)
  local whole = answers.gather()
  local tries = whole and upstream.tries()
  if not tries then return end
  local policy = of_guard.policy
  if policy.classify(upstream.call(policy, tries, 1, #tries)) ~= "success" then return end
  of_guard:remember({ key = key or own_key(of_guard), id = answers.id() }, whole)
end

local function needs_lua(policy)
  if policy.key then return true end
  for _, stage in ipairs(policy.stages) do
    if stage.kind == "guard" then return true end
  end
  return false
end

local tell_unstarted

--- What the policy's generation changes in the guard's methods and gates.
local function equip(made)
  made.gates, made.is_tended = made.gates or {}, is_started
  local access = needs_lua(made.policy) and access_in_lua or gate_of(made, DEFAULT).access
  made.access = is_unstarted and function(...)
    tell_unstarted()
    return access(...)
  end or access
  made.ask, made.answer, made.keep = ask, answer, keep
  for _, gate in pairs(made.gates) do gate.gate:judge(is_plain(made.policy)) end
end

local function stop_asking_for_start()
  is_unstarted = false
  for _, made in pairs(guards) do equip(made) end
end

function tell_unstarted()
  if not is_unstarted then return end
  stop_asking_for_start()
  log("warning", "neap.start() was not called in init_worker_by_lua of http { }: policies are not "
    .. "read again when they change")
end

-- ---- Opening ----------------------------------------------------------------------------------

local function check(given)
  proxied.check_options(given, { count = "string" })
  if given.count and given.count ~= "requests" and given.count ~= "tries" then
    error(("option count must be \"requests\" or \"tries\", got %q"):format(given.count), 3)
  end
end

local function no_guard(_, name) error(proxied.no_policy(guards, name), 2) end

local function open_panel(path, rows)
  local borrowed = requests:borrow(path)
  if borrowed then return borrowed end
  local opened = proxied.open_panel(path, rows, log)
  requests:lend(opened)
  return opened
end

--- Opens the panel, loads the policies, makes a guard of each: by the policies' names.  For
--- init_by_lua; raises if anything is wrong, so nginx does not start, or goes on as it was.
---@param given neap.nginx.options
---@return table<string, neap.nginx.Guard>
function nginx.open(given)
  check(given)
  options = given
  local log_requests
  requests, log_requests, take = core.requests(settle, moved, refuse, keyed)
  if not requests then error("this is not nginx with OpenResty's LuaJIT", 2) end
  nginx.log = log_requests
  panel = given.panel and open_panel(given.panel, given.rows)
  guards = setmetatable({}, { __index = no_guard })
  is_unstarted = process.type() ~= "worker" -- there, with lua_code_cache off, a request opens
  local adopt = proxied.adopter(guards, given, {
    panel = panel, host = host, log = log, adopted = equip,
  })
  reloader = proxied.open_policies(guards, given, { adopt = adopt, log = log })
  return guards
end

-- ---- In each worker ---------------------------------------------------------------------------

local LEAST_WAIT_MS = 10
local is_loss_told, check_panel

--- A breaker whose requests are not reported never opens: somebody has to be told.
local function check_reports()
  local _, lost = requests:count()
  if lost == 0 or is_loss_told then return end
  is_loss_told = true
  log("warning", ("requests that were let in are not reported (%.0f so far): is neap.log() in the "
    .. "log_by_lua of http { }, and in each that a location has of its own?"):format(lost))
end

--- Answers when to do it again.
local function look_after()
  if check_panel then check_panel() end
  check_reports()
  for _, made in pairs(guards) do made:stats() end -- the other workers see them
  return proxied.look(reloader, log)
end

local look_ms = 0 -- when that is due

--- In between, calls that hang are counted though no others come.
local function tick(is_premature)
  if is_premature then -- the worker goes
    for _, made in pairs(guards) do made.script:finish() end
    return
  end
  local now_ms = core.clock_coarse()
  if now_ms >= look_ms then look_ms = now_ms + look_after() end
  local wait_ms = look_ms - now_ms
  for _, made in pairs(guards) do wait_ms = math.min(wait_ms, made:sweep() or wait_ms) end
  local made, err = ngx.timer.at(math.max(wait_ms, LEAST_WAIT_MS) / 1000, tick)
  if not made then log("error", "no timer, policies are not looked at again: " .. tostring(err)) end
end

--- Looks after the policy files from now on, in this worker.  For init_worker_by_lua.
function nginx.start()
  if not reloader then error("neap.open comes first, in init_by_lua", 2) end
  if is_started then return end
  is_started = true
  check_panel = panel and proxied.panel_watch(panel, log)
  stop_asking_for_start()
  tick()
end

--- Finds out what became of the request that guards let in.  For log_by_lua, best in http {}: a
--- request that error_page has sent to another location is logged there.
function nginx.log() error("neap.open comes first, in init_by_lua", 2) end

local function more_metrics()
  local open, lost = requests:count()
  return {
    { name = "neap_nginx_requests", type = "gauge", help = "Requests let in and not yet logged, of "
      .. "the worker that answers.", { value = open } },
    { name = "neap_nginx_lost_total", type = "counter", help = "Requests let in that no "
      .. "log_by_lua saw the end of, of the worker that answers.", { value = lost } },
  }
end

--- The metrics page of all workers.  For content_by_lua.
function nginx.metrics()
  ngx.header["Content-Type"] = metrics.content_type
  ngx.print(metrics.text(proxied.list(guards, panel),
    { policies = reloader:rows(), more = more_metrics() }))
end

--- The admin pages: breakers, their modes, trip and reset.  For content_by_lua of a location that
--- not everybody may ask.  Needs the Lua module cjson, and answers 501 without.
---@param prefix? string the location's, such as "/neap"
function nginx.admin(prefix)
  if not pcall(require, "cjson") then
    ngx.status = 501
    return ngx.say("neap.admin needs the Lua module cjson; Debian's package is lua-cjson")
  end
  proxied.find_keys(guards, panel)
  require "neap.nginx_admin"(prefix or "", {
    guards = function() return guards end,
    policies = function() return reloader:rows() end,
    more_metrics = more_metrics,
  })
end

return nginx
