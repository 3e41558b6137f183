--- What nginx knows about the upstream of a request, as the calls that policies classify.
--
--   $upstream_status          502, 504 : 200       tries, and after a colon those of the next
--   $upstream_header_time     -, 0.050 : 0.002     upstream, which an internal redirect led to
--
-- A status with no header is nginx's own:
--
--   504, no header    the server was too slow                      ended_by = "timeout"
--   5xx, no header    no connection, or what came was no answer    "transport"
--   499, or none      the client left                              "caller"; or "timeout", if that
--                                                    took longer than the policy's timeout_ms
--   none, not 499     the client's body was late, short or too long "caller"
--
-- No server may have been asked at all, since the upstream's name was not found: then there is no
-- status, and 502 is nginx's own.  But if error_page led to another upstream, it is "-, 200".
--
-- How long a call took is the time to the answer's header: what comes later waits for the client.

local proxied = require "neap.proxied"

local ngx = ngx
local tonumber, floor = tonumber, math.floor

local upstream = {}

local RETRY = { [429] = true, [503] = true }
local CLIENT_LEFT = 499

upstream.PLAIN, upstream.is_plain = proxied.PLAIN, proxied.is_plain

--- The n-th group of a variable, or the last that is not empty, as a list.  While a server is being
--- chosen there is an empty one at the end.
local function list(text, n)
  local groups = {}
  for group in ((text or "") .. " : "):gmatch("(.-) : ") do
    if n or group ~= "" then groups[#groups + 1] = group end
  end
  local values = {}
  for value in (groups[n or #groups] or ""):gmatch("[^, ]+") do values[#values + 1] = value end
  return values
end

local function ms(text)
  local seconds = tonumber(text)
  return seconds and floor(seconds * 1000 + 0.5)
end

---@class (exact) neap.nginx.try
---@field status integer|nil
---@field header_ms integer|nil until the answer's header; nil: none came
---@field response_ms integer|nil until its end
---@field has_connected boolean

--- The tries of the n-th upstream that the request went to, or of the last; nil if there are none.
---@param n integer|nil
---@return neap.nginx.try[]|nil
function upstream.tries(n)
  local var = ngx.var
  local statuses = var.upstream_status
  if not statuses then return nil end
  local is_first_unasked = statuses:find("^%-, ") ~= nil
  if is_first_unasked and n == 1 then return nil end
  local function of(text)
    return list(is_first_unasked and text and text:gsub("^[^,]*, ", " : ") or text, n)
  end
  statuses = of(statuses)
  if not statuses[1] then return nil end
  local header, response = of(var.upstream_header_time), of(var.upstream_response_time)
  local connect = of(var.upstream_connect_time)
  local tries = {}
  for i = 1, #statuses do
    tries[i] = {
      status = tonumber(statuses[i]), header_ms = ms(header[i]), response_ms = ms(response[i]),
      has_connected = ms(connect[i]) ~= nil,
    }
  end
  return tries
end

-- What a cache has answered, or another request of it is asking for.
local OF_CACHE = { HIT = true, STALE = true, UPDATING = true }

--- The call of a request that was meant for an upstream, and ended with that status before any
--- server could be asked; nil if it was none, but one that the client or a cache has ended.
---@param status integer
---@return neap.Call|nil
function upstream.unreached(status)
  if status ~= 502 or OF_CACHE[ngx.var.upstream_cache_status] then return nil end
  return { ended_by = "transport", phase = "connect" }
end

local function ended_by(try, took_ms, timeout_ms)
  local is_late = timeout_ms and took_ms > timeout_ms
  if try.header_ms and try.status ~= CLIENT_LEFT then return is_late and "timeout" or "answer" end
  if try.status == 504 then return "timeout" end
  if try.status and try.status >= 500 then return "transport" end
  local has_left = try.status or ngx.status == CLIENT_LEFT
  return has_left and is_late and "timeout" or "caller"
end

--- What gRPC says in the trailers; while they are still to come, that it goes well.
local function grpc_status(var)
  local status = var.upstream_trailer_grpc_status or var.upstream_http_grpc_status
  if status or ngx.get_phase() ~= "header_filter" then return status end
  local is_grpc = (var.upstream_http_content_type or ""):find("^application/grpc")
  return is_grpc and 0 or nil
end

--- The call that tries[last] ended; it took as long as tries[first] to tries[last] together.
---@param policy neap.Policy
---@param tries neap.nginx.try[]
---@return neap.Call
function upstream.call(policy, tries, first, last)
  local took_ms, try = 0, tries[last]
  for i = first, last do took_ms = took_ms + (tries[i].header_ms or tries[i].response_ms or 0) end
  local call = { duration_ms = took_ms, ended_by = ended_by(try, took_ms, policy.timeout_ms) }
  if call.ended_by ~= "answer" then
    call.phase = try.has_connected and "header" or "connect"
    return call
  end
  call.status = try.status
  if last ~= #tries then return call end -- headers are the last one's
  local var, verdict = ngx.var, policy.config.classify
  call.grpc_status = grpc_status(var)
  if not upstream.PLAIN[verdict] then
    call.headers = ngx.resp.get_headers()
  elseif RETRY[try.status] then
    call.headers = {
      ["retry-after"] = var.upstream_http_retry_after, date = var.upstream_http_date,
    }
  end
  return call
end

return upstream
