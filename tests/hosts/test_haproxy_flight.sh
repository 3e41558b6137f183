# neap in HAProxy: requests to a server that hangs count as slow before they end.
. "$(dirname "$0")/haproxy_support.sh"

slow="slow_rate = 0.5, slow_call_ms = 100, minimum_calls = 4"
policy hung "trip = { $slow }, open = { cooldown_ms = 60000, jitter = 0 },"
policy alone "trip = { $slow }, open = { cooldown_ms = 60000, jitter = 0 },"
lua_file flight "policies = '$dir/policies'"
haproxy_serve flight "lua-load $dir/flight/neap.lua
  nbthread 1" "$frontend
$(guarded hung hung "timeout server 5s
  server up $upstream")
$(guarded alone alone "timeout server 5s
  server up $upstream")"

hang() { # PATH: four requests that are given up after 5 s
  for _ in 1 2 3 4; do curl -s -o /dev/null "$site$1?how=hang" & pids="$pids $!"; done
}
is_open() { curl -s "$site/metrics" | grep -qxF "neap_breaker_state{policy=\"$1\",key=\"default\"} 2"; }

hang /hung/
sleep 0.4
gets 503 /hung/ # this one sees it, if the task has not
says "hung/default: closed -> open: a slow call rate of"

hang /alone/
within 4 is_open alone # nobody asks for /alone/ any more
says "alone/default: closed -> open: a slow call rate of 1 in 4 calls"
haproxy_stop
