--- Last good answers in a file.
local core = require "neap.core"
local data = require "neap.data"
local kept = require "neap.kept"
local store = require "neap.store"

local directory, warned, host

local function path() return directory .. "/a" end

local function read()
  local file = assert(io.open(path() .. ".kept", "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local function write(text)
  os.remove(path() .. ".kept")
  local file = assert(core.open_file(path() .. ".kept"))
  assert(file:append(text))
  file:close()
end

local function open(now_ms, options)
  local s = store.new(100, 1000000)
  local all = { store = s, path = path(), host = host,
    warn = function(text) warned[#warned + 1] = text end }
  for k, v in pairs(options or {}) do all[k] = v end
  return kept.open(all, now_ms), s
end

--- Tends it until nothing is due, as time goes by.
local function settle(file, now_ms)
  for _ = 1, 1000 do
    local wait_ms = file:tend(now_ms)
    if not wait_ms then return now_ms end
    now_ms = now_ms + wait_ms
  end
  error "never settles"
end

describe("a file of last good answers", function()
  before_each(function()
    directory, warned, host = os.tmpname(), {}, {}
    os.remove(directory)
    assert(os.execute("mkdir -m 700 " .. directory))
  end)
  after_each(function() os.execute("rm -rf " .. directory) end)

  it("has them for the next process, with their true age", function()
    local file, s = open(1000)
    s:put("a", { on = true, list = { 1, 2.5, "x\0y" } }, 1000)
    s:put("b", "B", 3000)
    settle(file, 4000)
    file:close()
    local wall_ms = core.wall_ms
    finally(function() core.wall_ms = wall_ms end)
    core.wall_ms = function() return wall_ms() + 60000 end
    local _, other = open(7)
    local value, age_ms = other:get("a", 7, 1e9)
    assert.same({ on = true, list = { 1, 2.5, "x\0y" } }, value)
    assert.is_true(age_ms >= 63000 and age_ms < 73000, age_ms)
    assert.equal(2, other.count)
    assert.same({}, warned)
  end)

  it("keeps the order in which they were used, and what they weigh", function()
    local file, s = open(0)
    for i = 1, 5 do s:put("k" .. i, ("x"):rep(i * 10), i) end
    s:get("k1", 10, 1000)
    settle(file, 20)
    file:close()
    local _, other = open(0)
    assert.equal(s.bytes, other.bytes)
    local order = {}
    for i, one in ipairs(other:list()) do order[i] = one.key end
    assert.same({ "k2", "k3", "k4", "k5", "k1" }, order)
  end)

  it("is written seldom, and not without a change", function()
    local file, s = open(0)
    assert.is_nil(file:tend(50000))
    s:put("a", 1, 50000)
    settle(file, 50000)
    local first = read()
    s:put("b", 2, 50010)
    local wait_ms = file:tend(50010)
    assert.is_true(wait_ms > 5000, wait_ms)
    assert.equal(first, read())
    settle(file, 50010)
    assert.not_equal(first, read())
  end)

  it("is written in slices, and a program killed in the middle leaves the old one", function()
    local file, s = open(0)
    s:put("old", "O", 0)
    local now_ms = settle(file, 10000)
    local old = read()
    for i = 1, 90 do s:put(i, ("x"):rep(9000), 0) end
    local slices = 0
    now_ms = now_ms + 20000
    while file:tend(now_ms) == 5 do
      slices = slices + 1
      assert.equal(old, read())
    end
    assert.is_true(slices > 5, slices)
    assert.is_true(#read() > 800000)
  end)

  it("has what was put in the place of an answer, and what went, meanwhile", function()
    local file, s = open(0)
    s:limit(3, 1000000)
    for i = 1, 3 do s:put("k" .. i, ("x"):rep(70000), 1) end
    file:tend(10000)
    s:put("k3", "new", 15000)
    s:put("k4", "another", 15000) -- k1 goes
    s:get("k2", 15000, 1e9)
    file:tend(10005)
    s:put("k5", "another", 15000) -- and k3
    for _ = 1, 2 do file:tend(10010) end
    file:close()
    local _, other = open(0)
    assert.equal("new", other:get("k3", 0, 100000))
    assert.equal(70000, #other:get("k1", 0, 100000))
    assert.equal(70000, #other:get("k2", 0, 100000))
    assert.is_false(other:has "k4")
    assert.same({}, warned)
  end)

  it("can be written while the host syncs elsewhere", function()
    local synced
    host.sync = function(_, done) synced = done end
    local file, s = open(0)
    s:put("a", 1, 0)
    file:tend(20000)
    assert.equal(5, file:tend(20001))
    assert.equal("", read())
    synced(true)
    file:tend(20002)
    assert.not_equal("", read())
  end)

  it("takes no room on a full disk for what could not be written", function()
    local file, s = open(0)
    for i = 1, 90 do s:put(i, ("x"):rep(9000), 0) end
    local open_file = core.open_file
    finally(function() core.open_file = open_file end)
    core.open_file = function(...)
      local real, written = open_file(...), 0
      return setmetatable({}, { __index = function(_, name)
        return function(_, text, ...)
          if name == "append" then written = written + 1 end
          if written > 3 and name == "append" then return nil, "No space left on device" end
          return real[name](real, text, ...)
        end
      end })
    end
    file:flush(0)
    assert.matches("a.kept: cannot be written: No space left on device$", warned[1])
    local left = assert(io.open(path() .. ".kept.new", "rb"))
    assert.equal(0, left:seek "end")
    left:close()
    assert.equal("", read())
  end)

  -- A reload names another file, the next one the first again: that went without all later answers.
  it("goes on with a store that another file has had meanwhile", function()
    local file, s = open(0)
    s:put("a", 1, 0)
    local now_ms = settle(file, 0)
    local other = open(now_ms, { path = directory .. "/b", store = s })
    s:put("b", 2, now_ms)
    other:flush(now_ms)
    assert.is_nil(file:tend(now_ms)) -- it is no longer this one's
    file:attach(s)
    now_ms = settle(file, now_ms)
    assert.is_truthy(read():find("s1:b", 1, true))
    s:put("c", 3, now_ms)
    settle(file, now_ms)
    assert.is_truthy(read():find("s1:c", 1, true))
    assert.is_nil(other:tend(now_ms))
    other:close()
    file:close()
  end)

  it("is written at once by flush", function()
    local file, s = open(0)
    s:put("a", 1, 0)
    file:flush(1)
    file:close()
    local _, other = open(0)
    assert.equal(1, (other:get("a", 0, 1e9)))
  end)

  for title, damage in pairs {
    ["of another kind"] = function() return "something else\n" end,
    ["cut off"] = function(text) return text:sub(1, -4) end,
    ["with one byte changed"] = function(text)
      return text:sub(1, 60) .. string.char((text:byte(61) + 1) % 256) .. text:sub(62)
    end,
    ["with a length that is none"] = function(text) return (text:gsub("K %d+", "K 99999999")) end,
  } do
    it(title .. " is one warning, and no answers", function()
      local file, s = open(0)
      s:put("a", ("?"):rep(40), 0)
      file:flush(0)
      file:close()
      write(damage(read()))
      local again, other = open(0)
      assert.same({ 0, 1 }, { other.count, #warned })
      assert.matches("no answers from before the start", warned[1])
      other:put("b", 1, 0)
      again:flush(0)
      again:close()
      assert.equal(1, select(2, open(0)).count)
      assert.equal(1, #warned)
    end)
  end

  it("is not had by two processes at once; the second gets it when the first has gone", function()
    local file, s = open(0)
    s:put("a", 1, 0)
    local second, other = open(0)
    assert.matches("another process has it", warned[1])
    other:put("a", 2, 0)
    other:put("b", 2, 0)
    file:flush(0)
    file:close()
    settle(second, 10000)
    assert.same({ 2, 2 }, { (other:get("a", 0, 1e9)), other.count })
  end)

  it("is not opened if it is a link, or others can read it", function()
    os.execute(("touch %s/t && ln -s %s/t %s.kept"):format(directory, directory, path()))
    open(0):close()
    assert.matches("is a symbolic link", warned[1])
    os.execute(("rm %s.kept && touch %s.kept && chmod 644 %s.kept"):format(path(), path(), path()))
    open(0):close()
    assert.matches("must have mode 0600", warned[2])
  end)

  it("leaves out what is no data, and what comes from the future", function()
    local file, s = open(0)
    s:put("f", print, 0)
    s:put("g", "good", 0)
    s:put("later", "x", 500000)
    file:flush(0)
    file:close()
    local _, other = open(0)
    assert.same({ "good", 1 }, { (other:get("g", 0, 1e9)), other.count })
    assert.same({}, warned)
  end)
end)

describe("data as text", function()
  it("comes back as it was, on every Lua", function()
    for _, value in ipairs {
      1, -1, 0.5, 2^53, 1e300, -1e-300, 1 / 0, -1 / 0, "", "a\0\n;{}", true, false, {},
      { 1, 2, { x = { y = "z" } }, [2.5] = "k", [true] = false },
    } do
      local text = assert(data.text(value))
      assert.same(value, (data.value(text)))
    end
    local nan = data.value(assert(data.text(0 / 0)))
    assert.is_true(nan ~= nan)
    assert.same({ nil, nil }, { data.value(assert(data.text(nil))) })
  end)

  it("is not made of what is no data", function()
    local loop = {}
    loop.loop = loop
    for _, value in ipairs { print, setmetatable({}, {}), { f = print }, loop,
      coroutine.create(function() end) } do
      local text, message = data.text(value)
      assert.is_nil(text)
      assert.is_string(message)
    end
    assert.matches("too large", select(2, data.text(("x"):rep(17 * 1024 * 1024))))
  end)

  it("that is broken is told, not read", function()
    for _, text in ipairs { "", "x", "s5:abc", "i;", "ix;", "{", "{s1:a", "{Zi1;}", "{NT}", "TT",
      "u1:x", "s99999999999:x", ("{i1;"):rep(100) } do
      local value, message = data.value(text)
      assert.is_nil(value)
      assert.is_string(message, text)
    end
  end)
end)
