# neap in HAProxy before a gRPC server: an answer that is nothing but trailers has its status in the
# header, and counts by that; trailers that follow a body are not seen.
. "$(dirname "$0")/haproxy_support.sh"

policy shipped "trip = { failures = 1000 },"
policy grpc "trip = { failures = 1000 }, classify = classify.grpc,"
policy http "trip = { failures = 1000 }, classify = classify.http,"
policy own "trip = { failures = 1000 }, classify = function(call)
    return call.grpc_status == '14' and 'failure' or call.grpc_status == 0 and 'success' or 'neutral'
  end,"

# Of HTTP/2 only as much as HAProxy asks for; it writes paths as they are. The status is in
# how=NUMBER&, with a body before it in how=bodyNUMBER&.
cat >"$dir/grpc.lua" <<'LUA'
local uv = require "luv"
local HEADERS, SETTINGS, PING, ACK, END_STREAM, END_HEADERS = 1, 4, 6, 1, 1, 4
local server = uv.new_tcp()
server:bind("127.0.0.1", tonumber(arg[1]))

local function frame(kind, flags, stream, text)
  return string.pack(">I3BBI4", #text, kind, flags, stream) .. text
end
local function field(name, value) return "\0" .. string.pack("s1s1", name, value) end

local function answer(stream, how)
  local body, status = how:match "^(%l*)(%d+)$"
  local head = "\x88" .. field("content-type", "application/grpc") -- :status: 200
  local last = field("grpc-status", status)
  if body == "" then return frame(HEADERS, END_HEADERS | END_STREAM, stream, head .. last) end
  return frame(HEADERS, END_HEADERS, stream, head) .. frame(0, 0, stream, "\0\0\0\0\1x")
    .. frame(HEADERS, END_HEADERS | END_STREAM, stream, last)
end

server:listen(16, function()
  local client, text = uv.new_tcp(), ""
  server:accept(client)
  client:write(frame(SETTINGS, 0, 0, ""))
  client:read_start(function(_, more)
    if not more then return client:is_closing() or client:close() end
    text = (text .. more):gsub("^PRI %* HTTP/2.0\r\n\r\nSM\r\n\r\n", "")
    while #text >= 9 and #text >= 9 + string.unpack(">I3", text) do
      local length, kind, flags, stream = string.unpack(">I3BBI4", text)
      local payload = text:sub(10, 9 + length)
      text = text:sub(10 + length)
      if kind == HEADERS then client:write(answer(stream, payload:match "how=(%w+)&")) end
      if (kind == SETTINGS or kind == PING) and flags & ACK == 0 then
        client:write(frame(kind, ACK, 0, kind == PING and payload or ""))
      end
    end
  end)
end)
uv.run()
LUA
grpc_port=${behind#*:}
$lua "$dir/grpc.lua" "$grpc_port" &
pids="$pids $!"

sections="$frontend
frontend clear
  bind $clear proto h2
  use_backend %[path,field(2,/)]"
for one in shipped grpc http own; do sections="$sections
$(guarded $one $one "server up $behind proto h2")"; done
lua_file site "policies = '$dir/policies', panel = '$panel'"
haproxy_serve site "nbthread 2
  lua-load-per-thread $dir/site/neap.lua" "$sections"

ask() { # POLICY HOW
  site=http://$clear gets 200 "/$1/?how=$2&" --http2-prior-knowledge --data abc \
    -H 'Content-Type: application/grpc' -H 'TE: trailers'
}
for one in shipped grpc; do
  for how in 0 0 5 14 13 body0; do ask $one $how; done
  calls $one success 3
  calls $one neutral 1
  calls $one failure 2
  ask $one body14 # which comes too late
  calls $one success 4
done
header 'grpc-status: 14' # the client has it
ask http 14
calls http success 1
for how in 14 5 body14; do ask own $how; done
calls own failure 1
calls own neutral 1
calls own success 1
haproxy_stop
