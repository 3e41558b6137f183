--- neap: may I make this call?
--
--   local neap = require "neap"
--   local flags = neap.guard "policies/flag_provider.lua"
--   local value, err, info = flags:call(fetch_flag, "new-checkout")

local core = require "neap.core"

return {
  version = core.version,
  guard = require("neap.guard").new,
  policy = require "neap.policy",
  clock = require "neap.clock",
  panel = core.panel,
  panel_shared = core.panel_shared,
}
