local feed = require "neap.cmd.feed"
local json = require "neap.cmd.json"

local now, woken

before_each(function()
  woken = 0
  now = feed.new { boot = "b1", kept = 5, on_more = function() woken = woken + 1 end }
end)

local function push(n)
  for i = 1, n do now:push("transition", { text = "t" .. i, epoch = i }) end
end

--- All there is for him now: "1 2 beat", and the texts themselves.
local function read(follower)
  local seen, texts = {}, {}
  for text in follower.text, follower do
    if not text then break end
    texts[#texts + 1] = text
    seen[#seen + 1] = text == ":\n\n" and "beat" or text:match "^id: b1%-(%d+)\n"
  end
  return table.concat(seen, " "), texts
end

describe("the feed", function()
  it("says nothing of before to one who follows from now on, then each event once, in order",
    function()
    push(2)
    local follower = now:follow()
    assert.same({ "retry: 2000\n\n" }, { follower:text() })
    assert.is_false(follower:text())
    push(2)
    assert.equal(4, woken)
    assert.equal("3 4", (read(follower)))
    assert.is_false(follower:text())
  end)

  it("has an id, a kind, and the fields in one line, whatever is in them", function()
    local follower = now:follow()
    now:push("reload_failed", { text = "line\r\none\n\ntwo\255", policy = "p" })
    follower:text()
    local text = follower:text()
    local head, data = text:match "^(id: b1%-1\nevent: reload_failed)\ndata: ([^\r\n]*)\n\n$"
    assert.is_truthy(head, text)
    local fields = json.decode(data)
    assert.same({ "line\r\none\n\ntwo", "b1-1", "p" },
      { fields.text:sub(1, 14), fields.id, fields.policy })
  end)

  it("goes on after what he saw last when he comes back", function()
    push(4)
    for seen, rest in pairs { ["b1-2"] = "3 4", ["b1-4"] = "", ["b1-0"] = "1 2 3 4" } do
      assert.equal(rest, (read(now:follow(seen))), seen)
    end
    assert.equal(0, now.missed)
  end)

  it("says how many are gone that he has not seen, of this start of the program", function()
    push(8) -- 4 to 8 are kept
    local seen, texts = read(now:follow "b1-1")
    assert.equal("4 5 6 7 8", seen)
    assert.equal('retry: 2000\n\nevent: missed\ndata: {"count": 2}\n\n', texts[1])
    assert.equal(2, now.missed)
    seen, texts = read(now:follow "b0-700") -- of another: he has seen none of these
    assert.equal("4 5 6 7 8", seen)
    assert.is_truthy(texts[1]:find('"count": 3', 1, true))
  end)

  it("takes any Last-Event-ID: of the future, of nobody, none at all", function()
    push(3)
    for seen, rest in pairs { ["b1-99"] = "", ["nonsense"] = "1 2 3", [""] = "1 2 3",
      ["b1-x"] = "1 2 3", ["-2"] = "1 2 3", ["b1-2\n"] = "1 2 3", [("b1-1"):rep(20000)] = "1 2 3",
      ["b1-" .. ("9"):rep(40)] = "" } do
      local follower = now:follow(seen)
      assert.equal(rest, (read(follower)), seen)
      follower:close()
    end
  end)

  it("begins with the last few for one who asks for them", function()
    push(8)
    for recent, rest in pairs { [0] = "", [2] = "7 8", [5] = "4 5 6 7 8", [1e9] = "4 5 6 7 8" } do
      assert.equal(rest, (read(now:follow(nil, recent))), recent)
    end
  end)

  it("keeps so many and no more", function()
    push(100)
    local count = 0
    for key in pairs(now) do count = count + (type(key) == "number" and 1 or 0) end
    assert.equal(5, count)
    assert.equal(100, now.counts.transition)
  end)

  it("has a comment for those who wait, so that a dead connection is found out", function()
    local quiet, busy = now:follow(), now:follow()
    read(quiet)
    read(busy)
    now:beat()
    assert.equal(1, woken)
    assert.equal("beat", (read(quiet)))
    push(1)
    assert.equal("1", (read(busy))) -- that is sign of life enough
    assert.equal("1", (read(quiet)))
  end)

  it("has eight followers at most, and room again when one goes, once", function()
    local all = {}
    for i = 1, 8 do all[i] = assert(now:follow()) end
    assert.is_nil(now:follow())
    all[1]:close()
    all[1]:close()
    assert.equal(7, now.following)
    assert.is_truthy(now:follow())
    assert.is_nil(now:follow())
  end)
end)
