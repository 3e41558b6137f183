--- The screen of neap top: lines of text of what is known, for a terminal of so many columns and
--- rows. Draws nothing itself.
---
---   neap 127.0.0.1:9464   1 open   0 half-open   4 closed              live 12:00:04
---
---     STATE      BREAKER         NEAREST LIMIT     CALLS/S     P99  FALLB  LAST MINUTE  WHY
---   > OPEN 4 s   flags/default                          20  <=5 ms   76 %  …            2 s ago …
---     …
---   flags/default: 2 s ago: 5 failures in 18 calls, limit 5; open for 5758 ms, level 1
---   j/k move   enter detail   / filter   s sort: trouble   q quit

local characters = require "neap.characters"
local columns = require "neap.columns"
local known = require "neap.top.known"

local screen = {}

local PLAIN = "\27[0m"
local INKS = { open = "\27[31;1m", half = "\27[33m", hand = "\27[35m", well = "\27[32m",
  dim = "\27[2m", chosen = "\27[7m", bold = "\27[1m" }

local BARS = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }
local ASCII_BARS = { ".", ":", "-", "=", "+", "*", "%", "#" }

---@class neap.top.View
---@field known neap.top.Known
---@field columns integer
---@field rows integer
---@field colours boolean
---@field utf8 boolean
---@field where string
---@field now_ms number neap's clock, since 1970
---@field text string the filter
---@field is_typing boolean it is being typed
---@field sort string
---@field chosen? string id
---@field first integer the first line of the list, or of the detail, that is seen
---@field lost? { age_ms: number, wait_ms: number, why: string }
---@field detail? table what /live/POLICY/KEY says; false: not yet

-- ---- Words ------------------------------------------------------------------------------------

local function lasting(ms)
  local s = math.max(0, math.floor(ms / 1000))
  if s < 60 then return ("%d s"):format(s) end
  if s < 3600 then return ("%d min"):format(s // 60) end
  return s < 86400 and ("%d h"):format(s // 3600) or ("%d d"):format(s // 86400)
end

local function short_ms(ms, is_over)
  if not ms then return "-" end
  local text = ms >= 1000 and ("%.3g s"):format(ms / 1000) or ("%.0f ms"):format(ms)
  return (is_over and ">" or "<=") .. text
end

local function number(n)
  return (n >= 10 or n % 1 == 0) and ("%.0f"):format(n) or ("%.2g"):format(n)
end

--- Exactly so many columns of a text that does nothing to a terminal.
local function cell(text, width, is_right)
  text = characters.printable(text)
  if columns.count(text) > width then
    text = width > 0 and columns.cut(text, width - 1) .. "~" or ""
  end
  local rest = (" "):rep(width - columns.count(text))
  return is_right and rest .. text or text .. rest
end

local function inked(view, ink, text)
  return view.colours and INKS[ink] and INKS[ink] .. text .. PLAIN or text
end

-- ---- A row ------------------------------------------------------------------------------------

local function state_text(view, row)
  local text = known.look(row)
  if row.mode ~= "auto" then
    return row.mode_until > 0 and text .. " " .. lasting(row.mode_until - view.now_ms + 999) or text
  end
  if row.state == "open" then
    local left_ms = row.probe_at - view.now_ms
    return left_ms > 0 and text .. " " .. lasting(left_ms + 999) or text .. " probe due"
  elseif row.state == "half_open" then
    local policy = view.known.policies[row.policy]
    return ("%s %.0f/%.0f"):format(text, row.probes_succeeded, policy and policy.limits.successes
      or 0)
  end
  return row.admitted < 1 and text .. " " .. known.percent(row.admitted) or text
end

local function limit_text(view, row)
  if row.state ~= "closed" or row.mode == "forced_open" then return "" end
  local rule = view.known:nearest(row)
  return rule and ("%s / %s"):format(rule.text, rule.limit) or ""
end

--- A bar for each step; of those in which more went wrong than well it is red, or else an x.
local function spark(view, row, width)
  local steps, most, parts = known.steps_of(row, width), 0, {}
  for _, step in ipairs(steps) do most = math.max(most, step.calls) end
  for i, step in ipairs(steps) do
    local bars = view.utf8 and BARS or ASCII_BARS
    local bar = step.calls == 0 and " " or bars[math.max(1, math.ceil(step.calls / most * #bars))]
    if step.is_bad then bar = view.colours and inked(view, "open", bar) or "x" end
    parts[i] = bar
  end
  return (" "):rep(width - #steps) .. table.concat(parts)
end

local function why_text(view, row)
  if row.set then return row.mode_until > 0 and row.set or "until changed; " .. row.set end
  if not row.moved_at then return "" end
  return ("%s ago: %s"):format(lasting(view.now_ms - row.moved_at),
    (row.moved:gsub("^[%w_]+ %-> [%w_]+: ", "")))
end

--- Widths of the columns: what is least needed goes first where there is no room.
local function layout(all)
  local widths = { state = 16, name = 16, limit = 24, rate = 8, p50 = 9, p99 = 9, fallbacks = 6,
    spark = 16 }
  local room = all - 2
  if all < 40 then widths.state = 9 end
  for _, one in ipairs { { "p50", 140 }, { "spark", 118 }, { "fallbacks", 96 },
    { "limit", 76 }, { "p99", 60 }, { "rate", 50 } } do
    if all < one[2] then widths[one[1]] = 0 end
  end
  for _, width in pairs(widths) do room = room - (width > 0 and width + 1 or 0) end
  local more = room < 0 and room or math.max(math.min(room, 12), math.min(room // 2, 28))
  widths.name = math.max(1, widths.name + more)
  widths.why = math.max(0, room - more)
  return widths
end

local COLUMNS = {
  { "state", "STATE" }, { "name", "BREAKER" }, { "limit", "NEAREST LIMIT" },
  { "rate", "CALLS/S", true }, { "p50", "P50", true }, { "p99", "P99", true },
  { "fallbacks", "FALLB", true }, { "spark", "LAST MINUTE" }, { "why", "WHY" },
}

local function head_line(view, widths)
  local parts = {}
  for _, column in ipairs(COLUMNS) do
    local width = widths[column[1]]
    if width > 0 then parts[#parts + 1] = cell(column[2], width, column[3]) end
  end
  return inked(view, "dim", "  " .. table.concat(parts, " "))
end

local function row_line(view, row, widths)
  local policy = view.known.policies[row.policy] or {}
  local _, look = known.look(row)
  local texts = {
    state = state_text(view, row), name = row.id, limit = limit_text(view, row),
    rate = number(view.known:rate(row)), why = why_text(view, row),
    p50 = short_ms(row.p50, row.over > 1), p99 = short_ms(row.p99, row.over > 0),
    fallbacks = policy.fallbacks and known.percent(policy.fallbacks) or "-",
  }
  local parts, is_chosen = {}, row.id == view.chosen
  for _, column in ipairs(COLUMNS) do
    local name, width = column[1], widths[column[1]]
    if width > 0 and name == "spark" then
      parts[#parts + 1] = spark(view, row, width)
    elseif width > 0 then
      local text = cell(texts[name], width, column[3])
      if name == "state" then text = inked(view, look, text) end
      if name == "name" and is_chosen then text = inked(view, "chosen", text) end
      parts[#parts + 1] = text
    end
  end
  return (is_chosen and "> " or "  ") .. table.concat(parts, " ")
end

-- ---- All of it --------------------------------------------------------------------------------

local function top_line(view)
  local counts, parts = view.known:counts(), {}
  for _, one in ipairs { { "open", "open", "open" }, { "half_open", "half-open", "half" },
    { "closed", "closed", "well" }, { "hand", "by hand", "hand" } } do
    local n = counts[one[1]]
    if n > 0 or one[1] ~= "hand" then
      local text = ("%d %s"):format(n, one[2])
      parts[#parts + 1] = { text, n > 0 and one[3] }
    end
  end
  local left, shown = "neap " .. view.where, inked(view, "bold", "neap") .. " " .. view.where
  for _, part in ipairs(parts) do
    left, shown = left .. "   " .. part[1], shown .. "   " .. inked(view, part[2], part[1])
  end
  local right = view.lost and "NO ANSWER" or "live " .. os.date("%H:%M:%S", view.now_ms // 1000)
  local room = view.columns - columns.count(left) - #right
  if room < 1 then return cell(left, view.columns) end
  return shown .. (" "):rep(room) .. (view.lost and inked(view, "open", right) or right)
end

local function second_line(view)
  if view.lost then
    local text = ("No answer: %s. What you see is %s old; trying again in %s."):format(
      view.lost.why, lasting(view.lost.age_ms), lasting(view.lost.wait_ms + 999))
    return inked(view, "open", cell(text, view.columns))
  end
  for _, name in ipairs(screen.sorted(view.known.policies)) do
    local fault = view.known.policies[name].error
    if fault then
      return inked(view, "half", cell(("policy %s: the last good version serves: %s"):format(name,
        fault), view.columns))
    end
  end
  return ""
end

function screen.sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function bottom_line(view)
  if view.is_typing then return cell("/" .. view.text, view.columns) end
  local filter = view.text ~= "" and ("   /%s"):format(view.text) or ""
  local keys = view.detail ~= nil and "j/k scroll   q back"
    or "j/k move   enter detail   / filter   s sort: " .. view.sort .. "   q quit"
  return inked(view, "dim", cell(keys .. filter, view.columns))
end

local FIXED = 5 -- lines that are not of the list

--- How many breakers are seen at once.
function screen.room(view) return math.max(1, view.rows - FIXED) end

---@param view neap.top.View
---@param list neap.top.Row[]
---@return string[] one for each row of the terminal
function screen.list(view, list)
  local widths, lines = layout(view.columns), { top_line(view), second_line(view) }
  lines[3] = head_line(view, widths)
  for i = view.first, view.first + screen.room(view) - 1 do
    lines[#lines + 1] = list[i] and row_line(view, list[i], widths) or ""
  end
  if not list[1] then
    lines[4] = next(view.known.rows) and "  No breaker is like that."
      or "  There is no breaker yet."
  end
  local chosen = view.known.rows[view.chosen]
  local why = chosen and why_text(view, chosen) or ""
  lines[view.rows - 1] = why ~= "" and cell(chosen.id .. ": " .. why, view.columns) or ""
  lines[view.rows] = bottom_line(view)
  return lines
end

-- ---- One breaker ------------------------------------------------------------------------------

local function is_table(value) return type(value) == "table" end

--- A value of a configuration, shortly.
local function plain(value)
  if type(value) == "number" then return ("%.14g"):format(value) end
  return is_table(value) and tostring(value.kind or "{ … }") or tostring(value)
end

local function config_lines(config, out)
  for _, name in ipairs(screen.sorted(config)) do
    local value, parts = config[name], {}
    if not is_table(value) then
      parts[1] = plain(value)
    elseif value[1] ~= nil then
      for i, one in ipairs(value) do parts[i] = plain(one) end
    else
      for i, key in ipairs(screen.sorted(value)) do
        parts[i] = ("%s = %s"):format(key, plain(value[key]))
      end
    end
    out[#out + 1] = ("  %-14s %s"):format(name, table.concat(parts, ", "))
  end
end

local function said_lines(view, said, out)
  if not is_table(said) then return end
  out[#out + 1], out[#out + 2] = "", "Transitions"
  for _, move in ipairs(said.moves) do
    local at = os.date("%H:%M:%S", (move.at - view.known.ahead_ms) // 1000)
    out[#out + 1] = ("  %s  %s"):format(at, move.text)
  end
  if not said.moves[1] then out[#out + 1] = "  none since neap started" end
  if is_table(said.breaker.shadow) then
    out[#out + 1], out[#out + 2] = "", "Shadow: " .. said.breaker.shadow.text
  end
  out[#out + 1], out[#out + 2] = "", "Policy in force"
  out[#out + 1] = ("  %s, %s"):format(tostring(said.policy.path), tostring(said.policy.hash))
  if is_table(said.policy.config) then config_lines(said.policy.config, out) end
end

--- All about one, before it is cut to what is seen: texts, or { text, its ink }, or { drawn = … }.
local function detail_lines(view, row)
  local _, look = known.look(row)
  local out = { { row.id, "bold" }, { state_text(view, row), look }, why_text(view, row), "" }
  for _, rule in ipairs(view.known:rules(row)) do
    out[#out + 1] = ("  %-24s limit %s"):format(rule.text, rule.limit)
  end
  local policy = view.known.policies[row.policy] or {}
  out[#out + 1] = ("  %s calls/s   p50 %s   p99 %s   fallbacks of the policy %s"):format(
    number(view.known:rate(row)), short_ms(row.p50, row.over > 1),
    short_ms(row.p99, row.over > 0), policy.fallbacks and known.percent(policy.fallbacks) or "-")
  out[#out + 1] = { drawn = "  " .. spark(view, row, math.min(view.columns - 4, 64)) }
  said_lines(view, view.detail, out)
  return out
end

--- A text in lines of at most so many columns, the further ones indented.
local function wrapped(text, width)
  local lines, line = {}, nil
  for space, word in characters.printable(text):gmatch "(%s*)(%S+)" do
    local longer = line and line .. space .. word or space .. word
    if line and columns.count(longer) > width then
      lines[#lines + 1], longer = line, "      " .. word
    end
    line = longer
  end
  lines[#lines + 1] = line or ""
  return lines
end

---@param view neap.top.View
---@param row neap.top.Row|nil nil: it is gone
---@return string[] lines
---@return integer count of all there is to be seen
function screen.detail(view, row)
  local all, lines = {}, { top_line(view), second_line(view) }
  for _, one in ipairs(row and detail_lines(view, row) or { "The breaker is gone." }) do
    if type(one) == "string" then one = { one } end
    all[#all + 1] = one.drawn
    for _, line in ipairs(one.drawn and {} or wrapped(one[1], view.columns)) do
      all[#all + 1] = inked(view, one[2], cell(line, view.columns))
    end
  end
  for i = view.first, view.first + view.rows - 4 do lines[#lines + 1] = all[i] or "" end
  lines[view.rows] = bottom_line(view)
  return lines, #all
end

return screen
