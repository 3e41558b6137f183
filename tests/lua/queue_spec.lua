--- A durable queue of calls: what is in its file, whatever happens to the process.
local fixture = require "tests.lua.fixture"
local queues = require "tests.lua.queue_fixture"
local records = require "neap.records"

local directory, warned, host, replays
local path, read, write = queues.path, queues.read, queues.write
local open, put, replay, fill_disk = queues.open, queues.put, queues.replay, queues.fill_disk

describe("a queue", function()
  before_each(function()
    queues.begin()
    directory, warned, host, replays =
      queues.directory, queues.warned, queues.host, queues.replays
  end)
  after_each(queues.finish)

  it("makes calls again in the order in which they came, one at a time", function()
    local q = open()
    put(q, "a", "b", "c")
    q:tend(0)
    assert.equal(1, #replays)
    q:tend(5000)
    assert.equal(1, #replays)
    replays[1].done("done", nil, nil, 0)
    assert.equal("b", (replay(q, "done", 0)))
    assert.equal("c", (replay(q, "done", 0)))
    assert.is_nil(q:tend(0))
    assert.same({ 0, 0, 3 }, { q.count, q.bytes, q.counts.done })
  end)

  it("leaves a call the oldest while the dependency is at fault, and waits", function()
    local q = open()
    put(q, "a", "b")
    assert.equal("a", (replay(q, "later", 0)))
    assert.equal(1000, q:tend(0))
    assert.equal(1, #replays)
    assert.equal("a", (replay(q, "later", 1000)))
    q:hurry() -- the breaker has closed
    assert.equal("a", (replay(q, "done", 1001)))
    assert.equal("b", (replay(q, "done", 1001)))
  end)

  it("gives a call the same id each time, and no other call that id, in no process", function()
    local q = open()
    put(q, "a", "b")
    local _, first = replay(q, "later", 0)
    q:close()
    q = open()
    local _, again = replay(q, "done", 0)
    local _, other = replay(q, "done", 0)
    put(q, "c")
    local _, third = replay(q, "done", 0)
    assert.equal(first.id, again.id)
    assert.matches("^%x+$", first.id)
    assert.is_true(first.id ~= other.id and third.id ~= first.id and third.id ~= other.id)
  end)

  it("makes no call again that was done before a restart", function()
    local q = open()
    put(q, "a", "b", "c")
    replay(q, "done", 0)
    replay(q, "done", 0)
    q:close()
    q = open()
    assert.equal(1, q.count)
    assert.equal("c", (replay(q, "done", 0)))
  end)

  it("does not make a call again that was done though the disk had no room for that", function()
    local q = open()
    put(q, "a", "b")
    fill_disk(q, "D", 1)
    assert.equal("a", (replay(q, "done", 0)))
    assert.matches("No space left", warned[1])
    q:tend(5000)
    for _ = 1, 3 do q:tend(5000) end
    assert.equal(2, #replays)
    assert.equal("b", replays[2].args[1])
  end)

  it("gives no id twice, though its file was opened anew and is empty", function()
    local q, ids = open(), {}
    for i = 1, 3 do
      put(q, "a" .. i)
      local _, entry = replay(q, "done", i * 10000)
      assert.is_nil(ids[entry.id], "twice: " .. entry.id)
      ids[entry.id] = true
      assert.equal(0, q.count)
      q:close()
      q.next_open_ms = 0
      q:tend(i * 10000)
    end
  end)

  it("puts a call to the dead letters that is its own fault so many times, and goes on", function()
    local q = open()
    put(q, "poison", "b")
    for i = 1, 3 do assert.equal("poison", (replay(q, "own", i * 1000, "a 422"))) end
    assert.equal("b", (replay(q, "done", 4000)))
    local mark, content = records.at(read ".dead", 1)
    assert.equal("X", mark)
    assert.matches("poison", content)
    assert.matches("a 422", content)
    assert.matches("goes to the dead letters, .*/q.dead: a 422", warned[1])
    assert.equal(1, q.counts.dead)
  end)

  it("counts tries across a restart", function()
    local q = open()
    put(q, "poison")
    replay(q, "own", 0)
    replay(q, "own", 1000)
    q:close()
    q = open()
    replay(q, "own", 0, "bad")
    assert.same({ 0, 1 }, { q.count, q.counts.dead })
  end)

  it("does not make a call that has waited too long", function()
    local q = open()
    put(q, "old", "new")
    q:tend(60001)
    q:tend(60001)
    assert.same({ 0, 2, 0 }, { q.count, q.counts.dead, #replays })
    assert.matches("expired after 60000 ms", read ".dead")
  end)

  it("is full at so many calls, or so many bytes", function()
    local q = open { max_entries = 2 }
    put(q, "a", "b")
    assert.same({ nil, "full" }, { q:push({ key = "k", args = { "c", n = 1 } }, 0) })
    replay(q, "done", 0)
    put(q, "c")
    q:close()
    q = open { max_bytes = 1024 }
    assert.same({ nil, "full" }, { q:push({ key = "k", args = { ("x"):rep(900), n = 1 } }, 0) })
    q:limits { max_entries = 100, max_bytes = 1000000, max_age_ms = 1, attempts = 1 }
    put(q, ("x"):rep(900))
  end)

  it("takes data only, and not more than a megabyte of one call", function()
    local q = open { max_bytes = 10000000 }
    assert.matches("that is no data", select(2, q:push({ key = "k", args = { print } }, 0)))
    assert.matches("too large",
      select(2, q:push({ key = "k", args = { ("x"):rep(1024 * 1024) } }, 0)))
    put(q, ("x"):rep(1000 * 1000))
    q:close()
    assert.equal(1, open().count)
  end)

  it("has a file that is cut when nothing waits, and never grows beyond twice its bytes", function()
    local q = open { max_bytes = 20000 }
    put(q, "first")
    for i = 1, 2000 do
      local entry = q:push({ key = "k", args = { ("x"):rep(100), n = 1 } }, 0)
      if not entry then break end
      q:durable(entry, 0, function() end)
      replay(q, "done", 0)
      assert.is_true(#read() <= 40000 + 100, i)
    end
    while q.count > 0 do replay(q, "done", 0) end
    assert.equal("neap queue 1\n", read())
    put(q, "again")
    q:close()
    q = open()
    assert.equal("again", (replay(q, "done", 0)))
  end)

  it("is had by one process at a time", function()
    local q = open()
    put(q, "a")
    local other = open()
    assert.matches("another process has this queue: nothing can be queued", warned[1])
    assert.is_nil((other:push({ key = "k", args = {} }, 0)))
    q:close()
    other:tend(5000)
    assert.equal("a", (replay(other, "done", 5000)))
  end)

  it("is not opened where others could have put it", function()
    os.execute(("touch %s/t && ln -s %s/t %s"):format(directory, directory, path ".queue"))
    assert.is_nil((open():push({ key = "k", args = {} }, 0)))
    assert.matches("is a symbolic link", warned[1])
    os.execute("rm " .. path ".queue")
    write("GIF89a and more than a line\n")
    open()
    assert.matches("is no queue", warned[2])
    assert.matches("^GIF", read())
  end)

  describe("whose process was killed", function()
    it("at any byte of what it wrote, has every call that was durable before it", function()
      local q = open()
      put(q, "a", "b", "c")
      replay(q, "done", 0)
      replay(q, "own", 0)
      local whole = read()
      q:close()
      local lengths = { [#whole] = true }
      local step = math.max(1, math.floor(#whole / fixture.rounds(60)))
      for length = 0, #whole, step do lengths[length] = true end
      for length in pairs(lengths) do
        write(whole:sub(1, length))
        q = open()
        local prefix = whole:sub(1, length)
        local want = {}
        for _, name in ipairs { "a", "b", "c" } do
          local _, last = prefix:find("s1:" .. name, 1, true)
          -- the record ends with }s..., its checksum is in its first line: whole if a line follows
          if last and prefix:find("\n", last, true) then want[#want + 1] = name end
        end
        if prefix:find("\nD %d+ %x+\n1\n") then table.remove(want, 1) end
        assert.equal(#want, q.count, length)
        for _, name in ipairs(want) do assert.equal(name, (replay(q, "done", 0))) end
        put(q, "later")
        assert.equal("later", (replay(q, "done", 0)))
        q:close()
      end
    end)

    it("has a torn record cut off, with one warning, and what was torn kept aside", function()
      local q = open()
      put(q, "a", "b")
      local whole = read()
      q:close()
      write(whole:sub(1, -5))
      q = open()
      assert.equal(1, #warned)
      assert.matches("not whole, or damaged: cut at byte %d+ of %d+, the rest is in .*q.damaged",
        warned[1])
      assert.equal(1, q.count)
      assert.matches("s1:b", read ".damaged")
    end)

    it("does not lose the calls before a damaged record, whatever byte is wrong", function()
      local q = open()
      put(q, "a", "b")
      local whole = read()
      q:close()
      local _, first_ends = whole:find("s1:a.-\n")
      local step = math.max(1, math.floor(200 / fixture.rounds(50)))
      for at = first_ends + 1, #whole, step do
        write(whole:sub(1, at - 1) .. string.char((whole:byte(at) + 1) % 256) .. whole:sub(at + 1))
        q = open()
        assert.equal("a", (replay(q, "done", 0)))
        assert.equal(0, q.count, at)
        q:close()
      end
    end)

    it("between a call and its mark makes that call again, with its id", function()
      local q = open()
      put(q, "a")
      q:tend(0)
      local id = replays[1].id
      q:close()
      q = open()
      local _, entry = replay(q, "done", 0)
      assert.equal(id, entry.id)
    end)
  end)

  describe("on a host that syncs elsewhere", function()
    local pending
    before_each(function()
      pending = {}
      host.sync = function(_, done) pending[#pending + 1] = done end
    end)

    it("tells each call when it is durable, and syncs once for all that wait", function()
      local q, told = open(), {}
      local function push(name)
        local entry = assert(q:push({ key = "k", args = { name, n = 1 } }, 0))
        q:durable(entry, 0, function(ok) told[#told + 1] = name .. tostring(ok) end)
      end
      for i = 1, 50 do push("x" .. i) end
      assert.same({ 1, 0 }, { #pending, #told })
      pending[1](true)
      assert.same({ "x1true" }, told)
      assert.equal(2, #pending) -- those that came meanwhile
      pending[2](true)
      assert.same({ 50, 2 }, { #told, #pending })
    end)

    it("makes no call again before it is durable, nor one that was taken back", function()
      local q = open()
      local a = q:push({ key = "k", args = { "a", n = 1 } }, 0)
      q:durable(a, 0, function() end)
      q:tend(0)
      assert.equal(0, #replays)
      local b = q:push({ key = "k", args = { "b", n = 1 } }, 0)
      q:cancel(a)
      q:durable(b, 0, function() end)
      pending[1](true)
      pending[2](true)
      q:tend(0)
      assert.equal("b", (replay(q, "done", 0)))
      assert.equal(0, q.count)
    end)

    it("says so to all who wait when the disk does not take it, and opens anew later", function()
      local q, told = open(), {}
      for i = 1, 3 do
        local entry = q:push({ key = "k", args = { i, n = 1 } }, 0)
        q:durable(entry, 0, function(ok) told[#told + 1] = ok == nil end)
      end
      pending[1](nil, "EIO")
      assert.same({ true, true, true }, told)
      assert.matches("EIO", warned[1])
      assert.is_nil((q:push({ key = "k", args = {} }, 0)))
      q:tend(5000)
      q:tend(5000)
      assert.equal(0, #replays) -- they are in the file, but their callers were told that they fail
      pending = {}
      local entry = q:push({ key = "k", args = { "next", n = 1 } }, 5000)
      q:durable(entry, 5000, function() end)
      pending[1](true)
      for _ = 1, 5 do q:tend(5000) end
      assert.equal("next", replays[1].args[1])
    end)

    it("closes no file under a sync", function()
      local q, ok, descriptor = open(), 0, nil
      local sync = host.sync
      host.sync = function(fd, done)
        descriptor = fd
        sync(fd, done)
      end
      local entry = q:push({ key = "k", args = {} }, 0)
      q:durable(entry, 0, function(told) ok = told end)
      q:close()
      local function is_open()
        return os.execute(("test -e /proc/$PPID/fd/%d"):format(descriptor))
      end
      assert.is_truthy(is_open() == true or is_open() == 0)
      pending[1](true)
      assert.is_nil(ok)
      assert.is_falsy(is_open() == true or is_open() == 0)
    end)
  end)
end)
