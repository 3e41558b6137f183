--- Thinning: as many points as a plot has room for, and nothing that stands out is lost.
--
--   column     |  .  : .  |      of each column its first and last point, its least and its most,
--              | :    .   |      in their order: a peak of one second shows in a week
--
-- A y that is false or NaN is a gap; a column with a gap in it keeps it.

local thin = {}

local floor = math.floor

local function is_gap(y) return not y or y ~= y end

--- Which points of x, y to draw, by index.
---@param x number[] never less than the one before
---@param y (number|false)[] as many
---@param from number where the plot begins
---@param to number where it ends; points beyond are left out, but for one on each side
---@param columns integer
---@return integer[]
function thin.indices(x, y, from, to, columns)
  local kept, count = {}, #x
  local first, last = 1, count
  while first < count and x[first + 1] <= from do first = first + 1 end
  while last > first and x[last - 1] >= to do last = last - 1 end
  local scale, i = columns / (to - from), first
  while i <= last do
    local column, j = floor((x[i] - from) * scale), i
    local least, most, gap
    while j <= last and floor((x[j] - from) * scale) == column do
      if is_gap(y[j]) then
        gap = gap or j
      else
        if not least or y[j] < y[least] then least = j end
        if not most or y[j] > y[most] then most = j end
      end
      j = j + 1
    end
    local chosen = { i, least or i, most or i, gap or i, j - 1 }
    table.sort(chosen)
    for k, index in ipairs(chosen) do
      if index ~= chosen[k - 1] then kept[#kept + 1] = index end
    end
    i = j
  end
  return kept
end

--- What a series is at `at`: its last value by then; nil before its first, and in a gap.
---@param x number[]
---@param y (number|false)[]
---@param at number
---@return number|nil
function thin.value_at(x, y, at)
  local low, high = 1, #x
  if high == 0 or x[1] > at then return nil end
  while low < high do
    local middle = (low + high + 1) // 2
    if x[middle] <= at then low = middle else high = middle - 1 end
  end
  return not is_gap(y[low]) and y[low] or nil
end

return thin
