--- "Did you mean": the known name that is nearest to one that is not known.

local suggest = {}

local LONGEST = 60 -- bytes; nobody mistypes more

--- How many letters must be added, dropped, changed or swapped with their neighbour to make `a` of
--- `b`.
---@param a string
---@param b string
---@return integer
function suggest.distance(a, b)
  local before, row = {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local older = before
    before, row = row, { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local best = before[j - 1] + (same and 0 or 1)
      if before[j] + 1 < best then best = before[j] + 1 end
      if row[j - 1] + 1 < best then best = row[j - 1] + 1 end
      local swapped = j > 1 and i > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j)
      if swapped and older[j - 2] + 1 < best then best = older[j - 2] + 1 end
      row[j] = best
    end
  end
  return row[#b]
end

--- A name without what is forgotten first, its underscores and unit: maxAge is meant as max_age_ms.
local function bare(name) return (name:gsub("_ms$", ""):gsub("_", "")) end

--- The nearest of `known`, if it is near enough to be meant; of two as near, the first by name.
---@param name any what was written
---@param known string[]
---@return string|nil
function suggest.nearest(name, known)
  if type(name) ~= "string" or #name > LONGEST then return nil end
  local best, least
  local lower = name:lower()
  for _, candidate in ipairs(known) do
    local distance = suggest.distance(lower, candidate:lower())
    if bare(lower) == bare(candidate:lower()) then distance = 0 end
    local near = distance <= math.max(1, math.floor(math.max(#name, #candidate) / 3))
    if near and (not best or distance < least or distance == least and candidate < best) then
      best, least = candidate, distance
    end
  end
  return best
end

--- ": did you mean x?", or nothing.
---@param name any
---@param known string[]
---@return string
function suggest.hint(name, known)
  local nearest = suggest.nearest(name, known)
  return nearest and (": did you mean %s?"):format(nearest) or ""
end

return suggest
