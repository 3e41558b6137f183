# neap in HAProxy over time: policies that change, reloads, killed workers, another root, bad starts.
. "$(dirname "$0")/haproxy_support.sh"

policy shop "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000 },"
policy edited "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000 },
  on_transition = function(event) warn('told of ' .. event.text) end,"
policy killed "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 500, backoff = 1, jitter = 0 },
  half_open = { probes = 1, lease_ms = 1500 }, timeout_ms = 1000,"
sections="$frontend
$(guarded shop shop "server up $upstream")
$(guarded edited edited "server up $upstream")
$(guarded killed killed "server up $upstream")"

# ---- Bad starts: one line that says what is wrong, and HAProxy does not start ----

refuses() { # NAME TEXT OPTIONS
  lua_file "$1" "$3"
  haproxy_config "$1" "nbthread 2
  lua-load-per-thread $dir/$1/neap.lua" "$sections"
  if $preload haproxy -c -f "$dir/$1/haproxy.cfg" >"$dir/$1/log" 2>&1; then fail "$1: it would start"; fi
  count=$(grep -cF -- "$2" "$dir/$1/log" || :)
  [ "$count" = 1 ] || fail "$1: $count lines with '$2': $(cat "$dir/$1/log")"
}
policy bad "trip = { failures = 5 }, open = { cooldown = 5 }," "$dir/wrong"
refuses mistaken "bad.lua:3: open.cooldown: is not a key" \
  "policies = '$dir/wrong', panel = '$panel-bad'"
refuses alone "each thread would judge by itself: say panel = \"/dev/shm/neap\", or use lua-load" "policies = '$dir/policies'"
refuses misspelt "there is no option polices: did you mean policies?" "polices = '$dir/policies'"
refuses number "neap.lua:1: option policies must be a path or a list of paths, got number" "policies = 5"
refuses pathless "neap.lua:1: no policies are given: a file, a directory or a list of them" "panel = '$panel-bad'"
refuses rows "neap.lua:1: option rows must be a whole number from 1 to 4194304, got 0.5" \
  "policies = '$dir/policies', panel = '$panel-bad', rows = 0.5"
refuses nowhere "/nowhere/neap" "policies = '$dir/policies', panel = '/nowhere/neap'"
echo "ok: bad starts"

# ---- Another root and user ----

name=jail jailed=""
if [ "$(id -u)" -eq 0 ]; then
  mkdir -p "$dir/jail/root"
  policy caged "trip = { failures = 5 }," "$dir/jail/root/policies"
  policy outside "trip = { failures = 5 }," "$dir/hidden"
  chmod -R a+rX "$dir/jail"
  chmod 700 "$dir/hidden"
  cages="global
  lua-prepend-path $root/lua/?.lua
  lua-prepend-path $root/lua/?/init.lua
  lua-prepend-path $build/lua5.3/?.so cpath
  log stdout format raw local0 info
  user nobody
  chroot $dir/jail/root"
  for cage in caged outside; do
    mkdir -p "$dir/$cage"
    directory=$dir/hidden
    [ $cage = outside ] || directory=$dir/jail/root/policies
    printf 'require("neap.haproxy").open { policies = "%s" }\n' "$directory" >"$dir/$cage/neap.lua"
    printf '%s\n  lua-load %s\nfrontend none\n  mode http\n  timeout client 1s\n  bind unix@%s\n' \
      "$cages" "$dir/$cage/neap.lua" "$dir/$cage/socket" >"$dir/$cage/haproxy.cfg"
    $preload haproxy -db -f "$dir/$cage/haproxy.cfg" >"$dir/$cage/log" 2>&1 &
    eval "$cage=$!"
    pids="$pids $!"
  done
  jailed=yes
fi

# ---- Policies that change ----

lua_file site "policies = '$dir/policies', panel = '$panel'"
haproxy_serve site "nbthread 4
  lua-load-per-thread $dir/site/neap.lua" "$sections" "-W -db -p $dir/pid"
gets 500 "/edited/?how=500"
sed -i 's/failures = 3/failures = 2/' "$dir/policies/edited.lua"
[ -z "$jailed" ] || sed -i 's/failures = 5/failures = 6/' "$dir/jail/root/policies/caged.lua"
within 5 said "edited.lua: reloaded"
sleep 2 # the other threads
says "edited.lua: reloaded" 1
gets 500 "/edited/?how=500" # the second, with the one before the reload
at_once /edited/ 12
[ "$(grep -c ^503 "$dir/codes")" = 12 ] || fail "the new rule is not in force in all threads: $(cat "$dir/codes")"
# B217: one thread tells of it: to the log, and to the policy's function.
within 5 said "edited: told of edited/default: closed -> open: 2 failures in a row"
echo "not Lua" >"$dir/policies/edited.lua"
within 5 said "edited.lua:1: "
state edited 2
if [ "$jailed" ]; then
  name=caged
  within 5 said "caged.lua: reloaded"
  name=outside
  within 5 said "hidden/outside.lua: can't be read any more, now that HAProxy has changed its user and root"
  # Nothing to look at is nothing to wake up for.
  wakes() { awk '/^voluntary/ { n += $2 } END { print n }' /proc/"$outside"/task/*/status; }
  before=$(wakes)
  sleep 1
  count=$(($(wakes) - before))
  [ $count -le 50 ] || fail "outside: woke $count times in a second"
  name=site
fi
says "edited/default: closed -> open" 2
echo "ok: policies that change"

# ---- A reload of HAProxy under load ----

policy edited "trip = { consecutive_failures = 3 }, open = { cooldown_ms = 60000 },"
for _ in 1 2; do gets 500 "/shop/?how=500"; done
worker=$(pgrep -P "$pid")
touch "$dir/load"
while [ -e "$dir/load" ]; do
  curl -s -o /dev/null -w '%{http_code}\n' --max-time 5 "$site/edited/?[1-40]" || :
done >"$dir/loaded" &
load=$!
curl -s -o "$dir/slow" --max-time 5 "$site/killed/?how=slow" &
slow=$!
sleep 0.1
kill -USR2 "$pid"
old_is_gone() { ! kill -0 "$worker" 2>/dev/null; }
within 10 old_is_gone
rm "$dir/load"
wait $load
wait $slow || fail "a request under way did not survive the reload"
[ "$(cat "$dir/slow")" = primary ] || fail "the slow request: $(cat "$dir/slow")"
[ "$(sort -u "$dir/loaded")" = 503 ] || fail "the load saw $(sort "$dir/loaded" | uniq -c)"
[ "$(pgrep -P "$pid")" != "$worker" ] || fail "no new worker"
gets 500 "/shop/?how=500" # the third, with two before the reload
gets 503 /shop/
calls shop failure 3
calls killed success 1
echo "ok: a reload under load"

# ---- A worker that is killed in the middle of a probe (B205) ----

gets 500 "/killed/?how=500"
sleep 0.55
curl -s -o /dev/null "$site/killed/?how=hang" &
sleep 0.2
metric 'neap_probes_in_flight{policy="killed",key="default"} 1'
kill -KILL "$(pgrep -P "$pid")"
within 10 has_ended # the master goes with its worker
haproxy_serve site "nbthread 4
  lua-load-per-thread $dir/site/neap.lua" "$sections" "-W -db"
gets 503 /shop/ # what was open is open
gets 503 /killed/
killed_answers() { [ "$(status /killed/)" = 200 ]; }
within 5 killed_answers
metric 'neap_probes_lost_total{policy="killed",key="default"} 1'
state killed 0
echo "ok: a killed worker"
