# neap in nginx: requests to an upstream that hangs count as slow before they end.
. "$(dirname "$0")/nginx_support.sh"

processes=1 # each worker counts its own
slow="slow_rate = 0.5, slow_call_ms = 100, minimum_calls = 4"
policy hung "trip = { $slow }, open = { cooldown_ms = 60000, jitter = 0 },"
policy alone "trip = { $slow }, open = { cooldown_ms = 60000, jitter = 0 },"
says() { grep -qF "$1" "$dir/site/error.log" || fail "not in the log: $1"; }
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port;
    location /hung/ { access_by_lua_block { guards.hung:access() } proxy_pass http://good; }
    location /alone/ { access_by_lua_block { guards.alone:access() } proxy_pass http://good; }
    location = /metrics { content_by_lua_block { neap.metrics() } }
  }"

hang() { # PATH: four requests that are answered in 3 s
  for _ in 1 2 3 4; do curl -s -o /dev/null "$site$1?how=hang" & pids="$pids $!"; done
}
is_open() { curl -s "$site/metrics" | grep -qxF "neap_breaker_state{policy=\"$1\",key=\"default\"} 2"; }

hang /hung/
sleep 0.4
gets 503 /hung/ # this one sees it, if the timer has not
says "neap: hung/default: closed -> open: a slow call rate of"

hang /alone/
within 3 is_open alone # nobody asks for /alone/ any more
says "neap: alone/default: closed -> open: a slow call rate of 1 in 4 calls"
sleep 3 # they end, and are late
curl -s "$site/metrics" | grep -qxF 'neap_calls_total{policy="alone",key="default",outcome="stale"} 4' ||
  fail "not stale: $(curl -s "$site/metrics" | grep stale)"
nginx_stop
