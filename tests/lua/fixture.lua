--- Policies made by hand, and guards on a clock that stands still.
local clock = require "neap.clock"
local core = require "neap.core"
local guard = require "neap.guard"

local version = require "tests.lua.version"

local fixture = {}

--- Three failures in a row open it for a second; one good probe closes it.
fixture.numbers = {
  consecutive_failures = 3, cooldown_ms = 1000, jitter = 0, probes = 1, successes = 1,
    lease_ms = 500,
}

--- Rules with some numbers changed.
function fixture.rules(changed)
  local numbers = {}
  for k, v in pairs(fixture.numbers) do numbers[k] = v end
  for k, v in pairs(changed or {}) do numbers[k] = v end
  return assert(core.rules(numbers))
end

--- A generation, as neap.policy makes them.  `fields` go over what is here.
function fixture.policy(fields)
  local policy = {
    name = "p", hash = "h1", stages = {}, warnings = {}, warned = {},
    mode = "auto",
    fallback_on = { refused = true, timeout = true, failure = true },
  }
  for k, v in pairs(fields or {}) do policy[k] = v end
  policy.rules = policy.rules or fixture.rules(policy.numbers)
  policy.timeout_ms = policy.rules:numbers().timeout_ms
  policy.has_classify = policy.classify ~= nil
  return policy
end

--- A guard on a manual clock that begins at 10,000; what it logs is in .lines.
---@return table guard, table clock, string[] lines
function fixture.guard(fields, options)
  local lines = {}
  local now = clock.manual(10000)
  local all = { clock = now, log = function(level, text)
    lines[#lines + 1] = level .. " " .. text end }
  for k, v in pairs(options or {}) do all[k] = v end
  return guard.new(fixture.policy(fields), all), now, lines
end

local pause = collectgarbage("setpause", 200)
collectgarbage("setpause", pause)

--- How often something is done: less often where the collector is in a hurry, and all takes longer.
function fixture.rounds(n)
  return pause < 100 and math.max(10, math.floor(n / 100)) or n
end

function fixture.ok() return "ok" end

function fixture.bad() return nil, "down" end

--- Opens the breaker the usual way: three failures.
function fixture.open(of_guard)
  for _ = 1, 3 do of_guard:call(fixture.bad) end
  assert(of_guard:snapshot().state == "open")
end

--- A stage that answers what `answer` returns.
function fixture.stage(answer, fields)
  local stage = { kind = "function", run = answer }
  for k, v in pairs(fields or {}) do stage[k] = v end
  return stage
end

--- The bytes that n rounds of f leave behind, if nothing is collected.
function fixture.allocated(n, f)
  collectgarbage()
  collectgarbage("stop")
  local function rounds(most)
    for _ = 1, most do f() end
  end
  rounds(version.rounds_to_settle) -- Lua's stack is as large as it gets
  local least = math.huge
  for _ = 1, version.is_jit and 5 or 1 do -- a trace may be recorded at any time
    local before = collectgarbage("count")
    rounds(n)
    least = math.min(least, collectgarbage("count") - before)
  end
  collectgarbage("restart")
  return least * 1024
end

return fixture
