# What the tests in sh have in common; they source this file, or nginx_support.sh or
# haproxy_support.sh, which do.
#
#   $dir     a directory of the test's own, which goes when it ends; logs in it are shown if it fails
#   $pids    what it has started: killed then, with its children
#   $panel   where a shared panel may be: removed, too
set -eu
PATH=$PATH:/usr/sbin
# shellcheck disable=SC2034  # of those that source this
lua=${LUA:-lua5.4} build=${NEAP_BUILD:?} root=${NEAP_ROOT:?}
dir=$(mktemp -d)
chmod 755 "$dir"
panel=/dev/shm/neap-test-$$-panel
pids=""
finish() {
  status=$?
  trap - EXIT
  for one in $pids; do
    # shellcheck disable=SC2046  # a list of numbers
    kill -KILL "$one" $(pgrep -P "$one") 2>/dev/null || :
  done
  [ $status -eq 0 ] || tail -n 40 "$dir"/log "$dir"/*.log "$dir"/*/log "$dir"/*/error.log >&2 2>/dev/null || :
  rm -rf "$dir"
  rm -f "$panel"*
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# within SECONDS COMMAND...: tries it until it succeeds
within() {
  last=$(($(date +%s) + $1 + 1))
  shift
  until "$@"; do
    [ "$(date +%s)" -lt $last ] || fail "not in time: $*"
    sleep 0.05
  done
}

# free_ports NUMBER: of 127.0.0.1, that nobody listens on
free_ports() { $lua "$root/tests/support/ports.lua" "$1"; }

# sanitized MODULE OPTIONS: what to start a program with that loads it; nothing if it has no sanitizer
sanitized() {
  nm -D "$1" | grep -q __asan_init || return 0
  echo "env LD_PRELOAD=$(cc -print-file-name=libasan.so) ASAN_OPTIONS=$2"
}

has_ended() { ! kill -0 "$pid" 2>/dev/null; }

# policy NAME 'keys' [DIRECTORY]: a file in $dir/policies
policy() {
  mkdir -p "${3:-$dir/policies}"
  printf 'return {\n  name = "%s",\n  %s\n}\n' "$1" "$2" >"${3:-$dir/policies}/$1.lua"
}

# upstream PORT NAME 'LUA': an HTTP server, in $upstream.  For each call the chunk says status and body
# of the answer to `call` (method, path, head in small letters, body), or nothing: that is none.
# note(...) writes a line to $dir/NAME.asked.  What asks whether it listens is no such call.
upstream() {
  : >"$dir/$2.asked"
  $lua - "$1" "$dir/$2.asked" "$3" <<'LUA' &
local uv = require "luv"
local port, asked, says = tonumber(arg[1]), arg[2], arg[3]
function note(...)
  local file = io.open(asked, "a")
  file:write(table.concat({ ... }, " "), "\n")
  file:close()
end
says = assert(load("local call = ... " .. says))
local server = uv.new_tcp()
server:bind("127.0.0.1", port)
server:listen(128, function()
  local client, buffer = uv.new_tcp(), ""
  server:accept(client)
  client:read_start(function(_, chunk)
    if not chunk then return client:close() end
    buffer = buffer .. chunk
    while true do
      local head, rest = buffer:match("^(.-\r\n)\r\n(.*)$")
      local length = head and tonumber(head:lower():match("content%-length: (%d+)") or 0)
      if not head or #rest < length then return end
      buffer = rest:sub(length + 1)
      local method, path = head:match("^(%u+) (%S+)")
      local call = { method = method, path = path, head = head:lower(), body = rest:sub(1, length) }
      local status, body = 200, ""
      if path ~= "/listens" then status, body = says(call) end
      if status then
        client:write(("HTTP/1.1 %s -\r\nContent-Length: %d\r\n\r\n%s"):format(status, #body, body))
      end
    end
  end)
end)
uv.run()
LUA
  upstream=$!
  pids="$pids $upstream"
  within 10 curl -s -o "$dir/out" "http://127.0.0.1:$1/listens"
}

# ---- Asking what is at $site ----

# status PATH [CURL OPTIONS]: a connection of its own, so that any worker or thread may get it
status() {
  path=$1
  shift
  curl -s -o "$dir/body" -D "$dir/head" -w '%{http_code}' --max-time 10 "$@" "$site$path"
}

# gets STATUS PATH [CURL OPTIONS]
gets() {
  expected=$1
  shift
  got=$(status "$@") || :
  [ "$got" = "$expected" ] || fail "$1: $got, not $expected"
}

header() { tr -d '\r' <"$dir/head" | grep -qi -- "^$1\$" || fail "no $1 in $(cat "$dir/head")"; }

# metric 'SERIES VALUE': the page has that line
metric() {
  curl -sf "$site/metrics" >"$dir/metrics"
  grep -qxF -- "$1" "$dir/metrics" || fail "not $1, but: $(grep -F -- "${1% *}" "$dir/metrics")"
}
has_metric() { curl -sf "$site/metrics" | grep -qxF -- "$1"; }

# calls POLICY OUTCOME NUMBER [KEY]
calls() { metric "neap_calls_total{policy=\"$1\",key=\"${4:-default}\",outcome=\"$2\"} $3"; }

# state POLICY 0|1|2 [KEY]
state() { metric "neap_breaker_state{policy=\"$1\",key=\"${3:-default}\"} $2"; }
