#!/usr/bin/env lua5.4
--- A dependency that misbehaves on command, for neap to protect.
---
---   lua5.4 examples/demo/upstream.lua [--listen 127.0.0.1:8016] [--quiet] [--until-term]
---                                     [--script "ok 10, 500 5, slow 8"]
---
--- GET /flags/NAME answers a feature flag as JSON (404 FLAG_NOT_FOUND if the name begins with
--- "missing"), POST /ofrep/v1/evaluate/flags/NAME the same as OpenFeature's protocol has it;
--- without a name it is all flags at once, which are three.
--- POST /_fail?mode=MODE[&ms=N] changes what happens to every flag request from now on:
---
---   ok      answers 200
---   500     answers 500; any other status from 400 to 599 likewise
---   slow    answers 200 after `ms` (2000)
---   hang    takes the request and never answers
---   refuse  closes the connection without a word
---   flap    `ms` (1000) of ok, `ms` of 500, and so on
---
--- GET /_fail says which mode it is in. A script is a list of "MODE SECONDS", begun again when it
--- is through. With --until-term Ctrl-C does not end it: that is for whoever started it to do.

local uv = require "luv"

local DEFAULT_MS = { slow = 2000, flap = 1000 }
local FLAGS = { "new-checkout", "page-size", "payments" } -- all, when they are asked at once
local REASONS = { [200] = "OK", [400] = "Bad Request", [404] = "Not Found",
  [405] = "Method Not Allowed",
  [429] = "Too Many Requests", [500] = "Internal Server Error", [503] = "Service Unavailable" }

local mode = { name = "ok", since = uv.now() }
local answered, quiet, until_term = 0, false, false

local function say(...)
  io.stdout:write(os.date("!%H:%M:%S"), " upstream: ", string.format(...), "\n")
  io.stdout:flush()
end

local function quit(status, ...)
  io.stderr:write("upstream: ", string.format(...), "\n")
  os.exit(status)
end

-- Modes ------------------------------------------------------------------------------------------

--- "slow", "2500" -> a mode; or nil and what would be right.
local function make_mode(name, ms)
  local status = tonumber(name)
  if not (DEFAULT_MS[name] or name == "ok" or name == "hang" or name == "refuse"
      or (status and status >= 400 and status <= 599 and status % 1 == 0)) then
    return nil, ("mode %q: must be ok, slow, hang, refuse, flap or a status from 400 to 599")
      :format(name)
  end
  if ms and not (ms:match("^%d+$") and #ms <= 7) then return nil,
    ("ms %q: must be 0 to 9999999"):format(ms) end
  return { name = name, status = status, ms = tonumber(ms) or DEFAULT_MS[name], since = uv.now() }
end

local function set_mode(new, who)
  say("mode %s -> %s%s (%s)", mode.name, new.name, new.ms and (", %d ms"):format(new.ms) or "", who)
  mode = new
end

--- What to do with a flag request now: "answer" a status, or "hang", or "refuse"; and after how
--- many ms.
local function verdict()
  if mode.name == "hang" or mode.name == "refuse" then return mode.name end
  if mode.name == "slow" then return "answer", 200, mode.ms end
  if mode.name == "flap" then
    local half = (uv.now() - mode.since) // math.max(mode.ms, 1) % 2
    return "answer", half == 0 and 200 or 500, 0
  end
  return "answer", mode.status or 200, 0
end

-- Requests ---------------------------------------------------------------------------------------

local function json_string(text)
  return '"' .. text:gsub('[%c"\\\127-\255]', function(c) return ("\\u%04x"):format(c:byte()) end)
    .. '"'
end

local function flag_text(name)
  return ('{"key":%s,"value":true,"variant":"on","reason":"STATIC","answer":%d}'):format(
    json_string(name), answered)
end

--- Of the flag of that name; without one of all.
local function flag_body(name, status)
  if status ~= 200 then return ('{"errorCode":"GENERAL","status":%d}\n'):format(status) end
  if name then return flag_text(name) .. "\n" end
  local texts = {}
  for i, one in ipairs(FLAGS) do texts[i] = flag_text(one) end
  return ('{"flags":[%s]}\n'):format(table.concat(texts, ","))
end

local function response(request, status, body)
  local head = ("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    .. "Connection: %s\r\n\r\n")
    :format(status, REASONS[status] or "Demo", #body, request.keep_alive and "keep-alive"
      or "close")
  return request.method == "HEAD" and head or head .. body
end

local function send(client, request, status, body)
  if client:is_closing() then return end
  client:write(response(request, status, body), function()
    if not request.keep_alive and not client:is_closing() then client:close() end
  end)
end

local function control(client, request)
  local query = request.query
  if request.method == "POST" then
    local new, message = make_mode(query:match("mode=([^&]*)") or "", query:match("ms=([^&]*)"))
    if not new then return send(client, request, 400, message .. "\n") end
    set_mode(new, "POST /_fail")
  elseif request.method ~= "GET" then
    return send(client, request, 405, "GET or POST\n")
  end
  send(client, request, 200,
    ('{"mode":%s,"answered":%d}\n'):format(json_string(mode.name), answered))
end

local function flag(client, request, name)
  local what, status, wait_ms = verdict()
  if not quiet then say("%s %s -> %s", request.method, request.path, status
    and math.tointeger(status) or what) end
  if what == "refuse" then return client:close() end
  if what == "hang" then return end
  answered = answered + 1
  if status == 200 and name and name:match("^missing") then
    return send(client, request, 404,
      ('{"key":%s,"errorCode":"FLAG_NOT_FOUND"}\n'):format(json_string(name)))
  end
  local body = flag_body(name, status)
  if wait_ms == 0 then return send(client, request, status, body) end
  local timer = uv.new_timer()
  timer:start(wait_ms, 0, function()
    timer:close()
    send(client, request, status, body)
  end)
end

local function serve(client, request)
  local is_post, path = request.method == "POST", request.path
  local name = path:match("^/flags/([^/]+)$")
    or is_post and path:match("^/ofrep/v1/evaluate/flags/([^/]+)$")
  if path == "/_fail" then return control(client, request) end
  if name or is_post and path == "/ofrep/v1/evaluate/flags" then
    return flag(client, request, name or nil)
  end
  send(client, request, 404, '{"error":"nothing here; try /flags/new-checkout"}\n')
end

--- One request off the front of `buffer`: the request and what is left, or nil if it is not all
--- there yet.
local function take_request(buffer)
  local head, rest = buffer:match("^(.-\r\n)\r\n(.*)$")
  if not head then return nil, buffer end
  local method, path, query, version = head:match("^(%u+) ([^ ?]+)%??([^ ]*) HTTP/1%.(%d)\r\n")
  if not method then return false, buffer end
  local lower = head:lower()
  local length = tonumber(lower:match("\r\ncontent%-length:%s*(%d+)")) or 0
  if #rest < length then return nil, buffer end
  local wish = lower:match("\r\nconnection:%s*([%w%-]+)")
  local keep_alive = wish ~= "close" and (version == "1" or wish == "keep-alive")
  return { method = method, path = path, query = query, keep_alive = keep_alive },
    rest:sub(length + 1)
end

local function on_connection(server)
  local client, buffer = uv.new_tcp(), ""
  server:accept(client)
  client:nodelay(true)
  client:read_start(function(failure, chunk)
    if failure or not chunk then
      if not client:is_closing() then client:close() end
      return
    end
    buffer = buffer .. chunk
    local request
    repeat
      request, buffer = take_request(buffer)
      if request then serve(client, request) end
    until not request or client:is_closing()
    if request == false or #buffer > 65536 then
      send(client, { method = "GET" }, 400, '{"error":"not a request this demo understands"}\n')
    end
  end)
end

-- Start ------------------------------------------------------------------------------------------

local function read_script(text)
  local steps = {}
  for part in text:gmatch("[^,]+") do
    local name, seconds = part:match("^%s*(%w+)%s+([%d.]+)%s*$")
    local new, message = make_mode(name or "")
    if not tonumber(seconds) or tonumber(seconds) <= 0 then message = "must be MODE SECONDS" end
    if message then quit(2, "--script %q: %s", part, message) end
    steps[#steps + 1] = { mode = name, ms = new and math.floor(tonumber(seconds) * 1000) }
  end
  if #steps == 0 then quit(2, "--script is empty; e.g. --script \"ok 10, 500 5, slow 8\"") end
  return steps
end

local function run_script(steps)
  local timer, i = uv.new_timer(), 0
  local function step()
    i = i % #steps + 1
    set_mode(make_mode(steps[i].mode), "script")
    timer:start(steps[i].ms, 0, step)
  end
  step()
end

local function read_arguments(argv)
  local listen, script = "127.0.0.1:8016", nil
  local i = 1
  while i <= #argv do
    local name, value = argv[i], argv[i + 1]
    if name == "--quiet" then
      quiet, i = true, i - 1
    elseif name == "--until-term" then
      until_term, i = true, i - 1
    elseif name == "--listen" and value then
      listen = value
    elseif name == "--script" and value then
      script = read_script(value)
    else
      quit(2, "%s: must be --listen ADDRESS:PORT, --script TEXT, --quiet or --until-term", name)
    end
    i = i + 2
  end
  return listen, script
end

local listen, script = read_arguments(arg)
local host, port = listen:match("^([%d.]+):(%d+)$")
if not host then quit(2, "--listen %s: must be ADDRESS:PORT, e.g. 127.0.0.1:8016", listen) end

local server = uv.new_tcp()
local ok, why = server:bind(host, tonumber(port))
if ok then ok, why = server:listen(128, function() on_connection(server) end) end
if not ok then quit(1, "can't listen on %s: %s", listen, why) end

for _, signal in ipairs { "sigint", "sigterm" } do
  uv.new_signal():start(signal, function()
    if until_term and signal == "sigint" then return end
    say("stopped after %d answers", answered)
    os.exit(0)
  end)
end

say("listening on http://%s:%d, mode ok", host, server:getsockname().port)
if script then run_script(script) end
uv.run()
