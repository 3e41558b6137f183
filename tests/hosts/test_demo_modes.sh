# The demo's upstream misbehaves as it is told: by HTTP and by a script.
. "$(dirname "$0")/support.sh"

demo="$lua examples/demo/upstream.lua"
start() {
  : >"$dir/log" # or the address of the one before might be read
  $demo --listen 127.0.0.1:0 "$@" >"$dir/log" 2>&1 &
  pid=$!
  pids="$pids $pid"
  within 10 says_where
}
says_where() {
  url=$(sed -n 's/.*listening on \(.*\), mode ok$/\1/p' "$dir/log")
  [ -n "$url" ]
}
stop() { kill "$pid"; wait "$pid" || fail "ended with status $?"; }
mode() { curl -s -X POST "$url/_fail?mode=$1" -o "$dir/body" -w '%{http_code}' || :; }
flag() { curl -s --max-time "${2:-5}" "$url/flags/$1" -o "$dir/body" -w '%{http_code}' || :; }
flag_is() { [ "$(flag a)" = "$1" ]; }
becomes() { within 5 flag_is "$1"; }

start
[ "$(flag a)" = 200 ] || fail "ok is not 200"
grep -q '^{"key":"a","value":true' "$dir/body" || fail "no flag: $(cat "$dir/body")"
[ "$(flag missing-flag)" = 404 ] || fail "a missing flag is there"
grep -q '^{"key":"missing-flag","errorCode":"FLAG_NOT_FOUND"}$' "$dir/body" ||
  fail "a missing flag is not told as OpenFeature's SDKs need it: $(cat "$dir/body")"
all() { curl -s "$url/ofrep/v1/evaluate/flags" -d '{}' -o "$dir/body" -w '%{http_code}'; }
[ "$(all)" = 200 ] || fail "all flags at once are not 200"
grep -q '^{"flags":\[{"key":"new-checkout","value":true,.*},{"key":"page-size",.*}\]}$' \
  "$dir/body" ||
  fail "not all flags: $(cat "$dir/body")"
mode 503 >"$dir/none"
[ "$(all)" = 503 ] || fail "all flags at once are answered though it fails"
mode ok >"$dir/none"
for status in 500 503 429 404; do
  [ "$(mode $status)" = 200 ] || fail "mode $status is refused"
  [ "$(flag a)" = $status ] || fail "mode $status does not answer $status"
done
[ "$(mode 'slow&ms=300')" = 200 ] || fail "slow is refused"
[ "$(flag a 0.2)" = 000 ] || fail "slow is quick"
[ "$(flag a)" = 200 ] || fail "slow does not answer"
mode hang >"$dir/none"
[ "$(flag a 0.3)" = 000 ] || fail "hang answers"
mode refuse >"$dir/none"
[ "$(flag a)" = 000 ] || fail "refuse answers"
curl -s "$url/_fail" | grep -q '^{"mode":"refuse","answered":[0-9]*}$' || fail "does not say its mode"
mode 'flap&ms=200' >"$dir/none"
becomes 500
becomes 200
becomes 500
[ "$(mode broken)" = 400 ] || fail "takes a mode that there is not"
grep -q 'must be ok, slow, hang, refuse, flap or a status' "$dir/body" || fail "does not say which"
[ "$(mode 'slow&ms=x')" = 400 ] || fail "takes a time that is none"
stop
grep -q 'mode ok -> 500 (POST /_fail)' "$dir/log" || fail "does not say what it does"
grep -q 'GET /flags/a -> hang' "$dir/log" || fail "does not say what it does to whom"

start --quiet --script "ok 0.3, 503 0.3"
becomes 503
becomes 200
becomes 503
stop
grep -q 'mode ok -> 503 (script)' "$dir/log" || fail "the log does not tell of the script"

for wrong in "--listen nowhere" "--script bad" "--script ok" "--scrpt x"; do
  if $demo $wrong >"$dir/log" 2>&1; then fail "takes $wrong"; fi
  [ "$(wc -l <"$dir/log")" -eq 1 ] || fail "$wrong: not one line"
  grep -q 'must be' "$dir/log" || fail "$wrong: does not say what would be right"
done
