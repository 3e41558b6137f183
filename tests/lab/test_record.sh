# `neap serve --record`, and the proof of neap replay: what the sidecar's breakers really did in an
# outage, told by its log, is what they do when its recording is replayed: the same transitions of the
# same keys for the same reasons, at the same times.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 3)
up=$1 listen=$2 admin=$3
sidecar=http://127.0.0.1:$listen

is() { [ "$1" = "$2" ] || fail "$3: $2, not $1"; }
has() { grep -qF -- "$1" "$2" || fail "no $1 in $(head -c 3000 "$2")"; }

cat >"$dir/shop.lua" <<'LUA'
return {
  name = "shop",
  window = { kind = "time", length_ms = 2000 },
  trip = { failures = 5, slow_rate = 0.5, slow_call_ms = 200, minimum_calls = 8 },
  open = { cooldown_ms = 250, backoff = 2, jitter = 0.5 },
  half_open = { probes = 3, successes = 2 },
  timeout_ms = 500,
  key = function(call) return route(call.request.target, { "/a/{id}", "/b/{id}", "/c/{id}" }) end,
  fallback = { fallback.last_good { max_age_ms = 60000 }, fallback.default { status = 503, body = "" } },
  classify = function(call)
    if call.status == 404 then return "failure", "here it is one" end
    return classify.http(call)
  end,
}
LUA
export MODE="$dir/mode"
echo ok >"$MODE"
upstream "$up" upstream '
  local path, mode = call.path, io.open(os.getenv "MODE"):read "l"
  if mode == "fail" and path:find "^/a/" then return 404, "gone" end
  if mode == "hang" then return end
  return 200, "done"'

serve() {
  : >"$dir/log"
  "$neap" serve --listen "127.0.0.1:$listen" --admin "127.0.0.1:$admin" --log-format json \
    --upstream "http://127.0.0.1:$up" --policy "$dir/shop.lua" --record "$dir/calls" \
    >>"$dir/log" 2>&1 &
  pid=$! pids="$pids $!"
  within 10 grep -q "serving on" "$dir/log"
}

# calls PATH NUMBER: one after the other
calls() {
  i=0
  while [ $i -lt "$2" ]; do
    echo "url = $sidecar$1/$i"
    echo "output = /dev/null"
    i=$((i + 1))
  done >"$dir/urls"
  curl -s -K "$dir/urls"
}
refuses() { [ "$(curl -s -o "$dir/out" -w '%{http_code}' "$sidecar$1/0")" = 503 ]; }
answers() { [ "$(curl -s -o "$dir/out" -w '%{http_code}' "$sidecar$1/0")" = 200 ]; }
hang() { for i in 1 2 3 4 5 6 7 8 9 10; do curl -s -o "$dir/out$i" "$sidecar$1/$i" & done; }

# ---- An outage of one key, then a dependency that hangs -------------------------------------------

serve
calls /a 12
calls /b 12
echo fail >"$MODE"
calls /a 20                    # opens by failures, refuses
calls /b 20                    # another key, which is well
within 10 sh -c '! grep -q half_open "$1" || exit 0; curl -s -o /dev/null "$2"; exit 1' - "$dir/log" \
  "$sidecar/a/1"               # a probe fails
echo ok >"$MODE"
within 10 answers /a
calls /a 10
within 10 sh -c 'curl -s -o /dev/null "$2"; grep -q "half_open -> closed" "$1"' - "$dir/log" \
  "$sidecar/a/1"
echo hang >"$MODE"
hang /c                        # slow before they end, then timeouts
within 10 refuses /c
echo ok >"$MODE"
within 20 sh -c 'curl -s -o /dev/null "$2"; test "$(grep -c "half_open -> closed" "$1")" -ge 2' - \
  "$dir/log" "$sidecar/c/1"
kill "$pid"
within 10 has_ended

# ---- The recording says what was ------------------------------------------------------------------

"$neap" replay "$dir/calls" --policy "$dir/shop.lua" --json >"$dir/replay.json"
$lua - "$dir/log" "$dir/replay.json" <<'LUA'
local cjson = require "cjson"
local function at_ms(text)
  local y, mo, d, h, mi, s, ms = text:match("(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)%.(%d+)Z")
  return os.time { year = y, month = mo, day = d, hour = h, min = mi, sec = s, isdst = false } * 1000
    + tonumber(ms)
end
local real, replayed = {}, {}
for line in io.lines(arg[1]) do
  local ok, one = pcall(cjson.decode, line)
  if ok and one.event == "transition" then real[#real + 1] = one end
end
local result = cjson.decode(io.open(arg[2]):read "a")
replayed = result.policies[1].transitions
local function told(one)
  return ("%s: %s -> %s, %s, level %d, open %s ms, measured %s, limit %s"):format(one.key, one.from,
    one.to, one.reason or one.cause, one.level, one.open_ms and one.open_ms > 0 and one.open_ms or "-",
    one.measured and one.limit and one.limit > 0 and one.measured or "-",
    one.limit and one.limit > 0 and one.limit or "-")
end
local lines = {}
for i = 1, math.max(#real, #replayed) do
  local a, b = real[i], replayed[i]
  lines[i] = (a and told(a) or "nothing") .. "  |  " .. (b and told(b) or "nothing")
  if a and b then lines[i] = lines[i] .. ("  %+d ms"):format(at_ms(b.at) - at_ms(a.time)) end
end
local all = table.concat(lines, "\n") .. "\n"
assert(#real >= 6, "not much has happened:\n" .. all)
for i = 1, math.max(#real, #replayed) do
  assert(real[i] and replayed[i] and told(real[i]) == told(replayed[i]), "real | replayed\n" .. all)
  assert(math.abs(at_ms(replayed[i].at) - at_ms(real[i].time)) < 250, "not then\n" .. all)
end
if os.getenv "SHOW" then print(all) end
local all, source = result.policies[1], result.source
assert(all.by_record > 0, "judged as it was judged then")
assert(all.counts.unknown == source.refused and source.refused > 0)
assert(all.counts.refused_unknown == all.counts.refused, "it refuses what was refused, and no more")
assert(#source.damaged == 0 and source.missing == 0)
assert(source.answers[1].source == "default" and source.answers[1].oldest_ms == 0)
assert(source.answers[2].source == "last_good" and source.answers[2].count >= 1)
assert(source.answers[2].oldest_ms > 0 and source.answers[2].oldest_ms < 60000)
LUA

# ---- Started again, it goes on in the same file ---------------------------------------------------

before=$(wc -l <"$dir/calls")
printf 'c 0 12' >>"$dir/calls" # killed in the middle of a line
serve
calls /b 3
kill "$pid"
within 10 has_ended
is 2 "$(grep -c '^#neap-recording 1$' "$dir/calls")" "heads"
[ "$(wc -l <"$dir/calls")" -gt "$before" ] || fail "it did not go on"
"$neap" replay "$dir/calls" --policy "$dir/shop.lua" --json >"$dir/replay.json"
has '"kind": "not of the format"' "$dir/replay.json"
is 1 "$(grep -c '"kind"' "$dir/replay.json")" "damaged lines"

# ---- It is one neap's -----------------------------------------------------------------------------

serve
"$neap" serve --listen "127.0.0.1:$admin" --admin off --upstream "http://127.0.0.1:$up" \
  --policy "$dir/shop.lua" --record "$dir/calls" >"$dir/out" 2>&1 && fail "two write to one file"
has "neap serve: record $dir/calls: another neap records in it" "$dir/out"
kill "$pid"
within 10 has_ended

# ---- An answer that goes on long after it began ---------------------------------------------------
# It is judged by its head and reported at its end: a replay has to know both.

kill "$upstream"
wait "$upstream" || : # its port is free then
$lua - "$up" <<'LUA' &
local uv = require "luv"
local server = uv.new_tcp()
server:bind("127.0.0.1", tonumber(arg[1]))
assert(server:listen(9, function()
  local client, timer = uv.new_tcp(), uv.new_timer()
  server:accept(client)
  client:read_start(function(_, chunk)
    if not chunk then return client:close() end
    client:write("HTTP/1.1 200 -\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    timer:start(400, 0, function() client:write("4\r\nhalf\r\n0\r\n\r\n") end)
  end)
end))
uv.run()
LUA
pids="$pids $!"
rm "$dir/calls"
serve
within 10 sh -c '[ "$(curl -s "$1")" = halfhalf ]' - "$sidecar/a/1"
kill "$pid"
within 10 has_ended
grep -q '^c .* a200 j=s s=[0-9]' "$dir/calls" || fail "no s= in $(cat "$dir/calls")"
$lua - "$dir/calls" <<'LUA'
local took, span = io.open(arg[1]):read("a"):match("\nc %d+ %d+ (%d+) a200 j=s s=(%d+)")
assert(span - took >= 300, took .. " of " .. span)
LUA

# ---- What is no recording is left alone -----------------------------------------------------------

cp "$dir/shop.lua" "$dir/mine"
"$neap" serve --listen "127.0.0.1:$listen" --admin off --upstream "http://127.0.0.1:$up" \
  --policy "$dir/shop.lua" --record "$dir/mine" >"$dir/out" 2>&1 && fail "it has started"
has "neap serve: record $dir/mine: is there, and is no recording; name another file" "$dir/out"
cmp "$dir/shop.lua" "$dir/mine"
sed 's/^#neap-recording 1$/#neap-recording 9/' "$dir/calls" >"$dir/newer"
"$neap" replay "$dir/newer" --policy "$dir/shop.lua" >"$dir/out" 2>&1 && fail "it was read"
has "neap replay: $dir/newer: is a recording of a newer neap" "$dir/out"
