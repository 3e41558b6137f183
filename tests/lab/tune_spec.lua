--- neap tune: which values are tried, and which of them is recommended, or why none is.

local policies = require "neap.policy"
local report = require "neap.lab.tune_report"
local tune = require "neap.lab.tune"

local function policy_of(text)
  return assert(policies.parse(text or "return { name = 'p', trip = { failure_rate = 0.5 } }", "p"))
end

describe("what is varied", function()
  for _, case in ipairs {
    { "trip.failure_rate=0.2..0.8:0.2", { 0.2, 0.4, 0.6, 0.8 } },
    { "trip.failure_rate=0.2..0.8", { 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8 } },
    { "trip.minimum_calls=1..4", { 1, 2, 3, 4 } },
    { "open.cooldown_ms=1000..2000:400", { 1000, 1400, 1800 } },
    { "trip.consecutive_failures=3,10,5", { 3, 10, 5 } },
    { "window.kind=time,count", { "time", "count" } },
    { "timeout_ms=250", { 250 } },
  } do
    it("is read: " .. case[1], function()
      local varied = assert(tune.vary(case[1]))
      assert.equal(case[1]:match("^[^=]+"), varied.key)
      assert.same(case[2], varied.values)
    end)
  end

  for _, case in ipairs {
    { "trip.failure_rate", "must be KEY=VALUES, e.g. trip.failure_rate=0.2..0.8" },
    { "trip.failure_rat=1", "trip.failure_rat is no key of a policy: did you mean "
      .. "trip.failure_rate?" },
    { "failure_rate=0.5", "failure_rate is no key of a policy: did you mean trip.failure_rate?" },
    { "retry.attempts=1,2", "a replay cannot tell what another retry.attempts would change; what "
      .. "can be varied: window.kind, window.length_ms,", true },
    { "mode=auto", "a replay cannot tell", true },
    { "trip.failure_rate=0.2..80", "trip.failure_rate: 80 is out of range: a share over 0, up to "
      .. "1, e.g. 0.8 for 80 %" },
    { "trip.failure_rate=0.8..0.2", "trip.failure_rate: 0.8..0.2: the second must be more than the "
      .. "first" },
    { "trip.failure_rate=0.2..0.8:x", "trip.failure_rate: the step x must be a number over 0" },
    { "trip.minimum_calls=1..1000000:1", "trip.minimum_calls: is more than 200 values: take a "
      .. "larger step" },
    { "trip.minimum_calls=2.5", "trip.minimum_calls: 2.5 is not whole: a whole number from 1 to "
      .. "1000000" },
    { "trip.minimum_calls=", "trip.minimum_calls: which values? E.g. 0.3,0.5 or 0.2..0.8 or "
      .. "0.2..0.8:0.1" },
    { "open.cooldown_ms=none", "open.cooldown_ms: can't be left out: without it the default "
      .. "counts, 5000" },
    { "window.kind=time..count", "window.kind: has no range: name its values, as time,count" },
    { "window.kind=tme", 'window.kind: "tme" is not one of "time", "count": did you mean time?' },
  } do
    it("is refused: " .. case[1], function()
      local varied, message = tune.vary(case[1])
      assert.is_nil(varied)
      assert.equal(case[2], case[3] and message:sub(1, #case[2]) or message)
    end)
  end
end)

local function candidates(policy, ...)
  local varied = {}
  for i, text in ipairs { ... } do varied[i] = assert(tune.vary(text)) end
  return tune.candidates(policy, varied)
end

describe("the candidates", function()
  it("are the policy as it is, and every combination", function()
    local list, left_out = candidates(policy_of(), "trip.failure_rate=0.3,0.7",
      "trip.minimum_calls=5,10,20")
    assert.same({ 7, 0 }, { #list, left_out.count })
    assert.is_true(list[1].is_now)
    assert.same({ 0.5, 10 }, { list[1].values["trip.failure_rate"],
      list[1].values["trip.minimum_calls"] })
    assert.same({ 0.7, 20 }, { list[7].rules:numbers().failure_rate,
      list[7].rules:numbers().minimum_calls })
  end)

  it("have what follows from their values, as a file with them would", function()
    local policy = policy_of "return { name = 'p', trip = { failures = 3 }, timeout_ms = 1000 }"
    local list = candidates(policy, "timeout_ms=200,none", "open.cooldown_ms=90000")
    for i, text in ipairs { "timeout_ms = 200,", "" } do
      local same = policy_of(("return { name = 'p', trip = { failures = 3 }, %s open = { "
        .. "cooldown_ms = 90000 } }"):format(text))
      local expected, numbers = same.rules:numbers(), list[i + 1].rules:numbers()
      expected.seed, numbers.seed = nil, nil
      assert.same(expected, numbers)
    end
    assert.same({ 200, false }, { list[2].timeout_ms, list[3].timeout_ms })
  end)

  it("leave out what no policy may be, and say why", function()
    local list, left_out = candidates(policy_of(), "half_open.probes=1,5",
      "half_open.successes=1,4")
    assert.same({ 4, 1 }, { #list, left_out.count })
    assert.equal("half_open.successes: 4 is more than there are probes: at most half_open.probes, "
      .. "which is 1", left_out.why)
  end)

  it("leave a policy some rule", function()
    local list, message = candidates(policy_of(), "trip.failure_rate=none")
    assert.is_nil(list)
    assert.equal("no combination is a policy: trip: has no rule: give failures, "
      .. "consecutive_failures, failure_rate, slow_rate or decide, e.g. trip = { failures = 5 }",
      message)
  end)

  it("keep the functions that a policy decides by", function()
    local policy = policy_of "return { name = 'p', trip = { decide = function() end } }"
    local list = candidates(policy, "open.cooldown_ms=1000")
    assert.is_true(list[2].rules:numbers().trip_by_function)
  end)

  it("are not too many, nor twice", function()
    local _, message = candidates(policy_of(), "trip.minimum_calls=1..150:1",
      "open.cooldown_ms=100..1000:100")
    assert.equal("1500 combinations: 1000 are the most; vary less, or in larger steps", message)
    _, message = candidates(policy_of(), "open.jitter=0,1", "open.jitter=0.5")
    assert.equal("open.jitter is varied twice", message)
  end)
end)

local VARIED = { { key = "trip.failure_rate", values = { 0.1, 0.2, 0.3, 0.4, 0.5 } } }

--- Rows of what they lost and spared; the first is the policy as it is.
local function rows(list, more)
  local made = {}
  for i, one in ipairs(list) do
    local values = { ["trip.failure_rate"] = one[3] or 0.1 * i }
    made[i] = tune.row({ values = values, is_now = i == 1 }, {
      opened = one.opened or 5, lost = one[1], cut_good = 0, saved = 100, saved_ms = one[2] * 1000,
      cut_ms = 0, refused = 0, open_ms = 0, refused_unknown = one.unknown or 0,
      calls = more and more.calls or 10000, failure = more and more.failure or 500,
    })
  end
  return made
end

local function front_of(made)
  local front = {}
  for i, row in ipairs(made) do
    if row.front then front[#front + 1] = i end
  end
  return front
end

describe("the verdict", function()
  it("has those on the front that none beats in both", function()
    local made = rows { { 50, 100 }, { 10, 60 }, { 10, 50 }, { 60, 90 }, { 0, 0 }, { 50, 100 },
      { 70, 100 } }
    tune.judge(made, VARIED)
    assert.same({ 1, 2, 5, 6 }, front_of(made))
  end)

  it("is the knee of the front", function()
    local made = rows { { 100, 100 }, { 0, 1 }, { 10, 80 }, { 20, 84 }, { 5, 30 } }
    local verdict = tune.judge(made, VARIED)
    assert.equal(made[3], verdict.chosen)
    assert.equal("saved_ms", verdict.gain)
    assert.is_not_nil(verdict.why:find("the knee of the front", 1, true))
    verdict = tune.judge(rows { { 100, 50 }, { 10, 80 } }, VARIED)
    assert.is_not_nil(verdict.why:find("It spares no less and costs no more", 1, true))
  end)

  it("is the middle of those that come to the same", function()
    local made = rows { { 100, 100 }, { 10, 80 }, { 10, 80 }, { 10, 80 }, { 0, 1 } }
    local verdict = tune.judge(made, VARIED)
    assert.same({ made[3], 3, {} }, { verdict.chosen, verdict.same, verdict.cautions })
  end)

  it("leaves all as it is for less than a hair", function()
    local made = rows { { 11, 80 }, { 10, 80 }, { 100, 100 }, { 0, 1 } }
    assert.equal(made[1], tune.judge(made, VARIED).chosen)
    made = rows { { 10, 80 }, { 10, 80 }, { 100, 100 } }
    assert.equal(made[1], tune.judge(made, VARIED).chosen)
  end)

  it("counts failures where they take no time", function()
    local made = rows { { 10, 0 }, { 5, 0.1 } }
    assert.equal("saved", tune.judge(made, VARIED).gain)
    assert.same({ 100, 100 }, { made[1].gain, made[2].gain })
  end)

  it("counts the good calls that a timeout cuts off as lost", function()
    local row = tune.row({ values = {} }, { opened = 0, lost = 3, cut_good = 4, saved = 0,
      saved_ms = 5, cut_ms = 6, refused = 3, open_ms = 0, refused_unknown = 0, calls = 9,
      failure = 0 })
    assert.same({ 7, 11 }, { row.lost, row.saved_ms })
  end)

  for _, case in ipairs {
    { { calls = 999 }, "the log has 999 calls; at least 1000 are needed" },
    { { calls = 1 }, "the log has 1 call; at least 1000 are needed" },
    { { failure = 1 }, "the log has 1 failure; at least 30 are needed: take one with an outage "
      .. "in it" },
    { { failure = 29 }, "the log has 29 failures; at least 30 are needed: take one with an outage "
      .. "in it" },
  } do
    it("is none if " .. case[2], function()
      local verdict = tune.judge(rows({ { 10, 10 }, { 0, 20 } }, case[1]), VARIED)
      assert.is_nil(verdict.chosen)
      assert.equal("No value is recommended: " .. case[2] .. ".", verdict.why)
    end)
  end

  it("is none if nothing ever opened", function()
    local verdict = tune.judge(rows { { 0, 0, opened = 0 }, { 0, 0, opened = 0 } }, VARIED)
    assert.is_nil(verdict.chosen)
    assert.is_not_nil(verdict.why:find("none of them opens once", 1, true))
  end)

  it("warns of one incident, of an end of what was tried, and of what nobody knows", function()
    local made = rows { { 100, 100 }, { 10, 80, 0.5, opened = 1, unknown = 7 }, { 0, 1 } }
    local cautions = tune.judge(made, VARIED).cautions
    assert.equal(3, #cautions)
    assert.is_not_nil(cautions[1]:find("one incident may fit no other", 1, true))
    assert.is_not_nil(cautions[2]:find("^trip.failure_rate = 0.5 is an end of what was tried"))
    assert.is_not_nil(cautions[3]:find("^7 of the calls"))
  end)
end)

local function result_of(made, varied)
  return {
    policy = "p<b>", path = "p.lua", varied = varied or VARIED, rows = made,
    verdict = tune.judge(made, varied or VARIED), left_out = { count = 2, why = "it & that" },
    log = { calls = 10000, from_ms = 1764547200000, to_ms = 1764550800000, damaged = 3 },
  }
end

describe("the report", function()
  local made = rows { { 100, 100 }, { 10, 80 }, { 10, 80 }, { 12, 70 }, { 0, 1 } }

  it("is a table of the front, and what speaks for the recommended one", function()
    local text = report.text(result_of(made))
    assert.equal("p<b>: 5 versions, 10,000 calls from 2025-12-01 00:00:00 to 2025-12-01 01:00:00 "
      .. "UTC", text:match("^[^\n]*"))
    assert.is_not_nil(text:find("\n +0.2 +5 +10 +100 +80 s  recommended, and 1 alike\n"))
    assert.is_not_nil(text:find("\n +0.1 +5 +100 +100 +100 s  as it is\n"))
    assert.is_not_nil(text:find("\n  and 1 that another one beats", 1, true))
    assert.is_not_nil(text:find("10 good calls lost in place of 100, 80 s of waiting", 1, true))
    assert.is_not_nil(text:find("\n  trip = { failure_rate = 0.2, … },\n", 1, true))
    assert.is_not_nil(text:find("Left out: 2 combinations that no policy may be", 1, true))
  end)

  it("counts one as one", function()
    local list = rows { { 100, 100 }, { 1, 100, opened = 1 } }
    list[2].saved = 1
    local result = result_of(list)
    result.left_out.count, result.log.damaged = 1, 1
    local text = report.text(result):gsub("%s+", " ")
    for _, said in ipairs { "1 good call lost in place of 100,", "1 failure in place of 100,",
      "opened 1 time in place of 5.", "Left out: 1 combination that no", "1 damaged line of" } do
      assert.is_not_nil(text:find(said, 1, true), said .. " is not in " .. text)
    end
  end)

  it("is JSON of every version", function()
    local json = assert(require("neap.cmd.json").decode(report.json(result_of(made))))
    assert.same({ 5, 0.2, true, false }, { #json.candidates,
      json.recommended.values["trip.failure_rate"], json.candidates[1].is_now,
      json.candidates[4].is_front })
  end)

  it("is a page, on which names are names", function()
    local page = report.html(result_of(made))
    assert.is_not_nil(page:find("Tuning p&lt;b&gt;", 1, true))
    assert.is_not_nil(page:find("it &amp; that", 1, true))
    assert.is_not_nil(page:find("recommended: 0.2</text>", 1, true))
    assert.is_not_nil(page:find("What is not known", 1, true))
  end)

  it("gives the lines of the policy, also for what is left out", function()
    local varied = { { key = "trip.failure_rate", values = { 1 } }, { key = "trip.minimum_calls",
      values = { 1 } }, { key = "timeout_ms", values = { 1 } }, { key = "trip.slow_rate",
      values = { 1 } } }
    local list = rows { { 100, 100 }, { 1, 99 } }
    list[2].values = { ["trip.failure_rate"] = 0.3, ["trip.minimum_calls"] = 7, timeout_ms = 90 }
    assert.equal("trip = { failure_rate = 0.3, minimum_calls = 7, … },\ntimeout_ms = 90,\n"
      .. "-- without trip.slow_rate", report.source(result_of(list, varied)))
  end)
end)
