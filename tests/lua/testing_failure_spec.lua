--- neap.testing: what it says where something is not as expected, or a spec has a mistake, and how
--- specs run without busted.
local fixture = require "tests.lua.policy_fixture"
local on = require "tests.lua.testing_fixture"
local t = require "neap.testing"
local version = require "tests.lua.version"

local has = on.has
local function bench_of(lines, options) return t.policy(on.policy(lines), options) end

--- What it is told is wrong.
local function told(f, ...)
  local ok, err = pcall(f, ...)
  assert.is_false(ok, "nothing is wrong")
  return tostring(err)
end

setup(on.begin)
teardown(on.finish)

describe("what is expected and not so", function()
  --- "FILE:LINE" of the line after the one that calls this.
  local function next_line()
    local info = debug.getinfo(2, "Sl")
    return ("%s:%d: "):format(info.source:gsub("^@", ""), info.currentline + 1)
  end

  local cases = {
    -- expectation of a bench x, and what is said
    { [[x:is "open"]],
      "the breaker is closed; expected: the breaker is open" },
    { [[x:calls_until("open", 503):call():is_refused "ramp"]],
      "call 6 was refused: open; expected: it is refused: ramp" },
    { [[x:calls_until("open", 503):stays_open_for(6001)]],
      "expected: it stays open for 6001 to 7202 ms" },
    { [[x:calls_until("open", 503):stays_open_for(4000, 4999)]],
      "expected: it stays open for 4000 to 4999 ms" },
    { [[x:call(200):is_answered_by("primary", 5)]],
      "call 1 was answered by primary; expected: it is answered by primary, 5 ms old" },
    { [[x:call(200):gives(function() return false end)]],
      "expected: it gives what a function of the spec says" },
    { [[x:call(200):is_of "tide"]],
      'call 1 is of the key "default"; expected: it is of the key "tide"' },
    { [[x:is("closed", "probes")]],
      "the breaker is closed; expected: the breaker is closed, by probes" },
    { [[x:stays_open_for(5)]],
      "the breaker is closed; expected: the breaker is open" },
    { [[x:cool_down()]],
      "the breaker is closed; expected: the breaker is open, to cool down" },
    { [[x:at("eu"):call(503); x:is "open"]],
      "the breaker of the key default is closed; expected: the breaker of the key default is" },
    { [[x:at("eu"):call(503):counts_as "failure"; x:at("eu"):is "open"]],
      "the breaker of the key eu is closed; expected: the breaker of the key eu is open" },
    { [[x:at("eu"):call(503); x:cool_down()]],
      "expected: the breaker of the key default is open, to cool down" },
    { [[x:at("eu"):calls_until("half_open", 200)]],
      "after 10000 calls the breaker of the key eu is closed; expected: the breaker of the key" },
    { [[x:has_gone_to("open")]],
      "it has not moved; expected: it has gone to: open" },
    { [[x:has_logged "tide"]],
      "it has logged nothing; expected: it has logged: tide" },
    { [[x:has_queued(1)]],
      "in its queues: 0 calls; expected: in its queues: 1 call" },
    { [[x:has_shadow {}]],
      "it has no shadow; expected: its shadow has {  }" },
    { [[x:calls_until("half_open", 200)]],
      "after 10000 calls the breaker is closed; expected: the breaker is half_open" },
    { [[x:call(200):counts_as "failure"]],
      "call 1 counts as success; expected: it counts as failure" },
    { [[x:call(404):counts_as("neutral", "x")]],
      "call 1 counts as neutral (status 404); expected: it counts as neutral (x)" },
    { [[x:call(200):is_refused()]],
      "call 1 counts as success; expected: it is refused" },
    { [[x:call(200):is_a_probe()]],
      "call 1 was let in as any call is; expected: it is a probe" },
    { [[x:call(200):is_answered_by "default"]],
      "call 1 was answered by primary; expected: it is answered by default" },
    { [[x:call(200):gives { body = "b" }]],
      'gave { body = "", headers = {  }, status = 200 }; expected: it gives { body = "b" }' },
    { [[x:call(200):fails_with "open"]],
      'call 1 has no error; expected: it fails with "open"' },
    { [[x:call(200):is_tried(2)]],
      "call 1 was tried 1 time; expected: it is tried 2 times" },
    { [[x:call(200):takes(5)]],
      "call 1 took 0 ms; expected: it takes 5 ms" },
    { [[x:calls(9, 200):counts_as "neutral"]],
      "call 1 (one of 9) counts as success; expected: it counts as neutral" },
    { [[x:start():counts_as "success"]],
      "call 1 is under way; expected: it counts as success" },
  }
  for _, case in ipairs(cases) do
    it("is said: " .. case[2]:match("expected: (.*)"), function()
      has(told(assert(version.compile("local x = ... " .. case[1])), bench_of ""), case[2])
    end)
  end

  it("is told with its place, and a table of what happened", function()
    local x = bench_of "timeout_ms = 500, trip = { failures = 5 }"
    x:calls(2, 503, { every_ms = 400 })
    x:call "timeout"
    x:calls(4, 404)
    x:call(nil, { request = { method = "GET", target = "/a" }, deadline_ms = 0 })
    local place
    local text = told(function()
      place = next_line()
      x:is "open"
    end)
    assert.equal(place .. [[the breaker is closed; expected: the breaker is open

    at ms  what             came to            breaker  and
        0  call 1: 503      failure            closed   1 of 1 failed
      400  call 2: 503      failure            closed   2 of 2 failed, 2 in a row
      900  call 3: timeout  timeout            closed   3 of 3 failed, 3 in a row
      900  call 4: 404      neutral            closed   3 of 3 failed, 3 in a row
           (2 more like it)
      900  call 7: 404      neutral            closed   3 of 3 failed, 3 in a row
      900  call 8 GET /a    refused: deadline  closed   3 of 3 failed, 3 in a row
      900  expected at ]] .. place .. "the breaker is open\n", text)
  end)

  it("is told with what the breaker did, and why", function()
    local x = bench_of "open = { cooldown_ms = 1000, jitter = 0 }, half_open = { probes = 3 }"
    x:calls(5, 503):counts_as "failure"
    x:advance(1000):call(200)
    x:start()
    local text = told(x.is, x, "closed")
    has(text, "tests/lua/testing_failure_spec.lua:")
    assert.is_falsy(text:find("[C]", 1, true))
    for _, line in ipairs {
      "        0  call 5: 503  failure         open       for 1000 ms more",
      "        0  closed -> open: 5 failures in 5 calls, limit 5; open for 1000 ms, level 1",
      "     1000  1000 ms have gone by",
      "     1000  call 6: 200  probe: success  half_open  probes: 1 good, 0 bad",
      "     1000  open -> half_open: the cooldown is over, a probe goes",
      "     1000  call 7 begins",
    } do has(text, line .. "\n") end
  end)

  it("is told from its end: what came long before is only counted", function()
    local x = bench_of "trip = { failures = 1000 }"
    for _ = 1, 40 do
      x:call(503)
      x:call(404)
    end
    local text = told(x.is, x, "open")
    has(text, "           (50 earlier)\n        0  call 51: 503")
  end)
end)

describe("what a spec has wrong", function()
  for _, case in ipairs {
    -- what it does, and what it is told
    { [[t.policy "none.lua"]],
      "none.lua: " },
    { [[t.policy(5)]],
      "which policy? 5 is no path of a file" },
    { [[bench_of("", { param = {} })]],
      "there is no option \"param\": did you mean params?" },
    { [[bench_of "trip = { failure = 5 }"]],
      "trip.failure: is not a key" },
    { [[bench_of(""):call(200, { take_ms = 5 })]],
      "there is no option \"take_ms\": did you mean takes_ms?" },
    { [[bench_of(""):call(200, 5)]],
      "options must be a table, got 5" },
    { [[bench_of(""):call "timeuot"]],
      "\"timeuot\" is no outcome: " },
    { [[bench_of(""):call "timeuot"]],
      "did you mean timeout?" },
    { [[bench_of(""):call { statsu = 5 }]],
      "\"statsu\" is no field of an outcome: did you mean status?" },
    { [[bench_of(""):call { 200, print }]],
      "a script is either functions or other outcomes, not both" },
    { [[bench_of(""):call()]],
      "what does the dependency do? Say so, as in :call(200)" },
    { [[bench_of(""):calls(0, 200)]],
      "how many calls? 0 is no number of them" },
    { [[bench_of(""):advance(-1)]],
      "how many ms? -1 is none" },
    { [[bench_of(""):is "closd"]],
      "\"closd\" is no state: closed, open, half_open: did you mean closed?" },
    { [[bench_of(""):has_gone_to "opne"]],
      "\"opne\" is no state" },
    { [[bench_of(""):call(200):counts_as "ok"]],
      "\"ok\" is no outcome: success, failure, timeout, neutral" },
    { [[bench_of(""):call(200):ends_with(200)]],
      "call 1 is not under way" },
  } do
    it("is told with its place: " .. case[2], function()
      local f = assert(version.compile("local t, bench_of = ...\n" .. case[1], "@a_spec.lua"))
      local text = told(f, t, bench_of)
      has(text, case[2])
      assert.is_truthy(text:find("^[%w_/]+_spec%.lua:%d+: "), text)
    end)
  end
end)

describe("a spec without busted", function()
  --- What a runner says of a spec with this text: a line for each test.
  local function run(text, filter)
    fixture.write(on.directory .. "/a_spec.lua", text)
    fixture.write(on.directory .. "/run.lua", [[
      local suite = require "neap.testing.suite"
      package.path = arg[3] .. "/?.lua;" .. package.path
      print(suite.run(arg[1], function(name) return name:find(arg[2], 1, true) ~= nil end,
        function(r) print(r.status, r.name, r.line, r.fails_at, r.message) end))
      assert(package.loaded.helper == nil) ]])
    local pipe = io.popen(("%s %s/run.lua %s/a_spec.lua '%s' %s 2>&1"):format(version.command,
      on.directory, on.directory, filter or "", on.directory))
    local said = pipe:read("*a")
    pipe:close()
    return (said:gsub(on.directory:gsub("%p", "%%%0"), "DIR"))
  end

  it("finds its policy beside it, runs in order, and after what failed, too", function()
    fixture.write(on.directory .. "/x.lua", fixture.text "")
    assert.equal([[
before outer
before inner
one
after inner
after outer
passed	outer inner one	10	nil	nil
before outer
before inner
after inner
after outer
failed	outer inner two	11	DIR/a_spec.lua:11	the breaker is closed; expected: the breaker is open
before outer
after outer
error	outer three	13	DIR/a_spec.lua:13	no
pending	outer four	14	nil	nil
true
]], run [[
local t = require "neap.testing"
t.describe("outer", function()
  t.before_each(function() print "before outer" end)
  t.after_each(function() print "after outer" end)
  t.describe("inner", function()
    local x
    t.before_each(function() print "before inner" x = t.policy "x.lua" end)
    t.after_each(function() print "after inner" end)

    t.it("one", function() print "one" x:call(200) end)
    t.it("two", function() x:is "open" local _ = x end)
  end)
  t.it("three", function() error "no" end)
  t.pending "four"
end)
]])
  end)

  it("is not all right if what comes after a test is not", function()
    assert.equal("error\ta\t3\tDIR/a_spec.lua:2\tno\ntrue\n", run([[
local t = require "neap.testing"
t.after_each(function() error "no" end)
t.it("a", function() end) ]]))
  end)

  it("runs only what is asked for", function()
    assert.equal("passed\tb\t3\tnil\tnil\ntrue\n", run([[
local t = require "neap.testing"
t.it("a", function() end)
t.it("b", function() end) ]], "b"))
  end)

  for _, case in ipairs {
    -- a spec, and what is said
    { "local t = ",
      "DIR/a_spec.lua:1: " },
    { "error 'no'",
      "DIR/a_spec.lua:1: no" },
    { "require('neap.testing').it()",
      "DIR/a_spec.lua:1: a title, which is a text, comes first" },
    { "require('neap.testing').it('a')",
      "DIR/a_spec.lua:1: a function with the test in it is missing, got nil" },
    { "require('neap.testing').describe('a', function() error 'no' end)",
      "DIR/a_spec.lua:1: no" },
  } do
    it("says what is wrong with it: " .. case[1], function()
      has(run(case[1]), "nil\t" .. case[2])
    end)
  end

  it("leaves nothing of its own to the next one, nor in the file system", function()
    fixture.write(on.directory .. "/x.lua", fixture.text [[
      fallback = { fallback.last_good { persist = "k" } } ]])
    local path = on.directory .. "/where"
    fixture.write(on.directory .. "/helper.lua", "return 5")
    assert.equal("passed\ta\t3\tnil\tnil\ntrue\n", run(([[
a_global = require "helper"
local t = require "neap.testing"
t.it("a", function()
  local where = t.policy("x.lua").state_dir
  assert(os.rename(where, where) and not rawget(_G, "a_global"))
  local file = io.open(%q, "w")
  file:write(where)
  file:close()
end) ]]):format(path)))
    local file = assert(io.open(path))
    local where = file:read("*a")
    file:close()
    assert.is_falsy(os.rename(where, where))
  end)

  it("is an error of a script that nobody runs", function()
    fixture.write(on.directory .. "/script.lua", "require('neap.testing').it('a', function() end)")
    local pipe = io.popen(("%s %s/script.lua 2>&1"):format(version.command, on.directory))
    has(pipe:read("*a"), "script.lua:1: nothing runs tests here: neap test FILE does, or busted")
    pipe:close()
  end)
end)
