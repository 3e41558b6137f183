--- neap.reload on a disk and a clock that the test moves.
--- Real files and real events: uv_spec.lua and test_engine_reload.c.
local reload = require "neap.reload"
local version = require "tests.lua.version"

local GOOD = 'return { name = "x" }'
local BETTER = 'return { name = "x", better = true }'

--- A disk: text by path, false for a file that may not be read.
local function new_disk(texts)
  local disk = { texts = texts, reads = 0 }
  function disk.read(path)
    disk.reads = disk.reads + 1
    local text = disk.texts[path]
    if text == nil then return nil, path .. ": No such file or directory", true end
    if text == false then return nil, path .. ": Permission denied", false end
    return text
  end
  function disk.list(path)
    local names, prefix = {}, path:gsub("/$", "") .. "/"
    for known in pairs(disk.texts) do
      local name = known:sub(1, #prefix) == prefix and known:sub(#prefix + 1)
      if name and not name:find("/") then names[#names + 1] = name end
    end
    if #names == 0 then return nil, path .. ": No such file or directory" end
    return names
  end
  return disk
end

--- A loader with the manners of neap.policy: reads by the reader it is given, follows
--- `module NAME`, hashes all it read.
local function load_policy(path, given, read)
  local n = ""
  for _, entry in ipairs(given) do
    if entry.name == "n" then n = entry.value end
  end
  local text, err = read(path)
  if not text then return nil, err end
  if not text:find("^return ") then return nil, path .. ":1: syntax error near " .. text end
  local hash = text .. "|" .. n
  for name in text:gmatch("module (%w+)") do
    local module_path = path:gsub("[^/]*$", "") .. "lib/" .. name .. ".lua"
    local module_text, module_err = read(module_path)
    if not module_text then return nil, module_err end
    if module_text == "bad" then return nil, module_path .. ":1: syntax error" end
    hash = hash .. "|" .. module_text
  end
  return {
    name = path:match("([^/]*)%.lua$"),
    hash = hash,
    text = text,
    path = path,
    guards = { text:find("guard:") and { name = text:match("guard:(%w+)"), key = "fallback[1]" } },
  }
end

describe("reload", function()
  local disk, now_ms, serving, events, loads, reloader

  local function start(texts, options)
    options = options or {}
    disk, now_ms, serving, events, loads = new_disk(texts), 1000, {}, {}, 0
    local err
    reloader, err = reload.open {
      paths = options.paths or { "p/x.lua" },
      params = options.params,
      load = function(...)
        loads = loads + 1
        if options.while_loading then options.while_loading() end
        return load_policy(...)
      end,
      adopt = function(policy)
        if options.refuse and policy.text:find(options.refuse) then
          return nil, "the panel is full"
        end
        serving[policy.name] = policy
        return true
      end,
      now = function() return now_ms end,
      files = disk,
      on_event = function(event) events[#events + 1] = event end,
    }
    loads = 0
    return reloader, err
  end

  --- Looks as a host does: when it was told to, for so long.
  local function run(for_ms)
    local until_ms = now_ms + for_ms
    local next_ms = now_ms
    while next_ms <= until_ms do
      now_ms = next_ms
      next_ms = now_ms + reloader:look()
    end
    now_ms = until_ms
  end

  --- A host that gets an event for each of these writes: { at_ms, path, text }.
  local function save(writes, for_ms)
    local start_ms = now_ms
    for _, write in ipairs(writes) do
      run(start_ms + write[1] - now_ms)
      disk.texts[write[2]] = write[3]
    end
    run(for_ms)
  end

  local function kinds()
    local list = {}
    for i, event in ipairs(events) do list[i] = event.kind end
    return table.concat(list, " ")
  end

  describe("at the start", function()
    it("loads every file of a directory, but what editors leave there", function()
      start({
        ["p/x.lua"] = GOOD, ["p/y.lua"] = GOOD, ["p/.x.lua.swp"] = "", ["p/.#x.lua"] = "",
        ["p/#x.lua#"] = "", ["p/x.lua~"] = "bad", ["p/4913"] = "", ["p/readme.md"] = "",
        ["p/..data"] = "",
      }, { paths = { "p" } })
      assert.equal(GOOD, serving.x.text)
      assert.equal(GOOD, serving.y.text)
      assert.equal(2, #reloader:rows())
    end)

    it("starts only if all are good, and says all that is wrong (B121)", function()
      local made, errors = start(
        { ["p/x.lua"] = GOOD, ["p/y.lua"] = "oops", ["p/z.lua"] = "return module m" },
        { paths = { "p" } })
      assert.is_nil(made)
      assert.same({
        "p/y.lua:1: syntax error near oops",
        "p/lib/m.lua: No such file or directory",
      }, errors)
      assert.same({}, serving)
    end)

    it("starts only if the guards that fallbacks name are there", function()
      local made, errors = start({ ["p/x.lua"] = "return guard:why", ["p/y.lua"] = GOOD },
        { paths = { "p" } })
      assert.is_nil(made)
      assert.same({ 'p/x.lua: fallback[1]: fallback.guard: there is no policy "why"' }, errors)
      assert.is_truthy(start({ ["p/x.lua"] = "return guard:y", ["p/y.lua"] = GOOD },
        { paths = { "p" } }))
    end)

    it("takes a file that is named twice, or beside its directory, once", function()
      start({ ["p/x.lua"] = GOOD }, { paths = { "p/x.lua", "p", "p", "p/", "p/x.lua" } })
      assert.equal(GOOD, serving.x.text)
      assert.equal(1, #reloader:rows())
    end)

    for _, case in ipairs {
      { {}, { paths = {} }, "no policy files or directories are given" },
      { {}, { paths = { "p/x.lua" } }, "p/x.lua: No such file or directory" },
      { { ["p/x.lua"] = false }, { paths = { "p/x.lua" } }, "p/x.lua: Permission denied" },
      { { ["p/a.txt"] = "" }, { paths = { "p" } }, "p: has no policy file (*.lua)" },
      { { ["p/x.lua"] = GOOD }, { refuse = "x" }, "the panel is full" },
      { { ["p/x.lua"] = GOOD }, { params = "params.lua" },
        "params.lua: No such file or directory" },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "return 1" }, { params = "params.lua" },
        "params.lua: returns a number, not a table { policy name = params }" },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "return { x = 1 }" }, { params = "params.lua" },
        "params.lua: x = 1: must be policy name = table" },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "return { flags = {} }" }, { params = "params.lua" },
        "params.lua:1: flags: there is no such policy" },
      { { ["p/xy.lua"] = GOOD, ["params.lua"] = "return {\n xy = {},\n yx = {}, zz = {} }" },
        { paths = { "p/xy.lua" }, params = "params.lua" },
        "params.lua:3: yx: there is no such policy: did you mean xy?" },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "return {" }, { params = "params.lua" },
        "params.lua:1: unexpected symbol near " .. version.eof },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "os.exit(1)" }, { params = "params.lua" },
        "params.lua:1: " .. version.index_nil("os", "global") },
      { { ["p/x.lua"] = GOOD, ["params.lua"] = "while true do end" }, { params = "params.lua" },
        "params.lua: loading it took more than its 2000000 steps" },
    } do
      it("refuses: " .. case[3], function()
        local made, errors = start(case[1], case[2])
        assert.is_nil(made)
        assert.same({ case[3] }, errors)
      end)
    end
  end)

  describe("of a changed file", function()
    before_each(function() start { ["p/x.lua"] = GOOD } end)

    it("waits for 100 ms of rest: at 99 not yet, at 100 it serves", function()
      disk.texts["p/x.lua"] = BETTER
      assert.equal(100, reloader:look())
      now_ms = now_ms + 99
      assert.equal(1, reloader:look())
      assert.equal(GOOD, serving.x.text)
      now_ms = now_ms + 1
      assert.equal(2000, reloader:look())
      assert.equal(BETTER, serving.x.text)
      assert.equal("reloaded", kinds())
      assert.equal("p/x.lua: reloaded, " .. serving.x.hash, events[1].text)
    end)

    it("waits no longer than 1 s after the first change: a thousand edits", function()
      local writes = {}
      for i = 1, 1000 do writes[i] = { i * 3, "p/x.lua", "return { edit = " .. i .. " }" } end
      local first_seen_ms
      for _, write in ipairs(writes) do
        disk.texts["p/x.lua"] = write[3]
        run(3)
        if not first_seen_ms and #events > 0 then first_seen_ms = now_ms end
      end
      assert.is_true(first_seen_ms <= 1000 + 1000 + 6, first_seen_ms)
      run(1000)
      assert.equal("return { edit = 1000 }", serving.x.text)
      assert.is_true(loads <= 4, loads .. " loads")
      assert.is_nil(kinds():find("failed"))
    end)

    it("is not put off by other files in the same place (B137)", function()
      disk.texts["p/x.lua"] = BETTER
      for _ = 1, 4 do
        reloader:look()
        disk.texts["p/other.tmp"] = tostring(now_ms)
        now_ms = now_ms + 50
      end
      assert.equal(BETTER, serving.x.text)
    end)

    it("sees edits of equal length in one second: content is identity (B126)", function()
      for i = 1, 9 do
        save({ { 0, "p/x.lua", "return " .. i } }, 150)
        assert.equal("return " .. i, serving.x.text)
      end
      assert.equal(9, loads)
    end)

    it("does nothing for a hundred looks at unchanged content (B139)", function()
      for _ = 1, 100 do
        disk.texts["p/x.lua"] = GOOD .. "" -- touch, chmod, rewrite: the content is all there is
        run(200)
      end
      assert.equal(0, loads)
      assert.equal("", kinds())
    end)

    it("loads once for truncate, write and append within 30 ms (B134)", function()
      save({ { 0, "p/x.lua", "" }, { 10, "p/x.lua", "return" }, { 30, "p/x.lua", BETTER } }, 3000)
      assert.equal(1, loads)
      assert.equal("reloaded", kinds())
    end)

    for _, pause_ms in ipairs { 0, 50, 120, 500, 900 } do
      it(("takes no truncated file for a policy: %d ms empty (B133)"):format(pause_ms), function()
        save({ { 0, "p/x.lua", "" }, { pause_ms, "p/x.lua", BETTER } }, 3000)
        assert.equal(BETTER, serving.x.text)
        assert.equal("reloaded", kinds())
      end)
    end

    it("says so if the file stays empty: that is an error, not all defaults", function()
      save({ { 0, "p/x.lua", "  \n" } }, 999)
      assert.equal("", kinds())
      run(1)
      assert.equal("reload_failed", kinds())
      assert.equal(GOOD, serving.x.text)
    end)

    it("keeps the last good policy on an error and shows where it is, once (B122)", function()
      save({ { 0, "p/x.lua", "oops" } }, 10000)
      assert.equal(GOOD, serving.x.text)
      assert.equal("reload_failed", kinds())
      assert.equal("p/x.lua:1: syntax error near oops", events[1].text)
      assert.equal(serving.x.hash, events[1].hash)
      local row = reloader:rows()[1]
      assert.equal("p/x.lua:1: syntax error near oops", row.error)
      assert.same({ 1, 0 }, { row.failures, row.reloads })

      save({ { 0, "p/x.lua", BETTER } }, 3000)
      assert.equal("reload_failed reloaded", kinds())
      assert.is_nil(reloader:rows()[1].error)
    end)

    it("keeps the last good policy if a fallback names a guard that is not there, until it is",
      function()
      start({ ["p/x.lua"] = GOOD }, { paths = { "p" } })
      save({ { 0, "p/x.lua", "return guard:y" } }, 3000)
      assert.same({ "reload_failed", GOOD }, { kinds(), serving.x.text })
      assert.is_truthy(events[1].text:find('there is no policy "y"', 1, true))
      save({ { 0, "p/y.lua", GOOD } }, 5000)
      assert.equal("return guard:y", serving.x.text)
      assert.is_nil(reloader:rows()[1].error)
      run(10000)
      assert.equal(2, loads - 1) -- two attempts of x, one of y
    end)

    it("is quiet again, without a reload, when the error is taken back", function()
      save({ { 0, "p/x.lua", "oops" } }, 500)
      save({ { 0, "p/x.lua", GOOD } }, 3000)
      assert.equal("reload_failed back", kinds())
      assert.is_nil(reloader:rows()[1].error)
      assert.equal(0, reloader:rows()[1].reloads)
    end)

    it("treats a file it may not read as an error, not as gone", function()
      save({ { 0, "p/x.lua", false } }, 20000)
      assert.equal("reload_failed", kinds())
      assert.equal("p/x.lua: Permission denied", events[1].text)
    end)
  end)

  describe("during a load", function()
    it("keeps a change for the next look: one more load, the last content serves (B136)", function()
      local is_first = true
      start({ ["p/x.lua"] = GOOD }, {
        while_loading = function()
          if not is_first and disk.texts["p/x.lua"] == BETTER then
            now_ms = now_ms + 150
            disk.texts["p/x.lua"] = "return last"
            now_ms = now_ms + 150
          end
          is_first = false
        end,
      })
      save({ { 0, "p/x.lua", BETTER } }, 3000)
      assert.equal("return last", serving.x.text)
      assert.equal(2, loads)
      assert.equal("reloaded reloaded", kinds())
    end)

    it("loads what was seen, not what the file has become meanwhile", function()
      start({ ["p/x.lua"] = GOOD }, {
        while_loading = function() disk.texts["p/x.lua"] = "half wri" end,
      })
      disk.texts["p/x.lua"] = BETTER
      reloader:look()
      now_ms = now_ms + 100
      reloader:look()
      assert.equal(BETTER, serving.x.text)
    end)
  end)

  describe("of a file that is gone", function()
    before_each(function() start { ["p/x.lua"] = GOOD } end)

    it("is not right because it is there again: it was wrong before it went", function()
      start { ["p/x.lua"] = GOOD }
      disk.texts["p/x.lua"] = "oops"
      run(3000)
      disk.texts["p/x.lua"] = nil
      run(11000)
      assert.equal("reload_failed gone orphaned", kinds())
      disk.texts["p/x.lua"] = "oops"
      run(3000)
      local row = reloader:rows()[1]
      assert.same({ false, false }, { row.is_gone, row.is_orphaned })
      assert.equal("p/x.lua:1: syntax error near oops", row.error)
      disk.texts["p/x.lua"] = GOOD
      run(3000)
      assert.equal("back", events[#events].kind)
      assert.is_nil(reloader:rows()[1].error)
    end)

    it("serves on with one warning, and after 10 s is an orphan (B128)", function()
      disk.texts["p/x.lua"] = nil
      run(2000)
      assert.equal("gone", kinds())
      run(7999)
      assert.equal("gone", kinds())
      run(1)
      assert.equal("gone orphaned", kinds())
      run(60000)
      assert.equal("gone orphaned", kinds())
      assert.equal(GOOD, serving.x.text)
      assert.is_true(reloader:rows()[1].is_orphaned)

      save({ { 0, "p/x.lua", BETTER } }, 3000)
      assert.equal("gone orphaned reloaded", kinds())
      assert.is_false(reloader:rows()[1].is_orphaned)
      assert.is_false(reloader:rows()[1].is_gone)
    end)

    it("is back without a reload if it comes back as it was", function()
      disk.texts["p/x.lua"] = nil
      run(2000)
      disk.texts["p/x.lua"] = GOOD
      run(3000)
      assert.equal("gone back", kinds())
      assert.equal(0, loads)
    end)

    it("says nothing of a file that is deleted and created within 100 ms", function()
      save({ { 0, "p/x.lua", nil }, { 90, "p/x.lua", BETTER } }, 3000)
      assert.equal("reloaded", kinds())
    end)
  end)

  describe("of what a policy needs", function()
    it("follows a changed module, though its policy's file is the same (B140)", function()
      start { ["p/x.lua"] = "return module m", ["p/lib/m.lua"] = "one" }
      save({ { 0, "p/lib/m.lua", "two" } }, 3000)
      assert.equal("return module m||two", serving.x.hash)
      save({ { 0, "p/lib/m.lua", "bad" } }, 3000)
      save({ { 0, "p/lib/m.lua", "three" } }, 3000)
      assert.equal("reloaded reload_failed reloaded", kinds())
      assert.equal("p/lib/m.lua:1: syntax error", events[2].text)
      assert.equal("return module m||three", serving.x.hash)
    end)

    it("loads as soon as a module that was missing is there", function()
      start { ["p/x.lua"] = GOOD }
      save({ { 0, "p/x.lua", "return module m" } }, 3000)
      assert.equal("reload_failed", kinds())
      save({ { 0, "p/lib/m.lua", "one" } }, 3000)
      assert.equal("reload_failed reloaded", kinds())
    end)

    it("reloads the policies whose parameters have changed, and no other (B124)", function()
      start({
        ["p/x.lua"] = GOOD,
        ["p/y.lua"] = GOOD,
        ["params.lua"] = "return { x = { n = 1 }, y = { n = 1 } }",
      }, { paths = { "p" }, params = "params.lua" })
      assert.equal(GOOD .. "|1", serving.x.hash)
      run(10000)
      assert.equal("", kinds())
      save({ { 0, "params.lua", "return { x = { n = 1 }, y = { n = 2 } }" } }, 3000)
      assert.equal("reloaded", kinds())
      assert.equal("y", events[1].policy)
      assert.equal(GOOD .. "|2", serving.y.hash)
      save({ { 0, "params.lua", "return { z = {} }" } }, 3000)
      assert.equal("params.lua:1: z: there is no such policy: did you mean x?", events[2].text)
      assert.equal(GOOD .. "|2", serving.y.hash)
    end)
  end)

  describe("of a directory", function()
    before_each(function()
      start({ ["p/x.lua"] = GOOD, ["p/y.lua"] = GOOD }, { paths = { "p" } })
    end)

    it("is all or nothing per file: one bad file holds up no other", function()
      disk.texts["p/x.lua"] = "oops"
      save({ { 0, "p/y.lua", BETTER } }, 3000)
      assert.equal(GOOD, serving.x.text)
      assert.equal(BETTER, serving.y.text)
    end)

    it("loads a file that comes later, and forgets one that goes before it was good", function()
      save({ { 0, "p/z.lua", BETTER } }, 3000)
      assert.equal(BETTER, serving.z.text)
      save({ { 0, "p/w.lua", "oops" } }, 3000)
      assert.equal(4, #reloader:rows())
      save({ { 0, "p/w.lua", nil } }, 3000)
      assert.equal(3, #reloader:rows())
      assert.equal("reloaded reload_failed", kinds())
    end)
  end)

  describe("by force", function()
    it("waits for nothing, and tries again what was refused", function()
      start({ ["p/x.lua"] = GOOD, ["p/y.lua"] = GOOD }, { paths = { "p" } })
      assert.same({ 0, 0 }, { reloader:force() })
      disk.texts["p/x.lua"] = BETTER
      disk.texts["p/y.lua"] = "oops"
      assert.same({ 1, 1 }, { reloader:force() })
      assert.same({ 0, 1 }, { reloader:force() })
      assert.equal("reloaded reload_failed reload_failed", kinds())
    end)
  end)

  it("says what it has read, and where more may come", function()
    start({
      ["p/x.lua"] = "return module m",
      ["p/lib/m.lua"] = "one",
      ["etc/params.lua"] = "return {}",
      ["y.lua"] = GOOD,
    }, { paths = { "p", "y.lua" }, params = "etc/params.lua" })
    local directories, files = reloader:watched()
    assert.same({ "p" }, directories)
    assert.same({ "etc/params.lua", "p/lib/m.lua", "p/x.lua", "y.lua" }, files)
  end)

  it("keeps nothing of a thousand generations (B112)", function()
    start { ["p/x.lua"] = GOOD }
    local generations = setmetatable({}, { __mode = "k" })
    for i = 1, 1000 do
      save({ { 0, "p/x.lua", "return " .. i } }, 110)
      generations[serving.x] = true
    end
    events = {}
    collectgarbage()
    collectgarbage()
    local alive = 0
    for _ in pairs(generations) do alive = alive + 1 end
    assert.equal(1, alive)
    assert.equal(1000, reloader:rows()[1].reloads)
  end)
end)
