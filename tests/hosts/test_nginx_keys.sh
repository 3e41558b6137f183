# neap in nginx: a request that access or ask is given no key for has the one that the policy's key
# function says; what it is shown of the request; and what becomes of it over a reload.
. "$(dirname "$0")/nginx_support.sh"

processes=1 # each worker has max_keys keys of its own

once='trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },'
by_tenant="key = function(call) return call.request.headers['X-Tenant'] end,"
policy tenants "$once max_keys = 6, $by_tenant"
policy seen "$once key = function(call)
  local request = call.request
  return request.method .. ' ' .. request.target .. ' ' .. (request.headers['X-A'] or '-')
end,"
policy plain "$once"
policy other "$once"
policy waits "$once fallback = { fallback.guard('other') }, $by_tenant"
policy kept "$once fallback = { fallback.last_good {} }, $by_tenant"
policy fails "$once fallback_on = { 'failure' }, $by_tenant
  fallback = { fallback.default(function(call) return { status = 203, body = call.key } end) },"
policy raises "$once key = function(call) return call.nothing.here end,"
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
    guards.other.serve = function() return 'by the other' end
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  upstream balanced {
    server 0.0.0.1;
    balancer_by_lua_block {
      if not guards.tenants:ask() then return ngx.exit(-3) end -- NGX_BUSY
      assert(require('ngx.balancer').set_current_peer('127.0.0.1', $upstream_port))
    }
  }
  server {
    listen 127.0.0.1:$port;
    location /tenants/ { access_by_lua_block { guards.tenants:access() } proxy_pass http://good; }
    location /given/ { access_by_lua_block { guards.tenants:access(ngx.var.arg_key) } proxy_pass http://good; }
    location /balanced/ { proxy_pass http://balanced; }
    location /seen/ { access_by_lua_block { guards.seen:access() } proxy_pass http://good; }
    location /plain/ { access_by_lua_block { guards.plain:access() } proxy_pass http://good; }
    location /waits/ { access_by_lua_block { guards.waits:access() } proxy_pass http://good; }
    location /raises/ { access_by_lua_block { guards.raises:access() } proxy_pass http://good; }
    location /kept/ {
      access_by_lua_block { guards.kept:access() }
      body_filter_by_lua_block { guards.kept:keep() }
      proxy_pass http://good;
    }
    location /fails/ {
      access_by_lua_block { guards.fails:access() }
      proxy_pass http://good;
      proxy_intercept_errors on;
      error_page 500 = @instead;
    }
    location @instead { content_by_lua_block { guards.fails:answer() } }
    location = /metrics { content_by_lua_block { neap.metrics() } }
  }"

# ---- access and ask without a key ----

as() { # TENANT STATUS PATH
  tenant=$1
  shift
  gets "$@" -H "x-tenant: $tenant"
}

as a 500 "/tenants/?how=500"
as a 503 /tenants/
as b 200 /tenants/ # one tenant's outage is no other's
gets 200 /tenants/ # it has nothing to say: the default
state tenants 2 a
state tenants 0 b
state tenants 0
calls tenants failure 1 a
calls tenants rejected 1 a
calls tenants success 1

as a 502 /balanced/ # no peer
as c 500 "/balanced/?how=500"
as c 502 /balanced/
as c 503 /tenants/
as b 200 /balanced/
calls tenants success 2 b
echo "ok: access and ask"

# ---- A key that is given goes before it ----

as a 200 "/given/?key=mine"
as b 503 "/given/?key=a"
as a 503 /given/ # an argument that is nil is no key
calls tenants success 1 mine
metric 'neap_key_overflow_total{policy="tenants"} 0'

# ---- There are max_keys of them ----

for tenant in $(seq 20); do as "$tenant" 200 /tenants/; done
count=$(curl -sf "$site/metrics" | grep -c '^neap_breaker_state{policy="tenants"')
[ "$count" = 8 ] || fail "$count keys, not 6, the default and *"
calls tenants success 18 '*'
metric 'neap_key_overflow_total{policy="tenants"} 18'
echo "ok: so many"

# ---- What it sees ----

gets 200 "/seen/x%20y?q=1" -X POST -d body
calls seen success 1 'POST /seen/x%20y?q=1 -'
gets 200 /seen/ -H "x-a: 1" -H "X-A: 2"
calls seen success 1 'GET /seen/ 1, 2'
set --
for n in $(seq 120); do set -- "$@" -H "x-$n: $n"; done
gets 200 /seen/many "$@" -H "x-a: last"
calls seen success 1 'GET /seen/many last'
gets 200 /raises/
calls raises success 1
metric 'neap_policy_errors_total{policy="raises"} 1'
echo "ok: the request"

# ---- The chain: what waits, what is kept, what stands in for a failure ----

as a 500 "/waits/?how=500"
as a 200 /waits/
header 'Neap-Source: guard'
as b 200 /waits/
grep -qi '^Neap-Source' "$dir/head" && fail "another tenant is refused"
state waits 2 a
for tenant in a b; do as $tenant 200 /kept/; done
as a 500 "/kept/x?how=500"
as a 200 /kept/ # the same key's, kept
header 'Neap-Source: last_good'
as b 200 /kept/
grep -qi '^Neap-Source' "$dir/head" && fail "another tenant is refused"
as z 203 "/fails/?how=500"
[ "$(cat "$dir/body")" = z ] || fail "the chain was told the key $(cat "$dir/body")"
echo "ok: the chain"

# ---- Policies that get a key function, or lose it ----

gets 200 /plain/
policy plain "$once $by_tenant"
policy waits "$once"
within 5 grep -q 'plain.lua: reloaded' "$dir/site/error.log"
within 5 grep -q 'waits.lua: reloaded' "$dir/site/error.log"
as a 500 "/plain/?how=500"
as a 503 /plain/
as b 200 /plain/
state plain 2 a
as a 200 /waits/
calls waits success 1
nginx_stop
echo "ok: reloads"
