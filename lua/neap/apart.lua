--- A call that no caller waits for: behind its breaker like any other, and judged like any other,
--- but with no fallback.  A queue makes its calls again like that, and an answer is refreshed.

local apart = {}

local unpack = table.unpack or _G.unpack

--- Runs f within the policy's timeout where the host can end it: ended_by, ok, a, b.
local function run(host, timeout_ms, f, args)
  local n = args.n or #args
  if not host.run or timeout_ms == 0 then return "answer", pcall(f, unpack(args, 1, n)) end
  local ok, in_time, a, b = pcall(host.run, timeout_ms, f, unpack(args, 1, n))
  if not ok then return "answer", false, in_time end
  if not in_time then return "timeout" end
  return "answer", true, a, b
end

local function described(ended_by, ok, a, b, args)
  local call = { ended_by = ended_by, args = args }
  if ended_by == "timeout" then return call end
  if not ok then
    call.raised, call.error = true, a
  else
    call.result = a
    if not a then call.error = b end
  end
  return call
end

--- Makes one attempt.
---@param line table of the guard
---@param f function
---@param args table .n how many
---@return neap.Outcome|"refused" outcome
---@return any value what f returned first; of a refusal, the refusal
---@return string|nil reason the policy's
function apart.attempt(line, f, args)
  local guard = line.guard
  local permit, refused = guard:acquire(line.key)
  if not permit then return "refused", refused end
  local ended_by, ok, a, b = run(guard.host, guard.policy.timeout_ms or 0, f, args)
  local call = described(ended_by, ok, a, b, args)
  local outcome, _, reason = guard:report(permit, call)
  return outcome, a, reason or (not a and b ~= nil and tostring(b)) or nil
end

--- Runs f beside the caller, if the host can; else right now.
---@param host neap.Host
---@param f function
function apart.spawn(host, f)
  if host.spawn then host.spawn(f) else f() end
end

return apart
