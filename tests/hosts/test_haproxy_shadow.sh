# A shadow policy in HAProxy: it sees what requests came to, and what was refused, and decides nothing.
. "$(dirname "$0")/haproxy_support.sh"

policy shop "shadow = 'candidates/shop.lua', trip = { consecutive_failures = 3 },
  open = { cooldown_ms = 60000, jitter = 0 },"
mkdir "$dir/policies/candidates"
echo "return { name = 'shop', trip = { consecutive_failures = 2 } }" >"$dir/policies/candidates/shop.lua"
lua_file shadow "policies = '$dir/policies'"
haproxy_serve shadow "lua-load $dir/shadow/neap.lua
  nbthread 1" "$frontend
$(guarded shop shop "server up $upstream")"

has() { curl -s "$site/metrics" | grep -qxF "$1" || fail "no $1: $(curl -s "$site/metrics" | grep shadow)"; }
calls() { has "neap_shadow_calls_total{policy=\"shop\",key=\"default\",result=\"$1\"} $2"; }

for _ in 1 2 3 4; do gets 200 "/shop/"; done
calls same 4 # plain successes, too
gets 500 "/shop/?how=500"
gets 500 "/shop/?how=500"
has 'neap_shadow_state{policy="shop",key="default"} 2'
has 'neap_breaker_state{policy="shop",key="default"} 0'
gets 200 "/shop/"
calls lost 1
for _ in 1 2 3; do gets 500 "/shop/?how=500"; done
calls saved 3
gets 503 "/shop/"
calls same 7 # both refuse it
says 'shop/default: shadow candidates/shop.lua would move: closed -> open: 2 failures in a row'
haproxy_stop
