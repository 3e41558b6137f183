--- Prometheus text for a list of guards.
---
--- Everything is read when it is asked for: a breaker with no traffic shows the state it would be
--- in now, and asking takes no probe. Every series is there from the start. Label values may be
--- anything: what the format can't carry is written out.
---
---   metrics.text(guards)             the whole page
---   for part in metrics.parts(guards) do … end    the same in parts, each soon made: for hosts
---                                                 that must not stall

local characters = require "neap.characters"
local retry = require "neap.retry"

local metrics = {}

-- Text format ------------------------------------------------------------------------------------

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }
local REPLACEMENT = characters.REPLACEMENT

--- A byte no character begins with, or one a reader may choke on, is U+FFFD and its two hex digits;
--- U+FFFD itself is doubled, so that no two names look the same.
local function written_out(s)
  local out, i = {}, 1
  while i <= #s do
    local length = characters.length(s, i)
    local c = s:sub(i, i + (length or 1) - 1)
    if not length or (c:find("[%c\127]") and c ~= "\n") then
      out[#out + 1] = REPLACEMENT .. ("%02x"):format(c:byte())
    else
      out[#out + 1] = c == REPLACEMENT and REPLACEMENT .. REPLACEMENT or ESCAPES[c] or c
    end
    i = i + (length or 1)
  end
  return table.concat(out)
end

--- A label's value as it stands between the quotes.
---@param value string
---@return string
function metrics.escape(value)
  if not value:find('[^ !#-%[%]-~]') then return value end
  return written_out(value)
end

--- A number as every Lua version writes it the same: 1, 0.25, +Inf.
---@param n number
---@return string
function metrics.number(n)
  if n ~= n then return "NaN" end
  if n == math.huge then return "+Inf" end
  if n == -math.huge then return "-Inf" end
  if n % 1 == 0 then
    if n > -2^53 and n < 2^53 then return ("%.0f"):format(n) end
    if math.type and math.type(n) == "integer" then return ("%d"):format(n) end
  end
  local short = ("%.15g"):format(n)
  return tonumber(short) == n and short or ("%.17g"):format(n)
end

local number, escape = metrics.number, metrics.escape

--- { "policy", "x", "key", "y" } -> policy="x",key="y"
local function labels(pairs_of)
  local out = {}
  for i = 1, #pairs_of, 2 do
    assert(pairs_of[i]:find("^[%a_][%w_]*$"), "not a label's name")
    out[#out + 1] = pairs_of[i] .. '="' .. escape(pairs_of[i + 1]) .. '"'
  end
  return table.concat(out, ",")
end

local function line(out, name, label_text, more, value)
  local both = label_text .. (label_text ~= "" and more ~= "" and "," or "") .. more
  out[#out + 1] = name .. (both ~= "" and "{" .. both .. "}" or "") .. " " .. number(value)
end

--- counts[i] are those up to bounds_ms[i]; the last has no bound. All from one reading, so the
--- buckets never fall.
local function histogram(out, name, label_text, counts, bounds_ms, sum_ms)
  local total = 0
  for i, count in ipairs(counts) do
    total = total + count
    local bound = bounds_ms[i] and number(bounds_ms[i] / 1000) or "+Inf"
    line(out, name .. "_bucket", label_text, 'le="' .. bound .. '"', total)
  end
  line(out, name .. "_sum", label_text, "", sum_ms / 1000)
  line(out, name .. "_count", label_text, "", total)
end

-- Families of a breaker ---------------------------------------------------------------------------

local STATES = { closed = 0, half_open = 1, open = 2 }
local MODES = { "auto", "forced_open", "forced_closed", "shadow" }
local gauge, counter = "gauge", "counter"

--- One family: name, type, help, and a function (put, snapshot) that calls put(value, further
--- labels) per series.
local function of(field)
  return function(put, s) put(s[field]) end
end
local function total(...)
  local names = { ... }
  return function(put, s)
    local n = 0
    for _, name in ipairs(names) do n = n + s.totals[name] end
    put(n)
  end
end
local function one_hot(label, values, field)
  return function(put, s)
    for _, value in ipairs(values) do put(s[field] == value and 1 or 0,
      ('%s="%s"'):format(label, value)) end
  end
end

local function calls(put, s)
  local t = s.totals
  put(t.success, 'outcome="success"')
  put(t.slow_success, 'outcome="slow"')
  put(math.max(0, t.failure + t.slow_failure - t.timeout), 'outcome="failure"')
  put(t.timeout, 'outcome="timeout"')
  put(t.neutral, 'outcome="neutral"')
  put(t.abandoned, 'outcome="abandoned"')
  put(t.stale, 'outcome="stale"')
  put(t.refused_open + t.refused_probes + t.refused_forced + t.refused_ramp, 'outcome="rejected"')
end

local function refusals(put, s)
  put(s.totals.refused_open, 'reason="open"')
  put(s.totals.refused_probes, 'reason="probes_busy"')
  put(s.totals.refused_forced, 'reason="forced_open"')
  put(s.totals.refused_ramp, 'reason="ramp"')
end

local function transitions(put, s)
  for _, t in ipairs(s.transitions) do
    put(t.count, ('from="%s",to="%s",reason="%s"'):format(t.from, t.to, t.cause))
  end
end

--- Of breakers that have a shadow.
local function of_shadow(f)
  return function(put, s)
    if s.shadow then f(put, s.shadow) end
  end
end

local function shadow_calls(put, shadow)
  for _, result in ipairs { "same", "saved", "lost", "neutral", "let_through" } do
    put(shadow[result], ('result="%s"'):format(result))
  end
end

local function shadow_transitions(put, shadow)
  put(shadow.opened, 'to="open"')
  put(shadow.closed, 'to="closed"')
end

local BREAKER = {
  { "neap_breaker_state", gauge, "0 closed, 1 half-open, 2 open, as of now.",
    function(put, s) put(STATES[s.state]) end },
  { "neap_breaker_in_state", gauge, "1 for the state the breaker is in, 0 for the others.",
    one_hot("state", { "closed", "half_open", "open" }, "state") },
  { "neap_breaker_mode", gauge, "1 for the mode in force, 0 for the others.",
    one_hot("mode", MODES, "mode") },
  { "neap_breaker_level", gauge, "How many times in a row it opened: the backoff's exponent.",
    of "level" },
  { "neap_breaker_admitted_ratio", gauge,
    "Share of the calls that are let in: 1 closed, less during the ramp after it; else 0.",
    of "admitted" },
  { "neap_breaker_retry_after_seconds", gauge, "Until a call may be let in; 0 if one may now.",
    function(put, s) put(s.retry_after_ms / 1000) end },
  { "neap_failure_ratio", gauge, "Failed calls in the window, as a share of the calls in it.",
    of "failure_rate" },
  { "neap_slow_ratio", gauge, "Slow calls in the window, as a share of the calls in it.",
    of "slow_rate" },
  { "neap_window_calls", gauge, "Calls in the window.", of "calls" },
  { "neap_consecutive_failures", gauge, "Failures since the last success.",
    of "consecutive_failures" },
  { "neap_probes_in_flight", gauge, "Probes let in and not yet reported.", of "probes_in_flight" },
  { "neap_neutral_ratio", gauge,
    "Neutral calls as a share of all that ended: near 1 the breaker sees nothing.",
    of "neutral_share" },
  { "neap_calls_total", counter,
    "Calls by what they came to; each call is in one of them. slow: a success, but slow.", calls },
  { "neap_refusals_total", counter, "Rejected calls by reason.", refusals },
  { "neap_bypassed_total", counter,
    "Calls that a mode let in where the breaker would have refused.", total "bypassed" },
  { "neap_probes_total", counter, "Calls let in as probes.", total "probes" },
  { "neap_probes_lost_total", counter, "Probes that were not reported before their lease ran out.",
    total "probes_lost" },
  { "neap_flaps_total", counter, "Times it opened within a cooldown, or the ramp, of closing.",
    total "flaps" },
  { "neap_clock_steps_total", counter, "Times the clock was seen to go back.",
    total "clock_steps" },
  { "neap_retry_after_ignored_total", counter, "Retry-After values that made no sense.",
    total "retry_ignored" },
  { "neap_bulkhead_in_flight", gauge, "Calls of this process with a slot of the bulkhead.",
    of "bulkhead_in_flight" },
  { "neap_bulkhead_rejected_total", counter, "Calls of this process that got no slot.",
    of "bulkhead_rejected" },
  { "neap_open_seconds_total", counter, "Time spent not closed.",
    function(put, s) put(s.totals.open_ms / 1000) end },
  { "neap_transitions_total", counter, "State changes.", transitions },
  { "neap_shadow_state", gauge, "What the shadow policy's breaker would be; as neap_breaker_state.",
    of_shadow(function(put, shadow) put(STATES[shadow.state]) end) },
  { "neap_shadow_calls_total", counter, "Calls by what the shadow policy would have done: "
    .. "the same; refused one that failed (saved), was good (lost) or neither; let through one "
    .. "that was refused.",
    of_shadow(shadow_calls) },
  { "neap_shadow_transitions_total", counter, "State changes that the shadow would have made.",
    of_shadow(shadow_transitions) },
  { "neap_shadow_errors_total", counter, "Faults in the shadow policy's functions.",
    of_shadow(function(put, shadow) put(shadow.errors) end) },
}

-- Families of a guard -----------------------------------------------------------------------------

local function fallbacks(put, s)
  for _, row in ipairs(s.fallbacks) do
    put(row.count, ('source="%s",result="%s"'):format(escape(row.source), escape(row.result)))
  end
end

local function of_queues(field)
  return function(put, s)
    for _, row in ipairs(s.queues) do put(row[field], 'queue="' .. escape(row.name) .. '"') end
  end
end

local function queued(put, s)
  for _, row in ipairs(s.queues) do
    for _, result in ipairs { "done", "dead" } do
      put(row[result], ('queue="%s",result="%s"'):format(escape(row.name), result))
    end
  end
end

local function retries(put, s)
  for _, result in ipairs(retry.results) do
    put(s.retries[result], ('result="%s"'):format(result))
  end
end

local function reloads(put, s)
  put(s.reloads, 'result="ok"')
  put(s.reloads_failed, 'result="failed"')
end

local function flag(field)
  return function(put, s) put(s[field] and 1 or 0) end
end

local GUARD = {
  { "neap_fallback_total", counter, "What the stages of the fallback chain did when asked.",
    fallbacks },
  { "neap_queue_waiting", gauge, "Calls in a durable queue.", of_queues "waiting" },
  { "neap_queue_bytes", gauge, "What they take in its file.", of_queues "bytes" },
  { "neap_queue_calls_total", counter, "Queued calls that were carried out, or went to the dead "
    .. "letters.", queued },
  { "neap_retries_total", counter, "What retries came to, and why others were not made.", retries },
  { "neap_retry_budget", gauge, "Retries that this process may make now.", of "retry_budget" },
  { "neap_policy_reloads_total", counter, "Changed policy files, taken or refused.", reloads },
  { "neap_policy_info", gauge, "1; which version of the policy serves.",
    function(put, s) put(1, 'hash="' .. escape(s.hash) .. '"') end },
  { "neap_policy_errors_total", counter,
    "Faults in the policy's functions, for which the shipped verdict stood in.",
    of "policy_errors" },
  { "neap_policy_stale", gauge,
    "1 if the policy's file has an error and the last good version serves.", flag "is_stale" },
  { "neap_shadow_info", gauge, "1; which version of which shadow policy judges.",
    of_shadow(function(put, shadow)
      put(1, ('file="%s",hash="%s"'):format(escape(shadow.file), escape(shadow.hash)))
    end) },
  { "neap_shadow_stale", gauge, "1 if the shadow's file has an error and the last good one judges.",
    of_shadow(function(put, shadow) put(shadow.error and 1 or 0) end) },
  { "neap_policy_orphaned", gauge, "1 if the policy's file has been gone for 10 s.",
    flag "is_orphaned" },
  { "neap_key_overflow_total", counter, "New keys there was no room for: they share the breaker *.",
    of "overflow" },
  { "neap_key_evictions_total", counter,
    "Keys whose breaker was given to another: closed, and not used for long. Their series end.",
    of "evicted" },
  { "neap_max_keys", gauge, "How many keys may have a breaker of their own.", of "max_keys" },
  { "neap_breakers", gauge, "Breakers of the guard.", of "breakers" },
}

-- The page ----------------------------------------------------------------------------------------

local PART_LINES = 500

local function header(out, family)
  out[#out + 1] = ("# HELP %s %s"):format(family[1],
    (family[3]:gsub("\\", "\\\\"):gsub("\n", "\\n")))
  out[#out + 1] = ("# TYPE %s %s"):format(family[1], family[2])
end

--- Hands out what is in `out` when it has become long enough, or `is_last`.
local function flush(out, is_last)
  if #out == 0 or (#out < PART_LINES and not is_last) then return end
  local text = table.concat(out, "\n") .. "\n"
  for i = #out, 1, -1 do out[i] = nil end
  coroutine.yield(text)
end

local function family(out, row, subjects)
  header(out, row)
  for _, subject in ipairs(subjects) do
    row[4](function(value, more) line(out, row[1], subject.labels, more or "", value) end,
      subject.numbers)
    flush(out)
  end
end

local function histograms(out, name, help, subjects, numbers)
  header(out, { name, "histogram", help })
  for _, subject in ipairs(subjects) do
    local counts, bounds_ms, sum_ms = numbers(subject.numbers)
    histogram(out, name, subject.labels, counts, bounds_ms, sum_ms)
    flush(out)
  end
end

--- All breakers with their numbers, read now. Hands out empty parts in between, so that many don't
--- stall the host.
local function read_breakers(guards)
  local subjects = {}
  for _, guard in ipairs(guards) do
    for _, row in ipairs(guard:breakers()) do
      subjects[#subjects + 1] = { labels = labels { "policy", guard.name, "key", row.key },
        numbers = guard:snapshot(row.key) }
      if #subjects % 100 == 0 then coroutine.yield("") end
    end
  end
  return subjects
end

--- What a guard counts, and what its reloader knows about the file, if there is one.
local function guard_numbers(guard, row)
  local stats = guard:stats()
  local is_stale = stats.last_error ~= nil
  if row then is_stale = row.error ~= nil end
  local of_file = not stats.is_shared and row
  return {
    retries = stats.retries, retry_budget = stats.retry_budget,
    queues = stats.queues,
    fallbacks = stats.fallbacks, durations = stats.fallback_durations, hash = stats.hash,
    policy_errors = stats.policy_errors, overflow = stats.overflow, breakers = stats.breakers,
    evicted = stats.evicted, max_keys = stats.max_keys,
    reloads = of_file and row.reloads or stats.reloads.ok,
    reloads_failed = of_file and row.failures or stats.reloads.failed,
    is_stale = is_stale, is_orphaned = row and row.is_orphaned, shadow = stats.shadow,
  }
end

local function read_guards(guards, rows)
  local subjects, by_name = {}, {}
  for _, row in ipairs(rows) do by_name[row.name] = row end
  for i, guard in ipairs(guards) do
    subjects[i] = {
      labels = labels { "policy", guard.name }, numbers = guard_numbers(guard, by_name[guard.name]),
    }
  end
  return subjects
end

--- Families that the host adds: { name =, type =, help =, { labels =, value = } … }
local function extra_family(out, extra)
  assert(extra.name:find("^[%a_:][%w_:]*$"), "not a metric's name")
  header(out, { extra.name, extra.type, extra.help })
  for _, row in ipairs(extra) do line(out, extra.name, labels(row.labels or {}), "", row.value) end
  flush(out)
end

---@class neap.metrics.options
---@field policies? neap.reload.row[]  of the reloader: reloads, errors, orphans
---@field more? table[]  of the host's own: { name =, type =, help =, { labels =, value = } … }

--- The page in parts, each soon made; a part may be empty.
---@param guards neap.guard[]
---@param options? neap.metrics.options
---@return fun(): string?
function metrics.parts(guards, options)
  options = options or {}
  return coroutine.wrap(function()
    local out = {}
    local breakers, all = read_breakers(guards), read_guards(guards, options.policies or {})
    for _, row in ipairs(BREAKER) do family(out, row, breakers) end
    histograms(out, "neap_call_duration_seconds",
      "How long calls took that were counted as successes or failures.", breakers,
      function(s) return s.duration_counts, s.duration_bounds_ms, s.duration_sum_ms end)
    for _, row in ipairs(GUARD) do family(out, row, all) end
    histograms(out, "neap_fallback_duration_seconds",
      "How long a stage of the fallback chain took that answered.", all,
      function(s) return s.durations.counts, s.durations.bounds_ms, s.durations.sum_ms end)
    for _, extra in ipairs(options.more or {}) do extra_family(out, extra) end
    flush(out, true)
  end)
end

--- The whole page.
---@param guards neap.guard[]
---@param options? neap.metrics.options
---@return string
function metrics.text(guards, options)
  local out = {}
  for part in metrics.parts(guards, options) do out[#out + 1] = part end
  return table.concat(out)
end

--- What the page is, as HTTP says it.
metrics.content_type = "text/plain; version=0.0.4; charset=utf-8"

return metrics
