# A shadow policy in nginx: it sees what requests came to, and what was refused, and decides nothing.
. "$(dirname "$0")/nginx_support.sh"

policy shop "shadow = 'candidates/shop.lua', trip = { consecutive_failures = 3 },
  open = { cooldown_ms = 60000, jitter = 0 },"
mkdir "$dir/policies/candidates"
next() { echo "return { name = 'shop', trip = { consecutive_failures = $1 } }" >"$dir/policies/candidates/shop.lua"; }
next 2
chmod -R a+rX "$dir/policies"
processes=1
nginx_serve shadow "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port reuseport;
    location / {
      access_by_lua_block { guards.shop:access() }
      proxy_pass http://good;
    }
    location = /metrics {
      content_by_lua_block { neap.metrics() }
    }
  }"

has() { curl -s "$site/metrics" | grep -qxF "$1" || fail "no $1: $(curl -s "$site/metrics" | grep shadow)"; }
calls() { has "neap_shadow_calls_total{policy=\"shop\",key=\"default\",result=\"$1\"} $2"; }

for _ in 1 2 3 4; do gets 200 "/"; done
calls same 4 # plain successes, too
gets 500 "/?how=500"
gets 500 "/?how=500"
has 'neap_shadow_state{policy="shop",key="default"} 2'
has 'neap_breaker_state{policy="shop",key="default"} 0'
gets 200 "/"
calls lost 1
for _ in 1 2 3; do gets 500 "/?how=500"; done
calls saved 3
gets 503 "/"
calls same 7 # both refuse it
grep -q 'shop/default: shadow candidates/shop.lua would move: closed -> open: 2 failures in a row' \
  "$dir/shadow/error.log" || fail "the log does not say what it would have done"

# Another candidate: from nothing. It would let through what is refused.
next 20
new_one() { curl -s "$site/metrics" | grep -qxF 'neap_shadow_state{policy="shop",key="default"} 0'; }
within 10 new_one
gets 503 "/"
calls let_through 1
nginx_stop
