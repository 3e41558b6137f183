# neap replay on logs that are not as they should be: what is damaged costs no more than its line.
. "$(dirname "$0")/../hosts/support.sh"

neap=${NEAP_BIN:?}
cd "$dir"

has() { grep -qF -- "$1" "$2" || fail "no $1 in $(head -c 3000 "$2")"; }
lacks() { ! grep -qF -- "$1" "$2" || fail "there is $1 in $(head -c 3000 "$2")"; }
replays() { "$neap" replay "$@" >out 2>&1 || fail "replay $*: $(head -c 1000 out)"; }

policy plain 'trip = { consecutive_failures = 1000 }' .

# ---- A gap of days between calls --------------------------------------------------------------------
# The line after it is looked at before the call is believed: that must not touch the call.

$lua -e '
  for day = 0, 2000 do
    local at = 1764547200 + day * 172800
    print(([[{"time":%d.5,"status":200,"host":"shop%d","pad":"%s"}]]):format(at, day % 5,
      ("x"):rep(200 + day % 97)))
    print(([[{"time":%d.6,"status":200,"host":"shop%d"}]]):format(at, day % 5))
  end' >gaps
replays gaps --policy plain.lua --key host
lacks damaged out
has "4,002 calls" out
[ "$(grep -c '^  shop[0-4] ' out)" = 5 ] || fail "not five keys: $(cat out)"
lacks '  ???' out

# ---- CSV: a quote that is no quote, one that is never closed, and those of several lines -------------

$lua -e '
  print "time,status,duration_ms,agent"
  for i = 1, 30000 do
    local agent = i == 100 and [[a 5" screen]] or i == 200 and [["never closed]]
      or i % 100 == 50 and "\"one\r\nand \"\"two\"\"\"" or "plain"
    print(("%d.5,200,10,%s"):format(1764547200 + i, agent))
  end' >calls.csv
replays calls.csv --policy plain.lua
has "29,999 calls" out
has "1 line of 30,000 damaged" out
has "not of the format  first calls.csv:203" out

# ---- Time that goes back: an hour that is there twice, as times without a zone have it ---------------

$lua -e '
  for i = 0, 7199 do
    print(([[{"time":%d.5,"status":%d,"duration_ms":20}]]):format(1764547200 + i % 3600,
      i % 600 < 40 and 503 or 200))
  end' >twice
replays twice --policy plain.lua
has "The log's time goes back: a clock was set" out
"$neap" tune twice --policy plain.lua --vary trip.consecutive_failures=3..9 >out
has "The log's time goes back: a clock was set" out
"$neap" replay gaps --policy plain.lua >out
lacks "goes back" out
