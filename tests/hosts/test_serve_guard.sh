# `neap serve` with fallback.guard: the other policy's upstream is asked, behind its own breaker.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 4)
first=$1 second=$2 listen=$3 admin=$4
sidecar=http://127.0.0.1:$listen pages=http://127.0.0.1:$admin
log=$dir/neap.log

policy() { # NAME STAGES
  cat >"$dir/$1.lua" <<LUA
return {
  name = "$1",
  trip = { consecutive_failures = 3 },
  open = { cooldown_ms = 60000, jitter = 0 },
  timeout_ms = 300,
  fallback = { $2 },
}
LUA
}
policy orders 'fallback.last_good { max_age_ms = 600000 }, fallback.guard("replica", { concurrent = 2 }),
  fallback.default { status = 200, body = "nobody" }'
policy replica 'fallback.guard "orders", fallback.guard "third"'
policy third 'fallback.guard "replica"'
# Its call and the stage that asks for it run into the same timeout: nothing behind it may answer.
policy spare ''
policy checks 'fallback.guard("spare", { sent = true, timeout_ms = 100 }), fallback.fail {}'

cat >"$dir/routes.lua" <<LUA
return {
  listen = "127.0.0.1:$listen", admin = "127.0.0.1:$admin",
  policies = { "$dir/orders.lua", "$dir/replica.lua", "$dir/third.lua", "$dir/checks.lua",
    "$dir/spare.lua" },
  routes = {
    { name = "orders", policy = "orders", upstream = "http://127.0.0.1:$first" },
    { name = "checks", prefix = "/checks", policy = "checks", upstream = "http://127.0.0.1:$first" },
    { name = "more", prefix = "/more", policy = "checks", upstream = "http://127.0.0.1:$first" },
    { name = "second", prefix = false, policy = "replica", upstream = "http://127.0.0.1:$second" },
    { name = "spare", prefix = false, policy = "spare", upstream = "http://127.0.0.1:$second" },
  },
}
LUA

# The upstreams say who they are; /status/N: with that status, /large/N: N bytes more, /hang: primary
# does not answer, /both/hang: none does.
says_who='
  note(call.method, call.path)
  if call.path:find "hang" and (NAME == "primary" or call.path:find "both/hang") then return end
  local more = ("x"):rep(tonumber(call.path:match "^/large/(%d+)" or 0))
  return call.path:match "^/status/(%d+)" or 200, NAME .. " " .. call.method .. " " .. call.body .. more'
start_primary() {
  upstream "$first" primary "local NAME = 'primary' $says_who"
  primary=$upstream
}
start_replica() {
  upstream "$second" replica "local NAME = 'replica' $says_who"
  replica=$upstream
}

start() {
  "$neap" serve "$dir/routes.lua" 2>"$log" &
  neap_pid=$!
  pids="$pids $neap_pid"
  within 10 curl -sf -o "$dir/out" "$pages/healthz"
}
stop() {
  kill "$1"
  wait "$1" || :
}

# says WANTED CURL-ARGUMENTS...: the source and the body of an answer
says() {
  wanted=$1
  shift
  got="$(curl -s -o "$dir/out" -w '%{http_code} %header{neap-source}' "$@") $(head -c 100 "$dir/out")"
  [ "$got" = "$wanted" ] || fail "$*: says '$got', not '$wanted'"
}

start_primary
start_replica
start

# While the first one serves, the second has nothing to do; and no client can ask it.
says '200 primary primary GET ' "$sidecar/a"
[ ! -s "$dir/replica.asked" ] || fail "the replica was asked"
grep -q 'fallbacks -> .*guarded by replica' "$log" || fail "the log does not say what serves fallbacks"

# It is gone: the second answers, with the request as it was, body and all.
stop "$primary"
says '200 guard replica GET ' "$sidecar/b"
says '200 guard replica POST pie' "$sidecar/b" -d pie
[ "$(cat "$dir/replica.asked")" = "$(printf 'GET /b\nPOST /b')" ] || fail "the replica was asked else"
says '404 guard replica GET ' "$sidecar/status/404"
says "200 guard replica GET $(printf '%088d' 0 | tr 0 x)" "$sidecar/large/200000"
[ "$(wc -c <"$dir/out")" = 200012 ] || fail "of a large answer there is only a part"

# What it answers is no good answer of the first one's: when it is gone, too, the chain goes on.
stop "$replica"
says '200 default nobody' "$sidecar/b"
says '200 last_good primary GET ' "$sidecar/a"

# Its own breaker opens: nobody asks it any more, when it is back as before.
says '200 default nobody' "$sidecar/b"
says '200 default nobody' "$sidecar/b"
curl -s -o "$dir/out" "$pages/breakers"
grep -q '"replica"' "$dir/out" || fail "the replica has no breaker"
start_replica
says '200 default nobody' "$sidecar/b"
[ ! -s "$dir/replica.asked" ] || fail "the replica was asked though its breaker is open"
curl -sf -o "$dir/out" "$pages/metrics"
grep -q 'neap_fallback_total{policy="orders",source="guard",result="answered"} 4' "$dir/out" ||
  fail "the guard's answers are not counted"
grep -q 'neap_upstream_background_total{route="second",what="guard"} [5-9]' "$dir/out" ||
  fail "the calls for it are not counted"
stop "$neap_pid"

# One that hangs: what may have been carried out is sent to another only if the policy says so.
start
start_primary
: >"$dir/replica.asked"
says '200 guard replica GET ' "$sidecar/hang"
says '200 default nobody' "$sidecar/hang" -d pie
says '200 guard replica POST pie' "$sidecar/checks/hang" -d pie
[ "$(cat "$dir/replica.asked")" = "$(printf 'GET /hang\nPOST /checks/hang')" ] ||
  fail "the replica was asked else"

# The stage's timeout, and the client's deadline, hold there, too.
began=$(date +%s%N)
curl -s -o "$dir/out" -w '%{http_code} %header{neap-source}' "$sidecar/checks/both/hang" -d pie >"$dir/got"
[ "$(cat "$dir/got")" = "503 fail" ] || fail "of two that hang: $(cat "$dir/got") $(head -c 100 "$dir/out")"
curl -s -o "$dir/out" "$sidecar/checks/both/hang" -H 'Neap-Deadline-Ms: 50' -d pie
[ $((($(date +%s%N) - began) / 1000000)) -lt 1500 ] || fail "it took too long"
stop "$neap_pid"
grep -q 'ERROR\|panic\|assert' "$log" && fail "the log has an error"
stop "$primary"
stop "$replica"
