# Starts HAProxy with neap in it, for the tests test_haproxy*.sh, which source this file.
#
#   haproxy_serve NAME 'global lines' 'sections'    in $dir/NAME; $pid is what was started
#   haproxy_stop                                    the last one; it must end by itself
#
# $upstream is a server that does what the query asks for: how=hang, close, reset, junk, short, slow,
# wait, hints, upgrade or a status.  Without, it says 200.
. "$(dirname "$0")/support.sh"
if ! haproxy -vv 2>/dev/null | grep -q 'Lua version : Lua 5.3' || ! [ -e "$build/lua5.3/neap/core.so" ]; then
  echo "needs HAProxy with Lua 5.3, and neap built for it" >&2
  exit 1
fi

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 6)
port=$1 upstream=127.0.0.1:$2 nobody=127.0.0.1:$3
# shellcheck disable=SC2034  # of the tests that speak HTTP/2
clear=127.0.0.1:$4 tls=127.0.0.1:$5 behind=127.0.0.1:$6
site=http://127.0.0.1:$port

# A module with a sanitizer in it needs its runtime first.
preload=$(sanitized "$build/lua5.3/neap/core.so" detect_leaks=0)

cat >"$dir/upstream.lua" <<'LUA'
local uv = require "luv"
local host, port = arg[1]:match "(.*):(.*)"
local server = uv.new_tcp()
server:bind(host, tonumber(port))

local function answer(client, status, headers)
  client:write(("HTTP/1.1 %s X\r\nContent-Length: 8\r\n%s\r\nprimary\n"):format(status, headers or ""))
end

local does = {
  hang = function() end,
  close = function(client) client:close() end,
  reset = function(client) client:close_reset() end,
  junk = function(client) client:write "what?\r\n\r\n" end,
  short = function(client)
    client:write("HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nhalf", function() client:close() end)
  end,
  slow = function(client)
    local timer = uv.new_timer()
    timer:start(300, 0, function()
      timer:close()
      if not client:is_closing() then answer(client, 200) end
    end)
  end,
  hints = function(client)
    client:write "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    answer(client, 500)
  end,
  upgrade = function(client)
    client:write("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      .. "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", function() client:close() end)
  end,
  wait = function(client) answer(client, 503, "Retry-After: 30\r\n") end,
  verdict = function(client) answer(client, 200, "X-Verdict: failure\r\n") end,
  grpc = function(client)
    answer(client, 200, "Content-Type: application/grpc\r\ngrpc-status: 14\r\n")
  end,
}

server:listen(512, function()
  local client, text = uv.new_tcp(), ""
  server:accept(client)
  client:read_start(function(_, more)
    if not more then return client:is_closing() or client:close() end
    text = text .. more
    while true do
      local head, rest = text:match "^(.-\r\n\r\n)(.*)$"
      if not head then return end
      text = rest
      local how = head:match "how=(%w+)" or "200";
      (does[how] or answer)(client, how)
      if client:is_closing() then return end
    end
  end)
end)
uv.run()
LUA
$lua "$dir/upstream.lua" "$upstream" &
pids="$pids $!"

# lua_file NAME 'options' [MORE]: the file that lua-load loads
lua_file() {
  mkdir -p "$dir/$1"
  printf 'guards = require("neap.haproxy").open { %s }\n%s\n' "$2" "${3:-}" >"$dir/$1/neap.lua"
}

haproxy_config() { # NAME GLOBAL SECTIONS
  mkdir -p "$dir/$1"
  cat >"$dir/$1/haproxy.cfg" <<CONF
global
  lua-prepend-path $root/lua/?.lua
  lua-prepend-path $root/lua/?/init.lua
  lua-prepend-path $build/lua5.3/?.so cpath
  log stdout format raw local0 info
  $2
defaults
  mode http
  option abortonclose
  timeout client 5s
  timeout connect 300ms
  timeout server 700ms
  timeout queue 300ms
$3
CONF
}

# haproxy_serve NAME GLOBAL SECTIONS [ARGUMENTS]
haproxy_serve() {
  haproxy_config "$@"
  name=$1
  # shellcheck disable=SC2086  # lists of words
  $preload haproxy ${4:--db} -f "$dir/$1/haproxy.cfg" >>"$dir/$1/log" 2>&1 &
  pid=$!
  pids="$pids $pid"
  within 20 answers
}

answers() {
  kill -0 "$pid" || fail "haproxy ended: $(cat "$dir/$name/log")"
  curl -s -o /dev/null "$site/metrics"
}

haproxy_stop() {
  kill -USR1 "$pid"
  within 10 has_ended
  if grep -E 'runtime error|AddressSanitizer|ALERT' "$dir/$name/log" >"$dir/trouble"; then
    fail "trouble: $(cat "$dir/trouble")"
  fi
}

# said TEXT [TIMES]: lines of HAProxy's log that have it; it writes each twice, this is the one
said() {
  count=$(grep -v '^\[' "$dir/$name/log" | grep -cF -- "$1" || :)
  [ "$count" -ge 1 ] && [ "$count" = "${2:-$count}" ]
}
says() { said "$@" || fail "'$1' is in the log $count times, not ${2:-at all}: $(cat "$dir/$name/log")"; }

# at_once PATH NUMBER [CURL OPTIONS]: as many requests, each on a connection of its own; $dir/codes has a line of
# each, its status and the thread that answered
at_once() {
  case $1 in *\?*) asked="$1&n=[1-$2]" ;; *) asked="$1?n=[1-$2]" ;; esac
  shift 2
  curl -sZ --parallel-immediate --parallel-max 50 -o /dev/null "$@" \
    -w '%{http_code} %header{x-thread}\n' "$site$asked" >"$dir/codes" 2>"$dir/progress"
}

# guarded BACKEND POLICY 'its lines': a backend as docs/haproxy.md says
guarded() {
  cat <<CONF
backend $1
  http-request lua.neap_acquire $2
  http-request use-service lua.neap_fallback if { var(txn.neap_refused) -m found }
  http-response lua.neap_report
  http-after-response set-var(txn.neap) lua.neap_end if { status 502:504 }
  http-after-response set-header X-Thread %[thread]
  $3
CONF
}

# By path: /BACKEND/...
frontend="frontend site
  bind 127.0.0.1:$port
  http-request use-service lua.neap_metrics if { path /metrics }
  http-request use-service lua.neap_admin if { path_beg /breakers /policies }
  use_backend %[path,field(2,/)]"
