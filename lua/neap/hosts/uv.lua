--- The libuv host, for any Lua program on luv: coroutines that wait for callbacks of its loop.
--
--   caller    -- guard:call(f) -->  run: starts f in a coroutine of its own, and waits
--   f         waits as ever: takes coroutine.running(), yields, is resumed by a callback
--   deadline  comes first: run answers false to the caller.  f is not told; what it still does,
--             whenever its callback comes, is nobody's business any more
--
-- A function that never waits costs no timer.  What blocks the loop (a long loop, a blocking
-- library) can't be given up by anything on that loop: it is found out when it ends.

if not require("neap.call").can_yield then
  error("neap.hosts.uv needs LuaJIT, or Lua 5.3 and later: Lua 5.1 cannot wait below a protected "
    .. "call. With the plain host, put guard:acquire and guard:report around what waits", 0)
end

local uv = require "luv"

-- The program, or a policy's sandbox, may replace these later.
local create, resume, running = coroutine.create, coroutine.resume, coroutine.running
local status, yield = coroutine.status, coroutine.yield

--- The running coroutine; nil outside of any.
local function current()
  local co, is_main = running()
  if not is_main then return co end
end

--- Goes on with a coroutine from a callback.  Its error becomes the callback's, which luv reports.
local function wake(co, ...)
  if status(co) ~= "suspended" then return end
  local ok, err = resume(co, ...)
  if ok then return end
  if type(err) == "string" then err = debug.traceback(co, err) end
  error(err, 0)
end

--- A timer that fires once and is gone.
local function once(ms, callback)
  local timer = assert(uv.new_timer())
  uv.update_time() -- timers count from the loop's idea of now, which can be arbitrarily old
  timer:start(math.max(0, math.ceil(ms)), 0, function()
    timer:close()
    callback()
  end)
  return timer
end

---@type neap.Host
local host = { name = "uv", now = "precise", outlives = true }

--- Runs f(...) and waits for it, but not longer than timeout_ms: true and its first two results, or
--- false.  Raises what f raises.  Outside of any coroutine nothing can wait: f is just called.
---@param timeout_ms integer
---@param f function
---@return boolean in_time, any a, any b
function host.run(timeout_ms, f, ...)
  local caller = current()
  if not caller then return true, f(...) end
  local began_ns = uv.hrtime()
  local state, is_waiting = "running", false
  local ok, a, b
  local body = create(function(...)
    ok, a, b = pcall(f, ...)
    if state ~= "running" then return end
    state = "ended"
    if is_waiting then wake(caller) end
  end)
  local started, err = resume(body, ...)
  if not started then error(err, 0) end

  if state == "running" then
    local left_ms = timeout_ms - (uv.hrtime() - began_ns) / 1e6
    local timer = once(left_ms, function()
      if state ~= "running" then return end
      state = "given up"
      wake(caller)
    end)
    is_waiting = true
    while state == "running" do yield() end -- somebody else's resume changes nothing
    if not timer:is_closing() then timer:close() end
  end
  if state == "given up" then return false end
  if not ok then error(a, 0) end
  return true, a, b
end

--- Waits.  In a coroutine only: outside of any there is nothing to go on with meanwhile.
---@param ms number
function host.sleep(ms)
  local co = current()
  if not co then error("sleep must be called in a coroutine, as by neap.hosts.uv.spawn", 2) end
  local is_over = false
  once(ms, function()
    is_over = true
    wake(co)
  end)
  while not is_over do yield() end
end

--- Calls start(done) and waits until that calls done(...), which it answers.  Outside of any
--- coroutine nothing can wait: it answers false, and start was not called.
---@param start fun(done: function)
---@return any a, any b
function host.wait(start)
  local co = current()
  if not co then return false end
  local is_waiting, is_over, a, b = false, false, nil, nil
  start(function(...)
    a, b = ...
    is_over = true
    if is_waiting then wake(co) end
  end)
  is_waiting = true
  while not is_over do yield() end
  return a, b
end

--- Has a file put on the disk, elsewhere, and then calls done(true), or done(nil, message).
---@param descriptor integer
---@param done fun(ok: boolean|nil, message?: string)
function host.sync(descriptor, done)
  local request, message = uv.fs_fdatasync(descriptor, function(err)
    if err then done(nil, err) else done(true) end
  end)
  if not request then done(nil, message) end
end

--- Waits until the function that ready is given is called, but not longer than ms.  Who calls it
--- goes on first: the waiter's turn is the loop's next.  Outside of any coroutine nothing waits.
---@param ms number
---@param ready fun(wake: fun(): boolean)
---@return boolean was_woken
function host.turn(ms, ready)
  local co = current()
  if not co then return false end
  local state = "waits"
  local timer
  local function over()
    if state == "waits" then state = "late" end
    timer:close()
    timer = nil
    wake(co)
  end
  uv.update_time()
  timer = assert(uv.new_timer())
  timer:start(math.max(0, math.ceil(ms)), 0, over)
  ready(function()
    if state ~= "waits" then return false end
    state = "woken"
    timer:start(0, 0, over)
    return true
  end)
  while timer do yield() end
  return state == "woken"
end

--- Runs f() after a while, unless the loop has ended before.
---@param ms number
---@param f fun()
function host.later(ms, f)
  once(ms, f):unref()
end

--- Runs f(...) in a coroutine of its own until it waits for the first time, and goes on with the
--- caller.  What it raises before that is raised here, later by the callback that resumed it.
---@param f function
function host.spawn(f, ...)
  wake(create(f), ...)
end

return host
