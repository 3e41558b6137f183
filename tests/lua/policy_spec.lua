local core = require "neap.core"
local fixture = require "tests.lua.policy_fixture"
local policy = require "neap.policy"
local version = require "tests.lua.version"
local unpack = version.unpack

local load, parse = fixture.load, fixture.parse

local GOOD = 'return { name = "x", trip = { failures = 5 } }\n'

describe("a policy file", function()
  it("gives a generation with everything that a guard needs", function()
    local p = load [[
      window = { kind = "count", calls = 20 },
      trip = { failure_rate = 0.5 },
      timeout_ms = 100,
      mode = "shadow",
      fallback = { fallback.default(false) },
    ]]
    assert.equal("x", p.name)
    assert.equal("policies/x.lua", p.path)
    assert.equal(100, p.timeout_ms)
    assert.equal("shadow", p.mode)
    assert.equal(0.5, p.rules:numbers().failure_rate)
    assert.same({ "policies/x.lua" }, p.sources)
    assert.same({ refused = true, timeout = true, failure = true }, p.fallback_on)
    assert.equal(1, #p.stages)
    assert.is_false(p.has_classify)
    assert.is_nil(p.trip)
    assert.is_nil(p.decide)
    assert.same({}, p.warnings)
  end)

  it("says in its configuration what is in force, defaults and derived numbers included", function()
    local config = load("timeout_ms = 100, trip = { failure_rate = 0.25 },").config
    assert.same({ kind = "time", length_ms = 10000 }, config.window)
    assert.same({ failure_rate = 0.25, minimum_calls = 10 }, config.trip)
    assert.same({ cooldown_ms = 5000, max_cooldown_ms = 60000, backoff = 2, jitter = 0.2 },
      config.open)
    assert.same({ probes = 3, successes = 2, concurrent = 1, lease_ms = 200 }, config.half_open)
    assert.equal("classify.default", config.classify)
    assert.same({ "refused", "timeout", "failure" }, config.fallback_on)
    assert.same({}, config.fallback)
  end)

  it("says in its configuration which errors a list of kinds names (B082)", function()
    local p = load 'classify = classify.errors { record = { "ECONN" }, ignore = { "ENOENT" } },'
    assert.same({ record = { "ECONN" }, ignore = { "ENOENT" } }, p.config.classify)
    assert.equal("failure", (p.classify { error = { kind = "ECONN" } }))
    assert.equal("neutral", (p.classify { error = { kind = "ENOENT" } }))
  end)

  it("may be returned by name", function()
    local p = assert(policy.parse('local it = { name = "x", trip = { failures = 5 } }\nreturn it',
      "x.lua"))
    assert.equal("x", p.name)
  end)

  it("takes whole numbers that are written as 5.0 or 5e3", function()
    local p = load "trip = { failures = 5.0 }, window = { length_ms = 5e3 },"
    assert.equal(5, p.rules:numbers().failures)
    assert.equal(5000, p.rules:numbers().length_ms)
  end)

  it("closes after one success when there is one probe", function()
    assert.equal(1, load("half_open = { probes = 1 },").rules:numbers().successes)
  end)

  it("is read raw: metatables of its tables are not asked", function()
    local p, err = policy.parse([[
      local mt = { __index = function() error("asked") end }
      return setmetatable({ name = "x", trip = setmetatable({ failures = 5 }, mt) }, mt)
    ]], "x.lua")
    assert.is_nil(err)
    assert.equal(5, p.rules:numbers().failures)
  end)
end)

describe("a text that is no policy", function()
  local bytecode = string.dump(assert(version.compile(GOOD)))
  for _, case in ipairs {
    -- what            text                               error
    { "nothing",       "",                                "x.lua: is empty" },
    { "blanks",        " \n\t\n",                         "x.lua: is empty" },
    { "bytecode",      bytecode,
      "x.lua: is compiled Lua: only source is loaded" },
    { "LuaJIT bytecode", "\27LJ\2\0",
      "x.lua: is compiled Lua: only source is loaded" },
    { "a byte order mark", "\239\187\191" .. GOOD,
      "x.lua: begins with a byte order mark: save it as UTF-8 without one" },
    { "a mark before bytecode", "\239\187\191" .. bytecode,
      "x.lua: begins with a byte order mark: save it as UTF-8 without one" },
    { "a script",      "#!/usr/bin/lua\n" .. GOOD,
      "x.lua: begins with #: a policy is no script, leave that line out" },
    { "another file",  "# Title\n",
      "x.lua: begins with #: a policy is Lua, where comments begin with --" },
    { "a script of bytecode", "#!/usr/bin/lua\n" .. bytecode,
      "x.lua: begins with #: a policy is no script, leave that line out" },
    { "a syntax error", "local a = 1\nreturn { name = }", "x.lua:2: unexpected symbol near '}'" },
    { "no return",     "local a = 1",
      'x.lua: returns nil: a policy file returns a table, return { name = "x", ... }' },
    { "a number",      "\nreturn 5",
      'x.lua:2: returns 5: a policy file returns a table, return { name = "x", ... }' },
    { "an error",      "\nerror('no')",                   "x.lua:2: no" },
    { "an error object", "error({})",
      "x.lua: an error object that is a table value" },
    { "a misspelt name", "return { name = clasify }",
      "x.lua:1: the name clasify is not known: did you mean classify?" },
    { "a misspelt classifier", "return { classify = classify.htttp }",
      "x.lua:1: classify.htttp is not known: did you mean http?" },
    { "a global",      "window = 5\n" .. GOOD,
      "x.lua:1: window is assigned without being declared: write local window" },
    { "os",            "local t = os.time()",
      "x.lua:1: os is not available to a policy" },
    { "an endless loop", "while true do end",
      "x.lua: loading it took more than its 2000000 steps" },
    { "a large file",  GOOD .. ("-"):rep(256 * 1024),     "x.lua: is larger than 262144 bytes" },
  } do
    it(("is refused: %s (B133, B178)"):format(case[1]), function()
      local p, err = policy.parse(case[2], "x.lua")
      assert.is_nil(p)
      assert.equal(case[3], tostring(err))
      assert.equal("x.lua", err.file)
      assert.equal(1, #err.all)
    end)
  end

  it("is refused: a file that is not there", function()
    local p, err = policy.load("policies/no_such_file.lua")
    assert.is_nil(p)
    assert.equal("policies/no_such_file.lua: No such file or directory", tostring(err))
  end)

  it("names the whole path, however long, and the line", function()
    local path = ("d/"):rep(100) .. "x.lua"
    local _, err = policy.parse("\n\nlocal a = nil + 1", path)
    assert.equal(path, err.file)
    assert.equal(3, err.line)
  end)
end)

describe("the name", function()
  it("equals the file's", function()
    local p, err = policy.parse('return { name = "y", trip = { failures = 5 } }', "policies/x.lua")
    assert.is_nil(p)
    assert.equal('policies/x.lua:1: name: "y" is not the file\'s name: "x" is needed',
      tostring(err))
  end)

  it("fits into metrics, logs and addresses", function()
    for _, name in ipairs { "a b", 'a"b', "a/b", "a\nb", ("a"):rep(65) } do
      local p, err = policy.parse(("return { name = %q, trip = { failures = 5 } }"):format(name),
        "text")
      assert.is_nil(p)
      assert.equal("name", err.key)
    end
  end)
end)

describe("the hash", function()
  local text = GOOD

  it("is the same for the same text and params, in whatever order they are set", function()
    local a = assert(policy.parse(text, "x.lua", { params = { a = 1, b = { 2, c = true } } }))
    local params = {}
    params.b = { c = true, 2 }
    params.a = 1
    assert.equal(a.hash, assert(policy.parse(text, "x.lua", { params = params })).hash)
    assert.matches("^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", a.hash)
  end)

  it("does not depend on the order in which many params were set", function()
    local up, down = {}, {}
    for i = 1, 200 do up["key" .. i], up[-i] = i, true end
    for i = 200, 1, -1 do down[-i], down["key" .. i] = true, i end
    assert.equal(assert(policy.parse(text, "x.lua", { params = up })).hash,
      assert(policy.parse(text, "x.lua", { params = down })).hash)
  end)

  it("is another for every change of text, params or modules (B124)", function()
    local files = {
      ["x.lua"] = 'local n = require "lib.n"\nreturn { name = "x", trip = { failures = n } }',
    }
    local function hash(n, params, extra)
      local options = { params = params, read = function(path)
        return path == "./lib/n.lua" and n or files[path] .. (extra or "")
      end }
      return assert(policy.load("x.lua", options)).hash
    end
    local seen = {}
    for _, h in ipairs {
      hash("return 5"), hash("return 6"), hash("return 5", { a = 1 }),
        hash("return 5", { a = "1" }),
      hash("return 5", { a = true }), hash("return 5", { a = { 1 } }),
        hash("return 5", { a = { x = 1 } }),
      hash("return 5", nil, " "), hash("return 5", { ab = "c" }), hash("return 5", { a = "bc" }),
    } do
      assert.is_nil(seen[h])
      seen[h] = true
    end
    assert.equal(hash("return 5"), hash("return 5"))
  end)

  it("tells texts apart by their lengths as well", function()
    assert.not_equal(core.fingerprint("a", "b"), core.fingerprint("ab"))
    assert.not_equal(core.fingerprint("ab", ""), core.fingerprint("", "ab"))
    assert.equal(16, #core.fingerprint(("x"):rep(100000)))
  end)
end)

describe("params", function()
  it("are seen by the policy, and its own", function()
    local params = { limit = 7, list = { 1, 2 }, on = true, text = "t" }
    local p = load([[
      trip = { failures = params.limit },
      classify = function()
        params.list[1] = 9
        return "success"
      end,
    ]],
      { params = params })
    assert.equal(7, p.rules:numbers().failures)
    assert.same({ 1, 2 }, params.list)
    assert.same({ 1, 2 }, p.params.list)
    assert.same({ 1, 2 }, p.config.params.list)
  end)

  for _, case in ipairs {
    -- params                        key               message
    { { f = print },                 "params.f",
      "a function: params are numbers, texts, booleans and tables" },
    { { a = { b = { io.stdout } } }, "params.a.b[1]",
      "a userdata: params are numbers, texts, booleans and tables" },
    { { [true] = 1 },                "params",
      "true as a key: only texts and numbers can be" },
    { 5,                             "params",         "5: a table is needed" },
  } do
    it("are data: " .. case[3], function()
      local p, err = parse("", { params = case[1] })
      assert.is_nil(p)
      assert.equal(case[2], err.key)
      assert.equal(case[3], err.message)
    end)
  end

  it("cannot contain themselves", function()
    local params = {}
    params.params = params
    local p, err = parse("", { params = params })
    assert.is_nil(p)
    assert.equal("is nested too deeply, or contains itself", err.message)
  end)

  it("that are not set are an error where they are needed", function()
    local p, err = parse("fallback = {\n fallback.default(params.defualts) }", {})
    assert.is_nil(p)
    assert.equal(5, err.line)
    assert.matches("^value is missing: ", err.message)
  end)
end)

describe("require", function()
  local dir, remove
  before_each(function()
    dir, remove = fixture.directory {
      ["x.lua"] = 'local lib = require "lib.numbers"\n'
        .. 'return { name = "x", trip = { failures = lib.failures } }',
      ["lib/numbers.lua"] = "return { failures = 5 }",
      ["lib/nothing.lua"] = "local unused = 1",
      ["lib/a.lua"] = 'return require "lib.b"',
      ["lib/b.lua"] = 'return require "lib.a"',
      ["lib/wrong.lua"] = "\n\nreturn 1 +",
    }
  end)
  after_each(function() remove() end)

  it("finds modules below the policy's directory and names them among the sources", function()
    local p = assert(policy.load(dir .. "/x.lua"))
    assert.equal(5, p.rules:numbers().failures)
    assert.same({ dir .. "/x.lua", dir .. "/lib/numbers.lua" }, p.sources)
  end)

  it("loads new code for a new generation, and leaves the old one its own (B140)", function()
    local old = assert(policy.load(dir .. "/x.lua"))
    fixture.write(dir .. "/lib/numbers.lua", "return { failures = 2 }")
    local new = assert(policy.load(dir .. "/x.lua"))
    assert.equal(5, old.rules:numbers().failures)
    assert.equal(2, new.rules:numbers().failures)
    assert.not_equal(old.hash, new.hash)
  end)

  it("gives each generation tables of its own (B140, B175)", function()
    fixture.write(dir .. "/x.lua", [[
      local lib = require "lib.numbers"
      return { name = "x", trip = { failures = 5 }, classify = function()
        lib.failures = lib.failures + 1
        return "success", tostring(lib.failures)
      end }
    ]])
    local first = assert(policy.load(dir .. "/x.lua"))
    local second = assert(policy.load(dir .. "/x.lua"))
    first.classify {}
    local _, of_first = first.classify {}
    local _, of_second = second.classify {}
    assert.equal("19", of_first) -- 12 trials, and two calls
    assert.equal("18", of_second)
    assert.is_nil(package.loaded["lib.numbers"])
  end)

  for _, case in ipairs {
    { '"lib.nothing"', nil, "a module without a value is true" },
    { '"lib.a"', "lib/b.lua: require: lib.a requires itself" },
    { '"lib.no_such"', "x.lua:1: require: there is no lib.no_such below " },
    { '"../secret"', "x.lua:1: require: ../secret is no name of a module" },
    { '"/etc/passwd"', "x.lua:1: require: /etc/passwd is no name of a module" },
    { '"lib..numbers"', "x.lua:1: require: lib..numbers is no name of a module" },
    { '".lib"', "x.lua:1: require: .lib is no name of a module" },
    { '"lib."', "x.lua:1: require: lib. is no name of a module" },
    { '""', "x.lua:1: require:  is no name of a module" },
    { "nil", "x.lua:1: require: nil is no name of a module" },
    { '"io"', "x.lua:1: require: there is no io below " },
    { '"neap.core"', "x.lua:1: require: there is no neap.core below " },
    { '"lib.wrong"', "lib/wrong.lua:3: unexpected symbol near " },
  } do
    it(("of %s: %s (B140, B176)"):format(case[1], case[3] or case[2]), function()
      fixture.write(dir .. "/x.lua",
        ('local it = require(%s)\nassert(it == true)\n'):format(case[1]) .. GOOD)
      local p, err = policy.load(dir .. "/x.lua")
      if case[2] then
        assert.is_nil(p)
        assert.truthy(tostring(err):find(case[2], 1, true), tostring(err))
      else
        assert.is_table(p, tostring(err))
      end
    end)
  end

  it("belongs to the top of the file: a decision reads no files", function()
    fixture.write(dir .. "/x.lua", [[
      return { name = "x", trip = { failures = 5 }, classify = function(call)
        if call.now then require "lib.numbers" end
        return "success"
      end }
    ]])
    local p = assert(policy.load(dir .. "/x.lua"))
    local outcome, _, _, fault = p.classify { status = 500, now = true }
    assert.equal("failure", outcome)
    assert.matches("require: belongs at the top of the file, not into a function$", fault)
  end)
end)

describe("a classify of the policy's", function()
  it("is tried on calls of every kind; what fails there is a warning that says where", function()
    local p = load [[
      classify = function(call)
        if call.status == 503 then return clasify.http(call) end
        return classify.http(call)
      end,
    ]]
    assert.equal(1, #p.warnings)
    assert.equal("policies/x.lua: classify, tried with status 503: policies/x.lua:5: "
      .. "the name clasify is not known: did you mean classify?", p.warnings[1])
  end)

  it("that fails on every one of them is an error", function()
    local p, err = parse("classify = function(call) return call.status.x end,")
    assert.is_nil(p)
    assert.equal("classify", err.key)
    assert.equal(4, err.line)
    assert.matches("^fails on every call: classify, tried with status 200: policies/x.lua:4: "
      .. "attempt to index", err.message)
  end)

  for _, case in ipairs {
    -- answers                                     fault
    { "return nil",                  'answered nil, not "success", "failure" or "neutral"' },
    { "return 'failed'",
      'answered "failed", not "success", "failure" or "neutral"' },
    { "return true",                 'answered true, not "success", "failure" or "neutral"' },
    { "return {}",                   'answered a table, not "success", "failure" or "neutral"' },
    { "return 'success', 5",         "answered 5 for a reason, not a text" },
    { "return 'failure', nil, '120'",
      'answered "120" for retry_after_ms, not a number' },
    { "error('boom')",               "policies/x.lua:6: boom" },
    { "error({ code = 5 })",         "an error object that is a table value" },
    { "return call.result.code",
      "policies/x.lua:6: " .. version.index_nil "result" },
    { "while true do end",           "took more than its 100000 steps" },
  } do
    it(("is replaced for this call by the shipped verdict: %s (B083)"):format(case[1]), function()
      local p = fixture.classifier(case[1])
      local outcome, reason, retry_after_ms, fault = p.classify {
        now = true, status = 503, ended_by = "answer", headers = { ["retry-after"] = "2" },
      }
      assert.equal("failure", outcome)
      assert.equal("status 503", reason)
      assert.equal(2000, retry_after_ms)
      assert.equal(case[2], fault)
      assert.same({ "success" }, { p.classify { status = 503 } })
    end)
  end

  it("keeps its verdict, its reason and how long to wait (B076)", function()
    local p = fixture.classifier "return 'failure', 'quota', 3600000"
    assert.same({ "failure", "quota", 3600000 }, { p.classify { now = true } })
  end)

  it("keeps two hundred bytes of its reason", function()
    for _, outcome in ipairs { "success", "neutral", "failure" } do
      local p = fixture.classifier(("return %q, ('x'):rep(call.now)"):format(outcome))
      for n, kept in pairs { [0] = 0, [200] = 200, [201] = 200, [100000] = 200 } do
        local got, reason, _, fault = p.classify { now = n }
        assert.same({ outcome, kept, nil }, { got, #reason, fault })
      end
    end
  end)

  for _, case in ipairs {
    { "-1", -1 }, { "0", 0 }, { "0/0", -1 }, { "1/0", -1 }, { "-1/0", -1 }, { "10^12", -1 },
      { "1.5", 1 },
  } do
    it(("may ask for %s ms: the core is told %d"):format(case[1], case[2]), function()
      local p = fixture.classifier(("return 'failure', nil, %s"):format(case[1]))
      local outcome, _, retry_after_ms, fault = p.classify { now = true }
      assert.equal("failure", outcome)
      assert.equal(case[2], retry_after_ms)
      assert.is_nil(fault)
    end)
  end

  it("that makes a value of the host yield is a fault, wherever it is called (B167)", function()
    local p = fixture.classifier "return call.result.outcome"
    local result = setmetatable({}, { __index = function() coroutine.yield("host") end })
    local function try()
      local outcome, _, _, fault = p.classify { now = true, status = 503, result = result }
      assert.equal("failure", outcome)
      assert.matches("yield", fault)
      assert.same({ "success" }, { p.classify {} })
    end
    try()
    coroutine.wrap(function() coroutine.wrap(try)() end)()
  end)

  it("that makes a value of the host raise is a fault with the host's error (B172)", function()
    local p = fixture.classifier "return call.result.outcome"
    local result = setmetatable({}, { __index = function() error("not now", 0) end })
    local outcome, _, _, fault = p.classify { now = true, status = 503, result = result }
    assert.same({ "failure", "not now" }, { outcome, fault })
  end)

  it("says failure of a timeout: it is counted as one", function()
    local p = load "classify = function() return 'failure' end,"
    assert.equal("timeout", (p.classify { ended_by = "timeout" }))
    assert.equal("failure", (p.classify { ended_by = "answer" }))
    p = load "classify = function() return 'neutral' end,"
    assert.equal("neutral", (p.classify { ended_by = "timeout" }))
  end)

  for _, case in ipairs {
    { "another function", "classify.http = function() return 'neutral' end", "neutral" },
    { "a table that makes things up",
      "classify.http.class = setmetatable({}, { __index = function() return 'neutral' end })",
      "neutral" },
    { "a status that makes things up",
      "classify.http.status = setmetatable({}, { __index = function() return 'neutral' end })",
      "neutral" },
    { "a table that loops",
      "classify.http.class = setmetatable({}, { __index = function() while true do end end })",
      "success", "took more than its 100000 steps" },
    { "a word that is none",
      "classify.http.class = setmetatable({}, { __index = function() return 'sucess' end })",
      "success", 'answered "sucess", not "success", "failure" or "neutral"' },
    { "a function in a table",
      "classify.http.class = setmetatable({}, { __index = function() return type end })",
      "success", 'answered a function, not "success", "failure" or "neutral"' },
    { "nothing", "classify.http.class = nil", "success", "a nil value" },
    { "a circle", "classify.http.status = setmetatable({ http = classify.http }, {})", "success" },
    { "a deep table", "local t = {} for _ = 1, 100000 do t = { t } end "
      .. "classify.http.status = setmetatable({ x = t }, {})", "success" },
  } do
    it("of the shipped ones may have been given " .. case[1], function()
      local text = 'return { name = "x", trip = { failures = 5 }, classify = classify.%s }'
      for _, name in ipairs { "default", "http" } do
        local p = assert(policy.parse(case[2] .. "\n" .. text:format(name), "x.lua"))
        local outcome, _, _, fault = p.classify { status = 200 }
        assert.equal(case[3], outcome)
        if case[4] then assert.matches(case[4], fault, 1, true) else assert.is_nil(fault) end
      end
    end)
  end

  for _, case in ipairs {
    -- what the file does                             key, line 2             message
    { 'classify.http.status["404"] = "failure"',    'classify.http.status["404"]',
      "is no HTTP status: a number from 100 to 599 is needed: did you mean [404]?" },
    { 'classify.http.status = { ["404"] = "failure" }', 'classify.http.status["404"]',
      "is no HTTP status: a number from 100 to 599 is needed: did you mean [404]?" },
    { 'classify.http.status[40] = "failure"',       "classify.http.status[40]",
      "is no HTTP status: a number from 100 to 599 is needed" },
    { 'classify.http.class[404] = "failure"',       "classify.http.class[404]",
      "is no class of HTTP statuses: a number from 1 to 5 is needed" },
    { "classify.http.statuss = {}",                 "classify.http.statuss",
      "is not known: did you mean status?" },
    { "classify.http.status = 5",                   "classify.http.status",
      "5: a table is needed" },
    { 'classify.http.status[404] = "failur"',       "classify.http.status[404]",
      '"failur" is none of "success", "failure" and "neutral": did you mean failure?' },
    { "classify.http.class[2] = type",              "classify.http.class[2]",
      'a function is none of "success", "failure" and "neutral"' },
    { 'classify.http.retry_after[429] = "no"',      "classify.http.retry_after[429]",
      '"no" is not true or false' },
    { 'classify.grpc.code.UNAVAILBLE = "neutral"',  "classify.grpc.code.UNAVAILBLE",
      "is no gRPC status: they go by their names: did you mean UNAVAILABLE?" },
    { 'classify.grpc.code[14] = "neutral"',         "classify.grpc.code[14]",
      "is no gRPC status: they go by their names" },
    { 'classify.grpc.other = "neutrall"',           "classify.grpc.other",
      '"neutrall" is none of "success", "failure" and "neutral": did you mean neutral?' },
    { 'classify.transport.ended_by.tiemout = "neutral"', "classify.transport.ended_by.tiemout",
      "is no way for a call to end: did you mean timeout?" },
    { 'classify.ofrep.code.GENERAL = 5',            "classify.ofrep.code.GENERAL",
      '5 is none of "success", "failure" and "neutral"' },
    { "classify.default.http = {}",                 "classify.default.http", "is not known" },
  } do
    it("is not to be changed to no effect: " .. case[1], function()
      local p, err = policy.parse("--\n" .. case[1] .. '\nreturn { name = "x",\n'
        .. "trip = { failures = 404, consecutive_failures = 2 } }", "x.lua")
      assert.is_nil(p)
      assert.same({ case[2], case[3], 2, 1 }, { err.key, err.message, err.line, #err.all })
    end)
  end

  it("may be changed in all that has an effect", function()
    assert(policy.parse([[
      classify.http.status[404], classify.http.status[429] = "failure", false
      classify.http.class = { [2] = "success", [5] = "failure" }
      classify.http.retry_after[500] = true
      classify.grpc.code.NOT_FOUND, classify.grpc.code["17"] = "failure", "neutral"
      classify.grpc.other = "neutral"
      classify.ofrep.code.VENDOR_DOWN = "failure"
      classify.transport.ended_by.transport = "neutral"
      return { name = "x", trip = { failures = 5 } }
    ]], "x.lua"))
  end)

  it("of the shipped ones is as it was when the file had run", function()
    local p = load [[
      classify = classify.http,
      trip = { decide = function() classify.http.status[200] = "failure" return false end },
    ]]
    p.trip {}
    assert.equal("success", (p.classify { status = 200 }))
  end)

  it("may do without one, with tables of its own changed (B078)", function()
    local before = 'classify.http.status[429] = "%s"\n'
    local text = 'return { name = "x", trip = { failures = 5 } }'
    local neutral = assert(policy.parse(before:format("neutral") .. text, "x.lua"))
    local failure = assert(policy.parse(before:format("failure") .. text, "x.lua"))
    assert.equal("neutral", (neutral.classify { status = 429 }))
    assert.equal("failure", (failure.classify { status = 429 }))
    assert.is_true(neutral.has_classify)
    assert.is_false(failure.has_classify) -- as it is shipped
  end)
end)

describe("trip.decide", function()
  it("answers whether to open", function()
    local p = load "trip = { decide = function(snapshot) return snapshot.failure > 3 end },"
    assert.is_true(p.trip { failure = 4 })
    assert.is_false(p.trip { failure = 3 })
    assert.is_true(p.rules:numbers().trip_by_function)
    assert.equal("a function", p.config.trip.decide)
  end)

  it("that goes wrong opens nothing", function()
    local p = load "trip = { decide = function(snapshot) return snapshot.failure end },"
    assert.same({ false, "answered 4, not true or false" }, { p.trip { failure = 4 } })
    p = load "trip = { decide = function(snapshot) return snapshot.calls > 3 end },"
    local opens, fault = p.trip {}
    assert.is_false(opens)
    assert.matches("attempt to compare", fault)
  end)
end)

describe("half_open.decide", function()
  it("answers what to do", function()
    local p = load [[
      half_open = { decide = function(round) if round.failed > 0 then return "open" end end },
    ]]
    assert.is_nil(p.decide { failed = 0 })
    assert.equal("open", p.decide { failed = 1 })
    assert.is_true(p.rules:numbers().decide_by_function)
  end)

  it("that goes wrong decides nothing", function()
    local p = load "half_open = { decide = function(round) return round.what end },"
    assert.same({ nil, 'answered "closed", not "close", "open" or nil' },
      { p.decide { what = "closed" } })
  end)
end)

describe("a fallback stage", function()
  it("is described as it was made, with its defaults", function()
    local p = load [[
      fallback = {
        fallback.last_good { max_age_ms = 1000, key = function(call) return call.args[1] end },
        fallback.guard("other", { timeout_ms = 20 }),
        fallback.call(function(call) return call.n end, { timeout_ms = 30 }),
        function() return "plain" end,
        fallback.default { on = true },
        fallback.fail { status = 504, kind = "gone", retry_after_ms = 5 },
      },
    ]]
    local kinds = {}
    for i, stage in ipairs(p.stages) do kinds[i] = stage.kind end
    assert.same({ "last_good", "guard", "function", "function", "default", "fail" }, kinds)
    local last_good, other, call, plain, default, fail = unpack(p.stages)
    assert.equal(1000, last_good.max_age_ms)
    assert.equal(1000, last_good.max_entries)
    assert.equal(8 * 1024 * 1024, last_good.max_bytes)
    assert.equal("flag", last_good.key { args = { "flag" } })
    assert.equal("other", other.guard)
    assert.equal(20, other.timeout_ms)
    assert.equal(7, call.run { n = 7 })
    assert.is_nil(call.run {})
    assert.equal(30, call.timeout_ms)
    assert.equal("plain", plain.run {})
    assert.same({ on = true }, default.run {})
    assert.equal(504, fail.status)
    assert.equal("gone", fail.error_kind)
    assert.equal(5, fail.retry_after_ms)
    assert.same({ kind = "default", value = { on = true } }, p.config.fallback[5])
  end)

  it("answers false if that is the default", function()
    assert.is_false(load("fallback = { fallback.default(false) },").stages[1].run {})
  end)

  it("answers a default that nobody can change for the next call", function()
    local run = load("fallback = { fallback.default { list = { 1 } } },").stages[1].run
    run({}).list[1] = 9
    assert.same({ list = { 1 } }, run {})
  end)

  it("that raises, overruns or answers no data declines and says why", function()
    local p = load [[
      fallback = {
        function() error("boom") end,
        function() while true do end end,
        function() return setmetatable({}, { __index = function() while true do end end }) end,
        function() return { status = 200, headers = setmetatable({}, {}) } end,
        fallback.last_good { key = function() return {} end },
      },
    ]]
    local function outcome(i) return { p.stages[i].run {} } end
    assert.same({ nil, "policies/x.lua:5: boom" }, outcome(1))
    assert.same({ nil, "took more than its 100000 steps" }, outcome(2))
    local fault = "its answer has a metatable: only data can be an answer"
    assert.same({ nil, fault }, outcome(3))
    assert.same({ nil, fault }, outcome(4))
    assert.same({ nil, "answered a table, not a text" }, { p.stages[5].key {} })
  end)

  it("may answer tables in tables, but not without end", function()
    local p = load [[
      fallback = {
        function(call)
          local t = {}
          for _ = 1, call.depth do t = { t } end
          return t
        end,
        function() local t = {} t.t = t return t end,
        function() local t = {} for i = 1, 11000 do t[i] = i end return t end,
        function() local t = {} for _ = 1, 30 do t = { t, t } end return t end,
        function() local s, t = ("x"):rep(10000), {} for i = 1, 200 do t[i] = s end return t end,
        function() return ("x"):rep(300000) end,
      },
    ]]
    local function fault_of(i, call) return (select(2, p.stages[i].run(call or {}))) end
    assert.is_nil(fault_of(1, { depth = 30 }))
    assert.equal("its answer is nested too deeply, or contains itself", fault_of(1, { depth = 40 }))
    assert.equal("its answer is nested too deeply, or contains itself", fault_of(2))
    assert.equal("its answer is too large", fault_of(3))
    assert.equal("its answer is too large", fault_of(4))
    assert.equal("its answer is too large", fault_of(5))
    assert.is_nil(fault_of(6))
  end)

  it("may have a default in which a table is twice, but not a billion times", function()
    local text = "fallback = { fallback.default((function() local t = { 1 } for _ = 1, %d do "
      .. "t = { t, t } end return t end)()) },"
    assert.same({ { 1 }, { 1 } }, fixture.load(text:format(1)).stages[1].run {})
    local p, err = fixture.parse(text:format(30))
    assert.is_nil(p)
    assert.equal("fallback.default: is too large", err.message)
  end)

  for _, text in ipairs {
    "{ status = 204 }", "{ body = '' }", "{ status = 'active', name = 'x' }", "{ on = true }",
    "{ status = 200, headers = { ['X-A'] = 1, ['Content-Type'] = 'a/b; c=\"d\"' }, body = '' }",
    "{ status = 200, headers = { 'Set-Cookie', 'a', 'Set-Cookie', 'b' } }", "{}", "{ 1, 2 }",
  } do
    it("may have a default that is an HTTP answer, or is other data: " .. text, function()
      assert.equal("default", load("fallback = { fallback.default(" .. text .. ") },")
        .stages[1].kind)
    end)
  end

  it("has keys of at most a kilobyte", function()
    local p = load [[
      fallback = { fallback.last_good { key = function(c) return ("x"):rep(c.n) end } },
    ]]
    assert.equal(1024, #p.stages[1].key { n = 1024 })
    local _, fault = p.stages[1].key { n = 1025 }
    assert.equal("answered a text of more than 1024 bytes", fault)
  end)

  it("may answer what the host gave it, with the host's metatable", function()
    local value = setmetatable({}, { __index = { on = true } })
    local p = load "fallback = { function(call) return call.result end },"
    assert.equal(value, (p.stages[1].run { result = value }))
  end)

  it("is a list: one stage alone is refused", function()
    local p, err = parse "fallback = fallback.last_good { max_age_ms = 5 },"
    assert.is_nil(p)
    assert.equal("fallback", err.key)
    assert.equal("is one stage, not a list of them: write fallback = { ... } around it",
      err.message)
  end)

  for _, case in ipairs {
    -- stage                                      key            message
    { "{}",                                       "fallback[1]",
      "^a table is no stage: write fallback%.last_good" },
    { "5",                                        "fallback[1]", "^5 is no stage: " },
    { "fallback.default(nil)",                    "fallback[1]", "^value is missing: The answer" },
    { "fallback.default(print or nil)",           nil,
      "print is not available to a policy" },
    { "fallback.default(setmetatable({}, {}))",   "fallback[1]",
      "^fallback.default: has a metatable: only data can be an answer$" },
    { "fallback.default { f = type }",            "fallback[1]",
      "has a function in it: only data can be a default$" },
    { "fallback.default { status = 99 }",         "fallback[1]",
      "status 99: an HTTP answer has a whole number from 200 to 599$" },
    { "fallback.default { status = '200' }",      "fallback[1]",
      'status "200": an HTTP answer has a whole number' },
    { "fallback.default { status = 200, body = {} }", "fallback[1]",
      "body is a table: an HTTP answer has a text$" },
    { "fallback.default { body = '', headers = 5 }", "fallback[1]",
      "headers is 5: an HTTP answer has a table$" },
    { "fallback.default { status = 200, bdy = 'x' }", "fallback[1]",
      "^fallback.default: bdy is no part of an HTTP answer: did you mean body%?" },
    { "fallback.default { body = 'x', stauts = 200 }", "fallback[1]",
      "stauts is no part of an HTTP answer: did you mean status%?" },
    { "fallback.default { headers = {}, ttl = 5 }", "fallback[1]",
      "ttl is no part of an HTTP answer %(" },
    { "fallback.default { status = 200, 'x' }",   "fallback[1]",
      "1 is no part of an HTTP answer %(" },
    { "fallback.default { headers = {} }",        "fallback[1]",
      "headers alone are no HTTP answer: add a status or a body$" },
    { "fallback.default { status = 200, headers = { ['X A'] = 'b' } }", "fallback[1]",
      'headers: "X A" is no name of a header$' },
    { "fallback.default { status = 200, headers = { [''] = 'b' } }", "fallback[1]",
      'headers: "" is no name of a header$' },
    { "fallback.default { status = 200, headers = { ['X-A'] = 'b\\r\\nX-B: c' } }", "fallback[1]",
      'headers: X%-A is "b\\r\\nX%-B: c", with a control character in it$' },
    { "fallback.default { status = 200, headers = { ['X-A'] = {} } }", "fallback[1]",
      "headers: X%-A is a table: a text is needed$" },
    { "fallback.default { status = 200, headers = { 'X-A', 'a', 'X-B' } }", "fallback[1]",
      "headers: the list ends with a name, without a value$" },
    { "fallback.default { status = 200, headers = { 'X A', 'a' } }", "fallback[1]",
      'headers: "X A" is no name of a header$' },
    { "fallback.default { status = 200, headers = { 'X-A', 'a', ['X-B'] = 'b' } }", "fallback[1]",
      "headers: is a list, and has names besides$" },
    { "fallback.last_good(5)",                    "fallback[1]",
      "^5: a table of options is needed$" },
    { "fallback.last_good { max_age = 5 }",       "fallback[1].max_age",
      "write max_age_ms = 5 for 5 milliseconds, or" },
    { "fallback.last_good { max_entries = 0 }",   "fallback[1].max_entries", "^0 is out of range" },
    { "fallback.last_good { key = 'id' }",        "fallback[1].key",
      '^"id": a function is needed$' },
    { "fallback.fail { status = 200 }",           "fallback[1].status",
      "^200 is out of range: a whole number from 400 to 599$" },
    { "fallback.fail { stauts = 503 }",           "fallback[1].stauts", "did you mean status%?$" },
    { "fallback.guard('')",                       "fallback[1].name",
      '^"": a text that is not empty is needed$' },
    { "fallback.call(5)",                         "fallback[1].run", "^5: a function is needed$" },
    { "fallback.default(1, { timeout_ms = 0 })",  "fallback[1].timeout_ms", "^0 is out of range" },
    { "fallback.lastgood {}",                     nil,
      "fallback%.lastgood is not known: did you mean last_good%?$" },
    { "fallback.last_good",                       "fallback[1]",
      "^is fallback%.last_good itself, not a stage it makes: call it$" },
    { "[2] = function() end, nil",                "fallback[1]", "^is nil: a stage is missing" },
    { "x = function() end",                       'fallback["x"]',
      "^is no place in a list of stages$" },
  } do
    it("is refused, with its place: " .. case[1], function()
      local p, err = parse("fallback = {\n" .. case[1] .. "\n}")
      assert.is_nil(p)
      assert.equal(case[2], err.key)
      assert.matches(case[3], err.message)
      if case[2] and case[2]:find("^fallback%[1%]")
        and not case[1]:find("nil$") then assert.equal(5, err.line) end
    end)
  end
end)

describe("a warning", function()
  for _, case in ipairs {
    { "trip = { failures = 5, minimum_calls = 20 },",
      "policies/x.lua:3: trip.minimum_calls: has no effect: it is for rates, and there is no rule "
        .. "of that kind" },
    { "timeout_ms = 100,\ntrip = { failures = 1, slow_call_ms = 100 },",
      "policies/x.lua:4: trip.slow_call_ms: no call is slow: at timeout_ms = 100 it is given up" },
    { "fallback = { fallback.default(1),\nfallback.last_good {} },",
      "policies/x.lua:5: fallback[2]: is never asked: fallback[1] always answers" },
    { 'fallback_on = { "refused" },',
      "policies/x.lua:4: fallback_on: has no effect: there is no fallback" },
    { "timeout_ms = 500,\nwindow = { length_ms = 2000 },\ntrip = { failures = 5 },",
      "policies/x.lua:5: trip.failures: one caller of a dependency that hangs never opens it: 5 "
        .. "calls of timeout_ms = 500 take longer than window.length_ms = 2000; add "
        .. "trip.consecutive_failures" },
    { "timeout_ms = 501,\ntrip = { failure_rate = 0.5, minimum_calls = 20 },",
      "policies/x.lua:4: trip.minimum_calls: one caller of a dependency that hangs never opens it: "
        .. "20 calls of timeout_ms = 501 take longer than window.length_ms = 10000; add "
        .. "trip.consecutive_failures" },
    { "timeout_ms = 1001,\ntrip = { slow_rate = 0.5, slow_call_ms = 5 },",
      "policies/x.lua:4: trip: one caller of a dependency that hangs never opens it: 10 calls of "
        .. "timeout_ms = 1001 take longer than window.length_ms = 10000; add "
        .. "trip.consecutive_failures" },
  } do
    it("says what is allowed but was hardly meant: " .. case[2], function()
      assert.same({ case[2] }, load(case[1]).warnings)
    end)
  end

  for _, text in ipairs {
    "timeout_ms = 500,\nwindow = { length_ms = 2500 },\ntrip = { failures = 5 },",
    "timeout_ms = 500,\nwindow = { length_ms = 2000 },\n"
      .. "trip = { failures = 5, consecutive_failures = 6 },",
    'timeout_ms = 5000,\nwindow = { kind = "count" },\ntrip = { failures = 5 },',
    "timeout_ms = 5000,\ntrip = { decide = function() end, failures = 5 },",
    "timeout_ms = 1000,\ntrip = { failures = 20, failure_rate = 0.5 },",
    "timeout_ms = 1000,\ntrip = { failures = 5, failure_rate = 0.5, minimum_calls = 50 },",
    "window = { length_ms = 100 },\ntrip = { failures = 5 },",
  } do
    it("is not given where a hang opens it: " .. text, function()
      assert.same({}, load(text).warnings)
    end)
  end

  it("is not given of the policies that come along", function()
    for _, name in ipairs { "flag_provider", "grpc_service", "http_upstream", "low_traffic",
      "payments", "slow_dependency" } do
      assert.same({}, assert(policy.load(("policies/%s.lua"):format(name))).warnings)
    end
  end)
end)
