--- What a policy's functions are lent, they can't change for whoever sees it next: another call, a
--- stage, another guard's function, the program itself.
local clock = require "neap.clock"
local fixture = require "tests.lua.fixture"
local neap = require "neap"

local unpack = table.unpack or _G.unpack

local MOVES = {
  "call.args.mine = 'x'", "call.args.n = 7", "call.args[1] = 'x'", "call.args[3] = 'x'",
  "call.args[2] = nil", "setmetatable(call.args, { __index = function() return 'x' end })",
  "rawset(call.args, 'mine', 'x')", "rawset(call.args, 'n', 7)", "rawset(call.args, 3, 'x')",
  "table.insert(call.args, 'x')", "table.insert(call.args, 1, 'x')", "table.remove(call.args)",
  "table.remove(call.args, 1)", "table.sort(call.args, function() return true end)",
  "call.status = 'x'", "rawset(call, 'status', 'x')", "table.insert(call, 'x')",
  "setmetatable(call, nil)", "call.args = { 'x' }",
}

--- Notes in the first argument, a table of the test's, what there is to see.
local LOOK = [[
  local look = function(call)
    local args = call.args
    if args.n == 0 then return end -- a trial, before it serves
    args[1].seen = { args.n, args[2], args[3], args.mine, #args, call[1], call.status }
  end
]]
local SEEN = { 2, "b", nil, nil, 2, nil, nil }

local function guard_of(text, options)
  local budget = { budget = { ms = 600000 } } -- no matter how slow the machine is
  local policy = assert(neap.policy.parse(LOOK .. "return { name = 'lent', trip = "
    .. "{ consecutive_failures = 100 }, " .. text .. " }", "lent.lua", budget))
  local all = { clock = clock.manual(10000), log = function() end }
  for name, value in pairs(options or {}) do all[name] = value end
  return neap.guard(policy, all)
end

for _, move in ipairs(MOVES) do
  describe("a policy that tries " .. move, function()
    local try = ("pcall(function() %s end)"):format(move)

    it("does not change the next call", function()
      local g = guard_of(([[classify = function(call)
        if call.args[1] == "first" then %s else look(call) end
        return "success" end]]):format(try))
      local first, next_one = { "first", "a", "c" }, {}
      for n = 1, 3 do
        assert.equal("ok", g:call(fixture.ok, unpack(first, 1, n)))
        assert.equal("ok", g:call(fixture.ok, next_one, "b"))
        assert.same(SEEN, next_one.seen)
      end
      assert.equal(0, g:stats().policy_errors)
    end)

    it("does not change what its stages see, nor the next guard's function", function()
      local given
      local served = neap.guard(fixture.policy { name = "served" }, {
        clock = clock.manual(10000), serve = function(...)
          given = { n = select("#", ...), ... }
          return "served"
        end,
      })
      local g = guard_of(([[
        classify = function(call) %s return "failure" end,
        fallback = {
          function(call) %s end, function(call) look(call) end, fallback.guard("served") }
        ]]):format(try, try), { guards = { served = served } })
      local mine = {}
      assert.equal("served", (g:call(fixture.bad, mine, "b")))
      assert.same(SEEN, mine.seen)
      assert.same({ 2, mine, "b" }, { given.n, given[1], given[2] })
    end)

    it("does not change what the program reported", function()
      local g = guard_of(([[
        classify = function(call) look(call) %s return "failure" end,
        fallback = { function(call) %s end, function(call) look(call) return "answered" end }
        ]]):format(try, try))
      local mine = {}
      local call = { result = 1, args = { mine, "b", n = 2 } }
      g:report(g:acquire(), call)
      assert.same(SEEN, mine.seen)
      assert.same({ result = 1, args = { mine, "b", n = 2 } }, call)
      mine.seen = nil
      assert.equal("answered", (g:fallback("failure", call)))
      assert.same(SEEN, mine.seen)
      assert.same({ result = 1, args = { mine, "b", n = 2 } }, call)
    end)
  end)
end
