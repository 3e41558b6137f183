local guards = require "tests.support.guards"
local metrics = require "neap.metrics"
local every_host = require "tests.support.series"
local version = require "tests.lua.version"

-- A strict reader of the text format: complains about whatever a server could stumble over.
local UNESCAPED = { ["\\"] = "\\", ['"'] = '"', n = "\n" }

--- The text between the quotes at `start`, and where it ends.
local function read_quoted(text, start, at)
  local plain = text:match('^[^"\\]*"', start)
  if plain then return plain:sub(1, -2), start + #plain end
  local value, i = {}, start
  while text:sub(i, i) ~= '"' do
    local part = text:match('^[^"\\]+', i)
    if not part then
      part = assert(UNESCAPED[text:match("^\\(.)", i)], at .. ": no such escape, or no quote")
      i = i + 1
    end
    value[#value + 1] = part
    i = i + #part
  end
  return table.concat(value), i + 1
end

local function read_labels(text, at)
  local labels, pos = {}, 1
  while pos <= #text do
    local name, start = text:match('^([%a_][%w_]*)="()', pos)
    assert(name and not labels[name], at)
    labels[name], pos = read_quoted(text, start, at)
    assert(version.utf8.len(labels[name]), at)
    assert(pos > #text or text:sub(pos, pos) == ",", at)
    pos = pos + 1
  end
  assert(not text:find("[%c\127]"), at)
  return labels
end

--- A complaint, with the line it is about.
local function check(is_right, what, line)
  if not is_right then error(what .. ": " .. line) end
end

local function read_line(page, line)
  local series, value = line:match("^(.*) (%S+)$")
  check(series, "no value", line)
  local name, inner = series:match("^([%a_:][%w_:]*){(.+)}$")
  name = name or series:match("^[%a_:][%w_:]*$")
  check(name, "no name", line)
  local is_number = value:find("^%-?%d+%.?%d*e?[%-+]?%d*$") or value == "+Inf" or value == "NaN"
  check(is_number, "no number", line)
  local base = name
  if page.types[page.family] == "histogram" then
    base = name:match("^(.*)_bucket$") or name:match("^(.*)_sum$") or name:match("^(.*)_count$")
  end
  check(base == page.family, "not of the family that TYPE named", line)
  check(not page.values[series], "series twice", line)
  page.values[series] = tonumber(value) or math.huge
  local one = { name = name, labels = read_labels(inner or "", line), value = value }
  page.series[#page.series + 1] = one
  page.by_name[name] = page.by_name[name] or {}
  table.insert(page.by_name[name], one)
end

local function read(text)
  local page = { types = {}, helps = {}, values = {}, series = {}, by_name = {} }
  assert(text:sub(-1) == "\n", "the last line has no end")
  for line in text:gmatch("(.-)\n") do
    local help, name = line:match("^# (%u+) ([%w_:]+) %S")
    if help == "HELP" then
      assert(not page.helps[name], "HELP twice: " .. name)
      page.helps[name] = true
    elseif help == "TYPE" then
      assert(not page.types[name] and page.helps[name], "TYPE twice or before HELP: " .. name)
      page.types[name], page.family = line:match("(%S+)$"), name
    else
      read_line(page, line)
    end
  end
  return page
end

local function find(page, name, wanted)
  local found = {}
  for _, one in ipairs(page.by_name[name] or {}) do
    local fits = true
    for label, value in pairs(wanted or {}) do fits = fits and one.labels[label] == value end
    if fits then found[#found + 1] = one end
  end
  return found
end

local function value(page, name, wanted)
  local found = find(page, name, wanted)
  assert(#found == 1, ("%d series of %s"):format(#found, name))
  return tonumber(found[1].value)
end

local function read_page(...) return read(metrics.text { ... }) end

describe("the metrics page", function()
  it("has every series of a breaker before its first call (B151)", function()
    local page = read_page((guards.new("flags")))
    local key = { policy = "flags", key = "default" }
    assert.equal(0, value(page, "neap_breaker_state", key))
    for state, on in pairs { closed = 1, half_open = 0, open = 0 } do
      assert.equal(on, value(page, "neap_breaker_in_state", { key = "default", state = state }))
    end
    for _, outcome in ipairs { "success", "slow", "failure", "timeout", "neutral", "abandoned",
      "stale", "rejected" } do
      assert.equal(0, value(page, "neap_calls_total", { key = "default", outcome = outcome }))
    end
    assert.equal(17, #find(page, "neap_transitions_total", key))
    assert.equal(0, value(page, "neap_call_duration_seconds_count", key))
    assert.equal(0, value(page, "neap_policy_reloads_total",
      { policy = "flags", result = "failed" }))
    assert.equal(1, value(page, "neap_policy_info", { policy = "flags", hash = "0123abcd" }))
  end)

  it("has all that every host has to have, from the start", function()
    every_host.check(metrics.text { (guards.new("flags")) }, "flags", "default")
  end)

  it("has so many series a breaker as docs/operations.md says, and no breaker without end",
    function()
    local file = assert(io.open((os.getenv "NEAP_ROOT" or ".") .. "/docs/operations.md"))
    local said = tonumber(file:read("*a"):match "A breaker has (%d+), its histogram included")
    file:close()
    local guard = require("neap.guard").new(guards.policy("flags"),
      { max_keys = 10, log = function() end })
    for i = 1, 30 do guards.call(guard, 200, 1, "client" .. i) end
    local _, lines = metrics.text({ guard }):gsub('\n[%w_]+{policy="flags",key="', "")
    assert.equal(said * (10 + 2), lines)
  end)

  it("has the same series before and after a whole cycle", function()
    local guard, clock = guards.new("flags", { stages = { { kind = "last_good" } } })
    local before = read_page(guard)
    guards.call(guard, 500)
    clock:advance(6000)
    guards.call(guard, 200)
    guards.call(guard, 200)
    local after = read_page(guard)
    for series in pairs(before.values) do assert.is_not_nil(after.values[series], series) end
    assert.equal(#before.series, #after.series)
  end)

  it("shows half-open once the cooldown is over, with no traffic, and takes no probe (B149)",
    function()
    local guard, clock = guards.new("flags")
    guards.call(guard, 500)
    assert.equal(2, value(read_page(guard), "neap_breaker_state", { key = "default" }))
    assert.equal(5, value(read_page(guard), "neap_breaker_retry_after_seconds",
      { key = "default" }))
    clock:advance(5001)
    for _ = 1, 3 do
      local page = read_page(guard)
      assert.equal(1, value(page, "neap_breaker_state", { key = "default" }))
      assert.equal(0, value(page, "neap_breaker_retry_after_seconds", { key = "default" }))
      assert.equal(0, value(page, "neap_probes_total", { key = "default" }))
      assert.equal(0, value(page, "neap_transitions_total", { key = "default", to = "half_open" }))
    end
    assert.is_true(guards.call(guard, 200), "the probe is still to be had")
  end)

  it("tells of an open period between two scrapes (B152)", function()
    local guard, clock = guards.new("flags",
      { rules = { failures = 1, cooldown_ms = 2000, jitter = 0, probes = 1, successes = 1 } })
    read_page(guard)
    guards.call(guard, 500)
    assert.is_false(guards.call(guard, 200))
    clock:advance(2000)
    guards.call(guard, 200)
    clock:advance(13000)
    local page = read_page(guard)
    local opened = { from = "closed", to = "open", reason = "failures", key = "default" }
    assert.equal(0, value(page, "neap_breaker_state", { key = "default" }))
    assert.equal(1, value(page, "neap_transitions_total", opened))
    assert.equal(2, value(page, "neap_open_seconds_total", { key = "default" }))
    assert.equal(1, value(page, "neap_calls_total", { key = "default", outcome = "rejected" }))
    assert.equal(1, value(page, "neap_refusals_total", { key = "default", reason = "open" }))
  end)

  it("puts each call into one outcome", function()
    local guard = guards.new("flags", { rules = { failures = 1000, slow_call_ms = 100 } })
    guards.call(guard, 200, 5)
    guards.call(guard, 200, 500)
    guards.call(guard, 500, 5)
    guards.call(guard, 500, 500)
    guards.call(guard, 404, 5)
    local page = read_page(guard)
    for outcome, count in pairs { success = 1, slow = 1, failure = 2, timeout = 0, neutral = 1,
      rejected = 0 } do
      assert.equal(count, value(page, "neap_calls_total", { key = "default", outcome = outcome }),
        outcome)
    end
    assert.equal(0.2, value(page, "neap_neutral_ratio", { key = "default" }))
    assert.equal(0.5, value(page, "neap_failure_ratio", { key = "default" }))
    assert.equal(0.5, value(page, "neap_slow_ratio", { key = "default" }))
  end)

  it("has buckets that never fall, +Inf once and equal to the count (B154, B155)", function()
    local guard = guards.new("flags", { rules = { failures = 1000000 } })
    local last_sum = 0
    for round = 1, guards.many / 5 do
      for ms = 1, 40 do guards.call(guard, ms % 3 == 0 and 500 or 200, ms * ms * (round % 7)) end
      local page = read_page(guard)
      local buckets, previous,
        infinite = find(page, "neap_call_duration_seconds_bucket", { key = "default" }), 0, 0
      for _, bucket in ipairs(buckets) do
        assert.is_true(tonumber(bucket.value) >= previous)
        previous = tonumber(bucket.value)
        infinite = infinite + (bucket.labels.le == "+Inf" and 1 or 0)
      end
      assert.equal(1, infinite)
      assert.equal(previous, value(page, "neap_call_duration_seconds_count", { key = "default" }))
      local sum = value(page, "neap_call_duration_seconds_sum", { key = "default" })
      assert.is_true(sum >= last_sum)
      last_sum = sum
    end
  end)

  it("writes numbers the same however Lua holds them (B155)", function()
    for text, n in pairs { ["1"] = 1.0, ["0.25"] = 0.25, ["0.001"] = 1 / 1000,
      ["4294967296"] = 2^32,
      [version.integer == "integer" and "9007199254740993" or "9007199254740992"] =
        9007199254740993, ["+Inf"] = math.huge, ["NaN"] = 0 / 0,
        ["0"] = 0.0 } do
      assert.equal(text, metrics.number(n))
    end
  end)

  it("gives a hostile name exactly one line per series (B157)", function()
    local name = 'x"} 1\nfake_metric 1\\'
    local text = metrics.text { (guards.new(name)) }
    assert.is_nil(("\n" .. text):find("\nfake_metric", 1, true))
    assert.equal(1, #find(read(text), "neap_breaker_state", { policy = name }))
  end)

  it("stays readable with one hostile breaker among a thousand (B158)", function()
    local guard = guards.new("many", { rules = { failures = 1 } })
    for i = 1, guards.many - 1 do guards.call(guard, 200, 1, "key" .. i) end
    guards.call(guard, 200, 1, '\255\0\r\27"}'  .. "\n\226\130")
    local text, good = metrics.text { guard }, 0
    for i = 1, guards.many - 1 do
      local line = ('\nneap_calls_total{policy="many",key="key%d",outcome="success"} 1\n'):format(i)
      good = good + (text:find(line, 1, true) and 1 or 0)
    end
    assert.equal(guards.many - 1, good)
    read((text:gsub('[^\n]*key="key%d+"[^\n]*\n', "")))
  end)

  it("tells names apart that differ in bytes which are no text (B158)", function()
    local seen = {}
    for _, name in ipairs { "\255", "\254", "\239\191\189ff", "\239\191\189", "\\xff",
      "\239\191\189\239\191\189", "\r", "\128" } do
      local escaped = metrics.escape(name)
      assert.is_nil(seen[escaped], escaped)
      assert(version.utf8.len(escaped))
      seen[escaped] = true
    end
  end)

  it("keeps text as it is, whatever the language", function()
    for _, name in ipairs { "größe", "日本", "😀", "a b", "" } do assert.equal(name,
      metrics.escape(name)) end
  end)

  it("writes out what only looks like UTF-8: overlong, surrogates, too high, cut off", function()
    for _, name in ipairs { "\192\128", "\237\160\128", "\244\144\128\128", "\226\130",
      "\240\159\152" } do
      assert(version.utf8.len(metrics.escape(name)), "not UTF-8")
      assert.is_truthy(metrics.escape(name):find("\239\191\189", 1, true))
    end
  end)

  it("refuses names that are none, of metrics and of labels (B158)", function()
    local guard = guards.new("flags")
    for _, more in ipairs { { name = "neap bad", type = "gauge", help = "x" },
      { name = "neap_ok", type = "gauge", help = "x", { labels = { "a-b", "v" }, value = 1 } } } do
      assert.has_error(function() metrics.text({ guard }, { more = { more } }) end)
    end
  end)

  it("says what the file of a policy is like", function()
    local guard = guards.new("flags")
    local page = read(metrics.text({ guard }, { policies = {
      { name = "flags", reloads = 3, failures = 2, error = "flags.lua:3: no",
        is_orphaned = true } } }))
    assert.equal(3, value(page, "neap_policy_reloads_total", { policy = "flags", result = "ok" }))
    assert.equal(2, value(page, "neap_policy_reloads_total",
      { policy = "flags", result = "failed" }))
    assert.equal(1, value(page, "neap_policy_stale", { policy = "flags" }))
    assert.equal(1, value(page, "neap_policy_orphaned", { policy = "flags" }))
  end)

  it("counts what each fallback stage did, those that did nothing yet too", function()
    local answer = { kind = "default", run = function() return "safe" end }
    local guard = guards.new("flags", { stages = { { kind = "last_good" }, answer } })
    guards.call(guard, 500)
    assert.equal("safe", (guard:fallback("refused", {})))
    local page = read_page(guard)
    assert.equal(1, value(page, "neap_fallback_total",
      { source = "last_good", result = "declined" }))
    assert.equal(1, value(page, "neap_fallback_total", { source = "default", result = "answered" }))
    assert.equal(0, value(page, "neap_fallback_total", { source = "default", result = "failed" }))
    assert.equal(1, value(page, "neap_fallback_duration_seconds_count", { policy = "flags" }))
  end)

  it("comes in parts that are soon made, and are the page (B160)", function()
    local guard = guards.new("many", { rules = { failures = 1 } })
    for i = 1, guards.many do guards.call(guard, 200, 1, "key" .. i) end
    local parts = {}
    for part in metrics.parts { guard } do
      parts[#parts + 1] = part
      assert.is_true(select(2, part:gsub("\n", "")) <= 600, "a part is long")
    end
    assert.is_true(#parts > guards.many / 10, "few parts: " .. #parts)
    assert.equal(metrics.text { guard }, table.concat(parts))
  end)

  it("is what promtool takes for right", function()
    local guard = guards.new('x"} 1\n\255')
    guards.call(guard, 500)
    local file = os.tmpname()
    local out = assert(io.open(file, "w"))
    out:write(metrics.text({ guard, (guards.new("flags")) }, { more = {
      { name = "neap_build_info", type = "gauge", help = "Which.",
        { labels = { "version", "1" }, value = 1 } } } }))
    out:close()
    local pipe = assert(io.popen("promtool check metrics <" .. file .. " 2>&1"))
    local said = pipe:read("*a")
    assert.is_true(pipe:close(), said)
    assert.equal("", said)
    os.remove(file)
  end)
end)
