--- A program under LuaJIT that uses neap as the documents say, long enough for every function to be
--- compiled or given up.  Prints what its compiler gave up for good, or "ok".
local clock = require "neap.clock"
local classify = require "neap.classify"
local core = require "neap.core"
local neap = require "neap"
local jit, util, vmdef = require "jit", require "jit.util", require "jit.vmdef"

local ROUNDS = 60000

-- ---- The trace log -----------------------------------------------------------------------------

local started, aborted = {}, {}

local function place(f, pc)
  local info = util.funcinfo(f, pc)
  return info.loc or "C"
end
-- The log is told from within the compiler, which takes where compiled code leaves off, there, for
-- where what it is compiling did; so nothing that the log calls may be compiled.
jit.off(place)

jit.attach(function(what, trace, f, pc, code, more)
  if what == "start" then
    started[trace] = place(f, pc)
  elseif what == "abort" then
    local why = type(code) == "number" and vmdef.traceerr[code]:format(tostring(more)) or code
    local from = started[trace]
    aborted[from] = ("%s, at %s"):format(why, place(f, pc))
  end
end, "trace")

-- A function or loop that was given up for good has one of these instead of its own.
local GIVEN_UP = { IFUNCF = true, IFUNCV = true, IFORL = true, IITERL = true, ILOOP = true }

--- The places of a function that are not compiled any more.
local function given_up(f)
  local places, pc = {}, 0
  while true do
    local instruction = util.funcbc(f, pc)
    if not instruction then return places end
    local at = instruction % 256 * 6
    if GIVEN_UP[vmdef.bcnames:sub(at + 1, at + 6):match "%S+"] then
      places[#places + 1] = place(f, pc)
    end
    pc = pc + 1
  end
end

--- Calls f with each function of neap's: all that its modules lead to.
local function each_function(f)
  local seen = {}
  local function walk(value)
    local kind = type(value)
    if kind ~= "table" and kind ~= "function" or seen[value] then return end
    seen[value] = true
    if kind == "table" then
      for key, part in next, value do
        walk(key)
        walk(part)
      end
      return walk(debug.getmetatable(value))
    end
    local source = util.funcinfo(value).source
    if source and source:find "lua/neap/" then f(value) end
    for i = 1, math.huge do
      local name, part = debug.getupvalue(value, i)
      if not name then break end
      walk(part)
    end
  end
  for name, module in pairs(package.loaded) do
    if name:find "^neap" then walk(module) end
  end
end

-- ---- The program -------------------------------------------------------------------------------

local function up(x) return x end
local function down() return nil, "down" end
local function raise() error("down", 0) end

local function request(i, g, line, now)
  g:call(up, "flag")
  g:call(up, i % 10)
  line:call(up, "x")
  local permit = g:acquire()
  if permit then g:report(permit, "success") end
  permit = g:acquire()
  if permit then g:report(permit, { status = 200, duration_ms = 12 }) end
  permit = g:acquire "us"
  if permit then g:report(permit, { result = 1 }) end
  if i % 3 == 0 then g:call(down, "flag") end
  if i % 7 == 0 then pcall(g.call, g, raise) end
  if i % 50 == 0 then now:advance(100) end
  if i % 500 < 100 then g:call(down, "flag") end
  if i % 100 == 0 then g:snapshot() end
end

--- In a loop of the program's, which LuaJIT compiles with all that is called in it.
local function in_a_loop(...)
  for i = 1, ROUNDS do request(i, ...) end
end

--- From C, as a server's requests: each begins anew.
local function from_outside(...)
  for i = 1, ROUNDS do core.protect(request, i, ...) end
end

--- Each in a coroutine of its own.
local function in_coroutines(...)
  for i = 1, ROUNDS do coroutine.wrap(request)(i, ...) end
end

for name, run in pairs {
  flag_provider = in_a_loop, http_upstream = from_outside, payments = in_coroutines,
} do
  local now = clock.manual()
  local g = neap.guard("policies/" .. name .. ".lua",
    { clock = now, on_event = function() end, log = function() end })
  run(g, g:at "eu", now)
end

local calls = {
  { status = 200 }, { status = 503, headers = { ["Retry-After"] = "10" } }, { status = 404 },
  { code = "FLAG_NOT_FOUND" }, { grpc_status = 14 }, { ended_by = "timeout" }, { result = 1 },
  { error = "x" }, { status = 200, headers = { ["content-type"] = "text/plain" } },
  { status = 500, body = '{"errorCode":"GENERAL"}' },
}
for i = 1, 2 * ROUNDS do
  local call = calls[i % #calls + 1]
  for _, name in ipairs(classify.names) do classify[name](call) end
end

-- ---- What came of it ---------------------------------------------------------------------------

-- Something that LuaJIT gives up for certain: so the log is read as it should be.
local function makes_functions(i) return function() return i end end
for i = 1, 10 * ROUNDS do makes_functions(i) end
assert(given_up(makes_functions)[1], "what LuaJIT cannot compile was not found")

local looked_at, found = 0, {}
each_function(function(f)
  looked_at = looked_at + 1
  for _, at in ipairs(given_up(f)) do
    found[#found + 1] = ("%s is not compiled: %s"):format(at, aborted[at] or "for what it calls")
  end
end)
assert(looked_at > 300, looked_at)
print(found[1] and table.concat(found, "\n") or "ok")
