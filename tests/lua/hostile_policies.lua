--- Policies that mean harm, or are as wrong as if they did: bodies of a classify.  Each is run by
--- hostile_spec.lua in the state of the tests, and by hostile_state.lua in a state of its own.
--
--   { title, body, fault }     fault: a pattern that the fault's text matches; nil: there is none
--   needs = "has_goto"         only for a Lua of which version.lua says so; what is no text for
--                              this one is in `unknown`

local version = require "tests.lua.version"

local all = {
  -- Endless work
  { "loops for ever", "while true do end", "steps" },
  { "loops for ever with goto", "::again:: goto again", "steps",
    needs = "has_goto" },
  { "loops for ever in repeat", "repeat local x = 1 until x == 2", "steps" },
  { "loops for ever in a pcall", "while true do pcall(function() while true do end end) end",
    "steps" },
  { "catches what stops it, again and again",
    "local function f() while true do pcall(f) end end f()", "." },
  { "catches with xpcall and a handler that loops",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
      "steps" },
  { "catches with a handler that raises",
    "while true do xpcall(error, function() error('again') end) end", "steps" },
  { "catches with a handler that calls itself",
    "local function h() return xpcall(error, h) end xpcall(error, h) while true do end", "." },
  { "nests pcall in pcall",
    "local f = error for _ = 1, 1e9 do local g = f f = function() return pcall(g) end end",
    "." },
  { "hides in C: pcall of pcall", "local p = pcall while true do p(p, p, p, p, p, error) end",
    "steps" },
  { "loops in __index", [[
    local t = setmetatable({}, { __index = function() while true do end end }) return t.x]],
      "steps" },
  { "loops in __index in a pcall", [[
    local t = setmetatable({}, { __index = function() while true do end end })
    while true do pcall(next, t) pcall(function() return t.x end) end]], "steps" },
  { "goes in circles through __index", [[
    local a, b = {}, {} setmetatable(a, { __index = b }) setmetatable(b,
      { __index = a }) return a.x]], "loop" },
  { "goes down a long chain of __index", [[
    local t = {} for _ = 1, 2000 do t = setmetatable({}, { __index = t }) end
    while true do pcall(function() return t.x end) end]], "." },
  { "loops in __eq, __lt, __concat and __len", [[
    local function loop() while true do end end
    local mt = { __eq = loop, __lt = loop, __concat = loop, __len = loop, __unm = loop,
      __call = loop }
    local a, b = setmetatable({}, mt), setmetatable({}, mt)
    pcall(function() return a == b end) pcall(function() return a < b end) pcall(
      function() return a .. b end)
    pcall(function() return #a end) pcall(function() return -a end) a()]], "steps" },
  { "loops in __tostring",
    "return tostring(setmetatable({}, { __tostring = function() while true do end end }))",
    "steps" },
  { "loops in __tostring of its answer", [[
    return setmetatable({}, { __tostring = function() while true do end end })]],
      "answered a table" },
  { "loops in __name", "error(setmetatable({}, { __name = ('x'):rep(1000) }))", "a table value" },
  { "loops in __close", [[
    local x <close> = setmetatable({}, { __close = function() while true do end end })
    return "success"]], "steps", needs = "has_close" },
  { "loops in __close after an error", [[
    local x <close> = setmetatable({}, { __close = function() while true do end end })
    error("no")]], "no", needs = "has_close" },
  { "loops in the __close of many, in pcalls", [[
    local mt = { __close = function() while true do end end }
    while true do pcall(function() local a <close> = setmetatable({},
      mt) local b <close> = setmetatable({}, mt)
      error("x") end) end]], "steps", needs = "has_close" },
  { "loops in a comparison for sort", [[
    local t = {} for i = 1, 100 do t[i] = i end table.sort(t, function() while true do end end)]],
      "steps" },
  { "sorts with a comparison that contradicts itself", [[
    local t = {} for i = 1,
      5000 do t[i] = i % 7 end while true do table.sort(t, function() return true end) end]],
    "steps" },
  { "sorts with a comparison that calls sort", [[
    local t = {} for i = 1, 100 do t[i] = i end
    local function by(a, b) table.sort(t, by) return a < b end table.sort(t, by)]], "." },
  { "loops in a gsub callback", "string.gsub('abc', '%w', function() while true do end end)",
    "steps" },
  { "calls gsub in a gsub callback", [[
    local function f(s) return (string.gsub(s, '.', f)) end return f("aaa")]], "." },
  { "loops in a gmatch iterator",
    "while true do for _ in string.gmatch(('a'):rep(100), 'a') do end end", "steps" },
  { "loops in __pairs", [[
    for _ in pairs(setmetatable({}, { __pairs = function() while true do end end })) do end]],
      "steps", needs = "has_pairs" },
  { "loops in the iterator of for", "for _ in function() return 1 end do end", "steps" },
  { "walks a table that is huge and empty", [[
    local t = {} for i = 1, 20000 do t[i] = i end for i = 1, 20000 do t[i] = nil end
    while true do next(t) end]], "." },

  -- Patterns
  { "matches a catastrophic pattern (B179)", "string.find(('a'):rep(10000), '.-.-.-.-b$')",
    "steps" },
  { "matches another", "string.match(('a'):rep(30), ('a?'):rep(30) .. ('a'):rep(30) .. 'b')", "." },
  { "matches a third", "string.match(('a'):rep(5000), '(.*)(.*)(.*)(.*)(.*)b')", "steps" },
  { "matches with back references", "string.find(('ab'):rep(5000), '(.-)%1%1%1(.-)%2c')", "steps" },
  { "matches with balances", "string.find(('('):rep(10000), '%b()%b()')", "steps" },
  { "matches with frontiers", "string.find(('a'):rep(10000), '.-%f[b].-%f[c].-d')", "steps" },
  { "replaces catastrophically", "string.gsub(('a'):rep(10000), '.-.-.-b', 'x')", "steps" },
  { "goes through matches catastrophically",
    "for _ in string.gmatch(('a'):rep(10000), '.-.-.-b') do end", "steps" },
  { "finds a long plain text again and again", [[
    local s = ('a'):rep(50000) while true do string.find(s, ('a'):rep(1000) .. 'b', 1, true) end]],
      "." },
  { "uses a pattern that is too deep", "string.match('x', ('(x?)'):rep(300))", "captures" },
  { "uses a pattern that is too deep, without captures",
    "string.match(('x'):rep(5000), ('x?'):rep(5000))",
    "too complex" },

  -- Memory
  { "doubles a string", "local s = 'x' while true do s = s .. s end", "bytes" },
  { "doubles a string in a pcall",
    "local s = 'x' while true do pcall(function() s = s .. s end) end", "bytes" },
  { "repeats a string for a gigabyte (B179)", "return string.rep('x', 1e9)", "steps" },
  { "repeats a string for a gigabyte in a pcall", "while true do pcall(string.rep, 'x', 1e9) end",
    "steps" },
  { "repeats a string for more than there is", "return string.rep('x', 2^60)", "large" },
  { "repeats a string by the largest number", "return string.rep('xx', 2 ^ 62)", "large" },
  { "repeats with a separator", "return string.rep('', 1e9, 'x')", "." },
  { "formats a long text",
    "local s = ('x'):rep(1000) while true do s = string.format('%s%s', s, s) end", "." },
  { "formats wide numbers", "while true do string.format('%099d%099d', 1, 1) end", "." },
  { "fills a table", "local t = {} for i = 1, math.huge do t[i] = i end", "more than its" },
  { "fills a table with tables", "local t = {} while true do t = { t, t, t, t } end", "bytes" },
  { "fills a table in pcalls",
    "local t = {} while true do pcall(function() t[#t + 1] = {} end) end", "more than its" },
  { "makes closures", "local f while true do local g = f f = function() return g end end",
    "bytes" },
  { "concatenates ten million (B179)", [[
    local t = {} for i = 1, 10000000 do t[i] = 'x' end return table.concat(t)]], "." },
  { "concatenates the same again and again", [[
    local t = {} for i = 1,
      10000 do t[i] = 'xxxxxxxxxxxxxxxx' end while true do table.concat(t) end]], "." },
  { "unpacks a large table (B188)", "return table.unpack({}, 1, 1e8)", "steps" },
  { "unpacks one too many (B188)", "return table.unpack({}, 1, 1001)", "too many" },
  { "gathers arguments",
    "local function f(...) return f(1, 2, 3, 4, 5, 6, 7, 8, ...) end return f()", "." },
  { "selects from many arguments", [[
    local function f(...) for i = 1, 1e9 do select(i, ...) end end f(table.unpack({}, 1, 1000))]],
      "." },
  { "turns a text around again and again",
    "local s = ('x'):rep(100000) while true do string.reverse(s) end", "." },

  -- Depth
  { "calls itself for ever", "local function f() return 1 + f() end return f()", "." },
  { "calls itself for ever by tail calls", "local function f() return f() end return f()",
    "steps" },
  { "calls itself for ever in pcalls", "local function f() pcall(f) while true do end end f()",
    "steps" },
  { "calls itself through __index", [[
    local mt = {} mt.__index = function(t, k) return t[k .. 'x'] end return setmetatable({},
      mt).x]], "." },
  { "calls itself through __tostring", [[
    local t = setmetatable({},
      {}) getmetatable(t).__tostring = function() return tostring(t) end return tostring(t)]],
    "." },
  { "calls itself through sort", [[
    local function f() table.sort({ 1, 2, 3 }, f) end f()]], "." },
  { "branches for ever", "local function f() f() f() end f()", "." },

  -- Errors
  { "raises a text", "error('boom')", "boom" },
  { "raises nil (B199)", "error(nil)", "a nil value" },
  { "raises a number (B199)", "error(42)", "42" },
  { "raises a boolean (B199)", "error(true)", "a boolean value" },
  { "raises a table (B199)", "error({})", "a table value" },
  { "raises a function (B199)", "error(print or type)", "." },
  { "raises a table that raises when shown (B199)",
    "error(setmetatable({}, { __tostring = function() error('x') end }))", "a table value" },
  { "raises a table that loops when shown (B199)",
    "error(setmetatable({}, { __tostring = function() while true do end end }))", "a table value" },
  { "raises a text of a megabyte with zeros in it (B199)", "error(('\\0'):rep(300000), 0)", "." },
  { "raises in the middle of sort", "table.sort({ 3, 2, 1 }, function() error('in sort') end)",
    "in sort" },
  { "raises in the middle of gsub", "string.gsub('abc', '.', function() error('in gsub') end)",
    "in gsub" },
  { "indexes the result of a call that raised (B083)", "return call.result.code",
    "index .*a nil value" },

  -- Escapes
  { "asks for load", "return load('return io')()", "load is not available" },
  { "asks for loadstring", "return loadstring('return io')()", "loadstring is not available" },
  { "asks for dofile", "return dofile('/etc/passwd')", "dofile is not available" },
  { "asks for io", "return io.open('/etc/passwd')", "io is not available" },
  { "asks for os", "return os.execute('true')", "os is not available" },
  { "asks for debug", "return debug.getregistry()", "debug is not available" },
  { "asks for package", "return package.loadlib('x', 'y')", "package is not available" },
  { "asks for coroutine", "return coroutine.yield()", "coroutine is not available" },
  { "asks for collectgarbage", "return collectgarbage('stop')", "collectgarbage is not available" },
  { "asks for ffi and jit", "return ffi or jit", "ffi is not available" },
  { "asks for getfenv", "return getfenv(0)", "getfenv is not available" },
  { "requires io", "return require 'io'", "not into a function" },
  { "dumps a function", "return string.dump(function() end)", "field 'dump'" },
  { "takes the strings' metatable", "return getmetatable('').__index", "a boolean value" },
  { "sets the strings' metatable", "return setmetatable('', {})", "bad argument" },
  { "takes the globals' metatable", "return getmetatable(_G).__index", "a boolean value" },
  { "sets the globals' metatable", "setmetatable(_G, {})", "not the policy's" },
  { "sets a finaliser (B181)", "setmetatable({}, { __gc = function() while true do end end })",
    "__gc is not" },
  { "adds a finaliser later (B181)", [[
    local mt = {} for _ = 1,
      100 do setmetatable({}, mt) end mt.__gc = function() while true do end end
    return "success"]] },
  { "takes a classifier's metatable", "return getmetatable(classify.http).__call",
    "a boolean value" },
  { "sets a global", "x = 5", "x is assigned without being declared" },
  { "replaces a library function", "string.find = nil string.find('a', 'a')", "field 'find'" },
  { "changes the call", "call.status = 200 return classify.http(call)", nil, "success" },
  { "answers no outcome", "return 'sucess'", 'answered "sucess"' },
}

local hostile = { unknown = {} }
for _, case in ipairs(all) do
  if not case.needs or version[case.needs] then
    hostile[#hostile + 1] = case
  elseif case.needs ~= "has_pairs" then
    hostile.unknown[#hostile.unknown + 1] = case
  end
end
return hostile
