# examples/09_nginx does what its first comment says.
. "$(dirname "$0")/nginx_support.sh"

conf=$dir/example/nginx.conf
mkdir "$dir/example"
grep -q "^load_module /usr/lib/nginx/modules/ndk" examples/09_nginx/nginx.conf
sed -e "s,/usr/lib/nginx/modules,$modules,; s,8080,$port,; s,8016,$upstream_port,; s,/dev/shm/neap-example,$panel," \
  -e "s,\${prefix}../../lua,$root/lua,; s,\${prefix}../../build/release,$build,; s,ngx.config.prefix() .. \"../..,\"$root," \
  examples/09_nginx/nginx.conf >"$conf"
for kind in client_body proxy fastcgi uwsgi scgi; do # that it runs as anybody
  sed -i "s,^http {,&\n  ${kind}_temp_path $dir/example/$kind;," "$conf"
done
$lua examples/demo/upstream.lua --quiet --listen "$upstream" &
pids="$pids $!"
within 5 curl -s -o /dev/null "http://$upstream/_fail"
$preload nginx -p "$dir/example" -e error.log -c "$conf" 2>"$dir/example/error.log" &
pid=$!
name=example
pids="$pids $pid"
within 10 answers
works() { [ "$(status /flags/new-checkout)" = 200 ]; }
within 10 works

for _ in $(seq 30); do works || fail "it does not answer"; done # each worker keeps answers of its own
curl -s -X POST "http://$upstream/_fail?mode=500" >/dev/null
for _ in $(seq 8); do
  gets 200 /flags/new-checkout
  header 'Neap-Source: last_good'
done
gets 200 /flags/never-seen
header 'Neap-Source: default'
state flag_provider 2
curl -s -X POST "http://$upstream/_fail?mode=ok" >/dev/null
nginx_stop
