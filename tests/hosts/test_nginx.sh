# neap in nginx: what access lets in and answers, what log makes of the upstream's answers; 4 workers.
. "$(dirname "$0")/nginx_support.sh"

once='open = { cooldown_ms = 60000, backoff = 1, jitter = 0 }, half_open = { probes = 1, lease_ms = 60000 },'
policy plain "trip = { consecutive_failures = 3 }, $once"
policy outcomes "trip = { consecutive_failures = 1000 }, timeout_ms = 600,"
policy each_try "trip = { failures = 1000 },"
policy peers "trip = { consecutive_failures = 2 }, open = { cooldown_ms = 60000 },"
policy asked "trip = { failures = 1000 },
  classify = function(call)
    if call.headers and call.headers['x-verdict'] then return call.headers['x-verdict'] end
    return classify.http(call)
  end,"
policy chain "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.default { status = 203, headers = { ['X-Is'] = 'default' }, body = 'instead' } },"
policy closes "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.fail { status = 521, retry_after_ms = 90000 } },"
policy kept "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.last_good { max_age_ms = 60000 }, fallback.fail { status = 504 } },"
policy unlogged "trip = { failures = 1000 },"
policy cached "trip = { failures = 1000 },"

neap="
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies', max_keys = 4 }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }"

nginx_serve site "
  $neap
  proxy_cache_path $dir/cache keys_zone=cache:1m;
  upstream retried { server 127.0.0.1:$nobody_port max_fails=0; server $upstream max_fails=0; }
  upstream balanced {
    server 0.0.0.1;
    balancer_by_lua_block {
      local balancer = require 'ngx.balancer'
      local ports = { $nobody_port, $upstream_port }
      local tried = ngx.ctx.tried or 0
      if tried == 0 then balancer.set_more_tries(1) end
      for i = tried + 1, 2 do
        if guards.peers:ask('peer' .. i) then
          ngx.ctx.tried = i
          return balancer.set_current_peer('127.0.0.1', ports[i])
        end
      end
      return ngx.exit(503)
    }
  }
  server {
    listen 127.0.0.1:$port reuseport;
    root $dir/static;
    add_header X-Worker \$pid always;
    proxy_next_upstream_tries 3;
    location /plain/ { access_by_lua_block { guards.plain:access() } proxy_pass http://good; }
    location /keyed/ { access_by_lua_block { guards.plain:access(ngx.var.arg_key) } proxy_pass http://good; }
    location /outcomes/ {
      access_by_lua_block { guards.outcomes:access() }
      proxy_pass http://good;
      proxy_read_timeout 700ms;
      client_max_body_size 1k;
    }
    location /nobody/ { access_by_lua_block { guards.outcomes:access() } proxy_pass http://127.0.0.1:$nobody_port; }
    location /retried/ { access_by_lua_block { guards.outcomes:access() } proxy_pass http://retried; }
    location /balanced/ { proxy_pass http://balanced; }
    location /asked/ {
      access_by_lua_block { guards.asked:access() }
      proxy_pass http://good;
      header_filter_by_lua_block { ngx.header['X-Verdict'] = ngx.var.arg_verdict }
    }
    location /error_page/ {
      access_by_lua_block { guards.outcomes:access() }
      proxy_pass http://good;
      proxy_intercept_errors on;
      error_page 500 =200 /static.txt;
      error_page 502 = @backup;
    }
    location @backup {
      set \$args '';
      access_by_lua_block { guards.plain:access('backup') }
      proxy_pass http://127.0.0.1:$second_port;
    }
    location /exec/ {
      access_by_lua_block { guards.outcomes:access() }
      content_by_lua_block { return ngx.exec('/static.txt') }
    }
    location = /static.txt { }
    location /unlogged/ {
      access_by_lua_block { guards.unlogged:access() }
      log_by_lua_block { local forgotten = 'neap.log()' }
      proxy_pass http://good;
    }
    location /free/ { proxy_pass http://good; }
    location /chain/ {
      access_by_lua_block { guards.chain:access() }
      proxy_pass http://good;
      proxy_intercept_errors on;
      error_page 500 502 504 = @chain;
    }
    location @chain { content_by_lua_block { guards.chain:answer() } }
    location /kept/ {
      access_by_lua_block { guards.kept:access() }
      body_filter_by_lua_block { guards.kept:keep() }
      header_filter_by_lua_block { if ngx.var.arg_private then ngx.header['Cache-Control'] = 'private' end }
      proxy_pass http://good;
      proxy_intercept_errors on;
      error_page 500 502 504 = @kept;
    }
    location @kept { content_by_lua_block { guards.kept:answer() } }
    location /closes/ { access_by_lua_block { guards.closes:access() } proxy_pass http://good; }
    location /cached/ {
      access_by_lua_block { guards.cached:access() }
      proxy_pass http://good;
      proxy_cache cache;
      proxy_cache_valid 1h;
    }
    location = /metrics { content_by_lua_block { neap.metrics() } }
    location = /soon { content_by_lua_block { guards.plain:trip(nil, 1) ngx.say('half-open') } }
  }"
mkdir -p "$dir/static" && echo static >"$dir/static/static.txt"
chmod -R a+rX "$dir/static" "$dir/policies"

# ---- One breaker for all workers ----

for _ in 1 2 3; do gets 500 "/plain/?how=500"; done
workers=""
for _ in $(seq 16); do
  gets 503 /plain/
  header 'Retry-After: [1-6][0-9]*'
  workers="$workers
$(grep -i '^X-Worker' "$dir/head")"
done
count=$(echo "$workers" | sort -u | grep -c Worker)
[ "$count" -gt 1 ] || fail "only $count workers were asked"
state plain 2
calls plain failure 3
calls plain rejected 16
gets 200 /soon
within 10 has_metric 'neap_breaker_state{policy="plain",key="default"} 1'

# B215: one probe, whoever asks; the others are refused meanwhile.
for _ in $(seq 12); do
  curl -s -o /dev/null -w '%{http_code}\n' "$site/plain/?how=held&until=$dir/go" >>"$dir/codes" &
done
all_but_one() { [ "$(grep -c 503 "$dir/codes")" = 11 ]; }
within 10 all_but_one
touch "$dir/go"
passed() { [ "$(grep -c 200 "$dir/codes")" = 1 ]; }
within 10 passed
within 10 has_metric 'neap_breaker_state{policy="plain",key="default"} 0'
metric 'neap_probes_total{policy="plain",key="default"} 1'
metric 'neap_probes_in_flight{policy="plain",key="default"} 0'
curl -sf "$site/metrics" | promtool check metrics >/dev/null || fail "the metrics page is not right"
curl -sf "$site/metrics" | $lua tests/support/series.lua plain default || fail "series are missing"

# A neutral probe gives its slot back.
for _ in 1 2 3; do gets 500 "/plain/?how=500"; done
gets 200 /soon
within 10 has_metric 'neap_breaker_state{policy="plain",key="default"} 1'
gets 404 "/plain/?how=404"
metric 'neap_probes_in_flight{policy="plain",key="default"} 0'
gets 200 /plain/
state plain 0

# ---- What it came to ----

expect() { # WHAT OUTCOME BY PATH STATUS: one more (or BY more) of that outcome, and nothing else
  curl -sf "$site/metrics" | grep '^neap_calls_total{policy="outcomes",key="default"' >"$dir/before"
  gets "$4" "$3"
  awk -v outcome="outcome=\"$1\"" -v by="$2" 'index($0, outcome) { $2 += by } { print }' "$dir/before" >"$dir/wanted"
  curl -sf "$site/metrics" | grep '^neap_calls_total{policy="outcomes",key="default"' >"$dir/after"
  cmp -s "$dir/wanted" "$dir/after" || fail "$3: not $2 more $1: $(diff "$dir/before" "$dir/after")"
}
expect success 1 /outcomes/ 200
expect success 1 "/outcomes/?how=301" 301
expect failure 1 "/outcomes/?how=500" 500
expect failure 1 "/outcomes/?how=503" 503
expect failure 1 "/outcomes/?how=429" 429
expect neutral 1 "/outcomes/?how=404" 404
expect failure 1 "/outcomes/?how=close" 502
expect failure 1 "/outcomes/?how=junk" 502
expect failure 1 /nobody/ 502
expect timeout 1 "/outcomes/?how=hang" 504
expect success 1 /retried/ 200
expect failure 1 "/retried/?how=500" 500
expect failure 1 "/error_page/?how=500" 200   # whatever the client saw
expect failure 1 "/error_page/?how=close" 200 # the backup's answer is another guard's
calls plain success 1 backup
expect success 0 /exec/ 200 # answered without the upstream: no call
head -c 5000 /dev/zero >"$dir/large"
curl -s -o /dev/null -w '%{http_code}' --data-binary "@$dir/large" "$site/outcomes/" | grep -qx 413 || fail "no 413"
expect success 1 "/outcomes/?after-413" 200

# A client that leaves says nothing; but one that had waited longer than the policy's timeout does.
curl -s -o /dev/null --max-time 0.2 "$site/outcomes/?how=hang" && fail "it did not hang"
within 2 has_metric 'neap_calls_total{policy="outcomes",key="default",outcome="neutral"} 2'
curl -s -o /dev/null --max-time 0.65 "$site/outcomes/?how=hang" && fail "it did not hang"
within 2 has_metric 'neap_calls_total{policy="outcomes",key="default",outcome="timeout"} 2'

gets 200 "/asked/?verdict=failure"
calls asked failure 1
gets 500 "/asked/?how=500&verdict=success"
calls asked success 1

# What a cache answers is no call.  The first 64 of a worker may be taken for some, so ask many.
for _ in $(seq 8); do
  curl -s -o /dev/null "$site/cached/[1-3]?x"
done
metric 'neap_calls_total{policy="cached",key="default",outcome="success"} 3'

# ---- Keys ----

for _ in 1 2 3; do gets 500 "/keyed/?key=a&how=500"; done
gets 503 "/keyed/?key=a"
gets 200 "/keyed/?key=b"
state plain 2 a
state plain 0 b
# A worker makes 4 keys at most; those that others made cost it nothing, and its page shows them.
for key in $(seq 40); do gets 200 "/keyed/?key=$key"; done
for _ in $(seq 12); do curl -sf "$site/metrics" | grep -c '^neap_breaker_state{policy="plain"'; done >"$dir/counts"
[ "$(sort -u "$dir/counts" | wc -l)" = 1 ] || fail "keys: $(sort "$dir/counts" | uniq -c)"
[ "$(head -1 "$dir/counts")" -le 18 ] || fail "$(head -1 "$dir/counts") keys"

# Per server, from the balancer phase, where nothing may wait: the first is dead, its breaker opens,
# the second serves (B221).
for _ in 1 2 3 4; do gets 200 /balanced/; done
state peers 2 peer1
calls peers failure 2 peer1
calls peers success 4 peer2

# ---- Instead ----

for _ in 1 2 3; do
  gets 203 "/chain/?how=500"
  header 'Neap-Source: default'
done
gets 203 /chain/
header 'X-Is: default'
header 'Cache-Control: no-store'
[ "$(cat "$dir/body")" = instead ] || fail "not the default: $(cat "$dir/body")"
gets 203 /chain/ -I
calls chain failure 3
gets 500 "/closes/?how=500"
gets 521 /closes/
header 'Retry-After: 90'

# The last good answer, of the worker that gave it: so ask until all have.
for _ in $(seq 20); do
  gets 200 /kept/
  gets 200 "/kept/?private=1"
  gets 200 "/kept/" -H 'Cookie: mine'
done
gets 200 "/kept/?how=200"
gets 504 "/kept/?how=500" # another question
for _ in $(seq 6); do
  gets 200 /kept/
  header 'Neap-Source: last_good'
  header 'Content-Type: text/plain'
  [ "$(cat "$dir/body")" = primary ] || fail "not the last good answer: $(cat "$dir/body")"
  gets 504 "/kept/?private=1"
  gets 504 "/kept/" -H 'Cookie: another'
done

# ---- Nothing is left ----

# B206: every way a request can end, then nothing is under way.
for how in "" 500 404 close junk slow; do
  for place in plain outcomes error_page exec retried asked chain; do
    echo "url = \"$site/$place/?how=$how\""
    echo 'output = /dev/null'
  done
done >"$dir/urls"
for _ in 1 2; do cat "$dir/urls"; done >"$dir/all"
for _ in 1 2 3 4; do curl -s -K "$dir/all" --parallel --parallel-max 50 >/dev/null 2>&1 & done
wait_for_all() { [ "$(pgrep -c -f "curl -s -K $dir/all")" = 0 ]; }
within 60 wait_for_all
for policy in plain outcomes chain asked; do
  metric "neap_probes_in_flight{policy=\"$policy\",key=\"default\"} 0"
done
for _ in $(seq 12); do
  metric 'neap_nginx_requests 0'
  metric 'neap_nginx_lost_total 0'
done

# Without neap.log a request leaves its permit; nobody else's answer is taken for its own.
for _ in 1 2 3 4 5; do curl -s -o /dev/null "$site/unlogged/?how=slow" -o /dev/null "$site/free/"; done
calls unlogged success 0
nginx_stop
