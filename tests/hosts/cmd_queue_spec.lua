--- neap queue: the calls that wait, and the dead letters, of a neap that runs or has ended.
local cmd = require "neap.cmd"
local queues = require "tests.lua.queue_fixture"

local unpack = table.unpack or _G.unpack

local out, err

--- Runs the command on the directory: its exit status.
local function neap(...)
  out, err = "", ""
  return cmd.main({ "queue", ... }, {
    version = "1.2.3", is_terminal = function() return false end, env = function() end,
    out = function(text) out = out .. text end, err = function(text) err = err .. text end,
  })
end

local function here(...) return neap(queues.directory, ...) end

local function says(pattern) assert.is_truthy(out:find(pattern), out) end

--- A queue with two calls that wait, and a dead letter.
local function new()
  local q = queues.open { attempts = 1 }
  queues.put(q, "odd")
  queues.replay(q, "own", 0, "status 422")
  queues.put(q, "first")
  assert(q:push({ key = "eu", request = { method = "POST", target = "/events",
    headers = { ["idempotency-key"] = "7", Authorization = "Bearer secret" },
    body = '{ "order": 7 }\n\27[2J' } }, 0))
  q:commit({ seq = 3, id = "x" }, 0)
  return q
end

local function id_of(what) return out:match("  (%x+)  " .. what) end

describe("neap queue", function()
  before_each(queues.begin)
  after_each(queues.finish)

  it("says what waits, of a neap that runs, too", function()
    new()
    assert.same({ 0, "" }, { here(), err })
    says "^q: 2 calls wait, the oldest for [%d.]+ m?s, 1 dead letter\n$"
    assert.equal(0, here "q")
    says '\n  %x+  waits  [%d.]+ m?s  { "first" }\n'
    says "\n  %x+  waits  [%d.]+ m?s  POST /events\n"
    says '\n  %x+  dead   [%d.]+ m?s  { "odd" }: status 422\n'
  end)

  it("shows a call with its request, but no secret and nothing that a terminal obeys", function()
    new():close()
    here "q"
    assert.equal(0, here("q", out:match "(%x+)  waits  %S+ m?s  POST"))
    says "\n  key: eu\n  Authorization: %(not shown%)\n  idempotency%-key: 7\n"
    says '\n  | { "order": 7 }\n  | \\x1b%[2J\n$'
  end)

  it("shows no secret of headers in a list, as the sidecar queues them", function()
    local q = queues.open()
    assert(q:push({ key = "eu", request = { method = "POST", target = "/events",
      headers = { "Cookie", "id=secret", "Host", "shop", "AUTHORIZATION", "secret" } } }, 0))
    q:close()
    here "q"
    assert.equal(0, here("q", id_of "waits"))
    says "\n  AUTHORIZATION: %(not shown%)\n  Cookie: %(not shown%)\n  Host: shop\n$"
  end)

  it("puts a dead letter back, behind what waits, and with its id", function()
    local first = queues.open { attempts = 1 }
    queues.put(first, "odd")
    queues.replay(first, "own", 0, "status 422")
    queues.put(first, "one", "two")
    first:close()
    here "q"
    local id = id_of "dead"
    assert.equal(0, here("q", id, "--requeue"))
    assert.equal("q: 1 call back in the queue\n", out)
    here "q"
    says "^q: 3 calls wait, [^\n]*, 0 dead letters\n"
    local q = queues.open()
    assert.equal("one", (queues.replay(q, "done", 0)))
    assert.equal("two", (queues.replay(q, "done", 0)))
    local arg, entry = queues.replay(q, "done", 0)
    assert.same({ "odd", id }, { arg, entry.id })
  end)

  it("drops a dead letter, or a call that waits; the others stay", function()
    new():close()
    here "q"
    assert.equal(0, here("q", id_of "waits", "--drop"))
    here "q"
    assert.equal(0, here("q", id_of "dead", "--drop"))
    here "q"
    says "^q: 1 call waits, [^\n]*, 0 dead letters\n"
    local q = queues.open()
    q:tend(0) -- sees to what was taken back
    q:tend(1)
    assert.same({ "/events", 1, 1 }, { queues.replays[2].request.target, #queues.replays - 1,
      q.count })
  end)

  it("puts all dead letters back by one word", function()
    local q = queues.open { attempts = 1 }
    queues.put(q, "a", "b", "c")
    for at_ms = 0, 4000, 2000 do queues.replay(q, "own", at_ms, "status 422") end
    q:close()
    assert.equal(0, here("q", "all", "--requeue"))
    assert.equal("q: 3 calls back in the queue\n", out)
    here "q"
    says "^q: 3 calls wait"
  end)

  it("changes nothing of a queue that a neap has", function()
    local q = new()
    local before = queues.read() .. queues.read ".dead"
    here "q"
    assert.equal(1, here("q", id_of "dead", "--requeue"))
    assert.is_truthy(err:find("q.lock: another process has this queue: stop that neap first\n", 1,
      true), err)
    assert.equal(before, queues.read() .. queues.read ".dead")
    q:close()
  end)

  it("reads past what is damaged, or half written", function()
    new():close()
    queues.write(queues.read() .. "E 5000 0123456789abcdef\n{ half", ".queue")
    here "q"
    says "^q: 2 calls wait"
    local id = id_of "dead"
    assert.equal(0, here("q", id, "--requeue"))
    assert.matches("^neap queue: %S+q.queue: the last record is not whole, or damaged: cut ", err)
    says "^q: 1 call back in the queue\n$"
  end)

  for _, case in ipairs {
    { {}, 2, "which directory?" }, { { "/nowhere/at/all" }, 1, "neap queue: /nowhere/at/all: No " },
    { { ".", "q", "all" }, 1, "there is no queue q" }, { { ".", "--drop" }, 2, "which call?" },
    { { ".", "q", "1", "2" }, 2, "at most" },
    { { ".", "q", "1", "--drop", "--requeue" }, 2, "not both" },
  } do
    it("says what is wrong: " .. table.concat(case[1], " "), function()
      assert.equal(case[2], neap(unpack(case[1])))
      assert.is_truthy(err:find(case[3], 1, true), err)
    end)
  end

  it("knows no call but those that there are", function()
    new():close()
    assert.equal(1, here("q", "77", "--requeue"))
    assert.equal("neap queue: q: has no dead letter 77\n", err)
    assert.equal(1, here("q", "77", "--drop"))
    assert.equal(1, here("q", "77"))
    assert.equal("neap queue: q has no call 77\n", err)
  end)
end)
