# neap in nginx for who operates it: what is forgotten in nginx.conf is said, once and in words;
# modes are set and breakers reset by hand, and the error log says by whom.
. "$(dirname "$0")/nginx_support.sh"

# says TEXT [NUMBER]: the error log has so many lines with that text
says() {
  found=$(grep -c -F -- "$1" "$dir/$name/error.log" || :)
  [ "$found" = "${2:-1}" ] || fail "$found times in the error log, not ${2:-1}: $1"
}
is_said() { grep -q -F -- "$1" "$dir/$name/error.log"; }

policy shop "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 1000, jitter = 0 },
  half_open = { probes = 1 },"
chmod -R a+rX "$dir/policies"
processes=1
site() { # NAME PHASES
  nginx_serve "$1" "
    init_by_lua_block {
      neap = require 'neap.nginx'
      guards = neap.open { panel = '$panel', policies = '$dir/policies' }
    }
    $2
    server {
      listen 127.0.0.1:$port reuseport;
      location / {
        access_by_lua_block { guards.shop:access(ngx.var.arg_key) }
        proxy_pass http://good;
      }
      location /again/ {
        access_by_lua_block { guards.shop:access() }
        proxy_pass http://good;
        proxy_intercept_errors on;
        error_page 500 = @again;
      }
      location @again {
        set \$args '';
        access_by_lua_block { guards.shop:access() }
        proxy_pass http://good;
      }
      location /neap/ {
        allow 127.0.0.1;
        deny all;
        content_by_lua_block { neap.admin '/neap' }
      }
    }"
}
start='init_worker_by_lua_block { neap.start() }'
log='log_by_lua_block { neap.log() }'

# ---- What is forgotten ----

unreported="requests that were let in are not reported"
unstarted="neap.start() was not called in init_worker_by_lua"

site no_log "$start"
for _ in 1 2 3 4 5 6 7 8; do gets 500 "/?how=500"; done
within 10 is_said "$unreported"
gets 500 "/?how=500"
sleep 2.5 # the timer's next turn
says "$unreported"
says "$unstarted" 0
nginx_stop

site no_start "$log"
for _ in 1 2; do gets 200 /; done
gets 200 "/?key=a"
says "$unstarted"
nginx_stop

processes=4
site no_cache "lua_code_cache off; $start $log" # here each request opens for itself
for _ in 1 2 3; do gets 200 /; done
says "$unstarted" 0
nginx_stop 1 # nginx warns of that directive

site no_cjson "init_worker_by_lua_block {
    neap.start()
    package.loaded.cjson = nil
    package.preload.cjson = function() error('it is not there') end
  } $log"
gets 501 /neap/breakers
grep -q 'needs the Lua module cjson' "$dir/body" || fail "not said what is missing: $(cat "$dir/body")"
gets 200 /
nginx_stop

# ---- What is done by hand ----

site by_hand "$start $log"
breaker="/neap/breakers/shop/default"
for _ in 1 2 3 4; do gets 200 "/again/?how=500"; done # let in twice, for two upstreams
gets 200 $breaker
grep -q '"mode": "auto"' "$dir/body" || fail "no mode: $(cat "$dir/body")"
gets 400 $breaker/mode -d mode=forced_open
gets 200 $breaker/mode -d 'mode=forced_open&by=alice&for=10m&reason=move'
gets 503 /
says "neap: shop/default: mode forced_open for 600000 ms by alice: move"
gets 200 $breaker/mode -d 'mode=policy&by=alice'
gets 200 /
gets 200 $breaker/trip -d 'by=bob%0A&for=30s'
gets 503 /
says "neap: shop/default: closed -> open: tripped by hand, by bob ; open for 30000 ms, level 1"
gets 200 $breaker/reset -d 'by=carol'
gets 200 /
says "neap: shop/default: open -> closed: reset by hand, by carol"
gets 404 /neap/breakers/shop/nobody
gets 200 /neap/metrics
grep -q '^neap_nginx_requests ' "$dir/body" || fail "no numbers of nginx: $(cat "$dir/body")"
gets 200 /neap/policies
gets 403 $breaker -H 'Host: shop.example' # a browser that was sent here by a name
! grep -q admin-token "$dir/body" || fail "an option of the sidecar: $(cat "$dir/body")"
page="$breaker/reset -d by=carol -H Origin:https://neap.example"
gets 403 $page
gets 200 $page -H Sec-Fetch-Site:same-origin
gets 403 $page -H Sec-Fetch-Site:same-origin -H Sec-Fetch-Site:cross-site # twice: no browser's
gets 501 /neap/reload -X POST
grep -q 'read again within seconds' "$dir/body" || fail "no word of the timer: $(cat "$dir/body")"

for _ in 1 2 3; do gets 500 "/?how=500"; done
works() { [ "$(status /)" = 200 ]; }
within 10 works
says "shop/default: open -> half_open: the cooldown is over, a probe goes"
sleep 2.5 # a turn of every worker's timer
says "$unreported" 0
nginx_stop
