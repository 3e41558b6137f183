--- Ports of 127.0.0.1 that nobody listens on.  They are below those that the system gives to
--- clients, so that no connection of another test takes one before its server does.
---
---   lua5.4 tests/support/ports.lua NUMBER    prints them

local uv = require "luv"

local LEAST, MOST = 10000, 32767

local function ports(count)
  math.randomseed(uv.hrtime() % 2^31)
  local sockets, found = {}, {}
  while #found < count do
    local socket, port = uv.new_tcp(), math.random(LEAST, MOST)
    sockets[#sockets + 1] = socket
    -- That a port is taken is only told by listen.
    if socket:bind("127.0.0.1", port) and socket:listen(1, function() end) then
      found[#found + 1] = port
    end
  end
  for _, socket in ipairs(sockets) do socket:close() end
  uv.run()
  return found
end

if arg and arg[0] and arg[0]:find("ports%.lua$") then
  print(table.concat(ports(assert(tonumber(arg[1]), "how many?")), " "))
end

return ports
