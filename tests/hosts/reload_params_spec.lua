--- What is set for policies that are reloaded: parameter files laid over each other, the
--- environment, and what an operator sets while they serve.

local reload = require "neap.reload"

local FLAGS = [[
params.declare {
  timeout_ms = { type = "ms", min = 50, max = 2000, default = 300 },
  failures = { type = "whole", min = 1, max = 100, default = 5 },
  defaults = { type = "table", default = {} },
}
return { name = "flags", trip = { failures = params.failures }, timeout_ms = params.timeout_ms }
]]
local PLAIN = 'return { name = "plain", trip = { failures = params.failures or 5 } }'

local disk, now_ms, serving, adopted, events, reloader, errors

local function open(texts, options)
  disk, now_ms, serving, adopted, events = texts, 1000, {}, 0, {}
  options.now = function() return now_ms end
  options.files = {
    read = function(path)
      if disk[path] then return disk[path] end
      return nil, path .. ": No such file or directory", true
    end,
    list = function(path) return nil, path .. ": Not a directory" end,
  }
  options.adopt = function(policy)
    serving[policy.name], adopted = policy, adopted + 1
    return true
  end
  options.on_event = function(event) events[#events + 1] = event end
  options.environment = options.environment or {}
  reloader, errors = reload.open(options)
end

local function run(for_ms)
  local until_ms = now_ms + for_ms
  while now_ms < until_ms do now_ms = math.min(until_ms, now_ms + reloader:look()) end
end

local function from(name, param)
  for _, row in ipairs((reloader:params(name)).parameters) do
    if row.name == param then return row.from end
  end
end

local function set(name, given, by)
  local change = { set = {}, unset = given.unset or {}, by = by or "ann", reason = given.reason }
  given.unset, given.reason = nil, nil
  for param, value in pairs(given) do
    change.set[param] = type(value) == "string" and { text = value } or { value = value }
  end
  return reloader:set_params(name, change)
end

local BASE = "return { flags = { timeout_ms = 400, defaults = { a = 1, b = 1 } },\n"
  .. "  plain = { failures = 2 } }"
local PROD = "return {\n  flags = { failures = 7, defaults = { b = 2 } } }"

local function open_all(environment)
  open({ ["flags.lua"] = FLAGS, ["plain.lua"] = PLAIN, ["base"] = BASE, ["prod"] = PROD }, {
    paths = { "flags.lua", "plain.lua" }, params = { "base", "prod" }, environment = environment,
  })
  assert.is_nil(errors)
end

describe("parameter files", function()
  before_each(function() open_all() end)

  it("are laid over each other, in order", function()
    assert.same({ timeout_ms = 400, failures = 7, defaults = { a = 1, b = 2 } },
      serving.flags.params)
    assert.same({ "base:1", "prod:2", "prod:2" },
      { from("flags", "timeout_ms"), from("flags", "failures"), from("flags", "defaults") })
    assert.same({ failures = 2 }, serving.plain.params)
  end)

  it("are all watched, and a change of one reloads the policies whose params it changes", function()
    assert.same({ "base", "flags.lua", "plain.lua", "prod" }, select(2, reloader:watched()))
    disk.prod = "return { flags = { failures = 8 } }"
    run(3000)
    assert.same({ timeout_ms = 400, failures = 8, defaults = { a = 1, b = 1 } },
      serving.flags.params)
    assert.equal(3, adopted)
    assert.same({ "params", "reloaded" }, { events[1].kind, events[2].kind })
    assert.equal("flags: params 2: defaults { a = 1, b = 2 } -> { a = 1, b = 1 } (base:1), "
      .. "failures 7 -> 8 (prod:1)", events[1].text)
  end)

  it("that say the same in other places change nothing but where that is (B124, B139)", function()
    local before = serving.flags.hash
    disk.base = "\n\n" .. BASE
    run(3000)
    assert.same({ {}, 2, before }, { events, adopted, serving.flags.hash })
    assert.equal("base:3", from("flags", "timeout_ms"))
  end)

  it("that are wrong change nothing: neither file, nor any policy (B121)", function()
    disk.prod = "return {\n flags = { failures = 8,\n timeout_ms = 20 } }"
    run(3000)
    assert.equal(2, adopted)
    assert.equal("prod:3: flags.timeout_ms: 20 is out of range: a whole number of milliseconds "
      .. "from 50 to 2000", events[1].text)
    assert.same({ "reload_failed", "flags" }, { events[1].kind, events[1].policy })
    disk.prod = "return { flags = { failures = 8"
    run(3000)
    assert.equal("reload_failed", events[#events].kind)
    assert.equal(7, serving.flags.params.failures)
    disk.prod = "return { flags = { failures = 9 } }"
    run(3000)
    assert.equal(9, serving.flags.params.failures)
  end)

  for _, case in ipairs {
    -- base                                                                    what is said
    { "local t = {}\nt.a = t\nreturn {\n  flags = { defaults = t } }",
      "base:4: flags.defaults.a.a" },
    { "return { flags = { [true] = 1, [false] = 2 } }",      "base:1: flags: " },
    { "return { flags = { [{}] = 1, [{}] = 2 } }",           "base:1: flags: a table as a key" },
    { "return {\n  flags = { defaults = { a = function() end } } }",
      "base:2: flags.defaults.a: a function" },
    { "return { flags = { timeout_ms = 0 / 0 } }",           "base:1: flags.timeout_ms: nan" },
    { "local t = { 1 }\nfor _ = 1, 14 do t = { t, t, t, t, t, t, t, t } end\n"
      .. "return { flags = { defaults = t } }",              "base: loading it" },
  } do
    it("that hold no plain data are told, and change nothing (B121): " .. case[1], function()
      disk.base = case[1]
      run(3000)
      assert.equal(2, adopted)
      assert.equal("reload_failed", (events[1] or {}).kind)
      assert.is_truthy(events[1].text:find(case[2], 1, true), events[1].text)
      open({ ["flags.lua"] = FLAGS, base = case[1], prod = case[1] },
        { paths = { "flags.lua" }, params = { "base", "prod" } })
      assert.is_nil(reloader)
      assert.is_truthy(errors[1]:find(case[2], 1, true), errors[1])
    end)
  end

  it("of what is not declared, which may be for nobody's eyes, only the name is told", function()
    disk.base = "return { plain = { failures = 3 } }"
    run(3000)
    local said = {}
    for _, event in ipairs(events) do
      if event.kind == "params" then said[event.policy] = event.text end
    end
    assert.equal("plain: params 2: failures (base:1)", said.plain)
  end)
end)

describe("the environment", function()
  it("goes before the files, at the start and after every reload (B124)", function()
    open_all { NEAP_PARAM_FLAGS__FAILURES = "3" }
    assert.equal(3, serving.flags.params.failures)
    assert.equal("NEAP_PARAM_FLAGS__FAILURES", from("flags", "failures"))
    local before = serving.flags.hash
    reloader:force()
    assert.same({ before, {} }, { serving.flags.hash, events })
    disk.prod = "return { flags = { failures = 8, timeout_ms = 500 } }"
    run(3000)
    assert.same({ 3, 500 }, { serving.flags.params.failures, serving.flags.params.timeout_ms })
  end)

  it("that is wrong keeps the program from starting, with all that is", function()
    open({ ["flags.lua"] = FLAGS }, { paths = { "flags.lua" },
      environment = { NEAP_PARAM_FLAGS__FAILURES = "0", NEAP_PARAM_FLAGS__TIMOUT_MS = "500" } })
    assert.same({ "NEAP_PARAM_FLAGS__FAILURES: 0 is out of range: a whole number from 1 to 100\n"
      .. "NEAP_PARAM_FLAGS__TIMOUT_MS: the policy declares no such parameter: did you mean "
      .. "TIMEOUT_MS?"
    }, errors)
    open({ ["flags.lua"] = FLAGS }, { paths = { "flags.lua" },
      environment = { NEAP_PARAM_FLAG__FAILURES = "5" } })
    assert.same({ "NEAP_PARAM_FLAG__FAILURES: there is no such policy: did you mean FLAGS?" },
      errors)
  end)
end)

describe("what an operator sets", function()
  before_each(function() open_all { NEAP_PARAM_FLAGS__FAILURES = "3" } end)

  it("is in force at once, of that policy only, and is told: old, new, who and why", function()
    local changes = assert(set("flags", { timeout_ms = "500", failures = 4,
      reason = "it is slow" }))
    assert.same({
      { name = "failures", old = 3, new = 4, from = "admin, by ann: it is slow" },
      { name = "timeout_ms", old = 400, new = 500, from = "admin, by ann: it is slow" },
    }, changes)
    assert.equal(500, serving.flags.timeout_ms)
    assert.equal(3, adopted)
    assert.equal(1, #events)
    assert.equal("params", events[1].kind)
    assert.equal("flags: params 2: failures 3 -> 4, timeout_ms 400 -> 500 "
      .. "(admin, by ann: it is slow)", events[1].text)
    local policy, row = reloader:params "flags"
    assert.same({ 2, 1000, serving.flags.hash }, { row.params_version, row.params_at_ms,
      policy.hash })
  end)

  it("stays through reloads of the policy and of the files, until it is unset", function()
    assert(set("flags", { timeout_ms = 500 }))
    disk["flags.lua"] = FLAGS:gsub("300", "310")
    disk.base = "return { flags = { timeout_ms = 900 } }"
    run(3000)
    assert.equal(500, serving.flags.timeout_ms)
    assert(set("flags", { unset = { "timeout_ms" } }, "bob"))
    assert.equal(900, serving.flags.timeout_ms)
    assert.equal("base:1", from("flags", "timeout_ms"))
    assert.equal("flags: params 4: timeout_ms 500 -> 900 (base:1)", events[#events].text)
  end)

  for _, case in ipairs {
    -- set                                    what is said
    { { timeout_ms = "20" },
      "admin, by ann: params.timeout_ms: 20 is out of range" },
    { { timeout_ms = "20", failures = "4" },
      "admin, by ann: params.timeout_ms: 20 is out of range" },
    { { timout_ms = "200" },
      "the policy declares no such parameter: did you mean" },
    { { unset = { "timeout_ms" } },           "unset: timeout_ms is not set here" },
    { { defaults = "x" },                     "a table can't be written as a text" },
  } do
    it("is refused whole if any of it is wrong (B143): " .. case[2], function()
      local before = serving.flags
      local changes, err = set("flags", case[1])
      assert.is_nil(changes)
      assert.is_truthy(tostring(err):find(case[2], 1, true), tostring(err))
      assert.equal(before, serving.flags)
      assert.same({}, events)
      run(5000)
      assert.equal(before, serving.flags)
      disk.base = "return { flags = { timeout_ms = 900 } }" -- nothing of it is left behind
      run(3000)
      assert.same({ 900, "base:1" }, { serving.flags.timeout_ms, from("flags", "timeout_ms") })
    end)
  end

  it("needs a declaration, and a policy", function()
    assert.same({ nil, "plain declares no parameters, so nothing can be checked: it needs "
      .. "params.declare { … } at the top of plain.lua" }, { set("plain", { failures = 5 }) })
    assert.same({ nil, 'there is no policy "flag"' }, { set("flag", { failures = 5 }) })
  end)

  it("goes by the policy that serves while its file is wrong, and leaves that error", function()
    disk["flags.lua"] = "oops"
    run(3000)
    assert.equal("reload_failed", events[1].kind)
    assert(set("flags", { timeout_ms = 500 }))
    assert.equal(500, serving.flags.timeout_ms)
    assert.is_string(reloader:rows()[1].error)
    disk["flags.lua"] = FLAGS
    run(3000)
    assert.same({ "back", 500 }, { events[#events].kind, serving.flags.timeout_ms })
    assert.is_nil(reloader:rows()[1].error)
  end)

  it("may be what a file is refused for: once that is unset, it is taken", function()
    assert(set("flags", { timeout_ms = 60 }))
    disk["flags.lua"] = FLAGS:gsub("min = 50", "min = 100")
    run(3000)
    assert.equal("admin, by ann: params.timeout_ms: 60 is out of range: a whole number of "
      .. "milliseconds from 100 to 2000", reloader:rows()[1].error)
    assert(set("flags", { unset = { "timeout_ms" } }))
    run(3000)
    assert.is_nil(reloader:rows()[1].error)
    assert.equal(100, serving.flags.parameters[3].min)
  end)

  it("is possible while what the parameter files have for the policy is wrong", function()
    disk.prod = "return { flags = { failures = 900 } }"
    run(3000)
    assert.equal("reload_failed", events[1].kind)
    assert(set("flags", { timeout_ms = 500 }))
    assert.same({ 500, 3 }, { serving.flags.timeout_ms, serving.flags.params.failures })
    assert.is_truthy(reloader:rows()[1].error:find("900", 1, true))
    disk.prod = "return { flags = { failures = 9 } }"
    run(3000)
    assert.is_nil(reloader:rows()[1].error)
    assert.same({ timeout_ms = 500, failures = 3, defaults = { a = 1, b = 1 } },
      serving.flags.params)
  end)

  it("that is what is in force already is no change", function()
    assert.same({}, set("flags", { timeout_ms = 400 }))
    assert.same({ {}, 2 }, { events, adopted })
    assert.equal("admin, by ann", from("flags", "timeout_ms"))
  end)
end)

describe("a fallback.guard", function()
  local function guarded(name)
    return ('return { name = "a", trip = { failures = 5 }, fallback = { fallback.guard(%q) } }')
      :format(name)
  end

  it("that names a policy whose file is wrong is refused until that is right", function()
    open({ ["a.lua"] = guarded "a", ["b.lua"] = 'return { name = "b", trip = { failures = 5 } }' },
      { paths = { "a.lua", "b.lua" } })
    reloader.items[2].policy, reloader.items[2].error = nil, "never was right"
    disk["a.lua"], disk["b.lua"] = guarded "b", "oops"
    run(3000)
    assert.equal("reload_failed", events[#events].kind)
    assert.is_truthy(reloader:rows()[1].error:find('there is no policy "b"', 1, true))
    disk["b.lua"] = 'return { name = "b", trip = { failures = 6 } }'
    run(3000)
    assert.is_nil(reloader:rows()[1].error)
    assert.equal("b", serving.a.stages[1].guard)
  end)
end)
