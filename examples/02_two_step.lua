--- The two-step form, for hosts that ask in one place and learn the outcome in another: acquire
--- before the request is sent, report when its answer, or its error, is there.
local neap = require "neap"
local clock = require("neap.clock").manual()
local export = neap.guard("policies/low_traffic.lua", {
  clock = clock,
  on_event = function(e) print(("  %s -> %s by %s"):format(e.from, e.to, e.cause)) end,
})

local function request(status)
  local permit, refusal = export:acquire()
  if not permit then
    print("not sent: " .. refusal.kind)
    return
  end
  local outcome = export:report(permit, { status = status, duration_ms = 12 })
  print(status, outcome)
end

request(200)
request(404) -- the caller's mistake: it says nothing about the dependency
for _ = 1, 4 do request(503) end
clock:advance(90000)
request(200)

--[[ prints
200	success
404	neutral
503	failure
503	failure
  closed -> open by consecutive_failures
503	failure
not sent: open
  open -> half_open by cooldown
  half_open -> closed by probes
200	success
]]
