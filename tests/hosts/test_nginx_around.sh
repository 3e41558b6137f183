# A guard in nginx among nginx's other modules: what a cache answers, limits and auth_request refuse,
# mirror and slice ask besides, X-Accel-Redirect leads to; names that are not found.
. "$(dirname "$0")/nginx_support.sh"

# shellcheck disable=SC2034  # that its page shows all that is under way
processes=1
for name in redirected cached posted renewed limited denied mirrored sliced accel found named backup answered none; do
  policy $name "trip = { failures = 1000 },"
done
policy behind "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },"
policy mirror_probe "trip = { consecutive_failures = 1 }, half_open = { probes = 1, lease_ms = 60000 },
  open = { cooldown_ms = 100, backoff = 1, jitter = 0 },"
policy answered "trip = { failures = 1000 }, fallback = { fallback.default { body = 'instead' } },"
chmod -R a+rX "$dir/policies"
mkdir "$dir/static"
head -c 5000 /dev/zero >"$dir/static/large"
chmod -R a+rX "$dir/static"

# access NAME: what is in a location with a guard
access() { echo "access_by_lua_block { guards.$1:access() }"; }
cache='proxy_cache cache; proxy_cache_key $uri$slice_range$arg_key; proxy_cache_valid 2s; proxy_cache_valid 404 1h;
  proxy_cache_use_stale updating error timeout http_500; add_header X-Cache $upstream_cache_status always;'
unknown='resolver 127.0.0.1:1; resolver_timeout 200ms; set $name nobody.example; proxy_pass http://$name;'
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  proxy_cache_path $dir/cache keys_zone=cache:1m;
  limit_req_zone \$uri zone=rate:1m rate=1r/m;
  limit_conn_zone \$uri zone=number:1m;
  upstream balanced {
    server 0.0.0.1;
    balancer_by_lua_block {
      if not guards.behind:ask() then return ngx.exit(-3) end
      require('ngx.balancer').set_current_peer('127.0.0.1', $upstream_port)
    }
  }
  upstream dead { server 127.0.0.1:$nobody_port max_fails=1; server 127.0.0.1:$nobody_port max_fails=1; }
  server {
    listen 127.0.0.1:$port;
    location = /metrics { content_by_lua_block { neap.metrics() } }
    location /cached/ { $(access cached) proxy_pass http://good; $cache }
    location /plain/ { $(access cached) proxy_pass http://good; }
    location /redirected/ {
      $(access redirected) proxy_pass http://good; $cache
      proxy_intercept_errors on;
      error_page 404 = @backup;
    }
    location /posted/ { $(access posted) proxy_pass http://good; $cache }
    location /renewed/ { $(access renewed) proxy_pass http://good; $cache proxy_cache_background_update on; }
    location /behind/ { proxy_pass http://balanced; $cache proxy_cache_background_update on; log_subrequest on; }
    location /rate/ { limit_req zone=rate; $(access limited) proxy_pass http://good; }
    location /number/ { limit_conn number 1; $(access limited) proxy_pass http://good; }
    location /denied/ { $(access denied) auth_request /no; proxy_pass http://good; }
    location = /no { internal; if (\$http_x_let != in) { return 401; } proxy_pass http://good; }
    location /mirrored/ { mirror /mirror; $(access mirrored) proxy_pass http://good; }
    location /probed/ {
      mirror /mirror;
      $(access mirror_probe)
      header_filter_by_lua_block { neap.log() }
      proxy_pass http://good;
    }
    location = /mirror { internal; log_subrequest on; set \$args how=hang; proxy_pass http://good; }
    location /sliced/ {
      slice 1k;
      $(access sliced)
      proxy_pass http://127.0.0.1:$port/static/large;
      proxy_set_header Range \$slice_range;
      $cache
    }
    location /accel/ { $(access accel) proxy_pass http://127.0.0.1:$port/leads/; }
    location /leads/ { add_header X-Accel-Redirect /static/large; return 204; }
    location /static/ { root $dir; }
    location /dead/ { $(access none) proxy_pass http://dead; }

    location /named/ { $(access named) $unknown }
    location /no_resolver/ { $(access named) set \$name nobody.example; proxy_pass http://\$name; }
    location /no_url/ { $(access named) set \$name nobody; proxy_pass \$name; }
    location /own/ { $(access named) content_by_lua_block { ngx.exit(502) } }
    location /backup/ { $(access backup) $unknown error_page 502 = @backup; }
    location @backup { set \$args ''; $(access found) proxy_pass http://good; }
    location /answered/ { $(access answered) $unknown error_page 502 = @answered; }
    location @answered { content_by_lua_block { guards.answered:answer() } }
    location /large_body/ { $(access named) $unknown client_max_body_size 1; error_page 413 @large_body; }
    location @large_body { return 400; }
  }"

none_open() {
  metric 'neap_nginx_requests 0'
  metric 'neap_nginx_lost_total 0'
}
is_from() { header "X-Cache: $1"; }

# ---- A cache: what it answers is no call ----

# One guard for a location with a cache and one without, in turns: each is looked at for itself.
for _ in $(seq 80); do echo "url = $site/plain/"; echo "url = $site/cached/"; done >"$dir/urls"
curl -s -K "$dir/urls" >"$dir/out"
[ "$(grep -c primary "$dir/out")" = 160 ] || fail "not 160 answers"
gets 200 /cached/
is_from HIT
calls cached success 81
gets 404 "/cached/?how=404&key=a"
gets 404 "/cached/?how=404&key=a"
is_from HIT
calls cached neutral 1
sleep 3.1
gets 200 "/cached/?how=500" # the upstream was asked, whatever the client got
is_from STALE
calls cached failure 1
gets 200 "/cached/?how=close"
is_from STALE
calls cached failure 2
# What the cache had led to another upstream: that one was asked.
gets 200 "/redirected/?how=404"
gets 200 "/redirected/?how=404"
calls redirected neutral 1
calls redirected success 0
calls found success 2
# A POST passes by the cache: that says nothing of what a GET does.
gets 200 /posted/ -d x
gets 200 /posted/
is_from MISS
for _ in $(seq 10); do
  gets 200 /posted/?key=b
  gets 200 /posted/ -d x
done
before=$(curl -sf "$site/metrics" | sed -n 's/^neap_calls_total{policy="posted",key="default",outcome="success"} //p')
[ "$before" -ge 13 ] && [ "$before" -le 15 ] || fail "$before calls of POSTs and two seconds' cache, not 13"
# Renewed in the background: nobody asks that guard. In the balancer phase it is asked.
for place in renewed behind; do
  gets 200 /$place/
  is_from MISS
  calls $place success 1
done
sleep 3.1
gets 200 "/renewed/?how=500"
is_from STALE
gets 200 "/behind/?how=500"
is_from STALE
sleep 0.1
calls renewed failure 0
calls behind failure 1
state behind 2
gets 200 /behind/ # refused, behind the cache: it answers what it has
is_from STALE
gets 502 "/behind/?key=c"
none_open

# ---- Refused by others: not let in, no call ----

gets 200 /rate/
gets 503 /rate/
curl -s -o /dev/null "$site/number/?how=slow" &
slow=$!
within 2 has_metric 'neap_nginx_requests 1'
gets 503 /number/
wait $slow
calls limited success 2
calls limited failure 0
gets 401 /denied/
calls denied neutral 0
gets 200 /denied/ -H 'X-Let: in'
calls denied success 1

# ---- Subrequests ----

gets 200 /mirrored/ --max-time 2
within 5 has_metric 'neap_calls_total{policy="mirrored",key="default",outcome="success"} 1' # once
gets 500 "/probed/?how=500"
within 5 has_metric 'neap_breaker_state{policy="mirror_probe",key="default"} 1'
gets 200 /probed/
state mirror_probe 0 # the mirror, which hangs, is not waited for
gets 200 /sliced/
[ "$(wc -c <"$dir/body")" = 5000 ] || fail "a slice is missing"
calls sliced success 1
gets 200 /accel/ # leads to a file here: the call was what said so
[ "$(wc -c <"$dir/body")" = 5000 ] || fail "not the file"
calls accel success 1
gets 502 /dead/
gets 502 /dead/ # nginx itself asks none of them any more
calls none failure 2

# ---- Names that are not found ----

gets 502 /named/
calls named failure 1
gets 502 /no_resolver/
calls named failure 2
gets 500 /no_url/ # a mistake in nginx.conf
gets 502 /own/    # meant for no upstream
gets 400 /large_body/ -d xxx
calls named failure 2
calls named neutral 0
gets 200 /backup/ # two guards: the backup's success is not that of the first
calls backup success 0
calls found success 3
gets 200 /answered/
[ "$(cat "$dir/body")" = instead ] || fail "not the chain's answer: $(cat "$dir/body")"
calls answered failure 1
within 5 has_metric 'neap_nginx_requests 0'
none_open
nginx_stop
