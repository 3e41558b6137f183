--- Hostile policies: whatever they do, the host survives, the call gets the shipped verdict in
--- time, and the next call is as good as any (B175 to B182, B193, B199).

local core = require "neap.core"
local fixture = require "tests.lua.policy_fixture"
local hostile = require "tests.lua.hostile_policies"
local policy = require "neap.policy"
local version = require "tests.lua.version"
local unpack = version.unpack

-- Seconds of processor time.  A decision takes a few milliseconds; the rest is for loaded machines,
-- and for sanitizers and an aggressive collector, which make each step many times as slow.
local BOUND = fixture.is_slow() and 5 or 0.5
local BUDGET = fixture.is_slow() and { ms = 5000 } or nil

local function call() return { now = true, status = 503, ended_by = "answer", headers = {} } end

describe("a hostile classify", function()
  for _, case in ipairs(hostile) do
    local title, body, fault_text, outcome_expected = unpack(case, 1, 4)
    it(("%s: the host answers in time"):format(title), function()
      local p = fixture.classifier(body, { budget = BUDGET })
      for _ = 1, 2 do
        local before = os.clock()
        local outcome, _, _, fault = p.classify(call())
        local took = os.clock() - before
        assert.is_true(took < BOUND, ("took %g s"):format(took))
        if fault_text then
          assert.equal("failure", outcome)
          assert.matches(fault_text, fault)
        else
          assert.is_nil(fault)
          assert.equal(outcome_expected or "success", outcome)
        end
        assert.same({ "success" }, { p.classify { status = 503 } })
      end
    end)
  end

  it("in words that this Lua does not know is refused", function()
    for _, case in ipairs(hostile.unknown) do
      local p, err = fixture.parse("classify = function(call) " .. case[2] .. " end")
      assert.is_nil(p)
      assert.matches("policies/x.lua:%d+: .*near", tostring(err))
    end
  end)

  it("at load does no harm either", function()
    for _, text in ipairs {
      "while true do end", "local s = 'x' while true do s = s .. s end",
        "local function f() return 1 + f() end f()",
      "return setmetatable({}, { __index = function() while true do end end })",
      "return { name = 'x', trip = { failures = 5 }, classify = setmetatable({}, { __call = 5 }) }",
      [[return { name = 'x', trip = { failures = 5 },
        fallback = setmetatable({}, { __len = function() return 1e9 end }) }]],
      "error(setmetatable({}, { __tostring = function() while true do end end }))",
      [[return { name = 'x',
        trip = setmetatable({ failures = 5 }, { __pairs = error, __index = error }) }]],
      ("("):rep(10000), ("{"):rep(10000), "return " .. ("-"):rep(250000),
        "return " .. ("a."):rep(100000) .. "b",
      "return '" .. ("\\z\n"):rep(50000), "local " .. ("a,"):rep(300) .. "a", "goto x",
    } do
      local before = os.clock()
      local p, err = policy.parse(text, "x.lua")
      assert.is_true(os.clock() - before < 4 * BOUND)
      assert.is_true(p ~= nil or #tostring(err) < 1000)
    end
  end)

  describe("returned table", function()
    -- What is looked at when the file has run is outside of the box: it must be read raw.
    local before = [[
      local function loop() while true do end end
      local mt = { __index = loop, __newindex = loop, __len = loop, __pairs = loop, __eq = loop,
        __lt = loop, __le = loop, __concat = loop, __call = loop, __tostring = loop }
      local function evil(t) return setmetatable(t, mt) end
    ]]
    for _, case in ipairs {
      { "evil { @ }", true },
      { "evil {}", false },
      { "{ name = 'x', trip = evil { failures = 5 } }", true },
      { "{ name = 'x', trip = evil {} }", false },
      { "{ name = 'x', trip = { failures = evil {} } }", false },
      { "{ name = evil {}, trip = { failures = 5 } }", false },
      { "{ @, [evil {}] = 1, [evil {}] = 2 }", false },
      { "{ name = 'x', trip = { failures = 5, [evil {}] = 1, [evil {}] = 2 } }", false },
      { "{ @, window = evil {}, open = evil {} }", true },
      { "{ @, mode = evil {} }", false },
      { "{ @, timeout_ms = evil {} }", false },
      { "{ @, classify = evil {} }", false },
      { "{ @, fallback_on = evil { 'refused' }, fallback = evil {} }", true },
      { "{ @, fallback_on = { evil {} } }", false },
      { "{ @, fallback_on = evil { 'refused', nil, 'timeout' }, fallback = {} }", false },
      { "{ @, fallback = evil { [3] = type } }", false },
      { "{ @, fallback = { evil {} } }", false },
      { "{ @, fallback = { fallback.last_good(evil {}) } }", true },
      { "{ @, fallback = { fallback.fail(evil { [evil {}] = 1 }) } }", false },
      { "{ @, fallback = { fallback.default(evil {}) } }", false },
      { "{ @, fallback = { fallback.default { a = evil {} } } }", false },
      { "{ @, fallback = { fallback.default { [evil {}] = 1 } } }", false },
      { "(function() setmetatable(classify, mt) end)()", false },
      { "(function() classify.http = nil return { @ } end)()", true },
      { "(function() local c = classify.default classify.http = nil "
        .. "return { @, classify = c } end)()", true },
      { "(function() classify.http = evil {} "
        .. "return { @, classify = classify.default } end)()", true },
      { "(function() classify.http.status = evil {} classify.grpc.code = evil {} "
        .. "return { @, classify = classify.http } end)()", true },
      { "(function() local c = classify.errors {} c.record = evil {} "
        .. "return { @, classify = c } end)()", true },
      { "(function() params.params = params params[1] = evil {} "
        .. "return { @ } end)()", true },
      { "(function() setmetatable(fallback, nil) end)()", false },
      { "(function() local t = {} for i = 1, 100000 do t[i] = i end return t end)()", false },
      { "(function() local t = {} for i = 1, 50000 do t['k' .. i] = i end return t end)()", false },
      { "(function() local t = {} for i = 1, 100000 do t[i] = type end "
        .. "return { @, fallback = t } end)()", false },
    } do
      it("is read raw: " .. case[1]:sub(1, 90), function()
        local clock = os.clock()
        local text = before .. "return " .. case[1]:gsub("@", "name = 'x', trip = { failures = 5 }")
        local p, err = policy.parse(text, "x.lua", { params = { a = 1 }, budget = BUDGET })
        assert.is_true(os.clock() - clock < 2 * BOUND)
        assert.equal(case[2], p ~= nil, tostring(err))
        if p then
          -- What is shown of it is data.
          local function walk(value)
            if type(value) ~= "table" then return end
            assert.is_nil(getmetatable(value))
            for key, part in next, value do walk(key) walk(part) end
          end
          walk(p.config)
          walk(p.params)
        else
          assert.is_true(#err.all <= 200)
          assert.is_true(#tostring(err) < 20000)
        end
      end)
    end
  end)

  it("that is nested too deeply does not call the host's message handler", function()
    local called = false
    assert.is_true(xpcall(function()
      assert.is_nil((policy.parse(("("):rep(10000), "x.lua")))
    end, function() called = true end))
    assert.is_false(called)
  end)

  it("in trip, half_open and fallback does no harm either", function()
    local p = fixture.load([[
      trip = { decide = function() while true do pcall(error) end end },
      half_open = { decide = function() local s = "x" while true do s = s .. s end end },
      fallback = { function() return string.find(string.rep("a", 10000), ".-.-.-.-b$") end },
    ]], { budget = BUDGET })
    local before = os.clock()
    assert.same({ false, "took more than its 100000 steps" }, { p.trip {} })
    assert.same({ nil, "asked for more than its 1048576 bytes of memory" }, { p.decide {} })
    assert.same({ nil, "took more than its 100000 steps" }, { p.stages[1].run {} })
    assert.is_true(os.clock() - before < 3 * BOUND)
  end)

  it("runs a thousand times without the host growing", function()
    local p = fixture.classifier "local s = 'x' while true do s = s .. s end"
    local used
    for i = 1, 1000 do
      p.classify(call())
      if i == 500 then
        collectgarbage()
        collectgarbage()
        used = collectgarbage("count")
      end
    end
    collectgarbage()
    collectgarbage()
    assert.is_true(collectgarbage("count") - used < 50)
  end)
end)

describe("what the host has", function()
  local LIBRARIES = { "string", "table", "math", "io", "os", "debug", "package", "coroutine",
    "utf8" }

  local function everything()
    local all = {}
    for _, name in ipairs(LIBRARIES) do
      for key, value in pairs(_G[name] or {}) do all[name .. "." .. tostring(key)] = value end
    end
    for key, value in pairs(_G) do all[tostring(key)] = value end
    all.index, all.meta = getmetatable("").__index, getmetatable("")
    return all
  end

  it("is as it was after a hostile policy (B175)", function()
    local before = everything()
    for _, case in ipairs(hostile) do fixture.classifier(case[2]).classify(call()) end
    local after = everything()
    for key, value in pairs(before) do assert.equal(value, after[key], key) end
    for key in pairs(after) do assert.is_not_nil(before[key], key) end
  end)

  it("is not within a policy's reach (B176)", function()
    local forbidden = {}
    for _, name in ipairs { "io", "os", "debug", "package", "coroutine" } do
      forbidden[_G[name]] = name
      for key, value in pairs(_G[name]) do
        if type(value) == "function" or type(value) == "table" then forbidden[value] = name .. "."
          .. key end
      end
    end
    for _, name in ipairs { "load", "loadfile", "dofile", "collectgarbage", "require", "print",
      "setmetatable",
      "getmetatable", "rawset", "xpcall", "_G" } do
      forbidden[_G[name]] = name
    end
    for _, name in ipairs { "string", "table", "math" } do forbidden[_G[name]] = name end
    forbidden[string.dump], forbidden[string.rep], forbidden[string.find] = "dump", "rep", "find"
    forbidden[getmetatable("")] = "the metatable of strings"
    forbidden[core], forbidden[policy] = "neap.core", "neap.policy"
    local reached
    local p = fixture.load([[
      classify = function(call)
        if call.walk then call.walk(_G, call) end
        return "success"
      end,
    ]])
    local function walk(root, of_call)
      local seen = { [walk] = true, [of_call] = true }
      local function visit(value, path)
        if type(value) ~= "table" and type(value) ~= "function" and type(value) ~= "userdata"
          or seen[value] then
          return
        end
        seen[value] = true
        if forbidden[value] then reached = path .. " is " .. forbidden[value] end
        if type(value) ~= "table" then return end
        for key, part in next, value do
          visit(key, path .. " key")
          visit(part, path .. "." .. tostring(key))
        end
      end
      visit(root, "_G")
      of_call.walked = 0
      for _ in pairs(seen) do of_call.walked = of_call.walked + 1 end
    end
    local given = { walk = walk }
    local _, _, _, fault = p.classify(given)
    assert.is_nil(fault)
    assert.is_nil(reached)
    assert.is_true(given.walked > 60)
  end)

  it("is not shared between policies: what one sets, no other sees (B175)", function()
    local first = fixture.classifier [[
      string.secret, math.secret, table.secret, classify.secret, classify.http.status[418] = 1, 2,
        3, 4, "failure"
      string.find = function() return "replaced" end
      return "success"
    ]]
    first.classify(call())
    local second = fixture.classifier [[
      local found = string.secret or math.secret or table.secret or rawget(classify, "secret")
        or classify.http.status[418]
      return found and "failure" or string.find("abc", "b") == 2 and "success" or "failure"
    ]]
    assert.same({ "success" }, { second.classify(call()) })
    assert.is_nil(rawget(string, "secret"))
    assert.equal(2, (("abc"):find("b")))
  end)

  it("loads no bytecode, whoever made it (B178)", function()
    local dumped = string.dump(function() return { name = "x", trip = { failures = 5 } } end)
    for _, text in ipairs { dumped, "\239\187\191" .. dumped, "#!\n" .. dumped, "\27Lua", "\27LJ",
      " " .. dumped,
      "\n" .. dumped } do
      assert.is_nil((policy.parse(text, "x.lua")))
    end
    local p, err = policy.parse('local m = require "m"', "x.lua",
      { read = function() return dumped end })
    assert.is_nil(p)
    assert.matches("is compiled Lua: only source is loaded", tostring(err))
  end)
end)

describe("a state that runs policies and nothing else", function()
  it("is safe from methods of strings as well: every hostile policy, in a process of its own",
    function()
    local lua = arg and arg[-1] or "lua5.4"
    for i = -1, -10, -1 do
      if arg and arg[i] then lua = arg[i] end
    end
    local pipe = assert(io.popen(("%s tests/lua/hostile_state.lua 2>&1"):format(lua)))
    local said = pipe:read("*a")
    pipe:close()
    assert.equal(("ok %d\n"):format(#hostile), said)
  end)
end)
