--- The ramp after closing, as a guard's callers meet it.
local fixture = require "tests.lua.fixture"
local metrics = require "neap.metrics"

local ok, bad = fixture.ok, fixture.bad
local RAMP_MS = 1000

--- A guard that has just closed again.
local function closed_again(fields, options)
  fields = fields or {}
  fields.numbers = { ramp_ms = RAMP_MS, seed = 7 }
  local g, now = fixture.guard(fields, options)
  fixture.open(g)
  now:advance(1000)
  assert.equal("ok", g:call(ok))
  assert.equal("closed", g:snapshot().state)
  return g, now
end

--- On to the first millisecond whose calls it refuses.
local function until_refused(g, now)
  repeat
    now:advance(1)
    local permit, err = g:acquire()
    if permit then g:report(permit, "success") end
  until err
end

describe("a ramp", function()
  it("lets a share of the calls in, that grows to all", function()
    local g, now = closed_again()
    local tenths = {}
    for tenth = 1, 10 do
      tenths[tenth] = 0
      for _ = 1, RAMP_MS / 10 do
        if g:call(ok) then tenths[tenth] = tenths[tenth] + 1 end
        now:advance(1)
      end
    end
    assert.is_true(tenths[1] < 20 and tenths[10] > 80, table.concat(tenths, " "))
    for _ = 1, 100 do
      now:advance(1)
      assert.equal("ok", g:call(ok))
    end
  end)

  it("refuses with a kind of its own, a text, and a time after which to ask again", function()
    local g, now = closed_again()
    until_refused(g, now)
    local value, err = g:call(ok)
    assert.same({ nil, "ramp", "p", "default" }, { value, err.kind, err.policy, err.key })
    assert.is_true(err.retry_after_ms >= 1 and err.retry_after_ms <= 32)
    local said = "the breaker has just closed, and lets only a share of the calls in"
    assert.truthy(tostring(err):find(said, 1, true))
    local _, by_acquire = g:acquire()
    assert.equal("ramp", by_acquire.kind)
    assert.is_truthy(g:acquire("k"), "another key's breaker is another")
  end)

  it("shows in the snapshot and on the page of metrics", function()
    local g, now = closed_again()
    until_refused(g, now)
    local s = g:snapshot()
    assert.is_true(s.admitted > 0 and s.admitted < 1)
    assert.same({ "closed", 1 }, { s.state, s.totals.refused_ramp })
    local page = metrics.text { g }
    local series = '{policy="p",key="default"'
    for _, line in ipairs {
      'neap_refusals_total' .. series .. ',reason="ramp"} 1',
      'neap_calls_total' .. series .. ',outcome="rejected"} 1',
      'neap_breaker_admitted_ratio' .. series .. '} ' .. metrics.number(s.admitted),
    } do assert.truthy(page:find(line, 1, true), line) end
  end)

  it("asks the fallback as another refusal does", function()
    local seen
    local g, now = closed_again { stages = {
      fixture.stage(function(call) seen = call.refused return "instead" end) } }
    until_refused(g, now)
    assert.same({ "instead", "ramp" }, { g:call(ok), seen })
  end)

  it("is opened by the ordinary rules, at the next level", function()
    local g, now = closed_again()
    local last
    g.events:on(function(event) last = event end)
    for _ = 1, 2000 do
      now:advance(1)
      g:call(bad)
      if g:snapshot().state == "open" then break end
    end
    assert.same({ "open", "consecutive_failures", 2, true },
      { last.to, last.cause, last.level, last.flapping })
  end)
end)
