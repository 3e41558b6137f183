--- Stale while revalidate: a last good answer at once, the next one fetched behind the caller's
--- back.
--
--      0 ............. revalidate_after_ms ................ max_age_ms
--      |    as it is    |   as it is, and one call asks     |   every call asks, and waits
--
-- One call at a time refreshes one answer.  It goes through the breaker like any other: while that
-- is open nobody is asked, and callers have their answers all the same.

local apart = require "neap.apart"

local revalidate = {}

local LEASE_MS = 30000 -- of a refresh, without a timeout_ms: longer, and it is lost

--- The stage of a policy that does it; nil: none.
---@param policy table
---@return neap.Stage|nil
function revalidate.stage(policy)
  for _, stage in ipairs(policy.stages) do
    if stage.kind == "last_good" and stage.revalidate_after_ms then return stage end
  end
end

---@class neap.Refreshes which answers are being refreshed: by key, since when
---@field private since table<any, number>
local Refreshes = {}
Refreshes.__index = Refreshes

--- Whether the caller is to refresh the answer of that key.
---@param key any
---@param now_ms number
---@param lease_ms integer|nil the policy's timeout_ms
---@return boolean
function Refreshes:begin(key, now_ms, lease_ms)
  local since_ms, timeout_ms = self.since[key], (lease_ms or 0) > 0 and lease_ms or LEASE_MS
  if since_ms and now_ms - since_ms <= 2 * timeout_ms then return false end
  self.since[key] = now_ms
  return true
end

--- It has come to an end, whatever that was.
---@param key any
function Refreshes:done(key)
  self.since[key] = nil
end

--- Refreshes an answer for a Lua program, in the background.
---@param refreshes neap.Refreshes
---@param line table of the guard
---@param key any
---@param f function
---@param args table
function revalidate.start(refreshes, line, key, f, args)
  local guard = line.guard
  local function refresh()
    local ok, outcome, value = pcall(apart.attempt, line, f, args)
    refreshes:done(key)
    if not ok then guard:warn("refresh", "an answer cannot be refreshed: " .. tostring(outcome)) end
    if ok and outcome == "success" and value ~= nil then
      guard:remember({ key = line.key, args = args, result = value, ended_by = "answer" }, value)
    end
  end
  local ok, err = pcall(apart.spawn, guard.host, refresh)
  if not ok then
    refreshes:done(key)
    guard:warn("refresh", "an answer cannot be refreshed: " .. tostring(err))
  end
end

---@return neap.Refreshes
function revalidate.new()
  return setmetatable({ since = {} }, Refreshes)
end

return revalidate
