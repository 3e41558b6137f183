# neap in nginx: retries, a bulkhead and deadlines of guard:call; a bulkhead of proxied requests.
. "$(dirname "$0")/nginx_support.sh"

processes=1 # slots are counted by each

policy again "trip = { consecutive_failures = 1000 },
  retry = { base_ms = 20, max_ms = 20, budget = 1, on = function() return true end },"
policy late "trip = { consecutive_failures = 1000 }, timeout_ms = 100, deadline_ms = 250,
  retry = { attempts = 10, base_ms = 1, max_ms = 1, budget = 1, on = function() return true end },"
policy slots "trip = { consecutive_failures = 1000 }, bulkhead = { concurrent = 2, wait_ms = 2000 },"
policy short "trip = { consecutive_failures = 1000 }, bulkhead = { concurrent = 1, wait_ms = 50 },"
policy proxied "trip = { consecutive_failures = 1000 }, bulkhead = { concurrent = 1 },"
nginx_serve site "
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port;
    location = /again { content_by_lua_block {
      local tries = 0
      local value = guards.again:call(function()
        tries = tries + 1
        ngx.sleep(0.001)
        if tries < 3 then return nil, 'down' end
        return 'up'
      end)
      ngx.say(value, ' ', tries)
    } }
    location = /late { content_by_lua_block {
      ngx.update_time()
      local began, tries = ngx.now(), 0
      local _, err = guards.late:call(function() tries = tries + 1 ngx.sleep(5) end)
      ngx.update_time()
      ngx.say(err.kind == 'deadline' or err.kind == 'timeout', ' ', tries > 1, ' ', ngx.now() - began < 2)
    } }
    location = /slots { content_by_lua_block {
      local began, most, threads = {}, 0, {}
      for i = 1, 6 do
        threads[i] = ngx.thread.spawn(function()
          return guards.slots:call(function()
            began[#began + 1] = i
            most = math.max(most, guards.slots:snapshot().bulkhead_in_flight)
            ngx.sleep(0.01)
            return true
          end)
        end)
      end
      local served = 0
      for i = 1, 6 do
        local _, ok = ngx.thread.wait(threads[i])
        if ok then served = served + 1 end
      end
      ngx.say(served, ' ', table.concat(began), ' ', most, ' ', guards.slots:snapshot().bulkhead_in_flight)
    } }
    location = /short { content_by_lua_block {
      local permit = guards.short:acquire()
      local _, err = guards.short:call(function() return true end)
      guards.short:report(permit, 'success')
      local value = guards.short:call(function() return 'free' end)
      ngx.say(err.kind, ' ', value)
    } }
    location = /killed { content_by_lua_block {
      local thread = ngx.thread.spawn(function() guards.short:call(function() ngx.sleep(5) end) end)
      local before = guards.short:snapshot().bulkhead_in_flight
      ngx.thread.kill(thread)
      thread = nil
      collectgarbage() collectgarbage()
      ngx.say(before, ' ', guards.short:snapshot().bulkhead_in_flight)
    } }
    location = /killed_in_turn { content_by_lua_block {
      local a, b = guards.slots:acquire(), guards.slots:acquire()
      local function call() return guards.slots:call(function() return 'served' end) end
      local first, second = ngx.thread.spawn(call), ngx.thread.spawn(call)
      ngx.thread.kill(first)
      ngx.update_time()
      local began = ngx.now()
      guards.slots:report(a, 'success')
      local _, value = ngx.thread.wait(second)
      ngx.update_time()
      guards.slots:report(b, 'success')
      ngx.say(value, ' ', ngx.now() - began < 1)
    } }
    location /proxied {
      access_by_lua_block { guards.proxied:access() }
      proxy_pass http://good;
    }
    location = /proxied_slots { content_by_lua_block {
      ngx.say(guards.proxied:snapshot().bulkhead_in_flight, ' ', guards.proxied:snapshot().bulkhead_rejected)
    } }
  }"

says() { # EXPECTED PATH
  gets 200 "$2"
  [ "$(cat "$dir/body")" = "$1" ] || fail "$2: $(cat "$dir/body"), not $1"
}
says 'up 3' /again
says 'true true true' /late
says '6 123456 2 0' /slots
says 'bulkhead free' /short
says '1 0' /killed
says 'served true' /killed_in_turn

# ---- Proxied requests: a slot for as long as the request takes ----

gets 200 /proxied
says '0 0' /proxied_slots
status '/proxied?how=hang' >/dev/null &
pids="$pids $!"
taken() { status /proxied_slots >/dev/null; grep -q '^1 ' "$dir/body"; }
within 5 taken
gets 503 /proxied
says '1 1' /proxied_slots
given_back() { status /proxied_slots >/dev/null; grep -q '^0 1$' "$dir/body"; }
within 10 given_back
gets 200 /proxied
