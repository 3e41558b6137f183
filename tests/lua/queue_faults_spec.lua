--- A durable queue when things are as they should not be: clocks that are set, files that are
--- damaged, disks that are full, dependencies that never take a call.
local core = require "neap.core"
local fixture = require "tests.lua.fixture"
local queues = require "tests.lua.queue_fixture"
local records = require "neap.records"

local directory, warned, host, replays
local read, write = queues.read, queues.write
local open, put, replay, fill_disk = queues.open, queues.put, queues.replay, queues.fill_disk

describe("a queue", function()
  before_each(function()
    queues.begin()
    directory, warned, host, replays =
      queues.directory, queues.warned, queues.host, queues.replays
  end)
  after_each(queues.finish)

  describe("and a clock that is set", function()
    local wall_ms, off_ms
    before_each(function()
      wall_ms, off_ms = core.wall_ms, 0
      core.wall_ms = function() return wall_ms() + off_ms end
    end)
    after_each(function() core.wall_ms = wall_ms end)

    it("does not take a call for old that came when it was 1970", function()
      off_ms = -wall_ms() + 1000
      local q = open()
      put(q, "a")
      off_ms = 0
      assert.equal("a", (replay(q, "later", 20000)))
      q:close() -- as when it could not be written to
      q.next_open_ms = 0
      q:tend(25000)
      assert.equal("a", (replay(q, "later", 30000)))
      q:tend(60001)
      assert.same({ 0, 1 }, { q.count, q.counts.dead })
    end)

    it("takes a call from the future for one that has just come", function()
      off_ms = 1e9
      local q = open()
      put(q, "a", "b")
      q:close()
      off_ms = 0
      q = open(nil, 7000)
      assert.equal("a", (replay(q, "done", 67000)))
      q:tend(67001)
      assert.same({ 0, 1 }, { q.count, q.counts.dead })
    end)

    it("goes on with a call's age in the next process, whose clock is another", function()
      local q = open(nil, 500000)
      put(q, "a")
      q:close()
      off_ms = 50000
      q = open(nil, 3)
      assert.equal("a", (replay(q, "later", 9000)))
      q:tend(10004)
      assert.same({ 0, 1 }, { q.count, q.counts.dead })
      assert.matches("expired after 60000 ms", read ".dead")
    end)
  end)

  it("makes a call ever more seldom that always fails, until the breaker closes", function()
    local q, now_ms, waits = open { max_age_ms = 1e9 }, 0, {}
    put(q, "always a 500", "b")
    for i = 1, 9 do
      replay(q, "later", now_ms)
      waits[i] = q:tend(now_ms)
      now_ms = now_ms + waits[i]
    end
    assert.same({ 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000 }, waits)
    q:hurry()
    assert.equal("always a 500", (replay(q, "done", now_ms)))
    assert.equal("b", (replay(q, "later", now_ms)))
    assert.equal(1000, q:tend(now_ms))
  end)

  it("waits as long as the breaker says, however often it was refused", function()
    local q = open()
    put(q, "a")
    for i = 0, 9 do
      q:tend(i * 300)
      replays[i + 1].done("later", "open", 300, i * 300)
    end
    assert.equal(300, q:tend(2700))
  end)

  describe("whose file is damaged in the middle", function()
    local whole
    before_each(function()
      local q = open()
      put(q, "a", "b", "c")
      whole = read()
      q:close()
    end)

    it("goes without the damaged call, and makes those behind it", function()
      local at = whole:find("s1:b", 1, true) + 3
      write(whole:sub(1, at - 1) .. "?" .. whole:sub(at + 1))
      local q = open()
      assert.equal("a", (replay(q, "done", 0)))
      assert.equal("c", (replay(q, "done", 0)))
      assert.same({ 0, 1 }, { q.count, #warned })
      assert.matches("q.queue: the record at byte %d+ is damaged: it is left out, and kept in "
        .. ".*q.damaged", warned[1])
      assert.matches("s1:%?", read ".damaged")
    end)

    it("tells in one line each what is damaged, whichever byte it is", function()
      local first, last = whole:find("E %d+ %x+\n[^\n]*s1:b[^\n]*\n")
      local step = math.max(1, math.floor((last - first) / fixture.rounds(100)))
      for at = first, last, step do
        warned = {}
        queues.warned = warned
        write(whole:sub(1, at - 1) .. string.char(whole:byte(at) ~= 0 and whole:byte(at) - 1 or 9)
          .. whole:sub(at + 1))
        local q = open()
        assert.equal("a", (replay(q, "done", 0)))
        if q.count > 0 then assert.equal("c", (replay(q, "done", 0))) end
        assert.same({ 0, 1 }, { q.count, #warned }, at)
        q:close()
      end
    end)

    it("keeps what was cut off before, too", function()
      write(whole .. "first rest")
      open():close()
      write(whole .. "second rest")
      open()
      assert.matches("first rest.*second rest", read ".damaged")
    end)
  end)

  it("has whole letters behind one that was cut off by a kill", function()
    write("X 100 0123456789abcdef\n{ half a", ".dead")
    local q = open { attempts = 1 }
    put(q, "poison")
    replay(q, "own", 0, "a 422")
    local text = read ".dead"
    local mark, content = records.at(text, (text:find("\nX ", 1, true) or 0) + 1)
    assert.equal("X", mark)
    assert.matches("poison", content)
  end)

  describe("that loses its file while a call is made again", function()
    it("does not make the call again that was done meanwhile", function()
      local q = open()
      put(q, "a", "b")
      q:tend(0)
      fill_disk(q, "none", 0)
      q.file.sync = function() return nil, "EIO" end
      local entry = q:push({ key = "k", args = {} }, 0)
      assert.is_nil((q:commit(entry, 0)))
      replays[1].done("done", nil, nil, 0)
      for _ = 1, 3 do q:tend(5000) end
      assert.equal(2, #replays)
      assert.equal("b", replays[2].args[1])
    end)
  end)

  it("says which file a full disk has no room for", function()
    local q = open()
    fill_disk(q, "E", 1)
    local entry, message = q:push({ key = "k", args = { "a", n = 1 } }, 0)
    assert.is_nil(entry)
    assert.matches("/q.queue: No space left on device$", message)
  end)

  it("takes nothing into a file that somebody has removed, and works off what was in it", function()
    local q = open()
    put(q, "a", "b")
    os.remove(queues.path ".queue")
    local entry, message = q:push({ key = "k", args = { "c", n = 1 } }, 0)
    assert.is_nil(entry)
    assert.matches("/q.queue: was removed: .* are made %(2%)$", message)
    for _, name in ipairs { "a", "b" } do assert.equal(name, (replay(q, "done", 0))) end
    put(q, "c")
    q:close()
    assert.equal("c", (replay(open(), "done", 0)))
    assert.same({}, warned)
  end)

  it("is worked off on a full disk, where nobody can write down that a call was done", function()
    local q = open()
    put(q, "a", "b", "c", "d")
    fill_disk(q, "D", 2)
    for _, name in ipairs { "a", "b" } do assert.equal(name, (replay(q, "done", 0))) end
    assert.equal(1, #warned)
    assert.matches("q.queue: No space left on device: .* may be made again after a restart",
      warned[1])
    q:close() -- in this process it is known all the same
    q.next_open_ms = 0
    q:tend(0)
    for _ = 1, 3 do q:tend(0) end
    assert.equal("c", replays[3].args[1])
    replays[3].done("done", nil, nil, 0)
    q:close() -- and now in the file, too: c was done, so were those before it
    assert.equal("d", (replay(open(), "done", 0)))
  end)

  it("does not make a call that was taken back, though the disk had no room for that", function()
    host.sync = function() end
    local q = open()
    local entry = q:push({ key = "k", args = { "a", n = 1 } }, 0)
    fill_disk(q, "C", 1)
    q:cancel(entry)
    q:close()
    host.sync = nil
    q:tend(5000)
    q:tend(5000)
    assert.same({ 0, 0 }, { q.count, #replays })
  end)

  it("is none where its directory can't be written to, until it can", function()
    local path = directory .. "/q.queue"
    assert(os.execute("mkdir " .. path)) -- in its place, whoever runs this
    local q = open()
    assert.matches("Is a directory: nothing can be queued", warned[1])
    assert.is_nil((q:push({ key = "k", args = {} }, 0)))
    assert(os.execute("rmdir " .. path))
    q:tend(5000)
    put(q, "a")
    assert.equal("a", (replay(q, "done", 5000)))
  end)
end)
