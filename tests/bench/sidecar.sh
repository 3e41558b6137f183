#!/bin/sh
# sidecar.sh BUILD ROUNDS [soak REQUESTS]
#
# The neap program in front of an upstream, beside nginx's proxy_pass in front of the same one, in turn.
# Prints NAME, tab, one number a round:
#
#   ... p50 us     median latency at 1,000 requests/s over 16 connections, open loop (bench_load)
#   ... req/s      saturated by wrk, 16 connections: by wall clock
#   ... cpu us     of neap's processor time for each of those requests
#   ... busy       the share of the wall clock that neap had a processor
#   neap kB        resident after each slice of requests; soak: REQUESTS of them in 20 slices
#
# The upstream is another nginx with a fixed answer; it, the proxies and the load share this machine.
# The proxies have its last processor to themselves, all else has the first, so that by wall clock,
# too, a proxy's own work is the limit: it is where busy is about 1.  Where it is less, the load or
# somebody else's program was, and requests a second say that much less about neap; its processor
# time per request says the same on a machine that is in use.
set -eu
build=$1 rounds=$2 soak=${4:-0}
neap=$build/bin/neap load=$build/bench/bench_load
dir=$(mktemp -d)
pids=""
stop() {
  trap - INT TERM EXIT
  # shellcheck disable=SC2086  # a list of numbers
  [ -z "$pids" ] || kill $pids 2>/dev/null || :
  wait
  rm -rf "$dir"
}
trap 'stop; exit 1' INT TERM
trap stop EXIT

# ---- processors ----

allowed=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
first=${allowed%%[-,]*} last=${allowed##*[-,]}

# ---- servers ----

# Four ports in a row that nobody uses.
ports_are_free() {
  for offset in 0 1 2 3; do
    hex=$(printf '%04X' $((port + offset)))
    ! awk -v p=":$hex" 'index($2, p) || index($3, p) { found = 1 } END { exit !found }' /proc/net/tcp || return 1
  done
}
port=$((20000 + $$ % 10000))
until ports_are_free; do port=$((port + 4)); done
upstream=127.0.0.1:$port proxy=127.0.0.1:$((port + 1))
sidecar=127.0.0.1:$((port + 2)) admin=127.0.0.1:$((port + 3))

# nginx_start NAME PROCESSOR 'http block'
nginx_start() {
  mkdir "$dir/$1"
  cat >"$dir/$1.conf" <<EOF
daemon off;
worker_processes 1;
pid $dir/$1/pid;
error_log $dir/$1/error.log;
events { worker_connections 1024; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path $dir/$1/body;
  proxy_temp_path $dir/$1/proxy;
  fastcgi_temp_path $dir/$1/fastcgi;
  uwsgi_temp_path $dir/$1/uwsgi;
  scgi_temp_path $dir/$1/scgi;
  $3
}
EOF
  taskset -c "$2" nginx -p "$dir/$1" -e "$dir/$1/error.log" -c "$dir/$1.conf" &
  pids="$pids $!"
}

nginx_start upstream "$first" "server {
  listen $upstream;
  default_type application/json;
  location / { return 200 '{\"flag\":\"new-checkout\",\"value\":true,\"variant\":\"on\",\"reason\":\"STATIC\"}'; }
}"
nginx_start proxy "$last" "upstream u { server $upstream; keepalive 64; keepalive_requests 1000000000; }
server {
  listen $proxy;
  location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ''; }
}"

mkdir "$dir/policies"
policy() {
  cat >"$dir/policies/$1.lua" <<EOF
return {
  name = "$1",
  trip = { failure_rate = 0.5, consecutive_failures = 10 },
  timeout_ms = 2000,
  classify = function(call) return classify.http(call) end,
  fallback = { $2 },
}
EOF
}
policy proxied ""
policy refused ""
policy last_good "fallback.last_good { max_age_ms = 3600000 }"
cat >"$dir/config.lua" <<EOF
return {
  listen = "$sidecar",
  admin = "$admin",
  policies = { "$dir/policies" },
  routes = {
    { name = "proxied", prefix = "/proxied", upstream = "http://$upstream", policy = "proxied" },
    { name = "refused", prefix = "/refused", upstream = "http://$upstream", policy = "refused" },
    { name = "last_good", prefix = "/last_good", upstream = "http://$upstream", policy = "last_good" },
  },
}
EOF
taskset -c "$last" "$neap" serve "$dir/config.lua" 2>"$dir/neap.log" &
neap_pid=$!
pids="$pids $neap_pid"

await() {
  tries=0
  until curl -sf -o /dev/null "http://$1"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
      echo "sidecar.sh: nothing at $1" >&2
      cat "$dir"/*.log "$dir"/*/error.log >&2
      exit 1
    fi
    sleep 0.1
  done
}
await "$upstream/"
await "$proxy/proxied/x"
await "$sidecar/proxied/x"
# Answers are kept apart by what the client accepts, so the one to be served again is asked for by wrk.
wrk -t1 -c1 -d1s "http://$sidecar/last_good/x" >/dev/null
for policy in refused last_good; do
  curl -sf -o /dev/null -X POST -d "mode=forced_open" -d "by=bench" "http://$admin/breakers/$policy/$policy/mode"
done

# ---- measuring ----

note() { if [ -t 2 ]; then printf '\r%-60s' "$*" >&2; fi; }

# at_rate NAME ADDRESS PATH
at_rate() {
  note "sidecar: $1, 1,000 requests/s"
  taskset -c "$first" "$load" "$2" "$3" 1000 3 16 >"$dir/load"
  awk -F'\t' '$1 == "p50" { print $2 }' "$dir/load" >>"$dir/$1 p50 us"
  errors=$(awk -F'\t' '$1 == "errors" { print $2 }' "$dir/load")
  [ "$errors" = 0 ] || { echo "sidecar.sh: $1: $errors requests failed" >&2; exit 1; }
}

# Nanoseconds of processor that neap has had.
neap_cpu_ns() { awk '{ print $1 }' "/proc/$neap_pid/schedstat"; }

# What is measured must be what its name says: all refused, or none.
check_answers() {
  case $1 in *refused) expected=refused ;; *) expected=answered ;; esac
  if grep -q 'Non-2xx' "$dir/wrk"; then got=refused; else got=answered; fi
  [ "$got" = "$expected" ] || { echo "sidecar.sh: $1: requests were $got" >&2; exit 1; }
}

# saturated NAME ADDRESS PATH
saturated() {
  note "sidecar: $1, saturated"
  before=$(neap_cpu_ns)
  taskset -c "$first" wrk -t1 -c16 -d1s "http://$2$3" >"$dir/wrk"
  after=$(neap_cpu_ns)
  check_answers "$1"
  awk '/^Requests\/sec/ { print $2 }' "$dir/wrk" >>"$dir/$1 req_s"
  case $1 in neap*)
    awk -v ns=$((after - before)) '/requests in/ { print ns / 1000 / $1 }' "$dir/wrk" >>"$dir/$1 cpu us"
    awk -v ns=$((after - before)) '/requests in/ { print ns / 1e9 / $4 }' "$dir/wrk" >>"$dir/$1 busy" ;;
  esac
}

resident_kb() { awk '/^VmRSS/ { print $2 }' "/proc/$neap_pid/status"; }

if [ "$soak" = 0 ]; then
  round=0
  while [ "$round" -lt "$rounds" ]; do
    at_rate direct "$upstream" /proxied/x
    at_rate nginx "$proxy" /proxied/x
    at_rate neap "$sidecar" /proxied/x
    saturated direct "$upstream" /proxied/x
    saturated nginx "$proxy" /proxied/x
    saturated neap "$sidecar" /proxied/x
    saturated "neap refused" "$sidecar" /refused/x
    saturated "neap last_good" "$sidecar" /last_good/x
    resident_kb >>"$dir/neap kB"
    round=$((round + 1))
  done
else
  slice=0 each=$((soak / 20))
  while [ "$slice" -lt 20 ]; do
    note "soak: $((slice * each)) of $soak requests"
    left=$each
    while [ "$left" -gt 0 ]; do
      wrk -t1 -c16 -d1s "http://$sidecar/proxied/x" >"$dir/wrk"
      done_now=$(awk '/requests in/ { print $1 }' "$dir/wrk")
      left=$((left - done_now))
    done
    resident_kb >>"$dir/neap kB"
    slice=$((slice + 1))
  done
fi
note ""
[ ! -t 2 ] || printf '\r' >&2

for file in "$dir"/*" p50 us" "$dir"/*" req_s" "$dir"/*" cpu us" "$dir"/*" busy" "$dir/neap kB"; do
  [ -f "$file" ] && printf '%s\t%s\n' "$(basename "$file" | sed 's,req_s,req/s,')" "$(tr '\n' ' ' <"$file")"
done
