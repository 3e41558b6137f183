# What a request in nginx came to, where nginx makes it hard to see: answers given another status,
# redirects to the same guard, uploads that end early, streams, subrequests; and each try as one.
. "$(dirname "$0")/nginx_support.sh"

# shellcheck disable=SC2034  # that its page shows all that is under way
processes=1
for name in elsewhere masked again upload partial subrequest mirrored not_asked left; do
  policy $name "trip = { failures = 1000 },"
done
policy tries "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 100, backoff = 1, jitter = 0 },
  half_open = { probes = 1, lease_ms = 60000 },"
policy stream "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 100, backoff = 1, jitter = 0 },
  half_open = { probes = 1, lease_ms = 60000 },"
chmod -R a+rX "$dir/policies"

# An upstream that says what it is told to, word by word.
raw_port=$nobody_port
raw="
  server {
    listen 127.0.0.1:$raw_port reuseport;
    location / {
      content_by_lua_block {
        local socket = ngx.req.socket(true)
        local how = ngx.var.arg_how
        if how == 'partial' or how == 'cut' then socket:send('HTTP/1.1 200 OK\r\nA: b\r\n')
        elseif how == 'socket' then
          socket:send('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello')
        elseif how == 'stream' then socket:send('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello\n') end
        if how == 'soon' then ngx.sleep(0.005) ngx.exit(444) end
        if how ~= 'cut' and how ~= 'close' then ngx.sleep(2) end
        ngx.exit(444)
      }
    }
  }"

nginx_serve() { # with what the tests below share
  nginx_config "$1" "
    init_by_lua_block {
      neap = require 'neap.nginx'
      guards = neap.open { policies = '$dir/policies', $3 }
    }
    init_worker_by_lua_block { neap.start() }
    log_by_lua_block { neap.log() }
    $raw
    server {
      listen 127.0.0.1:$port reuseport;
      location = /metrics { content_by_lua_block { neap.metrics() } }
      $2
    }
    upstream balanced {
      server 0.0.0.1;
      balancer_by_lua_block {
        if not guards.subrequest:ask() then return ngx.exit(503) end
        require('ngx.balancer').set_current_peer('127.0.0.1', $upstream_port)
      }
    }
    upstream retried {
      server 127.0.0.1:$closed_port max_fails=0;
      server 127.0.0.1:$closed_port max_fails=0;
      server $upstream backup;
    }"
  name=$1
  $preload nginx -p "$dir/$1" -e error.log -c "$dir/$1/nginx.conf" 2>"$dir/$1/out" &
  pid=$!
  pids="$pids $pid"
  within 10 answers
}
closed_port=1 # nobody listens there

soon() { within 3 has_metric "neap_calls_total{policy=\"$1\",key=\"default\",outcome=\"$2\"} $3"; }
none_open() { # nothing is under way, but for streams; nothing was lost
  metric "neap_nginx_requests ${1:-0}"
  metric 'neap_nginx_lost_total 0'
}

nginx_serve site "
  location /elsewhere/ {
    access_by_lua_block { guards.elsewhere:access() }
    proxy_pass http://127.0.0.1:$closed_port;
    error_page 502 http://sorry.example/;
  }
  location /masked/ {
    access_by_lua_block { guards.masked:access() }
    proxy_pass http://good;
    header_filter_by_lua_block { ngx.status = 200 }
  }
  location /again/ {
    access_by_lua_block { guards.again:access() }
    proxy_pass http://good;
    proxy_intercept_errors on;
    error_page 500 = @again;
    error_page 502 =200 /sorry;
  }
  location @again {
    set \$args '';
    access_by_lua_block { guards.again:access() }
    proxy_pass http://127.0.0.1:$second_port;
  }
  location = /sorry {
    access_by_lua_block { guards.again:access() }
    content_by_lua_block { ngx.say('sorry') }
  }
  location /upload/ {
    access_by_lua_block { guards.upload:access() }
    proxy_pass http://127.0.0.1:$raw_port;
    proxy_http_version 1.1;
    proxy_request_buffering off;
    client_body_timeout 200ms;
    client_max_body_size 10k;
  }
  location /partial/ {
    access_by_lua_block { guards.partial:access() }
    proxy_pass http://127.0.0.1:$raw_port;
  }
  location /authorized/ { auth_request /authorize; proxy_pass http://good; }
  location = /authorize { internal; log_subrequest on; proxy_pass http://balanced; }
  location /mirrored/ {
    mirror /mirror;
    access_by_lua_block { guards.mirrored:access() }
    proxy_pass http://good;
  }
  location = /mirror {
    internal;
    access_by_lua_block { guards.mirrored:access() }
    proxy_pass http://127.0.0.1:$closed_port;
  }
  location /stream/ {
    access_by_lua_block { guards.stream:access() }
    header_filter_by_lua_block { neap.log() }
    proxy_pass http://127.0.0.1:$raw_port;
    proxy_http_version 1.1;
    proxy_set_header Upgrade \$http_upgrade;
    proxy_set_header Connection upgrade;
    proxy_buffering off;
  }
  location /limited/ {
    access_by_lua_block { guards.not_asked:access() }
    return 503;
  }
  location /left/ {
    access_by_lua_block { guards.left:access() }
    log_by_lua_block { local forgotten = 'neap.log()' }
    proxy_pass http://127.0.0.1:$raw_port;
  }
  location /free/ { proxy_pass http://good; }
" ""

# ---- What the client got is not what the upstream did ----

gets 302 /elsewhere/ # a dead server, and error_page leads to another site
calls elsewhere failure 1
gets 200 "/masked/?how=500" # the first answer of a gate is looked at closely, then all are
gets 200 "/masked/?how=500"
calls masked failure 2
gets 503 /limited/
calls not_asked success 0
calls not_asked failure 0

# ---- error_page leads to where the same guard is: both count ----

gets 200 "/again/?how=500"
calls again failure 1
calls again success 1
gets 200 "/again/?how=close"
calls again failure 2
calls again success 1

# ---- The client's body: what it does with that is no failure of the upstream's ----

uploads() { # MILLISECONDS: then it goes away, in the middle of its body
  $lua - "$port" "$1" <<'LUA'
local uv, port, after_ms = require "luv", ...
local socket, timer = uv.new_tcp(), uv.new_timer()
socket:connect("127.0.0.1", tonumber(port), function()
  socket:write("POST /upload/ HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nabc")
end)
timer:start(tonumber(after_ms), 0, function() socket:close() timer:close() end)
uv.run()
LUA
}
uploads 100
soon upload neutral 1 # 400
uploads 500
soon upload neutral 2 # 408
(sleep 0.1; head -c 60000 /dev/zero) | curl -s -o /dev/null -H 'Transfer-Encoding: chunked' -T - "$site/upload/" || :
soon upload neutral 3 # 413
calls upload failure 0
curl -s -o /dev/null --max-time 0.2 "$site/partial/?how=partial" && fail "it was not left"
soon partial neutral 1 # in the middle of the header
gets 502 "/partial/?how=cut"
calls partial failure 1

# ---- Streams: where the header is looked at, a probe need not wait for their end ----

gets 502 "/stream/?how=close"
for how in stream socket; do
  within 5 has_metric 'neap_breaker_state{policy="stream",key="default"} 1'
  curl -s -o /dev/null --max-time 1 "$site/stream/?how=$how" &
  within 1 has_metric 'neap_breaker_state{policy="stream",key="default"} 0'
  none_open
  gets 502 "/stream/?how=close"
done
calls stream success 2
calls stream failure 3

# ---- Subrequests: no access phase; and a log phase if they are told so ----

gets 200 /authorized/
calls subrequest success 1
gets 200 /mirrored/
calls mirrored success 1
calls mirrored failure 0
none_open

# ---- A slot that was left ----

# One connection, one worker: so the second request has the address of the first, within 20 ms.
for _ in 1 2 3 4 5 6; do
  curl -s -o /dev/null "$site/left/?how=soon" -o /dev/null "$site/free/"
done
calls left success 0
calls left failure 0
calls left neutral 0
nginx_stop

# ---- Each try is one outcome ----

nginx_serve tries "
  location / { access_by_lua_block { guards.tries:access() } proxy_pass http://retried; }
" "count = 'tries'"
gets 200 /
calls tries failure 2
calls tries success 1
gets 500 "/?how=500" # three in a row, of one request
calls tries failure 5
calls tries success 1
within 5 has_metric 'neap_breaker_state{policy="tries",key="default"} 1'
gets 200 / # a probe is one, that of its last try
state tries 0
calls tries failure 5
calls tries success 2
none_open
nginx_stop
