local clock = require "neap.clock"
local version = require "tests.lua.version"

describe("a manual clock", function()
  it("stands still until it is moved, both ways", function()
    local now = clock.manual(100)
    assert.equal(100, now:now())
    assert.equal(150, now:advance(50))
    assert.equal(140, now:advance(-10))
    assert.equal(7, now:set(7))
    assert.equal(7, now:now())
    assert.equal(0, clock.manual():now())
  end)

  for _, wrong in ipairs { -1, 0 / 0, math.huge, "5", {} } do
    it(("can't be set to %s"):format(type(wrong) == "table" and "a table" or tostring(wrong)),
      function()
      local now = clock.manual(100)
      assert.error_matches(function() now:set(wrong) end, "now must be milliseconds, 0 or more")
      assert.equal(100, now:now())
    end)
  end
end)

describe("the system's clocks", function()
  it("tell whole milliseconds that never go back", function()
    for _, read in ipairs { clock.coarse, clock.precise } do
      local last = read()
      assert.equal(version.integer, version.kind_of(last))
      for _ = 1, 1000 do
        local now = read()
        assert(now >= last)
        last = now
      end
    end
  end)
end)

describe("what can be a clock", function()
  it("is a name, a function or an object", function()
    assert.is_nil(clock.resolve(nil))
    assert.is_nil(clock.resolve("coarse"))
    assert.equal("precise", clock.resolve("precise"))
    local function now() return 5 end
    assert.equal(now, clock.resolve(now))
    assert.equal(9, clock.resolve(clock.manual(9))())
  end)

  for _, wrong in ipairs { "fast", 5, {}, { now = 5 }, true } do
    it(("is not a %s like %s"):format(type(wrong),
      type(wrong) == "table" and "that" or tostring(wrong)), function()
      assert.error_matches(function() clock.resolve(wrong) end, "clock must be")
    end)
  end
end)
