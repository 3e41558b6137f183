--- What a replay has come to, as rows of words: for neap.lab.replay_text and neap.lab.replay_html.

local axis = require "neap.lab.axis"
local words = require "neap.lab.words"

local rows = {}

rows.count, rows.counted = words.count, words.counted

local count = rows.count

--- A duration in words, to about three digits.
rows.span = axis.span

--- Milliseconds since 1970 as a date of UTC.
---@param ms integer
---@return string
function rows.date(ms)
  local s = ms // 1000
  return os.date("!%Y-%m-%d %H:%M:%S", math.tointeger(s) or 0)
    .. (".%03d"):format(math.tointeger(ms - s * 1000) or 0)
end

local function share(part, whole)
  if whole == 0 then return "0 %" end
  local percent = part / whole * 100
  if percent > 0 and percent < 0.1 then return "under 0.1 %" end
  return ("%.3g %%"):format(percent >= 99.95 and part < whole and 99.9 or percent)
end

--- What is to be thought of a log in which one call in a hundred comes so late; nil: they are few.
---@param late integer
---@param calls integer
---@return string|nil
function rows.set_back(late, calls)
  return late * 100 >= calls and late > 0
    and "The log's time goes back: a clock was set, its times lack their zone, or logs were put "
      .. "together one behind the other, which are to be named side by side. Calls of hours come "
      .. "at once here, so the numbers are not what would have been." or nil
end

-- ---- A lane -----------------------------------------------------------------------------------

--- Rows of { name, figure, text, what else }; only those that mean something for one of the lanes.
--- figure is what two lanes are compared by, more of it being no better or worse by itself.
local ROWS = {
  { "calls", "calls" },
  { "failed", "failure", function(a)
    local text = share(a.failure, a.calls - a.unknown)
    return a.timeout > 0 and text .. ", " .. count(a.timeout) .. " of them timeouts" or text
  end },
  { "neutral", "neutral", function(a) return share(a.neutral, a.calls - a.unknown) end,
    optional = true },
  { "slow", "slow", function(a) return share(a.slow, a.calls - a.unknown) end, optional = true },
  { "refused in the log", "unknown", optional = true },
  { "ended by timeout_ms", "cut", function(a)
    local text = ("%s of waiting less"):format(rows.span(a.cut_ms))
    if a.cut_good == 0 then return text end
    return ("%s; %s had been good in the end"):format(text, count(a.cut_good))
  end, optional = true },
  { "times opened", "opened", function(a)
    return a.opened > 0 and rows.span(a.open_ms) .. " not closed" or ""
  end },
  { "calls refused", "refused", function(a) return share(a.refused, a.calls) end },
  { "  would have failed", "saved", function(a)
    return a.saved_ms > 0 and rows.span(a.saved_ms) .. " of waiting saved" or "" -- 0: not known
  end, of = "refused" },
  { "  were good", "lost", function(a) return share(a.lost, a.refused) .. " of them" end,
    of = "refused" },
  { "  were neutral", "spared", optional = true },
  { "  nobody knows", "refused_unknown", optional = true },
  { "  by a ramp", "by_ramp", optional = true },
  { "probes let through", "probes", of = "opened" },
  { "ended after it had moved", "stale", optional = true },
  { "refused, no good answer yet", "bare", optional = true },
  { "oldest last good answer", "worst_age_ms", function(a)
    return a.worst_at_ms > 0 and "at " .. rows.date(a.worst_at_ms) or ""
  end, of = "refused", span = true },
}

local function is_shown(row, lanes)
  local needed = row.of or row.optional and row[2]
  if not needed then return true end
  for _, lane in ipairs(lanes) do
    if lane.all[needed] > 0 then return true end
  end
  return false
end

--- The rows of lanes side by side: { name, { figure, more } ... }; of two, then the difference.
---@param lanes neap.lab.replay.LaneResult[]
---@return table[]
function rows.of(lanes)
  local out = {}
  for _, row in ipairs(ROWS) do
    if is_shown(row, lanes) then
      local made = { row[1] }
      for i, lane in ipairs(lanes) do
        local n = lane.all[row[2]]
        made[i + 1] = { row.span and rows.span(n) or count(n), row[3] and row[3](lane.all) or "" }
      end
      if #lanes == 2 then
        local change = lanes[2].all[row[2]] - lanes[1].all[row[2]]
        local text = row.span and rows.span(math.abs(change)) or count(math.abs(change))
        made.change = change == 0 and "=" or (change > 0 and "+" or "-") .. text
      end
      out[#out + 1] = made
    end
  end
  return out
end

--- The numbers of the keys, those with the most trouble first.
---@param lane neap.lab.replay.LaneResult
---@return integer[]
function rows.worst_keys(lane)
  local order = {}
  for i = 1, #lane.keys do order[i] = i end
  table.sort(order, function(a, b)
    local one, other = lane.keys[a], lane.keys[b]
    if one.refused ~= other.refused then return one.refused > other.refused end
    if one.opened ~= other.opened then return one.opened > other.opened end
    if one.failure ~= other.failure then return one.failure > other.failure end
    if one.calls ~= other.calls then return one.calls > other.calls end
    return a < b
  end)
  return order
end

--- A key's row: key, calls, failed, opened, refused, would have failed, good.
rows.KEY_COLUMNS = { "key", "calls", "failed", "opened", "refused", "would have failed", "good",
  "oldest answer" }

function rows.key(of_key)
  return {
    of_key.key, count(of_key.calls), count(of_key.failure), count(of_key.opened),
    count(of_key.refused), count(of_key.saved), count(of_key.lost),
    of_key.worst_age_ms > 0 and rows.span(of_key.worst_age_ms) or "–",
  }
end

-- ---- What was read ----------------------------------------------------------------------------

local function log_line(log)
  return ("%s: %s%s"):format(log.path, log.what, log.is_gzip and ", gzip" or "")
end

--- What was read, a line for each log and one for all.
---@param source neap.lab.replay.SourceResult
---@return string[]
function rows.source(source)
  local lines = {}
  for i, log in ipairs(source.logs) do lines[i] = log_line(log) end
  local span_ms = math.max(0, source.to_ms - source.from_ms)
  lines[#lines + 1] = ("%s in %s, from %s to %s UTC"):format(rows.counted(source.calls, "call"),
    rows.span(span_ms), rows.date(source.from_ms), rows.date(source.to_ms))
  if #source.answers > 0 then
    local parts = {}
    for i, one in ipairs(source.answers) do
      local age = one.oldest_ms > 0 and (" (up to %s old)"):format(rows.span(one.oldest_ms)) or ""
      parts[i] = ("%s %s%s"):format(rows.count(one.count), one.source, age)
    end
    lines[#lines + 1] = "answered instead, as it was recorded: " .. table.concat(parts, ", ")
  end
  return lines
end

--- Rows of { how many, what, where the first was }.
---@param source neap.lab.replay.SourceResult
---@return integer lines that are damaged
---@return table[]
function rows.damaged(source)
  local all, out = 0, {}
  for _, one in ipairs(source.damaged) do
    all = all + one.count
    local where = ("%s:%d"):format(one.log, one.line)
    out[#out + 1] = {
      count(one.count), one.kind, one.text ~= "" and ("%s: %s"):format(where, one.text) or where,
    }
  end
  return all, out
end

-- ---- What is not known ------------------------------------------------------------------------

local function any(lanes, name)
  for _, lane in ipairs(lanes) do
    if lane[name] and lane[name] > 0 then return lane[name], lane end
  end
end

--- What was done to the log to make it fit, and what is not in it.
local function about_log(source, lanes, out)
  local function add(text, ...) out[#out + 1] = text:format(...) end
  if source.without_duration == source.calls then
    add "The log does not say how long calls took: timeouts, slow calls and waiting are not known."
  elseif source.without_duration > 0 then
    add("How long %s took is not said: taken as no time.",
      rows.counted(source.without_duration, "call"))
  end
  for _, log in ipairs(source.logs) do
    if log.guessed then
      add("%s: nothing says the unit of durations; by the look of them they are %s. If not: --map "
        .. "duration=NAME:%s.", log.path, log.guessed, log.guessed == "s" and "ms" or "s")
    end
  end
  if source.coarse > 0 then
    add("The time of %s is to the second: spread over it, as many as in the second before.",
      rows.counted(source.coarse, "call"))
  end
  if source.aside > 0 then
    add("%s: no call of the dependency, which was not asked; left out.",
      rows.counted(source.aside, "line"))
  end
  if source.missing > 0 then
    add("The recording lacks %s, as it says itself.", rows.counted(source.missing, "call"))
  end
  local late, lane = any(lanes, "late")
  if late then
    add("%s began over %s before what had been replayed by then: taken as beginning later.",
      rows.counted(late, "call"), lane.crowded > 0 and "some seconds" or "two minutes")
    local set_back = lane.crowded == 0 and rows.set_back(late, source.calls)
    if set_back then add(set_back) end
  end
end

local function about_lane(lane, out)
  local function add(text, ...) out[#out + 1] = lane.label .. ": " .. text:format(...) end
  if lane.faults > 0 then
    add("its functions failed %s, first: %s", rows.counted(lane.faults, "time"), lane.fault)
  end
  if lane.overflow > 0 then
    add("%s of keys beyond max_keys share the breaker *; idle keys make no room in a replay.",
      rows.counted(lane.overflow, "call"))
  end
  if lane.others > 0 then
    add("%s of other policies are in the recording and were left out.",
      rows.counted(lane.others, "call"))
  end
end

--- What a log cannot tell, and what was assumed in its place; the last is true of every replay.
---@param result neap.lab.replay.Result
---@return string[]
function rows.unknowns(result)
  local out = {}
  about_log(result.source, result.lanes, out)
  for _, lane in ipairs(result.lanes) do about_lane(lane, out) end
  if result.source.refused > 0 then
    out[#out + 1] = ("Refused in the log: %s. Nobody knows what that had come to, so it is no "
      .. "probe, and neither saved nor lost.")
      :format(rows.counted(result.source.refused, "call"))
  end
  out[#out + 1] = "A call that would have been refused is taken to have ended as the log has it. "
    .. "Not in any log: that a dependency which is spared recovers sooner; that clients which are "
    .. "refused try again, or do not; that a call which ends sooner lets its client make the next "
    .. "one sooner."
  return out
end

return rows
