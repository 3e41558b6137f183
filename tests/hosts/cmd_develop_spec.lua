--- neap new and neap test: for those who write policies.

local cmd = require "neap.cmd"
local fixture = require "tests.lua.policy_fixture"
local json = require "neap.cmd.json"
local kinds = require "neap.cmd.kinds"
local version = require "tests.lua.version"

local neap = assert(os.getenv("NEAP_BIN"), "NEAP_BIN is not set")

local directory, remove, out, err

before_each(function() directory, remove = fixture.directory {} end)
after_each(function() remove() end)

local function read(path)
  local file = io.open(path)
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

--- Runs a shell command: its exit status, and what it printed.
local function sh(command)
  local pipe = io.popen(("{ %s\n} 2>&1; echo \"status $?\""):format(command))
  local text, status = pipe:read("*a"):match("^(.*)status (%d+)\n$")
  pipe:close()
  return tonumber(status), text
end

--- Runs `neap ARGUMENTS` in the directory.
local function run(arguments)
  local status, text = sh(("cd %s && '%s' %s"):format(directory, neap, arguments))
  out = text
  return status
end

--- Runs the command in this Lua: on a terminal, if there are answers to its questions.
local function new(argv, answers)
  table.insert(argv, 1, "new")
  out, err = "", ""
  return cmd.main(argv, {
    version = "1.2.3", is_terminal = function() return answers ~= nil end,
    uptime_ms = os.time,
    env = function() end,
    out = function(text) out = out .. text end, err = function(text) err = err .. text end,
    read = function() return table.remove(answers, 1) end,
  })
end

local function says(text, where)
  where = where or out
  assert.is_truthy(where:find(text, 1, true), ("%q is not in:\n%s"):format(text, where))
end

describe("neap new", function()
  for _, kind in ipairs(kinds.list) do
    it(("--kind %s writes what passes neap check and neap test"):format(kind.name), function()
      assert.equal(0, run(("new search --kind %s </dev/null"):format(kind.name)))
      says "search.lua and search_spec.lua are written. Next:\n\n  neap check search.lua\n"
      says "  neap test search.lua\n"
      assert.equal(0, run "check search.lua")
      assert.is_falsy(out:find("warning", 1, true), out)
      assert.equal(0, run "test search.lua")
      assert.equal(0, run "test .")
    end)
  end

  it("writes what passes with other numbers, too, and what busted runs", function()
    for _, kind in ipairs(kinds.list) do
      for _, numbers in ipairs { { 2, 1 }, { 19, 100000 } } do
        local name = ("%s_%d"):format(kind.name, numbers[1])
        assert.equal(0, new { name, "--kind", kind.name, "--dir", directory,
          "--failures", tostring(numbers[1]), "--timeout-ms", tostring(numbers[2]) }, err)
      end
    end
    assert.equal(0, run "check .")
    assert.equal(0, run "test .", out)
    local status, text = sh(("%s tests/support/busted.lua -o TAP %s"):format(version.command,
      directory))
    assert.equal(0, status, text)
    says("1..42", text)
  end)

  it("never writes over a file that is there, and then writes nothing", function()
    for _, path in ipairs { "/a.lua", "/b_spec.lua" } do
      fixture.write(directory .. path, "mine")
      local name = path:match "%a"
      assert.equal(1, new { name, "--dir", directory })
      says(("neap new: %s%s: is there already, and stays as it is\n"):format(directory, path), err)
      assert.equal("mine", read(directory .. path))
    end
    assert.is_nil(read(directory .. "/a_spec.lua"))
    assert.is_nil(read(directory .. "/b.lua"))
  end)

  it("writes nothing where it cannot", function()
    local none = directory .. "/none"
    assert.equal(1, new { "a", "--dir", none })
    assert.equal(("neap new: %s: there is no such directory: mkdir -p %s makes it\n"):format(none,
      none), err)
  end)

  it("writes into policies, where there is one", function()
    assert.equal(0, run "new a </dev/null && mkdir policies")
    assert.equal(0, run "new b </dev/null")
    assert.is_string(read(directory .. "/a.lua"))
    assert.is_string(read(directory .. "/policies/b.lua"))
    says "neap serve --upstream http://127.0.0.1:8016 --policy policies/b.lua"
  end)

  it("asks a few questions on a terminal, and takes an empty answer for the default", function()
    assert.equal(0, new({ "a", "--dir", directory }, { "grpc", "", "700" }))
    says "What is called?\n  http      an HTTP service\n  grpc      a gRPC service\n"
    says "Kind [http] How many failures in a row open it? [5] After how many ms is a call too late?"
    local text = read(directory .. "/a.lua")
    says("classify = classify.grpc", text)
    says("consecutive_failures = 5,", text)
    says("timeout_ms = 700,", text)
    assert.is_nil(text:find("FAILURES", 1, true))
    assert.is_nil(read(directory .. "/a_spec.lua"):find("TIMEOUT_MS", 1, true))
  end)

  it("says what is wrong with an answer, and asks again, and not for ever", function()
    assert.equal(0, new({ "a", "--dir", directory }, { "htpp", "rare", "1", "x", "99" }))
    says "Kind [http]   must be one of http, grpc, flags, queue, function, rare: did you mean "
    says "How many failures in a row open it? [3]   must be a whole number, 2 to 19\n"
    says("consecutive_failures = 3 }", read(directory .. "/a.lua"))
  end)

  it("does not ask for what an option says, nor at the end of its input", function()
    assert.equal(0, new({ "a", "--dir", directory, "--kind", "queue", "--timeout-ms", "5" }, {}))
    assert.is_falsy(out:find("Kind", 1, true))
    says "How many failures in a row open it? [5] "
    assert.is_falsy(out:find("too late", 1, true))
  end)

  for _, case in ipairs {
    -- arguments                     what is said
    { {},                            "which name? E.g. neap new search" },
    { { "a", "b" },                  "one name at a time, not b" },
    { { "policies/a" },              "policies/a: is a path: write neap new NAME --dir DIRECTORY" },
    { { "a.lua" },                   "a.lua: a name has no .lua at its end" },
    { { "a b" },                     "a b: a name has letters, digits, _ - and . in it" },
    { { "a_spec" },                  "a_spec: names of specs end like that" },
    { { "a", "--kind", "htpp" },     "function, rare: did you mean http?" },
    { { "a", "--failures", "1" },    "--failures 1: must be a whole number, 2 to 19" },
    { { "a", "--failures", "20" },   "--failures 20: must be a whole number, 2 to 19" },
    { { "a", "--timeout-ms", "1s" }, "must be a whole number of ms, 1 to 3599999" },
    { { "a", "--dri", "x" },         "unknown option --dri; did you mean --dir?" },
  } do
    it("says what is wrong: " .. case[2], function()
      assert.equal(2, new(case[1]))
      assert.is_truthy(err:find("^neap new: [^\n]+ [sS]ee neap new %-%-help\n$"), err)
      says(case[2], err)
    end)
  end
end)

local GOOD = [[
local t = require "neap.testing"
t.describe("x", function()
  t.it("is closed", function() t.policy("x.lua"):is "closed" end)
  t.it("opens after five failures", function()
    t.policy("x.lua"):calls(5, 503):counts_as "failure"
  end)
end)
]]
local BAD = [[
local t = require "neap.testing"
t.describe("x", function()
  t.it("opens too early", function()
    local x = t.policy "x.lua"
    x:calls(4, 503)
    x:is "open"
  end)
  t.it("has a bug", function() local x = nil x.y = 1 end)
  t.pending "is not written"
  t.it("is good", function() end)
end)
]]

describe("neap test", function()
  before_each(function() fixture.write(directory .. "/x.lua", fixture.text "") end)

  it("runs a spec, those of a policy, and all of a directory, each file once", function()
    fixture.write(directory .. "/x_spec.lua", GOOD)
    fixture.write(directory .. "/x_test.lua", GOOD)
    sh("mkdir " .. directory .. "/below")
    fixture.write(directory .. "/below/y_spec.lua",
      "require('neap.testing').it('y', function() end)")
    assert.equal(0, run "test x_spec.lua")
    assert.equal("x_spec.lua\n  ok    x is closed\n  ok    x opens after five failures\n\n",
      out:match("^.-\n\n"))
    says "2 tests in 1 file: 2 passed (0."
    assert.equal(0, run "test x.lua")
    says "4 tests in 2 files: 4 passed"
    assert.equal(0, run "test . x.lua ./x_test.lua")
    says "below/y_spec.lua\n  ok    y\n"
    says "9 tests in 5 files: 9 passed" -- ./x_spec.lua is another name than x_spec.lua
  end)

  it("says what is not so, where, and how it came to that; goes on; and its status is 1", function()
    fixture.write(directory .. "/x_spec.lua", BAD)
    assert.equal(1, run "test x_spec.lua")
    says [[
  FAIL  x opens too early

        x_spec.lua:6: the breaker is closed; expected: the breaker is open

        at ms  what         came to  breaker  and
            0  call 1: 503  failure  closed   1 of 1 failed
               (2 more like it)
            0  call 4: 503  failure  closed   4 of 4 failed, 4 in a row
            0  expected at x_spec.lua:6: the breaker is open

  ERR   x has a bug

        x_spec.lua:8: attempt to index a nil value (local 'x')

  --    x is not written
  ok    x is good

4 tests in 1 file: 1 passed, 1 failed, 1 in error, 1 pending (0.]]
    assert.is_falsy(out:find("\27", 1, true))
  end)

  it("has colours on a terminal, unless NO_COLOR is set", function()
    fixture.write(directory .. "/x_spec.lua", BAD)
    local on_terminal = [[script -qec '"%s" test x_spec.lua' /dev/null]]
    local status, text = sh(("cd %s && TERM=xterm %s"):format(directory, on_terminal:format(neap)))
    assert.equal(1, status)
    says("\27[31mFAIL\27[0m", text)
    says("\27[32mclosed \27[0m", text)
    text = select(2, sh(("cd %s && TERM=xterm NO_COLOR=1 %s"):format(directory,
      on_terminal:format(neap))))
    assert.is_falsy(text:find("\27", 1, true))
  end)

  it("says the same as JSON", function()
    fixture.write(directory .. "/x_spec.lua", BAD)
    assert.equal(1, run "test --json x_spec.lua")
    local said = assert(json.decode(out))
    assert.same({ passed = 1, failed = 1, error = 1, pending = 1 }, said.counts)
    assert.is_false(said.ok)
    assert.equal(4, #said.tests)
    local failed = said.tests[1]
    assert.same({ "x_spec.lua", "x opens too early", "failed", 3, "x_spec.lua:6" },
      { failed.file, failed.name, failed.status, failed.line, failed.at })
    assert.equal("call 1: 503", failed.timeline[1].what)
    assert.equal("closed", failed.timeline[4].state)
    assert.same({}, said.not_loaded)
  end)

  it("runs only tests with a text in their names", function()
    fixture.write(directory .. "/x_spec.lua", GOOD)
    assert.equal(0, run "test x_spec.lua --filter 'five failures'")
    says "1 test in 1 file: 1 passed"
    assert.equal(2, run "test x_spec.lua --filter tide")
    says 'neap test: no test has "tide" in its name; see neap test --help'
  end)

  it("goes on after a file that does not load, and its status is 1", function()
    fixture.write(directory .. "/a_spec.lua", "local = 5")
    fixture.write(directory .. "/x_spec.lua", GOOD)
    assert.equal(1, run "test a_spec.lua x_spec.lua")
    says "neap test: a_spec.lua:1: <name> expected near '='\n"
    says "2 tests in 2 files: 2 passed, 1 file not loaded ("
  end)

  it("says what is wrong with a policy, by its file and line", function()
    fixture.write(directory .. "/x.lua", "return { name = 'x', trip = { failure = 5 } }")
    fixture.write(directory .. "/x_spec.lua", GOOD)
    assert.equal(1, run "test x.lua")
    says "x_spec.lua:3: x.lua:1: trip.failure: is not a key: did you mean failures?"
  end)

  for _, case in ipairs {
    -- arguments      what is said
    { "",             "which? Name specs, policies or directories, e.g. neap test policies; see" },
    { "none.lua",     "none.lua: there is no such file" },
    { "x.lua",        "x.lua: has no spec beside it (x_spec.lua); neap new writes one with" },
    { "lib",          "lib: there is no *_spec.lua or *_test.lua in it" },
    { "--flter x",    "unknown option --flter; did you mean --filter?" },
    { "--filter",     "--filter needs a value, e.g. 'after five'" },
  } do
    it("says what is wrong: " .. case[2], function()
      assert.equal(2, run("test " .. case[1]))
      says("neap test: " .. case[2])
    end)
  end

  it("says that there is no test in a file, and its status is 2", function()
    fixture.write(directory .. "/x_spec.lua", "")
    assert.equal(2, run "test x_spec.lua")
    says "neap test: there is no test in x_spec.lua"
  end)
end)

describe("a directory of policies", function()
  it("may have their specs in it: they are no policies", function()
    fixture.write(directory .. "/x.lua", fixture.text "")
    fixture.write(directory .. "/x_spec.lua", GOOD)
    fixture.write(directory .. "/x_test.lua", GOOD)
    assert.equal(0, run "check .")
    local reload = require "neap.reload"
    local loaded = {}
    assert(reload.open {
      paths = { directory }, now = function() return 0 end, on_event = function() end,
      adopt = function(policy) loaded[#loaded + 1] = policy.name return true end,
    })
    assert.same({ "x" }, loaded)
  end)
end)
