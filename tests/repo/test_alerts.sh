# ops/: the alert rules and the dashboard, as promtool reads them, and in a real Prometheus that watches a real
# sidecar through an outage: the right alert fires, and no other.
. tests/hosts/support.sh

neap=${NEAP_BIN:?}
alerts="$lua tests/repo/alerts.lua"
$alerts short "$dir/alerts.yml" # a minute is 250 ms

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 5)
listen=$1 admin=$2 prometheus=http://127.0.0.1:$3 bad=$4 good=$5
site=http://127.0.0.1:$admin

# ---- A sidecar with a dependency that will fail, and one that is well ----

mkdir -p "$dir/policies/candidates"
policy pay 'trip = { consecutive_failures = 5 }, open = { cooldown_ms = 400, jitter = 0, backoff = 1 },
  half_open = { probes = 2, successes = 2 }, timeout_ms = 1000,
  retry = { attempts = 2, base_ms = 1, budget = 1, budget_per_s = 1000 }, bulkhead = { concurrent = 50 },
  fallback = { fallback.default "spare" },'
policy docs 'trip = { failures = 5 }, shadow = "candidates/docs.lua",
  fallback = { fallback.queue "later", fallback.last_good {} },'
policy docs 'trip = { failures = 5 },' "$dir/policies/candidates"
policy keyed 'trip = { failures = 5 }, max_keys = 40,
  key = function(call) return call.request.headers["x-tenant"] end,'
cat >"$dir/routes.lua" <<END
return {
  listen = "127.0.0.1:$listen", admin = "127.0.0.1:$admin", state_dir = "$dir/state",
  policies = { "$dir/policies/pay.lua", "$dir/policies/docs.lua", "$dir/policies/keyed.lua" },
  routes = {
    { name = "pay", host = "pay", policy = "pay", upstream = "http://127.0.0.1:$bad" },
    { name = "keyed", host = "keyed", policy = "keyed", upstream = "http://127.0.0.1:$good" },
    { name = "docs", host = "docs", policy = "docs", upstream = "http://127.0.0.1:$good" },
  },
}
END
mkdir -m 700 "$dir/state"
for port in $bad $good; do
  $lua examples/demo/upstream.lua --quiet --listen 127.0.0.1:$port >"$dir/upstream$port.log" &
  pids="$pids $!"
done
"$neap" serve "$dir/routes.lua" 2>"$dir/serve.log" &
pids="$pids $!"
cat >"$dir/prometheus.yml" <<END
global: { scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 100ms }
rule_files: [alerts.yml]
scrape_configs:
  - job_name: neap
    static_configs: [{ targets: ["127.0.0.1:$admin"] }]
END
prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/tsdb" --log.level=warn \
  --web.listen-address="${prometheus#http://}" >"$dir/prometheus.log" 2>&1 &
pids="$pids $!"

# ---- The files themselves, while it starts ----

promtool check rules ops/alerts.yml >"$dir/said" 2>&1 || fail "$(cat "$dir/said")"
promtool test rules ops/alerts_test.yml >"$dir/said" 2>&1 || fail "$(cat "$dir/said")"
$alerts check
$alerts queries >"$dir/queries"

# ---- Some traffic ----

within 5 curl -sf "$site/healthz" -o "$dir/said"
touch "$dir/load"
while [ -e "$dir/load" ]; do
  for host in pay docs; do
    curl -s --max-time 2 -H "Host: $host" "http://127.0.0.1:$listen/flags/f[1-10]" -o "$dir/load.out"
  done
  sleep 0.05
done &
pids="$pids $!"

# firing [ALERTS]: those fire, and no other
firing() {
  curl -sf "$prometheus/api/v1/alerts" -o "$dir/alerts.json" || return 1
  [ "$($alerts firing <"$dir/alerts.json")" = "${1:-}" ]
}
fails() { curl -sf -X POST "http://127.0.0.1:$bad/_fail?mode=$1" -o "$dir/said"; }
# data QUERY: Prometheus takes it, and has something for it
data() {
  curl -sf "$prometheus/api/v1/query" --data-urlencode "query=$1" -o "$dir/data.json" || return 1
  $alerts data "$1" <"$dir/data.json" 2>"$dir/said"
}

# ---- All is well; an outage; it is over; a mistake in a policy ----

within 20 data 'rate(neap_calls_total{policy="docs",outcome="success"}[1s]) > 0'
within 20 data 'count_over_time(neap_breaker_state{policy="pay"}[3s]) >= 10'
firing || fail "with all well: $($alerts firing <"$dir/alerts.json")"
fails 500 # B097: it is told though a fallback answers all calls
within 20 firing "NeapBreakerOpen pay"
data 'neap_breaker_state{policy="docs"} == 0' || fail "the other one is not closed"
data 'ALERTS{alertname="NeapBreakerOpen",alertstate="pending"}[1m]' || fail "it did not wait"
fails ok
within 20 firing
echo 'return 1' >"$dir/policies/docs.lua"
within 20 firing "NeapPolicyStale docs"

# Nothing else has fired in between; and the dashboard finds all that it asks for.
data 'sum(count_over_time(ALERTS{alertstate="firing"}[1m])) > 0' || fail "nothing fired"
if data 'ALERTS{alertstate="firing",alertname!~"NeapBreakerOpen|NeapPolicyStale"}[1m]'; then
  fail "others fired: $(cat "$dir/data.json")"
fi
# B157, B158: hostile names among many, of which some find no room: the scrape goes on, all are told apart.
for tenant in 'x"} 1' 'back\slash\' "$(printf '\377\376')" "$(printf '\303\244')" 'a,b="c"' '# TYPE neap_x gauge'; do
  curl -s -H "Host: keyed" -H "x-tenant: $tenant" "http://127.0.0.1:$listen/flags/f" -o "$dir/said"
done
for i in $(seq 60); do
  printf 'next\nurl = "http://127.0.0.1:%s/flags/f"\nheader = "Host: keyed"\nheader = "x-tenant: t%s"\noutput = "%s"\n' \
    $listen "$i" "$dir/said"
done >"$dir/tenants"
curl -s -K "$dir/tenants"
within 5 data 'count(neap_breaker_state{policy="keyed"}) == 42' # max_keys, the route's own included; the default one, *
within 5 data 'neap_key_overflow_total{policy="keyed"} == 27'
for pattern in 'x\"} 1' 'back.*slash.*' '.*ff.*fe' 'ä' 'a,b=\"c\"' '# TYPE neap_x gauge' t33; do
  data "neap_calls_total{policy=\"keyed\",outcome=\"success\",key=~\"$pattern\"} == 1" ||
    fail "no series for $pattern: $(cat "$dir/data.json")"
done
within 5 data 'up == 1'

while read -r query; do
  data "$query" || fail "dashboard: $(cat "$dir/said" "$dir/data.json")"
done <"$dir/queries"
rm "$dir/load"
