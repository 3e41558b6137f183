--- What Lua pays: nanoseconds, or instructions under callgrind, and bytes for each call.
--
--   lua5.4 tests/bench/lua.lua time ROUNDS | bytes                    or luajit
--   valgrind --tool=callgrind ... lua5.4 tests/bench/lua.lua count
local core = require "neap.core"
local floor = require "bench_floor"
local neap = require "neap"
local policy = require "neap.policy"

local COUNTED, WATCHED, SETTLED, SLICE_NS = 1000, 100000, 2000, 2.5e6

-- Each measurement is a loop of its own: an indirect call would be part of what it measures.
local measurements = {}
local function measure(name, loop)
  measurements[#measurements + 1] = { name = name, loop = loop }
end

local function guard_of(text)
  local p, err = policy.parse(text, "=bench")
  if not p then error(tostring(err), 0) end
  return neap.guard(p)
end

local function empty() end
local function answer() return 1 end
local object = floor.object()

measure("floor empty loop", function(n)
  for _ = 1, n do end
end)

measure("floor two empty methods and a Lua call", function(n)
  for _ = 1, n do
    object:nothing()
    empty()
    object:nothing()
  end
end)

measure("floor pcall and an empty method", function(n)
  for _ = 1, n do
    object:nothing()
    pcall(empty)
  end
end)

do
  local acquire, report = floor.nothing_pair()
  measure("floor two empty closures and a Lua call", function(n)
    for _ = 1, n do
      local permit = acquire()
      empty()
      report(permit, "success")
    end
  end)
end

do
  local acquire, report = floor.asking_pair()
  measure("floor ... that ask Lua what bound ones must", function(n)
    for _ = 1, n do
      local permit = acquire()
      empty()
      report(permit, "success")
    end
  end)
end

do
  local rules = core.rules { failure_rate = 0.5, consecutive_failures = 10 }
  local breaker = core.breaker()
  local now_ms = core.clock_coarse
  breaker:adopt(rules)
  measure("breaker acquire and report", function(n)
    for _ = 1, n do
      local permit = breaker:acquire(rules, now_ms())
      empty()
      breaker:report(rules, now_ms(), permit, "success", 0)
    end
  end)
end

do
  local rules = core.rules { failure_rate = 0.5, consecutive_failures = 10 }
  local acquire, report = core.breaker():bind(rules)
  measure("bound acquire and report", function(n)
    for _ = 1, n do
      local permit = acquire()
      empty()
      report(permit, "success")
    end
  end)
end

local TRIP = "trip = { failure_rate = 0.5, consecutive_failures = 10 }"

do
  local g = guard_of("return { name = 'two_step', " .. TRIP .. " }")
  measure("guard acquire and report", function(n)
    for _ = 1, n do
      local permit = g:acquire()
      empty()
      g:report(permit, "success")
    end
  end)
end

do
  local g = guard_of("return { name = 'call', " .. TRIP .. " }")
  measure("guard call", function(n)
    for _ = 1, n do g:call(empty) end
  end)
  measure("guard call, 2 arguments and a result", function(n)
    for _ = 1, n do g:call(answer, n, n) end
  end)
end

do
  local g = guard_of("return { name = 'classified', " .. TRIP .. [[,
    classify = function(call)
      if call.code == "NOT_FOUND" then return "neutral" end
      return "success"
    end }]])
  measure("guard call, classified", function(n)
    for _ = 1, n do g:call(answer) end
  end)
end

do
  local g = guard_of("return { name = 'open', " .. TRIP ..
    ", open = { cooldown_ms = 86400000, jitter = 0 } }")
  g:trip()
  measure("guard call, refused", function(n)
    for _ = 1, n do g:call(empty) end
  end)
end

-- ---- how ----

local function time_of(loop, n)
  local start = floor.cpu_ns()
  loop(n)
  return floor.cpu_ns() - start
end

local function print_times(rounds)
  pcall(collectgarbage, "generational")
  for _, m in ipairs(measurements) do
    m.loop(SETTLED)
    local ns = time_of(m.loop, SETTLED) / SETTLED
    m.n = math.max(100, math.floor(SLICE_NS / math.max(0.1, ns)))
    m.rounds = {}
  end
  for round = 1, rounds do
    for _, m in ipairs(measurements) do
      m.rounds[round] = ("%.3f"):format(time_of(m.loop, m.n) / m.n)
    end
  end
  for _, m in ipairs(measurements) do print(m.name .. "\t" .. table.concat(m.rounds, " ")) end
end

local function print_bytes()
  for _, m in ipairs(measurements) do
    m.loop(SETTLED)
    collectgarbage()
    collectgarbage("stop")
    local before = collectgarbage("count")
    m.loop(WATCHED)
    print(("%s\t%.2f"):format(m.name, (collectgarbage("count") - before) * 1024 / WATCHED))
    collectgarbage("restart")
  end
end

local function count()
  for _, m in ipairs(measurements) do
    m.loop(rawget(_G, "jit") and SETTLED or 10) -- until it is compiled
    floor.count(m.name, m.loop, COUNTED)
  end
end

local how = arg[1]
if how == "time" then
  print_times(assert(tonumber(arg[2]), "usage: lua.lua time ROUNDS"))
elseif how == "bytes" then
  print_bytes()
elseif how == "count" then
  count()
else
  error("usage: lua.lua time ROUNDS | bytes | count", 0)
end
