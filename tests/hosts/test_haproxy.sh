# neap in HAProxy: an outage seen by one thread and by several, what requests come to, fallbacks, keys,
# modes, and clients that leave.
. "$(dirname "$0")/haproxy_support.sh"

quick='open = { cooldown_ms = 1000, backoff = 1, jitter = 0 }, half_open = { probes = 1, lease_ms = 60000 },'
policy plain "trip = { consecutive_failures = 3 }, $quick"
policy outcomes "trip = { consecutive_failures = 1000 }, timeout_ms = 600,"
policy asked "trip = { failures = 1000 },
  classify = function(call)
    if call.headers and call.headers['x-verdict'] then return call.headers['x-verdict'] end
    return classify.http(call)
  end,"
policy rpc "trip = { failures = 1000 }, classify = classify.grpc,"
policy chain "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.default { status = 203, headers = { ['X-Is'] = 'default' }, body = ('0'):rep(100000) } },"
policy closes "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.fail { status = 521, retry_after_ms = 90000 } },"
policy keyed "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },"
policy tenants "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000, jitter = 0 },
  key = function(call) return call.request.headers['X-Tenant'] end,"
policy seen "trip = { consecutive_failures = 1000 },
  key = function(call)
    local request = call.request
    return request.method .. ' ' .. request.target .. ' ' .. (request.headers['X-A'] or '-')
  end,"
policy endless "trip = { failures = 1000 },
  key = function(call) while call.request.headers['X-Endless'] do end end,
  classify = function(call)
    while call.headers and call.headers['x-verdict'] do end
    return classify.http(call)
  end,"
policy late "trip = { consecutive_failures = 1000 },"
policy called "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 }, timeout_ms = 100,"
options="policies = '$dir/policies', max_keys = 60"
site_sections="$frontend
$(guarded plain plain "server up $upstream")
$(guarded other plain/other "server up $upstream")
$(guarded outcomes outcomes "server up $upstream")
$(guarded nobody outcomes "server down $nobody")
$(guarded off outcomes "server down $nobody disabled")
$(guarded queue outcomes "server up $upstream maxconn 1")
$(guarded retries outcomes "option redispatch 1
  balance first
  server down $nobody
  server up $upstream")
$(guarded again outcomes "retries 2
  retry-on 500
  server up $upstream")
$(guarded answered outcomes "http-request return status 200 content-type text/plain string own")
$(guarded service outcomes "http-request use-service lua.neap_metrics")
$(guarded denied outcomes "http-request deny deny_status 503")
$(guarded asked asked "server up $upstream")
$(guarded rpc rpc "server up $upstream")
$(guarded chain chain "server up $upstream")
$(guarded closes closes "server up $upstream")
$(guarded left plain/left "server up $upstream")
$(guarded misnamed plan "server up $upstream")
backend keyed
  http-request set-var(txn.tenant) url_param(tenant)
$(guarded keyed 'keyed/var(txn.tenant)' "server up $upstream" | tail -n +2)
$(guarded tenants tenants "server up $upstream")
$(guarded given tenants/mine "server up $upstream")
backend maybe
  http-request set-var(txn.tenant) url_param(tenant)
$(guarded tenants 'tenants/var(txn.tenant)' "server up $upstream" | tail -n +2)
$(guarded seen seen "server up $upstream")
$(guarded late late "server up $upstream")
$(guarded endless endless "server up $upstream")
backend native
  http-request lua.neap_acquire closes
  http-request return status 599 hdr X-Why %[var(txn.neap_refused)] hdr Retry-After %[var(txn.neap_retry_after)] if { var(txn.neap_refused) -m found }
  server up $upstream
backend forgotten
  http-request lua.neap_acquire closes
  http-response lua.neap_report
  server up $upstream
backend twice
  http-request lua.neap_acquire closes/first
  http-request lua.neap_acquire closes/second
  http-response lua.neap_report
  server up $upstream
$(guarded both keyed/both "server up $upstream" |
    sed '1a http-request lua.neap_acquire keyed/tenant if { url_param(tenant) -m found }')
frontend front
  bind $clear
  http-request lua.neap_acquire closes/front
  http-response lua.neap_report
  use_backend stale if { var(txn.neap_refused) -m found }
  default_backend bare
backend bare
  server up $upstream
$(guarded stale keyed/stale "server up $upstream")"

# ---- Closed, open, half-open, closed ----

cycle() { # NAME LOAD THREADS [SECTIONS]
  haproxy_serve "$1" "nbthread $3
  $2 $dir/$1/neap.lua" "$site_sections
${4:-}"
  gets 200 /plain/
  for _ in 1 2 3; do gets 500 "/plain/?how=500"; done
  at_once "/plain/" 24
  [ "$(grep -c ^503 "$dir/codes")" = 24 ] || fail "$1: open: $(sort "$dir/codes" | uniq -c)"
  count=$(sort -u "$dir/codes" | wc -l)
  [ "$count" -ge "$((($3 + 1) / 2))" ] || fail "$1: only $count threads were asked"
  gets 503 /plain/
  header 'Retry-After: 1'
  header 'Cache-Control: no-store'
  gets 200 /other/ # another key
  state plain 2
  calls plain failure 3
  calls plain success 1
  calls plain rejected 25
  sleep 1.05
  state plain 1

  # B215: one probe, whoever asks; the others are refused meanwhile.
  at_once "/plain/?how=slow" 12
  [ "$(grep -c ^200 "$dir/codes")" = 1 ] || fail "$1: probes: $(sort "$dir/codes" | uniq -c)"
  state plain 0
  metric 'neap_probes_total{policy="plain",key="default"} 1'
  metric 'neap_probes_in_flight{policy="plain",key="default"} 0'
  says "plain/default: closed -> open: 3 failures in a row, limit 3; open for 1000 ms" 1
  says "plain/default: open -> half_open" 1
  says "plain/default: half_open -> closed" 1
  echo "ok: $1"
}

lua_file one "$options"
cycle one lua-load 1
haproxy_stop
lua_file shared "$options"
cycle shared lua-load 2
haproxy_stop
lua_file threads "$options, panel = '$panel'"
cycle threads lua-load-per-thread 2
haproxy_stop
rm -f "$panel"*
lua_file many "$options, panel = '$panel'" '
  core.register_service("call", "http", function(applet)
    local value, err = guards.called:call(function()
      core.msleep(applet.qs == "late" and 150 or 10)
      return "called"
    end)
    applet:set_status(value and 200 or 503)
    applet:start_response()
    applet:send(value or err.kind)
  end)'
cycle many lua-load-per-thread 4 "backend call
  http-request use-service lua.call"
curl -sf "$site/metrics" | promtool check metrics >/dev/null || fail "the metrics page is not right"
curl -sf "$site/metrics" | $lua tests/support/series.lua plain default || fail "series are missing"

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
expect failure 1 "/outcomes/?how=504" 504
expect failure 1 "/outcomes/?how=429" 429
expect neutral 1 "/outcomes/?how=404" 404
expect success 1 "/outcomes/?how=short" 200 # it broke off in its body
expect failure 1 "/outcomes/?how=close" 502
expect failure 1 "/outcomes/?how=reset" 502
expect failure 1 "/outcomes/?how=junk" 502
expect timeout 1 "/outcomes/?how=hang" 504
expect failure 1 /nobody/ 503
expect failure 1 /off/ 503 # health checks or an operator have taken all servers out
expect success 1 /retries/ 200
expect failure 1 "/again/?how=500" 500 # three tries, one call
expect success 0 /answered/ 200 # by HAProxy: no call
expect success 0 /service/ 200  # by a service in it
curl -s -o /dev/null "$site/queue/?how=hang" &
queued=$!
sleep 0.1
expect neutral 1 /queue/ 503 # it waited for a free connection
wait $queued
gets 200 "/asked/?how=verdict"
calls asked failure 1
gets 200 "/rpc/?how=grpc"
calls rpc failure 1
echo "ok: outcomes"

# B227: functions that never end are cut long before HAProxy's watchdog, and the thread goes on.
gets 200 "/endless/?how=verdict" -H "X-Endless: yes" --max-time 2
calls endless success 1
within 3 has_metric 'neap_policy_errors_total{policy="endless"} 2' # of all threads
for function in key classify; do says "endless: $function: took more than its 100000 steps" 1; done
echo "ok: functions that never end"

# A 503 with Retry-After holds the breaker open for that long.
for _ in 1 2; do gets 500 "/plain/?how=500"; done
gets 503 "/plain/?how=wait"
gets 503 /plain/
retry_after=$(tr -d '\r' <"$dir/head" | sed -n 's/^retry-after: //Ip')
[ "$retry_after" -ge 28 ] || fail "Retry-After: $retry_after"

# ---- Clients that leave ----

# Nothing is told of a call that HAProxy gave up.  A probe gives its slot back.
for _ in 1 2 3; do gets 500 "/left/?how=500"; done
sleep 1.05
curl -s -o /dev/null --max-time 0.2 "$site/left/?how=hang" && fail "it did not hang"
sleep 2.3 # with no request that would make Lua collect its garbage
metric 'neap_probes_in_flight{policy="plain",key="left"} 0'
calls plain abandoned 1 left
gets 200 /left/
state plain 0 left
# B206: nothing is left of a hundred that went all ways, and the breaker goes on.
for how in hang close junk reset 404 slow short; do
  for _ in 1 2 3; do curl -s -o /dev/null --max-time 0.1 "$site/left/?how=$how" & done
done
left_answers() { [ "$(status /left/)" = 200 ]; }
within 10 left_answers
within 5 has_metric 'neap_probes_in_flight{policy="plain",key="left"} 0'
echo "ok: clients that leave"

# ---- Instead ----

gets 500 "/chain/?how=500"
gets 203 "/chain/a?b=c"
header 'X-Is: default'
header 'Neap-Source: default'
header 'Content-Length: 100000'
[ "$(wc -c <"$dir/body")" = 100000 ] || fail "the answer has $(wc -c <"$dir/body") bytes"
gets 203 /chain/ -I
head -c 100000 /dev/zero >"$dir/large"
gets 203 /chain/ --data-binary "@$dir/large"
gets 500 "/closes/?how=500"
gets 521 /closes/
header 'Retry-After: 90'
header 'Neap-Source: fail'
gets 599 /native/
header 'X-Why: open'
header 'Retry-After: [5-7][0-9]' # the cooldown, with its jitter
for _ in 1 2 3 4 5 6; do gets 203 /chain/; done
within 3 has_metric 'neap_fallback_total{policy="chain",source="default",result="answered"} 9' # of all threads
echo "ok: fallbacks"

# A request that was refused goes to another backend, which has a breaker of its own.
site=http://$clear gets 500 "/?how=500"
site=http://$clear gets 200 /
site=http://$clear gets 500 "/?how=500"
site=http://$clear gets 503 /
calls closes rejected 3 front
calls keyed success 1 stale
calls keyed failure 1 stale
calls keyed rejected 1 stale
# Two before one server: whichever says no has said it.
gets 200 "/both/?tenant=a"
curl -sf -o /dev/null -d by=me "$site/breakers/keyed/tenant/trip" || fail "no such key"
gets 503 "/both/?tenant=a"
gets 200 /both/
calls keyed rejected 0 both
echo "ok: two breakers"

# ---- What is written wrong ----

gets 500 /misnamed/
gets 500 /misnamed/
within 5 said "there is no policy plan: did you mean plain?"
gets 200 /forgotten/
says "backend forgotten: requests that neap_acquire has refused go to the server"
gets 500 "/twice/?how=500"
calls closes failure 0 first
calls closes failure 1 second
says "the request had asked another policy after this one"
[ "$(status /answered/)" = 200 ] && gets 503 /denied/
calls outcomes rejected 0

# ---- Keys ----

gets 500 "/keyed/?tenant=a&how=500"
gets 503 "/keyed/?tenant=a"
gets 200 "/keyed/?tenant=b"
gets 200 /keyed/
state keyed 2 a
state keyed 0 b
# A client calls itself what stands in the configuration: it is a tenant as any other.
gets 500 "/keyed/?tenant=var(txn.tenant)&how=500"
gets 503 "/keyed/?tenant=var(txn.tenant)"
at_once "/keyed/?tenant=c" 24
[ "$(grep -c ^200 "$dir/codes")" = 24 ] || fail "a tenant has made its breaker everybody's: $(cat "$dir/codes")"
calls keyed failure 1 'var(txn.tenant)'
calls keyed success 1
curl -s -o /dev/null "$site/keyed/?tenant=[1-150]"
count=$(curl -sf "$site/metrics" | grep -c '^neap_breaker_state{policy="keyed"')
[ "$count" -le 242 ] || fail "$count keys, of 60 for each of 4 threads"
calls keyed rejected 1 a
curl -sf "$site/metrics" | promtool check metrics >/dev/null || fail "many keys: the page is not right"
echo "ok: keys"

# ---- Keys of the policy's own, where the rule says none ----

as() { # TENANT STATUS PATH
  tenant=$1
  shift
  gets "$@" -H "x-tenant: $tenant"
}
as a 500 "/tenants/?how=500"
as a 503 /tenants/
header 'Retry-After: 60'
as b 200 /tenants/ # one tenant's outage is no other's
gets 200 /tenants/ # it has nothing to say: the default
state tenants 2 a
state tenants 0 b
calls tenants failure 1 a
calls tenants rejected 1 a
calls tenants success 1
as a 200 /given/ # a key that is given goes before it
calls tenants success 1 mine
as b 503 "/maybe/?tenant=a"
as a 503 /maybe/ # a variable that is not set gives none
as b 200 /maybe/
calls tenants success 2 b
gets 200 "/seen/x%20y?q=1" -X POST -d body
calls seen success 1 'POST /seen/x%20y?q=1 -'
gets 200 /seen/ -H "x-a: 1" -H "X-A: 2"
calls seen success 1 'GET /seen/ 1, 2'
metric 'neap_policy_errors_total{policy="seen"} 0'
metric 'neap_policy_errors_total{policy="tenants"} 0'
for tenant in $(seq 280); do
  [ "$tenant" = 1 ] || echo next
  printf 'url = "%s"\nheader = "x-tenant: of-%s"\noutput = "/dev/null"\nsilent\n' "$site/tenants/" "$tenant"
done >"$dir/tenants"
curl -K "$dir/tenants"
count=$(curl -sf "$site/metrics" | grep -c '^neap_breaker_state{policy="tenants"')
[ "$count" -le 242 ] || fail "$count keys, of 60 for each of 4 threads"
at_once /late/ 24
calls late success 24
policy late "trip = { consecutive_failures = 1000 }, key = function(call) return call.request.headers['x-tenant'] end,"
is_keyed() {
  curl -s -o /dev/null -H "x-tenant: a" "$site/late/"
  has_metric 'neap_breaker_state{policy="late",key="a"} 0'
}
within 8 is_keyed
sleep 3 # the other threads, too
before=$(curl -sf "$site/metrics" | grep '^neap_calls_total{policy="late",key="default",outcome="success"}')
at_once /late/ 24 -H "x-tenant: a"
metric "$before"
policy late "trip = { consecutive_failures = 1000 },"
within 8 said "late.lua: reloaded" 2
sleep 3
at_once /late/ 24 -H "x-tenant: a"
metric "${before% *} $((${before##* } + 24))"
echo "ok: the policy's keys"

# ---- By hand ----

set_mode() { curl -sf -o "$dir/body" -d "mode=$1&by=me" "$site/breakers/outcomes/default/mode"; }
set_mode forced_open || fail "not set: $(cat "$dir/body")"
for _ in $(seq 12); do gets 503 /outcomes/; done
set_mode policy
for _ in $(seq 12); do gets 200 /outcomes/; done
curl -sf "$site/policies" | grep -q '"name": "outcomes"' || fail "no page of policies"

# ---- Calls of Lua's own ----

gets 200 /call/
[ "$(cat "$dir/body")" = called ] || fail "not called: $(cat "$dir/body")"
gets 200 "/call/?late" # it can't be given up, and was a timeout
gets 503 /call/
calls called timeout 1
haproxy_stop
echo "ok: by hand, and calls of Lua's own"
