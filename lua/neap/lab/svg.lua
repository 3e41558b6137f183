--- Figures: plots above one another over one x axis, as SVG within HTML (neap.lab.html).
--
--   svg.figure {
--     title = "payments: a week",
--     about = "The rate of failures rose at noon; the breaker opened twice.",
--     x = { kind = "clock", from = 1764547200000, to = 1765152000000 },       -- neap.lab.axis
--     shades = { { from = …, to = …, text = "outage" } },
--     marks  = { { at = …, text = "deploy" } },
--     panels = {
--       { kind = "bands", label = "state", rows = {
--         { name = "payments", spans = { { from, to, "closed" }, { from, to, "open" } } } } },
--       { kind = "lines", label = "failures", y = { unit = "share", to = 1 },
--         series = { { name = "rate", draw = "step", x = { … }, y = { … } } },
--         levels = { { at = 0.5, text = "threshold" } } },
--       { kind = "scatter", label = "good calls lost", points = {
--         { x = 1, y = 2, name = "failure_rate = 0.3", front = true, label = "0.3" } } },
--     },
--   }
--
--    label                    | a title, an explanation
--    |  - - -  levels - - -   | plots of one x axis; if it is a time a small script zooms it
--    |  lines steps areas     | below: its ticks
--    +----+----+----+----+    | below: the same as a table, for those who do not see the picture
--
-- Each plot has a line, a step or an area for a series; a y of false or NaN is a gap.  A log axis
-- draws what is 0 or less at its lower edge.  Of more points than fit only those are drawn that can
-- be seen (neap.lab.thin): a week by the second is some 50 KB.  A state is told by its height as
-- well as by its colour: closed is low, half_open higher, open full.

local axis = require "neap.lab.axis"
local html = require "neap.lab.html"
local panels = require "neap.lab.panels"
local tables = require "neap.lab.tables"

local svg = {}

local escape = html.escape

local WIDTH, LEFT, RIGHT = 900, 62, 24
local BOTTOM, GAP, TOP, LINE = 40, 18, 6, 15
local MOST_LINES = 4
local COLUMNS = 2000

---@class (exact) neap.lab.svg.X
---@field kind "clock"|"elapsed"|"linear"|"log"
---@field from? number the least there is, if not given
---@field to? number the most
---@field unit? string as neap.lab.axis has it
---@field label? string

---@class (exact) neap.lab.svg.Y
---@field kind? "linear"|"log"
---@field unit? string
---@field from? number 0 or what the values need, if not given
---@field to? number

---@class (exact) neap.lab.svg.Series
---@field name string
---@field draw? "line"|"step"|"area" line
---@field x number[] in order
---@field y (number|false)[]

---@class (exact) neap.lab.svg.Point
---@field x number
---@field y number
---@field name string
---@field label? string written beside it, if there is room
---@field front? boolean of the Pareto front: filled, joined by a line
---@field chosen? boolean ringed

---@class (exact) neap.lab.svg.Panel
---@field kind "lines"|"bands"|"scatter"
---@field label string
---@field height? number
---@field y? neap.lab.svg.Y
---@field series? neap.lab.svg.Series[]
---@field levels? { at: number, text: string }[]
---@field rows? { name: string, of: string|nil, spans: { [1]: number, [2]: number,
---  [3]: string }[] }[] of: a second name
---@field points? neap.lab.svg.Point[]

---@class (exact) neap.lab.svg.Figure
---@field title string
---@field about string
---@field x neap.lab.svg.X
---@field panels neap.lab.svg.Panel[]
---@field shades? { from: number, to: number, text: string }[]
---@field marks? { at: number, text: string }[]
---@field columns? integer of a plot: so many can be told apart

local function is_time(x) return x.kind == "clock" or x.kind == "elapsed" end

--- The x axis with both its ends.
local function whole_axis(given)
  local x = { kind = given.x.kind, unit = given.x.unit, label = given.x.label }
  local lo, hi = math.huge, -math.huge
  for _, panel in ipairs(given.panels) do
    local from, to = panels.reach(panel)
    lo, hi = math.min(lo, from), math.max(hi, to)
  end
  if not is_time(x) then
    x.from, x.to = axis.ends(x.kind, lo, hi, x.unit)
  else
    x.from, x.to = lo, hi
  end
  x.from, x.to = given.x.from or x.from, given.x.to or x.to
  if x.from > x.to then x.from, x.to = 0, 1 end -- there is nothing
  if x.from == x.to then x.to = x.from + 1 end
  return x
end

--- Where a value of the axis is, in 0 to 1.
local function placer(x)
  if x.kind ~= "log" then
    return function(at) return (at - x.from) / (x.to - x.from) end
  end
  local from, range = math.log(x.from), math.log(x.to) - math.log(x.from)
  return function(at) return at > 0 and (math.log(at) - from) / range or 0 end
end

local function x_ticks(x, frame, grid)
  local parts = { '<g class="axis">' }
  for _, tick in ipairs(axis.ticks(x.kind, x.from, x.to, 8, x.unit)) do
    local at = frame.left + frame.place(tick.at) * frame.width
    parts[#parts + 1] = ('<path class="grid" d="%s" transform="translate(%.1f)"/>'):format(grid, at)
    parts[#parts + 1] = ('<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>'):format(at,
      frame.bottom + 16, escape(tick.text))
  end
  parts[#parts + 1] = "</g>"
  local label = x.label
    or x.kind == "clock" and "UTC, from " .. axis.instant(x.from, "clock"):gsub("%.%d+$", "")
    or x.kind == "elapsed" and "time"
  if label then
    parts[#parts + 1] = ('<text x="%d" y="%.1f" text-anchor="end">%s</text>'):format(WIDTH - RIGHT,
      frame.bottom + 33, escape(label))
  end
  return table.concat(parts, "\n")
end

--- Names above the plots of what is shaded or marked, in as many lines as they need; the script
--- moves them.
local function names_above(given, frame)
  local parts, names, ends = {}, {}, {}
  for _, shade in ipairs(given.shades or {}) do
    names[#names + 1] = { at = math.max(shade.from, frame.x.from), text = shade.text }
  end
  for _, mark in ipairs(given.marks or {}) do names[#names + 1] = mark end
  table.sort(names, function(a, b) return a.at < b.at end)
  for _, name in ipairs(names) do
    local at, line = frame.left + frame.place(name.at) * frame.width, 1
    while ends[line] and ends[line] > at do line = line + 1 end
    if at <= WIDTH - RIGHT and line <= MOST_LINES then
      parts[#parts + 1] = ('<text data-at="%.17g" x="%.1f" y="%d">%s</text>'):format(name.at, at,
        TOP + line * LINE - 4, escape(name.text))
      ends[line] = at + panels.text_width(name.text) + 8
    end
  end
  return table.concat(parts, "\n"), #ends * LINE
end

--- Room at the left for the names of rows.
local function left_of(given)
  local left = LEFT
  for _, panel in ipairs(given.panels) do
    for _, row in ipairs(panel.rows or {}) do
      left = math.max(left, panels.text_width(panels.row_name(row)) + 20) -- wide letters
    end
  end
  return left
end

local function picture(given, x)
  local left = left_of(given)
  local frame = {
    x = x, place = placer(x), left = left, width = WIDTH - left - RIGHT,
    columns = given.columns or COLUMNS, shades = given.shades or {}, marks = given.marks or {},
  }
  local above, above_height = names_above(given, frame)
  local top, drawn, grid = TOP + above_height, {}, ""
  for i, panel in ipairs(given.panels) do
    local head = panels.head(panel, frame, top)
    local height = panels.height(panel)
    local y = top + head.height
    drawn[i] = { head.text, panels.body(panel, frame, y, height) }
    grid = grid .. ("M0,%.1fV%.1f"):format(y, y + height)
    top = y + height + GAP
  end
  frame.bottom = top - GAP
  local parts = { x_ticks(x, frame, grid), above }
  for _, pair in ipairs(drawn) do
    parts[#parts + 1], parts[#parts + 2] = pair[1], pair[2]
  end
  parts[#parts + 1] = ('<rect class="picked" x="0" y="%d" width="0" height="%.1f"/>'):format(TOP,
    frame.bottom - TOP)
  return table.concat(parts, "\n"), frame.bottom + BOTTOM, frame
end

local AXIS = '{"kind":"%s","from":%.17g,"to":%.17g,"left":%.1f,"width":%.1f}'

--- What the script needs to know.
local function axis_data(x, frame)
  if not is_time(x) then return "" end
  local text = AXIS:format(x.kind, x.from, x.to, frame.left, frame.width)
  return (' data-x="%s"'):format(escape(text))
end

local figures = 0

--- A figure: its title, the picture, and what it shows as tables.
---@param given neap.lab.svg.Figure
---@return string HTML
function svg.figure(given)
  figures = figures + 1
  local x = whole_axis(given)
  local drawn, height, frame = picture(given, x)
  local id = "f" .. figures
  return table.concat({
    ("<figure%s>"):format(axis_data(x, frame)),
    ("<figcaption><b>%s</b> <span>%s</span></figcaption>"):format(escape(given.title),
      escape(given.about)),
    ('<div class="plot"><svg viewBox="0 0 %d %.0f" role="img" aria-labelledby="%s-t %s-d">')
      :format(WIDTH, height, id, id),
    ('<title id="%s-t">%s</title><desc id="%s-d">%s</desc>'):format(id, escape(given.title), id,
      escape(given.about)),
    drawn, "</svg></div>",
    html.details("the same as a table", tables.of(given, x)),
    "</figure>\n",
  }, "\n")
end

return svg
