# Trace context goes through the sidecar as it came: every vendor's fields, byte for byte, in their order and
# as often as they are there; to each attempt, and on the way back.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
up=$1 listen=$2 admin=$3
sidecar=http://127.0.0.1:$listen site=http://127.0.0.1:$admin

policy traced 'trip = { failures = 1000 }, timeout_ms = 2000, retry = { attempts = 3, base_ms = 1, budget_per_s = 100 }' "$dir"
policy kept 'trip = { failures = 1 }, open = { cooldown_ms = 300, jitter = 0 },
  half_open = { probes = 1, successes = 1 }, fallback = { fallback.queue "later", fallback.last_good {} }' "$dir"
cat >"$dir/routes.lua" <<END
return {
  listen = "127.0.0.1:$listen", admin = "127.0.0.1:$admin", state_dir = "$dir/state",
  policies = { "$dir/traced.lua", "$dir/kept.lua" },
  routes = {
    { name = "all", policy = "traced", upstream = "http://127.0.0.1:$up" },
    { name = "kept", prefix = "/kept", policy = "kept", upstream = "http://127.0.0.1:$up" },
  },
}
END
mkdir -m 700 "$dir/state"
$lua - $up "$dir/heads" <<'LUA' 2>"$dir/upstream.log" &
-- Writes down each head that comes; fails twice when asked for /retried, and when asked for /kept again.
local uv, heads, asked, kept = require "luv", arg[2], 0, 0
local server = uv.new_tcp()
server:bind("127.0.0.1", tonumber(arg[1]))
server:listen(16, function()
  local client = uv.new_tcp()
  server:accept(client)
  client:read_start(function(_, text)
    if not text then return client:close() end
    if not text:find "^%u+ /" then return end -- a body that came by itself
    local file = io.open(heads, "ab")
    file:write(text)
    file:close()
    local is_retried, is_kept = text:find "^GET /retried", text:find "^GET /kept"
    asked = asked + (is_retried and 1 or 0)
    kept = kept + (is_kept and 1 or 0)
    local fails = is_retried and asked < 3 or is_kept and kept == 2
    client:write(("HTTP/1.1 %s\r\nContent-Length: 2\r\nTraceResponse: 00-%032x-%016x-01\r\n"
      .. "tracestate: up=1\r\ntracestate: up=2,\tx=y\r\nX-B3-TraceId: 80f198ee56343ba8\r\n"
      .. "Server-Timing: traceparent;desc=\"00-a-b-01\"\r\n\r\nok"):format(
      fails and "503 X" or "200 OK", 10, 11))
  end)
end)
uv.run()
LUA
pids="$pids $!"
"$neap" serve "$dir/routes.lua" 2>"$dir/serve.log" &
pids="$pids $!"
within 5 grep -q "serving on" "$dir/serve.log"

cat >"$dir/fields" <<'END'
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
TraceState: congo=t61rcWkgMzE,rojo=00f067aa0ba902b7
tracestate: third@vendor=with spaces , and=more
baggage: userId=Am%C3%A9lie,serverNode=DF%2028;prop=1
Baggage: isProduction=false
b3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90
X-B3-TraceId: 463ac35c9f6413ad48485a3953bb6124
x-b3-sampled: 1
X-B3-Flags: 1
uber-trace-id: 4bf92f3577b34da6:00f067aa0ba902b7:0:1
sentry-trace: d4cda95b652f4a1592b449d5929fda1b-6e0c63257de34c92-1
X-Amzn-Trace-Id: Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1
X-Cloud-Trace-Context: 105445aa7843bc8bf206b12000100000/1;o=1
END
ask() { # PATH [CURL OPTIONS]: with those fields
  path=$1
  shift
  while read -r field; do printf 'header = "%s"\n' "$field"; done <"$dir/fields" >"$dir/curl"
  : >"$dir/heads"
  curl -s -K "$dir/curl" "$sidecar$path" -o "$dir/body" -D "$dir/head" "$@"
}
# Only these fields, of one head or several.
traces() { tr -d '\r' <"$1" | grep -iE '^(trace|baggage|b3:|x-b3-|uber|sentry|x-amzn-trace|x-cloud-trace|server-timing)'; }

ask /once
traces "$dir/heads" | cmp - "$dir/fields" || fail "on the way to the upstream: $(cat "$dir/heads")"
traces "$dir/head" >"$dir/back"
printf 'TraceResponse: 00-%032x-%016x-01\ntracestate: up=1\ntracestate: up=2,\tx=y\n' 10 11 >"$dir/expected"
printf 'X-B3-TraceId: 80f198ee56343ba8\nServer-Timing: traceparent;desc="00-a-b-01"\n' >>"$dir/expected"
cmp "$dir/back" "$dir/expected" || fail "on the way back: $(cat "$dir/head")"

# Three attempts of one request are three spans under the same parent, none of neap's own making.
ask /retried
[ "$(head -n 1 "$dir/head" | cut -d' ' -f2)" = 200 ] || fail "it was not tried again: $(cat "$dir/head")"
cat "$dir/fields" "$dir/fields" "$dir/fields" >"$dir/thrice"
traces "$dir/heads" | cmp - "$dir/thrice" || fail "with retries: $(cat "$dir/heads")"

# An answer that was kept has the fields that it had; a call that is made later has those it was queued with.
ask /kept
ask /kept
grep -q '^Neap-Source: last_good' "$dir/head" || fail "not kept: $(cat "$dir/head")"
traces "$dir/head" >"$dir/back"
cmp "$dir/back" "$dir/expected" || fail "of a kept answer: $(cat "$dir/head")"
ask /kept -d order=1
grep -q '^Neap-Source: queue' "$dir/head" || fail "not queued: $(cat "$dir/head")"
within 5 grep -q '^POST /kept' "$dir/heads"
traces "$dir/heads" | cmp - "$dir/fields" || fail "of a queued call: $(cat "$dir/heads")"

# A request without any gets none.
: >"$dir/heads"
curl -s "$sidecar/none" -o "$dir/body"
if traces "$dir/heads" >"$dir/back"; then fail "made up: $(cat "$dir/back")"; fi
