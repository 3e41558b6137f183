--- What a figure shows, as tables: for those who do not see it, and for those who want the numbers.

local axis = require "neap.lab.axis"
local html = require "neap.lab.html"
local panels = require "neap.lab.panels"
local thin = require "neap.lab.thin"

local tables = {}

local SAMPLES, MOST_ROWS = 40, 200

local function instant(x, at)
  if x.kind == "clock" or x.kind == "elapsed" then return axis.instant(at, x.kind) end
  return axis.number(at, x.unit)
end

local function shown(value, y)
  return value and axis.number(value, y and y.unit) or "–"
end

--- The series of a panel at some instants; at all there are, if those are few.
local function lines(panel, x)
  local columns, rows = { x.label or "time" }, {}
  local at, is_few = {}, true
  for i, series in ipairs(panel.series) do
    columns[i + 1] = series.name
    is_few = is_few and #series.x <= SAMPLES
    for j = 1, is_few and #series.x or 0 do at[series.x[j]] = true end
  end
  local instants = {}
  if is_few then
    for one in pairs(at) do instants[#instants + 1] = one end
    table.sort(instants)
  else
    for i = 0, SAMPLES - 1 do instants[i + 1] = x.from + (x.to - x.from) * i / SAMPLES end
  end
  for i, one in ipairs(instants) do
    local row = { instant(x, one) }
    for j, series in ipairs(panel.series) do
      row[j + 1] = shown(thin.value_at(series.x, series.y, one), panel.y)
    end
    rows[i] = row
  end
  local caption = is_few and panel.label
    or ("%s: what it was at %d instants"):format(panel.label, SAMPLES)
  return html.table { caption = caption, columns = columns, rows = rows,
    left = { true } }
end

local function cut(label, rows, all)
  if all <= MOST_ROWS then return label end
  return ("%s: the first %d of %d"):format(label, #rows, all)
end

local function bands(panel, x)
  local rows, all = {}, 0
  for _, row in ipairs(panel.rows) do
    for _, span in ipairs(row.spans) do
      all = all + 1
      if all <= MOST_ROWS then
        rows[all] = {
          panels.whole_name(row), (span[3]:gsub("_", "-")), instant(x, span[1]),
          axis.span(span[2] - span[1]),
        }
      end
    end
  end
  return html.table {
    caption = cut(panel.label, rows, all), columns = { "breaker", "state", "from", "for" },
    rows = rows, left = { [3] = true },
  }
end

local function scatter(panel, x)
  local rows = {}
  for i, point in ipairs(panel.points) do
    if i > MOST_ROWS then break end
    rows[i] = {
      point.name, axis.number(point.x, x.unit), shown(point.y, panel.y),
      point.front and "yes" or "", class = point.chosen and "chosen" or nil,
    }
  end
  return html.table {
    caption = cut(panel.label, rows, #panel.points),
    columns = { "point", x.label or "x", panel.label, "none is better in both" }, rows = rows,
  }
end

local KINDS = { lines = lines, bands = bands, scatter = scatter }

--- A table for each panel of a figure.
---@param given neap.lab.svg.Figure
---@param x neap.lab.svg.X
---@return string
function tables.of(given, x)
  local parts = {}
  for i, panel in ipairs(given.panels) do parts[i] = KINDS[panel.kind](panel, x) end
  return table.concat(parts)
end

return tables
