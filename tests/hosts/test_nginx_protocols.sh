# A guard in nginx whatever is spoken before it and behind it: clients by HTTP/2, upstreams by gRPC,
# TLS, over connections that are kept, by FastCGI, uwsgi and SCGI.
. "$(dirname "$0")/nginx_support.sh"

# shellcheck disable=SC2034  # that its page shows all that is under way
processes=1
for one in front shipped secure kept fastcgi uwsgi scgi; do policy $one "trip = { failures = 1000 },"; done
policy grpc "trip = { failures = 1000 }, classify = classify.grpc,"
policy streamed "trip = { failures = 1000 }, classify = classify.grpc,"
policy trailed "trip = { failures = 1000 }, classify = function(call)
    return call.grpc_status == '14' and 'failure' or 'neutral'
  end,"
chmod -R a+rX "$dir/policies"
for one in other server; do
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
    -keyout "$dir/$one.key" -out "$dir/$one.pem" 2>"$dir/openssl"
done
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 4)
tls_port=$1 grpc_port=$2 grpc_front=$3 gateway_port=$4

# A server of what gateways speak, by the first byte: FastCGI's version, uwsgi's modifier, SCGI's
# length. What it answers is in the text of the request.
cat >"$dir/gateway.lua" <<'LUA'
local uv = require "luv"
local server = uv.new_tcp()
server:bind("127.0.0.1", tonumber(arg[1]))
local function record(kind, text)
  return ("\1%s\0\1%s\0\0%s"):format(string.char(kind), string.pack(">I2", #text), text)
end
server:listen(16, function()
  local client, all = uv.new_tcp(), ""
  server:accept(client)
  client:read_start(function(_, more)
    if not more then return client:is_closing() or client:close() end
    all = all .. more
    local how = all:match "how=(%w+)"
    if not how or client:is_closing() then return end
    local first, text = all:byte(), ("Status: %s\r\nContent-Type: text/plain\r\n\r\nprimary\n"):format(how)
    if how == "hang" then return end
    if how == "close" then text = "" end
    if how ~= "close" and first == 1 then text = record(6, text) .. record(6, "") .. record(3, ("\0"):rep(8)) end
    if how ~= "close" and first == 0 then text = text:gsub("Status:", "HTTP/1.1", 1) end
    client:write(text, function() client:close() end)
  end)
end)
uv.run()
LUA
$lua "$dir/gateway.lua" "$gateway_port" &
pids="$pids $!"

grpc_location() { # NAME [MORE]
  echo "location /$1/ {
    access_by_lua_block { guards.$1:access() } ${2:-}
    rewrite ^/$1(/.*) \$1 break;
    grpc_pass grpc://127.0.0.1:$grpc_port;
    grpc_read_timeout 300ms;
  }"
}
gateway_location() { # NAME
  echo "location /$1/ {
    access_by_lua_block { guards.$1:access() }
    include /etc/nginx/${1}_params;
    ${1}_pass 127.0.0.1:$gateway_port;
    ${1}_read_timeout 300ms;
  }"
}
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  ssl_certificate $dir/server.pem;
  ssl_certificate_key $dir/server.key;
  upstream kept { server $upstream; keepalive 4; }
  server {
    listen 127.0.0.1:$tls_port ssl http2;
    location / { access_by_lua_block { guards.front:access() } proxy_pass http://good; }
  }
  server {
    listen 127.0.0.1:$grpc_port http2;
    default_type application/grpc;
    location /good { add_trailer grpc-status 0; content_by_lua_block { ngx.say('x') } }
    location /bad { add_trailer grpc-status 14; content_by_lua_block { ngx.say('x') } }
    location /missing { content_by_lua_block { ngx.say('x') } }
    location /at_once { add_header grpc-status 14; content_by_lua_block { ngx.header.content_length = 0 } }
    location /stream {
      add_trailer grpc-status 14;
      content_by_lua_block { ngx.say('x') ngx.flush(true) ngx.sleep(2) }
    }
    location /500 { return 500; }
    location /hang { content_by_lua_block { ngx.sleep(1) } }
    location /close { content_by_lua_block { ngx.exit(444) } }
  }
  server {
    listen 127.0.0.1:$grpc_front http2;
    $(grpc_location grpc)
    $(grpc_location shipped)
    $(grpc_location trailed)
    $(grpc_location streamed 'header_filter_by_lua_block { neap.log() } grpc_buffer_size 4k;')
  }
  server {
    listen 127.0.0.1:$port;
    location = /metrics { content_by_lua_block { neap.metrics() } }
    location /secure/ {
      access_by_lua_block { guards.secure:access() }
      proxy_pass https://127.0.0.1:$tls_port;
    }
    location /distrusted/ {
      access_by_lua_block { guards.secure:access() }
      proxy_pass https://127.0.0.1:$tls_port;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate $dir/other.pem;
    }
    location /kept/ {
      access_by_lua_block { guards.kept:access() }
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      proxy_pass http://kept;
    }
    $(gateway_location fastcgi)
    $(gateway_location uwsgi)
    $(gateway_location scgi)
  }"
none_open() {
  within 5 has_metric 'neap_nginx_requests 0'
  metric 'neap_nginx_lost_total 0'
}

# ---- Clients by HTTP/2: many requests on a connection, and some that are given up ----

by_http2() { curl -sk --http2 -Z --parallel-max 40 -o /dev/null "$@" 2>"$dir/curl"; }
by_http2 "https://127.0.0.1:$tls_port/?n=[1-100]"
by_http2 "https://127.0.0.1:$tls_port/?how=500&n=[1-10]"
calls front success 100
calls front failure 10
by_http2 --max-time 0.3 "https://127.0.0.1:$tls_port/?how=hang&n=[1-20]" || :
within 5 has_metric 'neap_calls_total{policy="front",key="default",outcome="neutral"} 20'
none_open

# ---- gRPC: the status is in the trailers, or in the header if there is no more ----

ask() { # POLICY HOW
  curl -s -o /dev/null --http2-prior-knowledge --max-time 4 -H 'Content-Type: application/grpc' \
    -H 'TE: trailers' --data abc "http://127.0.0.1:$grpc_front/$1/$2" || :
}
for one in grpc shipped; do # classify.default goes by gRPC's status, too, from the first answer on
  for how in good good bad at_once 500 close; do ask $one $how; done
  calls $one success 2
  calls $one failure 4
  ask $one hang
  calls $one timeout 1
done
ask grpc missing # cut off before the trailers
calls grpc failure 5
ask trailed bad
calls trailed failure 1
ask streamed stream & # which is looked at when it begins
client=$!
within 1 has_metric 'neap_calls_total{policy="streamed",key="default",outcome="success"} 1'
wait $client
calls streamed failure 0
none_open

# ---- TLS to the upstream, connections that are kept ----

gets 200 /secure/
gets 500 "/secure/?how=500"
calls secure success 1
calls secure failure 1
gets 502 /distrusted/
calls secure failure 2
calls front success 101 # /secure/ has asked that server
none_open
for _ in 1 2 3; do gets 200 /kept/; done
gets 502 "/kept/?how=close" # tried twice, since a connection that was kept may be a dead one
calls kept success 3
calls kept failure 1

# ---- FastCGI, uwsgi, SCGI ----

for one in fastcgi uwsgi scgi; do
  gets 200 "/$one/?how=200"
  gets 200 "/$one/?how=200"
  gets 404 "/$one/?how=404"
  gets 503 "/$one/?how=503"
  gets 502 "/$one/?how=close"
  gets 504 "/$one/?how=hang"
  calls $one success 2
  calls $one neutral 1
  calls $one failure 2
  calls $one timeout 1
done
none_open
nginx_stop
