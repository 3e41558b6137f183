# With lua_code_cache off, a reload that fails after neap.open, and then a worker that is started
# anew: what it borrows must not have gone with the failed configuration.
. "$(dirname "$0")/nginx_support.sh"

policy lent 'trip = { consecutive_failures = 3 }'
chmod -R a+rX "$dir/policies"
nginx_serve site "
  lua_code_cache off;
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port reuseport;
    location / { access_by_lua_block { guards.lent:access() } proxy_pass http://good; }
    location = /metrics { content_by_lua_block { neap.metrics() } }
  }"
gets 200 /

echo 'bogus;' >>"$dir/site/nginx.conf"
kill -HUP "$pid"
has_failed() { grep -q 'unknown directive "bogus"' "$dir/site/error.log"; }
within 5 has_failed
# shellcheck disable=SC2046  # a list of numbers
kill -KILL $(pgrep -P "$pid")
are_gone() { [ "$(grep -c 'exited on signal 9' "$dir/site/error.log")" = 4 ] && answers; }
within 5 are_gone
gets 200 /
calls lent success 2
nginx_stop 6 # the cache is off, said twice; and the killed ones
