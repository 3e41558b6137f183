--- What the lanes of a replay had come to along the way: some hundred looks, however long the log.
---
---   calls    0      200     400     600  ...       of too many every other is dropped,
---   marks    |-------|-------|-------|             and from then on they are twice as far apart

local marks = {}

local EVERY, MOST = 200, 256

---@class neap.lab.Mark
---@field to_ms integer the end of the last call that had been read
---@field counts neap.lab.replay.Counts[] of all keys together, by lane

---@class neap.lab.Marks
---@field every integer calls from one to the next
---@field list neap.lab.Mark[]
local Marks = {}
Marks.__index = Marks

--- Looks, `every` calls after the last look.
function Marks:look()
  local mark = { to_ms = self.native:stats().to_ms, counts = {} }
  for i = 1, self.lanes do mark.counts[i] = self.native:counts(i) end
  local list = self.list
  list[#list + 1] = mark
  if #list < MOST then return end
  for i = 1, MOST / 2 do list[i] = list[2 * i] end
  for i = MOST, MOST / 2 + 1, -1 do list[i] = nil end
  self.every = 2 * self.every
end

---@param native userdata a source, with its lanes
---@param lanes integer
---@return neap.lab.Marks
function marks.new(native, lanes)
  return setmetatable({ native = native, lanes = lanes, every = EVERY, list = {} }, Marks)
end

return marks
