--- What tuning came to, for people and for programs.

local axis = require "neap.lab.axis"
local html = require "neap.lab.html"
local json = require "neap.cmd.json"
local problem = require "neap.problem"
local svg = require "neap.lab.svg"
local words = require "neap.lab.words"

local report = {}

local count, counted = words.count, words.counted

local MOST_ROWS, MOST_IN_PAGE, WIDTH = 30, 500, 100

local NOT_KNOWN = {
  "A log says what calls came to, not what they would have come to: that a refused call would have "
    .. "failed, or been good, is what the log says of it, though a dependency that is asked less "
    .. "may recover sooner.",
  "What callers do that are refused, whether they try again or go elsewhere, is in no log.",
  "What fits this log fits what happened in it: no two outages are alike.",
}

---@class (exact) neap.lab.tune.Result
---@field policy string
---@field path string
---@field varied { key: string, values: any[] }[]
---@field rows neap.lab.tune.Row[] the policy as it is first
---@field verdict neap.lab.tune.Verdict
---@field checked? neap.lab.holdout.Verdict
---@field left_out { count: integer, why: string|nil }
---@field log { calls: integer, from_ms: integer, to_ms: integer, damaged: integer }

local function value_text(value)
  if value == nil then return "none" end
  return type(value) == "string" and value or problem.shown(value)
end

--- Its values, as an option has them.
local function name_of(result, row)
  local parts = {}
  for i, one in ipairs(result.varied) do
    parts[i] = ("%s=%s"):format(one.key, value_text(row.values[one.key]))
  end
  return table.concat(parts, " ")
end

--- Best first: those on the front by what they cost, then the others.
local function sorted(result)
  local rows = table.move(result.rows, 1, #result.rows, 1, {})
  local place = {}
  for i, row in ipairs(rows) do place[row] = i end
  table.sort(rows, function(a, b)
    if (a.front or false) ~= (b.front or false) then return a.front or false end
    if a.lost ~= b.lost then return a.lost < b.lost end
    if a.gain ~= b.gain then return a.gain > b.gain end
    return place[a] < place[b]
  end)
  return rows
end

--- The same, where it is clear whose values they are.
local function short_name(result, row)
  local parts = {}
  for i, one in ipairs(result.varied) do parts[i] = value_text(row.values[one.key]) end
  return table.concat(parts, ", ")
end

--- Rows that come to the same are one: what is recommended or in force, else the middle one.
local function grouped(result, rows)
  local groups, order = {}, {}
  for _, row in ipairs(rows) do
    local key = ("%d %d %d %d"):format(row.opened, row.lost, row.saved, row.saved_ms)
    if not groups[key] then
      groups[key] = { front = row.front }
      order[#order + 1] = groups[key]
    end
    table.insert(groups[key], row)
  end
  for _, group in ipairs(order) do
    group.row = group[(#group + 1) // 2]
    for _, row in ipairs(group) do
      if row.is_now then group.row = row end
    end
    for _, row in ipairs(group) do
      if row == result.verdict.chosen then group.row = row end
    end
  end
  return order
end

local function mark_of(result, row)
  if row == result.verdict.chosen then return row.is_now and "as it is, recommended"
    or "recommended" end
  return row.is_now and "as it is" or row.front and "" or "beaten"
end

local function head(result)
  local log = result.log
  return ("%s: %d versions, %s from %s to %s UTC"):format(result.policy, #result.rows,
    counted(log.calls, "call"), axis.instant(log.from_ms - log.from_ms % 1000, "clock"),
    axis.instant(log.to_ms - log.to_ms % 1000, "clock"))
end

local function columns_of(result)
  local columns = {}
  for i, one in ipairs(result.varied) do columns[i] = one.key:match("([^.]+)$") end
  for _, name in ipairs { "opened", "good calls lost", "failures spared", "waiting spared", "" } do
    columns[#columns + 1] = name
  end
  return columns
end

local function cells_of(result, row)
  local cells = {}
  for i, one in ipairs(result.varied) do cells[i] = value_text(row.values[one.key]) end
  for _, text in ipairs { count(row.opened), count(row.lost), count(row.saved),
    axis.span(row.saved_ms), mark_of(result, row) } do
    cells[#cells + 1] = text
  end
  return cells
end

--- The lines of a policy that make it so.
---@return string|nil nothing to be changed
function report.source(result)
  local chosen = result.verdict.chosen
  if not chosen or chosen.is_now then return nil end
  local sections, lines = {}, {}
  for _, one in ipairs(result.varied) do
    local section, name = one.key:match("^(.*)%.([^.]+)$")
    local value = chosen.values[one.key]
    local text = ("%s = %s"):format(name or one.key,
      type(value) == "string" and ("%q"):format(value) or value_text(value))
    if value == nil then
      lines[#lines + 1] = ("-- without %s"):format(one.key)
    elseif not section then
      lines[#lines + 1] = text .. ","
    elseif sections[section] then
      table.insert(sections[section], text)
    else
      sections[section] = { name = section, text }
      lines[#lines + 1] = sections[section]
    end
  end
  for i, line in ipairs(lines) do
    if type(line) == "table" then
      lines[i] = ("%s = { %s, … },"):format(line.name, table.concat(line, ", "))
    end
  end
  return table.concat(lines, "\n")
end

--- What a version does in the part of the log that it was not chosen by.
local function rest_of(row)
  local rest = row.rest
  return ("opened %s, %s refused, %s lost, %s spared"):format(counted(rest.opened, "time"),
    counted(rest.refused, "call"), counted(rest.lost, "good call"),
    counted(rest.saved, "failure"))
end

local AGAINST = {
  better = "It holds: it costs no more there, and spares no less.",
  worse = "It does not hold: it costs no less there, and spares no more. Outages differ more than "
    .. "this log can tell; take a longer one, or try what is recommended as a shadow first.",
  less = "There it costs less and spares less.",
  more = "There it costs more and spares more.",
}

--- Whether the choice holds on calls that it has not seen.
local function said_of_check(result, list)
  local checked = result.checked
  if not checked and result.verdict.chosen then
    list[#list + 1] = "Not checked on calls that it has not seen: the log is too short."
  end
  if not checked then return end
  local chosen = checked.chosen
  if not chosen then
    list[#list + 1] = ("Not checked on calls that it has not seen: of the first two thirds of its "
      .. "time, %s."):format(checked.lacks)
    return
  end
  list[#list + 1] = ("Checked: chosen by the calls until %s alone, it is %s."):format(
    axis.instant(checked.until_ms - checked.until_ms % 1000, "clock"), checked.is_same
      and "the same" or chosen.is_now and "the policy as it is" or name_of(result, chosen))
  if not checked.has_outage then
    list[#list + 1] = "No version opens in the rest: it has no outage, and proves nothing."
  elseif chosen.is_now then
    list[#list + 1] = ("In the rest, which it has not seen: %s."):format(rest_of(chosen))
  else
    list[#list + 1] = ("In the rest, which it has not seen: %s. The policy as it is: %s."):format(
      rest_of(chosen), rest_of(checked.now))
    list[#list + 1] = AGAINST[checked.against]
  end
end

--- What is said of the recommendation, sentence by sentence.
local function said(result)
  local verdict, list = result.verdict, {}
  local chosen, now = verdict.chosen, result.rows[1]
  if chosen and not chosen.is_now then
    list[1] = ("Recommended: %s."):format(name_of(result, chosen))
    list[2] = ("Against the policy as it is: %s lost in place of %s, %s of waiting "
      .. "spared in place of %s, %s in place of %s, opened %s in place of %s.")
      :format(counted(chosen.lost, "good call"), count(now.lost), axis.span(chosen.saved_ms),
        axis.span(now.saved_ms), counted(chosen.saved, "failure"), count(now.saved),
        counted(chosen.opened, "time"), count(now.opened))
  end
  list[#list + 1] = verdict.why
  if chosen and verdict.same > 1 and not chosen.is_now then
    list[#list + 1] = ("%d versions come to the same; this one is in their middle."):format(
      verdict.same)
  end
  said_of_check(result, list)
  for _, caution in ipairs(verdict.cautions) do list[#list + 1] = caution end
  if result.left_out.count > 0 then
    list[#list + 1] = ("Left out: %s that no policy may be, e.g. %s."):format(
      counted(result.left_out.count, "combination"), result.left_out.why)
  end
  if result.log.damaged > 0 then
    list[#list + 1] = ("Left out: %s of the log."):format(
      counted(result.log.damaged, "damaged line"))
  end
  return list
end

-- ---- Text -------------------------------------------------------------------------------------

local function padded(cells, widths, right)
  local parts = {}
  for i, cell in ipairs(cells) do
    local space = (" "):rep(widths[i] - (utf8.len(cell) or #cell))
    parts[i] = right[i] and space .. cell or cell .. space
  end
  return (table.concat(parts, "  "):gsub(" +$", ""))
end

---@param result neap.lab.tune.Result
---@return string
function report.text(result)
  local table_rows, beaten, more = { columns_of(result) }, 0, 0
  for _, group in ipairs(grouped(result, sorted(result))) do
    local row = group.row
    if not (group.front or row.is_now or row == result.verdict.chosen) then
      beaten = beaten + #group
    elseif #table_rows > MOST_ROWS then
      more = more + #group
    else
      local cells = cells_of(result, row)
      if #group > 1 then
        cells[#cells] = ("%s%sand %d alike"):format(cells[#cells],
          cells[#cells] ~= "" and ", " or "", #group - 1)
      end
      table_rows[#table_rows + 1] = cells
    end
  end
  local widths, right = {}, {}
  for i = 1, #table_rows[1] do
    widths[i], right[i] = 0, i < #table_rows[1]
    for _, cells in ipairs(table_rows) do
      widths[i] = math.max(widths[i], utf8.len(cells[i]) or #cells[i])
    end
  end
  local parts = { head(result), "" }
  for i, cells in ipairs(table_rows) do parts[i + 2] = "  " .. padded(cells, widths, right) end
  if more > 0 then parts[#parts + 1] = ("  and %d more"):format(more) end
  if beaten > 0 then
    parts[#parts + 1] = ("  and %d that another one beats: it spares no less and costs no more")
      :format(beaten)
  end
  parts[#parts + 1] = ""
  for _, sentence in ipairs(said(result)) do parts[#parts + 1] = words.wrapped(sentence, WIDTH) end
  local source = report.source(result)
  if source then parts[#parts + 1] = "\n  " .. source:gsub("\n", "\n  ") end
  return table.concat(parts, "\n") .. "\n"
end

-- ---- JSON -------------------------------------------------------------------------------------

local function values_json(result, row)
  local values = {}
  for _, one in ipairs(result.varied) do
    local value = row.values[one.key]
    values[one.key] = value == nil and json.null or value
  end
  return values
end

local function rest_json(row)
  local rest = row.rest
  return { opened = rest.opened, refused = rest.refused, good_calls_lost = rest.lost,
    failures_spared = rest.saved, waiting_spared_ms = rest.saved_ms }
end

local function checked_json(result)
  local checked = result.checked
  if not checked then return json.null end
  local chosen = checked.chosen
  return {
    until_ms = checked.until_ms, lacks = checked.lacks, has_outage = checked.has_outage,
    is_recommended = checked.is_same, values = chosen and values_json(result, chosen) or json.null,
    against = checked.against,
    rest = chosen and rest_json(chosen) or json.null, rest_as_it_is = rest_json(checked.now),
  }
end

local function row_json(result, row)
  return {
    values = values_json(result, row), is_now = row.is_now or false, is_front = row.front or false,
    opened = row.opened, open_ms = row.open_ms, refused = row.refused, good_calls_lost = row.lost,
    failures_spared = row.saved, waiting_spared_ms = row.saved_ms,
  }
end

---@param result neap.lab.tune.Result
---@return string
function report.json(result)
  local rows, verdict = {}, result.verdict
  for i, row in ipairs(result.rows) do rows[i] = row_json(result, row) end
  return json.encode {
    policy = result.policy, path = result.path, log = result.log, candidates = json.list(rows),
    left_out = result.left_out, cautions = json.list(verdict.cautions), why = verdict.why,
    recommended = verdict.chosen and row_json(result, verdict.chosen) or json.null,
    same_as_recommended = verdict.same, checked = checked_json(result),
  } .. "\n"
end

-- ---- HTML -------------------------------------------------------------------------------------

local function figure(result)
  local points, gain = {}, result.verdict.gain
  for i, group in ipairs(grouped(result, sorted(result))) do
    local row = group.row
    local is_chosen, name = row == result.verdict.chosen, short_name(result, row)
    points[i] = {
      x = row.lost, y = row.gain, front = row.front, chosen = is_chosen,
      name = name_of(result, row) .. (#group > 1 and (", and %d alike"):format(#group - 1) or ""),
      label = is_chosen and "recommended: " .. name or row.is_now and "as it is: " .. name
        or row.front and name or nil,
    }
  end
  local label = gain == "saved_ms" and "waiting spared" or "failures spared"
  return svg.figure {
    title = "What each version spares, and what it costs",
    about = "A dot for each version. Higher spares more, further left costs less; of those on the "
      .. "line none is beaten in both.",
    x = { kind = "linear", label = "good calls lost" },
    panels = { { kind = "scatter", label = label, points = points,
      y = { unit = gain == "saved_ms" and "ms" or nil } } },
  }
end

---@param result neap.lab.tune.Result
---@return string
function report.html(result)
  local rows, cells = sorted(result), {}
  for i, row in ipairs(rows) do
    if i > MOST_IN_PAGE then break end
    cells[i] = cells_of(result, row)
    cells[i].class = row == result.verdict.chosen and "chosen" or nil
  end
  local source = report.source(result)
  return html.page {
    title = "Tuning " .. result.policy, lead = head(result),
    body = {
      html.list(said(result)), source and html.source(source) or "", figure(result),
      html.heading "All versions",
      html.table {
        caption = #rows > MOST_IN_PAGE and ("the first %d of %d"):format(MOST_IN_PAGE, #rows)
          or nil,
        columns = columns_of(result), rows = cells,
      },
      html.heading "What is not known", html.list(NOT_KNOWN),
    },
  }
end

return report
