--- What HAProxy's use-service names: who answers a refused request, the metrics, the admin pages.

local answers = require "neap.proxied_answer"
local metrics = require "neap.metrics"
local proxied = require "neap.proxied"
local refusal = require "neap.refusal"

local core = core -- HAProxy's

local services = {}

local MOST_BYTES = 64 * 1024 -- of a request to the admin pages

---@class (exact) neap.haproxy.site
---@field guards table<string, neap.Guard>
---@field gates table<string, table> by POLICY/KEY
---@field reloader neap.Reloader
---@field panel neap.core.Panel|nil
---@field log fun(level: string, text: string)
local site

local NOT_MODIFIED = 304 -- a length there would be that of what the client has

---@param answer { status: integer, headers: string[], body: string }
local function serve(applet, answer)
  applet:set_status(answer.status)
  local headers, body = answer.headers, answer.body
  for i = 1, #headers, 2 do applet:add_header(headers[i], headers[i + 1]) end
  if answer.status ~= NOT_MODIFIED then
    applet:add_header("Content-Length", ("%d"):format(#body))
  end
  applet:start_response()
  if applet.method ~= "HEAD" and body ~= "" then applet:send(body) end
end

local function target_of(applet)
  local path, query = applet.path, applet.qs
  return query ~= "" and path .. "?" .. query or path
end

-- ---- A refused request ------------------------------------------------------------------------

--- What nobody has answered.
---@param err { status: integer|nil, retry_after_ms: integer|nil }
local function unanswered(err)
  local headers = { "Content-Type", "text/plain", "Cache-Control", "no-store" }
  local function add(name, text) headers[#headers + 1], headers[#headers + 2] = name, text end
  if err.retry_after_ms then
    add("Retry-After", ("%d"):format(proxied.seconds(err.retry_after_ms)))
  end
  if err.status then add("Neap-Source", "fail") end
  return { status = err.status or 503, headers = headers, body = "Not available\n" }
end

local function refused(of_line, err, id)
  local value, info = proxied.instead(of_line, err, id)
  if value == nil then return unanswered(info) end
  return answers.of(of_line.guard, value, info, err.retry_after_ms) or unanswered(err)
end

--- use-service lua.neap_fallback: answers what neap_acquire has refused.
local function fallback(applet)
  local gate = site.gates[applet:get_var("txn.neap_gate")]
  if not gate then
    site.log("error", "neap_fallback: nobody has refused this request: use-service "
      .. "lua.neap_fallback if { var(txn.neap_refused) -m found }")
    return serve(applet, { status = 500, headers = {}, body = "Not available\n" })
  end
  local of_line = gate.line
  local after_s = applet:get_var("txn.neap_retry_after")
  serve(applet, refused(of_line, refusal.new {
    kind = applet:get_var("txn.neap_refused"), policy = of_line.guard.name, key = of_line.key,
    retry_after_ms = after_s and after_s * 1000 or nil,
  }, target_of(applet)))
end

-- ---- Pages ------------------------------------------------------------------------------------

local admin -- nil: without cjson there are no such pages

local function serve_page(applet, answer)
  applet:set_status(answer.status)
  applet:add_header("Content-Type", answer.type)
  for name, value in pairs(answer.headers or {}) do applet:add_header(name, value) end
  applet:start_response()
  if applet.method == "HEAD" then return end
  if type(answer.body) == "string" then return applet:send(answer.body) end
  for part in answer.body do
    if part ~= "" then applet:send(part) end
  end
end

--- use-service lua.neap_metrics: of all threads and processes, whatever the path.
local function metrics_page(applet)
  local list = proxied.list(site.guards, site.panel)
  serve_page(applet, {
    status = 200, type = metrics.content_type,
    body = metrics.parts(list, { policies = site.reloader:rows() }),
  })
end

local function plain(status, text)
  return { status = status, headers = { "Content-Type", "text/plain" }, body = text .. "\n" }
end

--- nil: it is too long.
local function body_of(applet)
  local parts, bytes = {}, 0
  repeat
    local part = applet:receive(8192) -- or less, before the end, too
    parts[#parts + 1], bytes = part, bytes + #part
    if bytes > MOST_BYTES then return nil end
  until part == ""
  return table.concat(parts)
end

--- use-service lua.neap_admin: neap.admin's pages; a breaker's mode is set there.
local function admin_page(applet)
  if not admin then return serve(applet, plain(501, "needs the Lua module cjson")) end
  local body = body_of(applet)
  if not body then return serve(applet, plain(413, "64 KiB are enough here")) end
  local headers = {}
  for name, values in pairs(applet.headers) do headers[name] = values[0] end
  proxied.find_keys(site.guards, site.panel)
  serve_page(applet, admin:handle {
    target = target_of(applet), method = applet.method, headers = headers, body = body,
    peer = applet.f:src(),
  })
end

--- Modules that need others are loaded while they can be seen.
local function open_admin()
  local ok, pages = pcall(require, "neap.admin")
  admin = ok and pages.open {
    guards = function() return site.guards end,
    policies = function() return site.reloader:rows() end,
  }
end

---@param of_site neap.haproxy.site
function services.register(of_site)
  site = of_site
  open_admin()
  core.register_service("neap_fallback", "http", fallback)
  core.register_service("neap_metrics", "http", metrics_page)
  core.register_service("neap_admin", "http", admin_page)
end

return services
