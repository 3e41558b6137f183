--- A replay's result as a page: the states of the breakers over what the calls were like, then the
--- numbers, the transitions, and what is not known.

local html = require "neap.lab.html"
local rows = require "neap.lab.replay_rows"
local svg = require "neap.lab.svg"

local page = {}

local MOST_BANDS, MOST_FIGURES, MOST_ROWS = 12, 8, 500

-- ---- What is drawn ----------------------------------------------------------------------------

--- A key's states by time: { from, to, state } …  One whose cooldown is over is half-open, though
--- nobody has called since.
local function spans_of(lane, key, from_ms, to_ms)
  local spans, state, since, until_ms = {}, "closed", from_ms, nil
  local function add(to)
    if until_ms and until_ms < to then
      spans[#spans + 1] = { since, until_ms, state }
      state, since = "half_open", until_ms
    end
    if to > since then spans[#spans + 1] = { since, to, state } end
  end
  for _, told in ipairs(lane.transitions) do
    if told.key == key then
      add(told.at_ms)
      state, since = told.to, told.at_ms
      until_ms = state == "open" and told.at_ms + told.open_ms or nil
    end
  end
  add(to_ms)
  return spans
end

--- A row for each lane and each of these keys.
local function bands(result, keys)
  local made = { kind = "bands", label = "state", rows = {} }
  local source = result.source
  for _, key in ipairs(keys) do
    for _, lane in ipairs(result.lanes) do
      local is_one = #result.lanes > 1 and #keys == 1
      made.rows[#made.rows + 1] = {
        name = is_one and lane.label or key,
        of = #result.lanes > 1 and #keys > 1 and lane.label or nil,
        spans = spans_of(lane, key, source.from_ms, source.to_ms),
      }
    end
  end
  return made
end

local function mapped(series, f)
  local x, y = {}, {}
  for i = 1, #series.calls do
    x[i], y[i] = series.from_ms + (i - 1) * series.width_ms, f(i)
  end
  local n = #x
  if n > 0 then x[n + 1], y[n + 1] = series.from_ms + n * series.width_ms, y[n] end
  return x, y
end

local function step(name, series, f)
  local x, y = mapped(series, f)
  return { name = name, draw = "step", x = x, y = y }
end

--- The limits that the rules put on a share; of those at one height the texts would lie upon each
--- other, so they are one.
local function levels_of(lanes)
  local levels, seen, of = {}, {}, {}
  for _, lane in ipairs(lanes) do
    local numbers = lane.rules:numbers()
    for _, rule in ipairs { "failure_rate", "slow_rate" } do
      local at, text = numbers[rule], ("%s, %s"):format(lane.label, rule)
      if at and at > 0 and not seen[text] then
        seen[text] = true
        if of[at] then
          of[at].text = of[at].text .. "; " .. text
        else
          of[at] = { at = at, text = text }
          levels[#levels + 1] = of[at]
        end
      end
    end
  end
  return levels
end

--- Traffic, what became of it, and how long it took: of one series a lane.
local function traffic(result, all)
  local first = all[1]
  local seconds = first.width_ms / 1000
  local function share(of) return function(i)
    return first.calls[i] > 0 and first[of][i] / first.calls[i] or false
  end end
  local rate = { step("calls", first, function(i) return first.calls[i] / seconds end) }
  for n, series in ipairs(all) do
    local name = #all == 1 and "refused" or "refused by " .. result.lanes[n].label
    rate[#rate + 1] = step(name, series, function(i) return series.refused[i] / seconds end)
  end
  local shares = { step("failed", first, share "failed") }
  if result.lanes[1].all.slow > 0 then shares[2] = step("slow", first, share "slow") end
  local panels = {
    { kind = "lines", label = "calls per second", series = rate },
    { kind = "lines", label = "of the calls", y = { unit = "share", from = 0, to = 1 },
      series = shares, levels = levels_of(result.lanes) },
  }
  if result.source.without_duration < result.source.calls then
    panels[3] = { kind = "lines", label = "mean duration", y = { unit = "ms", from = 0 }, series = {
      step("mean", first, function(i)
        return first.calls[i] > 0 and first.took_ms[i] / first.calls[i] or false
      end),
    } }
  end
  return panels
end

local function figure(result, title, about, keys, all)
  local panels = { bands(result, keys) }
  for _, panel in ipairs(traffic(result, all)) do panels[#panels + 1] = panel end
  return svg.figure {
    title = title, about = about, panels = panels,
    x = { kind = "clock", from = result.source.from_ms, to = result.source.to_ms },
  }
end

-- ---- Keys -------------------------------------------------------------------------------------

--- Which keys are worth a picture: those with trouble, by any lane, the worst first.
local function troubled(result, most)
  local keys, is_in = {}, {}
  for _, lane in ipairs(result.lanes) do
    for _, number in ipairs(rows.worst_keys(lane)) do
      local of_key = lane.keys[number]
      local is_wanted = of_key.opened > 0 or #keys == 0
      if is_wanted and not is_in[of_key.key] and #keys < most then
        keys[#keys + 1] = of_key.key
        is_in[of_key.key] = true
      end
    end
  end
  return keys
end

local function number_of(lane, key)
  for i, of_key in ipairs(lane.keys) do
    if of_key.key == key then return i end
  end
end

--- The series of a key, one a lane; nil if one has none.
local function series_of(result, key)
  local all = {}
  for i, lane in ipairs(result.lanes) do
    local number = number_of(lane, key)
    all[i] = number and lane.key_series(number)
    if not all[i] then return nil end
  end
  return all
end

local function said_of_key(result, key)
  local parts = {}
  for i, lane in ipairs(result.lanes) do
    local of_key = lane.keys[number_of(lane, key)]
    parts[i] = ("%s: opened %s, %s refused, of which %s would have failed."):format(lane.label,
      rows.counted(of_key.opened, "time"), rows.count(of_key.refused), rows.count(of_key.saved))
  end
  return table.concat(parts, " ")
end

local function add_figures(body, result)
  local keys = troubled(result, MOST_BANDS)
  local all, several = {}, false
  for i, lane in ipairs(result.lanes) do
    all[i], several = lane.series, several or #lane.keys > 1
  end
  body[#body + 1] = figure(result, several and "All keys" or "The breaker",
    "The states of the breakers over what the calls of the log were like.", keys, all)
  if not several then return end
  for i, key in ipairs(keys) do
    local of_key = i <= MOST_FIGURES and series_of(result, key)
    if of_key then
      body[#body + 1] = figure(result, key, said_of_key(result, key), { key }, of_key)
    end
  end
end

-- ---- Tables -----------------------------------------------------------------------------------

local function add_counts(body, result)
  local columns, made = { "" }, {}
  for _, lane in ipairs(result.lanes) do
    columns[#columns + 1], columns[#columns + 2] = lane.label, ""
  end
  if #result.lanes == 2 then columns[#columns + 1] = "change" end
  for i, row in ipairs(rows.of(result.lanes)) do
    local cells = { row[1] }
    for n = 1, #result.lanes do
      cells[#cells + 1], cells[#cells + 2] = row[n + 1][1], row[n + 1][2]
    end
    if row.change then cells[#cells + 1] = row.change end
    made[i] = cells
  end
  local left = {}
  for i = 3, #columns, 2 do left[i] = true end
  body[#body + 1] = html.table {
    caption = "What would have been", columns = columns, rows = made, left = left,
  }
end

local function add_keys(body, lane)
  if #lane.keys < 2 then return end
  local made = {}
  for i, number in ipairs(rows.worst_keys(lane)) do
    if i > MOST_ROWS then break end
    made[i] = rows.key(lane.keys[number])
  end
  body[#body + 1] = html.details(("%s: %s"):format(lane.label, rows.counted(#lane.keys, "key")),
    html.table { columns = rows.KEY_COLUMNS, rows = made, left = { true } })
end

local function add_transitions(body, lane)
  local all, made = #lane.transitions + lane.more_transitions, {}
  for i = 1, math.min(MOST_ROWS, #lane.transitions) do
    local told = lane.transitions[i]
    made[i] = { rows.date(told.at_ms), told.key, (tostring(told):gsub("^[^:]*: ", "")) }
  end
  if all == 0 then return end
  body[#body + 1] = html.details(("%s: %s"):format(lane.label, rows.counted(all, "transition")),
    html.table { columns = { "UTC", "key", "" }, rows = made, left = { true, true, true } })
  if all > #made then
    body[#body + 1] = html.note(("Of %s transitions of %s the first %s are shown.")
      :format(rows.count(all), lane.label, rows.count(#made)))
  end
end

local function add_damaged(body, source)
  local all, damaged = rows.damaged(source)
  if all == 0 then return end
  body[#body + 1] = html.note(("%s of %s damaged, and left out."):format(rows.counted(all, "line"),
    rows.count(source.lines)))
  body[#body + 1] = html.table { columns = { "lines", "", "the first" }, rows = damaged }
end

-- ---- The page ---------------------------------------------------------------------------------

--- What is worth knowing in a sentence.
local function lead_of(result)
  local parts = {}
  for i, lane in ipairs(result.lanes) do
    local all = lane.all
    parts[i] = all.opened == 0 and ("%s would never have opened."):format(lane.label)
      or ("%s would have opened %s and refused %s of %s, among them %s and %s."):format(lane.label,
        rows.counted(all.opened, "time"), rows.count(all.refused), rows.counted(all.calls, "call"),
        rows.counted(all.saved, "failure"), rows.counted(all.lost, "good call"))
  end
  return table.concat(parts, " ")
end

--- The whole file.
---@param result neap.lab.replay.Result
---@return string
function page.page(result)
  local names, body = {}, {}
  for i, lane in ipairs(result.lanes) do names[i] = lane.label end
  body[1] = html.list(rows.source(result.source))
  add_figures(body, result)
  add_counts(body, result)
  for _, lane in ipairs(result.lanes) do
    add_transitions(body, lane)
    add_keys(body, lane)
  end
  add_damaged(body, result.source)
  body[#body + 1] = html.heading "What a log cannot tell"
  body[#body + 1] = html.list(rows.unknowns(result))
  return html.page {
    title = "Replay: " .. table.concat(names, " and "), lead = lead_of(result), body = body,
  }
end

return page
