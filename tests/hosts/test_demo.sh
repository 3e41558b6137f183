# What the README promises of `make run`, done: an outage, the last good answer, the default, then
# recovery, and a policy that is edited while it serves.  About ten seconds.
. "$(dirname "$0")/support.sh"

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
upstream=http://127.0.0.1:$1 sidecar=http://127.0.0.1:$2 admin=http://127.0.0.1:$3

ask() { curl -si --max-time 5 "$sidecar/flags/$1" | tr -d '\r' >"$dir/answer"; }
header() { sed -n "s/^$1: //p" "$dir/answer"; }
status() { sed -n '1s/^HTTP[^ ]* \([0-9]*\).*/\1/p' "$dir/answer"; }
says() { ask "$1" && [ "$(status)" = 200 ] && [ "$(header Neap-Source)" = "$2" ]; }
fails_with() {
  curl -sf -X POST "$upstream/_fail?mode=$1" >/dev/null || fail "the upstream takes no orders"
}
# metric SERIES VALUE
metric() {
  curl -sf "$admin/metrics" | grep -qxF "$1 $2"
}
breaker='policy="flag_provider",key="default"'
state_is() { metric "neap_breaker_state{$breaker}" "$1"; }
logged() { grep -q -- "$1" "$dir/log"; }

cp policies/flag_provider.lua "$dir/flag_provider.lua"
UPSTREAM_PORT=$1 LISTEN_PORT=$2 ADMIN_PORT=$3 POLICY=$dir/flag_provider.lua \
  scripts/run.sh </dev/null >"$dir/log" 2>&1 &
pid=$!
pids="$pids $pid"

# All is well.
within 10 curl -sf "$admin/healthz" -o /dev/null
state_is 0 || fail "not closed at first"
says new-checkout primary || fail "no primary answer: $(cat "$dir/answer")"
[ -z "$(header Age)" ] || fail "a primary answer has an age"

# The first call is counted, and only that.
metric "neap_calls_total{$breaker,outcome=\"success\"}" 1 ||
  fail "B163: one call was made, another number is shown"

# An outage: the last good answer, and a default for a flag nobody has asked for before.
fails_with 500
sleep 1.1
says new-checkout last_good || fail "no last good answer: $(cat "$dir/answer")"
[ "$(header Age)" -ge 1 ] || fail "the answer is over a second old, not $(header Age)"
[ "$(header Cache-Control)" = no-store ] || fail "a last good answer may be kept by others"
grep -q '"key":"new-checkout"' "$dir/answer" || fail "another answer: $(cat "$dir/answer")"
opens() { says new-checkout last_good && state_is 2; }
within 3 opens
says never-asked default || fail "no default: $(cat "$dir/answer")"
logged 'closed -> open: 5 failures in .* calls, limit 5' ||
  fail "the log does not say why it opened, and with which numbers"

curl -sf "$admin/breakers/flag_provider/default" >"$dir/breaker"
for field in '"reason": "failures"' '"measured": 5' '"limit": 5' '"to": "open"' '"epoch": 1' \
  '"at": "2...-..-..T..:..:..Z"' '"text": "flag_provider/default: closed -> open: 5 failures in'; do
  sed -n '/"last_transition"/,/}/p' "$dir/breaker" | grep -q "$field" ||
    fail "/breakers lacks $field: $(cat "$dir/breaker")"
done

# It comes back.
fails_with ok
within 10 says new-checkout primary
within 5 says new-checkout primary
within 5 state_is 0
logged 'open -> half_open: the cooldown is over, a probe goes' || fail "the first probe is not in the log"
logged 'half_open -> closed: 2 probes succeeded, limit 2  epoch=' || fail "nor the recovery"

# The policy is edited: two failures are enough now.
sed -i 's/failures = 5/failures = 2/' "$dir/flag_provider.lua"
within 5 logged 'flag_provider.lua: reloaded'
state_is 0 || fail "a reload changed the state"
says new-checkout primary || fail "no primary answer after the reload"
sleep 2.1 # what is left of the first outage leaves the window
fails_with 500
says new-checkout last_good || fail "no last good answer after the reload"
state_is 0 || fail "one failure opened it"
says new-checkout last_good || fail "no last good answer after the reload"
state_is 2 || fail "two failures did not open it: the new rule is not in force"
logged '2 failures in .* calls, limit 2' || fail "the log does not name the new limit"

# A mistake: the old one keeps serving, and the log says where the mistake is.
sed -i 's/failures = 2/failures = = 2/' "$dir/flag_provider.lua"
line=$(grep -n 'failures = = 2' "$dir/flag_provider.lua" | cut -d: -f1)
within 5 logged "flag_provider.lua:$line:"
says new-checkout last_good || fail "a mistake in the policy stopped the service"
curl -sf "$admin/policies" | grep -q "flag_provider.lua:$line:" || fail "/policies does not show it"
metric 'neap_policy_stale{policy="flag_provider"}' 1 || fail "nor do the metrics"

# Ctrl-C: both stop, and nothing is left on the ports.
kill "$pid"
wait "$pid" || fail "make run ended with status $?"
logged 'stopped after' || fail "the upstream did not stop by itself"
logged 'SIGTERM: draining' || fail "the sidecar did not drain"
! curl -s "$sidecar/" -o /dev/null || fail "somebody still listens"
