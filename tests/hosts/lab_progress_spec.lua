--- The line that says how far a long run is.
local progress = require "neap.lab.progress"

describe("progress", function()
  local now_ms, written, terminal

  local function new()
    return progress.new({
      err = function(text) written[#written + 1] = text end,
      uptime_ms = function() return now_ms end,
      is_terminal = function(fd) return fd == 2 and terminal end,
    }, "calls")
  end

  before_each(function() now_ms, written, terminal = 1000, {}, true end)

  it("shows share, rate and time left where the size is known", function()
    local line = new()
    now_ms = 3000
    line.step(25, 100, 500000)
    assert.equal("\r[######------------------]  25 %  250,000 calls/s  6 s left\27[K", written[1])
  end)

  it("shows what was done and how fast where it is not", function()
    local line = new()
    now_ms = 2000
    line.step(25, nil, 1234567)
    assert.equal("\r1,234,567 calls  1,234,567 calls/s\27[K", written[1])
  end)

  it("says minutes when there are many, and never more than all", function()
    local line = new()
    now_ms = 61000
    line.step(10, 100, 10)
    assert.truthy(written[1]:find("9 min left", 1, true))
    now_ms = 62000
    line.step(120, 100, 10)
    assert.truthy(written[2]:find("100 %", 1, true))
  end)

  it("is written five times a second at most, and goes when it is over", function()
    local line = new()
    for _ = 1, 100 do
      now_ms = now_ms + 10
      line.step(1, 100, 1)
    end
    assert.is_true(#written <= 5)
    line.stop()
    assert.equal("\r\27[K", written[#written])
  end)

  it("is not written where there is no terminal", function()
    terminal = false
    local line = new()
    now_ms = 9000
    line.step(1, 2, 3)
    line.stop()
    assert.same({}, written)
  end)
end)
