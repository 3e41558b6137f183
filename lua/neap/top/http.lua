--- Asks one page without waiting for it: a terminal's keys are heard meanwhile.

local http = {}

local PATIENCE_MS, MOST = 8000, 64 * 1024 * 1024

local REQUEST = "GET %s HTTP/1.0\r\nHost: %s\r\nAccept: application/json\r\n%s\r\n"

--- The status and the body; of an answer that is none nil and why.
local function read(text)
  local status, at = text:match "^HTTP/1%.[01] (%d%d%d)[^\r\n]*\r\n.-\r\n\r\n()"
  if not status then return nil, "the answer is no HTTP" end
  return tonumber(status), text:sub(at)
end

---@param uv table luv
---@param target { host: string, port: integer, where: string, token?: string }
---@param path string
---@param done fun(status: integer|nil, body: string) nil and why; once, and never at once
function http.get(uv, target, path, done)
  local timer, tcp = uv.new_timer(), uv.new_tcp()
  local parts, size, is_over = {}, 0, false
  local function finish(status, body)
    if is_over then return end
    is_over = true
    timer:close()
    tcp:close()
    done(status, body)
  end
  timer:start(PATIENCE_MS, 0, function() finish(nil, "it takes too long") end)
  local function on_read(err, text)
    if err then return finish(nil, err) end
    if not text then return finish(read(table.concat(parts))) end
    size = size + #text
    if size > MOST then return finish(nil, "the answer is too long") end
    parts[#parts + 1] = text
  end
  local function on_connect(err)
    if err then return finish(nil, err) end
    local token = target.token and "Authorization: Bearer " .. target.token .. "\r\n" or ""
    tcp:write(REQUEST:format(path, target.where, token))
    tcp:read_start(on_read)
  end
  uv.getaddrinfo(target.host, nil, { socktype = "stream" }, function(err, found)
    if is_over then return end
    if err or not found[1] then return finish(nil, err or "the name is not known") end
    local ok, message = pcall(tcp.connect, tcp, found[1].addr, target.port, on_connect)
    if not ok then finish(nil, tostring(message)) end
  end)
end

return http
