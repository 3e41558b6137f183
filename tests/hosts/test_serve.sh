# `neap serve` as a process: what it says when it cannot start, routes, signals, tokens, reloads.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 5)
up=$1 listen=$2 admin=$3 other=$4 nobody=$5
sidecar=http://127.0.0.1:$listen pages=http://127.0.0.1:$admin

in_front="" # or what makes a job of this script one that Ctrl-C is for
start() { # LOG ARGUMENTS...: the sidecar, in $pid
  log=$dir/$1.log
  : >"$log"
  shift
  $in_front "$neap" serve "$@" 2>"$log" >"$dir/out" &
  pid=$!
  pids="$pids $pid"
}
up_and_running() { grep -q "serving on" "$log" || { kill -0 "$pid" && return 1; }; }
stop() { kill "$pid"; wait "$pid" || fail "ended with status $?"; }
logged() { grep -q -- "$1" "$log"; }
status() { curl -s -o "$dir/body" -w '%{http_code}' --max-time 5 "$@"; }
has_metric() { curl -sf "$pages/metrics" | grep -qxF "$1"; }

$lua examples/demo/upstream.lua --quiet --listen 127.0.0.1:$up >"$dir/upstream.log" &
pids="$pids $!"
cp policies/flag_provider.lua "$dir/flag_provider.lua"
usual="--listen 127.0.0.1:$listen --upstream http://127.0.0.1:$up --admin 127.0.0.1:$admin"
usual="$usual --policy $dir/flag_provider.lua"

# ---- What keeps it from starting: one line each, exit 1 ----

refuses() { # EXPECTED ARGUMENTS...
  expected=$1
  shift
  if timeout 20 "$neap" serve "$@" >"$dir/out" 2>"$dir/err"; then fail "started: $*"; else code=$?; fi
  [ $code -eq 1 ] || fail "exit $code, not 1: $*"
  [ ! -s "$dir/out" ] || fail "standard output is for answers"
  [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "not one line: $(cat "$dir/err")"
  grep -qF -- "$expected" "$dir/err" || fail "expected $expected, got $(cat "$dir/err")"
}

within 5 curl -s "http://127.0.0.1:$up/_fail" -o /dev/null
alone="--upstream http://127.0.0.1:$up --admin off"
refuses "127.0.0.1:$up" $alone --listen 127.0.0.1:$up --policy policies/payments.lua
usual_but="--upstream http://127.0.0.1:$up --policy $dir/flag_provider.lua"
refuses "127.0.0.1:$up" $usual_but --listen 127.0.0.1:$other --admin 127.0.0.1:$up
refuses "$dir/none.lua: No such file" $alone --policy "$dir/none.lua"
echo 'return { name = "bad", trip = { failures = 0 } }' >"$dir/bad.lua"
refuses "$dir/bad.lua:1: trip.failures: 0 is out of range" $alone --policy "$dir/bad.lua"
refuses "$dir/none: No such file" $usual --params "$dir/none"
refuses "$dir/none: No such file" $usual --admin-token-file "$dir/none"
printf 'short\n' >"$dir/token" && chmod 600 "$dir/token"
refuses "the token has 5 bytes; must have 16 to 512" $usual --admin-token-file "$dir/token"
printf '0123456789 abcdef\n' >"$dir/token"
refuses "visible ASCII without blanks" $usual --admin-token-file "$dir/token"
lines="$dir/token: has more than one line; must have the token and nothing else"
for text in '0123456789abcdef\nfedcba9876543210\n' '0123456789abcdef\n\n' '\n0123456789abcdef'; do
  printf "$text" >"$dir/token"
  refuses "$lines" $usual --admin-token-file "$dir/token"
done
{ printf '%0512d' 0 && printf '\r\nmore'; } >"$dir/token" # cut where the longest token ends
refuses "$lines" $usual --admin-token-file "$dir/token"
printf '0123456789abcdef\0more' >"$dir/token"
refuses "byte 17 is not" $usual --admin-token-file "$dir/token"
printf '0123456789abcdef\n' >"$dir/token" && chmod 644 "$dir/token"
refuses "has mode 0644, so others can read or change it; try chmod 600 $dir/token" $usual \
  --admin-token-file "$dir/token"
refuses "must be a plain file" $usual --admin-token-file /dev/null
echo 'return { policies = { "policies" }, routes = {
  { name = "a", upstream = "http://a", policy = "paymnts" } } }' >"$dir/edge.lua"
refuses 'edge.lua:2: routes[1].policy: "paymnts": there is no such policy: did you mean payments?' \
  "$dir/edge.lua" --admin off
echo 'return { flag_provdier = {} }' >"$dir/params.lua"
stranger="$dir/params.lua:1: flag_provdier: there is no such policy: did you mean flag_provider?"
refuses "$stranger" $usual --params "$dir/params.lua"
"$neap" check "$dir/flag_provider.lua" --params "$dir/params.lua" >"$dir/out" 2>"$dir/err" &&
  fail "check takes parameters for nobody"
grep -qF "$stranger" "$dir/err" || fail "check says it otherwise: $(cat "$dir/err")"

# ---- One route ----

start one $usual --log-format json
within 5 up_and_running
[ "$(status "$sidecar/flags/a")" = 200 ] || fail "no answer"
has_metric 'neap_calls_total{policy="flag_provider",key="default",outcome="success"} 1' ||
  fail "B163: a call was made that no breaker counted"
curl -sf "$pages/metrics" | promtool check metrics || fail "the metrics page is not right"
curl -sf "$pages/metrics" | $lua tests/support/series.lua flag_provider default || fail "series are missing"
[ "$(status -I "$pages/metrics")" = 200 ] || fail "HEAD is not answered"
[ "$(status "$pages/breakers/flag_provider/default")" = 200 ] || fail "no such breaker"
[ "$(status -H 'Host: evil.example' "$pages/breakers")" = 403 ] || fail "DNS rebinding"
head -c 20000 /dev/zero | tr '\0' a >"$dir/much"
[ "$(status --data-binary "@$dir/much" "$pages/breakers/flag_provider/default/mode")" = 413 ] ||
  fail "a large body is taken"

# B113: names that clients make up make no breakers.
breakers() { curl -sf "$pages/metrics" | grep -c '^neap_breaker_state'; }
before=$(breakers)
for i in 1 2 3 4 5; do
  curl -s -H "Host: h$i.example" -H "X-Key: $i" "$sidecar/flags/x$i?y=$i" -o /dev/null
done
[ "$(breakers)" = "$before" ] || fail "B113: new breakers"

# An operator's mode, and who set it.
mode=$pages/breakers/flag_provider/default/mode
[ "$(status -d 'mode=forced_open&by=ann&for=1m&reason=drill' "$mode")" = 200 ] ||
  fail "no mode: $(cat "$dir/body")"
curl -si "$sidecar/flags/new" | grep -q '^Neap-Source: default' || fail "the mode does nothing"
logged '"action":"mode forced_open","by":"ann","for_ms":60000,"why":"drill","peer":"127.0.0.1"' ||
  fail "the log does not say who did it"
[ "$(status -d 'mode=policy&by=ann' "$mode")" = 200 ] || fail "no way back"

# By a page: the browser's word counts, if it is there once, and Host must be ours.
page() { # STATUS HEADERS...
  expected=$1
  shift
  for header in "$@"; do set -- "$@" -H "$header" && shift; done
  [ "$(status -d 'mode=policy&by=ann' "$mode" "$@")" = $expected ] ||
    fail "not $expected with $*: $(cat "$dir/body")"
}
of_proxy="Origin: https://neap.example"
page 200 "Sec-Fetch-Site: same-origin" "$of_proxy"
page 200 "SEC-FETCH-SITE:same-origin" "$of_proxy"
page 403 "Sec-Fetch-Site: same-site" "Origin: $pages"
page 403 "Sec-Fetch-Site: cross-site"
page 403 "Sec-Fetch-Site: same-origin" "Host: evil.example" "Origin: http://evil.example"
page 403 "Sec-Fetch-Site: same-origin" "Sec-Fetch-Site: cross-site" "Origin: $pages"
page 403 "Sec-Fetch-Site: cross-site" "Sec-Fetch-Site: same-origin" "Origin: $pages"
page 403 "Sec-Fetch-Site;" "Origin: $pages" # empty
page 403 "Sec-Fetch-Site: none" "$of_proxy"
page 403 "$of_proxy"
page 200 "Origin: $pages"
page 403 "Origin: $pages" "$of_proxy"

# B122: a mistake in the file, under load: no request goes unanswered, and mending it is enough.
curl -s -o /dev/null -w '%{http_code} %header{neap-source}\n' "$sidecar/flags/b[1-4000]" \
  >"$dir/codes" &
load=$!
sed -i 's/failures = 5/failures = -5/' "$dir/flag_provider.lua"
within 5 logged 'reload_failed.*trip.failures: -5 is out of range'
[ "$(status -X POST "$pages/reload")" = 422 ] || fail "a reload that is refused answers 200"
grep -q 'trip.failures: -5 is out of range' "$dir/body" || fail "and does not say why"
has_metric 'neap_policy_stale{policy="flag_provider"} 1' || fail "the metrics do not tell"
sed -i 's/failures = -5/failures = 4/' "$dir/flag_provider.lua"
within 5 logged '"event":"reload",'
has_metric 'neap_policy_stale{policy="flag_provider"} 0' || fail "it is still said to be wrong"
wait $load
[ "$(sort "$dir/codes" | uniq -c | sed 's/^ *//')" = "4000 200 primary" ] ||
  fail "B122: $(sort "$dir/codes" | uniq -c)"

# SIGHUP looks at once; a file that says the same as before is no news.
touch "$dir/flag_provider.lua"
kill -HUP "$pid"
within 5 logged 'SIGHUP: 0 reloaded, 0 refused'

# Every line of the log is JSON.
"${LUA:-lua5.4}" - "$log" <<'END'
for line in io.lines(arg[1]) do assert(require("cjson").decode(line).message, line) end
END
stop
logged '"message":"stopped"' || fail "it does not say that it stopped"
[ ! -s "$dir/out" ] || fail "standard output is not for the log"

# ---- More clients than there are files for ----

# 100 connections that all ask: says how many answers there are of each status.
cat >"$dir/many.lua" <<'END'
local uv, asked, heard = require "luv", 100, {}
for _ = 1, asked do
  local client = uv.new_tcp()
  client:connect("127.0.0.1", tonumber(arg[1]), function(err)
    assert(not err, err)
    client:write("GET /flags/a HTTP/1.1\r\nHost: a\r\n\r\n")
    client:read_start(function(why, chunk)
      local status = chunk and chunk:match("^HTTP/1.1 (%d+)") or why or "none"
      heard[status], asked = (heard[status] or 0) + 1, asked - 1
      client:read_stop()
      if asked == 0 then uv.stop() end
    end)
  end)
end
uv.run()
for status, count in pairs(heard) do print(count, status) end
END
log=$dir/few.log
(ulimit -n 192; exec "$neap" serve --listen 127.0.0.1:$listen --upstream "http://127.0.0.1:$up" \
  --policy "$dir/flag_provider.lua" --admin 127.0.0.1:$admin) 2>"$log" &
pid=$!
pids="$pids $pid"
within 5 up_and_running
logged 'at most 40 clients at once: only 192 files may be open' || fail "it does not say so"
curl -s -X POST "http://127.0.0.1:$up/_fail?mode=slow&ms=150" -o /dev/null
timeout 20 "${LUA:-lua5.4}" "$dir/many.lua" "$listen" >"$dir/heard" || fail "not all are answered"
curl -s -X POST "http://127.0.0.1:$up/_fail?mode=ok" -o /dev/null
[ "$(sort -n "$dir/heard" | tr -s ' \t\n' ' ')" = "40 200 60 503 " ] ||
  fail "40 are answered and 60 turned away, but: $(cat "$dir/heard")"
has_metric 'neap_calls_total{policy="flag_provider",key="default",outcome="failure"} 0' ||
  fail "there was no file left for the upstream, and that was taken for its failure"
has_metric 'neap_http_overload_total{server="proxy"} 60' || fail "the metrics do not tell"
[ "$(grep -c '40 clients are connected, no more may be' "$log")" = 1 ] || fail "not one line"
stop

# ---- Draining ----

sed -i 's/timeout_ms = 500/timeout_ms = 4000/; s/lease_ms = 1000/lease_ms = 5000/' "$dir/flag_provider.lua"
ulimit -Sn 256 # a limit that may be raised is raised
start drain $usual --drain-ms 5000
within 5 up_and_running
[ "$(ulimit -Hn)" != unlimited ] && [ "$(ulimit -Hn)" -lt 12000 ] || ! logged 'clients at once' ||
  fail "few clients, though more files may be opened"
curl -s -X POST "http://127.0.0.1:$up/_fail?mode=slow&ms=2000" -o /dev/null
curl -s -o "$dir/slow" -w '%{http_code}' "$sidecar/flags/slow" >"$dir/code" &
slow=$!
within 5 has_metric 'neap_route_active{route="default"} 1'
kill -INT "$pid" # a script's background job ignores it, and so does what it runs
sleep 0.1
kill "$pid"
within 5 logged 'SIGTERM: draining'
[ "$(status "$pages/healthz")" = 503 ] || fail "health while draining"
[ "$(status "$sidecar/flags/more" || :)" = 000 ] || fail "takes new requests while draining"
wait $slow
[ "$(cat "$dir/code")" = 200 ] || fail "a request under way was not let end: $(cat "$dir/code")"
wait "$pid" || fail "ended with status $?"

# Whoever does not end in time is cut off: after the limit, or at once at a second signal.
for signals in 1 2; do
  in_front="env --default-signal=INT"
  start "cut$signals" --listen 127.0.0.1:$listen --upstream "http://127.0.0.1:$up" --admin off \
    --policy policies/low_traffic.lua --drain-ms $((signals == 1 ? 300 : 60000))
  within 5 up_and_running
  curl -s -X POST "http://127.0.0.1:$up/_fail?mode=hang" -o /dev/null
  curl -s "$sidecar/flags/x" -o /dev/null &
  hung=$!
  sleep 0.3
  kill "$pid"
  within 5 logged 'SIGTERM: draining'
  in_front=""
  if [ $signals = 2 ]; then kill -INT "$pid" && within 5 logged 'SIGINT again: not waiting'; fi
  wait "$pid" || fail "ended with status $?"
  wait $hung && fail "a request that was cut off succeeded"
done
curl -s -X POST "http://127.0.0.1:$up/_fail?mode=ok" -o /dev/null

# ---- Several routes, a token, an upstream that is not there ----

cp policies/http_upstream.lua policies/payments.lua "$dir"
cat >"$dir/edge.lua" <<END
return {
  listen = "127.0.0.1:$listen",
  admin = "0.0.0.0:$admin",
  admin_token_file = "$dir/token",
  policies = { "$dir/payments.lua", "$dir/http_upstream.lua", "$dir/flag_provider.lua" },
  routes = {
    { name = "flags", prefix = "/flags", policy = "flag_provider",
      upstream = "http://127.0.0.1:$up" },
    { name = "pay", host = "pay.internal", policy = "payments",
      upstream = "http://127.0.0.1:$nobody" },
  },
}
END
chmod 600 "$dir/token"
start edge "$dir/edge.lua"
within 5 up_and_running
within 5 logged " http://127.0.0.1:$nobody can't be reached now: connection refused"
logged 'policy http_upstream matches no route' || fail "B163: a policy without a route goes unsaid"
logged 'policy http_upstream matches .*nobody is asked; that takes a route .*prefix = false' ||
  fail "what is missing for another one's fallback.guard goes unsaid"
! logged 'policy payments matches no route' || fail "a policy with a route is reported"
[ "$(status "$sidecar/flags/a")" = 200 ] || fail "no route by path"
[ "$(status "$sidecar/flagship")" = 404 ] || fail "a prefix ends at a segment's end"
grep -q '"title":"No route"' "$dir/body" || fail "no problem body: $(cat "$dir/body")"
[ "$(status -H "Host: Pay.Internal:8080" "$sidecar/flags/a")" -ge 502 ] || fail "no route by host"
[ "$(status "$pages/breakers")" = 401 ] || fail "no token was asked for"
[ "$(status "$pages/healthz")" = 200 ] || fail "the health needs no token"
bearer='Authorization: Bearer 0123456789abcdef'
[ "$(status -H "$bearer" "$pages/breakers")" = 200 ] || fail "the token is not taken"
# B151: the routes' breakers are there before their first call.
curl -sf -H "$bearer" "$pages/metrics" >"$dir/metrics"
grep -qxF 'neap_breaker_state{policy="payments",key="pay"} 0' "$dir/metrics" ||
  fail "B151: no breaker"
# Another token, at SIGHUP; a bad one is refused and the old one stays.
printf 'fedcba9876543210\n' >"$dir/token"
kill -HUP "$pid"
within 5 logged 'SIGHUP: 0 reloaded, 0 refused'
[ "$(status -H "$bearer" "$pages/breakers")" = 401 ] || fail "the old token is still good"
bearer='Authorization: Bearer fedcba9876543210'
chmod 644 "$dir/token"
kill -HUP "$pid"
within 5 logged 'SIGHUP: 0 reloaded, 1 refused'
logged 'has mode 0644.*the old token stays' || fail "it does not say why"
[ "$(status -H "$bearer" "$pages/breakers")" = 200 ] || fail "the token was lost"
# The upstream that was not there comes.
lua5.4 examples/demo/upstream.lua --quiet --listen 127.0.0.1:$nobody >"$dir/upstream2.log" &
pids="$pids $!"
within 10 logged " http://127.0.0.1:$nobody can be reached now, after [0-9.]* s .*unreachable_ms="
[ "$(grep -c "can.*be reached" "$log")" = 2 ] || fail "more is said than that it went and came"
stop

# ---- Parameters ----

# B124: what a deployment sets is in force at the start and after a reload alike.
echo 'return { name = "limits", trip = { failures = params.failures } }' >"$dir/limits.lua"
echo 'return { limits = { failures = 7 } }' >"$dir/params.lua"
start params --listen 127.0.0.1:$listen --upstream "http://127.0.0.1:$up" --admin 127.0.0.1:$admin \
  --policy "$dir/limits.lua" --params "$dir/params.lua"
within 5 up_and_running
hash() { curl -sf "$pages/policies" | sed -n 's/.*"hash": "\(.*\)".*/\1/p' | head -n 1; }
before=$(hash)
[ "$(status -X POST "$pages/reload")" = 200 ] || fail "no reload"
grep -q '"reloaded": 0' "$dir/body" || fail "B124: an unchanged file was reloaded"
[ -n "$before" ] && [ "$(hash)" = "$before" ] || fail "B124: a reload changed the hash"
! logged ' reload ' || fail "B124: an event for nothing"
echo 'return { limits = { failures = 8 } }' >"$dir/params.lua"
[ "$(status -X POST "$pages/reload")" = 200 ] || fail "no reload"
[ "$(hash)" != "$before" ] || fail "other parameters, the same policy"
stop

# Declared: files laid over each other, the environment before them, an operator before all.
cat >"$dir/limits.lua" <<'END'
params.declare {
  failures = { type = "whole", min = 1, max = 100, default = 5 },
  cooldown_ms = { type = "ms", min = 100, max = 60000, default = 5000 },
}
return { name = "limits", trip = { failures = params.failures },
  open = { cooldown_ms = params.cooldown_ms } }
END
echo 'return { limits = { failures = 7, cooldown_ms = 1000 } }' >"$dir/params.lua"
echo 'return { limits = { cooldown_ms = 2000 } }' >"$dir/over.lua"
if NEAP_PARAM_LIMITS__FAILURES=0 "$neap" serve $alone --policy "$dir/limits.lua" 2>"$dir/err"; then
  fail "B145: starts with 0 failures"
fi
[ "$(cat "$dir/err")" = "neap serve: NEAP_PARAM_LIMITS__FAILURES: 0 is out of range: a whole number \
from 1 to 100" ] || fail "B145: $(cat "$dir/err")"
in_front="env NEAP_PARAM_LIMITS__FAILURES=3"
start declared --listen 127.0.0.1:$listen --upstream "http://127.0.0.1:$up" --log-format json \
  --admin 127.0.0.1:$admin --policy "$dir/limits.lua" --params "$dir/params.lua" \
  --params "$dir/over.lua"
in_front=""
within 5 up_and_running
cat >"$dir/in_force.lua" <<'END'
for _, row in ipairs(require("cjson").decode(io.read("a")).params) do
  print(("%s %.14g %s"):format(row.name, row.value, row.from))
end
END
params=$pages/policies/limits/params
ask="$neap status --admin 127.0.0.1:$admin"
$ask >"$dir/status" || fail "neap status: $?: $(cat "$dir/status")"
grep -q '^limits/default  closed  no calls' "$dir/status" || fail "neap status: $(cat "$dir/status")"
"$neap" mode limits forced_open --for 1m --by ann --reason drill --admin 127.0.0.1:$admin \
  >"$dir/status" || fail "neap mode"
[ "$(status "$sidecar/flags/a")" = 503 ] || fail "the mode is not in force"
if $ask >"$dir/status"; then fail "a forced-open breaker is well"; else code=$?; fi
[ $code -eq 1 ] && grep -q 'mode forced_open, by ann at .*: drill; ends in ' "$dir/status" ||
  fail "neap status: $code: $(cat "$dir/status")"
"$neap" mode limits policy --by ann --admin 127.0.0.1:$admin >"$dir/status" || fail "neap mode"
"$neap" mode limits forced_closed --for 300ms --by bob --admin 127.0.0.1:$admin >"$dir/status" ||
  fail "neap mode"
within 5 logged 'limits/default: the time of mode forced_closed, set by bob, is over: auto again'
"$neap" params limits failures=6 --by ann --admin "localhost:$admin" >"$dir/status" || fail "params"
grep -qxF 'failures = 6  (admin, by ann; a whole number from 1 to 100)' "$dir/status" || fail "params: $(cat "$dir/status")"
"$neap" params limits --unset failures --by ann --admin "localhost:$admin" >"$dir/status" ||
  fail "params: $?"
for key in . ..; do # which are no directories
  if $ask "limits/$key" 2>"$dir/err"; then fail "there is a key $key"; else code=$?; fi
  [ $code -eq 1 ] && grep -q "limits has no breaker" "$dir/err" || fail "$key: $code: $(cat "$dir/err")"
done
if "$neap" status --admin 127.0.0.1:1 2>"$dir/err"; then fail "nobody is well"; else code=$?; fi
[ $code -eq 3 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "status $code: $(cat "$dir/err")"
in_force() { curl -sf "$params" | "${LUA:-lua5.4}" "$dir/in_force.lua" | grep -qxF "$1"; }
in_force "cooldown_ms 2000 $dir/over.lua:1" || fail "the later file does not count"
in_force "failures 3 NEAP_PARAM_LIMITS__FAILURES" || fail "B124: the environment does not count"
[ "$(status "$params" -d failures=4 -d by=ann -d reason=drill)" = 200 ] || fail "$(cat "$dir/body")"
logged '"event":"params","message":"limits: params 4: failures 3 -> 4 (admin, by ann: drill)"' ||
  fail "the log does not say what was changed"
logged '"event":"operator".*"why":"drill","peer":"127.0.0.1"' || fail "nor who did, from where"
before=$(hash)
echo 'return { limits = { failures = 9 } }' >"$dir/params.lua"
[ "$(status -X POST "$pages/reload")" = 200 ] || fail "no reload"
in_force "failures 4 admin, by ann: drill" || fail "what an operator sets does not stay"
[ "$(hash)" = "$before" ] || fail "B124: nothing in force has changed"
[ "$(status "$params" -d failures=4 -d cooldown_ms=5 -d by=ann)" = 400 ] || fail "out of range"
grep -q 'params.cooldown_ms: 5 is out of range: a whole number of milliseconds' "$dir/body" ||
  fail "no reason: $(cat "$dir/body")"
[ "$(hash)" = "$before" ] || fail "B121: half of a change was made"
[ "$(status "$params" -d unset=failures -d by=ann)" = 200 ] || fail "$(cat "$dir/body")"
in_force "failures 3 NEAP_PARAM_LIMITS__FAILURES" || fail "what was set is not unset"
has_metric "neap_policy_info{policy=\"limits\",hash=\"$(hash)\"} 1" || fail "not in the metrics"
stop

# ---- A shadow policy ----

mkdir "$dir/candidates"
next() { echo "return { name = 'limits', trip = { $1 } }" >"$dir/candidates/limits.lua"; }
next 'consecutive_failures = 2'
echo 'return { name = "limits", shadow = "candidates/limits.lua", timeout_ms = 1000,
  trip = { consecutive_failures = 4 }, open = { cooldown_ms = 60000 } }' >"$dir/limits.lua"
start shadow --listen 127.0.0.1:$listen --upstream "http://127.0.0.1:$up" --log-format json \
  --admin 127.0.0.1:$admin --policy "$dir/limits.lua"
within 5 up_and_running
shadow() { # RESULT NUMBER
  has_metric "neap_shadow_calls_total{policy=\"limits\",key=\"default\",result=\"$1\"} $2" ||
    fail "not $2 $1: $(curl -sf "$pages/metrics" | grep '^neap_shadow')"
}
shadow same 0
for i in 1 2 3; do [ "$(status "$sidecar/flags/a")" = 200 ] || fail "no answer"; done
shadow same 3
curl -s -X POST "http://127.0.0.1:$up/_fail?mode=500" -o /dev/null
for i in 1 2 3; do [ "$(status "$sidecar/flags/a")" = 500 ] || fail "no answer of the upstream's"; done
shadow same 5
shadow saved 1
has_metric 'neap_shadow_state{policy="limits",key="default"} 2' || fail "it would not have opened"
has_metric 'neap_breaker_state{policy="limits",key="default"} 0' || fail "the shadow decides"
has_metric 'neap_shadow_transitions_total{policy="limits",key="default",to="open"} 1' || fail "moved"
moved='"event":"shadow","message":"limits/default: shadow candidates/limits.lua would move: closed -> open'
logged "$moved: 2 failures in a row, limit 2" || fail "the log does not tell"
curl -sf "$pages/metrics" | promtool check metrics || fail "the metrics page is not right"
$ask >"$dir/status" || fail "a shadow makes it unwell: $(cat "$dir/status")"
line='  shadow candidates/limits.lua: open; of 6 calls it would have refused 1 (saved 1 that failed, lost 0'
grep -qF "$line" "$dir/status" || fail "neap status does not tell: $(cat "$dir/status")"
# A mistake in it is a warning, and the last good one goes on.
next 'consecutive_failurs = 2'
within 5 logged 'shadow: .*candidates/limits.lua:1: trip.consecutive_failurs: is not a key'
has_metric 'neap_shadow_stale{policy="limits"} 1' || fail "the metrics do not tell"
has_metric 'neap_policy_stale{policy="limits"} 0' || fail "the live policy is not wrong"
shadow saved 1
# Another one begins anew; it would let through what the live one refuses.
next 'consecutive_failures = 20'
begins() { has_metric 'neap_shadow_state{policy="limits",key="default"} 0'; }
within 5 begins
[ "$(status "$sidecar/flags/a")" = 500 ] || fail "the fourth failure"
[ "$(status "$sidecar/flags/a")" = 503 ] || fail "the live breaker has lost its count"
shadow same 1
shadow let_through 1
stop
