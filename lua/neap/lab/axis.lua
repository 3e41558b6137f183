--- Axes: where the ticks of a plot are, and what is written at them.
--
--   kind      values are                     ticks
--   clock     ms since 1970                  on full seconds, minutes, hours, days of UTC
--   elapsed   ms since some beginning        the same, counted from 0
--   linear    numbers                        1, 2, 5, 10, 20 …
--   log       numbers over 0                 powers of ten; 1, 2, 5 where there are few
--
-- A unit says how a number reads: "ms" (250 ms, 1.5 s, 3 min), "share" (0.25 is 25 %), or a word
-- that stands behind it; without, a plain number (12 k, 3.4 M).

local axis = {}

local floor, huge, log, max, min = math.floor, math.huge, math.log, math.max, math.min

local SECOND, MINUTE, HOUR, DAY = 1000, 60000, 3600000, 86400000

--- Steps between ticks of time; longer ones are full days.
axis.STEPS_MS = {
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND,
  30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
  2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY,
  364 * DAY,
}

--- 3 digits, without zeroes at the end.
local function short(n)
  local text = ("%.3g"):format(n)
  if text:find("e", 1, true) then text = ("%.0f"):format(n) end
  return text
end

local function plain(n)
  local size = math.abs(n)
  if size >= 1e9 then return short(n / 1e9) .. " G" end
  if size >= 1e6 then return short(n / 1e6) .. " M" end
  if size >= 1e4 then return short(n / 1e3) .. " k" end
  if size >= 1000 then return ("%.0f"):format(n) end
  if size > 0 and size < 1e-3 then return ("%.0e"):format(n) end
  return short(n)
end

--- A time span in words: 250 ms, 1.5 s, 3 min, 2 h, 5 d.
---@param ms number
---@return string
function axis.span(ms)
  local size = math.abs(ms)
  if size >= 2 * DAY then return short(ms / DAY) .. " d" end
  if size >= 2 * HOUR then return short(ms / HOUR) .. " h" end
  if size >= 2 * MINUTE then return short(ms / MINUTE) .. " min" end
  if size >= SECOND then return short(ms / SECOND) .. " s" end
  return short(ms) .. " ms"
end

--- A number as its unit has it.
---@param n number
---@param unit? string
---@return string
function axis.number(n, unit)
  if n ~= n then return "–" end
  if n == huge then return "∞" end
  if unit == "ms" then return axis.span(n) end
  if unit == "share" then return short(n * 100) .. " %" end
  local text = plain(n)
  return unit and text .. " " .. unit or text
end

local function seconds(ms, digits)
  local width = digits == 0 and 2 or 3 + digits
  return ("%0" .. width .. "." .. digits .. "f"):format(ms / SECOND)
end

local function digits_of(step_ms)
  return step_ms >= SECOND and 0 or step_ms >= 100 and 1 or step_ms >= 10 and 2 or 3
end

local function clock_text(at_ms, step_ms)
  local at_s = floor(at_ms / SECOND)
  if at_ms % DAY == 0 then return os.date("!%b %d", at_s) end
  if step_ms >= MINUTE then return os.date("!%H:%M", at_s) end
  return os.date("!%H:%M:", at_s) .. seconds(at_ms % MINUTE, digits_of(step_ms))
end

local function elapsed_text(at_ms, step_ms)
  if at_ms < 0 then return "−" .. elapsed_text(-at_ms, step_ms) end
  if step_ms >= DAY then return ("%d d"):format(floor(at_ms / DAY)) end
  local hours = floor(at_ms / HOUR)
  local minutes = floor(at_ms / MINUTE) % 60
  if step_ms >= MINUTE and at_ms % MINUTE == 0 then
    if hours == 0 and step_ms < 10 * MINUTE then return ("%d min"):format(minutes) end
    return ("%d:%02d h"):format(hours, minutes)
  end
  if hours == 0 and minutes == 0 and step_ms < SECOND then
    return ("%." .. digits_of(step_ms) .. "f s"):format(at_ms / SECOND)
  end
  local rest = seconds(at_ms % MINUTE, digits_of(step_ms))
  if hours == 0 then return ("%d:%s"):format(minutes, rest) end
  return ("%d:%02d:%s"):format(hours, minutes, rest)
end

--- An instant in full, as a table has it; of elapsed time: how long after the beginning.
---@param at_ms number
---@param kind "clock"|"elapsed"
---@return string
function axis.instant(at_ms, kind)
  if kind == "elapsed" then return ("%.3f s"):format(at_ms / SECOND) end
  local ms = floor(at_ms % SECOND)
  return os.date("!%Y-%m-%d %H:%M:%S", floor(at_ms / SECOND)) .. (ms > 0 and (".%03d"):format(ms)
    or "")
end

--- The step of time that makes at most so many ticks; longer ones are full days.
local function time_step(range, most)
  for _, one in ipairs(axis.STEPS_MS) do
    if range / one <= most then return one end
  end
  return DAY * math.ceil(range / DAY / most)
end

local function linear_step(range, most, unit)
  if unit == "ms" and range > SECOND then return time_step(range, most) end
  local power = 10 ^ floor(log(range / most, 10))
  for _, factor in ipairs { 1, 2, 5, 10, 20 } do
    if range / (factor * power) <= most then return factor * power end
  end
end

local function time_ticks(kind, from, to, most)
  local step = time_step(to - from, most)
  local ticks, text = {}, kind == "clock" and clock_text or elapsed_text
  for i = math.ceil(from / step), floor(to / step) do
    ticks[#ticks + 1] = { at = i * step, text = text(i * step, step) }
  end
  return ticks
end

local function linear_ticks(from, to, most, unit)
  local step, ticks = linear_step(to - from, most, unit), {}
  for i = math.ceil(from / step - 1e-9), floor(to / step + 1e-9) do
    ticks[#ticks + 1] = { at = i * step, text = axis.number(i * step, unit) }
  end
  return ticks
end

local function log_ticks(from, to, most, unit)
  local ticks = {}
  local first, last = floor(log(from, 10)), math.ceil(log(to, 10))
  local factors = last - first <= 2 and { 1, 2, 5 } or { 1 }
  local every = max(1, math.ceil((last - first) / most))
  for power = first, last, every do
    for _, factor in ipairs(factors) do
      local at = factor * 10.0 ^ power
      if at >= from * 0.999 and at <= to * 1.001 then
        ticks[#ticks + 1] = { at = at, text = axis.number(at, unit) }
      end
    end
  end
  return ticks
end

--- The ticks of an axis.
---@param kind "clock"|"elapsed"|"linear"|"log"
---@param from number
---@param to number over from
---@param most integer about as many
---@param unit? string
---@return { at: number, text: string }[]
function axis.ticks(kind, from, to, most, unit)
  if kind == "log" then return log_ticks(from, to, most, unit) end
  if kind == "linear" then return linear_ticks(from, to, most, unit) end
  return time_ticks(kind, from, to, most)
end

--- The ends of an axis for values between lo and hi: from 0 or a power of ten, to a round number.
---@param kind "linear"|"log"
---@param lo number nothing at all if it is over hi
---@param hi number
---@param unit? string
---@return number from, number to
function axis.ends(kind, lo, hi, unit)
  if lo > hi then lo, hi = kind == "log" and 1 or 0, 1 end
  if kind == "log" then
    local from, to = 10.0 ^ floor(log(lo, 10)), 10.0 ^ math.ceil(log(hi, 10) - 1e-9)
    return from, to > from and to or from * 10
  end
  lo, hi = min(lo, 0), max(hi, 0)
  if lo == hi then hi = 1 end
  local step = linear_step(hi - lo, 5, unit)
  return floor(lo / step + 1e-9) * step, math.ceil(hi / step - 1e-9) * step
end

return axis
