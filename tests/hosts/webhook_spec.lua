local webhook = require "neap.cmd.webhook"

local hook, posted, logged, waits, now_ms, chance

before_each(function()
  posted, logged, waits, now_ms, chance = {}, {}, {}, 0, 0.5
  hook = webhook.new {
    host = "hooks.example.com",
    post = function(id, body) posted[#posted + 1] = { id = id, body = body } end,
    later = function(ms, f) waits[#waits + 1] = { ms = ms, f = f } end,
    now = function() return now_ms end,
    random = function() return chance end,
    log = function(level, text) logged[#logged + 1] = level .. " " .. text end,
  }
end)

local function push(...)
  for _, id in ipairs { ... } do hook:push { id = id, text = "t" .. id } end
end

--- The ids that were posted.
local function ids()
  local list = {}
  for i, one in ipairs(posted) do list[i] = one.id end
  return table.concat(list, " ")
end

--- The wait that began last is over.
local function over()
  local wait = table.remove(waits)
  now_ms = now_ms + wait.ms
  wait.f()
  return wait.ms
end

describe("the webhook", function()
  it("posts each event once, in order, the next when the last is taken (B217)", function()
    push("1", "2", "3")
    assert.equal("1", ids())
    hook:done(200)
    assert.equal("1 2", ids())
    hook:done(204)
    hook:done(201)
    assert.equal("1 2 3", ids())
    assert.same({ 3, 0, 0, {} }, { hook.counts.delivered, hook:waiting(), hook.retries, logged })
    push "4"
    assert.equal('{"id": "4","text": "t4"}\n', posted[4].body)
  end)

  it("has an event's body as it was when it came", function()
    local fields = { id = "2", text = "before" }
    push "1"
    hook:push(fields)
    fields.text = "after"
    hook:done(200)
    assert.equal('{"id": "2","text": "before"}\n', posted[2].body)
  end)

  for _, case in ipairs { { 500 }, { 503 }, { 599 }, { 429 }, { 408 }, { 425 },
    { nil, "connection refused" } } do
    it("tries the same again after " .. tostring(case[1] or case[2]), function()
      push("1", "2")
      hook:done(case[1], case[2])
      assert.equal("1", ids())
      over()
      assert.equal("1 1", ids())
      hook:done(200)
      assert.equal("1 1 2", ids())
      assert.same({ 1, 1 }, { hook.retries, hook.counts.delivered })
      assert.matches(case[2] or "answered " .. case[1], logged[1], 1, true)
      assert.same({ 2, "info webhook hooks.example.com: takes events again" },
        { #logged, logged[2] })
    end)
  end

  it("waits twice as long each time, up to a minute, at least half of that for certain", function()
    for part, expected in pairs { [0] = { 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000 },
      [0.5] = { 750, 1500, 3000, 6000, 12000, 24000, 45000, 45000 } } do
      chance = part
      push "1"
      for i, ms in ipairs(expected) do
        hook:done(503)
        assert.equal(ms, over(), i)
      end
      hook:done(200)
    end
  end)

  it("begins with the shortest wait for the next event", function()
    push("1", "2")
    hook:done(503)
    over()
    hook:done(503)
    over()
    hook:done(200)
    hook:done(503)
    assert.equal(750, over())
  end)

  for _, status in ipairs { 400, 401, 404, 410, 422, 301 } do
    it("drops what is refused for good, and goes on with the next: " .. status, function()
      push("1", "2")
      hook:done(status)
      assert.same({ "1 2", 1, 0 }, { ids(), hook.counts.refused, #waits })
      assert.matches("answered " .. status, logged[1], 1, true)
    end)
  end

  it("gives an event up that was tried for an hour", function()
    push "1"
    local tries = 0
    while hook.counts.expired == 0 do
      hook:done(503)
      tries = tries + 1
      if hook.counts.expired == 0 then over() end
    end
    assert.is_true(now_ms >= 3600000 and now_ms < 3660000, now_ms)
    assert.is_true(tries > 60 and tries < 100, tries)
    assert.is_true(#logged <= 62, #logged) -- once a minute
    assert.same({ 0, false }, { hook:waiting(), hook.is_busy })
    push "2"
    assert.equal("2", posted[#posted].id)
  end)

  it("has a thousand wait; of more the oldest go, but not the one under way", function()
    for i = 1, 1003 do push(tostring(i)) end
    assert.same({ 1000, 3, "1" }, { hook:waiting(), hook.counts.overflow, ids() })
    hook:done(200)
    assert.equal("1 5", ids())
    hook:done(200)
    assert.equal("1 5 6", ids())
  end)

  it("never tells the log the path, which may be a secret", function()
    push "1"
    hook:done(404)
    assert.equal("warn webhook hooks.example.com: answered 404: an event was refused", logged[1])
  end)
end)
