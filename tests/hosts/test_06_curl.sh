# examples/06_curl against an upstream that goes down in several ways, and comes back: it opens,
# falls back, recovers; the policy is edited meanwhile.  About ten seconds.
. "$(dirname "$0")/support.sh"

client=$build/examples/example_06_curl
[ -x "$client" ] || { echo "not built: libcurl is too old (7.84 is needed)" >&2; exit 1; }

says() { tail -n "+$from" "$dir/client.log" | grep -q -- "$1"; }
from_here() { from=$(($(wc -l <"$dir/client.log") + 1)); } # what it says from now on
upstream_is() {
  curl -sf -o /dev/null -X POST "$upstream/_fail?mode=$1" || fail "the upstream takes orders"
}

$lua examples/demo/upstream.lua --listen 127.0.0.1:0 --quiet >"$dir/upstream" 2>&1 &
pids="$!"
within 5 grep -q listening "$dir/upstream"
upstream=$(sed -n 's/.*listening on \(http:[^,]*\),.*/\1/p' "$dir/upstream")

policy=$dir/flag_provider.lua
sed 's/cooldown_ms = 5000/cooldown_ms = 300/; s/timeout_ms = 500/timeout_ms = 200/' \
  policies/flag_provider.lua >"$policy"
"$client" "$upstream" /flags/new-checkout "$policy" 100000 >"$dir/client.log" 2>&1 &
pids="$pids $!"
from=1
within 5 says "primary: 200, [68][0-9] bytes"

for mode in 500 refuse hang; do
  from_here
  upstream_is $mode
  within 5 says "closed -> open"
  from_here
  within 5 says "last_good: 200, [68][0-9] bytes" # refused, and answered
  upstream_is ok
  within 5 says "half_open -> closed"
  from_here
  within 5 says "primary: 200"
  echo "ok: an outage of the kind $mode, and its end"
done

# Nobody listens: the connection it kept is dead, and no new one is to be had.
from_here
kill "${pids%% *}"
within 5 says "closed -> open"
within 5 says "last_good: 200"
$lua examples/demo/upstream.lua --listen "${upstream#http://}" --quiet >"$dir/upstream" 2>&1 &
pids="$! ${pids#* }"
within 5 says "half_open -> closed"
echo "ok: the upstream is killed and started again"

from_here
sed -i 's/failures = 5/failures = 2/' "$policy"
within 5 says "event: .*reloaded"
sed -i 's/failures = 2/failures = = 2/' "$policy"
within 5 says "event: .*flag_provider.lua:[0-9]*:"
within 5 says "primary: 200"
echo "ok: reloaded; a mistake is an event, and the last good policy serves"

# To its end: all is closed and freed (asan), with the loop.
timeout 20 "$client" "$upstream" /flags/x policies/flag_provider.lua 5 >"$dir/last" 2>&1 ||
  fail "ends with status 0: $(cat "$dir/last")"
[ "$(grep -c "primary: 200" "$dir/last")" -eq 5 ] || fail "five calls: $(cat "$dir/last")"
"$client" "$upstream" / "$dir" 1 >"$dir/last" 2>&1 && fail "a bad policy is an error"
grep -q "flag_provider.lua:[0-9]*:" "$dir/last" || fail "that says where: $(cat "$dir/last")"
echo "ok: it ends by itself"
