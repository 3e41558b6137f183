# neap in nginx over time: hot reload in every worker, nginx -s reload, killed workers, a binary upgrade.
. "$(dirname "$0")/nginx_support.sh"

numbers='half_open = { probes = 1, lease_ms = 700 }, timeout_ms = 600,'
three() { policy life "trip = { consecutive_failures = $1 }, open = { cooldown_ms = ${2:-60000}, jitter = 0, backoff = 1 }, $numbers
  on_transition = function(event) warn('told of ' .. event.text) end"; }
three 3
http="
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port reuseport;
    location / { access_by_lua_block { guards.life:access() } proxy_pass http://good; }
    location = /metrics { content_by_lua_block { neap.metrics() } }
    location = /about {
      content_by_lua_block {
        ngx.say(ngx.worker.pid(), ' ', guards.life.policy.config.trip.consecutive_failures, ' ',
          ngx.timer.pending_count())
      }
    }
  }"
nginx_serve site "$http"
chmod -R a+rX "$dir/policies"

# every N FIELD VALUE: all N workers say that
every() {
  curl -s -H 'Connection: close' "$site/about?[1-40]" >"$dir/about" || return 1
  [ "$(cut -d' ' -f1 "$dir/about" | sort -u | wc -l)" = "$1" ] || return 1
  [ "$(cut -d' ' -f"$2" "$dir/about" | sort -u)" = "$3" ]
}

# ---- After the load ----

# B203: one hot breaker, and nothing that would go on turning once nobody asks.
curl -s -Z -o /dev/null "$site/?[1-2000]" 2>"$dir/progress"
ticks() { for one in $(pgrep -P "$pid"); do cat "/proc/$one/stat"; done | awk '{ n += $14 + $15 } END { print n }'; }
sleep 0.5
before=$(ticks)
sleep 0.5
count=$(($(ticks) - before))
[ $count -le $(($(getconf CLK_TCK) / 10)) ] || fail "workers that nobody asks have run for $count ticks"

# ---- Policies, while it runs ----

for _ in 1 2; do gets 500 "/?how=500"; done
three 4
within 10 every 4 2 4
metric 'neap_consecutive_failures{policy="life",key="default"} 2'
gets 500 "/?how=500"
state life 0
echo 'return { name = "life", trip = { consecutive_failures = -1 } }' >"$dir/policies/life.lua"
refused() { [ "$(grep -c 'trip.consecutive_failures' "$dir/site/error.log")" -ge 4 ]; }
within 10 refused
every 4 2 4 || fail "a bad policy is in force: $(sort -u "$dir/about")"
metric 'neap_policy_stale{policy="life"} 1'

# A configuration that cannot be opened changes nothing: the old workers go on.
reloads() { # STATUS: sends HUP, waits for the master to have said what it makes of it
  before=$(grep -c "$1" "$dir/site/error.log" || :)
  kill -HUP "$pid"
  said() { [ "$(grep -c "$1" "$dir/site/error.log" || :)" -gt "$before" ]; }
  within 10 said "$1"
}
reloads 'init_by_lua error'
every 4 2 4 || fail "the workers are not the old ones"
three 4
within 10 has_metric 'neap_policy_stale{policy="life"} 0'

# ---- nginx -s reload ----

gets 500 "/?how=500"
state life 2
workers=$(pgrep -P "$pid" | sort)
changed() {
  now=$(pgrep -P "$pid" | sort)
  [ "$(echo "$now" | wc -l)" = 4 ] && ! echo "$now" | grep -qxF "$workers"
}
for _ in 1 2 3; do # B218, B220: timers of workers that go do nothing, state and counters stay
  reloads reconfiguring
  within 10 changed
  workers=$(pgrep -P "$pid" | sort)
done
state life 2
calls life failure 4
gets 503 /
# B217: all workers see it, and one tells of it: to the log, and to the policy's function, though the
# worker it happened in may have gone before that function's turn came.
moved="life/default: closed -> open: 4 failures in a row"
[ "$(grep -c "neap: $moved" "$dir/site/error.log")" = 1 ] || fail "B217: the log does not tell once"
told() { [ "$(grep -c "told of $moved" "$dir/site/error.log")" = 1 ]; }
within 5 told
within 10 every 4 3 1 # B214: one timer each
curl -sf "$site/metrics" | grep -q '^neap_clock_steps_total.* 0$' || fail "a clock went back"

# ---- A worker dies ----

# Killed with the only probe under way (B205): its lease ends, then others may try.
three 4 300
within 10 every 4 2 4
rm "$panel.v2" # a new panel, closed, at the next reload
reloads reconfiguring
within 10 changed # the old workers have the old one
workers=$(pgrep -P "$pid" | sort)
within 10 has_metric 'neap_calls_total{policy="life",key="default",outcome="failure"} 0'
for _ in 1 2 3 4; do gets 500 "/?how=500"; done
within 5 has_metric 'neap_breaker_state{policy="life",key="default"} 1'
curl -s -o /dev/null --max-time 8 "$site/?how=hang" &
within 5 has_metric 'neap_probes_in_flight{policy="life",key="default"} 1'
# The upstream is in these workers, too: none sees another one go.
# shellcheck disable=SC2046  # a list of numbers
kill -STOP $(pgrep -P "$pid")
# shellcheck disable=SC2046
kill -KILL $(pgrep -P "$pid")
within 10 changed
works() { [ "$(status /)" = 200 ]; }
within 5 works
state life 0
metric 'neap_probes_lost_total{policy="life",key="default"} 1'

# ---- A new binary takes over ----

for _ in 1 2 3 4; do gets 500 "/?how=500"; done
kill -USR2 "$pid"
new_master() { [ -s "$dir/site/pid.oldbin" ] && [ -s "$dir/site/pid" ]; }
within 10 new_master
old=$pid
pid=$(cat "$dir/site/pid")
pids="$pids $pid"
has_workers() { [ "$(pgrep -P "$pid" | wc -l)" -ge 4 ]; }
within 10 has_workers
kill -QUIT "$old"
gone() { ! kill -0 "$old" 2>/dev/null; }
within 10 gone
calls life failure 8
calls life success 1
nginx_stop 4 # the killed ones

# ---- Every request a Lua state of its own ----

nginx_serve no_cache "lua_code_cache off; $http"
grep -q 'lua_code_cache is off' "$dir/no_cache/error.log" || fail "the cache is on"
calls life failure 8
within 5 works
calls life success 2
nginx_stop 1 # that warning
