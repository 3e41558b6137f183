--- What is measured: counts by slices of the time, distributions of times, and how fast things come
--- at their worst.

local meter = {}

local floor, huge, log, max = math.floor, math.huge, math.log, math.max

local SLICES, LEAST_MS = 600, 100
local NICE_MS = { 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000,
  600000, 900000, 1800000, 3600000 }

--- How long the slices of a plot are.
---@param duration_ms number
---@return number
function meter.slice_ms(duration_ms)
  for _, ms in ipairs(NICE_MS) do
    if duration_ms / ms <= SLICES then return max(LEAST_MS, ms) end
  end
  return 24 * 3600000
end

-- ---- Times ------------------------------------------------------------------------------------

local PER_OCTAVE = 16
local LOG2 = 1 / log(2)

---@class neap.lab.sim.Times a histogram: within 4.5 %
local Times = {}
Times.__index = Times

---@param ms number
function Times:add(ms)
  local i = ms <= 0.01 and 0 or floor((log(ms) * LOG2 + 7) * PER_OCTAVE) + 1
  local counts = self.counts
  counts[i] = (counts[i] or 0) + 1
  self.count = self.count + 1
end

--- The time that such a share does not exceed; nil if there is none.
---@param share number
---@return number|nil ms
function Times:at(share)
  if self.count == 0 then return nil end
  local keys = {}
  for i in pairs(self.counts) do keys[#keys + 1] = i end
  table.sort(keys)
  local wanted, seen = share * self.count, 0
  for _, i in ipairs(keys) do
    seen = seen + self.counts[i]
    if seen >= wanted then return i == 0 and 0 or 2 ^ ((i - 0.5) / PER_OCTAVE - 7) end
  end
end

function meter.times() return setmetatable({ counts = {}, count = 0 }, Times) end

--- The value that such a share of a list does not exceed; nil of none.
---@param list number[] which is sorted
---@param share number
---@return number|nil
function meter.quantile(list, share)
  if #list == 0 then return nil end
  table.sort(list)
  return list[max(1, math.ceil(share * #list))]
end

-- ---- How many at once -------------------------------------------------------------------------

local TENTH_MS = 100

---@class neap.lab.sim.Peak
local Peak = {}
Peak.__index = Peak

---@param now_ms number
function Peak:add(now_ms)
  local i = floor(now_ms / TENTH_MS)
  local counts = self.counts
  counts[i] = (counts[i] or 0) + 1
end

--- The most within any second, and within any tenth of one.
---@return integer per_s, integer per_tenth
function Peak:most()
  local per_s, per_tenth, counts = 0, 0, self.counts
  for i, count in pairs(counts) do
    local sum = 0
    for j = i - 9, i do sum = sum + (counts[j] or 0) end
    per_s, per_tenth = max(per_s, sum), max(per_tenth, count)
  end
  return per_s, per_tenth
end

function meter.peak() return setmetatable({ counts = {} }, Peak) end

-- ---- By slices --------------------------------------------------------------------------------

---@class neap.lab.sim.Slices counts of several names by slices of the time
---@field ms number
---@field names table<string, number[]>
local Slices = {}
Slices.__index = Slices

---@param name string
---@param now_ms number
function Slices:add(name, now_ms)
  local list, i = self.names[name], floor(now_ms / self.ms) + 1
  list[i] = (list[i] or 0) + 1
end

--- The most of something in that slice.
function Slices:see(name, now_ms, value)
  local list, i = self.names[name], floor(now_ms / self.ms) + 1
  if value > (list[i] or -huge) then list[i] = value end
end

---@param ms number
---@param names string[]
function meter.slices(ms, names)
  local self = setmetatable({ ms = ms, names = {} }, Slices)
  for _, name in ipairs(names) do self.names[name] = {} end
  return self
end

return meter
