--- What a neap that runs is doing, for people: a line for each breaker, and below it what is not as
--- every day.
---
---   flags/default  open  5 calls, 50 % failed  2026-11-30T12:00:04Z closed -> open: 5 failures …
---     lets a call through in 4.2 s

local characters = require "neap.characters"
local columns = require "neap.columns"
local json = require "neap.cmd.json"

local status = {}

local RED, YELLOW, GREEN, DIM, PLAIN = "\27[31m", "\27[33m", "\27[32m", "\27[2m", "\27[0m"
local COLOURS = { closed = GREEN, half_open = YELLOW, open = RED }

local UNITS = { { 86400000, "d" }, { 3600000, "h" }, { 60000, "min" }, { 1000, "s" } }

--- 4200 -> "4.2 s"
local function lasting(ms)
  for _, unit in ipairs(UNITS) do
    if ms >= unit[1] then return ("%.3g %s"):format(ms / unit[1], unit[2]) end
  end
  return ("%.0f ms"):format(ms)
end

--- A terminal is safe from what clients put into keys.
local function printable(text) return characters.printable(tostring(text)) end

local function is_there(value) return value ~= nil and value ~= json.null end

-- ---- A breaker --------------------------------------------------------------------------------

local function window_text(row)
  if row.calls == 0 then return "no calls" end
  local text = ("%.0f call%s, %.3g %% failed"):format(row.calls, row.calls == 1 and "" or "s",
    row.failure_rate * 100)
  if row.slow_rate > 0 then text = ("%s, %.3g %% slow"):format(text, row.slow_rate * 100) end
  return text
end

--- How it came to be so, without its name, which stands at the beginning of the line.
local function why_text(row, moved)
  if not is_there(moved) then return "has not moved since the start" end
  local name = row.policy .. "/" .. row.key .. ": "
  local text = moved.text or ("%s -> %s: %s"):format(moved.from, moved.to, moved.reason)
  if text:sub(1, #name) == name then text = text:sub(#name + 1) end
  return (moved.at and moved.at .. " " or "") .. text
end

local function operator_text(row)
  local set = row.operator
  local text = "mode " .. row.mode
  if is_there(set) then
    text = ("%s, by %s%s%s"):format(text, set.by or "somebody",
      set.at and " at " .. set.at or "", is_there(set.reason) and ": " .. set.reason or "")
  elseif not row.mode_is_operators then
    text = text .. ", as the policy says"
  end
  if row.mode_left_ms > 0 then return text .. "; ends in " .. lasting(row.mode_left_ms) end
  return row.mode_is_operators and text .. "; until somebody changes it" or text
end

--- Of calls under way only what hangs, or what an open breaker still waits for.
local function under_way_text(row)
  local out, overdue = row.in_flight or 0, row.overdue or 0
  if overdue == 0 and (row.state ~= "open" or out == 0) then return nil end
  local text = ("%.0f call%s under way"):format(out, out == 1 and "" or "s")
  if overdue == 0 then return text end
  return ("%s, %.0f of them for longer than slow_call_ms"):format(text, overdue)
end

local LETS = { forced_open = "lets no call through", forced_closed = "lets every call through",
  shadow = "lets every call through" }

--- A shadow of which there is something to be said.
local function has_differed(shadow, row)
  return shadow.state ~= row.state or shadow.saved + shadow.lost + shadow.neutral
    + shadow.let_through + shadow.opened + shadow.errors > 0
end

--- What is to be said of it besides, a line each.
local function notes_of(row)
  local notes = {}
  if is_there(row.opening) and row.last_transition.from ~= "closed" then
    notes[#notes + 1] = "not closed since " .. why_text(row, row.opening)
  end
  if row.mode ~= "auto" then notes[#notes + 1] = operator_text(row) end
  if LETS[row.mode] then
    notes[#notes + 1] = LETS[row.mode]
  elseif row.state == "open" and row.retry_after_ms > 0 then
    notes[#notes + 1] = "lets a call through in " .. lasting(row.retry_after_ms)
  elseif row.state == "half_open" then
    notes[#notes + 1] = ("probes: %.0f under way, %.0f succeeded, %.0f failed"):format(
      row.probes_in_flight, row.probes_succeeded, row.probes_failed)
  elseif row.state == "closed" and row.admitted < 1 then
    notes[#notes + 1] = ("ramp: lets %.0f %% of the calls in"):format(
      math.floor(row.admitted * 100))
  end
  local under_way = under_way_text(row)
  if under_way then notes[#notes + 1] = under_way end
  if row.neutral_share > 0.5 then
    notes[#notes + 1] = ("%.0f %% of its calls are neutral: it sees little"):format(
      row.neutral_share * 100)
  end
  if is_there(row.shadow) and has_differed(row.shadow, row) then
    notes[#notes + 1] = row.shadow.text
  end
  return notes
end

--- One that nobody has ever used.
---@return boolean
function status.is_unused(row)
  if row.state ~= "closed" or row.mode ~= "auto" or is_there(row.last_transition) then
    return false
  end
  for _, count in pairs(row.totals) do
    if count ~= 0 then return false end
  end
  return true
end

-- ---- The page ---------------------------------------------------------------------------------

local function painter(colours)
  return function(colour, text) return colours and colour and colour .. text .. PLAIN or text end
end

local function widths_of(lines)
  local widths = {}
  for _, line in ipairs(lines) do
    for i, cell in ipairs(line) do widths[i] = math.max(widths[i] or 0, columns.count(cell)) end
  end
  return widths
end

local function padded(cell, width) return cell .. (" "):rep(width - columns.count(cell)) end

local RANK = { open = 1, half_open = 2, closed = 4 }

--- Those in trouble first, as on the page; else as they came.
local function by_trouble(rows)
  local sorted, rank, place = {}, {}, {}
  for i, row in ipairs(rows) do
    sorted[i], place[row] = row, i
    rank[row] = row.state == "closed" and row.mode ~= "auto" and 3 or RANK[row.state] or 4
  end
  table.sort(sorted, function(a, b)
    if rank[a] ~= rank[b] then return rank[a] < rank[b] end
    return place[a] < place[b]
  end)
  return sorted
end

local function breakers_text(rows, paint, out)
  local lines, shown = {}, {}
  for _, row in ipairs(by_trouble(rows)) do
    if row.key ~= "*" or not status.is_unused(row) then
      shown[#shown + 1] = row
      lines[#lines + 1] = {
        printable(row.policy .. "/" .. row.key), row.state, window_text(row),
        why_text(row, row.last_transition),
      }
    end
  end
  local widths = widths_of(lines)
  for i, line in ipairs(lines) do
    local state = paint(COLOURS[line[2]], line[2]) .. (" "):rep(widths[2] - #line[2])
    out[#out + 1] = ("%s  %s  %s  %s"):format(padded(line[1], widths[1]), state,
      padded(line[3], widths[3]), paint(DIM, printable(line[4])))
    for _, note in ipairs(notes_of(shown[i])) do out[#out + 1] = "  " .. printable(note) end
  end
end

local function size_text(bytes)
  if bytes < 1000 then return ("%.0f bytes"):format(bytes) end
  if bytes < 1e6 then return ("%.3g KB"):format(bytes / 1000) end
  return ("%.3g MB"):format(bytes / 1e6)
end

local function queue_text(queue)
  local text = ("queue %s: %.0f call%s (%s)"):format(queue.name, queue.waiting,
    queue.waiting == 1 and " waits" or "s wait", size_text(queue.bytes))
  if queue.dead == 0 then return text end
  return ("%s; dead letters since the start: %.0f"):format(text, queue.dead)
end

local function store_text(store)
  local text = ("last good answers: %.0f%s, %s"):format(store.entries,
    store.max_entries and (" of %.0f"):format(store.max_entries) or "", size_text(store.bytes))
  if store.evicted == 0 then return text end
  return ("%s; %.0f made room for others"):format(text, store.evicted)
end

local function keys_text(keys)
  local text = ("keys: %.0f of %.0f"):format(keys.used, keys.max)
  if keys.overflow > 0 then
    text = ("%s; %.0f call%s found no room and share *"):format(text, keys.overflow,
      keys.overflow == 1 and "" or "s")
  end
  if keys.evicted == 0 then return text end
  return ("%s; %.0f made room for %s"):format(text, keys.evicted,
    keys.evicted == 1 and "another" or "others")
end

--- What a policy keeps, a line each, if there is anything.
local function kept_texts(row)
  local texts = {}
  for _, queue in ipairs(row.queues or {}) do
    if queue.waiting > 0 or queue.dead > 0 then texts[#texts + 1] = queue_text(queue) end
  end
  for _, store in ipairs(row.stores or {}) do
    if store.entries > 0 then texts[#texts + 1] = store_text(store) end
  end
  local keys = row.keys
  if keys and (keys.overflow > 0 or keys.evicted > 0) then texts[#texts + 1] = keys_text(keys) end
  return texts
end

--- Of each policy with a shadow whose breakers say nothing of it: its file.
local function quiet_shadows(breakers)
  local files, told = {}, {}
  for _, row in ipairs(breakers) do
    if is_there(row.shadow) then
      files[row.policy] = row.shadow.file
      told[row.policy] = told[row.policy] or has_differed(row.shadow, row)
    end
  end
  for policy in pairs(told) do
    if told[policy] then files[policy] = nil end
  end
  return files
end

local function policies_text(policies, quiet, paint, out)
  for _, row in ipairs(policies) do
    local whose, what = ("%s %s: "):format(paint(YELLOW, "policy"), printable(row.name)), nil
    if is_there(row.last_error) and not is_there(row.hash) then -- of parameters, or never loaded
      whose, what = paint(YELLOW, "file") .. " ", row.path .. " is not in force as it is: "
        .. row.last_error
    elseif is_there(row.last_error) then
      what = "the last good version serves: " .. row.last_error
    elseif row.orphaned or row.gone then
      what = row.path .. " is gone, its policy serves"
    end
    if what then out[#out + 1] = whose .. printable(what) end
    if is_there(row.shadow) and is_there(row.shadow.error) then
      out[#out + 1] = whose .. printable("the last good version of its shadow judges: "
        .. row.shadow.error)
    elseif quiet[row.name] then
      out[#out + 1] = whose .. printable("shadow " .. quiet[row.name] .. ": has not differed yet")
    end
    for _, text in ipairs(kept_texts(row)) do out[#out + 1] = whose .. printable(text) end
  end
end

--- The lines; empty lists and null are JSON's.
---@param breakers table[] as of the page /breakers
---@param policies table[] as of /policies
---@param options? { colours?: boolean }
---@return string
function status.text(breakers, policies, options)
  local out, paint = {}, painter(options and options.colours)
  breakers_text(breakers, paint, out)
  policies_text(policies, quiet_shadows(breakers), paint, out)
  return table.concat(out, "\n") .. (out[1] and "\n" or "")
end

--- Whether everything is as every day: every breaker closed and letting calls through, every policy
--- file as it serves.
---@return boolean
function status.is_well(breakers, policies)
  for _, row in ipairs(breakers) do
    if row.state ~= "closed" or row.mode == "forced_open" then return false end
  end
  for _, row in ipairs(policies) do
    if is_there(row.last_error) or row.orphaned then return false end
  end
  return true
end

return status
