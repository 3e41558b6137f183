--- What a guard says in the log: faults of the policy's functions, warnings, and never one sort of
--- thing over and over.

local core = require "neap.core"

local LOG_EVERY_MS = 60000

---@class neap.Guard
local Guard = {}

local guard_log = { methods = Guard }

--- Where a guard logs to that is not told: warnings and errors only.
function guard_log.to_stderr(level, text)
  if level ~= "info" then io.stderr:write("neap: ", level, ": ", text, "\n") end
end

--- The same sort of thing is logged once a minute.
local function seldom(self, sort, level, text)
  local now_ms = self.line and self.line.native:now() or 0
  local last_ms = self.logged[sort]
  if last_ms and now_ms >= last_ms and now_ms - last_ms < LOG_EVERY_MS then return end
  self.logged[sort] = now_ms
  core.protect(self.log, level, text)
end
guard_log.seldom = seldom

--- An error as a line of the log has it.
local function said(value)
  local kind = type(value)
  if kind == "string" then return #value > 400 and value:sub(1, 400) .. "…" or value end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  return "an error that is a " .. kind
end
guard_log.said = said

--- What a handler of events has raised goes to the log.
---@return fun(err: any)
function guard_log.of_handlers(self)
  return function(err)
    seldom(self, "event", "error", self.name .. ": event handler: " .. said(err))
  end
end

--- A function of the policy's did what it should not; the call goes on without it.
---@param where string
---@param what any
function Guard:fault(where, what)
  self.policy_errors = self.policy_errors + 1
  seldom(self, where, "error", ("%s: %s: %s"):format(self.name, where, said(what)))
end

--- Something is not wrong but hardly as it was meant.
---@param sort string the same sort is logged once a minute
---@param text string
function Guard:warn(sort, text)
  seldom(self, sort, "warning", self.name .. ": " .. text)
end

--- The policy's functions have called warn(): their texts go to the log, now that none of them
--- runs, each once a minute.
---@param policy neap.Policy the generation
function Guard:warned(policy)
  local warned, now_ms = policy.warned, self.line.native:now()
  for i = #warned, 1, -1 do
    local text = warned[i]
    warned[i] = nil
    local last_ms = warned.at_ms[text]
    if not last_ms or now_ms < last_ms or now_ms - last_ms >= LOG_EVERY_MS then
      warned.at_ms[text] = now_ms
      core.protect(self.log, "warning", self.name .. ": " .. text)
    end
  end
end

--- A function raised that, and the caller got a fallback's answer in its place.
---@param err any
function Guard:hid(err)
  self:warn("raised", "the function raised an error, a fallback answered: " .. said(err))
end

return guard_log
