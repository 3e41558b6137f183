-- neap top: what it makes of answers, and lines of text of that; the terminal is test_top.sh's.

local width = require("neap.columns").count
local keys = require "neap.top.keys"
local known = require "neap.top.known"
local screen = require "neap.top.screen"

local NULL = {}
local FIELDS = { "policy", "key", "state", "mode", "mode_until", "calls", "failures", "slow",
  "in_a_row", "admitted", "level", "probe_at", "probes_in_flight", "probes_succeeded",
  "probes_failed", "neutral_share", "p50", "p99", "over", "set", "moved_at", "moved", "points" }

--- A row of /live; what is not given is as of a breaker without calls.
local function row(given)
  local usual = { policy = "flags", key = "a", state = "closed", mode = "auto", admitted = 1,
    p50 = NULL, p99 = NULL, set = NULL, moved_at = NULL, moved = NULL, points = NULL }
  local list = {}
  for i, field in ipairs(FIELDS) do
    list[i] = given[field]
    if list[i] == nil then list[i] = usual[field] == nil and 0 or usual[field] end
  end
  return list
end

local function answer(version, step, rows, more)
  local said = { instance = "1", version = version, step = step, now = 1000000, step_ms = 4000,
    steps = 4, fields = FIELDS, rows = rows, count = #rows,
    policies = { { name = "flags", error = NULL, fallbacks = NULL,
      limits = { failures = 4, failure_rate = 0.5, minimum_calls = 10, successes = 2 } } } }
  for name, value in pairs(more or {}) do said[name] = value end
  return said
end

local function take(self, ...) self:take(answer(...), 1000000, NULL) end

local function ids(list)
  local texts = {}
  for i, one in ipairs(list) do texts[i] = one.key end
  return table.concat(texts, " ")
end

describe("what neap top knows", function()
  it("goes on by what is told, and by no calls where nothing is", function()
    local all = known.new()
    take(all, 1, 2, { row { points = { 1, 0, 0, 0, 2, 0, 0, 3 } }, row { key = "b" } })
    take(all, 2, 4, { row { points = { 0, 0, 0, 0, 7, 0, 1, 0 } } }, { count = 2 })
    assert.same({ 1, 0, 0, 0, 2, 0, 0, 3, 0, 0, 0, 0, 7, 0, 1, 0 }, all.rows["flags/a"].ring)
    assert.equal(2, all:rate(all.rows["flags/a"]))
    take(all, 3, 5, {}, { count = 2 })
    assert.same({ 2, 0, 0, 3, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0 }, all.rows["flags/a"].ring)
    take(all, 4, 500, {}, { count = 2 })
    assert.equal(0, all:rate(all.rows["flags/a"]))
  end)

  it("asks for all when one is gone, or neap is another", function()
    local all = known.new()
    take(all, 1, 1, { row {}, row { key = "b" } })
    assert.equal("/live?of=1&since=1&step=1", all:path())
    take(all, 2, 1, {}, { count = 1 })
    assert.equal("/live?of=1&since=0&step=1", all:path())
    take(all, 3, 1, { row { key = "b" } })
    assert.is_nil(all.rows["flags/a"])
    take(all, 1, 1, { row { key = "c" } }, { instance = "2" })
    assert.same({ "flags/c" }, screen.sorted(all.rows))
  end)

  for _, case in ipairs {
    -- the rows, and in which order they are seen
    { "open half hand near well", { { key = "well" }, { key = "near", calls = 9, failures = 2 },
      { key = "hand", mode = "forced_closed", state = "open" },
      { key = "half", state = "half_open" }, { key = "open", state = "open" } } },
    { "forced b", { { key = "b" }, { key = "forced", mode = "forced_open" } } },
    -- a rate below its minimum of calls is far from any limit
    { "a b", { { key = "b", calls = 9, failures = 1 }, { key = "a" } } },
  } do
    it("is in this order: " .. case[1], function()
      local all, rows = known.new(), {}
      for i, given in ipairs(case[2]) do rows[i] = row(given) end
      take(all, 1, 1, rows)
      assert.equal(case[1], ids(all:list("", "trouble")))
    end)
  end

  it("counts and finds them as the page does", function()
    local all = known.new()
    take(all, 1, 1, { row { key = "a", mode = "forced_closed", state = "open", set = "set by ann" },
      row { key = "b", mode = "forced_open" }, row { key = "c", state = "half_open" },
      row { key = "d" }, row { key = "e", mode = "shadow", state = "open" } })
    assert.same({ open = 2, half_open = 1, closed = 2, hand = 3 }, all:counts())
    assert.equal("a", ids(all:list("ann", "name")))
  end)

  it("stays near a limit until it is well away from it", function()
    local all = known.new()
    local function order(failures)
      take(all, 1, 1, { row {}, row { key = "b", calls = 9, failures = failures } })
      return ids(all:list("", "trouble"))
    end
    assert.same({ "a b", "b a", "b a", "a b", "a b" },
      { order(1.9), order(2), order(1.5), order(1.1), order(1.9) })
  end)
end)

describe("its screen", function()
  local function view(more)
    local all = known.new()
    take(all, 1, 4, {
      row { key = "\27[2J" .. ("x"):rep(90), state = "open", probe_at = 1004000, moved_at = 999000,
        moved = "closed -> open: 5 failures in 9 calls, limit 5\n\27[31m", p50 = 5, p99 = 30000,
        over = 1, points = { 5, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 9 } },
      row { key = "h\195\169", state = "half_open", probes_succeeded = 1 },
      row { key = "c", set = "set by eve: \194\155", mode = "forced_closed" },
    })
    local of = { known = all, columns = 100, rows = 12, colours = false, utf8 = false, first = 1,
      where = "127.0.0.1:9464", now_ms = 1000000, text = "", sort = "trouble", is_typing = false }
    for name, value in pairs(more or {}) do of[name] = value end
    return of, all:list(of.text, of.sort)
  end

  it("has a line for each row of the terminal, none wider than that, whatever names are", function()
    for columns = 20, 200, 7 do
      for rows = 6, 30, 6 do
        local of, list = view { columns = columns, rows = rows }
        of.chosen = list[1].id
        local lines = screen.list(of, list)
        assert.equal(rows, #lines)
        for _, line in ipairs(lines) do
          assert.is_nil(line:find "%c")
          assert.is_true(width(line) <= columns, columns .. ": " .. line)
        end
        of.detail = false
        for _, line in ipairs((screen.detail(of, list[1]))) do
          assert.is_nil(line:find "%c")
          assert.is_true(width(line) <= columns, columns .. ": " .. line)
        end
      end
    end
  end)

  it("has its columns below each other, however wide a name's letters are", function()
    local of = view { columns = 100, rows = 20 }
    take(of.known, 2, 5, { row { key = "a" }, row { key = "料金" }, row { key = "e\204\129" },
      row { key = "🚀" }, row { key = ("界"):rep(40) }, row { key = "x" .. ("界"):rep(40) } })
    local lines, found = screen.list(of, of.known:list("", "name")), 0
    local at = width(lines[3]:match "^(.*)NEAREST LIMIT")
    for i = 4, of.rows do
      local before = lines[i]:match "^(.-)no calls / "
      found = found + (before and 1 or 0)
      assert.equal(before and at or nil, before and width(before))
    end
    assert.equal(7, found)
    assert.truthy(table.concat(lines, "\n"):find("flags/x界界", 1, true))
  end)

  it("says what comes next, and what was last, also without colours", function()
    local of, list = view { columns = 180 }
    of.chosen = list[1].id
    local text = table.concat(screen.list(of, list), "\n")
    for _, said in ipairs { "\n> OPEN 4 s ", "  half%-open 1/2 ", "  forced closed ", "%+xx ",
      "1 s ago: 5 failures in 9 calls, limit 5", "<=5 ms +>30 s", "set by eve: \\x9b" } do
      assert.truthy(text:find(said), said .. " is not in\n" .. text)
    end
  end)

  it("says of a mode set by hand that nothing ends it, or when it ends", function()
    local of = view { columns = 180 }
    take(of.known, 2, 5, {
      row { key = "good", mode = "forced_open", set = "set by ann" },
      row { key = "soon", mode = "forced_open", set = "set by bob", mode_until = 1300000 },
    })
    local text = table.concat(screen.list(of, of.known:list("", "name")), "\n")
    assert.truthy(text:find("flags/good .* until changed; set by ann *\n"), text)
    assert.truthy(text:find("flags/soon .* set by bob *\n"), text)
    assert.is_nil(text:find("until changed; set by bob", 1, true))
  end)

  it("says how old it is while neap does not answer", function()
    local of, list = view { lost = { why = "ECONNREFUSED", age_ms = 12300, wait_ms = 3000 } }
    assert.truthy(table.concat(screen.list(of, list), "\n"):find(
      "No answer: ECONNREFUSED. What you see is 12 s old; trying again in 3 s.", 1, true))
  end)
end)

describe("its keys", function()
  for sent, wanted in pairs {
    ["jk"] = "j k", ["\27[A\27[B\27OA"] = "up down up", ["\27"] = "escape",
    ["\27[5~q"] = "pageup q",
    ["\3\26\r"] = "ctrl-c ctrl-z enter", ["\195\169\127"] = "\195\169 backspace",
    ["\27[99;5u"] = "other", ["\255"] = "\255",
  } do
    it(("are %q as %s"):format(sent, wanted), function()
      assert.equal(wanted, table.concat(keys.of(sent), " "))
    end)
  end
end)
