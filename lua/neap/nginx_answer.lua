--- What neap answers in nginx in place of the upstream, and which of the upstream's answers it
-- keeps for that.
--
-- Answers are kept apart by what may have made them: the server's address and port, target, Host,
-- Authorization, Cookie, Accept, X-API-Key and Accept-Encoding.  Kept is an answer of 200 to a GET,
-- whole, of 64 KiB at most, that is not private, sets no cookie and varies by nothing else; none to
-- a request that says no-store, or has a body: that is not here to be compared.

local proxied = require "neap.proxied"
local proxied_answer = require "neap.proxied_answer"

local ngx = ngx
local concat, lower = table.concat, string.lower

local answer = {}

local MOST_BYTES = 64 * 1024
local APART = { -- the first three are what nginx chooses the server block by
  "server_addr", "server_port", "host", "http_authorization", "http_cookie", "http_x_api_key",
  "http_accept", "http_accept_encoding",
}
local VARIES = { accept = true, ["accept-encoding"] = true, authorization = true, cookie = true,
  host = true, ["x-api-key"] = true }
local NOT_KEPT = { -- by their names in lower case; what nginx or neap sets itself
  age = true, connection = true, ["content-length"] = true, date = true, ["keep-alive"] = true,
  ["neap-source"] = true, server = true, ["transfer-encoding"] = true,
}

local function has_body()
  local var = ngx.var
  return var.http_transfer_encoding ~= nil or (tonumber(var.http_content_length) or 0) > 0
    or (var.request_body or "") ~= "" -- of HTTP/2, which need not say so before,
    or (var.request_body_file or "") ~= "" -- and of one that is long
end

--- What tells the request's answer from others.  Under that of one with a body nothing is kept.
function answer.id()
  local var, method = ngx.var, ngx.req.get_method()
  if has_body() then method = "body" elseif method == "HEAD" then method = "GET" end
  local parts = { method, var.request_uri }
  for i = 1, #APART do parts[i + 2] = var[APART[i]] or "" end
  return concat(parts, "\0")
end

-- ---- Sending ----------------------------------------------------------------------------------

local NO_LENGTH = { [204] = true, [304] = true } -- there it would be that of what the client has

--- A header may be there more than once: nginx takes all of its values at once.
local function set_headers(headers)
  local values = {} -- of each, by its name in lower case
  for i = 1, #headers, 2 do
    local name, one = headers[i], headers[i + 1]
    local all = values[lower(name)] or {}
    all[#all + 1], values[lower(name)] = one, all
    ngx.header[name] = all[2] and all or one
  end
end

--- Sends what a fallback stage answered.
---@param of_guard neap.Guard whose chain that was
---@param retry_after_ms? integer when asking the upstream again may help
---@return integer|nil status for ngx.exit; nil: there is no way to say it in HTTP, nothing is sent
function answer.send(of_guard, value, info, retry_after_ms)
  local made = proxied_answer.of(of_guard, value, info, retry_after_ms)
  if not made then return nil end
  local status, body = made.status, made.body
  ngx.status = status
  set_headers(made.headers)
  if not NO_LENGTH[status] then ngx.header["Content-Length"] = #body end
  if body == "" or ngx.req.get_method() == "HEAD" then
    ngx.send_headers() -- or ngx.exit would answer with a page of nginx's
  else
    ngx.print(body)
  end
  return status
end

--- Nobody answers: nginx's own page of that status, or what error_page says.
---@param err neap.Refusal
---@return integer status for ngx.exit
function answer.problem(err)
  if err.retry_after_ms then
    ngx.header["Retry-After"] = ("%d"):format(proxied.seconds(err.retry_after_ms))
  end
  if err.status then ngx.header["Neap-Source"] = "fail" end
  return err.status or 503
end

-- ---- Keeping ----------------------------------------------------------------------------------

--- All that a header says, in lower case.
local function said(headers, name)
  local value = headers[name] or ""
  return lower(type(value) == "table" and concat(value, ",") or value)
end

--- May an answer with these headers be kept, for others who ask the same?
---@param headers table<string, string|string[]> by name in lower case
local function is_for_all(headers)
  local control = said(headers, "cache-control")
  if control:find("private", 1, true) or control:find("no-store", 1, true) then return false end
  if headers["set-cookie"] then return false end
  for name in said(headers, "vary"):gmatch("[^%s,]+") do
    if not VARIES[name] then return false end
  end
  return true
end

--- What the upstream says of that, though nginx may not hand it on (proxy_hide_header).
local function upstream_headers()
  local var = ngx.var
  return {
    ["cache-control"] = var.upstream_http_cache_control,
    ["set-cookie"] = var.upstream_http_set_cookie, vary = var.upstream_http_vary,
  }
end

--- All of them: without the 0 there are a hundred.
local function headers_of_answer() return ngx.resp.get_headers(0) end

--- Has the client said that nobody is to keep what it gets?
local function is_secret()
  return lower(ngx.var.http_cache_control or ""):find("no-store", 1, true) ~= nil
end

local function is_to_be_kept()
  return ngx.status == 200 and ngx.req.get_method() == "GET" and not ngx.req.is_internal()
    and not is_secret() and not has_body()
    and is_for_all(headers_of_answer()) and is_for_all(upstream_headers())
end

local function headers_kept()
  local kept = {}
  for name, value in pairs(headers_of_answer()) do
    if type(value) == "string" and not NOT_KEPT[lower(name)] then kept[name] = value end
  end
  return kept
end

--- For the body filter: gathers an answer that is to be kept.  Answers it when it is whole.
---@return { status: integer, headers: table, body: string }|nil
function answer.gather()
  local chunk, is_last = ngx.arg[1], ngx.arg[2]
  local ctx = ngx.ctx
  local parts = ctx.neap_parts
  if parts == nil then
    parts = is_to_be_kept() and { bytes = 0 } or false
    ctx.neap_parts = parts
  end
  if not parts then return nil end
  if chunk ~= "" then
    parts[#parts + 1], parts.bytes = chunk, parts.bytes + #chunk
    if parts.bytes > MOST_BYTES then ctx.neap_parts = false return nil end
  end
  if not is_last then return nil end
  ctx.neap_parts = false
  local body = concat(parts)
  local length = ngx.var.upstream_http_content_length
  if length and tonumber(length) ~= #body then return nil end
  return { status = 200, headers = headers_kept(), body = body }
end

return answer
