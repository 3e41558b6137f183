--- Does on a libuv loop what guards have to do beside calls: writing last good answers to their
--- file, making queued calls again, counting calls that hang.
--
--   local tend = require "neap.tend"
--   local tending = tend.start { payments }
--
-- Elsewhere a program calls guard:tend() from a timer of its own.

local tend = {}

local SOON_MS, RETRY_MS, LEAST_MS = 1, 1000, 1

---@class neap.Tending
local Tending = {}
Tending.__index = Tending

local function arm(self, wait_ms)
  if not self.timer:is_closing() then self.timer:start(wait_ms, 0, self.tick) end
end

--- Has another guard tended, too.
---@param guard neap.Guard
function Tending:add(guard)
  self.guards[#self.guards + 1] = guard
  guard.is_tended = true
  guard.chain.durables.on_due = function()
    if not self.is_ticking then arm(self, SOON_MS) end
    self.is_due = true
  end
  arm(self, SOON_MS)
end

--- Ends it.  What is due remains due; guard:close() writes what is to be written.
function Tending:close()
  for _, guard in ipairs(self.guards) do guard.is_tended = false end
  if not self.timer:is_closing() then self.timer:close() end
end

local function tick(self)
  local wait_ms = RETRY_MS
  self.is_ticking, self.is_due = true, false
  for _, guard in ipairs(self.guards) do
    local ok, answer = pcall(guard.tend, guard)
    if not ok then guard:warn("tend", "beside calls: " .. tostring(answer)) end
    if ok then wait_ms = math.min(wait_ms, answer) end
  end
  self.is_ticking = false
  arm(self, self.is_due and SOON_MS or math.max(LEAST_MS, math.ceil(wait_ms)))
end

--- From now on, does what the guards have to do.  Does not keep the loop running.
---@param guards neap.Guard[]
---@param options? { uv?: table } luv
---@return neap.Tending
function tend.start(guards, options)
  local uv = options and options.uv or require "luv"
  local self = setmetatable({ timer = assert(uv.new_timer()), guards = {} }, Tending)
  self.timer:unref()
  self.tick = function() tick(self) end
  for _, guard in ipairs(guards) do self:add(guard) end
  return self
end

return tend
