# neap in nginx: what is answered in place of the upstream is one whole message, over HTTP/1.1 and
# HTTP/2; whether a request was refused, or failed and error_page led here.
. "$(dirname "$0")/nginx_support.sh"

# shellcheck disable=SC2034  # that the one worker has been told of failures
processes=1
shut="trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000, jitter = 0 },"
default() { policy "$1" "$shut fallback = { fallback.default { $2 } },"; }
computed() { policy "$1" "$shut fallback = { function() return { $2 } end },"; }
default framed "body = 'longer', headers = { ['content-length'] = '3', ['Transfer-Encoding'] = 'chunked',
  Connection = 'close', ['Cache-Control'] = 'max-age=60', Age = '7', ['Neap-Source'] = 'me', ['X-Is'] = 'its own' }"
default twice "status = 503, body = 'x', headers = { 'Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Retry-After', '1' }"
default nothing "status = 204, body = 'x'"
default reset "status = 205, body = 'x'"
default same "status = 304, body = 'x'"
default void "status = 502, body = ''"
default zeros "body = 'a\\0b\\0c'"
computed value "headers = { ['X-A'] = 'b\\r\\nX-Evil: 1' }, body = 'x'"
computed field "headers = { ['X-A: b\\r\\nX-Evil'] = '1' }, body = 'x'"
computed odd "headers = { 'X-Good', '1', 'X-Odd' }, body = 'x'"
computed early "status = 100, body = 'x'"
computed list "{ 1, 2 }, 3"
chmod -R a+rX "$dir/policies"
ones="framed twice nothing reset same void zeros value field odd early list"

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 1)
clear_port=$1
locations=$(for one in $ones; do
  echo "location /$one/ {
    access_by_lua_block { guards.$one:access() }
    proxy_pass http://good;
  }
  location /failed/$one/ {
    access_by_lua_block { guards.$one:ask('failed') }
    proxy_pass http://good;
    proxy_intercept_errors on;
    error_page 503 = @$one;
  }
  location @$one { content_by_lua_block { guards.$one:answer() } }"
done)
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port;
    $locations
  }
  server {
    listen 127.0.0.1:$clear_port http2;
    $locations
  }"

# fields NAME NUMBER: of the last answer
fields() {
  count=$(tr -d '\r' <"$dir/head" | grep -ci "^$1:" || :)
  [ "$count" = "$2" ] || fail "$count times $1, not $2: $(cat "$dir/head")"
}
body() { [ "$(od -An -c "$dir/body" | tr -d ' \n')" = "$1" ] || fail "the body: $(od -c "$dir/body")"; }
says() { grep -qF -- "$1" "$dir/site/error.log" || fail "'$1' is not in the log: $(cat "$dir/site/error.log")"; }

for one in $ones; do gets 503 "/$one/?how=503"; done

answers_are_whole() { # PREFIX STATUS, where there is no answer, CURL OPTIONS
  prefix=$1 unsaid=$2
  shift 2
  gets 200 "$prefix/framed/?how=503" "$@"
  body longer
  fields content-length 1
  header 'content-length: 6'
  fields transfer-encoding 0
  fields cache-control 1
  header 'cache-control: no-store'
  fields neap-source 1
  header 'neap-source: default'
  fields age 0
  header 'x-is: its own'
  tr -d '\r' <"$dir/head" | grep -qi '^connection: close' && fail "a policy closes the connection"
  gets 200 "$prefix/framed/?how=503" -I "$@"
  header 'content-length: 6'

  gets 503 "$prefix/twice/?how=503" "$@"
  body x
  fields set-cookie 2
  fields retry-after 1
  gets 503 "$prefix/twice/?how=503" -I "$@" # no page of nginx's
  header 'content-length: 1'

  gets 204 "$prefix/nothing/?how=503" "$@"
  body ''
  fields content-length 0
  gets 205 "$prefix/reset/?how=503" "$@"
  body ''
  gets 304 "$prefix/same/?how=503" "$@"
  body ''
  fields content-length 0
  gets 502 "$prefix/void/?how=503" "$@"
  body ''
  gets 200 "$prefix/zeros/?how=503" "$@"
  body 'a\0b\0c'

  # What a function makes of what a client sent.
  gets 200 "$prefix/value/?how=503" "$@"
  fields x-evil 0
  fields x-a 0
  gets 200 "$prefix/field/?how=503" "$@"
  fields x-evil 0
  fields 'x-a.*' 0
  gets 200 "$prefix/odd/?how=503" "$@"
  fields x-good 1
  fields x-odd 0
  gets "$unsaid" "$prefix/early/?how=503" "$@"
  gets 200 "$prefix/list/?how=503" "$@"
  body '[[1,2],3]'
}
answers_are_whole '' 503
gets 503 /twice/
header 'retry-after: [56][0-9]' # that of the breaker, which knows better
gets 503 /early/
header 'retry-after: [56][0-9]'
says 'value: fallback.function: its answer'"'"'s headers: X-A is "b\r\nX-Evil: 1", with a control character in it: left out'
says "early: fallback.function: its answer has the status 100, not one of 200 to 599"
site=http://127.0.0.1:$clear_port answers_are_whole '' 503 --http2-prior-knowledge
answers_are_whole /failed 502
gets 503 "/failed/twice/?how=503"
header 'retry-after: 1' # its own: nobody knows better
site=http://127.0.0.1:$clear_port answers_are_whole /failed 502 --http2-prior-knowledge

# A connection goes on after an answer without a body.
for one in nothing same framed; do
  count=$(curl -s --max-time 10 -o /dev/null -o /dev/null -w '%{num_connects}' "$site/$one/" "$site/$one/")
  [ "$count" = 10 ] || fail "$one closes the connection"
done
nginx_stop
