# `neap serve --record` and its file: rotated, so many are kept; a disk that is full is told once, and
# neap serves on; every call is in the recording, or counted as missing there.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 2)
up=$1 listen=$2

is() { [ "$1" = "$2" ] || fail "$3: $2, not $1"; }
policy plain 'trip = { consecutive_failures = 1000 }, timeout_ms = 5000' "$dir"
upstream "$up" upstream 'return 200, "done"'

# serve FILES [BLOCKS]: a file may have so many blocks of 512 bytes
serve() {
  : >"$dir/log"
  (
    [ -z "${2:-}" ] || ulimit -f "$2"
    exec "$neap" serve --listen "127.0.0.1:$listen" --admin off --upstream "http://127.0.0.1:$up" \
      --policy "$dir/plain.lua" --record "$dir/calls" --record-bytes 8192 --record-files "$1"
  ) >>"$dir/log" 2>&1 &
  pid=$! pids="$pids $!"
  within 10 grep -q "serving on" "$dir/log"
}
made=0
# calls NUMBER: four connections side by side
calls() {
  i=0
  while [ $i -lt $(($1 / 4)) ]; do
    echo "url = http://127.0.0.1:$listen/$i"
    echo "output = /dev/null"
    i=$((i + 1))
  done >"$dir/urls"
  asking=""
  for i in 1 2 3 4; do
    curl -s -K "$dir/urls" &
    asking="$asking $!"
  done
  # shellcheck disable=SC2086  # a list of numbers
  wait $asking
  made=$((made + $1))
}
stop() {
  kill "$pid"
  within 10 has_ended
}
# number NAME: of what was read
number() {
  $lua - "$dir/replay.json" "$1" <<'LUA'
local source = require("cjson").decode(io.open(arg[1]):read "a").source
print(("%d"):format(arg[2] == "damaged" and #source.damaged or source[arg[2]]))
LUA
}
replayed() { "$neap" replay "$dir"/calls* --policy "$dir/plain.lua" --json >"$dir/replay.json"; }

# ---- Rotated --------------------------------------------------------------------------------------

serve 2
for round in 1 2 3; do
  calls 400
  sleep 0.6 # it has been written
done
stop
is "calls calls.1" "$(cd "$dir" && echo calls*)" "what is kept"
[ "$(wc -c <"$dir/calls.1")" -le 40000 ] || fail "not rotated in time: $(wc -c "$dir"/calls*)"
for file in "$dir"/calls*; do
  is "#neap-recording 1" "$(head -n 1 "$file")" "$file says what it is"
done
replayed
is 600 "$(stat -c %a "$dir/calls")" mode
is 0 "$(number damaged)" "lines that are damaged"
[ "$(number calls)" -gt 300 ] || fail "only $(number calls) calls"

# ---- A disk that is full --------------------------------------------------------------------------

rm "$dir"/calls*
made=0
serve 8 12 # 6 KB: less than it takes to go on with the next file
for round in 1 2 3; do
  calls 300
  sleep 0.6
done
is 200 "$(curl -s -o "$dir/out" -w '%{http_code}' "http://127.0.0.1:$listen/")" "it serves on"
made=$((made + 1))
stop
told=$(grep -c 'calls are not recorded until that is over' "$dir/log")
over=$(grep -c "calls are recorded again" "$dir/log")
[ $((told - over)) -ge 0 ] && [ $((told - over)) -le 1 ] || fail "told once for each time: $told, $over"
grep -q "$dir/calls: File too large" "$dir/log" || fail "why: $(cat "$dir/log")"
[ "$over" -gt 0 ] || fail "it is over: $(cat "$dir/log")"
replayed
is 0 "$(number damaged)" "lines that are damaged"
[ "$(number missing)" -gt 0 ] || fail "nothing is missing"
is "$made" "$(($(number missing) + $(number calls)))" "calls there and missing"
