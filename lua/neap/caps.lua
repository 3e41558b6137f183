--- How many calls wait for a fallback stage now: an outage must not move the overload to whoever
--- answers instead.
--
-- One that never comes back (its coroutine was dropped, its light thread killed) is not counted for
-- ever: after a lease its place is free.

local caps = {}

local LEASE_MS = 60000 -- of a stage without timeout_ms

---@class neap.Cap
---@field count integer
---@field private began table<table, number> by ticket: when
local Cap = {}
Cap.__index = Cap

--- Frees the places of those that never came back; not more than once a millisecond.
local function sweep(self, now_ms, lease_ms)
  if self.swept_ms == now_ms then return end
  self.swept_ms = now_ms
  for ticket, began_ms in pairs(self.began) do
    if now_ms - began_ms > lease_ms then self:leave(ticket) end
  end
end

--- Takes a place, if there is one of `most`.
---@param most integer
---@param now_ms number
---@param timeout_ms integer|nil after which nobody waits any more
---@return table|nil ticket
function Cap:enter(most, now_ms, timeout_ms)
  if self.count >= most then
    sweep(self, now_ms, timeout_ms and 2 * timeout_ms or LEASE_MS)
    if self.count >= most then return nil end
  end
  local ticket = {}
  self.began[ticket] = now_ms
  self.count = self.count + 1
  return ticket
end

--- Gives a place back.
---@param ticket table
function Cap:leave(ticket)
  if not self.began[ticket] then return end
  self.began[ticket] = nil
  self.count = self.count - 1
end

---@return neap.Cap
function caps.new()
  return setmetatable({ count = 0, began = {} }, Cap)
end

return caps
