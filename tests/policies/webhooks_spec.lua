local clock = require "neap.clock"
local guard = require "neap.guard"
local new = require "tests.policies.bench"

describe("policies/webhooks.lua", function()
  local it_works
  before_each(function() it_works = new "webhooks" end)

  it("opens after five failures in a row, or half of the last twenty", function()
    it_works:calls(4, { status = 503 })
    assert.equal("closed", it_works:state())
    it_works:call { status = 202 }
    it_works:calls(4, { ended_by = "timeout" })
    it_works:call { status = 202 }
    assert.equal("open", it_works:state())
    it_works.guard:reset()
    it_works:calls(5, { status = 500 })
    assert.equal("open", it_works:state())
  end)

  it("takes an event that was delivered before for a success, wrong credentials for an outage",
    function()
    assert.equal("success", it_works:call { status = 409 })
    assert.equal("neutral", it_works:call { status = 422 })
    assert.equal("failure", it_works:call { status = 401 })
  end)

  describe("with a directory", function()
    local directory, g, now, delivered, verdict

    before_each(function()
      directory, now, delivered, verdict = os.tmpname(), clock.manual(1000), {}, "ok"
      os.remove(directory)
      assert(os.execute("mkdir -m 700 " .. directory))
      g = guard.new("policies/webhooks.lua", {
        clock = now, state_dir = directory, params = { max_entries = 2 }, log = function() end,
        replay = function(entry)
          if verdict ~= "ok" then return nil, verdict end
          delivered[#delivered + 1] = entry.args[1]
          return true
        end,
      })
    end)
    after_each(function()
      g:close()
      os.execute("rm -rf " .. directory)
    end)

    local function send(event)
      return g:call(function() return nil, "down" end, event)
    end

    it("keeps events while the receiver is down, delivers them in order, and no more than fit",
      function()
      for i = 1, 5 do assert.same({ nil, "down" }, { send(i) }) end
      local id, _, info = send("a")
      assert.same({ "string", "queue" }, { type(id), info.source })
      send("b")
      local value, err = send("c")
      assert.same({ nil, "open" }, { value, err.kind })
      now:advance(6000)
      for _ = 1, 5 do g:tend() end
      assert.same({ "a", "b" }, delivered)
    end)

    it("keeps an event for which there was no connection, not one that may have arrived", function()
      local value, info = g:fallback("failure", { args = { 1 }, phase = "connect" })
      assert.same({ "string", "queue" }, { type(value), info.source })
      assert.is_nil((g:fallback("failure", { args = { 1 }, phase = "sent" })))
      assert.is_nil((g:fallback("timeout", { args = { 1 } })))
    end)

    it("opens again if the receiver is not back, and loses nothing", function()
      g:trip(nil, 5000)
      send("a")
      verdict = "down"
      for _ = 1, 100 do
        now:advance(1000)
        g:tend()
      end
      assert.equal("open", g:snapshot().state)
      verdict = "ok"
      for _ = 1, 400 do
        now:advance(1000)
        g:tend()
      end
      assert.same({ "a" }, delivered)
    end)
  end)

  it("without a directory says no rather than lose an event", function()
    local g = guard.new("policies/webhooks.lua", { clock = clock.manual(0), log = function() end })
    g:trip()
    local value, err = g:call(function() return true end, "a")
    assert.same({ nil, "open" }, { value, err.kind })
  end)
end)
