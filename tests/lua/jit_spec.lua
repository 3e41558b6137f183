--- Under LuaJIT what neap is made of stays compiled, but for the policies' own functions, which are
--- never.
local version = require "tests.lua.version"

if not version.is_jit then
  it("only LuaJIT has a compiler", function() assert.is_nil(rawget(_G, "jit")) end)
  return
end

local jit, util = require "jit", require "jit.util"
local core = require "neap.core"
local neap = require "neap"

describe("LuaJIT", function()
  it("gives up no function of neap's in the documented usage, as its trace log shows", function()
    if not jit.status() then return end -- its compiler is off: it gives up nothing
    -- When it tries again is drawn at random, and with the worst of luck (1 run in 200) it gives up
    -- what it compiles in all others.  What cannot be compiled is given up in each.
    local said
    for _ = 1, 3 do
      local pipe = assert(io.popen(version.command .. " tests/lua/jit_usage.lua 2>&1"))
      said = pipe:read "*a"
      pipe:close()
      if said == "ok\n" then break end
      assert.matches("is not compiled", said)
    end
    assert.equal("ok\n", said)
  end)

  it("never compiles a policy's functions: their steps are counted", function()
    local traced = false
    local function watch(what, _, f)
      if what ~= "start" then return end
      local source = util.funcinfo(f).source or ""
      if source:find("endless.lua", 1, true) then traced = true end
    end
    jit.attach(watch, "trace")
    local p = assert(neap.policy.parse([[return {
      name = "endless", trip = { failures = 5 },
      classify = function(call)
        local n = 0
        for i = 1, call.rounds or 0 do n = n + i % 7 end
        return n >= 0 and "success" or "failure"
      end,
    }]], "endless.lua"))
    for _ = 1, 300 do assert.equal("success", (p.classify { rounds = 1000 })) end
    local _, _, _, fault = p.classify { rounds = 1e9 }
    jit.attach(watch)
    assert.matches("took more than its 100000 steps", fault)
    assert.is_false(traced)
  end)

  it("compiles none either where the program has taken its own scripts' jit away", function()
    local loaded = package.loaded["neap.chunk"]
    rawset(_G, "jit", nil)
    package.loaded["neap.chunk"] = nil
    local made = require("neap.chunk").compile("for i = 1, 1e9 do local n = i % 7 end", "@x", {})
    rawset(_G, "jit", jit)
    package.loaded["neap.chunk"] = loaded
    local _, _, kind = core.run(core.box(10000, 1000000, 60000), made)
    assert.equal("steps", kind)
  end)
end)
