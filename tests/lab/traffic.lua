--- The same traffic, a minute of it with an outage, in every format that neap replay reads.
---
---   lua5.4 traffic.lua DIRECTORY      writes nginx.log, apache.log, ... there
---
--- Each line is as the format's specification has it; the samples in tests/lab/logs are by hand.
local directory = assert(arg[1], "which directory?")

local BEGIN_MS = 1764590400000 -- 2025-12-01T12:00:00Z

--- From the 20th to the 30th second calls fail, and some of them hang for a second.
local calls = {}
for i = 1, 1200 do
  local at_ms = BEGIN_MS + i * 50
  local is_bad = at_ms >= BEGIN_MS + 20000 and at_ms < BEGIN_MS + 30000
  local took_ms = is_bad and (i % 3 == 0 and 1000 or 40) or 10 + i % 7
  calls[i] = {
    begin_ms = at_ms, took_ms = took_ms, end_ms = at_ms + took_ms, status = is_bad and 503 or 200,
    path = "/items/" .. i % 50, number = i,
  }
end
-- A log is written as calls end.
table.sort(calls, function(a, b)
  if a.end_ms ~= b.end_ms then return a.end_ms < b.end_ms end
  return a.number < b.number
end)

local function clf(ms) return os.date("!%d/%b/%Y:%H:%M:%S +0000", ms // 1000) end
local function rfc3339(ms)
  return os.date("!%Y-%m-%dT%H:%M:%S", ms // 1000) .. (".%03dZ"):format(ms % 1000)
end
local function seconds(ms) return ("%d.%03d"):format(ms // 1000, ms % 1000) end

local function write(name, line_of, head, tail, between)
  local file = assert(io.open(directory .. "/" .. name, "w"))
  if head then file:write(head) end
  for i, call in ipairs(calls) do
    if between and i > 1 then file:write(between) end
    file:write(line_of(call))
  end
  if tail then file:write(tail) end
  file:close()
end

write("nginx.log", function(c)
  return ('203.0.113.%d - - [%s] "GET %s HTTP/1.1" %d 512 "-" "curl/8.5" %s %s "%s" %d\n'):format(
    c.number % 200, clf(c.end_ms), c.path, c.status, seconds(c.end_ms), seconds(c.took_ms),
    "10.0.0.5:8080", c.status)
end)

-- %{msec_frac} has no order of its own; the request's beginning in microseconds has.
write("apache.log", function(c)
  return ('203.0.113.%d - - %d "GET %s HTTP/1.1" %d 512 %d\n'):format(c.number % 200,
    c.begin_ms * 1000, c.path, c.status, c.took_ms * 1000)
end)

write("calls.jsonl", function(c)
  return ('{"level":"info","ts":"%s","request":{"method":"GET","uri":"%s","host":"shop"},'
    .. '"status":%d,"duration_ms":%d}\n'):format(rfc3339(c.end_ms), c.path, c.status, c.took_ms)
end)

write("calls.csv", function(c)
  return ('%d,"GET, of course",%s,%d,%d\r\n'):format(c.end_ms, c.path, c.status, c.took_ms)
end, "timestamp,note,path,status,latency_ms\r\n")

write("envoy.jsonl", function(c)
  return ('{"start_time":"%s","method":"GET","path":"%s","protocol":"HTTP/1.1",'
    .. '"response_code":%d,"response_flags":"-","bytes_received":0,"bytes_sent":512,'
    .. '"duration":%d,"upstream_service_time":"%d","authority":"shop",'
    .. '"upstream_host":"10.0.0.5:8080"}\n'):format(rfc3339(c.begin_ms), c.path, c.status,
      c.took_ms, c.took_ms)
end)

write("calls.har", function(c)
  return ('{"startedDateTime":"%s","time":%d,"request":{"method":"GET","url":"http://shop%s",'
    .. '"headers":[{"name":"Cookie","value":"\\"}]{"}],"cookies":[]},"response":{"status":%d,'
    .. '"content":{"size":9,"text":"%s"}},"cache":{},"timings":{"wait":%d}}'):format(
      rfc3339(c.begin_ms), c.took_ms, c.path, c.status, ("\\\"{[x"):rep(2000), c.took_ms)
end, '{ "log": {"version":"1.2","creator":{"name":"entries","version":"1"},"pages":[{"id":"[{"}],'
  .. '\n"entries":[\n', "\n]}}\n", ",\n")

local last_ms = 0
write("calls.rec", function(c)
  local after_ms = last_ms > 0 and c.end_ms - last_ms or 0
  last_ms = c.end_ms
  return ("c 0 %d %d a%d\n"):format(after_ms, c.took_ms, c.status)
end, ("#neap-recording 1\nt %d\np 0 shop 0123456789abcdef 0\nk 0 0 default\n"):format(
  calls[1].end_ms))
