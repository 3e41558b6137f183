--- The nginx host: light threads and cosockets; for OpenResty, or nginx with its Lua module.
--
--   caller    -- guard:call(f) -->  run: starts f as a light thread, and waits for it
--   deadline  comes first: f is killed where it waits, and run answers false to the caller
--
-- A function that never waits costs no timer.  One that waits for a subrequest
-- (ngx.location.capture) can't be killed: it goes on, and what it answers is nobody's business any
-- more.  Where there are no light threads (log_by_lua, header_filter_by_lua ...) nothing can wait:
-- f is just called.

local ngx = ngx
local status, max = coroutine.status, math.max
local spawn, wait, kill, sleep = ngx.thread.spawn, ngx.thread.wait, ngx.thread.kill, ngx.sleep
local get_phase = ngx.get_phase
local semaphore = require "ngx.semaphore"

local HAS_THREADS = {
  rewrite = true, server_rewrite = true, access = true, content = true, timer = true,
  ssl_cert = true, ssl_session_fetch = true, ssl_client_hello = true,
}

--- Light threads run Lua functions only.
local function nap(seconds) sleep(seconds) end

---@type neap.Host
local host = { name = "nginx", keeps_lines = true }

--- Runs f(...) and waits for it, but not longer than timeout_ms: true and its first two results, or
--- false.  Raises what f raises.
---@param timeout_ms integer
---@param f function
---@return boolean in_time, any a, any b
function host.run(timeout_ms, f, ...)
  if not HAS_THREADS[get_phase()] then return true, f(...) end
  local has_ended, ok, a, b
  local body = spawn(function(...)
    ok, a, b = pcall(f, ...)
    has_ended = true
  end, ...)
  if not has_ended then
    local timer = spawn(nap, max(1, timeout_ms) / 1000)
    wait(body, timer)
    kill(has_ended and timer or body)
  end
  if not has_ended then return false end
  if status(body) ~= "dead" then wait(body) end
  if not ok then error(a, 0) end
  return true, a, b
end

--- Waits, where nginx lets something wait.
---@param ms number
function host.sleep(ms)
  sleep(max(0, ms) / 1000)
end

--- Waits until the function that ready is given is called, but not longer than ms; where nginx lets
--- nothing wait, it does not.
---@param ms number
---@param ready fun(wake: fun(): boolean)
---@return boolean was_woken
function host.turn(ms, ready)
  if not HAS_THREADS[get_phase()] then return false end
  local turn, waits = semaphore.new(), true
  ready(function()
    if not waits or turn:count() >= 0 then return false end -- late, or killed where it waited
    turn:post()
    return true
  end)
  local was_woken = turn:wait(max(1, ms) / 1000)
  waits = false
  return was_woken == true
end

--- Runs f(...) beside the caller.
---@param f function
function host.spawn(f, ...)
  spawn(f, ...)
end

return host
