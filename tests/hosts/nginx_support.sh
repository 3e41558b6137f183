# Starts nginx with neap in it, for the tests test_nginx*.sh, which source this file.
#
#   nginx_serve NAME 'http block' ['main block']   4 workers (or $processes) in $dir/NAME; $pid is the master's
#   nginx_stop                                     the last one; it must end by itself
#
# $upstream is a server that does what the query asks for: how=500, hang, close, slow, junk, wait, a
# status, or held&until=FILE: it answers when there is such a file
. "$(dirname "$0")/support.sh"
modules=$(nginx -V 2>&1 | tr ' ' '\n' | sed -n 's/^--modules-path=//p')
if ! [ -e "$modules/ngx_http_lua_module.so" ] || ! [ -e "$build/lua5.1/neap/core.so" ]; then
  echo "needs nginx with its Lua module, and neap built for LuaJIT" >&2
  exit 1
fi

# shellcheck disable=SC2046  # a list of numbers
set -- $(free_ports 4)
port=$1 upstream_port=$2 second_port=$3 nobody_port=$4
site=http://127.0.0.1:$port upstream=127.0.0.1:$upstream_port

# A module with a sanitizer in it needs its runtime first; and what is free is used again at once,
# as without one: that is how a request without neap.log() shows.
asan=detect_leaks=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0
preload=$(sanitized "$build/lua5.1/neap/core.so" $asan)

user=""
if [ "$(id -u)" -eq 0 ]; then user="user nobody $(id -gn nobody);"; fi

# What it does, by request: the last line of its log is what it was asked.
misbehaving='
  location / {
    content_by_lua_block {
      local how = ngx.var.arg_how
      if how == "hang" then ngx.sleep(3)
      elseif how == "slow" then ngx.sleep(0.3)
      elseif how == "held" then
        repeat ngx.sleep(0.02) until io.open(ngx.var.arg_until)
      elseif how == "close" then return ngx.exit(444)
      elseif how == "junk" then
        local socket = ngx.req.socket(true)
        socket:send("HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n")
        return ngx.exit(444)
      elseif how == "wait" then
        ngx.header["Retry-After"] = 30
        return ngx.exit(503)
      elseif how and how ~= "" then return ngx.exit(tonumber(how)) end
      ngx.say("primary")
    }
  }'

nginx_config() { # NAME HTTP MAIN
  mkdir -p "$dir/$1"
  cat >"$dir/$1/nginx.conf" <<CONF
load_module $modules/ndk_http_module.so;
load_module $modules/ngx_http_lua_module.so;
daemon off;
worker_processes ${processes:-4};
${preload:+env LD_PRELOAD; env ASAN_OPTIONS;}
$user
pid $dir/$1/pid;
error_log $dir/$1/error.log notice;
${3:-}
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path $dir/$1/body;
  proxy_temp_path $dir/$1/proxy;
  fastcgi_temp_path $dir/$1/fastcgi;
  uwsgi_temp_path $dir/$1/uwsgi;
  scgi_temp_path $dir/$1/scgi;
  lua_package_path "$root/lua/?.lua;$root/lua/?/init.lua;;";
  lua_package_cpath "$build/lua5.1/?.so;;";
  upstream good { server $upstream; }
  server {
    listen $upstream reuseport;
    listen 127.0.0.1:$second_port reuseport;
    $misbehaving
  }
  $2
}
CONF
}

nginx_serve() { # NAME HTTP [MAIN]
  nginx_config "$@"
  name=$1
  # By its full name and with a parent that goes: so it could start a new binary.
  (
    $preload "$(command -v nginx)" -p "$dir/$1" -e error.log -c "$dir/$1/nginx.conf" 2>"$dir/$1/out" &
    echo $! >"$dir/$1/started"
    sleep 0.5
  ) &
  within 5 test -s "$dir/$1/started"
  pid=$(cat "$dir/$1/started")
  pids="$pids $pid"
  within 10 answers
}

answers() {
  kill -0 "$pid" || fail "nginx ended: $(cat "$dir/$name/out" "$dir/$name/error.log")"
  curl -s -o /dev/null "http://$upstream/"
}

nginx_stop() {
  kill -QUIT "$pid"
  within 10 has_ended
  crashes=$(grep -c -E 'exited on signal|runtime error|\[alert\]' "$dir/$name/error.log" || :)
  [ "$crashes" = "${1:-0}" ] || fail "$crashes lines of trouble: $(
    grep -E 'exited on signal|runtime error|\[alert\]' "$dir/$name/error.log")"
}
