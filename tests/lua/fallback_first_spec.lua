--- The short way to a last good answer: Chain:first_good beside Chain:run.
local kept_key = require "neap.kept_key"
local fixture = require "tests.lua.fixture"

local function last_good(fields)
  local made = { kind = "last_good", max_age_ms = 1000, max_entries = 4, max_bytes = 100000 }
  for k, v in pairs(fields or {}) do made[k] = v end
  return made
end

--- A guard, and what its short way answers for an id.
local function short(...)
  local g, now = fixture.guard { stages = { ... } }
  return g, now, function(id)
    local first = g.chain:first_good(g.policy)
    return first(kept_key.id_prefix(g.line) .. id, g.line.native:now())
  end
end

describe("the short way to a last good answer", function()
  it("finds by id what was remembered by it, and its age", function()
    local g, now, ask = short(last_good())
    g:remember({ id = "GET /a" }, "A")
    now:advance(7)
    assert.same({ "A", 7 }, { ask "GET /a" })
    assert.same({ nil, nil }, { ask "GET /b" })
    now:advance(993)
    assert.same({ "A", 1000 }, { ask "GET /a" })
    now:advance(1)
    assert.same({ nil, nil }, { ask "GET /a" })
  end)

  it("counts what it answers and what it declines", function()
    local g, _, ask = short(last_good())
    g:remember({ id = "a" }, "A")
    for _ = 1, 3 do ask "a" end
    ask "b"
    assert.same({
      { source = "last_good", result = "answered", count = 3 },
      { source = "last_good", result = "declined", count = 1 },
      { source = "last_good", result = "failed", count = 0 },
      { source = "last_good", result = "timeout", count = 0 },
      { source = "last_good", result = "full", count = 0 },
    }, g:stats().fallbacks)
    assert.equal(3, g.chain.durations.counts[1])
  end)

  it("is there only if the first stage runs none of the policy's functions", function()
    local g = fixture.guard { stages = { last_good() } }
    for _, case in ipairs {
      -- there   stages
      { true, { last_good() } },
      { true, { last_good { timeout_ms = 5 }, fixture.stage(function() end) } },
      { false, { last_good { key = function() return "k" end } } },
      { false, { fixture.stage(function() end), last_good() } },
      { false, {} },
    } do
      local of_policy = fixture.policy { stages = case[2] }
      g:adopt(of_policy)
      assert.equal(case[1], g.chain:first_good(of_policy) ~= nil)
    end
  end)

  it("leaves to the rest of the chain what it declines: no stage is asked twice", function()
    local g = fixture.guard { stages = { last_good(), { kind = "default", run = function()
      return "reviewed" end } } }
    local answered, value, _, info =
      g.chain:run(g.line, g.policy, { id = "a", cause = "refused" }, nil, nil, 2)
    assert.same({ true, "reviewed", "default" }, { answered, value, info.source })
    assert.equal(0, g:stats().fallbacks[2].count)
    assert.is_false(g.chain:run(g.line, g.policy, { id = "a" }, nil, nil, 3))
  end)

  it("keeps breakers apart, as the general way does", function()
    local g = fixture.guard { stages = { last_good() } }
    g:at("eu")
    g:remember({ id = "a", key = "eu" }, "eu's")
    local first, now_ms = g.chain:first_good(g.policy), g.line.native:now()
    assert.equal("eu's", (first(kept_key.id_prefix(g:at("eu")) .. "a", now_ms)))
    assert.is_nil((first(kept_key.id_prefix(g.line) .. "a", now_ms)))
  end)

  it("answers, counts and forgets what the general way does, whatever is asked", function()
    local a, now, ask = short(last_good())
    local b = fixture.guard({ stages = { last_good() } }, { clock = now })
    local seed = tonumber(os.getenv "NEAP_SEED") or 20260
    local found = 0
    math.randomseed(seed)
    for step = 1, 2000 do
      local id = "GET /" .. math.random(6)
      if math.random(3) == 1 then
        a:remember({ id = id }, step)
        b:remember({ id = id }, step)
      else
        local value, age_ms = ask(id)
        local other, info = b:fallback("refused", { id = id })
        assert.same({ other, info and info.age_ms }, { value, age_ms })
        if value then found = found + 1 end
      end
      now:advance(math.random(0, 99))
      assert.same(b:stats().fallbacks, a:stats().fallbacks)
      assert.same({ b.chain.kept[1].count, b.chain.kept[1].bytes },
        { a.chain.kept[1].count, a.chain.kept[1].bytes }, "seed " .. seed)
    end
    assert.is_true(found > 300)
  end)
end)
