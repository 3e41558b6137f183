--- Hot reload and real timeouts, in a Lua program on luv: a call that takes too long is given up,
--- and the policy's file is edited while the program runs.
local uv = require "luv"
local neap = require "neap"
local host = require "neap.hosts.uv"
local reload = require "neap.reload"
local watch = require "neap.watch"

local directory = assert(uv.fs_mkdtemp("/tmp/neap-example-XXXXXX"))
local path = directory .. "/slow.lua"

local function save(numbers)
  local file = assert(io.open(path, "w"))
  file:write('return { name = "slow", trip = { failures = 2 }, ', numbers, " }")
  file:close()
end

save "timeout_ms = 20"
local guard = neap.guard(path, { host = host })

--- An upstream that takes its time; it waits as any luv program waits.
local function call(ms)
  local value, err = guard:call(function()
    host.sleep(ms)
    return "an answer"
  end)
  print(value or err.kind)
end

local seen
local reloader = assert(reload.guards({ guard }, {
  now = neap.clock.precise,
  on_event = function(event) seen = event.kind end,
}))
local watcher = watch.start(reloader)

local function edit(numbers)
  seen = nil
  save(numbers)
  while not seen do host.sleep(20) end
  print("  " .. seen)
end

host.spawn(function()
  call(100)
  edit "timeout_ms = = 1000" -- a slip: the policy that was loaded goes on serving
  edit "timeout_ms = 1000"
  call(100)
  edit "timeout_ms = 20"
  call(100) -- the second failure: no reload has made the breaker forget the first
  call(1)
  watcher:close()
  assert(os.remove(path) and os.remove(directory))
end)
uv.run()

--[[ prints
timeout
  reload_failed
  reloaded
an answer
  reloaded
timeout
open
]]
