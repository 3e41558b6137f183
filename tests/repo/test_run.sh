# `make run`: comes up without a terminal and on other ports, protects what it should, and stops
# cleanly when told to, by SIGTERM and by Ctrl-C: what is under way gets its whole answer, a second
# Ctrl-C doesn't wait for it, and nothing is left running.  A port that is taken is said in one line.
#
# scripts/run.sh exits 0 when it was told to stop, 1 when it didn't come up or one of the two ended
# by itself.  make, told by the same signal, ends of that: 130 (SIGINT), 143 (SIGTERM).
set -eu
tmp=$(mktemp -d)
pid=""
cleanup() {
  [ -z "$pid" ] || kill -TERM "-$pid" 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
die() {
  echo "not so: $*"
  cat "$tmp/log"
  exit 1
}

# shellcheck disable=SC2046  # three words
set -- $($LUA tests/support/ports.lua 3)
export UPSTREAM_PORT="$1" LISTEN_PORT="$2" ADMIN_PORT="$3" NEAP_BIN

# The flag provider's policy with patience for a slow answer.
sed "s/timeout_ms = 500/timeout_ms = 20000/; s/lease_ms = 1000/lease_ms = 21000/" \
  policies/flag_provider.lua >"$tmp/flag_provider.lua"
export POLICY="$tmp/flag_provider.lua"

within() { # SECONDS COMMAND...: tries it until it succeeds
  left=$(($1 * 20))
  shift
  until "$@"; do
    left=$((left - 1))
    [ $left -gt 0 ] || die "in time: $*"
    sleep 0.05
  done
}
logged() { grep -q -- "$1" "$tmp/log"; }
is_up() { curl -sf "localhost:$ADMIN_PORT/healthz" >/dev/null 2>&1; }

# As a terminal starts it: a session and a process group of its own, and SIGINT not ignored, as it
# is for what a script runs in the background.
start() {
  setsid env --default-signal=INT make run >"$tmp/log" 2>&1 </dev/null &
  pid=$!
  within 10 is_up
}
# Ctrl-C goes to the whole process group that is in front.
ctrl_c() { kill -INT "-$pid"; }
is_alive() { ps -o stat= -p "$1" | grep -q '^[^Z]'; }
is_empty() { # nothing is left, but what has ended and was not waited for
  for left_over in $(ps -o pid= -s "$1") $(pgrep -f "127.0.0.1:$UPSTREAM_PORT"); do
    is_alive "$left_over" && return 1
  done
  return 0
}
ended() { # HOW STATUS
  wait "$pid" && status=0 || status=$?
  [ "$status" -eq "$2" ] || die "$1 ends it with status $2, but: $status"
  within 5 is_empty "$pid"
  pid=""
  for port in "$UPSTREAM_PORT" "$LISTEN_PORT" "$ADMIN_PORT"; do
    if curl -s -o /dev/null "localhost:$port/"; then die "port $port is free after $1"; fi
  done
  echo "ok: $1 stops both, status $status"
}
# ask_slowly MS: a request that takes so long, in $asker, its answer in $tmp/answer
ask_slowly() {
  curl -sf -o /dev/null -X POST "localhost:$UPSTREAM_PORT/_fail?mode=slow&ms=$1"
  curl -si "localhost:$LISTEN_PORT/flags/slow" >"$tmp/answer" &
  asker=$!
  within 5 logged "GET /flags/slow ->"
}

start
source=$(curl -si "localhost:$LISTEN_PORT/flags/new-checkout" | tr -d '\r' | sed -n 's/^[Nn]eap-[Ss]ource: //p')
[ "$source" = primary ] || die "Neap-Source: primary, but: $source"
says_what_to_try() { grep -q "curl -si localhost:$LISTEN_PORT/flags" "$tmp/log"; }
within 5 says_what_to_try # it looks for the admin port too, a tenth of a second apart
kill -TERM "$pid"
ended SIGTERM 143

# Whole: the status, the upstream's own answer, and its last byte.
has_whole_answer() {
  wait "$asker" || die "a request under way is answered at $1"
  head -n 1 "$tmp/answer" | grep -q " 200 " || die "with 200: $(cat "$tmp/answer")"
  grep -qi '^neap-source: primary' "$tmp/answer" || die "by the upstream: $(cat "$tmp/answer")"
  tail -n 1 "$tmp/answer" | grep -q '^{.*}$' || die "whole: $(cat "$tmp/answer")"
  ! logged "not waiting any longer" || die "one $1 is one signal to the sidecar"
}

start
ask_slowly 1500
ctrl_c
has_whole_answer Ctrl-C
ended Ctrl-C 130

# As a shell's `kill %1` does: every process of the job gets it.
start
ask_slowly 1500
kill -TERM "-$pid"
has_whole_answer "SIGTERM to the group"
ended "SIGTERM to the group" 143

start
ask_slowly 1500
kill -TERM "$pid"
has_whole_answer SIGTERM
ended SIGTERM 143

# Again, while it drains: it is not waited for, and nobody is left behind.
start
ask_slowly 15000
ctrl_c
within 5 logged "SIGINT: draining"
ctrl_c
within 5 logged "SIGINT again: not waiting any longer"
ended "a second Ctrl-C" 130
wait "$asker" || : # cut off, or told so

# The upstream ends by itself: so does everything.
start
upstream=$(pgrep -f "lua5.4 .*127.0.0.1:$UPSTREAM_PORT")
kill "$upstream"
ended "the upstream's end" 2
logged "make run: the upstream has ended" || die "says who has ended"

# A taken port.
export PORT="$LISTEN_PORT"
$LUA -e 'local uv, s = require "luv", require("luv").new_tcp()
  s:bind("127.0.0.1", tonumber(os.getenv("PORT"))) s:listen(1, print) uv.run()' &
blocker=$!
sleep 0.2
timeout 30 make run >"$tmp/log" 2>&1 </dev/null && status=0 || status=$?
kill "$blocker"
[ "$status" -ne 0 ] && [ "$status" -ne 124 ] || die "fails when the port is taken"
grep -q "$LISTEN_PORT" "$tmp/log" || die "names the port that is taken"
echo "ok: a taken port is said: $(grep -m1 "$LISTEN_PORT" "$tmp/log")"
