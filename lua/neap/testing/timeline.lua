--- What happened in a test, as a table that a person can read.
--
--      at ms  what                      came to        breaker    and
--          0  call 1: 503               failure        closed     1 of 1 failed
--        400  call 2: 503               failure        closed     2 of 2 failed, 2 in a row
--        400  5000 ms go by
--
-- A row is what was done, what came of it, and what the breaker looked like then; or a text.  Rows
-- that are alike are told once.

local timeline = {}

local MOST_GROUPS, ALIKE = 30, 3 -- rows alike that are shown one by one

---@class (exact) neap.testing.Row
---@field at_ms number since the test began
---@field text? string in place of the next four
---@field what? string
---@field came_to? string
---@field state? string
---@field window? string the numbers that the breaker goes by
---@field alike? string rows of which this is the same can be told once

-- ---- What the breaker looks like --------------------------------------------------------------

local function number(n) return ("%.14g"):format(n) end

local function of_probes(s)
  local text = ("probes: %d good, %d bad"):format(s.probes_succeeded, s.probes_failed)
  return s.probes_in_flight > 0 and ("%s, %d under way"):format(text, s.probes_in_flight) or text
end

local function of_calls(s)
  local failed, slow = s.failure + s.slow_failure, s.slow_success + s.slow_failure
  local parts = { ("%d of %d failed"):format(failed, s.calls) }
  if slow > 0 then parts[#parts + 1] = ("%d slow"):format(slow) end
  if s.consecutive_failures > 1 then
    parts[#parts + 1] = ("%d in a row"):format(s.consecutive_failures)
  end
  if s.admitted < 1 then parts[#parts + 1] = ("ramp: %.0f %%"):format(s.admitted * 100) end
  return table.concat(parts, ", ")
end

--- The numbers that matter in that state.
---@param snapshot neap.Snapshot
---@return string
function timeline.window(snapshot)
  local text
  if snapshot.state == "open" then
    text = ("for %s ms more"):format(number(snapshot.retry_after_ms))
  else
    text = snapshot.state == "half_open" and of_probes(snapshot) or of_calls(snapshot)
  end
  if snapshot.bulkhead_in_flight > 0 then
    text = ("%s, %d under way"):format(text, snapshot.bulkhead_in_flight)
  end
  return snapshot.mode ~= "auto" and ("%s, mode %s"):format(text, snapshot.mode) or text
end

-- ---- As text ----------------------------------------------------------------------------------

local RED, YELLOW, GREEN, DIM, PLAIN = "\27[31m", "\27[33m", "\27[32m", "\27[2m", "\27[0m"
local COLOURS = { open = RED, half_open = YELLOW, closed = GREEN }

--- Rows that follow each other and are alike: lists of them.
local function grouped(rows)
  local groups = {}
  for _, row in ipairs(rows) do
    local group = groups[#groups]
    if group and row.alike and group[1].alike == row.alike then
      group[#group + 1] = row
    else
      groups[#groups + 1] = { row }
    end
  end
  return groups
end

--- The rows to be shown, and how many are not.
local function chosen(rows)
  local groups, list = grouped(rows), {}
  local from = math.max(1, #groups - MOST_GROUPS + 1)
  if from > 1 then
    local n = 0
    for i = 1, from - 1 do n = n + #groups[i] end
    list[1] = { text = ("(%d earlier)"):format(n) }
  end
  for i = from, #groups do
    local group = groups[i]
    if #group <= ALIKE then
      for _, row in ipairs(group) do list[#list + 1] = row end
    else
      list[#list + 1] = group[1]
      list[#list + 1] = { text = ("(%d more like it)"):format(#group - 2) }
      list[#list + 1] = group[#group]
    end
  end
  return list
end

local HEAD = { at_ms = "at ms", what = "what", came_to = "came to", state = "breaker",
  window = "and" }
local COLUMNS = { "what", "came_to", "state" }

local function widths_of(list)
  local widths = {}
  for _, column in ipairs(COLUMNS) do
    widths[column] = #HEAD[column]
    for _, row in ipairs(list) do
      if row.what then widths[column] = math.max(widths[column], #row[column]) end
    end
  end
  return widths
end

local function line_of(row, widths, colours)
  local at = type(row.at_ms) == "number" and number(row.at_ms) or row.at_ms or ""
  if row.text then return ("%9s  %s"):format(at, row.text) end
  local parts = {}
  for _, column in ipairs(COLUMNS) do
    local text = row[column] .. (" "):rep(widths[column] - #row[column])
    local colour = colours and column == "state" and COLOURS[row.state]
    parts[#parts + 1] = colour and colour .. text .. PLAIN or text
  end
  local text = ("%9s  %s  %s"):format(at, table.concat(parts, "  "), row.window)
  return (text:gsub(" +$", ""))
end

--- The table.  The last line says what was expected and was not so.
---@param rows neap.testing.Row[]
---@param failed neap.testing.Row a text
---@param colours? boolean
---@return string
function timeline.text(rows, failed, colours)
  local list = chosen(rows)
  local widths = widths_of(list)
  local lines = { line_of(HEAD, widths) }
  if colours then lines[1] = DIM .. lines[1] .. PLAIN end
  for _, row in ipairs(list) do
    lines[#lines + 1] = line_of(row, widths, colours)
  end
  local last = line_of(failed)
  lines[#lines + 1] = colours and RED .. last .. PLAIN or last
  return table.concat(lines, "\n")
end

return timeline
