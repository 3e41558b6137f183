#!/bin/sh
# haproxy.sh BUILD: what it takes to let a request in, in instructions (callgrind), beside an action
# in Lua that does nothing.  Prints NAME, tab, instructions per request:
#
#   empty          an action with nothing in it, once Lua runs
#   neap_acquire   a closed breaker in a shared panel
#   way            from one rule to the next by way of that empty action: what Lua costs by itself
set -eu
PATH=$PATH:/usr/sbin
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
CALLS=20000 FEW=300 MANY=1000
dir=$(mktemp -d)
panel=/dev/shm/neap-bench-haproxy-$$
pids=""
finish() {
  trap - EXIT
  # shellcheck disable=SC2086  # a list of numbers
  [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || :
  rm -rf "$dir"
  rm -f "$panel".*
}
trap finish EXIT
trap 'exit 1' INT TERM

mkdir "$dir/policies"
echo 'return { name = "api", trip = { failure_rate = 0.5, consecutive_failures = 10 } }' \
  >"$dir/policies/api.lua"
echo 'core.register_action("empty", { "http-req" }, function() end, 0)' >"$dir/empty.lua"

config() { # LUA-LOAD RULE
  cat >"$dir/haproxy.cfg" <<CONF
global
  nbthread 1
  lua-prepend-path $root/lua/?.lua
  lua-prepend-path $root/lua/?/init.lua
  lua-prepend-path $build/lua5.3/?.so cpath
  lua-prepend-path $build/bench/lua5.3/?.so cpath
  tune.lua.forced-yield 100000000
  tune.lua.session-timeout 0
  lua-load $1
defaults
  mode http
  timeout client 60s
  timeout connect 1s
  timeout server 1s
frontend site
  bind unix@$dir/socket
  $2
  http-request return status 200
CONF
}

ask() { curl -sf -o /dev/null --unix-socket "$dir/socket" "$1"; }

# run URL CALLGRIND-OPTIONS...: HAProxy under callgrind, asked for that
run() {
  url=$1
  shift
  valgrind --tool=callgrind --callgrind-out-file="$dir/counted" "$@" \
    "$(command -v haproxy)" -db -f "$dir/haproxy.cfg" >"$dir/log" 2>&1 &
  haproxy=$!
  pids="$pids $haproxy"
  tries=0
  until [ -S "$dir/socket" ] && ask "$url"; do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $haproxy 2>/dev/null; then
      cat "$dir/log" >&2
      exit 1
    fi
    sleep 0.05
  done
  kill -USR1 $haproxy
  wait $haproxy || :
  rm -f "$dir/socket"
  if grep -q 'runtime error' "$dir/log"; then
    cat "$dir/log" >&2
    exit 1
  fi
}

echo "loadfile '$root/tests/bench/haproxy.lua'('$panel', '$dir/policies', $CALLS)" >"$dir/count.lua"
config "$dir/count.lua" "http-request lua.count"
run http://x/ --collect-atstart=no
for counted in "$dir"/counted.*; do
  name=$(sed -n 's/^desc: Trigger: Client Request: //p' "$counted")
  sum=$(sed -n 's/^totals: //p' "$counted")
  [ -z "$name" ] || printf '%s\t%d\n' "$name" $((sum / CALLS))
done

# requests RULE: instructions of one
requests() {
  config "$dir/empty.lua" "$1"
  run "http://x/[1-$FEW]"
  few=$(sed -n 's/^summary: //p' "$dir/counted")
  run "http://x/[1-$MANY]"
  echo $((($(sed -n 's/^summary: //p' "$dir/counted") - few) / (MANY - FEW)))
}
none=$(requests "")
printf 'way\t%d\n' $(($(requests "http-request lua.empty") - none))
