# examples/10_haproxy does what its first comment says.
. "$(dirname "$0")/haproxy_support.sh"

name=example
mkdir "$dir/$name"
grep -q "127.0.0.1:8016" examples/10_haproxy/haproxy.cfg
sed -e "s,8080,$port,; s,127.0.0.1:8016,$nobody,; s,build/release,$build,; s,examples/10_haproxy,$dir/$name," \
  examples/10_haproxy/haproxy.cfg >"$dir/$name/haproxy.cfg"
sed "s,/dev/shm/neap-example,$panel," examples/10_haproxy/neap.lua >"$dir/$name/neap.lua"
$lua examples/demo/upstream.lua --quiet --listen "$nobody" &
pids="$pids $!"
within 5 curl -s -o /dev/null "http://$nobody/_fail"
$preload haproxy -db -f "$dir/$name/haproxy.cfg" >"$dir/$name/log" 2>&1 &
pid=$!
pids="$pids $pid"
within 20 answers

gets 200 /flags/new-checkout
curl -s -X POST "http://$nobody/_fail?mode=500" >/dev/null
for _ in 1 2 3 4 5; do gets 500 /flags/new-checkout; done
gets 200 /flags/new-checkout
header 'Neap-Source: default'
grep -q '"reason":"DEFAULT"' "$dir/body"
state flag_provider 2
haproxy_stop
