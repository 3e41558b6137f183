--- What a policy declares of its params, and what is made of what a deployment sets.

local policy = require "neap.policy"
local settings = require "neap.settings"

local HEAD = [[
params.declare {
  timeout_ms = { type = "ms", min = 50, max = 2000, default = 300, doc = "of one call" },
  failures = { type = "whole", min = 1, default = 5 },
  rate = { type = "share" },
  factor = { type = "number", default = 1.5 },
  text = { type = "text", default = "" },
  on = { type = "boolean", default = false },
  defaults = { type = "table", default = { a = 1 } },
  region = { type = "choice", choices = { "eu", "us" }, default = "eu" },
}
]]

local function parse(head, options)
  return policy.parse(head .. [[
return {
  name = "x", trip = { failures = params.failures or 5 }, timeout_ms = params.timeout_ms,
  fallback = { fallback.default { seen = params } },
}]], "p/x.lua", options)
end

local function set(name, value) return { name = name, value = value, from = "the program" } end
local function text(name, given) return { name = name, text = given, from = "admin, by ann" } end
local function env(name, given)
  return { env = name, text = given, from = "NEAP_PARAM_X__" .. name }
end
local function in_file(name, value)
  return { name = name, value = value, from = "prod.lua:3", file = "prod.lua", line = 3 }
end

describe("params.declare", function()
  it("gives every param its default, and the policy sees them", function()
    local p = assert(parse(HEAD, { params = {} }))
    assert.equal(300, p.timeout_ms)
    assert.same({
      timeout_ms = 300, failures = 5, factor = 1.5, text = "", on = false, defaults = { a = 1 },
      region = "eu",
    }, p.params)
    assert.is_true(p.declares)
  end)

  it("takes what is set, each from where it was set last", function()
    local p = assert(parse(HEAD, { settings = {
      in_file("timeout_ms", 500), in_file("failures", 7), in_file("defaults", { b = 2 }),
      env("TIMEOUT_MS", "600"), env("RATE", ".5"), env("ON", "true"), env("FACTOR", "-2e3"),
      text("timeout_ms", "700"), text("region", "us"), set("text", "7"),
    } }))
    assert.same({
      timeout_ms = 700, failures = 7, factor = -2000, rate = 0.5, text = "7", on = true,
      defaults = { b = 2 }, region = "us",
    }, p.params)
    local from = {}
    for _, row in ipairs(p.parameters) do from[row.name] = row.from end
    assert.same({
      timeout_ms = "admin, by ann", failures = "prod.lua:3", rate = "NEAP_PARAM_X__RATE",
      factor = "NEAP_PARAM_X__FACTOR", text = "the program", on = "NEAP_PARAM_X__ON",
      defaults = "prod.lua:3", region = "admin, by ann",
    }, from)
  end)

  it("is there to be read: type, range, default, value and where it is from", function()
    local rows = assert(parse(HEAD, { settings = { in_file("timeout_ms", 500) } })).parameters
    assert.equal(8, #rows)
    assert.same({
      name = "timeout_ms", type = "ms", min = 50, max = 2000, default = 300, doc = "of one call",
      value = 500, from = "prod.lua:3",
    }, rows[8])
    assert.same({ name = "rate", type = "share", from = "default" }, rows[5])
  end)

  for _, case in ipairs {
    -- what is set                     what is said
    { in_file("timeout_ms", 20),
      "prod.lua:3: x.timeout_ms: 20 is out of range: a whole number "
      .. "of milliseconds from 50 to 2000" },
    { set("timeout_ms", 1.5e9),        "p/x.lua: params.timeout_ms: 1500000000 is out of range" },
    { set("timeout_ms", 99.5),         "p/x.lua: params.timeout_ms: 99.5 is not whole" },
    { set("timeout_ms", "300"),        'params.timeout_ms: "300" is not a number' },
    { set("timeout_ms", 0 / 0),        "params.timeout_ms: nan is not a number" },
    { set("factor", math.huge),        "params.factor: inf is out of range: a number" },
    { set("failures", 0),
      "params.failures: 0 is out of range: a whole number, 1 or more" },
    { set("rate", 50),                 "params.rate: 50 is out of range: a share from 0 to 1" },
    { set("text", 5),                  "params.text: 5: a text is needed" },
    { set("on", "yes"),                'params.on: "yes": true or false is needed' },
    { set("defaults", 5),              "params.defaults: 5: a table is needed" },
    { set("region", "EU"),
      'params.region: "EU" is not one of "eu", "us": did you mean eu?' },
    { set("timout_ms", 300),
      "params.timout_ms: the policy declares no such parameter: did "
      .. "you mean timeout_ms?" },
    { set(1, 300),                     "params.1: the policy declares no such parameter" },
    -- B145: an environment variable of 0 or less, or with a unit, is no duration.
    { env("TIMEOUT_MS", "0"),          "NEAP_PARAM_X__TIMEOUT_MS: 0 is out of range" },
    { env("TIMEOUT_MS", "-5"),         "NEAP_PARAM_X__TIMEOUT_MS: -5 is out of range" },
    { env("TIMEOUT_MS", "5s"),         'NEAP_PARAM_X__TIMEOUT_MS: "5s" is not a number' },
    { env("TIMEOUT_MS", "0x64"),       'NEAP_PARAM_X__TIMEOUT_MS: "0x64" is not a number' },
    { env("TIMEOUT_MS", ""),           'NEAP_PARAM_X__TIMEOUT_MS: "" is not a number' },
    { env("TIMOUT_MS", "300"),         "NEAP_PARAM_X__TIMOUT_MS: the policy declares no such "
      .. "parameter: did you mean TIMEOUT_MS?" },
    { env("ON", "1"),                  'NEAP_PARAM_X__ON: "1": true or false is needed' },
    { env("DEFAULTS", "{}"),
      "NEAP_PARAM_X__DEFAULTS: a table can't be written as a text" },
    { text("region", "asia"),          'admin, by ann: params.region: "asia" is not one of' },
  } do
    it("refuses what is not as declared (B142, B148): " .. case[2], function()
      local p, err = parse(HEAD, { settings = { case[1] } })
      assert.is_nil(p)
      assert.equal(1, #err.all)
      assert.is_truthy(tostring(err):find(case[2], 1, true), tostring(err))
    end)
  end

  it("refuses all of it if one is wrong, and says everything that is (B121)", function()
    local p, err = parse(HEAD, { settings = {
      in_file("timeout_ms", 500), env("ON", "maybe"), in_file("failures", 0),
    } })
    assert.is_nil(p)
    assert.equal(2, #err.all)
  end)

  for _, case in ipairs {
    -- declaration                                            what is said
    { "5",
      "params.declare: 5: a table is needed" },
    { "{ a = 5 }",
      "params.declare: a: 5: a table is needed" },
    { "{ a = {} }",
      "params.declare: a: type is missing" },
    { '{ a = { type = "msec" } }',                            'a: type = "msec": must be one of' },
    { '{ a = { type = "ms", defualt = 5 } }',
      "a: defualt is not known: did you mean default?" },
    { '{ a = { type = "ms", default = -1 } }',                "a: default: -1 is out of range" },
    { '{ a = { type = "ms", default = 1.5 } }',               "a: default: 1.5 is not whole" },
    { '{ a = { type = "ms", min = 5, max = 4 } }',            "a: min = 5 is more than max = 4" },
    { '{ a = { type = "ms", min = "5" } }',                   'a: min: "5" is not a number' },
    { '{ a = { type = "text", min = 5 } }',                   "a: min: a text has none" },
    { '{ a = { type = "choice" } }',
      "a: choices: a list of texts is needed" },
    { '{ a = { type = "choice", choices = { 1 } } }',
      "a: choices: a list of texts is needed" },
    { '{ a = { type = "text", choices = { "x" } } }',         "a: choices: a text has none" },
    { '{ a = { type = "choice", choices = { "x" }, default = "y" } }',
      'a: default: "y" is not one of "x"' },
    { '{ a = { type = "table", default = { print = next } } }', "a function: params are numbers" },
    { '{ ["a b"] = { type = "ms" } }',                        '"a b" is no name of a parameter' },
    { '{ by = { type = "text" } }',                           "by is no name for a parameter" },
    { '{ a = { type = "ms" }, A = { type = "ms" } }',
      "are one name in the environment, A" },
  } do
    it("is itself checked: " .. case[1], function()
      local p, err = parse("\nparams.declare(" .. case[1] .. ")\n", {})
      assert.is_nil(p)
      assert.equal(2, err.line)
      assert.is_truthy(tostring(err):find(case[2], 1, true), tostring(err))
    end)
  end

  it("makes a name that is not declared an error, where it is read", function()
    local p, err = parse(HEAD .. "local x = params.timout_ms\n", {})
    assert.is_nil(p)
    assert.equal(11, err.line)
    assert.is_truthy(err.message:find("params.timout_ms is not declared: did you mean timeout_ms?",
      1,
      true), err.message)
  end)

  it("is called once, and while the file is loaded", function()
    local _, err = parse(HEAD .. "params.declare {}\n", {})
    assert.is_truthy(tostring(err):find("params.declare: is called twice", 1, true), tostring(err))
    local p = assert(policy.parse([[
      local declare = params.declare
      return { name = "x", trip = { failures = 5 },
        classify = function(call) if call.late then declare {} end return "success" end }]],
          "x.lua"))
    local _, _, _, fault = p.classify { late = true }
    assert.is_truthy(fault:find("belongs at the top of the file", 1, true), fault)
  end)

  it("comes before whatever reads a param, also a module: that would miss what is set", function()
    local files = {
      ["p/x.lua"] = 'local m = require "m"\n' .. HEAD:gsub("\n", " ")
        .. '\nreturn { name = "x", trip = { failures = m.failures or 99 } }',
      ["p/m.lua"] = "return { failures = params.failures }",
    }
    local function load(given)
      return policy.load("p/x.lua", { settings = given, read = function(path)
        return files[path], path .. ": No such file or directory"
      end })
    end
    local late = "p/x.lua:2: params.declare: comes too late, params.failures has been read: it "
      .. "belongs at the top of the file, before require"
    for _, given in ipairs {
      {}, { env("FAILURES", "7") }, { in_file("failures", 6), text("failures", "7") },
    } do
      local p, err = load(given)
      assert.same({ nil, late }, { p, tostring(err) })
    end
    files["p/x.lua"] = HEAD .. 'local m = require "m"\n'
      .. 'return { name = "x", trip = { failures = m.failures } }'
    assert.equal(7, assert(load { env("FAILURES", "7") }).config.trip.failures)
    assert.equal(5, assert(load {}).config.trip.failures)
  end)

  it("is nobody else's: the policy may change what it is given", function()
    local given = { defaults = { a = { 1 } } }
    local p = assert(policy.parse([[
      params.declare { defaults = { type = "table" } }
      params.defaults.a[1] = 9
      return { name = "x", trip = { failures = params.defaults.a[1] } }]], "x.lua",
      { params = given }))
    assert.same({ defaults = { a = { 1 } } }, given)
    assert.same({ defaults = { a = { 1 } } }, p.params)
    assert.equal(9, p.config.trip.failures)
  end)

  it("is in the policy's hash, as any change of a value in force (B124)", function()
    local function hash(options) return assert(parse(HEAD, options)).hash end
    local base = hash {}
    assert.equal(base, hash { params = { timeout_ms = 300 } })
    assert.are_not.equal(base, hash { params = { timeout_ms = 301 } })
    assert.are_not.equal(base, (assert(parse((HEAD:gsub("= 300", "= 301")), {})).hash))
  end)
end)

describe("a policy that declares nothing", function()
  local UNDECLARED = 'return { name = "x", trip = { failures = params.n or 5 } }'

  it("takes what it is given, as it is", function()
    local p = assert(policy.parse(UNDECLARED, "x.lua", { params = { n = 7, 1, { 2 } } }))
    assert.same({ n = 7, 1, { 2 } }, p.params)
    assert.equal(7, p.config.trip.failures)
    assert.is_false(p.declares)
    assert.same({ name = "n", value = 7, from = "the program" }, p.parameters[3])
  end)

  it("is not said to declare nothing if it has a mistake that kept it from that", function()
    local _, err = policy.parse("oops", "x.lua", { settings = { env("N", "7") } })
    assert.is_truthy(tostring(err):find("^x.lua:1: .*near"), tostring(err))
  end)

  it("can't be given a text, which stands for nobody knows what", function()
    local _, err = policy.parse(UNDECLARED, "x.lua", { settings = { env("N", "7") } })
    assert.equal("NEAP_PARAM_X__N: the policy declares no parameters, so nobody knows what that "
      .. "text stands for: it needs params.declare { … }", tostring(err))
  end)
end)

describe("settings", function()
  local function overlaid(...)
    local list = {}
    for i, values in ipairs { ... } do
      list = settings.overlaid(list, values, "f" .. i, function() return i end)
    end
    local values, from = {}, {}
    for _, entry in ipairs(list) do values[entry.name], from[entry.name] = entry.value,
      entry.from end
    return values, from
  end

  it("of several files are merged, name by name; a list, and all that is no table, is replaced",
    function()
      local base = { a = 1, t = { x = { p = 1, q = 2 }, y = 1 }, l = { 1, 2, 3 }, e = { k = 1 } }
      local values, from = overlaid(base, { b = 2, t = { x = { q = 3 }, z = 1 }, l = { 9 } },
        { t = { y = { 4 } }, e = 5 })
      assert.same({
        a = 1, b = 2, t = { x = { p = 1, q = 3 }, y = { 4 }, z = 1 }, l = { 9 }, e = 5,
      }, values)
      assert.same({ a = "f1:1", b = "f2:2", t = "f3:3", l = "f2:2", e = "f3:3" }, from)
      assert.same({ p = 1, q = 2 }, base.t.x) -- nothing that is read is changed
    end)

  it("of the environment go to the policy that they name, whatever is in its name", function()
    local by_policy, problems = settings.environment({
      NEAP_PARAM_FLAG_PROVIDER__TIMEOUT_MS = "1", NEAP_PARAM_A_B_2__X__Y = "2",
    }, { "flag_provider", "a-b.2", "a" })
    assert.same({}, problems)
    assert.same({ { env = "TIMEOUT_MS", text = "1",
      from = "NEAP_PARAM_FLAG_PROVIDER__TIMEOUT_MS" } },
      by_policy.flag_provider)
    assert.equal("X__Y", by_policy["a-b.2"][1].env)
  end)

  for _, case in ipairs {
    -- variable                   what is said
    { "NEAP_PARAM_FLAGZ__X",      "there is no such policy: did you mean FLAGS?" },
    { "NEAP_PARAM_FLAGS_X",       "must be NEAP_PARAM_POLICY__NAME" },
    { "NEAP_PARAM_FLAGS__",       "must be NEAP_PARAM_POLICY__NAME" },
    { "NEAP_PARAM_A_B__X",        "is for a-b and a_b" },
  } do
    it("of the environment that are for nobody are errors: " .. case[1], function()
      local by_policy, problems = settings.environment({ [case[1]] = "1" }, { "flags", "a-b",
        "a_b" })
      assert.same({}, by_policy)
      assert.equal(case[1] .. ": " .. case[2], tostring(problems[1]))
    end)
  end
end)
