# neap tune and neap simulate as programs: on a log with two outages, one of them partial, several
# processes find what one finds; too little data is told; what is wrong is told once.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
has() { grep -qF -- "$1" "$2" || fail "no $1 in $(head -c 3000 "$2")"; }

# Ten calls a second for twenty minutes; the first outage is less than two from where the log is parted, as the clock of
# the breakers runs two behind the reading.
$lua - >"$dir/calls.json" <<'LUA'
math.randomseed(5)
for s = 0, 1200 do
  local rate = s >= 620 and s < 720 and 0.9 or s >= 1000 and s < 1060 and 0.45 or 0.01
  for i = 1, 10 do
    local failed = math.random() < rate
    print(('{"time":%.3f,"status":%d,"duration_ms":%d}'):format(1764547200 + s + i / 10,
      failed and 503 or 200, failed and math.random(1200, 2200) or math.random(20, 120)))
  end
end
LUA
cat >"$dir/shop.lua" <<'LUA'
return { name = "shop", trip = { failure_rate = 0.3, minimum_calls = 5 } }
LUA
vary="--vary trip.failure_rate=0.2..0.8:0.2 --vary trip.minimum_calls=5,20"

# shellcheck disable=SC2086  # words
for jobs in 1 3; do
  "$neap" tune "$dir/calls.json" --policy "$dir/shop.lua" $vary --jobs $jobs --json >"$dir/$jobs.json"
done
cmp "$dir/1.json" "$dir/3.json" || fail "three processes found something else than one"
gzip -c "$dir/calls.json" | "$neap" tune - --policy "$dir/shop.lua" $vary --json >"$dir/stdin.json"
cmp "$dir/1.json" "$dir/stdin.json" || fail "standard input, compressed, is another log"

# Its counts are those of neap replay, version by version.
sed 's/0\.3/0.6/; s/= 5/= 20/' "$dir/shop.lua" >"$dir/other.lua"
sed -i 's/"shop"/"other"/' "$dir/other.lua"
"$neap" replay "$dir/calls.json" --policy "$dir/other.lua" --json >"$dir/replay.json"
head -8000 "$dir/calls.json" >"$dir/first.json" # two thirds
"$neap" replay "$dir/first.json" --policy "$dir/shop.lua" --json >"$dir/first_replay.json"
$lua - "$dir/1.json" "$dir/replay.json" "$dir/first_replay.json" <<'LUA'
local json = require "neap.cmd.json"
local function read(path) return assert(json.decode(assert(io.open(path)):read "a")) end
local tuned, replayed = read(arg[1]), read(arg[2])
assert(#tuned.candidates == 9, #tuned.candidates)
assert(tuned.log.calls == 12010, tuned.log.calls)
local found
for _, one in ipairs(tuned.candidates) do
  local values = one.values
  if values["trip.failure_rate"] == 0.6 and values["trip.minimum_calls"] == 20 then found = one end
end
local counts = replayed.policies[1].counts
for name, other in pairs { opened = "opened", good_calls_lost = "lost", failures_spared = "saved",
  waiting_spared_ms = "saved_ms", refused = "refused" } do
  assert(found[name] == counts[other] and found[name] > 0,
    ("%s: %s, replay says %s"):format(name, found[name], counts[other]))
end
-- It recommends one that loses fewer good calls than the policy as it is, on the front.
local best, now = tuned.recommended, tuned.candidates[1]
assert(now.is_now and best.is_front and not best.is_now)
assert(best.good_calls_lost < now.good_calls_lost)
-- What it does in the rest is what a replay of the first two thirds does not have.
local checked, first = tuned.checked, read(arg[3]).policies[1].counts
assert(math.abs(checked.until_ms - 1764548000000) < 1000 and checked.has_outage, checked.until_ms)
for name, other in pairs { opened = "opened", good_calls_lost = "lost", failures_spared = "saved",
  waiting_spared_ms = "saved_ms", refused = "refused" } do
  local rest = checked.rest_as_it_is[name]
  assert(rest == now[name] - first[other] and rest > 0 and first[other] > 0,
    ("%s: %s of %s, the first part has %s"):format(name, rest, now[name], first[other]))
end
LUA

"$neap" tune "$dir/calls.json" --policy "$dir/shop.lua" --vary trip.failure_rate=0.3,0.7 \
  --html "$dir/tune.html" >"$dir/text"
has 'Recommended: trip.failure_rate=0.7.' "$dir/text"
has '  trip = { failure_rate = 0.7, … },' "$dir/text"
has 'recommended: 0.7</text>' "$dir/tune.html"
has 'Checked: chosen by the calls until 2025-12-01 00:13:20 alone, it is' "$dir/text"
has 'In the rest, which it has not seen: opened' "$dir/tune.html"

head -500 "$dir/calls.json" >"$dir/short.json"
"$neap" tune "$dir/short.json" --policy "$dir/shop.lua" --vary trip.failure_rate=0.3,0.7 >"$dir/text"
has 'No value is recommended: the log has 500 calls; at least 1000 are needed.' "$dir/text"

# refused STATUS MESSAGE ARGUMENTS...
refused() {
  status=$1 message=$2 got=0
  shift 2
  "$neap" tune "$@" >"$dir/out" 2>"$dir/err" || got=$?
  [ $got = "$status" ] || fail "$*: $got"
  [ ! -s "$dir/out" ] && [ "$(grep -c . "$dir/err")" = 1 ] || fail "$*: $(cat "$dir/out" "$dir/err")"
  has "$message" "$dir/err"
}
refused 2 'which log? E.g.'
refused 2 'what is to be varied?' "$dir/calls.json" --policy "$dir/shop.lua"
refused 2 '--vary trip.failure_rat=1: trip.failure_rat is no key of a policy: did you mean' \
  "$dir/calls.json" --policy "$dir/shop.lua" --vary trip.failure_rat=1
refused 2 'standard input can be read once only: 60 versions at most, not 100' - \
  --policy "$dir/shop.lua" --vary trip.minimum_calls=1..99:1
refused 1 "no.json: No such file or directory" "$dir/no.json" --policy "$dir/shop.lua" --jobs 3 \
  --vary trip.minimum_calls=1..50:1
refused 1 "no.lua: No such file or directory" "$dir/calls.json" --policy "$dir/no.lua" \
  --vary trip.minimum_calls=1

# The scenarios are inside the program, in whatever directory it runs.
cd "$dir"
"$neap" simulate slow_dependency --html simulate.html >text
has 'slow_dependency: a dependency that hangs takes all workers with it (60 s, seed 1)' text
has 'recommendations: outage</text>' simulate.html
"$neap" simulate flapping --show >flapping.lua
sed -i 's/duration_ms = 300000/duration_ms = 31000/' flapping.lua
"$neap" simulate flapping.lua --json >own.json
has '"duration_ms": 31000' own.json
"$neap" simulate --list >list
[ "$(grep -c . list)" = 5 ] || fail "$(cat list)"
