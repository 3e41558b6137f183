--- Takes what is posted: a line for each, "STATUS PATH EVENT-ID AUTHORIZATION BODY". Which status
--- it answers is in a file, looked at each time; "hang" is none.
---
---   lua5.4 receiver.lua PORT MODE_FILE >LOG

local uv = require "luv"

local port, mode_file = tonumber(arg[1]), arg[2]
io.stdout:setvbuf "line"

local function mode()
  local file = assert(io.open(mode_file))
  local text = file:read "l"
  file:close()
  return text
end

local function answer(client, head, body)
  local status = mode()
  io.write(("%s %s %s %s %s\n"):format(status, head:match "^POST (%S+) HTTP/1.1\r\n",
    head:match "\r\nNeap%-Event%-Id: (%S+)\r\n" or "-",
    head:match "\r\nAuthorization: Bearer (%S+)\r\n" or "-", (body:gsub("\n", ""))))
  if status == "hang" then return end
  client:write(("HTTP/1.1 %s X\r\nContent-Length: 5\r\n\r\nthank"):format(status))
end

local server = uv.new_tcp()
assert(server:bind("127.0.0.1", port))
server:listen(16, function()
  local client, text = uv.new_tcp(), ""
  server:accept(client)
  client:read_start(function(_, bytes)
    if not bytes then return client:close() end
    text = text .. bytes
    local head, rest = text:match "^(.-\r\n)\r\n(.*)$"
    if not head or #rest < tonumber(head:match "\r\nContent%-Length: (%d+)") then return end
    text = ""
    answer(client, head, rest)
  end)
end)
uv.run()
