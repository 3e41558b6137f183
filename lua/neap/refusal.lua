--- Errors that a guard answers with: values, not raised.

---@class (exact) neap.Refusal
---@field kind "open"|"probes_busy"|"forced_open"|"ramp"|"bulkhead"|"timeout"|"deadline"|string
---  why; of a fail stage, its kind
---@field policy string
---@field key string
---@field retry_after_ms? integer when asking again may help; nil: unknown
---@field timeout_ms? integer of a timeout or deadline: what was allowed
---@field status? integer of a fail stage: what a protocol would answer
---@field cause? any of a fail stage: what went before
local Refusal = {}
Refusal.__index = Refusal

local TEXTS = {
  open = "the breaker is open",
  probes_busy = "the breaker is half-open and its probes are under way",
  forced_open = "the breaker is held open by hand",
  ramp = "the breaker has just closed, and lets only a share of the calls in",
  bulkhead = "too many calls are under way",
  timeout = "the call took longer than allowed",
  deadline = "there was no answer by the call's deadline",
}

function Refusal:__tostring()
  local text = ("%s/%s: %s"):format(self.policy, self.key, TEXTS[self.kind] or self.kind)
  if self.timeout_ms then text = ("%s (%.0f ms)"):format(text, self.timeout_ms) end
  if self.status then text = ("%s (status %d)"):format(text, self.status) end
  if self.retry_after_ms then
    text = ("%s; ask again in %.0f ms"):format(text, self.retry_after_ms)
  end
  return text
end

local refusal = {}

--- `fields` becomes the error.
---@param fields table
---@return neap.Refusal
function refusal.new(fields)
  setmetatable(fields, Refusal) -- LuaJIT cannot compile it as a tail call
  return fields
end

--- Is it an error of a guard's?
---@param value any
---@return boolean
function refusal.is(value)
  return getmetatable(value) == Refusal
end

return refusal
