# `make run`: comes up without a terminal and on other ports, protects what it should, and stops cleanly when told to,
# by SIGTERM and by Ctrl-C; a port that is taken is said in one line.
set -eu
tmp=$(mktemp -d)
pid=""
cleanup() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || :
  rm -rf "$tmp"
}
trap cleanup EXIT
die() {
  echo "not so: $*"
  cat "$tmp/log"
  exit 1
}

ports() {
  $LUA -e 'local uv, s = require "luv", {}
    for i = 1, 3 do s[i] = uv.new_tcp() s[i]:bind("127.0.0.1", 0) print(s[i]:getsockname().port) end'
}
# shellcheck disable=SC2046  # three words
set -- $(ports)
export UPSTREAM_PORT="$1" LISTEN_PORT="$2" ADMIN_PORT="$3" NEAP_BIN

is_up() { curl -sf "localhost:$ADMIN_PORT/healthz" >/dev/null 2>&1; }
start() {
  setsid make run >"$tmp/log" 2>&1 </dev/null &
  pid=$!
  for _ in $(seq 100); do
    is_up && return
    sleep 0.1
  done
  die "comes up"
}
ended() {
  wait "$pid" && status=0 || status=$?
  pid=""
  for port in "$UPSTREAM_PORT" "$LISTEN_PORT" "$ADMIN_PORT"; do
    if curl -s -o /dev/null "localhost:$port/"; then die "port $port is free after $1"; fi
  done
  echo "ok: $1 stops both, status $status"
}

start
source=$(curl -si "localhost:$LISTEN_PORT/flags/new-checkout" | tr -d '\r' | sed -n 's/^[Nn]eap-[Ss]ource: //p')
[ "$source" = primary ] || die "Neap-Source: primary, but: $source"
says_what_to_try() { grep -q "curl -si localhost:$LISTEN_PORT/flags" "$tmp/log"; }
for _ in $(seq 50); do # it looks for the admin port too, a tenth of a second apart
  says_what_to_try && break
  sleep 0.1
done
says_what_to_try || die "says what to try"
kill -TERM "$pid"
ended SIGTERM

# Ctrl-C goes to the terminal's whole process group.
start
kill -INT "-$pid"
ended Ctrl-C

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
