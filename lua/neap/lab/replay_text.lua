--- A replay's result, for people and for programs.

local json = require "neap.cmd.json"
local characters = require "neap.characters"
local columns = require "neap.columns"
local rows = require "neap.lab.replay_rows"

local text = {}

local BOLD, DIM, YELLOW, RED, GREEN, PLAIN =
  "\27[1m", "\27[2m", "\27[33m", "\27[31m", "\27[32m", "\27[0m"

local function painter(colours)
  return function(colour, what) return colours and colour .. what .. PLAIN or what end
end

-- ---- Tables -----------------------------------------------------------------------------------

local width = columns.count

local function padded(cell, to, right)
  local pad = (" "):rep(to - width(cell))
  return right and pad .. cell or cell .. pad
end

--- Lines of a table; right: the columns that are at the right.
local function aligned(cells, right, indent)
  local widths, lines = {}, {}
  for _, row in ipairs(cells) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, width(cell)) end
  end
  for n, row in ipairs(cells) do
    local parts = {}
    for i, cell in ipairs(row) do parts[i] = padded(cell, widths[i], right[i]) end
    lines[n] = indent .. table.concat(parts, "  "):gsub("%s+$", "")
  end
  return lines
end

local function wrapped(sentence, indent)
  local lines, line = {}, indent .. "-"
  for word in sentence:gmatch("%S+") do
    if width(line) + 1 + width(word) > 100 then
      lines[#lines + 1], line = line, indent .. " "
    end
    line = line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

-- ---- Parts ------------------------------------------------------------------------------------

local function add_source(out, result, paint)
  for _, line in ipairs(rows.source(result.source)) do
    out[#out + 1] = characters.printable(line)
  end
  local all, damaged = rows.damaged(result.source)
  if all == 0 then return end
  out[#out + 1] = ""
  out[#out + 1] = paint(YELLOW, ("%s of %s damaged, and left out:"):format(
    rows.counted(all, "line"), rows.count(result.source.lines)))
  for i, row in ipairs(damaged) do damaged[i] = { row[1], row[2], "first " .. row[3] } end
  for _, line in ipairs(aligned(damaged, { true }, "  ")) do
    out[#out + 1] = characters.printable(line)
  end
end

local function add_counts(out, lanes)
  local cells = { { "" } }
  for i, lane in ipairs(lanes) do
    cells[1][2 * i], cells[1][2 * i + 1] = lane.label, ""
  end
  if #lanes == 2 then cells[1][6] = "change" end
  for _, row in ipairs(rows.of(lanes)) do
    local made = { row[1] }
    for i = 1, #lanes do
      made[2 * i], made[2 * i + 1] = row[i + 1][1], row[i + 1][2]
    end
    if row.change then made[6] = row.change end
    cells[#cells + 1] = made
  end
  for _, line in ipairs(aligned(cells, { false, true, false, true, false, true }, "  ")) do
    out[#out + 1] = line
  end
end

local COLOUR_TO = { open = RED, half_open = YELLOW, closed = GREEN }

local function add_transitions(out, lane, most, paint)
  local all = #lane.transitions + lane.more_transitions
  if all == 0 then
    out[#out + 1] = ("%s: would never have opened"):format(paint(BOLD, lane.label))
    return
  end
  out[#out + 1] = paint(BOLD, lane.label) .. ":"
  for i = 1, math.min(most, #lane.transitions) do
    local told = lane.transitions[i]
    local sentence = tostring(told):gsub("^[^:]*: ", "")
    out[#out + 1] = ("  %s  %s  %s"):format(rows.date(told.at_ms),
      paint(COLOUR_TO[told.to] or "", characters.printable(told.key)), sentence)
  end
  if all > most then
    out[#out + 1] = ("  … and %s more; --top shows more of them, --json and --html all")
      :format(rows.count(all - most))
  end
end

local function add_keys(out, lane, most)
  if #lane.keys < 2 then return end
  local cells = { rows.KEY_COLUMNS }
  for i, number in ipairs(rows.worst_keys(lane)) do
    if i > most then break end
    local row = rows.key(lane.keys[number])
    row[1] = characters.printable(row[1])
    cells[#cells + 1] = row
  end
  local shown = #cells - 1
  out[#out + 1] = ""
  out[#out + 1] = shown < #lane.keys
    and ("%s: the %d of %s with the most trouble"):format(lane.label, shown,
      rows.counted(#lane.keys, "key"))
    or ("%s, by key"):format(lane.label)
  local right = { false, true, true, true, true, true, true, true }
  for _, line in ipairs(aligned(cells, right, "  ")) do out[#out + 1] = line end
end

--- For people.
---@param result neap.lab.replay.Result
---@param options { top: integer, colours?: boolean }
---@return string
function text.render(result, options)
  local out, paint = {}, painter(options.colours)
  add_source(out, result, paint)
  out[#out + 1] = ""
  add_counts(out, result.lanes)
  for _, lane in ipairs(result.lanes) do
    out[#out + 1] = ""
    add_transitions(out, lane, options.top, paint)
  end
  for _, lane in ipairs(result.lanes) do add_keys(out, lane, options.top) end
  out[#out + 1] = ""
  out[#out + 1] = paint(DIM, "What a log cannot tell:")
  for _, sentence in ipairs(rows.unknowns(result)) do
    out[#out + 1] = wrapped(characters.printable(sentence), "  ")
  end
  return table.concat(out, "\n") .. "\n"
end

-- ---- For programs -----------------------------------------------------------------------------

local function transition_of(told)
  local one = { text = tostring(told) }
  for _, name in ipairs { "key", "from", "to", "cause", "measured", "limit", "calls", "epoch",
    "level", "open_ms", "flapping", "at_ms" } do
    one[name] = told[name]
  end
  one.at = rows.date(told.at_ms):gsub(" ", "T") .. "Z"
  return one
end

local LANE = { "label", "policy", "path", "hash", "timeout_ms", "seed", "late", "crowded",
  "overflow", "others", "by_record", "faults", "fault", "more_transitions" }

local function lane_of(lane)
  local one, transitions = { counts = lane.all }, {}
  for _, name in ipairs(LANE) do one[name] = lane[name] end
  for i, told in ipairs(lane.transitions) do transitions[i] = transition_of(told) end
  one.transitions, one.keys = json.list(transitions), json.list(lane.keys)
  one.series = lane.series
  return one
end

--- For programs: docs/tuning.md says what is in it.
---@param result neap.lab.replay.Result
---@return string
function text.json(result)
  local source, lanes = {}, {}
  for name, value in pairs(result.source) do source[name] = value end
  source.logs, source.damaged = json.list(source.logs), json.list(source.damaged)
  source.answers = json.list(source.answers)
  for i, lane in ipairs(result.lanes) do lanes[i] = lane_of(lane) end
  return json.encode {
    source = source, policies = json.list(lanes), unknown = json.list(rows.unknowns(result)),
  } .. "\n"
end

return text
