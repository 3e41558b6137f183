# What happens in a sidecar, told as it does: GET /events, on_transition, the log, in that order of each.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 2)
listen=$1 admin=$2
pages=http://127.0.0.1:$admin

cat >"$dir/limits.lua" <<'END'
return {
  name = "limits",
  trip = { failures = 3 },
  on_transition = function(event) warn("told of " .. event.epoch .. ": " .. event.to) end,
}
END
printf '0123456789abcdef\n' >"$dir/token"
chmod 600 "$dir/token"
start() { # ARGUMENTS...: the sidecar, in $pid
  : >"$dir/serve.log"
  "$neap" serve --listen 127.0.0.1:$listen --admin 127.0.0.1:$admin --policy "$dir/limits.lua" \
    --upstream http://127.0.0.1:9 "$@" 2>"$dir/serve.log" &
  pid=$!
  pids="$pids $pid"
  within 5 grep -q "serving on" "$dir/serve.log"
}
act() { curl -sf -X POST "$pages/breakers/limits/default/$1" -d by=ann -o "$dir/body"; }
follow() { # FILE [CURL OPTIONS]: in $follower
  out=$dir/$1
  : >"$out"
  shift
  curl -sN --max-time 20 "$@" >"$out" &
  follower=$!
  pids="$pids $follower"
  within 5 grep -q '^retry: ' "$out"
}
count() { # FILE NUMBER: so many messages have come
  [ "$(grep -c '^id: ' "$dir/$1" || :)" = "$2" ]
}
ids() { sed -n 's/^id: //p' "$dir/$1"; }

# ---- Each transition, reload and shadow, as it happens ----

start
follow all "$pages/events"
act trip
act reset
sed -i 's/failures = 3/failures = 4/' "$dir/limits.lua"
within 5 count all 3
echo 'return 1' >"$dir/limits.lua"
within 5 count all 4
[ "$(sed -n 's/^event: //p' "$dir/all" | tr '\n' ' ')" = "transition transition reload reload_failed " ] ||
  fail "not those events: $(cat "$dir/all")"
cat >"$dir/fields.lua" <<'END'
local json = require "cjson"
for data in io.read("a"):gmatch("data: ([^\n]*)\n") do
  local e = json.decode(data)
  assert(e.at:find("^%d+%-%d+%-%d+T%d+:%d+:%d+%.%d+Z$") and #e.policy_hash == 16, data)
  if e.kind == "transition" then
    print(("%s/%s %s %s %s %s %g %g"):format(e.policy, e.key, e.from, e.to, e.reason, e.by, e.epoch, e.level))
  end
end
END
$lua "$dir/fields.lua" <"$dir/all" >"$dir/fields"
cat >"$dir/expected" <<'END'
limits/default closed open trip ann 1 1
limits/default open closed reset ann 2 0
END
cmp -s "$dir/fields" "$dir/expected" || fail "not those fields: $(cat "$dir/fields")"
grep -q '"text": "[^"]*limits.lua:1: returns 1: a policy file returns a table' "$dir/all" ||
  fail "a failed reload does not say why"
# The log has the same, in the same order; the policy was told beside the calls.
grep -o 'transition  limits/default: [a-z]* -> [a-z]*\|told of [12]: [a-z]*' "$dir/serve.log" >"$dir/order"
[ "$(grep -c transition "$dir/order")" = 2 ] || fail "the log: $(cat "$dir/serve.log")"
[ "$(grep told "$dir/order" | tr '\n' ' ')" = "told of 1: open told of 2: closed " ] ||
  fail "on_transition: $(cat "$dir/serve.log")"

# ---- Coming back ----

second=$(ids all | sed -n 2p)
follow back -H "Last-Event-ID: $second" "$pages/events"
within 5 count back 2
[ "$(ids back)" = "$(ids all | tail -n 2)" ] || fail "what was missed is not replayed: $(cat "$dir/back")"
kill "$follower"
follow recent "$pages/events?last=1"
within 5 count recent 1
[ "$(ids recent)" = "$(ids all | tail -n 1)" ] || fail "not the last one: $(cat "$dir/recent")"
gone() { curl -sf "$pages/metrics" | grep -qx "neap_events_followers $1"; }
within 5 gone 2
kill "$follower"
within 5 gone 1
[ "$(curl -s -o "$dir/body" -w '%{http_code}' "$pages/events?last=-1")" = 400 ] || fail "last=-1 is taken"
[ "$(curl -s -o "$dir/body" -w '%{http_code}' -X POST "$pages/events")" = 405 ] || fail "POST is taken"
[ "$(curl -sI -o "$dir/body" -w '%{http_code} %{content_type}' "$pages/events")" = "200 text/event-stream" ] ||
  fail "HEAD: $(cat "$dir/body")"

# ---- One who does not read is cut off; the others and the calls go on ----

$lua - $admin <<'LUA' &
local uv, port = require "luv", tonumber(arg[1])
local client = uv.new_tcp("inet")
uv.recv_buffer_size(client, 2048)
client:connect("127.0.0.1", port, function(err)
  assert(not err, err)
  client:write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
end)
uv.new_timer():start(20000, 0, function() os.exit(0) end)
uv.run()
LUA
pids="$pids $!"
within 5 gone 2
# A range of URLs on one connection.  The kernel takes some 2 MB of what is sent to him, so the events are
# large ones; 500 more than fit anywhere are too much.
long=$(printf '%02000d' 0)
curl -s -X POST "$pages/breakers/limits/default/{trip,reset}?by=$long#[1-600]" -o "$dir/body"
cut() { curl -sf "$pages/metrics" | grep -qx "neap_events_cut_total 1"; }
within 10 cut
within 5 gone 1
within 10 count all 1204
[ "$(ids all | sed 's/.*-//' | tr '\n' ' ')" = "$(seq 1204 | tr '\n' ' ')" ] || fail "not each once, in order"
follow late -H "Last-Event-ID: $second" "$pages/events"
within 5 count late 500
grep -A 1 '^event: missed' "$dir/late" | grep -qx 'data: {"count": 702}' || fail "nobody says what is gone"
kill "$follower"

# ---- Connections that nobody uses keep nobody from asking ----

$lua - $admin <<'LUA' &
local uv, port = require "luv", tonumber(arg[1])
local held = {}
for i = 1, 64 do
  held[i] = uv.new_tcp()
  held[i]:connect("127.0.0.1", port, function() if i % 2 == 0 then held[i]:write("GET /") end end)
end
uv.new_timer():start(20000, 0, function() os.exit(0) end)
uv.run()
LUA
pids="$pids $!"
full() { curl -sf "$pages/metrics" | grep -qx 'neap_http_connections_open{server="admin"} 64'; }
within 5 full
curl -sf "$pages/healthz" -o "$dir/body" || fail "/healthz does not answer"
count all 1204 || fail "who follows was cut off"
kill $!

# ---- Too many, a token, the end ----

for i in 1 2 3 4 5 6 7; do follow "f$i" "$pages/events"; done
[ "$(curl -s -o "$dir/body" -w '%{http_code}' "$pages/events")" = 503 ] || fail "a ninth follows"
curl -sf "$pages/metrics" | promtool check metrics >"$dir/body" || fail "the metrics page: $(cat "$dir/body")"
kill "$pid"
wait "$pid" || fail "ended with status $?"
wait "$follower" || fail "a follower did not see the end of it: $?"

sed -i '1s/.*/return { name = "limits", trip = { failures = 3 } }/' "$dir/limits.lua"
start --admin-token-file "$dir/token"
[ "$(curl -s -o "$dir/body" -w '%{http_code}' "$pages/events")" = 401 ] || fail "no token was asked for"
follow again -H 'Authorization: Bearer 0123456789abcdef' -H "Last-Event-ID: $second" "$pages/events"
act() { curl -sf -H 'Authorization: Bearer 0123456789abcdef' -X POST "$pages/breakers/limits/default/$1" -d by=ann -o "$dir/body"; }
act trip
within 5 count again 1 # of the time before nothing is left, and nothing is mistaken for it
! grep -q missed "$dir/again" || fail "a new start has missed something"
kill "$pid"
wait "$pid" || fail "ended with status $?"
