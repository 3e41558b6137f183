--- How long a dependency asked to be left alone: Retry-After, as a number of seconds or as a date.
--
--   Retry-After: 120                              120000
--   Retry-After: Fri, 31 Dec 1999 23:59:59 GMT    until then, counted from the answer's own Date
--
-- What is past, negative, text or more than a year is no answer to the question: nil.

local retry_after = {}

local time, floor = os.time, math.floor
local match, lower = string.match, string.lower

local LONGEST_S = 365 * 24 * 60 * 60
local MOST_HEADERS = 200 -- looked at for one spelled in another case

local MONTHS = {
  jan = 1, feb = 2, mar = 3, apr = 4, may = 5, jun = 6,
  jul = 7, aug = 8, sep = 9, oct = 10, nov = 11, dec = 12,
}

--- Days since 1970-01-01.  A year begins in March here, so that the leap day is its last.
local function days_since_epoch(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  local leap_days = floor(year / 4) - floor(year / 100) + floor(year / 400)
  return 365 * year + leap_days + floor((153 * (month - 3) + 2) / 5) + day - 719469
end

local function seconds(year, month, day, hour, minute, second)
  year, day, hour, minute, second = year + 0, day + 0, hour + 0, minute + 0, second + 0
  month = MONTHS[lower(month)]
  if not month or day < 1 or day > 31 or hour > 23 or minute > 59 or second > 60 then return nil end
  return days_since_epoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
end

--- The instant that an HTTP date names, in seconds since 1970; nil if it is none.  All three forms
--- of RFC 9110: the one in use, and the two that must still be read.
---@param text string
---@return integer|nil
function retry_after.date(text)
  local day, month, year, h, m, s =
    match(text, "^%a%a%a, (%d%d) (%a%a%a) (%d%d%d%d) (%d%d):(%d%d):(%d%d) GMT$")
  if day then return seconds(year, month, day, h, m, s) end
  day, month, year, h, m, s =
    match(text, "^%a+, (%d%d)%-(%a%a%a)%-(%d%d) (%d%d):(%d%d):(%d%d) GMT$")
  if day then
    year = year + 0
    return seconds(year + (year < 70 and 2000 or 1900), month, day, h, m, s)
  end
  month, day, h, m, s, year =
    match(text, "^%a%a%a (%a%a%a) +(%d%d?) (%d%d):(%d%d):(%d%d) (%d%d%d%d)$")
  if day then return seconds(year, month, day, h, m, s) end
end

--- A header's value, whatever the case of its name; of a list of values, the first.
---@param headers any
---@param name string in lower case
---@return string|nil
function retry_after.header(headers, name)
  if type(headers) ~= "table" then return nil end
  local value = headers[name]
  if value == nil then
    local looked = 0
    for key, candidate in next, headers do
      looked = looked + 1
      if type(key) == "string" and #key == #name and lower(key) == name then value = candidate end
      if value ~= nil or looked > MOST_HEADERS then break end
    end
  end
  if type(value) == "table" then value = value[1] end
  if type(value) == "number" then value = ("%.0f"):format(value) end
  return type(value) == "string" and value or nil
end

--- What a Retry-After of `value` asks for, in milliseconds.
---@param value string
---@param now_s? integer what a date is counted from; the system's time if nil
---@return integer|nil
function retry_after.of(value, now_s)
  if #value > 64 then return nil end
  local text = match(value, "^%s*(.-)%s*$")
  local wait_s = match(text, "^%d+$") and text + 0
  if not wait_s then
    local at = retry_after.date(text)
    if not at then return nil end
    wait_s = at - (now_s or time())
  end
  if wait_s <= 0 or wait_s > LONGEST_S then return nil end
  return wait_s * 1000
end

--- What an answer's headers ask for, in milliseconds.
---@param headers any
---@return integer|nil
function retry_after.ms(headers)
  local value = retry_after.header(headers, "retry-after")
  if not value then return nil end
  local date = retry_after.header(headers, "date")
  return retry_after.of(value, date and #date <= 64 and retry_after.date(date) or nil)
end

return retry_after
