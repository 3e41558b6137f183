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

---@class neap.Refresh one that is under way
---@field key any of the answer
---@field since_ms number

---@class neap.Refreshes which answers are being refreshed
---@field private of_key table<any, neap.Refresh> the newest of each
local Refreshes = {}
Refreshes.__index = Refreshes

--- What the caller is to refresh, if he is to; nil: another one does.
---@param key any
---@param now_ms number
---@param lease_ms integer|nil the policy's timeout_ms
---@return neap.Refresh|nil
function Refreshes:begin(key, now_ms, lease_ms)
  local other, timeout_ms = self.of_key[key], (lease_ms or 0) > 0 and lease_ms or LEASE_MS
  if other and now_ms - other.since_ms <= 2 * timeout_ms then return nil end
  local refresh = { key = key, since_ms = now_ms }
  self.of_key[key] = refresh
  return refresh
end

--- It has come to an end, whatever that was.  One that was given up for lost ends nobody else's.
---@param refresh neap.Refresh
function Refreshes:done(refresh)
  if self.of_key[refresh.key] == refresh then self.of_key[refresh.key] = nil end
end

--- Refreshes an answer for a Lua program, in the background.
---@param refreshes neap.Refreshes
---@param line table of the guard
---@param due neap.Refresh
---@param f function
---@param args table
function revalidate.start(refreshes, line, due, f, args)
  local guard = line.guard
  local function refresh()
    local ok, outcome, value = pcall(apart.attempt, line, f, args)
    refreshes:done(due)
    if not ok then guard:warn("refresh", "an answer cannot be refreshed: " .. tostring(outcome)) end
    if ok and outcome == "success" and value ~= nil then
      guard:remember({ key = line.key, args = args, result = value, ended_by = "answer" }, value)
    end
  end
  local ok, err = pcall(apart.spawn, guard.host, refresh)
  if not ok then
    refreshes:done(due)
    guard:warn("refresh", "an answer cannot be refreshed: " .. tostring(err))
  end
end

---@return neap.Refreshes
function revalidate.new()
  return setmetatable({ of_key = {} }, Refreshes)
end

return revalidate
