--- A flag provider goes down and comes back. The clock is moved by hand, so nothing here waits.
local neap = require "neap"
local clock = require("neap.clock").manual()
local flags = neap.guard("policies/flag_provider.lua", { clock = clock })

local provider_is_up = true
local function fetch_flag() -- any function: a value, or nil and an error
  if provider_is_up then return "on" end
  return nil, "connection refused"
end

local function ask(flag)
  local value, _, info = flags:call(fetch_flag, flag)
  print(value, info and info.source or "primary", flags:snapshot().state)
end

ask "new-checkout"
provider_is_up = false
for _ = 1, 6 do ask "new-checkout" end
provider_is_up = true
clock:advance(6000) -- the cooldown is 5 s, and up to a fifth more
for _ = 1, 2 do ask "new-checkout" end

--[[ prints
on	primary	closed
on	last_good	closed
on	last_good	closed
on	last_good	closed
on	last_good	closed
on	last_good	open
on	last_good	open
on	primary	half_open
on	primary	closed
]]
