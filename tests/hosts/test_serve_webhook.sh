# The sidecar's webhook: each transition is posted once, in order; tried again while it is not taken; nobody
# waits for it.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
listen=$1 admin=$2 hook=$3
pages=http://127.0.0.1:$admin site=$pages

policy limits "trip = { consecutive_failures = 2 }, fallback = { fallback.default('spare') }, timeout_ms = 500" "$dir"
printf 'secret-of-the-webhook\n' >"$dir/token"
chmod 600 "$dir/token"
echo 200 >"$dir/mode"
receive() {
  $lua tests/hosts/receiver.lua $hook "$dir/mode" >>"$dir/received" 2>"$dir/receiver.log" &
  receiver=$!
  pids="$pids $receiver"
}
serve() { # ARGUMENTS...
  : >"$dir/serve.log"
  "$neap" serve --listen 127.0.0.1:$listen --policy "$dir/limits.lua" --upstream http://127.0.0.1:9 "$@" \
    2>"$dir/serve.log" &
  pid=$!
  pids="$pids $pid"
  within 5 grep -q "serving on" "$dir/serve.log"
}
act() { curl -sf -X POST "$pages/breakers/limits/default/$1" -d by=ann -o "$dir/body"; }
received() { [ "$(grep -c . "$dir/received" || :)" = "$1" ]; }
line() { sed -n "$1p" "$dir/received"; }
webhook() { has_metric "neap_webhook_total{result=\"$1\"} $2"; }

receive
serve --admin 127.0.0.1:$admin --webhook "http://127.0.0.1:$hook/neap?team=a" --webhook-token-file "$dir/token"
has_metric 'neap_webhook_queue 0' || fail "no series from the start"
act trip
within 5 received 1
line 1 | grep -qE '^200 /neap\?team=a [0-9a-f]+-1 secret-of-the-webhook \{"at": "[^"]*","by": "ann",.*"id": "[0-9a-f]+-1","key": "default","kind": "transition",.*"reason": "trip",.*"to": "open"\}$' ||
  fail "not as it is documented: $(line 1)"
within 5 webhook delivered 1

# The receiver has a bad time: the same event again, under the same id, then the next; calls go on meanwhile.
echo 503 >"$dir/mode"
act reset
within 5 received 2
act trip
within 5 received 3 # half a second to one after the first trial
echo 200 >"$dir/mode"
[ "$(curl -s "http://127.0.0.1:$listen/")" = spare ] || fail "calls wait for the webhook"
within 5 received 5
[ "$(cut -d' ' -f1,3 "$dir/received" | sed 's/[0-9a-f]*-//' | tr '\n' ' ')" = "200 1 503 2 503 2 200 2 200 3 " ] ||
  fail "not in order, or not once each: $(cat "$dir/received")"
within 5 webhook delivered 3
has_metric 'neap_webhook_retries_total 2' || fail "the retries are not counted"
grep -q "webhook 127.0.0.1:$hook: answered 503; [0-9]* wait, the first is tried again" "$dir/serve.log" ||
  fail "the log does not tell"
grep -q "webhook 127.0.0.1:$hook: takes events again" "$dir/serve.log" || fail "nor that it is well"

# What is refused is not tried again; a reload is no transition; a new token is read with SIGHUP.
echo 404 >"$dir/mode"
act reset
within 5 webhook refused 1
printf 'another-secret-of-it\n' >"$dir/token"
kill -HUP "$pid"
within 5 grep -q "SIGHUP: 0 reloaded, 0 refused" "$dir/serve.log"
echo 200 >"$dir/mode"
printf '\n' >>"$dir/limits.lua"
within 5 grep -q ' reload ' "$dir/serve.log"
act trip
within 5 webhook delivered 4
[ "$(line 7 | cut -d' ' -f4)" = another-secret-of-it ] || fail "the old token: $(line 7)"
received 7 || fail "more than transitions: $(cat "$dir/received")"
! grep -q 'team=a\|secret' "$dir/serve.log" || fail "a secret is in the log"
curl -sf "$site/metrics" | promtool check metrics >"$dir/body" || fail "the metrics page: $(cat "$dir/body")"

# One that hangs keeps nobody, not even the end.
echo hang >"$dir/mode"
act reset
within 5 received 8
act trip
[ "$(curl -s "http://127.0.0.1:$listen/")" = spare ] || fail "calls wait for a webhook that hangs"
kill "$pid"
wait "$pid" || fail "ended with status $?"
grep -q "neap ends before 2 transitions could be delivered" "$dir/serve.log" || fail "what is lost goes unsaid"

# Nobody there, without admin pages.
kill "$receiver"
wait "$receiver" 2>"$dir/err" || :
serve --admin off --webhook "http://127.0.0.1:$hook"
for i in 1 2; do curl -s "http://127.0.0.1:$listen/" -o "$dir/body"; done
within 5 grep -q "webhook 127.0.0.1:$hook: .*; 1 wait, the first is tried again" "$dir/serve.log"
echo 200 >"$dir/mode"
receive
within 10 received 9
# B164: every number is named by what it is, and the text has the same.
line 9 | grep -q '^200 / [0-9a-f]*-1 - .*"calls": 2,.*"limit": 2,"measured": 2,.*"reason": "consecutive_failures","text": "[^"]*: 2 failures in a row, limit 2;' ||
  fail "no rule, numbers and limit: $(line 9)"
kill "$pid"
wait "$pid" || fail "ended with status $?"

# What can't be is told before anything is opened.
refused() { # PATTERN ARGUMENTS...
  expected=$1
  shift
  if "$neap" serve --listen 127.0.0.1:$listen --admin off --policy "$dir/limits.lua" \
    --upstream http://127.0.0.1:9 "$@" 2>"$dir/err"; then fail "$*: it starts"; fi
  grep -q "$expected" "$dir/err" || fail "$*: $(cat "$dir/err")"
}
refused 'no webhook that it would be sent to' --webhook-token-file "$dir/token"
chmod 644 "$dir/token"
refused 'has mode 0644' --webhook http://127.0.0.1:$hook --webhook-token-file "$dir/token"
