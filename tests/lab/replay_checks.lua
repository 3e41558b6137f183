--- What tests/lab/test_replay.sh expects of `neap replay --json`: one check by its name.
---
---   lua5.4 replay_checks.lua samples NEAP POLICY
---   lua5.4 replay_checks.lua same FILE FILE...
local cjson = require "cjson"

local checks = {}

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function replay(neap, policy, arguments)
  local command = ("'%s' replay %s --policy '%s' --json"):format(neap, arguments, policy)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  assert(pipe:close(), command)
  return cjson.decode(text)
end

local NGINX = [['$remote_addr [$time_local] "$request" $status $request_time $upstream_addr ]]
  .. [[$upstream_status $upstream_response_time $msec']]
local APACHE = [['LogFormat "%h %l %u %t \"%r\" %>s %b %D %{X-Tenant}i" timed']]

--- Of each sample: what it is read as, and what there is in it.  success, failure, timeout and
--- neutral are what the shipped classifier says of the calls.
local SAMPLES = {
  { "combined.log", what = "access log, combined", calls = 5, success = 1, failure = 2, neutral = 2,
    from = "2025-10-10 11:55:36" },
  { "common.log", what = "access log, common", calls = 3, success = 1, failure = 1, neutral = 1,
    from = "2000-10-10 20:55:36" },
  { "vhost.log", "--key host", what = "access log, combined with the host in front", calls = 2,
    success = 1, failure = 1, keys = { "shop.example.com:443", "pay.example.com:443" } },
  -- Two upstreams that were asked are two calls; a static file is none.
  { "nginx_upstream.log", "--key upstream_addr --log-format " .. NGINX, what = "by --log-format",
    calls = 8, success = 3, failure = 4, neutral = 1, aside = 1,
    took = { 118, 5, 300, 2000, 2001, 2, 0, 1500 }, from = "2025-10-10 13:55:36",
    keys = { "10.0.0.1:80", "10.0.0.2:80", "10.0.1.1:80", "backend" } },
  { "apache.log", "--key http_x_tenant --log-format " .. APACHE, what = "by --log-format",
    calls = 4, success = 2, failure = 1, neutral = 1, took = { 1, 3100, 0, 0 }, begins = 4,
    keys = { "acme", "umbrella", "default" }, from = "2025-10-10 13:55:36" },
  { "envoy.jsonl", what = "JSON lines, Envoy's", calls = 6, success = 1, failure = 4, timeout = 1,
    neutral = 1, aside = 1, begins = 6, took = { 12, 251, 0, 400, 80, 9 } },
  { "caddy.jsonl", what = "JSON lines", calls = 2, success = 1, failure = 1, took = { 1, 750 },
    guessed = "s" },
  { "app.jsonl", "--key host", what = "JSON lines", calls = 3, success = 1, failure = 2,
    took = { 12, 0, 3 }, keys = { "shop", "default" } },
  { "calls.csv", "--map time=when --map status=code", what = "CSV", calls = 3, success = 2,
    failure = 1, took = { 12, 1501, 8 }, guessed = "ms", from = "2025-10-10 13:55:34" },
  { "calls.csv", "--map time=when:ms --map status=code --map duration=took:us", what = "CSV",
    calls = 3, success = 2, failure = 1, took = { 0, 2, 0 } },
  { "browser.har", "--key host", what = "HAR", calls = 3, success = 1, failure = 2, begins = 3,
    took = { 42, 4, 900 }, keys = { "shop.example.com" } },
  { "damaged.log", what = "access log, combined", calls = 4, success = 3, failure = 1,
    damaged = {
      { "not of the format", 1, 2 }, { "a time that is none", 1, 4 },
      { "a status that is none", 1, 5 }, { "a time far from those around it", 2, 6 },
      { "cut off: the log ends in the middle", 1, 11 },
    } },
}

local function is(expected, got, what)
  if expected ~= got then
    error(("%s: %s, not %s"):format(what, tostring(got), tostring(expected)), 0)
  end
end

local function sum(list)
  local all = 0
  for _, n in ipairs(list) do all = all + n end
  return all
end

function checks.samples(neap, policy)
  for _, sample in ipairs(SAMPLES) do
    local name = sample[1]
    local result = replay(neap, policy, ("tests/lab/logs/%s %s"):format(name, sample[2] or ""))
    local source, counts = result.source, result.policies[1].counts
    is(sample.what, source.logs[1].what, name)
    is(sample.calls, counts.calls, name .. ": calls")
    for _, field in ipairs { "success", "failure", "timeout", "neutral" } do
      is(sample[field] or 0, counts[field], name .. ": " .. field)
    end
    is(sample.aside or 0, source.aside, name .. ": aside")
    is(sample.begins or 0, source.begins, name .. ": begins")
    is(sample.guessed, source.logs[1].guessed, name .. ": unit")
    if sample.took then
      is(sum(sample.took), sum(result.policies[1].series.took_ms), name .. ": ms")
    end
    if sample.from then
      is(sample.from, os.date("!%Y-%m-%d %H:%M:%S", math.floor(source.from_ms / 1000)), name)
    end
    if sample.keys then
      local keys = {}
      for i, key in ipairs(result.policies[1].keys) do keys[i] = key.key end
      is(table.concat(sample.keys, " "), table.concat(keys, " "), name .. ": keys")
    end
    local damaged = sample.damaged or {}
    is(#damaged, #source.damaged, name .. ": kinds of damage")
    for i, one in ipairs(damaged) do
      is(one[1], source.damaged[i].kind, name)
      is(one[2], source.damaged[i].count, name .. ": " .. one[1])
      is(one[3], source.damaged[i].line, name .. ": where " .. one[1])
    end
  end
end

--- The transitions, and what there was of calls, are the same in all of them.
function checks.same(...)
  local first
  for _, path in ipairs { ... } do
    local policy = cjson.decode(read(path)).policies[1]
    local lines = {}
    for i, told in ipairs(policy.transitions) do lines[i] = told.at .. " " .. told.text end
    for name, n in pairs(policy.counts) do lines[#lines + 1] = name .. "=" .. n end
    table.sort(lines)
    local text = table.concat(lines, "\n")
    assert(#policy.transitions >= 6, path .. ": not much has happened")
    first = first or text
    if text ~= first then error(("%s differs:\n%s\n---\n%s"):format(path, text, first), 0) end
  end
end

local ok, message = pcall(checks[arg[1]], table.unpack(arg, 2))
if not ok then
  io.stderr:write(message, "\n")
  os.exit(1)
end
