local core = require "neap.core"
local version = require "tests.lua.version"
local unpack, pack = version.unpack, version.pack

-- As neap.sandbox does for a policy's text: compiled code would not see the step hook.
if version.is_jit then require("jit").off(true, true) end

local library = core.library()
local S, T = library.string, library.table

-- The module's own answer, or what it raises, to be compared.
local function answer(f, ...)
  local got = pack(pcall(f, ...))
  if not got[1] then got[2] = tostring(got[2]):gsub("^.-:%d+: ", ""):gsub("to '%?'", "to 'f'") end
  return got
end

-- These are compared with the string and table libraries of Lua 5.3 and later.  Earlier ones answer
-- otherwise here and there; a policy gets the same everywhere.
local has_reference = math.type ~= nil

--- What was answered, as a text that is the same on every Lua: errors have words of their own.
local function text_of(value)
  if type(value) == "number" then return ("%.14g"):format(value) end
  if type(value) ~= "table" then return tostring(value) end
  if value[1] == false then return "error" end
  local parts = {}
  for i = 1, value.n or #value do parts[i] = text_of(value[i]) end
  return "(" .. table.concat(parts, " ") .. ")"
end

describe("a box", function()
  local box
  before_each(function() box = core.box(10000, 1000000, 1000) end)

  it("runs a function and hands on up to four results", function()
    assert.same({ true, 3, "x" }, { core.run(box, function(a, b) return a + b, "x" end, 1, 2) })
    assert.same({ true }, { core.run(box, function() end) })
    assert.same({ true, 1, 2, 3, 4 }, { core.run(box, function() return 1, 2, 3, 4, 5, 6 end) })
    assert.same({ true, nil, nil, 5, n = 4 },
      pack(core.run(box, function(...) return ... end, nil, nil, 5)))
  end)

  it("runs again after an error, and after an overrun", function()
    for _ = 1, 100 do
      assert.same({ false, "no", "error" }, { core.run(box, error, "no", 0) })
      assert.same({ false, "took more than its 10000 steps", "steps" },
        { core.run(box, function() while true do end end) })
      assert.same({ true, 5 }, { core.run(box, function() return 5 end) })
    end
  end)

  it("leaves nothing behind on its coroutine", function()
    local function many() return 1, 2, 3, 4, 5, 6, 7 end
    local used
    for i = 1, 20000 do
      core.run(box, many, i, i, i)
      if i == 10000 then
        collectgarbage()
        used = collectgarbage("count")
      end
    end
    collectgarbage()
    assert.is_true(collectgarbage("count") - used < 5)
  end)

  it("allocates nothing for a decision that goes well", function()
    local f, call = function(c) return c.status == 200 and "success" or "failure" end,
      { status = 200 }
    collectgarbage()
    collectgarbage("stop")
    local before = collectgarbage("count")
    for _ = 1, 10000 do core.run(box, f, call) end
    local grown = collectgarbage("count") - before
    collectgarbage("restart")
    assert.is_true(grown < 1, ("%g KiB"):format(grown))
  end)

  it("does not let its function yield", function()
    local ok, message, kind = core.run(box, function() coroutine.yield(1) end)
    assert.is_false(ok)
    assert.equal("yielded, which a policy's function cannot", message)
    assert.equal("yield", kind)
  end)

  it("runs in any coroutine, nested ten deep, with the coroutine functions replaced (B169)",
    function()
    local function deep(n)
      if n == 0 then return core.run(box, function() return "done" end) end
      return coroutine.wrap(function() return deep(n - 1) end)()
    end
    assert.same({ true, "done" }, { deep(10) })
    local yield = coroutine.yield
    rawset(coroutine, "yield", function() error("replaced") end)
    local result = { deep(3) }
    rawset(coroutine, "yield", yield)
    assert.same({ true, "done" }, result)
  end)

  it("does not run within itself, but another may run within it", function()
    local other = core.box(10000, 1000000, 1000)
    local _, ok, message, kind = core.run(box, function() return core.run(box, function() end) end)
    assert.same({ false, "is running already", "busy" }, { ok, message, kind })
    assert.same({ true, true, 5 }, { core.run(box, function()
      return core.run(other, function() return 5 end)
    end) })
    assert.same({ true, false, "took more than its 10000 steps", "steps" },
      { core.run(box, function()
      return core.run(other, function() while true do end end)
    end) })
  end)

  it("goes on counting when another has run within it", function()
    local other = core.box(10000, 1000000, 1000)
    assert.same({ false, "took more than its 10000 steps", "steps" }, { core.run(box, function()
      core.run(other, function() while true do end end)
      while true do end
    end) })
  end)

  it("has overrun even when it was the last thing that the function did", function()
    core.budget(box, 10000, 100000, 1000)
    assert.same({ false, "asked for more than its 100000 bytes of memory", "bytes" },
      { core.run(box, string.rep, "x", 60000) })
  end)

  it("counts steps, up to the next two hundred", function()
    core.budget(box, 1000, 1000000, 1000)
    assert.is_true((core.run(box, function() for _ = 1, 300 do local _ = 1 end end)))
    assert.is_false((core.run(box, function() for _ = 1, 1000 do local _ = 1 end end)))
    core.budget(box, 1, 1000000, 1000)
    assert.is_false((core.run(box, function() for _ = 1, 5 do local _ = 1 end end)))
  end)

  it("begins each decision with a whole budget", function()
    for _ = 1, 100 do
      assert.is_true((core.run(box, function() for _ = 1, 3000 do local _ = 1 end end)))
    end
  end)

  it("counts what is asked for in bytes, freed again or not", function()
    core.budget(box, 1000000, 100000, 1000)
    local ok, message, kind = core.run(box, function()
      for i = 1, 1000 do local _ = ("x"):rep(1000) .. i end
    end)
    assert.same({ false, "asked for more than its 100000 bytes of memory", "bytes" },
      { ok, message, kind })
    assert.is_true((core.run(box, function() return ("x"):rep(30000) end)))
  end)

  it("gives no piece that is larger than the whole budget", function()
    local before = collectgarbage("count")
    local s = ("x"):rep(900000)
    local ok, _, kind = core.run(box, function() return s .. s .. s .. s end)
    assert.is_false(ok)
    assert.equal("bytes", kind)
    assert.is_true(collectgarbage("count") - before < 4000)
  end)

  it("looks at the processor's time when steps are slow", function()
    core.budget(box, 1000000000, 2 ^ 30, 20)
    local t = {}
    for i = 1, 2000000 do t[i] = i end
    for i = 1, #t do t[i] = nil end -- next() must now go all the way
    local ok, message, kind = core.run(box, function() while true do next(t) end end)
    assert.is_false(ok)
    assert.equal("took more than its 20 ms of processor time", message)
    assert.equal("time", kind)
  end)

  for _, case in ipairs {
    { function() error("x.lua:5: no", 0) end,                  "x.lua:5: no" },
    { function() error("two\nlines\0and a zero", 0) end,       "two lines and a zero" },
    { function() error(nil) end,
      "an error object that is a nil value" },
    { function() error(42, 0) end,                                "42" },
    { function() error(true) end,
      "an error object that is a boolean value" },
    { function() error({}) end,
      "an error object that is a table value" },
    { function() error(print) end,
      "an error object that is a function value" },
    { function() error(coroutine.create(function() end)) end,
      "an error object that is a thread value" },
    { function() error(setmetatable({}, { __tostring = function() error("x") end })) end,
      "an error object that is a table value" },
    { function() error(("x"):rep(300000), 0) end,              ("x"):rep(400) },
  } do
    it(("says of an error: %s (B199)"):format(case[2]:sub(1, 50)), function()
      local ok, message, kind = core.run(box, case[1])
      assert.is_false(ok)
      assert.equal(case[2], message)
      assert.equal("error", kind)
    end)
  end

  it("checks what it is given", function()
    assert.error_matches(function() core.run() end, "bad argument #1 to 'run'")
    assert.error_matches(function() core.run(box) end, "bad argument #2 to 'run'")
    assert.error_matches(function() core.run(io.stdout, print) end, "bad argument #1 to 'run'")
    assert.error_matches(function() core.run(box, print, unpack({}, 1, 30)) end,
      "too many arguments")
    assert.error_matches(function() core.box(0, 1, 1) end,
      "bad argument #1 to 'box' %(out of range%)")
    assert.error_matches(function() core.box(1, 1, 2 ^ 40) end, "bad argument #3")
    assert.error_matches(function() core.budget(box, 1.5, 1, 1) end, "bad argument #2")
    assert.same({ false, "attempt to call a number value", "error" }, { core.run(box, 5) })
  end)

  it("ends with its state, whatever was going on", function()
    for _ = 1, 1000 do
      local one = core.box(10000, 1000000, 1000)
      core.run(one, error, "no")
    end
    collectgarbage()
    collectgarbage()
  end)
end)

-- ---- Strings ----------------------------------------------------------------------------------

describe("the string library of policies", function()
  it("has what every Lua has, and not dump", function()
    local names = {}
    for name in pairs(S) do names[#names + 1] = name end
    table.sort(names)
    assert.same({ "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match",
      "rep",
      "reverse", "sub", "upper" }, names)
  end)

  local said = {}
  local cases = {
    { "len", "abc" }, { "len", "" }, { "len" }, { "len", 5 }, { "len", {} },
    { "sub", "hello", 2 }, { "sub", "hello", -3, -2 }, { "sub", "hello", 0 },
      { "sub", "hello", 10 },
    { "sub", "hello", -100, 100 }, { "sub", "hello", 3, 2 },
      { "sub", "hello", math.mininteger, math.maxinteger, is_huge = true },
    { "sub", "hello", math.maxinteger, is_huge = true },
    { "sub", "hello", 1, math.mininteger, is_huge = true }, { "sub", "hello" },
    { "upper", "aBc1\0x" }, { "lower", "aBC1\0X" }, { "reverse", "abc\0" }, { "reverse", "" },
    { "rep", "ab", 3 }, { "rep", "ab", 3, ", " }, { "rep", "ab", 0 }, { "rep", "ab", -1 },
      { "rep", "", 100 },
    { "rep", "", 3, "-" }, { "rep", "x" }, { "rep", "x", 1, "sep" },
    { "byte", "abc" }, { "byte", "abc", 2 }, { "byte", "abc", 1, -1 }, { "byte", "abc", 10 },
      { "byte", "", 1 },
    { "byte", "\255\0", 1, 2 }, { "byte", "abc", -1 }, { "byte", "abc", 0 },
      { "byte", "abc", 0, 2 },
    { "char", 65, 66, 0, 255 }, { "char" }, { "char", 256 }, { "char", -1 }, { "char", "x" },
    { "format", "%5.1f|%-5d|%s|%q|%%|%x", 1.25, 7, "s", "q\n", 255 }, { "format", "%d", 1.5 },
    { "format", "%s" }, { "format", "%y", 1 }, { "format", "%s %s", true, nil }, { "format" },
    { "find", "hello", "l" }, { "find", "hello", "xyz" }, { "find", "hello", "" },
      { "find", "hello", "", 10 },
    { "find", "hello", "", 6 }, { "find", "hello", "l", -2 }, { "find", "a.b", ".", 1, true },
    { "find", "a.b", "%." }, { "find", "hello", "(l)(l)" }, { "find", "hello", "()ll()" },
      { "find", "", "" },
    { "find", "abab", "ab", 2 }, { "find", "aaab", "aab", 1, true }, { "find", "a\0b", "\0" },
    { "find", "abc", "b", nil, true }, { "find", "abc", "^b" }, { "find", "abc", "^a" },
      { "find", "abc", "b", -100 },
    { "match", "key = value", "^(%w+)%s*=%s*(%w+)$" },
      { "match", "2024-01-02", "(%d+)-(%d+)-(%d+)" },
    { "match", "hello", ".-l" }, { "match", "hello", ".*l" }, { "match", "hello", "h?e" },
      { "match", "", ".*" },
    { "match", "f(a(b)c)d", "%b()" }, { "match", "THE (quick) fox", "%f[%a]%a+" },
    { "match", "THE (quick) fox", "%f[%l]%l+%f[%L]" }, { "match", [["a" 'b']], [[(["'])(.-)%1]] },
    { "match", "x^2", "[%^]" }, { "match", "a]b", "[]]" }, { "match", "a-b", "[a%-]+" },
      { "match", "a-b", "[+--]" },
    { "match", "abc", "[^a]" }, { "match", "abc", "[b-]" }, { "match", "a$", "a$$" },
      { "match", "a$b", "$b" },
    { "match", "abc", "()" }, { "match", "abc", "b", 3 }, { "match", "hello", "(h)(.)(%2?)" },
      { "match", "aXb", "%u" },
    { "match", "hello", "" }, { "match", "hello", "l+", 4 }, { "match", "a\0b", "%z?b" },
      { "match", "ab12", "%a%d?" },
    { "match", "abc", "%f[%Z]%a+" },
    { "match", "abc", "%a+%f[%z]" }, { "match", "x", "[" }, { "match", "x", "[x" },
      { "match", "x", "%" }, { "match", "x", "(" },
      { "match", "x", ")" },
    { "match", "x", "(x" }, { "match", "x", "%1" }, { "match", "xx", "(x)%2" },
      { "match", "x", "%b" },
    { "match", "x", "%bx" }, { "match", "x", "%f" }, { "match", "x", "%fx" },
      { "match", "x", "[%" },
    { "match", "x", "[]" }, { "match", "x", "[^]" }, { "match", "x", "x*?" },
      { "match", "x", "(()" },
    { "match", "x", ("()"):rep(33) }, { "match", "x", ("()"):rep(32) }, { "match", "x", "(x)%0" },
    { "match", ("a"):rep(300), ("a?"):rep(300) .. ("a"):rep(300) },
      { "match", "x", ("(x?)"):rep(31) },
    { "gsub", "hello", "l", "L" }, { "gsub", "hello", "l", "L", 1 }, { "gsub", "hello", "", "-" },
    { "gsub", "hello", "(l)(l)", "%2%1%0%%" }, { "gsub", "hello", "l", "%2" },
      { "gsub", "hello", "l", "%x" },
    { "gsub", "hello", "l", "%" }, { "gsub", "hello", "l", { l = 5 } },
      { "gsub", "hello", "l", { l = false } },
    { "gsub", "hello", "l", { l = true } }, { "gsub", "hello", "()", "%1" },
      { "gsub", "abc", "%w", "%1" },
    { "gsub", "abc", "^%w", "x" }, { "gsub", "hello world", "%w+", "%0 %0", 1 },
      { "gsub", "abc", "b*", "x" },
    { "gsub", "abc", "b", 5 }, { "gsub", "abc", "b" }, { "gsub", "abc", "b", true },
      { "gsub", "abc", "b", "x", -1 },
    { "gsub", "abc", "(a)(b)", { a = "z" } }, { "gsub", "", "", "x" },
      { "gsub", "a,b,,c", ",", "%%" },
  }
  for _, case in ipairs(cases) do
    local args = {}
    for i = 2, #case do
      args[#args + 1] = type(case[i]) == "string" and ("%q"):format(case[i]):sub(1, 30)
        or tostring(case[i])
    end
    local title = ("%s(%s)"):format(case[1], table.concat(args, ", ")):gsub("table: 0x%x+",
      "{}"):gsub("%c", "\\n")
    it("answers as the manual says: " .. title, function()
      local got = answer(S[case[1]], unpack(case, 2, #case))
      local is_hosts = case[1] == "format" -- the host's own
      if not case.is_huge and not is_hosts then said[#said + 1] = text_of(got) end
      if not has_reference then return end
      local expected = answer(string[case[1]], unpack(case, 2, #case))
      if not expected[1] then
        assert.is_false(got[1])
      else
        assert.same(expected, got)
      end
    end)
  end

  it("answers all that the same on every Lua", function()
    assert.equal("bd78abc2afda32da", core.fingerprint(table.concat(said, "\n")))
  end)

  it("calls the replacement function of gsub with the captures", function()
    local seen = {}
    local result, n = S.gsub("k=v, a=b", "(%w)=(%w)", function(k, v)
      seen[#seen + 1] = k .. v
      return k == "k" and v .. k or nil
    end)
    assert.same({ "kv", "ab" }, seen)
    assert.same({ "vk, a=b", 2 }, { result, n })
    assert.error_matches(function() S.gsub("x", "x", function() return {} end) end,
      "invalid replacement value")
  end)

  it("goes through the matches with gmatch as the manual says", function()
    local found = {}
    for _, case in ipairs { { "one two", "%a+" }, { "k=v, a=b", "(%w)=(%w)" }, { "abc", "" },
      { "abc", "b*" },
      { "", "x" }, { "", "" }, { "a,b,,c", "([^,]*)" }, { "aaa", "^a" }, { "x", "()" } } do
      local expected, got = {}, {}
      for a, b in string.gmatch(case[1], case[2]) do expected[#expected + 1] = { a, b } end
      for a, b in S.gmatch(case[1], case[2]) do got[#got + 1] = { a, b } end
      if has_reference then assert.same(expected, got) end
      found[#found + 1] = text_of(got)
    end
    assert.equal("0db9206bef3f08de", core.fingerprint(table.concat(found, "\n")))
  end)

  -- Calls f(name, subject, pattern, init, random) so many times.
  local function each_random(seed, most, f)
    local atoms = { "a", "b", ".", "%a", "%d", "[ab]", "[^a]", "[%w_]", "%%", "%.", "(", ")", "()",
      "$", "^", "*", "+",
      "-", "?", "%1", "%b()", "%f[a]", "%f[%A]", "[a-c]", "[]]", "%S", "x", "\0" }
    local letters = { "a", "b", "c", "(", ")", "1", " ", "x", ".", "\0", "%" }
    local n = seed % 2147483647
    local function random(m)
      n = (n * 48271) % 2147483647
      return n % m + 1
    end
    for _ = 1, most do
      local pattern, subject = {}, {}
      for i = 1, random(7) do pattern[i] = atoms[random(#atoms)] end
      for i = 1, random(12) - 1 do subject[i] = letters[random(#letters)] end
      local init = random(4) == 1 and random(20) - 10 or nil
      local name = random(2) == 1 and "find" or "match"
      f(name, table.concat(subject), table.concat(pattern), init, random)
    end
  end

  it("matches as Lua does: thirty thousand random patterns", function()
    if not has_reference then return end
    local seed = tonumber(os.getenv("NEAP_SEED") or "") or os.time()
    each_random(seed, 30000, function(name, subject, pattern, init, random)
      local expected, got = answer(string[name], subject, pattern, init),
        answer(S[name], subject, pattern, init)
      local same = expected[1] == got[1] and (not expected[1] or expected.n == got.n)
      for i = 2, expected[1] and expected.n or 1 do same = same and expected[i] == got[i] end
      if same and random(4) == 1 then
        expected, got = answer(string.gsub, subject, pattern, "<%0>"),
          answer(S.gsub, subject, pattern, "<%0>")
        same = expected[1] == got[1]
          and (not expected[1] or expected[2] == got[2] and expected[3] == got[3])
      end
      assert.is_true(same,
        ("%s(%q, %q, %s), seed %d"):format(name, subject, pattern, tostring(init), seed))
    end)
  end)

  it("matches the same on every Lua: three thousand patterns", function()
    local found = {}
    each_random(1, 3000, function(name, subject, pattern, init)
      found[#found + 1] = text_of(answer(S[name], subject, pattern, init))
      found[#found + 1] = text_of(answer(S.gsub, subject, pattern, "<%0>"))
    end)
    assert.equal("dd3824f5ffd97dec", core.fingerprint(table.concat(found, "\n")))
  end)

  it("charges by the length of a set, and for captures without a character (B179)", function()
    local box = core.box(10000, 2 ^ 28, 10000)
    local subject, set = ("a"):rep(5000), "[" .. ("b"):rep(100) .. "]"
    assert.is_true((core.run(box, S.find, subject, "[bc]")))
    assert.is_false((core.run(box, S.find, subject, set)))
    assert.is_true((core.run(box, S.find, subject, "()$")))
    assert.is_false((core.run(box, S.find, ("a"):rep(100000), "()()()()()()()()$")))
  end)

  it("charges for what it does: a box stops each function when its steps are over (B179)",
    function()
    local long = ("a"):rep(500000)
    local box = core.box(10000, 2 ^ 28, 10000)
    for name, f in pairs {
      find = function() S.find(long, ".-.-b$") end,
      find_plain = function() S.find(long, "aaaaaaaaaaaaaaaaaaab", 1, true) end,
      match = function() S.match(long, "(.-)%1$b") end,
      gmatch = function() for _ in S.gmatch(long, "a") do end end,
      gsub = function() S.gsub(long, "a", "b") end,
      set = function() S.find(long, "[" .. S.rep("b", 100) .. "]") end,
      balance = function() S.find(S.rep("(", 20000), "%b()") end,
      rep = function() S.rep("x", 10000000) end,
      upper = function() S.upper(long) end,
      lower = function() S.lower(long) end,
      reverse = function() S.reverse(long) end,
      sub = function() S.sub(long, 2) end,
      byte = function() S.byte(long, 1, 100000) end,
      format = function() S.format("%s", long) end,
    } do
      local before = os.clock()
      local ok, _, kind = core.run(box, function()
        local i = 0
        while i < 2000 do
          f()
          i = i + 1
        end
      end)
      assert.is_false(ok, name)
      assert.equal("steps", kind, name)
      assert.is_true(os.clock() - before < 0.5, name)
    end
  end)
end)

-- ---- Tables -----------------------------------------------------------------------------------

describe("the table library of policies", function()
  local function list(...) return { ... } end

  local said = {}
  for _, case in ipairs {
    { "concat", list("a", "b", 5), ", " }, { "concat", list() }, { "concat", list("a", {}, "b") },
    { "concat", list("a", "b", "c"), "-", 2, 3 }, { "concat", list("a"), "", 2, 1 },
      { "concat", list("a"), "", 1, 2 },
    { "insert", list(1, 2), 3 }, { "insert", list(1, 2), 1, 0 }, { "insert", list(1, 2), 3, 0 },
    { "insert", list(1, 2), 4, 0 }, { "insert", list(1, 2), 0, 0 }, { "insert", list(1, 2) },
    { "remove", list(1, 2, 3) }, { "remove", list(1, 2, 3), 1 }, { "remove", list() },
      { "remove", list(1), 2 },
    { "remove", list(1), 3 }, { "remove", list(1), 0 }, { "remove", list(), 0 },
    { "unpack", list(1, 2, 3) }, { "unpack", list(1, 2, 3), 2 }, { "unpack", list(1, 2, 3), -1, 1 },
    { "unpack", list(), 1, 0 }, { "unpack", list(1), 2 ^ 40, 2 ^ 40 + 1 },
    { "unpack", list(1), math.maxinteger, math.mininteger, is_huge = true },
    { "unpack", list(1), math.mininteger, math.maxinteger, is_huge = true },
      { "unpack", list(1), 1, 10000000 },
    { "pack", 1, nil, 3 }, { "pack" }, { "concat", 5 }, { "insert", "x", 1 }, { "sort", 5 },
    { "unpack" },
  } do
    it(("answers as the manual says: %s, %d arguments"):format(case[1], #case - 1), function()
      local function copied(t)
        if type(t) ~= "table" then return t end
        return { unpack(t) }
      end
      local first, second = copied(case[2]), copied(case[2])
      local got = answer(T[case[1]], second, unpack(case, 3, #case))
      if not case.is_huge then said[#said + 1] = text_of(got) .. text_of(second) end
      if not has_reference then return end
      local expected = answer(table[case[1]], first, unpack(case, 3, #case))
      assert.equal(expected[1], got[1])
      if expected[1] then assert.same(expected, got) end
      assert.same(first, second)
    end)
  end

  it("answers all that the same on every Lua", function()
    assert.equal("e91df84f733e93b2", core.fingerprint(table.concat(said, "\n")))
  end)

  it("sorts as <, or a function, says", function()
    for n = 0, 200 do
      local t, expected = {}, {}
      for i = 1, n do t[i] = (i * 7919) % 101 end
      for i = 1, n do expected[i] = t[i] end
      table.sort(expected)
      T.sort(t)
      assert.same(expected, t)
      T.sort(t, function(a, b) return a > b end)
      table.sort(expected, function(a, b) return a > b end)
      assert.same(expected, t)
    end
    assert.error_matches(function() T.sort({ 1, "x" }) end, "attempt to compare")
  end)

  it("sorts somehow when the function contradicts itself (B179)", function()
    for _, before in ipairs { function() return true end, function() return false end, rawequal,
      function(a, b) return a ~= b end } do
      local t = {}
      for i = 1, 500 do t[i] = i end
      T.sort(t, before)
      local sum = 0
      for i = 1, 500 do sum = sum + t[i] end
      assert.equal(125250, sum)
    end
  end)

  it("does not ask metatables: no length or element is made up (B179)", function()
    local asked = false
    local function ask() asked = true end
    local made_up = setmetatable({ 1, 2 }, {
      __len = function() asked = true return 2 ^ 60 end, __index = ask, __newindex = ask,
    })
    T.insert(made_up, 1, 0)
    T.remove(made_up)
    T.concat(made_up)
    T.sort(made_up)
    T.unpack(made_up)
    assert.is_false(asked)
  end)

  it("charges for what it does (B179)", function()
    local box = core.box(10000, 2 ^ 28, 10000)
    local big = {}
    for i = 1, 50000 do big[i] = "x" end
    for name, f in pairs {
      concat = function() T.concat(big, ", ") end,
      insert = function() T.insert(big, 1, "x") end,
      remove = function() T.remove(big, 1) end,
      sort = function() T.sort(big) end,
      pack = function() T.pack(T.unpack(big, 1, 1000)) end,
    } do
      local before = os.clock()
      local ok, _, kind = core.run(box, function()
        local i = 0
        while i < 2000 do
          f()
          i = i + 1
        end
      end)
      assert.is_false(ok, name)
      assert.equal("steps", kind, name)
      assert.is_true(os.clock() - before < 0.5, name)
    end
  end)
end)

-- ---- Metatables -------------------------------------------------------------------------------

describe("setmetatable and getmetatable of policies", function()
  local set, get = library.setmetatable, library.getmetatable

  it("work on tables and metatables of the policy's own", function()
    local meta = { __index = { a = 5 } }
    local t = set({}, meta)
    assert.equal(5, t.a)
    assert.equal(meta, get(t))
    assert.equal(t, set(t, nil))
    assert.is_nil(get(t))
  end)

  it("have no finalisers (B181, B182)", function()
    assert.error_matches(function() set({}, { __gc = function() end }) end,
      "__gc is not available to a policy")
    assert.error_matches(function() set({}, { __gc = true }) end,
      "__gc is not available to a policy")
    local meta, called = {}, false
    set({}, meta)
    meta.__gc = function() called = true end
    collectgarbage()
    collectgarbage()
    assert.is_false(called)
  end)

  it("neither show nor change a metatable of the host's (B175)", function()
    local hosts = setmetatable({}, { __index = { a = 5 } })
    assert.is_false(get(hosts))
    assert.is_false(get("text"))
    assert.is_false(get(io.stdout))
    assert.is_nil(get(5))
    assert.is_nil(get({}))
    assert.error_matches(function() set(hosts, {}) end,
      "this table's metatable is not the policy's")
    assert.error_matches(function() set("", {}) end, "bad argument #1")
    assert.error_matches(function() set({}, 5) end, "bad argument #2")
    assert.error_matches(function() set({}) end, "bad argument #2")
  end)
end)

describe("rawset of policies", function()
  local set, raw = library.setmetatable, library.rawset

  it("writes past a metatable of the policy's own", function()
    local guarded = set({}, { __newindex = error })
    assert.equal(guarded, raw(guarded, "a", 5))
    assert.equal(5, guarded.a)
    assert.same({ 1 }, raw({}, 1, 1))
    assert.error_matches(function() raw({}, nil, 1) end, "nil")
    assert.error_matches(function() raw({}, 1) end, "bad argument #3")
    assert.error_matches(function() raw("", 1, 1) end, "bad argument #1")
  end)

  it("does not write past one of the host's: what is read-only stays so", function()
    local sealed = setmetatable({}, { __newindex = error })
    assert.error_matches(function() raw(sealed, "a", 5) end, "this table is read%-only for rawset")
    assert.is_nil(sealed.a)
  end)
end)
