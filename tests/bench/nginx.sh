#!/bin/sh
# nginx.sh BUILD [NAME...]: what a guard costs a proxied request in nginx, in instructions of the
# access and log handlers (callgrind), beside the same handlers without it.  Prints NAME, tab, that
# number per request.
#
#   empty           handlers with nothing in them
#   empty calls     ... that call an empty method and an empty function, as a guard's are called
#   neap            guards.NAME:access() and neap.log(), shared panel, plain successes
#   shared dict     a breaker on ngx.shared: get, and incr, with nothing of a window's length
#   ctx             ngx.ctx set and get alone: where a permit could be kept instead
#
# One process, one keep-alive connection, an upstream apart.  A request that took 20 ms, as they do on
# a busy machine, is looked at closely: so it is the least of four runs.
#
# "neap" less "empty calls" is what neap's own code costs; less "empty", what two handlers cost that
# had nothing to do before.  As is a breaker of one's own: "shared dict" less the same.
set -eu
PATH=$PATH:/usr/sbin
build=$(cd "$1" && pwd)
shift
wanted=" $(printf '%s, ' "${@:-all}")"
root=$(cd "$(dirname "$0")/../.." && pwd)
modules=$(nginx -V 2>&1 | tr ' ' '\n' | sed -n 's/^--modules-path=//p')
dir=$(mktemp -d)
panel=/dev/shm/neap-bench-$$
pids=""
finish() {
  trap - EXIT
  # shellcheck disable=SC2086  # a list of numbers
  [ -z "$pids" ] || kill $pids 2>/dev/null || :
  wait
  rm -rf "$dir"
  rm -f "$panel".*
}
trap finish EXIT
trap 'exit 1' INT TERM
FEW=500 MANY=1500

temp() {
  for kind in client_body proxy fastcgi uwsgi scgi; do echo "${kind}_temp_path $dir/temp-$kind;"; done
}

cat >"$dir/upstream.conf" <<CONF
daemon off;
worker_processes 1;
pid $dir/upstream.pid;
events { worker_connections 64; }
http {
  access_log off;
  keepalive_requests 1000000000;
  $(temp)
  server { listen unix:$dir/upstream.sock; location / { return 200 "ok\n"; } }
}
CONF
nginx -p "$dir" -e upstream.log -c "$dir/upstream.conf" >"$dir/upstream.out" 2>&1 &
pids="$pids $!"

mkdir "$dir/policies"
cat >"$dir/policies/api.lua" <<POLICY
return { name = "api", trip = { failure_rate = 0.5, consecutive_failures = 10 } }
POLICY

config() { # INIT ACCESS LOG
  cat >"$dir/nginx.conf" <<CONF
load_module $modules/ndk_http_module.so;
load_module $modules/ngx_http_lua_module.so;
daemon off;
master_process off;
pid $dir/nginx.pid;
events { worker_connections 64; }
http {
  access_log off;
  keepalive_requests 1000000000;
  $(temp)
  lua_shared_dict breaker 1m;
  lua_package_path "$root/lua/?.lua;$root/lua/?/init.lua;;";
  lua_package_cpath "$build/lua5.1/?.so;;";
  init_by_lua_block { $1 }
  upstream api { server unix:$dir/upstream.sock; keepalive 4; keepalive_requests 1000000000; }
  server {
    listen unix:$dir/nginx.sock;
    location / {
      access_by_lua_block { $2 }
      log_by_lua_block { $3 }
      proxy_pass http://api;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
    }
  }
}
CONF
}

ask() { curl -sf -o /dev/null --unix-socket "$dir/nginx.sock" "$1"; }

# Instructions of both handlers over so many requests.
count() {
  rm -f "$dir/counted" "$dir/nginx.sock"
  valgrind --tool=callgrind --callgrind-out-file="$dir/counted" \
    --toggle-collect=ngx_http_lua_access_handler --toggle-collect=ngx_http_lua_log_handler \
    "$(command -v nginx)" -p "$dir" -e error.log -c "$dir/nginx.conf" >"$dir/valgrind" 2>&1 &
  nginx=$!
  pids="$pids $nginx"
  tries=0
  until ask http://x/; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ] || ! kill -0 $nginx; then
      cat "$dir/valgrind" "$dir/error.log" >&2
      exit 1
    fi
    sleep 0.05
  done
  ask "http://x/[1-$1]"
  kill -QUIT $nginx
  wait $nginx || :
  sed -n 's/^summary: //p' "$dir/counted" >"$dir/sum"
  if grep -q runtime.error "$dir/error.log"; then
    cat "$dir/error.log" >&2
    exit 1
  fi
}

# The least of four runs, in $least: what disturbs one only adds to it.
least() { # REQUESTS
  least=""
  for _ in 1 2 3 4; do
    count "$1"
    here=$(cat "$dir/sum")
    [ "${least:-$here}" -lt "$here" ] || least=$here
  done
}

row() { # NAME INIT ACCESS LOG
  case $wanted in *" $1, "* | " all, ") ;; *) return ;; esac
  config "$2" "$3" "$4"
  least $FEW
  few=$least
  least $MANY
  printf '%s\t%d\n' "$1" $(((least - few) / (MANY - FEW)))
}

row "empty" "" "" ""
row "empty calls" "guards = { api = { access = function() end } } neap = { log = function() end }" \
  "guards.api:access()" "neap.log()"
row "neap" "neap = require 'neap.nginx'
  guards = neap.open { panel = '$panel', policies = '$dir/policies' }" \
  "guards.api:access()" "neap.log()"
row "shared dict" "
  breaker = ngx.shared.breaker
  function may_go() return (breaker:get('open until') or 0) <= ngx.now() end
  function count()
    local failed = ngx.status >= 500
    local n = breaker:incr(failed and 'failed' or 'good', 1, 0)
    if failed and n >= 10 then breaker:set('open until', ngx.now() + 5) end
  end" "if not may_go() then return ngx.exit(503) end" "count()"
row "ctx" "" "ngx.ctx.permit = 1" "local permit = ngx.ctx.permit"
