# neap in nginx: guard:call around cosockets, subrequests, in timers; acquire and report in every phase.
. "$(dirname "$0")/nginx_support.sh"

processes=1 # that phases see what the one before saw

policy call "trip = { consecutive_failures = 1000 }, timeout_ms = 300,"
policy opens "trip = { consecutive_failures = 2 }, open = { cooldown_ms = 60000 }, timeout_ms = 300,
  fallback = { fallback.default 'instead' },"
policy via "trip = { consecutive_failures = 1 }, open = { cooldown_ms = 60000 },
  fallback = { fallback.guard('call') },"
nginx_serve site "
  lua_socket_log_errors off;
  init_by_lua_block {
    neap = require 'neap.nginx'
    guards = neap.open { panel = '$panel', policies = '$dir/policies' }
    guards.call.serve = function() return fetch('') end
    seen = {}
    function fetch(query)
      local socket = ngx.socket.tcp()
      local ok, err = socket:connect('127.0.0.1', $upstream_port)
      if not ok then return nil, err end
      socket:send('GET /?' .. query .. ' HTTP/1.0\r\n\r\n')
      local line, err = socket:receive('*l')
      if not line then return nil, err end
      socket:close()
      if line:find(' 5%d%d ') then return nil, line end
      return line
    end
    function try(guard)
      local permit, err = guard:acquire()
      if permit then guard:report(permit, 'success') end
      seen[ngx.get_phase()] = permit ~= nil
    end
    try(guards.call)
  }
  init_worker_by_lua_block { neap.start() }
  log_by_lua_block { neap.log() }
  server {
    listen 127.0.0.1:$port;
    location = /fetch {
      content_by_lua_block {
        local began = ngx.now()
        local value, err, info = guards[ngx.var.arg_guard or 'call']:call(fetch, 'how=' .. (ngx.var.arg_how or ''))
        ngx.update_time()
        ngx.say(value or tostring(err), ' ', info and info.source or 'primary', ' ', ngx.now() - began < 1)
      }
    }
    location = /raises { content_by_lua_block {
      ngx.say(pcall(guards.call.call, guards.call, function() ngx.sleep(0.01) error({ 'mine' }) end))
    } }
    location = /exits { content_by_lua_block { guards.call:call(function() ngx.sleep(0.01) return ngx.exit(418) end) } }
    location = /capture { content_by_lua_block {
      local answer, err = guards.call:call(ngx.location.capture, '/inner', { args = { how = ngx.var.arg_how } })
      ngx.say(answer and answer.status or err.kind)
    } }
    location = /inner { internal; proxy_pass http://good; }
    location = /timer { content_by_lua_block {
      local result
      assert(ngx.timer.at(0, function() result = { guards.call:call(fetch, 'how=hang') } end))
      ngx.sleep(0.6)
      ngx.say(result and result[2].kind)
    } }
    location = /nested { content_by_lua_block {
      local depth = 0
      local function deeper()
        depth = depth + 1
        if depth < 10 then return coroutine.wrap(deeper)() end
        return guards.call:call(fetch, '')
      end
      ngx.say(coroutine.wrap(deeper)())
    } }
    location = /phases {
      set_by_lua_block \$x { try(guards.call) return '' }
      rewrite_by_lua_block { try(guards.call) }
      access_by_lua_block { try(guards.call) }
      content_by_lua_block { try(guards.call) ngx.timer.at(0, function() try(guards.call) end) ngx.say('ok') }
      header_filter_by_lua_block { try(guards.call) }
      body_filter_by_lua_block { try(guards.call) }
      log_by_lua_block { try(guards.call) guards.call:call(function() seen.call_in_log = true return 1 end) neap.log() }
    }
    location = /seen { content_by_lua_block {
      local list = {}
      for phase, ok in pairs(seen) do list[#list + 1] = phase .. '=' .. tostring(ok) end
      table.sort(list)
      ngx.say(table.concat(list, ' '))
    } }
    location = /via { access_by_lua_block { guards.via:access() } proxy_pass http://good; }
    location = /aborted {
      lua_check_client_abort on;
      content_by_lua_block { ngx.say(guards.call:call(fetch, 'how=hang')) }
    }
    location = /metrics { content_by_lua_block { neap.metrics() } }
  }"

says() { # TEXT PATH
  got=$(curl -s --max-time 2 "$site$2")
  [ "$got" = "$1" ] || fail "$2 says: $got, not $1"
}

says "HTTP/1.1 200 OK primary true" /fetch
says "HTTP/1.1 500 Internal Server Error primary true" "/fetch?how=500"
says "call/default: the call took longer than allowed (300 ms) primary true" "/fetch?how=hang"
calls call success 2 # one by init_by_lua
calls call failure 1
calls call timeout 1
for _ in 1 2 3; do says "instead default true" "/fetch?guard=opens&how=500"; done
calls opens rejected 1
state opens 2
[ "$(curl -s "$site/raises" | cut -c1-5)" = false ] || fail "it did not raise"
calls call failure 2
curl -s -o /dev/null -w '%{http_code}' "$site/exits" | grep -qx 418 || fail "ngx.exit in a call"
says 200 "/capture?how="
says 500 "/capture?how=500"
says timeout "/timer"
says "HTTP/1.1 200 OKnil" /nested
says ok /phases
sleep 0.1
says "access=true body_filter=true call_in_log=true content=true header_filter=true init=true log=true rewrite=true set=true timer=true" /seen
gets 500 "/via?how=500"
gets 200 /via # by another guard's cosocket, in the access phase
header 'Neap-Source: guard'
[ "$(tr -d '\r' <"$dir/body")" = "HTTP/1.1 200 OK" ] || fail "not the other guard's: $(cat "$dir/body")"
curl -s --max-time 0.1 "$site/aborted" && fail "it was not aborted"
sleep 0.4
metric 'neap_nginx_requests 0'
nginx_stop
