local fixture = require "tests.lua.fixture"
local store = require "neap.store"

describe("a store of answers", function()
  it("keeps one value per key, the newest, with its age", function()
    local s = store.new(10, 10000)
    s:put("a", 1, 100)
    s:put("a", 2, 200)
    assert.same({ 2, 50 }, { s:get("a", 250, 1000) })
    assert.same({ nil, nil }, { s:get("b", 250, 1000) })
    assert.equal(1, s.count)
  end)

  it("makes a value fresh again, if it is the one that is meant", function()
    local told = 0
    local s = store.new(2, 10000)
    s:on_put(function() told = told + 1 end)
    s:put("a", "old", 100)
    s:put("b", 1, 150)
    assert.is_false(s:renew("a", 200, function(value) return value ~= "old" end))
    assert.is_false(s:renew("c", 200, function() error "nobody is there to be asked" end))
    assert.equal(2, told)
    assert.is_true(s:renew("a", 200, function(value) return value == "old" end))
    assert.equal(3, told)
    s:put("c", 1, 210) -- b has been unused for longest now
    assert.same({ "old", 50 }, { s:get("a", 250, 1000) })
    assert.is_false(s:has "b")
  end)

  it("takes nil and false for what they are", function()
    local s = store.new(10, 10000)
    s:put("f", false, 0)
    assert.same({ false, 0 }, { s:get("f", 0, 1000) })
  end)

  it("drops what is too old when it is asked for", function()
    local s = store.new(10, 10000)
    s:put("a", 1, 0)
    assert.equal(1000, select(2, s:get("a", 1000, 1000)))
    assert.is_nil(select(2, s:get("a", 1001, 1000)))
    assert.same({ 0, 0 }, { s.count, s.bytes })
  end)

  it("takes a clock that goes back for no time", function()
    local s = store.new(10, 10000)
    s:put("a", 1, 500)
    assert.equal(0, select(2, s:get("a", 100, 1000)))
  end)

  it("puts the least recently used out first, by entries", function()
    local s = store.new(3, 100000)
    for _, key in ipairs { "a", "b", "c" } do s:put(key, key, 0) end
    s:get("a", 0, 1)
    s:put("d", "d", 0)
    assert.is_nil((s:get("b", 0, 1)))
    assert.same({ "a", "c", "d" }, { (s:get("a", 0, 1)), (s:get("c", 0, 1)), (s:get("d", 0, 1)) })
  end)

  it("and by bytes", function()
    local s = store.new(1000, 1000)
    for i = 1, 100 do
      s:put(i, ("x"):rep(100), 0)
      assert.is_true(s.bytes <= 1000)
    end
    assert.is_truthy((s:get(100, 0, 1)))
    assert.is_nil((s:get(1, 0, 1)))
    assert.is_true(s.count >= 5)
  end)

  it("does not take what is larger than itself, and keeps the older answer", function()
    local s = store.new(10, 1000)
    assert.is_true(s:put("a", "small", 0))
    assert.is_false(s:put("a", ("x"):rep(2000), 0))
    assert.equal("small", (s:get("a", 0, 1)))
  end)

  it("can be given other bounds", function()
    local s = store.new(10, 10000)
    for i = 1, 10 do s:put(i, i, 0) end
    s:limit(2, 10000)
    assert.same({ 2, 9, 10 }, { s.count, (s:get(9, 0, 1)), (s:get(10, 0, 1)) })
  end)

  it("counts a table with everything in it, once, also in circles, and asks no metamethod (B172)",
    function()
    local function raises() error("asked") end
    local part = { ("x"):rep(1000) }
    local value = setmetatable({ part, part, [part] = 1 }, { __index = raises, __len = raises,
      __pairs = raises })
    value[4] = value
    local size = store.size(value)
    assert.is_true(size > 1000 and size < 2000)
    local s = store.new(10, 500)
    assert.is_false(s:put("a", value, 0))
  end)

  it("is right after any sequence of uses", function()
    local seed = os.time()
    math.randomseed(seed)
    local s, model = store.new(20, 2000), {}
    for step = 1, fixture.rounds(20000) do
      local key, what = math.random(40), math.random(4)
      if what < 4 then
        local value = ("v"):rep(math.random(0, 200))
        if s:put(key, value, step) then model[key] = { value, step } end
      else
        local value, age = s:get(key, step, 500)
        if age then assert.same({ model[key][1], step - model[key][2] }, { value, age },
          "seed " .. seed) end
      end
      local count, bytes, entry = 0, 0, s.head.older
      while entry ~= s.head do
        assert(entry.newer.older == entry and s.entries[entry.key] == entry)
        count, bytes, entry = count + 1, bytes + entry.bytes, entry.older
      end
      assert(count == s.count and bytes == s.bytes and count <= 20 and bytes <= 2000,
        "seed " .. seed)
    end
  end)
end)
