--- How many calls neap replay takes in a second of processor time: NAME, tab, a number a round.
---
---   lua5.4 tests/bench/replay.lua BUILD ROUNDS [CALLS]
local neap, rounds, calls = arg[1] .. "/bin/neap", tonumber(arg[2]), tonumber(arg[3] or 400000)

local function output(command, ...)
  local pipe = assert(io.popen(command:format(...)))
  local text = pipe:read("a")
  assert(pipe:close(), command)
  return text
end

local dir = output("mktemp -d"):match("%S+")

local function write(name, line_of, head)
  local file = assert(io.open(dir .. "/" .. name, "w"))
  if head then file:write(head) end
  for i = 1, calls do
    local at_ms, is_bad = 1764590400000 + i, i % 100000 > 95000
    file:write(line_of(at_ms, is_bad and 503 or 200, is_bad and 500 or 12, i))
  end
  file:close()
end

local function clf(ms) return os.date("!%d/%b/%Y:%H:%M:%S +0000", ms // 1000) end

write("access.log", function(ms, status, _, i)
  return ('10.0.0.%d - - [%s] "GET /flags/new-checkout?user=%d HTTP/1.1" %d 512 "-" "curl/8.5"\n')
    :format(i % 250, clf(ms), i, status)
end)
write("calls.json", function(ms, status, took_ms, i)
  return ('{"time":%d,"level":"info","method":"GET","path":"/flags/%d","status":%d,'
    .. '"duration_ms":%d,"remote":"10.0.0.%d"}\n'):format(ms, i % 100, status, took_ms, i % 250)
end)
write("calls.csv", function(ms, status, took_ms)
  return ("%d,%d,%d\n"):format(ms, status, took_ms)
end, "time,status,duration_ms\n")

local function policy(name, more)
  local file = assert(io.open(("%s/%s.lua"):format(dir, name), "w"))
  file:write(('return { name = "%s", trip = { failure_rate = 0.5, minimum_calls = 20 }, %s }')
    :format(name, more))
  file:close()
end
policy("shipped", "")
policy("own", 'classify = function(call) if call.code == "X" then return "neutral" end '
  .. "return classify.http(call) end")
policy("keyed", "key = function(call) return route(call.request.target) end")

--- User and system time of a replay, as the shell has them.
local function seconds(log, with)
  local script = ("%s/time.sh"):format(dir)
  local file = assert(io.open(script, "w"))
  file:write(("'%s' replay %s/%s --policy %s/%s.lua >/dev/null\ntimes\n"):format(neap, dir, log,
    dir, with))
  file:close()
  local user_m, user, system_m, system =
    output("sh %s", script):match("\n(%d+)m([%d.]+)s (%d+)m([%d.]+)s")
  return user_m * 60 + user + system_m * 60 + system
end

local function measure(name, log, with)
  local numbers = {}
  for i = 1, rounds do numbers[i] = ("%.0f"):format(calls / seconds(log, with)) end
  print(("%s calls/s\t%s"):format(name, table.concat(numbers, " ")))
end

measure("replay csv", "calls.csv", "shipped")
measure("replay access log", "access.log", "shipped")
measure("replay json", "calls.json", "shipped")
measure("replay own classify", "calls.csv", "own")
measure("replay own key", "access.log", "keyed")
output("rm -rf %s", dir)
