--- A call as a Lua program makes it: by guard:call, with a function that does what the script says.

local unpack = table.unpack or _G.unpack

local program = {}

local COUNTED = { "success", "slow_success", "failure", "slow_failure", "timeout", "neutral",
  "probes" }

--- All that was counted so far, of all keys.
local function totals_of(of_guard)
  local sums = {}
  for _, name in ipairs(COUNTED) do sums[name] = 0 end
  for key in pairs(of_guard.lines) do
    local totals = of_guard:snapshot(key).totals
    for _, name in ipairs(COUNTED) do sums[name] = sums[name] + totals[name] end
  end
  return sums
end

--- What the last attempt counted as, seen from outside: only it can have been a success.
local function outcome_since(before, after, was_late)
  local function more(name) return after[name] - before[name] end
  if more "success" + more "slow_success" > 0 then return "success" end
  if more "neutral" > 0 then return "neutral" end
  local failures = more "failure" + more "slow_failure"
  if failures == 0 then return nil end
  if more "timeout" == failures then return "timeout" end
  return was_late and more "timeout" > 0 and "timeout" or "failure"
end

--- The dependency as a Lua function, which notes how often it was called, and when.
local function scripted(world, call, script, options, seen)
  return function(...)
    local outcome = script.next()
    call.attempts = call.attempts + 1
    call.texts[call.attempts] = outcome.text
    if seen.ended_ms then
      call.waits_ms[#call.waits_ms + 1] = world:elapsed() - seen.ended_ms
    end
    seen.was_late = true
    local ok, a, b = world:run(function(...)
      world:wait(options.takes_ms or 0)
      return outcome.f(...)
    end, ...)
    seen.ended_ms = world:elapsed()
    if not ok then
      seen.raised = a
      error(a, 0)
    end
    seen.was_late = false
    return a, b
  end
end

--- Makes a call.
---@param self neap.testing.Bench
---@param call neap.testing.Call is completed
---@param script neap.testing.Script of functions
---@param options neap.testing.CallOptions
function program.call(self, call, script, options)
  local seen = {}
  local target = self.key and self.guard:at(self.key) or self.guard
  local args = options.args or { n = 0 }
  call.key = self.key or self.guard:key { args = args }
  local before = totals_of(self.guard)
  local f = scripted(self.world, call, script, options, seen)
  local function made()
    local n = args.n or #args
    if not options.deadline_ms then return target:call(f, unpack(args, 1, n)) end
    return target:call_by(self.clock:now() + options.deadline_ms, f, unpack(args, 1, n))
  end
  local ok, value, err, info = pcall(made)
  self.world:check()
  if not ok and not rawequal(value, seen.raised) then error(value, 0) end
  if not ok then value, err = nil, value end
  local after = totals_of(self.guard)
  call.value, call.error, call.is_over = value, err, true
  call.took_ms = self.world:elapsed() - call.at_ms
  call.outcome = outcome_since(before, after, seen.was_late)
  call.is_probe = after.probes > before.probes
  call.source = info and info.source or call.attempts > 0 and "primary" or "nobody"
  call.age_ms = info and info.age_ms
  call.reason = info and info.reason
  local why = info and info.error or err
  if call.attempts == 0 and not (info and info.cause == "revalidate") then
    call.refused = why.kind
  end
end

return program
