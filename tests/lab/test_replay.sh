# neap replay: each format as its specification has it; the same traffic in all of them comes to the
# same; what is damaged is left out and told; what a policy's functions say counts.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
here=$(cd "$(dirname "$0")" && pwd)
cd "$root"

has() { grep -qF -- "$1" "$2" || fail "no $1 in $(head -c 3000 "$2")"; }
# exits STATUS ARGUMENTS...: what it prints is in $dir/out
exits() {
  expected=$1
  shift
  status=0
  "$neap" replay "$@" >"$dir/out" 2>&1 || status=$?
  [ $status -eq "$expected" ] || fail "$*: $status, not $expected: $(head -c 1000 "$dir/out")"
}

policy plain 'trip = { consecutive_failures = 1000 }' "$dir"
policy shop 'window = { kind = "time", length_ms = 2000 },
  trip = { failure_rate = 0.5, minimum_calls = 10 }, open = { cooldown_ms = 2000, jitter = 0.3 },
  half_open = { probes = 3, successes = 2 }, timeout_ms = 500' "$dir"

# ---- Samples, each as its specification says ------------------------------------------------------

$lua "$here/replay_checks.lua" samples "$neap" "$dir/plain.lua"

# ---- The same minute, in all formats, compressed, in pieces, from standard input ------------------

traffic=$dir/traffic
mkdir "$traffic"
$lua "$here/traffic.lua" "$traffic"
nginx='$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" '
nginx=$nginx'"$http_user_agent" $msec $request_time "$upstream_addr" $upstream_status'
same() {
  name=$1
  shift
  "$neap" replay "$@" --policy "$dir/shop.lua" --json >"$dir/$name.json"
}
same recording "$traffic/calls.rec"
same json "$traffic/calls.jsonl"
same csv "$traffic/calls.csv"
same envoy "$traffic/envoy.jsonl"
same har "$traffic/calls.har"
same nginx "$traffic/nginx.log" --log-format "$nginx"
same apache "$traffic/apache.log" --log-format '%h %l %u %{usec}t "%r" %>s %b %D'
gzip -c "$traffic/calls.jsonl" >"$dir/all.gz"
same gzip "$dir/all.gz"
same stdin - <"$traffic/calls.jsonl"
# Rotated ones in the wrong order; two servers, side by side; gzip in two members.
head -n 700 "$traffic/calls.jsonl" | gzip -c >"$dir/part.1"
tail -n +701 "$traffic/calls.jsonl" >"$dir/part"
same rotated "$dir/part" "$dir/part.1"
awk 'NR % 2' "$traffic/calls.jsonl" >"$dir/one"
awk 'NR % 2 == 0' "$traffic/calls.jsonl" >"$dir/other"
same servers "$dir/one" "$dir/other"
{ head -n 500 "$traffic/calls.jsonl" | gzip -c; tail -n +501 "$traffic/calls.jsonl" | gzip -c; } >"$dir/two.gz"
same members "$dir/two.gz"
(cd "$dir" && $lua "$here/replay_checks.lua" same recording.json json.json csv.json envoy.json \
  har.json nginx.json apache.json gzip.json stdin.json rotated.json servers.json members.json)
# An hour later once more: named first, it is read last.
sed 's/T12:/T13:/' "$traffic/calls.jsonl" >"$dir/later"
cat "$traffic/calls.jsonl" "$dir/later" >"$dir/both"
same both "$dir/both"
same apart "$dir/later" "$traffic/calls.jsonl"
$lua "$here/replay_checks.lua" same "$dir/both.json" "$dir/apart.json"
# Decimal fractions and RFC 4180 are not all: a time to the second is spread, nothing else changes.
exits 0 "$traffic/nginx.log" --policy "$dir/shop.lua"
has "nginx.log: access log, combined" "$dir/out"
has "The time of 1,200 calls is to the second" "$dir/out"
has "The log does not say how long calls took" "$dir/out"
! grep -q 'waiting saved' "$dir/out" || fail "waiting is told that nobody knows"
exits 0 "$traffic/calls.csv" --policy "$dir/shop.lua"
has "oldest last good answer   18.4 s  at 2025-12-01 12:00:38.350" "$dir/out"

# Without $request_time the upstreams were asked one after the other up to the line's time.
cat >"$dir/access.log" <<'LOG'
"GET /a HTTP/1.1" 200 10.0.0.1:80 200 5.120 1760104536.120
"GET /b HTTP/1.1" 200 10.0.0.1:80, 10.0.0.2:80 502, 200 0.005, 0.300 1760104537.307
LOG
exits 0 "$dir/access.log" --policy "$dir/shop.lua" --log-format \
  '"$request" $status $upstream_addr $upstream_status $upstream_response_time $msec'
has "3 calls in 6.31 s, from 2025-10-10 13:55:31.000 to 2025-10-10 13:55:37.307 UTC" "$dir/out"

# ---- What a recording says of answers is its policy's -----------------------------------------------

printf '%s\n' '#neap-recording 1' 't 1760104536000' 'p 0 shop h 1' 'p 1 other h 1' 'k 0 0 default' \
  'k 1 1 default' 'c 0 10 5 a200 j=s' 'f 0 0 last_good 70' 'f 1 0 default 0' 'c 1 10 5 a200 j=s' \
  'c 0 5000 100 a200 s=4000' >"$dir/two"
exits 0 "$dir/two" --policy "$dir/shop.lua"
has "answered instead, as it was recorded: 1 last_good (up to 70 ms old)" "$dir/out"
exits 0 "$dir/two" --policy "$dir/shop.lua" --of other
has "answered instead, as it was recorded: 1 default" "$dir/out"

# ---- What a policy says ---------------------------------------------------------------------------

cat >"$dir/own.lua" <<'LUA'
local seen = 0
return {
  name = "own",
  trip = { decide = function(s) return s.consecutive_failures >= 7 end, consecutive_failures = 50 },
  open = { cooldown_ms = 1000, jitter = 0 },
  half_open = { decide = function(round) return round.succeeded >= 1 and "close" or nil end },
  key = function(call) return route(call.request.target, { "/items/{id}" }) end,
  classify = function(call)
    if call.status == 503 and call.duration_ms < 1000 then return "failure" end
    return "success"
  end,
}
LUA
exits 0 "$traffic/calls.jsonl" --policy "$dir/own.lua"
has "/items/{id}  closed -> open: the policy's function says so; open for 1000 ms, level 1" "$dir/out"
has "/items/{id}  half_open -> closed: the policy's function says so" "$dir/out"
exits 0 "$traffic/calls.jsonl" --policy "$dir/own.lua" --key status
has "503  closed -> open: the policy's function says so" "$dir/out"
# A mistake in a function is told, and does not end the replay.
mkdir "$dir/bad"
sed 's/call.duration_ms < 1000/seen.x.y/' "$dir/own.lua" >"$dir/bad/own.lua"
exits 0 "$traffic/calls.jsonl" --policy "$dir/bad/own.lua"
has "own: its functions failed 200 times, first: classify: " "$dir/out"

# What a deployment sets, and what a dependency asks for.
cat >"$dir/asked.lua" <<'LUA'
return {
  name = "asked",
  trip = { consecutive_failures = params.limit or 9 },
  open = { cooldown_ms = 1000, jitter = 0 },
}
LUA
echo 'return { asked = { limit = 1 }, another = { limit = 5 } }' >"$dir/params.lua"
echo '{"ts":1764590400.5,"status":503,"retry_after":"30","duration_ms":5}' >"$dir/asks"
exits 0 "$dir/asks" --policy "$dir/asked.lua"
has "asked: would never have opened" "$dir/out"
exits 0 "$dir/asks" --policy "$dir/asked.lua" --params "$dir/params.lua"
has "closed -> open: 1 failure in a row, limit 1; open for 30000 ms, level 1" "$dir/out"

# Two policies, side by side; the seed changes the jitter, and nothing else does.
policy quick 'trip = { consecutive_failures = 3 }, open = { cooldown_ms = 1000 }, timeout_ms = 500' "$dir"
exits 0 "$traffic/calls.jsonl" --policy "$dir/shop.lua" --policy "$dir/quick.lua"
tr -s " " <"$dir/out" >"$dir/squeezed"
has " times opened 3 17.4 s not closed 4 17.8 s not closed +1" "$dir/squeezed"
for seed in 1 1 2; do
  "$neap" replay "$traffic/calls.jsonl" --policy "$dir/shop.lua" --seed $seed --top 100 >>"$dir/seed$seed"
done
[ "$(wc -l <"$dir/seed1")" = "$((2 * $(wc -l <"$dir/seed2")))" ] || fail "seeds"
head -n "$(wc -l <"$dir/seed2")" "$dir/seed1" >"$dir/once"
tail -n "$(wc -l <"$dir/seed2")" "$dir/seed1" | cmp - "$dir/once"
! cmp -s "$dir/once" "$dir/seed2" || fail "another seed, the same jitter"

# A page that asks nobody for anything, whatever keys are called.
sed 's/"uri":"[^"]*"/"uri":"<script>alert(1)<\/script>"/' "$traffic/calls.jsonl" >"$dir/hostile"
exits 0 "$dir/hostile" --policy "$dir/shop.lua" --policy "$dir/quick.lua" --key target --html "$dir/page.html"
has "shop would have opened 3 times and refused 343 of 1,200 calls" "$dir/page.html"
has "&lt;script&gt;alert(1)&lt;/script&gt;" "$dir/page.html"
has "<th scope=\"col\">change</th>" "$dir/page.html"
[ "$(grep -c '<figure' "$dir/page.html")" = 1 ] || fail "figures"
! grep -qE '<script>alert|https?://[^w]|src=' "$dir/page.html" || fail "the page asks somebody"
# Two limits at one height have one text, not two that lie upon each other.
echo 'return { name = "twin", trip = { failure_rate = 0.5, slow_rate = 0.5, slow_call_ms = 900, minimum_calls = 9 } }' >"$dir/twin.lua"
exits 0 "$traffic/nginx.log" --policy "$dir/twin.lua" --html "$dir/twin.html"
has "twin, failure_rate; twin, slow_rate" "$dir/twin.html"
exits 1 "$traffic/calls.rec" --policy "$dir/shop.lua" --html "$dir/no/page.html"
has "neap replay: $dir/no/page.html: No such file or directory" "$dir/out"

# ---- What can't be read is one line that says so ---------------------------------------------------

: >"$dir/empty"
exits 1 "$dir/empty" --policy "$dir/shop.lua"
has "neap replay: $dir/empty: is empty" "$dir/out"
exits 1 "$dir/none" --policy "$dir/shop.lua"
has "neap replay: $dir/none: No such file or directory" "$dir/out"
exits 1 "$dir" --policy "$dir/shop.lua"
has "is a directory; name the logs in it" "$dir/out"
head -c 5000 /dev/urandom >"$dir/noise"
exits 1 "$dir/noise" --policy "$dir/shop.lua"
[ "$(wc -l <"$dir/out")" = 1 ] || fail "more than a line about noise"
echo '[{"time":1}]' >"$dir/list"
exits 1 "$dir/list" --policy "$dir/shop.lua"
has "is a JSON list: an object a line is needed" "$dir/out"
echo '{"a":1}' >"$dir/nothing"
exits 1 "$dir/nothing" --policy "$dir/shop.lua"
has "no line can be read: line 1 of $dir/nothing is without a time" "$dir/out"
head -c 3000 "$dir/all.gz" >"$dir/cut.gz"
exits 0 "$dir/cut.gz" --policy "$dir/shop.lua"
has "cut off: the log ends in the middle" "$dir/out"
exits 1 "$traffic/calls.rec" --policy "$dir/quick.lua"
has "the recording has no call of the policy quick; --of says whose to take" "$dir/out"
exits 0 "$traffic/calls.rec" --policy "$dir/quick.lua" --of shop
exits 2 --policy "$dir/shop.lua"
exits 2 "$traffic/calls.rec"
exits 2 "$traffic/calls.rec" --policy "$dir/shop.lua" --map took=x
has "there is no role took" "$dir/out"
exits 1 "$traffic/calls.rec" --policy "$dir/shop.lua" --log-format '$status$request_time'
has "two variables with nothing in between" "$dir/out"
exits 1 "$traffic/calls.rec" --policy "$dir/gone.lua"
exits 1 "$traffic/calls.jsonl" --policy "$dir/shop.lua" --key tenant
has "neap replay: --key tenant: no call has such a field" "$dir/out"
tail -c +50 "$traffic/calls.jsonl" >"$dir/cut" # rotated in the middle of a line
exits 0 "$dir/cut" --policy "$dir/shop.lua"
has "1 line of 1,200 damaged" "$dir/out"
{ cat "$traffic/calls.jsonl"; head -c 2000000 /dev/zero | tr '\0' '['; echo; cat "$dir/later"; } >"$dir/long"
exits 0 "$dir/long" --policy "$dir/shop.lua"
has "longer than a line may be  first $dir/long:1201" "$dir/out"

# ---- Nothing but what was asked for is said where there is no terminal ----------------------------

"$neap" replay "$traffic/calls.jsonl" --policy "$dir/shop.lua" 2>"$dir/err" >"$dir/out"
[ ! -s "$dir/err" ] || fail "said $(cat "$dir/err")"
