--- The two-step form, for hosts that ask in one place and learn the outcome in another: acquire
--- before the request is sent, report when its answer (or its error) is there.
local neap = require "neap"
local clock = require("neap.clock").manual()
local upstream = neap.guard("policies/http_upstream.lua", { clock = clock })

local function request(status)
  local permit, refusal = upstream:acquire()
  if not permit then
    print("refused: " .. refusal.kind, refusal.retry_after_ms > 0)
    return
  end
  local outcome = upstream:report(permit, { status = status, duration_ms = 12 })
  print(status, outcome, upstream:snapshot().state)
end

request(200)
request(404) -- the caller's mistake: says nothing about the upstream
for _ = 1, 20 do request(503) end

--[[ prints
]]
