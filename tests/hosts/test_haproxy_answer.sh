# neap in HAProxy: what is answered in place of the server is one whole message, over HTTP/1.1 and
# HTTP/2; servers that speak HTTP/2; ways out of a request that lead to no server.
. "$(dirname "$0")/haproxy_support.sh"

shut="trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000, jitter = 0 },"
default() { policy "$1" "$shut fallback = { fallback.default { $2 } },"; }
computed() { policy "$1" "$shut fallback = { function() return { $2 } end },"; }
default framed "body = 'longer', headers = { ['content-length'] = '3', ['Transfer-Encoding'] = 'chunked',
  Connection = 'close', ['Cache-Control'] = 'max-age=60', Age = '7', ['Neap-Source'] = 'me', ['X-Is'] = 'its own' }"
default twice "status = 503, body = 'x', headers = { 'Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Retry-After', '1' }"
default nothing "status = 204, body = 'x'"
default reset "status = 205, body = 'x'"
default same "status = 304, body = 'x'"
default zeros "body = 'a\\0b\\0c'"
computed value "headers = { ['X-A'] = 'b\\r\\nX-Evil: 1' }, body = 'x'"
computed field "headers = { ['X-A: b\\r\\nX-Evil'] = '1' }, body = 'x'"
computed odd "headers = { 'X-Good', '1', 'X-Odd' }, body = 'x'"
computed early "status = 100, body = 'x'"
computed list "{ 1, 2 }, 3"
shut_ones="framed twice nothing reset same zeros value field odd early list"
policy outcomes "trip = { consecutive_failures = 1000 }, timeout_ms = 600,"
policy probed "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 300, backoff = 1, jitter = 0 },
  half_open = { probes = 1, lease_ms = 60000 },"
policy few "trip = { failures = 1000 }, bulkhead = { concurrent = 1 },"

quietly() { "$@" >"$dir/openssl.log" 2>&1; }
quietly openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
  -keyout "$dir/key" -out "$dir/certificate"
cat "$dir/key" "$dir/certificate" >"$dir/both"

sections="$frontend
frontend clear
  bind $clear proto h2
  bind $tls ssl crt $dir/both alpn h2,http/1.1
  use_backend %[path,field(2,/)]
frontend behind
  bind $behind
  default_backend bare
backend bare
  server up $upstream
$(guarded outcomes outcomes "server up $upstream")
$(guarded few few "server up $upstream")
$(guarded second outcomes "server up $behind proto h2")
$(guarded probed 'probed/var(txn.way)' "timeout tarpit 200ms
  http-request return status 200 if { var(txn.way) -m str return }
  http-request redirect location / if { var(txn.way) -m str redirect }
  http-request tarpit if { var(txn.way) -m str tarpit }
  http-request deny if { var(txn.way) -m str deny }
  http-request reject if { var(txn.way) -m str reject }
  http-request silent-drop if { var(txn.way) -m str drop }
  http-request lua.fails if { var(txn.way) -m str fails }
  server up $upstream" | sed '1a http-request set-var(txn.way) path,field(3,/)')"
for one in $shut_ones; do sections="$sections
$(guarded "$one" "$one" "server up $upstream")"; done
lua_file site "policies = '$dir/policies', panel = '$panel'" \
  'core.register_action("fails", { "http-req" }, function() error("of another script") end, 0)'
haproxy_serve site "nbthread 2
  lua-load-per-thread $dir/site/neap.lua" "$sections"

# ---- Answers ----

# fields NAME NUMBER: of the last answer
fields() {
  count=$(tr -d '\r' <"$dir/head" | grep -ci "^$1:" || :)
  [ "$count" = "$2" ] || fail "$count times $1, not $2: $(cat "$dir/head")"
}
body() { [ "$(od -An -c "$dir/body" | tr -d ' \n')" = "$1" ] || fail "the body: $(od -c "$dir/body")"; }

for one in $shut_ones; do gets 500 "/$one/?how=500"; done

answers_are_whole() { # CURL OPTIONS
  gets 200 /framed/ "$@"
  body longer
  fields content-length 1
  header 'content-length: 6'
  fields transfer-encoding 0
  fields connection 0
  fields cache-control 1
  header 'cache-control: no-store'
  fields neap-source 1
  header 'neap-source: default'
  fields age 0
  header 'x-is: its own'
  gets 200 /framed/ -I "$@"
  header 'content-length: 6'

  gets 503 /twice/ "$@"
  fields set-cookie 2
  fields retry-after 1
  header 'retry-after: [56][0-9]'

  gets 204 /nothing/ "$@"
  body ''
  fields content-length 0
  gets 205 /reset/ "$@"
  body ''
  gets 304 /same/ "$@"
  body ''
  fields content-length 0
  gets 200 /zeros/ "$@"
  body 'a\0b\0c'

  # What a function makes of what a client sent.
  gets 200 /value/ "$@"
  fields x-evil 0
  fields x-a 0
  gets 200 /field/ "$@"
  fields x-evil 0
  gets 200 /odd/ "$@"
  fields x-good 1
  fields x-odd 0
  gets 503 /early/ "$@"
  header 'retry-after: [56][0-9]'
  gets 200 /list/ "$@"
  body '[[1,2],3]'
}
answers_are_whole
says 'value: fallback.function: its answer'"'"'s headers: X-A is "b\r\nX-Evil: 1", with a control character in it: left out'
says "early: fallback.function: its answer has the status 100, not one of 200 to 599"
site=http://$clear answers_are_whole --http2-prior-knowledge
site=https://$tls answers_are_whole -k --http2
echo "ok: answers"

# A connection goes on after an answer without a body, and after a body that nobody has read.
head -c 200000 /dev/zero >"$dir/large"
connections() { # PATH CURL OPTIONS
  path=$1
  shift
  curl -s --max-time 10 -o /dev/null -o /dev/null -w '%{num_connects}' "$@" "$site$path" "$site$path"
}
[ "$(connections /nothing/)" = 10 ] || fail "204 closes the connection"
[ "$(connections /framed/ --data-binary "@$dir/large")" = 10 ] || fail "a body nobody read closes it"

gets 413 /breakers/outcomes/default/mode --data-binary "@$dir/large"
echo "ok: connections"

# ---- HTTP/2 ----

site=http://$clear gets 200 /outcomes/ --http2-prior-knowledge
site=https://$tls gets 200 /outcomes/ -k --http2
site=http://$clear gets 500 "/outcomes/?how=500" --http2-prior-knowledge
calls outcomes success 2
calls outcomes failure 1
gets 200 /second/
gets 500 "/second/?how=500"
gets 502 "/second/?how=close"
gets 504 "/second/?how=hang"
calls outcomes success 3
calls outcomes failure 3
calls outcomes timeout 1

# An early hint is no answer; a change of protocol is one.
gets 500 "/outcomes/?how=hints"
calls outcomes failure 4
gets 101 "/outcomes/?how=upgrade" -H 'Connection: Upgrade' -H 'Upgrade: websocket' \
  -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='
calls outcomes success 4
echo "ok: HTTP/2"

# ---- Ways out that lead to no server ----

# No way to leave keeps a probe's slot.
ways="return redirect tarpit deny reject drop fails left"
probe() { status "/probed/$1/" --max-time 1 >/dev/null || :; }
trip() { curl -sf -o /dev/null -d "by=me&for=300ms" "$site/breakers/probed/$1/trip"; }
for way in $ways; do probe "$way"; done # makes the keys
for way in $ways; do trip "$way" || fail "not tripped: $way"; done
sleep 0.35
for way in $ways; do
  [ "$way" = left ] || probe "$way"
done
curl -s --http2-prior-knowledge -o /dev/null --max-time 0.2 "http://$clear/probed/left/?how=hang" &&
  fail "it did not hang"
given_back() {
  [ "$(curl -sf "$site/metrics" | grep '^neap_probes_in_flight{policy="probed"' | grep -vc ' 0$')" = 0 ]
}
within 5 given_back
for way in $ways; do
  metric "neap_probes_total{policy=\"probed\",key=\"$way\"} 1"
done

# Nor a slot of a bulkhead: each of the two threads has one.
at_once "/few/?how=slow" 12
count=$(grep -c ^200 "$dir/codes")
if [ "$count" -lt 1 ] || [ "$count" -gt 2 ]; then fail "$count calls at once"; fi
at_once "/few/?how=hang" 12 --max-time 0.2 || :
free() { for _ in 1 2 3 4 5 6 7 8; do [ "$(status /few/)" = 200 ] || return 1; done; }
within 5 free
kill -USR1 "$pid"
within 10 has_ended
echo "ok: ways out"
