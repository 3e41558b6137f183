--- Replicas that opened together must not come back together: the jitter is each process's own.
local neap = require "neap"
local clock = require "neap.clock"
local version = require "tests.lua.version"

local cooldown_text = [[
  local clock = require("neap.clock").manual()
  local guard = require("neap").guard("policies/flag_provider.lua", { clock = clock })
  guard:trip()
  print(guard:snapshot().retry_after_ms)
]]

local function in_another_process()
  local pipe = assert(io.popen(("%s -e '%s'"):format(version.command, cooldown_text)))
  local ms = pipe:read("*n")
  pipe:close()
  return ms
end

describe("the jitter of a cooldown", function()
  it("differs between processes", function()
    local seen, different = {}, 0
    for _ = 1, 5 do
      local ms = in_another_process()
      assert.is_true(ms >= 5000 and ms <= 6000, tostring(ms))
      if not seen[ms] then different = different + 1 end
      seen[ms] = true
    end
    assert.is_true(different > 1, "five processes, one cooldown")
  end)

  it("is the same for a policy loaded again", function()
    local function cooldown()
      local guard = neap.guard("policies/flag_provider.lua", { clock = clock.manual() })
      guard:trip()
      return guard:snapshot().retry_after_ms
    end
    assert.equal(cooldown(), cooldown())
  end)
end)
