# `neap serve --state-dir`: what outlives a kill: queued calls, delivered in order when the upstream
# is back, and last good answers.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
up=$1 listen=$2 admin=$3
sidecar=http://127.0.0.1:$listen pages=http://127.0.0.1:$admin
log=$dir/neap.log
mkdir -m 700 "$dir/state"

cat >"$dir/webhooks.lua" <<'LUA'
return {
  name = "webhooks",
  trip = { consecutive_failures = 3 },
  open = { cooldown_ms = 300, max_cooldown_ms = 300, jitter = 0 },
  half_open = { probes = 1, successes = 1 },
  timeout_ms = 1000,
  fallback = {
    fallback.last_good { max_age_ms = 3600000, persist = "answers" },
    fallback.queue("events", { attempts = 2 }),
    fallback.fail {},
  },
}
LUA

start_neap() {
  : >"$log"
  "$neap" serve --listen 127.0.0.1:$listen --upstream http://127.0.0.1:$up \
    --admin 127.0.0.1:$admin --policy "$dir/webhooks.lua" --state-dir "$dir/state" 2>"$log" &
  pid=$!
  pids="$pids $pid"
  within 10 grep -q "serving on" "$log"
}
# It writes down what was done; /poison is never right.
start_upstream() {
  upstream "$up" upstream '
    local key = call.head:match "idempotency%-key: (%S+)" or "-"
    note(call.method, call.path, key, call.body)
    return call.path == "/poison" and 422 or 200, "done"'
}
status() { curl -s -o "$dir/body" -w '%{http_code}' --max-time 5 "$@"; }

start_upstream
start_neap
[ "$(status "$sidecar/known")" = 200 ] || fail "the upstream does not answer"
kill -KILL $upstream

# ---- Down: calls are queued, and told so when they are on the disk ----

for _ in 1 2 3 4; do status "$sidecar/none" >"$dir/out"; done
[ "$(status -d "a=0" "$sidecar/event")" = 202 ] || fail "not queued: $(cat "$dir/body")"
grep -q '^{"id":"[0-9a-f]*"}$' "$dir/body" || fail "no id: $(cat "$dir/body")"
first=$(sed 's/.*:"//; s/".*//' "$dir/body")
[ "$(status -d "poison" "$sidecar/poison")" = 202 ] || fail "not queued"
for i in $(seq 1 20); do
  code=$(status -H "Idempotency-Key: mine-$i" -d "a=$i" "$sidecar/event")
  [ "$code" = 202 ] || fail "event $i: $code"
done
curl -s -i "$sidecar/known" | grep -qi "^Neap-Source: last_good" || fail "no last good answer"
curl -sf "$pages/metrics" |
  grep -q '^neap_fallback_total{policy="webhooks",source="queue",result="answered"} 22$' ||
  fail "$(curl -s "$pages/metrics" | grep source=.queue)"
metric() { curl -sf "$pages/metrics" | grep -qxF "$1" || fail "not $1: $(curl -s "$pages/metrics" | grep queue)"; }
metric 'neap_queue_waiting{policy="webhooks",queue="events"} 22'
[ "$(stat -c %a "$dir/state/events.queue")" = 600 ] || fail "others can read the queue"

# ---- Killed in the middle of it, with the upstream still down ----

kill -KILL $pid
wait $pid || :
printf 'E 100 0000000000000000\nhalf a rec' >>"$dir/state/events.queue" # as a write that was cut off
start_neap
grep -q "events.queue: the last record is not whole, or damaged: cut at byte" "$log" ||
  fail "no word about the torn record: $(cat "$log")"

# ---- The upstream is back ----

start_upstream
all_done() { [ "$(grep -c "POST /event" "$dir/upstream.asked")" -ge 21 ]; }
within 20 all_done
grep "POST /event" "$dir/upstream.asked" | awk '{ print $4 }' >"$dir/order"
{ echo "a=0"; for i in $(seq 1 20); do echo "a=$i"; done; } >"$dir/wanted"
diff "$dir/wanted" "$dir/order" >&2 || fail "not in order, or not once"
grep -q "POST /event $first a=0" "$dir/upstream.asked" || fail "not with its id: $(head -n 1 "$dir/upstream.asked")"
grep -q "POST /event mine-7 a=7" "$dir/upstream.asked" || fail "not with the client's own key"
[ "$(grep -c "POST /poison" "$dir/upstream.asked")" = 2 ] || fail "the poisonous call was not made twice"
grep -q "goes to the dead letters" "$log" || fail "no word about the dead letter"
grep -q /poison "$dir/state/events.dead" || fail "no dead letter"
[ "$(status "$sidecar/known")" = 200 ] || fail "does not serve after it"
metric 'neap_queue_waiting{policy="webhooks",queue="events"} 0'
metric 'neap_queue_calls_total{policy="webhooks",queue="events",result="done"} 21'
metric 'neap_queue_calls_total{policy="webhooks",queue="events",result="dead"} 1'
curl -sf "$pages/metrics" | grep -q '^neap_upstream_background_total{route="default",what="replay"} [2-9]' ||
  fail "$(curl -s "$pages/metrics" | grep background)"

# ---- Ended properly: last good answers are there at the next start, in an outage ----

kill $pid
wait $pid || fail "ended with status $?"
kill -KILL $upstream
start_neap
for _ in 1 2 3 4; do status "$sidecar/none" >"$dir/out"; done
curl -s -i "$sidecar/known" >"$dir/answer"
grep -qi "^Neap-Source: last_good" "$dir/answer" || fail "no last good answer: $(cat "$dir/answer")"
grep -q done "$dir/answer" || fail "another answer"

# ---- One directory, two sidecars: the second says so, and queues nothing ----

"$neap" serve --listen 127.0.0.1:0 --upstream http://127.0.0.1:$up --admin off \
  --policy "$dir/webhooks.lua" --state-dir "$dir/state" 2>"$dir/second.log" &
second=$!
pids="$pids $second"
within 10 grep -q "serving on" "$dir/second.log"
grep -q "another process has this queue" "$dir/second.log" || fail "two have one queue"
kill $second
kill $pid
wait $pid || fail "ended with status $?"

# ---- A queued call that no route is for waits, as in an outage: nothing says that it is wrong ----

start_neap
for _ in 1 2 3 4; do status "$sidecar/none" >"$dir/out"; done
[ "$(status -d "b=1" "$sidecar/event")" = 202 ] || fail "not queued"
kill $pid
wait $pid || fail "ended with status $?"
cat >"$dir/routes.lua" <<LUA
return {
  policies = { "$dir/webhooks.lua" },
  routes = {
    { name = "other", policy = "webhooks", prefix = "/other", upstream = "http://127.0.0.1:$up" },
  },
}
LUA
"$neap" serve "$dir/routes.lua" --listen 127.0.0.1:0 --admin off \
  --state-dir "$dir/state" 2>"$dir/unrouted.log" &
pid=$!
pids="$pids $pid"
within 10 grep -q "queued call waits: no route is for POST /event" "$dir/unrouted.log"
kill $pid
wait $pid || fail "ended with status $?"
grep -a -q '^A ' "$dir/state/events.queue" && fail "no route, and that was the call's own fault"
start_upstream
start_neap
within 10 grep -q "POST /event .* b=1" "$dir/upstream.asked"
kill -KILL $upstream
kill $pid
wait $pid || fail "ended with status $?"

# ---- No room on the disk: 503, and it serves on; with room it queues again ----

rm -f "$dir/state/"*
(
  ulimit -f 64 # of 512 bytes
  exec "$neap" serve --listen 127.0.0.1:$listen --upstream http://127.0.0.1:$up --admin off \
    --policy "$dir/webhooks.lua" --state-dir "$dir/state" 2>"$dir/full.log"
) &
pid=$!
pids="$pids $pid"
within 10 grep -q "serving on" "$dir/full.log"
for _ in 1 2 3 4; do status "$sidecar/none" >"$dir/out"; done
big=$(printf '%020000d' 0)
[ "$(status -d "$big" "$sidecar/event")" = 202 ] || fail "not queued"
code=$(status -d "$big" "$sidecar/event")
[ "$code" = 503 ] || fail "without room: $code"
[ "$(status -d small "$sidecar/event")" = 202 ] || fail "not queued after one that had no room"
kill -0 $pid || fail "it is dead for want of room"
kill $pid
wait $pid || fail "ended with status $?"
