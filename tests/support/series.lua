--- What every host's metrics page has to have: all series that docs/operations.md names of a
--- breaker and of a policy, of the right type, from the start.
---
---   series.check(text, policy, key)                       raises what is missing
---   lua5.4 tests/support/series.lua POLICY KEY <page      the same, as a program; and that each
---                                                         family is in a document

local series = {}

local OUTCOMES = {
  "success", "failure", "slow", "neutral", "timeout", "rejected", "stale", "abandoned",
}
local KEY, POLICY = true, false

--- Name, type, whether it is of a key, and the values of a further label.
local FAMILIES = {
  { "neap_breaker_state", "gauge", KEY },
  { "neap_breaker_mode", "gauge", KEY,
    mode = { "auto", "forced_open", "forced_closed", "shadow" } },
  { "neap_calls_total", "counter", KEY, outcome = OUTCOMES },
  { "neap_refusals_total", "counter", KEY,
    reason = { "open", "probes_busy", "forced_open", "ramp" } },
  { "neap_failure_ratio", "gauge", KEY },
  { "neap_slow_ratio", "gauge", KEY },
  { "neap_neutral_ratio", "gauge", KEY },
  { "neap_call_duration_seconds", "histogram", KEY },
  { "neap_transitions_total", "counter", KEY,
    reason = { "failures", "consecutive_failures", "failure_rate", "slow_rate", "cooldown",
      "probe_lost" } },
  { "neap_open_seconds_total", "counter", KEY },
  { "neap_flaps_total", "counter", KEY },
  { "neap_probes_total", "counter", KEY },
  { "neap_probes_lost_total", "counter", KEY },
  { "neap_clock_steps_total", "counter", KEY },
  { "neap_fallback_total", "counter", POLICY },
  { "neap_fallback_duration_seconds", "histogram", POLICY },
  { "neap_retries_total", "counter", POLICY,
    result = { "success", "failure", "neutral", "budget", "deadline", "refused" } },
  { "neap_policy_reloads_total", "counter", POLICY, result = { "ok", "failed" } },
  { "neap_policy_info", "gauge", POLICY },
  { "neap_policy_errors_total", "counter", POLICY },
  { "neap_policy_stale", "gauge", POLICY },
  { "neap_key_overflow_total", "counter", POLICY },
}

--- The page's lines that begin so and have that text.
local function lines_with(text, beginning, part)
  local found = {}
  for line in text:gmatch "[^\n]+" do
    if line:sub(1, #beginning) == beginning and (not part or line:find(part, 1, true)) then
      found[#found + 1] = line
    end
  end
  return found
end

--- Buckets from milliseconds to tens of seconds that never fall, the last without a bound.
local function check_histogram(text, name, labels)
  local last, bounds = 0, {}
  for i, line in ipairs(lines_with(text, ("%s_bucket{%s,le="):format(name, labels))) do
    local bound, count = line:match 'le="([^"]+)"} (%d+)$'
    assert(tonumber(count) >= last, line)
    bounds[i], last = bound == "+Inf" and math.huge or tonumber(bound), tonumber(count)
    assert(i == 1 or bounds[i] > bounds[i - 1], line)
  end
  assert(#bounds >= 10 and bounds[1] <= 0.005 and bounds[#bounds - 1] >= 10
    and bounds[#bounds] == math.huge, name .. ": no sensible buckets")
  assert(#lines_with(text, ("%s_count{%s} %d"):format(name, labels, last)) == 1, name)
  assert(#lines_with(text, ("%s_sum{%s} "):format(name, labels)) == 1, name)
end

local function check_family(text, family, labels)
  local name = family[1]
  local is_typed = #lines_with(text, ("# TYPE %s %s"):format(name, family[2])) == 1
  assert(is_typed, name .. ": no " .. family[2])
  assert(#lines_with(text, ("# HELP %s "):format(name)) == 1, name .. ": no help")
  if family[2] == "histogram" then return check_histogram(text, name, labels) end
  local has_more = false
  for label, values in pairs(family) do
    for _, value in ipairs(type(label) == "string" and values or {}) do
      has_more = true
      local found = lines_with(text, ("%s{%s,"):format(name, labels),
        ('%s="%s"'):format(label, value))
      assert(#found > 0, ("%s: no %s"):format(name, value))
    end
  end
  if has_more or name == "neap_fallback_total" then return end
  assert(#lines_with(text, ("%s{%s"):format(name, labels)) == 1, name .. ": no series")
end

---@param text string the page
---@param policy string
---@param key string
function series.check(text, policy, key)
  local of_policy = ('policy="%s"'):format(policy)
  local of_key = ('%s,key="%s"'):format(of_policy, key)
  for _, family in ipairs(FAMILIES) do
    check_family(text, family, family[3] == KEY and of_key or of_policy)
  end
  -- Units are base units, and a name says what it counts.
  for name, kind in text:gmatch "# TYPE (%S+) (%S+)\n" do
    assert(not name:find "_ms$" and (kind ~= "counter") == (not name:find "_total$"), name)
  end
end

--- Each family is in a document.
local function check_documents(text)
  local documents = ""
  for _, name in ipairs { "operations", "nginx", "haproxy" } do
    local file = assert(io.open("docs/" .. name .. ".md"))
    documents = documents .. file:read "*a"
    file:close()
  end
  for name in text:gmatch "# TYPE (%S+) " do
    assert(documents:find("%f[%w_]" .. name .. "%f[^%w_]"), name .. " is in no document")
  end
end

if arg and arg[0] and arg[0]:find "series%.lua$" then
  local text = io.read "*a"
  series.check(text, arg[1], arg[2])
  check_documents(text)
end

return series
