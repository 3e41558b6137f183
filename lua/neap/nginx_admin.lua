--- The admin pages in nginx: takes a request to neap.admin, and sends what that answers.

local admin = require "neap.admin"
local core = require "neap.core"

local ngx = ngx

--- An instant of the guards' clock as people read it.
local function since(at_ms)
  local age_ms = math.max(0, core.clock_precise() - at_ms)
  return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(ngx.now() - age_ms / 1000))
end

--- The target below the location.
local function target_below(prefix)
  local target = ngx.var.request_uri
  if target:sub(1, #prefix) == prefix then target = target:sub(#prefix + 1) end
  return target:sub(1, 1) == "/" and target or "/" .. target
end

--- A header that is there twice is none of its lines.
local function headers_of_request()
  local headers = {}
  for name, value in pairs(ngx.req.get_headers(0)) do
    headers[name] = type(value) == "table" and table.concat(value, ", ") or value
  end
  return headers
end

---@param answer neap.admin.answer
local function send(answer)
  ngx.status = answer.status
  ngx.header["Content-Type"] = answer.type
  for name, value in pairs(answer.headers) do ngx.header[name] = value end
  if ngx.req.get_method() == "HEAD" then return end
  if type(answer.body) == "string" then return ngx.print(answer.body) end
  for part in answer.body do ngx.print(part) end
end

--- Answers the request in the content phase.
---@param prefix string the location's
---@param host table guards, policies, more_metrics, as neap.admin.open takes them
return function(prefix, host)
  host.since = since
  host.health = function() return ngx.worker.exiting() and "draining" or "ok" end
  ngx.req.read_body()
  send(admin.open(host):handle {
    method = ngx.req.get_method(), target = target_below(prefix), headers = headers_of_request(),
    body = ngx.req.get_body_data(), peer = ngx.var.remote_addr,
  })
end
