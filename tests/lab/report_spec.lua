--- Reports and their figures: neap.lab.html, neap.lab.svg and what they are made of.

local axis = require "neap.lab.axis"
local html = require "neap.lab.html"
local panels = require "neap.lab.panels"
local svg = require "neap.lab.svg"
local thin = require "neap.lab.thin"

local MIDNIGHT = 1764547200000 -- 2025-12-01, UTC

local function texts(ticks)
  local found = {}
  for i, tick in ipairs(ticks) do found[i] = tick.text end
  return table.concat(found, " | ")
end

describe("the name of a row", function()
  for _, case in ipairs {
    { "a", nil, "a" },
    { ("k"):rep(22), nil, ("k"):rep(22) },
    { ("k"):rep(23), nil, ("k"):rep(21) .. "…" },
    { "a", "now", "a, now" },
    { ("k"):rep(40), "now", ("k"):rep(16) .. "…, now" },
    { ("k"):rep(40), ("p"):rep(40), ("k"):rep(9) .. "…, " .. ("p"):rep(9) .. "…" },
    { "a", ("p"):rep(40), "a, " .. ("p"):rep(18) .. "…" },
  } do
    local name, of, expected = table.unpack(case, 1, 3)
    it(("is %s of %s and %s"):format(expected, name, of), function()
      assert.equal(expected, panels.row_name { name = name, of = of })
    end)
  end
end)

describe("an axis", function()
  for _, case in ipairs {
    { "clock", 0, 7 * 86400000, "Dec 01 | Dec 02 | Dec 03 | Dec 04 | Dec 05 | Dec 06 | Dec 07 | "
      .. "Dec 08" },
    { "clock", 0, 86400000, "Dec 01 | 03:00 | 06:00 | 09:00 | 12:00 | 15:00 | 18:00 | 21:00 | "
      .. "Dec 02" },
    { "clock", 1000, 31000, "00:00:05 | 00:00:10 | 00:00:15 | 00:00:20 | 00:00:25 | 00:00:30" },
    { "clock", 59996, 60004, "00:00:59.996 | 00:00:59.997 | 00:00:59.998 | 00:00:59.999 | "
      .. "00:01:00.000 | 00:01:00.001 | 00:01:00.002 | 00:01:00.003 | 00:01:00.004" },
    { "elapsed", 0, 700, "0.0 s | 0.1 s | 0.2 s | 0.3 s | 0.4 s | 0.5 s | 0.6 s | 0.7 s" },
    { "elapsed", -1000, 120000, "0:00 | 0:30 | 1:00 | 1:30 | 2:00" },
    { "elapsed", 0, 300000, "0 min | 1 min | 2 min | 3 min | 4 min | 5 min" },
    { "elapsed", 3300000, 4200000, "56 min | 58 min | 1:00 h | 1:02 h | 1:04 h | "
      .. "1:06 h | 1:08 h | 1:10 h" },
    { "elapsed", 0, 21600000, "0:00 h | 1:00 h | 2:00 h | 3:00 h | 4:00 h | 5:00 h | 6:00 h" },
    { "elapsed", 3590000, 3620000, "59:50 | 59:55 | 1:00:00 | 1:00:05 | 1:00:10 | 1:00:15 | "
      .. "1:00:20" },
    { "linear", 0, 1, "0 % | 20 % | 40 % | 60 % | 80 % | 100 %", "share" },
    { "linear", -3, 12345, "0 | 2000 | 4000 | 6000 | 8000 | 10 k | 12 k" },
    { "log", 1, 100000, "1 ms | 10 ms | 100 ms | 1 s | 10 s | 100 s", "ms" },
    { "log", 1, 90, "1 | 2 | 5 | 10 | 20 | 50" },
  } do
    local kind, from, to, expected, unit = table.unpack(case)
    it(("of kind %s from %s to %s has ticks on round numbers"):format(kind, from, to), function()
      local base = kind == "clock" and MIDNIGHT or 0
      assert.equal(expected, texts(axis.ticks(kind, base + from, base + to, 8, unit)))
    end)
  end

  it("ends on round numbers, and begins at 0 or a power of ten", function()
    assert.same({ 0, 15 }, { axis.ends("linear", 3, 13) })
    assert.same({ -5, 10 }, { axis.ends("linear", -4, 10) })
    assert.same({ 0, 1 }, { axis.ends("linear", math.huge, -math.huge) })
    assert.same({ 0, 1 }, { axis.ends("linear", 0, 0) })
    assert.same({ 1, 1000 }, { axis.ends("log", 3, 999) })
    assert.same({ 10, 100 }, { axis.ends("log", 10, 10) })
  end)

  it("reads numbers as their unit has it", function()
    assert.equal("250 ms", axis.number(250, "ms"))
    assert.equal("1.5 s", axis.number(1500, "ms"))
    assert.equal("12.3 M", axis.number(12345678))
    assert.equal("5 calls", axis.number(5, "calls"))
    assert.equal("–", axis.number(0 / 0))
    assert.equal("∞", axis.number(math.huge, "ms"))
  end)
end)

describe("thinning", function()
  it("keeps what stands out in a column: least, most, first, last, and gaps", function()
    local x, y = {}, {}
    for i = 1, 100000 do x[i], y[i] = i, 10 end
    y[4242], y[4243], y[70000] = 99, -5, false
    local kept, seen = thin.indices(x, y, 1, 100000, 100), {}
    for _, i in ipairs(kept) do seen[i] = true end
    assert.is_true(#kept <= 5 * 101)
    assert.is_true(seen[1] and seen[4242] and seen[4243] and seen[70000] and seen[100000])
  end)

  it("takes all of a few points, in order, and one beyond each end", function()
    assert.same({ 2, 3, 4 }, thin.indices({ 1, 2, 5, 9, 10 }, { 1, 1, 1, 1, 1 }, 3, 8, 100))
    assert.same({}, thin.indices({}, {}, 0, 1, 100))
  end)

  it("knows what a series was at an instant", function()
    local x, y = { 10, 20, 30 }, { 1, false, 3 }
    assert.is_nil(thin.value_at(x, y, 9))
    assert.equal(1, thin.value_at(x, y, 19))
    assert.is_nil(thin.value_at(x, y, 20))
    assert.equal(3, thin.value_at(x, y, 1000))
    assert.is_nil(thin.value_at({}, {}, 1))
  end)
end)

--- The elements of a text of HTML: each closed, in order.
local function check_nesting(text)
  local open, void = {}, { meta = true, ["!doctype"] = true }
  text = text:gsub("<script>.-</script>", ""):gsub("<style>.-</style>", "")
  for closes, name, rest in text:gmatch("<(/?)([!%w]+)([^>]*)>") do
    if closes == "/" then
      assert.equal(name, table.remove(open))
    elseif not void[name] and rest:sub(-1) ~= "/" then
      open[#open + 1] = name
    end
  end
  assert.same({}, open)
end

local HOSTILE = "</title><script>alert(1)</script>\"'&\27[2J\226\128\174\255 \0"

local function hostile_figure()
  return svg.figure {
    title = HOSTILE, about = HOSTILE, x = { kind = "clock", label = HOSTILE },
    shades = { { from = MIDNIGHT, to = MIDNIGHT + 5000, text = HOSTILE } },
    marks = { { at = MIDNIGHT + 100, text = HOSTILE } },
    panels = {
      { kind = "bands", label = HOSTILE, rows = {
        { name = HOSTILE, spans = { { MIDNIGHT, MIDNIGHT + 9000, HOSTILE } } } } },
      { kind = "lines", label = HOSTILE, y = { unit = HOSTILE }, levels = {
        { at = 1, text = HOSTILE } }, series = {
        { name = HOSTILE, x = { MIDNIGHT, MIDNIGHT + 9000 }, y = { 1, 2 } } } },
      { kind = "scatter", label = HOSTILE, points = {
        { x = MIDNIGHT, y = 1, name = HOSTILE, label = HOSTILE, front = true, chosen = true } } },
    },
  }
end

describe("a report", function()
  it("shows hostile names as they are, and nothing of them is HTML", function()
    local page = html.page {
      title = HOSTILE, lead = HOSTILE,
      body = {
        html.heading(HOSTILE), html.paragraph(HOSTILE), html.note(HOSTILE), html.source(HOSTILE),
        html.list { HOSTILE }, html.details(HOSTILE, ""),
        html.table { caption = HOSTILE, columns = { HOSTILE }, rows = { { HOSTILE } } },
        hostile_figure(),
      },
    }
    assert.is_nil(page:find("alert(1)</script>", 1, true))
    assert.is_not_nil(page:find("alert(1)&lt;/script&gt;&quot;&#39;&amp;", 1, true))
    assert.is_nil(page:find("[%z\1-\8\11-\31\127]"))
    assert.is_nil(page:find("\226\128\174", 1, true))
    assert.is_not_nil(utf8.len(page))
    check_nesting(page)
  end)

  it("asks nobody else for anything, and lets nothing run but its own script", function()
    local page = html.page { title = "t", body = { hostile_figure() } }
    assert.is_not_nil(page:find("default-src 'none'; style-src 'sha256-", 1, true))
    for _, word in ipairs { "http:", "https:", "src=", "href=", "@import", "url(", "onclick",
      "'unsafe-inline'" } do
      assert.is_nil(page:find(word, 1, true), word)
    end
  end)

  it("tells each figure's picture in words, and gives its numbers as a table", function()
    local figure = svg.figure {
      title = "probes", about = "They come at once.", x = { kind = "elapsed" },
      panels = { { kind = "lines", label = "probes/s", series = {
        { name = "a", x = { 0, 1000, 2500 }, y = { 7, false, 12345 } } } } },
    }
    assert.is_not_nil(figure:find('role="img" aria%-labelledby="f%d+%-t f%d+%-d"'))
    assert.is_not_nil(figure:find("<desc id=\"f%d+%-d\">They come at once.</desc>"))
    assert.is_not_nil(figure:find('<td>2.500 s</td><td class="n">12.3 k</td>', 1, true))
    assert.is_not_nil(figure:find('<td>1.000 s</td><td class="n">–</td>', 1, true))
  end)
end)

--- The d of the last path of that class: those before are the samples beside names.
local function path_of(figure, class)
  return figure:match('.*<path class="' .. class .. '" d="([^"]*)"')
end

local function one_series(draw, x, y, more)
  local figure = { title = "t", about = "", x = { kind = "elapsed", from = 0, to = 100 }, panels = {
    { kind = "lines", label = "l", height = 100, y = { from = 0, to = 10 },
      series = { { name = "a", draw = draw, x = x, y = y } } } } }
  for name, value in pairs(more or {}) do figure[name] = value end
  return svg.figure(figure)
end

describe("a figure", function()
  it("draws a line, and breaks it where there is a gap", function()
    local figure = one_series("line", { 0, 25, 50, 75, 100 }, { 0, 10, false, 5, 0 / 0 })
    assert.equal("M0,99.0L5000,1.0M15000,50.0", path_of(figure, "l s1"))
  end)

  it("draws a step, which holds until the next", function()
    local figure = one_series("step", { 0, 50, 75, 100 }, { 1, 1, 5, 5 })
    assert.equal("M0,89.2H10000H15000V50.0H20000", path_of(figure, "l s1"))
  end)

  it("draws an area down to the axis", function()
    local figure = one_series("area", { 0, 50 }, { 10, false })
    assert.equal("M0,100.0V1.0H10000V100.0Z", path_of(figure, "a s1"))
  end)

  it("draws what a log axis can't hold at its edge", function()
    local figure = one_series("line", { 0, 50, 100 }, { 0, 10, 100 }, { panels = {
      { kind = "lines", label = "l", height = 100, y = { kind = "log" }, series = {
        { name = "a", x = { 0, 50, 100 }, y = { 0, 10, 100 } } } } } })
    assert.equal("M0,99.0L10000,99.0L20000,1.0", path_of(figure, "l s1"))
  end)

  it("draws states at heights of their own, and an open one that is shorter than a dot", function()
    local figure = svg.figure {
      title = "t", about = "", x = { kind = "elapsed", from = 0, to = 1000000 },
      panels = { { kind = "bands", label = "state", rows = { { name = "a", spans = {
        { 0, 500000, "closed" }, { 500000, 500001, "open" }, { 500001, 700000, "half_open" },
        { 700000, 1000000, "closed" } } } } } },
    }
    assert.equal("M0,16.0H10000v4.0H0ZM14000,16.0H20000v4.0H14000Z", path_of(figure, "closed"))
    assert.equal("M10000,4.0H10010v16.0H10000Z", path_of(figure, "open"))
    assert.equal("M10000,10.1H14000v9.9H10000Z", path_of(figure, "half_open"))
  end)

  it("rings what is chosen of a front, and labels what has room", function()
    local points = {}
    for i = 1, 30 do
      points[i] = { x = 1, y = 1, name = "n" .. i, label = "label", front = true, chosen = i == 3 }
    end
    local figure = svg.figure { title = "t", about = "", x = { kind = "linear" }, panels = {
      { kind = "scatter", label = "y", points = points } } }
    assert.equal(1, select(2, figure:gsub('class="ring"', "")))
    local labels = select(2, figure:gsub(">label</text>", ""))
    assert.is_true(labels >= 1 and labels <= 6)
  end)

  it("has room for nothing at all", function()
    for _, kind in ipairs { "clock", "elapsed", "linear", "log" } do
      local figure = svg.figure { title = "t", about = "", x = { kind = kind }, panels = {
        { kind = "lines", label = "l", series = { { name = "a", x = {}, y = {} } } },
        { kind = "bands", label = "b", rows = {} },
        { kind = "scatter", label = "s", points = {} } } }
      assert.is_nil(figure:find "nan")
      assert.is_nil(figure:find "inf")
    end
  end)

  it("of a week by the second stays small", function()
    local x, y = {}, {}
    for i = 1, 604800 do x[i], y[i] = MIDNIGHT + i * 1000, i * 7919 % 1000 end
    local figure = svg.figure { title = "t", about = "", x = { kind = "clock" }, panels = {
      { kind = "lines", label = "l", series = { { name = "a", x = x, y = y } } } } }
    assert.is_true(#figure < 120000, #figure)
  end)
end)
