--- The plots of a figure, one below the other: what neap.lab.svg puts together.
--
-- The middle of a plot is an <svg> of its own, UNITS wide whatever the picture's size, so that the
-- zoom is its viewBox: text and scales stay outside of it.

local axis = require "neap.lab.axis"
local html = require "neap.lab.html"
local thin = require "neap.lab.thin"

local panels = {}

local escape = html.escape
local floor, huge, max, min = math.floor, math.huge, math.max, math.min

local UNITS = 20000
local ROW, STRIP = 24, 16 -- of bands: from one to the next; the height of an open one
local LINE = 16 -- of the names above a plot
local SHARES = { closed = 0.25, half_open = 0.62, open = 1 } -- of the strip's height
local ORDER = { "closed", "other", "half_open", "open" } -- the later is drawn over the earlier
local KINDS = 6 -- of lines
local ROW_NAME = 22 -- characters
local INSET = 1 -- a line at the edge of a plot is not cut in half

--- About how wide a text is.
function panels.text_width(text) return (utf8.len(text) or #text) * 6.4 end

--- A name that is too long for a picture.
local function shortened(text, most)
  local ends = utf8.offset(text, most + 1)
  return ends and ends <= #text and text:sub(1, utf8.offset(text, most) - 1) .. "…" or text
end

--- Two names in one, each of which is still to be seen where both are long.
local function shortened_pair(one, other)
  local room = math.max(ROW_NAME // 2 - 1, ROW_NAME - 2 - (utf8.len(one) or #one))
  other = shortened(other, room)
  return shortened(one, ROW_NAME - 2 - (utf8.len(other) or #other)) .. ", " .. other
end

--- The name of a row, all of it.
function panels.whole_name(row) return row.of and row.name .. ", " .. row.of or row.name end

--- The same as it stands at its left.
function panels.row_name(row)
  return row.of and shortened_pair(row.name, row.of) or shortened(row.name, ROW_NAME)
end

-- ---- Reach ------------------------------------------------------------------------------------

--- The least and the most x in a panel.
---@return number from, number to
function panels.reach(panel)
  local lo, hi = huge, -huge
  local function see(x)
    lo, hi = min(lo, x), max(hi, x)
  end
  for _, series in ipairs(panel.series or {}) do
    if #series.x > 0 then
      see(series.x[1])
      see(series.x[#series.x])
    end
  end
  for _, row in ipairs(panel.rows or {}) do
    for _, span in ipairs(row.spans) do
      see(span[1])
      see(span[2])
    end
  end
  for _, point in ipairs(panel.points or {}) do see(point.x) end
  return lo, hi
end

local function y_axis(panel)
  local given = panel.y or {}
  local y = { kind = given.kind or "linear", unit = given.unit }
  local lo, hi = huge, -huge
  local function see(value)
    if value and value == value and value < huge and (y.kind ~= "log" or value > 0) then
      lo, hi = min(lo, value), max(hi, value)
    end
  end
  for _, series in ipairs(panel.series or {}) do
    for i = 1, #series.x do see(series.y[i]) end
  end
  for _, point in ipairs(panel.points or {}) do see(point.y) end
  for _, level in ipairs(panel.levels or {}) do see(level.at) end
  y.from, y.to = axis.ends(y.kind, lo, hi, y.unit)
  y.from, y.to = given.from or y.from, given.to or y.to
  return y
end

--- From a value to how far below the plot's upper edge it is.
local function y_placer(y, height)
  local low, high, f = y.from, y.to, function(v) return v end
  if y.kind == "log" then
    f = function(v) return v > y.from and math.log(v) or math.log(y.from) end
    low, high = f(low), f(high)
  end
  return function(v)
    return height - INSET - max(0, min(1, (f(v) - low) / (high - low))) * (height - 2 * INSET)
  end
end

-- ---- Above a plot -----------------------------------------------------------------------------

local function sample(series, i, x, y)
  local kind = (i - 1) % KINDS + 1
  if series.draw == "area" then
    return ('<rect class="a s%d" x="%.1f" y="%.1f" width="22" height="9"/>'):format(kind, x, y - 8)
  end
  return ('<path class="l s%d" d="M%.1f,%.1fh22"/>'):format(kind, x, y - 4)
end

local function state_samples(x, y)
  local parts = {}
  for _, pair in ipairs { { "closed" }, { "half_open", "half-open" }, { "open" } } do
    local height, text = 11 * SHARES[pair[1]], pair[2] or pair[1]
    parts[#parts + 1] = ('<rect class="%s" x="%.1f" y="%.1f" width="22" height="%.1f"/>')
      :format(pair[1], x, y - height, height)
    parts[#parts + 1] = ('<text x="%.1f" y="%.1f">%s</text>'):format(x + 27, y, text)
    x = x + 27 + panels.text_width(text) + 14
  end
  return table.concat(parts)
end

--- What stands above a plot: its label, and which line is what.
---@return { text: string, height: number }
function panels.head(panel, frame, top)
  local y, parts = top + 12, {}
  local label = shortened(panel.label, 60)
  parts[1] = ('<text class="label" x="%.1f" y="%.1f">%s</text>'):format(frame.left, y,
    escape(label))
  local x = frame.left + panels.text_width(label) * 1.12 + 20
  if panel.kind == "bands" then parts[2] = state_samples(x, y) end
  for i, series in ipairs(panel.series or {}) do
    local name = shortened(series.name, 50)
    local width = 27 + panels.text_width(name)
    if x + width > frame.left + frame.width then
      x, y = frame.left, y + LINE
    end
    parts[#parts + 1] = sample(series, i, x, y)
    parts[#parts + 1] = ('<text class="name" x="%.1f" y="%.1f">%s</text>'):format(x + 27, y,
      escape(name))
    x = x + width + 16
  end
  return { text = table.concat(parts, "\n"), height = y - top + 7 }
end

function panels.height(panel)
  if panel.kind == "bands" then return #panel.rows * ROW end
  return panel.height or panel.kind == "scatter" and 340 or 130
end

-- ---- In a plot --------------------------------------------------------------------------------

local function unit(frame, x) return floor(frame.place(x) * UNITS + 0.5) end

--- A series as a path, by its kept points.
local function path(series, frame, place, height)
  local parts, is_up, last_x, last_y = {}, true, nil, nil
  local is_area, is_step = series.draw == "area", series.draw ~= "line" and series.draw ~= nil
  local function add(text, ...) parts[#parts + 1] = text:format(...) end
  local function down()
    if is_area and not is_up then add("V%.1fZ", height) end
    is_up = true
  end
  local x, y = series.x, series.y
  for _, i in ipairs(thin.indices(x, y, frame.x.from, frame.x.to, frame.columns)) do
    local at, value = unit(frame, x[i]), y[i]
    if not value or value ~= value then
      if is_step and not is_up then add("H%d", at) end
      down()
    else
      local v = place(value)
      if is_up and is_area then
        add("M%d,%.1fV%.1f", at, height, v)
      elseif is_up then
        add("M%d,%.1f", at, v)
      elseif is_step then
        if at ~= last_x then add("H%d", at) end
        if v ~= last_y then add("V%.1f", v) end
      else
        add("L%d,%.1f", at, v)
      end
      is_up, last_x, last_y = false, at, v
    end
  end
  down()
  return table.concat(parts)
end

local function lines(panel, frame, place, height)
  local parts = {}
  for i, series in ipairs(panel.series) do
    parts[#parts + 1] = ('<path class="%s s%d" d="%s"/>'):format(series.draw == "area" and "a"
      or "l", (i - 1) % KINDS + 1, path(series, frame, place, height))
  end
  for _, level in ipairs(panel.levels or {}) do
    parts[#parts + 1] = ('<path class="level" d="M0,%.1fH%d"/>'):format(place(level.at), UNITS)
  end
  return table.concat(parts, "\n")
end

--- The spans of one row as a path for each state.
local function strips(row, y, frame)
  local of_state, least = {}, UNITS / frame.columns
  for _, span in ipairs(row.spans) do
    local from, to = max(0, unit(frame, span[1])), min(UNITS, unit(frame, span[2]))
    local state = SHARES[span[3]] and span[3] or "other"
    if to >= 0 and from <= UNITS then
      local runs = of_state[state] or {}
      local last = runs[#runs]
      of_state[state] = runs
      if state ~= "closed" then to = max(to, from + least) end
      if last and from <= last[2] + least / 2 then
        last[2] = max(last[2], to)
      else
        runs[#runs + 1] = { from, to }
      end
    end
  end
  local parts = {}
  for _, state in ipairs(ORDER) do
    local d, height = {}, STRIP * (SHARES[state] or 0.8)
    for i, run in ipairs(of_state[state] or {}) do
      d[i] = ("M%d,%.1fH%dv%.1fH%dZ"):format(run[1], y + STRIP - height, run[2], height, run[1])
    end
    if d[1] then
      parts[#parts + 1] = ('<path class="%s" d="%s"/>'):format(state, table.concat(d))
    end
  end
  return table.concat(parts, "\n")
end

local function bands(panel, frame)
  local parts = {}
  for i, row in ipairs(panel.rows) do
    parts[i] = strips(row, (i - 1) * ROW + (ROW - STRIP) / 2, frame)
  end
  return table.concat(parts, "\n")
end

local function behind(frame, height)
  local parts = {}
  for _, shade in ipairs(frame.shades) do
    local from, to = unit(frame, shade.from), unit(frame, shade.to)
    parts[#parts + 1] = ('<rect class="shade" x="%d" y="0" width="%d" height="%.1f"/>'):format(from,
      max(0, to - from), height)
  end
  return table.concat(parts)
end

local function before(frame, height)
  local parts = {}
  for _, mark in ipairs(frame.marks) do
    parts[#parts + 1] = ('<path class="mark" d="M%d,0V%.1f"/>'):format(unit(frame, mark.at), height)
  end
  return table.concat(parts)
end

-- ---- A scatter --------------------------------------------------------------------------------

local function overlaps(a, b)
  return a[1] < b[3] and b[1] < a[3] and a[2] < b[4] and b[2] < a[4]
end

--- A place beside a point where its label covers nothing; nil if there is none.
local function room_for(text, x, y, taken, frame, top, height)
  local width = panels.text_width(text)
  for _, at in ipairs { { 9, 4, "start" }, { 6, -8, "start" }, { 6, 16, "start" },
    { -9, 4, "end" }, { -6, -8, "end" }, { -6, 16, "end" } } do
    local left = at[3] == "start" and x + at[1] or x + at[1] - width
    local box = { left, y + at[2] - 10, left + width, y + at[2] + 2 }
    local is_free = left >= frame.left and box[3] <= frame.left + frame.width and box[2] >= top
      and box[4] <= top + height
    for _, other in ipairs(taken) do is_free = is_free and not overlaps(box, other) end
    if is_free then
      taken[#taken + 1] = box
      return x + at[1], y + at[2], at[3]
    end
  end
end

local function front_line(points)
  local sorted, parts = {}, {}
  for _, point in ipairs(points) do
    if point.front then sorted[#sorted + 1] = point end
  end
  table.sort(sorted, function(a, b)
    if a.x_at ~= b.x_at then return a.x_at < b.x_at end
    return a.y_at < b.y_at
  end)
  for i, point in ipairs(sorted) do
    parts[i] = ("%s%.1f,%.1f"):format(i == 1 and "M" or "L", point.x_at, point.y_at)
  end
  return parts[2] and ('<path class="l s1" d="%s"/>'):format(table.concat(parts)) or ""
end

local function rank(point) return point.chosen and 3 or point.front and 2 or 1 end

local function scatter(panel, frame, place, top, height)
  local points, parts, taken = {}, {}, {}
  for i, point in ipairs(panel.points) do
    local x, y = frame.left + frame.place(point.x) * frame.width, top + place(point.y)
    points[i] = {
      x_at = x, y_at = y, n = i, name = point.name, label = point.label, front = point.front,
      chosen = point.chosen,
    }
    taken[i] = { x - 4, y - 4, x + 4, y + 4 }
  end
  parts[1] = front_line(points)
  table.sort(points, function(a, b)
    if rank(a) ~= rank(b) then return rank(a) < rank(b) end
    return a.n < b.n
  end)
  for _, point in ipairs(points) do
    parts[#parts + 1] = ('<circle class="dot%s" cx="%.1f" cy="%.1f" r="4"><title>%s</title>'
      .. "</circle>"):format(point.front and " front" or "", point.x_at, point.y_at,
      escape(point.name))
    if point.chosen then
      parts[#parts + 1] = ('<circle class="ring" cx="%.1f" cy="%.1f" r="8"/>'):format(point.x_at,
        point.y_at)
    end
  end
  for i = #points, 1, -1 do
    local point = points[i]
    if point.label then
      local text = shortened(point.label, 40)
      local x, y, anchor = room_for(text, point.x_at, point.y_at, taken, frame, top, height)
      if x then
        parts[#parts + 1] = ('<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>')
          :format(point.chosen and "label halo" or "name halo", x, y, anchor, escape(text))
      end
    end
  end
  return table.concat(parts, "\n")
end

-- ---- A plot -----------------------------------------------------------------------------------

local function y_scale(panel, y, frame, place, top, height)
  local parts, x = {}, frame.left
  local most = max(2, floor(height / 26))
  for _, tick in ipairs(axis.ticks(y.kind, y.from, y.to, most, y.unit)) do
    local at = top + place(tick.at)
    parts[#parts + 1] = ('<path class="grid" d="M%.1f,%.1fh%.1f"/>'):format(x, at,
      frame.width)
    parts[#parts + 1] = ('<text x="%.1f" y="%.1f" text-anchor="end">%s</text>'):format(x - 6,
      at + 4, escape(tick.text))
  end
  for _, level in ipairs(panel.levels or {}) do
    parts[#parts + 1] = ('<text class="halo" x="%.1f" y="%.1f" text-anchor="end">%s</text>'):format(
      x + frame.width - 4, top + place(level.at) - 3, escape(level.text))
  end
  return table.concat(parts, "\n")
end

local function row_names(panel, frame, top)
  local parts = {}
  for i, row in ipairs(panel.rows) do
    parts[i] = ('<text class="name" x="%.1f" y="%.1f" text-anchor="end"><title>%s</title>%s</text>')
      :format(frame.left - 6, top + (i - 0.5) * ROW + 4, escape(panels.whole_name(row)),
        escape(panels.row_name(row)))
  end
  return table.concat(parts, "\n")
end

--- A plot, with what stands at its left.
---@return string
function panels.body(panel, frame, top, height)
  local inside, above = "", ""
  local beside
  if panel.kind == "bands" then
    inside, beside = bands(panel, frame), row_names(panel, frame, top)
  else
    local y = y_axis(panel)
    local place = y_placer(y, height)
    beside = y_scale(panel, y, frame, place, top, height)
    if panel.kind == "scatter" then
      above = scatter(panel, frame, place, top, height)
    else
      inside = lines(panel, frame, place, height)
    end
  end
  local open = ('<svg data-units="%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"'
    .. ' viewBox="0 0 %d %.1f" preserveAspectRatio="none">'):format(UNITS, frame.left, top,
    frame.width, height, UNITS, height)
  return table.concat({
    open, behind(frame, height), "</svg>", beside,
    open, inside, before(frame, height), "</svg>", above,
    ('<path class="frame" d="M%.1f,%.1fv%.1fh%.1f"/>'):format(frame.left, top, height, frame.width),
  }, "\n")
end

return panels
