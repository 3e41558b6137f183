# Retries, a bulkhead and deadlines of the sidecar as a process: three in a row in front of an
# upstream that is dead, and what reaches it.
. "$(dirname "$0")/support.sh"

neap=${NEAP_BIN:?}
equal() { [ "$2" = "$3" ] || fail "$1: expected $2, got $3"; }

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 9)
up=$1 edge=$2 middle=$3 back=$4 edge_admin=$5 middle_admin=$6 back_admin=$7 one=$8 one_admin=$9

$lua examples/demo/upstream.lua --quiet --listen 127.0.0.1:$up >"$dir/upstream.log" &
pids="$pids $!"

sidecar() { # NAME LISTEN UPSTREAM ADMIN KEYS
  policy "$1" "trip = { failures = 1000000 }, $5"
  "$neap" serve --listen "127.0.0.1:$2" --upstream "http://127.0.0.1:$3" \
    --admin "127.0.0.1:$4" --policy "$dir/policies/$1.lua" >"$dir/$1.log" 2>&1 &
  pids="$pids $!"
}
value() { curl -sf "http://127.0.0.1:$1/metrics" | sed -n "s/^$2 //p"; } # ADMIN SERIES
is_up() { curl -s -o "$dir/up" --max-time 2 "http://127.0.0.1:$1/flags/a"; }
answered() { curl -s "http://127.0.0.1:$up/_fail" | sed 's/.*"answered"://; s/}//'; }
becomes() { curl -s -o "$dir/out" -X POST "http://127.0.0.1:$up/_fail?mode=$1"; }

retry='mode = "forced_closed", retry = { base_ms = 1, max_ms = 2, budget_per_s = 0 }'
sidecar edge $edge $middle $edge_admin "$retry"
sidecar middle $middle $back $middle_admin "$retry"
sidecar back $back $up $back_admin "$retry"
within 10 is_up $back
within 10 is_up $middle
within 10 is_up $edge

# ---- Three layers of three attempts: without a budget, 27 for one ----

calls=200 before=$(answered)
becomes 500
# shellcheck disable=SC2046  # a list of addresses
curl -s $(seq -f "http://127.0.0.1:$edge/flags/a%.0f" $calls) >"$dir/out"
reached=$(($(answered) - before))
echo "$calls calls through 3 layers of 3 attempts reach a dead upstream $reached times, not" \
  "$((calls * 27))"
# 1.1 ^ 3, and the reserve of 10 at each layer
[ "$reached" -ge $calls ] || fail "only $reached"
[ "$reached" -le 301 ] || fail "so many: $reached"
retries() { value $edge_admin "neap_retries_total{policy=\"edge\",result=\"$1\"}"; }
[ "$(retries failure)" -le 30 ] || fail "the edge has tried again $(retries failure) times"
[ "$(retries failure)" -ge 25 ] || fail "the edge has tried again only $(retries failure) times"
[ "$(retries budget)" -ge 170 ] || fail "the budget kept it from $(retries budget)"
equal "what the edge has left" 0 "$(value $edge_admin 'neap_retry_budget{policy="edge"}')"

# ---- What may not be sent twice is not ----

wishes=$(retries budget)
curl -s -o "$dir/out" -d x "http://127.0.0.1:$edge/flags/a"
equal "wishes to send a POST again" "$wishes" "$(retries budget)"

# ---- A bulkhead of one, and a client's deadline ----

sidecar one $one $up $one_admin 'bulkhead = { concurrent = 1 }'
becomes ok
within 10 is_up $one
becomes hang
curl -s -o "$dir/first" -w '%{http_code}' -H 'Neap-Deadline-Ms: 1500' \
  "http://127.0.0.1:$one/flags/a" >"$dir/first.status" &
first=$!
pids="$pids $first"
in_flight() { value $one_admin 'neap_bulkhead_in_flight{policy="one",key="[^"]*"}'; }
has_one() { in_flight | grep -qx 1; }
within 1 has_one
second=$(curl -s -w ' %{http_code}' "http://127.0.0.1:$one/flags/b")
case $second in
  *'"reason":"bulkhead"'*503) ;;
  *) fail "no refusal by the bulkhead: $second" ;;
esac
wait $first
equal "the status after a deadline" 504 "$(cat "$dir/first.status")"
grep -q "one/.*: no answer by the call's deadline of 1500 ms" "$dir/first" ||
  fail "whose deadline was it? $(cat "$dir/first")"
has_none() { in_flight | grep -q 1 && return 1 || return 0; }
within 1 has_none
refused='neap_bulkhead_rejected_total{policy="one",key="[^"]*"}'
equal "refused for want of a slot" 1 "$(value $one_admin "$refused" | sort -n | tail -1)"
