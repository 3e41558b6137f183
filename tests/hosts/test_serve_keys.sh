# `neap serve` with a policy that says whose breaker a request is: an endpoint that is down stops no
# other, and who asks for many paths gets no more breakers than there are routes.  Of several upstreams
# with that policy each has breakers of its own.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 6)
up=$1 listen=$2 admin=$3 dead=$4 listen2=$5 admin2=$6
sidecar=http://127.0.0.1:$listen pages=http://127.0.0.1:$admin

cat >"$dir/shop.lua" <<'LUA'
local ROUTES = { "/users/{id}", "/reports/{id}", "/help/to/those/who/have/no/idea/what/they/want" }
return {
  name = "shop",
  trip = { consecutive_failures = 3 },
  open = { cooldown_ms = 60000 },
  timeout_ms = 5000,
  key = function(call) return route(call.request.target, ROUTES) end,
}
LUA

upstream "$up" upstream 'return call.path:find "^/reports/" and 500 or 200, "done"'
"$neap" serve --listen "127.0.0.1:$listen" --admin "127.0.0.1:$admin" \
  --upstream "http://127.0.0.1:$up" --policy "$dir/shop.lua" >"$dir/log" 2>&1 &
pids="$pids $!"
within 10 grep -q "serving on" "$dir/log"

is() { [ "$1" = "$2" ] || fail "$3: $2, not $1"; }
has() { grep -qF -- "$1" "$2" || fail "no $1 in $(head -c 2000 "$2")"; }
answer() { curl -s -o "$dir/body" -w '%{http_code}' "$sidecar$1"; }

for i in 1 2 3; do is 500 "$(answer "/reports/$i?page=$i")" "the upstream's own"; done
is 503 "$(answer /reports/4)" "its breaker is open"
has "shop//reports/{id}: open" "$dir/body" "the answer says whose"
for i in 1 2 3; do is 200 "$(answer /users/$i)" "another endpoint's is not"; done
i=0
while [ $i -lt 300 ]; do
  echo "url = $sidecar/wp-admin/$i"
  echo "output = /dev/null"
  i=$((i + 1))
done >"$dir/urls"
curl -s -K "$dir/urls"
curl -s "$pages/metrics" >"$dir/metrics"
has 'neap_breaker_state{policy="shop",key="/reports/{id}"} 2' "$dir/metrics" "B113"
has 'neap_calls_total{policy="shop",key="/users/{id}",outcome="success"} 3' "$dir/metrics" "B113"
# The default one, the one that all share for whom there is no room, and two routes.
is 4 "$(grep -c '^neap_breaker_state{' "$dir/metrics")" "B113: breakers in all"

# ---- Several upstreams, one policy -----------------------------------------------------------------

long=$(printf '%060d' 0)
cat >"$dir/routes.lua" <<LUA
return {
  listen = "127.0.0.1:$listen2", admin = "127.0.0.1:$admin2", policies = { "$dir/shop.lua" },
  routes = {
    { name = "eu", host = "eu", policy = "shop", upstream = "http://127.0.0.1:$dead" },
    { name = "us", host = "us", policy = "shop", upstream = "http://127.0.0.1:$up" },
    { name = "asia", key = "hk", host = "asia", policy = "shop", upstream = "http://127.0.0.1:$dead" },
    { name = "long", key = "$long", host = "long", policy = "shop",
      upstream = "http://127.0.0.1:$up" },
  },
}
LUA
"$neap" serve "$dir/routes.lua" >"$dir/log2" 2>&1 &
pids="$pids $!"
within 10 grep -q "serving on" "$dir/log2"

of() { curl -s -o "$dir/body" -w '%{http_code}' -H "Host: $1" "http://127.0.0.1:$listen2$2"; }

for i in 1 2 3; do is 502 "$(of eu /users/$i)" "eu is dead"; done
is 503 "$(of eu /users/4)" "eu's breaker is open"
has "shop/eu//users/{id}: open" "$dir/body" "the answer says whose"
is 200 "$(of us /users/4)" "us is well: its breaker is another"
is 502 "$(of asia /users/4)" "as is that of asia, which is dead, too"
is 502 "$(of eu /help)" "nil is the route's own breaker"
is 200 "$(of long /help/to/those/who/have/no/idea/what/they/want)" "as is a key that is too long with the route's"
curl -s "http://127.0.0.1:$admin2/metrics" >"$dir/metrics"
has 'neap_breaker_state{policy="shop",key="eu//users/{id}"} 2' "$dir/metrics"
has 'neap_breaker_state{policy="shop",key="us//users/{id}"} 0' "$dir/metrics"
has 'neap_breaker_state{policy="shop",key="hk//users/{id}"} 0' "$dir/metrics"
has 'neap_calls_total{policy="shop",key="eu",outcome="failure"} 1' "$dir/metrics"
has "neap_calls_total{policy=\"shop\",key=\"$long\",outcome=\"success\"} 1" "$dir/metrics"
has "has more than 98 letters" "$dir/log2"
echo "ok: a sidecar's keys"
